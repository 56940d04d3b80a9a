//! A predicted number with its interval.

use serde::Serialize;

/// A predicted number with its 95 % prediction interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    pub center: f64,
    pub low: f64,
    pub high: f64,
    /// What makes most of its width.
    pub why: Why,
}

impl Interval {
    /// Whether it ends within three times the prediction: one that is wider says next to nothing.
    pub fn tells(&self) -> bool {
        self.high <= 3.0 * self.center
    }

    /// Adds an independent error that reaches so far on the logarithm, to either side.
    pub(crate) fn widen(&mut self, reach: f64) {
        let end = |end: f64| (end / self.center).ln().hypot(reach).exp();
        (self.low, self.high) = (self.center / end(self.low), self.center * end(self.high));
    }

    /// Whether `value` lies inside.
    pub fn holds(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// What an interval is wide for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// Demands are known from few runs.
    Fit,
    /// The machine's speed differs from run to run.
    Drift,
    /// A run of this length shows chance.
    Chance,
    /// The structure is not the system.
    Model,
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Fit => "what the calibration leaves open",
            Self::Drift => "the machine's drift between runs",
            Self::Chance => "chance in a run of this length",
            Self::Model => "the model's own error",
        })
    }
}
