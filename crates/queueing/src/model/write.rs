//! A model as the file that it could have been read from.

use toml::{Table, Value};

use super::{
    Balking, Batch, Center, Class, Discipline, Leg, Model, Place, Pool, Rule, SimulationOptions,
    Station, WhenFull, Workload, keys,
};
use crate::Distribution;

/// A model that cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{of}` cannot be written to a model file: {what}")]
pub struct WriteError {
    what: String,
    /// Which model.
    of: String,
}

impl Model {
    /// The model as TOML, which read again is the same model. `comment` is written before it, line by line.
    ///
    /// # Errors
    /// [`WriteError`] for names that mean something else in a file, such as a station `out` in routes.
    pub fn to_toml(&self, comment: &str) -> Result<String, WriteError> {
        let file = self.to_table();
        // Percentiles are written as quantiles times 100, which may round.
        let quantiles = self.quantiles.clone();
        let again = Self::read(&file).map(|read| Self { quantiles, ..read }.ordered());
        let what = match again {
            Ok(again) if again == self.clone().ordered() => {
                let comment: String = comment.lines().map(|line| format!("# {line}\n")).collect();
                return Ok(format!("{comment}{file}"));
            }
            Ok(_) => "a name in it would be read as something else; change the name".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(WriteError { what, of: self.name.clone() })
    }

    /// With routes in one order, as a file has none.
    fn ordered(mut self) -> Self {
        self.routes.sort_by_key(|leg| (leg.class, leg.from, leg.to_class, leg.to));
        self.choices.sort_by_key(|choice| (choice.class, choice.from));
        for choice in &mut self.choices {
            choice.factors.sort_by_key(|(station, _)| *station);
        }
        self
    }

    fn to_table(&self) -> Table {
        let mut file = Table::new();
        put(&mut file, "name", self.name.as_str());
        match self.classes.as_slice() {
            [class] if short(class) => workload(&mut file, class),
            classes => put(&mut file, "classes", list(classes.iter().map(class_table))),
        }
        if self.solver != "auto" {
            put(&mut file, "solver", self.solver.as_str());
        }
        if !self.quantiles.is_empty() {
            put(&mut file, "percentiles", list(self.quantiles.iter().map(|q| 100.0 * q)));
        }
        put(&mut file, "stations", list(self.stations.iter().map(|station| self.station(station))));
        for (key, tables) in [
            ("routes", self.routes()),
            ("pools", self.pools.iter().map(|pool| self.pool(pool)).collect()),
        ] {
            if !tables.is_empty() {
                put(&mut file, key, list(tables));
            }
        }
        if self.simulation != SimulationOptions::default() {
            put(&mut file, "simulation", simulation(&self.simulation));
        }
        file
    }

    fn names(&self, stations: &[usize]) -> Value {
        list(stations.iter().map(|index| self.stations[*index].name.as_str()))
    }

    fn station(&self, station: &Station) -> Table {
        let mut table = Table::new();
        put(&mut table, "name", station.name.as_str());
        if station.parts.is_empty() {
            self.served(&mut table, station);
        }
        if let Some(room) = station.capacity {
            put(&mut table, "capacity", whole(room));
        }
        if station.when_full != WhenFull::Lost {
            put_name(&mut table, "when_full", &keys::WHEN_FULL, station.when_full);
        }
        if let Some(patience) = &station.patience {
            put(&mut table, "patience", distribution(patience));
        }
        match &station.balking {
            Balking::Never => {}
            Balking::Reciprocal => put(&mut table, "balking", "reciprocal"),
            Balking::Table(shares) => {
                put(&mut table, "join_probabilities", numbers(shares));
            }
        }
        if let Some(fork) = station.fork {
            let equal = Value::from(i64::from(fork.branches));
            let other = || self.names(&station.parts);
            put(&mut table, "branches", if station.parts.is_empty() { equal } else { other() });
            put(&mut table, "needed", i64::from(fork.needed));
        }
        table
    }

    /// How a station serves.
    fn served(&self, table: &mut Table, station: &Station) {
        if station.center == Center::Delay {
            put(table, "type", "delay");
        } else if station.discipline != Discipline::Fcfs {
            put_name(table, "discipline", &keys::DISCIPLINES, station.discipline);
        }
        if station.servers != 1 {
            put(table, "servers", whole(station.servers));
        }
        let (mut times, mut shapes) = (Table::new(), Table::new());
        let (mut visits, mut weights, mut deadlines) = (Table::new(), Table::new(), Table::new());
        for (index, class) in self.classes.iter().enumerate() {
            let Some(demand) = station.demand_at(index) else { continue };
            match &demand.service {
                Distribution::Exponential { mean_s } => put(&mut times, &class.name, *mean_s),
                other => put(&mut shapes, &class.name, distribution(other)),
            }
            if demand.visits.total_cmp(&1.0).is_ne() {
                put(&mut visits, &class.name, demand.visits);
            }
            if let Some(weight) = station.weights.get(index) {
                put(&mut weights, &class.name, *weight);
            }
            if let Some(deadline) = station.deadlines.get(index) {
                put(&mut deadlines, &class.name, *deadline);
            }
        }
        let by_class = [
            ("service_time_s", times),
            ("service", shapes),
            ("visits", visits),
            ("weight", weights),
            ("deadline_s", deadlines),
        ];
        for (key, values) in by_class {
            let only = values.values().next().filter(|_| self.classes.len() == 1).cloned();
            if let Some(value) = only {
                put(table, key, value);
            } else if !values.is_empty() {
                put(table, key, values);
            }
        }
        if !station.rate_multipliers.is_empty() {
            put(table, "rate_multipliers", numbers(&station.rate_multipliers));
        }
    }

    /// A table for each place and class, in the order of the routes.
    fn routes(&self) -> Vec<Table> {
        let place = |place: Place, outside: &'static str| match place {
            Place::Outside => outside,
            Place::Station(index) => self.stations[index].name.as_str(),
        };
        let mut tables = Vec::new();
        for legs in self.routes.chunk_by(|a, b| (a.class, a.from) == (b.class, b.from)) {
            let Some(first) = legs.first() else { continue };
            let mut table = Table::new();
            if self.classes.len() > 1 {
                put(&mut table, "class", self.classes[first.class].name.as_str());
            }
            put(&mut table, "from", place(first.from, "in"));
            let mut to = Table::new();
            for Leg { to_class, to: at, probability, .. } in legs {
                let mut name = place(*at, "out").to_owned();
                if *to_class != first.class {
                    name = format!("{name}:{}", self.classes[*to_class].name);
                }
                put(&mut to, &name, *probability);
            }
            put(&mut table, "to", to);
            let mut choices = self.choices.iter();
            if let Some(choice) = choices.find(|c| (c.class, c.from) == (first.class, first.from)) {
                match choice.rule {
                    Rule::ShortestQueue { of } => {
                        put(&mut table, "choose", "shortest-queue");
                        if of != u32::MAX {
                            put(&mut table, "choices", i64::from(of));
                        }
                    }
                    Rule::RoundRobin => put(&mut table, "choose", "round-robin"),
                    Rule::ByNumber => {
                        put(&mut table, "choose", "by-number");
                        let mut factors = Table::new();
                        for (station, own) in &choice.factors {
                            put(&mut factors, &self.stations[*station].name, numbers(own));
                        }
                        put(&mut table, "factors", factors);
                    }
                }
            }
            tables.push(table);
        }
        tables
    }

