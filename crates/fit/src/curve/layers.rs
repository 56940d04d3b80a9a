//! The closed system in layers: network side, a pool of workers, and inside it a pool of connections
//! to the backend, solved exactly for every population of the curve.
//!
//! A worker is held while it waits for a connection and for the backend's answer, so the second pool
//! lies inside the first. Both are seen from outside as one server whose rate depends on the number
//! there [LZGS84 §9.3].
//!
//! A worker's time is not what it was alone: exchanges that are under way together slow one another
//! down (the backend's processors, its disk), and where a worker serves what waits together, a batch
//! takes longer the larger it is. Both are taken as straight lines: a lone request's time, plus a time
//! for each further request of the batch, plus a time for each other exchange under way, fitted to
//! the times that were measured at every other point of the curve.
//!
//! A request is not a customer of a worker that serves batches: a batch is, and it grows with the number
//! that is there. With n requests there, M batches are under way at most, and they grow in
//! proportion to n; so n requests are served at the rate M·b/S(b, M), a server whose rate depends on
//! the number there.

use kendall_queueing::model::{Class, Model, ModelError, Pool, Station};
use kendall_queueing::solver::Solution;
use kendall_units::{Seconds, counted, exact_f64, whole_u64};
use nalgebra::{DMatrix, DVector};

use crate::demands::non_negative;
use crate::measured::{BATCHES, ConnectionView, OperatingPoint, TierView, place_of_maximum};
use crate::model::Parameter;
use crate::resource::ResourceId;
use crate::score::{Comparison, Device, StandsFor};

use super::calibrated::{Builder, parameter};
use super::network::{NetworkThread, Setup, delay_device};

/// Delay, network threads, workers, and the connections that they share.
pub(super) fn workers_and_connections(curve: &[OperatingPoint]) -> Vec<Comparison> {
    let Some(busiest) = place_of_maximum(curve).filter(|place| *place > 0) else {
        return Vec::new();
    };
    // Every other point, and both ends of the range: the rest is held out.
    let calibration: Vec<usize> =
        (0..curve.len()).filter(|place| place % 2 == 0 || *place == busiest).collect();
    let Some(layers) = Layers::calibrated(curve, &calibration, busiest) else { return Vec::new() };
    let loads: Vec<String> =
        calibration.iter().map(|place| curve[*place].load().to_string()).collect();
    let setup = Setup {
        curve,
        model: format!("network: delay, network threads, {}", layers.inside()),
        assumes: layers.assumes(),
        calibrated_on: layers.calibrated_on(&loads, curve[0].load(), curve[busiest].load()),
        calibration,
    };
    setup.compare(&layers)
}

/// A time that grows with the batch and with what is under way beside it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct ServiceTime {
    /// Of one request, with nothing beside it.
    lone_s: f64,
    /// For each further request of the batch.
    per_request_s: f64,
    /// For each other one under way.
    per_other_s: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Measured {
    batch: f64,
    under_way: f64,
    time_s: f64,
}

impl ServiceTime {
    /// Least squares of the relative errors, with no negative part: a part that the points do not
    /// tell apart, or that would shrink the time, is 0.
    fn fitted(points: &[Measured]) -> Self {
        let points: Vec<&Measured> = points.iter().filter(|point| point.time_s > 0.0).collect();
        if points.is_empty() {
            return Self::default();
        }
        let regressors = |point: &Measured| [1.0, point.batch - 1.0, point.under_way - 1.0];
        let rows = points.iter().flat_map(|p| regressors(p).map(|value| value / p.time_s));
        let matrix = DMatrix::from_row_iterator(points.len(), 3, rows);
        let (found, _) = non_negative(&matrix, &DVector::from_element(points.len(), 1.0));
        Self { lone_s: found[0], per_request_s: found[1], per_other_s: found[2] }
    }

    fn of(self, batch: f64, under_way: f64) -> f64 {
        let others = (under_way - 1.0).max(0.0);
        self.lone_s + self.per_request_s * (batch - 1.0).max(0.0) + self.per_other_s * others
    }

