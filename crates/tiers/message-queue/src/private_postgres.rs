//! A PostgreSQL of the queue's own, from the installed binaries: for those who have none.
//!
//! It listens on a Unix socket only, in a folder that only its user may enter; the role that the
//! queue uses is not a superuser, and the one that made the cluster cannot log in any more. It is
//! durable as PostgreSQL is by default, stops with the middleware, however that ends, is started again
//! when it ends before that, and resumes over the same data.

mod error;
mod launch;
mod log_reserve;
mod supervisor;
mod user;

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use self::error::PLACES;
pub use self::error::PrivatePostgresError;
use self::launch::{LOOK, Launch, ROLE, STOP};
pub use self::launch::{PrivateOptions, TcpAccess};
pub(crate) use self::log_reserve::LogRoom;
use self::supervisor::Supervisor;
use self::user::{Contents, User, no_links};

/// The role that makes the cluster; it may not log in afterwards.
const MAKER: &str = "kendall_maker";
/// How long a start waits for the folder: a process that was killed a moment ago may not have let go of it.
const FOLDER: Duration = Duration::from_secs(2);

/// A running private PostgreSQL. [`stop`](Self::stop) it; dropped, it is stopped too.
#[derive(Debug)]
pub struct PrivatePostgres {
    supervisor: Supervisor,
    url: String,
    programs: PathBuf,
    /// The server's own log.
    log: PathBuf,
    room: Arc<LogRoom>,
    /// The sockets' folder, where it had to be elsewhere.
    _sockets: Option<tempfile::TempDir>,
    /// Locks the folder until the server has ended.
    _lock: OwnedFd,
}

impl PrivatePostgres {
    /// Makes the cluster in `folder` where there is none, and starts its server.
    pub fn start(folder: &Path) -> Result<Self, PrivatePostgresError> {
        Self::start_with(folder, &PrivateOptions::default())
    }

    /// As [`start`](Self::start), with options.
    pub fn start_with(
        folder: &Path,
        options: &PrivateOptions,
    ) -> Result<Self, PrivatePostgresError> {
        let installed = installed()?;
        let user = User::of_server()?;
        let folder = user.folder(folder, Contents::OfACluster)?;
        let lock = lock(&folder)?;
        let data = folder.join("data");
        let programs = fitting(&installed, &data)?;
        let (sockets, temporary) = user.socket_folder(&folder)?;
        if !data.join("PG_VERSION").exists() {
            make_cluster(&programs, user, &data, &sockets)?;
        }
        refuse_running(&data)?;
        let mut counts = false;
        if let Some(tcp) = &options.tcp {
            set_password((&programs, user), &data, &tcp.password)?;
            counts = count_statements((&programs, user), &data, &options.settings);
        }
        allow(&data, options.tcp.as_ref())?;
        let log = folder.join("postgres.log");
        let port = options.port();
        let url = format!("host='{}' port={port} user={ROLE} dbname={ROLE}", sockets.display());
        let options = options.clone();
        let folder_of_programs = programs.clone();
        let room = Arc::new(LogRoom::new(&data));
        let launch = Launch {
            programs,
            user,
            data,
            sockets,
            log: log.clone(),
            options,
            counts,
            room: Arc::clone(&room),
        };
        let supervisor = Supervisor::start(launch)?;
        Ok(Self {
            supervisor,
            url,
            programs: folder_of_programs,
            log,
            room,
            _sockets: temporary,
            _lock: lock,
        })
    }

    /// The folder of the programs that [`start`](Self::start) would take, and whether there is a user to
    /// run them as. Nothing is started or written.
    pub fn find() -> Result<PathBuf, PrivatePostgresError> {
        let installed = installed()?;
        User::of_server()?;
        installed
            .into_iter()
            .next_back()
            .map(|(_, folder)| folder)
            .ok_or(PrivatePostgresError::NotInstalled)
    }

    /// How to reach it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Folder of the server's programs, and of those that come with it, such as `pgbench`.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// The server's process; another one after it had to be started again.
    pub fn pid(&self) -> u32 {
        self.supervisor.pid()
    }

    /// What the disk of its write-ahead log has left.
    pub(crate) fn room(&self) -> Arc<LogRoom> {
        Arc::clone(&self.room)
    }

