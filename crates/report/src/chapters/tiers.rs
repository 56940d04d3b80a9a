//! The same requests as seen from the clients and from the first tier, and where their time goes.

use kendall_protocols::snapshot::stage;

use crate::document::{Section, Table, Unit};
use crate::number;
use crate::plot::{Axis, Plot, Series, stacked};
use crate::prepared::Prepared;
use kendall_fit::measured::TierView;
use kendall_observations::{Configuration, Curve, Instance, Observations, PERCENTILES, Repetition};
use kendall_stats::estimate::Estimate;

use super::load::{curves, line, with_levels};
use super::network_paths::{Way, ways};
use super::{Drawn, best_curve, drawn, load_of, time_axis};

pub(crate) fn chapter(data: &Prepared<'_>) -> Option<Section> {
    if !data.has_tier() {
        return None;
    }
    let mut section = Section::new("tiers", "From the clients and from the tier");
    section.text(in_words(data)?);
    section.list(probed(data).into_iter().chain(probed_ways(data)).collect());
    if let Some((curve, load)) = best_curve(data).zip(data.load.as_ref()) {
        section.plot(views(data, curve, &load.label));
        section.plot(stages(data, curve, &load.label));
        section.heading("At the tier, every curve");
        for group in &drawn(data).0 {
            for view in VIEWS {
                section.plot(view.plot(data, &load.label, group));
            }
        }
    }
    section.table(table(data));
    section.table(by_type(data));
    section.table(instances(data));
    Some(section)
}

/// What loopback did by itself before the first run, beside what lies outside the tier at the lowest load.
fn probed(data: &Observations) -> Option<String> {
    let probe = data.runs.first()?.environment.get("loopback")?;
    let of = |key: &str| probe.get(key)?.as_f64();
    let (median, p99) = (of("round_trip_p50_s")?, of("round_trip_p99_s")?);
    let lowest = data.configurations.iter().filter(|c| c.point.first_tier().is_some());
    let lowest = lowest.min_by(|a, b| load_of(data, a).total_cmp(&load_of(data, b)))?;
    let tier = lowest.point.first_tier()?;
    let outside = lowest.point.client.response_time_s - tier.view.response_time_s;
    let links = lowest.point.client_link_round_trip_s;
    Some(format!(
        "Before the first run a round trip over loopback took {} (99th percentile {}), and a \
         stream carried {} MB/s. With the links' stated delay the network's part of a request is \
         {} at least; at the lowest load ({}) {} lie outside the tier, which the models use as \
         its delay.",
        number::time(median),
        number::time(p99),
        number::significant(of("bytes_per_s")? / 1e6, 3),
        number::time(median + links),
        data.name_of(lowest),
        number::time(outside.max(0.0)),
    ))
}

/// The same between hosts: the ways to the first tier, beside what lies outside it.
fn probed_ways(data: &Observations) -> Vec<String> {
    let lowest = data.configurations.iter().filter(|c| c.point.first_tier().is_some());
    let Some(lowest) = lowest.min_by(|a, b| load_of(data, a).total_cmp(&load_of(data, b))) else {
        return Vec::new();
    };
    let in_words = |way: &Way| {
        let probe = way.probe().ok()?;
        let tier = lowest.point.first_tier()?;
        let outside = lowest.point.client.response_time_s - tier.view.response_time_s;
        let beside = if way.tier == tier.name {
            format!(
                " At the lowest load ({}) {} lie outside the tier, which the models use as the \
                 network's delay.",
                data.name_of(lowest),
                number::time(outside.max(0.0))
            )
        } else {
            String::new()
        };
        Some(format!(
            "From host {} to host {} a round trip of 64 bytes took {} before the first usable run (99th \
             percentile {}), and a stream carried {} MB/s.{beside}",
            way.from,
            way.to,
            number::time(probe.round_trip_p50_s),
            number::time(probe.round_trip_p99_s),
            number::significant(probe.bytes_per_s / 1e6, 3),
        ))
    };
    ways(data).iter().filter_map(in_words).collect()
}

/// A quantity of the first tier, drawn against the load for every curve.
struct View {
    id: &'static str,
    title: &'static str,
    of: Of,
}

