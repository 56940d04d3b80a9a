//! What kind of experiment the data are: levels, cells, replications, blocks, fraction, centers.

use std::collections::BTreeMap;

use kendall_units::{exact_f64, whole_u64};
use serde::{Deserialize, Serialize};

use super::{AnalysisError, Table};
use crate::design::fraction::{Fraction, letter};
use crate::estimate::Caveat;

/// Levels of one factor beyond which it is a variable and wants a curve.
const MOST_LEVELS: usize = 64;

/// Responses beyond which their squares, summed, are not finite.
const LARGEST: f64 = 1e140;

/// Responses below which their squares lose digits, and vanish in the end.
const SMALLEST: f64 = 1e-140;

/// A factor as the data show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FactorLevels {
    /// Letter in sign tables: A, B, …
    pub letter: char,
    /// Name.
    pub name: String,
    /// Levels: numbers in ascending order, texts in order of appearance.
    pub levels: Vec<String>,
}

/// How sums of squares were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SumsKind {
    /// Equal replications in every cell: all types agree, and shares add up to 100 %.
    Balanced,
    /// Type III: each term given all others; shares do not add up.
    TypeThree,
}

/// The shape of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    /// Factors that are varied.
    pub factors: Vec<FactorLevels>,
    /// Runs that are analyzed; center points not counted.
    pub runs: u64,
    /// Cells that were measured.
    pub cells: u64,
    /// Fewest replications of a measured cell.
    pub fewest_replications: u64,
    /// Most replications of a cell.
    pub most_replications: u64,
    /// How sums of squares were taken.
    pub sums: SumsKind,
    /// Names of the blocks, where they are a term of the model.
    pub blocks: Vec<String>,
    /// Whether all factors have two levels.
    pub two_level: bool,
    /// The regular fraction that the measured cells are, if they are one.
    pub fraction: Option<Fraction>,
    /// Responses at the center point.
    pub center_points: Vec<f64>,
    /// Caveats of the layout.
    pub caveats: Vec<Caveat>,
}

/// The runs in numbers.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    /// Level of each factor, and of the block as the last where blocks are a term.
    pub(super) levels: Vec<Vec<usize>>,
    /// Number of levels, in the same order.
    pub(super) counts: Vec<usize>,
    /// Response.
    pub(super) values: Vec<f64>,
    /// Position in time, if known for all.
    pub(super) order: Option<Vec<f64>>,
    /// Position in the table, from 0.
    pub(super) source: Vec<usize>,
    /// Number of factors, the block not counted.
    pub(super) factors: usize,
    /// Response and block of the runs at the center point.
    pub(super) centers: Vec<(f64, usize)>,
}

impl Rows {
    /// Levels of the factors of one row, without the block.
    pub(super) fn cell(&self, row: usize) -> &[usize] {
        &self.levels[row][..self.factors]
    }

    /// Rows by cell.
    pub(super) fn by_cell(&self) -> BTreeMap<Vec<usize>, Vec<usize>> {
        let mut cells: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
        for row in 0..self.values.len() {
            cells.entry(self.cell(row).to_vec()).or_default().push(row);
        }
        cells
    }
}

pub(super) fn check_positive(table: &Table) -> Result<(), AnalysisError> {
    match table.observations.iter().position(|observation| observation.value <= 0.0) {
        Some(row) => {
            Err(AnalysisError::NotPositive { row: row + 1, value: table.observations[row].value })
        }
        None => Ok(()),
    }
}

pub(super) fn read(table: &Table, blocks: bool) -> Result<(Layout, Rows), AnalysisError> {
    check(table)?;
    let columns: Vec<Column> = (0..table.factors.len()).map(|f| Column::of(table, f)).collect();
    let mut caveats = Vec::new();
    let mut varied: Vec<usize> = Vec::new();
    for (index, column) in columns.iter().enumerate() {
        let factor = &table.factors[index];
        if column.texts.len() > MOST_LEVELS {
            let (factor, levels) = (factor.clone(), column.texts.len());
            return Err(AnalysisError::TooManyLevels { factor, levels, limit: MOST_LEVELS });
        }
        if column.texts.len() > 1 {
            varied.push(index);
        } else {
            let level = column.texts.first().map_or("", String::as_str);
            let text = format!(
                "`{factor}` is always {level}: it has no effect to estimate, and is left out"
            );
            caveats.push(Caveat::Note { text });
        }
    }
    if varied.is_empty() {
        return Err(AnalysisError::NothingVaried { factors: table.factors.join(", ") });
    }
    let kept: Vec<Column> = varied.iter().map(|index| columns[*index].clone()).collect();
    let (kept, center) = without_center(kept);
    let names: Vec<&String> = varied.iter().map(|index| &table.factors[*index]).collect();
    let rows = rows(table, &kept, &center, blocks);
    let block_names = if blocks { blocks_of(table).0 } else { Vec::new() };
    let layout = describe(&kept, &names, &rows, block_names, caveats);
    let center_points =
        center.iter().map(|row| table.observations[*row].value).collect::<Vec<f64>>();
    Ok((Layout { center_points, ..layout }, rows))
}

