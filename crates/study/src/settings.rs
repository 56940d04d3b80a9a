//! The effective values of one configuration.

use kendall_keys::Form;
use kendall_protocols::topology::{EdgeLink, Graph};
use kendall_units::Seconds;
use serde_json::{Value as Json, json};
use toml::{Table, Value};

use crate::capacity::CAPACITY;
use crate::placement::Placement;
use crate::section::{Key, Problem, Quantities as _, SHARE, Section, TIME};
use crate::system::{self, KIND, SystemKind};
use crate::topology::Topology;
use crate::workload::{self, Arrivals, Workload};

/// A window shorter than this share of the longest is the rest at the end of a load.
pub(crate) const WHOLE_SHARE: f64 = 0.9;

/// All that one run needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What kind of system is measured.
    pub kind: &'static SystemKind,
    pub topology: Topology,
    pub links: Vec<Link>,
    pub workload: Workload,
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
    /// Limit of bytes a second of what is asked, and of what is answered.
    pub bandwidth_bytes_per_s: [Option<u64>; 2],
}

impl Link {
    /// What its process is called in the store.
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
    pub confidence: f64,
    /// Whether the speed of the cores is probed.
    pub speed_probe: bool,
    /// How long one client alone is measured before the load; 0 where it is not.
    pub one_client: Seconds,
}

impl Measure {
    /// Whether a whole window lies between the stated cuts: a load counts in seconds from its start, and the last
    /// window counts where it is nearly whole.
    fn keeps_a_window(&self) -> bool {
        let cut = |cut: Cut| match cut {
            Cut::Auto => 0.0,
            Cut::Fixed(time) => time.get(),
        };
        let (length, slack) = (self.duration.get(), 0.001);
        let step = length.min(1.0);
        let first = ((cut(self.warm_up) - slack) / step).ceil().max(0.0) * step;
        let whole = (first + step).min(length);
        whole - first >= WHOLE_SHARE * step && whole <= length - cut(self.cool_down) + slack
    }

    /// How long a run is under load.
    pub fn under_load(&self) -> Seconds {
        self.duration + self.one_client * (1.0 + UNCOUNTED_SHARE)
    }
}

/// How long the client that is measured alone sends requests before those that count, as a share of the time
/// that counts: the first ones meet connections and memory that were not used before.
pub(crate) const UNCOUNTED_SHARE: f64 = 0.25;
/// How long one client alone is measured in a calibration.
const USUAL_ONE_CLIENT: Seconds = Seconds::new(1.0);
/// Shortest time that one client alone is measured, in s.
const LEAST_ONE_CLIENT_S: f64 = 0.2;

/// What is cut from one end of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cut {
    /// What the data ask for, by the rule MSER-5.
    Auto,
    Fixed(Seconds),
}

/// How often each configuration is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Repetitions {
    /// So many times.
    Fixed(u32),
    /// Until half the width of the mean throughput's interval is this share of it, so many times at least and at most.
    Until { min: u32, max: u32, precision: f64 },
}

/// Repetitions that a study may ask for.
const MOST_REPETITIONS: u64 = 1_000;

/// A line of `[links]`.
pub(crate) const LINK: &[Key] = &[
    Key::quantity("delay", &TIME, "each way").or("'0ms'"),
    Key::text("jitter", "`uniform:0.1ms`, `normal:0.1ms`, `exponential:0.1ms`").optional(),
    Key::text("bandwidth", "`10MB/s`, `100Mbit/s`, each way of each connection pair").optional(),
    Key::text("bandwidth_back", "the same of the answers, where it is another one").optional(),
];

