//! From a [`Model`] to a [`Solution`]: which solver the model needs, and what its answer is worth.

mod blocking;
mod chains;
mod layered;
mod markov;
mod qna;
mod settling;
mod single;
mod tandem;

use std::str::FromStr;

use crate::model::{Balking, Batch, Discipline, Model, ModelError, Station, WhenFull};
use crate::network::{
    self, Accuracy, Bottleneck, Iteration, MultiServer, NetworkError, NetworkSolution,
};
use crate::station::{GgmFormula, MeasuredWait, Settling, StationError, StationSolution};
use chains::Chained;

/// Last change of an iteration from which its answer carries a caveat: beyond the digits that are
/// printed.
const UNSETTLED: f64 = 1e-8;

/// How a model is solved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Solver {
    /// What the model needs: exact where that is known and affordable.
    #[default]
    Auto,
    /// Exact mean value analysis.
    Mva,
    /// Convolution in the log domain.
    Convolution,
    /// Bard–Schweitzer, several servers by conditional waiting.
    Schweitzer,
    /// Bard–Schweitzer, several servers after Seidmann.
    Seidmann,
    /// Exact mean value analysis, several servers after Seidmann.
    SeidmannMva,
    /// Bard's approximation for many customers.
    Bard,
    /// Linearizer.
    Linearizer,
    /// A formula for one G/G/m station.
    Ggm(GgmFormula),
    /// Discrete-event simulation: see `simulation`, not this module.
    Simulation,
}

impl Solver {
    /// All of them, with their names in files and on the command line.
    pub const ALL: [(&'static str, Self); 14] = [
        ("auto", Self::Auto),
        ("mva", Self::Mva),
        ("convolution", Self::Convolution),
        ("schweitzer", Self::Schweitzer),
        ("seidmann", Self::Seidmann),
        ("seidmann-mva", Self::SeidmannMva),
        ("bard", Self::Bard),
        ("linearizer", Self::Linearizer),
        ("allen-cunneen", Self::Ggm(GgmFormula::AllenCunneen)),
        ("kraemer-langenbach-belz", Self::Ggm(GgmFormula::KraemerLangenbachBelz)),
        ("whitt", Self::Ggm(GgmFormula::Whitt)),
        ("marchal", Self::Ggm(GgmFormula::Marchal)),
        ("kingman", Self::Ggm(GgmFormula::Kingman)),
        ("simulation", Self::Simulation),
    ];
}

impl FromStr for Solver {
    type Err = SolveError;

    fn from_str(name: &str) -> Result<Self, SolveError> {
        match Self::ALL.iter().find(|(known, _)| *known == name) {
            Some((_, solver)) => Ok(*solver),
            None => Err(SolveError::UnknownSolver {
                name: name.to_owned(),
                known: Self::ALL.map(|(known, _)| known).join(", "),
            }),
        }
    }
}

/// Why a model has no solution, or not this one.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the error texts say it")]
pub enum SolveError {
    /// The model makes no sense.
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error("station `{station}`: {source}")]
    Station { station: String, source: StationError },
    #[error("{source}{}", legend(.names))]
    Network { names: Vec<String>, source: NetworkError },
    #[error("no formula covers {feature} at `{station}`; use `solver = \"simulation\"`")]
    NeedsSimulation { feature: &'static str, station: String },
    #[error("solver `{solver}` is for {what}; leave it out, or use {instead}")]
    WrongSolver { solver: &'static str, what: &'static str, instead: &'static str },
    #[error("`{name}` is not a solver; known are {known}")]
    UnknownSolver { name: String, known: String },
}

fn legend(names: &[String]) -> String {
    let listed: Vec<String> =
        names.iter().enumerate().take(12).map(|(i, name)| format!("{i} is `{name}`")).collect();
    format!(" (resources: {})", listed.join(", "))
}

/// Why an answer should be trusted less than its accuracy says.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the texts say it")]
pub enum Caveat {
    NotProductForm { station: String },
    Decomposed { station: String, arrivals_scv: f64 },
    MatchedPercentiles,
    NoPercentiles,
    ArrivalsTakenAsPoisson { class: String },
    FlowEquivalent { pool: String },
    MeasuredError(network::MeasuredError),
    MeasuredWait(MeasuredWait),
    UnknownError,
    Unsettled { change: f64 },
    NearSaturation { station: String, utilization: f64 },
}

impl std::fmt::Display for Caveat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotProductForm { station } => write!(
                f,
                "`{station}` is FCFS (or LCFS-PR at several servers) with service times that are not one \
                 exponential for all classes: an approximation"
            ),
            Self::Decomposed { station, arrivals_scv } => write!(
                f,
                "arrivals at `{station}` are taken as independent, with a squared coefficient of \
                 variation of {arrivals_scv:.3} (docs/models.md)"
            ),
            Self::MatchedPercentiles => f.write_str(
                "means are exact, and percentiles come from a distribution matched to two moments: \
                 their error is unknown",
            ),
            Self::NoPercentiles => f.write_str(
                "percentiles of this model (of each class) are known by simulation only: use \
                 `--solver simulation`, or `--compare auto,simulation`",
            ),
            Self::ArrivalsTakenAsPoisson { class } => {
                write!(f, "arrivals of `{class}` are taken as Poisson")
            }
            Self::FlowEquivalent { pool } => {
                write!(f, "`{pool}` is solved as a flow-equivalent server")
            }
            Self::MeasuredError(error) if error.throughput_percent <= 0.0 => write!(
                f,
                "error of this approximation over random models at most {} % in response time \
                 (docs/models.md)",
                error.response_percent
            ),
            Self::MeasuredError(error) => write!(
                f,
                "error of this approximation over random networks at most {} % in throughput and \
                 {} % in response time (docs/models.md)",
                error.throughput_percent, error.response_percent
            ),
            Self::MeasuredWait(error) => write!(
                f,
                "error of this approximation over random queues at most {} % in waiting time and \
                 {} % in response time (docs/models.md)",
                error.waiting_percent, error.response_percent
            ),
            Self::UnknownError => f.write_str(
                "error of this approximation unknown: compare with `--solver simulation`",
            ),
            Self::Unsettled { change } => write!(
                f,
                "the iteration was stopped while throughputs still changed by {change:.1e} a round"
            ),
            Self::NearSaturation { station, utilization } => write!(
                f,
                "`{station}` is {:.1} % busy: small errors of the inputs become large ones",
                utilization * 100.0
            ),
        }
    }
}

