//! Levels that go up and down: queue length, workers busy, connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use kendall_protocols::snapshot::LevelSnapshot;

const SECOND_NS: u64 = 1_000_000_000;

/// One writer's part of a level; the parts of all writers add up to it. Read under a version
/// number (odd while the writer is at it), so that the integral fits the level.
#[derive(Debug, Default)]
pub(crate) struct LevelCell {
    version: AtomicU64,
    /// The latest moment for which it was read. What is written afterwards happened afterwards: a
    /// tier may tell of a moment that has passed, and two readings must not contradict each other.
    read_ns: AtomicU64,
    fields: [AtomicU64; FIELDS],
}

const FIELDS: usize = 7;
const CURRENT: usize = 0;
const INTEGRAL: usize = 1;
const CHANGED_AT: usize = 2;
const MAXIMUM: usize = 3;
const SECOND: usize = 4;
const SECOND_MAXIMUM: usize = 5;
const PREVIOUS_MAXIMUM: usize = 6;

/// Writes one part of a level. There is one writer a part.
#[derive(Debug)]
pub struct LevelWriter {
    cell: Arc<LevelCell>,
    /// What the cell holds, so that the writer never reads it back.
    state: [u64; FIELDS],
}

impl LevelWriter {
    pub(crate) fn new(cell: Arc<LevelCell>) -> Self {
        let state = std::array::from_fn(|field| cell.fields[field].load(Ordering::Relaxed));
        Self { cell, state }
    }

    pub fn current(&self) -> u64 {
        self.state[CURRENT]
    }

    #[inline]
    pub fn add(&mut self, now_ns: u64, by: u64) {
        self.set(now_ns, self.state[CURRENT] + by);
    }

    /// Lowers the level, not below 0.
    #[inline]
    pub fn subtract(&mut self, now_ns: u64, by: u64) {
        self.set(now_ns, self.state[CURRENT].saturating_sub(by));
    }

    /// Sets the level, at a moment not before the latest for which it was read.
    #[inline]
    pub fn set(&mut self, now_ns: u64, level: u64) {
        let before = self.state[CURRENT];
        if level == before {
            return;
        }
        let now_ns = now_ns.max(self.cell.read_ns.load(Ordering::Relaxed));
        let state = &mut self.state;
        let second = now_ns / SECOND_NS;
        if second > state[SECOND] {
            let adjacent = second == state[SECOND] + 1;
            state[PREVIOUS_MAXIMUM] = if adjacent { state[SECOND_MAXIMUM] } else { before };
            state[SECOND] = second;
            state[SECOND_MAXIMUM] = before;
        }
        state[INTEGRAL] += before * now_ns.saturating_sub(state[CHANGED_AT]);
        state[CHANGED_AT] = state[CHANGED_AT].max(now_ns);
        state[CURRENT] = level;
        state[MAXIMUM] = state[MAXIMUM].max(level);
        state[SECOND_MAXIMUM] = state[SECOND_MAXIMUM].max(level);
        self.publish();
    }

    fn publish(&self) {
        let version = self.cell.version.load(Ordering::Relaxed);
        self.cell.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (cell, value) in self.cell.fields.iter().zip(self.state) {
            cell.store(value, Ordering::Relaxed);
        }
        self.cell.version.store(version + 2, Ordering::Release);
    }
}

impl LevelCell {
    fn read(&self) -> [u64; FIELDS] {
        loop {
            let before = self.version.load(Ordering::Acquire);
            let state = std::array::from_fn(|field| self.fields[field].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before {
                return state;
            }
            std::hint::spin_loop();
        }
    }

    /// Adds this part to `total`. Maxima add up too: with several writers the sum is an upper
    /// bound, with one it is exact.
    pub(crate) fn add_to(&self, now_ns: u64, total: &mut LevelSnapshot) {
        self.read_ns.fetch_max(now_ns, Ordering::SeqCst);
        let state = self.read();
        let since = now_ns / SECOND_NS - state[SECOND].min(now_ns / SECOND_NS);
        total.current += state[CURRENT];
        total.integral_ns +=
            state[INTEGRAL] + state[CURRENT] * now_ns.saturating_sub(state[CHANGED_AT]);
        total.maximum += state[MAXIMUM];
        total.recent_maximum += match since {
            0 => state[PREVIOUS_MAXIMUM].max(state[SECOND_MAXIMUM]),
            1 => state[SECOND_MAXIMUM],
            _ => state[CURRENT],
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(cell: &LevelCell, now_ns: u64) -> LevelSnapshot {
        let mut total = LevelSnapshot::default();
        cell.add_to(now_ns, &mut total);
        total
    }

    /// By hand: 2 for 3 s, 5 for 1 s, 0 for 6 s is 11 level-seconds.
    #[test]
    fn the_integral_is_the_area_under_the_level() {
        let cell = Arc::new(LevelCell::default());
        let mut writer = LevelWriter::new(Arc::clone(&cell));
        writer.add(10 * SECOND_NS, 2);
        writer.add(13 * SECOND_NS, 3);
        assert_eq!(at(&cell, 13 * SECOND_NS + SECOND_NS / 2).integral_ns, 8_500_000_000);
        writer.subtract(14 * SECOND_NS, 5);
        let end = at(&cell, 20 * SECOND_NS);
        assert_eq!(end.integral_ns, 11 * SECOND_NS);
        assert_eq!((end.current, end.maximum), (0, 5));
    }

    /// A tier whose work ends at planned moments tells of them when it wakes up, which is later.
    #[test]
    fn readings_do_not_contradict_each_other_when_a_change_is_told_late() {
        let cell = Arc::new(LevelCell::default());
        let mut writer = LevelWriter::new(Arc::clone(&cell));
        writer.add(100, 1);
        assert_eq!(at(&cell, 200).integral_ns, 100);
        writer.subtract(150, 1);
        assert_eq!(at(&cell, 210).integral_ns, 100);
        // Where it was not read in between, the planned moment counts.
        writer.add(300, 1);
        writer.subtract(350, 1);
        assert_eq!(at(&cell, 400).integral_ns, 150);
    }

    #[test]
    fn the_recent_maximum_covers_the_second_before_this_one() {
        let cell = Arc::new(LevelCell::default());
        let mut writer = LevelWriter::new(Arc::clone(&cell));
        writer.add(10 * SECOND_NS, 9);
        writer.subtract(10 * SECOND_NS + 1, 8);
        assert_eq!(at(&cell, 10 * SECOND_NS + 2).recent_maximum, 9);
        assert_eq!(at(&cell, 11 * SECOND_NS + 2).recent_maximum, 9);
        assert_eq!(at(&cell, 12 * SECOND_NS).recent_maximum, 1);
    }
}
