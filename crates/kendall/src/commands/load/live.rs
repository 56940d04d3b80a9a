//! A load on a terminal: one picture, drawn over the one before.

use std::fmt::Write as _;

use kendall_loadgen::load::LoadProgress;
use kendall_units::{Seconds, exact_f64};

use super::bars::bars;
use crate::terminal::{self, Stream};
use crate::text::beside;

/// Columns where the terminal's width is not known.
const USUAL_COLUMNS: u16 = 80;

/// Most seconds of throughput that are drawn.
const MOST_SECONDS: usize = 60;

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
        let columns = terminal::columns(Stream::Error).unwrap_or(USUAL_COLUMNS);
        let picture = self.picture(moment, usize::from(columns));
        let mut text = String::new();
        if self.lines > 0 {
            write!(text, "\u{1b}[{}A\r\u{1b}[J", self.lines).unwrap_or_default();
        }
        self.lines = picture.lines().count();
        // A line that does not fit is cut, not wrapped: the picture has as many rows as lines, at any width.
        text + NO_WRAP + &picture + WRAP
    }

    /// The whole so far, then the last second, then what is drawn; in each row what matters most first.
    fn picture(&self, moment: &LoadProgress, columns: usize) -> String {
        let time = |ns: Option<u64>| {
            ns.map_or_else(|| "–".to_owned(), |ns| Seconds::from_nanos(ns).to_string())
        };
        let at = |quantile| time(moment.response_time.quantile(quantile));
        let so_far = [
            format!("{} s", moment.elapsed_s),
            format!("errors {}", self.errors),
            format!("median {}", at(0.5)),
            format!("99 % {}", at(0.99)),
            format!("90 % {}", at(0.9)),
            format!("max {}", time(moment.response_time.max())),
        ];
        let mean = moment.response_time_mean_ns.map(|ns| Seconds::new(ns / 1e9).to_string());
        let last_second = [
            "last second:".to_owned(),
            format!("{}/s", moment.completed),
            format!("errors {}", moment.errors),
            format!("mean {}", mean.unwrap_or_else(|| "–".to_owned())),
            format!("99 % {}", time(moment.response_time_p99_ns)),
        ];
        let from = self.throughput.len().saturating_sub(MOST_SECONDS.min(columns));
        format!(
            "{}\n{}\n{}\n{}\n",
            beside(&so_far, columns),
            beside(&last_second, columns),
            spark(&self.throughput[from..]),
            bars(&moment.response_time, columns)
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

    /// At 80 columns the number of errors was cut to its last digit.
    #[test]
    fn no_number_is_cut_on_a_narrow_terminal_and_errors_come_first() {
        let live = Live { errors: 12_345_678, throughput: vec![7; 200], ..Live::default() };
        let mut response_time = Histogram::new();
        for ns in [1_234_567_890, 23_456_789_012, 34_567_890_123] {
            response_time.record_n(ns, 1_000_000);
        }
        let moment = LoadProgress {
            elapsed_s: 3600,
            completed: 123_456_789,
            errors: 9_876_543,
            response_time_mean_ns: Some(1.234_567_89e9),
            response_time_p99_ns: Some(34_567_890_123),
            response_time,
        };
        for columns in [40, 80, 120] {
            let picture = live.picture(&moment, columns);
            assert!(picture.starts_with("3600 s  errors 12345678  "), "{picture}");
            for line in picture.lines() {
                assert!(line.chars().count() <= columns, "{columns}: {line}");
            }
            assert!(picture.contains("\nlast second:  123456789/s"), "{picture}");
            assert!(picture.contains("errors 9876543"), "{picture}");
        }
    }
}
