//! Units in the names of keys: everything is computed in seconds, and answered in the unit of the
//! case's rates.

use std::collections::BTreeMap;

use toml::{Table, Value};

use crate::TextbookError;

/// Units of time that a key may end in, with their seconds.
const UNITS: [(&str, f64); 4] = [("ms", 1e-3), ("us", 1e-6), ("min", 60.0), ("h", 3_600.0)];

/// The unit in which a case is answered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Unit {
    pub(crate) name: &'static str,
    pub(crate) seconds: f64,
}

impl Unit {
    pub(crate) fn time(self, seconds: f64) -> f64 {
        seconds / self.seconds
    }

    pub(crate) fn rate(self, per_second: f64) -> f64 {
        per_second * self.seconds
    }

    /// `1/s`.
    pub(crate) fn per(self) -> String {
        format!("1/{}", self.name)
    }
}

/// How keys were written that have another unit now.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<String, String>);

impl Names {
    /// The error with the keys that the file has.
    pub(crate) fn written(&self, error: TextbookError) -> TextbookError {
        let path = |path: &str| {
            let (before, last) = path.rsplit_once('.').map_or(("", path), |(b, l)| (b, l));
            let written = self.0.get(last).map_or(last, String::as_str);
            if before.is_empty() { written.to_owned() } else { format!("{before}.{written}") }
        };
        match error {
            TextbookError::Key { path: at, what } => TextbookError::Key { path: path(&at), what },
            other => other,
        }
    }
}

/// The same table with every time in s and every rate in 1/s, and the unit that it speaks.
pub(crate) fn in_seconds(table: &Table) -> Result<(Table, Unit, Names), TextbookError> {
    let mut names = Names::default();
    let mut units = Vec::new();
    let changed = of_table(table, &mut names, &mut units)?;
    let unit = if has_rate(table) { None } else { units.first().copied() };
    Ok((changed, unit.unwrap_or(Unit { name: "s", seconds: 1.0 }), names))
}

/// Whether some rate is per second: then seconds are what the case speaks.
fn has_rate(table: &Table) -> bool {
    table.keys().any(|key| key.ends_with("_per_s"))
}

fn of_table(
    table: &Table,
    names: &mut Names,
    units: &mut Vec<Unit>,
) -> Result<Table, TextbookError> {
    // Their keys are keys of ours; those of other tables are names of classes.
    const BELOW: [&str; 8] = [
        "stations",
        "classes",
        "open_classes",
        "closed_classes",
        "service",
        "interarrival_time",
        "patience",
        "think_time",
    ];
    let mut changed = Table::new();
    for (key, value) in table {
        let (name, value) = match in_unit(key) {
            Some((name, factor, rate)) => {
                names.0.insert(name.clone(), key.clone());
                units.extend(rate);
                (name, scaled(value, factor))
            }
            None if BELOW.contains(&key.as_str()) => {
                let value = match value {
                    Value::Table(inner) => Value::Table(of_table(inner, names, units)?),
                    Value::Array(items) => Value::Array(
                        items
                            .iter()
                            .map(|item| match item {
                                Value::Table(inner) => {
                                    of_table(inner, names, units).map(Value::Table)
                                }
                                other => Ok(other.clone()),
                            })
                            .collect::<Result<_, _>>()?,
                    ),
                    other => other.clone(),
                };
                (key.clone(), value)
            }
            None => (key.clone(), value.clone()),
        };
        if changed.insert(name.clone(), value).is_some()
            || (name != *key && table.contains_key(&name))
        {
            let what = format!("says the same as `{name}`: write one of them");
            return Err(TextbookError::key(key, what));
        }
    }
    Ok(changed)
}

/// The name in seconds, what its value is times, and the unit when it is a rate.
fn in_unit(key: &str) -> Option<(String, f64, Option<Unit>)> {
    for (name, seconds) in UNITS {
        if let Some(stem) = key.strip_suffix(&format!("_per_{name}")) {
            return Some((format!("{stem}_per_s"), 1.0 / seconds, Some(Unit { name, seconds })));
        }
        for (power, digit) in [(3, "3"), (2, "2"), (1, "")] {
            if let Some(stem) = key.strip_suffix(&format!("_{name}{digit}")) {
                return Some((format!("{stem}_s{digit}"), seconds.powi(power), None));
            }
        }
    }
    None
}

fn scaled(value: &Value, factor: f64) -> Value {
    match value {
        Value::Integer(number) => i32::try_from(*number)
            .map_or_else(|_| value.clone(), |number| Value::Float(f64::from(number) * factor)),
        Value::Float(number) => Value::Float(number * factor),
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| scaled(item, factor)).collect())
        }
        Value::Table(table) => {
            let scale = |(key, value): (&String, &Value)| (key.clone(), scaled(value, factor));
            Value::Table(table.iter().map(scale).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_become_seconds_and_are_the_unit_of_the_answer() {
        let table = "kind = 'M/M/1'\narrival_rate_per_min = 30\nservice_time_s = 1\n\
                     service_variance_min2 = 2\nthink_time_ms = { a = 4 }";
        let (table, unit, names) = in_seconds(&table.parse().unwrap()).unwrap();
        assert_eq!(unit.name, "min");
        assert_eq!(table["arrival_rate_per_s"].as_float(), Some(0.5));
        assert_eq!(table["service_variance_s2"].as_float(), Some(7_200.0));
        assert_eq!(table["think_time_s"]["a"].as_float(), Some(0.004));
        let error = names.written(TextbookError::key("arrival_rate_per_s", "x"));
        assert_eq!(error.path(), Some("arrival_rate_per_min"));
    }

    #[test]
    fn a_time_in_two_units_is_refused() {
        for text in ["service_time_s = 1\nservice_time_ms = 2", "x_ms = 1\nx_h = 2"] {
            assert!(in_seconds(&text.parse().unwrap()).is_err(), "{text}");
        }
    }
}
