//! The state of a station: its lists of customers, and those in service.

use super::plan::{Hop, Service, StationPlan};
use super::tally::StationTally;

/// No customer, no join.
pub(super) const NONE: u32 = u32::MAX;

/// A list of customers, through their `next` and `previous`.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    pub(super) head: u32,
    pub(super) tail: u32,
}

pub(super) const EMPTY: List = List { head: NONE, tail: NONE };

#[derive(Debug, Clone)]
pub(super) struct StationState {
    pub(super) present: u32,
    pub(super) serving: u32,
    pub(super) waiting: u32,
    /// One queue a level.
    pub(super) queues: Vec<List>,
    /// Whether a level is served already that is served one by one.
    pub(super) taken: Vec<bool>,
    /// Those in service, last begun first; kept only where service can be interrupted.
    pub(super) interruptible: List,
    /// Customers elsewhere who wait for a free place here, in order, with where they go.
    pub(super) blocked: std::collections::VecDeque<(u32, Hop)>,
    /// Customers elsewhere in service, or held back from it, who go here next: where that decides
    /// whether they are served.
    pub(super) aiming: Vec<u32>,
    /// Work given so far to each of those who share, per weight.
    pub(super) given: f64,
    pub(super) given_at: f64,
    /// Weight of all who share.
    pub(super) weight: f64,
    /// Those who share: a heap by the value of `given` at which they end.
    pub(super) sharing: Vec<(f64, u32)>,
    /// Number of the event that counts for those who share.
    pub(super) event: u64,
    pub(super) tally: StationTally,
}

impl StationState {
    pub(super) fn new(plan: &StationPlan) -> Self {
        let levels = plan.levels.iter().max().map_or(1, |most| *most as usize + 1);
        Self {
            present: 0,
            serving: 0,
            waiting: 0,
            queues: vec![EMPTY; levels],
            taken: vec![false; levels],
            interruptible: EMPTY,
            blocked: std::collections::VecDeque::new(),
            aiming: Vec::new(),
            given: 0.0,
            given_at: 0.0,
            weight: 0.0,
            sharing: Vec::new(),
            event: 0,
            tally: StationTally::default(),
        }
    }

    #[inline]
    pub(super) fn has_slot(&self, plan: &StationPlan) -> bool {
        match plan.service {
            Service::Delay => true,
            Service::Dedicated => self.serving < plan.servers,
            Service::Shared { slots } => self.serving < slots,
        }
    }

    #[inline]
    pub(super) fn busy(&self, plan: &StationPlan) -> f64 {
        match plan.service {
            Service::Delay | Service::Dedicated => {
                f64::from(self.serving - self.tally.blocked.value)
            }
            Service::Shared { .. } if plan.speeds.is_empty() => {
                f64::from(self.serving.min(plan.servers))
            }
            Service::Shared { .. } => f64::from(self.serving.min(1)),
        }
    }
}
