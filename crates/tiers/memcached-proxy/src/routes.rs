//! From a key to the pool that has it, by what the key begins with.

/// Prefixes, each with the number of a pool. The longest that a key begins with counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Routes {
    /// Sorted by their bytes.
    prefixes: Vec<Prefix>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Prefix {
    bytes: Vec<u8>,
    pool: usize,
    /// The longest other prefix that this one begins with.
    within: Option<usize>,
}

impl Routes {
    /// Of several that are alike the first counts.
    pub(crate) fn new(routes: impl IntoIterator<Item = (Vec<u8>, usize)>) -> Self {
        let mut prefixes: Vec<Prefix> =
            routes.into_iter().map(|(bytes, pool)| Prefix { bytes, pool, within: None }).collect();
        prefixes.sort_by(|one, other| one.bytes.cmp(&other.bytes));
        prefixes.dedup_by(|next, kept| next.bytes == kept.bytes);
        for number in 1..prefixes.len() {
            // Its own prefixes are before it, with nothing else between than what begins
            // alike.
            let mut before = Some(number - 1);
            while let Some(candidate) = before {
                if prefixes[number].bytes.starts_with(&prefixes[candidate].bytes) {
                    break;
                }
                before = prefixes[candidate].within;
            }
            prefixes[number].within = before;
        }
        Self { prefixes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    pub(crate) fn pool(&self, key: &[u8]) -> Option<usize> {
        let behind = self.prefixes.partition_point(|prefix| prefix.bytes.as_slice() <= key);
        let mut candidate = behind.checked_sub(1);
        while let Some(number) = candidate {
            let prefix = &self.prefixes[number];
            if key.starts_with(&prefix.bytes) {
                return Some(prefix.pool);
            }
            candidate = prefix.within;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a comparison with every prefix finds.
    fn longest(routes: &[(Vec<u8>, usize)], key: &[u8]) -> Option<usize> {
        let fits = routes.iter().rev().filter(|route| key.starts_with(&route.0));
        fits.max_by_key(|route| route.0.len()).map(|route| route.1)
    }

    #[test]
    fn the_longest_prefix_counts() {
        let mut chance = 7_u64;
        let mut next = |bound: u64| {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            chance % bound
        };
        for _ in 0..300 {
            let mut text = |most: u64| -> Vec<u8> {
                (0..next(most)).map(|_| b'a' + u8::try_from(next(2)).unwrap()).collect()
            };
            let mut routes: Vec<(Vec<u8>, usize)> =
                (0..12).map(|number| (text(6), number)).collect();
            routes.sort_by_key(|route| route.1);
            let mut seen = std::collections::HashSet::new();
            routes.retain(|route| seen.insert(route.0.clone()));
            let table = Routes::new(routes.clone());
            for _ in 0..60 {
                let key = text(9);
                assert_eq!(table.pool(&key), longest(&routes, &key), "{routes:?}, {key:?}");
            }
        }
        assert!(Routes::default().is_empty());
        assert_eq!(Routes::default().pool(b"k"), None);
    }
}