    /// How often its log says that checkpoints come too often: each then writes whole pages again, and a
    /// run measures that as well.
    pub fn hurried_checkpoints(&self) -> usize {
        hurried_checkpoints(&self.log)
    }

    /// Whether the server could work in this folder, which need not exist.
    ///
    /// # Errors
    /// [`PrivatePostgresError::Closed`] with the folder that is in the way, or no user to run as.
    pub fn may_enter(folder: &Path) -> Result<(), PrivatePostgresError> {
        User::of_server()?.may_enter(folder)
    }

    /// Ends it at once: its data are not needed any more.
    pub fn abandon(mut self) {
        self.supervisor.stop(Signal::QUIT, STOP);
    }

    /// Stops it: connections are ended, what was committed is on disk.
    pub fn stop(mut self) {
        self.supervisor.stop(Signal::INT, STOP);
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        self.supervisor.stop(Signal::INT, STOP);
    }
}

/// Keeps others out of a folder as long as what is given lives, and at most as long as this process.
fn lock(folder: &Path) -> Result<OwnedFd, PrivatePostgresError> {
    let failed = |error: Errno| PrivatePostgresError::Folder {
        path: folder.to_owned(),
        source: error.into(),
    };
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = open(folder, flags, Mode::empty()).map_err(failed)?;
    let mut left = FOLDER;
    loop {
        match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(opened),
            Err(Errno::WOULDBLOCK) if left > Duration::ZERO => {
                std::thread::sleep(LOOK);
                left = left.saturating_sub(LOOK);
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(PrivatePostgresError::InUse { path: folder.to_owned() });
            }
            Err(error) => return Err(failed(error)),
        }
    }
}

/// The programs for a cluster: those of the version that made it, or the newest for a new one.
fn fitting(installed: &[(u32, PathBuf)], data: &Path) -> Result<PathBuf, PrivatePostgresError> {
    let (newest, folder) = installed.last().ok_or(PrivatePostgresError::NotInstalled)?;
    let written = fs::read_to_string(data.join("PG_VERSION")).ok();
    let Some(made) = written.and_then(|text| text.trim().parse::<u32>().ok()) else {
        return Ok(folder.clone());
    };
    let its = installed.iter().rev().find(|(version, _)| *version == made);
    its.map(|(_, folder)| folder.clone()).ok_or_else(|| PrivatePostgresError::OtherVersion {
        path: data.to_owned(),
        made,
        found: *newest,
    })
}

/// The folders of the installed server programs and their versions, the newest last.
fn installed() -> Result<Vec<(u32, PathBuf)>, PrivatePostgresError> {
    let from_path = std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect::<Vec<_>>())
        .unwrap_or_default()
        .into_iter()
        // Distributions link `postgres` but not `initdb` into the path.
        .filter_map(|folder| {
            folder.join("postgres").canonicalize().ok()?.parent().map(PathBuf::from)
        });
    let mut found: Vec<(u32, PathBuf)> = PLACES
        .iter()
        .filter_map(|place| fs::read_dir(place).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .chain(from_path)
        .filter(|folder| folder.join("initdb").exists() && folder.join("postgres").exists())
        .filter_map(|folder| Some((version(&folder)?, folder)))
        .filter(|(version, _)| *version >= 15)
        .collect();
    found.sort();
    if found.is_empty() { Err(PrivatePostgresError::NotInstalled) } else { Ok(found) }
}

/// Major version of the programs in a folder: `postgres (PostgreSQL) 15.18 …`.
fn version(folder: &Path) -> Option<u32> {
    let said = Command::new(folder.join("postgres")).arg("--version").output().ok()?;
    let text = String::from_utf8(said.stdout).ok()?;
    text.split_whitespace().find_map(|word| word.split('.').next()?.parse().ok())
}

