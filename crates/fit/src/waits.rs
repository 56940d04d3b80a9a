//! In which tier requests wait for a hidden station, and for what, by the states of threads and connections.

use kendall_protocols::topology::{Part, Role};
use kendall_protocols::waiting::Waiting;

use crate::hidden::HiddenStation;
use crate::measured::{OperatingPoint, ProcessView};

/// Share of what must have come on top, or be held, from which it is taken for the cause.
const LEAST_SHARE: f64 = 0.5;
/// Share of them from which they wait in another tier, too: a pool of connections lets only some of them through to it.
const LEAST_ELSEWHERE: f64 = 0.25;
/// Fewer requests that wait show nothing beside threads that wait for work.
const LEAST_WAITING: f64 = 3.0;

/// Where requests wait.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    pub tier: Part,
    /// What holds the station there.
    pub holder: Holder,
    /// What its threads and connections waited for at the highest load, on average.
    pub waiting: Waiting,
}

/// What holds a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// Whatever serves connections: they wait until they are accepted.
    AcceptQueue,
    /// A flush to the disk.
    Disk,
    /// A thread that sleeps.
    Sleep,
    /// States of threads do not tell.
    Unknown,
}

/// Compares the lightest with the heaviest load of a closed loop: the clients that came on top wait for the
/// station, and where threads and connections that wait became as many, requests wait. `None` where that is seen
/// in no tier, or in several.
pub fn place(
    station: &HiddenStation,
    light: &OperatingPoint,
    heavy: &OperatingPoint,
) -> Option<Place> {
    let size = f64::from(station.size());
    let waiting_requests = heavy.population? - light.population?.max(size);
    let seen =
        |process: &ProcessView| Some([light.process(&process.part)?.waiting?, process.waiting?]);
    let processes = heavy.processes.iter().filter_map(|one| Some((&one.part, seen(one)?)));
    let per_s = [light, heavy].map(|point| point.client.throughput_per_s);
    let (tier, [before, waiting]) = grown(waiting_requests, per_s, processes)?;
    let enough = LEAST_SHARE * waiting_requests;
    let holder = if waiting.accept_queue - before.accept_queue >= enough {
        Holder::AcceptQueue
    } else if waiting.disk >= LEAST_SHARE * size {
        Holder::Disk
    } else if waiting.sleep >= LEAST_SHARE * size {
        Holder::Sleep
    } else {
        Holder::Unknown
    };
    Some(Place { tier: tier.clone(), holder, waiting })
}

/// The one tier in which what waits grew, from the lightest load to the heaviest, by as many as most of these requests: the
/// requests inside it where connections of all tiers show them, and show none that wait in another; otherwise threads and
/// connections that wait, unless these may wait for another tier.
pub(crate) fn grown<'a>(
    waiting_requests: f64,
    per_s: [f64; 2],
    parts: impl Iterator<Item = (&'a Part, [Waiting; 2])>,
) -> Option<(&'a Part, [Waiting; 2])> {
    let enough = LEAST_SHARE * waiting_requests;
    let tiers: Vec<_> = parts.filter(|(part, _)| part.role == Role::Tier).collect();
    let shown = tiers.iter().all(|(_, [_, heavy])| heavy.requests().is_some());
    let grew = |[before, waiting]: [Waiting; 2]| {
        // At light load a single connection to another tier carries one request.
        let requests = waiting.requests().filter(|_| shown);
        let grew = requests.map(|requests| requests - before.accept_queue - before.inside);
        grew.unwrap_or_else(|| waiting.all() - before.all()) >= enough
    };
    // A request takes longer there, not only are there more of them.
    let waits_too = |[before, waiting]: [Waiting; 2]| {
        let usual = (before.accept_queue + before.inside) * per_s[1] / per_s[0];
        let requests = waiting.requests().filter(|_| shown);
        requests.is_some_and(|requests| requests - usual >= LEAST_ELSEWHERE * waiting_requests)
    };
    if tiers.iter().filter(|(_, both)| waits_too(*both)).count() > 1 {
        return None;
    }
    let mut found = tiers.into_iter().filter(|(_, both)| grew(*both));
    let first = found.next().filter(|_| waiting_requests >= LEAST_WAITING)?;
    (found.next().is_none() && !first.1[1].may_wait_for_others()).then_some(first)
}

#[cfg(test)]
mod tests {
    use kendall_stats::estimate::Estimate;

    use super::*;

    fn station(size: u32) -> HiddenStation {
        HiddenStation {
            sizes: vec![(size, 1.0)],
            capacity_per_s: Estimate::exact(400.0),
            hold_s: Estimate::exact(2.5e-3),
            worst_error: 0.03,
        }
    }

    fn point(clients: f64, tiers: &[(&str, Option<Waiting>)]) -> OperatingPoint {
        let process = |(name, waiting): &(&str, Option<Waiting>)| ProcessView {
            part: Part { role: Role::Tier, name: (*name).to_owned() },
            waiting: *waiting,
            ..ProcessView::default()
        };
        OperatingPoint {
            population: Some(clients),
            processes: tiers.iter().map(process).collect(),
            ..OperatingPoint::default()
        }
    }

