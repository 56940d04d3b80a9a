//! Where formulas lose their figures: near saturation, at large populations, far out in the tails.
//! Truths are roots and sums at 60 digits (or closed forms), from the same inputs as `f64` has
//! them; they share no code with the library.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kendall_queueing::Distribution;
use kendall_queueing::model::Balking;
use kendall_queueing::station::{
    GgmFormula, PriorityClass, Scheduling, StationSolution, finite_population, ggm, gm1, mdm, mg1,
    mg1_priority, mg1k, mmm, mmm_balking, mmm_impatient, mmmk,
};

#[track_caller]
fn near(have: f64, want: f64, relative: f64) {
    assert!((have - want).abs() <= relative * want.abs(), "{have:e} for {want:e}");
}

/// σ/(µ(1 − σ)) from the root of A*(µ − µσ) = σ at 60 digits, for the gaps that `f64` holds.
#[test]
fn waits_of_gm1_hold_near_saturation() {
    let constant = |lambda: f64| Distribution::deterministic(1.0 / lambda).unwrap();
    for (lambda, wait) in [
        (0.999_999, 499_999.166_663_960_8),
        (0.999_999_99, 49_999_998.860_317_2),
        (1.0 - 2.0_f64.powi(-40), 549_755_813_887.666_7),
    ] {
        let solved = gm1(&constant(lambda), 1.0).unwrap();
        near(solved.waiting_time.mean, wait, 1e-13);
        near(solved.response_time.mean, wait + 1.0, 1e-13);
        assert!(solved.little_error() < 1e-9);
    }
    let gap = 1.0 / (1.0 - 1e-8);
    let erlang = gm1(&Distribution::erlang(4, gap).unwrap(), 1.0).unwrap();
    near(erlang.waiting_time.mean, 62_499_998.742_063_17, 1e-13);
    let gamma = gm1(&Distribution::gamma(gap, 0.3).unwrap(), 1.0).unwrap();
    near(gamma.waiting_time.mean, 64_999_998.718_412_36, 1e-13);
    let uniform = Distribution::uniform(0.500_000_005_000_000_1, 1.500_000_015_000_000_4).unwrap();
    let uniform = gm1(&uniform, 1.0).unwrap();
    // Its mean is rounded once more than the two limits: 1e-16 of 1 − ρ = 1e-8.
    near(uniform.waiting_time.mean, 54_166_665.191_153_97, 3e-8);
}

/// Exponential gaps are M/M/1, at any load: also where waiting is rare.
#[test]
fn gm1_with_exponential_gaps_is_mm1() {
    for lambda in [1e-12, 1e-3, 0.5, 0.999_999_999] {
        let solved = gm1(&Distribution::exponential(1.0 / lambda).unwrap(), 1.0).unwrap();
        let want = mmm(lambda, 1.0, 1).unwrap();
        // The gap 1/λ is rounded: 1e-16 of what 1 − ρ is.
        let tolerance = 1e-13 + 2e-16 / (1.0 - lambda);
        near(solved.waiting_time.mean, want.waiting_time.mean, tolerance);
        near(solved.p_queueing.unwrap(), lambda, tolerance);
    }
}

