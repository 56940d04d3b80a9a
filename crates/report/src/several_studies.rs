//! Several studies in one table: the highest throughput of each curve of each, and what limited it.

use std::path::{Path, PathBuf};

use kendall_fit::bottleneck::bottleneck;
use kendall_observations::{Configuration, Observations};
use kendall_store::Results;

use crate::chapters::saturation::{interesting, short_label};
use crate::document::{Cell, Section, Table, Unit};
use crate::{REPORT_VERSION, Report, ReportError, Written, number};

/// Name of the page without its ending.
const NAME: &str = "across";

/// Reads folders of results and puts the maximum of each curve into one page.
pub fn analyze(folders: &[PathBuf]) -> Result<Report, ReportError> {
    let mut section = Section::new("maxima", "Highest throughput, by study");
    section.text(
        "One row for each curve of each study, at the load of its highest throughput as the \
         clients counted it. Studies that were measured at different times are not paired: the \
         differences include whatever changed on the machine in between.",
    );
    let mut table = table();
    let mut runs = 0;
    for folder in folders {
        let data = Observations::read(&Results::open(folder)?)?;
        runs += data.configurations.iter().map(|c| c.repetitions.len()).sum::<usize>();
        for (name, configuration) in interesting(&data) {
            table.push(row(&data, &name, configuration));
        }
    }
    section.table(table);
    Ok(Report {
        version: REPORT_VERSION,
        name: NAME.to_owned(),
        title: "Highest throughput across studies".to_owned(),
        byline: format!(
            "{} · {}",
            number::count(folders.len(), "study"),
            number::count(runs, "run")
        ),
        program: concat!("Kendall ", env!("CARGO_PKG_VERSION")).to_owned(),
        answer: None,
        figures: serde_json::Map::new(),
        summary: Vec::new(),
        sections: vec![section],
        models: Vec::new(),
    })
}

/// As [`analyze`], written into a folder as `across.html`, `across.json` and `tables/maxima.csv`.
pub fn write(folders: &[PathBuf], out: &Path) -> Result<(Report, Written), ReportError> {
    let report = analyze(folders)?;
    let written = crate::write_as(out, NAME, &report)?;
    Ok((report, written))
}

fn table() -> Table {
    Table::new("maxima", "Highest throughput of each curve")
        .column("study", "Study", Unit::Text)
        .column("curve", "Curve", Unit::Text)
        .column("load_kind", "Load", Unit::Text)
        .column("load", "at", Unit::Level)
        .column("throughput_per_s", "X (1/s)", Unit::PerSecond)
        .column("response_time_s", "R (ms)", Unit::Milliseconds)
        .column("miss_rate", "Misses (%)", Unit::Percent)
        .column("limit", "What limits", Unit::Text)
}

fn row(data: &Observations, name: &str, configuration: &Configuration) -> Vec<Cell> {
    let limit = bottleneck(&configuration.point);
    let limit = match (&limit.limiting, &limit.cannot_tell) {
        (_, Some(_)) => "cannot tell".to_owned(),
        (Some(limiting), None) => limiting.clone(),
        (None, None) => "not known".to_owned(),
    };
    let kind = data.load.as_ref().map_or("", |load| short_label(&load.label));
    vec![
        data.study.name.as_str().into(),
        name.into(),
        kind.into(),
        data.load_of(configuration).into(),
        Cell::estimate_or(configuration.throughput_estimate().as_ref(), "no run"),
        Cell::estimate_or(configuration.response_estimate().as_ref(), "no request"),
        Cell::number_or(configuration.counts().miss_rate(), "nothing read"),
        limit.into(),
    ]
}
