//! Bounds of throughput and response time that need one pass over the demands, and the bottleneck.

use kendall_units::exact_f64;

use super::{Kind, Load, Network, NetworkError};

/// Lower and upper bounds; throughput in 1/s, response time in s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// Least and greatest X.
    pub throughput: (f64, f64),
    /// Least and greatest R.
    pub system_response: (f64, f64),
}

/// Where a class saturates.
#[derive(Debug, Clone, PartialEq)]
pub struct Bottleneck {
    /// Index of the resource with the largest demand per server.
    pub resource: usize,
    /// Dmax: its demand per server in s.
    pub demand: f64,
    /// D: Σ of all demands in s.
    pub total_demand: f64,
    /// 1/Dmax in 1/s.
    pub most_throughput: f64,
    /// N* = (D + Z)/Dmax: beyond it there is queueing for certain; `None` for an open class.
    pub saturation_population: Option<f64>,
}

/// The bottleneck of one class, as if it were alone.
///
/// # Errors
/// [`NetworkError::NoWork`] when it has no demand at any queue.
///
/// # Source
/// [LZGS84 §5.2].
pub fn bottleneck(network: &Network, class: usize) -> Result<Bottleneck, NetworkError> {
    network.check()?;
    let Some(load) = network.classes.get(class) else {
        return Err(NetworkError::Empty { what: "class of this index" });
    };
    let (resource, demand) = network
        .resources
        .iter()
        .enumerate()
        .filter(|(_, r)| !r.is_delay())
        .map(|(index, r)| (index, r.demands[class] / r.capacity()))
        // The first of equals.
        .fold((0, 0.0), |best, now| if now.1 > best.1 { now } else { best });
    if demand <= 0.0 {
        return Err(NetworkError::NoWork { class });
    }
    let total_demand = network.total_demand(class);
    let closed = matches!(load, Load::Closed { .. });
    Ok(Bottleneck {
        resource,
        demand,
        total_demand,
        most_throughput: 1.0 / demand,
        saturation_population: closed.then(|| (total_demand + load.think_time()) / demand),
    })
}

/// N, Z (with the delays), demands at single-server queues.
struct Single {
    n: f64,
    z: f64,
    total: f64,
    most: f64,
    demands: Vec<f64>,
}

fn single(network: &Network, solver: &'static str, several: bool) -> Result<Single, NetworkError> {
    network.check()?;
    let [Load::Closed { population, think_time }] = network.classes[..] else {
        return Err(NetworkError::Unsupported {
            solver,
            what: "open or several classes",
            instead: "`asymptotic_bounds`, `balanced_bounds` or `multi_class_bounds`",
        });
    };
    let mut z = think_time;
    let mut demands = Vec::new();
    let (mut total, mut most) = (0.0, 0.0_f64);
    for resource in &network.resources {
        let demand = resource.demands[0];
        match &resource.kind {
            Kind::Delay => z += demand,
            Kind::Queue => {
                demands.push(demand);
                total += demand;
                most = most.max(demand);
            }
            Kind::Servers(m) if several => {
                total += demand;
                most = most.max(demand / exact_f64(*m));
            }
            _ => {
                return Err(NetworkError::Unsupported {
                    solver,
                    what: "several servers, load dependence or fork-join",
                    instead: "`asymptotic_bounds`",
                });
            }
        }
    }
    if population == 0 || total <= 0.0 {
        return Err(NetworkError::NoWork { class: 0 });
    }
    Ok(Single { n: exact_f64(population), z, total, most, demands })
}

impl Single {
    fn bounds(&self, low: f64, high: f64) -> Bounds {
        Bounds {
            throughput: (low, high),
            system_response: ((self.n / high - self.z).max(0.0), self.n / low - self.z),
        }
    }

    /// min(1/Dmax, N/(D+Z)).
    fn upper(&self) -> f64 {
        (1.0 / self.most).min(self.n / (self.total + self.z))
    }
}

/// Asymptotic bounds: N/(N·D + Z) ≤ X ≤ min(1/Dmax, N/(D + Z)) of one closed class; X ≤ 1/Dmax and
/// R ≥ D of an open one, whose R has no upper bound (infinity). Several servers count with D/m in
/// Dmax.
///
/// # Errors
/// [`NetworkError::Unsupported`] for other networks; [`NetworkError::Unstable`] when λ·Dmax ≥ 1.
///
/// # Source
/// [LZGS84 table 5.1].
pub fn asymptotic_bounds(network: &Network) -> Result<Bounds, NetworkError> {
    if let [Load::Open { arrival_rate }] = network.classes[..] {
        let (neck, _) = open_neck(network, arrival_rate)?;
        return Ok(Bounds {
            throughput: (arrival_rate, neck.most_throughput),
            system_response: (neck.total_demand, f64::INFINITY),
        });
    }
    let s = single(network, "asymptotic bounds", true)?;
    Ok(s.bounds(s.n / (s.n * s.total + s.z), s.upper()))
}