/// The whole study file. Which further keys `[system]` and `[workload]` have depends on their kind.
pub(crate) const STUDY: &[Key] = &[
    Key::text(
        "name",
        "short name: ASCII letters, digits, `-`, `_`, `.`; results go to `results/NAME`",
    ),
    Key::text("title", "one line that says what is measured; the name unless given").optional(),
    Key::text("question", "the question that the study answers, in words").optional(),
    Key::text("objective", "what must be met, such as `p99 < 10ms`, `mean < 2ms`").optional(),
    Key::texts(
        "fail_if",
        "conditions for which `kendall run` ends with exit code 4, where one holds of some configuration: such as \
         `[\"p99 > 10ms\", \"errors > 0.1%\", \"throughput < 900/s\"]`",
    ),
    Key::count(
        "seed",
        0,
        1 << 53,
        "of all random choices: order of runs, keys, think times, \
                                    arrivals",
    )
    .or("1"),
    Key::new("system", Form::Table(&[KIND]), "what is measured"),
    Key::new("links", Form::Named(&Form::Table(&[LINK])), "emulated network").optional(),
    Key::new("workload", Form::Table(&[workload::KEYS]), "the load").optional(),
    Key::new("measure", Form::Table(&[MEASURE]), "how it is measured").optional(),
    Key::new(
        "hosts",
        Form::Named(&Form::Special("`\"user@machine\"`, or a table")),
        "hosts by their names, and how they are reached",
    )
    .optional(),
    Key::new(
        "place",
        Form::Named(&Form::Special("a list of hosts")),
        "tiers, and `clients` for the generators: where their instances run, in turn",
    )
    .optional(),
    Key::new(
        "factors",
        Form::Named(&Form::Special("levels")),
        "what is varied: a dotted key in quotes, and its levels",
    )
    .optional(),
    Key::new("design", Form::Table(&[DESIGN]), "how factors are combined").optional(),
    Key::new(
        "costs",
        Form::Named(&Form::Number),
        "cost of one unit, by its dotted key in quotes: `\"system.workers\" = 0.1`, `cores = 20`; \
         `kendall predict --carry` finds the cheapest setting",
    )
    .optional(),
    Key::new("published", Form::Special("a table"), "figures that others published of it")
        .optional(),
    Key::new(
        "toy",
        Form::Named(&Form::Special("a value")),
        "dotted keys in quotes, and their values with `--toy`",
    )
    .optional(),
];

pub(crate) const DESIGN: &[Key] = &[
    Key::choice(
        "kind",
        &["full", "one-at-a-time", "2kr", "fractional", "adaptive", "calibration"],
        "how factors are combined",
    )
    .or("'full'"),
    Key::texts(
        "generators",
        "fractional: such as `[\"D=ABC\"]`, letters in the order of the factors",
    ),
    Key::count("resolution", 3, 8, "fractional: of the smallest fraction, without generators")
        .or("4"),
    Key::text(
        "factor",
        "adaptive: what is searched; calibration: the load; its levels are the grid",
    )
    .or("'workload.clients'"),
    Key::count("max_runs", 3, 1_000, "adaptive: at most, for each combination of the others")
        .or("40"),
    Key::choice(
        "model",
        &["auto", "additive", "multiplicative"],
        "of the effects in the analysis; `auto` chooses by the residuals and says why",
    )
    .or("'auto'"),
];

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
    Key::quantity(
        "one_client",
        &TIME,
        "how long one client alone, without think time, is measured before the load of each run, after \
         a quarter of that time which does not count; `0s` does not, as where it is left out, but for \
         `1s` with the design `calibration`",
    )
    .optional(),
];

