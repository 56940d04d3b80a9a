//! From the keys of a model file to a checked [`Model`].

use kendall_keys::{Problem, Section, did_you_mean};
use serde::{Deserialize, Deserializer};
use toml::{Table, Value};

use super::keys::{self, MODEL};
use super::shape::{exponential, finite, read_distribution, read_shape};
use super::{
    Balking, Batch, Center, Choice, Class, Demand, Discipline, Fork, Leg, Model, ModelError, Place,
    Pool, Rule, SimulationOptions, Station, WhenFull, Workload, bracketed, refused,
};
use crate::Distribution;

impl<'de> Deserialize<'de> for Model {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let table = Table::deserialize(deserializer)?;
        Self::read(&table).map_err(serde::de::Error::custom)
    }
}

impl From<Problem> for ModelError {
    fn from(problem: Problem) -> Self {
        Self::Key { path: bracketed(&problem.key), what: problem.what }
    }
}

impl Model {
    /// Reads a model from the table that its file is.
    ///
    /// # Errors
    /// [`ModelError`], with the path of the key, its value and the accepted form.
    ///
    /// # Example
    /// ```
    /// use kendall_queueing::Model;
    ///
    /// let text = "arrival_rate_per_s = 4\nstations = [{ name = 'cpu', service_time_s = 0.04 }]";
    /// let model = Model::read(&text.parse().unwrap()).unwrap();
    /// assert_eq!(model.stations[0].servers, 1);
    /// ```
    pub fn read(table: &Table) -> Result<Self, ModelError> {
        let mut root = Section::new("", table, &[MODEL]);
        root.known()?;
        root.opt_text("description")?;
        let classes = classes(&mut root)?;
        let routed = root.has("routes");
        let mut model = Self {
            name: root.text("name")?,
            stations: stations(&mut root, &classes, routed)?,
            classes,
            routes: Vec::new(),
            choices: Vec::new(),
            pools: Vec::new(),
            solver: root.text("solver")?,
            quantiles: root
                .numbers("percentiles")?
                .unwrap_or_default()
                .iter()
                .map(|percent| percent / 100.0)
                .collect(),
            simulation: simulation(root.section("simulation")?)?,
        };
        for route in root.sections("routes")? {
            let (legs, choice) = read_route(route, &model)?;
            model.choices.extend(choice);
            model.routes.extend(legs);
        }
        for pool in root.sections("pools")? {
            let pool = read_pool(pool, &model)?;
            model.pools.push(pool);
        }
        model.checked()
    }
}

fn simulation(mut section: Section<'_>) -> Result<SimulationOptions, ModelError> {
    section.known()?;
    let default = SimulationOptions::default();
    let options = SimulationOptions {
        seed: section.count("seed")?,
        confidence: section.number("confidence")?.unwrap_or(default.confidence),
        relative_half_width: section
            .number("relative_half_width")?
            .unwrap_or(default.relative_half_width),
        replications: section.small("replications")?,
        most_customers: section.count("most_customers")?,
    };
    if !(options.confidence > 0.0 && options.confidence < 1.0) {
        return Err(refused("simulation.confidence", options.confidence, "between 0 and 1"));
    }
    if options.relative_half_width <= 0.0 {
        let path = "simulation.relative_half_width";
        return Err(refused(path, options.relative_half_width, "a share above 0"));
    }
    Ok(options)
}

fn classes(root: &mut Section<'_>) -> Result<Vec<Class>, ModelError> {
    let single = ["arrival_rate_per_s", "population", "think_time_s"];
    let own = single.iter().find(|key| root.has(key));
    let listed = root.sections("classes")?;
    if let (Some(key), false) = (own, listed.is_empty()) {
        let expected = "either one class at the top, or `[[classes]]`";
        return Err(refused(*key, "beside `classes`", expected));
    }
    if listed.is_empty() {
        // Of the keys of a class, the top has these five.
        let workload = workload(root, false)?;
        let mut class = Class { name: "customers".to_owned(), workload, priority: 1, before: None };
        before(root, &mut class)?;
        return Ok(vec![class]);
    }
    let mut classes = Vec::new();
    for mut section in listed {
        section.known()?;
        let mut class = Class {
            name: section.text("name")?,
            priority: section.small("priority")?,
            workload: workload(&mut section, true)?,
            before: None,
        };
        before(&mut section, &mut class)?;
        classes.push(class);
    }
    if let [only] = &mut classes[..] {
        before(root, only)?;
    } else if let Some(key) = BEFORE.iter().find(|key| root.has(key)) {
        return Err(refused(
            *key,
            "of several classes",
            "it in `[[classes]]`: of the one that steps",
        ));
    }
    Ok(classes)
}

