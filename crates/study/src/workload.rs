//! What loads the system. One file a protocol below this folder, and one line here.

mod bazel;
mod grpc;
mod http;
mod memcached;
mod postgres;
mod program;
mod queue;
mod reapi;
mod redis;

use kendall_keys::Form;
use kendall_units::{Seconds, counted, exact_f64};
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
    pub read: fn(&mut Section<'_>) -> Result<Driver, Problem>,
    /// Whether its loads are jobs with an end.
    pub jobs: Jobs,
}

/// Whether the loads of a protocol are jobs with an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jobs {
    /// They last for a stated time.
    Never,
    /// Where `loop = "job"` says so.
    Asked,
    /// They end by themselves.
    Always,
}

pub const PROTOCOLS: &[Protocol] = &[
    memcached::PROTOCOL,
    http::PROTOCOL,
    queue::PROTOCOL,
    redis::PROTOCOL,
    postgres::PROTOCOL,
    grpc::PROTOCOL,
    reapi::PROTOCOL,
    bazel::PROTOCOL,
    program::PROTOCOL,
];

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
    Key::choice(
        "loop",
        &["closed", "open", "job"],
        "whether clients wait for answers; `job`: the load ends by itself (a build, a batch), all of it \
         is measured, and `measure.duration` is the longest it may take",
    )
    .or("'closed'"),
    Key::count(
        "clients",
        1,
        1_000_000,
        "closed: the population, over all generators; open: connections; job: most tasks at a time",
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
        "open: the capacity that shares such as `0.8 of capacity` refer to; by default it is \
         measured before the first run",
    )
    .optional(),
    Key::quantity(
        "spin",
        &TIME,
        "open: how long before each moment a generator busy-polls; short, since it shares the \
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
    // Without a default: a study that was stored before there was this key is the same one.
    Key::new(
        "reach",
        Form::Choice(&REACHES),
        "which instances the clients of a generator talk to: `all` in turn (unless given), or `one`: \
         generators take the instances in turn, as many for each",
    )
    .optional(),
];

/// Keys of loads that store and retrieve values by key.
const KEYSPACE: &[Key] = &[
    Key::count("keys", 1, u64::MAX, "number of different keys").or("10_000"),
    Key::text(
        "value_size",
        "size of values: `1KiB`, `uniform:10B..2KiB`, or `etc` (Facebook's ETC pool); each key keeps its own",
    )
    .or("'1KiB'"),
    Key::text(
        "key_distribution",
        "how keys are chosen: `uniform`, `zipf:0.99`, `hotspot:10%,90%` (10% of the keys get 90% of the \
         requests), or `fixed`",
    )
    .or("'uniform'"),
    Key::flag("prefill", "whether every server is filled before a run").or("true"),
];

const REACHES: [&str; 2] = ["all", "one"];

/// Arguments of `kendall load` that are the protocol's own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Driver {
    pub options: Vec<String>,
    /// Options of the filling before a load; `None` where there is nothing to fill.
    pub prefill: Option<Vec<String>>,
    /// Put around an address: `http://ADDRESS/path`.
    pub target: TargetForm,
    /// Whether it takes `--folder` for what it leaves.
    pub in_folder: bool,
    /// The user's own, in place of `kendall load`.
    pub program: Option<Program>,
}

/// A program that prints the documented result of a load.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Program {
    /// Program and arguments, with placeholders.
    pub command: Vec<String>,
    /// Environment variables, with placeholders.
    pub environment: Vec<(String, String)>,
}

/// How an address becomes a target of `kendall load`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TargetForm {
    /// `HOST:PORT`.
    #[default]
    Address,
    /// `SCHEME://HOST:PORT/PATH`; the path begins with its slash.
    Url { scheme: &'static str, path: String },
}

/// The load of one configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Word after `kendall load`.
    pub protocol: &'static str,
    pub arrivals: Arrivals,
    /// Clients over all generators (closed loop), or connections (open loop).
    pub clients: u64,
    pub generators: u32,
    pub threads: u32,
    /// Whether the clients of a generator all talk to one instance.
    pub reaches_one: bool,
    pub driver: Driver,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Arrivals {
    /// Each client waits for its answer, thinks, and sends the next request. The think time is as `kendall load` takes
    /// it, with its mean where it is a plain time.
    Closed { think_time: String, mean: Option<Seconds> },
    /// A job with an end.
    Job,
    /// Requests are due independently of the replies.
    Open {
        process: String,
        /// Requests per second over all generators.
        rate_per_s: f64,
        /// Time that a generator stays awake before each moment. Short unless asked for: it shares
        /// the machine with what it measures.
        spin: Seconds,
    },
}

