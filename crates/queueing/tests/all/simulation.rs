//! The simulator against what is known exactly. Every comparison is with the simulator's own
//! interval at 99.9 %: seeds are fixed, so what holds once holds always.

use kendall_queueing::Distribution;
use kendall_queueing::model::{
    Balking, Batch, Class, Discipline, Fork, Leg, Model, Place, Pool, Station, Workload,
};
use kendall_queueing::simulation::{
    Doubt, Measured, Settings, Simulated, SimulationError, simulate,
};
use kendall_queueing::solver::{Solver, solve};
use kendall_queueing::station::{finite_population, mmm_impatient};

fn settings(model: &Model, width: f64) -> Settings {
    Settings {
        confidence: 0.999,
        relative_half_width: width,
        most_customers: 3_000_000,
        ..Settings::of(model)
    }
}

fn run(model: &Model) -> Simulated {
    simulate(model, &settings(model, 0.02), &mut |_| {}).expect("it can be simulated")
}

#[track_caller]
fn covers(measured: Option<Measured>, truth: f64) {
    let measured = measured.expect("observed");
    let slack = 1e-9 * truth.abs();
    assert!(
        (measured.center - truth).abs() <= measured.half_width.expect("replicated") + slack,
        "{measured:?} for {truth}"
    );
}

fn one(station: Station, rate: f64) -> Model {
    Model::new("one", vec![Class::open("c", rate)], vec![station]).expect("a model")
}

#[test]
fn mm1_has_its_means_variances_percentiles_and_probabilities() {
    let s = run(&one(Station::queue("q", 1).with_service_time(0, 0.8), 1.0));
    let station = &s.stations[0];
    covers(station.utilization, 0.8);
    covers(station.number_mean, 4.0);
    covers(station.number_variance, 0.8 / 0.04);
    covers(station.all.response_time_mean_s, 4.0);
    covers(station.all.response_time_variance_s2, 16.0);
    covers(station.all.waiting_time_mean_s, 3.2);
    covers(s.classes[0].throughput_per_s, 1.0);
    covers(s.classes[0].response_time_mean_s, 4.0);
    for (p, measured) in &s.classes[0].response_time_quantiles_s {
        // Half a cell of the histogram beside the interval.
        let truth = -4.0 * (1.0 - p).ln();
        let slack = measured.half_width.unwrap() + 0.004 * truth;
        assert!((measured.center - truth).abs() <= slack, "{p} {measured:?} {truth}");
    }
    for (n, p) in station.number_probabilities.iter().take(5).enumerate() {
        let truth = 0.2 * 0.8_f64.powi(i32::try_from(n).unwrap());
        assert!((p - truth).abs() < 0.01, "{n} {p} {truth}");
    }
}

#[test]
fn one_seed_is_one_answer_whatever_the_threads() {
    let model = one(Station::queue("q", 1).with_service_time(0, 0.5), 1.0);
    let with = |threads, seed| {
        let settings = Settings { threads, seed, ..settings(&model, 0.05) };
        simulate(&model, &settings, &mut |_| {}).unwrap()
    };
    let first = with(1, 1);
    assert_eq!(first, with(2, 1));
    assert_eq!(first, with(7, 1));
    assert_ne!(first.classes, with(1, 2).classes);
}

/// Pollaczek–Khinchine, [Jain91 §31.5].
#[test]
fn mg1_waits_as_pollaczek_and_khinchine_say() {
    for scv in [0.0, 0.25, 1.0, 4.0] {
        let service = Distribution::general(0.7, scv, None).unwrap();
        let s = run(&one(Station::queue("q", 1).with_service(0, service), 1.0));
        covers(s.stations[0].all.waiting_time_mean_s, 0.7 * 0.7 * (1.0 + scv) / 2.0 / 0.3);
    }
}

