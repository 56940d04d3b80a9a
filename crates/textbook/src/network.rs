//! Networks of stations, lowered to a model.

use kendall_keys::{Form, Key, Section};
use kendall_queueing::model::keys::DISTRIBUTION;
use kendall_queueing::model::{Class, Model};
use kendall_queueing::network::Accuracy;
use kendall_queueing::solver::{
    Caveat, ClassResult, Solution, Solver, StationResult, solve as solve_model,
};
use toml::{Table, Value};

use crate::fields::{WHOLE, entries_for, number};
use crate::lowered::Lowered;
use crate::station::PERCENTILES;
use crate::{Answer, Case, Output, TextbookError, bounds};

const BY_CLASS: Form = Form::Either(&[Form::Number, Form::Numbers, Form::Named(&Form::Number)]);
/// At the top: by class for classes, by station for stations.
const LIST: Form = Form::Either(&[Form::Number, Form::Numbers]);
const SHAPE: Form = Form::Table(&[DISTRIBUTION]);

pub(crate) const KEYS: &[Key] = &[
    Key::new("population", LIST, "N, or a list with one for each class").optional(),
    Key::new(
        "populations",
        Form::Numbers,
        "several populations of the only class: outputs are lists",
    )
    .optional(),
    Key::new("think_time_s", LIST, "Z, or a list with one for each class").optional(),
    Key::new("arrival_rate_per_s", LIST, "λ, or a list with one for each class").optional(),
    Key::new("classes", Form::Tables(&[CLASS]), "one table a class").optional(),
    Key::new("open_classes", Form::Tables(&[CLASS]), "of a mixed network").optional(),
    Key::new("closed_classes", Form::Tables(&[CLASS]), "of a mixed network").optional(),
    Key::new("stations", Form::Tables(&[STATION]), "one table a station; or lists by station")
        .optional(),
    Key::new("service_time_s", Form::Numbers, "S by station").optional(),
    Key::new("service_rate_per_s", Form::Numbers, "µ by station").optional(),
    Key::new(
        "service_demand_s",
        Form::Special("a list by station of numbers, or of lists by class"),
        "D by station",
    )
    .optional(),
    Key::new("visits", Form::Numbers, "V by station").optional(),
    Key::new("servers", Form::Numbers, "m by station").optional(),
    Key::new("type", Form::Texts, "\"queue\" or \"delay\" by station").optional(),
    Key::new("external_arrival_rate_per_s", Form::Numbers, "from outside, by station").optional(),
    Key::new(
        "routing_probabilities",
        Form::Special("a matrix by station, a list of one for each class, or a table by class"),
        "where customers go next; what a row lacks to 1 leaves",
    )
    .optional(),
];

const CLASS: &[Key] = &[
    Key::text("name", "its name").optional(),
    Key::new("population", WHOLE, "N of a closed class").optional(),
    Key::number("think_time_s", "Z of a closed class"),
    Key::number("arrival_rate_per_s", "λ of an open class"),
];

const STATION: &[Key] = &[
    Key::text("name", "its name").optional(),
    Key::choice("type", &["queue", "delay"], "whether customers wait").optional(),
    Key::new("servers", WHOLE, "m").optional(),
    Key::new("capacity", WHOLE, "K; such networks need a simulation").optional(),
    Key::choice(
        "discipline",
        &["fcfs", "ps", "lcfs-pr"],
        "who is served next; with several classes what product form needs, unless given",
    )
    .optional(),
    Key::new("service_time_s", BY_CLASS, "S per visit").optional(),
    Key::new("service_rate_per_s", BY_CLASS, "µ of one server, instead").optional(),
    Key::new("service_demand_s", BY_CLASS, "D = V·S, instead").optional(),
    Key::new("service", SHAPE, "a distribution").optional(),
    Key::new("visits", BY_CLASS, "V per request; 1 unless given").optional(),
    Key::new("rate_multipliers", Form::Numbers, "speed with 1, 2, … customers").optional(),
    Key::new("service_rates_per_s", Form::Numbers, "µ with 1, 2, … customers").optional(),
    Key::new("branches", WHOLE, "fork–join: copies of this station visited at once").optional(),
    Key::new("needed", WHOLE, "fork–join: how many of them must be done").optional(),
    Key::new("external_arrival_rate_per_s", BY_CLASS, "from outside").optional(),
];

