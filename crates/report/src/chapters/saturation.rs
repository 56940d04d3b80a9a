//! Where each curve saturates, and what limits it there.

use kendall_predict::bottleneck::{Bottleneck, bottleneck};
use kendall_predict::saturation::{LoadPoint, PLATEAU, Saturation, Shape, saturation};

use crate::data::{Configuration, Curve, Data};
use crate::document::{Cell, Level, Section, Table, Unit};
use crate::number;

use super::load_of;

pub(crate) fn chapter(data: &Data) -> Option<Section> {
    if data.configurations.is_empty() {
        return None;
    }
    let mut section = Section::new("saturation", "Saturation and bottleneck");
    section.text(format!(
        "The knee is the lowest load whose throughput lies within {} of the curve's highest: \
         beyond it, more load buys waiting. N* is where the asymptotes of light and heavy load \
         cross, Xmax·(Rmin + Z). A resource is named as the limit from a utilization of 90 % on; a \
         worker pool is held while the layers below it work, so a full pool over full cores counts \
         as a symptom.",
        number::percent(PLATEAU)
    ));
    if data.study.design == "adaptive" {
        section.text(format!(
            "The loads were chosen by the search: {} in {}. “Knee above” and “Knee” enclose the \
             saturation point as narrowly as the search went.",
            number::count(data.configurations.len(), "configuration"),
            number::count(data.configurations.iter().map(|c| c.repetitions.len()).sum(), "run")
        ));
    }
    section.table(knees(data));
    let mut resources = resource_table();
    for (name, configuration) in interesting(data) {
        let found = bottleneck(&configuration.point);
        explain(&mut section, &name, configuration, &found);
        rows(&mut resources, &name, &found);
    }
    section.table(if resources.rows.len() > 16 { resources.folded() } else { resources });
    Some(section)
}

/// The saturation of one curve.
pub(super) fn of_curve(data: &Data, curve: &Curve) -> Option<Saturation> {
    let points: Vec<LoadPoint> = data
        .along(curve)
        .map(|c| LoadPoint {
            load: load_of(data, c),
            throughput_per_s: c.throughput(),
            response_time_s: c.point.client.response_time_s,
        })
        .collect();
    let first = data.along(curve).next()?;
    let think = first.point.population.map(|_| first.point.think_time_s);
    saturation(&points, think)
}

fn knees(data: &Data) -> Table {
    let load = data.load.as_ref().map_or("load", |load| load.label.as_str());
    let mut table = Table::new("saturation", "Saturation of each curve")
        .column("curve", "Curve", Unit::Text)
        .column("shape", "Shape", Unit::Text)
        .column("below_knee_load", "Knee above", Unit::Level)
        .column("knee_load", format!("Knee: {load}"), Unit::Level)
        .column("knee_throughput_per_s", "Throughput there (1/s)", Unit::PerSecond)
        .column("knee_response_time_s", "Response there (ms)", Unit::Milliseconds)
        .column("maximum_load", format!("Maximum: {load}"), Unit::Level)
        .column("maximum_throughput_per_s", "Highest throughput (1/s)", Unit::PerSecond)
        .column("maximum_response_time_s", "Response there (ms)", Unit::Milliseconds)
        .column("asymptotes_cross_at", "N*", Unit::Plain(3));
    for curve in &data.curves {
        let Some(found) = of_curve(data, curve) else { continue };
        let shape = match found.shape {
            Shape::StillGrowing => "still growing",
            Shape::Saturated => "saturated",
            Shape::Overloaded => "falls beyond its maximum",
        };
        let growing = found.shape == Shape::StillGrowing;
        let knee = |value: f64| {
            if growing { Cell::Empty("not reached".to_owned()) } else { Cell::Number(value) }
        };
        table.push(vec![
            curve.name.as_str().into(),
            shape.into(),
            found.below_knee.map_or_else(|| Cell::Empty("the lowest load".to_owned()), &knee),
            knee(found.knee.load),
            knee(found.knee.throughput_per_s),
            knee(found.knee.response_time_s),
            found.maximum.load.into(),
            found.maximum.throughput_per_s.into(),
            found.maximum.response_time_s.into(),
            Cell::number_or(found.asymptotes_cross_at, "open loop"),
        ]);
    }
    table
}

/// The maximum of each curve; without curves, the fastest configuration.
pub(super) fn interesting(data: &Data) -> Vec<(String, &Configuration)> {
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
    let title = match &found.limiting {
        Some(limiting) => format!("{name}: limited by {limiting}"),
        None => format!("{name}: no measured resource limits"),
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

fn resource_table() -> Table {
    Table::new("resources", "Every resource at the highest throughput of each curve, busiest first")
        .column("curve", "Curve", Unit::Text)
        .column("resource", "Resource", Unit::Text)
        .column("busy", "Busy", Unit::Plain(3))
        .column("servers", "Of", Unit::Level)
        .column("utilization", "Utilization (%)", Unit::Percent)
        .column("demand_s", "Demand a request (ms)", Unit::Milliseconds)
        .column("queue_length", "Waiting", Unit::Plain(3))
        .column("waiting_time_s", "Time waiting (ms)", Unit::Milliseconds)
}

fn rows(table: &mut Table, name: &str, found: &Bottleneck) {
    for resource in &found.resources {
        table.push(vec![
            name.into(),
            resource.name.as_str().into(),
            resource.busy.into(),
            resource.servers.into(),
            resource.utilization.into(),
            Cell::number_or(resource.demand_s, "no throughput"),
            Cell::number_or(resource.queue_length, "not recorded"),
            Cell::number_or(resource.waiting_time_s, "not recorded"),
        ]);
    }
}
