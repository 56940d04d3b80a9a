//! The scheduler's state against a model: whatever happens in whatever order, no operation is lost
//! or answered twice, no slot is overfilled or left idle while a task could use it, and builds that
//! always wait get equal shares.
#![allow(
    clippy::unwrap_used,
    clippy::too_many_lines,
    reason = "a test stops at the first surprise"
)]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kendall_build_cluster::scheduler::board::{
    Board, Effect, Ending, Held, Join, LeaseId, Limits, Loss, Offer, OperationId, Platform,
    Refusal, Stage, Submission, WorkerId,
};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

const LIMITS: Limits = Limits::USUAL;

type TestBoard = Board<u32, String>;

fn platform(pool: u8) -> Platform {
    Platform::new((pool > 0).then(|| ("pool".to_owned(), pool.to_string())))
}

fn offer(pools: &[u8]) -> Offer {
    Offer::new(pools.iter().map(|pool| ("pool".to_owned(), pool.to_string())))
}

fn submission(action: u32, invocation: &str) -> Submission<u32> {
    Submission {
        key: format!("action {action}").into(),
        merge: true,
        priority: 0,
        invocation: invocation.into(),
        platform: platform(0),
        time_limit_ns: 1_000_000 * SECOND,
        payload: Arc::new(action),
    }
}

fn join(board: &mut TestBoard, uid: &str, slots: usize, held: Vec<Held>, now: u64) -> WorkerId {
    let (name, uid) = (uid.into(), uid.into());
    let draining = false;
    board.join(Join { name, uid, slots, offer: offer(&[1]), held, draining }, now)
}

fn starts(board: &mut TestBoard) -> Vec<(WorkerId, LeaseId, u32)> {
    let starts = board.take_effects().into_iter().filter_map(|effect| match effect {
        Effect::Start { worker, lease, payload, .. } => Some((worker, lease, *payload)),
        _ => None,
    });
    starts.collect()
}

fn ending(board: &TestBoard, id: OperationId) -> String {
    match board.stage(id).unwrap() {
        Stage::Queued => "queued".into(),
        Stage::Executing => "executing".into(),
        Stage::Completed(Ending::Answer(answer)) => answer.to_string(),
        Stage::Completed(Ending::Failed { attempts, last }) => format!("failed {attempts} {last}"),
        Stage::Completed(Ending::NoWorker(refusal)) => refusal.to_string(),
        Stage::Completed(Ending::Cancelled) => "cancelled".into(),
        Stage::Completed(Ending::TimeLimit) => "time limit".into(),
    }
}

#[test]
fn equal_actions_share_one_execution_unless_they_must_not() {
    let mut board = TestBoard::new(LIMITS, 0, 0);
    let worker = join(&mut board, "w", 4, vec![], 0);
    let first = board.submit(submission(1, "a"), 0).unwrap();
    let second = board.submit(submission(1, "b"), 0).unwrap();
    let alone = Submission { merge: false, ..submission(1, "a") };
    board.submit(alone.clone(), 0).unwrap();
    board.submit(alone, 0).unwrap();
    let started = starts(&mut board);
    assert_eq!(started.len(), 3);
    assert!(board.finish(worker, started[0].1, Arc::new("done".into()), 5));
    assert_eq!(ending(&board, first), "done");
    assert_eq!(ending(&board, second), "done");
    assert_eq!(board.totals().executing, 2);
}

#[test]
fn a_merged_request_survives_the_cancellation_of_the_first() {
    let mut board = TestBoard::new(LIMITS, 0, 0);
    let worker = join(&mut board, "w", 1, vec![], 0);
    let first = board.submit(submission(1, "a"), 0).unwrap();
    let second = board.submit(submission(1, "b"), 0).unwrap();
    board.cancel(first, 1).unwrap();
    let (_, lease, _) = starts(&mut board)[0];
    assert_eq!(ending(&board, first), "cancelled");
    assert_eq!(ending(&board, second), "executing");
    assert!(board.finish(worker, lease, Arc::new("done".into()), 2));
    assert_eq!(ending(&board, second), "done");
    assert_eq!(ending(&board, first), "cancelled", "an answer never replaces another");
}

