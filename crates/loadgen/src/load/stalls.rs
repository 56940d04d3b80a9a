//! Closed loop: did the server stand still?
//!
//! While it does, nothing completes and a closed loop sends nothing, so that its percentiles hold
//! one slow request a client, however long the stall. What completes, and when, shows it all the
//! same: the silences between completions.

use kendall_stats::histogram::Histogram;
use kendall_units::exact_f64;

use crate::clock::MILLISECOND_NS;
use kendall_protocols::load_result::Stalls;

/// Silences this many times the mean are not chance: a Poisson process has one in 5·10⁸.
const TIMES_THE_MEAN: f64 = 20.0;

/// Shorter silences than this are the machine's own: a core that wakes up late.
const SHORTEST_NS: u64 = 5 * MILLISECOND_NS;

/// The stalls that every thread saw: those of the thread with the smallest share. A thread whose
/// own core was taken away is silent by itself.
pub(super) fn find<'a>(silences: impl Iterator<Item = &'a Histogram>) -> Option<Stalls> {
    silences.filter_map(of_thread).min_by(|a, b| a.share.total_cmp(&b.share))
}

fn of_thread(silences: &Histogram) -> Option<Stalls> {
    let mean = silences.mean()?;
    let total = mean * exact_f64(silences.count());
    // A silence that comes with every hundredth completion is how this server works.
    let usual = 2.0 * exact_f64(silences.quantile(0.99)?);
    let limit_ns = kendall_units::whole_u64((TIMES_THE_MEAN * mean).max(usual)).max(SHORTEST_NS);
    let long: Vec<(f64, u64)> = silences
        .cells()
        .filter(|(low, ..)| *low > limit_ns)
        .map(|(low, high, count)| (exact_f64(low + (high - low) / 2), count))
        .collect();
    let silent: f64 = long.iter().map(|(length, count)| length * exact_f64(*count)).sum();
    Some(Stalls {
        count: long.iter().map(|(_, count)| count).sum(),
        share: silent / total,
        longest_ns: if long.is_empty() { 0 } else { silences.max().unwrap_or(0) },
        limit_ns,
        arrival_wait_p99_ns: arrival_wait(&long, total, 0.99),
    })
}

/// The wait until the end of a stall that a share `quantile` of all moments stays below. At a
/// random moment of a stall of length L the wait is uniform between 0 and L, so the moments with a
/// wait above w make up Σ max(L − w, 0) of the time.
fn arrival_wait(long: &[(f64, u64)], total: f64, quantile: f64) -> u64 {
    let above = |wait: f64| -> f64 {
        long.iter().map(|(length, count)| (length - wait).max(0.0) * exact_f64(*count)).sum()
    };
    let target = (1.0 - quantile) * total;
    if above(0.0) <= target {
        return 0;
    }
    let (mut low, mut high) = (0.0, long.iter().map(|(length, _)| *length).fold(0.0, f64::max));
    // Halving 60 times leaves less than a nanosecond of a century.
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if above(middle) > target { low = middle } else { high = middle }
    }
    kendall_units::whole_u64(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 ms of every second, ten times: an arriving request waits 90 ms at the 99th percentile,
    /// since the waits above w make up 10·(100 ms − w) of 10 s, a hundredth at w = 90 ms.
    #[test]
    fn a_server_that_stalls_a_tenth_of_the_time_is_found() {
        let mut silences = Histogram::new();
        silences.record_n(10_000, 900_000); // 9 s
        silences.record_n(100 * MILLISECOND_NS, 10);
        let stalls = find([&silences].into_iter()).unwrap();
        assert_eq!(stalls.count, 10);
        // Histogram cells are 0.1 % wide.
        assert!((stalls.share - 0.1).abs() < 2e-4, "{stalls:?}");
        let wait = exact_f64(stalls.arrival_wait_p99_ns);
        assert!((wait / 90e6 - 1.0).abs() < 2e-3, "{stalls:?}");
    }

    #[test]
    fn one_thread_without_a_core_is_no_stall_of_the_server() {
        let mut stalled = Histogram::new();
        stalled.record_n(10_000, 100_000);
        let mut steady = stalled.clone();
        stalled.record_n(200 * MILLISECOND_NS, 5);
        steady.record_n(11_000, 100_000);
        let stalls = find([&stalled, &steady].into_iter()).unwrap();
        assert_eq!((stalls.count, stalls.arrival_wait_p99_ns), (0, 0));
    }

    #[test]
    fn slow_and_even_is_no_stall() {
        let mut silences = Histogram::new();
        silences.record_n(300 * MILLISECOND_NS, 100);
        assert_eq!(find([&silences].into_iter()).unwrap().count, 0);
    }
}
