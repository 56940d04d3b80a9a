//! Two classes of requests, of which one takes ten times as long, in a mix that varies: the truth is a
//! simulated station, counted to the second.

#![allow(clippy::unwrap_used, reason = "a failure to set up a test is a failure of the test")]

use kendall_fit::change::Change;
use kendall_observe::{Analysis, Grid, Samples, System, analyze, change, fetch};
use kendall_units::{exact_f64, whole_u64};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

const SERVERS: usize = 2;
const NAMES: [&str; 2] = ["GET", "PUT"];
/// S of each class.
const SERVICE_S: [f64; 2] = [0.005, 0.050];
/// Four hours.
const SECONDS: usize = 14_400;

/// A run: what was counted in each second, by class, and the mean response time of each.
struct Truth {
    samples: Samples,
    responses_s: [f64; 2],
}

/// GETs follow a wave of an hour, PUTs one of 40 minutes; PUTs come `puts` times as often.
fn truth(seed: u64, puts: f64) -> Truth {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut exponential = move |mean: f64| -> f64 {
        let uniform: f64 = random.random();
        -mean * (1.0 - uniform).ln()
    };
    // By class: completions, response times; then busy seconds.
    let mut bins = vec![vec![0.0; SECONDS]; 5];
    let mut arrivals: Vec<(f64, usize)> = Vec::new();
    for (class, (mean, wave, length_s)) in
        [(80.0, 50.0, 3_600.0), (10.0 * puts, 6.0 * puts, 2_400.0)].into_iter().enumerate()
    {
        let mut at_s = 0.0;
        while at_s < exact_f64(SECONDS as u64) {
            let turn: f64 = at_s / length_s * std::f64::consts::TAU;
            at_s += exponential(1.0 / (mean + wave * turn.sin()));
            arrivals.push((at_s, class));
        }
    }
    arrivals.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free_s = [0.0_f64; SERVERS];
    let mut sums = [(0.0, 0.0); 2];
    for (at_s, class) in arrivals {
        let first = if free_s[0] <= free_s[1] { 0 } else { 1 };
        let begin_s = at_s.max(free_s[first]);
        let end_s = begin_s + exponential(SERVICE_S[class]);
        free_s[first] = end_s;
        sums[class].0 += end_s - at_s;
        sums[class].1 += 1.0;
        let mut put = |which: usize, at_s: f64, value: f64| {
            let second = usize::try_from(whole_u64(at_s)).unwrap();
            if let Some(bin) = bins[which].get_mut(second) {
                *bin += value;
            }
        };
        put(class, end_s, 1.0);
        put(2 + class, end_s, end_s - at_s);
        let mut from_s = begin_s;
        while from_s < end_s {
            let to_s = (from_s.floor() + 1.0).min(end_s);
            put(4, from_s, to_s - from_s);
            from_s = to_s;
        }
    }
    let mut samples = Samples::default();
    for (which, bin) in bins.iter().enumerate() {
        let (name, class) = match which {
            0 | 1 => ("requests", NAMES[which]),
            2 | 3 => ("response_seconds", NAMES[which - 2]),
            _ => ("busy_seconds", ""),
        };
        let mut sum = 0.0;
        for (second, value) in (0_u64..).zip(bin) {
            sum += value;
            if second % 10 == 9 {
                let labels = [("__name__", name), ("method", class)];
                let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
                samples.push(labels.into(), 1_000_000.5 + exact_f64(second), sum);
            }
        }
    }
    Truth { samples, responses_s: sums.map(|(sum, count)| sum / count) }
}

fn found(truth: &mut Truth) -> (System, Analysis) {
    let system = System::parse(
        "name = 'x'\nentry = 'a'\nstep = '10s'\nscrape = '10s'\nblock = '2min'\n[tiers.a]\nservers = 2\n\
         queries.throughput = 'sum(rate(requests[{window}]))'\n\
         queries.busy = 'sum(rate(busy_seconds[{window}]))'\n\
         queries.response_time = 'sum(rate(response_seconds[{window}])) / sum(rate(requests[{window}]))'\n\
         queries.classes = 'sum by (method) (rate(requests[{window}]))'\n\
         queries.class_times = 'sum by (method) (rate(response_seconds[{window}])) / sum by (method) (rate(requests[{window}]))'\n",
    )
    .unwrap();
    let grid = Grid::new(1_000_100, 1_000_000 + SECONDS as u64 - 60, 10).unwrap();
    let observed = fetch(&system, &mut truth.samples, grid).unwrap();
    let analysis = analyze(&system, &observed).unwrap();
    (system, analysis)
}

