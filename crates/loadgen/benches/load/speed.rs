//! CPU time per million requests.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::{Server, free_port, median, on_processor, start, start_memcached};

const ROUNDS: usize = 5;

/// A generator: its name and the command that loads a target for two seconds.
type Tool = (&'static str, Command);

fn exists(program: &str) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("command -v {program}")]).stdout(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// This program itself, as a child.
fn this(role: &str, target: &str) -> Command {
    let program = std::env::current_exe().unwrap();
    let mut command = on_processor(1, program.to_str().unwrap());
    command.args([role, target]);
    command
}

pub(crate) fn memcached() {
    let (_server, port) = start_memcached();
    let target = format!("127.0.0.1:{port}");
    store(port);
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("memaslap");
    std::fs::write(&config, "key\n16 16 1\nvalue\n32 32 1\ncmd\n0 0.1\n1 0.9\n").unwrap();
    let tools = || {
        let mut tools: Vec<Tool> = vec![
            ("minimal client", this("minimal-memcached", &target)),
            ("kendall", this("ours-memcached", &target)),
        ];
        if exists("memaslap") {
            let mut command = on_processor(1, "memaslap");
            command.args(["-s", &target, "-T", "1", "-c", "64", "-t", "2s", "-F"]).arg(&config);
            tools.push(("memaslap (9 get, 1 set)", command));
        }
        if exists("memcslap") {
            let mut command = on_processor(1, "memcslap");
            command.args(["--servers", &target, "--concurrency=64", "--test=get"]);
            command.args(["--execute-number=300", "--initial-load=2000"]);
            tools.push(("memcslap (64 threads)", command));
        }
        tools
    };
    let costs = rounds(&tools, &|| memcached_requests(port));
    println!("\nmemcached 32-byte gets, 1 thread, 64 connections: CPU s per million requests");
    print(&costs, "minimal client", "at most 5.5, aim 4.2; at most 1.5 of the minimal client");
}

pub(crate) fn http() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, port) = start_nginx(folder.path());
    let target = format!("127.0.0.1:{port}");
    let url = format!("http://{target}/");
    let tools = || {
        let mut tools: Vec<Tool> = vec![
            ("minimal client", this("minimal-http", &target)),
            ("kendall", this("ours-http", &target)),
        ];
        if exists("wrk") {
            let mut command = on_processor(1, "wrk");
            command.args(["-t1", "-c64", "-d2s", &url]);
            tools.push(("wrk", command));
        }
        if exists("hey") {
            let mut command = on_processor(1, "hey");
            command.args(["-c", "64", "-z", "2s", "-cpus", "1", &url]);
            tools.push(("hey", command));
        }
        tools
    };
    let costs = rounds(&tools, &|| nginx_requests(port));
    println!(
        "\nHTTP/1.1 keep-alive GETs, nginx, 1 thread, 64 connections: CPU s per million requests"
    );
    print(&costs, "wrk", "at most 1.1 of wrk, aim below it");
}

/// Runs all tools in each round, every round from another one on; CPU s per million requests.
fn rounds(
    tools: &dyn Fn() -> Vec<Tool>,
    requests: &dyn Fn() -> u64,
) -> BTreeMap<&'static str, Vec<f64>> {
    let mut costs: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
    for round in 0..ROUNDS {
        let mut order = tools();
        let first = round % order.len();
        order.rotate_left(first);
        for (name, mut command) in order {
            let (requests_before, cpu_before) = (requests(), children_cpu_s());
            let ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
            assert!(ended.success(), "{command:?}");
            let count = requests() - requests_before;
            let cpu_s = children_cpu_s() - cpu_before;
            let cost = cpu_s / (kendall_units::exact_f64(count) / 1e6);
            costs.entry(name).or_default().push(cost);
        }
    }
    costs
}

fn print(costs: &BTreeMap<&'static str, Vec<f64>>, base: &str, bars: &str) {
    for (name, runs) in costs {
        let ratios =
            costs.get(base).map(|base| runs.iter().zip(base).map(|(a, b)| a / b).collect());
        let ratio = ratios.map_or(f64::NAN, median);
        let low = runs.iter().copied().fold(f64::INFINITY, f64::min);
        let high = runs.iter().copied().fold(0.0, f64::max);
        let middle = median(runs.clone());
        println!("  {name:<26} {middle:>7.2}  ({low:.2} to {high:.2})   {ratio:.2} of {base}");
    }
    println!("  bars: {bars}");
}

/// CPU time of all children that have ended (proc(5), fields 16 and 17, in ticks of 10 ms).
fn children_cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let ticks: u64 = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .skip(13)
        .take(2)
        .map(|field| field.parse::<u64>().unwrap())
        .sum();
    kendall_units::exact_f64(ticks) / 100.0
}

/// Stores the keys that the minimal client and ours ask for.
fn store(port: u16) {
    let keyspace =
        kendall_loadgen::memcached::Keyspace::new(kendall_loadgen::memcached::KeyspacePlan {
            keys: 10_000,
            key_size: kendall_loadgen::memcached::Size::Fixed(16),
            value_size: kendall_loadgen::memcached::Size::Fixed(32),
            choice: kendall_loadgen::memcached::KeyChoice::Uniform,
            seed: 1,
        })
        .unwrap();
    let target = format!("127.0.0.1:{port}").parse().unwrap();
    let timeout = std::time::Duration::from_secs(5);
    kendall_loadgen::memcached::prefill(target, &keyspace, &crate::gets(), timeout, &|| false)
        .unwrap();
}

fn ask(port: u16, request: &[u8], end: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(request).unwrap();
    let mut text = String::new();
    let mut input = [0; 8_192];
    while !text.contains(end) {
        let read = stream.read(&mut input).unwrap();
        if read == 0 {
            break;
        }
        text.push_str(&String::from_utf8_lossy(&input[..read]));
    }
    text
}

fn memcached_requests(port: u16) -> u64 {
    ask(port, b"stats\r\n", "END\r\n")
        .lines()
        .filter(|line| line.contains("STAT cmd_get ") || line.contains("STAT cmd_set "))
        .filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok())
        .sum()
}

fn nginx_requests(port: u16) -> u64 {
    let request = b"GET /status HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let text = ask(port, request, "Waiting");
    let line = text.lines().skip_while(|line| !line.contains("requests")).nth(1).unwrap();
    line.split_whitespace().nth(2).unwrap().parse().unwrap()
}

fn start_nginx(folder: &std::path::Path) -> (Server, u16) {
    let port = free_port();
    let config = folder.join("nginx.conf");
    let text = format!(
        "daemon off; master_process off; pid {0}/pid; error_log /dev/null;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; keepalive_requests 1000000000; client_body_temp_path {0}/a; \
         proxy_temp_path {0}/b; fastcgi_temp_path {0}/c; uwsgi_temp_path {0}/d; scgi_temp_path {0}/e;\n\
         server {{ listen 127.0.0.1:{port}; location / {{ return 200 'ok'; }} \
         location /status {{ stub_status; }} }} }}\n",
        folder.display()
    );
    std::fs::write(&config, text).unwrap();
    let nginx =
        if std::path::Path::new("/usr/sbin/nginx").exists() { "/usr/sbin/nginx" } else { "nginx" };
    let mut command = on_processor(0, nginx);
    command.arg("-p").arg(folder).arg("-c").arg(&config);
    (start(command, port), port)
}
