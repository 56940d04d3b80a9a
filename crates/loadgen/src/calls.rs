//! Calls of any gRPC service: a method as the service or its `.proto` files describe it, and messages from JSON.
//!
//! A request is one call, unary or streaming: its messages are sent together or in turn with those of the answer, and it
//! ends with the status behind the last of these. Messages of answers are counted and not kept.

pub(crate) mod descriptor;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use kendall_protocols::load_result::LoadResult;
use prost_reflect::{DynamicMessage, MessageDescriptor, MethodDescriptor};
use serde::de::DeserializeSeed as _;

pub use crate::grpc::{Access, AccessError};
pub use descriptor::DescriptorError;

use crate::driver::{ErrorKind, Reply};
use crate::grpc::{self, Connection, Refusal};
use crate::http::{Part, PlaceholderError, Values, split};
use crate::load::{LoadError, LoadPlan, LoadProgress, Place, Start, run_threads};
use crate::random::{Purpose, Random, stream};
use crate::recorder::Recorder;
use crate::refusals::Said;
use crate::tasks::{self, Client};

#[derive(Debug, Clone)]
pub struct CallPlan {
    /// `package.Service/Method`.
    pub method: String,
    /// Where it is described; without any, the service is asked.
    pub protos: Vec<PathBuf>,
    /// Where imports of those are.
    pub imports: Vec<PathBuf>,
    /// The messages of each call, as JSON with placeholders.
    pub messages: Vec<String>,
    pub placeholders: Vec<(String, Values)>,
    /// Each message is sent when an answer to the one before has come.
    pub in_turn: bool,
    /// Sent with each call.
    pub metadata: Vec<(String, String)>,
    pub access: Access,
    /// Connections that the clients share; without a number, each has its own.
    pub connections: Option<usize>,
}

/// A load of calls that did not take place.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
    #[error("`{metadata}` is not metadata; write it like `x-user=7`")]
    Metadata { metadata: String },
    #[error("message `{text}` is no {message}: {source}")]
    Message { text: String, message: String, source: serde_json::Error },
    #[error("`{method}` takes one message, and there are {messages}; give `--data` once")]
    OneMessage { method: String, messages: usize },
    #[error("`{method}` has no streams both ways, so that there is nothing to send in turn")]
    OneWay { method: String },
    #[error(transparent)]
    Placeholder(#[from] PlaceholderError),
}

/// What the clients of a load share.
struct Calls {
    path: String,
    /// What the call is called in the result.
    name: String,
    input: MessageDescriptor,
    one_answer: bool,
    in_turn: bool,
    metadata: HeaderMap,
    messages: Vec<Vec<Part>>,
    values: Vec<Values>,
    /// The messages of all calls, where nothing varies.
    fixed: Option<Bytes>,
    said: Said,
}

/// Runs a load test of calls.
pub fn run(
    plan: &LoadPlan,
    calls: &CallPlan,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<LoadResult, CallError> {
    let shared = Arc::new(prepare(plan, calls)?);
    let body = |start: Start<'_>, recorder: Recorder| {
        tasks::run_thread(&start, connect_all(&start.place, calls, &shared), recorder)
    };
    let mut result = run_threads("grpc", plan, vec![shared.name.clone()], &body, stop, progress)?;
    shared.said.tell(&mut result);
    Ok(result)
}

/// Services that a server says it has; `None` where it does not speak gRPC.
///
/// # Errors
/// [`DescriptorError::NoReflection`] where it speaks gRPC and does not say.
pub fn services(
    target: SocketAddr,
    limit: Duration,
) -> Result<Option<Vec<String>>, DescriptorError> {
    let connection = Connection::new(target, Access::default());
    let asked = async { tokio::time::timeout(limit, descriptor::services(&connection)).await };
    match tasks::block_on(asked) {
        Ok(Ok(Ok(services))) => Ok(Some(services)),
        Ok(Ok(Err(error @ DescriptorError::NoReflection))) => Err(error),
        _ => Ok(None),
    }
}

/// Finds the method, and makes one call's messages, so that their errors are reported before the load.
fn prepare(plan: &LoadPlan, calls: &CallPlan) -> Result<Calls, CallError> {
    let mut metadata = HeaderMap::new();
    for (name, value) in &calls.metadata {
        let (key, value) = header(name, value)
            .ok_or_else(|| CallError::Metadata { metadata: format!("{name}={value}") })?;
        metadata.append(key, value);
    }
    let method = method(plan, calls)?;
    if !method.is_client_streaming() && calls.messages.len() != 1 {
        let (method, messages) = (calls.method.clone(), calls.messages.len());
        return Err(CallError::OneMessage { method, messages });
    }
    if calls.in_turn && !(method.is_client_streaming() && method.is_server_streaming()) {
        return Err(CallError::OneWay { method: calls.method.clone() });
    }
    let names: Vec<&str> = calls.placeholders.iter().map(|(name, _)| name.as_str()).collect();
    let messages: Vec<Vec<Part>> =
        calls.messages.iter().map(|text| split(text.as_bytes(), &names)).collect();
    for (place, name) in names.iter().enumerate() {
        let name = (*name).to_owned();
        if names[..place].contains(&name.as_str()) {
            return Err(PlaceholderError::Twice { name }.into());
        }
        if !messages.iter().flatten().any(|part| *part == Part::Placeholder(place)) {
            return Err(PlaceholderError::Unused { name }.into());
        }
    }
    let mut all = Calls {
        path: format!("/{}/{}", method.parent_service().full_name(), method.name()),
        name: method.name().to_owned(),
        input: method.input(),
        one_answer: !method.is_server_streaming(),
        in_turn: calls.in_turn,
        metadata,
        messages,
        values: calls.placeholders.iter().map(|(_, values)| values.clone()).collect(),
        fixed: None,
        said: Said::default(),
    };
    let body =
        all.body(&mut stream(plan.seed, Purpose::Requests, 0)).map_err(|(text, source)| {
            CallError::Message { text, message: all.input.full_name().to_owned(), source }
        })?;
    all.values.iter().for_each(Values::restart);
    all.fixed = all.values.is_empty().then_some(body);
    Ok(all)
}

