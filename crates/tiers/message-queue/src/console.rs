//! The management console: one page, and the JSON that it reads.
//!
//! It reads the tables through a connection of its own with a short statement timeout, page by
//! page along the primary keys, so that with a million waiting messages it, and the queue, read
//! a bounded number of rows. What it changes goes through the request queue like any client's.
//! Every call carries the access token; nothing of a message is ever read as HTML, and no script runs
//! but the console's own file.

mod failure;
mod queries;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use hyper_util::service::TowerToHyperService;
use kendall_tier::serve::{ForBrowsers, ListenError, ListenOptions, Listener, Tokens};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_postgres::Row;

use self::failure::Failure;
use crate::database::{Databases, LOOK_MS};
use crate::dispatcher::Dispatcher;
use crate::operation::{Operation, QueueChange};
use crate::request::{checked_queue, checked_send};
use crate::response::number;
use crate::service::Service;

const PAGE: &str = include_str!("console/page.html");
const STYLE: &str = include_str!("console/page.css");
const SCRIPT: &str = include_str!("console/page.js");
/// Bytes of a request: a message and some more.
const BODY_BYTES: usize = 8 << 20;
const CALL: Duration = Duration::from_secs(30);
/// Connections at a time; a browser keeps about six.
const CONNECTIONS: usize = 100;
/// Longest time that a connection stays, whatever it is used for; a browser opens another.
const LONGEST: Duration = Duration::from_secs(600);

/// What the console needs. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Console {
    databases: Databases,
    dispatcher: Arc<Dispatcher>,
    tokens: Arc<Tokens<()>>,
}

type Answered = Result<Json<Value>, Failure>;

/// The query of the URL.
struct Asked<T>(T);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewMessage {
    /// Name or id.
    queue: String,
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
#[serde(deny_unknown_fields)]
struct NamedQueue {
    name: String,
    #[serde(default)]
    max_deliveries: u32,
    /// Name or id; empty for none.
    #[serde(default)]
    dead_letters: String,
    #[serde(default)]
    retention_ms: u64,
    #[serde(default)]
    archive_ms: u64,
}

#[derive(Debug, Deserialize)]
struct Pause {
    paused: bool,
}

#[derive(Debug, Deserialize)]
struct Deletion {
    #[serde(default)]
    with_messages: bool,
}

impl Console {
    pub(crate) fn new(service: &Service, databases: Databases, token: &str) -> Self {
        let dispatcher = Arc::clone(&service.dispatcher);
        Self { databases, dispatcher, tokens: Arc::new(Tokens::one(token, ())) }
    }

    pub(crate) fn bind(address: SocketAddr) -> Result<Listener, ListenError> {
        Listener::bind(ListenOptions {
            option: "--console HOST:PORT",
            connections: CONNECTIONS,
            longest: LONGEST,
            ..ListenOptions::new(address)
        })
    }

    pub(crate) async fn serve(
        self,
        listener: Listener,
        (handle, stop): (Handle, watch::Receiver<bool>),
    ) {
        let address = listener.address();
        if !address.ip().is_loopback() {
            tracing::warn!(%address, "the console can be reached from other hosts, without TLS");
        }
        let service = ForBrowsers::new(TowerToHyperService::new(self.routes()), address);
        if let Err(error) = listener.serve(vec![(handle, service)], None, stop).await {
            tracing::error!(%error, "the console ended");
        }
    }

    fn routes(self) -> Router {
        let api = Router::new()
            .route("/overview", get(queries::overview))
            .route("/clients", get(queries::clients))
            .route("/queues", get(queries::queues).post(create_queue))
            .route("/queues/{id}", delete(delete_queue))
            .route("/queues/{id}/purge", post(purge))
            .route("/queues/{id}/pause", post(pause))
            .route("/queues/{id}/redrive", post(redrive))
            .route("/messages", get(queries::messages).post(send))
            .route("/messages/{id}", get(queries::message).delete(delete_message))
            .fallback(nothing_there)
            .method_not_allowed_fallback(other_method)
            .layer(axum::extract::DefaultBodyLimit::max(BODY_BYTES))
            .layer(middleware::from_fn_with_state(self.clone(), authorized));
        let file = |kind: &'static str, text: &'static str| {
            get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
        };
        Router::new()
            .route("/", file("text/html; charset=utf-8", PAGE))
            .route("/page.css", file("text/css; charset=utf-8", STYLE))
            .route("/page.js", file("text/javascript; charset=utf-8", SCRIPT))
            .nest("/api", api)
            .fallback(nothing_there)
            .method_not_allowed_fallback(other_method)
            .layer(middleware::from_fn(timely))
            .with_state(self)
    }

