//! Networks of queues in steady state: open, closed and mixed, one class and several.
//!
//! A [`Network`] is what product-form theory needs: service demands, not service times and visits.
//! `Model` is turned into one by the solver choice (`solver.rs`); it can also be made by hand.

pub(crate) mod accelerate;
mod approximate;
mod bounds;
mod convolution;
mod fork_join;
pub(crate) mod layers;
mod mva;
mod open;

use kendall_units::exact_f64;

pub use crate::station::Accuracy;
pub use approximate::{
    InLine, Iteration, MeasuredError, MultiServer, bard, in_line, linearizer, range, schweitzer,
    seidmann_exact,
};
pub use bounds::{
    Bottleneck, Bounds, arrival_bounds, asymptotic_bounds, balanced_bounds, bottleneck,
    geometric_bounds, multi_class_bounds, proportional_bounds,
};
pub use convolution::{convolution, normalization_constants};
pub use fork_join::{
    ForkJoin, fork_join, fork_join_general, fork_join_unequal, harmonic, order_statistic_factor,
};
pub use layers::{FlowEquivalent, flow_equivalent, pool_rates};
pub use mva::mva_exact;
pub(crate) use open::variance;
pub use open::{mixed, open};

/// Most elementary steps that an exact solver may take: some seconds.
pub const MOST_STEPS: f64 = 2e9;

/// A network as product-form solvers see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// The classes; per-class lists keep this order.
    pub classes: Vec<Load>,
    /// The resources; per-resource lists keep this order.
    pub resources: Vec<Resource>,
}

/// What one class brings.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "the variants say it")]
pub enum Load {
    /// λ in 1/s.
    Open { arrival_rate: f64 },
    /// N customers that think for Z s between requests.
    Closed { population: u64, think_time: f64 },
}

/// A resource and what each class asks of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    /// How it works.
    pub kind: Kind,
    /// D of each class, in s.
    pub demands: Vec<f64>,
}

/// How a resource works.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the variants say it")]
pub enum Kind {
    /// One server (FCFS, PS or LCFS-PR).
    Queue,
    /// A server for each customer: no waiting.
    Delay,
    /// m equal servers.
    Servers(u64),
    /// With n customers, `multipliers[n−1]` times as fast as with one; the last goes on for ever.
    LoadDependent(Vec<f64>),
    /// A customer is copied to `branches` equal single servers, each with the demand of the list,
    /// and goes on when `needed` copies are done.
    ForkJoin { branches: u32, needed: u32 },
}

/// What a solver found. Lists are by class, or by resource and then class.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NetworkSolution {
    /// Which solver.
    pub solver: &'static str,
    /// How far it can be trusted.
    pub accuracy: Accuracy,
    /// X of each class in 1/s.
    pub throughput: Vec<f64>,
    /// R of each class in s, think time excluded.
    pub system_response: Vec<f64>,
    /// Residence time V·R at each resource, per class, in s.
    pub residence: Vec<Vec<f64>>,
    /// Q at each resource, per class.
    pub number: Vec<Vec<f64>>,
    /// Busy share of one server of each resource, per class; at a delay, the mean number there; at one with
    /// rates of its own, the probability that anyone is there, divided as the work of the classes.
    pub utilization: Vec<Vec<f64>>,
    /// P(n customers) at each resource, where the solver knows it (single class).
    pub marginals: Vec<Option<Vec<f64>>>,
    /// Variance of the number at each resource, all classes together, where the solver knows it.
    pub number_variance: Vec<Option<f64>>,
    /// ln G of all customers, where the solver has it.
    pub ln_g: Option<f64>,
    /// Rounds of an iteration, and the largest change in its last one.
    pub iterations: Option<(u32, f64)>,
    /// How far the solver was off at most over random networks like this one, where that was
    /// measured.
    pub measured_error: Option<MeasuredError>,
}

