//! A load that changes in stages: a rate or a number of clients that goes from one level to the next in a straight line.

use kendall_units::{Seconds, exact_f64};

/// Stages one after the other; the first begins at zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Stages {
    pub of: Level,
    pub list: Vec<Stage>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Arrivals a second, of an open loop.
    Rate,
    /// Clients of a closed loop.
    Clients,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    /// How long it lasts; with 0 the level changes at once.
    pub length: Seconds,
    /// The level at its end.
    pub to: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` {what}; write stages like `30s:100/s,1m:500/s`, or of clients `30s:10,1m:50`")]
pub struct StagesError {
    text: String,
    what: String,
}

impl Stages {
    /// Reads `30s:100/s,1m:500/s` (rates) or `30s:10,1m:50` (clients).
    pub fn parse(text: &str) -> Result<Self, StagesError> {
        let refuse = |what: &str| StagesError { text: text.to_owned(), what: what.to_owned() };
        let mut list = Vec::new();
        let mut of = None;
        for part in text.split(',') {
            let (stage, level) =
                stage(part.trim()).ok_or_else(|| refuse("is not a list of stages"))?;
            if of.is_some_and(|of| of != level) {
                return Err(refuse("mixes rates and clients"));
            }
            of = Some(level);
            list.push(stage);
        }
        let stages = Self { of: of.unwrap_or(Level::Rate), list };
        if stages.length().get() <= 0.0 || stages.highest() <= 0.0 {
            return Err(refuse("has no time or no load"));
        }
        Ok(stages)
    }

    pub fn length(&self) -> Seconds {
        Seconds::new(self.list.iter().map(|stage| stage.length.get()).sum())
    }

    pub fn highest(&self) -> f64 {
        self.list.iter().map(|stage| stage.to).fold(0.0, f64::max)
    }

    /// Each stage as a line: its moments and its levels.
    fn lines(&self) -> impl Iterator<Item = Line> + '_ {
        let start = Line { from_s: 0.0, to_s: 0.0, from: 0.0, to: 0.0 };
        self.list.iter().scan(start, |last, stage| {
            let to_s = last.to_s + stage.length.get();
            *last = Line { from_s: last.to_s, to_s, from: last.to, to: stage.to };
            Some(*last)
        })
    }

    /// Rates: the moment, in s, by which so many arrivals are due; `None` where there are fewer.
    pub(crate) fn moment_s(&self, arrivals: f64) -> Option<f64> {
        let mut left = arrivals;
        for line in self.lines() {
            let area = f64::midpoint(line.from, line.to) * (line.to_s - line.from_s);
            if left < area {
                // λ·t + s·t²/2 = n, in the form that loses no digits where the slope s is near 0.
                let root = line.from.mul_add(line.from, 2.0 * line.slope() * left).max(0.0).sqrt();
                let sum = line.from + root;
                return Some(line.from_s + if sum > 0.0 { 2.0 * left / sum } else { 0.0 });
            }
            left -= area;
        }
        None
    }

    /// Clients: the first moment from `at_s` on, in s, at which client number `client` (from 0) takes part; it
    /// does while the level, rounded, is above its number. `None` where it never does again.
    pub(crate) fn active_from_s(&self, client: usize, at_s: f64) -> Option<f64> {
        let needed = exact_f64(client) + 0.5;
        self.lines().filter(|line| line.to_s > at_s && line.to_s > line.from_s).find_map(|line| {
            let from_s = at_s.max(line.from_s);
            let level = (from_s - line.from_s).mul_add(line.slope(), line.from);
            if level >= needed {
                Some(from_s)
            } else if line.to >= needed {
                Some(line.from_s + (needed - line.from) / line.slope()).map(|s| s.max(from_s))
            } else {
                None
            }
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Line {
    from_s: f64,
    to_s: f64,
    from: f64,
    to: f64,
}

impl Line {
    fn slope(self) -> f64 {
        (self.to - self.from) / (self.to_s - self.from_s)
    }
}

/// `30s:100/s` or `30s:10`.
fn stage(text: &str) -> Option<(Stage, Level)> {
    let (length, to) = text.split_once(':')?;
    let length = kendall_units::parse_seconds(length).ok()?;
    let (to, level) = match to.parse::<u32>() {
        Ok(clients) => (f64::from(clients), Level::Clients),
        Err(_) => (kendall_units::parse_rate(to).ok()?.get(), Level::Rate),
    };
    (to.is_finite() && to >= 0.0).then_some((Stage { length, to }, level))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_due_by_the_area_below_the_rate() {
        let ramp = Stages::parse("10s:100/s,0s:50/s,10s:50/s").unwrap();
        assert_eq!(ramp.of, Level::Rate);
        // 0 to 100/s in 10 s are 5·t² arrivals by t: 500 in all, then 50/s.
        for (arrivals, moment) in
            [(0.0, 0.0), (125.0, 5.0), (320.0, 8.0), (500.0, 10.0), (750.0, 15.0)]
        {
            let found = ramp.moment_s(arrivals).unwrap();
            assert!((found - moment).abs() < 1e-9, "{arrivals}: {found}");
        }
        assert_eq!(ramp.moment_s(1_000.0), None);
        assert!((ramp.length().get() - 20.0).abs() < 1e-12);
    }

    #[test]
    fn clients_come_and_go_with_the_level() {
        let ramp = Stages::parse("8s:8,4s:8,8s:0").unwrap();
        assert_eq!(ramp.of, Level::Clients);
        let from = |client, at| ramp.active_from_s(client, at);
        assert_eq!((from(0, 0.0), from(7, 0.0)), (Some(0.5), Some(7.5)));
        assert_eq!((from(7, 9.0), from(7, 12.4)), (Some(9.0), Some(12.4)));
        // Down from 8 at 12 s: client 7 stops at 12.5 s, client 0 at 19.5 s.
        assert_eq!((from(7, 12.6), from(0, 19.4), from(0, 19.6)), (None, Some(19.4), None));
        assert_eq!(from(8, 0.0), None);
        let twice = Stages::parse("0s:1,1s:1,0s:0,1s:0,0s:1,1s:1").unwrap();
        assert_eq!(twice.active_from_s(0, 0.0), Some(0.0));
        assert_eq!(twice.active_from_s(0, 1.2), Some(2.0));
    }

    #[test]
    fn what_is_no_list_of_stages_is_refused() {
        for text in ["", "30s", "30s:x", "30s:10,1m:5/s", "0s:10", "10s:0", "10s:-1", "10:10/s,"] {
            assert!(Stages::parse(text).is_err(), "{text}");
        }
    }
}
