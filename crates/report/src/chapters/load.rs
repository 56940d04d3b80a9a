//! Throughput and response time, for every configuration and against load.

use std::collections::BTreeMap;

use crate::document::{Cell, Rows, Section, Table, Unit};
use crate::number;
use crate::plot::{Axis, Mark, Plot, Series};
use crate::prepared::Prepared;
use kendall_observations::{
    Configuration, Curve, Distribution, Observations, PERCENTILES, Variable, short,
};
use kendall_stats::estimate::{Estimate, percent};
use kendall_store::{OperationCounts, SummaryRow};
use kendall_units::exact_f64;

use super::saturation::interesting;
use super::{Drawn, best_curve, drawn, load_of, plotted, point, time_axis};

pub(crate) fn chapter(data: &Prepared<'_>) -> Option<Section> {
    if data.configurations.is_empty() {
        return None;
    }
    let mut section = Section::new("load", "Throughput and response time");
    section.text(reading(data));
    if let Some(load) = &data.load {
        let (groups, remark) = drawn(data);
        for group in &groups {
            section.plot(throughput_of(data, &load.label, group));
            section.plot(response_time_of(data, &load.label, group));
        }
        section.plot(percentiles(data, &load.label));
        for group in &groups {
            section.plot(against_each_other(data, group));
        }
        if let Some(remark) = remark {
            section.text(remark);
        }
    }
    section.table(table(data));
    if let Some(alone) = alone(data) {
        section.table(alone);
    }
    section.table(by_operation(data));
    section.table(by_step(data));
    section.table(errors(data));
    Some(section)
}

fn reading(data: &Observations) -> String {
    let interval = if data.repetitions() > 1 {
        format!(
            "Bars and ± are {} intervals over repetitions.",
            number::percent(data.study.confidence)
        )
    } else {
        "There is one repetition, so nothing is known of how far another would differ; intervals from its \
         own seconds are in a table of their own."
            .to_owned()
    };
    format!(
        "As the clients saw it, in the measured window: a request counts when it is answered, and \
         its response time runs from when it was due. {interval}"
    )
}

pub(crate) fn throughput(data: &Observations, load: &str) -> Plot {
    throughput_of(data, load, &all(data))
}

pub(crate) fn response_time(data: &Observations, load: &str) -> Plot {
    response_time_of(data, load, &all(data))
}

/// All curves in one drawing.
fn all(data: &Observations) -> Drawn<'_> {
    Drawn { of: String::new(), key: String::new(), curves: plotted(data) }
}

fn throughput_of(data: &Observations, load: &str, group: &Drawn<'_>) -> Plot {
    Plot {
        id: format!("plot-throughput{}", group.key),
        title: format!("Throughput against load{}", group.of),
        description: shape_in_words(data, group),
        x: Axis::from_zero(load),
        y: Axis::from_zero("throughput (1/s)"),
        series: curves(data, &group.curves, |c| Some((c.throughput_estimate()?, 1.0))),
    }
}

fn response_time_of(data: &Observations, load: &str, group: &Drawn<'_>) -> Plot {
    let times = data.configurations.iter().map(|c| c.point.client.response_time_s);
    let (label, factor) = time_axis("mean response time", times);
    Plot {
        id: format!("plot-response-time{}", group.key),
        title: format!("Response time against load{}", group.of),
        description: "Mean response time at the clients.".to_owned(),
        x: Axis::from_zero(load),
        y: Axis::from_zero(label),
        series: curves(data, &group.curves, |c| Some((c.response_estimate()?, factor))),
    }
}

/// Percentiles of one curve: the one of highest throughput.
pub(crate) fn percentiles(data: &Observations, load: &str) -> Plot {
    let best = best_curve(data);
    let along = best.into_iter().flat_map(|curve| data.along(curve));
    let times = along.flat_map(|c| c.client.percentiles_s.last().copied());
    let (label, factor) = time_axis("response time", times);
    let shown = [(1, "median"), (3, "90th percentile"), (5, "99th percentile")];
    let series = best.into_iter().flat_map(|curve| {
        shown.iter().enumerate().map(move |(color, (place, name))| {
            line(data, curve, (*name, color), |c| {
                Some((c.percentile_estimate(PERCENTILES[*place]).ok()?, factor))
            })
        })
    });
    let name = best.map_or("", |curve| curve.name.as_str());
    Plot {
        id: "plot-percentiles".to_owned(),
        title: format!("Percentiles of the response time: {name}"),
        description: "The curve of the highest throughput. The table below has every \
                      configuration."
            .to_owned(),
        x: Axis::from_zero(load),
        y: Axis::from_zero(label),
        series: series.collect(),
    }
}

