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
use kendall_store::SummaryRow;
use kendall_units::exact_f64;

use super::saturation::interesting;
use super::{Drawn, drawn, load_of, plotted, point, time_axis};

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
    let best = data.curves.iter().max_by(|a, b| {
        let most = |curve| data.along(curve).map(Configuration::throughput).fold(0.0, f64::max);
        most(a).total_cmp(&most(b))
    });
    let times = best
        .into_iter()
        .flat_map(|curve| data.along(curve))
        .flat_map(|c| c.client.percentiles_s.last().copied());
    let (label, factor) = time_axis("response time", times);
    let shown = [(1, "median"), (3, "90th percentile"), (5, "99th percentile")];
    let series = shown.iter().enumerate().map(|(color, (place, name))| Series {
        name: (*name).to_owned(),
        mark: Mark::Line,
        color,
        points: best
            .into_iter()
            .flat_map(|curve| data.along(curve))
            .filter_map(|c| {
                Some(point(
                    load_of(data, c),
                    &c.percentile_estimate(PERCENTILES[*place]).ok()?,
                    factor,
                ))
            })
            .collect(),
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
    let response = |c: &Configuration| Some((c.response_estimate()?, factor));
    Plot {
        id: format!("plot-x-r{}", group.key),
        title: format!("Response time against throughput{}", group.of),
        description: "The same points with the load left out: each curve by rising load."
            .to_owned(),
        x: Axis::around_data("throughput (1/s)"),
        y: Axis::from_zero(label),
        series: curves_by(data, &group.curves, Configuration::throughput, response),
    }
}

/// A line a curve, by load.
pub(super) fn curves(
    data: &Observations,
    curves: &[(usize, &Curve)],
    value: impl Fn(&Configuration) -> Option<(Estimate, f64)>,
) -> Vec<Series> {
    curves_by(data, curves, |c| load_of(data, c), value)
}

/// A line a curve: estimates, each with the factor to the unit of its axis.
fn curves_by(
    data: &Observations,
    curves: &[(usize, &Curve)],
    x: impl Fn(&Configuration) -> f64,
    value: impl Fn(&Configuration) -> Option<(Estimate, f64)>,
) -> Vec<Series> {
    let at = |c: &Configuration| {
        let (estimate, factor) = value(c)?;
        Some(point(x(c), &estimate, factor))
    };
    let line = |(color, curve): &(usize, &Curve)| Series {
        name: curve.name.clone(),
        mark: Mark::Line,
        color: *color,
        points: data.along(curve).filter_map(at).collect(),
    };
    curves.iter().map(line).collect()
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
    let rows = factors_of(Table::of("configurations", caption, &data.configurations), data)
        .column("repetitions", "Runs", Unit::Count, |c| exact_f64(c.repetitions.len()))
        .column("throughput_per_s", "Throughput (1/s)", Unit::PerSecond, |c| {
            Cell::estimate_or(c.throughput_estimate().as_ref(), "no run")
        })
        .column("response_time_mean_s", "Mean response (ms)", Unit::Milliseconds, |c| {
            Cell::estimate_or(c.response_estimate().as_ref(), "no request")
        });
    let (first, others): (Vec<_>, Vec<_>) =
        (0..).zip(PERCENTILES).partition(|(_, quantile)| WITH_INTERVAL.contains(quantile));
    let rows = first.into_iter().rev().fold(rows, with_percentile);
    let rows = rows
        .column("throughput_standard_deviation_per_s", "s.d. of a second", Unit::PerSecond, |c| {
            Cell::number_or(c.throughput_deviation_per_s(), "too few seconds")
        })
        .column("response_time_standard_deviation_s", "Std. dev. (ms)", Unit::Milliseconds, |c| {
            Cell::number_or(Some(c.client.standard_deviation_s), "no request")
        });
    let rows = others.into_iter().fold(rows, with_percentile);
    rows.column("miss_rate", "Misses (%)", Unit::Percent, |c| {
        Cell::number_or(c.counts().miss_rate(), "nothing read")
    })
    .column("error_rate", "Errors (%)", Unit::Percent, |c| {
        Cell::number_or(c.counts().error_rate(), "no request")
    })
    .table()
    .folded_if_long()
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
    let rows = Table::of("", caption, chosen);
    let rows = if data.factors.len() > MOST_COLUMNS {
        rows.column("configuration", "Configuration", Unit::Text, |c| data.name_of(c))
    } else {
        factors_of(rows, data)
    };
    let rows =
        if alike { rows } else { rows.column("runs", "Runs", Unit::Count, |c| exact_f64(runs(c))) };
    let rows = rows
        .column("throughput", "Throughput (1/s)", Unit::PerSecond, |c| {
            Cell::estimate_or(c.throughput_estimate().as_ref(), "no run")
        })
        .column("mean", "Mean (ms)", Unit::Milliseconds, |c| {
            Cell::estimate_or(c.response_estimate().as_ref(), "no request")
        })
        .column("p99", "p99 (ms)", Unit::Milliseconds, |c| match c.percentile_estimate(0.99) {
            Ok(estimate) => Cell::Estimate(estimate),
            Err(caveat) => Cell::Empty(caveat.to_string()),
        });
    if data.configurations.iter().all(|c| c.counts().errors == 0) {
        return rows.table();
    }
    let errors = |c: &&Configuration| Cell::number_or(c.counts().error_rate(), "no request");
    rows.column("errors", "Errors (%)", Unit::Percent, errors).table()
}

/// With a column for the levels of each factor.
fn factors_of<'a>(rows: Rows<&'a Configuration>, data: &Observations) -> Rows<&'a Configuration> {
    data.factors.iter().fold(rows, |rows, factor| {
        let level = |c: &&Configuration| c.level(&factor.key).map(|level| level.text.clone());
        rows.column(factor.key.as_str(), short(&factor.key), Unit::Text, |c| {
            level(c).unwrap_or_default()
        })
    })
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
    let mut table = factor_columns(Table::new("within_run", title), data)
        .column("throughput_per_s", "Throughput (1/s)", Unit::PerSecond)
        .column("response_time_mean_s", "Mean response (ms)", Unit::Milliseconds);
    for (key, label) in PERCENTILES.map(of_percentile) {
        table = table.column(key, label, Unit::Milliseconds);
    }
    // Where there is no interval the reason stands in its place.
    let cell = |estimate: &Estimate| match (estimate.interval, estimate.caveats.first()) {
        (None, Some(why)) => Cell::Empty(why.to_string()),
        _ => Cell::Estimate(estimate.clone()),
    };
    for (configuration, run) in &once {
        let mut row = levels(data, configuration);
        row.push(cell(&run.throughput_per_s));
        row.push(run.response_time_mean_s.as_ref().map_or(Cell::Empty("no request".into()), cell));
        row.extend(
            PERCENTILES.map(|p| run.quantile(p).map_or(Cell::Empty("no request".into()), cell)),
        );
        table.push(row);
    }
    Some(table.folded_if_long())
}

