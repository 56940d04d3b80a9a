//! Which reads may be sent to servers: a server thread that has to send several large values answers
//! nobody else meanwhile, and on a shared connection others' small answers would wait behind them.

use std::collections::VecDeque;

use slab::Slab;

use crate::client::{Client, Waits};

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

    /// Whether some room is left.
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

    /// The client whose turn it is; given where it must be put into the list of those that are resumed.
    pub(crate) fn next_of(&mut self, clients: &mut Slab<Client>) -> Option<usize> {
        while let Some((index, generation)) = self.waiting.pop_front() {
            let client = clients.get_mut(index).filter(|client| client.generation == generation);
            let Some(client) = client else { continue };
            client.queues = false;
            if client.waits != Waits::Admission {
                continue;
            }
            client.leads = true;
            let is_new = !client.resuming;
            client.resuming = true;
            return is_new.then_some(index);
        }
        None
    }
}
