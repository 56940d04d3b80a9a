//! What happens at a station: admission, order of service, preemption.

use rand::RngExt as _;

use super::engine::Engine;
use super::events::What;
use super::heap;
use super::plan::{Order, Preemption, Service, StationPlan, UNLIMITED, Work};
use super::state::{List, NONE};
use super::streams::BEGINNING;
use crate::model::WhenFull;

impl Engine<'_> {
    /// Brings a station's integrals to now. Called before anything there changes.
    #[inline(always)]
    pub(super) fn touch(&mut self, station: u32) {
        let state = &mut self.stations[station as usize];
        let busy = state.busy(&self.plan.stations[station as usize]);
        state.tally.advance(self.now, state.present, busy);
    }

    /// Lets a customer in, unless the station is full or the customer does not want to.
    #[inline]
    pub(super) fn try_enter(&mut self, customer: u32, station: u32) -> bool {
        let plan = &self.plan.stations[station as usize];
        let present = self.stations[station as usize].present;
        if present >= plan.capacity || !plan.joining.is_empty() {
            let class = self.customers[customer as usize].class;
            let cell = &mut self.cells[self.plan.cell(station, class)];
            if present >= plan.capacity {
                cell.arrivals += 1;
                cell.lost += 1;
                return false;
            }
            let joins = plan.joining[(present as usize).min(plan.joining.len() - 1)];
            if joins < 1.0 && self.moods[station as usize].random::<f64>() >= joins {
                cell.arrivals += 1;
                cell.balked += 1;
                return false;
            }
        }
        self.enter(customer, station);
        if plan.when_full == WhenFull::BlockBeforeService {
            self.hold_back(station);
        }
        true
    }

    /// A customer comes to a station and is served, or waits.
    #[inline]
    pub(super) fn enter(&mut self, customer: u32, station: u32) {
        let now = self.now;
        self.touch(station);
        let class = self.customers[customer as usize].class;
        let left = self.draw_work(station, class);
        let place = &mut self.customers[customer as usize];
        place.station = station;
        place.arrived = now;
        place.since = now;
        place.waited = 0.0;
        place.left = left;
        let cell = &mut self.cells[self.plan.cell(station, class)];
        cell.arrivals += 1;
        cell.present.up(now);
        let plan = &self.plan.stations[station as usize];
        let state = &mut self.stations[station as usize];
        if let Service::Shared { .. } = plan.service {
            self.settle_shared(station);
            let state = &mut self.stations[station as usize];
            state.present += 1;
            if state.has_slot(plan) && !state.taken[plan.levels[usize::from(class)] as usize] {
                self.begin(customer);
            } else {
                self.enqueue(customer, false);
            }
            self.reschedule_shared(station);
            return;
        }
        state.present += 1;
        let slot = state.has_slot(plan);
        if slot || (plan.preemption != Preemption::None && self.interrupt_for(customer)) {
            self.begin(customer);
        } else {
            self.enqueue(customer, false);
        }
    }

    /// Begins or resumes a service.
    #[inline]
    fn begin(&mut self, customer: u32) {
        let now = self.now;
        let place = &mut self.customers[customer as usize];
        let (station, class) = (place.station, place.class);
        place.waited += now - place.since;
        place.since = now;
        place.waiting = false;
        place.event = 0;
        let left = place.left;
        let cell = self.plan.cell(station, class);
        self.cells[cell].serving.up(now);
        let plan = &self.plan.stations[station as usize];
        let state = &mut self.stations[station as usize];
        state.serving += 1;
        if let Service::Shared { .. } = plan.service {
            let weight = plan.weight(class);
            let ends = state.given + left / weight;
            state.weight += weight;
            if plan.order == Order::OneOfEach {
                state.taken[plan.levels[usize::from(class)] as usize] = true;
            }
            heap::push(&mut state.sharing, (ends, customer));
            return;
        }
        if plan.preemption != Preemption::None {
            let mut list = state.interruptible;
            self.link_front(&mut list, customer);
            self.stations[station as usize].interruptible = list;
        }
        match &plan.work[usize::from(class)] {
            Work::Fork { children, needed } => self.send_out(customer, children, *needed),
            Work::Hold => self.hold(customer),
            Work::Time(_) | Work::Never if self.knows_aim(customer) && !self.aim(customer) => {}
            Work::Time(_) | Work::Never => {
                let number = self.events.schedule(now + left, What::Service, customer);
                self.customers[customer as usize].event = number;
            }
        }
    }

    /// Interrupts a customer in favor of `customer`, if its class may and one can be interrupted.
    fn interrupt_for(&mut self, customer: u32) -> bool {
        let (station, class) = {
            let place = &self.customers[customer as usize];
            (place.station, place.class)
        };
        let plan = &self.plan.stations[station as usize];
        let mut victim = NONE;
        let mut victim_level = plan.levels[usize::from(class)];
        let mut last = self.rank(customer);
        let mut at = self.stations[station as usize].interruptible.head;
        while at != NONE {
            let other = &self.customers[at as usize];
            let level = plan.levels[usize::from(other.class)];
            let rank = self.rank(at);
            // Of the lowest level the one that began last; where every arrival interrupts, the
            // one that began first. A customer that is blocked holds its server.
            let takes = match plan.preemption {
                Preemption::ByLevel => level > victim_level,
                Preemption::ByArrival => true,
                Preemption::ByRank => rank > last,
                Preemption::None => false,
            };
            if takes && other.event != 0 {
                victim = at;
                victim_level = level;
                last = rank;
            }
            at = other.next;
        }
        if victim == NONE {
            return false;
        }
        self.unlink_interruptible(station, victim);
        let now = self.now;
        let place = &mut self.customers[victim as usize];
        place.left = (place.left - (now - place.since)).max(0.0);
        place.since = now;
        place.event = 0;
        let cell = self.plan.cell(station, place.class);
        self.cells[cell].serving.down(now);
        self.stations[station as usize].serving -= 1;
        self.enqueue(victim, true);
        true
    }

    /// What puts a customer before those who have more of it.
    fn rank(&self, customer: u32) -> f64 {
        let place = &self.customers[customer as usize];
        let plan = &self.plan.stations[place.station as usize];
        match plan.order {
            Order::Deadline => place.arrived + plan.deadline(place.class),
            _ if place.waiting => place.left,
            _ => place.left - (self.now - place.since),
        }
    }

    fn unlink_interruptible(&mut self, station: u32, customer: u32) {
        let mut list = self.stations[station as usize].interruptible;
        self.unlink(&mut list, customer);
        self.stations[station as usize].interruptible = list;
    }

    /// Puts a customer into its queue; in front of its level if it was interrupted.
    #[inline]
    fn enqueue(&mut self, customer: u32, interrupted: bool) {
        let (station, class) = {
            let place = &mut self.customers[customer as usize];
            place.waiting = true;
            (place.station, place.class)
        };
        let plan = &self.plan.stations[station as usize];
        let level = plan.levels[usize::from(class)] as usize;
        let state = &mut self.stations[station as usize];
        state.waiting += 1;
        let mut list = state.queues[level];
        match plan.order {
            Order::Shortest | Order::Deadline => {
                let rank = self.rank(customer);
                let mut at = list.head;
                while at != NONE && self.rank(at) <= rank {
                    at = self.customers[at as usize].next;
                }
                self.link_before(&mut list, at, customer);
            }
            _ if interrupted => self.link_front(&mut list, customer),
            Order::LastCome => self.link_front(&mut list, customer),
            Order::FirstCome | Order::OneOfEach | Order::Random => {
                self.link_before(&mut list, NONE, customer)
            }
        }
        self.stations[station as usize].queues[level] = list;
        if interrupted {
            return;
        }
        if let Some(patience) = &plan.patience[usize::from(class)] {
            let time =
                self.now + patience.sample(&mut self.moods[station as usize], &mut { BEGINNING });
            let number = self.events.schedule(time, What::Patience, customer);
            self.customers[customer as usize].event = number;
        }
    }

    /// Takes the next customer out of the queues.
    #[inline]
    fn next_waiting(&mut self, station: u32) -> Option<u32> {
        let state = &self.stations[station as usize];
        let mut queues = state.queues.iter().zip(&state.taken);
        let level = queues.position(|(list, taken)| list.head != NONE && !taken)?;
        let mut list = state.queues[level];
        let mut customer = list.head;
        if self.plan.stations[station as usize].order == Order::Random {
            let mut count = 0;
            let mut at = list.head;
            while at != NONE {
                count += 1;
                if self.moods[station as usize].random_range(0..count) == 0 {
                    customer = at;
                }
                at = self.customers[at as usize].next;
            }
        }
        self.unlink(&mut list, customer);
        let state = &mut self.stations[station as usize];
        state.queues[level] = list;
        state.waiting -= 1;
        Some(customer)
    }

    /// A customer whose service is over leaves its station; the next is served.
    #[inline]
    pub(super) fn leave(&mut self, customer: u32) {
        let now = self.now;
        let place = &self.customers[customer as usize];
        let (station, class) = (place.station, place.class);
        let (response, waited, left) = (now - place.arrived, place.waited, place.left);
        self.touch(station);
        let plan = &self.plan.stations[station as usize];
        let shared = matches!(plan.service, Service::Shared { .. });
        let cell = &mut self.cells[self.plan.cell(station, class)];
        cell.completions += 1;
        cell.present.down(now);
        cell.serving.down(now);
        cell.response.record(response);
        if shared && plan.speeds.is_empty() {
            // Sharing is waiting spread over the service; what rounding leaves is not a wait.
            let extra = response - left;
            cell.waiting.record(if extra > 1e-12 * response { extra } else { 0.0 });
            cell.work += left;
        } else {
            cell.waiting.record(waited);
            cell.work += response - waited;
        }
        if shared {
            self.settle_shared(station);
        }
        if plan.preemption != Preemption::None {
            self.unlink_interruptible(station, customer);
        }
        let state = &mut self.stations[station as usize];
        state.present -= 1;
        state.serving -= 1;
        if shared {
            state.weight = if state.serving == 0 { 0.0 } else { state.weight - plan.weight(class) };
            state.taken[plan.levels[usize::from(class)] as usize] = false;
        }
        if state.waiting > 0 {
            self.serve_next(station);
        }
        if shared {
            self.reschedule_shared(station);
        }
        self.note_room(station);
    }

    #[inline]
    fn serve_next(&mut self, station: u32) {
        let plan = &self.plan.stations[station as usize];
        while self.stations[station as usize].has_slot(plan) {
            let Some(next) = self.next_waiting(station) else { break };
            self.begin(next);
        }
    }

    /// A waiting customer leaves without service.
    pub(super) fn abandon_queue(&mut self, customer: u32) {
        let now = self.now;
        let place = &mut self.customers[customer as usize];
        let (station, class) = (place.station, place.class);
        place.event = 0;
        place.waiting = false;
        self.touch(station);
        let plan = &self.plan.stations[station as usize];
        let shared = matches!(plan.service, Service::Shared { .. });
        if shared {
            self.settle_shared(station);
        }
        let level = plan.levels[usize::from(class)] as usize;
        let mut list = self.stations[station as usize].queues[level];
        self.unlink(&mut list, customer);
        let state = &mut self.stations[station as usize];
        state.queues[level] = list;
        state.waiting -= 1;
        state.present -= 1;
        let cell = &mut self.cells[self.plan.cell(station, class)];
        cell.present.down(now);
        cell.reneged += 1;
        if shared {
            self.reschedule_shared(station);
        }
        self.note_room(station);
    }

    /// Takes out the first of those who share.
    pub(super) fn shared_first(&mut self, station: u32) -> u32 {
        self.touch(station);
        self.settle_shared(station);
        let state = &mut self.stations[station as usize];
        let (ends, customer) = heap::pop(&mut state.sharing).expect("an event means one is there");
        // Exactly there, so that rounding does not pile up.
        state.given = ends;
        customer
    }

    /// Brings the work given at a shared station to now.
    fn settle_shared(&mut self, station: u32) {
        let plan = &self.plan.stations[station as usize];
        let state = &mut self.stations[station as usize];
        if state.serving == 0 {
            state.given = 0.0;
        } else {
            let each = plan.speed(state.present) / state.weight;
            state.given += each * (self.now - state.given_at);
        }
        state.given_at = self.now;
    }

    fn reschedule_shared(&mut self, station: u32) {
        let plan = &self.plan.stations[station as usize];
        let state = &mut self.stations[station as usize];
        state.event = 0;
        let Some(&(ends, _)) = state.sharing.first() else { return };
        let each = plan.speed(state.present) / state.weight;
        if each > 0.0 {
            let time = self.now + ((ends - state.given) / each).max(0.0);
            state.event = self.events.schedule(time, What::Shared, station);
        }
    }

    fn link_front(&mut self, list: &mut List, customer: u32) {
        self.link_before(list, list.head, customer);
    }

    /// Links `customer` in before `at`, or at the end for `NONE`.
    #[inline]
    fn link_before(&mut self, list: &mut List, at: u32, customer: u32) {
        let previous = if at == NONE { list.tail } else { self.customers[at as usize].previous };
        let place = &mut self.customers[customer as usize];
        place.next = at;
        place.previous = previous;
        if previous == NONE {
            list.head = customer;
        } else {
            self.customers[previous as usize].next = customer;
        }
        if at == NONE {
            list.tail = customer;
        } else {
            self.customers[at as usize].previous = customer;
        }
    }

    #[inline]
    fn unlink(&mut self, list: &mut List, customer: u32) {
        let (next, previous) = {
            let place = &self.customers[customer as usize];
            (place.next, place.previous)
        };
        if previous == NONE {
            list.head = next;
        } else {
            self.customers[previous as usize].next = next;
        }
        if next == NONE {
            list.tail = previous;
        } else {
            self.customers[next as usize].previous = previous;
        }
    }
}

/// Servers as a number, for a utilization; `None` where each customer has one.
pub(super) fn servers_of(plan: &StationPlan) -> Option<f64> {
    match plan.service {
        Service::Delay => None,
        _ if plan.servers == UNLIMITED => None,
        Service::Shared { .. } if !plan.speeds.is_empty() => Some(1.0),
        Service::Dedicated | Service::Shared { .. } => Some(f64::from(plan.servers)),
    }
}