/// A percentile of all requests, or why it is refused.
pub(super) fn percentile(distribution: &Distribution, place: usize) -> Cell {
    match distribution.percentile(place) {
        Ok(value) => Cell::Number(value),
        Err(caveat) => Cell::Empty(caveat.to_string()),
    }
}

/// A table with a column for each factor, which [`levels`] fills.
pub(super) fn factor_columns(table: Table, data: &Observations) -> Table {
    data.factors.iter().fold(table, |table, factor| {
        table.column(factor.key.clone(), short(&factor.key), Unit::Text)
    })
}

/// Cells with the levels of all factors.
pub(super) fn levels(data: &Observations, configuration: &Configuration) -> Vec<Cell> {
    let level = |key: &str| configuration.level(key).map_or_else(String::new, |l| l.text.clone());
    data.factors.iter().map(|factor| Cell::Text(level(&factor.key))).collect()
}

fn by_operation(data: &Observations) -> Table {
    let mut table = factor_columns(Table::new("operations", "By operation"), data)
        .column("operation", "Operation", Unit::Text)
        .column("throughput_per_s", "Throughput (1/s)", Unit::PerSecond)
        .column("response_time_mean_s", "Mean response (ms)", Unit::Milliseconds)
        .column("response_time_standard_deviation_s", "Std. dev. (ms)", Unit::Milliseconds)
        .column("response_time_p50_s", "p50 (ms)", Unit::Milliseconds)
        .column("response_time_p99_s", "p99 (ms)", Unit::Milliseconds);
    // With one operation the table of configurations says it all.
    for configuration in data.configurations.iter().filter(|c| c.operations.len() > 1) {
        for (name, distribution) in &configuration.operations {
            let rate = configuration.estimate(|r| Some(r.operations.get(name)?.throughput_per_s));
            let mean = configuration.weighted(|r| {
                let of = r.operations.get(name)?;
                Some((of.response_time_s?, exact_f64(of.answered)))
            });
            let mut row = levels(data, configuration);
            row.push(name.as_str().into());
            row.push(Cell::estimate_or(rate.as_ref(), "no request"));
            row.push(Cell::estimate_or(mean.as_ref(), "no request"));
            row.push(Cell::number_or(Some(distribution.standard_deviation_s), "no request"));
            row.extend([1, PERCENTILES.len() - 1].map(|place| percentile(distribution, place)));
            table.push(row);
        }
    }
    table.folded_if_long()
}

