//! What `--watch` shows: headroom of each tier as a small page for a terminal, as JSON, and as
//! metrics for Prometheus.

use std::fmt::Write as _;

use kendall_stats::estimate::Estimate;
use kendall_units::{Rate, counted, exact_f64};
use serde::Serialize;

use crate::analysis::{Analysis, too_busy};
use crate::busy::{MOST_BUSY, counts_processors};
use crate::grid::minute;
use crate::growth::Saturation;
use crate::report::{as_sentence, doubts, elsewhere};
use crate::system::System;

/// What is said at each look in the same words, since its numbers change.
const FILLS: &str = "something fills that no tier shows: response times outgrow those of these tiers, whose capacities are the most";

/// Seconds of a day.
const DAY_S: f64 = 86_400.0;

/// One analysis of `--watch`.
#[derive(Debug, Clone, Serialize)]
pub struct Look {
    /// Name of the system.
    pub system: String,
    pub at_s: u64,
    /// Load now, 1/s.
    pub rate_now_per_s: f64,
    /// By how much the busiest hour grows in a day, 1/s; or why it is not known.
    pub growth_per_day_per_s: Result<Estimate, String>,
    /// Laws that could be checked: without any, nothing says whether the monitoring is right.
    pub laws_checked: usize,
    /// Laws that do not hold.
    pub laws_broken: usize,
    /// What cannot be told of the monitoring.
    pub doubts: Vec<String>,
    pub tiers: Vec<TierLook>,
}

#[derive(Debug, Clone, Serialize)]
pub struct TierLook {
    pub name: String,
    /// How many servers it has, where the file or a query says it.
    pub servers: Option<u64>,
    /// Busy share of its servers in the last window that says it, steady or not.
    pub utilization: Option<f64>,
    /// Load at which it saturates, 1/s.
    pub capacity_per_s: Option<Estimate>,
    /// Capacity over the load now.
    pub headroom: Option<Estimate>,
    /// When it saturates at the growth that was seen; days are those of the system.
    pub saturation: Option<Saturation>,
    /// Why its capacity is unknown, or not to be trusted.
    pub why: Option<String>,
}

impl Look {
    pub fn of(system: &System, analysis: &Analysis, at_s: u64) -> Self {
        let last = |index: usize| {
            analysis.windows.all.iter().rev().find_map(|window| window.tiers[index].busy)
        };
        let mut busier = 0;
        let elsewhere = elsewhere(analysis);
        let untold = |share: f64| {
            format!(
                "{:.0} % of the response time is in no tier, and what that is may be full before its processors",
                share * 100.0
            )
        };
        let tiers = system.tiers.iter().enumerate().map(|(index, tier)| {
            let found = &analysis.tiers[index];
            let utilization = last(index).map(|busy| busy / exact_f64(found.servers));
            // In a window that is not steady, and so is in no law.
            let now = utilization.filter(|used| *used > MOST_BUSY && found.impossible.is_none());
            busier += usize::from(now.is_some());
            let broken = analysis.laws.iter().find(|law| !law.holds && law.tier == tier.name);
            let why = match (now, &found.demand, broken) {
                (Some(used), ..) => Some(too_busy(used, exact_f64(found.servers)).why),
                (None, Err(why), _) => Some(why.clone()),
                (None, Ok(_), Some(law)) => {
                    Some(format!("{} does not hold; usually {}", law.law, law.explanation))
                }
                (None, Ok(_), None) => (found.headroom.is_none())
                    .then(|| "its demand is not significantly above 0".to_owned()),
            };
            // What processors carry is not what a system carries that waits for something else.
            let elsewhere = elsewhere.filter(|_| counts_processors(tier) && why.is_none());
            let why = why.or_else(|| elsewhere.map(untold));
            let headroom = found.headroom.as_ref().filter(|_| elsewhere.is_none());
            TierLook {
                name: tier.name.clone(),
                servers: found.servers_told.then_some(found.servers),
                utilization,
                why,
                capacity_per_s: headroom.map(|one| one.capacity_per_s.clone()),
                headroom: headroom.map(|one| one.ratio.clone()),
                saturation: analysis.saturation(index).filter(|_| elsewhere.is_none()),
            }
        });
        let tiers: Vec<TierLook> = tiers.collect();
        let network = analysis.network.as_ref().ok();
        let fills = network.filter(|one| one.hidden.is_some() || one.outgrown.is_some());
        let fills = fills.map(|_| FILLS);
        Self {
            system: system.name.clone(),
            at_s,
            rate_now_per_s: analysis.rate_now_per_s,
            growth_per_day_per_s: analysis
                .growth
                .as_ref()
                .map(|growth| growth.per_day_per_s.clone())
                .map_err(Clone::clone),
            doubts: doubts(analysis)
                .chain(analysis.windows.remarks.clone())
                .chain(fills.map(str::to_owned))
                .collect(),
            laws_checked: analysis.laws.len() + busier,
            laws_broken: analysis.laws.iter().filter(|law| !law.holds).count() + busier,
            tiers,
        }
    }

