//! Numbers as people read them: few figures, thousands apart, a unit that keeps them short.

use kendall_stats::estimate::{Estimate, Interval};

/// `value` with `figures` significant figures, thousands separated by a narrow space.
pub(crate) fn significant(value: f64, figures: i32) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = order(value);
    if !(-5..15).contains(&magnitude) {
        let decimals = usize::try_from(figures - 1).unwrap_or(0);
        return format!("{value:.decimals$e}");
    }
    let decimals = usize::try_from(figures - 1 - magnitude).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    // 9.996 with three figures prints as 10.00: one figure too many.
    let text = match text.parse::<f64>() {
        Ok(rounded) if order(rounded) > magnitude && decimals > 0 => {
            format!("{value:.0$}", decimals - 1)
        }
        _ => text,
    };
    grouped(&text)
}

/// `value` as short as four figures allow: a level, a load.
pub(crate) fn plain(value: f64) -> String {
    plain_to(value, 4)
}

/// `value` as short as so many figures allow.
pub(crate) fn plain_to(value: f64, figures: i32) -> String {
    let text = significant(value, figures);
    if text.contains('.') && !text.contains('e') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// `value` with `decimals` digits after the point, thousands separated by a narrow space.
pub(crate) fn fixed(value: f64, decimals: usize) -> String {
    if value.is_finite() { grouped(&format!("{value:.decimals$}")) } else { "–".to_owned() }
}

/// A time in the unit that reads best, three figures: `1.47 ms`.
pub(crate) fn time(seconds: f64) -> String {
    time_to(seconds, 3)
}

/// A time in the unit that reads best, to so many figures.
pub(crate) fn time_to(seconds: f64, figures: i32) -> String {
    let (scale, unit) = time_unit(seconds);
    format!("{} {unit}", significant(seconds * scale, figures))
}

/// Five figures, a whole number as it is, and an exponent where zeros would hide the figures.
pub(crate) fn short(value: f64) -> String {
    let is_whole = value.fract() == 0.0 && value.abs() < 1e7;
    match value.abs() {
        _ if !value.is_finite() => "–".to_owned(),
        _ if is_whole => format!("{value:.0}"),
        size if !(1e-4..1e7).contains(&size) => format!("{value:.4e}"),
        size if size < 1.0 => format!("{value:.5}"),
        _ => significant(value, 5),
    }
}

/// A rate with four figures: `7 539/s`.
pub(crate) fn rate(per_second: f64) -> String {
    format!("{}/s", significant(per_second, 4))
}

/// A load with its unit: `4.1 clients`, `1 client`.
pub(crate) fn load(text: &str, unit: &str) -> String {
    let unit = if text == "1" { unit.strip_suffix('s').unwrap_or(unit) } else { unit };
    format!("{text} {unit}")
}

/// Status codes with how often each came, most frequent first: `404 (120), 410 (3)`.
pub(crate) fn statuses<'a>(codes: impl IntoIterator<Item = (&'a u16, &'a u64)>) -> String {
    let mut codes: Vec<_> = codes.into_iter().collect();
    codes.sort_by_key(|(code, times)| (std::cmp::Reverse(**times), **code));
    let each = codes
        .into_iter()
        .map(|(code, times)| format!("{code} ({})", fixed(kendall_units::exact_f64(*times), 0)));
    each.collect::<Vec<String>>().join(", ")
}

/// A share as percent, for a sentence: `5 %`, not `5.0 %`.
pub(crate) fn percent(share: f64) -> String {
    percent_in_column(share).replace(".0 %", " %")
}

/// A share of a whole, for a sentence: one that is not all of it does not print as `100 %`.
pub(crate) fn share(share: f64) -> String {
    if (0.9995..1.0).contains(&share) {
        "more than 99.9 %".to_owned()
    } else if (0.995..1.0).contains(&share) {
        format!("{} %", fixed(100.0 * share, 1))
    } else {
        percent(share)
    }
}

/// A share as percent, for a column of a table.
pub(crate) fn percent_in_column(share: f64) -> String {
    let value = share * 100.0;
    if !value.is_finite() {
        return "–".to_owned();
    }
    let decimals = if value.abs() >= 9.95 { 0 } else { usize::from(value.abs() >= 0.095) };
    if value != 0.0 && decimals == 0 && value.abs() < 1.0 {
        return format!("{} %", significant(value, 2));
    }
    format!("{} %", fixed(value, decimals))
}

