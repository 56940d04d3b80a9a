//! Starts the command once and finds out what it speaks; or finds who listens already.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kendall_host::keeper::{Keeper, Spawn};
use kendall_host::sample::{self, Accounting};
use kendall_host::waits::{self, Address};
use kendall_loadgen::calls;
use kendall_loadgen::http::Url;
use kendall_units::Seconds;
use rustix::process::{Pid, Signal, kill_process_group};

use super::command::Looked;
use crate::exit::{Exit, exit_with};
use crate::output;

/// How long a service may take to stop, and to answer a second question.
const ANSWER: Duration = Duration::from_secs(5);

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

const TIMED: u32 = 5;

/// What a service speaks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub(super) protocol: Protocol,
    /// Median of a few requests one after the other.
    pub(super) time: Option<Seconds>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    Https,
    Grpc,
    Memcached,
    Redis,
    Postgres,
}

/// PostgreSQL's question whether a connection may be encrypted, and the answers: yes, no.
const MAY_ENCRYPT: &[u8] = &[0, 0, 0, 8, 4, 210, 22, 47];
const ENCRYPTS: [&str; 2] = ["S", "N"];

/// What does nothing, where no other method is named.
pub(super) const HEALTH: &str = "/grpc.health.v1.Health/Check";

impl Protocol {
    /// Whether the load stores its keys before a run.
    pub(super) fn is_filled(self) -> bool {
        matches!(self, Self::Memcached | Self::Redis)
    }
}

impl Found {
    pub(super) fn https() -> Self {
        Self { protocol: Protocol::Https, time: None }
    }

    pub(super) fn speaks(&self) -> &'static str {
        match self.protocol {
            Protocol::Http => "HTTP",
            Protocol::Https => "HTTPS",
            Protocol::Grpc => "gRPC",
            Protocol::Memcached => "memcached's protocol",
            Protocol::Redis => "Redis's protocol",
            Protocol::Postgres => {
                "PostgreSQL's protocol (asked as PGUSER, PGPASSWORD and PGDATABASE say)"
            }
        }
    }

    pub(super) fn takes(&self) -> String {
        self.time.map_or_else(|| "a while".to_owned(), |time| time.to_string())
    }
}

/// How long a service takes is a measurement of its own, made before any load.
fn now_ns() -> u64 {
    kendall_tier::Clock::monotonic().now_ns()
}

/// What runs for a try.
struct Started<'a> {
    looked: &'a Looked,
    child: Child,
    words: Vec<String>,
    address: SocketAddr,
    said: PathBuf,
}

/// Tiers that were connected to others, by their names.
pub(super) type Calls = BTreeSet<(String, String)>;

/// Starts the commands one after the other, finds out what the last speaks and which talk to one another, and stops
/// them. Each may take until its deadline to listen, and the last to answer.
pub(super) fn started(
    tiers: &[Looked],
    path: &str,
    deadline: Seconds,
) -> anyhow::Result<(Found, Calls)> {
    let folder = tempfile::tempdir()?;
    let mut keeper = Keeper::start(&std::env::current_exe()?)?;
    let mut running = Vec::new();
    let found = try_all(tiers, (path, deadline), (folder.path(), &mut keeper), &mut running);
    for one in running.iter_mut().rev() {
        stop(&mut one.child)?;
        keeper.ended(one.child.id());
    }
    found
}

