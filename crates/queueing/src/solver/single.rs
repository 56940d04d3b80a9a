//! Models of one station: the formulas of `station`, with all their metrics.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::{Caveat, ClassResult, Solution, SolveError, Solver, StationResult};
use crate::Distribution;
use crate::model::{Balking, Batch, Class, Discipline, Model, Station, Workload};
use crate::station::{
    Accuracy, BirthDeath, BySize, GgmFormula, Line, PriorityClass, PriorityResult, Scheduling,
    Settling, StationError, StationSolution, TimeLaw, batch_mm1, erlang_c, finite_population, ggm,
    map_ph, mdm, measured_wait, mg1, mg1_by_size, mg1_by_size_classes, mg1_deadlines, mg1_lcfs_pr,
    mg1_priority, mg1_ps, mg1k, mm_infinity, mm1_discriminatory, mm1_shared, mmm, mmm_balking,
    mmm_impatient, mmm_impatient_general, mmm_priority, mmm_priority_two, mmmk, settling,
    unvisited,
};

/// The solution, or `None` when the model is a matter for network solvers.
pub(super) fn solve(model: &Model, solver: Solver) -> Result<Option<Solution>, SolveError> {
    let formula = match solver {
        Solver::Auto => GgmFormula::Best,
        Solver::Ggm(formula) => formula,
        _ => return Ok(None),
    };
    let refuse = || SolveError::WrongSolver {
        solver: formula.name(),
        what: "one G/G/m station with one open class",
        instead: "auto",
    };
    let plain = model.stations.len() == 1
        && model.routes.is_empty()
        && model.pools.is_empty()
        && model.stations[0].fork.is_none()
        && model.stations[0].demands.iter().flatten().all(|d| (d.visits - 1.0).abs() < 1e-12);
    if !plain {
        return if formula == GgmFormula::Best { Ok(None) } else { Err(refuse()) };
    }
    let station = &model.stations[0];
    let failed = |source| SolveError::Station { station: station.name.clone(), source };
    if model.classes.len() == 1 {
        let solved = match &model.classes[0].workload {
            Workload::Open { arrival_rate_per_s, .. } if *arrival_rate_per_s <= 0.0 => {
                nobody(model).map_err(failed)?
            }
            Workload::Open { .. } => one_open(model, formula)?,
            Workload::Closed { .. } => one_closed(model).map_err(failed)?,
        };
        return Ok(solved.map(|solved| wrap(model, solved)));
    }
    // A class without arrivals keeps its place in the order: its times are those of a first customer.
    let rates = || model.classes.iter().map(Class::arrival_rate_per_s);
    if model.classes.iter().all(Class::is_open) && rates().any(|rate| rate > 0.0) {
        return several_open(model).map_err(failed);
    }
    Ok(None)
}

/// One open class with λ = 0.
fn nobody(model: &Model) -> Result<Option<StationSolution>, StationError> {
    let station = &model.stations[0];
    match station.demand_at(0) {
        Some(demand) if demand.service.mean() > 0.0 && station.rate_multipliers.is_empty() => {
            unvisited(station, &model.classes[0].workload, &demand.service).map(Some)
        }
        _ => Ok(None),
    }
}

