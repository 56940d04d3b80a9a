//! Models beside the measurement of one load curve: calibrated on one point of it, scored at the
//! others.
//!
//! A model is one function of a curve and one line in [`MODELS`].

mod layers;
mod network;
mod station;

use crate::measured::OperatingPoint;
use crate::score::Comparison;

/// Makes comparisons for a curve, by rising load; none where the curve lacks what it needs.
pub type ModelOfCurve = fn(&[OperatingPoint]) -> Vec<Comparison>;

/// All models, simplest first.
pub const MODELS: &[ModelOfCurve] = &[
    station::mm1,
    station::mmm_from_lowest,
    station::mmm_from_maximum,
    station::mm1_of_backend,
    station::backend_from_lowest,
    station::backend_from_maximum,
    network::threads_workers_servers,
    layers::workers_and_connections,
    network::pool_and_cores,
];

/// Growth of the mean batch, along a curve or above 1, from which requests are no longer taken to be
/// served one by one: below it, models that take them so are off by less than other things make them.
pub(crate) const BATCHES: f64 = 1.1;

/// Every model of a curve. `curve` is ordered by rising load.
#[must_use]
pub fn compare(curve: &[OperatingPoint]) -> Vec<Comparison> {
    MODELS.iter().flat_map(|model| model(curve)).collect()
}

/// Index of the point of highest throughput.
fn place_of_maximum(curve: &[OperatingPoint]) -> Option<usize> {
    let throughput = |place: &usize| curve[*place].client.throughput_per_s;
    (0..curve.len()).max_by(|a, b| throughput(a).total_cmp(&throughput(b)))
}
