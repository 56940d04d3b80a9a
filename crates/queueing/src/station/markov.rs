//! Stations with Poisson arrivals and exponential service.

use kendall_units::exact_f64;

use super::birth_death::{BirthDeath, Station, solved};
use super::law::{StateLaw, TimeLaw};
use super::{
    BusyPeriod, MOST_LISTED, MOST_STATES, Moments, StationError, StationSolution, at_most, ln_idle,
    notation, positive, servers_of, stable,
};
use crate::numeric::ln_factorial;

/// M/M/1: Poisson arrivals at rate λ, exponential service at rate µ, one server, any order that
/// does not depend on service times (percentiles: first come, first served).
///
/// # Errors
/// [`StationError::Unstable`] when λ ≥ µ.
///
/// # Source
/// [Jain91 table 31.1].
///
/// # Example
/// ```
/// let station = kendall_queueing::station::mm1(125.0, 500.0).unwrap();
/// assert!((station.utilization - 0.25).abs() < 1e-15);
/// assert!((station.response_time.mean - 1.0 / 375.0).abs() < 1e-15);
/// ```
pub fn mm1(arrival_rate: f64, service_rate: f64) -> Result<StationSolution, StationError> {
    mmm(arrival_rate, service_rate, 1)
}

/// M/M/m.
///
/// # Errors
/// [`StationError::Unstable`] when λ ≥ m·µ, [`StationError::TooLarge`] beyond 1e8 servers.
///
/// # Source
/// [Jain91 tables 31.1 and 31.2]; Erlang C by the recurrence on Erlang B, which neither overflows
/// nor cancels.
pub fn mmm(
    arrival_rate: f64,
    service_rate: f64,
    servers: u64,
) -> Result<StationSolution, StationError> {
    let lambda = positive("arrival rate", arrival_rate)?;
    let mu = positive("service rate", service_rate)?;
    let servers = servers_of(servers)?;
    let a = lambda / mu;
    stable(a, servers, lambda)?;
    let m = exact_f64(servers);
    let rho = a / m;
    // (m·µ − λ) keeps more figures than m·µ·(1 − ρ).
    let slack = m * mu - lambda;
    let idle = slack / (m * mu);
    let c = if servers == 1 { rho } else { erlang_c(a, servers)? };
    let ln_p0 = if servers == 1 { ln_idle(rho, idle) } else { -ln_state_sum(a, servers, idle) };
    let wait = c / slack;
    let var_wait = c * (2.0 - c) / (slack * slack);
    let waiting = rho * c / idle;
    let var_waiting = rho * c * (1.0 + rho - rho * c) / (idle * idle);
    let number = if servers == 1 { lambda / slack } else { a + waiting };
    let var_number = if servers == 1 {
        rho / (idle * idle)
    } else {
        a + rho * c * ((1.0 + rho - rho * c) / (idle * idle) + m)
    };
    let response = 1.0 / mu + wait;
    let response_law = if servers == 1 {
        TimeLaw::Exponential { weight: 1.0, rate: slack }
    } else {
        TimeLaw::WaitAndServe { weight: c, wait_rate: slack, service_rate: mu }
    };
    Ok(StationSolution {
        notation: notation("M", "M", servers, None),
        method: "M/M/m [Jain91 tables 31.1, 31.2]",
        utilization: rho,
        p0: Some(ln_p0.exp()),
        ln_p0: Some(ln_p0),
        p_queueing: Some(c),
        number: Moments::new(number, var_number),
        number_waiting: Moments::new(waiting, var_waiting),
        response_time: Moments::new(response, 1.0 / (mu * mu) + var_wait),
        waiting_time: Moments::new(wait, var_wait),
        busy_period: Some(mmm_busy_period(lambda, mu, servers, ln_p0)),
        states: (servers <= MOST_LISTED).then(|| mmm_states(a, servers, ln_p0, (c * idle, idle))),
        response_law: Some(response_law),
        waiting_law: Some(TimeLaw::Exponential { weight: c, rate: slack }),
        more: vec![("waiting_time_of_those_that_wait_s", 1.0 / slack)],
        ..StationSolution::lossless(lambda, a, servers)
    })
}

