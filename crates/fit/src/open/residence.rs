//! How long requests stay at a tier, beside how long they keep its servers busy: R = h·S + f·W(λ).
//!
//! f is the waiting over that of M/M/m. h is the share of the service time for which the request is held
//! up: below 1 where parts of a request are worked on at the same time, or after its answer, or where the
//! servers are a share of a processor, which lends its whole speed for a moment and takes the time back
//! from those that come next; above 1 where it also waits for what keeps no server busy, such as a network.

use kendall_queueing::station::erlang_c;
use kendall_stats::distribution::t_two_sided;
use kendall_stats::sample;
use kendall_units::exact_f64;

use super::monitored::{Monitored, TOLERANCE, Window, stations};
use crate::model::{CONFIDENCE, NORMAL, Number, mean_of};

/// Waiting, as a share of the service time, below which its variability cannot be estimated.
pub(crate) const NOTABLE_WAITING: f64 = 0.05;

/// Waiting above this share of the service time cannot be missed in a response time: five times what scrapes bring in.
const PLAIN_WAITING: f64 = 5.0 * TOLERANCE;

/// Waiting that is no rounding: where R·X and `busy` are one number all the same, one was made from the other.
const SOME_WAITING: f64 = 1e-3;
const ROUNDING: f64 = 1e-6;

/// Windows that a slope needs.
const FEWEST: usize = 3;

/// Windows that two coefficients need: three degrees of freedom are left.
const FEWEST_OF_TWO: usize = 5;

/// A request that is held up for less than this share of the work on it: then `busy` more likely counts
/// other work, and no answer may rest on it.
const LEAST_HELD_UP: f64 = 0.2;

/// (c_a² + c_s²)/2 of Poisson arrivals and constant service.
const LEAST_EVEN: f64 = 0.5;

/// Waiting factors between which other numbers of servers have another, and steps in which it is found.
const LEAST_UNEVEN: f64 = 0.1;
const MOST_UNEVEN: f64 = 200.0;
const HALVINGS: u32 = 50;

/// What a waiting factor rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Waiting {
    /// Waiting times in the windows.
    Fitted,
    /// Variabilities of gaps and service times, since there was too little waiting to fit.
    Measured,
    /// Nothing: 1, give or take a factor of 2.
    Assumed,
}

/// How requests stay at a tier.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Residence {
    /// Waiting over that of exponential service and Poisson arrivals: (c_a² + c_s²)/2.
    pub waiting_factor: Number,
    /// What the waiting factor rests on.
    pub waiting: Waiting,
    /// Share of the service time for which a request is held up; 1 unless the windows say another.
    pub held_up: Number,
    /// Correlation of the errors of the two.
    pub correlation: f64,
}

/// What one window says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stay {
    /// W of M/M/m.
    pub(crate) modelled_s: f64,
    /// Busy servers over throughput.
    service_s: f64,
    /// R, without the tiers that are called.
    stayed_s: f64,
}

impl Residence {
    /// As M/M/m, and no more is known.
    fn assumed() -> Self {
        Self {
            waiting_factor: Number { value: 1.0, standard_error: std::f64::consts::LN_2 / 2.0 },
            waiting: Waiting::Assumed,
            held_up: Number::exact(1.0),
            correlation: 0.0,
        }
    }

    /// Fits it to windows. Waiting is estimated from a tier that calls no other, by least squares through the
    /// origin of measured on modelled waiting times.
    ///
    /// `services` is what a visit takes in each window; `None` where no request came.
    pub(crate) fn fit(
        monitored: &Monitored,
        seen: &[Window],
        index: usize,
        held: bool,
        services: &[Option<f64>],
    ) -> Self {
        let assumed = Self::assumed();
        if held {
            return assumed;
        }
        let stay = |(window, service): (&Window, &Option<f64>)| {
            stay(monitored, window, index, (*service)?)
        };
        let stays: Vec<Stay> = seen.iter().zip(services).filter_map(stay).collect();
        let largest = stays.iter().map(|stay| stay.modelled_s).fold(0.0, f64::max);
        let service = sample::mean(&services.iter().copied().flatten().collect::<Vec<f64>>());
        let calls = !monitored.tiers[index].calls.is_empty();
        if calls || stays.len() < FEWEST || largest < NOTABLE_WAITING * service {
            let held_up = share_alone(&stays).filter(|share| is_told(*share));
            let held_up = held_up.or_else(|| if calls { within_called(&stays) } else { None });
            return Self { held_up: held_up.unwrap_or(assumed.held_up), ..assumed };
        }
        // Of one load, waiting and what is as long at any load are one sum.
        if !monitored.varies() {
            return assumed;
        }
        let both = both(&stays).filter(|both| is_told(both.held_up) || is_longer(both.held_up));
        both.unwrap_or_else(|| Self {
            waiting_factor: slope(&stays),
            waiting: Waiting::Fitted,
            ..assumed
        })
    }

