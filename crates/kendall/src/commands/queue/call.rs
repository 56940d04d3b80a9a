//! Calls to the message queue.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use kendall_loadgen::tls::is_cut;
use kendall_message_queue::wire::message_queue_client::MessageQueueClient;
use kendall_protocols::queue as wire;
use kendall_tier::serve::TlsAlone;
use kendall_units::{Seconds, chain, innermost};
use serde_json::{Value, json};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Response, Status, TimeoutExpired};

use super::flags::{Access, Command, Create, Held, Select, Send};
use super::show::{self, message, statistics};
use crate::exit::{Exit, exit_with, refused};
use crate::output::{self, Format};

/// Time to reach the middleware.
const CONNECT: Duration = Duration::from_secs(5);
/// Time on top for what goes through all messages of a queue: millions take minutes.
pub(super) const LONG: Seconds = Seconds::new(600.0);
/// Pauses before a request that is harmless to repeat is repeated over a new connection: the first,
/// and the longest of those that follow.
const FIRST_PAUSE_MS: u64 = 50;
const LONGEST_PAUSE_MS: u64 = 1000;
/// Why a server may end a connection over TLS on which it was shown no certificate.
const WANTS_CERTIFICATE: &str =
    "; the server may want a certificate of its clients (--client-certificate, --client-key)";

pub(super) type Answer<A> = Result<Response<A>, Status>;
pub(super) type Client = MessageQueueClient<InterceptedService<Channel, Holder>>;

pub(super) struct Caller {
    queue: Client,
    server: SocketAddr,
    client: String,
    timeout: Seconds,
    pub(super) format: Format,
    /// What may help where the connection broke.
    hint: &'static str,
}

impl Access {
    /// TLS, where it is wanted.
    fn tls(&self) -> anyhow::Result<Option<ClientTlsConfig>> {
        let Some(name) = &self.tls_name else { return Ok(None) };
        let trust = self.trust();
        // The library says neither which file it refuses nor what it wants.
        trust.of(name, &[]).map_err(refused)?;
        let read = |path: &Path| {
            kendall_tier::read_file(path, kendall_tier::LARGEST_FILE)
                .map_err(|error| refused(format!("{}: {error}", path.display())))
        };
        let mut tls = ClientTlsConfig::new().domain_name(name);
        if let Some((certificate, key)) = &trust.identity {
            tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
        }
        Ok(Some(match &trust.authority {
            Some(path) => tls.ca_certificate(Certificate::from_pem(read(path)?)),
            None => tls.with_native_roots(),
        }))
    }

    /// What may help where a server ends a connection.
    fn hint(&self) -> &'static str {
        let is_shown = self.trust().identity.is_some();
        if self.tls_name.is_some() && !is_shown { WANTS_CERTIFICATE } else { "" }
    }

    /// What goes with each request.
    fn holder(&self) -> anyhow::Result<Holder> {
        let Some(token) = &self.token else { return Ok(Holder(None)) };
        let value = format!("Bearer {token}")
            .parse()
            .map_err(|_| refused("--token: a token consists of letters, digits and signs"))?;
        Ok(Holder(Some(value)))
    }
}

/// Sends the token with each request.
#[derive(Clone)]
pub(super) struct Holder(Option<MetadataValue<Ascii>>);

impl Interceptor for Holder {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

impl Caller {
    pub(super) async fn connect(
        server: SocketAddr,
        access: &Access,
        client: String,
        timeout: Seconds,
        format: Format,
    ) -> anyhow::Result<Self> {
        let tls = access.tls()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{server}"))?;
        let mut endpoint = endpoint.connect_timeout(CONNECT);
        if let Some(tls) = tls {
            endpoint = endpoint.tls_config(tls)?;
        }
        let channel = endpoint.connect().await.map_err(|error| {
            exit_with(Exit::NotReady, unreached(server, &innermost(&error), access.hint()))
        })?;
        let queue = MessageQueueClient::with_interceptor(channel, access.holder()?);
        Ok(Self { queue, server, client, timeout, format, hint: access.hint() })
    }

