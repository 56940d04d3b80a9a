//! Reads one table of a study file, key by key: checks each value, fills in defaults, remembers
//! the effective values, and refuses what nobody asked for.

use kendall_units::{Rate, Seconds};
use serde_json::{Map, Value as Json, json};
use toml::{Table, Value};

use crate::lines::join;

/// A key whose value cannot be used, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct Problem {
    /// Dotted path of the key.
    pub key: String,
    /// What is wrong, with the value and the accepted form.
    pub what: String,
}

/// One table of a study file.
#[derive(Debug)]
pub struct Section<'a> {
    path: String,
    table: &'a Table,
    known: Vec<String>,
    effective: Map<String, Json>,
}

static EMPTY: std::sync::LazyLock<Table> = std::sync::LazyLock::new(Table::new);

impl<'a> Section<'a> {
    /// A table at a path; the path of the whole file is empty.
    #[must_use]
    pub fn new(path: &str, table: &'a Table) -> Self {
        Self { path: path.to_owned(), table, known: Vec::new(), effective: Map::new() }
    }

    /// Dotted path of a key in this table.
    #[must_use]
    pub fn path_of(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// A problem with one key of this table.
    #[must_use]
    pub fn problem(&self, key: &str, what: impl Into<String>) -> Problem {
        Problem { key: self.path_of(key), what: what.into() }
    }

    /// Whether a key is written.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// A key's value as it is, if it is written.
    pub fn raw(&mut self, key: &str) -> Option<&'a Value> {
        self.known(key);
        self.table.get(key)
    }

    fn known(&mut self, key: &str) {
        if !self.known.iter().any(|known| known == key) {
            self.known.push(key.to_owned());
        }
    }

    /// Remembers an effective value.
    pub fn effective(&mut self, key: &str, value: Json) {
        self.effective.insert(key.to_owned(), value);
    }

    /// A word or sentence.
    ///
    /// # Errors
    /// [`Problem`] when it is missing without a default, or no text.
    pub fn text(&mut self, key: &str, default: Option<&str>) -> Result<String, Problem> {
        let text = match (self.raw(key), default) {
            (Some(Value::String(text)), _) => text.clone(),
            (Some(other), _) => {
                return Err(
                    self.problem(key, format!("`{other}` is not a text; write it in quotes"))
                );
            }
            (None, Some(default)) => default.to_owned(),
            (None, None) => return Err(self.problem(key, "is missing; write a text in quotes")),
        };
        self.effective(key, json!(text));
        Ok(text)
    }

    /// One of several words.
    ///
    /// # Errors
    /// [`Problem`] for any other word.
    pub fn choice<T: Copy>(
        &mut self,
        key: &str,
        choices: &[(&str, T)],
        default: Option<&str>,
    ) -> Result<T, Problem> {
        let names: Vec<String> = choices.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        if !self.has(key) && default.is_none() {
            self.known(key);
            return Err(self.problem(key, format!("is missing; write {}", names.join(" or "))));
        }
        let word = self.text(key, default)?;
        choices.iter().find(|(name, _)| *name == word).map(|(_, value)| *value).ok_or_else(|| {
            self.problem(key, format!("`{word}` is not known; write {}", names.join(" or ")))
        })
    }

    /// A whole number within bounds.
    ///
    /// # Errors
    /// [`Problem`] when it is missing without a default, no whole number, or out of bounds.
    pub fn count(
        &mut self,
        key: &str,
        default: Option<u64>,
        bounds: std::ops::RangeInclusive<u64>,
    ) -> Result<u64, Problem> {
        let form = if *bounds.end() == u64::MAX {
            format!("a whole number from {}", bounds.start())
        } else {
            format!("a whole number from {} to {}", bounds.start(), bounds.end())
        };
        let count = match (self.raw(key), default) {
            (None, Some(default)) => default,
            (None, None) => return Err(self.problem(key, format!("is missing; write {form}"))),
            (Some(value), _) => value
                .as_integer()
                .and_then(|number| u64::try_from(number).ok())
                .filter(|count| bounds.contains(count))
                .ok_or_else(|| self.problem(key, format!("`{value}` is not {form}")))?,
        };
        self.effective(key, json!(count));
        Ok(count)
    }