/// `repetitions` as a table.
pub(crate) const REPETITIONS: &[Key] = &[
    // The spread of fewer than three cannot be relied on.
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
    /// The same with one client alone, as it is measured before the load; `None` where it is not.
    pub(crate) fn alone(&self) -> Option<Self> {
        let duration = self.measure.one_client;
        if duration <= Seconds::ZERO {
            return None;
        }
        let mut alone = self.clone();
        alone.workload = Workload {
            arrivals: Arrivals::Closed { think_time: "0ms".into(), mean: Some(Seconds::ZERO) },
            clients: 1,
            generators: 1,
            threads: 1,
            reaches_one: false,
            ..alone.workload
        };
        alone.measure = Measure {
            duration,
            warm_up: Cut::Fixed(Seconds::ZERO),
            cool_down: Cut::Fixed(Seconds::ZERO),
            one_client: Seconds::ZERO,
            ..alone.measure
        };
        let load = &mut alone.effective["workload"];
        if let Some(load) = load.as_object_mut() {
            load.retain(|key, _| {
                !["rate", "arrivals", "spin", "reach", CAPACITY].contains(&key.as_str())
            });
        }
        for key in ["clients", "generators", "threads"] {
            load[key] = json!(1);
        }
        (load["loop"], load["think_time"]) = (json!("closed"), json!("0ms"));
        let measure = &mut alone.effective["measure"];
        measure["duration"] = json!(format!("{}s", duration.get()));
        for cut in ["warm_up", "cool_down", "one_client"] {
            measure[cut] = json!("0s");
        }
        Some(alone)
    }

    /// The system's tiers, who talks to whom, and the emulated network between them.
    pub fn graph(&self) -> Graph {
        self.topology.graph(|from, to| {
            let link = self.links.iter().find(|link| link.from == from && link.to == to)?;
            let limit = |way: usize| link.bandwidth_bytes_per_s[way].map(kendall_units::exact_f64);
            Some(EdgeLink {
                name: link.name(),
                delay_ns: link.delay.as_nanos(),
                bandwidth_bytes_per_s: limit(0),
                bandwidth_back_bytes_per_s: limit(1),
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
        let mut root = Section::new("", file, &[STUDY]);
        let (kind, topology, system) = system::read(root.section("system")?)?;
        let (links, links_effective) = links(root.section("links")?, &topology)?;
        let (workload, load) = workload::read(root.section("workload")?, kind.protocol)?;
        let entered = topology.instances(&topology.entry, workload.generators);
        workload.check_reach(&topology.entry, entered)?;
        let (mut measure, stated, measure_effective) = measure(root.section("measure")?)?;
        if !workload.is_job() && !measure.keeps_a_window() {
            let what = "leaves no whole window of a second between warm-up and cool-down, so no run could be used; \
                        measure for longer, or cut less";
            return Err(Problem { key: "measure.duration".into(), what: what.into() });
        }
        if let Some(check) = kind.check {
            check(&system, &load)?;
        }
        let tiers = (&topology, kind.sometimes);
        let (placement, placed) = Placement::read(&mut root, tiers, workload.generators)?;
        let ours = workload.driver.program.is_none() && !workload.is_job();
        measure.one_client = one_client(file, stated, ours && placement.used().is_empty())?;
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
        for key in ["jitter", "bandwidth", "bandwidth_back"] {
            if let Some(text) = link.opt_text(key)? {
                options.extend([format!("--{}", key.replace('_', "-")), text]);
            }
        }
        let mut bandwidth_bytes_per_s = [None; 2];
        for (key, ways) in [("bandwidth", 0..2), ("bandwidth_back", 1..2)] {
            let Some(text) = table.get(key).and_then(Value::as_str) else { continue };
            let parsed = kendall_units::parse_bandwidth(text);
            let limit = parsed.map_err(|error| link.problem(key, error.to_string()))?;
            bandwidth_bytes_per_s[ways].fill(limit);
        }
        let effective = link.finish()?;
        section.effective(name, effective);
        links.push(Link { from, to, options, delay, bandwidth_bytes_per_s });
    }
    Ok((links, section.named()))
}

/// `[measure]`, and how long one client alone is to be measured, where that is stated.
fn measure(mut section: Section<'_>) -> Result<(Measure, Option<Seconds>, Json), Problem> {
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
    let one_client =
        if section.has("one_client") { Some(section.seconds("one_client")?) } else { None };
    let measure = Measure {
        duration,
        warm_up,
        cool_down,
        repetitions,
        retries,
        confidence,
        speed_probe,
        one_client: Seconds::ZERO,
    };
    let mut effective = section.finish()?;
    if let Some(table) = effective.as_object_mut().filter(|_| !stated) {
        table.remove("speed_probe");
    }
    Ok((measure, one_client, effective))
}

/// How long one client alone is measured before the load. `possible`: whether it can be.
fn one_client(file: &Table, stated: Option<Seconds>, possible: bool) -> Result<Seconds, Problem> {
    let refuse = |what: String| Problem { key: "measure.one_client".into(), what };
    match stated {
        None => {
            let kind = file.get("design").and_then(|design| design.get("kind"));
            let calibrates = kind.and_then(Value::as_str) == Some("calibration");
            Ok(if calibrates && possible { USUAL_ONE_CLIENT } else { Seconds::ZERO })
        }
        Some(time) if time <= Seconds::ZERO => Ok(Seconds::ZERO),
        Some(_) if !possible => Err(refuse(
            "is for loads of Kendall's own that end when they are told to, on one machine; leave it out".into(),
        )),
        Some(time) if time.get() < LEAST_ONE_CLIENT_S => {
            Err(refuse(format!("`{time}` is shorter than 200ms; write `1s`, or `0s` for none")))
        }
        Some(time) => Ok(time),
    }
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

#[cfg(test)]
mod tests {
    use crate::file::StudyFile;

    use super::*;

    const STUDY: &str = "name = 'x'\n[system]\nkind = 'message-queue'\n[workload]\nclients = 8\n";

    fn settings(text: &str) -> Result<Settings, String> {
        let study = StudyFile::parse("x.toml", text.to_owned(), false, &[]);
        study.and_then(|study| study.settings(&[])).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn one_client_alone_is_measured_where_it_is_asked_for_and_in_calibrations() {
        let time = |text: &str| settings(text).unwrap().measure.one_client.get();
        let calibration = format!(
            "{STUDY}[factors]\n'workload.clients' = [1, 8]\n[design]\nkind = 'calibration'\n"
        );
        let cases = [
            (STUDY.to_owned(), 0.0),
            (format!("{STUDY}[measure]\none_client = '2s'\n"), 2.0),
            (calibration.clone(), 1.0),
            (format!("{calibration}[measure]\none_client = '0s'\n"), 0.0),
        ];
        for (text, expected) in cases {
            assert!((time(&text) - expected).abs() < 1e-12, "{text}");
        }
        // A calibration that was begun before there was such a key is the same study.
        assert!(settings(&calibration).unwrap().effective["measure"].get("one_client").is_none());
        let said = settings(&format!("{STUDY}[measure]\none_client = '50ms'\n")).unwrap_err();
        assert!(said.contains("shorter than 200ms"), "{said}");
    }

    /// Another program's load, and a job, cannot be limited to one client; a calibration runs them as they are.
    #[test]
    fn loads_that_cannot_be_one_client_are_refused_where_it_is_stated() {
        let program = "name = 'x'\n[system]\nkind = 'compute'\n[workload]\nprotocol = 'program'\n\
                       command = ['load', '{target}']\n[factors]\n'workload.clients' = [1, 8]\n\
                       [design]\nkind = 'calibration'\n";
        assert!(settings(program).unwrap().alone().is_none());
        let said = settings(&format!("{program}[measure]\none_client = '1s'\n")).unwrap_err();
        assert!(said.contains("measure.one_client") && said.contains("leave it out"), "{said}");
    }

    /// Each of these was run in full, and each run was rejected.
    #[test]
    fn a_measurement_without_a_whole_window_is_refused_before_it_starts() {
        let with = |measure: &str| settings(&format!("{STUDY}[measure]\n{measure}\n"));
        for (measure, keeps) in [
            ("duration = '1.5s'\nwarm_up = '1s'", false),
            ("duration = '3s'\nwarm_up = '1.5s'\ncool_down = '0.6s'", false),
            ("duration = '500ms'\nwarm_up = '200ms'", false),
            ("duration = '500ms'", true),
            ("duration = '1s'\nwarm_up = '0s'\ncool_down = '0s'", true),
            ("duration = '2s'\nwarm_up = '1s'", true),
            ("duration = '1.95s'\nwarm_up = '1s'", true),
            ("duration = '3s'\nwarm_up = '1s'\ncool_down = '1s'", true),
        ] {
            match with(measure) {
                Ok(_) => assert!(keeps, "{measure}"),
                Err(said) => {
                    assert!(
                        !keeps && said.contains("no whole window of a second"),
                        "{measure}: {said}"
                    );
                }
            }
        }
        let job = "name = 'x'\n[system]\nkind = 'build-cluster'\n[measure]\nduration = '500ms'\nwarm_up = '200ms'\n[workload]\nprotocol = 'bazel'\n";
        assert!(settings(job).is_ok(), "{:?}", settings(job).err());
    }

    #[test]
    fn one_client_alone_neither_thinks_nor_has_a_rate() {
        let text = format!(
            "{STUDY}loop = 'open'\nrate = '100/s'\ngenerators = 2\n[measure]\none_client = '1s'\n"
        );
        let all = settings(&text).unwrap();
        let alone = all.alone().unwrap();
        assert_eq!(
            (alone.workload.clients, alone.workload.generators, alone.workload.threads),
            (1, 1, 1)
        );
        let Arrivals::Closed { think_time, .. } = &alone.workload.arrivals else {
            panic!("{:?}", alone.workload.arrivals)
        };
        assert_eq!(think_time, "0ms");
        assert_eq!(alone.topology, all.topology);
        let load = &alone.effective["workload"];
        assert_eq!((&load["clients"], &load["loop"]), (&json!(1), &json!("closed")));
        assert!(load.get("rate").is_none(), "{load}");
        assert_eq!(alone.effective["measure"]["duration"], "1s");
        // One client alone has none before it.
        assert!(alone.alone().is_none());
        assert!((all.measure.under_load().get() - 61.25).abs() < 1e-9);
    }
}