/// Parts of requests: the requests of a sequence, in its order.
fn by_step(data: &Observations) -> Table {
    let mut table = factor_columns(Table::new("steps", "By step of a sequence"), data)
        .column("step", "Step", Unit::Text)
        .column("answered", "Answered", Unit::Count)
        .column("response_time_mean_s", "Mean response (ms)", Unit::Milliseconds)
        .column("response_time_p99_s", "p99 (ms)", Unit::Milliseconds)
        .column("errors", "Errors", Unit::Count);
    for configuration in &data.configurations {
        for (name, counts) in &configuration.steps {
            let distribution = Distribution::of(&counts.response_time);
            let mut row = levels(data, configuration);
            row.push(name.as_str().into());
            row.push(exact_f64(counts.completed).into());
            row.push(Cell::number_or(
                (counts.completed > 0).then_some(distribution.mean_s),
                "no request",
            ));
            row.push(percentile(&distribution, PERCENTILES.len() - 1));
            row.push(exact_f64(counts.errors.values().sum::<u64>()).into());
            table.push(row);
        }
    }
    table.folded_if_long()
}

/// What failed, by operation and kind: a status, a timeout, a broken connection.
fn errors(data: &Observations) -> Table {
    let mut table = factor_columns(Table::new("errors", "What failed, by kind"), data)
        .column("operation", "Operation", Unit::Text)
        .column("kind", "Kind", Unit::Text)
        .column("errors", "Requests", Unit::Count)
        .column("share_of_requests", "Of all requests (%)", Unit::Percent)
        .column("statuses_whole_load", "Status codes, of the whole load", Unit::Text);
    for configuration in &data.configurations {
        let statuses = configuration.failed_statuses();
        let mut kinds: BTreeMap<&(String, String), u64> = BTreeMap::new();
        for (kind, count) in configuration.repetitions.iter().flat_map(|r| &r.errors) {
            *kinds.entry(kind).or_default() += count;
        }
        let counts = configuration.counts();
        for ((operation, kind), count) in kinds {
            let mut row = levels(data, configuration);
            let share = kendall_units::ratio(count, counts.completed + counts.errors);
            row.extend([
                operation.as_str().into(),
                kind.as_str().into(),
                exact_f64(count).into(),
                Cell::number_or(share, "no request"),
                codes_of(kind, &statuses),
            ]);
            table.push(row);
        }
    }
    table.folded_if_long()
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
