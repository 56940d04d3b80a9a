//! One model fitted: terms with their effects, shares and tests, cells, residuals, plot data.

use std::collections::BTreeMap;

use kendall_units::{exact_f64, whole_u64};
use serde::{Deserialize, Serialize};

use super::checks::{self, Check, QuantilePoint, Residual};
use super::layout::{Layout, Rows};
use super::linear::{Group, Matrix, Solution, product};
use super::{AnalysisError, Model};
use crate::distribution::{
    f_p_value, normal_quantile, studentized_range_p_value, studentized_range_quantile, t_two_sided,
};
use crate::estimate::{Caveat, Estimate, Interval};
use crate::sample::{mean, median, sum_of_squares, variance};

/// Most omitted terms that are listed.
const MOST_LEFT_OUT: usize = 400;

/// One fitted model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// Which.
    pub model: Model,
    /// q0: the mean over all cells; of log₁₀ y for the multiplicative model.
    pub mean: Estimate,
    /// Effects and interactions, and blocks if they are a term.
    pub terms: Vec<Term>,
    /// Interactions that the data do not tell apart from the terms, or that were given up for the
    /// error, by their letters.
    pub left_out: Vec<String>,
    /// Differences between the levels of a factor with more than two, by Tukey's method: the
    /// confidence is that of all differences of one factor together.
    #[serde(default)]
    pub contrasts: Vec<Contrast>,
    /// What the terms do not explain; `None` when there are as many terms as runs.
    pub error: Option<ErrorTerm>,
    /// Totals.
    pub sums: Sums,
    /// s_q: standard deviation of every effect, where it is the same for all.
    pub effect_deviation: Option<f64>,
    /// Pseudo standard error, where nothing is left for the error.
    pub lenth: Option<Lenth>,
    /// Measured cells with what the model says of them.
    pub cells: Vec<Cell>,
    /// One a run, in the order of the table.
    pub residuals: Vec<Residual>,
    /// Ordered residuals against normal quantiles.
    pub quantiles: Vec<QuantilePoint>,
    /// Half-normal plot of the effects, for a two-level design.
    pub half_normal: Vec<HalfNormalPoint>,
    /// Mean response by the levels of each pair of factors.
    pub interactions: Vec<InteractionPlot>,
    /// Assumptions, checked one by one.
    pub checks: Vec<Check>,
}

/// A main effect, an interaction, or blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// Letters, such as `AB`; `blocks`.
    pub name: String,
    /// Names of the factors, such as `servers × workers`.
    pub label: String,
    /// Positions of its factors; empty for blocks.
    pub factors: Vec<usize>,
    /// Degrees of freedom.
    pub degrees: u64,
    /// Sum of squares.
    pub sum_of_squares: f64,
    /// Its share of the total variation (0 to 1).
    pub share: f64,
    /// Sum of squares over degrees of freedom.
    pub mean_square: f64,
    /// Mean square over that of the error.
    pub f_ratio: Option<f64>,
    /// Probability of so large a ratio when there is no effect.
    pub p_value: Option<f64>,
    /// Whether it is significant at the stated confidence.
    pub significant: Option<bool>,
    /// q, half the change from the low to the high level, of a term of two-level factors.
    pub effect: Option<Estimate>,
    /// 10^q of a multiplicative model.
    pub multiplier: Option<Estimate>,
    /// Effect of every level, or pair of levels, of a term with more than two.
    pub level_effects: Vec<LevelEffect>,
    /// What a fraction cannot tell it from, such as `BCD`.
    pub aliases: Vec<String>,
}

/// Effect of one level, or pair of levels, against the mean.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LevelEffect {
    /// Texts of the levels.
    pub levels: Vec<String>,
    /// α.
    pub effect: Estimate,
}

/// Two levels of one factor compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Contrast {
    /// Name of the factor.
    pub factor: String,
    /// The two levels.
    pub levels: (String, String),
    /// Second minus first, in the unit of the model.
    pub difference: Estimate,
    /// Second over first, of a multiplicative model.
    pub ratio: Option<Estimate>,
    /// Probability that the largest of the factor's differences is so large when there is none.
    pub p_value: f64,
}

