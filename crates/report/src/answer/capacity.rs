//! What a load curve carries, where it saturates, and what limits it where no counter says so.

use std::collections::BTreeMap;

use kendall_fit::bottleneck::{Bottleneck, bottleneck, ready_threads};
use kendall_fit::hidden::HiddenStation;
use kendall_fit::measured::{OperatingPoint, ProcessView};
use kendall_fit::saturation::{Saturation, Shape};
use kendall_fit::waits::{Holder, Place, place};
use kendall_observations::{Configuration, Curve, Observations};
use kendall_protocols::topology::Role;
use kendall_stats::estimate::{Caveat, Estimate, Interval};
use kendall_store::Run;

use super::{
    Found, Limit, best_curve, next, outliers, rate_limit, rate_of, rivals, single, with_interval,
};
use crate::chapters::{one_of, response_in_words};
use crate::number;
use crate::prepared::Prepared;

/// Ends of an interval further apart than this factor are no answer.
const NO_ANSWER: f64 = 2.0;

/// Where a system saturates, and at how much.
pub(super) fn of<'a>(data: &'a Prepared<'_>, fastest: &'a Configuration) -> Found<'a> {
    let lost = lost(data);
    let Some((curve, found)) = best_curve(data, fastest) else {
        let mut only = single(data, fastest);
        only.sentence.extend(no_steady_state(fastest));
        only.sentence.extend(lost);
        return only;
    };
    let with = if data.curves.len() > 1 {
        format!(" with {}", rivals(data, curve))
    } else {
        String::new()
    };
    let (mut sentence, told) = sentence(data, fastest, found, &with);
    let modes = outliers::two_modes(data, curve);
    let has_modes = modes.is_some();
    let unlike = modes.or_else(|| outliers::in_words(data, curve, found));
    sentence.extend(unlike.or_else(|| outliers::moved_cost(data, curve)));
    sentence.extend(data.along(curve).last().and_then(no_steady_state));
    let estimate = found.curve.as_ref().map(|curve| curve.capacity.clone());
    let limit = limit(data, curve, found);
    let next = match &lost {
        Some(_) => "What makes those runs fail, and the same study again.".to_owned(),
        None if has_modes => next::of_modes(),
        None => next::after(data, fastest, found, matches!(limit, Some(Ok(_)))),
    };
    sentence.extend(lost);
    let last = data.along(curve).last().map(|last| &last.point);
    let spared = found.station.as_ref().zip(last).is_some_and(|(station, last)| {
        let least = station.sizes.first().map_or(1, |(size, _)| *size);
        ready_share(last, least).is_some_and(|share| share <= MOST_READY)
    });
    Found { estimate, limit, spared, has_modes, ..Found::new(sentence, told, fastest, next) }
}

/// What more arrives than is answered, where the queue of an open loop grows.
fn no_steady_state(configuration: &Configuration) -> Option<String> {
    let growth = configuration.queue_growth()?;
    let jobs = |per_s: f64| format!("{} jobs/s", number::significant(per_s, 3));
    Some(format!(
        " At {} offered there is no steady state: {} are answered, and the queue grows by {}.",
        number::rate(configuration.point.offered_per_s()?),
        number::rate(configuration.throughput()),
        with_interval(&growth, jobs)
    ))
}

/// Loads of which no run can be used, and why not.
fn lost(data: &Observations) -> Option<String> {
    let load = data.load.as_ref()?;
    let level = |run: &Run| run.factors.iter().find(|level| level.factor == load.key)?.number;
    let used = |level: f64| {
        let mut loads = data.configurations.iter().map(|c| data.load_of(c));
        loads.any(|load| load.total_cmp(&level).is_eq())
    };
    let runs: Vec<(f64, &Run)> = data
        .unusable()
        .filter_map(|run| Some((level(run)?, run)))
        .filter(|(level, _)| !used(*level))
        .collect();
    let reason = runs.last()?.1.reasons.first()?.lines().next()?;
    let mut levels: Vec<f64> = runs.iter().map(|(level, _)| *level).collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    let levels: Vec<String> = levels.into_iter().map(number::plain).collect();
    let levels = number::load(&levels.join(" and "), &load.unit);
    Some(format!(" At {levels} no run can be used: {reason}."))
}