/// Balanced job bounds: as if all queues had the same demand. One closed class at single servers;
/// or an open one, whose R lies between that of the balanced network and that of the bottleneck
/// repeated.
///
/// # Errors
/// [`NetworkError::Unsupported`] for other networks; [`NetworkError::Unstable`] when λ·Dmax ≥ 1.
///
/// # Source
/// [LZGS84 table 5.2], Zahorjan et al. 1982.
pub fn balanced_bounds(network: &Network) -> Result<Bounds, NetworkError> {
    if let [Load::Open { arrival_rate }] = network.classes[..] {
        return open_balanced(network, arrival_rate);
    }
    let s = single(network, "balanced job bounds", false)?;
    let average = s.total / exact_f64(s.demands.len());
    let others = s.n - 1.0;
    let low = s.n / (s.total + s.z + others * s.most / (1.0 + s.z / (s.n * s.total)));
    let high = s.n / (s.total + s.z + others * average / (1.0 + s.z / s.total));
    Ok(s.bounds(low, high.min(1.0 / s.most)))
}

/// Geometric bounds: one pass, a few per cent wide at any population. One closed class, single
/// servers.
///
/// Both follow from N/X(N) = Z + D + Dmax(N−1) − Dmax·Z·X(N−1) − Σ(Dmax − Dᵢ)·Qᵢ(N−1), with
/// geometric sums that bound Qᵢ.
///
/// # Errors
/// [`NetworkError::Unsupported`] for other networks.
///
/// # Source
/// Casale, Muntz, Serazzi 2008 \[CMS08\].
pub fn geometric_bounds(network: &Network) -> Result<Bounds, NetworkError> {
    let s = single(network, "geometric bounds", false)?;
    let others = s.n - 1.0;
    let base = s.z + s.total + s.most * others;
    let slack = |y: &dyn Fn(f64) -> f64| -> f64 {
        s.demands
            .iter()
            .filter(|d| **d < s.most)
            .map(|d| (s.most - d) * geometric(y(*d), others))
            .sum()
    };
    let few = others / (s.z + s.total + s.most * others);
    let low = base - slack(&|d| d * few);
    let most = if others > 0.0 { s.with(others).proportional().1 } else { 0.0 };
    let high = base - slack(&|d| d * most);
    let root = |b: f64, customers: f64| {
        2.0 * s.n / (b + (b * b - 4.0 * s.z * s.most * customers).max(0.0).sqrt())
    };
    Ok(s.bounds(root(low, others), root(high, s.n).min(s.upper())))
}

/// y + y² + … + y^n.
fn geometric(y: f64, n: f64) -> f64 {
    if y <= 0.0 || n <= 0.0 {
        0.0
    } else if (1.0 - y).abs() < 1e-12 {
        n
    } else {
        (y - y.powf(n + 1.0)) / (1.0 - y)
    }
}

/// Proportional bounds: the customers that queue are spread at best as the demands are, at worst
/// as their N-th powers are. One closed class, single servers.
///
/// # Errors
/// [`NetworkError::Unsupported`] for other networks.
///
/// # Source
/// Hsieh and Lam 1987 \[HL87\]; with think time, Z·X customers fewer queue, X by the asymptotic
/// bounds.
pub fn proportional_bounds(network: &Network) -> Result<Bounds, NetworkError> {
    let s = single(network, "proportional bounds", false)?;
    let (low, high) = s.proportional();
    Ok(s.bounds(low, high))
}

impl Single {
    /// The same network with `n` customers.
    fn with(&self, n: f64) -> Self {
        Self { n, demands: self.demands.clone(), ..*self }
    }

    fn proportional(&self) -> (f64, f64) {
        let others = self.n - 1.0;
        // Relative to the largest, so that powers stay in range.
        let power = |p: f64| self.demands.iter().map(|d| (d / self.most).powf(p)).sum::<f64>();
        let worst = self.most * power(self.n) / power(others.max(1e-9));
        let best = self.demands.iter().map(|d| d * d).sum::<f64>() / self.total;
        let fewer = self.with(others);
        let queued = |x: f64| (others - self.z * x).max(0.0);
        let least = if others > 0.0 { others / (others * self.total + self.z) } else { 0.0 };
        let low = self.n / (self.z + self.total + worst * queued(least));
        let high = self.n / (self.z + self.total + best * queued(fewer.upper()));
        (low, high.min(self.upper()))
    }
}

