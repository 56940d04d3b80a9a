//! A load on a terminal: one picture, drawn over the one before.

use std::fmt::Write as _;

use kendall_loadgen::load::LoadProgress;
use kendall_units::{Seconds, exact_f64};

use super::human;

/// Seconds of throughput that are drawn.
const COLUMNS: usize = 60;

/// Lines that do not fit are cut …
const NO_WRAP: &str = "\u{1b}[?7l";
/// … and continue on the next row again.
const WRAP: &str = "\u{1b}[?7h";

/// What was drawn last.
#[derive(Debug, Default)]
pub(crate) struct Live {
    lines: usize,
    throughput: Vec<u64>,
    errors: u64,
}

impl Live {
    /// The next picture, with what takes the cursor back over the last.
    pub(crate) fn next(&mut self, moment: &LoadProgress) -> String {
        self.throughput.push(moment.completed);
        self.errors += moment.errors;
        let picture = self.picture(moment);
        let mut text = String::new();
        if self.lines > 0 {
            write!(text, "\u{1b}[{}A\r\u{1b}[J", self.lines).unwrap_or_default();
        }
        self.lines = picture.lines().count();
        // A line that does not fit is cut, not wrapped: the picture has as many rows as lines, at any width.
        text + NO_WRAP + &picture + WRAP
    }

    fn picture(&self, moment: &LoadProgress) -> String {
        let time = |ns: Option<u64>| {
            ns.map_or_else(|| "–".to_owned(), |ns| Seconds::from_nanos(ns).to_string())
        };
        let at = |quantile| time(moment.response_time.quantile(quantile));
        let from = self.throughput.len().saturating_sub(COLUMNS);
        format!(
            "{}\n{}  {}/s in the last second\nerrors {}; all so far: median {}, 90 % {}, 99 % {}, \
             max {}\n{}\n",
            human::progress(moment),
            spark(&self.throughput[from..]),
            moment.completed,
            self.errors,
            at(0.5),
            at(0.9),
            at(0.99),
            time(moment.response_time.max()),
            human::bars(&moment.response_time)
        )
    }
}

/// One column a value, from 0 to the largest.
fn spark(values: &[u64]) -> String {
    let most = exact_f64(values.iter().copied().max().unwrap_or(0).max(1));
    let steps = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    values
        .iter()
        .map(|value| {
            let step = kendall_units::whole_u64(exact_f64(*value) / most * 7.0);
            steps[usize::try_from(step).unwrap_or(0).min(7)]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kendall_stats::histogram::Histogram;

    #[test]
    fn each_picture_takes_back_the_lines_of_the_one_before() {
        let mut live = Live::default();
        let mut response_time = Histogram::new();
        response_time.record(1_000_000);
        let moment = LoadProgress {
            elapsed_s: 1,
            completed: 10,
            errors: 1,
            response_time_mean_ns: Some(1e6),
            response_time_p99_ns: Some(1_000_000),
            response_time,
        };
        let first = live.next(&moment);
        // No row is wrapped, also where the terminal is narrower than a line.
        let inside = first.strip_prefix(NO_WRAP).and_then(|rest| rest.strip_suffix(WRAP)).unwrap();
        assert!(!inside.contains('\u{1b}'), "{first}");
        let second = live.next(&moment);
        let back = format!("\u{1b}[{}A", inside.lines().count());
        assert!(second.starts_with(&back), "{second:?}");
        assert!(second.contains("██") && second.contains("errors 2"), "{second}");
    }

    /// A row is cut at the width of the terminal: what comes last is lost first.
    #[test]
    fn all_digits_of_the_errors_are_within_80_columns() {
        let mut live = Live { errors: 12_345_678, ..Live::default() };
        let mut response_time = Histogram::new();
        [1_234_567_890, 23_456_789_012, 34_567_890_123].map(|ns| response_time.record(ns));
        let moment = LoadProgress {
            elapsed_s: 3600,
            completed: 123_456_789,
            errors: 0,
            response_time_mean_ns: Some(1.234_567_89e9),
            response_time_p99_ns: Some(34_567_890_123),
            response_time,
        };
        let picture = live.next(&moment);
        let seen = |line: &str| line.chars().take(80).collect::<String>();
        assert!(picture.lines().any(|line| seen(line).contains("errors 12345678;")), "{picture}");
    }
}
