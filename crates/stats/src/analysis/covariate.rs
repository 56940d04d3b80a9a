//! Effects at one value of a second quantity that was measured in every run, such as the machine's
//! speed: analysis of covariance, beside the plain analysis and never in its place.

use serde::{Deserialize, Serialize};

use super::fit::{Fit, matrix_of, name};
use super::layout::{Layout, Rows};
use super::linear::{Group, Matrix, Solution};
use super::{AnalysisError, Model};
use crate::distribution::{t_p_value, t_two_sided};
use crate::estimate::{Estimate, Interval};
use crate::sample::mean;
use kendall_units::exact_f64;

/// The plain intervals must be this much wider for those at one value to be shown.
const NOTABLY: f64 = 1.1;

/// Significance of the slope. Strict, since intervals are shown only where they became narrower: of
/// studies whose covariate is without effect one in a hundred shows them, and those are too narrow.
const SLOPE_SIGNIFICANCE: f64 = 0.01;

/// Standard errors by which a term may move the covariate itself. Beyond, the covariate would remove
/// the effect that was to be found.
const ALIKE: f64 = 2.0;

/// Degrees of freedom of the error below which no slope is fitted.
const FEWEST_DEGREES: usize = 4;

/// Residuals whose squares are a smaller share of the values' than this are what rounding left: 2⁻⁵² of each value
/// twice or so, squared, and more for what sums of a few hundred runs add.
const TINY: f64 = 1e-26;

/// What a covariate did for an analysis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Covariate {
    /// It narrows the intervals of the effects.
    Used(AtOneValue),
    /// It does not, or cannot be used; in words, without a full stop.
    NotUsed(String),
}

/// The effects at one value of the covariate: its geometric mean over the runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AtOneValue {
    /// Per cent of the mean response for a per cent of the covariate.
    pub slope: f64,
    /// Probability of so steep a slope where the covariate has no effect.
    pub p_value: f64,
    /// Width of the plain intervals over these, of the effect that gains least.
    pub narrower: f64,
    /// Terms of two-level factors.
    pub effects: Vec<EffectAtOneValue>,
    /// Letters of the terms that move the covariate itself by more than chance, and have no effect
    /// here.
    pub moved: Vec<String>,
}

/// One effect at one value of the covariate, in the unit of the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EffectAtOneValue {
    /// Letters, such as `AB`.
    pub name: String,
    /// q.
    pub effect: Estimate,
    /// 10^q of a multiplicative model.
    pub multiplier: Option<Estimate>,
}

impl AtOneValue {
    /// The effect of a term.
    #[must_use]
    pub fn effect(&self, name: &str) -> Option<&EffectAtOneValue> {
        self.effects.iter().find(|one| one.name == name)
    }
}

/// Analysis of covariance with one slope for all cells.
///
/// # Source
/// Montgomery, Design and Analysis of Experiments, §15.3; the effects by regressing the response and
/// the covariate on the terms and one on the other's residuals (Frisch, Waugh 1933).
pub(super) fn at_one_value(
    (layout, rows): (&Layout, &Rows),
    fit: &Fit,
    (confidence, pooled): (f64, &[String]),
    covariate: &[f64],
) -> Result<Covariate, AnalysisError> {
    let not = |why: &str| Ok(Covariate::NotUsed(why.to_owned()));
    if covariate.iter().any(|value| !value.is_finite() || *value <= 0.0) {
        return not("it is not above 0 in every run");
    }
    if !rows.centers.is_empty() {
        return not("designs with center points are analyzed without it");
    }
    let (matrix, _) = matrix_of(layout, rows, pooled)?;
    let logs: Vec<f64> = rows.source.iter().map(|row| covariate[*row].ln()).collect();
    let response: Vec<f64> = match fit.model {
        Model::Additive => rows.values.clone(),
        Model::Multiplicative => rows.values.iter().map(|value| value.log10()).collect(),
    };
    let (of_x, of_y) = (matrix.solve(&logs), matrix.solve(&response));
    if of_y.error_degrees < FEWEST_DEGREES {
        return not("too few runs are left to judge the error by");
    }
    let line = match Line::of((&logs, &of_x), (&response, &of_y)) {
        Ok(line) => line,
        Err(why) => return not(why),
    };
    if line.p_value >= SLOPE_SIGNIFICANCE {
        return not("it explains no more of the error than chance would");
    }
    let judged = Judged { matrix: &matrix, line: &line, of_x: &of_x, of_y: &of_y, confidence };
    let mut found = AtOneValue {
        slope: line.relative(fit.model, mean(&rows.values)),
        p_value: line.p_value,
        narrower: f64::INFINITY,
        effects: Vec::new(),
        moved: Vec::new(),
    };
    let two_level = |group: &&Group| group.factors.iter().all(|f| rows.counts[*f] == 2);
    let no_block = |group: &&Group| group.factors != [rows.factors];
    for group in matrix.groups.iter().filter(no_block).filter(two_level) {
        let name = name(layout, rows, &group.factors);
        let (effect, narrower) = match judged.effect(group.columns.start) {
            Effect::Moves => {
                found.moved.push(name);
                continue;
            }
            Effect::AtOneValue { effect, narrower } => (effect, narrower),
        };
        found.narrower = found.narrower.min(narrower);
        let multiplier =
            (fit.model == Model::Multiplicative).then(|| effect.map(|q| 10_f64.powf(q)));
        found.effects.push(EffectAtOneValue { name, effect, multiplier });
    }
    if found.effects.is_empty() {
        return not("the factors move it themselves, or have more than two levels");
    }
    if found.narrower < NOTABLY {
        return not("intervals would hardly be narrower");
    }
    Ok(Covariate::Used(found))
}

