//! Exact mean value analysis of closed networks of single servers and delays.

use kendall_units::exact_f64;

use super::{Accuracy, Load, MOST_STEPS, Network, NetworkError, NetworkSolution};

const SOLVER: &str = "exact MVA";
/// Most memory of the lattice of several classes.
const MOST_CELLS: f64 = 1.2e8;

/// Exact mean value analysis: one class or several, single servers and delays.
///
/// One class takes O(N·K) steps. Several take K·C·Π(N+1) steps, and memory for two slabs of that
/// lattice (the class with the most customers is the one that is stepped through).
/// All terms are positive, so that nothing cancels at any population.
///
/// # Errors
/// [`NetworkError::Unsupported`] for load-dependent resources and open classes (see
/// [`super::convolution()`] and [`super::mixed`]), [`NetworkError::TooLarge`] beyond 2e9 steps.
///
/// # Source
/// Reiser and Lavenberg 1980 \[RL80\]; [LZGS84 §6.4.2, §7.3].
///
/// # Example
/// ```
/// use kendall_queueing::network::{Network, mva_exact};
///
/// // Two balanced queues, two customers: X = N/(D·(N+K−1)) = 2/3 [LZGS84 §5.3].
/// let solution = mva_exact(&Network::closed(&[1.0, 1.0], 2, 0.0)).unwrap();
/// assert!((solution.throughput[0] - 2.0 / 3.0).abs() < 1e-15);
/// ```
pub fn mva_exact(network: &Network) -> Result<NetworkSolution, NetworkError> {
    network.check()?;
    if network.has_open() {
        return Err(NetworkError::Unsupported {
            solver: SOLVER,
            what: "open classes",
            instead: "`mixed` or `open`",
        });
    }
    if network.resources.iter().any(super::Resource::is_load_dependent) {
        return Err(NetworkError::Unsupported {
            solver: SOLVER,
            what: "load-dependent resources",
            instead: "`convolution`",
        });
    }
    network.refuse_fork_join(SOLVER)?;
    let solution = if network.classes.len() == 1 { single(network)? } else { lattice(network)? };
    solution.verified(network)
}

/// Queue lengths at N−1 and the throughput at N.
fn recursion(network: &Network, population: u64, think_time: f64) -> (Vec<f64>, f64) {
    let queues: Vec<f64> =
        network.resources.iter().filter(|r| !r.is_delay()).map(|r| r.demands[0]).collect();
    let delay: f64 = network.resources.iter().filter(|r| r.is_delay()).map(|r| r.demands[0]).sum();
    let mut number = vec![0.0; queues.len()];
    let mut before = number.clone();
    let mut residence = number.clone();
    let mut throughput = 0.0;
    for n in 1..=population {
        before.copy_from_slice(&number);
        let mut sum = delay;
        for ((r, d), q) in residence.iter_mut().zip(&queues).zip(&number) {
            *r = d * (1.0 + q);
            sum += *r;
        }
        throughput = exact_f64(n) / (think_time + sum);
        for (q, r) in number.iter_mut().zip(&residence) {
            *q = throughput * r;
        }
    }
    (before, throughput)
}

fn single(network: &Network) -> Result<NetworkSolution, NetworkError> {
    let Load::Closed { population, think_time } = network.classes[0] else {
        return Err(NetworkError::Empty { what: "closed classes" });
    };
    let (before, throughput) = match affordable(steps(network, exact_f64(population))) {
        Ok(()) => recursion(network, population, think_time),
        // Too many customers to step through, unless it saturates long before.
        Err(error) => Saturating::new(network, think_time)
            .and_then(|saturating| saturating.solve(population))
            .ok_or(error)?,
    };
    let mut queue = before.iter();
    let residence = network
        .resources
        .iter()
        .map(|resource| {
            let waiting = if resource.is_delay() { 0.0 } else { *queue.next().unwrap_or(&0.0) };
            vec![resource.demands[0] * (1.0 + waiting)]
        })
        .collect();
    let mut solution = NetworkSolution::from_residence(
        network,
        SOLVER,
        Accuracy::Exact,
        vec![throughput],
        residence,
    );
    if population == 0 {
        solution.system_response = vec![0.0];
    }
    Ok(solution)
}