fn make_cluster(
    programs: &Path,
    user: User,
    data: &Path,
    sockets: &Path,
) -> Result<(), PrivatePostgresError> {
    // Made beside and renamed when it is whole: a start that was cut off leaves nothing half done.
    let making = data.with_extension("making");
    if making.exists() {
        fs::remove_dir_all(&making)
            .map_err(|source| PrivatePostgresError::Folder { path: making.clone(), source })?;
    }
    let mut initdb = user.command(programs.join("initdb"));
    initdb.args(["--encoding=UTF8", "--locale=C.UTF-8", "--data-checksums", "--auth=reject"]);
    initdb.args(["--username", MAKER, "--pgdata"]).arg(&making);
    run(initdb, "initdb", "")?;
    for text in [
        format!("CREATE ROLE {ROLE} LOGIN;\n"),
        // A checkpoint gives back the space of the log.
        format!("GRANT pg_checkpoint TO {ROLE};\n"),
        format!("CREATE DATABASE {ROLE} OWNER {ROLE};\n"),
        format!("ALTER ROLE {MAKER} NOLOGIN;\n"),
    ] {
        single((programs, user), &making, "postgres", &text)?;
    }
    fs::rename(&making, data)
        .map_err(|source| PrivatePostgresError::Folder { path: data.to_owned(), source })?;
    tracing::info!(data = %data.display(), sockets = %sockets.display(), "made a private PostgreSQL");
    Ok(())
}

/// Whether the module that counts statements is installed beside these programs.
fn has_statements(programs: &Path) -> bool {
    let above = programs.parent().unwrap_or(programs);
    ["lib", "lib/postgresql", "lib64", "lib64/pgsql", "lib64/postgresql"]
        .iter()
        .any(|folder| above.join(folder).join("pg_stat_statements.so").exists())
}

/// Runs a command of the maker's in single-user mode, where no connection needs to be allowed.
fn single(
    (programs, user): (&Path, User),
    data: &Path,
    database: &str,
    text: &str,
) -> Result<(), PrivatePostgresError> {
    let mut single = user.command(programs.join("postgres"));
    single.args(["--single", "-j", "-D"]).arg(data).arg(database);
    run(single, "postgres --single", text)
}

/// Gives the role its password.
fn set_password(
    programs: (&Path, User),
    data: &Path,
    password: &str,
) -> Result<(), PrivatePostgresError> {
    assert!(password.chars().all(|c| c.is_ascii_alphanumeric()), "letters and digits");
    single(programs, data, ROLE, &format!("ALTER ROLE {ROLE} PASSWORD '{password}';\n"))
}

/// Has the database over TCP, which studies use, count its statements; whether it does.
fn count_statements((programs, user): (&Path, User), data: &Path, settings: &[String]) -> bool {
    if settings.iter().any(|one| one.starts_with("shared_preload_libraries")) {
        // A setting of its own for preloaded libraries is left as it is.
        return false;
    }
    if !has_statements(programs) {
        tracing::info!(
            "statements are not counted inside PostgreSQL: its module pg_stat_statements is not \
             installed (Debian: in the server's package since version 10)"
        );
        return false;
    }
    let text = "CREATE EXTENSION IF NOT EXISTS pg_stat_statements;\n";
    match single((programs, user), data, ROLE, text) {
        Ok(()) => true,
        Err(error) => {
            tracing::info!(%error, "statements are not counted inside PostgreSQL");
            false
        }
    }
}

/// Says who may connect: the role of the queue by the socket, and by TCP with its password, if at
/// all.
fn allow(data: &Path, tcp: Option<&TcpAccess>) -> Result<(), PrivatePostgresError> {
    let mut rules = format!("local {ROLE} {ROLE} trust\nlocal all all reject\n");
    if let Some(TcpAccess { address, .. }) = tcp {
        // Peers on loopback have its first address, whatever address they connect to.
        let peer = match address.ip() {
            ip if !ip.is_loopback() => "all",
            IpAddr::V4(_) => "127.0.0.0/8",
            IpAddr::V6(_) => "::1/128",
        };
        rules.push_str(&format!("host {ROLE} {ROLE} {peer} scram-sha-256\n"));
    }
    let hba = data.join("pg_hba.conf");
    if fs::read_to_string(&hba).is_ok_and(|before| before == rules) {
        // Nothing to write, which matters where the disk is full.
        return Ok(());
    }
    // The folder is another user's, where we are root.
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(no_links())
        .open(&hba)
        .and_then(|mut file| io::Write::write_all(&mut file, rules.as_bytes()));
    written.map_err(|source| PrivatePostgresError::Folder { path: hba, source })
}