    /// The same where a queue may have been short for want of requests: not as even as no requests are.
    pub(crate) fn unlimited(self) -> Self {
        let is_short = self.waiting == Waiting::Fitted && self.waiting_factor.value < LEAST_EVEN;
        if is_short { Self::assumed() } else { self }
    }

    /// The same with the waiting factor that measured variabilities give, where the windows tell none.
    pub(crate) fn or_measured(self, factor: Option<Number>) -> Self {
        match (self.waiting, factor) {
            (Waiting::Assumed, Some(waiting_factor)) => {
                Self { waiting_factor, waiting: Waiting::Measured, ..self }
            }
            _ => self,
        }
    }

    /// A station whose requests are held up for all of their service, with a waiting factor that is given.
    pub(crate) fn station(waiting_factor: Number) -> Self {
        Self { waiting_factor, waiting: Waiting::Measured, ..Self::assumed() }
    }

    /// The same at servers that are so many times as fast: a delay in which none is busy stays as it is.
    pub(crate) fn at_speed(self, times: f64) -> Self {
        let Number { value, standard_error } = self.held_up;
        if value <= 1.0 {
            return self;
        }
        let held_up =
            Number { value: 1.0 + (value - 1.0) * times, standard_error: standard_error * times };
        Self { held_up, ..self }
    }

    /// The same with another number of servers at another utilization: the waits of uneven requests shrink by more than those of M/M/m.
    pub(crate) fn with_servers(self, (from, to): (u64, u64), (seen, asked): (f64, f64)) -> Self {
        let fitted = self.waiting_factor.value;
        if fitted < LEAST_UNEVEN {
            return self;
        }
        // What was measured of gaps and times is that of heavy traffic.
        let seen = if self.waiting == Waiting::Fitted { seen } else { 1.0 };
        let (mut low, mut high) = (0.0, MOST_UNEVEN.max(fitted));
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            let less = Uneven::services(middle, from).at(seen) < fitted;
            *(if less { &mut low } else { &mut high }) = middle;
        }
        let [to, from] =
            [(to, asked), (from, seen)].map(|(m, at)| Uneven::services(high, m).at(at));
        let times = to / from;
        let Number { value, standard_error } = self.waiting_factor;
        Self {
            waiting_factor: Number { value: value * times, standard_error: standard_error * times },
            ..self
        }
    }

    /// What a visit takes beyond service and waiting as M/M/m has them; negative where it takes less.
    pub(crate) fn beyond_s(&self, service_s: f64, waiting_s: f64) -> f64 {
        (self.held_up.value - 1.0) * service_s + (self.waiting_factor.value - 1.0) * waiting_s
    }
}

impl Monitored {
    /// Takes response times that leave out the wait for a server, as a histogram that is made inside the worker does,
    /// for no response times.
    #[must_use]
    pub fn without_times_inside(mut self) -> Self {
        for index in 0..self.tiers.len() {
            let stays = self.tiers[index].stays;
            self.tiers[index].inside = stays.unwrap_or_else(|| self.is_timed_inside(index));
            if self.tiers[index].inside {
                let windows = self.windows.iter_mut();
                windows.for_each(|window| window.tiers[index].response_time_s = None);
            }
        }
        self
    }

