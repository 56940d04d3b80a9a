//! Answers as documents for people.

use kendall_queueing::Model;
use kendall_queueing::simulation::{Measured, Simulated};
use kendall_queueing::solver::{ClassResult, Solution, StationResult};
use kendall_queueing::station::{Moments, StationSolution};
use kendall_report::document::{Cell, Level, Section, Table, Unit};
use kendall_textbook::{Answer, Output};
use kendall_units::counted;

use super::{Solved, cases};

/// Seconds, to the figures of a model.
pub(super) const TIME: Unit = Unit::Time(4);

pub(super) fn titled(id: &'static str, model: &Model) -> Section {
    Section::new(id, if model.name.is_empty() { "model" } else { &model.name })
}

pub(super) fn answer(model: &Model, answer: &Solved) -> Section {
    match answer {
        Solved::Formula(solution) => formula(model, solution),
        Solved::Simulated(simulated) => simulation(model, simulated),
    }
}

fn formula(model: &Model, s: &Solution) -> Section {
    let mut document = titled("solution", model);
    document.text(format!("solver  {} ({})", s.solver, s.accuracy.name()));
    match &s.station {
        Some(station) => document.table(single(station, s)),
        None => {
            document.table(classes(model, &s.classes));
            document.table(stations(model, &s.stations));
            document.table(pools(s));
            for class in &s.classes {
                let of =
                    if s.classes.len() > 1 { format!("{}, ", class.name) } else { String::new() };
                for (quantile, value) in &class.response_quantiles {
                    document.text(format!(
                        "{of}response time, {}: {}",
                        percent(*quantile),
                        TIME.print(*value)
                    ));
                }
            }
            for (quantile, value) in &s.waiting_quantiles {
                let (of, value) = (percent(*quantile), TIME.print(*value));
                document.text(format!("waiting time, {of}: {value}"));
            }
        }
    }
    if let Some(settling) = &s.settling {
        let (from, to) = settling.number_mean;
        document.text(format!(
            "after a step from {} to {} in the system: 95 % of it after {}",
            Unit::Number.print(from),
            Unit::Number.print(to),
            TIME.print(settling.time_s)
        ));
        document.table(
            Table::of("settling", "Mean number after the step", &settling.curve)
                .column("time_s", "time", TIME, |point| point.0)
                .column("number_mean", "number", Unit::Number, |point| point.1)
                .table(),
        );
    }
    if let Some(ln_g) = s.ln_g {
        document.text(format!("ln G = {} (demands in s)", Unit::Number.print(ln_g)));
    }
    if let Some((rounds, change)) = s.iterations {
        let rounds = counted(rounds, "round");
        document.text(format!("settled after {rounds}, last change {change:.1e}"));
    }
    for caveat in &s.caveats {
        document.note(Level::Doubt, caveat.to_string());
    }
    document
}

fn percent(quantile: f64) -> String {
    format!("{} %", Unit::Number.print(quantile * 100.0))
}

