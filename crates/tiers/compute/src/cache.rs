//! The response cache: whole results, least recently used first out, bounded by number and bytes.

use bytes::Bytes;
use lru::LruCache;
use serde::Serialize;

use crate::request::Asked;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CacheLimits {
    pub entries: usize,
    /// Bytes of results and of the requests that they answer.
    pub bytes: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { entries: 1000, bytes: 64 * 1024 * 1024 }
    }
}

#[derive(Debug)]
pub(crate) struct Cache {
    results: LruCache<Asked, Bytes>,
    bytes: usize,
    limits: CacheLimits,
}

impl Cache {
    pub(crate) fn new(limits: CacheLimits) -> Self {
        // The bounds are held below, so that both are in one place.
        Self { results: LruCache::unbounded(), bytes: 0, limits }
    }

    /// The result of `asked`, which becomes the most recently used.
    pub(crate) fn get(&mut self, asked: &Asked) -> Option<Bytes> {
        self.results.get(asked).cloned()
    }

    /// Keeps a result, and drops the least recently used ones that exceed the bounds; says how
    /// many those were.
    pub(crate) fn put(&mut self, asked: Asked, result: Bytes) -> u64 {
        let size = weight(&asked, &result);
        if size > self.limits.bytes || self.limits.entries == 0 {
            return 0;
        }
        self.bytes += size;
        if let Some((asked, replaced)) = self.results.push(asked, result) {
            self.bytes -= weight(&asked, &replaced);
        }
        let mut dropped = 0;
        while self.results.len() > self.limits.entries || self.bytes > self.limits.bytes {
            let Some((asked, result)) = self.results.pop_lru() else { break };
            self.bytes -= weight(&asked, &result);
            dropped += 1;
        }
        dropped
    }

    pub(crate) fn clear(&mut self) {
        self.results.clear();
        self.bytes = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.results.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

fn weight(asked: &Asked, result: &Bytes) -> usize {
    asked.bytes() + result.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Task;

    fn asked(integer: u64) -> Asked {
        Asked { task: Task::Factorize { integer }, whole: true }
    }

    #[test]
    fn the_least_recently_used_result_goes_first() {
        let mut cache = Cache::new(CacheLimits { entries: 2, bytes: 1 << 20 });
        assert_eq!(cache.put(asked(1), Bytes::from_static(b"one")), 0);
        assert_eq!(cache.put(asked(2), Bytes::from_static(b"two")), 0);
        assert!(cache.get(&asked(1)).is_some());
        assert_eq!(cache.put(asked(3), Bytes::from_static(b"three")), 1);
        assert!(cache.get(&asked(2)).is_none() && cache.get(&asked(1)).is_some());
    }

    #[test]
    fn bytes_are_bounded_and_counted_right() {
        let limits = CacheLimits { entries: 100, bytes: 4096 };
        let mut cache = Cache::new(limits);
        for integer in 0..50_u64 {
            cache.put(
                asked(integer % 7),
                Bytes::from(vec![0; 500 + 10 * usize::try_from(integer).unwrap()]),
            );
            assert!(cache.bytes() <= limits.bytes);
            let counted: usize = cache.results.iter().map(|(asked, r)| weight(asked, r)).sum();
            assert_eq!(cache.bytes(), counted);
        }
        assert_eq!(cache.put(asked(99), Bytes::from(vec![0; 5000])), 0);
        assert!(cache.get(&asked(99)).is_none(), "what exceeds the cache is not kept");
        cache.clear();
        assert_eq!((cache.len(), cache.bytes()), (0, 0));
    }
}
