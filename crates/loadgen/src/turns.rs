//! Operations in turns by their weights.

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
