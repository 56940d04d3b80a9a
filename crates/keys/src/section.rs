//! Reads one table of a file by the declarations of its keys.

use kendall_units::echo;
use serde_json::{Map, Value as Json, json};
use toml::{Table, Value};

use crate::closest::{closest, did_you_mean};
use crate::key::{Form, Key, Keys, Need};
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

/// One table of a file, with the keys that it may have.
///
/// # Panics
/// Reading a key that is not declared is a defect of the program, and panics.
///
/// # Example
/// ```
/// use kendall_keys::{Key, Section};
///
/// const KEYS: &[Key] = &[Key::count("workers", 1, 64, "workers of each").or("4")];
/// let table = "workres = 8".parse().unwrap();
/// let mut section = Section::new("system", &table, &[KEYS]);
/// assert_eq!(section.count("workers"), Ok(4));
/// assert_eq!(
///     section.finish().unwrap_err().to_string(),
///     "system.workres: no such key; did you mean `workers`? (known here: workers)"
/// );
/// ```
#[derive(Debug)]
pub struct Section<'a> {
    path: String,
    table: &'a Table,
    keys: Vec<&'static [Key]>,
    effective: Map<String, Json>,
}

static EMPTY: std::sync::LazyLock<Table> = std::sync::LazyLock::new(Table::new);

impl<'a> Section<'a> {
    /// A table at a path; the path of the whole file is empty.
    pub fn new(path: &str, table: &'a Table, keys: Keys) -> Self {
        Self { path: path.to_owned(), table, keys: keys.to_vec(), effective: Map::new() }
    }

    /// Declares more keys, once it is known which the table may have.
    pub fn declare(&mut self, keys: &'static [Key]) {
        self.keys.push(keys);
    }

    /// As [`declare`](Self::declare).
    #[must_use]
    pub fn declared(mut self, keys: &'static [Key]) -> Self {
        self.declare(keys);
        self
    }

    /// Dotted path of a key in this table.
    pub fn path_of(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// Dotted path of this table.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// A problem with one key of this table.
    pub fn problem(&self, key: &str, what: impl Into<String>) -> Problem {
        Problem { key: self.path_of(key), what: what.into() }
    }

    /// Whether a key is written.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// A key's value as it is, if it is written.
    pub fn raw(&self, key: &str) -> Option<&'a Value> {
        self.key(key);
        self.table.get(key)
    }

