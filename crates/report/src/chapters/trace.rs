//! Throughput second by second: was the system in a steady state?

use kendall_stats::steady::drift;

use crate::data::Data;
use crate::document::{Level, Section};
use crate::number;
use crate::plot::{Axis, Mark, Plot, Point, Series};

/// Points drawn of one run at most; more are averaged.
const MOST_POINTS: usize = 240;

pub(crate) fn chapter(data: &Data) -> Option<Section> {
    let mut section = Section::new("steady", "Was it a steady state?");
    let mut drifting = Vec::new();
    let mut looked_at = 0_usize;
    for configuration in &data.configurations {
        for repetition in &configuration.repetitions {
            let series: Vec<f64> = repetition.seconds.iter().map(|(_, x)| *x).collect();
            let Some(found) = drift(&series) else { continue };
            looked_at += 1;
            if let Some(caveat) = found.caveat() {
                drifting.push(format!(
                    "{}, repetition {}: {caveat}",
                    data.name_of(configuration),
                    repetition.run.repetition + 1
                ));
            }
        }
    }
    if looked_at == 0 && data.fastest().is_none_or(|c| c.repetitions[0].seconds.len() < 2) {
        return None;
    }
    let of = number::count(looked_at, "run");
    if looked_at == 0 {
        section.note(Level::Doubt, "The runs are too short to tell whether they drift.");
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
    section.plot(plot(data)?);
    Some(section)
}

fn plot(data: &Data) -> Option<Plot> {
    let fastest = data.fastest()?;
    let series = fastest.repetitions.iter().enumerate().map(|(color, repetition)| {
        let width = repetition.seconds.len() / MOST_POINTS + 1;
        let points = repetition.seconds.chunks(width).map(|chunk| {
            let count = kendall_units::exact_f64(chunk.len());
            Point::new(chunk[0].0, chunk.iter().map(|(_, x)| x).sum::<f64>() / count)
        });
        Series {
            name: format!("repetition {}", repetition.run.repetition + 1),
            mark: Mark::Line,
            color,
            points: points.collect(),
        }
    });
    Some(Plot {
        id: "plot-trace".to_owned(),
        title: "Throughput over time".to_owned(),
        description: format!(
            "The runs of highest throughput ({}), second by second within the measured window.",
            data.name_of(fastest)
        ),
        x: Axis::from_zero("time (s)"),
        y: Axis::from_zero("throughput (1/s)"),
        series: series.take(8).collect(),
    })
}
