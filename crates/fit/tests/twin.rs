//! The twin against systems whose truth is known: closed forms where the structure has one, and
//! simulated systems with hidden parameters, which it must find and predict within its intervals as
//! often as it says; and a system that is not what the twin believes, which must show.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kendall_fit::twin::demand::Demand;
use kendall_fit::twin::{
    Bottleneck, CalibrationError, Commit, CurvePoint, Host, Length, MOST_FOREIGN_CORES, Machine,
    MeasuredRun, Pool, Process, ProcessUse, Refusal, Simulated, Spread, Step, System, Twin, Work,
    Workload, analytic, calibrate, knee, simulate,
};
use kendall_queueing::station::finite_population;

use crate::support::normal;

mod support;

#[track_caller]
fn near(have: f64, want: f64, relative: f64) {
    assert!((have - want).abs() <= relative * want.abs(), "{have} for {want}");
}

fn work(process: usize, share: f64) -> Step {
    Step::Work(Work { process, share })
}

fn process(name: &str, threads: u32, spread: Spread) -> Process {
    Process { name: name.to_owned(), host: 0, threads, spread }
}

/// One process on one host, exponential work.
fn machine(cores: u32, threads: u32, clients: u32, think_time_s: f64) -> System {
    System {
        hosts: vec![Host { name: "host".to_owned(), cores, speed: 1.0 }],
        processes: vec![process("server", threads, Spread::Exponential)],
        pools: Vec::new(),
        commits: Vec::new(),
        steps: vec![work(0, 1.0)],
        workload: Workload::Closed { clients, think_time_s },
    }
}

fn run(system: &System, demands: &[Demand], requests: f64, rate: f64, seed: u64) -> Simulated {
    let measured_s = requests / rate;
    let length = Length { warm_up_s: 0.2 * measured_s, measured_s, most: usize::MAX };
    let machine = Machine { slowness: 1.0, wake_s: 0.0, stay: 0.0 };
    simulate(system, demands, machine, length, seed)
}

fn only_work(work_s: f64) -> Demand {
    Demand { work_s, ..Demand::default() }
}

/// Without a price of switches, threads on cores are servers: M/M/m//N.
#[test]
fn threads_on_cores_are_the_servers_of_the_books() {
    for (cores, threads, clients) in [(1, 1, 6), (2, 8, 6), (4, 2, 9)] {
        let system = machine(cores, threads, clients, 0.05);
        let servers = cores.min(threads);
        let want =
            finite_population(20.0, 100.0, u64::from(servers), u64::from(clients), None).unwrap();
        let simulated = run(&system, &[only_work(0.01)], 60_000.0, want.throughput, 1);
        // Slices of 3 ms share the core where threads are more: means hold for exponential work.
        near(simulated.throughput_per_s, want.throughput, 0.02);
        near(simulated.response_mean_s, want.response_time.mean, 0.03);
        near(simulated.hosts[0] * f64::from(cores), want.utilization * f64::from(servers), 0.02);
    }
}

/// A run of a system that serves a hundred times as much as was measured is no hundred times as long.
#[test]
fn a_simulation_ends_after_so_many_requests() {
    let system = machine(2, 8, 6, 0.05);
    let want = finite_population(20.0, 100.0, 2, 6, None).unwrap();
    let length = Length { warm_up_s: 1e3, measured_s: 1e4, most: 20_000 };
    let as_fast = Machine { slowness: 1.0, wake_s: 0.0, stay: 0.0 };
    let simulated = simulate(&system, &[only_work(0.01)], as_fast, length, 1);
    assert_eq!(simulated.completions, 20_000);
    near(simulated.throughput_per_s, want.throughput, 0.02);
    near(simulated.response_mean_s, want.response_time.mean, 0.03);
}