/// Keys that a list at the top may give, one for each station.
const BY_STATION: [&str; 7] = [
    "service_time_s",
    "service_rate_per_s",
    "service_demand_s",
    "visits",
    "servers",
    "type",
    "external_arrival_rate_per_s",
];

/// Most populations of one case.
const MOST_POPULATIONS: usize = 10_000;

/// One case, or one for each of several populations of its only class.
pub(crate) fn solve(mut case: Case<'_>) -> Result<Answer, TextbookError> {
    let Some(populations) = case.section.numbers("populations")? else {
        let lowered = lower(&mut case, None)?;
        return answer(case.kind, &lowered, case.wanted);
    };
    if populations.is_empty() || populations.len() > MOST_POPULATIONS {
        let what = format!("has {} entries; write 1 to {MOST_POPULATIONS}", populations.len());
        return Err(case.section.problem("populations", what).into());
    }
    let single = ["population", "classes", "open_classes", "closed_classes", "arrival_rate_per_s"];
    if let Some(key) = single.into_iter().find(|key| case.section.has(key)) {
        let what = "is beside populations, which are those of the only class";
        return Err(case.section.problem(key, what).into());
    }
    let mut answers = Vec::new();
    for n in &populations {
        if !(*n >= 0.0 && n.fract() == 0.0 && *n <= 9e15) {
            let what = format!("`{n}` is not a whole number, 0 or above");
            return Err(case.section.problem("populations", what).into());
        }
        let lowered = lower(&mut case, Some(kendall_units::whole_u64(*n)))?;
        answers.push(answer(case.kind, &lowered, case.wanted)?);
    }
    Ok(side_by_side(&answers))
}

/// Numbers become lists, lists become tables; what not all have is left out.
fn side_by_side(answers: &[Answer]) -> Answer {
    let mut all = answers[0].clone();
    all.outputs.clear();
    for (name, (_, unit)) in &answers[0].outputs {
        let of = |answer: &Answer| answer.outputs.get(name).map(|(output, _)| output.clone());
        let outputs: Vec<Output> = answers.iter().filter_map(of).collect();
        if outputs.len() < answers.len() {
            continue;
        }
        let numbers = outputs.iter().map(|output| match output {
            Output::Number(value) => Some(*value),
            _ => None,
        });
        let lists = outputs.iter().map(|output| match output {
            Output::List(list) => Some(list.clone()),
            _ => None,
        });
        if let Some(list) = numbers.collect::<Option<Vec<f64>>>() {
            all.list(name, list, unit);
        } else if let Some(rows) = lists.collect::<Option<Vec<Vec<f64>>>>() {
            all.put(name, Output::Table(rows), unit);
        }
    }
    all
}

fn answer(kind: &str, lowered: &Lowered, wanted: &[String]) -> Result<Answer, TextbookError> {
    if kind.ends_with("-bounds") {
        return bounds::only(kind, lowered);
    }
    let open = lowered.model.classes.iter().all(Class::is_open);
    let quantiles = if open { PERCENTILES.map(|(_, q)| q).to_vec() } else { Vec::new() };
    let mut model = lowered.model.clone();
    model.quantiles = quantiles;
    let solution = solve_model(&model, Solver::Auto)?;
    let mut answer = Answer::new(&solution.solver, solution.accuracy.name());
    let caveats = solution.caveats.iter().filter(|caveat| **caveat != Caveat::NoPercentiles);
    answer.caveats = caveats.map(ToString::to_string).collect();
    describe(&mut answer, lowered, &solution, "");
    let asked = |start: &str| wanted.is_empty() || wanted.iter().any(|n| n.starts_with(start));
    if solution.accuracy == Accuracy::Exact && asked("exact_") {
        describe(&mut answer, lowered, &solution, "exact_");
    }
    let closed = lowered.model.classes.iter().all(|class| !class.is_open());
    for (name, solver) in [
        ("schweitzer_", Solver::Schweitzer),
        ("seidmann_", Solver::Seidmann),
        ("seidmann_mva_", Solver::SeidmannMva),
        ("bard_", Solver::Bard),
        ("linearizer_", Solver::Linearizer),
    ] {
        if closed
            && asked(name)
            && let Ok(solved) = solve_model(&lowered.model, solver)
        {
            describe(&mut answer, lowered, &solved, name);
            // Each has its own error figure.
            let caveats = solved.caveats.iter().map(|caveat| format!("{name}…: {caveat}"));
            answer.caveats.extend(caveats);
        }
    }
    bounds::add(&mut answer, lowered, &solution);
    Ok(answer)
}

