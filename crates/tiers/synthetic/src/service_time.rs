//! Numbers that service times are drawn from.

use kendall_tier::distribution::Distribution;
use kendall_units::Seconds;
use rand::{Rng, RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Sets the numbers of service times apart from those of a load with the same seed, whose gaps between
/// arrivals they would repeat: each service as long as the gap before or behind it is no M/M/1.
const SERVICE_TIMES: u64 = 0x7365_7276_6963_6573;

/// The numbers that service times are drawn from: others for every seed, and for every run.
pub(crate) fn numbers(seed: u64, run: u64) -> Xoshiro256PlusPlus {
    let of_seed: u64 = Xoshiro256PlusPlus::seed_from_u64(seed ^ SERVICE_TIMES).random();
    Xoshiro256PlusPlus::seed_from_u64(of_seed ^ run)
}

/// A service time, in nanoseconds.
pub(crate) fn draw_ns(service_time: &Distribution, rng: &mut impl Rng) -> u64 {
    Seconds::new(service_time.sample(rng)).as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kendall_tier::distribution::Unit;
    use rand_distr::{Distribution as _, Exp1};

    /// A load draws the gaps between its arrivals from the numbers of the seed itself. Correlations of
    /// 10,000 independent pairs have a standard deviation of 0.01; the tolerance is five of these.
    #[test]
    fn service_times_resemble_neither_the_gaps_of_a_load_nor_those_of_another_run() {
        let exponential = |mut rng: Xoshiro256PlusPlus| -> Vec<f64> {
            (0..10_001).map(|_| Exp1.sample(&mut rng)).collect()
        };
        // Mean and variance of the exponential distribution are 1.
        let correlation = |one: &[f64], other: &[f64]| {
            one.iter().zip(other).map(|(a, b)| (a - 1.0) * (b - 1.0)).sum::<f64>() / 10_000.0
        };
        for seed in [0, 1, 7] {
            let gaps = exponential(Xoshiro256PlusPlus::seed_from_u64(seed));
            let times = exponential(numbers(seed, 0));
            for other in [&gaps, &exponential(numbers(seed, 1)), &exponential(numbers(seed + 1, 0))]
            {
                for (a, b) in
                    [(&times[..], &other[..]), (&times, &other[1..]), (&times[1..], other)]
                {
                    let found = correlation(a, b);
                    assert!(found.abs() < 0.05, "seed {seed}: {found}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        for text in [
            "",
            "5",
            "exponential",
            "exponential:5",
            "uniform:6ms..4ms",
            "uniform:4ms",
            "normal:5ms",
            "erlang:0,5ms",
            "erlang:1.5,5ms",
            "hyperexponential:5ms,0.5",
            "hyperexponential:5ms,nan",
            "gamma:5ms,1",
        ] {
            assert!(Distribution::parse(text, Unit::Time).is_err(), "{text}");
        }
    }

    /// Mean and squared coefficient of variation of 100,000 draws, in units of the stated ones.
    /// The tolerance is five standard errors, those of the variance by the fourth moment of the
    /// widest (H_2 with SCV 4: kurtosis below 40).
    #[test]
    fn draws_have_the_stated_mean_and_variation() {
        let cases = [
            ("5ms", 0.0),
            ("exponential:5ms", 1.0),
            ("uniform:4ms..6ms", 1.0 / 75.0),
            ("normal:5ms,1ms", 0.04),
            ("erlang:4,5ms", 0.25),
            ("hyperexponential:5ms,4", 4.0),
        ];
        for (text, scv) in cases {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
            let distribution = Distribution::parse(text, Unit::Time).unwrap();
            let draws: Vec<f64> = (0..100_000)
                .map(|_| kendall_units::exact_f64(draw_ns(&distribution, &mut rng)) / 5e6)
                .collect();
            let count = 1e5_f64;
            let mean = draws.iter().sum::<f64>() / count;
            let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
            assert!((mean - 1.0).abs() <= 5.0 * (scv / count).sqrt() + 1e-6, "{text}: {mean}");
            let error = 5.0 * scv * (40.0 / count).sqrt();
            assert!((variance - scv).abs() <= error + 1e-6, "{text}: {variance}");
        }
    }
}