fn sentence(
    data: &Observations,
    fastest: &Configuration,
    found: &Saturation,
    with: &str,
) -> (String, bool) {
    let unit = data.load.as_ref().map_or("load", |load| load.unit.as_str());
    let rate = found
        .curve
        .as_ref()
        .map_or_else(|| rate_of(fastest), |curve| with_interval(&curve.capacity, number::rate));
    let open = fastest.point.population.is_none();
    // The low end of an interval is a bound, however wide it is.
    let is_bound = found.shape == Shape::StillGrowing && !open;
    let capacity = found.curve.as_ref().filter(|_| !is_bound).map(|curve| &curve.capacity);
    if let Some(ends) = capacity.and_then(too_wide) {
        return (
            format!(
                "Cannot tell the capacity: the runs differ so much that it may be anything from {} \
                 to {}{with}; more repetitions on a quieter machine would tell.",
                number::rate(ends.low),
                number::rate(ends.high)
            ),
            false,
        );
    }
    let knee = knee(data, found);
    match (found.shape, &found.unknown) {
        (Shape::Saturated, _) => {
            let beyond = match fastest.point.offered_per_s() {
                Some(_) => "what arrives beyond that queues up",
                None => "more load only adds waiting",
            };
            (format!("About {rate}{with}. It saturates {knee}; {beyond}."), true)
        }
        (Shape::Overloaded, _) => {
            (format!("About {rate}{with}. It saturates {knee}; beyond, throughput falls."), true)
        }
        (Shape::StillGrowing, _) if open => (
            format!(
                "All offered load is answered, up to {rate}{with}; {} then takes {} on average. \
                 The capacity lies higher and was not reached.",
                one_of(data),
                response_in_words(fastest)
            ),
            true,
        ),
        (Shape::StillGrowing, _) => {
            let load = number::plain(data.load_of(fastest));
            (
                format!(
                    "At least {}{with}: {}",
                    least(fastest, found),
                    growing(&load, unit, found)
                ),
                true,
            )
        }
        (Shape::CannotTell, unknown) => {
            let why = unknown.as_ref().map_or_else(String::new, |why| why.in_words(unit));
            (
                format!(
                    "Cannot tell the capacity: {why}. Up to the highest load that was measured it \
                     is {rate}{with}."
                ),
                false,
            )
        }
    }
}

/// A bound is the end of its interval.
fn least(fastest: &Configuration, found: &Saturation) -> String {
    let interval = found.curve.as_ref().and_then(|curve| curve.capacity.interval);
    number::rate(interval.map_or(fastest.throughput(), |interval| interval.low))
}

fn growing(load: &str, unit: &str, found: &Saturation) -> String {
    let gained = found.curve.as_ref().map_or_else(String::new, |curve| {
        let factor = curve.last_doubling.map(|gain| 1.0 + gain);
        let gain = match too_wide(&factor) {
            Some(ends) => format!("at least {}", number::signed_percent(ends.low - 1.0)),
            None => with_interval(&curve.last_doubling, number::signed_percent),
        };
        format!("; the last doubling still gained {gain}")
    });
    format!("throughput still grows at {load} {unit}, the highest load that was measured{gained}.")
}

fn too_wide(capacity: &Estimate) -> Option<Interval> {
    capacity.interval.filter(|ends| ends.high > NO_ANSWER * ends.low)
}

/// `at about 4.1 clients (3.8 to 4.5)`, or between which loads.
fn knee(data: &Observations, found: &Saturation) -> String {
    let unit = data.load.as_ref().map_or("load", |load| load.unit.as_str());
    let lowest = data.configurations.iter().map(|c| data.load_of(c)).fold(f64::INFINITY, f64::min);
    let fitted = found.curve.as_ref().map(|curve| &curve.knee);
    if let Some((knee, ends)) = fitted.and_then(|knee| Some((knee.center, knee.interval?))) {
        return fitted_knee(knee, ends, (lowest, unit));
    }
    let (from, to) = (found.below_knee, number::plain(found.knee.load));
    from.map_or_else(
        || format!("at or below {}", number::load(&to, unit)),
        |from| format!("between {} and {to} {unit}", number::plain(from)),
    )
}

