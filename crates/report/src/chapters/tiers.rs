//! The same requests as seen from the clients and from the first tier, and where their time goes.

use kendall_protocols::snapshot::stage;

use crate::document::{Cell, Section, Table, Unit};
use crate::number;
use crate::plot::{Axis, Mark, Plot, Point, Series};
use kendall_observations::{Configuration, Curve, Observations, PERCENTILES};

use super::load::{factor_columns, levels};
use super::{load_of, time_axis};

pub(crate) fn chapter(data: &Observations) -> Option<Section> {
    if !data.has_tier() {
        return None;
    }
    let mut section = Section::new("tiers", "From the clients and from the tier");
    section.text(in_words(data)?);
    if let Some((curve, load)) = best_curve(data).zip(data.load.as_ref()) {
        section.plot(views(data, curve, &load.label));
        section.plot(stages(data, curve, &load.label));
    }
    section.table(table(data));
    section.table(by_type(data));
    Some(section)
}

/// Mean times in each stage by request type, where there are several types.
fn by_type(data: &Observations) -> Table {
    let mut table =
        factor_columns(Table::new("stages", "Where the time goes, by request type"), data);
    let several = |c: &&Configuration| c.stages.len() > 1;
    // Stages that all tiers have, in the order of a request, and then the tier's own.
    let common = [stage::WAITING_TIME, stage::SERVICE_TIME, stage::BACKEND_TIME];
    let mut names: Vec<&str> = common.to_vec();
    for name in data.configurations.iter().flat_map(|c| c.stages.values()).flat_map(|s| s.keys()) {
        if !names.contains(&name.as_str()) && name != stage::RESPONSE_TIME {
            names.push(name);
        }
    }
    table = table
        .column("request", "Request", Unit::Text)
        .column("requests", "Requests", Unit::Count)
        .column("response_time_s", "R tier (ms)", Unit::Milliseconds)
        .column("response_time_p99_s", "p99 (ms)", Unit::Milliseconds);
    for name in &names {
        let words = name.trim_end_matches("_time").replace('_', " ");
        let label = format!("{} (ms)", super::capitalized(&words));
        table = table.column(format!("{name}_s"), label, Unit::Milliseconds);
    }
    for configuration in data.configurations.iter().filter(several) {
        for (request, stages) in &configuration.stages {
            let Some(response) = stages.get(stage::RESPONSE_TIME) else { continue };
            let mut row = levels(data, configuration);
            row.push(request.as_str().into());
            row.push(kendall_units::exact_f64(response.count).into());
            row.push(response.mean_s.into());
            row.push(super::load::percentile(response, PERCENTILES.len() - 1));
            let mean = |name: &&str| stages.get(*name).map(|times| times.mean_s);
            row.extend(names.iter().map(|name| Cell::number_or(mean(name), "none")));
            table.push(row);
        }
    }
    if table.rows.len() > 24 { table.folded() } else { table }
}

/// The curve that holds the highest throughput.
fn best_curve(data: &Observations) -> Option<&Curve> {
    let most =
        |curve: &&Curve| data.along(curve).map(Configuration::throughput).fold(0.0, f64::max);
    data.curves.iter().max_by(|a, b| most(a).total_cmp(&most(b)))
}

fn in_words(data: &Observations) -> Option<String> {
    let fastest = data.fastest()?;
    let tier = fastest.point.first_tier()?;
    let client = fastest.point.client;
    let outside = client.response_time_s - tier.view.response_time_s;
    let link = fastest.point.client_link_round_trip_s;
    let linked = if link > 0.0 {
        format!(", of which the link's stated delay is {}", number::time(link))
    } else {
        String::new()
    };
    let backend = tier.backend_time_s.map_or_else(String::new, |backend| {
        format!("; for {} of that it waits for backends", number::time(backend))
    });
    Some(format!(
        "The tier “{}” reports the stages of each request by its own clock. At the highest throughput ({}), \
         the clients see {} on average and the tier {}: {} lie outside it{linked}. Inside, a \
         request waits {} for a worker and is then served for {}{backend}.",
        tier.name,
        data.name_of(fastest),
        number::time(client.response_time_s),
        number::time(tier.view.response_time_s),
        number::time(outside.max(0.0)),
        number::time(tier.waiting_time_s),
        number::time(tier.service_time_s),
    ))
}

