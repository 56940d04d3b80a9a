//! Real memcached servers on loopback, and a proxy before them in this process.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread::JoinHandle;

use kendall_memcached_proxy::{Mode, Options, Pool, Proxy, Reloader};
use kendall_testing::Process;
pub(crate) use kendall_testing::{DEADLINE, free_address, wait_until as wait_for};
use kendall_tier::{Clock, Instruments, Stop};

/// A memcached of version 1.6, ended when dropped.
pub(crate) struct Memcached {
    process: Process,
    pub(crate) address: SocketAddr,
    arguments: Vec<String>,
}

impl Memcached {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        let address = free_address();
        let process = Process::memcached(address, arguments);
        let arguments = arguments.iter().map(|text| (*text).to_owned()).collect();
        Self { process, address, arguments }
    }

    pub(crate) fn kill(&mut self) {
        self.process.0.kill().unwrap();
        self.process.0.wait().unwrap();
    }

    pub(crate) fn restart(&mut self) {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        self.process = Process::memcached(self.address, &arguments);
    }

    /// Sends a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([format!("-{name}"), self.process.0.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
        if name == "STOP" {
            wait_for("every thread of memcached to stop", || self.is_stopped());
        }
    }

    /// A signal is on its way when `kill` returns; a thread may still answer one more request.
    fn is_stopped(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.0.id())).unwrap();
        tasks.flatten().all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
        })
    }
}

/// A proxy on its own thread, stopped when dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) instruments: Instruments,
    pub(crate) reloader: Reloader,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(options: Options) -> Self {
        let proxy = Proxy::bind(options, Clock::monotonic()).unwrap();
        let (address, instruments) = (proxy.address(), proxy.instruments().clone());
        let reloader = proxy.reloader();
        let stop = Stop::new();
        let asked = stop.clone();
        let thread = Some(std::thread::spawn(move || proxy.run(&asked).unwrap()));
        Self { address, instruments, reloader, stop, thread }
    }

    /// Stops it and waits for its end.
    pub(crate) fn end(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    pub(crate) fn outcome(&self, name: &str) -> u64 {
        self.instruments.snapshot().outcomes[name]
    }

    pub(crate) fn limit(&self, name: &str) -> u64 {
        self.instruments.snapshot().limits_hit[name]
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the proxy panicked");
        }
    }
}

/// Options for a proxy on a free port.
pub(crate) fn options(servers: &[&Memcached], mode: Mode) -> Options {
    let listen = "127.0.0.1:0".parse().unwrap();
    Options { mode, ..Options::new(listen, servers.iter().map(|server| server.address).collect()) }
}

/// With the first pool used in another way.
pub(crate) fn with(mut options: Options, change: impl FnOnce(&mut Pool)) -> Options {
    change(&mut options.pools[0]);
    options
}

/// Both ways of working.
pub(crate) const MODES: [Mode; 2] = [Mode::Workers(4), Mode::Pipelined { connections: 1 }];

/// A client that speaks bytes.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) rest: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        Self { stream, rest: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Reads up to and with `end`; what follows stays for the next time.
    pub(crate) fn read_until(&mut self, end: &[u8]) -> Vec<u8> {
        let mut piece = vec![0_u8; 65536];
        let mut searched = 0;
        loop {
            if let Some(at) = find(&self.rest[searched..], end) {
                let rest = self.rest.split_off(searched + at + end.len());
                return std::mem::replace(&mut self.rest, rest);
            }
            searched = self.rest.len().saturating_sub(end.len());
            let count = match self.stream.read(&mut piece) {
                Ok(count) => count,
                Err(error) => {
                    let tail = &self.rest[self.rest.len().saturating_sub(300)..];
                    panic!("{error}; the last that came: {}", tail.escape_ascii());
                }
            };
            assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(&self.rest));
            self.rest.extend_from_slice(&piece[..count]);
        }
    }

    /// Reads until the other side closes.
    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.rest);
        // A reset says the same as an end.
        self.stream.read_to_end(&mut all).map(drop).unwrap_or_default();
        all
    }

    /// One request with an answer of one line.
    pub(crate) fn line(&mut self, request: impl AsRef<[u8]>) -> String {
        self.send(request);
        String::from_utf8_lossy(&self.read_until(b"\r\n")).trim_end().to_owned()
    }

    /// One request whose answer ends with `END`.
    pub(crate) fn values(&mut self, request: impl AsRef<[u8]>) -> String {
        self.send(request);
        String::from_utf8_lossy(&self.read_until(b"END\r\n")).into_owned()
    }

    pub(crate) fn set(&mut self, key: &str, value: &str) -> String {
        self.line(format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()))
    }
}

pub(crate) fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, wanted)
}

/// Chance with a seed, for streams that a failure can be repeated with.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 11).unwrap() % bound
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}