/// Response time over throughput, by rising load: where it bends up, more load buys waiting alone.
fn against_each_other(data: &Observations, group: &Drawn<'_>) -> Plot {
    let times = data.configurations.iter().map(|c| c.point.client.response_time_s);
    let (label, factor) = time_axis("mean response time", times);
    let at = |c: &Configuration| Some(point(c.throughput(), &c.response_estimate()?, factor));
    let series = group.curves.iter().map(|(color, curve)| {
        Series::new(&curve.name, Mark::Line, *color, data.along(curve).filter_map(at))
    });
    Plot {
        id: format!("plot-x-r{}", group.key),
        title: format!("Response time against throughput{}", group.of),
        description: "The same points with the load left out: each curve by rising load."
            .to_owned(),
        x: Axis::around_data("throughput (1/s)"),
        y: Axis::from_zero(label),
        series: series.collect(),
    }
}

/// A line a curve, by load.
pub(super) fn curves(
    data: &Observations,
    curves: &[(usize, &Curve)],
    value: impl Fn(&Configuration) -> Option<(Estimate, f64)>,
) -> Vec<Series> {
    let line = |(color, curve): &(usize, &Curve)| line(data, curve, (&curve.name, *color), &value);
    curves.iter().map(line).collect()
}

/// A line along a curve, by load: estimates, each with the factor to the unit of its axis.
pub(super) fn line(
    data: &Observations,
    curve: &Curve,
    (name, color): (impl Into<String>, usize),
    value: impl Fn(&Configuration) -> Option<(Estimate, f64)>,
) -> Series {
    let at = |c: &Configuration| {
        let (estimate, factor) = value(c)?;
        Some(point(load_of(data, c), &estimate, factor))
    };
    Series::new(name, Mark::Line, color, data.along(curve).filter_map(at))
}

fn shape_in_words(data: &Observations, group: &Drawn<'_>) -> String {
    let ends: Vec<String> = group
        .curves
        .iter()
        .filter_map(|(_, curve)| {
            let all: Vec<&Configuration> = data.along(curve).collect();
            let best = all.iter().max_by(|a, b| a.throughput().total_cmp(&b.throughput()))?;
            let of =
                if data.curves.len() > 1 { format!("{}: h", curve.name) } else { "H".to_owned() };
            // How much it is says the answer, by all runs of the curve.
            Some(format!("{of}ighest at {}", number::plain(load_of(data, best))))
        })
        .take(4)
        .collect();
    format!("Requests answered per second. {}.", ends.join("; "))
}

/// Percentiles whose interval the table has room for.
const WITH_INTERVAL: [f64; 2] = [0.5, 0.99];

/// Those that are read most stand first, where no narrow screen hides them.
fn table(data: &Observations) -> Table {
    let caption = "Every configuration, as the clients saw it";
    let rows = of_configurations("configurations", caption, data)
        .column("repetitions", "Runs", Unit::Count, |c| exact_f64(c.repetitions.len()))
        .column("throughput_per_s", "Throughput (1/s)", Unit::PerSecond, |c| {
            (c.throughput_estimate(), "no run")
        });
    let rows = with_arrivals(data, rows, |c| c).column(
        "response_time_mean_s",
        "Mean response (ms)",
        Unit::Milliseconds,
        |c| (c.response_estimate(), "no request"),
    );
    let (first, others): (Vec<_>, Vec<_>) =
        (0..).zip(PERCENTILES).partition(|(_, quantile)| WITH_INTERVAL.contains(quantile));
    let rows = first.into_iter().rev().fold(rows, with_percentile);
    let rows = rows
        .column("throughput_standard_deviation_per_s", "s.d. of a second", Unit::PerSecond, |c| {
            (c.throughput_deviation_per_s(), "too few seconds")
        })
        .column("response_time_standard_deviation_s", "Std. dev. (ms)", Unit::Milliseconds, |c| {
            (Some(c.client.standard_deviation_s), "no request")
        });
    let rows = others.into_iter().fold(rows, with_percentile);
    rows.column("miss_rate", "Misses (%)", Unit::Percent, |c| {
        (c.counts().miss_rate(), "nothing read")
    })
    .column("error_rate", "Errors (%)", Unit::Percent, |c| (c.counts().error_rate(), "no request"))
    .table()
    .folded_if_long()
}