    pub(super) async fn perform(&mut self, command: Command) -> anyhow::Result<Exit> {
        let answer = match command {
            Command::Hello => json!({ "client_id": self.me().await? }),
            Command::Goodbye => {
                let client_id = self.me().await?;
                let request = wire::GoodbyeRequest { client_id };
                self.ask(request, async |queue, request| queue.goodbye(request).await).await?;
                json!({ "client_id": client_id })
            }
            Command::Create(create) => self.create(create).await?,
            Command::Delete { queue, with_messages } => {
                let queue_id = self.queue_id(&queue).await?;
                let request = wire::DeleteQueueRequest { queue_id, with_messages };
                let call = async |queue: &mut Client, request| queue.delete_queue(request).await;
                self.ask_and_wait(request, LONG, call).await?;
                json!({ "queue_id": queue_id })
            }
            Command::List { all } => show::listed(&self.queues(all).await?),
            Command::Send(send) => self.send(send).await?,
            Command::Receive { select, wait, once } => {
                self.receive(&select, wait.wait, once).await?
            }
            Command::Read(select) => self.read(&select).await?,
            Command::Lease { select, wait, lease } => self.lease(&select, wait.wait, lease).await?,
            Command::Ack(held) => self.acknowledge(&held).await?,
            Command::Extend { held, lease } => self.extend(&held, lease).await?,
            Command::Return { held, delay, reason } => {
                self.give_back(&held, delay, reason.unwrap_or_default()).await?
            }
            Command::Purge { queue, yes } => self.purge(&queue, yes).await?,
            Command::Stats { queue } => {
                let queue_id = self.queue_id(&queue).await?;
                self.statistics(queue_id).await?
            }
            Command::Change(change) => self.change(change).await?,
            Command::DeadLetters { queue, from } => self.dead_letters(&queue, from).await?,
            Command::Redrive { queue, messages, to } => self.redrive(&queue, messages, to).await?,
            Command::Archived { queue } => self.archived(&queue).await?,
            Command::Watch { .. } => unreachable!("watched elsewhere"),
        };
        match self.format {
            Format::Json => output::json(&answer)?,
            Format::Human => output::result(&show::human(&answer)),
        }
        Ok(Exit::Done)
    }

    /// Asks once, and waits for as long as an answer may take.
    pub(super) async fn ask<Q, A>(
        &mut self,
        message: Q,
        call: impl AsyncFnOnce(&mut Client, Request<Q>) -> Answer<A>,
    ) -> anyhow::Result<A> {
        self.ask_and_wait(message, Seconds::ZERO, call).await
    }

    /// As [`Caller::ask`], with more time for the answer.
    pub(super) async fn ask_and_wait<Q, A>(
        &mut self,
        message: Q,
        wait: Seconds,
        call: impl AsyncFnOnce(&mut Client, Request<Q>) -> Answer<A>,
    ) -> anyhow::Result<A> {
        let request = self.request(message, wait);
        let answer = call(&mut self.queue, request).await;
        answer.map(Response::into_inner).map_err(|status| self.refused(&status))
    }

    /// Asks again where the connection broke: for requests that are harmless to repeat.
    async fn ask_again<Q: Clone, A>(
        &mut self,
        message: Q,
        wait: Seconds,
        call: impl AsyncFn(&mut Client, Request<Q>) -> Answer<A>,
    ) -> anyhow::Result<A> {
        let mut pauses = self.pauses();
        loop {
            let request = self.request(message.clone(), wait);
            match call(&mut self.queue, request).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => match pauses.next().filter(|_| broken(&status)) {
                    Some(ms) => kendall_tier::serve::pause(Duration::from_millis(ms)).await,
                    None => return Err(self.refused(&status)),
                },
            }
        }
    }

    /// A request with the time that its answer may take.
    fn request<T>(&self, message: T, wait: Seconds) -> Request<T> {
        let mut request = Request::new(message);
        let longest = Duration::from_secs(365 * 24 * 3600);
        let limit = self.timeout.as_duration().saturating_add(wait.as_duration());
        request.set_timeout(limit.min(longest));
        request
    }

    fn refused(&self, status: &Status) -> anyhow::Error {
        let (exit, text) = match status.code() {
            Code::DeadlineExceeded | Code::Cancelled if is_late(status) => (
                Exit::NotReady,
                format!(
                    "no answer within {}; the request may or may not have been executed; --timeout \
                     TIME waits longer",
                    self.timeout
                ),
            ),
            Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal
                if TlsAlone::of(&chain(status)) == Some(TlsAlone::Server) =>
            {
                (
                    Exit::NotReady,
                    format!(
                        "what answers at {} is not a message queue, or speaks TLS: then add --tls-name NAME, the \
                         name in its certificate",
                        self.server
                    ),
                )
            }
            Code::Unimplemented => {
                (Exit::NotReady, format!("what answers at {} is not a message queue", self.server))
            }
            Code::Unavailable | Code::Unknown | Code::Cancelled if broken(status) => (
                Exit::NotReady,
                format!(
                    "the connection to {} ended ({}){}; the request may or may not have been executed",
                    self.server,
                    innermost(status),
                    self.hint
                ),
            ),
            Code::Internal if broken(status) || status.message().starts_with("protocol error") => {
                (Exit::NotReady, format!("what answers at {} is not a message queue", self.server))
            }
            Code::Unavailable | Code::ResourceExhausted | Code::Cancelled => {
                (Exit::NotReady, status.message().to_owned())
            }
            Code::Internal | Code::Unknown => (Exit::Failure, status.message().to_owned()),
            _ => (Exit::Refused, status.message().to_owned()),
        };
        exit_with(exit, text)
    }

