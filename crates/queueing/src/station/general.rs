//! One server (M/D/m: several) with Poisson arrivals and any service distribution; batches.

use kendall_units::exact_f64;
use nalgebra::{DMatrix, DVector};

use super::law::{Line, StateLaw, TimeLaw, has_smooth_transform};
use super::transform::{residual_gap, residual_of_constant, service_transform};
use super::{
    BusyPeriod, Moments, StationError, StationSolution, at_most, positive, servers_of, stable,
};
use crate::Distribution;
use crate::model::Batch;
use crate::numeric::{Complex, poisson_window};

/// Most states of an embedded chain that are listed before the geometric tail takes over.
pub(super) const MOST_EMBEDDED: usize = 4_000;
/// Most servers of M/D/m: its states solve a dense system of linear equations.
const MOST_DETERMINISTIC_SERVERS: u64 = 200;

/// M/G/1, first come, first served: Pollaczek–Khinchine.
///
/// Variances need the third moment of service time; without it they are left out. Percentiles are
/// exact for exponential and deterministic service, by numerical inversion (about 1e-8) for
/// Erlang, gamma and hyper-exponential service, on a grid (about 2e-4, up to ρ = 0.99) for other shapes, and
/// else from a gamma distribution that has the right two moments, which `StationSolution::waiting_law` says
/// ([`TimeLaw::is_exact`]).
///
/// # Errors
/// [`StationError::Unstable`] when λ·E\[S\] ≥ 1.
///
/// # Source
/// [Jain91 table 31.5]; variance of wait [Kleinrock75 §5.7].
pub fn mg1(arrival_rate: f64, service: &Distribution) -> Result<StationSolution, StationError> {
    let Load { lambda, mean, second, rho, idle } = checked(arrival_rate, service)?;
    let third = service.moment(3);
    let wait = lambda * second / (2.0 * idle);
    let var_wait = third.map(|third| lambda * third / (3.0 * idle) + wait * wait);
    let var_response = var_wait.map(|var| var + service.variance());
    let queue = lambda * wait;
    let number = rho + queue;
    // Distributional Little's law of a FCFS queue: E[n(n−1)] = λ²·E[r²].
    let var_number = var_response.map(|var| lambda * lambda * var + number);
    let var_queue = var_wait.map(|var| lambda * lambda * var + queue);
    let (waiting_law, response_law) = laws(lambda, service, wait, var_wait);
    let letter = service.letter();
    Ok(StationSolution {
        notation: format!("M/{letter}/1"),
        method: "M/G/1, Pollaczek–Khinchine [Jain91 table 31.5]",
        p_queueing: Some(rho),
        number: Moments { mean: number, variance: var_number },
        number_waiting: Moments { mean: queue, variance: var_queue },
        response_time: Moments { mean: mean + wait, variance: var_response },
        waiting_time: Moments { mean: wait, variance: var_wait },
        busy_period: Some(busy_period(lambda, service, second, idle)),
        states: embedded_states(lambda, service),
        response_law,
        waiting_law,
        more: vec![("service_time_scv", service.scv())],
        ..StationSolution::one_server(lambda, rho, idle)
    })
}

/// What M/G/1 needs to know of its load.
pub(super) struct Load {
    pub(super) lambda: f64,
    pub(super) mean: f64,
    pub(super) second: f64,
    pub(super) rho: f64,
    /// 1 − ρ, with one rounding only: near saturation everything is divided by it.
    pub(super) idle: f64,
}

pub(super) fn checked(rate: f64, service: &Distribution) -> Result<Load, StationError> {
    let lambda = positive("arrival rate", rate)?;
    let mean = positive("mean service time", service.mean())?;
    let rho = lambda * mean;
    stable(rho, 1, lambda)?;
    let idle = idle_share(lambda, mean);
    if idle <= 0.0 {
        stable(1.0, 1, lambda)?;
    }
    let second = mean * mean * (1.0 + service.scv());
    positive("second moment of service time", second)?;
    Ok(Load { lambda, mean, second, rho, idle })
}

/// 1 − λ·S: the product is not rounded before it is taken from 1.
fn idle_share(lambda: f64, mean: f64) -> f64 {
    (-lambda).mul_add(mean, 1.0)
}

