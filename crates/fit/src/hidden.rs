//! A station that no counter shows, found in the curve alone: m servers that a request holds for a
//! time s each, beside all that it does elsewhere.
//!
//! The curve of a closed loop says two things of it: how much it carries, m/s, and, by the sharpness
//! of the knee, how many requests it holds at once. Candidates are closed networks of one station
//! M/M/m and a delay, whose times are exponential, and curves between those and their asymptotes
//! N/(R₁ + Z) and m/s, which constant times come near to. Sizes that the runs do not tell apart are
//! reported together.
//!
//! A further shape serves all waiting requests together ([`batch_station`]). Its curve is none of theirs: a
//! second client waits for the batch of the first, and further ones cost next to nothing, so that response times rise
//! first and hardly then, where those of servers hardly rise first.

use kendall_stats::estimate::Estimate;
use kendall_stats::load_curve::{Evidence, Posterior, Shape};
use kendall_units::exact_f64;
use serde::{Deserialize, Serialize};

/// A station that the curve shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HiddenStation {
    /// Sizes m that the runs leave, by rising size, with their probability.
    pub sizes: Vec<(u32, f64)>,
    /// m/s: the most that it carries a second.
    pub capacity_per_s: Estimate,
    /// s for the likeliest size.
    pub hold_s: Estimate,
    /// Largest relative error of the throughput at a load, of the likeliest station.
    pub worst_error: f64,
}

impl HiddenStation {
    /// The likeliest size.
    pub fn size(&self) -> u32 {
        let best = self.sizes.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        best.map_or(1, |(size, _)| *size)
    }

    /// The size, where the runs leave only one.
    pub fn only_size(&self) -> Option<u32> {
        match self.sizes.as_slice() {
            [(size, _)] => Some(*size),
            _ => None,
        }
    }

    /// It, where a request that takes so long at light load holds it all the time: m is near X·R then. As it is, where no
    /// size that the runs leave is near.
    pub fn held_throughout(&self, response_time_s: f64) -> Self {
        let size = self.capacity_per_s.center * response_time_s;
        let near = |at: &&(u32, f64)| (f64::from(at.0) / size).ln().abs() < NEAR;
        let sizes: Vec<(u32, f64)> = self.sizes.iter().filter(near).copied().collect();
        if sizes.is_empty() {
            return self.clone();
        }
        let mut found = Self { sizes, ..self.clone() };
        let size = f64::from(found.size());
        found.hold_s = found.capacity_per_s.map(|per_s| size / per_s);
        found
    }
}

/// A station that serves what waits together, as the curve shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchStation {
    /// Most that it serves together, of which the runs leave these, by rising number, with their probability.
    pub most: Vec<(u32, f64)>,
    /// What a batch takes by itself, what each in it takes more, and what a request takes elsewhere, thinking
    /// included, in s: of the likeliest station.
    pub fixed_s: f64,
    pub each_s: f64,
    pub outside_s: f64,
    /// Largest relative error of the throughput at a load, of the likeliest station.
    pub worst_error: f64,
}

impl BatchStation {
    /// Half of the probability is below.
    pub fn median(&self) -> u32 {
        let mut so_far = 0.0;
        let half = 0.5 * self.most.iter().map(|(_, probability)| probability).sum::<f64>();
        let reaches = |(_, probability): &&(u32, f64)| {
            so_far += probability;
            so_far >= half
        };
        self.most.iter().find(reaches).map_or(1, |(most, _)| *most)
    }
}

/// What stations are taken to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Servers,
    Batches,
}