/// The knee that all runs show. Clients and connections are counted: an interval of them is rounded outwards.
fn fitted_knee(knee: f64, ends: Interval, (lowest, unit): (f64, &str)) -> String {
    let is_count = !unit.contains('/');
    let whole = |load: f64, to: fn(f64) -> f64| if is_count { to(load) } else { load };
    let short = |load: f64| number::plain_to(load, 2);
    let (low, high) = (whole(ends.low, f64::floor), whole(ends.high, f64::ceil));
    if ends.high <= lowest * 1.001 {
        return format!("at or below {}", number::load(&number::plain(lowest), unit));
    }
    if ends.low <= lowest * 1.001 {
        return format!("at or below {}", number::load(&short(high), unit));
    }
    let knee = number::load(&short(whole(knee, f64::round)), unit);
    format!("at about {knee} ({} to {})", short(low), short(high))
}

/// What limits a curve where no measured resource does: nothing yet, or what its shape shows. A host that others
/// filled says nothing; the threads of the system do, by how much they ran or waited for a core.
pub(super) fn limit(data: &Observations, curve: &Curve, found: &Saturation) -> Option<Limit> {
    let last = data.along(curve).last()?;
    let load = data.load_of(last);
    let last = &last.point;
    let counted = bottleneck(last);
    if counted.limiting.is_some() || counted.generator_suspected {
        return None;
    }
    if found.shape == Shape::StillGrowing && last.population.is_some() {
        let unit = data.load.as_ref().map_or("", |load| load.unit.as_str());
        let up_to = number::plain(load);
        return Some(Ok(format!("Nothing up to {up_to} {unit}: throughput still grows there.")));
    }
    let station = found.station.as_ref()?;
    if let Some(process) = one_core(data, curve, found) {
        let waited = process.run_queue_wait.filter(|wait| *wait >= NOTABLE_WAIT);
        let waited = waited.map_or_else(String::new, |wait| {
            format!(", and waited for one {} of the time", number::percent(wait))
        });
        return Some(Ok(format!(
            "{} computes on one core at a time, as a process with one interpreter lock or one event \
             loop does: at the highest load it used {:.2} of {:.0} cores{waited}. More processes of \
             it would raise the capacity.",
            process.part, process.cpu_cores, last.host_cores
        )));
    }
    let light = data.along(curve).next().map(|lightest| &lightest.point);
    let place = light.and_then(|light| place(station, light, last));
    if let Some(rate) = rate_limit::of(data, curve, found) {
        return Some(Ok(format!(
            "A limit of the rate, to {}: above the knee runs of all loads complete the same number a second, \
             which they do not where a lock or a pool is held for a time of its own. To raise the limit would \
             raise the capacity.",
            number::rate(rate)
        )));
    }
    let others = others_that_serve(data);
    let computes = ready_share(last, station.size()).is_some_and(|share| share > MOST_READY);
    if place.is_none() && !computes && !others.is_empty() && station.worst_error <= MOST_ERROR {
        return Some(Err(inside_or_in(station, &others)));
    }
    let served = place.as_ref().is_some_and(|place| place.holder == Holder::AcceptQueue);
    let held = light.filter(|_| served).map_or_else(
        || station.clone(),
        |light| station.held_throughout(light.client.response_time_s),
    );
    of_station(&held, place.as_ref(), &counted, last)
}

/// Who serves a tier and is none itself, with the tier that it serves: what requests wait for may be there.
fn others_that_serve(data: &Observations) -> BTreeMap<&str, &str> {
    // Of one run: the same may have another process number in each.
    let each = data.runs.iter().map(|run| run.caveats.iter().filter_map(Caveat::serves));
    each.map(Iterator::collect::<BTreeMap<_, _>>).find(|all| !all.is_empty()).unwrap_or_default()
}

/// Where no tier shows requests that wait, and others serve some of them.
fn inside_or_in(station: &HiddenStation, others: &BTreeMap<&str, &str>) -> String {
    let others: Vec<String> =
        others.iter().map(|(who, tier)| format!("{who}, which serves `{tier}`")).collect();
    format!(
        "the curve is that of a {}, and requests wait in {}, or inside the service; the other as a tier of the study would tell",
        kind_of(station),
        others.join(", or in ")
    )
}