#[test]
fn a_cancelled_action_is_stopped_and_its_slot_is_free_when_the_worker_says_so() {
    let mut board = TestBoard::new(LIMITS, 0, 0);
    let worker = join(&mut board, "w", 1, vec![], 0);
    let first = board.submit(submission(1, "a"), 0).unwrap();
    let next = board.submit(submission(2, "a"), 0).unwrap();
    let (_, lease, _) = starts(&mut board)[0];
    board.cancel(first, 1).unwrap();
    let stops = board
        .take_effects()
        .iter()
        .any(|e| matches!(e, Effect::Stop { lease: l, .. } if *l == lease));
    assert!(stops);
    assert_eq!(ending(&board, next), "queued");
    board.give_back(worker, lease, "stopped", 2);
    assert_eq!(ending(&board, next), "executing");
    assert_eq!(ending(&board, first), "cancelled");
}

#[test]
fn an_action_whose_workers_die_is_tried_again_and_then_fails_with_words() {
    let mut board = TestBoard::new(LIMITS, 0, 0);
    let operation = board.submit(submission(1, "a"), 0).unwrap();
    let mut now = 0;
    for attempt in 1..=3 {
        let worker = join(&mut board, &format!("w{attempt}"), 1, vec![], now);
        assert_eq!(starts(&mut board).len(), 1);
        assert_eq!(ending(&board, operation), "executing");
        board.disconnected(worker, now);
        now += LIMITS.reconnect_ns;
        board.tick(now);
    }
    assert_eq!(ending(&board, operation), "failed 3 its worker died (w3)");
}

#[test]
fn a_worker_that_says_nothing_is_dead_and_its_late_answer_is_nobodys() {
    let mut board = TestBoard::new(LIMITS, 0, 0);
    let silent = join(&mut board, "silent", 1, vec![], 0);
    let operation = board.submit(submission(1, "a"), 0).unwrap();
    let (_, old, _) = starts(&mut board)[0];
    board.tick(LIMITS.silence_ns);
    assert_eq!(ending(&board, operation), "queued");
    let alive = join(&mut board, "alive", 1, vec![], LIMITS.silence_ns);
    let (_, new, _) = starts(&mut board)[0];
    assert!(!board.finish(silent, old, Arc::new("late".into()), LIMITS.silence_ns + 1));
    assert_eq!(ending(&board, operation), "executing");
    assert!(board.finish(alive, new, Arc::new("done".into()), LIMITS.silence_ns + 2));
    assert_eq!(ending(&board, operation), "done");
}

/// A scheduler that was frozen received nothing: its workers do not count as silent.
#[test]
fn workers_of_a_scheduler_that_stood_still_are_not_lost() {
    let mut board = TestBoard::new(LIMITS, 0, 0);
    let worker = join(&mut board, "w", 1, vec![], 0);
    let operation = board.submit(submission(1, "a"), 0).unwrap();
    let (_, lease, _) = starts(&mut board)[0];
    let still = 3 * LIMITS.silence_ns;
    board.stood_still(still, still);
    board.tick(still);
    assert_eq!(ending(&board, operation), "executing");
    assert!(board.finish(worker, lease, Arc::new("done".into()), still + 1));
    // From then on its silence counts as ever.
    board.tick(still + LIMITS.silence_ns);
    let lost = board.take_effects().into_iter().find_map(|effect| match effect {
        Effect::Lost { worker, loss, .. } => Some((worker, loss)),
        _ => None,
    });
    assert_eq!(lost, Some((worker, Loss::Silent { for_ns: LIMITS.silence_ns })));
    assert_eq!(board.totals().workers, 0);
}

/// A worker that says with its return that it drains gets nothing, not even at once.
#[test]
fn a_draining_worker_that_comes_back_takes_no_task() {
    let mut board = TestBoard::new(LIMITS, 0, 0);
    board.submit(submission(1, "a"), 0).unwrap();
    let (name, uid): (Arc<str>, Arc<str>) = ("w".into(), "w".into());
    let again = Join { name, uid, slots: 1, offer: offer(&[1]), held: vec![], draining: true };
    board.join(again, 0);
    assert_eq!(starts(&mut board), vec![]);
}