/// A pool of two tokens around the work is a station of two servers, whatever the cores are.
#[test]
fn a_pool_bounds_what_is_inside() {
    let mut system = machine(8, 8, 7, 0.02);
    system.pools = vec![Pool { name: "workers".to_owned(), tokens: 2, batch: 1 }];
    system.steps = vec![Step::Hold { pool: 0, inside: vec![work(0, 1.0)] }];
    let want = finite_population(50.0, 100.0, 2, 7, None).unwrap();
    let simulated = run(&system, &[only_work(0.01)], 40_000.0, want.throughput, 2);
    near(simulated.throughput_per_s, want.throughput, 0.02);
    near(simulated.pools[0], want.utilization, 0.02);
    // The analysis of the same structure.
    let solved = analytic(&system, &|_| vec![0.01]).unwrap();
    near(solved.throughput_per_s, want.throughput, 0.01);
}

/// Batches: with b together a token serves b for w·b + w_b; commits serve all who wait.
#[test]
fn batches_and_commits_serve_those_who_wait_together() {
    let mut system = machine(8, 8, 200, 0.0);
    system.processes[0].spread = Spread::Constant;
    system.pools = vec![Pool { name: "connections".to_owned(), tokens: 1, batch: 20 }];
    system.steps = vec![Step::Hold { pool: 0, inside: vec![work(0, 1.0)] }];
    let demand = Demand { work_s: 1e-4, batch_s: 2e-3, switch_s: 0.0 };
    let simulated = run(&system, &[demand], 40_000.0, 5_000.0, 3);
    // Always 20 together: 20/(20·0.1 + 2 ms).
    near(simulated.batch, 20.0, 0.01);
    near(simulated.throughput_per_s, 5_000.0, 0.01);
    let mut flushed = machine(8, 8, 10, 0.0);
    flushed.commits = vec![Commit { name: "wal".to_owned(), time_s: 1e-3, speed: 1.0 }];
    flushed.steps = vec![Step::Commit(0)];
    let simulated = run(&flushed, &[only_work(1e-6)], 20_000.0, 10_000.0, 4);
    // The first request to return begins a commit alone, and the nine others wait for the next one: ten
    // requests for two commits.
    near(simulated.throughput_per_s, 5_000.0, 0.02);
}

/// A thread drains its queue before it sleeps: wake-ups are shared when there is much to do.
#[test]
fn cpu_time_of_a_request_falls_with_load() {
    let demand = Demand { work_s: 20e-6, batch_s: 0.0, switch_s: 20e-6 };
    let cost = |clients| {
        let simulated = run(&machine(1, 1, clients, 1e-3), &[demand], 20_000.0, 10_000.0, 5);
        (simulated.cpu_s[0], simulated.switches[0])
    };
    let (light, heavy) = (cost(1), cost(64));
    near(light.0, 40e-6, 0.03);
    near(light.1, 1.0, 0.03);
    assert!(heavy.0 < 22e-6 && heavy.1 < 0.1, "{heavy:?}");
}

/// A generator, a link, a proxy with workers, and a backend, all on two cores.
fn proxy(clients: u32, workers: u32, delay_s: f64) -> System {
    let link = || [work(1, 0.25), Step::Delay(delay_s), work(1, 0.25)];
    let mut steps = vec![work(0, 0.5)];
    steps.extend(link());
    steps.push(work(2, 0.4));
    steps.push(Step::Hold { pool: 0, inside: vec![work(2, 0.3), work(3, 1.0), work(2, 0.3)] });
    steps.extend(link());
    steps.push(work(0, 0.5));
    let lognormal = Spread::Lognormal { scv: 0.25 };
    System {
        hosts: vec![Host { name: "host".to_owned(), cores: 2, speed: 1.0 }],
        processes: vec![
            process("load", 1, lognormal),
            process("link", 1, lognormal),
            process("proxy", 4 + workers, lognormal),
            process("backend", 4, lognormal),
        ],
        pools: vec![Pool { name: "workers".to_owned(), tokens: workers, batch: 1 }],
        commits: Vec::new(),
        steps,
        workload: Workload::Closed { clients, think_time_s: 0.0 },
    }
}

