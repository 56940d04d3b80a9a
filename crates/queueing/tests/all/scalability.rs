//! The Universal Scalability Law against published fits, identities, and hostile input.

#![allow(clippy::unwrap_used, reason = "what cannot be computed fails the test")]

use kendall_queueing::scalability::{Noise, Options, Usl, UslError, UslFit, fit, gustafson};
use proptest::prelude::*;

fn csv(text: &str) -> Vec<(f64, f64)> {
    text.lines()
        .filter_map(|line| {
            let (n, x) = line.split_once(',')?;
            Some((n.parse().ok()?, x.parse().ok()?))
        })
        .collect()
}

fn near(have: f64, want: f64, relative: f64) {
    assert!((have - want).abs() <= relative * want.abs(), "{have} for {want}");
}

fn fitted(measured: &[(f64, f64)]) -> UslFit {
    fit(measured, &Options::default()).expect("it can be fitted")
}

/// `build-cluster-usl.csv`, fitted with R's package usl; printed digits.
#[test]
fn the_build_cluster_is_as_published() {
    let fit = fitted(&csv(include_str!("../data/build-cluster-usl.csv")));
    let within = |have: f64, want: f64, last_digit: f64| {
        assert!((have - want).abs() <= 0.5001 * last_digit, "{have} for {want}");
    };
    within(fit.alpha.value, 0.068_065_2, 1e-7);
    within(fit.alpha.standard_error.unwrap(), 0.007_541_7, 1e-7);
    within(fit.beta.value, 0.004_992_7, 1e-7);
    within(fit.beta.standard_error.unwrap(), 0.000_427_8, 1e-7);
    within(fit.gamma.value, 8.286_141_5, 1e-7);
    within(fit.gamma.standard_error.unwrap(), 0.136_147_6, 1e-7);
    within(fit.residual_standard_error, 0.2835, 1e-4);
    assert_eq!(fit.degrees_of_freedom, 9);
    within(fit.limit.unwrap(), 121.7, 0.1);
    within(fit.peak_throughput.unwrap(), 41.54, 0.01);
    within(fit.peak_load.unwrap(), 13.66, 0.01);
    for (n, x) in [(16.0, 41.183_15), (32.0, 32.886_33), (64.0, 20.862_99)] {
        let predicted = fit.predict(n).unwrap();
        within(predicted.throughput, x, 1e-5);
        assert!(predicted.extrapolated && predicted.low < x && predicted.high > x);
    }
}

/// SPEC SDM91 of the R package usl, [Gunther07]; `pub-14`.
#[test]
fn specsdm91_is_as_published() {
    let loads = [1.0, 18.0, 36.0, 72.0, 108.0, 144.0, 216.0];
    let throughputs = [64.9, 995.9, 1652.4, 1853.2, 1828.9, 1775.0, 1702.2];
    let fit = fitted(&loads.into_iter().zip(throughputs).collect::<Vec<_>>());
    near(fit.alpha.value, 0.027_728_475_618_634_386, 1e-6);
    near(fit.beta.value, 0.000_104_365_483_844_090_89, 1e-6);
    near(fit.gamma.value, 89.995_233_104_332_21, 1e-6);
    near(fit.alpha.standard_error.unwrap(), 0.009_121_731_808_215_4, 1e-5);
    near(fit.beta.standard_error.unwrap(), 1.987_527_090_726_846e-5, 1e-5);
    near(fit.gamma.standard_error.unwrap(), 14.213_489_422_585_054, 1e-5);
    let (low, high) = fit.alpha.interval.unwrap();
    near(low, 0.002_402_487_988_787_719_3, 1e-5);
    near(high, 0.053_054_463_248_481_05, 1e-5);
    near(fit.peak_load.unwrap(), 96.519_560_966_609_42, 1e-6);
    near(fit.limit.unwrap(), 3_245.588_915_239_634, 1e-6);
    near(fit.optimal_load.unwrap(), 36.064_009_206_765_384, 1e-6);
    // The profile follows the curvature: it holds the estimate and is not symmetric.
    let (low, high) = fit.alpha.profile_interval.unwrap();
    assert!(low < fit.alpha.value && high > fit.alpha.value);
    assert!(((high - fit.alpha.value) - (fit.alpha.value - low)).abs() > 1e-4);
}