#[test]
fn processor_sharing_does_not_care_about_the_distribution_of_service() {
    for scv in [0.0, 1.0, 5.0] {
        let service = Distribution::general(0.7, scv, None).unwrap();
        let mut station = Station::queue("q", 1).with_service(0, service);
        station.discipline = Discipline::Ps;
        let s = run(&one(station.clone(), 1.0));
        covers(s.classes[0].response_time_mean_s, 0.7 / 0.3);
        covers(s.stations[0].utilization, 0.7);
        station.discipline = Discipline::LcfsPr;
        let s = run(&one(station, 1.0));
        covers(s.classes[0].response_time_mean_s, 0.7 / 0.3);
    }
}

/// The order of service does not change the mean, as long as it does not depend on service times.
#[test]
fn orders_that_ignore_service_times_share_one_mean() {
    for discipline in [Discipline::Lcfs, Discipline::Siro, Discipline::Fcfs] {
        let service = Distribution::erlang(2, 0.7).unwrap();
        let mut station = Station::queue("q", 1).with_service(0, service);
        station.discipline = discipline;
        let s = run(&one(station, 1.0));
        covers(s.stations[0].all.waiting_time_mean_s, 0.7 * 0.7 * 1.5 / 2.0 / 0.3);
    }
}

fn erlang_b(servers: u32, load: f64) -> f64 {
    (1..=servers).fold(1.0, |b, m| load * b / (f64::from(m) + load * b))
}

#[test]
fn many_servers_wait_and_lose_as_erlang_says() {
    let (m, load) = (8, 6.0);
    let b = erlang_b(m, load);
    let c = b / (1.0 - load / f64::from(m) * (1.0 - b));
    let s = run(&one(Station::queue("q", u64::from(m)).with_service_time(0, 1.0), load));
    covers(s.stations[0].all.waiting_time_mean_s, c / (f64::from(m) - load));
    covers(s.stations[0].utilization, load / f64::from(m));
    // Losses do not depend on the distribution of service.
    let service = Distribution::lognormal(1.0, 2.0).unwrap();
    let mut station = Station::queue("q", u64::from(m)).with_service(0, service);
    station.capacity = Some(u64::from(m));
    let s = run(&one(station, load));
    covers(s.stations[0].all.loss_probability, b);
    covers(s.classes[0].abandoned_share, b);
    covers(s.classes[0].throughput_per_s, load * (1.0 - b));
}

/// Erlang A by its birth and death process: death rate min(n, m)·µ + max(n − m, 0)·θ.
#[test]
fn impatient_customers_leave_as_the_birth_and_death_process_says() {
    let (m, rate, theta) = (3_u32, 4.0, 0.5);
    let mut weights = vec![1.0];
    for n in 1..200_u32 {
        let death = f64::from(n.min(m)) + f64::from(n.saturating_sub(m)) * theta;
        weights.push(weights.last().unwrap() * rate / death);
    }
    let sum: f64 = weights.iter().sum();
    let waiting: f64 =
        (0_u32..).zip(&weights).map(|(n, w)| f64::from(n.saturating_sub(m)) * w / sum).sum();
    let mut station = Station::queue("q", u64::from(m)).with_service_time(0, 1.0);
    station.patience = Some(Distribution::exponential(1.0 / theta).unwrap());
    let s = run(&one(station, rate));
    covers(s.stations[0].all.reneging_probability, theta * waiting / rate);
    covers(s.stations[0].all.number_waiting_mean, waiting);
}

/// With joining probability 1/(n + 1), M/M/1 becomes Poisson with mean λ/µ.
#[test]
fn discouraged_arrivals_leave_a_poisson_number() {
    let mut station = Station::queue("q", 1).with_service_time(0, 1.0);
    station.balking = Balking::Reciprocal;
    let s = run(&one(station, 2.0));
    covers(s.stations[0].number_mean, 2.0);
    covers(s.stations[0].utilization, 1.0 - (-2.0_f64).exp());
    covers(s.stations[0].all.balking_probability, 1.0 - (1.0 - (-2.0_f64).exp()) / 2.0);
}