fn check(table: &Table) -> Result<(), AnalysisError> {
    let values: Vec<f64> = table.observations.iter().map(|o| o.value).collect();
    crate::sample::check(&values)?;
    if table.factors.is_empty() {
        return Err(AnalysisError::NothingVaried { factors: "no factors".to_owned() });
    }
    let want = table.factors.len();
    if let Some(row) = table.observations.iter().position(|o| o.levels.len() != want) {
        let have = table.observations[row].levels.len();
        return Err(AnalysisError::RaggedRow { row: row + 1, have, want });
    }
    let (low, high) = values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(*v), high.max(*v)));
    let spread = high / 2.0 - low / 2.0;
    if spread <= 5e-13 * high.abs().max(low.abs()) {
        return Err(AnalysisError::ConstantResponse { value: low, runs: values.len() });
    }
    let largest = high.abs().max(low.abs());
    if largest > LARGEST {
        return Err(AnalysisError::TooLarge { value: largest, limit: LARGEST });
    }
    if largest < SMALLEST {
        return Err(AnalysisError::TooSmall { value: largest, limit: SMALLEST });
    }
    Ok(())
}

/// Levels of one factor, and the level of each row.
#[derive(Debug, Clone)]
struct Column {
    texts: Vec<String>,
    numbers: Option<Vec<f64>>,
    of_row: Vec<usize>,
}

impl Column {
    fn of(table: &Table, factor: usize) -> Self {
        let texts: Vec<&str> = table.observations.iter().map(|o| o.levels[factor].trim()).collect();
        let parsed: Option<Vec<f64>> = texts
            .iter()
            .map(|text| text.parse::<f64>().ok().filter(|value| value.is_finite()))
            .collect();
        match parsed.or_else(|| quantities(&texts)) {
            Some(numbers) => Self::numeric(&texts, &numbers),
            None => Self::textual(&texts),
        }
    }

    /// `8`, `8.0` and `08` are one level.
    fn numeric(texts: &[&str], numbers: &[f64]) -> Self {
        let mut distinct = numbers.to_vec();
        distinct.sort_by(f64::total_cmp);
        distinct.dedup_by(|a, b| (*a - *b).abs() == 0.0);
        let level = |number: &f64| distinct.partition_point(|other| other < number);
        let of_row: Vec<usize> = numbers.iter().map(level).collect();
        let mut names = vec![String::new(); distinct.len()];
        for (row, level) in of_row.iter().enumerate().rev() {
            texts[row].clone_into(&mut names[*level]);
        }
        Self { texts: names, numbers: Some(distinct), of_row }
    }

    fn textual(texts: &[&str]) -> Self {
        let (names, of_row) = numbered(texts.iter().copied());
        Self { texts: names, numbers: None, of_row }
    }

    /// Whether the second of three levels lies half way between the others.
    fn has_center(&self) -> bool {
        matches!(self.numbers.as_deref(), Some([low, middle, high])
            if (f64::midpoint(*low, *high) - middle).abs() <= 1e-9 * (high - low))
    }
}

/// Levels such as `100/s`, `40ms`, `64KiB`, `5%`, when all of a factor are of one kind: they are
/// numbers, in ascending order, and `1000ms` and `1s` are one level.
fn quantities(texts: &[&str]) -> Option<Vec<f64>> {
    let all = |read: &dyn Fn(&str) -> Option<f64>| -> Option<Vec<f64>> {
        texts.iter().map(|text| read(text)).collect()
    };
    all(&|text| kendall_units::parse_seconds(text).ok().map(kendall_units::Seconds::get))
        .or_else(|| all(&|text| kendall_units::parse_rate(text).ok().map(kendall_units::Rate::get)))
        .or_else(|| all(&|text| kendall_units::parse_bytes(text).ok().map(exact_f64)))
        .or_else(|| all(&|text| kendall_units::parse_share(text).ok()))
}

/// Takes the center point out of a two-level design: rows in which all factors lie half way
/// between their two other levels, where they do so together or not at all.
fn without_center(mut columns: Vec<Column>) -> (Vec<Column>, Vec<usize>) {
    let rows = columns.first().map_or(0, |column| column.of_row.len());
    if columns.len() < 2 || !columns.iter().all(Column::has_center) {
        return (columns, Vec::new());
    }
    let middles = |row: usize| columns.iter().filter(|column| column.of_row[row] == 1).count();
    let center: Vec<usize> = (0..rows).filter(|row| middles(*row) == columns.len()).collect();
    if (0..rows).any(|row| middles(row) != 0 && middles(row) != columns.len()) {
        return (columns, Vec::new());
    }
    for column in &mut columns {
        column.texts.remove(1);
        for level in &mut column.of_row {
            *level = usize::from(*level == 2);
        }
    }
    (columns, center)
}

