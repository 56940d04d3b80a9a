//! Tables as columns of one kind of value each, as other programs take them.

use std::io::Write;

use kendall_store::{Column, Values};
use kendall_units::hex;

use crate::document::{Cell, Table, Unit};

impl Table {
    /// Its columns; an estimate is three of them, with the ends of its interval behind it.
    pub fn to_columns(&self) -> Vec<Column> {
        let mut columns = Vec::new();
        for (at, column) in self.columns.iter().enumerate() {
            let cells: Vec<&Cell> = self.rows.iter().map(|row| &row[at]).collect();
            columns.push(Column { name: column.key.clone(), values: values(&cells, column.unit) });
            if !cells.iter().any(|cell| matches!(cell, Cell::Estimate(_))) {
                continue;
            }
            for (end, is_high) in [("low", false), ("high", true)] {
                let values = cells.iter().map(|cell| match cell {
                    Cell::Estimate(estimate) => {
                        estimate.interval.map(|i| if is_high { i.high } else { i.low })
                    }
                    _ => None,
                });
                let name = format!("{}_{end}", column.key);
                columns.push(Column { name, values: Values::Real(values.collect()) });
            }
        }
        columns
    }

    /// As CSV: keys in the first row, estimates as three columns.
    pub fn to_csv(&self) -> String {
        let columns = self.to_columns();
        let mut writer = csv::Writer::from_writer(Vec::new());
        csv_head(&columns, &mut writer)
            .and_then(|()| csv_rows(&columns, &mut writer))
            .expect("memory takes all, and each row has the head's cells");
        let bytes = writer.into_inner().expect("memory takes all that is written");
        String::from_utf8(bytes).expect("made of texts")
    }
}

/// Of one kind for all rows: text where any cell is text, whole numbers where all are counts.
fn values(cells: &[&Cell], unit: Unit) -> Values {
    if unit == Unit::Text || cells.iter().any(|cell| matches!(cell, Cell::Text(_))) {
        return Values::Text(cells.iter().map(|cell| text(cell)).collect());
    }
    let counts = cells.iter().map(|cell| match cell {
        Cell::Count(count) => i64::try_from(*count).map(Some).map_err(drop),
        Cell::Empty(_) => Ok(None),
        _ => Err(()),
    });
    match counts.collect::<Result<Vec<_>, ()>>() {
        Ok(counts) if counts.iter().any(Option::is_some) => Values::Integer(counts),
        _ => Values::Real(cells.iter().map(|cell| number(cell)).collect()),
    }
}

fn text(cell: &Cell) -> Option<String> {
    match cell {
        Cell::Text(text) => Some(text.clone()),
        Cell::Count(count) => Some(count.to_string()),
        other => number(other).map(|value| value.to_string()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count beyond 53 bits among numbers")]
fn number(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::Number(value) => Some(*value),
        Cell::Count(count) => Some(*count as f64),
        Cell::Estimate(estimate) => Some(estimate.center),
        Cell::Text(_) | Cell::Empty(_) => None,
    }
}

/// Writes the names of columns.
pub fn csv_head<W: Write>(columns: &[Column], to: &mut csv::Writer<W>) -> csv::Result<()> {
    to.write_record(columns.iter().map(|column| no_formula(&column.name)))
}

/// Writes rows; bytes in hexadecimal.
pub fn csv_rows<W: Write>(columns: &[Column], to: &mut csv::Writer<W>) -> csv::Result<()> {
    let rows = columns.first().map_or(0, |column| column.values.len());
    (0..rows).try_for_each(|row| to.write_record(columns.iter().map(|c| csv_cell(&c.values, row))))
}

fn csv_cell(values: &Values, row: usize) -> String {
    let cell = match values {
        Values::Integer(values) => values[row].map(|value| value.to_string()),
        Values::Real(values) => values[row].map(|value| value.to_string()),
        Values::Text(values) => values[row].as_deref().map(no_formula),
        Values::Bytes(values) => values[row].as_deref().map(hex),
    };
    cell.unwrap_or_default()
}

/// A text that a spreadsheet would run as a formula is told apart by an apostrophe.
fn no_formula(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '@']) || (text.starts_with('-') && text.len() > 1);
    if formula { format!("'{text}") } else { text.to_owned() }
}
