//! How the number in a small network settles after a step of arrival rates or populations.

use kendall_units::exact_f64;

use super::SolveError;
use super::chains::{kind, service};
use super::markov::Chain;
use crate::model::{
    Balking, Batch, Class, Discipline, Leg, Model, Place, Station, Workload, legs_from_visits,
    refused,
};
use crate::network::{Load, Network as Inside, Resource, convolution};
use crate::station::{Settling, StationError, until_settled};

/// Most states of the network's Markov chain.
const MOST_STATES: usize = 100_000;
/// Probability of more customers at a station of an open network than its states have.
const CUT: f64 = 1e-10;
const INSTEAD: &str = "for larger networks take the station that is busiest by itself";

/// The mean number in a network from the steady state before on; by the numbers of each class at each station.
///
/// # Errors
/// [`ModelError`](crate::model::ModelError) where the network is no Markov chain of its numbers, has no
/// steady state before, or has too many states.
///
/// # Source
/// Uniformization (Jensen 1953) of the chain.
pub(super) fn of_network(model: &Model) -> Result<Option<Settling>, SolveError> {
    let Some(stepped) = model.classes.iter().position(|class| class.before.is_some()) else {
        return Ok(None);
    };
    let network = Network::of(model, stepped)?;
    let empty = vec![0; network.waiting(network.model.pools.len())];
    let chain = Chain::of(empty, MOST_STATES, |state| network.moves(state));
    let chain = chain.ok_or_else(|| {
        network.refuse(format!("a network of at most {MOST_STATES} states: {INSTEAD}"))
    })?;
    let slow = || {
        let steps =
            "one whose steady state, and what leads there, takes fewer than 2000000000 steps";
        network.refuse(format!("{steps}: {INSTEAD}"))
    };
    let inside = |state: &Vec<u64>| exact_f64(state.iter().sum::<u64>());
    let first = chain.steady(0).ok_or_else(slow)?;
    let last = chain.steady(1).ok_or_else(slow)?;
    let (from, to) = (chain.mean(&first, inside), chain.mean(&last, inside));
    let leaves = chain.leaves(1);
    let rate = leaves.iter().copied().fold(0.0, f64::max) * 1.0001;
    let next = |now: &[f64]| {
        let mut then: Vec<f64> =
            now.iter().zip(&leaves).map(|(p, out)| p * (1.0 - out / rate)).collect();
        for (source, target, [_, moves]) in &chain.moves {
            then[*target] += now[*source] * (moves / rate);
        }
        then
    };
    let cost = exact_f64(chain.moves.len() + chain.states.len());
    let mean = |now: &[f64]| chain.mean(now, inside);
    match until_settled(first, (from, to), (rate, cost), next, mean) {
        Ok(settling) => Ok(Some(settling)),
        Err(StationError::TooLarge { .. }) => Err(slow()),
        Err(source) => Err(SolveError::Station { station: model.name.clone(), source }),
    }
}

/// A network whose state is the number of each class at each station, and who waits for the tokens of each pool.
struct Network<'a> {
    model: &'a Model,
    /// By station and class.
    visits: Vec<Vec<f64>>,
    legs: Vec<Leg>,
    /// Of each pool, the station and class that get a token.
    entries: Vec<(usize, usize)>,
    /// Most at each station, and most who wait for each pool.
    most: Vec<u64>,
    /// The first class that steps.
    stepped: usize,
}

impl<'a> Network<'a> {
    fn of(model: &'a Model, stepped: usize) -> Result<Self, SolveError> {
        let visits = model.visits()?;
        let legs = legs(model, &visits);
        let mut network =
            Self { model, visits, legs, entries: Vec::new(), most: Vec::new(), stepped };
        network.check_times()?;
        network.check_stations()?;
        for pool in 0..model.pools.len() {
            network.entries.push(network.entry(pool)?);
        }
        network.most = network.most()?;
        Ok(network)
    }

    fn refuse(&self, expected: impl Into<String>) -> SolveError {
        let class = &self.model.classes[self.stepped];
        SolveError::Model(refused(class.key_before(), class.before.unwrap_or(0.0), expected.into()))
    }

