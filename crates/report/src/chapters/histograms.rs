//! Histograms of the response time in steps of 0.1 ms, clients and tier side by side.

use crate::document::{Block, Section, Table, Unit};
use crate::number;
use crate::plot::{Axis, Mark, Plot, Point, Series};
use crate::prepared::Prepared;
use kendall_observations::{Configuration, Distribution, Observations};

use super::load::with_levels;
use super::saturation::interesting;

/// Steps drawn at most; more are drawn together.
const MOST_STEPS: u64 = 240;

/// Pairs drawn at most; the table has every configuration.
const MOST_PAIRS: usize = 24;

pub(crate) fn chapter(data: &Prepared<'_>) -> Option<Section> {
    let shown = shown(data);
    if shown.is_empty() {
        return None;
    }
    let mut section = Section::new("histograms", "Histograms of the response time");
    section.text(
        "All requests of all repetitions, in steps of 0.1 ms (drawn coarser where the range is \
         wide), as shares of their number. Both axes of a pair are the same. A drawing ends \
         where 99 % of the clients' requests had been answered; the share beyond is stated.",
    );
    let mut table = Table::new("histograms", "The histograms in steps of 0.1 ms")
        .column("configuration", "Configuration", Unit::Text)
        .column("seen_from", "Seen from", Unit::Text)
        .column("from_s", "From (ms)", Unit::Milliseconds)
        .column("requests", "Requests", Unit::Count)
        .folded();
    for (name, configuration) in shown.iter().take(MOST_PAIRS) {
        section.blocks.push(drawn(name, configuration));
    }
    let others: Vec<&Configuration> = data
        .configurations
        .iter()
        .filter(|c| c.client.count > 0 && shown.iter().all(|(_, known)| known.number != c.number))
        .collect();
    for (name, configuration) in &shown {
        of_both(&mut table, name, configuration);
    }
    for configuration in &others {
        of_both(&mut table, &data.name_of(configuration), configuration);
    }
    let drawn_of_others = others.iter().take(MOST_PAIRS).map(|c| drawn(&data.name_of(c), c));
    section.fold("Every other configuration", drawn_of_others.collect());
    let left_out = shown.len().saturating_sub(MOST_PAIRS) + others.len().saturating_sub(MOST_PAIRS);
    if left_out > 0 {
        section.text(format!(
            "{} not drawn; the table holds all.",
            number::count(left_out, "configuration")
        ));
    }
    section.table(table);
    section.table(within(data));
    Some(section)
}

/// Times in steps of 0.1 ms: those that targets are often set at, and a few about them.
const WITHIN: [(u64, &str); 9] = [
    (10, "1"),
    (20, "2"),
    (50, "5"),
    (100, "10"),
    (200, "20"),
    (250, "25"),
    (500, "50"),
    (1_000, "100"),
    (5_000, "500"),
];

/// The share of requests answered in less than some times, by operation.
fn within(data: &Observations) -> Table {
    let rows = data.configurations.iter().filter(|c| c.client.count > 0).flat_map(|c| {
        let several = c.operations.len() > 1;
        let each = c.operations.iter().filter(move |_| several);
        let each = each.map(move |(name, distribution)| (c, name.as_str(), distribution));
        std::iter::once((c, "all", &c.client)).chain(each)
    });
    let title = "Share of requests answered in less than …";
    let rows = with_levels("within", title, data, rows, |(c, ..)| c).column(
        "operation",
        "Operation",
        Unit::Text,
        |(_, name, _)| *name,
    );
    let rows = WITHIN.into_iter().fold(rows, |rows, (steps, milliseconds)| {
        let key = format!("share_below_{milliseconds}ms");
        rows.column(key, format!("{milliseconds} ms (%)"), Unit::Percent, |(.., distribution)| {
            (distribution.share_below(steps), "none")
        })
    });
    rows.table().folded_if_long()
}

