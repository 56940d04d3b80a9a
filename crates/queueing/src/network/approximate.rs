//! Approximate mean value analysis: any population, many classes.

use kendall_units::exact_f64;

use super::accelerate::Anderson;
use super::fork_join::order_statistic_factor;
use super::{Accuracy, Kind, Network, NetworkError, NetworkSolution, Resource, mva_exact};

/// Most rounds of an iteration.
const MOST_ROUNDS: u32 = 200_000;
/// Rounds before an iteration is accelerated: most are done by then.
const PLAIN_ROUNDS: u32 = 30;
/// Steps that an accelerated iteration remembers.
const REMEMBERED: usize = 6;
/// Most rounds of Linearizer's corrections.
const MOST_OUTER: u32 = 200;
/// Rounds of Linearizer's corrections before they are accelerated: Chandy and Neuse take three.
const PLAIN_OUTER: u32 = 3;
/// Most corrections that are remembered for acceleration, with [`REMEMBERED`] steps of them 100 MB.
const MOST_REMEMBERED: usize = 1_000_000;
/// Relative change of throughputs that is let pass after them.
const SETTLED: f64 = 1e-6;
/// Most elementary steps of all rounds.
const MOST_WORK: f64 = 4e9;

/// The largest errors of an approximation over random models whose solution is known exactly or from
/// a long simulation: docs/models.md has the models (`tests/all/approximations.rs`, `measured.rs`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredError {
    /// Of a throughput, in percent.
    pub throughput_percent: f64,
    /// Of a response time, in percent.
    pub response_percent: f64,
}

impl MeasuredError {
    pub(crate) const fn new(throughput_percent: f64, response_percent: f64) -> Self {
        Self { throughput_percent, response_percent }
    }
}

/// Errors with one class, with several and with many, at single servers; the same at several servers.
struct Errors {
    one: MeasuredError,
    several: MeasuredError,
    /// Up to 20 classes, against simulations that are certain to 2 %, which is in it.
    many: MeasuredError,
    servers: MeasuredError,
    several_servers: MeasuredError,
}

/// Fewest stations of those with many classes.
const FEWEST: usize = 20;

const BARD_SCHWEITZER: Errors = Errors {
    one: MeasuredError::new(6.5, 22.0),
    several: MeasuredError::new(22.0, 28.5),
    many: MeasuredError::new(6.0, 7.0),
    // With conditional waiting.
    servers: MeasuredError::new(11.5, 22.0),
    several_servers: MeasuredError::new(17.5, 21.0),
};
const SEIDMANN: Errors = Errors {
    servers: MeasuredError::new(17.5, 24.0),
    several_servers: MeasuredError::new(24.0, 31.0),
    ..BARD_SCHWEITZER
};
/// With exact mean value analysis: an error at several servers only.
const SEIDMANN_EXACT: Errors = Errors {
    servers: MeasuredError::new(14.0, 16.0),
    several_servers: MeasuredError::new(20.0, 25.0),
    ..BARD_SCHWEITZER
};
const LINEARIZER: Errors = Errors {
    one: MeasuredError::new(0.9, 6.0),
    several: MeasuredError::new(9.5, 20.5),
    many: MeasuredError::new(3.0, 3.0),
    // After Seidmann.
    servers: MeasuredError::new(13.5, 15.5),
    several_servers: MeasuredError::new(20.0, 24.5),
};

/// In order of arrival with other services by class: exponential at one server, at several, and others at one.
/// Against simulations that are certain to 1 %.
const IN_LINE: [MeasuredError; 3] = [
    MeasuredError::new(25.0, 34.0),
    MeasuredError::new(31.0, 44.0),
    MeasuredError::new(35.0, 66.0),
];

impl Errors {
    /// Of a network like those that were measured: so many classes, customers of each and servers of a queue at
    /// most, and neither load dependence nor fork–join.
    fn of(&self, network: &Network) -> Option<MeasuredError> {
        let servers = network.resources.iter().map(|resource| match resource.kind {
            Kind::Queue | Kind::Delay => 1,
            Kind::Servers(m) => m,
            _ => u64::MAX,
        });
        let servers = servers.max().unwrap_or(1);
        let customers = network.populations().into_iter().max().unwrap_or(0);
        match (network.classes.len(), customers, servers) {
            (1, ..=60, ..=1) => Some(self.one),
            (1, ..=60, ..=8) => Some(self.servers),
            (..=3, ..=8, ..=1) => Some(self.several),
            (..=20, ..=9, ..=1) if network.resources.len() >= FEWEST => Some(self.many),
            (..=2, ..=6, ..=4) => Some(self.several_servers),
            _ => None,
        }
    }
}

