//! The one description of a queueing model, for every solver: classes of customers, stations,
//! how customers move between them, and what they hold meanwhile.
//!
//! It is read from TOML or JSON by the caller: `Model` implements [`serde::Deserialize`], checks
//! everything once, and its errors name the path, the value and the accepted form. Its keys are
//! declared in [`keys`] and read in `model/wire.rs`; `docs/models.md` lists them.
//!
//! # Example
//! ```
//! use kendall_queueing::model::{Class, Model, Station};
//!
//! let model = Model::new(
//!     "web",
//!     vec![Class::open("requests", 100.0)],
//!     vec![Station::queue("cpu", 2).with_service_time(0, 0.015).with_visits(0, 1.0)],
//! )
//! .unwrap();
//! assert!((model.visits().unwrap()[0][0] - 1.0).abs() < 1e-12);
//! ```

mod forks;
pub mod keys;
mod shape;
mod visits;
mod wire;
mod write;

use crate::Distribution;
pub(crate) use forks::Inside;
use kendall_keys::bracketed;
pub use shape::read_distribution;
pub(crate) use visits::legs_from_visits;
pub use write::WriteError;
pub(crate) use write::{list, put, whole};

/// Most classes that a model may have.
pub const MOST_CLASSES: usize = 1_000;
/// Most stations that a model may have.
pub const MOST_STATIONS: usize = 10_000;
/// Most customers of one closed class.
pub const MOST_CUSTOMERS: u64 = 1_000_000_000_000;
/// Most numbers of customers for which a factor of a choice is written.
const MOST_FACTORS: usize = 100_000;
/// Most servers of one station.
pub const MOST_SERVERS: u64 = 1_000_000_000;

/// A queueing model: one station, or a network of them.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Model {
    /// What it is called.
    pub name: String,
    /// The kinds of customers; per-class lists everywhere keep this order.
    pub classes: Vec<Class>,
    /// The centers; per-station lists everywhere keep this order.
    pub stations: Vec<Station>,
    /// Where customers go next. Empty: each class visits the stations as their `visits` say.
    pub routes: Vec<Leg>,
    /// Where the next station is not drawn by the probabilities of `routes`.
    pub choices: Vec<Choice>,
    /// Passive resources: tokens held while stations are visited.
    pub pools: Vec<Pool>,
    /// Which solver was asked for (`auto` unless the file says so); see `solver`.
    pub solver: String,
    /// Percentiles of response time asked for, as quantiles from 0 to 1.
    pub quantiles: Vec<f64>,
    /// What a simulation should do; solvers that do not simulate ignore it.
    pub simulation: SimulationOptions,
}

/// A class of customers.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    /// What it is called.
    pub name: String,
    /// Where its customers come from.
    pub workload: Workload,
    /// 1 is served first. Matters only at stations with a priority discipline.
    pub priority: u32,
    /// Arrival rate in 1/s, or the population to whose thinking customers others came, before it stepped to its own:
    /// how long until the new steady state.
    pub before: Option<f64>,
}

/// Where the customers of a class come from.
#[derive(Debug, Clone, PartialEq)]
pub enum Workload {
    /// They arrive from outside and leave.
    Open {
        /// λ, customers (not batches) per second.
        arrival_rate_per_s: f64,
        /// Time between arrivals (of batches, when they come in batches).
        interarrival: Distribution,
        /// How many arrive together.
        batch: Batch,
    },
    /// A fixed number of them goes round.
    Closed {
        /// N.
        population: u64,
        /// Time between a completion and the next request of the same customer; mean Z.
        think_time: Distribution,
    },
}

/// How many customers arrive together.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the variants say it")]
pub enum Batch {
    /// Always as many; 1 is not a batch.
    Fixed(u64),
    /// Geometric from 1 on, with this mean.
    Geometric { mean: f64 },
    /// Probability of size 1, 2, ….
    Table(Vec<f64>),
}

/// What a station is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Center {
    /// A queue before servers.
    Queue,
    /// Without waiting: think time, a network delay.
    Delay,
}

/// Who is served next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discipline {
    /// First come, first served.
    Fcfs,
    /// Last come, first served, without preemption.
    Lcfs,
    /// Last come, first served, preemptive; interrupted service resumes.
    LcfsPr,
    /// All share the servers alike.
    Ps,
    /// In random order.
    Siro,
    /// Shortest service first, without preemption.
    Sjf,
    /// Shortest remaining service first, preemptive; interrupted service resumes.
    Srpt,
    /// All share the server in proportion to the weights of their classes.
    Dps,
    /// Classes share the server in proportion to their weights, each served in the order of arrival.
    Gps,
    /// Earliest deadline first, without preemption.
    Edf,
    /// Earliest deadline first, preemptive; interrupted service resumes.
    EdfPreemptive,
    /// Infinite servers.
    Is,
    /// Lowest `priority` number first, without preemption.
    PriorityNonPreemptive,
    /// Lowest `priority` number first, preemptive; interrupted service resumes.
    PriorityPreemptive,
}

