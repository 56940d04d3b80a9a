//! The effective values of one configuration.

use kendall_keys::Form;
use kendall_protocols::topology::{EdgeLink, Graph};
use kendall_units::Seconds;
use serde_json::{Value as Json, json};
use toml::{Table, Value};

use crate::hosts::Placement;
use crate::section::{Key, Problem, Quantities as _, SHARE, Section, TIME};
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
    /// Which hosts there are, and what runs where.
    pub placement: Placement,
    /// All of it as JSON, defaults included.
    pub effective: Json,
}

/// An emulated network between two tiers.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// `clients`, or a tier.
    pub from: String,
    /// The tier that it leads to.
    pub to: String,
    /// Options of `kendall serve link`.
    pub options: Vec<String>,
    /// Stated delay one way, jitter left out.
    pub delay: Seconds,
    /// Limit of bytes a second, each way, where it is stated in bytes.
    pub bandwidth_bytes_per_s: Option<u64>,
}

impl Link {
    /// What its process is called in the store.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} -> {}", self.from, self.to)
    }
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
    /// Whether the speed of the cores is probed.
    pub speed_probe: bool,
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
const MOST_REPETITIONS: u64 = 1_000;

/// A line of `[links]`.
pub(crate) const LINK: &[Key] = &[
    Key::quantity("delay", &TIME, "each way").or("'0ms'"),
    Key::text("jitter", "`uniform:0.1ms`, `normal:0.1ms`, `exponential:0.1ms`").optional(),
    Key::text("bandwidth", "`10MB/s`, `100Mbit/s`, each way of each connection pair").optional(),
];

/// `[measure]`.
pub(crate) const MEASURE: &[Key] = &[
    Key::quantity("duration", &TIME, "how long the load of a run lasts, warm-up and cool-down included")
        .or("'60s'"),
    Key::text(
        "warm_up",
        "what is cut from the start: `auto` (found in the one-second windows), or a time",
    )
    .or("'auto'"),
    Key::text("cool_down", "the same for the end").or("'auto'"),
    Key::new(
        "repetitions",
        Form::Either(&[Form::Count { from: 1, to: MOST_REPETITIONS }, Form::Table(&[REPETITIONS])]),
        "how often each configuration is measured; or `{ min = 3, max = 20, until = \"2%\" }`: until \
         the interval of its mean throughput is that narrow (half-width over mean)",
    )
    .or("3"),
    Key::count("retries", 0, 10, "how often a failed or rejected run is retried").or("0"),
    Key::quantity("confidence", &SHARE, "of all intervals").or("'95%'"),
    Key::flag(
        "speed_probe",
        "whether the speed of every core is probed while a run lasts, by some 50 µs of work each \
         50 ms",
    )
    .or("true"),
];

/// `repetitions` as a table.
pub(crate) const REPETITIONS: &[Key] = &[
    // Fewer than three say nothing about their own spread that could be relied on.
    Key::count("min", 2, MOST_REPETITIONS, "fewest repetitions").or("3"),
    Key::count("max", 2, MOST_REPETITIONS, "most repetitions").or("20"),
    Key::quantity(
        "until",
        &SHARE,
        "half-width of the interval over the mean; accepted once it rests on 18 undisturbed runs \
         of the study, or 18 of the configuration",
    ),
    Key::quantity("confidence", &SHARE, "of the interval; that of `measure` unless given")
        .optional(),
];

impl Settings {
    /// The system's tiers, who talks to whom, and the emulated network between them.
    #[must_use]
    pub fn graph(&self) -> Graph {
        self.topology.graph(|from, to| {
            let link = self.links.iter().find(|link| link.from == from && link.to == to)?;
            Some(EdgeLink {
                name: link.name(),
                delay_ns: link.delay.as_nanos(),
                bandwidth_bytes_per_s: link.bandwidth_bytes_per_s.map(kendall_units::exact_f64),
            })
        })
    }

    /// Whether a run with these settings is the same as with others: the same processes, load and
    /// measurement, whatever else the file says.
    pub(crate) fn runs_as(&self, other: &Self) -> bool {
        self.topology == other.topology
            && self.links == other.links
            && self.workload == other.workload
            && self.measure == other.measure
            && self.placement == other.placement
    }

    /// Reads all tables of a study file that describe a configuration.
    pub(crate) fn read(file: &Table) -> Result<Self, Problem> {
        let mut root = Section::new("", file, &[crate::file::STUDY]);
        let (kind, topology, system) = system::read(root.section("system")?)?;
        let (links, links_effective) = links(root.section("links")?, &topology)?;
        let (workload, load) = workload::read(root.section("workload")?, kind.protocol)?;
        let entered = topology.instances(&topology.entry, workload.generators);
        workload.check_reach(&topology.entry, entered)?;
        let (measure, measure_effective) = measure(root.section("measure")?)?;
        let tiers = (&topology, kind.sometimes);
        let (placement, placed) = Placement::read(&mut root, tiers, workload.generators)?;
        let mut effective = json!({
            "system": system,
            "links": links_effective,
            "workload": load,
            "measure": measure_effective,
        });
        // Only where it is stated: a study that was stored before there were hosts is the same one.
        if let Some((hosts, place)) = placed {
            effective["hosts"] = hosts;
            effective["place"] = place;
        }
        Ok(Self { kind, topology, links, workload, measure, placement, effective })
    }
}