fn views(data: &Observations, curve: &Curve, load: &str) -> Plot {
    let times = data.along(curve).map(|c| c.point.client.response_time_s);
    let (label, factor) = time_axis("mean response time", times);
    let line = |name: &str,
                color,
                value: &dyn Fn(&kendall_observations::Repetition) -> Option<f64>| {
        Series {
            name: name.to_owned(),
            mark: Mark::Line,
            color,
            points: data
                .along(curve)
                .filter_map(|c| Some(super::point(load_of(data, c), &c.estimate(value)?, factor)))
                .collect(),
        }
    };
    Plot {
        id: "plot-views".to_owned(),
        title: format!("Response time at the clients and at the tier: {}", curve.name),
        description: "What lies between the lines is network, sockets and waiting for a core."
            .to_owned(),
        x: Axis::from_zero(load),
        y: Axis::from_zero(label),
        series: vec![
            line("at the clients", 0, &|r| Some(r.point.client.response_time_s)),
            line("at the tier", 1, &|r| r.point.first_tier().map(|t| t.view.response_time_s)),
        ],
    }
}

fn stages(data: &Observations, curve: &Curve, load: &str) -> Plot {
    type Part = (&'static str, fn(&Configuration) -> Option<f64>);
    let parts: [Part; 4] = [
        ("outside the tier", |c| {
            let tier = c.point.first_tier()?;
            Some((c.point.client.response_time_s - tier.view.response_time_s).max(0.0))
        }),
        ("waiting for a worker", |c| Some(c.point.first_tier()?.waiting_time_s)),
        ("waiting for backends", |c| c.point.first_tier()?.backend_time_s),
        ("worker's own work", |c| {
            let tier = c.point.first_tier()?;
            Some((tier.service_time_s - tier.backend_time_s.unwrap_or(0.0)).max(0.0))
        }),
    ];
    let all = || data.along(curve);
    let times = all().flat_map(|c| parts.iter().filter_map(move |(_, value)| value(c)));
    let (label, factor) = time_axis("time a request", times);
    let series = parts.iter().enumerate().map(|(color, (name, value))| Series {
        name: (*name).to_owned(),
        mark: Mark::Line,
        color,
        points: all()
            .filter_map(|c| Some(Point::new(load_of(data, c), value(c)? * factor)))
            .collect(),
    });
    Plot {
        id: "plot-stages".to_owned(),
        title: format!("Where a request spends its time: {}", curve.name),
        description: "The four parts add up to the clients' response time.".to_owned(),
        x: Axis::from_zero(load),
        y: Axis::from_zero(label),
        series: series.filter(|series: &Series| !series.points.is_empty()).collect(),
    }
}

fn table(data: &Observations) -> Table {
    let mut table = factor_columns(
        Table::new("tiers", "Clients and the first tier, and the stages of a request within it"),
        data,
    );
    table = table
        .column("client_throughput_per_s", "X clients (1/s)", Unit::PerSecond)
        .column("tier_throughput_per_s", "X tier (1/s)", Unit::PerSecond)
        .column("client_response_time_s", "R clients (ms)", Unit::Milliseconds)
        .column("tier_response_time_s", "R tier (ms)", Unit::Milliseconds)
        .column("waiting_time_s", "Waiting (ms)", Unit::Milliseconds)
        .column("service_time_s", "Service (ms)", Unit::Milliseconds)
        .column("backend_time_s", "Backends (ms)", Unit::Milliseconds)
        .column("queue_length", "Queue length", Unit::Plain(3))
        .column("workers_busy", "Workers busy", Unit::Plain(3))
        .column("workers", "of", Unit::Count);
    for configuration in &data.configurations {
        let Some(tier) = configuration.point.first_tier() else { continue };
        let none = "no worker limit";
        let limited = tier.workers > 0;
        let mut row = levels(data, configuration);
        row.extend([
            configuration.point.client.throughput_per_s.into(),
            tier.view.throughput_per_s.into(),
            configuration.point.client.response_time_s.into(),
            tier.view.response_time_s.into(),
            tier.waiting_time_s.into(),
            tier.service_time_s.into(),
            Cell::number_or(tier.backend_time_s, "no backend"),
            tier.queue_length.into(),
            Cell::number_or(limited.then_some(tier.workers_busy), none),
            Cell::number_or(limited.then(|| f64::from(tier.workers)), none),
        ]);
        table.push(row);
    }
    if table.rows.len() > 24 { table.folded() } else { table }
}