/// What one class sees. Rates in 1/s, times in s.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ClassResult {
    /// Its name.
    pub name: String,
    /// X: completed requests.
    pub throughput: f64,
    /// R: from arrival to departure, think time excluded.
    pub system_response: f64,
    /// Mean number in the system, thinking customers excluded.
    pub number: f64,
    /// N* and 1/Dmax, for a class that asks something of a queue.
    pub bottleneck: Option<Bottleneck>,
    /// Least and greatest throughput by the asymptotic bounds (closed classes).
    pub throughput_bounds: Option<(f64, f64)>,
    /// Variance of its number in the system, where it is known exactly.
    pub number_variance: Option<f64>,
    /// Variance of its system response, likewise.
    pub system_response_variance: Option<f64>,
    /// Quantiles of its system response that were asked for and are known: (quantile, s).
    pub response_quantiles: Vec<(f64, f64)>,
}

/// What happens at one station. Lists are by class.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StationResult {
    /// Its name.
    pub name: String,
    /// Visits per second.
    pub throughput: Vec<f64>,
    /// Busy share of one server; the mean number at a delay; with rates of its own, share of time in which it works.
    pub utilization: Vec<f64>,
    /// Q.
    pub number: Vec<f64>,
    /// R per visit in s.
    pub response_time: Vec<f64>,
    /// W per visit in s: R less service.
    pub waiting_time: Vec<f64>,
    /// V·R per request in s.
    pub residence_time: Vec<f64>,
    /// P(n customers), where the solver knows it.
    pub states: Option<Vec<f64>>,
    /// Variance of the number there, all classes together, where it is known exactly.
    pub number_variance: Option<f64>,
    /// Mean number of customers held at its servers until there is room where they go; where stations block.
    pub blocked: Option<f64>,
}

/// What happens at a pool of tokens.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PoolResult {
    /// Its name.
    pub name: String,
    /// Mean number of customers that wait for a token.
    pub number_waiting: f64,
    /// Mean time for which they wait, in s.
    pub waiting_time: f64,
    /// Mean number of tokens in use.
    pub in_use: f64,
    /// Share of the tokens in use.
    pub utilization: f64,
}