    fn in_words(self) -> String {
        let mut words = Seconds::new(self.lone_s).to_string();
        for (more, what) in
            [(self.per_request_s, "further request"), (self.per_other_s, "other one under way")]
        {
            if more > 0.0 {
                words += &format!(" + {} for each {what}", Seconds::new(more));
            }
        }
        words
    }
}

/// How batches grow with the number that is there.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Batching {
    /// M: batches under way at most.
    parallel: f64,
    /// Number there at the highest throughput, and the mean batch then.
    number: f64,
    batch: f64,
}

impl Batching {
    /// Batches under way, and their size, with `n` requests there.
    fn with(self, n: f64) -> (f64, f64) {
        let parallel = n.min(self.parallel);
        let reach = self.number - self.parallel;
        if n <= self.parallel || reach <= 0.0 {
            return (parallel, 1.0);
        }
        let grown = 1.0 + (self.batch - 1.0) * (n - self.parallel) / reach;
        // No more can be under way than there are.
        (parallel, grown.min(n / parallel))
    }
}

struct Layers {
    /// Lowest load, that of the highest throughput, and those that times were fitted at.
    loads: (f64, f64, Vec<f64>),
    /// Most customers of the curve: how far a table of rates goes.
    most: u64,
    tier: String,
    backend: String,
    workers: u64,
    connections: u64,
    delay_s: f64,
    thread: NetworkThread,
    threads: u64,
    /// Time that a worker is held beside the exchange.
    own: ServiceTime,
    exchange: ServiceTime,
    batching: Option<Batching>,
}

impl Layers {
    fn calibrated(curve: &[OperatingPoint], calibration: &[usize], busiest: usize) -> Option<Self> {
        let (lowest, busiest) = (&curve[0], &curve[busiest]);
        let (low, high) = (lowest.first_tier()?, busiest.first_tier()?);
        let connections = low.connections.as_ref().filter(|of| of.connections > 0)?;
        if low.workers == 0 || low.held_time_s() <= 0.0 || high.held_time_s() <= 0.0 {
            return None;
        }
        let thread = NetworkThread::of(busiest, high);
        let cores = whole_u64(busiest.host_cores).max(1);
        let threads = (thread.threads_each() * u64::from(high.instances.max(1))).min(cores);
        let outside_s =
            lowest.client.response_time_s - low.view.response_time_s - thread.service_time_s();
        let points: Vec<(&TierView, &ConnectionView)> = calibration
            .iter()
            .filter_map(|place| curve[*place].first_tier())
            .filter_map(|tier| Some((tier, tier.connections.as_ref()?)))
            .collect();
        let fitted = |value: fn(&TierView, &ConnectionView) -> f64| {
            let points = points.iter().map(|(tier, of)| Measured {
                batch: tier.mean_batch(),
                under_way: of.busy().max(1.0),
                time_s: value(tier, of),
            });
            ServiceTime::fitted(&points.collect::<Vec<_>>())
        };
        let grow = high.mean_batch() > BATCHES * low.mean_batch().max(1.0);
        let fitted_at = calibration.iter().map(|place| curve[*place].load()).collect();
        let most = curve.iter().filter_map(|point| point.population).fold(1.0, f64::max);
        Some(Self {
            loads: (lowest.load(), busiest.load(), fitted_at),
            most: whole_u64(most),
            tier: low.name.clone(),
            backend: connections.backend.clone(),
            workers: u64::from(low.workers),
            connections: u64::from(connections.connections),
            delay_s: outside_s.max(0.0),
            thread,
            threads,
            own: fitted(|tier, of| tier.held_time_s() - of.response_time_s()),
            exchange: fitted(|_, of| of.exchange_time_s),
            batching: grow.then(|| Batching {
                parallel: high.workers_busy.max(1.0),
                number: high.view.throughput_per_s * high.view.response_time_s,
                batch: high.mean_batch(),
            }),
        })
    }

    fn pool_name(&self) -> String {
        format!("workers of {}", self.tier)
    }

    fn threads_name(&self) -> String {
        format!("network threads of {}", self.tier)
    }

