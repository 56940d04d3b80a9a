//! `make kill`: processes are killed, frozen and cut off at random moments while a checker holds what was
//! answered against what was promised. `KENDALL_KILLS_PROXY` and `KENDALL_KILLS_STUDY` say how often,
//! `KENDALL_KILL_SECONDS` for how long at most, `KENDALL_KILL_SEED` which moments. The queue's part is in
//! `queue_history.rs`, beside its checker.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise, waits with deadlines of its own, and tells what it did"
)]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::{KILLED_STUDY, kendall, processes_with, start_marked};
use kendall_store::Results;
use kendall_testing::{Link, Process, free_address, wait_until};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::{Pid, Signal, kill_process};

const CLIENTS: u64 = 6;
const KEYS: usize = 20;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

/// Chance, and when it is enough.
struct Campaign {
    rng: Xoshiro256PlusPlus,
    seed: u64,
    end: Instant,
}

impl Campaign {
    fn new() -> Self {
        let seed = number("KENDALL_KILL_SEED", 20_261_122);
        let end = Instant::now() + Duration::from_secs(number("KENDALL_KILL_SECONDS", 600));
        Self { rng: Xoshiro256PlusPlus::seed_from_u64(seed), seed, end }
    }

    fn is_over(&self) -> bool {
        Instant::now() > self.end
    }

    fn pause(&mut self, most_ms: u64) {
        std::thread::sleep(Duration::from_millis(self.rng.random_range(5..most_ms)));
    }

    fn freeze(&mut self, child: &Child) {
        signal(child, Signal::STOP);
        self.pause(400);
        signal(child, Signal::CONT);
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap_or_default();
}

/// The proxy's file. Every other one is of the same servers in another pool, with a warm pool and a shadow,
/// so that connections are made anew and keys of some clients move to another pool.
fn configure(file: &Path, (top, pool): (&str, &str), servers: &[String], other: bool) {
    let all = format!("{servers:?}");
    let quick = "timeout = \"200ms\"\nprobe_every = \"100ms\"";
    let main = format!("{top}\npool = \"main\"\n[pools.main]\nservers = {all}\n{quick}\n{pool}\n");
    let more = format!(
        "eject_after = 4\nwarm_up = {{ from = \"warm\" }}\nshadow = {{ pool = \"shadow\", share = \"30%\" }}\n\
         [pools.warm]\nservers = {:?}\n{quick}\n[pools.shadow]\nservers = {:?}\n{quick}\n\
         [pools.moved]\nservers = {:?}\n{quick}\n[[routes]]\nprefix = \"c1\"\npool = \"moved\"\n",
        &servers[..1],
        &servers[1..2],
        &servers[1..],
    );
    let text = if other { main + &more } else { main };
    let new = file.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, file).unwrap();
}

fn proxy(listen: &str, config: &Path) -> Process {
    let mut command = kendall();
    command.args(["serve", "proxy", "--listen", listen, "--config"]).arg(config);
    command.stdout(Stdio::null());
    let mut started = None;
    // The port of one that was killed may be taken for another moment.
    wait_until("the proxy to listen", || {
        let (process, ready) = Process::ready(&mut command);
        started = ready.0.starts_with("ready ").then_some(process);
        started.is_some()
    });
    started.unwrap()
}

/// What clients share.
#[derive(Default)]
struct Shared {
    proxy: String,
    enough: AtomicBool,
    answers: AtomicU64,
    values: AtomicU64,
    breaks: AtomicU64,
}

/// One client: each value names its key, its writer and its number, so that an answer that belongs to another
/// request, or a value that was never written, shows. Says what is wrong.
fn client(shared: &Shared, client: u64, seed: u64) -> Result<(), String> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed + client);
    let mut written = [0_u64; KEYS];
    while !shared.enough.load(Ordering::SeqCst) {
        let Ok(stream) = TcpStream::connect(&shared.proxy) else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        while !shared.enough.load(Ordering::SeqCst) {
            let lines = requests(client, &mut written, &mut rng);
            let text: String = lines.iter().map(|(_, text)| text.as_str()).collect();
            // Now and then the connection is cut within the requests.
            let cut = rng.random_range(0..40) == 0;
            let end = if cut { rng.random_range(0..text.len()) } else { text.len() };
            if stream.write_all(&text.as_bytes()[..end]).is_err() {
                break;
            }
            if cut {
                stream.shutdown(Shutdown::Both).unwrap_or_default();
                break;
            }
            let mut broken = false;
            for (key, _) in &lines {
                match answer(&mut reader, client, *key, &written) {
                    Ok(Some(value)) => {
                        shared.answers.fetch_add(1, Ordering::Relaxed);
                        shared.values.fetch_add(u64::from(value), Ordering::Relaxed);
                    }
                    Ok(None) => {
                        broken = true;
                        break;
                    }
                    Err(wrong) => return Err(format!("client {client}: {wrong}")),
                }
            }
            if broken {
                shared.breaks.fetch_add(1, Ordering::Relaxed);
                break;
            }
        }
    }
    Ok(())
}