/// A resource with its queue. Fields in the order of the Kendall notation A/S/m/B/K/SD.
#[derive(Debug, Clone, PartialEq)]
pub struct Station {
    /// What it is called.
    pub name: String,
    /// Queue or delay.
    pub center: Center,
    /// What each class does here, in the order of the model's classes; `None`: never comes here.
    pub demands: Vec<Option<Demand>>,
    /// m.
    pub servers: u64,
    /// B, those in service included; `None`: no limit.
    pub capacity: Option<u64>,
    /// What becomes of customers who find it full.
    pub when_full: WhenFull,
    /// Who is served next.
    pub discipline: Discipline,
    /// Weight of each class where customers share by weights; empty: all alike.
    pub weights: Vec<f64>,
    /// How long after it came here a customer of each class is due; only of [`Discipline::Edf`] and
    /// [`Discipline::EdfPreemptive`].
    pub deadlines: Vec<f64>,
    /// Load dependence: with n customers here the station works `rate_multipliers[n−1]` times as
    /// fast as with one (the last entry goes on for ever). Empty: min(n, servers).
    pub rate_multipliers: Vec<f64>,
    /// How long customers wait before they leave unserved; `None`: for ever.
    pub patience: Option<Distribution>,
    /// Whether an arrival joins, given how many it finds.
    pub balking: Balking,
    /// How many parallel copies of this station a customer visits at once, and how many of them
    /// must finish before it goes on.
    pub fork: Option<Fork>,
    /// Where the branches of a fork begin, when they are other stations; empty: copies of this one.
    pub parts: Vec<usize>,
}

/// What one class does at one station.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    /// S, per visit.
    pub service: Distribution,
    /// V per request, when there is no routing; with routing it follows from that.
    pub visits: f64,
}

/// What becomes of a customer who comes to a full station. From outside it is lost in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// It is lost; one of a closed class goes on as if it had been served.
    Lost,
    /// It keeps the server that served it last until the station has a free place.
    BlockAfterService,
    /// Its service at the station before begins only when there is a free place, and is suspended while there is none.
    /// It holds the server meanwhile.
    BlockBeforeService,
    /// Its service at the station before is repeated, with a new time and then perhaps another way, until there is
    /// room where it goes.
    RepeatService,
}

/// Whether an arrival that finds n customers joins.
#[derive(Debug, Clone, PartialEq)]
pub enum Balking {
    /// Always.
    Never,
    /// With probability 1/(n+1).
    Reciprocal,
    /// With the n-th of these probabilities, from n = 0; the last goes on for ever.
    Table(Vec<f64>),
}

/// Parallel work: a customer is copied to `branches` equal stations, and goes on when `needed`
/// of the copies are done (the others finish for themselves).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fork {
    /// Copies.
    pub branches: u32,
    /// How many must be done.
    pub needed: u32,
}

/// Where a customer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// Not in the network: before it arrives and after it left; thinking, for a closed class.
    Outside,
    /// At this station.
    Station(usize),
}

/// One step of the routing: from a place, as a class, with a probability, to a place, as a class.
#[derive(Debug, Clone, PartialEq)]
pub struct Leg {
    /// Class before the step.
    pub class: usize,
    /// Where from. From outside: the probabilities say where arrivals enter.
    pub from: Place,
    /// Class after the step (class switching when it differs).
    pub to_class: usize,
    /// Where to.
    pub to: Place,
    /// How likely.
    pub probability: f64,
}

/// How the next of several stations is chosen, for one class from one place.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Class before the step.
    pub class: usize,
    /// Where from.
    pub from: Place,
    /// Which is taken.
    pub rule: Rule,
    /// Of [`Rule::ByNumber`]: for some of the stations, what multiplies their probability with 0, 1, 2, …
    /// customers there; the last holds for more.
    pub factors: Vec<(usize, Vec<f64>)>,
}

/// Which of several stations is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants say it")]
pub enum Rule {
    /// The one with the fewest customers (the first of equals is drawn) among `of` that are drawn at
    /// random; among all of them when there are no more. With unequal probabilities, which are then weights,
    /// the one with the least (customers + 1)/weight.
    ShortestQueue { of: u32 },
    /// Each in its turn.
    RoundRobin,
    /// Drawn by the probabilities, each multiplied by a factor for the number of customers there; where
    /// all are 0, by the probabilities alone.
    ByNumber,
}

/// A passive resource: a worker, a connection, a lock. A customer takes a token when it comes to
/// the first of the `stations` and gives it back when it leaves the last of a run of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// What it is called.
    pub name: String,
    /// How many there are.
    pub tokens: u64,
    /// At which stations it is held.
    pub stations: Vec<usize>,
    /// Which classes need it.
    pub classes: Vec<usize>,
    /// Most customers that wait for a token; more are lost. `None`: no limit.
    pub queue_capacity: Option<u64>,
}

/// What a simulation of the model should do.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SimulationOptions {
    /// Where chance starts.
    pub seed: u64,
    /// Confidence of its intervals.
    pub confidence: f64,
    /// It stops when the half-width of every asked interval is below this share of its center.
    pub relative_half_width: f64,
    /// Independent replications, at least.
    pub replications: u32,
    /// It stops after as many completed customers in any case.
    pub most_customers: u64,
}

impl Default for SimulationOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            confidence: 0.95,
            relative_half_width: 0.02,
            // Ten gave 90 % coverage under the stopping rule, 24 and more give 95 %.
            replications: 24,
            most_customers: 20_000_000,
        }
    }
}