/// A solved model, with what its answer is worth.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Solution {
    /// Name of the model.
    pub model: String,
    /// Which solver gave the answer.
    pub solver: String,
    /// How far it can be trusted.
    pub accuracy: Accuracy,
    /// By class, in the order of the model.
    pub classes: Vec<ClassResult>,
    /// By station, in the order of the model.
    pub stations: Vec<StationResult>,
    /// By pool, in the order of the model.
    pub pools: Vec<PoolResult>,
    /// All metrics of the station, when there is one only and one class.
    pub station: Option<StationSolution>,
    /// Quantiles of the response time of the only class, that were asked for and are known: (quantile, s).
    pub response_quantiles: Vec<(f64, f64)>,
    /// Quantiles of the waiting time likewise; at one station that is first come, first served, of all classes.
    pub waiting_quantiles: Vec<(f64, f64)>,
    /// How the station settles after a step of the arrival rate that was asked for.
    pub settling: Option<Settling>,
    /// ln G, the normalization constant with demands in s, where the solver has it.
    pub ln_g: Option<f64>,
    /// Rounds and last change of an iteration.
    pub iterations: Option<(u32, f64)>,
    /// What the answer rests on.
    pub caveats: Vec<Caveat>,
}

impl Solution {
    /// Without numbers yet.
    fn of(model: &Model, solver: String, accuracy: Accuracy) -> Self {
        Self {
            model: model.name.clone(),
            solver,
            accuracy,
            classes: Vec::new(),
            stations: Vec::new(),
            pools: Vec::new(),
            station: None,
            response_quantiles: Vec::new(),
            waiting_quantiles: Vec::new(),
            settling: None,
            ln_g: None,
            iterations: None,
            caveats: Vec::new(),
        }
    }
}

/// Solves a model by what it asks for (`model.solver`).
///
/// # Errors
/// [`SolveError`], which says what to change.
///
/// # Example
/// ```
/// use kendall_queueing::model::{Class, Model, Station};
/// use kendall_queueing::solver::{Solver, solve};
///
/// let cpu = Station::queue("cpu", 1).with_service_time(0, 0.02);
/// let model = Model::new("one queue", vec![Class::open("requests", 25.0)], vec![cpu]).unwrap();
/// let solution = solve(&model, Solver::Auto).unwrap();
/// assert!((solution.classes[0].system_response - 0.04).abs() < 1e-12);
/// ```
pub fn solve(model: &Model, solver: Solver) -> Result<Solution, SolveError> {
    if solver == Solver::Simulation {
        return Err(SolveError::WrongSolver {
            solver: "simulation",
            what: "`simulation::simulate`, which needs a source of chance",
            instead: "that",
        });
    }
    if let Some(choice) = model.choices.first() {
        let from = match choice.from {
            crate::model::Place::Outside => &model.classes[choice.class].name,
            crate::model::Place::Station(index) => &model.stations[index].name,
        };
        return Err(SolveError::NeedsSimulation {
            feature: "a choice of the next station by queues or in turn",
            station: from.clone(),
        });
    }
    if let Some(station) = model.stations.iter().find(|s| !s.parts.is_empty()) {
        let (feature, station) = ("a fork with branches of other stations", station.name.clone());
        return Err(SolveError::NeedsSimulation { feature, station });
    }
    let blocks = |station: &&Station| station.when_full != WhenFull::Lost;
    let mut solution = if let Some(station) = model.stations.iter().find(blocks) {
        let exact = if solver == Solver::Auto { blocking::solve(model)? } else { None };
        exact.ok_or_else(|| SolveError::NeedsSimulation {
            feature: "blocking of the stations before, other than of one class with exponential \
                      times in line, losses of arrivals alone, one way on before \
                      `block-before-service`, 20,000 states at most and no deadlock (`auto`),",
            station: station.name.clone(),
        })?
    } else {
        match single::solve(model, solver)? {
            Some(solution) => solution,
            None if model.pools.is_empty() => solve_network(model, solver)?,
            None => layered::solve(model)?,
        }
    };
    times_and_spreads(model, &mut solution)?;
    solution.settling = single::settled(model)?;
    let measured = solution
        .caveats
        .iter()
        .any(|c| matches!(c, Caveat::MeasuredError(_) | Caveat::MeasuredWait(_)));
    let matched = solution.caveats.contains(&Caveat::MatchedPercentiles);
    if solution.accuracy == Accuracy::Approximation && !measured && !matched {
        solution.caveats.push(Caveat::UnknownError);
    }
    for (station, result) in model.stations.iter().zip(&solution.stations) {
        let work = |(class, x): (usize, &f64)| x * chains::service(station, class);
        let used: f64 = match station.rate_multipliers.iter().copied().reduce(f64::max) {
            Some(most) => result.throughput.iter().enumerate().map(work).sum::<f64>() / most,
            None => result.utilization.iter().sum(),
        };
        let open = model.classes.iter().any(crate::model::Class::is_open);
        if !station.is_delay() && open && used > 0.98 && station.capacity.is_none() {
            let station = station.name.clone();
            solution.caveats.push(Caveat::NearSaturation { station, utilization: used });
        }
    }
    Ok(solution)
}

