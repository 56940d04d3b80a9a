//! An analyzed design for people.

use kendall_report::document::{Block, Section};
use kendall_report::experiment::ExperimentPage;

use crate::text::wrapped;

/// The page of an experiment as text: paragraphs in lines, tables below their captions.
pub(super) fn human(page: &ExperimentPage<'_>) -> Section {
    let mut document = page.section();
    let mut blocks = Vec::new();
    for block in std::mem::take(&mut document.blocks) {
        match block {
            Block::Text(words) => blocks.push(Block::Text(wrapped(&words))),
            Block::Table(table) => {
                blocks.push(Block::Heading(table.caption.clone()));
                blocks.push(Block::Table(table));
            }
            other => blocks.push(other),
        }
    }
    Section { blocks, ..document }
}

pub(crate) fn p_value(p: f64) -> String {
    if p < 0.0001 { "< 0.0001".to_owned() } else { format!("{p:.4}") }
}
