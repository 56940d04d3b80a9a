//! The chapters of a report: one module each, and one line here.

mod backends;
mod batches;
mod database;
mod density;
pub(crate) mod effects;
mod factors;
mod histograms;
mod jobs;
mod laws;
pub(crate) mod load;
mod maximum;
mod method;
pub(crate) mod models;
mod network_paths;
pub(crate) mod predictions;
mod published;
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
use crate::prepared::Prepared;
use kendall_observations::{Configuration, Curve, Observations};

pub(crate) use load::summary_rows;
pub(crate) use models::files as model_files;
pub use summary::utc_minutes;
pub(crate) use summary::{byline, one_of, response_in_words, sentences};

/// Makes a chapter, or none where the study has nothing for it.
pub(crate) type Chapter = fn(&Prepared<'_>) -> Option<Section>;

/// All chapters, in the order of the report.
pub(crate) const CHAPTERS: &[Chapter] = &[
    summary::chapter,
    published::chapter,
    setup::chapter,
    load::chapter,
    jobs::chapter,
    effects::of_an_experiment,
    searches::chapter,
    trace::chapter,
    tiers::chapter,
    batches::chapter,
    database::chapter,
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

/// Whether a chapter is open when the page is opened. The others unfold on demand.
pub(crate) fn is_open(id: &str, data: &Observations) -> bool {
    match id {
        "summary" | "published" | "load" | "jobs" | "searches" | "saturation" | "threats" => true,
        "effects" => data.load.is_none(),
        "steady" => data.configurations.len() == 1,
        _ => false,
    }
}

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

/// The curve that holds the highest throughput.
fn best_curve(data: &Observations) -> Option<&Curve> {
    let most =
        |curve: &&Curve| data.along(curve).map(Configuration::throughput).fold(0.0, f64::max);
    data.curves.iter().max_by(|a, b| most(a).total_cmp(&most(b)))
}

/// The load of a configuration along its curve.
fn load_of(data: &Observations, configuration: &Configuration) -> f64 {
    data.load_of(configuration)
}

/// An estimate as a point of a plot, scaled.
pub(crate) fn point(x: f64, estimate: &kendall_stats::estimate::Estimate, factor: f64) -> Point {
    let interval = estimate.interval.map(|i| (i.low * factor, i.high * factor));
    Point { x, y: estimate.center * factor, interval }
}

/// Curves at most in one drawing.
const MOST_CURVES: usize = 12;

/// Curves that share a drawing, each with its color.
struct Drawn<'a> {
    /// What they have in common, for the title: `, mix get`; empty where all curves are here.
    of: String,
    /// Tells its plots from those of others.
    key: String,
    curves: Vec<(usize, &'a Curve)>,
}

/// The mix of operations of a curve, where mixes are varied.
fn mix<'a>(data: &'a Observations, curve: &'a Curve) -> Option<&'a str> {
    const MIX: &str = "workload.mix";
    let varied = data.factors.iter().any(|factor| factor.key == MIX);
    let level = data.along(curve).next()?.level(MIX)?;
    varied.then_some(level.text.as_str())
}

/// Curves to plot, those of each mix of operations by themselves, with a remark where not all are.
fn drawn(data: &Observations) -> (Vec<Drawn<'_>>, Option<String>) {
    let mut groups: Vec<Drawn<'_>> = Vec::new();
    for curve in &data.curves {
        let of = mix(data, curve).map_or_else(String::new, |mix| format!(", mix {mix}"));
        let place = groups.iter().position(|group| group.of == of).unwrap_or_else(|| {
            let key = if groups.is_empty() { String::new() } else { format!("-{}", groups.len()) };
            groups.push(Drawn { of, key, curves: Vec::new() });
            groups.len() - 1
        });
        let color = groups[place].curves.len();
        groups[place].curves.push((color, curve));
    }
    let most = groups.iter().map(|group| group.curves.len()).max().unwrap_or(0);
    for group in &mut groups {
        group.curves.truncate(MOST_CURVES);
    }
    let all = data.curves.len();
    let remark = (most > MOST_CURVES).then(|| {
        format!("A plot shows {MOST_CURVES} curves at most, of {all}; the tables hold all.")
    });
    (groups, remark)
}

/// Curves to plot together, each with its color; the tables hold all.
fn plotted(data: &Observations) -> Vec<(usize, &Curve)> {
    data.curves.iter().enumerate().take(MOST_CURVES).collect()
}