/// With columns for what an open loop offered and how fast its queue grew, where there is one.
fn with_arrivals<R>(
    data: &Observations,
    rows: Rows<R>,
    of: impl Fn(&R) -> &Configuration,
) -> Rows<R> {
    if data.configurations.iter().all(|c| c.point.offered_per_s().is_none()) {
        return rows;
    }
    let offered = |row: &R| (of(row).point.offered_per_s(), "a closed loop");
    let growth = |row: &R| (of(row).queue_growth(), "not seen to grow");
    let rows = rows.column("arrivals_per_s", "Arrivals (1/s)", Unit::PerSecond, offered);
    if data.configurations.iter().all(|c| c.queue_growth().is_none()) {
        return rows;
    }
    let label = "No steady state: queue grows (jobs/s)";
    rows.column("queue_growth_per_s", label, Unit::PerSecond, growth)
}

/// With a column for a percentile of the response time, in a table of configurations.
fn with_percentile(
    rows: Rows<&Configuration>,
    (place, quantile): (usize, f64),
) -> Rows<&Configuration> {
    let (key, label) = of_percentile(quantile);
    rows.column(key, label, Unit::Milliseconds, |c| match c.percentile_estimate(quantile) {
        Ok(estimate) if WITH_INTERVAL.contains(&quantile) => Cell::Estimate(estimate),
        _ => percentile(&c.client, place),
    })
}

/// Rows of the table on the first page, at most.
const MOST_IN_SHORT: usize = 24;
/// Factors that have a column each there.
const MOST_COLUMNS: usize = 2;

/// What is read of every configuration, for the first page: where they are many, of the best of each curve,
/// or of those of highest throughput.
pub(crate) fn in_short(data: &Observations) -> Table {
    let all = data.configurations.len();
    let mut chosen: Vec<&Configuration> = data.configurations.iter().collect();
    let mut what = "Every configuration by its own runs".to_owned();
    if all > MOST_IN_SHORT {
        let by_throughput =
            |a: &&Configuration, b: &&Configuration| b.throughput().total_cmp(&a.throughput());
        if data.curves.is_empty() {
            chosen.sort_by(by_throughput);
            what = format!("The {MOST_IN_SHORT} of highest throughput of {all} configurations");
        } else {
            chosen = interesting(data).into_iter().map(|(_, best)| best).collect();
            what = format!("The highest throughput of each curve, of {all} configurations");
            if chosen.len() > MOST_IN_SHORT {
                chosen.sort_by(by_throughput);
                what =
                    format!("The {MOST_IN_SHORT} curves of highest throughput, each at its best");
            }
        }
        chosen.truncate(MOST_IN_SHORT);
    }
    let confidence = number::percent(data.study.confidence);
    let runs = |c: &&Configuration| c.repetitions.len();
    let alike = chosen.iter().all(|c| runs(c) == data.repetitions());
    let each = if alike {
        format!(", {} each", number::count(data.repetitions(), "run"))
    } else {
        String::new()
    };
    let caption = format!("{what}{each}; ± or (from to) is the {confidence} interval over runs");
    let rows = if data.factors.len() > MOST_COLUMNS {
        Table::of("", caption, chosen)
            .column("configuration", "Configuration", Unit::Text, |c| data.name_of(c))
    } else {
        with_levels("", &caption, data, chosen, |c| c)
    };
    let rows =
        if alike { rows } else { rows.column("runs", "Runs", Unit::Count, |c| exact_f64(runs(c))) };
    let rows = rows.column("throughput", "Throughput (1/s)", Unit::PerSecond, |c| {
        (c.throughput_estimate(), "no run")
    });
    let rows = with_arrivals(data, rows, |c| c)
        .column("mean", "Mean (ms)", Unit::Milliseconds, |c| (c.response_estimate(), "no request"))
        .column("p99", "p99 (ms)", Unit::Milliseconds, |c| match c.percentile_estimate(0.99) {
            Ok(estimate) => Cell::Estimate(estimate),
            Err(caveat) => Cell::Empty(caveat.to_string()),
        });
    if data.configurations.iter().all(|c| c.counts().errors == 0) {
        return rows.table();
    }
    let errors = |c: &&Configuration| (c.counts().error_rate(), "no request");
    rows.column("errors", "Errors (%)", Unit::Percent, errors).table()
}

