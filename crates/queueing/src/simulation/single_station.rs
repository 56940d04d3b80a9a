//! One station and one open class, a server for each customer in service: the commonest model, and
//! the simplest. What can happen next is the next arrival or the end of a service that runs, so
//! there is no list of events; and of a customer no more is kept than when it came, when its
//! service began and how long that takes.
//!
//! With the same seed all of it happens at the same times as in the [engine](super::engine).

use std::collections::VecDeque;

use super::engine::{Halt, LOOK_EVERY};
use super::events::MOST_CUSTOMERS;
use super::heap;
use super::plan::{Batch, EXIT, Hop, Kind, NO_HOP, Order, Plan, Preemption, Service, Work};
use super::streams::{BEGINNING, Sampler, Stream, streams};
use super::tally::{Cell, Level, StationTally, SystemCell, Times, Totals};

/// A customer that waits.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    arrived: f64,
    service: f64,
}

/// A customer in service.
#[derive(Debug, Clone, Copy)]
struct Served {
    arrived: f64,
    began: f64,
}

#[derive(Debug, Clone)]
pub(super) struct Line<'p> {
    gap: &'p Sampler,
    service: &'p Sampler,
    servers: u32,
    capacity: u32,
    last_come: bool,
    most_customers: u32,
    gaps: Stream,
    services: Stream,
    /// Where gaps and services are in what goes on from one time to the next.
    at: (u32, u32),
    pub(super) now: f64,
    next_arrival: f64,
    present: u32,
    /// By the time at which they leave.
    serving: Vec<(f64, Served)>,
    waiting: VecDeque<Waiting>,
    pub(super) tally: StationTally,
    pub(super) response: Times,
    waits: Times,
    work: f64,
    offered: u64,
    lost: u64,
    /// Arrivals and ends of services that were set.
    scheduled: u64,
    /// When the tallies were last taken, and how much had been set.
    since: f64,
    scheduled_before: u64,
}

/// Gap and service of a plan that is of this kind.
fn samplers(plan: &Plan) -> Option<(&Sampler, &Sampler)> {
    let ([station], [class]) = (plan.stations.as_slice(), plan.classes.as_slice()) else {
        return None;
    };
    let Kind::Open { gap, batch: Batch::Fixed(1) } = &class.kind else { return None };
    let [Work::Time(service)] = station.work.as_slice() else { return None };
    let goes = |hops: &[Hop], to: u32, completes: bool| matches!(hops, [hop] if hop.to == to && hop.completes == completes && hop.then == NO_HOP);
    let plain = matches!(station.service, Service::Dedicated | Service::Delay)
        && matches!(station.order, Order::FirstCome | Order::LastCome)
        && station.preemption == Preemption::None
        && station.patience.iter().all(Option::is_none)
        && station.joining.is_empty()
        && class.think.is_none()
        && goes(plan.hops_of(class.entry), 0, false)
        && goes(plan.hops_of(plan.routes[0]), EXIT, true);
    plain.then_some((gap, service))
}

impl<'p> Line<'p> {
    /// `None` for a plan of another kind.
    pub(super) fn new(
        plan: &'p Plan,
        seed: u64,
        replication: u32,
        most_customers: u32,
    ) -> Option<Self> {
        let (gap, service) = samplers(plan)?;
        let station = &plan.stations[0];
        // The engine's first two: one a source, one a station's services.
        let mut streams = streams(seed, replication, 2);
        let services = streams.pop()?;
        let mut gaps = streams.pop()?;
        let mut at = (BEGINNING, BEGINNING);
        let next_arrival = gap.sample(&mut gaps, &mut at.0).min(f64::MAX);
        Some(Self {
            gap,
            service,
            servers: station.servers,
            capacity: station.capacity,
            last_come: station.order == Order::LastCome,
            most_customers: most_customers.min(MOST_CUSTOMERS),
            gaps,
            services,
            at,
            now: 0.0,
            next_arrival,
            present: 0,
            serving: Vec::new(),
            waiting: VecDeque::new(),
            tally: StationTally::default(),
            response: Times::default(),
            waits: Times::default(),
            work: 0.0,
            offered: 0,
            lost: 0,
            scheduled: 1,
            since: 0.0,
            scheduled_before: 0,
        })
    }

    /// Handles all that happens up to `until`, and brings the tallies there.
    pub(super) fn run(&mut self, until: f64) -> Result<(), Halt> {
        loop {
            let before = self.now;
            for _ in 0..LOOK_EVERY {
                if self.next_arrival > until {
                    self.serve(until);
                    self.advance(until);
                    return Ok(());
                }
                self.serve(self.next_arrival);
                self.arrive()?;
            }
            if self.now <= before {
                return Err(Halt::ClockStands { time: self.now });
            }
        }
    }

