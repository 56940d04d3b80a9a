//! A simulated host: cores shared by all threads, the thread that ran least goes first.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// A thread may run this long while others wait, in s (the kernel's base slice is 3 ms).
pub(super) const SLICE_S: f64 = 3e-3;
/// A thread that wakes interrupts one that has run so much more than it, in s.
const PREEMPTS_S: f64 = 0.5e-3;

/// A moment or an amount of processor time that is ordered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct At(pub(super) f64);

impl Eq for At {}

impl Ord for At {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What a core does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Core {
    /// The thread on it, and when it began (later than now while the core wakes up).
    pub(super) running: Option<(u32, f64)>,
    /// Counts what was begun here, so that an end that was meant for something else is recognized.
    pub(super) turn: u32,
}

/// Cores and those that wait for one.
#[derive(Debug)]
pub(super) struct Cores {
    pub(super) cores: Vec<Core>,
    waiting: BinaryHeap<Reverse<(At, u32, u32)>>,
    order: u32,
    /// Virtual runtime that a waking thread is lifted to, less a slice.
    clock: f64,
}

/// Where a thread that wakes goes.
pub(super) enum Place {
    /// To this core, which slept.
    Idle(usize),
    /// To this core, whose thread it interrupts.
    Preempt(usize),
    Wait,
}

impl Cores {
    pub(super) fn new(count: u32) -> Self {
        let core = Core { running: None, turn: 0 };
        let cores = (0..count).map(|_| core).collect();
        Self { cores, waiting: BinaryHeap::new(), order: 0, clock: 0.0 }
    }

    /// Virtual runtime of a thread that wakes: lifted, so that long sleep is not credit.
    pub(super) fn lifted(&self, ran: f64) -> f64 {
        ran.max(self.clock - SLICE_S)
    }

    /// Where a thread goes that wakes with this virtual runtime; `accounts` are those of all.
    pub(super) fn place(&self, now: f64, waking: f64, accounts: &[f64]) -> Place {
        if let Some(idle) = self.cores.iter().position(|core| core.running.is_none()) {
            return Place::Idle(idle);
        }
        let ran = |core: &Core| {
            core.running.map_or(f64::NEG_INFINITY, |(other, since)| {
                accounts[other as usize] + (now - since).max(0.0)
            })
        };
        let most = (0..self.cores.len())
            .max_by(|a, b| ran(&self.cores[*a]).total_cmp(&ran(&self.cores[*b])));
        match most {
            Some(core) if ran(&self.cores[core]) - waking > PREEMPTS_S => Place::Preempt(core),
            _ => Place::Wait,
        }
    }

    pub(super) fn wait(&mut self, thread: u32, ran: f64) {
        self.order = self.order.wrapping_add(1);
        self.waiting.push(Reverse((At(ran), self.order, thread)));
    }

    /// Who ran least of those that wait.
    pub(super) fn next(&mut self) -> Option<u32> {
        self.waiting.pop().map(|Reverse((_, _, thread))| thread)
    }

    pub(super) fn anybody_runs(&self) -> bool {
        self.cores.iter().any(|core| core.running.is_some())
    }

    pub(super) fn anybody_waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Least virtual runtime of those that wait.
    pub(super) fn least_waiting(&self) -> Option<f64> {
        self.waiting.peek().map(|Reverse((ran, _, _))| ran.0)
    }

    pub(super) fn begin(&mut self, core: usize, thread: u32, at: f64, ran: f64) -> u32 {
        self.clock = self.clock.max(ran);
        let core = &mut self.cores[core];
        core.running = Some((thread, at));
        core.turn = core.turn.wrapping_add(1);
        core.turn
    }

    pub(super) fn leave(&mut self, core: usize) {
        self.cores[core].running = None;
        self.cores[core].turn = self.cores[core].turn.wrapping_add(1);
    }
}