/// Bottleneck of an open class alone, and its utilization.
fn open_neck(network: &Network, arrival_rate: f64) -> Result<(Bottleneck, f64), NetworkError> {
    let neck = bottleneck(network, 0)?;
    let busy = arrival_rate * neck.demand;
    if busy < 1.0 {
        return Ok((neck, busy));
    }
    Err(NetworkError::Unstable {
        resource: neck.resource,
        offered: busy,
        capacity: 1.0,
        share: 1.0 / busy,
    })
}

fn open_balanced(network: &Network, arrival_rate: f64) -> Result<Bounds, NetworkError> {
    let (neck, busy) = open_neck(network, arrival_rate)?;
    let queues: Vec<f64> =
        network.resources.iter().filter(|r| !r.is_delay()).map(|r| r.demands[0]).collect();
    let total: f64 = queues.iter().sum();
    let delay = neck.total_demand - total;
    let single = network.resources.iter().all(|r| matches!(r.kind, Kind::Queue | Kind::Delay));
    let average = total / exact_f64(queues.len());
    let low = if single { total / (1.0 - arrival_rate * average) } else { total };
    Ok(Bounds {
        throughput: (arrival_rate, neck.most_throughput),
        system_response: (delay + low, delay + total / (1.0 - busy)),
    })
}

/// Asymptotic bounds of each closed class beside the others: none can be faster than alone, and
/// none slower than behind all other customers at its bottleneck. Single servers, several servers and
/// delays.
///
/// # Errors
/// [`NetworkError::Unsupported`] for open classes.
///
/// # Source
/// [LZGS84 §5.4] for each class; the lower bound from the arrival theorem, R ≤ D + Dmax·(ΣN − 1).
pub fn multi_class_bounds(network: &Network) -> Result<Vec<Bounds>, NetworkError> {
    network.check()?;
    if network.has_open() {
        return Err(NetworkError::Unsupported {
            solver: "multi-class bounds",
            what: "open classes",
            instead: "`asymptotic_bounds` of an open class alone",
        });
    }
    let everybody: u64 = network.populations().iter().sum();
    let mut all = Vec::new();
    for (class, load) in network.classes.iter().enumerate() {
        let n = exact_f64(load.population());
        let z = load.think_time();
        let total = network.total_demand(class);
        let queues = || network.resources.iter().filter(|r| !r.is_delay());
        let slowest = queues().map(|r| r.demands[class]).fold(0.0, f64::max);
        let per_server = queues().map(|r| r.demands[class] / r.capacity()).fold(0.0, f64::max);
        let worst = total + slowest * (exact_f64(everybody) - 1.0).max(0.0);
        // A class without customers may be without demands, too.
        let rate = |time: f64| if n > 0.0 { n / time } else { 0.0 };
        let high = rate(total + z).min(if per_server > 0.0 { 1.0 / per_server } else { f64::MAX });
        let low = rate(worst + z);
        let response = |x: f64| if x > 0.0 { (n / x - z).max(total) } else { total };
        all.push(Bounds {
            throughput: (low, high),
            system_response: (response(high), if n > 0.0 { worst } else { total }),
        });
    }
    Ok(all)
}

/// Most classes for which [`arrival_bounds`] takes a second step, whose work grows with their fourth power.
const MOST_CLASSES: usize = 24;

