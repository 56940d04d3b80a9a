//! What is kept of a histogram: moments, percentiles and steps of 0.1 ms, so that
//! hundreds of configurations fit into memory.

use kendall_stats::estimate::Caveat;
use kendall_stats::histogram::Histogram;
use kendall_stats::sample::{enough_for, needed_for};
use kendall_units::exact_f64;

/// Percentiles that are always known, as quantiles.
pub const PERCENTILES: [f64; 6] = [0.25, 0.5, 0.75, 0.9, 0.95, 0.99];

/// Width of the steps of the printed histograms.
pub const STEP_NS: u64 = 100_000;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Distribution {
    pub count: u64,
    pub mean_s: f64,
    pub standard_deviation_s: f64,
    /// In the order of [`PERCENTILES`].
    pub percentiles_s: Vec<f64>,
    /// Count by step of 0.1 ms: number of the step, requests in it.
    pub steps: Vec<(u64, u64)>,
}

impl Distribution {
    /// Of a histogram of nanoseconds.
    pub fn of(histogram: &Histogram) -> Self {
        let seconds = |ns: Option<u64>| ns.map_or(f64::NAN, |ns| exact_f64(ns) / 1e9);
        Self {
            count: histogram.count(),
            mean_s: histogram.mean().unwrap_or(f64::NAN) / 1e9,
            standard_deviation_s: histogram.standard_deviation().unwrap_or(f64::NAN) / 1e9,
            percentiles_s: PERCENTILES.iter().map(|&p| seconds(histogram.quantile(p))).collect(),
            steps: steps(histogram),
        }
    }

    /// One of the [`PERCENTILES`], where there are requests enough for it.
    pub fn percentile(&self, place: usize) -> Result<f64, Caveat> {
        let quantile = PERCENTILES.get(place).copied().unwrap_or(0.5);
        enough_for(quantile, self.count)?;
        let value = self.percentiles_s.get(place).copied().filter(|value| value.is_finite());
        let none =
            || Caveat::TooFewSamples { quantile, effective: 0.0, need: needed_for(quantile) };
        value.ok_or_else(none)
    }

    /// Squared coefficient of variation; `None` without a mean.
    pub fn scv(&self) -> Option<f64> {
        (self.mean_s > 0.0).then(|| (self.standard_deviation_s / self.mean_s).powi(2))
    }

    /// Share of requests in each step up to `last`, zeros included, and the share beyond it.
    pub fn shares(&self, last: u64) -> (Vec<(u64, f64)>, f64) {
        let total = exact_f64(self.count.max(1));
        let mut shares: Vec<(u64, f64)> = (0..=last).map(|step| (step, 0.0)).collect();
        let mut beyond = 0.0;
        for &(step, count) in &self.steps {
            let share = exact_f64(count) / total;
            match usize::try_from(step).ok().and_then(|place| shares.get_mut(place)) {
                Some((_, known)) => *known += share,
                None => beyond += share,
            }
        }
        (shares, beyond)
    }

    /// Share of requests that took less than so many steps of 0.1 ms.
    pub fn share_below(&self, steps: u64) -> Option<f64> {
        let below: u64 =
            self.steps.iter().filter(|(step, _)| *step < steps).map(|(_, count)| count).sum();
        kendall_units::ratio(below, self.count)
    }

    /// The step that holds the 99th percentile.
    pub fn step_of_p99(&self) -> u64 {
        let p99 = self.percentiles_s.last().copied().unwrap_or(0.0);
        kendall_units::whole_u64(p99 * 1e9) / STEP_NS
    }
}

/// Cells of the histogram spread over steps of 0.1 ms. Where a cell is wider than a step (above
/// 0.2 s), its requests are spread evenly.
fn steps(histogram: &Histogram) -> Vec<(u64, u64)> {
    let mut steps: Vec<(u64, u64)> = Vec::new();
    for (low, high, count) in histogram.cells() {
        let (first, last) = (low / STEP_NS, high / STEP_NS);
        // A cell that crosses the edge of a step belongs to where its middle lies.
        let middle = (low / 2 + high / 2) / STEP_NS;
        let wide = last - first > 1;
        let (first, last) = if wide { (first, last) } else { (middle, middle) };
        let parts = last - first + 1;
        for step in first..=last {
            let share = count / parts + u64::from(step - first < count % parts);
            match steps.last_mut() {
                Some((known, sum)) if *known == step => *sum += share,
                _ if share > 0 => steps.push((step, share)),
                _ => {}
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_of_few_requests_is_refused() {
        let mut histogram = Histogram::new();
        histogram.record_n(1_000_000, 499);
        let place = PERCENTILES.len() - 1;
        let refused = Distribution::of(&histogram).percentile(place).unwrap_err();
        assert!(refused.to_string().contains("499"), "{refused}");
        histogram.record(1_000_000);
        assert!(Distribution::of(&histogram).percentile(place).is_ok());
    }

    #[test]
    fn no_request_is_lost_between_cells_and_steps() {
        let mut histogram = Histogram::new();
        for ns in [1, 99_999, 100_000, 150_000, 5_000_000, 700_000_000, 3_000_000_000] {
            histogram.record_n(ns, 7);
        }
        let distribution = Distribution::of(&histogram);
        assert_eq!(distribution.steps.iter().map(|(_, count)| count).sum::<u64>(), 49);
        assert_eq!(distribution.steps[0].0, 0);
        let (shares, beyond) = distribution.shares(100);
        let sum: f64 = shares.iter().map(|(_, share)| share).sum::<f64>() + beyond;
        assert!((sum - 1.0).abs() < 1e-12);
        assert!((beyond - 2.0 / 7.0).abs() < 1e-12);
    }
}
