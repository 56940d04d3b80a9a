//! Chapters about the load: how it arrives, by class and stage, durations over time, and the number
//! of requests in each tier.

use kendall_fit::model::{CONFIDENCE, NORMAL};
use kendall_fit::open::{ClassNetwork, Network, TierMeans};
use kendall_fit::score::Errors;
use kendall_report::document::{Cell, Level, Section, Table, Unit};
use kendall_report::plot::{Axis, Cell as HeatCell, Mark, Plot, Point, Series, density};
use kendall_stats::estimate::{Estimate, Interval};
use kendall_units::exact_f64;

use super::{percent, seconds, thinned};
use crate::analysis::Analysis;
use crate::arrivals::{Arrivals, arrivals};
use crate::bins::heat;
use crate::classes::{ClassPoint, Classes, classes, stages};
use crate::fetch::{Observed, TierSeries};
use crate::scaling::{points, usl};
use crate::system::System;

/// Steps of a drawn curve.
const CURVE: u32 = 60;

/// Columns and bins of a heat map.
const MOST_COLUMNS: usize = 120;
const MOST_CELLS: usize = 40;

/// Columns of a table of durations over time.
const MOST_BINS: usize = 9;

const MOST_ROWS: usize = 48;

/// Arrivals: index of dispersion, hour of the day, distribution of rates.
pub(super) fn arriving(system: &System, observed: &Observed) -> Section {
    let mut section = Section::new("arrivals", "How requests arrive");
    let found: Vec<(usize, Arrivals)> = (0..system.tiers.len())
        .filter_map(|index| Some((index, arrivals(system, observed, index)?)))
        .collect();
    section.text(
        "The index of dispersion is the variance of counts over their mean: 1 for a Poisson \
         process, more if requests come in bursts. It is taken from second differences of \
         neighboring counts, so that a load that rises or falls is not taken for bursts. Counters \
         say nothing about gaps between single requests, nor about times shorter than a scrape.",
    );
    let mut table = Table::new("dispersion", "Index of dispersion of counts, by time scale")
        .column("tier", "Tier", Unit::Text)
        .column("over_s", "Counted over (s)", Unit::Plain(3))
        .column("index", "Index of dispersion", Unit::Plain(3))
        .column("triples", "Triples of counts", Unit::Count)
        .column("verdict", "Verdict", Unit::Text);
    for (index, arrivals) in &found {
        for scale in &arrivals.dispersion {
            table.push(vec![
                system.tiers[*index].name.clone().into(),
                scale.over_s.into(),
                Cell::Estimate(scale.index.clone()),
                exact_f64(scale.triples as u64).into(),
                scale.verdict().into(),
            ]);
        }
    }
    section.table(table);
    for (index, arrivals) in &found {
        if let Some(why) = &arrivals.refused {
            let name = &system.tiers[*index].name;
            section.note(Level::Doubt, format!("No index of dispersion of `{name}`: {why}."));
        }
    }
    hours(&mut section, system, &found);
    section.plot(Plot {
        id: "rates".to_owned(),
        title: "Histogram of arrival rates".to_owned(),
        description: "Share of the time by arrival rate of each tier.".to_owned(),
        x: Axis::from_zero("Arrival rate (1/s)"),
        y: Axis::from_zero("Share of the time (%)"),
        series: found
            .iter()
            .map(|(index, arrivals)| Series {
                name: system.tiers[*index].name.clone(),
                mark: Mark::Steps,
                color: *index,
                points: arrivals
                    .distribution
                    .iter()
                    .map(|(rate, share)| Point::new(*rate, share * 100.0))
                    .collect(),
            })
            .collect(),
    });
    section
}

