//! What a model file says, before it is checked: the wire form of [`Model`].

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::value::Value;
use super::{
    Balking, Batch, Center, Class, Demand, Discipline, Fork, Leg, Model, ModelError, Place, Pool,
    SimulationOptions, Station, Workload, refused,
};
use crate::{Distribution, DistributionError};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireModel {
    #[serde(default)]
    name: String,
    /// Free text for the reader of the file.
    #[serde(default, rename = "description")]
    _description: String,
    #[serde(default)]
    classes: Vec<WireClass>,
    arrival_rate_per_s: Option<f64>,
    #[serde(alias = "customers")]
    population: Option<f64>,
    think_time_s: Option<f64>,
    stations: Vec<WireStation>,
    #[serde(default)]
    routes: Vec<WireRoute>,
    #[serde(default)]
    pools: Vec<WirePool>,
    solver: Option<String>,
    #[serde(default)]
    percentiles: Vec<f64>,
    #[serde(default)]
    simulation: WireSimulation,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireClass {
    name: String,
    arrival_rate_per_s: Option<f64>,
    #[serde(alias = "interarrival")]
    interarrival_time: Option<Value>,
    batch_size: Option<Value>,
    #[serde(alias = "customers")]
    population: Option<f64>,
    think_time_s: Option<f64>,
    think_time: Option<Value>,
    priority: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireStation {
    name: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    servers: Option<f64>,
    discipline: Option<String>,
    capacity: Option<f64>,
    service_time_s: Option<Value>,
    service_rate_per_s: Option<Value>,
    service_demand_s: Option<Value>,
    service: Option<Value>,
    visits: Option<Value>,
    #[serde(default)]
    rate_multipliers: Vec<f64>,
    #[serde(default)]
    service_rates_per_s: Vec<f64>,
    patience_time_s: Option<f64>,
    patience: Option<Value>,
    balking: Option<String>,
    join_probabilities: Option<Vec<f64>>,
    branches: Option<f64>,
    needed: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRoute {
    class: Option<String>,
    from: String,
    to: BTreeMap<String, f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WirePool {
    name: String,
    tokens: f64,
    stations: Vec<String>,
    classes: Option<Vec<String>>,
    queue_capacity: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireSimulation {
    seed: Option<u64>,
    confidence: Option<f64>,
    relative_half_width: Option<f64>,
    replications: Option<u32>,
    most_customers: Option<u64>,
}

impl<'de> Deserialize<'de> for Model {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = WireModel::deserialize(deserializer)?;
        Self::try_from(wire).map_err(serde::de::Error::custom)
    }
}

impl TryFrom<WireModel> for Model {
    type Error = ModelError;

    fn try_from(wire: WireModel) -> Result<Self, ModelError> {
        let classes = classes(&wire)?;
        let routed = !wire.routes.is_empty();
        let stations = wire
            .stations
            .into_iter()
            .enumerate()
            .map(|(index, station)| read_station(index, station, &classes, routed))
            .collect::<Result<Vec<_>, _>>()?;
        let mut model = Model {
            name: wire.name,
            classes,
            stations,
            routes: Vec::new(),
            pools: Vec::new(),
            solver: wire.solver.unwrap_or_else(|| "auto".to_owned()),
            quantiles: wire.percentiles.iter().map(|percent| percent / 100.0).collect(),
            simulation: simulation(&wire.simulation)?,
        };
        for (index, route) in wire.routes.iter().enumerate() {
            let legs = read_route(&format!("routes[{index}]"), route, &model)?;
            model.routes.extend(legs);
        }
        for (index, pool) in wire.pools.into_iter().enumerate() {
            let pool = read_pool(&format!("pools[{index}]"), pool, &model)?;
            model.pools.push(pool);
        }
        model.checked()
    }
}

fn count(path: impl Into<String>, value: f64) -> Result<u64, ModelError> {
    if value.is_finite() && value >= 0.0 && value.fract() == 0.0 && value <= 9e15 {
        Ok(kendall_units::whole_u64(value))
    } else {
        Err(refused(path, value, "a whole number, 0 or above"))
    }
}

fn simulation(wire: &WireSimulation) -> Result<SimulationOptions, ModelError> {
    let default = SimulationOptions::default();
    let options = SimulationOptions {
        seed: wire.seed.unwrap_or(default.seed),
        confidence: wire.confidence.unwrap_or(default.confidence),
        relative_half_width: wire.relative_half_width.unwrap_or(default.relative_half_width),
        replications: wire.replications.unwrap_or(default.replications),
        most_customers: wire.most_customers.unwrap_or(default.most_customers),
    };
    if !(options.confidence > 0.0 && options.confidence < 1.0) {
        return Err(refused("simulation.confidence", options.confidence, "between 0 and 1"));
    }
    if !(options.relative_half_width > 0.0 && options.relative_half_width.is_finite()) {
        let path = "simulation.relative_half_width";
        return Err(refused(path, options.relative_half_width, "a share above 0"));
    }
    Ok(options)
}

fn classes(wire: &WireModel) -> Result<Vec<Class>, ModelError> {
    let single = wire.arrival_rate_per_s.is_some()
        || wire.population.is_some()
        || wire.think_time_s.is_some();
    if single && !wire.classes.is_empty() {
        return Err(refused(
            "arrival_rate_per_s, population or think_time_s beside `classes`",
            "both",
            "either one class at the top, or `[[classes]]`",
        ));
    }
    if wire.classes.is_empty() {
        let class = WireClass {
            name: "customers".to_owned(),
            arrival_rate_per_s: wire.arrival_rate_per_s,
            interarrival_time: None,
            batch_size: None,
            population: wire.population,
            think_time_s: wire.think_time_s,
            think_time: None,
            priority: None,
        };
        return Ok(vec![read_class("", class)?]);
    }
    let mut classes = Vec::new();
    for (index, class) in wire.classes.iter().enumerate() {
        let copy = WireClass {
            name: class.name.clone(),
            arrival_rate_per_s: class.arrival_rate_per_s,
            interarrival_time: class.interarrival_time.clone(),
            batch_size: class.batch_size.clone(),
            population: class.population,
            think_time_s: class.think_time_s,
            think_time: class.think_time.clone(),
            priority: class.priority,
        };
        classes.push(read_class(&format!("classes[{index}]."), copy)?);
    }
    Ok(classes)
}

fn read_class(path: &str, wire: WireClass) -> Result<Class, ModelError> {
    let priority = count(format!("{path}priority"), wire.priority.unwrap_or(1.0))?;
    let priority = u32::try_from(priority)
        .map_err(|_| refused(format!("{path}priority"), priority, "a small number"))?;
    let workload = match (wire.population, wire.arrival_rate_per_s, &wire.interarrival_time) {
        (Some(population), None, None) => {
            let mean = wire.think_time_s.unwrap_or(0.0);
            let think_time = match &wire.think_time {
                Some(value) => read_distribution(&format!("{path}think_time"), value, Some(mean))?,
                None => exponential(&format!("{path}think_time_s"), mean)?,
            };
            Workload::Closed {
                population: count(format!("{path}population"), population)?,
                think_time,
            }
        }
        (None, rate, _) if rate.is_some() || wire.interarrival_time.is_some() => {
            read_open(path, rate, &wire)?
        }
        (None, None, None) => {
            return Err(ModelError::Missing {
                path: format!("{path}arrival_rate_per_s or {path}population"),
                expected: "one of the two: the first makes the class open, the second closed"
                    .to_owned(),
            });
        }
        _ => {
            return Err(refused(
                format!("{path}population"),
                "beside an arrival rate",
                "one of the two: a class is open or closed",
            ));
        }
    };
    Ok(Class { name: wire.name, workload, priority })
}

fn read_open(path: &str, rate: Option<f64>, wire: &WireClass) -> Result<Workload, ModelError> {
    if let Some(think) = wire.think_time_s {
        let expected = "no think time in an open class (give a population to close it)";
        return Err(refused(format!("{path}think_time_s"), think, expected));
    }
    let rate_path = format!("{path}arrival_rate_per_s");
    if let Some(rate) = rate.filter(|rate| !(rate.is_finite() && *rate >= 0.0)) {
        return Err(refused(rate_path, rate, "a finite rate, 0 or above"));
    }
    let batch = match &wire.batch_size {
        Some(value) => read_batch(&format!("{path}batch_size"), value)?,
        None => Batch::Fixed(1),
    };
    // A rate above 0 fixes the mean gap between batches, whatever the shape of the gaps is.
    let gap = rate.filter(|rate| *rate > 0.0).map(|rate| batch.mean() / rate);
    let interarrival = match (&wire.interarrival_time, gap) {
        (Some(value), gap) => read_distribution(&format!("{path}interarrival_time"), value, gap)?,
        (None, Some(gap)) => exponential(&rate_path, gap)?,
        (None, None) => Distribution::Exponential { mean_s: 0.0 },
    };
    let mean = interarrival.mean();
    let arrival_rate_per_s = match rate {
        Some(rate) => rate,
        None if mean > 0.0 => batch.mean() / mean,
        None => return Err(refused(format!("{path}interarrival_time"), mean, "a mean above 0")),
    };
    let interarrival = match gap {
        Some(gap) if (mean - gap).abs() > 1e-9 * gap => interarrival
            .with_mean(gap)
            .map_err(|error| refused(rate_path, gap, error.to_string()))?,
        _ => interarrival,
    };
    Ok(Workload::Open { arrival_rate_per_s, interarrival, batch })
}

fn exponential(path: &str, mean: f64) -> Result<Distribution, ModelError> {
    Distribution::exponential(mean).map_err(|_| refused(path, mean, "a finite time, 0 or above"))
}

fn read_batch(path: &str, value: &Value) -> Result<Batch, ModelError> {
    if let Some(size) = value.number() {
        return Ok(Batch::Fixed(count(path, size)?));
    }
    if let Some(table) = value.numbers() {
        return Ok(Batch::Table(table));
    }
    let table = value.table();
    let mean = table.and_then(|t| t.get("mean")).and_then(Value::number);
    match (table.and_then(|t| t.get("distribution")).and_then(Value::text), mean) {
        (Some("geometric"), Some(mean)) => Ok(Batch::Geometric { mean }),
        _ => Err(refused(
            path,
            value,
            "a size, the probabilities of sizes 1, 2, …, or \
             { distribution = \"geometric\", mean = 3 }",
        )),
    }
}

/// A value for `class`: the same for all classes, or its entry in a table.
fn for_class<'a>(value: Option<&'a Value>, class: &str) -> Option<&'a Value> {
    match value? {
        Value::Table(table) if !table.contains_key("distribution") => table.get(class),
        other => Some(other),
    }
}

fn number_for(path: &str, value: Option<&Value>, class: &str) -> Result<Option<f64>, ModelError> {
    match for_class(value, class) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => Ok(Some(*number)),
        Some(other) => Err(refused(path, other, "a number, or a table with one for each class")),
    }
}

fn known_classes(path: &str, value: Option<&Value>, classes: &[Class]) -> Result<(), ModelError> {
    let Some(Value::Table(table)) = value else { return Ok(()) };
    if table.contains_key("distribution") {
        return Ok(());
    }
    match table.keys().find(|name| classes.iter().all(|class| class.name != **name)) {
        None => Ok(()),
        Some(name) => {
            let names: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
            Err(refused(path, format!("`{name}`"), format!("a class: {}", names.join(", "))))
        }
    }
}

fn read_station(
    index: usize,
    wire: WireStation,
    classes: &[Class],
    routed: bool,
) -> Result<Station, ModelError> {
    let path = format!("stations[{index}]");
    let center = match wire.kind.as_deref() {
        None | Some("queue" | "fork-join") => Center::Queue,
        Some("delay" | "is") => Center::Delay,
        Some(other) => {
            let expected = "`queue`, `delay` or `fork-join`";
            return Err(refused(format!("{path}.type"), format!("`{other}`"), expected));
        }
    };
    let named = |key: &str| format!("{path}.{key}");
    for (key, value) in [
        ("service_time_s", &wire.service_time_s),
        ("service_rate_per_s", &wire.service_rate_per_s),
        ("service_demand_s", &wire.service_demand_s),
        ("service", &wire.service),
        ("visits", &wire.visits),
    ] {
        known_classes(&named(key), value.as_ref(), classes)?;
    }
    let mut station = Station::queue(&wire.name, 1);
    station.center = center;
    for (class_index, class) in classes.iter().enumerate() {
        if let Some(demand) = read_demand(&path, &wire, &class.name, routed)? {
            station.set(class_index, demand);
        }
    }
    if station.demands.iter().all(Option::is_none) {
        return Err(ModelError::Missing {
            path: named("service_time_s"),
            expected: "service_time_s, service_rate_per_s, service_demand_s or service".to_owned(),
        });
    }
    station.servers = count(named("servers"), wire.servers.unwrap_or(1.0))?;
    station.discipline = discipline(&named("discipline"), wire.discipline.as_deref(), center)?;
    station.capacity = wire.capacity.map(|b| count(named("capacity"), b)).transpose()?;
    station.rate_multipliers = rate_multipliers(&path, &wire)?;
    station.patience = match (&wire.patience, wire.patience_time_s) {
        (Some(value), mean) => Some(read_distribution(&named("patience"), value, mean)?),
        (None, Some(mean)) => Some(exponential(&named("patience_time_s"), mean)?),
        (None, None) => None,
    };
    station.balking = match (wire.balking.as_deref(), wire.join_probabilities) {
        (None | Some("never"), None) => Balking::Never,
        (Some("reciprocal"), None) => Balking::Reciprocal,
        (None, Some(table)) => Balking::Table(table),
        (other, _) => {
            let expected = "`never`, `reciprocal`, or `join_probabilities` alone";
            return Err(refused(named("balking"), format!("{other:?}"), expected));
        }
    };
    if let Some(branches) = wire.branches {
        let needed = wire.needed.unwrap_or(branches);
        let small = |key: &str, value: f64| {
            u32::try_from(count(named(key), value)?)
                .map_err(|_| refused(named(key), value, "at most 100000"))
        };
        station.fork =
            Some(Fork { branches: small("branches", branches)?, needed: small("needed", needed)? });
    }
    Ok(station)
}

fn rate_multipliers(path: &str, wire: &WireStation) -> Result<Vec<f64>, ModelError> {
    if wire.service_rates_per_s.is_empty() {
        return Ok(wire.rate_multipliers.clone());
    }
    if !wire.rate_multipliers.is_empty() {
        let expected = "either service_rates_per_s or rate_multipliers";
        return Err(refused(format!("{path}.rate_multipliers"), "both", expected));
    }
    let first = wire.service_rates_per_s[0];
    Ok(wire.service_rates_per_s.iter().map(|rate| rate / first).collect())
}

fn discipline(path: &str, name: Option<&str>, center: Center) -> Result<Discipline, ModelError> {
    Ok(match name {
        None if center == Center::Delay => Discipline::Is,
        None | Some("fcfs") => Discipline::Fcfs,
        Some("lcfs") => Discipline::Lcfs,
        Some("lcfs-pr") => Discipline::LcfsPr,
        Some("ps") => Discipline::Ps,
        Some("siro") => Discipline::Siro,
        Some("is" | "delay") => Discipline::Is,
        Some("priority" | "priority-non-preemptive") => Discipline::PriorityNonPreemptive,
        Some("priority-preemptive" | "priority-preemptive-resume") => {
            Discipline::PriorityPreemptive
        }
        Some(other) => {
            return Err(refused(
                path,
                format!("`{other}`"),
                "fcfs, lcfs, lcfs-pr, ps, siro, is, priority-non-preemptive or \
                 priority-preemptive",
            ));
        }
    })
}

fn read_demand(
    path: &str,
    wire: &WireStation,
    class: &str,
    routed: bool,
) -> Result<Option<Demand>, ModelError> {
    let number = |key: &str, value: &Option<Value>| {
        number_for(&format!("{path}.{key}"), value.as_ref(), class)
    };
    let visits = number("visits", &wire.visits)?;
    let time = number("service_time_s", &wire.service_time_s)?;
    let rate = number("service_rate_per_s", &wire.service_rate_per_s)?;
    let demand = number("service_demand_s", &wire.service_demand_s)?;
    let first_rate = wire.service_rates_per_s.first().copied();
    if demand.is_some() && (time.is_some() || rate.is_some() || routed) {
        return Err(refused(
            format!("{path}.service_demand_s"),
            "beside a service time, a rate or routes",
            "one of service_time_s (with visits or routes) and service_demand_s",
        ));
    }
    let mean = match (time, rate.or(first_rate), demand) {
        (Some(time), None, None) => Some(time),
        (None, Some(rate), None) => {
            if !(rate.is_finite() && rate > 0.0) {
                return Err(refused(format!("{path}.service_rate_per_s"), rate, "above 0"));
            }
            Some(1.0 / rate)
        }
        (None, None, Some(demand)) => match visits {
            Some(visits) if visits > 0.0 => Some(demand / visits),
            _ => Some(demand),
        },
        (None, None, None) => None,
        _ => {
            let expected = "one of service_time_s, service_rate_per_s and service_demand_s";
            return Err(refused(format!("{path}.service_time_s"), "several", expected));
        }
    };
    let service = match (for_class(wire.service.as_ref(), class), mean) {
        (Some(value), mean) => read_distribution(&format!("{path}.service"), value, mean)?,
        (None, Some(mean)) => exponential(&format!("{path}.service_time_s"), mean)?,
        (None, None) => return Ok(None),
    };
    Ok(Some(Demand { service, visits: visits.unwrap_or(1.0) }))
}

fn read_route(path: &str, wire: &WireRoute, model: &Model) -> Result<Vec<Leg>, ModelError> {
    let class = match &wire.class {
        None if model.classes.len() == 1 => 0,
        None => {
            return Err(ModelError::Missing {
                path: format!("{path}.class"),
                expected: "the class that goes this way, since there are several".to_owned(),
            });
        }
        Some(name) => class_named(&format!("{path}.class"), name, model)?,
    };
    let from = match wire.from.as_str() {
        "in" | "out" | "think" => Place::Outside,
        name => Place::Station(station_named(&format!("{path}.from"), name, model)?),
    };
    let mut legs = Vec::new();
    for (target, probability) in &wire.to {
        let place = format!("{path}.to");
        // `disk:write` goes to the disk as class `write`; a station's own name comes first.
        let (name, to_class) = match target.rsplit_once(':') {
            Some((name, switched)) if model.station_index(target).is_none() => {
                (name, class_named(&place, switched, model)?)
            }
            _ => (target.as_str(), class),
        };
        let to = match name {
            "out" | "in" | "think" if model.station_index(name).is_none() => Place::Outside,
            name => Place::Station(station_named(&place, name, model)?),
        };
        legs.push(Leg { class, from, to_class, to, probability: *probability });
    }
    Ok(legs)
}

fn class_named(path: &str, name: &str, model: &Model) -> Result<usize, ModelError> {
    model.class_index(name).ok_or_else(|| {
        let names: Vec<&str> = model.classes.iter().map(|class| class.name.as_str()).collect();
        refused(path, format!("`{name}`"), format!("a class: {}", names.join(", ")))
    })
}

fn station_named(path: &str, name: &str, model: &Model) -> Result<usize, ModelError> {
    model.station_index(name).ok_or_else(|| {
        let names: Vec<&str> = model.stations.iter().map(|s| s.name.as_str()).take(20).collect();
        let expected = format!("`in`, `out` or a station: {}", names.join(", "));
        refused(path, format!("`{name}`"), expected)
    })
}

fn read_pool(path: &str, wire: WirePool, model: &Model) -> Result<Pool, ModelError> {
    let stations = wire
        .stations
        .iter()
        .map(|name| station_named(&format!("{path}.stations"), name, model))
        .collect::<Result<Vec<_>, _>>()?;
    let classes = match &wire.classes {
        None => (0..model.classes.len()).collect(),
        Some(names) => names
            .iter()
            .map(|name| class_named(&format!("{path}.classes"), name, model))
            .collect::<Result<Vec<_>, _>>()?,
    };
    Ok(Pool {
        tokens: count(format!("{path}.tokens"), wire.tokens)?,
        queue_capacity: wire
            .queue_capacity
            .map(|b| count(format!("{path}.queue_capacity"), b))
            .transpose()?,
        name: wire.name,
        stations,
        classes,
    })
}

/// A distribution as files write it: `{ distribution = "erlang", mean_s = 0.01, stages = 4 }`.
///
/// `mean_s` is what the file says beside it (a `service_time_s`, a rate), for distributions that
/// give a shape only. A bare number is the mean of an exponential.
///
/// # Errors
/// [`ModelError`] when it is no distribution, a parameter is missing, unknown or makes no sense.
pub fn read_distribution(
    path: &str,
    value: &Value,
    mean_s: Option<f64>,
) -> Result<Distribution, ModelError> {
    if let Some(mean) = value.number() {
        return exponential(path, mean);
    }
    let Some(table) = value.table() else {
        let expected = "a table such as { distribution = \"erlang\", mean_s = 0.01, stages = 4 }";
        return Err(refused(path, value, expected));
    };
    let mut fields = Fields { path, table, used: vec!["distribution"] };
    let name = fields.table.get("distribution").and_then(Value::text).unwrap_or("").to_owned();
    let built = build(&mut fields, &name, mean_s)?;
    if let Some(unknown) = table.keys().find(|key| !fields.used.contains(&key.as_str())) {
        let expected = format!("for `{name}` one of: {}", fields.used.join(", "));
        return Err(refused(path, format!("key `{unknown}`"), expected));
    }
    Ok(built)
}

struct Fields<'a> {
    path: &'a str,
    table: &'a BTreeMap<String, Value>,
    used: Vec<&'static str>,
}