    /// Handles `count` events, wherever that leads.
    pub(super) fn run_events(&mut self, count: u64) -> Result<(), Halt> {
        for _ in 0..count {
            match self.serving.first() {
                Some(&first) if first.0 <= self.next_arrival => self.end(first),
                _ => self.arrive()?,
            }
        }
        Ok(())
    }

    #[inline]
    fn advance(&mut self, now: f64) {
        let busy = f64::from(self.present.min(self.servers));
        self.tally.advance(now, self.present, busy);
        self.now = now;
    }

    #[inline]
    fn arrive(&mut self) -> Result<(), Halt> {
        let now = self.next_arrival;
        self.next_arrival = (now + self.gap.sample(&mut self.gaps, &mut self.at.0)).min(f64::MAX);
        self.scheduled += 1;
        self.advance(now);
        if self.present >= self.most_customers {
            return Err(Halt::TooManyCustomers { time: now });
        }
        self.offered += 1;
        if self.present >= self.capacity {
            self.lost += 1;
            return Ok(());
        }
        let service = self.service.sample(&mut self.services, &mut self.at.1);
        if self.present < self.servers {
            self.scheduled += 1;
            heap::push(
                &mut self.serving,
                (ends(now, service), Served { arrived: now, began: now }),
            );
        } else {
            self.waiting.push_back(Waiting { arrived: now, service });
        }
        self.present += 1;
        Ok(())
    }

    /// Ends the services that end up to `until`.
    #[inline]
    fn serve(&mut self, until: f64) {
        while let Some(&first) = self.serving.first()
            && first.0 <= until
        {
            self.end(first);
        }
    }

    /// Ends the first service; the next in the queue is served.
    #[inline]
    fn end(&mut self, (now, served): (f64, Served)) {
        self.advance(now);
        self.present -= 1;
        let response = now - served.arrived;
        let waited = served.began - served.arrived;
        self.response.record(response);
        self.waits.record(waited);
        self.work += response - waited;
        let next = if self.last_come { self.waiting.pop_back() } else { self.waiting.pop_front() };
        if let Some(Waiting { arrived, service }) = next {
            self.scheduled += 1;
            let entry = (ends(now, service), Served { arrived, began: now });
            heap::replace_first(&mut self.serving, entry);
        } else {
            heap::pop(&mut self.serving);
        }
    }

    /// Customers that completed or were lost since the last call of [`take`](Self::take).
    pub(super) fn ended(&self) -> u64 {
        self.response.count + self.lost
    }

    /// Counts since the last call; customers stay where they are.
    pub(super) fn take(&mut self) -> Totals {
        let now = self.now;
        let tally = self.tally.take(now);
        let response = std::mem::take(&mut self.response);
        let (offered, lost) = (std::mem::take(&mut self.offered), std::mem::take(&mut self.lost));
        let events = self.scheduled - self.scheduled_before;
        let time = now - self.since;
        self.scheduled_before = self.scheduled;
        self.since = now;
        let system = SystemCell {
            present: Level::held(tally.area),
            completions: response.count,
            offered,
            abandoned: lost,
            response: response.clone(),
        };
        let cell = Cell {
            present: Level::held(tally.area),
            serving: Level::held(tally.busy),
            arrivals: offered,
            completions: response.count,
            lost,
            work: std::mem::take(&mut self.work),
            response,
            waiting: std::mem::take(&mut self.waits),
            ..Cell::default()
        };
        Totals { time, events, cells: vec![cell], systems: vec![system], stations: vec![tally] }
    }
}

