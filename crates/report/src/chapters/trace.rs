//! Throughput and response time over time: was the system in a steady state?

use kendall_stats::steady::drift;

use crate::document::{Block, Level, Section, Table, Unit};
use crate::number;
use crate::plot::{Axis, Mark, Plot, Point, Series, stacked};
use crate::prepared::Prepared;
use kendall_observations::{ClientPeriod, Configuration, Observations, Overview, TracePeriod};

use super::{density, time_axis};

pub(crate) fn chapter(data: &Prepared<'_>) -> Option<Section> {
    let mut section = Section::new("steady", "Was it a steady state?");
    let (mut drifting, looked_at) = looked_at(data);
    if looked_at == 0 && data.fastest().is_none_or(|c| c.repetitions[0].seconds.len() < 2) {
        return None;
    }
    let of = number::count(looked_at, "run");
    if looked_at == 0 {
        section.note(Level::Doubt, "The runs are too short to detect a drift.");
    } else if drifting.is_empty() {
        section.note(Level::Good, format!("None of {of} drifts within its measured window."));
    } else {
        section.note(
            Level::Doubt,
            format!("{} of {of} drift within their measured window.", drifting.len()),
        );
        let more = drifting.len().saturating_sub(8);
        drifting.truncate(8);
        if more > 0 {
            drifting.push(format!("and {more} more"));
        }
        section.list(drifting);
    }
    if let Some(sentence) = in_words(data) {
        section.text(sentence);
    }
    section.plot(throughput(data)?);
    section.plot(response(data));
    section.plot(density::of_first_run(data));
    if let Some(plot) = stages(data) {
        section.plot(plot);
    }
    for plot in density::of_stages(data).into_iter().chain(density::of_busy_workers(data)) {
        section.plot(plot);
    }
    section.table(table(data));
    section.fold("Every configuration over time", every(data));
    Some(section)
}

/// Runs that drift, in words.
pub(crate) fn drifting(data: &Observations) -> Vec<String> {
    looked_at(data).0
}

/// Runs that drift, in words, and how many were tested.
fn looked_at(data: &Observations) -> (Vec<String>, usize) {
    let mut drifting = Vec::new();
    let mut looked_at = 0_usize;
    for configuration in &data.configurations {
        for repetition in &configuration.repetitions {
            let series: Vec<f64> = repetition.seconds.iter().map(|(_, x)| *x).collect();
            let Some(found) = drift(&series) else { continue };
            looked_at += 1;
            if let Some(caveat) = found.caveat() {
                drifting.push(format!(
                    "{}, repetition {}: throughput {caveat}",
                    data.name_of(configuration),
                    repetition.run.repetition + 1
                ));
            }
        }
    }
    (drifting, looked_at)
}

/// What one period of a trace is called.
fn called(width_s: u64) -> String {
    match width_s {
        1 => "second by second".to_owned(),
        60 => "minute by minute".to_owned(),
        width if width > 60 => format!("{} at a time", number::count(width / 60, "minute")),
        width => format!("{} at a time", number::count(width, "second")),
    }
}

type Of = fn(&TracePeriod) -> Option<f64>;
type OfClients = fn(&ClientPeriod) -> Option<f64>;

fn lines(data: &Observations, value: Of, factor: f64) -> Vec<Series> {
    let at = |period: &TracePeriod| Some(Point::new(at(data, period), value(period)? * factor));
    let series = data.traces.iter().take(8).enumerate().map(|(color, trace)| {
        let name = format!("repetition {}", trace.repetition + 1);
        Series::new(name, Mark::Line, color, trace.periods.iter().filter_map(at))
    });
    series.collect()
}

fn at(data: &Observations, period: &TracePeriod) -> f64 {
    period.clients.from_s / density::seconds_a_unit(data)
}

pub(crate) fn throughput(data: &Observations) -> Option<Plot> {
    let (fastest, width_s) = data.fastest().zip(data.traces.first().map(|t| t.width_s))?;
    Some(Plot {
        id: "plot-trace".to_owned(),
        title: "Throughput over time".to_owned(),
        description: format!(
            "The runs of highest throughput ({}), {} within the measured window.",
            data.name_of(fastest),
            called(width_s)
        ),
        x: density::time(data),
        y: Axis::from_zero("throughput (1/s)"),
        series: lines(data, |period| Some(period.clients.throughput_per_s), 1.0),
    })
}