fn levels(clients: u32, workers: u32) -> Vec<(String, f64)> {
    vec![
        ("workload.clients".to_owned(), f64::from(clients)),
        ("system.workers".to_owned(), f64::from(workers)),
    ]
}

const TRUTH: [Demand; 4] = [
    Demand { work_s: 12e-6, batch_s: 0.0, switch_s: 15e-6 },
    Demand { work_s: 10e-6, batch_s: 0.0, switch_s: 18e-6 },
    Demand { work_s: 25e-6, batch_s: 0.0, switch_s: 17e-6 },
    Demand { work_s: 14e-6, batch_s: 0.0, switch_s: 16e-6 },
];
const WAKE_S: f64 = 18e-6;

/// What a run of the true system shows: its speed drifts by 8 %, which the probe sees but for 1 %.
fn measured(
    system: &System,
    of: &[(String, f64)],
    noise: &mut impl FnMut() -> f64,
    seed: u64,
) -> MeasuredRun {
    measured_waking(system, of, noise, (WAKE_S, seed))
}

/// The same where an idle core takes `wake_s` to wake.
fn measured_waking(
    system: &System,
    of: &[(String, f64)],
    noise: &mut impl FnMut() -> f64,
    (wake_s, seed): (f64, u64),
) -> MeasuredRun {
    let slowness = (0.08 * noise()).exp();
    let length = Length { warm_up_s: 0.1, measured_s: 0.6, most: usize::MAX };
    let machine = Machine { slowness, wake_s, stay: 0.0 };
    let seen = simulate(system, &TRUTH, machine, length, seed);
    MeasuredRun {
        system: system.clone(),
        levels: of.to_vec(),
        throughput_per_s: seen.throughput_per_s,
        response_mean_s: seen.response_mean_s,
        percentiles_s: Some([0.5, 0.9, 0.99].map(|p| seen.response_quantile_s(p).unwrap())),
        processes: seen
            .cpu_s
            .iter()
            .zip(&seen.switches)
            .map(|(cpu_s, switches)| ProcessUse { cpu_s: *cpu_s, switches: *switches })
            .collect(),
        batch: seen.batch,
        probe_s: Some(50e-6 * slowness * (0.01 * noise()).exp()),
        foreign_cores: 0.0,
        stolen_cores: 0.0,
        weight: 1.0,
        measured_s: 0.6,
    }
}

fn calibrated(seed: u64) -> Twin {
    let mut noise = normal(seed);
    let mut runs = Vec::new();
    for (clients, workers) in [(2, 4), (8, 4), (24, 4), (24, 16), (4, 16)] {
        for repeat in 0..2 {
            let system = proxy(clients, workers, 0.5e-3);
            let seed = 100 * seed + u64::from(clients) + 7 * repeat;
            runs.push(measured(&system, &levels(clients, workers), &mut noise, seed));
        }
    }
    calibrate(&runs, MOST_FOREIGN_CORES, seed).unwrap()
}