const BEFORE: [&str; 2] = ["arrival_rate_before_per_s", "population_before"];

/// What a class was before it stepped.
fn before(section: &mut Section<'_>, class: &mut Class) -> Result<(), ModelError> {
    let rate = section.number(BEFORE[0])?;
    let population = section.opt_count(BEFORE[1])?.map(kendall_units::exact_f64);
    let path = |key: &str| bracketed(&section.path_of(key));
    let (own, other) = if class.is_open() { (rate, population) } else { (population, rate) };
    if let Some(other) = other {
        let key = BEFORE[usize::from(class.is_open())];
        let expected = format!("`{}`, as the class is", class.key_before());
        return Err(refused(path(key), other, expected));
    }
    class.before = own.or(class.before);
    class
        .check_before()
        .map_err(|(value, expected)| refused(path(class.key_before()), value, expected))
}

/// Where customers come from; `full` where distributions and batches may be written too.
fn workload(section: &mut Section<'_>, full: bool) -> Result<Workload, ModelError> {
    let path = |key: &str| bracketed(&section.path_of(key));
    let gaps = full && section.has("interarrival_time");
    let open = gaps || section.has("arrival_rate_per_s");
    match (section.has("population"), open) {
        (true, true) => Err(refused(
            path("population"),
            "beside an arrival rate",
            "one of the two: a class is open or closed",
        )),
        (false, false) => Err(ModelError::Missing {
            path: format!("{} or {}", path("arrival_rate_per_s"), path("population")),
            expected: "one of the two: the first makes the class open, the second closed"
                .to_owned(),
        }),
        (true, false) => closed(section, full),
        (false, true) => self::open(section, full),
    }
}

fn closed(section: &mut Section<'_>, full: bool) -> Result<Workload, ModelError> {
    if full && section.has("batch_size") {
        let path = bracketed(&section.path_of("batch_size"));
        return Err(refused(path, "in a closed class", "a batch in open classes only"));
    }
    let written = section.number("think_time_s")?;
    let shape = if full { section.raw("think_time") } else { None };
    let think_time = match shape {
        Some(value) => read_distribution(&section.path_of("think_time"), value, written)?,
        None => {
            let path = bracketed(&section.path_of("think_time_s"));
            exponential(&path, written.unwrap_or(0.0))?
        }
    };
    let population = section.opt_count("population")?.unwrap_or(0);
    Ok(Workload::Closed { population, think_time })
}

fn open(section: &mut Section<'_>, full: bool) -> Result<Workload, ModelError> {
    let thinks = if full { &["think_time_s", "think_time"][..] } else { &["think_time_s"] };
    if let Some(key) = thinks.iter().find(|key| section.has(key)) {
        let expected = "no think time in an open class (give a population to close it)";
        return Err(refused(bracketed(&section.path_of(key)), "a time", expected));
    }
    let rate = section.number("arrival_rate_per_s")?;
    let rate_path = bracketed(&section.path_of("arrival_rate_per_s"));
    if let Some(rate) = rate.filter(|rate| *rate < 0.0) {
        return Err(refused(rate_path, rate, "a finite rate, 0 or above"));
    }
    let batch = match if full { section.raw("batch_size") } else { None } {
        Some(value) => read_batch(&bracketed(&section.path_of("batch_size")), value)?,
        None => Batch::Fixed(1),
    };
    let shape = if full { section.raw("interarrival_time") } else { None };
    let path = section.path_of("interarrival_time");
    let (arrival_rate_per_s, interarrival) = match (rate, shape) {
        // Without arrivals the shape of the gaps does not matter.
        (Some(0.0), Some(value)) => {
            read_shape(&path, value, 1.0)?;
            (0.0, Distribution::Exponential { mean_s: 0.0 })
        }
        (Some(0.0), None) => (0.0, Distribution::Exponential { mean_s: 0.0 }),
        // A rate fixes the mean gap between batches, whatever the shape of the gaps is.
        (Some(rate), Some(value)) => (rate, read_shape(&path, value, batch.mean() / rate)?),
        (Some(rate), None) => (rate, exponential(&rate_path, batch.mean() / rate)?),
        (None, Some(value)) => {
            let gap = read_distribution(&path, value, None)?;
            if gap.mean() <= 0.0 {
                return Err(refused(bracketed(&path), gap.mean(), "a mean above 0"));
            }
            (batch.mean() / gap.mean(), gap)
        }
        (None, None) => (0.0, Distribution::Exponential { mean_s: 0.0 }),
    };
    Ok(Workload::Open { arrival_rate_per_s, interarrival, batch })
}