    /// Whether R·X is the number of busy servers also in windows in which requests must have waited for them.
    fn is_timed_inside(&self, index: usize) -> bool {
        let tier = &self.tiers[index];
        let (parts, servers) = stations(tier.servers, tier.queue_each);
        // The wait and what R is beyond it, of the service.
        let of_service = |window: &Window| {
            let means = &window.tiers[index];
            let rate = means.throughput_per_s.filter(|rate| *rate > 0.0)?;
            let service_s = means.busy.filter(|busy| *busy > 0.0)? / rate;
            let waiting_s = waiting_s(rate / exact_f64(parts), servers, service_s)?;
            Some((waiting_s / service_s, means.response_time_s? / service_s - 1.0))
        };
        let seen: Vec<(f64, f64)> = self.windows.iter().filter_map(of_service).collect();
        let beyond = |least: f64| -> Vec<f64> {
            seen.iter().filter(|(waits, _)| *waits > least).map(|(_, beyond)| *beyond).collect()
        };
        let (plain, some) = (beyond(PLAIN_WAITING), beyond(SOME_WAITING));
        (plain.len() >= FEWEST && mean_of(&plain).value.abs() < TOLERANCE)
            || (some.len() >= FEWEST && some.iter().all(|beyond| beyond.abs() < ROUNDING))
    }
}

/// A share that is below 1 by more than its error, and by more than scrapes bring in.
fn is_told(share: Number) -> bool {
    share.value + NORMAL * share.standard_error < 1.0 - TOLERANCE && share.value >= LEAST_HELD_UP
}

/// A share that is above 1 by more than its error: a delay beside service and waiting. Waiting that is fitted
/// without it would have to explain it, at low loads too little of it and at high loads too much.
fn is_longer(share: Number) -> bool {
    share.value - NORMAL * share.standard_error > 1.0
}

/// No share at all, where a tier stays as long as those that it calls, but for what scrapes bring in: it is the one
/// that times them, so that its own work is in their times.
fn within_called(stays: &[Stay]) -> Option<Number> {
    let sum = |of: fn(&Stay) -> f64| stays.iter().map(of).sum::<f64>();
    let own = sum(|stay| stay.stayed_s) / sum(|stay| stay.service_s);
    let none = Number::exact(0.0);
    (stays.len() >= FEWEST && own.abs() < TOLERANCE).then_some(none)
}

/// What one window says of a tier, of servers that are busy for so long with a visit.
pub(crate) fn stay(
    monitored: &Monitored,
    window: &Window,
    index: usize,
    service_s: f64,
) -> Option<Stay> {
    let means = &window.tiers[index];
    let arrivals = monitored.requests_per_s(window, index).filter(|rate| *rate > 0.0)?;
    let tier = &monitored.tiers[index];
    // As in the network: requests of its own make its servers slower.
    let slower_s = service_s / (1.0 - tier.own_busy / exact_f64(tier.servers));
    let (parts, servers) = stations(tier.servers, tier.queue_each);
    let even = vec![1.0 / exact_f64(parts)];
    let shares = if parts > 1 { tier.shares.as_ref().unwrap_or(&even) } else { &even };
    let others = Others { rate_per_s: tier.own_per_s, busy: tier.own_busy };
    let longer = if parts == 1 { others.longer(arrivals, servers, service_s)? } else { 1.0 };
    // Of servers that are alike, one represents all.
    let alike = if shares.len() == 1 { exact_f64(parts) } else { 1.0 };
    let mut modelled_s = 0.0;
    for share in shares {
        modelled_s += longer * alike * share * waiting_s(arrivals * share, servers, slower_s)?;
    }
    let mut stayed_s = means.response_time_s?;
    for called in &tier.calls {
        let other = &window.tiers[*called];
        stayed_s -= monitored.requests_per_s(window, *called)? / arrivals * other.response_time_s?;
    }
    let service_s = monitored.busy(window, index, false)? / arrivals;
    Some(Stay { modelled_s, service_s, stayed_s })
}

/// W of M/M/m in s; `None` without a steady state.
pub fn waiting_s(arrival_rate_per_s: f64, servers: u64, service_s: f64) -> Option<f64> {
    let offered = arrival_rate_per_s * service_s;
    if offered <= 0.0 {
        return Some(0.0);
    }
    let waits = erlang_c(offered, servers).ok()?;
    Some(waits * service_s / (exact_f64(servers) - offered))
}

/// How much longer than in M/M/m requests wait that are more or less even.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Uneven {
    /// As a factor, near saturation, and at low load; between them it goes with a power of the utilization.
    factor: f64,
    light: f64,
    power: f64,
}

impl Uneven {
    /// Bursts: by the same factor at any load.
    pub(crate) fn bursts(factor: f64) -> Self {
        Self { factor, light: factor, power: 1.0 }
    }

