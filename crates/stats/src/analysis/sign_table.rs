//! The sign table of a two-level design, as it is worked by hand.

use serde::{Deserialize, Serialize};

use super::layout::{Layout, Rows};
use crate::sample::mean;

/// Most factors of a sign table: beyond it the table is too long to read.
const MOST_FACTORS: usize = 5;

/// Signs of every effect in every cell, with the totals that make the effects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SignTable {
    /// `I`, `A`, `B`, `AB`, …
    pub columns: Vec<String>,
    /// One a cell.
    pub rows: Vec<SignRow>,
    /// Σ sign·mean of each column.
    pub totals: Vec<f64>,
    /// Totals over the number of cells: q0, qA, …
    pub effects: Vec<f64>,
}

/// One cell of a sign table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SignRow {
    /// −1 or +1 for each column.
    pub signs: Vec<i8>,
    /// Responses, in the order of the table.
    pub responses: Vec<f64>,
    /// Their mean.
    pub mean: f64,
}

/// The sign table of a complete two-level design of up to five factors; factor A varies fastest,
/// as in the books.
///
/// Source: [Jain91 §17.4, §18.2].
pub(super) fn sign_table(layout: &Layout, rows: &Rows) -> Option<SignTable> {
    let factors = rows.factors;
    let cells = rows.by_cell();
    if !layout.two_level || factors > MOST_FACTORS || cells.len() != 1 << factors {
        return None;
    }
    let mut effects: Vec<u32> = (0..1_u32 << factors).collect();
    let letters = |effect: u32| -> Vec<usize> {
        (0..factors).filter(|factor| effect >> factor & 1 == 1).collect()
    };
    effects.sort_by_key(|effect| (effect.count_ones(), letters(*effect)));
    let columns = effects
        .iter()
        .map(|effect| match *effect {
            0 => "I".to_owned(),
            _ => letters(*effect).iter().map(|factor| layout.factors[*factor].letter).collect(),
        })
        .collect();
    let sign = |effect: u32, cell: u32| {
        if (effect & !cell).count_ones() % 2 == 1 { -1_i8 } else { 1 }
    };
    let mut table: Vec<SignRow> = Vec::new();
    for cell in 0..1_u32 << factors {
        let levels: Vec<usize> =
            (0..factors).map(|factor| usize::from(cell >> factor & 1 == 1)).collect();
        let responses: Vec<f64> = cells.get(&levels)?.iter().map(|row| rows.values[*row]).collect();
        table.push(SignRow {
            signs: effects.iter().map(|effect| sign(*effect, cell)).collect(),
            mean: mean(&responses),
            responses,
        });
    }
    let totals: Vec<f64> = (0..effects.len())
        .map(|column| table.iter().map(|row| f64::from(row.signs[column]) * row.mean).sum())
        .collect();
    let count = f64::from(1_u32 << factors);
    let effects = totals.iter().map(|total: &f64| total / count).collect();
    Some(SignTable { columns, rows: table, totals, effects })
}
