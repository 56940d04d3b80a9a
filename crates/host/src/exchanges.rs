//! Connections of TCP by what went either way, and when last, as the kernel tells with sock_diag(7), and who is at the other
//! end of a Unix socket. `/proc/net` does not tell it.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};

use procfs::net::{TcpNetEntry, TcpState};
use procfs::process::Process;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// Bytes that are read of a table, several times a second. One connection takes some 400: of a host with more than some
/// 2,600 nothing is told, as reading more would cost it too much.
const MOST_BYTES: usize = 1 << 20;
/// The kernel fills at most 32 KiB at once.
const BUFFER_BYTES: usize = 64 << 10;

// linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h, linux/tcp.h.
const REQUEST_DUMP: u16 = 0x1 | 0x300;
const BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const TCP: u8 = 6;
const ESTABLISHED: u8 = 1;
/// All states but those of connections that no process has any more, or has not yet.
const OF_PROCESSES: u32 = 0xfff & !(1 << 3 | 1 << 6);
const HEADER_BYTES: usize = 16;
const INFO: u16 = 2;
// linux/socket.h, linux/net.h, linux/unix_diag.h.
const UNIX: u8 = 1;
const STREAM: u8 = 1;
const LISTENS: u8 = 10;
const SHOW_NAME_AND_PEER: u32 = 0x1 | 0x4;
const UNIX_INODE_AT: usize = 4;
const UNIX_ATTRIBUTES_AT: usize = 16;
const NAME: u16 = 0;
const PEER: u16 = 2;
const PORTS_AT: [usize; 2] = [4, 6];
const ADDRESSES_AT: [usize; 2] = [8, 24];
const QUEUE_AT: usize = 56;
const INODE_AT: usize = 68;
const ATTRIBUTES_AT: usize = 72;
const LAST_SENT_AT: usize = 44;
const LAST_RECEIVED_AT: usize = 52;
const SEGMENTS_RECEIVED_AT: usize = 152;
const SEGMENTS_SENT_AT: usize = 156;

/// Requests before which the segments of an answer are not known.
const LEAST_SEGMENTS: u32 = 8;

/// Segments of an answer beyond which how many requests are under way is not counted: long answers differ in length.
const MOST_SEGMENTS: u32 = 3;

const IDLE_MS: u32 = 1_000;

/// What went over a connection one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    /// How long ago its last data went, in ms, to within a tick of the kernel's clock.
    last_ago_ms: u32,
    segments: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Connection {
    pub(crate) sent: Way,
    pub(crate) received: Way,
}

impl Connection {
    /// Whether nothing went over it for long, and no answer is due to what was asked.
    pub(crate) fn is_idle(self) -> bool {
        self.sent.last_ago_ms.min(self.received.last_ago_ms) >= IDLE_MS
            && self.sent.is_unanswered(self.received) == Some(false)
    }

    /// Requests that were sent and not answered, by its segments: more than one where several share it.
    pub(crate) fn asked_at_once(self) -> Option<f64> {
        let each = self.sent.answered_by(self.received).filter(|each| *each <= MOST_SEGMENTS)?;
        let open =
            f64::from(self.sent.segments) - f64::from(self.received.segments) / f64::from(each);
        Some(open.max(0.0))
    }
}

impl Way {
    /// Whether a request that went this way is still to be answered the other way, where one waits for the other. Of
    /// data within one tick the segments tell: one a request, and as many an answer each time.
    pub(crate) fn is_unanswered(self, answers: Self) -> Option<bool> {
        match self.last_ago_ms.cmp(&answers.last_ago_ms) {
            Ordering::Less => return Some(true),
            Ordering::Greater => return Some(false),
            Ordering::Equal if self.segments == 0 || answers.segments == 0 => {
                return Some(self.segments > 0);
            }
            Ordering::Equal => {}
        }
        let each = self.answered_by(answers)?;
        match self.segments.checked_sub(answers.segments / each)? {
            open @ 0..=1 if answers.segments.is_multiple_of(each) => Some(open == 1),
            _ => None,
        }
    }

    /// Segments of an answer to a request of one; `None` where too few went to know it.
    fn answered_by(self, answers: Self) -> Option<u32> {
        let is_known = self.segments >= LEAST_SEGMENTS;
        let each = answers.segments.saturating_add(self.segments / 2).checked_div(self.segments)?;
        Some(each).filter(|each| is_known && *each > 0)
    }
}