#[test]
fn a_scheduler_that_restarted_takes_over_what_workers_are_at() {
    let held = |lease| Held { lease: LeaseId(lease), key: "action 1".into(), merge: true };
    // The worker comes first, then the client.
    let mut board = TestBoard::new(LIMITS, 1 << 32, 0);
    let worker = join(&mut board, "w", 1, vec![held(7)], 0);
    let operation = board.submit(submission(1, "a"), 1).unwrap();
    assert_eq!(ending(&board, operation), "executing");
    assert_eq!(starts(&mut board), vec![], "nothing is run twice");
    assert!(board.finish(worker, LeaseId(7), Arc::new("done".into()), 2));
    assert_eq!(ending(&board, operation), "done");
    // The client first, then the worker.
    let mut board = TestBoard::new(LIMITS, 1 << 32, 0);
    let operation = board.submit(submission(1, "a"), 0).unwrap();
    assert_eq!(ending(&board, operation), "queued");
    let worker = join(&mut board, "w", 1, vec![held(7)], 1);
    assert_eq!(ending(&board, operation), "executing");
    assert!(board.finish(worker, LeaseId(7), Arc::new("done".into()), 2));
    assert_eq!(ending(&board, operation), "done");
    // No client: it is stopped after a while.
    let mut board = TestBoard::new(LIMITS, 1 << 32, 0);
    let worker = join(&mut board, "w", 1, vec![held(7)], 0);
    board.heard(worker, LIMITS.unwatched_ns);
    board.tick(LIMITS.unwatched_ns);
    let stopped = board.take_effects().iter().any(|e| matches!(e, Effect::Stop { .. }));
    assert!(stopped);
}

#[test]
fn a_worker_that_comes_back_keeps_its_leases_and_returns_those_it_never_received() {
    let mut board = TestBoard::new(LIMITS, 0, 0);
    let worker = join(&mut board, "w", 2, vec![], 0);
    let kept = board.submit(submission(1, "a"), 0).unwrap();
    let lost = board.submit(submission(2, "a"), 0).unwrap();
    let started = starts(&mut board);
    board.disconnected(worker, 1);
    let held = Held { lease: started[0].1, key: "action 1".into(), merge: true };
    assert_eq!(join(&mut board, "w", 2, vec![held], 2), worker);
    assert_eq!(ending(&board, kept), "executing");
    let again = starts(&mut board);
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].2, 2);
    assert!(board.finish(worker, started[0].1, Arc::new("one".into()), 3));
    assert!(board.finish(worker, again[0].1, Arc::new("two".into()), 3));
    assert_eq!((ending(&board, kept).as_str(), ending(&board, lost).as_str()), ("one", "two"));
}

#[test]
fn what_no_worker_can_run_is_refused_with_words_or_waits_a_bounded_time() {
    let mut board = TestBoard::new(LIMITS, 0, 0);
    join(&mut board, "w", 1, vec![], 0);
    let other = Submission { platform: platform(2), ..submission(1, "a") };
    // Workers may not have found the scheduler yet.
    let early = board.submit(other.clone(), 0).unwrap();
    board.heard(WorkerId(1), LIMITS.no_worker_ns);
    board.tick(LIMITS.no_worker_ns);
    let words = "no worker offers the platform {pool=2} that the action asks for; \
                 workers offer {pool=1}";
    assert_eq!(ending(&board, early), words);
    let refusal = board.submit(other, LIMITS.no_worker_ns).unwrap_err();
    assert_eq!(refusal.to_string(), words);
}

#[test]
fn a_full_queue_refuses_and_says_so() {
    let limits = Limits { queue_length: 2, ..LIMITS };
    let mut board = TestBoard::new(limits, 0, 0);
    for action in 0..2 {
        board.submit(submission(action, "a"), 0).unwrap();
    }
    let refusal = board.submit(submission(2, "a"), 0).unwrap_err();
    assert_eq!(refusal, Refusal::QueueFull { waiting: 2 });
    board.submit(submission(1, "a"), 0).expect("one more for an equal action needs no room");
}

