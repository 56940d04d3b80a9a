//! A model beside the measurement: what it was calibrated on, and its error at every other point.

use kendall_queueing::station::StationSolution;
use kendall_stats::sample;
use kendall_units::exact_f64;
use serde::{Deserialize, Serialize};

use crate::model::Calibrated;
use crate::resource::ResourceId;

/// One response variable of one model along one load curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Name of the model, such as `M/M/64`.
    pub model: String,
    /// Name that it has on every curve, such as `M/M/m`: models of one family are one in a ranking.
    pub family: String,
    /// What the model assumes, in a sentence.
    pub assumes: String,
    /// What its inputs were taken from, in a sentence with the figures.
    pub calibrated_on: String,
    pub variable: Variable,
    /// One entry a point of the curve, by rising load.
    pub points: Vec<Compared>,
    /// What the model says of each device at the highest load that it has an answer for.
    pub devices: Vec<Device>,
    /// The device that the model names as the bottleneck.
    pub bottleneck: Option<String>,
    /// What limits the model's worth here.
    pub caveats: Vec<String>,
    /// The model itself, at the load of the highest throughput.
    #[serde(skip)]
    pub calibrated: Option<Calibrated>,
    /// Of a single station: all that the model says at each point that it has an answer for.
    #[serde(skip)]
    pub solutions: Vec<Option<StationSolution>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variable {
    /// R at the clients, seconds.
    ClientResponseTime,
    /// R at the first tier, seconds.
    TierResponseTime,
    /// X, per second.
    Throughput,
    /// Wait for a connection to the backend, and the exchange over it, seconds.
    BackendResponseTime,
}

impl Variable {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClientResponseTime => "response time at the clients",
            Self::TierResponseTime => "response time at the tier",
            Self::Throughput => "throughput",
            Self::BackendResponseTime => "response time of the backend",
        }
    }

    /// Whether it is a time, in seconds; otherwise it is a rate.
    pub fn is_time(self) -> bool {
        self != Self::Throughput
    }
}

/// One point: measured and predicted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// N or λ.
    pub load: f64,
    /// In the unit of the variable.
    pub measured: f64,
    /// In the unit of the variable, or why the model has no answer.
    pub predicted: Result<f64, String>,
    /// The point was used to calibrate, so its error is no test.
    pub calibration: bool,
}

impl Compared {
    /// `predicted / measured − 1`; `None` for a calibration point, or without an answer.
    pub fn relative_error(&self) -> Option<f64> {
        self.error_anywhere().filter(|_| !self.calibration)
    }

    /// The same at calibration points too, where it says less: how well the model keeps what it
    /// was given.
    pub fn error_anywhere(&self) -> Option<f64> {
        let predicted = self.predicted.as_ref().ok()?;
        (self.measured.abs() > 0.0).then(|| predicted / self.measured - 1.0)
    }
}

/// One device of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Device {
    pub name: String,
    /// The resource that it represents, by which it is found in a measurement; `None` for a delay.
    pub stands_for: Option<StandsFor>,
    /// m; `None` for a delay center.
    pub servers: Option<f64>,
    /// V: visits a request.
    pub visits: f64,
    /// S, seconds.
    pub service_time_s: f64,
    /// Utilization of one server that the model predicts; `None` for a delay center.
    pub utilization: Option<f64>,
    /// Customers at it, in service included.
    pub number_at_center: Option<f64>,
    /// Utilization that was measured at the same load, where it was.
    pub measured_utilization: Option<f64>,
}

/// The resource that a device of a model represents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StandsFor {
    System,
    /// Threads of a tier that are not workers.
    NetworkThreads(String),
    /// The same of one instance, counted from 0.
    NetworkThreadsOf(String, usize),
    /// Workers of one instance of a tier, counted from 0.
    WorkersOf(String, usize),
    /// A measured resource.
    Resource(ResourceId),
}