enum Of {
    /// A rate or a level: the label of its axis, and its value.
    Level(&'static str, fn(&TierView) -> f64),
    /// The time in a stage.
    Stage(&'static str),
}

const VIEWS: [View; 6] = [
    View {
        id: "throughput",
        title: "Throughput at the tier",
        of: Of::Level("throughput (1/s)", |tier| tier.view.throughput_per_s),
    },
    View {
        id: "response",
        title: "Response time at the tier",
        of: Of::Stage(stage::RESPONSE_TIME),
    },
    View {
        id: "queue",
        title: "Queue length",
        of: Of::Level("requests that wait", |tier| tier.queue_length),
    },
    View { id: "waiting", title: "Waiting time in the queue", of: Of::Stage(stage::WAITING_TIME) },
    View { id: "service", title: "Service time", of: Of::Stage(stage::SERVICE_TIME) },
    View { id: "backend", title: "Time for backends", of: Of::Stage(stage::BACKEND_TIME) },
];

impl View {
    /// A level or a rate is a mean over runs, a time one over requests.
    fn of(&self, configuration: &Configuration) -> Option<Estimate> {
        match self.of {
            Of::Level(_, value) => configuration.estimate(|r| r.point.first_tier().map(value)),
            Of::Stage(stage) => configuration.tier_time(stage),
        }
    }

    fn plot(&self, data: &Observations, load: &str, group: &Drawn<'_>) -> Plot {
        let all = data.configurations.iter().filter_map(|c| c.point.first_tier());
        let (label, factor) = match self.of {
            Of::Level(label, _) => (label.to_owned(), 1.0),
            Of::Stage(stage) => {
                time_axis(&self.title.to_lowercase(), all.filter_map(|tier| tier.time_s(stage)))
            }
        };
        Plot {
            id: format!("plot-tier-{}{}", self.id, group.key),
            title: format!("{}{}", self.title, group.of),
            description: "As reported by the tier, all its instances together.".to_owned(),
            x: Axis::from_zero(load),
            y: Axis::from_zero(label),
            series: curves(data, &group.curves, |c| Some((self.of(c)?, factor))),
        }
    }
}

/// Each instance of a tier that has several, by itself: rates and levels are means over the runs,
/// times over the requests.
fn instances(data: &Observations) -> Table {
    let rows = data.configurations.iter().flat_map(|c| {
        let all = c.repetitions.first().map_or(&[][..], |first| first.instances.as_slice());
        let alike = move |one: &Instance| all.iter().filter(|other| other.tier == one.tier).count();
        all.iter().filter(move |one| alike(one) > 1).map(move |one| (c, one))
    });
    type Row<'a> = (&'a Configuration, &'a Instance);
    fn same<'a>(one: &Instance, run: &'a Repetition) -> Option<&'a Instance> {
        run.instances.iter().find(|i| i.tier == one.tier && i.instance == one.instance)
    }
    let mean = |(c, one): &Row<'_>, value: fn(&Instance) -> Option<f64>| {
        c.estimate(|r| same(one, r).and_then(value))
    };
    let time = |stage: &'static str| {
        move |(c, one): &Row<'_>| {
            let mean = c.weighted(|r| same(one, r)?.times.get(stage).copied());
            (mean.map(|e| e.center), "not measured")
        }
    };
    let title = "Each instance of a tier separately";
    with_levels("instances", title, data, rows, |(c, _)| c)
        .column("tier", "Tier", Unit::Text, |(_, one)| one.tier.as_str())
        .column("instance", "Instance", Unit::Count, |(_, one)| f64::from(one.instance))
        .column("arrivals_per_s", "λ (1/s)", Unit::PerSecond, |row| {
            (mean(row, |i| Some(i.arrivals_per_s)), "not measured")
        })
        .column("throughput_per_s", "X (1/s)", Unit::PerSecond, |row| {
            (mean(row, |i| Some(i.throughput_per_s)), "not measured")
        })
        .column("response_time_s", "R (ms)", Unit::Milliseconds, time(stage::RESPONSE_TIME))
        .column("waiting_time_s", "Waiting (ms)", Unit::Milliseconds, time(stage::WAITING_TIME))
        .column("service_time_s", "Service (ms)", Unit::Milliseconds, time(stage::SERVICE_TIME))
        .column("queue_length", "Queue length", Unit::Plain(3), |row| {
            (mean(row, |i| Some(i.queue_length)).map(|e| e.center), "not measured")
        })
        .column("utilization", "U of its workers (%)", Unit::Percent, |row| {
            let busy =
                mean(row, |i| (i.workers > 0).then(|| i.workers_busy / f64::from(i.workers)));
            (busy.map(|e| e.center), "no worker limit")
        })
        .table()
        .folded()
}