    fn pool(&self, pool: &Pool) -> Table {
        let mut table = Table::new();
        put(&mut table, "name", pool.name.as_str());
        put(&mut table, "tokens", whole(pool.tokens));
        put(&mut table, "stations", self.names(&pool.stations));
        if !pool.classes.iter().copied().eq(0..self.classes.len()) {
            let names = pool.classes.iter().map(|class| self.classes[*class].name.as_str());
            put(&mut table, "classes", list(names));
        }
        if let Some(room) = pool.queue_capacity {
            put(&mut table, "queue_capacity", whole(room));
        }
        table
    }
}

/// Whether the keys at the top of a file say all of it.
fn short(class: &Class) -> bool {
    let plain = match &class.workload {
        Workload::Open { interarrival, batch, .. } => {
            interarrival.is_exponential() && *batch == Batch::Fixed(1)
        }
        Workload::Closed { think_time, .. } => {
            matches!(think_time, Distribution::Exponential { .. })
        }
    };
    plain && class.name == "customers" && class.priority == 1
}

fn class_table(class: &Class) -> Table {
    let mut table = Table::new();
    put(&mut table, "name", class.name.as_str());
    workload(&mut table, class);
    if class.priority != 1 {
        put(&mut table, "priority", i64::from(class.priority));
    }
    table
}