/// [Kleinrock76 §3]: Cobham's formula; with pre-emption the high class sees itself alone.
#[test]
fn priorities_wait_as_cobham_says() {
    let model = |discipline| {
        let (mut high, mut low) = (Class::open("high", 0.4), Class::open("low", 0.4));
        (high.priority, low.priority) = (1, 2);
        let mut s = Station::queue("q", 1).with_service_time(0, 1.0).with_service_time(1, 1.0);
        s.discipline = discipline;
        Model::new("priorities", vec![high, low], vec![s]).unwrap()
    };
    let s = run(&model(Discipline::PriorityNonPreemptive));
    covers(s.stations[0].classes[0].waiting_time_mean_s, 0.8 / 0.6);
    covers(s.stations[0].classes[1].waiting_time_mean_s, 0.8 / (0.6 * 0.2));
    let s = run(&model(Discipline::PriorityPreemptive));
    covers(s.stations[0].classes[0].response_time_mean_s, 1.0 / 0.6);
    // S₂/(1 − ρ₁) + R/((1 − ρ₁)(1 − ρ₁ − ρ₂)) with R = Σ λE[S²]/2 = 0.8.
    covers(s.stations[0].classes[1].response_time_mean_s, 1.0 / 0.6 + 0.8 / (0.6 * 0.2));
    covers(s.stations[0].classes[1].utilization, 0.4);
}

/// Mean value analysis, [LZGS84 §6.4.2].
fn mva(demands: &[f64], z: f64, n: u32) -> (f64, Vec<f64>) {
    let mut q = vec![0.0; demands.len()];
    let mut x = 0.0;
    for k in 1..=n {
        let r: Vec<f64> = demands.iter().zip(&q).map(|(d, q)| d * (1.0 + q)).collect();
        x = f64::from(k) / (z + r.iter().sum::<f64>());
        q = r.iter().map(|r| x * r).collect();
    }
    (x, q)
}

#[test]
fn a_closed_network_with_and_without_thinking_is_mean_value_analysis() {
    for z in [15.0, 0.0] {
        let demands = [0.605, 2.1, 1.35];
        let stations = demands
            .iter()
            .zip(["cpu", "a", "b"])
            .map(|(d, name)| Station::queue(name, 1).with_service_time(0, *d))
            .collect();
        let model = Model::new("closed", vec![Class::closed("c", 6, z)], stations).unwrap();
        let s = run(&model);
        let (x, q) = mva(&demands, z, 6);
        covers(s.classes[0].throughput_per_s, x);
        covers(s.classes[0].response_time_mean_s, 6.0 / x - z);
        for (station, q) in s.stations.iter().zip(q) {
            covers(station.number_mean, q);
        }
    }
}

/// [Jain91 ch. 34]: S .125 .3 .2, V 16 10 5, N 20, Z 4.
#[test]
fn visits_above_one_give_the_forced_flow() {
    let stations = vec![
        Station::queue("cpu", 1).with_service_time(0, 0.125).with_visits(0, 16.0),
        Station::queue("a", 1).with_service_time(0, 0.3).with_visits(0, 10.0),
        Station::queue("b", 1).with_service_time(0, 0.2).with_visits(0, 5.0),
    ];
    let model = Model::new("jain", vec![Class::closed("users", 20, 4.0)], stations).unwrap();
    let s = run(&model);
    let x = 0.333_246_512_220_576_3;
    covers(s.classes[0].throughput_per_s, x);
    covers(s.stations[1].all.response_time_mean_s, 4.854_259_693_196_409);
    covers(s.stations[0].all.throughput_per_s, 16.0 * x);
}

#[test]
fn load_dependence_and_several_servers_agree() {
    let plain = Station::queue("q", 3).with_service_time(0, 1.0);
    let mut dependent = Station::queue("q", 1).with_service_time(0, 1.0);
    dependent.rate_multipliers = vec![1.0, 2.0, 3.0];
    let mut sharing = plain.clone();
    sharing.discipline = Discipline::Ps;
    let b = erlang_b(3, 2.4);
    let c = b / (1.0 - 0.8 * (1.0 - b));
    for station in [plain, dependent, sharing] {
        let s = run(&one(station, 2.4));
        covers(s.stations[0].number_mean, 2.4 + c * 0.8 / 0.2);
    }
}

