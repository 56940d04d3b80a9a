//! Classes of different priority at one station.

use kendall_units::exact_f64;
use nalgebra::{DMatrix, DVector};

use super::quasi_birth_death::{Levels, Move};
use super::{StationError, erlang_b, erlang_c, positive, servers_of, stable};
use crate::Distribution;

/// A class of customers at one station.
#[derive(Debug, Clone, PartialEq)]
pub struct PriorityClass {
    /// 1 goes before 2; equal ones are served in order of arrival.
    pub priority: u32,
    /// λ in 1/s.
    pub arrival_rate: f64,
    /// S.
    pub service: Distribution,
}

/// Whether an arrival interrupts the customer in service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduling {
    /// Without preemption ("head of the line").
    NonPreemptive,
    /// Preemptive; interrupted service resumes.
    PreemptiveResume,
}

/// What one class sees. Means; times in s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PriorityResult {
    /// Share of the servers that the class keeps busy.
    pub utilization: f64,
    /// w: all time at the station that is not service.
    pub waiting_time: f64,
    /// r.
    pub response_time: f64,
    /// n.
    pub number: f64,
    /// n_q.
    pub number_waiting: f64,
}

/// M/G/1 with priorities.
///
/// # Errors
/// [`StationError::Unstable`] when the classes together offer 1 erlang or more.
///
/// # Source
/// Cobham 1954; [HB13 ch. 31–32], [Bolch06 §6.4]: with R₀ = Σλᵢ·E\[Sᵢ²\]/2 and σₖ the load of
/// classes of priority 1 to k, waits are R₀/((1−σₖ₋₁)(1−σₖ)), and pre-emption counts priorities 1 to k only in
/// R₀ and stretches service by 1/(1−σₖ₋₁).
pub fn mg1_priority(
    classes: &[PriorityClass],
    scheduling: Scheduling,
) -> Result<Vec<PriorityResult>, StationError> {
    let mut total = 0.0;
    let mut rate = 0.0;
    for class in classes {
        not_negative("arrival rate", class.arrival_rate)?;
        not_negative("mean service time", class.service.mean())?;
        total += class.arrival_rate * class.service.mean();
        rate += class.arrival_rate;
    }
    stable(total, 1, rate)?;
    let load = |class: &PriorityClass| class.arrival_rate * class.service.mean();
    let residual = |class: &PriorityClass| {
        load(class) * class.service.mean() * (1.0 + class.service.scv()) / 2.0
    };
    let all: f64 = classes.iter().map(residual).sum();
    let result = |class: &PriorityClass| {
        let mean = class.service.mean();
        let before = classes.iter().filter(|other| other.priority < class.priority);
        let above: f64 = before.map(load).sum();
        let counted = || classes.iter().filter(|other| other.priority <= class.priority);
        let upto: f64 = counted().map(load).sum();
        let (waiting_time, response_time) = match scheduling {
            Scheduling::NonPreemptive => {
                let wait = all / ((1.0 - above) * (1.0 - upto));
                (wait, wait + mean)
            }
            Scheduling::PreemptiveResume => {
                let residual: f64 = counted().map(residual).sum();
                let before = residual / ((1.0 - above) * (1.0 - upto));
                // Stretched by 1/(1 − σ), less the service itself: σ/(1 − σ), which does not cancel.
                let interrupted = mean * above / (1.0 - above);
                (before + interrupted, before + mean / (1.0 - above))
            }
        };
        PriorityResult {
            utilization: load(class),
            waiting_time,
            response_time,
            number: class.arrival_rate * response_time,
            number_waiting: class.arrival_rate * waiting_time,
        }
    };
    Ok(classes.iter().map(result).collect())
}

