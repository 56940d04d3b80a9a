//! What a report consists of, before it is HTML, CSV or JSON: sections of text, tables and plots.
//!
//! Values are kept in SI units under keys that name the unit; only the printed form is scaled.

use kendall_stats::estimate::{Caveat, Estimate};
use serde::Serialize;
use serde::ser::{SerializeMap as _, SerializeStruct as _, Serializer};

use crate::number;
use crate::plot::Plot;

/// Rows that a screen shows at once.
const LONG: usize = 24;

#[derive(Debug, Clone, Serialize)]
pub struct Section {
    /// Anchor, and prefix of the names of its tables and plots.
    pub id: &'static str,
    pub title: String,
    /// What it says, in order.
    pub blocks: Vec<Block>,
    /// Folded on the page until it is opened.
    #[serde(skip)]
    pub folded: bool,
}

impl Section {
    pub fn new(id: &'static str, title: impl Into<String>) -> Self {
        Self { id, title: title.into(), blocks: Vec::new(), folded: false }
    }

    pub fn heading(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Heading(text.into()));
    }

    pub fn text(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Text(text.into()));
    }

    pub fn note(&mut self, level: Level, text: impl Into<String>) {
        self.blocks.push(Block::Note(Note { level, text: text.into() }));
    }

    /// Adds items, if there are any.
    pub fn list(&mut self, items: Vec<String>) {
        if !items.is_empty() {
            self.blocks.push(Block::List(items));
        }
    }

    /// Adds a table, if it has rows.
    pub fn table(&mut self, table: Table) {
        if !table.rows.is_empty() {
            self.blocks.push(Block::Table(table));
        }
    }

    /// Adds a plot, if there is something to draw.
    pub fn plot(&mut self, plot: Plot) {
        if plot.series.iter().any(|series| !series.points.is_empty()) {
            self.blocks.push(Block::Plot(plot.at_levels()));
        }
    }

    /// Adds blocks that are folded under a title, if there are any.
    pub fn fold(&mut self, title: impl Into<String>, blocks: Vec<Block>) {
        if !blocks.is_empty() {
            self.blocks.push(Block::Fold(Fold { title: title.into(), blocks }));
        }
    }

    /// Its blocks, with those that are folded in the place of their fold.
    pub fn all_blocks(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().flat_map(|block| match block {
            Block::Fold(fold) => fold.blocks.iter(),
            other => std::slice::from_ref(other).iter(),
        })
    }

    /// Its plots that stand by themselves, and those of what is folded within it.
    pub fn plots(&self) -> impl Iterator<Item = &Plot> {
        self.all_blocks().filter_map(|block| match block {
            Block::Plot(plot) => Some(plot),
            _ => None,
        })
    }

    /// Its tables, and those of what is folded within it.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.all_blocks().filter_map(|block| match block {
            Block::Table(table) => Some(table),
            _ => None,
        })
    }
}

/// A piece of a chapter.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "kind", content = "content", rename_all = "kebab-case")]
pub enum Block {
    /// A heading below the chapter's.
    Heading(String),
    Text(String),
    /// Items without an order.
    List(Vec<String>),
    /// A remark that stands out.
    Note(Note),
    /// A table, also written as a CSV file.
    Table(Table),
    /// A plot, with its data as a table.
    Plot(Plot),
    /// Plots that are to be compared, beside each other where there is room.
    PlotPair(Box<(Plot, Plot)>),
    /// Text as it was written, such as the study file.
    Verbatim(String),
    /// A drawing that is not a plot.
    Drawing(Drawing),
    Fold(Fold),
}

#[derive(Debug, Clone, Serialize)]
pub struct Fold {
    pub title: String,
    pub blocks: Vec<Block>,
}

/// A drawing that is not a plot.
#[derive(Debug, Clone, Serialize)]
pub struct Drawing {
    /// What it is, in SVG whose texts are escaped.
    pub svg: String,
    /// What it shows, in words.
    pub description: String,
}

