//! A [`Plot`] as SVG.
//!
//! Drawn twice by the page, for wide and for narrow screens, so that text keeps its size. Marks
//! are strokes that do not scale, so a script can zoom by one transform of the group that holds
//! them. Colors and fonts are left to the page's style sheet.

use super::heat;
use super::scale::Fitted;
use super::{Mark, Plot, Point, Scale, Series};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    Wide,
    Narrow,
}

/// Number of colors that the style sheet has.
pub const COLORS: usize = 8;

/// Shapes of points, so that series differ without color.
pub(crate) const SHAPES: [&str; 4] = ["round", "square", "round hollow", "square hollow"];

/// Share of a category's width that its bars fill.
const BARS_FILL: f64 = 0.8;

/// Mean width of a character of the tick labels.
const CHARACTER: f64 = 6.6;

/// The plot area within the drawing, and the axes that fill it.
struct Frame {
    width: f64,
    height: f64,
    left: f64,
    top: f64,
    area_width: f64,
    area_height: f64,
    x: Fitted,
    y: Fitted,
    x_ticks: Vec<(f64, String)>,
    y_ticks: Vec<(f64, String)>,
    slanted: bool,
    /// Some intervals reach beyond the drawing.
    cut: bool,
}

impl Frame {
    fn new(plot: &Plot, width: Width) -> Self {
        let (total_width, total_height, most_x, most_y) = match width {
            Width::Wide => (760.0, 380.0, 10, 6),
            Width::Narrow => (380.0, 320.0, 4, 5),
        };
        let x = Fitted::new(&plot.x.scale, points(plot).map(|point| point.x));
        let bounds = bounds(plot);
        let y = Fitted::new(&plot.y.scale, points(plot).flat_map(|p| extent(p, bounds)));
        let cut = points(plot)
            .filter_map(|point| point.interval)
            .any(|(low, high)| low < bounds.0 || high > bounds.1);
        let mut x_ticks = x.ticks(most_x);
        let y_ticks = y.ticks(most_y);
        for (_, label) in &mut x_ticks {
            *label = shortened(label, 26);
        }
        let left = 34.0 + CHARACTER * longest(&y_ticks);
        let top = 14.0;
        let area_width = total_width - left - 14.0;
        if matches!(plot.x.scale, Scale::Levels { .. }) {
            with_room(&mut x_ticks, |value| x.place(value).map(|share| share * area_width));
        }
        let room = area_width / kendall_units::exact_f64(x_ticks.len().max(1));
        let slanted = matches!(plot.x.scale, Scale::Categories(_))
            && longest(&x_ticks) * CHARACTER > room * 0.95;
        let below = if slanted { 40.0 + CHARACTER * 0.75 * longest(&x_ticks) } else { 48.0 };
        // A drawing with long slanted names grows; its plot area stays.
        let area_height = total_height - top - 48.0;
        let height = area_height + top + below;
        let width = total_width;
        Self {
            width,
            height,
            left,
            top,
            area_width,
            area_height,
            x,
            y,
            x_ticks,
            y_ticks,
            slanted,
            cut,
        }
    }

    /// Place within the plot area.
    fn place(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        Some((self.across(x)?, self.down(y)?))
    }

    fn across(&self, x: f64) -> Option<f64> {
        self.x.place(x).map(|share| share * self.area_width)
    }

    fn down(&self, y: f64) -> Option<f64> {
        self.y.place(y).map(|share| (1.0 - share) * self.area_height)
    }

    /// Where bars and steps stand: zero, or the axis where zero is not on it.
    fn ground(&self) -> f64 {
        self.down(0.0).map_or(self.area_height, |down| down.clamp(0.0, self.area_height))
    }
}

fn points(plot: &Plot) -> impl Iterator<Item = &Point> {
    plot.series.iter().flat_map(|series| &series.points)
}

/// How far intervals may widen the axis: few repetitions give wide ones, which would flatten what
/// was measured, and half of which lies below zero where nothing can be.
fn bounds(plot: &Plot) -> (f64, f64) {
    if plot.y.scale != Scale::FromZero {
        return (f64::NEG_INFINITY, f64::INFINITY);
    }
    let top = |area: bool, point: &Point| point.interval.filter(|_| area).map_or(point.y, |i| i.1);
    let of = |series: &'_ Series| series.mark == Mark::Area;
    let each = || plot.series.iter().flat_map(|s| s.points.iter().map(move |p| (of(s), p)));
    let values = || each().map(|(area, point)| top(area, point)).filter(|y| y.is_finite());
    let (low, high) = values().fold((0.0_f64, 0.0_f64), |(l, h), y| (l.min(y), h.max(y)));
    let room = 0.75 * (high - low);
    (if low < 0.0 { low - room } else { 0.0 }, high + room)
}

