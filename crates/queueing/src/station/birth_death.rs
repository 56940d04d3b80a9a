//! Birth–death processes: every Markov station whose arrival and departure rates depend on the
//! number there.

use kendall_units::exact_f64;

use super::law::{StateLaw, TimeLaw};
use super::{BusyPeriod, MOST_STATES, Moments, StationError, StationSolution};

/// Rates of a birth–death process, in 1/s.
#[allow(missing_debug_implementations, reason = "it holds functions")]
pub struct BirthDeath<'a> {
    /// Arrival rate with n customers there.
    pub births: &'a dyn Fn(u64) -> f64,
    /// Departure rate with n ≥ 1 customers there.
    pub deaths: &'a dyn Fn(u64) -> f64,
    /// Largest n; `None`: the process is cut off where its probabilities have died out.
    pub last: Option<u64>,
}

/// Probabilities of all states, by ratios from the most likely state outward.
///
/// # Errors
/// [`StationError::Number`] when a rate is negative or not finite, [`StationError::TooLarge`] when
/// an unlimited process has not died out after 1e7 states.
///
/// # Source
/// Local balance, p(n+1)·µ(n+1) = p(n)·λ(n): [Jain91 §31.1].
pub fn birth_death(process: &BirthDeath<'_>) -> Result<Vec<f64>, StationError> {
    solved(process).map(|solved| solved.0)
}

/// The probabilities, and ln P(0), which a number can hold where P(0) itself is too small.
pub(super) fn solved(process: &BirthDeath<'_>) -> Result<(Vec<f64>, f64), StationError> {
    let mut logs = vec![0.0_f64];
    let mut top = 0.0_f64;
    // What the running sum of logarithms has lost to rounding, after Kahan.
    let mut lost = 0.0_f64;
    let limit = process.last.unwrap_or(MOST_STATES).min(MOST_STATES);
    let mut n = 0_u64;
    loop {
        if n == limit {
            if process.last.is_none() {
                return Err(StationError::TooLarge {
                    name: "states that matter",
                    // 0 to n.
                    value: n + 1,
                    limit: MOST_STATES,
                });
            }
            break;
        }
        let birth = rate("arrival rate", (process.births)(n))?;
        let death = rate("departure rate", (process.deaths)(n + 1))?;
        if birth == 0.0 {
            break;
        }
        if death == 0.0 {
            let expected = "above 0 in every state that can be reached";
            return Err(StationError::Number { name: "departure rate", value: death, expected });
        }
        let last = logs[logs.len() - 1];
        let step = (birth / death).ln() - lost;
        let next = last + step;
        lost = (next - last) - step;
        top = top.max(next);
        logs.push(next);
        n += 1;
        // 1e-304 of the largest, and falling: the rest is no number. What is nothing beside the sum may
        // be all that waits.
        if process.last.is_none() && next < top - 700.0 && birth < 0.98 * death {
            break;
        }
    }
    let mut states: Vec<f64> = logs.iter().map(|log| (log - top).exp()).collect();
    resharpen(&mut states, process);
    let sum = sorted_sum(&states);
    for p in &mut states {
        *p /= sum;
    }
    let ln_p0 = if states[0] > 0.5 {
        (-sorted_sum(&states[1..])).ln_1p()
    } else if states[0] > 1e-290 {
        states[0].ln()
    } else {
        -top - sum.ln()
    };
    Ok((states, ln_p0))
}

/// Replaces exponentials of long sums of logarithms by products of ratios from the mode, which
/// lose fewer figures.
fn resharpen(states: &mut [f64], process: &BirthDeath<'_>) {
    let mode =
        states.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(index, _)| index);
    states[mode] = 1.0;
    let at = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    for n in mode + 1..states.len() {
        states[n] = states[n - 1] * (process.births)(at(n - 1)) / (process.deaths)(at(n));
    }
    for n in (0..mode).rev() {
        states[n] = states[n + 1] * (process.deaths)(at(n + 1)) / (process.births)(at(n));
    }
}

/// From both ends toward the mode, small terms first.
fn sorted_sum(states: &[f64]) -> f64 {
    let mode =
        states.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(index, _)| index);
    let left: f64 = states[..mode].iter().sum();
    let right: f64 = states[mode..].iter().rev().sum();
    left + right
}

fn rate(name: &'static str, value: f64) -> Result<f64, StationError> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(StationError::Number { name, value, expected: "finite and not negative" })
    }
}

/// A first come, first served station of equal servers without impatience, whose states are known.
pub(super) struct Station {
    pub(super) servers: u64,
    pub(super) service_rate: f64,
    pub(super) lambda: f64,
    /// State in which arrivals are lost.
    pub(super) losses_at: Option<u64>,
}

