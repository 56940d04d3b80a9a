//! Arrival schedules of the open loop: the moments at which requests are due.

/// The part of a schedule that one thread sends.
#[derive(Debug)]
pub(crate) struct Arrivals {
    next_ns: Option<u64>,
}

impl Arrivals {
    /// When the next request is due, after the start of the load.
    #[must_use]
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.next_ns
    }

    /// Goes on to the next request.
    pub(crate) fn advance(&mut self) {
        self.next_ns = None;
    }
}
