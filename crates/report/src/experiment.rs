//! The page of an experiment that was measured anywhere: effects, allocation of variation,
//! interactions, and the assumptions as figures and in words.

use std::path::Path;

use kendall_stats::analysis::Analysis;
use kendall_stats::estimate::Caveat;

use crate::chapters::effects::{INTRODUCTION, Response, explain};
use crate::document::{Level, Section, Unit};
use crate::number::count;
use crate::{REPORT_VERSION, Report, ReportError, Written};

/// Name of the page without its ending.
const NAME: &str = "analysis";

/// An analyzed experiment, for its page.
#[derive(Debug, Clone, Copy)]
pub struct ExperimentPage<'a> {
    /// Where the observations are from, such as the name of a file.
    pub source: &'a str,
    /// Name of the response variable.
    pub response: &'a str,
    pub analysis: &'a Analysis,
}

impl ExperimentPage<'_> {
    /// Writes `analysis.html`, `analysis.json` and tables into a folder.
    pub fn write(&self, folder: &Path) -> Result<Written, ReportError> {
        crate::write_as(folder, NAME, &self.report())
    }

    /// The page as one chapter.
    pub fn report(&self) -> Report {
        let layout = &self.analysis.layout;
        let mut section = Section::new("effects", format!("Effects on {}", self.response));
        section.text(INTRODUCTION);
        section.list(
            layout
                .factors
                .iter()
                .map(|f| format!("{} = {}: {}", f.letter, f.name, f.levels.join(", ")))
                .collect(),
        );
        let key: String = self
            .response
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
            .collect();
        let response = Response {
            key,
            name: self.response.to_owned(),
            unit: Unit::Plain(5),
            label: String::new(),
        };
        explain(&mut section, &response, self.analysis);
        let beyond = |caveat: &&Caveat| !layout.caveats.contains(caveat);
        for caveat in self.analysis.caveats.iter().filter(beyond) {
            // The checks above say these with their figures already.
            if !matches!(caveat, Caveat::AssumptionDoubtful { .. }) {
                section.note(Level::Doubt, format!("{caveat}."));
            }
        }
        Report {
            version: REPORT_VERSION,
            name: NAME.to_owned(),
            title: format!("What the factors do to {}", self.response),
            byline: format!(
                "{} · {} in {}",
                self.source,
                count(layout.runs, "run"),
                count(layout.cells, "cell")
            ),
            program: concat!("Kendall ", env!("CARGO_PKG_VERSION")).to_owned(),
            answer: None,
            models: Vec::new(),
            summary: Vec::new(),
            sections: vec![section],
        }
    }
}