/// M/M/m with priorities and one service rate for all classes, given by their arrival rates.
///
/// # Errors
/// [`StationError::Unstable`] when the classes together offer m erlangs or more.
///
/// # Source
/// Without pre-emption [Bolch06 §6.4.2]: C/(m·µ)/((1−σₖ₋₁)(1−σₖ)). With pre-emption classes
/// 1 to k see an M/M/m of their own, whatever comes below them.
pub fn mmm_priority(
    arrival_rates: &[f64],
    service_rate: f64,
    servers: u64,
    scheduling: Scheduling,
) -> Result<Vec<PriorityResult>, StationError> {
    let mu = positive("service rate", service_rate)?;
    let servers = servers_of(servers)?;
    let m = exact_f64(servers);
    let mut total = 0.0;
    for rate in arrival_rates {
        total += not_negative("arrival rate", *rate)?;
    }
    stable(total / mu, servers, total)?;
    let all = erlang_c(total / mu, servers)? / (m * mu);
    let mut rate_above = 0.0;
    let mut results = Vec::with_capacity(arrival_rates.len());
    for rate in arrival_rates {
        let upto = rate_above + rate;
        let waiting_time = match scheduling {
            Scheduling::NonPreemptive => {
                all / ((1.0 - rate_above / (m * mu)) * (1.0 - upto / (m * mu)))
            }
            Scheduling::PreemptiveResume => {
                waiting_between(rate_above / mu, upto / mu, servers)? / mu
            }
        };
        let response_time = waiting_time + 1.0 / mu;
        results.push(PriorityResult {
            utilization: rate / (m * mu),
            waiting_time,
            response_time,
            number: rate * response_time,
            number_waiting: rate * waiting_time,
        });
        rate_above = upto;
    }
    Ok(results)
}

/// A rate that may be 0: the first customer of such a class has a wait.
fn not_negative(name: &'static str, value: f64) -> Result<f64, StationError> {
    if value.abs() <= 0.0 { Ok(0.0) } else { positive(name, value) }
}

/// Share of the loads around them below which the difference of two queues is taken from the slope of
/// their length: rounding leaves 2·10⁻¹⁰ of the difference there, the slope is right to 10⁻¹³.
const TOO_CLOSE: f64 = 1e-6;

/// Most phases of a level of the chain behind [`mmm_priority_two`].
const MOST_PHASES: usize = 250;

/// M/M/m with two priority classes that each have an arrival and a service rate, the first served
/// first. `None` where the chain is too large, or a class has no arrivals.
///
/// # Errors
/// [`StationError::Unstable`] when the classes together offer m erlangs or more.
///
/// # Source
/// A quasi birth–death process (Neuts 1981) with the number of the second class as its level, cut
/// off where more of the first class are less likely than 1e-13.
pub fn mmm_priority_two(
    [high, low]: [(f64, f64); 2],
    servers: u64,
    scheduling: Scheduling,
) -> Result<Option<Vec<PriorityResult>>, StationError> {
    let mut loads = [0.0; 2];
    for (load, (lambda, mu)) in loads.iter_mut().zip([high, low]) {
        *load = not_negative("arrival rate", lambda)? / positive("service rate", mu)?;
    }
    let servers = servers_of(servers)?;
    let m = exact_f64(servers);
    stable(loads[0] + loads[1], servers, high.0 + low.0)?;
    let most = m + (-30.0 / (loads[0] / m).ln()).ceil();
    // Phases of a level, and the work for all levels.
    let served = if scheduling == Scheduling::PreemptiveResume { 1.0 } else { m + 1.0 };
    let phases = (most + 1.0) * served;
    let large = phases > exact_f64(MOST_PHASES) || m * phases.powi(3) > 3e8;
    if high.0 <= 0.0 || low.0 <= 0.0 || large {
        return Ok(None);
    }
    let (m, most) = (kendall_units::whole_u64(m), kendall_units::whole_u64(most));
    let (m, most) = (usize::try_from(m).unwrap_or(1), usize::try_from(most).unwrap_or(1));
    let order = match scheduling {
        Scheduling::NonPreemptive => Order::InService,
        Scheduling::PreemptiveResume => Order::Interrupted,
    };
    Ok(TwoClasses { rates: [high, low], servers: m, most, order }.results())
}

