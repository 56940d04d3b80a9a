//! What happens between two steady states: the number at a station after its arrival rate changed.

use kendall_units::exact_f64;

use super::StationError;
use super::birth_death::{BirthDeath, solved};
use crate::numeric::poisson_window;

/// Share of the step that may be left when a station counts as settled.
const LEFT: f64 = 0.05;
const MOST_WORK: f64 = 2e9;
/// Most points of the curve that are kept.
const MOST_POINTS: usize = 41;
/// Probability that the states of either steady state may lack.
const CUT: f64 = 1e-15;

/// From one steady state to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Settling {
    /// Mean number before the step, and in the end.
    pub number_mean: (f64, f64),
    /// Time in s after which 5 % of the difference between them are left; 0 where there is none.
    pub time_s: f64,
    /// Time in s after the step, and the mean number then.
    pub curve: Vec<(f64, f64)>,
}

/// The mean number after a step from one birth–death process to another: from the steady state of
/// the first, until 1 % of the difference between both is left.
///
/// # Errors
/// [`StationError`] of either steady state, and [`StationError::TooLarge`] for more than 2e9 steps.
///
/// # Source
/// Uniformization (Jensen 1953; Grassmann 1977): the state after a Poisson number of steps.
pub fn settling(before: &BirthDeath<'_>, after: &BirthDeath<'_>) -> Result<Settling, StationError> {
    let (first, last) = (listed(before)?, listed(after)?);
    let states = first.len().max(last.len());
    let (from, to) = (mean(&first), mean(&last));
    let at = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    let up: Vec<f64> = (0..states - 1).map(|n| (after.births)(at(n))).collect();
    let down: Vec<f64> = (1..states).map(|n| (after.deaths)(at(n))).collect();
    let out = |n: usize| up.get(n).copied().unwrap_or(0.0) + if n > 0 { down[n - 1] } else { 0.0 };
    let rate = (0..states).map(out).fold(0.0, f64::max) * 1.0001;
    let step = |p: &[f64]| -> Vec<f64> {
        let stays = |n: usize| p[n] * (1.0 - out(n) / rate);
        let rises = |n: usize| if n > 0 { p[n - 1] * up[n - 1] / rate } else { 0.0 };
        let falls = |n: usize| if n + 1 < states { p[n + 1] * down[n] / rate } else { 0.0 };
        (0..states).map(|n| stays(n) + rises(n) + falls(n)).collect()
    };
    let mut now = first;
    now.resize(states, 0.0);
    until_settled(now, (from, to), (rate, exact_f64(states)), step, mean)
}

/// The mean number from the probabilities `now` on, until 1 % of the difference between both ends is left.
/// Uniformization with this rate; a step costs so much work.
///
/// # Errors
/// [`StationError::TooLarge`] for more work than 2e9.
pub(crate) fn until_settled(
    mut now: Vec<f64>,
    (from, to): (f64, f64),
    (rate, cost): (f64, f64),
    step: impl Fn(&[f64]) -> Vec<f64>,
    mean: impl Fn(&[f64]) -> f64,
) -> Result<Settling, StationError> {
    let mut result = Settling { number_mean: (from, to), time_s: 0.0, curve: vec![(0.0, from)] };
    let gap = to - from;
    if gap.abs() <= 1e-9 * from.max(to) {
        return Ok(result);
    }
    let (mut time, mut length, mut work) = (0.0, 1.0_f64, 0.0);
    let mut left_before = 1.0;
    while left_before > LEFT / 5.0 {
        let (skip, weights) = poisson_window(length);
        let count = skip + u64::try_from(weights.len()).unwrap_or(u64::MAX);
        work += exact_f64(count) * cost;
        if work > MOST_WORK {
            let (name, limit) = ("steps until it has settled", 2_000_000_000);
            return Err(StationError::TooLarge { name, value: limit + 1, limit });
        }
        let mut sum = vec![0.0; now.len()];
        let mut power = now;
        for k in 0..count {
            if k > 0 {
                power = step(&power);
            }
            if let Some(weight) = k.checked_sub(skip).and_then(|k| usize::try_from(k).ok()) {
                sum.iter_mut().zip(&power).for_each(|(s, p)| *s += weights[weight] * p);
            }
        }
        now = sum;
        let (then, number) = (time + length / rate, mean(&now));
        let left = ((to - number) / gap).abs();
        if left_before > LEFT && left <= LEFT {
            // Between the two points on a line of the logarithm: it falls as e^(−t/τ) in the end.
            let share = (left_before / LEFT).ln() / (left_before / left.max(1e-12)).ln();
            result.time_s = time + share * (then - time);
        }
        result.curve.push((then, number));
        (time, left_before) = (then, left);
        length = (length * 1.2).min(200.0);
    }
    let every = result.curve.len().div_ceil(MOST_POINTS);
    let last = result.curve.len() - 1;
    let mut index = 0;
    result.curve.retain(|_| {
        index += 1;
        (index - 1) % every == 0 || index - 1 == last
    });
    Ok(result)
}

