//! The report: stored study in, tables and one HTML file out.

pub mod document;
pub mod html;
mod number;
pub mod plot;

use serde::Serialize;

use crate::document::Section;

/// Everything that a report says.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of this structure; raised when a key changes its meaning.
    pub version: u32,
    /// Name of the study.
    pub name: String,
    /// What the study asks.
    pub title: String,
    /// When and where it was measured, in a line.
    pub byline: String,
    /// What made the report.
    pub program: String,
    /// Chapters, in order.
    pub sections: Vec<Section>,
}