/// Busy period: for one server the classic one; for several, until all are idle again.
fn mmm_busy_period(lambda: f64, mu: f64, servers: u64, ln_p0: f64) -> BusyPeriod {
    if servers == 1 {
        let rho = lambda / mu;
        let idle = (mu - lambda) / mu;
        return BusyPeriod {
            duration: Moments::new(1.0 / (mu - lambda), (1.0 + rho) / (mu * mu * idle.powi(3))),
            served: Moments::new(1.0 / idle, rho * (1.0 + rho) / idle.powi(3)),
        };
    }
    // Renewal argument: the empty station lasts 1/λ, a share p0 of the time.
    let served = (-ln_p0).exp();
    BusyPeriod {
        duration: Moments::mean_only((-ln_p0).exp_m1() / lambda),
        served: Moments::mean_only(served),
    }
}

/// ln(Σ_{n<m} aⁿ/n! + aᵐ/m!/(1−ρ)), summed around its largest term, which is left out of the sum:
/// at light load that term is 1, and the rest is all that the busy period hangs on.
fn ln_state_sum(a: f64, servers: u64, idle: f64) -> f64 {
    let mode = kendall_units::whole_u64(a).min(servers);
    let last = |n: u64| if n == servers { 1.0 / idle } else { 1.0 };
    let mut rest = last(mode) - 1.0;
    let mut term = 1.0;
    let mut n = mode;
    while n > 0 && term > 1e-19 {
        term *= exact_f64(n) / a;
        n -= 1;
        rest += term;
    }
    term = 1.0;
    n = mode;
    while n < servers && (term > 1e-19 * rest || term / idle > 1e-19 * rest) {
        n += 1;
        term *= a / exact_f64(n);
        rest += term * last(n);
    }
    // ln 0! is 4·10⁻¹⁶ by the approximation of the gamma function: nothing, but not beside a load of 10⁻¹².
    let largest = if mode == 0 { 0.0 } else { exact_f64(mode) * a.ln() - ln_factorial(mode) };
    largest + rest.ln_1p()
}

/// P(0..=m) from the mode outward, with the last one from Erlang C, which is the most exact.
fn mmm_states(a: f64, servers: u64, ln_p0: f64, (p_m, idle): (f64, f64)) -> StateLaw {
    let size = usize::try_from(servers).unwrap_or(usize::MAX);
    let mut table = vec![0.0; size + 1];
    let mode = usize::try_from(kendall_units::whole_u64(a).min(servers)).unwrap_or(size);
    let at_mode = exact_f64(mode);
    table[mode] = (ln_p0 + at_mode * a.ln() - ln_factorial(exact_u64(mode))).exp();
    for n in (0..mode).rev() {
        table[n] = table[n + 1] * exact_f64(n + 1) / a;
    }
    for n in mode + 1..=size {
        table[n] = table[n - 1] * a / exact_f64(n);
    }
    if p_m > 0.0 {
        // Norm to the exact probability of m: the logarithms above lose a few figures.
        let factor = p_m / table[size];
        if factor.is_finite() && (factor - 1.0).abs() < 1e-6 {
            for p in &mut table {
                *p *= factor;
            }
        }
    }
    StateLaw::with_tail(table, idle)
}

