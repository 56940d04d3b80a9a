//! Why the database cannot be used, and its errors in the words of the protocol.

use kendall_tier::serve::TlsError;
use tokio_postgres::Error;
use tokio_postgres::error::{Severity, SqlState};
use tonic::Status;

use crate::refusal::full;

pub(super) const SCHEMA: &str = "kendall_queue";
/// The version of `tables.sql`. A change of the tables raises it.
pub(super) const VERSION: i32 = 1;

#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error("`{url}` is not a PostgreSQL URL; write it like postgres://user@host:5432/database")]
    Url { url: String, source: Error },
    #[error("`{mode}` is not an sslmode; write disable, prefer, require, verify-ca or verify-full")]
    SslMode { mode: String },
    #[error("the root certificate of PostgreSQL cannot be used")]
    RootCertificate(#[source] TlsError),
    #[error(
        "this system has no certificates of its own to check PostgreSQL's; name a file with \
         --database-root-certificate"
    )]
    Certificates,
    #[error("cannot set up TLS to PostgreSQL")]
    Tls(#[source] tokio_rustls::rustls::Error),
    #[error("cannot connect to PostgreSQL")]
    Connect(#[source] Error),
    #[error(
        "PostgreSQL's certificate is that of an authority, which no server may show; give it one that \
         the authority signed, or one that is signed by itself and no authority (openssl req -x509 \
         -addext basicConstraints=CA:FALSE)"
    )]
    AuthorityAsServer(#[source] Error),
    #[error("PostgreSQL {found} is too old; version 15 or later is needed")]
    Version { found: String },
    #[error(
        "the schema `{SCHEMA}` has version {found}, and this program needs version {VERSION}; start the program \
         that made it, or take another database"
    )]
    OtherVersion {
        /// The stored version; 0 if there is none.
        found: i32,
    },
    #[error(
        "the schema `{SCHEMA}` has {tables} tables and no version: another program made it; take another database, \
         or drop that schema"
    )]
    Foreign { tables: i64 },
    #[error(
        "cannot make the schema `{SCHEMA}`; the role needs CREATE on the database once (GRANT CREATE \
         ON DATABASE … TO …)"
    )]
    Schema(#[source] Error),
    #[error("cannot prepare the database")]
    Prepare(#[source] Error),
    #[error("cannot make the connection pool")]
    Pool(#[source] deadpool_postgres::BuildError),
}

/// A database error in the words of the protocol.
///
/// A server that fails at a commit may have had it on disk already: its own PANIC (a full disk of its
/// log, for one), or the crash of another session that ended this one. Neither means that nothing was
/// stored, whatever the code says.
pub(super) fn status(error: &Error) -> Status {
    match error.as_db_error() {
        Some(database)
            if database.parsed_severity() == Some(Severity::Panic)
                || *database.code() == SqlState::CRASH_SHUTDOWN =>
        {
            Status::unavailable(format!(
                "PostgreSQL crashed; whether the operation happened is unknown: {}",
                database.message()
            ))
        }
        _ => usual_status(error),
    }
}

/// The same of an error after which PostgreSQL goes on.
fn usual_status(error: &Error) -> Status {
    let Some(database) = error.as_db_error() else {
        return Status::unavailable(format!(
            "the connection to PostgreSQL broke; whether the operation happened is unknown: {error}"
        ));
    };
    let text = database.message();
    match *database.code() {
        SqlState::FOREIGN_KEY_VIOLATION => {
            Status::not_found("the queue or client was deleted meanwhile")
        }
        SqlState::DISK_FULL => full(&format!("nothing was stored: {text}")),
        SqlState::ADMIN_SHUTDOWN
        | SqlState::CRASH_SHUTDOWN
        | SqlState::CANNOT_CONNECT_NOW
        | SqlState::TOO_MANY_CONNECTIONS
        | SqlState::READ_ONLY_SQL_TRANSACTION => {
            Status::unavailable(format!("PostgreSQL: {text}; try again"))
        }
        SqlState::T_R_DEADLOCK_DETECTED | SqlState::T_R_SERIALIZATION_FAILURE => {
            Status::aborted(format!("PostgreSQL: {text}; try again"))
        }
        SqlState::LOCK_NOT_AVAILABLE => Status::aborted(
            "another transaction holds the queue or the client, such as one that has called `enqueue` and has not \
             ended; nothing was changed: try again when it has ended",
        ),
        _ => Status::internal(format!("PostgreSQL: {text} ({})", database.code().code())),
    }
}