/// P(n > 0), which formulas gave of one closed class only: of others the share of the highest rate that is used. With a
/// load of 0.5 and speeds 1, 1.6, 1.6, … p(n) = 0.5·0.3125^(n−1)·p(0).
#[test]
fn the_utilization_of_a_station_with_rates_of_its_own_is_when_it_works() {
    let station = Station {
        rate_multipliers: vec![1.0, 1.6],
        discipline: Discipline::Ps,
        ..Station::queue("q", 1).with_service_time(0, 0.5).with_service_time(1, 0.5)
    };
    let of = |classes: Vec<Class>| Model::new("rates", classes, vec![station.clone()]).unwrap();
    let used = |model: &Model, solver| -> f64 {
        let solution = solve(model, solver).unwrap();
        solution.stations[0].utilization.iter().sum()
    };
    let one = of(vec![Class::open("a", 1.0)]);
    let two = of(vec![Class::open("a", 0.6), Class::open("b", 0.4)]);
    for model in [&one, &two] {
        assert!((used(model, Solver::Auto) - 8.0 / 19.0).abs() < 1e-12);
    }
    let closed = of(vec![Class::closed("a", 2, 1.0), Class::closed("b", 1, 2.0)]);
    // Approximately too.
    let exact = used(&closed, Solver::Auto);
    assert!((used(&closed, Solver::Schweitzer) - exact).abs() < 0.2 * exact);
    let mixed = of(vec![Class::open("a", 0.4), Class::closed("b", 2, 1.0)]);
    let held = of(vec![Class::closed("a", 5, 1.0)]).with_pools(vec![pool("p", 2, vec![0])]);
    for model in [one, two, closed, mixed, held.unwrap()] {
        covers(run(&model).stations[0].utilization, used(&model, Solver::Auto));
    }
}

/// [Nelson and Tantawi 1988]: two branches exactly, R = (12 − ρ)/8 · S/(1 − ρ).
#[test]
fn a_fork_of_two_is_as_nelson_and_tantawi_say() {
    let mut station = Station::queue("q", 1).with_service_time(0, 1.0);
    station.fork = Some(Fork { branches: 2, needed: 2 });
    let s = run(&one(station.clone(), 0.5));
    covers(s.classes[0].response_time_mean_s, (12.0 - 0.5) / 8.0 * 2.0);
    covers(s.stations[0].utilization, 0.5);
    // The first of two: never slower than one alone.
    station.fork = Some(Fork { branches: 2, needed: 1 });
    let s = run(&one(station, 0.5));
    assert!(s.classes[0].response_time_mean_s.unwrap().center < 2.0);
    covers(s.stations[0].utilization, 0.5);
}

fn pool(name: &str, tokens: u64, stations: Vec<usize>) -> Pool {
    Pool { name: name.to_owned(), tokens, stations, classes: vec![0], queue_capacity: None }
}

/// Workers that are held during a pure delay are M/M/m.
#[test]
fn a_pool_around_a_delay_is_a_station_with_as_many_servers() {
    let delay = Station::delay("backend").with_service_time(0, 1.0);
    let model = one(delay, 2.4).with_pools(vec![pool("workers", 3, vec![0])]).unwrap();
    let s = run(&model);
    let b = erlang_b(3, 2.4);
    let c = b / (1.0 - 0.8 * (1.0 - b));
    covers(s.pools[0].all.waiting_time_mean_s, c / 0.6);
    covers(s.pools[0].utilization, 0.8);
    covers(s.classes[0].response_time_mean_s, 1.0 + c / 0.6);
    covers(s.stations[0].number_mean, 2.4);
}

