//! Operations by their weights: read, in turns, or drawn.

use rand::Rng as _;

use crate::random::Random;

/// Reads weights by name such as `set=1,get=10`, each name once; one that is not written is `usual`. What weighs 0 is
/// left out, and something must be left.
pub(crate) fn weights<T: PartialEq>(
    text: &str,
    usual: Option<f64>,
    named: impl Fn(&str) -> Option<T>,
) -> Option<Vec<(T, f64)>> {
    let mut all: Vec<(T, f64)> = Vec::new();
    for part in text.split(',') {
        let (name, weight) = match part.split_once('=') {
            Some((name, weight)) => (name, weight.trim().parse::<f64>().ok()?),
            None => (part, usual?),
        };
        let one = named(name.trim())?;
        if !(weight.is_finite() && weight >= 0.0) || all.iter().any(|(seen, _)| *seen == one) {
            return None;
        }
        all.push((one, weight));
    }
    all.retain(|(_, weight)| *weight > 0.0);
    (!all.is_empty()).then_some(all)
}

/// Draws operations by their weights.
#[derive(Debug, Clone)]
pub(crate) struct Weighted {
    /// Upper ends of the shares on the scale of 32 random bits.
    bounds: Vec<u64>,
}

impl Weighted {
    pub(crate) fn new(weights: impl Iterator<Item = f64> + Clone) -> Self {
        const SCALE: f64 = 4_294_967_296.0; // 2^32
        let total: f64 = weights.clone().sum();
        let mut sum = 0.0;
        let bound = |weight| {
            sum += weight;
            kendall_units::whole_u64((sum / total * SCALE).round())
        };
        Self { bounds: weights.map(bound).collect() }
    }

    /// The number of an operation. A single one needs no draw.
    pub(crate) fn draw(&self, random: &mut Random) -> usize {
        if self.bounds.len() == 1 {
            return 0;
        }
        let draw = random.next_u64() >> 32;
        self.bounds.iter().position(|bound| draw < *bound).unwrap_or(self.bounds.len() - 1)
    }
}

/// The operation that is furthest behind its share, which has its turn now. `owed` has a place for
/// each weight and is kept from turn to turn.
pub(crate) fn furthest_behind(weights: impl Iterator<Item = f64>, owed: &mut [f64]) -> usize {
    let (mut most, mut total) = (0, 0.0);
    for (place, weight) in weights.enumerate() {
        owed[place] += weight;
        total += weight;
        if owed[place] > owed[most] {
            most = place;
        }
    }
    owed[most] -= total;
    most
}