/// The response over the covariate, both less what the terms explain.
struct Line {
    slope: f64,
    p_value: f64,
    /// Σ of squares of the covariate's residuals.
    spread: f64,
    /// Mean square of the error that is left, and its degrees of freedom.
    error: f64,
    degrees: f64,
}

impl Line {
    /// Or why there is none.
    fn of(
        (xs, of_x): (&[f64], &Solution),
        (ys, of_y): (&[f64], &Solution),
    ) -> Result<Self, &'static str> {
        let left = |values: &[f64], solution: &Solution| -> Vec<f64> {
            values.iter().zip(&solution.predicted).map(|(value, at)| value - at).collect()
        };
        let (x, y) = (left(xs, of_x), left(ys, of_y));
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let (spread, squares) = (dot(&x, &x), dot(&y, &y));
        if spread <= TINY * dot(xs, xs) {
            return Err("it does not vary between runs of one cell");
        }
        let rounding = TINY * dot(ys, ys);
        if squares <= rounding {
            return Err("the response does not vary between runs of one cell");
        }
        let slope = dot(&x, &y) / spread;
        let degrees = exact_f64(of_y.error_degrees - 1);
        // On an exact line rounding is all that is left, and is not less than that.
        let error = (squares - slope * slope * spread).max(rounding) / degrees;
        let p_value = t_p_value(slope / (error / spread).sqrt(), degrees);
        Ok(Self { slope, p_value, spread, error, degrees })
    }

    /// Per cent for a per cent.
    fn relative(&self, model: Model, mean: f64) -> f64 {
        match model {
            Model::Additive => self.slope / mean,
            Model::Multiplicative => self.slope * std::f64::consts::LN_10,
        }
    }
}

struct Judged<'a> {
    matrix: &'a Matrix,
    line: &'a Line,
    of_x: &'a Solution,
    of_y: &'a Solution,
    confidence: f64,
}

/// What one value of the covariate makes of a term.
enum Effect {
    /// The term moves the covariate itself.
    Moves,
    AtOneValue {
        effect: Estimate,
        /// How much wider the plain interval is.
        narrower: f64,
    },
}

