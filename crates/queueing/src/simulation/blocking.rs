//! Blocking by a full station: customers held at a server before it, and models that are refused.

use std::collections::BTreeMap;

use super::SimulationError;
use super::engine::{Customer, Engine, Halt};
use super::events::What;
use super::plan::{Hop, Preemption, Service, Work};
use crate::model::{Class, Discipline, Model, Place, Station, WhenFull};

/// Services that are repeated one after the other, without one that leads on, before this counts as a standstill.
const MOST_REPEATS: u32 = 10_000_000;

/// Where to, as which class, how likely.
pub(super) type Step = (Place, usize, f64);

/// Where each class goes from where.
type Legs = BTreeMap<(usize, Place), Vec<Step>>;

/// Refuses stations that cannot come before one that blocks, and circles of blocking stations.
pub(super) fn check(model: &Model, legs: &Legs) -> Result<(), SimulationError> {
    let unsupported = |station: &str, what, instead| {
        Err(SimulationError::Unsupported { station: station.to_owned(), what, instead })
    };
    let blocks = |station: &Station| station.when_full != WhenFull::Lost;
    let Some(one) = model.stations.iter().find(|station| blocks(station)) else { return Ok(()) };
    if let Some(pool) = model.pools.first() {
        let instead = "leave out the pools, or the blocking";
        return unsupported(&pool.name, "a pool in a model with blocking", instead);
    }
    let ways = ways(model, legs);
    for &(from, to) in ways.iter().filter(|(from, to)| from != to && blocks(&model.stations[*to])) {
        let station = &model.stations[from];
        let shared =
            matches!(station.discipline, Discipline::Ps | Discipline::Dps | Discipline::Gps);
        if !station.is_delay() && (shared || !station.rate_multipliers.is_empty()) {
            let what = "a shared or load-dependent station that can be blocked";
            return unsupported(&station.name, what, "give it first come, first served");
        }
        let interrupts = matches!(
            station.discipline,
            Discipline::PriorityPreemptive
                | Discipline::Srpt
                | Discipline::EdfPreemptive
                | Discipline::LcfsPr
        );
        let repeats = model.stations[to].when_full == WhenFull::RepeatService;
        if repeats && station.fork.is_some() {
            let what = "a fork whose service would be repeated";
            return unsupported(&station.name, what, "use `block-after-service`");
        }
        let before = model.stations[to].when_full == WhenFull::BlockBeforeService;
        if before && (interrupts || station.fork.is_some()) {
            let what = "a fork or pre-emption that can be blocked before service";
            return unsupported(&station.name, what, "use `block-after-service`");
        }
    }
    // One closed chain comes to a standstill that is seen.
    let hidden = model.chains().len() > 1 || model.classes.iter().any(Class::is_open);
    if hidden && blocks_in_a_circle(model, &ways) {
        let what = "a circle of stations that block, in which customers may wait for each other,";
        return unsupported(&one.name, what, "leave one of them without a limit");
    }
    Ok(())
}

/// From which station to which. Without think time a customer that completes its cycle begins the next at once.
fn ways(model: &Model, legs: &Legs) -> Vec<(usize, usize)> {
    let mut ways = Vec::new();
    for ((_, from), steps) in legs {
        let Place::Station(from) = *from else { continue };
        for (to, class, _) in steps {
            let class_at_home = &model.classes[*class];
            match to {
                Place::Station(to) => ways.push((from, *to)),
                Place::Outside if class_at_home.is_open() || class_at_home.think_time_s() > 0.0 => {
                }
                Place::Outside => {
                    let again = legs.get(&(*class, Place::Outside)).into_iter().flatten();
                    ways.extend(again.filter_map(|(to, ..)| match to {
                        Place::Station(to) => Some((from, *to)),
                        Place::Outside => None,
                    }));
                }
            }
        }
    }
    ways
}