fn read_batch(path: &str, value: &Value) -> Result<Batch, ModelError> {
    let form = "a size, the probabilities of sizes 1, 2, …, or { distribution = \"geometric\", \
                mean = 3 }";
    match value {
        Value::Integer(_) | Value::Float(_) => {
            let size = finite(path, value)?;
            if size < 1.0 || size.fract() != 0.0 || size > 9e15 {
                return Err(refused(path, size, form));
            }
            Ok(Batch::Fixed(kendall_units::whole_u64(size)))
        }
        Value::Array(items) => items
            .iter()
            .map(|item| finite(path, item))
            .collect::<Result<Vec<f64>, _>>()
            .map(Batch::Table),
        Value::Table(table) => {
            let named = table.get("distribution").and_then(Value::as_str);
            let mean = table.get("mean").map(|mean| finite(path, mean)).transpose()?;
            match (named, mean, table.len()) {
                (Some("geometric"), Some(mean), 2) => Ok(Batch::Geometric { mean }),
                _ => Err(refused(path, value, form)),
            }
        }
        _ => Err(refused(path, value, form)),
    }
}

fn stations(
    root: &mut Section<'_>,
    classes: &[Class],
    routed: bool,
) -> Result<Vec<Station>, ModelError> {
    if !root.has("stations") {
        let expected = "at least one station".to_owned();
        return Err(ModelError::Missing { path: "stations".to_owned(), expected });
    }
    let sections = root.sections("stations")?;
    let name = |section: &Section<'_>| Some(section.raw("name")?.as_str()?.to_owned());
    let names: Vec<Option<String>> = sections.iter().map(name).collect();
    sections
        .into_iter()
        .map(|section| StationKeys { section, classes, names: &names, routed }.read())
        .collect()
}

/// The keys of one station, and what else decides what they mean.
struct StationKeys<'a, 'b> {
    section: Section<'a>,
    classes: &'b [Class],
    /// Of all stations.
    names: &'b [Option<String>],
    routed: bool,
}

/// Keys whose value may be a table with an entry for each class.
const BY_CLASS: [&str; 7] = [
    "service_time_s",
    "service_rate_per_s",
    "service_demand_s",
    "service",
    "visits",
    "weight",
    "deadline_s",
];

impl StationKeys<'_, '_> {
    fn path(&self, key: &str) -> String {
        bracketed(&self.section.path_of(key))
    }

    fn refused(&self, key: &str, value: impl ToString, expected: impl Into<String>) -> ModelError {
        refused(self.path(key), value, expected)
    }