fn extent(point: &Point, (least, most): (f64, f64)) -> [f64; 3] {
    let (low, high) = point.interval.unwrap_or((point.y, point.y));
    [point.y, low.max(least.min(point.y)), high.min(most.max(point.y))]
}

/// Leaves out labels that would lie on one another; the last stays.
fn with_room(ticks: &mut Vec<(f64, String)>, place: impl Fn(f64) -> Option<f64>) {
    let half =
        |label: &str| (CHARACTER * kendall_units::exact_f64(label.chars().count()) + 8.0) / 2.0;
    let mut from = f64::INFINITY;
    let mut kept = Vec::new();
    for (value, label) in std::mem::take(ticks).into_iter().rev() {
        let Some(across) = place(value) else { continue };
        if across + half(&label) <= from {
            from = across - half(&label);
            kept.push((value, label));
        }
    }
    kept.reverse();
    *ticks = kept;
}

/// How far series with intervals are moved aside, in units of the drawing, so that their bars do not
/// lie on one another; not at all where no bar is tall enough to hide another.
pub(crate) fn dodges(plot: &Plot) -> Vec<f64> {
    const TALL: f64 = 0.03;
    let (low, high) = bounds(plot);
    let range = points(plot).map(|p| p.y.abs()).filter(|y| y.is_finite()).fold(0.0, f64::max);
    let tall = points(plot)
        .filter_map(|point| point.interval)
        .any(|(from, to)| to.min(high) - from.max(low) > TALL * range);
    let dodged = |series: &Series| {
        tall && matches!(series.mark, Mark::Line | Mark::Points)
            && series.points.iter().any(|point| point.interval.is_some())
    };
    let all = kendall_units::exact_f64(plot.series.iter().filter(|series| dodged(series)).count());
    let step = (24.0 / all.max(1.0)).min(4.0);
    let mut place = 0.0;
    let aside = |series: &Series| {
        if !dodged(series) {
            return 0.0;
        }
        place += 1.0;
        (place - (all + 1.0) / 2.0) * step
    };
    plot.series.iter().map(aside).collect()
}

fn longest(ticks: &[(f64, String)]) -> f64 {
    kendall_units::exact_f64(
        ticks.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0),
    )
}

pub(super) fn shortened(label: &str, most: usize) -> String {
    if label.chars().count() <= most {
        return label.to_owned();
    }
    label.chars().take(most - 1).chain(['…']).collect()
}

pub fn draw(plot: &Plot, width: Width) -> String {
    let frame = Frame::new(plot, width);
    let mut out = String::new();
    let class = if width == Width::Wide { "wide" } else { "narrow" };
    put!(
        &mut out,
        "<svg class=\"chart {class}\" viewBox=\"0 0 {:.0} {:.0}\" role=\"img\" aria-label=\"{}\" \
         data-left=\"{:.1}\" data-top=\"{:.1}\" data-width=\"{:.1}\" data-height=\"{:.1}\" \
         data-x-low=\"{}\" data-x-high=\"{}\" data-y-low=\"{}\" data-y-high=\"{}\">",
        frame.width,
        frame.height,
        escaped(&format!("{}. {}", plot.title, plot.described())),
        frame.left,
        frame.top,
        frame.area_width,
        frame.area_height,
        frame.x.low,
        frame.x.high,
        frame.y.low,
        frame.y.high
    );
    axes(&mut out, &frame, plot);
    put!(
        &mut out,
        "<svg class=\"area\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
         overflow=\"hidden\"><rect class=\"ground\" width=\"100%\" height=\"100%\"/><g class=\"zoom\">",
        frame.left,
        frame.top,
        frame.area_width,
        frame.area_height
    );
    let bars = bar_offsets(plot);
    let aside = dodges(plot);
    for (index, series) in plot.series.iter().enumerate() {
        let bar = Bar { offset: bars[index].0, width: bars[index].1, aside: aside[index] };
        draw_series(&mut out, &frame, series, index, bar);
    }
    out.push_str("</g></svg>");
    if frame.cut {
        put!(
            &mut out,
            "<text class=\"cut\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">some intervals reach \
                 beyond the drawing</text>",
            frame.left + frame.area_width,
            frame.top - 4.0
        );
    }
    out.push_str("</svg>");
    out
}