/// When an iteration stops.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Iteration {
    /// Largest relative change of a throughput in the last round.
    pub tolerance: f64,
    /// How several servers are approximated.
    pub multi_server: MultiServer,
}

impl Default for Iteration {
    fn default() -> Self {
        Self { tolerance: 1e-11, multi_server: MultiServer::Conditional }
    }
}

/// How several servers are approximated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MultiServer {
    /// One server m times as fast, and a delay of (m−1)/m of the service time: Seidmann et al. 1987
    /// \[SSS87\]. Pessimistic at medium load, right at both ends.
    Seidmann,
    /// Waiting only while all servers are busy: the number waiting plus the probability that all
    /// are busy, U^(√(2(m+1))−1) after Sakasegawa 1977 \[Sakasegawa77\], times S/m.
    Conditional,
}

/// Bard–Schweitzer approximation: the queue that an arrival of class c finds is the whole queue,
/// less a share 1/N_c of its own class.
///
/// # Errors
/// [`NetworkError::NotSettled`]; [`NetworkError::Unsupported`] for open classes.
///
/// # Source
/// Schweitzer 1979, Bard 1979; [LZGS84 §6.4.2.2]. Errors: the table of `docs/models.md`. For one
/// class it never exceeds the exact throughput \[ES84\].
pub fn schweitzer(
    network: &Network,
    iteration: Iteration,
) -> Result<NetworkSolution, NetworkError> {
    const SOLVER: &str = "Bard–Schweitzer";
    network.check()?;
    refuse_open(network, SOLVER)?;
    let plain = network.resources.iter().all(|r| matches!(r.kind, Kind::Queue | Kind::Delay));
    let seidmann = iteration.multi_server == MultiServer::Seidmann
        && network
            .resources
            .iter()
            .all(|r| !matches!(r.kind, Kind::LoadDependent(_) | Kind::ForkJoin { .. }));
    let solution = if plain || seidmann {
        let reduced = Reduced::new(network);
        let (rounds, change, core) = reduced.settle(SOLVER, iteration.tolerance)?;
        let mut solution = reduced.expand(network, SOLVER, &core);
        solution.iterations = Some((rounds, change));
        solution
    } else {
        General::new(network).settle(SOLVER, iteration.tolerance)?
    };
    let errors = if seidmann { SEIDMANN } else { BARD_SCHWEITZER };
    let measured_error = errors.of(network);
    let solution = NetworkSolution { measured_error, ..solution }.verified(network)?;
    Ok(solution.occupied(network))
}

/// What customers ask of a station that serves them in order of arrival, by class.
#[derive(Debug, Clone, PartialEq)]
pub struct InLine {
    /// V.
    pub visits: Vec<f64>,
    /// Mean in s and squared coefficient of variation of a service.
    pub services: Vec<(f64, f64)>,
}

impl InLine {
    /// Least and largest mean of a service.
    pub fn range(&self) -> (f64, f64) {
        range(self.services.iter().map(|service| service.0))
    }
}

/// Least and largest of those above 0.
pub fn range(means: impl Iterator<Item = f64>) -> (f64, f64) {
    means
        .filter(|mean| *mean > 0.0)
        .fold((f64::INFINITY, 0.0), |(low, high), mean| (low.min(mean), high.max(mean)))
}

/// As [`schweitzer`] with conditional waiting, where some stations serve in order of arrival and classes have other
/// service times there: an arrival waits for the services of those before it, whichever their class, and not for
/// a share of its own. `lines` has what is asked of these stations, by resource.
///
/// # Errors
/// As [`schweitzer`].
///
/// # Source
/// Reiser 1979; what is left of the services in progress after [Kleinrock75 §5.2]. Errors: the table of
/// `docs/models.md`.
pub fn in_line(
    network: &Network,
    lines: &[Option<InLine>],
) -> Result<NetworkSolution, NetworkError> {
    const SOLVER: &str = "Bard–Schweitzer in order of arrival";
    network.check()?;
    refuse_open(network, SOLVER)?;
    let general = General { lines, ..General::new(network) };
    let solution = general.settle(SOLVER, Iteration::default().tolerance)?;
    let mut solution = within_capacity(network, solution);
    solution.measured_error = in_line_error(network, lines);
    Ok(solution.verified(network)?.occupied(network))
}

