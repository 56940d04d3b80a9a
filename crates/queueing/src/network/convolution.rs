//! Convolution in the log domain: exact for load-dependent and multi-server resources, where the
//! recursion of mean value analysis subtracts and goes negative.

use kendall_units::exact_f64;

use super::{Accuracy, Kind, Load, MOST_STEPS, Network, NetworkError, NetworkSolution, Resource};
use crate::numeric::{ln_factorial, log_sum_exp};

const SOLVER: &str = "convolution";

/// ln G(0..=N) of a closed network of one class, with its think time as a delay; X(n) =
/// G(n−1)/G(n) for every population up to N.
///
/// # Errors
/// [`NetworkError::Unsupported`] for several or open classes, [`NetworkError::TooLarge`].
///
/// # Source
/// Buzen 1973; load-dependent [Bolch06 §8.1], factors D^n/Πα(j).
pub fn normalization_constants(network: &Network) -> Result<Vec<f64>, NetworkError> {
    network.check()?;
    network.refuse_fork_join(SOLVER)?;
    let single = Single::new(network)?;
    let mut g = single
        .load_dependent()
        .into_iter()
        .fold(single.delays(), |g, i| convolve(&g, &single.factors(&network.resources[i])));
    single.add_queues(&mut g, &single.queues());
    Ok(g)
}

/// Exact solution of a closed network by convolution: single servers, delays, several servers and
/// any load dependence; one class (with marginal probabilities) or several.
///
/// One class takes O(K·N) steps and O(N²) for each load-dependent resource. Several classes take
/// O(L²) for each load-dependent resource, with L = Π(N+1).
///
/// # Errors
/// [`NetworkError::TooLarge`] beyond 2e9 steps; [`NetworkError::Unsupported`] for open classes.
///
/// # Source
/// [Bolch06 §8.1, §8.3]; in logarithms, because G leaves the range of numbers, and every term is
/// positive, so that nothing cancels.
pub fn convolution(network: &Network) -> Result<NetworkSolution, NetworkError> {
    network.check()?;
    if network.has_open() {
        return Err(NetworkError::Unsupported {
            solver: SOLVER,
            what: "open classes",
            instead: "`mixed`",
        });
    }
    network.refuse_fork_join(SOLVER)?;
    let solution = if network.classes.len() == 1 {
        Single::new(network)?.solve()?
    } else {
        Several::new(network)?.solve()
    };
    Ok(solution.verified(network)?.occupied(network))
}

/// ln(Σ_j exp(a_j + b_{n−j})) for every n.
fn convolve(a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut reversed: Vec<f64> = b.to_vec();
    reversed.reverse();
    let size = a.len();
    (0..size)
        .map(|n| {
            let right = &reversed[size - 1 - n..];
            let left = &a[..=n];
            let mut top = f64::NEG_INFINITY;
            for (x, y) in left.iter().zip(right) {
                top = top.max(x + y);
            }
            if top == f64::NEG_INFINITY {
                return top;
            }
            let mut sum = 0.0;
            for (x, y) in left.iter().zip(right) {
                let below = x + y - top;
                // e^−45 is below the last bit of the sum, whatever its number of terms here.
                if below > -45.0 {
                    sum += below.exp();
                }
            }
            top + sum.ln()
        })
        .collect()
}

fn log_add(a: f64, b: f64) -> f64 {
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    if low == f64::NEG_INFINITY { high } else { high + (low - high).exp().ln_1p() }
}

struct Single<'a> {
    network: &'a Network,
    population: usize,
    think_time: f64,
}

impl<'a> Single<'a> {
    fn new(network: &'a Network) -> Result<Self, NetworkError> {
        let [Load::Closed { population, think_time }] = network.classes[..] else {
            return Err(NetworkError::Unsupported {
                solver: SOLVER,
                what: "constants of several or open classes",
                instead: "`convolution`",
            });
        };
        let n = exact_f64(population);
        let dependent = network.resources.iter().filter(|r| r.is_load_dependent()).count();
        // Adding a single server takes a logarithm and an exponential for each population, about
        // fifteen steps of the others, and leaving out each of them in turn log₂ K times as many.
        let stations = exact_f64(network.resources.len());
        let steps =
            15.0 * n * stations * (2.0 + stations.log2()) + 1.5 * n * n * exact_f64(dependent);
        if steps > MOST_STEPS || n > 2e7 {
            return Err(NetworkError::TooLarge { solver: SOLVER, steps, limit: MOST_STEPS });
        }
        Ok(Self { network, population: usize::try_from(population).unwrap_or(0), think_time })
    }

