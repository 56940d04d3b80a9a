//! Results as text for a terminal: documents, tables and wrapped lines.

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table as Drawn, Width, presets,
};
use kendall_report::document::{Block, Cell, Level, Section, Table, Unit};

use crate::paint::Paint;
use crate::terminal::{self, Stream};

/// Width that every terminal has.
const USUAL_COLUMNS: usize = 80;

/// The first columns of a table that say what a row is, where they are words.
const NAMES: usize = 2;

/// Width of results: of the terminal, within reason; 80 columns where the output is no terminal.
pub(crate) fn columns() -> usize {
    const MOST_COLUMNS: usize = 160;
    let stated = terminal::columns(Stream::Result).map(usize::from);
    stated.map_or(USUAL_COLUMNS, |width| width.clamp(USUAL_COLUMNS / 2, MOST_COLUMNS))
}

/// Width of lines of text: 80 columns, or as many as there are.
pub(crate) fn line_columns() -> usize {
    columns().min(USUAL_COLUMNS)
}

/// A document without its plots: a line a text, and each remark in the color of its level. Where a width is known, no
/// line is longer.
pub(crate) fn document(document: &Section) -> String {
    let paint = Paint::of_results();
    let width = terminal::columns(Stream::Result).map(|_| columns());
    let fit = |text: &str| width.map_or_else(|| text.to_owned(), |width| cut(text, width));
    let mut text = String::new();
    if !document.title.is_empty() {
        text.push_str(&format!("{}\n", document.title));
    }
    for block in document.all_blocks() {
        match block {
            Block::Heading(words) => text.push_str(&format!("\n{}\n", paint.head(words))),
            Block::Text(words) => text.push_str(&format!("{}\n", fit(words))),
            Block::Verbatim(words) => text.push_str(&format!("{words}\n")),
            Block::List(items) => {
                items.iter().for_each(|item| text.push_str(&(fit(&format!("- {item}")) + "\n")))
            }
            Block::Table(table) => text.push_str(&format!("{}\n", self::table(table))),
            Block::Note(note) => {
                let words = match note.level {
                    Level::Good => paint.good(&fit(&note.text)),
                    Level::Doubt => paint.doubt(&fit(&format!("caveat: {}", note.text))),
                    Level::Bad => paint.bad(&fit(&note.text)),
                };
                text.push_str(&format!("{words}\n"));
            }
            Block::Plot(_) | Block::PlotPair(_) | Block::Drawing(_) | Block::Fold(_) => {}
        }
    }
    text
}

/// A table of a document; columns without a heading are for files only.
pub(crate) fn table(table: &Table) -> String {
    let shown: Vec<usize> =
        (0..table.columns.len()).filter(|at| !table.columns[*at].label.is_empty()).collect();
    let header: Vec<String> = shown.iter().map(|at| table.columns[*at].label.clone()).collect();
    let of = |row: &Vec<Cell>| -> Vec<String> {
        shown.iter().map(|at| row[*at].print(table.columns[*at].unit)).collect()
    };
    let right: Vec<bool> = shown.iter().map(|at| table.columns[*at].unit != Unit::Text).collect();
    let rows: Vec<Vec<String>> = table.rows.iter().map(of).collect();
    fitted(&header, &rows, &right, columns())
}

/// Rows of texts as a table; columns of numbers are right-aligned.
pub(crate) fn grid(header: &[String], rows: impl Iterator<Item = Vec<String>>) -> Table {
    let rows: Vec<Vec<String>> = rows.collect();
    let is_number = |text: &str| {
        let text = text.split_whitespace().next().unwrap_or("");
        text.trim_end_matches('%').parse::<f64>().is_ok() || matches!(text, "" | "–" | "<")
    };
    let mut table = Table::of("table", "", &rows);
    for (at, label) in header.iter().enumerate() {
        let right = rows.iter().all(|row| is_number(&row[at]));
        let unit = if right { Unit::Number } else { Unit::Text };
        // A column without a heading is for files.
        let label = if label.is_empty() { " " } else { label };
        table = table.column(label, label, unit, move |row| row[at].as_str());
    }
    table.table()
}