fn one_open(model: &Model, formula: GgmFormula) -> Result<Option<StationSolution>, SolveError> {
    let station = &model.stations[0];
    let Workload::Open { arrival_rate_per_s, interarrival, batch } = &model.classes[0].workload
    else {
        return Ok(None);
    };
    let Some(demand) = station.demand_at(0) else { return Ok(None) };
    let failed = |source| SolveError::Station { station: station.name.clone(), source };
    let needs =
        |feature| Err(SolveError::NeedsSimulation { feature, station: station.name.clone() });
    let (lambda, service) = (*arrival_rate_per_s, &demand.service);
    if let Some(feature) = uncovered(station, (interarrival, service), batch) {
        return needs(feature);
    }
    if service.mean() <= 0.0 || !station.rate_multipliers.is_empty() {
        return Ok(None);
    }
    let mu = 1.0 / service.mean();
    let poisson = interarrival.is_exponential();
    let markov = poisson && service.is_exponential();
    let m = station.servers;
    if *batch != Batch::Fixed(1) {
        let covered = markov
            && m == 1
            && station.capacity.is_none()
            && station.patience.is_none()
            && station.balking == Balking::Never
            && !station.is_delay();
        return if covered {
            batch_mm1(lambda, mu, batch).map(Some).map_err(failed)
        } else {
            needs("batch arrivals unless M^[x]/M/1")
        };
    }
    if station.is_delay() {
        if !poisson || station.capacity.is_some() || station.balking != Balking::Never {
            return needs("a delay with other than Poisson arrivals, a capacity or balking");
        }
        let mut solved = mm_infinity(lambda, mu).map_err(failed)?;
        if !service.is_exponential() {
            // Insensitive but for the distribution of the response, which is the service itself.
            solved.notation = format!("M/{}/∞", service.letter());
            solved.response_time.variance = Some(service.variance());
            solved.response_law = None;
        }
        return Ok(Some(solved));
    }
    if station.patience.is_some() || station.balking != Balking::Never {
        return impatient(station, lambda, mu, markov);
    }
    if let Some(capacity) = station.capacity {
        return finite(station, capacity, (lambda, interarrival), service)
            .map_err(failed)?
            .map_or_else(
                || needs("a finite capacity unless M/M/m/B, M/G/1/B, M/G/m/m or MAP/PH/m/B"),
                |solved| Ok(Some(solved)),
            );
    }
    queue(station, (lambda, interarrival), service, formula)
        .map_err(failed)?
        .map_or_else(|| needs("this discipline with these distributions"), |s| Ok(Some(s)))
}

/// What no formula for one station and one class covers, whatever the numbers.
fn uncovered(
    station: &Station,
    (interarrival, service): (&Distribution, &Distribution),
    batch: &Batch,
) -> Option<&'static str> {
    let in_line = interarrival.is_independent() || station.discipline == Discipline::Fcfs;
    if !service.is_independent() || !in_line {
        return Some("times that depend on one another, unless arrivals (map) at a fcfs queue");
    }
    let limited = station.capacity.is_some()
        || station.patience.is_some()
        || station.balking != Balking::Never
        || *batch != Batch::Fixed(1);
    (limited && by_size(station)).then_some("an order by size beside batches, limits or impatience")
}

/// A station of limited `capacity`; `None` where there is no formula.
fn finite(
    station: &Station,
    capacity: u64,
    (lambda, interarrival): (f64, &Distribution),
    service: &Distribution,
) -> Result<Option<StationSolution>, StationError> {
    let (m, mu) = (station.servers, 1.0 / service.mean());
    let poisson = interarrival.is_exponential();
    let markov = poisson && service.is_exponential();
    let loss = poisson && capacity == m;
    let fcfs = station.discipline == Discipline::Fcfs;
    let embedded = !matches!(service, Distribution::PhaseType { .. });
    if !(markov || loss || poisson && m == 1 && fcfs && embedded) {
        return if fcfs {
            map_ph((lambda, interarrival), service, m, Some(capacity))
        } else {
            Ok(None)
        };
    }
    let mut solved = if markov || loss {
        mmmk(lambda, mu, m, capacity)?
    } else {
        mg1k(lambda, service, capacity)?
    };
    if loss && !service.is_exponential() {
        // The loss model does not depend on the shape of service.
        solved.notation = format!("M/{}/{m}/{capacity}", service.letter());
        solved.response_time.variance = Some(service.variance());
        solved.response_law = None;
    }
    order(&mut solved, station.discipline);
    Ok(Some(solved))
}