/// A change as percent, with its sign; below a twentieth of a percent there is none to speak of.
pub(crate) fn signed_percent(share: f64) -> String {
    if share.abs() < 5e-4 {
        return "0 %".to_owned();
    }
    signed(share, percent).replacen('-', "−", 1)
}

/// With a plus where it is above 0.
pub(crate) fn signed(value: f64, text: fn(f64) -> String) -> String {
    let sign = if value > 0.0 { "+" } else { "" };
    format!("{sign}{}", text(value))
}

pub(crate) use kendall_units::counted as count;

/// `5762/s (5720/s to 5805/s)`.
pub(crate) fn with_interval(estimate: &Estimate, print: fn(f64) -> String) -> String {
    let center = print(estimate.center);
    match estimate.interval {
        Some(interval) => format!("{center} ({} to {})", print(interval.low), print(interval.high)),
        None => format!("{center} (no interval)"),
    }
}

/// ` (95 % interval 5720/s to 5805/s)`; nothing where there is none.
pub(crate) fn in_interval(interval: Option<Interval>, print: fn(f64) -> String) -> String {
    interval.map_or_else(String::new, |i| {
        format!(" ({} interval {} to {})", percent(i.confidence), print(i.low), print(i.high))
    })
}

/// The factor and unit in which a time of this size reads best.
pub(crate) fn time_unit(seconds: f64) -> (f64, &'static str) {
    match seconds.abs() {
        m if m < 1e-15 || !m.is_finite() || m >= 1.0 => (1.0, "s"),
        m if m >= 1e-3 => (1e3, "ms"),
        m if m >= 1e-6 => (1e6, "µs"),
        _ => (1e9, "ns"),
    }
}

/// ⌊log₁₀|value|⌋ by comparison, so that powers of ten are exact.
pub(crate) fn order(value: f64) -> i32 {
    let magnitude = value.abs();
    if magnitude == 0.0 || !magnitude.is_finite() {
        return 0;
    }
    let mut order = 0_i32;
    while magnitude >= 10_f64.powi(order + 1) && order < 308 {
        order += 1;
    }
    while magnitude < 10_f64.powi(order) && order > -308 {
        order -= 1;
    }
    order
}

/// Thousands apart, and a minus that is one. Four digits stay together.
fn grouped(text: &str) -> String {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |rest| ("−", rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut out = sign.to_owned();
    for (place, digit) in whole.char_indices() {
        if place > 0 && whole.len() > 4 && (whole.len() - place).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_kept_and_no_more() {
        let printed: Vec<String> = [0.001_234_5, 9.996, 1234.5, 123_456.7, -0.5, 1e-9, 1000.0]
            .into_iter()
            .map(|value| significant(value, 3))
            .collect();
        assert_eq!(
            printed,
            ["0.00123", "10.0", "1234", "123\u{202f}457", "−0.500", "1.00e-9", "1000"]
        );
    }

    #[test]
    fn shares_of_all_sizes_read_well() {
        let printed: Vec<String> =
            [0.0, 0.000_12, 0.012, 0.5, 1.0, 2.5].into_iter().map(percent).collect();
        assert_eq!(printed, ["0 %", "0.012 %", "1.2 %", "50 %", "100 %", "250 %"]);
        assert_eq!(
            (percent(0.05), percent_in_column(0.05)),
            ("5 %".to_owned(), "5.0 %".to_owned())
        );
        assert_eq!(signed_percent(-0.034), "−3.4 %");
        assert_eq!([0.034, 4.4e-6].map(signed_percent), ["+3.4 %", "0 %"]);
    }

    /// As a report said of one factor: "100 % of the variation. 0.1 % is random error".
    #[test]
    fn what_is_not_all_does_not_print_as_all() {
        let printed: Vec<String> =
            [0.5, 0.994, 0.998_9, 0.999_9, 1.0].into_iter().map(share).collect();
        assert_eq!(printed, ["50 %", "99 %", "99.9 %", "more than 99.9 %", "100 %"]);
    }

    #[test]
    fn one_client_is_one() {
        assert_eq!(
            ["1", "1.5", "16"].map(|text| load(text, "clients")),
            ["1 client", "1.5 clients", "16 clients"]
        );
    }

    #[test]
    fn nothing_prints_as_not_a_number() {
        for value in [f64::NAN, f64::INFINITY] {
            assert_eq!(significant(value, 3), "–");
            assert_eq!(percent(value), "–");
        }
    }
}