fn exact_u64(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Erlang B: probability that all of m servers are busy, without waiting places.
///
/// 1/B is a sum of positive terms, 1 + m/a + m(m−1)/a² + …, taken until it no longer grows.
///
/// # Errors
/// [`StationError::Number`] when the load is not positive or there is no server.
///
/// # Source
/// [Jain91 §31.3], [Bolch06 §6.2]; recurrence 1/B(m) = 1 + m/a·1/B(m−1).
pub fn erlang_b(offered_load: f64, servers: u64) -> Result<f64, StationError> {
    let a = positive("offered load", offered_load)?;
    let servers = servers_of(servers)?;
    let mut inverse = 1.0;
    let mut term = 1.0;
    let mut n = servers;
    while n > 0 {
        let factor = exact_f64(n) / a;
        term *= factor;
        inverse += term;
        n -= 1;
        // Once the factors are below 1 they only fall: what follows is below term/(1−factor).
        if inverse == f64::INFINITY || (factor < 1.0 && term < 1e-17 * (1.0 - factor) * inverse) {
            break;
        }
    }
    Ok(1.0 / inverse)
}

/// Erlang C: probability that an arrival waits in M/M/m.
///
/// # Errors
/// [`StationError::Unstable`] when the load is not below the number of servers.
///
/// # Source
/// C = B/(1 − ρ·(1 − B)): [Bolch06 §6.2].
pub fn erlang_c(offered_load: f64, servers: u64) -> Result<f64, StationError> {
    let b = erlang_b(offered_load, servers)?;
    stable(offered_load, servers, offered_load)?;
    let m = exact_f64(servers);
    let idle = (m - offered_load) / m;
    Ok(b / (idle + offered_load / m * b))
}

/// Fewest servers that lose at most this share of the load (Erlang B).
///
/// # Errors
/// [`StationError::Number`] when the share is not between 0 and 1.
pub fn erlang_b_servers(offered_load: f64, loss: f64) -> Result<u64, StationError> {
    fewest(offered_load, loss, 1, erlang_b)
}

/// Fewest servers before which at most this share of arrivals waits (Erlang C).
///
/// # Errors
/// [`StationError::Number`] when the share is not between 0 and 1.
pub fn erlang_c_servers(offered_load: f64, waiting: f64) -> Result<u64, StationError> {
    let least = kendall_units::whole_u64(offered_load.min(1e15)) + 1;
    fewest(offered_load, waiting, least, erlang_c)
}

fn fewest(
    load: f64,
    share: f64,
    least: u64,
    of: impl Fn(f64, u64) -> Result<f64, StationError>,
) -> Result<u64, StationError> {
    positive("offered load", load)?;
    if !(share > 0.0 && share < 1.0) {
        return Err(StationError::Number {
            name: "probability",
            value: share,
            expected: "between 0 and 1",
        });
    }
    let mut high = least;
    while of(load, high)? > share {
        high = servers_of(high * 2)?;
    }
    let mut low = least;
    while low < high {
        let middle = low.midpoint(high);
        if of(load, middle)? > share { low = middle + 1 } else { high = middle }
    }
    Ok(high)
}

/// M/M/∞, without waiting. Holds for any service distribution with this mean.
///
/// # Errors
/// [`StationError::Number`] for rates that are not positive.
///
/// # Source
/// [Jain91 table 31.4 with m → ∞], [Bolch06 §6.2].
pub fn mm_infinity(arrival_rate: f64, service_rate: f64) -> Result<StationSolution, StationError> {
    let lambda = positive("arrival rate", arrival_rate)?;
    let mu = positive("service rate", service_rate)?;
    let a = lambda / mu;
    let states = (a < 1e6).then(|| {
        let (first, terms) = crate::numeric::poisson_window(a);
        let mut table = vec![0.0; usize::try_from(first).unwrap_or(0)];
        table.extend(terms);
        StateLaw::new(table, 0.0)
    });
    Ok(StationSolution {
        notation: "M/M/∞".to_owned(),
        method: "M/M/∞ [Bolch06 §6.2]",
        p0: Some((-a).exp()),
        ln_p0: Some(-a),
        p_queueing: Some(0.0),
        number: Moments::new(a, a),
        number_waiting: Moments::new(0.0, 0.0),
        response_time: Moments::new(1.0 / mu, 1.0 / (mu * mu)),
        waiting_time: Moments::new(0.0, 0.0),
        busy_period: Some(BusyPeriod {
            duration: Moments::mean_only(a.exp_m1() / lambda),
            served: Moments::mean_only(a.exp()),
        }),
        states,
        response_law: Some(TimeLaw::Exponential { weight: 1.0, rate: mu }),
        waiting_law: Some(TimeLaw::Exponential { weight: 0.0, rate: mu }),
        ..StationSolution::lossless(lambda, a, 1)
    })
}

/// M/M/m/B: at most `capacity` customers, those in service included; who finds it full is lost.
/// B = m is the Erlang loss model. There is a steady state at any load.
///
/// # Errors
/// [`StationError::Number`] when the capacity is below the number of servers.
///
/// # Source
/// [Jain91 table 31.3].
pub fn mmmk(
    arrival_rate: f64,
    service_rate: f64,
    servers: u64,
    capacity: u64,
) -> Result<StationSolution, StationError> {
    let lambda = positive("arrival rate", arrival_rate)?;
    let mu = positive("service rate", service_rate)?;
    let servers = servers_of(servers)?;
    if capacity < servers {
        return Err(StationError::Number {
            name: "capacity",
            value: exact_f64(capacity.min(1 << 50)),
            expected: "at least the number of servers: it includes customers in service",
        });
    }
    at_most("capacity", capacity, MOST_STATES)?;
    let m = exact_f64(servers);
    let (states, ln_p0) = solved(&BirthDeath {
        births: &|_| lambda,
        deaths: &|n| mu * exact_f64(n).min(m),
        last: Some(capacity),
    })?;
    let station = Station { servers, service_rate: mu, lambda, losses_at: Some(capacity) };
    let mut solution = station.solution((&states, ln_p0), &|_| lambda);
    solution.notation = notation("M", "M", servers, Some(capacity));
    solution.method = "M/M/m/B [Jain91 table 31.3]";
    Ok(solution)
}

/// M/M/1/B.
///
/// # Errors
/// As [`mmmk`].
///
/// # Source
/// [Jain91 table 31.3].
pub fn mm1k(
    arrival_rate: f64,
    service_rate: f64,
    capacity: u64,
) -> Result<StationSolution, StationError> {
    mmmk(arrival_rate, service_rate, 1, capacity)
}

/// M/M/m/∞/N: N customers, each away for an exponential time with mean 1/`rate_of_one`, then
/// served. `capacity` below N loses who finds it full (Engset when it equals m).
///
/// Response and waiting times are those that arriving customers see (the arrival theorem), with
/// their exact distributions.
///
/// # Errors
/// [`StationError::Number`] for no customers, [`StationError::TooLarge`] beyond 1e7.
///
/// # Source
/// [Jain91 table 31.8]; distribution of response: \[Lavenberg83\].
pub fn finite_population(
    rate_of_one: f64,
    service_rate: f64,
    servers: u64,
    population: u64,
    capacity: Option<u64>,
) -> Result<StationSolution, StationError> {
    let lambda = positive("arrival rate of one customer", rate_of_one)?;
    let mu = positive("service rate", service_rate)?;
    let servers = servers_of(servers)?;
    if population == 0 {
        let name = "population";
        return Err(StationError::Number { name, value: 0.0, expected: "1 or above" });
    }
    at_most("population", population, MOST_STATES)?;
    let last = capacity.unwrap_or(population).min(population);
    if last < servers.min(population) {
        return Err(StationError::Number {
            name: "capacity",
            value: exact_f64(last),
            expected: "at least the number of servers: it includes customers in service",
        });
    }
    let m = exact_f64(servers);
    let births = |n: u64| lambda * exact_f64(population - n);
    let (states, ln_p0) = solved(&BirthDeath {
        births: &births,
        deaths: &|n| mu * exact_f64(n).min(m),
        last: Some(last),
    })?;
    let offered = births(0).min(f64::MAX);
    let station = Station {
        servers,
        service_rate: mu,
        lambda: offered,
        losses_at: (last < population).then_some(last),
    };
    let mut solution = station.solution((&states, ln_p0), &births);
    solution.notation = format!(
        "M/M/{servers}/{}/{population}",
        capacity.map_or("∞".to_owned(), |capacity| capacity.to_string())
    );
    solution.method = "M/M/m/B/N [Jain91 table 31.8]";
    solution.arrival_rate = solution.throughput / (1.0 - solution.loss_probability);
    solution.offered_load = solution.arrival_rate / mu;
    Ok(solution)
}
