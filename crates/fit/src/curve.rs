//! Models beside the measurement of one load curve: calibrated on one point of it, scored at the
//! others.
//!
//! A model is one function of a curve and one line in `MODELS`.

mod calibrated;
mod layers;
mod network;
mod station;

pub use calibrated::inferred;

use crate::bottleneck::disturbing_share;
use crate::measured::{OperatingPoint, place_of_maximum};
use crate::saturation::Saturation;
use crate::score::Comparison;

/// Makes comparisons for a curve, by rising load; none where the curve lacks what it needs.
type ModelOfCurve = fn(&[OperatingPoint]) -> Vec<Comparison>;

/// When a model may be put beside a curve at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Only what it finds in the points itself.
    Points,
    /// Its rate of service is the highest throughput: the curve must be known to reach it.
    Saturation,
    /// Its cores are the host's, used by nothing else.
    OwnHost,
}

/// All models with what they need, simplest first.
const MODELS: &[(&str, Needs, ModelOfCurve)] = &[
    ("M/M/1", Needs::Saturation, station::mm1),
    ("M/M/m, service time of the lowest load", Needs::Points, station::mmm_from_lowest),
    ("M/M/m, service time of the highest throughput", Needs::Points, station::mmm_from_maximum),
    ("M/M/1 of the backend", Needs::Saturation, station::mm1_of_backend),
    ("backend M/M/m, service time of the lowest load", Needs::Points, station::backend_from_lowest),
    (
        "backend M/M/m, service time of the highest throughput",
        Needs::Points,
        station::backend_from_maximum,
    ),
    ("network: threads, workers, servers", Needs::Points, network::threads_workers_servers),
    ("network: workers and connections", Needs::Points, layers::workers_and_connections),
    ("network: delay, worker pool, cores", Needs::OwnHost, network::pool_and_cores),
];

/// Models of one curve, and those that do not apply to it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Beside {
    /// Best first, by the mean error where they were not calibrated.
    pub comparisons: Vec<Comparison>,
    /// What is left out, and why.
    pub left_out: Vec<LeftOut>,
}

/// A model that does not apply to a curve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    pub model: String,
    /// Why its assumptions or its calibration do not hold here, and what would make them.
    pub why: String,
}

/// Every model that applies to a curve, best first. `curve` is ordered by rising load, `found` is
/// what is known of its saturation.
pub fn beside(curve: &[OperatingPoint], found: Option<&Saturation>) -> Beside {
    let mut beside = Beside::default();
    if let Some(why) = found.filter(|found| !found.is_balanced()).and_then(|f| f.unknown.as_ref()) {
        let left_out = LeftOut { model: "every model".to_owned(), why: why.to_string() };
        return Beside { left_out: vec![left_out], ..beside };
    }
    for (name, needs, model) in MODELS {
        let comparisons = model(curve);
        if comparisons.is_empty() {
            continue;
        }
        match refused(*needs, curve, found) {
            None => beside.comparisons.extend(comparisons),
            Some(why) => beside.left_out.push(LeftOut { model: (*name).to_owned(), why }),
        }
    }
    beside.comparisons.sort_by(|a, b| error(a).total_cmp(&error(b)));
    beside
}

/// Stations of a configuration that is on no curve, each with the service time measured there: what they
/// predict is how long customers wait.
pub fn of_one_point(point: &OperatingPoint) -> Vec<Comparison> {
    station::of_one_point(point)
}

fn error(comparison: &Comparison) -> f64 {
    comparison.errors().map_or(f64::INFINITY, |errors| errors.mean)
}

fn refused(needs: Needs, curve: &[OperatingPoint], found: Option<&Saturation>) -> Option<String> {
    match needs {
        Needs::Points => None,
        Needs::Saturation => {
            if found.is_some_and(|found| found.shape.is_reached()) {
                return None;
            }
            let why = found.and_then(|found| found.unknown.as_ref()).map_or_else(
                || "throughput follows the load up to the highest one measured".to_owned(),
                ToString::to_string,
            );
            Some(format!(
                "its service rate would be the highest throughput, and this curve is not known to \
                 reach what the system can do: {why}"
            ))
        }
        Needs::OwnHost => {
            let busiest = place_of_maximum(curve).map(|place| &curve[place])?;
            let share = disturbing_share(busiest)?;
            Some(format!(
                "programs outside the study took {:.0} % of the busy cores' time, and this model \
                 assumes that all cores are the system's; a quieter machine would do",
                100.0 * share
            ))
        }
    }
}