fn try_all<'a>(
    tiers: &'a [Looked],
    (path, deadline): (&str, Seconds),
    (folder, keeper): (&Path, &mut Keeper),
    running: &mut Vec<Started<'a>>,
) -> anyhow::Result<(Found, Calls)> {
    let mut addresses: Vec<(String, String)> = Vec::new();
    let mut end = 0;
    for looked in tiers {
        end = now_ns() + deadline.as_nanos();
        let folder = folder.join(&looked.name);
        running.push(start(looked, &folder, &addresses, keeper)?);
        let Some(one) = running.last_mut() else { continue };
        wait(one, end, deadline).map_err(|what| one.failed(&what))?;
        addresses.push((looked.name.clone(), one.address.to_string()));
    }
    let last = running.last().ok_or_else(|| anyhow::anyhow!("there is no command"))?;
    let address = last.address.to_string();
    let (found, called) = watched(running, || look_from(&address, path, (end, deadline)));
    let found = found.map_err(|what| last.failed(&what))?;
    let mut calls = Calls::new();
    let ids: Vec<u32> = running.iter().map(|one| one.child.id()).collect();
    for (one, called) in running.iter().zip(called) {
        let name = &one.looked.name;
        let is_at = |to: &Address, other: &Started<'_>| *to == Address::Tcp(other.address);
        let is_tier = |to: &Address| running.iter().any(|other| is_at(to, other));
        let (tiers, others): (BTreeSet<Address>, _) = called.into_iter().partition(is_tier);
        let of = running.iter().filter(|other| tiers.iter().any(|to| is_at(to, other)));
        calls.extend(of.map(|other| (name.clone(), other.looked.name.clone())));
        note_who_serves(name, &[one.child.id()], others, &ids);
    }
    Ok((found, calls))
}

/// Does something, and looks meanwhile whom each is connected to: a connection may last for one request.
fn watched<T>(running: &[Started<'_>], work: impl FnOnce() -> T) -> (T, Vec<BTreeSet<Address>>) {
    let all: Vec<[u32; 1]> = running.iter().map(|one| [one.child.id()]).collect();
    let is_done = AtomicBool::new(false);
    let watch = || {
        let mut called = vec![BTreeSet::new(); all.len()];
        loop {
            let last = is_done.load(Ordering::Acquire);
            for (called, of) in called.iter_mut().zip(&all) {
                called.extend(waits::called(of));
            }
            if last {
                return called;
            }
            std::thread::sleep(PAUSE);
        }
    };
    std::thread::scope(|scope| {
        let called = scope.spawn(watch);
        let found = work();
        is_done.store(true, Ordering::Release);
        (found, called.join().unwrap_or_default())
    })
}

/// Names what a service is connected to that is no tier of the study.
pub(super) fn note_who_serves(name: &str, roots: &[u32], called: BTreeSet<Address>, own: &[u32]) {
    for who in waits::serving(roots, called, own) {
        output::note(&format!(
            "{who} serves `{name}`: what it needs is measured where it is a tier of the study (--tier)"
        ));
    }
}

fn start<'a>(
    looked: &'a Looked,
    folder: &Path,
    others: &[(String, String)],
    keeper: &mut Keeper,
) -> anyhow::Result<Started<'a>> {
    std::fs::create_dir_all(folder)?;
    // Free now; a study chooses its own.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let words = looked.filled(("127.0.0.1", port), &folder.display().to_string(), others)?;
    let said = folder.join("said");
    let file = std::fs::File::create(&said)?;
    let spawn = Spawn { command: &words, environment: &[], group: None, processors: &[] };
    let child = keeper.spawn(&spawn, file.try_clone()?, file)?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    Ok(Started { looked, child, words, address, said })
}

impl Started<'_> {
    /// What went wrong, with the last lines that it wrote.
    fn failed(&self, what: &str) -> anyhow::Error {
        let said = std::fs::read_to_string(&self.said).unwrap_or_default();
        let last: Vec<&str> = said.lines().rev().take(5).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        let last = if last.is_empty() {
            String::new()
        } else {
            format!("; it said:\n{}", last.join("\n"))
        };
        let (name, words) = (&self.looked.name, self.words.join(" "));
        exit_with(Exit::NotReady, format!("`{name}` (`{words}`): {what}{last}"))
    }
}