#[test]
fn priorities_come_first_and_a_merged_request_lifts_what_waits() {
    let mut board = TestBoard::new(LIMITS, 0, 0);
    for action in 0..3 {
        board.submit(submission(action, "a"), 0).unwrap();
    }
    let urgent = Submission { priority: -5, ..submission(2, "b") };
    board.submit(urgent, 0).unwrap();
    let worker = join(&mut board, "w", 1, vec![], 0);
    let mut order = vec![];
    while let Some((_, lease, action)) = starts(&mut board).first().copied() {
        order.push(action);
        board.finish(worker, lease, Arc::new(String::new()), 1);
    }
    assert_eq!(order, [2, 0, 1]);
}

#[test]
fn a_result_is_kept_for_those_who_come_back_and_then_forgotten() {
    let mut board = TestBoard::new(LIMITS, 0, 0);
    let worker = join(&mut board, "w", 1, vec![], 0);
    let operation = board.submit(submission(1, "a"), 0).unwrap();
    let (_, lease, _) = starts(&mut board)[0];
    board.unwatch(operation, 0);
    board.finish(worker, lease, Arc::new("done".into()), 1);
    board.tick(LIMITS.kept_ns);
    assert_eq!(ending(&board, operation), "done");
    board.tick(LIMITS.kept_ns + 1);
    assert!(board.stage(operation).is_err());
}

#[test]
fn the_time_of_a_result_begins_when_its_last_watcher_goes() {
    let mut board = TestBoard::new(LIMITS, 0, 0);
    let worker = join(&mut board, "w", 1, vec![], 0);
    let id = board.submit(submission(1, "a"), 0).unwrap();
    let (_, lease, _) = starts(&mut board)[0];
    board.finish(worker, lease, Arc::new("done".into()), SECOND);
    // Beyond the time for which results are kept: a client still reads it.
    for now in (2..200).map(|second| second * SECOND) {
        board.heard(worker, now);
        board.tick(now);
        assert_eq!(ending(&board, id), "done");
    }
    board.unwatch(id, 200 * SECOND);
    board.watch(id).unwrap();
    board.unwatch(id, 210 * SECOND);
    board.tick(210 * SECOND + LIMITS.kept_ns - 1);
    assert_eq!(ending(&board, id), "done");
    board.tick(210 * SECOND + LIMITS.kept_ns);
    assert!(board.stage(id).is_err());
}

/// Where results are not kept at all one that is still read must neither be gone nor keep the others.
#[test]
fn a_result_that_is_read_keeps_no_other_one_where_none_are_kept() {
    let mut board = TestBoard::new(Limits { kept_ns: 0, ..LIMITS }, 0, 0);
    let worker = join(&mut board, "w", 1, vec![], 0);
    let mut done = |action: u32| {
        let id = board.submit(submission(action, "a"), u64::from(action)).unwrap();
        let (_, lease, _) = starts(&mut board)[0];
        board.finish(worker, lease, Arc::new("done".into()), u64::from(action));
        id
    };
    let (read, left) = (done(1), done(2));
    board.unwatch(left, 3);
    board.tick(4);
    assert_eq!(ending(&board, read), "done");
    assert!(board.stage(left).is_err());
    board.unwatch(read, 5);
    board.tick(6);
    assert!(board.stage(read).is_err());
}

#[test]
fn where_there_is_no_room_the_oldest_result_goes_that_nobody_reads() {
    let limits = Limits { operations: 3, ..LIMITS };
    let mut board = TestBoard::new(limits, 0, 0);
    let worker = join(&mut board, "w", 1, vec![], 0);
    let mut ids = Vec::new();
    for action in 0..3 {
        let id = board.submit(submission(action, "a"), u64::from(action)).unwrap();
        let (_, lease, _) = starts(&mut board)[0];
        board.finish(worker, lease, Arc::new("done".into()), u64::from(action));
        ids.push(id);
    }
    assert_eq!(
        board.submit(submission(3, "a"), 10).unwrap_err(),
        Refusal::TooManyOperations { known: 3 }
    );
    // The first is read still.
    board.unwatch(ids[1], 11);
    board.unwatch(ids[2], 12);
    board.submit(submission(3, "a"), 13).unwrap();
    let kept: Vec<bool> = ids.iter().map(|id| board.stage(*id).is_ok()).collect();
    assert_eq!(kept, [true, false, true]);
    let (_, lease, _) = starts(&mut board)[0];
    board.finish(worker, lease, Arc::new("done".into()), 14);
    board.submit(submission(4, "a"), 15).unwrap();
    let kept: Vec<bool> = ids.iter().map(|id| board.stage(*id).is_ok()).collect();
    assert_eq!(kept, [true, false, false]);
}

