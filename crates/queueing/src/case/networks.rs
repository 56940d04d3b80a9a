//! Cases of networks, and what belongs to them.

use kendall_units::exact_f64;
use nalgebra::{DMatrix, DVector};

use super::read::{Fields, absent};
use super::{Answer, CaseError, Output};
use crate::model::value::Value;
use crate::model::{ModelError, refused};
use crate::network::{
    Accuracy, Bounds, ForkJoin, Iteration, Kind, Load, MultiServer, Network, NetworkError,
    NetworkSolution, Resource, asymptotic_bounds, balanced_bounds, bottleneck, convolution,
    flow_equivalent, fork_join, fork_join_unequal, geometric_bounds, linearizer, mixed,
    multi_class_bounds, normalization_constants, open_bounds, proportional_bounds, schweitzer,
};

/// The classes of a case, in one list: open ones first.
struct Classes {
    names: Vec<String>,
    loads: Vec<Load>,
    /// Whether the case lists classes at all.
    listed: bool,
}

/// Rates of a load-dependent station with 1, 2, … customers.
const RATES: [&str; 2] = ["service_rates_per_s", "rates_per_s"];

struct Case {
    classes: Classes,
    network: Network,
    visits: Vec<Vec<f64>>,
    unit: &'static str,
    seconds: f64,
}

/// The model with a list of stations, where it has lists of their numbers instead.
pub(super) fn unfolded(model: &Value) -> Option<Value> {
    const LISTS: [(&str, &str); 10] = [
        ("service_times_s", "service_time_s"),
        ("service_time_s", "service_time_s"),
        ("service_rates_per_s", "service_rate_per_s"),
        ("service_rate_per_s", "service_rate_per_s"),
        ("servers", "servers"),
        ("visits", "visits"),
        ("types", "type"),
        ("external_arrival_rates_per_s", "external_arrival_rate_per_s"),
        ("external_arrival_rate_per_s", "external_arrival_rate_per_s"),
        ("station_types", "type"),
    ];
    let table = model.table()?;
    let network = ["routing_probabilities", "routing_matrix", "visits", "routing", "P"];
    if table.contains_key("stations") || !network.iter().any(|key| table.contains_key(*key)) {
        return None;
    }
    let (first, _) =
        LISTS[..4].iter().find(|(key, _)| table.get(*key).and_then(Value::list).is_some())?;
    let count = table.get(*first)?.list()?.len();
    let mut changed = table.clone();
    let mut stations = vec![std::collections::BTreeMap::new(); count];
    for (key, own) in LISTS {
        let Some(Value::List(list)) = table.get(key) else { continue };
        if list.len() != count {
            continue;
        }
        for (station, value) in stations.iter_mut().zip(list) {
            station.insert(own.to_owned(), value.clone());
        }
        changed.remove(key);
    }
    let stations = stations.into_iter().map(Value::Table).collect();
    changed.insert("stations".to_owned(), Value::List(stations));
    Some(Value::Table(changed))
}

/// Kinds that need no list of stations.
pub(super) fn bare(kind: &str, fields: &Fields<'_>) -> Result<Option<Answer>, CaseError> {
    if kind.starts_with("fork") {
        return forked(fields).map(Some);
    }
    let demands = ["service_demands_s", "demands_s", "service_demand_s", "demands"];
    if let Some(demands) = fields.list(&demands) {
        let rows: Vec<Vec<f64>> = demands.iter().map(|demand| vec![*demand]).collect();
        return listed(kind, fields, &rows).map(Some);
    }
    let table = demands.iter().find_map(|name| fields.get(name)).and_then(Value::list);
    if let Some(rows) = table.and_then(|rows| rows.iter().map(Value::numbers).collect()) {
        let rows: Vec<Vec<f64>> = rows;
        return listed(kind, fields, &rows).map(Some);
    }
    Ok(None)
}

