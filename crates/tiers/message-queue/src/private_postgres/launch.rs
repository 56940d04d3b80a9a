//! Starts the server, and reads its output when it ended.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use super::error::{PrivatePostgresError, START};
use super::log_reserve::LogRoom;
use super::user::{User, no_links};

/// The role and the database of the queue.
pub(super) const ROLE: &str = "kendall";
const PORT: &str = "5432";
/// Time for PostgreSQL to go down, and how often it is looked at.
pub(super) const STOP: Duration = Duration::from_secs(60);
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// A disk with less space than this is named as the likely reason of a failure: two segments of
/// PostgreSQL's log.
const LITTLE_ROOM_BYTES: u64 = 32 << 20;
/// How much of the server's log is read to say why it failed.
const LAST_WORDS_BYTES: u64 = 16 << 10;

/// How a private PostgreSQL is reached beside its socket, and its settings.
#[derive(Debug, Clone, Default)]
pub struct PrivateOptions {
    /// Also over TCP, with a password.
    pub tcp: Option<TcpAccess>,
    /// Settings of PostgreSQL: `name=value`.
    pub settings: Vec<String>,
    /// In the caller's process group, so that who ends the group ends the server. Otherwise in one
    /// of its own: a terminal's interrupt is for the middleware, which stops it afterwards.
    pub same_group: bool,
}

/// An address on which a private PostgreSQL listens, and what its role must know there.
#[derive(Debug, Clone)]
pub struct TcpAccess {
    /// On loopback, or where other hosts reach it.
    pub address: SocketAddr,
    /// Letters and digits.
    pub password: String,
}

/// All that it takes to start the server, once and again.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) programs: PathBuf,
    pub(super) user: User,
    pub(super) data: PathBuf,
    pub(super) sockets: PathBuf,
    pub(super) log: PathBuf,
    pub(super) options: PrivateOptions,
    pub(super) counts: bool,
    pub(super) room: Arc<LogRoom>,
}

impl PrivateOptions {
    /// The port, which also names the socket.
    pub(super) fn port(&self) -> String {
        self.tcp.as_ref().map_or_else(|| PORT.to_owned(), |tcp| tcp.address.port().to_string())
    }

    pub(super) fn host(&self) -> String {
        self.tcp.as_ref().map_or_else(String::new, |tcp| tcp.address.ip().to_string())
    }
}