/// Ratio, as a logarithm, up to which a size is near another: less than so much of a response time at light load is spent elsewhere.
const NEAR: f64 = 0.2;
/// Loads up to which the candidates are solved.
const HIGHEST_LOAD: f64 = 2_000.0;
/// Share of the probability that the reported sizes must hold together.
const TOLD: f64 = 0.95;
/// How far a curve lies between exponential times and its asymptotes, and how likely each is.
const REGULAR: [(f64, f64); 3] = [(0.0, 0.5), (0.4, 0.3), (0.8, 0.2)];
/// Share of the prior of a request that does nothing outside the station.
const NOTHING_ELSE: f64 = 0.3;
const STEPS: u32 = 40;
/// How likely a station with batches is before any run, beside one without; and from when on it is taken for one.
const BATCHES: f64 = 0.1;
const SHOWN: f64 = 0.95;
/// Most that are served together, as they are tried.
const MOST: [u32; 15] = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];
/// Least share of a batch of one that goes by what is in it.
const LEAST_EACH: f64 = 0.003;
/// Shares of the cycle at light load outside of it: so many, finer towards none.
const OUTSIDES: u32 = 10;
const BATCH_STEPS: u32 = 12;

/// Finds it in the runs of a closed loop; `None` where the loads are no numbers of clients.
pub fn hidden_station(runs: &Evidence, confidence: f64) -> Option<HiddenStation> {
    let posterior = stations(runs, &[Family::Servers])?;
    let shapes = posterior.shapes();
    let (size, sizes) = sizes_of(&posterior)?;
    let capacity = posterior.level(confidence, |at| shapes[at].number);
    Some(HiddenStation {
        sizes,
        hold_s: capacity.map(|per_s| f64::from(size) / per_s),
        capacity_per_s: capacity,
        worst_error: posterior.worst_error(runs, |at| shapes[at].kind.size() == size),
    })
}

/// Finds one that serves what waits together, taken for granted that it is one.
pub fn batch_station(runs: &Evidence, confidence: f64) -> Option<BatchStation> {
    let posterior = stations(runs, &[Family::Batches])?;
    let (_, most) = sizes_of(&posterior)?;
    // Shapes are reported with the likeliest first.
    let best = posterior.shapes()[posterior.likely().next()?];
    let Kind::Batches { outside, .. } = best.kind else { return None };
    // At one client, whose cycle is the unit of time.
    let cycle_s = 1.0 / posterior.level(confidence, |_| 0.0).center;
    let [fixed, each] = best.of_one(outside);
    Some(BatchStation {
        most,
        fixed_s: fixed * cycle_s,
        each_s: each * cycle_s,
        outside_s: outside * cycle_s,
        worst_error: posterior.worst_error(runs, |_| true),
    })
}

/// The likeliest size, and those that hold nearly all of the probability together.
fn sizes_of(posterior: &Posterior<Station>) -> Option<(u32, Vec<(u32, f64)>)> {
    let shapes = posterior.shapes();
    let mut sizes: Vec<u32> = shapes.iter().map(|station| station.kind.size()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut sizes: Vec<(u32, f64)> = sizes
        .into_iter()
        .map(|size| (size, posterior.probability(|at| shapes[at].kind.size() == size)))
        .collect();
    sizes.sort_by(|a, b| b.1.total_cmp(&a.1));
    let size = sizes.first()?.0;
    let mut told = 0.0;
    sizes.retain(|(_, probability)| {
        let keep = told < TOLD;
        told += probability;
        keep
    });
    sizes.sort_unstable_by_key(|(size, _)| *size);
    Some((size, sizes))
}

/// X of one more run at another load, by all stations that the runs leave: median and interval.
pub(crate) fn station_at(
    runs: &Evidence,
    family: Family,
    load: f64,
    confidence: f64,
) -> Option<Estimate> {
    let solved = load <= HIGHEST_LOAD && load.fract() == 0.0;
    let found = solved.then(|| stations(runs, &[family])).flatten()?;
    Some(found.run_at(runs, load, confidence))
}

/// Batches where the runs show them beyond doubt.
pub(crate) fn family(runs: &Evidence) -> Family {
    let both = stations(runs, &[Family::Servers, Family::Batches]);
    let are_batches = |both: &Posterior<Station>| {
        both.probability(|at| matches!(both.shapes()[at].kind, Kind::Batches { .. })) > SHOWN
    };
    if both.is_some_and(|both| are_batches(&both)) { Family::Batches } else { Family::Servers }
}

fn stations(runs: &Evidence, families: &[Family]) -> Option<Posterior<Station>> {
    let levels = runs.levels();
    let high = *levels.last()?;
    if high > HIGHEST_LOAD || levels.iter().any(|load| load.fract() != 0.0) {
        return None;
    }
    let mut cells: Vec<Cells> = Vec::new();
    for family in families {
        cells.extend(match family {
            Family::Servers => Cells::servers(high),
            Family::Batches => Cells::batches(),
        });
    }
    for _ in 0..2 {
        cells = cells.iter().map(|cells| cells.around(runs)).collect();
    }
    Some(runs.posterior(cells.iter().flat_map(Cells::stations).collect()))
}

/// What a station is, but for one number of it. In a closed loop whose cycle at one client is one unit of time.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// M/M/m and a delay, between exponential times and their asymptotes. The number is ln(m/s), where these cross.
    Servers { servers: u32, regular: f64 },
    /// One that serves all who wait together, `most` of them, beside a delay of this share of the cycle. The number is
    /// ln of the share of a batch of one that each in it takes.
    Batches { most: u32, outside: f64 },
}

