//! Response time against each numeric factor that is not the load, with fitted lines and powers.

use kendall_fit::trend::{Line, Power, line, power};
use kendall_protocols::snapshot::stage;
use kendall_stats::estimate::Estimate;

use crate::document::{Cell, Section, Table, Unit};
use crate::number;
use crate::plot::{Axis, Mark, Plot, Point, Series};
use crate::prepared::Prepared;
use kendall_observations::{Configuration, Factor, Observations, PERCENTILES, short};

use super::time_axis;

const MOST_SERIES: usize = 6;

/// Groups that get sentences at most; the table holds all.
const MOST_TOLD: usize = 2;

/// A response variable: its name, and how to get it from a configuration, in seconds.
type Part = (&'static str, fn(&Configuration) -> Option<f64>);

const PARTS: [Part; 3] = [
    ("response time at the clients", |c| Some(c.point.client.response_time_s)),
    ("service time in the tier", |c| Some(c.point.first_tier()?.service_time_s)),
    ("time outside the tier", |c| {
        let tier = c.point.first_tier()?;
        Some((c.point.client.response_time_s - tier.view.response_time_s).max(0.0))
    }),
];

pub(crate) fn chapter(data: &Prepared<'_>) -> Option<Section> {
    let load = data.load.as_ref().map(|load| load.key.as_str());
    let numeric = |factor: &&Factor| {
        Some(factor.key.as_str()) != load
            && factor.levels.len() > 2
            && factor.levels.iter().all(|level| level.number.is_some())
    };
    let factors: Vec<&Factor> = data.factors.iter().filter(numeric).collect();
    if factors.is_empty() {
        return None;
    }
    let mut section = Section::new("factors", "Response time against each factor");
    section.text(
        "Each group holds the other factors fixed. A straight line and a power are fitted to the \
         means by least squares, the power in logarithms; the exponent says how fast a time grows: \
         1 means in proportion, 3 with the cube.",
    );
    let mut fits = table(data);
    for factor in factors {
        let groups = groups(data, factor);
        section.plot(plot(factor, &groups));
        if data.load.is_none() {
            for plot in without_load(factor, &groups) {
                section.plot(plot);
            }
        }
        for group in &groups {
            for part in PARTS {
                let sentence = fit(&mut fits, data, factor, group, part);
                if let Some(sentence) = sentence.filter(|_| groups.len() <= MOST_TOLD) {
                    section.text(sentence);
                }
            }
        }
    }
    section.table(fits.folded_if_long());
    Some(section)
}

/// Configurations that differ in one factor only, by rising level.
struct Group<'a> {
    name: String,
    members: Vec<(f64, &'a Configuration)>,
}

fn groups<'a>(data: &'a Observations, factor: &Factor) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for configuration in &data.configurations {
        let others: Vec<String> = data
            .factors
            .iter()
            .filter(|other| other.key != factor.key)
            .filter_map(|other| configuration.level(&other.key))
            .map(|level| format!("{} {}", short(&level.factor), level.text))
            .collect();
        let Some(x) = configuration.level(&factor.key).and_then(|level| level.number) else {
            continue;
        };
        let name = others.join(", ");
        match groups.iter_mut().find(|group| group.name == name) {
            Some(group) => group.members.push((x, configuration)),
            None => groups.push(Group { name, members: vec![(x, configuration)] }),
        }
    }
    groups.retain(|group| group.members.len() > 2);
    for group in &mut groups {
        group.members.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    groups
}

