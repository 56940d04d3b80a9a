//! For fuzzing: what a monitoring server answers.

use crate::grid::Grid;
use crate::prometheus;

/// An answer to a range query, as a server sends it or a recording keeps it.
///
/// # Panics
/// Where what was read does not fit the moments that were asked for.
pub fn answer(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let grid = Grid { from_s: 1_764_000_000, step_s: 15, count: 61 };
    match prometheus::parse_matrix(text, "rate(a[1m])", &grid) {
        Ok(series) => assert!(series.iter().all(|one| one.values.len() == grid.len())),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    prometheus::took_too_long(text);
}
