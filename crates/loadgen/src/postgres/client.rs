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
use tokio_postgres::types::{Format, FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Config, Error, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_stream::Stream as _;

use super::expression::Value;
use super::{PostgresPlan, Script, script};
use crate::driver::ErrorKind;
use crate::load::LoadError;
use crate::tls::{Tls, TlsError};

/// Why a connection is not there.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{0}")]
    Connect(std::io::Error),
    #[error("{said}")]
    Refused { kind: ErrorKind, said: String },
    #[error("{script}, line {line}: {said}")]
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

    /// What it means to the load.
    pub(super) fn of(self, target: SocketAddr) -> LoadError {
        match self {
            Self::Connect(source) => LoadError::Connect { target, source },
            other => LoadError::Refused { target, said: other.to_string() },
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
        let (client, mut connection) = made.map_err(Failure::refused)?;
        let task = tokio::task::spawn_local(async move {
            // What breaks it fails the requests on it. Awaited itself, it would log each notice of the server.
            while let Some(Ok(_)) = poll_fn(|context| connection.poll_message(context)).await {}
        });
        let mut connection =
            Connection { client, task: task.abort_handle(), statements: Vec::new() };
        for script in scripts {
            let refuse =
                |line, said| Failure::Statement { script: script.name.clone(), line, said };
            let mut statements = Vec::new();
            for (line, statement) in script.statements() {
                let prepared = connection.client.prepare(&statement.sql).await;
                let prepared = prepared.map_err(|error| told(&error));
                let prepared =
                    prepared.and_then(|prepared| Prepared::new(script, statement, prepared));
                statements.push(prepared.map_err(|said| refuse(line, said))?);
            }
            let is_stored = |variable| {
                statements.iter().flat_map(|one| &one.stores).any(|(_, stored)| stored == variable)
            };
            if let Some((variable, line)) = script.awaited.iter().find(|one| !is_stored(&one.0)) {
                let name = &script.variables[*variable];
                let said = format!("`:{name}` is no column of a `\\gset`, and set nowhere before");
                return Err(refuse(*line, said));
            }
            connection.statements.push(statements);
        }
        Ok(connection)
    }
}

/// A statement on a connection.
struct Prepared {
    statement: Statement,
    is_one_row: bool,
    /// Columns and the variables that take their values.
    stores: Vec<(usize, usize)>,
}

impl Prepared {
    fn new(script: &Script, of: &script::Statement, statement: Statement) -> Result<Self, String> {
        let mut stores = Vec::new();
        for (number, column) in (0..).zip(statement.columns()) {
            let Some(prefix) = &of.stores else { break };
            let name = format!("{prefix}{}", column.name());
            if let Some(variable) = script.variables.iter().position(|known| *known == name) {
                if !<Stored as FromSql>::accepts(column.type_()) {
                    let (column, of) = (column.name(), column.type_());
                    return Err(format!(
                        "`\\gset` does not read a {of}; write the column as {column}::text"
                    ));
                }
                stores.push((number, variable));
            }
        }
        Ok(Self { statement, is_one_row: of.stores.is_some(), stores })
    }
}

/// Why a transaction ended.
pub(super) enum Fault {
    /// The connection goes on, once the transaction is rolled back; with what was said.
    Refused(ErrorKind, String),
    Broken(ErrorKind),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        kind(&error).map_or_else(Self::Broken, |(kind, said)| Self::Refused(kind, said))
    }
}

/// One connection; it ends when it is dropped.
pub(super) struct Connection {
    client: Client,
    task: AbortHandle,
    statements: Vec<Vec<Prepared>>,
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