/// A model that makes no sense, or goes beyond a limit; a path is like `stations[2].servers`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the error texts say it")]
pub enum ModelError {
    #[error("{path}: {what}")]
    Key { path: String, what: String },
    #[error("{path}: {value} is refused; expected {expected}")]
    Refused { path: String, value: String, expected: String },
    #[error("{path} is missing; expected {expected}")]
    Missing { path: String, expected: String },
    #[error("{path}: {value} exceeds the limit of {limit}")]
    TooLarge { path: String, value: String, limit: String },
    #[error(
        "class `{class}` never leaves once it is at `{station}`: give it a route to `out`, or to a \
         station from which it leaves"
    )]
    NeverLeaves { class: String, station: String },
    #[error(
        "class `{class}` visits no station: give one a `service_time_s` or `service_demand_s` for \
         it, or remove the class"
    )]
    VisitsNothing { class: String },
}

impl ModelError {
    /// Path of the key that it is about; `None` when it is about no key.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Key { path, .. }
            | Self::Refused { path, .. }
            | Self::Missing { path, .. }
            | Self::TooLarge { path, .. } => Some(path),
            Self::NeverLeaves { .. } | Self::VisitsNothing { .. } => None,
        }
    }
}

pub(crate) fn refused(
    path: impl Into<String>,
    value: impl ToString,
    expected: impl Into<String>,
) -> ModelError {
    let value = kendall_units::echo(value.to_string());
    ModelError::Refused { path: path.into(), value, expected: expected.into() }
}

impl Class {
    /// The key of `before`.
    pub(crate) fn key_before(&self) -> &'static str {
        if self.is_open() { "arrival_rate_before_per_s" } else { "population_before" }
    }

    /// What the rate or population before must be, where it is not that.
    fn check_before(&self) -> Result<(), (f64, &'static str)> {
        let Some(before) = self.before else { return Ok(()) };
        let (most, expected) = if self.is_open() {
            (1e90, "a rate of 0 or above")
        } else {
            (kendall_units::exact_f64(self.population()), "no more than the `population`")
        };
        if (0.0..=most).contains(&before) { Ok(()) } else { Err((before, expected)) }
    }

    /// Poisson arrivals.
    #[must_use]
    pub fn open(name: &str, arrival_rate_per_s: f64) -> Self {
        let mean_s = if arrival_rate_per_s > 0.0 { 1.0 / arrival_rate_per_s } else { 0.0 };
        Self {
            name: name.to_owned(),
            priority: 1,
            before: None,
            workload: Workload::Open {
                arrival_rate_per_s,
                interarrival: Distribution::Exponential { mean_s },
                batch: Batch::Fixed(1),
            },
        }
    }

    /// A fixed number of customers with exponential think time.
    #[must_use]
    pub fn closed(name: &str, population: u64, think_time_s: f64) -> Self {
        Self {
            name: name.to_owned(),
            priority: 1,
            before: None,
            workload: Workload::Closed {
                population,
                think_time: Distribution::Exponential { mean_s: think_time_s },
            },
        }
    }

    /// Whether its customers come from outside.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.workload, Workload::Open { .. })
    }

    /// λ; 0 for a closed class.
    #[must_use]
    pub fn arrival_rate_per_s(&self) -> f64 {
        match self.workload {
            Workload::Open { arrival_rate_per_s, .. } => arrival_rate_per_s,
            Workload::Closed { .. } => 0.0,
        }
    }

    /// N; 0 for an open class.
    #[must_use]
    pub fn population(&self) -> u64 {
        match self.workload {
            Workload::Open { .. } => 0,
            Workload::Closed { population, .. } => population,
        }
    }

    /// Z, the mean; 0 for an open class.
    #[must_use]
    pub fn think_time_s(&self) -> f64 {
        match &self.workload {
            Workload::Open { .. } => 0.0,
            Workload::Closed { think_time, .. } => think_time.mean(),
        }
    }
}

impl Station {
    /// A first come, first served queue without limits.
    #[must_use]
    pub fn queue(name: &str, servers: u64) -> Self {
        Self {
            name: name.to_owned(),
            center: Center::Queue,
            demands: Vec::new(),
            servers,
            capacity: None,
            when_full: WhenFull::Lost,
            discipline: Discipline::Fcfs,
            weights: Vec::new(),
            deadlines: Vec::new(),
            rate_multipliers: Vec::new(),
            patience: None,
            balking: Balking::Never,
            fork: None,
            parts: Vec::new(),
        }
    }

    /// A station without waiting.
    #[must_use]
    pub fn delay(name: &str) -> Self {
        Self { center: Center::Delay, discipline: Discipline::Is, ..Self::queue(name, 1) }
    }

    /// Sets how `class` (its index) is served here; visits become 1 unless set.
    #[must_use]
    pub fn with_service(mut self, class: usize, service: Distribution) -> Self {
        let visits = self.demand_at(class).map_or(1.0, |demand| demand.visits);
        self.set(class, Demand { service, visits });
        self
    }

    /// Sets the mean of exponential service of `class` here.
    #[must_use]
    pub fn with_service_time(self, class: usize, mean_s: f64) -> Self {
        self.with_service(class, Distribution::Exponential { mean_s })
    }

    /// Sets how often a request of `class` comes here; needs a service first.
    #[must_use]
    pub fn with_visits(mut self, class: usize, visits: f64) -> Self {
        if let Some(demand) = self.demands.get_mut(class).and_then(Option::as_mut) {
            demand.visits = visits;
        }
        self
    }