fn response(data: &Observations) -> Plot {
    let all = || data.traces.iter().flat_map(|trace| &trace.periods);
    let (label, factor) =
        time_axis("response time", all().filter_map(|period| period.clients.p99_s));
    let mut series = lines(data, |period| period.clients.response_time_s, factor);
    for line in &mut series {
        line.name.push_str(", mean");
    }
    for (mut line, color) in lines(data, |period| period.clients.p99_s, factor).into_iter().zip(0..)
    {
        line.name.push_str(", 99th percentile");
        line.mark = Mark::Dashed;
        line.color = color;
        series.push(line);
    }
    Plot {
        id: "plot-trace-response".to_owned(),
        title: "Response time over time".to_owned(),
        description: "The same runs, at the clients.".to_owned(),
        x: density::time(data),
        y: Axis::from_zero(label),
        series,
    }
}

/// Where the time goes, over time: the first repetition.
fn stages(data: &Observations) -> Option<Plot> {
    const PARTS: [(&str, Of); 4] = [
        ("outside the tier", |p| {
            Some((p.clients.response_time_s? - p.tier.response_time_s?).max(0.0))
        }),
        ("waiting for a worker", |p| p.tier.waiting_time_s),
        ("waiting for backends", |p| p.tier.backend_time_s),
        ("worker's own work", |p| {
            Some((p.tier.service_time_s? - p.tier.backend_time_s.unwrap_or(0.0)).max(0.0))
        }),
    ];
    let trace = data.traces.first()?;
    let all = || trace.periods.iter();
    let seconds = all().flat_map(|period| PARTS.iter().filter_map(|(_, value)| value(period)));
    let (label, factor) = time_axis("time a request", seconds);
    let series = PARTS.iter().enumerate().map(|(color, (name, value))| {
        let at = |period| Some(Point::new(at(data, period), value(period)? * factor));
        Series::new(*name, Mark::Line, color, all().filter_map(at))
    });
    Some(Plot {
        id: "plot-trace-stages".to_owned(),
        title: "Where a request spends its time, over time".to_owned(),
        description:
            "Repetition 1 of the same runs; the parts lie on each other and add up to the \
                      clients' response time."
                .to_owned(),
        x: density::time(data),
        y: Axis::from_zero(label),
        series: stacked(series.filter(|series: &Series| !series.points.is_empty()).collect()),
    })
}

/// Configurations whose first run is drawn over time, at most; the table holds all.
const MOST_OVER_TIME: usize = 24;

/// The first run of every configuration over time: drawings, and a table of all.
fn every(data: &Observations) -> Vec<Block> {
    let all = || data.configurations.iter().map(|c| (c, &c.first_run));
    let told = |trace: &Overview| trace.periods.len() > 1;
    if data.configurations.len() < 2 || !all().any(|(_, trace)| told(trace)) {
        return Vec::new();
    }
    let drawn = all().filter(|(_, trace)| told(trace)).take(MOST_OVER_TIME);
    let mut blocks: Vec<Block> = drawn
        .map(|(configuration, trace)| {
            Block::PlotPair(Box::new(over_time(data, configuration, trace)))
        })
        .collect();
    if data.configurations.len() > MOST_OVER_TIME {
        blocks.push(Block::Text(format!(
            "Drawn are {MOST_OVER_TIME} of {} configurations; the table holds all.",
            data.configurations.len()
        )));
    }
    blocks.push(Block::Table(every_table(data)));
    blocks
}