impl Launch {
    pub(super) fn start(&self) -> Result<Child, PrivatePostgresError> {
        let failed = |source| PrivatePostgresError::Folder { path: self.log.clone(), source };
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .custom_flags(no_links())
            .open(&self.log);
        let log = log.map_err(failed)?;
        let postgres = self.programs.join("postgres");
        let log_mb = log_room(&self.data.join("pg_wal"));
        let mut command = match guard() {
            // Stops PostgreSQL when this process dies.
            Some(guard) => {
                let mut command = self.user.command(guard);
                command.args(["--pdeathsig", "INT", "--"]).arg(postgres);
                command
            }
            None => self.user.command(postgres),
        };
        command
            .arg("-D")
            .arg(&self.data)
            .args(["-p", &self.options.port(), "-c"])
            .arg(format!("listen_addresses={}", self.options.host()))
            .arg("-c")
            .arg(format!("unix_socket_directories={}", self.sockets.display()))
            .args(["-c", "max_connections=200", "-c", "wal_compression=on"])
            .arg("-c")
            .arg(format!("max_wal_size={log_mb}MB"))
            // Files that a checkpoint keeps for reuse; two is PostgreSQL's least, and its default more than a small
            // disk's log.
            .arg("-c")
            .arg(format!("min_wal_size={}MB", (log_mb / 2).min(80)))
            .args(["-c", "shared_buffers=256MB"])
            // A line for each error: where the disk is full, refusals must not fill what receiving frees.
            .args(["-c", "log_error_verbosity=terse", "-c", "log_min_error_statement=panic"])
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log);
        if self.counts {
            command.args(["-c", "shared_preload_libraries=pg_stat_statements"]);
            // A cluster that studies throw away: nothing is kept over its end.
            command.args(["-c", "pg_stat_statements.save=off", "-c", "track_wal_io_timing=on"]);
        }
        for setting in &self.options.settings {
            command.args(["-c", setting]);
        }
        if !self.options.same_group {
            command.process_group(0);
        }
        command.spawn().map_err(|error| PrivatePostgresError::Program {
            program: "postgres".into(),
            output: error.to_string(),
        })
    }

    pub(super) fn wait_ready(&self, server: &mut Child) -> Result<(), PrivatePostgresError> {
        let mut left = START;
        while left > Duration::ZERO {
            let ready = Command::new(self.programs.join("pg_isready"))
                .args(["--quiet", "--username", ROLE, "--dbname", ROLE])
                .args(["--port", &self.options.port(), "--host"])
                .arg(&self.sockets)
                .status();
            if ready.is_ok_and(|status| status.success()) {
                return Ok(());
            }
            if let Ok(Some(status)) = server.try_wait() {
                let (why, log) = (self.last_words(), self.log.clone());
                return Err(PrivatePostgresError::Ended { status, why, log });
            }
            std::thread::sleep(LOOK);
            left = left.saturating_sub(LOOK);
        }
        Err(PrivatePostgresError::Silent { log: self.log.clone() })
    }

    /// Why the server ended: the last fatal line of its log, and a disk that is full, on which the
    /// log may lack that line.
    pub(super) fn last_words(&self) -> String {
        let mut words = last_fatal(&self.log).unwrap_or_else(|| "it gave no reason".to_owned());
        for folder in [self.data.clone(), self.data.join("pg_wal")] {
            if let Some(doubt) = little_room(&folder) {
                words.push_str("; ");
                words.push_str(&doubt);
                break;
            }
        }
        words
    }
}

/// The program that has the kernel signal a process whose parent ends (util-linux, which every
/// distribution has). Between fork and exec it would take unsafe code.
fn guard() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/bin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path).chain(usual);
    places.find_map(|folder| Some(folder.join("setpriv")).filter(|program| program.is_file()))
}

/// How large PostgreSQL's log may grow between two checkpoints, in MB: 2 GB, on a small disk an eighth
/// of it, since a disk that is full of it ends the server.
fn log_room(folder: &Path) -> u64 {
    let eighth = rustix::fs::statvfs(folder)
        .map_or(u64::MAX, |about| about.f_blocks.saturating_mul(about.f_frsize) / 8);
    (eighth >> 20).clamp(64, 2048)
}

/// The last line of a server's log that says why it ended.
fn last_fatal(log: &Path) -> Option<String> {
    let mut file = fs::File::open(log).ok()?;
    let from = file.metadata().ok()?.len().saturating_sub(LAST_WORDS_BYTES);
    io::Seek::seek(&mut file, io::SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut file, &mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    // Not those that were sent to a client.
    let told = |line: &str| {
        let parts = ["terminating", "the database system is", "pg_hba.conf", "authentication"];
        parts.iter().any(|part| line.contains(part))
    };
    let fatal = |line: &str| {
        let at = line.find(" PANIC:  ").or_else(|| line.find(" FATAL:  "))?;
        (!told(line)).then(|| line[at + 9..].trim().to_owned())
    };
    text.lines().rev().find_map(fatal)
}

/// Warns when a folder's disk has little space.
fn little_room(folder: &Path) -> Option<String> {
    let about = rustix::fs::statvfs(folder).ok()?;
    let free = about.f_bavail.saturating_mul(about.f_frsize);
    (free < LITTLE_ROOM_BYTES)
        .then(|| format!("the disk of {} has {} KiB free; free some", folder.display(), free >> 10))
}
