//! Which of several servers has a blob: rendezvous hashing with weights.
//!
//! Every server draws a number for every blob, and the highest one has it. A server that is added
//! wins its share of the blobs from all others and moves no others (Thaler and Ravishankar, 1998);
//! weights are those of an exponential race, w/−ln u, in which a server wins with probability w/Σw.

use kendall_units::exact_f64;

/// Names and weights of servers, as the draws need them.
#[derive(Debug, Clone)]
pub struct Ring {
    servers: Vec<(u64, f64)>,
}

impl Ring {
    /// Servers by name and weight. The draws follow from the names, so that every front that knows
    /// the same names finds the same server, in whatever order they are given.
    pub fn new<'a>(servers: impl IntoIterator<Item = (&'a str, u32)>) -> Self {
        let one = |(name, weight): (&str, u32)| {
            let hash: [u8; 32] = blake3::hash(name.as_bytes()).into();
            (first_eight(&hash), f64::from(weight))
        };
        Self { servers: servers.into_iter().map(one).collect() }
    }

    /// The server that has the blob with this hash, among those that `may` have it.
    pub fn owner(&self, hash: &[u8; 32], may: impl Fn(usize) -> bool) -> Option<usize> {
        let key = first_eight(hash);
        let draws = self.servers.iter().enumerate().filter(|(index, _)| may(*index));
        draws
            .map(|(index, (name, weight))| {
                // 53 bits, in the middle of their interval: never 0, never 1.
                let bits = mixed(key ^ name) >> 11;
                let u = (exact_f64(bits) + 0.5) / exact_f64(1_u64 << 53);
                (index, weight / -u.ln())
            })
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(index, _)| index)
    }
}

fn first_eight(hash: &[u8; 32]) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&hash[..8]);
    u64::from_le_bytes(eight)
}

/// SplitMix64's finaliser, twice: of two keys that differ by one bit, the draws have nothing in
/// common.
fn mixed(x: u64) -> u64 {
    let once = |x: u64| {
        let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    };
    once(once(x).wrapping_add(0x9E37_79B9_7F4A_7C15))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u32 = 20_000;

    fn owners(ring: &Ring) -> Vec<usize> {
        (0..KEYS)
            .map(|key| {
                let hash: [u8; 32] = blake3::hash(&key.to_le_bytes()).into();
                ring.owner(&hash, |_| true).unwrap()
            })
            .collect()
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("10.0.0.{number}:9092")).collect()
    }

    fn ring(names: &[String]) -> Ring {
        Ring::new(names.iter().map(|name| (name.as_str(), 1)))
    }

    /// Five standard deviations of a binomial count, on either side.
    fn is_share(count: usize, share: f64) -> bool {
        let n = f64::from(KEYS);
        (exact_f64(count) - n * share).abs() < 5.0 * (n * share * (1.0 - share)).sqrt()
    }

    #[test]
    fn shares_follow_the_weights() {
        let names = names(3);
        let weights = [1, 2, 5];
        let ring = Ring::new(names.iter().map(String::as_str).zip(weights));
        let owners = owners(&ring);
        for (server, weight) in weights.into_iter().enumerate() {
            let count = owners.iter().filter(|owner| **owner == server).count();
            assert!(is_share(count, f64::from(weight) / 8.0), "server {server}: {count}");
        }
    }

    #[test]
    fn a_server_that_is_added_takes_its_share_and_moves_nothing_else() {
        let names = names(6);
        for count in 1..6 {
            let (before, after) = (owners(&ring(&names[..count])), owners(&ring(&names[..=count])));
            let moved: Vec<usize> =
                before.iter().zip(&after).filter(|(a, b)| a != b).map(|(_, b)| *b).collect();
            assert!(moved.iter().all(|to| *to == count), "only to the new one");
            assert!(is_share(moved.len(), 1.0 / exact_f64(count + 1)), "{count}: {}", moved.len());
        }
    }

    #[test]
    fn a_server_that_is_left_out_moves_its_share_only_and_the_order_means_nothing() {
        let names = names(4);
        let ring = ring(&names);
        let mut reversed = names.clone();
        reversed.reverse();
        let other = self::ring(&reversed);
        for key in 0..2_000_u32 {
            let hash: [u8; 32] = blake3::hash(&key.to_le_bytes()).into();
            let owner = ring.owner(&hash, |_| true).unwrap();
            let without = ring.owner(&hash, |server| server != 2).unwrap();
            assert!(owner == 2 || without == owner);
            assert_eq!(names[owner], reversed[other.owner(&hash, |_| true).unwrap()]);
        }
        assert_eq!(ring.owner(&[0; 32], |_| false), None);
    }
}