/// A table with the levels of each factor in its first columns; `of` is the configuration of a row.
pub(super) fn with_levels<R>(
    id: &str,
    caption: &str,
    data: &Observations,
    rows: impl IntoIterator<Item = R>,
    of: impl Fn(&R) -> &Configuration,
) -> Rows<R> {
    let rows = Table::of(id, caption, rows);
    data.factors.iter().fold(rows, |rows, factor| {
        rows.column(factor.key.as_str(), short(&factor.key), Unit::Text, |row| {
            of(row).level(&factor.key).map_or_else(String::new, |level| level.text.clone())
        })
    })
}

/// As [`with_levels`], of a row a configuration.
pub(super) fn of_configurations<'a>(
    id: &str,
    caption: &str,
    data: &'a Observations,
) -> Rows<&'a Configuration> {
    with_levels(id, caption, data, &data.configurations, |c| c)
}

/// What the table of configurations says, number by number, for the views of `results.db`.
pub(crate) fn summary_rows(data: &Observations) -> Vec<SummaryRow> {
    let table = table(data);
    let mut rows = Vec::new();
    for (configuration, cells) in data.configurations.iter().zip(&table.rows) {
        for (column, cell) in table.columns.iter().zip(cells) {
            let (value, interval, why) = match cell {
                Cell::Number(value) => (Some(*value), None, None),
                Cell::Count(count) => (Some(exact_f64(*count)), None, None),
                Cell::Estimate(estimate) => (Some(estimate.center), estimate.interval, None),
                Cell::Empty(why) => (None, None, Some(why.clone())),
                Cell::Text(_) => continue,
            };
            rows.push(SummaryRow {
                configuration: configuration.number,
                variable: column.key.clone(),
                value,
                low: interval.map(|interval| interval.low),
                high: interval.map(|interval| interval.high),
                why,
            });
        }
    }
    rows
}

/// Key and heading of the column for a percentile of the response time.
fn of_percentile(quantile: f64) -> (String, String) {
    let key = Variable::ResponseTimePercentile(quantile).name();
    (key, format!("p{} (ms)", percent(quantile)))
}

/// What runs that are the only ones of their configurations say of themselves; `None` without any.
fn alone(data: &Observations) -> Option<Table> {
    let once: Vec<_> = data.configurations.iter().filter_map(|c| Some((c, c.alone()?))).collect();
    if once.is_empty() {
        return None;
    }
    let title = "Configurations with one run: intervals from its own seconds";
    // Where there is no interval the reason stands in its place.
    let cell = |estimate: Option<&Estimate>| match estimate {
        None => Cell::Empty("no request".into()),
        Some(estimate) => match (estimate.interval, estimate.caveats.first()) {
            (None, Some(why)) => Cell::Empty(why.to_string()),
            _ => Cell::Estimate(estimate.clone()),
        },
    };
    let rows = with_levels("within_run", title, data, once, |(c, _)| c)
        .column("throughput_per_s", "Throughput (1/s)", Unit::PerSecond, |(_, run)| {
            cell(Some(&run.throughput_per_s))
        })
        .column("response_time_mean_s", "Mean response (ms)", Unit::Milliseconds, |(_, run)| {
            cell(run.response_time_mean_s.as_ref())
        });
    let rows = PERCENTILES.iter().fold(rows, |rows, p| {
        let (key, label) = of_percentile(*p);
        rows.column(key, label, Unit::Milliseconds, |(_, run)| cell(run.quantile(*p)))
    });
    Some(rows.table().folded_if_long())
}

/// A percentile of all requests, or why it is refused.
pub(super) fn percentile(distribution: &Distribution, place: usize) -> Cell {
    match distribution.percentile(place) {
        Ok(value) => Cell::Number(value),
        Err(caveat) => Cell::Empty(caveat.to_string()),
    }
}

fn by_operation(data: &Observations) -> Table {
    // With one operation the table of configurations says it all.
    let several = data.configurations.iter().filter(|c| c.operations.len() > 1);
    let rows = several.flat_map(|c| c.operations.iter().map(move |(name, of)| (c, name, of)));
    with_levels("operations", "By operation", data, rows, |(c, ..)| c)
        .column("operation", "Operation", Unit::Text, |(_, name, _)| name.as_str())
        .column("throughput_per_s", "Throughput (1/s)", Unit::PerSecond, |(c, name, _)| {
            (c.estimate(|r| Some(r.operations.get(*name)?.throughput_per_s)), "no request")
        })
        .column("response_time_mean_s", "Mean response (ms)", Unit::Milliseconds, |(c, name, _)| {
            let mean = c.weighted(|r| {
                let of = r.operations.get(*name)?;
                Some((of.response_time_s?, exact_f64(of.answered)))
            });
            (mean, "no request")
        })
        .column(
            "response_time_standard_deviation_s",
            "Std. dev. (ms)",
            Unit::Milliseconds,
            |(.., of)| (Some(of.standard_deviation_s), "no request"),
        )
        .column("response_time_p50_s", "p50 (ms)", Unit::Milliseconds, |(.., of)| percentile(of, 1))
        .column("response_time_p99_s", "p99 (ms)", Unit::Milliseconds, |(.., of)| {
            percentile(of, PERCENTILES.len() - 1)
        })
        .table()
        .folded_if_long()
}