/// How the number settles after a step of the arrival rate or the population, for stations that are
/// birth–death processes.
pub(super) fn settled(model: &Model) -> Result<Option<Settling>, SolveError> {
    let alone = model.stations.len() == 1 && model.classes.len() == 1;
    if !(alone && model.routes.is_empty() && model.pools.is_empty()) {
        return super::settling::of_network(model);
    }
    let station = &model.stations[0];
    let failed = |source| SolveError::Station { station: station.name.clone(), source };
    let service = station.demand_at(0).map(|demand| &demand.service);
    let exponential = |time: &Distribution| time.is_exponential() && time.mean() > 0.0;
    let patience = station.patience.as_ref();
    let joins = |n: u64| crate::station::joins(&station.balking, n);
    let class = &model.classes[0];
    let Some(before) = class.before else { return Ok(None) };
    let (after, memoryless) = match &class.workload {
        Workload::Open { arrival_rate_per_s, interarrival, batch } => {
            (*arrival_rate_per_s, interarrival.is_exponential() && *batch == Batch::Fixed(1))
        }
        Workload::Closed { population, think_time } => {
            (kendall_units::exact_f64(*population), exponential(think_time))
        }
    };
    let covered = memoryless
        && service.is_some_and(exponential)
        && patience.is_none_or(exponential)
        && station.fork.is_none()
        && !by_size(station);
    let Some(service) = service.filter(|_| covered) else {
        return Err(SolveError::Model(crate::model::refused(
            class.key_before(),
            before,
            "exponential gaps or think times, service and patience at one station: the number must \
             be a birth–death process",
        )));
    };
    let (mu, theta) = (1.0 / service.mean(), patience.map_or(0.0, |time| 1.0 / time.mean()));
    let m = kendall_units::exact_f64(station.servers);
    let deaths = |n: u64| {
        let beyond = (kendall_units::exact_f64(n) - m).max(0.0);
        let leaving = if station.is_delay() { 0.0 } else { theta * beyond };
        mu * station.rate_multiplier(n) + leaving
    };
    let first = |n: u64| joins(n) * arrivals(class, before, n);
    let second = |n: u64| joins(n) * arrivals(class, after, n);
    // The new steady state is solved before; the old one may not be there.
    let speed = station.rate_multipliers.last().copied().unwrap_or(m);
    if class.is_open() && station.capacity.is_none() && theta <= 0.0 && !station.is_delay() {
        let load = before * joins(1_000_000) / mu;
        if load >= speed {
            let name = "arrival_rate_before_per_s";
            let source = StationError::Number {
                name,
                value: before,
                expected: "one at which there is a steady state, as there must be before the step",
            };
            return Err(failed(source));
        }
    }
    let process = |births| BirthDeath { births, deaths: &deaths, last: station.capacity };
    settling(&process(&first), &process(&second)).map(Some).map_err(failed)
}

/// Arrival rate when `n` are there, with this arrival rate or population.
fn arrivals(class: &Class, most: f64, n: u64) -> f64 {
    match &class.workload {
        Workload::Open { .. } => most,
        Workload::Closed { think_time, .. } => {
            (most - kendall_units::exact_f64(n)).max(0.0) / think_time.mean()
        }
    }
}

fn rule(discipline: Discipline) -> BySize {
    if discipline == Discipline::Srpt { BySize::ShortestRemaining } else { BySize::Shortest }
}

/// Whether the order of service depends on service times, so that it changes means.
fn by_size(station: &Station) -> bool {
    matches!(station.discipline, Discipline::Sjf | Discipline::Srpt)
}

fn impatient(
    station: &Station,
    lambda: f64,
    mu: f64,
    markov: bool,
) -> Result<Option<StationSolution>, SolveError> {
    let failed = |source| SolveError::Station { station: station.name.clone(), source };
    let needs =
        |feature| Err(SolveError::NeedsSimulation { feature, station: station.name.clone() });
    if !markov {
        return needs("impatience unless arrivals and service are exponential");
    }
    let served =
        matches!(station.discipline, Discipline::Ps | Discipline::LcfsPr | Discipline::Dps);
    if station.patience.is_some() && served {
        return needs("patience in an order in which nobody waits to begin");
    }
    match &station.patience {
        Some(_) if station.balking != Balking::Never => needs("patience beside balking"),
        Some(patience) if patience.mean() <= 0.0 => {
            needs("patience of 0 (without it, `capacity` = `servers` is the same)")
        }
        Some(patience) if !patience.is_exponential() => {
            if station.capacity.is_some() || patience.below(0, patience.mean()).is_none() {
                return needs("patience with a capacity, of phases, or with moments only");
            }
            if station.discipline != Discipline::Fcfs {
                return needs("patience with another order than fcfs");
            }
            mmm_impatient_general(lambda, mu, station.servers, patience).map(Some).map_err(failed)
        }
        Some(patience) => {
            mmm_impatient(lambda, mu, station.servers, 1.0 / patience.mean(), station.capacity)
                .map(Some)
                .map_err(failed)
        }
        None => mmm_balking(lambda, mu, station.servers, &station.balking, station.capacity)
            .map(Some)
            .map_err(failed),
    }
}