fn header(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
    let own = name.as_str().starts_with("grpc-") || matches!(name.as_str(), "te" | "content-type");
    HeaderValue::from_str(value).ok().filter(|_| !own).map(|value| (name, value))
}

/// The method, as its files or the first target describe it.
fn method(plan: &LoadPlan, calls: &CallPlan) -> Result<MethodDescriptor, CallError> {
    if !calls.protos.is_empty() {
        return Ok(descriptor::compiled(&calls.method, &calls.protos, &calls.imports)?);
    }
    let asked = tasks::block_on(async {
        let connection = Connection::new(plan.targets[0], calls.access.clone());
        connection.open_within(Duration::from_nanos(plan.timeout_ns)).await?;
        Ok(descriptor::reflected(&calls.method, &connection).await?)
    });
    asked.map_err(LoadError::Thread)?
}

impl Calls {
    /// The messages of one call, with their prefixes; or the text that is no message, and why.
    fn body(&self, random: &mut Random) -> Result<Bytes, (String, serde_json::Error)> {
        if let Some(fixed) = &self.fixed {
            return Ok(fixed.clone());
        }
        let (mut text, mut body) = (Vec::new(), Vec::new());
        for message in &self.messages {
            text.clear();
            for part in message {
                match part {
                    Part::Literal(bytes) => text.extend_from_slice(bytes),
                    Part::Placeholder(place) => self.values[*place].write(random, &mut text),
                }
            }
            write_message(&self.input, &text, &mut body)
                .map_err(|error| (String::from_utf8_lossy(&text).into_owned(), error))?;
        }
        Ok(body.into())
    }
}

/// A message from its JSON, with its prefix.
pub(crate) fn write_message(
    input: &MessageDescriptor,
    json: &[u8],
    body: &mut Vec<u8>,
) -> Result<(), serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(json);
    let made: DynamicMessage = input.clone().deserialize(&mut json)?;
    json.end()?;
    grpc::write(&made, body);
    Ok(())
}

async fn connect_all(
    place: &Place<'_>,
    calls: &CallPlan,
    shared: &Arc<Calls>,
) -> Result<Vec<CallClient>, LoadError> {
    let connections = place.connect(calls.connections, async |target, alone| {
        let connection = Connection::new(target, calls.access.clone());
        connection.open_within(Duration::from_nanos(place.plan.timeout_ns)).await?;
        Ok((Rc::new(connection), alone))
    });
    let random = place.random();
    let client = |(connection, alone)| CallClient {
        calls: Arc::clone(shared),
        random: Rc::clone(&random),
        connection,
        alone,
        body: Err(String::new()),
    };
    Ok(connections.await?.into_iter().map(client).collect())
}

struct CallClient {
    calls: Arc<Calls>,
    random: Rc<RefCell<Random>>,
    connection: Rc<Connection>,
    /// The connection is this client's own.
    alone: bool,
    /// What is sent next, or why it is no message.
    body: Result<Bytes, String>,
}

impl Client for CallClient {
    fn draw(&mut self) -> (usize, u64) {
        let body = self.calls.body(&mut self.random.borrow_mut());
        self.body = body.map_err(|(text, error)| format!("`{text}`: {error}"));
        (0, self.body.as_ref().map_or(0, Bytes::len) as u64)
    }

    async fn exchange(&mut self) -> Result<(Reply, u64), ErrorKind> {
        let calls = &self.calls;
        let body = match &self.body {
            Ok(body) => body.clone(),
            Err(what) => {
                calls.said.note(&calls.name, what);
                return Ok((Reply::refused(ErrorKind::ClientError), 0));
            }
        };
        match self.connection.count(&calls.path, &calls.metadata, body, calls.in_turn).await {
            Ok((messages, _)) if calls.one_answer && messages != 1 => {
                calls.said.note(&calls.name, &format!("{messages} messages in place of one"));
                Ok((Reply::refused(ErrorKind::Garbage), 0))
            }
            Ok((_, bytes)) => Ok((Reply::default(), bytes)),
            Err(refusal) => {
                calls.said.note(&calls.name, &refusal.to_string());
                match refusal {
                    Refusal::Status { .. } => Ok((Reply::refused(refusal.kind()), 0)),
                    _ => Err(refusal.kind()),
                }
            }
        }
    }

    fn failed(&mut self, _kind: ErrorKind) {
        if self.alone {
            self.connection.forget();
        } else {
            self.connection.close();
        }
    }

    fn sent_anew(&mut self) -> u64 {
        self.connection.sent_anew.take()
    }
}
