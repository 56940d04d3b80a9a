//! MAP/PH/m: arrivals that may depend on their past, service in phases, exact.

use std::collections::BTreeMap;

use kendall_units::exact_f64;
use nalgebra::{DMatrix, DVector, RowDVector};

use super::law::{StateLaw, TimeLaw};
use super::quasi_birth_death::{Levels, Steady};
use super::{Moments, StationError, StationSolution, notation, positive, servers_of, stable};
use crate::Distribution;
use crate::distribution::{Process, exits};

/// Most phases of a level.
const MOST_PHASES: usize = 250;
/// Most work for the levels: the sum of the cubes of their phases.
const MOST_WORK: f64 = 3e8;
/// Most multiplications for the distribution of times.
const MOST_LAW_WORK: usize = 300_000_000;
/// Levels of which probabilities are listed.
const MOST_LISTED: usize = 4_000;

/// MAP/PH/m with or without limit: arrivals by any process of phases (also Poisson and renewal ones),
/// service times of phases, first come, first served. `None` when one of them is not made of phases,
/// or there are too many.
///
/// # Errors
/// [`StationError::Unstable`] when an endless queue is offered m erlangs or more.
///
/// # Source
/// Neuts 1981, Latouche and Ramaswami 1999: a quasi birth–death process with the number as its level,
/// and the phase of the arrivals with the number of servers in each phase of service. Times by
/// uniformization of the services that are before a customer.
pub fn map_ph(
    (arrival_rate, arrivals): (f64, &Distribution),
    service: &Distribution,
    servers: u64,
    capacity: Option<u64>,
) -> Result<Option<StationSolution>, StationError> {
    let lambda = positive("arrival rate", arrival_rate)?;
    let mean = positive("mean service time", service.mean())?;
    let servers = servers_of(servers)?;
    if capacity.is_none() {
        stable(lambda * mean, servers, lambda)?;
    }
    let parts = arrivals.process().zip(service.phases());
    let Some((process, (initial, rates))) = parts else { return Ok(None) };
    let Some(queue) = Queue::new(process, (initial, rates), servers, capacity) else {
        return Ok(None);
    };
    let solved = queue.solve().and_then(|steady| queue.describe(lambda, service, &steady));
    Ok(solved.map(|mut solved| {
        solved.notation = notation(arrivals.letter(), service.letter(), servers, capacity);
        if !arrivals.is_exponential() {
            solved.more.push(("interarrival_time_scv", arrivals.scv()));
        }
        solved.more.push(("service_time_scv", service.scv()));
        solved
    }))
}

struct Queue {
    arrivals: Process,
    /// Phase in which a service begins.
    begins: DVector<f64>,
    /// Rates between phases of one service.
    rates: DMatrix<f64>,
    servers: usize,
    capacity: Option<usize>,
    services: Services,
}

/// Rates of the servers, by how many of them are in which phase; lists by the number busy.
struct Services {
    /// A customer more, and where its service begins: from n to n + 1.
    start: Vec<DMatrix<f64>>,
    /// No customer leaves.
    inside: Vec<DMatrix<f64>>,
    /// One leaves, and none takes its place: from n + 1 to n.
    finish: Vec<DMatrix<f64>>,
}

/// Numbers of servers in each phase.
fn occupancies(servers: usize, phases: usize) -> Vec<Vec<usize>> {
    if phases == 1 {
        return vec![vec![servers]];
    }
    (0..=servers)
        .flat_map(|first| {
            occupancies(servers - first, phases - 1).into_iter().map(move |mut rest| {
                rest.insert(0, first);
                rest
            })
        })
        .collect()
}

/// How many there are, up to a limit.
fn count(servers: usize, phases: usize) -> f64 {
    (1..phases).map(|i| exact_f64(servers + i) / exact_f64(i)).product()
}