/// The variance of the duration is `E[S²]/(1−ρ)³ − E[S]²/(1−ρ)²`, without the difference: for a constant
/// service at light load it is all that is left of two equal numbers.
pub(super) fn busy_period(
    lambda: f64,
    service: &Distribution,
    second: f64,
    idle: f64,
) -> BusyPeriod {
    let mean = service.mean();
    let rho = lambda * mean;
    let duration = mean / idle;
    let served = 1.0 / idle;
    let spread = mean * mean * (service.scv() + rho);
    BusyPeriod {
        duration: Moments::new(duration, spread / idle.powi(3)),
        served: Moments::new(served, (rho * idle + lambda * lambda * second) / idle.powi(3)),
    }
}

fn laws(
    lambda: f64,
    service: &Distribution,
    wait: f64,
    var_wait: Option<f64>,
) -> (Option<TimeLaw>, Option<TimeLaw>) {
    let mean = service.mean();
    let rho = lambda * mean;
    if service.is_exponential() {
        let rate = idle_share(lambda, mean) / mean;
        return (
            Some(TimeLaw::Exponential { weight: rho, rate }),
            Some(TimeLaw::Exponential { weight: 1.0, rate }),
        );
    }
    if matches!(service, Distribution::Deterministic { .. }) {
        let Some(states) = embedded_states(lambda, service) else { return (None, None) };
        let law = |and_service| deterministic_law(lambda, mean, 1, &states, and_service);
        return (Some(law(false)), Some(law(true)));
    }
    let law = |and_service| Line::of_one(lambda, service, and_service).law();
    if let (Some(wait), Some(response)) = (law(false), law(true)) {
        return (Some(wait), Some(response));
    }
    let Some(var_wait) = var_wait else { return (None, None) };
    let var_response = var_wait + service.variance();
    (
        Some(TimeLaw::TwoMoments { weight: rho, mean: wait, variance: var_wait }),
        Some(TimeLaw::TwoMoments { weight: 1.0, mean: mean + wait, variance: var_response }),
    )
}

/// Response time of a customer that finds the station empty: its service.
pub(super) fn service_law(service: &Distribution) -> Option<TimeLaw> {
    let mean = service.mean();
    if service.is_exponential() {
        return Some(TimeLaw::Exponential { weight: 1.0, rate: 1.0 / mean });
    }
    if matches!(service, Distribution::Deterministic { .. }) {
        return Some(deterministic_law(0.0, mean, 1, &StateLaw::with_tail(vec![1.0], 1.0), true));
    }
    if has_smooth_transform(service) {
        return Some(TimeLaw::InLine(Line::of_one(0.0, service, true)));
    }
    let variance = Some(service.variance()).filter(|variance| variance.is_finite())?;
    Some(TimeLaw::TwoMoments { weight: 1.0, mean, variance })
}

fn deterministic_law(
    lambda: f64,
    d: f64,
    servers: u64,
    states: &StateLaw,
    and_service: bool,
) -> TimeLaw {
    let (above, gap) = states.tails(servers + 1);
    TimeLaw::DeterministicService {
        arrival_rate: lambda,
        service_time: d,
        servers,
        above,
        gap,
        and_service,
    }
}

/// Probabilities of the number of arrivals in one service time, where they have a closed form.
pub(super) fn arrivals_in_service(
    lambda: f64,
    service: &Distribution,
    count: usize,
) -> Option<Vec<f64>> {
    let rho = lambda * service.mean();
    let negative_binomial = |shape: f64, load: f64| {
        let go = load / shape / (1.0 + load / shape);
        let mut p = (-shape * (load / shape).ln_1p()).exp();
        let mut list = Vec::with_capacity(count);
        for n in 0..count {
            list.push(p);
            p *= go * (shape + exact_f64(n)) / (exact_f64(n) + 1.0);
        }
        list
    };
    Some(match service {
        Distribution::Deterministic { .. } => {
            let (first, window) = poisson_window(rho);
            let mut list = vec![0.0; usize::try_from(first).ok()?];
            list.extend(window);
            list.resize(count, 0.0);
            list
        }
        Distribution::Exponential { .. } => negative_binomial(1.0, rho),
        Distribution::Erlang { stages, .. } => negative_binomial(f64::from(*stages), rho),
        Distribution::Gamma { scv, .. } => negative_binomial(1.0 / scv, rho),
        Distribution::Hyperexponential { probabilities, means_s } => {
            let mut list = vec![0.0; count];
            for (p, mean) in probabilities.iter().zip(means_s) {
                for (sum, x) in list.iter_mut().zip(negative_binomial(1.0, lambda * mean)) {
                    *sum += p * x;
                }
            }
            list
        }
        _ => return None,
    })
}