/// Whether customers can come back to a station by way of stations that block alone.
fn blocks_in_a_circle(model: &Model, ways: &[(usize, usize)]) -> bool {
    let stations = model.stations.iter().enumerate();
    let mut left: Vec<usize> =
        stations.filter(|(_, s)| s.when_full != WhenFull::Lost).map(|(index, _)| index).collect();
    // Those that lead on to none of the others are in no circle.
    loop {
        let leads_on =
            |from: &usize| ways.iter().any(|(a, b)| a == from && b != from && left.contains(b));
        let stay: Vec<usize> = left.iter().copied().filter(leads_on).collect();
        if stay.len() == left.len() {
            return !left.is_empty();
        }
        left = stay;
    }
}

impl Engine<'_> {
    /// Whether a customer from another station must wait for a free place at `station`.
    #[inline]
    pub(super) fn must_wait_for(&self, station: u32) -> bool {
        let plan = &self.plan.stations[station as usize];
        plan.when_full == WhenFull::BlockAfterService && self.is_full(station)
    }

    fn is_full(&self, station: u32) -> bool {
        let capacity = self.plan.stations[station as usize].capacity;
        self.stations[station as usize].present >= capacity
    }

    /// Whether where a customer goes is chosen before it is served.
    #[inline]
    pub(super) fn knows_aim(&self, customer: u32) -> bool {
        self.plan.aims && {
            let Customer { station, class, .. } = self.customers[customer as usize];
            let plan = &self.plan.stations[station as usize];
            let shared = matches!(plan.service, Service::Shared { .. });
            let time = matches!(plan.work[usize::from(class)], Work::Time(_) | Work::Never);
            time && !shared && plan.preemption == Preemption::None
        }
    }

    /// Chooses where a customer goes after its service; whether it may be served now.
    pub(super) fn aim(&mut self, customer: u32) -> bool {
        let Customer { station, class, .. } = self.customers[customer as usize];
        let hop = self.after(station, class, customer);
        let place = customer as usize;
        if self.aims.len() <= place {
            self.aims.resize(place + 1, hop);
        }
        self.aims[place] = hop;
        if !self.is_gate(hop.to, station) {
            return true;
        }
        self.stations[hop.to as usize].aiming.push(customer);
        let full = self.is_full(hop.to);
        if full {
            self.suspend(customer);
        }
        !full
    }

    /// Whether a customer thinks where it is.
    pub(super) fn thinks(&self, customer: u32) -> bool {
        let Customer { station, class, .. } = self.customers[customer as usize];
        self.plan.classes[usize::from(class)].think == Some(station)
    }

    /// From here on a customer waits at its server, and is not served; one that would think is in the network.
    fn suspend(&mut self, customer: u32) {
        let thinks = self.thinks(customer);
        let Customer { station, class, .. } = self.customers[customer as usize];
        self.touch(station);
        self.stations[station as usize].tally.blocked.up(self.now);
        self.cells[self.plan.cell(station, class)].serving.down(self.now);
        let place = &mut self.customers[customer as usize];
        if place.turned_away {
            place.waited += self.now - place.since;
        } else if thinks {
            self.systems[usize::from(class)].present.up(self.now);
        }
        place.since = self.now;
    }

    /// Ends what [`suspend`](Self::suspend) began.
    fn resume(&mut self, customer: u32) {
        let thinks = self.thinks(customer);
        let Customer { station, class, .. } = self.customers[customer as usize];
        self.touch(station);
        self.stations[station as usize].tally.blocked.down(self.now);
        self.cells[self.plan.cell(station, class)].serving.up(self.now);
        let place = &mut self.customers[customer as usize];
        place.waited += self.now - place.since;
        place.since = self.now;
        if thinks && !place.turned_away {
            self.systems[usize::from(class)].present.down(self.now);
        }
    }

    /// Whether what leads from one station to another waits for a free place before it is served.
    fn is_gate(&self, to: u32, from: u32) -> bool {
        let plan = self.plan.stations.get(to as usize);
        to != from && plan.is_some_and(|plan| plan.when_full == WhenFull::BlockBeforeService)
    }

    /// Where a customer goes whose service is over, if it was chosen before.
    #[inline]
    pub(super) fn aimed(&mut self, customer: u32) -> Option<Hop> {
        if !self.knows_aim(customer) {
            return None;
        }
        let station = self.customers[customer as usize].station;
        let hop = self.aims[customer as usize];
        if self.is_gate(hop.to, station) {
            let aiming = &mut self.stations[hop.to as usize].aiming;
            aiming.retain(|other| *other != customer);
        }
        Some(hop)
    }

    /// Interrupts the services of all who go to a station that is full now.
    pub(super) fn hold_back(&mut self, station: u32) {
        for index in 0..self.stations[station as usize].aiming.len() {
            let customer = self.stations[station as usize].aiming[index];
            if self.customers[customer as usize].event != 0 && self.is_full(station) {
                let place = &mut self.customers[customer as usize];
                place.event = 0;
                place.left = (place.left - (self.now - place.since)).max(0.0);
                self.suspend(customer);
            }
        }
    }

    /// Serves customers that were held back, if there is a free place again where they go.
    fn let_go(&mut self, station: u32) {
        for index in 0..self.stations[station as usize].aiming.len() {
            let customer = self.stations[station as usize].aiming[index];
            let Customer { event, left, .. } = self.customers[customer as usize];
            if event == 0 && !self.is_full(station) {
                self.resume(customer);
                let number = self.events.schedule(self.now + left, What::Service, customer);
                self.customers[customer as usize].event = number;
            }
        }
    }

    /// Whether a customer that would go to `station` is served again where it is.
    #[inline]
    pub(super) fn must_repeat_for(&self, station: u32) -> bool {
        let plan = &self.plan.stations[station as usize];
        plan.when_full == WhenFull::RepeatService && self.is_full(station)
    }

    /// Serves a customer again that was not let in where it would go.
    pub(super) fn repeat(&mut self, customer: u32) {
        self.repeats += 1;
        if self.repeats > MOST_REPEATS {
            self.halt.get_or_insert(Halt::Deadlock { time: self.now });
        }
        let thinks = self.thinks(customer);
        let Customer { station, class, .. } = self.customers[customer as usize];
        let left = self.draw_work(station, class);
        let place = &mut self.customers[customer as usize];
        if place.turned_away {
            place.waited += self.now - place.since;
        } else if thinks {
            // It thinks again because it is not let in: that is a wait for a place.
            place.turned_away = true;
            self.systems[usize::from(class)].present.up(self.now);
        }
        (place.left, place.since) = (left, self.now);
        if self.knows_aim(customer) && !self.aim(customer) {
            return;
        }
        let number = self.events.schedule(self.now + left, What::Service, customer);
        self.customers[customer as usize].event = number;
    }

    /// Holds a customer at its server until there is a free place where it goes.
    pub(super) fn block(&mut self, customer: u32, hop: Hop) {
        self.suspend(customer);
        self.stations[hop.to as usize].blocked.push_back((customer, hop));
    }

    #[inline]
    pub(super) fn note_room(&mut self, station: u32) {
        let state = &self.stations[station as usize];
        if !state.blocked.is_empty() || !state.aiming.is_empty() {
            self.freed.push(station);
        }
    }

    /// Lets blocked customers move where places were freed; each frees the place that it leaves.
    pub(super) fn unblock(&mut self) {
        while let Some(station) = self.freed.pop() {
            self.let_go(station);
            while !self.must_wait_for(station) {
                let Some((customer, hop)) = self.stations[station as usize].blocked.pop_front()
                else {
                    break;
                };
                self.resume(customer);
                self.depart(customer, hop);
            }
        }
    }
}
