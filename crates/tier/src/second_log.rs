//! One line a second on the log, for those who watch a tier.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use kendall_units::{Rate, exact_f64};

use crate::instruments::{Counts, Instruments};
use crate::stop::Stop;

/// A thread that logs one line a second until the tier stops.
#[derive(Debug)]
pub struct SecondLog {
    thread: JoinHandle<()>,
}

impl SecondLog {
    /// Starts it.
    ///
    /// # Errors
    /// When the system has no more threads.
    pub fn start(instruments: Instruments, stop: Stop) -> io::Result<Self> {
        let thread = std::thread::Builder::new().name("second-log".into()).spawn(move || {
            let mut before = instruments.counts();
            let start_ns = before.at_ns;
            for second in 1_u64.. {
                let due_ns = start_ns + second * 1_000_000_000;
                let wait_ns = due_ns.saturating_sub(instruments.clock().now_ns());
                if stop.wait_for(Duration::from_nanos(wait_ns)) {
                    return;
                }
                let now = instruments.counts();
                log(instruments.tier(), &before, &now);
                before = now;
            }
        })?;
        Ok(Self { thread })
    }

    /// Waits for its end, after the stop.
    pub fn join(self) {
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

fn log(tier: &str, before: &Counts, now: &Counts) {
    let seconds = exact_f64(now.at_ns.saturating_sub(before.at_ns).max(1)) / 1e9;
    let rate = |now: u64, before: u64| Rate::per_second(exact_f64(now - before) / seconds).get();
    let outcomes: Vec<String> = now
        .outcomes
        .iter()
        .zip(&before.outcomes)
        .filter(|(now, before)| now.1 > before.1)
        .map(|(now, before)| format!("{}={}", now.0, now.1 - before.1))
        .collect();
    tracing::info!(
        tier,
        arrival_rate_per_s = rate(now.arrivals, before.arrivals).round(),
        throughput_per_s = rate(now.completions, before.completions).round(),
        queue_length = now.queue_length.current,
        queue_length_maximum = now.queue_length.recent_maximum,
        workers_busy = now.workers_busy.current,
        connections = now.connections.current,
        outcomes = outcomes.join(","),
    );
}
