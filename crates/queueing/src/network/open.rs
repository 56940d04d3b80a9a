//! Open classes, alone and beside closed ones.

use kendall_units::exact_f64;

use super::fork_join::fork_join;
use super::{
    Accuracy, Kind, Load, MOST_STEPS, MultiServer, Network, NetworkError, NetworkSolution,
    Resource, convolution, linearizer, mva_exact, schweitzer,
};
use crate::station::{BirthDeath, StationError, birth_death, mmm};

/// Most terms of the sum over open customers at a load-dependent resource.
const MOST_TERMS: u64 = 5_000_000;

/// Open network of one class or several: Jackson, BCMP. Exact for product form (fork–join is
/// approximated).
///
/// # Errors
/// [`NetworkError::Unstable`] when a resource is offered more than it can do.
///
/// # Source
/// [LZGS84 §7.2], multi-server and load-dependent [Bolch06 §7.3]: the total number at a resource
/// is that of a single station with the load a = Σλ·D, and classes share it as they share a.
pub fn open(network: &Network) -> Result<NetworkSolution, NetworkError> {
    const SOLVER: &str = "open product form";
    network.check()?;
    if network.has_closed() {
        return Err(NetworkError::Unsupported {
            solver: SOLVER,
            what: "closed classes",
            instead: "`mixed` or `mva_exact`",
        });
    }
    let loads = open_loads(network)?;
    let rates: Vec<f64> = network.classes.iter().map(Load::arrival_rate).collect();
    let mut residence = Vec::new();
    let mut accuracy = Accuracy::Exact;
    let mut marginals = Vec::new();
    let mut number_variance = Vec::new();
    let mut measured_error = None;
    for (index, (resource, a)) in network.resources.iter().zip(&loads).enumerate() {
        let (stretch, states, variance) = open_stretch(index, resource, *a)?;
        number_variance.push(variance);
        let forked = match resource.kind {
            Kind::ForkJoin { branches, needed } if *a > 0.0 => {
                let total: f64 = rates.iter().sum();
                let forked = fork_join(total, a / total, branches, needed)?;
                // One stream, by itself: behind another resource it is no Poisson stream.
                let alone = network.resources.len() == 1 && network.classes.len() == 1;
                accuracy = if alone { forked.accuracy } else { Accuracy::Approximation };
                measured_error = forked.measured_error;
                forked.response_time / (a / total)
            }
            Kind::ForkJoin { branches, needed } => {
                accuracy = Accuracy::Approximation;
                super::order_statistic_factor(branches, needed)
            }
            _ => stretch,
        };
        residence.push(resource.demands.iter().map(|d| d * forked).collect());
        marginals.push(states);
    }
    let mut solution = NetworkSolution::from_residence(network, SOLVER, accuracy, rates, residence);
    solution.marginals = marginals;
    solution.number_variance = number_variance;
    // Where requests go on from a fork–join they are no Poisson stream.
    solution.measured_error = measured_error.filter(|_| network.resources.len() == 1);
    Ok(solution.verified(network)?.occupied(network))
}

/// Σλ·D of the open classes at each resource, below its capacity.
fn open_loads(network: &Network) -> Result<Vec<f64>, NetworkError> {
    let mut loads = Vec::new();
    for (index, resource) in network.resources.iter().enumerate() {
        let pairs = network.classes.iter().zip(&resource.demands);
        let offered: f64 = pairs.map(|(load, d)| load.arrival_rate() * d).sum();
        let capacity = resource.final_multiplier();
        if !resource.is_delay() && offered >= capacity {
            return Err(NetworkError::Unstable {
                resource: index,
                offered,
                capacity,
                share: capacity / offered,
            });
        }
        loads.push(offered);
    }
    Ok(loads)
}

/// Residence time as a multiple of the demand, the probabilities of the states, and the variance of the
/// number: Poisson at a delay, that of one station elsewhere.
type Stretch = (f64, Option<Vec<f64>>, Option<f64>);

fn open_stretch(index: usize, resource: &Resource, a: f64) -> Result<Stretch, NetworkError> {
    let failed = |error: StationError| NetworkError::Number {
        name: format!("load of resource {index} ({error})"),
        value: a,
        expected: "a load for which a steady state can be computed",
    };
    match &resource.kind {
        Kind::Delay => Ok((1.0, None, Some(a))),
        Kind::Queue => Ok((1.0 / (1.0 - a), None, Some(a / (1.0 - a).powi(2)))),
        Kind::ForkJoin { .. } => Ok((1.0 / (1.0 - a), None, None)),
        Kind::Servers(m) if a > 1e-80 => {
            let station = mmm(a, 1.0, *m).map_err(failed)?;
            Ok((station.number.mean / a, None, station.number.variance))
        }
        Kind::LoadDependent(_) if a > 0.0 => {
            let states = birth_death(&BirthDeath {
                births: &|_| a,
                deaths: &|n| resource.multiplier(n),
                last: None,
            })
            .map_err(failed)?;
            let number: f64 = states.iter().zip(0_u64..).map(|(p, n)| p * exact_f64(n)).sum();
            let variance = variance(&states);
            Ok((number / a, Some(states), Some(variance)))
        }
        Kind::Servers(_) => Ok((1.0, None, Some(a))),
        Kind::LoadDependent(_) => Ok((1.0 / resource.multiplier(1), None, Some(a))),
    }
}

