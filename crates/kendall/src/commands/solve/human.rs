//! Answers as tables for people.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, presets};
use kendall_queueing::Model;
use kendall_queueing::simulation::{Measured, Simulated};
use kendall_queueing::solver::Solution;
use kendall_queueing::station::{Moments, StationSolution};
use kendall_textbook::{Answer, Output};
use kendall_units::{Rate, Seconds};

use super::{Solved, cases};

pub(super) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()));
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Five significant figures, with an exponent where zeros would hide them.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".to_owned()
    } else if !value.is_finite() {
        "–".to_owned()
    } else if !(1e-4..1e7).contains(&size) {
        format!("{value:.4e}")
    } else if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        let mut decimals = 4_usize;
        let mut bound = 10.0;
        while size >= bound && decimals > 0 {
            bound *= 10.0;
            decimals -= 1;
        }
        if size < 1.0 { format!("{value:.5}") } else { format!("{value:.decimals$}") }
    }
}

pub(super) fn time(seconds: f64) -> String {
    if seconds.abs() < 1e7 {
        Seconds::new(seconds).to_string()
    } else {
        format!("{} s", number(seconds))
    }
}

fn rate(per_second: f64) -> String {
    Rate::per_second(per_second).to_string()
}

pub(super) fn answer(model: &Model, answer: &Solved) -> String {
    match answer {
        Solved::Formula(solution) => formula(model, solution),
        Solved::Simulated(simulated) => simulation(model, simulated),
    }
}

fn formula(model: &Model, s: &Solution) -> String {
    let mut text = String::new();
    let name = if s.model.is_empty() { "model" } else { &s.model };
    writeln!(text, "{name}\nsolver  {} ({})", s.solver, s.accuracy.name()).unwrap_or_default();
    match &s.station {
        Some(station) => text.push_str(&single(station, s)),
        None => text.push_str(&network(model, s)),
    }
    if s.station.is_none() {
        for (quantile, value) in &s.response_quantiles {
            let percent = number(quantile * 100.0);
            writeln!(text, "response time, {percent} %: {}", time(*value)).unwrap_or_default();
        }
    }
    if let Some((rounds, change)) = s.iterations {
        let rounds = kendall_units::counted(rounds, "round");
        writeln!(text, "settled after {rounds}, last change {change:.1e}").unwrap_or_default();
    }
    for caveat in &s.caveats {
        writeln!(text, "note: {caveat}").unwrap_or_default();
    }
    text
}

fn single(s: &StationSolution, solution: &Solution) -> String {
    let mut table = table(&["", "symbol", "value", "variance"]);
    let mut plain = |name: &str, symbol: &str, value: String| {
        table.add_row(vec![name.to_owned(), symbol.to_owned(), value, String::new()]);
    };
    plain("offered load", "a", format!("{} erlang", number(s.offered_load)));
    plain("utilization", "ρ", number(s.utilization));
    plain("throughput", "X", rate(s.throughput));
    if let Some(p0) = s.p0 {
        let shown = match s.ln_p0 {
            Some(ln) if p0 < 1e-300 => format!("e^{}", number(ln)),
            _ => number(p0),
        };
        plain("probability of an empty station", "P₀", shown);
    }
    if let Some(p) = s.p_queueing {
        plain("probability of waiting", "ϱ", number(p));
    }
    if s.loss_probability > 0.0 {
        plain("probability of loss", "P_loss", number(s.loss_probability));
    }
    let mut both = |name: &str, symbol: &str, moments: Moments, timed: bool| {
        let mean = if timed { time(moments.mean) } else { number(moments.mean) };
        let unit = if timed { " s²" } else { "" };
        let variance =
            moments.variance.map_or("–".to_owned(), |v| format!("{}{unit}", number(v)));
        table.add_row(vec![name.to_owned(), symbol.to_owned(), mean, variance]);
    };
    both("number at the station", "n", s.number, false);
    both("number waiting", "n_q", s.number_waiting, false);
    both("response time", "r", s.response_time, true);
    both("waiting time", "w", s.waiting_time, true);
    if let Some(busy) = &s.busy_period {
        both("busy period", "", busy.duration, true);
        both("customers served in it", "", busy.served, false);
    }
    for (name, list) in [
        ("response time", &solution.response_quantiles),
        ("waiting time", &solution.waiting_quantiles),
    ] {
        for (quantile, value) in list {
            let name = format!("{name}, {} %", number(quantile * 100.0));
            table.add_row(vec![name, String::new(), time(*value), String::new()]);
        }
    }
    for (key, value) in &s.more {
        let (name, shown) = match (key.strip_suffix("_per_s"), key.strip_suffix("_s")) {
            (Some(name), _) => (name, rate(*value)),
            (None, Some(name)) => (name, time(*value)),
            (None, None) => (*key, number(*value)),
        };
        table.add_row(vec![name.replace('_', " "), String::new(), shown, String::new()]);
    }
    format!("{table}\n")
}

