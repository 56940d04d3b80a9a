//! The list of pending events: a 4-ary heap of 128-bit keys.
//!
//! A key is the bits of the event's time (which order as the times do, as none is negative), then
//! one bit that lets arrivals come after completions at the same moment, then the number of the
//! event (first scheduled, first served), then what happens. One comparison settles all of it.
//!
//! Most events schedule one other. So the root is left in place while its event is handled, and
//! the first event that is scheduled takes its place: one sift instead of two. Cancelled events
//! are not searched for: their customer or station keeps the number of the valid event, and
//! others are dropped when they come up.

/// Bits for what happens: two for the kind, the others for whom.
const PAYLOAD_BITS: u32 = 26;
const INDEX_BITS: u32 = 24;
/// Bits for the number of the event.
const NUMBER_BITS: u32 = 37;
/// Largest index that a payload can name.
pub(super) const MOST_CUSTOMERS: u32 = (1 << INDEX_BITS) - 1;
/// Events after which their numbers would repeat.
pub(super) const MOST_EVENTS: u64 = (1 << NUMBER_BITS) - 1;

const ARITY: usize = 4;

/// What happens, and to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// A source emits customers.
    Arrival,
    /// A customer's own service ends.
    Service,
    /// The first of those who share a station ends.
    Shared,
    /// A waiting customer's patience ends.
    Patience,
}

/// A pending event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) time: f64,
    pub(super) number: u64,
    pub(super) what: What,
    pub(super) index: u32,
}

#[derive(Debug, Clone)]
pub(super) struct Events {
    /// Padded with the greatest key, so that a parent always has four children to compare.
    keys: Vec<u128>,
    length: usize,
    scheduled: u64,
    /// The root's event is being handled; its place is free.
    hole: bool,
}

impl Events {
    pub(super) fn new() -> Self {
        Self { keys: vec![u128::MAX; 1 + ARITY], length: 0, scheduled: 0, hole: false }
    }

    /// Events scheduled so far.
    pub(super) fn scheduled(&self) -> u64 {
        self.scheduled
    }

    /// Time of the next event; infinite when there is none.
    #[inline]
    pub(super) fn next_time(&self) -> f64 {
        if self.length == 0 { f64::INFINITY } else { time_of(self.keys[0]) }
    }

    /// The next event. Its place is kept for the first that is scheduled while it is handled;
    /// [`finish`](Self::finish) ends that.
    #[inline]
    pub(super) fn begin(&mut self) -> Event {
        self.hole = true;
        event_of(self.keys[0])
    }

    /// Ends the handling of an event.
    #[inline]
    pub(super) fn finish(&mut self) {
        if self.hole {
            self.hole = false;
            self.remove_root();
        }
    }

    /// Schedules an event and returns its number, which is never 0.
    #[inline]
    pub(super) fn schedule(&mut self, time: f64, what: What, index: u32) -> u64 {
        self.scheduled += 1;
        let number = self.scheduled;
        let key = key_of(time, number, what, index);
        if self.hole {
            self.hole = false;
            self.sift_down(key);
        } else {
            self.push(key);
        }
        number
    }

    #[inline]
    fn push(&mut self, key: u128) {
        let mut at = self.length;
        self.length += 1;
        if self.keys.len() < ARITY * self.length + 1 {
            self.keys.resize(ARITY * 2 * self.length + 1, u128::MAX);
        }
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.keys[parent] <= key {
                break;
            }
            self.keys[at] = self.keys[parent];
            at = parent;
        }
        self.keys[at] = key;
    }

    #[inline]
    fn remove_root(&mut self) {
        self.length -= 1;
        let last = self.keys[self.length];
        self.keys[self.length] = u128::MAX;
        if self.length > 0 {
            self.sift_down(last);
        }
    }

    /// Puts `key` where the root was and lets it sink.
    #[inline]
    fn sift_down(&mut self, key: u128) {
        let mut at = 0;
        loop {
            let first = ARITY * at + 1;
            if first >= self.length {
                break;
            }
            let Some(&[a, b, c, d]) = self.keys[first..].first_chunk::<ARITY>() else { break };
            let (left, left_at) = if b < a { (b, first + 1) } else { (a, first) };
            let (right, right_at) = if d < c { (d, first + 3) } else { (c, first + 2) };
            let (least, least_at) = if right < left { (right, right_at) } else { (left, left_at) };
            if key <= least {
                break;
            }
            self.keys[at] = least;
            at = least_at;
        }
        self.keys[at] = key;
    }
}

#[inline]
fn key_of(time: f64, number: u64, what: What, index: u32) -> u128 {
    // An infinite time would order correctly too; `MAX` keeps arithmetic on it finite.
    let time = time.min(f64::MAX);
    let late = u64::from(what == What::Arrival);
    let kind = what as u64;
    let low = (late << (NUMBER_BITS + PAYLOAD_BITS))
        | (number << PAYLOAD_BITS)
        | (kind << INDEX_BITS)
        | u64::from(index);
    (u128::from(time.to_bits()) << 64) | u128::from(low)
}

#[inline]
fn time_of(key: u128) -> f64 {
    f64::from_bits((key >> 64) as u64)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "masked to the bits that the field has")]
fn event_of(key: u128) -> Event {
    let low = key as u64;
    let what = match (low >> INDEX_BITS) & 3 {
        0 => What::Arrival,
        1 => What::Service,
        2 => What::Shared,
        _ => What::Patience,
    };
    Event {
        time: time_of(key),
        number: (low >> PAYLOAD_BITS) & MOST_EVENTS,
        what,
        index: (low as u32) & MOST_CUSTOMERS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_then_completions_first_then_as_scheduled() {
        let mut events = Events::new();
        events.schedule(2.0, What::Arrival, 1);
        events.schedule(2.0, What::Service, 2);
        events.schedule(1.0, What::Patience, 3);
        events.schedule(2.0, What::Service, 4);
        events.schedule(0.0, What::Shared, 5);
        let mut order = Vec::new();
        while events.next_time() < 10.0 {
            order.push(events.begin().index);
            events.finish();
        }
        assert_eq!(order, [5, 3, 2, 4, 1]);
    }

    #[test]
    fn any_mixture_of_scheduling_and_handling_keeps_the_order() {
        let mut events = Events::new();
        let mut state = 1_u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            f64::from(u32::try_from(state >> 40).unwrap()) + 1.0
        };
        for _ in 0..100 {
            events.schedule(draw(), What::Service, 0);
        }
        let mut now = 0.0;
        for round in 0..10_000_u32 {
            let event = events.begin();
            assert!(event.time >= now);
            now = event.time;
            for _ in 0..(round % 3) {
                events.schedule(now + draw(), What::Service, round);
            }
            events.finish();
        }
        assert_eq!(events.length, 100 + 9_999 - 10_000);
    }
}