    fn set(&mut self, class: usize, demand: Demand) {
        if self.demands.len() <= class {
            self.demands.resize(class + 1, None);
        }
        self.demands[class] = Some(demand);
    }

    /// What `class` does here, if anything.
    #[must_use]
    pub fn demand_at(&self, class: usize) -> Option<&Demand> {
        self.demands.get(class).and_then(Option::as_ref)
    }

    /// Whether customers never wait here.
    #[must_use]
    pub fn is_delay(&self) -> bool {
        self.center == Center::Delay || self.discipline == Discipline::Is
    }

    /// How many times as fast as with one customer it works with `n`.
    #[must_use]
    pub fn rate_multiplier(&self, n: u64) -> f64 {
        if n == 0 {
            return 0.0;
        }
        if self.is_delay() {
            return kendall_units::exact_f64(n);
        }
        if self.rate_multipliers.is_empty() {
            return kendall_units::exact_f64(n.min(self.servers));
        }
        let index = usize::try_from(n - 1).unwrap_or(usize::MAX);
        self.rate_multipliers[index.min(self.rate_multipliers.len() - 1)]
    }
}

impl Batch {
    /// E\[B\].
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self {
            Self::Fixed(size) => kendall_units::exact_f64(*size),
            Self::Geometric { mean } => *mean,
            Self::Table(probabilities) => weighted(probabilities, 1),
        }
    }

    /// E\[B²\].
    #[must_use]
    pub fn second_moment(&self) -> f64 {
        match self {
            Self::Fixed(size) => kendall_units::exact_f64(*size).powi(2),
            // Var = (1−p)/p² with p = 1/mean.
            Self::Geometric { mean } => mean * (mean - 1.0) + mean * mean,
            Self::Table(probabilities) => weighted(probabilities, 2),
        }
    }

    /// E\[B³\].
    #[must_use]
    pub fn third_moment(&self) -> f64 {
        match self {
            Self::Fixed(size) => kendall_units::exact_f64(*size).powi(3),
            // Geometric from 1 with p = 1/mean: (p² − 6p + 6)/p³.
            Self::Geometric { mean } => mean * (1.0 - 6.0 * mean + 6.0 * mean * mean),
            Self::Table(probabilities) => weighted(probabilities, 3),
        }
    }

    /// P(B ≥ n).
    #[must_use]
    pub fn at_least(&self, n: u64) -> f64 {
        match self {
            Self::Fixed(size) => f64::from(u8::from(n <= *size)),
            Self::Geometric { mean } => {
                (1.0 - 1.0 / mean).powf(kendall_units::exact_f64(n.saturating_sub(1)))
            }
            Self::Table(probabilities) => {
                let from = usize::try_from(n.saturating_sub(1)).unwrap_or(usize::MAX);
                probabilities.iter().skip(from).rev().sum()
            }
        }
    }
}

fn weighted(probabilities: &[f64], power: i32) -> f64 {
    probabilities.iter().zip(1_u32..).map(|(p, n)| p * f64::from(n).powi(power)).sum()
}

impl Model {
    /// A model without routing matrix: each class visits stations as their `visits` say.
    ///
    /// # Errors
    /// [`ModelError`] when it makes no sense.
    pub fn new(
        name: &str,
        classes: Vec<Class>,
        stations: Vec<Station>,
    ) -> Result<Self, ModelError> {
        let model = Self {
            name: name.to_owned(),
            classes,
            stations,
            routes: Vec::new(),
            choices: Vec::new(),
            pools: Vec::new(),
            solver: "auto".to_owned(),
            quantiles: Vec::new(),
            simulation: SimulationOptions::default(),
        };
        model.checked()
    }

    /// The same model with these passive resources.
    ///
    /// # Errors
    /// [`ModelError`] when a pool has no tokens or holds no station.
    pub fn with_pools(mut self, pools: Vec<Pool>) -> Result<Self, ModelError> {
        self.pools = pools;
        self.checked()
    }

    /// Index of the station with this name.
    #[must_use]
    pub fn station_index(&self, name: &str) -> Option<usize> {
        self.stations.iter().position(|station| station.name == name)
    }

    /// Index of the class with this name.
    #[must_use]
    pub fn class_index(&self, name: &str) -> Option<usize> {
        self.classes.iter().position(|class| class.name == name)
    }

    /// Checks all numbers and names again: for a model whose public fields were changed.
    ///
    /// # Errors
    /// [`ModelError`] for the first thing that makes no sense.
    pub fn checked(mut self) -> Result<Self, ModelError> {
        for station in &mut self.stations {
            station.demands.resize(self.classes.len(), None);
        }
        self.check_sizes()?;
        for (index, class) in self.classes.iter().enumerate() {
            check_class(&format!("classes[{index}]"), class)?;
        }
        for (index, station) in self.stations.iter().enumerate() {
            check_station(&format!("stations[{index}]"), station)?;
        }
        for (index, pool) in self.pools.iter().enumerate() {
            self.check_pool(&format!("pools[{index}]"), pool)?;
        }
        for quantile in &self.quantiles {
            if !(*quantile > 0.0 && *quantile < 1.0) {
                return Err(refused("percentiles", quantile * 100.0, "above 0 and below 100"));
            }
        }
        self.close_rounds()?;
        self.check_parts()?;
        self.check_routes()?;
        self.check_choices()?;
        self.check_work()?;
        Ok(self)
    }

