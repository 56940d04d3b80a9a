//! Outputs whose names carry a number (`p_at_least_13`, `response_p99`), another unit
//! (`mean_response_ms`), or a part of a list (`utilization_2`).

use kendall_queueing::station::{StateLaw, StationSolution, TimeLaw};

use crate::unit::Unit;
use crate::{Answer, Output};

/// Units that a name may end in, with their seconds.
const TIMES: [(&str, f64); 6] =
    [("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9), ("min", 60.0), ("h", 3_600.0), ("s", 1.0)];

/// Adds the outputs that were asked for in another unit, or in part.
pub(crate) fn fill(answer: &mut Answer, wanted: &[String]) {
    for name in wanted {
        if !answer.outputs.contains_key(name)
            && let Some(found) = find(answer, name, 3)
        {
            answer.outputs.insert(name.clone(), found);
        }
    }
}

type Found = (Output, String);

fn find(answer: &Answer, name: &str, depth: u32) -> Option<Found> {
    if depth == 0 {
        return None;
    }
    answer
        .outputs
        .get(name)
        .cloned()
        .or_else(|| in_unit(answer, name, depth))
        .or_else(|| deviation(answer, name, depth))
        .or_else(|| part(answer, name, depth))
}

/// A name that ends in a unit: the value in it.
fn in_unit(answer: &Answer, name: &str, depth: u32) -> Option<Found> {
    if let Some(base) = name.strip_suffix("_percent") {
        let (output, _) = find(answer, base, depth - 1)?;
        return Some((output.map(|value| value * 100.0), "%".to_owned()));
    }
    let seconds = |unit: &str| TIMES.iter().find(|(name, _)| *name == unit).map(|(_, s)| *s);
    for (unit, size) in TIMES {
        for (ending, form) in
            [(format!("_per_{unit}"), 1), (format!("_{unit}2"), 2), (format!("_{unit}"), 0)]
        {
            let Some(base) = name.strip_suffix(ending.as_str()) else { continue };
            let Some((output, from)) = find(answer, base, depth - 1) else { continue };
            let (factor, unit) = match form {
                1 => {
                    let Some(has) = from.strip_prefix("1/").and_then(seconds) else { continue };
                    (size / has, format!("1/{unit}"))
                }
                2 => {
                    let Some(has) = from.strip_suffix("^2").and_then(seconds) else { continue };
                    ((has / size).powi(2), format!("{unit}^2"))
                }
                _ => {
                    let Some(has) = seconds(&from) else { continue };
                    (has / size, unit.to_owned())
                }
            };
            return Some((output.map(|value| value * factor), unit));
        }
    }
    None
}

/// The root of a variance.
fn deviation(answer: &Answer, name: &str, depth: u32) -> Option<Found> {
    let base = name.strip_prefix("std_")?;
    let (output, unit) = find(answer, &format!("var_{base}"), depth - 1)?;
    let unit = unit.trim_end_matches("^2").to_owned();
    Some((output.map(f64::sqrt), unit))
}

/// One entry of a list, counted from 1.
fn part(answer: &Answer, name: &str, depth: u32) -> Option<Found> {
    let (base, at) = name.rsplit_once('_')?;
    let index = at.parse::<usize>().ok()?.checked_sub(1)?;
    match find(answer, base, depth - 1)? {
        (Output::List(list), unit) => Some((Output::Number(*list.get(index)?), unit)),
        _ => None,
    }
}

/// Adds an output of a station whose name carries a number.
pub(crate) fn station(answer: &mut Answer, name: &str, s: &StationSolution, unit: Unit) {
    if let Some((value, unit)) = s.states.as_ref().and_then(|states| state(name, states)) {
        answer.number(name, value, unit);
        return;
    }
    let stripped = name.strip_prefix("p_").unwrap_or(name);
    let (law, rest) = match stripped.split_once('_') {
        Some(("response", rest)) => (s.response_law.as_ref(), rest),
        Some(("wait", rest)) => (s.waiting_law.as_ref(), rest),
        _ => return,
    };
    let Some(law) = law else { return };
    if let Some(quantile) = rest.strip_prefix('p').and_then(percent) {
        answer.maybe(name, law.quantile(quantile).map(|t| unit.time(t)), unit.name);
    } else if let Some(value) = share(rest, law, unit) {
        answer.number(name, value, "1");
    }
}

/// `p_at_least_13`, `p_more_than_3`, `p_at_most_2`, `p_n_4`, `buffers_for_loss_below_1e-6`.
fn state(name: &str, states: &StateLaw) -> Option<(f64, &'static str)> {
    if let Some(p) = name.strip_prefix("buffers_for_loss_below_") {
        // So many that P(at least as many) stays below p.
        let n = states.exceeded_with(p.parse().ok()?)?;
        return Some((kendall_units::exact_f64(n.checked_add(1)?), "buffers"));
    }
    let rest = name.strip_prefix("p_")?;
    let after = |start: &str| rest.strip_prefix(start)?.parse::<u64>().ok();
    let value = if let Some(n) = after("at_least_") {
        states.at_least(n)
    } else if let Some(n) = after("more_than_") {
        states.at_least(n.saturating_add(1))
    } else if let Some(n) = after("at_most_") {
        states.at_most(n)
    } else if let Some(n) = after("less_than_") {
        if n == 0 { 0.0 } else { states.at_most(n - 1) }
    } else {
        states.probability(after("n_")?)
    };
    Some((value, "1"))
}

/// `90`, `99_9`, `99.9` and `999` are percentiles.
fn percent(digits: &str) -> Option<f64> {
    let plain = digits.replace('_', ".");
    let value: f64 = plain.parse().ok()?;
    if value < 100.0 { Some(value / 100.0) } else { format!("0.{digits}").parse().ok() }
}

/// `cdf_at_2s`, `exceeds_500ms`, `at_most_3`.
fn share(rest: &str, law: &TimeLaw, unit: Unit) -> Option<f64> {
    let after = |start: &str| rest.strip_prefix(start).and_then(|text| duration(text, unit));
    if let Some(t) = after("exceeds_") {
        return Some(law.survival(t));
    }
    after("cdf_at_").or_else(|| after("at_most_")).map(|t| law.cdf(t))
}

/// `2s`, `500ms`, `3min`; a bare number is in the unit of the case.
fn duration(text: &str, unit: Unit) -> Option<f64> {
    let end = text.find(|c: char| c.is_ascii_alphabetic() && c != 'e').unwrap_or(text.len());
    let value: f64 = text[..end].parse().ok()?;
    let seconds = match &text[end..] {
        "" => unit.seconds,
        "ms" => 1e-3,
        "us" => 1e-6,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        _ => return None,
    };
    Some(value * seconds)
}