/// States of M/G/1 by a recursion that only adds: balance of the flow across each level of the
/// chain embedded at departures. The geometric tail takes over where its ratio, which is known
/// from the transform of service, is reached; `None` when the table ends before.
///
/// # Source
/// The stable form of the M/G/1 recursion, \[Ramaswami88\]; decay: [Tijms03 §9.2.3].
pub(super) fn embedded_states(lambda: f64, service: &Distribution) -> Option<StateLaw> {
    let idle = idle_share(lambda, service.mean());
    if service.is_exponential() {
        return Some(StateLaw::with_tail(vec![idle], idle));
    }
    let arrivals = arrivals_in_service(lambda, service, MOST_EMBEDDED)?;
    let first = arrivals[0];
    if first < 1e-290 {
        return None;
    }
    let decay = decay_rate(lambda, service)?;
    let gap = decay / (lambda + decay);
    // above[n] = P(more than n arrivals), from the far end, so that nothing cancels.
    let mut above = vec![0.0; MOST_EMBEDDED];
    for n in (0..MOST_EMBEDDED - 1).rev() {
        above[n] = above[n + 1] + arrivals[n + 1];
    }
    let mut table = vec![idle];
    let mut settled = 0;
    for n in 0..MOST_EMBEDDED - 1 {
        let mut sum = table[0] * above[n];
        for j in 1..=n {
            sum += table[j] * above[n + 1 - j];
        }
        let next = sum / first;
        let last = table[table.len() - 1];
        table.push(next);
        if next < 1e-300 {
            return Some(StateLaw::with_tail(table, gap));
        }
        // Each ratio carries the rounding of a few operations.
        settled = if (next / last - (1.0 - gap)).abs() < 4e-15 { settled + 1 } else { 0 };
        if settled >= 3 {
            return Some(StateLaw::with_tail(table, gap));
        }
    }
    None
}

/// θ in P(W > t) ~ C·e^(−θt), from λ·(B*(−θ) − 1) = θ. With the residual life of service this is
/// r*(−θ) − 1 = (1 − ρ)/ρ, in which nothing cancels near saturation.
///
/// # Source
/// Lundberg's equation, [Tijms03 §9.2.3].
pub(super) fn decay_rate(lambda: f64, service: &Distribution) -> Option<f64> {
    let mean = service.mean();
    let idle = idle_share(lambda, mean);
    let wanted = idle / (lambda * mean);
    // r*(−θ) is convex: its tangent at 0 gives the upper end, unless its pole comes before.
    let tangent = 2.0 * wanted / (mean * (1.0 + service.scv()));
    let pole = match service {
        Distribution::Exponential { mean_s } => 1.0 / mean_s,
        Distribution::Erlang { stages, mean_s } => f64::from(*stages) / mean_s,
        Distribution::Gamma { mean_s, scv } => 1.0 / (mean_s * scv),
        Distribution::Hyperexponential { means_s, .. } => {
            1.0 / means_s.iter().copied().fold(0.0, f64::max)
        }
        _ => f64::INFINITY,
    };
    let above =
        |theta: f64| residual_gap(service, Complex::new(-theta, 0.0)).map(|gap| -gap.re >= wanted);
    above(tangent.min(pole) / 2.0)?;
    let (mut low, mut high) = (0.0, tangent.min(pole));
    for _ in 0..400 {
        let middle = f64::midpoint(low, high);
        if high - low <= 2e-16 * high || middle <= low || middle >= high {
            break;
        }
        if above(middle)? { high = middle } else { low = middle }
    }
    Some(f64::midpoint(low, high))
}

/// M/D/1.
///
/// # Errors
/// As [`mg1`].
///
/// # Source
/// [Jain91 table 31.7]; waiting time distribution \[Franx01\].
pub fn md1(arrival_rate: f64, service_time: f64) -> Result<StationSolution, StationError> {
    mg1(arrival_rate, &Distribution::deterministic(service_time)?)
}