/// A few requests to be pipelined: the key of a `get`, or none of a `set`.
fn requests(
    client: u64,
    written: &mut [u64],
    rng: &mut Xoshiro256PlusPlus,
) -> Vec<(Option<usize>, String)> {
    let count = rng.random_range(1..8);
    let one = |_| {
        let key = rng.random_range(0..KEYS);
        if rng.random_range(0..3) == 0 {
            let number = &mut written[key];
            *number += 1;
            let filling = "x".repeat(if rng.random_range(0..20) == 0 { 60_000 } else { 10 });
            let value = format!("c{client}k{key}n{number}:{filling}");
            (None, format!("set c{client}k{key} 0 0 {}\r\n{value}\r\n", value.len()))
        } else {
            (Some(key), format!("get c{client}k{key}\r\n"))
        }
    };
    (0..count).map(one).collect()
}

/// Reads one answer: whether it was a value; none where the connection broke; or what is wrong with it.
fn answer(
    reader: &mut BufReader<TcpStream>,
    client: u64,
    key: Option<usize>,
    written: &[u64],
) -> Result<Option<bool>, String> {
    let mut line = String::new();
    if !matches!(reader.read_line(&mut line), Ok(1..)) || !line.ends_with('\n') {
        return Ok(None);
    }
    let text = line.trim_end();
    let Some(key) = key else {
        let fine = text == "STORED" || text.starts_with("SERVER_ERROR ");
        return if fine { Ok(Some(false)) } else { Err(format!("a set is answered {text:?}")) };
    };
    if text == "END" || text.starts_with("SERVER_ERROR ") {
        return Ok(Some(false));
    }
    let begin = format!("VALUE c{client}k{key} 0 ");
    let Some(length) = text.strip_prefix(&begin).and_then(|rest| rest.parse::<usize>().ok()) else {
        return Err(format!("a get of k{key} is answered {text:?}"));
    };
    let mut value = vec![0; length + 2 + 5];
    if reader.read_exact(&mut value).is_err() {
        return Ok(None);
    }
    let value = String::from_utf8_lossy(&value).into_owned();
    let number = value
        .strip_prefix(&format!("c{client}k{key}n"))
        .and_then(|rest| rest.split_once(':'))
        .and_then(|(number, _)| number.parse::<u64>().ok());
    let most = written[key];
    if number.is_none_or(|number| number == 0 || number > most) || !value.ends_with("\r\nEND\r\n") {
        return Err(format!("k{key} has {:?}", &value[..value.len().min(60)]));
    }
    Ok(Some(true))
}

/// Clients have had enough: none of them saw a wrong answer.
fn end(shared: &Shared, clients: Vec<std::thread::JoinHandle<Result<(), String>>>, what: &str) {
    shared.enough.store(true, Ordering::SeqCst);
    let ended: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    let wrong: Vec<_> = ended.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{what}: {wrong:?}");
    println!(
        "proxy {what}: {} answers, {} values, {} connections broke, none wrong",
        shared.answers.load(Ordering::Relaxed),
        shared.values.load(Ordering::Relaxed),
        shared.breaks.load(Ordering::Relaxed)
    );
}