/// Where more would be served than can be, all who come there wait for so much longer.
fn within_capacity(network: &Network, mut solution: NetworkSolution) -> NetworkSolution {
    for (k, resource) in network.resources.iter().enumerate() {
        let work = solution.throughput.iter().zip(&resource.demands).map(|(x, d)| x * d);
        let used = work.sum::<f64>() / resource.capacity();
        if resource.is_delay() || used <= 1.0 {
            continue;
        }
        for (class, load) in network.classes.iter().enumerate() {
            let x = solution.throughput[class];
            if resource.demands[class] > 0.0 && x > 0.0 {
                solution.residence[k][class] += exact_f64(load.population()) * (used - 1.0) / x;
                solution.throughput[class] = x / used;
            }
        }
    }
    let NetworkSolution { solver, accuracy, throughput, residence, iterations, .. } = solution;
    let found = NetworkSolution::from_residence(network, solver, accuracy, throughput, residence);
    NetworkSolution { iterations, ..found }
}

/// Of a network like those that were measured: up to three classes of 8 customers, services whose means are within a
/// factor of ten at a station; exponential ones at up to 4 servers, or others with c² up to 4 at one.
fn in_line_error(network: &Network, lines: &[Option<InLine>]) -> Option<MeasuredError> {
    let (mut alike, mut spread) = (true, 0.0_f64);
    for line in lines.iter().flatten() {
        for (_, scv) in line.services.iter().filter(|(mean, _)| *mean > 0.0) {
            spread = spread.max((scv - 1.0).abs());
        }
        let (low, high) = line.range();
        alike &= high <= 10.0 * low;
    }
    let servers = network.resources.iter().map(|resource| match resource.kind {
        Kind::Queue | Kind::Delay => 1,
        Kind::Servers(m) => m,
        Kind::LoadDependent(_) | Kind::ForkJoin { .. } => u64::MAX,
    });
    let few = network.classes.len() <= 3 && network.populations().into_iter().all(|n| n <= 8);
    let exponential = spread <= 1e-9;
    match servers.max() {
        _ if !(alike && few) => None,
        Some(..=1) if exponential => Some(IN_LINE[0]),
        Some(..=4) if exponential => Some(IN_LINE[1]),
        Some(..=1) if spread <= 3.0 + 1e-9 => Some(IN_LINE[2]),
        _ => None,
    }
}

/// Bard's approximation: an arrival finds the whole queue, its own class's share included. The error
/// is larger than that of [`schweitzer`], always to the side of too little throughput for one class,
/// and falls with the population. Several servers after Seidmann.
///
/// # Errors
/// As [`schweitzer`], and [`NetworkError::Unsupported`] for general load dependence.
///
/// # Source
/// Bard 1979.
pub fn bard(network: &Network, tolerance: f64) -> Result<NetworkSolution, NetworkError> {
    const SOLVER: &str = "Bard";
    network.check()?;
    refuse_open(network, SOLVER)?;
    refuse_dependent(network, SOLVER)?;
    let reduced = Reduced { own: 0.0, ..Reduced::new(network) };
    let (rounds, change, core) = reduced.settle(SOLVER, tolerance)?;
    let mut solution = reduced.expand(network, SOLVER, &core);
    solution.iterations = Some((rounds, change));
    solution.verified(network)
}