    fn check_sizes(&self) -> Result<(), ModelError> {
        limit("classes", self.classes.len(), MOST_CLASSES)?;
        limit("stations", self.stations.len(), MOST_STATIONS)?;
        limit("pools", self.pools.len(), MOST_STATIONS)?;
        limit("classes × stations", self.classes.len() * self.stations.len(), 1_000_000)?;
        if self.classes.is_empty() {
            return Err(missing("classes", "at least one class"));
        }
        if self.stations.is_empty() {
            return Err(missing("stations", "at least one station"));
        }
        unique("classes", self.classes.iter().map(|class| class.name.as_str()))?;
        unique("stations", self.stations.iter().map(|station| station.name.as_str()))?;
        unique("pools", self.pools.iter().map(|pool| pool.name.as_str()))
    }

    fn check_pool(&self, path: &str, pool: &Pool) -> Result<(), ModelError> {
        if pool.tokens == 0 || pool.tokens > MOST_SERVERS {
            return Err(refused(format!("{path}.tokens"), pool.tokens, "1 to 1e9"));
        }
        if pool.stations.is_empty() || pool.stations.iter().any(|s| *s >= self.stations.len()) {
            let expected = "at least one station of the model";
            return Err(refused(format!("{path}.stations"), pool.stations.len(), expected));
        }
        if pool.classes.iter().any(|class| *class >= self.classes.len()) {
            return Err(refused(format!("{path}.classes"), "an index", "classes of the model"));
        }
        Ok(())
    }

    fn check_parts(&self) -> Result<(), ModelError> {
        let forks = self.stations.iter().enumerate().filter(|(_, s)| !s.parts.is_empty());
        for (index, station) in forks {
            let path = format!("stations[{index}].branches");
            if self.routes.is_empty() {
                let expected =
                    "`routes` beside branches of other stations, which lead back to the fork";
                return Err(refused(path, "a list", expected));
            }
            let other = |part: &usize| *part < self.stations.len() && *part != index;
            let counted = station.fork.is_some_and(|f| f.branches as usize == station.parts.len());
            if !station.parts.iter().all(other) || !counted {
                return Err(refused(path, "a list", "other stations of the model"));
            }
        }
        Ok(())
    }

    fn check_choices(&self) -> Result<(), ModelError> {
        for choice in &self.choices {
            let from = |leg: &&Leg| leg.class == choice.class && leg.from == choice.from;
            let legs: Vec<&Leg> = self.routes.iter().filter(from).collect();
            let each = legs.first().map_or(0.0, |leg| leg.probability);
            let alike = legs.iter().all(|leg| {
                let fits = match choice.rule {
                    Rule::ShortestQueue { .. } => leg.probability > 0.0,
                    Rule::RoundRobin => (leg.probability - each).abs() <= 1e-9,
                    Rule::ByNumber => true,
                };
                matches!(leg.to, Place::Station(_)) && fits
            });
            if legs.len() < 2 || !alike {
                let place = match choice.from {
                    Place::Outside => "in",
                    Place::Station(index) => {
                        self.stations.get(index).map_or("", |station| station.name.as_str())
                    }
                };
                let expected = "two stations or more, and no `out`, behind a choice by queues or in turn; \
                                by queues with probabilities above 0, in turn with equal ones";
                return Err(refused("routes.choose", format!("that from `{place}`"), expected));
            }
            if let Rule::ShortestQueue { of } = choice.rule
                && of == 0
            {
                return Err(refused("routes.choices", of, "1 or above"));
            }
            for (station, factors) in &choice.factors {
                let to = |leg: &&Leg| leg.to == Place::Station(*station);
                let fits = |factor: &f64| (0.0..=1e15).contains(factor);
                let sizes = (1..=MOST_FACTORS).contains(&factors.len());
                if !legs.iter().any(to) || !sizes || !factors.iter().all(fits) {
                    let expected = "stations of `to`, each with 1 to 100000 numbers from 0 to 1e15";
                    let value = self.stations.get(*station).map_or("", |s| s.name.as_str());
                    return Err(refused("routes.factors", format!("that of `{value}`"), expected));
                }
            }
        }
        Ok(())
    }

    fn check_work(&self) -> Result<(), ModelError> {
        if !self.routes.is_empty() {
            return Ok(());
        }
        for (index, class) in self.classes.iter().enumerate() {
            let visited = self
                .stations
                .iter()
                .any(|station| station.demand_at(index).is_some_and(|demand| demand.visits > 0.0));
            if !visited {
                return Err(ModelError::VisitsNothing { class: class.name.clone() });
            }
        }
        Ok(())
    }
}

fn missing(path: &str, expected: &str) -> ModelError {
    ModelError::Missing { path: path.to_owned(), expected: expected.to_owned() }
}

fn limit(path: &str, value: usize, limit: usize) -> Result<(), ModelError> {
    if value <= limit {
        return Ok(());
    }
    Err(ModelError::TooLarge {
        path: path.to_owned(),
        value: value.to_string(),
        limit: limit.to_string(),
    })
}

fn unique<'a>(path: &str, names: impl Iterator<Item = &'a str>) -> Result<(), ModelError> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        if !kendall_units::is_printable(name) {
            let expected = "a name without control characters";
            let name = format!("`{}`", name.escape_debug());
            return Err(refused(format!("{path}.name"), name, expected));
        }
        if name.is_empty() || !seen.insert(name) {
            let expected = "a name that nothing else of its kind has";
            return Err(refused(format!("{path}.name"), format!("`{name}`"), expected));
        }
    }
    Ok(())
}