/// M/D/m, exact, by its state equations with a geometric tail.
///
/// # Errors
/// [`StationError::TooLarge`] beyond 200 servers: `ggm` approximates those.
///
/// # Source
/// [Tijms03 §9.6.2]: p(n) = Σ_{j≤m} p(j)·a(n) + Σ_{j>m} p(j)·a(n−j+m), a Poisson with mean λ·D.
pub fn mdm(
    arrival_rate: f64,
    service_time: f64,
    servers: u64,
) -> Result<StationSolution, StationError> {
    if servers == 1 {
        return md1(arrival_rate, service_time);
    }
    let lambda = positive("arrival rate", arrival_rate)?;
    let d = positive("service time", service_time)?;
    at_most("servers", servers_of(servers)?, MOST_DETERMINISTIC_SERVERS)?;
    let a = lambda * d;
    stable(a, servers, lambda)?;
    let m = exact_f64(servers);
    let slack = (-lambda).mul_add(d, m);
    if slack <= 0.0 {
        stable(m, servers, lambda)?;
    }
    let (table, gap) = deterministic_states(a, slack, servers)?;
    let (mut queue, mut second) = (0.0, 0.0);
    for (p, n) in table.iter().zip(0_u64..) {
        let x = exact_f64(n);
        second += p * x * x;
        queue += p * (x - m).max(0.0);
    }
    // Behind the table a geometric tail, summed in closed form: near saturation it is nearly all.
    let last = exact_f64(table.len() - 1);
    let (tau, rest) = (1.0 - gap, table[table.len() - 1]);
    let (sum, first_moment) = (rest * tau / gap, rest * tau / (gap * gap));
    queue += (last - m) * sum + first_moment;
    second +=
        last * last * sum + 2.0 * last * first_moment + rest * tau * (1.0 + tau) / gap.powi(3);
    let number = a + queue;
    let states = StateLaw::with_tail(table, gap);
    let waits = states.at_least(servers);
    let wait = queue / lambda;
    let law = |and_service| Some(deterministic_law(lambda, d, servers, &states, and_service));
    Ok(StationSolution {
        notation: format!("M/D/{servers}"),
        method: "M/D/m, state equations [Tijms03 §9.6]",
        p0: Some(states.probability(0)),
        ln_p0: Some(states.probability(0).ln()),
        p_queueing: Some(waits),
        number: Moments::new(number, second - number * number),
        number_waiting: Moments::mean_only(queue),
        response_time: Moments::mean_only(d + wait),
        waiting_time: Moments::mean_only(wait),
        response_law: law(true),
        waiting_law: law(false),
        states: Some(states),
        ..StationSolution::lossless(lambda, a, servers)
    })
}

/// States of M/D/m: dense equations up to where only the geometric tail is left. Gives the table
/// and 1 less the ratio of the tail.
fn deterministic_states(a: f64, slack: f64, servers: u64) -> Result<(Vec<f64>, f64), StationError> {
    let m = usize::try_from(servers).unwrap_or(usize::MAX);
    let gap = deterministic_gap(a, slack);
    let tail = 1.0 - gap;
    let size = 3 * m + 120;
    let (first, window) = poisson_window(a);
    let arrivals = |n: i64| -> f64 {
        let index = n - i64::try_from(first).unwrap_or(0);
        usize::try_from(index).ok().and_then(|i| window.get(i)).copied().unwrap_or(0.0)
    };
    let int = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    // Row n: p(n) − Σ… = 0; states beyond the table are the last one times powers of `tail`.
    let mut matrix = DMatrix::<f64>::identity(size, size);
    for n in 0..size {
        for j in 0..size {
            let step = if j <= m { int(n) } else { int(n) - int(j) + int(m) };
            matrix[(n, j)] -= arrivals(step);
        }
        let mut power = tail;
        for j in size..=n + m {
            matrix[(n, size - 1)] -= power * arrivals(int(n) - int(j) + int(m));
            power *= tail;
        }
    }
    // One equation is spare. In its place the mean number of idle servers, m − a: all of it
    // shrinks with 1 − ρ alike, where the sum of all probabilities would hang on the tail alone.
    for j in 0..size {
        matrix[(size - 1, j)] = if j < m { exact_f64(m - j) } else { 0.0 };
    }
    let mut right = DVector::<f64>::zeros(size);
    right[size - 1] = slack;
    let solved = matrix.lu().solve(&right).ok_or(StationError::Number {
        name: "utilization",
        value: a / exact_f64(servers),
        expected: "a little further from 1: the state equations are singular",
    })?;
    let mut table: Vec<f64> = solved.iter().map(|p| p.max(0.0)).collect();
    if a < LIGHT * exact_f64(servers) {
        settle(&mut table, a, m, tail);
    }
    Ok((table, gap))
}