    pub(super) async fn hello(&mut self, name: String) -> anyhow::Result<u64> {
        let request = wire::HelloRequest { name };
        Ok(self.ask(request, async |queue, request| queue.hello(request).await).await?.client_id)
    }

    pub(super) async fn me(&mut self) -> anyhow::Result<u64> {
        self.hello(self.client.clone()).await
    }

    /// All queues, or those where a message waits for this client, by name.
    pub(super) async fn queues(&mut self, all: bool) -> anyhow::Result<BTreeMap<String, u64>> {
        let client_id = self.me().await?;
        self.queues_for(client_id, all).await
    }

    pub(super) async fn queues_for(
        &mut self,
        client_id: u64,
        all: bool,
    ) -> anyhow::Result<BTreeMap<String, u64>> {
        let mut found = BTreeMap::new();
        let mut after_queue_id = 0;
        loop {
            let request = wire::ListQueuesRequest { client_id, all, after_queue_id, limit: 0 };
            let call = async |queue: &mut Client, request| queue.list_queues(request).await;
            let page = self.ask(request, call).await?.queues;
            let Some(last) = page.last() else { return Ok(found) };
            after_queue_id = last.queue_id;
            found.extend(page.into_iter().map(|queue| (queue.name, queue.queue_id)));
        }
    }

    pub(super) async fn queue_id(&mut self, name: &str) -> anyhow::Result<u64> {
        let queues = self.queues(true).await?;
        queues.get(name).copied().ok_or_else(|| unknown_queue(name, &queues))
    }

    async fn create(&mut self, create: Create) -> anyhow::Result<Value> {
        let dead_letter_queue_id = match &create.dead_letters {
            Some(name) => self.queue_id(name).await?,
            None => 0,
        };
        let request = wire::CreateQueueRequest {
            name: create.queue.clone(),
            max_deliveries: create.max_deliveries,
            dead_letter_queue_id,
            retention_ms: milliseconds(create.retention),
            archive_ms: milliseconds(create.archive),
        };
        let request = self.request(request, Seconds::ZERO);
        let queue_id = match self.queue.create_queue(request).await {
            Ok(answer) => answer.get_ref().queue_id,
            Err(status) if status.code() == Code::AlreadyExists && create.if_missing => {
                self.queue_id(&create.queue).await?
            }
            Err(status) => return Err(self.refused(&status)),
        };
        Ok(json!({ "queue_id": queue_id }))
    }

    async fn send(&mut self, send: Send) -> anyhow::Result<Value> {
        let client_id = self.me().await?;
        let queue_id = self.queue_id(&send.queue).await?;
        let receiver_id = match send.to {
            Some(name) => self.hello(name).await?,
            None => 0,
        };
        let (content, data) = match send.content {
            Some(content) => (content, Vec::new()),
            None if send.binary => (String::new(), standard_input_bytes()?),
            None => (standard_input()?, Vec::new()),
        };
        let request = wire::SendRequest {
            client_id,
            queue_id,
            receiver_id,
            content,
            priority: send.priority,
            delay_ms: milliseconds(send.delay),
            request_id: request_id(),
            data,
            headers: send.headers.into_iter().collect(),
        };
        let mut sent = self.send_all(vec![request]).await?;
        let sent = sent.pop().context("a message was sent, but its answer is missing")?;
        Ok(json!({ "message_id": sent? }))
    }

    /// Sends messages that carry a request id each; says of each what became of it.
    pub(super) async fn send_all(
        &mut self,
        messages: Vec<wire::SendRequest>,
    ) -> anyhow::Result<Vec<anyhow::Result<u64>>> {
        let request = wire::SendBatchRequest { messages };
        let call = async |queue: &mut Client, request| queue.send_batch(request).await;
        let results = self.ask_again(request, Seconds::ZERO, call).await?.results;
        let sent = |result: wire::SendResult| match Code::from_i32(result.code) {
            Code::Ok => Ok(result.message_id),
            code => Err(self.refused(&Status::new(code, result.error))),
        };
        Ok(results.into_iter().map(sent).collect())
    }

