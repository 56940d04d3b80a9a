//! What the threads of a process wait for at this moment, and where its connections wait.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;

use kendall_protocols::waiting::Waiting;
use kendall_units::exact_f64;
use procfs::ProcError;
use procfs::process::{FDTarget, Process, Task};

use crate::exchanges::{self, Connection, NoTable, TcpSocket};
use crate::programs::Programs;

/// Threads, and descriptors of each process, that are looked at: reading more would cost the service too much.
const MOST_THREADS: usize = 512;
const MOST_DESCRIPTORS: usize = 1_024;

/// Share of the connections that must tell whether a request is to be answered.
const LEAST_TOLD: f64 = 0.9;
/// Requests on a connection that carries one at a time, by its segments, and half of one more that began it.
const MOST_AT_ONCE: f64 = 1.5;

/// Collects them over a process and those below it.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    found: Waiting,
    threads: usize,
    /// Whose they are, by their inodes: processes that were forked share their listener.
    sockets: HashMap<u64, i32>,
    /// The first process that has one: all of them are in its network.
    owner: Option<i32>,
    /// Something could not be read, or is too much to read.
    unknown: bool,
}

impl Waits {
    pub(crate) fn add_thread(&mut self, task: &Task) {
        self.threads += 1;
        if self.unknown || self.threads > MOST_THREADS {
            self.unknown = true;
            return;
        }
        let path = format!("/proc/{}/task/{}/syscall", task.pid, task.tid);
        match std::fs::read_to_string(path) {
            Ok(call) => match wait_of(&call) {
                Some(Wait::Disk) => self.found.disk += 1.0,
                Some(Wait::Lock) => self.found.lock += 1.0,
                Some(Wait::Sleep) => self.found.sleep += 1.0,
                None => {}
            },
            // Otherwise the thread ended.
            Err(error) => self.unknown |= error.kind() == std::io::ErrorKind::PermissionDenied,
        }
    }

    pub(crate) fn add_sockets(&mut self, process: &Process) {
        let descriptors = match process.fd() {
            Ok(descriptors) => descriptors,
            Err(error) => {
                self.unknown |= matches!(error, ProcError::PermissionDenied(_));
                return;
            }
        };
        let targets = descriptors.take(MOST_DESCRIPTORS).filter_map(Result::ok);
        self.sockets.extend(targets.filter_map(|descriptor| match descriptor.target {
            FDTarget::Socket(inode) => Some((inode, process.pid())),
            _ => None,
        }));
        if self.owner.is_none() && !self.sockets.is_empty() {
            self.owner = Some(process.pid());
        }
    }

    fn add_queue(&mut self, socket: &TcpSocket) {
        if socket.listens {
            self.found.accept_queue += f64::from(socket.queue);
        } else if socket.is_established && socket.queue > 0 {
            self.found.unread += 1.0;
        }
    }

    /// All of it, with the connections by their queues in the kernel; `None` where a part is not known.
    pub(crate) fn found(mut self) -> Option<Waiting> {
        if self.unknown {
            return None;
        }
        let (connections, told) = self.connections();
        connections.iter().for_each(|socket| self.add_queue(socket));
        let untold = match self.inside(&connections, told) {
            Ok(inside) => {
                self.found.inside = inside;
                return Some(self.found);
            }
            Err(untold) => untold,
        };
        self.found.untold = 1.0;
        match untold {
            Untold::Unix => self.found.unix = 1.0,
            Untold::Shared => self.found.shared = 1.0,
            Untold::TooMany => self.found.too_many = 1.0,
            Untold::Unknown => {}
        }
        Some(self.found)
    }

