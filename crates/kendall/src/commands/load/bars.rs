//! Times in few columns: with three figures, and as bars.

use kendall_report::document::Unit;
use kendall_stats::histogram::Histogram;
use kendall_units::exact_f64;

/// Seconds, to what a table has room for.
pub(super) const TIME: Unit = Unit::Time(3);

const BARS: usize = 11;

/// Width of the longest bar, where there is room for it.
const LONGEST_BAR: usize = 40;

/// Width of what stands before a bar.
const BEFORE_BARS: usize = 29;

/// Counts between the smallest value and the 99.9th percentile in steps of equal ratio, and what
/// lies beyond in the last row; in so many columns.
pub(crate) fn bars(times: &Histogram, columns: usize) -> String {
    let longest = columns.saturating_sub(BEFORE_BARS).clamp(1, LONGEST_BAR);
    let bounds = times.min().map(exact_f64).zip(times.quantile(0.999).map(exact_f64));
    let Some((low, high)) = bounds else { return String::new() };
    let step = (high.max(low * 1.001) / low.max(1.0)).powf(1.0 / exact_f64(BARS as u64 - 1));
    let mut edges: Vec<f64> = Vec::new();
    let mut edge = low.max(1.0);
    for _ in 1..BARS {
        edge *= step;
        edges.push(edge);
    }
    let mut counts = [0_u64; BARS];
    for (from, to, count) in times.cells() {
        let middle = exact_f64(from + (to - from) / 2);
        counts[edges.partition_point(|edge| *edge < middle)] += count;
    }
    let most = exact_f64(counts.iter().copied().max().unwrap_or(1).max(1));
    let mut text = String::new();
    for (row, count) in counts.iter().enumerate() {
        let label = edges.get(row).map_or_else(
            || format!("more than {}", TIME.print(edges.last().copied().unwrap_or(high) / 1e9)),
            |edge| format!("up to {}", TIME.print(*edge / 1e9)),
        );
        let eighths = kendall_units::whole_u64(exact_f64(*count) / most * exact_f64(longest) * 8.0);
        let full = usize::try_from(eighths / 8).unwrap_or(0);
        let part =
            ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][usize::try_from(eighths % 8).unwrap_or(0)];
        text.push_str(format!("{label:>17} {count:>10} {}{part}", "█".repeat(full)).trim_end());
        text.push('\n');
    }
    text.trim_end_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_holds_every_value_and_its_longest_bar_is_full() {
        let mut times = Histogram::new();
        for value in 1..=1_000_u64 {
            times.record(value * 10_000);
        }
        times.record(5_000_000_000);
        let text = bars(&times, 80);
        let counts: u64 = text
            .lines()
            .map(|line| {
                let mut words = line.split_whitespace().skip_while(|w| !w.ends_with('s'));
                words.next();
                words.next().unwrap().parse::<u64>().unwrap()
            })
            .sum();
        assert_eq!(counts, 1_001, "{text}");
        assert_eq!(text.lines().map(|l| l.matches('█').count()).max(), Some(40), "{text}");
        assert_eq!(text.lines().count(), BARS);
    }
}