/// Demands in a list of their own: by station, then by class.
fn listed(kind: &str, fields: &Fields<'_>, demands: &[Vec<f64>]) -> Result<Answer, CaseError> {
    let classes = classes(fields)?;
    if classes.loads.is_empty() {
        return Err(absent("population or arrival_rate_per_s").into());
    }
    let servers = fields.list(&["servers", "m"]);
    let resources = demands
        .iter()
        .enumerate()
        .map(|(index, row)| {
            let m = servers.as_ref().and_then(|list| list.get(index)).copied().unwrap_or(1.0);
            Resource::servers(kendall_units::whole_u64(m), row)
        })
        .collect();
    let visits = match fields.list(&["visits"]) {
        Some(list) if list.len() == demands.len() => {
            list.iter().map(|v| vec![*v; classes.loads.len()]).collect()
        }
        _ => vec![vec![1.0; classes.loads.len()]; demands.len()],
    };
    let network = Network { classes: classes.loads.clone(), resources };
    let (unit, seconds) = fields.unit();
    finish(kind, &Case { classes, network, visits, unit, seconds })
}

fn forked(fields: &Fields<'_>) -> Result<Answer, CaseError> {
    let rates = fields.list(&["service_rates_per_s", "branch_service_rates_per_s"]);
    let times = fields
        .list(&["service_times_s", "branch_service_times_s"])
        .or_else(|| rates.map(|rates| rates.iter().map(|rate| 1.0 / rate).collect()));
    if let Some(times) = times {
        let lambda = fields.need_arrival_rate()?;
        let used: Vec<f64> = times.iter().map(|time| lambda * time).collect();
        let mut answer = joined(&fork_join_unequal(lambda, &times)?, lambda);
        answer.list("utilization", used, "1");
        return Ok(answer);
    }
    let branches = fields
        .count(&["branches", "servers", "fanout", "k", "K", "n"])?
        .ok_or_else(|| absent("branches"))?;
    let needed = fields.count(&["needed", "quorum", "wait_for"])?.unwrap_or(branches);
    let small =
        |value: u64| u32::try_from(value).map_err(|_| refused("branches", value, "at most 1e6"));
    let lambda = fields.need_arrival_rate()?;
    let service = fields.need_service_rate()?.recip();
    let mut answer = joined(&fork_join(lambda, service, small(branches)?, small(needed)?)?, lambda);
    answer.number("utilization", lambda * service, "1");
    Ok(answer)
}

fn joined(solved: &ForkJoin, lambda: f64) -> Answer {
    let mut answer = Answer {
        solver: solved.method.to_owned(),
        accuracy: solved.accuracy.name().to_owned(),
        ..Answer::default()
    };
    answer.number("mean_response", solved.response_time, "s");
    answer.number("system_response", solved.response_time, "s");
    answer.number("branch_response", solved.branch_response_time, "s");
    answer.number("response_lower_bound", solved.lower_bound, "s");
    answer.number("response_upper_bound", solved.upper_bound, "s");
    answer.number("mean_jobs", lambda * solved.response_time, "jobs");
    answer
}

/// One case, or one for each of several populations of its only class.
pub(super) fn solve(kind: &str, fields: &Fields<'_>) -> Result<Answer, CaseError> {
    let many = fields.list(&["populations", "population_range", "population_list"]);
    let one_class = !fields.has("classes") && !fields.has("closed_classes");
    let Some(populations) = many.filter(|_| one_class) else {
        return solve_one(kind, fields, None);
    };
    if populations.len() > 10_000 || populations.is_empty() {
        return Err(refused("populations", populations.len(), "1 to 10000 of them").into());
    }
    let mut answers = Vec::new();
    for n in &populations {
        if !(*n >= 0.0 && n.fract() == 0.0 && *n <= 1e15) {
            return Err(refused("populations", n, "whole numbers, 0 or above").into());
        }
        answers.push(solve_one(kind, fields, Some(kendall_units::whole_u64(*n)))?);
    }
    let mut all = answers[0].clone();
    all.outputs.clear();
    for (name, (_, unit)) in &answers[0].outputs {
        let of = |answer: &Answer| answer.outputs.get(name).map(|(output, _)| output.clone());
        let outputs: Vec<Output> = answers.iter().filter_map(of).collect();
        let numbers = outputs.iter().map(|output| match output {
            Output::Number(value) => Some(*value),
            _ => None,
        });
        let lists = outputs.iter().map(|output| match output {
            Output::List(list) => Some(list.clone()),
            _ => None,
        });
        if outputs.len() < answers.len() {
            continue;
        }
        if let Some(list) = numbers.collect::<Option<Vec<f64>>>() {
            all.list(name, list, unit);
        } else if let Some(rows) = lists.collect::<Option<Vec<Vec<f64>>>>() {
            all.outputs.insert(name.clone(), (Output::Table(rows), unit.clone()));
        }
    }
    Ok(all)
}

