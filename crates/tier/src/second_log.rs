//! One line a second on the log, for those who watch a tier.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use kendall_units::{Rate, exact_f64};

use crate::instruments::{COMMON_STAGES, Counts, Instruments};
use crate::stop::Stop;

/// A thread that logs one line a second until the tier stops.
#[derive(Debug)]
pub struct SecondLog {
    thread: JoinHandle<()>,
}

impl SecondLog {
    pub fn start(instruments: Instruments, stop: Stop) -> io::Result<Self> {
        let thread = std::thread::Builder::new().name("second-log".into()).spawn(move || {
            let mut before = instruments.counts();
            let mut times = instruments.stage_sums();
            let start_ns = before.at_ns;
            for second in 1_u64.. {
                let due_ns = start_ns + second * 1_000_000_000;
                let wait_ns = due_ns.saturating_sub(instruments.clock().now_ns());
                if stop.wait_for(Duration::from_nanos(wait_ns)) {
                    return;
                }
                let now = instruments.counts();
                let sums = instruments.stage_sums();
                log(instruments.tier(), (&before, &now), &means(&times, &sums));
                before = now;
                times = sums;
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

/// Sums of times in the stages that all tiers have.
type Sums = [(f64, u64); COMMON_STAGES.len()];

/// Mean of each stage between two readings, in ms; `None` without a request.
fn means(before: &Sums, now: &Sums) -> [Option<f64>; COMMON_STAGES.len()] {
    std::array::from_fn(|stage| {
        let requests = now[stage].1.saturating_sub(before[stage].1);
        let nanoseconds = now[stage].0 - before[stage].0;
        // To a microsecond.
        (requests > 0).then(|| (nanoseconds / exact_f64(requests) / 1e3).round() / 1e3)
    })
}

fn log(
    tier: &str,
    (before, now): (&Counts, &Counts),
    [waiting, service, backend, response]: &[Option<f64>; COMMON_STAGES.len()],
) {
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
        response_time_ms = response,
        waiting_time_ms = waiting,
        service_time_ms = service,
        backend_time_ms = backend,
        outcomes = outcomes.join(","),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_those_of_the_second_and_not_of_all_time() {
        let before = [(1e9, 100), (0.0, 0), (0.0, 0), (1e9, 100)];
        let now = [(1e9 + 4e6, 102), (3e6, 2), (0.0, 0), (1e9 + 7e6, 102)];
        assert_eq!(means(&before, &now), [Some(2.0), Some(1.5), None, Some(3.5)]);
    }
}
