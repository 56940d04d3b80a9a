//! Starts the command once and finds out what it speaks; or finds who listens already.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::process::Child;
use std::time::Duration;

use kendall_host::keeper::{Keeper, Spawn};
use kendall_loadgen::http::Url;
use kendall_units::Seconds;
use rustix::process::{Pid, Signal, kill_process_group};

use super::command::Looked;
use crate::exit::{Exit, exit_with};

/// How long a service may take to accept a connection.
const READY_NS: u64 = 20_000_000_000;

/// How long it may take to answer, and to stop.
const ANSWER: Duration = Duration::from_secs(5);

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Requests that are timed.
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
    Memcached,
}

impl Found {
    pub(super) fn https() -> Self {
        Self { protocol: Protocol::Https, time: None }
    }

    pub(super) fn speaks(&self) -> &'static str {
        match self.protocol {
            Protocol::Http => "HTTP",
            Protocol::Https => "HTTPS",
            Protocol::Memcached => "memcached's protocol",
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

/// Starts the command, finds out what it speaks, and stops it.
pub(super) fn started(looked: &Looked, path: &str) -> anyhow::Result<Found> {
    let folder = tempfile::tempdir()?;
    // Free now; a study chooses its own.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let words = looked.filled("127.0.0.1", port, &folder.path().display().to_string())?;
    let said = folder.path().join("said");
    let file = std::fs::File::create(&said)?;
    let mut keeper = Keeper::start(&std::env::current_exe()?)?;
    let spawn = Spawn { command: &words, environment: &[], group: None, processors: &[] };
    let mut child = keeper.spawn(&spawn, file.try_clone()?, file)?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let found = wait(&mut child, address)
        .and_then(|()| look_from(&address.to_string(), path, &words[0]))
        .map_err(|what| {
            let said = std::fs::read_to_string(&said).unwrap_or_default();
            let last: Vec<&str> = said.lines().rev().take(5).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            let last = if last.is_empty() {
                String::new()
            } else {
                format!("; it said:\n{}", last.join("\n"))
            };
            exit_with(Exit::NotReady, format!("`{}`: {what}{last}", words.join(" ")))
        });
    stop(&mut child)?;
    keeper.ended(child.id());
    found
}

/// Until it accepts a connection.
fn wait(child: &mut Child, address: SocketAddr) -> Result<(), String> {
    let end = now_ns() + READY_NS;
    loop {
        if TcpStream::connect_timeout(&address, ANSWER).is_ok() {
            return Ok(());
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("ended ({status}) before it listened on {address}"));
        }
        if now_ns() > end {
            return Err(format!(
                "did not listen on {address} within 20 s; does the command take its address from \
                 {{address}} or {{port}}?"
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
pub(super) fn look(address: &str, path: &str, who: &str) -> anyhow::Result<Found> {
    look_from(address, path, who)
        .map_err(|what| exit_with(Exit::NotReady, format!("{address}: {what}")))
}

fn look_from(address: &str, path: &str, who: &str) -> Result<Found, String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let answer = ask(address, &request)?;
    if answer.starts_with("HTTP/") {
        let status = answer.split_whitespace().nth(1).unwrap_or("no status").to_owned();
        if !status.starts_with(['2', '3']) {
            return Err(format!(
                "GET {path} was answered with {status}; give a path that it serves with --path"
            ));
        }
        return Ok(Found { protocol: Protocol::Http, time: timed(address, &request) });
    }
    if ask(address, "version\r\n")?.starts_with("VERSION") {
        return Ok(Found { protocol: Protocol::Memcached, time: timed(address, "version\r\n") });
    }
    Err(format!(
        "{who} speaks neither HTTP nor memcached's protocol, which are what `kendall init` knows"
    ))
}

/// The first bytes of the answer; none where the service closes or stays silent.
fn ask(address: &str, request: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot be asked: {error}");
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(ANSWER)).map_err(failed)?;
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut bytes = [0_u8; 512];
    let count = stream.read(&mut bytes).unwrap_or(0);
    Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

/// Median of a few requests, connecting included.
fn timed(address: &str, request: &str) -> Option<Seconds> {
    let mut times = Vec::new();
    for _ in 0..TIMED {
        let start = now_ns();
        ask(address, request).ok().filter(|answer| !answer.is_empty())?;
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
        let pid = if address.ip().is_loopback() { listener(url.port) } else { None };
        Ok(Self { address: address.to_string(), pid })
    }
}

/// The process of this machine that listens on a port: the parent, where it has workers.
fn listener(port: u16) -> Option<u32> {
    let mut sockets = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        sockets.extend(text.lines().skip(1).filter_map(|line| {
            let cells: Vec<&str> = line.split_whitespace().collect();
            let at = u16::from_str_radix(cells.get(1)?.rsplit(':').next()?, 16).ok()?;
            // 0A is LISTEN.
            (at == port && *cells.get(3)? == "0A")
                .then(|| format!("socket:[{}]", cells.get(9).unwrap_or(&"")))
        }));
    }
    let holds = |pid: u32| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd"));
        files.into_iter().flatten().flatten().any(|file| {
            std::fs::read_link(file.path())
                .is_ok_and(|to| sockets.iter().any(|socket| to.as_os_str() == socket.as_str()))
        })
    };
    let holders: Vec<u32> = std::fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| holds(*pid))
        .collect();
    let parent = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    holders.iter().copied().find(|pid| parent(*pid).is_none_or(|above| !holders.contains(&above)))
}