/// When a service ends; finite, as the engine's events are.
#[inline]
fn ends(now: f64, service: f64) -> f64 {
    (now + service).min(f64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::compile::compile;
    use super::super::engine::Engine;
    use super::*;
    use crate::Distribution;
    use crate::model::{Class, Discipline, Model, Station, Workload};

    fn plan_of(class: Class, station: Station) -> Plan {
        compile(&Model::new("one", vec![class], vec![station]).unwrap()).unwrap().0
    }

    /// Sums of at most 10^5 terms, each rounded to 10^-16: below 10^-11 of the sum.
    #[track_caller]
    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-11 * b.abs(), "{a} {b}");
    }

    #[track_caller]
    fn same_times(a: &Times, b: &Times) {
        assert_eq!(a.count, b.count);
        close(a.sum, b.sum);
        close(a.sum_of_squares, b.sum_of_squares);
        for p in [0.01, 0.5, 0.99, 1.0] {
            assert_eq!(a.histogram.quantile(p), b.histogram.quantile(p));
        }
    }

    #[track_caller]
    fn same(a: &Totals, b: &Totals) {
        assert_eq!((a.time.to_bits(), a.events), (b.time.to_bits(), b.events));
        let (one, other) = (&a.systems[0], &b.systems[0]);
        assert_eq!(
            (one.offered, one.completions, one.abandoned),
            (other.offered, other.completions, other.abandoned)
        );
        close(one.present.area, other.present.area);
        same_times(&one.response, &other.response);
        let (one, other) = (&a.cells[0], &b.cells[0]);
        assert_eq!(
            (one.arrivals, one.completions, one.lost, one.balked, one.reneged),
            (other.arrivals, other.completions, other.lost, other.balked, other.reneged)
        );
        close(one.present.area, other.present.area);
        close(one.serving.area, other.serving.area);
        close(one.work, other.work);
        same_times(&one.response, &other.response);
        same_times(&one.waiting, &other.waiting);
        let (one, other) = (&a.stations[0], &b.stations[0]);
        close(one.area, other.area);
        close(one.area_of_squares, other.area_of_squares);
        close(one.busy, other.busy);
        let with = |tally: &StationTally, n| tally.time_with.get(n).copied().unwrap_or(0.0);
        for n in 0..one.time_with.len().max(other.time_with.len()) {
            close(with(one, n), with(other, n));
        }
    }

    #[test]
    fn a_line_does_what_the_engine_does() {
        let heavy = Distribution::hyperexponential_balanced(0.8, 9.0).unwrap();
        let renewal = Class {
            workload: Workload::Open {
                arrival_rate_per_s: 1.0,
                interarrival: Distribution::erlang(3, 1.0).unwrap(),
                batch: crate::model::Batch::Fixed(1),
            },
            ..Class::open("c", 1.0)
        };
        let open = || Class::open("c", 1.0);
        let queue =
            |servers: u64, each: f64| Station::queue("q", servers).with_service_time(0, each);
        let last = Station { discipline: Discipline::Lcfs, ..queue(2, 1.6) };
        let full = Station { capacity: Some(4), ..queue(2, 3.0) };
        let mut switched = Class::open("c", 1.0);
        if let Workload::Open { interarrival, .. } = &mut switched.workload {
            *interarrival =
                Distribution::mmpp(&[3.0, 0.1], &[vec![0.0, 0.2], vec![0.1, 0.0]]).unwrap();
        }
        let constant = Distribution::deterministic(2.7).unwrap();
        let beyond = Distribution::deterministic(9_000.0).unwrap();
        for plan in [
            plan_of(open(), queue(1, 0.8)),
            plan_of(open(), queue(1, 1.05)),
            plan_of(open(), queue(3, 2.7)),
            plan_of(switched, queue(1, 0.8)),
            plan_of(renewal, Station::queue("q", 1).with_service(0, heavy)),
            plan_of(open(), Station::queue("q", 3).with_service(0, constant)),
            plan_of(open(), last),
            plan_of(open(), full),
            plan_of(open(), Station::delay("d").with_service_time(0, 5.0)),
            // More customers than states that are kept.
            plan_of(open(), Station::delay("d").with_service(0, beyond)),
        ] {
            let mut line = Line::new(&plan, 7, 2, 1_000_000).expect("a line");
            let mut engine = Engine::new(&plan, 7, 2, 1_000_000);
            line.run_events(1_001).unwrap();
            engine.run_events(1_001).unwrap();
            assert_eq!(line.now.to_bits(), engine.now.to_bits());
            for _ in 0..3 {
                let until = engine.now + 5_000.0;
                line.run(until).unwrap();
                engine.run(until).unwrap();
                same(&line.take(), &engine.take());
            }
        }
    }

    #[test]
    fn what_is_no_line_is_left_to_the_engine() {
        let queue = || Station::queue("q", 1).with_service_time(0, 0.5);
        let shared = Station { discipline: Discipline::Ps, ..queue() };
        let twice = queue().with_visits(0, 1.5);
        for plan in [
            plan_of(Class::closed("c", 3, 1.0), queue()),
            plan_of(Class::open("c", 1.0), shared),
            plan_of(Class::open("c", 1.0), twice),
        ] {
            assert!(Line::new(&plan, 7, 0, 1_000).is_none());
        }
    }

    #[test]
    fn a_line_without_room_or_without_time_stops_as_the_engine_does() {
        let growing =
            plan_of(Class::open("c", 2.0), Station::queue("q", 1).with_service_time(0, 1.0));
        let line = Line::new(&growing, 7, 0, 500).unwrap().run(1e6);
        assert_eq!(line, Engine::new(&growing, 7, 0, 500).run(1e6));
        assert!(matches!(line, Err(Halt::TooManyCustomers { .. })));
    }
}