    fn inside(&self) -> String {
        let backend = &self.backend;
        match self.batching {
            None => format!("workers that hold a connection to the {backend}"),
            Some(_) => format!("workers that serve batches over the {backend}"),
        }
    }

    fn assumes(&self) -> String {
        let threads = self.threads;
        let Self { workers, connections, .. } = self;
        let pool = match self.batching {
            None => format!(
                "a pool of {}, each held while it waits for one of {connections} \
                 connections and for the answer, which takes longer the more exchanges are under way",
                counted(*workers, "worker")
            ),
            Some(_) => {
                "batches grow in proportion to the number there, and take a time a request, \
                        and longer the more are under way"
                    .to_owned()
            }
        };
        format!(
            "network threads M/M/{threads}; {pool}; workers of all instances are one pool; what \
             slows one exchange by another is all that is known of shared processors"
        )
    }

    fn calibrated_on(&self, loads: &[String], lowest: f64, busiest: f64) -> String {
        let growth = self.batching.map_or_else(String::new, |batching| {
            format!(
                "; at the highest throughput {:.2} batches are under way, of {:.2} requests with \
                 {:.1} there",
                batching.parallel, batching.batch, batching.number
            )
        });
        format!(
            "{} of delay from the lowest load (N = {lowest}); network threads {} a request, from \
             the highest throughput (N = {busiest}); fitted to the times at N = {}: of a worker \
             itself {}, of the exchange with the {} {}{growth}",
            Seconds::new(self.delay_s),
            Seconds::new(self.thread.service_time_s()),
            loads.join(", "),
            self.own.in_words(),
            self.backend,
            self.exchange.in_words(),
        )
    }

    /// Requests a second with `n` there.
    fn rate(&self, batching: Batching, n: f64) -> f64 {
        let (parallel, batch) = batching.with(n);
        parallel * batch / self.held_s(batch, parallel)
    }

    fn held_s(&self, batch: f64, under_way: f64) -> f64 {
        self.own.of(batch, under_way) + self.exchange.of(batch, under_way)
    }

    /// Exchanges under way at a rate, by Little's law: c = X·S(c), with S a line in c beyond 1.
    fn exchanges(&self, per_s: f64) -> f64 {
        let ServiceTime { lone_s, per_other_s, .. } = self.exchange;
        let alone = per_s * lone_s;
        let slowed = per_s * (lone_s - per_other_s) / (1.0 - per_s * per_other_s);
        let under_way = if alone <= 1.0 { alone } else { slowed.max(alone) };
        under_way.min(exact_f64(self.connections))
    }

    /// The two pools as devices, by what is under way with each number there.
    fn pools(&self, solution: &Solution) -> [Device; 2] {
        let throughput = solution.classes[0].throughput;
        let (mut busy, mut in_exchange, mut visits_per_s) = (0.0, 0.0, 0.0);
        let mut there = 0.0;
        if let Some(batching) = self.batching {
            let station = solution.stations.iter().find(|station| station.name == self.pool_name());
            there = station.map_or(0.0, |station| station.number.iter().sum());
            let states = station.and_then(|station| station.states.as_ref());
            for (n, probability) in states.into_iter().flatten().enumerate().skip(1) {
                let (parallel, batch) = batching.with(exact_f64(n));
                let held_s = self.held_s(batch, parallel);
                let share = self.exchange.of(batch, parallel) / held_s;
                busy += probability * parallel;
                in_exchange += probability * parallel * share;
                visits_per_s += probability * parallel / held_s;
            }
        } else if let Some(pool) = solution.pools.first() {
            busy = pool.in_use;
            there = pool.in_use + pool.number_waiting;
            in_exchange = self.exchanges(throughput);
            visits_per_s = throughput;
        }
        let visits = if throughput > 0.0 { visits_per_s / throughput } else { 1.0 };
        let device = |id: ResourceId, servers: u64, busy: f64, there: Option<f64>| Device {
            name: match &id {
                ResourceId::Connections { to, .. } => format!("connections to {to}"),
                _ => format!("workers of {}", self.tier),
            },
            stands_for: Some(StandsFor::Resource(id)),
            servers: Some(exact_f64(servers)),
            visits,
            service_time_s: if visits_per_s > 0.0 { busy / visits_per_s } else { 0.0 },
            utilization: Some(busy / exact_f64(servers)),
            number_at_center: there,
            measured_utilization: None,
        };
        let connections =
            ResourceId::Connections { of: self.tier.clone(), to: self.backend.clone() };
        [
            device(ResourceId::Workers(self.tier.clone()), self.workers, busy, Some(there)),
            device(connections, self.connections, in_exchange, None),
        ]
    }
}

