//! One self-contained HTML file: style, script and drawings inside, nothing fetched.
//!
//! All text passes the template's escaping; only the drawings and the data of the script are
//! inserted as they are, and both are escaped where they are made.

use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment};
use serde::Serialize;
use serde_json::json;

use crate::Report;
use crate::answer::Answer;
use kendall_stats::estimate::Estimate;

use crate::document::{Block, Cell, Section, Table, Unit};
use crate::number;
use crate::plot::svg::{self, COLORS, Width};
use crate::plot::{Mark, Plot, Scale};

const TEMPLATE: &str = include_str!("../templates/report.html");
const STYLE: &str = include_str!("../templates/report.css");
const SCRIPT: &str = include_str!("../templates/report.js");

/// Rows of a table on the page at most; the CSV file has all.
const MOST_ROWS: usize = 300;

/// The report as one HTML file; `file` is its name without the ending, as is that of the JSON
/// beside it.
pub fn render(report: &Report, file: &str) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_filter("code", code);
    environment.add_filter("plain", |text: &str| text.replace('`', ""));
    environment.add_template("report.html", TEMPLATE)?;
    let shown = report.answer.as_ref().and_then(|answer| answer.plot.as_ref());
    let sections: Vec<Value> = report.sections.iter().map(|one| section(one, shown)).collect();
    environment.get_template("report.html")?.render(minijinja::context! {
        title => report.title.as_str(),
        name => report.name.as_str(),
        byline => report.byline.as_str(),
        program => report.program.as_str(),
        file,
        style => Value::from_safe_string(STYLE.to_owned()),
        script => Value::from_safe_string(SCRIPT.to_owned()),
        foldable => report.sections.iter().any(|section| section.folded),
        sections,
        answer => report.answer.as_ref().map(answer),
    })
}

/// Text for the page, with what stands in a pair of backquotes as code.
fn code(text: &str) -> Value {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, inside, after)) = in_backquotes(rest) {
        out.push_str(&svg::escaped(before));
        out.push_str("<code>");
        out.push_str(&svg::escaped(inside));
        out.push_str("</code>");
        rest = after;
    }
    out.push_str(&svg::escaped(rest));
    // A line does not begin with a unit.
    Value::from_safe_string(out.replace(" %", "\u{a0}%"))
}

/// What is before, within and after the first pair of backquotes.
fn in_backquotes(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('`')?;
    let (inside, after) = rest.split_once('`')?;
    Some((before, inside, after))
}

fn answer(answer: &Answer) -> Value {
    minijinja::context! {
        question => answer.question.as_str(),
        answer => answer.answer.as_str(),
        trust => Value::from(Serde(&answer.trust)),
        word => answer.trust.level.word(),
        limits => answer.limits.as_deref(),
        model => answer.model.as_deref(),
        next => answer.next.as_str(),
        plot => answer.plot.as_ref().map(plot_view),
        table => Value::from(Serde(answer.table.as_ref().map(TableView::new))),
    }
}

/// A chapter, in which the plot that is shown with the answer is a link to it.
fn section(section: &Section, shown: Option<&Plot>) -> Value {
    let blocks: Vec<Value> = section
        .blocks
        .iter()
        .map(|one| match one {
            Block::Plot(plot) if shown.is_some_and(|shown| shown.draws_the_same(plot)) => {
                minijinja::context! { kind => "elsewhere", content => plot.title.as_str() }
            }
            other => block(other),
        })
        .collect();
    let (id, title, folded) = (section.id, section.title.as_str(), section.folded);
    minijinja::context! { id, title, folded, holds => holds(section), blocks }
}

/// What a folded chapter holds: `3 plots, 2 tables`.
fn holds(section: &Section) -> String {
    let mut plots = 0_usize;
    let mut tables = 0_usize;
    for block in section.all_blocks() {
        match block {
            Block::Plot(_) | Block::Drawing(_) => plots += 1,
            Block::PlotPair(_) => plots += 2,
            Block::Table(_) => tables += 1,
            _ => {}
        }
    }
    let counts = [(plots, "plot"), (tables, "table")].into_iter().filter(|(count, _)| *count > 0);
    counts.map(|(count, of)| number::count(count, of)).collect::<Vec<_>>().join(", ")
}

fn block(block: &Block) -> Value {
    let (kind, content) = match block {
        Block::Heading(text) => ("heading", Value::from(text.as_str())),
        Block::Text(text) => ("text", Value::from(text.as_str())),
        Block::List(items) => ("list", Value::from(Serde(items))),
        Block::Note(note) => (
            "note",
            minijinja::context! {
                level => Value::from(Serde(note.level)),
                word => note.level.word(),
                text => note.text.as_str(),
            },
        ),
        Block::Fold(fold) => (
            "fold",
            minijinja::context! {
                title => fold.title.as_str(),
                blocks => fold.blocks.iter().map(self::block).collect::<Vec<Value>>(),
            },
        ),
        Block::Verbatim(text) => ("verbatim", Value::from(text.as_str())),
        Block::Drawing(drawing) => (
            "drawing",
            minijinja::context! {
                svg => Value::from_safe_string(drawing.svg.clone()),
                description => drawing.description.as_str(),
            },
        ),
        Block::Table(table) => ("table", Value::from(Serde(TableView::parts(table)))),
        Block::Plot(plot) => ("plot", plot_view(plot)),
        Block::PlotPair(pair) => {
            ("plot-pair", Value::from(vec![plot_view(&pair.0), plot_view(&pair.1)]))
        }
    };
    minijinja::context! { kind, content }
}

