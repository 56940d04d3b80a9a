//! When requests are due.

use kendall_tier::distribution::Distribution;
use kendall_units::Seconds;

use crate::arrivals::Arrivals;
use crate::random::Random;
use crate::stages::Stages;

/// How the requests of one thread are paced.
#[derive(Debug)]
pub(crate) enum Pace {
    /// Each client sends its next request a think time after its last reply.
    Closed {
        think_time: Option<Distribution>,
        random: Random,
        /// Over how long the clients' first requests are spread.
        stagger_ns: u64,
        /// When which clients take part; all, all the time, without it.
        turns: Option<Turns>,
    },
    /// Requests are due independently of earlier replies.
    Open(Arrivals),
}

/// When the clients of one thread take part.
#[derive(Debug)]
pub(crate) struct Turns {
    pub(crate) stages: Stages,
    /// The thread has every `threads`-th client, from this one on.
    pub(crate) thread: usize,
    pub(crate) threads: usize,
}

impl Pace {
    /// Closed loop: the first moment from `offset_ns` after the start on at which the thread's client takes part;
    /// `None` where it never does again.
    pub(crate) fn takes_part_ns(&self, client: usize, offset_ns: u64) -> Option<u64> {
        let Self::Closed { turns: Some(turns), .. } = self else { return Some(offset_ns) };
        let client = turns.thread + client * turns.threads;
        let from_s = turns.stages.active_from_s(client, Seconds::from_nanos(offset_ns).get())?;
        Some(Seconds::new(from_s).as_nanos().max(offset_ns))
    }
}
