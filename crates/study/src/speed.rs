//! How fast the cores are, while a run is under way: a probe that does the same work again and again.
//!
//! The speed of a virtual machine drifts by 10 to 40 % within minutes, with no stolen time and no
//! foreign process to be seen. One thread a core multiplies for some 50 µs every 50 ms and asks for
//! its own CPU time, so that neither preemption nor sleep counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kendall_host::clock::{monotonic_ns, thread_cpu_ns};
use kendall_stats::estimate::Caveat;
use kendall_store::{HostUse, MeasuredWindow, RunRecord, SpeedSample};
use kendall_units::{exact_f64, whole_u64};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Between two units of work on a core.
const PAUSE: Duration = Duration::from_millis(50);
/// Multiplications of one unit: each waits for the one before, so that no cleverness of the compiler
/// or the core shortens it.
const MULTIPLICATIONS: u32 = 12_000;
/// A prime below 2³¹.
const MODULUS: u64 = 2_147_483_647;
/// What a sample averages over.
const SECOND_NS: u64 = 1_000_000_000;

/// Probes all cores that this process may use, until it is stopped.
#[derive(Debug)]
pub(crate) struct Probe {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<SpeedSample>>>,
}

impl Probe {
    /// Starts a thread on each core; a core where that is refused is not probed.
    pub(crate) fn start(host: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let allowed = sched_getaffinity(None).ok();
        let cores =
            (0..CpuSet::MAX_CPU).filter(|core| allowed.is_some_and(|set| set.is_set(*core)));
        let on = |core: usize| {
            let (stop, host) = (Arc::clone(&stop), host.to_owned());
            let thread = std::thread::Builder::new().name(format!("speed-{core}"));
            thread.spawn(move || watch(core, &host, &stop)).ok()
        };
        let threads = cores.filter_map(on).collect();
        Self { stop, threads }
    }

    /// Ends it; what was seen, by core and time.
    pub(crate) fn end(mut self) -> Vec<SpeedSample> {
        self.stop.store(true, Ordering::Relaxed);
        let threads = std::mem::take(&mut self.threads);
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    }
}

/// A run that is given up stops it too.
impl Drop for Probe {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Mean over cores and seconds of the measured window; `None` where nothing was probed in it.
pub(crate) fn mean_ns(samples: &[SpeedSample], window: &MeasuredWindow) -> Option<f64> {
    // A sample tells of the second before it.
    let middle = |sample: &SpeedSample| sample.at_ns.saturating_sub(SECOND_NS / 2);
    let inside = |sample: &&SpeedSample| (window.from_ns..=window.to_ns).contains(&middle(sample));
    let times: Vec<f64> = samples.iter().filter(inside).map(|sample| sample.unit_ns).collect();
    (!times.is_empty()).then(|| times.iter().sum::<f64>() / exact_f64(times.len()))
}

/// Difference of the probe's time between runs beside each other, from which one is taken to have had
/// another machine; and of their busy shares, up to which they are alike. An idle machine shows up to
/// 45 % longer times than a busy one.
const DIFFERS: f64 = 0.15;
const ALIKE: f64 = 0.15;
/// Runs to compare with.
const LEAST_RUNS: usize = 2;

/// What the probe showed in a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SpeedOfRun {
    block: u32,
    busy: f64,
    unit_ns: f64,
}

impl SpeedOfRun {
    /// Of a run that was measured and probed.
    pub(crate) fn of(record: &RunRecord) -> Option<Self> {
        let window = record.run.measured.as_ref()?;
        let busy = HostUse::of(&record.hosts, window)?.utilization();
        Some(Self { block: record.run.repetition, busy, unit_ns: record.run.speed_unit_ns? })
    }

    /// A caveat where the speed of the machine differs from that in runs of the same block at a similar load.
    pub(crate) fn doubt(self, others: &[Self]) -> Option<Caveat> {
        let like =
            |other: &&Self| other.block == self.block && (other.busy - self.busy).abs() <= ALIKE;
        let times: Vec<f64> = others.iter().filter(like).map(|other| other.unit_ns).collect();
        let mean = times.iter().sum::<f64>() / exact_f64(times.len().max(1));
        let relative_change = self.unit_ns / mean - 1.0;
        let differs = times.len() >= LEAST_RUNS && relative_change.abs() > DIFFERS;
        let runs = whole_u64(exact_f64(times.len()));
        differs.then_some(Caveat::SpeedDiffers { relative_change, runs })
    }
}

fn watch(core: usize, host: &str, stop: &AtomicBool) -> Vec<SpeedSample> {
    let mut only = CpuSet::new();
    only.set(core);
    if sched_setaffinity(None, &only).is_err() {
        return Vec::new();
    }
    let number = u32::try_from(core).unwrap_or(u32::MAX);
    let mut samples = Vec::new();
    let (mut sum_ns, mut count, mut since) = (0_u64, 0_u64, monotonic_ns());
    // The first unit brings code and data into the caches and does not count.
    unit();
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(PAUSE);
        sum_ns += unit();
        count += 1;
        let now = monotonic_ns();
        if now.saturating_sub(since) >= SECOND_NS || stop.load(Ordering::Relaxed) {
            let unit_ns = exact_f64(sum_ns) / exact_f64(count);
            samples.push(SpeedSample { host: host.to_owned(), core: number, at_ns: now, unit_ns });
            (sum_ns, count, since) = (0, 0, now);
        }
    }
    samples
}

/// One unit of work; the CPU time that it took, in ns.
fn unit() -> u64 {
    let before = thread_cpu_ns();
    let mut x = 3_u64;
    for i in 0..MULTIPLICATIONS {
        x = (x * 48_271 + u64::from(i)) % MODULUS;
    }
    std::hint::black_box(x);
    thread_cpu_ns().saturating_sub(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_core_is_probed_and_the_end_is_no_wait() {
        let probe = Probe::start("here");
        let cores = probe.threads.len();
        assert!(cores > 0);
        let samples = probe.end();
        assert!(samples.len() <= cores, "{samples:?}");
        // Every thread does one unit at least before it looks whether to stop.
        for sample in &samples {
            assert!(sample.unit_ns > 0.0 && sample.host == "here" && sample.at_ns > 0);
        }
    }

    #[test]
    fn a_run_on_another_machine_says_so_and_an_idle_one_is_compared_with_idle_ones() {
        let run = |block, busy, unit_ns| SpeedOfRun { block, busy, unit_ns };
        let others = [run(0, 0.9, 50e3), run(0, 0.95, 51e3), run(0, 0.1, 62e3), run(1, 0.9, 70e3)];
        assert_eq!(run(0, 0.92, 55e3).doubt(&others), None);
        // One run at a like load is not a block.
        assert_eq!(run(0, 0.1, 90e3).doubt(&others), None);
        let said = run(0, 0.9, 66e3).doubt(&others).unwrap().to_string();
        assert!(said.starts_with("the machine was 31 % slower than in 2 runs"), "{said}");
    }

    /// Its CPU time is its own: what a unit takes is more than a thousandth of what the same thread is
    /// charged for a hundred of them, whatever else runs.
    #[test]
    fn a_unit_is_charged_to_the_thread_that_does_it() {
        unit();
        let before = thread_cpu_ns();
        let units: u64 = (0..100).map(|_| unit()).sum();
        let all = thread_cpu_ns() - before;
        assert!(units <= all && units * 2 > all, "{units} of {all}");
    }
}