/// A closed class through two nested pools: with as many tokens as customers nothing changes.
#[test]
fn pools_that_nobody_waits_for_change_nothing() {
    for z in [3.0, 0.0] {
        let stations = vec![
            Station::queue("cpu", 1).with_service_time(0, 0.5),
            Station::queue("disk", 1).with_service_time(0, 1.0),
        ];
        let pools = vec![pool("connections", 4, vec![1]), pool("workers", 4, vec![0, 1])];
        let model = Model::new("pools", vec![Class::closed("c", 4, z)], stations)
            .unwrap()
            .with_pools(pools)
            .unwrap();
        let s = run(&model);
        let (x, q) = mva(&[0.5, 1.0], z, 4);
        covers(s.classes[0].throughput_per_s, x);
        covers(s.stations[1].number_mean, q[1]);
        covers(s.pools[1].number_mean, q[0] + q[1]);
    }
}

#[test]
fn class_switching_keeps_the_flow() {
    let stations = vec![
        Station::queue("a", 1).with_service_time(0, 0.2).with_service_time(1, 0.2),
        Station::queue("b", 2).with_service_time(1, 0.5),
    ];
    let leg =
        |class, from, to_class, to, probability| Leg { class, from, to_class, to, probability };
    let (a, b, out) = (Place::Station(0), Place::Station(1), Place::Outside);
    let classes = vec![Class::open("first", 1.0), Class::open("second", 0.0)];
    let mut model = Model::new("switch", classes, stations).unwrap();
    model.routes = vec![
        leg(0, out, 0, a, 1.0),
        leg(0, a, 0, out, 0.5),
        leg(0, a, 1, b, 0.5),
        leg(1, b, 1, a, 1.0),
        leg(1, a, 1, out, 1.0),
    ];
    let s = run(&model.checked().unwrap());
    // Product form: 1.5 visits/s of 0.2 s.
    covers(s.stations[0].number_mean, 0.3 / 0.7);
    covers(s.stations[0].all.throughput_per_s, 1.5);
    covers(s.stations[1].classes[1].throughput_per_s, 0.5);
}

/// M^[x]/M/1 with fixed batches of B: E[n] = ρ(1 + B)/(2(1 − ρ)).
#[test]
fn batches_of_arrivals_wait_as_the_formula_says() {
    let mut class = Class::open("c", 0.7);
    let Workload::Open { interarrival, batch, .. } = &mut class.workload else { panic!("open") };
    *interarrival = Distribution::exponential(4.0 / 0.7).unwrap();
    *batch = Batch::Fixed(4);
    let station = Station::queue("q", 1).with_service_time(0, 1.0);
    let model = Model::new("batches", vec![class], vec![station]).unwrap();
    covers(run(&model).stations[0].number_mean, 0.7 * 5.0 / (2.0 * 0.3));
}

#[test]
fn what_has_no_steady_state_or_cannot_be_simulated_is_refused_with_its_figures() {
    let refused = |model: &Model| simulate(model, &settings(model, 0.05), &mut |_| {}).unwrap_err();
    let error = refused(&one(Station::queue("q", 2).with_service_time(0, 3.0), 1.0));
    assert!(error.to_string().contains("offered 1.5000 times"), "{error}");
    let closed = |n, s| {
        let station = Station::queue("q", 1).with_service_time(0, s);
        Model::new("closed", vec![Class::closed("c", n, 0.0)], vec![station]).unwrap()
    };
    let error = refused(&closed(1 << 39, 1.0));
    assert!(matches!(error, SimulationError::TooLarge { .. }), "{error}");
    let error = refused(&closed(2, 0.0));
    assert!(matches!(error, SimulationError::NothingHappens), "{error}");
}

#[test]
fn customers_who_never_join_do_not_keep_it_running() {
    let mut station = Station::queue("q", 1).with_service_time(0, 1.0);
    station.balking = Balking::Table(vec![0.0]);
    let s = run(&one(station, 1.0));
    assert!(!s.precise);
    assert_eq!(s.completed_customers, 0);
    covers(s.classes[0].abandoned_share, 1.0);
}

#[test]
fn a_cap_ends_it_and_says_so() {
    let model = one(Station::queue("q", 1).with_service_time(0, 0.99), 1.0);
    let settings = Settings { most_customers: 300_000, ..settings(&model, 0.001) };
    let s = simulate(&model, &settings, &mut |_| {}).unwrap();
    assert!(!s.precise);
    assert!(!s.doubts.is_empty());
}

