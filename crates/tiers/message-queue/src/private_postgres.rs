//! A PostgreSQL of the queue's own, from the installed binaries: for those who have none.
//!
//! It listens on a Unix socket only, in a folder that only its user may enter; the role that the
//! queue uses is not a superuser, and the one that made the cluster cannot log in any more. It is
//! durable as PostgreSQL is by default, stops with the middleware, however that ends, is started again
//! when it ends before that, and resumes over the same data.

mod keeper;
mod log_reserve;

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::fs::{
    CWD, Dir, FlockOperation, Gid, Mode, OFlags, ResolveFlags, Uid, fchmod, fchown, flock, fstat,
    mkdirat, open, openat, openat2,
};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getuid, kill_process, test_kill_process};

use self::keeper::Keeper;

/// Folders in which distributions keep the server's programs.
const PLACES: &[&str] =
    &["/usr/lib/postgresql", "/usr/pgsql", "/usr/local/pgsql", "/opt/postgresql"];
/// The role and the database of the queue.
const ROLE: &str = "kendall";
/// The role that makes the cluster; it may not log in afterwards.
const MAKER: &str = "kendall_maker";
/// A path in a socket address has 107 bytes, of which the file's name takes 16.
const SOCKET_FOLDER_BYTES: usize = 90;
const PORT: &str = "5432";
/// Time for PostgreSQL to come up (it may have a log to replay) and to go down.
const START: Duration = Duration::from_secs(120);
const STOP: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// How long a start waits for the folder: a process that was killed a moment ago may not have let go of it.
const FOLDER: Duration = Duration::from_secs(2);
/// A disk with less room than this is named as the likely reason of a failure: two segments of
/// PostgreSQL's log.
const LITTLE_ROOM_BYTES: u64 = 32 << 20;
/// How much of the server's log is read to say why it failed.
const LAST_WORDS_BYTES: u64 = 16 << 10;

/// The private PostgreSQL cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PrivatePostgresError {
    /// No server programs.
    #[error(
        "no PostgreSQL 15 or later is installed here (looked in $PATH and {}); install it \
         (Debian: apt-get install postgresql), or name yours with --database URL",
        PLACES.join(", ")
    )]
    NotInstalled,
    /// A folder cannot be made.
    #[error("cannot prepare {path}; another folder can be named with --data DIR")]
    Folder {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The folder holds something else, or is somebody else's.
    #[error(
        "{path} cannot be the folder of a private PostgreSQL: {why}; name a new folder, or an empty one of \
         yours, with --data DIR"
    )]
    NotOurs {
        /// The folder.
        path: PathBuf,
        /// What it is.
        why: &'static str,
    },
    /// PostgreSQL will not run as root, and there is no other user to run it as.
    #[error(
        "PostgreSQL does not run as root, and this machine has no user `postgres` to run it as; \
         start as another user"
    )]
    NoUser,
    /// The user that runs the server may not enter.
    #[error(
        "PostgreSQL runs as user `postgres` here, who may not enter {folder}; take a data folder \
         elsewhere, or allow it (chmod o+x)"
    )]
    Closed {
        /// The folder on the way to the data.
        folder: PathBuf,
    },
    /// One of its programs failed.
    #[error("`{program}` failed: {output}")]
    Program {
        /// The program.
        program: String,
        /// What it said.
        output: String,
    },
    /// It runs already, for another middleware.
    #[error(
        "the PostgreSQL of {path} is running for another process (pid {pid}); stop that one, or \
         take another folder with --data DIR"
    )]
    Running {
        /// The data folder.
        path: PathBuf,
        /// The server's process.
        pid: i32,
    },
    /// The folder is another process's.
    #[error(
        "{path} is in use: another process runs the PostgreSQL in it, or is making it; stop that one, or take \
         another folder with --data DIR"
    )]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// Its data are of a version whose programs are not here.
    #[error(
        "{path} was made by PostgreSQL {made}, whose programs are not installed here (found: {found}); install \
         version {made} again (Debian: apt-get install postgresql-{made}), or bring the data up to date with \
         pg_upgrade"
    )]
    OtherVersion {
        /// The data folder.
        path: PathBuf,
        /// The version that made it.
        made: u32,
        /// The newest that is installed.
        found: u32,
    },
    /// It ended at its start.
    #[error("PostgreSQL does not start ({status}): {why}; its log is {log}", log = log.display())]
    Ended {
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it said last, and whether its disk is full.
        why: String,
        /// Its log.
        log: PathBuf,
    },
    /// It did not come up.
    #[error("PostgreSQL did not come up in {} s; see {log}", START.as_secs(), log = log.display())]
    Silent {
        /// Its log.
        log: PathBuf,
    },
    /// Nobody can look after it.
    #[error("the system gives no thread to supervise PostgreSQL")]
    Keeper(#[source] io::Error),
}

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

