//! The effective values of one configuration.

use kendall_units::Seconds;
use serde_json::{Value as Json, json};
use toml::{Table, Value};

use crate::section::{Problem, Section};
use crate::system::{self, SystemKind};
use crate::topology::Topology;
use crate::workload::{self, Workload};

/// All that one run needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What kind of system is measured.
    pub kind: &'static SystemKind,
    /// Its tiers.
    pub topology: Topology,
    /// Emulated network.
    pub links: Vec<Link>,
    /// What loads it.
    pub workload: Workload,
    /// How it is measured.
    pub measure: Measure,
    /// All of it as JSON, defaults included.
    pub effective: Json,
}

/// An emulated network between two tiers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// `clients`, or a tier.
    pub from: String,
    /// The tier that it leads to.
    pub to: String,
    /// Options of `kendall serve link`.
    pub options: Vec<String>,
}

/// How a configuration is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Measure {
    /// How long the load lasts, warm-up and cool-down included.
    pub duration: Seconds,
    /// What is cut from its start.
    pub warm_up: Cut,
    /// What is cut from its end.
    pub cool_down: Cut,
    /// How often each configuration is measured.
    pub repetitions: Repetitions,
    /// How often a failed or rejected run is tried again.
    pub retries: u32,
    /// Confidence of every interval.
    pub confidence: f64,
}

/// What is cut from one end of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cut {
    /// What the data ask for, by the rule MSER-5.
    Auto,
    /// A stated time.
    Fixed(Seconds),
}

/// How often each configuration is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Repetitions {
    /// So many times.
    Fixed(u32),
    /// Until the interval of the mean throughput is narrow enough.
    Until {
        /// At least so many times.
        min: u32,
        /// At most so many times.
        max: u32,
        /// Half the interval's width over the mean.
        precision: f64,
    },
}

/// Repetitions that a study may ask for.
const MOST_REPETITIONS: u32 = 1_000;

impl Settings {
    /// Reads all tables of a study file that describe a configuration.
    pub(crate) fn read(file: &Table) -> Result<Self, Problem> {
        let mut root = Section::new("", file);
        let (kind, topology, system) = system::read(root.section("system")?)?;
        let (links, links_effective) = links(root.section("links")?, &topology)?;
        let (workload, load) = workload::read(root.section("workload")?, kind.protocol)?;
        let (measure, measure_effective) = measure(root.section("measure")?)?;
        let effective = json!({
            "system": system,
            "links": links_effective,
            "workload": load,
            "measure": measure_effective,
        });
        Ok(Self { kind, topology, links, workload, measure, effective })
    }
}

fn links(mut section: Section<'_>, topology: &Topology) -> Result<(Vec<Link>, Json), Problem> {
    let edges = topology.edges();
    let mut links = Vec::new();
    for (name, value) in section.entries() {
        let ends = name.split_once("->").map(|(a, b)| (a.trim().to_owned(), b.trim().to_owned()));
        let Some((from, to)) = ends.filter(|ends| edges.contains(ends)) else {
            let known: Vec<String> = edges.iter().map(|(a, b)| format!("\"{a} -> {b}\"")).collect();
            let what = format!("is no link of this system; write {}", known.join(" or "));
            return Err(section.problem(name, what));
        };
        let Value::Table(table) = value else {
            let what = format!("`{value}` is not a table; write {{ delay = \"0.5ms\" }}");
            return Err(section.problem(name, what));
        };
        let mut link = Section::new(&section.path_of(name), table);
        let mut options = Vec::new();
        let (delay, _) = link.quantity("delay", Some("0ms"), kendall_units::parse_seconds)?;
        options.extend(["--delay".to_owned(), delay]);
        for key in ["jitter", "bandwidth"] {
            if link.has(key) {
                options.extend([format!("--{key}"), link.text(key, None)?]);
            }
        }
        let effective = link.finish()?;
        section.effective(name, effective);
        links.push(Link { from, to, options });
    }
    Ok((links, section.finish()?))
}

fn measure(mut section: Section<'_>) -> Result<(Measure, Json), Problem> {
    let duration = section.seconds("duration", Some("60s"))?;
    if duration.get() < 0.2 {
        return Err(section.problem("duration", format!("`{duration}` is shorter than 200ms")));
    }
    let warm_up = cut(&mut section, "warm_up")?;
    let cool_down = cut(&mut section, "cool_down")?;
    let left = [warm_up, cool_down].iter().fold(duration.get(), |left, cut| match cut {
        Cut::Auto => left,
        Cut::Fixed(time) => left - time.get(),
    });
    if left < 0.1 {
        let what = "warm-up and cool-down leave less than 100ms of the duration";
        return Err(section.problem("warm_up", what));
    }
    let mut confidence = confidence(&mut section, "95%")?;
    let repetitions = repetitions(&mut section, &mut confidence)?;
    let retries = section.small("retries", Some(0), 0..=10)?;
    let measure = Measure { duration, warm_up, cool_down, repetitions, retries, confidence };
    Ok((measure, section.finish()?))
}

fn cut(section: &mut Section<'_>, key: &str) -> Result<Cut, Problem> {
    let text = section.text(key, Some("auto"))?;
    if text == "auto" {
        return Ok(Cut::Auto);
    }
    kendall_units::parse_seconds(&text)
        .map(Cut::Fixed)
        .map_err(|error| section.problem(key, format!("{error}, or write \"auto\"")))
}

fn confidence(section: &mut Section<'_>, default: &str) -> Result<f64, Problem> {
    let confidence = section.share("confidence", Some(default))?;
    if !(0.5..1.0).contains(&confidence) {
        return Err(
            section.problem("confidence", format!("`{confidence}` is not from 50% to below 100%"))
        );
    }
    Ok(confidence)
}

fn repetitions(section: &mut Section<'_>, confidence: &mut f64) -> Result<Repetitions, Problem> {
    if !matches!(section.raw("repetitions"), Some(Value::Table(_))) {
        let fixed =
            section.small("repetitions", Some(3), 1..=MOST_REPETITIONS).map_err(|error| {
                let or = "or write { min = 3, max = 20, until = \"2%\" }";
                Problem { what: format!("{}, {or}", error.what), ..error }
            })?;
        return Ok(Repetitions::Fixed(fixed));
    }
    let mut table = section.section("repetitions")?;
    // Fewer than three say nothing about their own spread that could be relied on.
    let min = table.small("min", Some(3), 2..=MOST_REPETITIONS)?;
    let max = table.small("max", Some(20), min..=MOST_REPETITIONS)?;
    let precision = table.share("until", None)?;
    if precision <= 0.0 {
        return Err(table.problem("until", "must be above zero; write it like `2%`"));
    }
    *confidence = self::confidence(&mut table, &confidence.to_string())?;
    let effective = table.finish()?;
    section.effective("repetitions", effective);
    Ok(Repetitions::Until { min, max, precision })
}
