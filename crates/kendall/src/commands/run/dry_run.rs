//! `kendall run --dry-run`: effective values and runs.

use kendall_report::document::{Table, Unit};
use kendall_study::{FIRST_ANSWER, HostReport, Plan, StudyFile};
use kendall_units::{Seconds, counted};
use serde_json::json;

use crate::exit::{Exit, refused};
use crate::output::{self, Format};
use crate::text::{self, grid};

/// Runs that are listed for people; the others are counted.
const MOST_LISTED: usize = 200;

pub(super) fn print(
    study: &StudyFile,
    hosts: &[HostReport],
    format: Format,
) -> anyhow::Result<Exit> {
    let plan = Plan::of(study).map_err(refused)?;
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
        document["hosts"] = json!(hosts);
    }
    document
}

fn text(study: &StudyFile, plan: &Plan, hosts: &[HostReport]) -> anyhow::Result<String> {
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
