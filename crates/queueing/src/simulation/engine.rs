//! The engine: takes the next event, moves customers, keeps the tallies.
//!
//! Customers live in one array and are named by their index; queues are lists through it. Nothing
//! is allocated per event once the largest queue has been seen.

use rand::RngExt as _;

use super::events::{Event, Events, MOST_CUSTOMERS, MOST_EVENTS, What};
use super::plan::{Batch, EXIT, Hop, Kind, NO_HOP, Plan, Route, Rule, Work};
use super::state::{NONE, StationState};
use super::streams::{BEGINNING, Stream, streams};
use super::tally::{Cell, SystemCell, Totals};

/// Hops that a customer may make at one moment.
const MOST_HOPS: u32 = 10_000;
/// Events between two checks that the clock still moves.
pub(super) const LOOK_EVERY: u32 = 1 << 20;

/// Why a replication could not go on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Halt {
    /// More customers than the simulation can hold.
    TooManyCustomers { time: f64 },
    /// A deadlock: no customer can move.
    Deadlock { time: f64 },
    /// Events happen, time does not pass.
    ClockStands { time: f64 },
    /// The numbers of events are used up.
    TooManyEvents { time: f64 },
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Customer {
    /// When it entered the network, or began its cycle.
    pub(super) entered: f64,
    /// When it came to its station.
    pub(super) arrived: f64,
    /// When it began to wait, or its service to run.
    pub(super) since: f64,
    /// Waited so far at its station.
    pub(super) waited: f64,
    /// Service that is still to be given.
    pub(super) left: f64,
    /// Number of the event that concerns it, 0 for none.
    pub(super) event: u64,
    pub(super) next: u32,
    pub(super) previous: u32,
    /// What waits for it to come back.
    pub(super) join: u32,
    /// Hop to follow instead of one of the route, see [`Hop::then`].
    pub(super) then: u32,
    pub(super) station: u32,
    pub(super) class: u16,
    pub(super) waiting: bool,
    /// Thinks again because it was not let in where it would go.
    pub(super) turned_away: bool,
}

/// A customer that waits for the children it sent out.
#[derive(Debug, Clone, Copy)]
struct Join {
    parent: u32,
    needed: u32,
    out: u32,
}

#[derive(Debug, Clone)]
pub(super) struct Engine<'p> {
    pub(super) plan: &'p Plan,
    pub(super) now: f64,
    pub(super) events: Events,
    pub(super) customers: Vec<Customer>,
    free: u32,
    present: u32,
    most_customers: u32,
    pub(super) stations: Vec<StationState>,
    pub(super) cells: Vec<Cell>,
    pub(super) systems: Vec<SystemCell>,
    joins: Vec<Join>,
    free_joins: Vec<u32>,
    /// Stations where a place was freed that a blocked customer may take.
    pub(super) freed: Vec<u32>,
    /// Services repeated since a customer went on last.
    pub(super) repeats: u32,
    /// Where each customer in service goes next, where that is known before.
    pub(super) aims: Vec<Hop>,
    sources: Vec<Stream>,
    /// Where each source, and each class's service at each station, is in what goes on from one
    /// time to the next.
    arrivals_at: Vec<u32>,
    /// Whose turn it was, of routes that take each in its turn.
    turns: Vec<u32>,
    services_at: Vec<u32>,
    pub(super) services: Vec<Stream>,
    routings: Vec<Stream>,
    pub(super) moods: Vec<Stream>,
    pub(super) halt: Option<Halt>,
    /// When the tallies were last taken, and how many events had been scheduled.
    since: f64,
    events_before: u64,
}

impl<'p> Engine<'p> {
    pub(super) fn new(plan: &'p Plan, seed: u64, replication: u32, most_customers: u32) -> Self {
        let (classes, stations) = (plan.classes.len(), plan.stations.len());
        let mut all = streams(seed, replication, classes + 3 * stations + classes);
        let moods = all.split_off(classes + 2 * stations + classes);
        let routings = all.split_off(classes + stations);
        let services = all.split_off(classes);
        let mut engine = Self {
            plan,
            now: 0.0,
            events: Events::new(),
            customers: Vec::new(),
            free: NONE,
            present: 0,
            most_customers: most_customers.min(MOST_CUSTOMERS),
            stations: plan.stations.iter().map(StationState::new).collect(),
            cells: vec![Cell::default(); stations * classes],
            systems: vec![SystemCell::default(); classes],
            joins: Vec::new(),
            free_joins: Vec::new(),
            freed: Vec::new(),
            repeats: 0,
            aims: Vec::new(),
            sources: all,
            turns: vec![0; plan.turns as usize],
            arrivals_at: vec![BEGINNING; classes],
            services_at: vec![BEGINNING; stations * classes],
            services,
            routings,
            moods,
            halt: None,
            since: 0.0,
            events_before: 0,
        };
        engine.populate();
        engine
    }