/// All that is simulated counts, warm-up and who is lost or gives up included: at most the cap and one batch of all
/// replications. Of the cap at least half is used, and as much as that is behind the answer.
#[test]
fn the_cap_holds_to_within_one_batch() {
    let closed = Model::new(
        "closed",
        vec![Class::closed("c", 500, 1.0)],
        vec![Station::queue("q", 1).with_service_time(0, 0.01)],
    );
    // Of 21 customers one finds the server free; of ten, nine give up.
    let mut lossy = Station::queue("q", 1).with_service_time(0, 20.0);
    lossy.capacity = Some(1);
    let mut impatient = Station::queue("q", 1).with_service_time(0, 10.0);
    impatient.patience = Some(Distribution::exponential(10.0).unwrap());
    let stations = [Station::queue("q", 1).with_service_time(0, 0.95), lossy, impatient];
    for model in stations.map(|station| one(station, 1.0)).into_iter().chain([closed.unwrap()]) {
        for (most, replications) in [(3_000, 24), (60_000, 24), (60_000, 1), (500_000, 10)] {
            let settings =
                Settings { most_customers: most, replications, ..settings(&model, 1e-9) };
            let mut told = 0;
            let s = simulate(&model, &settings, &mut |p| told = p.ended_customers).unwrap();
            let most = f64::from(u32::try_from(most).unwrap());
            let have = |n: u64| f64::from(u32::try_from(n).unwrap()) / most;
            // A batch is a fortieth of the least that is run; arrivals vary.
            assert!(have(told) <= 1.0 + 1.0 / 40.0 + 5.0 / most.sqrt(), "{told} {most}");
            let lost = s.classes[0].abandoned_share.map_or(0.0, |share| share.center);
            let done = f64::from(u32::try_from(s.completed_customers).unwrap());
            let ended = done / (1.0 - lost) / most;
            // Those who are still there are of one in 20, or of one in ten.
            assert!(ended > 0.3 && ended <= have(told) + 0.1, "{ended} of {most}, {lost} lost");
            assert!(!s.precise && s.completed_customers <= told);
        }
    }
}

/// A percentile far out needs many independent busy periods, and has no interval without them; a mean needs some.
#[test]
fn a_percentile_of_too_short_a_run_has_no_interval() {
    let model = one(Station::queue("q", 1).with_service_time(0, 0.95), 1.0);
    let of = |most_customers| {
        let settings = Settings { most_customers, ..settings(&model, 1e-9) };
        simulate(&model, &settings, &mut |_| {}).unwrap()
    };
    let p99 = |s: &Simulated| s.classes[0].response_time_quantiles_s[3];
    let none = |s: &Simulated| s.doubts.iter().any(|d| matches!(d, Doubt::NoInterval { .. }));
    let short = of(600_000);
    assert_eq!((p99(&short).0, p99(&short).1.half_width), (0.99, None));
    assert!(none(&short) && short.classes[0].response_time_quantiles_s[0].1.half_width.is_some());
    // Much too short: the empty start is all that it saw, and no figure has one.
    let start = of(30_000);
    assert!(start.doubts.iter().any(|d| matches!(d, Doubt::NoIntervals { .. })));
    let class = &start.classes[0];
    let figures = [class.response_time_mean_s, class.throughput_per_s, class.number_mean];
    assert!(figures.into_iter().flatten().all(|found| found.half_width.is_none()));
    assert!(start.stations[0].all.number_mean.unwrap().half_width.is_none() && !start.precise);
    let long = of(3_000_000);
    assert!(!none(&long));
    covers(Some(p99(&long).1), -19.0 * 0.01_f64.ln());
}