/// Why a table of the kernel is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoTable {
    /// It has more connections than are read.
    TooMany,
    /// The kernel does not tell.
    Refused,
}

/// A socket of TCP that a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TcpSocket {
    pub(crate) inode: u64,
    pub(crate) listens: bool,
    pub(crate) is_established: bool,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// Bytes that were received and not read; of a listener, connections that were not accepted.
    pub(crate) queue: u32,
    /// What went over it, where that is told.
    pub(crate) connection: Option<Connection>,
}

impl From<TcpNetEntry> for TcpSocket {
    fn from(entry: TcpNetEntry) -> Self {
        Self {
            inode: entry.inode,
            listens: entry.state == TcpState::Listen,
            is_established: entry.state == TcpState::Established,
            local: entry.local_address,
            remote: entry.remote_address,
            queue: entry.rx_queue,
            connection: None,
        }
    }
}

/// Those in the network of a process, and why it is not told what went over them.
///
/// To read `/proc/net/tcp` takes milliseconds of CPU time where the kernel's table is large, however few connections it has
/// (3.4 ms for 262,144 places, sock_diag 0.15 ms): it is read of other networks, and where connections are too many.
pub(crate) fn tcp_sockets(of: i32) -> (Vec<TcpSocket>, Result<(), NoTable>) {
    let network = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/net")).ok();
    let is_own = network("self").is_some_and(|own| network(&of.to_string()) == Some(own));
    match if is_own { tcp_sockets_here() } else { Err(NoTable::Refused) } {
        Ok(all) => (all, Ok(())),
        Err(why) => {
            let tables = Process::new(of).map_or_else(|_| vec![], |of| vec![of.tcp(), of.tcp6()]);
            let all = tables.into_iter().filter_map(Result::ok).flatten();
            (all.map(TcpSocket::from).collect(), Err(why))
        }
    }
}

fn tcp_sockets_here() -> Result<Vec<TcpSocket>, NoTable> {
    let mut found = Vec::new();
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        let body = tcp_request(family).ok_or(NoTable::Refused)?;
        dump(&body, &mut |message| {
            found.push(tcp_socket(message)?);
            Some(())
        })?;
    }
    Ok(found)
}

/// A socket of streams within this machine.
struct UnixSocket {
    inode: u64,
    /// Of the other end, where it is connected.
    peer: Option<u64>,
    /// What accepts a connection has the name.
    name: Option<String>,
    listens: bool,
}

/// All that listen or are connected, but for what is connected to the system's own services.
fn unix_sockets() -> Result<Vec<UnixSocket>, NoTable> {
    let mut found = Vec::new();
    dump(&unix_request(), &mut |message| {
        let attributes = message.get(UNIX_ATTRIBUTES_AT..)?;
        let peer = attribute(attributes, PEER).and_then(|peer| u32_at(peer, 0));
        let of_system =
            |name: &&[u8]| name.starts_with(b"/run/systemd") || name.starts_with(b"/run/dbus");
        let name = attribute(attributes, NAME).filter(|name| !of_system(name));
        if message.get(1) == Some(&STREAM) {
            found.push(UnixSocket {
                inode: u64::from(u32_at(message, UNIX_INODE_AT)?),
                peer: peer.map(u64::from),
                name: name.map(name_of),
                listens: message.get(2) == Some(&LISTENS),
            });
        }
        Some(())
    })?;
    Ok(found)
}

/// A path, or a name that is none, as `ss` writes it.
fn name_of(bytes: &[u8]) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
    bytes.strip_prefix(b"\0").map_or_else(|| text(bytes), |rest| format!("@{}", text(rest)))
}

/// Whether one of these sockets, by their inodes, is a connection over a Unix socket to a process that has none of them, by a
/// name other than those of the system's own services.
pub(crate) fn reaches_a_unix_socket(own: &impl Fn(u64) -> bool) -> bool {
    let Ok(all) = unix_sockets() else { return false };
    let named: HashSet<u64> =
        all.iter().filter(|one| one.name.is_some()).map(|one| one.inode).collect();
    all.iter().any(|one| {
        let is_named = |peer: u64| named.contains(&one.inode) || named.contains(&peer);
        own(one.inode) && one.peer.is_some_and(|peer| !own(peer) && is_named(peer))
    })
}

