//! When requests are due.

use crate::arrivals::Arrivals;
use crate::distribution::Distribution;
use crate::random::Random;

/// How the requests of one thread are paced.
#[derive(Debug)]
pub(crate) enum Pace {
    /// Each client sends its next request a think time after its last reply.
    Closed {
        think_time: Option<Distribution>,
        random: Random,
        /// Over how long the clients' first requests are spread.
        stagger_ns: u64,
    },
    /// Requests are due whatever became of those before.
    Open(Arrivals),
}