    /// As [`count`](Self::count), for numbers that fit 32 bits.
    ///
    /// # Errors
    /// As [`count`](Self::count).
    pub fn small(
        &mut self,
        key: &str,
        default: Option<u32>,
        bounds: std::ops::RangeInclusive<u32>,
    ) -> Result<u32, Problem> {
        let bounds = u64::from(*bounds.start())..=u64::from(*bounds.end());
        let count = self.count(key, default.map(u64::from), bounds)?;
        u32::try_from(count).map_err(|_| self.problem(key, format!("`{count}` is too large")))
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// [`Problem`] for anything else.
    pub fn flag(&mut self, key: &str, default: bool) -> Result<bool, Problem> {
        let flag = match self.raw(key) {
            None => default,
            Some(Value::Boolean(flag)) => *flag,
            Some(other) => {
                return Err(self.problem(key, format!("`{other}` is not `true` or `false`")));
            }
        };
        self.effective(key, json!(flag));
        Ok(flag)
    }

    /// A quantity with its unit, checked by `parse`; returns what was written, and its value.
    ///
    /// # Errors
    /// [`Problem`] when it is missing without a default, or `parse` refuses it.
    pub fn quantity<T>(
        &mut self,
        key: &str,
        default: Option<&str>,
        parse: impl Fn(&str) -> Result<T, kendall_units::QuantityError>,
    ) -> Result<(String, T), Problem> {
        let text = match (self.raw(key), default) {
            (Some(Value::String(text)), _) => text.clone(),
            // A bare number is refused by `parse`, which knows the accepted form.
            (Some(other), _) => other.to_string(),
            (None, Some(default)) => default.to_owned(),
            (None, None) => {
                let form =
                    parse("").map_or_else(|error| error.example.to_owned(), |_| String::new());
                return Err(self.problem(key, format!("is missing; write it like {form}")));
            }
        };
        let value = parse(&text).map_err(|error| self.problem(key, error.to_string()))?;
        self.effective(key, json!(text));
        Ok((text, value))
    }

    /// A time such as `"40ms"`.
    ///
    /// # Errors
    /// As [`quantity`](Self::quantity).
    pub fn seconds(&mut self, key: &str, default: Option<&str>) -> Result<Seconds, Problem> {
        self.quantity(key, default, kendall_units::parse_seconds).map(|(_, value)| value)
    }

    /// A rate such as `"250/s"`.
    ///
    /// # Errors
    /// As [`quantity`](Self::quantity).
    pub fn rate(&mut self, key: &str, default: Option<&str>) -> Result<Rate, Problem> {
        self.quantity(key, default, kendall_units::parse_rate).map(|(_, value)| value)
    }

    /// A share such as `"2%"` or `0.02`.
    ///
    /// # Errors
    /// As [`quantity`](Self::quantity).
    pub fn share(&mut self, key: &str, default: Option<&str>) -> Result<f64, Problem> {
        self.quantity(key, default, kendall_units::parse_share).map(|(_, value)| value)
    }

    /// A list of texts; one text alone is split at spaces.
    ///
    /// # Errors
    /// [`Problem`] for anything else.
    pub fn words(&mut self, key: &str, default: &[&str]) -> Result<Vec<String>, Problem> {
        let form = "a list of texts";
        let words = match self.raw(key) {
            None => default.iter().map(|word| (*word).to_owned()).collect(),
            Some(Value::String(line)) => line.split_whitespace().map(str::to_owned).collect(),
            Some(Value::Array(items)) => items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| self.problem(key, format!("is not {form}")))?,
            Some(other) => return Err(self.problem(key, format!("`{other}` is not {form}"))),
        };
        self.effective(key, json!(words));
        Ok(words)
    }

