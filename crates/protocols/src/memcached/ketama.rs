//! Consistent hashing as the ketama libraries do it, so that a proxy and clients that place keys
//! themselves find them on the same servers.

use md5::{Digest as _, Md5};

/// Points of one server on the circle, when all weigh the same; each hash gives four.
const HASHES: usize = 40;
const POINTS_OF_A_HASH: usize = 4;
/// The port that libmemcached leaves out of a server's name.
const DEFAULT_PORT: u16 = 11211;

/// A circle of points, each of which belongs to a server. A key belongs to the first point at or
/// behind its own hash.
///
/// # Source
/// libmemcached's `MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED` with equal weights, which twemproxy's
/// `ketama` with `hash: md5` follows: points are MD5 of `host:port-n` (`host-n` at the port
/// 11211), keys hash to the first four bytes of their MD5.
///
/// # Example
/// ```
/// use kendall_protocols::memcached::Ring;
/// let ring = Ring::new(&[("10.0.1.1", 11211), ("10.0.1.2", 11211)], |_| true);
/// assert!(ring.server(b"key").is_some_and(|server| server < 2));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    points: Vec<(u32, usize)>,
}

impl Ring {
    /// The circle of those servers, given as host and port, that `is_live` accepts by their
    /// number.
    #[must_use]
    pub fn new(servers: &[(&str, u16)], is_live: impl Fn(usize) -> bool) -> Self {
        let name = |(host, port): &(&str, u16)| {
            if *port == DEFAULT_PORT { (*host).to_owned() } else { format!("{host}:{port}") }
        };
        let names: Vec<String> = servers.iter().map(name).collect();
        let equal: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        Self::weighted(&equal, is_live)
    }

    /// No point, and so no server for any key.
    #[must_use]
    pub const fn empty() -> Self {
        Self { points: Vec::new() }
    }

    /// The circle of those servers, given as the name that its points are made of and the weight,
    /// that `is_live` accepts by their number.
    ///
    /// A server has as many points as its share of the weights has in the sum of all: 160 times the
    /// number of servers, in fours, rounded down with the libraries' single precision.
    #[must_use]
    pub fn weighted(servers: &[(&str, u32)], is_live: impl Fn(usize) -> bool) -> Self {
        let live = || servers.iter().enumerate().filter(|(server, _)| is_live(*server));
        let (count, total) = live().fold((0_u32, 0_u64), |(count, total), (_, (_, weight))| {
            (count + 1, total + u64::from(*weight))
        });
        let mut points = Vec::with_capacity(servers.len() * HASHES * POINTS_OF_A_HASH);
        for (server, (name, weight)) in live() {
            for hash in 0..hashes(*weight, total, count) {
                let digest = Md5::digest(format!("{name}-{hash}"));
                let (quarters, _) = digest.as_slice().as_chunks::<4>();
                points.extend(quarters.iter().map(|bytes| (u32::from_le_bytes(*bytes), server)));
            }
        }
        points.sort_by_key(|point| point.0);
        Self { points }
    }

    /// The server of a key; `None` on an empty circle.
    #[must_use]
    pub fn server(&self, key: &[u8]) -> Option<usize> {
        let digest = Md5::digest(key);
        let hash = u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]]);
        let at = self.points.partition_point(|point| point.0 < hash);
        self.points.get(at).or_else(|| self.points.first()).map(|point| point.1)
    }
}

/// Hashes of a server, each of four points.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the libraries compute it so, and a server of theirs must get the same points"
)]
fn hashes(weight: u32, total: u64, count: u32) -> usize {
    let share = weight as f32 / total as f32;
    let points = share * (HASHES * POINTS_OF_A_HASH) as f32 / POINTS_OF_A_HASH as f32;
    let rounded = f64::from(points * count as f32) + 0.000_000_000_1;
    (rounded as f32).floor() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVERS: [(&str, u16); 3] =
        [("10.0.0.1", 11211), ("10.0.0.2", 11212), ("10.0.0.3", 11213)];

    /// What libmemcached 1.1.4 (Debian 12) answers for these servers and keys, with
    /// `MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED`.
    #[test]
    fn keys_are_where_libmemcached_puts_them() {
        let ring = Ring::new(&SERVERS, |_| true);
        let placed: String = (0..40)
            .map(|key| ring.server(format!("key-{key}").as_bytes()).unwrap().to_string())
            .collect();
        assert_eq!(placed, "2211102011222212100000011122211222021020");
    }

    #[test]
    fn a_server_that_leaves_moves_its_own_keys_only() {
        let all = Ring::new(&SERVERS, |_| true);
        let two = Ring::new(&SERVERS, |server| server != 1);
        let mut moved = 0;
        for key in (0..1000).map(|key| format!("key-{key}")) {
            let before = all.server(key.as_bytes()).unwrap();
            let after = two.server(key.as_bytes()).unwrap();
            if before == 1 {
                moved += 1;
                assert_ne!(after, 1);
            } else {
                assert_eq!(before, after);
            }
        }
        assert!((200..500).contains(&moved), "{moved} of 1000 keys on one of three servers");
        assert_eq!(Ring::new(&SERVERS, |_| false).server(b"key"), None);
    }
}