    /// Initial customers and the first arrival of each source.
    fn populate(&mut self) {
        let plan = self.plan;
        for (class, class_plan) in (0_u16..).zip(&plan.classes) {
            match &class_plan.kind {
                Kind::Open { gap, .. } => {
                    let at = &mut self.arrivals_at[usize::from(class)];
                    let first = gap.sample(&mut self.sources[usize::from(class)], at);
                    self.events.schedule(first, What::Arrival, u32::from(class));
                }
                Kind::Closed { population } => {
                    for _ in 0..*population {
                        let Some(customer) = self.create(class, NONE) else { return };
                        let hop = self.choose(class_plan.entry, None, usize::from(class));
                        self.go(customer, hop);
                    }
                }
                Kind::Child => {}
            }
        }
    }

    /// Handles all events up to `until`, and brings the tallies there.
    pub(super) fn run(&mut self, until: f64) -> Result<(), Halt> {
        loop {
            let before = self.now;
            for _ in 0..LOOK_EVERY {
                if self.events.next_time() > until {
                    return self.pause(until);
                }
                let event = self.events.begin();
                self.now = event.time;
                self.handle(event);
                self.events.finish();
            }
            if let Some(halt) = self.halt {
                return Err(halt);
            }
            if self.now <= before {
                return Err(Halt::ClockStands { time: self.now });
            }
            if self.events.scheduled() > MOST_EVENTS - (1 << 24) {
                return Err(Halt::TooManyEvents { time: self.now });
            }
        }
    }

    fn pause(&mut self, until: f64) -> Result<(), Halt> {
        if let Some(halt) = self.halt {
            return Err(halt);
        }
        if self.events.next_time() == f64::INFINITY && self.present > 0 {
            return Err(Halt::Deadlock { time: self.now });
        }
        self.now = until;
        for station in 0..self.stations.len() {
            self.touch(u32::try_from(station).expect("few stations"));
        }
        for cell in &mut self.cells {
            cell.advance(until);
        }
        for system in &mut self.systems {
            system.present.advance(until);
        }
        for station in &mut self.stations {
            station.tally.blocked.advance(until);
        }
        Ok(())
    }

    /// Handles `count` events, wherever that leads: to see how fast they come.
    pub(super) fn run_events(&mut self, count: u64) -> Result<(), Halt> {
        for _ in 0..count {
            if self.halt.is_some() || self.events.next_time() == f64::INFINITY {
                break;
            }
            let event = self.events.begin();
            self.now = event.time;
            self.handle(event);
            self.events.finish();
        }
        self.halt.map_or(Ok(()), Err)
    }

    /// Counts since the last call; customers stay where they are.
    pub(super) fn take(&mut self) -> Totals {
        let now = self.now;
        let totals = Totals {
            time: now - self.since,
            events: self.events.scheduled() - self.events_before,
            cells: self.cells.iter_mut().map(|cell| cell.take(now)).collect(),
            systems: self.systems.iter_mut().map(|system| system.take(now)).collect(),
            stations: self.stations.iter_mut().map(|station| station.tally.take(now)).collect(),
        };
        self.since = now;
        self.events_before = self.events.scheduled();
        totals
    }

    #[inline]
    fn handle(&mut self, event: Event) {
        match event.what {
            What::Arrival => self.emit(event.index),
            What::Service => {
                if self.customers[event.index as usize].event == event.number {
                    self.complete(event.index);
                }
            }
            What::Shared => {
                let station = &mut self.stations[event.index as usize];
                if station.event == event.number {
                    let customer = self.shared_first(event.index);
                    self.complete(customer);
                }
            }
            What::Patience => {
                let customer = &self.customers[event.index as usize];
                if customer.event == event.number && customer.waiting {
                    self.renege(event.index);
                }
            }
        }
        if !self.freed.is_empty() {
            self.unblock();
        }
    }