    async fn rows(
        &self,
        text: &str,
        parameters: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> Result<Vec<Row>, Failure> {
        let found = self.databases.look(text, parameters).await;
        found.map_err(|status| {
            // PostgreSQL's code for a statement that was stopped at its time-out.
            if status.message().contains("57014") {
                let text = format!(
                    "PostgreSQL needed more than {LOOK_MS} ms for this and was stopped; ask for \
                     less, or later"
                );
                return Failure(StatusCode::SERVICE_UNAVAILABLE, text);
            }
            Failure::from(status)
        })
    }

    /// Performs what is answered by an id or a count.
    async fn number(&self, operation: Operation) -> Result<u64, Failure> {
        Ok(number(self.dispatcher.perform(operation).await?)?)
    }

    async fn client(&self, name: &str) -> Result<u64, Failure> {
        let name = crate::request::name(name.to_owned())?;
        self.number(Operation::Hello { name }).await
    }
}

/// Answers in time, whatever the database does.
async fn timely(request: Request, next: Next) -> Response {
    match tokio::time::timeout(CALL, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let text =
                "it takes longer than half a minute; it continues, and the page will show it";
            Failure(StatusCode::GATEWAY_TIMEOUT, text.into()).into_response()
        }
    }
}

async fn authorized(State(console): State<Console>, request: Request, next: Next) -> Response {
    if console.tokens.of(request.headers()).is_none() {
        let text = "the access token is missing or wrong; open the address that the queue printed \
            when it started";
        return Failure(StatusCode::UNAUTHORIZED, text.into()).into_response();
    }
    next.run(request).await
}

async fn other_method(method: Method) -> Failure {
    let text = format!("{method} does nothing here; `Allow` names what does");
    Failure(StatusCode::METHOD_NOT_ALLOWED, text)
}

async fn nothing_there() -> Failure {
    Failure(StatusCode::NOT_FOUND, "nothing is there".into())
}

async fn send(
    State(console): State<Console>,
    new: Result<Json<NewMessage>, JsonRejection>,
) -> Answered {
    let Json(new) = new?;
    let queue = queries::id_of(&console, "queue", &new.queue).await?;
    let queue = queue.ok_or_else(|| {
        Failure(StatusCode::BAD_REQUEST, "the name of the queue is missing".into())
    })?;
    let client_id = console.client(&new.from).await?;
    let receiver_id = if new.to.is_empty() { 0 } else { console.client(&new.to).await? };
    let request = kendall_protocols::queue::SendRequest {
        client_id,
        queue_id: u64::try_from(queue).unwrap_or_default(),
        receiver_id,
        content: new.content,
        priority: new.priority,
        ..Default::default()
    };
    let operation = checked_send(request, console.databases.limits())?;
    Ok(Json(json!({ "message_id": console.number(operation).await? })))
}

async fn delete_message(
    State(console): State<Console>,
    message: Result<Path<i64>, PathRejection>,
) -> Answered {
    let Path(message) = message?;
    console.dispatcher.perform(Operation::DeleteMessage { message }).await?;
    Ok(Json(json!({ "message_id": message })))
}

async fn create_queue(
    State(console): State<Console>,
    new: Result<Json<NamedQueue>, JsonRejection>,
) -> Answered {
    let Json(new) = new?;
    let letters = queries::id_of(&console, "queue", &new.dead_letters).await?;
    let queue = checked_queue(kendall_protocols::queue::CreateQueueRequest {
        name: new.name,
        max_deliveries: new.max_deliveries,
        dead_letter_queue_id: letters.and_then(|id| u64::try_from(id).ok()).unwrap_or_default(),
        retention_ms: new.retention_ms,
        archive_ms: new.archive_ms,
    })?;
    Ok(Json(json!({ "queue_id": console.number(queue).await? })))
}

async fn pause(
    State(console): State<Console>,
    queue: Result<Path<i64>, PathRejection>,
    how: Result<Json<Pause>, JsonRejection>,
) -> Answered {
    let (Path(queue), Json(Pause { paused })) = (queue?, how?);
    let change = QueueChange { queue, paused: Some(paused), ..QueueChange::default() };
    console.dispatcher.perform(Operation::ChangeQueue(Box::new(change))).await?;
    Ok(Json(json!({ "queue_id": queue, "paused": paused })))
}

async fn redrive(
    State(console): State<Console>,
    queue: Result<Path<i64>, PathRejection>,
) -> Answered {
    let Path(queue) = queue?;
    let operation = Operation::Redrive { queue, messages: Vec::new(), target: None };
    Ok(Json(json!({ "moved": console.number(operation).await? })))
}

async fn purge(
    State(console): State<Console>,
    queue: Result<Path<i64>, PathRejection>,
) -> Answered {
    let Path(queue) = queue?;
    Ok(Json(json!({ "dropped": console.number(Operation::Purge { queue }).await? })))
}

async fn delete_queue(
    State(console): State<Console>,
    queue: Result<Path<i64>, PathRejection>,
    Asked(how): Asked<Deletion>,
) -> Answered {
    let Path(queue) = queue?;
    let with_messages = how.with_messages;
    console.dispatcher.perform(Operation::DeleteQueue { queue, with_messages }).await?;
    Ok(Json(json!({ "queue_id": queue })))
}

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        axum::extract::Query::try_from_uri(&parts.uri)
            .map(|query| Self(query.0))
            .map_err(|error| Failure(StatusCode::BAD_REQUEST, error.body_text()))
    }
}

/// The address to open in a browser. The token is behind the `#`, which browsers do not send.
pub(crate) fn address(listen: SocketAddr, token: &str) -> String {
    format!("http://{listen}/#{token}")
}
