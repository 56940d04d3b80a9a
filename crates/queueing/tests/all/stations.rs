//! Published single-station figures, and identities on random stations.

use kendall_queueing::Distribution;
use kendall_queueing::model::{Balking, Batch};
use kendall_queueing::station::{
    GgmFormula, PriorityClass, Scheduling, StationError, TimeLaw, batch_mm1, erlang_b, erlang_c,
    finite_population, ggm, md1, mdm, mg1, mg1_priority, mg1_ps, mm_infinity, mm1, mm1k, mmm,
    mmm_balking, mmm_impatient, mmm_priority, mmmk,
};
use kendall_units::exact_f64;
use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};

#[track_caller]
fn near(have: f64, want: f64, relative: f64) {
    assert!((have - want).abs() <= relative * want.abs(), "{have} for {want}");
}

/// Half a unit in the last place that the source prints.
#[track_caller]
fn printed(have: f64, want: f64, half_unit: f64) {
    assert!((have - want).abs() <= half_unit * (1.0 + 1e-9), "{have} for the printed {want}");
}

/// models.md, first table: M/M/1 with λ = 7538.59/s, µ = 8221/s.
#[test]
fn a_single_server_gives_the_published_table() {
    let s = mm1(7538.59, 8221.0).unwrap();
    printed(s.utilization, 0.9170, 0.5e-4);
    printed(s.p0.unwrap(), 0.0830, 0.5e-4);
    printed(s.number.mean, 11.047, 0.5e-3);
    printed(s.number_waiting.mean, 10.13, 0.5e-2);
    printed(s.response_time.mean * 1e3, 1.465, 0.5e-3);
    let s = mm1(436.0, 518.0).unwrap();
    printed(s.p0.unwrap(), 0.158, 0.5e-3);
    // Printed 12.1 ms from unrounded rates; 1/(0.518 − 0.436) is 12.195, and the rates are good to
    // 0.5 in their third figure: 1/(0.082 ± 0.001) is 12.05 to 12.35.
    printed(s.response_time.mean * 1e3, 12.1, 0.25);
}

/// models.md: M/M/1 offered 592/s at 334/s.
#[test]
fn an_unstable_station_is_an_error_with_its_numbers() {
    let error = mm1(592.0, 334.0).unwrap_err();
    let StationError::Unstable { offered, servers, needed, most_arrivals } = error else {
        panic!("{error}")
    };
    printed(offered, 1.77, 0.5e-2);
    assert_eq!((servers, needed), (1, 2));
    near(most_arrivals, 334.0, 1e-12);
}

/// models.md: M/M/128 and M/M/50. Printed inputs have 3 figures (µ = 66/s), which the tolerances
/// carry: λ/(m·µ) = 0.89 as printed.
#[test]
fn many_servers_give_the_published_tables() {
    let s = mmm(7538.59, 66.0, 128).unwrap();
    printed(s.utilization, 0.89, 0.5e-2);
    printed(s.p0.unwrap() * 1e50, 2.39, 0.5e-2);
    printed(s.p_queueing.unwrap(), 0.14, 0.5e-2);
    printed(s.number.mean, 115.4, 0.5e-1);
    printed(s.number_waiting.mean, 1.174, 0.5e-3);
    printed(s.response_time.mean * 1e3, 15.31, 0.5e-2);
    printed(s.waiting_time.mean * 1e3, 0.16, 0.5e-2);
    printed(s.response_time.variance.unwrap() * 1e4, 2.3, 0.5e-1);
    let s = mmm(7194.246, 66.0, 128).unwrap();
    printed(s.utilization, 0.85, 0.5e-2);
    printed(s.p0.unwrap() * 1e48, 4.53, 0.5e-2);
    printed(s.p_queueing.unwrap(), 0.05, 0.5e-2);
    printed(s.number.mean, 109.29, 0.5e-2);
    printed(s.number_waiting.mean, 0.282, 0.5e-3);
    printed(s.response_time.mean * 1e3, 15.19, 0.5e-2);
    let s = mmm(4104.0, 1e3 / 1.704, 50).unwrap();
    printed(s.utilization, 0.14, 0.5e-2);
    printed(s.number.mean, 6.99, 0.5e-2);
    printed(s.response_time.mean * 1e3, 1.704, 0.5e-3);
}