    /// Pauses that double, until they are as long together as an answer may take.
    fn pauses(&self) -> impl Iterator<Item = u64> + use<> {
        let most = milliseconds(self.timeout);
        let pauses =
            std::iter::successors(Some(FIRST_PAUSE_MS), |ms| Some((2 * ms).min(LONGEST_PAUSE_MS)));
        pauses.scan(0, move |sum, ms| {
            *sum += ms;
            (*sum <= most).then_some(ms)
        })
    }

    async fn selected(&mut self, select: &Select) -> anyhow::Result<wire::ReceiveRequest> {
        let order = if select.by_priority { wire::Order::Priority } else { wire::Order::Arrival };
        Ok(wire::ReceiveRequest {
            client_id: self.me().await?,
            queue_id: self.queue_id(&select.queue).await?,
            order: order.into(),
            sender_id: match &select.from {
                Some(name) => self.hello(name.clone()).await?,
                None => 0,
            },
            wait_ms: 0,
            request_id: Vec::new(),
        })
    }

    async fn receive(
        &mut self,
        select: &Select,
        wait: Seconds,
        once: bool,
    ) -> anyhow::Result<Value> {
        let selected = self.selected(select).await?;
        let receive = wire::ReceiveRequest { wait_ms: milliseconds(wait), ..selected };
        let found = if once {
            let request = self.request(receive, wait);
            let answer = self.queue.receive(request).await;
            answer.map_err(|status| self.refused(&status))?.into_inner().message
        } else {
            let receive = wire::ReceiveRequest { request_id: request_id(), ..receive };
            let call = async |queue: &mut Client, request| queue.receive(request).await;
            self.ask_again(receive, wait, call).await?.message
        };
        self.found(found.as_ref(), selected.queue_id).await;
        Ok(json!({ "message": found.as_ref().map(message) }))
    }

    async fn read(&mut self, select: &Select) -> anyhow::Result<Value> {
        let selected = self.selected(select).await?;
        let request = wire::ReadRequest {
            client_id: selected.client_id,
            queue_id: selected.queue_id,
            order: selected.order,
            sender_id: selected.sender_id,
        };
        let call = async |queue: &mut Client, request| queue.read(request).await;
        let found = self.ask(request, call).await?.message;
        self.found(found.as_ref(), selected.queue_id).await;
        Ok(json!({ "message": found.as_ref().map(message) }))
    }

    async fn lease(
        &mut self,
        select: &Select,
        wait: Seconds,
        lease: Seconds,
    ) -> anyhow::Result<Value> {
        let selected = self.selected(select).await?;
        let lease = wire::LeaseRequest {
            client_id: selected.client_id,
            queue_id: selected.queue_id,
            order: selected.order,
            sender_id: selected.sender_id,
            wait_ms: milliseconds(wait),
            lease_ms: milliseconds(lease),
            request_id: request_id(),
        };
        let call = async |queue: &mut Client, request| queue.lease(request).await;
        let answer = self.ask_again(lease, wait, call).await?;
        self.found(answer.message.as_ref(), selected.queue_id).await;
        let lease_id = answer.message.as_ref().map(|_| answer.lease_id);
        Ok(json!({ "message": answer.message.as_ref().map(message), "lease_id": lease_id }))
    }

    /// Says why there may be no message where some wait: a surprise when one tries the queue out
    /// under one name.
    async fn found(&mut self, message: Option<&wire::Message>, queue_id: u64) {
        if message.is_some() || self.format == Format::Json {
            return;
        }
        if self.told(queue_id).await.is_ok_and(|told| told.waiting > 0) {
            output::note(&format!(
                "The waiting messages are not for `{}`: it sent them itself, or they are addressed \
                 to others. --as NAME acts as another client.",
                output::plain(&self.client)
            ));
        }
    }

    async fn acknowledge(&mut self, held: &Held) -> anyhow::Result<Value> {
        let client_id = self.me().await?;
        let done = wire::AcknowledgeRequest {
            client_id,
            message_id: held.message,
            lease_id: held.lease,
            request_id: request_id(),
        };
        let call = async |queue: &mut Client, request| queue.acknowledge(request).await;
        self.ask_again(done, Seconds::ZERO, call).await?;
        Ok(json!({ "message_id": held.message }))
    }