/// A remark that stands out.
#[derive(Debug, Clone, Serialize)]
pub struct Note {
    pub level: Level,
    pub text: String,
}

/// How a remark stands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// A check that passed.
    Good,
    Doubt,
    /// Something that must not be overlooked.
    Bad,
}

impl Level {
    /// The word that says it without color.
    pub fn word(self) -> &'static str {
        match self {
            Self::Good => "Holds",
            Self::Doubt => "Caveat",
            Self::Bad => "Warning",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Table {
    /// Name of its CSV file and of its key in the JSON.
    pub id: String,
    pub caption: String,
    pub columns: Vec<Column>,
    /// Rows of as many cells as there are columns.
    pub rows: Vec<Vec<Cell>>,
    /// Long tables are folded on the screen.
    pub folded: bool,
}

#[derive(Debug, Clone, Serialize)]
pub struct Column {
    /// Key in JSON and CSV, unit included: `response_time_mean_s`.
    pub key: String,
    /// Heading for people, unit included. A terminal leaves out a column without one.
    pub label: String,
    /// How its numbers are printed.
    #[serde(skip)]
    pub unit: Unit,
}

/// How numbers in SI units are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Text,
    /// As it is, to this many figures.
    Plain(i32),
    /// Seconds, printed in milliseconds.
    Milliseconds,
    /// Seconds, printed in microseconds.
    Microseconds,
    PerSecond,
    /// A share, printed as percent.
    Percent,
    /// A share, printed as percent to this many decimals.
    Share(usize),
    /// A difference as share, printed as percent with its sign.
    SignedPercent,
    Count,
    /// A level or a load: as short as four figures allow.
    Level,
    /// Seconds to this many figures, each time in the unit that reads best.
    Time(i32),
    Rate,
    /// To five figures, where it is no whole number.
    Number,
}

#[derive(Debug, Clone)]
pub enum Cell {
    Text(String),
    /// A number in the column's SI unit.
    Number(f64),
    Count(u64),
    /// A number with its interval.
    Estimate(Estimate),
    Empty(String),
}

impl Cell {
    /// A number, or an empty cell that says why there is none.
    pub fn number_or(value: Option<f64>, why: &str) -> Self {
        value.filter(|v| v.is_finite()).map_or_else(|| Self::Empty(why.to_owned()), Self::Number)
    }

    /// An estimate, or an empty cell that says why there is none.
    pub fn estimate_or(value: Option<&Estimate>, why: &str) -> Self {
        value.map_or_else(|| Self::Empty(why.to_owned()), |e| Self::Estimate(e.clone()))
    }

