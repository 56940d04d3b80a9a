//! A histogram that one thread writes and any other may read.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use kendall_stats::histogram::Histogram;
use kendall_units::exact_f64;

/// Cells of one power of two: three significant digits need 1,024 of them, as in HdrHistogram.
const CELLS: usize = 1 << CELL_BITS;
const CELL_BITS: u32 = 10;

/// The first chunk holds 0 to 2,047 exactly, and each further one twice the range of the one
/// before. The last ends at 2^42 ns, 73 minutes, where longer times are counted.
const CHUNKS: usize = 32;
const LARGEST: u64 = (1 << 42) - 1;

/// Nanoseconds in the cells of an HdrHistogram with three digits. A chunk of cells is made when
/// its range is first needed, so a histogram costs 8 KiB for each power of two that it met.
#[derive(Debug)]
pub(crate) struct SharedHistogram {
    chunks: [OnceLock<Box<[AtomicU64]>>; CHUNKS + 1],
}

impl SharedHistogram {
    pub(crate) fn new() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS + 1] }
    }

    /// Records one value. Only one thread may do so: a second would lose counts, nothing else.
    #[inline]
    pub(crate) fn record(&self, nanoseconds: u64) {
        let (chunk, cell) = position(nanoseconds.min(LARGEST));
        let cells =
            self.chunks[chunk].get_or_init(|| (0..CELLS).map(|_| AtomicU64::new(0)).collect());
        increase(&cells[cell], 1);
    }

    /// Sum of what was recorded so far, to the width of a cell (a thousandth), and how many values.
    pub(crate) fn sum(&self) -> (f64, u64) {
        self.cells().fold((0.0, 0), |(sum, all), (value, count)| {
            (sum + exact_f64(value) * exact_f64(count), all + count)
        })
    }

    /// Adds what was recorded so far to `total`.
    pub(crate) fn add_to(&self, total: &mut Histogram) {
        self.cells().for_each(|(value, count)| total.record_n(value, count));
    }

    /// The smallest value of each cell that has any, and how many it has.
    fn cells(&self) -> impl Iterator<Item = (u64, u64)> {
        let chunks = self.chunks.iter().enumerate();
        let met = chunks.filter_map(|(chunk, cells)| Some((chunk, cells.get()?)));
        let cells = met.flat_map(|(chunk, cells)| {
            let counts = cells.iter().map(|count| count.load(Ordering::Relaxed));
            counts.enumerate().map(move |(cell, count)| (value(chunk, cell), count))
        });
        cells.filter(|(_, count)| *count > 0)
    }
}

/// Adds to a counter that only this thread writes: no locked instruction.
#[inline]
pub(crate) fn increase(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

#[inline]
fn position(value: u64) -> (usize, usize) {
    // Bits above the ten that a cell number has, with its leading one.
    let shift = (u64::BITS - (value | ((CELLS as u64) - 1)).leading_zeros()) - CELL_BITS;
    if shift == 0 {
        return (0, low_bits(value));
    }
    let shift = shift - 1;
    (shift as usize + 1, low_bits((value >> shift) - CELLS as u64))
}

/// Smallest value of a cell.
fn value(chunk: usize, cell: usize) -> u64 {
    if chunk == 0 { cell as u64 } else { (CELLS as u64 + cell as u64) << (chunk - 1) }
}

#[expect(clippy::cast_possible_truncation, reason = "below 1,024 by construction")]
fn low_bits(cell: u64) -> usize {
    cell as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_into_the_cell_that_hdr_histogram_puts_it_in() {
        let shared = SharedHistogram::new();
        let mut expected = Histogram::new();
        let mut state = 1_u64;
        for shift in 22..64 {
            for _ in 0..50 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                shared.record(state >> shift);
                expected.record(state >> shift);
            }
        }
        for edge in [0, 1, 1023, 1024, 2047, 2048, 4095, 4096, LARGEST] {
            shared.record(edge);
            expected.record(edge);
        }
        let mut merged = Histogram::new();
        shared.add_to(&mut merged);
        let cells: Vec<_> = merged.cells().collect();
        assert_eq!(cells, expected.cells().collect::<Vec<_>>());
    }

    #[test]
    fn a_time_beyond_the_range_is_counted_at_its_end() {
        let shared = SharedHistogram::new();
        shared.record(u64::MAX);
        let mut merged = Histogram::new();
        shared.add_to(&mut merged);
        assert_eq!(merged.count(), 1);
    }
}