/// Reads the case as a model.
fn lower(case: &mut Case<'_>, population: Option<u64>) -> Result<Lowered, TextbookError> {
    let (classes, listed) = classes(&mut case.section, population)?;
    let mut network = Network { tables: tables(&mut case.section)?, classes, routes: Vec::new() };
    network.name_all();
    network.route(&case.section)?;
    network.check_kind(case.kind)?;
    network.demands()?;
    let mut document = Table::new();
    let list = |tables: Vec<Table>| Value::Array(tables.into_iter().map(Value::Table).collect());
    document.insert("classes".into(), list(network.classes));
    document.insert("stations".into(), list(network.tables));
    if !network.routes.is_empty() {
        document.insert("routes".into(), list(network.routes));
    }
    let model = Model::read(&document)?;
    Ok(Lowered { model, listed, unit: case.unit })
}

/// The classes, and whether the case lists them.
fn classes(
    section: &mut Section<'_>,
    population: Option<u64>,
) -> Result<(Vec<Table>, bool), TextbookError> {
    let mut classes = Vec::new();
    for key in ["open_classes", "closed_classes", "classes"] {
        for mut class in section.sections(key)? {
            class.known()?;
            let mut table = Table::new();
            let name = class.opt_text("name")?;
            let name = name.unwrap_or_else(|| (classes.len() + 1).to_string());
            table.insert("name".into(), name.into());
            let keys = ["population", "think_time_s", "arrival_rate_per_s"];
            crate::fields::copy(&class, &keys, &mut table);
            let wrong = match key {
                "open_classes" => Some("population"),
                "closed_classes" => Some("arrival_rate_per_s"),
                _ => None,
            };
            if let Some(wrong) = wrong.filter(|wrong| class.has(wrong)) {
                return Err(class.problem(wrong, format!("is in one of {key}")).into());
            }
            classes.push(table);
        }
    }
    let top = ["population", "think_time_s", "arrival_rate_per_s"];
    if !classes.is_empty() {
        if let Some(key) = top.into_iter().find(|key| section.has(key)) {
            return Err(section.problem(key, "is given beside classes, which have it").into());
        }
        return Ok((classes, true));
    }
    unlisted(section, population)
}

/// Classes by keys at the top: one, or lists with an entry for each.
fn unlisted(
    section: &mut Section<'_>,
    population: Option<u64>,
) -> Result<(Vec<Table>, bool), TextbookError> {
    let mut lists = Vec::new();
    for key in ["population", "think_time_s", "arrival_rate_per_s"] {
        if let Some(values) = section.numbers(key)? {
            let is_list = matches!(section.raw(key), Some(Value::Array(_)));
            lists.push((key, values, is_list));
        }
    }
    let count = lists.iter().filter(|list| list.2).map(|list| list.1.len()).max();
    let mut classes = vec![Table::new(); count.unwrap_or(1)];
    for (key, values, is_list) in lists {
        if is_list && values.len() != classes.len() {
            let what = entries_for(values.len(), classes.len(), "class");
            return Err(section.problem(key, what).into());
        }
        for (index, class) in classes.iter_mut().enumerate() {
            class.insert(key.into(), values[index.min(values.len() - 1)].into());
        }
    }
    for (index, class) in classes.iter_mut().enumerate() {
        class.insert("name".into(), (index + 1).to_string().into());
        if let Some(population) = population.and_then(|n| i64::try_from(n).ok()) {
            class.insert("population".into(), population.into());
        }
    }
    Ok((classes, count.is_some()))
}