impl Kind {
    fn size(self) -> u32 {
        match self {
            Self::Servers { servers, .. } => servers,
            Self::Batches { most, .. } => most,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Station {
    kind: Kind,
    number: f64,
    prior: f64,
}

/// X of `clients` with exponential times: the stationary state of the requests in the station.
fn exponential(clients: f64, servers: f64, crossing: f64) -> f64 {
    let hold = servers / crossing.exp();
    let outside = 1.0 - hold;
    if outside < 1e-9 {
        return clients.min(servers) / hold;
    }
    let (mut weight, mut all, mut served, mut inside) = (1.0, 1.0, 0.0, 0.0);
    while inside < clients {
        weight *= (clients - inside) / outside;
        inside += 1.0;
        weight *= hold / inside.min(servers);
        all += weight;
        served += weight * inside.min(servers);
        if all > 1e200 {
            (weight, all, served) = (weight * 1e-200, all * 1e-200, served * 1e-200);
        }
    }
    served / all / hold
}

/// X of `clients` whose batches of b take c + b·d. Of those outside, a share p = 1 − e^(−(c + b·d)/outside) comes back while
/// one is served; where none does, with the chance (1 − p)^(N − b), the next begins when one comes. So the mean batch
/// is b = (N − b)·p + (1 − p)^(N − b), and X is b a batch, and no more than that of full ones.
fn batched(clients: f64, most: f64, outside: f64, [fixed, each]: [f64; 2]) -> f64 {
    const HALVINGS: u32 = 30;
    let time = |batch: f64| fixed + each * batch;
    let next = |batch: f64| {
        let stays = (-time(batch) / outside).exp();
        let none = stays.powf(clients - batch);
        ((clients - batch) * (1.0 - stays) + none, none)
    };
    let (mut low, mut high) = (1.0, clients);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if next(middle).0 > middle { low = middle } else { high = middle }
    }
    let batch = f64::midpoint(low, high);
    let idle = next(batch).1 * outside / clients;
    (batch / (time(batch) + idle)).min(most / time(most))
}

impl Station {
    /// What a batch takes by itself, and what each in it takes more, as shares of the cycle.
    fn of_one(&self, outside: f64) -> [f64; 2] {
        let each = self.number.exp();
        [(1.0 - outside) * (1.0 - each), (1.0 - outside) * each]
    }
}

impl Shape for Station {
    fn height(&self, load: f64) -> f64 {
        match self.kind {
            Kind::Servers { servers, regular } => {
                let bound = load.ln().min(self.number);
                let exponential = exponential(load, f64::from(servers), self.number);
                regular * bound + (1.0 - regular) * exponential.ln()
            }
            Kind::Batches { most, outside } => {
                batched(load, f64::from(most), outside, self.of_one(outside)).ln()
            }
        }
    }

    fn prior(&self) -> f64 {
        self.prior
    }
}

/// Sizes that are tried: all small ones, then some.
pub(crate) fn sizes(high: f64) -> impl Iterator<Item = u32> {
    let some = [20, 24, 28, 32, 40, 48, 64, 80, 96, 128];
    (1..=16).chain(some).filter(move |size| f64::from(*size) <= high)
}

/// Stations of one kind, over a range of their number.
#[derive(Debug, Clone, Copy)]
struct Cells {
    kind: Kind,
    range: (f64, f64),
    /// Prior of a unit of the range; of one point, all of it.
    density: f64,
}

impl Cells {
    /// Over all that loads up to `high` may show.
    fn servers(high: f64) -> Vec<Self> {
        let of_size = 1.0 / exact_f64(sizes(high).count());
        let most = (2.0 * high).ln();
        let mut cells = Vec::new();
        for servers in sizes(high) {
            let least = f64::from(servers).ln();
            cells.extend(REGULAR.map(|(regular, likely)| {
                let density = of_size * (1.0 - NOTHING_ELSE) * likely / (most - least);
                Self { kind: Kind::Servers { servers, regular }, range: (least, most), density }
            }));
            let density = of_size * NOTHING_ELSE;
            let kind = Kind::Servers { servers, regular: 0.0 };
            cells.push(Self { kind, range: (least, least), density });
        }
        cells
    }

    fn batches() -> Vec<Self> {
        let range = (LEAST_EACH.ln(), 0.0);
        let of_kind = BATCHES / exact_f64(MOST.len()) / f64::from(OUTSIDES);
        let density = of_kind / (range.1 - range.0);
        let outsides =
            (0..OUTSIDES).map(|at| ((f64::from(at) + 0.5) / f64::from(OUTSIDES)).powi(2));
        let kinds = outsides.flat_map(|outside| MOST.map(|most| Kind::Batches { most, outside }));
        kinds.map(|kind| Self { kind, range, density }).collect()
    }

    fn steps(&self) -> u32 {
        match self.kind {
            Kind::Servers { .. } => STEPS,
            Kind::Batches { .. } => BATCH_STEPS,
        }
    }

    fn step(&self) -> f64 {
        (self.range.1 - self.range.0) / f64::from(self.steps())
    }

    /// Middles of the cells.
    fn stations(&self) -> Vec<Station> {
        let Self { kind, range, density } = *self;
        let step = self.step();
        if step <= 0.0 {
            return vec![Station { kind, number: range.0, prior: density }];
        }
        let at = |place: u32| range.0 + step * (f64::from(place) + 0.5);
        let prior = density * step;
        (0..self.steps()).map(|place| Station { kind, number: at(place), prior }).collect()
    }

    /// The part of the range in which stations are not far less likely than the best of them.
    fn around(&self, runs: &Evidence) -> Self {
        const FAR: f64 = 9.0;
        let stations = self.stations();
        let weights = runs.log_weights(&stations);
        let best = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let near = || {
            let both = stations.iter().zip(&weights);
            both.filter(|(_, weight)| **weight > best - FAR).map(|(station, _)| station.number)
        };
        let low = near().fold(f64::INFINITY, f64::min) - self.step();
        let high = near().fold(f64::NEG_INFINITY, f64::max) + self.step();
        Self { range: (low.max(self.range.0), high.min(self.range.1)), ..*self }
    }
}

#[cfg(test)]
mod tests {
    use kendall_stats::load_curve::CurveRun;

    use super::*;

    /// Two runs a load that differ by some percent, of a truth.
    fn evidence(truth: impl Fn(f64) -> f64) -> Evidence {
        let off = [0.01, -0.02, 0.015, -0.005, 0.02, -0.01, 0.0, 0.01, -0.015, 0.005, -0.01, 0.02];
        let loads = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
        let runs: Vec<CurveRun> = (loads.iter().cycle().zip(off))
            .map(|(&load, off)| CurveRun {
                load,
                throughput_per_s: truth(load) * (1.0 + off),
                weight: 1.0,
            })
            .collect();
        Evidence::of(&runs).unwrap()
    }

    /// A lock that is held for 2.5 ms: the curve is flat from one client on.
    #[test]
    fn a_lock_is_a_station_of_size_one() {
        let found = hidden_station(&evidence(|_| 400.0), 0.95).unwrap();
        assert_eq!(found.only_size(), Some(1), "{found:?}");
        assert!((found.hold_s.center - 2.5e-3).abs() < 0.1e-3, "{found:?}");
        assert!(found.worst_error < 0.05);
    }

    /// A semaphore of four, each held for 10 ms of a request of 11 ms.
    #[test]
    fn a_pool_is_found_with_its_size_and_hold_time() {
        let truth = |n: f64| (n / 11e-3).min(4.0 / 10e-3);
        let found = hidden_station(&evidence(truth), 0.95).unwrap();
        assert_eq!(found.size(), 4, "{found:?}");
        let interval = found.hold_s.interval.unwrap();
        assert!(interval.contains(10e-3) && interval.half_width() < 1e-3, "{found:?}");
        assert!(found.worst_error < 0.1, "{found:?}");
    }

    /// Processes of which each serves one connection from its acceptance to its end.
    #[test]
    fn what_a_request_holds_all_the_time_has_the_size_of_all_that_is_served() {
        let sizes = vec![(1, 0.3), (2, 0.3), (3, 0.4)];
        let capacity = Estimate::exact(265.0);
        let hold_s = Estimate::exact(3.0 / 265.0);
        let station = HiddenStation { sizes, capacity_per_s: capacity, hold_s, worst_error: 0.03 };
        assert_eq!(station.held_throughout(12.1e-3).only_size(), Some(3));
        let one = station.held_throughout(3.9e-3);
        assert_eq!(one.only_size(), Some(1));
        assert!((one.hold_s.center - 1.0 / 265.0).abs() < 1e-12);
        assert_eq!(station.held_throughout(0.1), station, "what follows takes longer");
    }

    /// Where no limit is reached, no size can be determined.
    #[test]
    fn a_line_tells_no_size() {
        let found = hidden_station(&evidence(|n| 50.0 * n), 0.95).unwrap();
        assert!(found.only_size().is_none() && found.sizes.len() > 3, "{found:?}");
    }

    /// Batches of 16 at most take 5 ms and 0.2 ms for each: with two clients each waits for the other's.
    #[test]
    fn batches_are_told_from_servers_by_where_response_times_rise() {
        let truth = |n: f64| match n {
            n if n < 2.0 => 1.0 / 5.2e-3,
            n if n <= 32.0 => n / (2.0 * 5e-3 + n * 0.2e-3),
            _ => 16.0 / 8.2e-3,
        };
        let runs = evidence(truth);
        assert_eq!(family(&runs), Family::Batches);
        let found = batch_station(&runs, 0.95).unwrap();
        assert!((found.fixed_s / 5e-3 - 1.0).abs() < 0.1, "{found:?}");
        assert!((found.each_s / 0.2e-3 - 1.0).abs() < 0.25, "{found:?}");
        assert!(found.worst_error < 0.05 && found.most[0].0 >= 12, "{found:?}");
        // A lock, a pool, a pool behind a delay, and what no load fills, are servers.
        let servers: [fn(f64) -> f64; 4] = [
            |_| 400.0,
            |n| (n / 11e-3).min(4.0 / 10e-3),
            |n| n.min(8.0) / (20e-3 + 1e-3 * n),
            |n| 50.0 * n,
        ];
        for truth in servers {
            assert_eq!(family(&evidence(truth)), Family::Servers);
        }
    }
}