/// Levels of a factor beyond which their pairs are too many to print.
const MOST_COMPARED: usize = 12;

/// What the terms leave unexplained.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ErrorTerm {
    /// SSE.
    pub sum_of_squares: f64,
    /// Degrees of freedom.
    pub degrees: u64,
    /// SSE over degrees of freedom.
    pub mean_square: f64,
    /// s_e, its root.
    pub deviation: f64,
    /// Its share of the total variation (0 to 1).
    pub share: f64,
}

/// Totals of the allocation of variation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    /// Σy².
    pub ssy: f64,
    /// n·ȳ².
    pub ss0: f64,
    /// Σ(y−ȳ)².
    pub sst: f64,
    /// What is left unexplained.
    pub sse: f64,
}

/// Lenth's judgement of effects without replications.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Lenth {
    /// Pseudo standard error of an effect q.
    pub pseudo_standard_error: f64,
    /// An effect beyond it is significant by itself.
    pub margin_of_error: f64,
    /// An effect beyond it is significant among all of them.
    pub simultaneous_margin: f64,
}

/// A measured cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Texts of its levels.
    pub levels: Vec<String>,
    /// Replications.
    pub replications: u64,
    /// Mean response.
    pub mean: f64,
    /// Standard deviation of the replications.
    pub deviation: Option<f64>,
    /// What the model says, with the interval of the mean response, in the unit of the response.
    pub predicted: Estimate,
}

/// One effect of a half-normal plot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HalfNormalPoint {
    /// Letters of the effect.
    pub name: String,
    /// |q|.
    pub magnitude: f64,
    /// Quantile of the half-normal distribution where it would lie if all were error.
    pub quantile: f64,
}

/// Mean responses of one pair of factors: parallel lines mean no interaction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InteractionPlot {
    /// Factor along the axis.
    pub along: String,
    /// Its levels.
    pub along_levels: Vec<String>,
    /// Factor with a line for each level.
    pub lines: String,
    /// Its levels.
    pub line_levels: Vec<String>,
    /// `means[line][along]`; `None` where nothing was measured.
    pub means: Vec<Vec<Option<f64>>>,
}

pub(super) fn fit(
    layout: &Layout,
    rows: &Rows,
    model: Model,
    (confidence, pooled): (f64, &[String]),
) -> Result<Fit, AnalysisError> {
    let response: Vec<f64> = match model {
        Model::Additive => rows.values.clone(),
        Model::Multiplicative => rows.values.iter().map(|value| value.log10()).collect(),
    };
    let (matrix, left_out) = matrix_of(layout, rows, pooled)?;
    let mut solution = matrix.solve(&response);
    let centers = Centers::of(rows, model);
    solution.error_sum_of_squares += centers.error.0;
    solution.error_degrees += centers.error.1;
    let mut context = Context {
        layout,
        rows,
        model,
        confidence,
        matrix: &matrix,
        solution,
        centers,
        variances: None,
    };
    context.variances = (matrix.width() <= MOST_LEFT_OUT).then(|| matrix.variances());
    Ok(context.fit(&response, left_out))
}

/// The terms that are fitted, and the names of those that are not.
pub(super) fn matrix_of(
    layout: &Layout,
    rows: &Rows,
    pooled: &[String],
) -> Result<(Matrix, Vec<String>), AnalysisError> {
    let (mut matrix, mut left_out) = choose_terms(layout, rows)?;
    if !pooled.is_empty() {
        matrix = without(layout, rows, &matrix, pooled, &mut left_out)?;
    }
    Ok((matrix, left_out))
}

fn confounded(rows: &Rows) -> AnalysisError {
    AnalysisError::Confounded { cells: rows.by_cell().len() }
}