    fn check_times(&self) -> Result<(), SolveError> {
        let plain = |station: &Station| is_memoryless(station) && station.capacity.is_none();
        let model = self.model;
        let switches = self.legs.iter().any(|leg| leg.class != leg.to_class);
        let closed = model.classes.iter().any(|class| !class.is_open());
        let known = model.classes.iter().all(comes_at_random) && model.stations.iter().all(plain);
        if !known || switches && closed {
            return Err(self.refuse(
                "exponential gaps or think times and services, without limits, impatience, forks, and \
                 classes of a population that turn into others: the numbers must be a Markov chain",
            ));
        }
        let busy = |class: &&Class| !class.is_open() && class.think_time_s() <= 0.0;
        match model.classes.iter().find(busy) {
            None => Ok(()),
            Some(class) => Err(self.refuse(format!(
                "a think time of `{}`: without one all its customers are inside at once, and their number \
                 does not change; a think time far below a response is next to none",
                class.name
            ))),
        }
    }

    /// Refuses stations whose numbers do not say who is served next.
    fn check_stations(&self) -> Result<(), SolveError> {
        let open = self.model.classes.iter().all(Class::is_open);
        for (station, row) in self.model.stations.iter().zip(&self.visits) {
            let mut means = (0..row.len()).filter(|class| row[*class] > 0.0);
            let Some(first) = means.next().map(|class| service(station, class)) else { continue };
            let alone = means.clone().next().is_none();
            let alike = means.all(|class| (service(station, class) / first - 1.0).abs() <= 1e-12);
            let shared = station.is_delay()
                || matches!(station.discipline, Discipline::Ps | Discipline::Dps);
            let by_size = matches!(station.discipline, Discipline::Sjf | Discipline::Srpt);
            // At a single station the total number is the same in any order.
            let total =
                alike && open && self.model.stations.len() == 1 && self.legs.len() == 2 * row.len();
            if by_size || !(alone || shared || total) {
                return Err(self.refuse(format!(
                    "a discipline of `{}` that depends on the numbers alone: `ps`, or one class there and an \
                     order that does not know sizes",
                    station.name
                )));
            }
        }
        Ok(())
    }

    /// Where customers come into a pool: at one station, as one class.
    fn entry(&self, pool: usize) -> Result<(usize, usize), SolveError> {
        let name = &self.model.pools[pool].name;
        let unordered = self.model.routes.is_empty()
            && self.visits.iter().flatten().any(|visits| (visits - 1.0).abs() > 1e-12);
        if unordered {
            return Err(
                self.refuse(format!("routes: the order of the stations of `{name}` is not known"))
            );
        }
        let held = |leg: &Leg| self.pools_at(leg.to, leg.to_class).collect::<Vec<_>>();
        let into = |leg: &&Leg| {
            held(leg).contains(&pool)
                && !self.pools_at(leg.from, leg.class).any(|other| other == pool)
        };
        let mut entries = self.legs.iter().filter(into).map(|leg| match leg.to {
            Place::Station(station) => ((station, leg.to_class), held(leg).len()),
            Place::Outside => ((0, 0), 0),
        });
        let nested = (0..self.model.stations.len()).any(|station| {
            (0..self.model.classes.len())
                .any(|class| self.pools_at(Place::Station(station), class).nth(1).is_some())
        });
        match entries.next() {
            Some((first, 1)) if !nested && entries.all(|(other, _)| other == first) => Ok(first),
            _ => Err(self.refuse(format!(
                "a pool `{name}` that one class enters at one station, and that shares no station with another"
            ))),
        }
    }

    fn pools_at(&self, place: Place, class: usize) -> impl Iterator<Item = usize> {
        let pools = self.model.pools.iter().enumerate();
        pools.filter_map(move |(index, pool)| match place {
            Place::Station(at) if pool.stations.contains(&at) && pool.classes.contains(&class) => {
                Some(index)
            }
            _ => None,
        })
    }

    fn at(&self, station: usize, class: usize) -> usize {
        station * self.model.classes.len() + class
    }

    /// Where the state has who waits for a pool.
    fn waiting(&self, pool: usize) -> usize {
        self.at(self.model.stations.len(), pool)
    }