/// An endless queue without batches or impatience. λ is that of the model: 1 over the mean gap is
/// rounded twice, which near saturation is more than the last figure.
fn queue(
    station: &Station,
    (lambda, interarrival): (f64, &Distribution),
    service: &Distribution,
    formula: GgmFormula,
) -> Result<Option<StationSolution>, StationError> {
    let poisson = interarrival.is_exponential();
    let m = station.servers;
    match station.discipline {
        Discipline::Ps | Discipline::LcfsPr if !poisson => Ok(None),
        Discipline::Ps if m == 1 => mg1_ps(lambda, service).map(Some),
        Discipline::LcfsPr if m == 1 => mg1_lcfs_pr(lambda, service).map(Some),
        Discipline::Dps if m == 1 && poisson => mg1_ps(lambda, service).map(Some),
        Discipline::Sjf | Discipline::Srpt | Discipline::Dps => {
            let known = poisson && m == 1 && service.below(0, service.mean()).is_some();
            let rule = rule(station.discipline);
            known.then(|| mg1_by_size(lambda, service, rule)).transpose()
        }
        // At several servers who came last gets only one of them: not symmetric, and the shape matters.
        Discipline::LcfsPr if !service.is_exponential() => Ok(None),
        Discipline::Ps | Discipline::LcfsPr => {
            // Symmetric disciplines do not depend on the shape of service.
            let mut solved = mmm(lambda, 1.0 / service.mean(), m)?;
            solved.notation = format!("M/{}/{m}", service.letter());
            order(&mut solved, station.discipline);
            Ok(Some(solved))
        }
        _ => {
            let deterministic = matches!(service, Distribution::Deterministic { .. });
            let best = formula == GgmFormula::Best;
            let phases = match (poisson, m, service) {
                // The transform, or the embedded chain, knows as much.
                (true, 1, Distribution::PhaseType { .. }) => true,
                (true, 1, _) => false,
                (true, _, _) => !service.is_exponential(),
                (false, 1, _) if service.is_exponential() => {
                    crate::station::gm1(interarrival, 1.0 / service.mean()).is_err()
                }
                (false, ..) => true,
            };
            let exact = if best && poisson && deterministic && m > 1 && m <= 200 {
                mdm(lambda, service.mean(), m).ok()
            } else if best
                && phases
                && let Some(solved) = map_ph((lambda, interarrival), service, m, None)?
            {
                Some(solved)
            } else if best && poisson && service.is_exponential() {
                Some(mmm(lambda, 1.0 / service.mean(), m)?)
            } else if best && poisson && m == 1 {
                Some(mg1(lambda, service)?)
            } else {
                None
            };
            let mut solved = match exact {
                Some(exact) => exact,
                None if !interarrival.is_independent() => return Ok(None),
                None => ggm(interarrival, service, m, formula)?,
            };
            order(&mut solved, station.discipline);
            Ok(Some(solved))
        }
    }
}

/// What other orders than first come, first served change: means stay, spreads of times do not.
/// At one endless server the second moment of the wait is known for two of them: it grows by
/// 1/(1 − ρ) when the last is served first and who is in service stays, by 2/(2 − ρ) in random
/// order.
///
/// # Source
/// Takács 1963; Conway, Maxwell, Miller 1967.
fn order(solved: &mut StationSolution, discipline: Discipline) {
    let idle = 1.0 - solved.utilization;
    let (name, factor) = match discipline {
        Discipline::Fcfs | Discipline::Is => return,
        Discipline::Lcfs => ("LCFS", Some(1.0 / idle)),
        Discipline::LcfsPr => ("LCFS-PR", None),
        Discipline::Ps => ("PS", None),
        Discipline::Siro => ("SIRO", Some(2.0 / (1.0 + idle))),
        // One class: its weight does not matter. The others have formulas of their own.
        Discipline::Dps | Discipline::Sjf | Discipline::Srpt => return,
        // One class only: priority, share and deadline all come to first come, first served.
        Discipline::PriorityNonPreemptive
        | Discipline::PriorityPreemptive
        | Discipline::Gps
        | Discipline::Edf
        | Discipline::EdfPreemptive => return,
    };
    let poisson = solved.notation.starts_with("M/");
    let endless = solved.notation.ends_with("/1") && solved.loss_probability == 0.0;
    let service =
        solved.response_time.variance.zip(solved.waiting_time.variance).map(|(r, w)| r - w);
    let mean = solved.waiting_time.mean;
    let wait = match (solved.waiting_time.variance, factor) {
        (Some(variance), Some(factor)) if poisson && endless => {
            Some((variance + mean * mean) * factor - mean * mean)
        }
        _ => None,
    };
    solved.notation = format!("{} ({name})", solved.notation);
    solved.response_time.variance = wait.zip(service).map(|(wait, service)| wait + service);
    solved.waiting_time.variance = wait;
    solved.response_law = None;
    solved.waiting_law = None;
}

