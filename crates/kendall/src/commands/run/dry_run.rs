//! `kendall run --dry-run`: effective values and runs.

use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use kendall_study::{HostReport, Plan, StudyFile};
use kendall_units::{Seconds, counted};
use serde_json::json;

use crate::exit::{Exit, exit_with};
use crate::output::{self, Format};

/// Runs that are listed for people; the others are counted.
const MOST_LISTED: usize = 200;

pub(super) fn print(
    study: &StudyFile,
    hosts: &[HostReport],
    format: Format,
) -> anyhow::Result<Exit> {
    let plan =
        Plan::of(study).map_err(|problem| exit_with(Exit::Refused, study.refuse(problem)))?;
    match format {
        Format::Json => output::json(&document(study, &plan, hosts))?,
        Format::Human => output::result(&text(study, &plan, hosts)?),
    }
    Ok(Exit::Done)
}

fn document(study: &StudyFile, plan: &Plan, hosts: &[HostReport]) -> serde_json::Value {
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
        "confounding": plan.confounding,
    });
    if !hosts.is_empty() {
        document["hosts"] = hosts.iter().map(host).collect();
    }
    document
}

fn text(study: &StudyFile, plan: &Plan, hosts: &[HostReport]) -> anyhow::Result<String> {
    let mut effective = study.effective();
    if let Some(object) = effective.as_object_mut() {
        object.remove("factors");
    }
    let mut text = format!("# effective values\n{}\n", toml::to_string(&effective)?);
    let list = plan.list();
    let shown = if list.is_empty() {
        format!("# at most {}; which ones depends on the data\n", counted(plan.most(), "run"))
    } else {
        format!("# {}, in this order\n", counted(list.len(), "run"))
    };
    text.push_str(&shown);
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    let mut header = vec!["run".to_owned(), "repetition".to_owned(), "configuration".to_owned()];
    header.extend(study.factors.iter().map(|factor| factor.key.clone()));
    table.set_header(header);
    for (number, run) in list.iter().take(MOST_LISTED).enumerate() {
        let mut row = vec![
            (number + 1).to_string(),
            (run.repetition + 1).to_string(),
            run.configuration.to_string(),
        ];
        row.extend(levels(study, plan, run.configuration));
        table.add_row(row);
    }
    if !list.is_empty() {
        text.push_str(&format!("{table}\n"));
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
        text.push_str(&format!("# hosts, all of them ready\n{}\n", table_of(hosts)));
    }
    let load = study.base.measure.under_load() * kendall_units::exact_f64(plan.most());
    if study.base.workload.is_job() {
        // The duration of a job is its limit.
        let limit = duration(load);
        text.push_str(&format!("# measuring takes {limit} at most; a job ends with its work\n"));
    } else {
        text.push_str(&format!("# measuring takes about {}\n", duration(load)));
    }
    Ok(text)
}

fn host(host: &HostReport) -> serde_json::Value {
    json!({
        "host": host.name,
        "machine": host.machine,
        "address": host.address,
        "placed": host.placed,
        "cores": host.cores,
        "free_bytes": host.free_bytes,
        "clock_offset_s": host.clock_offset_s,
        "clock_bound_s": host.clock_bound_s,
        "round_trip_s": host.round_trip_s,
    })
}

fn table_of(hosts: &[HostReport]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header([
        "host",
        "machine",
        "address",
        "runs",
        "cores",
        "free",
        "clock offset",
        "known to",
        "round trip",
    ]);
    for host in hosts {
        table.add_row([
            host.name.clone(),
            host.machine.clone(),
            host.address.clone(),
            host.placed.join(", "),
            host.cores.to_string(),
            format!("{} MiB", host.free_bytes >> 20),
            format!("{:.6} s", host.clock_offset_s),
            format!("±{:.1} µs", 1e6 * host.clock_bound_s),
            format!("{:.1} µs", 1e6 * host.round_trip_s),
        ]);
    }
    table
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
pub(super) fn duration(time: Seconds) -> String {
    let seconds = kendall_units::whole_u64(time.get().round());
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}