    pub fn line(&self) -> String {
        let of_tier = |tier: &TierLook| {
            let busy =
                tier.utilization.map_or("?".to_owned(), |used| format!("{:.0} %", used * 100.0));
            let headroom = tier.headroom.as_ref();
            let headroom =
                headroom.map_or("unknown".to_owned(), |one| format!("{:.2} times", one.center));
            format!("{} {busy} busy, {headroom}", tier.name)
        };
        let tiers: Vec<String> = self.tiers.iter().map(of_tier).collect();
        let at = minute(self.at_s);
        let rate = Rate::per_second(self.rate_now_per_s);
        format!("{at}: {rate}; {}; {}", tiers.join("; "), self.laws())
    }

    /// Remarks on the system that change from look to look only when something happened.
    pub fn reasons(&self) -> Vec<String> {
        let tiers = self
            .tiers
            .iter()
            .filter_map(|tier| Some(format!("{}: {}.", tier.name, tier.why.as_ref()?)));
        let growth = self.growth_per_day_per_s.as_ref().err();
        let doubts = self.doubts.iter().map(|doubt| as_sentence(doubt));
        tiers
            .chain(doubts)
            .chain(growth.map(|why| format!("How the load grows is not known: {why}.")))
            .collect()
    }

    /// Whether it has the same reasons as another, whatever their figures.
    pub fn is_as(&self, other: &Self) -> bool {
        let words =
            |look: &Self| look.reasons().join("\n").replace(|c: char| c.is_ascii_digit(), "");
        words(self) == words(other)
    }

    fn laws(&self) -> String {
        match self.laws_broken {
            0 if self.laws_checked == 0 => "the monitoring cannot be checked".to_owned(),
            0 => "the monitoring agrees with itself".to_owned(),
            count => format!("it violates {}: do not trust these numbers", counted(count, "law")),
        }
    }

    pub fn page(&self) -> String {
        let laws = self.laws();
        let mut text = format!(
            "{}: {} now, {laws}\n\n{:<16} {:>5}  {:<34} {:<28} saturates\n",
            self.system,
            Rate::per_second(self.rate_now_per_s),
            "tier",
            "busy",
            "capacity",
            "times the load of now",
        );
        let per_second = |value: f64| Rate::per_second(value).to_string();
        let times = |value: f64| format!("{value:.2}");
        for tier in &self.tiers {
            let busy =
                tier.utilization.map_or("?".to_owned(), |used| format!("{:.0} %", used * 100.0));
            let capacity = tier.capacity_per_s.as_ref();
            let capacity = capacity.map_or("unknown".to_owned(), |one| ranged(one, per_second));
            let headroom = tier.headroom.as_ref();
            let headroom = headroom.map_or("unknown".to_owned(), |one| ranged(one, times));
            let when = self.when(tier);
            writeln!(text, "{:<16} {busy:>5}  {capacity:<34} {headroom:<28} {when}", tier.name)
                .unwrap_or_default();
        }
        text.push('\n');
        if let Ok(growth) = &self.growth_per_day_per_s {
            let signed = |value: f64| format!("{value:+.3}/s");
            writeln!(text, "The busiest hour grows by {} per day.", ranged(growth, signed))
                .unwrap_or_default();
        }
        for reason in self.reasons() {
            writeln!(text, "{reason}").unwrap_or_default();
        }
        text
    }