/// Draws the plot as a file of its own: title, drawing and legend, with the report's style sheet
/// inside.
pub fn standalone(plot: &Plot) -> String {
    const WIDTH: f64 = 760.0;
    const TITLE: f64 = 34.0;
    let height = Frame::new(plot, Width::Wide).height;
    let (legend, rows) = legend(plot, WIDTH);
    let whole = TITLE + height + 20.0 * rows + 12.0;
    let style = include_str!("../../templates/report.css");
    let mut out = String::new();
    put!(
        &mut out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart wide\" \
             viewBox=\"0 0 {WIDTH:.0} {whole:.0}\" role=\"img\" aria-label=\"{title}\">\
             <style><![CDATA[{style}]]></style>\
             <text x=\"14\" y=\"22\" style=\"font-weight:600;font-size:15px\">{title}</text>\
             <svg y=\"{TITLE:.0}\" width=\"{WIDTH:.0}\" height=\"{height:.0}\">{drawn}</svg>\
             <g transform=\"translate(0 {below:.0})\">{legend}</g></svg>\n",
        title = escaped(&plot.title),
        drawn = draw(plot, Width::Wide),
        below = TITLE + height + 12.0
    );
    out
}

/// A sample of each series with its name, in rows; and how many rows.
fn legend(plot: &Plot, width: f64) -> (String, f64) {
    let mut out = String::new();
    let mut seen: Vec<(&str, usize)> = Vec::new();
    let (mut x, mut row) = (14.0, 0.0);
    for series in &plot.series {
        if seen.contains(&(&series.name, series.color)) {
            continue;
        }
        seen.push((&series.name, series.color));
        let name = shortened(&series.name, 90);
        let characters = u32::try_from(name.chars().count()).unwrap_or(u32::MAX);
        let needed = 44.0 + CHARACTER * f64::from(characters);
        if x + needed > width && x > 14.0 {
            x = 14.0;
            row += 1.0;
        }
        let y = 20.0 * row;
        put!(
            &mut out,
            "<g class=\"series c{} d{}\">",
            series.color % COLORS,
            (series.color / COLORS) % 3
        );
        let sample = format!("M{x:.1} {y:.1}h24");
        match series.mark {
            Mark::Line => stroke(&mut out, "line", &sample),
            Mark::Dashed => stroke(&mut out, "line dashed", &sample),
            Mark::Bars | Mark::Steps | Mark::Area => {
                stroke(&mut out, "bar", &format!("M{x:.1} {:.1}h24v10h-24z", y - 5.0));
            }
            Mark::Cells(shade) => {
                let sample = format!("M{x:.1} {:.1}h24v10h-24z", y - 5.0);
                stroke(&mut out, &format!("cell k{shade}"), &sample);
            }
            Mark::Points => {}
        }
        if matches!(series.mark, Mark::Line | Mark::Points) {
            let shape = SHAPES[series.color % SHAPES.len()];
            let point = format!("M{:.1} {y:.1}h.01", x + 12.0);
            stroke(&mut out, &format!("mark {shape}"), &point);
            if shape.ends_with("hollow") {
                stroke(&mut out, &format!("hole {shape}"), &point);
            }
        }
        put!(
            &mut out,
            "</g><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x + 30.0,
            y + 4.0,
            escaped(&name)
        );
        x += needed;
    }
    (out, row + 1.0)
}

fn axes(out: &mut String, frame: &Frame, plot: &Plot) {
    let bottom = frame.top + frame.area_height;
    out.push_str("<g class=\"y-ticks\">");
    for (value, label) in &frame.y_ticks {
        let Some(down) = frame.down(*value) else { continue };
        let y = frame.top + down;
        put!(
            out,
            "<path class=\"grid\" d=\"M{:.1} {y:.1}h{:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            frame.left,
            frame.area_width,
            frame.left - 6.0,
            y + 4.0,
            escaped(label)
        );
    }
    out.push_str("</g><g class=\"x-ticks\">");
    for (value, label) in &frame.x_ticks {
        let Some(across) = frame.across(*value) else { continue };
        let x = frame.left + across;
        put!(out, "<path class=\"tick\" d=\"M{x:.1} {bottom:.1}v5\"/>");
        let y = bottom + 18.0;
        if frame.slanted {
            put!(
                out,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"end\" \
                 transform=\"rotate(-40 {x:.1} {y:.1})\">{}</text>",
                escaped(label)
            );
        } else {
            put!(
                out,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>",
                escaped(label)
            );
        }
    }
    put!(
        out,
        "</g><path class=\"axis\" d=\"M{:.1} {:.1}V{bottom:.1}h{:.1}\"/>\
         <text class=\"label\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
         <text class=\"label\" text-anchor=\"middle\" transform=\"translate(13 {:.1}) rotate(-90)\">{}</text>",
        frame.left,
        frame.top,
        frame.area_width,
        frame.left + frame.area_width / 2.0,
        frame.height - 8.0,
        escaped(&plot.x.label),
        frame.top + frame.area_height / 2.0,
        escaped(&plot.y.label)
    );
}