/// Six calibrations of the same true system by other runs of it; four questions each that were
/// never measured: three times the clients, four times the workers, twice the link's delay.
#[test]
fn predictions_hold_within_their_intervals_at_the_nominal_rate() {
    let questions = [(64, 4, 0.5e-3), (64, 32, 0.5e-3), (16, 8, 1e-3), (96, 64, 0.5e-3)];
    let (mut held, mut asked) = ([0_u32; 3], 0_u32);
    let (mut errors, mut known_errors, mut known_held) = (Vec::new(), Vec::new(), 0);
    let (mut widths, mut known_widths) = (Vec::new(), Vec::new());
    for seed in 1..=6 {
        let twin = calibrated(seed);
        assert!(!twin.misfit.contradicted, "seed {seed}: {:?}", twin.misfit);
        assert!(twin.drift_known && twin.drift < 0.1, "{}", twin.drift);
        let mut noise = normal(900 + seed);
        for (clients, workers, delay_s) in questions {
            let system = proxy(clients, workers, delay_s);
            let of = levels(clients, workers);
            let answer = twin.predict(&system, &of, None).unwrap();
            let truth = measured(&system, &of, &mut noise, 5_000 + seed);
            asked += 1;
            let p99 = truth.percentiles_s.unwrap()[2];
            held[0] += u32::from(answer.throughput_per_s.holds(truth.throughput_per_s));
            held[1] += u32::from(answer.response_mean_s.holds(truth.response_mean_s));
            held[2] += u32::from(answer.response_p99_s.holds(p99));
            errors.push((answer.throughput_per_s.center / truth.throughput_per_s).ln().abs());
            // Wide intervals would hold everything: at most three times the drift each way, and beyond the runs what an
            // unknown power of the load of 0.05 makes.
            // With the speed of the run known, as by a probe beside it.
            let slowness = twin.slowness(truth.probe_s.unwrap());
            let known = twin.predict(&system, &of, slowness).unwrap();
            known_errors.push((known.throughput_per_s.center / truth.throughput_per_s).ln().abs());
            known_held += u32::from(known.throughput_per_s.holds(truth.throughput_per_s));
            widths.push(answer.throughput_per_s.high / answer.throughput_per_s.center - 1.0);
            known_widths.push(known.throughput_per_s.high / known.throughput_per_s.center - 1.0);
            let width = answer.throughput_per_s.high / answer.throughput_per_s.center;
            let reach = [f64::from(clients) / 24.0, f64::from(workers) / 16.0]
                .map(|times| times.ln().max(0.0));
            let most = 1.5_f64.ln().hypot(1.96 * 0.05 * reach[0].hypot(reach[1])).exp();
            assert!(width < most, "{clients}/{workers}: an interval of ×{width}");
        }
    }
    errors.sort_by(f64::total_cmp);
    known_errors.sort_by(f64::total_cmp);
    println!("held {held:?} of {asked}, errors of X {errors:.3?}");
    println!("with the speed known: held {known_held}, errors of X {known_errors:.3?}");
    for list in [&mut widths, &mut known_widths] {
        list.sort_by(f64::total_cmp);
    }
    println!("half-widths {widths:.3?}, with the speed known {known_widths:.3?}");
    // An interval that holds because it is wide is useless. With the speed known, the 5 % that
    // the form of the demands may be off is most of it, and in a simulated system it is not off.
    assert!(widths[12] < 3.0 * errors[21] && known_widths[12] < 4.0 * known_errors[21]);
    // 95 % of 24: 20 or fewer have a probability of 2.5 %.
    assert!(held.iter().all(|held| *held >= 20), "{held:?} of {asked}");
    assert!(errors[errors.len() / 2] < 0.08, "{errors:?}");
    assert!(known_held >= 20 && known_errors[12] < 0.03, "{known_held}: {known_errors:?}");
}

#[test]
fn parameters_are_recovered() {
    let twin = calibrated(3);
    for (have, want) in twin.demands().iter().zip(&TRUTH) {
        // At one switch a request: work and switch together are what a run tells.
        near(have.cpu_s(1.0, 1.0, 1.0), want.cpu_s(1.0, 1.0, 1.0), 0.12);
    }
    near(twin.wake_s(), WAKE_S, 0.5);
}

/// A queue over a database: clients think, four workers hold a transaction each, which waits for a commit.
fn committing(clients: u32, commit_s: f64) -> System {
    let mut system = proxy(clients, 4, 0.0);
    system.commits = vec![Commit { name: "log".to_owned(), time_s: commit_s, speed: 1.0 }];
    for step in &mut system.steps {
        if let Step::Hold { inside, .. } = step {
            inside.push(Step::Commit(0));
        }
    }
    system.workload = Workload::Closed { clients, think_time_s: 20e-3 };
    system
}