/// Exact mean value analysis with several servers after Seidmann: one server m times as fast, and a
/// delay of (m−1)/m of the service time.
///
/// # Errors
/// As [`mva_exact`], and [`NetworkError::Unsupported`] for general load dependence.
///
/// # Source
/// Seidmann, Schweitzer, Shalev-Oren 1987 \[SSS87\]. Errors: the table of `docs/models.md`.
pub fn seidmann_exact(network: &Network) -> Result<NetworkSolution, NetworkError> {
    const SOLVER: &str = "exact MVA after Seidmann";
    network.check()?;
    refuse_dependent(network, SOLVER)?;
    let share = |resource: &Resource, kind, share: f64| Resource {
        kind,
        demands: resource.demands.iter().map(|demand| demand * share).collect(),
    };
    let mut split = Network { classes: network.classes.clone(), resources: Vec::new() };
    let mut plain = true;
    for resource in &network.resources {
        let Kind::Servers(m) = resource.kind else {
            split.resources.push(resource.clone());
            continue;
        };
        plain &= m == 1;
        let one = 1.0 / exact_f64(m);
        split.resources.push(share(resource, Kind::Queue, one));
        split.resources.push(share(resource, Kind::Delay, 1.0 - one));
    }
    let solved = mva_exact(&split)?;
    let mut rows = solved.residence.into_iter();
    let residence = network.resources.iter().map(|resource| {
        let mut row = rows.next().unwrap_or_default();
        if matches!(resource.kind, Kind::Servers(_)) {
            let delays = rows.next().unwrap_or_default();
            row.iter_mut().zip(delays).for_each(|(queue, delay)| *queue += delay);
        }
        row
    });
    let residence = residence.collect();
    let accuracy = if plain { Accuracy::Exact } else { Accuracy::Approximation };
    let solution =
        NetworkSolution::from_residence(network, SOLVER, accuracy, solved.throughput, residence);
    let measured_error = if plain { None } else { SEIDMANN_EXACT.of(network) };
    NetworkSolution { measured_error, ..solution }.verified(network)
}

/// For iterations that know queues, servers and delays only.
fn refuse_dependent(network: &Network, solver: &'static str) -> Result<(), NetworkError> {
    let plain = |r: &Resource| !matches!(r.kind, Kind::LoadDependent(_) | Kind::ForkJoin { .. });
    if network.resources.iter().all(plain) {
        return Ok(());
    }
    Err(NetworkError::Unsupported {
        solver,
        what: "general load dependence and fork-join",
        instead: "`convolution` or `schweitzer`",
    })
}

fn refuse_open(network: &Network, solver: &'static str) -> Result<(), NetworkError> {
    if !network.has_open() {
        return Ok(());
    }
    Err(NetworkError::Unsupported { solver, what: "open classes", instead: "`mixed`" })
}

/// Single servers and pauses only: several servers are split in two.
struct Reduced {
    /// `[class·K + queue]`.
    demands: Vec<f64>,
    pauses: Vec<f64>,
    populations: Vec<f64>,
    queues: usize,
    /// Share of its own customer that an arrival does not find.
    own: f64,
}

/// Where an iteration has arrived: `[class·K + queue]` and by class.
#[derive(Clone)]
struct Core {
    number: Vec<f64>,
    throughput: Vec<f64>,
}

impl Reduced {
    fn new(network: &Network) -> Self {
        let queues: Vec<&Resource> = network.resources.iter().filter(|r| !r.is_delay()).collect();
        let mut demands = Vec::new();
        let mut pauses = Vec::new();
        for (class, load) in network.classes.iter().enumerate() {
            let mut pause = load.think_time();
            for resource in &network.resources {
                pause += pause_share(resource) * resource.demands[class];
            }
            pauses.push(pause);
            demands.extend(queues.iter().map(|r| r.demands[class] * (1.0 - pause_share(r))));
        }
        let populations = network.populations().into_iter().map(exact_f64).collect();
        Self { demands, pauses, populations, queues: queues.len(), own: 1.0 }
    }

    fn start(&self) -> Core {
        let width = self.queues;
        let mut number = vec![0.0; self.demands.len()];
        for (class, n) in self.populations.iter().enumerate() {
            let row = &self.demands[class * width..(class + 1) * width];
            let work: f64 = row.iter().sum();
            for (q, d) in number[class * width..].iter_mut().zip(row) {
                *q = if work > 0.0 { n * d / (work + self.pauses[class]) } else { 0.0 };
            }
        }
        Core { number, throughput: vec![0.0; self.populations.len()] }
    }

    /// Rounds, last change, and where it settled.
    fn settle(
        &self,
        solver: &'static str,
        tolerance: f64,
    ) -> Result<(u32, f64, Core), NetworkError> {
        let mut core = self.start();
        let corrections = vec![0.0; self.demands.len()];
        let (rounds, change) =
            self.rounds(solver, &self.populations, &corrections, tolerance, &mut core)?;
        Ok((rounds, change, core))
    }