fn over_time(data: &Observations, configuration: &Configuration, trace: &Overview) -> (Plot, Plot) {
    let name = data.name_of(configuration);
    let (unit, per_unit) = density::unit(trace.width_s);
    let series = |name: &str, color, value: OfClients, factor: f64| {
        let at = |p: &ClientPeriod| Some(Point::new(p.from_s / per_unit, value(p)? * factor));
        Series::new(name, Mark::Line, color, trace.periods.iter().filter_map(at))
    };
    let (label, factor) = time_axis("response time", trace.periods.iter().filter_map(|p| p.p99_s));
    let plot = |what: &str, title: &str, label: String, series: Vec<Series>| Plot {
        id: format!("plot-over-time-{what}-{}", configuration.number),
        title: format!("{title}: {name}"),
        description: "Repetition 1.".to_owned(),
        x: Axis::from_zero(unit),
        y: Axis::from_zero(label),
        series,
    };
    (
        plot(
            "throughput",
            "Throughput",
            "throughput (1/s)".to_owned(),
            vec![series("throughput", 0, |p| Some(p.throughput_per_s), 1.0)],
        ),
        plot(
            "response",
            "Response time",
            label,
            vec![
                series("mean", 0, |p| p.response_time_s, factor),
                series("99th percentile", 1, |p| p.p99_s, factor),
            ],
        ),
    )
}

fn every_table(data: &Observations) -> Table {
    let title = "The first run of every configuration, period by period";
    let rows =
        data.configurations.iter().flat_map(|c| c.first_run.periods.iter().map(move |p| (c, p)));
    Table::of("over-time", title, rows)
        .column("configuration", "Configuration", Unit::Text, |(c, _)| data.name_of(c))
        .column("from_s", "From (s)", Unit::Count, |(_, p)| p.from_s)
        .column("throughput_per_s", "Throughput (1/s)", Unit::PerSecond, |(_, p)| {
            p.throughput_per_s
        })
        .column("response_time_mean_s", "Mean response (ms)", Unit::Milliseconds, |(_, p)| {
            (p.response_time_s, "no request")
        })
        .column("response_time_p99_s", "p99 (ms)", Unit::Milliseconds, |(_, p)| {
            (p.p99_s, "no request")
        })
        .column("errors", "Errors", Unit::Count, |(_, p)| kendall_units::exact_f64(p.errors))
        .table()
        .folded()
}

fn table(data: &Observations) -> Table {
    let title = "The runs of highest throughput, period by period";
    let rows = data.traces.iter().flat_map(|trace| {
        trace.periods.iter().map(move |period| (trace.repetition, &period.clients, &period.tier))
    });
    let none = "no request in the tier";
    Table::of("trace", title, rows)
        .column("repetition", "Repetition", Unit::Count, |(run, ..)| f64::from(run + 1))
        .column("from_s", "From (s)", Unit::Count, |(_, p, _)| p.from_s)
        .column("throughput_per_s", "Throughput (1/s)", Unit::PerSecond, |(_, p, _)| {
            p.throughput_per_s
        })
        .column("response_time_mean_s", "Mean response (ms)", Unit::Milliseconds, |(_, p, _)| {
            (p.response_time_s, "no request")
        })
        .column("response_time_p99_s", "p99 (ms)", Unit::Milliseconds, |(_, p, _)| {
            (p.p99_s, "no request")
        })
        .column("errors", "Errors", Unit::Count, |(_, p, _)| kendall_units::exact_f64(p.errors))
        .column("tier_response_time_s", "R tier (ms)", Unit::Milliseconds, |(.., tier)| {
            (tier.response_time_s, none)
        })
        .column("waiting_time_s", "Waiting (ms)", Unit::Milliseconds, |(.., tier)| {
            (tier.waiting_time_s, none)
        })
        .column("service_time_s", "Service (ms)", Unit::Milliseconds, |(.., tier)| {
            (tier.service_time_s, none)
        })
        .column("backend_time_s", "Backends (ms)", Unit::Milliseconds, |(.., tier)| {
            (tier.backend_time_s, none)
        })
        .table()
        .folded()
}

/// How far the periods of a long run lie apart.
fn in_words(data: &Observations) -> Option<String> {
    let trace = data.traces.first().filter(|trace| trace.periods.len() > 4)?;
    let range = |value: Of| {
        let values: Vec<f64> = trace.periods.iter().filter_map(value).collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        (low, values.iter().copied().fold(0.0, f64::max))
    };
    let (slow, fast) = range(|period| Some(period.clients.throughput_per_s));
    let (short, long) = range(|period| period.clients.response_time_s);
    Some(format!(
        "At a resolution of {}, throughput lies between {} and {} and the mean response time \
         between {} and {}.",
        called(trace.width_s),
        number::rate(slow),
        number::rate(fast),
        number::time(short),
        number::time(long)
    ))
}