fn hours(section: &mut Section, system: &System, found: &[(usize, Arrivals)]) {
    let Some((_, entry)) = found.iter().find(|(index, _)| *index == system.entry) else { return };
    if entry.hours.is_empty() {
        return;
    }
    let caption = if system.day_s == 86_400 {
        "Load by hour of the day".to_owned()
    } else {
        format!(
            "Load by hour of a day of {}: time was compressed",
            seconds(exact_f64(system.day_s))
        )
    };
    let mut table = Table::new("hours", caption)
        .column("hour", "Hour", Unit::Count)
        .column("mean_per_s", "Mean (1/s)", Unit::PerSecond)
        .column("low_per_s", "Lowest day (1/s)", Unit::PerSecond)
        .column("high_per_s", "Highest day (1/s)", Unit::PerSecond)
        .column("of_mean", "Times the mean", Unit::Plain(3))
        .column("days", "Days", Unit::Count);
    for hour in &entry.hours {
        table.push(vec![
            exact_f64(hour.hour).into(),
            hour.mean_per_s.into(),
            hour.low_per_s.into(),
            hour.high_per_s.into(),
            (hour.mean_per_s / entry.mean_per_s).into(),
            exact_f64(hour.days as u64).into(),
        ]);
    }
    section.table(table);
}

/// Classes and stages of each tier.
pub(super) fn by_class(system: &System, observed: &Observed, analysis: &Analysis) -> Section {
    let mut section = Section::new("classes", "By operation and by stage");
    let found: Vec<(usize, Classes)> = (0..system.tiers.len())
        .filter_map(|index| Some((index, classes(system, observed, analysis, index)?)))
        .collect();
    let mut table = Table::new("classes", "Classes of requests over the used windows")
        .column("tier", "Tier", Unit::Text)
        .column("class", "Class", Unit::Text)
        .column("share", "Share (%)", Unit::Percent)
        .column("throughput_per_s", "Throughput (1/s)", Unit::PerSecond)
        .column("highest_per_s", "Highest window (1/s)", Unit::PerSecond)
        .column("response_time_s", "Response time (ms)", Unit::Milliseconds)
        .column("demand_s", "Busy for (ms)", Unit::Milliseconds);
    for (index, classes) in &found {
        for (rank, class) in classes.classes.iter().enumerate() {
            let demand = match &classes.demands {
                Ok(demands) => Cell::estimate_or(demands.get(rank), "too rare"),
                Err(_) => Cell::Empty("not told apart".to_owned()),
            };
            table.push(vec![
                system.tiers[*index].name.clone().into(),
                class.name.clone().into(),
                class.share.into(),
                class.throughput_per_s.into(),
                class.highest_per_s.into(),
                Cell::number_or(class.response_time_s, "no query gives it"),
                demand,
            ]);
        }
    }
    section.table(table);
    for (index, classes) in &found {
        if let Err(why) = &classes.demands {
            let name = &system.tiers[*index].name;
            section.note(Level::Doubt, format!("Demands of the classes of `{name}`: {why}."));
        }
        plot_classes(&mut section, &system.tiers[*index].name, classes);
    }
    section.table(hits(system, analysis));
    let mut table = Table::new("stages", "Mean time of a request in each stage")
        .column("tier", "Tier", Unit::Text)
        .column("stage", "Stage", Unit::Text)
        .column("mean_s", "Mean (ms)", Unit::Milliseconds);
    for (tier, series) in system.tiers.iter().zip(&observed.tiers) {
        for (stage, mean_s) in stages(series) {
            table.push(vec![tier.name.clone().into(), stage.into(), mean_s.into()]);
        }
    }
    section.table(table);
    section
}

/// Hit ratios: each window that is used counts as its requests do.
fn hits(system: &System, analysis: &Analysis) -> Table {
    let mut table = Table::new("hits", "Hit ratio over the used windows")
        .column("tier", "Tier", Unit::Text)
        .column("hit_ratio", "Hit ratio (%)", Unit::Percent)
        .column("lowest", "Lowest window (%)", Unit::Percent)
        .column("highest", "Highest window (%)", Unit::Percent);
    for (index, tier) in system.tiers.iter().enumerate() {
        let of_window = |window: &crate::windows::Window| {
            let means = &window.tiers[index];
            Some((means.hit_ratio?, means.throughput_per_s.unwrap_or(1.0)))
        };
        let found: Vec<(f64, f64)> = analysis.windows.used().filter_map(of_window).collect();
        let weight: f64 = found.iter().map(|(_, weight)| weight).sum();
        if weight > 0.0 {
            let mean = found.iter().map(|(ratio, weight)| ratio * weight).sum::<f64>() / weight;
            let ratios = || found.iter().map(|(ratio, _)| *ratio);
            table.push(vec![
                tier.name.clone().into(),
                mean.into(),
                ratios().fold(f64::INFINITY, f64::min).into(),
                ratios().fold(0.0, f64::max).into(),
            ]);
        }
    }
    table
}