fn run(mut command: Command, program: &str, input: &str) -> Result<(), PrivatePostgresError> {
    let failed = |output: String| PrivatePostgresError::Program { program: program.into(), output };
    if !input.is_empty() {
        command.stdin(Stdio::piped());
    }
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        io::Write::write_all(&mut stdin, format!("{input}\n").as_bytes())
            .map_err(|error| failed(error.to_string()))?;
    }
    let Output { status, stdout, stderr } =
        child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    let said = String::from_utf8_lossy(&stderr);
    // In single-user mode an error is printed and the status is success.
    if status.success() && !said.contains("ERROR:") && !said.contains("FATAL:") {
        return Ok(());
    }
    Err(failed(format!("{status}: {} {}", said.trim(), String::from_utf8_lossy(&stdout).trim())))
}

/// A server that a killed middleware left behind is stopped; one that serves another is refused.
fn refuse_running(data: &Path) -> Result<(), PrivatePostgresError> {
    let Some(pid) = server_of(data) else { return Ok(()) };
    let parent = parent_of(pid);
    let orphan = parent.is_none_or(|parent| parent == 1 || !runs_kendall(parent));
    if !orphan {
        return Err(PrivatePostgresError::Running { path: data.to_owned(), pid });
    }
    let Some(process) = Pid::from_raw(pid) else { return Ok(()) };
    tracing::info!(pid, "stopping the PostgreSQL that an earlier middleware left behind");
    let mut left = STOP;
    // It may have ended meanwhile.
    kill_process(process, Signal::INT).unwrap_or_default();
    while left > Duration::ZERO && test_kill_process(process).is_ok() {
        std::thread::sleep(LOOK);
        left = left.saturating_sub(LOOK);
    }
    Ok(())
}

/// The process that `postmaster.pid` names, if it is a server over this data folder.
fn server_of(data: &Path) -> Option<i32> {
    let lock = fs::read_to_string(data.join("postmaster.pid")).ok()?;
    let pid: i32 = lock.lines().next()?.trim().parse().ok()?;
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let names_data = command
        .split(|byte| *byte == 0)
        .any(|argument| argument == data.as_os_str().as_encoded_bytes());
    names_data.then_some(pid)
}

fn parent_of(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

fn runs_kendall(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "kendall")
}

/// Lines of a server's log that say that checkpoints come too often.
fn hurried_checkpoints(log: &Path) -> usize {
    let Ok(file) = fs::File::open(log) else { return 0 };
    let lines = io::BufRead::split(io::BufReader::new(file), b'\n').map_while(Result::ok);
    lines
        .filter(|line| {
            String::from_utf8_lossy(line).contains("checkpoints are occurring too frequently")
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::{PrivatePostgresError, fitting, hurried_checkpoints};

    #[test]
    fn a_cluster_gets_the_programs_of_the_version_that_made_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let installed = [(15, "/15".into()), (17, "/17".into())];
        let programs = |made: &str| {
            std::fs::write(folder.path().join("PG_VERSION"), made).expect("a file");
            fitting(&installed, folder.path())
        };
        let newest = fitting(&installed, &folder.path().join("none")).expect("the newest");
        assert_eq!(newest.to_str(), Some("/17"));
        assert_eq!(programs("15\n").expect("the older").to_str(), Some("/15"));
        assert_eq!(programs("17\n").expect("the newer").to_str(), Some("/17"));
        let error = programs("16\n").expect_err("it is not installed");
        let is_16 = matches!(error, PrivatePostgresError::OtherVersion { made: 16, found: 17, .. });
        assert!(is_16, "{error}");
    }

    #[test]
    fn warnings_of_hurried_checkpoints_are_counted_and_other_lines_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("postgres.log");
        assert_eq!(hurried_checkpoints(&log), 0);
        let text = b"2026-11-22 LOG:  checkpoint starting: wal\n\
            2026-11-22 LOG:  checkpoints are occurring too frequently (1 second apart)\n\
            2026-11-22 HINT:  Consider increasing the configuration parameter \"max_wal_size\".\n\
            \xff\n2026-11-22 LOG:  checkpoints are occurring too frequently (2 seconds apart)\n";
        std::fs::write(&log, text).expect("a log");
        assert_eq!(hurried_checkpoints(&log), 2);
    }
}