/// Most clients of one generator.
pub const MOST_CLIENTS: u32 = 100_000;

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
    let word = loop_of(&mut section, protocol)?;
    unused(&section, word)?;
    let arrivals = match word {
        "open" => open(&mut section)?,
        "job" => Arrivals::Job,
        _ => closed(&mut section)?,
    };
    let clients = section.count("clients")?;
    let generators = section.small("generators")?;
    let threads = section.small("threads")?;
    if clients < u64::from(generators) {
        let (clients, generators) = (counted(clients, "client"), counted(generators, "generator"));
        let what = format!("{clients} for {generators}: each generator needs one at least");
        return Err(section.problem("clients", what));
    }
    if clients > u64::from(MOST_CLIENTS) * u64::from(generators) && word != "job" {
        let generators = counted(generators, "generator");
        let what = format!(
            "{clients} for {generators}: each carries {MOST_CLIENTS} at most; raise `generators`"
        );
        return Err(section.problem("clients", what));
    }
    let reaches_one = section.opt_text("reach")?.as_deref() == Some("one");
    let driver = (protocol.read)(&mut section)?;
    let protocol = protocol.name;
    let workload =
        Workload { protocol, arrivals, clients, generators, threads, reaches_one, driver };
    Ok((workload, section.finish()?))
}

/// `closed`, `open` or `job`, as the protocol allows it.
fn loop_of(section: &mut Section<'_>, protocol: &Protocol) -> Result<&'static str, Problem> {
    let words = ["closed", "open", "job"].map(|word| (word, word));
    if protocol.jobs == Jobs::Always && !section.has("loop") {
        section.effective("loop", json!("job"));
        return Ok("job");
    }
    let word = section.choice("loop", &words)?;
    match (protocol.jobs, word) {
        (Jobs::Never, "job") => {
            let what = format!(
                "`job` is for loads that end by themselves, and `{}` does not",
                protocol.name
            );
            Err(section.problem("loop", what))
        }
        (Jobs::Always, "closed" | "open") => {
            let what = format!("`{}` is a load that ends by itself: leave this out", protocol.name);
            Err(section.problem("loop", what))
        }
        (_, word) => Ok(word),
    }
}

/// Keys of other loops mean nothing, and are refused as unknown ones are.
fn unused(section: &Section<'_>, word: &str) -> Result<(), Problem> {
    let of_loops: [(&str, &[&str]); 2] =
        [("closed", &["think_time"]), ("open", &["arrivals", "rate", "spin", CAPACITY])];
    for (other, keys) in of_loops.into_iter().filter(|(other, _)| *other != word) {
        if let Some(key) = keys.iter().find(|key| section.has(key)) {
            let what = format!("is for `loop = \"{other}\"`; leave it out, or change the loop");
            return Err(section.problem(key, what));
        }
    }
    Ok(())
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
    pub fn clients_of(&self, generator: u32) -> u64 {
        let generators = u64::from(self.generators);
        let extra = u64::from(u64::from(generator) < self.clients % generators);
        self.clients / generators + extra
    }

    /// Of all instances that may be asked, those that the clients of one generator talk to.
    pub fn targets<'a>(&self, generator: u32, all: &'a [String]) -> &'a [String] {
        if !self.reaches_one || all.is_empty() {
            return all;
        }
        let turn = usize::try_from(generator).unwrap_or(0) % all.len();
        &all[turn..=turn]
    }

    /// Refuses generators of which some instances would have more than others.
    pub(crate) fn check_reach(&self, entry: &str, instances: u32) -> Result<(), Problem> {
        if !self.reaches_one || instances == 0 || self.generators.is_multiple_of(instances) {
            return Ok(());
        }
        let what = format!(
            "`one` needs as many generators for each of the {instances} instances of `{entry}`, and there \
             are {}; write `generators = {}`, for example",
            self.generators,
            self.generators.next_multiple_of(instances)
        );
        Err(Problem { key: "workload.reach".into(), what })
    }

    /// Whether it is a job with an end.
    pub fn is_job(&self) -> bool {
        self.arrivals == Arrivals::Job
    }

    /// Open loop: requests per second of each generator; else 0.
    pub fn rate_of_one(&self) -> f64 {
        match self.arrivals {
            Arrivals::Open { rate_per_s, .. } => rate_per_s / exact_f64(self.generators),
            Arrivals::Closed { .. } | Arrivals::Job => 0.0,
        }
    }

    /// Arguments of one generator, after `kendall load`.
    pub fn arguments(
        &self,
        generator: u32,
        targets: &[String],
        duration: &str,
        seed: u64,
    ) -> Vec<String> {
        if self.is_job() {
            return self.job(generator, targets, duration, seed);
        }
        let mut arguments = vec![self.protocol.to_owned()];
        arguments.extend(targets.iter().map(|address| self.target(address)));
        let mut option = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
        option("clients", self.clients_of(generator).to_string());
        option("threads", u64::from(self.threads).min(self.clients_of(generator)).to_string());
        option("duration", duration.to_owned());
        option("seed", seed.to_string());
        match &self.arrivals {
            Arrivals::Closed { think_time, .. } => option("think-time", think_time.clone()),
            Arrivals::Job => {}
            Arrivals::Open { process, spin, .. } => {
                option("arrivals", process.clone());
                option("spin", format!("{}ns", spin.as_nanos()));
                option("rate", format!("{}/s", self.rate_of_one()));
            }
        }
        option("format", "json".to_owned());
        if !self.driver.options.iter().any(|option| option == "--quiet") {
            option("progress", "json".to_owned());
        }
        arguments.extend(self.driver.options.iter().cloned());
        arguments
    }

    /// The same of a job.
    fn job(&self, generator: u32, targets: &[String], longest: &str, seed: u64) -> Vec<String> {
        // Each instance gives out all tasks; one address is enough.
        let target = targets.get(usize::try_from(generator).unwrap_or(0) % targets.len().max(1));
        let mut arguments = vec![self.protocol.to_owned()];
        arguments.extend(target.map(|address| self.target(address)));
        let jobs = self.clients_of(generator).to_string();
        let seed = seed.to_string();
        for (name, value) in
            [("jobs", jobs.as_str()), ("longest", longest), ("seed", &seed), ("format", "json")]
        {
            arguments.extend([format!("--{name}"), value.to_owned()]);
        }
        arguments.extend(self.driver.options.iter().cloned());
        arguments
    }

    /// Arguments that fill one server, after `kendall load`; `None` where there is nothing to do.
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