/// ln(C/(1 − p))/θ with θ and C from the pole of the transform at 60 digits: at such loads the
/// other poles have died out many thousand service times before.
#[test]
fn percentiles_of_mg1_hold_near_saturation() {
    let p = f64::midpoint(1.0, 0.6_f64.sqrt());
    let mean = [1.0 / (2.0 * p), 1.0 / (2.0 * (1.0 - p))];
    let cases = [
        (
            Distribution::deterministic(1.0).unwrap(),
            [
                (0.999_99, [34_656.910_169_906_48, 230_257.408_436_196_3, 460_515.150_205_731_6]),
                (1.0 - 1e-6, [346_573.141_412_104_8, 2_302_583.992_065_879, 4_605_168.317_465_148]),
                (1.0 - 1e-9, [346_573_599.632_885_6, 2_302_585_157.014_739, 4_605_170_314.362_868]),
            ],
        ),
        (
            Distribution::erlang(3, 1.0).unwrap(),
            [
                (0.999_99, [46_209.179_463_921_24, 307_010.278_489_283_9, 614_021.112_535_519_7]),
                (1.0 - 1e-6, [462_097.487_787_929, 3_070_112.389_995_627, 6_140_225.335_547_022]),
                (1.0 - 1e-9, [462_098_132.809_752_7, 3_070_113_543.086_893, 6_140_227_086.729_417]),
            ],
        ),
        (
            Distribution::gamma(1.0, 2.5).unwrap(),
            [
                (0.999_99, [121_298.929_872_042, 805_903.933_836_423_1, 1_611_809.867_687_152]),
                (1.0 - 1e-6, [1_213_005.739_230_489, 8_059_046.976_539_191, 16_118_095.953_080_01]),
                (1.0 - 1e-9, [1_213_007_598.459_389, 8_059_048_052.555_896, 16_118_096_107.111_99]),
            ],
        ),
        (
            Distribution::hyperexponential(vec![p, 1.0 - p], mean.to_vec()).unwrap(),
            [
                (0.999_99, [173_283.834_821_704_4, 1_151_295.454_241_172, 2_302_594.908_526_372]),
                (1.0 - 1e-6, [1_732_864.991_066_82, 11_512_928.372_392_81, 23_025_860.744_790_29]),
                (1.0 - 1e-9, [1_732_867_997.448_438, 11_512_925_793.485_76, 23_025_851_590.971_8]),
            ],
        ),
    ];
    for (service, loads) in cases {
        for (lambda, waits) in loads {
            let solved = mg1(lambda, &service).unwrap();
            for (quantile, want) in [0.5, 0.99, 0.9999].into_iter().zip(waits) {
                // An inversion that is right to 1e-9 in the probability is right to 1e-9/(1 − p)
                // in the exponent; a mean that is rounded, to 1e-16/(1 − ρ).
                let tolerance = 1e-9 / (1.0 - quantile) + 1e-15 / (1.0 - lambda);
                near(solved.waiting_quantile(quantile).unwrap(), want, tolerance);
                near(solved.response_quantile(quantile).unwrap(), want + 1.0, tolerance);
            }
        }
    }
}

/// E[L_q] = (a² − m(m−1))/(2(m−a)) + Σ 1/(1 − z_k) over the roots of z^m = e^(a(z−1)) inside the
/// unit circle (Crommelin 1932), at 40 digits.
#[test]
fn mdm_is_exact_near_saturation_and_ends() {
    for (servers, load, queue) in [
        (2, 2.0 * (1.0 - 1e-7), 4_999_998.784_820_156),
        (2, 2.0 * (1.0 - 1e-9), 500_000_012.923_154_4),
        (2, 1.6, 1.445_254_207_066_680_4),
        (20, 20.0 * 0.7, 0.133_622_665_605_491_75),
        (200, 200.0 * (1.0 - 1e-7), 4_999_991.426_881_798),
    ] {
        let solved = mdm(load, 1.0, servers).unwrap();
        near(solved.number_waiting.mean, queue, 1e-9);
        assert!(solved.little_error() < 1e-9);
        let total = solved.states.as_ref().unwrap().at_least(0);
        assert!((total - 1.0).abs() < 1e-9, "{servers}, {load}: probabilities add to {total}");
    }
    // Half of the heavy-traffic exponential wait: P(W > t) falls as e^(−2(1−ρ)·m·t/D) nearly.
    let solved = mdm(2.0 * (1.0 - 1e-7), 1.0, 2).unwrap();
    let p99 = solved.waiting_quantile(0.99).unwrap();
    near(p99, 100.0_f64.ln() * solved.waiting_time.mean, 1e-5);
}

/// ln P(0) of M/M/m/B and M/M/m/∞/N where P(0) underflows: from the sum in logarithms, here the
/// Poisson limit −a (B and m beyond any load) and the binomial one −N·ln(1 + a).
#[test]
fn the_logarithm_of_an_empty_station_is_always_there() {
    let bounded = mmmk(5_000.0, 1.0, 8_000, 9_000).unwrap();
    assert_eq!(bounded.p0, Some(0.0));
    near(bounded.ln_p0.unwrap(), -5_000.0, 1e-12);
    let finite = finite_population(0.5, 1.0, 10_000, 10_000, None).unwrap();
    near(finite.ln_p0.unwrap(), -10_000.0 * 1.5_f64.ln(), 1e-12);
    let loss = mmmk(3.0, 1.0, 2, 2).unwrap();
    near(loss.ln_p0.unwrap(), (1.0_f64 / (1.0 + 3.0 + 4.5)).ln(), 1e-14);
}

mod networks {
    use kendall_queueing::network::{
        Iteration, Kind, Load, Network, NetworkError, Resource, convolution, linearizer, mixed,
        mva_exact,
    };

    use super::near;