    fn with(lock: f64) -> Waiting {
        Waiting { lock, untold: 1.0, ..Waiting::default() }
    }

    fn found(size: u32, before: Waiting, after: Waiting) -> Option<Holder> {
        let (light, heavy) =
            (point(1.0, &[("web", Some(before))]), point(32.0, &[("web", Some(after))]));
        place(&station(size), &light, &heavy).map(|place| place.holder)
    }

    #[test]
    fn what_holds_the_station_is_told_by_states() {
        let idle = with(8.0);
        assert_eq!(found(1, idle, with(36.0)), Some(Holder::Unknown));
        assert_eq!(found(1, idle, Waiting { disk: 0.9, ..with(36.0) }), Some(Holder::Disk));
        assert_eq!(found(4, idle, Waiting { disk: 0.9, ..with(36.0) }), Some(Holder::Unknown));
        assert_eq!(found(4, idle, Waiting { sleep: 3.7, ..with(36.0) }), Some(Holder::Sleep));
        let queued = Waiting { accept_queue: 29.0, sleep: 0.9, ..with(8.0) };
        assert_eq!(found(1, idle, queued), Some(Holder::AcceptQueue));
        let unread = Waiting { unread: 30.0, disk: 0.8, ..with(8.0) };
        assert_eq!(found(1, idle, unread), Some(Holder::Disk), "an event loop that flushes");
    }

    #[test]
    fn threads_that_wait_for_work_are_no_requests() {
        // Eight threads that are idle at light load, and all of them busy at the heaviest.
        assert_eq!(found(8, with(7.0), with(0.5)), None);
        assert_eq!(found(1, with(8.0), with(10.0)), None, "most wait where nothing shows it");
        assert_eq!(found(30, with(8.0), with(10.0)), None, "as many requests as that wait nowhere");
    }

    #[test]
    fn one_of_two_tiers_is_told_and_both_are_not() {
        let light = point(1.0, &[("web", Some(with(1.0))), ("db", Some(with(2.0)))]);
        let of = |web: Option<Waiting>, db: f64| {
            let heavy = point(32.0, &[("web", web), ("db", Some(with(db)))]);
            place(&station(3), &light, &heavy).map(|place| place.tier.name)
        };
        assert_eq!(of(Some(with(1.0)), 30.0), Some("db".to_owned()));
        assert_eq!(of(Some(with(30.0)), 2.0), Some("web".to_owned()));
        assert_eq!(of(Some(with(30.0)), 30.0), None);
        let shares = Waiting { shared: 1.0, ..with(30.0) };
        assert_eq!(of(Some(shares), 2.0), None, "its threads may wait for the other");
        assert_eq!(of(None, 2.0), None, "unknown");
        assert_eq!(of(None, 30.0), Some("db".to_owned()));
    }

    /// Event loops, whose threads wait for nothing but events: connections show what is inside.
    #[test]
    fn requests_inside_tell_the_tier_where_threads_do_not() {
        let of = |web: Waiting, db: Waiting| {
            let light = point(1.0, &[("web", Some(with(1.0))), ("db", Some(with(1.0)))]);
            let heavy = point(32.0, &[("web", Some(web)), ("db", Some(db))]);
            place(&station(3), &light, &heavy).map(|place| place.tier.name)
        };
        let inside = |inside: f64, untold: f64| Waiting { inside, untold, ..with(1.0) };
        assert_eq!(of(inside(28.0, 0.0), inside(3.0, 0.0)), Some("web".to_owned()));
        assert_eq!(of(inside(1.0, 0.0), inside(29.0, 0.0)), Some("db".to_owned()));
        assert_eq!(of(inside(28.0, 0.0), inside(0.0, 1.0)), None, "no caller of it is seen");
        // Behind 12 connections of `web`, in a service that takes three at a time, and in one of 100 ms for each.
        let at = |clients: f64, web: f64, db: f64, per_s: f64| {
            let tiers = [("web", Some(inside(web, 0.0))), ("db", Some(inside(db, 0.0)))];
            let mut point = point(clients, &tiers);
            point.client.throughput_per_s = per_s;
            point
        };
        let of_both = |light: OperatingPoint, heavy: OperatingPoint| {
            place(&station(3), &light, &heavy).map(|place| place.tier.name)
        };
        assert_eq!(of_both(at(1.0, 0.2, 0.8, 36.0), at(32.0, 20.0, 12.0, 135.0)), None);
        let beside = of_both(at(1.0, 0.1, 0.9, 9.0), at(32.0, 20.0, 12.0, 120.0));
        assert_eq!(beside, Some("web".to_owned()));
        // More threads of one that waits for the other are no requests.
        let threads = Waiting { lock: 33.0, ..inside(1.0, 0.0) };
        assert_eq!(of(threads, inside(29.0, 0.0)), Some("db".to_owned()));
    }
}
