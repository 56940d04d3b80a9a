//! What an adaptive design found: maximum throughput and saturation point of each line, how sure,
//! and in how many runs.

use kendall_stats::estimate::{Caveat, Estimate};
use kendall_store::{SearchFound, SearchLine};
use kendall_units::exact_f64;

use crate::document::{Cell, Level, Section, Table, Unit};
use crate::number;
use crate::plot::{Axis, Mark, Plot, Point, Series};
use crate::prepared::Prepared;
use kendall_observations::{Configuration, Observations, name_of_levels, short};

use super::point;

/// Lines with a plot at most; the table holds all.
const MOST_PLOTTED: usize = 6;

pub(crate) fn chapter(data: &Prepared<'_>) -> Option<Section> {
    let first = data.searches.first()?;
    let factor = &short(&first.factor);
    let mut section = Section::new("adaptive", "Maximum found by the adaptive search");
    section.text(format!(
        "The design chose the levels of {factor} itself: it doubled them until throughput stopped \
         rising, searched around the highest, halved the gap around the knee, and then made fresh \
         runs at the lowest level and at the one it had chosen. Only these fresh runs make the \
         estimates below: the best of many noisy runs is too good to be true. It searches for one \
         maximum, and does not notice a second."
    ));
    section.text(cost(&data.searches));
    section.list(data.searches.iter().map(|line| sentence(line, factor)).collect());
    for line in data.searches.iter().filter(|line| line.found.is_none()) {
        section.note(
            Level::Doubt,
            format!("{}: nothing was found, since {}.", name(line), line.without),
        );
    }
    section.table(table(&data.searches, factor));
    for (place, line) in data.searches.iter().enumerate().take(MOST_PLOTTED) {
        section.plot(plot(data, place, line, factor));
    }
    Some(section)
}

/// The finding in a sentence a line, for the summary.
pub(crate) fn summary(data: &Observations) -> Vec<String> {
    let found: Vec<&SearchLine> =
        data.searches.iter().filter(|line| line.found.is_some()).collect();
    if found.is_empty() {
        return Vec::new();
    }
    let mut sentences: Vec<String> =
        found.iter().take(4).map(|line| sentence(line, &short(&line.factor))).collect();
    if found.len() > 4 {
        sentences.push(format!("{} more are in the chapter on the search.", found.len() - 4));
    }
    sentences.push(cost(&data.searches));
    sentences
}

/// What was found, a clause a line, the highest maximum first; `None` where nothing was. Figures of
/// the search and caveats are in the chapter.
pub(crate) fn answer(data: &Observations) -> Option<String> {
    const MOST: usize = 4;
    let with_found = data.searches.iter().filter_map(|line| Some((line, line.found.as_ref()?)));
    let mut found: Vec<(&SearchLine, &SearchFound)> = with_found.collect();
    let highest = |found: &SearchFound| found.maximum_throughput_per_s.center;
    found.sort_by(|a, b| highest(b.1).total_cmp(&highest(a.1)));
    let clauses: Vec<String> =
        found.iter().take(MOST).map(|(line, found)| clause(data, line, found)).collect();
    let more = match found.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let doubted = found
        .iter()
        .filter(|(_, found)| !found.maximum_throughput_per_s.caveats.is_empty())
        .count();
    let caveats = match (doubted, found.len()) {
        (0, _) => String::new(),
        (1, 1) => " It has caveats, which the chapter on the search names.".to_owned(),
        (some, all) => {
            format!(" {some} of {all} have caveats, which the chapter on the search names.")
        }
    };
    (!clauses.is_empty())
        .then(|| format!("{}{more}.{caveats}", super::capitalized(&clauses.join("; "))))
}

/// `8 workers: at most 7550/s (7500/s to 7600/s), at 54 clients; 95 % of it from between 30 and 54 on`.
fn clause(data: &Observations, line: &SearchLine, found: &SearchFound) -> String {
    let unit = data.load.as_ref().map_or_else(|| short(&line.factor), |load| load.unit.clone());
    let maximum = &found.maximum_throughput_per_s;
    format!(
        "{}: {} {}, at {} {unit}, 95 % of it {}",
        name(line),
        bound(maximum),
        number::with_interval(maximum, number::rate),
        number::plain(found.best),
        match found.knee_between {
            (low, high) if low < high => {
                format!("from a load between {} and {} on", number::plain(low), number::plain(high))
            }
            (low, _) => format!("from {} on, or less", number::plain(low)),
        }
    )
}

/// What the highest throughput is: a search that ended at its limit knows no bound.
fn bound(maximum: &Estimate) -> &'static str {
    let edge = |caveat: &Caveat| matches!(caveat, Caveat::SearchLimit { .. });
    if maximum.caveats.iter().any(edge) { "highest measured" } else { "at most" }
}

fn name(line: &SearchLine) -> String {
    name_of_levels(&line.levels.iter().collect::<Vec<_>>())
}

/// Runs made, beside what a sweep takes.
fn cost(lines: &[SearchLine]) -> String {
    let runs: u64 = lines.iter().map(|line| line.runs).sum();
    let sweep: u64 = lines.iter().map(|line| line.sweep_runs).sum();
    let count = |number: u64| number::count(usize::try_from(number).unwrap_or(0), "run");
    let fewer = kendall_units::ratio(sweep, runs).map_or_else(String::new, |ratio| {
        format!(": {} times as many", number::significant(ratio, 2))
    });
    let grid = lines.first().map_or(0, |line| line.grid);
    let each = lines.first().map_or(0, |line| line.sweep_runs / line.grid.max(1));
    format!(
        "The search took {}. A sweep over all {grid} levels with {each} repetitions of each takes \
         {}{fewer}.",
        count(runs),
        count(sweep)
    )
}

