//! The next run worth making.

use kendall_fit::bottleneck::bottleneck;
use kendall_fit::resource::ResourceId;
use kendall_fit::saturation::{Saturation, Shape, Unknown};
use kendall_observations::{Configuration, Observations, short};
use kendall_store::{Run, Status};

use crate::number;

/// More runs of the same.
pub(super) fn repeat(data: &Observations) -> String {
    let have = data.repetitions();
    let want = (2 * have).max(3);
    format!(
        "The same study with `measure.repetitions = {want}` (there are {have}), on a quiet \
             machine."
    )
}

/// Where a service works in one of two modes from start to end of a run.
pub(super) fn of_modes() -> String {
    "What a slow run and a fast one do differently, by the service's own logs (`logs/` beside the results): more runs, or a \
     quieter machine, would show both modes again."
        .to_owned()
}

/// Where runs failed and not once: neither a quieter machine nor more of them helps.
pub(super) fn after_failures(runs: &[Run]) -> Option<String> {
    const LEAST: usize = 2;
    let failed = || runs.iter().filter(|run| run.status == Status::Failed);
    let reason = failed().next_back()?.reasons.first()?.lines().next()?;
    let count = failed().count();
    (count >= LEAST).then(|| {
        format!(
            "Why {count} of {} failed ({reason}), and the same study again.",
            number::count(runs.len(), "run")
        )
    })
}

/// After a load curve, which may show what limits where no counter does.
pub(super) fn after(
    data: &Observations,
    fastest: &Configuration,
    found: &Saturation,
    shown: bool,
) -> String {
    let Some(load) = &data.load else { return repeat(data) };
    let key = &load.key;
    let highest = highest_load(data);
    match (&found.unknown, found.shape) {
        (Some(Unknown::Interval { repetitions, .. }), _) if is_few(*repetitions, data) => format!(
            "The same study with `measure.repetitions = {repetitions}` (there are {}), on a quiet \
             machine.",
            data.repetitions()
        ),
        (Some(Unknown::Interval { from, to, .. }), _) => format!(
            "Longer runs (`measure.duration`) on a quiet machine, of the loads {} and {} (\"{key}\") \
             first: as much as the runs differ here, repetitions alone would take too long.",
            number::plain(*from),
            number::plain(*to)
        ),
        (Some(Unknown::Unbalanced { .. }), _) => {
            "The same study with a longer `measure.duration`, and rates below the highest."
                .to_owned()
        }
        (Some(_), _) | (None, Shape::CannotTell) => repeat(data),
        (None, Shape::StillGrowing) => {
            format!(
                "Higher loads: \"{key}\" beyond {}, until throughput stops growing.",
                number::plain(highest)
            )
        }
        (None, Shape::Saturated | Shape::Overloaded) => match found.below_knee {
            Some(below) if found.knee.load > WORTH * below && !is_located(found) => format!(
                "Loads between {} and {} (\"{key}\"), to locate the knee more closely.",
                number::plain(below),
                number::plain(found.knee.load)
            ),
            _ if shown => {
                "A version in which what limits is changed, beside this one: `kendall compare \
                           --run` measures both in turns and says what it gains."
                    .to_owned()
            }
            _ if found.station.is_some() && bottleneck(&fastest.point).limiting.is_none() => {
                format!(
                    "The load above the knee (\"{key}\" = {}) under a profiler of the service.",
                    number::plain(highest)
                )
            }
            _ => limit(data, fastest),
        },
    }
}

/// Loads further apart than this factor are worth one between them.
const WORTH: f64 = 1.3;

/// Whether all runs of the curve say where the knee is, and the size of what limits, as closely as loads
/// between would.
fn is_located(found: &Saturation) -> bool {
    let knee = found.curve.as_ref().and_then(|curve| curve.knee.interval);
    let sized = found.station.as_ref().is_none_or(|station| station.only_size().is_some());
    sized && knee.is_some_and(|ends| ends.high <= WORTH * ends.low)
}