fn one_closed(model: &Model) -> Result<Option<StationSolution>, StationError> {
    let station = &model.stations[0];
    let class = &model.classes[0];
    let Workload::Closed { population, think_time } = &class.workload else { return Ok(None) };
    let Some(demand) = station.demand_at(0) else { return Ok(None) };
    let covered = *population > 0
        && *population <= 1_000_000
        && think_time.mean() > 0.0
        && think_time.is_exponential()
        && demand.service.is_independent()
        && demand.service.is_exponential()
        && demand.service.mean() > 0.0
        && !station.is_delay()
        && !by_size(station)
        && station.rate_multipliers.is_empty()
        && station.patience.is_none()
        && station.balking == Balking::Never;
    if !covered {
        return Ok(None);
    }
    let mut solved = finite_population(
        1.0 / think_time.mean(),
        1.0 / demand.service.mean(),
        station.servers,
        *population,
        station.capacity,
    )?;
    order(&mut solved, station.discipline);
    Ok(Some(solved))
}

/// Several open classes at one station: priorities, or first come, first served with a mixture.
fn several_open(model: &Model) -> Result<Option<Solution>, StationError> {
    let station = &model.stations[0];
    let simple = station.capacity.is_none()
        && station.patience.is_none()
        && station.balking == Balking::Never
        && station.rate_multipliers.is_empty()
        && !station.is_delay()
        && station.demands.iter().flatten().all(|demand| demand.service.is_independent())
        && model.classes.iter().all(is_poisson_one);
    let mut classes = Vec::new();
    for (index, class) in model.classes.iter().enumerate() {
        let Some(demand) = station.demand_at(index) else { return Ok(None) };
        let (arrival_rate, service) = (class.arrival_rate_per_s(), demand.service.clone());
        // One line for all is one priority, whoever of it goes next.
        let line =
            matches!(station.discipline, Discipline::Fcfs | Discipline::Lcfs | Discipline::Siro);
        let priority = if line { 1 } else { class.priority };
        classes.push(PriorityClass { priority, arrival_rate, service });
    }
    if !simple {
        return Ok(None);
    }
    let scheduling = match station.discipline {
        Discipline::PriorityNonPreemptive => Scheduling::NonPreemptive,
        Discipline::PriorityPreemptive => Scheduling::PreemptiveResume,
        Discipline::Fcfs | Discipline::Lcfs | Discipline::Siro if station.servers == 1 => {
            Scheduling::NonPreemptive
        }
        Discipline::Fcfs | Discipline::Lcfs | Discipline::Siro => return Ok(None),
        Discipline::Sjf | Discipline::Srpt => return sized(model, &classes),
        _ => return weighted_or_due(model, &classes),
    };
    let first = classes[0].service.mean();
    let equal = classes
        .iter()
        .all(|c| c.service.is_exponential() && (c.service.mean() - first).abs() <= 1e-12 * first);
    let results = match station.servers {
        1 => mg1_priority(&classes, scheduling)?,
        m if equal => alike(&classes, m, scheduling)?,
        m => match two_rates(&classes, m, scheduling)? {
            Some(results) => results,
            None => return Ok(None),
        },
    };
    let method = match station.discipline {
        Discipline::Fcfs => "M/G/1 with several classes, Pollaczek–Khinchine",
        // Who goes next does not depend on service times: means of waits are those of one line.
        Discipline::Lcfs | Discipline::Siro => {
            return Ok(Some(several(
                model,
                &results,
                "M/G/1 with several classes, any order of one line",
            )));
        }
        _ => "priority M/G/1 or M/M/m [Bolch06 §6.4]",
    };
    let mut solution = several(model, &results, method);
    let law = |own, and_service| line(&classes, own, station.servers, scheduling, and_service);
    let quantiles = |law: Option<TimeLaw>| -> Vec<(f64, f64)> {
        let of = |q: &f64| Some((*q, law.as_ref()?.quantile(*q)?));
        model.quantiles.iter().filter_map(of).collect()
    };
    for (own, class) in solution.classes.iter_mut().enumerate() {
        class.response_quantiles = quantiles(law(own, true));
    }
    if station.discipline == Discipline::Fcfs {
        solution.waiting_quantiles = quantiles(law(0, false));
        spreads(&classes, &mut solution);
    }
    Ok(Some(solution))
}