/// In a frame, or without one, as they fit; then with wrapped words, and at last a paragraph a row, if it has a name.
fn fitted(header: &[String], rows: &[Vec<String>], right: &[bool], columns: usize) -> String {
    let framed = presets::UTF8_FULL_CONDENSED;
    let bare = presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none());
    let drawn = |style, padding: u16, wraps: bool| {
        let mut drawn = Drawn::new();
        drawn.load_style(style).set_header(header).add_rows(rows);
        let arrangement =
            if wraps { ContentArrangement::Dynamic } else { ContentArrangement::Disabled };
        drawn.set_content_arrangement(arrangement);
        drawn.set_width(u16::try_from(columns).unwrap_or(u16::MAX));
        let beside =
            wraps.then(|| beside_figures(header, rows, right, (columns, usize::from(padding))));
        for (at, column) in drawn.column_iter_mut().enumerate() {
            column.set_padding((padding, padding));
            let least = longest_unit(header, rows, (at, right[at])) + 2 * padding;
            let constraint = match beside.flatten().filter(|width| !right[at] && *width > least) {
                Some(width) => ColumnConstraint::Absolute(Width::Fixed(width)),
                None => ColumnConstraint::LowerBoundary(Width::Fixed(least)),
            };
            column.set_constraint(constraint);
            if right[at] {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        drawn.to_string()
    };
    let width = |text: &String| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let tries = [(framed, 1, false), (bare, 0, false), (framed, 1, true), (bare, 0, true)];
    let mut drawings =
        tries.into_iter().map(|(style, padding, wraps)| drawn(style, padding, wraps));
    drawings.find(|text| width(text) <= columns).unwrap_or_else(|| {
        let whole = drawn(bare, 0, false);
        // Rows side by side are worth the end of a line; figures without a name are none in a paragraph.
        let is_named = !right.first().is_some_and(|right| *right);
        let is_far_too_wide = is_named && width(&whole) > columns + columns / 8;
        if columns < USUAL_COLUMNS || is_far_too_wide {
            paragraphs(header, rows, right, columns)
        } else {
            whole
        }
    })
}

/// Width that columns of figures leave to the only one of words.
fn beside_figures(
    header: &[String],
    rows: &[Vec<String>],
    right: &[bool],
    (columns, padding): (usize, usize),
) -> Option<u16> {
    let chars = |text: &String| text.chars().count();
    let width =
        |at: usize| rows.iter().map(|row| chars(&row[at])).max().max(Some(chars(&header[at])));
    let figures = (0..header.len()).filter(|at| right[*at]);
    let taken = figures.clone().filter_map(width).map(|width| width + 2 * padding).sum::<usize>();
    let lines = header.len() + 1;
    let only = figures.count() + 1 == header.len();
    columns.checked_sub(taken + lines).filter(|_| only).and_then(|left| u16::try_from(left).ok())
}

/// Width of a column that breaks no word, and no figure with its unit.
fn longest_unit(header: &[String], rows: &[Vec<String>], (at, whole): (usize, bool)) -> u16 {
    let of_words = |text: &str| text.split_whitespace().map(|word| word.chars().count()).max();
    let of_cell = |cell: &String| if whole { Some(cell.chars().count()) } else { of_words(cell) };
    let cells = rows.iter().filter_map(|row| of_cell(&row[at]));
    let longest = cells.chain(of_words(&header[at])).max().unwrap_or(0);
    u16::try_from(longest).unwrap_or(u16::MAX / 2)
}

/// Each row: what it is called, and below it its figures.
fn paragraphs(header: &[String], rows: &[Vec<String>], right: &[bool], columns: usize) -> String {
    let is_name = |at: usize| at == 0 || (at < NAMES && !right[at]);
    let mut lines = Vec::new();
    for row in rows {
        let cells = || row.iter().enumerate();
        let names: Vec<&str> =
            cells().filter(|(at, _)| is_name(*at)).map(|(_, cell)| cell.as_str()).collect();
        let figures: Vec<String> = cells()
            .filter(|(at, _)| !is_name(*at))
            .map(|(at, cell)| format!("{} {cell}", header[at]))
            .collect();
        lines.push(wrapped_at(&names.join(", "), columns, "  "));
        lines.push(wrapped_at(&format!("- {}", figures.join("; ")), columns, "  "));
    }
    lines.join("\n")
}

/// Parts side by side, in as many rows as it takes: none is cut.
pub(crate) fn beside(parts: &[String], columns: usize) -> String {
    let mut rows: Vec<String> = Vec::new();
    for part in parts {
        match rows.last_mut() {
            Some(row) if row.chars().count() + 2 + part.chars().count() <= columns => {
                row.push_str("  ");
                row.push_str(part);
            }
            _ => rows.push(part.clone()),
        }
    }
    rows.join("\n")
}

/// Lines of at most 80 columns, or as many as there are, further ones indented.
pub(crate) fn wrapped(text: &str) -> String {
    wrapped_at(text, line_columns(), "  ") + "\n"
}

/// The same lines, those that are too long wrapped; what follows a label stays beside it.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    /// Width of the longest label with the blanks behind it.
    const LABEL: usize = 16;
    let line = |line: &str| {
        if line.chars().count() <= columns {
            return line.to_owned();
        }
        let blanks = line.find("  ").filter(|at| *at < LABEL);
        let words = blanks.and_then(|at| Some(at + line.get(at..)?.find(|c: char| c != ' ')?));
        let label = words.and_then(|at| line.split_at_checked(at));
        let Some((label, words)) = label else { return wrapped_at(line, columns, "  ") };
        let indent = " ".repeat(label.chars().count());
        let room = columns.saturating_sub(indent.len());
        label.to_owned() + &wrapped_at(words, room, "").replace('\n', &format!("\n{indent}"))
    };
    text.lines().map(line).collect::<Vec<String>>().join("\n")
}