/// Why there is no solution.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the error texts say it")]
pub enum NetworkError {
    #[error("the network has no {what}: give at least one")]
    Empty { what: &'static str },
    #[error("resource {resource} has {have} demands, but there are {need} classes")]
    Shape { resource: usize, have: usize, need: usize },
    #[error("{name} is {}; it must be {expected}", kendall_units::echo(value))]
    Number { name: String, value: f64, expected: &'static str },
    #[error("class {class} visits nothing: its demands and think time are all 0")]
    NoWork { class: usize },
    #[error(
        "no steady state at resource {resource}: open classes offer {} erlangs to a \
         capacity of {}; lower the arrival rates below {share:.4} of what they are, or \
         add servers",
        kendall_units::echo(format_args!("{offered:.6}")),
        kendall_units::echo(format_args!("{capacity:.6}"))
    )]
    Unstable { resource: usize, offered: f64, capacity: f64, share: f64 },
    #[error("{solver} does not handle {what}; use {instead}")]
    Unsupported { solver: &'static str, what: &'static str, instead: &'static str },
    #[error(
        "{solver} would take {steps:.3e} steps, above the limit of {limit:.1e}; use schweitzer or \
         linearizer"
    )]
    TooLarge { solver: &'static str, steps: f64, limit: f64 },
    #[error("{solver} did not settle: after {rounds} rounds numbers still change by {change:.2e}")]
    NotSettled { solver: &'static str, rounds: u32, change: f64 },
    #[error(
        "{solver} gave a result that breaks {law} ({have} against {limit}); please report this"
    )]
    BrokenLaw { solver: &'static str, law: &'static str, have: f64, limit: f64 },
}

impl Resource {
    /// A single server with these demands in s.
    #[must_use]
    pub fn queue(demands: &[f64]) -> Self {
        Self { kind: Kind::Queue, demands: demands.to_vec() }
    }

    /// A delay with these demands in s.
    #[must_use]
    pub fn delay(demands: &[f64]) -> Self {
        Self { kind: Kind::Delay, demands: demands.to_vec() }
    }

    /// m servers with these demands in s.
    #[must_use]
    pub fn servers(servers: u64, demands: &[f64]) -> Self {
        let kind = if servers == 1 { Kind::Queue } else { Kind::Servers(servers) };
        Self { kind, demands: demands.to_vec() }
    }

    /// How many times as fast as with one customer it works with n ≥ 1.
    #[must_use]
    pub fn multiplier(&self, n: u64) -> f64 {
        match &self.kind {
            Kind::Queue | Kind::ForkJoin { .. } => 1.0,
            Kind::Delay => exact_f64(n),
            Kind::Servers(m) => exact_f64(n.min(*m)),
            Kind::LoadDependent(list) => {
                let index = usize::try_from(n.saturating_sub(1)).unwrap_or(usize::MAX);
                list.get(index).or(list.last()).copied().unwrap_or(1.0)
            }
        }
    }

    /// Whether it is a queue whose rate depends on the number there.
    #[must_use]
    pub const fn is_load_dependent(&self) -> bool {
        matches!(self.kind, Kind::Servers(_) | Kind::LoadDependent(_))
    }

    /// Whether customers never wait.
    #[must_use]
    pub const fn is_delay(&self) -> bool {
        matches!(self.kind, Kind::Delay)
    }

    /// m, or the greatest speed of a load-dependent resource: what utilization is relative to.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        match &self.kind {
            Kind::Queue | Kind::Delay | Kind::ForkJoin { .. } => 1.0,
            Kind::Servers(m) => exact_f64(*m),
            Kind::LoadDependent(list) => list.iter().copied().fold(f64::MIN_POSITIVE, f64::max),
        }
    }

    /// Speed when very many are there.
    pub(crate) fn final_multiplier(&self) -> f64 {
        match &self.kind {
            Kind::LoadDependent(list) => list.last().copied().unwrap_or(1.0),
            _ => self.capacity(),
        }
    }
}

impl Network {
    /// One closed class at single-server queues: demands in s, think time in s.
    #[must_use]
    pub fn closed(demands: &[f64], population: u64, think_time: f64) -> Self {
        Self {
            classes: vec![Load::Closed { population, think_time }],
            resources: demands.iter().map(|d| Resource::queue(&[*d])).collect(),
        }
    }