/// Variances of classes in order of arrival at one server: all wait alike, and of a class are there those who came
/// during the response of one of it.
///
/// # Source
/// [Kleinrock75 §5.7]; Haji and Newell 1971.
fn spreads(classes: &[PriorityClass], solution: &mut Solution) {
    let moment = |order: u32| -> Option<f64> {
        let of = |c: &PriorityClass| Some(c.arrival_rate * c.service.moment(order)?);
        classes.iter().map(of).sum()
    };
    let (Some(first), Some(second), Some(third)) = (moment(1), moment(2), moment(3)) else {
        return;
    };
    let idle =
        classes.iter().fold(1.0, |idle, c| (-c.arrival_rate).mul_add(c.service.mean(), idle));
    let station = &mut solution.stations[0];
    let wait = station.waiting_time[0];
    let of_wait = third / (3.0 * idle) + wait * wait;
    let number =
        |rate: f64, of_service: f64, mean: f64| rate * rate * (of_wait + of_service) + mean;
    for (class, found) in classes.iter().zip(&mut solution.classes) {
        let of_service = class.service.variance();
        found.system_response_variance = Some(of_wait + of_service);
        found.number_variance = Some(number(class.arrival_rate, of_service, found.number));
    }
    let rate: f64 = classes.iter().map(|class| class.arrival_rate).sum();
    if rate > 0.0 {
        let of_service = second / rate - (first / rate).powi(2);
        let mean = station.number.iter().sum();
        station.number_variance = Some(number(rate, of_service, mean));
    }
}

/// Classes with one exponential service at several servers: those of one priority wait alike.
fn alike(
    classes: &[PriorityClass],
    servers: u64,
    scheduling: Scheduling,
) -> Result<Vec<PriorityResult>, StationError> {
    let mut levels: BTreeMap<u32, f64> = BTreeMap::new();
    for class in classes {
        *levels.entry(class.priority).or_default() += class.arrival_rate;
    }
    let rates: Vec<f64> = levels.values().copied().collect();
    let mean = classes[0].service.mean();
    let solved = mmm_priority(&rates, 1.0 / mean, servers, scheduling)?;
    let of = |class: &PriorityClass| {
        let level = levels.keys().take_while(|level| **level < class.priority).count();
        let PriorityResult { waiting_time, response_time, .. } = solved[level];
        PriorityResult {
            utilization: class.arrival_rate * mean / kendall_units::exact_f64(servers),
            waiting_time,
            response_time,
            number: class.arrival_rate * response_time,
            number_waiting: class.arrival_rate * waiting_time,
        }
    };
    Ok(classes.iter().map(of).collect())
}

/// How long a class takes or waits, where that is known: at one server, services with a smooth transform, or any in
/// order of arrival; at several, the same exponential service for all classes, without pre-emption.
fn line(
    classes: &[PriorityClass],
    own: usize,
    servers: u64,
    scheduling: Scheduling,
    and_service: bool,
) -> Option<TimeLaw> {
    let interrupted = scheduling == Scheduling::PreemptiveResume;
    let service = &classes[own].service;
    let m = kendall_units::exact_f64(servers);
    let alike = |c: &PriorityClass| {
        c.service.is_exponential() && (c.service.mean() / service.mean() - 1.0).abs() <= 1e-12
    };
    if servers > 1 && (interrupted || !classes.iter().all(alike)) {
        return None;
    }
    let load: f64 = classes.iter().map(|c| c.arrival_rate * c.service.mean()).sum();
    // While all servers are busy they are one that is as fast as all of them.
    let waits = if servers == 1 { 1.0 } else { erlang_c(load, servers).ok()? / (load / m) };
    let of = |order: Ordering| -> Option<Vec<(f64, Distribution)>> {
        let chosen = classes.iter().filter(|c| c.priority.cmp(&classes[own].priority) == order);
        chosen
            .map(|c| Some((c.arrival_rate, c.service.with_mean(c.service.mean() / m).ok()?)))
            .collect()
    };
    let after = if interrupted { Vec::new() } else { of(Ordering::Greater)? };
    let own = and_service.then(|| service.clone());
    Line {
        before: of(Ordering::Less)?,
        alike: of(Ordering::Equal)?,
        after,
        own,
        interrupted,
        waits,
    }
    .law()
}