    /// Requests that were received and neither answered nor passed on: connections of callers on which an answer is due,
    /// less those to others on which one is. Not told where no caller is seen, or several requests may share
    /// a connection to another, of which a process then has no second.
    fn inside(&self, connections: &[TcpSocket], told: Result<(), NoTable>) -> Result<f64, Untold> {
        // Where all its sockets are of TCP, the other table is not read.
        if self.sockets.len() > connections.len()
            && exchanges::reaches_a_unix_socket(&|inode| self.sockets.contains_key(&inode))
        {
            return Err(Untold::Unix);
        }
        told.map_err(|why| match why {
            NoTable::TooMany => Untold::TooMany,
            NoTable::Refused => Untold::Unknown,
        })?;
        let (called, mut calling) = established(connections);
        calling.retain(|socket| socket.connection.is_none_or(|one| !one.is_idle()));
        let mut calls: HashMap<(i32, SocketAddr), usize> = HashMap::new();
        for socket in &calling {
            let process = *self.sockets.get(&socket.inode).ok_or(Untold::Unknown)?;
            *calls.entry((process, socket.remote)).or_default() += 1;
        }
        if called.is_empty() {
            return Err(Untold::Unknown);
        }
        if calls.values().any(|shared| *shared < 2) {
            return Err(Untold::Shared);
        }
        let at_once = calling.iter().filter_map(|socket| socket.connection?.asked_at_once());
        if are_shared(at_once.sum(), calling.len(), called.len()) {
            return Err(Untold::Shared);
        }
        let open = |of: &[&TcpSocket], open: fn(&Connection) -> Option<bool>| {
            let each = of.iter().map(|socket| socket.connection.as_ref().and_then(open));
            let told: Vec<bool> = each.flatten().collect();
            let enough = exact_f64(told.len()) >= LEAST_TOLD * exact_f64(of.len());
            enough
                .then(|| exact_f64(told.iter().filter(|open| **open).count()))
                .ok_or(Untold::Unknown)
        };
        let inside = open(&called, |one| one.received.is_unanswered(one.sent))?;
        let asked = open(&calling, |one| one.sent.is_unanswered(one.received))?;
        Ok((inside - asked).max(0.0))
    }

    /// The sockets that were found, as the kernel lists them, and why it is not told what went over them.
    fn connections(&self) -> (Vec<TcpSocket>, Result<(), NoTable>) {
        let (mut all, told) = self.owner.map_or((Vec::new(), Ok(())), exchanges::tcp_sockets);
        all.retain(|socket| self.sockets.contains_key(&socket.inode));
        (all, told)
    }
}

/// Why connections do not show what is inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Untold {
    /// It is called, or calls another, over a Unix socket, of which the kernel tells no times.
    Unix,
    /// A connection to another carries several of its requests at once, or all of them.
    Shared,
    /// There are more connections than are read.
    TooMany,
    Unknown,
}

/// Whether more requests are under way than connections to others carry one at a time. Where answers vary, segments count
/// more and more, and soon more than callers can have sent.
fn are_shared(at_once: f64, calling: usize, called: usize) -> bool {
    at_once > MOST_AT_ONCE * exact_f64(calling) && at_once <= 2.0 * exact_f64(called)
}

/// Where a program listens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    Tcp(SocketAddr),
    /// A Unix socket, by its name.
    Unix(String),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(name) => name.fmt(f),
        }
    }
}

impl Address {
    /// What tells it from others of its program.
    fn short(&self) -> String {
        match self {
            Self::Tcp(address) => address.port().to_string(),
            Self::Unix(name) => {
                name.rsplit('/').next().unwrap_or_default().trim_start_matches('.').into()
            }
        }
    }
}

/// Whom these processes and those below them are connected to, without those that connected to them.
pub fn called(roots: &[u32]) -> BTreeSet<Address> {
    let mut waits = Waits::default();
    for pid in Programs::now().below(roots) {
        Process::new(pid).into_iter().for_each(|process| waits.add_sockets(&process));
    }
    let (all, _) = waits.connections();
    let (_, out) = established(&all);
    let to = out.iter().map(|socket| socket.remote);
    let over_tcp = to.map(|to| Address::Tcp(SocketAddr::new(to.ip().to_canonical(), to.port())));
    let over_unix = exchanges::called_over_unix(&|inode| waits.sockets.contains_key(&inode));
    over_tcp.chain(over_unix.into_iter().map(Address::Unix)).collect()
}

/// A program that serves others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    pub address: Address,
    /// Its process and command, the parent where it has workers; `None` of another host, and of another user.
    pub process: Option<(u32, String)>,
}

impl Serving {
    /// As a part of the system, where its process is seen.
    pub fn name(&self) -> Option<String> {
        let (_, command) = self.process.as_ref()?;
        Some(format!("{command}:{}", self.address.short()))
    }
}

impl std::fmt::Display for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.process {
            Some((pid, command)) => write!(f, "`{command}` (process {pid}) at {}", self.address),
            None => write!(f, "{}", self.address),
        }
    }
}