/// Until it accepts a connection.
fn wait(one: &mut Started<'_>, end: u64, deadline: Seconds) -> Result<(), String> {
    let address = one.address;
    loop {
        if TcpStream::connect_timeout(&address, ANSWER).is_ok() {
            return Ok(());
        }
        if let Ok(Some(status)) = one.child.try_wait() {
            return Err(format!("ended ({status}) before it listened on {address}"));
        }
        if now_ns() > end {
            return Err(format!(
                "did not listen on {address} within {deadline} (--ready-deadline); does the command take its \
                 address from {{address}} or {{port}}?"
            ));
        }
        std::thread::sleep(PAUSE);
    }
}

fn stop(child: &mut Child) -> anyhow::Result<()> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let signal = |signal| {
        if let Some(group) = group {
            // A group that has ended is not a failure.
            kill_process_group(group, signal).unwrap_or_default();
        }
    };
    signal(Signal::TERM);
    let end = now_ns() + u64::try_from(ANSWER.as_nanos()).unwrap_or(u64::MAX);
    while child.try_wait()?.is_none() && now_ns() < end {
        std::thread::sleep(PAUSE);
    }
    // Also what it started and left behind.
    signal(Signal::KILL);
    child.wait()?;
    Ok(())
}

/// What a service that listens already speaks.
pub(super) fn look(address: &str, path: &str, deadline: Seconds) -> anyhow::Result<Found> {
    look_from(address, path, (now_ns() + deadline.as_nanos(), deadline))
        .map_err(|what| exit_with(Exit::NotReady, format!("{address}: {what}")))
}

/// Asks in HTTP, and waits for the answer until `end`: many services listen before they can answer.
fn look_from(address: &str, path: &str, (end, deadline): (u64, Seconds)) -> Result<Found, String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let (answer, found) = first_answer(address, path, request.as_bytes(), end)?;
    if let Some(found) = found {
        return Ok(found);
    }
    if let Answer::Said(text) = &answer
        && let Some(status) = status(text)
    {
        // One that limits its rate serves the path at another time.
        if !status.starts_with('2') && !status.starts_with("429") {
            let header = |line: &str| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("location").then(|| value.trim().to_owned())
            };
            let to = text.lines().find_map(header).map_or_else(String::new, |to| {
                format!(
                    " (to `{}`), which the load does not follow",
                    kendall_units::printable(&to, 80)
                )
            });
            return Err(format!(
                "GET {path} was answered with {status}{to}; give a path that it serves with --path"
            ));
        }
        let time = timed(address, request.as_bytes());
        return Ok(Found { protocol: Protocol::Http, time });
    }
    Err(match answer {
        Answer::Silent => format!(
            "accepts connections, but gave no answer to GET {path} within {deadline}; a service that starts slowly \
             needs a longer --ready-deadline"
        ),
        Answer::Closed => format!(
            "closed each connection without an answer to GET {path}, for {deadline}; `kendall init` knows HTTP, gRPC and the \
             protocols of memcached, Redis and PostgreSQL"
        ),
        Answer::Said(text) => {
            let start = kendall_units::printable(&text, 40);
            format!(
                "answered GET {path} with `{}`, which is neither HTTP nor gRPC nor the protocol of memcached, \
                 Redis or PostgreSQL, which are what `kendall init` knows",
                start.trim()
            )
        }
    })
}

/// Asks again while connections are closed without a word, or it says that it is not available: a service may do that
/// until it is ready. With it, what it is that speaks no HTTP.
fn first_answer(
    address: &str,
    path: &str,
    request: &[u8],
    end: u64,
) -> Result<(Answer, Option<Found>), String> {
    loop {
        let left = Duration::from_nanos(end.saturating_sub(now_ns())).max(PAUSE);
        let answer = ask(address, request, left)?;
        let code = match &answer {
            Answer::Said(text) => status(text).unwrap_or_default(),
            Answer::Closed | Answer::Silent => "",
        };
        let boots = NOT_AVAILABLE.contains(&code);
        let found =
            if boots || code.starts_with(['2', '3']) { None } else { other(address, path)? };
        if !(boots || answer == Answer::Closed) || found.is_some() || now_ns() >= end {
            return Ok((answer, found));
        }
        std::thread::sleep(PAUSE);
    }
}