/// Parts of requests: the requests of a sequence, in its order.
fn by_step(data: &Observations) -> Table {
    let steps = data.configurations.iter().flat_map(|c| {
        let of = |counts: &OperationCounts| Distribution::of(&counts.response_time);
        c.steps.iter().map(move |(name, counts)| (c, name, counts, of(counts)))
    });
    with_levels("steps", "By step of a sequence", data, steps, |(c, ..)| c)
        .column("step", "Step", Unit::Text, |(_, name, ..)| name.as_str())
        .column("answered", "Answered", Unit::Count, |(_, _, counts, _)| {
            exact_f64(counts.completed)
        })
        .column("response_time_mean_s", "Mean response (ms)", Unit::Milliseconds, |row| {
            ((row.2.completed > 0).then_some(row.3.mean_s), "no request")
        })
        .column("response_time_p99_s", "p99 (ms)", Unit::Milliseconds, |row| {
            percentile(&row.3, PERCENTILES.len() - 1)
        })
        .column("errors", "Errors", Unit::Count, |(_, _, counts, _)| {
            exact_f64(counts.errors.values().sum::<u64>())
        })
        .table()
        .folded_if_long()
}

/// What failed, by operation and kind: a status, a timeout, a broken connection.
fn errors(data: &Observations) -> Table {
    let rows = data.configurations.iter().flat_map(|c| {
        let mut kinds: BTreeMap<&(String, String), u64> = BTreeMap::new();
        for (kind, count) in c.repetitions.iter().flat_map(|r| &r.errors) {
            *kinds.entry(kind).or_default() += count;
        }
        kinds.into_iter().map(move |(kind, count)| (c, kind, count))
    });
    with_levels("errors", "What failed, by kind", data, rows, |(c, ..)| c)
        .column("operation", "Operation", Unit::Text, |(_, kind, _)| kind.0.as_str())
        .column("kind", "Kind", Unit::Text, |(_, kind, _)| kind.1.as_str())
        .column("errors", "Requests", Unit::Count, |(.., count)| exact_f64(*count))
        .column("share_of_requests", "Of all requests (%)", Unit::Percent, |(c, _, count)| {
            let counts = c.counts();
            (kendall_units::ratio(*count, counts.completed + counts.errors), "no request")
        })
        .column(
            "statuses_whole_load",
            "Status codes, of the whole load",
            Unit::Text,
            |(c, kind, _)| codes_of(&kind.1, &c.failed_statuses()),
        )
        .table()
        .folded_if_long()
}

/// The codes of a class such as `status_4xx`; windows keep the class alone, so the codes are those of the
/// whole load.
fn codes_of(kind: &str, statuses: &BTreeMap<u16, u64>) -> Cell {
    let class = kind.strip_prefix("status_").and_then(|rest| rest.strip_suffix("xx"));
    let Some(class) = class.and_then(|class| class.parse::<u16>().ok()) else {
        return Cell::Empty("no reply with a status code".to_owned());
    };
    let of_class: Vec<_> = statuses.iter().filter(|(code, _)| **code / 100 == class).collect();
    if of_class.is_empty() {
        return Cell::Empty("no codes were kept".to_owned());
    }
    number::statuses(of_class).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_a_class_stand_most_frequent_first_and_none_is_no_text() {
        let statuses = BTreeMap::from([(404, 3), (410, 20), (503, 7)]);
        let told = |kind| match codes_of(kind, &statuses) {
            Cell::Text(text) => Some(text),
            _ => None,
        };
        assert_eq!(told("status_4xx").unwrap(), "410 (20), 404 (3)");
        assert_eq!(told("status_5xx").unwrap(), "503 (7)");
        assert_eq!(told("status_3xx"), None);
        assert_eq!(told("timeout"), None);
    }
}