/// Share of the servers that are busy below which the states of M/D/m are iterated. The rest of a
/// system of equations is 1e-16 of the largest state, and at light load more than all who wait.
const LIGHT: f64 = 0.8;

/// Makes every state right to its last figures: the state one service time later, again and again,
/// which only adds. The customer in service has left by then, so that little is left to settle.
fn settle(table: &mut Vec<f64>, a: f64, m: usize, tail: f64) {
    let size = table.len();
    let mut arrivals = vec![(-a).exp()];
    for n in 1..=size + m {
        arrivals.push(arrivals[n - 1] * a / exact_f64(n));
    }
    for _ in 0..200 {
        let served: f64 = table[..=m].iter().sum();
        let mut beyond = table.clone();
        for _ in 0..m {
            beyond.push(beyond[beyond.len() - 1] * tail);
        }
        let mut next: Vec<f64> = (0..size)
            .map(|n| {
                let left: f64 = (m + 1..=n + m).map(|j| beyond[j] * arrivals[n + m - j]).sum();
                served * arrivals[n] + left
            })
            .collect();
        let sum = next.iter().rev().sum::<f64>() + next[size - 1] * tail / (1.0 - tail);
        next.iter_mut().for_each(|p| *p /= sum);
        let moved = |(old, new): (&f64, &f64)| (old - new).abs() > 1e-14 * new;
        let settled = !table.iter().zip(&next).any(moved);
        *table = next;
        if settled {
            break;
        }
    }
}

/// 1 − τ, where τ = 1/z for the root z > 1 of a·(z − 1) = m·ln z, from m − a.
fn deterministic_gap(a: f64, slack: f64) -> f64 {
    // In y = ln z: (e^y − 1)/y − 1 = (m − a)/a, convex with slope ½ at 0.
    let wanted = slack / a;
    let excess = |y: f64| -residual_of_constant(Complex::new(-y, 0.0)).re;
    let (mut low, mut high) = (0.0, 2.0 * wanted);
    for _ in 0..400 {
        let middle = f64::midpoint(low, high);
        if high - low <= 2e-16 * high || middle <= low || middle >= high {
            break;
        }
        // Far out e^y is infinite, or no number.
        if excess(middle) < wanted { low = middle } else { high = middle }
    }
    -(-f64::midpoint(low, high)).exp_m1()
}

/// M/G/1 with processor sharing: all customers share the server alike. The mean response depends
/// on the mean service time only, a customer with service x takes x/(1−ρ) on average.
///
/// # Errors
/// As [`mg1`].
///
/// # Source
/// [Kleinrock76 §4.4]; variance for exponential service: Coffman, Muntz, Trotter 1970 \[CMT70\].
pub fn mg1_ps(arrival_rate: f64, service: &Distribution) -> Result<StationSolution, StationError> {
    let Load { lambda, mean, second, rho, idle } = checked(arrival_rate, service)?;
    let response = mean / idle;
    let var_response =
        service.is_exponential().then(|| response * response * (2.0 + rho) / (2.0 - rho));
    let wait = response * rho;
    Ok(StationSolution {
        notation: format!("M/{}/1/∞/∞/PS", service.letter()),
        method: "M/G/1-PS [Kleinrock76 §4.4]",
        p_queueing: Some(rho),
        number: Moments::new(rho / idle, rho / (idle * idle)),
        number_waiting: Moments::mean_only(rho * rho / idle),
        response_time: Moments { mean: response, variance: var_response },
        waiting_time: Moments::mean_only(wait),
        busy_period: Some(busy_period(lambda, service, second, idle)),
        states: Some(StateLaw::with_tail(vec![idle], idle)),
        more: vec![("slowdown", 1.0 / idle)],
        ..StationSolution::one_server(lambda, rho, idle)
    })
}