/// The network with several classes, or why there is none.
pub(super) fn class_network(
    section: &mut Section,
    network: &Network,
    found: &Result<ClassNetwork, String>,
) {
    let found = match found {
        Ok(found) => found,
        Err(why) => {
            section.note(Level::Doubt, format!("One class only: {why}."));
            return;
        }
    };
    section.heading("By class");
    let errs = |score: &Option<Errors>| {
        score.as_ref().map_or_else(|| "?".to_owned(), |score| percent(score.median))
    };
    section.text(format!(
        "All classes wait alike at a tier, and each has its own service there, by regression of the busy \
         servers on the throughputs of all classes over the first {} windows that are used. On the others, \
         each at its own mix, it errs by {} in response time in the median; the network of one class by {}. \
         `--what-if class.NAME=2` asks for another mix.",
        found.fitted_windows,
        errs(&found.score),
        errs(&found.score_of_one_class)
    ));
    let mut table = Table::new("network-classes", "Classes of the network")
        .column("class", "Class", Unit::Text)
        .column("rate_now_per_s", "Present load (1/s)", Unit::PerSecond);
    for center in &network.centers {
        let label = format!("Service at {} (ms)", center.name);
        table = table.column(format!("demand_{}_s", center.name), label, Unit::Milliseconds);
    }
    table = table
        .column("predicted_s", "Present response time by the network (ms)", Unit::Milliseconds)
        .column("measured_s", "Measured, in the windows fitted (ms)", Unit::Milliseconds);
    let predicted = found.responses_s(network, &found.rates_now_per_s());
    for (number, class) in found.classes.iter().enumerate() {
        let mut row: Vec<Cell> = vec![class.name.clone().into(), class.rate_now_per_s.into()];
        row.extend(class.demands_s.iter().map(|demand| {
            let half = NORMAL * demand.standard_error;
            let interval = Interval {
                low: demand.value - half,
                high: demand.value + half,
                confidence: CONFIDENCE,
            };
            Cell::Estimate(Estimate::with_interval(demand.value, interval))
        }));
        let of_class = predicted.as_ref().ok().and_then(|all| all.get(number).copied());
        row.push(Cell::number_or(of_class, "no steady state"));
        row.push(Cell::number_or(class.response_time_s, "no query gives it"));
        table.push(row);
    }
    section.table(table);
}

fn plot_classes(section: &mut Section, tier: &str, classes: &Classes) {
    let series = |pick: &dyn Fn(&ClassPoint) -> Option<f64>| -> Vec<Series> {
        classes
            .classes
            .iter()
            .enumerate()
            .map(|(color, class)| Series {
                name: class.name.clone(),
                mark: Mark::Points,
                color,
                points: thinned(
                    class
                        .points
                        .iter()
                        .filter_map(|p| Some(Point::new(p.load_per_s, pick(p)?)))
                        .collect(),
                ),
            })
            .collect()
    };
    section.plot(Plot {
        id: format!("class-throughput-{tier}"),
        title: format!("Throughput of {tier} by class against the load"),
        description: "One point per used window.".to_owned(),
        x: Axis::from_zero("Load (1/s)"),
        y: Axis::from_zero("Throughput (1/s)"),
        series: series(&|point| Some(point.throughput_per_s)),
    });
    section.plot(Plot {
        id: format!("class-response-{tier}"),
        title: format!("Response time of {tier} by class against the load"),
        description: "One point per used window.".to_owned(),
        x: Axis::from_zero("Load (1/s)"),
        y: Axis::from_zero("Response time (ms)"),
        series: series(&|point| point.response_time_s.map(|time| time * 1e3)),
    });
}

