//! What a load curve carries, where it saturates, and what limits it where no counter says so.

use kendall_fit::bottleneck::{bottleneck, disturbing_share};
use kendall_fit::hidden::HiddenStation;
use kendall_fit::measured::ProcessView;
use kendall_fit::saturation::{Saturation, Shape};
use kendall_observations::{Configuration, Curve, Observations};
use kendall_protocols::topology::Role;
use kendall_stats::estimate::{Estimate, Interval};

use super::{Found, best_curve, next, rate_of, rivals, single, with_interval};
use crate::chapters::{one_of, response_in_words};
use crate::number;
use crate::prepared::Prepared;

/// Ends of an interval further apart than this factor are no answer.
const NO_ANSWER: f64 = 2.0;

/// Where a system saturates, and at how much.
pub(super) fn of<'a>(data: &'a Prepared<'_>, fastest: &'a Configuration) -> Found<'a> {
    let Some((curve, found)) = best_curve(data, fastest) else { return single(data, fastest) };
    let with = if data.curves.len() > 1 {
        format!(" with {}", rivals(data, curve))
    } else {
        String::new()
    };
    let (mut sentence, told) = sentence(data, fastest, found, &with);
    if let Some(spoiled) = outliers(data, curve, found) {
        sentence.push_str(&spoiled);
    }
    let estimate = found.curve.as_ref().map(|curve| curve.capacity.clone());
    let limit = limit(data, curve, found);
    let next = next::after(data, fastest, found);
    Found { estimate, limit, ..Found::new(sentence, told, fastest, next) }
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
    if let Some(ends) = found.curve.as_ref().and_then(|curve| too_wide(&curve.capacity)) {
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
    let open = fastest.point.population.is_none();
    match (found.shape, &found.unknown) {
        (Shape::Saturated, _) => {
            (format!("About {rate}{with}. It saturates {knee}; more load only adds waiting."), true)
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
        let gain = with_interval(&curve.last_doubling, number::signed_percent);
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
        let short = |load: f64| number::plain_to(load, 2);
        if ends.high <= lowest * 1.001 {
            return format!("at or below {} {unit}", number::plain(lowest));
        }
        if ends.low <= lowest * 1.001 {
            return format!("at or below {} {unit}", short(ends.high));
        }
        return format!(
            "at about {} {unit} ({} to {})",
            short(knee),
            short(ends.low),
            short(ends.high)
        );
    }
    let (from, to) = (found.below_knee, number::plain(found.knee.load));
    from.map_or_else(
        || format!("at or below {to} {unit}"),
        |from| format!("between {} and {to} {unit}", number::plain(from)),
    )
}

/// The runs that stand out from all others, and that they count less.
fn outliers(data: &Observations, curve: &Curve, found: &Saturation) -> Option<String> {
    let places = &found.curve.as_ref()?.outliers;
    let mut runs: Vec<_> = data
        .along(curve)
        .flat_map(|c| c.repetitions.iter().map(move |repetition| (data.name_of(c), repetition)))
        .collect();
    runs.sort_by_key(|(_, repetition)| repetition.run.started_unix_ns);
    let named: Vec<String> = places
        .iter()
        .filter_map(|place| runs.get(*place))
        .map(|(name, repetition)| {
            let rate = number::rate(repetition.point.client.throughput_per_s);
            format!("repetition {} of {name} ({rate})", repetition.run.repetition + 1)
        })
        .collect();
    (!named.is_empty())
        .then(|| format!(" Stands out from all other runs and counts less: {}.", named.join("; ")))
}

/// What limits a curve that reached its limit where no measured resource did.
fn limit(data: &Observations, curve: &Curve, found: &Saturation) -> Option<String> {
    let station = found.station.as_ref()?;
    let last = data.along(curve).last()?;
    let counted = bottleneck(&last.point);
    if counted.limiting.is_some() || counted.generator_suspected {
        return None;
    }
    if disturbing_share(&last.point).is_some() && counted.cannot_tell.is_some() {
        return None;
    }
    let busiest = counted.resources.first().map_or_else(String::new, |resource| {
        format!(
            "; the busiest measured resource is {} at {}",
            resource.name,
            number::percent(resource.utilization)
        )
    });
    if let Some(process) = one_core(data, curve, found) {
        return Some(format!(
            "{} never uses more than one core ({:.2} of {:.0} cores at the highest load), as a \
             process with one interpreter lock or one event loop does. More processes of it would \
             raise the capacity.",
            process.part, process.cpu_cores, last.point.host_cores
        ));
    }
    Some(format!("{}{busiest}.", in_words(station)))
}

/// The largest error of a station that is named.
const MOST_ERROR: f64 = 0.25;

fn in_words(station: &HiddenStation) -> String {
    let hold = with_interval(&station.hold_s, number::time);
    if station.worst_error > MOST_ERROR {
        return format!(
            "Cannot tell: no measured resource is near its limit, and no single resource explains \
             the curve (the best one errs by {})",
            number::percent(station.worst_error)
        );
    }
    match (station.only_size(), station.sizes.as_slice()) {
        (Some(1), _) => format!(
            "Requests wait for one another inside the service: the curve is that of one lock, or \
             another resource of which there is one, held for {hold} by each request"
        ),
        (Some(size), _) => format!(
            "Requests wait for one another inside the service: the curve is that of a pool of {size} \
             (threads, processes, connections or permits), each held for {hold} by a request"
        ),
        (None, [(least, _), .., (most, _)]) if *most > 4 * least => format!(
            "Cannot tell what limits: no measured resource is near its limit, and the curve fits {} \
             as well as a pool of up to {most}; more loads around the knee would tell",
            if *least == 1 { "a lock".to_owned() } else { format!("a pool of {least}") }
        ),
        (None, [(least, _), .., (most, _)]) => {
            let capacity = station.capacity_per_s.center;
            format!(
                "Requests wait for one another inside the service: the curve is that of a pool of \
                 {least} to {most} (threads, processes, connections or permits), each held for {} \
                 to {} by a request; more loads around the knee would tell which",
                number::time(f64::from(*least) / capacity),
                number::time(f64::from(*most) / capacity)
            )
        }
        (None, _) => "Cannot tell what limits".to_owned(),
    }
}

/// A tier that more load gives no more than one core, though the host has more to give: at the
/// highest load, and at every load from the knee on.
fn one_core<'a>(
    data: &'a Observations,
    curve: &'a Curve,
    found: &Saturation,
) -> Option<&'a ProcessView> {
    const ONE: std::ops::RangeInclusive<f64> = 0.85..=1.1;
    let last = data.along(curve).last()?;
    let reached = |c: &&Configuration| data.load_of(c) >= found.knee.load;
    let held = |process: &&ProcessView| {
        let each = |point: &kendall_fit::measured::OperatingPoint| {
            let there = point.process(&process.part)?;
            Some(there.cpu_cores / f64::from(there.instances.max(1)))
        };
        process.part.role == Role::Tier
            && last.point.host_cores > 1.5
            && data
                .along(curve)
                .filter(reached)
                .all(|c| each(&c.point).is_some_and(|cores| ONE.contains(&cores)))
    };
    last.point.processes.iter().find(held)
}