    fn load_dependent(&self) -> Vec<usize> {
        let resources = self.network.resources.iter().enumerate();
        resources
            .filter(|(_, r)| r.is_load_dependent() && r.demands[0] > 0.0)
            .map(|(i, _)| i)
            .collect()
    }

    /// Think time and all delays.
    fn delays(&self) -> Vec<f64> {
        let delays = self.network.resources.iter().filter(|r| r.is_delay());
        let pause = self.think_time + delays.map(|r| r.demands[0]).sum::<f64>();
        let mut g = Vec::with_capacity(self.population + 1);
        let mut log = 0.0;
        g.push(log);
        for n in 1..=self.population {
            log += (pause / exact_f64(n)).ln();
            g.push(log);
        }
        g
    }

    /// Single servers that are visited.
    fn queues(&self) -> Vec<usize> {
        let resources = self.network.resources.iter().enumerate();
        resources
            .filter(|(_, r)| matches!(r.kind, Kind::Queue) && r.demands[0] > 0.0)
            .map(|(i, _)| i)
            .collect()
    }

    fn add_queues(&self, g: &mut [f64], queues: &[usize]) {
        for index in queues {
            let demand = self.network.resources[*index].demands[0].ln();
            for n in 1..g.len() {
                g[n] = log_add(g[n], g[n - 1] + demand);
            }
        }
    }

    /// For each of `queues`, G of everything but it, from `g`, which has none of them: half of them
    /// are added for the other half, and so on, O(N·K·log K) in all.
    fn without_each(&self, g: &[f64], queues: &[usize], each: &mut impl FnMut(usize, &[f64])) {
        if let [only] = queues {
            each(*only, g);
            return;
        }
        let (left, right) = queues.split_at(queues.len() / 2);
        for (kept, added) in [(left, right), (right, left)] {
            if !kept.is_empty() {
                let mut more = g.to_vec();
                self.add_queues(&mut more, added);
                self.without_each(&more, kept, each);
            }
        }
    }

    /// ln(D^n/Π_{j≤n} α(j)).
    fn factors(&self, resource: &Resource) -> Vec<f64> {
        let demand = resource.demands[0].ln();
        let mut list = Vec::with_capacity(self.population + 1);
        let mut log = 0.0;
        list.push(log);
        for n in 1..=self.population {
            log += demand - resource.multiplier(u64::try_from(n).unwrap_or(u64::MAX)).ln();
            list.push(log);
        }
        list
    }

    fn solve(&self) -> Result<NetworkSolution, NetworkError> {
        let n = self.population;
        let dependent = self.load_dependent();
        let factors: Vec<Vec<f64>> =
            dependent.iter().map(|i| self.factors(&self.network.resources[*i])).collect();
        // before[i]: the delays and the load-dependent ones up to the i-th.
        let mut before = vec![self.delays()];
        for list in &factors {
            before.push(convolve(&before[before.len() - 1], list));
        }
        let queues = self.queues();
        let slow = &before[before.len() - 1];
        let mut g = slow.clone();
        self.add_queues(&mut g, &queues);
        let resources = &self.network.resources;
        let throughput = if n == 0 { 0.0 } else { (g[n - 1] - g[n]).exp() };
        let mut numbers = vec![0.0; resources.len()];
        let mut marginals = vec![None; resources.len()];
        let mut after: Option<Vec<f64>> = None;
        for (position, index) in dependent.iter().enumerate().rev() {
            let mut without = match &after {
                None => before[position].clone(),
                Some(after) => convolve(&before[position], after),
            };
            self.add_queues(&mut without, &queues);
            let list: Vec<f64> =
                (0..=n).map(|j| (factors[position][j] + without[n - j] - g[n]).exp()).collect();
            numbers[*index] = list.iter().enumerate().map(|(j, p)| exact_f64(j) * p).sum();
            marginals[*index] = Some(list);
            after = Some(match after {
                None => factors[position].clone(),
                Some(after) => convolve(&after, &factors[position]),
            });
        }
        for (index, resource) in resources.iter().enumerate() {
            if resource.is_delay() {
                numbers[index] = throughput * resource.demands[0];
            }
        }
        // P(j) = D^j·G₋(N−j)/G(N), where G₋ is without this server: far out, the difference of
        // P(at least j) and P(at least j + 1) would be their rounding.
        self.without_each(slow, &queues, &mut |index, without| {
            let demand = resources[index].demands[0].ln();
            numbers[index] = mean_at_fixed_rate(&g, demand);
            let p = |j: usize| (exact_f64(j) * demand + without[n - j] - g[n]).exp();
            marginals[index] = Some((0..=n).map(p).collect());
        });
        let residence = numbers
            .iter()
            .map(|q| vec![if throughput > 0.0 { q / throughput } else { 0.0 }])
            .collect();
        let mut solution = NetworkSolution::from_residence(
            self.network,
            SOLVER,
            Accuracy::Exact,
            vec![throughput],
            residence,
        );
        solution.marginals = marginals;
        solution.ln_g = Some(g[n]);
        Ok(solution)
    }
}