/// Raytracer of the R package usl: no measurement is missed, and all is well without N = 1.
#[test]
fn no_measurement_at_one_is_needed() {
    let truth = Usl { alpha: 0.03, beta: 1e-4, gamma: 120.0 };
    let measured: Vec<(f64, f64)> =
        [8.0, 16.0, 40.0, 90.0, 150.0].map(|n| (n, truth.throughput(n))).to_vec();
    let fit = fitted(&measured);
    near(fit.alpha.value, 0.03, 1e-6);
    near(fit.beta.value, 1e-4, 1e-6);
    near(fit.gamma.value, 120.0, 1e-6);
}

#[test]
fn a_negative_coefficient_is_held_at_zero_and_said_so() {
    // Better than linear at first: contention would be negative.
    let measured =
        [(1.0, 10.0), (2.0, 22.0), (4.0, 46.0), (8.0, 85.0), (16.0, 120.0), (32.0, 110.0)];
    let fit = fitted(&measured);
    assert!(fit.alpha.at_bound && fit.alpha.value.abs() < 1e-300);
    assert_eq!(fit.alpha.standard_error, None);
    assert_eq!(fit.limit, None);
    assert_eq!(fit.degrees_of_freedom, 4);
    // Linear growth: both are at their bound, and there is no peak.
    let linear: Vec<(f64, f64)> = (1..=6).map(|n| (f64::from(n), 7.0 * f64::from(n))).collect();
    let fit = fitted(&linear);
    near(fit.gamma.value, 7.0, 1e-9);
    assert!(fit.usl.alpha < 1e-9 && fit.usl.beta < 1e-9);
}

#[test]
fn special_cases_are_what_they_are_named_for() {
    let usl = Usl { alpha: 0.1, beta: 0.0, gamma: 1.0 };
    let amdahl = |n: f64, serial: f64| n / (1.0 + serial * (n - 1.0));
    near(usl.throughput(8.0), amdahl(8.0, 0.1), 1e-15);
    near(gustafson(8.0, 0.1), 8.0 - 0.7, 1e-15);
    let measured: Vec<(f64, f64)> =
        [1.0, 2.0, 4.0, 8.0, 16.0].map(|n| (n, 5.0 * amdahl(n, 0.1))).to_vec();
    let options = Options { amdahl: true, ..Options::default() };
    let fitted = fit(&measured, &options).unwrap();
    near(fitted.alpha.value, 0.1, 1e-9);
    assert_eq!(fitted.peak_load, None);
    let options = Options { gamma: Some(5.0), ..Options::default() };
    let fitted = fit(&measured, &options).unwrap();
    near(fitted.alpha.value, 0.1, 1e-9);
    assert_eq!(fitted.gamma.standard_error, None);
}

#[test]
fn what_cannot_be_fitted_is_refused_with_the_way_out() {
    let refused = |measured: &[(f64, f64)]| fit(measured, &Options::default()).unwrap_err();
    assert!(matches!(refused(&[]), UslError::TooFew { .. }));
    assert!(matches!(refused(&[(1.0, 1.0)]), UslError::TooFew { .. }));
    let same = [(4.0, 1.0), (4.0, 1.1), (4.0, 0.9), (4.0, 1.0), (4.0, 1.2)];
    assert!(refused(&same).to_string().contains("at 1 different load:"));
    assert!(matches!(refused(&[(1.0, f64::NAN)]), UslError::Measurement { index: 0, .. }));
    assert!(matches!(refused(&[(-1.0, 1.0)]), UslError::Measurement { .. }));
    assert!(matches!(
        refused(&[(1.0, 0.0), (2.0, 0.0), (3.0, 0.0), (4.0, 0.0)]),
        UslError::NoThroughput
    ));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Exact data give the law back.
    #[test]
    fn exact_data_give_the_law_back(
        alpha in 1e-4..0.5_f64, beta in 1e-6..1e-2_f64, gamma in 1e-3..1e6_f64,
    ) {
        let truth = Usl { alpha, beta, gamma };
        let peak = truth.peak_load().unwrap();
        let measured: Vec<(f64, f64)> = [0.1, 0.3, 0.6, 0.9, 1.3, 2.0, 3.0]
            .iter()
            .map(|share| {
                let n = 1.0 + share * peak;
                (n, truth.throughput(n))
            })
            .collect();
        let fit = fitted(&measured);
        prop_assert!((fit.alpha.value - alpha).abs() <= 1e-5 * alpha + 1e-7);
        prop_assert!((fit.beta.value - beta).abs() <= 1e-5 * beta);
        prop_assert!((fit.gamma.value - gamma).abs() <= 1e-5 * gamma);
    }

    /// Whatever the input, an answer in which every number is finite, or an error: no panic.
    #[test]
    fn any_input_is_answered(
        measured in prop::collection::vec(
            (
                prop_oneof![Just(f64::NAN), Just(0.0), -1.0..1e3_f64, 1.0..64.0_f64, Just(1e300)],
                prop_oneof![Just(f64::INFINITY), Just(0.0), -1.0..1e6_f64, 1.0..10.0_f64],
            ),
            0..12,
        ),
        clean in any::<bool>(),
    ) {
        let measured: Vec<(f64, f64)> = measured
            .into_iter()
            .map(|(n, x)| if clean { (n.abs().clamp(0.5, 1e6), x.abs().min(1e9)) } else { (n, x) })
            .map(|(n, x)| if clean && n.is_nan() { (1.0, x) } else { (n, x) })
            .collect();
        if let Ok(fit) = fit(&measured, &Options::default()) {
            prop_assert!(fit.usl.alpha >= 0.0 && fit.usl.beta >= 0.0 && fit.usl.gamma > 0.0);
            prop_assert!(fit.residual_standard_error.is_finite());
            let worst = measured.iter().map(|(n, x)| (x - fit.usl.throughput(*n)).abs());
            prop_assert!(worst.fold(0.0, f64::max).is_finite());
        }
    }
}

