//! One server that goes from queue to queue, and customers who come again when it is busy.

use super::{StationError, positive, stable};
use crate::Distribution;

/// How long the server stays at a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visit {
    /// Until it is empty.
    Exhaustive,
    /// For those who were there when it came.
    Gated,
    /// For one customer at most.
    Limited,
}

/// One server at several equal queues.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Polling {
    /// Busy share, without switching.
    pub utilization: f64,
    /// Mean wait in s.
    pub waiting_time: f64,
    /// Mean wait and service in s.
    pub response_time: f64,
    /// Mean time from one visit of a queue to the next in s.
    pub cycle_time: f64,
}

/// One server that visits `queues` equal queues in turn, with Poisson arrivals of `arrival_rate` at all
/// of them together, and takes `switching` from each to the next. Means, exact.
///
/// # Errors
/// [`StationError::Unstable`] when λ·E\[S\] ≥ 1, with one customer a visit λ·(E\[S\] + E\[switching\]) ≥ 1.
///
/// # Source
/// Takagi 1986, symmetric systems; without switching the conservation law of Kleinrock.
pub fn polling(
    arrival_rate: f64,
    service: &Distribution,
    queues: u32,
    switching: &Distribution,
    visit: Visit,
) -> Result<Polling, StationError> {
    let lambda = positive("arrival rate", arrival_rate)?;
    let mean = positive("mean service time", service.mean())?;
    let count = positive("queues", f64::from(queues))?;
    let switch = switching.mean();
    if !(0.0..=1e90).contains(&switch) {
        let expected = "0 or above";
        return Err(StationError::Number { name: "mean switching time", value: switch, expected });
    }
    let load = lambda * mean;
    let taken = if visit == Visit::Limited { load + lambda * switch } else { load };
    stable(taken, 1, lambda)?;
    let second = lambda * (mean * mean + service.variance());
    let spread = switching.variance();
    let (more, spread_share) = match visit {
        Visit::Exhaustive => (switch * (count - load), 0.0),
        Visit::Gated => (switch * (count + load), 0.0),
        Visit::Limited => (switch * (count + load), lambda * spread),
    };
    let residual = if switch > 0.0 { spread / (2.0 * switch) } else { 0.0 };
    let wait = residual + (second + more + spread_share) / (2.0 * (1.0 - taken));
    Ok(Polling {
        utilization: load,
        waiting_time: wait,
        response_time: wait + mean,
        cycle_time: count * switch / (1.0 - load),
    })
}

/// One of the queues that a server goes round.
#[derive(Debug, Clone, PartialEq)]
pub struct Polled {
    /// Poisson arrivals here.
    pub arrival_rate: f64,
    /// Service times here.
    pub service: Distribution,
    /// Times from here to the next queue.
    pub switching: Distribution,
}

/// Most visits that are followed after a disturbance, over all disturbances.
const MOST_VISITS: usize = 400_000_000;

/// One server that visits `queues` in turn. Mean waits by queue: exact, with one customer a visit an approximation.
///
/// # Errors
/// [`StationError::Unstable`] when Σλ·E\[S\] ≥ 1, with one customer a visit where a queue grows for ever;
/// [`StationError::Number`] for more than 1,000 queues, or too many so near saturation.
///
/// # Source
/// Boxma and Groenendijk 1987, Boxma and Meister 1987 for one customer a visit. Else Ferguson and
/// Aminetzah 1985: a visit takes a share of the times before it, and varies around it.
pub fn polling_unequal(queues: &[Polled], visit: Visit) -> Result<Vec<Polling>, StationError> {
    let count = queues.len();
    if !(1..=1_000).contains(&count) {
        let value = kendall_units::exact_f64(count);
        return Err(StationError::Number { name: "queues", value, expected: "1 to 1000 of them" });
    }
    let (mut lambda, mut load, mut switch) = (0.0, 0.0, 0.0);
    for queue in queues {
        let mean = positive("mean service time", queue.service.mean())?;
        lambda += positive("arrival rate", queue.arrival_rate)?;
        load += queue.arrival_rate * mean;
        let time = queue.switching.mean();
        if !(0.0..=1e90).contains(&time) {
            let expected = "0 or above";
            return Err(StationError::Number {
                name: "mean switching time",
                value: time,
                expected,
            });
        }
        switch += time;
    }
    stable(load, 1, lambda)?;
    let cycle = switch / (1.0 - load);
    let waits = match visit {
        Visit::Limited => limited(queues, load, switch)?,
        Visit::Exhaustive | Visit::Gated => by_cycles(queues, load, cycle, visit == Visit::Gated)?,
    };
    let of = |(queue, wait): (&Polled, f64)| Polling {
        utilization: queue.arrival_rate * queue.service.mean(),
        waiting_time: wait,
        response_time: wait + queue.service.mean(),
        cycle_time: cycle,
    };
    Ok(queues.iter().zip(waits).map(of).collect())
}

fn load_of(queue: &Polled) -> f64 {
    queue.arrival_rate * queue.service.mean()
}

/// λ·E\[S²\].
fn second(queue: &Polled) -> f64 {
    let mean = queue.service.mean();
    queue.arrival_rate * (mean * mean + queue.service.variance())
}