    /// A table inside this one; an empty one when it is not written.
    ///
    /// # Errors
    /// [`Problem`] when the key holds something else.
    pub fn section(&mut self, key: &str) -> Result<Section<'a>, Problem> {
        let path = self.path_of(key);
        match self.raw(key) {
            None => Ok(Section::new(&path, &EMPTY)),
            Some(Value::Table(table)) => Ok(Section::new(&path, table)),
            Some(other) => {
                Err(self.problem(key, format!("`{other}` is not a table; write `[{path}]`")))
            }
        }
    }

    /// A list of tables; empty when it is not written.
    ///
    /// # Errors
    /// [`Problem`] when the key holds something else.
    pub fn sections(&mut self, key: &str) -> Result<Vec<Section<'a>>, Problem> {
        let path = self.path_of(key);
        let items = match self.raw(key) {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(_) => {
                return Err(self.problem(key, format!("is not a list; write `[[{path}]]`")));
            }
        };
        items
            .iter()
            .enumerate()
            .map(|(index, item)| match item {
                Value::Table(table) => Ok(Section::new(&join(&path, &index.to_string()), table)),
                _ => Err(self.problem(key, format!("is not a list of tables; write `[[{path}]]`"))),
            })
            .collect()
    }

    /// All keys of a table whose names are the user's own.
    pub fn entries(&mut self) -> Vec<(&'a str, &'a Value)> {
        self.known.extend(self.table.keys().cloned());
        self.table.iter().map(|(key, value)| (key.as_str(), value)).collect()
    }

    /// The effective values, when every key that is written was asked for.
    ///
    /// # Errors
    /// [`Problem`] for the first key that nobody asked for, naming those that are known.
    pub fn finish(self) -> Result<Json, Problem> {
        for key in self.table.keys() {
            if !self.known.contains(key) {
                let close = closest(key, &self.known)
                    .map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
                let known = self.known.join(", ");
                let what = format!("no such key{close} (known here: {known})");
                return Err(self.problem(key, what));
            }
        }
        Ok(Json::Object(self.effective))
    }
}

/// The known word that `key` most likely misspells.
fn closest<'a>(key: &str, known: &'a [String]) -> Option<&'a String> {
    known
        .iter()
        .map(|name| (distance(key, name), name))
        .filter(|(edits, name)| *edits <= 1 + name.chars().count() / 4)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, name)| name)
}

/// Edits (insert, delete, replace) from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str, read: impl Fn(&mut Section<'_>) -> Result<(), Problem>) -> String {
        let table: Table = text.parse().unwrap();
        let mut section = Section::new("workload", &table);
        let outcome = read(&mut section).and_then(|()| section.finish().map(drop));
        outcome.unwrap_err().to_string()
    }

    #[test]
    fn a_problem_names_the_key_the_value_and_the_accepted_form() {
        assert_eq!(
            problem("think_time = 40", |s| s.seconds("think_time", None).map(drop)),
            "workload.think_time: `40` is not a time; write it like `40ms`, `1.5s` or `2min`"
        );
        assert_eq!(
            problem("clients = -1", |s| s.count("clients", None, 1..=9).map(drop)),
            "workload.clients: `-1` is not a whole number from 1 to 9"
        );
        assert_eq!(
            problem("client = 1", |s| s.count("clients", Some(1), 1..=9).map(drop)),
            "workload.client: no such key; did you mean `clients`? (known here: clients)"
        );
    }

    #[test]
    fn defaults_are_among_the_effective_values() {
        let table = Table::new();
        let mut section = Section::new("", &table);
        section.seconds("duration", Some("60s")).unwrap();
        assert_eq!(section.finish().unwrap(), json!({ "duration": "60s" }));
    }
}