/// What a service, or the proxy before it, answers while it boots.
const NOT_AVAILABLE: [&str; 3] = ["502", "503", "504"];

/// The status of an answer in HTTP.
fn status(text: &str) -> Option<&str> {
    text.starts_with("HTTP/").then(|| text.split_whitespace().nth(1).unwrap_or("no status"))
}

/// Whether it is a cache or PostgreSQL, or speaks gRPC.
fn other(address: &str, path: &str) -> Result<Option<Found>, String> {
    for (protocol, request, begins) in [
        (Protocol::Memcached, &b"version\r\n"[..], &["VERSION"][..]),
        (Protocol::Redis, &b"PING\r\n"[..], &["+PONG", "-NOAUTH", "-DENIED", "-LOADING"][..]),
    ] {
        if let Answer::Said(text) = ask(address, request, Duration::from_secs(1))?
            && begins.iter().any(|begin| text.starts_with(begin))
        {
            return Ok(Some(Found { protocol, time: timed(address, request) }));
        }
    }
    let answer = ask(address, MAY_ENCRYPT, Duration::from_secs(1))?;
    if matches!(answer, Answer::Said(text) if ENCRYPTS.contains(&text.as_str())) {
        return Ok(Some(Found { protocol: Protocol::Postgres, time: None }));
    }
    let Ok(target) = address.parse() else { return Ok(None) };
    let services = calls::services(target, Duration::from_secs(1)).map_err(|_| {
        "speaks gRPC, and does not describe itself (reflection): write a study with `protocol = \"grpc\"` and its files \
         in `proto`, as the page on study files has it"
            .to_owned()
    })?;
    let Some(services) = services else { return Ok(None) };
    let known = services.join(", ");
    // What another method does is not known here.
    if path == "/" && !services.iter().any(|name| HEALTH.contains(name.as_str())) {
        return Err(format!(
            "speaks gRPC (services: {known}); give the method that clients call with --path /SERVICE/METHOD"
        ));
    }
    output::note(&format!(
        "its services are {known}; --path /SERVICE/METHOD chooses the method that is called"
    ));
    Ok(Some(Found { protocol: Protocol::Grpc, time: None }))
}

/// What came of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    /// Its first bytes.
    Said(String),
    /// The connection was closed without a word.
    Closed,
    Silent,
}

fn ask(address: &str, request: &[u8], patience: Duration) -> Result<Answer, String> {
    let failed = |error: std::io::Error| format!("cannot be asked: {error}");
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(patience)).map_err(failed)?;
    stream.write_all(request).map_err(failed)?;
    let mut bytes = [0_u8; 512];
    Ok(match stream.read(&mut bytes) {
        Ok(0) => Answer::Closed,
        Ok(count) => Answer::Said(String::from_utf8_lossy(&bytes[..count]).into_owned()),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Answer::Silent
        }
        Err(_) => Answer::Closed,
    })
}

/// Median of a few requests, connecting included.
fn timed(address: &str, request: &[u8]) -> Option<Seconds> {
    let mut times = Vec::new();
    for _ in 0..TIMED {
        let start = now_ns();
        let answer = ask(address, request, ANSWER).ok()?;
        matches!(answer, Answer::Said(_)).then_some(())?;
        times.push(now_ns() - start);
    }
    times.sort_unstable();
    times.get(times.len() / 2).map(|ns| Seconds::from_nanos(*ns))
}

/// A service that runs already.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Attached {
    pub(super) address: String,
    pub(super) pid: Option<u32>,
    /// Its control group, where that was asked for.
    pub(super) group: Option<String>,
}

