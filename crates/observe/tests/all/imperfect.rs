//! Monitoring as it is: scraped seldom, with gaps, restarts and clocks apart. The truth is a simulated
//! station, counted to the second; what is found must be it within what so few samples allow.

#![allow(clippy::unwrap_used, reason = "a failure to set up a test is a failure of the test")]

use kendall_observe::{
    Analysis, Grid, Observed, Quantity, Samples, System, TierSeries, analyze, fetch, report,
};
use kendall_units::{exact_f64, whole_u64};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

/// m and S of the station: it carries 100/s.
const SERVERS: usize = 2;
const SERVICE_S: f64 = 0.020;

/// Six hours.
const SECONDS: usize = 21_600;

/// Cumulative counts at each second.
struct Truth {
    arrivals: Vec<f64>,
    completions: Vec<f64>,
    busy_s: Vec<f64>,
    response_s: Vec<f64>,
}

/// M/M/m by Kiefer and Wolfowitz, under a load between 20 and 80 % of what it carries, in waves of
/// an hour.
fn truth(seed: u64) -> Truth {
    waving(seed, 30.0)
}

/// The same with a load that waves by so much.
fn waving(seed: u64, by: f64) -> Truth {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut exponential = move |mean: f64| -> f64 {
        let uniform: f64 = random.random();
        -mean * (1.0 - uniform).ln()
    };
    let mut bins = [vec![0.0; SECONDS], vec![0.0; SECONDS], vec![0.0; SECONDS], vec![0.0; SECONDS]];
    let mut put = |which: usize, at_s: f64, value: f64| {
        let second = usize::try_from(whole_u64(at_s)).unwrap();
        if let Some(bin) = bins[which].get_mut(second) {
            *bin += value;
        }
    };
    let mut free_s = [0.0_f64; SERVERS];
    let mut at_s = 0.0;
    while at_s < exact_f64(SECONDS as u64) {
        let wave = (at_s / 3_600.0 * std::f64::consts::TAU).sin();
        at_s += exponential(1.0 / (50.0 + by * wave));
        let first = if free_s[0] <= free_s[1] { 0 } else { 1 };
        let begin_s = at_s.max(free_s[first]);
        let end_s = begin_s + exponential(SERVICE_S);
        free_s[first] = end_s;
        put(0, at_s, 1.0);
        put(1, end_s, 1.0);
        put(3, end_s, end_s - at_s);
        let mut from_s = begin_s;
        while from_s < end_s {
            let to_s = (from_s.floor() + 1.0).min(end_s);
            put(2, from_s, to_s - from_s);
            from_s = to_s;
        }
    }
    let sums = bins.map(|bins| {
        let mut sum = 0.0;
        bins.into_iter()
            .map(|bin| {
                sum += bin;
                sum
            })
            .collect::<Vec<f64>>()
    });
    let [arrivals, completions, busy_s, response_s] = sums;
    Truth { arrivals, completions, busy_s, response_s }
}

/// How it is scraped.
struct Scraping {
    every_s: usize,
    /// Seconds of which no scrape is there.
    gaps: Vec<std::ops::Range<usize>>,
    /// Seconds at which the station began anew, its counters at zero.
    restarts: Vec<usize>,
}

impl Scraping {
    fn each(every_s: usize) -> Self {
        Self { every_s, gaps: Vec::new(), restarts: Vec::new() }
    }
}

const COUNTERS: [&str; 4] = ["arrivals", "completions", "busy_seconds", "response_seconds"];

fn scraped(truth: &Truth, how: &Scraping, tier: &str, clock_s: f64, into: &mut Samples) {
    let counters = [&truth.arrivals, &truth.completions, &truth.busy_s, &truth.response_s];
    for (name, values) in COUNTERS.iter().zip(counters) {
        for second in (0..SECONDS).step_by(how.every_s) {
            if how.gaps.iter().any(|gap| gap.contains(&second)) {
                continue;
            }
            let began = how.restarts.iter().rev().find(|restart| **restart <= second);
            let before = began.map_or(0.0, |restart| values[*restart]);
            let labels = [("__name__", *name), ("tier", tier)];
            let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
            let at_s = 1_000_000.5 + exact_f64(second as u64) + clock_s;
            into.push(labels, at_s, values[second] - before);
        }
    }
}