    fn there<'s>(&self, state: &'s [u64], station: usize) -> &'s [u64] {
        &state[self.at(station, 0)..self.at(station + 1, 0)]
    }

    fn tokens_used(&self, state: &[u64], pool: usize) -> u64 {
        let pool = &self.model.pools[pool];
        let at = |station| pool.classes.iter().map(move |class| self.at(station, *class));
        pool.stations.iter().copied().flat_map(at).map(|place| state[place]).sum()
    }

    /// Customers of a class that come per second, before and after the step.
    fn arrivals(&self, class: usize, state: &[u64]) -> [f64; 2] {
        let levels = levels(&self.model.classes[class]);
        let Workload::Closed { think_time, .. } = &self.model.classes[class].workload else {
            return levels;
        };
        let stations = (0..self.model.stations.len()).map(|station| state[self.at(station, class)]);
        let pools = self.entries.iter().enumerate().filter(|(_, entry)| entry.1 == class);
        let waiting = pools.map(|(pool, _)| state[self.waiting(pool)]);
        let inside = exact_f64(stations.chain(waiting).sum::<u64>());
        levels.map(|level| (level - inside).max(0.0) / think_time.mean())
    }

    /// Services of a class that end per second.
    fn served(&self, state: &[u64], at: usize, class: usize) -> f64 {
        let station = &self.model.stations[at];
        let weight = |class| station.weights.get(class).copied().unwrap_or(1.0);
        let there = self.there(state, at);
        let of = |(class, number): (usize, &u64)| weight(class) * exact_f64(*number);
        let all: f64 = there.iter().enumerate().map(of).sum();
        if there[class] == 0 {
            return 0.0;
        }
        let speed = station.rate_multiplier(there.iter().sum()) / service(station, class);
        speed * of((class, &there[class])) / all
    }

    /// Where it goes from a state, and how often, before and after the step.
    fn moves(&self, state: &[u64]) -> Vec<(Vec<u64>, [f64; 2])> {
        let mut moves = Vec::new();
        for leg in &self.legs {
            let rates = match leg.from {
                Place::Outside => self.arrivals(leg.class, state),
                Place::Station(from) => [self.served(state, from, leg.class); 2],
            };
            let rates = rates.map(|rate| rate * leg.probability);
            if rates[0].max(rates[1]) <= 0.0 {
                continue;
            }
            let next = self.after(leg, state.to_vec());
            let fits = (0..self.model.stations.len())
                .all(|at| self.there(&next, at).iter().sum::<u64>() <= self.most[at]);
            let waits = (0..self.entries.len()).all(|pool| {
                next[self.waiting(pool)] <= self.most[self.model.stations.len() + pool]
            });
            if next != state && fits && waits {
                moves.push((next, rates));
            }
        }
        moves
    }

    fn after(&self, leg: &Leg, mut next: Vec<u64>) -> Vec<u64> {
        let left = self.pools_at(leg.from, leg.class).next();
        let into = self.pools_at(leg.to, leg.to_class).next();
        if let Place::Station(from) = leg.from {
            next[self.at(from, leg.class)] -= 1;
        }
        if let Some(pool) = left.filter(|_| left != into)
            && next[self.waiting(pool)] > 0
        {
            next[self.waiting(pool)] -= 1;
            let (station, class) = self.entries[pool];
            next[self.at(station, class)] += 1;
        }
        let Place::Station(to) = leg.to else { return next };
        let full = into.filter(|pool| {
            left != into && self.tokens_used(&next, *pool) >= self.model.pools[*pool].tokens
        });
        match full {
            None => next[self.at(to, leg.to_class)] += 1,
            Some(pool) => {
                let room = self.model.pools[pool].queue_capacity.unwrap_or(u64::MAX);
                let waiting = self.waiting(pool);
                next[waiting] = (next[waiting] + 1).min(room);
            }
        }
        next
    }

    /// Most customers at each station and before each pool: populations, or more than come together but for
    /// [`CUT`].
    fn most(&self) -> Result<Vec<u64>, SolveError> {
        let classes = &self.model.classes;
        let population: u64 = classes.iter().map(Class::population).sum();
        let load = |station: usize| -> f64 {
            let of = |(class, row): (&Class, &f64)| {
                let rate = if class.is_open() {
                    levels(class).into_iter().fold(0.0, f64::max)
                } else {
                    0.0
                };
                rate * row
            };
            let demand = |class| service(&self.model.stations[station], class);
            let rates = classes.iter().zip(&self.visits[station]).map(of);
            rates
                .enumerate()
                .map(|(class, rate)| if rate > 0.0 { rate * demand(class) } else { 0.0 })
                .sum()
        };
        let refuse = |expected| self.refuse(expected);
        let stations = self.model.stations.iter().enumerate();
        let at = |(index, station)| most_at(station, load(index), population).map_err(refuse);
        let mut most = stations.map(at).collect::<Result<Vec<u64>, _>>()?;
        for (pool, (_, class)) in self.model.pools.iter().zip(&self.entries) {
            let fastest = self.fastest(pool.tokens, &pool.stations, *class)?;
            let rate = levels(&classes[*class]).into_iter().fold(0.0, f64::max);
            if !classes[*class].is_open() {
                most.push(population);
                continue;
            }
            let ratio = rate / fastest;
            if ratio >= 1.0 && pool.queue_capacity.is_none() {
                return Err(self.refuse(format!(
                    "a steady state before and after: `{}` passes {fastest:.4} customers/s at most",
                    pool.name
                )));
            }
            let unlimited =
                if ratio < 1.0 { (CUT.ln() / ratio.ln()).ceil() + 5.0 } else { f64::INFINITY };
            let room = pool.queue_capacity.map_or(f64::INFINITY, exact_f64);
            most.push(kendall_units::whole_u64(unlimited.min(room).min(exact_f64(MOST_STATES))));
        }
        Ok(most)
    }

    /// What the stations of a pool pass at most, all tokens in use.
    fn fastest(&self, tokens: u64, stations: &[usize], class: usize) -> Result<f64, SolveError> {
        let resource = |index: &usize| {
            let station = &self.model.stations[*index];
            let demand = self.visits[*index][class] * service(station, class);
            Resource { kind: kind(station), demands: vec![demand] }
        };
        let load = Load::Closed { population: tokens, think_time: 0.0 };
        let inside =
            Inside { classes: vec![load], resources: stations.iter().map(resource).collect() };
        let names = stations.iter().map(|at| self.model.stations[*at].name.clone()).collect();
        let solved =
            convolution(&inside).map_err(|source| SolveError::Network { names, source })?;
        Ok(solved.throughput[0])
    }
}

