//! The closed system in layers: network side, a pool of workers, and inside it a pool of connections
//! to the backend, solved exactly for every population of the curve.
//!
//! A worker is held while it waits for a connection and for the backend's answer, so the second pool
//! lies inside the first. Both are seen from outside as one server whose rate depends on the number
//! there [LZGS84 §9.3].
//!
//! Where a worker serves what waits together, a request is no customer of a worker: a batch is, and
//! it grows with the number that is there. The time of a batch of b requests is taken as a fixed cost
//! and a cost a request, a + c·b; with n requests there, M batches are under way at most, and b grows
//! in proportion to n. So n requests are served at the rate M·b/(a + c·b), which again is a server
//! whose rate depends on the number there. Two points give all of it.

use kendall_queueing::network::{
    Kind, Load, Network, NetworkError, NetworkSolution, Resource, convolution, pool_rates,
};
use kendall_units::{Seconds, exact_f64, whole_u64};

use crate::measured::{ConnectionView, OperatingPoint, TierView};
use crate::score::{Comparison, Device};

use super::network::{NetworkThread, Setup, Solved, delay_device};
use super::place_of_maximum;

/// Delay, network threads, workers, and the connections that they share.
pub(super) fn workers_and_connections(curve: &[OperatingPoint]) -> Vec<Comparison> {
    let Some(busiest) = place_of_maximum(curve).filter(|place| *place > 0) else {
        return Vec::new();
    };
    let Some(layers) = Layers::calibrated(&curve[0], &curve[busiest]) else { return Vec::new() };
    let setup = Setup {
        curve,
        calibration: vec![0, busiest],
        model: format!("network: delay, network threads, {}", layers.inside()),
        assumes: layers.assumes(),
        calibrated_on: layers.calibrated_on(curve[0].load(), curve[busiest].load()),
    };
    setup.compare(&|population, think_time_s| layers.solve(population, think_time_s))
}

/// A time that grows with the batch: fixed + per_request·b.
#[derive(Debug, Clone, Copy, PartialEq)]
struct BatchTime {
    fixed_s: f64,
    per_request_s: f64,
}

impl BatchTime {
    /// Through two points (batch, time). Neither part is negative: what falls with the batch is
    /// taken as fixed, and what grows faster than it as proportional to it.
    fn through(low: (f64, f64), high: (f64, f64)) -> Self {
        let slope = if high.0 > low.0 { (high.1 - low.1) / (high.0 - low.0) } else { 0.0 };
        let per_request_s = slope.clamp(0.0, high.1 / high.0.max(1.0));
        Self { fixed_s: (high.1 - per_request_s * high.0).max(0.0), per_request_s }
    }