    /// Checks shapes and numbers.
    ///
    /// # Errors
    /// [`NetworkError`] for the first that makes no sense.
    pub fn check(&self) -> Result<(), NetworkError> {
        if self.classes.is_empty() {
            return Err(NetworkError::Empty { what: "classes" });
        }
        if self.resources.is_empty() {
            return Err(NetworkError::Empty { what: "resources" });
        }
        let number = |name: String, value: f64| {
            if (0.0..=1e100).contains(&value) {
                Ok(())
            } else {
                Err(NetworkError::Number { name, value, expected: "a finite number, 0 or above" })
            }
        };
        for (index, resource) in self.resources.iter().enumerate() {
            let (have, need) = (resource.demands.len(), self.classes.len());
            if have != need {
                return Err(NetworkError::Shape { resource: index, have, need });
            }
            for demand in &resource.demands {
                number(format!("demand at resource {index}"), *demand)?;
            }
            check_kind(index, &resource.kind)?;
        }
        for (class, load) in self.classes.iter().enumerate() {
            let work: f64 = self.resources.iter().map(|r| r.demands[class]).sum();
            match load {
                Load::Open { arrival_rate } => {
                    number(format!("arrival rate of class {class}"), *arrival_rate)?;
                }
                Load::Closed { population, think_time } => {
                    number(format!("think time of class {class}"), *think_time)?;
                    if *population > 1 << 52 {
                        return Err(NetworkError::Number {
                            name: format!("population of class {class}"),
                            value: f64::MAX,
                            expected: "below 2^52",
                        });
                    }
                    if work + think_time < 1e-100 && *population > 0 {
                        return Err(NetworkError::NoWork { class });
                    }
                }
            }
        }
        Ok(())
    }

    fn refuse_fork_join(&self, solver: &'static str) -> Result<(), NetworkError> {
        if self.resources.iter().any(|r| matches!(r.kind, Kind::ForkJoin { .. })) {
            return Err(NetworkError::Unsupported {
                solver,
                what: "fork-join",
                instead: "`schweitzer` or a simulation",
            });
        }
        Ok(())
    }

    /// N of each class; 0 for open ones.
    #[must_use]
    pub fn populations(&self) -> Vec<u64> {
        self.classes.iter().map(Load::population).collect()
    }

    /// Whether any class is open.
    #[must_use]
    pub fn has_open(&self) -> bool {
        self.classes.iter().any(|load| matches!(load, Load::Open { .. }))
    }

    /// Whether any class is closed.
    #[must_use]
    pub fn has_closed(&self) -> bool {
        self.classes.iter().any(|load| matches!(load, Load::Closed { .. }))
    }

    /// Σ D of one class over the resources.
    #[must_use]
    pub fn total_demand(&self, class: usize) -> f64 {
        self.resources.iter().map(|resource| resource.demands[class]).sum()
    }
}

