//! How quantities are written in files and on the command line: always with their unit.

use crate::{Rate, Seconds};

/// A text that is not the quantity it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {what}; write it like {example}")]
pub struct QuantityError {
    /// What was written.
    pub text: String,
    /// What was expected, with its article.
    pub what: &'static str,
    /// An accepted form.
    pub example: &'static str,
}

const TIME_UNITS: &[(&str, f64)] = &[
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("min", 60.0),
    ("m", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
];
const RATE_UNITS: &[(&str, f64)] =
    &[("/s", 1.0), ("/ms", 1e3), ("/us", 1e6), ("/min", 1.0 / 60.0), ("/h", 1.0 / 3600.0)];
const BYTE_UNITS: &[(&str, f64)] = &[
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
];

/// A time such as `40ms`, `1.5s`, `250us`, `2min`, `1h`, `7d`; a bare `0` needs no unit.
///
/// # Errors
/// [`QuantityError`] when the number or its unit is missing or unknown, or the time is negative.
///
/// # Example
/// ```
/// assert_eq!(kendall_units::parse_seconds("40ms").unwrap().get(), 0.04);
/// assert_eq!(kendall_units::parse_seconds("7d").unwrap().get(), 604_800.0);
/// assert!(kendall_units::parse_seconds("40").is_err());
/// ```
pub fn parse_seconds(text: &str) -> Result<Seconds, QuantityError> {
    with_unit(text, TIME_UNITS)
        .map(Seconds::new)
        .ok_or_else(|| refuse(text, "a time", "`40ms`, `1.5s` or `2min`"))
}

/// A rate such as `250/s`, `4.104/ms`, `15/h`.
///
/// # Errors
/// [`QuantityError`] when the number or its unit is missing or unknown, or the rate is negative.
///
/// # Example
/// ```
/// assert_eq!(kendall_units::parse_rate("250/s").unwrap().get(), 250.0);
/// ```
pub fn parse_rate(text: &str) -> Result<Rate, QuantityError> {
    with_unit(text, RATE_UNITS)
        .map(Rate::per_second)
        .ok_or_else(|| refuse(text, "a rate", "`250/s` or `4.1/ms`"))
}

/// A whole number of bytes such as `64KiB`, `1MB`, `200B`; a bare `0` needs no unit.
///
/// # Errors
/// [`QuantityError`] when the number or its unit is missing or unknown, or bytes are not whole.
///
/// # Example
/// ```
/// assert_eq!(kendall_units::parse_bytes("64KiB").unwrap(), 65_536);
/// ```
pub fn parse_bytes(text: &str) -> Result<u64, QuantityError> {
    with_unit(text, BYTE_UNITS)
        .filter(|bytes| bytes.fract() == 0.0 && *bytes < 9e15)
        .map(crate::whole_u64)
        .ok_or_else(|| refuse(text, "a number of bytes", "`200B`, `64KiB` or `1MiB`"))
}

/// Bits per second that are written with their decimal prefix.
const BIT_UNITS: &[(&str, f64)] = &[("Gbit/s", 125e6), ("Mbit/s", 125e3), ("kbit/s", 125.0)];

/// A bandwidth such as `10MB/s`, `512KiB/s` or `100Mbit/s`, in bytes per second; `None` for
/// `unlimited`.
///
/// # Errors
/// [`QuantityError`] for anything else, and for a bandwidth of zero (which the fault `stop` is).
///
/// # Example
/// ```
/// assert_eq!(kendall_units::parse_bandwidth("10MB/s").unwrap(), Some(10_000_000));
/// assert_eq!(kendall_units::parse_bandwidth("100Mbit/s").unwrap(), Some(12_500_000));
/// ```
pub fn parse_bandwidth(text: &str) -> Result<Option<u64>, QuantityError> {
    let trimmed = text.trim();
    if trimmed == "unlimited" {
        return Ok(None);
    }
    let of_bytes =
        || with_unit(trimmed.strip_suffix("/s").filter(|bytes| *bytes != "0")?, BYTE_UNITS);
    with_unit(trimmed, BIT_UNITS)
        .or_else(of_bytes)
        .filter(|bytes| (1.0..9e15).contains(bytes) && bytes.fract() == 0.0)
        .map(|bytes| Some(crate::whole_u64(bytes)))
        .ok_or_else(|| refuse(text, "a bandwidth", "`10MB/s`, `100Mbit/s` or `unlimited`"))
}

/// A share from 0 to 1, written `2%` or `0.02`.
///
/// # Errors
/// [`QuantityError`] when it is not a number or lies outside 0 to 1.
///
/// # Example
/// ```
/// assert_eq!(kendall_units::parse_share("2%").unwrap(), 0.02);
/// ```
pub fn parse_share(text: &str) -> Result<f64, QuantityError> {
    let trimmed = text.trim();
    let (digits, divisor) = match trimmed.strip_suffix('%') {
        Some(percent) => (percent.trim_end(), 100.0),
        None => (trimmed, 1.0),
    };
    number(digits)
        .map(|value| value / divisor)
        .filter(|share| *share <= 1.0)
        .ok_or_else(|| refuse(text, "a share", "`2%` or `0.02`"))
}

fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let trimmed = text.trim();
    if trimmed == "0" {
        return Some(0.0);
    }
    let split = trimmed.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_')))?;
    // An exponent belongs to the number: `1e-3s`.
    let split = match trimmed[split..].strip_prefix(['e', 'E']) {
        Some(rest) => {
            let sign = usize::from(rest.starts_with(['-', '+']));
            let digits = rest[sign..].chars().take_while(char::is_ascii_digit).count();
            if digits == 0 { split } else { split + 1 + sign + digits }
        }
        None => split,
    };
    let unit = trimmed[split..].trim_start();
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number(&trimmed[..split]).map(|value| value * factor).filter(|value| value.is_finite())
}

fn number(digits: &str) -> Option<f64> {
    let plain = digits.replace('_', "");
    plain.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0)
}

fn refuse(text: &str, what: &'static str, example: &'static str) -> QuantityError {
    QuantityError { text: text.to_owned(), what, example }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_bandwidth_is_refused() {
        for text in ["10MB", "0B/s", "0/s", "-1MB/s", "fast", "", "99999999999999999999Gbit/s"] {
            assert!(parse_bandwidth(text).is_err(), "{text}");
        }
        assert_eq!(parse_bandwidth("unlimited"), Ok(None));
        assert_eq!(parse_bandwidth("0.5 Mbit/s"), Ok(Some(62_500)));
    }

    #[test]
    fn a_bare_number_a_negative_one_and_an_unknown_unit_are_refused() {
        for text in ["40", "-1ms", "ms", "", "4 parsecs", "1e400s", "nan s", "1e s", "12٣s"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn exponents_and_underscores_are_read() {
        assert_eq!(parse_seconds("1e-3s").map(Seconds::as_nanos), Ok(1_000_000));
        assert_eq!(parse_rate("7_538.59/s").map(Rate::get), Ok(7538.59));
    }

    #[test]
    fn the_error_says_what_to_write() {
        let error = parse_bytes("64").unwrap_err();
        assert_eq!(
            error.to_string(),
            "`64` is not a number of bytes; write it like `200B`, `64KiB` or `1MiB`"
        );
    }
}