/// The Octave queueing package's blocks, and PDQ's demos (docs/references.md).
#[test]
fn other_tools_figures_are_met() {
    let s = mmmk(40.0, 30.0, 3, 7).unwrap();
    printed(s.p0.unwrap(), 0.255_037, 0.5e-6);
    printed(s.response_time.mean, 0.036_517, 0.5e-6);
    printed(mmmk(50.0, 10.0, 4, 6).unwrap().loss_probability, 0.293_543, 0.5e-6);
    let s = mmm(2.0, 1.0, 3).unwrap();
    printed(s.response_time.mean, 1.444_444_4, 0.5e-7);
    printed(s.number.mean, 2.888_888_9, 0.5e-7);
    let s = finite_population(1.0 / 300.0, 1.0 / 0.63, 1, 100, None).unwrap();
    printed(s.throughput, 0.332_453_15, 0.5e-8);
    printed(s.response_time.mean, 0.794_259_69, 0.5e-8);
    printed(s.number.mean, 0.264_054_14, 0.5e-8);
    let s = mmm(0.66, 1.0 / 6.0, 4).unwrap();
    printed(s.response_time.mean, 152.685_78, 0.5e-5);
}

/// The forward recurrence errs by about one rounding a step in the worst case, 1e4·1e-16.
#[test]
fn ten_thousand_servers_are_as_exact_as_one() {
    for (a, m) in [(9_900.0, 10_000_u64), (4_000.0, 4_050), (799.0, 800), (50.0, 10_000)] {
        // Reference: the forward recurrence B ← a·B/(n + a·B), another order of operations.
        let mut b = 1.0_f64;
        for n in 1..=m {
            b = a * b / (exact_f64(n) + a * b);
        }
        let have = erlang_b(a, m).unwrap();
        assert!((have - b).abs() <= 1e-12 * b, "{a} {m}: {have} {b}");
        let rho = a / exact_f64(m);
        near(erlang_c(a, m).unwrap(), b / (1.0 - rho * (1.0 - b)), 1e-10);
        let s = mmm(a, 1.0, m).unwrap();
        assert!(s.little_error() < 1e-12);
        // The listed states are a distribution, and their mean is the mean.
        let states = s.states.unwrap();
        near(states.at_least(0), 1.0, 1e-10);
        near(states.at_least(m), s.p_queueing.unwrap(), 1e-10);
    }
}

#[test]
fn percentiles_invert_the_distributions() {
    let cases = [
        mmm(7.0, 1.0, 8).unwrap(),
        mmmk(9.0, 1.0, 8, 12).unwrap(),
        mm1k(0.9, 1.0, 20).unwrap(),
        finite_population(0.1, 1.0, 2, 25, None).unwrap(),
        md1(0.8, 1.0).unwrap(),
        mdm(3.2, 1.0, 4).unwrap(),
        mg1(0.7, &Distribution::erlang(3, 1.0).unwrap()).unwrap(),
    ];
    for s in cases {
        for q in [0.5, 0.9, 0.99, 0.999] {
            let t = s.response_quantile(q).unwrap();
            let back = s.response_law.as_ref().unwrap().cdf(t);
            assert!((back - q).abs() < 1e-7, "{}: {q} {t} {back}", s.notation);
        }
        assert!(s.little_error() < 1e-9, "{}: {}", s.notation, s.little_error());
    }
}

