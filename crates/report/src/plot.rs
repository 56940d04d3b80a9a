//! Plots: what is drawn ([`Plot`]), and how it becomes SVG ([`svg`]).
//!
//! The drawing is plain SVG that needs no script: it prints, it can be read without a mouse, and
//! its colors follow the page. `docs/decisions/0005-report-plots.md` says why it is made here.

/// Adds to a drawing, which is a string.
macro_rules! put {
    ($out:expr, $($argument:tt)+) => {{
        use std::fmt::Write as _;
        write!($out, $($argument)+).expect("writing to a string does not fail");
    }};
}

mod heat;
pub mod network;
mod scale;
pub mod svg;

pub use heat::{Cell, density};

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plot {
    pub id: String,
    pub title: String,
    /// What a reader who cannot see it should know, in a sentence or two.
    pub description: String,
    pub x: Axis,
    pub y: Axis,
    /// What is drawn, first below.
    pub series: Vec<Series>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Axis {
    pub label: String,
    pub scale: Scale,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
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
    /// The levels that were tried, each with a tick: proportional from zero, or logarithmic where each
    /// is about double the one before.
    Levels { ticks: Vec<f64>, log: bool },
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    pub mark: Mark,
    /// Color: series with the same number have the same color; models share that of what they model.
    pub color: usize,
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
    Points,
    /// Bars from zero, side by side where several series have them.
    Bars,
    /// A filled outline with a step at every point: histograms.
    Steps,
    /// A filled band from end to end of each point's interval: parts that add up, see [`stacked`].
    Area,
    /// Cells of a heat map in one of five shades, 1 to 5: each around its abscissa, from end to end of
    /// its interval.
    Cells(u8),
}

/// One point, in the units of the axes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    pub interval: Option<(f64, f64)>,
}

impl Point {
    /// A point without an interval.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, interval: None }
    }
}

impl Series {
    pub fn new(
        name: impl Into<String>,
        mark: Mark,
        color: usize,
        points: impl IntoIterator<Item = Point>,
    ) -> Self {
        Self { name: name.into(), mark, color, points: points.into_iter().collect() }
    }
}

/// Levels that an axis names one by one, at most.
const MOST_LEVELS: usize = 14;

impl Scale {
    pub fn is_log(&self) -> bool {
        matches!(self, Self::Log | Self::Levels { log: true, .. })
    }
}

impl Plot {
    /// Whether another, whatever its name, is the same drawing.
    pub fn draws_the_same(&self, other: &Self) -> bool {
        (&self.title, &self.x, &self.y, &self.series)
            == (&other.title, &other.x, &other.y, &other.series)
    }

    /// Its description, and where intervals are missing: a point without a bar looks like the surest.
    pub fn described(&self) -> String {
        let points = |series: &&Series| series.points.iter().any(|point| point.interval.is_some());
        let measured = || {
            let lines = self.series.iter().filter(|s| matches!(s.mark, Mark::Line | Mark::Points));
            lines.filter(points).flat_map(|series| &series.points).filter(|p| p.y.is_finite())
        };
        let (all, without) =
            (measured().count(), measured().filter(|point| point.interval.is_none()).count());
        if without == 0 {
            return self.description.clone();
        }
        let are = if without == 1 { "has" } else { "have" };
        format!(
            "{} {without} of {all} points {are} no interval: too few runs, or runs that differ too much.",
            self.description
        )
        .trim_start()
        .to_owned()
    }

    /// With a tick at each level where few were tried, and a logarithmic axis where they double.
    #[must_use]
    pub fn at_levels(mut self) -> Self {
        let lines =
            |s: &Series| matches!(s.mark, Mark::Line | Mark::Dashed | Mark::Points | Mark::Area);
        if self.x.scale != Scale::FromZero || !self.series.iter().all(lines) {
            return self;
        }
        let measured = self.series.iter().filter(|series| series.mark != Mark::Dashed);
        let mut ticks: Vec<f64> =
            measured.flat_map(|s| &s.points).map(|p| p.x).filter(|x| x.is_finite()).collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup_by(|a, b| (*a - *b).abs() <= 1e-9 * b.abs());
        if !(2..=MOST_LEVELS).contains(&ticks.len()) || ticks[0] < 0.0 {
            return self;
        }
        let doubles = ticks.windows(2).all(|pair| pair[1] >= 1.9 * pair[0]);
        let log = ticks[0] > 0.0 && doubles && ticks[ticks.len() - 1] >= 8.0 * ticks[0];
        self.x.scale = Scale::Levels { ticks, log };
        self
    }
}