/// Who serves processes at these addresses, but for the processes `own` and those below them.
pub fn serving(roots: &[u32], addresses: BTreeSet<Address>, own: &[u32]) -> Vec<Serving> {
    let Some(seen_by) = roots.first().copied().filter(|_| !addresses.is_empty()) else {
        return Vec::new();
    };
    let all = Programs::now();
    let of = |address: Address| {
        let there = match &address {
            Address::Tcp(tcp) => tcp.ip().is_loopback().then(|| listener(*tcp, seen_by)).flatten(),
            Address::Unix(name) => holder(&exchanges::unix_listeners(name)),
        };
        let is_own = there
            .and_then(|there| i32::try_from(there).ok())
            .is_some_and(|there| all.is_below(there, own));
        let process = there.and_then(|there| Some((there, all.command(there)?)));
        (!is_own).then_some(Serving { address, process })
    };
    addresses.into_iter().filter_map(of).collect()
}

/// The process that listens at an address, in the network that a process has: the parent, where it has workers.
pub fn listener(address: SocketAddr, seen_by: u32) -> Option<u32> {
    let (all, _) = exchanges::tcp_sockets(i32::try_from(seen_by).ok()?);
    let listens = |socket: &&TcpSocket| {
        let (ip, port) = (socket.local.ip().to_canonical(), socket.local.port());
        let is_there = port == address.port() && (ip.is_unspecified() || ip == address.ip());
        socket.listens && is_there
    };
    let sockets: Vec<u64> = all.iter().filter(listens).map(|socket| socket.inode).collect();
    holder(&sockets)
}

/// The process that has one of these sockets: the parent, where it has workers.
fn holder(sockets: &[u64]) -> Option<u32> {
    let holds = |process: &Process| {
        let descriptors = process.fd().into_iter().flatten().take(MOST_DESCRIPTORS);
        let mut targets = descriptors.filter_map(Result::ok).map(|descriptor| descriptor.target);
        targets.any(|target| matches!(target, FDTarget::Socket(inode) if sockets.contains(&inode)))
    };
    let all = procfs::process::all_processes().into_iter().flatten().filter_map(Result::ok);
    let holders: Vec<(i32, i32)> = all
        .filter(holds)
        .filter_map(|process| Some((process.pid(), process.stat().ok()?.ppid)))
        .collect();
    let top = |least: i32| {
        let is_held = |above: i32| above >= least && holders.iter().any(|one| one.0 == above);
        holders.iter().find(|(pid, above)| *pid >= least && !is_held(*above))
    };
    // The first process may hold it for a service that it starts.
    top(2).or_else(|| top(1)).and_then(|(pid, _)| u32::try_from(*pid).ok())
}

/// Connections of those that called, and those to others.
fn established(all: &[TcpSocket]) -> (Vec<&TcpSocket>, Vec<&TcpSocket>) {
    let listening: BTreeSet<u16> =
        all.iter().filter(|socket| socket.listens).map(|socket| socket.local.port()).collect();
    let connected = all.iter().filter(|socket| socket.is_established);
    connected.partition(|socket| listening.contains(&socket.local.port()))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Disk,
    Lock,
    Sleep,
}