impl Builder for Layers {
    fn model(&self, name: &str, class: Class) -> Result<Model, ModelError> {
        let delay = |name: &str, time_s: f64| Station::delay(name).with_service_time(0, time_s);
        let threads = Station::queue(&self.threads_name(), self.threads);
        let mut stations = vec![
            delay("network", self.delay_s),
            threads.with_service_time(0, self.thread.service_time_s()),
        ];
        if let Some(batching) = self.batching {
            let rates = (1..=self.most.max(1)).map(|n| self.rate(batching, exact_f64(n)));
            stations.push(rate_dependent(&self.pool_name(), rates.collect()));
            return Model::new(name, vec![class], stations);
        }
        // Exchanges under way: no more than connections, however many requests are in the pool.
        let rates = (1..=self.connections.max(1)).map(exact_f64);
        let rates = rates.map(|n| n / self.exchange.of(1.0, n)).collect();
        stations.push(delay("worker itself", self.own.of(1.0, 1.0)));
        stations.push(rate_dependent(&format!("connections to {}", self.backend), rates));
        Model::new(name, vec![class], stations)?.with_pools(vec![Pool {
            name: self.pool_name(),
            tokens: self.workers,
            stations: vec![2, 3],
            classes: vec![0],
            queue_capacity: None,
        }])
    }

    fn devices(&self, solution: &Solution) -> Vec<Device> {
        let throughput = solution.classes[0].throughput;
        let mut devices = vec![delay_device("network", self.delay_s, throughput)];
        let threads = solution.stations.iter().find(|station| station.name == self.threads_name());
        devices.extend(threads.map(|found| Device {
            name: found.name.clone(),
            stands_for: Some(StandsFor::NetworkThreads(self.tier.clone())),
            servers: Some(exact_f64(self.threads)),
            visits: 1.0,
            service_time_s: self.thread.service_time_s(),
            utilization: Some(found.utilization.iter().sum()),
            number_at_center: Some(found.number.iter().sum()),
            measured_utilization: None,
        }));
        devices.extend(self.pools(solution));
        devices
    }

    fn parameters(&self) -> Vec<Parameter> {
        let (low, high, fitted) = (&[self.loads.0], &[self.loads.1], &self.loads.2);
        let pool = self.pool_name();
        let connections = format!("connections to {}", self.backend);
        let rule = "least squares of relative errors, no part negative";
        let mut parameters = vec![
            parameter(
                "network",
                "service_time_s",
                self.delay_s,
                low,
                "R of the clients less R of the tier and the network thread",
            ),
            parameter(
                &self.threads_name(),
                "service_time_s",
                self.thread.service_time_s(),
                high,
                "U/X of the tier's threads that are not workers",
            ),
            parameter(
                &pool,
                "tokens",
                exact_f64(self.workers),
                &[],
                "the study's setting, all instances",
            ),
            parameter(
                &connections,
                "servers",
                exact_f64(self.connections),
                &[],
                "the study's setting, all instances",
            ),
        ];
        for (of, time) in [("worker itself", self.own), (connections.as_str(), self.exchange)] {
            for (what, value) in [
                ("lone service_time_s", time.lone_s),
                ("service_time_s for each further request", time.per_request_s),
                ("service_time_s for each other under way", time.per_other_s),
            ] {
                parameters.push(parameter(of, what, value, fitted, rule));
            }
        }
        if let Some(batching) = self.batching {
            parameters.push(parameter(
                &pool,
                "batches under way",
                batching.parallel,
                high,
                "workers busy",
            ));
            parameters.push(parameter(
                &pool,
                "mean batch",
                batching.batch,
                high,
                "requests over batches",
            ));
        }
        parameters
    }
}