    /// Executes a statement of a script, reads all of its rows, and stores what `\gset` asks for: the bytes of their
    /// values.
    pub(super) async fn execute(
        &self,
        (script, number): (usize, usize),
        parameters: &[String],
        variables: &mut [Value],
    ) -> Result<u64, Fault> {
        let prepared = &self.statements[script][number];
        let parameters = parameters.iter().map(|text| AsText(text));
        let mut rows = pin!(self.client.query_raw(&prepared.statement, parameters).await?);
        let (mut bytes, mut count) = (0, 0_u64);
        while let Some(row) = poll_fn(|context| rows.as_mut().poll_next(context)).await {
            let row = row?;
            bytes += row.raw_size_bytes() as u64;
            count += 1;
            for (column, variable) in &prepared.stores {
                variables[*variable] = row.try_get::<_, Stored>(*column)?.0;
            }
        }
        if prepared.is_one_row && count != 1 {
            let said = format!("`\\gset` needs one row, and there were {count}");
            return Err(Fault::Refused(ErrorKind::ClientError, said));
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

/// A value of a result as a variable takes it. As in pgbench, a null is an empty text.
struct Stored(Value);

impl<'a> FromSql<'a> for Stored {
    fn from_sql(
        of: &Type,
        raw: &'a [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(match *of {
            Type::BOOL => Value::Truth(bool::from_sql(of, raw)?),
            Type::INT2 => Value::Whole(i16::from_sql(of, raw)?.into()),
            Type::INT4 => Value::Whole(i32::from_sql(of, raw)?.into()),
            Type::INT8 => Value::Whole(i64::from_sql(of, raw)?),
            Type::FLOAT4 => Value::Text(f32::from_sql(of, raw)?.to_string()),
            Type::FLOAT8 => Value::Real(f64::from_sql(of, raw)?),
            Type::NUMERIC => Value::Text(numeric(raw).ok_or("it is no number")?),
            _ => Value::Text(String::from_sql(of, raw)?),
        }))
    }

    fn from_sql_null(_of: &Type) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(Value::Text(String::new())))
    }

    fn accepts(of: &Type) -> bool {
        let numbers = matches!(
            *of,
            Type::INT2 | Type::INT4 | Type::INT8 | Type::FLOAT4 | Type::FLOAT8 | Type::NUMERIC
        );
        numbers || *of == Type::BOOL || <String as FromSql>::accepts(of)
    }
}

/// A `numeric` as a text. It is sent as the number of groups of four decimal digits, the power of 10,000 of the first, its
/// sign, the number of decimal places, and the groups.
fn numeric(raw: &[u8]) -> Option<String> {
    const NEGATIVE: u16 = 0x4000;
    const NO_NUMBER: u16 = 0xC000;
    let words: Vec<u16> =
        raw.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
    let [_, first, sign @ (0 | NEGATIVE | NO_NUMBER), places, groups @ ..] = &words[..] else {
        return None;
    };
    if *sign == NO_NUMBER {
        return Some("NaN".to_owned());
    }
    let first = i32::from(first.cast_signed());
    let group = |number: i32| {
        let group = usize::try_from(number).ok().and_then(|number| groups.get(number));
        format!("{:04}", group.copied().unwrap_or(0))
    };
    let whole: String = (0..=first).map(group).collect();
    let whole = whole.trim_start_matches('0');
    let behind = i32::from(places.div_ceil(4));
    let mut fraction: String = (first + 1..=first + behind).map(group).collect();
    fraction.truncate((*places).into());
    let minus = if *sign == NEGATIVE { "-" } else { "" };
    let whole = if whole.is_empty() { "0" } else { whole };
    let point = if fraction.is_empty() { "" } else { "." };
    Some(format!("{minus}{whole}{point}{fraction}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_length_become_texts() {
        for (words, text) in [
            (vec![0, 0, 0, 0], Some("0")),
            (vec![3, 1, 0, 2, 12, 3456, 7800], Some("123456.78")),
            (vec![1, 1, 0x4000, 0, 5], Some("-50000")),
            (vec![1, 0xffff, 0, 3, 10], Some("0.001")),
            (vec![1, 0xfffe, 0, 8, 1], Some("0.00000001")),
            (vec![0, 0, 0xc000, 0], Some("NaN")),
            (vec![1], None),
        ] {
            let raw: Vec<u8> = words.iter().flat_map(|word: &u16| word.to_be_bytes()).collect();
            assert_eq!(numeric(&raw).as_deref(), text);
        }
    }
}