fn check_class(path: &str, class: &Class) -> Result<(), ModelError> {
    class.check_before().map_err(|(value, expected)| {
        refused(format!("{path}.{}", class.key_before()), value, expected)
    })?;
    match &class.workload {
        Workload::Open { arrival_rate_per_s, batch, .. } => {
            if !(arrival_rate_per_s.is_finite() && *arrival_rate_per_s >= 0.0) {
                let expected = "a finite rate, 0 or above";
                return Err(refused(
                    format!("{path}.arrival_rate_per_s"),
                    arrival_rate_per_s,
                    expected,
                ));
            }
            check_batch(&format!("{path}.batch_size"), batch)
        }
        Workload::Closed { population, think_time } => {
            if *population > MOST_CUSTOMERS {
                return Err(ModelError::TooLarge {
                    path: format!("{path}.population"),
                    value: population.to_string(),
                    limit: MOST_CUSTOMERS.to_string(),
                });
            }
            check_time(&format!("{path}.think_time_s"), think_time)
        }
    }
}

fn check_time(path: &str, time: &Distribution) -> Result<(), ModelError> {
    let mean = time.mean();
    if (0.0..=1e18).contains(&mean) {
        Ok(())
    } else {
        Err(refused(path, mean, "a finite time, 0 or above"))
    }
}

fn check_batch(path: &str, batch: &Batch) -> Result<(), ModelError> {
    let fits = match batch {
        Batch::Fixed(size) => (1..=1_000_000).contains(size),
        Batch::Geometric { mean } => mean.is_finite() && *mean >= 1.0 && *mean <= 1e6,
        Batch::Table(table) => {
            !table.is_empty() && table.len() <= 100_000 && is_distribution(table)
        }
    };
    let expected = "a size from 1 to 1e6, or probabilities that add to 1";
    let written = match batch {
        Batch::Fixed(size) => size.to_string(),
        Batch::Geometric { mean } => format!("a mean of {}", kendall_units::echo(mean)),
        Batch::Table(table) => format!(
            "{} that add to {}",
            kendall_units::counted(table.len(), "probability"),
            kendall_units::echo(table.iter().sum::<f64>())
        ),
    };
    if fits { Ok(()) } else { Err(refused(path, written, expected)) }
}

fn is_distribution(probabilities: &[f64]) -> bool {
    probabilities.iter().all(|p| (0.0..=1.0).contains(p))
        && (probabilities.iter().sum::<f64>() - 1.0).abs() <= 1e-9
}

fn check_station(path: &str, station: &Station) -> Result<(), ModelError> {
    if station.servers == 0 || station.servers > MOST_SERVERS {
        return Err(refused(
            format!("{path}.servers"),
            station.servers,
            "1 to 1e9 (a station without servers is `type = \"delay\"`)",
        ));
    }
    if station.capacity.is_some_and(|capacity| capacity < station.servers && !station.is_delay()) {
        return Err(refused(
            format!("{path}.capacity"),
            station.capacity.unwrap_or(0),
            format!(
                "at least {}: capacity includes customers in service",
                kendall_units::counted(station.servers, "server")
            ),
        ));
    }
    if station.when_full != WhenFull::Lost && station.capacity.is_none() {
        let expected = "a `capacity` beside it: without one it is never full";
        return Err(refused(format!("{path}.when_full"), "a word", expected));
    }
    for demand in station.demands.iter().flatten() {
        check_time(&format!("{path}.service_time_s"), &demand.service)?;
        if !(demand.visits.is_finite() && (0.0..=1e15).contains(&demand.visits)) {
            return Err(refused(format!("{path}.visits"), demand.visits, "a number, 0 or above"));
        }
    }
    if station.rate_multipliers.len() > 10_000_000 {
        return Err(refused(
            format!("{path}.rate_multipliers"),
            station.rate_multipliers.len(),
            "at most 1e7 entries",
        ));
    }
    for rate in &station.rate_multipliers {
        if !(rate.is_finite() && *rate > 0.0) {
            return Err(refused(format!("{path}.rate_multipliers"), rate, "numbers above 0"));
        }
    }
    if station.is_delay() && !station.rate_multipliers.is_empty() {
        let expected =
            "none at a delay, where nobody waits: its speed follows from no number there";
        return Err(refused(format!("{path}.rate_multipliers"), "a list", expected));
    }
    if station.patience.as_ref().is_some_and(|patience| !patience.is_independent()) {
        let expected = "a distribution: customers do not share their patience";
        return Err(refused(format!("{path}.patience"), "a process", expected));
    }
    check_order(path, station)?;
    if let Balking::Table(table) = &station.balking
        && (table.is_empty() || table.iter().any(|p| !(0.0..=1.0).contains(p)))
    {
        return Err(refused(format!("{path}.join_probabilities"), "a list", "numbers from 0 to 1"));
    }
    check_fork(path, station)
}