/// The names by which these sockets, by their inodes, are connected to processes that have none of them.
pub(crate) fn called_over_unix(own: &impl Fn(u64) -> bool) -> BTreeSet<String> {
    let all = unix_sockets().unwrap_or_default();
    let calling = all.iter().filter(|one| own(one.inode)).filter_map(|one| one.peer);
    let called: HashSet<u64> = calling.filter(|peer| !own(*peer)).collect();
    all.into_iter().filter(|one| called.contains(&one.inode)).filter_map(|one| one.name).collect()
}

/// The sockets that listen by a name.
pub(crate) fn unix_listeners(name: &str) -> Vec<u64> {
    let all = unix_sockets().unwrap_or_default().into_iter();
    let here = all.filter(|one| one.listens && one.name.as_deref() == Some(name));
    here.map(|one| one.inode).collect()
}

/// Asks for a table, and reads each entry of it.
fn dump(body: &[u8], read_entry: &mut dyn FnMut(&[u8]) -> Option<()>) -> Result<(), NoTable> {
    let table = read_table(body, read_entry);
    table.ok_or(NoTable::Refused)?
}

/// `None` where the kernel does not tell.
fn read_table(
    body: &[u8],
    read_entry: &mut dyn FnMut(&[u8]) -> Option<()>,
) -> Option<Result<(), NoTable>> {
    let flags = SocketFlags::CLOEXEC;
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::SOCK_DIAG))
            .ok()?;
    let mut buffer = vec![0; BUFFER_BYTES];
    send(&socket, &request(body)?, SendFlags::empty()).ok()?;
    let mut read = 0;
    loop {
        let (bytes, _) = match recv(&socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Err(Errno::INTR) => continue,
            other => other.ok()?,
        };
        read += bytes;
        if read > MOST_BYTES {
            return Some(Err(NoTable::TooMany));
        }
        if bytes == 0 {
            return None;
        }
        if add(buffer.get(..bytes)?, read_entry)? {
            return Some(Ok(()));
        }
    }
}

/// Asks for all sockets of a family, each with its `tcp_info`.
fn tcp_request(family: AddressFamily) -> Option<Vec<u8>> {
    let mut body = vec![u8::try_from(family.as_raw()).ok()?, TCP, 1 << (INFO - 1), 0];
    body.extend(OF_PROCESSES.to_ne_bytes());
    // Any addresses.
    body.extend([0; 48]);
    Some(body)
}

/// Asks for all Unix sockets that listen or are connected, each with its name and its other end.
fn unix_request() -> Vec<u8> {
    let mut body = vec![UNIX, 0, 0, 0];
    // Of any number.
    for word in [1 << ESTABLISHED | 1 << LISTENS, 0, SHOW_NAME_AND_PEER, 0, 0] {
        body.extend(word.to_ne_bytes());
    }
    body
}

fn request(body: &[u8]) -> Option<Vec<u8>> {
    let mut all = u32::try_from(HEADER_BYTES + body.len()).ok()?.to_ne_bytes().to_vec();
    all.extend(BY_FAMILY.to_ne_bytes());
    all.extend(REQUEST_DUMP.to_ne_bytes());
    // Neither number nor port.
    all.extend([0; 8]);
    all.extend(body);
    Some(all)
}

/// Reads the entries of what was read, and says whether it was the last of the table. `None` where it is none.
fn add(mut read: &[u8], read_entry: &mut dyn FnMut(&[u8]) -> Option<()>) -> Option<bool> {
    while !read.is_empty() {
        let length = usize::try_from(u32_at(read, 0)?).ok()?;
        let message = read.get(..length)?.get(HEADER_BYTES..)?;
        match u16_at(read, 4)? {
            DONE => return Some(true),
            ERROR => return None,
            BY_FAMILY => read_entry(message)?,
            _ => {}
        }
        read = read.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(false)
}

fn tcp_socket(message: &[u8]) -> Option<TcpSocket> {
    let [family, state] = *message.first_chunk()?;
    let address = |end: usize| {
        let bytes = message.get(ADDRESSES_AT[end]..)?;
        let ip = if u16::from(family) == AddressFamily::INET.as_raw() {
            IpAddr::from(*bytes.first_chunk::<4>()?)
        } else {
            IpAddr::from(*bytes.first_chunk::<16>()?)
        };
        let port = message.get(PORTS_AT[end]..)?.first_chunk().copied()?;
        Some(SocketAddr::new(ip, u16::from_be_bytes(port)))
    };
    let info = attribute(message.get(ATTRIBUTES_AT..)?, INFO);
    Some(TcpSocket {
        inode: u64::from(u32_at(message, INODE_AT)?),
        listens: state == LISTENS,
        is_established: state == ESTABLISHED,
        local: address(0)?,
        remote: address(1)?,
        queue: u32_at(message, QUEUE_AT)?,
        connection: info.filter(|_| state == ESTABLISHED).and_then(connection_of),
    })
}

fn attribute(mut all: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16_at(all, 0)?);
        let value = all.get(..length)?.get(4..)?;
        if u16_at(all, 2)? == kind {
            return Some(value);
        }
        all = all.get(length.next_multiple_of(4)..)?;
    }
}