#[test]
fn an_operation_that_nobody_watches_is_cancelled_after_a_while() {
    let mut board = TestBoard::new(LIMITS, 0, 0);
    let operation = board.submit(submission(1, "a"), 0).unwrap();
    let limits = Limits { no_worker_ns: u64::MAX, ..LIMITS };
    assert!(limits.unwatched_ns > LIMITS.no_worker_ns);
    board.unwatch(operation, 0);
    join(&mut board, "w", 1, vec![], LIMITS.no_worker_ns - 1);
    assert_eq!(ending(&board, operation), "executing");
    board.tick(LIMITS.unwatched_ns);
    assert_eq!(ending(&board, operation), "cancelled");
}

/// Two builds that always have something waiting, whatever their queues and durations: equal slot
/// time. The greatest difference is what the last tasks add.
fn shares(slots: usize, lengths: [u32; 2], durations: [u64; 2]) -> [u64; 2] {
    let limits = Limits { queue_length: 1_000_000, operations: 2_000_000, ..LIMITS };
    let mut board = TestBoard::new(limits, 0, 0);
    let mut next = 0;
    let mut running: Vec<(u64, LeaseId, usize)> = vec![];
    let mut used = [0, 0];
    let mut add = |board: &mut TestBoard, build: usize, now: u64| {
        next += 1;
        let mut one = submission(next * 2 + u32::try_from(build).unwrap(), ["a", "b"][build]);
        one.merge = false;
        board.submit(one, now).unwrap();
    };
    for build in [0, 1] {
        for _ in 0..lengths[build] {
            add(&mut board, build, 0);
        }
    }
    let worker = join(&mut board, "w", slots, vec![], 0);
    let mut now = 0;
    let end = 400 * durations[0].max(durations[1]);
    while now < end {
        for (_, lease, action) in starts(&mut board) {
            let build = usize::try_from(action % 2).unwrap();
            running.push((now + durations[build], lease, build));
        }
        running.sort_unstable_by_key(|one| std::cmp::Reverse(one.0));
        let (at, lease, build) = running.pop().unwrap();
        now = at;
        used[build] += durations[build];
        add(&mut board, build, now);
        board.finish(worker, lease, Arc::new(String::new()), now);
    }
    used
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn builds_that_always_wait_get_equal_shares_within_a_tenth(
        slots in 1_usize..9,
        long in 1_u32..400,
        short in 1_u32..4,
        first in 1_u64..20,
        second in 1_u64..20,
    ) {
        // A queue that is shorter than the slots does not always wait.
        let slots_u32 = u32::try_from(slots).unwrap();
        let used = shares(slots, [long + slots_u32, short + slots_u32], [first, second]);
        let (least, most) = (used[0].min(used[1]), used[0].max(used[1]));
        prop_assert!(least * 10 >= most * 9, "{used:?}");
    }
}

/// Something that happens.
#[derive(Debug, Clone)]
enum Event {
    Submit { action: u32, invocation: u8, priority: i32, pool: u8, merge: bool },
    Join { worker: u8, slots: usize, remembers: bool },
    Break { worker: u8 },
    Drain { worker: u8 },
    Leave { worker: u8 },
    Finish { pick: usize },
    GiveBack { pick: usize },
    Cancel { pick: usize },
    Unwatch { pick: usize },
    Pass { seconds: u64 },
}