/// M/G/1, last come first served, pre-empting and resuming: a response time is a busy period
/// started by the customer's own service.
///
/// # Errors
/// As [`mg1`].
///
/// # Source
/// [HB13 §30.3]: E\[r\] = E\[S\]/(1−ρ), Var\[r\] as of a busy period.
pub fn mg1_lcfs_pr(
    arrival_rate: f64,
    service: &Distribution,
) -> Result<StationSolution, StationError> {
    let mut solution = mg1_ps(arrival_rate, service)?;
    solution.notation = format!("M/{}/1/∞/∞/LCFS-PR", service.letter());
    solution.method = "M/G/1-LCFS-PR [HB13 §30.3]";
    solution.response_time.variance =
        solution.busy_period.as_ref().and_then(|busy| busy.duration.variance);
    solution.more.clear();
    Ok(solution)
}

/// G/M/1: independent inter-arrival times of any distribution, exponential service.
///
/// # Errors
/// [`StationError::Unstable`] when µ·E\[gap\] ≤ 1; [`StationError::Number`] for a distribution
/// without a Laplace transform in closed form (exponential, Erlang, gamma, hyper-exponential,
/// deterministic and uniform have one).
///
/// # Source
/// [Kleinrock75 §6.4]: an arrival finds n with probability (1−σ)·σⁿ, σ = A*(µ − µσ).
pub fn gm1(
    interarrival: &Distribution,
    service_rate: f64,
) -> Result<StationSolution, StationError> {
    let gap = positive("mean inter-arrival time", interarrival.mean())?;
    let mu = positive("service rate", service_rate)?;
    let lambda = 1.0 / gap;
    let rho = lambda / mu;
    stable(rho, 1, lambda)?;
    // 1 − ρ = (µ·gap − 1)/(µ·gap), rounded once.
    let idle = mu.mul_add(gap, -1.0) / (mu * gap);
    if idle <= 0.0 {
        stable(1.0, 1, lambda)?;
    }
    let delta = no_wait_probability(interarrival, mu, idle).ok_or(StationError::Number {
        name: "inter-arrival distribution (scv)",
        value: interarrival.scv(),
        expected: "one with a Laplace transform: use `ggm`",
    })?;
    let sigma = if delta > 0.5 { wait_probability(interarrival, mu, delta) } else { 1.0 - delta };
    let delta = if delta > 0.5 { 1.0 - sigma } else { delta };
    let rate = mu * delta;
    let queue = rho * sigma / delta;
    Ok(StationSolution {
        notation: format!("{}/M/1", interarrival.letter()),
        method: "G/M/1 [Kleinrock75 §6.4]",
        p_queueing: Some(sigma),
        number: Moments::new(rho / delta, rho * (sigma + idle) / (delta * delta)),
        number_waiting: Moments::new(
            queue,
            rho * sigma * (1.0 + sigma) / (delta * delta) - queue * queue,
        ),
        response_time: Moments::new(1.0 / rate, 1.0 / (rate * rate)),
        waiting_time: Moments::new(sigma / rate, sigma * (2.0 - sigma) / (rate * rate)),
        states: Some(StateLaw::with_tail(vec![idle, rho * delta], delta)),
        response_law: Some(TimeLaw::Exponential { weight: 1.0, rate }),
        waiting_law: Some(TimeLaw::Exponential { weight: sigma, rate }),
        more: vec![("sigma", sigma), ("interarrival_time_scv", interarrival.scv())],
        ..StationSolution::one_server(lambda, rho, idle)
    })
}

/// δ = 1 − σ. With the residual life of the gap, A*(µδ) = 1 − δ is 1 − r*(µδ) = 1 − ρ, whose left
/// side rises with δ and is computed without cancelling: near saturation δ itself is what is
/// small.
fn no_wait_probability(interarrival: &Distribution, mu: f64, idle: f64) -> Option<f64> {
    let enough = |delta: f64| {
        residual_gap(interarrival, Complex::new(mu * delta, 0.0)).map(|gap| gap.re >= idle)
    };
    enough(1.0)?;
    // 1 − r*(s) is concave: its tangent at 0 gives the lower end.
    let steepest = mu * interarrival.mean() * (1.0 + interarrival.scv()) / 2.0;
    let (mut low, mut high) = ((0.5 * idle / steepest).min(1.0).ln(), 0.0_f64);
    for _ in 0..70 {
        let middle = f64::midpoint(low, high);
        if enough(middle.exp())? { high = middle } else { low = middle }
    }
    Some(f64::midpoint(low, high).exp())
}