/// Variances of open classes: numbers at the stations of an open product form do not depend on each other, and
/// each customer there is of a class with the probability of its share.
///
/// # Source
/// Jackson 1963; Baskett, Chandy, Muntz, Palacios 1975.
fn number_variances(model: &Model, solution: &mut Solution) {
    let alone = model.chains().len() == model.classes.len();
    let open = model.classes.iter().all(crate::model::Class::is_open);
    if !(alone && open && model.pools.is_empty() && solution.accuracy == Accuracy::Exact) {
        return;
    }
    for (index, class) in solution.classes.iter_mut().enumerate() {
        if class.number_variance.is_some() {
            continue;
        }
        let of = |station: &StationResult| {
            let total: f64 = station.number.iter().sum();
            let share = if total > 0.0 { station.number[index] / total } else { 0.0 };
            let variance = if total > 0.0 { station.number_variance? } else { 0.0 };
            Some(share * share * variance + share * (1.0 - share) * total)
        };
        class.number_variance = solution.stations.iter().map(of).sum();
    }
}

/// Variances, and percentiles of the response where a network has them; else that it has none.
fn times_and_spreads(model: &Model, solution: &mut Solution) -> Result<(), SolveError> {
    number_variances(model, solution);
    let exact = solution.accuracy == Accuracy::Exact;
    if let ([class], Some(station)) = (&mut solution.classes[..], &solution.station) {
        class.system_response_variance = station.response_time.variance.filter(|_| exact);
        class.response_quantiles.clone_from(&solution.response_quantiles);
    } else {
        let visits = model.visits()?;
        for (index, class) in solution.classes.iter_mut().enumerate() {
            let Some(paths) = tandem::paths(model, &visits, index) else { continue };
            class.system_response_variance = Some(tandem::variance(&paths)).filter(|_| exact);
            let of = |q: &f64| tandem::quantile(&paths, *q).map(|t| (*q, t));
            class.response_quantiles = model.quantiles.iter().filter_map(of).collect();
        }
        if let [class] = &solution.classes[..] {
            solution.response_quantiles.clone_from(&class.response_quantiles);
        }
    }
    let known = |class: &ClassResult| !class.response_quantiles.is_empty();
    let wanted = !model.quantiles.is_empty() && solution.waiting_quantiles.is_empty();
    if wanted && !solution.classes.iter().all(known) {
        solution.caveats.push(Caveat::NoPercentiles);
    }
    Ok(())
}

/// What only a simulation can do of a fork–join of equal branches.
fn fork_feature(model: &Model, station: &Station) -> Option<&'static str> {
    station.fork?;
    let closed = model.classes.iter().any(|class| !class.is_open());
    let mut services = station.demands.iter().flatten().map(|demand| &demand.service);
    let shaped = services.any(|service| service.mean() > 0.0 && !service.is_exponential());
    if station.servers > 1 {
        Some("fork-join with several servers a branch")
    } else if station.discipline != Discipline::Fcfs {
        // The copies of a request then overtake others in one branch and not in another.
        Some("fork-join with branches in another order than fcfs")
    } else if closed && shaped {
        // The iterations for closed classes know exponential branches only, and the shape of
        // service may double or halve what a fork-join takes.
        Some("fork-join with other than exponential service beside closed classes")
    } else {
        None
    }
}