fn check_kind(index: usize, kind: &Kind) -> Result<(), NetworkError> {
    let refused = |name: &str, value: f64| {
        let expected = "above 0 and finite";
        Err(NetworkError::Number { name: format!("{name} of resource {index}"), value, expected })
    };
    match kind {
        Kind::Servers(0) => refused("number of servers", 0.0),
        Kind::ForkJoin { branches, needed } if *needed == 0 || needed > branches => {
            refused("number of needed branches", f64::from(*needed))
        }
        Kind::LoadDependent(list) if list.is_empty() => refused("number of rates", 0.0),
        Kind::LoadDependent(list) => {
            match list.iter().find(|rate| !(1e-100..=1e100).contains(*rate)) {
                Some(rate) => refused("rate multiplier", *rate),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

impl Load {
    /// N; 0 when open.
    #[must_use]
    pub const fn population(&self) -> u64 {
        match self {
            Self::Open { .. } => 0,
            Self::Closed { population, .. } => *population,
        }
    }

    /// Z; 0 when open.
    #[must_use]
    pub const fn think_time(&self) -> f64 {
        match self {
            Self::Open { .. } => 0.0,
            Self::Closed { think_time, .. } => *think_time,
        }
    }

    /// λ; 0 when closed.
    #[must_use]
    pub const fn arrival_rate(&self) -> f64 {
        match self {
            Self::Open { arrival_rate } => *arrival_rate,
            Self::Closed { .. } => 0.0,
        }
    }
}

impl NetworkSolution {
    /// From throughput and residence times; the rest follows from Little's and the utilization
    /// law.
    pub(crate) fn from_residence(
        network: &Network,
        solver: &'static str,
        accuracy: Accuracy,
        throughput: Vec<f64>,
        residence: Vec<Vec<f64>>,
    ) -> Self {
        let classes = network.classes.len();
        let number = residence
            .iter()
            .map(|row| row.iter().zip(&throughput).map(|(r, x)| r * x).collect())
            .collect();
        let utilization = network
            .resources
            .iter()
            .map(|resource| {
                let m = resource.capacity();
                resource.demands.iter().zip(&throughput).map(|(d, x)| d * x / m).collect()
            })
            .collect();
        let system_response =
            (0..classes).map(|class| residence.iter().map(|row| row[class]).sum()).collect();
        Self {
            solver,
            accuracy,
            throughput,
            system_response,
            residence,
            number,
            utilization,
            marginals: vec![None; network.resources.len()],
            number_variance: vec![None; network.resources.len()],
            ln_g: None,
            iterations: None,
            measured_error: None,
        }
    }

    /// Σ of the number at one resource over the classes.
    #[must_use]
    pub fn total_number(&self, resource: usize) -> f64 {
        self.number[resource].iter().sum()
    }

    /// Σ of the utilization of one resource over the classes.
    #[must_use]
    pub fn total_utilization(&self, resource: usize) -> f64 {
        self.utilization[resource].iter().sum()
    }

    /// Checks the solution against the asymptotic bounds, the capacity of every resource, and the
    /// conservation of customers. Exact solutions may miss by 1e-8, approximations by 1e-4 in the
    /// number of customers.
    ///
    /// # Errors
    /// [`NetworkError::BrokenLaw`].
    pub fn verified(self, network: &Network) -> Result<Self, NetworkError> {
        let slack = if self.accuracy == Accuracy::Exact { 1e-8 } else { 1e-4 };
        let broken = |law, have, limit| {
            Err(NetworkError::BrokenLaw { solver: self.solver, law, have, limit })
        };
        let all = self.throughput.iter().chain(self.residence.iter().flatten());
        for value in all.chain(self.number.iter().flatten()) {
            if !(value.is_finite() && *value >= 0.0) {
                return broken("all results are finite and not negative", *value, 0.0);
            }
        }
        for (index, resource) in network.resources.iter().enumerate() {
            let used = self.total_utilization(index);
            if !resource.is_delay() && used > 1.0 + slack {
                return broken("the utilization law: at most 1", used, 1.0);
            }
        }
        for (class, load) in network.classes.iter().enumerate() {
            let Load::Closed { population, think_time } = load else { continue };
            let n = exact_f64(*population);
            let x = self.throughput[class];
            let present: f64 = self.number.iter().map(|row| row[class]).sum();
            if (present + x * think_time - n).abs() > slack * n.max(1.0) {
                return broken("the conservation of customers", present + x * think_time, n);
            }
            let least = network.total_demand(class) / self.fastest(network, class) + think_time;
            if x * least > n * (1.0 + slack) {
                return broken("the asymptotic bound N/(D+Z)", x, n / least);
            }
        }
        Ok(self)
    }

    /// With the probability that anyone is there as the utilization of resources with rates of their own. Where the
    /// probabilities are not known, by the speed with one and the mean number that it finds.
    pub(crate) fn occupied(mut self, network: &Network) -> Self {
        for (index, resource) in network.resources.iter().enumerate() {
            if !matches!(resource.kind, Kind::LoadDependent(_)) {
                continue;
            }
            let busy = match &self.marginals[index] {
                Some(states) => states[1..].iter().rev().sum::<f64>(),
                None => {
                    let work = self.total_utilization(index) * resource.capacity();
                    let customers = exact_f64(network.populations().iter().sum::<u64>());
                    let others = self.total_number(index) * (1.0 - 1.0 / customers.max(1.0));
                    (work / approximate::interpolated(resource, 1.0 + others)).min(1.0)
                }
            };
            self.set_occupied(index, busy);
        }
        self
    }

    /// Divides the probability that anyone is at a resource among the classes as their work.
    fn set_occupied(&mut self, resource: usize, busy: f64) {
        let work = self.total_utilization(resource);
        if work > 0.0 {
            for share in &mut self.utilization[resource] {
                *share *= busy / work;
            }
        }
    }

    /// A load-dependent resource may work faster than with one customer, also for a single one.
    fn fastest(&self, network: &Network, class: usize) -> f64 {
        network
            .resources
            .iter()
            .filter(|r| r.demands[class] > 0.0 && matches!(r.kind, Kind::LoadDependent(_)))
            .map(Resource::capacity)
            .fold(1.0, f64::max)
    }
}
