//! Discrete-event simulation of the model description: the referee of every approximation.
//!
//! It takes any arrival and service distribution, every discipline of the description, finite
//! buffers, impatience, load-dependent rates, pools, forks, routing with class switching, batches
//! of arrivals, open, closed and mixed classes. What it returns are estimates: each with its
//! interval and its caveats.
//!
//! How an answer is made:
//! 1. Independent replications are warmed up until the marginal standard error rule (MSER) finds
//!    the end of the transient in the first half of what was run; all of that is forgotten.
//! 2. They run on until the interval of every class's mean response time and throughput is as
//!    narrow as asked, by the batches of all replications too, *and* neighboring batches hardly
//!    depend on one another (a narrow interval of a short run is an accident), or until the cap.
//! 3. Intervals are Student's t over replications, with ratio estimators and freed of skewness; there are none where
//!    the run is too short. Percentiles come from histograms with cells of 0.8 %.
//!
//! One seed gives one answer, whatever the number of threads: every source of chance has a stream
//! of its own. Time is simulated: nothing here reads a clock.
//!
//! # Example
//! ```
//! use kendall_queueing::model::{Class, Model, Station};
//! use kendall_queueing::simulation::{Settings, simulate};
//!
//! let station = Station::queue("disk", 1).with_service_time(0, 0.5);
//! let model = Model::new("one disk", vec![Class::open("reads", 1.0)], vec![station]).unwrap();
//! let settings = Settings { relative_half_width: 0.05, ..Settings::of(&model) };
//! let simulated = simulate(&model, &settings, &mut |_| {}).unwrap();
//! let response = simulated.classes[0].response_time_mean_s.unwrap();
//! assert!((response.center - 1.0).abs() < 3.0 * response.half_width.unwrap());
//! ```

mod analysis;
mod blocking;
mod compile;
mod engine;
mod events;
mod heap;
mod plan;
mod results;
mod run;
mod single_station;
mod state;
mod station;
mod streams;
mod tally;

use serde::Serialize;

use crate::model::{Model, ModelError};
pub use results::{ClassResult, Simulated, StationClassResult, StationResult};

/// Customers in the network at once, of all replications together and beside those of closed classes,
/// from which a simulation is given up: about 600 MB.
const MOST_PRESENT: u32 = 8_000_000;
/// What a replication may have of them in any case.
const PRESENT: u32 = 10_000;

/// How a model is simulated.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Where chance starts; the same seed gives the same answer.
    pub seed: u64,
    /// Confidence of the intervals.
    pub confidence: f64,
    /// The half-width over the center that the mean response time and the throughput of every
    /// class must reach.
    pub relative_half_width: f64,
    /// Independent replications; with fewer than five, one is cut into 32 batches instead.
    pub replications: u32,
    /// Customers (all classes, all replications, warm-up included) that may complete or be lost, to within one
    /// batch.
    pub most_customers: u64,
    /// Customers in the network at once after which a replication is given up.
    pub most_present: u32,
    /// Threads that replications are spread over. Does not change the answer.
    pub threads: u32,
    /// Quantiles of response times to estimate, from 0 to 1.
    pub quantiles: Vec<f64>,
}

impl Settings {
    /// What the model asks for, on one thread.
    #[must_use]
    pub fn of(model: &Model) -> Self {
        let options = &model.simulation;
        let mut quantiles = model.quantiles.clone();
        if quantiles.is_empty() {
            quantiles = vec![0.5, 0.9, 0.95, 0.99];
        }
        let closed: u64 = model.classes.iter().map(crate::model::Class::population).sum();
        let replications =
            if options.replications < run::FEWEST_REPLICATIONS { 1 } else { options.replications };
        let present = (MOST_PRESENT / replications).max(PRESENT);
        Self {
            seed: options.seed,
            confidence: options.confidence,
            relative_half_width: options.relative_half_width,
            replications: options.replications,
            most_customers: options.most_customers,
            most_present: present.saturating_add(u32::try_from(closed).unwrap_or(u32::MAX)),
            threads: 1,
            quantiles,
        }
    }

