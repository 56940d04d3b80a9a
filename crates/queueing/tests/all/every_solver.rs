//! Random models of every kind through every solver, for the tests and for `fuzz/`.

use kendall_queueing::model::Model;
use kendall_queueing::simulation::{Settings, simulate};
use kendall_queueing::solver::{Solution, Solver, solve};
use toml::{Table, Value};

/// What no model should hold.
const HOSTILE: [f64; 8] = [-1.0, 0.0, 0.5, 1e-308, 1e15, 9e15, 1e300, f64::MAX];
const DISCIPLINES: [&str; 14] = [
    "fcfs",
    "ps",
    "lcfs",
    "lcfs-pr",
    "siro",
    "sjf",
    "srpt",
    "dps",
    "gps",
    "edf",
    "edf-preemptive",
    "is",
    "priority-non-preemptive",
    "priority-preemptive",
];
const WHEN_FULL: [&str; 4] =
    ["block-after-service", "block-before-service", "repeat-service", "lost"];
/// Customers that a simulation completes.
const CUSTOMERS: u64 = 300;

/// A model that the bytes choose, solved by every solver and simulated; or refused.
///
/// # Panics
/// When a refusal has no words, or an answer holds NaN, a number below 0 or more customers than
/// there are.
pub(crate) fn every_solver(bytes: &[u8]) {
    let table = model(bytes);
    let model = match Model::read(&table) {
        Ok(model) => model,
        Err(error) => return assert!(error.to_string().len() > 10, "{error}\n{table}"),
    };
    for (name, solver) in Solver::ALL {
        if solver == Solver::Simulation {
            continue;
        }
        match solve(&model, solver) {
            Ok(solution) => check(&model, &solution, &format!("{name}\n{table}")),
            Err(error) => assert!(error.to_string().len() > 10, "{error}\n{table}"),
        }
    }
    let settings = Settings {
        most_customers: CUSTOMERS,
        most_present: 2_000,
        replications: 5,
        ..Settings::of(&model)
    };
    match simulate(&model, &settings, &mut |_| {}) {
        Ok(simulated) => {
            let written = Value::try_from(&simulated).expect("estimates can be written");
            check_all(&written, &format!("simulation\n{table}"));
        }
        Err(error) => assert!(error.to_string().len() > 10, "{error}\n{table}"),
    }
}

/// The model that the bytes choose. The same bytes give the same one.
pub(crate) fn model(bytes: &[u8]) -> Table {
    let mut chance = Choices(bytes);
    let mut table = Table::new();
    let classes: Vec<String> = (0..1 + chance.below(3)).map(|i| format!("c{i}")).collect();
    let stations: Vec<String> = (0..1 + chance.below(4)).map(|i| format!("s{i}")).collect();
    let routed = chance.one_in(3);
    put(&mut table, "classes", classes.iter().map(|name| class(&mut chance, name)).collect());
    let list: Vec<Table> =
        stations.iter().map(|name| station(&mut chance, name, &classes, routed)).collect();
    // Pools beside blocking are refused: seldom.
    let blocks = list.iter().any(|station| station.contains_key("when_full"));
    put(&mut table, "stations", list);
    if routed {
        put(&mut table, "routes", routes(&mut chance, &classes, &stations));
    }
    if !chance.one_in(2) && (!blocks || chance.one_in(8)) {
        put(&mut table, "pools", pools(&mut chance, &classes, &stations));
    }
    if chance.one_in(4) {
        table.insert("percentiles".to_owned(), Value::from(vec![50.0, 99.0]));
    }
    let mut value = Value::Table(table);
    for _ in 0..chance.below(6).saturating_sub(3) {
        change(&mut chance, &mut value);
    }
    match value {
        Value::Table(table) => table,
        _ => Table::new(),
    }
}

/// Bytes as choices; zeros from where they end.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn below(&mut self, most: usize) -> usize {
        let Some((first, others)) = self.0.split_first() else { return 0 };
        self.0 = others;
        usize::from(*first) % most.max(1)
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) + 1 == count
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn count(&mut self, most: usize) -> i64 {
        i64::try_from(self.below(most)).unwrap_or(0)
    }
}

fn put(table: &mut Table, key: &str, list: Vec<Table>) {
    table.insert(key.to_owned(), Value::Array(list.into_iter().map(Value::Table).collect()));
}

fn set(table: &mut Table, key: &str, value: impl Into<Value>) {
    table.insert(key.to_owned(), value.into());
}

