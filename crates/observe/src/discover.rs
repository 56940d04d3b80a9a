//! A system file from what a Prometheus scrapes: a tier for each job whose metrics a preset knows.
//!
//! Who calls whom is taken from what each speaks: proxies call services, these borrow from pools and ask stores. Which of
//! several is the entry, no metric tells: it is asked for. What is a guess is marked as one in the file.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use kendall_units::counted;
use regex::escape;

use crate::fetch::metrics;
use crate::preset::{PRESETS, Preset, Stands};
use crate::quantity::{CPU_TIME, Quantity};
use crate::source::without_credentials;
use crate::system::{CORES, kinds_of_servers};
use crate::twice::{Beside, is_local};

/// Scrape interval where the server does not tell it.
const USUAL_SCRAPE_S: u64 = 15;

/// Processors that a program in Go uses at most: its own, or those of the exporter beside another.
const GO_PROCESSORS: &str = "go_sched_gomaxprocs_threads";

const PODS: &str =
    ",\n# with a selector by `namespace` and `pod` alone, which the page of cAdvisor has, too";

/// Metrics of the monitoring itself, and of what is pushed to it once, such as by jobs of a night.
const NO_TIER: [&str; 5] = [
    "prometheus_build_info",
    "alertmanager_build_info",
    "thanos_build_info",
    "pushgateway_build_info",
    "push_time_seconds",
];

/// Requests of a backend of HAProxy, whose times its page has as the mean of so many of the last.
pub(crate) const LAGS: &str = "haproxy_backend_http_requests_total";
pub(crate) const LAST_REQUESTS: u32 = 1_024;

/// Windows so many times as long as the time of such a mean hardly have requests of those before; no longer than an hour of
/// data allows.
const LAGS_A_WINDOW: u64 = 6;
const LONGEST_BLOCK_S: u64 = 600;

/// How runtimes name containers.
const NAMES: &str = ",\n# with a selector by `pod` (`pod_name` before Kubernetes 1.16), `name` (Docker) or `id` (control groups)";

/// What runtimes and clients tell of themselves, whatever they run.
const OF_RUNTIMES: [&str; 11] = [
    "dotnet_",
    "go_",
    "jvm_",
    "net_conntrack_",
    "nodejs_",
    "process_",
    "promhttp_",
    "python_",
    "scrape_",
    "system_cpu_",
    "system_load_",
];

/// Metrics by which a job is shown that no preset knows.
const SHOWN: usize = 3;

const WRITE: &str =
    "docs/observe-metrics.md (\"My metrics look like this\") says which queries to write";

const NO_BUSY: &str = "# No metric here tells how busy it is. For its capacity, add `queries.busy` and `servers`: CPU seconds per second and cores, or\n\
                       # busy workers and workers.\n";

/// Where what was in an address is given.
const SECRET: &str = "# A user and a password are in no file: write USER:PASSWORD into a file of its own, and give it with --basic-file.\n";

/// A job of a Prometheus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Value of its label `job`, or of `exported_job` where another passes it on.
    pub name: String,
    /// The job that passes on what another server scraped, whose labels are then `exported_…`.
    pub passed_by: Option<String>,
    /// Addresses of its targets, without those that are down.
    pub instances: Vec<String>,
    /// Distance of its scrapes, where the server tells it.
    pub scrape_s: Option<u64>,
    /// Over how long its response times are means of the last requests, where they are such.
    pub lag_s: Option<u64>,
    /// Labels of which its targets have several values, though these may be of several systems.
    pub places: Vec<(String, Vec<String>)>,
    /// Names of its metrics.
    pub metrics: Vec<String>,
    /// How what it counts stands beside what others do, by their selectors, where that is known.
    pub beside: BTreeMap<String, Beside>,
}

impl Job {
    /// Matchers of its series.
    pub(crate) fn selector(&self) -> String {
        match &self.passed_by {
            None => matcher("job", &self.name),
            Some(job) => format!("{},{}", matcher("job", job), matcher("exported_job", &self.name)),
        }
    }

    /// A system file with one tier for all of some jobs.
    pub(crate) fn together(preset: &str, jobs: &[&Self]) -> String {
        let any = |label: &str, value: &dyn Fn(&Self) -> String| {
            let values: BTreeSet<String> = jobs.iter().map(|job| value(job)).collect();
            format!("{label}=~{:?}", values.into_iter().collect::<Vec<_>>().join("|"))
        };
        let by = any("job", &|job| escape(job.passed_by.as_ref().unwrap_or(&job.name)));
        let passed = any("exported_job", &|job| match &job.passed_by {
            Some(_) => escape(&job.name),
            None => String::new(),
        });
        let step_s = jobs.iter().filter_map(|job| job.scrape_s).max().unwrap_or(USUAL_SCRAPE_S);
        format!(
            "name = \"together\"\nentry = \"all\"\nstep = \"{step_s}s\"\n[tiers.all]\npreset = \"{preset}\"\nselector = {}\n",
            quoted(&format!("{by},{passed}"))
        )
    }

