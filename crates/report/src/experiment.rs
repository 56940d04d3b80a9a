//! The page of an experiment that was measured anywhere: effects, allocation of variation,
//! interactions, and the assumptions as figures and in words.

use std::path::Path;

use kendall_stats::analysis::Analysis;
use kendall_stats::estimate::Caveat;

use crate::chapters::effects::{INTRODUCTION, Response, contrasts, deviations, explain, needed};
use crate::document::{Level, Section, Unit};
use crate::number::count;
use crate::{REPORT_VERSION, Report, ReportError, Written};

/// Name of the page without its ending.
const NAME: &str = "analysis";

/// An analyzed experiment, for its page and for a terminal.
#[derive(Debug, Clone, Copy)]
pub struct ExperimentPage<'a> {
    /// Where the observations are from, such as the name of a file.
    pub source: &'a str,
    /// Name of the response variable.
    pub response: &'a str,
    /// What was measured beside it, if anything was.
    pub covariate: &'a str,
    pub confidence: f64,
    pub analysis: &'a Analysis,
}

impl ExperimentPage<'_> {
    /// Writes `analysis.html`, `analysis.json` and tables into a folder.
    pub fn write(&self, folder: &Path) -> Result<Written, ReportError> {
        crate::write_as(folder, NAME, &self.report())
    }

    /// All of it as one chapter.
    pub fn section(&self) -> Section {
        let (layout, fit) = (&self.analysis.layout, &self.analysis.fit);
        let mut section = Section::new("effects", format!("Effects on {}", self.response));
        section.text(INTRODUCTION);
        let factor = |f: &kendall_stats::analysis::FactorLevels| {
            format!("{} = {} ({})", f.letter, f.name, f.levels.join(", "))
        };
        section.list(layout.factors.iter().map(factor).collect());
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let response = Response {
            key: self.response.chars().map(plain).collect(),
            name: self.response.to_owned(),
            unit: Unit::Plain(6),
            label: String::new(),
            share: Unit::Share(2),
            covariate: format!("`{}`", self.covariate),
        };
        explain(&mut section, &response, self.analysis);
        section.list(deviations(&response, fit));
        section.table(contrasts(&response, fit));
        if let Some(needed) = needed(self.analysis, self.confidence) {
            section.text(needed);
        }
        let beyond = |caveat: &&Caveat| !layout.caveats.contains(caveat);
        for caveat in self.analysis.caveats.iter().filter(beyond) {
            // The checks above say these with their figures already.
            if !matches!(caveat, Caveat::AssumptionDoubtful { .. }) {
                section.note(Level::Doubt, format!("{caveat}."));
            }
        }
        section
    }

    /// The page as one chapter.
    pub fn report(&self) -> Report {
        let layout = &self.analysis.layout;
        let (runs, cells) = (count(layout.runs, "run"), count(layout.cells, "cell"));
        Report {
            version: REPORT_VERSION,
            name: NAME.to_owned(),
            title: format!("What the factors do to {}", self.response),
            byline: format!("{} · {runs} in {cells}", self.source),
            program: concat!("Kendall ", env!("CARGO_PKG_VERSION")).to_owned(),
            answer: None,
            figures: serde_json::Map::new(),
            models: Vec::new(),
            summary: Vec::new(),
            sections: vec![self.section()],
        }
    }
}