#[test]
#[ignore = "minutes; `make kill` runs it"]
#[expect(clippy::too_many_lines, reason = "each strike is two lines of one list")]
fn campaign_over_the_proxy() {
    let most = number("KENDALL_KILLS_PROXY", 350);
    let modes = [
        ("workers = 8", ""),
        ("mode = \"pipelined\"", ""),
        ("workers = 4\nthreads = 2", "shard_multigets = true"),
        ("mode = \"pipelined\"", "placement = \"hash\""),
    ];
    let mut campaign = Campaign::new();
    let mut counts = [0_u64; 7];
    let folder = tempfile::tempdir().unwrap();
    for (round, mode) in modes.into_iter().enumerate() {
        let addresses: Vec<SocketAddr> = (0..3).map(|_| free_address()).collect();
        let servers: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        let start = |address: &SocketAddr| Process::memcached(*address, &[]);
        let mut caches: Vec<Process> = addresses.iter().map(start).collect();
        let listen = free_address().to_string();
        let link = Link::start(kendall(), addresses[0]);
        let servers = [link.listen.to_string(), servers[1].clone(), servers[2].clone()];
        let config = folder.path().join(format!("proxy-{round}.toml"));
        let mut other = false;
        configure(&config, mode, &servers, other);
        let mut front = proxy(&listen, &config);
        let shared = Arc::new(Shared { proxy: listen.clone(), ..Shared::default() });
        let seed = campaign.seed;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || client(&shared, number, seed))
            })
            .collect();
        for _ in 0..most / 4 {
            if campaign.is_over() || clients.iter().any(std::thread::JoinHandle::is_finished) {
                break;
            }
            campaign.pause(150);
            let victim = campaign.rng.random_range(0..caches.len());
            let strike = campaign.rng.random_range(0..counts.len());
            match strike {
                0 => {
                    drop(front);
                    front = proxy(&listen, &config);
                }
                4 | 5 => {
                    link.fault(if strike == 4 { "cut" } else { "stop" });
                    campaign.pause(400);
                    link.fault("none");
                }
                6 => {
                    other = !other;
                    configure(&config, mode, &servers, other);
                    signal(&front.0, Signal::HUP);
                }
                1 => campaign.freeze(&front.0),
                2 => {
                    caches[victim].0.kill().unwrap();
                    caches[victim].0.wait().unwrap();
                    campaign.pause(300);
                    caches[victim] = start(&addresses[victim]);
                }
                _ => campaign.freeze(&caches[victim].0),
            }
            counts[strike] += 1;
        }
        // Left alone, it serves again.
        wait_until("the proxy to serve again", || serves_again(&listen));
        end(&shared, clients, &format!("{mode:?}, seed {seed}"));
    }
    let [killed, frozen, caches_killed, caches_frozen, cut, stopped, reloads] = counts;
    println!(
        "proxy: {killed} killed, {frozen} frozen, {reloads} reloaded; memcached: {caches_killed} killed, \
         {caches_frozen} frozen; link: {cut} cut, {stopped} stood still; seed {}",
        campaign.seed
    );
}

fn serves_again(listen: &str) -> bool {
    let address: SocketAddr = listen.parse().unwrap();
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut answer = String::new();
    let asked = stream.write_all(b"set again 0 0 1\r\nv\r\nget again\r\nquit\r\n");
    asked.is_ok()
        && stream.read_to_string(&mut answer).is_ok()
        && answer == "STORED\r\nVALUE again 0 1\r\nv\r\nEND\r\n"
}

/// A study is killed again and again: no run that was stored is lost, nothing that it started stays, and at
/// last each planned run is there once.
#[test]
#[ignore = "minutes; `make kill` runs it"]
fn campaign_over_a_study() {
    let most = number("KENDALL_KILLS_STUDY", 50);
    let mut campaign = Campaign::new();
    let folder = tempfile::tempdir().unwrap();
    let (study, out) = (folder.path().join("killed.toml"), folder.path().join("results"));
    let text =
        KILLED_STUDY.replace("300ms", "200ms").replace("repetitions = 3", "repetitions = 20");
    std::fs::write(&study, text).unwrap();
    let mark = format!("kendall-campaign-{}", std::process::id());
    let mut stored = BTreeSet::new();
    let (mut killed, mut frozen) = (0, 0);
    while killed + frozen < most && !campaign.is_over() && stored.len() < 40 {
        let mut child = start_marked(&study, &out, &mark);
        campaign.pause(3000);
        if campaign.rng.random_range(0..3) == 0 {
            campaign.freeze(&child);
            frozen += 1;
            campaign.pause(500);
        }
        child.kill().unwrap();
        killed += 1;
        child.wait().unwrap();
        wait_until("the end of all processes", || processes_with(&mark).is_empty());
        let now = runs(&out);
        assert!(now.is_superset(&stored), "a run that had ended was lost: seed {}", campaign.seed);
        stored = now;
    }
    println!(
        "study: {killed} killed, {frozen} frozen before, {} runs stored by then; seed {}",
        stored.len(),
        campaign.seed
    );
    assert!(matches!(start_marked(&study, &out, &mark).wait().unwrap().code(), Some(0 | 5)));
    let all = Results::open(&out).unwrap().runs().unwrap();
    let keys: BTreeSet<_> = all.iter().map(|run| (run.configuration, run.repetition)).collect();
    assert_eq!(keys.len(), 40, "each planned run");
    assert!(
        all.iter().all(|run| run.status != kendall_store::Status::Failed),
        "seed {}",
        campaign.seed
    );
    wait_until("the end of all processes", || processes_with(&mark).is_empty());
}

/// Runs that are stored, if there is a file yet.
fn runs(out: &Path) -> BTreeSet<(i64, u32, u32)> {
    let Ok(results) = Results::open(out) else { return BTreeSet::new() };
    let runs = results.runs().unwrap();
    runs.iter().map(|run| (run.id.0, run.configuration, run.repetition)).collect()
}