/// A running private PostgreSQL. [`stop`](Self::stop) it; dropped, it is stopped too.
#[derive(Debug)]
pub struct PrivatePostgres {
    keeper: Keeper,
    url: String,
    programs: PathBuf,
    /// The server's own log.
    log: PathBuf,
    /// Whether the disk of the write-ahead log is nearly full.
    nearly_full: Arc<AtomicBool>,
    /// The sockets' folder, where it had to be elsewhere.
    _sockets: Option<tempfile::TempDir>,
    /// Held until the server has ended: nobody else works in this folder.
    _lock: OwnedFd,
}

/// All that it takes to start the server, once and again.
#[derive(Debug)]
struct Launch {
    programs: PathBuf,
    user: User,
    data: PathBuf,
    sockets: PathBuf,
    log: PathBuf,
    options: PrivateOptions,
    /// It counts its statements.
    counts: bool,
    nearly_full: Arc<AtomicBool>,
}

/// What a folder that exists may hold.
#[derive(Debug, Clone, Copy)]
enum Contents {
    /// A cluster of ours, or nothing.
    OfACluster,
    Any,
}

/// Who runs the server: this user, or, for root, the user `postgres`.
#[derive(Debug, Clone, Copy)]
struct User {
    switch: Option<(u32, u32)>,
}

impl PrivatePostgres {
    /// Makes the cluster in `folder` where there is none, and starts its server.
    ///
    /// # Errors
    /// [`PrivatePostgresError`]: not installed, no such folder, in use, or it does not come up.
    pub fn start(folder: &Path) -> Result<Self, PrivatePostgresError> {
        Self::start_with(folder, &PrivateOptions::default())
    }

    /// As [`start`](Self::start), with options.
    ///
    /// # Errors
    /// [`PrivatePostgresError`]: not installed, no such folder, in use, or it does not come up.
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
        let nearly_full = Arc::<AtomicBool>::default();
        let launch = Launch {
            programs,
            user,
            data,
            sockets,
            log: log.clone(),
            options,
            counts,
            nearly_full: Arc::clone(&nearly_full),
        };
        let keeper = Keeper::start(launch)?;
        Ok(Self {
            keeper,
            url,
            programs: folder_of_programs,
            log,
            nearly_full,
            _sockets: temporary,
            _lock: lock,
        })
    }

    /// The folder of the programs that [`start`](Self::start) would take, and whether there is a user to
    /// run them as. Nothing is started or written.
    ///
    /// # Errors
    /// [`PrivatePostgresError::NotInstalled`], [`PrivatePostgresError::NoUser`].
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
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Folder of the server's programs, and of those that come with it, such as `pgbench`.
    #[must_use]
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// The server's process; another one after it had to be started again.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.keeper.pid()
    }

    /// Whether the disk of its write-ahead log is nearly full: nothing should be stored then.
    pub(crate) fn nearly_full(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.nearly_full)
    }

    /// How often its log says that checkpoints come too often: each then writes whole pages again, and a
    /// run measures that as well.
    #[must_use]
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

    /// Ends it at once, for data that nobody needs any more.
    pub fn abandon(mut self) {
        self.keeper.stop(Signal::QUIT, STOP);
    }

    /// Stops it: connections are ended, what was committed is on disk.
    pub fn stop(mut self) {
        self.keeper.stop(Signal::INT, STOP);
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        self.keeper.stop(Signal::INT, STOP);
    }
}

