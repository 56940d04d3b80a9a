//! Outputs that were asked for by name: those with a number in them (`p_at_least_13`,
//! `response_p99`), and those known under another name (`Lq`, `blocking_probability`,
//! `mean_response_time_ms`).

use super::{Answer, Output};
use crate::station::{StateLaw, StationSolution, TimeLaw};

/// Other names of outputs; the first of a row is the one that answers carry.
const ALIASES: [&[&str]; 24] = [
    &[
        "mean_jobs",
        "mean_number",
        "mean_n",
        "mean_customers",
        "mean_population",
        "mean_number_in_system",
        "mean_jobs_in_system",
        "mean_system_size",
        "number_mean",
        "average_jobs",
        "jobs",
        "l",
        "e_n",
        "q",
        "n",
    ],
    &[
        "mean_queue",
        "mean_queue_length",
        "mean_number_waiting",
        "mean_jobs_waiting",
        "mean_waiting_jobs",
        "mean_jobs_in_queue",
        "mean_number_in_queue",
        "mean_nq",
        "number_waiting_mean",
        "queue_length",
        "lq",
        "e_nq",
        "nq",
    ],
    &[
        "mean_response",
        "mean_response_time",
        "response_time_mean",
        "response_mean",
        "response_time",
        "response",
        "mean_sojourn",
        "mean_sojourn_time",
        "sojourn_time",
        "mean_time_in_system",
        "e_r",
        "e_t",
        "r",
    ],
    &[
        "mean_wait",
        "mean_waiting_time",
        "mean_waiting",
        "waiting_time_mean",
        "waiting_time",
        "wait_mean",
        "wait",
        "mean_queueing_time",
        "mean_queueing_delay",
        "mean_delay",
        "mean_time_in_queue",
        "e_w",
        "wq",
    ],
    &["var_jobs", "variance_jobs", "jobs_variance", "var_n", "var_number", "number_variance"],
    &["var_queue", "var_nq", "variance_queue", "number_waiting_variance", "var_number_waiting"],
    &[
        "var_response",
        "variance_response",
        "response_variance",
        "response_time_variance",
        "var_response_time",
        "var_r",
        "var_sojourn",
    ],
    &[
        "var_wait",
        "variance_wait",
        "wait_variance",
        "waiting_time_variance",
        "var_waiting_time",
        "var_w",
    ],
    &[
        "p_loss",
        "loss_probability",
        "p_block",
        "p_blocking",
        "p_blocked",
        "blocking_probability",
        "blocking",
        "p_full",
        "p_reject",
        "p_lost",
        "erlang_b",
        "p_k",
        "pk",
        "p_b",
    ],
    &[
        "p_queueing",
        "p_wait",
        "p_waiting",
        "p_delay",
        "queueing_probability",
        "probability_of_queueing",
        "p_all_busy",
        "erlang_c",
        "p_busy",
        "p_q",
    ],
    &["p0", "p_0", "p_empty", "p_idle", "probability_empty"],
    &["utilization", "rho", "traffic_intensity", "server_utilization", "utilisation", "u"],
    &["throughput", "x", "system_throughput", "departure_rate", "mean_throughput", "x0"],
    &[
        "effective_arrival_rate",
        "accepted_rate",
        "accepted_arrival_rate",
        "lambda_effective",
        "lambda_eff",
        "carried_rate",
    ],
    &["offered_load", "offered_load_erlang", "offered_erlangs", "traffic", "a"],
    &[
        "busy_period_mean",
        "mean_busy_period",
        "busy_period",
        "mean_busy_period_duration",
        "busy_period_duration_mean",
    ],
    &["busy_period_var", "var_busy_period", "busy_period_variance"],
    &[
        "jobs_per_busy_period_mean",
        "mean_jobs_per_busy_period",
        "jobs_per_busy_period",
        "mean_jobs_served_in_busy_period",
        "mean_jobs_in_busy_period",
        "busy_period_jobs_mean",
        "busy_period_customers_mean",
        "jobs_served_in_busy_period",
    ],
    &[
        "system_response",
        "system_response_time",
        "system_response_mean",
        "mean_system_response",
        "response_time_system",
    ],
    &["residence_time", "residence", "residence_times"],
    &["response_per_visit", "response_time_per_visit", "mean_response_per_visit"],
    &["station_throughput", "throughput_by_station", "station_throughputs", "device_throughput"],
    &["p_n", "state_probabilities", "p_states", "pi", "steady_state_probabilities"],
    &["n_star", "saturation_population", "saturation_point", "knee", "n_sat", "nstar"],
];

