//! What loads the system. One file a protocol below this folder, and one line here.

mod http;
mod memcached;
mod queue;
mod reapi;

use kendall_keys::Form;
use kendall_units::{Seconds, exact_f64};
use serde_json::json;
use toml::Value;

use crate::capacity::{self, CAPACITY, SHARED_RATE};
use crate::section::{Key, Keys, Problem, Quantities as _, RATE, Section, TIME};

/// A protocol that `kendall load` speaks.
#[derive(Debug, Clone, Copy)]
pub struct Protocol {
    /// `workload.protocol`, and the word after `kendall load`.
    pub name: &'static str,
    /// The keys of its own, and what they mean.
    pub keys: Keys,
    /// Reads them.
    pub read: fn(&mut Section<'_>) -> Result<Driver, Problem>,
}

/// All of them.
pub const PROTOCOLS: &[Protocol] =
    &[memcached::PROTOCOL, http::PROTOCOL, queue::PROTOCOL, reapi::PROTOCOL];

const NAMES: [&str; PROTOCOLS.len()] = {
    let mut names = [""; PROTOCOLS.len()];
    let mut index = 0;
    while index < PROTOCOLS.len() {
        names[index] = PROTOCOLS[index].name;
        index += 1;
    }
    names
};

/// Keys of `[workload]` that all protocols share.
pub const KEYS: &[Key] = &[
    Key::new("protocol", Form::Choice(&NAMES), "what clients speak; by the system unless given")
        .optional(),
    Key::choice("loop", &["closed", "open"], "whether clients wait for answers").or("'closed'"),
    Key::count(
        "clients",
        1,
        1_000_000,
        "closed: the population, over all generators; open: connections",
    )
    .or("1"),
    Key::text("think_time", "closed: `50ms`, `exponential:50ms`").or("'0ms'"),
    Key::text("arrivals", "open: how arrivals are spaced").or("'poisson'"),
    Key::quantity(
        "rate",
        &SHARED_RATE,
        "open: requests per second, over all generators; or a share of the capacity",
    )
    .optional(),
    Key::quantity(
        CAPACITY,
        &RATE,
        "open: what shares such as `0.8 of capacity` are of; measured before the first run unless \
         given",
    )
    .optional(),
    Key::quantity(
        "spin",
        &TIME,
        "open: how long before each moment a generator stays awake; short, since it shares the \
         machine with what it measures",
    )
    .or("'50us'"),
    Key::count(
        "generators",
        1,
        64,
        "generator processes; clients are divided as evenly as possible",
    )
    .or("1"),
    Key::count("threads", 1, 256, "threads of each").or("1"),
];

/// Arguments of `kendall load` that are the protocol's own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Driver {
    /// Options of a load.
    pub options: Vec<String>,
    /// Options of the filling before a load; `None` where there is nothing to fill.
    pub prefill: Option<Vec<String>>,
    /// Put around an address: `http://ADDRESS/path`.
    pub target: TargetForm,
}

/// How an address becomes a target of `kendall load`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TargetForm {
    /// `HOST:PORT`.
    #[default]
    Address,
    /// `SCHEME://HOST:PORT/PATH`.
    Url {
        /// `http` or `https`.
        scheme: &'static str,
        /// With its leading slash.
        path: String,
    },
}

/// The load of one configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Word after `kendall load`.
    pub protocol: &'static str,
    /// How requests come about.
    pub arrivals: Arrivals,
    /// Clients over all generators (closed loop), or connections (open loop).
    pub clients: u64,
    /// Generator processes.
    pub generators: u32,
    /// Threads of each generator.
    pub threads: u32,
    /// What the protocol adds.
    pub driver: Driver,
}

/// How requests come about.
#[derive(Debug, Clone, PartialEq)]
pub enum Arrivals {
    /// Each client waits for its answer, thinks, and sends the next request.
    Closed {
        /// Think time as `kendall load` takes it.
        think_time: String,
        /// Its mean, where it is a plain time.
        mean: Option<Seconds>,
    },
    /// Requests are due whatever the answers do.
    Open {
        /// Word for `--arrivals`.
        process: String,
        /// Requests per second over all generators.
        rate_per_s: f64,
        /// Time that a generator stays awake before each moment. Short unless asked for: it shares
        /// the machine with what it measures.
        spin: Seconds,
    },
}

/// Reads `[workload]`.
pub(crate) fn read(
    mut section: Section<'_>,
    protocol: &str,
) -> Result<(Workload, serde_json::Value), Problem> {
    let choices: Vec<(&str, &'static Protocol)> =
        PROTOCOLS.iter().map(|protocol| (protocol.name, protocol)).collect();
    let name = section.opt_text("protocol")?.unwrap_or_else(|| protocol.to_owned());
    section.effective("protocol", json!(name));
    let protocol = choices
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, protocol)| *protocol)
        .ok_or_else(|| section.problem("protocol", format!("`{name}` is not known")))?;
    for keys in protocol.keys {
        section.declare(keys);
    }
    let open = section.text("loop")? == "open";
    unused(&section, open)?;
    let arrivals = if open { self::open(&mut section)? } else { closed(&mut section)? };
    let clients = section.count("clients")?;
    let generators = section.small("generators")?;
    let threads = section.small("threads")?;
    if clients < u64::from(generators) {
        let what = format!("{clients} clients are fewer than {generators} generators");
        return Err(section.problem("clients", what));
    }
    let driver = (protocol.read)(&mut section)?;
    let workload =
        Workload { protocol: protocol.name, arrivals, clients, generators, threads, driver };
    Ok((workload, section.finish()?))
}