fn event() -> impl Strategy<Value = Event> {
    let pick = || 0_usize..1000;
    prop_oneof![
        6 => (0_u32..12, 0_u8..4, -2_i32..3, 0_u8..3, prop::bool::weighted(0.8)).prop_map(
            |(action, invocation, priority, pool, merge)| Event::Submit {
                action: action * 3 + u32::from(pool), invocation, priority, pool, merge
            }
        ),
        3 => (0_u8..4, 1_usize..4, any::<bool>())
            .prop_map(|(worker, slots, remembers)| Event::Join { worker, slots, remembers }),
        1 => (0_u8..4).prop_map(|worker| Event::Break { worker }),
        1 => (0_u8..4).prop_map(|worker| Event::Drain { worker }),
        1 => (0_u8..4).prop_map(|worker| Event::Leave { worker }),
        6 => pick().prop_map(|pick| Event::Finish { pick }),
        1 => pick().prop_map(|pick| Event::GiveBack { pick }),
        2 => pick().prop_map(|pick| Event::Cancel { pick }),
        1 => pick().prop_map(|pick| Event::Unwatch { pick }),
        2 => (0_u64..8).prop_map(|seconds| Event::Pass { seconds }),
    ]
}

/// What a test knows of the world around the board.
#[derive(Default)]
struct World {
    now: u64,
    ids: HashMap<u8, WorkerId>,
    slots: HashMap<WorkerId, usize>,
    /// What each worker is at, as it heard it.
    at: HashMap<WorkerId, Vec<(LeaseId, u32, bool)>>,
    operations: Vec<OperationId>,
    watched: HashSet<OperationId>,
    endings: HashMap<OperationId, String>,
    queued: i64,
    uids: HashMap<u8, String>,
    lives: u32,
}

impl World {
    fn offers(worker: u8) -> Offer {
        offer(if worker == 0 { &[1, 2] } else { &[1] })
    }

    fn absorb(&mut self, board: &mut TestBoard, merges: &HashMap<u32, bool>) {
        for effect in board.take_effects() {
            match effect {
                Effect::Start { worker, lease, payload, .. } => {
                    let at = self.at.entry(worker).or_default();
                    at.push((lease, *payload, merges[&*payload]));
                    assert!(at.len() <= self.slots[&worker], "a slot is filled twice");
                }
                Effect::Stop { worker, lease } => {
                    // It stops at once, as far as the model goes.
                    if let Some(at) = self.at.get_mut(&worker) {
                        at.retain(|held| held.0 != lease);
                    }
                    board.give_back(worker, lease, "stopped", self.now);
                    self.absorb(board, merges);
                }
                Effect::Queued { .. } => self.queued += 1,
                Effect::Started { .. } | Effect::Dropped => self.queued -= 1,
                Effect::Lost { .. }
                | Effect::Completed { .. }
                | Effect::Began(_)
                | Effect::Changed(_) => {}
                Effect::Forgotten(id) => {
                    assert!(!self.watched.contains(&id), "forgotten while somebody watches");
                    self.operations.retain(|known| *known != id);
                }
            }
        }
    }

    fn check(&mut self, board: &TestBoard) {
        for id in &self.operations {
            let now = ending(board, *id);
            let ended = now != "queued" && now != "executing";
            if let Some(before) = self.endings.get(id) {
                assert_eq!(*before, now, "an operation ended twice");
            }
            if ended {
                self.endings.insert(*id, now);
            }
        }
        let totals = board.totals();
        let per_queue: usize = board.queues().iter().map(|line| line.waiting).sum();
        assert_eq!(totals.waiting, per_queue);
        for line in board.workers(self.now) {
            assert!(
                line.actions.len() <= line.slots
                    || line.draining
                    || !line.connected
                    || line.actions.iter().any(|action| action.2 == "found")
            );
        }
        let idle = board
            .workers(self.now)
            .into_iter()
            .filter(|line| line.connected && !line.draining && line.actions.len() < line.slots);
        let idle: HashSet<String> = idle.map(|line| line.offer).collect();
        for queue in board.queues() {
            assert!(queue.waiting > 0);
            let could = |offer: &String| {
                queue.platform == "{}"
                    || offer.contains(&queue.platform[1..queue.platform.len() - 1])
            };
            assert!(
                !idle.iter().any(could),
                "a task waits while a slot is idle: {queue:?} {idle:?}"
            );
        }
    }
}