/// Lines of so many columns; those after the first begin with `indent`.
pub(crate) fn wrapped_at(text: &str, columns: usize, indent: &str) -> String {
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.trim().is_empty() && line.chars().count() + 1 + word.chars().count() > columns {
            lines.push_str(&line);
            lines.push('\n');
            indent.clone_into(&mut line);
        }
        if !line.trim().is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_too_wide_loses_its_frame_and_then_its_columns() {
        let header = ["request", "completed", "throughput", "99 %"].map(str::to_owned);
        let row = ["GET", "123456789012", "12,345.6/s", "1.47 ms"].map(str::to_owned).to_vec();
        let rows = [row];
        let right = [false, true, true, true];
        let at = |columns| fitted(&header, &rows, &right, columns);
        assert!(at(80).contains('│') && !at(45).contains('│'), "{}", at(45));
        let narrow = paragraphs(&header, &rows, &right, 30);
        assert_eq!(
            narrow,
            "GET\n- completed 123456789012;\n  throughput 12,345.6/s; 99 %\n  1.47 ms"
        );
    }

    #[test]
    fn lines_that_are_too_long_are_wrapped_and_labels_stand_alone() {
        let text =
            "model      none of it was measured\n\nshort   as it is\n* one two three four five";
        let cut = cut(text, 24);
        let narrow = "model      none of it\n           was measured\n\nshort   as it is\n\
                      * one two three four\n  five";
        assert_eq!(cut, narrow);
    }

    #[test]
    fn parts_side_by_side_are_not_cut() {
        let parts = ["GET", "completed 12", "99 % 1.47 ms"].map(str::to_owned);
        assert_eq!(beside(&parts, 20), "GET  completed 12\n99 % 1.47 ms");
    }
}
