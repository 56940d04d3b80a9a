//! From the model description to what the engine runs.
//!
//! A pool's tokens are held by a customer at a station of its own (the pool), while a child goes
//! where the token is needed; so waiting for a token, holding it and losing customers for lack of
//! places work as at any station. A fork works the same way with several children.

use std::collections::BTreeMap;

use super::SimulationError;
use super::blocking::{self, Step};
use super::events::MOST_CUSTOMERS;
use super::plan::{
    Batch, ClassPlan, EXIT, Hop, Kind, NO_HOP, Order, Plan, Preemption, Route, Rule, Service,
    StationPlan, UNLIMITED, Work,
};
use super::state::NONE;
use super::streams::Sampler;
use crate::Distribution;
use crate::model::{
    self, Balking, Discipline, Inside, Model, ModelError, Place, WhenFull, Workload,
    legs_from_visits,
};

/// Branches of a fork that are simulated.
const MOST_BRANCHES: u32 = 1_000;
/// Cells (stations × classes) that are kept.
const MOST_CELLS: usize = 4_000_000;
/// Numbers of customers for which a reciprocal balking probability is kept apart.
const BALKING_ENTRIES: u32 = 10_000;

/// A class while it holds tokens: an inner class of the plan.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Context {
    class: usize,
    /// Pools whose tokens are held, outermost first; or forks inside of which it is, counted on behind the
    /// pools.
    held: Vec<usize>,
    /// A copy at a branch of a fork.
    copy: bool,
}

/// What the plan's stations are in the model.
#[derive(Debug, Clone, Default)]
pub(super) struct Layout {
    /// First branch of each station that forks, and how many.
    pub(super) branches: Vec<Option<(u32, u32)>>,
    /// Station of each pool.
    pub(super) pools: Vec<u32>,
    /// The order in which stations are visited was assumed, as there are only visit ratios.
    pub(super) order_assumed: bool,
}

struct Compiler<'m> {
    model: &'m Model,
    plan: Plan,
    layout: Layout,
    legs: BTreeMap<(usize, Place), Vec<Step>>,
    /// Where classes are inside of forks of other stations.
    inside: Inside,
    contexts: BTreeMap<Context, u16>,
    /// Contexts in the order of their classes.
    order: Vec<Context>,
    think: Vec<Option<u32>>,
    routes: BTreeMap<(u32, u16), Vec<Hop>>,
    work: BTreeMap<(u32, u16), Work>,
    /// Ways in, per class.
    entries: BTreeMap<u16, Vec<Hop>>,
}

/// The plan for a model, and the parts of the model that its stations represent.
pub(super) fn compile(model: &Model) -> Result<(Plan, Layout), SimulationError> {
    let mut compiler = Compiler {
        model,
        plan: Plan::default(),
        layout: Layout::default(),
        legs: BTreeMap::new(),
        inside: model.inside()?,
        contexts: BTreeMap::new(),
        order: Vec::new(),
        think: vec![None; model.classes.len()],
        routes: BTreeMap::new(),
        work: BTreeMap::new(),
        entries: BTreeMap::new(),
    };
    compiler.check()?;
    compiler.collect_legs();
    blocking::check(model, &compiler.legs)?;
    compiler.add_stations()?;
    for class in 0..model.classes.len() {
        compiler.context(Context { class, held: Vec::new(), copy: false })?;
    }
    let mut done = 0;
    while done < compiler.order.len() {
        while done < compiler.order.len() {
            compiler.compile_context(done)?;
            done += 1;
        }
        // Only now are the customers of each pool known; the ways out may need further contexts.
        compiler.add_refusals()?;
    }
    compiler.finish()
}