/// Probabilities, without what is next to nothing at the end.
fn listed(process: &BirthDeath<'_>) -> Result<Vec<f64>, StationError> {
    let (mut states, _) = solved(process)?;
    let mut tail = 0.0;
    let mut keep = states.len();
    while keep > 2 && process.last.is_none() && tail + states[keep - 1] < CUT {
        tail += states[keep - 1];
        keep -= 1;
    }
    states.truncate(keep);
    Ok(states)
}

fn mean(states: &[f64]) -> f64 {
    states.iter().zip(0_u64..).map(|(p, n)| p * exact_f64(n)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(lambda: f64, servers: f64) -> (impl Fn(u64) -> f64, impl Fn(u64) -> f64) {
        (move |_| lambda, move |n| exact_f64(n).min(servers))
    }

    fn step(from: f64, to: f64, servers: f64, last: Option<u64>) -> Settling {
        let (first, deaths) = queue(from, servers);
        let (second, _) = queue(to, servers);
        let process = |births| BirthDeath { births, deaths: &deaths, last };
        settling(&process(&first), &process(&second)).unwrap()
    }

    /// M/M/∞: the mean number goes from a to b as b + (a − b)·e^(−µt), so that 5 % are left after ln 20.
    #[test]
    fn infinite_servers_settle_exponentially() {
        for (a, b) in [(2.0, 8.0), (30.0, 20.0), (0.001, 1.0)] {
            let found = step(a, b, 1e9, None);
            assert!((found.time_s - 20.0_f64.ln()).abs() < 1e-3, "{found:?}");
            for (time, number) in &found.curve {
                let want = b + (a - b) * (-time).exp();
                assert!((number - want).abs() < 1e-9 * a.max(b), "{time}: {number} {want}");
            }
            assert!(found.curve.len() <= MOST_POINTS + 1);
        }
    }

    /// M/M/1/1: two states, P(busy) goes to its end with the rate λ + µ.
    #[test]
    fn one_place_settles_with_the_sum_of_its_rates() {
        let found = step(0.2, 3.0, 1.0, Some(1));
        for (time, number) in &found.curve {
            let (a, b) = (0.2 / 1.2, 0.75);
            let want = b + (a - b) * (-4.0 * time).exp();
            assert!((number - want).abs() < 1e-12, "{time}: {number} {want}");
        }
    }

    /// M/M/1: the busier, the longer, by about 1/(1 − √ρ)² [Morse 1955].
    #[test]
    fn a_busy_queue_settles_slowly() {
        let times: Vec<f64> =
            [0.5, 0.8, 0.9, 0.95].map(|rho| step(rho / 2.0, rho, 1.0, None).time_s).to_vec();
        for (pair, rho) in times.windows(2).zip([(0.5_f64, 0.8_f64), (0.8, 0.9), (0.9, 0.95)]) {
            let slower = ((1.0 - rho.0.sqrt()) / (1.0 - rho.1.sqrt())).powi(2);
            let ratio = pair[1] / pair[0] / slower;
            assert!((0.7..1.4).contains(&ratio), "{times:?} {rho:?}: {ratio}");
        }
        assert!(step(0.5, 0.5, 1.0, None).time_s == 0.0);
    }
}