fn network(model: &Model, s: &Solution) -> String {
    let mut classes = table(&["class", "throughput", "response", "in system", "bottleneck", "N*"]);
    for class in &s.classes {
        let neck = class.bottleneck.as_ref();
        let star = neck.and_then(|b| b.saturation_population);
        classes.add_row(vec![
            class.name.clone(),
            rate(class.throughput),
            time(class.system_response),
            number(class.number),
            neck.and_then(|b| model.stations.get(b.resource))
                .map_or("–".to_owned(), |station| station.name.clone()),
            star.map_or("–".to_owned(), number),
        ]);
    }
    let mut header = vec!["station", "class", "X", "busy", "number", "waiting", "response"];
    header.push("residence");
    // One class needs no column.
    let single = model.classes.len() == 1;
    if single {
        header.remove(1);
    }
    let mut stations = table(&header);
    for result in &s.stations {
        for (index, class) in model.classes.iter().enumerate() {
            if result.throughput[index] <= 0.0 {
                continue;
            }
            let mut row = vec![result.name.clone()];
            row.extend((!single).then(|| class.name.clone()));
            row.extend([
                rate(result.throughput[index]),
                number(result.utilization[index]),
                number(result.number[index]),
                time(result.waiting_time[index]),
                time(result.response_time[index]),
                time(result.residence_time[index]),
            ]);
            stations.add_row(row);
        }
    }
    let mut text = format!("{classes}\n{stations}\n");
    if !s.pools.is_empty() {
        let mut pools = table(&["pool", "in use", "utilization", "waiting", "time to a token"]);
        for pool in &s.pools {
            pools.add_row(vec![
                pool.name.clone(),
                number(pool.in_use),
                number(pool.utilization),
                number(pool.number_waiting),
                time(pool.waiting_time),
            ]);
        }
        writeln!(text, "{pools}").unwrap_or_default();
    }
    text
}

fn measured(value: Option<&Measured>, show: fn(f64) -> String) -> String {
    match value {
        None => "–".to_owned(),
        Some(Measured { center, half_width: Some(half) }) => {
            format!("{} ± {}", show(*center), show(*half))
        }
        Some(Measured { center, half_width: None }) => show(*center),
    }
}

fn simulation(model: &Model, s: &Simulated) -> String {
    let mut text = format!(
        "{}\nsolver  simulation (estimate, {} % intervals), seed {}, {} customers\n",
        if model.name.is_empty() { "model" } else { &model.name },
        number(s.confidence * 100.0),
        s.seed,
        s.completed_customers
    );
    let mut classes = table(&["class", "throughput", "response", "in system"]);
    for class in &s.classes {
        classes.add_row(vec![
            class.name.clone(),
            measured(class.throughput_per_s.as_ref(), rate),
            measured(class.response_time_mean_s.as_ref(), time),
            measured(class.number_mean.as_ref(), number),
        ]);
    }
    let mut stations = table(&["station", "busy", "number", "waiting", "response"]);
    for station in s.stations.iter().chain(&s.pools) {
        stations.add_row(vec![
            station.name.clone(),
            measured(station.utilization.as_ref(), number),
            measured(station.number_mean.as_ref(), number),
            measured(station.all.waiting_time_mean_s.as_ref(), time),
            measured(station.all.response_time_mean_s.as_ref(), time),
        ]);
    }
    writeln!(text, "{classes}\n{stations}").unwrap_or_default();
    for class in &s.classes {
        for (quantile, value) in &class.response_time_quantiles_s {
            let name = &class.name;
            let percent = number(quantile * 100.0);
            let shown = measured(Some(value), time);
            writeln!(text, "{name}, response time, {percent} %: {shown}").unwrap_or_default();
        }
    }
    for doubt in &s.doubts {
        writeln!(text, "note: {doubt}").unwrap_or_default();
    }
    text
}

/// Throughput and response of one class, whatever the solver.
pub(super) fn main_figures(answer: &Solved, class: usize) -> (f64, f64, f64) {
    match answer {
        Solved::Formula(s) => {
            let class = &s.classes[class];
            (class.throughput, class.system_response, class.number)
        }
        Solved::Simulated(s) => {
            let center = |m: Option<Measured>| m.map_or(f64::NAN, |m| m.center);
            let class = &s.classes[class];
            (
                center(class.throughput_per_s),
                center(class.response_time_mean_s),
                center(class.number_mean),
            )
        }
    }
}

