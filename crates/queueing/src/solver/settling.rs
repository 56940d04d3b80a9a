//! How the number in a small network settles after a step of the arrival rate or the population.

use std::collections::BTreeMap;

use kendall_units::exact_f64;

use super::SolveError;
use crate::model::{
    Balking, Batch, Discipline, Model, Place, Station, Workload, legs_from_visits, refused,
};
use crate::station::{Settling, StationError, until_settled};

/// Most states of the network's Markov chain.
const MOST_STATES: usize = 100_000;
/// Probability of more customers at a station of an open network than its states have.
const CUT: f64 = 1e-10;
const KEYS: [&str; 2] = ["arrival_rate_before_per_s", "population_before"];

/// The mean number in a network of one class from the steady state before on.
///
/// # Errors
/// [`ModelError::Refused`](crate::model::ModelError) where the network is no Markov chain of its numbers, has no
/// steady state before, or has too many states.
///
/// # Source
/// Uniformization (Jensen 1953) of the chain; steady states by their product form (Jackson 1963; Gordon and
/// Newell 1967).
pub(super) fn of_network(model: &Model) -> Result<Option<Settling>, SolveError> {
    let Some(step) = Step::of(model)? else { return Ok(None) };
    let visits: Vec<f64> = model.visits()?.iter().map(|row| row[0]).collect();
    let network = Chain::of(model, &step, &visits)?;
    let (first, from) = network.steady(model, &step, &visits, step.before);
    let (_, to) = network.steady(model, &step, &visits, step.after);
    let rate = network.leaves.iter().copied().fold(0.0, f64::max) * 1.0001;
    let next = |now: &[f64]| {
        let mut then: Vec<f64> =
            now.iter().zip(&network.leaves).map(|(p, out)| p * (1.0 - out / rate)).collect();
        for (source, target, moves) in &network.moves {
            then[*target] += now[*source] * (moves / rate);
        }
        then
    };
    let cost = exact_f64(network.moves.len() + network.states.len());
    let mean = |now: &[f64]| network.mean(now);
    match until_settled(first, (from, to), (rate, cost), next, mean) {
        Ok(settling) => Ok(Some(settling)),
        Err(StationError::TooLarge { limit, .. }) => {
            let steps = format!("no more than {limit} steps until it has settled");
            Err(step.refuse(format!("{steps}: {INSTEAD}")))
        }
        Err(source) => Err(SolveError::Station { station: model.name.clone(), source }),
    }
}

const INSTEAD: &str = "for larger networks take the station that is busiest by itself";

/// What changes: the arrival rate of an open class, or the population of a closed one that thinks for
/// so long.
struct Step {
    before: f64,
    after: f64,
    think_s: Option<f64>,
}

impl Step {
    fn of(model: &Model) -> Result<Option<Self>, SolveError> {
        let (step, markov) = match (&model.classes[0].workload, model.rate_before) {
            (Workload::Open { arrival_rate_per_s, interarrival, batch }, Some(before)) => {
                let step = Self { before, after: *arrival_rate_per_s, think_s: None };
                (step, interarrival.is_exponential() && *batch == Batch::Fixed(1))
            }
            (Workload::Closed { population, think_time }, _) => {
                let Some(before) = model.population_before else { return Ok(None) };
                let [before, after] = [before, *population].map(exact_f64);
                let step = Self { before, after, think_s: Some(think_time.mean()) };
                (step, think_time.is_exponential() && think_time.mean() > 0.0)
            }
            _ => return Ok(None),
        };
        let plain = |station: &Station| {
            let service = station.demand_at(0).map(|demand| &demand.service);
            service.is_none_or(|service| service.is_exponential() && service.mean() > 0.0)
                && station.capacity.is_none()
                && station.patience.is_none()
                && station.balking == Balking::Never
                && station.fork.is_none()
                && !matches!(station.discipline, Discipline::Sjf | Discipline::Srpt)
        };
        if !(markov && model.pools.is_empty() && model.stations.iter().all(plain)) {
            return Err(step.refuse(
                "exponential gaps or think times and services, without limits, impatience, forks, \
                 pools and orders by size: the numbers must be a Markov chain",
            ));
        }
        Ok(Some(step))
    }

    fn refuse(&self, expected: impl Into<String>) -> SolveError {
        let key = KEYS[usize::from(self.think_s.is_some())];
        SolveError::Model(refused(key, self.before, expected.into()))
    }

    /// Customers that come per second where so many are in the network.
    fn arrivals(&self, inside: u64) -> f64 {
        match self.think_s {
            None => self.after,
            Some(think_s) => (self.after - exact_f64(inside)).max(0.0) / think_s,
        }
    }
}

/// The numbers at the stations, and the moves between them.
struct Chain {
    states: Vec<Vec<u64>>,
    moves: Vec<(usize, usize, f64)>,
    leaves: Vec<f64>,
}

