//! What is varied: a dotted key of the study file, and its levels.

use std::collections::BTreeSet;

use kendall_store::{FactorLevel, TUPLE, keys_of};
use kendall_units::exact_f64;
use serde_json::Value as Json;
use toml::{Table, Value};

use crate::section::{Key, Problem, Section};

pub(crate) const STEPS: &[Key] = &[
    Key::number("from", "the first level"),
    Key::number("to", "the last level, if a step ends there"),
    Key::number("step", "from one level to the next"),
];

/// Levels that one factor may have; a longer list is a slip of the pen.
pub(crate) const MOST_LEVELS: usize = 1_000;

#[derive(Debug, Clone, PartialEq)]
pub struct Factor {
    /// Dotted key of the study file; of a tuple its keys with `+` between them.
    pub key: String,
    /// Values that the key takes, in the order of the file; of a tuple a list of values each.
    pub levels: Vec<Value>,
    /// Names of a tuple's levels, where the file gives them any.
    pub names: Vec<String>,
    /// Keys that take the same value: `"system.connections" = "same as system.workers"`.
    pub tied: Vec<String>,
    /// What levels such as `0.8 of capacity` are shares of, once it is known.
    pub(crate) capacity_per_s: Option<f64>,
    /// The key of `[factors]` as the file has it.
    written: String,
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
            if key.contains(',') {
                factors.push(Self::tuple(&section, key, value)?);
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
            let factor = Self::of(key, key.to_owned(), levels);
            factor.refuse_twice(&section)?;
            factors.push(factor);
        }
        for (key, other) in tied {
            if key.contains(',') {
                let what =
                    format!("a tuple has levels of its own; tie each key: `= \"same as {other}\"`");
                return Err(section.problem(key, what));
            }
            let Some(factor) = factors.iter_mut().find(|factor| factor.key == other) else {
                let known: Vec<&str> = factors.iter().map(|factor| factor.key.as_str()).collect();
                let close = kendall_keys::did_you_mean(other, known.iter().copied());
                let what = format!("`{other}` is not a factor with levels of its own{close}");
                return Err(section.problem(key, what));
            };
            factor.tied.push(key.to_owned());
        }
        let mut seen: Vec<&str> = Vec::new();
        for key in factors.iter().flat_map(Self::keys) {
            if seen.contains(&key) {
                let what = "is varied twice: by itself and in a tuple, or in two";
                return Err(section.problem(key, what));
            }
            seen.push(key);
        }
        Ok(factors)
    }

    fn of(written: &str, key: String, levels: Vec<Value>) -> Self {
        let written = written.to_owned();
        Self { key, levels, names: Vec::new(), tied: Vec::new(), capacity_per_s: None, written }
    }

    /// `"system.workers, system.connections" = [[8, 4], [64, 16]]`: keys that change together; or with
    /// names, `{ small = [8, 4], large = [64, 16] }`.
    fn tuple(section: &Section<'_>, written: &str, value: &Value) -> Result<Self, Problem> {
        let keys: Vec<&str> = written.split(',').map(str::trim).collect();
        let example: Vec<String> = (1..=keys.len()).map(|number| number.to_string()).collect();
        let form = format!(
            "a list of tuples such as [[{}], …], or names and their tuples, {{ small = [{0}], … }}",
            example.join(", ")
        );
        if let Some(key) = keys.iter().find(|key| key.is_empty() || key.contains(TUPLE)) {
            let what =
                format!("`{key}` is not a key; write the keys of a tuple with commas between them");
            return Err(section.problem(written, what));
        }
        let (names, levels): (Vec<String>, Vec<Value>) = match value {
            Value::Array(levels) => (Vec::new(), levels.clone()),
            Value::Table(named) => named.clone().into_iter().unzip(),
            other => return Err(section.problem(written, format!("`{other}` is not {form}"))),
        };
        if levels.is_empty() || levels.len() > MOST_LEVELS {
            let what = format!("has {} levels; give 1 to {MOST_LEVELS}", levels.len());
            return Err(section.problem(written, what));
        }
        let is_none = |level: &&Value| level.as_array().is_none_or(|all| all.len() != keys.len());
        if let Some(level) = levels.iter().find(is_none) {
            let what = format!("`{level}` is not a tuple of {} values; give {form}", keys.len());
            return Err(section.problem(written, what));
        }
        let factor = Self { names, ..Self::of(written, keys.join(TUPLE), levels) };
        factor.refuse_twice(section)?;
        Ok(factor)
    }

    /// Refuses two levels of one text: results, questions and reports know a level by its text.
    fn refuse_twice(&self, section: &Section<'_>) -> Result<(), Problem> {
        let mut seen = BTreeSet::new();
        for level in 0..self.levels.len() {
            let text = self.level(level).text;
            if !seen.insert(text.clone()) {
                let of_tuple = if self.is_tuple() { "; give its levels names" } else { "" };
                let what = format!("has the level `{text}` twice{of_tuple}");
                return Err(section.problem(&self.written, what));
            }
        }
        Ok(())
    }

    /// The level that effective settings have; where the factor has no such level, a new one of their values. `lookup`
    /// finds the value of a key, and `number` reads a value as a number.
    pub fn level_in<'a>(
        &self,
        lookup: impl Fn(&str) -> Option<&'a Json>,
        number: impl Fn(&Json) -> Option<f64>,
    ) -> FactorLevel {
        let values: Vec<Option<&Json>> = keys_of(&self.key).map(lookup).collect();
        let texts: Vec<String> =
            values.iter().map(|value| value.map(json_text).unwrap_or_default()).collect();
        let known = |at: &usize| self.texts(*at)[..texts.len()] == texts;
        if let Some(at) = (0..self.levels.len()).find(known) {
            return self.level(at);
        }
        let number = match values[..] {
            [Some(value)] => number(value),
            _ => None,
        };
        FactorLevel {
            factor: self.key.clone(),
            level: u32::try_from(self.levels.len()).unwrap_or(u32::MAX),
            text: texts.join(TUPLE),
            number,
        }
    }

    /// Whether its levels are tuples.
    pub fn is_tuple(&self) -> bool {
        self.written.contains(',')
    }

    /// The keys that its levels set.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        keys_of(&self.key).chain(self.tied.iter().map(String::as_str))
    }

    /// A problem with a key that its levels set, reported for the factor.
    pub(crate) fn blamed(&self, problem: Problem) -> Problem {
        let Problem { key, what } = problem;
        if self.is_tuple() && keys_of(&self.key).any(|own| own == key) {
            return Problem { key: self.place(), what: format!("`{key}`: {what}") };
        }
        Problem { key: format!("factors.{key}"), what }
    }

    /// Where the file has it.
    pub(crate) fn place(&self) -> String {
        format!("factors.{}", self.written)
    }

    /// All values that its levels set somewhere.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Value> {
        self.levels.iter().flat_map(|level| match level {
            Value::Array(values) if self.is_tuple() => values.as_slice(),
            one => std::slice::from_ref(one),
        })
    }

    /// The values of one level, one a key.
    fn values_of(&self, index: usize) -> impl Iterator<Item = (&str, &Value)> {
        let level = &self.levels[index];
        let tuple = level.as_array().filter(|_| self.is_tuple());
        self.keys().enumerate().map(move |(place, key)| {
            (key, tuple.and_then(|values| values.get(place)).unwrap_or(level))
        })
    }

    /// With so many of its levels, first and last among them: in steps of one ratio where they are numbers above 0.
    pub(crate) fn with_levels(&self, count: usize) -> Self {
        let all = self.levels.len();
        let position =
            |at: usize| self.level(at).number.filter(|number| *number > 0.0).map(f64::ln);
        let places: Option<Vec<f64>> = (0..all).map(position).collect();
        let places = places.unwrap_or_else(|| (0..all).map(exact_f64).collect());
        let (low, high) = places
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), p| (l.min(*p), h.max(*p)));
        let step = (high - low) / exact_f64(count.saturating_sub(1).max(1));
        let mut kept: Vec<usize> = (0..count.min(all))
            .filter_map(|at| {
                let off = |place: &usize| (places[*place] - (low + exact_f64(at) * step)).abs();
                (0..all).min_by(|a, b| off(a).total_cmp(&off(b)))
            })
            .collect();
        kept.sort_unstable();
        kept.dedup();
        let names = kept.iter().filter_map(|at| self.names.get(*at).cloned()).collect();
        let levels = kept.iter().map(|at| self.levels[*at].clone()).collect();
        Self { levels, names, ..self.clone() }
    }

    /// The stored form of one level.
    pub fn level(&self, index: usize) -> FactorLevel {
        let value = &self.levels[index];
        let text = match (self.names.get(index), value) {
            (Some(name), _) => name.clone(),
            (None, _) if self.is_tuple() => self.texts(index).join(TUPLE),
            _ => kendall_keys::text_of(value),
        };
        FactorLevel {
            factor: self.key.clone(),
            level: u32::try_from(index).unwrap_or(u32::MAX),
            text,
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

    /// The texts of a level's values, one a key.
    pub fn texts(&self, index: usize) -> Vec<String> {
        self.values_of(index).map(|(_, value)| kendall_keys::text_of(value)).collect()
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
        for (key, value) in self.values_of(index).filter(|(key, _)| wanted(key)) {
            set(file, key, value.clone())
                .map_err(|what| self.blamed(Problem { key: key.to_owned(), what }))?;
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

/// An effective value as a stored level has it: without quotes, and a table as the file writes it.
fn json_text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Object(table) => {
            let parts = table.iter().map(|(key, value)| format!("{key}={}", json_text(value)));
            parts.collect::<Vec<_>>().join(",")
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
            ("a = [1, '1']", "twice"),
            ("'a, b' = [['x+y', 'z'], ['x', 'y+z']]", "twice"),
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
    fn a_tuple_is_one_factor_whose_keys_change_together() {
        let factors = read("'a.b, c.d' = [[1, '4ms'], [2, '1ms']]\ne = [1, 2]").unwrap();
        assert_eq!(factors.len(), 2);
        assert_eq!(factors[0].keys().collect::<Vec<_>>(), ["a.b", "c.d"]);
        let mut file = Table::new();
        factors[0].apply(1, &mut file).unwrap();
        assert_eq!(file["a"]["b"].as_integer(), Some(2));
        assert_eq!(file["c"]["d"].as_str(), Some("1ms"));
        let level = factors[0].level(0);
        assert_eq!((level.factor.as_str(), level.text.as_str()), ("a.b+c.d", "1+4ms"));
        assert_eq!(level.number, None, "a tuple has no place on an axis");
        let named = read("'a, b' = { small = [1, 2], large = [8, 9] }").unwrap();
        assert_eq!(
            (named[0].level(0).text, named[0].level(1).text),
            ("small".into(), "large".into())
        );
        let values: Vec<i64> = named[0].values().filter_map(Value::as_integer).collect();
        assert_eq!(values, [1, 2, 8, 9]);
    }

    #[test]
    fn tuples_that_are_none_are_refused() {
        for (text, part) in [
            ("'a, b' = [[1, 2], [3]]", "`[3]` is not a tuple of 2 values"),
            (
                "'a, b' = [1, 2]",
                "`1` is not a tuple of 2 values; give a list of tuples such as [[1, 2], …]",
            ),
            ("'a, b' = { small = 1 }", "`1` is not a tuple"),
            ("'a, b' = 'same as c'\nc = [1]", "a tuple has levels of its own; tie each key"),
            ("'a, b' = 3", "is not a list of tuples"),
            ("'a, b' = []", "0 levels"),
            ("'a,' = [[1, 2]]", "`` is not a key"),
            ("'a, b' = [[1, 2], [1, 2]]", "twice"),
            ("'a, b' = [[1, 2], [2, 1]]\na = [1, 2]", "a: is varied twice"),
            ("'a, a' = [[1, 2], [2, 1]]", "a: is varied twice"),
            (
                "'a, b' = [[1, 2], [2, 1]]\nc = 'same as a'",
                "`a` is not a factor with levels of its own",
            ),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
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

    #[test]
    fn the_level_that_settings_have_is_found_for_keys_and_tuples_alike() {
        let factors = read("a = [1, 2]\n'b, c' = [['x', 1], ['y', 2]]").unwrap();
        let settings = serde_json::json!({ "a": 2, "b": "x", "c": 1 });
        let level = |factor: &Factor| factor.level_in(|key| settings.get(key), Json::as_f64);
        assert_eq!(level(&factors[0]), factors[0].level(1));
        assert_eq!(level(&factors[1]), factors[1].level(0));
        let other = serde_json::json!({ "a": 3.5, "b": "x", "c": 2 });
        let level = |factor: &Factor| factor.level_in(|key| other.get(key), Json::as_f64);
        let (one, two) = (level(&factors[0]), level(&factors[1]));
        assert_eq!((one.level, one.text.as_str(), one.number), (2, "3.5", Some(3.5)));
        assert_eq!((two.level, two.text.as_str(), two.number), (2, "x+2", None));
    }
}