/// What only a simulation can do, in a network.
fn refuse_features(model: &Model) -> Result<(), SolveError> {
    let nobody = |class: &crate::model::Class| class.is_open() && class.arrival_rate_per_s() <= 0.0;
    if model.classes.iter().all(nobody) {
        // Without arrivals no limit is reached, and there is no waiting.
        return Ok(());
    }
    let needs = |feature, station: &Station| {
        Err(SolveError::NeedsSimulation { feature, station: station.name.clone() })
    };
    for station in &model.stations {
        if station.capacity.is_some() {
            return needs("a finite capacity in a network", station);
        }
        if station.patience.is_some() || station.balking != Balking::Never {
            return needs("impatience in a network", station);
        }
        match station.discipline {
            Discipline::PriorityNonPreemptive | Discipline::PriorityPreemptive => {
                return needs(
                    "priorities, other than of Poisson arrivals at one station,",
                    station,
                );
            }
            Discipline::Sjf
            | Discipline::Srpt
            | Discipline::Dps
            | Discipline::Gps
            | Discipline::Edf
            | Discipline::EdfPreemptive => {
                let feature = "an order by size, weight or deadline, other than of Poisson arrivals at one server,";
                return needs(feature, station);
            }
            _ => {}
        }
        if let Some(feature) = fork_feature(model, station) {
            return needs(feature, station);
        }
    }
    for station in &model.stations {
        if station.demands.iter().flatten().any(|demand| !demand.service.is_independent()) {
            return needs("service times that depend on one another", station);
        }
    }
    for class in &model.classes {
        let (crate::model::Workload::Open { interarrival: time, .. }
        | crate::model::Workload::Closed { think_time: time, .. }) = &class.workload;
        if !time.is_independent() {
            return Err(SolveError::NeedsSimulation {
                feature: "arrivals or think times that depend on one another in a network",
                station: class.name.clone(),
            });
        }
        if let crate::model::Workload::Open { batch, .. } = &class.workload
            && *batch != Batch::Fixed(1)
        {
            return Err(SolveError::NeedsSimulation {
                feature: "batch arrivals in a network",
                station: class.name.clone(),
            });
        }
    }
    Ok(())
}

/// The product-form network of a model, one class for each chain of its classes: for bounds,
/// bottlenecks and normalization constants.
///
/// # Errors
/// [`SolveError`] when routes make no sense, or a class visits nothing.
pub fn product_form(model: &Model) -> Result<network::Network, SolveError> {
    Ok(Chained::new(model)?.network)
}

fn solve_network(model: &Model, solver: Solver) -> Result<Solution, SolveError> {
    refuse_features(model)?;
    let chained = Chained::new(model)?;
    let names: Vec<String> = model.stations.iter().map(|s| s.name.clone()).collect();
    let failed = |source| SolveError::Network { names: names.clone(), source };
    let auto = solver == Solver::Auto;
    let lines = if auto { chained.lines(model) } else { None };
    let in_line = lines.and_then(|lines| network::in_line(&chained.network, &lines).ok());
    let closed_line = in_line.is_some();
    let mut solved = match in_line {
        Some(solved) => solved,
        None => by(&chained.network, solver).map_err(failed)?,
    };
    let mut caveats = chained.caveats(model);
    let product_form = caveats.is_empty();
    if let Some((_, change)) = solved.iterations.filter(|(_, change)| *change > UNSETTLED) {
        caveats.push(Caveat::Unsettled { change });
    }
    // Requests that come again make no Poisson stream.
    let again = |(station, row): (&crate::model::Station, &Vec<f64>)| {
        station.fork.is_some() && row.iter().any(|visits| *visits > 1.0 + 1e-9)
    };
    if model.stations.iter().zip(&chained.visits).any(again) {
        (solved.accuracy, solved.measured_error) = (Accuracy::Approximation, None);
    }
    if !product_form {
        chained.correct_open(model, &mut solved, &mut caveats)?;
        if solved.accuracy == Accuracy::Exact {
            solved.accuracy = Accuracy::Approximation;
        }
    }
    // Without a product form the error of the solver is the smaller part; a fork–join by itself is
    // measured with any service, but with Poisson arrivals.
    let poisson = !caveats.iter().any(|c| matches!(c, Caveat::ArrivalsTakenAsPoisson { .. }));
    let own = product_form || closed_line || (poisson && !chained.network.has_closed());
    let own = solved.measured_error.filter(|_| own);
    let line = || chained.line_error(model, &solved).filter(|_| auto && poisson && !product_form);
    caveats.extend(own.or_else(line).map(Caveat::MeasuredError));
    Ok(chained.solution(model, &solved, caveats))
}

/// Solves a product-form network by the solver that was asked for.
///
/// # Errors
/// [`NetworkError`] of that solver.
pub fn by(network: &network::Network, solver: Solver) -> Result<NetworkSolution, NetworkError> {
    let seidmann = Iteration { multi_server: MultiServer::Seidmann, ..Iteration::default() };
    match solver {
        Solver::Mva => network::mva_exact(network),
        Solver::Convolution => network::convolution(network),
        Solver::Schweitzer => network::schweitzer(network, Iteration::default()),
        Solver::Seidmann => network::schweitzer(network, seidmann),
        Solver::SeidmannMva => network::seidmann_exact(network),
        Solver::Bard => network::bard(network, Iteration::default().tolerance),
        Solver::Linearizer => network::linearizer(network, Iteration::default()),
        _ => network::mixed(network),
    }
}