fn shape(chance: &mut Choices<'_>) -> Table {
    let mut shape = Table::new();
    let kinds = ["exponential", "deterministic", "erlang", "hyperexponential", "lognormal"];
    let name = chance.of(&[&kinds[..], &["gamma", "weibull", "general"]].concat());
    set(&mut shape, "distribution", name);
    match name {
        "erlang" => set(&mut shape, "stages", 1 + chance.count(5)),
        "hyperexponential" => set(&mut shape, "scv", chance.of(&[1.0, 2.0, 9.0])),
        "lognormal" | "gamma" | "general" => set(&mut shape, "scv", chance.of(&[0.3, 1.0, 4.0])),
        "weibull" => set(&mut shape, "shape", chance.of(&[0.5, 1.0, 3.0])),
        _ => {}
    }
    shape
}

fn class(chance: &mut Choices<'_>, name: &str) -> Table {
    let mut class = Table::new();
    set(&mut class, "name", name);
    if chance.one_in(3) {
        set(&mut class, "arrival_rate_per_s", chance.of(&[0.5, 0.05, 0.9, 2.0, 0.0]));
        if chance.one_in(3) {
            set(&mut class, "interarrival_time", shape(chance));
        }
        if chance.one_in(6) {
            set(&mut class, "batch_size", 1 + chance.count(3));
        }
    } else {
        set(&mut class, "population", chance.of(&[1_i64, 2, 3, 4, 6, 0, 15]));
        set(&mut class, "think_time_s", chance.of(&[0.0, 1.0, 0.1, 10.0]));
    }
    set(&mut class, "priority", 1 + chance.count(3));
    class
}

fn station(chance: &mut Choices<'_>, name: &str, classes: &[String], routed: bool) -> Table {
    let mut station = Table::new();
    set(&mut station, "name", name);
    let times = [0.1, 0.5, 1.0, 0.01, 0.0];
    if classes.len() > 1 && chance.one_in(2) {
        let mut table = Table::new();
        for class in classes {
            if !chance.one_in(5) {
                table.insert(class.clone(), Value::from(chance.of(&times)));
            }
        }
        set(&mut station, "service_time_s", table);
    } else {
        set(&mut station, "service_time_s", chance.of(&times));
    }
    if chance.one_in(4) {
        set(&mut station, "service", shape(chance));
    }
    if !routed && chance.one_in(3) {
        set(&mut station, "visits", chance.of(&[1.0, 2.0, 0.3, 0.0, 7.5]));
    }
    if chance.one_in(8) {
        set(&mut station, "type", "delay");
        return station;
    }
    let discipline = chance.of(&DISCIPLINES);
    if discipline.starts_with("edf") {
        set(&mut station, "deadline_s", chance.of(&[0.0, 0.3, 1e9]));
    }
    set(&mut station, "discipline", discipline);
    match chance.below(6) {
        0 => {}
        5 => set(
            &mut station,
            "rate_multipliers",
            chance.of(&[&[1.0, 1.5], &[1.0, 0.5], &[2.0, 9.0]]).to_vec(),
        ),
        m => set(&mut station, "servers", i64::try_from(m).unwrap_or(1)),
    }
    if chance.one_in(5) {
        set(&mut station, "capacity", 1 + chance.count(6));
        if !chance.one_in(3) {
            set(&mut station, "when_full", chance.of(&WHEN_FULL));
        }
    }
    match chance.below(16) {
        15 => set(&mut station, "patience_time_s", chance.of(&[0.1, 1.0, 0.0])),
        14 => set(&mut station, "balking", "reciprocal"),
        13 => set(&mut station, "join_probabilities", vec![1.0, 0.5, 0.0]),
        12 => set(
            &mut station,
            "patience",
            Table::from_iter([
                ("distribution".to_owned(), Value::from("deterministic")),
                ("mean_s".to_owned(), Value::from(0.5)),
            ]),
        ),
        10 | 11 => {
            let branches = 1 + chance.count(4);
            set(&mut station, "branches", branches);
            if chance.one_in(2) {
                set(
                    &mut station,
                    "needed",
                    1 + chance.count(usize::try_from(branches).unwrap_or(1)),
                );
            }
        }
        _ => {}
    }
    station
}