fn tier(name: &str, calls: &str) -> String {
    let of = |counter: &str| format!("sum(rate({counter}{{tier=\"{name}\"}}[{{window}}]))");
    format!(
        "[tiers.{name}]\nservers = {SERVERS}\ncalls = [{calls}]\n\
         queries.arrivals = '{}'\nqueries.throughput = '{}'\nqueries.busy = '{}'\n\
         queries.response_time = '{} / {}'\n",
        of("arrivals"),
        of("completions"),
        of("busy_seconds"),
        of("response_seconds"),
        of("completions")
    )
}

fn system(every_s: usize, tiers: &str) -> System {
    System::parse(&format!(
        "name = 'x'\nentry = 'a'\nstep = '{every_s}s'\nscrape = '{every_s}s'\nblock = '5min'\n{tiers}"
    ))
    .unwrap()
}

fn found(system: &System, samples: &mut Samples) -> Analysis {
    let grid = Grid::new(1_000_300, 1_000_000 + SECONDS as u64 - 60, system.step_s).unwrap();
    analyze(system, &fetch(system, samples, grid).unwrap()).unwrap()
}

fn alone(truth: &Truth, how: &Scraping) -> (Analysis, Grid) {
    let mut samples = Samples::default();
    scraped(truth, how, "a", 0.0, &mut samples);
    let system = system(how.every_s, &tier("a", ""));
    let grid = Grid::new(1_000_300, 1_000_000 + SECONDS as u64 - 60, system.step_s).unwrap();
    (found(&system, &mut samples), grid)
}

fn demand(analysis: &Analysis, tier: usize) -> f64 {
    analysis.tiers[tier].demand.as_ref().unwrap().demands[0].estimate.center
}

/// What the station's own counts say of S, over the whole time: exponential times of 1.08 million
/// requests, so within 0.1 % of 20 ms.
fn own_service_s(truth: &Truth) -> f64 {
    truth.busy_s.last().unwrap() / truth.completions.last().unwrap()
}

/// Root mean square, over windows that are used, of what X and R err against the counts of those
/// very seconds.
fn errors(truth: &Truth, analysis: &Analysis, grid: &Grid) -> (f64, f64) {
    let (mut x, mut r, mut count) = (0.0, 0.0, 0.0);
    for window in analysis.windows.used() {
        let second = |at_s: f64| {
            usize::try_from(grid.from_s - 1_000_000 + whole_u64(at_s)).unwrap().min(SECONDS - 1)
        };
        let (from, to) = (second(window.from_s), second(window.to_s));
        let of = |values: &[f64]| values[to] - values[from];
        let completions = of(&truth.completions);
        let means = &window.tiers[0];
        let seconds = exact_f64((to - from) as u64);
        x += (means.throughput_per_s.unwrap() * seconds / completions - 1.0).powi(2);
        let response_s = of(&truth.response_s) / completions;
        r += (means.response_time_s.unwrap() / response_s - 1.0).powi(2);
        count += 1.0;
    }
    ((x / count).sqrt(), (r / count).sqrt())
}