fn twin_of_commits(known_s: f64, wake_s: f64) -> Twin {
    let mut noise = normal(17);
    let mut runs = Vec::new();
    for clients in [5, 20, 60, 200] {
        for repeat in 0..2_u64 {
            let of = vec![("workload.clients".to_owned(), f64::from(clients))];
            let truth = committing(clients, 800e-6);
            let seed = u64::from(clients) + 1_000 * repeat;
            let run = measured_waking(&truth, &of, &mut noise, (wake_s, seed));
            runs.push(MeasuredRun { system: committing(clients, known_s), ..run });
        }
    }
    calibrate(&runs, MOST_FOREIGN_CORES, 1).unwrap()
}

/// Five clients that think are not five requests in the system: their runs are light although there are only
/// four workers, and tell the time of a core to wake; saturated ones tell that of a commit.
#[test]
fn the_time_of_a_commit_is_found_where_clients_think() {
    let twin = twin_of_commits(0.0, WAKE_S);
    near(twin.commit_s(), 800e-6, 0.2);
    let answer = twin.predict(&committing(100, 0.0), &[], None).unwrap();
    let truth = measured(&committing(100, 800e-6), &[], &mut normal(3), 8);
    assert!(answer.throughput_per_s.holds(truth.throughput_per_s), "{answer:?}");
    assert!(answer.response_mean_s.holds(truth.response_mean_s), "{answer:?}");
}

/// A flush that was measured is not fitted: light runs tell how long cores take to wake instead.
#[test]
fn a_measured_flush_leaves_the_response_time_of_light_runs_to_the_cores() {
    let twin = twin_of_commits(800e-6, 90e-6);
    near(twin.wake_s(), 90e-6, 0.4);
    let answer = twin.predict(&committing(30, 800e-6), &[], None).unwrap();
    let truth = measured_waking(&committing(30, 800e-6), &[], &mut normal(4), (90e-6, 9));
    assert!(answer.response_mean_s.holds(truth.response_mean_s), "{answer:?}");
}

/// Where the p99 of the calibration's own runs is twice too high here and right there, a prediction may be so too.
#[test]
fn the_interval_of_the_p99_is_as_wide_as_the_model_is_off_at_its_own_runs() {
    let width = |factor: f64| {
        let mut noise = normal(6);
        let mut runs = Vec::new();
        for (place, (clients, workers)) in
            [(2, 4), (8, 4), (24, 4), (24, 16), (4, 16)].iter().enumerate()
        {
            let (system, of) = (proxy(*clients, *workers, 0.5e-3), levels(*clients, *workers));
            for repeat in 0..2 {
                let mut run = measured(&system, &of, &mut noise, 60 + u64::from(*clients) + repeat);
                if place % 2 == 1 {
                    run.percentiles_s =
                        run.percentiles_s.map(|[p50, p90, p99]| [p50, p90, factor * p99]);
                }
                runs.push(run);
            }
        }
        let p99 = calibrate(&runs, MOST_FOREIGN_CORES, 1)
            .unwrap()
            .predict(&proxy(16, 8, 0.5e-3), &[], None)
            .unwrap();
        (p99.response_p99_s.high / p99.response_p99_s.center).ln()
    };
    let (right, off) = (width(1.0), width(2.0));
    // Both kinds of runs lie inside: half a factor of two on either side of the middle, at least.
    assert!(off > 2.0_f64.ln() && off > 1.5 * right, "{right} and {off}");
}

