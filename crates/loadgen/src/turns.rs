//! Operations by their weights: in turns, or drawn.

use rand::Rng as _;

use crate::random::Random;

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