/// The table of docs/observe.md. Demands are quotients of what was counted over the same time, so
/// they hardly suffer; X and R of a window do, as its ends are known to four scrapes only.
#[test]
fn the_error_grows_with_the_scrape_interval() {
    let truth = truth(1);
    let own = own_service_s(&truth);
    let mut before = 0.0;
    println!(
        "| scrapes each (s) | windows used | demand (%) | X of a window (%) | R of a window (%) | network (%) |"
    );
    for every_s in [1, 5, 15, 30, 60] {
        let (analysis, grid) = alone(&truth, &Scraping::each(every_s));
        let (x, r) = errors(&truth, &analysis, &grid);
        let demand = demand(&analysis, 0) / own - 1.0;
        let score = analysis.network.as_ref().unwrap().score.as_ref().unwrap();
        println!(
            "| {every_s} | {} of {} | {:+.2} | {:.1} | {:.1} | {:.1} |",
            analysis.windows.used().count(),
            analysis.windows.all.len(),
            demand * 100.0,
            x * 100.0,
            r * 100.0,
            score.median * 100.0
        );
        // Windows of 300 s hold some 15,000 service times: 0.8 % each, and 40 of them are fitted.
        assert!(demand.abs() < 3.0 * 0.008 / 40.0_f64.sqrt(), "{every_s}: {demand}");
        assert!(x >= before, "{every_s}: {x} after {before}");
        before = x;
        // The mean over four scrapes lies two of them late; the load moves by at most 30/s · 2π/3600 s.
        let late_s = 2.0 * exact_f64(every_s as u64);
        let moved = 30.0 * std::f64::consts::TAU / 3_600.0 * late_s / 20.0;
        assert!(x < moved + 3.0 / 6_000.0_f64.sqrt(), "{every_s}: {x} > {moved}");
    }
}

#[test]
fn gaps_and_restarts_cost_windows_and_no_truth() {
    let truth = truth(2);
    let own = own_service_s(&truth);
    let how = Scraping {
        every_s: 15,
        // Prometheus restarted, and away for long; the station restarted twice.
        gaps: vec![4_000..4_200, 9_000..11_000],
        restarts: vec![7_000, 15_000],
    };
    let (analysis, grid) = alone(&truth, &how);
    let left_out: Vec<&str> =
        analysis.windows.all.iter().filter_map(|window| window.left_out.as_deref()).collect();
    assert!(left_out.iter().any(|why| why.contains("scrapes")), "{left_out:?}");
    // What the station did between its last scrape and its restart was not recorded: up to 15 s of
    // the 60 s that a rate is over, in two windows.
    let (x, _) = errors(&truth, &analysis, &grid);
    let (without, grid) = alone(&truth, &Scraping::each(15));
    let (plain, _) = errors(&truth, &without, &grid);
    assert!(x < plain + 0.01, "{x} with gaps, {plain} without");
    assert!((demand(&analysis, 0) / own - 1.0).abs() < 3.0 * 0.008 / 35.0_f64.sqrt());
    for law in &analysis.laws {
        assert!(law.holds, "{law:?}");
    }
}

/// A tier that serves requests of its own, as many on average: it does not follow the entry, and nothing agrees. Behind
/// an entry that does not vary, the law is not checked.
#[test]
fn a_series_of_other_requests_follows_no_entry() {
    for (by, told) in [(30.0, Some(false)), (0.0, None)] {
        let mut samples = Samples::default();
        scraped(&waving(3, by), &Scraping::each(15), "a", 0.0, &mut samples);
        scraped(&waving(4, 0.0), &Scraping::each(15), "b", 0.0, &mut samples);
        let system = system(15, &format!("{}{}", tier("a", "\"b\""), tier("b", "")));
        let analysis = found(&system, &mut samples);
        let law = analysis.laws.iter().find(|law| law.law.starts_with("forced flow"));
        assert_eq!(law.map(|law| law.holds), told, "{law:?}");
        assert!(law.is_none_or(|law| law.explanation.contains("not of the requests")), "{law:?}");
        assert!(law.is_none_or(|law| law.lag_s.is_none() && law.spread > 0.2), "{law:?}");
        let said = report::sentences(&system, &analysis, &[]).join(" ");
        assert_eq!(said.contains("`b` (it does not follow the entry)"), told.is_some(), "{said}");
        let unknown = said.contains("Cannot tell whether `b` serves the requests of the entry");
        assert_eq!(unknown, told.is_none(), "{said}");
        assert_eq!(analysis.network.is_ok(), told.is_none());
    }
}