impl Fields<'_> {
    fn find(&mut self, names: &[&'static str]) -> Option<f64> {
        self.used.extend(names);
        names.iter().find_map(|name| self.table.get(*name)).and_then(Value::number)
    }

    fn need(&mut self, names: &[&'static str]) -> Result<f64, ModelError> {
        self.find(names).ok_or_else(|| ModelError::Missing {
            path: format!("{}.{}", self.path, names[0]),
            expected: "a number".to_owned(),
        })
    }

    fn list(&mut self, names: &[&'static str]) -> Option<Vec<f64>> {
        self.used.extend(names);
        names.iter().find_map(|name| self.table.get(*name)).and_then(Value::numbers)
    }

    fn mean(&mut self, outer: Option<f64>) -> Result<f64, ModelError> {
        if let Some(rate) = self.find(&["rate_per_s"]) {
            return Ok(1.0 / rate);
        }
        match self.find(&["mean_s", "mean", "value_s"]).or(outer) {
            Some(mean) => Ok(mean),
            None => self.need(&["mean_s"]),
        }
    }

    fn scv(&mut self) -> Option<f64> {
        let cv = self.find(&["cv"]).map(|cv| cv * cv);
        self.find(&["scv", "cv2", "squared_cv"]).or(cv)
    }

    fn need_scv(&mut self) -> Result<f64, ModelError> {
        match self.scv() {
            Some(scv) => Ok(scv),
            None => self.need(&["scv"]),
        }
    }
}

fn build(
    fields: &mut Fields<'_>,
    name: &str,
    outer: Option<f64>,
) -> Result<Distribution, ModelError> {
    let path = fields.path.to_owned();
    let built = match name {
        "exponential" | "exp" | "M" => Distribution::exponential(fields.mean(outer)?),
        "deterministic" | "constant" | "det" | "D" => {
            Distribution::deterministic(fields.mean(outer)?)
        }
        "erlang" => {
            let stages = fields.need(&["stages", "k", "shape", "phases"])?;
            let stages = u32::try_from(count(format!("{path}.stages"), stages)?)
                .map_err(|_| refused(format!("{path}.stages"), stages, "a small number"))?;
            Distribution::erlang(stages, fields.mean(outer)?)
        }
        "hyperexponential" | "hyper-exponential" | "H2" => return hyperexponential(fields, outer),
        "lognormal" | "log-normal" => {
            let scv = fields.need_scv()?;
            Distribution::lognormal(fields.mean(outer)?, scv)
        }
        "gamma" => {
            let shape = fields.find(&["shape"]).map(|shape| 1.0 / shape);
            let scv = match shape {
                Some(scv) => scv,
                None => fields.need_scv()?,
            };
            Distribution::gamma(fields.mean(outer)?, scv)
        }
        "uniform" => {
            let low = fields.need(&["low_s", "min_s", "a_s", "low"])?;
            Distribution::uniform(low, fields.need(&["high_s", "max_s", "b_s", "high"])?)
        }
        "weibull" => weibull(fields, outer)?,
        "normal" | "truncated-normal" => {
            let scale = fields.need(&["sd_s", "standard_deviation_s"])?;
            Distribution::truncated_normal(fields.mean(outer)?, scale)
        }
        "pareto" | "bounded-pareto" => {
            let shape = fields.need(&["shape", "alpha"])?;
            let low = fields.need(&["low_s", "min_s"])?;
            Distribution::bounded_pareto(shape, low, fields.need(&["high_s", "max_s"])?)
        }
        "empirical" => {
            let values = fields.list(&["values_s", "values"]).unwrap_or_default();
            Distribution::empirical(values)
        }
        "general" | "G" | "moments" | "" => {
            let variance = fields.find(&["variance_s2"]);
            let third = fields.find(&["third_moment_s3"]);
            let mean = fields.mean(outer)?;
            let scv = match variance {
                Some(variance) => variance / (mean * mean),
                None => fields.need_scv()?,
            };
            Distribution::general(mean, scv, third)
        }
        other => {
            return Err(refused(
                format!("{path}.distribution"),
                format!("`{other}`"),
                "exponential, deterministic, erlang, hyperexponential, lognormal, uniform, gamma, \
                 weibull, normal, pareto, empirical or general",
            ));
        }
    };
    built.map_err(|error| refused(path, error.value, error.to_string()))
}

/// By its scale, or by its mean.
fn weibull(
    fields: &mut Fields<'_>,
    outer: Option<f64>,
) -> Result<Result<Distribution, DistributionError>, ModelError> {
    let shape = fields.need(&["shape"])?;
    Ok(match fields.find(&["scale_s", "scale"]) {
        Some(scale) => Distribution::weibull(shape, scale),
        None => {
            let mean = fields.mean(outer)?;
            Distribution::weibull(shape, 1.0).and_then(|unit| unit.with_mean(mean))
        }
    })
}

fn hyperexponential(
    fields: &mut Fields<'_>,
    outer: Option<f64>,
) -> Result<Distribution, ModelError> {
    let path = fields.path.to_owned();
    let rates = fields.list(&["rates_per_s", "rates"]);
    let means = fields
        .list(&["means_s", "means", "mean_s"])
        .or_else(|| rates.map(|rates| rates.iter().map(|rate| 1.0 / rate).collect()));
    let probabilities = fields.list(&["probabilities", "weights", "p"]);
    let single = fields.find(&["p"]);
    let probabilities = probabilities.or_else(|| single.map(|p| vec![p, 1.0 - p]));
    let built = match (probabilities, means) {
        (Some(probabilities), Some(means)) => Distribution::hyperexponential(probabilities, means),
        (None, None) => {
            let scv = fields.need_scv()?;
            Distribution::hyperexponential_balanced(fields.mean(outer)?, scv)
        }
        _ => {
            return Err(refused(
                path,
                "one list",
                "probabilities with means_s (or rates_per_s), or mean_s with scv",
            ));
        }
    };
    built.map_err(|error| refused(path, error.value, error.to_string()))
}