/// Mean of a law = ∫ survival; the laws must have the means that the formulas give.
#[test]
fn the_distributions_have_the_means_of_the_formulas() {
    let cases = [
        mmm(7.0, 1.0, 8).unwrap(),
        mmmk(9.0, 1.0, 8, 12).unwrap(),
        mm1k(0.9, 1.0, 20).unwrap(),
        finite_population(0.1, 1.0, 2, 25, None).unwrap(),
        md1(0.8, 1.0).unwrap(),
        mdm(3.2, 1.0, 4).unwrap(),
        mg1(0.7, &Distribution::hyperexponential_balanced(1.0, 3.0).unwrap()).unwrap(),
        mg1(0.7, &Distribution::lognormal(1.0, 2.0).unwrap()).unwrap(),
    ];
    for s in cases {
        for (law, mean) in [
            (s.response_law.as_ref().unwrap(), s.response_time.mean),
            (s.waiting_law.as_ref().unwrap(), s.waiting_time.mean),
        ] {
            // Each value of a grid is a grid of its own.
            let steps = if matches!(law, TimeLaw::OnGrid(_)) { 600 } else { 40_000 };
            let top = mean * 60.0 + 60.0;
            let h = top / f64::from(steps);
            let area: f64 = (0..steps).map(|i| law.survival((f64::from(i) + 0.5) * h) * h).sum();
            // The midpoint rule errs by h²/24 times the slope, and h·jump at kinks.
            assert!((area - mean).abs() < 2e-3 * mean.max(1.0), "{}: {area} {mean}", s.notation);
        }
    }
}

#[test]
fn the_deterministic_wait_is_the_alternating_sum_where_that_holds() {
    let s = md1(0.7, 1.0).unwrap();
    let law = s.waiting_law.unwrap();
    for t in [0.0_f64, 0.5, 1.0, 1.7, 2.0, 4.3] {
        let mut sum = 0.0;
        let mut term_factorial = 1.0;
        for j in 0..=u32::try_from(kendall_units::whole_u64(t)).unwrap() {
            if j > 0 {
                term_factorial *= f64::from(j);
            }
            let x = 0.7 * (t - f64::from(j));
            sum += x.exp() * (-x).powi(j.cast_signed()) / term_factorial;
        }
        near(law.cdf(t), 0.3 * sum, 1e-11);
    }
}

#[test]
fn several_deterministic_servers_lie_where_the_tables_have_them() {
    // The wait relative to M/M/m approaches 1/2 from above as the load grows [Tijms03 §9.6].
    let s = mdm(8.0, 1.0, 10).unwrap();
    let half = mmm(8.0, 1.0, 10).unwrap().waiting_time.mean / 2.0;
    assert!(s.waiting_time.mean > half && s.waiting_time.mean < 1.2 * half);
    near(s.number.mean, s.arrival_rate * s.response_time.mean, 1e-10);
    // One server agrees with Pollaczek–Khinchine through the general equations.
    near(md1(0.7, 1.0).unwrap().number.variance.unwrap(), 2.564_722_222_222_22, 1e-12);
}

#[test]
fn priorities_keep_the_conservation_law() {
    let classes = [
        (0.2, Distribution::exponential(1.0)),
        (0.1, Distribution::erlang(2, 2.0)),
        (0.05, Distribution::deterministic(4.0)),
    ];
    let classes: Vec<PriorityClass> = (1..)
        .zip(classes)
        .map(|(priority, (arrival_rate, service))| PriorityClass {
            priority,
            arrival_rate,
            service: service.unwrap(),
        })
        .collect();
    let load = 0.6;
    let residual: f64 = classes
        .iter()
        .map(|c| c.arrival_rate * c.service.mean().powi(2) * (1.0 + c.service.scv()) / 2.0)
        .sum();
    let results = mg1_priority(&classes, Scheduling::NonPreemptive).unwrap();
    // Kleinrock: Σρᵢ·Wᵢ = ρ·R₀/(1−ρ).
    let sum: f64 = results.iter().map(|r| r.utilization * r.waiting_time).sum();
    near(sum, load * residual / (1.0 - load), 1e-12);
    // With exponential service of one rate, preemption keeps the total number of M/M/m.
    let rates = [1.0, 0.7, 1.6];
    let each = mmm_priority(&rates, 1.0, 4, Scheduling::PreemptiveResume).unwrap();
    let total: f64 = each.iter().map(|r| r.number).sum();
    near(total, mmm(3.3, 1.0, 4).unwrap().number.mean, 1e-12);
    let each = mmm_priority(&rates, 1.0, 4, Scheduling::NonPreemptive).unwrap();
    let total: f64 = each.iter().map(|r| r.number).sum();
    near(total, mmm(3.3, 1.0, 4).unwrap().number.mean, 1e-12);
    let one = mg1_priority(&classes[..1], Scheduling::PreemptiveResume).unwrap();
    near(one[0].response_time, mm1(0.2, 1.0).unwrap().response_time.mean, 1e-12);
}