/// σ where waiting is rare: there σ is what is small, and σ ← A*(µ − µσ) keeps its figures.
fn wait_probability(interarrival: &Distribution, mu: f64, delta: f64) -> f64 {
    let mut sigma = 1.0 - delta;
    for _ in 0..200 {
        let next = real_transform(interarrival, mu * (1.0 - sigma)).unwrap_or(sigma);
        if (next - sigma).abs() <= 1e-16 * next {
            return next;
        }
        sigma = next;
    }
    sigma
}

fn real_transform(distribution: &Distribution, s: f64) -> Option<f64> {
    match distribution {
        Distribution::Deterministic { value_s } => Some((-s * value_s).exp()),
        Distribution::Uniform { low_s, high_s } => {
            let width = s * (high_s - low_s);
            Some((-s * low_s).exp() * crate::numeric::one_minus_exp_over(width))
        }
        other => service_transform(other, Complex::new(s, 0.0)).map(|value| value.re),
    }
}

/// M^\[x\]/M/1: batches arrive as a Poisson stream; `arrival_rate` counts customers, not batches.
///
/// # Errors
/// [`StationError::Unstable`] when λ ≥ µ.
///
/// # Source
/// [Jain91 table 31.6]. The number there is a geometric sum of residual batches, which gives
/// the variance; state probabilities from the flow across each level, which only adds.
pub fn batch_mm1(
    arrival_rate: f64,
    service_rate: f64,
    batch: &Batch,
) -> Result<StationSolution, StationError> {
    let lambda = positive("arrival rate", arrival_rate)?;
    let mu = positive("service rate", service_rate)?;
    let size = positive("mean batch size", batch.mean())?;
    let rho = lambda / mu;
    stable(rho, 1, lambda)?;
    let idle = (mu - lambda) / mu;
    let (second, third) = (batch.second_moment(), batch.third_moment());
    // Y: place in the batch of a customer picked at random.
    let y1 = (second + size) / (2.0 * size);
    let y2 = (2.0 * third + 3.0 * second + size) / (6.0 * size);
    let number = rho / idle * y1;
    let var_number = rho / idle * (y2 - y1 * y1) + rho / (idle * idle) * y1 * y1;
    let response = y1 / (mu * idle);
    // Behind half of the own batch, and behind the customers present.
    let wait = ((second - size) / (2.0 * size) + rho) / (mu * idle);
    Ok(StationSolution {
        notation: "M^[x]/M/1".to_owned(),
        method: "M^[x]/M/1 [Jain91 table 31.6]",
        number: Moments::new(number, var_number),
        number_waiting: Moments::mean_only(lambda * wait),
        response_time: Moments::mean_only(response),
        waiting_time: Moments::mean_only(wait),
        busy_period: Some(BusyPeriod {
            duration: Moments::mean_only(size / (mu - lambda)),
            served: Moments::mean_only(size / idle),
        }),
        states: Some(batch_states(rho, size, batch, idle)),
        more: vec![("batch_size_mean", size), ("batch_rate_per_s", lambda / size)],
        ..StationSolution::one_server(lambda, rho, idle)
    })
}

/// p(n)·µ = λ_b·Σ_{k<n} p(k)·P(batch ≥ n − k).
fn batch_states(rho: f64, size: f64, batch: &Batch, idle: f64) -> StateLaw {
    const LISTED: usize = 3_000;
    let mut at_least = Vec::with_capacity(LISTED);
    for n in 1..=LISTED {
        at_least.push(batch.at_least(u64::try_from(n).unwrap_or(u64::MAX)));
    }
    let mut table = vec![idle];
    let mut ratio = 0.0;
    let mut steady = 0;
    for n in 1..LISTED {
        let sum: f64 = table.iter().rev().zip(&at_least).map(|(p, g)| p * g).sum();
        let next = sum * rho / size;
        let now = next / table[n - 1];
        steady = if (now - ratio).abs() < 1e-14 { steady + 1 } else { 0 };
        ratio = now;
        table.push(next);
        if steady >= 5 || next < 1e-300 {
            break;
        }
    }
    StateLaw::new(table, ratio.min(1.0 - 1e-12))
}
