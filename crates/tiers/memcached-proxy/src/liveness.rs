//! Whether the network thread still turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time between two reads of the count.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Counts the turns of an event loop: odd while it works, even while it waits for events, however
/// long. Clones share the count. The loop writes it without a locked instruction.
#[derive(Debug, Clone, Default)]
pub struct Liveness {
    turns: Arc<AtomicU64>,
}

impl Liveness {
    /// Whether the loop waits for events, or comes to the end of a turn within `time`.
    pub fn turns_within(&self, time: Duration) -> bool {
        let begun = self.turns.load(Ordering::Relaxed);
        let mut waited = Duration::ZERO;
        while begun % 2 == 1 && self.turns.load(Ordering::Relaxed) == begun {
            if waited >= time {
                return false;
            }
            std::thread::sleep(LOOK_EVERY);
            waited += LOOK_EVERY;
        }
        true
    }

    #[inline]
    pub(crate) fn works(&self) {
        self.turns.store(self.turns.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn rests(&self) {
        let turns = self.turns.load(Ordering::Relaxed);
        self.turns.store(turns + (turns & 1), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_waits_is_well_and_one_that_does_not_come_to_an_end_is_not() {
        let liveness = Liveness::default();
        let soon = Duration::from_millis(20);
        assert!(liveness.turns_within(soon));
        liveness.works();
        assert!(!liveness.turns_within(soon));
        liveness.rests();
        assert!(liveness.turns_within(soon));
        // One that is busy, and turns.
        liveness.works();
        let reader = liveness.clone();
        let looks = std::thread::spawn(move || reader.turns_within(Duration::from_secs(60)));
        while !looks.is_finished() {
            liveness.rests();
            liveness.works();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(looks.join().unwrap());
    }
}