#[test]
fn impatience_has_its_known_special_cases() {
    // Patience as fast as service: a station without waiting, M/M/∞ by numbers.
    let s = mmm_impatient(5.0, 1.0, 3, 1.0, None).unwrap();
    near(s.number.mean, 5.0, 1e-12);
    // No patience at all: Erlang B.
    let s = mmm_impatient(5.0, 1.0, 3, 1e9, None).unwrap();
    near(s.loss_probability, erlang_b(5.0, 3).unwrap(), 1e-8);
    // Endless patience: M/M/m.
    let s = mmm_impatient(2.0, 1.0, 3, 1e-9, None).unwrap();
    near(s.waiting_time.mean, mmm(2.0, 1.0, 3).unwrap().waiting_time.mean, 1e-7);
    // Discouraged arrivals: Poisson with mean λ/µ [Kleinrock75 §3.3].
    let s = mmm_balking(3.0, 1.0, 1, &Balking::Reciprocal, None).unwrap();
    near(s.p0.unwrap(), (-3.0_f64).exp(), 1e-12);
    near(s.number.mean, 3.0, 1e-12);
}

#[test]
fn batches_of_one_are_no_batches() {
    let s = batch_mm1(0.8, 1.0, &Batch::Fixed(1)).unwrap();
    let m = mm1(0.8, 1.0).unwrap();
    near(s.number.mean, m.number.mean, 1e-13);
    near(s.number.variance.unwrap(), m.number.variance.unwrap(), 1e-12);
    for batch in
        [Batch::Fixed(4), Batch::Geometric { mean: 4.0 }, Batch::Table(vec![0.5, 0.2, 0.3])]
    {
        let s = batch_mm1(0.8, 1.0, &batch).unwrap();
        let states = s.states.as_ref().unwrap();
        let mean: f64 = (1..5_000_u64).map(|n| states.at_least(n)).sum();
        near(mean, s.number.mean, 1e-9);
        let second: f64 = (1..5_000_u64).map(|n| exact_f64(2 * n - 1) * states.at_least(n)).sum();
        near(second - mean * mean, s.number.variance.unwrap(), 1e-8);
    }
}

