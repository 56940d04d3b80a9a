//! Kinds of single stations, by flags.

use anyhow::{anyhow, bail};
use kendall_units::{Rate, Seconds, parse_rate, parse_seconds};
use serde_json::{Map, Value, json};

/// What describes a single station.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    /// λ, such as 7538.59/s
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    arrival_rate: Option<Rate>,
    /// λ before it stepped to --arrival-rate: how long until the new steady state
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    step_from: Option<Rate>,
    /// N before more clients joined, up to --population: how long until the new steady state
    #[arg(long, value_name = "N")]
    population_before: Option<u64>,
    /// µ of one server, such as 66/s
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    service_rate: Option<Rate>,
    /// S, instead of the service rate, such as 15ms
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    service_time: Option<Seconds>,
    /// m
    #[arg(long, value_name = "M")]
    servers: Option<u64>,
    /// B: room for customers, those in service included
    #[arg(long, value_name = "B")]
    capacity: Option<u64>,
    /// N: customers of a finite population
    #[arg(long, value_name = "N")]
    population: Option<u64>,
    /// Z: mean time between requests of one customer
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    think_time: Option<Seconds>,
    /// Shape of service times: exponential, deterministic, erlang:STAGES, hyperexponential:SCV,
    /// lognormal:SCV, gamma:SCV, general:SCV (squared coefficient of variation)
    #[arg(long, value_name = "SHAPE")]
    service: Option<String>,
    /// Shape of inter-arrival times, likewise
    #[arg(long, value_name = "SHAPE")]
    arrivals: Option<String>,
    /// Customers in a batch that arrives together
    #[arg(long, value_name = "SIZE")]
    batch_size: Option<u64>,
    /// Mean time after which a waiting customer leaves unserved
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    patience: Option<Seconds>,
    /// a in erlang, for erlang-b and erlang-c
    #[arg(long, value_name = "ERLANG")]
    offered_load: Option<f64>,
    /// Highest probability of loss or waiting: finds the fewest servers (erlang-b, erlang-c)
    #[arg(long, value_name = "P")]
    at_most: Option<f64>,
}

const KNOWN: [&str; 22] = [
    "mm1", "mm1k", "mm1n", "mmm", "mmmk", "mmmm", "mmmn", "mminf", "md1", "mdm", "mg1", "mg1ps",
    "mg1sjf", "mg1srpt", "gm1", "gg1", "ggm", "mxm1", "mmm+m", "erlang-a", "erlang-b", "erlang-c",
];