    /// As text, an estimate with its interval.
    pub fn print(&self, unit: Unit) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(value) => unit.print(*value),
            Self::Count(count) => count.to_string(),
            Self::Empty(_) => "–".to_owned(),
            Self::Estimate(estimate) => {
                let center = unit.print(estimate.center);
                match unit.print_spread(estimate) {
                    Some(spread) => format!("{center} {spread}"),
                    None => center,
                }
            }
        }
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<Estimate> for Cell {
    fn from(estimate: Estimate) -> Self {
        Self::Estimate(estimate)
    }
}

impl<C: Into<Self>> From<Option<C>> for Cell {
    fn from(value: Option<C>) -> Self {
        value.map_or_else(|| Self::Empty(String::new()), Into::into)
    }
}

/// A number, or why there is none: what is not finite is none.
impl From<(Option<f64>, &str)> for Cell {
    fn from((value, why): (Option<f64>, &str)) -> Self {
        let finite = value.filter(|value| value.is_finite());
        finite.map_or_else(|| Self::Empty(why.to_owned()), Self::Number)
    }
}

/// An estimate, or why there is none.
impl From<(Option<Estimate>, &str)> for Cell {
    fn from((value, why): (Option<Estimate>, &str)) -> Self {
        value.map_or_else(|| Self::Empty(why.to_owned()), Self::Estimate)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

impl Unit {
    /// The factor from SI to what is printed.
    pub fn scale(self) -> f64 {
        match self {
            Self::Milliseconds => 1e3,
            Self::Microseconds => 1e6,
            Self::Percent | Self::Share(_) | Self::SignedPercent => 100.0,
            _ => 1.0,
        }
    }

    /// An SI value as printed, without its unit.
    pub fn print(self, value: f64) -> String {
        let scaled = value * self.scale();
        match self {
            Self::Milliseconds | Self::Microseconds => number::significant(scaled, 3),
            Self::PerSecond | Self::Text => number::significant(scaled, 4),
            Self::Plain(figures) => number::significant(scaled, figures),
            Self::Share(decimals) => number::fixed(scaled, decimals),
            Self::Percent => number::percent_in_column(value).trim_end_matches(" %").to_owned(),
            Self::SignedPercent => number::signed_percent(value).trim_end_matches(" %").to_owned(),
            Self::Count => number::fixed(scaled, 0),
            Self::Level => number::plain(scaled),
            Self::Time(figures) => number::time_to(scaled, figures),
            Self::Rate => kendall_units::Rate::per_second(scaled).to_string(),
            Self::Number => number::short(scaled),
        }
    }

    /// `± 12`, or `(40 to 90)` where one side is longer by a tenth; `± ?` where runs differ too much to
    /// have an interval.
    pub fn print_spread(self, estimate: &Estimate) -> Option<String> {
        let Some(interval) = estimate.interval else {
            let refused =
                estimate.caveats.iter().any(|c| matches!(c, Caveat::IntervalTooWide { .. }));
            return refused.then(|| "± ?".to_owned());
        };
        let (below, above) = (estimate.center - interval.low, interval.high - estimate.center);
        if below + above <= 0.0 {
            return None;
        }
        Some(if above > 1.1 * below && below > 0.0 {
            format!("({} to {})", self.print(interval.low), self.print(interval.high))
        } else {
            format!("± {}", self.print_half_width(estimate.center, interval.half_width()))
        })
    }

    /// Half the width of an interval, with as many decimals as the center that it belongs to.
    pub fn print_half_width(self, center: f64, half_width: f64) -> String {
        let printed = self.print(center);
        let decimals = printed.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        let scaled = half_width * self.scale();
        let text = number::fixed(scaled, decimals);
        if text.parse::<f64>() == Ok(0.0) { number::significant(scaled, 1) } else { text }
    }
}

impl Table {
    /// A table without rows yet.
    pub fn new(id: impl Into<String>, caption: impl Into<String>) -> Self {
        let (id, caption) = (id.into(), caption.into());
        Self { id, caption, columns: Vec::new(), rows: Vec::new(), folded: false }
    }

    /// A table of these rows, without columns yet.
    pub fn of<R>(
        id: impl Into<String>,
        caption: impl Into<String>,
        rows: impl IntoIterator<Item = R>,
    ) -> Rows<R> {
        let items: Vec<R> = rows.into_iter().collect();
        let rows = items.iter().map(|_| Vec::new()).collect();
        Rows { items, table: Self { rows, ..Self::new(id, caption) } }
    }

    #[must_use]
    pub fn column(mut self, key: impl Into<String>, label: impl Into<String>, unit: Unit) -> Self {
        self.columns.push(Column { key: key.into(), label: label.into(), unit });
        self
    }

    /// Adds a row.
    ///
    /// # Panics
    /// When it has another number of cells than there are columns.
    pub fn push(&mut self, row: Vec<Cell>) {
        assert_eq!(row.len(), self.columns.len(), "a row of table {} has a cell a column", self.id);
        self.rows.push(row);
    }

    #[must_use]
    pub fn folded(mut self) -> Self {
        self.folded = true;
        self
    }

    /// Folded where it has more rows than a screen shows.
    #[must_use]
    pub fn folded_if_long(self) -> Self {
        if self.rows.len() > LONG { self.folded() } else { self }
    }

    /// Rows as JSON objects with the columns' keys.
    pub fn objects(&self) -> Vec<serde_json::Value> {
        let object = |cells: &Vec<Cell>| serde_json::json!(Row { columns: &self.columns, cells });
        self.rows.iter().map(object).collect()
    }
}

/// A table whose columns say what they show of each row.
#[derive(Debug)]
pub struct Rows<R> {
    items: Vec<R>,
    table: Table,
}

impl<R> Rows<R> {
    /// With one more column, whose cells are of the rows.
    #[must_use]
    pub fn column<C: Into<Cell>>(
        mut self,
        key: impl Into<String>,
        label: impl Into<String>,
        unit: Unit,
        cell: impl Fn(&R) -> C,
    ) -> Self {
        self.table = self.table.column(key, label, unit);
        for (row, item) in self.table.rows.iter_mut().zip(&self.items) {
            row.push(cell(item).into());
        }
        self
    }

    pub fn table(self) -> Table {
        self.table
    }
}

impl Serialize for Table {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Table", 4)?;
        out.serialize_field("id", &self.id)?;
        out.serialize_field("caption", &self.caption)?;
        out.serialize_field("columns", &self.columns)?;
        let rows: Vec<Row<'_>> =
            self.rows.iter().map(|cells| Row { columns: &self.columns, cells }).collect();
        out.serialize_field("rows", &rows)?;
        out.end()
    }
}

/// One row as an object with the columns' keys.
struct Row<'a> {
    columns: &'a [Column],
    cells: &'a [Cell],
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.cells.len()))?;
        for (column, cell) in self.columns.iter().zip(self.cells) {
            match cell {
                Cell::Text(text) => map.serialize_entry(&column.key, text)?,
                Cell::Number(value) => map.serialize_entry(&column.key, value)?,
                Cell::Count(count) => map.serialize_entry(&column.key, count)?,
                Cell::Estimate(estimate) => map.serialize_entry(&column.key, estimate)?,
                Cell::Empty(_) => map.serialize_entry(&column.key, &None::<f64>)?,
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use kendall_stats::estimate::Interval;

    use super::*;

    fn table() -> Table {
        let mut table = Table::new("t", "A table").column("name", "Name", Unit::Text).column(
            "response_time_mean_s",
            "Response time (ms)",
            Unit::Milliseconds,
        );
        let interval = Some(Interval { low: 0.001, high: 0.003, confidence: 0.95 });
        let estimate = Estimate { center: 0.002, interval, caveats: Vec::new() };
        table.push(vec!["a, \"b\"".into(), Cell::Estimate(estimate)]);
        table.push(vec!["=HYPERLINK()".into(), Cell::Empty("not measured".to_owned())]);
        table
    }

    #[test]
    fn csv_quotes_what_it_must_and_spreads_intervals() {
        assert_eq!(
            table().to_csv(),
            "name,response_time_mean_s,response_time_mean_s_low,response_time_mean_s_high\n\
             \"a, \"\"b\"\"\",0.002,0.001,0.003\n'=HYPERLINK(),,,\n"
        );
    }

    #[test]
    fn json_rows_are_objects_in_si_units() {
        let json = serde_json::to_value(table()).unwrap();
        assert_eq!(json["rows"][0]["response_time_mean_s"]["center"], 0.002);
        assert!(json["rows"][1]["response_time_mean_s"].is_null());
    }

    #[test]
    fn half_widths_have_the_decimals_of_their_center() {
        assert_eq!(Unit::Milliseconds.print_half_width(0.0123, 0.000_04), "0.04");
        assert_eq!(Unit::PerSecond.print_half_width(7538.6, 12.3), "12");
        assert_eq!(Unit::PerSecond.print_half_width(7538.6, 0.2), "0.2");
    }
}
