//! Which messages were taken, for the whole load, in the memory of those that are missing between.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// A set of ids as ranges: ids are given out in order and messages are taken nearly so, so that an
/// hour's millions are a few ranges.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// First and last of each range; no two touch.
    ranges: Mutex<BTreeMap<u64, u64>>,
}

impl Taken {
    /// Whether the id is new.
    pub(super) fn insert(&self, id: u64) -> bool {
        let mut ranges = self.ranges.lock();
        let before = ranges.range(..=id).next_back().map(|(first, last)| (*first, *last));
        if before.is_some_and(|(_, last)| id <= last) {
            return false;
        }
        let first = match before {
            Some((first, last)) if id - last == 1 => first,
            _ => id,
        };
        let last = id.checked_add(1).and_then(|next| ranges.remove(&next)).unwrap_or(id);
        ranges.insert(first, last);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_new_once_and_ranges_grow_together() {
        let taken = Taken::default();
        // 101 is prime to 1000: every id once, in an order that leaves gaps everywhere.
        let ids = || (0..1000_u64).map(|step| step * 101 % 1000);
        assert!(ids().all(|id| taken.insert(id)));
        assert!(ids().all(|id| !taken.insert(id)));
        assert_eq!(taken.ranges.lock().len(), 1);
        assert!(taken.insert(u64::MAX) && !taken.insert(u64::MAX));
    }
}