impl Services {
    fn new(begins: &DVector<f64>, rates: &DMatrix<f64>, servers: usize) -> Self {
        let phases = begins.len();
        let all: Vec<Vec<Vec<usize>>> = (0..=servers).map(|n| occupancies(n, phases)).collect();
        let index: Vec<BTreeMap<&[usize], usize>> = all
            .iter()
            .map(|list| list.iter().enumerate().map(|(i, k)| (k.as_slice(), i)).collect())
            .collect();
        let ends = exits(rates);
        let mut services = Self { start: Vec::new(), inside: Vec::new(), finish: Vec::new() };
        for n in 0..=servers {
            let states = &all[n];
            let mut inside = DMatrix::zeros(states.len(), states.len());
            let mut finish =
                DMatrix::zeros(states.len(), n.checked_sub(1).map_or(0, |n| all[n].len()));
            for (at, state) in states.iter().enumerate() {
                for from in (0..phases).filter(|phase| state[*phase] > 0) {
                    let busy = exact_f64(state[from]);
                    let mut next = state.clone();
                    next[from] -= 1;
                    inside[(at, at)] += busy * rates[(from, from)];
                    finish[(at, index[n - 1][next.as_slice()])] += busy * ends[from];
                    for to in (0..phases).filter(|to| *to != from && rates[(from, *to)] > 0.0) {
                        next[to] += 1;
                        inside[(at, index[n][next.as_slice()])] += busy * rates[(from, to)];
                        next[to] -= 1;
                    }
                }
            }
            services.inside.push(inside);
            if n > 0 {
                services.finish.push(finish);
            }
            if n < servers {
                let mut start = DMatrix::zeros(states.len(), all[n + 1].len());
                for (at, state) in states.iter().enumerate() {
                    let mut next = state.clone();
                    for phase in (0..phases).filter(|phase| begins[*phase] > 0.0) {
                        next[phase] += 1;
                        start[(at, index[n + 1][next.as_slice()])] += begins[phase];
                        next[phase] -= 1;
                    }
                }
                services.start.push(start);
            }
        }
        services
    }

    /// One leaves and another takes its place.
    fn replace(&self) -> DMatrix<f64> {
        &self.finish[self.finish.len() - 1] * &self.start[self.start.len() - 1]
    }
}

impl Queue {
    fn new(
        arrivals: Process,
        (begins, rates): (DVector<f64>, DMatrix<f64>),
        servers: u64,
        capacity: Option<u64>,
    ) -> Option<Self> {
        let servers = usize::try_from(servers).ok().filter(|m| *m <= 500)?;
        let capacity = match capacity {
            None => None,
            Some(capacity) => Some(usize::try_from(capacity).ok().filter(|k| *k <= 10_000)?),
        };
        let (a, s) = (exact_f64(arrivals.hidden.nrows()), begins.len());
        let work = |n: usize| (a * count(n, s)).powi(3);
        let levels: f64 = (0..servers).map(work).sum();
        let queue = exact_f64(capacity.map_or(1, |k| k.saturating_sub(servers)));
        let small = a * count(servers, s) <= exact_f64(MOST_PHASES);
        if !small || levels + work(servers) * queue > MOST_WORK {
            return None;
        }
        let services = Services::new(&begins, &rates, servers);
        Some(Self { arrivals, begins, rates, servers, capacity, services })
    }

    fn solve(&self) -> Option<Steady> {
        let Process { hidden, marked } = &self.arrivals;
        let phases = DMatrix::identity(hidden.nrows(), hidden.nrows());
        let Services { start, inside, finish } = &self.services;
        let same = DMatrix::identity(inside[self.servers].nrows(), inside[self.servers].nrows());
        let mut up: Vec<DMatrix<f64>> = start.iter().map(|s| marked.kronecker(s)).collect();
        up.push(marked.kronecker(&same));
        let within = |s: &DMatrix<f64>| {
            let still = DMatrix::identity(s.nrows(), s.nrows());
            hidden.kronecker(&still) + phases.kronecker(s)
        };
        let local: Vec<DMatrix<f64>> = inside.iter().map(within).collect();
        let mut down: Vec<DMatrix<f64>> = finish.iter().map(|f| phases.kronecker(f)).collect();
        down.push(phases.kronecker(&self.services.replace()));
        let full = self.capacity.map(|last| {
            // A lost arrival changes the phase of the arrivals, too.
            (last, local[self.servers].clone() + &up[self.servers])
        });
        let levels = Levels { up, local, down };
        match full {
            None => levels.endless(),
            Some((last, within)) => levels.up_to(last, within),
        }
    }

