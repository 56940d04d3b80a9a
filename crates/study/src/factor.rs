//! What is varied: a dotted key of the study file, and its levels.

use kendall_store::FactorLevel;
use kendall_units::exact_f64;
use toml::{Table, Value};

use crate::section::{Problem, Section};

/// Levels that one factor may have; a longer list is a slip of the pen.
const MOST_LEVELS: usize = 1_000;

/// One factor.
#[derive(Debug, Clone, PartialEq)]
pub struct Factor {
    /// Dotted key of the study file.
    pub key: String,
    /// Values that the key takes, in the order of the file.
    pub levels: Vec<Value>,
}

impl Factor {
    /// Reads `[factors]`, in the order of the file.
    pub(crate) fn read_all(mut section: Section<'_>) -> Result<Vec<Self>, Problem> {
        let mut factors = Vec::new();
        for (key, value) in section.entries() {
            let levels = match value {
                Value::Array(levels) => levels.clone(),
                Value::Table(range) if range.contains_key("from") => {
                    steps(Section::new(&section.path_of(key), range))?
                }
                other => {
                    let form = "a list such as [8, 16] or { from = 6, to = 198, step = 24 }";
                    return Err(section.problem(key, format!("`{other}` is not {form}")));
                }
            };
            if levels.is_empty() || levels.len() > MOST_LEVELS {
                let what = format!("has {} levels; give 1 to {MOST_LEVELS}", levels.len());
                return Err(section.problem(key, what));
            }
            if let Some(twice) = first_duplicate(&levels) {
                return Err(section.problem(key, format!("has the level `{twice}` twice")));
            }
            factors.push(Self { key: key.to_owned(), levels });
        }
        Ok(factors)
    }

    /// The stored form of one level.
    #[must_use]
    pub fn level(&self, index: usize) -> FactorLevel {
        let value = &self.levels[index];
        FactorLevel {
            factor: self.key.clone(),
            level: u32::try_from(index).unwrap_or(u32::MAX),
            text: text_of(value),
            number: number_of(value),
        }
    }

    /// Puts one level into a study file's table.
    pub(crate) fn apply(&self, index: usize, file: &mut Table) -> Result<(), Problem> {
        set(file, &self.key, self.levels[index].clone())
            .map_err(|what| Problem { key: format!("factors.{}", self.key), what })
    }
}

/// Puts a value at a dotted key; tables on the way are made.
pub(crate) fn set(file: &mut Table, key: &str, value: Value) -> Result<(), String> {
    // `factors.system.workers` names one key inside `[factors]`, and links have dots in names.
    let mut parts: Vec<&str> = match key.split_once('.') {
        Some(("factors", rest)) => vec!["factors", rest],
        Some(("links", rest)) => match rest.rsplit_once('.') {
            Some((link, last)) => vec!["links", link, last],
            None => vec!["links", rest],
        },
        _ => key.split('.').collect(),
    };
    let last = parts.pop().unwrap_or(key);
    let mut table = file;
    for part in parts {
        let inner = table.entry(part).or_insert_with(|| Value::Table(Table::new()));
        table = inner
            .as_table_mut()
            .ok_or_else(|| format!("`{part}` in `{key}` is not a table of the study file"))?;
    }
    table.insert(last.to_owned(), value);
    Ok(())
}