    /// Its name, and by whom it is passed on.
    fn shown(&self) -> String {
        let passed = self.passed_by.as_ref().map(|by| format!(" (passed on by {by})"));
        format!("{}{}", self.name, passed.unwrap_or_default()).escape_debug().to_string()
    }

    /// Whether these are series of it.
    pub(crate) fn has(&self, labels: &BTreeMap<String, String>) -> bool {
        let is = |label: &str, value: &str| labels.get(label).map_or("", String::as_str) == value;
        match &self.passed_by {
            None => is("job", &self.name) && is("exported_job", ""),
            Some(by) => is("job", by) && is("exported_job", &self.name),
        }
    }

    /// The monitoring is no part of what it monitors, and what was pushed is not of now.
    fn is_monitoring(&self) -> bool {
        NO_TIER.iter().any(|name| self.metrics.iter().any(|metric| metric == name))
    }

    /// What it is by its first preset.
    pub(crate) fn preset(&self) -> Option<&'static Preset> {
        recognized(self).first().map(|found| found.preset)
    }

    /// Whether its targets are some of another's, by their addresses: those of this machine are of many.
    fn is_part_of(&self, other: &Self) -> bool {
        let is_passed = self.passed_by.is_some() || other.passed_by.is_some();
        let is_there =
            |one: &String| other.instances.contains(one) && !(is_passed && is_local(one));
        !self.instances.is_empty() && self.instances.iter().all(is_there)
    }

    /// Whether its response times are means of the last requests.
    pub(crate) fn lags(&self) -> bool {
        self.metrics.iter().any(|metric| metric == LAGS)
    }

    pub(crate) fn instance_label(&self) -> &'static str {
        if self.passed_by.is_some() { "exported_instance" } else { "instance" }
    }

    /// Matchers of the series of one instance.
    fn at(&self, instance: &str) -> String {
        format!("{},{}", self.selector(), matcher(self.instance_label(), instance))
    }
}

/// Why there is no system file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiscoverError {
    #[error(
        "{url} has {jobs}, and none by which a preset is recognized that counts requests{unknown}; {WRITE}"
    )]
    Nothing { url: String, jobs: String, unknown: String },
    #[error("which of these is the entry, where requests come in: {0}? Give it as `--entry NAME`")]
    WhichEntry(String),
}

/// A tier that was recognized.
struct Found<'a> {
    name: String,
    job: &'a Job,
    preset: &'static Preset,
}

impl Found<'_> {
    /// Whether its page has a metric that the query of its preset names.
    fn gives(&self, quantity: Quantity) -> bool {
        let query = self.preset.queries().remove(&quantity);
        query.is_some_and(|query| metrics(&query).iter().any(|metric| self.has(metric)))
    }

    /// Whether the page tells its own CPU time, so that its servers are processors.
    fn by_its_processor(&self) -> bool {
        let busy = self.preset.queries().remove(&Quantity::Busy);
        !self.preset.aside
            && self.has(CPU_TIME)
            && busy.is_none_or(|query| query.contains(CPU_TIME))
    }

    /// The query for how busy it is that its page answers.
    fn busy(&self) -> Option<String> {
        let of_preset = self.preset.queries().remove(&Quantity::Busy);
        let of_preset = of_preset.filter(|_| self.gives(Quantity::Busy));
        of_preset.or_else(|| self.by_its_processor().then(|| CPU_TIME.to_owned()))
    }

    fn has(&self, name: &str) -> bool {
        self.job.metrics.iter().any(|metric| metric == name)
    }
}

/// The system file of some jobs.
///
/// # Errors
/// [`DiscoverError`] where nothing is recognized, or where it cannot be known which tier is the entry.
pub fn system_file(url: &str, jobs: &[Job], entry: Option<&str>) -> Result<String, DiscoverError> {
    let address = without_credentials(url);
    let secret = if address == url { "" } else { SECRET };
    let url = &address;
    let (once, twice) = apart(jobs);
    let unknown: Vec<String> = once.iter().copied().filter_map(of_no_preset).collect();
    let mut all: Vec<Found> = once.into_iter().flat_map(recognized).collect();
    for place in 1..all.len() {
        let (before, rest) = all.split_at_mut(place);
        let one = &mut rest[0];
        let is_taken = |name: &String| before.iter().any(|other| other.name == *name);
        let mut others = (2..).map(|number| format!("{}-{number}", one.name));
        if is_taken(&one.name) {
            one.name = others.find(|name| !is_taken(name)).unwrap_or_default();
        }
    }
    let (machines, mut tiers): (Vec<Found>, Vec<Found>) =
        all.into_iter().partition(|one| one.preset.stands == Stands::Machine);
    tiers.sort_by_key(|one| one.preset.stands);
    let Some(first) = tiers.first() else {
        let sign = if unknown.is_empty() { "" } else { ": " };
        return Err(DiscoverError::Nothing {
            url: url.to_owned(),
            jobs: counted(jobs.len(), "job"),
            unknown: format!("{sign}{}", unknown.join(", ")),
        });
    };
    let ahead = first.preset.stands;
    // A proxy comes before a single service; of several, one may call the proxy itself.
    let services = tiers.iter().filter(|one| one.preset.stands == Stands::Service).count();
    let may_be = |one: &&Found| {
        one.preset.stands == ahead || (one.preset.stands == Stands::Service && services > 1)
    };
    let candidates: Vec<&str> = match entry {
        Some(entry) => {
            tiers.iter().map(|one| one.name.as_str()).filter(|name| *name == entry).collect()
        }
        None => tiers.iter().filter(may_be).map(|one| one.name.as_str()).collect(),
    };
    let [entry] = candidates.as_slice() else {
        let names: Vec<&str> = tiers.iter().map(|one| one.name.as_str()).collect();
        let shown = if candidates.is_empty() { names } else { candidates };
        return Err(DiscoverError::WhichEntry(shown.join(", ")));
    };
    let entry = (*entry).to_owned();
    let mut text = written(url, &entry, &tiers, &machines);
    text.insert_str(0, secret);
    text.push_str(&left_out(&twice, &unknown));
    Ok(text)
}