/// Parts that add up, each on top of those before it; where a part is missing it is nothing.
pub fn stacked(mut parts: Vec<Series>) -> Vec<Series> {
    let mut below: Vec<(f64, f64)> = Vec::new();
    for part in &mut parts {
        part.mark = Mark::Area;
        part.points.retain(|point| point.x.is_finite() && point.y.is_finite());
        for point in &mut part.points {
            let known = below.iter().position(|(x, _)| x.total_cmp(&point.x).is_eq());
            let place = known.unwrap_or_else(|| {
                below.push((point.x, 0.0));
                below.len() - 1
            });
            let from = below[place].1;
            below[place].1 += point.y;
            point.interval = Some((from, from + point.y));
        }
    }
    parts
}

impl Axis {
    pub fn from_zero(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::FromZero }
    }

    /// Proportional, around the data.
    pub fn around_data(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::AroundData }
    }

    pub fn log(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Log }
    }

    pub fn categories(label: impl Into<String>, names: Vec<String>) -> Self {
        Self { label: label.into(), scale: Scale::Categories(names) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(levels: &[f64]) -> Plot {
        let points = levels.iter().map(|x| Point::new(*x, 1.0)).collect();
        Plot {
            id: "p".to_owned(),
            title: String::new(),
            description: String::new(),
            x: Axis::from_zero("clients"),
            y: Axis::from_zero("y"),
            series: vec![Series { name: "s".to_owned(), mark: Mark::Line, color: 0, points }],
        }
        .at_levels()
    }

    #[test]
    fn levels_that_double_have_a_logarithmic_axis_and_others_have_not() {
        let log = |levels: &[f64]| line(levels).x.scale.is_log();
        assert!(log(&[1.0, 2.0, 4.0, 8.0]) && log(&[4.0, 16.0, 64.0]));
        assert!(!log(&[6.0, 30.0, 54.0, 78.0]) && !log(&[2.0, 4.0]) && !log(&[0.0, 2.0, 4.0, 8.0]));
        let many: Vec<f64> = (0..40).map(f64::from).collect();
        assert_eq!(line(&many).x.scale, Scale::FromZero);
    }

    /// Of six points four had no interval, since their runs differed too much, and looked the surest.
    #[test]
    fn points_without_an_interval_are_counted_where_others_have_one() {
        let mut plot = line(&[1.0, 2.0, 3.0]);
        assert_eq!(plot.described(), "");
        plot.description = "Mean.".to_owned();
        plot.series[0].points[1].interval = Some((0.5, 1.5));
        let dashed = Series { mark: Mark::Dashed, ..plot.series[0].clone() };
        plot.series.push(dashed);
        assert_eq!(
            plot.described(),
            "Mean. 2 of 3 points have no interval: too few runs, or runs that differ too much."
        );
        plot.series[0].points.iter_mut().for_each(|point| point.interval = Some((0.5, 1.5)));
        assert_eq!(plot.described(), "Mean.");
    }

    #[test]
    fn parts_lie_on_each_other() {
        let part = |y: f64| Series {
            name: String::new(),
            mark: Mark::Line,
            color: 0,
            points: vec![Point::new(1.0, y), Point::new(2.0, 2.0 * y)],
        };
        let parts = stacked(vec![part(1.0), part(3.0)]);
        assert_eq!(parts[1].points[1].interval, Some((2.0, 8.0)));
        assert_eq!(parts[1].mark, Mark::Area);
    }
}
