//! CPU and network of hosts and tiers at every configuration, and what tiers count: against load,
//! and as tables.

use std::collections::BTreeSet;

use kendall_fit::measured::{OperatingPoint, ProcessView};
use kendall_observations::{Configuration, Curve, Observations};
use kendall_protocols::topology::{Part, Role};

use crate::document::{Cell, Section, Table, Unit};
use crate::plot::{Axis, Mark, Plot, Point, Series};
use crate::prepared::Prepared;

use super::load::{curves, factor_columns, levels};
use super::{Drawn, drawn, load_of};

pub(crate) fn chapter(data: &Prepared<'_>) -> Option<Section> {
    let parts = parts(data);
    if parts.is_empty() {
        return None;
    }
    let mut section = Section::new("usage", "Processor and network");
    section.text(
        "Cores in use according to the operating system: by each part of the study (all its \
         instances), and by the whole host. The difference between the host and the parts is other \
         programs and the kernel. Bytes of the host hold the loopback device, where tiers and load \
         generator share it, twice; those of a tier are what it read from its clients and wrote to \
         them.",
    );
    if let Some((curve, load)) = best_curve(data).zip(data.load.as_ref()) {
        section.plot(cores(data, curve, &parts, &load.label));
        section.plot(bytes(data, curve, &load.label));
        section.heading("Every curve");
        for group in &drawn(data).0 {
            section.plot(host_of_every(data, group, &load.label));
            for (place, part) in parts.iter().enumerate() {
                section.plot(part_of_every(data, group, (place, part), &load.label));
            }
        }
    }
    section.table(processors(data, &parts));
    section.table(of_a_request(data, &parts));
    section.table(waits(data));
    section.table(network(data));
    section.table(outcomes(data));
    Some(section)
}

/// Every part that any configuration has, in the order in which they are first seen.
fn parts(data: &Observations) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for process in data.configurations.iter().flat_map(|c| &c.point.processes) {
        if !parts.contains(&process.part) {
            parts.push(process.part.clone());
        }
    }
    parts
}

/// The curve that holds the highest throughput.
fn best_curve(data: &Observations) -> Option<&Curve> {
    let most =
        |curve: &&Curve| data.along(curve).map(Configuration::throughput).fold(0.0, f64::max);
    data.curves.iter().max_by(|a, b| most(a).total_cmp(&most(b)))
}

fn of_part(
    configuration: &Configuration,
    part: &Part,
    value: fn(&ProcessView) -> f64,
) -> Option<f64> {
    configuration.point.process(part).map(value)
}

/// Hosts of a study that ran on several.
fn hosts(data: &Observations) -> Vec<String> {
    let mut names = Vec::new();
    for host in data.configurations.iter().flat_map(|c| &c.point.hosts) {
        if !names.contains(&host.name) {
            names.push(host.name.clone());
        }
    }
    names
}

fn busy_there(configuration: &Configuration, host: &str) -> Option<f64> {
    let mut hosts = configuration.point.hosts.iter();
    hosts.find(|known| known.name == host).map(|known| known.busy_cores)
}

fn cores(data: &Observations, curve: &Curve, parts: &[Part], load: &str) -> Plot {
    let line = |name: String, color, value: &dyn Fn(&Configuration) -> Option<f64>| Series {
        name,
        mark: Mark::Line,
        color,
        points: data
            .along(curve)
            .filter_map(|c| Some(Point::new(load_of(data, c), value(c)?)))
            .collect(),
    };
    let mut series: Vec<Series> = parts
        .iter()
        .enumerate()
        .map(|(color, part)| {
            line(part.to_string(), color, &|c| of_part(c, part, |process| process.cpu_cores))
        })
        .collect();
    series.push(line("the host".to_owned(), parts.len(), &|c| c.point.host_busy_cores));
    for (number, host) in hosts(data).into_iter().enumerate() {
        let value = |c: &Configuration| busy_there(c, &host);
        series.push(line(format!("host {host}"), parts.len() + number, &value));
    }
    series.retain(|series| !series.points.is_empty());
    Plot {
        id: "plot-cores".to_owned(),
        title: format!("Cores in use: {}", curve.name),
        description: "The curve of the highest throughput. The table has every configuration."
            .to_owned(),
        x: Axis::from_zero(load),
        y: Axis::from_zero("cores in use"),
        series,
    }
}

/// Busy share of the host's cores.
fn busy(point: &OperatingPoint) -> Option<f64> {
    let cores = Some(point.host_cores).filter(|cores| *cores > 0.0)?;
    Some(point.host_busy_cores? / cores)
}