    /// Service times: at several servers and low load by less, since all of them must be busy with long requests at once. A request
    /// that waits does so for the first of m services to end. Within 3 % of exact waits of M/E/m and M/H₂/m up to 8 servers, from
    /// ρ = 0.3 on and factors of 0.6 to 2.5.
    ///
    /// # Source
    /// Burman and Smith 1983, A light-traffic theorem for multi-server queues.
    pub(crate) fn services(factor: f64, servers: u64) -> Self {
        let m = exact_f64(servers);
        let (light, power) = if factor <= 1.0 {
            (1.0 - (1.0 - factor) * 2.0 / (m + 1.0), m.sqrt() / 4.0)
        } else {
            (first_of(factor, servers), m.sqrt() / 2.0)
        };
        Self { factor, light, power }
    }

    pub(crate) fn at(&self, utilization: f64) -> f64 {
        self.light + (self.factor - self.light) * utilization.clamp(0.0, 1.0).powf(self.power)
    }
}

/// Mean time until the first of m services under way ends, over that of exponential ones: of two phases of balanced means, each has
/// half of what is under way.
fn first_of(factor: f64, servers: u64) -> f64 {
    // Of so many hardly all are long.
    const MANY: u64 = 64;
    if servers > MANY {
        return 1.0;
    }
    let spread = ((factor - 1.0) / factor).sqrt();
    let (short, long) = ((1.0 + spread).recip(), (1.0 - spread).recip());
    let m = exact_f64(servers);
    let mut ways = 0.5_f64.powf(m);
    let mut sum = 0.0;
    for among in 0..=servers {
        let k = exact_f64(among);
        sum += ways * m / (k / short + (m - k) / long);
        ways *= (m - k) / (k + 1.0);
    }
    sum
}

/// Requests of others at a tier, which keep servers for another time than those of the entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Others {
    pub(super) rate_per_s: f64,
    /// Servers that they keep busy.
    pub(super) busy: f64,
}

impl Others {
    /// How long requests of the entry wait among them, first come, first served, over how long they wait for servers that others
    /// make slower: both of exponential times, all of them as uneven as two such times are.
    pub(super) fn longer(self, rate_per_s: f64, servers: u64, service_s: f64) -> Option<f64> {
        if self.rate_per_s <= 0.0 || self.busy <= 0.0 || rate_per_s <= 0.0 {
            return Some(1.0);
        }
        let m = exact_f64(servers);
        let slower_s = waiting_s(rate_per_s, servers, service_s / (1.0 - self.busy / m))?;
        let all_per_s = rate_per_s + self.rate_per_s;
        let mean_s = (rate_per_s * service_s + self.busy) / all_per_s;
        let others_s = self.busy / self.rate_per_s;
        let square = 2.0 * (rate_per_s * service_s.powi(2) + self.busy * others_s) / all_per_s;
        let factor = square / mean_s.powi(2) / 2.0;
        let uneven = Uneven::services(factor, servers).at(all_per_s * mean_s / m);
        Some(uneven * waiting_s(all_per_s, servers, mean_s)? / slower_s)
    }
}

/// Widened by Student's t, since draws are normal.
fn widened(standard_error: f64, degrees: usize) -> f64 {
    standard_error * t_two_sided(CONFIDENCE, exact_f64(degrees as u64)) / NORMAL
}

/// f where h is 1.
fn slope(stays: &[Stay]) -> Number {
    let pairs = || stays.iter().map(|stay| (stay.modelled_s, stay.stayed_s - stay.service_s));
    let square: f64 = pairs().map(|(x, _)| x * x).sum();
    let slope = pairs().map(|(x, y)| x * y).sum::<f64>() / square;
    let residual: f64 = pairs().map(|(x, y)| (y - slope * x).powi(2)).sum();
    let degrees = stays.len() - 1;
    let error = (residual / exact_f64(degrees as u64) / square).sqrt();
    Number { value: slope.max(0.0), standard_error: widened(error, degrees) }
}

/// h where f is 1.
fn share_alone(stays: &[Stay]) -> Option<Number> {
    let shares: Vec<f64> = stays
        .iter()
        .filter(|stay| stay.service_s > 0.0)
        .map(|stay| (stay.stayed_s - stay.modelled_s) / stay.service_s)
        .collect();
    if shares.len() < FEWEST {
        return None;
    }
    let Number { value, standard_error } = mean_of(&shares);
    Some(Number { value, standard_error: widened(standard_error, shares.len() - 1) })
}