fn plot(factor: &Factor, groups: &[Group<'_>]) -> Plot {
    let all = || groups.iter().flat_map(|group| &group.members);
    let (label, scale) =
        time_axis("mean response time", all().map(|(_, c)| c.point.client.response_time_s));
    let mut series = lines(groups, &|c| Some((c.response_estimate()?, scale)));
    if let [group] = groups {
        series.extend(parts(group, scale));
        series.extend(fitted(group, scale));
    }
    let left_out = groups.len().saturating_sub(MOST_SERIES);
    let left_out =
        if left_out > 0 { format!(" Groups not drawn: {left_out}.") } else { String::new() };
    Plot {
        id: format!("plot-factor-{}", factor.key.replace('.', "-")),
        title: format!("Response time against {}", short(&factor.key)),
        description: format!("Mean response time at the clients.{left_out}"),
        x: Axis::from_zero(short(&factor.key)),
        y: Axis::from_zero(label),
        series,
    }
}

/// What load curves show along their load, along a factor where no load is varied: throughput, percentiles
/// of each group, and what the first tier says of itself.
fn without_load(factor: &Factor, groups: &[Group<'_>]) -> Vec<Plot> {
    const TIMES: [(&str, &str, &str); 3] = [
        ("service", "Service time in the tier", stage::SERVICE_TIME),
        ("waiting", "Waiting time in the tier's queue", stage::WAITING_TIME),
        ("backend", "Time for backends", stage::BACKEND_TIME),
    ];
    let all = || groups.iter().flat_map(|group| &group.members).map(|(_, c)| *c);
    let mut plots =
        vec![by_group(factor, groups, ("throughput", "Throughput"), "throughput (1/s)", &|c| {
            Some((c.throughput_estimate()?, 1.0))
        })];
    plots.extend(
        groups.iter().take(MOST_SERIES).enumerate().map(|(n, g)| percentiles(factor, g, n)),
    );
    for (id, title, stage) in TIMES {
        let times = all().filter_map(|c| c.point.first_tier()?.time_s(stage));
        let (label, scale) = time_axis(&title.to_lowercase(), times);
        plots.push(by_group(factor, groups, (id, title), &label, &|c| {
            Some((c.tier_time(stage)?, scale))
        }));
    }
    plots
}

/// What is drawn of a configuration, and what it is multiplied by.
type Drawn<'a> = &'a dyn Fn(&Configuration) -> Option<(Estimate, f64)>;

/// A line a group, of as many groups as a plot carries.
fn lines(groups: &[Group<'_>], value: Drawn<'_>) -> Vec<Series> {
    let series = groups.iter().take(MOST_SERIES).enumerate().map(|(color, group)| {
        Series::new(
            if group.name.is_empty() { "measured".to_owned() } else { group.name.clone() },
            Mark::Line,
            color,
            group.members.iter().filter_map(|(x, c)| {
                let (estimate, scale) = value(c)?;
                Some(super::point(*x, &estimate, scale))
            }),
        )
    });
    series.collect()
}

/// What a configuration shows, a line a group.
fn by_group(
    factor: &Factor,
    groups: &[Group<'_>],
    (id, title): (&str, &str),
    label: &str,
    value: Drawn<'_>,
) -> Plot {
    Plot {
        id: format!("plot-factor-{id}-{}", factor.key.replace('.', "-")),
        title: format!("{title} against {}", short(&factor.key)),
        description: "Of all runs together, each group with the other factors fixed.".to_owned(),
        x: Axis::from_zero(short(&factor.key)),
        y: Axis::from_zero(label),
        series: lines(groups, value),
    }
}

/// Five percentiles of the clients' response time, of one group.
fn percentiles(factor: &Factor, group: &Group<'_>, number: usize) -> Plot {
    const SHOWN: [(usize, &str); 5] = [(0, "25"), (1, "50"), (2, "75"), (3, "90"), (5, "99")];
    let times = group.members.iter().filter_map(|(_, c)| c.client.percentiles_s.last().copied());
    let (label, scale) = time_axis("response time", times);
    let series = SHOWN.iter().enumerate().map(|(color, (place, percent))| Series {
        name: format!("{percent}th percentile"),
        mark: Mark::Line,
        color,
        points: group
            .members
            .iter()
            // Where a configuration has too few requests for it, the line breaks.
            .map(|(x, c)| {
                let estimate = c.percentile_estimate(PERCENTILES[*place]).ok();
                estimate.map_or(Point::new(*x, f64::NAN), |e| super::point(*x, &e, scale))
            })
            .collect(),
    });
    let of = if group.name.is_empty() { String::new() } else { format!(": {}", group.name) };
    Plot {
        id: format!("plot-factor-percentiles-{}-{number}", factor.key.replace('.', "-")),
        title: format!("Percentiles against {}{of}", short(&factor.key)),
        description: "Of all requests of all runs, at the clients.".to_owned(),
        x: Axis::from_zero(short(&factor.key)),
        y: Axis::from_zero(label),
        series: series.collect(),
    }
}

/// The service time and the time outside the tier, where there is room to show them.
fn parts(group: &Group<'_>, scale: f64) -> Vec<Series> {
    let series = PARTS.iter().enumerate().skip(1).map(|(color, (name, value))| {
        Series::new(
            *name,
            Mark::Line,
            color,
            group.members.iter().filter_map(|(x, c)| Some(Point::new(*x, value(c)? * scale))),
        )
    });
    series.filter(|series| !series.points.is_empty()).collect()
}

/// What fits better, drawn through the measured range.
fn fitted(group: &Group<'_>, scale: f64) -> Option<Series> {
    let points = points(group, PARTS[0]);
    let found = better(&points, 0.95)?;
    let (low, high) = (points.first()?.0, points.last()?.0);
    let name = match &found {
        Better::Line(_) => "straight line".to_owned(),
        Better::Power(power) => {
            format!("power {}", number::significant(power.exponent.center, 3))
        }
    };
    let places = (0..=40_u32).map(|step| low + (high - low) * f64::from(step) / 40.0);
    Some(Series::new(name, Mark::Dashed, 3, places.map(|x| Point::new(x, found.at(x) * scale))))
}

fn points(group: &Group<'_>, (_, value): Part) -> Vec<(f64, f64)> {
    group.members.iter().filter_map(|(x, c)| Some((*x, value(c)?))).collect()
}

enum Better {
    Line(Line),
    Power(Power),
}

impl Better {
    fn at(&self, x: f64) -> f64 {
        match self {
            Self::Line(line) => line.at(x),
            Self::Power(power) => power.at(x),
        }
    }
}

/// The fit that leaves less unexplained, both judged in the unit of the measurement.
fn better(points: &[(f64, f64)], confidence: f64) -> Option<Better> {
    let left =
        |at: &dyn Fn(f64) -> f64| -> f64 { points.iter().map(|(x, y)| (y - at(*x)).powi(2)).sum() };
    let line = line(points, confidence)?;
    match power(points, confidence) {
        Some(power) if left(&|x| power.at(x)) < left(&|x| line.at(x)) => Some(Better::Power(power)),
        _ => Some(Better::Line(line)),
    }
}

fn table(data: &Observations) -> Table {
    let level = number::percent(data.study.confidence);
    Table::new("trends", format!("Fitted lines and powers, with {level} intervals"))
        .column("factor", "Factor", Unit::Text)
        .column("group", "Other factors", Unit::Text)
        .column("value", "Time", Unit::Text)
        .column("points", "Points", Unit::Count)
        .column("intercept_s", "Line: at 0 (ms)", Unit::Milliseconds)
        .column("slope_s", "by one unit (ms)", Unit::Milliseconds)
        .column("line_r_squared", "R²", Unit::Plain(4))
        .column("exponent", "Power: exponent", Unit::Plain(3))
        .column("power_r_squared", "R² (ln)", Unit::Plain(4))
}

fn fit(
    table: &mut Table,
    data: &Observations,
    factor: &Factor,
    group: &Group<'_>,
    part: Part,
) -> Option<String> {
    let points = points(group, part);
    let confidence = data.study.confidence;
    let straight = line(&points, confidence)?;
    let curved = power(&points, confidence);
    table.push(vec![
        factor.key.as_str().into(),
        group.name.as_str().into(),
        part.0.into(),
        kendall_units::exact_f64(points.len()).into(),
        Cell::Estimate(straight.intercept.clone()),
        Cell::Estimate(straight.slope.clone()),
        Cell::number_or(straight.r_squared, "constant"),
        Cell::estimate_or(curved.as_ref().map(|power| &power.exponent), "not all positive"),
        Cell::number_or(curved.as_ref().and_then(|power| power.r_squared), "constant"),
    ]);
    let of = if group.name.is_empty() { String::new() } else { format!(" ({})", group.name) };
    let name = short(&factor.key);
    Some(match better(&points, confidence)? {
        Better::Line(line) => format!(
            "The {}{of} follows a straight line best: {} at {name} 0, and {} for each unit more.",
            part.0,
            number::time(line.intercept.center),
            number::time(line.slope.center)
        ),
        Better::Power(power) => format!(
            "The {}{of} grows with {name} to the power {}.",
            part.0,
            number::significant(power.exponent.center, 3)
        ),
    })
}