impl Attached {
    pub(super) fn find(url: &Url) -> anyhow::Result<Self> {
        let target = (url.host.as_str(), url.port);
        let address =
            target.to_socket_addrs().ok().and_then(|mut all| all.next()).ok_or_else(|| {
                exit_with(Exit::NotReady, format!("{}:{} has no address", url.host, url.port))
            })?;
        TcpStream::connect_timeout(&address, ANSWER).map_err(|error| {
            exit_with(
                Exit::NotReady,
                format!("nothing answers at {address}: {error}; start the service first"),
            )
        })?;
        let listens = || waits::listener(address, std::process::id());
        let pid = address.ip().is_loopback().then(listens).flatten();
        Ok(Self { address: address.to_string(), pid, group: None })
    }

    /// Where what it uses is read.
    pub(super) fn accounting(&self) -> Accounting {
        match (&self.group, self.pid) {
            (Some(group), _) => Accounting::ControlGroup(group.clone()),
            (None, Some(pid)) => Accounting::Process(pid),
            (None, None) => Accounting::None,
        }
    }

    /// Processor time of its control group so far.
    pub(super) fn group_cpu_ns(&self) -> Option<u64> {
        self.group.as_ref()?;
        let sampled = sample::accounting(&self.accounting())?.process;
        Some(sampled.cpu_user_ns + sampled.cpu_system_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service that answers every connection with this, after a while.
    fn service(answer: &'static str, after: Duration) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut request = [0; 512];
                    let _count = stream.read(&mut request).unwrap_or(0);
                    std::thread::sleep(after);
                    stream.write_all(answer.as_bytes()).unwrap_or_default();
                });
            }
        });
        address
    }

    /// One that listens and then boots for 6 s was said to speak no protocol.
    #[test]
    fn a_service_is_waited_for_until_its_deadline() {
        let address = service("HTTP/1.1 200 OK\r\n\r\n", Duration::from_millis(5_200));
        let (end, deadline) = (now_ns() + 20_000_000_000, Seconds::new(20.0));
        let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n");
        let request = request.as_bytes();
        assert!(matches!(ask(&address, request, Duration::from_millis(500)), Ok(Answer::Silent)));
        assert!(matches!(first_answer(&address, "/", request, end), Ok((Answer::Said(_), None))));
        let error = look_from(&address, "/", (now_ns() + 300_000_000, deadline)).unwrap_err();
        assert!(error.contains("gave no answer to GET / within 20"), "{error}");
    }

    #[test]
    fn a_service_that_is_not_available_while_it_boots_is_asked_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let booting = ["HTTP/1.1 503 Not yet\r\n\r\n"; 3];
            let answers = booting.into_iter().chain(std::iter::repeat("HTTP/1.1 200 OK\r\n\r\n"));
            for (stream, answer) in listener.incoming().zip(answers) {
                let mut stream = stream.unwrap();
                let _count = stream.read(&mut [0; 512]).unwrap_or(0);
                stream.write_all(answer.as_bytes()).unwrap_or_default();
            }
        });
        let found = look_from(&address, "/", (now_ns() + 20_000_000_000, Seconds::new(20.0)));
        assert_eq!(found.unwrap().protocol, Protocol::Http);
    }

    #[test]
    fn another_answer_and_none_are_told_apart() {
        let look = |answer| {
            let address = service(answer, Duration::ZERO);
            look_from(&address, "/", (now_ns() + 300_000_000, Seconds::new(0.3)))
        };
        let error = look("-ERR unknown command\r\n").unwrap_err();
        assert!(error.contains("answered GET / with `-ERR unknown command`"), "{error}");
        let error = look("").unwrap_err();
        assert!(error.contains("closed each connection without an answer"), "{error}");
        assert!(look("HTTP/1.1 404 No\r\n\r\n").unwrap_err().contains("--path"));
        for http in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 429 Too Many Requests\r\n\r\n"] {
            assert_eq!(look(http).unwrap().protocol, Protocol::Http);
        }
        assert_eq!(look("VERSION 1.6\r\n").unwrap().protocol, Protocol::Memcached);
        assert_eq!(look("N").unwrap().protocol, Protocol::Postgres);
    }
}
