//! Where each curve saturates, and what limits it there.

use kendall_fit::bottleneck::{Bottleneck, Resource, bottleneck};
use kendall_fit::saturation::{PLATEAU, Saturation, Shape};
use kendall_stats::estimate::{Estimate, Interval};

use crate::document::{Cell, Level, Section, Table, Unit};
use crate::number;
use crate::prepared::Prepared;
use kendall_observations::{Configuration, Curve, Observations};

use super::load_of;

pub(crate) fn chapter(data: &Prepared<'_>) -> Option<Section> {
    if data.configurations.is_empty() {
        return None;
    }
    let mut section = Section::new("saturation", "Saturation and bottleneck");
    if !data.curves.is_empty() {
        section.text(format!(
            "A curve is saturated where its last step gained no more than {plateau} (its last doubling, where the step \
             was a larger one), or where something of the system was {full} busy at the highest load: by the utilization law X \
             = U·m/D nothing is left to gain then, however much the last step gained on its way \
             there. Where the interval of that step contains both growth and none, the shape is \
             unknown. The knee is the lowest load whose throughput lies within {plateau} of the \
             curve's highest. It is said to lie above the highest load whose throughput is \
             significantly lower than that highest; only loads between the two could say where. N* is where the asymptotes of light and heavy load cross, Xmax·(Rmin \
             + Z).",
            plateau = number::percent(PLATEAU),
            full = number::percent(1.0 - PLATEAU)
        ));
        let verdicts = data.saturations().filter_map(|(curve, found)| verdict(data, curve, found?));
        section.list(verdicts.collect());
    }
    if !data.searches.is_empty() {
        section.text(
            "The search's own estimates of maximum and N* are in the chapter above and rest on \
             fresh runs; the table here includes every run.",
        );
    }
    section.table(knees(data));
    section.text(
        "A resource is named as the limit from a utilization of 90 %. Workers are held while the \
         layers below them work, so a full pool above full cores counts as a symptom.",
    );
    let mut limits = Vec::new();
    for (name, configuration) in interesting(data) {
        let found = bottleneck(&configuration.point);
        explain(&mut section, &name, configuration, &found);
        limits.extend(found.resources.into_iter().map(|resource| (name.clone(), resource)));
    }
    section.table(resources(limits));
    Some(section)
}

/// Whether a curve is saturated, and what says so.
fn verdict(data: &Observations, curve: &Curve, found: &Saturation) -> Option<String> {
    let unit = data.load.as_ref().map_or("load", |load| load.unit.as_str());
    let all: Vec<&Configuration> = data.along(curve).collect();
    let [.., before, last] = all.as_slice() else { return None };
    let (from, to) = (load_of(data, before), load_of(data, last));
    let step = format!(
        "from {} to {} {unit} throughput changes by {}{}",
        number::plain(from),
        number::plain(to),
        number::signed_percent(found.last_gain.center),
        in_interval(found.last_gain.interval)
    );
    let full = found.full.as_ref().map(|full| {
        let left = match full.left_to_gain() {
            left if left < 0.001 => "nothing".to_owned(),
            left => format!("at most {}", number::percent(left)),
        };
        format!(
            "{}: {} busy at the highest load, so by the utilization law {left} can be gained",
            full.resource,
            number::percent(full.utilization)
        )
    });
    let at = number::load(&number::plain(found.knee.load), unit);
    let knee = match found.below_knee {
        _ if !found.shape.is_reached() => String::new(),
        None => format!(" Its knee lies at or below {at}."),
        Some(below) => {
            format!(" Its knee lies above {} and at or below {at}.", number::plain(below))
        }
    };
    let because = full.map_or_else(|| step.clone(), |full| format!("{full} ({step})"));
    Some(match found.shape {
        Shape::StillGrowing => format!("{}: not saturated in the range; {step}.", curve.name),
        Shape::Saturated => {
            format!("{}: saturated; {because}{}.{knee}", curve.name, doubled(found))
        }
        Shape::Overloaded => {
            format!("{}: overloaded, it falls beyond its maximum; {step}.{knee}", curve.name)
        }
        Shape::CannotTell => {
            let why = found.unknown.as_ref().map_or_else(|| step.clone(), |why| why.in_words(unit));
            format!("{}: cannot tell; {why}.", curve.name)
        }
    })
}

/// What a curve that is saturated after a step that gained much gained at its end.
fn doubled(found: &Saturation) -> String {
    let much = found.full.is_none() && found.last_gain.center > PLATEAU;
    let doubling = found.curve.as_ref().map(|curve| &curve.last_doubling).filter(|_| much);
    doubling.map_or_else(String::new, |gain| {
        let gained = number::signed_percent(gain.center);
        format!(", but by {gained}{} in its last doubling", in_interval(gain.interval))
    })
}

/// ` (95 % interval −3 % to +4 %)`.
fn in_interval(interval: Option<Interval>) -> String {
    match interval {
        None => " (from one run: no interval)".to_owned(),
        Some(interval) if interval.map(|change| 1.0 + change).says_nothing() => {
            " (the runs differ too much for an interval of any sense)".to_owned()
        }
        Some(interval) => format!(
            " ({} interval {} to {})",
            number::percent(interval.confidence),
            number::signed_percent(interval.low),
            number::signed_percent(interval.high)
        ),
    }
}

/// The label of the load without its unit.
pub(crate) fn short_label(label: &str) -> &str {
    label.split(" (").next().unwrap_or(label)
}