/// The true system has a lock that one request holds at a time; the twin does not know of it.
#[test]
fn a_hidden_bottleneck_shows_as_misfit() {
    let hidden = |clients, workers| {
        let mut system = proxy(clients, workers, 0.5e-3);
        system.pools.push(Pool { name: "lock".to_owned(), tokens: 1, batch: 1 });
        let lock = Step::Hold { pool: 1, inside: vec![Step::Delay(150e-6)] };
        system.steps.insert(4, lock);
        system
    };
    let mut noise = normal(5);
    let mut runs = Vec::new();
    for (clients, workers) in [(2, 4), (8, 4), (24, 16), (48, 16)] {
        for repeat in 0..2_u64 {
            let of = levels(clients, workers);
            let truth = measured(&hidden(clients, workers), &of, &mut noise, 40 + repeat);
            runs.push(MeasuredRun { system: proxy(clients, workers, 0.5e-3), ..truth });
        }
    }
    let twin = calibrate(&runs, MOST_FOREIGN_CORES, 1).unwrap();
    assert!(twin.misfit.contradicted, "{:?}", twin.misfit);
    let answer = twin.predict(&proxy(64, 16, 0.5e-3), &levels(64, 16), None).unwrap();
    assert!(answer.caveats[0].contains("contradicted"), "{:?}", answer.caveats);
    // And not as confidence: the interval is as wide as the structure is wrong.
    assert!(answer.throughput_per_s.high / answer.throughput_per_s.low > 1.5);
}

#[test]
fn what_the_calibration_says_nothing_about_is_refused() {
    let twin = calibrated(2);
    let mut batched = proxy(24, 16, 0.5e-3);
    batched.pools[0].batch = 16;
    let refused = twin.predict(&batched, &levels(24, 16), None).unwrap_err();
    assert!(matches!(refused, Refusal::Batches { asked: 16 }));
    let refused = twin.predict(&proxy(400, 16, 0.5e-3), &levels(400, 16), None).unwrap_err();
    assert!(refused.to_string().contains("run it once at 50"), "{refused}");
    let mut other = proxy(24, 16, 0.5e-3);
    "cache".clone_into(&mut other.processes[3].name);
    let refused = twin.predict(&other, &[], None).unwrap_err();
    assert!(matches!(refused, Refusal::UnknownProcess { .. }));
    let mut open = proxy(24, 16, 0.5e-3);
    open.workload = Workload::Open { rate_per_s: 60_000.0 };
    let refused = twin.predict(&open, &[], None).unwrap_err();
    assert!(matches!(refused, Refusal::Overloaded { .. }), "{refused}");
    // Disturbed runs do not count.
    let mut noise = normal(1);
    let mut disturbed = measured(&proxy(8, 4, 0.5e-3), &levels(8, 4), &mut noise, 1);
    disturbed.foreign_cores = 0.4;
    let refused = calibrate(&[disturbed.clone(), disturbed], MOST_FOREIGN_CORES, 1).unwrap_err();
    assert!(matches!(refused, CalibrationError::TooFew { usable: 0, .. }));
}

/// A server of 5 ms on each of two cores, calibrated with `clients` at light load.
fn two_servers(clients: [u32; 2]) -> Twin {
    let run = |(clients, repeat): (u32, u64)| {
        let system = machine(2, 2, clients, 0.0);
        let seen =
            run(&system, &[only_work(5e-3)], 20_000.0, 300.0, u64::from(clients) + 50 * repeat);
        MeasuredRun {
            levels: vec![("workload.clients".to_owned(), f64::from(clients))],
            throughput_per_s: seen.throughput_per_s,
            response_mean_s: seen.response_mean_s,
            percentiles_s: Some([0.5, 0.9, 0.99].map(|p| seen.response_quantile_s(p).unwrap())),
            processes: vec![ProcessUse { cpu_s: seen.cpu_s[0], switches: seen.switches[0] }],
            batch: 1.0,
            probe_s: Some(50e-6),
            foreign_cores: 0.0,
            stolen_cores: 0.0,
            weight: 1.0,
            measured_s: 10.0,
            system,
        }
    };
    let all = clients.iter().flat_map(|clients| [(*clients, 0), (*clients, 1)]);
    calibrate(&all.map(run).collect::<Vec<_>>(), MOST_FOREIGN_CORES, 1).unwrap()
}

