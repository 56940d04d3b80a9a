//! Requests that a worker serves together: how many, how long it takes, and what one then costs.

use kendall_fit::measured::{ConnectionView, TierView};
use kendall_fit::trend::{Line, line};

use crate::document::{Section, Table, Unit};
use crate::number;
use crate::plot::{Axis, Mark, Plot, Point, Series};
use crate::prepared::Prepared;
use kendall_observations::{Configuration, Curve, Observations};

use super::load::{curves, with_levels};
use super::{plotted, time_axis};

/// Mean batch below which nothing is served together worth a chapter.
const TOGETHER: f64 = 1.01;

pub(crate) fn chapter(data: &Prepared<'_>) -> Option<Section> {
    let largest = data.configurations.iter().filter_map(tier).map(TierView::mean_batch);
    if largest.fold(0.0, f64::max) <= TOGETHER {
        return None;
    }
    let mut section = Section::new("batches", "Requests served together");
    section.text(
        "A worker serves what waits together, as one batch, so the customer of a worker is a batch \
         and not a request: a request makes V = 1/(mean batch) visits of a time S, and workers are \
         busy X·V·S. (The service time of the chapter above is that of the whole batch, as each of \
         its requests sees it; with it, X·S would count a worker once for every request of the \
         batch.) The demand V·S of a request falls as batches grow, since all of a batch share its \
         round trips and its commit.",
    );
    let fits: Vec<(&Curve, Line)> =
        data.curves.iter().filter_map(|curve| Some((curve, fit(data, curve)?))).collect();
    section.list(fits.iter().map(|(curve, line)| in_words(data, curve, line)).collect());
    if let Some(load) = &data.load {
        section.plot(sizes(data, &load.label));
    }
    section.plot(times(data, &fits));
    section.table(table(data));
    Some(section)
}

fn tier(configuration: &Configuration) -> Option<&TierView> {
    configuration.point.first_tier().filter(|tier| tier.batches.is_some())
}

/// Mean batch and the time that a worker is held for it, along a curve.
fn along(data: &Observations, curve: &Curve) -> Vec<(f64, f64)> {
    let tiers = data.along(curve).filter_map(tier);
    tiers.map(|tier| (tier.mean_batch(), tier.held_time_s())).collect()
}

/// The line through a curve whose batches grow; `None` where they do not, or there are only two.
fn fit(data: &Observations, curve: &Curve) -> Option<Line> {
    let points = along(data, curve);
    let sizes = || points.iter().map(|(size, _)| *size);
    let grown = sizes().fold(0.0, f64::max) / sizes().fold(f64::INFINITY, f64::min);
    (points.len() > 2 && grown > 1.1).then(|| line(&points, data.study.confidence)).flatten()
}

fn in_words(data: &Observations, curve: &Curve, line: &Line) -> String {
    let points = along(data, curve);
    let largest = points.iter().max_by(|a, b| a.0.total_cmp(&b.0));
    let demand = |(size, time): (f64, f64)| number::time(time / size);
    let (least, most) = (points.first().copied(), largest.copied());
    let costs = least.zip(most).map_or_else(String::new, |(least, most)| {
        format!(
            " A request needs {} of a worker at the lowest load and {} in the largest batches \
             ({} requests on average).",
            demand(least),
            demand(most),
            number::significant(most.0, 3)
        )
    });
    let explained = line.r_squared.map_or_else(String::new, |share| {
        format!(" (explains {} of the variation of the means)", number::percent(share))
    });
    format!(
        "{}: a batch of b requests holds a worker for about {} + {}·b{explained}; the slope's {} \
         interval is {}.{costs}",
        curve.name,
        number::time(line.intercept.center),
        number::time(line.slope.center),
        number::percent(data.study.confidence),
        line.slope.interval.map_or_else(
            || "not known".to_owned(),
            |i| format!("{} to {}", number::time(i.low), number::time(i.high))
        )
    )
}

fn sizes(data: &Observations, load: &str) -> Plot {
    let size = |c: &Configuration| c.estimate(|r| Some(r.point.first_tier()?.mean_batch()));
    Plot {
        id: "plot-batches".to_owned(),
        title: "Mean batch against load".to_owned(),
        description: "Requests of a batch, on average over batches.".to_owned(),
        x: Axis::from_zero(load),
        y: Axis::from_zero("requests a batch"),
        series: curves(data, &plotted(data), |c| Some((size(c)?, 1.0))),
    }
}

/// Time of a batch against its size, with the fitted lines.
fn times(data: &Observations, fits: &[(&Curve, Line)]) -> Plot {
    let seconds = fits.iter().flat_map(|(curve, _)| along(data, curve)).map(|(_, time)| time);
    let (label, factor) = time_axis("time that a worker is held", seconds);
    let mut series = Vec::new();
    for (color, (curve, line)) in fits.iter().enumerate() {
        let mut points = along(data, curve);
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let fitted = [points.first(), points.last()].into_iter().flatten();
        let fitted = fitted.map(|(size, _)| Point::new(*size, line.at(*size) * factor));
        let measured = points.iter().map(|(size, time)| Point::new(*size, time * factor));
        series.push(Series::new(&curve.name, Mark::Points, color, measured));
        let name = format!("{}, fitted", curve.name);
        series.push(Series::new(name, Mark::Dashed, color, fitted));
    }
    Plot {
        id: "plot-batch-times".to_owned(),
        title: "Time of a batch against its size".to_owned(),
        description:
            "Means of each configuration, and the least-squares line: a fixed cost, and a \
                      cost a request."
                .to_owned(),
        x: Axis::from_zero("requests a batch"),
        y: Axis::from_zero(label),
        series,
    }
}

fn table(data: &Observations) -> Table {
    let title = "Batches, and what a request costs in them";
    let rows = data.configurations.iter().filter_map(|c| Some((c, tier(c)?)));
    let shared = |tier: &TierView, value: fn(&ConnectionView) -> f64| {
        (tier.connections.as_ref().map(value), "no shared connections")
    };
    with_levels("batches", title, data, rows, |(c, _)| c)
        .column("tier_throughput_per_s", "Requests (1/s)", Unit::PerSecond, |(_, tier)| {
            tier.view.throughput_per_s
        })
        .column("batches_per_s", "Batches (1/s)", Unit::PerSecond, |(_, tier)| {
            tier.view.throughput_per_s * tier.visits()
        })
        .column("mean_batch", "Requests a batch", Unit::Plain(3), |(_, tier)| tier.mean_batch())
        .column("visits", "Visits V", Unit::Plain(3), |(_, tier)| tier.visits())
        .column("held_time_s", "Worker held S (ms)", Unit::Milliseconds, |(_, t)| t.held_time_s())
        .column("exchange_time_s", "Backend, a batch (ms)", Unit::Milliseconds, |(_, tier)| {
            shared(tier, |of| of.exchange_time_s)
        })
        .column("connection_wait_s", "Wait for a connection (ms)", Unit::Milliseconds, |(_, t)| {
            shared(t, |of| of.waiting_time_s)
        })
        .column("demand_s", "Demand V·S (ms)", Unit::Milliseconds, |(_, tier)| {
            tier.visits() * tier.held_time_s()
        })
        .column("workers_busy", "Workers busy", Unit::Plain(3), |(_, tier)| tier.workers_busy)
        .table()
        .folded_if_long()
}