fn single(s: &StationSolution, solution: &Solution) -> Table {
    let mut table = Table::new("station", "All metrics of the station")
        .column("metric", "metric", Unit::Text)
        .column("symbol", "symbol", Unit::Text)
        .column("value", "value", Unit::Number)
        .column("variance", "variance", Unit::Number);
    let mut plain = |name: &str, symbol: &str, value: String| {
        table.push(vec![name.into(), symbol.into(), value.into(), "".into()]);
    };
    let number = |value: f64| Unit::Number.print(value);
    plain("offered load", "a", format!("{} erlang", number(s.offered_load)));
    plain("utilization", "ρ", number(s.utilization));
    plain("throughput", "X", Unit::Rate.print(s.throughput));
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
    let mut both = |name: &str, symbol: &str, moments: Moments, unit: Unit| {
        let square = if unit == TIME { " s²" } else { "" };
        let variance = moments.variance.map(|value| format!("{}{square}", number(value)));
        table.push(vec![
            name.into(),
            symbol.into(),
            unit.print(moments.mean).into(),
            variance.into(),
        ]);
    };
    both("number at the station", "n", s.number, Unit::Number);
    both("number waiting", "n_q", s.number_waiting, Unit::Number);
    both("response time", "r", s.response_time, TIME);
    both("waiting time", "w", s.waiting_time, TIME);
    if let Some(busy) = &s.busy_period {
        both("busy period", "", busy.duration, TIME);
        both("customers served in it", "", busy.served, Unit::Number);
    }
    let mut plain = |name: String, value: String| {
        table.push(vec![name.into(), "".into(), value.into(), "".into()]);
    };
    for (name, list) in [
        ("response time", &solution.response_quantiles),
        ("waiting time", &solution.waiting_quantiles),
    ] {
        for (quantile, value) in list {
            plain(format!("{name}, {}", percent(*quantile)), TIME.print(*value));
        }
    }
    for (key, value) in &s.more {
        let (name, unit) = match (key.strip_suffix("_per_s"), key.strip_suffix("_s")) {
            (Some(name), _) => (name, Unit::Rate),
            (None, Some(name)) => (name, TIME),
            (None, None) => (*key, Unit::Number),
        };
        plain(name.replace('_', " "), unit.print(*value));
    }
    table
}

/// A row a class; the bounds are for files.
pub(super) fn classes(model: &Model, classes: &[ClassResult]) -> Table {
    Table::of("classes", "Classes", classes)
        .column("name", "class", Unit::Text, |class| class.name.as_str())
        .column("throughput_per_s", "throughput", Unit::Rate, |class| class.throughput)
        .column("system_response_time_mean_s", "response", TIME, |class| class.system_response)
        .column("number_mean", "in system", Unit::Number, |class| class.number)
        .column("number_variance", "", Unit::Number, |class| class.number_variance)
        .column("system_response_time_variance_s2", "", Unit::Number, |class| {
            class.system_response_variance
        })
        .column("bottleneck", "bottleneck", Unit::Text, |class| {
            Some(model.stations.get(class.bottleneck.as_ref()?.resource)?.name.as_str())
        })
        .column("throughput_most_per_s", "", Unit::Rate, |class| {
            Some(class.bottleneck.as_ref()?.most_throughput)
        })
        .column("saturation_population", "N*", Unit::Number, |class| {
            class.bottleneck.as_ref()?.saturation_population
        })
        .column("throughput_bound_low_per_s", "", Unit::Rate, |class| {
            class.throughput_bounds.map(|bounds| bounds.0)
        })
        .column("throughput_bound_high_per_s", "", Unit::Rate, |class| {
            class.throughput_bounds.map(|bounds| bounds.1)
        })
        .table()
}

/// A row a station and class that comes to it; one class needs no name.
pub(super) fn stations(model: &Model, stations: &[StationResult]) -> Table {
    let comes = |(station, class): &(&StationResult, usize)| station.throughput[*class] > 0.0;
    let of_station = |station| (0..model.classes.len()).map(move |class| (station, class));
    let class = if model.classes.len() == 1 { "" } else { "class" };
    Table::of("stations", "Stations", stations.iter().flat_map(of_station).filter(comes))
        .column("station", "station", Unit::Text, |(s, _)| s.name.as_str())
        .column("name", class, Unit::Text, |(_, class)| model.classes[*class].name.as_str())
        .column("throughput_per_s", "X", Unit::Rate, |(s, class)| s.throughput[*class])
        .column("utilization", "busy", Unit::Number, |(s, class)| s.utilization[*class])
        .column("number_mean", "number", Unit::Number, |(s, class)| s.number[*class])
        .column("waiting_time_mean_s", "waiting", TIME, |(s, class)| s.waiting_time[*class])
        .column("response_time_mean_s", "response", TIME, |(s, class)| s.response_time[*class])
        .column("residence_time_mean_s", "residence", TIME, |(s, class)| s.residence_time[*class])
        .table()
}