fn knees(data: &Prepared<'_>) -> Table {
    let load = data.load.as_ref().map_or("load", |load| load.label.as_str());
    let unit = data.load.as_ref().map_or("", |load| load.unit.as_str());
    let mut table = Table::new("saturation", "Saturation of each curve")
        .column("curve", "Curve", Unit::Text)
        .column("shape", "Shape", Unit::Text)
        .column("last_step_gain", "Last step (%)", Unit::SignedPercent)
        .column("full_utilization", "Fullest (%)", Unit::Percent)
        .column("below_knee_load", "Knee above", Unit::Level)
        .column("knee_load", format!("Knee: {load}"), Unit::Level)
        .column("knee_throughput_per_s", "Throughput there (1/s)", Unit::PerSecond)
        .column("knee_response_time_s", "Response there (ms)", Unit::Milliseconds)
        .column("maximum_load", format!("Maximum: {load}"), Unit::Level)
        .column("maximum_throughput_per_s", "Highest throughput (1/s)", Unit::PerSecond)
        .column("maximum_response_time_s", "Response there (ms)", Unit::Milliseconds)
        .column("asymptotes_cross_at", "N*", Unit::Plain(3));
    for (curve, found) in data.saturations() {
        let Some(found) = found else { continue };
        let full = found.full.as_ref().map(|full| full.utilization);
        let shape = match found.shape {
            Shape::StillGrowing => "still growing",
            Shape::Saturated => "saturated",
            Shape::Overloaded => "falls beyond its maximum",
            Shape::CannotTell => "cannot tell",
        };
        let unknown = found.unknown.as_ref();
        let why = unknown.map_or_else(|| "not reached".to_owned(), |why| why.in_words(unit));
        let known = |yes: bool, value: f64| {
            if yes { Cell::Number(value) } else { Cell::Empty(why.clone()) }
        };
        let knee = |value: f64| known(found.shape.is_reached(), value);
        let maximum = |value: f64| known(found.is_balanced(), value);
        let gain = Estimate { caveats: Vec::new(), ..found.last_gain.clone() };
        table.push(vec![
            curve.name.as_str().into(),
            shape.into(),
            Cell::Estimate(gain),
            Cell::number_or(full, "nothing is 95 % busy"),
            found
                .below_knee
                .map_or_else(|| Cell::Empty("no load is significantly lower".to_owned()), &knee),
            knee(found.knee.load),
            knee(found.knee.throughput_per_s),
            knee(found.knee.response_time_s),
            maximum(found.maximum.load),
            maximum(found.maximum.throughput_per_s),
            maximum(found.maximum.response_time_s),
            match found.asymptotes_cross_at {
                Some(value) => maximum(value),
                None => Cell::Empty("open loop".to_owned()),
            },
        ]);
    }
    table
}

/// The maximum of each curve; without curves, the fastest configuration.
pub(crate) fn interesting(data: &Observations) -> Vec<(String, &Configuration)> {
    if data.curves.is_empty() {
        return data.fastest().map(|c| (data.name_of(c), c)).into_iter().collect();
    }
    let best = |curve: &Curve| {
        data.curves.iter().find(|known| known.name == curve.name).and_then(|known| {
            data.along(known).max_by(|a, b| a.throughput().total_cmp(&b.throughput()))
        })
    };
    data.curves.iter().filter_map(|curve| Some((curve.name.clone(), best(curve)?))).collect()
}

fn explain(section: &mut Section, name: &str, configuration: &Configuration, found: &Bottleneck) {
    let title = match (&found.limiting, &found.cannot_tell) {
        (Some(limiting), _) => format!("{name}: limited by {limiting}"),
        (None, Some(_)) => format!("{name}: cannot tell what limits"),
        (None, None) => format!("{name}: no measured resource limits"),
    };
    section.heading(title);
    section.text(format!(
        "At its highest throughput, {}, with a mean response time of {}:",
        number::rate(configuration.throughput()),
        number::time(configuration.point.client.response_time_s)
    ));
    section.list(found.evidence.clone());
    if found.disturbed {
        section.note(
            Level::Doubt,
            "Other programs used this machine during the runs, so these figures are not the \
             system's alone.",
        );
    }
    if found.generator_suspected {
        section.note(
            Level::Bad,
            "The load generator is at its limit here, so this is not evidence about the system.",
        );
    }
}

fn resources(rows: Vec<(String, Resource)>) -> Table {
    let title =
        "Bottleneck table: every resource at the highest throughput of each curve, busiest first";
    Table::of("resources", title, rows)
        .column("curve", "Curve", Unit::Text, |(name, _)| name.clone())
        .column("resource", "Resource", Unit::Text, |(_, resource)| resource.name.clone())
        .column("busy", "Busy", Unit::Plain(3), |(_, resource)| resource.busy)
        .column("servers", "Of", Unit::Level, |(_, resource)| resource.servers)
        .column("service_time_s", "Service time S (ms)", Unit::Milliseconds, |(_, resource)| {
            (resource.service_time_s(), "no throughput")
        })
        .column("visits", "Visits V", Unit::Plain(3), |(_, resource)| resource.visits)
        .column("throughput_per_s", "Throughput (1/s)", Unit::PerSecond, |(_, resource)| {
            (resource.throughput_per_s(), "idle")
        })
        .column("utilization", "Utilization U (%)", Unit::Percent, |(_, r)| r.utilization)
        .column("demand_s", "Demand D = V·S (ms)", Unit::Milliseconds, |(_, resource)| {
            (resource.demand_s, "no throughput")
        })
        .column("queue_length", "Waiting", Unit::Plain(3), |(_, resource)| {
            (resource.queue_length, "not recorded")
        })
        .column("waiting_time_s", "Time waiting (ms)", Unit::Milliseconds, |(_, resource)| {
            (resource.waiting_time_s, "not recorded")
        })
        .table()
        .folded_if_long()
}
