//! An analyzed design for people.

use kendall_report::document::{Block, Section, Table, Unit};
use kendall_report::experiment::ExperimentPage;
use kendall_stats::analysis::surface::{Nature, Surface};
use kendall_stats::estimate::figures;
use kendall_units::counted;

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

/// A quadratic surface in words and tables.
pub(super) fn surface(found: &Surface, response: &str) -> Section {
    let mut document = Section::new(
        "surface",
        format!("Quadratic surface of `{response}`, R² {:.4}", found.r_squared),
    );
    for (name, low, high) in &found.factors {
        document.text(format!("{name}: −1 is {}, +1 is {}", figures(*low, 6), figures(*high, 6)));
    }
    let table = Table::of("coefficients", "Coefficients", &found.coefficients)
        .column("term", "term", Unit::Text, |one| one.name.as_str())
        .column("coefficient", "coefficient", Unit::Plain(6), |one| one.estimate.clone())
        .column("p_value", "p", Unit::Number, |one| p_value(one.p_value));
    document.table(table.table());
    let (deviation, degrees) = found.error;
    let degrees = counted(degrees, "degree of freedom");
    let error = format!("s_e {} on {degrees}", figures(deviation, 5));
    document.text(error);
    match found.lack_of_fit {
        Some(lack) => {
            let judged = if lack.p_value < 0.01 {
                "the response is not quadratic: narrow the ranges, or add runs"
            } else {
                "no lack of fit is significant"
            };
            let words =
                format!("lack of fit: F = {:.2}, p = {:.4}: {judged}", lack.f_ratio, lack.p_value);
            document.text(words);
        }
        None => document.text("lack of fit: not testable; repeat the center point"),
    }
    if let Some(point) = &found.stationary {
        let nature = match point.nature {
            Nature::Maximum => "maximum",
            Nature::Minimum => "minimum",
            Nature::Saddle => "saddle: it rises in one direction and falls in another",
        };
        let at = found.factors.iter().zip(&point.at);
        let at: Vec<String> =
            at.map(|((name, ..), value)| format!("{name} = {}", figures(*value, 4))).collect();
        let outside =
            if point.inside { "" } else { "; outside the measured range: do not rely on it" };
        let words =
            format!("{nature} at {}: {}{outside}", at.join(", "), figures(point.response, 5));
        document.text(words);
    }
    document
}
