//! The table at maximum throughput: one row a curve.

use crate::document::{Cell, Section, Table, Unit};
use crate::number;
use crate::prepared::Prepared;
use kendall_fit::measured::TierView;
use kendall_observations::{Configuration, Observations, Repetition};
use kendall_protocols::snapshot::stage;

use super::load_of;
use super::saturation::interesting;

pub(crate) fn chapter(data: &Prepared<'_>) -> Option<Section> {
    if !data.has_tier() {
        return None;
    }
    let mut section = Section::new("maximum", "At maximum throughput");
    section.text(
        "One row a curve, at the load of its highest throughput. The throughput is given three \
         ways that must agree: as the tier counted it; derived from the tier's response time, \
         N/(R of the tier + delay of the links + Z); and as the clients counted it. Where the \
         derived figure is the highest, time is spent between clients and tier that is neither \
         the tier's nor the links' stated delay.",
    );
    let mut table = table(data);
    for (name, configuration) in interesting(data) {
        table.push(row(data, &name, configuration));
    }
    if let Some(sentence) = agreement(&interesting(data)) {
        section.text(sentence);
    }
    section.table(table);
    Some(section)
}

fn table(data: &Observations) -> Table {
    let load = data.load.as_ref().map_or("load", |load| load.label.as_str());
    Table::new("maximum", "At the maximum of each curve")
        .column("curve", "Curve", Unit::Text)
        .column("load", load, Unit::Level)
        .column("tier_throughput_per_s", "X at the tier (1/s)", Unit::PerSecond)
        .column("derived_throughput_per_s", "X derived from R (1/s)", Unit::PerSecond)
        .column("client_throughput_per_s", "X at the clients (1/s)", Unit::PerSecond)
        .column("client_response_time_s", "R at the clients (ms)", Unit::Milliseconds)
        .column("tier_response_time_s", "R at the tier (ms)", Unit::Milliseconds)
        .column("waiting_time_s", "Time in queue (ms)", Unit::Milliseconds)
        .column("queue_length", "Queue length", Unit::Plain(3))
        .column("backend_time_s", "Waiting for backends (ms)", Unit::Milliseconds)
        .column("miss_rate", "Misses (%)", Unit::Percent)
        .column("tier_miss_rate", "as the tier counted (%)", Unit::Percent)
}

/// X that a closed loop has by the tier's response time.
fn derived(repetition: &Repetition) -> Option<f64> {
    let point = &repetition.point;
    let cycle = point.first_tier()?.view.response_time_s
        + point.client_link_round_trip_s
        + point.think_time_s;
    (cycle > 0.0).then_some(point.population? / cycle)
}

fn row(data: &Observations, name: &str, configuration: &Configuration) -> Vec<Cell> {
    let estimate = |value: &dyn Fn(&Repetition) -> Option<f64>, why: &str| {
        Cell::estimate_or(configuration.estimate(value).as_ref(), why)
    };
    let time =
        |stage: &str, why: &str| Cell::estimate_or(configuration.tier_time(stage).as_ref(), why);
    vec![
        name.into(),
        load_of(data, configuration).into(),
        estimate(&|r| Some(r.point.first_tier()?.view.throughput_per_s), "no tier"),
        estimate(&derived, "open loop"),
        estimate(&|r| Some(r.point.client.throughput_per_s), "no run"),
        Cell::estimate_or(configuration.response_estimate().as_ref(), "no request"),
        time(stage::RESPONSE_TIME, "no tier"),
        time(stage::WAITING_TIME, "no tier"),
        estimate(&|r| Some(r.point.first_tier()?.queue_length), "no tier"),
        time(stage::BACKEND_TIME, "no backend"),
        Cell::number_or(configuration.counts().miss_rate(), "nothing read"),
        Cell::number_or(
            configuration.point.first_tier().and_then(TierView::miss_share),
            "the tier counts none",
        ),
    ]
}

fn agreement(rows: &[(String, &Configuration)]) -> Option<String> {
    let gaps = rows.iter().filter_map(|(name, c)| {
        let derived = c.estimate(derived)?.center;
        Some((name, derived / c.throughput() - 1.0))
    });
    let (name, gap) = gaps.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))?;
    Some(format!(
        "The derived and the clients' throughput differ most for {name}, by {}.",
        number::signed_percent(gap)
    ))
}
