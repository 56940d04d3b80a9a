//! CPU and network of hosts and tiers at every configuration, and what tiers count: against load,
//! and as tables.

use std::collections::BTreeSet;

use kendall_fit::measured::{OperatingPoint, ProcessView};
use kendall_observations::{Configuration, Curve, Observations};
use kendall_protocols::topology::{Part, Role};

use crate::document::{Section, Table, Unit};
use crate::plot::{Axis, Plot, Series};
use crate::prepared::Prepared;
use kendall_stats::estimate::Estimate;

use super::load::{curves, line, of_configurations, with_levels};
use super::{Drawn, best_curve, drawn};

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
    let line = |name: String, color, value: &dyn Fn(&Configuration) -> Option<f64>| {
        line(data, curve, (name, color), |c| Some((Estimate::exact(value(c)?), 1.0)))
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
    let line = |name: String, color, value: &dyn Fn(&Configuration) -> Option<f64>| {
        line(data, curve, (name, color), |c| Some((Estimate::exact(value(c)? / MEGA), 1.0)))
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
    let title = "Cores in use, and time that threads waited for one";
    let mut rows = of_configurations("cpu", title, data)
        .column("host_cores", "Cores of the host", Unit::Level, |c| {
            (Some(c.point.host_cores).filter(|cores| *cores > 0.0), "not known")
        })
        .column("host_busy_cores", "in use", Unit::Plain(3), |c| {
            (c.point.host_busy_cores, "not recorded")
        })
        .column("host_utilization", "Host (%)", Unit::Percent, |c| {
            (busy(&c.point), "not recorded")
        });
    for host in hosts(data) {
        let (key, label) = (format!("{host}_busy_cores"), format!("host {host}"));
        rows = rows.column(key, label, Unit::Plain(3), |c| (busy_there(c, &host), "not used"));
    }
    for part in parts {
        let key = part.to_string().replace(' ', "_");
        let of = |c: &&Configuration, value: fn(&ProcessView) -> Option<f64>| {
            (c.point.process(part).and_then(value), "not there")
        };
        rows = rows
            .column(format!("{key}_cores"), part.to_string(), Unit::Plain(3), |c| {
                of(c, |process| Some(process.cpu_cores))
            })
            .column(format!("{key}_utilization"), "of its own (%)", Unit::Percent, |c| {
                of(c, |p| (p.cpu_cores_limit > 0.0).then(|| p.busy_cores() / p.cpu_cores_limit))
            })
            .column(format!("{key}_run_queue_wait"), "waiting", Unit::Plain(2), |c| {
                of(c, |process| process.run_queue_wait)
            });
    }
    rows.table().folded_if_long()
}

/// What a request takes of each part: processor time, and how often its threads went to sleep.
fn of_a_request(data: &Observations, parts: &[Part]) -> Table {
    let title = "Of a request: processor time, and voluntary context switches";
    let mut rows = of_configurations("per-request", title, data);
    for part in parts {
        let key = part.to_string().replace(' ', "_");
        let each = |c: &&Configuration, value: fn(&ProcessView) -> f64| {
            // Weighted by its requests, as every mean of a request is.
            let estimate = c.weighted(|run| {
                let throughput = run.point.client.throughput_per_s;
                let each = value(run.point.process(part)?) / throughput;
                Some((each, throughput * run.point.duration_s))
            });
            (estimate, "not there")
        };
        rows = rows
            .column(format!("{key}_cpu_s"), format!("{part} (µs)"), Unit::Microseconds, |c| {
                each(c, |process| process.cpu_cores)
            })
            .column(format!("{key}_switches"), "switches", Unit::Plain(3), |c| {
                each(c, |process| process.switches_per_s)
            });
    }
    rows.table().folded()
}

/// What threads and connections of tiers wait for.
fn waits(data: &Observations) -> Table {
    let title = "Threads by what they wait for, and connections by where they wait, on average";
    let rows = data.configurations.iter().flat_map(|c| {
        let tiers = c.point.processes.iter().filter(|p| p.part.role == Role::Tier);
        tiers.filter_map(move |tier| Some((c, &tier.part.name, tier.waiting?)))
    });
    with_levels("waits", title, data, rows, |(c, ..)| c)
        .column("tier", "Tier", Unit::Text, |(_, tier, _)| tier.as_str())
        .column("disk", "A flush", Unit::Plain(2), |(.., waiting)| waiting.disk)
        .column("lock", "A lock, or work", Unit::Plain(2), |(.., waiting)| waiting.lock)
        .column("sleep", "Sleep", Unit::Plain(2), |(.., waiting)| waiting.sleep)
        .column("accept_queue", "Not accepted", Unit::Plain(2), |(.., of)| of.accept_queue)
        .column("unread", "Not read", Unit::Plain(2), |(.., waiting)| waiting.unread)
        .column("inside", "Requests inside", Unit::Plain(2), |(.., of)| of.requests())
        .table()
        .folded_if_long()
}

fn network(data: &Observations) -> Table {
    let places = data.configurations.iter().flat_map(|c| {
        let host = c.point.host_network.map(|network| (c, "host", network));
        let tiers = c.point.tiers.iter().map(move |tier| (c, tier.name.as_str(), tier.network));
        host.into_iter().chain(tiers)
    });
    let used = places.filter(|(.., of)| of.in_bytes_per_s + of.out_bytes_per_s > 0.0);
    with_levels("network", "Bytes a second", data, used, |(c, ..)| c)
        .column("place", "Where", Unit::Text, |(_, place, _)| *place)
        .column("in_bytes_per_s", "In (bytes/s)", Unit::PerSecond, |(.., of)| of.in_bytes_per_s)
        .column("out_bytes_per_s", "Out (bytes/s)", Unit::PerSecond, |(.., of)| of.out_bytes_per_s)
        .table()
        .folded_if_long()
}

/// What each tier counted (hits, misses, errors by kind), and the share of each among them.
fn outcomes(data: &Observations) -> Table {
    let all = || {
        data.configurations.iter().flat_map(|c| {
            c.point
                .tiers
                .iter()
                .flat_map(move |tier| tier.outcomes_per_s.iter().map(move |one| (c, tier, one)))
        })
    };
    let seen: BTreeSet<&String> =
        all().filter(|(.., (_, rate))| **rate > 0.0).map(|(.., (name, _))| name).collect();
    let rows = all().filter(|(.., (name, _))| seen.contains(name));
    with_levels("outcomes", "What each tier counted", data, rows, |(c, ..)| c)
        .column("tier", "Tier", Unit::Text, |(_, tier, _)| tier.name.as_str())
        .column("outcome", "Outcome", Unit::Text, |(.., (name, _))| name.as_str())
        .column("per_s", "A second", Unit::PerSecond, |(.., (_, rate))| **rate)
        .column(
            "share_of_requests",
            "Of its requests (%)",
            Unit::Percent,
            |(_, tier, (_, rate))| {
                let requests = tier.view.throughput_per_s;
                ((requests > 0.0).then(|| **rate / requests), "no request")
            },
        )
        .table()
        .folded_if_long()
}