    fn when(&self, tier: &TierLook) -> String {
        match tier.saturation {
            Some(saturation) => saturation.in_words(),
            None => "unknown".to_owned(),
        }
    }

    pub fn exposition(&self) -> String {
        let mut text = String::new();
        let system = escaped(&self.system);
        self.expose_system(&mut text, &system);
        let mut of_tiers = |name: &str, help: &str, pick: &dyn Fn(&TierLook) -> Option<f64>| {
            family(&mut text, name, help);
            for tier in &self.tiers {
                if let Some(value) = pick(tier) {
                    let label = escaped(&tier.name);
                    writeln!(text, "{name}{{system=\"{system}\",tier=\"{label}\"}} {value}")
                        .unwrap_or_default();
                }
            }
        };
        of_tiers("kendall_utilization_ratio", "Busy share of the servers.", &|tier| {
            tier.utilization
        });
        for (name, what, pick) in [
            (
                "kendall_headroom_ratio",
                "Load at which the tier saturates over the load now",
                (|tier: &TierLook| tier.headroom.clone()) as fn(&TierLook) -> Option<Estimate>,
            ),
            ("kendall_capacity_per_second", "Load at which the tier saturates", |tier| {
                tier.capacity_per_s.clone()
            }),
        ] {
            of_tiers(name, &format!("{what}."), &|tier| Some(pick(tier)?.center));
            of_tiers(
                &format!("{name}_low"),
                &format!("{what}: low end of its interval."),
                &|tier| Some(pick(tier)?.interval?.low),
            );
            of_tiers(
                &format!("{name}_high"),
                &format!("{what}: high end of its interval."),
                &|tier| Some(pick(tier)?.interval?.high),
            );
        }
        of_tiers(
            "kendall_saturation_seconds",
            "Time until the tier saturates, at the growth that was seen; absent where that is not known.",
            &|tier| Some(tier.saturation?.days? * DAY_S),
        );
        of_tiers(
            "kendall_saturation_earliest_seconds",
            "Time before which the tier does not saturate, with 97.5 % of certainty.",
            &|tier| {
                Some(tier.saturation?.earliest_days).filter(|d| d.is_finite()).map(|d| d * DAY_S)
            },
        );
        text
    }

    /// Metrics of the system as a whole.
    fn expose_system(&self, text: &mut String, system: &str) {
        let own = [
            ("kendall_load_per_second", "Load of the system now.", self.rate_now_per_s),
            (
                "kendall_monitoring_laws_checked",
                "Operational laws that the monitoring could be checked by.",
                exact_f64(self.laws_checked as u64),
            ),
            (
                "kendall_monitoring_laws_broken",
                "Operational laws that the monitoring breaks.",
                exact_f64(self.laws_broken as u64),
            ),
        ];
        for (name, help, value) in own {
            family(text, name, help);
            writeln!(text, "{name}{{system=\"{system}\"}} {value}").unwrap_or_default();
        }
        if let Ok(growth) = &self.growth_per_day_per_s {
            let name = "kendall_load_growth_per_second_per_day";
            family(text, name, "By how much the busiest hour of a day grows in a day.");
            let value = growth.center;
            writeln!(text, "{name}{{system=\"{system}\"}} {value}").unwrap_or_default();
        }
    }
}

