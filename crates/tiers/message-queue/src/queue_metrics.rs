//! How many messages each queue holds, how old the oldest is, and how many went through it here: for
//! the metrics page.
//!
//! To count, PostgreSQL reads up to ten thousand rows of each queue, so that it is done only while
//! the page is read, every few seconds, over a connection of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kendall_tier::{Clock, Exposition};
use parking_lot::Mutex;

use crate::database::Databases;
use crate::dispatcher::{Dispatcher, Through};

/// How often the queues are counted, and for how long after the page was read last.
const PERIOD: Duration = Duration::from_secs(5);
const READ_NS: u64 = 60_000_000_000;
/// The number of queues that are shown, by their ids, and where counts stop.
const QUEUES: i64 = 1000;
const COUNTED: i64 = 10_000;
const LOOK: &str = "SELECT q.id, q.name, s.waiting, s.leased, s.delayed, s.oldest_age_ms, q.paused \
    FROM (SELECT id, name, paused FROM queue ORDER BY id LIMIT $1) AS q, \
        LATERAL queue_statistics(q.id, $2) AS s ORDER BY q.id";

/// What a queue held when it was counted.
#[derive(Debug)]
struct Held {
    id: i64,
    name: String,
    states: [(&'static str, i64); 3],
    oldest_age_ms: i64,
    paused: bool,
}

/// The queues as they were counted last.
#[derive(Debug)]
pub(crate) struct QueueMetrics {
    held: Mutex<Vec<Held>>,
    read_ns: AtomicU64,
    clock: Clock,
    dispatcher: Arc<Dispatcher>,
}

impl QueueMetrics {
    pub(crate) fn new(clock: Clock, dispatcher: Arc<Dispatcher>) -> Arc<Self> {
        let (held, read_ns) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(Self { held, read_ns, clock, dispatcher })
    }

    /// Counts, for ever, while the page is read.
    pub(crate) async fn look(self: Arc<Self>, databases: Databases) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let read_ns = self.read_ns.load(Ordering::Relaxed);
            if read_ns == 0 || self.clock.now_ns().saturating_sub(read_ns) > READ_NS {
                self.held.lock().clear();
                continue;
            }
            let held = match databases.look(LOOK, &[&QUEUES, &COUNTED]).await {
                Ok(rows) => rows.iter().map(held).collect(),
                Err(status) => {
                    tracing::debug!(%status, "the queues cannot be counted");
                    // Old counts would look like new ones.
                    Vec::new()
                }
            };
            *self.held.lock() = held;
        }
    }

    /// In Prometheus' text format.
    pub(crate) fn text(&self) -> String {
        self.read_ns.store(self.clock.now_ns().max(1), Ordering::Relaxed);
        let through = self.dispatcher.through();
        written(&self.held.lock(), |queue| through.get(&queue).copied().unwrap_or_default())
    }
}

fn held(row: &tokio_postgres::Row) -> Held {
    Held {
        id: row.get(0),
        name: row.get(1),
        states: [("waiting", row.get(2)), ("leased", row.get(3)), ("delayed", row.get(4))],
        oldest_age_ms: row.get(5),
        paused: row.get(6),
    }
}

fn written(queues: &[Held], through: impl Fn(i64) -> Through) -> String {
    let mut page = Exposition::default();
    let help = "Messages of a queue by state, counted up to 10000.";
    let mut messages = page.metric("kendall_queue_messages", "gauge", help);
    for queue in queues {
        for (state, count) in queue.states {
            messages.sample(&[("queue", &queue.name), ("state", state)], count);
        }
    }
    let mut by_queue = |name: &str, kind: &str, help: &str, value: &dyn Fn(&Held) -> String| {
        let mut metric = page.metric(name, kind, help);
        for queue in queues {
            metric.sample(&[("queue", &queue.name)], value(queue));
        }
    };
    by_queue(
        "kendall_queue_oldest_age_seconds",
        "gauge",
        "Age of the oldest message that waits.",
        &|queue| format!("{}.{:03}", queue.oldest_age_ms / 1000, queue.oldest_age_ms % 1000),
    );
    by_queue("kendall_queue_paused", "gauge", "Whether a queue gives out no messages.", &|queue| {
        u8::from(queue.paused).to_string()
    });
    by_queue(
        "kendall_queue_sent_total",
        "counter",
        "Messages sent to a queue through this middleware.",
        &|queue| through(queue.id).sent.to_string(),
    );
    by_queue(
        "kendall_queue_taken_total",
        "counter",
        "Messages received or leased from a queue through this middleware.",
        &|queue| through(queue.id).taken.to_string(),
    );
    by_queue(
        "kendall_queue_put_back_total",
        "counter",
        "Messages taken through this middleware and put back, because the answer did not reach the client.",
        &|queue| through(queue.id).put_back.to_string(),
    );
    page.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_told_as_prometheus_reads_them() {
        let queue = Held {
            id: 7,
            name: "a \"b\"\\\nc".into(),
            states: [("waiting", 3), ("leased", 0), ("delayed", 1)],
            oldest_age_ms: 61_005,
            paused: true,
        };
        let through = |id| Through { sent: 10 * u64::try_from(id).unwrap(), taken: 2, put_back: 1 };
        let text = written(&[queue], through);
        for line in [
            "kendall_queue_messages{queue=\"a \\\"b\\\"\\\\\\nc\",state=\"waiting\"} 3",
            "kendall_queue_oldest_age_seconds{queue=\"a \\\"b\\\"\\\\\\nc\"} 61.005",
            "kendall_queue_paused{queue=\"a \\\"b\\\"\\\\\\nc\"} 1",
            "kendall_queue_sent_total{queue=\"a \\\"b\\\"\\\\\\nc\"} 70",
            "# TYPE kendall_queue_taken_total counter",
            "kendall_queue_put_back_total{queue=\"a \\\"b\\\"\\\\\\nc\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