    async fn extend(&mut self, held: &Held, lease: Seconds) -> anyhow::Result<Value> {
        let client_id = self.me().await?;
        let request = wire::ExtendLeaseRequest {
            client_id,
            message_id: held.message,
            lease_id: held.lease,
            lease_ms: milliseconds(lease),
        };
        self.ask(request, async |queue, request| queue.extend_lease(request).await).await?;
        Ok(json!({ "message_id": held.message }))
    }

    async fn give_back(
        &mut self,
        held: &Held,
        delay: Seconds,
        reason: String,
    ) -> anyhow::Result<Value> {
        let client_id = self.me().await?;
        let request = wire::ReturnMessageRequest {
            client_id,
            message_id: held.message,
            lease_id: held.lease,
            delay_ms: milliseconds(delay),
            reason,
        };
        self.ask(request, async |queue, request| queue.return_message(request).await).await?;
        Ok(json!({ "message_id": held.message }))
    }

    async fn purge(&mut self, queue: &str, yes: bool) -> anyhow::Result<Value> {
        let queue_id = self.queue_id(queue).await?;
        if !yes {
            let text =
                format!("this drops every waiting message of `{queue}`; add --yes to confirm");
            return Err(refused(text));
        }
        let call = async |queue: &mut Client, request| queue.purge(request).await;
        let answer = self.ask_and_wait(wire::PurgeRequest { queue_id }, LONG, call).await?;
        Ok(json!({ "dropped": answer.dropped }))
    }

    pub(super) async fn statistics(&mut self, queue_id: u64) -> anyhow::Result<Value> {
        Ok(statistics(queue_id, &self.told(queue_id).await?))
    }

    async fn told(&mut self, queue_id: u64) -> anyhow::Result<wire::QueueStatisticsResponse> {
        let request = wire::QueueStatisticsRequest { queue_id };
        self.ask(request, async |queue, request| queue.queue_statistics(request).await).await
    }
}

/// An id that no other request has, so that it can be repeated.
pub(super) fn request_id() -> Vec<u8> {
    uuid::Uuid::new_v4().into_bytes().into()
}

/// That there is no queue of this name, and which there are.
pub(super) fn unknown_queue(name: &str, queues: &BTreeMap<String, u64>) -> anyhow::Error {
    const SHOWN: usize = 10;
    let known: Vec<&str> = queues.keys().take(SHOWN).map(String::as_str).collect();
    let more = if queues.len() > SHOWN { ", …" } else { "" };
    let text = if known.is_empty() {
        format!("there is no queue `{name}`; create it with `kendall queue create {name}`")
    } else {
        format!("there is no queue `{name}`; there are: {}{more}", known.join(", "))
    };
    refused(text)
}

fn standard_input_bytes() -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).context("standard input cannot be read")?;
    Ok(bytes)
}

/// All of standard input, as text.
fn standard_input() -> anyhow::Result<String> {
    let mut text = String::new();
    std::io::stdin().lock().read_to_string(&mut text).map_err(|error| {
        let text =
            format!("standard input is not UTF-8 text ({error}); --binary sends it as it is");
        refused(text)
    })?;
    Ok(text)
}

/// Whether the time for an answer has passed. tonic tells of its own deadline as a cancellation, and of a connection
/// that ended, too.
fn is_late(status: &Status) -> bool {
    status.code() == Code::DeadlineExceeded || status.message() == TimeoutExpired(()).to_string()
}

/// Why there is no connection to a server.
fn unreached(server: SocketAddr, why: &str, hint: &str) -> String {
    if why.starts_with("invalid peer certificate") {
        format!(
            "the certificate of {server} is not taken ({why}); it must be valid now, for the name of --tls-name, and \
             from an authority that the system trusts or --tls-root FILE names"
        )
    } else if TlsAlone::of(why) == Some(TlsAlone::Client) {
        format!("the server at {server} speaks no TLS ({why}); leave --tls-name out")
    } else if is_cut(why) || why.contains("fatal alert") {
        format!("the server at {server} ended the connection ({why}){hint}")
    } else {
        format!(
            "no message queue answers at {server} ({why}); start one with `kendall serve queue \
             --listen {server}`, or name yours with --server HOST:PORT"
        )
    }
}

/// Whether the connection failed, and not what was asked.
fn broken(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

pub(super) fn milliseconds(time: Seconds) -> u64 {
    time.as_nanos() / 1_000_000
}