/// Jobs that are no tier of the file, though they may be of the system.
fn left_out(twice: &[(&Job, &Job)], unknown: &[String]) -> String {
    let again = twice.iter().map(|(job, first)| {
        let how = if job.is_part_of(first) {
            "both scrape one address"
        } else {
            "its counters always stand where those there do; if it is another application, write a tier for it"
        };
        format!("it is `{}` again ({how}): {}", first.shown(), job.shown())
    });
    let unknown = unknown.iter().map(|job| format!("no preset knows its metrics: {job}; {WRITE}"));
    again.chain(unknown).map(|why| format!("\n# Left out, since {why}\n")).collect()
}

/// Jobs, and those that scrape what one of them does, with that one.
fn apart(jobs: &[Job]) -> (Vec<&Job>, Vec<(&Job, &Job)>) {
    let (mut once, mut twice): (Vec<&Job>, Vec<(&Job, &Job)>) = (Vec::new(), Vec::new());
    // What is passed on has lost scrapes, what has more targets is the whole, and names of copies are longer.
    let mut order: Vec<&Job> = jobs.iter().collect();
    order
        .sort_by_key(|job| (job.passed_by.is_some(), Reverse(job.instances.len()), job.name.len()));
    for job in order {
        let same = |first: &&&Job| match job.beside.get(&first.selector()) {
            Some(Beside::Same) => true,
            Some(Beside::Other) => false,
            Some(Beside::Alike) | None => {
                let preset = |job: &Job| job.preset().map(|preset| preset.name.as_str());
                let is_alike = preset(job).map_or(job.metrics == first.metrics, |own| {
                    preset(first).is_some_and(|other| own == other)
                });
                is_alike && job.is_part_of(first)
            }
        };
        match once.iter().find(same) {
            Some(first) => twice.push((job, *first)),
            None => once.push(job),
        }
    }
    let is_once = |job: &&Job| once.iter().any(|one| std::ptr::eq(*one, *job));
    (jobs.iter().filter(is_once).collect(), twice)
}

/// A job whose metrics no preset knows, or none but what its runtime tells, with some of these metrics.
fn of_no_preset(job: &Job) -> Option<String> {
    let of_runtime =
        |name: &str| name == "up" || OF_RUNTIMES.iter().any(|runtime| name.starts_with(runtime));
    let preset = job.preset();
    if job.is_monitoring() || preset.is_some_and(|preset| !of_runtime(&preset.sign)) {
        return None;
    }
    let named = |metric: &String| {
        let is_told = ["_created", "_info"].iter().any(|end| metric.ends_with(end));
        let stem = ["_bucket", "_sum"].iter().find_map(|end| metric.strip_suffix(end));
        let count = stem.map(|stem| format!("{stem}_count"));
        let count = count.filter(|count| job.metrics.contains(count));
        (!is_told && !of_runtime(metric)).then(|| count.unwrap_or_else(|| metric.clone()))
    };
    let all: BTreeSet<String> = job.metrics.iter().filter_map(named).collect();
    let mut all: Vec<String> = all.into_iter().collect();
    // What counts requests is what is looked for.
    all.sort_by_key(|metric| {
        let counts = metric.ends_with("_count") || metric.ends_with("_total");
        (!(counts && metric.contains("request")), !counts)
    });
    let more = if all.len() > SHOWN { ", …" } else { "" };
    all.truncate(SHOWN);
    let (name, all) = (job.shown(), all.join(", ").escape_debug().to_string());
    (!all.is_empty()).then(|| format!("{name} ({all}{more})"))
}

