//! Networks whose full stations block those before them, as Markov chains of the numbers there.

use kendall_units::exact_f64;

use super::chains::service;
use super::markov::Chain;
use super::settling::{comes_at_random, is_memoryless, legs};
use super::{ClassResult, Solution, SolveError, StationResult};
use crate::model::{Discipline, Leg, Model, Place, Station, WhenFull};
use crate::network::Accuracy;

/// Most states of the chain, and of a station those whose probabilities are listed.
const MOST_STATES: usize = 20_000;

/// How many are at each station, and behind the stations how many think; and by station from where
/// those come who wait for a place there, each at the server that served it, first come first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    numbers: Vec<u64>,
    waiting: Vec<Vec<usize>>,
}

/// From one place to another: a station, or behind them outside (where closed customers think).
#[derive(Debug, Clone, Copy)]
struct Way {
    from: usize,
    to: usize,
    probability: f64,
    /// Whether a request ends with it.
    completes: bool,
}

struct Blocking<'a> {
    model: &'a Model,
    ways: Vec<Way>,
    /// The station without whose free place no service goes on, by place.
    gates: Vec<Option<usize>>,
    /// Rate of arrivals, or of the end of one think time.
    outside_rate: f64,
}

/// The exact answer for one class whose times are exponential; none where the model has others, more
/// states than [`MOST_STATES`], or customers who may all wait for each other.
///
/// # Errors
/// [`SolveError`] when routes make no sense.
///
/// # Source
/// Perros 1994 (blocking after service, before service, repetitive service).
pub(super) fn solve(model: &Model) -> Result<Option<Solution>, SolveError> {
    let visits = model.visits()?;
    Ok(Blocking::of(model, &visits).and_then(|blocking| blocking.solution()))
}

impl<'a> Blocking<'a> {
    fn of(model: &'a Model, visits: &[Vec<f64>]) -> Option<Self> {
        let [class] = &model.classes[..] else { return None };
        let outside = model.stations.len();
        let thinks = !class.is_open() && class.think_time_s() > 0.0;
        let outside_rate =
            if thinks { 1.0 / class.think_time_s() } else { class.arrival_rate_per_s() };
        let ways = ways(&legs(model, visits), outside, class.is_open() || thinks)?;
        let in_line = |station: &Station| {
            let order = matches!(
                station.discipline,
                Discipline::Fcfs | Discipline::Lcfs | Discipline::Siro
            );
            station.is_delay() || order && station.rate_multipliers.is_empty()
        };
        let plain = model.stations.iter().all(|one| is_memoryless(one) && in_line(one));
        // Who is lost on the way completes nothing, and its time counts for nobody.
        let loses = |way: &Way| {
            let limited = |one: &Station| one.capacity.is_some() && one.when_full == WhenFull::Lost;
            let arrives = class.is_open() && way.from == outside;
            way.from != way.to && !arrives && model.stations.get(way.to).is_some_and(limited)
        };
        let mut gates = vec![None; outside + 1];
        // Arrivals from outside are not served before they come.
        let served = outside + usize::from(!class.is_open());
        for (from, gate) in gates[..served].iter_mut().enumerate() {
            let before = |one: &Station| one.when_full == WhenFull::BlockBeforeService;
            let mut to = ways.iter().filter(|way| way.from == from).map(|way| way.to);
            let is_gate = |to: &usize| *to != from && model.stations.get(*to).is_some_and(before);
            *gate = to.clone().find(is_gate);
            // With several ways on, who is served must be known by where it goes.
            if gate.is_some() && to.nth(1).is_some() {
                return None;
            }
        }
        let pure = model.pools.is_empty() && comes_at_random(class);
        let known = pure && plain && !ways.iter().any(loses);
        known.then_some(Self { model, ways, gates, outside_rate })
    }

    fn outside(&self) -> usize {
        self.model.stations.len()
    }

    fn open(&self) -> bool {
        self.model.classes[0].is_open()
    }