    /// A source sends out customers and sets its next time.
    #[inline]
    fn emit(&mut self, index: u32) {
        let plan = self.plan;
        let source = index as usize;
        let Kind::Open { gap, batch } = &plan.classes[source].kind else { return };
        let stream = &mut self.sources[source];
        let next = self.now + gap.sample(stream, &mut self.arrivals_at[source]);
        self.events.schedule(next, What::Arrival, index);
        let size = match batch {
            Batch::Fixed(size) => *size,
            Batch::Geometric { mean } => geometric(*mean, stream),
            Batch::Table(table) => {
                let draw = stream.random::<f64>();
                table.iter().find(|(_, c)| draw < *c).or(table.last()).map_or(1, |(size, _)| *size)
            }
        };
        let class = u16::try_from(source).expect("few classes");
        for _ in 0..size {
            let Some(customer) = self.create(class, NONE) else { return };
            let hop = self.choose(plan.classes[source].entry, None, source);
            self.go(customer, hop);
        }
    }

    /// A new customer in the network; `None` at the largest number of customers.
    #[inline]
    fn create(&mut self, class: u16, join: u32) -> Option<u32> {
        let now = self.now;
        if self.present >= self.most_customers {
            self.halt.get_or_insert(Halt::TooManyCustomers { time: now });
            return None;
        }
        self.present += 1;
        let system = &mut self.systems[usize::from(class)];
        system.offered += 1;
        system.present.up(now);
        let new = Customer {
            entered: now,
            arrived: now,
            since: now,
            waited: 0.0,
            left: 0.0,
            event: 0,
            next: NONE,
            previous: NONE,
            join,
            then: NO_HOP,
            station: EXIT,
            class,
            waiting: false,
            turned_away: false,
        };
        if self.free == NONE {
            self.customers.push(new);
            return Some(u32::try_from(self.customers.len() - 1).expect("limited to 24 bits"));
        }
        let index = self.free;
        let place = &mut self.customers[index as usize];
        self.free = place.next;
        *place = new;
        Some(index)
    }

    /// Takes a customer out of the network.
    #[inline]
    fn remove(&mut self, customer: u32) {
        let place = &mut self.customers[customer as usize];
        let (class, join, then) = (place.class, place.join, place.then);
        place.event = 0;
        place.next = self.free;
        self.free = customer;
        self.present -= 1;
        self.systems[usize::from(class)].present.down(self.now);
        if join != NONE {
            self.come_back(join, then);
        }
    }

    /// Chooses among the hops of a route.
    #[inline]
    fn choose(&mut self, route: Route, after: Option<u32>, class: usize) -> Hop {
        let hops = self.plan.hops_of(route);
        if let [only] = hops {
            return *only;
        }
        let stations = self.stations.len();
        // One stream a station for what comes after it, one a class for where it begins.
        let own = after.map_or(stations + class, |station| station as usize);
        match route.rule {
            Rule::Random => {}
            Rule::Shortest(of, weights) => return self.shortest(hops, (of, weights), own),
            Rule::InTurn(counter) => {
                let turn = &mut self.turns[counter as usize];
                *turn = (*turn + 1) % route.length;
                return hops[*turn as usize];
            }
            Rule::ByNumber(first) => {
                if let Some(hop) = self.by_number(hops, first, own) {
                    return hop;
                }
            }
        }
        let stream = &mut self.routings[own];
        let draw = stream.random::<f64>();
        let last = hops.len() - 1;
        hops[..last].iter().find(|hop| draw < hop.cumulative).copied().unwrap_or(hops[last])
    }

