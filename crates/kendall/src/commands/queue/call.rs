//! One call to the message queue, and its answer printed.

use std::collections::BTreeMap;
use std::io::{BufRead as _, Read as _};
use std::net::SocketAddr;
use std::time::Duration;

use kendall_message_queue::wire::message_queue_client::MessageQueueClient;
use kendall_protocols::queue as wire;
use kendall_units::Seconds;
use serde::Deserialize;
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::{Command, Create, Held, Select, Send};
use crate::exit::{Exit, exit_with};
use crate::output::{self, Format};

/// Time to reach the middleware.
const CONNECT: Duration = Duration::from_secs(5);
/// Messages of `send --lines` that travel together.
const LINES: usize = 500;

pub(super) struct Caller {
    pub(super) queue: MessageQueueClient<Channel>,
    client: String,
    format: Format,
}

/// One line of `send --lines`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    content: String,
    to: Option<String>,
    #[serde(default)]
    priority: i32,
    #[serde(default)]
    delay_ms: u64,
}

impl Caller {
    pub(super) async fn connect(
        server: SocketAddr,
        client: String,
        format: Format,
    ) -> anyhow::Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{server}"))?.connect_timeout(CONNECT);
        let channel = endpoint.connect().await.map_err(|error| {
            let text = format!(
                "no message queue answers at {server} ({error}); start one with `kendall serve \
                 queue --listen {server}`, or name yours with --server HOST:PORT"
            );
            exit_with(Exit::NotReady, text)
        })?;
        Ok(Self { queue: MessageQueueClient::new(channel), client, format })
    }

    pub(super) async fn perform(mut self, command: Command) -> anyhow::Result<Exit> {
        let answer = match command {
            Command::Hello => json!({ "client_id": self.hello(self.client.clone()).await? }),
            Command::Goodbye => {
                let client_id = self.me().await?;
                let request = wire::GoodbyeRequest { client_id };
                self.queue.goodbye(request).await.map_err(refused)?;
                json!({ "client_id": client_id })
            }
            Command::Create(create) => self.create(create).await?,
            Command::Delete { queue, with_messages } => {
                let queue_id = self.queue_id(&queue).await?;
                let request = wire::DeleteQueueRequest { queue_id, with_messages };
                self.queue.delete_queue(request).await.map_err(refused)?;
                json!({ "queue_id": queue_id })
            }
            Command::List { all } => self.list(all).await?,
            Command::Send(send) => return self.send(send).await,
            Command::Receive(select) => self.receive(&select).await?,
            Command::Read(select) => self.read(&select).await?,
            Command::Lease { select, lease } => self.lease(&select, lease).await?,
            Command::Ack(held) => self.acknowledge(&held).await?,
            Command::Extend { held, lease } => self.extend(&held, lease).await?,
            Command::Return { held, delay } => self.give_back(&held, delay).await?,
            Command::Purge { queue, yes } => self.purge(&queue, yes).await?,
            Command::Stats { queue } => self.statistics(&queue).await?,
            Command::Watch { .. } => unreachable!("watched elsewhere"),
        };
        self.print(&answer)?;
        Ok(Exit::Done)
    }

    pub(super) fn print(&self, answer: &Value) -> anyhow::Result<()> {
        match self.format {
            Format::Json => output::json(answer),
            Format::Human => {
                output::result(&human(answer));
                Ok(())
            }
        }
    }

    async fn hello(&mut self, name: String) -> anyhow::Result<u64> {
        let request = wire::HelloRequest { name };
        Ok(self.queue.hello(request).await.map_err(refused)?.into_inner().client_id)
    }

    async fn me(&mut self) -> anyhow::Result<u64> {
        self.hello(self.client.clone()).await
    }

    /// All queues by name.
    pub(super) async fn queues(&mut self) -> anyhow::Result<BTreeMap<String, u64>> {
        let client_id = self.me().await?;
        let mut found = BTreeMap::new();
        let mut after_queue_id = 0;
        loop {
            let request =
                wire::ListQueuesRequest { client_id, all: true, after_queue_id, limit: 0 };
            let page = self.queue.list_queues(request).await.map_err(refused)?.into_inner().queues;
            let Some(last) = page.last() else { return Ok(found) };
            after_queue_id = last.queue_id;
            found.extend(page.into_iter().map(|queue| (queue.name, queue.queue_id)));
        }
    }

    async fn queue_id(&mut self, name: &str) -> anyhow::Result<u64> {
        let queues = self.queues().await?;
        queues.get(name).copied().ok_or_else(|| {
            let known: Vec<&str> = queues.keys().take(10).map(String::as_str).collect();
            let text = if known.is_empty() {
                format!("there is no queue `{name}`; create it with `kendall queue create {name}`")
            } else {
                format!("there is no queue `{name}`; there are: {}", known.join(", "))
            };
            exit_with(Exit::Refused, text)
        })
    }

    async fn create(&mut self, create: Create) -> anyhow::Result<Value> {
        let dead_letter_queue_id = match &create.dead_letters {
            Some(name) => self.queue_id(name).await?,
            None => 0,
        };
        let request = wire::CreateQueueRequest {
            name: create.queue,
            max_deliveries: create.max_deliveries,
            dead_letter_queue_id,
            retention_ms: milliseconds(create.retention),
        };
        let made = self.queue.create_queue(request).await.map_err(refused)?.into_inner();
        Ok(json!({ "queue_id": made.queue_id }))
    }

    async fn list(&mut self, all: bool) -> anyhow::Result<Value> {
        let client_id = self.me().await?;
        let request = wire::ListQueuesRequest { client_id, all, ..Default::default() };
        let page = self.queue.list_queues(request).await.map_err(refused)?.into_inner().queues;
        let rows: Vec<Value> = page
            .iter()
            .map(|queue| json!({ "queue_id": queue.queue_id, "name": queue.name }))
            .collect();
        Ok(json!({ "queues": rows }))
    }

    async fn send(mut self, send: Send) -> anyhow::Result<Exit> {
        let client_id = self.me().await?;
        let queue_id = self.queue_id(&send.queue).await?;
        if send.lines {
            return self.send_lines(client_id, queue_id).await;
        }
        let content = match send.content {
            Some(content) => content,
            None => {
                let mut text = String::new();
                std::io::stdin().lock().read_to_string(&mut text).map_err(|error| {
                    exit_with(Exit::Refused, format!("standard input is no text: {error}"))
                })?;
                text
            }
        };
        let request = wire::SendRequest {
            client_id,
            queue_id,
            receiver_id: match send.to {
                Some(name) => self.hello(name).await?,
                None => 0,
            },
            content,
            priority: send.priority,
            delay_ms: milliseconds(send.delay),
            request_id: Vec::new(),
        };
        let sent = self.queue.send(request).await.map_err(refused)?.into_inner();
        self.print(&json!({ "message_id": sent.message_id }))?;
        Ok(Exit::Done)
    }

    /// Sends standard input line by line; the first bad line ends it, after those before it.
    async fn send_lines(mut self, client_id: u64, queue_id: u64) -> anyhow::Result<Exit> {
        let mut receivers: BTreeMap<String, u64> = BTreeMap::new();
        let mut batch = Vec::new();
        let mut sent = 0;
        for (number, line) in std::io::stdin().lock().lines().enumerate() {
            let bad = |error: String| {
                let text = format!(
                    "standard input, line {}: {error}; write it like {{\"content\": \"…\"}}",
                    number + 1
                );
                exit_with(Exit::Refused, text)
            };
            let line: Line = line
                .map_err(|error| bad(error.to_string()))
                .and_then(|text| serde_json::from_str(&text).map_err(|e| bad(e.to_string())))?;
            let receiver_id = match line.to {
                Some(name) => match receivers.get(&name) {
                    Some(id) => *id,
                    None => {
                        let id = self.hello(name.clone()).await?;
                        receivers.insert(name, id);
                        id
                    }
                },
                None => 0,
            };
            batch.push(wire::SendRequest {
                client_id,
                queue_id,
                receiver_id,
                content: line.content,
                priority: line.priority,
                delay_ms: line.delay_ms,
                request_id: Vec::new(),
            });
            if batch.len() == LINES {
                sent += self.send_batch(std::mem::take(&mut batch)).await?;
            }
        }
        sent += self.send_batch(batch).await?;
        self.print(&json!({ "sent": sent }))?;
        Ok(Exit::Done)
    }

    async fn send_batch(&mut self, messages: Vec<wire::SendRequest>) -> anyhow::Result<u64> {
        if messages.is_empty() {
            return Ok(0);
        }
        let request = wire::SendBatchRequest { messages };
        let results = self.queue.send_batch(request).await.map_err(refused)?.into_inner().results;
        let mut sent = 0;
        for result in results {
            if result.code != 0 {
                return Err(refused(Status::new(Code::from_i32(result.code), result.error)));
            }
            sent += 1;
        }
        Ok(sent)
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
            wait_ms: milliseconds(select.wait),
            request_id: Vec::new(),
        })
    }

    async fn receive(&mut self, select: &Select) -> anyhow::Result<Value> {
        let request = self.selected(select).await?;
        let answer = self.queue.receive(request).await.map_err(refused)?.into_inner();
        Ok(json!({ "message": answer.message.as_ref().map(message) }))
    }

    async fn read(&mut self, select: &Select) -> anyhow::Result<Value> {
        let request = self.selected(select).await?;
        let request = wire::ReadRequest {
            client_id: request.client_id,
            queue_id: request.queue_id,
            order: request.order,
            sender_id: request.sender_id,
        };
        let answer = self.queue.read(request).await.map_err(refused)?.into_inner();
        Ok(json!({ "message": answer.message.as_ref().map(message) }))
    }

    async fn lease(&mut self, select: &Select, lease: Seconds) -> anyhow::Result<Value> {
        let request = self.selected(select).await?;
        let request = wire::LeaseRequest {
            client_id: request.client_id,
            queue_id: request.queue_id,
            order: request.order,
            sender_id: request.sender_id,
            wait_ms: request.wait_ms,
            lease_ms: milliseconds(lease),
        };
        let answer = self.queue.lease(request).await.map_err(refused)?.into_inner();
        let lease_id = answer.message.as_ref().map(|_| answer.lease_id);
        Ok(json!({ "message": answer.message.as_ref().map(message), "lease_id": lease_id }))
    }

    async fn acknowledge(&mut self, held: &Held) -> anyhow::Result<Value> {
        let request = wire::AcknowledgeRequest {
            client_id: self.me().await?,
            message_id: held.message,
            lease_id: held.lease,
        };
        self.queue.acknowledge(request).await.map_err(refused)?;
        Ok(json!({ "message_id": held.message }))
    }

    async fn extend(&mut self, held: &Held, lease: Seconds) -> anyhow::Result<Value> {
        let request = wire::ExtendLeaseRequest {
            client_id: self.me().await?,
            message_id: held.message,
            lease_id: held.lease,
            lease_ms: milliseconds(lease),
        };
        self.queue.extend_lease(request).await.map_err(refused)?;
        Ok(json!({ "message_id": held.message }))
    }

    async fn give_back(&mut self, held: &Held, delay: Seconds) -> anyhow::Result<Value> {
        let request = wire::ReturnMessageRequest {
            client_id: self.me().await?,
            message_id: held.message,
            lease_id: held.lease,
            delay_ms: milliseconds(delay),
        };
        self.queue.return_message(request).await.map_err(refused)?;
        Ok(json!({ "message_id": held.message }))
    }

    async fn purge(&mut self, queue: &str, yes: bool) -> anyhow::Result<Value> {
        let queue_id = self.queue_id(queue).await?;
        if !yes {
            let text = format!(
                "this drops every message that waits in `{queue}`; say --yes if you mean it"
            );
            return Err(exit_with(Exit::Refused, text));
        }
        let request = wire::PurgeRequest { queue_id };
        let dropped = self.queue.purge(request).await.map_err(refused)?.into_inner().dropped;
        Ok(json!({ "dropped": dropped }))
    }

    async fn statistics(&mut self, queue: &str) -> anyhow::Result<Value> {
        let queue_id = self.queue_id(queue).await?;
        let request = wire::QueueStatisticsRequest { queue_id };
        let told = self.queue.queue_statistics(request).await.map_err(refused)?.into_inner();
        Ok(statistics(queue_id, &told))
    }
}

