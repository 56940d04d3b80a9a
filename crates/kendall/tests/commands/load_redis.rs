//! `kendall load redis` against real servers, a real cluster, and servers that are hostile.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Output;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kendall_loadgen::keyspace::{KeyChoice, Keyspace, KeyspacePlan, Size};
use kendall_loadgen::load::{self, LoadPlan};
use kendall_loadgen::random::{Purpose, stream};
use kendall_loadgen::redis::{
    Redis, RedisAccess, RedisCommand, RedisLoad, RedisPlan, Slots, prepare,
};
use kendall_loadgen::tls::Tls;
use kendall_protocols::load_result::LoadResult;
use kendall_testing::{Process, certificate, free_address, wait_until};
use serde_json::Value;

use crate::hostile::{self, End, Hostile, plan};
use crate::support::kendall;

/// What a server answers to some words, as it comes.
fn ask(address: SocketAddr, words: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(format!("{words}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.strip_suffix("+OK\r\n").unwrap().to_owned()
}

/// A number that a server answers.
fn number(address: SocketAddr, words: &str) -> u64 {
    let digits: String = ask(address, words).lines().last().unwrap().replace(':', "");
    digits.parse().unwrap()
}

fn load(address: SocketAddr, arguments: &[&str]) -> Output {
    let mut command = kendall();
    command.args(["load", "redis", &address.to_string(), "--quiet"]).args(arguments);
    command.output().unwrap()
}

/// The JSON of a load that succeeds.
fn result(address: SocketAddr, arguments: &[&str]) -> Value {
    let output = load(address, &[arguments, &["--format", "json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn what_is_counted_is_what_the_server_counts() {
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let _server = Process::redis(address, folder.path(), &[]);
    let keys = ["--keys", "250", "--value-size", "64B", "-c", "4", "--think-time", "1ms"];
    let filled = load(address, &[&keys[..], &["--prefill-only"]].concat());
    assert_eq!(filled.status.code(), Some(0), "{}", said(&filled));
    assert_eq!(number(address, "DBSIZE"), 250);
    let json = result(address, &[&keys[..], &["-n", "500", "--expected-misses", "40%"]].concat());
    let (get, set) = (&json["operations"]["get"], &json["operations"]["set"]);
    let count = |of: &Value, name: &str| of[name].as_u64().unwrap();
    assert_eq!(count(get, "completed") + count(set, "completed"), 500);
    assert_eq!(count(get, "hits") + count(get, "misses"), count(get, "completed"));
    let hits = ask(address, "INFO stats");
    let hits = hits.lines().find_map(|line| line.strip_prefix("keyspace_hits:")).unwrap();
    assert_eq!(hits.parse::<u64>().unwrap(), count(get, "hits"));
    // 455 gets of which 40 % miss: four deviations of a binomial are 42.
    assert!((count(get, "misses")).abs_diff(182) < 45, "{get}");

    // A request of a pipeline is all of its commands.
    let pipeline = ["--pipeline", "10", "-n", "30", "--command", "INCR counter"];
    let json = result(address, &[&pipeline[..], &["-c", "2", "--think-time", "1ms"]].concat());
    assert_eq!(json["operations"]["pipeline"]["completed"], 30);
    assert_eq!(ask(address, "GET counter"), "$3\r\n300\r\n");
    // Two commands by their weights, in the open loop.
    let commands =
        ["--command", "3 LPUSH list:{n} {value}", "--command", "LPUSH other 'two words'"];
    let open = ["--vary", "n=sequential:1..2", "--rate", "400/s", "-n", "80", "--value-size", "8B"];
    // How late a busy machine sends is not the question here.
    let json = result(address, &[&commands[..], &open[..], &["--late-share", "100%"]].concat());
    let second = count(&json["operations"]["lpush 2"], "completed");
    assert_eq!(number(address, "LLEN other"), second);
    assert_eq!(number(address, "LLEN list:1") + number(address, "LLEN list:2") + second, 80);
    assert!(ask(address, "LRANGE other 0 0").contains("two words"));
}

#[test]
fn errors_have_their_kinds_and_what_was_said_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let _server = Process::redis(address, folder.path(), &["--requirepass", "secret"]);
    let refused = load(address, &["-n", "1"]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(said(&refused).contains("refused a load without a password"), "{}", said(&refused));
    let refused = load(address, &["-n", "1", "--password", "wrong"]);
    assert!(said(&refused).contains("WRONGPASS"), "{}", said(&refused));
    let with = ["--password", "secret", "--database", "3", "-c", "1", "--think-time", "1ms"];
    let stored = result(address, &[&with[..], &["-n", "5", "--command", "SET s1 text"]].concat());
    assert_eq!(stored["completed"], 5);
    // One of the two keys is a text, and no set.
    let sets = ["-n", "20", "--command", "SADD s{n} 1", "--vary", "n=sequential:1..2"];
    let json = result(address, &[&with[..], &sets[..]].concat());
    let operation = &json["operations"]["sadd"];
    assert_eq!(
        (&operation["completed"], &operation["errors"]["wrong_type"]),
        (&Value::from(10), &Value::from(10))
    );
    let caveats = json["caveats"].to_string();
    assert!(caveats.contains("WRONGTYPE Operation against a key"), "{caveats}");
    let unknown = load(address, &[&with[..], &["-n", "2", "--command", "NONSENSE 1"]].concat());
    assert_eq!(unknown.status.code(), Some(5));
    assert!(said(&unknown).contains("unknown_command"), "{}", said(&unknown));
    for (arguments, why) in [
        (&["--mix", "del=1"][..], "--command takes other commands"),
        (&["--command", ""], "is not a command"),
        (&["--vary", "n=1"], "`{n}` is in no command"),
        (&["--pipeline", "0"], "--pipeline"),
    ] {
        let output = load(address, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(said(&output).contains(why), "{arguments:?}: {}", said(&output));
    }
}

/// Two nodes with half of the slots each.
struct Cluster {
    nodes: [SocketAddr; 2],
    _processes: [Process; 2],
}

impl Cluster {
    fn start(folder: &Path) -> Self {
        let nodes = [free_address(), free_address()];
        let mut buses = Vec::new();
        let processes = [0, 1].map(|number: usize| {
            let folder = folder.join(number.to_string());
            std::fs::create_dir(&folder).unwrap();
            let bus = free_address().port().to_string();
            buses.push(bus.clone());
            let ip = nodes[number].ip().to_string();
            let more =
                ["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-announce-ip", &ip];
            Process::redis(nodes[number], &folder, &more)
        });
        assert_eq!(ask(nodes[0], "CLUSTER ADDSLOTSRANGE 0 8191"), "+OK\r\n");
        assert_eq!(ask(nodes[1], "CLUSTER ADDSLOTSRANGE 8192 16383"), "+OK\r\n");
        let (ip, port) = (nodes[1].ip(), nodes[1].port());
        assert_eq!(ask(nodes[0], &format!("CLUSTER MEET {ip} {port} {}", buses[1])), "+OK\r\n");
        wait_until("the cluster to be whole", || {
            nodes.iter().all(|node| ask(*node, "CLUSTER INFO").contains("cluster_state:ok"))
                && ask(nodes[0], "CLUSTER NODES").matches(" connected").count() == 2
        });
        Self { nodes, _processes: processes }
    }
}

#[test]
fn a_cluster_is_loaded_where_its_slots_are_and_redirects_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(folder.path());
    let [first, second] = cluster.nodes;
    let keys = ["--keys", "500", "--value-size", "16B", "-c", "3", "--think-time", "1ms"];
    // What is known of the slots makes redirects needless.
    let json = result(first, &[&keys[..], &["--prefill", "-n", "600"]].concat());
    assert_eq!((&json["redirects"], &json["failed"]), (&Value::Null, &Value::from(0)), "{json:#}");
    assert_eq!(json["operations"]["get"]["misses"], 0);
    let (one, other) = (number(first, "DBSIZE"), number(second, "DBSIZE"));
    assert!(one > 100 && other > 100 && one + other == 500, "{one} and {other}");
    let pipeline = result(first, &[&keys[..], &["--pipeline", "20", "-n", "50"]].concat());
    assert_eq!(pipeline["operations"]["pipeline"]["completed"], 50);

    // Without it, each slot is learned from one redirect a thread.
    let result = run(first, KeyChoice::Uniform, 300, 3, Slots::default());
    let (moved, ask_count) = result.redirects.map(|all| (all.moved, all.ask)).unwrap();
    assert!(moved > 20 && moved <= 300 && ask_count == 0, "{moved} MOVED, {ask_count} ASK");
    assert_eq!(completed(&result), 300);

    // A slot on its way, of a key that is not stored: every request is redirected once.
    let key = format!("k{:015}", 0);
    let slot = number(first, &format!("CLUSTER KEYSLOT {key}"));
    let (from, to) = if slot < 8192 { (first, second) } else { (second, first) };
    ask(from, &format!("DEL {key}"));
    let (of_from, of_to) = (id(from), id(to));
    assert_eq!(ask(to, &format!("CLUSTER SETSLOT {slot} IMPORTING {of_from}")), "+OK\r\n");
    assert_eq!(ask(from, &format!("CLUSTER SETSLOT {slot} MIGRATING {of_to}")), "+OK\r\n");
    let result = run(from, KeyChoice::Fixed, 40, 2, Slots::default());
    assert_eq!(result.redirects.map(|all| (all.moved, all.ask)), Some((0, 40)));
    let operation = &result.operations["get"];
    assert_eq!((operation.completed, operation.misses), (40, 40), "{operation:?}");
}

/// The id of a node.
fn id(node: SocketAddr) -> String {
    ask(node, "CLUSTER MYID").lines().nth(1).unwrap().to_owned()
}

fn completed(result: &LoadResult) -> u64 {
    result.operations.values().map(|operation| operation.completed).sum()
}

fn gets(choice: KeyChoice, slots: Slots) -> RedisLoad {
    let keyspace = KeyspacePlan {
        keys: 500,
        key_size: Size::Fixed(16),
        value_size: Size::Fixed(16),
        choice,
        seed: 1,
    };
    let plan = RedisPlan {
        commands: RedisCommand::parse_mix("get=1").unwrap(),
        pipeline: 1,
        expected_misses: 0.0,
        values: Vec::new(),
        access: RedisAccess::default(),
    };
    RedisLoad::new(plan, Keyspace::new(keyspace).unwrap(), slots)
}

fn run(
    target: SocketAddr,
    choice: KeyChoice,
    requests: u64,
    clients: usize,
    slots: Slots,
) -> LoadResult {
    run_as(&plan(target, requests, clients, Duration::from_secs(10)), &gets(choice, slots))
}

fn run_as(plan: &LoadPlan, load: &RedisLoad) -> LoadResult {
    let driver = |thread| Redis::new(load, stream(plan.seed, Purpose::Requests, thread));
    load::run("redis", plan, &driver, &AtomicBool::new(false), &mut |_| ()).unwrap()
}

/// The kinds of errors of a few requests, none of which may succeed.
fn kinds(server: &Hostile, timeout_ms: u64) -> Vec<String> {
    let plan = plan(server.address, 3, 1, Duration::from_millis(timeout_ms));
    let result = run_as(&plan, &gets(KeyChoice::Fixed, Slots::default()));
    assert_eq!(completed(&result), 0, "{:?}", result.operations);
    hostile::kinds(&result)
}

#[test]
fn an_answer_that_is_cut_at_any_byte_is_a_counted_error() {
    let answer = b"*2\r\n$5\r\nhello\r\n$-1\r\n";
    for bytes in 0..answer.len() {
        for end in [End::Close, End::Reset] {
            let server = Hostile::start(&[answer], bytes, &end);
            let kinds = kinds(&server, 10_000);
            let known = ["connection_closed", "connection_reset"];
            assert!(kinds.iter().all(|kind| known.contains(&kind.as_str())), "{bytes}: {kinds:?}");
            assert!(!kinds.is_empty(), "{bytes}");
        }
    }
    for bytes in [0, 6, 17] {
        let server = Hostile::start(&[answer], bytes, &End::Silence);
        assert_eq!(kinds(&server, 100), ["timed_out"], "{bytes}");
    }
}

#[test]
fn hostile_answers_are_counted_by_kind() {
    let endless = |bytes: &[u8]| End::Forever(bytes.repeat(4_096));
    let cases: &[(&[u8], End, &[&str])] = &[
        (b"", endless(b"$1\r\na\r\n"), &["garbage"]),
        (b"*2147483648\r\n", endless(b":1\r\n"), &["timed_out"]),
        (b"*2147483648\r\n", endless(b"*2147483648\r\n"), &["timed_out"]),
        (b"$536870912\r\n", endless(b"x"), &["timed_out"]),
        (b"+", endless(b"x"), &["garbage"]),
        (b"$9\r\nshort\r\n", End::Silence, &["timed_out"]),
        (b"$1\r\ntoo long\r\n", End::Silence, &["garbage"]),
        (b"$-5\r\n", End::Silence, &["garbage"]),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", End::Silence, &["garbage"]),
        (b"-MOVED 1 nowhere.example:1\r\n", End::Silence, &["redirected"]),
        (b"-MOVED 99999 127.0.0.1:1\r\n", End::Silence, &["server_error"]),
        (b"-MOVED 16384 127.0.0.1:1\r\n", End::Silence, &["redirected"]),
        (b"-ASK 1 127.0.0.1:1\r\n", End::Silence, &["connect_failed"]),
        (b"-LOADING Redis is loading\r\n", End::Silence, &["unavailable"]),
        (b"-OOM command not allowed\r\n", End::Silence, &["out_of_memory"]),
    ];
    for (answer, end, expected) in cases {
        let times = if matches!(end, End::Forever(_)) { 1 } else { 8 };
        let server = Hostile::start(&vec![*answer; times], usize::MAX, end);
        let text = String::from_utf8_lossy(answer);
        // Only what is counted as late needs a short limit: 512 MiB may come in 0.3 s.
        let limit = if *expected == ["timed_out"] { 50 } else { 5_000 };
        assert_eq!(kinds(&server, limit), *expected, "{text:?}");
    }
    // One that redirects to itself is given up.
    let to_itself = |address: SocketAddr| vec![format!("-MOVED 1 {address}\r\n").into_bytes(); 64];
    let server = Hostile::start_with(to_itself, usize::MAX, &End::Silence);
    assert_eq!(kinds(&server, 10_000), ["redirected"]);
}

static NEVER: AtomicBool = AtomicBool::new(false);

#[test]
fn a_server_that_loads_its_data_is_waited_for() {
    let loading = &b"-LOADING Redis is loading the dataset in memory\r\n"[..];
    let alone = b"-ERR This instance has cluster support disabled\r\n";
    let asked = |stop: &AtomicBool| {
        let server = Hostile::start(&[loading, loading, alone], usize::MAX, &End::Silence);
        prepare(&[server.address], &RedisAccess::default(), Duration::from_secs(5), stop)
    };
    assert!(asked(&NEVER).unwrap().is_empty());
    let error = asked(&AtomicBool::new(true)).unwrap_err().to_string();
    assert!(error.contains("still loads its data after 0ns: `LOADING Redis"), "{error}");
}

#[test]
fn a_preparation_that_is_cut_says_why() {
    let timeout = Duration::from_millis(300);
    let answer = b"$3\r\nabc\r\n";
    for bytes in 0..answer.len() {
        let server = Hostile::start(&[answer], bytes, &End::Close);
        let prepared = prepare(&[server.address], &RedisAccess::default(), timeout, &NEVER);
        assert!(prepared.is_err(), "{bytes}");
    }
    for (answer, said) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "does not speak Redis's protocol"),
        (b"$99999999999999\r\n", "does not speak Redis's protocol"),
        (b"-NOAUTH Authentication required.\r\n", "refused a load without a password"),
    ] {
        let server = Hostile::start(&[answer], usize::MAX, &End::Silence);
        let error =
            prepare(&[server.address], &RedisAccess::default(), timeout, &NEVER).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
    let server = Hostile::start(&[b"+"], usize::MAX, &End::Forever(vec![b'x'; 4_096]));
    let error = prepare(&[server.address], &RedisAccess::default(), timeout, &NEVER);
    assert!(error.is_err(), "{error:?}");
}

/// Encrypted by the engine itself: certificates both ways, connections that are lost, and servers without TLS.
#[test]
fn servers_behind_tls_are_loaded_and_others_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [(server, key), (own, own_key)] =
        ["server", "client"].map(|name| certificate(folder.path(), name));
    let file = |path: &Path| path.display().to_string();
    let [server, key, own, own_key] = [&server, &key, &own, &own_key].map(|path| file(path));
    let plain = free_address();
    let secure = SocketAddr::new(plain.ip(), free_address().port());
    let port = secure.port().to_string();
    let options = ["--tls-port", &port, "--tls-cert-file", &server, "--tls-key-file", &key];
    let options = [&options[..], &["--tls-ca-cert-file", &own]].concat();
    let _server = Process::redis(plain, folder.path(), &options);
    let shown = ["--client-certificate", &own, "--client-key", &own_key];
    let trusted = ["--tls", "--authority", &server];
    let tls = [&trusted[..], &["--server-name", "localhost", "-c", "4"], &shown].concat();

    // Values that no single record holds, and a pipeline of them.
    let large = ["--value-size", "100KiB", "--keys", "20", "--prefill", "--pipeline", "3"];
    let json = result(secure, &[&tls[..], &large, &["--mix", "get=1", "-n", "40"]].concat());
    assert_eq!(json["completed"], 40, "{json:#}");
    assert_eq!(json["operations"]["pipeline"]["hits"], 120, "{json:#}");
    let open = ["--rate", "300/s", "-n", "150", "--late-share", "100%", "--mix", "set=1"];
    assert_eq!(result(secure, &[&tls[..], &open].concat())["completed"], 150);
    // All connections are cut once: they are made anew, and what was on them is counted.
    let cut = std::thread::spawn(move || {
        // Not while they are made: a load that cannot connect at its start is refused.
        wait_until("the load runs", || {
            let stats = ask(plain, "INFO stats");
            let misses = stats.lines().find_map(|line| line.strip_prefix("keyspace_misses:"));
            misses.unwrap().parse::<u64>().unwrap() > 100
        });
        ask(plain, "CLIENT KILL TYPE normal SKIPME yes")
    });
    let slow = ["-n", "2000", "--think-time", "1ms", "--mix", "get=1", "--expected-misses", "100%"];
    let json = result(secure, &[&tls[..], &slow].concat());
    cut.join().unwrap();
    assert!(json["reconnects"].as_u64().unwrap() > 0, "{json:#}");
    assert!(json["completed"].as_u64().unwrap() >= 1_990, "{json:#}");

    for (address, arguments, part) in [
        (secure, &[&["--tls", "--server-name", "localhost"], &shown[..]].concat(), "not trust"),
        (secure, &[&trusted[..], &shown].concat(), "not trust"),
        (secure, &[&trusted[..], &["--server-name", "localhost"]].concat(), "refused"),
        (plain, &tls, ""),
        (secure, &vec![], ""),
    ] {
        let output = load(address, &[&arguments[..], &["-n", "1", "--timeout", "1s"]].concat());
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(part), "{arguments:?}: {}", said(&output));
    }
    let output = load(secure, &["--tls", "--authority", "/nowhere.pem", "-n", "1"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}

#[test]
fn a_server_that_greets_wrongly_is_given_up() {
    let secure = Tls { insecure: true, ..Tls::default() }.of("localhost", &[]).unwrap();
    let access = RedisAccess { secure: Some(secure), ..RedisAccess::default() };
    let endless = |bytes: &[u8]| End::Forever(bytes.repeat(1_024));
    // Another protocol, an alert, a record that never ends, hellos that say nothing, none at all.
    let hello = b"\x16\x03\x03\0\x04\x02\0\0\0";
    for (answer, end) in [
        (&b"-ERR wrong\r\n"[..], End::Silence),
        (b"\x15\x03\x03\0\x02\x02\x28", End::Silence),
        (b"\x16\x03\x03\x40\0\x02", endless(b"\0")),
        (b"", endless(hello)),
        (b"", End::Silence),
        (b"", End::Close),
        (b"\x16\x03", End::Reset),
    ] {
        let server = Hostile::start(&[answer], usize::MAX, &end);
        let prepared = prepare(&[server.address], &access, Duration::from_millis(300), &NEVER);
        assert!(prepared.is_err(), "{answer:?}");
    }
}