/// h and f together, by least squares of relative errors; `None` where the data do not separate them.
fn both(stays: &[Stay]) -> Option<Residence> {
    if stays.len() < FEWEST_OF_TWO {
        return None;
    }
    let scaled: Vec<(f64, f64, f64)> = stays
        .iter()
        .map(|stay| {
            let scale = stay.service_s + stay.modelled_s;
            (stay.service_s / scale, stay.modelled_s / scale, stay.stayed_s / scale)
        })
        .collect();
    let sum = |of: fn(&(f64, f64, f64)) -> f64| scaled.iter().map(of).sum::<f64>();
    let (ss, sw, ww) = (sum(|p| p.0 * p.0), sum(|p| p.0 * p.1), sum(|p| p.1 * p.1));
    let (sr, wr) = (sum(|p| p.0 * p.2), sum(|p| p.1 * p.2));
    let determinant = ss * ww - sw * sw;
    // Columns that are the same to a thousandth tell nothing apart.
    if determinant <= 1e-6 * ss * ww {
        return None;
    }
    let (share, factor) = ((sr * ww - wr * sw) / determinant, (wr * ss - sr * sw) / determinant);
    // Waiting cannot be negative; then the service alone explains the stay.
    let (share, factor) = if factor < 0.0 { (sr / ss, 0.0) } else { (share, factor) };
    let residual: f64 = scaled.iter().map(|(s, w, r)| (r - share * s - factor * w).powi(2)).sum();
    let degrees = stays.len() - 2;
    let variance = residual / exact_f64(degrees as u64);
    let fitted = |value: f64, other: f64| Number {
        value,
        standard_error: widened((variance * other / determinant).sqrt(), degrees),
    };
    Some(Residence {
        waiting_factor: fitted(factor, ss),
        waiting: Waiting::Fitted,
        held_up: fitted(share, ww),
        correlation: -sw / (ss * ww).sqrt(),
    })
}

#[cfg(test)]
mod tests {
    use kendall_queueing::distribution::Distribution;
    use kendall_queueing::station::map_ph;

    use super::*;

    /// Beside exact waits of M/E₄/m, M/E₂/m and M/H₂/m.
    #[test]
    fn uneven_requests_wait_less_than_evenly_longer_at_low_load() {
        for (scv, servers) in
            [0.25, 0.5, 2.0, 3.7].into_iter().flat_map(|scv| [1, 2, 4, 8].map(|m| (scv, m)))
        {
            let service = if scv < 1.0 {
                Distribution::erlang(if scv < 0.3 { 4 } else { 2 }, 1.0).unwrap()
            } else {
                Distribution::hyperexponential_balanced(1.0, scv).unwrap()
            };
            for utilization in [0.3, 0.5, 0.7, 0.9] {
                let rate = utilization * exact_f64(servers);
                let gaps = Distribution::exponential(1.0 / rate).unwrap();
                let Ok(Some(exact)) = map_ph((rate, &gaps), &service, servers, None) else {
                    panic!("too many phases: {scv}, {servers}");
                };
                let of_mmm = waiting_s(rate, servers, 1.0).unwrap();
                let found = Uneven::services((1.0 + scv) / 2.0, servers).at(utilization);
                let truth = exact.waiting_time.mean / of_mmm;
                assert!(
                    (found / truth - 1.0).abs() < 0.03,
                    "{scv}, {servers}, {utilization}: {found} for {truth}"
                );
            }
        }
    }

    /// Fitted to two servers at 70 %, whose times are those of M/H₂/2 with a factor of 2.35.
    #[test]
    fn what_others_wait_shrinks_with_more_servers() {
        let services = |servers, utilization| Uneven::services(2.35, servers).at(utilization);
        let fitted = Number { value: services(2, 0.7), standard_error: 0.1 };
        let residence = Residence { waiting: Waiting::Fitted, ..Residence::station(fitted) };
        let more = residence.with_servers((2, 4), (0.7, 0.35)).waiting_factor;
        assert!((more.value - services(4, 0.35)).abs() < 1e-6, "{more:?}");
        let same = residence.with_servers((2, 2), (0.7, 0.7)).waiting_factor;
        assert!((same.value - fitted.value).abs() < 1e-9, "{same:?}");
        let even = Residence::station(Number::exact(1.0)).with_servers((2, 9), (0.7, 0.2));
        assert!((even.waiting_factor.value - 1.0).abs() < 1e-6, "{even:?}");
    }
}