/// Pooled standard deviation of values within groups of one key; `None` where every group has one value.
pub fn pooled_spread<K: PartialEq>(values: impl Iterator<Item = (K, f64)>) -> Option<f64> {
    let mut groups: Vec<(K, Vec<f64>)> = Vec::new();
    for (key, value) in values {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    let (mut squares, mut freedom) = (0.0, 0);
    for (_, group) in groups.iter().filter(|(_, group)| group.len() > 1) {
        squares += sample::sum_of_squares(group);
        freedom += group.len() - 1;
    }
    (freedom > 0).then(|| (squares / exact_f64(freedom)).sqrt())
}

/// How far predictions lie from what was measured: absolute relative errors.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    pub points: usize,
    pub mean: f64,
    pub median: f64,
    /// Nine of ten are no larger.
    pub ninth_tenth: f64,
    pub worst: f64,
    /// Root mean square of ln(predicted/measured).
    pub log: f64,
}

impl Errors {
    /// Of pairs of predicted and measured; `None` where there are fewer than `fewest`.
    pub fn of(pairs: impl Iterator<Item = (f64, f64)>, fewest: usize) -> Option<Self> {
        let ratios: Vec<f64> = pairs
            .filter(|(_, measured)| *measured > 0.0)
            .map(|(predicted, measured)| predicted / measured)
            .collect();
        if ratios.len() < fewest.max(1) {
            return None;
        }
        let mut errors: Vec<f64> = ratios.iter().map(|ratio| (ratio - 1.0).abs()).collect();
        let mean = sample::mean(&errors);
        errors.sort_by(f64::total_cmp);
        let squares: Vec<f64> = ratios.iter().map(|ratio| ratio.ln().powi(2)).collect();
        Some(Self {
            points: ratios.len(),
            mean,
            median: sample::sorted_quantile(&errors, 0.5),
            ninth_tenth: sample::sorted_quantile(&errors, 0.9),
            worst: errors[errors.len() - 1],
            log: sample::mean(&squares).sqrt(),
        })
    }
}

impl Comparison {
    /// Errors where the model was not calibrated; `None` where it has no answer there.
    pub fn errors(&self) -> Option<Errors> {
        self.errors_of(|point| !point.calibration)
    }

    /// Errors at all points, calibration points included: a model may fail to keep what it was given.
    pub fn errors_anywhere(&self) -> Option<Errors> {
        self.errors_of(|_| true)
    }

    /// Points that were held out and for which the model has no answer.
    pub fn unanswered(&self) -> usize {
        self.points.iter().filter(|p| !p.calibration && p.predicted.is_err()).count()
    }

    fn errors_of(&self, counts: fn(&Compared) -> bool) -> Option<Errors> {
        let pair = |point: &Compared| Some((*point.predicted.as_ref().ok()?, point.measured));
        Errors::of(self.points.iter().filter(|point| counts(point)).filter_map(pair), 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calibration_point_does_not_flatter_the_model() {
        let compared = |predicted: Result<f64, String>, calibration| Compared {
            load: 1.0,
            measured: 2.0,
            predicted,
            calibration,
        };
        let comparison = Comparison {
            model: "M/M/1".to_owned(),
            family: "M/M/1".to_owned(),
            assumes: String::new(),
            calibrated_on: String::new(),
            variable: Variable::TierResponseTime,
            points: vec![
                compared(Ok(2.0), true),
                compared(Ok(3.0), false),
                compared(Ok(1.8), false),
                compared(Err("unstable".to_owned()), false),
            ],
            devices: Vec::new(),
            bottleneck: None,
            caveats: Vec::new(),
            calibrated: None,
            solutions: Vec::new(),
        };
        assert!((comparison.errors().unwrap().mean - 0.3).abs() < 1e-12);
        assert!((comparison.errors().unwrap().worst - 0.5).abs() < 1e-12);
        assert_eq!(comparison.unanswered(), 1);
        assert!((comparison.errors_anywhere().unwrap().worst - 0.5).abs() < 1e-12);
    }
}