/// The pseudo-conservation law, shared out by Boxma and Meister.
fn limited(queues: &[Polled], load: f64, switch: f64) -> Result<Vec<f64>, StationError> {
    for queue in queues {
        stable(load + queue.arrival_rate * switch, 1, queue.arrival_rate)?;
    }
    let squares: f64 = queues.iter().map(|queue| load_of(queue).powi(2)).sum();
    let spread: f64 = queues.iter().map(|queue| queue.switching.variance()).sum();
    let residual = if switch > 0.0 { (spread / switch + switch) / 2.0 } else { 0.0 };
    let work: f64 = queues.iter().map(second).sum();
    let law = load * work / (2.0 * (1.0 - load))
        + load * residual
        + switch * (load * load + squares) / (2.0 * (1.0 - load));
    let idle = 1.0 - load;
    let share = |queue: &Polled| {
        (idle + load_of(queue)) / (idle - queue.arrival_rate * switch) * law * idle
            / (idle * load + squares)
    };
    Ok(queues.iter().map(share).collect())
}

/// Waits from mean and variance of the time from the end of a visit (gated: from its begin) to the next. Visit and
/// switch of each queue are disturbed once, and followed until nothing of it is left; all variances are per mean cycle.
fn by_cycles(
    queues: &[Polled],
    load: f64,
    cycle: f64,
    gated: bool,
) -> Result<Vec<f64>, StationError> {
    let count = queues.len();
    // How long a visit is for each second before it.
    let growth: Vec<f64> =
        queues.iter().map(load_of).map(|own| if gated { own } else { own / (1.0 - own) }).collect();
    let mut variances = vec![0.0; count];
    let mut visits = 0;
    for (first, queue) in queues.iter().enumerate() {
        let own = if gated { 1.0 } else { (1.0 - load_of(queue)).powi(2) };
        let before = &queues[(first + count - 1) % count].switching;
        let switches = if cycle > 0.0 { before.variance() / cycle } else { 0.0 };
        for (size, switch) in [(second(queue) / own, 0.0), (switches, 1.0)] {
            if size <= 0.0 {
                continue;
            }
            visits += follow(&growth, (first, switch), gated, |at, gap| {
                variances[at] += size * gap * gap;
            });
            if visits > MOST_VISITS {
                let expected = "lower, or of fewer queues";
                return Err(StationError::Number {
                    name: "load of so many queues",
                    value: load,
                    expected,
                });
            }
        }
    }
    let wait = |(queue, variance): (&Polled, f64)| {
        let own = load_of(queue);
        if gated {
            (1.0 + own) * (variance + cycle) / 2.0
        } else {
            (second(queue) + variance) / (2.0 * (1.0 - own)) + (1.0 - own) * cycle / 2.0
        }
    };
    Ok(queues.iter().zip(variances).map(wait).collect())
}

/// By how much each time before a visit differs when the switch to the first queue takes `switch` longer, or else
/// the visit there 1. Returns the number of visits.
fn follow(
    growth: &[f64],
    (first, switch): (usize, f64),
    gated: bool,
    mut note: impl FnMut(usize, f64),
) -> usize {
    let count = growth.len();
    // Of each queue: its last visit, and that with the switch before.
    let (mut visits, mut whole) = (vec![0.0; count], vec![0.0; count]);
    visits[first] = growth[first] * switch + 1.0 - switch;
    whole[first] = visits[first] + switch;
    note(first, switch);
    let mut sum = switch * switch;
    let mut done = 0;
    loop {
        let mut total: f64 = whole.iter().sum();
        let mut round = 0.0;
        for step in 1..=count {
            let at = (first + step) % count;
            let gap = total - whole[at] + if gated { visits[at] } else { 0.0 };
            note(at, gap);
            round += gap * gap;
            visits[at] = growth[at] * gap;
            total += visits[at] - whole[at];
            whole[at] = visits[at];
        }
        done += count;
        sum += round;
        // What is to come falls from round to round by no less than what came did in the mean.
        if round <= 1e-22 * sum || done > MOST_VISITS {
            return done;
        }
    }
}

/// One server without a queue: who finds it busy tries again after an exponential time with mean
/// `retry_time`, as often as it takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retrial {
    /// Busy share.
    pub utilization: f64,
    /// Mean time until service begins in s.
    pub waiting_time: f64,
    /// Mean time until service ends in s.
    pub response_time: f64,
    /// Mean number of customers who will try again.
    pub number_waiting: f64,
    /// Mean number of attempts of a customer.
    pub attempts: f64,
}

/// M/G/1 with retrials. Means, exact.
///
/// # Errors
/// [`StationError::Unstable`] when λ·E\[S\] ≥ 1.
///
/// # Source
/// Falin 1990; Falin, Templeton 1997: the wait of M/G/1 and ρ/(1 − ρ) retry times more.
pub fn mg1_retrial(
    arrival_rate: f64,
    service: &Distribution,
    retry_time: f64,
) -> Result<Retrial, StationError> {
    let lambda = positive("arrival rate", arrival_rate)?;
    let mean = positive("mean service time", service.mean())?;
    let retry = positive("mean retry time", retry_time)?;
    let rho = lambda * mean;
    stable(rho, 1, lambda)?;
    let second = mean * mean + service.variance();
    let wait = lambda * second / (2.0 * (1.0 - rho)) + retry * rho / (1.0 - rho);
    Ok(Retrial {
        utilization: rho,
        waiting_time: wait,
        response_time: wait + mean,
        number_waiting: lambda * wait,
        // Each of those in orbit tries again at the rate 1/retry time.
        attempts: 1.0 + wait / retry,
    })
}
