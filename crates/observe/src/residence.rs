//! How long requests stay at a tier, beside how long they keep its servers busy: R = h·S + f·W(λ).
//!
//! f is the waiting over that of M/M/m. h is the share of the service time for which the request is held
//! up: below 1 where parts of a request are worked on at the same time, or after its answer, or where the
//! servers are a share of a processor, which lends its whole speed for a moment and takes the time back
//! from those that come next.

use kendall_queueing::model::{Class, Model, Station};
use kendall_queueing::solver::{Solver, solve};
use kendall_stats::distribution::t_two_sided;
use kendall_stats::sample;
use kendall_units::exact_f64;

use crate::analysis::{CONFIDENCE, NORMAL, TOLERANCE, TierAnalysis};
use crate::network::{Fitted, stations};
use crate::system::{Queues, System};
use crate::windows::Window;

/// Waiting below this share of the service time says nothing about its variability.
const NOTABLE_WAITING: f64 = 0.05;

/// Windows that a slope needs.
const FEWEST: usize = 3;

/// Windows that two coefficients need: three degrees of freedom are left.
const FEWEST_OF_TWO: usize = 5;

/// A request that is held up for less than this share of the work on it: then `busy` more likely counts
/// other work, and no answer may rest on it.
const LEAST_HELD_UP: f64 = 0.2;

/// How requests stay at a tier.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Residence {
    /// Waiting over that of exponential service and Poisson arrivals: (c_a² + c_s²)/2.
    pub waiting_factor: Fitted,
    /// The windows did not tell the waiting factor, so it is 1 give or take a factor of 2.
    pub waiting_assumed: bool,
    /// Share of the service time for which a request is held up; 1 unless the windows say less.
    pub held_up: Fitted,
    /// Correlation of the errors of the two.
    pub correlation: f64,
}

/// What one window says.
#[derive(Debug, Clone, Copy)]
struct Stay {
    /// W of M/M/m.
    modelled_s: f64,
    /// Busy servers over throughput.
    service_s: f64,
    /// R, without the tiers that are called.
    stayed_s: f64,
}

impl Residence {
    /// As M/M/m, and no more is known.
    fn assumed() -> Self {
        Self {
            waiting_factor: Fitted { value: 1.0, standard_error: std::f64::consts::LN_2 / 2.0 },
            waiting_assumed: true,
            held_up: Fitted { value: 1.0, standard_error: 0.0 },
            correlation: 0.0,
        }
    }

    /// Fits it to windows. Waiting is told from a tier that calls no other, by least squares through the
    /// origin of measured on modelled waiting times.
    ///
    /// `services` is what a visit takes in each window; `None` where no request came.
    pub(crate) fn fit(
        system: &System,
        tier: &TierAnalysis,
        seen: &[&Window],
        index: usize,
        held: bool,
        services: &[Option<f64>],
    ) -> Self {
        let assumed = Self::assumed();
        if held {
            return assumed;
        }
        let stay = |(window, service): (&&Window, &Option<f64>)| {
            stay(system, tier, window, index, (*service)?)
        };
        let stays: Vec<Stay> = seen.iter().zip(services).filter_map(stay).collect();
        let largest = stays.iter().map(|stay| stay.modelled_s).fold(0.0, f64::max);
        let service = sample::mean(&services.iter().copied().flatten().collect::<Vec<f64>>());
        let calls = !system.tiers[index].calls.is_empty();
        if calls || stays.len() < FEWEST || largest < NOTABLE_WAITING * service {
            let held_up = share_alone(&stays).filter(|share| is_told(*share));
            return Self { held_up: held_up.unwrap_or(assumed.held_up), ..assumed };
        }
        let both = both(&stays).filter(|both| is_told(both.held_up));
        both.unwrap_or_else(|| Self {
            waiting_factor: slope(&stays),
            waiting_assumed: false,
            ..assumed
        })
    }

    /// What a visit takes beyond service and waiting as M/M/m has them; negative where it takes less.
    pub(crate) fn beyond_s(&self, service_s: f64, waiting_s: f64) -> f64 {
        (self.held_up.value - 1.0) * service_s + (self.waiting_factor.value - 1.0) * waiting_s
    }
}

/// A share that is below 1 by more than its error, and by more than scrapes bring in.
fn is_told(share: Fitted) -> bool {
    share.value + NORMAL * share.standard_error < 1.0 - TOLERANCE && share.value >= LEAST_HELD_UP
}