/// A customer who finds a pool full is lost, or thinks anew; one who is lost while it holds a token gives it back.
#[test]
fn requests_that_are_lost_inside_pools_are_lost() {
    let pool = |name: &str, tokens, stations: &[usize], queue_capacity| Pool {
        name: name.to_owned(),
        tokens,
        stations: stations.to_vec(),
        classes: vec![0],
        queue_capacity,
    };
    let b = || Station::queue("b", 1).with_service_time(0, 0.2);
    let a = || Station::delay("a").with_service_time(0, 0.1);
    let with = |class: Class, stations: Vec<Station>, pools| {
        let mut model = Model::new("pools", vec![class], stations).unwrap();
        model.pools = pools;
        run(&model)
    };
    // M/M/1/2 with 6 customers that think for 1 s.
    let s = with(Class::closed("c", 6, 1.0), vec![b()], vec![pool("p", 1, &[0], Some(1))]);
    let known = finite_population(1.0, 5.0, 1, 6, Some(2)).unwrap();
    covers(s.classes[0].throughput_per_s, known.throughput);
    covers(s.stations[0].utilization, known.utilization);
    covers(s.pools[0].utilization, known.utilization);
    // Erlang's loss behind a delay, λ·S = 0.6 at one server: lost at the inner pool, at a station.
    let lost = 0.6 / 1.6;
    let open = || Class::open("c", 3.0);
    let outer = || pool("o", 1_000, &[0, 1], None);
    let bounded = Station { capacity: Some(1), ..b() };
    let inner = pool("i", 1, &[1], Some(0));
    for (station, pools) in [(b(), vec![outer(), inner]), (bounded, vec![outer()])] {
        let s = with(open(), vec![a(), station], pools);
        covers(s.classes[0].abandoned_share, lost);
        covers(s.classes[0].throughput_per_s, 3.0 * (1.0 - lost));
        covers(s.stations[1].utilization, 0.6 * (1.0 - lost));
    }
    // Given up while a token is held: M/M/1+M at `b`.
    let impatient = Station { patience: Some(Distribution::exponential(0.5).unwrap()), ..b() };
    let s = with(open(), vec![a(), impatient], vec![outer()]);
    let known = mmm_impatient(3.0, 5.0, 1, 2.0, None).unwrap();
    covers(s.classes[0].abandoned_share, known.loss_probability);
    // A closed customer that finds a station full goes on as if served, with its token.
    let bounded = Station { capacity: Some(1), ..b() };
    let s = with(Class::closed("c", 6, 1.0), vec![a(), bounded], vec![outer()]);
    assert!(
        s.classes[0].throughput_per_s.unwrap().center
            > s.stations[1].all.throughput_per_s.unwrap().center
    );
}

/// Batch means of one long run instead of replications.
#[test]
fn one_replication_is_cut_into_batches() {
    let model = one(Station::queue("q", 1).with_service_time(0, 0.5), 1.0);
    let settings = Settings { replications: 1, ..settings(&model, 0.02) };
    let s = simulate(&model, &settings, &mut |_| {}).unwrap();
    assert!(s.batch_means && s.precise);
    covers(s.classes[0].response_time_mean_s, 1.0);
}