/// A server with these rates for 1, 2, … customers.
fn rate_dependent(name: &str, rates: Vec<f64>) -> Station {
    let first = rates[0];
    Station {
        rate_multipliers: rates.into_iter().map(|rate| rate / first).collect(),
        ..Station::queue(name, 1).with_service_time(0, 1.0 / first)
    }
}

#[cfg(test)]
mod tests {
    use super::super::calibrated::{Solved, solved};
    use super::*;
    use crate::measured::{BatchView, View};
    use crate::score::Variable;

    /// Of a lone request: 0.1 ms of its worker and 1 ms of the database; each further one in the
    /// same batch costs the database 0.2 ms more.
    const OWN: f64 = 0.000_1;
    const FIXED: f64 = 0.000_8;
    const EACH: f64 = 0.000_2;
    const OUTSIDE: f64 = 0.001;

    fn truth(batching: Option<Batching>, per_other_s: f64) -> Layers {
        Layers {
            loads: (1.0, 64.0, Vec::new()),
            most: 128,
            tier: "middlewares".to_owned(),
            backend: "database".to_owned(),
            workers: 4,
            connections: 2,
            delay_s: OUTSIDE,
            thread: NetworkThread::AtLeast { service_time_s: 0.0 },
            threads: 1,
            own: ServiceTime { lone_s: OWN, ..ServiceTime::default() },
            exchange: ServiceTime { lone_s: FIXED + EACH, per_request_s: EACH, per_other_s },
            batching,
        }
    }

    fn at(truth: &Layers, population: u64) -> Solved {
        solved(truth, "truth", Class::closed("customers", population, 0.0)).unwrap()
    }

    /// A curve that `truth` would have measured.
    fn measured(truth: &Layers, populations: &[u64]) -> Vec<OperatingPoint> {
        let point = |&population: &u64| {
            let solved = at(truth, population);
            let [.., workers, exchanges] = solved.devices.as_slice() else { panic!() };
            let throughput = solved.throughput_per_s;
            let tier_s = solved.response_time_s - OUTSIDE;
            let tier = TierView {
                name: "middlewares".to_owned(),
                instances: 1,
                workers: 4,
                view: View { throughput_per_s: throughput, response_time_s: tier_s },
                service_time_s: workers.service_time_s,
                workers_busy: 4.0 * workers.utilization.unwrap(),
                batches: Some(BatchView {
                    per_s: throughput * workers.visits,
                    held_time_s: workers.service_time_s,
                }),
                connections: Some(ConnectionView {
                    backend: "database".to_owned(),
                    connections: 2,
                    exchanges_per_s: throughput * exchanges.visits,
                    exchange_time_s: exchanges.service_time_s,
                    waiting_time_s: workers.service_time_s - OWN - exchanges.service_time_s,
                }),
                ..TierView::default()
            };
            OperatingPoint {
                population: Some(exact_f64(population)),
                client: View {
                    throughput_per_s: throughput,
                    response_time_s: solved.response_time_s,
                },
                tiers: vec![tier],
                host_cores: 2.0,
                ..OperatingPoint::default()
            }
        };
        populations.iter().map(point).collect()
    }

    /// Workers wait for connections inside their pool, which bounds the throughput at C/S.
    #[test]
    fn a_pool_of_connections_inside_a_pool_of_workers_is_predicted_without_error() {
        let curve = measured(&truth(None, 0.0), &[1, 2, 4, 16, 64]);
        let found = workers_and_connections(&curve);
        assert_eq!(found.len(), 2);
        for comparison in &found {
            assert!(comparison.errors_anywhere().unwrap().worst < 1e-9, "{comparison:?}");
        }
        let most = found[0].points[4].predicted.clone().unwrap();
        // The rate of a pool of 4 around 0.1 ms and two servers of 1 ms lies below its bound.
        assert!(most < 2.0 / (FIXED + EACH) && most > 0.99 * 2.0 / (FIXED + EACH), "{most}");
    }