fn connection_of(info: &[u8]) -> Option<Connection> {
    let way = |last_at, segments_at| {
        Some(Way { last_ago_ms: u32_at(info, last_at)?, segments: u32_at(info, segments_at)? })
    };
    Some(Connection {
        sent: way(LAST_SENT_AT, SEGMENTS_SENT_AT)?,
        received: way(LAST_RECEIVED_AT, SEGMENTS_RECEIVED_AT)?,
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|four| u32::from_ne_bytes(*four))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|two| u16::from_ne_bytes(*two))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsRawFd as _, RawFd};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    pub(crate) fn inode(socket: RawFd) -> u64 {
        let link = std::fs::read_link(format!("/proc/self/fd/{socket}")).unwrap();
        let link = link.to_str().unwrap().to_owned();
        link.trim_start_matches("socket:[").trim_end_matches(']').parse().unwrap()
    }

    fn here(socket: RawFd) -> Option<TcpSocket> {
        let (all, told) = tcp_sockets(i32::try_from(std::process::id()).unwrap());
        told.unwrap();
        all.into_iter().find(|one| one.inode == inode(socket))
    }

    /// A listener with connections that were not accepted, and both ends of one of which something was not read.
    #[test]
    fn sockets_are_those_of_proc_net_tcp() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(any) else { continue };
            let at = listener.local_addr().unwrap();
            let client = TcpStream::connect(at).unwrap();
            let (server, _) = listener.accept().unwrap();
            (&client).write_all(b"unread").unwrap();
            let waiting = [TcpStream::connect(at).unwrap(), TcpStream::connect(at).unwrap()];
            let own = Process::myself().unwrap();
            let all = [listener.as_raw_fd(), client.as_raw_fd(), server.as_raw_fd()];
            let queues = all.map(|socket| {
                let found = here(socket).unwrap();
                let mut listed = own.tcp().unwrap();
                listed.extend(own.tcp6().unwrap());
                let listed = listed.into_iter().find(|one| one.inode == inode(socket)).unwrap();
                assert_eq!(
                    TcpSocket { connection: None, ..found },
                    TcpSocket::from(listed),
                    "{any}"
                );
                assert_eq!(found.connection.is_some(), !found.listens, "{any}");
                found.queue
            });
            assert_eq!(queues, [2, 0, 6], "{any}");
            drop(waiting);
        }
    }

    #[test]
    fn both_ends_of_a_connection_tell_what_is_unanswered() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            // Not every machine has both families.
            let Ok(listener) = TcpListener::bind(any) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            let of = |one: &TcpStream| here(one.as_raw_fd()).unwrap().connection.unwrap();
            let both = || {
                let (caller, called) = (of(&client), of(&server));
                [
                    caller.sent.is_unanswered(caller.received),
                    called.received.is_unanswered(called.sent),
                ]
            };
            let mut byte = [0];
            // Answered at once and asked again: all of it may be within one tick.
            for turn in 0..20 {
                (&client).write_all(b"?").unwrap();
                let known = turn >= 8;
                assert!(both().iter().all(|one| one.unwrap_or(!known)), "{any}: {turn}");
                (&server).read_exact(&mut byte).unwrap();
                (&server).write_all(b"!").unwrap();
                (&client).read_exact(&mut byte).unwrap();
            }
            assert_eq!(both(), [Some(false); 2], "{any}");
        }
    }

    #[test]
    fn names_are_written_as_paths_or_with_a_sign() {
        for (bytes, name) in [
            (&b"/run/a.sock\0"[..], "/run/a.sock"),
            (b"\0shop", "@shop"),
            (b"", ""),
            (b"\xff", "\u{fffd}"),
        ] {
            assert_eq!(name_of(bytes), name);
        }
    }

    /// Of a pair that one process has both ends of, nothing is another's.
    #[test]
    fn a_unix_socket_of_another_is_told_from_a_pair() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let client = UnixStream::connect(folder.path().join("socket")).unwrap();
        let (server, _) = listener.accept().unwrap();
        let pair = UnixStream::pair().unwrap();
        let reaches = |own: &[RawFd]| {
            let own: Vec<u64> = own.iter().map(|socket| inode(*socket)).collect();
            reaches_a_unix_socket(&|socket| own.contains(&socket))
        };
        let [client, server] = [client.as_raw_fd(), server.as_raw_fd()];
        assert!(reaches(&[client]) && reaches(&[server]));
        assert!(!reaches(&[client, server]));
        let called = |own: RawFd| called_over_unix(&|socket| socket == inode(own));
        let name = folder.path().join("socket").display().to_string();
        assert_eq!(called(client), BTreeSet::from([name.clone()]));
        assert_eq!(called(server), BTreeSet::new(), "it was called");
        assert_eq!(unix_listeners(&name), [inode(listener.as_raw_fd())]);
        assert!(!reaches(&[pair.0.as_raw_fd()]), "no name, as of what a process gave its child");
    }

    #[test]
    fn segments_tell_what_one_tick_holds() {
        let open = |requests, answers| {
            let way = |segments| Way { last_ago_ms: 7, segments };
            way(requests).is_unanswered(way(answers))
        };
        for each in [1, 2, 3] {
            assert_eq!(open(20, 20 * each), Some(false));
            assert_eq!(open(21, 20 * each), Some(true));
        }
        assert_eq!(open(1, 0), Some(true));
        assert_eq!(open(0, 1), Some(false), "a greeting");
        let at = |sent_ago, received_ago| {
            let way = |last_ago_ms| Way { last_ago_ms, segments: 20 };
            Connection { sent: way(sent_ago), received: way(received_ago) }.is_idle()
        };
        assert!(at(1_500, 1_200) && !at(1_200, 1_500) && !at(1_500, 900));
        // Eight that share a connection; one at a time, whose answers take two segments; too few to know.
        let at_once = |sent, received| {
            let way = |segments| Way { last_ago_ms: 7, segments };
            Connection { sent: way(sent), received: way(received) }.asked_at_once()
        };
        assert_eq!(at_once(1_141, 1_133), Some(8.0));
        assert_eq!((at_once(500, 998), at_once(500, 500)), (Some(1.0), Some(0.0)));
        assert_eq!((at_once(7, 3), at_once(0, 9), at_once(1_000, 39_700)), (None, None, None));
        // Answers that differ, requests of several segments, too few of them.
        for (requests, answers) in [(20, 27), (40, 20), (20, 17), (3, 3)] {
            assert_eq!(open(requests, answers), None, "{requests} {answers}");
        }
    }

    /// Tables that end anywhere, and lengths that reach anywhere.
    #[test]
    fn a_table_that_is_cut_or_wrong_is_none_or_less() {
        let mut info = vec![0; 160];
        for (at, value) in [
            (LAST_SENT_AT, 3),
            (LAST_RECEIVED_AT, 9),
            (SEGMENTS_SENT_AT, 5),
            (SEGMENTS_RECEIVED_AT, 4),
        ] {
            info[at] = value;
        }
        let mut message = vec![0; ATTRIBUTES_AT];
        message[1] = ESTABLISHED;
        message[INODE_AT] = 77;
        message.extend(164_u16.to_ne_bytes());
        message.extend(INFO.to_ne_bytes());
        message.extend(info);
        let mut table = u32::try_from(HEADER_BYTES + message.len()).unwrap().to_ne_bytes().to_vec();
        table.extend(BY_FAMILY.to_ne_bytes());
        table.extend([0; 10]);
        table.extend(message);
        let read = |table: &[u8]| {
            let mut found = Vec::new();
            let last = add(table, &mut |message| {
                found.push(tcp_socket(message)?);
                Some(())
            })?;
            Some((last, found))
        };
        let (last, found) = read(&table).unwrap();
        let way = |last_ago_ms, segments| Way { last_ago_ms, segments };
        let connection = Connection { sent: way(3, 5), received: way(9, 4) };
        assert_eq!((last, found[0].inode, found[0].connection), (false, 77, Some(connection)));
        for length in 1..table.len() {
            assert_eq!(read(&table[..length]), None, "{length}");
        }
        for wrong in [0_u32, 3, 15, u32::MAX] {
            table[..4].copy_from_slice(&wrong.to_ne_bytes());
            assert_eq!(read(&table), None, "{wrong}");
        }
    }
}