/// As many terms as the data tell apart, main effects first; and the names of those left out.
pub(super) fn choose_terms(
    layout: &Layout,
    rows: &Rows,
) -> Result<(Matrix, Vec<String>), AnalysisError> {
    let count = rows.values.len();
    let cells = rows.by_cell().len();
    let mut matrix = Matrix::new(rows);
    if rows.counts.len() > rows.factors && !matrix.push(&[rows.factors]) {
        return Err(confounded(rows));
    }
    if !(0..rows.factors).all(|factor| matrix.push(&[factor])) {
        return Err(confounded(rows));
    }
    let may_saturate = layout.two_level || cells < count;
    if !may_saturate && matrix.width() >= count {
        let factor = layout.factors[0].name.clone();
        return Err(AnalysisError::NoError { factor, levels: rows.counts[0] });
    }
    let possible =
        rows.counts[..rows.factors].iter().fold(1_usize, |all, n| all.saturating_mul(*n));
    // One cell each: its highest interaction is the error, or nothing would be.
    let spare_highest = cells == possible && !may_saturate;
    let room = matrix.most_columns().min(if may_saturate { count } else { count - 1 });
    let mut left_out = Vec::new();
    let candidates = (2..=rows.factors).flat_map(|size| subsets(rows.factors, size));
    for term in candidates {
        let fits = matrix.width() + matrix.width_of(&term) <= room;
        let spared = spare_highest && term.len() == rows.factors;
        if spared || !fits || !matrix.push(&term) {
            left_out.push(name(layout, rows, &term));
        }
        if left_out.len() > MOST_LEFT_OUT {
            break;
        }
    }
    Ok((matrix, left_out))
}

/// The same terms but for those that are pooled into the error: by name, or all interactions of so
/// many factors and more (`3+`).
fn without(
    layout: &Layout,
    rows: &Rows,
    matrix: &Matrix,
    pooled: &[String],
    left_out: &mut Vec<String>,
) -> Result<Matrix, AnalysisError> {
    let is_pooled = |group: &Group, wanted: &str| {
        let order = wanted.strip_suffix('+').and_then(|order| order.parse::<usize>().ok());
        let is_block = group.factors == [rows.factors];
        match order {
            Some(order) => !is_block && group.factors.len() >= order.max(2),
            None => name(layout, rows, &group.factors) == wanted,
        }
    };
    if let Some(unknown) =
        pooled.iter().find(|wanted| !matrix.groups.iter().any(|group| is_pooled(group, wanted)))
    {
        let terms = matrix.groups.iter().take(16).map(|g| name(layout, rows, &g.factors));
        let terms = terms.collect::<Vec<_>>().join(", ");
        return Err(AnalysisError::NoTerm { name: unknown.clone(), terms });
    }
    let mut rest = Matrix::new(rows);
    for group in &matrix.groups {
        if pooled.iter().any(|wanted| is_pooled(group, wanted)) {
            left_out.push(name(layout, rows, &group.factors));
        } else if !rest.push(&group.factors) {
            return Err(confounded(rows));
        }
    }
    Ok(rest)
}

/// Subsets of 0..count of one size, in lexicographic order.
fn subsets(count: usize, size: usize) -> Vec<Vec<usize>> {
    if size == 0 {
        return vec![Vec::new()];
    }
    if size > count || count > 20 {
        return Vec::new();
    }
    let mut all: Vec<Vec<usize>> = Vec::new();
    let mut chosen: Vec<usize> = (0..size).collect();
    loop {
        all.push(chosen.clone());
        let Some(place) = (0..size).rev().find(|i| chosen[*i] < count - size + i) else {
            return all;
        };
        chosen[place] += 1;
        for next in place + 1..size {
            chosen[next] = chosen[next - 1] + 1;
        }
    }
}

pub(super) fn name(layout: &Layout, rows: &Rows, factors: &[usize]) -> String {
    if factors == [rows.factors] {
        return "blocks".to_owned();
    }
    factors.iter().map(|factor| layout.factors[*factor].letter).collect()
}

/// The runs at the center point of a two-level design, in the unit of the model.
struct Centers {
    values: Vec<f64>,
    /// Sum of squares and degrees of freedom of their replications, within blocks.
    error: (f64, usize),
}