/// M/M/1 shared by two classes in proportion to their weights while both are there, each in its order of
/// arrival (generalized processor sharing). `None` where the chain is too large (both use more than 90 % of
/// their shares), or a class has no arrivals.
///
/// # Errors
/// [`StationError::Unstable`] when the classes together offer 1 erlang or more.
///
/// # Source
/// Two coupled queues (Fayolle, Iasnogorodski 1979), as a quasi birth–death process (Neuts 1981) with the
/// number of one class as its level, cut off where more of the other are less likely than about 1e-11:
/// their number falls as the work, e^(−θt) with Σ λ/(µ − θ) = 1, or as in a queue with their share alone.
pub fn mm1_shared(
    rates: [(f64, f64); 2],
    weights: [f64; 2],
) -> Result<Option<Vec<PriorityResult>>, StationError> {
    let mut load = 0.0;
    for (lambda, mu) in rates {
        load += not_negative("arrival rate", lambda)? / positive("service rate", mu)?;
    }
    stable(load, 1, rates[0].0 + rates[1].0)?;
    let (mut low, mut high) = (0.0, rates[0].1.min(rates[1].1));
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        let reached = rates.iter().map(|(lambda, mu)| lambda / (mu - middle)).sum::<f64>() >= 1.0;
        if reached { high = middle } else { low = middle }
    }
    let total = weights[0] + weights[1];
    let ratios = [0, 1].map(|class: usize| {
        let (lambda, mu) = rates[class];
        (1.0 - low / mu).min(lambda / mu / (weights[class] / total))
    });
    let cut = usize::from(ratios[1] < ratios[0]);
    let most = (-25.0 / ratios[cut].ln()).ceil();
    if rates.iter().any(|(lambda, _)| *lambda <= 0.0) || !(1.0..250.0).contains(&most) {
        return Ok(None);
    }
    let most = usize::try_from(kendall_units::whole_u64(most)).unwrap_or(1);
    let of = |list: [f64; 2]| [list[cut], list[1 - cut]];
    let rates = [rates[cut], rates[1 - cut]];
    let mut results =
        TwoClasses { rates, servers: 1, most, order: Order::Shared(of(weights)) }.results();
    if let Some(results) = results.as_mut().filter(|_| cut == 1) {
        results.reverse();
    }
    Ok(results)
}

/// Who of two classes is served.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    /// The first class goes first; who is in service stays.
    InService,
    /// The first class interrupts the second.
    Interrupted,
    /// Both, with these weights.
    Shared([f64; 2]),
}

/// The chain of two classes: how many of the first are there, and how many of the second are in
/// service (0 where the first interrupts, and this follows).
struct TwoClasses {
    rates: [(f64, f64); 2],
    servers: usize,
    most: usize,
    order: Order,
}

impl TwoClasses {
    fn results(&self) -> Option<Vec<PriorityResult>> {
        let m = self.servers;
        let levels = Levels::build(m, |n| self.states(n), |n, state| self.moves(n, state));
        let steady = levels.endless()?;
        let tail = steady.tail()?;
        let beyond = steady.last_row()?;
        let number = |level: &nalgebra::RowDVector<f64>, n: usize| -> f64 {
            let states = self.states(n);
            states.iter().zip(level.iter()).map(|((first, _), p)| exact_f64(*first) * p).sum()
        };
        let below = steady.levels[..m].iter().enumerate();
        let first =
            below.clone().map(|(n, level)| number(level, n)).sum::<f64>() + number(&beyond, m);
        let second = below.map(|(n, level)| exact_f64(n) * level.sum()).sum::<f64>()
            + exact_f64(m) * tail[0]
            + tail[1];
        let result = |number: f64, (lambda, mu): (f64, f64)| {
            let response_time = number / lambda;
            let waiting_time = (response_time - 1.0 / mu).max(0.0);
            PriorityResult {
                utilization: lambda / mu / exact_f64(m),
                waiting_time,
                response_time,
                number,
                number_waiting: lambda * waiting_time,
            }
        };
        Some(vec![result(first, self.rates[0]), result(second, self.rates[1])])
    }