/// Durations over time, from the bins of histograms.
pub(super) fn durations(system: &System, observed: &Observed, analysis: &Analysis) -> Section {
    let mut section = Section::new("durations", "Durations over time");
    let windows = &analysis.windows.all;
    for (tier, series) in system.tiers.iter().zip(&observed.tiers) {
        heat_map(&mut section, system, analysis, (tier.name.as_str(), series));
    }
    for (tier, series) in system.tiers.iter().zip(&observed.tiers) {
        let together = windows.len().div_ceil(MOST_ROWS).max(1);
        let Some(heat) = heat(series, windows.len(), analysis.windows.steps, together, MOST_BINS)
        else {
            continue;
        };
        let caption = format!("Share of the requests of {} by duration, over time (%)", tier.name);
        let mut table = Table::new(format!("durations-{}", tier.name), caption).column(
            "from_s",
            "From (s)",
            Unit::Plain(6),
        );
        let mut below = 0.0;
        for bound in &heat.bounds {
            let label = if bound.is_infinite() {
                format!("above {}", seconds(below))
            } else {
                format!("to {}", seconds(*bound))
            };
            table = table.column(format!("to_{bound}_s"), label, Unit::Percent);
            below = *bound;
        }
        for (row, shares) in heat.rows.iter().enumerate() {
            let from_s = windows.get(row * together).map_or(0.0, |window| window.from_s);
            let mut cells: Vec<Cell> = vec![from_s.into()];
            cells.extend(shares.iter().map(|share| Cell::number_or(*share, "no requests")));
            table.push(cells);
        }
        section.table(table.folded());
    }
    section
}

/// How many requests took how long, over time: bins are those of the histogram.
fn heat_map(
    section: &mut Section,
    system: &System,
    analysis: &Analysis,
    (name, series): (&str, &TierSeries),
) {
    let windows = &analysis.windows.all;
    let together = windows.len().div_ceil(MOST_COLUMNS).max(1);
    let Some(heat) = heat(series, windows.len(), analysis.windows.steps, together, MOST_CELLS)
    else {
        return;
    };
    let (label, unit_s) = crate::report::time_axis(system, analysis);
    let step_s = exact_f64(system.step_s);
    let column_s = step_s * exact_f64((analysis.windows.steps * together) as u64);
    let ends = heat.ends();
    let mut cells = Vec::new();
    for (column, (shares, requests)) in heat.rows.iter().zip(&heat.requests).enumerate() {
        let at = (exact_f64(column as u64) + 0.5) * column_s / unit_s;
        for (share, (low, high)) in shares.iter().zip(&ends) {
            let count =
                kendall_units::whole_u64((share.unwrap_or(0.0) * requests * step_s).round());
            cells.push(HeatCell { at, ends: (low * 1e3, high * 1e3), count });
        }
    }
    section.plot(Plot {
        id: format!("heat-{name}"),
        title: format!("Durations of {name} over time"),
        description:
            "How many requests of a period took how long: the darker, the more. Each cell \
                      is a bin of the monitoring's histogram; the lowest begins at 0 and the \
                      highest may have no end, they are drawn as wide as their neighbors."
                .to_owned(),
        x: Axis::from_zero(label),
        y: Axis::log("Response time (ms)"),
        series: density(&cells, "requests"),
    });
}