    fn one_class(resources: Vec<Resource>, population: u64, think_time: f64) -> Network {
        Network { classes: vec![Load::Closed { population, think_time }], resources }
    }

    /// M/M/1//N: P(n) = N!/(N−n)!·(D/Z)^n·P(0), far out in the tail.
    #[test]
    fn marginals_of_a_single_server_are_right_far_out() {
        let (n, think, demand) = (500_u64, 1.0, 0.001);
        let slow = Resource::queue(&[0.0005]);
        let network = one_class(vec![Resource::queue(&[demand])], n, think);
        let solved = convolution(&network).unwrap();
        let list = solved.marginals[0].as_ref().unwrap();
        let mut logs = vec![0.0_f64];
        for (j, left) in (1..=500_u32).rev().enumerate() {
            logs.push(logs[j] + (f64::from(left) * demand / think).ln());
        }
        let total: f64 = logs.iter().map(|log| log.exp()).sum();
        for j in [0, 1, 10, 100, 300, 420] {
            let want = logs[j] - total.ln();
            assert!(want > -700.0, "a number that f64 holds");
            assert!((list[j].ln() - want).abs() < 1e-9, "P({j}): {} for {want}", list[j].ln());
        }
        // With other stations beside it the probabilities still add to 1, and agree with the
        // several-server way round (a station of 1 server, described as load-dependent).
        let beside = one_class(vec![Resource::queue(&[demand]), slow.clone()], 50, 0.02);
        let dependent = Resource { kind: Kind::LoadDependent(vec![1.0]), demands: vec![demand] };
        let other = one_class(vec![dependent, slow], 50, 0.02);
        let (a, b) = (convolution(&beside).unwrap(), convolution(&other).unwrap());
        let (a, b) = (a.marginals[0].clone().unwrap(), b.marginals[0].clone().unwrap());
        near(a.iter().sum(), 1.0, 1e-12);
        for (a, b) in a.iter().zip(&b) {
            near(*a, *b, 1e-11);
        }
    }

    /// X = 1/D from the start, and all customers but those elsewhere at the bottleneck.
    #[test]
    fn a_saturated_network_is_solved_at_any_population() {
        let one = mva_exact(&one_class(vec![Resource::queue(&[0.5])], 1_000_000_000, 0.0)).unwrap();
        near(one.throughput[0], 2.0, 1e-15);
        near(one.system_response[0], 5e8, 1e-15);
        let resources = vec![
            Resource::queue(&[0.01]),
            Resource::delay(&[3.0]),
            Resource::queue(&[0.02]),
            Resource::queue(&[0.005]),
        ];
        let large = mva_exact(&one_class(resources.clone(), 4_000_000_000, 10.0)).unwrap();
        near(large.throughput[0], 50.0, 1e-14);
        // D/(D_b − D): 1 and 1/3 customers, 13 s of pauses at 50/s.
        near(large.number[0][0], 1.0, 1e-12);
        near(large.number[3][0], 1.0 / 3.0, 1e-12);
        near(large.number[2][0], 4e9 - 650.0 - 4.0 / 3.0, 1e-15);
        // The way by what lacks to saturation is the recursion of the books where both can go.
        let stepped = mva_exact(&one_class(resources, 100_000, 10.0)).unwrap();
        near(stepped.throughput[0], 50.0, 1e-12);
    }

    /// Two equal bottlenecks share N customers for ever: an exact solution takes N steps, which the refusal names.
    #[test]
    fn what_would_take_too_long_is_refused_with_the_steps() {
        let equal = vec![Resource::queue(&[0.5]), Resource::queue(&[0.5])];
        let refused = mva_exact(&one_class(equal, 1_000_000_000, 0.0)).unwrap_err();
        assert!(matches!(refused, NetworkError::TooLarge { steps, .. } if steps >= 1e10));
        // An open class that nearly saturates 64 servers beside many closed customers.
        let network = Network {
            classes: vec![
                Load::Open { arrival_rate: 64.0 * (1.0 - 2e-5) },
                Load::Closed { population: 50_000, think_time: 1.0 },
            ],
            resources: vec![Resource::servers(64, &[1.0, 0.001])],
        };
        assert!(matches!(mixed(&network).unwrap_err(), NetworkError::TooLarge { .. }));
    }