    fn states(&self, level: usize) -> Vec<(usize, usize)> {
        let first = 0..=self.most;
        if self.order != Order::InService {
            return first.map(|i| (i, 0)).collect();
        }
        // One of the second class waits only while all servers are busy.
        let m = self.servers;
        first
            .flat_map(|i| (0..=level.min(m)).map(move |l| (i, l)))
            .filter(|(i, l)| *l == level || i + l >= m)
            .collect()
    }

    fn moves(&self, level: usize, &(i, l): &(usize, usize)) -> Vec<Move<(usize, usize)>> {
        let m = self.servers;
        let [(lambda_1, mu_1), (lambda_2, mu_2)] = self.rates;
        let rate = |mu: f64, busy: usize| mu * exact_f64(busy);
        let mut moves = Vec::new();
        if i < self.most {
            moves.push((0, (i + 1, l), lambda_1));
        }
        let served = match self.order {
            Order::InService => None,
            Order::Interrupted => {
                let first = i.min(m);
                Some((exact_f64(first), exact_f64(level.min(m - first))))
            }
            Order::Shared([one, other]) => {
                let there = |n: usize, weight: f64| if n > 0 { weight } else { 0.0 };
                let (one, other) = (there(i, one), there(level, other));
                let all = (one + other).max(f64::MIN_POSITIVE);
                Some((one / all, other / all))
            }
        };
        if let Some((first, second)) = served {
            moves.push((1, (i, 0), lambda_2));
            if i > 0 {
                moves.push((0, (i - 1, 0), mu_1 * first));
            }
            if second > 0.0 {
                moves.push((-1, (i, 0), mu_2 * second));
            }
            return moves;
        }
        let first = i.min(m - l);
        let idle = usize::from(first + l < m);
        moves.push((1, (i, l + idle), lambda_2));
        // Who takes a free server: the first class if one waits, else the second.
        let second_next = usize::from(i == first && level > l);
        if first > 0 {
            moves.push((0, (i - 1, l + second_next), rate(mu_1, first)));
        }
        if l > 0 {
            moves.push((-1, (i, l - 1 + second_next), rate(mu_2, l)));
        }
        moves
    }
}

/// M/M/1 shared by classes in proportion to their weights (discriminatory processor sharing).
///
/// # Errors
/// [`StationError::Unstable`] when the classes together offer 1 erlang or more.
///
/// # Source
/// Fayolle, Mitrani, Iasnogorodski 1980: with weights g the mean responses solve
/// Tₖ = 1/µₖ + Σⱼ λⱼ·gⱼ·(Tₖ + Tⱼ)/(µⱼ·gⱼ + µₖ·gₖ).
pub fn mm1_discriminatory(
    classes: &[PriorityClass],
    weights: &[f64],
) -> Result<Vec<PriorityResult>, StationError> {
    let mut load = 0.0;
    let mut rate = 0.0;
    for (class, weight) in classes.iter().zip(weights) {
        rate += not_negative("arrival rate", class.arrival_rate)?;
        load += class.arrival_rate * positive("mean service time", class.service.mean())?;
        positive("weight", *weight)?;
    }
    stable(load, 1, rate)?;
    let speed: Vec<f64> = classes.iter().zip(weights).map(|(c, g)| g / c.service.mean()).collect();
    let count = classes.len();
    let mut matrix = DMatrix::identity(count, count);
    for k in 0..count {
        for (j, other) in classes.iter().enumerate() {
            let share = other.arrival_rate * weights[j] / (speed[j] + speed[k]);
            matrix[(k, k)] -= share;
            matrix[(k, j)] -= share;
        }
    }
    let alone = DVector::from_iterator(count, classes.iter().map(|c| c.service.mean()));
    let solved = matrix.lu().solve(&alone);
    let unstable = || StationError::Number { name: "load", value: load, expected: "below 1" };
    let responses = solved.filter(|t| t.iter().all(|t| *t > 0.0)).ok_or_else(unstable)?;
    Ok(classes
        .iter()
        .zip(&responses)
        .map(|(class, response)| {
            let waiting_time = (response - class.service.mean()).max(0.0);
            PriorityResult {
                utilization: class.arrival_rate * class.service.mean(),
                waiting_time,
                response_time: *response,
                number: class.arrival_rate * response,
                number_waiting: class.arrival_rate * waiting_time,
            }
        })
        .collect())
}