#[derive(Serialize)]
struct TableView {
    id: String,
    caption: String,
    folded: bool,
    columns: Vec<ColumnView>,
    rows: Vec<Vec<CellView>>,
}

#[derive(Serialize, Clone)]
struct ColumnView {
    label: String,
    numeric: bool,
}

#[derive(Serialize, Default, Clone)]
struct CellView {
    text: String,
    numeric: bool,
    empty: bool,
    plus_minus: Option<String>,
    why: Option<String>,
    doubt: Option<String>,
}

impl TableView {
    fn new(table: &Table) -> Self {
        let mut caption = table.caption.clone();
        if table.rows.len() > MOST_ROWS {
            let all = table.rows.len();
            caption = format!("{caption}: the first {MOST_ROWS} of {all} rows, the file has all");
        }
        // Those without a heading are for files.
        let shown = || table.columns.iter().enumerate().filter(|(_, one)| !one.label.is_empty());
        let columns = shown().map(|(_, column)| ColumnView {
            label: column.label.clone(),
            numeric: column.unit != Unit::Text,
        });
        let rows =
            table.rows.iter().take(MOST_ROWS).map(|row| {
                shown().map(|(at, column)| CellView::new(&row[at], column.unit)).collect()
            });
        Self {
            id: table.id.clone(),
            caption,
            folded: table.folded,
            columns: columns.collect(),
            rows: rows.collect(),
        }
    }

    /// One, or several with fewer columns each: all have those that say what a row is about, which are the first.
    fn parts(table: &Table) -> Vec<Self> {
        /// Columns of one, and of each of several beside the first.
        const MOST: usize = 14;
        const OF_PART: usize = 8;
        const MOST_FIRST: usize = 3;
        let whole = Self::new(table);
        let count = whole.columns.len();
        if count <= MOST {
            return vec![whole];
        }
        let words = whole.columns.iter().take_while(|column| !column.numeric).count();
        let first = (1 + words).min(MOST_FIRST);
        let rest = count - first;
        // One that is left alone goes with those before it.
        let number = rest.div_ceil(OF_PART) - usize::from(rest % OF_PART == 1);
        let part = |at: usize| {
            let from = first + at * OF_PART;
            let to = if at + 1 == number { count } else { from + OF_PART };
            let shown: Vec<usize> = (0..first).chain(from..to).collect();
            Self {
                id: if at == 0 { whole.id.clone() } else { String::new() },
                caption: format!("{}: part {} of {number}", whole.caption, at + 1),
                folded: whole.folded,
                columns: shown.iter().map(|column| whole.columns[*column].clone()).collect(),
                rows: whole
                    .rows
                    .iter()
                    .map(|row| shown.iter().map(|column| row[*column].clone()).collect())
                    .collect(),
            }
        };
        (0..number).map(part).collect()
    }
}

impl CellView {
    fn new(cell: &Cell, unit: Unit) -> Self {
        let numeric = unit != Unit::Text;
        match cell {
            Cell::Text(text) => Self { text: text.clone(), numeric, ..Self::default() },
            Cell::Number(_) | Cell::Count(_) => {
                Self { text: cell.print(unit), numeric, ..Self::default() }
            }
            Cell::Empty(why) => {
                let why = (!why.is_empty()).then(|| why.clone());
                Self { text: "–".to_owned(), numeric, empty: true, why, ..Self::default() }
            }
            Cell::Estimate(estimate) => Self {
                text: unit.print(estimate.center),
                numeric,
                plus_minus: unit.print_spread(estimate),
                why: estimate.interval.map(|i| {
                    let level = number::percent(i.confidence);
                    format!("{level} interval: {} to {}", unit.print(i.low), unit.print(i.high))
                }),
                doubt: doubt(estimate),
                empty: false,
            },
        }
    }
}

fn doubt(estimate: &Estimate) -> Option<String> {
    let doubts: Vec<String> = estimate.caveats.iter().map(ToString::to_string).collect();
    (!doubts.is_empty()).then(|| doubts.join("; "))
}