/// What an order of service cannot be combined with.
fn check_order(path: &str, station: &Station) -> Result<(), ModelError> {
    if let Some(weight) = station.weights.iter().find(|weight| !(1e-9..=1e9).contains(*weight)) {
        return Err(refused(format!("{path}.weight"), weight, "numbers from 1e-9 to 1e9"));
    }
    let least = station.weights.iter().copied().fold(f64::INFINITY, f64::min);
    if let Some(weight) = station.weights.iter().find(|weight| **weight > 1e6 * least) {
        let expected = "at most 1e6 times the least: priorities say who goes first in any case";
        return Err(refused(format!("{path}.weight"), weight, expected));
    }
    if let Some(deadline) = station.deadlines.iter().find(|time| !(0.0..=1e15).contains(*time)) {
        return Err(refused(format!("{path}.deadline_s"), deadline, "numbers from 0 to 1e15"));
    }
    if !matches!(station.discipline, Discipline::Dps | Discipline::Gps) {
        return Ok(());
    }
    if station.servers != 1 {
        let expected = "1 where customers share by weights: which of several servers a customer \
                        gets follows from no weight";
        return Err(refused(format!("{path}.servers"), station.servers, expected));
    }
    if !station.rate_multipliers.is_empty() {
        let expected = "none where customers share by weights";
        return Err(refused(format!("{path}.rate_multipliers"), "a list", expected));
    }
    Ok(())
}