fn solve_one(
    kind: &str,
    fields: &Fields<'_>,
    population: Option<u64>,
) -> Result<Answer, CaseError> {
    for key in ["pools", "routes"] {
        if fields.has(key) {
            let expected = "no such key in a short form: leave out `kind` for a full model";
            return Err(refused(key, "a list", expected).into());
        }
    }
    let (unit, seconds) = fields.unit();
    let mut tables = fields.tables("stations")?;
    if tables.is_empty() {
        tables = fields.tables("station")?;
    }
    if tables.is_empty() {
        return Err(absent("stations").into());
    }
    let mut classes = classes(fields)?;
    if let Some(population) = population {
        let think_time = fields.time(&["think_time", "Z"]).unwrap_or(0.0);
        classes.loads = vec![Load::Closed { population, think_time }];
        classes.names = vec!["customers".to_owned()];
        classes.listed = false;
    }
    let routed = routed(fields, &tables, &mut classes)?;
    if classes.loads.is_empty() {
        return Err(absent("population or arrival_rate_per_s").into());
    }
    let mut resources = Vec::new();
    let mut all_visits = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        let mut demands = Vec::new();
        let mut row = Vec::new();
        for (position, name) in classes.names.iter().enumerate() {
            let routed = routed.as_ref().map(|visits| visits[position][index]);
            let (demand, visits) = demand(fields, table, index, (position, name), routed)?;
            demands.push(demand);
            row.push(visits);
        }
        resources.push(Resource { kind: station_kind(fields, table, index)?, demands });
        all_visits.push(row);
    }
    let network = Network { classes: classes.loads.clone(), resources };
    finish(kind, &Case { classes, network, visits: all_visits, unit, seconds })
}

fn routing<'a>(fields: &Fields<'a>) -> Option<&'a Value> {
    let names = ["routing_probabilities", "routing_matrix", "routing", "P"];
    names.iter().find_map(|name| fields.get(name))
}

/// Rates from outside in a list by station, in 1/s.
fn outside(fields: &Fields<'_>) -> Vec<f64> {
    let stems = [
        "external_arrival_rates",
        "external_arrival_rate",
        "arrival_rates",
        "arrival_rate",
        "gamma",
    ];
    stems
        .iter()
        .find_map(|stem| {
            let (value, unit) = fields.rate_value(stem)?;
            Some(value.numbers()?.iter().map(|rate| rate / unit).collect())
        })
        .unwrap_or_default()
}

