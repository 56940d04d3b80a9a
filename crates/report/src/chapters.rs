//! The chapters of a report: one module each, and one line here.

mod backends;
mod batches;
mod density;
pub(crate) mod effects;
mod factors;
mod histograms;
mod jobs;
mod laws;
pub(crate) mod load;
mod maximum;
mod method;
mod models;
pub(crate) mod predictions;
pub(crate) mod saturation;
pub(crate) mod searches;
mod setup;
mod summary;
mod threats;
mod tiers;
pub(crate) mod trace;
mod usage;

use crate::document::Section;
use crate::number;
use crate::plot::Point;
use kendall_observations::{Configuration, Curve, Observations};

pub(crate) use models::files as model_files;
pub(crate) use summary::{byline, sentences, utc_minutes};

/// Makes a chapter, or none where the study has nothing for it.
pub(crate) type Chapter = fn(&Observations) -> Option<Section>;

/// All chapters, in the order of the report.
pub(crate) const CHAPTERS: &[Chapter] = &[
    summary::chapter,
    setup::chapter,
    load::chapter,
    jobs::chapter,
    effects::of_an_experiment,
    searches::chapter,
    trace::chapter,
    tiers::chapter,
    batches::chapter,
    laws::chapter,
    saturation::chapter,
    maximum::chapter,
    factors::chapter,
    histograms::chapter,
    backends::chapter,
    usage::chapter,
    models::chapter,
    effects::beside_load_curves,
    threats::chapter,
    method::chapter,
];

/// A time axis in the unit that suits its values: label with unit, and factor from seconds.
fn time_axis(what: &str, seconds: impl Iterator<Item = f64>) -> (String, f64) {
    let largest = seconds.filter(|value| value.is_finite()).fold(0.0, f64::max);
    let (factor, unit) = number::time_unit(largest);
    (format!("{what} ({unit})"), factor)
}

/// With its first letter in upper case.
pub(crate) fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The load of a configuration along its curve.
fn load_of(data: &Observations, configuration: &Configuration) -> f64 {
    data.load_of(configuration)
}

/// An estimate as a point of a plot, scaled.
fn point(x: f64, estimate: &kendall_stats::estimate::Estimate, factor: f64) -> Point {
    let interval = estimate.interval.map(|i| (i.low * factor, i.high * factor));
    Point { x, y: estimate.center * factor, interval }
}

/// Curves to plot, with a remark where not all are.
fn plotted(data: &Observations) -> (Vec<(usize, &Curve)>, Option<String>) {
    const MOST: usize = 12;
    let curves: Vec<(usize, &Curve)> = data.curves.iter().enumerate().take(MOST).collect();
    let remark = (data.curves.len() > MOST).then(|| {
        format!("The plots show {MOST} of the {} curves; the tables hold all.", data.curves.len())
    });
    (curves, remark)
}