/// Variance of 0, 1, 2, … with these probabilities.
pub(crate) fn variance(states: &[f64]) -> f64 {
    let mean: f64 = states.iter().zip(0_u64..).map(|(p, n)| p * exact_f64(n)).sum();
    states.iter().zip(0_u64..).map(|(p, n)| p * (exact_f64(n) - mean).powi(2)).sum()
}

/// Open and closed classes together: open ones take their share of each resource, closed ones see
/// what is left. Exact for product form when the closed part is solved exactly.
///
/// # Errors
/// As [`open`], and those of the solver of the closed part.
///
/// # Source
/// [LZGS84 §7.5]; load-dependent resources by effective capacities, Bruell and Balbo 1980 \[BB80\].
pub fn mixed(network: &Network) -> Result<NetworkSolution, NetworkError> {
    network.check()?;
    if !network.has_open() {
        return closed(network);
    }
    if !network.has_closed() {
        return open(network);
    }
    network.refuse_fork_join("mixed")?;
    let loads = open_loads(network)?;
    let keep: Vec<usize> = (0..network.classes.len())
        .filter(|c| matches!(network.classes[*c], Load::Closed { .. }))
        .collect();
    let customers: u64 = network.populations().iter().sum();
    let effective = Network {
        classes: keep.iter().map(|c| network.classes[*c]).collect(),
        resources: network
            .resources
            .iter()
            .zip(&loads)
            .map(|(resource, a)| left_over(resource, *a, customers, &keep))
            .collect::<Result<_, _>>()?,
    };
    let inner = closed(&effective)?;
    combine(network, &loads, &keep, &inner)
}

/// A closed network by the best solver that can afford it: exact, else Linearizer, else
/// Bard–Schweitzer.
pub(super) fn closed(network: &Network) -> Result<NetworkSolution, NetworkError> {
    let dependent = network.resources.iter().any(Resource::is_load_dependent);
    let forks = network.resources.iter().any(|r| matches!(r.kind, Kind::ForkJoin { .. }));
    let iteration = super::Iteration::default();
    if forks {
        return schweitzer(network, iteration);
    }
    let exact = if dependent { convolution(network) } else { mva_exact(network) };
    match exact {
        Err(NetworkError::TooLarge { .. }) => {}
        other => return other,
    }
    if let Some(solution) = always_there(network) {
        return solution;
    }
    match linearizer(network, iteration) {
        Err(
            NetworkError::TooLarge { .. }
            | NetworkError::NotSettled { .. }
            | NetworkError::Unsupported { .. },
        ) => {}
        other => return other,
    }
    match schweitzer(network, iteration) {
        Err(NetworkError::NotSettled { .. }) if dependent => schweitzer(
            network,
            super::Iteration { multi_server: MultiServer::Seidmann, ..iteration },
        ),
        other => other,
    }
}

/// One class that is always at one resource with no more servers than customers: all are busy, as one server that
/// is as many times as fast.
fn always_there(network: &Network) -> Option<Result<NetworkSolution, NetworkError>> {
    let ([Load::Closed { population, think_time }], [resource]) =
        (&network.classes[..], &network.resources[..])
    else {
        return None;
    };
    let Kind::Servers(m) = resource.kind else { return None };
    if *think_time > 0.0 || *population < m {
        return None;
    }
    let demands = [resource.demands[0] / exact_f64(m)];
    let one = mva_exact(&Network::closed(&demands, *population, 0.0));
    Some(one.and_then(|NetworkSolution { solver, accuracy, throughput, residence, .. }| {
        NetworkSolution::from_residence(network, solver, accuracy, throughput, residence)
            .verified(network)
    }))
}

/// What open customers leave of a resource to the closed classes `keep`.
fn left_over(
    resource: &Resource,
    a: f64,
    customers: u64,
    keep: &[usize],
) -> Result<Resource, NetworkError> {
    let demands: Vec<f64> = keep.iter().map(|c| resource.demands[*c]).collect();
    if a <= 0.0 || resource.is_delay() {
        return Ok(Resource { kind: resource.kind.clone(), demands });
    }
    if !resource.is_load_dependent() {
        let inflated = demands.iter().map(|d| d / (1.0 - a)).collect();
        return Ok(Resource { kind: resource.kind.clone(), demands: inflated });
    }
    if customers > 100_000 {
        return Err(NetworkError::TooLarge {
            solver: "mixed",
            steps: exact_f64(customers).powi(2),
            limit: 1e10,
        });
    }
    // Speed with n closed customers: f(n−1)/f(n), f(n) = Σ_j (n+j choose j)·a^j/Πα.
    let mut list = Vec::new();
    let (mut last, _, mut terms) = open_sum(resource, a, 0)?;
    for n in 1..=customers.max(1) {
        let (next, _, more) = open_sum(resource, a, n)?;
        terms += more + n;
        // Near saturation each sum is long: what all of them take is known after the first few.
        let steps = exact_f64(terms) / exact_f64(n) * exact_f64(customers);
        if n >= 8 && steps > MOST_STEPS {
            return Err(NetworkError::TooLarge { solver: "mixed", steps, limit: MOST_STEPS });
        }
        list.push((last - next).exp());
        last = next;
    }
    Ok(Resource { kind: Kind::LoadDependent(list), demands })
}

