//! Plots: what is drawn ([`Plot`]), and how it becomes SVG ([`svg`]).
//!
//! The drawing is plain SVG that needs no script: it prints, it can be read without a mouse, and
//! its colors follow the page. `docs/decisions/0005-report-plots.md` says why it is made here.

pub(crate) mod heat;
mod scale;
pub mod svg;

use serde::Serialize;

/// A plot.
#[derive(Debug, Clone, Serialize)]
pub struct Plot {
    /// Anchor.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// What a reader who cannot see it should know, in a sentence or two.
    pub description: String,
    /// Abscissa.
    pub x: Axis,
    /// Ordinate.
    pub y: Axis,
    /// What is drawn, first below.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Debug, Clone, Serialize)]
pub struct Axis {
    /// Label, unit included.
    pub label: String,
    /// How values become places.
    pub scale: Scale,
}

/// How values become places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Proportional, from zero.
    FromZero,
    /// Proportional, around the data.
    AroundData,
    /// Logarithmic; values that are not positive are left out.
    Log,
    /// Names at 0, 1, 2, …
    Categories(Vec<String>),
}

/// One set of points.
#[derive(Debug, Clone, Serialize)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// How it is drawn.
    pub mark: Mark,
    /// Color: series with the same number look alike; models share that of what they model.
    pub color: usize,
    /// What is drawn.
    pub points: Vec<Point>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// Points joined by a line.
    Line,
    /// A dashed line without points: what a model says.
    Dashed,
    /// Points only.
    Points,
    /// Bars from zero, side by side where several series have them.
    Bars,
    /// A filled outline with a step at every point: histograms.
    Steps,
    /// Cells of a heat map in one of five shades, 1 to 5: each around its abscissa, from end to end of
    /// its interval.
    Cells(u8),
}

/// One point, in the units of the axes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Point {
    /// Abscissa.
    pub x: f64,
    /// Ordinate.
    pub y: f64,
    /// Ends of the interval.
    pub interval: Option<(f64, f64)>,
}

impl Point {
    /// A point without an interval.
    #[must_use]
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, interval: None }
    }
}

impl Axis {
    /// Proportional, from zero.
    #[must_use]
    pub fn from_zero(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::FromZero }
    }

    /// Proportional, around the data.
    #[must_use]
    pub fn around_data(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::AroundData }
    }

    /// Logarithmic.
    #[must_use]
    pub fn log(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Log }
    }

    /// Names.
    #[must_use]
    pub fn categories(label: impl Into<String>, names: Vec<String>) -> Self {
        Self { label: label.into(), scale: Scale::Categories(names) }
    }
}