/// Different texts in the order of their appearance, and which each text is.
fn numbered<'a>(texts: impl Iterator<Item = &'a str>) -> (Vec<String>, Vec<usize>) {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut names = Vec::new();
    let of_row = texts
        .map(|text| {
            *numbers.entry(text).or_insert_with(|| {
                names.push(text.to_owned());
                names.len() - 1
            })
        })
        .collect();
    (names, of_row)
}

/// Names of the blocks, and the block of each observation.
fn blocks_of(table: &Table) -> (Vec<String>, Vec<usize>) {
    numbered(table.observations.iter().map(|one| one.block.as_deref().unwrap_or_default()))
}

fn rows(table: &Table, columns: &[Column], center: &[usize], blocks: bool) -> Rows {
    let (names, block_of) = blocks_of(table);
    let blocked = blocks && names.len() > 1;
    let mut counts: Vec<usize> = columns.iter().map(|column| column.texts.len()).collect();
    if blocked {
        counts.push(names.len());
    }
    let mut is_center = vec![false; table.observations.len()];
    center.iter().for_each(|row| is_center[*row] = true);
    let source: Vec<usize> = (0..is_center.len()).filter(|row| !is_center[*row]).collect();
    let levels = source
        .iter()
        .map(|row| {
            let mut levels: Vec<usize> = columns.iter().map(|column| column.of_row[*row]).collect();
            if blocked {
                levels.push(block_of[*row]);
            }
            levels
        })
        .collect();
    let values = source.iter().map(|row| table.observations[*row].value).collect();
    let order = source.iter().map(|row| table.observations[*row].order).collect();
    let centers = center
        .iter()
        .map(|row| (table.observations[*row].value, if blocked { block_of[*row] } else { 0 }))
        .collect();
    Rows { levels, counts, values, order, source, factors: columns.len(), centers }
}

fn describe(
    columns: &[Column],
    names: &[&String],
    rows: &Rows,
    blocks: Vec<String>,
    mut caveats: Vec<Caveat>,
) -> Layout {
    let cells = rows.by_cell();
    let sizes: Vec<usize> = cells.values().map(Vec::len).collect();
    let (fewest, most) =
        (sizes.iter().min().copied().unwrap_or(0), sizes.iter().max().copied().unwrap_or(0));
    let possible: usize =
        columns.iter().fold(1_usize, |all, column| all.saturating_mul(column.texts.len()));
    let two_level = columns.iter().all(|column| column.texts.len() == 2);
    let configurations: Vec<Vec<usize>> = cells.keys().cloned().collect();
    let fraction = (two_level && cells.len() < possible)
        .then(|| Fraction::recognize(columns.len(), &configurations))
        .flatten();
    let count = |value: usize| whole_u64(exact_f64(value));
    if cells.len() < possible && fraction.is_none() {
        let missing = count(possible - cells.len());
        caveats.push(Caveat::MissingCells { missing, cells: count(possible) });
    }
    if fewest != most {
        caveats.push(Caveat::Unbalanced { fewest: count(fewest), most: count(most) });
    }
    if most == 1 {
        caveats.push(Caveat::TooFewReplications { have: 1, need: 2 });
    }
    let complete = cells.len() == possible || fraction.is_some();
    let blocked = blocks.len() > 1;
    let even = !blocked || blocks_are_complete(rows);
    let sums =
        if complete && fewest == most && even { SumsKind::Balanced } else { SumsKind::TypeThree };
    let factors = columns
        .iter()
        .zip(names)
        .enumerate()
        .map(|(index, (column, name))| FactorLevels {
            letter: letter(index),
            name: (*name).clone(),
            levels: column.texts.clone(),
        })
        .collect();
    Layout {
        factors,
        runs: count(rows.values.len()),
        cells: count(cells.len()),
        fewest_replications: count(fewest),
        most_replications: count(most),
        sums,
        blocks: if blocked { blocks } else { Vec::new() },
        two_level,
        fraction,
        center_points: Vec::new(),
        caveats,
    }
}

/// Whether every block holds every cell equally often.
fn blocks_are_complete(rows: &Rows) -> bool {
    let mut counts: BTreeMap<&[usize], u32> = BTreeMap::new();
    for levels in &rows.levels {
        *counts.entry(levels.as_slice()).or_default() += 1;
    }
    let blocks = rows.counts.last().copied().unwrap_or(1);
    let same = counts.values().min() == counts.values().max();
    same && counts.len() == rows.by_cell().len() * blocks
}