    /// The documents: exact where affordable, else Linearizer, else Bard–Schweitzer.
    #[test]
    fn auto_takes_linearizer_where_exact_is_too_large() {
        for population in [100_000, 1_000_000] {
            let resources = vec![Resource::servers(10_000, &[1.0]), Resource::queue(&[0.0001])];
            let solved = mixed(&one_class(resources, population, 0.0)).unwrap();
            assert_eq!(solved.solver, "Linearizer", "{population}");
            // Both saturate at 10,000/s; no approximation is far off.
            near(solved.throughput[0], 10_000.0, 0.02);
        }
    }

    /// Numbers between 0 and 1, the same on every machine.
    fn random(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed;
        move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            f64::from(u32::try_from(state >> 32).unwrap()) / 2.0_f64.powi(32)
        }
    }

    #[test]
    fn linearizer_converges_on_random_demands() {
        for seed in 1..=6 {
            let mut random = random(seed);
            let classes: Vec<Load> = (0..20)
                .map(|_| Load::Closed {
                    population: 5 + kendall_units::whole_u64(random() * 19.0),
                    think_time: 1.0,
                })
                .collect();
            let resources: Vec<Resource> = (0..50)
                .map(|_| {
                    let row: Vec<f64> = (0..20).map(|_| 0.1 * random()).collect();
                    Resource::queue(&row)
                })
                .collect();
            let solved = linearizer(&Network { classes, resources }, Iteration::default()).unwrap();
            assert_eq!(solved.solver, "Linearizer", "seed {seed}");
            let (rounds, change) = solved.iterations.unwrap();
            eprintln!("seed {seed}: {rounds} rounds, last change {change:e}");
            assert!(change < 1e-9, "seed {seed}: last change {change:e}");
            // It took 1,000,000 without getting there; 21 populations are solved in each round of
            // corrections.
            assert!(rounds < 60_000, "seed {seed}: {rounds} rounds");
        }
    }
}

mod forks {
    use kendall_queueing::Distribution;
    use kendall_queueing::model::{Class, Model, Station};
    use kendall_queueing::network::{Accuracy, fork_join, fork_join_general};
    use kendall_queueing::solver::{SolveError, Solver, solve};

    use super::near;

    /// All branches of constant service do the same: M/D/1, S·(1 + ρ/(2(1 − ρ))).
    #[test]
    fn constant_branches_are_one() {
        let constant = Distribution::deterministic(1.0).unwrap();
        for (branches, needed) in [(4, 4), (9, 2), (1, 1)] {
            let solved = fork_join_general(0.7, &constant, branches, needed).unwrap();
            near(solved.response_time, 1.0 + 0.7 / 0.6, 1e-12);
            assert_eq!(solved.accuracy, Accuracy::Exact);
        }
    }

    #[test]
    fn exponential_branches_are_nelson_and_tantawi_also_by_the_general_way() {
        let gamma = Distribution::gamma(1.0, 1.0 - 1e-9).unwrap();
        for (rho, branches) in [(0.2, 2), (0.7, 4), (0.9, 16)] {
            let want = fork_join(rho, 1.0, branches, branches).unwrap().response_time;
            let solved = fork_join_general(rho, &gamma, branches, branches).unwrap();
            near(solved.response_time, want, 1e-4);
        }
        // At no load: the largest of four independent uniform times is 4/5 of the longest.
        let uniform = Distribution::uniform(0.0, 2.0).unwrap();
        let light = fork_join_general(1e-6, &uniform, 4, 4).unwrap();
        near(light.response_time, 1.6, 0.06);
    }

    /// Means of 1,000,000 simulated requests each (Lindley's recursion in another language, common
    /// arrivals, mean service 1): (branches, mean).
    #[test]
    fn other_branches_stay_near_their_simulation() {
        let hyper = |scv| Distribution::hyperexponential_balanced(1.0, scv).unwrap();
        let erlang = |k| Distribution::erlang(k, 1.0).unwrap();
        let cases = [
            (hyper(4.0), 0.7, SIMULATED[0]),
            (hyper(2.0), 0.5, SIMULATED[1]),
            (erlang(4), 0.7, SIMULATED[2]),
            (erlang(10), 0.9, SIMULATED[3]),
            (Distribution::lognormal(1.0, 1.0).unwrap(), 0.5, SIMULATED[4]),
            (Distribution::uniform(0.0, 2.0).unwrap(), 0.7, SIMULATED[5]),
        ];
        for (service, rho, means) in cases {
            for (branches, mean) in [2, 4, 8].into_iter().zip(means) {
                let solved = fork_join_general(rho, &service, branches, branches).unwrap();
                assert_eq!(solved.accuracy, Accuracy::Approximation);
                // 9 % as documented, and 2 % that a simulation of a busy queue may err by.
                near(solved.response_time, mean, 0.11);
                assert!(solved.upper_bound >= solved.response_time);
            }
        }
    }