impl Compiler<'_> {
    fn check(&self) -> Result<(), SimulationError> {
        for class in &self.model.classes {
            if class.population() > u64::from(MOST_CUSTOMERS) {
                return Err(SimulationError::TooLarge {
                    what: format!("population of class `{}`", class.name),
                    value: class.population(),
                    limit: u64::from(MOST_CUSTOMERS),
                });
            }
        }
        for choice in &self.model.choices {
            let class = &self.model.classes[choice.class];
            if choice.from == Place::Outside && !class.is_open() && class.think_time_s() <= 0.0 {
                return Err(SimulationError::Unsupported {
                    station: class.name.clone(),
                    what: "a choice from `in` by queues or in turn, without think time",
                    instead: "give the class a think time, or choose from a station",
                });
            }
        }
        for station in &self.model.stations {
            let interrupts = matches!(
                station.discipline,
                Discipline::PriorityPreemptive | Discipline::Srpt | Discipline::EdfPreemptive
            );
            if interrupts && !station.rate_multipliers.is_empty() {
                return Err(SimulationError::Unsupported {
                    station: station.name.clone(),
                    what: "pre-emption with rate_multipliers",
                    instead: "leave out rate_multipliers, or use priority-non-preemptive, sjf or edf",
                });
            }
            let blocks = self.model.stations.iter().any(|s| s.when_full != WhenFull::Lost);
            if blocks && !station.parts.is_empty() {
                return Err(SimulationError::Unsupported {
                    station: station.name.clone(),
                    what: "branches of other stations in a model with blocking",
                    instead: "leave out `when_full`",
                });
            }
            if let Some(fork) = station.fork
                && fork.branches > MOST_BRANCHES
            {
                return Err(SimulationError::TooLarge {
                    what: format!("branches of station `{}`", station.name),
                    value: u64::from(fork.branches),
                    limit: u64::from(MOST_BRANCHES),
                });
            }
        }
        for (class, station) in self.inside.keys() {
            let held = |p: &&model::Pool| p.stations.contains(station) && p.classes.contains(class);
            if let Some(pool) = self.model.pools.iter().find(held) {
                return Err(SimulationError::Unsupported {
                    station: pool.name.clone(),
                    what: "a pool inside of a fork",
                    instead: "let it hold the fork as a whole",
                });
            }
        }
        Ok(())
    }

    /// Where each class goes from where: as the routes say, or as its visits can be had.
    fn collect_legs(&mut self) {
        for leg in &self.model.routes {
            if leg.probability > 0.0 {
                let step = (leg.to, leg.to_class, leg.probability);
                self.legs.entry((leg.class, leg.from)).or_default().push(step);
            }
        }
        if self.model.routes.is_empty() {
            for class in 0..self.model.classes.len() {
                let visits: Vec<(usize, f64)> = (0..self.model.stations.len())
                    .filter_map(|s| {
                        let demand = self.model.stations[s].demand_at(class)?;
                        (demand.visits > 0.0).then_some((s, demand.visits))
                    })
                    .collect();
                for (from, to, probability) in legs_from_visits(&visits) {
                    self.legs.entry((class, from)).or_default().push((to, class, probability));
                }
                self.layout.order_assumed |= visits.len() > 1;
            }
        }
    }

    fn add_stations(&mut self) -> Result<(), SimulationError> {
        let model = self.model;
        self.layout.branches = vec![None; model.stations.len()];
        let gate = |s: &model::Station| s.when_full == WhenFull::BlockBeforeService;
        self.plan.aims = model.stations.iter().any(gate);
        for station in &model.stations {
            let mut plan = station_plan(station);
            if station.fork.is_some() {
                plan.service = Service::Delay;
                plan.servers = UNLIMITED;
                plan.preemption = Preemption::None;
            }
            self.plan.stations.push(plan);
        }
        for (index, station) in model.stations.iter().enumerate() {
            if let Some(fork) = station.fork.filter(|_| station.parts.is_empty()) {
                let first = number(self.plan.stations.len());
                self.layout.branches[index] = Some((first, fork.branches));
                for _ in 0..fork.branches {
                    let mut copy = station_plan(station);
                    copy.capacity = UNLIMITED;
                    copy.when_full = WhenFull::Lost;
                    copy.joining = Vec::new();
                    self.plan.stations.push(copy);
                }
            }
        }
        for pool in &model.pools {
            self.layout.pools.push(number(self.plan.stations.len()));
            let mut plan = StationPlan::fcfs(servers(pool.tokens), Vec::new());
            if let Some(queue) = pool.queue_capacity {
                plan.capacity = servers(pool.tokens.saturating_add(queue));
            }
            self.plan.stations.push(plan);
        }
        for (class, think) in model.classes.iter().zip(&mut self.think) {
            if class.think_time_s() > 0.0 {
                *think = Some(number(self.plan.stations.len()));
                let mut plan = StationPlan::fcfs(UNLIMITED, Vec::new());
                plan.service = Service::Delay;
                self.plan.stations.push(plan);
            }
        }
        Ok(())
    }

    /// Class of the plan for a context; new ones are compiled later.
    fn context(&mut self, context: Context) -> Result<u16, SimulationError> {
        if let Some(&known) = self.contexts.get(&context) {
            return Ok(known);
        }
        let cells = self.plan.stations.len() * (self.order.len() + 1);
        let index = u16::try_from(self.order.len()).ok().filter(|_| cells <= MOST_CELLS);
        let Some(index) = index else {
            return Err(SimulationError::TooLarge {
                what: "stations × classes (with what they hold)".to_owned(),
                value: cells as u64,
                limit: MOST_CELLS as u64,
            });
        };
        self.contexts.insert(context.clone(), index);
        self.order.push(context);
        Ok(index)
    }

    /// Pools whose tokens a class holds at a place, outermost (most stations) first.
    fn wanted(&self, place: Place, class: usize) -> Vec<usize> {
        let Place::Station(station) = place else { return Vec::new() };
        if let Some(forks) = self.inside.get(&(class, station)) {
            return forks.iter().map(|fork| self.model.pools.len() + fork).collect();
        }
        let mut pools: Vec<usize> = (0..self.model.pools.len())
            .filter(|&p| {
                let pool = &self.model.pools[p];
                pool.stations.contains(&station) && pool.classes.contains(&class)
            })
            .collect();
        pools.sort_by_key(|&p| (std::cmp::Reverse(self.model.pools[p].stations.len()), p));
        pools
    }

    /// The hop from a context to a place: straight there, by way of a pool, or back out of one.
    fn hop(&mut self, held: &[usize], to: Place, class: usize) -> Result<Hop, SimulationError> {
        let wanted = self.wanted(to, class);
        let own = self.context(Context { class, held: held.to_vec(), copy: false })?;
        let plain = Hop { cumulative: 1.0, to: EXIT, class: own, completes: false, then: NO_HOP };
        let joined = held.last().and_then(|last| last.checked_sub(self.model.pools.len()));
        if joined.is_some_and(|fork| to == Place::Station(fork)) {
            return Ok(plain);
        }
        if wanted == held {
            return Ok(match to {
                Place::Station(station) => Hop { to: number(station), ..plain },
                Place::Outside => {
                    let to = self.think[class].unwrap_or(EXIT);
                    Hop { to, completes: true, ..plain }
                }
            });
        }
        if wanted.len() > held.len() && wanted.starts_with(held) {
            let pool = wanted[held.len()];
            let inside = self.hop(&wanted[..=held.len()], to, class)?;
            let then = self.keep(inside);
            self.work.insert((self.layout.pools[pool], own), Work::Hold);
            return Ok(Hop { to: self.layout.pools[pool], then, ..plain });
        }
        let outside = self.hop(&held[..held.len() - 1], to, class)?;
        let then = self.keep(outside);
        Ok(Hop { then, ..plain })
    }

    /// All hops that follow a place, with their probabilities.
    fn hops(
        &mut self,
        held: &[usize],
        class: usize,
        from: Place,
    ) -> Result<Vec<Hop>, SimulationError> {
        let mut hops = Vec::new();
        let mut sum = 0.0;
        for (to, to_class, probability) in
            self.legs.get(&(class, from)).cloned().unwrap_or_default()
        {
            let closed = !self.model.classes[to_class].is_open();
            let returns_at_once = to == Place::Outside && closed && self.think[to_class].is_none();
            let entry = self.legs.get(&(to_class, Place::Outside)).cloned().unwrap_or_default();
            // A cycle that may visit nothing is counted as one of its own.
            let idle = entry.iter().any(|(first, ..)| *first == Place::Outside);
            if returns_at_once && held.is_empty() && from != Place::Outside && !idle {
                // No time between two cycles: the end of one and the way into the next are one hop.
                for (first, first_class, share) in entry {
                    sum += probability * share;
                    let hop = self.hop(held, first, first_class)?;
                    hops.push(Hop { cumulative: sum, completes: true, ..hop });
                }
            } else {
                sum += probability;
                let mut hop = self.hop(held, to, to_class)?;
                if returns_at_once && !held.is_empty() {
                    hop = self.back_around(held, to_class, hop)?;
                }
                hops.push(Hop { cumulative: sum, ..hop });
            }
        }
        Ok(hops)
    }

    /// Out of all pools and, without thinking, around again: the first way in is taken.
    fn back_around(
        &mut self,
        held: &[usize],
        class: usize,
        hop: Hop,
    ) -> Result<Hop, SimulationError> {
        let entry = self.legs.get(&(class, Place::Outside)).cloned().unwrap_or_default();
        if entry.len() != 1 {
            return Err(SimulationError::Unsupported {
                station: self.model.pools[held[0]].name.clone(),
                what: "a pool that is left without think time towards several first stations",
                instead: "give the class a think time, or one first station",
            });
        }
        let (first, first_class, _) = entry[0];
        let mut again = self.hop(&[], first, first_class)?;
        again.completes = true;
        let mut then = self.keep(again);
        for depth in 1..held.len() {
            let own = self.context(Context {
                class: first_class,
                held: held[..depth].to_vec(),
                copy: false,
            })?;
            then = self.keep(Hop { cumulative: 1.0, to: EXIT, class: own, completes: false, then });
        }
        Ok(Hop { then, ..hop })
    }

    fn keep(&mut self, hop: Hop) -> u32 {
        let index = number(self.plan.hops.len());
        self.plan.hops.push(hop);
        index
    }

    fn compile_context(&mut self, index: usize) -> Result<(), SimulationError> {
        let context = self.order[index].clone();
        let own = u16::try_from(index).expect("checked when it was made");
        if context.copy {
            return Ok(());
        }
        let class = context.class;
        for station in 0..self.model.stations.len() {
            let here = Place::Station(station);
            let reached = self.legs.contains_key(&(class, here));
            if !reached || self.wanted(here, class) != context.held {
                continue;
            }
            let Some(demand) = self.model.stations[station].demand_at(class) else { continue };
            let sampler = Sampler::new(&demand.service);
            let work = match self.model.stations[station].fork {
                Some(fork) if self.model.stations[station].parts.is_empty() => {
                    self.fork(station, class, fork.needed, &sampler)?
                }
                Some(fork) => self.branches(station, class, fork.needed)?,
                None => Work::Time(sampler),
            };
            self.work.insert((number(station), own), work);
            let hops = self.hops(&context.held, class, here)?;
            self.routes.insert((number(station), own), hops);
        }
        if context.held.is_empty() {
            if let Some(think) = self.think[class] {
                let Workload::Closed { think_time, .. } = &self.model.classes[class].workload
                else {
                    return Ok(());
                };
                self.work.insert((think, own), Work::Time(Sampler::new(think_time)));
                let hops = self.hops(&[], class, Place::Outside)?;
                self.routes.insert((think, own), hops);
                let to_think =
                    Hop { cumulative: 1.0, to: think, class: own, completes: false, then: NO_HOP };
                self.entries.insert(own, vec![to_think]);
            } else {
                let hops = self.hops(&[], class, Place::Outside)?;
                self.entries.insert(own, hops);
            }
        }
        Ok(())
    }

    /// Where customers go who get no token, or whose request was lost while they held one: those
    /// of open classes leave, those of closed classes start anew, and neither completes.
    fn add_refusals(&mut self) -> Result<(), SimulationError> {
        let holders = self.work.iter().filter(|(_, work)| matches!(work, Work::Hold));
        let holders: Vec<(u32, u16)> =
            holders.map(|(key, _)| *key).filter(|key| !self.routes.contains_key(key)).collect();
        for (pool, own) in holders {
            let Context { class, held, .. } = self.order[usize::from(own)].clone();
            let bounded = self.plan.stations[pool as usize].capacity != UNLIMITED;
            let ways = if self.model.classes[class].is_open() || !bounded {
                let then = NO_HOP;
                vec![Hop { cumulative: 1.0, to: EXIT, class: own, completes: false, then }]
            } else if held.is_empty() && self.think[class].is_none() {
                self.hops(&[], class, Place::Outside)?
            } else {
                let mut out = self.hop(&held, Place::Outside, class)?;
                if self.think[class].is_none() {
                    out = self.back_around(&held, class, out)?;
                }
                out.completes = false;
                let mut then = out.then;
                while then != NO_HOP {
                    let next = &mut self.plan.hops[then as usize];
                    next.completes = false;
                    then = next.then;
                }
                vec![out]
            };
            self.routes.insert((pool, own), ways);
        }
        Ok(())
    }

    fn fork(
        &mut self,
        station: usize,
        class: usize,
        needed: u32,
        sampler: &Sampler,
    ) -> Result<Work, SimulationError> {
        let copy = self.context(Context { class, held: Vec::new(), copy: true })?;
        let (first, count) = self.layout.branches[station].expect("set with the station");
        let exit = Hop { cumulative: 1.0, to: EXIT, class: copy, completes: false, then: NO_HOP };
        let mut children = Vec::new();
        for branch in first..first + count {
            self.work.insert((branch, copy), Work::Time(sampler.clone()));
            self.routes.insert((branch, copy), vec![exit]);
            children.push(Hop { to: branch, ..exit });
        }
        Ok(Work::Fork { children, needed })
    }

    /// Branches that begin at other stations.
    fn branches(
        &mut self,
        station: usize,
        class: usize,
        needed: u32,
    ) -> Result<Work, SimulationError> {
        let mut children = Vec::new();
        for &part in &self.model.stations[station].parts {
            let part = Place::Station(part);
            let held = self.wanted(part, class);
            children.push(self.hop(&held, part, class)?);
        }
        Ok(Work::Fork { children, needed })
    }

    /// Lays everything out by index.
    fn finish(mut self) -> Result<(Plan, Layout), SimulationError> {
        let classes = self.order.len();
        let levels = levels(self.model);
        for (class, context) in self.order.clone().into_iter().enumerate() {
            let real = &self.model.classes[context.class];
            let top = context.held.is_empty() && !context.copy;
            let think = self.think[context.class].filter(|_| top);
            let kind = match &real.workload {
                _ if !top => Kind::Child,
                Workload::Open { arrival_rate_per_s, interarrival, batch } => {
                    open_kind(*arrival_rate_per_s, interarrival, batch)
                }
                Workload::Closed { population, .. } => {
                    Kind::Closed { population: servers(*population) }
                }
            };
            let own = u16::try_from(class).expect("checked when it was made");
            let entry = self.entries.remove(&own).unwrap_or_default();
            let comes = real.population() > 0 || real.arrival_rate_per_s() > 0.0;
            if top && comes && entry.is_empty() {
                return Err(ModelError::VisitsNothing { class: real.name.clone() }.into());
            }
            let entry = self.add_route(&entry, context.class, Place::Outside);
            let closed = !real.is_open();
            let reported = context.class;
            self.plan.classes.push(ClassPlan { reported, closed, kind, entry, think });
        }
        for station in 0..self.plan.stations.len() {
            for class in 0..classes {
                let key = (number(station), u16::try_from(class).expect("checked when made"));
                let hops = self.routes.remove(&key).unwrap_or_default();
                let place = if station < self.model.stations.len() {
                    Place::Station(station)
                } else {
                    Place::Outside
                };
                let route = if hops.is_empty() {
                    Route::default()
                } else {
                    self.add_route(&hops, self.order[class].class, place)
                };
                self.plan.routes.push(route);
                let work = self.work.remove(&key).unwrap_or(Work::Never);
                let plan = &mut self.plan.stations[station];
                plan.work.push(work);
            }
            let behind = self.station_behind(station);
            let by_class = |values: Option<&Vec<f64>>| -> Vec<f64> {
                let Some(values) = values.filter(|values| !values.is_empty()) else {
                    return Vec::new();
                };
                let own = |context: &Context| values.get(context.class).copied().unwrap_or(1.0);
                self.order.iter().map(own).collect()
            };
            let weights = by_class(behind.map(|s| &s.weights));
            let deadlines = by_class(behind.map(|s| &s.deadlines));
            let level = |context: &Context| match behind.map(|s| s.discipline) {
                Some(Discipline::PriorityNonPreemptive | Discipline::PriorityPreemptive) => {
                    levels[context.class]
                }
                Some(Discipline::Gps) => number(context.class),
                _ => 0,
            };
            let levels = self.order.iter().map(level).collect();
            let real = self.model.stations.get(station).filter(|s| s.fork.is_none());
            let patience = real.and_then(|s| s.patience.as_ref()).map(Sampler::new);
            let plan = &mut self.plan.stations[station];
            (plan.weights, plan.deadlines, plan.levels) = (weights, deadlines, levels);
            plan.patience = vec![patience; classes];
        }
        Ok((self.plan, self.layout))
    }

    /// A route, with how its hops are chosen. The ways that lead back from where tokens are held have
    /// one hop, which is taken whatever the rule.
    fn add_route(&mut self, hops: &[Hop], class: usize, from: Place) -> Route {
        let route = self.plan.add_route(hops);
        let mut choices = self.model.choices.iter();
        let choice = choices.find(|c| c.class == class && c.from == from);
        let rule = match choice.map(|choice| choice.rule) {
            None => Rule::Random,
            Some(model::Rule::ShortestQueue { of }) => Rule::Shortest(of, self.weights(hops)),
            Some(model::Rule::RoundRobin) => {
                self.plan.turns += 1;
                Rule::InTurn(self.plan.turns - 1)
            }
            Some(model::Rule::ByNumber) => {
                let first = number(self.plan.factors.len());
                for hop in hops {
                    let to = self.plan.target(*hop);
                    let mut own = choice.iter().flat_map(|choice| &choice.factors);
                    let own = own.find(|(station, _)| number(*station) == to);
                    self.plan.factors.push(own.map_or(Vec::new(), |(_, factors)| factors.clone()));
                }
                Rule::ByNumber(first)
            }
        };
        Route { rule, ..route }
    }

    /// Keeps the probabilities of hops as weights, unless they are equal.
    fn weights(&mut self, hops: &[Hop]) -> Option<u32> {
        let before = std::iter::once(0.0).chain(hops.iter().map(|hop| hop.cumulative));
        let shares: Vec<f64> =
            hops.iter().zip(before).map(|(hop, before)| hop.cumulative - before).collect();
        let first = number(self.plan.factors.len());
        if shares.iter().all(|share| (share - shares[0]).abs() <= 1e-9) {
            return None;
        }
        self.plan.factors.extend(shares.into_iter().map(|share| vec![share]));
        Some(first)
    }

    /// The station of the model that one of the plan is, or is a branch of.
    fn station_behind(&self, index: usize) -> Option<&model::Station> {
        let of_branch = |branches: &Option<(u32, u32)>| {
            branches.is_some_and(|(first, count)| {
                (first as usize..(first + count) as usize).contains(&index)
            })
        };
        self.model.stations.get(index).or_else(|| {
            let forked = self.layout.branches.iter().position(of_branch)?;
            self.model.stations.get(forked)
        })
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).ok().filter(|i| *i != NONE).expect("limited by the model and the cells")
}