pub(super) fn pools(solution: &Solution) -> Table {
    Table::of("pools", "Pools", &solution.pools)
        .column("name", "pool", Unit::Text, |pool| pool.name.as_str())
        .column("tokens_in_use_mean", "in use", Unit::Number, |pool| pool.in_use)
        .column("utilization", "utilization", Unit::Number, |pool| pool.utilization)
        .column("number_waiting_mean", "waiting", Unit::Number, |pool| pool.number_waiting)
        .column("waiting_time_mean_s", "time to a token", TIME, |pool| pool.waiting_time)
        .table()
}

fn measured(value: Option<&Measured>, unit: Unit) -> Cell {
    let shown = |value: &Measured| {
        let center = unit.print(value.center);
        value.half_width.map_or(center.clone(), |half| format!("{center} ± {}", unit.print(half)))
    };
    value.map(shown).into()
}

fn simulation(model: &Model, s: &Simulated) -> Section {
    let mut document = titled("simulation", model);
    document.text(format!(
        "solver  simulation (estimate, {} intervals), seed {}, {} customers",
        percent(s.confidence),
        s.seed,
        s.completed_customers
    ));
    let classes = Table::of("classes", "Classes", &s.classes)
        .column("name", "class", Unit::Text, |class| class.name.as_str())
        .column("throughput_per_s", "throughput", Unit::Rate, |class| {
            measured(class.throughput_per_s.as_ref(), Unit::Rate)
        })
        .column("response_time_mean_s", "response", TIME, |class| {
            measured(class.response_time_mean_s.as_ref(), TIME)
        })
        .column("number_mean", "in system", Unit::Number, |class| {
            measured(class.number_mean.as_ref(), Unit::Number)
        });
    let stations = Table::of("stations", "Stations", s.stations.iter().chain(&s.pools))
        .column("name", "station", Unit::Text, |station| station.name.as_str())
        .column("utilization", "busy", Unit::Number, |station| {
            measured(station.utilization.as_ref(), Unit::Number)
        })
        .column("number_mean", "number", Unit::Number, |station| {
            measured(station.number_mean.as_ref(), Unit::Number)
        })
        .column("waiting_time_mean_s", "waiting", TIME, |station| {
            measured(station.all.waiting_time_mean_s.as_ref(), TIME)
        })
        .column("response_time_mean_s", "response", TIME, |station| {
            measured(station.all.response_time_mean_s.as_ref(), TIME)
        });
    document.table(classes.table());
    document.table(stations.table());
    for class in &s.classes {
        for (quantile, value) in &class.response_time_quantiles_s {
            let shown = measured(Some(value), TIME).print(TIME);
            document.text(format!(
                "{}, response time, {}: {shown}",
                class.name,
                percent(*quantile)
            ));
        }
    }
    for doubt in &s.doubts {
        document.note(Level::Doubt, doubt.to_string());
    }
    document
}