impl Judged<'_> {
    fn effect(&self, column: usize) -> Effect {
        let Self { line, of_x, of_y, confidence, .. } = self;
        let variance = self.matrix.variance(column, &[1.0]);
        let moved = of_x.coefficients[column];
        let of_degrees = exact_f64(of_x.error_degrees);
        if moved.abs() > ALIKE * (line.spread / of_degrees * variance).sqrt() {
            return Effect::Moves;
        }
        let half = |degrees: f64, error: f64, variance: f64| {
            t_two_sided(*confidence, degrees) * (error * variance).sqrt()
        };
        let center = of_y.coefficients[column] - line.slope * moved;
        let width = half(line.degrees, line.error, variance + moved * moved / line.spread);
        let mean_square = of_y.error_mean_square().expect("at least four degrees of freedom");
        let plain = half(exact_f64(of_y.error_degrees), mean_square, variance);
        let interval = Interval::around(center, width, *confidence);
        let effect = Estimate::with_interval(center, interval);
        Effect::AtOneValue { effect, narrower: plain / width }
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::super::{Observation, Options, Table, analyze_with};
    use super::*;

    /// Box and Muller.
    fn normal(rng: &mut Xoshiro256PlusPlus) -> f64 {
        let (a, b): (f64, f64) = (rng.random(), rng.random());
        (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }

    /// A 2² in blocks on a machine whose speed drifts by `drift` from run to run, and whose runs
    /// scatter by 1 % besides; only factor A does something, and its high level moves the probe by
    /// `moves`. The response follows the speed as `slope` says.
    fn study(
        rng: &mut Xoshiro256PlusPlus,
        (drift, slope, moves): (f64, f64, f64),
        repetitions: u32,
    ) -> (Table, Vec<f64>) {
        let (mut observations, mut speeds) = (Vec::new(), Vec::new());
        for block in 0..repetitions {
            for cell in 0..4_u32 {
                let (a, b) = (cell % 2, cell / 2);
                let speed = (drift * normal(rng)).exp();
                let level = 1_000.0 * 1.02_f64.powf(2.0 * f64::from(a) - 1.0);
                speeds.push(50e3 * speed * (1.0 + moves * f64::from(a)));
                observations.push(Observation {
                    levels: vec![a.to_string(), b.to_string()],
                    block: Some(block.to_string()),
                    order: None,
                    value: level * speed.powf(slope) * (0.01 * normal(rng)).exp(),
                });
            }
        }
        let factors = vec!["workers".to_owned(), "cache".to_owned()];
        (Table { factors, observations }, speeds)
    }

    fn used(table: &Table, speeds: &[f64]) -> Option<AtOneValue> {
        let model = Some(Model::Multiplicative);
        let options = Options { model, blocks: true, ..Options::default() };
        let analysis = analyze_with(table, &options, &[], Some(speeds)).unwrap();
        match analysis.covariate.unwrap() {
            Covariate::Used(found) => Some(found),
            Covariate::NotUsed(_) => None,
        }
    }

    /// Shares of the studies: shown, and of those shown the intervals of A, B and AB that hold the
    /// truth; the mean narrowing; and of all studies those that show an interval without the truth.
    fn shares(what: (f64, f64, f64), repetitions: u32, studies: u32) -> (f64, f64, f64, f64) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
        let truth = |name: &str| if name == "A" { 1.02_f64.log10() } else { 0.0 };
        let (mut shown, mut held, mut given, mut narrower, mut wrong) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for _ in 0..studies {
            let (table, speeds) = study(&mut rng, what, repetitions);
            let Some(found) = used(&table, &speeds) else { continue };
            shown += 1.0;
            narrower += found.narrower;
            let holds =
                |one: &EffectAtOneValue| one.effect.interval.unwrap().contains(truth(&one.name));
            let here = found.effects.iter().filter(|one| holds(one)).count();
            held += exact_f64(here);
            given += exact_f64(found.effects.len());
            wrong += exact_f64(found.effects.len() - here) / 3.0;
        }
        let studies = f64::from(studies);
        (
            shown / studies,
            held / f64::max(given, 1.0),
            narrower / f64::max(shown, 1.0),
            wrong / studies,
        )
    }

    /// 95 % of about 3,000 intervals, three of a study sharing its error: a standard error of 0.6 %.
    #[test]
    fn drift_that_the_covariate_sees_is_taken_off_and_intervals_hold() {
        for repetitions in [3, 6] {
            let (shown, held, narrower, _) = shares((0.10, -1.0, 0.0), repetitions, 1_000);
            assert!(shown > 0.9, "{shown}");
            assert!((held - 0.95).abs() < 4.0 * 0.006, "{repetitions}: {held}");
            assert!(narrower > 2.5, "{narrower}");
        }
    }

    /// A covariate without effect is used in about one study of a hundred, and what it then makes
    /// too narrow is a small part of all.
    #[test]
    fn a_covariate_that_says_nothing_is_left_out() {
        for repetitions in [3, 6] {
            let (shown, _, _, wrong) = shares((0.10, 0.0, 0.0), repetitions, 1_000);
            assert!(shown < 0.02, "{shown}");
            assert!(wrong < 0.005, "{wrong}");
        }
    }

    /// A factor that moves the probe itself has no effect at one value, and is named.
    #[test]
    fn a_factor_that_moves_the_covariate_is_not_explained_away() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let (table, speeds) = study(&mut rng, (0.05, -1.0, 0.5), 5);
        let found = used(&table, &speeds).unwrap();
        assert_eq!(found.moved, ["A"]);
        assert!(found.effect("A").is_none() && found.effect("B").is_some(), "{found:?}");
    }

    /// Against the normal equations with a column for the covariate, solved by hand for a 2 × 2 with
    /// two replications: y = 10 + 2A + 3z exactly, z without any effect of A.
    #[test]
    fn an_exact_slope_gives_the_exact_effect() {
        let z = [0.1_f64, -0.1, 0.2, -0.2, -0.1, 0.1, -0.2, 0.2];
        let signs = [(-1.0, -1.0), (1.0, -1.0), (-1.0, 1.0), (1.0, 1.0)];
        let observations = (0..8)
            .map(|row| {
                let (a, b) = signs[row % 4];
                let error = [1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0][row] * 1e-6;
                Observation {
                    levels: vec![format!("{a}"), format!("{b}")],
                    block: None,
                    order: None,
                    value: 10.0 + 2.0 * a + 3.0 * z[row] + error,
                }
            })
            .collect();
        let table = Table { factors: vec!["a".to_owned(), "b".to_owned()], observations };
        let options = Options { model: Some(Model::Additive), ..Options::default() };
        let speeds: Vec<f64> = z.iter().map(|z| z.exp()).collect();
        let analysis = analyze_with(&table, &options, &[], Some(&speeds)).unwrap();
        let Some(Covariate::Used(found)) = &analysis.covariate else {
            panic!("{:?}", analysis.covariate)
        };
        assert!((found.effect("A").unwrap().effect.center - 2.0).abs() < 1e-5, "{found:?}");
        assert!((found.slope - 0.3).abs() < 1e-5, "{found:?}");
        // As measured stays as measured.
        let plain = super::super::analyze(&table, &options).unwrap();
        assert_eq!(plain.fit, analysis.fit);
        assert_eq!(plain.covariate, None);
    }

    /// A 2² with two replications and these responses, over a covariate that varies.
    fn of_responses(value: impl Fn(usize, f64) -> f64) -> Covariate {
        let z = [0.1_f64, -0.1, 0.2, -0.2, -0.1, 0.1, -0.2, 0.2];
        let observation = |row: usize| Observation {
            levels: vec![(row % 2).to_string(), (row / 2 % 2).to_string()],
            block: None,
            order: None,
            value: value(row, z[row]),
        };
        let observations = (0..8).map(observation).collect();
        let table = Table { factors: vec!["a".to_owned(), "b".to_owned()], observations };
        let options = Options { model: Some(Model::Additive), ..Options::default() };
        let speeds: Vec<f64> = z.iter().map(|z| z.exp()).collect();
        analyze_with(&table, &options, &[], Some(&speeds)).unwrap().covariate.unwrap()
    }

    /// Counts, or what a simulation answers, may be the same in all runs of a cell: there is nothing to explain,
    /// and 0/0 is no evidence.
    #[test]
    fn a_response_without_scatter_has_nothing_to_be_explained() {
        for scale in [1.0, 1e-9, 1e9] {
            let not = of_responses(|row, _| scale * [10.0, 13.1, 17.0, 21.3][row % 4]);
            let Covariate::NotUsed(why) = &not else { panic!("{scale}: {not:?}") };
            assert!(why.contains("response does not vary"), "{scale}: {why}");
        }
    }

    /// What is printed and stored of an exact line are numbers, too.
    #[test]
    fn an_exact_line_narrows_by_a_number() {
        let found = of_responses(|row, z| 10.0 + [0.0, 2.0, 3.0, 4.0][row % 4] + 3.0 * z);
        let Covariate::Used(at_one) = &found else { panic!("{found:?}") };
        assert!(at_one.narrower.is_finite() && at_one.p_value < 1e-6, "{at_one:?}");
        let text = serde_json::to_string(&found).unwrap();
        // An infinite number would be written as null, which is not read as a number.
        let read = serde_json::from_str::<Covariate>(&text);
        assert!(matches!(read, Ok(Covariate::Used(_))), "{text}: {read:?}");
    }
}