    fn read(mut self) -> Result<Station, ModelError> {
        self.section.known()?;
        self.consistent()?;
        let mut station = Station::queue(&self.section.text("name")?, 1);
        if self.forks() {
            return self.forking(station);
        }
        if self.section.text("type")? == "delay" {
            station.center = Center::Delay;
        }
        for (index, class) in self.classes.iter().enumerate() {
            if let Some(demand) = self.demand(&class.name)? {
                station.set(index, demand);
            }
        }
        if station.demands.iter().all(Option::is_none) {
            return Err(ModelError::Missing {
                path: self.path("service_time_s"),
                expected: "service_time_s, service_rate_per_s, service_demand_s or service"
                    .to_owned(),
            });
        }
        station.servers = self.section.count("servers")?;
        station.discipline = self.discipline(station.center)?;
        station.weights = self.weights(station.discipline)?;
        station.deadlines = self.deadlines(&station)?;
        station.capacity = self.section.opt_count("capacity")?;
        let when_full = keys::value(&keys::WHEN_FULL, &self.section.text("when_full")?);
        station.when_full = when_full.unwrap_or(WhenFull::Lost);
        station.rate_multipliers = self.rate_multipliers()?;
        self.impatience(&mut station)?;
        self.fork(&mut station)?;
        Ok(station)
    }

    /// Refuses keys that say the same, or that mean nothing beside others.
    fn consistent(&self) -> Result<(), ModelError> {
        for key in BY_CLASS {
            self.known_classes(key)?;
        }
        let has = |key: &str| self.section.has(key);
        if self.routed && has("visits") {
            let expected = "no visits beside `routes`, from which they follow";
            return Err(self.refused("visits", "beside routes", expected));
        }
        let delay = self.section.raw("type").and_then(Value::as_str) == Some("delay");
        if delay && has("servers") {
            return Err(self.refused("servers", "of a delay", "none: a delay has no queue"));
        }
        let curve = ["rate_multipliers", "service_rates_per_s"].into_iter().find(|key| has(key));
        if let Some(curve) = curve {
            let other = ["servers", "service_rates_per_s", "service_rate_per_s"];
            let both = other.into_iter().find(|key| {
                *key != curve
                    && has(key)
                    && !(curve == "rate_multipliers" && key.ends_with("rate_per_s"))
            });
            if let Some(other) = both {
                let expected = format!("one of `{curve}` and `{other}`");
                return Err(self.refused(curve, format!("beside `{other}`"), expected));
            }
        }
        if has("needed") && !has("branches") {
            return Err(self.refused(
                "needed",
                "without branches",
                "how many `branches` there are",
            ));
        }
        if has("balking") && has("join_probabilities") {
            let expected = "`balking` or `join_probabilities` alone";
            return Err(self.refused("balking", "beside `join_probabilities`", expected));
        }
        Ok(())
    }

    fn known_classes(&self, key: &str) -> Result<(), ModelError> {
        let Some(Value::Table(table)) = self.section.raw(key) else { return Ok(()) };
        if table.contains_key("distribution") {
            return Ok(());
        }
        let known = || self.classes.iter().map(|class| class.name.as_str());
        match table.keys().find(|name| known().all(|class| class != name.as_str())) {
            None => Ok(()),
            Some(name) => {
                let close = did_you_mean(name, known());
                let names: Vec<&str> = known().collect();
                let expected = format!("a class: {}{close}", names.join(", "));
                Err(self.refused(key, format!("`{name}`"), expected))
            }
        }
    }

    /// What a key says for one class: the same for all, or its entry in a table.
    fn of_class(&self, key: &str, class: &str) -> Option<&Value> {
        match self.section.raw(key)? {
            Value::Table(table) if !table.contains_key("distribution") => table.get(class),
            other => Some(other),
        }
    }

    fn number(&self, key: &str, class: &str) -> Result<Option<f64>, ModelError> {
        match self.of_class(key, class) {
            None => Ok(None),
            Some(value) => finite(&self.section.path_of(key), value).map(Some).map_err(|_| {
                self.refused(key, value, "a finite number, or a table with one for each class")
            }),
        }
    }