/// A window of 120 s has some 9,600 GETs and 1,200 PUTs, whose times are known to 0.9 and 2.9 %; 50 windows
/// and more are fitted. Three standard errors of that, with a factor for mixes that are not orthogonal.
#[test]
fn demands_of_classes_are_found_and_the_network_is_the_better_for_them() {
    let mut truth = truth(1, 1.0);
    let (_, analysis) = found(&mut truth);
    let classes = analysis.class_network.unwrap().unwrap();
    let names: Vec<&str> = classes.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names, NAMES);
    for (class, own_s) in classes.classes.iter().zip(SERVICE_S) {
        let demand = class.demands_s[0];
        assert!((demand.value / own_s - 1.0).abs() < 0.06, "{}: {demand:?}", class.name);
        let off = (demand.value - own_s).abs() / demand.standard_error;
        assert!(off < 4.0, "{}: {off} standard errors", class.name);
    }
    let (with, without) = (classes.score.unwrap(), classes.score_of_one_class.unwrap());
    println!("with classes {with:?}, without {without:?}");
    assert!(with.median < 0.10, "{with:?}");
    assert!(with.log < without.log, "{with:?} and {without:?}");
}

/// Three in ten more PUTs, as a run that has them finds it, in every window at its own mix. Windows of
/// 120 s of a system that is 60 % busy: single ones scatter by a tenth, the mean of all by a few hundredths.
#[test]
fn another_mix_is_predicted_as_a_run_of_it_finds_it() {
    let (mut now, mut then) = (truth(2, 1.0), truth(3, 1.3));
    let (system, analysis) = found(&mut now);
    let (_, after) = found(&mut then);
    let classes = analysis.class_network.as_ref().unwrap().as_ref().unwrap();
    let network = analysis.network.as_ref().unwrap();
    // Mean of GETs and of PUTs by the wave of each, as `truth` makes them.
    let at = |from_s: f64, to_s: f64| -> [f64; 2] {
        let middle_s = 100.0 + f64::midpoint(from_s, to_s);
        let turn = |length_s: f64| (middle_s / length_s * std::f64::consts::TAU).sin();
        [80.0 + 50.0 * turn(3_600.0), 13.0 + 7.8 * turn(2_400.0)]
    };
    let (mut predicted, mut of_one_class, mut measured) = (0.0, 0.0, 0.0);
    for window in after.windows.used() {
        let rates = at(window.from_s, window.to_s);
        let all = rates[0] + rates[1];
        let one = network.at(all).unwrap().response_time_s;
        let mixed = classes.network_at(network, &rates).at(all).unwrap().response_time_s;
        predicted += all * mixed;
        of_one_class += all * one;
        measured += all * window.tiers[0].response_time_s.unwrap();
    }
    let (error, without) = (predicted / measured - 1.0, of_one_class / measured - 1.0);
    println!(
        "R of another mix: {:+.1} % with classes, {:+.1} % without",
        100.0 * error,
        100.0 * without
    );
    assert!(error.abs() < 0.15, "{error}");
    assert!(without.abs() > error.abs(), "{error} with classes, {without} without");
    // Classes differ by their own service, since all wait alike.
    let said = classes.responses_s(network, &[80.0, 13.0]).unwrap();
    assert!((said[1] - said[0] - 0.045).abs() < 0.004, "{said:?}");
    // In the run PUTs also come when there are many of them, and wait longer for that.
    let apart_s = then.responses_s[1] - then.responses_s[0];
    assert!((0.040..0.070).contains(&apart_s), "{apart_s}");

    let ask = |text: &str| {
        let changes: Vec<Change> =
            text.split(',').map(|part| change(part, &system).unwrap()).collect();
        analysis.fitted().answer(&changes, text, 7)
    };
    let more = ask("class.PUT=1.3").unwrap();
    let rates_now = classes.rates_now_per_s();
    let expected = rates_now[0] * SERVICE_S[0] + 1.3 * rates_now[1] * SERVICE_S[1];
    let used = more.utilizations[0].as_ref().unwrap();
    assert!((used.center * 2.0 / expected - 1.0).abs() < 0.06, "{used:?} for {expected}");
    assert!((more.arrival_rate_per_s - rates_now[0] - 1.3 * rates_now[1]).abs() < 1e-9);
    let unknown = ask("class.POST=2").unwrap_err();
    assert!(unknown.reason.contains("there are GET, PUT"), "{unknown}");
}
