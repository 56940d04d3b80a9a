//! Chance: one stream of random numbers a source, all from one seed, and samples of every
//! distribution of the model description.

use rand::RngExt as _;
use rand::SeedableRng as _;
use rand_distr::{Distribution as _, Exp1, Gamma, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::distribution::Distribution;

/// A stream of random numbers.
pub(super) type Stream = Xoshiro256PlusPlus;

/// `count` streams for one replication. Streams and replications are stretches of the one sequence
/// that the seed fixes, 2^128 and 2^192 draws long, so none meets another.
///
/// # Source
/// Blackman and Vigna 2021, jump functions of xoshiro256++.
pub(super) fn streams(seed: u64, replication: u32, count: usize) -> Vec<Stream> {
    let mut stream = Stream::seed_from_u64(seed);
    for _ in 0..replication {
        stream.long_jump();
    }
    (0..count)
        .map(|_| {
            let own = stream.clone();
            stream.jump();
            own
        })
        .collect()
}

/// A distribution made ready for drawing: Erlang's of few stages as their sum, `span` as 1 − (low/high)^shape.
#[derive(Debug, Clone)]
pub(super) enum Sampler {
    Deterministic(f64),
    Exponential(f64),
    Erlang { stages: u32, stage_mean: f64 },
    Hyperexponential { cumulative: Box<[f64]>, means: Box<[f64]> },
    Lognormal { location: f64, scale: f64 },
    Uniform { low: f64, width: f64 },
    Gamma(Gamma<f64>),
    Weibull { exponent: f64, scale: f64 },
    BoundedPareto { exponent: f64, low: f64, span: f64 },
    TruncatedNormal { location: f64, scale: f64 },
    Empirical(Box<[f64]>),
    Trace(Box<[f64]>),
    Phases(Box<Phases>),
}

/// A walk through phases: where it begins, and for each phase its mean duration and the cumulative
/// probabilities of what follows: every phase without an event, then every phase with one.
#[derive(Debug, Clone)]
pub(super) struct Phases {
    begins: Box<[f64]>,
    means: Box<[f64]>,
    follows: Box<[Box<[f64]>]>,
}

/// Where a source is that nothing was drawn from yet: in which phase, or at which value of a trace.
pub(super) const BEGINNING: u32 = u32::MAX;

/// Stages up to which a sum of exponentials is cheaper than a gamma variate.
const FEW_STAGES: u32 = 8;

impl Sampler {
    pub(super) fn new(distribution: &Distribution) -> Self {
        match distribution {
            Distribution::Exponential { mean_s } => Self::Exponential(*mean_s),
            Distribution::Deterministic { value_s } => Self::Deterministic(*value_s),
            Distribution::Erlang { stages, mean_s } if *stages <= FEW_STAGES => {
                Self::Erlang { stages: *stages, stage_mean: mean_s / f64::from(*stages) }
            }
            Distribution::Erlang { stages, mean_s } => gamma(*mean_s, 1.0 / f64::from(*stages)),
            Distribution::Hyperexponential { probabilities, means_s } => {
                let mut sum = 0.0;
                let cumulative = probabilities.iter().map(|p| {
                    sum += p;
                    sum
                });
                Self::Hyperexponential {
                    cumulative: cumulative.collect(),
                    means: means_s.clone().into(),
                }
            }
            Distribution::Lognormal { mean_s, scv } => {
                let variance = scv.ln_1p();
                Self::Lognormal { location: mean_s.ln() - variance / 2.0, scale: variance.sqrt() }
            }
            Distribution::Uniform { low_s, high_s } => {
                Self::Uniform { low: *low_s, width: high_s - low_s }
            }
            Distribution::Gamma { mean_s, scv } => gamma(*mean_s, *scv),
            Distribution::Weibull { shape, scale_s } => {
                Self::Weibull { exponent: 1.0 / shape, scale: *scale_s }
            }
            Distribution::BoundedPareto { shape, low_s, high_s } => Self::BoundedPareto {
                exponent: -1.0 / shape,
                low: *low_s,
                span: -(shape * (low_s / high_s).ln()).exp_m1(),
            },
            Distribution::TruncatedNormal { location_s, scale_s } => {
                Self::TruncatedNormal { location: *location_s, scale: *scale_s }
            }
            Distribution::Empirical { values_s } => Self::Empirical(values_s.clone().into()),
            Distribution::Trace { values_s } => Self::Trace(values_s.clone().into()),
            Distribution::PhaseType { .. } | Distribution::Map { .. } => phases(distribution)
                .map_or(Self::Exponential(distribution.mean()), |p| Self::Phases(Box::new(p))),
            Distribution::General { mean_s, scv, .. } => general(*mean_s, *scv),
        }
    }

    /// The next time, in seconds; never negative. `at` is where the source is in what goes on from
    /// one time to the next.
    #[inline]
    pub(super) fn sample(&self, stream: &mut Stream, at: &mut u32) -> f64 {
        match self {
            Self::Exponential(mean) => mean * exponential(stream),
            Self::Deterministic(value) => *value,
            _ => self.sample_other(stream, at),
        }
    }

    fn sample_other(&self, stream: &mut Stream, at: &mut u32) -> f64 {
        match self {
            Self::Trace(values) => {
                if *at == BEGINNING {
                    *at = index(stream.random_range(0..values.len()));
                }
                let value = values[*at as usize];
                *at = (*at + 1) % index(values.len());
                value
            }
            Self::Phases(phases) => phases.walk(stream, at),
            Self::Deterministic(value) => *value,
            Self::Exponential(mean) => mean * exponential(stream),
            Self::Erlang { stages, stage_mean } => {
                (0..*stages).map(|_| exponential(stream)).sum::<f64>() * stage_mean
            }
            Self::Hyperexponential { cumulative, means } => {
                means[pick(cumulative, stream)] * exponential(stream)
            }
            Self::Lognormal { location, scale } => (location + scale * normal(stream)).exp(),
            Self::Uniform { low, width } => low + width * stream.random::<f64>(),
            Self::Gamma(gamma) => gamma.sample(stream),
            Self::Weibull { exponent, scale } => scale * exponential(stream).powf(*exponent),
            Self::BoundedPareto { exponent, low, span } => {
                low * (1.0 - span * stream.random::<f64>()).powf(*exponent)
            }
            Self::TruncatedNormal { location, scale } => loop {
                let normal = normal(stream);
                let value = location + scale * normal;
                if value > 0.0 {
                    return value;
                }
            },
            Self::Empirical(values) => values[stream.random_range(0..values.len())],
        }
    }
}

impl Phases {
    fn walk(&self, stream: &mut Stream, at: &mut u32) -> f64 {
        let count = self.means.len();
        let mut phase = if *at == BEGINNING { pick(&self.begins, stream) } else { *at as usize };
        let mut time = 0.0;
        loop {
            time += self.means[phase] * exponential(stream);
            let next = pick(&self.follows[phase], stream);
            if next >= count {
                *at = index(next - count);
                return time;
            }
            phase = next;
        }
    }
}

fn index(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(BEGINNING - 1)
}

fn phases(distribution: &Distribution) -> Option<Phases> {
    let process = distribution.process()?;
    let cumulative = |weights: &mut dyn Iterator<Item = f64>| -> Box<[f64]> {
        let mut sum = 0.0;
        weights
            .map(|p| {
                sum += p;
                sum
            })
            .collect()
    };
    let count = process.hidden.nrows();
    let follows = (0..count).map(|i| {
        let leaving = -process.hidden[(i, i)];
        let hidden = (0..count).map(|j| if i == j { 0.0 } else { process.hidden[(i, j)] });
        let marked = (0..count).map(|j| process.marked[(i, j)]);
        cumulative(&mut hidden.chain(marked).map(|rate| rate / leaving))
    });
    Some(Phases {
        follows: follows.collect(),
        begins: cumulative(&mut process.after_event()?.iter().copied()),
        means: (0..count).map(|i| -1.0 / process.hidden[(i, i)]).collect(),
    })
}

/// Index of the first cumulative probability above a uniform draw.
#[inline]
pub(super) fn pick(cumulative: &[f64], stream: &mut Stream) -> usize {
    let draw = stream.random::<f64>();
    let last = cumulative.len() - 1;
    cumulative[..last].iter().position(|&c| draw < c).unwrap_or(last)
}

#[inline]
fn exponential(stream: &mut Stream) -> f64 {
    Exp1.sample(stream)
}

#[inline]
fn normal(stream: &mut Stream) -> f64 {
    StandardNormal.sample(stream)
}

fn gamma(mean: f64, scv: f64) -> Sampler {
    Gamma::new(1.0 / scv, mean * scv).map_or(Sampler::Deterministic(mean), Sampler::Gamma)
}

/// Two moments only: deterministic, gamma, exponential or balanced hyper-exponential.
fn general(mean: f64, scv: f64) -> Sampler {
    if mean <= 0.0 || scv <= 0.0 {
        return Sampler::Deterministic(mean);
    }
    if scv > 1.0
        && let Ok(balanced) = Distribution::hyperexponential_balanced(mean, scv)
    {
        return Sampler::new(&balanced);
    }
    if (scv - 1.0).abs() < 1e-12 { Sampler::Exponential(mean) } else { gamma(mean, scv) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_between_sources_and_replications_and_repeat_for_a_seed() {
        let draw = |seed, replication: u32| -> Vec<u64> {
            streams(seed, replication, 3).iter_mut().map(|s| s.random::<u64>()).collect()
        };
        let first = draw(1, 0);
        assert_eq!(first, draw(1, 0));
        let all: std::collections::BTreeSet<u64> =
            [first, draw(1, 1), draw(2, 0)].into_iter().flatten().collect();
        assert_eq!(all.len(), 9);
    }

    /// Mean and second moment of 200,000 draws lie within five standard errors of the moments
    /// that the description states.
    #[test]
    fn samples_have_the_moments_of_their_distribution() {
        let distributions = [
            Distribution::exponential(2.0),
            Distribution::deterministic(2.0),
            Distribution::erlang(3, 2.0),
            Distribution::erlang(40, 2.0),
            Distribution::hyperexponential_balanced(2.0, 3.0),
            Distribution::lognormal(2.0, 0.5),
            Distribution::uniform(1.0, 4.0),
            Distribution::gamma(2.0, 0.7),
            Distribution::weibull(1.5, 2.0),
            Distribution::bounded_pareto(2.5, 1.0, 50.0),
            Distribution::truncated_normal(1.0, 1.0),
            Distribution::empirical(vec![1.0, 2.0, 6.0]),
            Distribution::general(2.0, 0.4, None),
            Distribution::general(2.0, 4.0, None),
            Distribution::phases_of_moments(2.0, 0.3),
            Distribution::coxian(&[2.0, 0.5], &[0.4]),
        ];
        let mut stream = streams(7, 0, 1).remove(0);
        for distribution in distributions {
            let distribution = distribution.unwrap();
            let sampler = Sampler::new(&distribution);
            let n = 200_000;
            for order in [1, 2] {
                let draws: Vec<f64> = (0..n)
                    .map(|_| sampler.sample(&mut stream, &mut { BEGINNING }).powi(order))
                    .collect();
                let count = f64::from(n);
                let mean = draws.iter().sum::<f64>() / count;
                let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
                let expected = distribution.moment(order.unsigned_abs()).unwrap();
                let tolerance = 5.0 * (variance / count).sqrt() + 1e-12;
                assert!((mean - expected).abs() <= tolerance, "{distribution:?} {mean} {expected}");
            }
        }
    }
}
