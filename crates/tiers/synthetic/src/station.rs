//! The station itself: m servers, one queue, first come first served. Pure.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// When servers become free. Since no request overtakes and none is interrupted, begin and end of
/// a visit are known when it arrives (the recursion of Kiefer and Wolfowitz, 1955); a timer that
/// fires late delays one answer but never the visits after it.
#[derive(Debug, Clone)]
pub struct Station {
    free_at_ns: BinaryHeap<Reverse<u64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Visit {
    pub arrived_ns: u64,
    /// When a server took it.
    pub begins_ns: u64,
    /// When the server is done with it.
    pub ends_ns: u64,
}

impl Station {
    /// A station of `servers` that are free.
    ///
    /// # Panics
    /// Without a server, nothing is ever served.
    pub fn new(servers: u32) -> Self {
        assert!(servers > 0, "a station has at least one server");
        Self { free_at_ns: (0..servers).map(|_| Reverse(0)).collect() }
    }

    /// Whether a visit that arrives at `now_ns` does not wait.
    pub fn is_free(&self, now_ns: u64) -> bool {
        self.free_at_ns.peek().is_some_and(|first| first.0 <= now_ns)
    }

    /// Takes a visit that arrives at `arrived_ns`, not before the one that came before it.
    pub fn take(&mut self, arrived_ns: u64, service_ns: u64) -> Visit {
        let mut first = self.free_at_ns.peek_mut().expect("a station has at least one server");
        let begins_ns = first.0.max(arrived_ns);
        let ends_ns = begins_ns.saturating_add(service_ns);
        first.0 = ends_ns;
        Visit { arrived_ns, begins_ns, ends_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service_time::draw_ns;
    use kendall_queueing::station::mmm;
    use kendall_tier::distribution::{Distribution, Unit};
    use kendall_units::exact_f64;
    use rand::SeedableRng as _;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn visits_wait_for_the_first_free_server_in_their_order() {
        let mut station = Station::new(2);
        let visits: Vec<(u64, u64)> = [(0, 10), (1, 5), (2, 3), (3, 1), (50, 4)]
            .into_iter()
            .map(|(arrived_ns, service_ns)| station.take(arrived_ns, service_ns))
            .map(|visit| (visit.begins_ns, visit.ends_ns))
            .collect();
        assert_eq!(visits, [(0, 10), (1, 6), (6, 9), (9, 10), (50, 54)]);
    }

    /// Mean response time over 300 batches of 2,000 visits, against M/M/m, within the batches'
    /// interval of four standard errors; ten batches of warm-up are left out.
    #[test]
    fn exponential_gaps_and_services_give_mmm() {
        for (servers, load) in [(1, 0.5), (1, 0.8), (2, 0.7), (8, 0.9)] {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
            let service = Distribution::parse("exponential:1ms", Unit::Time).unwrap();
            let gap = format!("exponential:{}s", 1e-3 / (load * f64::from(servers)));
            let gap = Distribution::parse(&gap, Unit::Time).unwrap();
            let mut station = Station::new(servers);
            let mut now_ns = 0;
            let batches: Vec<f64> = (0..310)
                .map(|_| {
                    let sum: u64 = (0..2000)
                        .map(|_| {
                            now_ns += draw_ns(&gap, &mut rng);
                            let visit = station.take(now_ns, draw_ns(&service, &mut rng));
                            visit.ends_ns - visit.arrived_ns
                        })
                        .sum();
                    exact_f64(sum) / 2000.0 / 1e9
                })
                .skip(10)
                .collect();
            let count = 300.0_f64;
            let mean = batches.iter().sum::<f64>() / count;
            let variance = batches.iter().map(|b| (b - mean).powi(2)).sum::<f64>() / (count - 1.0);
            let arrivals = load * f64::from(servers) * 1000.0;
            let expected = mmm(arrivals, 1000.0, servers.into()).unwrap().response_time.mean;
            let allowed = 4.0 * (variance / count).sqrt();
            assert!(
                (mean - expected).abs() <= allowed,
                "M/M/{servers} at {load}: {mean}, {expected}"
            );
        }
    }
}