fn plot_view(plot: &Plot) -> Value {
    let legend: Vec<Value> = plot
        .series
        .iter()
        .enumerate()
        .filter(|(_, series)| !series.name.is_empty())
        .map(|(index, series)| {
            minijinja::context! {
                index,
                name => series.name.as_str(),
                color => series.color % COLORS,
                dash => (series.color / COLORS) % 3,
                key => Value::from_safe_string(key(series.mark, series.color)),
            }
        })
        .collect();
    minijinja::context! {
        id => plot.id.as_str(),
        title => plot.title.as_str(),
        description => plot.described(),
        legend,
        wide => Value::from_safe_string(svg::draw(plot, Width::Wide)),
        narrow => Value::from_safe_string(svg::draw(plot, Width::Narrow)),
        data => Value::from_safe_string(script_data(plot)),
        table => Value::from(Serde(TableView::new(&values(plot)))),
    }
}

/// What the legend shows of a series.
fn key(mark: Mark, color: usize) -> String {
    let line = "<path class=\"line\" d=\"M1 6H27\"/>";
    let shape = svg::SHAPES[color % svg::SHAPES.len()];
    let hole = if shape.ends_with("hollow") {
        format!("<path class=\"hole {shape}\" d=\"M14 6h.01\"/>")
    } else {
        String::new()
    };
    let dot = format!("<path class=\"mark {shape}\" d=\"M14 6h.01\"/>{hole}");
    match mark {
        Mark::Line => format!("{line}{dot}"),
        Mark::Points => dot,
        Mark::Dashed => "<path class=\"line dashed\" d=\"M1 6H27\"/>".to_owned(),
        Mark::Bars | Mark::Area => "<path class=\"bar\" d=\"M6 1H22V11H6Z\"/>".to_owned(),
        Mark::Cells(shade) => format!("<path class=\"cell k{shade}\" d=\"M6 1H22V11H6Z\"/>"),
        Mark::Steps => "<path class=\"steps\" d=\"M4 11V5H11V1H18V7H24V11Z\"/>".to_owned(),
    }
}

/// What the script needs to know of a plot, safe within a `script` element.
fn script_data(plot: &Plot) -> String {
    let offsets = svg::bar_offsets(plot);
    let finite = |value: f64| if value.is_finite() { json!(value) } else { json!(null) };
    let series: Vec<_> = plot
        .series
        .iter()
        .zip(offsets.into_iter().zip(svg::dodges(plot)))
        .map(|(series, ((offset, _), aside))| {
            let points: Vec<_> = series
                .points
                .iter()
                .filter(|point| point.x.is_finite() && point.y.is_finite())
                .map(|point| match point.interval {
                    Some((low, high)) => {
                        json!([point.x + offset, point.y, finite(low), finite(high)])
                    }
                    None => json!([point.x + offset, point.y]),
                })
                .collect();
            let area = series.mark == Mark::Area;
            json!({ "name": series.name, "points": points, "aside": aside, "area": area })
        })
        .collect();
    let categories = match &plot.x.scale {
        Scale::Categories(names) => json!(names),
        _ => json!(null),
    };
    let ground = plot.series.iter().any(|series| matches!(series.mark, Mark::Bars | Mark::Steps));
    json!({
        "x": { "label": plot.x.label, "log": plot.x.scale.is_log(), "categories": categories },
        "y": { "label": plot.y.label, "zero": plot.y.scale == Scale::FromZero, "log": plot.y.scale.is_log() },
        "ground": ground,
        "series": series,
    })
    .to_string()
    .replace('<', "\\u003c")
}

/// The numbers of a plot as a table, for those who cannot see it.
fn values(plot: &Plot) -> Table {
    let categories = match &plot.x.scale {
        Scale::Categories(names) => Some(names),
        _ => None,
    };
    let with_interval = plot
        .series
        .iter()
        .filter(|s| s.mark != Mark::Area)
        .flat_map(|s| &s.points)
        .any(|p| p.interval.is_some());
    let x_unit = if categories.is_some() { Unit::Text } else { Unit::Level };
    let mut table = Table::new("", format!("Values of: {}", plot.title))
        .column("series", "Series", Unit::Text)
        .column("x", plot.x.label.clone(), x_unit)
        .column("y", plot.y.label.clone(), Unit::Plain(4));
    if with_interval {
        table = table.column("low", "from", Unit::Plain(4)).column("high", "to", Unit::Plain(4));
    }
    for series in plot.series.iter().filter(|series| !series.name.is_empty()) {
        for point in &series.points {
            let name = |names: &Vec<String>| {
                let place =
                    usize::try_from(kendall_units::whole_u64(point.x)).unwrap_or(usize::MAX);
                names.get(place).cloned()
            };
            let x = match categories.and_then(name) {
                Some(name) => Cell::Text(name),
                None => Cell::Number(point.x),
            };
            let mut row = vec![series.name.as_str().into(), x, point.y.into()];
            if with_interval {
                let interval = point.interval.filter(|_| series.mark != Mark::Area);
                row.push(Cell::number_or(interval.map(|i| i.0), ""));
                row.push(Cell::number_or(interval.map(|i| i.1), ""));
            }
            table.push(row);
        }
    }
    table
}