/// Throughput, response and number of one class, whatever the solver.
pub(super) fn main_figures(answer: &Solved, class: usize) -> [Option<f64>; 3] {
    match answer {
        Solved::Formula(s) => {
            let class = &s.classes[class];
            [class.throughput, class.system_response, class.number].map(Some)
        }
        Solved::Simulated(s) => {
            let class = &s.classes[class];
            [class.throughput_per_s, class.response_time_mean_s, class.number_mean]
                .map(|measured| measured.map(|measured| measured.center))
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
pub(super) fn comparison(model: &Model, answers: &[(String, Solved)]) -> Section {
    let rows = answers.iter().flat_map(|(name, answer)| {
        (0..model.classes.len()).map(move |class| (name, answer, class))
    });
    let figure = |which: usize| {
        move |(_, answer, class): &(&String, &Solved, usize)| main_figures(answer, *class)[which]
    };
    let gap = |which: usize| {
        move |(_, answer, class): &(&String, &Solved, usize)| {
            let first = main_figures(&answers[0].1, *class)[which]?;
            let ratio = main_figures(answer, *class)[which]? / first;
            (first != 0.0).then(|| format!("{:+.3} %", (ratio - 1.0) * 100.0))
        }
    };
    let table = Table::of("comparison", "Solvers side by side", rows)
        .column("solver", "solver", Unit::Text, |(name, answer, _)| {
            if *name == "auto" { solver_of(answer).0.to_owned() } else { (*name).clone() }
        })
        .column("accuracy", "accuracy", Unit::Text, |(_, answer, _)| solver_of(answer).1)
        .column("class", "class", Unit::Text, |(.., class)| model.classes[*class].name.as_str())
        .column("throughput_per_s", "throughput", Unit::Rate, figure(0))
        .column("throughput_difference", "difference", Unit::SignedPercent, gap(0))
        .column("system_response_time_mean_s", "response", TIME, figure(1))
        .column("response_difference", "difference", Unit::SignedPercent, gap(1));
    let mut document = titled("comparison", model);
    document.table(table.table());
    document
}

/// A file of worked cases: one line each, and what was not met.
pub(super) fn cases(solved: &[cases::Solved]) -> Section {
    let table = Table::of("cases", "Worked cases", solved)
        .column("id", "case", Unit::Text, |case| case.id.as_str())
        .column("kind", "kind", Unit::Text, |case| {
            case.answer.as_ref().map_or_else(|_| String::new(), |answer| answer.kind.clone())
        })
        .column("met", "outputs met", Unit::Text, |case| {
            let met = case.checks.iter().filter(|check| check.met).count();
            let met = format!("{met} of {}", case.checks.len());
            if case.answer.is_ok() { met } else { "refused".to_owned() }
        })
        .column("largest_error", "largest error", Unit::Number, |case| {
            let errors = case.checks.iter().filter_map(|check| check.relative_error);
            case.answer.is_ok().then(|| format!("{:.1e}", errors.fold(0.0, f64::max)))
        });
    let mut document = Section::new("cases", "");
    document.table(table.table());
    for case in solved {
        if let Err(message) = &case.answer {
            let expected = if case.met() { ", as expected" } else { "" };
            document.text(format!("{}: refused{expected}: {message}", case.id));
        }
        for check in case.checks.iter().filter(|check| !check.met) {
            let found = check.found.as_ref();
            let found = found.map_or_else(|| "not known".to_owned(), ToString::to_string);
            let (output, expected) = (&check.output, &check.expected);
            document.text(format!("{}: {output} is {found}, expected {expected}", case.id));
        }
    }
    let met = solved.iter().filter(|case| case.met()).count();
    document.text(format!("{met} of {} cases are met", solved.len()));
    document
}

pub(super) fn case(answer: &Answer, checks: &[cases::Check]) -> Section {
    const MOST_VALUES: usize = 5;
    let list = |values: &[f64]| {
        let shown = values.iter().take(MOST_VALUES).map(|value| Unit::Number.print(*value));
        let more = if values.len() > MOST_VALUES { " …" } else { "" };
        format!("{}{more}", shown.collect::<Vec<_>>().join("  "))
    };
    // What the file asks for; without wishes, all.
    let wanted = |(name, _): &(&String, &(Output, String))| {
        checks.is_empty() || checks.iter().any(|check| check.output == **name)
    };
    let table = Table::of("outputs", "Outputs", answer.outputs.iter().filter(wanted))
        .column("output", "output", Unit::Text, |(name, _)| name.as_str())
        .column("value", "value", Unit::Number, |(_, (output, _))| match output {
            Output::Number(value) => Unit::Number.print(*value),
            Output::List(values) => list(values),
            Output::Table(rows) => rows.iter().map(|row| list(row)).collect::<Vec<_>>().join("\n"),
            Output::Word(word) => word.clone(),
        })
        .column("unit", "unit", Unit::Text, |(_, (_, unit))| unit.as_str());
    let mut document = Section::new("case", answer.kind.as_str());
    document.text(format!("solver  {} ({})", answer.solver, answer.accuracy));
    document.table(table.table());
    for caveat in &answer.caveats {
        document.note(Level::Doubt, caveat.as_str());
    }
    for check in checks {
        let verdict = if check.met { "met" } else { "NOT met" };
        document.text(format!("expected {} = {}: {verdict}", check.output, check.expected));
    }
    document
}
