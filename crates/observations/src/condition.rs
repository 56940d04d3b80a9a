//! A condition on what was measured, such as `p99 > 10ms`: what a load or a study is to fail for.

use kendall_stats::estimate::Estimate;
use kendall_units::{Rate, Seconds};

#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    pub text: String,
    pub metric: Metric,
    /// Whether it holds above the limit; else below.
    pub above: bool,
    /// In s, in 1/s, or a share.
    pub limit: f64,
}

/// What a condition is about.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Metric {
    Mean,
    /// A quantile of the response time, 0 to 1.
    Quantile(f64),
    /// Requests completed a second.
    Throughput,
    /// Failed requests of those that ended.
    Errors,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    Yes,
    No,
    /// The interval has the limit inside.
    CannotTell,
    /// Nothing was measured that it could be told by.
    NoValue,
}

impl Metric {
    /// The quantile that it is, if it is one.
    pub const fn quantile(self) -> Option<f64> {
        match self {
            Self::Quantile(quantile) => Some(quantile),
            Self::Mean | Self::Throughput | Self::Errors => None,
        }
    }
}

impl Holds {
    /// As results have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Yes => "holds",
            Self::No => "does not hold",
            Self::CannotTell => "cannot tell",
            Self::NoValue => "no value",
        }
    }

    /// What it means for what is to fail for it, in words.
    const fn outcome(self) -> &'static str {
        match self {
            Self::Yes | Self::NoValue => "failed",
            Self::No => "passed",
            Self::CannotTell => "cannot tell",
        }
    }

    /// Whether what is to fail for it fails: also where nothing is known of it.
    pub const fn fails(self) -> bool {
        matches!(self, Self::Yes | Self::NoValue)
    }
}

const FORM: &str =
    "write it like `p99 > 10ms`, `mean > 2ms`, `errors > 0.1%` or `throughput < 900/s`";

impl Condition {
    /// Reads `p99 > 10ms`, `p99.9 > 1s`, `mean > 2ms`, `errors > 0.1%` or `throughput < 900/s`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refused = || format!("`{text}` is not a condition; {FORM}");
        let at = text.find(['<', '>']).ok_or_else(refused)?;
        let (metric, rest) = text.split_at(at);
        let above = rest.starts_with('>');
        let limit = rest[1..].trim();
        let metric = Metric::parse(metric.trim()).ok_or_else(refused)?;
        let limit = match metric {
            Metric::Errors => kendall_units::parse_share(limit),
            Metric::Throughput => kendall_units::parse_rate(limit).map(Rate::get),
            Metric::Mean | Metric::Quantile(_) => {
                kendall_units::parse_seconds(limit).map(Seconds::get)
            }
        };
        let limit = limit.map_err(|error| format!("{error}; {FORM}"))?;
        Ok(Self { text: text.trim().to_owned(), metric, above, limit })
    }

    /// How it stands, by a value and its interval; by the value alone where there is no interval.
    pub fn holds(&self, value: Option<&Estimate>) -> Holds {
        let Some(value) = value else { return Holds::NoValue };
        let beyond =
            |number: f64| if self.above { number > self.limit } else { number < self.limit };
        let (low, high) = value
            .interval
            .map_or((value.center, value.center), |interval| (interval.low, interval.high));
        match (beyond(low), beyond(high)) {
            (true, true) => Holds::Yes,
            (false, false) => Holds::No,
            _ => Holds::CannotTell,
        }
    }

    /// What follows, and what was measured: `p99 > 10ms: failed, 12.3 ms (11 ms to 13 ms)`.
    pub fn told(&self, value: Option<&Estimate>) -> String {
        let outcome = self.holds(value).outcome();
        let Some(estimate) = value else {
            return format!("{}: {outcome}, since it was not measured", self.text);
        };
        let interval = estimate.interval.map_or_else(
            || "without an interval".to_owned(),
            |between| format!("{} to {}", self.shown(between.low), self.shown(between.high)),
        );
        format!("{}: {outcome}, {} ({interval})", self.text, self.shown(estimate.center))
    }

    fn shown(&self, number: f64) -> String {
        match self.metric {
            Metric::Errors => format!("{:.3} %", 100.0 * number),
            Metric::Throughput => Rate::per_second(number).to_string(),
            Metric::Mean | Metric::Quantile(_) => Seconds::new(number).to_string(),
        }
    }
}

impl Metric {
    /// Reads `mean`, `errors`, `throughput`, `p99` or `p99.9`.
    fn parse(text: &str) -> Option<Self> {
        match text {
            "mean" => Some(Self::Mean),
            "errors" => Some(Self::Errors),
            "throughput" => Some(Self::Throughput),
            _ => {
                let percent: f64 = text.strip_prefix('p')?.parse().ok()?;
                Some(percent / 100.0).filter(|q| *q > 0.0 && *q < 1.0).map(Self::Quantile)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kendall_stats::estimate::Interval;

    use super::*;

    #[test]
    fn a_condition_is_a_metric_and_a_limit_of_its_kind() {
        let tail = Condition::parse("p99.9 > 10ms").unwrap();
        assert!(matches!(tail.metric, Metric::Quantile(q) if (q - 0.999).abs() < 1e-12));
        assert!(tail.above && (tail.limit - 0.01).abs() < 1e-12);
        assert!((Condition::parse("errors>0.1%").unwrap().limit - 0.001).abs() < 1e-12);
        assert!(!Condition::parse(" throughput < 900/s").unwrap().above);
        for bad in [
            "p99",
            "p99 10ms",
            "p0 > 1ms",
            "p100 > 1ms",
            "q99 > 1ms",
            "p99 > 1",
            "p99 > 1%",
            "errors > 1ms",
        ] {
            assert!(Condition::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_limit_inside_the_interval_cannot_be_told() {
        let condition = Condition::parse("p99 > 10ms").unwrap();
        let of = |low, high| {
            let interval = Interval { low, high, confidence: 0.95 };
            condition.holds(Some(&Estimate::with_interval(0.011, interval)))
        };
        assert_eq!(of(0.0105, 0.012), Holds::Yes);
        assert_eq!(of(0.005, 0.009), Holds::No);
        assert_eq!(of(0.009, 0.012), Holds::CannotTell);
        assert_eq!(condition.holds(Some(&Estimate::exact(0.011))), Holds::Yes);
        assert_eq!(condition.holds(None), Holds::NoValue);
        let told = |value: Option<f64>| condition.told(value.map(Estimate::exact).as_ref());
        assert_eq!(told(Some(0.011)), "p99 > 10ms: failed, 11.00 ms (without an interval)");
        assert_eq!(told(Some(0.009)), "p99 > 10ms: passed, 9.000 ms (without an interval)");
        assert_eq!(told(None), "p99 > 10ms: failed, since it was not measured");
    }
}