fn links(mut section: Section<'_>, topology: &Topology) -> Result<(Vec<Link>, Json), Problem> {
    let edges = topology.edges();
    let mut links = Vec::new();
    for (name, value) in section.entries() {
        let ends = name.split_once("->").map(|(a, b)| (a.trim().to_owned(), b.trim().to_owned()));
        let Some((from, to)) = ends.filter(|ends| edges.contains(ends)) else {
            let known: Vec<String> = edges.iter().map(|(a, b)| format!("\"{a} -> {b}\"")).collect();
            let what = format!("is not a link of this system; write {}", known.join(" or "));
            return Err(section.problem(name, what));
        };
        let Value::Table(table) = value else {
            let what = format!("`{value}` is not a table; write {{ delay = \"0.5ms\" }}");
            return Err(section.problem(name, what));
        };
        let mut link = Section::new(&section.path_of(name), table, &[LINK]);
        let mut options = Vec::new();
        let (text, delay) = link.quantity("delay", kendall_units::parse_seconds)?;
        options.extend(["--delay".to_owned(), text]);
        for key in ["jitter", "bandwidth"] {
            if let Some(text) = link.opt_text(key)? {
                options.extend([format!("--{key}"), text]);
            }
        }
        let bandwidth = table.get("bandwidth").and_then(Value::as_str);
        let bandwidth_bytes_per_s = bandwidth
            .and_then(|text| kendall_units::parse_bytes(text.trim().strip_suffix("/s")?).ok());
        let effective = link.finish()?;
        section.effective(name, effective);
        links.push(Link { from, to, options, delay, bandwidth_bytes_per_s });
    }
    Ok((links, section.named()))
}

fn measure(mut section: Section<'_>) -> Result<(Measure, Json), Problem> {
    let duration = section.seconds("duration")?;
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
    let mut confidence = confidence(&mut section)?;
    let repetitions = repetitions(&mut section, &mut confidence)?;
    let retries = section.small("retries")?;
    // Among the effective values only where it is stated: a study that was stored before there was
    // such a key is still the same study.
    let stated = section.has("speed_probe");
    let speed_probe = section.flag("speed_probe")?;
    let measure =
        Measure { duration, warm_up, cool_down, repetitions, retries, confidence, speed_probe };
    let mut effective = section.finish()?;
    if let Some(table) = effective.as_object_mut().filter(|_| !stated) {
        table.remove("speed_probe");
    }
    Ok((measure, effective))
}

fn cut(section: &mut Section<'_>, key: &str) -> Result<Cut, Problem> {
    let text = section.text(key)?;
    if text == "auto" {
        return Ok(Cut::Auto);
    }
    kendall_units::parse_seconds(&text)
        .map(Cut::Fixed)
        .map_err(|error| section.problem(key, format!("{error}, or write \"auto\"")))
}

fn confidence(section: &mut Section<'_>) -> Result<f64, Problem> {
    let confidence = section.share("confidence")?;
    if !(0.5..1.0).contains(&confidence) {
        return Err(
            section.problem("confidence", format!("`{confidence}` is not from 50% to below 100%"))
        );
    }
    Ok(confidence)
}

fn repetitions(section: &mut Section<'_>, confidence: &mut f64) -> Result<Repetitions, Problem> {
    if !matches!(section.raw("repetitions"), Some(Value::Table(_))) {
        let fixed = section.small("repetitions").map_err(|error| {
            let or = "such as { min = 3, max = 20, until = \"2%\" }";
            Problem { what: format!("{} {or}", error.what), ..error }
        })?;
        return Ok(Repetitions::Fixed(fixed));
    }
    let mut table = section.section("repetitions")?;
    let (min, max) = (table.small("min")?, table.small("max")?);
    if max < min {
        return Err(
            table.problem("max", format!("`{max}` is not a whole number from {min} (`min`)"))
        );
    }
    let precision = table.share("until")?;
    if precision <= 0.0 {
        return Err(table.problem("until", "must be above zero; write it like `2%`"));
    }
    if table.has("confidence") {
        *confidence = self::confidence(&mut table)?;
    } else {
        table.effective("confidence", json!(confidence.to_string()));
    }
    let effective = table.finish()?;
    section.effective("repetitions", effective);
    Ok(Repetitions::Until { min, max, precision })
}
