//! A delay line: bytes of one direction of one connection, each with the moment when it may leave.
//!
//! Pure: time and chance are arguments, so that the order and the lower bound can be tested to the
//! nanosecond. It leaves out sockets.

use std::collections::VecDeque;

use crate::shape::Shape;
use rand::Rng;

/// How a direction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The sender closed its side; the other direction may go on.
    Closed,
    /// The sender reset the connection.
    Reset,
}

/// Serialization of one direction of a route: bytes leave one after the other at its bandwidth.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wire {
    /// When the last byte that was put on it has left.
    pub(crate) free_at_ns: u64,
    /// What it carries; `None` is unlimited.
    pub(crate) bytes_per_s: Option<u64>,
}

/// A piece as it was read, or a part of one where the bandwidth spreads it out.
#[derive(Debug, Clone, Copy)]
struct Piece {
    read_at_ns: u64,
    due_ns: u64,
    bytes: usize,
}

/// A piece whose last byte has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Departed {
    pub(crate) read_at_ns: u64,
    pub(crate) due_ns: u64,
}

/// Bytes on their way, in order.
#[derive(Debug, Default)]
pub(crate) struct DelayLine {
    bytes: VecDeque<u8>,
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that have left already.
    departed: usize,
    last_due_ns: u64,
    end: Option<(End, u64)>,
}

/// A line that ran empty gives its memory back above this.
const KEPT_CAPACITY: usize = 16 * 1024;

/// With a bandwidth limit, a piece is cut so that its parts leave about this far apart.
const GRAIN_NS: u64 = 200_000;

/// No part is smaller than what one Ethernet frame carries.
const SMALLEST_PART: u64 = 1448;

impl DelayLine {
    /// Takes `bytes` that were read at `now_ns`.
    pub(crate) fn push(
        &mut self,
        now_ns: u64,
        bytes: &[u8],
        shape: &Shape,
        wire: &mut Wire,
        rng: &mut impl Rng,
    ) {
        debug_assert!(self.end.is_none(), "nothing comes after the end");
        let hold_ns = shape.draw_hold_ns(rng);
        self.bytes.extend(bytes);
        let part = wire.bytes_per_s.map_or(bytes.len(), part_size);
        let mut left = bytes.len();
        while left > 0 {
            let size = left.min(part);
            left -= size;
            let sent_ns = wire.transmit(now_ns, size);
            self.last_due_ns = self.last_due_ns.max(sent_ns.saturating_add(hold_ns));
            self.pieces.push_back(Piece {
                read_at_ns: now_ns,
                due_ns: self.last_due_ns,
                bytes: size,
            });
        }
    }

    /// Ends the line behind what it holds.
    pub(crate) fn end(&mut self, now_ns: u64, end: End, shape: &Shape, rng: &mut impl Rng) {
        let due_ns = now_ns.saturating_add(shape.draw_hold_ns(rng)).max(self.last_due_ns);
        self.end = Some((end, due_ns));
    }

    /// Forgets all that it holds: the receiver is gone.
    pub(crate) fn discard(&mut self) {
        *self = Self { end: self.end, ..Self::default() };
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.end.is_some()
    }

    /// When its next byte, or its end, may leave.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.pieces.front().map(|piece| piece.due_ns).or(self.end.map(|(_, due_ns)| due_ns))
    }

    /// Bytes that may leave at `now_ns`, as one contiguous part; more may follow behind it.
    pub(crate) fn due(&self, now_ns: u64) -> &[u8] {
        let due: usize = self
            .pieces
            .iter()
            .take_while(|piece| piece.due_ns <= now_ns)
            .map(|piece| piece.bytes)
            .sum();
        let (front, _) = self.bytes.as_slices();
        &front[..front.len().min(due.saturating_sub(self.departed))]
    }

    /// The end, once all bytes have left and its moment has come.
    pub(crate) fn due_end(&self, now_ns: u64) -> Option<End> {
        let (end, due_ns) = self.end?;
        (self.bytes.is_empty() && due_ns <= now_ns).then_some(end)
    }

    /// Takes away `count` bytes that have left, and tells of each piece that is now complete.
    pub(crate) fn depart(&mut self, count: usize, mut complete: impl FnMut(Departed)) {
        self.bytes.drain(..count);
        self.departed += count;
        while let Some(piece) = self.pieces.front()
            && self.departed >= piece.bytes
        {
            self.departed -= piece.bytes;
            complete(Departed { read_at_ns: piece.read_at_ns, due_ns: piece.due_ns });
            self.pieces.pop_front();
        }
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT_CAPACITY {
            self.bytes.shrink_to(KEPT_CAPACITY);
        }
    }
}

impl Wire {
    /// Puts `bytes` behind all that is on the wire; returns when the last of them has left.
    fn transmit(&mut self, now_ns: u64, bytes: usize) -> u64 {
        let Some(bytes_per_s) = self.bytes_per_s else { return now_ns };
        let nanoseconds = u128::try_from(bytes).unwrap_or(u128::MAX).saturating_mul(1_000_000_000)
            / u128::from(bytes_per_s.max(1));
        let occupied_ns = u64::try_from(nanoseconds).unwrap_or(u64::MAX);
        self.free_at_ns = self.free_at_ns.max(now_ns).saturating_add(occupied_ns);
        self.free_at_ns
    }
}