    fn demand(&mut self, class: &str) -> Result<Option<Demand>, ModelError> {
        let visits = self.number("visits", class)?;
        let time = self.number("service_time_s", class)?;
        let rate = match self.number("service_rate_per_s", class)? {
            Some(rate) if rate <= 0.0 => {
                return Err(self.refused("service_rate_per_s", rate, "above 0"));
            }
            Some(rate) => Some(rate),
            None => {
                let rates = self.section.numbers("service_rates_per_s")?.unwrap_or_default();
                if let Some(bad) = rates.iter().find(|rate| **rate <= 0.0) {
                    return Err(self.refused("service_rates_per_s", bad, "rates above 0"));
                }
                rates.first().copied()
            }
        };
        let demand = self.number("service_demand_s", class)?;
        if demand.is_some() && (time.is_some() || rate.is_some() || self.routed) {
            return Err(self.refused(
                "service_demand_s",
                "beside a service time, a rate or routes",
                "one of service_time_s (with visits or routes) and service_demand_s",
            ));
        }
        if time.is_some() && rate.is_some() {
            let expected = "one of service_time_s, service_rate_per_s and service_demand_s";
            return Err(self.refused("service_time_s", "several", expected));
        }
        let mean = match demand {
            Some(demand) => match visits {
                Some(visits) if visits > 0.0 => Some(demand / visits),
                _ => Some(demand),
            },
            None => time.or(rate.map(f64::recip)),
        };
        let service = match (self.of_class("service", class), mean) {
            (Some(value), mean) => {
                read_distribution(&self.section.path_of("service"), value, mean)?
            }
            (None, Some(mean)) => exponential(&self.path("service_time_s"), mean)?,
            (None, None) => return Ok(None),
        };
        Ok(Some(Demand { service, visits: visits.unwrap_or(1.0) }))
    }

    fn discipline(&mut self, center: Center) -> Result<Discipline, ModelError> {
        let written = self.section.opt_text("discipline")?;
        if let (Center::Delay, Some(other)) =
            (center, written.as_deref().filter(|name| *name != "is"))
        {
            return Err(self.refused(
                "discipline",
                format!("`{other}`"),
                "none: a delay has no queue",
            ));
        }
        let unwritten = if center == Center::Delay { Discipline::Is } else { Discipline::Fcfs };
        // The words are checked where they are read.
        let discipline = |name: String| keys::value(&keys::DISCIPLINES, &name);
        Ok(written.and_then(discipline).unwrap_or(unwritten))
    }

    fn weights(&mut self, discipline: Discipline) -> Result<Vec<f64>, ModelError> {
        if !self.section.has("weight") {
            return Ok(Vec::new());
        }
        if !matches!(discipline, Discipline::Dps | Discipline::Gps) {
            let expected = "`discipline = \"dps\"` or `\"gps\"` beside it";
            return Err(self.refused("weight", "another discipline", expected));
        }
        let classes = self.classes.iter();
        classes.map(|class| Ok(self.number("weight", &class.name)?.unwrap_or(1.0))).collect()
    }

    fn deadlines(&self, station: &Station) -> Result<Vec<f64>, ModelError> {
        if !matches!(station.discipline, Discipline::Edf | Discipline::EdfPreemptive) {
            if self.section.has("deadline_s") {
                let expected = "`discipline = \"edf\"` or `\"edf-preemptive\"` beside it";
                return Err(self.refused("deadline_s", "another discipline", expected));
            }
            return Ok(Vec::new());
        }
        let deadline = |(index, class): (usize, &Class)| {
            let time = self.number("deadline_s", &class.name)?;
            if time.is_none() && station.demand_at(index).is_some() {
                let expected = format!("a time for class `{}`, which comes here", class.name);
                return Err(self.refused("deadline_s", "none", expected));
            }
            Ok(time.unwrap_or(0.0))
        };
        self.classes.iter().enumerate().map(deadline).collect()
    }

    fn rate_multipliers(&mut self) -> Result<Vec<f64>, ModelError> {
        for key in ["rate_multipliers", "service_rates_per_s"] {
            if self.section.numbers(key)?.is_some_and(|list| list.is_empty()) {
                return Err(self.refused(key, "[]", "one number at least"));
            }
        }
        if let Some(multipliers) = self.section.numbers("rate_multipliers")? {
            return Ok(multipliers);
        }
        let rates = self.section.numbers("service_rates_per_s")?.unwrap_or_default();
        let first = rates.first().copied().unwrap_or(1.0);
        Ok(rates.iter().map(|rate| rate / first).collect())
    }