    /// All metrics; `None` when a number left the range of `f64`.
    fn describe(
        &self,
        lambda: f64,
        service: &Distribution,
        steady: &Steady,
    ) -> Option<StationSolution> {
        let m = self.servers;
        let mean = service.mean();
        let last = steady.levels.len() - 1;
        let tail = steady.tail()?;
        let before = |f: &dyn Fn(f64) -> f64| -> f64 {
            let levels = steady.levels[..last].iter().enumerate();
            levels.map(|(n, level)| f(exact_f64(n)) * level.sum()).sum()
        };
        // Σ (n − c)·p and Σ (n − c)²·p of the last level and beyond.
        let moments = |from: usize| {
            let past = exact_f64(last - from.min(last));
            let over = |n: f64| (n - exact_f64(from)).max(0.0);
            let first = before(&over) + past * tail[0] + tail[1];
            let second = before(&|n| over(n).powi(2))
                + past * past * tail[0]
                + 2.0 * past * tail[1]
                + tail[2];
            Moments::new(first, (second - first * first).max(0.0))
        };
        let (number, number_waiting) = (moments(0), moments(m));
        let found = |level: &RowDVector<f64>, n: usize| self.arriving(level, n) / lambda;
        let at_once: f64 = (0..m).map(|n| found(&steady.levels[n], n)).sum();
        let lost = match self.capacity {
            Some(_) => found(&steady.levels[last], m),
            None => 0.0,
        };
        let accepted = 1.0 - lost;
        let throughput = lambda * accepted;
        let busy = throughput * mean;
        let laws = if self.capacity.is_none() { self.laws(lambda, steady) } else { None };
        let wait = number_waiting.mean / throughput;
        let spread = laws.as_ref().map(|laws| (laws.second - wait * wait).max(0.0));
        let solution = StationSolution {
            method: "matrix-analytic (Neuts 1981)",
            throughput,
            utilization: busy / exact_f64(m),
            p0: Some(steady.levels[0].sum()),
            ln_p0: Some(steady.levels[0].sum().ln()),
            p_queueing: Some((1.0 - at_once / accepted).clamp(0.0, 1.0)),
            loss_probability: lost,
            number,
            number_waiting,
            response_time: Moments {
                mean: wait + mean,
                variance: spread.map(|wait| wait + service.variance()),
            },
            waiting_time: Moments { mean: wait, variance: spread },
            states: Some(states(steady)),
            response_law: laws.as_ref().map(|laws| laws.response.clone()),
            waiting_law: laws.map(|laws| laws.waiting),
            ..StationSolution::lossless(lambda, lambda * mean, 1)
        };
        let numbers = [number.mean, number_waiting.mean, wait, throughput, lost];
        numbers.iter().all(|n| n.is_finite() && *n >= -1e-12).then_some(solution)
    }

    /// Rate of arrivals that find this level.
    fn arriving(&self, level: &RowDVector<f64>, n: usize) -> f64 {
        let inside = self.services.inside[n.min(self.servers)].nrows();
        let rates = self.arrivals.marked.column_sum();
        level.iter().enumerate().map(|(i, p)| p * rates[i / inside]).sum()
    }