/// Mean and variance of the number and of the number waiting.
pub(super) fn number_moments(states: &[f64], servers: u64) -> (Moments, Moments) {
    let mean_of =
        |f: &dyn Fn(u64) -> f64| -> f64 { states.iter().zip(0_u64..).map(|(p, n)| p * f(n)).sum() };
    let waiting = |n: u64| exact_f64(n.saturating_sub(servers));
    let number = mean_of(&exact_f64);
    let queue = mean_of(&waiting);
    let var_number = mean_of(&|n| (exact_f64(n) - number).powi(2));
    let var_queue = mean_of(&|n| (waiting(n) - queue).powi(2));
    (Moments::new(number, var_number), Moments::new(queue, var_queue))
}

impl Station {
    /// All metrics from the probabilities of the states; `births` weighs what arrivals find.
    pub(super) fn solution(
        &self,
        (states, ln_p0): (&[f64], f64),
        births: &dyn Fn(u64) -> f64,
    ) -> StationSolution {
        let m = exact_f64(self.servers);
        let (number, number_waiting) = number_moments(states, self.servers);
        // What arrivals find: states weighted by their arrival rates.
        let mut offered = 0.0;
        let mut lost = 0.0;
        let mut found = Vec::with_capacity(states.len());
        for (p, n) in states.iter().zip(0_u64..) {
            let weight = p * births(n);
            offered += weight;
            if self.losses_at == Some(n) {
                lost += weight;
            } else {
                found.push(weight);
            }
        }
        let accepted: f64 = found.iter().sum();
        for weight in &mut found {
            *weight /= accepted;
        }
        let busy: f64 =
            states.iter().zip(0_u64..).map(|(p, n)| p * exact_f64(n.min(self.servers))).sum();
        let (waiting, response) = self.times(&found);
        let (waiting_law, response_law) = self.laws(&found);
        let p0 = states[0];
        StationSolution {
            method: "birth–death process [Jain91 §31.1]",
            throughput: accepted,
            utilization: busy / m,
            p0: Some(p0),
            ln_p0: Some(ln_p0),
            p_queueing: Some(
                found
                    .iter()
                    .zip(0_u64..)
                    .filter(|(_, n)| *n >= self.servers)
                    // From 0: the sum of nothing is −0.
                    .fold(0.0, |sum, (p, _)| sum + p),
            ),
            loss_probability: if offered > 0.0 { lost / offered } else { 0.0 },
            number,
            number_waiting,
            response_time: response,
            waiting_time: waiting,
            busy_period: (p0 > 0.0).then(|| BusyPeriod {
                // Not 1 − p0, of which light load leaves nothing.
                duration: Moments::mean_only(sorted_sum(&states[1..]) / (p0 * births(0))),
                served: Moments::mean_only(accepted / (p0 * births(0))),
            }),
            states: Some(StateLaw::new(states.to_vec(), 0.0)),
            response_law: Some(response_law),
            waiting_law: Some(waiting_law),
            more: vec![("loss_rate_per_s", lost)],
            ..StationSolution::lossless(self.lambda, self.lambda / self.service_rate, self.servers)
        }
    }

    /// Who finds n ≥ m waits for n − m + 1 departures of m busy servers.
    fn times(&self, found: &[f64]) -> (Moments, Moments) {
        let rate = exact_f64(self.servers) * self.service_rate;
        let stages = |n: u64| exact_f64((n + 1).saturating_sub(self.servers));
        let pairs = || found.iter().zip(0_u64..);
        let mean: f64 = pairs().map(|(p, n)| p * stages(n)).sum::<f64>() / rate;
        let second: f64 =
            pairs().map(|(p, n)| p * stages(n) * (stages(n) + 1.0)).sum::<f64>() / (rate * rate);
        let variance = (second - mean * mean).max(0.0);
        let service = 1.0 / self.service_rate;
        (Moments::new(mean, variance), Moments::new(mean + service, variance + service * service))
    }

    /// Waiting and response time as random numbers of exponential stages of rate m·µ: service
    /// itself is a geometric number of them.
    fn laws(&self, found: &[f64]) -> (TimeLaw, TimeLaw) {
        let rate = exact_f64(self.servers) * self.service_rate;
        let first = usize::try_from(self.servers).unwrap_or(usize::MAX).min(found.len());
        // Weights of 1, 2, … stages of waiting.
        let waits = &found[first..];
        let mut tails = vec![0.0; waits.len()];
        let mut sum = 0.0;
        for (tail, p) in tails.iter_mut().zip(waits).rev() {
            sum += p;
            *tail = sum;
        }
        let waiting = TimeLaw::Stages { rate, tails: tails.clone(), ratio: 0.0 };
        // more than i stages in all = waiting alone exceeds i, or service makes up the rest.
        let stay = 1.0 - 1.0 / exact_f64(self.servers);
        let at_once: f64 = found[..first].iter().sum();
        let mut late = at_once;
        let mut response = vec![tails.first().copied().unwrap_or(0.0) + at_once];
        for (i, p) in waits.iter().enumerate() {
            // Waited at most i+1 stages, and still in service.
            late = late * stay + p;
            response.push(tails.get(i + 1).copied().unwrap_or(0.0) + late);
        }
        (waiting, TimeLaw::Stages { rate, tails: response, ratio: stay })
    }
}