/// What a thread waits for, by the system call that it is in: the number and the arguments, as of proc_pid_syscall(5).
fn wait_of(call: &str) -> Option<Wait> {
    let mut words = call.split_ascii_whitespace();
    // `running`, and `-1` where it is stopped outside a call.
    let number: libc::c_long = words.next()?.parse().ok()?;
    let first = words.next();
    match number {
        libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_sync
        | libc::SYS_syncfs
        | libc::SYS_msync
        | libc::SYS_sync_file_range => Some(Wait::Disk),
        libc::SYS_futex | libc::SYS_semop | libc::SYS_semtimedop | libc::SYS_flock => {
            Some(Wait::Lock)
        }
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => Some(Wait::Sleep),
        // Waits for no descriptor, as some languages sleep.
        libc::SYS_pselect6 => (first == Some("0x0")).then_some(Wait::Sleep),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select => (first == Some("0x0")).then_some(Wait::Sleep),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::clock::monotonic_ns;

    #[test]
    fn a_call_is_named_by_what_it_waits_for() {
        let of = |number: libc::c_long, first: &str| wait_of(&format!("{number} {first} 0x1 0x2"));
        assert_eq!(of(libc::SYS_fsync, "0x5"), Some(Wait::Disk));
        assert_eq!(of(libc::SYS_futex, "0x7f00"), Some(Wait::Lock));
        assert_eq!(of(libc::SYS_clock_nanosleep, "0x0"), Some(Wait::Sleep));
        assert_eq!(of(libc::SYS_pselect6, "0x0"), Some(Wait::Sleep));
        assert_eq!(of(libc::SYS_pselect6, "0x8"), None);
        assert_eq!(of(libc::SYS_read, "0x3"), None);
        for other in ["running\n", "-1 0x7ffd 0x7f", "", "0x12", "99999999999999999999"] {
            assert_eq!(wait_of(other), None, "{other:?}");
        }
    }

    /// Without the processes that other tests have started.
    fn of_this_process() -> Option<Waiting> {
        let (process, mut waits) = (Process::myself().unwrap(), Waits::default());
        process.tasks().unwrap().flatten().for_each(|task| waits.add_thread(&task));
        waits.add_sockets(&process);
        waits.found()
    }

    /// As measured of four connections of HTTP/2 that carried the requests of 32 callers, and of four of HTTP/1.1.
    #[test]
    fn connections_that_requests_share_are_told_from_a_pool() {
        for shared in [40.0, 33.0, 10.0] {
            assert!(are_shared(shared, 4, 32), "{shared}");
        }
        assert!(!are_shared(4.0, 4, 32) && !are_shared(0.0, 0, 32));
        assert!(!are_shared(900.0, 4, 32), "requests of two segments, one of answers");
    }

    /// A process that others call over a Unix socket says why it does not tell what is inside.
    #[test]
    fn a_unix_socket_is_why_it_is_not_told_what_is_inside() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let _client = UnixStream::connect(folder.path().join("socket")).unwrap();
        let (server, _) = listener.accept().unwrap();
        let socket = exchanges::tests::inode(server.as_raw_fd());
        // The other end counts as another's.
        let waits = Waits { sockets: HashMap::from([(socket, 1)]), ..Waits::default() };
        let found = waits.found().unwrap();
        assert_eq!((found.untold, found.unix, found.requests()), (1.0, 1.0, None));
    }

    /// As a web tier that talks to a database by a path: another process listens there.
    #[test]
    fn who_serves_over_a_unix_socket_is_found_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".s.store");
        let listener = UnixListener::bind(&path).unwrap();
        let name = path.display().to_string();
        // It has the socket as its input, and is connected to no one.
        let start = |listener: UnixListener| {
            let mut sleep = std::process::Command::new("sleep");
            sleep.arg("60").stdin(std::os::fd::OwnedFd::from(listener)).spawn().unwrap()
        };
        let mut server = start(listener);
        let address = Address::Unix(name.clone());
        let found = serving(&[1], BTreeSet::from([address.clone()]), &[]);
        let others = serving(&[1], BTreeSet::from([address]), &[server.id()]);
        server.kill().unwrap();
        server.wait().unwrap();
        let found = &found[0];
        assert_eq!(found.to_string(), format!("`sleep` (process {}) at {name}", server.id()));
        assert_eq!((found.name().as_deref(), others), (Some("sleep:s.store"), vec![]));
    }

    /// Threads that wait for a lock and sleep, and connections that were not accepted, or sent what is not read.
    #[test]
    fn threads_and_connections_that_wait_are_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut early = TcpStream::connect(address).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut early, b"unread").unwrap();
        let _waiting: Vec<TcpStream> =
            (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
        // This process listens there itself; of the two ends of a connection, one has called.
        // The test of a thousand agents has more descriptors than are looked at, for as long as it runs.
        let end = monotonic_ns() + 60_000_000_000;
        let (own, tcp) = (std::process::id(), Address::Tcp(address));
        let of = [own];
        while monotonic_ns() < end && !called(&of).contains(&tcp) {}
        assert!(called(&of).contains(&tcp));
        let there = BTreeSet::from([tcp]);
        while monotonic_ns() < end && super::listener(address, own).is_none() {}
        let found = serving(&of, there.clone(), &[]).remove(0);
        assert_eq!(found.process.as_ref().unwrap().0, own);
        assert!(found.to_string().ends_with(&format!("(process {own}) at {address}")));
        assert!(found.name().unwrap().ends_with(&format!(":{}", address.port())));
        assert_eq!(serving(&of, there, &[own]), [], "of its own");
        let (lock, done) = (Mutex::new(()), AtomicBool::new(false));
        let held = lock.lock();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| drop(lock.lock()));
            }
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
            let enough = |found: &Waiting| {
                found.accept_queue >= 3.0
                    && found.unread >= 1.0
                    && found.lock >= 2.0
                    && found.sleep >= 1.0
            };
            // It has more threads than are looked at, too.
            let end = monotonic_ns() + 60_000_000_000;
            let mut seen = None;
            while monotonic_ns() < end && !seen.as_ref().is_some_and(enough) {
                seen = of_this_process();
            }
            done.store(true, Ordering::Relaxed);
            drop(held);
            assert!(seen.as_ref().is_some_and(enough), "{seen:?}");
        });
        drop(accepted);
    }
}