    /// Distributions of wait and response: the services before a customer go on in steps at the
    /// times of a Poisson process, and of the phases only those of the services matter.
    fn laws(&self, lambda: f64, steady: &Steady) -> Option<Laws> {
        let inside = &self.services.inside[self.servers];
        let states = inside.nrows();
        let rate = inside.diagonal().iter().fold(0.0_f64, |most, r| most.max(-r)) * 1.0001;
        let moves = DMatrix::identity(states, states) + inside / rate;
        let leaves = self.services.replace() / rate;
        let done = leaves.column_sum();
        let own = DMatrix::identity(self.rates.nrows(), self.rates.nrows()) + &self.rates / rate;
        let ratio = steady.ratio.as_ref()?;
        let last = steady.levels.last()?;
        let all = steady.last_row()?;
        let marks = DMatrix::from_column_slice(
            self.arrivals.marked.nrows(),
            1,
            self.arrivals.marked.column_sum().as_slice(),
        );
        let mut waiting = marks.kronecker(&DMatrix::identity(states, states)) / lambda;
        let size = ratio.nrows();
        let steps = (MOST_LAW_WORK / (size * size * states + size * states * states)).min(100_000);
        let first = all.clone() * &waiting;
        let at_once = (1.0 - first.sum()).max(0.0);
        let mut served = self.begins.transpose() * at_once;
        let (mut waits, mut responses) = (Tails::default(), Tails::default());
        for _ in 0..steps {
            let wait = (&all * &waiting).sum();
            waits.push(wait);
            responses.push(wait + served.sum());
            if waits.settled() && responses.settled() {
                let second = waits.second_moment(rate);
                let waiting = waits.law(rate);
                return Some(Laws { second, waiting, response: responses.law(rate) });
            }
            let begun = (last * &waiting * &done).sum();
            served = served * &own + self.begins.transpose() * begun;
            waiting = &waiting * &moves + ratio * &waiting * &leaves;
        }
        None
    }
}

struct Laws {
    waiting: TimeLaw,
    response: TimeLaw,
    /// Second moment of the wait.
    second: f64,
}

/// P(more than i steps), until they fall by one ratio.
#[derive(Debug, Default)]
struct Tails {
    list: Vec<f64>,
    /// For how many steps the ratio has not changed.
    steady: u32,
    ratio: f64,
}

impl Tails {
    fn push(&mut self, tail: f64) {
        let last = self.list.last().copied().unwrap_or(0.0);
        let ratio = if last > 0.0 { tail / last } else { 0.0 };
        self.steady = if (ratio - self.ratio).abs() <= 1e-13 { self.steady + 1 } else { 0 };
        self.ratio = ratio;
        self.list.push(tail);
    }

    fn settled(&self) -> bool {
        self.list.len() > 2 && (self.steady >= 20 || self.list.last().is_some_and(|t| *t < 1e-18))
    }

    /// E\[T²\] = Σ 2(i + 1)·P(more than i steps)/rate².
    fn second_moment(&self, rate: f64) -> f64 {
        let listed = self.list.iter().enumerate();
        let sum: f64 = listed.map(|(i, tail)| 2.0 * exact_f64(i + 1) * tail).sum();
        let (last, r) = (self.list.last().copied().unwrap_or(0.0), self.decay());
        let n = exact_f64(self.list.len());
        let beyond = 2.0 * last * (n * r / (1.0 - r) + r / (1.0 - r).powi(2));
        (sum + beyond) / (rate * rate)
    }

    fn decay(&self) -> f64 {
        if self.steady >= 20 { self.ratio.clamp(0.0, 1.0 - 1e-15) } else { 0.0 }
    }

    fn law(self, rate: f64) -> TimeLaw {
        let ratio = self.decay();
        TimeLaw::Stages { rate, tails: self.list, ratio }
    }
}

/// Probabilities of the number, until they fall by one ratio.
fn states(steady: &Steady) -> StateLaw {
    let mut list: Vec<f64> = steady.levels.iter().map(|level| level.sum()).collect();
    let (Some(ratio), Some(last)) = (&steady.ratio, steady.levels.last()) else {
        return StateLaw::new(list, 0.0);
    };
    let mut level = last.clone();
    let mut fall = 0.0;
    while list.len() < MOST_LISTED {
        level = &level * ratio;
        let (sum, before) = (level.sum(), list.last().copied().unwrap_or(0.0));
        list.push(sum);
        let now = if before > 0.0 { sum / before } else { 0.0 };
        if (now - fall).abs() <= 1e-14 || sum < 1e-290 {
            fall = now;
            break;
        }
        fall = now;
    }
    StateLaw::new(list, fall.clamp(0.0, 1.0 - 1e-15))
}