/// Classes of which the shortest service of all goes first.
fn sized(model: &Model, classes: &[PriorityClass]) -> Result<Option<Solution>, StationError> {
    let station = &model.stations[0];
    let known = |class: &PriorityClass| {
        class.service.mean() > 0.0 && class.service.below(0, class.service.mean()).is_some()
    };
    if station.servers != 1 || !classes.iter().all(known) {
        return Ok(None);
    }
    let rule = rule(station.discipline);
    let sizes: Vec<(f64, &Distribution)> =
        classes.iter().map(|class| (class.arrival_rate, &class.service)).collect();
    let excess = mg1_by_size_classes(&sizes, rule)?;
    let of = |((rate, service), waiting_time): (&(f64, &Distribution), f64)| {
        let response_time = service.mean() + waiting_time;
        PriorityResult {
            utilization: rate * service.mean(),
            waiting_time,
            response_time,
            number: rate * response_time,
            number_waiting: rate * waiting_time,
        }
    };
    let results: Vec<PriorityResult> = sizes.iter().zip(excess).map(of).collect();
    Ok(Some(several(model, &results, rule.method())))
}

/// Classes that share one server by weights, or are served by their deadlines.
fn weighted_or_due(
    model: &Model,
    classes: &[PriorityClass],
) -> Result<Option<Solution>, StationError> {
    let station = &model.stations[0];
    if station.servers != 1 {
        return Ok(None);
    }
    let exponential = classes.iter().all(|class| class.service.is_exponential());
    let weight = |class| station.weights.get(class).copied().unwrap_or(1.0);
    let weights: Vec<f64> = (0..classes.len()).map(weight).collect();
    // Equal weights are processor sharing, whatever the service.
    let alike = weights.iter().all(|weight| (weight - weights[0]).abs() <= 1e-12 * weights[0]);
    let rates = |class: &PriorityClass| (class.arrival_rate, 1.0 / class.service.mean());
    let scheduling = match (station.discipline, classes) {
        (Discipline::Dps, _) if exponential || alike => {
            let results = mm1_discriminatory(classes, &weights)?;
            let method = "M/M/1 shared by weights (Fayolle, Mitrani, Iasnogorodski 1980)";
            return Ok(Some(several(model, &results, method)));
        }
        (Discipline::Gps, [one, other]) if exponential => {
            let results = mm1_shared([rates(one), rates(other)], [weights[0], weights[1]])?;
            let method = "two coupled queues, matrix-analytic (Neuts 1981)";
            return Ok(results.map(|results| several(model, &results, method)));
        }
        (Discipline::Edf, _) => Scheduling::NonPreemptive,
        (Discipline::EdfPreemptive, _) => Scheduling::PreemptiveResume,
        _ => return Ok(None),
    };
    let deadlines: Option<Vec<f64>> =
        (0..classes.len()).map(|class| station.deadlines.get(class).copied()).collect();
    let Some(deadlines) = deadlines else { return Ok(None) };
    let solved = mg1_deadlines(classes, &deadlines, scheduling)?;
    Ok(solved.map(|found| {
        let method = "M/G/1 by deadlines, exponential waits";
        let mut solution = several(model, &found.classes, method);
        solution.accuracy = Accuracy::Approximation;
        solution.caveats.extend(found.measured.map(Caveat::MeasuredWait));
        solution
    }))
}

