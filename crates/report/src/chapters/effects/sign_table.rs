//! The sign table of a complete two-level design, with every response and what it adds up to.

use kendall_stats::analysis::Analysis;

use super::{Response, with_unit};
use crate::document::{Cell, Table, Unit};

/// One row a combination of levels, and below them totals, effects and sums of squares.
pub(super) fn table(response: &Response, analysis: &Analysis) -> Option<Table> {
    let signs = analysis.sign_table.as_ref()?;
    let runs = signs.rows.iter().map(|row| row.responses.len()).max().unwrap_or(0);
    let mut table = Table::new(
        format!("signs-{}", response.key),
        format!(
            "Sign table of the {}: every run, the mean of each combination, and the errors",
            response.name
        ),
    )
    .column("row", "Row", Unit::Text);
    for name in &signs.columns {
        table = table.column(format!("sign_{}", name.to_lowercase()), name.as_str(), response.unit);
    }
    for run in 1..=runs {
        table = table.column(
            format!("y_{run}"),
            with_unit(&format!("y{run}"), &response.label),
            response.unit,
        );
    }
    table = table.column("mean", with_unit("Mean", &response.label), response.unit);
    for run in 1..=runs {
        table = table.column(
            format!("e_{run}"),
            with_unit(&format!("e{run}"), &response.label),
            response.unit,
        );
    }
    let none = || Cell::Empty(String::new());
    for (number, row) in (1..).zip(&signs.rows) {
        let mut cells: Vec<Cell> = vec![format!("{number}").into()];
        cells.extend(
            row.signs.iter().map(|sign| Cell::Text(if *sign > 0 { "1" } else { "−1" }.to_owned())),
        );
        let padded = |value: &dyn Fn(f64) -> f64| -> Vec<Cell> {
            let mut cells: Vec<Cell> = row.responses.iter().map(|y| value(*y).into()).collect();
            cells.resize_with(runs, none);
            cells
        };
        cells.extend(padded(&|y| y));
        cells.push(row.mean.into());
        cells.extend(padded(&|y| y - row.mean));
        table.push(cells);
    }
    let rest = 2 * runs + 1;
    let mut line = |name: &str, values: &[f64]| {
        let mut cells: Vec<Cell> = vec![name.into()];
        cells.extend(values.iter().map(|value| Cell::Number(*value)));
        cells.extend((0..rest).map(|_| none()));
        table.push(cells);
    };
    line("total", &signs.totals);
    line("effect (total / combinations)", &signs.effects);
    Some(table)
}

/// Sums of squares a term, and what they come to.
pub(super) fn sums(response: &Response, analysis: &Analysis) -> Table {
    let sums = &analysis.fit.sums;
    let mut table = Table::new(
        format!("sums-{}", response.key),
        format!("Sums of squares of the {}, in the unit of the model squared", response.name),
    )
    .column("term", "Term", Unit::Text)
    .column("sum_of_squares", "Sum of squares", Unit::Plain(5))
    .column("share", "Share of SST (%)", Unit::Percent);
    let share =
        |value: f64| Cell::number_or((sums.sst > 0.0).then(|| value / sums.sst), "nothing varies");
    table.push(vec!["SSY".into(), sums.ssy.into(), Cell::Empty(String::new())]);
    table.push(vec!["SS0".into(), sums.ss0.into(), Cell::Empty(String::new())]);
    for term in &analysis.fit.terms {
        let name = format!("SS {} ({})", term.name, term.label);
        table.push(vec![name.into(), term.sum_of_squares.into(), share(term.sum_of_squares)]);
    }
    table.push(vec!["SSE".into(), sums.sse.into(), share(sums.sse)]);
    table.push(vec!["SST".into(), sums.sst.into(), share(sums.sst)]);
    table
}
