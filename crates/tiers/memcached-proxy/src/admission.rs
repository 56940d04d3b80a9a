//! Which reads may be sent to servers. Reads of large values are limited: while a server thread sends them, its other
//! connections are blocked, and so are small answers behind them on the same connection.

use std::collections::VecDeque;

/// What is known of the answer to a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// Its client's answers are small.
    Small,
    /// Its client has had no answer yet.
    Unknown,
    /// Its client's answers are large.
    Large,
}

impl Size {
    /// What is admitted for an answer of this size, of so many bytes.
    pub(crate) fn admits(self, bytes: usize) -> Admitted {
        match self {
            Self::Small => Admitted::default(),
            Self::Unknown => Admitted { unknown: bytes, large: 0 },
            Self::Large => Admitted { unknown: 0, large: bytes },
        }
    }
}

/// Bytes that are admitted for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Admitted {
    pub(crate) unknown: usize,
    pub(crate) large: usize,
}

/// Bytes of answers that servers were asked for, and the clients that wait until they are fewer, first
/// come first served.
#[derive(Debug)]
pub(crate) struct Admission {
    asked: usize,
    most: usize,
    /// Clients, with their generations.
    waiting: VecDeque<(usize, u64)>,
}

impl Admission {
    pub(crate) const fn new(most: usize) -> Self {
        Self { asked: 0, most, waiting: VecDeque::new() }
    }

    /// Servers may be asked for so many bytes from now on.
    pub(crate) fn bound(&mut self, most: usize) {
        self.most = most;
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether servers may be asked for so many bytes besides. One answer they may always be asked for.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.asked == 0 || self.asked.saturating_add(bytes) <= self.most
    }

    /// Whether some space is left.
    pub(crate) fn is_open(&self) -> bool {
        self.asked < self.most
    }

    pub(crate) fn ask(&mut self, bytes: usize) {
        self.asked += bytes;
    }

    pub(crate) fn answered(&mut self, bytes: usize) {
        self.asked -= bytes;
    }

    pub(crate) fn wait(&mut self, client: (usize, u64), first: bool) {
        if first {
            self.waiting.push_front(client);
        } else {
            self.waiting.push_back(client);
        }
    }

    /// The next client that waits, with its generation.
    pub(crate) fn next_waiting(&mut self) -> Option<(usize, u64)> {
        self.waiting.pop_front()
    }
}