fn workload(table: &mut Table, class: &Class) {
    match class.before {
        Some(before) if class.is_open() => put(table, class.key_before(), before),
        Some(before) => put(table, class.key_before(), whole(kendall_units::whole_u64(before))),
        None => {}
    }
    match &class.workload {
        Workload::Open { arrival_rate_per_s, interarrival, batch } => {
            put(table, "arrival_rate_per_s", *arrival_rate_per_s);
            if !interarrival.is_exponential() {
                put(table, "interarrival_time", distribution(interarrival));
            }
            match batch {
                Batch::Fixed(1) => {}
                Batch::Fixed(size) => put(table, "batch_size", whole(*size)),
                Batch::Geometric { mean } => {
                    let mut geometric = Table::new();
                    put(&mut geometric, "distribution", "geometric");
                    put(&mut geometric, "mean", *mean);
                    put(table, "batch_size", geometric);
                }
                Batch::Table(shares) => put(table, "batch_size", numbers(shares)),
            }
        }
        Workload::Closed { population, think_time } => {
            put(table, "population", whole(*population));
            match think_time {
                Distribution::Exponential { mean_s } if *mean_s <= 0.0 => {}
                Distribution::Exponential { mean_s } => put(table, "think_time_s", *mean_s),
                other => put(table, "think_time", distribution(other)),
            }
        }
    }
}