fn stay(
    system: &System,
    tier: &TierAnalysis,
    window: &Window,
    index: usize,
    service_s: f64,
) -> Option<Stay> {
    let means = &window.tiers[index];
    let arrivals = means.throughput_per_s.filter(|rate| *rate > 0.0)?;
    let each = system.tiers[index].queues == Queues::Each;
    let (parts, servers) = stations(tier.servers, each);
    let model = Model::new(
        "waiting",
        vec![Class::open("requests", arrivals / exact_f64(parts))],
        vec![Station::queue("tier", servers).with_service_time(0, service_s)],
    );
    let solution = solve(&model.ok()?, Solver::Auto).ok()?;
    let mut stayed_s = means.response_time_s?;
    for called in &system.tiers[index].calls {
        let other = &window.tiers[*called];
        stayed_s -= other.throughput_per_s? / arrivals * other.response_time_s?;
    }
    Some(Stay {
        modelled_s: solution.stations[0].waiting_time.first().copied()?,
        service_s: means.busy? / arrivals,
        stayed_s,
    })
}

/// Widened by Student's t, since draws are normal.
fn widened(standard_error: f64, degrees: usize) -> f64 {
    standard_error * t_two_sided(CONFIDENCE, exact_f64(degrees as u64)) / NORMAL
}

/// f where h is 1.
fn slope(stays: &[Stay]) -> Fitted {
    let pairs = || stays.iter().map(|stay| (stay.modelled_s, stay.stayed_s - stay.service_s));
    let square: f64 = pairs().map(|(x, _)| x * x).sum();
    let slope = pairs().map(|(x, y)| x * y).sum::<f64>() / square;
    let residual: f64 = pairs().map(|(x, y)| (y - slope * x).powi(2)).sum();
    let degrees = stays.len() - 1;
    let error = (residual / exact_f64(degrees as u64) / square).sqrt();
    Fitted { value: slope.max(0.0), standard_error: widened(error, degrees) }
}

/// h where f is 1.
fn share_alone(stays: &[Stay]) -> Option<Fitted> {
    let shares: Vec<f64> = stays
        .iter()
        .filter(|stay| stay.service_s > 0.0)
        .map(|stay| (stay.stayed_s - stay.modelled_s) / stay.service_s)
        .collect();
    if shares.len() < FEWEST {
        return None;
    }
    let error = (sample::variance(&shares)? / exact_f64(shares.len() as u64)).sqrt();
    let standard_error = widened(error, shares.len() - 1);
    Some(Fitted { value: sample::mean(&shares), standard_error })
}

/// h and f together, by least squares of relative errors; `None` where they cannot be told apart.
fn both(stays: &[Stay]) -> Option<Residence> {
    if stays.len() < FEWEST_OF_TWO {
        return None;
    }
    let scaled: Vec<(f64, f64, f64)> = stays
        .iter()
        .map(|stay| {
            let scale = stay.service_s + stay.modelled_s;
            (stay.service_s / scale, stay.modelled_s / scale, stay.stayed_s / scale)
        })
        .collect();
    let sum = |of: fn(&(f64, f64, f64)) -> f64| scaled.iter().map(of).sum::<f64>();
    let (ss, sw, ww) = (sum(|p| p.0 * p.0), sum(|p| p.0 * p.1), sum(|p| p.1 * p.1));
    let (sr, wr) = (sum(|p| p.0 * p.2), sum(|p| p.1 * p.2));
    let determinant = ss * ww - sw * sw;
    // Columns that are the same to a thousandth tell nothing apart.
    if determinant <= 1e-6 * ss * ww {
        return None;
    }
    let (share, factor) = ((sr * ww - wr * sw) / determinant, (wr * ss - sr * sw) / determinant);
    // Waiting cannot be negative; then the service alone explains the stay.
    let (share, factor) = if factor < 0.0 { (sr / ss, 0.0) } else { (share, factor) };
    let residual: f64 = scaled.iter().map(|(s, w, r)| (r - share * s - factor * w).powi(2)).sum();
    let degrees = stays.len() - 2;
    let variance = residual / exact_f64(degrees as u64);
    let fitted = |value: f64, other: f64| Fitted {
        value,
        standard_error: widened((variance * other / determinant).sqrt(), degrees),
    };
    Some(Residence {
        waiting_factor: fitted(factor, ss),
        waiting_assumed: false,
        held_up: fitted(share, ww),
        correlation: -sw / (ss * ww).sqrt(),
    })
}
