//! Clients that wait for a message: woken by PostgreSQL's notifications, one client a message.
//!
//! A notification names the queue, the sender and the receiver of a message that has come, so that
//! the first waiting client who may take it is woken, and no other. A woken client asks again
//! through the request queue like any other; what it does not take, another gets: when it finds
//! nothing it waits on, and when it is gone the wake passes to the next.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Clients that wait, by queue, longest first.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queues: HashMap<i64, VecDeque<Waiting>>,
    waiting: usize,
    next: u64,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    client: i64,
    sender: Option<i64>,
    wake: oneshot::Sender<Arrival>,
}

/// A message that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) queue: i64,
    /// `None`: of an unknown sender, such as when several came due.
    pub(crate) sender: Option<i64>,
    /// `None`: for anyone.
    pub(crate) receiver: Option<i64>,
}

/// A place in the line of a queue. Dropped, the client no longer waits, and a wake that it did not
/// use goes to the next.
#[derive(Debug)]
pub(crate) struct Place {
    waiters: Arc<Waiters>,
    queue: i64,
    number: u64,
    woken: oneshot::Receiver<Arrival>,
    used: bool,
}

impl Waiters {
    /// Takes a place at the end of a queue's line; `None` when as many wait as may.
    pub(crate) fn wait(
        self: &Arc<Self>,
        queue: i64,
        client: i64,
        sender: Option<i64>,
        most: usize,
    ) -> Option<Place> {
        let mut state = self.state.lock();
        if state.waiting >= most {
            return None;
        }
        state.waiting += 1;
        state.next += 1;
        let number = state.next;
        let (wake, woken) = oneshot::channel();
        let waiting = Waiting { number, client, sender, wake };
        state.queues.entry(queue).or_default().push_back(waiting);
        Some(Place { waiters: Arc::clone(self), queue, number, woken, used: false })
    }

    /// Queues with waiting receives.
    pub(crate) fn queues(&self) -> Vec<i64> {
        self.state.lock().queues.keys().copied().collect()
    }

    /// Wakes the first client who may take this message.
    pub(crate) fn arrived(&self, arrival: Arrival) {
        let mut state = self.state.lock();
        let Some(line) = state.queues.get_mut(&arrival.queue) else { return };
        while let Some(at) = line.iter().position(|waiting| waiting.may_take(&arrival)) {
            let Some(first) = line.remove(at) else { break };
            if first.wake.send(arrival).is_ok() {
                break;
            }
        }
        state.forget_empty(arrival.queue);
    }

    /// Wakes everyone: notifications may have been lost.
    pub(crate) fn wake_all(&self) {
        let mut state = self.state.lock();
        for (queue, line) in state.queues.drain() {
            for waiting in line {
                let arrival = Arrival { queue, sender: None, receiver: None };
                // A receive that has ended needs no waking.
                waiting.wake.send(arrival).unwrap_or_default();
            }
        }
    }
}

impl State {
    fn forget_empty(&mut self, queue: i64) {
        if self.queues.get(&queue).is_some_and(VecDeque::is_empty) {
            self.queues.remove(&queue);
        }
    }
}

impl Waiting {
    fn may_take(&self, arrival: &Arrival) -> bool {
        let for_it = match arrival.receiver {
            Some(receiver) => receiver == self.client,
            None => arrival.sender != Some(self.client),
        };
        for_it
            && (self.sender.is_none() || arrival.sender.is_none() || self.sender == arrival.sender)
    }
}

impl Place {
    /// Waits until a message may be there.
    pub(crate) async fn woken(&mut self) {
        // The channel cannot be closed while the place exists; if it were, the client would only try again.
        drop((&mut self.woken).await);
    }

    /// The client tried after it was woken, so the wake is used up.
    pub(crate) fn used(mut self) {
        self.used = true;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.waiters.state.lock();
        state.waiting = state.waiting.saturating_sub(1);
        if let Some(line) = state.queues.get_mut(&self.queue) {
            line.retain(|waiting| waiting.number != self.number);
            let queue = self.queue;
            state.forget_empty(queue);
        }
        drop(state);
        if !self.used
            && let Ok(arrival) = self.woken.try_recv()
        {
            self.waiters.arrived(arrival);
        }
    }
}

/// Reads the payload of a notification: `queue,sender,receiver`, 0 for none.
pub(crate) fn parse(payload: &str) -> Option<Arrival> {
    let mut fields = payload.split(',').map(str::parse::<i64>);
    let (queue, sender, receiver) =
        (fields.next()?.ok()?, fields.next()?.ok()?, fields.next()?.ok()?);
    let some = |id: i64| (id != 0).then_some(id);
    Some(Arrival { queue, sender: some(sender), receiver: some(receiver) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(sender: i64, receiver: Option<i64>) -> Arrival {
        Arrival { queue: 1, sender: Some(sender), receiver }
    }

    #[test]
    fn the_first_client_who_may_take_the_message_is_woken_and_no_other() {
        let waiters = Arc::new(Waiters::default());
        let mut places: Vec<Place> =
            [7, 8, 9].into_iter().map(|c| waiters.wait(1, c, None, 10).unwrap()).collect();
        waiters.arrived(arrival(7, None)); // 7 sent it: 8 is the first who may
        waiters.arrived(arrival(7, Some(9)));
        let woken: Vec<bool> = places.iter_mut().map(|p| p.woken.try_recv().is_ok()).collect();
        assert_eq!(woken, [false, true, true]);
    }

    #[test]
    fn a_wake_that_a_gone_client_did_not_use_goes_to_the_next() {
        let waiters = Arc::new(Waiters::default());
        let first = waiters.wait(1, 7, None, 10).unwrap();
        let mut second = waiters.wait(1, 8, None, 10).unwrap();
        waiters.arrived(arrival(9, None));
        drop(first);
        assert!(second.woken.try_recv().is_ok());
    }

    #[test]
    fn no_more_wait_than_may_and_places_come_free() {
        let waiters = Arc::new(Waiters::default());
        let place = waiters.wait(1, 7, None, 1).unwrap();
        assert!(waiters.wait(1, 8, None, 1).is_none());
        drop(place);
        assert!(waiters.queues().is_empty());
        assert!(waiters.wait(1, 8, None, 1).is_some());
    }

    #[test]
    fn payloads_of_others_are_ignored() {
        assert_eq!(parse("3,1,0"), Some(Arrival { queue: 3, sender: Some(1), receiver: None }));
        for noise in ["", "3", "3,1", "a,b,c", "99999999999999999999,1,1"] {
            assert_eq!(parse(noise), None, "{noise}");
        }
    }
}