/// Throughputs of two tiers over two hours, by the wave of the entry's load and noise of a minute.
fn beside(entry: impl Fn(f64) -> f64, other: impl Fn(f64, f64) -> f64) -> (System, Analysis) {
    let tiers = "[tiers.a]\nservers = 9\ncalls = ['b']\nqueries = { throughput = 'x', busy = 'y' }\n\
                 [tiers.b]\nservers = 4\nqueries = { throughput = 'x', busy = 'y' }\n";
    let system = system(15, tiers);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut normal = || -> f64 { (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0 };
    let (mut web, mut db, mut noise) = (Vec::new(), Vec::new(), 0.0);
    for step in 0..480_u64 {
        if step % 4 == 0 {
            noise = normal();
        }
        let wave = (exact_f64(step) / 120.0 * std::f64::consts::TAU).sin();
        web.push(entry(wave) + 0.2 * normal());
        db.push(other(wave, noise) + 0.2 * normal());
    }
    let tier = |values: Vec<f64>| TierSeries {
        series: [
            (Quantity::Busy, values.iter().map(|rate| rate * 0.02).collect()),
            (Quantity::Throughput, values),
        ]
        .into(),
        ..TierSeries::default()
    };
    let grid = Grid::new(0, 479 * 15, 15).unwrap();
    let analysis = analyze(&system, &Observed { grid, tiers: vec![tier(web), tier(db)] }).unwrap();
    (system, analysis)
}

/// Noise around the entry's mean beside a load that varies little, and a series that follows by a fifth of what it should.
#[test]
fn a_series_that_hardly_follows_is_not_of_the_same_requests() {
    let narrow = beside(|wave| 40.0 + 4.0 * wave, |_, noise| 40.0 + 3.0 * noise);
    let hardly = beside(|wave| 40.0 + 20.0 * wave, |wave, noise| 40.0 + 4.0 * wave + 6.0 * noise);
    for (system, analysis) in [narrow, hardly] {
        let said = report::sentences(&system, &analysis, &[]).join(" ");
        assert!(said.contains("`b` (it does not follow the entry)"), "{said}");
        assert!(analysis.network.is_err_and(|why| why.contains("not of the requests")), "{said}");
    }
}

/// What an exporter asks a database at each scrape, 10/s of 70 on average, is no visit of the entry's requests.
#[test]
fn what_a_tier_serves_without_load_is_told_and_no_visit() {
    let (system, analysis) = beside(|wave| 30.0 + 15.0 * wave, |wave, _| 70.0 + 30.0 * wave);
    let own = analysis.tiers[1].own_per_s.as_ref().unwrap();
    assert!(own.interval.unwrap().contains(10.0) && (own.center - 10.0).abs() < 1.0, "{own:?}");
    let visits = &analysis.tiers[1].visits;
    assert!((visits.center / 2.0 - 1.0).abs() < 0.02, "{visits:?}");
    let said = report::sentences(&system, &analysis, &[]).join(" ");
    assert!(said.contains("`b` serves") && said.contains("without load"), "{said}");
    assert!(analysis.laws.iter().all(|law| law.holds), "{:?}", analysis.laws);
    // By hand: 4 servers, of which 10/s keep 0.2 busy, and 2 visits of 20 ms.
    let capacity = analysis.tiers[1].headroom.as_ref().unwrap().capacity_per_s.center;
    let network = analysis.network.as_ref().unwrap();
    let used = |rate: f64| network.at(rate).unwrap().utilizations[1];
    assert!((capacity / 95.0 - 1.0).abs() < 0.02, "{capacity}");
    assert!((used(0.9 * capacity) / (0.05 + 0.95 * 0.9) - 1.0).abs() < 0.02, "{capacity}");
    assert!((used(10.0) / 0.15 - 1.0).abs() < 0.02 && network.at(1.02 * capacity).is_err());
    let (_, without) = beside(|wave| 30.0 + 15.0 * wave, |wave, _| 60.0 + 30.0 * wave);
    assert_eq!(without.tiers[1].own_per_s, None);
}

/// A tier whose exporter was installed after two thirds of the time: the last third tells of both. Ten minutes before the end it is too
/// little, which is what is said of it, and the entry is answered.
#[test]
fn a_tier_that_began_late_is_analyzed_since_then() {
    let truth = truth(3);
    let since = |since: usize| {
        let mut samples = Samples::default();
        scraped(&truth, &Scraping::each(15), "a", 0.0, &mut samples);
        let how = Scraping { gaps: std::iter::once(0..since).collect(), ..Scraping::each(15) };
        scraped(&truth, &how, "b", 0.0, &mut samples);
        let system = system(15, &format!("{}{}", tier("a", "\"b\""), tier("b", "")));
        let analysis = found(&system, &mut samples);
        let said = report::sentences(&system, &analysis, &[]).join(" ");
        (analysis, said)
    };
    let (analysis, said) = since(SECONDS / 3 * 2);
    assert!(analysis.network.is_ok(), "{:?}", analysis.network);
    assert!((demand(&analysis, 1) / SERVICE_S - 1.0).abs() < 0.02, "{}", demand(&analysis, 1));
    let law = analysis.laws.iter().find(|law| law.law.starts_with("forced flow")).unwrap();
    assert!(law.holds && law.windows >= 20, "{law:?}");
    // Unix time 1,014,400 and a scrape.
    let told =
        "`b` has `response_time` since 1970-01-12 17:47 UTC only: the time before is left out";
    assert!(said.replace("throughput", "response_time").contains(told), "{said}");
    let (analysis, said) = since(SECONDS - 600);
    assert!(said.contains("since 1970-01-12 19:37 UTC only, in fewer than 4 windows"), "{said}");
    assert!(!said.contains("no query"), "{said}");
    assert!(analysis.tiers[0].headroom.is_some());
}

/// A Prometheus that was started a quarter of an hour ago, asked for an hour: what there is, is all of the time.
#[test]
fn what_a_young_server_has_is_all_of_the_time() {
    let truth = truth(3);
    let mut samples = Samples::default();
    let begin = SECONDS - 900;
    let how = Scraping { gaps: std::iter::once(0..begin).collect(), ..Scraping::each(15) };
    for name in ["a", "b"] {
        scraped(&truth, &how, name, 0.0, &mut samples);
    }
    let text = format!("{}{}", tier("a", "\"b\""), tier("b", ""));
    let text = format!("name = 'x'\nentry = 'a'\nstep = '15s'\n{text}");
    let system = System::parse(&text).unwrap();
    let end_s = 1_000_000 + SECONDS as u64;
    let grid = Grid::new(end_s - 3_600, end_s, 15).unwrap();
    let observed = fetch(&system, &mut samples, grid).unwrap();
    let analysis = analyze(&system, &observed).unwrap();
    assert!(observed.grid.from_s - (1_000_000 + begin as u64) <= 60, "{:?}", observed.grid);
    let law = analysis.laws.iter().find(|law| law.law.starts_with("forced flow"));
    assert!(law.is_some_and(|law| law.holds && law.windows >= 20), "{:?}", analysis.untold);
    assert!(analysis.windows.used().count() >= 4, "{:?}", analysis.windows);
    let summary = report::report(&system, &observed, &analysis, &[]).summary.join(" ");
    assert!(summary.contains("`a` has figures since 1970-01-12 19:32 UTC"), "{summary}");
}

/// Two tiers of which each counts the same requests, one by a clock that is a minute late, beyond a scrape: reported, and by
/// how much.
#[test]
fn a_clock_that_is_a_minute_apart_is_found() {
    let truth = truth(3);
    for (clock_s, apart) in [(0.0, false), (15.0, false), (60.0, true), (-60.0, true)] {
        let mut samples = Samples::default();
        scraped(&truth, &Scraping::each(15), "a", 0.0, &mut samples);
        scraped(&truth, &Scraping::each(15), "b", clock_s, &mut samples);
        let system = system(15, &format!("{}{}", tier("a", "\"b\""), tier("b", "")));
        let analysis = found(&system, &mut samples);
        let law = analysis.laws.iter().find(|law| law.law.starts_with("forced flow")).unwrap();
        assert_eq!(law.holds, !apart, "{law:?}");
        if apart {
            // To the step, which is 15 s.
            let said = analysis.laws.iter().find_map(|law| law.lag_s).unwrap();
            assert!((said - clock_s).abs() <= 15.0, "{said} s for {clock_s} s");
            let told = report::sentences(&system, &analysis, &[]).join(" ");
            assert!(told.contains(&format!("`b` (its clock, by {said:+.0} s)")), "{told}");
        }
        // Windows of five minutes bear it: the slope of a wave over a minute is a tenth of it.
        assert!((demand(&analysis, 1) / SERVICE_S - 1.0).abs() < 0.05, "{}", demand(&analysis, 1));
    }
}

/// A target, as the labels of what is scraped there, what it counts, and when its process began.
struct Scraped<'a>(&'a [(&'a str, &'a str)], &'a Truth, Option<f64>);

/// Targets that are scraped two seconds apart: the greatest load, what is left out, and what may be there twice.
fn of_targets(has_up: bool, targets: &[Scraped]) -> (f64, Option<String>, Option<String>) {
    of_targets_since(has_up, targets, 0)
}

/// The same where the last is scraped from a second on.
fn of_targets_since(
    has_up: bool,
    targets: &[Scraped],
    since: usize,
) -> (f64, Option<String>, Option<String>) {
    let mut samples = Samples::default();
    for (target, Scraped(labels, truth, start)) in targets.iter().enumerate() {
        let counters = [&truth.arrivals, &truth.completions, &truth.busy_s, &truth.response_s];
        let since = if target + 1 == targets.len() { since } else { 0 };
        for second in (since + 2 * (target % 2)..SECONDS).step_by(5) {
            let up = has_up.then_some(("up", 1.0));
            let start = start.map(|start| ("process_start_time_seconds", start));
            let counted = COUNTERS.iter().zip(counters).map(|(name, of)| (*name, of[second]));
            for (name, value) in counted.chain(up).chain(start) {
                let own = [("__name__", name), ("tier", "a")].into_iter();
                let labels = own.chain(labels.iter().copied());
                let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
                samples.push(labels.collect(), 1_000_000.5 + exact_f64(second as u64), value);
            }
        }
    }
    let system = system(5, &tier("a", ""));
    let grid = Grid::new(1_000_300, 1_000_000 + SECONDS as u64 - 60, 5).unwrap();
    let observed = fetch(&system, &mut samples, grid).unwrap();
    let analysis = analyze(&system, &observed).unwrap();
    let report = report::report(&system, &observed, &analysis, &[]);
    let found = &observed.tiers[0];
    // A doubt is in the answer, and nothing is trusted beside it.
    if let Some(what) = &found.maybe_twice {
        let trust = format!("{:?}", report.answer.unwrap().trust.level);
        assert!(trust != "Good" && report.summary.join("").contains(&what[1..]), "{trust}");
    }
    (analysis.rates_seen_per_s.1, found.left_out.clone(), found.maybe_twice.clone())
}

/// Several replicas of a Prometheus behind one address, or several jobs, have each request as often: one of them is taken, with
/// a remark.
#[test]
fn an_application_that_is_scraped_twice_counts_once() {
    let truth = truth(3);
    let app = ("instance", "app:80");
    let of = |labels| Scraped(labels, &truth, None);
    let replica = ["a", "b", "c"].map(|name| [app, ("replica", name)]);
    let jobs = [[app, ("job", "a"), ("service", "x")], [app, ("job", "b"), ("endpoint", "y")]];
    let unnamed = [app];
    for has_up in [true, false] {
        for targets in [
            vec![of(&replica[0]), of(&replica[1])],
            vec![of(&unnamed), of(&replica[1])],
            replica.iter().map(|labels| of(labels)).collect(),
            jobs.iter().map(|labels| of(labels)).collect(),
        ] {
            let (rate, said, untold) = of_targets(has_up, &targets);
            let said = said.unwrap();
            assert!((rate - 80.0).abs() < 8.0, "{rate}: {said}");
            assert!(said.contains("`a` is scraped twice") && untold.is_none(), "{said}");
            assert!(said.contains("=\"b\" grow as those"), "{said}");
        }
    }
}

/// A second replica that was added for the last sixth of the time: all of what is analyzed said nothing of it.
#[test]
fn a_replica_that_began_lately_is_found() {
    let truth = truth(3);
    let of = |labels| Scraped(labels, &truth, None);
    let replica = ["a", "b"].map(|name| [("instance", "app:80"), ("replica", name)]);
    let targets = [of(&replica[0]), of(&replica[1])];
    let (rate, said, untold) = of_targets_since(true, &targets, SECONDS / 6 * 5);
    assert!((rate - 80.0).abs() < 8.0 && untold.is_none(), "{rate}: {untold:?}");
    assert!(said.unwrap().contains("`a` is scraped twice"));
}

/// Two names of one host, or labels of any name: one process began at one moment, which few others share to a hundredth of a
/// second. Beside it, one that is there once.
#[test]
fn a_process_under_two_names_is_known_by_its_start() {
    let (one, other) = (truth(3), truth(4));
    let began = Some(999_000.37);
    for has_up in [true, false] {
        let (a, b) = ([("instance", "app:80")], [("instance", "10.0.0.1:80")]);
        let c = [("instance", "10.0.0.2:80")];
        let twice = [Scraped(&a, &one, began), Scraped(&b, &one, began)];
        let (rate, said, _) = of_targets(has_up, &twice);
        assert!((rate - 80.0).abs() < 8.0 && said.is_some(), "{rate}: {said:?}");
        let [a, b] = twice;
        let beside = [a, b, Scraped(&c, &other, Some(999_000.91))];
        let (rate, said, untold) = of_targets(has_up, &beside);
        assert!((rate - 160.0).abs() < 16.0 && untold.is_none(), "{rate}: {said:?}");
        let local = ("instance", "localhost:80");
        let (a, b) = ([local, ("site", "a")], [local, ("site", "b")]);
        let twice = [Scraped(&a, &one, began), Scraped(&b, &one, began)];
        let (rate, said, _) = of_targets(has_up, &twice);
        assert!((rate - 80.0).abs() < 8.0, "{rate}: {said:?}");
        assert!(said.unwrap().contains("site=\"b\" grow as"));
    }
}

/// Two servers that a load balancer serves in turns count alike, and are two: they began at different times, or at one and count
/// differently. Where neither tells it, both are kept, and it is asked.
#[test]
fn two_servers_are_not_one() {
    let (one, other) = (truth(3), truth(4));
    let (a, b) = ([("instance", "a:80")], [("instance", "b:80")]);
    let (pod_a, pod_b) = ([a[0], ("pod", "a")], [b[0], ("pod", "b")]);
    let local = ("instance", "localhost:80");
    let (host_a, host_b) = ([local, ("replica", "a")], [local, ("replica", "b")]);
    let (began, later) = (Some(999_000.37), Some(999_000.41));
    for has_up in [true, false] {
        let pairs = [
            [Scraped(&a, &one, began), Scraped(&b, &one, later)],
            [Scraped(&a, &one, began), Scraped(&b, &other, began)],
            [Scraped(&host_a, &one, began), Scraped(&host_b, &one, later)],
            [Scraped(&host_a, &one, None), Scraped(&host_b, &other, None)],
        ];
        for pair in pairs {
            let (rate, said, untold) = of_targets(has_up, &pair);
            assert!((rate - 160.0).abs() < 16.0, "{rate}");
            assert_eq!((said, untold), (None, None));
        }
        // Whole seconds are those of many programs, and so is the start of pods.
        let pairs = [
            [Scraped(&a, &one, None), Scraped(&b, &one, None)],
            [Scraped(&a, &one, Some(999_000.0)), Scraped(&b, &one, Some(999_000.0))],
            [Scraped(&pod_a, &one, began), Scraped(&pod_b, &one, began)],
            [Scraped(&host_a, &one, None), Scraped(&host_b, &one, None)],
        ];
        for pair in pairs {
            let (rate, said, untold) = of_targets(has_up, &pair);
            assert!((rate - 160.0).abs() < 16.0 && said.is_none(), "{rate}: {said:?}");
            assert!(untold.unwrap().contains("cannot tell whether `a` is scraped twice"));
        }
    }
}
