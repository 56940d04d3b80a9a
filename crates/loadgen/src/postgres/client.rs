//! One connection to PostgreSQL, with its prepared statements.

use std::error::Error as _;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Config, Error, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_stream::Stream as _;

use super::{PostgresPlan, Script};
use crate::driver::ErrorKind;
use crate::tls::{Tls, TlsError};

/// Why a connection is not there.
#[derive(Debug)]
pub(super) enum Failure {
    Connect(std::io::Error),
    Refused { kind: ErrorKind, said: String },
    Statement { script: String, line: usize, said: String },
}

impl Failure {
    fn refused(error: Error) -> Self {
        let kind = kind(&error).map_or_else(|broken| broken, |(kind, _)| kind);
        let said = told(&error);
        let source = error.into_source().and_then(|source| source.downcast().ok());
        match source {
            Some(of_tls) if kind == ErrorKind::TlsFailed => Self::Connect(*of_tls),
            _ => Self::Refused { kind, said },
        }
    }

    pub(super) fn kind(&self) -> ErrorKind {
        match self {
            Self::Connect(error) => ErrorKind::of_connecting(error),
            Self::Refused { kind, .. } => *kind,
            Self::Statement { .. } => ErrorKind::ConnectFailed,
        }
    }

    pub(super) fn into_io(self) -> std::io::Error {
        match self {
            Self::Connect(error) => error,
            Self::Refused { said, .. } => std::io::Error::other(said),
            Self::Statement { script, line, said } => {
                std::io::Error::other(format!("{script}, line {line}: {said}"))
            }
        }
    }
}

/// How connections are made.
pub(super) struct Connector {
    config: Config,
    tls: MakeRustlsConnect,
    name: String,
}

impl Connector {
    pub(super) fn new(plan: &PostgresPlan) -> Result<Self, TlsError> {
        let mut config = Config::new();
        config.user(&plan.user).dbname(&plan.database).application_name("kendall load");
        if let Some(password) = &plan.password {
            config.password(password);
        }
        let mode = if plan.tls.is_some() { SslMode::Require } else { SslMode::Disable };
        config.ssl_mode(mode);
        // Without TLS no certificate is looked at, so none is read.
        let none = || ("localhost".to_owned(), Tls { insecure: true, ..Tls::default() });
        let (name, tls) = plan.tls.clone().unwrap_or_else(none);
        let secure = tls.of(&name, &[])?;
        let tls = MakeRustlsConnect::new(Arc::unwrap_or_clone(secure.config));
        Ok(Self { config, tls, name })
    }

    /// Connects, and prepares the statements of all scripts.
    pub(super) async fn open(
        &self,
        target: SocketAddr,
        scripts: &[Script],
    ) -> Result<Connection, Failure> {
        let stream = TcpStream::connect(target).await.map_err(Failure::Connect)?;
        stream.set_nodelay(true).map_err(Failure::Connect)?;
        let mut tls = self.tls.clone();
        let tls = <MakeRustlsConnect as MakeTlsConnect<TcpStream>>::make_tls_connect(
            &mut tls, &self.name,
        )
        .map_err(|error| Failure::Connect(std::io::Error::other(error)))?;
        let made = self.config.connect_raw(stream, tls).await;
        let (client, connection) = made.map_err(Failure::refused)?;
        let task = tokio::task::spawn_local(async move {
            // What breaks it fails the requests on it.
            connection.await.unwrap_or_default();
        });
        let mut connection =
            Connection { client, task: task.abort_handle(), statements: Vec::new() };
        for script in scripts {
            let mut statements = Vec::new();
            for (line, statement) in script.statements() {
                let prepared = connection.client.prepare(&statement.sql).await;
                statements.push(prepared.map_err(|error| Failure::Statement {
                    script: script.name.clone(),
                    line,
                    said: told(&error),
                })?);
            }
            connection.statements.push(statements);
        }
        Ok(connection)
    }
}

/// One connection; it ends when it is dropped.
pub(super) struct Connection {
    client: Client,
    task: AbortHandle,
    statements: Vec<Vec<Statement>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Connection {
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Executes a statement of a script and reads all of its rows: the bytes of their values.
    pub(super) async fn execute(
        &self,
        (script, statement): (usize, usize),
        parameters: &[String],
    ) -> Result<u64, Error> {
        let statement = &self.statements[script][statement];
        let parameters = parameters.iter().map(|text| AsText(text));
        let mut rows = pin!(self.client.query_raw(statement, parameters).await?);
        let mut bytes = 0;
        while let Some(row) = poll_fn(|context| rows.as_mut().poll_next(context)).await {
            bytes += row?.raw_size_bytes() as u64;
        }
        Ok(bytes)
    }

    /// Ends a transaction that a statement broke; where there is none, the server only warns.
    pub(super) async fn roll_back(&self) -> Result<(), ErrorKind> {
        match self.client.batch_execute("ROLLBACK").await {
            Ok(()) => Ok(()),
            Err(error) => kind(&error).map(drop),
        }
    }
}

/// A parameter as text: the server reads it as the type that the statement needs.
#[derive(Debug)]
struct AsText<'a>(&'a str);

impl ToSql for AsText<'_> {
    fn to_sql(
        &self,
        _type: &Type,
        out: &mut bytes::BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_type: &Type) -> bool {
        true
    }

    fn encode_format(&self, _type: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

/// The kind of error that a transaction ends with, and what the server said; the outer error where
/// the connection is of no use any more.
pub(super) fn kind(error: &Error) -> Result<(ErrorKind, String), ErrorKind> {
    let Some(code) = error.code().map(tokio_postgres::error::SqlState::code) else {
        let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
        return Err(match source {
            Some(source) => ErrorKind::of_socket(source),
            None if error.is_closed() => ErrorKind::ConnectionClosed,
            None => ErrorKind::Garbage,
        });
    };
    let kind = match code {
        "40P01" => ErrorKind::Deadlock,
        "57014" => ErrorKind::TimedOut,
        "42501" => ErrorKind::AccessDenied,
        "25006" => ErrorKind::ReadOnly,
        "53200" => ErrorKind::OutOfMemory,
        "55P03" => ErrorKind::Unavailable,
        _ => match code.get(..2).unwrap_or_default() {
            "40" => ErrorKind::SerializationFailure,
            "23" => ErrorKind::ConstraintViolation,
            "28" => ErrorKind::AccessDenied,
            "08" | "53" | "57" | "58" => ErrorKind::Unavailable,
            "0A" | "22" | "26" | "42" => ErrorKind::ClientError,
            _ => ErrorKind::ServerError,
        },
    };
    Ok((kind, told(error)))
}

/// What the server said, with its code; or what the library says.
fn told(error: &Error) -> String {
    if let Some(said) = error.as_db_error() {
        return format!("{} (SQLSTATE {})", said.message(), said.code().code());
    }
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