    /// Fixed point for `populations`: an arrival of class c at queue k finds Σ_j Q_jk − Q_ck/n_c +
    /// `corrections`\[c, k\].
    fn rounds(
        &self,
        solver: &'static str,
        populations: &[f64],
        corrections: &[f64],
        tolerance: f64,
        core: &mut Core,
    ) -> Result<(u32, f64), NetworkError> {
        let mut totals = self.totals(core);
        let mut residence = vec![0.0; self.queues];
        let work = exact_f64(self.demands.len().max(1));
        let mut change = f64::INFINITY;
        let mut anderson = Anderson::new(REMEMBERED);
        let mut before = Vec::new();
        for round in 1..=MOST_ROUNDS {
            let accelerated = round > PLAIN_ROUNDS;
            if accelerated {
                before.clone_from(&core.number);
            }
            change = self.sweep(populations, corrections, core, &mut totals, &mut residence);
            if change <= tolerance {
                return Ok((round, change));
            }
            if accelerated {
                anderson.step(&before, &mut core.number);
                for q in &mut core.number {
                    *q = q.max(0.0);
                }
                totals = self.totals(core);
            }
            if f64::from(round) * work > MOST_WORK {
                return Err(NetworkError::NotSettled { solver, rounds: round, change });
            }
        }
        Err(NetworkError::NotSettled { solver, rounds: MOST_ROUNDS, change })
    }

    /// Number at each queue, all classes together.
    fn totals(&self, core: &Core) -> Vec<f64> {
        let mut totals = vec![0.0; self.queues];
        for row in core.number.chunks_exact(self.queues.max(1)) {
            for (total, q) in totals.iter_mut().zip(row) {
                *total += q;
            }
        }
        totals
    }

    /// One round over all classes; gives the largest relative change of a throughput.
    fn sweep(
        &self,
        populations: &[f64],
        corrections: &[f64],
        core: &mut Core,
        totals: &mut [f64],
        residence: &mut [f64],
    ) -> f64 {
        let width = self.queues;
        let mut change = 0.0_f64;
        for (class, n) in populations.iter().enumerate() {
            let range = class * width..(class + 1) * width;
            let (row, found) = (&self.demands[range.clone()], &corrections[range.clone()]);
            let number = &mut core.number[range];
            if *n <= 0.0 {
                for (total, q) in totals.iter_mut().zip(number) {
                    *total -= *q;
                    *q = 0.0;
                }
                core.throughput[class] = 0.0;
                continue;
            }
            let share = self.own / n;
            let mut sum = self.pauses[class];
            for k in 0..width {
                let seen = (totals[k] - number[k] * share + found[k]).max(0.0);
                residence[k] = row[k] * (1.0 + seen);
                sum += residence[k];
            }
            let x = n / sum;
            for k in 0..width {
                let next = x * residence[k];
                totals[k] += next - number[k];
                number[k] = next;
            }
            change = change.max((x - core.throughput[class]).abs() / x);
            core.throughput[class] = x;
        }
        change
    }

    fn expand(&self, network: &Network, solver: &'static str, core: &Core) -> NetworkSolution {
        let mut residence = Vec::new();
        let mut queue = 0;
        for resource in &network.resources {
            let row = (0..network.classes.len()).map(|class| {
                let pause = resource.demands[class] * pause_share(resource);
                let x = core.throughput[class];
                if resource.is_delay() || x <= 0.0 {
                    return resource.demands[class];
                }
                pause + core.number[class * self.queues + queue] / x
            });
            residence.push(row.collect());
            queue += usize::from(!resource.is_delay());
        }
        let throughput = core.throughput.clone();
        NetworkSolution::from_residence(
            network,
            solver,
            Accuracy::Approximation,
            throughput,
            residence,
        )
    }
}

/// Share of a demand that is a pause: all of it at a delay, (m−1)/m of it at m servers.
fn pause_share(resource: &Resource) -> f64 {
    match resource.kind {
        Kind::Delay => 1.0,
        Kind::Servers(m) => 1.0 - 1.0 / exact_f64(m),
        _ => 0.0,
    }
}

