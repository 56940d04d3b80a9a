//! Histograms of nanoseconds: HdrHistogram with three significant digits.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};

/// Three significant digits: a relative error of at most 0.1 %.
const SIGNIFICANT_DIGITS: u8 = 3;

/// What the compressed encoding begins with: its mark and its length.
const COMPRESSED: u32 = 0x1c84_9314;
const COMPRESSED_HEAD: usize = 8;
/// Bytes before the counts.
const HEAD: usize = 40;
/// Bytes of an encoding: times that a clock can tell with three digits need less than a tenth of it.
const MOST_BYTES: usize = 4 << 20;

/// A histogram of times in nanoseconds, kept to three significant digits. Grows as needed, so
/// nothing is clipped.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    inner: hdrhistogram::Histogram<u64>,
}

/// One bar of a printed histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Step {
    /// Lower border, included.
    pub from_ns: u64,
    /// Upper border, excluded.
    pub to_ns: u64,
    /// Values between them.
    pub count: u64,
}

/// A text that is not an encoded histogram.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an encoded histogram: {reason}")]
pub struct DecodeError {
    /// What is wrong with it.
    pub reason: String,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty histogram.
    ///
    /// # Panics
    /// Never: three digits are within HdrHistogram's bounds.
    #[must_use]
    pub fn new() -> Self {
        let inner = hdrhistogram::Histogram::new(SIGNIFICANT_DIGITS)
            .expect("three significant digits are within 0 to 5");
        Self { inner }
    }

    /// An empty histogram that has room for values up to `nanoseconds`, so that recording them
    /// allocates nothing. Larger values still grow it.
    ///
    /// # Panics
    /// Never: the bounds are within HdrHistogram's.
    #[must_use]
    pub fn with_room(nanoseconds: u64) -> Self {
        let high = nanoseconds.clamp(2, u64::MAX >> 1);
        let mut inner = hdrhistogram::Histogram::new_with_bounds(1, high, SIGNIFICANT_DIGITS)
            .expect("1 ≤ 2 ≤ high, and three significant digits are within 0 to 5");
        inner.auto(true);
        Self { inner }
    }

    /// Forgets all values and keeps the room.
    pub fn clear(&mut self) {
        self.inner.reset();
    }

    /// Records one value.
    pub fn record(&mut self, nanoseconds: u64) {
        self.record_n(nanoseconds, 1);
    }

    /// Records the same value `count` times.
    pub fn record_n(&mut self, nanoseconds: u64, count: u64) {
        // A histogram that grows accepts every u64 up to i64::MAX; 292 years saturate there.
        let value = nanoseconds.min(u64::MAX >> 1);
        self.inner.record_n(value, count).expect("an auto-resizing histogram takes any value");
    }

    /// Adds all that `other` holds.
    pub fn add(&mut self, other: &Self) {
        self.inner.add(&other.inner).expect("an auto-resizing histogram takes any other");
    }

    /// What was recorded after `earlier`, where both are states of one growing histogram; `None`
    /// when `earlier` holds something that this does not.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        let mut difference = self.clone();
        difference.inner.subtract(&earlier.inner).ok()?;
        Some(difference)
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.inner.len()
    }

    /// Mean in nanoseconds; `None` when empty.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.inner.mean())
    }

    /// Standard deviation in nanoseconds; `None` when empty.
    #[must_use]
    pub fn standard_deviation(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.inner.stdev())
    }

    /// The value at `quantile` (0 to 1) in nanoseconds; `None` when empty.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        (self.count() > 0).then(|| self.inner.value_at_quantile(quantile))
    }

    /// Smallest value in nanoseconds, to the histogram's precision; `None` when empty.
    #[must_use]
    pub fn min(&self) -> Option<u64> {
        (self.count() > 0).then(|| self.inner.min())
    }

    /// Largest value in nanoseconds, to the histogram's precision; `None` when empty.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        (self.count() > 0).then(|| self.inner.max())
    }

    /// The cells that hold something: lowest and highest value that fall into the cell, and count.
    pub fn cells(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.inner.iter_recorded().map(|cell| {
            let value = cell.value_iterated_to();
            (
                self.inner.lowest_equivalent(value),
                self.inner.highest_equivalent(value),
                cell.count_at_value(),
            )
        })
    }

    /// Counts in steps of `step_nanoseconds`, such as 100,000 for the 0.1 ms histograms that are
    /// printed. Empty steps are left out. A cell that lies across a border counts where its middle
    /// lies, which moves a value by at most 0.05 %.
    ///
    /// # Panics
    /// On a step of 0.
    #[must_use]
    pub fn steps(&self, step_nanoseconds: u64) -> Vec<Step> {
        assert!(step_nanoseconds > 0, "a step of 0 ns holds nothing");
        let mut steps: Vec<Step> = Vec::new();
        for (low, high, count) in self.cells() {
            let from_ns = (low + (high - low) / 2) / step_nanoseconds * step_nanoseconds;
            match steps.last_mut() {
                Some(last) if last.from_ns == from_ns => last.count += count,
                _ => {
                    let to_ns = from_ns.saturating_add(step_nanoseconds);
                    steps.push(Step { from_ns, to_ns, count });
                }
            }
        }
        steps
    }

    /// Number of values above `nanoseconds`, to the histogram's precision.
    #[must_use]
    pub fn count_above(&self, nanoseconds: u64) -> u64 {
        self.count() - self.inner.count_between(0, nanoseconds.min(u64::MAX >> 1))
    }

    /// All that `histograms` hold, in one.
    #[must_use]
    pub fn merged<'a>(histograms: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = Self::new();
        for histogram in histograms {
            all.add(histogram);
        }
        all
    }

    /// HdrHistogram V2 + DEFLATE as base64; empty text for the empty histogram.
    #[must_use]
    pub fn encode(&self) -> String {
        STANDARD.encode(self.to_bytes())
    }

    /// HdrHistogram V2 + DEFLATE; no bytes for the empty histogram.
    ///
    /// # Panics
    /// Never: writing to memory does not fail.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.count() > 0 {
            V2DeflateSerializer::new()
                .serialize(&self.inner, &mut bytes)
                .expect("writing a histogram to memory does not fail");
        }
        bytes
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// [`DecodeError`] for anything else.
    pub fn decode(text: &str) -> Result<Self, DecodeError> {
        let bytes =
            STANDARD.decode(text).map_err(|error| DecodeError { reason: error.to_string() })?;
        Self::from_bytes(&bytes)
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    /// [`DecodeError`] for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.is_empty() {
            return Ok(Self::new());
        }
        let plain = plain(bytes).map_err(|reason| DecodeError { reason: reason.to_owned() })?;
        let mut inner: hdrhistogram::Histogram<u64> = Deserializer::new()
            .deserialize(&mut &plain[..])
            .map_err(|error| DecodeError { reason: error.to_string() })?;
        inner.auto(true);
        Ok(Self { inner })
    }
}