/// Mean number at a single server: Σ P(at least j), with P(at least j) = D^j·G(N−j)/G(N).
fn mean_at_fixed_rate(g: &[f64], ln_demand: f64) -> f64 {
    let n = g.len() - 1;
    (1..=n).rev().map(|j| (exact_f64(j) * ln_demand + g[n - j] - g[n]).exp()).sum()
}

/// What is known of the resources while they are worked through.
struct Found<'a> {
    number: &'a mut [Vec<f64>],
    /// Probabilities of the total number of customers.
    marginals: &'a mut [Option<Vec<f64>>],
}

/// Several classes: ln G over the lattice of populations.
struct Several<'a> {
    network: &'a Network,
    populations: Vec<usize>,
    strides: Vec<usize>,
    size: usize,
}

impl<'a> Several<'a> {
    fn new(network: &'a Network) -> Result<Self, NetworkError> {
        let cells: f64 = network.populations().iter().map(|n| exact_f64(*n) + 1.0).product();
        let dependent = network.resources.iter().filter(|r| r.is_load_dependent()).count();
        let steps = cells * exact_f64(network.resources.len() * network.classes.len()) * 20.0
            + 6.0 * cells * cells * exact_f64(dependent);
        if steps > MOST_STEPS || cells > 3e7 {
            return Err(NetworkError::TooLarge { solver: SOLVER, steps, limit: MOST_STEPS });
        }
        let populations: Vec<usize> = network
            .populations()
            .iter()
            .map(|n| usize::try_from(*n).unwrap_or(usize::MAX))
            .collect();
        let mut strides = Vec::new();
        let mut stride = 1;
        for n in &populations {
            strides.push(stride);
            stride *= n + 1;
        }
        Ok(Self { network, populations, strides, size: stride })
    }

    fn digits(&self, cell: usize) -> Vec<usize> {
        let zip = self.strides.iter().zip(&self.populations);
        zip.map(|(stride, n)| cell / stride % (n + 1)).collect()
    }

    /// Think times and delays: Π Zᶜⁿ/n!.
    fn base(&self) -> Vec<f64> {
        let pauses: Vec<f64> = (0..self.populations.len())
            .map(|class| {
                let delays = self.network.resources.iter().filter(|r| r.is_delay());
                self.network.classes[class].think_time()
                    + delays.map(|r| r.demands[class]).sum::<f64>()
            })
            .collect();
        (0..self.size).map(|cell| self.product(&self.digits(cell), &pauses)).collect()
    }

    /// Σ n·ln D − ln n! over the classes.
    fn product(&self, digits: &[usize], demands: &[f64]) -> f64 {
        let mut log = 0.0;
        for (n, demand) in digits.iter().zip(demands) {
            if *n > 0 {
                let count = u64::try_from(*n).unwrap_or(u64::MAX);
                log += exact_f64(*n) * demand.ln() - ln_factorial(count);
            }
        }
        log
    }

    /// ln F of a load-dependent resource: |n|!/Πα(j)·Π D^n/n!.
    fn factors(&self, resource: &Resource) -> Vec<f64> {
        let most: usize = self.populations.iter().sum();
        let mut speeds = vec![0.0];
        for n in 1..=most {
            let count = u64::try_from(n).unwrap_or(u64::MAX);
            speeds.push(speeds[n - 1] + (exact_f64(n) / resource.multiplier(count)).ln());
        }
        (0..self.size)
            .map(|cell| {
                let digits = self.digits(cell);
                let total: usize = digits.iter().sum();
                speeds[total] + self.product(&digits, &resource.demands)
            })
            .collect()
    }

