//! CSV files of measurements. Every refusal names file, line and column.

use std::path::{Path, PathBuf};

use anyhow::anyhow;

use crate::csv;
use crate::exit::refused;

#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
pub(super) enum TimeUnit {
    #[default]
    S,
    Ms,
    Us,
    Ns,
}

impl TimeUnit {
    fn in_seconds(self) -> f64 {
        match self {
            Self::S => 1.0,
            Self::Ms => 1e-3,
            Self::Us => 1e-6,
            Self::Ns => 1e-9,
        }
    }
}

/// A file of numbers with named columns.
#[derive(Debug)]
pub(super) struct Measurements {
    path: PathBuf,
    /// Names of the columns; their numbers from 1 on where the file has no header.
    pub(super) columns: Vec<String>,
    rows: Vec<(usize, Vec<String>)>,
}

impl Measurements {
    /// Reads a file with commas, semicolons or tabs between fields, and `#` before remarks. The
    /// first line is a header unless all of it is numbers.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = kendall_tier::read_text(path, kendall_tier::LARGEST_FILE)
            .map_err(|error| refused(anyhow!("{}: cannot be read: {error}", path.display())))?;
        let first = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let first = first.ok_or_else(|| {
            let message = "the file is empty; expected a header and a row for each measurement";
            refused(anyhow!("{}: {message}", path.display()))
        })?;
        let delimiter = [b',', b';', b'\t']
            .into_iter()
            .find(|delimiter| first.as_bytes().contains(delimiter))
            .unwrap_or(b',');
        let text = text.trim_start_matches('\u{feff}');
        let mut rows = csv::records(text, delimiter, Some(b'#'))
            .map_err(|(line, what)| refused(format!("{}:{line}: {what}", path.display())))?;
        let wanted = rows.first().map_or(0, |(_, cells)| cells.len());
        if let Some((line, cells)) = rows.iter().find(|(_, cells)| cells.len() != wanted) {
            let fields = kendall_units::counted(cells.len(), "field");
            let message = format!("{fields} where the first line has {wanted}");
            return Err(refused(anyhow!("{}:{line}: {message}", path.display())));
        }
        let numbers = rows.first().is_some_and(|(_, r)| r.iter().all(|f| f.parse::<f64>().is_ok()));
        let columns = if numbers {
            (1..=rows[0].1.len()).map(|column| column.to_string()).collect()
        } else {
            rows.remove(0).1
        };
        Ok(Self { path: path.to_owned(), columns, rows })
    }

    /// The column of this name, in any case; a number counts columns from 1.
    pub(super) fn column(&self, name: &str) -> anyhow::Result<usize> {
        let found = self.columns.iter().position(|column| column.eq_ignore_ascii_case(name));
        let counted = name.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        found.or(counted.filter(|index| *index < self.columns.len())).ok_or_else(|| {
            self.refuse(&format!(
                "there is no column `{name}`; the file has {}",
                self.columns.join(", ")
            ))
        })
    }

    /// The first column that has one of these names, or starts with one of them before `_`.
    pub(super) fn named_like(&self, names: &[&str]) -> Vec<usize> {
        let like = |column: &str| {
            let lower = column.to_ascii_lowercase();
            let head = lower.split(['_', ' ', '(', '[', '.']).next().unwrap_or("");
            names.iter().any(|name| lower == *name || head == *name)
        };
        (0..self.columns.len()).filter(|index| like(&self.columns[*index])).collect()
    }

    /// The different texts of a column, in the order of the file.
    pub(super) fn texts(&self, column: usize) -> Vec<&str> {
        let mut texts: Vec<&str> = Vec::new();
        for text in self.rows.iter().filter_map(|(_, row)| row.get(column)) {
            if !texts.contains(&text.as_str()) {
                texts.push(text);
            }
        }
        texts
    }

    /// Leaves only the rows that have this text in a column.
    pub(super) fn keep(&mut self, column: usize, text: &str) -> anyhow::Result<()> {
        let known = self.texts(column);
        if !known.contains(&text) {
            let what = format!(
                "`{text}` is not in `{}`, which has {}",
                self.columns[column],
                known.join(", ")
            );
            return Err(self.refuse(&what));
        }
        self.rows.retain(|(_, row)| row.get(column).is_some_and(|field| field == text));
        Ok(())
    }

    pub(super) fn numbers(&self, column: usize) -> anyhow::Result<Vec<f64>> {
        self.rows
            .iter()
            .map(|(line, row)| {
                let field = row.get(column).map_or("", String::as_str);
                field.parse::<f64>().ok().filter(|value| value.is_finite()).ok_or_else(|| {
                    self.refuse_at(*line, column, &format!("`{field}` is not a number"))
                })
            })
            .collect()
    }

    /// All times of a column, in seconds.
    pub(super) fn times(&self, column: &str, unit: TimeUnit) -> anyhow::Result<Vec<f64>> {
        let numbers = self.numbers(self.column(column)?)?;
        Ok(numbers.into_iter().map(|time| time * unit.in_seconds()).collect())
    }

    pub(super) fn line(&self, row: usize) -> usize {
        self.rows.get(row).map_or(0, |(line, _)| *line)
    }

    /// A refusal of the file as a whole.
    pub(super) fn refuse(&self, message: &str) -> anyhow::Error {
        refused(anyhow!("{}: {message}", self.path.display()))
    }

    pub(super) fn refuse_row(&self, row: usize, message: &str) -> anyhow::Error {
        let at = format!("{}:{}", self.path.display(), self.line(row));
        refused(anyhow!("{at}: {message}"))
    }

    fn refuse_at(&self, line: usize, column: usize, message: &str) -> anyhow::Error {
        let at = format!("{}:{line}", self.path.display());
        let name = self.columns.get(column).map_or("?", String::as_str);
        refused(anyhow!("{at}: column `{name}` ({}): {message}", column + 1))
    }
}