/// Probabilities from `in` and from each station, now and then with another class behind.
fn routes(chance: &mut Choices<'_>, classes: &[String], stations: &[String]) -> Vec<Table> {
    let mut routes = Vec::new();
    for class in classes {
        for from in std::iter::once("in").chain(stations.iter().map(String::as_str)) {
            let mut to = Table::new();
            let first = chance.of(&stations.iter().collect::<Vec<_>>()).clone();
            if from == "in" {
                to.insert(first, Value::from(1.0));
            } else {
                let switched = format!("{first}:{}", classes[chance.below(classes.len())]);
                let leaves = chance.of(&[0.5, 1.0, 0.1]);
                to.insert("out".to_owned(), Value::from(leaves));
                if leaves < 1.0 {
                    let target = if chance.one_in(4) { switched } else { first };
                    to.insert(target, Value::from(1.0 - leaves));
                }
            }
            let mut route = Table::new();
            set(&mut route, "class", class.as_str());
            set(&mut route, "from", from);
            set(&mut route, "to", to);
            if chance.one_in(8) {
                set(&mut route, "choose", chance.of(&["shortest-queue", "round-robin"]));
            }
            routes.push(route);
        }
    }
    routes
}

/// Pools over runs of stations: nested, apart or overlapping.
fn pools(chance: &mut Choices<'_>, classes: &[String], stations: &[String]) -> Vec<Table> {
    (0..1 + chance.below(3))
        .map(|index| {
            let first = chance.below(stations.len());
            let end = first + 1 + chance.below(stations.len() - first);
            let mut pool = Table::new();
            set(&mut pool, "name", format!("p{index}"));
            set(&mut pool, "tokens", 1 + chance.count(4));
            set(&mut pool, "stations", stations[first..end].to_vec());
            if chance.one_in(3) {
                set(&mut pool, "queue_capacity", chance.count(4));
            }
            if chance.one_in(4) {
                set(&mut pool, "classes", classes[..1].to_vec());
            }
            pool
        })
        .collect()
}

/// Cuts a key, or an entry of a list, or makes something else of a value.
fn change(chance: &mut Choices<'_>, value: &mut Value) {
    let deeper = !chance.one_in(5);
    match value {
        Value::Table(table) if !table.is_empty() => {
            let at = chance.below(table.len());
            let key = table.keys().nth(at).cloned().unwrap_or_default();
            if deeper && let Some(inner) = table.get_mut(&key) {
                return change(chance, inner);
            }
            table.remove(&key);
        }
        Value::Array(list) if !list.is_empty() => {
            let at = chance.below(list.len());
            if deeper {
                return change(chance, &mut list[at]);
            }
            list.remove(at);
        }
        Value::Integer(_) if deeper => *value = Value::from(chance.count(200)),
        other => *other = Value::from(chance.of(&HOSTILE)),
    }
}

fn check(model: &Model, solution: &Solution, what: &str) {
    let mut numbers = Vec::new();
    for class in &solution.classes {
        let (x, r, n) = (class.throughput, class.system_response, class.number);
        numbers.extend([x, r, n]);
        assert!((x * r - n).abs() <= 1e-6 * n.max(1.0), "{n} are there of {x} for {r} by {what}");
    }
    for station in &solution.stations {
        let lists = [
            &station.throughput,
            &station.utilization,
            &station.number,
            &station.response_time,
            &station.waiting_time,
            &station.residence_time,
        ];
        lists.iter().for_each(|list| numbers.extend(list.iter()));
        numbers.extend(station.states.iter().flatten());
    }
    for pool in &solution.pools {
        let own = [pool.number_waiting, pool.waiting_time, pool.in_use, pool.utilization];
        numbers.extend(own);
    }
    numbers.extend(solution.response_quantiles.iter().map(|(_, time)| time));
    numbers.extend(solution.waiting_quantiles.iter().map(|(_, time)| time));
    assert!(numbers.iter().all(|number| *number >= 0.0), "{numbers:?} by {what}");
    if !model.classes.iter().any(kendall_queueing::model::Class::is_open) {
        let there = model.classes.iter().map(|class| class.population()).sum::<u64>();
        let most = kendall_units::exact_f64(there) * (1.0 + 1e-6);
        let found: f64 = solution.classes.iter().map(|class| class.number).sum();
        assert!(found <= most, "{found} of {there} customers by {what}");
    }
}

fn check_all(value: &Value, what: &str) {
    match value {
        Value::Float(number) => assert!(*number >= 0.0, "{number} by {what}"),
        Value::Integer(number) => assert!(*number >= 0, "{number} by {what}"),
        Value::Array(list) => list.iter().for_each(|value| check_all(value, what)),
        Value::Table(table) => table.values().for_each(|value| check_all(value, what)),
        _ => {}
    }
}