/// Customers that wait in M/M/m at the second of two loads less those at the first, for one more erlang:
/// what each of the class between them waits, in service times. The numbers in service cancel.
fn waiting_between(above: f64, upto: f64, servers: u64) -> Result<f64, StationError> {
    let m = exact_f64(servers);
    let own = upto - above;
    if own <= 0.0 || own <= TOO_CLOSE * (m - upto).min(above / m) {
        return slope(f64::midpoint(above, upto), servers);
    }
    let waiting = |load: f64| -> Result<f64, StationError> {
        Ok(if load <= 0.0 { 0.0 } else { erlang_c(load, servers)? * load / (m - load) })
    };
    Ok((waiting(upto)? - waiting(above)?) / own)
}

/// Derivative of the mean queue of M/M/m, C·a/(m − a), by the load a: from dB/da = B·(m/a − 1 + B).
fn slope(a: f64, servers: u64) -> Result<f64, StationError> {
    if a <= 0.0 {
        return Ok(0.0);
    }
    let (m, b) = (exact_f64(servers), erlang_b(a, servers)?);
    let c = erlang_c(a, servers)?;
    let of_b = b * (m / a - 1.0 + b);
    let (idle, of_idle) = (m - a * (1.0 - b), a * of_b - (1.0 - b));
    let of_c = m * (of_b * idle - b * of_idle) / (idle * idle);
    Ok(of_c * a / (m - a) + c * m / ((m - a) * (m - a)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The waiting time of a class is continuous as its rate goes to 0: the difference of two queues
    /// over its rate lost all digits, and at 0 was not a number.
    #[test]
    fn a_class_of_nearly_nobody_waits_as_one_of_few() {
        let waits = |rate: f64, servers: u64| {
            let rates = [0.4 * exact_f64(servers), rate, 0.3 * exact_f64(servers)];
            let found = mmm_priority(&rates, 1.0, servers, Scheduling::PreemptiveResume);
            found.unwrap()[1].waiting_time
        };
        for servers in [1, 3, 40] {
            // A rate of 1e-4 moves the wait by half of that times the slope of the logarithm of dL/da, which is
            // at most 5.2 at these loads (one server); at 1e-12 rounding left less than four digits.
            let few = waits(1e-4, servers);
            for rate in [0.0, 1e-15, 1e-12, 1e-9, 1e-7] {
                let found = waits(rate, servers);
                assert!((found / few - 1.0).abs() < 2.7e-4, "{servers}, {rate}: {found} {few}");
            }
        }
        // One server, closed: R₀/((1 − σ)²) with R₀ = σ, the load above it, as the rate goes to 0,
        // and pre-emption stretches the service: (1/(1 − σ) − 1) more.
        let sigma = 0.4_f64;
        let exact = sigma / (1.0 - sigma).powi(2) + 1.0 / (1.0 - sigma) - 1.0;
        assert!((waits(1e-13, 1) / exact - 1.0).abs() < 1e-9, "{} {exact}", waits(1e-13, 1));
        // Light load: the wait was lost beside the service time.
        let light = mmm_priority(&[0.1, 0.1], 1.0, 30, Scheduling::PreemptiveResume).unwrap();
        let plain = erlang_c(0.1, 30).unwrap() / 29.9;
        assert!((light[0].waiting_time / plain - 1.0).abs() < 1e-12, "{light:?}");
    }
}