impl Centers {
    fn of(rows: &Rows, model: Model) -> Self {
        let unit = |y: f64| if model == Model::Multiplicative { y.log10() } else { y };
        let mut by_block: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for (value, block) in &rows.centers {
            by_block.entry(*block).or_default().push(unit(*value));
        }
        let error = by_block.values().fold((0.0, 0), |(squares, degrees), values| {
            (squares + sum_of_squares(values), degrees + values.len() - 1)
        });
        Self { values: rows.centers.iter().map(|(value, _)| unit(*value)).collect(), error }
    }
}

struct Context<'a> {
    layout: &'a Layout,
    rows: &'a Rows,
    model: Model,
    confidence: f64,
    matrix: &'a Matrix,
    solution: Solution,
    centers: Centers,
    /// Of the coefficients, over σ².
    variances: Option<Vec<f64>>,
}

impl Context<'_> {
    fn fit(&self, response: &[f64], left_out: Vec<String>) -> Fit {
        // With blocks, part of what the center runs differ by is theirs; the corners alone are shared.
        let together: Vec<f64> = if self.layout.blocks.is_empty() {
            response.iter().chain(&self.centers.values).copied().collect()
        } else {
            response.to_vec()
        };
        let sst = sum_of_squares(&together)
            + if self.layout.blocks.is_empty() { 0.0 } else { self.centers.error.0 };
        let center = mean(response);
        let sums = Sums {
            ssy: response.iter().map(|y| y * y).sum(),
            ss0: exact_f64(response.len()) * center * center,
            sst,
            sse: self.solution.error_sum_of_squares,
        };
        let lenth = self.lenth();
        let mut terms: Vec<Term> =
            self.matrix.groups.iter().map(|group| self.term(group, sst, lenth.as_ref())).collect();
        terms.extend(self.curvature(response, sst));
        let residuals = self.residuals(response);
        let values: Vec<f64> = residuals.iter().map(|r| r.residual).collect();
        let cell_values: Vec<Vec<f64>> = self
            .rows
            .by_cell()
            .values()
            .map(|r| r.iter().map(|i| response[*i]).collect())
            .collect();
        let checks = checks::all(&checks::Evidence {
            residuals: &residuals,
            cells: &cell_values,
            error_degrees: self.solution.error_degrees,
            center_points: &self.centers.values,
            responses: response,
        });
        Fit {
            model: self.model,
            mean: self.estimate(0, &[1.0], None),
            half_normal: half_normal(&terms),
            terms,
            left_out,
            contrasts: self.contrasts(),
            error: self.error(sst),
            sums,
            effect_deviation: self.effect_deviation(),
            lenth,
            cells: self.cells(),
            quantiles: checks::quantile_points(&values),
            residuals,
            interactions: self.interactions(),
            checks,
        }
    }

    fn error(&self, sst: f64) -> Option<ErrorTerm> {
        let mean_square = self.solution.error_mean_square()?;
        Some(ErrorTerm {
            sum_of_squares: self.solution.error_sum_of_squares,
            degrees: whole_u64(exact_f64(self.solution.error_degrees)),
            mean_square,
            deviation: mean_square.sqrt(),
            share: self.solution.error_sum_of_squares / sst,
        })
    }

    fn effect_deviation(&self) -> Option<f64> {
        let error = self.solution.error_mean_square()?;
        let first = self.matrix.variance(0, &[1.0]);
        let same = match &self.variances {
            Some(all) => all.iter().all(|variance| (variance - first).abs() <= 1e-9 * first),
            // So many columns are only had of a balanced design.
            None => self.layout.two_level && self.layout.blocks.is_empty(),
        };
        same.then(|| (error * first).sqrt())
    }

    /// Estimate of a combination of coefficients.
    fn estimate(&self, start: usize, x: &[f64], lenth: Option<&Lenth>) -> Estimate {
        let coefficients = &self.solution.coefficients[start..];
        let center = x.iter().zip(coefficients).map(|(x, b)| x * b).sum();
        let variance = self.matrix.variance(start, x);
        match (self.solution.error_mean_square(), lenth) {
            (Some(error), _) => {
                let t = t_two_sided(self.confidence, exact_f64(self.solution.error_degrees));
                let half_width = t * (error * variance).sqrt();
                Estimate::with_interval(
                    center,
                    Interval::around(center, half_width, self.confidence),
                )
            }
            (None, Some(lenth)) => {
                let half_width = lenth.margin_of_error;
                let interval = Interval::around(center, half_width, self.confidence);
                Estimate::with_interval(center, interval).doubt(Caveat::Unreplicated)
            }
            (None, None) => Estimate::exact(center).doubt(Caveat::Unreplicated),
        }
    }

    fn term(&self, group: &Group, sst: f64, lenth: Option<&Lenth>) -> Term {
        let is_block = group.factors == [self.rows.factors];
        let degrees = group.columns.len();
        let sum_of_squares = self.matrix.sum_of_squares(&self.solution, group);
        let mean_square = sum_of_squares / exact_f64(degrees);
        let f_ratio = self.solution.error_mean_square().map(|error| mean_square / error);
        let p_value = f_ratio
            .map(|f| f_p_value(f, exact_f64(degrees), exact_f64(self.solution.error_degrees)));
        let two_level =
            !is_block && group.factors.iter().all(|factor| self.rows.counts[*factor] == 2);
        let effect = two_level.then(|| self.estimate(group.columns.start, &[1.0], lenth));
        let beyond =
            |estimate: &Estimate| lenth.map(|lenth| estimate.center.abs() > lenth.margin_of_error);
        let significant = match p_value {
            Some(p) => Some(p < 1.0 - self.confidence),
            None => effect.as_ref().and_then(beyond),
        };
        let multiplier = effect
            .as_ref()
            .filter(|_| self.model == Model::Multiplicative)
            .map(|estimate| estimate.map(|q| 10_f64.powf(q)));
        let labels: Vec<&str> = if is_block {
            vec!["blocks"]
        } else {
            group.factors.iter().map(|f| self.layout.factors[*f].name.as_str()).collect()
        };
        let few_levels = group.factors.len() <= 2 && !is_block && !two_level;
        Term {
            name: name(self.layout, self.rows, &group.factors),
            label: labels.join(" × "),
            factors: if is_block { Vec::new() } else { group.factors.clone() },
            degrees: whole_u64(exact_f64(degrees)),
            sum_of_squares,
            share: sum_of_squares / sst,
            mean_square,
            f_ratio,
            p_value,
            significant,
            effect,
            multiplier,
            level_effects: if few_levels { self.level_effects(group) } else { Vec::new() },
            aliases: if is_block { Vec::new() } else { self.aliases(&group.factors) },
        }
    }

    /// All pairs of levels of the factors with more than two.
    ///
    /// Source: Tukey 1953, Kramer 1956 for unequal replications [Montgomery 2017 §3.5].
    fn contrasts(&self) -> Vec<Contrast> {
        let Some(error) = self.solution.error_mean_square() else { return Vec::new() };
        let degrees = exact_f64(self.solution.error_degrees);
        let mut contrasts = Vec::new();
        for group in self.matrix.groups.iter().filter(|group| group.factors.len() == 1) {
            let factor = group.factors[0];
            let levels = self.rows.counts[factor];
            if factor == self.rows.factors || !(3..=MOST_COMPARED).contains(&levels) {
                continue;
            }
            let groups = u32::try_from(levels).unwrap_or(u32::MAX);
            let critical = studentized_range_quantile(self.confidence, groups, degrees);
            for pair in subsets(levels, 2) {
                let (first, second) =
                    (product(&[(pair[0], levels)]), product(&[(pair[1], levels)]));
                let x: Vec<f64> = first.iter().zip(&second).map(|(a, b)| b - a).collect();
                let plain = self.estimate(group.columns.start, &x, None);
                let deviation =
                    (error * self.matrix.variance(group.columns.start, &x) / 2.0).sqrt();
                let interval =
                    Interval::around(plain.center, critical * deviation, self.confidence);
                let difference = Estimate::with_interval(plain.center, interval);
                let names = &self.layout.factors[factor];
                contrasts.push(Contrast {
                    factor: names.name.clone(),
                    levels: (names.levels[pair[0]].clone(), names.levels[pair[1]].clone()),
                    ratio: (self.model == Model::Multiplicative)
                        .then(|| difference.map(|log| 10_f64.powf(log))),
                    p_value: studentized_range_p_value(
                        difference.center.abs() / deviation,
                        groups,
                        degrees,
                    ),
                    difference,
                });
            }
        }
        contrasts
    }

    /// What the center point lies off the plane of the corners; without blocks.
    ///
    /// Source: Montgomery 2017 §6.8.
    fn curvature(&self, corners: &[f64], sst: f64) -> Option<Term> {
        let centers = &self.centers.values;
        if centers.is_empty() || !self.layout.blocks.is_empty() {
            return None;
        }
        let (n, c) = (exact_f64(corners.len()), exact_f64(centers.len()));
        let sum_of_squares = n * c * (mean(corners) - mean(centers)).powi(2) / (n + c);
        let f_ratio = self.solution.error_mean_square().map(|error| sum_of_squares / error);
        let p_value = f_ratio.map(|f| f_p_value(f, 1.0, exact_f64(self.solution.error_degrees)));
        Some(Term {
            name: "curvature".to_owned(),
            label: "curvature".to_owned(),
            factors: Vec::new(),
            degrees: 1,
            sum_of_squares,
            share: sum_of_squares / sst,
            mean_square: sum_of_squares,
            f_ratio,
            p_value,
            significant: p_value.map(|p| p < 1.0 - self.confidence),
            effect: None,
            multiplier: None,
            level_effects: Vec::new(),
            aliases: Vec::new(),
        })
    }

    fn aliases(&self, factors: &[usize]) -> Vec<String> {
        let Some(fraction) = &self.layout.fraction else { return Vec::new() };
        let word = factors.iter().fold(0_u32, |word, factor| word | 1 << factor);
        let longest = u32::try_from(self.rows.factors).unwrap_or(u32::MAX);
        fraction.aliases_of(word, longest).iter().map(ToString::to_string).collect()
    }

    fn level_effects(&self, group: &Group) -> Vec<LevelEffect> {
        let mut combinations: Vec<Vec<usize>> = vec![Vec::new()];
        for factor in &group.factors {
            combinations = combinations
                .into_iter()
                .flat_map(|levels| {
                    (0..self.rows.counts[*factor]).map(move |level| {
                        let mut extended = levels.clone();
                        extended.push(level);
                        extended
                    })
                })
                .collect();
        }
        combinations
            .into_iter()
            .map(|levels| {
                let of: Vec<(usize, usize)> = levels
                    .iter()
                    .zip(&group.factors)
                    .map(|(level, factor)| (*level, self.rows.counts[*factor]))
                    .collect();
                LevelEffect {
                    levels: self.texts(&group.factors, &levels),
                    effect: self.estimate(group.columns.start, &product(&of), None),
                }
            })
            .collect()
    }

    fn texts(&self, factors: &[usize], levels: &[usize]) -> Vec<String> {
        factors
            .iter()
            .zip(levels)
            .map(|(factor, level)| self.layout.factors[*factor].levels[*level].clone())
            .collect()
    }

    /// Lenth's pseudo standard error, where a two-level design leaves nothing for the error.
    ///
    /// Source: Lenth 1989, "Quick and easy analysis of unreplicated factorials".
    fn lenth(&self) -> Option<Lenth> {
        if self.solution.error_degrees > 0 || !self.layout.two_level {
            return None;
        }
        let effects: Vec<f64> = self
            .matrix
            .groups
            .iter()
            .filter(|group| group.factors != [self.rows.factors])
            .map(|group| self.solution.coefficients[group.columns.start].abs())
            .collect();
        if effects.len() < 3 {
            return None;
        }
        let first = 1.5 * median(effects.clone());
        let small: Vec<f64> = effects.iter().copied().filter(|e| *e < 2.5 * first).collect();
        let pseudo = 1.5 * median(if small.is_empty() { effects.clone() } else { small });
        let count = exact_f64(effects.len());
        let degrees = count / 3.0;
        // The level at which none of so many effects passes by chance, if they are independent.
        let each = self.confidence.powf(1.0 / count);
        Some(Lenth {
            pseudo_standard_error: pseudo,
            margin_of_error: t_two_sided(self.confidence, degrees) * pseudo,
            simultaneous_margin: t_two_sided(each, degrees) * pseudo,
        })
    }

    fn cells(&self) -> Vec<Cell> {
        let all: Vec<usize> = (0..self.rows.factors).collect();
        let back = |y: f64| if self.model == Model::Multiplicative { 10_f64.powf(y) } else { y };
        self.rows
            .by_cell()
            .iter()
            .map(|(levels, members)| {
                let values: Vec<f64> = members.iter().map(|row| self.rows.values[*row]).collect();
                let mut x = self.matrix.row(members[0]);
                // The mean over blocks, not the block that the first run happens to be in.
                if let Some(block) = self.block_columns() {
                    x[block].fill(0.0);
                }
                Cell {
                    levels: self.texts(&all, levels),
                    replications: whole_u64(exact_f64(members.len())),
                    mean: mean(&values),
                    deviation: variance(&values).map(f64::sqrt),
                    predicted: self.estimate(0, &x, None).map(back),
                }
            })
            .collect()
    }

    fn block_columns(&self) -> Option<std::ops::Range<usize>> {
        let block = self.matrix.groups.iter().find(|group| group.factors == [self.rows.factors])?;
        Some(block.columns.clone())
    }

    fn residuals(&self, response: &[f64]) -> Vec<Residual> {
        let error = self.solution.error_mean_square();
        let leverages = self.matrix.leverages();
        (0..response.len())
            .map(|row| {
                let predicted = self.solution.predicted[row];
                let residual = response[row] - predicted;
                let leverage = leverages[row];
                let studentized = error
                    .filter(|e| *e > 0.0 && leverage < 1.0 - 1e-9)
                    .map(|e| residual / (e * (1.0 - leverage)).sqrt());
                Residual {
                    row: whole_u64(exact_f64(self.rows.source[row])) + 1,
                    order: self.rows.order.as_ref().map(|order| order[row]),
                    observed: response[row],
                    predicted,
                    residual,
                    studentized,
                    leverage,
                }
            })
            .collect()
    }

    fn interactions(&self) -> Vec<InteractionPlot> {
        subsets(self.rows.factors, 2)
            .into_iter()
            .map(|pair| {
                let (along, lines) = (pair[0], pair[1]);
                let mut sums =
                    vec![vec![(0.0, 0.0); self.rows.counts[along]]; self.rows.counts[lines]];
                for (levels, value) in self.rows.levels.iter().zip(&self.rows.values) {
                    let sum = &mut sums[levels[lines]][levels[along]];
                    *sum = (sum.0 + value, sum.1 + 1.0);
                }
                let mean_of = |(sum, count): &(f64, f64)| (*count > 0.0).then(|| sum / count);
                InteractionPlot {
                    along: self.layout.factors[along].name.clone(),
                    along_levels: self.layout.factors[along].levels.clone(),
                    lines: self.layout.factors[lines].name.clone(),
                    line_levels: self.layout.factors[lines].levels.clone(),
                    means: sums.iter().map(|line| line.iter().map(mean_of).collect()).collect(),
                }
            })
            .collect()
    }
}

fn half_normal(terms: &[Term]) -> Vec<HalfNormalPoint> {
    let mut points: Vec<HalfNormalPoint> = terms
        .iter()
        .filter_map(|term| {
            let magnitude = term.effect.as_ref()?.center.abs();
            Some(HalfNormalPoint { name: term.name.clone(), magnitude, quantile: 0.0 })
        })
        .collect();
    points.sort_by(|a, b| a.magnitude.total_cmp(&b.magnitude));
    let count = exact_f64(points.len());
    for (index, point) in points.iter_mut().enumerate() {
        let share = (exact_f64(index) + 0.5) / count;
        point.quantile = normal_quantile(f64::midpoint(1.0, share));
    }
    points
}