fn happens(
    world: &mut World,
    board: &mut TestBoard,
    event: Event,
    merges: &mut HashMap<u32, bool>,
) {
    let now = world.now;
    match event {
        Event::Submit { action, invocation, priority, pool, merge } => {
            // One action either may be shared or must not.
            let merge = *merges.entry(action).or_insert(merge);
            let invocation = format!("build {invocation}");
            let one = Submission {
                merge,
                priority,
                platform: platform(pool),
                ..submission(action, &invocation)
            };
            if let Ok(id) = board.submit(one, now) {
                world.operations.push(id);
                world.watched.insert(id);
            }
        }
        Event::Join { worker, slots, remembers } => {
            let known = world.ids.get(&worker).copied();
            let mut at = known.and_then(|id| world.at.remove(&id)).unwrap_or_default();
            if !remembers {
                // Another process of that name.
                at.clear();
                world.lives += 1;
                world.uids.insert(worker, format!("w{worker} {}", world.lives));
            }
            let uid = world.uids.entry(worker).or_insert(format!("w{worker}")).clone();
            let held = at.iter().map(|(lease, action, merge)| Held {
                lease: *lease,
                key: format!("action {action}").into(),
                merge: *merge,
            });
            let held = held.collect();
            let slots = slots.max(at.len());
            let offer = World::offers(worker);
            let name = uid.as_str().into();
            let (uid, draining) = (uid.into(), false);
            let id = board.join(Join { name, uid, slots, offer, held, draining }, now);
            world.ids.insert(worker, id);
            world.slots.insert(id, slots);
            world.at.insert(id, at);
        }
        Event::Break { worker } => {
            if let Some(id) = world.ids.get(&worker) {
                board.disconnected(*id, now);
            }
        }
        Event::Drain { worker } => {
            if let Some(id) = world.ids.get(&worker) {
                board.drain(*id);
            }
        }
        Event::Leave { worker } => {
            if let Some(id) = world.ids.remove(&worker) {
                world.at.remove(&id);
                board.leave(id, now);
            }
        }
        Event::Finish { pick } | Event::GiveBack { pick } => {
            let all: Vec<(WorkerId, LeaseId)> =
                world.at.iter().flat_map(|(id, at)| at.iter().map(|held| (*id, held.0))).collect();
            let mut all = all;
            all.sort_unstable();
            if let Some((id, lease)) = all.get(pick % all.len().max(1)).copied() {
                world.at.get_mut(&id).unwrap().retain(|held| held.0 != lease);
                if matches!(event, Event::Finish { .. }) {
                    board.finish(id, lease, Arc::new(format!("answer {}", lease.0)), now);
                } else {
                    board.give_back(id, lease, "its disk is full", now);
                }
            }
        }
        Event::Cancel { pick } => {
            if !world.operations.is_empty() {
                let id = world.operations[pick % world.operations.len()];
                board.cancel(id, now).unwrap();
            }
        }
        Event::Unwatch { pick } => {
            if !world.operations.is_empty() {
                let id = world.operations[pick % world.operations.len()];
                if world.watched.remove(&id) {
                    board.unwatch(id, now);
                }
            }
        }
        Event::Pass { seconds } => {
            world.now += seconds * SECOND;
            board.tick(world.now);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_every_operation_ends_once(events in prop::collection::vec(event(), 1..120)) {
        let mut board = TestBoard::new(LIMITS, 0, 0);
        let mut world = World::default();
        let mut merges = HashMap::new();
        for event in events {
            happens(&mut world, &mut board, event, &mut merges);
            world.absorb(&mut board, &merges);
            world.check(&board);
            prop_assert_eq!(usize::try_from(world.queued).unwrap(), board.totals().waiting);
        }
        // All workers are gone for good: what is open ends, with words.
        for round in 0..100 {
            world.now += 10 * SECOND;
            board.tick(world.now);
            world.absorb(&mut board, &merges);
            world.check(&board);
            if round == 99 {
                for id in &world.operations {
                    let now = ending(&board, *id);
                    prop_assert!(now != "queued" && now != "executing", "{now}");
                }
            }
        }
        prop_assert_eq!(board.totals().waiting, 0);
        prop_assert_eq!(board.totals().executing, 0);
    }
}