/// What a request costs does not fall with load unless runs show it: 5 ms on two cores serve 400/s.
#[test]
fn work_that_is_measured_constant_stays_so_beyond_the_runs() {
    for clients in [[1, 2], [1, 4]] {
        let answer = two_servers(clients).predict(&machine(2, 2, 16, 0.0), &[], None).unwrap();
        let x = answer.throughput_per_s;
        // The simulated repetitions of the calibration scatter by about 1 %.
        assert!((x.center / 400.0 - 1.0).abs() < 0.03 && x.holds(400.0), "{clients:?}: {x:?}");
    }
}

/// 400/s can be served, whatever rate is asked; below it, what is offered is served; near it, response times have no
/// upper end.
#[test]
fn the_limit_of_an_open_load_is_one_number_with_an_interval() {
    let twin = two_servers([1, 4]);
    let open = |rate_per_s| {
        let workload = Workload::Open { rate_per_s };
        twin.predict(&System { workload, ..machine(2, 2, 1, 0.0) }, &[], None)
    };
    let limits = [600.0, 5_000.0, 100_000.0].map(|rate| match open(rate).unwrap_err() {
        Refusal::Overloaded { asked_per_s, most_per_s } => {
            near(asked_per_s, rate, 1e-9);
            most_per_s
        }
        other => panic!("{other}"),
    });
    assert!(limits[0].holds(400.0) && limits[0].low > 250.0, "{limits:?}");
    assert!(limits.iter().all(|limit| *limit == limits[0]), "{limits:?}");
    let light = open(200.0).unwrap();
    // Of 2,000 arrivals in 10 s.
    near(light.throughput_per_s.center, 200.0, 1e-9);
    near(light.throughput_per_s.high / 200.0 - 1.0, 1.96 / 2_000.0_f64.sqrt(), 1e-3);
    assert!(light.response_mean_s.high.is_finite());
    // The runs of four clients carried it, to within what runs differ by.
    assert!(limits[0].low > 375.0, "{limits:?}");
    let near_it = open(398.0).unwrap();
    assert!(near_it.response_mean_s.high.is_infinite(), "{near_it:?}");
    assert!(near_it.caveats.iter().any(|caveat| caveat.contains("no upper end")), "{near_it:?}");
}

/// A light open load simulated for few requests: chance alone must not pass for an overload. One of
/// these seeds' calibrations refused it where nine tenths of 500 arrivals had to be served.
#[test]
fn a_light_open_load_is_not_refused_by_chance() {
    for seed in 1..=3 {
        let twin = calibrated(seed);
        let mut open = proxy(4, 4, 0.5e-3);
        for rate_per_s in [20.0, 30.0, 40.0, 50.0] {
            open.workload = Workload::Open { rate_per_s };
            let answer = twin.predict(&open, &[], None);
            assert!(answer.is_ok(), "seed {seed}, {rate_per_s}/s: {answer:?}");
        }
    }
}

/// Twice the cores carry more, and a saturated host is called the bottleneck.
#[test]
fn hardware_that_was_never_there_is_predicted() {
    let twin = calibrated(4);
    let two = twin.predict(&proxy(96, 32, 0.5e-3), &levels(96, 32), None).unwrap();
    let mut larger = proxy(96, 32, 0.5e-3);
    larger.hosts[0].cores = 4;
    let four = twin.predict(&larger, &levels(96, 32), None).unwrap();
    assert!(four.throughput_per_s.center > 1.2 * two.throughput_per_s.center);
    assert_eq!(two.bottleneck, Bottleneck::Host { name: "host".to_owned() });
    assert!(two.distances.iter().any(|distance| distance.extrapolates()));
    // The analysis agrees where there are no batches, and its curve has a knee.
    let analyzed = two.analytic_throughput_per_s.unwrap();
    near(analyzed, two.throughput_per_s.center, 0.15);
    let curve = [1, 2, 4, 8, 16, 32, 64, 128].map(|clients| {
        let solved = twin.solve(&proxy(clients, 32, 0.5e-3)).unwrap();
        CurvePoint { value: f64::from(clients), solved }
    });
    let knee = knee(&curve).unwrap();
    assert!((10.0..80.0).contains(&knee), "{knee}");
}