/// Linearizer: as [`schweitzer`], with the change of each class's share of the queues when one
/// customer less is there, estimated by solving for those populations too. Several servers after
/// Seidmann.
///
/// # Errors
/// As [`schweitzer`], and [`NetworkError::Unsupported`] for general load dependence.
///
/// # Source
/// Chandy and Neuse 1982 \[CN82\]; the sums after de Souza e Silva and Muntz 1990 \[SM90\]. Errors:
/// the table of `docs/models.md`.
pub fn linearizer(
    network: &Network,
    iteration: Iteration,
) -> Result<NetworkSolution, NetworkError> {
    const SOLVER: &str = "Linearizer";
    network.check()?;
    refuse_open(network, SOLVER)?;
    refuse_dependent(network, SOLVER)?;
    let reduced = Reduced::new(network);
    // What it starts from, where its corrections fail.
    let start = |name: &'static str| {
        let seidmann = Iteration { multi_server: MultiServer::Seidmann, ..iteration };
        let mut solution = schweitzer(network, seidmann)?;
        solution.solver = name;
        Ok(solution)
    };
    let (rounds, change, core) = match reduced.linearized(SOLVER, iteration.tolerance) {
        Err(NetworkError::NotSettled { .. }) => {
            return start("Bard–Schweitzer (Linearizer did not settle)");
        }
        other => other?,
    };
    let mut solution = reduced.expand(network, SOLVER, &core);
    solution.iterations = Some((rounds, change));
    solution.measured_error = LINEARIZER.of(network);
    match solution.verified(network) {
        // Its corrections know no capacity: with few customers in several classes at a saturated
        // queue it may promise a little more than can be done.
        Err(NetworkError::BrokenLaw { .. }) => {
            start("Bard–Schweitzer (Linearizer exceeded a capacity)")
        }
        other => other,
    }
}

impl Reduced {
    fn linearized(
        &self,
        solver: &'static str,
        tolerance: f64,
    ) -> Result<(u32, f64, Core), NetworkError> {
        let (classes, width) = (self.populations.len(), self.queues);
        let size = classes * width;
        if exact_f64(size * classes) > 5e7 {
            let steps = exact_f64(size * classes);
            return Err(NetworkError::TooLarge { solver, steps, limit: 5e7 });
        }
        let (mut rounds, _, mut full) = self.settle(solver, tolerance)?;
        let mut reduced: Vec<Core> = vec![full.clone(); classes];
        // Δ[i·C·K + c·K + k]: change of the share of class c at queue k without one of class i.
        let mut delta = vec![0.0; size * classes];
        let mut change = f64::INFINITY;
        let mut last = f64::INFINITY;
        let mut anderson =
            Anderson::new(if delta.len() > MOST_REMEMBERED { 0 } else { REMEMBERED });
        // With few customers in several classes the corrections may swing; then they are damped.
        let mut damping = 1.0_f64;
        let mut settled = 0;
        for outer in 0..MOST_OUTER {
            let before = full.throughput.clone();
            // As exact as the corrections themselves are by now, and a hundred times more.
            let inner = (change * 1e-2).clamp(tolerance, 1e-5);
            let found = self.corrections(&delta);
            rounds += self.rounds(solver, &self.populations, &found, inner, &mut full)?.0;
            change = before
                .iter()
                .zip(&full.throughput)
                .map(|(a, b)| if *b > 0.0 { (a - b).abs() / b } else { 0.0 })
                .fold(0.0, f64::max);
            // Twice: once may be by chance, or because `inner` was wide.
            settled = if change < damping * tolerance.max(1e-9) { settled + 1 } else { 0 };
            if settled == 2 {
                return Ok((rounds, change, full));
            }
            if outer > 15 && change > 2.0 * last {
                damping = (damping * 0.7).max(0.05);
            }
            last = change;
            let mut next = delta.clone();
            rounds += self.correct(solver, inner, (&found, &full), &mut reduced, &mut next)?;
            for (next, start) in next.iter_mut().zip(&delta) {
                *next = start + damping * (*next - start);
            }
            if outer >= PLAIN_OUTER {
                anderson.step(&delta, &mut next);
            }
            delta = next;
        }
        if change < SETTLED {
            return Ok((rounds, change, full));
        }
        Err(NetworkError::NotSettled { solver, rounds, change })
    }