    /// Exchanges that slow one another down: the times at some points say by how much, and the
    /// others are predicted better than with the lone time, which is wrong by up to half.
    #[test]
    fn exchanges_that_slow_one_another_are_told_from_the_times() {
        let truth = truth(None, 0.000_5);
        let curve = measured(&truth, &[1, 2, 4, 16, 64]);
        let found = workers_and_connections(&curve);
        let error = found[0].errors().unwrap().worst;
        let fixed =
            Layers { exchange: ServiceTime { per_other_s: 0.0, ..truth.exchange }, ..truth };
        let without = at(&fixed, 16).throughput_per_s;
        let without = without / curve[3].client.throughput_per_s - 1.0;
        assert!(without > 0.4 && error < without / 5.0, "{error} against {without}");
    }

    /// The lone time and the time a request come out of some points, and the throughput at the
    /// others: up to what the spread of batches around their mean does to a mean of ratios.
    #[test]
    fn batches_that_grow_with_the_load_are_predicted_from_their_times() {
        let batching = Batching { parallel: 2.0, number: 100.0, batch: 40.0 };
        let curve = measured(&truth(Some(batching), 0.0), &[1, 4, 16, 32, 64, 128]);
        let found = workers_and_connections(&curve);
        let throughput = &found[0];
        assert_eq!(throughput.variable, Variable::Throughput);
        assert!(throughput.model.contains("serve batches"), "{}", throughput.model);
        // One of M/M/m with the lone time: what it would say of the same load.
        let lone = 2.0 / (FIXED + EACH);
        let most = throughput.points[5].predicted.clone().unwrap();
        assert!(most > 2.0 * lone, "{most} against {lone}");
        let error = throughput.errors().unwrap().worst;
        let naive = 1.0 - lone / curve[3].client.throughput_per_s;
        assert!(error < naive / 5.0, "{error} against {naive}");
        let workers = throughput.devices.iter().find(|d| d.name.starts_with("workers")).unwrap();
        // The utilization law within the model itself: busy = X·V·S.
        let busy = most * workers.visits * workers.service_time_s;
        assert!((busy / 4.0 - workers.utilization.unwrap()).abs() < 1e-9);
    }

    /// Three unknown parts and four exact times give the parts back; a time that shrinks as batches
    /// grow has no part for them.
    #[test]
    fn the_parts_of_a_time_come_out_and_are_never_negative() {
        let truth = ServiceTime { lone_s: 0.001, per_request_s: 0.000_2, per_other_s: 0.000_4 };
        let at =
            |batch, under_way| Measured { batch, under_way, time_s: truth.of(batch, under_way) };
        let found = ServiceTime::fitted(&[at(1.0, 1.0), at(1.0, 3.0), at(8.0, 2.0), at(20.0, 2.5)]);
        for (found, truth) in [
            (found.lone_s, truth.lone_s),
            (found.per_request_s, truth.per_request_s),
            (found.per_other_s, truth.per_other_s),
        ] {
            assert!((found - truth).abs() < 1e-12, "{found} for {truth}");
        }
        let falling = [
            Measured { batch: 1.0, under_way: 1.0, time_s: 0.002 },
            Measured { batch: 9.0, under_way: 1.0, time_s: 0.001 },
        ];
        let found = ServiceTime::fitted(&falling);
        assert!(found.per_request_s.abs() < 1e-15 && found.per_other_s.abs() < 1e-15);
        assert_eq!(ServiceTime::fitted(&[]), ServiceTime::default());
    }

    /// A tier without a pool of connections has no such layers.
    #[test]
    fn workers_with_connections_of_their_own_are_left_to_the_other_networks() {
        let mut curve = measured(&truth(None, 0.0), &[1, 4, 16]);
        for point in &mut curve {
            point.tiers[0].connections = None;
        }
        assert!(workers_and_connections(&curve).is_empty());
    }
}