/// The maximum of each curve; without curves, each configuration.
fn shown(data: &Observations) -> Vec<(String, &Configuration)> {
    let mut shown: Vec<(String, &Configuration)> = if data.curves.is_empty() {
        data.configurations.iter().map(|c| (data.name_of(c), c)).collect()
    } else {
        interesting(data).into_iter().map(|(_, c)| (data.name_of(c), c)).collect()
    };
    shown.retain(|(_, c)| c.client.count > 0);
    shown
}

/// The histogram of the clients, beside that of the tier where there is one.
fn drawn(name: &str, configuration: &Configuration) -> Block {
    let place = configuration.number;
    let last = configuration.client.step_of_p99().max(4);
    let together = last / MOST_STEPS + 1;
    let client = bins(&configuration.client, last, together);
    let tier = configuration.tier.as_ref().map(|tier| bins(tier, last, together));
    let most = client.iter().chain(tier.iter().flatten()).map(|p| p.y).fold(0.0, f64::max);
    let plot = |seen: &str, distribution: &Distribution, mut points: Vec<Point>, color| {
        // A point without height at the top makes both axes of the pair alike.
        let invisible = Series::new(String::new(), Mark::Dashed, color, [Point::new(0.0, most)]);
        points.push(Point::new(kendall_units::exact_f64(last + 1) / 10.0, 0.0));
        let beyond = distribution.shares(last).1;
        let series = Series::new(seen, Mark::Steps, color, points);
        Plot {
            id: format!("plot-histogram-{place}-{color}"),
            title: format!("{name}, at the {seen}"),
            description: format!(
                "Mean {}, squared coefficient of variation {} (1 for exponential times){}; {} \
                 beyond the drawing.",
                number::time(distribution.mean_s),
                number::significant(distribution.scv().unwrap_or(f64::NAN), 2),
                percentiles(distribution),
                number::percent(beyond)
            ),
            x: Axis::from_zero("response time (ms)"),
            y: Axis::from_zero("share of requests (%)"),
            series: vec![series, invisible],
        }
    };
    let first = plot("clients", &configuration.client, client, 0);
    match (&configuration.tier, tier) {
        (Some(distribution), Some(points)) => {
            let second = plot("tier", distribution, points, 1);
            Block::PlotPair(Box::new((first, second)))
        }
        _ => Block::Plot(first),
    }
}

/// Median and 99th percentile in words, where there are requests enough for them.
fn percentiles(distribution: &Distribution) -> String {
    let (median, p99) = (distribution.percentile(1), distribution.percentile(5));
    let mut words =
        median.map_or_else(|_| String::new(), |s| format!(", median {}", number::time(s)));
    match p99 {
        Ok(seconds) => words.push_str(&format!(", 99th percentile {}", number::time(seconds))),
        Err(why) => words.push_str(&format!(", no 99th percentile ({why})")),
    }
    words
}

/// Rows of the clients' histogram and of the tier's.
fn of_both(table: &mut Table, name: &str, configuration: &Configuration) {
    rows(table, name, "clients", &configuration.client);
    if let Some(tier) = &configuration.tier {
        rows(table, name, "tier", tier);
    }
}

/// Shares in percent of `together` steps each.
fn bins(distribution: &Distribution, last: u64, together: u64) -> Vec<Point> {
    let (shares, _) = distribution.shares(last);
    let width = usize::try_from(together).unwrap_or(1);
    shares
        .chunks(width)
        .map(|chunk| {
            let sum: f64 = chunk.iter().map(|(_, share)| share).sum();
            Point::new(kendall_units::exact_f64(chunk[0].0) / 10.0, 100.0 * sum)
        })
        .collect()
}

fn rows(table: &mut Table, name: &str, seen: &str, distribution: &Distribution) {
    for &(step, count) in &distribution.steps {
        table.push(vec![
            name.into(),
            seen.into(),
            (kendall_units::exact_f64(step) / 10_000.0).into(),
            kendall_units::exact_f64(count).into(),
        ]);
    }
}