    fn impatience(&mut self, station: &mut Station) -> Result<(), ModelError> {
        let mean = self.section.number("patience_time_s")?;
        station.patience = match (self.section.raw("patience"), mean) {
            (Some(value), mean) => {
                Some(read_distribution(&self.section.path_of("patience"), value, mean)?)
            }
            (None, Some(mean)) => Some(exponential(&self.path("patience_time_s"), mean)?),
            (None, None) => None,
        };
        if let Some(table) = self.section.numbers("join_probabilities")? {
            station.balking = Balking::Table(table);
        } else if self.section.opt_text("balking")?.as_deref() == Some("reciprocal") {
            station.balking = Balking::Reciprocal;
        }
        Ok(())
    }

    /// Whether its branches are other stations.
    fn forks(&self) -> bool {
        matches!(self.section.raw("branches"), Some(Value::Array(_)))
    }

    /// A station where branches of other stations begin and are joined.
    fn forking(mut self, mut station: Station) -> Result<Station, ModelError> {
        let own = ["name", "branches", "needed", "capacity", "balking", "join_probabilities"];
        let other = super::keys::STATION.iter().map(|key| key.name);
        if let Some(key) = other.into_iter().find(|k| self.section.has(k) && !own.contains(k)) {
            let expected = "none: the stations of the branches have it";
            return Err(self.refused(key, "beside a list of branches", expected));
        }
        station.center = Center::Delay;
        station.discipline = Discipline::Is;
        for class in 0..self.classes.len() {
            station = station.with_service_time(class, 0.0);
        }
        for name in self.section.words("branches")? {
            let at = self.names.iter().position(|known| known.as_deref() == Some(name.as_str()));
            let known = self.names.iter().flatten().map(String::as_str);
            let close = || format!("stations of the model{}", did_you_mean(&name, known));
            station
                .parts
                .push(at.ok_or_else(|| self.refused("branches", format!("`{name}`"), close()))?);
        }
        let count = station.parts.len() as u64;
        self.forked(&mut station, count)?;
        station.capacity = self.section.opt_count("capacity")?;
        self.impatience(&mut station)?;
        Ok(station)
    }

    fn fork(&mut self, station: &mut Station) -> Result<(), ModelError> {
        match self.section.opt_count("branches")? {
            Some(branches) => self.forked(station, branches),
            None => Ok(()),
        }
    }

    fn forked(&mut self, station: &mut Station, branches: u64) -> Result<(), ModelError> {
        let needed = self.section.opt_count("needed")?.unwrap_or(branches);
        let small = |key: &str, value: u64| {
            u32::try_from(value).map_err(|_| self.refused(key, value, "at most 100000"))
        };
        station.fork =
            Some(Fork { branches: small("branches", branches)?, needed: small("needed", needed)? });
        Ok(())
    }
}

/// How the next station is chosen; `None`: by the probabilities alone.
fn rule(section: &mut Section<'_>) -> Result<Option<Rule>, ModelError> {
    let choices = section.opt_count("choices")?;
    let shortest = Rule::ShortestQueue {
        of: choices.map_or(u32::MAX, |of| u32::try_from(of).unwrap_or(u32::MAX)),
    };
    let rule = match section.text("choose")?.as_str() {
        "shortest-queue" => Some(shortest),
        "round-robin" => Some(Rule::RoundRobin),
        "by-number" => Some(Rule::ByNumber),
        _ => None,
    };
    if section.has("factors") != (rule == Some(Rule::ByNumber)) {
        let path = bracketed(&section.path_of("factors"));
        return Err(refused(
            path,
            "one without the other",
            "`choose = \"by-number\"` with `factors`",
        ));
    }
    match choices {
        Some(_) if rule != Some(shortest) => {
            let path = bracketed(&section.path_of("choices"));
            Err(refused(path, "without shortest-queue", "`choose = \"shortest-queue\"` beside it"))
        }
        _ => Ok(rule),
    }
}