    fn check(&self) -> Result<(), SimulationError> {
        let share = |name, value: f64, fits: bool, expected| {
            if fits { Ok(()) } else { Err(SimulationError::Setting { name, value, expected }) }
        };
        let confidence = self.confidence;
        share("confidence", confidence, confidence > 0.0 && confidence < 1.0, "between 0 and 1")?;
        let width = self.relative_half_width;
        share("relative_half_width", width, width > 0.0 && width.is_finite(), "a share above 0")?;
        for &p in &self.quantiles {
            share("quantile", p, p > 0.0 && p < 1.0, "between 0 and 1")?;
        }
        let replications = f64::from(self.replications);
        let fits = (1..=100_000).contains(&self.replications);
        share("replications", replications, fits, "from 1 to 100000")
    }
}

/// A number that was measured in a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Measured {
    /// The estimate.
    pub center: f64,
    /// Half the width of its interval, at the confidence of the whole answer.
    pub half_width: Option<f64>,
}

impl Measured {
    /// Whether `value` lies in the interval.
    #[must_use]
    pub fn covers(&self, value: f64) -> bool {
        self.half_width.is_some_and(|half_width| (self.center - value).abs() <= half_width)
    }
}

/// How far a simulation is.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Customers that completed or gave up so far, warm-up included.
    pub ended_customers: u64,
    /// Widest half-width over center among what the stopping rule watches; may be infinite.
    pub relative_half_width: f64,
    /// What it must come down to.
    pub wanted: f64,
}

/// A reason to trust the answer less.
#[derive(Debug, Clone, PartialEq, Serialize, thiserror::Error)]
#[serde(tag = "caveat", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the error texts say it")]
pub enum Doubt {
    #[error(
        "stopped at {most_customers} customers with ±{reached:.2} %, wanted ±{wanted:.2} %: allow \
         more customers, or ask for less",
        reached = 100.0 * reached,
        wanted = 100.0 * wanted
    )]
    CapReached { most_customers: u64, reached: f64, wanted: f64 },
    #[error(
        "neighboring batches correlate by {correlation:.2} (0.3 is accepted): the run is short for \
         so busy a model and its intervals may be too narrow; allow more customers"
    )]
    TooShort { correlation: f64 },
    #[error(
        "no intervals: the start and the past last for so long that a replication is worth {worth:.1} independent batches, \
         and {needed:.1} are needed; allow more customers"
    )]
    NoIntervals { worth: f64, needed: f64 },
    #[error(
        "no interval for the {percent} % percentile and rarer ones: too few independent busy \
         periods reached it; allow more customers",
        percent = kendall_units::exact_f64(kendall_units::whole_u64((1e5 * quantile).round())) / 1e3
    )]
    NoInterval { quantile: f64 },
    #[error(
        "no interval for times: customers stay for {stay_s:.3} s on average, and a replication simulates {simulated_s:.3} \
         s; allow more customers"
    )]
    TooShortForTimes { stay_s: f64, simulated_s: f64 },
    #[error(
        "no end of the warm-up found in {simulated_s} s of simulated time: allow more customers, \
         or check that the model is stable"
    )]
    WarmUpNotFound { simulated_s: f64 },
    #[error(
        "the order in which stations are visited was assumed from the visits; it matters unless \
         the network has a product form. Give routes to fix it"
    )]
    OrderAssumed,
}