impl PrivateOptions {
    /// The port, which also names the socket.
    fn port(&self) -> String {
        self.tcp.as_ref().map_or_else(|| PORT.to_owned(), |tcp| tcp.address.port().to_string())
    }

    fn host(&self) -> String {
        self.tcp.as_ref().map_or_else(String::new, |tcp| tcp.address.ip().to_string())
    }
}

impl User {
    fn of_server() -> Result<Self, PrivatePostgresError> {
        if !getuid().is_root() {
            return Ok(Self { switch: None });
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let fields = users.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some("postgres")).then(|| (fields.nth(1), fields.next()))
        });
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok());
        let (uid, gid) = fields.ok_or(PrivatePostgresError::NoUser)?;
        let switch = number(uid).zip(number(gid)).ok_or(PrivatePostgresError::NoUser)?;
        Ok(Self { switch: Some(switch) })
    }

    /// Whether all folders above `path` let this user pass.
    fn may_enter(self, path: &Path) -> Result<(), PrivatePostgresError> {
        let Some((uid, gid)) = self.switch else { return Ok(()) };
        let failed = |source| PrivatePostgresError::Folder { path: path.to_owned(), source };
        let path = std::path::absolute(path).map_err(failed)?;
        for folder in path.ancestors().skip(1).filter(|folder| folder.exists()) {
            let about = fs::metadata(folder).map_err(failed)?;
            let enters = match () {
                () if about.uid() == uid => 0o100,
                () if about.gid() == gid => 0o010,
                () => 0o001,
            };
            if about.mode() & enters == 0 {
                return Err(PrivatePostgresError::Closed { folder: folder.to_owned() });
            }
        }
        Ok(())
    }

    /// Makes a folder that only this user may enter, and gives its full path.
    ///
    /// One that exists must be ours or empty. What is changed is changed by its descriptor, and no
    /// symbolic link is followed: not to another folder than the one that was checked.
    fn folder(self, path: &Path, contents: Contents) -> Result<PathBuf, PrivatePostgresError> {
        self.may_enter(path)?;
        let failed =
            |source: io::Error| PrivatePostgresError::Folder { path: path.to_owned(), source };
        let system = |error: Errno| failed(error.into());
        let whole = std::path::absolute(path).map_err(failed)?;
        let (Some(parent), Some(name)) = (whole.parent(), whole.file_name()) else {
            let why = "it is not a folder of its own";
            return Err(PrivatePostgresError::NotOurs { path: whole, why });
        };
        fs::create_dir_all(parent).map_err(failed)?;
        let parent = parent.canonicalize().map_err(failed)?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let above = openat2(CWD, &parent, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
            .map_err(system)?;
        let existed = match mkdirat(&above, name, Mode::RWXU) {
            Ok(()) => false,
            Err(Errno::EXIST) => true,
            Err(error) => return Err(system(error)),
        };
        let whole = parent.join(name);
        let folder = match openat(&above, name, flags, Mode::empty()) {
            Ok(folder) => folder,
            Err(Errno::LOOP | Errno::NOTDIR) => {
                let why = "it is a symbolic link, or no folder";
                return Err(PrivatePostgresError::NotOurs { path: whole, why });
            }
            Err(error) => return Err(system(error)),
        };
        let about = fstat(&folder).map_err(system)?;
        if existed {
            self.refuse_foreign(&whole, &folder, about.st_uid, contents)?;
        }
        if let Some((uid, gid)) = self.switch
            && about.st_uid != uid
        {
            fchown(&folder, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).map_err(system)?;
        }
        fchmod(&folder, Mode::RWXU).map_err(system)?;
        Ok(whole)
    }

    /// Refuses a folder that is somebody else's, or that holds something else.
    fn refuse_foreign(
        self,
        path: &Path,
        folder: &OwnedFd,
        owner: u32,
        contents: Contents,
    ) -> Result<(), PrivatePostgresError> {
        let refused = |why| Err(PrivatePostgresError::NotOurs { path: path.to_owned(), why });
        let server = self.switch.map_or(getuid().as_raw(), |(uid, _)| uid);
        if owner != server && owner != getuid().as_raw() {
            return refused("it belongs to another user");
        }
        if matches!(contents, Contents::Any) {
            return Ok(());
        }
        let failed = |error: Errno| PrivatePostgresError::Folder {
            path: path.to_owned(),
            source: error.into(),
        };
        let mut cluster = false;
        let mut foreign = false;
        let mut empty = true;
        for entry in Dir::read_from(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            match entry.file_name().to_bytes() {
                b"." | b".." => continue,
                b"data" => cluster = path.join("data/PG_VERSION").exists(),
                // What a first start leaves that was cut off.
                b"data.making" | b"socket" | b"postgres.log" => {}
                _ => foreign = true,
            }
            empty = false;
        }
        match () {
            () if empty => Ok(()),
            () if owner != server => refused("it is not empty, and belongs to another user"),
            () if cluster || !foreign => Ok(()),
            () => refused("it is not empty, and holds no PostgreSQL of a queue"),
        }
    }

    /// A folder for the sockets: in the data's folder, unless its path is too long for a socket; then a new
    /// one, of a name that nobody can know before.
    fn socket_folder(
        self,
        folder: &Path,
    ) -> Result<(PathBuf, Option<tempfile::TempDir>), PrivatePostgresError> {
        let beside = folder.join("socket");
        if beside.as_os_str().len() <= SOCKET_FOLDER_BYTES {
            return Ok((self.folder(&beside, Contents::Any)?, None));
        }
        let temporary = tempfile::Builder::new().prefix("kendall-queue-").tempdir();
        let temporary = temporary.map_err(|source| PrivatePostgresError::Folder {
            path: std::env::temp_dir(),
            source,
        })?;
        let sockets = self.folder(temporary.path(), Contents::Any)?;
        Ok((sockets, Some(temporary)))
    }

    fn command(self, program: PathBuf) -> Command {
        let mut command = Command::new(program);
        if let Some((uid, gid)) = self.switch {
            command.uid(uid).gid(gid);
        }
        // The server's own environment, whatever the caller's says of databases.
        for name in ["PGDATA", "PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGOPTIONS"] {
            command.env_remove(name);
        }
        command.env("LC_ALL", "C.UTF-8").current_dir("/").stdin(Stdio::null());
        command
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
        // Whoever loads libraries of their own decides by themselves.
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

/// Flags of `open` that refuse a symbolic link.
fn no_links() -> i32 {
    i32::try_from(OFlags::NOFOLLOW.bits()).expect("flags of open are an int")
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
    // An error means that it has gone meanwhile.
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

impl Launch {
    fn start(&self) -> Result<Child, PrivatePostgresError> {
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
            // PostgreSQL stops when this process has gone without stopping it.
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

    fn wait_ready(&self, server: &mut Child) -> Result<(), PrivatePostgresError> {
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
    fn last_words(&self) -> String {
        let mut words = last_fatal(&self.log).unwrap_or_else(|| "it did not say why".to_owned());
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

/// Says so when a folder's disk has little room.
fn little_room(folder: &Path) -> Option<String> {
    let about = rustix::fs::statvfs(folder).ok()?;
    let free = about.f_bavail.saturating_mul(about.f_frsize);
    (free < LITTLE_ROOM_BYTES)
        .then(|| format!("the disk of {} has {} KiB free; make room", folder.display(), free >> 10))
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