/// One step for each customer and resource; a customer by itself costs a division and a chain of
/// additions, about eight steps more.
fn steps(network: &Network, customers: f64) -> f64 {
    customers * (exact_f64(network.resources.len()) + 8.0)
}

fn affordable(steps: f64) -> Result<(), NetworkError> {
    if steps > MOST_STEPS {
        return Err(NetworkError::TooLarge { solver: SOLVER, steps, limit: MOST_STEPS });
    }
    Ok(())
}

/// A network with one bottleneck, by what it lacks to saturation: i, the idle share of the
/// bottleneck, and eₖ, how far each other queue is below its limit Lₖ = Dₖ/(D − Dₖ). The recursion
/// of mean value analysis becomes
///
/// i(n) = (Z·i + Σ(D − Dₖ)·eₖ)/(n·D + the same), eₖ(n) = Dₖ/D·(i(n)·(1 + Lₖ) + (1 − i(n))·eₖ),
///
/// in which all terms are positive and fall to 0: from there on nothing changes but the queue at the
/// bottleneck.
struct Saturating {
    /// Index of the bottleneck among the queues.
    bottleneck: usize,
    demand: f64,
    /// Z and the demands at delays.
    pause: f64,
    /// Demands of all queues.
    queues: Vec<f64>,
}

/// Share of its start below which what lacks to saturation is nothing to an `f64`.
const SATURATED: f64 = 1e-17;

impl Saturating {
    fn new(network: &Network, think_time: f64) -> Option<Self> {
        let queues: Vec<f64> =
            network.resources.iter().filter(|r| !r.is_delay()).map(|r| r.demands[0]).collect();
        let bottleneck =
            queues.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(index, _)| index)?;
        let demand = queues[bottleneck];
        let delays = network.resources.iter().filter(|r| r.is_delay());
        let pause = think_time + delays.map(|r| r.demands[0]).sum::<f64>();
        let saturating = Self { bottleneck, demand, pause, queues };
        // About where it saturates, and how many customers more the next busiest queue takes.
        let next = saturating.others().map(|(_, d)| d).fold(0.0, f64::max);
        let total = saturating.pause + saturating.queues.iter().sum::<f64>();
        let customers = total / demand + 40.0 / (demand / next).ln();
        (next < demand && affordable(steps(network, customers)).is_ok()).then_some(saturating)
    }

    fn others(&self) -> impl Iterator<Item = (usize, f64)> {
        let queues = self.queues.iter().copied().enumerate();
        queues.filter(|(index, _)| *index != self.bottleneck)
    }

    /// As [`recursion`]: queue lengths at N−1 and the throughput at N; `None` where it does not
    /// saturate within the steps that are allowed.
    fn solve(&self, population: u64) -> Option<(Vec<f64>, f64)> {
        let limits: Vec<f64> = self.queues.iter().map(|d| d / (self.demand - d)).collect();
        let mut lacking = limits.clone();
        let mut idle = 1.0;
        let most = MOST_STEPS / (exact_f64(self.queues.len()) + 8.0);
        for n in 1..population {
            let n = exact_f64(n);
            if n > most {
                return None;
            }
            let mut lack = self.pause * idle;
            for (k, d) in self.others() {
                lack += (self.demand - d) * lacking[k];
            }
            idle = lack / n.mul_add(self.demand, lack);
            let mut widest = idle;
            for (k, d) in self.others() {
                let e = &mut lacking[k];
                *e = d / self.demand * (idle * (1.0 + limits[k]) + (1.0 - idle) * *e);
                if limits[k] > 0.0 {
                    widest = widest.max(*e / limits[k]);
                }
            }
            if widest < SATURATED {
                let mut numbers = limits;
                numbers[self.bottleneck] = 0.0;
                let elsewhere = self.pause / self.demand + numbers.iter().sum::<f64>();
                numbers[self.bottleneck] = exact_f64(population - 1) - elsewhere;
                return Some((numbers, 1.0 / self.demand));
            }
        }
        None
    }
}

/// The lattice of all populations up to N, stepped through slab by slab.
struct Lattice {
    /// Demands of the inner classes and of the outer one (last), at queues only: `[class][queue]`.
    demands: Vec<Vec<f64>>,
    /// Z plus the demands at delays.
    pauses: Vec<f64>,
    populations: Vec<usize>,
    strides: Vec<usize>,
    queues: usize,
}

