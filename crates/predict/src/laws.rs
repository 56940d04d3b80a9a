//! Operational laws as a check of a measurement.
//!
//! They hold for any system over any period in which what arrives also leaves, whatever the
//! distributions; so a difference is an error of the measurement, or something that was not
//! measured, and both are worth a sentence.

use serde::{Deserialize, Serialize};

use crate::measured::{OperatingPoint, TierView};

/// Which law.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Law {
    /// X = N/(R + Z), at the clients.
    InteractiveResponseTime,
    /// Requests waiting at the tier = X·W.
    LittleWaiting,
    /// Workers busy = X·V·S, which is the utilization law times m. V is 1, or one over the mean
    /// batch where a worker serves several requests at once; S is the time of such a visit.
    Utilization,
    /// Throughput of the tier = throughput of the clients × 1 visit.
    ForcedFlow,
    /// Response time of the clients = response time of the tier + delay of the links between.
    ClientsAndTier,
}

impl Law {
    /// Its name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InteractiveResponseTime => "interactive response time law",
            Self::LittleWaiting => "Little's law, requests waiting",
            Self::Utilization => "utilization law, workers",
            Self::ForcedFlow => "forced flow law",
            Self::ClientsAndTier => "clients against tier",
        }
    }

    /// The equation, measured side first.
    #[must_use]
    pub fn equation(self) -> &'static str {
        match self {
            Self::InteractiveResponseTime => "X = N/(R + Z)",
            Self::LittleWaiting => "queue length = X·W",
            Self::Utilization => "workers busy = X·V·S",
            Self::ForcedFlow => "X of the tier = X of the clients",
            Self::ClientsAndTier => "R of the clients = R of the tier + delay of the links",
        }
    }
}

/// One law at one operating point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LawCheck {
    /// Which law.
    pub law: Law,
    /// The side that was measured directly.
    pub measured: f64,
    /// The side that the law gives from other measurements.
    pub by_law: f64,
    /// `measured / by_law − 1`; `None` where the law gives 0.
    pub relative_difference: Option<f64>,
    /// What the measurement itself allows; see [`tolerance`].
    pub tolerance: f64,
    /// What the difference amounts to, in words, where there is more to say than its size.
    pub explanation: Option<String>,
}

impl LawCheck {
    fn new(law: Law, measured: f64, by_law: f64, tolerance: f64) -> Self {
        let relative_difference = (by_law.abs() > 0.0).then(|| measured / by_law - 1.0);
        Self { law, measured, by_law, relative_difference, tolerance, explanation: None }
    }

    fn explained(mut self, explanation: Option<String>) -> Self {
        self.explanation = explanation;
        self
    }

    /// Whether the difference lies within the tolerance.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.relative_difference.is_none_or(|difference| difference.abs() <= self.tolerance)
    }
}

/// Relative difference that a sound measurement may show.
///
/// Requests in progress at the two ends of the period are counted on one side of a law and not on
/// the other: at most 2(R + Z)/T of them. One percent covers the 0.1 % of the histograms and the
/// period's ends being read from several processes one after the other. \[DB78\], flow balance.
#[must_use]
pub fn tolerance(point: &OperatingPoint) -> f64 {
    const READING: f64 = 0.01;
    let cycle = point.client.response_time_s + point.think_time_s;
    READING + if point.duration_s > 0.0 { 2.0 * cycle / point.duration_s } else { 0.0 }
}

/// Every law that the point has the numbers for.
#[must_use]
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
    let check = LawCheck::new(
        Law::InteractiveResponseTime,
        point.client.throughput_per_s,
        population / cycle,
        tolerance(point),
    );
    let unaccounted_s = population / point.client.throughput_per_s - cycle;
    let explanation = (!check.holds()).then(|| {
        let time = kendall_units::Seconds::new(unaccounted_s.abs());
        if unaccounted_s > 0.0 {
            format!(
                "each client spends {time} a request that is neither response nor think time: \
                 the generator's own work between an answer and the next request, or clients \
                 that were not active all the time"
            )
        } else {
            format!(
                "clients complete {time} a request faster than their response and think times \
                 allow: more clients were active than stated, or response times include time \
                 that overlaps"
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
    // A queue that is nearly always empty says nothing of the law: its mean is all ends.
    const WORTH_CHECKING: f64 = 0.05;
    let waiting = throughput * tier.waiting_time_s;
    if waiting.max(tier.queue_length) >= WORTH_CHECKING {
        checks.push(LawCheck::new(Law::LittleWaiting, tier.queue_length, waiting, tolerance));
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