pub(super) fn solver_of(answer: &Solved) -> (&str, &str) {
    match answer {
        Solved::Formula(s) => (&s.solver, s.accuracy.name()),
        Solved::Simulated(_) => ("simulation", "estimate"),
    }
}

/// Several solvers side by side; differences are to the first.
pub(super) fn comparison(model: &Model, answers: &[(String, Solved)]) -> String {
    let mut table = table(&[
        "solver",
        "accuracy",
        "class",
        "throughput",
        "difference",
        "response",
        "difference",
    ]);
    for (name, answer) in answers {
        for (index, class) in model.classes.iter().enumerate() {
            let (x, r, _) = main_figures(answer, index);
            let (x0, r0, _) = main_figures(&answers[0].1, index);
            let gap = |value: f64, first: f64| {
                if first == 0.0 {
                    "–".to_owned()
                } else {
                    format!("{:+.3} %", (value / first - 1.0) * 100.0)
                }
            };
            let (solver, accuracy) = solver_of(answer);
            let shown = if name == "auto" { solver } else { name };
            table.add_row(vec![
                shown.to_owned(),
                accuracy.to_owned(),
                class.name.clone(),
                rate(x),
                gap(x, x0),
                time(r),
                gap(r, r0),
            ]);
        }
    }
    format!("{}\n{table}\n", if model.name.is_empty() { "model" } else { &model.name })
}

/// A file of worked cases: one line each, and what was not met.
pub(super) fn cases(solved: &[cases::Solved]) -> String {
    let mut table = table(&["case", "kind", "outputs met", "largest error"]);
    let mut notes = String::new();
    for case in solved {
        let (kind, met, worst) = match &case.answer {
            Ok(answer) => {
                let met = case.checks.iter().filter(|check| check.met).count();
                let worst = case.checks.iter().filter_map(|c| c.relative_error).fold(0.0, f64::max);
                let shown = format!("{met} of {}", case.checks.len());
                (answer.kind.clone(), shown, format!("{worst:.1e}"))
            }
            Err(message) => {
                let expected = if case.met() { ", as expected" } else { "" };
                writeln!(notes, "{}: refused{expected}: {message}", case.id).unwrap_or_default();
                (String::new(), "refused".to_owned(), "–".to_owned())
            }
        };
        for check in case.checks.iter().filter(|check| !check.met) {
            writeln!(
                notes,
                "{}: {} is {}, expected {}",
                case.id,
                check.output,
                check.found.as_ref().map_or_else(|| "not known".to_owned(), ToString::to_string),
                check.expected
            )
            .unwrap_or_default();
        }
        table.add_row(vec![case.id.clone(), kind, met, worst]);
    }
    let met = solved.iter().filter(|case| case.met()).count();
    format!("{table}\n{notes}{met} of {} cases are met\n", solved.len())
}

pub(super) fn case(answer: &Answer, checks: &[cases::Check]) -> String {
    let mut table = table(&["output", "value", "unit"]);
    let list = |values: &[f64]| {
        let shown: Vec<String> = values.iter().take(5).map(|value| number(*value)).collect();
        let more = if values.len() > 5 { " …" } else { "" };
        format!("{}{more}", shown.join("  "))
    };
    // What the file asks for; without wishes, all.
    let wanted = |name: &String| checks.is_empty() || checks.iter().any(|c| c.output == *name);
    for (name, (output, unit)) in answer.outputs.iter().filter(|(name, _)| wanted(name)) {
        let value = match output {
            Output::Number(value) => number(*value),
            Output::List(values) => list(values),
            Output::Table(rows) => rows.iter().map(|row| list(row)).collect::<Vec<_>>().join("\n"),
            Output::Word(word) => word.clone(),
        };
        table.add_row(vec![name.clone(), value, unit.clone()]);
    }
    let mut text =
        format!("{}\nsolver  {} ({})\n{table}\n", answer.kind, answer.solver, answer.accuracy);
    for caveat in &answer.caveats {
        writeln!(text, "note: {caveat}").unwrap_or_default();
    }
    for check in checks {
        let verdict = if check.met { "met" } else { "NOT met" };
        writeln!(text, "expected {} = {}: {verdict}", check.output, check.expected)
            .unwrap_or_default();
    }
    text
}