    const SIMULATED: [[f64; 3]; 6] = [
        [10.9892, 16.1320, 21.9266],
        [3.8603, 5.5727, 7.5593],
        [3.0765, 3.6680, 4.2357],
        [6.9231, 7.8877, 8.7581],
        [2.8649, 3.9287, 5.1366],
        [3.2607, 3.8752, 4.4336],
    ];

    fn forked(service: Distribution, class: Class) -> Model {
        let mut station = Station::queue("shards", 1).with_service(0, service);
        station.fork = Some(kendall_queueing::model::Fork { branches: 4, needed: 4 });
        Model::new("fan-out", vec![class], vec![station]).unwrap()
    }

    #[test]
    fn a_model_looks_at_the_service_of_its_branches() {
        let open = || Class::open("requests", 0.7);
        let constant = forked(Distribution::deterministic(1.0).unwrap(), open());
        let solved = solve(&constant, Solver::Auto).unwrap();
        near(solved.classes[0].system_response, 1.0 + 0.7 / 0.6, 1e-9);
        let hyper = forked(Distribution::hyperexponential_balanced(1.0, 4.0).unwrap(), open());
        let solved = solve(&hyper, Solver::Auto).unwrap();
        near(solved.classes[0].system_response, SIMULATED[0][1], 0.11);
        assert!(!solved.caveats.is_empty() && solved.accuracy == Accuracy::Approximation);
        let closed =
            forked(Distribution::deterministic(1.0).unwrap(), Class::closed("users", 5, 1.0));
        assert!(matches!(
            solve(&closed, Solver::Auto).unwrap_err(),
            SolveError::NeedsSimulation { .. }
        ));
    }
}

/// At light load what is asked is a small number, and 1 less a number near 1 does not know it. Closed
/// forms: 1/P(0) − 1 is a + a²/2/(1 − a/2) for M/M/2 and a + … + a⁵ for M/M/1/5, the busy period that over λ;
/// of M/D/1 it has the variance S²·ρ/(1 − ρ)³.
#[test]
fn light_load_keeps_its_figures() {
    for a in [1e-12, 1e-9, 1e-5] {
        let two = mmm(a, 1.0, 2).unwrap();
        let duration = two.busy_period.as_ref().unwrap().duration.mean;
        near(duration, 1.0 + a / 2.0 / (1.0 - a / 2.0), 1e-14);
        near(two.ln_p0.unwrap(), -a, 1.1 * a);
        let bounded = mmmk(a, 1.0, 1, 5).unwrap().busy_period.unwrap().duration.mean;
        near(bounded, 1.0 + a + a * a, 1e-14);
        let constant = Distribution::deterministic(1.0).unwrap();
        let variance = mg1(a, &constant).unwrap().busy_period.unwrap().duration.variance;
        near(variance.unwrap(), a / (1.0 - a).powi(3), 1e-13);
        // Another one comes within the service with 1 − e^(−a).
        let room = mg1k(a, &constant, 2).unwrap().busy_period.unwrap().duration.mean;
        near(room, a.exp(), 1e-13);
        // The second class waits for what is left of a service of either, 2a, and is interrupted for a.
        let class = |priority| {
            let service = Distribution::exponential(1.0).unwrap();
            PriorityClass { priority, arrival_rate: a, service }
        };
        let found = mg1_priority(&[class(1), class(2)], Scheduling::PreemptiveResume).unwrap();
        let want = 2.0 * a / (1.0 - a) / (1.0 - 2.0 * a) + a / (1.0 - a);
        near(found[1].waiting_time, want, 1e-13);
    }
}

/// Losses far below 1e-16 were the difference of two rates: 0, or less than nothing. With deaths at
/// rate n in every state n is Poisson, and λ times the loss is the mean number beyond the ten servers.
#[test]
fn the_loss_of_impatient_customers_is_not_a_difference_of_rates() {
    let lambda = 0.1_f64;
    let mut term = (-lambda).exp();
    let mut waiting = 0.0;
    for n in 1..40 {
        term *= lambda / f64::from(n);
        waiting += term * f64::from((n - 10).max(0));
    }
    let solved = mmm_impatient(lambda, 1.0, 10, 1.0, None).unwrap();
    near(solved.loss_probability, waiting / lambda, 1e-12);
    let balking = solved.more.iter().find(|(name, _)| *name == "balking_probability").unwrap().1;
    assert!(balking.abs() < 1e-300, "{balking:e}");
    // No customer joins beyond 11: one state of M/M/10 with its part of the arrivals.
    let table = Balking::Table([vec![1.0; 11], vec![0.0]].concat());
    let loss = mmm_balking(lambda, 1.0, 10, &table, None).unwrap().loss_probability;
    near(loss, mmmk(lambda, 1.0, 10, 11).unwrap().loss_probability, 1e-12);
}