fn steps(mut range: Section<'_>) -> Result<Vec<Value>, Problem> {
    let mut read = |key: &str| -> Result<f64, Problem> {
        let value = range.raw(key).cloned();
        value.as_ref().and_then(plain_number).ok_or_else(|| {
            let form = "a number, as in { from = 6, to = 198, step = 24 }";
            range.problem(
                key,
                value.map_or(format!("is missing; write {form}"), |value| {
                    format!("`{value}` is not {form}")
                }),
            )
        })
    };
    let (from, to, step) = (read("from")?, read("to")?, read("step")?);
    if step <= 0.0 || to < from {
        let what = format!(
            "from {from} to {to} step {step} gives no levels; let step be positive and to ≥ from"
        );
        return Err(range.problem("step", what));
    }
    let whole = [from, to, step].iter().all(|number| number.fract() == 0.0);
    range.finish()?;
    let count = ((to - from) / step * (1.0 + 1e-12) + 1e-9).floor();
    let steps = kendall_units::whole_u64(count).min(u64::try_from(MOST_LEVELS).unwrap_or(u64::MAX));
    Ok((0..=steps)
        .map(|index| exact_f64(index).mul_add(step, from))
        .map(|value| if whole { Value::Integer(integer(value)) } else { Value::Float(value) })
        .collect())
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "whole numbers of a study file, far below 2^53"
)]
fn integer(value: f64) -> i64 {
    value as i64
}

fn plain_number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => i32::try_from(*number).ok().map(f64::from),
        Value::Float(number) => Some(*number).filter(|number| number.is_finite()),
        _ => None,
    }
}

fn first_duplicate(levels: &[Value]) -> Option<&Value> {
    levels
        .iter()
        .enumerate()
        .find(|(index, level)| levels[..*index].contains(level))
        .map(|(_, l)| l)
}

/// A value as written, without the quotes of a text.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Table(table) => {
            let parts: Vec<String> =
                table.iter().map(|(key, value)| format!("{key}={}", text_of(value))).collect();
            parts.join(",")
        }
        other => other.to_string(),
    }
}

/// A value as a number in base units, where it is one.
fn number_of(value: &Value) -> Option<f64> {
    let Value::String(text) = value else { return plain_number(value) };
    kendall_units::parse_seconds(text)
        .map(kendall_units::Seconds::get)
        .ok()
        .or_else(|| kendall_units::parse_bytes(text).ok().map(exact_f64))
        .or_else(|| kendall_units::parse_rate(text).ok().map(kendall_units::Rate::get))
        .or_else(|| kendall_units::parse_share(text).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Factor>, Problem> {
        let table: Table = text.parse().unwrap();
        Factor::read_all(Section::new("factors", &table))
    }

    #[test]
    fn a_range_includes_its_end() {
        let factors = read("\"workload.clients\" = { from = 6, to = 198, step = 24 }").unwrap();
        assert_eq!(factors[0].levels.len(), 9);
        assert_eq!(factors[0].level(8).number, Some(198.0));
        let tenths = read("\"a.b\" = { from = 0.1, to = 0.5, step = 0.1 }").unwrap();
        assert_eq!(tenths[0].levels.len(), 5);
    }

    #[test]
    fn levels_keep_what_was_written_and_their_number_in_base_units() {
        let factors = read("a = ['1KiB', '4ms', 'hash', { set = 1 }]").unwrap();
        let levels: Vec<_> = (0..4).map(|index| factors[0].level(index)).collect();
        assert_eq!(levels[0].number, Some(1024.0));
        assert_eq!(levels[1].number, Some(0.004));
        assert_eq!(levels[2].number, None);
        assert_eq!(levels[3].text, "set=1");
    }

    #[test]
    fn bad_levels_are_refused() {
        for (text, part) in [
            ("a = []", "0 levels"),
            ("a = [1, 1]", "twice"),
            ("a = 3", "is not a list"),
            ("a = { from = 1, to = 0, step = 1 }", "no levels"),
            ("a = { from = 1, to = 2 }", "step: is missing"),
            ("a = { from = 1, to = 2, step = 1, by = 2 }", "no such key"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn a_level_lands_at_its_key() {
        let mut file: Table = "[links]\n'clients -> proxies' = { delay = '1ms' }".parse().unwrap();
        set(&mut file, "links.clients -> proxies.delay", Value::from("2ms")).unwrap();
        set(&mut file, "system.workers", Value::from(8)).unwrap();
        assert_eq!(file["links"]["clients -> proxies"]["delay"].as_str(), Some("2ms"));
        assert_eq!(file["system"]["workers"].as_integer(), Some(8));
    }
}