/// The stations: tables, with what lists at the top say put into them.
fn tables(section: &mut Section<'_>) -> Result<Vec<Table>, TextbookError> {
    let lists: Vec<(&str, Vec<Value>)> = BY_STATION
        .into_iter()
        .filter_map(|key| Some((key, section.raw(key)?.as_array()?.clone())))
        .collect();
    if let Some(key) =
        BY_STATION.into_iter().find(|key| section.raw(key).is_some_and(|value| !value.is_array()))
    {
        return Err(section.problem(key, "is not a list with a value for each station").into());
    }
    let mut tables = Vec::new();
    for station in section.sections("stations")? {
        station.known()?;
        tables
            .push(station.entries().into_iter().map(|(k, v)| (k.to_owned(), v.clone())).collect());
    }
    let count =
        if tables.is_empty() { lists.first().map_or(0, |l| l.1.len()) } else { tables.len() };
    if count == 0 {
        return Err(TextbookError::missing("stations", "a list of tables"));
    }
    tables.resize(count, Table::new());
    for (key, list) in lists {
        if list.len() != count {
            let what = entries_for(list.len(), count, "station");
            return Err(section.problem(key, what).into());
        }
        for (index, (table, value)) in tables.iter_mut().zip(list).enumerate() {
            let old = table.insert(key.to_owned(), value.clone());
            if old.is_some_and(|old| old != value) {
                let what = format!("differs from stations[{index}].{key}");
                return Err(section.problem(key, what).into());
            }
        }
    }
    Ok(tables)
}

/// A network on its way to a model file.
struct Network {
    tables: Vec<Table>,
    classes: Vec<Table>,
    routes: Vec<Table>,
}