/// Normal numbers without a dependency: twelve uniform ones less six, tails cut at 6.
fn normal(state: &mut u64) -> f64 {
    let mut sum = -6.0;
    for _ in 0..12 {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        sum += f64::from(u32::try_from(*state >> 33).unwrap()) / 2_147_483_648.0;
    }
    sum
}

/// Share of 300 data sets with errors of 5 % of the throughput (or of one size) in which β, and the
/// band at the peak, hold the truth.
fn coverage(noise: Noise, proportional: bool) -> (f64, f64) {
    let truth = Usl { alpha: 0.03, beta: 0.001, gamma: 100.0 };
    let loads = [1.0, 2.0, 4.0, 8.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0];
    let at = truth.peak_load().unwrap();
    let (mut beta, mut band) = (0.0, 0.0);
    let mut state = 7_u64;
    for _ in 0..300 {
        let measured: Vec<(f64, f64)> = loads
            .iter()
            .chain(&loads)
            .map(|n| {
                let x = truth.throughput(*n);
                (*n, x + 0.05 * if proportional { x } else { 1_000.0 } * normal(&mut state))
            })
            .filter(|(_, x)| *x > 0.0)
            .collect();
        let found = fit(&measured, &Options { noise, ..Options::default() }).unwrap();
        let held = |(low, high): (f64, f64), truth| u8::from(low <= truth && truth <= high);
        beta += f64::from(found.beta.interval.map_or(0, |i| held(i, truth.beta))) / 300.0;
        let at_peak = found.predict(at).unwrap();
        band += f64::from(held((at_peak.low, at_peak.high), truth.throughput(at))) / 300.0;
    }
    (beta, band)
}

/// Errors that are shares of the throughput, where plain least squares fell to 84 to 89 %: asked
/// for, 95 % less three standard errors of 300 data sets (3.8 %). Choosing by the likelihood is
/// sometimes wrong, which costs the band some 3 % (measured: 91.7); with errors of one size nothing.
#[test]
fn intervals_hold_for_either_kind_of_error() {
    for (noise, proportional, least) in
        [(Noise::Proportional, true, 0.91), (Noise::Auto, true, 0.88), (Noise::Auto, false, 0.91)]
    {
        let (beta, band) = coverage(noise, proportional);
        println!("{noise:?}, proportional {proportional}: β {beta:.3}, band {band:.3}");
        assert!(beta > least && band > least, "{noise:?}, {proportional}: {beta} {band}");
    }
}

/// A curve that falls from the start has no peak, and zeros are refused instead of fitted.
#[test]
fn what_is_no_peak_is_not_called_one() {
    let falling: Vec<(f64, f64)> =
        [(1.0, 100.0), (2.0, 60.0), (4.0, 35.0), (8.0, 18.0), (16.0, 9.0)].to_vec();
    let found = fit(&falling, &Options::default()).unwrap();
    assert!(found.peak_load.is_none() && found.peak_throughput.is_none(), "{found:?}");
    let zeros = [(1.0, 10.0), (2.0, 0.0), (4.0, 0.0), (8.0, 30.0), (16.0, 40.0)];
    let error = fit(&zeros, &Options::default()).unwrap_err();
    assert!(matches!(error, UslError::Zeros { zeros: 2, measurements: 5 }), "{error}");
}