fn put_name<T: PartialEq>(table: &mut Table, key: &str, names: &[(&'static str, T)], value: T) {
    if let Some(name) = keys::name(names, value) {
        put(table, key, name);
    }
}

fn distribution(of: &Distribution) -> Table {
    type Fields = Vec<(&'static str, Value)>;
    let rows = |rows: &[Vec<f64>]| list(rows.iter().map(|row| numbers(row)));
    let (name, fields): (&str, Fields) = match of {
        Distribution::Exponential { mean_s } => ("exponential", vec![("mean_s", (*mean_s).into())]),
        Distribution::Deterministic { value_s } => {
            ("deterministic", vec![("mean_s", (*value_s).into())])
        }
        Distribution::Erlang { stages, mean_s } => {
            ("erlang", vec![("stages", i64::from(*stages).into()), ("mean_s", (*mean_s).into())])
        }
        Distribution::Hyperexponential { probabilities, means_s } => {
            let fields =
                vec![("probabilities", numbers(probabilities)), ("means_s", numbers(means_s))];
            ("hyperexponential", fields)
        }
        Distribution::Lognormal { mean_s, scv } => {
            ("lognormal", vec![("mean_s", (*mean_s).into()), ("scv", (*scv).into())])
        }
        Distribution::Gamma { mean_s, scv } => {
            ("gamma", vec![("mean_s", (*mean_s).into()), ("scv", (*scv).into())])
        }
        Distribution::Uniform { low_s, high_s } => {
            ("uniform", vec![("low_s", (*low_s).into()), ("high_s", (*high_s).into())])
        }
        Distribution::Weibull { shape, scale_s } => {
            ("weibull", vec![("shape", (*shape).into()), ("scale_s", (*scale_s).into())])
        }
        Distribution::BoundedPareto { shape, low_s, high_s } => {
            let ends = [("low_s", (*low_s).into()), ("high_s", (*high_s).into())];
            ("pareto", [("shape", (*shape).into())].into_iter().chain(ends).collect())
        }
        Distribution::TruncatedNormal { location_s, scale_s } => {
            ("normal", vec![("mean_s", (*location_s).into()), ("sd_s", (*scale_s).into())])
        }
        Distribution::Empirical { values_s } => {
            ("empirical", vec![("values_s", numbers(values_s))])
        }
        Distribution::Trace { values_s } => ("trace", vec![("values_s", numbers(values_s))]),
        Distribution::PhaseType { initial, generator } => {
            ("phase-type", vec![("initial", numbers(initial)), ("generator", rows(generator))])
        }
        Distribution::Map { hidden, marked } => {
            ("map", vec![("d0", rows(hidden)), ("d1", rows(marked))])
        }
        Distribution::General { mean_s, scv, third_moment_s3 } => {
            let third = third_moment_s3.map(|third| ("third_moment_s3", third.into()));
            let two = [("mean_s", (*mean_s).into()), ("scv", (*scv).into())];
            ("general", two.into_iter().chain(third).collect())
        }
    };
    let mut table = Table::new();
    put(&mut table, "distribution", name);
    fields.into_iter().for_each(|(key, value)| put(&mut table, key, value));
    table
}

fn simulation(options: &SimulationOptions) -> Table {
    let mut table = Table::new();
    put(&mut table, "seed", whole(options.seed));
    put(&mut table, "confidence", options.confidence);
    put(&mut table, "relative_half_width", options.relative_half_width);
    put(&mut table, "replications", i64::from(options.replications));
    put(&mut table, "most_customers", whole(options.most_customers));
    table
}

fn numbers(numbers: &[f64]) -> Value {
    list(numbers.iter().copied())
}

pub(crate) fn put(table: &mut Table, key: &str, value: impl Into<Value>) {
    table.insert(key.to_owned(), value.into());
}

pub(crate) fn list<V: Into<Value>>(values: impl IntoIterator<Item = V>) -> Value {
    Value::Array(values.into_iter().map(Into::into).collect())
}

pub(crate) fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Pool;

    #[test]
    fn what_is_written_reads_as_the_same_model() {
        let stations = vec![
            Station::delay("network").with_service_time(0, 0.000_123_456_789_012_3),
            Station::queue("proxies \"1\"", 3).with_service_time(0, 1e-7).with_visits(0, 1.0 / 3.0),
            Station {
                rate_multipliers: vec![1.0, 1.7, 2.1],
                ..Station::queue("database", 1).with_service_time(0, 0.004)
            },
        ];
        let pool = Pool {
            name: "workers".to_owned(),
            tokens: 8,
            stations: vec![1, 2],
            classes: vec![0],
            queue_capacity: None,
        };
        for class in [Class::closed("customers", 66, 0.0), Class::open("customers", 12.5)] {
            let model = Model::new("a study", vec![class], stations.clone()).unwrap();
            let model = model.with_pools(vec![pool.clone()]).unwrap();
            let text = model.to_toml("From a study.\nSecond line.").unwrap();
            let read: Model = toml::from_str(&text).unwrap();
            assert_eq!(read, model, "{text}");
            assert!(text.starts_with("# From a study.\n# Second line.\n"));
        }
    }

    /// Every key and distribution that a model keeps.
    #[test]
    fn several_classes_routes_and_shapes_read_as_the_same_model() {
        let one = r#"
            percentiles = [50, 95]
            classes = [
                { name = "read", arrival_rate_per_s = 3, batch_size = 2, priority = 2 },
                { name = "write", arrival_rate_per_s = 0.7, batch_size = [0.5, 0.5],
                  interarrival_time = { distribution = "gamma", scv = 2 } },
                { name = "batch", population = 4, think_time = { distribution = "weibull", shape = 2, mean_s = 3 } },
            ]
            stations = [
                { name = "cpu", servers = 3, discipline = "priority-non-preemptive", capacity = 9,
                  service_time_s = { read = 0.1, batch = 0.3 },
                  service = { write = { distribution = "lognormal", mean_s = 0.2, scv = 3 } } },
                { name = "a", service = { distribution = "erlang", stages = 3, mean_s = 0.1 }, patience_time_s = 3,
                  balking = "reciprocal" },
                { name = "b", discipline = "dps", weight = { read = 2, write = 1, batch = 3 }, service_time_s = 0.1,
                  when_full = "block-after-service", capacity = 3 },
                { name = "both", branches = ["a", "b"], needed = 1, join_probabilities = [1, 0.5] },
                { name = "copies", branches = 3, needed = 2, service = { distribution = "uniform", low_s = 0, high_s = 1 } },
            ]
            routes = [
                { class = "read", from = "in", to = { cpu = 1 } },
                { class = "read", from = "cpu", to = { both = 0.5, "copies:write" = 0.5 }, choose = "by-number",
                  factors = { both = [1, 0.25], copies = [0] } },
                { class = "read", from = "a", to = { both = 1 } },
                { class = "read", from = "b", to = { both = 1 } },
                { class = "read", from = "both", to = { out = 1 } },
                { class = "write", from = "in", to = { cpu = 1 } },
                { class = "write", from = "cpu", to = { copies = 1 } },
                { class = "write", from = "copies", to = { out = 1 } },
                { class = "batch", from = "in", to = { cpu = 0.5, copies = 0.5 }, choose = "shortest-queue", choices = 2 },
                { class = "batch", from = "cpu", to = { out = 1 } },
                { class = "batch", from = "copies", to = { out = 1 } },
            ]
            pools = [{ name = "p", tokens = 2, stations = ["cpu"], classes = ["batch"], queue_capacity = 5 }]
            simulation = { seed = 9, replications = 30 }
        "#;
        let shapes = [
            "{ distribution = 'deterministic', mean_s = 0.1 }",
            "{ distribution = 'hyperexponential', mean_s = 0.1, scv = 4 }",
            "{ distribution = 'pareto', shape = 1.5, low_s = 0.1, high_s = 9 }",
            "{ distribution = 'normal', mean_s = 0.1, sd_s = 0.3 }",
            "{ distribution = 'empirical', values_s = [0.1, 0.3] }",
            "{ distribution = 'trace', values_s = [0.1, 0.3, 0.2] }",
            "{ distribution = 'coxian', rates_per_s = [3, 5], continue_probabilities = [0.3] }",
            "{ distribution = 'mmpp', arrival_rates_per_s = [1, 9], generator = [[-1, 1], [2, -2]] }",
            "{ distribution = 'general', mean_s = 0.1, scv = 1.5, third_moment_s3 = 0.04 }",
        ];
        let other = |shape| {
            format!(
                "arrival_rate_before_per_s = 0.1\narrival_rate_per_s = 0.5\nstations = [{{ name = 'q', \
                 service = {shape} }}]"
            )
        };
        let shared = "classes = [{ name = 'a', arrival_rate_per_s = 1, arrival_rate_before_per_s = 0.5 },
                { name = 'b', population = 3, population_before = 1 }]
            stations = [
                { name = 'x', discipline = 'gps', weight = { a = 2, b = 1 }, service_time_s = 0.1 },
                { name = 'y', discipline = 'edf', deadline_s = { a = 2, b = 1 }, service_time_s = 0.1 },
                { name = 'z', discipline = 'edf-preemptive', deadline_s = 0.5, service_time_s = 0.1, capacity = 9,
                  when_full = 'repeat-service' },
            ]";
        for text in
            [one, shared].map(str::to_owned).into_iter().chain(shapes.into_iter().map(other))
        {
            let model: Model = toml::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
            let written = model.to_toml("").unwrap();
            let read: Model = toml::from_str(&written).unwrap();
            assert_eq!(read.ordered(), model.ordered(), "{written}");
        }
    }

    #[test]
    fn names_that_would_be_read_as_something_else_are_refused() {
        let text = "arrival_rate_per_s = 1\nstations = [{ name = 'q', service_time_s = 0.1 }]\nroutes = \
                    [{ from = 'in', to = { q = 1 } }, { from = 'q', to = { out = 1 } }]";
        let mut model: Model = toml::from_str(text).unwrap();
        assert!(model.to_toml("").is_ok());
        model.stations[0].name = "out".to_owned();
        let error = model.to_toml("").unwrap_err().to_string();
        assert!(error.contains("cannot be written to a model file"), "{error}");
    }
}
