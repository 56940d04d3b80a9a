//! Why a private PostgreSQL cannot be had.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Folders in which distributions keep the server's programs.
pub(super) const PLACES: &[&str] =
    &["/usr/lib/postgresql", "/usr/pgsql", "/usr/local/pgsql", "/opt/postgresql"];
/// Time for PostgreSQL to come up: it may have a log to replay.
pub(super) const START: Duration = Duration::from_secs(120);

/// The private PostgreSQL cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PrivatePostgresError {
    #[error(
        "no PostgreSQL 15 or later is installed here (looked in $PATH and {}); install it \
         (Debian: apt-get install postgresql), or name yours with --database URL",
        PLACES.join(", ")
    )]
    NotInstalled,
    #[error("cannot prepare {path}; another folder can be named with --data DIR")]
    Folder { path: PathBuf, source: io::Error },
    #[error(
        "{path} cannot be the folder of a private PostgreSQL: {why}; name a new folder, or an empty one of \
         yours, with --data DIR"
    )]
    NotOurs { path: PathBuf, why: &'static str },
    #[error(
        "PostgreSQL does not run as root, and this machine has no user `postgres` to run it as; \
         start as another user"
    )]
    NoUser,
    #[error(
        "PostgreSQL runs as user `postgres` here, who may not enter {folder}; take a data folder \
         elsewhere, or allow it (chmod o+x)"
    )]
    Closed { folder: PathBuf },
    #[error("`{program}` failed: {output}")]
    Program { program: String, output: String },
    #[error(
        "the PostgreSQL of {path} is running for another process (pid {pid}); stop that one, or \
         take another folder with --data DIR"
    )]
    Running { path: PathBuf, pid: i32 },
    #[error(
        "{path} is in use: another process runs the PostgreSQL in it, or is making it; stop that one, or take \
         another folder with --data DIR"
    )]
    InUse { path: PathBuf },
    #[error(
        "{path} was made by PostgreSQL {made}, whose programs are not installed here (found: {found}); install \
         version {made} again (Debian: apt-get install postgresql-{made}), or bring the data up to date with \
         pg_upgrade"
    )]
    OtherVersion { path: PathBuf, made: u32, found: u32 },
    #[error("PostgreSQL does not start ({status}): {why}; its log is {log}", log = log.display())]
    Ended { status: std::process::ExitStatus, why: String, log: PathBuf },
    #[error("PostgreSQL did not come up in {} s; see {log}", START.as_secs(), log = log.display())]
    Silent { log: PathBuf },
    #[error("the system gives no thread to supervise PostgreSQL")]
    Supervisor(#[source] io::Error),
}
