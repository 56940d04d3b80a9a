//! What a link does to the bytes that it carries, and how that is written.

use std::fmt;

use kendall_units::{QuantityError, Seconds, parse_bandwidth, parse_seconds};
use rand::{Rng, RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, Exp, Normal};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

/// Sets the numbers of jitter apart from those of a load with the same seed, whose gaps between arrivals
/// they would repeat.
const JITTER: u64 = 0x006a_6974_7465_7273;

/// The numbers that jitter is drawn from.
pub(crate) fn numbers(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed ^ JITTER)
}

/// How one route treats what it carries, each way alike but for the bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Shape {
    /// Time that every byte is held at least, before jitter.
    pub delay: Seconds,
    /// What is drawn for each piece and added to the delay.
    pub jitter: Jitter,
    /// Bytes per second toward the server and back, shared by the connections of a route; `None` is unlimited.
    pub bandwidth: [Option<u64>; 2],
    /// What is broken just now.
    pub fault: Fault,
}

/// A random part of the delay. Drawn once for each piece that is read; a sum below zero counts as
/// zero, and a piece never overtakes the one before it on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Jitter {
    /// None: the delay is constant.
    #[default]
    Constant,
    /// Uniform on ± this time around the delay.
    Uniform(Seconds),
    /// Normal around the delay with this standard deviation.
    Normal(Seconds),
    /// Exponential with this mean, on top of the delay.
    Exponential(Seconds),
}

/// A fault of the network, on until it is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    #[default]
    None,
    /// Nothing is forwarded and no connection is accepted; all that arrives is held until the stop ends.
    Stop,
    /// All connections are reset, and each new one is reset at once.
    Cut,
    /// Open connections go on, each new one is reset at once.
    DropNew,
}

/// A change of a [`Shape`] while the link runs, as the control address takes it. What is left out
/// stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShapeChange {
    /// Index of the route, in the order of the command line; all of them when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<usize>,
    /// Such as `0.5ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// Such as `constant`, `uniform:0.1ms`, `normal:0.1ms`, `exponential:0.1ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<String>,
    /// Such as `10MB/s`, `100Mbit/s` or `unlimited`, each way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<String>,
    /// The same of the way back, where it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_back: Option<String>,
    /// `none`, `stop`, `cut` or `drop-new`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

impl ShapeChange {
    /// `shape` with this change.
    pub fn applied_to(&self, mut shape: Shape) -> Result<Shape, QuantityError> {
        if let Some(delay) = &self.delay {
            shape.delay = parse_seconds(delay)?;
        }
        if let Some(jitter) = &self.jitter {
            shape.jitter = parse_jitter(jitter)?;
        }
        if let Some(bandwidth) = &self.bandwidth {
            shape.bandwidth = [parse_bandwidth(bandwidth)?; 2];
        }
        if let Some(back) = &self.bandwidth_back {
            shape.bandwidth[1] = parse_bandwidth(back)?;
        }
        if let Some(fault) = self.fault {
            shape.fault = fault;
        }
        Ok(shape)
    }
}

impl Shape {
    /// How long a piece is held, in nanoseconds, jitter drawn from `rng`.
    pub(crate) fn draw_hold_ns(&self, rng: &mut impl Rng) -> u64 {
        let jitter = match self.jitter {
            Jitter::Constant => return self.delay.as_nanos(),
            Jitter::Uniform(half) => rng.random_range(-half.get()..=half.get()),
            Jitter::Normal(deviation) => Normal::new(0.0, deviation.get())
                .map_or(0.0, |distribution| distribution.sample(rng)),
            Jitter::Exponential(mean) => {
                Exp::new(mean.recip().get()).map_or(0.0, |distribution| distribution.sample(rng))
            }
        };
        (self.delay + Seconds::new(jitter)).as_nanos()
    }
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, time) = match self {
            Self::Constant => return f.write_str("constant"),
            Self::Uniform(time) => ("uniform", time),
            Self::Normal(time) => ("normal", time),
            Self::Exponential(time) => ("exponential", time),
        };
        write!(f, "{name}:{}ns", time.as_nanos())
    }
}