/// Size of the parts that leave about [`GRAIN_NS`] apart.
fn part_size(bytes_per_s: u64) -> usize {
    let grain = (bytes_per_s / 1_000).saturating_mul(GRAIN_NS / 1_000) / 1_000;
    usize::try_from(grain.max(SMALLEST_PART)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use kendall_units::Seconds;
    use proptest::prelude::*;
    use rand::SeedableRng as _;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::shape::Jitter;

    fn jitters() -> impl Strategy<Value = Jitter> {
        prop_oneof![
            Just(Jitter::Constant),
            (1..400_u64).prop_map(|us| Jitter::Uniform(Seconds::from_nanos(us * 1000))),
            (1..400_u64).prop_map(|us| Jitter::Normal(Seconds::from_nanos(us * 1000))),
            (1..400_u64).prop_map(|us| Jitter::Exponential(Seconds::from_nanos(us * 1000))),
        ]
    }

    proptest! {
        /// Pieces of any size at any time, taken away in parts of any size: all bytes leave once,
        /// in order; with a delay and no negative jitter none before its reading + delay; with a
        /// bandwidth no prefix faster than it.
        #[test]
        fn bytes_keep_their_order_and_leave_no_earlier_than_they_may(
            steps in prop::collection::vec((0..300_000_u64, 0..5_000_usize, 1..4_000_usize), 1..60),
            delay_us in 0..2_000_u64,
            jitter in jitters(),
            bandwidth in prop::option::of(100_000..1_000_000_000_u64),
            seed in any::<u64>(),
        ) {
            let delay_ns = delay_us * 1000;
            let shape = Shape { delay: Seconds::from_nanos(delay_ns), jitter, ..Shape::default() };
            let early_ns = match jitter {
                Jitter::Constant | Jitter::Exponential(_) => delay_ns,
                Jitter::Uniform(half) => delay_ns.saturating_sub(half.as_nanos() + 1),
                Jitter::Normal(_) => 0,
            };
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut line = DelayLine::default();
            let mut wire = Wire { bytes_per_s: bandwidth, ..Wire::default() };
            let (mut now, mut next, mut read_at) = (0, 0_u8, Vec::new());
            let mut left = Vec::new();
            for (gap, size, taken) in steps {
                now += gap;
                let bytes: Vec<u8> = (0..size).map(|_| { next = next.wrapping_add(1); next }).collect();
                read_at.extend(std::iter::repeat_n(now, size));
                line.push(now, &bytes, &shape, &mut wire, &mut rng);
                let due = line.due(now);
                let count = due.len().min(taken);
                left.extend(due[..count].iter().map(|byte| (now, *byte)));
                line.depart(count, |piece| assert!(piece.due_ns <= now && piece.read_at_ns <= now));
            }
            line.end(now, End::Closed, &shape, &mut rng);
            while line.due_end(now).is_none() {
                now = now.max(line.next_due_ns().unwrap());
                let count = line.due(now).len();
                left.extend(line.due(now).iter().map(|byte| (now, *byte)));
                line.depart(count, |_| ());
            }
            prop_assert_eq!(left.len(), read_at.len());
            let mut expected = 0_u8;
            for (index, ((at, byte), read)) in left.iter().zip(&read_at).enumerate() {
                expected = expected.wrapping_add(1);
                prop_assert_eq!(*byte, expected);
                prop_assert!(*at >= read + early_ns);
                if let Some(rate) = bandwidth {
                    let on_wire = (index as u128 + 1) * 1_000_000_000 / u128::from(rate);
                    // Rounding down loses below 1 ns a part.
                    prop_assert!(u128::from(*at) + read_at.len() as u128 >= on_wire);
                }
            }
        }
    }

    #[test]
    fn a_shorter_delay_does_not_let_later_bytes_overtake() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let (mut line, mut wire) = (DelayLine::default(), Wire::default());
        let slow = Shape { delay: Seconds::new(1.0), ..Shape::default() };
        line.push(0, b"first", &slow, &mut wire, &mut rng);
        line.push(10, b"second", &Shape::default(), &mut wire, &mut rng);
        assert!(line.due(999_999_999).is_empty());
        assert_eq!(line.due(1_000_000_000), b"firstsecond");
    }

    #[test]
    fn the_end_waits_for_the_bytes_before_it() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let (mut line, mut wire) = (DelayLine::default(), Wire::default());
        let shape = Shape { delay: Seconds::new(1e-6), ..Shape::default() };
        line.push(0, b"x", &shape, &mut wire, &mut rng);
        line.end(5, End::Reset, &shape, &mut rng);
        assert_eq!(line.due_end(2000), None);
        line.depart(1, |_| ());
        assert_eq!((line.due_end(1004), line.due_end(1005)), (None, Some(End::Reset)));
    }
}