/// Crommelin's series in its form that only adds: W = D·Σᵢ Σₖ P(Poisson(i·a) = i·m + k)·(k + 1)/(i·m + k + 1).
/// What was left of a system of equations was 10⁻⁶ of it, or 10³⁰ times too much.
#[test]
fn waits_of_mdm_hold_at_light_load() {
    for (servers, a) in [(2_u32, 1e-3), (3, 0.083), (5, 0.26), (20, 0.0725), (5, 3.5), (30, 12.0)] {
        let mut wait = 0.0;
        for i in 1..200_u32 {
            let (mean, from) = (f64::from(i) * a, i * servers);
            let ln_factorial: f64 = (1..=from).map(|n| f64::from(n).ln()).sum();
            let mut p = (f64::from(from) * mean.ln() - mean - ln_factorial).exp();
            for k in 0..400_u32 {
                let n = f64::from(from + k);
                wait += p * f64::from(k + 1) / (n + 1.0);
                p *= mean / (n + 1.0);
            }
        }
        let solved = mdm(a, 1.0, u64::from(servers)).unwrap();
        // ln n! of up to 6,000 terms: 1e-12; the rest of the series, e^(−200·0.05·…), is less.
        near(solved.waiting_time.mean, wait, 1e-10);
        assert!(solved.little_error() < 1e-9);
    }
}

/// No probability or rate is below 0, and what is nothing is 0, not −0.
#[test]
fn nothing_is_less_than_nothing() {
    let waits = |solved: StationSolution| {
        let p = solved.p_queueing.unwrap();
        assert!(p.is_sign_positive() && solved.loss_probability >= 0.0, "{solved:?}");
        p
    };
    // Fewer customers than servers, no place to wait, and impatient ones that hardly ever wait.
    assert!(waits(finite_population(1.0, 1.0, 3, 2, None).unwrap()) < f64::MIN_POSITIVE);
    assert!(waits(mmmk(1.0, 1.0, 3, 3).unwrap()) < f64::MIN_POSITIVE);
    let one = mg1k(1.0, &Distribution::deterministic(1.0).unwrap(), 1).unwrap();
    assert!(waits(one) < f64::MIN_POSITIVE);
    // Poisson again, as service and patience have one rate: P(n ≥ 30) is its first term nearly.
    let lambda = 1e-3_f64;
    let term = (1..=30).fold((-lambda).exp(), |p, n| p * lambda / f64::from(n));
    near(waits(mmm_impatient(lambda, 1.0, 30, 1.0, None).unwrap()), term, 1e-4);
}

/// D/D/m has no wait; the answer had the probability of waiting of M/M/m beside a wait of 0. And a
/// refusal of a number far out does not print its zeros.
#[test]
fn constant_gaps_and_services_wait_for_nobody() {
    let constant = |value| Distribution::deterministic(value).unwrap();
    for formula in [GgmFormula::Best, GgmFormula::AllenCunneen, GgmFormula::Whitt] {
        let solved = ggm(&constant(1.0), &constant(1.5), 2, formula).unwrap();
        assert!(solved.waiting_time.mean.abs() < 1e-300, "{solved:?}");
        assert!(solved.p_queueing.unwrap().abs() < 1e-300, "{solved:?}");
    }
    let refused = mmm(1e300, 1e-300, 1).unwrap_err().to_string();
    assert!(refused.starts_with("arrival rate is 1e300;"), "{refused}");
}

/// It was taken for a station that works alike with any number of customers.
#[test]
fn an_empty_list_of_rates_is_refused() {
    for key in ["rate_multipliers", "service_rates_per_s"] {
        let station = serde_json::json!({ "name": "cpu", "service_time_s": 0.1, key: [] });
        let model = serde_json::json!({ "population": 3, "stations": [station] });
        let error = serde_json::from_value::<kendall_queueing::Model>(model).unwrap_err();
        assert!(error.to_string().contains(key), "{error}");
    }
}
