//! What is varied: a dotted key of the study file, and its levels.

use kendall_store::FactorLevel;
use kendall_units::exact_f64;
use toml::{Table, Value};

use crate::section::{Key, Problem, Section};

/// A range of levels.
pub(crate) const STEPS: &[Key] = &[
    Key::number("from", "the first level"),
    Key::number("to", "the last level, if a step ends there"),
    Key::number("step", "from one level to the next"),
];

/// Levels that one factor may have; a longer list is a slip of the pen.
const MOST_LEVELS: usize = 1_000;

/// One factor.
#[derive(Debug, Clone, PartialEq)]
pub struct Factor {
    /// Dotted key of the study file.
    pub key: String,
    /// Values that the key takes, in the order of the file.
    pub levels: Vec<Value>,
    /// Keys that take the same value: `"system.connections" = "same as system.workers"`.
    pub tied: Vec<String>,
    /// What levels such as `0.8 of capacity` are shares of, once it is known.
    pub(crate) capacity_per_s: Option<f64>,
}

/// What a factor is that takes the levels of another.
const SAME_AS: &str = "same as ";

impl Factor {
    /// Reads `[factors]`, in the order of the file.
    pub(crate) fn read_all(section: Section<'_>) -> Result<Vec<Self>, Problem> {
        let mut factors: Vec<Self> = Vec::new();
        let mut tied = Vec::new();
        for (key, value) in section.entries() {
            if let Some(other) = value.as_str().and_then(|text| text.strip_prefix(SAME_AS)) {
                tied.push((key, other.trim()));
                continue;
            }
            let levels = match value {
                Value::Array(levels) => levels.clone(),
                Value::Table(range) if range.contains_key("from") => {
                    steps(Section::new(&section.path_of(key), range, &[STEPS]))?
                }
                other => {
                    let form = "a list such as [8, 16], { from = 6, to = 198, step = 24 }, or \
                                \"same as \" and another factor";
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
            let key = key.to_owned();
            factors.push(Self { key, levels, tied: Vec::new(), capacity_per_s: None });
        }
        for (key, other) in tied {
            let Some(factor) = factors.iter_mut().find(|factor| factor.key == other) else {
                let known: Vec<&str> = factors.iter().map(|factor| factor.key.as_str()).collect();
                let close = kendall_keys::closest(other, known.iter().copied())
                    .map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
                let what = format!("`{other}` is not a factor with levels of its own{close}");
                return Err(section.problem(key, what));
            };
            factor.tied.push(key.to_owned());
        }
        Ok(factors)
    }

    /// The keys that its levels set.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.key.as_str()).chain(self.tied.iter().map(String::as_str))
    }

    /// The stored form of one level.
    #[must_use]
    pub fn level(&self, index: usize) -> FactorLevel {
        let value = &self.levels[index];
        FactorLevel {
            factor: self.key.clone(),
            level: u32::try_from(index).unwrap_or(u32::MAX),
            text: kendall_keys::text_of(value),
            number: self.number_of(value),
        }
    }

    /// A level as a number in base units, where it is one.
    fn number_of(&self, value: &Value) -> Option<f64> {
        match value.as_str().and_then(crate::capacity::share) {
            Some(share) => Some(share.ok()? * self.capacity_per_s.unwrap_or(1.0)),
            None => number_of(value),
        }
    }

    /// Puts one level into a study file's table.
    pub(crate) fn apply(&self, index: usize, file: &mut Table) -> Result<(), Problem> {
        self.apply_where(index, file, |_| true)
    }

    /// The same, at some of its keys only.
    pub(crate) fn apply_where(
        &self,
        index: usize,
        file: &mut Table,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<(), Problem> {
        for key in self.keys().filter(|key| wanted(key)) {
            set(file, key, self.levels[index].clone())
                .map_err(|what| Problem { key: format!("factors.{key}"), what })?;
        }
        Ok(())
    }
}

/// The parts of a dotted key: `factors.system.workers` names one key inside `[factors]`, and links
/// have dots in their names.
pub(crate) fn parts_of(key: &str) -> Vec<&str> {
    match key.split_once('.') {
        Some(("factors", rest)) => vec!["factors", rest],
        Some(("links", rest)) => match rest.rsplit_once('.') {
            Some((link, last)) => vec!["links", link, last],
            None => vec!["links", rest],
        },
        _ => key.split('.').collect(),
    }
}

/// The entry of a list that a part of a key means: by its number, or by its `name`.
pub(crate) fn entry(items: &[Value], part: &str) -> Option<usize> {
    let named = |item: &Value| item.get("name").and_then(Value::as_str) == Some(part);
    let number = part.parse::<usize>().ok().filter(|index| *index < items.len());
    items.iter().position(named).or(number)
}

/// Puts a value at a dotted key; tables on the way are made.
pub(crate) fn set(file: &mut Table, key: &str, value: Value) -> Result<(), String> {
    let mut parts = parts_of(key);
    let last = parts.pop().unwrap_or(key);
    let mut here = file;
    let mut parts = parts.into_iter().peekable();
    while let Some(part) = parts.next() {
        let inner = here.entry(part).or_insert_with(|| Value::Table(Table::new()));
        here = match inner {
            Value::Table(table) => table,
            Value::Array(items) => {
                let Some(name) = parts.next() else {
                    return Err(format!("`{part}` in `{key}` is a list: name one of its entries"));
                };
                let index = entry(items, name)
                    .ok_or_else(|| format!("`{part}` in `{key}` has no entry `{name}`"))?;
                items[index]
                    .as_table_mut()
                    .ok_or_else(|| format!("`{name}` in `{key}` is not a table"))?
            }
            _ => return Err(format!("`{part}` in `{key}` is not a table of the study file")),
        };
    }
    here.insert(last.to_owned(), value);
    Ok(())
}

fn steps(range: Section<'_>) -> Result<Vec<Value>, Problem> {
    let read = |key: &str| -> Result<f64, Problem> {
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
        Factor::read_all(Section::new("factors", &table, &[]))
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
    fn a_factor_may_be_tied_to_another() {
        let factors = read("a = [1, 2]\nb = 'same as a'").unwrap();
        assert_eq!(factors.len(), 1);
        let mut file = Table::new();
        factors[0].apply(1, &mut file).unwrap();
        assert_eq!((file["a"].as_integer(), file["b"].as_integer()), (Some(2), Some(2)));
        let message = read("aa = [1, 2]\nb = 'same as ab'").unwrap_err().to_string();
        assert!(message.contains("did you mean `aa`"), "{message}");
    }

    #[test]
    fn entries_of_lists_are_named_by_name_or_number() {
        let text = "[[system.tiers]]\nname = 'web'\n[[system.tiers]]\nname = 'db'";
        let mut file: Table = text.parse().unwrap();
        set(&mut file, "system.tiers.db.instances", Value::from(2)).unwrap();
        set(&mut file, "system.tiers.0.instances", Value::from(3)).unwrap();
        let tiers = &file["system"]["tiers"];
        assert_eq!(tiers[1]["instances"].as_integer(), Some(2));
        assert_eq!(tiers[0]["instances"].as_integer(), Some(3));
        assert!(set(&mut file, "system.tiers.cache.instances", Value::from(2)).is_err());
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