/// Throughput, response time and utilization against the number of requests in each tier.
pub(super) fn against_jobs(system: &System, analysis: &Analysis) -> Section {
    let mut section = Section::new("jobs", "Against the number of requests in the tier");
    for (index, tier) in system.tiers.iter().enumerate() {
        if points(analysis, index).is_empty() {
            continue;
        }
        section.heading(tier.name.clone());
        throughput_against_jobs(&mut section, &tier.name, analysis, index);
    }
    let of = |pick: &dyn Fn(&TierMeans, f64) -> Option<f64>| -> Vec<Series> {
        let tiers = system.tiers.iter().enumerate().map(|(index, tier)| {
            let servers = exact_f64(analysis.tiers[index].servers);
            let points = analysis.windows.used().filter_map(|window| {
                let means = &window.tiers[index];
                let by_little = || Some(means.throughput_per_s? * means.response_time_s?);
                Some(Point::new(means.number.or_else(by_little)?, pick(means, servers)?))
            });
            let points = thinned(points.collect());
            Series { name: tier.name.clone(), mark: Mark::Points, color: index, points }
        });
        tiers.filter(|series| !series.points.is_empty()).collect()
    };
    section.plot(Plot {
        id: "utilization-jobs".to_owned(),
        title: "Utilization against the requests in the tier".to_owned(),
        description: "One point per used window.".to_owned(),
        x: Axis::from_zero("Requests in the tier"),
        y: Axis::from_zero("Utilization (%)"),
        series: of(&|means, servers| Some(means.busy? / servers * 100.0)),
    });
    section.plot(Plot {
        id: "response-jobs".to_owned(),
        title: "Response time against the requests in the tier".to_owned(),
        description: "One point per used window.".to_owned(),
        x: Axis::from_zero("Requests in the tier"),
        y: Axis::from_zero("Response time (ms)"),
        series: of(&|means, _| means.response_time_s.map(|time| time * 1e3)),
    });
    section
}

fn throughput_against_jobs(section: &mut Section, name: &str, analysis: &Analysis, index: usize) {
    let measured = points(analysis, index);
    let fit = usl(analysis, index);
    match &fit {
        Ok(fit) => section.text(format!(
            "Universal Scalability Law: one request alone gets {:.4}/s (γ), contention α = {:.4}, \
             coherency β = {:.6}; {}.",
            fit.usl.gamma,
            fit.usl.alpha,
            fit.usl.beta,
            peak(fit, measured.iter().map(|point| point.0).fold(0.0, f64::max)),
        )),
        Err(why) => section.note(Level::Doubt, format!("No Universal Scalability Law: {why}.")),
    }
    let most = measured.iter().map(|point| point.0).fold(0.0, f64::max);
    let mut series = vec![Series {
        name: "windows".to_owned(),
        mark: Mark::Points,
        color: index,
        points: thinned(measured.iter().map(|(n, x)| Point::new(*n, *x)).collect()),
    }];
    if let Ok(fit) = &fit {
        let curve = (1..=CURVE).map(|step| {
            let number = most * f64::from(step) / f64::from(CURVE);
            Point::new(number, fit.usl.throughput(number))
        });
        let name = "scalability law".to_owned();
        series.push(Series { name, mark: Mark::Dashed, color: index, points: curve.collect() });
    }
    section.plot(Plot {
        id: format!("throughput-jobs-{}", name),
        title: format!("Throughput of {} against the requests in it", name),
        description: "One point per used window.".to_owned(),
        x: Axis::from_zero("Requests in the tier"),
        y: Axis::from_zero("Throughput (1/s)"),
        series,
    });
}

/// Where the throughput is highest, if the windows tell.
fn peak(fit: &kendall_queueing::scalability::UslFit, seen: f64) -> String {
    let told = fit.beta.interval.is_some_and(|(low, _)| low > 0.0);
    match (fit.usl.peak_load(), fit.usl.peak_throughput()) {
        (Some(at), Some(throughput)) if told && at <= 2.0 * seen => {
            format!(
                "the throughput is highest, {throughput:.4}/s, with {at:.1} requests in the tier"
            )
        }
        (Some(_), Some(_)) if told => format!(
            "its peak lies beyond twice the {seen:.1} requests that were observed in the tier: not \
             stated"
        ),
        _ => format!(
            "β does not differ significantly from 0 ({} of the variation explained): no peak is stated",
            percent(fit.r_squared)
        ),
    }
}
