//! The report: stored study in, tables and one HTML file out.
//!
//! [`analyze`] reads the results and makes a [`Report`] of chapters; [`write()`] puts it into the
//! folder as `report.html`, `report.json` and `tables/*.csv`. A chapter is one file in
//! `chapters/` and one line in its registry.
//!
//! What it leaves out: running anything, and the clock. The same results give the same report.

pub mod answer;
mod chapters;
pub mod columns;
pub mod comparison;
pub mod document;
pub mod experiment;
pub mod html;
mod number;
pub mod plot;
mod prepared;
pub mod several_studies;

pub use chapters::utc_minutes;

use std::path::{Path, PathBuf};

use kendall_observations::Observations;
use kendall_store::{Results, StoreError};
use serde::Serialize;

use crate::document::Section;
use crate::prepared::Prepared;

/// Version of the structure of `report.json`.
pub const REPORT_VERSION: u32 = 1;

/// Everything that a report says.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// [`REPORT_VERSION`] of the writer.
    pub version: u32,
    pub name: String,
    pub title: String,
    /// How much was measured, in a line.
    pub byline: String,
    /// What made the report.
    pub program: String,
    /// What the study answers; `None` for pages that do not show a study.
    pub answer: Option<answer::Answer>,
    /// What other programs read of it, as keys of their own.
    #[serde(flatten)]
    pub figures: serde_json::Map<String, serde_json::Value>,
    /// The result in a few sentences; the first chapter holds them too.
    pub summary: Vec<String>,
    pub sections: Vec<Section>,
    /// Models of the study as files that `kendall solve` takes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelFile {
    /// Its name in the folder `models`.
    pub file: String,
    /// The curve that it was made from.
    pub curve: String,
    pub model: String,
    pub text: String,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the report's page cannot be made")]
    Page(#[from] minijinja::Error),
    #[error("the report cannot be written as JSON")]
    Json(#[from] serde_json::Error),
    #[error("{path} cannot be written")]
    File { path: PathBuf, source: std::io::Error },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Written {
    pub html: PathBuf,
    pub json: PathBuf,
    pub tables: Vec<PathBuf>,
    pub models: Vec<PathBuf>,
}

pub fn analyze(folder: &Path) -> Result<Report, ReportError> {
    let results = Results::open(folder)?;
    let data = Observations::read(&results)?.with_traces(&results)?;
    of(&results, &data)
}

fn of(results: &Results, data: &Observations) -> Result<Report, ReportError> {
    let data = &Prepared::new(data);
    let mut sections: Vec<Section> =
        chapters::CHAPTERS.iter().filter_map(|chapter| chapter(data)).collect();
    if let Some(predictions) = chapters::predictions::chapter(results)? {
        let models = sections.iter().position(|section| section.id == "models");
        sections.insert(models.map_or(sections.len(), |place| place + 1), predictions);
    }
    for section in &mut sections {
        section.folded = !chapters::is_open(section.id, data);
    }
    Ok(Report {
        version: REPORT_VERSION,
        name: data.study.name.clone(),
        title: if data.study.title.is_empty() { &data.study.name } else { &data.study.title }
            .clone(),
        byline: chapters::byline(data),
        program: concat!("Kendall ", env!("CARGO_PKG_VERSION")).to_owned(),
        answer: Some(answer::of(data)),
        figures: serde_json::Map::new(),
        summary: chapters::sentences(data),
        sections,
        models: chapters::model_files(data),
    })
}

/// What a study answers: the card that the report begins with.
pub fn answer_of(data: &Observations) -> answer::Answer {
    answer::of(&Prepared::new(data))
}

/// Analyzes a folder of results and writes the report into it, and into `results.db` what its views
/// cannot calculate, unless that can only be read.
pub fn write(folder: &Path) -> Result<(Report, Written), ReportError> {
    let mut results = Results::open(folder)?;
    let data = Observations::read(&results)?.with_traces(&results)?;
    let report = of(&results, &data)?;
    if !results.is_read_only()? {
        results.store_summary(&chapters::summary_rows(&data), data.runs.len())?;
    }
    let written = write_as(folder, "report", &report)?;
    Ok((report, written))
}

/// Writes `NAME.html`, `NAME.json`, tables and plots into a folder: for reports that others put together.
pub fn write_as(folder: &Path, name: &str, report: &Report) -> Result<Written, ReportError> {
    std::fs::create_dir_all(folder)
        .map_err(|source| ReportError::File { path: folder.to_owned(), source })?;
    let html = folder.join(format!("{name}.html"));
    put(&html, &html::render(report, name)?)?;
    let json = folder.join(format!("{name}.json"));
    put(&json, &serde_json::to_string_pretty(report)?)?;
    let tables = write_tables(&folder.join("tables"), report)?;
    write_plots(&folder.join("plots"), report)?;
    let models = write_models(&folder.join("models"), report)?;
    Ok(Written { html, json, tables, models })
}

fn write_models(folder: &Path, report: &Report) -> Result<Vec<PathBuf>, ReportError> {
    if report.models.is_empty() {
        return Ok(Vec::new());
    }
    std::fs::create_dir_all(folder)
        .map_err(|source| ReportError::File { path: folder.to_owned(), source })?;
    let mut written = Vec::new();
    for model in &report.models {
        let path = folder.join(&model.file);
        put(&path, &model.text)?;
        written.push(path);
    }
    Ok(written)
}

fn write_plots(folder: &Path, report: &Report) -> Result<(), ReportError> {
    std::fs::create_dir_all(folder)
        .map_err(|source| ReportError::File { path: folder.to_owned(), source })?;
    for plot in report.sections.iter().flat_map(Section::plots) {
        let name = plot.id.strip_prefix("plot-").unwrap_or(&plot.id);
        put(&folder.join(format!("{name}.svg")), &plot::svg::standalone(plot))?;
    }
    Ok(())
}

fn write_tables(folder: &Path, report: &Report) -> Result<Vec<PathBuf>, ReportError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ReportError::File { path, source }
    };
    std::fs::create_dir_all(folder).map_err(failed(folder))?;
    let mut written = Vec::new();
    for table in report.sections.iter().flat_map(Section::tables) {
        let path = folder.join(format!("{}.csv", table.id));
        put(&path, &table.to_csv())?;
        written.push(path);
    }
    Ok(written)
}

/// Writes a file beside its place and moves it there, so that no reader sees half of it.
fn put(path: &Path, text: &str) -> Result<(), ReportError> {
    let young = path.with_extension("new");
    std::fs::write(&young, text)
        .and_then(|()| std::fs::rename(&young, path))
        .map_err(|source| ReportError::File { path: path.to_owned(), source })
}