/// Twenty models put together at random: Little's law at every station and as a whole, the
/// utilization law and the flow balance hold in one and the same run up to what its two ends cut
/// off, a few customers in 100,000.
#[test]
fn the_laws_hold_in_models_put_together_at_random() {
    let mut state = 42_u64;
    let mut draw = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for round in 0..20 {
        let closed = draw(2) == 0;
        let count = 1 + draw(4);
        let mut stations = Vec::new();
        for index in 0..count {
            let servers = 1 + draw(3);
            let mean = 0.1 + 0.06 * f64::from(u32::try_from(draw(10)).unwrap());
            let scv = [0.0, 0.5, 1.0, 3.0][usize::try_from(draw(4)).unwrap()];
            let service = Distribution::general(mean, scv, None).unwrap();
            let mut station =
                Station::queue(&format!("s{index}"), servers).with_service(0, service);
            station.discipline = [
                Discipline::Fcfs,
                Discipline::Ps,
                Discipline::LcfsPr,
                Discipline::Siro,
                Discipline::Lcfs,
            ][usize::try_from(draw(5)).unwrap()];
            stations.push(station);
        }
        let class =
            if closed { Class::closed("c", 1 + draw(12), 1.0) } else { Class::open("c", 1.0) };
        let model = Model::new("random", vec![class], stations.clone()).unwrap();
        // Ten long replications: what their ends cut off is a few customers in 100,000.
        let settings =
            Settings { most_customers: 1_500_000, replications: 10, ..settings(&model, 0.02) };
        let s = simulate(&model, &settings, &mut |_| {}).unwrap();
        let near = |have: f64, want: f64| {
            assert!(
                (have - want).abs() <= 3e-3 * want + 1e-4,
                "{round}: {have} {want} in {model:?}"
            );
        };
        let center = |measured: Option<Measured>| measured.unwrap().center;
        let class = &s.classes[0];
        near(
            center(class.number_mean),
            center(class.throughput_per_s) * center(class.response_time_mean_s),
        );
        let mut inside = 0.0;
        for (station, result) in stations.iter().zip(&s.stations) {
            let all = &result.all;
            inside += center(result.number_mean);
            near(
                center(result.number_mean),
                center(all.throughput_per_s) * center(all.response_time_mean_s),
            );
            near(center(all.throughput_per_s), center(class.throughput_per_s));
            near(
                center(all.number_waiting_mean),
                center(all.throughput_per_s) * center(all.waiting_time_mean_s),
            );
            // The service drawn differs from its mean by chance: against what was drawn.
            let given = center(all.response_time_mean_s) - center(all.waiting_time_mean_s);
            let servers = f64::from(u32::try_from(station.servers).unwrap());
            near(center(result.utilization) * servers, center(all.throughput_per_s) * given);
        }
        near(center(class.number_mean), inside);
    }
}

/// A cycle may visit nothing where all visits are below 1: without think time the next begins.
#[test]
fn customers_of_a_closed_class_stay_where_a_cycle_visits_nothing() {
    let visits =
        |name: &str, v: f64| Station::delay(name).with_service_time(0, 0.01).with_visits(0, v);
    for stations in [vec![visits("a", 0.3)], vec![visits("a", 0.3), visits("b", 0.5)]] {
        let demand: f64 =
            stations.iter().map(|s| s.demand_at(0).expect("visited").visits * 0.01).sum();
        let model = Model::new("m", vec![Class::closed("c", 4, 0.0)], stations).expect("a model");
        let s = run(&model);
        covers(s.classes[0].number_mean, 4.0);
        covers(s.classes[0].throughput_per_s, 4.0 / demand);
    }
}

/// Where almost all are lost, a short run sees few of those who stay leave, and of them the short stays: its interval is
/// wide enough for that, or it has none.
#[test]
fn stays_of_a_short_run_with_many_losses_have_honest_intervals() {
    for capacity in [1_u32, 3] {
        let mut station = Station::queue("q", 1).with_service_time(0, 0.1);
        station.capacity = Some(capacity.into());
        let model = one(station, 1e5);
        for most_customers in [20_000, 100_000, 400_000, 2_000_000] {
            let settings = Settings { most_customers, ..settings(&model, 1e-9) };
            let s = simulate(&model, &settings, &mut |_| {}).unwrap();
            let found = s.classes[0].response_time_mean_s.unwrap();
            // All but the first find B − 1 before them, for λS = 10⁴.
            let exact = 0.1 * f64::from(capacity);
            let told = s.doubts.iter().any(|d| matches!(d, Doubt::TooShortForTimes { .. }));
            assert_eq!(told, found.half_width.is_none(), "{capacity} {most_customers}");
            assert!(told || found.covers(exact), "{capacity} {most_customers} {found:?}");
        }
    }
}

#[test]
fn nobody_is_simulated_as_nobody_is_calculated() {
    let station = || Station::queue("q", 1).with_service_time(0, 0.1);
    let closed = Model::new("closed", vec![Class::closed("c", 0, 1.0)], vec![station()]).unwrap();
    let s = simulate(&closed, &settings(&closed, 0.05), &mut |_| {}).unwrap();
    covers(s.classes[0].throughput_per_s, 0.0);
    covers(s.stations[0].utilization, 0.0);
    assert!(s.precise && s.classes[0].response_time_mean_s.is_none() && s.doubts.is_empty());
}