/// What one job is: the first preset that counts its requests, and pools beside it; its processors else.
fn recognized(job: &Job) -> Vec<Found<'_>> {
    let has = |name: &str| job.metrics.iter().any(|metric| metric == name);
    if job.is_monitoring() {
        return Vec::new();
    }
    let known: Vec<&'static Preset> = PRESETS.iter().filter(|preset| has(&preset.sign)).collect();
    let of = |is: fn(Stands) -> bool| known.iter().copied().find(|preset| is(preset.stands));
    let requests = of(|stands| !matches!(stands, Stands::Pool | Stands::Machine));
    let main = requests.or_else(|| of(|stands| stands == Stands::Pool)).or_else(|| of(|_| true));
    let pools =
        known.iter().copied().filter(|preset| preset.stands == Stands::Pool && requests.is_some());
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let name: String = job.name.chars().map(plain).collect();
    let name = match name.trim_matches('-') {
        "" => "tier".to_owned(),
        name => name.to_owned(),
    };
    let found = |name: String, preset| Found { name, job, preset };
    main.map(|preset| found(name.clone(), preset))
        .into_iter()
        .chain(pools.map(|preset| found(format!("{name}-{}", preset.name), preset)))
        .collect()
}

fn written(url: &str, entry: &str, tiers: &[Found<'_>], machines: &[Found<'_>]) -> String {
    let stands =
        |name: &str| tiers.iter().find(|one| one.name == name).map(|one| one.preset.stands);
    let (used, before): (Vec<&Found>, Vec<&Found>) =
        tiers.iter().partition(|one| Some(one.preset.stands) >= stands(entry));
    let scrape_s = used.iter().filter_map(|one| one.job.scrape_s).max();
    let step = scrape_s.unwrap_or(USUAL_SCRAPE_S);
    let mut text = format!(
        "# Recognized at {url}. Who calls whom, and which tier is the entry unless `--entry` named it, is a\n\
         # guess from what each speaks: correct `calls` and `entry`.\n\
         name = \"my system\"\nentry = \"{entry}\"\nprometheus = \"{url}\"\nstep = \"{step}s\"\nscrape = \"{step}s\"{}\n",
        if scrape_s.is_none() {
            "          # a guess: the server does not tell its scrape interval"
        } else {
            ""
        }
    );
    text.push_str(&block_of_means(&used, step));
    let processors = own_processors(&used, machines);
    let level = |one: &Found| if one.name == entry { None } else { Some(one.preset.stands) };
    for one in &used {
        let next = used.iter().map(|other| level(other)).filter(|other| *other > level(one)).min();
        let called = used.iter().filter(|other| Some(level(other)) == next);
        let mut called: Vec<String> = called.map(|other| format!("\"{}\"", other.name)).collect();
        let own = processors.filter(|(holder, ..)| *holder == one.name);
        called.extend(own.map(|(_, machine, _)| format!("\"{}\"", machine.name)));
        let instances = format!("{}{}", instances(one.job), alike(one, &used));
        let held = if one.preset.held { "held = true  # while those below work\n" } else { "" };
        write!(
            text,
            "\n# {}{instances}\n[tiers.{}]\npreset = \"{}\"\nselector = {}\ncalls = [{}]\n{}{}",
            one.preset.what,
            one.name,
            one.preset.name,
            quoted(&one.job.selector()),
            called.join(", "),
            held,
            servers(one, machines)
        )
        .unwrap_or_default();
        if one.by_its_processor() && !one.gives(Quantity::Busy) {
            let query = format!("sum(rate({CPU_TIME}{{{}}}[{{window}}]))", one.job.selector());
            writeln!(text, "queries.busy = {}", quoted(&query)).unwrap_or_default();
        }
    }
    text.push_str(&processors.map_or_else(String::new, below_workers));
    for one in before {
        writeln!(text, "\n# Left out, since it comes before the entry: {}", one.name)
            .unwrap_or_default();
    }
    let is_used = |one: &&Found| processors.is_some_and(|(_, used, _)| used.name == one.name);
    let is_told = |one: &&Found| !is_used(one) && of_no_preset(one.job).is_none();
    for one in machines.iter().filter(is_told) {
        writeln!(
            text,
            "\n# Left out, since it counts no requests: {} ({}, preset `{}`); tiers whose workers share it may call it{}",
            one.name,
            one.preset.what,
            one.preset.name,
            match one.preset.name.as_str() {
                "container" => NAMES,
                "kube-state-metrics" => PODS,
                _ => "",
            }
        )
        .unwrap_or_default();
    }
    text
}