impl Saturation {
    /// `in 23 days (18 to 31)`, or what else is known.
    pub fn in_words(&self) -> String {
        let earliest = self.earliest_days;
        match (self.days, self.latest_days) {
            (Some(days), Some(latest)) => {
                format!("in {days:.0} days ({earliest:.0} to {latest:.0})")
            }
            (Some(days), None) => format!("in {days:.0} days ({earliest:.0} or more)"),
            (None, _) if earliest.is_finite() => {
                format!("not before {earliest:.0} days; growth is not significant")
            }
            (None, _) => "not at this growth".to_owned(),
        }
    }
}

fn ranged(estimate: &Estimate, print: impl Fn(f64) -> String) -> String {
    let center = print(estimate.center);
    estimate.interval.map_or_else(
        || center.clone(),
        |interval| format!("{center} ({} to {})", print(interval.low), print(interval.high)),
    )
}

fn family(text: &mut String, name: &str, help: &str) {
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge").unwrap_or_default();
}

/// A label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Samples;
    use kendall_stats::estimate::Interval;

    #[test]
    fn what_is_exposed_reads_back() {
        let interval = |low, high| Interval { low, high, confidence: 0.95 };
        let look = Look {
            system: "a \"shop\"".to_owned(),
            at_s: 5,
            rate_now_per_s: 3.5,
            growth_per_day_per_s: Ok(Estimate::exact(0.25)),
            laws_checked: 3,
            laws_broken: 1,
            doubts: vec!["cannot tell whether `db` is scraped twice".to_owned()],
            tiers: vec![TierLook {
                name: "db".to_owned(),
                servers: Some(2),
                utilization: Some(0.5),
                capacity_per_s: Some(Estimate::with_interval(7.0, interval(6.0, 8.0))),
                headroom: Some(Estimate::with_interval(2.0, interval(1.7, 2.3))),
                saturation: Some(Saturation {
                    days: Some(23.4),
                    earliest_days: 18.0,
                    latest_days: None,
                }),
                why: None,
            }],
        };
        let mut samples = Samples::default();
        samples.add_page(&look.exposition(), 1.0, &[].into()).unwrap();
        let of = |name: &str| {
            let found = samples.series.iter().find(|one| one.labels["__name__"] == name);
            found.unwrap_or_else(|| panic!("no {name}")).values[0]
        };
        for (name, value) in [
            ("kendall_headroom_ratio", 2.0),
            ("kendall_headroom_ratio_low", 1.7),
            ("kendall_capacity_per_second_high", 8.0),
            ("kendall_saturation_earliest_seconds", 18.0 * DAY_S),
            ("kendall_monitoring_laws_checked", 3.0),
            ("kendall_monitoring_laws_broken", 1.0),
        ] {
            assert!((of(name) - value).abs() < 1e-9, "{name}: {}", of(name));
        }
        let page = look.page();
        assert!(page.contains("in 23 days (18 or more)"), "{page}");
        assert!(page.contains("do not trust"), "{page}");
        let holding = Look { laws_broken: 0, ..look.clone() };
        assert!(holding.page().contains("agrees with itself"), "{}", holding.page());
        // No law is broken where none could be checked.
        let unchecked = Look { laws_checked: 0, ..holding };
        assert!(unchecked.page().contains("cannot be checked"), "{}", unchecked.page());
        assert!(!unchecked.page().contains("agrees"), "{}", unchecked.page());
        let mut untold = unchecked;
        untold.tiers[0].why = Some("no query gives how busy it is".to_owned());
        let doubt = "Cannot tell whether `db` is scraped twice.";
        assert_eq!(untold.reasons(), ["db: no query gives how busy it is.", doubt]);
        let mut later = untold.clone();
        untold.tiers[0].why = Some("it was up to 118 % busy".to_owned());
        assert!(!untold.is_as(&later));
        later.tiers[0].why = Some("it was up to 121 % busy".to_owned());
        assert!(untold.is_as(&later));
        untold.tiers[0].why = Some("no query gives how busy it is".to_owned());
        untold.doubts.clear();
        assert!(untold.page().ends_with("no query gives how busy it is.\n"), "{}", untold.page());
        assert!(untold.line().contains("3.5000/s; db 50 % busy, 2.00 times"), "{}", untold.line());
    }
}