/// A jitter such as `constant`, `uniform:0.1ms`, `normal:0.1ms` or `exponential:0.1ms`.
///
/// # Example
/// ```
/// use kendall_link::{Jitter, parse_jitter};
/// use kendall_units::Seconds;
/// assert_eq!(parse_jitter("normal:0.1ms").unwrap(), Jitter::Normal(Seconds::new(0.0001)));
/// ```
pub fn parse_jitter(text: &str) -> Result<Jitter, QuantityError> {
    let refused = || QuantityError {
        text: text.to_owned(),
        what: "a jitter",
        example: "`constant`, `uniform:0.1ms`, `normal:0.1ms` or `exponential:0.1ms`",
    };
    if text.trim() == "constant" {
        return Ok(Jitter::Constant);
    }
    let (name, time) = text.trim().split_once(':').ok_or_else(refused)?;
    let time = parse_seconds(time)?;
    if time == Seconds::ZERO {
        return Ok(Jitter::Constant);
    }
    match name {
        "uniform" => Ok(Jitter::Uniform(time)),
        "normal" => Ok(Jitter::Normal(time)),
        "exponential" => Ok(Jitter::Exponential(time)),
        _ => Err(refused()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_has_numbers_of_its_own() {
        for seed in [0, 1, 42] {
            let mut of_a_load = Xoshiro256PlusPlus::seed_from_u64(seed);
            let load: Vec<u64> = (0..100).map(|_| of_a_load.random()).collect();
            let mut ours = numbers(seed);
            assert!((0..100).all(|_| !load.contains(&ours.random())), "seed {seed}");
        }
    }

    #[test]
    fn what_is_no_jitter_is_refused_with_the_accepted_form() {
        for text in ["normal", "normal:", "normal:0.1", "gamma:1ms", "normal:-1ms", ""] {
            assert!(parse_jitter(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_printed_jitter_is_read_back() {
        for text in ["constant", "uniform:100000ns", "normal:5ns", "exponential:1000000ns"] {
            assert_eq!(parse_jitter(text).unwrap().to_string(), text);
        }
    }

    /// Means of 40,000 draws; the tolerance is five standard errors.
    #[test]
    fn drawn_holds_have_the_stated_mean() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let millisecond = Seconds::from_millis(1.0);
        let cases = [
            (Jitter::Constant, 1e6, 0.0),
            (Jitter::Uniform(Seconds::from_millis(0.3)), 1e6, 0.3e6 / 3_f64.sqrt()),
            (Jitter::Normal(Seconds::from_millis(0.1)), 1e6, 0.1e6),
            (Jitter::Exponential(Seconds::from_millis(0.5)), 1.5e6, 0.5e6),
        ];
        let draws = 40_000_u32;
        for (jitter, mean, deviation) in cases {
            let shape = Shape { delay: millisecond, jitter, ..Shape::default() };
            let sum: f64 =
                (0..draws).map(|_| kendall_units::exact_f64(shape.draw_hold_ns(&mut rng))).sum();
            let error = (sum / f64::from(draws) - mean).abs();
            assert!(error <= 5.0 * deviation / f64::from(draws).sqrt() + 1.0, "{jitter}: {error}");
        }
    }

    #[test]
    fn a_negative_sum_counts_as_no_delay() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let shape = Shape { jitter: Jitter::Normal(Seconds::from_millis(1.0)), ..Shape::default() };
        assert!((0..100).map(|_| shape.draw_hold_ns(&mut rng)).any(|hold| hold == 0));
    }

    #[test]
    fn a_change_leaves_the_rest_and_names_what_is_wrong() {
        let before = Shape { bandwidth: [Some(5); 2], ..Shape::default() };
        let change = ShapeChange { delay: Some("2ms".into()), ..ShapeChange::default() };
        let after = change.applied_to(before).unwrap();
        assert_eq!((after.delay, after.bandwidth), (Seconds::from_millis(2.0), [Some(5); 2]));
        let back = ShapeChange { bandwidth_back: Some("7B/s".into()), ..ShapeChange::default() };
        assert_eq!(back.applied_to(before).unwrap().bandwidth, [Some(5), Some(7)]);
        let wrong = ShapeChange { delay: Some("2".into()), ..ShapeChange::default() };
        assert!(wrong.applied_to(before).unwrap_err().to_string().contains("`2` is not a time"));
    }
}
