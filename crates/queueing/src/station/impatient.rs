//! Customers that do not join a long queue (balking) or leave it unserved (reneging).

use kendall_units::exact_f64;

use super::birth_death::{BirthDeath, number_moments, solved};
use super::law::StateLaw;
use super::{Moments, StationError, StationSolution, positive, servers_of};
use crate::Distribution;
use crate::model::Balking;

/// M/M/m+M (Erlang A): customers that wait leave unserved after an exponential patience with mean
/// 1/`abandonment_rate`. There is a steady state at any load.
///
/// Waiting and response times are means over all customers that are let in, those that leave
/// included.
///
/// # Errors
/// [`StationError::Number`] for rates that are not positive.
///
/// # Source
/// Palm 1957; Garnett, Mandelbaum, Reiman 2002 \[GMR02\]: births λ, deaths min(n, m)·µ +
/// max(n − m, 0)·θ.
pub fn mmm_impatient(
    arrival_rate: f64,
    service_rate: f64,
    servers: u64,
    abandonment_rate: f64,
    capacity: Option<u64>,
) -> Result<StationSolution, StationError> {
    let rates = Rates { lambda: arrival_rate, mu: service_rate, servers, theta: abandonment_rate };
    positive("abandonment rate", abandonment_rate)?;
    let mut solution = rates.solve(&Balking::Never, capacity)?;
    solution.notation = match capacity {
        None => format!("M/M/{servers}+M"),
        Some(capacity) => format!("M/M/{servers}/{capacity}+M"),
    };
    solution.method = "Erlang A [GMR02]";
    Ok(solution)
}

/// M/M/m with balking: who finds n customers joins with the probability that `balking` gives.
///
/// # Errors
/// [`StationError::TooLarge`] when the probabilities do not fall enough for a steady state.
///
/// # Source
/// Birth–death process [Jain91 §31.1]; 1/(n+1) is the discouraged arrivals of [Kleinrock75 §3.3].
pub fn mmm_balking(
    arrival_rate: f64,
    service_rate: f64,
    servers: u64,
    balking: &Balking,
    capacity: Option<u64>,
) -> Result<StationSolution, StationError> {
    let rates = Rates { lambda: arrival_rate, mu: service_rate, servers, theta: 0.0 };
    let mut solution = rates.solve(balking, capacity)?;
    solution.notation = match capacity {
        None => format!("M/M/{servers} with balking"),
        Some(capacity) => format!("M/M/{servers}/{capacity} with balking"),
    };
    solution.method = "birth–death process [Jain91 §31.1]";
    Ok(solution)
}

/// M/M/m+G: customers that wait leave unserved after a patience of any distribution. There is a
/// steady state at any load.
///
/// Waiting and response times are means over all customers, those that leave included.
///
/// # Errors
/// [`StationError::Number`] for rates that are not positive, and where of the patience no more than
/// moments are known.
///
/// # Source
/// Baccelli, Hebuterne 1981; Zeltyn, Mandelbaum 2005: with H(x) = E\[min(patience, x)\] the time
/// that a customer of endless patience would wait has the density e^(λ·H(x) − m·µ·x) up to a factor.
pub fn mmm_impatient_general(
    arrival_rate: f64,
    service_rate: f64,
    servers: u64,
    patience: &Distribution,
) -> Result<StationSolution, StationError> {
    let lambda = positive("arrival rate", arrival_rate)?;
    let mu = positive("service rate", service_rate)?;
    let servers = servers_of(servers)?;
    let mean = positive("mean patience", patience.mean())?;
    let (m, a) = (exact_f64(servers), lambda / mu);
    if patience.below(0, mean).is_none() {
        return Err(StationError::Number {
            name: "patience scv",
            value: patience.scv(),
            expected: "that of a named distribution: who leaves depends on more than two moments",
        });
    }
    let ([density, leaving, waiting], top) = virtual_wait(lambda, m * mu, patience);
    // P(wait) = r/(1 + r), r = λ·∫·B(m − 1).
    let at_once = if servers == 1 { 1.0 } else { super::erlang_b(a, servers - 1)? };
    let odds = ((lambda * density).ln() + top + at_once.ln()).min(700.0).exp();
    let queueing = odds / (1.0 + odds);
    let (wait, leave) = (queueing * waiting / density, queueing * leaving / density);
    let busy = a * (1.0 - leave);
    let (number_waiting, accepted) = (lambda * wait, lambda);
    Ok(StationSolution {
        notation: format!("M/M/{servers}+{}", patience.letter()),
        method: "M/M/m+G [ZM05]",
        throughput: lambda * (1.0 - leave),
        utilization: busy / m,
        p_queueing: Some(queueing),
        loss_probability: leave,
        number: Moments::mean_only(number_waiting + busy),
        number_waiting: Moments::mean_only(number_waiting),
        response_time: Moments::mean_only((number_waiting + busy) / lambda),
        waiting_time: Moments::mean_only(wait),
        more: vec![
            ("accepted_rate_per_s", accepted),
            ("abandonment_probability", leave),
            ("abandonment_rate_per_s", lambda * leave),
        ],
        ..StationSolution::lossless(lambda, a, servers)
    })
}

