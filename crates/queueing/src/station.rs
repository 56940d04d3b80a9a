//! Single stations in steady state: all that \[Jain91\] tables 31.1–31.8 list, for M/M/1 to G/G/m.
//!
//! Every function takes rates and times as plain numbers in SI units, checks them, and returns a
//! [`StationSolution`] or a [`StationError`] that carries the number that failed. Nothing here uses
//! a factorial: probabilities come from recursions or from the log domain, so that 10,000 servers
//! are as exact as one.

mod birth_death;
mod bounded;
mod by_size;
mod deadline;
mod general;
mod ggm;
mod idle;
mod impatient;
mod lattice;
mod law;
mod markov;
mod phase_type;
mod polling;
mod priority;
mod quasi_birth_death;
mod transform;
mod transient;
mod unequal;

pub use birth_death::{BirthDeath, birth_death};
pub use bounded::mg1k;
pub use by_size::{BySize, mg1_by_size, mg1_by_size_classes};
pub use deadline::{ByDeadline, mg1_deadlines};
pub use general::{batch_mm1, gm1, md1, mdm, mg1, mg1_lcfs_pr, mg1_ps};
pub(crate) use ggm::measured_wait;
pub use ggm::{GgmFormula, MeasuredWait, ggm};
pub(crate) use idle::unvisited;
pub(crate) use impatient::joins;
pub use impatient::{mmm_balking, mmm_impatient, mmm_impatient_general};
pub use law::{Line, StateLaw, TimeLaw};
pub use markov::{
    erlang_b, erlang_b_servers, erlang_c, erlang_c_servers, finite_population, mm_infinity, mm1,
    mm1k, mmm, mmmk,
};
pub use phase_type::map_ph;
pub use polling::{Polled, Polling, Retrial, Visit, mg1_retrial, polling, polling_unequal};
pub use priority::{
    PriorityClass, PriorityResult, Scheduling, mg1_priority, mm1_discriminatory, mm1_shared,
    mmm_priority, mmm_priority_two,
};
pub(crate) use transient::until_settled;
pub use transient::{Settling, settling};
pub use unequal::mmm_unequal;

/// Most servers for which state probabilities are summed.
pub const MOST_SERVERS: u64 = 100_000_000;
/// Most states of a station with a finite number of them.
pub const MOST_STATES: u64 = 10_000_000;
/// Above this many servers the probabilities of single states are left out of the answer.
const MOST_LISTED: u64 = 1_000_000;

/// How far an answer can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Accuracy {
    /// Right for the model as described, up to rounding.
    Exact,
    /// The truth lies on one known side, or between two numbers.
    Bound,
    /// A formula or iteration whose error is known from experience only.
    Approximation,
    /// From a simulation, with an interval.
    Estimate,
}

impl Accuracy {
    /// As it is printed: `exact`, `bound`, `approximation`, `estimate`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Bound => "bound",
            Self::Approximation => "approximation",
            Self::Estimate => "estimate",
        }
    }
}

/// Mean, and variance where a closed form is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moments {
    /// Mean.
    pub mean: f64,
    /// Variance.
    pub variance: Option<f64>,
}

impl Moments {
    pub(crate) const fn new(mean: f64, variance: f64) -> Self {
        Self { mean, variance: Some(variance) }
    }

    pub(crate) const fn mean_only(mean: f64) -> Self {
        Self { mean, variance: None }
    }
}

/// The time from the arrival at an empty station until it is empty again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BusyPeriod {
    /// Its duration in s.
    pub duration: Moments,
    /// How many customers are served in it.
    pub served: Moments,
}

/// One station in steady state. Times in s, rates in 1/s.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StationSolution {
    /// Kendall notation: `M/M/4/20`.
    pub notation: String,
    /// Formula that was used, with its source.
    pub method: &'static str,
    /// How far it can be trusted.
    pub accuracy: Accuracy,
    /// λ, offered.
    pub arrival_rate: f64,
    /// X: what is served in the end.
    pub throughput: f64,
    /// a = λ·S in erlang.
    pub offered_load: f64,
    /// Busy fraction of one server; for infinitely many, a.
    pub utilization: f64,
    /// Probability that the station is empty.
    pub p0: Option<f64>,
    /// Its natural logarithm, for stations so large that `p0` is too small for a number.
    pub ln_p0: Option<f64>,
    /// Probability that an arrival (that is let in) must wait.
    pub p_queueing: Option<f64>,
    /// Probability that an arrival is not served: lost at a full station, or gone by impatience.
    pub loss_probability: f64,
    /// n, customers at the station.
    pub number: Moments,
    /// n_q, customers waiting.
    pub number_waiting: Moments,
    /// r, of customers that are let in.
    pub response_time: Moments,
    /// w, of customers that are let in.
    pub waiting_time: Moments,
    /// Busy period (of one server, or until the whole station is empty).
    pub busy_period: Option<BusyPeriod>,
    /// Probabilities of n.
    pub states: Option<StateLaw>,
    /// Distribution of r.
    pub response_law: Option<TimeLaw>,
    /// Distribution of w.
    pub waiting_law: Option<TimeLaw>,
    /// What only this model knows, as documented key and value.
    pub more: Vec<(&'static str, f64)>,
}