fn sentence(line: &SearchLine, factor: &str) -> String {
    let Some(found) = &line.found else {
        return format!("{}: nothing was found.", name(line));
    };
    let SearchFound { maximum_throughput_per_s: maximum, saturation_point, .. } = found;
    let how_sure = match (maximum.interval, maximum.relative_half_width()) {
        (Some(interval), Some(width)) => format!(
            " ({} interval {} to {}, ±{})",
            number::percent(interval.confidence),
            number::rate(interval.low),
            number::rate(interval.high),
            number::percent(width)
        ),
        _ => " (no interval: too few runs confirm it)".to_owned(),
    };
    let plain = |value| number::significant(value, 3);
    let saturation = match saturation_point.interval {
        Some(_) => number::with_interval(saturation_point, plain),
        None => plain(saturation_point.center),
    };
    let (low, high) = found.best_between;
    let where_else = if low < high {
        format!(
            ", and everything from {} to {} measured as high within that interval",
            number::plain(low),
            number::plain(high)
        )
    } else {
        String::new()
    };
    let fitted = found
        .fit
        .as_ref()
        .map_or_else(String::new, |fit| format!(" The fitted shape: {}.", fit.in_words()));
    format!(
        "{}: {} {}{how_sure}, at {} {factor}{where_else}. Saturation point N* = {} {factor}; \
         95 % of the maximum is first reached {}.{fitted} {} runs.{}",
        name(line),
        bound(maximum),
        number::rate(maximum.center),
        number::plain(found.best),
        saturation,
        knee_in_words(found.knee_between),
        line.runs,
        doubts(maximum)
    )
}

fn knee_in_words((low, high): (f64, f64)) -> String {
    if low < high {
        format!("between {} and {}", number::plain(low), number::plain(high))
    } else {
        format!("at {} or below", number::plain(low))
    }
}

fn doubts(estimate: &Estimate) -> String {
    let doubts: Vec<String> =
        estimate.caveats.iter().map(|caveat| format!(" Caveat: {caveat}.")).collect();
    doubts.concat()
}

fn table(lines: &[SearchLine], factor: &str) -> Table {
    let mut table = Table::new("adaptive", "Maximum throughput and knee, as the search found them")
        .column("line", "Curve", Unit::Text)
        .column("maximum_throughput_per_s", "Highest throughput (1/s)", Unit::PerSecond)
        .column("best", format!("at {factor}"), Unit::Level)
        .column("best_low", "or from", Unit::Level)
        .column("best_high", "to", Unit::Level)
        .column("saturation_point", "N*", Unit::Plain(3))
        .column("knee_low", "Knee above", Unit::Level)
        .column("knee_high", "and up to", Unit::Level)
        .column("runs", "Runs", Unit::Count)
        .column("sweep_runs", "Runs of a sweep", Unit::Count);
    for line in lines {
        let found = line.found.as_ref();
        let level = |value: fn(&SearchFound) -> f64| Cell::number_or(found.map(value), "not found");
        let estimate =
            |value: fn(&SearchFound) -> &Estimate| Cell::estimate_or(found.map(value), "not found");
        table.push(vec![
            name(line).into(),
            estimate(|found| &found.maximum_throughput_per_s),
            level(|found| found.best),
            level(|found| found.best_between.0),
            level(|found| found.best_between.1),
            estimate(|found| &found.saturation_point),
            level(|found| found.knee_between.0),
            level(|found| found.knee_between.1),
            exact_f64(usize::try_from(line.runs).unwrap_or(usize::MAX)).into(),
            exact_f64(usize::try_from(line.sweep_runs).unwrap_or(usize::MAX)).into(),
        ]);
    }
    table
}

/// What was measured along a line, with the two asymptotes that cross at N*.
fn plot(data: &Observations, place: usize, line: &SearchLine, factor: &str) -> Plot {
    let on_line = |configuration: &&Configuration| {
        line.levels
            .iter()
            .all(|level| configuration.level(&level.factor).is_none_or(|l| l.text == level.text))
    };
    let mut points: Vec<Point> = data
        .configurations
        .iter()
        .filter(on_line)
        .filter_map(|c| Some(point(c.level(&line.factor)?.number?, &c.throughput_estimate()?, 1.0)))
        .collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    let highest = points.last().map_or(0.0, |point| point.x);
    let mut all = vec![Series::new("measured", Mark::Line, 0, points)];
    if let Some(found) = &line.found {
        let (maximum, at) = (found.maximum_throughput_per_s.center, found.saturation_point.center);
        all.push(Series::new(
            "asymptotes: light load, and the maximum",
            Mark::Dashed,
            1,
            vec![
                Point::new(0.0, 0.0),
                Point::new(at, maximum),
                Point::new(highest.max(at), maximum),
            ],
        ));
    }
    Plot {
        id: format!("plot-adaptive-{place}"),
        title: format!("What the search measured: {}", name(line)),
        description: format!(
            "Every level of {factor} that was run. The dashed lines cross at N*: the one through \
             the origin is what the lowest level gives without any waiting, the level one the \
             maximum."
        ),
        x: Axis::from_zero(factor),
        y: Axis::from_zero("throughput (1/s)"),
        series: all,
    }
}