impl Chain {
    /// Found by following the moves from the empty network.
    fn of(model: &Model, step: &Step, visits: &[f64]) -> Result<Self, SolveError> {
        let legs = legs(model, visits);
        let most = most(model, step, visits)?;
        let empty = vec![0; model.stations.len()];
        let mut index = BTreeMap::from([(empty.clone(), 0)]);
        let mut chain = Self { states: vec![empty], moves: Vec::new(), leaves: Vec::new() };
        while chain.leaves.len() < chain.states.len() {
            let at = chain.leaves.len();
            let state = chain.states[at].clone();
            let mut out = 0.0;
            for (from, to, probability) in &legs {
                let mut next = state.clone();
                let rate = match from {
                    Place::Outside => step.arrivals(state.iter().sum()),
                    Place::Station(from) if state[*from] > 0 => {
                        next[*from] -= 1;
                        let station = &model.stations[*from];
                        let mean = station.demand_at(0).map_or(0.0, |d| d.service.mean());
                        station.rate_multiplier(state[*from]) / mean
                    }
                    Place::Station(_) => 0.0,
                };
                if let Place::Station(to) = to {
                    next[*to] += 1;
                    if next[*to] > most[*to] {
                        continue;
                    }
                }
                let rate = rate * probability;
                if rate <= 0.0 || next == state {
                    continue;
                }
                let known = chain.states.len();
                let target = *index.entry(next).or_insert_with_key(|next| {
                    chain.states.push(next.clone());
                    known
                });
                if known == MOST_STATES && target == known {
                    let few = format!("a network of at most {MOST_STATES} states");
                    return Err(step.refuse(format!("{few}: {INSTEAD}")));
                }
                chain.moves.push((at, target, rate));
                out += rate;
            }
            chain.leaves.push(out);
        }
        Ok(chain)
    }

    /// Probabilities in the steady state with this arrival rate or population, and the mean number.
    fn steady(&self, model: &Model, step: &Step, visits: &[f64], level: f64) -> (Vec<f64>, f64) {
        let ln = |x: f64| x.max(f64::MIN_POSITIVE).ln();
        let weight = |state: &Vec<u64>| {
            let inside: u64 = state.iter().sum();
            let mut weight = 0.0;
            for (at, number) in state.iter().enumerate() {
                let demand = demand(model, visits, at);
                for n in 1..=*number {
                    weight += ln(demand / model.stations[at].rate_multiplier(n));
                }
            }
            match step.think_s {
                None if level > 0.0 => weight + exact_f64(inside) * level.ln(),
                None if inside > 0 => f64::NEG_INFINITY,
                None => weight,
                // Of the population, one by one: what thinks, down from all of it.
                Some(think_s) => (0..inside)
                    .map(|n| (level - exact_f64(n)) / think_s)
                    .map(|rate| if rate > 0.0 { rate.ln() } else { f64::NEG_INFINITY })
                    .fold(weight, |sum, rate| sum + rate),
            }
        };
        let weights: Vec<f64> = self.states.iter().map(weight).collect();
        let largest = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut shares: Vec<f64> = weights.iter().map(|w| (w - largest).exp()).collect();
        let all: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= all);
        let mean = self.mean(&shares);
        (shares, mean)
    }

    fn mean(&self, probabilities: &[f64]) -> f64 {
        let number = |state: &Vec<u64>| exact_f64(state.iter().sum::<u64>());
        self.states.iter().zip(probabilities).map(|(state, p)| number(state) * p).sum()
    }
}

/// V·S.
fn demand(model: &Model, visits: &[f64], station: usize) -> f64 {
    model.stations[station].demand_at(0).map_or(0.0, |d| d.service.mean() * visits[station])
}

fn legs(model: &Model, visits: &[f64]) -> Vec<(Place, Place, f64)> {
    if model.routes.is_empty() {
        let visited = visits.iter().copied().enumerate().filter(|(_, visits)| *visits > 0.0);
        return legs_from_visits(&visited.collect::<Vec<_>>());
    }
    let likely = model.routes.iter().filter(|leg| leg.probability > 0.0);
    likely.map(|leg| (leg.from, leg.to, leg.probability)).collect()
}

/// Most customers at each station: the population, or more than come together but for [`CUT`].
fn most(model: &Model, step: &Step, visits: &[f64]) -> Result<Vec<u64>, SolveError> {
    let count = model.stations.len();
    if step.think_s.is_some() {
        return Ok(vec![kendall_units::whole_u64(step.after); count]);
    }
    let rate = step.before.max(step.after);
    let mut all = Vec::with_capacity(count);
    for (at, station) in model.stations.iter().enumerate() {
        let load = rate * demand(model, visits, at);
        if load <= 0.0 {
            all.push(0);
            continue;
        }
        all.push(most_at(station, load).map_err(|expected| step.refuse(expected))?);
    }
    Ok(all)
}

/// Most customers at one station of an open network; else what it would have to be.
fn most_at(station: &Station, load: f64) -> Result<u64, String> {
    let (mut weight, mut sum) = (1.0_f64, 1.0);
    let uneven = station.servers.max(exact_u64(station.rate_multipliers.len()));
    for n in 1..=exact_u64(MOST_STATES) {
        let ratio = load / station.rate_multiplier(n);
        weight *= ratio;
        sum += weight;
        // What is left beyond n is a geometric series, or falls faster.
        let even = n >= uneven || station.is_delay();
        if even && ratio < 1.0 && weight / (1.0 - ratio) < CUT * sum {
            return Ok(n);
        }
        if n >= uneven && !station.is_delay() && ratio >= 1.0 {
            return Err("one at which there is a steady state, before the step too".to_owned());
        }
    }
    Err(format!("a network of at most {MOST_STATES} states: {INSTEAD}"))
}

fn exact_u64(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