    /// Solves with one customer less of each class by the Δ in `delta`, and leaves there the Δ that
    /// follow. `found` are the corrections with all customers.
    fn correct(
        &self,
        solver: &'static str,
        tolerance: f64,
        (found, full): (&[f64], &Core),
        reduced: &mut [Core],
        delta: &mut [f64],
    ) -> Result<u32, NetworkError> {
        let (width, size) = (self.queues, self.demands.len());
        let mut rounds = 0;
        if width == 0 {
            return Ok(0);
        }
        for (without, core) in reduced.iter_mut().enumerate() {
            if self.populations[without] < 1.0 {
                continue;
            }
            let mut populations = self.populations.clone();
            populations[without] -= 1.0;
            // One customer of the class less, also among those that every class finds.
            let mut found = found.to_vec();
            for (class, row) in found.chunks_exact_mut(width).enumerate() {
                let from = class * size + without * width;
                for (cell, change) in row.iter_mut().zip(&delta[from..from + width]) {
                    *cell -= change;
                }
            }
            rounds += self.rounds(solver, &populations, &found, tolerance, core)?.0;
        }
        let share = |number: f64, n: f64| if n > 0.0 { number / n } else { 0.0 };
        for (without, core) in reduced.iter().enumerate() {
            if self.populations[without] < 1.0 {
                continue;
            }
            let changes = &mut delta[without * size..(without + 1) * size];
            for (at, change) in changes.iter_mut().enumerate() {
                let class = at / width;
                let n = self.populations[class];
                let left = if class == without { n - 1.0 } else { n };
                *change = share(core.number[at], left) - share(full.number[at], n);
            }
        }
        Ok(rounds)
    }

    /// Σ_j n_j·Δ_jk(i) − Δ_ik(i) for an arrival of class i.
    fn corrections(&self, delta: &[f64]) -> Vec<f64> {
        let (width, size) = (self.queues, self.demands.len());
        let mut found = vec![0.0; size];
        if width == 0 {
            return found;
        }
        for (class, row) in found.chunks_exact_mut(width).enumerate() {
            let changes = &delta[class * size..(class + 1) * size];
            for (other, changes) in changes.chunks_exact(width).enumerate() {
                let n = self.populations[other];
                let weight = if other == class { n - 1.0 } else { n };
                for (cell, change) in row.iter_mut().zip(changes) {
                    *cell += weight * change;
                }
            }
        }
        found
    }
}

/// The general iteration: conditional waiting at several servers, load dependence at the mean
/// queue, fork-join.
struct General<'a> {
    network: &'a Network,
    populations: Vec<f64>,
    /// By resource, those in order of arrival that have no product form.
    lines: &'a [Option<InLine>],
}

impl<'a> General<'a> {
    fn new(network: &'a Network) -> Self {
        let populations = network.populations().into_iter().map(exact_f64).collect();
        Self { network, populations, lines: &[] }
    }

    fn settle(
        &self,
        solver: &'static str,
        tolerance: f64,
    ) -> Result<NetworkSolution, NetworkError> {
        let network = self.network;
        let (classes, resources) = (network.classes.len(), network.resources.len());
        let mut throughput = vec![0.0; classes];
        // Numbers that queue: at a fork-join those at one branch.
        let mut number = vec![vec![0.0; classes]; resources];
        let mut residence = vec![vec![0.0; classes]; resources];
        for (class, load) in network.classes.iter().enumerate() {
            let pause = network.total_demand(class) + load.think_time();
            let n = self.populations[class];
            throughput[class] = self.cap(class, if n > 0.0 { n / pause } else { 0.0 });
            for (row, resource) in number.iter_mut().zip(&network.resources) {
                row[class] = throughput[class] * resource.demands[class];
            }
        }
        let work = exact_f64(classes * resources);
        let mut damping = 1.0;
        let mut last = f64::INFINITY;
        for round in 1..=MOST_ROUNDS {
            let mut change = 0.0_f64;
            for (class, load) in network.classes.iter().enumerate() {
                let n = self.populations[class];
                if n <= 0.0 {
                    continue;
                }
                let mut sum = load.think_time();
                for k in 0..resources {
                    let visit = self.residence(k, class, &number[k], &throughput);
                    residence[k][class] = visit.0;
                    let step = throughput[class] * visit.1 - number[k][class];
                    number[k][class] += damping * step;
                    // A throughput at its cap no longer changes while queues still grow.
                    change = change.max(step.abs() / n);
                    sum += visit.0;
                }
                let next = self.cap(class, n / sum);
                let gap = (next - throughput[class]) / next;
                change = change.max(gap.abs());
                throughput[class] += damping * (next - throughput[class]);
            }
            if change <= tolerance.max(1e-10) {
                let x: Vec<f64> = (0..classes).map(|c| self.closing(c, &residence)).collect();
                let mut solution = NetworkSolution::from_residence(
                    network,
                    solver,
                    Accuracy::Approximation,
                    x,
                    residence,
                );
                solution.iterations = Some((round, change));
                return Ok(solution);
            }
            // An iteration that swings is slowed down.
            if change > last && round > 20 {
                damping = (damping * 0.7_f64).max(0.02);
            }
            last = change;
            if f64::from(round) * work > MOST_WORK / 40.0 {
                return Err(NetworkError::NotSettled { solver, rounds: round, change });
            }
        }
        Err(NetworkError::NotSettled { solver, rounds: MOST_ROUNDS, change: last })
    }