/// ln f(n), the mean number of open customers beside n closed ones, and how many terms it took.
fn open_sum(resource: &Resource, a: f64, n: u64) -> Result<(f64, f64, u64), NetworkError> {
    let mut front = 0.0;
    for j in 1..=n {
        front -= resource.multiplier(j).ln();
    }
    // Terms relative to j = 0, rescaled when they grow.
    let (mut sum, mut first_moment, mut term, mut scale) = (1.0, 0.0, 1.0, 0.0);
    for j in 1..=MOST_TERMS {
        let ratio = a * exact_f64(n + j) / exact_f64(j) / resource.multiplier(n + j);
        term *= ratio;
        sum += term;
        first_moment += term * exact_f64(j);
        if term > 1e200 {
            let shrink = 1e-200_f64;
            (sum, first_moment, term) = (sum * shrink, first_moment * shrink, term * shrink);
            scale -= shrink.ln();
        }
        if ratio < 1.0 && term * exact_f64(j) < 1e-17 * (1.0 - ratio) * sum.min(first_moment) {
            return Ok((front + sum.ln() + scale, first_moment / sum, j));
        }
    }
    Err(NetworkError::TooLarge { solver: "mixed", steps: exact_f64(MOST_TERMS), limit: 5e6 })
}

fn combine(
    network: &Network,
    loads: &[f64],
    keep: &[usize],
    inner: &NetworkSolution,
) -> Result<NetworkSolution, NetworkError> {
    let classes = network.classes.len();
    let mut throughput: Vec<f64> = network.classes.iter().map(Load::arrival_rate).collect();
    for (position, class) in keep.iter().enumerate() {
        throughput[*class] = inner.throughput[position];
    }
    let mut residence = Vec::new();
    for (index, resource) in network.resources.iter().enumerate() {
        let present = inner.total_number(index);
        let stretch = if resource.is_delay() {
            1.0
        } else if resource.is_load_dependent() && loads[index] > 0.0 {
            open_beside(resource, loads[index], inner, index)? / loads[index]
        } else {
            (1.0 + present) / (1.0 - loads[index])
        };
        let mut row: Vec<f64> = resource.demands.iter().map(|d| d * stretch).collect();
        for (position, class) in keep.iter().enumerate() {
            row[*class] = inner.residence[index][position];
        }
        residence.push(row);
    }
    debug_assert_eq!(throughput.len(), classes);
    let mut solution =
        NetworkSolution::from_residence(network, "mixed", inner.accuracy, throughput, residence);
    solution.iterations = inner.iterations;
    let mut solution = solution.verified(network)?.occupied(network);
    for (index, resource) in network.resources.iter().enumerate() {
        if !matches!(resource.kind, Kind::LoadDependent(_)) {
            continue;
        }
        let none_closed = match &inner.marginals[index] {
            Some(states) => states[0],
            None if inner.total_number(index) <= 0.0 => 1.0,
            None => continue,
        };
        // Beside no closed customer, no open one.
        let a = loads[index];
        let ln_all = if a > 0.0 { open_sum(resource, a, 0)?.0 } else { 0.0 };
        solution.set_occupied(index, 1.0 - none_closed * (-ln_all).exp());
    }
    Ok(solution)
}

/// Mean number of open customers at a load-dependent resource.
fn open_beside(
    resource: &Resource,
    a: f64,
    inner: &NetworkSolution,
    index: usize,
) -> Result<f64, NetworkError> {
    let Some(marginal) = &inner.marginals[index] else {
        // An approximate solver knows the mean only.
        let n = kendall_units::whole_u64(inner.total_number(index).round());
        return Ok(open_sum(resource, a, n)?.1);
    };
    let mut mean = 0.0;
    let mut terms = 0;
    for (p, n) in marginal.iter().zip(0_u64..) {
        if *p > 1e-15 {
            let (_, beside, more) = open_sum(resource, a, n)?;
            mean += p * beside;
            terms += more + n;
            if exact_f64(terms) > MOST_STEPS {
                let steps = exact_f64(terms);
                return Err(NetworkError::TooLarge { solver: "mixed", steps, limit: MOST_STEPS });
            }
        }
    }
    Ok(mean)
}