/// What may stand in front of a name, and what answers carry for it.
const PREFIXES: [(&str, &str); 14] = [
    ("exact_", "exact_"),
    ("mva_", ""),
    ("convolution_", ""),
    ("schweitzer_", "schweitzer_"),
    ("bard_schweitzer_", "schweitzer_"),
    ("amva_", "schweitzer_"),
    ("approximate_", "schweitzer_"),
    ("approx_", "schweitzer_"),
    ("linearizer_", "linearizer_"),
    ("seidmann_", "seidmann_"),
    ("open_", "open_"),
    ("closed_", "closed_"),
    ("class_", ""),
    ("", ""),
];

/// Units that a name may end in, with their seconds.
const TIMES: [(&str, f64); 6] =
    [("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9), ("min", 60.0), ("h", 3_600.0), ("s", 1.0)];

/// Adds the outputs that were asked for under other names than they have.
pub(super) fn fill(answer: &mut Answer, wanted: &[String]) {
    for name in wanted {
        if answer.outputs.contains_key(name) {
            continue;
        }
        if let Some(found) = find(answer, &name.to_lowercase().replace(['-', ' '], "_"), 3) {
            answer.outputs.insert(name.clone(), found);
        }
    }
}

type Found = (Output, String);

fn find(answer: &Answer, name: &str, depth: u32) -> Option<Found> {
    if depth == 0 {
        return None;
    }
    let known = |key: &str| answer.outputs.get(key).cloned();
    known(name)
        .or_else(|| candidates(name).iter().find_map(|key| known(key)))
        // Of a station it is who waits, as above; of a network's stations all who are there.
        .or_else(|| name.starts_with("queue_length").then(|| known("mean_jobs")).flatten())
        .or_else(|| bound(name).iter().find_map(|key| known(key)))
        .or_else(|| in_unit(answer, name, depth))
        .or_else(|| deviation(answer, name, depth))
        .or_else(|| part(answer, name, depth))
}

/// Keys under which a name may be known.
fn candidates(name: &str) -> Vec<String> {
    let mut keys = Vec::new();
    for (written, prefix) in PREFIXES {
        let Some(rest) = name.strip_prefix(written) else { continue };
        for row in ALIASES {
            for alias in row.iter() {
                let Some(end) = rest.strip_prefix(alias) else { continue };
                if end.is_empty() || end.starts_with("_by_") || end.starts_with("_per_class") {
                    let end = end.replace("_per_class", "_by_class");
                    keys.extend(row.iter().map(|key| format!("{prefix}{key}{end}")));
                }
            }
        }
        keys.push(format!("{prefix}{rest}"));
    }
    keys
}

/// `x_max_bjb` and the like.
fn bound(name: &str) -> Vec<String> {
    let has = |words: &[&str]| name.split('_').any(|token| words.contains(&token));
    let family = [
        ("asymptotic_", &["asymptotic", "aba", "asym"][..]),
        ("balanced_", &["balanced", "bjb", "bjs"]),
        ("geometric_", &["geometric", "gb", "gsb"]),
        ("proportional_", &["proportional", "pb"]),
    ]
    .into_iter()
    .find(|(_, words)| has(words))
    .map_or("", |(family, _)| family);
    let quantity = if has(&["throughput", "x", "xmax", "xmin"]) {
        "throughput"
    } else if has(&["response", "r", "rmin", "rmax", "residence"]) {
        "response"
    } else {
        return Vec::new();
    };
    let upper = has(&["upper", "max", "ub", "high", "xmax", "rmax", "maximum", "most"]);
    let lower = has(&["lower", "min", "lb", "low", "xmin", "rmin", "minimum", "least"]);
    let optimistic = has(&["optimistic"]);
    let side = match (upper, lower, optimistic, has(&["pessimistic"]), quantity) {
        (true, false, ..) => "upper",
        (false, true, ..) => "lower",
        (_, _, true, false, "throughput") | (_, _, false, true, "response") => "upper",
        (_, _, true, false, _) | (_, _, false, true, _) => "lower",
        _ => return Vec::new(),
    };
    vec![format!("{family}{quantity}_{side}")]
}

/// A name that ends in a unit: the value in it.
fn in_unit(answer: &Answer, name: &str, depth: u32) -> Option<Found> {
    if let Some(base) = name.strip_suffix("_percent").or_else(|| name.strip_suffix("_pct")) {
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
                1 => (size / seconds(from.strip_prefix("1/")?)?, format!("1/{unit}")),
                2 => ((seconds(from.strip_suffix("^2")?)? / size).powi(2), format!("{unit}^2")),
                _ => (seconds(&from)? / size, unit.to_owned()),
            };
            return Some((output.map(|value| value * factor), unit));
        }
    }
    None
}

