//! HTTP over TLS, and HTTP/2: hyper and rustls on one single-threaded runtime a generator thread.
//!
//! See the module `tasks` for the loop. A client has a connection of its own, or in HTTP/2 shares one with others.
//! Bytes are those of requests as HTTP/1.1 text and of bodies of replies: what encryption and
//! compression make of them is the libraries' own business.

mod connection;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::driver::{ErrorKind, Reply};
use crate::http::{HttpPlan, Template};
use crate::load::{LoadError, LoadPlan, LoadProgress, Place, Start, run_threads};
use crate::random::{Purpose, Random, stream};
use crate::recorder::Recorder;
use crate::tasks::{self, Client, within};
use crate::tls::Secure;
pub(crate) use connection::{Connection, Connector, read};
use kendall_protocols::load_result::LoadResult;

/// What a load over TLS or HTTP/2 sends, and how.
#[derive(Debug, Clone)]
pub struct WebPlan {
    pub content: HttpPlan,
    /// TLS, where the URL wants it; its protocol is [`alpn`].
    pub tls: Option<Secure>,
    /// HTTP/2; without TLS by prior knowledge.
    pub http2: bool,
    /// HTTP/2: connections that the clients share; without a number, each has its own.
    pub connections: Option<usize>,
}

/// What is agreed on over TLS.
pub fn alpn(http2: bool) -> &'static [u8] {
    if http2 { b"h2" } else { b"http/1.1" }
}

/// Runs a load test over TLS or HTTP/2.
pub fn run(
    plan: &LoadPlan,
    web: &WebPlan,
    template: &Template,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<LoadResult, LoadError> {
    let connector = Connector::new(web);
    let body = |start: Start<'_>, recorder: Recorder| {
        let random = stream(plan.seed, Purpose::Requests, start.place.thread);
        let requests = Requests { template: template.clone(), random, body: Vec::new() };
        let clients = async {
            let requests = Rc::new(RefCell::new(requests));
            let connections = connect_all(&start.place, &connector, web).await;
            let client = |connection| WebClient {
                connection,
                connector: connector.clone(),
                requests: Rc::clone(&requests),
                request: Vec::new(),
            };
            connections.map(|all| all.into_iter().map(client).collect())
        };
        tasks::run_thread(&start, clients, recorder)
    };
    run_threads("http", plan, vec![web.content.method.clone()], &body, stop, progress)
}

struct Requests {
    template: Template,
    random: Random,
    body: Vec<u8>,
}

/// One connection and the request that it sends next.
struct WebClient {
    connection: Rc<Connection>,
    connector: Connector,
    requests: Rc<RefCell<Requests>>,
    request: Vec<u8>,
}

impl Client for WebClient {
    fn draw(&mut self) -> (usize, u64) {
        let mut requests = self.requests.borrow_mut();
        let Requests { template, random, body } = &mut *requests;
        self.request.clear();
        template.write(random, body, &mut self.request);
        (0, self.request.len() as u64)
    }

    async fn exchange(&mut self) -> Result<(Reply, u64), ErrorKind> {
        self.connection.exchange(&self.connector, &self.request).await
    }

    fn failed(&mut self, _kind: ErrorKind) {
        self.connection.close();
    }

    fn sent_anew(&mut self) -> u64 {
        self.connection.sent_anew.take()
    }
}

/// The connection of each client of a thread.
pub(crate) async fn connect_all(
    place: &Place<'_>,
    connector: &Connector,
    web: &WebPlan,
) -> Result<Vec<Rc<Connection>>, LoadError> {
    let limit = Duration::from_nanos(place.plan.timeout_ns);
    let connections = place.connect(web.connections, async |target, alone| {
        let connection = Connection::new(target, !alone);
        within(limit, target, connection.open(connector)).await?;
        Ok(Rc::new(connection))
    });
    connections.await
}

/// What a status means.
pub(crate) fn reply_of(status: u16) -> Reply {
    let error = match status {
        200..=299 => None,
        300..=399 => Some(ErrorKind::Status3xx),
        400..=499 => Some(ErrorKind::Status4xx),
        500..=599 => Some(ErrorKind::Status5xx),
        _ => Some(ErrorKind::Status1xx),
    };
    Reply { error, status, ..Reply::default() }
}