/// The length of a window where response times are means of the last requests.
fn block_of_means(used: &[&Found<'_>], step: u64) -> String {
    let Some(one) = used.iter().find(|one| one.job.lags()) else { return String::new() };
    let mean = format!(
        "# `{}` tells the mean time of the last {LAST_REQUESTS} requests of each backend",
        one.name
    );
    let Some(lag_s) = one.job.lag_s else {
        return format!(
            "{mean}, and serves none now: give `block`, {LAGS_A_WINDOW} times as long as so many take\n"
        );
    };
    let wanted_s = LAGS_A_WINDOW * lag_s.max(2 * step);
    let block_s = wanted_s.min(LONGEST_BLOCK_S).div_ceil(step) * step;
    let late =
        if wanted_s > block_s { "; better as many, with a longer time (--from)" } else { "" };
    format!(
        "block = \"{block_s}s\"\n{mean}, now those of {lag_s} s: windows of {wanted_s} s hardly have requests of others{late}\n"
    )
}

/// How many instances a tier is the sum of, and which places.
fn instances(job: &Job) -> String {
    let mut text = match job.instances.len() {
        0 | 1 => String::new(),
        count => format!("; the sum of {count} instances"),
    };
    for (label, values) in &job.places {
        write!(
            text,
            "\n# of several places ({label}: {}): where these are systems of their own, add one of them to the selector",
            values.join(", ").escape_debug()
        )
        .unwrap_or_default();
    }
    text
}

/// Another tier that may be the same application.
fn alike(one: &Found<'_>, used: &[&Found<'_>]) -> String {
    let is_alike = |other: &&&Found| {
        let beside = one.job.beside.get(&other.job.selector());
        beside == Some(&Beside::Alike) && other.preset.name == one.preset.name
    };
    used.iter().find(is_alike).map_or_else(String::new, |other| {
        format!(
            "\n# its counters stand where those of `{}` do: if both are one application, leave one of them out",
            other.name
        )
    })
}

/// A tier of the processors that workers share.
fn below_workers((holder, machine, instance): (&str, &Found<'_>, &str)) -> String {
    format!(
        "\n# the processors of the host of `{holder}`, which its workers share: a guess from their addresses\n\
         [tiers.{}]\npreset = \"host\"\nselector = {}\n",
        machine.name,
        quoted(&machine.job.at(instance))
    )
}

/// The first tier whose servers are workers that are alone on a host, that host's job and its instance.
fn own_processors<'a>(
    used: &[&'a Found<'a>],
    machines: &'a [Found<'a>],
) -> Option<(&'a str, &'a Found<'a>, &'a str)> {
    used.iter().filter(|one| one.preset.held).find_map(|holder| {
        let (machine, instance) = host_of(holder, machines)?;
        let is_beside = |other: &&Found| {
            other.name != holder.name
                && host_of(other, machines).is_some_and(|(_, at)| at == instance)
        };
        let is_alone = !used.iter().any(is_beside);
        is_alone.then_some((holder.name.as_str(), machine, instance))
    })
}

/// The job that tells of the host on which all instances of a tier are, and its instance there.
fn host_of<'a>(one: &Found<'_>, machines: &'a [Found<'a>]) -> Option<(&'a Found<'a>, &'a str)> {
    // Exporters of several targets name these by addresses such as `redis://10.0.0.2:6379`.
    let host = |instance: &str| {
        let place = instance.split_once("://").map_or(instance, |(_, place)| place);
        let place = place.split('/').next().unwrap_or(place);
        let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
        place.rsplit_once(':').map_or(place, |(host, _)| host).to_owned()
    };
    let own: Vec<String> = one.job.instances.iter().map(|instance| host(instance)).collect();
    let hosts = machines.iter().filter(|machine| machine.preset.name == "host");
    let mut all = hosts.flat_map(|machine| {
        machine.job.instances.iter().map(move |instance| (machine, instance.as_str()))
    });
    all.find(|(_, instance)| !own.is_empty() && own.iter().all(|other| *other == host(instance)))
}

/// How many servers a tier has: by its preset, by what its page says of its processors, by those of its host; else what is
/// to be filled in.
fn servers(one: &Found<'_>, machines: &[Found<'_>]) -> String {
    if one.gives(Quantity::Servers) {
        return String::new();
    }
    let Some(busy) = one.busy() else { return NO_BUSY.to_owned() };
    if one.by_its_processor() && one.has(GO_PROCESSORS) {
        let query = format!("sum({GO_PROCESSORS}{{{}}})", one.job.selector());
        return format!("queries.servers = {}\n", quoted(&query));
    }
    if let Some((machine, instance)) = host_of(one, machines).filter(|_| !one.preset.held) {
        let of_host = machine.job.at(instance);
        let query = format!("count(node_cpu_seconds_total{{mode=\"idle\",{of_host}}})");
        let guess = if one.by_its_processor() { "" } else { "a guess: " };
        return format!(
            "queries.servers = {}  # {guess}the processors of its host\n",
            quoted(&query)
        );
    }
    let (what, why) = match kinds_of_servers(&busy) {
        CORES => ("cores it may use", "CPU time, so not its workers or threads"),
        workers => (workers, "those of them that are busy (or threads, connections), so not cores"),
    };
    let all = if one.job.instances.len() > 1 { ", of all instances together" } else { "" };
    format!(
        "# servers = N             # fill in: the {what}{all}. Its `busy` counts {why}.\n\
         # Without it, all but its capacity and utilization is answered.\n"
    )
}

pub(crate) fn matcher(label: &str, value: &str) -> String {
    format!("{label}={value:?}")
}

