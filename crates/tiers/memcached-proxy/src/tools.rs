//! What all parts of the engine use.

use kendall_protocols::memcached::Request;
use kendall_tier::{Clock, Recorder};

use crate::mark::Mark;
use crate::poller::Poller;

/// The clock, the counters and the system's events.
#[derive(Debug)]
pub(crate) struct Tools {
    clock: Clock,
    /// The latest reading of the clock.
    pub(crate) now_ns: u64,
    pub(crate) recorder: Recorder,
    pub(crate) poller: Poller,
    /// Grows whenever something came closer to its end: bytes moved, a request was answered, a
    /// connection opened or closed, an interest in events changed.
    pub(crate) progress: u64,
    /// The next opaque of the proxy's own.
    opaque: u64,
}

impl Tools {
    pub(crate) fn new(clock: Clock, recorder: Recorder, poller: Poller) -> Self {
        let now_ns = clock.now_ns();
        Self { clock, now_ns, recorder, poller, progress: 0, opaque: 0 }
    }

    /// What shows that a reply is that of a request which is sent now.
    pub(crate) fn mark(&mut self, request: &Request, bytes: &[u8]) -> Mark {
        self.opaque += 1;
        Mark::of(request, bytes, self.opaque)
    }

    /// Such a number for a command of the proxy's own.
    pub(crate) fn next_opaque(&mut self) -> u64 {
        self.opaque += 1;
        self.opaque
    }

    /// Reads the clock.
    #[inline]
    pub(crate) fn look(&mut self) -> u64 {
        self.now_ns = self.clock.now_ns();
        self.now_ns
    }
}