/// Why there is no solution.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the error texts say it")]
pub enum StationError {
    #[error(
        "no steady state: {} erlangs are offered to {}; at least {needed} are needed, or an arrival \
         rate below {most_arrivals:.6}/s",
        kendall_units::echo(format_args!("{offered:.6}")),
        kendall_units::counted(*servers, "server")
    )]
    Unstable { offered: f64, servers: u64, needed: u64, most_arrivals: f64 },
    #[error("{name} is {}; it must be {expected}", kendall_units::echo(value))]
    Number { name: &'static str, value: f64, expected: &'static str },
    #[error(
        "{name} is {value}, above the limit of {limit}: use an approximation or a smaller model"
    )]
    TooLarge { name: &'static str, value: u64, limit: u64 },
    /// The parameters of a distribution make no sense.
    #[error(transparent)]
    Distribution(#[from] crate::DistributionError),
}

pub(crate) fn positive(name: &'static str, value: f64) -> Result<f64, StationError> {
    // Beyond these magnitudes squares and cubes of the numbers leave the range of `f64`.
    if (1e-90..=1e90).contains(&value) {
        Ok(value)
    } else {
        Err(StationError::Number { name, value, expected: "above 0 and finite (1e-90 to 1e90)" })
    }
}

pub(crate) fn at_most(name: &'static str, value: u64, limit: u64) -> Result<u64, StationError> {
    if value <= limit { Ok(value) } else { Err(StationError::TooLarge { name, value, limit }) }
}

pub(crate) fn servers_of(servers: u64) -> Result<u64, StationError> {
    if servers == 0 {
        return Err(StationError::Number { name: "servers", value: 0.0, expected: "1 or above" });
    }
    at_most("servers", servers, MOST_SERVERS)
}

/// ln(1 − ρ) from the smaller of ρ and 1 − ρ, which has all its figures.
fn ln_idle(rho: f64, idle: f64) -> f64 {
    if rho < 0.5 { (-rho).ln_1p() } else { idle.ln() }
}

/// Fails when ρ ≥ 1.
pub(crate) fn stable(offered: f64, servers: u64, arrival_rate: f64) -> Result<(), StationError> {
    let m = kendall_units::exact_f64(servers);
    if offered < m {
        return Ok(());
    }
    Err(StationError::Unstable {
        offered,
        servers,
        needed: kendall_units::whole_u64(offered.min(9e15)) + 1,
        most_arrivals: arrival_rate * m / offered,
    })
}

/// `M/M/4`, `M/M/4/20`, `M/M/4/∞/30`.
fn notation(arrivals: &str, service: &str, servers: u64, capacity: Option<u64>) -> String {
    match capacity {
        None => format!("{arrivals}/{service}/{servers}"),
        Some(capacity) => format!("{arrivals}/{service}/{servers}/{capacity}"),
    }
}

impl StationSolution {
    /// Of a station that serves all who come, as far as that alone says: the rest is for the caller to set.
    fn lossless(arrival_rate: f64, offered_load: f64, servers: u64) -> Self {
        let unknown = Moments::mean_only(0.0);
        Self {
            notation: String::new(),
            method: "",
            accuracy: Accuracy::Exact,
            arrival_rate,
            throughput: arrival_rate,
            offered_load,
            utilization: offered_load / kendall_units::exact_f64(servers),
            p0: None,
            ln_p0: None,
            p_queueing: None,
            loss_probability: 0.0,
            number: unknown,
            number_waiting: unknown,
            response_time: unknown,
            waiting_time: unknown,
            busy_period: None,
            states: None,
            response_law: None,
            waiting_law: None,
            more: Vec::new(),
        }
    }

    /// The same with one server, which is idle for this share of the time.
    fn one_server(arrival_rate: f64, utilization: f64, idle: f64) -> Self {
        let ln_p0 = Some(ln_idle(utilization, idle));
        Self { p0: Some(idle), ln_p0, ..Self::lossless(arrival_rate, utilization, 1) }
    }

    /// Quantile (0 to 1) of the response time in s, where its distribution is known.
    #[must_use]
    pub fn response_quantile(&self, quantile: f64) -> Option<f64> {
        self.response_law.as_ref()?.quantile(quantile)
    }

    /// Quantile (0 to 1) of the waiting time in s, where its distribution is known.
    #[must_use]
    pub fn waiting_quantile(&self, quantile: f64) -> Option<f64> {
        self.waiting_law.as_ref()?.quantile(quantile)
    }

    /// Little's law at the station and at its queue: relative difference of both sides, the larger
    /// of the two. A solution with more than 1e-9 is a defect.
    #[must_use]
    pub fn little_error(&self) -> f64 {
        let accepted = self.accepted_rate();
        let gap = |number: f64, time: f64| {
            let other = accepted * time;
            let scale = number.abs().max(other.abs());
            // Below this, products have lost digits to underflow, and so has the comparison.
            if scale > f64::MIN_POSITIVE * 1e16 { (number - other).abs() / scale } else { 0.0 }
        };
        gap(self.number.mean, self.response_time.mean)
            .max(gap(self.number_waiting.mean, self.waiting_time.mean))
    }

    /// Rate of customers that are let in (they may still leave unserved).
    #[must_use]
    pub fn accepted_rate(&self) -> f64 {
        self.more
            .iter()
            .find(|(name, _)| *name == "accepted_rate_per_s")
            .map_or(self.throughput, |(_, rate)| *rate)
    }
}
