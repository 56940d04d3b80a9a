//! `kendall run --dry-run`: effective values and runs.

use std::path::Path;

use kendall_report::document::{Table, Unit};
use kendall_store::{Results, Run, keys_of};
use kendall_study::{FIRST_ANSWER, Factor, HostReport, Plan, Planned, StudyFile};
use kendall_units::{Seconds, counted, exact_f64};
use serde::Serialize;
use serde_json::json;

use crate::exit::{Exit, refused};
use crate::output::{self, Format};
use crate::text::{self, grid};

/// Runs that are listed for people; the others are counted.
const MOST_LISTED: usize = 200;

pub(super) fn print(
    study: &StudyFile,
    folder: &Path,
    hosts: &[HostReport],
    format: Format,
) -> anyhow::Result<Exit> {
    let plan = Plan::of(study).map_err(refused)?;
    let expected = Expected::of(study, &plan, folder)?;
    match format {
        Format::Json => output::json(&document(study, &plan, expected.as_ref(), hosts))?,
        Format::Human => output::result(&text(study, &plan, expected.as_ref(), hosts)?),
    }
    Ok(Exit::Done)
}

/// How long the planned runs that are left take, by those that the folder of the results has.
#[derive(Debug, Serialize)]
struct Expected {
    runs_left: usize,
    left_s: f64,
    by_runs: usize,
}

impl Expected {
    fn of(study: &StudyFile, plan: &Plan, folder: &Path) -> anyhow::Result<Option<Self>> {
        if !Results::exists(folder) {
            return Ok(None);
        }
        let results = Results::open(folder)?;
        let same = results.study()?.fingerprint == study.fingerprint();
        // Of a job the duration is a limit; of other loads it is the length, which must be the same.
        if !same && !study.base.workload.is_job() {
            return Ok(None);
        }
        let mut runs = results.latest_runs()?;
        runs.retain(|run| run.is_usable() && is_alike(study, run));
        let list = plan.list();
        if runs.is_empty() || list.is_empty() {
            return Ok(None);
        }
        let is_done = |planned: &Planned| {
            let is = |run: &Run| {
                run.configuration as usize == planned.configuration
                    && run.repetition == planned.repetition
            };
            same && runs.iter().any(is)
        };
        let left: Vec<&Planned> = list.iter().filter(|planned| !is_done(planned)).collect();
        let mean = mean_length(runs.iter()).unwrap_or(0.0);
        let length = |planned: &&Planned| {
            let levels = study.factors.iter().zip(levels(study, plan, planned.configuration));
            // Each level has its share of the mean; one that was not run has none.
            levels.fold(mean, |length, (factor, text)| {
                let at_it = |run: &&Run| run.factor(&factor.key).is_some_and(|l| l.text == text);
                mean_length(runs.iter().filter(at_it)).map_or(length, |at| length * at / mean)
            })
        };
        let left_s = left.iter().map(length).sum();
        Ok(Some(Self { runs_left: left.len(), left_s, by_runs: runs.len() }))
    }

    fn in_words(&self) -> String {
        let (left, by) = (counted(self.runs_left, "run"), counted(self.by_runs, "run"));
        let time = duration(Seconds::new(self.left_s));
        format!("# {left} left, which take about {time} by the {by} in the folder\n")
    }
}

/// Whether a stored run asks for the same system and load as the study at these levels; a level that the study
/// does not have now may be any.
fn is_alike(study: &StudyFile, run: &Run) -> bool {
    let level_of = |factor: &Factor| {
        let text = &run.factor(&factor.key)?.text;
        (0..factor.levels.len()).find(|index| factor.level(*index).text == *text)
    };
    let levels: Vec<Option<usize>> = study.factors.iter().map(level_of).collect();
    let Ok(asked) = study.settings(&levels) else { return false };
    let varied: Vec<&str> = study
        .factors
        .iter()
        .flat_map(|factor| keys_of(&factor.key).chain(factor.tied.iter().map(String::as_str)))
        .collect();
    ["system", "workload"].into_iter().all(|table| {
        let keys = asked.effective[table].as_object();
        keys.into_iter().flatten().all(|(key, value)| {
            let key = format!("{table}.{key}");
            varied.iter().any(|varied| varied.starts_with(&key)) || run.setting(&key) == Some(value)
        })
    })
}

/// The mean time from a run's start to its end, in s.
fn mean_length<'a>(runs: impl Iterator<Item = &'a Run>) -> Option<f64> {
    let lengths: Vec<f64> = runs
        .map(|run| Seconds::from_nanos(run.ended_ns.saturating_sub(run.started_ns)).get())
        .collect();
    (!lengths.is_empty()).then(|| lengths.iter().sum::<f64>() / exact_f64(lengths.len()))
}