/// What limits, where the curve shows a station.
fn of_station(
    station: &HiddenStation,
    place: Option<&Place>,
    counted: &Bottleneck,
    last: &OperatingPoint,
) -> Option<Limit> {
    let ready = ready_share(last, station.size());
    let filled_by_others = counted.cannot_tell.is_some();
    if !last.processes.iter().any(|process| process.part.role.is_of_the_system()) {
        return Some(Err(format!(
            "the curve is that of a {}, which may also be the cores of a processor, since no process of the \
             service is seen; to name its processes in the study (`pids` or `cgroups`) would tell",
            kind_of(station)
        )));
    }
    let beside = match ready {
        // What holds the station may be a processor.
        Some(share) if share > MOST_READY => {
            if let Some(process) = computes(station, last).filter(|_| !filled_by_others) {
                return Some(Ok(format!(
                    "CPU of {}, though cores are free: requests are served one at a time, and all \
                     the time its threads computed ({:.2} of {:.0} cores at the highest load). More \
                     processes of it would raise the capacity.",
                    process.part, process.cpu_cores, last.host_cores
                )));
            }
            let telling = if filled_by_others {
                "fewer programs beside it, or more cores,"
            } else {
                "a profile of the service at that load"
            };
            return Some(Err(format!(
                "the curve is that of a {}, but for {} of the time in which it is held, threads of \
                 the service ran or waited for a core; {telling} would tell",
                kind_of(station),
                number::percent(share.min(1.0))
            )));
        }
        Some(share) if filled_by_others => format!(
            " Other programs filled the processor, but threads of the service ran or waited for a core for only {} of \
             that time.",
            number::percent(share)
        ),
        None if filled_by_others => return None,
        _ => counted.resources.first().map_or_else(String::new, |resource| {
            let utilization = number::percent(resource.utilization);
            format!(" The busiest measured resource is {} at {utilization}.", resource.name)
        }),
    };
    let words = in_words(station, place, last);
    Some(words.map(|words| words + &beside))
}

/// Share of the time in which a station of this size is held, for which threads of the system ran or waited for a core.
fn ready_share(last: &OperatingPoint, size: u32) -> Option<f64> {
    ready_threads(last).map(|ready| ready / f64::from(size))
}

/// The tier that computes all the time in which a station of one is held.
fn computes<'a>(station: &HiddenStation, last: &'a OperatingPoint) -> Option<&'a ProcessView> {
    // Of the time, and of what all tiers computed.
    const LEAST: f64 = 0.9;
    station.only_size().filter(|size| *size == 1)?;
    let tiers = || last.processes.iter().filter(|process| process.part.role == Role::Tier);
    let all: f64 = tiers().map(|process| process.cpu_cores).sum();
    let free = last.host_busy_cores.is_some_and(|busy| busy < LEAST * last.host_cores);
    tiers().find(|tier| free && tier.cpu_cores >= LEAST.max(LEAST * all))
}

/// Share of the time in which a station is held, from which threads that run or wait for a core may be
/// what holds it.
const MOST_READY: f64 = 0.5;
/// Share of the time that a thread waited for a core, from which it is said.
const NOTABLE_WAIT: f64 = 0.05;

/// `lock`, `pool of 4`, `pool of 2 to 3`.
pub(super) fn kind_of(station: &HiddenStation) -> String {
    match station.sizes.as_slice() {
        [(1, _)] => "lock".to_owned(),
        [(size, _)] => format!("pool of {size}"),
        [(least, _), .., (most, _)] => format!("pool of {least} to {most}"),
        [] => "pool".to_owned(),
    }
}

/// Where requests wait, and for what as far as states of threads and connections tell.
fn waits(place: Option<&Place>, last: &OperatingPoint) -> String {
    let Some(place) = place else { return format!("for one another inside {}", inside(last)) };
    let (tier, waiting) = (&place.tier.name, &place.waiting);
    let mean =
        |count: f64| format!("{} on average at the highest load", number::plain_to(count, 2));
    match place.holder {
        Holder::AcceptQueue => format!(
            "in the accept queue of {tier} (connections there: {})",
            mean(waiting.accept_queue)
        ),
        Holder::Disk => {
            format!("for the disk inside {tier} (threads in a flush: {})", mean(waiting.disk))
        }
        Holder::Sleep => {
            format!("for one another inside {tier} (threads that sleep: {})", mean(waiting.sleep))
        }
        Holder::Unknown => match waiting.requests() {
            Some(inside) => {
                format!("for one another inside {tier} (requests there: {})", mean(inside))
            }
            None => format!("for one another inside {tier}"),
        },
    }
}