    /// With as many customers as there is room for at the first stations.
    fn start(&self) -> Option<State> {
        let outside = self.outside();
        let mut state = State { numbers: vec![0; outside + 1], waiting: vec![Vec::new(); outside] };
        let mut left = self.model.classes[0].population();
        let used = |at: usize| self.ways.iter().any(|way| way.from == at);
        for at in [outside].into_iter().chain(0..outside).filter(|at| used(*at)) {
            let room = self.model.stations.get(at).and_then(|station| station.capacity);
            state.numbers[at] = left.min(room.unwrap_or(left));
            left -= state.numbers[at];
        }
        (left == 0).then_some(state)
    }

    fn is_full(&self, state: &State, at: usize) -> bool {
        let capacity = self.model.stations.get(at).and_then(|station| station.capacity);
        capacity.is_some_and(|capacity| state.numbers[at] >= capacity)
    }

    /// How many are being served at a place (or think), and how many are held at its servers.
    fn served(&self, state: &State, at: usize) -> (f64, f64) {
        let servers = self.model.stations.get(at).filter(|station| !station.is_delay());
        let servers = servers.map_or(u64::MAX, |station| station.servers);
        let at_servers = exact_f64(state.numbers[at].min(servers));
        let held = if self.gates[at].is_some_and(|to| self.is_full(state, to)) {
            at_servers
        } else {
            exact_f64(state.waiting.iter().flatten().filter(|from| **from == at).count())
        };
        (at_servers - held, held)
    }

    /// How often a way is taken from a state on, if it leads on.
    fn rate(&self, state: &State, way: &Way) -> f64 {
        let rate = match self.model.stations.get(way.from) {
            Some(station) => over(self.served(state, way.from).0, service(station, 0)),
            None if self.open() => self.outside_rate,
            None => self.served(state, way.from).0 * self.outside_rate,
        };
        rate * way.probability
    }

    /// Whether it leads on: to a place, or to a wait for one.
    fn leads_on(&self, state: &State, way: &Way) -> bool {
        let waits = |to: usize| {
            let arrives = self.open() && way.from == self.outside();
            !arrives && self.model.stations[to].when_full == WhenFull::BlockAfterService
        };
        way.from == way.to || !self.is_full(state, way.to) || waits(way.to)
    }

    fn after(&self, mut state: State, way: &Way) -> State {
        if way.from != way.to && self.is_full(&state, way.to) {
            state.waiting[way.to].push(way.from);
        } else {
            self.shift(&mut state, way.from, way.to);
        }
        // Each who moves leaves a place to the next.
        while let Some(to) = (0..self.outside())
            .find(|to| !state.waiting[*to].is_empty() && !self.is_full(&state, *to))
        {
            let from = state.waiting[to].remove(0);
            self.shift(&mut state, from, to);
        }
        state
    }

    fn shift(&self, state: &mut State, from: usize, to: usize) {
        let counted = |at: usize| at != self.outside() || !self.open();
        if counted(from) {
            state.numbers[from] -= 1;
        }
        if counted(to) {
            state.numbers[to] += 1;
        }
    }

    fn moves(&self, state: &State) -> Vec<(State, [f64; 2])> {
        let taken = self.ways.iter().filter(|way| self.leads_on(state, way));
        let rates = taken.map(|way| (way, self.rate(state, way))).filter(|(_, rate)| *rate > 0.0);
        let moves = rates.map(|(way, rate)| (self.after(state.clone(), way), [rate; 2]));
        moves.filter(|(next, _)| next != state).collect()
    }

