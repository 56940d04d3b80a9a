//! Streams of random numbers: one per purpose and thread, all from one seed.

use rand::SeedableRng as _;
use rand_xoshiro::Xoshiro256PlusPlus;

/// The generator of all draws.
pub type Random = Xoshiro256PlusPlus;

/// What a stream is for, so that no two purposes share numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Gaps between arrivals: the same in every thread.
    Arrivals,
    Requests,
    ThinkTimes,
    /// Sizes of keys and values.
    Sizes,
}

/// The stream of `seed` for `purpose` in thread number `thread`.
///
/// Purposes are 2^192 draws apart and threads 2^128 (the generator's own jumps), so they never
/// overlap.
pub fn stream(seed: u64, purpose: Purpose, thread: usize) -> Random {
    let mut random = Random::seed_from_u64(seed);
    for _ in 0..purpose as usize {
        random.long_jump();
    }
    for _ in 0..thread {
        random.jump();
    }
    random
}