impl Flags {
    /// The first flag that was given, for a message.
    pub(super) fn first_given(&self) -> Option<&'static str> {
        self.all().into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }

    /// The first of these flags that was given.
    fn given(&self, names: &[&str]) -> Option<&'static str> {
        let given = |(name, given): &(&str, bool)| *given && names.contains(name);
        self.all().into_iter().find(given).map(|(name, _)| name)
    }

    fn all(&self) -> [(&'static str, bool); 15] {
        [
            ("--arrival-rate", self.arrival_rate.is_some()),
            ("--step-from", self.step_from.is_some()),
            ("--population-before", self.population_before.is_some()),
            ("--service-rate", self.service_rate.is_some()),
            ("--service-time", self.service_time.is_some()),
            ("--servers", self.servers.is_some()),
            ("--capacity", self.capacity.is_some()),
            ("--population", self.population.is_some()),
            ("--think-time", self.think_time.is_some()),
            ("--service", self.service.is_some()),
            ("--arrivals", self.arrivals.is_some()),
            ("--batch-size", self.batch_size.is_some()),
            ("--patience", self.patience.is_some()),
            ("--offered-load", self.offered_load.is_some()),
            ("--at-most", self.at_most.is_some()),
        ]
    }

    /// The model file that says the same.
    pub(super) fn model(&self, kind: &str, percentiles_given: bool) -> anyhow::Result<Value> {
        let written = kind;
        let kind = kind.to_lowercase().replace('/', "");
        if !KNOWN.contains(&kind.as_str()) {
            let close = kendall_keys::did_you_mean(&kind, KNOWN);
            bail!(
                "`{written}` is not a kind of station, and there is no such file{close} (known are \
                 {}, or a file that ends in .toml, .json, .jmva, .jsimg, .jsim, .lqnx, .lqn or .pnml)",
                KNOWN.join(", ")
            );
        }
        if kind.starts_with("erlang-") && kind != "erlang-a" {
            return self.erlang(&kind);
        }
        if let Some(flag) = self.given(&["--offered-load", "--at-most"]) {
            bail!("{flag} is for erlang-b and erlang-c, not for {kind}");
        }
        let mut station = Map::new();
        station.insert("name".to_owned(), json!("station"));
        station.insert("service".to_owned(), shape(self.service_shape(&kind)?, "--service")?);
        station.insert("service_time_s".to_owned(), json!(self.service_time()?));
        match self.servers_of(&kind)? {
            Some(servers) => station.insert("servers".to_owned(), json!(servers)),
            None => station.insert("type".to_owned(), json!("delay")),
        };
        if let Some(capacity) = self.capacity_of(&kind)? {
            station.insert("capacity".to_owned(), json!(capacity));
        }
        if let Some(discipline) = kind.strip_prefix("mg1").filter(|name| !name.is_empty()) {
            station.insert("discipline".to_owned(), json!(discipline));
        }
        match (kind.as_str(), self.patience) {
            ("mmm+m" | "erlang-a", Some(patience)) => {
                station.insert("patience_time_s".to_owned(), json!(patience.get()));
            }
            ("mmm+m" | "erlang-a", None) => bail!("{kind} needs --patience, such as 30s"),
            (_, Some(_)) => bail!("--patience is for mmm+m"),
            (_, None) => {}
        }
        let mut model = json!({
            "name": kind, "classes": [self.class(&kind)?], "stations": [station],
        });
        if let Some(before) = self.step_from {
            model["arrival_rate_before_per_s"] = json!(before.get());
        }
        if let Some(before) = self.population_before {
            model["population_before"] = json!(before);
        }
        if !percentiles_given {
            model["percentiles"] = json!([50, 90, 95, 99]);
        }
        Ok(model)
    }

    fn class(&self, kind: &str) -> anyhow::Result<Value> {
        if kind == "mmmn" || kind == "mm1n" {
            let population =
                self.population.ok_or_else(|| anyhow!("{kind} needs --population, such as 100"))?;
            let think =
                self.think_time.ok_or_else(|| anyhow!("{kind} needs --think-time, such as 10s"))?;
            return Ok(json!({
                "name": "customers", "population": population, "think_time_s": think.get(),
            }));
        }
        if self.population.is_some() || self.think_time.is_some() {
            bail!("--population and --think-time are for mmmn (a finite population)");
        }
        let rate = self
            .arrival_rate
            .ok_or_else(|| anyhow!("{kind} needs --arrival-rate, such as 100/s"))?;
        let general = kind.starts_with('g');
        let arrivals = match &self.arrivals {
            Some(_) if !general => bail!("--arrivals is for gm1, gg1 and ggm"),
            Some(text) => text.as_str(),
            None if general => {
                bail!("{kind} needs --arrivals, such as erlang:4 or general:0.5")
            }
            None => "exponential",
        };
        let mut class = json!({
            "name": "customers", "arrival_rate_per_s": rate.get(),
            "interarrival_time": shape(arrivals, "--arrivals")?,
        });
        match (kind, self.batch_size) {
            ("mxm1", Some(size)) => class["batch_size"] = json!(size),
            ("mxm1", None) => bail!("mxm1 needs --batch-size, such as 4"),
            (_, Some(_)) => bail!("--batch-size is for mxm1"),
            (_, None) => {}
        }
        Ok(class)
    }

    fn service_time(&self) -> anyhow::Result<f64> {
        match (self.service_rate, self.service_time) {
            (Some(_), Some(_)) => bail!("--service-rate and --service-time say the same: give one"),
            (Some(rate), None) if rate.get() > 0.0 => Ok(1.0 / rate.get()),
            (Some(rate), None) => bail!("--service-rate is {}; it must be above 0", rate.get()),
            (None, Some(time)) => Ok(time.get()),
            (None, None) => bail!("give --service-rate, such as 66/s, or --service-time"),
        }
    }

    fn service_shape(&self, kind: &str) -> anyhow::Result<&str> {
        let general = kind.starts_with("mg1") || matches!(kind, "gg1" | "ggm");
        match &self.service {
            Some(text) if general => Ok(text),
            Some(_) => bail!("--service is for mg1…, gg1 and ggm; {kind} has its own"),
            None if general => bail!("{kind} needs --service, such as lognormal:2 or general:0.5"),
            None if kind.starts_with("md") => Ok("deterministic"),
            None => Ok("exponential"),
        }
    }

    /// `None`: infinitely many.
    fn servers_of(&self, kind: &str) -> anyhow::Result<Option<u64>> {
        let one = kind.starts_with("mg1")
            || matches!(kind, "mm1" | "mm1k" | "mm1n" | "md1" | "gm1" | "gg1" | "mxm1");
        let many =
            matches!(kind, "mmm" | "mmmk" | "mmmm" | "mmmn" | "mdm" | "ggm" | "mmm+m" | "erlang-a");
        match (one, many, self.servers) {
            (true, _, None | Some(1)) => Ok(Some(1)),
            (true, _, Some(_)) => bail!("{kind} has one server; for several use mmm, mdm or ggm"),
            (_, true, Some(servers)) => Ok(Some(servers)),
            (_, true, None) => bail!("{kind} needs --servers"),
            (_, _, Some(_)) => bail!("--servers is not for {kind}, which has as many as customers"),
            (_, _, None) => Ok(None),
        }
    }

    fn capacity_of(&self, kind: &str) -> anyhow::Result<Option<u64>> {
        match (kind, self.capacity) {
            ("mm1k" | "mmmk", None) => bail!("{kind} needs --capacity"),
            ("mmmm", None) => Ok(self.servers),
            ("mmmm", Some(_)) => bail!("mmmm has no waiting places; use mmmk"),
            ("mm1k" | "mmmk" | "mmmn" | "mm1n" | "mmm+m" | "erlang-a", capacity) => Ok(capacity),
            (_, Some(_)) => bail!("--capacity is for mm1k, mmmk, mmmn and mmm+m"),
            (_, None) => Ok(None),
        }
    }

    fn erlang(&self, kind: &str) -> anyhow::Result<Value> {
        let mut others = vec![
            "--capacity",
            "--population",
            "--think-time",
            "--service",
            "--arrivals",
            "--batch-size",
            "--patience",
            "--step-from",
            "--population-before",
        ];
        if self.offered_load.is_some() {
            others.extend(["--service-rate", "--service-time"]);
        }
        if let Some(flag) = self.given(&others) {
            bail!("{flag} is not for {kind}, or says the same as --offered-load");
        }
        let load = match (self.offered_load, self.arrival_rate) {
            (Some(load), None) => load,
            (None, Some(rate)) => rate.get() * self.service_time()?,
            _ => bail!("{kind} needs --offered-load, or --arrival-rate and --service-rate"),
        };
        let mut case = json!({ "kind": kind, "offered_load_erlang": load });
        match (self.servers, self.at_most) {
            (Some(servers), None) => case["servers"] = json!(servers),
            (None, Some(p)) => case["target_probability"] = json!(p),
            _ => bail!("{kind} needs --servers, or --at-most to find how many"),
        }
        Ok(case)
    }
}

/// `erlang:4` as the table of a model file.
fn shape(text: &str, flag: &str) -> anyhow::Result<Value> {
    let (name, parameter) = match text.split_once(':') {
        Some((name, parameter)) => {
            let value: f64 = parameter
                .parse()
                .map_err(|_| anyhow!("{flag}: `{parameter}` is not a number; write erlang:4"))?;
            (name, Some(value))
        }
        None => (text, None),
    };
    let key = match name {
        "exponential" | "deterministic" => None,
        "erlang" => Some("stages"),
        "hyperexponential" | "lognormal" | "gamma" | "general" => Some("scv"),
        _ => bail!(
            "{flag}: `{name}` is not a shape; known are exponential, deterministic, erlang:STAGES, \
             hyperexponential:SCV, lognormal:SCV, gamma:SCV and general:SCV"
        ),
    };
    let mut table = json!({ "distribution": name });
    match (key, parameter) {
        (Some(key), Some(value)) => table[key] = json!(value),
        (Some(_), None) => bail!("{flag}: {name} needs a number, such as {name}:2"),
        (None, Some(_)) => bail!("{flag}: {name} takes no number"),
        (None, None) => {}
    }
    Ok(table)
}