    /// X from the residence times, so that customers are conserved to the last digit.
    fn closing(&self, class: usize, residence: &[Vec<f64>]) -> f64 {
        let sum: f64 = residence.iter().map(|row| row[class]).sum();
        let n = self.populations[class];
        if n > 0.0 { n / (sum + self.network.classes[class].think_time()) } else { 0.0 }
    }

    /// No class can be served faster than the slowest resource works when it is alone there.
    fn cap(&self, class: usize, x: f64) -> f64 {
        self.network
            .resources
            .iter()
            .filter(|r| !r.is_delay() && r.demands[class] > 0.0)
            .map(|r| r.capacity() / r.demands[class])
            .fold(x, f64::min)
    }

    /// Residence time of a class, and the time that counts as presence in its queue.
    fn residence(&self, k: usize, class: usize, number: &[f64], x: &[f64]) -> (f64, f64) {
        let resource = &self.network.resources[k];
        let demand = resource.demands[class];
        let n = self.populations[class];
        if demand == 0.0 {
            return (0.0, 0.0);
        }
        if let Some(Some(line)) = self.lines.get(k) {
            let time = demand + line.visits[class] * self.wait((k, line), class, number, x);
            return (time, time);
        }
        let seen = (number.iter().sum::<f64>() - number[class] / n).max(0.0);
        match &resource.kind {
            Kind::Delay => (demand, demand),
            Kind::Queue => (demand * (1.0 + seen), demand * (1.0 + seen)),
            Kind::Servers(m) => {
                let m = exact_f64(*m);
                let pairs = || x.iter().zip(&resource.demands).map(|(x, d)| x * d);
                let busy: f64 = pairs().sum::<f64>() - x[class] * demand / n;
                let load = (busy / m).clamp(0.0, 1.0);
                let waiting = (seen - busy).max(0.0);
                let all_busy = load.powf((2.0 * (m + 1.0)).sqrt() - 1.0);
                let time = demand * (1.0 + (waiting + all_busy) / m);
                (time, time)
            }
            Kind::LoadDependent(_) => {
                let time = demand * (1.0 + seen) / interpolated(resource, 1.0 + seen);
                (time, time)
            }
            Kind::ForkJoin { branches, needed } => {
                let branch = demand * (1.0 + seen);
                (demand * (order_statistic_factor(*branches, *needed) + seen), branch)
            }
        }
    }
}

impl General<'_> {
    /// Wait per visit in order of arrival.
    fn wait(&self, (k, line): (usize, &InLine), class: usize, number: &[f64], x: &[f64]) -> f64 {
        let resource = &self.network.resources[k];
        let m = resource.capacity();
        let (mut before, mut busy, mut left) = (0.0, 0.0, 0.0);
        for (other, (mean, scv)) in line.services.iter().enumerate() {
            let n = self.populations[class];
            let others = if other == class { 1.0 - 1.0 / n } else { 1.0 };
            let there = number[other] * others;
            let served = (x[other] * resource.demands[other] * others).min(there);
            before += mean * (there - served);
            busy += served;
            left += served * mean * (1.0 + scv) / 2.0;
        }
        if busy <= 0.0 {
            return 0.0;
        }
        let all_busy = (busy / m).min(1.0).powf((2.0 * (m + 1.0)).sqrt() - 1.0);
        (before + all_busy * left / busy) / m
    }
}

/// Rate multiplier between two whole numbers of customers.
pub(super) fn interpolated(resource: &Resource, n: f64) -> f64 {
    let low = kendall_units::whole_u64(n).max(1);
    let part = (n - exact_f64(low)).clamp(0.0, 1.0);
    resource.multiplier(low) * (1.0 - part) + resource.multiplier(low + 1) * part
}