/// A model that cannot be simulated, or a simulation that cannot go on.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the error texts say it")]
pub enum SimulationError {
    #[error("{name} is {}; it must be {expected}", kendall_units::echo(value))]
    Setting { name: &'static str, value: f64, expected: &'static str },
    /// The model itself is wrong.
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(
        "no steady state: station `{station}` is offered {} times what it can do; lower the arrival \
         rate, add servers, or give it a capacity",
        kendall_units::echo(format_args!("{offered:.4}"))
    )]
    Unstable { station: String, offered: f64 },
    #[error("station `{station}`: {what} is not simulated; {instead}")]
    Unsupported { station: String, what: &'static str, instead: &'static str },
    #[error("{what} is {value}, the simulator's limit is {limit}")]
    TooLarge { what: String, value: u64, limit: u64 },
    #[error("nothing happens: no class has arrivals or a population that takes time for anything")]
    NothingHappens,
    #[error(
        "{customers} customers are in the network after {time_s:.4} s of simulated time: it has no \
         steady state, or a limit too high to simulate"
    )]
    Overflow { time_s: f64, customers: u32 },
    #[error("deadlock after {time_s:.4} s of simulated time: every customer waits for another")]
    Deadlock { time_s: f64 },
    #[error(
        "at {time_s:.4} s of simulated time customers circle without time passing: give a station \
         on their way a service time, or the class a think time"
    )]
    ClockStands { time_s: f64 },
    #[error("more than 137 billion events in a replication by {time_s:.4} s of simulated time")]
    TooManyEvents { time_s: f64 },
}

/// Simulates a model. `progress` is called after every round of the stopping rule.
///
/// # Errors
/// [`SimulationError`] when a setting or the model makes no sense, has no steady state, asks for
/// what is not simulated, or comes to a standstill.
pub fn simulate(
    model: &Model,
    settings: &Settings,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Simulated, SimulationError> {
    settings.check()?;
    check_stable(model)?;
    let (plan, layout) = compile::compile(model)?;
    let sample = run::run(&plan, settings, progress)?;
    Ok(results::simulated(model, &plan, &layout, &sample, settings))
}

/// `count` times from a distribution, one after the other; the same for the same seed.
///
/// # Example
/// ```
/// use kendall_queueing::{Distribution, simulation::draw};
/// let times = draw(&Distribution::exponential(2.0).unwrap(), 1, 10_000);
/// assert!((times.iter().sum::<f64>() / 10_000.0 - 2.0).abs() < 0.1);
/// ```
#[must_use]
pub fn draw(distribution: &crate::Distribution, seed: u64, count: usize) -> Vec<f64> {
    let sampler = streams::Sampler::new(distribution);
    let mut stream = streams::streams(seed, 0, 1).remove(0);
    let mut at = streams::BEGINNING;
    (0..count).map(|_| sampler.sample(&mut stream, &mut at)).collect()
}

/// Refuses open models in which a station without a way out for its surplus cannot keep up.
fn check_stable(model: &Model) -> Result<(), SimulationError> {
    let visits = model.visits()?;
    let mut offered = vec![0.0; model.stations.len()];
    for chain in model.chains() {
        let rate: f64 = chain.iter().map(|c| model.classes[*c].arrival_rate_per_s()).sum();
        for (station, load) in offered.iter_mut().enumerate() {
            for &class in &chain {
                if let Some(demand) = model.stations[station].demand_at(class) {
                    *load += rate * visits[station][class] * demand.service.mean();
                }
            }
        }
    }
    // Where customers go by the state, the visits are not known.
    let by_queues = |choice: &crate::model::Choice| {
        matches!(choice.rule, crate::model::Rule::ShortestQueue { .. })
    };
    if model.choices.iter().any(by_queues) {
        return Ok(());
    }
    for (station, load) in model.stations.iter().zip(offered) {
        let bounded = station.capacity.is_some()
            || station.patience.is_some()
            || station.balking != crate::model::Balking::Never
            || station.is_delay();
        let most = if station.rate_multipliers.is_empty() {
            kendall_units::exact_f64(station.servers)
        } else {
            station.rate_multipliers.last().copied().unwrap_or(1.0)
        };
        // Upstream losses may leave less than this: only a network without any is refused.
        let lossless = model.stations.iter().all(|s| s.capacity.is_none() && s.patience.is_none())
            && model.pools.iter().all(|pool| pool.queue_capacity.is_none())
            && model.stations.iter().all(|s| s.balking == crate::model::Balking::Never);
        if !bounded && lossless && load >= most * (1.0 - 1e-12) && load > 0.0 {
            return Err(SimulationError::Unstable {
                station: station.name.clone(),
                offered: load / most,
            });
        }
    }
    Ok(())
}
