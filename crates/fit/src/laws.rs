//! Operational laws as a check of a measurement.
//!
//! They hold for any system over any period in which what arrives also leaves, whatever the
//! distributions; so a difference is an error of the measurement, or something that was not
//! measured, and both are worth a sentence.

pub use kendall_stats::estimate::Law;
use kendall_stats::law;
pub use kendall_stats::law::LawCheck;

use crate::measured::{OperatingPoint, TierView};

/// Relative difference that a sound measurement of this point may show, by the one rule.
pub fn tolerance(point: &OperatingPoint) -> f64 {
    let cycle_s = point.client.response_time_s + point.think_time_s;
    law::tolerance(cycle_s, point.duration_s, 0.0)
}

/// Every law that the point has the numbers for.
pub fn checks(point: &OperatingPoint) -> Vec<LawCheck> {
    let mut checks: Vec<LawCheck> = interactive_response_time(point).into_iter().collect();
    if let Some(tier) = point.first_tier() {
        checks.extend(at_tier(point, tier));
    }
    checks
}

fn interactive_response_time(point: &OperatingPoint) -> Option<LawCheck> {
    let population = point.population?;
    let cycle = point.client.response_time_s + point.think_time_s;
    if cycle <= 0.0 || point.client.throughput_per_s <= 0.0 {
        return None;
    }
    let check = law::interactive_response_time(
        point.client.throughput_per_s,
        population,
        cycle,
        tolerance(point),
    );
    let unaccounted_s = population / point.client.throughput_per_s - cycle;
    let explanation = (!check.holds()).then(|| {
        let time = kendall_units::Seconds::new(unaccounted_s.abs());
        if unaccounted_s > 0.0 {
            format!(
                "each client spends {time} per request that is neither response nor think time: \
                 the generator's own work between an answer and the next request, or clients that \
                 were not active all the time"
            )
        } else {
            format!(
                "clients complete each request {time} faster than their response and think times \
                 allow: more clients were active than stated, or response times include time that \
                 overlaps"
            )
        }
    });
    Some(check.explained(explanation))
}

fn at_tier(point: &OperatingPoint, tier: &TierView) -> Vec<LawCheck> {
    let tolerance = tolerance(point);
    let throughput = tier.view.throughput_per_s;
    let mut checks =
        vec![LawCheck::new(Law::ForcedFlow, throughput, point.client.throughput_per_s, tolerance)];
    if tier.workers > 0 {
        checks.push(LawCheck::new(
            Law::Utilization,
            tier.workers_busy,
            throughput * tier.visits() * tier.held_time_s(),
            tolerance,
        ));
    }
    // A queue that is nearly always empty does not test the law: its mean is mostly edge effects.
    const WORTH_CHECKING: f64 = 0.05;
    let waiting = throughput * tier.waiting_time_s;
    if waiting.max(tier.queue_length) >= WORTH_CHECKING {
        checks.push(LawCheck::new(Law::Little, tier.queue_length, waiting, tolerance));
    }
    checks.push(clients_and_tier(point, tier, tolerance));
    checks
}

fn clients_and_tier(point: &OperatingPoint, tier: &TierView, tolerance: f64) -> LawCheck {
    let seen = point.client.response_time_s;
    let outside = seen - tier.view.response_time_s;
    let known = point.client_link_round_trip_s;
    let check =
        LawCheck::new(Law::ClientsAndTier, seen, tier.view.response_time_s + known, tolerance);
    let rest = kendall_units::Seconds::new((outside - known).abs());
    let explanation = (!check.holds()).then(|| {
        if outside > known && !point.silent_before.is_empty() {
            format!(
                "{rest} of the clients' response time is in {}, which lies before {} and does not \
                 report, or in kernel, sockets and waiting for a core",
                point.silent_before.join(", "),
                tier.name
            )
        } else if outside > known {
            format!(
                "{rest} of the clients' response time is neither in the tier nor in the links' \
                 stated delay: kernel and sockets, waiting for a core, and requests that the tier \
                 had not yet read"
            )
        } else {
            format!(
                "the tier reports {rest} more than the clients saw less the links' delay: the \
                 clients' and the tier's request types do not match one to one"
            )
        }
    });
    check.explained(explanation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::View;

    fn point() -> OperatingPoint {
        OperatingPoint {
            duration_s: 60.0,
            population: Some(66.0),
            client: View { throughput_per_s: 6_600.0, response_time_s: 0.010 },
            client_link_round_trip_s: 0.001,
            tiers: vec![TierView {
                name: "proxies".to_owned(),
                instances: 2,
                workers: 128,
                view: View { throughput_per_s: 6_600.0, response_time_s: 0.009 },
                waiting_time_s: 0.001,
                service_time_s: 0.008,
                backend_time_s: Some(0.007),
                queue_length: 6.6,
                workers_busy: 52.8,
                ..TierView::default()
            }],
            ..OperatingPoint::default()
        }
    }

    #[test]
    fn a_consistent_measurement_passes_every_law() {
        let checks = checks(&point());
        assert_eq!(checks.len(), 5);
        for check in checks {
            assert!(check.holds(), "{check:?}");
            assert!(check.explanation.is_none());
        }
    }

    /// Workers that serve eight requests at once for 8 ms are busy for one of them: X·V·S, where
    /// X·S of the requests would say eight times as much.
    #[test]
    fn a_batch_is_one_visit_to_a_worker() {
        let mut point = point();
        let tier = &mut point.tiers[0];
        tier.workers_busy = 6.6;
        tier.batches =
            Some(crate::measured::BatchView { per_s: 6_600.0 / 8.0, held_time_s: 0.008 });
        assert!((tier.mean_batch() - 8.0).abs() < 1e-12);
        let busy = |point: &OperatingPoint| {
            checks(point).into_iter().find(|check| check.law == Law::Utilization).unwrap()
        };
        assert!(busy(&point).holds());
        point.tiers[0].batches = None;
        let difference = busy(&point).relative_difference.unwrap();
        assert!((difference + 7.0 / 8.0).abs() < 1e-12, "{difference}");
    }

    #[test]
    fn time_that_nobody_measured_is_named_with_its_size() {
        let mut point = point();
        point.client.throughput_per_s = 5_280.0; // a cycle of 12.5 ms, of which 10 are accounted for
        let check = interactive_response_time(&point).unwrap();
        assert!(!check.holds());
        assert!((check.relative_difference.unwrap() + 0.2).abs() < 1e-12);
        assert!(check.explanation.unwrap().contains("2.500 ms"));
    }

    #[test]
    fn think_time_counts_into_the_cycle() {
        let mut point = point();
        point.think_time_s = 0.090;
        point.client.throughput_per_s = 660.0;
        assert!(interactive_response_time(&point).unwrap().holds());
    }

    #[test]
    fn an_open_loop_has_no_population_to_check() {
        let point = OperatingPoint { population: None, ..point() };
        assert!(interactive_response_time(&point).is_none());
    }
}