/// Utilization of the host along every curve.
fn host_of_every(data: &Observations, group: &Drawn<'_>, load: &str) -> Plot {
    Plot {
        id: format!("plot-host{}", group.key),
        title: format!("Utilization of the host's cores{}", group.of),
        description: "All programs together, as the operating system counts.".to_owned(),
        x: Axis::from_zero(load),
        y: Axis::from_zero("busy (%)"),
        series: curves(data, &group.curves, |c| Some((c.estimate(|r| busy(&r.point))?, 100.0))),
    }
}

/// Cores that one part uses along every curve.
fn part_of_every(
    data: &Observations,
    group: &Drawn<'_>,
    (place, part): (usize, &Part),
    load: &str,
) -> Plot {
    Plot {
        id: format!("plot-cores-{place}{}", group.key),
        title: format!("Cores in use: {part}{}", group.of),
        description: "All its instances together.".to_owned(),
        x: Axis::from_zero(load),
        y: Axis::from_zero("cores in use"),
        series: curves(data, &group.curves, |c| {
            Some((c.estimate(|r| Some(r.point.process(part)?.cpu_cores))?, 1.0))
        }),
    }
}

fn bytes(data: &Observations, curve: &Curve, load: &str) -> Plot {
    const MEGA: f64 = 1e6;
    let line = |name: String, color, value: &dyn Fn(&Configuration) -> Option<f64>| Series {
        name,
        mark: Mark::Line,
        color,
        points: data
            .along(curve)
            .filter_map(|c| Some(Point::new(load_of(data, c), value(c)? / MEGA)))
            .collect(),
    };
    let tiers = data.along(curve).next().map_or(0, |c| c.point.tiers.len());
    let mut series = vec![
        line("into the host".to_owned(), 0, &|c| Some(c.point.host_network?.in_bytes_per_s)),
        line("out of the host".to_owned(), 1, &|c| Some(c.point.host_network?.out_bytes_per_s)),
    ];
    for place in 0..tiers {
        let name = data.along(curve).next().map_or("", |c| c.point.tiers[place].name.as_str());
        let of = |c: &Configuration, into: bool| {
            let network = &c.point.tiers.get(place)?.network;
            Some(if into { network.in_bytes_per_s } else { network.out_bytes_per_s })
        };
        series.push(line(format!("into {name}"), 2 + 2 * place, &|c| of(c, true)));
        series.push(line(format!("out of {name}"), 3 + 2 * place, &|c| of(c, false)));
    }
    series.retain(|series| series.points.iter().any(|point| point.y > 0.0));
    Plot {
        id: "plot-bytes".to_owned(),
        title: format!("Bytes a second: {}", curve.name),
        description: "The curve of the highest throughput.".to_owned(),
        x: Axis::from_zero(load),
        y: Axis::from_zero("megabytes a second"),
        series,
    }
}

fn processors(data: &Observations, parts: &[Part]) -> Table {
    let mut table = factor_columns(
        Table::new("cpu", "Cores in use, and time that threads waited for one"),
        data,
    )
    .column("host_cores", "Cores of the host", Unit::Level)
    .column("host_busy_cores", "in use", Unit::Plain(3))
    .column("host_utilization", "Host (%)", Unit::Percent);
    let hosts = hosts(data);
    for host in &hosts {
        table = table.column(format!("{host}_busy_cores"), format!("host {host}"), Unit::Plain(3));
    }
    for part in parts {
        let key = part.to_string().replace(' ', "_");
        table = table
            .column(format!("{key}_cores"), part.to_string(), Unit::Plain(3))
            .column(format!("{key}_utilization"), "of its own (%)", Unit::Percent)
            .column(format!("{key}_run_queue_wait"), "waiting", Unit::Plain(2));
    }
    for configuration in &data.configurations {
        let point = &configuration.point;
        let busy = point.host_busy_cores;
        let share = busy.filter(|_| point.host_cores > 0.0).map(|busy| busy / point.host_cores);
        let mut row = levels(data, configuration);
        row.extend([
            Cell::number_or((point.host_cores > 0.0).then_some(point.host_cores), "not known"),
            Cell::number_or(busy, "not recorded"),
            Cell::number_or(share, "not recorded"),
        ]);
        for host in &hosts {
            row.push(Cell::number_or(busy_there(configuration, host), "not used"));
        }
        for part in parts {
            let process = point.process(part);
            let none = "not there";
            row.extend([
                Cell::number_or(process.map(|p| p.cpu_cores), none),
                Cell::number_or(
                    process
                        .filter(|p| p.cpu_cores_limit > 0.0)
                        .map(|p| p.cpu_cores / p.cpu_cores_limit),
                    none,
                ),
                Cell::number_or(process.and_then(|p| p.run_queue_wait), none),
            ]);
        }
        table.push(row);
    }
    table.folded_if_long()
}