fn check_fork(path: &str, station: &Station) -> Result<(), ModelError> {
    let Some(fork) = station.fork else { return Ok(()) };
    if fork.branches == 0 || fork.branches > 100_000 {
        return Err(refused(format!("{path}.branches"), fork.branches, "1 to 100000"));
    }
    if fork.needed == 0 || fork.needed > fork.branches {
        let expected = format!("1 to {} branches", fork.branches);
        return Err(refused(format!("{path}.needed"), fork.needed, expected));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Model, String> {
        toml::from_str::<Model>(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_full_description_is_read() {
        let model = parse(
            r#"
            name = "shop"
            percentiles = [50, 99]
            [[classes]]
            name = "browse"
            arrival_rate_per_s = 20
            interarrival_time = { distribution = "erlang", stages = 2 }
            [[classes]]
            name = "batch"
            population = 4
            think_time_s = 0.5
            priority = 2
            [[stations]]
            name = "cpu"
            servers = 2
            discipline = "ps"
            service_time_s = { browse = 0.01, batch = 0.1 }
            visits = { browse = 3 }
            [[stations]]
            name = "disk"
            service = { browse = { distribution = "lognormal", mean_s = 0.004, scv = 2 } }
            visits = 2
            capacity = 50
            [[pools]]
            name = "workers"
            tokens = 8
            stations = ["cpu", "disk"]
            "#,
        )
        .unwrap();
        assert_eq!(model.classes[1].population(), 4);
        let visits = |class: usize| model.stations[0].demands[class].as_ref().unwrap().visits;
        assert!((visits(0) - 3.0).abs() < 1e-15 && (visits(1) - 1.0).abs() < 1e-15);
        assert!(model.stations[1].demands[1].is_none());
        assert_eq!(model.pools[0].stations, [0, 1]);
        assert_eq!(model.quantiles, [0.5, 0.99]);
    }

    #[test]
    fn routing_gives_visits() {
        let model = parse(
            r#"
            arrival_rate_per_s = 4
            [[stations]]
            name = "cpu"
            service_time_s = 0.04
            [[stations]]
            name = "disk"
            service_time_s = 0.03
            [[routes]]
            from = "in"
            to = { cpu = 1 }
            [[routes]]
            from = "cpu"
            to = { disk = 0.8, out = 0.2 }
            [[routes]]
            from = "disk"
            to = { cpu = 1 }
            "#,
        )
        .unwrap();
        let visits = model.visits().unwrap();
        assert!((visits[0][0] - 5.0).abs() < 1e-12 && (visits[1][0] - 4.0).abs() < 1e-12);
    }

    #[test]
    fn a_customer_that_never_leaves_is_an_error() {
        let error = parse(
            r#"
            arrival_rate_per_s = 4
            stations = [{ name = "a", service_time_s = 1 }, { name = "b", service_time_s = 1 }]
            routes = [
              { from = "in", to = { a = 1 } },
              { from = "a", to = { b = 1 } },
              { from = "b", to = { a = 1 } },
            ]
            "#,
        )
        .unwrap_err();
        assert!(error.contains("never leaves"), "{error}");
        // Where nobody comes no way out is needed: station `a` was said to have none.
        let model = parse(
            "arrival_rate_per_s = 4\nstations = [{ name = 'a', service_time_s = 0.1 }, { name = 'b', service_time_s = \
             1 }]\nroutes = [{ from = 'in', to = { a = 1 } }, { from = 'a', to = { out = 1 } }, { from = 'b', to = \
             { b = 1 } }]",
        );
        let visits = model.unwrap().visits().unwrap();
        assert!((visits[0][0] - 1.0).abs() < 1e-12 && visits[1][0].abs() < 1e-12, "{visits:?}");
    }

    /// Written as others write it, a closed cycle has no `out`: a round begins at its first station.
    #[test]
    fn a_closed_cycle_needs_no_way_out() {
        let cycle = |routes: &str| {
            let stations =
                "[{ name = 'a', service_time_s = 1 }, { name = 'b', service_time_s = 2 }]";
            parse(&format!("population = 2\nstations = {stations}\nroutes = [{routes}]"))
        };
        let model =
            cycle("{ from = 'a', to = { b = 1 } }, { from = 'b', to = { a = 0.5, b = 0.5 } }")
                .unwrap();
        let visits = model.visits().unwrap();
        assert!((visits[0][0] - 1.0).abs() < 1e-12 && (visits[1][0] - 2.0).abs() < 1e-12);
        let error = parse(
            "population = 2\nthink_time_s = 1\nstations = [{ name = 'a', service_time_s = 1 }]\n\
                   routes = [{ from = 'a', to = { a = 1 } }]",
        )
        .unwrap_err();
        assert!(error.contains("thinks and never leaves"), "{error}");
    }

    /// Customers of `a` come home as `b`, which stays: only `b` counts. Where they come home as `b` or as `c`, which
    /// both stay, no mean holds for long.
    #[test]
    fn a_closed_class_that_changes_for_good_needs_one_to_end_as() {
        let model = |population: &str, homes: &str| {
            parse(&format!(
                "stations = [{{ name = 's', service_time_s = 1 }}]\n\
                 classes = [{population}, {{ name = 'b', population = 1 }},\n\
                 {{ name = 'c', population = 1 }}]\n\
                 routes = [{{ class = 'a', from = 'in', to = {{ s = 1 }} }},\n\
                 {{ class = 'b', from = 'in', to = {{ s = 1 }} }},\n\
                 {{ class = 'c', from = 'in', to = {{ s = 1 }} }},\n\
                 {{ class = 'a', from = 's', to = {homes} }},\n\
                 {{ class = 'b', from = 's', to = {{ out = 1 }} }},\n\
                 {{ class = 'c', from = 's', to = {{ out = 1 }} }}]"
            ))
            .unwrap()
        };
        let a = "{ name = 'a', population = 2 }";
        let visits = model(a, "{ 'out:b' = 1 }").visits().unwrap();
        assert!(visits[0][0].abs() < 1e-12 && (visits[0][1] - 1.0).abs() < 1e-12, "{visits:?}");
        let refused = model(a, "{ 'out:b' = 0.5, 'out:c' = 0.5 }").visits().unwrap_err();
        assert!(refused.to_string().contains("as `b` or as `c` for good"), "{refused}");
    }

    #[test]
    fn nobody_arriving_is_a_model_whatever_the_shape_of_the_gaps() {
        let model = parse(
            "stations = [{ name = 'a', service_time_s = 1 }]\n\
             classes = [{ name = 'c', arrival_rate_per_s = 0,\n\
             interarrival_time = { distribution = 'erlang', stages = 2 } }]",
        )
        .unwrap();
        assert!(model.classes[0].arrival_rate_per_s() == 0.0);
    }

    #[test]
    fn a_key_is_used_or_refused() {
        let station = "stations = [{ name = 'a', service_time_s = 1";
        for (text, says) in [
            (
                format!("arrival_rate_per_s = 1\n{station}, server = 2 }}]"),
                "did you mean `servers`",
            ),
            (
                format!("arrival_rate_per_s = '1'\n{station} }}]"),
                "arrival_rate_per_s: `\"1\"` is not",
            ),
            (
                format!("arrival_rate_per_s = nan\n{station} }}]"),
                "arrival_rate_per_s: `nan` is not",
            ),
            (format!("arrival_rate_per_s = 1\n{station}, needed = 2 }}]"), "stations[0].needed"),
            (
                format!("arrival_rate_per_s = 1\n{station}, type = 'delya' }}]"),
                "did you mean \"delay\"",
            ),
            (
                format!("arrival_rate_per_s = 1\n{station}, type = 'delay', servers = 2 }}]"),
                "servers",
            ),
            (
                format!("arrival_rate_per_s = 1\nsolver = 'atuo'\n{station} }}]"),
                "did you mean \"auto\"",
            ),
            (format!("arrival_rate_per_s = 1\nthink_time_s = 2\n{station} }}]"), "think_time_s"),
            (
                format!(
                    "arrival_rate_per_s = 1\n{station}, \
                     service = {{ distribution = 'erlang', mean_s = 2, stages = 2 }} }}]"
                ),
                "rate of 1 s",
            ),
            (
                format!(
                    "arrival_rate_per_s = 1\n{station}, visits = 2 }}]\n\
                     routes = [{{ from = 'in', to = {{ a = 1 }} }}, {{ from = 'a', to = {{ out = 1 }} }}]"
                ),
                "visits",
            ),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn errors_name_path_value_and_accepted_form() {
        let error = parse(
            "arrival_rate_per_s = 1\nstations = [{ name = \"a\", service_time_s = 1, servers = 0 }]",
        )
        .unwrap_err();
        assert!(error.contains("stations[0].servers: 0 is refused; expected 1 to 1e9"), "{error}");
        let error = parse("stations = [{ name = \"a\", service_time_s = 1 }]").unwrap_err();
        assert!(error.contains("arrival_rate_per_s"), "{error}");
        let control =
            "arrival_rate_per_s = 1\nstations = [{ name = \"a\\u009b2J\", service_time_s = 0.1 }]";
        let error = parse(control).unwrap_err();
        assert!(error.contains(r"stations.name: `a\u{9b}2J` is refused"), "{error}");
        let error = parse("arrival_rate_per_s = 1\nstations = [{ name = \"a\" }]").unwrap_err();
        assert!(error.contains("service_time_s"), "{error}");
    }
}