    /// The declaration of a key.
    pub(crate) fn key(&self, name: &str) -> &'static Key {
        let declared = self.keys.iter().flat_map(|group| group.iter()).find(|k| k.name == name);
        declared.unwrap_or_else(|| panic!("`{}.{name}` is read and not declared", self.path))
    }

    pub fn effective(&mut self, key: &str, value: Json) {
        self.effective.insert(key.to_owned(), value);
    }

    /// The value that is written, else the default; `None` where there is neither.
    fn value(&self, key: &Key) -> Result<Option<Value>, Problem> {
        match (self.table.get(key.name), key.need) {
            (Some(value), _) => Ok(Some(value.clone())),
            (None, Need::Default(_)) => Ok(key.default()),
            (None, Need::Optional) => Ok(None),
            (None, Need::Required) => {
                let what = match key.form {
                    Form::Quantity(quantity) => {
                        format!("is missing; write it like {}", quantity.example)
                    }
                    form => format!("is missing; write {}", form.describe()),
                };
                Err(self.problem(key.name, what))
            }
        }
    }

    fn needed<T>(&self, key: &str, value: Option<T>) -> T {
        value.unwrap_or_else(|| {
            panic!("`{}.{key}` is optional and read as if it were not", self.path)
        })
    }

    pub fn text(&mut self, key: &str) -> Result<String, Problem> {
        let text = self.opt_text(key)?;
        Ok(self.needed(key, text))
    }

    /// A word or sentence that may be missing; a choice is checked against its words.
    pub fn opt_text(&mut self, key: &str) -> Result<Option<String>, Problem> {
        let declared = self.key(key);
        let text = match self.value(declared)? {
            None => return Ok(None),
            Some(Value::String(text)) => text,
            Some(other) => {
                return Err(self
                    .problem(key, format!("`{}` is not a text; write it in quotes", echo(other))));
            }
        };
        if let Form::Choice(words) = declared.form
            && !words.contains(&text.as_str())
        {
            let close = closest(&text, words.iter().copied())
                .map_or_else(String::new, |word| format!("; did you mean \"{word}\"?"));
            let form = declared.form.describe();
            return Err(self.problem(key, format!("`{text}` is not known; write {form}{close}")));
        }
        if let Form::Quantity(quantity) = declared.form {
            (quantity.check)(&text).map_err(|what| self.problem(key, what))?;
        }
        self.effective(key, json!(text));
        Ok(Some(text))
    }

    /// One of several things, by its name.
    pub fn choice<T: Copy>(&mut self, key: &str, choices: &[(&str, T)]) -> Result<T, Problem> {
        let word = self.text(key)?;
        choices
            .iter()
            .find(|(name, _)| *name == word)
            .map(|(_, value)| *value)
            .ok_or_else(|| self.problem(key, format!("`{word}` is not known")))
    }

    /// A whole number within bounds.
    pub fn count(&mut self, key: &str) -> Result<u64, Problem> {
        let count = self.opt_count(key)?;
        Ok(self.needed(key, count))
    }

    /// A whole number that may be missing.
    pub fn opt_count(&mut self, key: &str) -> Result<Option<u64>, Problem> {
        let declared = self.key(key);
        let bounds = match declared.form {
            Form::Either(forms) => forms.iter().find_map(bounds),
            form => bounds(&form),
        };
        let (from, to) = bounds.unwrap_or_else(|| {
            panic!("`{}.{key}` is read as a count and declared as something else", self.path)
        });
        let Some(value) = self.value(declared)? else { return Ok(None) };
        let whole = match &value {
            Value::Integer(number) => u64::try_from(*number).ok(),
            // JSON and sweeps may write 8.0 for 8.
            Value::Float(number) if (0.0..9.0e15).contains(number) && number.fract() == 0.0 => {
                format!("{number:.0}").parse().ok()
            }
            _ => None,
        };
        let count = whole.filter(|count| (from..=to).contains(count)).ok_or_else(|| {
            self.problem(key, format!("`{}` is not {}", echo(&value), declared.form.describe()))
        })?;
        self.effective(key, json!(count));
        Ok(Some(count))
    }

    /// As [`count`](Self::count), for numbers that fit 32 bits.
    pub fn small(&mut self, key: &str) -> Result<u32, Problem> {
        let count = self.count(key)?;
        u32::try_from(count).map_err(|_| self.problem(key, format!("`{count}` is too large")))
    }

    /// Any finite number that may be missing.
    pub fn number(&mut self, key: &str) -> Result<Option<f64>, Problem> {
        let declared = self.key(key);
        let Some(value) = self.value(declared)? else { return Ok(None) };
        let number = self.finite(key, &value, &declared.form.describe())?;
        self.effective(key, json!(number));
        Ok(Some(number))
    }

    /// A list of numbers that may be missing; a number alone is a list of one.
    pub fn numbers(&mut self, key: &str) -> Result<Option<Vec<f64>>, Problem> {
        let declared = self.key(key);
        let Some(value) = self.value(declared)? else { return Ok(None) };
        let form = declared.form.describe();
        let numbers = match &value {
            Value::Array(items) => items
                .iter()
                .enumerate()
                .map(|(index, item)| self.finite(&join(key, &index.to_string()), item, &form))
                .collect::<Result<Vec<f64>, _>>()?,
            one => vec![self.finite(key, one, &form)?],
        };
        self.effective(key, json!(numbers));
        Ok(Some(numbers))
    }

    fn finite(&self, key: &str, value: &Value, form: &str) -> Result<f64, Problem> {
        let number = match value {
            Value::Integer(number) => exact(*number),
            Value::Float(number) => Some(*number),
            _ => None,
        };
        number
            .filter(|number| number.is_finite())
            .ok_or_else(|| self.problem(key, format!("`{}` is not {form}", echo(value))))
    }

    /// `true` or `false`.
    pub fn flag(&mut self, key: &str) -> Result<bool, Problem> {
        let flag = match self.value(self.key(key))? {
            Some(Value::Boolean(flag)) => flag,
            None => false,
            Some(other) => {
                return Err(
                    self.problem(key, format!("`{}` is not `true` or `false`", echo(other)))
                );
            }
        };
        self.effective(key, json!(flag));
        Ok(flag)
    }

    /// A quantity with its unit; returns what was written, and its value by `parse`.
    pub fn quantity<T, E: std::fmt::Display>(
        &mut self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<(String, T), Problem> {
        let value = self.value(self.key(key))?;
        // A bare number is refused by `parse`, which knows the accepted form.
        let text = text_of_quantity(self.needed(key, value));
        let value = parse(&text).map_err(|error| self.problem(key, error.to_string()))?;
        self.effective(key, json!(text));
        Ok((text, value))
    }

    /// A list of texts; one text alone is split at spaces.
    pub fn words(&mut self, key: &str) -> Result<Vec<String>, Problem> {
        let form = "a list of texts";
        let words = match self.value(self.key(key))? {
            None => Vec::new(),
            Some(Value::String(line)) => line.split_whitespace().map(str::to_owned).collect(),
            Some(Value::Array(items)) => items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| self.problem(key, format!("is not {form}")))?,
            Some(other) => {
                return Err(self.problem(key, format!("`{}` is not {form}", echo(other))));
            }
        };
        self.effective(key, json!(words));
        Ok(words)
    }

    /// A table inside this one; an empty one when it is not written. Its keys are those that the
    /// declaration has; those of a table of the user's own names are not checked.
    pub fn section(&mut self, key: &str) -> Result<Section<'a>, Problem> {
        let path = self.path_of(key);
        let keys = match self.key(key).form {
            Form::Table(keys) => keys,
            Form::Either(forms) => forms
                .iter()
                .find_map(|form| if let Form::Table(keys) = form { Some(*keys) } else { None })
                .unwrap_or(&[]),
            _ => &[],
        };
        match self.table.get(key) {
            None => Ok(Section::new(&path, &EMPTY, keys)),
            Some(Value::Table(table)) => Ok(Section::new(&path, table, keys)),
            Some(other) => {
                Err(self
                    .problem(key, format!("`{}` is not a table; write `[{path}]`", echo(other))))
            }
        }
    }

    /// A list of tables; empty when it is not written.
    pub fn sections(&mut self, key: &str) -> Result<Vec<Section<'a>>, Problem> {
        let path = self.path_of(key);
        let Form::Tables(keys) = self.key(key).form else {
            panic!("`{path}` is read as a list of tables and declared as something else")
        };
        let items = match self.table.get(key) {
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
                Value::Table(table) => {
                    Ok(Section::new(&join(&path, &index.to_string()), table, keys))
                }
                _ => Err(self.problem(key, format!("is not a list of tables; write `[[{path}]]`"))),
            })
            .collect()
    }

    /// All keys of a table whose names are the user's own.
    pub fn entries(&self) -> Vec<(&'a str, &'a Value)> {
        self.table.iter().map(|(key, value)| (key.as_str(), value)).collect()
    }

    /// The effective values of a table whose names are the user's own.
    pub fn named(self) -> Json {
        Json::Object(self.effective)
    }

    /// The effective values, when every key that is written is declared.
    pub fn finish(self) -> Result<Json, Problem> {
        self.known()?;
        Ok(Json::Object(self.effective))
    }

    /// Refuses the first key that is not declared.
    pub fn known(&self) -> Result<(), Problem> {
        let known: Vec<&str> =
            self.keys.iter().flat_map(|group| group.iter()).map(|key| key.name).collect();
        for key in self.table.keys() {
            if !known.contains(&key.as_str()) {
                let close = did_you_mean(key, known.iter().copied());
                let known = known.join(", ");
                let what = format!("no such key{close} (known here: {known})");
                return Err(self.problem(key, what));
            }
        }
        Ok(())
    }
}