/// Of several tiers that say nothing of themselves, the curve does not tell which.
fn inside(point: &OperatingPoint) -> String {
    let tiers = point.processes.iter().filter(|process| process.part.role == Role::Tier);
    let untold = tiers
        .clone()
        .find_map(|tier| Some(format!("{} {}", tier.part.name, tier.waiting?.why_untold()?)));
    let names: Vec<&str> = tiers.map(|process| process.part.name.as_str()).collect();
    match names.as_slice() {
        [_, _, ..] => {
            let nor = untold.map_or_else(String::new, |why| format!(", nor do connections: {why}"));
            format!("the service ({}: the curve does not tell in which{nor})", names.join(" or "))
        }
        _ => untold.map_or_else(
            || "the service".to_owned(),
            |why| format!("the service (connections do not show where: {why})"),
        ),
    }
}

/// The largest error of a station that is named.
const MOST_ERROR: f64 = 0.25;

fn in_words(station: &HiddenStation, place: Option<&Place>, last: &OperatingPoint) -> Limit {
    let hold = with_interval(&station.hold_s, number::time);
    if station.worst_error > MOST_ERROR {
        return Err(format!(
            "no measured resource is near its limit, and no single resource explains the curve (the \
             best one errs by {})",
            number::percent(station.worst_error)
        ));
    }
    let waits = format!("Requests wait {}: the curve is that of", waits(place, last));
    let more = "More of them (threads, connections or permits), or to hold them for less time, would raise the capacity.";
    let known = place.is_some_and(|p| matches!(p.holder, Holder::AcceptQueue | Holder::Disk));
    let one = if known { "a resource" } else { "one lock, or another resource" };
    // What holds requests back is seen there.
    let seen = known || place.is_some_and(|place| place.holder == Holder::Sleep);
    let rate = number::rate(station.capacity_per_s.center);
    let same = if seen {
        String::new()
    } else {
        format!(
            " Where the service limits its own rate, to {rate}, the curve is the same: requests that take it another \
             time would tell."
        )
    };
    match (station.only_size(), station.sizes.as_slice()) {
        (Some(1), _) => Ok(format!(
            "{waits} {one} of which there is one, held for {hold} by each request. To hold it for less time would \
             raise the capacity.{same}"
        )),
        (Some(size), _) => {
            Ok(format!("{waits} a pool of {size}, each held for {hold} by a request. {more}{same}"))
        }
        (None, [(least, _), .., (most, _)]) if *most > 4 * least => Err(format!(
            "no measured resource is near its limit, and the curve fits {} as well as a pool of up \
             to {most}; more loads around the knee would tell",
            if *least == 1 { "a lock".to_owned() } else { format!("a pool of {least}") }
        )),
        (None, [(least, _), .., (most, _)]) => {
            let hold = |size: u32| number::time(f64::from(size) / station.capacity_per_s.center);
            let pool = match least {
                1 => format!("one lock or a pool of up to {most}"),
                least => format!("a pool of {least} to {most}"),
            };
            Ok(format!(
                "{waits} {pool}, each held for {} to {} by a request. {more}{same}",
                hold(*least),
                hold(*most)
            ))
        }
        (None, _) => Err("no measured resource is near its limit".to_owned()),
    }
}