/// Whether so many repetitions are worth making: few times as many as there are.
fn is_few(repetitions: u64, data: &Observations) -> bool {
    const TIMES: f64 = 4.0;
    kendall_units::exact_f64(repetitions) <= TIMES * kendall_units::exact_f64(data.repetitions())
}

/// Around the highest load that meets an objective.
pub(super) fn around(data: &Observations, best: &Configuration) -> String {
    let Some(load) = &data.load else { return limit(data, best) };
    let at = data.load_of(best);
    let loads = data.configurations.iter().map(|c| data.load_of(c));
    let above = loads.filter(|load| *load > at).min_by(f64::total_cmp);
    match above {
        Some(above) => format!(
            "Loads between {} and {} (\"{}\"): the highest that still meets it lies there.",
            number::plain(at),
            number::plain(above),
            load.key
        ),
        None => format!("Higher loads: \"{}\" beyond {}.", load.key, number::plain(at)),
    }
}

/// Where nothing meets an objective.
pub(super) fn lower(data: &Observations) -> String {
    let lowest = data.configurations.iter().map(|c| data.load_of(c)).min_by(f64::total_cmp);
    match (&data.load, lowest) {
        (Some(load), Some(lowest)) => {
            format!("Lower loads: \"{}\" below {}.", load.key, number::plain(lowest))
        }
        _ => "A lower load, or more of the resource that limits.".to_owned(),
    }
}

/// After a design of effects.
pub(super) fn levels(first: Option<&str>) -> String {
    match first {
        Some(label) => format!(
            "A load curve at further levels of {label}, which matters most: an effect says nothing \
             between its levels or beyond them."
        ),
        None => "A load curve at the better levels.".to_owned(),
    }
}

pub(super) fn highest_load(data: &Observations) -> f64 {
    data.configurations.iter().map(|c| data.load_of(c)).fold(0.0, f64::max)
}

/// Around the number that is enough: levels of a factor above, or between two.
pub(super) fn more_of(data: &Observations, key: &str, highest: f64, grows: bool) -> String {
    let load = data.load.as_ref().filter(|_| grows).map_or_else(String::new, |load| {
        let most = number::plain(highest_load(data));
        format!(", with more load (\"{}\" beyond {most})", load.key)
    });
    format!(
        "More {}: \"{key}\" beyond {}, such as {}{load}, until throughput stops growing.",
        short(key),
        number::plain(highest),
        number::plain(2.0 * highest)
    )
}

pub(super) fn between(key: &str, low: f64, high: f64) -> String {
    format!(
        "Levels of \"{key}\" between {} and {}: the least that is enough lies there.",
        number::plain(low),
        number::plain(high)
    )
}

pub(super) fn limit(data: &Observations, at: &Configuration) -> String {
    let found = bottleneck(&at.point);
    let limiting = found.limiting.as_ref().and_then(|name| {
        found.resources.iter().find(|resource| resource.name == *name).map(|resource| &resource.id)
    });
    match limiting {
        Some(ResourceId::Workers(tier)) => {
            format!("The same study with more workers of {tier}, which limit.")
        }
        Some(ResourceId::Connections { to, .. }) => {
            format!("The same study with more connections to {to}, which limit.")
        }
        Some(ResourceId::Cpu(part)) => {
            format!("The same study with more instances or cores for {part}, which limits.")
        }
        Some(ResourceId::HostOf(host)) => {
            format!("The same study with a tier of {host} on its own host: the processor limits.")
        }
        Some(ResourceId::Link(name)) => {
            format!("The same study with more bandwidth of {name}, which limits.")
        }
        Some(ResourceId::Host) => {
            "The same study with the load generator, or a tier, on another machine: the processor \
             limits."
                .to_owned()
        }
        None => match data.load.as_ref() {
            Some(load) => format!("More levels of \"{}\".", short(&load.key)),
            None => "A load curve: vary the number of clients or the rate.".to_owned(),
        },
    }
}