fn lattice(network: &Network) -> Result<NetworkSolution, NetworkError> {
    let classes = network.classes.len();
    let populations = network.populations();
    let outer = (0..classes).max_by_key(|class| populations[*class]).unwrap_or(0);
    let mut order: Vec<usize> = (0..classes).filter(|class| *class != outer).collect();
    order.push(outer);
    let queues: Vec<&super::Resource> =
        network.resources.iter().filter(|r| !r.is_delay()).collect();
    let cells: f64 =
        order[..classes - 1].iter().map(|c| exact_f64(populations[*c]) + 1.0).product();
    let width = exact_f64(queues.len().max(1));
    let steps = cells * (exact_f64(populations[outer]) + 1.0) * width * exact_f64(classes);
    if steps > MOST_STEPS || cells * width > MOST_CELLS {
        return Err(NetworkError::TooLarge { solver: SOLVER, steps, limit: MOST_STEPS });
    }
    let size = |class: usize| usize::try_from(populations[class]).unwrap_or(usize::MAX);
    let mut strides = Vec::new();
    let mut stride = 1;
    for class in &order[..classes - 1] {
        strides.push(stride);
        stride *= size(*class) + 1;
    }
    let lattice = Lattice {
        demands: order.iter().map(|c| queues.iter().map(|q| q.demands[*c]).collect()).collect(),
        pauses: order.iter().map(|c| pause(network, *c)).collect(),
        populations: order.iter().map(|c| size(*c)).collect(),
        strides,
        queues: queues.len(),
    };
    let found = lattice.walk(stride);
    let mut throughput = vec![0.0; classes];
    let mut residence = vec![vec![0.0; classes]; network.resources.len()];
    for (position, class) in order.iter().enumerate() {
        let (x, at_queues) = &found[position];
        throughput[*class] = *x;
        let mut queue = at_queues.iter();
        for (row, resource) in residence.iter_mut().zip(&network.resources) {
            row[*class] = if resource.is_delay() {
                resource.demands[*class]
            } else {
                *queue.next().unwrap_or(&0.0)
            };
        }
    }
    Ok(NetworkSolution::from_residence(network, SOLVER, Accuracy::Exact, throughput, residence))
}

fn pause(network: &Network, class: usize) -> f64 {
    let delays = network.resources.iter().filter(|r| r.is_delay());
    network.classes[class].think_time() + delays.map(|r| r.demands[class]).sum::<f64>()
}

impl Lattice {
    /// Throughput, and residence time at every queue, of each class at the full population.
    fn walk(&self, slab: usize) -> Vec<(f64, Vec<f64>)> {
        let width = self.queues;
        let inner = self.strides.len();
        let last = self.populations[inner];
        let mut below = vec![0.0; slab * width];
        let mut here = vec![0.0; slab * width];
        let mut residence = vec![0.0; width];
        let mut found = vec![(0.0, vec![0.0; width]); inner + 1];
        for level in 0..=last {
            let mut digits = vec![0_usize; inner];
            for cell in 0..slab {
                let end = level == last && cell == slab - 1;
                let (done, rest) = here.split_at_mut(cell * width);
                let number = &mut rest[..width];
                number.fill(0.0);
                for class in 0..=inner {
                    let count = if class == inner { level } else { digits[class] };
                    if count == 0 {
                        continue;
                    }
                    let from = if class == inner {
                        &below[cell * width..(cell + 1) * width]
                    } else {
                        let at = (cell - self.strides[class]) * width;
                        &done[at..at + width]
                    };
                    let mut sum = self.pauses[class];
                    for ((r, d), q) in residence.iter_mut().zip(&self.demands[class]).zip(from) {
                        *r = d * (1.0 + q);
                        sum += *r;
                    }
                    let x = exact_f64(count) / sum;
                    for (q, r) in number.iter_mut().zip(&residence) {
                        *q += x * r;
                    }
                    if end {
                        found[class] = (x, residence.clone());
                    }
                }
                step(&mut digits, &self.populations);
            }
            std::mem::swap(&mut below, &mut here);
        }
        found
    }
}

/// The next population vector, least significant class first.
fn step(digits: &mut [usize], populations: &[usize]) {
    for (digit, most) in digits.iter_mut().zip(populations) {
        if *digit < *most {
            *digit += 1;
            return;
        }
        *digit = 0;
    }
}