/// The root of a variance.
fn deviation(answer: &Answer, name: &str, depth: u32) -> Option<Found> {
    let base = ["std_", "sd_", "stddev_", "stdev_"]
        .iter()
        .find_map(|start| name.strip_prefix(start))
        .or_else(|| ["_std", "_sd"].iter().find_map(|end| name.strip_suffix(end)))?;
    let (output, unit) = find(answer, &format!("var_{base}"), depth - 1)?;
    let unit = unit.trim_end_matches("^2").to_owned();
    Some((output.map(f64::sqrt), unit))
}

/// One entry of a list, or its sum or extreme.
fn part(answer: &Answer, name: &str, depth: u32) -> Option<Found> {
    let number = |output: &Output, pick: &dyn Fn(&[f64]) -> Option<f64>| match output {
        Output::List(list) => pick(list).map(Output::Number),
        _ => None,
    };
    if let Some((base, at)) = name.rsplit_once('_') {
        let index = match at {
            "first" => Some(0),
            "second" => Some(1),
            "third" => Some(2),
            _ => at.parse::<usize>().ok().and_then(|n| n.checked_sub(1)),
        };
        if let (Some(index), Some((output, unit))) = (index, find(answer, base, depth - 1))
            && let Some(value) = number(&output, &|list| list.get(index).copied())
        {
            return Some((value, unit));
        }
    }
    for (start, pick) in [
        ("total_", (|list: &[f64]| Some(list.iter().sum())) as fn(&[f64]) -> Option<f64>),
        ("sum_", |list| Some(list.iter().sum())),
        ("max_", |list| list.iter().copied().reduce(f64::max)),
        ("min_", |list| list.iter().copied().reduce(f64::min)),
    ] {
        if let Some(base) = name.strip_prefix(start)
            && let Some((output, unit)) = find(answer, base, depth - 1)
            && let Some(value) = number(&output, &pick)
        {
            return Some((value, unit));
        }
    }
    None
}

impl Output {
    fn map(self, f: impl Fn(f64) -> f64) -> Self {
        match self {
            Self::Number(value) => Self::Number(f(value)),
            Self::List(list) => Self::List(list.into_iter().map(f).collect()),
            Self::Table(rows) => {
                Self::Table(rows.into_iter().map(|row| row.into_iter().map(&f).collect()).collect())
            }
            word @ Self::Word(_) => word,
        }
    }
}

/// Adds an output of a station whose name carries a number.
pub(super) fn station(
    answer: &mut Answer,
    name: &str,
    s: &StationSolution,
    unit: &str,
    seconds: f64,
) {
    if let Some(states) = &s.states
        && let Some((value, unit)) = state(name, states)
    {
        answer.number(name, value, unit);
    }
    let lower = name.to_lowercase();
    let tokens: Vec<&str> = lower.split('_').collect();
    let has = |words: &[&str]| tokens.iter().any(|token| words.contains(token));
    let law = if has(&["wait", "waiting", "queueing", "delay", "w", "wq"]) {
        s.waiting_law.as_ref()
    } else if has(&["response", "sojourn", "r", "residence"]) {
        s.response_law.as_ref()
    } else {
        None
    };
    let Some(law) = law else { return };
    if let Some(quantile) = quantile(&lower, &tokens) {
        answer.maybe(name, law.quantile(quantile).map(|t| t / seconds), unit);
    } else if let Some(value) = share(&lower, &tokens, law, seconds) {
        answer.number(name, value, "1");
    }
}