/// Offset and width of each series' bars and cells in units of the abscissa; (0, 0) for what has none.
pub(crate) fn bar_offsets(plot: &Plot) -> Vec<(f64, f64)> {
    let bars = plot.series.iter().filter(|series| series.mark == Mark::Bars).count();
    let width = BARS_FILL / kendall_units::exact_f64(bars.max(1));
    let cell = heat::cell_width(plot);
    let mut place = 0_u32;
    let offset = |series: &Series| {
        if matches!(series.mark, Mark::Cells(_)) {
            return (0.0, cell);
        }
        if series.mark != Mark::Bars {
            return (0.0, 0.0);
        }
        place += 1;
        ((f64::from(place) - 0.5) * width - BARS_FILL / 2.0, width)
    };
    plot.series.iter().map(offset).collect()
}

/// Where a series is drawn beside its abscissa: bars in the units of the axis, lines in those of the
/// drawing.
#[derive(Clone, Copy)]
struct Bar {
    offset: f64,
    width: f64,
    aside: f64,
}

fn draw_series(out: &mut String, frame: &Frame, series: &Series, index: usize, bar: Bar) {
    let shape = SHAPES[series.color % SHAPES.len()];
    put!(
        out,
        "<g class=\"series c{} d{}\" data-series=\"{index}\">",
        series.color % COLORS,
        (series.color / COLORS) % 3
    );
    match series.mark {
        Mark::Line => {
            stroke(out, "line", &line(frame, series, bar.aside));
            stroke(out, "error", &errors(frame, series, bar));
            marks(out, frame, series, (shape, bar.aside));
        }
        Mark::Points => {
            stroke(out, "error", &errors(frame, series, bar));
            marks(out, frame, series, (shape, bar.aside));
        }
        Mark::Area => stroke(out, "part", &band(frame, series)),
        Mark::Dashed => stroke(out, "line dashed", &line(frame, series, 0.0)),
        Mark::Bars => {
            stroke(out, "bar", &bars(frame, series, (bar.offset, bar.width)));
            stroke(out, "error dark", &errors(frame, series, bar));
        }
        Mark::Steps => stroke(out, "steps", &steps(frame, series)),
        Mark::Cells(shade) => {
            stroke(
                out,
                &format!("cell k{shade}"),
                &heat::cells(|x, y| frame.place(x, y), series, bar.width),
            );
        }
    }
    out.push_str("</g>");
}

fn stroke(out: &mut String, class: &str, path: &str) {
    if !path.is_empty() {
        put!(out, "<path class=\"{class}\" d=\"{path}\"/>");
    }
}

/// Joined points; a gap where a point cannot be shown.
fn line(frame: &Frame, series: &Series, aside: f64) -> String {
    let mut path = String::new();
    let mut pen_down = false;
    for point in &series.points {
        if let Some((x, y)) = frame.place(point.x, point.y) {
            let x = x + aside;
            put!(&mut path, "{}{x:.1} {y:.1}", if pen_down { "L" } else { "M" });
            pen_down = true;
        } else {
            pen_down = false;
        }
    }
    path
}

/// From end to end of the intervals, along the abscissa and back.
fn band(frame: &Frame, series: &Series) -> String {
    let ends = |upper: bool| {
        series.points.iter().filter_map(move |point| {
            let (low, high) = point.interval?;
            frame.place(point.x, if upper { high } else { low })
        })
    };
    let mut back: Vec<(f64, f64)> = ends(false).collect();
    back.reverse();
    let mut path = String::new();
    for (x, y) in ends(true).chain(back) {
        let pen = if path.is_empty() { "M" } else { "L" };
        put!(&mut path, "{pen}{x:.1} {y:.1}");
    }
    if !path.is_empty() {
        path.push('Z');
    }
    path
}