    fn of(self, batch: f64) -> f64 {
        self.fixed_s + self.per_request_s * batch
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
    tier: String,
    backend: String,
    workers: u64,
    connections: u64,
    delay_s: f64,
    thread: NetworkThread,
    threads: u64,
    /// Time that a worker is held beside the exchange.
    own: BatchTime,
    exchange: BatchTime,
    batching: Option<Batching>,
}

impl Layers {
    fn calibrated(lowest: &OperatingPoint, busiest: &OperatingPoint) -> Option<Self> {
        let (low, high) = (lowest.first_tier()?, busiest.first_tier()?);
        let connections = low.connections.as_ref().filter(|of| of.connections > 0)?;
        let busy = high.connections.as_ref()?;
        if low.workers == 0 || low.held_time_s() <= 0.0 || high.held_time_s() <= 0.0 {
            return None;
        }
        let thread = NetworkThread::of(busiest, high);
        let cores = whole_u64(busiest.host_cores).max(1);
        let threads = (thread.threads_each() * u64::from(high.instances.max(1))).min(cores);
        let outside_s =
            lowest.client.response_time_s - low.view.response_time_s - thread.service_time_s();
        let grow = high.mean_batch() > super::BATCHES * low.mean_batch().max(1.0);
        let point = |tier: &TierView, time_s: f64| (tier.mean_batch(), time_s.max(0.0));
        let time = |value: fn(&TierView, &ConnectionView) -> f64| {
            let first = point(low, value(low, connections));
            // Without batches a service time is what it was where nothing waited.
            let second = if grow { point(high, value(high, busy)) } else { first };
            BatchTime::through(first, second)
        };
        Some(Self {
            tier: low.name.clone(),
            backend: connections.backend.clone(),
            workers: u64::from(low.workers),
            connections: u64::from(connections.connections),
            delay_s: outside_s.max(0.0),
            thread,
            threads,
            own: time(|tier, of| tier.held_time_s() - of.response_time_s()),
            exchange: time(|_, of| of.exchange_time_s),
            batching: grow.then(|| Batching {
                parallel: high.workers_busy.max(1.0),
                number: high.view.throughput_per_s * high.view.response_time_s,
                batch: high.mean_batch(),
            }),
        })
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
                "a pool of {workers} workers, each held while it waits for one of {connections} \
                 connections and for the answer; every service time stays what it was at the \
                 lowest load"
            ),
            Some(_) => "a worker's batch takes a fixed time and a time a request; batches grow in \
                        proportion to the number there"
                .to_owned(),
        };
        format!(
            "network threads M/M/{threads}; {pool}; workers of all instances are one pool; no \
             processor is shared"
        )
    }

    fn calibrated_on(&self, lowest: f64, busiest: f64) -> String {
        let time = |time: BatchTime| match self.batching {
            None => Seconds::new(time.of(1.0)).to_string(),
            Some(_) => format!(
                "{} + {} a request",
                Seconds::new(time.fixed_s),
                Seconds::new(time.per_request_s)
            ),
        };
        let growth = self.batching.map_or_else(String::new, |batching| {
            format!(
                "; at the highest throughput {:.2} batches are under way, of {:.2} requests with \
                 {:.1} there",
                batching.parallel, batching.batch, batching.number
            )
        });
        format!(
            "the lowest load (N = {lowest}): {} of delay; network threads {} a request, from the \
             highest throughput (N = {busiest}); of a worker itself {}, of the exchange with the \
             {} {}, from {}{growth}",
            Seconds::new(self.delay_s),
            Seconds::new(self.thread.service_time_s()),
            time(self.own),
            self.backend,
            time(self.exchange),
            if self.batching.is_some() { "both" } else { "the lowest" },
        )
    }

    /// The pool as one server whose rate depends on the number there.
    fn pool(&self, population: u64) -> Result<Resource, NetworkError> {
        let Some(batching) = self.batching else {
            let inside = [
                Resource::delay(&[self.own.of(1.0)]),
                Resource::servers(self.connections, &[self.exchange.of(1.0)]),
            ];
            return Ok(pool_rates(&inside, self.workers, population)?.resource());
        };
        let rates: Vec<f64> =
            (1..=population.max(1)).map(|n| self.rate(batching, exact_f64(n))).collect();
        let first = rates[0];
        Ok(Resource {
            kind: Kind::LoadDependent(rates.iter().map(|rate| rate / first).collect()),
            demands: vec![1.0 / first],
        })
    }

    /// Requests a second with `n` there.
    fn rate(&self, batching: Batching, n: f64) -> f64 {
        let (parallel, batch) = batching.with(n);
        parallel * batch / self.held_s(batch)
    }

    fn held_s(&self, batch: f64) -> f64 {
        self.own.of(batch) + self.exchange.of(batch)
    }

    fn solve(&self, population: u64, think_time: f64) -> Result<Solved, NetworkError> {
        let thread_s = self.thread.service_time_s();
        let network = Network {
            classes: vec![Load::Closed { population, think_time }],
            resources: vec![
                Resource::delay(&[self.delay_s]),
                Resource::servers(self.threads, &[thread_s]),
                self.pool(population)?,
            ],
        };
        let solution = convolution(&network)?;
        let throughput = solution.throughput[0];
        let mut devices = vec![
            delay_device("network", self.delay_s, throughput),
            Device {
                name: format!("network threads of {}", self.tier),
                servers: Some(exact_f64(self.threads)),
                visits: 1.0,
                service_time_s: thread_s,
                utilization: Some(solution.total_utilization(1)),
                number_at_center: Some(solution.total_number(1)),
                measured_utilization: None,
            },
        ];
        devices.extend(self.pools(&solution));
        Ok(Solved {
            throughput_per_s: throughput,
            response_time_s: solution.system_response[0],
            devices,
        })
    }

    /// The two pools as devices, by what is under way with each number there.
    fn pools(&self, solution: &NetworkSolution) -> [Device; 2] {
        let throughput = solution.throughput[0];
        let (mut busy, mut in_exchange, mut visits_per_s) = (0.0, 0.0, 0.0);
        let marginals = solution.marginals.get(2).and_then(Option::as_ref);
        for (n, probability) in marginals.into_iter().flatten().enumerate().skip(1) {
            if let Some(batching) = self.batching {
                let (parallel, batch) = batching.with(exact_f64(n));
                let held_s = self.held_s(batch);
                busy += probability * parallel;
                in_exchange += probability * parallel * self.exchange.of(batch) / held_s;
                visits_per_s += probability * parallel / held_s;
            } else {
                busy += probability * exact_f64(n).min(exact_f64(self.workers));
            }
        }
        if self.batching.is_none() {
            in_exchange = throughput * self.exchange.of(1.0);
            visits_per_s = throughput;
        }
        let visits = if throughput > 0.0 { visits_per_s / throughput } else { 1.0 };
        let device = |name: String, servers: u64, busy: f64, there: Option<f64>| Device {
            name,
            servers: Some(exact_f64(servers)),
            visits,
            service_time_s: if visits_per_s > 0.0 { busy / visits_per_s } else { 0.0 },
            utilization: Some(busy / exact_f64(servers)),
            number_at_center: there,
            measured_utilization: None,
        };
        let there = solution.total_number(2);
        [
            device(format!("workers of {}", self.tier), self.workers, busy, Some(there)),
            device(format!("connections to {}", self.backend), self.connections, in_exchange, None),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::{BatchView, View};
    use crate::score::Variable;

    /// Of a lone request: 0.1 ms of its worker and 1 ms of the database; each further one in the
    /// same batch costs the database 0.2 ms more.
    const OWN: f64 = 0.000_1;
    const FIXED: f64 = 0.000_8;
    const EACH: f64 = 0.000_2;
    const OUTSIDE: f64 = 0.001;

    fn truth(batching: Option<Batching>) -> Layers {
        Layers {
            tier: "middlewares".to_owned(),
            backend: "database".to_owned(),
            workers: 4,
            connections: 2,
            delay_s: OUTSIDE,
            thread: NetworkThread::AtLeast { service_time_s: 0.0 },
            threads: 1,
            own: BatchTime { fixed_s: OWN, per_request_s: 0.0 },
            exchange: BatchTime { fixed_s: FIXED, per_request_s: EACH },
            batching,
        }
    }

    /// A curve that `truth` would have measured.
    fn measured(truth: &Layers, populations: &[u64]) -> Vec<OperatingPoint> {
        let point = |&population: &u64| {
            let solved = truth.solve(population, 0.0).unwrap();
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
                    waiting_time_s: 0.0,
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
        let truth = truth(None);
        let curve = measured(&truth, &[1, 2, 4, 16, 64]);
        let found = workers_and_connections(&curve);
        assert_eq!(found.len(), 2);
        for comparison in &found {
            // Calibrated on the first and the last; the lowest load alone gives every time.
            assert!(comparison.largest_error_anywhere().unwrap() < 1e-9, "{comparison:?}");
            assert_eq!(comparison.bottleneck.as_deref(), Some("workers of middlewares"));
        }
        let most = found[0].points[4].predicted.clone().unwrap();
        // The rate of a pool of 4 around 0.1 ms and two servers of 1 ms lies below its bound.
        assert!(most < 2.0 / (FIXED + EACH) && most > 0.99 * 2.0 / (FIXED + EACH), "{most}");
    }

    /// The fixed cost and the cost a request come out of two points, and what lies between them
    /// too: where batches vary around their mean, up to what that does to a mean of ratios.
    #[test]
    fn batches_that_grow_with_the_load_are_predicted_from_two_points() {
        let batching = Batching { parallel: 2.0, number: 100.0, batch: 40.0 };
        let truth = truth(Some(batching));
        let curve = measured(&truth, &[1, 4, 16, 32, 64, 128]);
        let found = workers_and_connections(&curve);
        let throughput = &found[0];
        assert_eq!(throughput.variable, Variable::Throughput);
        assert!(throughput.model.contains("serve batches"), "{}", throughput.model);
        let error = throughput.largest_error_anywhere().unwrap();
        assert!(error < 0.05, "{error}");
        // Without batches the same costs allow no more than C/S.
        let lone = 2.0 / (FIXED + EACH);
        let most = throughput.points[5].predicted.clone().unwrap();
        assert!(most > 2.0 * lone, "{most} against {lone}");
        let workers = throughput.devices.iter().find(|d| d.name.starts_with("workers")).unwrap();
        let batch = 1.0 / workers.visits;
        assert!((batch / curve[5].tiers[0].mean_batch() - 1.0).abs() < 0.05, "{batch}");
        // The utilization law within the model itself: busy = X·V·S.
        let busy = most * workers.visits * workers.service_time_s;
        assert!((busy / 4.0 - workers.utilization.unwrap()).abs() < 1e-9);
    }

    #[test]
    fn the_time_of_a_batch_goes_through_both_points_and_is_never_negative() {
        let time = BatchTime::through((1.0, 0.001), (11.0, 0.003));
        assert!((time.per_request_s - 0.000_2).abs() < 1e-15);
        assert!((time.fixed_s - 0.000_8).abs() < 1e-15);
        let falling = BatchTime::through((1.0, 0.002), (11.0, 0.001));
        assert_eq!(falling, BatchTime { fixed_s: 0.001, per_request_s: 0.0 });
        let steep = BatchTime::through((1.0, 0.000_1), (11.0, 0.011));
        assert!(steep.fixed_s.abs() < 1e-15 && (steep.of(11.0) - 0.011).abs() < 1e-15);
    }

    /// A tier without a pool of connections has no such layers.
    #[test]
    fn workers_with_connections_of_their_own_are_left_to_the_other_networks() {
        let mut curve = measured(&truth(None), &[1, 4, 16]);
        for point in &mut curve {
            point.tiers[0].connections = None;
        }
        assert!(workers_and_connections(&curve).is_empty());
    }
}
