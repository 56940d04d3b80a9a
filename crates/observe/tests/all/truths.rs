//! Monitoring that deceives, or tells too little: what is stated must be the truth that it was made of, or that it cannot be told.

#![allow(clippy::unwrap_used, reason = "a failure to set up a test is a failure of the test")]

use std::f64::consts::TAU;

use Quantity::{Busy, ResponseTime, Throughput};
use kendall_fit::change::Change;
use kendall_fit::open::Answer;
use kendall_observe::{
    Analysis, Grid, Observed, Quantity, System, TierSeries, analyze, change, report, watch,
};
use kendall_queueing::model::{Class, Model, Station};
use kendall_queueing::solver::{Solver, solve};
use kendall_report::answer::TrustLevel;
use kendall_stats::estimate::Estimate;
use kendall_units::exact_f64;
use rand::SeedableRng as _;
use rand_distr::{Distribution as _, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

pub(crate) const STEP_S: u64 = 10;

/// R of M/M/m.
fn mmm(rate: f64, servers: u64, service_s: f64) -> f64 {
    let station = Station::queue("x", servers).with_service_time(0, service_s);
    let model = Model::new("x", vec![Class::open("c", rate)], vec![station]).unwrap();
    solve(&model, Solver::Auto).unwrap().classes[0].system_response
}

/// Waves of a load.
pub(crate) fn waves(low: f64, high: f64) -> impl Fn(f64) -> f64 {
    move |share| low + (high - low) * (1.0 - (3.0 * share * TAU).cos()) / 2.0
}

/// Monitoring of a time, in steps of [`STEP_S`]: requests come by chance around a load, and each figure scatters by `noise`.
struct Made {
    minutes: u64,
    noise: f64,
    seed: u64,
}

impl Made {
    /// What is true at a share of the time, at a load: the figures of each tier.
    fn of<const TIERS: usize>(
        &self,
        load: impl Fn(f64) -> f64,
        figures: impl Fn(f64, f64) -> [Vec<(Quantity, f64)>; TIERS],
    ) -> Observed {
        let grid = Grid::new(0, self.minutes * 60 - STEP_S, STEP_S).unwrap();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut normal = || -> f64 { StandardNormal.sample(&mut random) };
        let mut tiers = vec![TierSeries::default(); TIERS];
        for at in 0..grid.count {
            let share = exact_f64(at) / exact_f64(grid.count);
            let mean = load(share);
            let rate = mean + (mean / exact_f64(STEP_S)).sqrt() * normal();
            for (tier, found) in tiers.iter_mut().zip(figures(share, rate)) {
                for (quantity, value) in found {
                    let value = value * (1.0 + self.noise * normal());
                    tier.series.entry(quantity).or_default().push(value);
                }
            }
        }
        Observed { grid, tiers }
    }
}

fn alone(more: &str) -> System {
    let own = "name = 'x'\nentry = 'app'\nstep = '10s'\nblock = '60s'\n[tiers.app]\n";
    System::parse(&format!("{own}{more}")).unwrap()
}

const OWN: &str = "queries = { throughput = 'a', busy = 'b', response_time = 'c' }\n";

const HTTP: &str = "preset = 'http'\n";

/// An hour, with a fiftieth of noise.
fn made(seed: u64) -> Made {
    Made { minutes: 60, noise: 0.02, seed }
}

fn app(rate: f64, busy: f64, response_s: f64) -> Vec<(Quantity, f64)> {
    vec![(Throughput, rate), (Busy, busy), (ResponseTime, response_s)]
}

/// What is told of a system: its analysis, the whole page as JSON with its first sentences, and what a watch says.
struct Told {
    analysis: Analysis,
    summary: String,
    card: kendall_report::answer::Answer,
    figures: serde_json::Map<String, serde_json::Value>,
    metrics: String,
    page: String,
}

impl Told {
    fn of(system: &System, observed: &Observed) -> Self {
        let analysis = analyze(system, observed).unwrap();
        let report = report::report(system, observed, &analysis, &[]);
        let look = watch::Look::of(system, &analysis, 0);
        let (summary, card) = (report.summary.join(" "), report.answer.unwrap());
        let (figures, metrics, page) = (report.figures, look.exposition(), look.page());
        Self { analysis, summary, card, figures, metrics, page }
    }

    /// Capacity of the only tier.
    fn capacity(&self) -> Option<&Estimate> {
        self.analysis.tiers[0].headroom.as_ref().map(|found| &found.capacity_per_s)
    }

    fn asked(&self, system: &System, text: &str) -> Answer {
        let changes: Vec<Change> =
            text.split(',').map(|part| change(part, system).unwrap()).collect();
        self.analysis.fitted().answer(&changes, text, 7).unwrap()
    }
}

/// Busy servers that no gauge shows above 4 of 4, nor processors above a limit of 2 of 8, where 113/s and more are carried.
#[test]
fn a_busy_that_is_capped_gives_no_capacity() {
    for (servers, most, from) in [(4, 4.0_f64, "91."), (8, 2.0, "45.")] {
        for seed in 1..=10 {
            let system = alone(&format!("servers = {servers}\n{OWN}"));
            let observed = made(seed).of(waves(30.0, 100.0), |_, rate| {
                [app(rate, (rate * 0.044).min(most), mmm(rate.min(112.0), 5, 0.044))]
            });
            let told = Told::of(&system, &observed);
            let Told { summary, card, .. } = &told;
            assert!(told.capacity().is_none() && !card.told, "{summary}");
            let (figures, tier) = (&told.figures, &told.figures["tiers"][0]);
            assert!(figures["capacity_per_s"].is_null() && figures["limit"].is_null(), "{summary}");
            assert!(tier["capacity_per_s"].is_null() && tier["why"].is_string(), "{tier}");
            assert_eq!(card.trust.level, TrustLevel::Bad, "{summary}");
            assert!(summary.contains(" from ") && summary.contains("/s was served"), "{summary}");
            let said = summary.split(" from ").nth(1).unwrap();
            let near = said[..2].parse::<i32>().unwrap() - from[..2].parse::<i32>().unwrap();
            assert!(near.abs() <= 6, "{said}");
            assert!(!told.metrics.contains("kendall_capacity_per_second{"), "{}", told.metrics);
            assert!(told.page.contains("do not trust"), "{}", told.page);
        }
    }
}

/// Servers that are full have the capacity at which they are.
#[test]
fn servers_that_are_full_are_not_taken_for_capped() {
    for seed in 1..=40 {
        let system = alone(&format!("servers = 4\n{OWN}"));
        let observed = made(seed).of(waves(30.0, 99.0), |_, rate| {
            let rate = rate.min(99.5);
            [app(rate, rate * 0.04, mmm(rate, 4, 0.04))]
        });
        let told = Told::of(&system, &observed);
        let capacity = told.capacity().unwrap_or_else(|| panic!("{}", told.summary));
        assert!((capacity.center / 100.0 - 1.0).abs() < 0.01, "{capacity:?}");
    }
}

/// Four workers that hold a request for 66.7 ms, of which it needs a processor for 20: full at 60/s, and not at 200/s.
#[test]
fn workers_are_counted_by_how_long_they_hold_a_request() {
    for seed in 1..=5 {
        let system = alone(&format!("{HTTP}servers = 4\n"));
        let observed =
            made(seed).of(waves(15.0, 52.0), |_, rate| [app(rate, rate * 0.02, 1.0 / 15.0)]);
        let told = Told::of(&system, &observed);
        let truth = |told: &Told| {
            let capacity = told.capacity().unwrap_or_else(|| panic!("{}", told.summary));
            assert!((capacity.center / 60.0 - 1.0).abs() < 0.01, "{capacity:?}");
            assert!(
                told.summary.contains("if a request holds one of its 4 servers"),
                "{}",
                told.summary
            );
        };
        truth(&told);
        assert!(told.summary.contains("is measured inside the worker"), "{}", told.summary);
        let answer = told.asked(&system, "rate=40/s");
        assert!((answer.utilizations[0].as_ref().unwrap().center * 1.5 - 1.0).abs() < 0.02);
        assert!(answer.response_time.unwrap_err().contains("take `response_time` at the proxy"));
        // As well where nothing says how busy they are, and where none would wait.
        let mut without = observed.clone();
        without.tiers[0].series.remove(&Busy);
        let own = "servers = 4\nqueries = { throughput = 'a', response_time = 'c' }\n";
        truth(&Told::of(&alone(own), &without));
        let idle = made(seed).of(waves(5.0, 15.0), |_, rate| [app(rate, rate * 0.02, 1.0 / 15.0)]);
        truth(&Told::of(&system, &idle));
    }
}

/// The same workers, whose response times are taken in front of them: that they are full at 60/s, and not at 200/s, is found by how
/// requests wait, and not what more of them carry. Where more requests are there than servers, and none waits, no request
/// holds a server.
#[test]
fn a_response_time_with_a_wait_counts_no_workers() {
    let system = alone(&format!("{HTTP}servers = 4\n"));
    let to = |most: f64, seed: u64| {
        made(seed).of(waves(15.0, most), |_, rate| {
            [app(rate, rate * 0.02, mmm(rate.min(59.0), 4, 1.0 / 15.0))]
        })
    };
    for seed in 1..=5 {
        let told = Told::of(&system, &to(52.0, seed));
        let network = told.analysis.network.as_ref().unwrap();
        let capacity =
            network.hidden.as_ref().unwrap_or_else(|| panic!("{}", told.summary)).capacity();
        assert!(capacity.interval.unwrap().contains(60.0), "{capacity:?}");
        assert!(told.capacity().is_none(), "{}", told.summary);
        assert!(told.summary.contains("(perhaps those of `app`)"), "{}", told.summary);
        let answer = told.asked(&system, "rate=50/s");
        let time = answer.response_time.unwrap();
        assert!(time.interval.unwrap().contains(mmm(50.0, 4, 1.0 / 15.0)), "{time:?}");
        assert!(answer.utilizations[0].is_none());
        let more = change("app.servers=8", &system).unwrap();
        let said = told.analysis.fitted().answer(&[more], "8", 7).unwrap_err().to_string();
        assert!(said.contains("how long a request holds a server of `app`"), "{said}");
    }
    // A load at which few wait hardly shows it: what they wait makes the servers seem busier.
    let few = Told::of(&system, &to(30.0, 1));
    let capacity = few.capacity().unwrap_or_else(|| panic!("{}", few.summary));
    assert!(capacity.interval.unwrap().contains(60.0), "{capacity:?}");
    let in_front = to(52.0, 1);
    let mut without = in_front.clone();
    without.tiers[0].series.remove(&Busy);
    let own = "servers = 4\nqueries = { throughput = 'a', response_time = 'c' }\n";
    let told = Told::of(&alone(own), &without);
    assert!(told.capacity().is_none(), "{}", told.summary);
    assert!(
        told.summary.contains("how many of its servers are busy, and its response"),
        "{}",
        told.summary
    );
    let free = made(1).of(waves(50.0, 150.0), |_, rate| [app(rate, rate * 0.02, 1.0 / 15.0)]);
    let told = Told::of(&system, &free);
    let capacity = told.capacity().unwrap();
    assert!((capacity.center / 200.0 - 1.0).abs() < 0.01, "{capacity:?}: {}", told.summary);
    // A query of one's own is not overruled, but asked about.
    let own = made(1).of(waves(15.0, 52.0), |_, rate| [app(rate, rate * 0.02, 1.0 / 15.0)]);
    let told = Told::of(&alone(&format!("servers = 4\n{OWN}")), &own);
    assert!(told.summary.contains("`busy` is not their number"), "{}", told.summary);
    assert_eq!(told.card.trust.level, TrustLevel::Doubt);
}

/// A pool of eight that each request holds for 100 ms, of which it needs a processor for 5: where few windows, or loads below
/// 70 % of it, do not show the pool, neither what processors carry is the capacity, nor do response times stay as they are.
#[test]
fn what_processors_carry_is_no_capacity_of_what_waits_for_something_else() {
    for seed in 1..=5 {
        let stay = |rate: f64| 0.005 + mmm(rate.min(79.0), 8, 0.1);
        let few = Made { minutes: 6, ..made(seed) };
        let steps = |share: f64| 20.0 + 6.0 * (share * 6.0).floor();
        let few = few.of(steps, |_, rate| [app(rate, rate * 0.005, stay(rate))]);
        let system = alone(&format!("{HTTP}servers = 4\n"));
        let told = Told::of(&system, &few);
        assert!(
            !told.card.told && !told.summary.contains("saturates first: at"),
            "{}",
            told.summary
        );
        assert!(!told.metrics.contains("kendall_headroom_ratio{"), "{}", told.metrics);
        let hour =
            made(seed).of(waves(10.0, 30.0), |_, rate| [app(rate, rate * 0.005, stay(rate))]);
        let own = alone(
            "servers = 4\nqueries = { throughput = 'a', busy = 'rate(cpu[1m])', response_time = 'c' }\n",
        );
        let told = Told::of(&own, &hour);
        assert!(!told.card.told, "{}", told.summary);
        assert!(told.summary.contains("% of the response time is in no tier"), "{}", told.summary);
        let said = told.asked(&own, "rate=60/s").response_time.unwrap_err();
        assert!(said.contains("nothing says how that grows beyond"), "{said}");
        assert!(told.asked(&own, "rate=25/s").response_time.is_ok());
    }
}

/// A lock of 10 ms behind four processors, loaded to 70 %: response times grow threefold, and no request waits for four workers.
#[test]
fn a_response_time_that_grows_without_a_wait_counts_no_workers() {
    for seed in 1..=5 {
        let observed = made(seed).of(waves(20.0, 70.0), |_, rate| {
            [app(rate, rate * 0.0005, mmm(rate.clamp(1.0, 95.0), 1, 0.01))]
        });
        let told = Told::of(&alone(&format!("{HTTP}servers = 4\n")), &observed);
        let hidden = told.analysis.network.as_ref().unwrap().hidden.as_ref();
        let capacity = hidden.unwrap_or_else(|| panic!("{}", told.summary)).capacity();
        assert!(capacity.interval.unwrap().contains(100.0), "{capacity:?}");
        assert!(told.capacity().is_none(), "{}", told.summary);
    }
}

/// Bursts between steady loads, in windows that are left out.
#[test]
fn an_objective_is_not_met_at_loads_that_no_window_shows() {
    let system = alone(&format!("servers = 2\n{OWN}"));
    let load = |share: f64| if (share * 30.0).fract() < 0.17 { 90.0 } else { 20.0 + 10.0 * share };
    let observed =
        made(1).of(load, |_, rate| [app(rate, rate * 0.02, mmm(rate.min(99.0), 2, 0.02))]);
    let analysis = analyze(&system, &observed).unwrap();
    let objective = kendall_observations::Objective::parse("mean < 200ms").unwrap();
    let said = kendall_observe::objective(&system, &observed, &analysis, &objective);
    assert!(said.contains("is met at steady loads") && said.contains("(`block`)"), "{said}");
}

/// Noise makes response times grow with a load that does not change: nothing is built on it.
#[test]
fn one_load_tells_nothing_of_others() {
    for (seed, noise) in (1..=10).flat_map(|seed| [(seed, 0.02), (seed, 0.1)]) {
        let system = alone(&format!("servers = 2\n{OWN}"));
        let observed = Made { noise, ..made(seed) }
            .of(|_| 49.0, |_, rate| [app(rate, rate * 0.02, mmm(rate, 2, 0.02))]);
        let told = Told::of(&system, &observed);
        let Told { analysis, summary, .. } = &told;
        let network = analysis.network.as_ref().unwrap();
        assert!(network.hidden.is_none() && network.outgrown.is_none(), "{summary}");
        let capacity = told.capacity().unwrap().center;
        assert!((capacity / 100.0 - 1.0).abs() < 0.05, "{seed}: {summary}");
        assert!(summary.contains("(the load hardly changed)"), "{summary}");
        for question in ["rate=80/s", "rate=49/s,app.servers=3"] {
            let said = told.asked(&system, question).response_time.unwrap_err();
            assert!(said.contains("while the load changes by a factor of 1.3"), "{said}");
        }
        let time = told.asked(&system, "rate=49/s").response_time.unwrap();
        assert!(time.interval.unwrap().contains(mmm(49.0, 2, 0.02)), "{time:?}");
    }
}

/// Without response times nothing says how far a network is off; by two windows, or by such as scatter, hardly anything does.
#[test]
fn a_wide_interval_is_no_answer() {
    let system = alone(&format!("servers = 2\n{OWN}"));
    let of = |minutes: u64, scatter: f64, timed: bool| {
        let load = |share: f64| 30.0 + 6.0 * (share * exact_f64(minutes)).floor();
        let mut observed = Made { minutes, ..made(1) }.of(load, |share, rate| {
            let minute = (share * exact_f64(minutes)).floor();
            let factor = if minute % 2.0 == 0.0 { scatter } else { 1.0 / scatter };
            [app(rate, rate * 0.02, mmm(rate, 2, 0.02) * factor)]
        });
        if !timed {
            observed.tiers[0].series.remove(&ResponseTime);
        }
        Told::of(&system, &observed).asked(&system, "rate=45/s").response_time
    };
    let said = of(9, 1.0, false).unwrap_err();
    assert!(said.contains("give `app` a query for `response_time`"), "{said}");
    let said = of(9, 1.4, true).unwrap_err();
    assert!(said.contains("it lies anywhere between"), "{said}");
    let time = of(9, 1.0, true).unwrap();
    let interval = time.interval.unwrap();
    assert!(
        interval.contains(mmm(45.0, 2, 0.02)) && interval.high < 3.0 * interval.low,
        "{time:?}"
    );
}

/// Constant times of 50 ms, just beyond a bin's bound.
#[test]
fn a_percentile_in_one_bin_is_that_bin() {
    let system = alone(&format!("servers = 8\n{OWN}"));
    let mut observed = made(1).of(waves(20.0, 60.0), |_, rate| [app(rate, rate * 0.05, 0.0501)]);
    let rates = observed.tiers[0].series[&Throughput].clone();
    let none = vec![0.0; rates.len()];
    observed.tiers[0].buckets = vec![(0.05, none), (0.1, rates.clone()), (f64::INFINITY, rates)];
    let analysis = analyze(&system, &observed).unwrap();
    let report = report::report(&system, &observed, &analysis, &[]);
    let page = serde_json::to_string(&report).unwrap();
    assert!(page.contains("in the bin of 50.00 ms to 100.0 ms"), "{page}");
}

/// A request takes half as long again at the end of an hour: the capacity of now is in the interval, and what changed is told.
#[test]
fn a_demand_that_grows_all_the_time_is_told() {
    for seed in 1..=5 {
        let system = alone(&format!("servers = 2\n{OWN}"));
        let observed = made(seed).of(waves(20.0, 60.0), |share, rate| {
            let service_s = 0.02 * (1.0 + 0.5 * share);
            [app(rate, rate * service_s, mmm(rate, 2, service_s))]
        });
        let told = Told::of(&system, &observed);
        let interval = told.capacity().unwrap().interval.unwrap();
        // 2/30 ms at the end.
        assert!(interval.contains(66.9) && interval.high < 1.2 * interval.low, "{interval:?}");
        let said = "busy changes all the time, from 20.";
        assert!(told.summary.contains(said) && told.summary.contains(" ms at"), "{}", told.summary);
        // A step is none.
        let observed = made(seed).of(waves(20.0, 60.0), |share, rate| {
            let service_s = if share > 0.5 { 0.03 } else { 0.02 };
            [app(rate, rate * service_s, mmm(rate, 2, service_s))]
        });
        let told = Told::of(&system, &observed);
        assert!(told.summary.contains("before: that time is left out"), "{}", told.summary);
        // And nothing is where nothing changes.
        let observed = made(seed)
            .of(waves(20.0, 60.0), |_, rate| [app(rate, rate * 0.02, mmm(rate, 2, 0.02))]);
        let told = Told::of(&system, &observed);
        assert_eq!(told.analysis.windows.doubts, Vec::<String>::new());
    }
}

/// A deployment two minutes before the end.
#[test]
fn a_change_of_the_last_minutes_is_too_recent_to_tell() {
    for seed in 1..=5 {
        let system = alone(&format!("servers = 2\n{OWN}"));
        let observed = made(seed).of(waves(20.0, 60.0), |share, rate| {
            let service_s = if share > 0.965 { 0.03 } else { 0.02 };
            [app(rate, rate * service_s, mmm(rate, 2, service_s))]
        });
        let told = Told::of(&system, &observed);
        assert!(
            told.summary.contains("too recent to tell whether it stays so"),
            "{}",
            told.summary
        );
        assert!(told.page.contains("too recent to tell"), "{}", told.page);
        assert!(told.card.trust.level != TrustLevel::Good);
        let interval = told.capacity().unwrap().interval.unwrap();
        assert!(interval.contains(2.0 / 0.03), "{interval:?}");
    }
}

/// A deployment in the last minutes of a load that rises all the time is told too.
#[test]
fn a_change_of_the_last_minutes_is_told_while_the_load_rises() {
    for seed in 1..=5 {
        let system = alone(&format!("servers = 2\n{OWN}"));
        let observed = made(seed).of(
            |share| 20.0 + 40.0 * share,
            |share, rate| {
                let service_s = if share > 0.93 { 0.024 } else { 0.02 };
                [app(rate, rate * service_s, mmm(rate, 2, service_s))]
            },
        );
        let told = Told::of(&system, &observed);
        assert!(told.card.trust.level != TrustLevel::Good, "{}", told.summary);
        let interval = told.capacity().unwrap().interval.unwrap();
        // The first of the last windows may be of both.
        assert!(interval.low < 1.02 * 2.0 / 0.024, "{interval:?}: {}", told.summary);
    }
}

/// A request takes 8 % longer from the middle on, or as long throughout.
#[test]
fn a_small_change_in_the_middle_is_of_the_time_before() {
    for (seed, share_more) in (1..=10).flat_map(|seed| [(seed, 0.08), (seed, 0.0)]) {
        let system = alone(&format!("servers = 2\n{OWN}"));
        let observed = made(seed).of(waves(20.0, 60.0), |share, rate| {
            let service_s = if share > 0.5 { 0.02 * (1.0 + share_more) } else { 0.02 };
            [app(rate, rate * service_s, mmm(rate, 2, service_s))]
        });
        let told = Told::of(&system, &observed);
        let interval = told.capacity().unwrap().interval.unwrap();
        // The interval is one of 95 %, and the one of ten that misses does so by less than half a per cent.
        let truth = 100.0 / (1.0 + share_more);
        let beside = interval.low * 0.995..=interval.high * 1.005;
        assert!(beside.contains(&truth), "{interval:?}: {}", told.summary);
        assert_eq!(
            told.summary.contains("that time is left out"),
            share_more > 0.0,
            "{}",
            told.summary
        );
    }
}

/// Scrapes of one tier alone that are lost leave gaps, and rates across them are too low.
#[test]
fn lost_scrapes_of_one_tier_are_told() {
    let system = System::parse(CHAIN).unwrap();
    let stay = |rate: f64| [mmm(rate, 8, 0.02) + 0.05, 0.05, 0.01];
    let mut observed = made(1).of(waves(20.0, 80.0), |_, rate| {
        let [web, own, db] = stay(rate);
        [app(rate, rate * 0.02, web), app(rate, rate * 0.03, own), app(2.0 * rate, rate * 0.02, db)]
    });
    let told = Told::of(&system, &observed);
    assert!(!told.summary.contains("scrapes of it are lost"), "{}", told.summary);
    for values in observed.tiers[2].series.values_mut() {
        values.iter_mut().skip(7).step_by(40).for_each(|value| *value = f64::NAN);
    }
    let told = Told::of(&system, &observed);
    assert!(told.page.contains("`db` has no figures in 9 gaps of 360 moments"), "{}", told.page);
    assert!(told.card.trust.level != TrustLevel::Good, "{:?}", told.card.trust);
}

/// A query that gives the share of four servers that are busy, where their number is asked for.
#[test]
fn a_share_of_busy_servers_is_no_number() {
    for seed in 1..=5 {
        let observed = made(seed)
            .of(waves(20.0, 60.0), |_, rate| [app(rate, rate * 0.01, mmm(rate, 4, 0.04))]);
        let told = Told::of(&alone(&format!("servers = 4\n{OWN}")), &observed);
        assert!(told.capacity().is_none(), "{}", told.summary);
        assert!(told.page.contains("multiply the query by 4"), "{}", told.page);
    }
}

const CHAIN: &str = "name = 'x'\nentry = 'web'\nstep = '10s'\nblock = '60s'\n\
    [tiers.web]\nservers = 8\ncalls = ['app']\nqueries = { throughput = 'a', busy = 'b', response_time = 'c' }\n\
    [tiers.app]\nservers = 4\ncalls = ['db']\nqueries = { throughput = 'a', busy = 'b', response_time = 'c' }\n\
    [tiers.db]\nservers = 2\nqueries = { throughput = 'a', busy = 'b', response_time = 'c' }\n";

/// Three tiers M/M/m with two visits of the last: 400/s, 133/s and 100/s, under a tenth of noise.
#[test]
fn a_chain_of_tiers_is_what_it_was_made_of() {
    for seed in 1..=5 {
        let system = System::parse(CHAIN).unwrap();
        let stay = |rate: f64| {
            let db = mmm(2.0 * rate, 2, 0.01);
            let app = mmm(rate, 4, 0.03) + 2.0 * db;
            [mmm(rate, 8, 0.02) + app, app, db]
        };
        let observed = Made { noise: 0.1, ..made(seed) }.of(waves(20.0, 80.0), |_, rate| {
            let [web, own, db] = stay(rate);
            [
                app(rate, rate * 0.02, web),
                app(rate, rate * 0.03, own),
                app(2.0 * rate, rate * 0.02, db),
            ]
        });
        let told = Told::of(&system, &observed);
        let all: Vec<f64> = (told.analysis.tiers.iter())
            .map(|tier| tier.headroom.as_ref().unwrap().capacity_per_s.center)
            .collect();
        for (found, truth) in all.iter().zip([400.0, 133.3, 100.0]) {
            assert!((found / truth - 1.0).abs() < 0.03, "{found} for {truth}");
        }
        assert!(told.summary.contains("`db` saturates first"), "{}", told.summary);
        let time = told.asked(&system, "rate=70/s").response_time.unwrap();
        assert!(time.interval.unwrap().contains(stay(70.0)[0]), "{time:?} for {}", stay(70.0)[0]);
        println!(
            "chain: capacities {all:.1?} of 400, 133.3, 100; R(70) {time} of {}",
            stay(70.0)[0]
        );
    }
}

/// Six workers that are held while two servers of a database work, from which response time is not taken: full where six requests go
/// round, with the numbers of the page in one capacity.
#[test]
fn a_pool_of_held_workers_is_full_where_its_requests_go_round() {
    let text = "name = 'x'\nentry = 'web'\nstep = '10s'\nblock = '60s'\n\
        [tiers.web]\nservers = 6\nheld = true\ncalls = ['db']\nqueries = { throughput = 'a', busy = 'b' }\n\
        [tiers.db]\nservers = 2\nqueries = { throughput = 'a', busy = 'b', response_time = 'c' }\n";
    let system = System::parse(text).unwrap();
    let stations = vec![
        Station::delay("web").with_service_time(0, 0.01),
        Station::queue("db", 2).with_service_time(0, 0.012),
    ];
    let all = Model::new("x", vec![Class::closed("c", 6, 0.0)], stations).unwrap();
    let truth = solve(&all, Solver::Auto).unwrap().classes[0].throughput;
    for seed in 1..=5 {
        let observed = made(seed).of(waves(40.0, 120.0), |_, rate| {
            let db_s = mmm(rate, 2, 0.012);
            let web = vec![(Throughput, rate), (Busy, rate * (0.01 + db_s))];
            [web, app(rate, rate * 0.012, db_s)]
        });
        let told = Told::of(&system, &observed);
        let capacity = told.capacity().unwrap();
        println!("pool: {capacity} of {truth}");
        assert!((capacity.center / truth - 1.0).abs() < 0.03, "{capacity:?} for {truth}");
    }
}

/// A pool that no tier shows is full at 150/s, and the database at 149.4/s: neither is said to be the first, and no capacity twice.
#[test]
fn one_answer_has_one_capacity() {
    let (pool_s, db_s) = (0.02, 2.0 / 3.0 / 149.4);
    let system = System::parse(
        "name = 'x'\nentry = 'web'\nstep = '10s'\nblock = '60s'\n\
         [tiers.web]\nservers = 4\ncalls = ['db']\nqueries = { throughput = 'a', busy = 'b', response_time = 'c' }\n\
         [tiers.db]\nservers = 2\nqueries = { throughput = 'a', busy = 'b', response_time = 'c' }\n",
    )
    .unwrap();
    for seed in 1..=3 {
        let observed =
            Made { minutes: 240, noise: 0.01, seed }.of(waves(30.0, 136.0), |_, rate| {
                let rate = rate.min(147.0);
                let db = mmm(3.0 * rate, 2, db_s);
                let wait_s = mmm(rate, 3, pool_s) - pool_s;
                let web = mmm(rate, 4, 0.01) + 3.0 * db + wait_s;
                [app(rate, rate * 0.01, web), app(3.0 * rate, 3.0 * rate * db_s, db)]
            });
        let told = Told::of(&system, &observed);
        println!("pool at 150, db at 149.4: {}", told.summary);
        let said = told.summary.matches("what no tier shows").count();
        let full = told.summary.matches("it has").count();
        assert!(said >= 1 && full == 1, "{}", told.summary);
        assert!(!told.summary.contains("`db` saturates first"), "{}", told.summary);
        assert_eq!(told.card.told, !told.summary.contains("Cannot tell what saturates first"));
    }
}