/// Visits of each class by its routing matrix; an open class gets the rate with which it comes.
fn routed(
    fields: &Fields<'_>,
    tables: &[Fields<'_>],
    classes: &mut Classes,
) -> Result<Option<Vec<Vec<f64>>>, CaseError> {
    let Some(value) = routing(fields) else { return Ok(None) };
    if square(value).is_some() && classes.loads.is_empty() {
        let outside = outside(fields);
        let (rate, visits) = traffic(tables, value, (0, "customers"), None, &outside)?;
        let Some(rate) = rate else { return Ok(None) };
        classes.loads = vec![Load::Open { arrival_rate: rate }];
        classes.names = vec!["customers".to_owned()];
        return Ok(Some(vec![visits]));
    }
    let mut all = Vec::new();
    for (position, name) in classes.names.iter().enumerate() {
        // One matrix for all classes, a list with one for each, or a table with their names.
        let own = match value {
            Value::List(list) if square(value).is_none() => list.get(position),
            Value::Table(table) => table.get(name),
            _ => Some(value),
        };
        let Some(own) = own else {
            return Err(absent(&format!("routing_probabilities.{name}")).into());
        };
        let load = classes.loads[position];
        let (rate, visits) = traffic(tables, own, (position, name), Some(load), &[])?;
        if let (Some(arrival_rate), Load::Open { .. }) = (rate, load) {
            classes.loads[position] = Load::Open { arrival_rate };
        }
        all.push(visits);
    }
    Ok(Some(all))
}

fn classes(fields: &Fields<'_>) -> Result<Classes, CaseError> {
    let mut names = Vec::new();
    let mut loads = Vec::new();
    for key in ["open_classes", "closed_classes", "classes"] {
        for (index, table) in fields.tables(key)?.iter().enumerate() {
            names.push(table.text("name").unwrap_or_else(|| format!("{key}[{index}]")));
            loads.push(load(table)?.ok_or_else(|| absent("population or arrival_rate_per_s"))?);
        }
    }
    if loads.is_empty() {
        loads = unnamed(fields)?;
        names = (0..loads.len()).map(|at| at.to_string()).collect();
    }
    let listed = !loads.is_empty();
    if !listed && let Some(load) = load(fields)? {
        names.push("customers".to_owned());
        loads.push(load);
    }
    Ok(Classes { names, loads, listed })
}

fn load(table: &Fields<'_>) -> Result<Option<Load>, CaseError> {
    if let Some(population) = table.count(&["population", "customers", "N", "users"])? {
        let think_time = table.time(&["think_time", "Z"]).unwrap_or(0.0);
        return Ok(Some(Load::Closed { population, think_time }));
    }
    Ok(table.arrival_rate().map(|arrival_rate| Load::Open { arrival_rate }))
}

/// Classes by lists at the top: one population or arrival rate each.
fn unnamed(fields: &Fields<'_>) -> Result<Vec<Load>, CaseError> {
    let think = match fields.time_value("think_time").or(fields.time_value("Z")) {
        Some((Value::List(list), unit)) => {
            list.iter().filter_map(Value::number).map(|z| z * unit).collect()
        }
        Some((Value::Number(z), unit)) => vec![z * unit],
        _ => vec![0.0],
    };
    let think = |at: usize| think.get(at).or(think.last()).copied().unwrap_or(0.0);
    let mut loads = Vec::new();
    if let Some(populations) = fields.list(&["population", "customers", "N"]) {
        for (at, n) in populations.iter().enumerate() {
            if !(*n >= 0.0 && n.fract() == 0.0 && *n <= 1e15) {
                return Err(refused("population", n, "whole numbers, 0 or above").into());
            }
            let population = kendall_units::whole_u64(*n);
            loads.push(Load::Closed { population, think_time: think(at) });
        }
    }
    // Beside a routing matrix, rates in a list are those from outside, by station.
    if routing(fields).is_some() {
        return Ok(loads);
    }
    if let Some((Value::List(rates), unit)) = fields.rate_value("arrival_rate") {
        let rates = rates.iter().filter_map(Value::number);
        loads.extend(rates.map(|rate| Load::Open { arrival_rate: rate / unit }));
    }
    Ok(loads)
}

fn square(value: &Value) -> Option<Vec<Vec<f64>>> {
    let rows: Option<Vec<Vec<f64>>> = value.list()?.iter().map(Value::numbers).collect();
    rows.filter(|rows| rows.iter().all(|row| row.len() == rows.len()))
}

/// Total rate of arrivals from outside (none: a closed class, with visits relative to the first
/// station), and visits per request.
fn traffic(
    tables: &[Fields<'_>],
    matrix: &Value,
    class: (usize, &str),
    load: Option<Load>,
    outside: &[f64],
) -> Result<(Option<f64>, Vec<f64>), CaseError> {
    let name = "routing_probabilities";
    let Some(matrix) = square(matrix) else {
        return Err(refused(name, matrix, "a square matrix of probabilities").into());
    };
    let size = matrix.len();
    if size != tables.len() || size > 2_000 {
        let expected =
            format!("{} rows and columns, as many as stations (at most 2000)", tables.len());
        return Err(refused(name, size, expected).into());
    }
    for row in &matrix {
        let sum: f64 = row.iter().sum();
        if row.iter().any(|p| !(0.0..=1.0).contains(p)) || sum > 1.0 + 1e-9 {
            let expected = "rows of probabilities that add to at most 1";
            return Err(refused(name, sum, expected).into());
        }
    }
    let closed = matches!(load, Some(Load::Closed { .. }));
    let mut entry: Vec<f64> = tables.iter().map(|table| entering(table, class)).collect();
    if outside.len() == size && entry.iter().all(|rate| *rate == 0.0) {
        entry = outside.to_vec();
    }
    if let Some(bad) = entry.iter().find(|rate| !(rate.is_finite() && **rate >= 0.0)) {
        return Err(refused("external_arrival_rate_per_s", bad, "a finite rate, 0 or above").into());
    }
    let mut total: f64 = entry.iter().sum();
    if let (Some(Load::Open { arrival_rate }), true) = (load, total <= 0.0) {
        // All enter at the first station.
        entry[0] = arrival_rate;
        total = arrival_rate;
    }
    let mut system = DMatrix::<f64>::identity(size, size);
    for (from, row) in matrix.iter().enumerate() {
        for (to, p) in row.iter().enumerate() {
            system[(to, from)] -= p;
        }
    }
    let mut right = DVector::from_vec(entry);
    if closed {
        for column in 0..size {
            system[(0, column)] = if column == 0 { 1.0 } else { 0.0 };
        }
        right = DVector::zeros(size);
        right[0] = 1.0;
    } else if total <= 0.0 {
        return Err(absent("stations[…].external_arrival_rate_per_s").into());
    }
    let solved = system
        .lu()
        .solve(&right)
        .filter(|flows| flows.iter().all(|flow| flow.is_finite() && *flow >= -1e-9));
    let Some(flows) = solved else {
        return Err(ModelError::NeverLeaves {
            class: class.1.to_owned(),
            station: "a station from which no way leads out".to_owned(),
        }
        .into());
    };
    let by = if closed { 1.0 } else { total };
    let visits = flows.iter().map(|flow| flow.max(0.0) / by).collect();
    Ok(((!closed).then_some(total), visits))
}

/// λ from outside to one station, in 1/s.
fn entering(table: &Fields<'_>, class: (usize, &str)) -> f64 {
    ["external_arrival_rate", "arrival_rate", "external_rate", "gamma"]
        .iter()
        .find_map(|stem| {
            let (value, unit) = table.rate_value(stem)?;
            Some(pick(value, class)? / unit)
        })
        .unwrap_or(0.0)
}

/// A value for one class: alike for all, in a list, or in a table by name.
fn pick(value: &Value, class: (usize, &str)) -> Option<f64> {
    match value {
        Value::Number(number) => Some(*number),
        Value::List(list) => list.get(class.0).and_then(Value::number),
        Value::Table(table) => table.get(class.1).and_then(Value::number),
        _ => None,
    }
}

/// Demand in s, and visits.
fn demand(
    fields: &Fields<'_>,
    table: &Fields<'_>,
    index: usize,
    class: (usize, &str),
    routed: Option<f64>,
) -> Result<(f64, f64), CaseError> {
    // Lists at the top are by station.
    let top = |value: Option<(&Value, f64)>| {
        value.and_then(|(value, unit)| {
            let entry = value.list()?.get(index)?;
            Some((pick(entry, class)?, unit))
        })
    };
    let own = |value: Option<(&Value, f64)>| {
        value.and_then(|(value, unit)| Some((pick(value, class)?, unit)))
    };
    let visits = routed
        .or_else(|| table.get("visits").and_then(|value| pick(value, class)))
        .or_else(|| top(fields.get("visits").map(|value| (value, 1.0))).map(|(v, _)| v));
    let time = own(table.time_value("service_time"))
        .or_else(|| top(fields.time_value("service_time")))
        .map(|(time, unit)| time * unit)
        .or_else(|| own(table.rate_value("service_rate")).map(|(rate, unit)| unit / rate))
        // A load-dependent station: what it does with one customer.
        .or_else(|| table.list(&RATES).and_then(|rates| rates.first().map(|rate| 1.0 / rate)));
    let whole = own(table.time_value("service_demand"))
        .or_else(|| own(table.time_value("demand")))
        .map(|(demand, unit)| demand * unit);
    let count = visits.unwrap_or(1.0);
    match (whole, time) {
        (Some(whole), _) => Ok((whole, count)),
        (None, Some(time)) => Ok((time * count, count)),
        // A class that a table does not name does not come here.
        (None, None) if class_is_left_out(table) => Ok((0.0, 0.0)),
        (None, None) => Err(ModelError::Missing {
            path: format!("stations[{index}].service_demand_s"),
            expected: "service_demand_s, or service_time_s (with visits)".to_owned(),
        }
        .into()),
    }
}

fn class_is_left_out(table: &Fields<'_>) -> bool {
    let named = |stem: &str| table.time_value(stem).is_some_and(|(v, _)| v.table().is_some());
    named("service_demand") || named("service_time")
}

fn station_kind(fields: &Fields<'_>, table: &Fields<'_>, index: usize) -> Result<Kind, CaseError> {
    let said = table.text("type").or(table.text("discipline")).unwrap_or_default().to_lowercase();
    if ["delay", "is", "infinite-server", "inf", "think"].contains(&said.as_str()) {
        return Ok(Kind::Delay);
    }
    let names = [
        "rate_multipliers",
        "load_dependent_rates",
        "service_rate_multipliers",
        "alpha",
        "scaling",
        "load_dependence",
    ];
    if let Some(list) = table.list(&names) {
        return Ok(Kind::LoadDependent(list));
    }
    if let Some(rates) = table.list(&RATES) {
        let own = table
            .rate(&["service_rate"])
            .or_else(|| table.time(&["service_time", "service_demand"]).map(f64::recip));
        let first = own.or(rates.first().copied()).unwrap_or(1.0);
        return Ok(Kind::LoadDependent(rates.iter().map(|rate| rate / first).collect()));
    }
    if let Some(branches) = table.count(&["branches"])? {
        let needed = table.count(&["needed"])?.unwrap_or(branches);
        let small = |value: u64| {
            u32::try_from(value).map_err(|_| refused("branches", value, "at most 1e6"))
        };
        return Ok(Kind::ForkJoin { branches: small(branches)?, needed: small(needed)? });
    }
    let listed = || fields.list(&["servers"]).and_then(|list| list.get(index).copied());
    let servers = match table.count(&["servers", "m", "c"])? {
        Some(servers) => servers,
        None => listed().map_or(1, kendall_units::whole_u64),
    };
    Ok(if servers == 1 { Kind::Queue } else { Kind::Servers(servers) })
}

fn finish(kind: &str, case: &Case) -> Result<Answer, CaseError> {
    let solved = match mixed(&case.network) {
        // Kinds that ask for bounds only are answered where nothing else can be.
        Err(error) if kind.contains("bound") => {
            let mut answer = Answer { solver: error.to_string(), ..Answer::default() };
            "bound".clone_into(&mut answer.accuracy);
            bounds(&mut answer, kind, case);
            return Ok(answer);
        }
        other => other?,
    };
    let mut answer = Answer {
        solver: solved.solver.to_owned(),
        accuracy: solved.accuracy.name().to_owned(),
        ..Answer::default()
    };
    describe(&mut answer, case, &solved, "");
    if solved.accuracy == Accuracy::Exact {
        describe(&mut answer, case, &solved, "exact_");
    }
    if !case.network.has_open() {
        approximations(&mut answer, case);
        constants(&mut answer, case, &solved);
    }
    bounds(&mut answer, kind, case);
    Ok(answer)
}

/// An approximate solver.
type Approximate = fn(&Network) -> Result<NetworkSolution, NetworkError>;

fn approximations(answer: &mut Answer, case: &Case) {
    let solvers: [(&str, Approximate); 4] = [
        ("schweitzer_", |n| schweitzer(n, Iteration::default())),
        ("bard_schweitzer_", |n| schweitzer(n, Iteration::default())),
        ("seidmann_", |n| {
            schweitzer(n, Iteration { multi_server: MultiServer::Seidmann, ..Iteration::default() })
        }),
        ("linearizer_", |n| linearizer(n, Iteration::default())),
    ];
    for (name, solver) in solvers {
        if let Ok(solved) = solver(&case.network) {
            describe(answer, case, &solved, name);
        }
    }
}

/// G, marginal probabilities, and the flow-equivalent rates of the queues.
fn constants(answer: &mut Answer, case: &Case, solved: &NetworkSolution) {
    let [Load::Closed { population, .. }] = case.classes.loads[..] else { return };
    if population == 0 || population > 2_000 {
        return;
    }
    if let Ok(g) = normalization_constants(&case.network) {
        let list: Vec<f64> = g.iter().skip(1).map(|log| log.exp()).collect();
        if list.iter().all(|value| value.is_finite()) {
            let name: Vec<String> = (1..=list.len()).map(|n| n.to_string()).collect();
            if list.len() <= 20 {
                answer.list(&format!("G_{}", name.join("_")), list.clone(), "s^n");
            }
            answer.list("G", list, "s^n");
        }
        answer.list("ln_G", g, "1");
        let throughputs = flow_equivalent(&case.network.resources, population);
        if let Ok(part) = throughputs {
            answer.list("flow_equivalent_rates", part.rates, "1/s");
        }
    }
    let marginals = match convolution(&case.network) {
        Ok(full) => full.marginals,
        Err(_) => solved.marginals.clone(),
    };
    let known: Vec<Vec<f64>> = marginals.into_iter().map(Option::unwrap_or_default).collect();
    if known.iter().any(|list| !list.is_empty()) {
        answer.table("marginal_probabilities", known.clone(), "1");
        answer.table("p_n", known, "1");
    }
}

fn bounds(answer: &mut Answer, kind: &str, case: &Case) {
    let main = if kind.contains("balanced") || kind.contains("bjb") {
        "balanced"
    } else if kind.contains("geometric") {
        "geometric"
    } else if kind.contains("proportional") {
        "proportional"
    } else {
        "asymptotic"
    };
    let mut put = |names: &[&str], bounds: &Bounds| {
        for name in names {
            let (low, high) = bounds.throughput;
            answer.number(&format!("{name}_throughput_lower"), low * case.seconds, "1/s");
            answer.number(&format!("{name}_throughput_upper"), high * case.seconds, "1/s");
            let (low, high) = bounds.system_response;
            answer.number(&format!("{name}_response_lower"), low / case.seconds, case.unit);
            answer.number(&format!("{name}_response_upper"), high / case.seconds, case.unit);
        }
        if names[0] == main {
            let (low, high) = bounds.throughput;
            answer.number("throughput_lower", low * case.seconds, "1/s");
            answer.number("throughput_upper", high * case.seconds, "1/s");
            let (low, high) = bounds.system_response;
            answer.number("response_lower", low / case.seconds, case.unit);
            answer.number("response_upper", high / case.seconds, case.unit);
        }
    };
    if case.classes.loads.len() == 1 {
        let network = &case.network;
        for (names, bounds) in [
            (["asymptotic", "aba"], asymptotic_bounds(network)),
            (["balanced", "bjb"], balanced_bounds(network)),
            (["geometric", "gb"], geometric_bounds(network)),
            (["proportional", "pb"], proportional_bounds(network)),
            (["asymptotic", "open"], open_bounds(network)),
        ] {
            if let Ok(bounds) = bounds {
                put(&names, &bounds);
                if names[1] == "aba" {
                    put(&["asymptotic_bounds"], &bounds);
                }
            }
        }
        if let Ok(neck) = bottleneck(network, 0) {
            answer.number("bottleneck", exact_f64(neck.resource), "index");
            answer.number("max_demand", neck.demand, "s");
            answer.number("total_demand", neck.total_demand, "s");
            answer.number("max_throughput", neck.most_throughput, "1/s");
            for name in ["n_star", "saturation_population"] {
                answer.maybe(name, neck.saturation_population, "jobs");
            }
            if let [Load::Open { .. }] = case.classes.loads[..] {
                answer.number("max_arrival_rate", neck.most_throughput, "1/s");
            }
        }
    } else if let Ok(all) = multi_class_bounds(&case.network) {
        let list = |f: fn(&Bounds) -> f64| all.iter().map(f).collect::<Vec<f64>>();
        answer.list("asymptotic_throughput_lower_by_class", list(|b| b.throughput.0), "1/s");
        answer.list("asymptotic_throughput_upper_by_class", list(|b| b.throughput.1), "1/s");
    }
}

/// The main outputs, with the name of their solver in front.
fn describe(answer: &mut Answer, case: &Case, s: &NetworkSolution, prefix: &str) {
    let per = format!("1/{}", case.unit);
    let (unit, seconds) = (case.unit, case.seconds);
    let named = |name: &str| format!("{prefix}{name}");
    let stations = s.number.len();
    let x: Vec<f64> = s.throughput.iter().map(|x| x * seconds).collect();
    let r: Vec<f64> = s.system_response.iter().map(|r| r / seconds).collect();
    let totals: Vec<f64> = (0..stations).map(|k| s.total_number(k)).collect();
    let used: Vec<f64> = (0..stations).map(|k| s.total_utilization(k)).collect();
    let residence: Vec<Vec<f64>> = scaled(&s.residence, seconds);
    answer.list(&named("mean_jobs"), totals, "jobs");
    answer.list(&named("utilization"), used, "1");
    let flows: Vec<f64> =
        (0..stations).map(|k| case.visits[k].iter().zip(&x).map(|(v, x)| v * x).sum()).collect();
    answer.list(&named("station_throughput"), flows, &per);
    let per_visit: Vec<Vec<f64>> = residence
        .iter()
        .zip(&case.visits)
        .map(|(row, visits)| {
            row.iter().zip(visits).map(|(r, v)| if *v > 0.0 { r / v } else { 0.0 }).collect()
        })
        .collect();
    if !case.classes.listed && x.len() == 1 {
        answer.number(&named("throughput"), x[0], &per);
        answer.number(&named("system_response"), r[0], unit);
        answer.number(&named("total_jobs"), s.number.iter().flatten().sum(), "jobs");
        answer.list(&named("residence_time"), first(&residence), unit);
        answer.list(&named("response_per_visit"), first(&per_visit), unit);
        answer.list(&named("mean_response"), first(&per_visit), unit);
        return;
    }
    for name in ["throughput_by_class", "throughput"] {
        answer.list(&named(name), x.clone(), &per);
    }
    for name in ["system_response_by_class", "system_response", "response_by_class"] {
        answer.list(&named(name), r.clone(), unit);
    }
    answer.table(&named("mean_jobs_by_class"), s.number.clone(), "jobs");
    answer.table(&named("utilization_by_class"), s.utilization.clone(), "1");
    answer.table(&named("residence_time_by_class"), residence.clone(), unit);
    answer.table(&named("residence_time"), residence.clone(), unit);
    answer.table(&named("response_per_visit_by_class"), per_visit, unit);
    for (group, open) in [("open", true), ("closed", false)] {
        let keep: Vec<usize> = (0..x.len())
            .filter(|c| matches!(case.classes.loads[*c], Load::Open { .. }) == open)
            .collect();
        if keep.is_empty() {
            continue;
        }
        let part = |list: &[f64]| keep.iter().map(|c| list[*c]).collect::<Vec<f64>>();
        let rows = |table: &[Vec<f64>]| table.iter().map(|row| part(row)).collect::<Vec<_>>();
        answer.list(&named(&format!("{group}_throughput")), part(&x), &per);
        for name in ["response", "system_response"] {
            answer.list(&named(&format!("{group}_{name}")), part(&r), unit);
        }
        answer.table(&named(&format!("{group}_mean_jobs")), rows(&s.number), "jobs");
        answer.table(&named(&format!("{group}_utilization")), rows(&s.utilization), "1");
        answer.table(&named(&format!("{group}_residence_time")), rows(&residence), unit);
    }
    let names = case.classes.names.join(", ");
    answer.word("classes", &names);
}

fn scaled(table: &[Vec<f64>], seconds: f64) -> Vec<Vec<f64>> {
    table.iter().map(|row| row.iter().map(|value| value / seconds).collect()).collect()
}

fn first(table: &[Vec<f64>]) -> Vec<f64> {
    table.iter().map(|row| row.first().copied().unwrap_or(0.0)).collect()
}