/// Keys of the other loop mean nothing, and are refused as unknown ones are.
fn unused(section: &Section<'_>, open: bool) -> Result<(), Problem> {
    let (loops, others): (&str, &[&str]) = if open {
        ("closed", &["think_time"])
    } else {
        ("open", &["arrivals", "rate", "spin", CAPACITY])
    };
    match others.iter().find(|key| section.has(key)) {
        None => Ok(()),
        Some(key) => {
            let what = format!("is for `loop = \"{loops}\"`; leave it out, or change the loop");
            Err(section.problem(key, what))
        }
    }
}

fn closed(section: &mut Section<'_>) -> Result<Arrivals, Problem> {
    let think_time = section.text("think_time")?;
    // A distribution is written `exponential:50ms`; kendall load knows them.
    let time = think_time.rsplit(':').next().unwrap_or(&think_time);
    let mean = kendall_units::parse_seconds(time)
        .map_err(|error| section.problem("think_time", error.to_string()))?;
    Ok(Arrivals::Closed { think_time, mean: Some(mean) })
}

fn open(section: &mut Section<'_>) -> Result<Arrivals, Problem> {
    let process = section.text("arrivals")?;
    if !section.has("rate") {
        let what = format!("is missing; write it like {}", SHARED_RATE.example);
        return Err(section.problem("rate", what));
    }
    let rate_per_s = rate(section)?;
    if rate_per_s <= 0.0 {
        return Err(section.problem("rate", "must be above zero; write it like `250/s`"));
    }
    let spin = section.seconds("spin")?;
    Ok(Arrivals::Open { process, rate_per_s, spin })
}

/// Requests per second; of a share before the capacity is known, those of a capacity of 1/s.
fn rate(section: &mut Section<'_>) -> Result<f64, Problem> {
    let capacity = if section.has(CAPACITY) { Some(section.rate(CAPACITY)?.get()) } else { None };
    let text = section.raw("rate").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(share) = capacity::share(&text) else {
        return section.rate("rate").map(kendall_units::Rate::get);
    };
    let share = share.map_err(|what| section.problem("rate", what))?;
    section.effective("rate", json!(text));
    Ok(share * capacity.unwrap_or(1.0))
}

/// The table `mix` as `kendall load --mix` takes it: `{ set = 1, get = 10 }` as `set=1,get=10`.
fn weights(
    section: &mut Section<'_>,
    table: &toml::Table,
    operations: &[&str],
    form: &str,
) -> Result<String, Problem> {
    let mut parts = Vec::new();
    for (operation, weight) in table {
        if !operations.contains(&operation.as_str()) {
            let known = operations.join(", ");
            return Err(section.problem("mix", format!("`{operation}` is none of {known}")));
        }
        let weight = match weight {
            Value::Integer(weight) if *weight >= 0 => weight.to_string(),
            Value::Float(weight) if *weight >= 0.0 && weight.is_finite() => weight.to_string(),
            other => {
                let what = format!("`{other}` is not a weight; write {form}");
                return Err(section.problem("mix", what));
            }
        };
        parts.push(format!("{operation}={weight}"));
    }
    section.effective("mix", json!(table));
    Ok(parts.join(","))
}

impl Workload {
    /// Clients of one generator: as even as possible, the first ones taking what is left over.
    #[must_use]
    pub fn clients_of(&self, generator: u32) -> u64 {
        let generators = u64::from(self.generators);
        let extra = u64::from(u64::from(generator) < self.clients % generators);
        self.clients / generators + extra
    }

    /// Arguments of one generator, after `kendall load`.
    #[must_use]
    pub fn arguments(
        &self,
        generator: u32,
        targets: &[String],
        duration: &str,
        seed: u64,
    ) -> Vec<String> {
        let mut arguments = vec![self.protocol.to_owned()];
        arguments.extend(targets.iter().map(|address| self.target(address)));
        let mut option = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
        option("clients", self.clients_of(generator).to_string());
        option("threads", u64::from(self.threads).min(self.clients_of(generator)).to_string());
        option("duration", duration.to_owned());
        option("seed", seed.to_string());
        match &self.arrivals {
            Arrivals::Closed { think_time, .. } => option("think-time", think_time.clone()),
            Arrivals::Open { process, rate_per_s, spin } => {
                option("arrivals", process.clone());
                option("spin", format!("{}ns", spin.as_nanos()));
                option("rate", format!("{}/s", rate_per_s / exact_f64(self.generators)));
            }
        }
        option("format", "json".to_owned());
        arguments.extend(self.driver.options.iter().cloned());
        arguments
    }

    /// Arguments that fill one server, after `kendall load`; `None` where there is nothing to do.
    #[must_use]
    pub fn prefill(&self, address: &str) -> Option<Vec<String>> {
        let options = self.driver.prefill.as_ref()?;
        let mut arguments = vec![self.protocol.to_owned(), self.target(address)];
        arguments.extend(options.iter().cloned());
        Some(arguments)
    }

    fn target(&self, address: &str) -> String {
        match &self.driver.target {
            TargetForm::Address => address.to_owned(),
            TargetForm::Url { scheme, path } => format!("{scheme}://{address}{path}"),
        }
    }
}