fn read_route(
    mut section: Section<'_>,
    model: &Model,
) -> Result<(Vec<Leg>, Option<Choice>), ModelError> {
    section.known()?;
    let rule = rule(&mut section)?;
    let path = |key: &str| bracketed(&section.path_of(key));
    let (class_path, from_path, place) = (path("class"), path("from"), path("to"));
    let class = match section.opt_text("class")? {
        None if model.classes.len() == 1 => 0,
        None => {
            return Err(ModelError::Missing {
                path: class_path,
                expected: "the class that goes this way, since there are several".to_owned(),
            });
        }
        Some(name) => class_named(&class_path, &name, model)?,
    };
    let from = match section.text("from")?.as_str() {
        "in" if model.station_index("in").is_none() => Place::Outside,
        name => Place::Station(station_named(&from_path, name, model)?),
    };
    let targets = section.section("to")?;
    let mut legs = Vec::new();
    for (target, probability) in targets.entries() {
        // `disk:write` goes to the disk as class `write`; a station's own name comes first.
        let (name, to_class) = match target.rsplit_once(':') {
            Some((name, switched)) if model.station_index(target).is_none() => {
                (name, class_named(&place, switched, model)?)
            }
            _ => (target, class),
        };
        let to = match name {
            "out" if model.station_index(name).is_none() => Place::Outside,
            name => Place::Station(station_named(&place, name, model)?),
        };
        let probability = finite(&kendall_keys::join(&place, target), probability)?;
        legs.push(Leg { class, from, to_class, to, probability });
    }
    if legs.is_empty() {
        let expected = "probabilities such as { disk = 0.8, out = 0.2 }".to_owned();
        return Err(ModelError::Missing { path: place, expected });
    }
    let factors = read_factors(&section.path_of("factors"), section.raw("factors"), model)?;
    Ok((legs, rule.map(|rule| Choice { class, from, rule, factors })))
}

fn read_factors(
    path: &str,
    value: Option<&Value>,
    model: &Model,
) -> Result<Vec<(usize, Vec<f64>)>, ModelError> {
    let form = "a list of numbers for each station, such as { disk = [1, 0.5, 0] }";
    let Some(value) = value else { return Ok(Vec::new()) };
    let table = value.as_table().ok_or_else(|| refused(bracketed(path), value, form))?;
    let read = |(name, list): (&String, &Value)| {
        let own = kendall_keys::join(path, name);
        let list = list.as_array().ok_or_else(|| refused(bracketed(&own), list, form))?;
        let numbers = list.iter().map(|factor| finite(&own, factor));
        Ok((station_named(&bracketed(path), name, model)?, numbers.collect::<Result<_, _>>()?))
    };
    table.iter().map(read).collect()
}

fn class_named(path: &str, name: &str, model: &Model) -> Result<usize, ModelError> {
    model.class_index(name).ok_or_else(|| {
        let names: Vec<&str> = model.classes.iter().map(|class| class.name.as_str()).collect();
        let close = did_you_mean(name, names.iter().copied());
        refused(path, format!("`{name}`"), format!("a class: {}{close}", names.join(", ")))
    })
}

fn station_named(path: &str, name: &str, model: &Model) -> Result<usize, ModelError> {
    model.station_index(name).ok_or_else(|| {
        let close = did_you_mean(name, model.stations.iter().map(|station| station.name.as_str()));
        let names: Vec<&str> = model.stations.iter().map(|s| s.name.as_str()).take(20).collect();
        let expected = format!("`in`, `out` or a station: {}{close}", names.join(", "));
        refused(path, format!("`{name}`"), expected)
    })
}

fn read_pool(mut section: Section<'_>, model: &Model) -> Result<Pool, ModelError> {
    section.known()?;
    let path = |key: &str| bracketed(&section.path_of(key));
    let (stations_path, classes_path) = (path("stations"), path("classes"));
    let stations = section
        .words("stations")?
        .iter()
        .map(|name| station_named(&stations_path, name, model))
        .collect::<Result<Vec<_>, _>>()?;
    let classes = if section.has("classes") {
        section
            .words("classes")?
            .iter()
            .map(|name| class_named(&classes_path, name, model))
            .collect::<Result<Vec<_>, _>>()?
    } else {
        (0..model.classes.len()).collect()
    };
    Ok(Pool {
        name: section.text("name")?,
        tokens: section.count("tokens")?,
        queue_capacity: section.opt_count("queue_capacity")?,
        stations,
        classes,
    })
}