fn marks(out: &mut String, frame: &Frame, series: &Series, (shape, aside): (&str, f64)) {
    let mut path = String::new();
    for point in &series.points {
        if let Some((x, y)) = frame.place(point.x, point.y) {
            put!(&mut path, "M{:.1} {y:.1}h.01", x + aside);
        }
    }
    stroke(out, &format!("mark {shape}"), &path);
    if shape.ends_with("hollow") {
        stroke(out, &format!("hole {shape}"), &path);
    }
}

/// Vertical lines with caps, one an interval.
fn errors(frame: &Frame, series: &Series, bar: Bar) -> String {
    const CAP: f64 = 4.0;
    let mut path = String::new();
    for point in &series.points {
        let Some((low, high)) = point.interval else { continue };
        let Some(x) = frame.across(point.x + bar.offset).map(|x| x + bar.aside) else { continue };
        // An interval that reaches below a logarithmic axis ends at the axis.
        let bottom = frame.down(low).unwrap_or(frame.area_height);
        let Some(top) = frame.down(high) else { continue };
        put!(
            &mut path,
            "M{x:.1} {bottom:.1}V{top:.1}M{:.1} {bottom:.1}h{w:.1}M{:.1} {top:.1}h{w:.1}",
            x - CAP,
            x - CAP,
            w = 2.0 * CAP
        );
    }
    path
}

fn bars(frame: &Frame, series: &Series, (offset, width): (f64, f64)) -> String {
    let ground = frame.ground();
    let mut path = String::new();
    for point in &series.points {
        let left = frame.across(point.x + offset - width / 2.0);
        let right = frame.across(point.x + offset + width / 2.0);
        if let (Some(left), Some(right), Some(top)) = (left, right, frame.down(point.y)) {
            put!(
                &mut path,
                "M{:.1} {ground:.1}V{top:.1}H{:.1}V{ground:.1}Z",
                left + 1.0,
                right - 1.0
            );
        }
    }
    path
}

/// A filled outline; each point starts a step as wide as the one before it.
fn steps(frame: &Frame, series: &Series) -> String {
    let ground = frame.ground();
    let points = &series.points;
    let mut path = String::new();
    for (index, point) in points.iter().enumerate() {
        let width = match (points.get(index + 1), index.checked_sub(1).map(|i| points[i])) {
            (Some(next), _) => next.x - point.x,
            (None, Some(previous)) => point.x - previous.x,
            (None, None) => 1.0,
        };
        if let (Some((left, top)), Some(right)) =
            (frame.place(point.x, point.y), frame.across(point.x + width))
        {
            if path.is_empty() {
                put!(&mut path, "M{left:.1} {ground:.1}");
            }
            put!(&mut path, "V{top:.1}H{right:.1}");
        }
    }
    if !path.is_empty() {
        put!(&mut path, "V{ground:.1}Z");
    }
    path
}

/// Text for the inside of an element or a quoted attribute.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::Axis;
    use super::*;

    fn plot(mark: Mark, points: Vec<Point>) -> Plot {
        Plot {
            id: "p".to_owned(),
            title: "<script>alert(1)</script>\"'".to_owned(),
            description: "d".to_owned(),
            x: Axis::from_zero("x"),
            y: Axis::from_zero("y"),
            series: vec![Series { name: "s".to_owned(), mark, color: 0, points }],
        }
    }

    #[test]
    fn hostile_titles_stay_text() {
        let svg = draw(&plot(Mark::Line, vec![Point::new(1.0, 1.0)]), Width::Wide);
        assert!(!svg.contains("<script"));
        assert!(svg.contains("&lt;script&gt;"));
    }

    #[test]
    fn no_data_and_data_that_is_no_number_draw_no_nan() {
        for points in [
            vec![],
            vec![Point::new(f64::NAN, 1.0), Point::new(1.0, f64::INFINITY)],
            vec![Point { x: 1.0, y: 1.0, interval: Some((f64::NAN, f64::NAN)) }],
        ] {
            for mark in
                [Mark::Line, Mark::Dashed, Mark::Points, Mark::Bars, Mark::Steps, Mark::Area]
            {
                for width in [Width::Wide, Width::Narrow] {
                    let svg = draw(&plot(mark, points.clone()), width);
                    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
                }
            }
        }
    }

    #[test]
    fn an_interval_is_drawn_from_end_to_end() {
        let point = Point { x: 1.0, y: 2.0, interval: Some((1.0, 3.0)) };
        let svg = draw(&plot(Mark::Line, vec![point]), Width::Wide);
        assert!(svg.contains("class=\"error\""));
    }
}
