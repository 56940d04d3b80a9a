//! `kendall queue send --lines`: a message a line of standard input.

use std::collections::BTreeMap;
use std::io::BufRead;

use kendall_protocols::queue::SendRequest;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

use super::call::{Caller, request_id};
use crate::exit::{Exit, refused};
use crate::output::{self, Format};

/// Messages that travel together at most: what has been read while the last ones were sent.
const TOGETHER: usize = 500;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    content: String,
    to: Option<String>,
    #[serde(default)]
    priority: i32,
    #[serde(default)]
    delay_ms: u64,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

type Read = (usize, Result<Line, String>);

/// Who sends, whereto, and whom it knows by now.
struct Sender {
    caller: Caller,
    client_id: u64,
    queue_id: u64,
    receivers: BTreeMap<String, u64>,
    sent: u64,
}

/// Sends what comes, as it comes. A bad line ends it, when those before it are sent.
pub(super) async fn send(mut caller: Caller, queue: &str) -> anyhow::Result<Exit> {
    let client_id = caller.me().await?;
    let queue_id = caller.queue_id(queue).await?;
    let mut sender = Sender { caller, client_id, queue_id, receivers: BTreeMap::new(), sent: 0 };
    let (lines, mut read) = mpsc::channel(TOGETHER);
    // It waits for standard input, maybe for ever, and ends with the process.
    std::thread::spawn(move || read_lines(std::io::stdin().lock(), &lines));
    while let Some(first) = read.recv().await {
        let mut together = vec![first];
        while together.len() < TOGETHER
            && let Ok(next) = read.try_recv()
        {
            together.push(next);
        }
        if let Err((number, error)) = sender.send(together).await? {
            let sent = sender.sent;
            let sent = kendall_units::counted(sent, "message");
            let text = format!("standard input, line {number}: {error} (sent: {sent})");
            return Err(refused(text));
        }
    }
    match sender.caller.format {
        Format::Json => output::json(&json!({ "sent": sender.sent }))?,
        Format::Human => output::result(&format!("{:<20} {}", "sent", sender.sent)),
    }
    Ok(Exit::Done)
}

impl Sender {
    /// Sends lines up to a bad one; the inner error is the first that was refused, and why.
    async fn send(&mut self, lines: Vec<Read>) -> anyhow::Result<Result<(), (usize, String)>> {
        let mut messages = Vec::with_capacity(lines.len());
        let mut numbers = Vec::with_capacity(lines.len());
        let mut bad = None;
        for (number, line) in lines {
            match line {
                Ok(line) => {
                    messages.push(self.message(line).await?);
                    numbers.push(number);
                }
                Err(error) => {
                    bad = Some((number, error));
                    break;
                }
            }
        }
        if !messages.is_empty() {
            let results = self.caller.send_all(messages).await?;
            for (number, result) in numbers.into_iter().zip(results).rev() {
                match result {
                    Ok(_) => self.sent += 1,
                    Err(error) => bad = Some((number, error.to_string())),
                }
            }
        }
        Ok(bad.map_or(Ok(()), Err))
    }

    async fn message(&mut self, line: Line) -> anyhow::Result<SendRequest> {
        let receiver_id = match line.to {
            Some(name) => match self.receivers.get(&name) {
                Some(id) => *id,
                None => {
                    let id = self.caller.hello(name.clone()).await?;
                    self.receivers.insert(name, id);
                    id
                }
            },
            None => 0,
        };
        Ok(SendRequest {
            client_id: self.client_id,
            queue_id: self.queue_id,
            receiver_id,
            content: line.content,
            priority: line.priority,
            delay_ms: line.delay_ms,
            request_id: request_id(),
            headers: line.headers,
            ..Default::default()
        })
    }
}

/// Ends at the end of the input, at the first line that is none, and when no more are taken.
fn read_lines(input: impl BufRead, lines: &mpsc::Sender<Read>) {
    for (place, line) in input.lines().enumerate() {
        let line = match line {
            Ok(text) if text.trim().is_empty() => continue,
            Ok(text) => serde_json::from_str(&text).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let line = line.map_err(|error| format!("{error}; write it like {{\"content\": \"…\"}}"));
        let bad = line.is_err();
        if lines.blocking_send((place + 1, line)).is_err() || bad {
            return;
        }
    }
}