/// The least and the most of a count.
fn bounds(form: &Form) -> Option<(u64, u64)> {
    match form {
        Form::Count { from, to } => Some((*from, *to)),
        _ => None,
    }
}

fn text_of_quantity(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// A whole number as a floating one, where that is exact.
#[expect(clippy::cast_precision_loss, reason = "checked: below 2^53 it is exact")]
fn exact(number: i64) -> Option<f64> {
    (number.unsigned_abs() <= 1 << 53).then_some(number as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Quantity;

    static TIME: Quantity = Quantity {
        name: "a time",
        example: "`40ms` or `2min`",
        check: |text| {
            if text.ends_with("ms") {
                Ok(())
            } else {
                Err(format!("`{text}` is not a time; write it like `40ms`"))
            }
        },
    };

    const KEYS: &[Key] = &[
        Key::quantity("think_time", &TIME, "between requests").or("'0ms'"),
        Key::count("clients", 1, 9, "how many").or("1"),
        Key::choice("loop", &["open", "closed"], "who waits").or("'closed'"),
        Key::text("name", "what it is called"),
        Key::number("share", "a share"),
        Key::texts("options", "further arguments"),
    ];

    fn problem(text: &str, read: impl Fn(&mut Section<'_>) -> Result<(), Problem>) -> String {
        let table: Table = text.parse().unwrap();
        let mut section = Section::new("workload", &table, &[KEYS]);
        let outcome = read(&mut section).and_then(|()| section.finish().map(drop));
        outcome.unwrap_err().to_string()
    }

    #[test]
    fn a_problem_names_the_key_the_value_and_the_accepted_form() {
        let time = |s: &mut Section<'_>| s.text("think_time").map(drop);
        assert_eq!(
            problem("think_time = '40'", time),
            "workload.think_time: `40` is not a time; write it like `40ms`"
        );
        let clients = |s: &mut Section<'_>| s.count("clients").map(drop);
        assert_eq!(
            problem("clients = -1", clients),
            "workload.clients: `-1` is not a whole number from 1 to 9"
        );
        assert!(problem("clients = 1.5", clients).contains("`1.5` is not a whole number"));
        assert!(
            problem("client = 1", clients)
                .starts_with("workload.client: no such key; did you mean `clients`?")
        );
        assert_eq!(
            problem("", |s| s.text("name").map(drop)),
            "workload.name: is missing; write a text in quotes"
        );
        assert_eq!(
            problem("loop = 'opne'", |s| s.text("loop").map(drop)),
            "workload.loop: `opne` is not known; write \"open\" or \"closed\"; did you mean \
             \"open\"?"
        );
        for bad in ["nan", "inf", "'x'", "[1]", "9007199254740993"] {
            let said = problem(&format!("share = {bad}"), |s| s.number("share").map(drop));
            assert!(said.contains("share: ") && said.contains("is not a number"), "{said}");
        }
    }

    #[test]
    fn defaults_are_among_the_effective_values() {
        let table = Table::new();
        let mut section = Section::new("", &table, &[KEYS]);
        section.text("think_time").unwrap();
        assert_eq!(section.words("options").unwrap(), Vec::<String>::new());
        assert_eq!(section.finish().unwrap(), json!({ "think_time": "0ms", "options": [] }));
    }

    #[test]
    #[should_panic(expected = "is read and not declared")]
    fn reading_what_is_not_declared_is_a_defect() {
        let table = Table::new();
        assert!(Section::new("", &table, &[KEYS]).raw("colour").is_none());
    }
}