fn document(
    study: &StudyFile,
    plan: &Plan,
    expected: Option<&Expected>,
    hosts: &[HostReport],
) -> serde_json::Value {
    let runs: Vec<_> = plan
        .list()
        .into_iter()
        .map(|run| {
            json!({
                "configuration": run.configuration,
                "repetition": run.repetition,
                "levels": levels(study, plan, run.configuration),
            })
        })
        .collect();
    let mut document = json!({
        "effective": study.effective(),
        "runs": runs,
        "most_runs": plan.most(),
        "expected": expected,
        "confounding": plan.confounding,
    });
    if !hosts.is_empty() {
        document["hosts"] = json!(hosts);
    }
    document
}

fn text(
    study: &StudyFile,
    plan: &Plan,
    expected: Option<&Expected>,
    hosts: &[HostReport],
) -> anyhow::Result<String> {
    let mut effective = study.effective();
    if let Some(object) = effective.as_object_mut() {
        object.remove("factors");
    }
    let mut text = format!("# effective values\n{}\n", toml::to_string(&effective)?);
    if let Some(pass) = study.first_pass()? {
        let runs = Plan::of(&pass)?.most();
        text.push_str(&format!(
            "# first at most {} of {}, for an answer within {}; then\n",
            counted(runs, "run"),
            duration(pass.base.measure.duration),
            duration(FIRST_ANSWER)
        ));
    }
    let list = plan.list();
    let shown = if list.is_empty() {
        format!("# at most {}; which ones depends on the data\n", counted(plan.most(), "run"))
    } else {
        format!("# {}, in this order\n", counted(list.len(), "run"))
    };
    text.push_str(&shown);
    let mut header = ["run", "repetition", "configuration"].map(str::to_owned).to_vec();
    header.extend(study.factors.iter().map(|factor| factor.key.clone()));
    let rows = list.iter().take(MOST_LISTED).enumerate().map(|(number, run)| {
        let place = [number + 1, run.repetition as usize + 1, run.configuration];
        let levels = levels(study, plan, run.configuration);
        place.map(|number| number.to_string()).into_iter().chain(levels).collect()
    });
    if !list.is_empty() {
        text.push_str(&format!("{}\n", text::table(&grid(&header, rows))));
    }
    if list.len() > MOST_LISTED {
        text.push_str(&format!("… and {} more\n", list.len() - MOST_LISTED));
    }
    if !plan.confounding.is_empty() {
        text.push_str("# effects that this design confounds\n");
        text.push_str(&plan.confounding.join("\n"));
        text.push('\n');
    }
    if !hosts.is_empty() {
        text.push_str(&format!("# hosts, all of them ready\n{}\n", text::table(&table_of(hosts))));
    }
    if let Some(expected) = expected {
        text.push_str(&expected.in_words());
    }
    let load = study.base.measure.under_load() * exact_f64(plan.most());
    if study.base.workload.is_job() {
        // The duration of a job is its limit.
        let limit = duration(load);
        let known = if expected.is_some() {
            ""
        } else {
            ": how long is not known before a run; stop after one or two, and ask again with their folder (--out)"
        };
        text.push_str(&format!(
            "# measuring takes {limit} at most; a job ends with its work{known}\n"
        ));
    } else {
        text.push_str(&format!("# measuring takes about {}\n", duration(load)));
    }
    Ok(text)
}

fn table_of(hosts: &[HostReport]) -> Table {
    Table::of("hosts", "Hosts", hosts)
        .column("host", "host", Unit::Text, |host| host.name.as_str())
        .column("machine", "machine", Unit::Text, |host| host.machine.as_str())
        .column("address", "address", Unit::Text, |host| host.address.as_str())
        .column("placed", "runs", Unit::Text, |host| host.placed.join(", "))
        .column("cores", "cores", Unit::Count, |host| host.cores.to_string())
        .column("free_bytes", "free", Unit::Count, |host| format!("{} MiB", host.free_bytes >> 20))
        .column("clock_offset_s", "clock offset", Unit::Number, |host| {
            format!("{:.6} s", host.clock_offset_s)
        })
        .column("clock_bound_s", "known to", Unit::Number, |host| {
            format!("±{:.1} µs", 1e6 * host.clock_bound_s)
        })
        .column("round_trip_s", "round trip", Unit::Number, |host| {
            format!("{:.1} µs", 1e6 * host.round_trip_s)
        })
        .table()
}

fn levels(study: &StudyFile, plan: &Plan, configuration: usize) -> Vec<String> {
    study
        .factors
        .iter()
        .zip(&plan.configurations[configuration])
        .map(|(factor, level)| level.map_or_else(|| "–".to_owned(), |l| factor.level(l).text))
        .collect()
}

/// A length of time in hours, minutes and seconds.
pub(in crate::commands) fn duration(time: Seconds) -> String {
    let seconds = kendall_units::whole_u64(time.get().round());
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}