    /// The hop to the station with the fewest customers by its weight, among `of` of them that are drawn; of
    /// equals one is drawn.
    fn shortest(&mut self, hops: &[Hop], (of, weights): (u32, Option<u32>), own: usize) -> Hop {
        let (mut wanted, mut best, mut fewest, mut equals) =
            (of as usize, hops[0], f64::INFINITY, 0);
        for (index, &hop) in hops.iter().enumerate() {
            let left = hops.len() - index;
            if wanted < left && self.routings[own].random_range(0..left) >= wanted {
                continue;
            }
            wanted = wanted.min(left).saturating_sub(1);
            let present = f64::from(self.present_at(hop));
            let share = weights.map(|first| self.plan.factors[first as usize + index][0]);
            let present = share.map_or(present, |share| (present + 1.0) / share);
            // Quotients that should be equal may round to either side.
            if present < fewest * (1.0 - 1e-9) {
                (best, fewest, equals) = (hop, present, 1);
            } else if present <= fewest * (1.0 + 1e-9) {
                equals += 1;
                if self.routings[own].random_range(0..equals) == 0 {
                    best = hop;
                }
            }
        }
        best
    }

    /// Customers where a hop leads.
    fn present_at(&self, hop: Hop) -> u32 {
        self.stations.get(self.plan.target(hop) as usize).map_or(0, |station| station.present)
    }

    /// Drawn by the probabilities times what the numbers at the stations make of them; `None` where nothing
    /// is left of any.
    fn by_number(&mut self, hops: &[Hop], first: u32, own: usize) -> Option<Hop> {
        let draw = self.routings[own].random::<f64>();
        let shares = hops.iter().zip(&self.plan.factors[first as usize..]).scan(
            (0.0, 0.0),
            |(sum, before), (hop, factors)| {
                let at = (self.present_at(*hop) as usize).min(factors.len().saturating_sub(1));
                *sum += (hop.cumulative - *before) * factors.get(at).copied().unwrap_or(1.0);
                *before = hop.cumulative;
                Some((*sum, *hop))
            },
        );
        let (sum, _) = shares.clone().last()?;
        shares.clone().find(|(up_to, _)| draw * sum < *up_to).map(|(_, hop)| hop)
    }

    #[inline]
    pub(super) fn after(&mut self, station: u32, class: u16, customer: u32) -> Hop {
        let then = &mut self.customers[customer as usize].then;
        if *then != NO_HOP {
            let hop = self.plan.hops[*then as usize];
            *then = NO_HOP;
            return hop;
        }
        let route = self.plan.routes[self.plan.cell(station, class)];
        self.choose(route, Some(station), usize::from(class))
    }

    /// Moves a customer that belongs to no station along a hop, and on where it is not let in.
    #[inline]
    pub(super) fn go(&mut self, customer: u32, first: Hop) {
        let mut hop = first;
        for _ in 0..MOST_HOPS {
            self.switch(customer, hop);
            if hop.to == EXIT {
                let class = usize::from(self.customers[customer as usize].class);
                let plan = &self.plan.classes[class];
                if !plan.closed || matches!(plan.kind, Kind::Child) {
                    return self.remove(customer);
                }
                // A cycle ended, and there is no think time: the next begins.
                hop = self.choose(plan.entry, None, class);
                continue;
            }
            if self.try_enter(customer, hop.to) {
                return;
            }
            // Not let in: an open customer is gone, a closed one goes on as if it had been served.
            if !self.gives_up(customer) {
                return self.remove(customer);
            }
            let class = self.customers[customer as usize].class;
            hop = self.after(hop.to, class, customer);
        }
        self.halt.get_or_insert(Halt::ClockStands { time: self.now });
        self.remove(customer);
    }

    /// Counts the end of a cycle or visit, and changes the class where the hop does.
    #[inline]
    fn switch(&mut self, customer: u32, hop: Hop) {
        let now = self.now;
        let place = &mut self.customers[customer as usize];
        place.then = hop.then;
        if hop.class != place.class {
            self.systems[usize::from(place.class)].present.down(now);
            place.class = hop.class;
            self.systems[usize::from(hop.class)].present.up(now);
        }
        if hop.completes {
            let system = &mut self.systems[usize::from(hop.class)];
            system.completions += 1;
            system.response.record(now - place.entered);
            place.entered = now;
        }
        if hop.to != EXIT && self.plan.classes[usize::from(hop.class)].think == Some(hop.to) {
            self.systems[usize::from(hop.class)].present.down(now);
        }
    }