/// Mean times in each stage by request type, where there are several types.
fn by_type(data: &Observations) -> Table {
    // Stages that all tiers have, in the order of a request, and then the tier's own.
    let common = [stage::WAITING_TIME, stage::SERVICE_TIME, stage::BACKEND_TIME];
    let mut names: Vec<&str> = common.to_vec();
    for name in data.configurations.iter().flat_map(|c| c.stages.values()).flat_map(|s| s.keys()) {
        if !names.contains(&name.as_str()) && name != stage::RESPONSE_TIME {
            names.push(name);
        }
    }
    let several = data.configurations.iter().filter(|c| c.stages.len() > 1);
    let rows = several.flat_map(|c| {
        c.stages.iter().filter_map(move |(request, stages)| {
            Some((c, request, stages, stages.get(stage::RESPONSE_TIME)?))
        })
    });
    let title = "Where the time goes, by request type";
    let rows = with_levels("stages", title, data, rows, |(c, ..)| c)
        .column("request", "Request", Unit::Text, |(_, request, ..)| request.as_str())
        .column("requests", "Requests", Unit::Count, |(.., r)| kendall_units::exact_f64(r.count))
        .column("response_time_s", "R tier (ms)", Unit::Milliseconds, |(.., r)| r.mean_s)
        .column("response_time_p99_s", "p99 (ms)", Unit::Milliseconds, |(.., response)| {
            super::load::percentile(response, PERCENTILES.len() - 1)
        });
    let rows = names.iter().fold(rows, |rows, name| {
        let words = name.trim_end_matches("_time").replace('_', " ");
        let label = format!("{} (ms)", super::capitalized(&words));
        rows.column(format!("{name}_s"), label, Unit::Milliseconds, |(_, _, stages, _)| {
            (stages.get(*name).map(|times| times.mean_s), "none")
        })
        .column(
            format!("{name}_standard_deviation_s"),
            "s.d.",
            Unit::Milliseconds,
            |(_, _, stages, _)| (stages.get(*name).map(|times| times.standard_deviation_s), "none"),
        )
    });
    rows.table().folded_if_long()
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
        "The tier “{}” reports the stages of each request by its own clock. At the highest \
         throughput ({}), the clients see {} on average and the tier {}: {} lie outside \
         it{linked}. Inside, a request waits {} for a worker and is then served for {}{backend}.",
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
    let tier = |c: &Configuration| Some((c.tier_time(stage::RESPONSE_TIME)?, factor));
    Plot {
        id: "plot-views".to_owned(),
        title: format!("Response time at the clients and at the tier: {}", curve.name),
        description: "What lies between the lines is network, sockets and waiting for a core."
            .to_owned(),
        x: Axis::from_zero(load),
        y: Axis::from_zero(label),
        series: vec![
            line(data, curve, ("at the clients", 0), |c| Some((c.response_estimate()?, factor))),
            line(data, curve, ("at the tier", 1), tier),
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
    let series = parts.iter().enumerate().map(|(color, (name, value))| {
        line(data, curve, (*name, color), |c| Some((Estimate::exact(value(c)?), factor)))
    });
    Plot {
        id: "plot-stages".to_owned(),
        title: format!("Where a request spends its time: {}", curve.name),
        description: "The parts lie on each other and add up to the clients' response time."
            .to_owned(),
        x: Axis::from_zero(load),
        y: Axis::from_zero(label),
        series: stacked(series.filter(|series: &Series| !series.points.is_empty()).collect()),
    }
}

fn table(data: &Observations) -> Table {
    let tiers = data.configurations.iter().filter_map(|c| Some((c, c.point.first_tier()?)));
    let title = "Clients and the first tier, and the stages of a request within it";
    let limited =
        |tier: &TierView, value: f64| ((tier.workers > 0).then_some(value), "no worker limit");
    with_levels("tiers", title, data, tiers, |(c, _)| c)
        .column("client_throughput_per_s", "X clients (1/s)", Unit::PerSecond, |(c, _)| {
            c.point.client.throughput_per_s
        })
        .column("tier_throughput_per_s", "X tier (1/s)", Unit::PerSecond, |(_, tier)| {
            tier.view.throughput_per_s
        })
        .column("tier_arrivals_per_s", "λ tier (1/s)", Unit::PerSecond, |(_, tier)| {
            (tier.arrivals_per_s, "not counted")
        })
        .column("client_response_time_s", "R clients (ms)", Unit::Milliseconds, |(c, _)| {
            c.point.client.response_time_s
        })
        .column("tier_response_time_s", "R tier (ms)", Unit::Milliseconds, |(_, tier)| {
            tier.view.response_time_s
        })
        .column("waiting_time_s", "Waiting (ms)", Unit::Milliseconds, |(_, t)| t.waiting_time_s)
        .column("service_time_s", "Service (ms)", Unit::Milliseconds, |(_, t)| t.service_time_s)
        .column("backend_time_s", "Backends (ms)", Unit::Milliseconds, |(_, tier)| {
            (tier.backend_time_s, "no backend")
        })
        .column("queue_length", "Queue length", Unit::Plain(3), |(_, tier)| tier.queue_length)
        .column("workers_busy", "Workers busy", Unit::Plain(3), |(_, t)| limited(t, t.workers_busy))
        .column("workers", "of", Unit::Count, |(_, t)| limited(t, f64::from(t.workers)))
        .table()
        .folded_if_long()
}