impl Network {
    fn class_name(&self, class: usize) -> String {
        self.classes[class].get("name").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    fn station_name(&self, station: usize) -> String {
        self.tables[station].get("name").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    fn is_open(&self, class: usize) -> bool {
        self.classes[class].contains_key("arrival_rate_per_s")
    }

    fn name_all(&mut self) {
        for (index, table) in self.tables.iter_mut().enumerate() {
            table.entry("name").or_insert_with(|| Value::String((index + 1).to_string()));
        }
    }

    /// A value for one class: alike for all, in a list, or in a table by name.
    fn pick(&self, value: &Value, class: usize) -> Option<f64> {
        match value {
            Value::Array(list) => number(list.get(class)?),
            Value::Table(table) => number(table.get(&self.class_name(class))?),
            other => number(other),
        }
    }

    /// The kind and the classes must say the same.
    fn check_kind(&self, kind: &str) -> Result<(), TextbookError> {
        let open = (0..self.classes.len()).filter(|class| self.is_open(*class)).count();
        let refuse = |what: &str| Err(TextbookError::key("kind", format!("`{kind}` {what}")));
        if kind.starts_with("open-") && open < self.classes.len() {
            return refuse("has a class without an arrival rate");
        }
        if kind.starts_with("closed-") && open > 0 {
            return refuse("has a class with an arrival rate");
        }
        if kind.ends_with("-single-class") && self.classes.len() > 1 {
            return refuse("has several classes");
        }
        if kind == "mixed" && (open == 0 || open == self.classes.len()) {
            return refuse("needs an open class and a closed one");
        }
        Ok(())
    }

    /// Gives values by class their class names, and one way of saying a demand.
    fn demands(&mut self) -> Result<(), TextbookError> {
        let routed = !self.routes.is_empty();
        let several = self.classes.len() > 1;
        for index in 0..self.tables.len() {
            self.tables[index].remove("external_arrival_rate_per_s");
            for key in ["service_time_s", "service_rate_per_s", "service_demand_s", "visits"] {
                let Some(Value::Array(list)) = self.tables[index].get(key) else { continue };
                if list.len() != self.classes.len() {
                    let what = entries_for(list.len(), self.classes.len(), "class");
                    return Err(TextbookError::key(format!("stations[{index}].{key}"), what));
                }
                let by_name: Table = (0..list.len())
                    .map(|class| (self.class_name(class), list[class].clone()))
                    .collect();
                self.tables[index].insert(key.to_owned(), Value::Table(by_name));
            }
            self.agree(index, routed)?;
            let table = &mut self.tables[index];
            let delay = table.get("type").and_then(Value::as_str) == Some("delay");
            if several && !delay && !table.contains_key("discipline") {
                table.insert("discipline".into(), "ps".into());
            }
        }
        Ok(())
    }

    /// A demand beside visits and a time must be their product.
    fn agree(&mut self, index: usize, routed: bool) -> Result<(), TextbookError> {
        let table = &self.tables[index];
        let (Some(demand), Some(time)) =
            (table.get("service_demand_s"), table.get("service_time_s"))
        else {
            return Ok(());
        };
        for class in 0..self.classes.len() {
            let visits = table.get("visits").map_or(Some(1.0), |v| self.pick(v, class));
            let product = self.pick(time, class).zip(visits).map(|(time, visits)| time * visits);
            let demand = self.pick(demand, class);
            let near = match (demand, product) {
                (Some(demand), Some(product)) => {
                    (demand - product).abs() <= 1e-9 * demand.abs().max(product.abs())
                }
                (None, None) => true,
                _ => false,
            };
            if routed || !near {
                let path = format!("stations[{index}].service_demand_s");
                let what = format!(
                    "is {}, and visits times service_time_s is {}; write one of them",
                    demand.map_or("not given".to_owned(), |d| d.to_string()),
                    product.map_or("not given".to_owned(), |p| p.to_string())
                );
                return Err(TextbookError::key(path, what));
            }
        }
        self.tables[index].remove("service_demand_s");
        Ok(())
    }

    /// Arrivals from outside, and routes by the matrix of each class.
    fn route(&mut self, section: &Section<'_>) -> Result<(), TextbookError> {
        let Some(value) = section.raw("routing_probabilities") else {
            let key = "external_arrival_rate_per_s";
            if let Some(index) = self.tables.iter().position(|table| table.contains_key(key)) {
                let what = "is given, and no routing_probabilities";
                return Err(TextbookError::key(format!("stations[{index}].{key}"), what));
            }
            return Ok(());
        };
        for class in 0..self.classes.len() {
            // One matrix for all classes, a list with one for each, or a table with their names.
            let own = match value {
                Value::Array(list) if square(value).is_none() => list.get(class),
                Value::Table(table) => table.get(&self.class_name(class)),
                _ => Some(value),
            };
            let name = self.class_name(class);
            let path = format!("routing_probabilities.{name}");
            let Some(own) = own else { return Err(TextbookError::missing(&path, "a matrix")) };
            let matrix = self.matrix(own, &path)?;
            let entry = self.entry(class)?;
            let closed = !self.is_open(class);
            let leaves: Vec<f64> =
                matrix.iter().map(|row| left(1.0 - row.iter().sum::<f64>())).collect();
            // No customer leaves a closed network: a round begins at the first station.
            let round = closed && leaves.iter().all(|share| *share <= 0.0);
            let mut to_first = Table::new();
            for (station, share) in entry.iter().enumerate().filter(|(_, share)| **share > 0.0) {
                to_first.insert(self.station_name(station), (*share).into());
            }
            self.push_route(class, "in", to_first);
            for (from, row) in matrix.iter().enumerate() {
                let mut to = Table::new();
                for (station, p) in row.iter().enumerate().filter(|(_, p)| **p > 0.0) {
                    let leaving = round && station == 0;
                    let name = if leaving { "out".to_owned() } else { self.station_name(station) };
                    to.insert(name, (*p).into());
                }
                if leaves[from] > 0.0 {
                    to.insert("out".into(), leaves[from].into());
                }
                let name = self.station_name(from);
                self.push_route(class, &name, to);
            }
        }
        Ok(())
    }

    fn push_route(&mut self, class: usize, from: &str, to: Table) {
        let mut route = Table::new();
        route.insert("class".into(), self.class_name(class).into());
        route.insert("from".into(), from.into());
        route.insert("to".into(), Value::Table(to));
        self.routes.push(route);
    }

    fn matrix(&self, value: &Value, path: &str) -> Result<Vec<Vec<f64>>, TextbookError> {
        let size = self.tables.len();
        let Some(matrix) = square(value).filter(|matrix| matrix.len() == size) else {
            let what = format!("is not a matrix of {size} rows and columns, one for each station");
            return Err(TextbookError::key(path, what));
        };
        for row in &matrix {
            let sum: f64 = row.iter().sum();
            if row.iter().any(|p| !(0.0..=1.0).contains(p)) || sum > 1.0 + 1e-9 {
                let what = format!("has a row that adds to {sum}; write probabilities up to 1");
                return Err(TextbookError::key(path, what));
            }
        }
        Ok(matrix)
    }

    /// Shares of the stations at which a class enters. An open class without a rate of its own
    /// gets the sum of the rates from outside.
    fn entry(&mut self, class: usize) -> Result<Vec<f64>, TextbookError> {
        const KEY: &str = "external_arrival_rate_per_s";
        let mut rates = Vec::new();
        for (index, table) in self.tables.iter().enumerate() {
            let rate = table.get(KEY).and_then(|value| self.pick(value, class)).unwrap_or(0.0);
            if !(rate.is_finite() && rate >= 0.0) {
                let what = format!("`{rate}` is not a rate, 0 or above");
                return Err(TextbookError::key(format!("stations[{index}].{KEY}"), what));
            }
            rates.push(rate);
        }
        let total: f64 = rates.iter().sum();
        let own = self.classes[class].get("arrival_rate_per_s").and_then(number);
        let closed = self.classes[class].contains_key("population");
        match own {
            Some(own) if total > 0.0 && (own - total).abs() > 1e-9 * total => {
                let what = format!("is {own}, and the rates from outside add to {total}");
                Err(TextbookError::key("arrival_rate_per_s", what))
            }
            None if total > 0.0 && closed => {
                Err(TextbookError::key(format!("stations[].{KEY}"), "is for open classes"))
            }
            None if total > 0.0 => {
                self.classes[class].insert("arrival_rate_per_s".into(), total.into());
                Ok(rates.iter().map(|rate| rate / total).collect())
            }
            _ if total > 0.0 => Ok(rates.iter().map(|rate| rate / total).collect()),
            // All enter at the first station.
            _ => Ok((0..rates.len()).map(|at| f64::from(u8::from(at == 0))).collect()),
        }
    }
}

/// What a row lacks to 1, without what rounding leaves.
fn left(share: f64) -> f64 {
    if share > 1e-9 { share } else { 0.0 }
}

fn square(value: &Value) -> Option<Vec<Vec<f64>>> {
    let row = |row: &Value| row.as_array()?.iter().map(number).collect::<Option<Vec<f64>>>();
    let rows: Option<Vec<Vec<f64>>> = value.as_array()?.iter().map(row).collect();
    rows.filter(|rows| rows.iter().all(|row| row.len() == rows.len()))
}

/// The main outputs, with the name of their solver in front.
fn describe(answer: &mut Answer, lowered: &Lowered, s: &Solution, prefix: &str) {
    let unit = lowered.unit;
    let per = unit.per();
    let named = |name: &str| format!("{prefix}{name}");
    let x: Vec<f64> = s.classes.iter().map(|class| unit.rate(class.throughput)).collect();
    let r: Vec<f64> = s.classes.iter().map(|class| unit.time(class.system_response)).collect();
    let totals = |of: fn(&StationResult) -> &Vec<f64>| {
        s.stations.iter().map(|station| of(station).iter().sum()).collect::<Vec<f64>>()
    };
    answer.list(&named("mean_jobs"), totals(|station| &station.number), "jobs");
    let variances: Option<Vec<f64>> = s.stations.iter().map(|s| s.number_variance).collect();
    if let Some(variances) = variances {
        answer.list(&named("var_jobs"), variances, "jobs^2");
    }
    answer.list(&named("utilization"), totals(|station| &station.utilization), "1");
    let flows = totals(|station| &station.throughput);
    answer.list(
        &named("station_throughput"),
        flows.into_iter().map(|flow| unit.rate(flow)).collect(),
        &per,
    );
    let times = |of: fn(&StationResult) -> &Vec<f64>| {
        let row = |station: &StationResult| of(station).iter().map(|t| unit.time(*t)).collect();
        s.stations.iter().map(row).collect::<Vec<Vec<f64>>>()
    };
    let residence = times(|station| &station.residence_time);
    let per_visit = times(|station| &station.response_time);
    let numbers: Vec<Vec<f64>> = s.stations.iter().map(|station| station.number.clone()).collect();
    answer.number(&named("total_jobs"), numbers.iter().flatten().sum(), "jobs");
    class_variances(answer, lowered, s, prefix);
    percentiles(answer, lowered, s, prefix);
    if !lowered.listed && x.len() == 1 {
        let first = |rows: &[Vec<f64>]| rows.iter().map(|row| row[0]).collect::<Vec<f64>>();
        answer.number(&named("throughput"), x[0], &per);
        answer.number(&named("system_response"), r[0], unit.name);
        answer.list(&named("residence_time"), first(&residence), unit.name);
        answer.list(&named("response_per_visit"), first(&per_visit), unit.name);
        return;
    }
    let used: Vec<Vec<f64>> =
        s.stations.iter().map(|station| station.utilization.clone()).collect();
    answer.list(&named("throughput_by_class"), x.clone(), &per);
    answer.list(&named("system_response_by_class"), r.clone(), unit.name);
    answer.table(&named("mean_jobs_by_class"), numbers.clone(), "jobs");
    answer.table(&named("utilization_by_class"), used.clone(), "1");
    answer.table(&named("residence_time_by_class"), residence.clone(), unit.name);
    answer.table(&named("response_per_visit_by_class"), per_visit, unit.name);
    for (group, open) in [("open", true), ("closed", false)] {
        let classes = lowered.model.classes.iter().enumerate();
        let keep: Vec<usize> =
            classes.filter(|(_, class)| class.is_open() == open).map(|(at, _)| at).collect();
        if keep.is_empty() {
            continue;
        }
        let part = |list: &[f64]| keep.iter().map(|c| list[*c]).collect::<Vec<f64>>();
        let rows = |table: &[Vec<f64>]| table.iter().map(|row| part(row)).collect::<Vec<_>>();
        answer.list(&named(&format!("{group}_throughput")), part(&x), &per);
        answer.list(&named(&format!("{group}_system_response")), part(&r), unit.name);
        answer.table(&named(&format!("{group}_mean_jobs")), rows(&numbers), "jobs");
        answer.table(&named(&format!("{group}_utilization")), rows(&used), "1");
        answer.table(&named(&format!("{group}_residence_time")), rows(&residence), unit.name);
    }
    let names: Vec<&str> = lowered.model.classes.iter().map(|class| class.name.as_str()).collect();
    answer.word("classes", &names.join(", "));
}

/// Of responses of open classes, where all have a formula.
fn percentiles(answer: &mut Answer, lowered: &Lowered, s: &Solution, prefix: &str) {
    for (index, (name, _)) in PERCENTILES.iter().enumerate() {
        let of = |class: &ClassResult| class.response_quantiles.get(index).map(|(_, t)| *t);
        let times = s.classes.iter().map(|class| of(class).map(|t| lowered.unit.time(t)));
        let Some(times) = times.collect::<Option<Vec<f64>>>() else { return };
        let named = format!("{prefix}system_response_{name}");
        if lowered.listed || times.len() > 1 {
            answer.list(&format!("{named}_by_class"), times, lowered.unit.name);
        } else {
            answer.number(&named, times[0], lowered.unit.name);
        }
    }
}

/// Of numbers and times of classes, where there is a formula.
fn class_variances(answer: &mut Answer, lowered: &Lowered, s: &Solution, prefix: &str) {
    let numbers: Option<Vec<f64>> = s.classes.iter().map(|class| class.number_variance).collect();
    if lowered.listed || s.classes.len() > 1 {
        if let Some(numbers) = numbers {
            answer.list(&format!("{prefix}var_total_jobs_by_class"), numbers, "jobs^2");
        }
        return;
    }
    let unit = lowered.unit;
    let times = s.classes[0].system_response_variance.map(|v| unit.time(unit.time(v)));
    answer.maybe(&format!("{prefix}var_total_jobs"), numbers.map(|list| list[0]), "jobs^2");
    let square = format!("{}^2", unit.name);
    answer.maybe(&format!("{prefix}var_system_response"), times, &square);
}