    /// A service is over: the customer goes on, or waits for a free place at the next station.
    #[inline]
    fn complete(&mut self, customer: u32) {
        let place = &mut self.customers[customer as usize];
        place.event = 0;
        let (station, class) = (place.station, place.class);
        let hop = match self.aimed(customer) {
            Some(hop) => hop,
            None => self.after(station, class, customer),
        };
        if hop.to != EXIT && hop.to != station && self.must_wait_for(hop.to) {
            self.block(customer, hop);
            return;
        }
        if hop.to != EXIT && hop.to != station && self.must_repeat_for(hop.to) {
            self.repeat(customer);
            return;
        }
        self.depart(customer, hop);
    }

    /// Leaves a station for good and follows the hop.
    #[inline]
    pub(super) fn depart(&mut self, customer: u32, hop: Hop) {
        let thinks = self.thinks(customer);
        self.repeats = 0;
        self.leave(customer);
        if thinks {
            let place = &mut self.customers[customer as usize];
            if std::mem::take(&mut place.turned_away) {
                place.waited += self.now - place.since;
            } else {
                self.systems[usize::from(place.class)].present.up(self.now);
            }
            // What it waited before the first station is part of its response.
            place.entered = self.now - place.waited;
        }
        self.go(customer, hop);
    }

    /// A waiting customer gives up.
    fn renege(&mut self, customer: u32) {
        let class = self.customers[customer as usize].class;
        let station = self.customers[customer as usize].station;
        self.abandon_queue(customer);
        if self.gives_up(customer) {
            let hop = self.after(station, class, customer);
            self.go(customer, hop);
        } else {
            self.remove(customer);
        }
    }

    /// Counts a visit that came to nothing, for the class of the model; whether the customer goes
    /// on.
    fn gives_up(&mut self, customer: u32) -> bool {
        let place = &mut self.customers[customer as usize];
        // The token or the station that it was on its way to is no longer its aim.
        place.then = NO_HOP;
        let plan = &self.plan.classes[usize::from(place.class)];
        self.systems[plan.reported].abandoned += 1;
        plan.closed
    }

    /// Sends out the children of a customer whose service is visits elsewhere.
    pub(super) fn send_out(&mut self, parent: u32, children: &[Hop], needed: u32) {
        let out = u32::try_from(children.len()).expect("few children");
        let record = Join { parent, needed: needed.clamp(1, out.max(1)), out };
        let join = if let Some(free) = self.free_joins.pop() {
            self.joins[free as usize] = record;
            free
        } else {
            self.joins.push(record);
            u32::try_from(self.joins.len() - 1).expect("as many as customers at most")
        };
        for &hop in children {
            let Some(child) = self.create(hop.class, join) else { return };
            self.go(child, hop);
        }
    }

    /// Sends out the one child of a customer that now holds a token of a pool.
    pub(super) fn hold(&mut self, parent: u32) {
        let then = std::mem::replace(&mut self.customers[parent as usize].then, NO_HOP);
        let first = self.plan.hops[then as usize];
        self.send_out(parent, &[first], 1);
    }

    /// A child came back.
    fn come_back(&mut self, join: u32, then: u32) {
        let record = &mut self.joins[join as usize];
        record.out -= 1;
        record.needed = record.needed.wrapping_sub(1);
        let (parent, needed, out) = (record.parent, record.needed, record.out);
        if out == 0 {
            self.free_joins.push(join);
        }
        if needed == 0 {
            // As an event of its own: the parent may not even have begun to wait.
            let number = self.events.schedule(self.now, What::Service, parent);
            let place = &mut self.customers[parent as usize];
            place.event = number;
            place.then = then;
        }
    }

    /// Draws the service time of `class` at `station`.
    #[inline]
    pub(super) fn draw_work(&mut self, station: u32, class: u16) -> f64 {
        match &self.plan.stations[station as usize].work[usize::from(class)] {
            Work::Time(sampler) => {
                let at = &mut self.services_at[self.plan.cell(station, class)];
                sampler.sample(&mut self.services[station as usize], at)
            }
            Work::Fork { .. } | Work::Hold | Work::Never => 0.0,
        }
    }
}

/// 1, 2, … with this mean.
fn geometric(mean: f64, stream: &mut Stream) -> u32 {
    if mean <= 1.0 {
        return 1;
    }
    let draw = 1.0 - stream.random::<f64>();
    let size = 1.0 + (draw.ln() / (-1.0 / mean).ln_1p()).floor();
    u32::try_from(kendall_units::whole_u64(size)).unwrap_or(u32::MAX)
}