/// A tier of which more load keeps no more than one thread busy, though the host has more cores: at the
/// highest load, and at every load from the knee on. What waits for a core would use it.
fn one_core<'a>(
    data: &'a Observations,
    curve: &'a Curve,
    found: &Saturation,
) -> Option<&'a ProcessView> {
    const READY: std::ops::RangeInclusive<f64> = 0.85..=1.25;
    const USED: f64 = 1.1;
    /// Less of it used than waited for says more of others than of the tier.
    const LEAST_USED: f64 = 0.5;
    let last = data.along(curve).last()?;
    let reached = |c: &&Configuration| data.load_of(c) >= found.knee.load;
    let one = |process: &ProcessView| {
        let each = |cores: f64| cores / f64::from(process.instances.max(1));
        let (used, waited) = (process.cpu_cores, process.run_queue_wait.unwrap_or(0.0));
        READY.contains(&each(used + waited))
            && each(used) <= USED
            && used >= LEAST_USED * (used + waited)
    };
    let held = |process: &&ProcessView| {
        process.part.role == Role::Tier
            && last.point.host_cores > 1.5
            && data
                .along(curve)
                .filter(reached)
                .all(|c| c.point.process(&process.part).is_some_and(one))
    };
    last.point.processes.iter().find(held)
}

#[cfg(test)]
mod tests {
    use kendall_protocols::topology::Part;
    use kendall_protocols::waiting::Waiting;

    use super::*;

    fn station(sizes: &[(u32, f64)]) -> HiddenStation {
        HiddenStation {
            sizes: sizes.to_vec(),
            capacity_per_s: Estimate::exact(400.0),
            hold_s: Estimate::exact(2.5e-3),
            worst_error: 0.03,
        }
    }

    /// Two cores that others may have filled, and tiers with the cores that they used and waited for.
    fn point(busy: f64, tiers: &[(&str, f64, f64)]) -> OperatingPoint {
        let process = |&(name, cpu_cores, wait): &(&str, f64, f64)| ProcessView {
            part: Part { role: Role::Tier, name: name.to_owned() },
            instances: 1,
            cpu_cores,
            cpu_cores_limit: 2.0,
            run_queue_wait: Some(wait),
            ..ProcessView::default()
        };
        OperatingPoint {
            processes: tiers.iter().map(process).collect(),
            host_cores: 2.0,
            host_busy_cores: Some(busy),
            ..OperatingPoint::default()
        }
    }

    fn said(sizes: &[(u32, f64)], point: &OperatingPoint) -> Option<Limit> {
        of_station(&station(sizes), None, &bottleneck(point), point)
    }

    /// On a machine that compilers filled, a lock was "cannot tell", though the service's threads ran or
    /// waited for a core for a quarter of the time in which it was held.
    #[test]
    fn a_lock_is_named_on_a_machine_that_others_filled() {
        let said = said(&[(1, 1.0)], &point(1.97, &[("web", 0.1, 0.15)])).unwrap().unwrap();
        assert!(said.contains("inside the service: the curve is that of one lock"), "{said}");
        assert!(said.contains("waited for a core for only 25 % of that time"), "{said}");
        assert!(said.contains("for less time would raise the capacity"), "{said}");
    }

    #[test]
    fn a_dependency_that_is_no_tier_may_be_what_requests_wait_for() {
        let others = BTreeMap::from([("10.0.0.7:5432", "web")]);
        assert_eq!(
            inside_or_in(&station(&[(5, 1.0)]), &others),
            "the curve is that of a pool of 5, and requests wait in 10.0.0.7:5432, which serves `web`, or inside the service; \
             the other as a tier of the study would tell"
        );
    }

    /// Of a service that runs already, as another user's process, `−0 %` of the time was said to be known.
    #[test]
    fn a_service_whose_processes_are_not_seen_may_lack_a_processor() {
        for busy in [0.4, 1.97] {
            let why = said(&[(2, 1.0)], &point(busy, &[])).unwrap().unwrap_err();
            assert!(why.starts_with("the curve is that of a pool of 2, which may also"), "{why}");
        }
    }

    #[test]
    fn clients_are_counted_and_rates_are_not() {
        let at = |low, center, high, unit| {
            let interval = Interval { low, high, confidence: 0.95 };
            fitted_knee(center, interval, (1.0, unit))
        };
        assert_eq!(at(1.1, 1.2, 1.4, "clients"), "at about 1 client (1 to 2)");
        assert_eq!(at(0.9, 1.0, 1.2, "clients"), "at or below 2 clients");
        assert_eq!(at(3.8, 4.1, 4.5, "connections"), "at about 4 connections (3 to 5)");
        assert_eq!(at(3.8, 4.1, 4.5, "requests/s"), "at about 4.1 requests/s (3.8 to 4.5)");
    }