/// The encoding as it is before it is compressed, if its lengths are true: the library takes them for
/// granted, and takes as much memory as they say.
fn plain(bytes: &[u8]) -> Result<Vec<u8>, &'static str> {
    let number = |bytes: &[u8], at: usize| -> Option<u32> {
        Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    let cut = "it ends before its length";
    let mut plain = Vec::new();
    if number(bytes, 0) == Some(COMPRESSED) {
        let length = number(bytes, 4).and_then(|length| usize::try_from(length).ok()).ok_or(cut)?;
        let body = bytes.get(COMPRESSED_HEAD..).and_then(|rest| rest.get(..length)).ok_or(cut)?;
        let most = u64::try_from(MOST_BYTES).unwrap_or(u64::MAX) + 1;
        let read = ZlibDecoder::new(body).take(most).read_to_end(&mut plain);
        read.map_err(|_| "it cannot be decompressed")?;
    } else {
        plain.extend_from_slice(bytes);
    }
    if plain.len() > MOST_BYTES {
        return Err("it is too large");
    }
    let counts = number(&plain, 4).and_then(|length| usize::try_from(length).ok()).ok_or(cut)?;
    let there = plain.len().checked_sub(HEAD).ok_or(cut)?;
    if counts > there { Err(cut) } else { Ok(plain) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_are_not_true_are_refused_before_memory_is_taken_for_them() {
        let mut histogram = Histogram::new();
        (1..1_000_000_000_000).step_by(9_999_999_967).for_each(|ns| histogram.record(ns));
        let bytes = histogram.to_bytes();
        assert_eq!(Histogram::from_bytes(&bytes).unwrap(), histogram);
        for cut in 1..bytes.len() {
            assert!(Histogram::from_bytes(&bytes[..cut]).is_err(), "{cut} bytes");
        }
        // Counts of 4 GiB, in a head that is itself true.
        let mut head = plain(&bytes).unwrap();
        head[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(Histogram::from_bytes(&head).unwrap_err().reason.contains("length"));
        assert!(Histogram::from_bytes(&head[..20]).is_err());
    }

    #[test]
    fn the_difference_of_two_states_is_what_came_between() {
        let mut histogram = Histogram::new();
        histogram.record(1_000);
        let earlier = histogram.clone();
        histogram.record_n(5_000_000, 3);
        let between = histogram.since(&earlier).unwrap();
        assert_eq!(between.count(), 3);
        assert!(earlier.since(&histogram).is_none());
    }

    #[test]
    fn an_encoded_histogram_reads_back_equal_and_still_grows() {
        let mut histogram = Histogram::new();
        histogram.record(123_456);
        let mut back = Histogram::decode(&histogram.encode()).unwrap();
        assert_eq!(back, histogram);
        back.record(u64::MAX);
        assert_eq!(back.count(), 2);
    }

    #[test]
    fn steps_hold_every_value_and_leave_out_the_empty_ones() {
        let mut histogram = Histogram::new();
        for value in [10_000, 90_000, 100_100, 950_000] {
            histogram.record(value);
        }
        let steps = histogram.steps(100_000);
        let counts: Vec<(u64, u64)> = steps.iter().map(|s| (s.from_ns, s.count)).collect();
        assert_eq!(counts, [(0, 2), (100_000, 1), (900_000, 1)]);
        assert_eq!(histogram.count_above(100_000), 2);
        assert_eq!(Histogram::merged([&histogram, &histogram]).count(), 8);
    }

    #[test]
    fn noise_is_refused() {
        assert!(Histogram::decode("not base64!").is_err());
        assert!(Histogram::decode("AAAA").is_err());
    }
}