/// What a request takes of each part: processor time, and how often its threads went to sleep.
fn of_a_request(data: &Observations, parts: &[Part]) -> Table {
    let title = "Of a request: processor time, and voluntary context switches";
    let mut table = factor_columns(Table::new("per-request", title), data);
    for part in parts {
        let key = part.to_string().replace(' ', "_");
        table = table
            .column(format!("{key}_cpu_s"), format!("{part} (µs)"), Unit::Microseconds)
            .column(format!("{key}_switches"), "switches", Unit::Plain(3));
    }
    for configuration in &data.configurations {
        let mut row = levels(data, configuration);
        for part in parts {
            let each = |value: fn(&ProcessView) -> f64| {
                // Weighted by its requests, as every mean of a request is.
                let estimate = configuration.weighted(|run| {
                    let throughput = run.point.client.throughput_per_s;
                    let each = value(run.point.process(part)?) / throughput;
                    Some((each, throughput * run.point.duration_s))
                });
                Cell::estimate_or(estimate.as_ref(), "not there")
            };
            row.extend([each(|process| process.cpu_cores), each(|process| process.switches_per_s)]);
        }
        table.push(row);
    }
    table.folded()
}

/// What threads and connections of tiers wait for.
fn waits(data: &Observations) -> Table {
    let title = "Threads by what they wait for, and connections by where they wait, on average";
    let mut table = factor_columns(Table::new("waits", title), data)
        .column("tier", "Tier", Unit::Text)
        .column("disk", "A flush", Unit::Plain(2))
        .column("lock", "A lock, or work", Unit::Plain(2))
        .column("sleep", "Sleep", Unit::Plain(2))
        .column("accept_queue", "Not accepted", Unit::Plain(2))
        .column("unread", "Not read", Unit::Plain(2));
    for configuration in &data.configurations {
        let tiers = configuration.point.processes.iter().filter(|p| p.part.role == Role::Tier);
        for (tier, waiting) in tiers.filter_map(|tier| Some((tier, tier.waiting?))) {
            let mut row = levels(data, configuration);
            row.push(Cell::Text(tier.part.name.clone()));
            let counts = [waiting.disk, waiting.lock, waiting.sleep, waiting.accept_queue];
            row.extend(counts.map(Cell::from));
            row.push(waiting.unread.into());
            table.push(row);
        }
    }
    table.folded_if_long()
}

fn network(data: &Observations) -> Table {
    let mut table = factor_columns(Table::new("network", "Bytes a second"), data)
        .column("place", "Where", Unit::Text)
        .column("in_bytes_per_s", "In (bytes/s)", Unit::PerSecond)
        .column("out_bytes_per_s", "Out (bytes/s)", Unit::PerSecond);
    for configuration in &data.configurations {
        let host = configuration.point.host_network.map(|network| ("host".to_owned(), network));
        let tiers = configuration.point.tiers.iter().map(|tier| (tier.name.clone(), tier.network));
        for (place, network) in host.into_iter().chain(tiers) {
            if network.in_bytes_per_s + network.out_bytes_per_s <= 0.0 {
                continue;
            }
            let mut row = levels(data, configuration);
            row.extend([
                Cell::Text(place),
                network.in_bytes_per_s.into(),
                network.out_bytes_per_s.into(),
            ]);
            table.push(row);
        }
    }
    table.folded_if_long()
}

/// What each tier counted (hits, misses, errors by kind), and the share of each among them.
fn outcomes(data: &Observations) -> Table {
    let mut table = factor_columns(Table::new("outcomes", "What each tier counted"), data)
        .column("tier", "Tier", Unit::Text)
        .column("outcome", "Outcome", Unit::Text)
        .column("per_s", "A second", Unit::PerSecond)
        .column("share_of_requests", "Of its requests (%)", Unit::Percent);
    let seen: BTreeSet<&String> = data
        .configurations
        .iter()
        .flat_map(|c| &c.point.tiers)
        .flat_map(|tier| tier.outcomes_per_s.iter().filter(|(_, rate)| **rate > 0.0))
        .map(|(name, _)| name)
        .collect();
    for configuration in &data.configurations {
        for tier in &configuration.point.tiers {
            let of_tier = tier.outcomes_per_s.iter().filter(|(name, _)| seen.contains(name));
            for (name, rate) in of_tier {
                let requests = tier.view.throughput_per_s;
                let mut row = levels(data, configuration);
                row.extend([
                    Cell::Text(tier.name.clone()),
                    Cell::Text(name.clone()),
                    (*rate).into(),
                    Cell::number_or((requests > 0.0).then(|| rate / requests), "no request"),
                ]);
                table.push(row);
            }
        }
    }
    table.folded_if_long()
}