    fn solution(&self) -> Option<Solution> {
        let chain = Chain::of(self.start()?, MOST_STATES, |state| self.moves(state))?;
        let stuck = |out: &f64| !(*out > 0.0 && out.is_finite());
        if chain.states.len() > 1 && chain.leaves(0).iter().any(stuck) {
            return None;
        }
        let steady = chain.steady(0)?;
        let flow =
            |way: &Way| {
                chain.mean(&steady, |state| {
                    if self.leads_on(state, way) { self.rate(state, way) } else { 0.0 }
                })
            };
        let flows: Vec<f64> = self.ways.iter().map(flow).collect();
        let sum = |of: &dyn Fn(&Way) -> bool| -> f64 {
            let ways = self.ways.iter().zip(&flows).filter(|(way, _)| of(way));
            ways.map(|(_, flow)| flow).sum()
        };
        let throughput = sum(&|way| way.completes);
        if throughput <= 0.0 && self.model.classes[0].population() > 0 {
            return None;
        }
        let inside = |state: &State| exact_f64(state.numbers[..self.outside()].iter().sum::<u64>());
        let class = &self.model.classes[0];
        // Of a closed class all who do not think, those before a full station among them.
        let number = if self.open() {
            chain.mean(&steady, inside)
        } else {
            (-throughput).mul_add(class.think_time_s(), exact_f64(class.population())).max(0.0)
        };
        let solver = format!("Markov chain of {} states", chain.states.len());
        let mut solution = Solution::of(self.model, solver, Accuracy::Exact);
        solution.classes.push(ClassResult {
            name: class.name.clone(),
            throughput,
            system_response: over(number, throughput),
            number,
            number_variance: self
                .open()
                .then(|| chain.mean(&steady, |state| (inside(state) - number).powi(2))),
            ..ClassResult::default()
        });
        let at = |(at, station): (usize, &Station)| {
            let passes = sum(&|way| way.from == at);
            self.station((at, station), (passes, throughput), &chain, &steady)
        };
        solution.stations = self.model.stations.iter().enumerate().map(at).collect();
        Some(solution)
    }

    /// A station, with what passes it and the network.
    fn station(
        &self,
        (at, station): (usize, &Station),
        (passes, throughput): (f64, f64),
        chain: &Chain<State>,
        steady: &[f64],
    ) -> StationResult {
        let there = |state: &State| exact_f64(state.numbers[at]);
        let number = chain.mean(steady, there);
        let busy = chain.mean(steady, |state| self.served(state, at).0);
        let response = over(number, passes);
        let most = chain.states.iter().map(|state| state.numbers[at]).max().unwrap_or(0);
        let most = usize::try_from(most).ok().filter(|most| *most < MOST_STATES);
        let states = most.map(|most| {
            let mut states = vec![0.0; most + 1];
            for (state, p) in chain.states.iter().zip(steady) {
                states[usize::try_from(state.numbers[at]).unwrap_or(most)] += p;
            }
            states
        });
        StationResult {
            name: station.name.clone(),
            throughput: vec![passes],
            utilization: vec![if station.is_delay() {
                busy
            } else {
                busy / exact_f64(station.servers)
            }],
            number: vec![number],
            response_time: vec![response],
            waiting_time: vec![(response - over(busy, passes)).max(0.0)],
            residence_time: vec![over(number, throughput)],
            states,
            number_variance: Some(chain.mean(steady, |state| (there(state) - number).powi(2))),
            blocked: Some(chain.mean(steady, |state| self.served(state, at).1)),
        }
    }
}

fn over(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// The ways of customers. Where closed ones do not think, the end of a round and the way into the next are
/// one, if that leads to a station.
fn ways(legs: &[Leg], outside: usize, passes_outside: bool) -> Option<Vec<Way>> {
    let place = |place: Place| match place {
        Place::Station(station) => station,
        Place::Outside => outside,
    };
    let mut ways = Vec::new();
    for leg in legs {
        let Leg { probability, .. } = *leg;
        let (from, to) = (place(leg.from), place(leg.to));
        if passes_outside || to != outside {
            if passes_outside || from != outside {
                ways.push(Way { from, to, probability, completes: to == outside });
            }
            continue;
        }
        for next in legs.iter().filter(|next| next.from == Place::Outside) {
            let (to, probability) = (place(next.to), probability * next.probability);
            if to == outside || from == outside {
                return None;
            }
            ways.push(Way { from, to, probability, completes: true });
        }
    }
    Some(ways)
}