    /// Adds a single server: g(n) += Σ D_c·g(n − e_c), in place.
    fn add_queue(&self, g: &mut [f64], demands: &[f64]) {
        let logs: Vec<f64> = demands.iter().map(|d| d.ln()).collect();
        for cell in 1..self.size {
            let digits = self.digits(cell);
            for (class, n) in digits.iter().enumerate() {
                if *n > 0 && logs[class] > f64::NEG_INFINITY {
                    g[cell] = log_add(g[cell], g[cell - self.strides[class]] + logs[class]);
                }
            }
        }
    }

    /// Lattice convolution.
    fn convolve(&self, a: &[f64], b: &[f64]) -> Vec<f64> {
        let all: Vec<Vec<usize>> = (0..self.size).map(|cell| self.digits(cell)).collect();
        (0..self.size)
            .map(|cell| {
                let terms = (0..=cell).filter(|part| {
                    all[*part].iter().zip(&all[cell]).all(|(have, most)| have <= most)
                });
                log_sum_exp(terms.map(|part| a[part] + b[cell - part]))
            })
            .collect()
    }

    fn solve(&self) -> NetworkSolution {
        let resources = &self.network.resources;
        let classes = self.populations.len();
        let end = self.size - 1;
        let mut base = self.base();
        for resource in resources.iter().filter(|r| matches!(r.kind, Kind::Queue)) {
            self.add_queue(&mut base, &resource.demands);
        }
        let dependent: Vec<usize> =
            (0..resources.len()).filter(|i| resources[*i].is_load_dependent()).collect();
        let factors: Vec<Vec<f64>> =
            dependent.iter().map(|i| self.factors(&resources[*i])).collect();
        let mut before = vec![base];
        for list in &factors {
            before.push(self.convolve(&before[before.len() - 1], list));
        }
        let g = before[before.len() - 1].clone();
        let throughput: Vec<f64> = (0..classes)
            .map(|class| match self.populations[class] {
                0 => 0.0,
                _ => (g[end - self.strides[class]] - g[end]).exp(),
            })
            .collect();
        let mut number = vec![vec![0.0; classes]; resources.len()];
        let mut marginals = vec![None; resources.len()];
        let mut found = Found { number: &mut number, marginals: &mut marginals };
        self.load_dependent_numbers(&dependent, &factors, &before, &mut found);
        for (row, resource) in number.iter_mut().zip(resources) {
            match resource.kind {
                Kind::Delay => {
                    for (class, q) in row.iter_mut().enumerate() {
                        *q = throughput[class] * resource.demands[class];
                    }
                }
                Kind::Queue => {
                    // Q = D·G₊(N − e)/G(N), where G₊ has this server twice.
                    let mut twice = g.clone();
                    self.add_queue(&mut twice, &resource.demands);
                    for (class, q) in row.iter_mut().enumerate() {
                        if self.populations[class] > 0 {
                            let at = twice[end - self.strides[class]] - g[end];
                            *q = resource.demands[class] * at.exp();
                        }
                    }
                }
                _ => {}
            }
        }
        let residence = number
            .iter()
            .map(|row| {
                let pairs = row.iter().zip(&throughput);
                pairs.map(|(q, x)| if *x > 0.0 { q / x } else { 0.0 }).collect()
            })
            .collect();
        let mut solution = NetworkSolution::from_residence(
            self.network,
            SOLVER,
            Accuracy::Exact,
            throughput,
            residence,
        );
        solution.marginals = marginals;
        solution.ln_g = Some(g[end]);
        solution
    }

    /// Numbers from the marginal probabilities F(n)·G₋(N − n)/G(N).
    fn load_dependent_numbers(
        &self,
        dependent: &[usize],
        factors: &[Vec<f64>],
        before: &[Vec<f64>],
        found: &mut Found<'_>,
    ) {
        let end = self.size - 1;
        let g = &before[before.len() - 1];
        let most: usize = self.populations.iter().sum();
        let mut after: Option<Vec<f64>> = None;
        for (position, index) in dependent.iter().enumerate().rev() {
            let without = match &after {
                None => before[position].clone(),
                Some(after) => self.convolve(&before[position], after),
            };
            let mut marginal = vec![0.0; most + 1];
            for cell in 0..self.size {
                let p = (factors[position][cell] + without[end - cell] - g[end]).exp();
                let digits = self.digits(cell);
                marginal[digits.iter().sum::<usize>()] += p;
                for (q, n) in found.number[*index].iter_mut().zip(digits) {
                    *q += p * exact_f64(n);
                }
            }
            found.marginals[*index] = Some(marginal);
            after = Some(match after {
                None => factors[position].clone(),
                Some(after) => self.convolve(&after, &factors[position]),
            });
        }
    }
}
