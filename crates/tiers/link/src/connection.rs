//! One relayed connection: two sockets, two delay lines, and their readiness by the kernel.

use kendall_tier::Endpoint;

use crate::delay_line::DelayLine;

/// The two ends of a connection; direction `CLIENT` carries what the client sends.
pub(crate) const CLIENT: usize = 0;
/// The side that the link connected to.
pub(crate) const SERVER: usize = 1;

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) route: usize,
    pub(crate) ends: [Endpoint; 2],
    /// Bytes on their way from the end with the same index to the other.
    pub(crate) lines: [DelayLine; 2],
    /// Earliest moment for which a timer is set, by direction.
    pub(crate) armed_ns: [Option<u64>; 2],
    /// Directions whose end has been delivered.
    pub(crate) finished: [bool; 2],
    /// Whether the connection to the server is established; until then, nothing is written to it.
    pub(crate) connected: bool,
    /// Whether it waits in the list of connections that had more to do than one turn allows.
    pub(crate) again: bool,
}

impl Connection {
    /// A connection whose server side is being connected.
    pub(crate) fn new(route: usize, client: Endpoint, server: Endpoint) -> Self {
        Self {
            route,
            ends: [client, server],
            lines: [DelayLine::default(), DelayLine::default()],
            armed_ns: [None, None],
            finished: [false, false],
            connected: false,
            again: false,
        }
    }

    pub(crate) fn held(&self) -> usize {
        self.lines.iter().map(DelayLine::len).sum()
    }

    pub(crate) fn reset_on_close(&self) {
        for end in &self.ends {
            end.reset_on_close();
        }
    }
}