    /// What holds it may be a processor that is short.
    #[test]
    fn a_station_whose_threads_are_ready_most_of_the_time_is_not_named() {
        for busy in [1.2, 1.98] {
            let point = point(busy, &[("web", 0.3, 0.3)]);
            let why = said(&[(1, 1.0)], &point).unwrap().unwrap_err();
            assert!(why.starts_with("the curve is that of a lock, but for 60 %"), "{why}");
        }
        // One of them computes all the time, and cores are free: a collector of garbage, for one.
        let busy = point(1.3, &[("web", 1.25, 0.2), ("database", 0.05, 0.0)]);
        let named = said(&[(1, 1.0)], &busy).unwrap().unwrap();
        assert!(named.starts_with("CPU of web, though cores are free: requests"), "{named}");
        let both = point(1.3, &[("web", 0.6, 0.2), ("database", 0.6, 0.0)]);
        assert!(said(&[(1, 1.0)], &both).unwrap().is_err());
        // Of a pool of four it is little.
        let point = point(1.2, &[("web", 0.3, 0.3)]);
        assert!(said(&[(4, 1.0)], &point).unwrap().unwrap().contains("a pool of 4"));
    }

    /// The curve of one that is served at a time is the same for a lock, a disk and an accept queue.
    #[test]
    fn what_threads_and_connections_wait_for_is_named() {
        let unseen = Waiting { untold: 1.0, ..Waiting::default() };
        let light = point(0.2, &[("web", 0.1, 0.0), ("database", 0.1, 0.0)]);
        let heavy = point(0.5, &[("web", 0.1, 0.0), ("database", 0.2, 0.0)]);
        let with = |mut point: OperatingPoint, clients: f64, waiting: Waiting| {
            point.population = Some(clients);
            point.processes[0].waiting = Some(waiting);
            let untold = waiting.untold;
            point.processes[1].waiting = Some(Waiting { lock: 2.0, untold, ..Waiting::default() });
            point
        };
        let said = |waiting: Waiting| {
            let light = with(light.clone(), 1.0, unseen);
            let heavy = with(heavy.clone(), 32.0, waiting);
            let station = station(&[(1, 1.0)]);
            let place = place(&station, &light, &heavy);
            of_station(&station, place.as_ref(), &bottleneck(&heavy), &heavy).unwrap().unwrap()
        };
        let flush = said(Waiting { disk: 0.92, lock: 30.0, ..unseen });
        let begins = "Requests wait for the disk inside web (threads in a flush: 0.92 on average";
        assert!(flush.starts_with(begins), "{flush}");
        assert!(flush.contains("a resource of which there is one, held for 2.50 ms"), "{flush}");
        let queue = said(Waiting { accept_queue: 30.1, ..unseen });
        assert!(queue.starts_with("Requests wait in the accept queue of web"), "{queue}");
        let lock = said(Waiting { lock: 31.0, ..unseen });
        assert!(lock.starts_with("Requests wait for one another inside web: the"), "{lock}");
        assert!(lock.contains("its own rate, to 400.0/s, the curve is the same"), "{lock}");
        assert!(!flush.contains("its own rate") && !queue.contains("its own rate"));
        let events = said(Waiting { inside: 31.0, ..Waiting::default() });
        let begins = "Requests wait for one another inside web (requests there: 31 on average";
        assert!(events.starts_with(begins), "{events}");
    }

    #[test]
    fn of_several_tiers_the_curve_does_not_tell_which() {
        let mut point = point(0.5, &[("web", 0.1, 0.0), ("database", 0.2, 0.0)]);
        let unix = Waiting { untold: 1.0, unix: 1.0, ..Waiting::default() };
        point.processes[1].waiting = Some(unix);
        let why = said(&[(1, 1.0)], &point).unwrap().unwrap();
        let because = "in which, nor do connections: database talks over a Unix socket, of which";
        assert!(why.contains(because), "{why}");
        point.processes[1].waiting = None;
        let said = said(&[(1, 0.5), (2, 0.5)], &point).unwrap().unwrap();
        assert!(said.contains("the service (web or database: the curve does not tell in which)"));
        assert!(said.contains("one lock or a pool of up to 2, each held"), "{said}");
    }
}