/// ∫ of e^(λ·H(x) − speed·x − top), of that times P(patience ≤ x), and of that times H(x); and `top`, the
/// greatest value of the exponent.
fn virtual_wait(lambda: f64, speed: f64, patience: &Distribution) -> ([f64; 3], f64) {
    let at = |x: f64| {
        let gone = patience.below(0, x).unwrap_or(1.0).clamp(0.0, 1.0);
        let waited = patience.below(1, x).unwrap_or(0.0) + x * (1.0 - gone);
        (lambda * waited - speed * x, gone, waited)
    };
    let (from, to, top) = extent(|x| at(x).0, 1.0 / speed);
    let mut ends: Vec<f64> = (0..=64).map(|i| from + (to - from) * f64::from(i) / 64.0).collect();
    let atoms = patience.atoms().unwrap_or_default();
    ends.extend(atoms.iter().map(|(x, _)| *x).filter(|x| *x > from && *x < to).take(1_000));
    ends.sort_by(f64::total_cmp);
    let mut sums = [0.0; 3];
    for piece in ends.windows(2) {
        let weighted = |x: f64| {
            // An atom counts from where it is: the piece before it ends just below.
            let (exponent, gone, waited) = at(x.min(piece[1].next_down()).max(piece[0]));
            let weight = (exponent - top).exp();
            [weight, gone * weight, waited * weight]
        };
        let part = integral(&weighted, piece[0], piece[1]);
        sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
    (sums, top)
}

/// Where a concave exponent that is 0 at 0 is within 60 of its greatest value, and that value.
fn extent(exponent: impl Fn(f64) -> f64, scale: f64) -> (f64, f64, f64) {
    let mut end = scale;
    let mut top = 0.0_f64;
    for _ in 0..800 {
        let value = exponent(end);
        top = top.max(value);
        if value < top - 60.0 {
            break;
        }
        end *= 1.25;
    }
    let (mut low, mut high) = (0.0, end);
    for _ in 0..200 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if exponent(a) < exponent(b) { low = a } else { high = b }
    }
    let peak = f64::midpoint(low, high);
    let top = top.max(exponent(peak));
    let edge = |inside: f64, outside: f64| {
        let (mut inside, mut outside) = (inside, outside);
        for _ in 0..60 {
            let middle = f64::midpoint(inside, outside);
            if exponent(middle) < top - 60.0 { outside = middle } else { inside = middle }
        }
        outside
    };
    let from = if top < 60.0 { 0.0 } else { edge(peak, 0.0) };
    (from, edge(peak, end), top)
}

/// Integrals of three functions from one evaluation, by Simpson's rule on halves until they agree.
fn integral(f: &dyn Fn(f64) -> [f64; 3], from: f64, to: f64) -> [f64; 3] {
    let simpson = |a: [f64; 3], middle: [f64; 3], b: [f64; 3], width: f64| {
        std::array::from_fn(|i| (a[i] + 4.0 * middle[i] + b[i]) * width / 6.0)
    };
    let middle = f64::midpoint(from, to);
    let ends = [f(from), f(middle), f(to)];
    let whole: [f64; 3] = simpson(ends[0], ends[1], ends[2], to - from);
    let mut open = vec![(from, to, ends, whole, 0_u32)];
    let mut sum = [0.0; 3];
    while let Some((from, to, [a, c, b], whole, depth)) = open.pop() {
        let middle = f64::midpoint(from, to);
        let (left, right) = (f(f64::midpoint(from, middle)), f(f64::midpoint(middle, to)));
        let first: [f64; 3] = simpson(a, left, c, middle - from);
        let second: [f64; 3] = simpson(c, right, b, to - middle);
        let fits = (0..3).all(|i| {
            let both = first[i] + second[i];
            (both - whole[i]).abs() <= 1e-11 * both.abs() + 1e-15 * (to - from)
        });
        if fits || depth >= 24 {
            for i in 0..3 {
                let both = first[i] + second[i];
                sum[i] += both + (both - whole[i]) / 15.0;
            }
        } else {
            open.push((from, middle, [a, left, c], first, depth + 1));
            open.push((middle, to, [c, right, b], second, depth + 1));
        }
    }
    sum
}