#[test]
fn approximations_are_exact_where_they_should_be() {
    let m = Distribution::exponential(1.25).unwrap();
    let s = Distribution::exponential(1.0).unwrap();
    let d = Distribution::deterministic(1.0).unwrap();
    for formula in [GgmFormula::AllenCunneen, GgmFormula::KraemerLangenbachBelz, GgmFormula::Whitt]
    {
        near(ggm(&m, &s, 1, formula).unwrap().waiting_time.mean, 4.0, 1e-12);
        near(ggm(&m, &d, 1, formula).unwrap().waiting_time.mean, 2.0, 1e-12);
    }
    // D/M/1 at ρ = 0.8: exact σ solves σ = e^(−(1−σ)/ρ); wait σ/(1−σ)·S = 1.6936.
    let gap = Distribution::deterministic(1.25).unwrap();
    let klb = ggm(&gap, &s, 1, GgmFormula::Best).unwrap();
    near(klb.waiting_time.mean, 1.693_6, 0.05);
    let bound = ggm(&gap, &s, 1, GgmFormula::Kingman).unwrap();
    assert!(bound.waiting_time.mean > 1.693_6);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn little_holds_at_random_stations(
        load in 0.01..0.999_f64, m in 1..400_u64, mu in 1e-3..1e6_f64, room in 0..60_u64,
    ) {
        let lambda = load * exact_f64(m) * mu;
        let s = mmm(lambda, mu, m).unwrap();
        prop_assert!(s.little_error() < 1e-10);
        let k = mmmk(lambda, mu, m, m + room).unwrap();
        prop_assert!(k.little_error() < 1e-9, "{}", k.little_error());
        prop_assert!(k.number.mean <= s.number.mean * (1.0 + 1e-9));
        prop_assert!((k.utilization * exact_f64(m) * mu - k.throughput).abs() < 1e-9 * k.throughput);
        let f = finite_population(lambda / 50.0, mu, m, 50, None).unwrap();
        prop_assert!(f.little_error() < 1e-9);
    }

    #[test]
    fn hostile_numbers_are_errors_and_never_panics(
        a in any::<f64>(), b in any::<f64>(), c in any::<f64>(), m in 0..300_u64, k in 0..400_u64,
    ) {
        let solutions = [
            mm1(a, b), mmm(a, b, m), mmmk(a, b, m, k), mm_infinity(a, b), md1(a, b),
            finite_population(a, b, m, k, None), mmm_impatient(a, b, m, c, Some(k)),
            mmm_balking(a, b, m, &Balking::Table(vec![1.0, 0.5]), Some(k)),
            batch_mm1(a, b, &Batch::Geometric { mean: 3.0 }),
        ];
        for s in solutions.into_iter().flatten() {
            prop_assert!(s.number.mean.is_finite() && s.number.mean >= 0.0, "{s:?}");
            prop_assert!(!s.response_time.mean.is_nan(), "{s:?}");
            prop_assert!(!s.response_quantile(0.99).is_some_and(f64::is_nan));
        }
        if let Ok(service) = Distribution::general(a, c, None) {
            drop(mg1(b, &service));
            drop(mg1_ps(b, &service));
        }
        if let Ok(b) = erlang_b(a, m) {
            prop_assert!((0.0..=1.0).contains(&b));
        }
    }
}

/// Clients who never wait come and go for themselves: what is left of a step falls as e^(−(1/Z + µ)t).
#[test]
fn added_clients_who_never_wait_settle_exponentially() {
    let text = "population = 12\npopulation_before = 4\nthink_time_s = 2\nstations = [{ name = 's', \
                servers = 12, service_time_s = 0.5 }]";
    let model: kendall_queueing::Model = toml::from_str(text).unwrap();
    let solved = |model: &kendall_queueing::Model| {
        kendall_queueing::solver::solve(model, kendall_queueing::solver::Solver::Auto)
    };
    let settling = solved(&model).unwrap().settling.unwrap();
    let (before, after) = settling.number_mean;
    assert!((before - 4.0 / 5.0).abs() < 1e-9 && (after - 12.0 / 5.0).abs() < 1e-9);
    for (time, number) in &settling.curve {
        let want = after + (before - after) * (-2.5 * time).exp();
        assert!((number - want).abs() < 1e-9, "{number} at {time} s for {want}");
    }
    assert!((settling.time_s - 20_f64.ln() / 2.5).abs() < 1e-3, "{settling:?}");
    // One server, of which all but one wait: as fast as it serves.
    let one = text.replace("servers = 12, ", "");
    let model: kendall_queueing::Model = toml::from_str(&one).unwrap();
    let settling = solved(&model).unwrap().settling.unwrap();
    assert!(settling.time_s > 1.0 && settling.number_mean.1 > 7.0, "{settling:?}");
    for (from, to) in [
        ("before = 4", "before = 13"),
        ("population = 12\n", "arrival_rate_per_s = 1\n"),
        ("think_time_s = 2", "think_time_s = 0"),
    ] {
        let changed = text.replace(from, to).replace(
            "arrival_rate_per_s = 1\npopulation_before = 4\nthink_time_s = 2",
            "arrival_rate_per_s = 1\npopulation_before = 4",
        );
        let refused = toml::from_str::<kendall_queueing::Model>(&changed)
            .map_err(|error| error.to_string())
            .and_then(|model| solved(&model).map_err(|error| error.to_string()));
        let error = refused.unwrap_err();
        assert!(error.contains("population_before"), "{changed}: {error}");
    }
}
