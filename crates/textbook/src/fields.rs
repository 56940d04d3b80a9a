//! Keys that several kinds share, and values that TOML has no form for.

use kendall_keys::{Form, Key, Section};
use kendall_units::counted;
use toml::{Table, Value};

use crate::TextbookError;

/// Any whole number; the model says what it may be.
pub(crate) const WHOLE: Form = Form::Count { from: 0, to: 9_000_000_000_000_000 };

pub(crate) const ARRIVAL_RATE: Key =
    Key::number("arrival_rate_per_s", "λ of customers, not of batches");
pub(crate) const SERVICE_TIME: Key = Key::number("service_time_s", "S");
pub(crate) const SERVICE_RATE: Key = Key::number("service_rate_per_s", "µ of one server, instead");
pub(crate) const CONFIDENCE: Key = Key::number("confidence", "of intervals; 0.95 unless given");

/// A number that must be there.
pub(crate) fn need(section: &mut Section<'_>, key: &str) -> Result<f64, TextbookError> {
    section.number(key)?.ok_or_else(|| TextbookError::missing(&section.path_of(key), "a number"))
}

/// S, by a time or a rate.
pub(crate) fn service_time(section: &mut Section<'_>) -> Result<f64, TextbookError> {
    let time = section.number("service_time_s")?;
    let rate = section.number("service_rate_per_s")?;
    match (time, rate) {
        (Some(time), None) => Ok(time),
        (None, Some(rate)) if rate > 0.0 => Ok(1.0 / rate),
        (None, Some(rate)) => {
            Err(section.problem("service_rate_per_s", format!("`{rate}` is not above 0")).into())
        }
        (Some(_), Some(_)) => Err(section
            .problem("service_rate_per_s", "is beside service_time_s: write one of them")
            .into()),
        (None, None) => Err(TextbookError::missing(
            &section.path_of("service_rate_per_s"),
            "a number (or service_time_s)",
        )),
    }
}

/// Rows of numbers; a number alone is a row of one.
pub(crate) fn rows(
    section: &Section<'_>,
    key: &str,
) -> Result<Option<Vec<Vec<f64>>>, TextbookError> {
    let Some(value) = section.raw(key) else { return Ok(None) };
    let refused = || {
        let what = format!("`{value}` is not a list of numbers, or of lists of them");
        TextbookError::from(section.problem(key, what))
    };
    let items = value.as_array().ok_or_else(refused)?;
    items
        .iter()
        .map(|item| match item {
            Value::Array(row) => row.iter().map(|v| number(v).ok_or_else(refused)).collect(),
            one => number(one).map(|one| vec![one]).ok_or_else(refused),
        })
        .collect::<Result<_, _>>()
        .map(Some)
}

/// What is wrong with a list that needs an entry for each of `count` things.
pub(crate) fn entries_for(entries: usize, count: usize, thing: &str) -> String {
    format!("has {} for {}", counted(entries, "entry"), counted(count, thing))
}

/// A finite number.
pub(crate) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => i32::try_from(*number)
            .map(f64::from)
            .ok()
            .or_else(|| number.to_string().parse::<f64>().ok()),
        Value::Float(number) => Some(*number).filter(|number| number.is_finite()),
        _ => None,
    }
}

/// Copies keys that a short form and a model file have alike.
pub(crate) fn copy(section: &Section<'_>, keys: &[&str], to: &mut Table) {
    for key in keys {
        if let Some(value) = section.raw(key) {
            to.insert((*key).to_owned(), value.clone());
        }
    }
}
