//! Named outputs of a solved case.

use std::collections::BTreeMap;

/// A number, or numbers by station, by class, or by station and class.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    Number(f64),
    List(Vec<f64>),
    /// Lists of a list: by station, then by class.
    Table(Vec<Vec<f64>>),
    Word(String),
}

impl Output {
    /// Its numbers, row by row; none for a word.
    pub fn numbers(&self) -> Vec<f64> {
        match self {
            Self::Number(number) => vec![*number],
            Self::List(list) => list.clone(),
            Self::Table(rows) => rows.concat(),
            Self::Word(_) => Vec::new(),
        }
    }

    pub(crate) fn map(self, f: impl Fn(f64) -> f64) -> Self {
        match self {
            Self::Number(value) => Self::Number(f(value)),
            Self::List(list) => Self::List(list.into_iter().map(f).collect()),
            Self::Table(rows) => {
                Self::Table(rows.into_iter().map(|row| row.into_iter().map(&f).collect()).collect())
            }
            word @ Self::Word(_) => word,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// The kind that was solved, as it was written.
    pub kind: String,
    /// Formula or algorithm behind the main outputs.
    pub solver: String,
    /// `exact`, `bound`, `approximation` or `estimate`: of the main outputs. Others have the name
    /// of what they come from in front (`schweitzer_throughput`).
    pub accuracy: String,
    /// What the answer rests on.
    pub caveats: Vec<String>,
    /// Outputs by name, with their unit.
    pub outputs: BTreeMap<String, (Output, String)>,
}

impl Answer {
    pub(crate) fn new(solver: &str, accuracy: &str) -> Self {
        Self { solver: solver.to_owned(), accuracy: accuracy.to_owned(), ..Self::default() }
    }

    pub(crate) fn put(&mut self, name: &str, output: Output, unit: &str) {
        self.outputs.insert(name.to_owned(), (output, unit.to_owned()));
    }

    pub(crate) fn number(&mut self, name: &str, value: f64, unit: &str) {
        self.put(name, Output::Number(value), unit);
    }

    pub(crate) fn maybe(&mut self, name: &str, value: Option<f64>, unit: &str) {
        if let Some(value) = value {
            self.number(name, value, unit);
        }
    }

    pub(crate) fn list(&mut self, name: &str, values: Vec<f64>, unit: &str) {
        self.put(name, Output::List(values), unit);
    }

    pub(crate) fn table(&mut self, name: &str, rows: Vec<Vec<f64>>, unit: &str) {
        // One station: its classes, without another pair of brackets.
        if let [row] = &rows[..] {
            self.list(name, row.clone(), unit);
        } else {
            self.put(name, Output::Table(rows), unit);
        }
    }

    pub(crate) fn word(&mut self, name: &str, word: &str) {
        self.put(name, Output::Word(word.to_owned()), "");
    }
}