/// `p_at_least_13`, `p_more_than_3`, `p_n_4`, `p7`, `buffers_for_loss_below_1e-6`.
fn state(name: &str, states: &StateLaw) -> Option<(f64, &'static str)> {
    if let Some(p) = name.strip_prefix("buffers_for_loss_below_") {
        // So many that P(at least as many) stays below p.
        let n = states.exceeded_with(p.parse().ok()?)?;
        return Some((kendall_units::exact_f64(n.checked_add(1)?), "buffers"));
    }
    let rest = ["probability_", "prob_", "p_", "p"].iter().find_map(|p| name.strip_prefix(p))?;
    let rest = rest.trim_start_matches("jobs_").trim_start_matches("n_");
    let after = |starts: &[&str]| {
        starts.iter().find_map(|start| rest.strip_prefix(start)?.parse::<u64>().ok())
    };
    let value = if let Some(n) = after(&["at_least_", "ge_"]) {
        states.at_least(n)
    } else if let Some(n) = after(&["more_than_", "gt_", "exceeds_", "over_"]) {
        states.at_least(n.saturating_add(1))
    } else if let Some(n) = after(&["at_most_", "le_"]) {
        states.at_most(n)
    } else if let Some(n) = after(&["less_than_", "lt_", "fewer_than_", "below_"]) {
        if n == 0 { 0.0 } else { states.at_most(n - 1) }
    } else {
        states.probability(after(&["exactly_", "n_", "eq_", ""])?)
    };
    Some((value, "1"))
}

/// `response_p99_9`, `wait_90th_percentile`, `response_quantile_0.95`, `median_wait`.
fn quantile(name: &str, tokens: &[&str]) -> Option<f64> {
    if tokens.contains(&"median") {
        return Some(0.5);
    }
    for start in ["response_p", "wait_p", "response_time_p", "waiting_time_p", "waiting_p"] {
        if let Some(found) = name.strip_prefix(start).and_then(percent) {
            return Some(found);
        }
    }
    if let Some(at) = tokens.iter().position(|token| token.starts_with("quantile")) {
        return tokens.get(at + 1)?.parse().ok();
    }
    let number = |token: &&str| {
        let digits = token.trim_start_matches(['p', 'q']).trim_end_matches("th");
        digits.chars().next()?.is_ascii_digit().then(|| percent(digits)).flatten()
    };
    let marked = |token: &&&str| token.ends_with("th") || token.starts_with(['p', 'q']);
    if tokens.contains(&"percentile") {
        return tokens.iter().find_map(number);
    }
    tokens.iter().filter(marked).find_map(number)
}

/// `90`, `99_9`, `99.9` and `999` are percentiles.
fn percent(digits: &str) -> Option<f64> {
    let plain = digits.replace('_', ".");
    let value: f64 = plain.parse().ok()?;
    if value < 100.0 { Some(value / 100.0) } else { format!("0.{digits}").parse().ok() }
}

/// `wait_cdf_at_2s`, `p_response_exceeds_500ms`, `p_wait_at_most_3`.
fn share(name: &str, tokens: &[&str], law: &TimeLaw, seconds: f64) -> Option<f64> {
    let has = |words: &[&str]| tokens.iter().any(|token| words.contains(token));
    let t = duration(tokens.last()?, seconds)?;
    if has(&["survival", "ccdf", "tail", "exceeds", "exceed", "exceeding", "gt", "above", "over"])
        || name.contains("more_than")
        || name.contains("greater_than")
        || name.contains("longer_than")
    {
        Some(law.survival(t))
    } else if has(&["cdf", "le", "within", "below", "under", "lt"])
        || name.contains("at_most")
        || name.contains("less_than")
    {
        Some(law.cdf(t))
    } else {
        None
    }
}

/// `2s`, `500ms`, `3min`; a bare number is in the unit of the case.
fn duration(text: &str, seconds: f64) -> Option<f64> {
    let end = text.find(|c: char| c.is_ascii_alphabetic() && c != 'e').unwrap_or(text.len());
    let value: f64 = text[..end].parse().ok()?;
    let unit = match &text[end..] {
        "" => seconds,
        "ms" => 1e-3,
        "us" => 1e-6,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        _ => return None,
    };
    Some(value * unit)
}
