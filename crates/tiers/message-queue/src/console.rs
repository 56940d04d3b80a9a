//! The management console: one page, and the JSON that it reads.
//!
//! It looks at the tables through a connection of its own with a short statement time-out, page by
//! page along the primary key, so that a million waiting messages cost it, and the queue, a look
//! at a bounded number of rows. What it changes goes through the request queue like any client's.
//! Every call carries the access token; nothing of a message is ever read as HTML.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_postgres::Row;
use tonic::{Code, Status};

use crate::database::Databases;
use crate::dispatcher::Dispatcher;
use crate::operation::{Answer, Operation};
use crate::service::{Service, checked_send};

const PAGE: &str = include_str!("console/page.html");
/// Rows on one page, and rows looked at for it.
const ROWS: i64 = 50;
const LOOKED_AT: i64 = 20_000;
/// Longest time of one look.
const STATEMENT_MS: u32 = 2000;
/// Bytes of a request: a message with room to spare.
const BODY_BYTES: usize = 8 << 20;
const CALL: Duration = Duration::from_secs(30);

/// What the console needs. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Console {
    databases: Databases,
    dispatcher: Arc<Dispatcher>,
    token: Arc<str>,
}

/// An answer that went wrong, as JSON.
struct Failure(StatusCode, String);

type Answered = Result<Json<Value>, Failure>;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PageOf {
    /// Continue after this id.
    after: i64,
    /// Part of a name or of a content.
    search: String,
    queue: Option<i64>,
    sender: Option<i64>,
    receiver: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewMessage {
    queue_id: u64,
    /// Name of the sender.
    from: String,
    /// Name of the receiver; empty for anyone.
    #[serde(default)]
    to: String,
    content: String,
    #[serde(default)]
    priority: i32,
}

#[derive(Debug, Deserialize)]
struct Deletion {
    #[serde(default)]
    with_messages: bool,
}

impl Console {
    pub(crate) fn new(service: &Service, databases: Databases, token: &str) -> Self {
        let dispatcher = Arc::clone(&service.dispatcher);
        Self { databases, dispatcher, token: token.into() }
    }

    /// Serves until it is dropped.
    pub(crate) async fn serve(self, listener: TcpListener) -> std::io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        axum::serve(listener, self.routes()).await
    }

    fn routes(self) -> Router {
        let api = Router::new()
            .route("/overview", get(overview))
            .route("/clients", get(clients))
            .route("/queues", get(queues))
            .route("/queues/{id}", delete(delete_queue))
            .route("/queues/{id}/purge", post(purge))
            .route("/messages", get(messages).post(send))
            .route("/messages/{id}", get(message).delete(delete_message))
            .layer(axum::extract::DefaultBodyLimit::max(BODY_BYTES))
            .layer(middleware::from_fn_with_state(self.clone(), authorized));
        Router::new()
            .route("/", get(|| async { Html(PAGE) }))
            .nest("/api", api)
            .layer(middleware::from_fn(guarded))
            .with_state(self)
    }

    async fn rows(
        &self,
        text: &str,
        parameters: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> Result<Vec<Row>, Failure> {
        self.databases.look(text, parameters, STATEMENT_MS).await.map_err(Failure::from)
    }

    async fn perform(&self, operation: Operation) -> Result<Answer, Failure> {
        Ok(self.dispatcher.perform(operation).await?)
    }

    async fn client(&self, name: &str) -> Result<u64, Failure> {
        let name = crate::service::name(name.to_owned())?;
        match self.perform(Operation::Hello { name }).await? {
            Answer::Number(id) => Ok(id),
            _ => Err(Failure(StatusCode::INTERNAL_SERVER_ERROR, "no id".into())),
        }
    }
}

/// Headers that keep a browser from doing with the page what the page does not.
async fn guarded(request: Request, next: Next) -> Response {
    let mut response = match tokio::time::timeout(CALL, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Failure(StatusCode::GATEWAY_TIMEOUT, "it took too long".into()).into_response(),
    };
    for (name, value) in [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn authorized(State(console): State<Console>, request: Request, next: Next) -> Response {
    let given = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .unwrap_or_default();
    if !same(given.as_bytes(), console.token.as_bytes()) {
        let text = "the access token is missing or wrong; open the address that the queue printed";
        return Failure(StatusCode::UNAUTHORIZED, text.into()).into_response();
    }
    next.run(request).await
}

/// Equality whose time does not tell where the difference is.
fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |bits, (a, b)| bits | (a ^ b)) == 0
}

async fn overview(State(console): State<Console>) -> Answered {
    let text = "SELECT (SELECT count(*) FROM (SELECT FROM client LIMIT 100001) AS few), \
        (SELECT count(*) FROM queue), \
        (SELECT greatest(reltuples, 0)::bigint FROM pg_class \
            WHERE oid = 'kendall_queue.message'::regclass), \
        (SELECT count(*) FROM (SELECT FROM message LIMIT 10001) AS few)";
    let rows = console.rows(text, &[]).await?;
    let row = rows.first().ok_or_else(Failure::empty)?;
    let (estimated, counted): (i64, i64) = (row.get(2), row.get(3));
    Ok(Json(json!({
        "clients": row.get::<_, i64>(0),
        "queues": row.get::<_, i64>(1),
        "messages": if counted > 10_000 { estimated.max(counted) } else { counted },
        "messages_exact": counted <= 10_000,
        "requests_waiting": console.dispatcher.waiting(),
    })))
}

async fn clients(State(console): State<Console>, Query(page): Query<PageOf>) -> Answered {
    let text = "SELECT id, name, present, \
        (extract(epoch FROM hello_at) * 1000)::bigint FROM client \
        WHERE id > $1 AND name ILIKE $2 ORDER BY id LIMIT $3";
    let rows = console.rows(text, &[&page.after, &like(&page.search), &ROWS]).await?;
    let client = |row: &Row| {
        json!({
            "client_id": row.get::<_, i64>(0),
            "name": row.get::<_, String>(1),
            "present": row.get::<_, bool>(2),
            "hello_at_ms": row.get::<_, i64>(3),
        })
    };
    Ok(paged(&rows, client))
}

async fn queues(State(console): State<Console>, Query(page): Query<PageOf>) -> Answered {
    let text = "SELECT q.id, q.name, s.waiting, s.leased, s.delayed, s.oldest_age_ms, \
        q.max_deliveries, q.dead_letter_queue_id, s.retention_ms \
        FROM (SELECT * FROM queue WHERE id > $1 AND name ILIKE $2 ORDER BY id LIMIT $3) AS q, \
        LATERAL queue_statistics(q.id, 10000) AS s ORDER BY q.id";
    let rows = console.rows(text, &[&page.after, &like(&page.search), &ROWS]).await?;
    let queue = |row: &Row| {
        json!({
            "queue_id": row.get::<_, i64>(0),
            "name": row.get::<_, String>(1),
            "waiting": row.get::<_, i64>(2),
            "leased": row.get::<_, i64>(3),
            "delayed": row.get::<_, i64>(4),
            "counted_up_to": 10_000,
            "oldest_age_ms": row.get::<_, i64>(5),
            "max_deliveries": row.get::<_, Option<i32>>(6),
            "dead_letter_queue_id": row.get::<_, Option<i64>>(7),
            "retention_ms": row.get::<_, Option<i64>>(8),
        })
    };
    Ok(paged(&rows, queue))
}

/// Messages along their ids: at most so many are looked at, and the answer says how far it came.
async fn messages(State(console): State<Console>, Query(page): Query<PageOf>) -> Answered {
    let text = "WITH looked AS MATERIALIZED ( \
            SELECT * FROM message WHERE id > $1 ORDER BY id LIMIT $2), \
        fitting AS ( \
            SELECT * FROM looked m WHERE ($3::bigint IS NULL OR m.queue_id = $3) \
            AND ($4::bigint IS NULL OR m.sender_id = $4) \
            AND ($5::bigint IS NULL OR m.receiver_id = $5) \
            AND ($6 = '%' OR m.content ILIKE $6) ORDER BY m.id LIMIT $7) \
        SELECT f.id, f.queue_id, q.name, f.sender_id, s.name, f.receiver_id, r.name, f.priority, \
            f.deliveries, (extract(epoch FROM f.sent_at) * 1000)::bigint, \
            (extract(epoch FROM f.due_at) * 1000)::bigint, f.lease_id IS NOT NULL, \
            left(f.content, 200), char_length(f.content), \
            (SELECT max(id) FROM looked), (SELECT count(*) FROM looked) \
        FROM (SELECT 1) AS one LEFT JOIN fitting f ON true \
            LEFT JOIN queue q ON q.id = f.queue_id LEFT JOIN client s ON s.id = f.sender_id \
            LEFT JOIN client r ON r.id = f.receiver_id ORDER BY f.id";
    let search = like(&page.search);
    let rows = console
        .rows(
            text,
            &[&page.after, &LOOKED_AT, &page.queue, &page.sender, &page.receiver, &search, &ROWS],
        )
        .await?;
    let found: Vec<Value> =
        rows.iter().filter(|row| row.get::<_, Option<i64>>(0).is_some()).map(summary).collect();
    let looked: i64 = rows.first().map_or(0, |row| row.get(15));
    let full = i64::try_from(found.len()).is_ok_and(|count| count == ROWS);
    let last_shown = found.last().and_then(|row| row["message_id"].as_i64());
    let last_looked: Option<i64> = rows.first().and_then(|row| row.get(14));
    let next = if full {
        last_shown
    } else if looked == LOOKED_AT {
        last_looked
    } else {
        None
    };
    Ok(Json(json!({ "rows": found, "next": next, "looked_at": looked })))
}

fn summary(row: &Row) -> Value {
    json!({
        "message_id": row.get::<_, Option<i64>>(0),
        "queue_id": row.get::<_, Option<i64>>(1),
        "queue": row.get::<_, Option<String>>(2),
        "sender_id": row.get::<_, Option<i64>>(3),
        "sender": row.get::<_, Option<String>>(4),
        "receiver_id": row.get::<_, Option<i64>>(5),
        "receiver": row.get::<_, Option<String>>(6),
        "priority": row.get::<_, Option<i32>>(7),
        "deliveries": row.get::<_, Option<i32>>(8),
        "sent_at_ms": row.get::<_, Option<i64>>(9),
        "due_at_ms": row.get::<_, Option<i64>>(10),
        "leased": row.get::<_, Option<bool>>(11),
        "content": row.get::<_, Option<String>>(12),
        "characters": row.get::<_, Option<i32>>(13),
    })
}

async fn message(State(console): State<Console>, Path(id): Path<i64>) -> Answered {
    let text = "SELECT m.id, m.queue_id, q.name, m.sender_id, s.name, m.receiver_id, r.name, \
        m.priority, m.deliveries, (extract(epoch FROM m.sent_at) * 1000)::bigint, \
        (extract(epoch FROM m.due_at) * 1000)::bigint, m.lease_id IS NOT NULL, m.content, \
        char_length(m.content) \
        FROM message m JOIN queue q ON q.id = m.queue_id JOIN client s ON s.id = m.sender_id \
        LEFT JOIN client r ON r.id = m.receiver_id WHERE m.id = $1";
    let rows = console.rows(text, &[&id]).await?;
    let row = rows.first().ok_or_else(|| {
        Failure(StatusCode::NOT_FOUND, format!("message {id} is not there (any more)"))
    })?;
    Ok(Json(summary(row)))
}

async fn send(State(console): State<Console>, Json(new): Json<NewMessage>) -> Answered {
    let client_id = console.client(&new.from).await?;
    let receiver_id = if new.to.is_empty() { 0 } else { console.client(&new.to).await? };
    let request = kendall_protocols::queue::SendRequest {
        client_id,
        queue_id: new.queue_id,
        receiver_id,
        content: new.content,
        priority: new.priority,
        ..Default::default()
    };
    let operation = checked_send(request, console.databases.limits())?;
    match console.perform(operation).await? {
        Answer::Number(message_id) => Ok(Json(json!({ "message_id": message_id }))),
        _ => Err(Failure(StatusCode::INTERNAL_SERVER_ERROR, "no id".into())),
    }
}

async fn delete_message(State(console): State<Console>, Path(message): Path<i64>) -> Answered {
    console.perform(Operation::DeleteMessage { message }).await?;
    Ok(Json(json!({ "message_id": message })))
}

async fn purge(State(console): State<Console>, Path(queue): Path<i64>) -> Answered {
    match console.perform(Operation::Purge { queue }).await? {
        Answer::Number(dropped) => Ok(Json(json!({ "dropped": dropped }))),
        _ => Err(Failure(StatusCode::INTERNAL_SERVER_ERROR, "no count".into())),
    }
}

async fn delete_queue(
    State(console): State<Console>,
    Path(queue): Path<i64>,
    Query(how): Query<Deletion>,
) -> Answered {
    let with_messages = how.with_messages;
    console.perform(Operation::DeleteQueue { queue, with_messages }).await?;
    Ok(Json(json!({ "queue_id": queue })))
}

fn paged(rows: &[Row], value: impl Fn(&Row) -> Value) -> Json<Value> {
    let full = i64::try_from(rows.len()).is_ok_and(|count| count == ROWS);
    let next: Option<i64> = rows.last().filter(|_| full).map(|row| row.get(0));
    Json(json!({ "rows": rows.iter().map(value).collect::<Vec<_>>(), "next": next }))
}

/// Text as a pattern that it is part of.
fn like(text: &str) -> String {
    if text.is_empty() {
        return "%".to_owned();
    }
    let mut pattern = String::from("%");
    for character in text.chars() {
        if matches!(character, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern.push('%');
    pattern
}

impl Failure {
    fn empty() -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR, "the database answered nothing".into())
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let code = match status.code() {
            Code::InvalidArgument => StatusCode::BAD_REQUEST,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::FailedPrecondition | Code::AlreadyExists => StatusCode::CONFLICT,
            Code::ResourceExhausted | Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(code, status.message().to_owned())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Told {
            error: String,
        }
        (self.0, Json(Told { error: self.1 })).into_response()
    }
}

/// A token that nobody guesses.
pub(crate) fn token() -> String {
    format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple())
}

/// The address to open in a browser. The token stands behind the `#`, which browsers do not send.
pub(crate) fn address(listen: SocketAddr, token: &str) -> String {
    format!("http://{listen}/#{token}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_text_and_not_a_pattern() {
        assert_eq!(like("50%_\\"), "%50\\%\\_\\\\%");
        assert_eq!(like(""), "%");
    }

    #[test]
    fn tokens_are_compared_whole() {
        assert!(same(b"abc", b"abc"));
        for other in [&b"abd"[..], b"ab", b"abcd", b""] {
            assert!(!same(b"abc", other));
        }
    }
}