/// As a text of TOML.
fn quoted(text: &str) -> String {
    if text.contains('\'') { toml::Value::from(text).to_string() } else { format!("'{text}'") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::System;

    fn job(name: &str, instance: &str, metrics: &[&str]) -> Job {
        Job {
            name: name.to_owned(),
            passed_by: None,
            instances: vec![instance.to_owned()],
            scrape_s: Some(5),
            lag_s: None,
            places: Vec::new(),
            metrics: metrics.iter().map(|metric| (*metric).to_owned()).collect(),
            beside: BTreeMap::new(),
        }
    }

    fn jobs() -> Vec<Job> {
        vec![
            job(
                "db",
                "10.0.0.2:9187",
                &["pg_stat_database_xact_commit", "pg_stat_activity_count", CPU_TIME],
            ),
            job("node", "10.0.0.2:9100", &["node_cpu_seconds_total", "process_cpu_seconds_total"]),
            job(
                "prometheus",
                "localhost:9090",
                &["prometheus_build_info", "process_cpu_seconds_total"],
            ),
            job(
                "app/web",
                "10.0.0.3:80",
                &["http_server_request_duration_seconds_count", GO_PROCESSORS, CPU_TIME],
            ),
            job("front", "10.0.0.4:9113", &["nginx_http_requests_total"]),
        ]
    }

    #[test]
    fn proxies_call_services_and_these_stores() {
        let text = system_file("http://p:9090", &jobs(), None).unwrap();
        let system = System::parse(&text).unwrap();
        let names: Vec<&str> = system.tiers.iter().map(|tier| tier.name.as_str()).collect();
        assert_eq!(names, ["front", "app-web", "db"], "{text}");
        assert_eq!((system.step_s, system.scrape_s), (5, 5));
        let query = |tier: usize, quantity| system.tiers[tier].queries[&quantity].as_str();
        assert!(query(1, Quantity::Throughput).contains("{job=\"app/web\"}"), "{text}");
        assert!(
            query(1, Quantity::Busy).starts_with("sum(rate(process_cpu_seconds_total{"),
            "{text}"
        );
        assert_eq!(
            query(1, Quantity::Servers),
            "sum(go_sched_gomaxprocs_threads{job=\"app/web\"})"
        );
        assert!(query(2, Quantity::Servers).contains("instance=\"10.0.0.2:9100\""), "{text}");
        assert!(text.contains("Left out, since it counts no requests: node"), "{text}");
        assert!(!text.contains("prometheus ("), "{text}");
    }

    /// HAProxy's times are means of its last requests: windows are long beside the time of so many.
    #[test]
    fn times_of_the_last_requests_need_long_windows() {
        let block = |lag_s: Option<u64>, step_s: u64| {
            let mut jobs = jobs();
            jobs[4] = job("lb", "10.0.0.4:8404", &["haproxy_frontend_http_requests_total", LAGS]);
            jobs.iter_mut().for_each(|job| job.scrape_s = Some(step_s));
            jobs[4].lag_s = lag_s;
            let text = system_file("http://p:9090", &jobs, None).unwrap();
            let system = System::parse(&text).unwrap();
            assert!(text.contains("the mean time of the last 1024 requests"), "{text}");
            system.whole_windows().unwrap();
            (system.block_s, text.contains("with a longer time"))
        };
        assert_eq!(block(Some(20), 5), (Some(120), false));
        assert_eq!(block(Some(21), 7), (Some(126), false));
        assert_eq!(block(Some(1), 15), (Some(180), false));
        assert_eq!(block(Some(200), 15), (Some(600), true));
        assert_eq!(block(None, 15), (None, false));
        let text = system_file("http://me:secret@p:9090", &jobs(), None).unwrap();
        assert!(!text.contains("secret") && text.contains("--basic-file"), "{text}");
        assert_eq!(System::parse(&text).unwrap().prometheus.as_deref(), Some("http://p:9090"));
    }

    /// Most exporters are programs in Go: their processors and CPU time are not those of what they report.
    #[test]
    fn an_exporters_processors_are_not_its_tiers() {
        let own = [GO_PROCESSORS, CPU_TIME];
        let of = |name, metrics: &[&str]| job(name, "10.0.0.2:1", &[metrics, &own].concat());
        let jobs = [
            of("front", &["nginx_http_requests_total"]),
            of("app", &["gunicorn_request_duration_count", "gunicorn_requests", "up"]),
            of(
                "cache",
                &["redis_commands_processed_total", "redis_cpu_user_main_thread_seconds_total"],
            ),
            of("db", &["pg_stat_database_xact_commit", "pg_stat_activity_count"]),
            job("node", "10.0.0.2:9100", &["node_cpu_seconds_total"]),
        ];
        let text = system_file("http://p:9090", &jobs, None).unwrap();
        assert!(!text.contains(GO_PROCESSORS) && !text.contains("process_cpu"), "{text}");
        let system = System::parse(&text).unwrap();
        let tier = |name: &str| system.tiers.iter().find(|tier| tier.name == name).unwrap();
        let servers = |name: &str| tier(name).queries.get(&Quantity::Servers).map(String::as_str);
        assert_eq!(
            servers("cache"),
            Some("count(redis_cpu_user_main_thread_seconds_total{job=\"cache\"})")
        );
        assert!(servers("db").is_some_and(|query| query.contains("node_cpu")), "{text}");
        assert_eq!((tier("app").servers, tier("app").held), (None, true), "{text}");
        assert!(!tier("front").held && text.contains("# a guess: the processors"), "{text}");
    }

    #[test]
    fn jobs_whose_names_differ_in_signs_alone_are_tiers_of_their_own() {
        let names = ["a/b", "a-b", "é", "", "a-b-2"];
        let jobs =
            names.map(|name| job(name, &format!("{name}:1"), &["nginx_http_requests_total"]));
        let text = system_file("http://p:9090", &jobs, Some("a-b")).unwrap();
        let system = System::parse(&text).unwrap();
        let names: Vec<&str> = system.tiers.iter().map(|tier| tier.name.as_str()).collect();
        assert_eq!(names, ["a-b", "a-b-2", "tier", "tier-2", "a-b-2-2"], "{text}");
    }

    /// A service may call the proxy that others are behind; a page that is scraped by two jobs is one tier; and
    /// the processors that workers alone use are behind them.
    #[test]
    fn what_names_alone_do_not_tell_is_asked_or_found() {
        let gunicorn = ["gunicorn_request_duration_count", "gunicorn_requests"];
        let mut jobs = jobs();
        jobs.push(job("workers", "10.0.0.9:9102", &gunicorn));
        jobs.push(job("workers-again", "10.0.0.9:9102", &gunicorn));
        jobs.push(job("cpu", "10.0.0.9:9100", &["node_cpu_seconds_total"]));
        let asked = system_file("http://p:9090", &jobs, None).unwrap_err().to_string();
        assert!(asked.contains("front, app-web, workers?"), "{asked}");
        let text = system_file("http://p:9090", &jobs, Some("app-web")).unwrap();
        let again = "it is `workers` again (both scrape one address): workers-again";
        assert!(text.contains(again), "{text}");
        let system = System::parse(&text).unwrap();
        let calls = |name: &str| -> Vec<&str> {
            let tier = system.tiers.iter().find(|tier| tier.name == name).unwrap();
            tier.calls.iter().map(|called| system.tiers[*called].name.as_str()).collect()
        };
        assert_eq!((calls("app-web"), calls("workers")), (vec!["workers"], vec!["db", "cpu"]));
    }

    /// What a federation passes on, what an exporter of several targets names by addresses, and what was pushed.
    #[test]
    fn labels_of_other_monitoring_are_selected_by() {
        let passed = |one: Job| Job { passed_by: Some("federate".to_owned()), ..one };
        let redis = ["redis_commands_processed_total", "redis_cpu_user_main_thread_seconds_total"];
        let mut jobs = vec![
            passed(job("web", "10.0.0.9:80", &["http_request_duration_seconds_count", CPU_TIME])),
            passed(job("node", "10.0.0.9:9100", &["node_cpu_seconds_total"])),
            job("cache", "redis://user@10.0.0.2:6379/1", &redis),
            job("nightly", "", &["http_request_duration_seconds_count", "push_time_seconds"]),
        ];
        jobs[0].places = vec![("namespace".to_owned(), vec!["live".to_owned(), "test".to_owned()])];
        let text = system_file("http://p:9090", &jobs, None).unwrap();
        let system = System::parse(&text).unwrap();
        let names: Vec<&str> = system.tiers.iter().map(|tier| tier.name.as_str()).collect();
        assert_eq!(names, ["web", "cache"], "{text}");
        let query = |quantity| system.tiers[0].queries[&quantity].as_str();
        let both = "{job=\"federate\",exported_job=\"web\"}";
        assert!(query(Quantity::Throughput).contains(both), "{text}");
        let at = "job=\"federate\",exported_job=\"node\",exported_instance=\"10.0.0.9:9100\"";
        assert!(query(Quantity::Servers).contains(at), "{text}");
        assert!(text.contains("# of several places (namespace: live, test)"), "{text}");
        let host = job("node", "10.0.0.2:9100", &["node_cpu_seconds_total"]);
        let [cache, node] = [&jobs[2], &host].map(|job| recognized(job).remove(0));
        assert!(host_of(&cache, &[node]).is_some());
    }

    #[test]
    fn which_of_several_is_the_entry_is_asked() {
        let mut jobs = jobs();
        jobs.push(job("api", "10.0.0.5:80", &["http_request_duration_seconds_count"]));
        jobs.remove(4);
        let asked = system_file("http://p:9090", &jobs, None).unwrap_err().to_string();
        assert!(asked.contains("app-web, api?") && asked.contains("--entry"), "{asked}");
        let text = system_file("http://p:9090", &jobs, Some("api")).unwrap();
        let system = System::parse(&text).unwrap();
        let names: Vec<&str> = system.tiers.iter().map(|tier| tier.name.as_str()).collect();
        assert_eq!(names, ["api", "app-web", "db"], "{text}");
        assert!(system_file("http://p:9090", &jobs, Some("nobody")).is_err());
        let nothing = system_file("http://p:9090", &jobs[1..2], None).unwrap_err();
        assert!(nothing.to_string().contains("has 1 job, and none"), "{nothing}");
    }

    /// A number of workers beside a `busy` that counts CPU time gives a capacity several times too high.
    #[test]
    fn what_is_to_be_filled_in_is_what_its_busy_query_counts() {
        let written = |metrics: &[&str]| {
            let mut one = job("api", "10.0.0.9:80", metrics);
            one.instances.push("10.0.0.8:80".to_owned());
            let text = system_file("http://p:9090", &[one], None).unwrap();
            System::parse(&text).unwrap().queried().unwrap();
            assert!(!text.contains("workers or cores"), "{text}");
            text
        };
        let text = written(&["http_request_duration_seconds_count", CPU_TIME]);
        let cores = "fill in: the cores it may use, of all instances together. Its `busy` counts CPU time, so not its workers";
        assert!(text.contains(cores), "{text}");
        let text = written(&["gunicorn_request_duration_count", "gunicorn_request_duration_sum"]);
        let workers = "fill in: the workers, of all instances together. Its `busy` counts those";
        assert!(text.contains(workers), "{text}");
        // Alone, a number of servers would be of no use.
        let text = written(&["nginx_http_requests_total"]);
        assert!(text.contains("No metric here tells how busy") && !text.contains("fill in"));
    }

    /// Under another name of its host, by its counters; by its address, though one of the pages is new; what counts
    /// otherwise is another one, though its address is the same.
    #[test]
    fn an_application_under_two_jobs_is_one_tier() {
        let web = ["http_request_duration_seconds_count"];
        let mut jobs = vec![
            job("api", "10.0.0.9:80", &[web[0], CPU_TIME]),
            job("api-again", "10.0.0.9:80", &web),
            job("api-by-name", "api.local:80", &web),
        ];
        jobs[0].instances.push("10.0.0.8:80".to_owned());
        let api = jobs[0].selector();
        jobs[2].beside.insert(api.clone(), Beside::Same);
        let text = system_file("http://p:9090", &jobs, None).unwrap();
        let system = System::parse(&text).unwrap();
        assert_eq!(system.tiers.len(), 1, "{text}");
        for said in [
            "it is `api` again (both scrape one address): api-again",
            "it is `api` again (its counters always stand where those there do; if it is another \
             application, write a tier for it): api-by-name",
        ] {
            assert!(text.contains(said), "{text}");
        }
        jobs[1].beside.insert(api.clone(), Beside::Other);
        jobs[2].beside.insert(api, Beside::Alike);
        let text = system_file("http://p:9090", &jobs, Some("api")).unwrap();
        assert_eq!(System::parse(&text).unwrap().tiers.len(), 3, "{text}");
        let doubt =
            "its counters stand where those of `api` do: if both are one application, leave";
        assert_eq!(text.matches(doubt).count(), 1, "{text}");
        // Of what is passed on, an address of each host's own says nothing.
        let passed = |name: &str| Job {
            passed_by: Some("federate".to_owned()),
            ..job(name, "localhost:80", &web)
        };
        let asked = system_file("http://p:9090", &[passed("a"), passed("b")], None).unwrap_err();
        assert!(asked.to_string().contains("a, b?"), "{asked}");
        let names = "job=~\"a\\\\.b|federate\",exported_job=~\"|c\"";
        let together = Job::together("http", &[&job("a.b", "h:1", &web), &passed("c")]);
        assert!(together.contains(names), "{together}");
    }

    /// Named with what may count its requests; what its runtime tells is no reason to take it for a host.
    #[test]
    fn jobs_that_no_preset_knows_are_named_with_their_metrics() {
        let own = [
            "go_goroutines",
            "shop_in_flight",
            "shop_latency_seconds_bucket",
            "shop_latency_seconds_count",
            "shop_latency_seconds_sum",
            "shop_orders_total",
            "shop_requests_total",
            "up",
        ];
        let mut jobs = jobs();
        jobs.push(job("billing", "10.0.0.7:80", &[&own[..], &[CPU_TIME]].concat()));
        jobs.push(job("batch", "10.0.0.8:80", &own));
        jobs.push(job("idle", "10.0.0.6:80", &["up", "scrape_duration_seconds"]));
        let text = system_file("http://p:9090", &jobs, None).unwrap();
        let metrics = "(shop_requests_total, shop_latency_seconds_count, shop_orders_total, …";
        for said in [
            format!("# Left out, since no preset knows its metrics: batch {metrics});"),
            format!("metrics: billing {metrics});"),
        ] {
            assert!(text.contains(&said), "{text}");
        }
        assert!(text.contains("docs/observe-metrics.md") && !text.contains("metrics: idle"));
        assert!(!text.contains("counts no requests: billing"), "{text}");
        let alone = system_file("http://p:9090", &jobs[5..], None).unwrap_err().to_string();
        let said = format!("requests: billing {metrics}");
        assert!(alone.contains(&said) && alone.contains("has 3 jobs"), "{alone}");
    }
}