/// A count for the engine; what is beyond its reach is not a limit.
fn servers(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(UNLIMITED)
}

/// Levels from 0 without gaps, in the order of the priorities.
fn levels(model: &Model) -> Vec<u32> {
    let mut known: Vec<u32> = model.classes.iter().map(|class| class.priority).collect();
    known.sort_unstable();
    known.dedup();
    let rank = |p: u32| known.iter().position(|k| *k == p).unwrap_or(0);
    model.classes.iter().map(|class| number(rank(class.priority))).collect()
}

fn open_kind(rate: f64, interarrival: &Distribution, batch: &model::Batch) -> Kind {
    if rate <= 0.0 {
        return Kind::Closed { population: 0 };
    }
    let batch = match batch {
        model::Batch::Fixed(size) => Batch::Fixed(servers(*size)),
        model::Batch::Geometric { mean } => Batch::Geometric { mean: *mean },
        model::Batch::Table(probabilities) => {
            let mut sum = 0.0;
            let table = probabilities.iter().enumerate().map(|(index, p)| {
                sum += p;
                (number(index + 1), sum)
            });
            Batch::Table(table.collect())
        }
    };
    Kind::Open { gap: Sampler::new(interarrival), batch }
}

fn station_plan(station: &model::Station) -> StationPlan {
    let mut plan = StationPlan::fcfs(servers(station.servers), Vec::new());
    plan.levels = Vec::new();
    plan.patience = Vec::new();
    plan.capacity = station.capacity.map_or(UNLIMITED, servers);
    plan.when_full = station.when_full;
    plan.joining = match &station.balking {
        Balking::Never => Vec::new(),
        Balking::Reciprocal => (1..=BALKING_ENTRIES).map(|found| 1.0 / f64::from(found)).collect(),
        Balking::Table(table) => table.clone(),
    };
    if station.is_delay() {
        plan.service = Service::Delay;
        plan.servers = UNLIMITED;
        return plan;
    }
    plan.speeds.clone_from(&station.rate_multipliers);
    let dependent = !station.rate_multipliers.is_empty();
    match station.discipline {
        Discipline::Ps | Discipline::Is | Discipline::Dps => {
            plan.service = Service::Shared { slots: UNLIMITED };
        }
        Discipline::Gps => {
            plan.service = Service::Shared { slots: UNLIMITED };
            plan.order = Order::OneOfEach;
        }
        Discipline::Sjf => plan.order = Order::Shortest,
        Discipline::Edf => plan.order = Order::Deadline,
        Discipline::Srpt => {
            plan.order = Order::Shortest;
            plan.preemption = Preemption::ByRank;
        }
        Discipline::EdfPreemptive => {
            plan.order = Order::Deadline;
            plan.preemption = Preemption::ByRank;
        }
        // Exponential service makes no difference; else this is what being pre-empted amounts to
        // on average, and the order within does not matter for the means (both are insensitive).
        Discipline::LcfsPr if dependent => {
            plan.service = Service::Shared { slots: UNLIMITED };
        }
        Discipline::LcfsPr => {
            plan.order = Order::LastCome;
            plan.preemption = Preemption::ByArrival;
        }
        Discipline::Lcfs => plan.order = Order::LastCome,
        Discipline::Siro => plan.order = Order::Random,
        Discipline::PriorityPreemptive => plan.preemption = Preemption::ByLevel,
        Discipline::Fcfs | Discipline::PriorityNonPreemptive => {}
    }
    if dependent && plan.service == Service::Dedicated {
        // One in service at a time, at the speed of the whole station.
        plan.service = Service::Shared { slots: 1 };
    }
    plan
}