/// Bounds of each closed class beside the others from the arrival theorem, taken back two customers (one
/// beyond 24 classes). Single servers and delays.
///
/// `R_c = D_c + Σ_k D_ck·Q_k(N − 1_c)`, and what is found there is bounded: class j has
/// `n_j − Z_j·X_j` customers at queues, of which `X_j·D_jk` at least are at k, and the others at those
/// queues that it visits where they cost class c the least, or the most. Last, no queue is more than
/// busy: `X_c·D_ck ≤ 1 − Σ_{j≠c} X_j·D_jk`. With no step back these are [`multi_class_bounds`].
///
/// The greatest X of balanced jobs has no like for several classes: it needs queues to be longer where
/// the arriving class's demand is larger, which holds for one class, and not for a class whose demands
/// lie elsewhere than the others'.
///
/// # Errors
/// [`NetworkError::Unsupported`] for open classes, several servers, load dependence and fork-join.
///
/// # Source
/// The hierarchy of \[ES86\]; the bounds of a step from the arrival theorem \[RL80\].
pub fn arrival_bounds(network: &Network) -> Result<Vec<Bounds>, NetworkError> {
    let unsupported = |what| NetworkError::Unsupported {
        solver: "bounds of the arrival theorem",
        what,
        instead: "`multi_class_bounds`",
    };
    network.check()?;
    if network.has_open() {
        return Err(unsupported("open classes"));
    }
    let mut delays: Vec<f64> = network.classes.iter().map(Load::think_time).collect();
    let mut queues = Vec::new();
    for resource in &network.resources {
        match resource.kind {
            Kind::Queue => queues.push(resource.demands.as_slice()),
            Kind::Delay => {
                for (delay, demand) in delays.iter_mut().zip(&resource.demands) {
                    *delay += demand;
                }
            }
            _ => return Err(unsupported("several servers, load dependence or fork-join")),
        }
    }
    let total = |class: usize| queues.iter().map(|queue| queue[class]).sum::<f64>();
    let totals: Vec<f64> = (0..delays.len()).map(total).collect();
    let arrivals = Arrivals { queues, totals, delays };
    let population: Vec<f64> = network.populations().into_iter().map(exact_f64).collect();
    let steps = if population.len() <= MOST_CLASSES { 2 } else { 1 };
    let found = arrivals.throughputs(&population, steps);
    let bounds = |(class, (low, high)): (usize, &(f64, f64))| {
        let n = population[class];
        let response = |x: f64| if x > 0.0 { n / x - arrivals.delays[class] } else { 0.0 };
        let least = arrivals.totals[class];
        let system_response = (response(*high).max(least), response(*low).max(least));
        // Delays that are resources are part of the response time.
        let inside = arrivals.delays[class] - network.classes[class].think_time();
        Bounds {
            throughput: (*low, *high),
            system_response: (system_response.0 + inside, system_response.1 + inside),
        }
    };
    Ok(found.iter().enumerate().map(bounds).collect())
}

/// What [`arrival_bounds`] needs: demands by queue and class, their sums, and the time elsewhere.
struct Arrivals<'a> {
    queues: Vec<&'a [f64]>,
    totals: Vec<f64>,
    delays: Vec<f64>,
}

impl Arrivals<'_> {
    /// Least and greatest X of each class.
    fn throughputs(&self, population: &[f64], steps: u32) -> Vec<(f64, f64)> {
        let alone = |class: usize| {
            if population[class] <= 0.0 {
                return (0.0, 0.0);
            }
            let mut others = population.to_vec();
            others[class] -= 1.0;
            let (least, most) = self.responses(class, &others, steps);
            let x = |response: f64| population[class] / (self.delays[class] + response);
            (x(most), x(least))
        };
        let mut found: Vec<(f64, f64)> = (0..population.len()).map(alone).collect();
        let least: Vec<f64> = found.iter().map(|(low, _)| *low).collect();
        for (class, (low, high)) in found.iter_mut().enumerate() {
            for queue in self.queues.iter().filter(|queue| queue[class] > 0.0) {
                let busy: f64 = queue.iter().zip(&least).map(|(d, x)| d * x).sum();
                let left = 1.0 - (busy - queue[class] * *low);
                // Roundings must not turn them round.
                *high = f64::min(*high, left / queue[class]).max(*low);
            }
        }
        found
    }

    /// Least and greatest time at queues of a class that finds `others`.
    fn responses(&self, class: usize, others: &[f64], steps: u32) -> (f64, f64) {
        let total = self.totals[class];
        if steps == 0 {
            let slowest = self.queues.iter().map(|queue| queue[class]).fold(0.0, f64::max);
            return (total, total + slowest * others.iter().sum::<f64>());
        }
        let before = self.throughputs(others, steps - 1);
        let (mut least, mut most) = (total, total);
        for (other, (low, high)) in before.iter().enumerate() {
            let visited = || self.queues.iter().filter(move |queue| queue[other] > 0.0);
            let known: f64 = visited().map(|queue| low * queue[other] * queue[class]).sum();
            let at_least = low * self.totals[other];
            let more = |x: f64| (others[other] - self.delays[other] * x - at_least).max(0.0);
            let cheapest = visited().map(|queue| queue[class]).fold(f64::INFINITY, f64::min);
            let dearest = visited().map(|queue| queue[class]).fold(0.0, f64::max);
            least += known;
            if cheapest.is_finite() {
                least += more(*high) * cheapest;
            }
            most += known + more(*low) * dearest;
        }
        (least, most)
    }
}