/// Two classes with exponential services of their own rates.
fn two_rates(
    classes: &[PriorityClass],
    servers: u64,
    scheduling: Scheduling,
) -> Result<Option<Vec<PriorityResult>>, StationError> {
    let of = |class: &PriorityClass| (class.arrival_rate, 1.0 / class.service.mean());
    match classes {
        [one, other] if !(one.service.is_exponential() && other.service.is_exponential()) => {
            Ok(None)
        }
        [high, low] if high.priority < low.priority => {
            mmm_priority_two([of(high), of(low)], servers, scheduling)
        }
        [low, high] if high.priority < low.priority => {
            let results = mmm_priority_two([of(high), of(low)], servers, scheduling)?;
            Ok(results.map(|results| results.into_iter().rev().collect()))
        }
        _ => Ok(None),
    }
}

fn is_poisson_one(class: &Class) -> bool {
    match &class.workload {
        Workload::Open { interarrival, batch, .. } => {
            interarrival.is_exponential() && *batch == Batch::Fixed(1)
        }
        Workload::Closed { .. } => false,
    }
}

fn several(model: &Model, results: &[PriorityResult], method: &'static str) -> Solution {
    let rates: Vec<f64> = model.classes.iter().map(Class::arrival_rate_per_s).collect();
    let list = |f: fn(&PriorityResult) -> f64| results.iter().map(f).collect::<Vec<f64>>();
    Solution {
        classes: model
            .classes
            .iter()
            .zip(results)
            .map(|(class, result)| ClassResult {
                name: class.name.clone(),
                throughput: class.arrival_rate_per_s(),
                system_response: result.response_time,
                number: result.number,
                bottleneck: None,
                throughput_bounds: None,
                ..ClassResult::default()
            })
            .collect(),
        stations: vec![StationResult {
            name: model.stations[0].name.clone(),
            throughput: rates,
            utilization: list(|r| r.utilization),
            number: list(|r| r.number),
            response_time: list(|r| r.response_time),
            waiting_time: list(|r| r.waiting_time),
            residence_time: list(|r| r.response_time),
            states: None,
            number_variance: None,
            blocked: None,
        }],
        ..Solution::of(model, method.to_owned(), Accuracy::Exact)
    }
}

fn wrap(model: &Model, solved: StationSolution) -> Solution {
    let mut caveats = Vec::new();
    let quantiles = |of: &dyn Fn(f64) -> Option<f64>| -> Vec<(f64, f64)> {
        model.quantiles.iter().filter_map(|q| of(*q).map(|t| (*q, t))).collect()
    };
    let response_quantiles = quantiles(&|q| solved.response_quantile(q));
    let waiting_quantiles = quantiles(&|q| solved.waiting_quantile(q));
    let exact = |law: &Option<crate::station::TimeLaw>| law.as_ref().is_none_or(|l| l.is_exact());
    let mut accuracy = solved.accuracy;
    if !(exact(&solved.response_law) && exact(&solved.waiting_law)) {
        caveats.push(Caveat::MatchedPercentiles);
        if !(response_quantiles.is_empty() && waiting_quantiles.is_empty()) {
            accuracy = Accuracy::Approximation;
        }
    }
    let class = &model.classes[0];
    let service = model.stations[0].demand_at(0).map(|demand| &demand.service);
    if let (Workload::Open { interarrival, .. }, Some(service)) = (&class.workload, service) {
        let measured = measured_wait(&solved, (interarrival, service), model.stations[0].servers);
        caveats.extend(measured.map(Caveat::MeasuredWait));
    }
    let solver = format!("{}: {}", solved.notation, solved.method);
    Solution {
        classes: vec![ClassResult {
            name: class.name.clone(),
            throughput: solved.throughput,
            system_response: solved.response_time.mean,
            number: solved.number.mean,
            bottleneck: None,
            throughput_bounds: None,
            ..ClassResult::default()
        }],
        stations: vec![StationResult {
            name: model.stations[0].name.clone(),
            throughput: vec![solved.throughput],
            utilization: vec![solved.utilization],
            number: vec![solved.number.mean],
            response_time: vec![solved.response_time.mean],
            waiting_time: vec![solved.waiting_time.mean],
            residence_time: vec![solved.response_time.mean],
            states: solved.states.as_ref().map(|states| states.first(50)),
            number_variance: solved.number.variance.filter(|_| accuracy == Accuracy::Exact),
            blocked: None,
        }],
        response_quantiles,
        waiting_quantiles,
        station: Some(solved),
        caveats,
        ..Solution::of(model, solver, accuracy)
    }
}