#[cfg(test)]
mod tests {
    use crate::file::StudyFile;
    use crate::settings::Settings;

    fn settings(workload: &str) -> Result<Settings, String> {
        let text = format!(
            "name = 'x'\n[system]\nkind = 'memcached-proxy'\nproxies = 2\n[workload]\nclients = 8\n\
             mix = {{ get = 1 }}\n{workload}"
        );
        let study = StudyFile::parse("x.toml", text, false, &[]);
        study.and_then(|study| study.settings(&[])).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn a_generator_reaches_one_instance_where_the_study_says_so() {
        let all = ["first".to_owned(), "second".to_owned()];
        let targets = |workload: &str, generator| {
            settings(workload).unwrap().workload.targets(generator, &all).to_vec()
        };
        assert_eq!(targets("generators = 4\n", 1), all);
        assert_eq!(targets("reach = 'all'\ngenerators = 3\n", 2), all);
        let one = |generator| targets("reach = 'one'\ngenerators = 4\n", generator);
        assert_eq!([one(0), one(1), one(2), one(3)], [0, 1, 0, 1].map(|i| vec![all[i].clone()]));
        assert!(
            settings("reach = 'one'\ngenerators = 2\n")
                .unwrap()
                .workload
                .targets(0, &[])
                .is_empty()
        );
        // A stored study without the key is the same study.
        assert!(settings("").unwrap().effective["workload"].get("reach").is_none());
        let said = settings("reach = 'one'\ngenerators = 3\n").unwrap_err();
        assert!(said.contains("workload.reach") && said.contains("`generators = 4`"), "{said}");
        let said = settings("reach = 'two'\n").unwrap_err();
        assert!(said.contains("`two`"), "{said}");
    }
}