struct Rates {
    lambda: f64,
    mu: f64,
    servers: u64,
    theta: f64,
}

/// Probability that who finds n customers joins.
pub(crate) fn joins(balking: &Balking, n: u64) -> f64 {
    match balking {
        Balking::Never => 1.0,
        Balking::Reciprocal => 1.0 / (exact_f64(n) + 1.0),
        Balking::Table(table) => {
            let index = usize::try_from(n).unwrap_or(usize::MAX).min(table.len().max(1) - 1);
            table.get(index).copied().unwrap_or(1.0)
        }
    }
}

impl Rates {
    fn solve(
        &self,
        balking: &Balking,
        capacity: Option<u64>,
    ) -> Result<StationSolution, StationError> {
        let lambda = positive("arrival rate", self.lambda)?;
        let mu = positive("service rate", self.mu)?;
        let servers = servers_of(self.servers)?;
        let m = exact_f64(servers);
        self.check_tail(balking, capacity)?;
        let births = |n: u64| lambda * joins(balking, n);
        let deaths = |n: u64| {
            let n = exact_f64(n);
            mu * n.min(m) + self.theta * (n - m).max(0.0)
        };
        let process = BirthDeath { births: &births, deaths: &deaths, last: capacity };
        let (states, ln_p0) = solved(&process)?;
        let (number, number_waiting) = number_moments(&states, servers);
        let accepted: f64 = states
            .iter()
            .zip(0_u64..)
            .map(|(p, n)| if capacity == Some(n) { 0.0 } else { p * births(n) })
            .sum();
        // Who does not come in, as a sum: λ less the accepted is a difference of nearly equal numbers.
        let refused: f64 = states
            .iter()
            .zip(0_u64..)
            .map(|(p, n)| if capacity == Some(n) { *p } else { p * (1.0 - joins(balking, n)) })
            .sum();
        let abandoning = self.theta * number_waiting.mean;
        let busy: f64 =
            states.iter().zip(0_u64..).map(|(p, n)| p * exact_f64(n.min(servers))).sum();
        let throughput = mu * busy;
        let waiting = number_waiting.mean / accepted;
        let response = number.mean / accepted;
        let queueing: f64 = states
            .iter()
            .zip(0_u64..)
            .filter(|(_, n)| *n >= servers && capacity != Some(*n))
            .map(|(p, n)| p * births(n))
            // The sum of nothing is −0.
            .fold(0.0, |sum, p| sum + p)
            / accepted;
        Ok(StationSolution {
            throughput,
            utilization: busy / m,
            p0: Some(states[0]),
            ln_p0: Some(ln_p0),
            p_queueing: Some(queueing),
            loss_probability: refused + abandoning / lambda,
            number,
            number_waiting,
            response_time: Moments::mean_only(response),
            waiting_time: Moments::mean_only(waiting),
            states: Some(StateLaw::new(states, 0.0)),
            more: vec![
                ("accepted_rate_per_s", accepted),
                ("balking_probability", refused),
                ("abandonment_probability", abandoning / accepted),
                ("abandonment_rate_per_s", abandoning),
            ],
            ..StationSolution::lossless(lambda, lambda / mu, servers)
        })
    }

    /// Without limit and without impatience, the last joining probability must be stable.
    fn check_tail(&self, balking: &Balking, capacity: Option<u64>) -> Result<(), StationError> {
        if capacity.is_some() || self.theta > 0.0 {
            return Ok(());
        }
        let last = match balking {
            Balking::Never => 1.0,
            Balking::Reciprocal => 0.0,
            Balking::Table(table) => table.last().copied().unwrap_or(1.0),
        };
        super::stable(self.lambda * last / self.mu, self.servers, self.lambda * last)
    }
}