/// Whether gaps or think times of a class are exponential.
pub(super) fn comes_at_random(class: &Class) -> bool {
    match &class.workload {
        Workload::Open { interarrival, batch, .. } => {
            interarrival.is_exponential() && *batch == Batch::Fixed(1)
        }
        Workload::Closed { think_time, .. } => think_time.is_exponential(),
    }
}

/// Whether what a station does next depends on the numbers there alone.
pub(super) fn is_memoryless(station: &Station) -> bool {
    let mut services = station.demands.iter().flatten().map(|demand| &demand.service);
    services.all(|service| service.is_exponential() && service.mean() > 0.0)
        && station.patience.is_none()
        && station.balking == Balking::Never
        && station.fork.is_none()
}

/// Arrival rate or population of a class, before and after.
fn levels(class: &Class) -> [f64; 2] {
    let after = match &class.workload {
        Workload::Open { arrival_rate_per_s, .. } => *arrival_rate_per_s,
        Workload::Closed { population, .. } => exact_f64(*population),
    };
    [class.before.unwrap_or(after), after]
}

/// Where customers go next: as routes say, or as visits can be had.
pub(super) fn legs(model: &Model, visits: &[Vec<f64>]) -> Vec<Leg> {
    if !model.routes.is_empty() {
        return model.routes.iter().filter(|leg| leg.probability > 0.0).cloned().collect();
    }
    let of = |class: usize| {
        let visited =
            visits.iter().map(|row| row[class]).enumerate().filter(|(_, visits)| *visits > 0.0);
        let legs = legs_from_visits(&visited.collect::<Vec<_>>());
        legs.into_iter().map(move |(from, to, probability)| Leg {
            class,
            from,
            to_class: class,
            to,
            probability,
        })
    };
    (0..model.classes.len()).flat_map(of).collect()
}

/// Most customers at one station that is offered this load, beside so many of populations; else what it would
/// have to be.
fn most_at(station: &Station, load: f64, population: u64) -> Result<u64, String> {
    if !station.is_delay() && load >= station.rate_multiplier(u64::MAX) {
        return Err("one at which there is a steady state, before the step too".to_owned());
    }
    let (mut weight, mut sum) = (1.0_f64, 1.0);
    let uneven = station.servers.max(exact_u64(station.rate_multipliers.len()));
    for n in 1..=exact_u64(MOST_STATES) {
        // Beside all of them, who are served alike.
        let all = n + population;
        let ratio = load * (exact_f64(all) / exact_f64(n)) / station.rate_multiplier(all);
        weight *= ratio;
        sum += weight;
        // What is left beyond n is a geometric series, or falls faster.
        let even = n >= uneven || station.is_delay();
        if even && ratio < 1.0 && weight / (1.0 - ratio) < CUT * sum {
            return Ok(all);
        }
    }
    Err(format!("a network of at most {MOST_STATES} states: {INSTEAD}"))
}

fn exact_u64(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