/// Statistics with their stable keys.
pub(super) fn statistics(queue_id: u64, told: &wire::QueueStatisticsResponse) -> Value {
    let some = |value: u64| (value != 0).then_some(value);
    json!({
        "queue_id": queue_id,
        "name": told.name,
        "waiting": told.waiting,
        "leased": told.leased,
        "delayed": told.delayed,
        "counted_up_to": told.count_limit,
        "oldest_age_ms": told.oldest_age_ms,
        "max_deliveries": some(u64::from(told.max_deliveries)),
        "dead_letter_queue_id": some(told.dead_letter_queue_id),
        "retention_ms": some(told.retention_ms),
    })
}

fn message(message: &wire::Message) -> Value {
    json!({
        "message_id": message.message_id,
        "sender_id": message.sender_id,
        "receiver_id": (message.receiver_id != 0).then_some(message.receiver_id),
        "priority": message.priority,
        "deliveries": message.deliveries,
        "sent_at_us": message.sent_at_us,
        "content": message.content,
    })
}

/// An object as lines of `key  value`; lists of objects one line each.
fn human(answer: &Value) -> String {
    let mut lines = Vec::new();
    let Some(object) = answer.as_object() else { return answer.to_string() };
    for (key, value) in object {
        match value {
            Value::Null if key == "message" => lines.push("no message".to_owned()),
            Value::Null => {}
            Value::Array(rows) if rows.is_empty() => lines.push(format!("no {key}")),
            Value::Array(rows) => lines.extend(rows.iter().map(plain)),
            Value::Object(_) => lines.push(human(value)),
            value => lines.push(format!("{key:<20} {}", plain(value))),
        }
    }
    lines.join("\n")
}

fn plain(value: &Value) -> String {
    match value {
        // Control characters of a message must not reach the terminal.
        Value::String(text) => {
            text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
        }
        Value::Object(fields) => fields.values().map(plain).collect::<Vec<_>>().join("  "),
        value => value.to_string(),
    }
}

fn milliseconds(time: Seconds) -> u64 {
    time.as_nanos() / 1_000_000
}

/// A refusal as an error with its exit code.
pub(super) fn refused(status: Status) -> anyhow::Error {
    let exit = match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted => Exit::NotReady,
        Code::Internal | Code::Unknown => Exit::Failure,
        _ => Exit::Refused,
    };
    exit_with(exit, status.message().to_owned())
}
