//! An analyzed design as tables and words for people.

use kendall_report::document::{Section, Table};
use kendall_stats::analysis::surface::{Nature, Surface};
use kendall_stats::analysis::{
    Analysis, Covariate, Fit, Model, SignTable, SumsKind, Term, Verdict,
};
use kendall_stats::estimate::{Estimate, figures};
use kendall_units::counted;

use crate::text::grid;

/// Rows of a table of cells beyond which it no longer helps.
const MOST_CELLS: usize = 64;

pub(super) fn human(analysis: &Analysis, response: &str, covariate: &str) -> Section {
    let mut document = summary(analysis, response);
    if let Some(signs) = &analysis.sign_table {
        document.heading("Sign table (means of the responses as measured)");
        document.table(sign_table(signs));
    }
    document.heading("Effects and allocation of variation");
    effects(&mut document, analysis);
    at_one_value(&mut document, analysis, covariate);
    level_effects(&mut document, &analysis.fit);
    contrasts(&mut document, &analysis.fit);
    needed(&mut document, analysis);
    if analysis.fit.cells.len() <= MOST_CELLS {
        document.heading("Cells");
        document.table(cells(analysis));
    }
    document.heading("Assumptions");
    for check in &analysis.fit.checks {
        let mark = match check.verdict {
            Verdict::Holds => "holds",
            Verdict::Doubtful => "DOUBTFUL",
            Verdict::CannotTell => "cannot tell",
            Verdict::NotTestable => "not testable",
        };
        document.text(format!("- {}: {mark}. {}", check.assumption, check.words));
    }
    if !analysis.caveats.is_empty() {
        document.heading("Caveats");
        for caveat in &analysis.caveats {
            document.text(format!("- {caveat}"));
        }
    }
    document
}

fn summary(analysis: &Analysis, response: &str) -> Section {
    let layout = &analysis.layout;
    let factors: Vec<String> = layout
        .factors
        .iter()
        .map(|f| format!("{} = {} ({})", f.letter, f.name, f.levels.join(", ")))
        .collect();
    let replications = if layout.fewest_replications == layout.most_replications {
        format!("{} each", layout.fewest_replications)
    } else {
        format!("{} to {} each", layout.fewest_replications, layout.most_replications)
    };
    let mut document = Section::new("effects", "");
    document.text(format!(
        "Response `{response}`: {} in {}, {replications}\n{}",
        counted(layout.runs, "run"),
        counted(layout.cells, "cell"),
        factors.join("; ")
    ));
    if layout.sums == SumsKind::TypeThree {
        document.text("Sums of squares are of type III (each term given all others); shares do not add up to 100 %");
    }
    if let Some(fraction) = &layout.fraction {
        let words: Vec<String> =
            fraction.defining_relation.iter().take(16).map(ToString::to_string).collect();
        document.text(format!(
            "A fraction of resolution {}: I = {}",
            fraction.resolution,
            words.join(" = ")
        ));
    }
    let recommended = analysis.recommendation.model;
    let choice = if analysis.model == recommended { "recommended" } else { "asked for" };
    document.text(format!("Model: {} ({choice})", analysis.model));
    for reason in &analysis.recommendation.reasons {
        document.text(format!("- {reason}"));
    }
    if analysis.model != recommended {
        document.text(format!("- the data recommend the {recommended} model"));
    }
    document
}

fn sign_table(signs: &SignTable) -> Table {
    let mut header = signs.columns.clone();
    header.extend(["responses".to_owned(), "mean".to_owned()]);
    let mut rows: Vec<Vec<String>> = signs
        .rows
        .iter()
        .map(|row| {
            let mut cells: Vec<String> = row.signs.iter().map(ToString::to_string).collect();
            let responses: Vec<String> =
                row.responses.iter().map(|value| figures(*value, 6)).map(trim).collect();
            cells.push(responses.join(", "));
            cells.push(figures(row.mean, 6));
            cells
        })
        .collect();
    let line = |values: &[f64], name: &str| {
        let mut cells: Vec<String> = values.iter().map(|value| figures(*value, 6)).collect();
        cells.extend([name.to_owned(), String::new()]);
        cells
    };
    rows.push(line(&signs.totals, "total"));
    rows.push(line(&signs.effects, &format!("total / {}", signs.rows.len())));
    grid(&header, rows.into_iter())
}

/// `2475.00` is `2475`.
fn trim(text: String) -> String {
    if text.contains('.') && !text.contains('e') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn effects(document: &mut Section, analysis: &Analysis) {
    let fit = &analysis.fit;
    let multiplicative = fit.model == Model::Multiplicative;
    let with_effects = fit.terms.iter().any(|term| term.effect.is_some());
    let mut header = vec!["term".to_owned()];
    if with_effects {
        header.push(if multiplicative { "q (log10)" } else { "effect q" }.to_owned());
        header.push("±".to_owned());
    }
    if multiplicative {
        header.push("10^q".to_owned());
    }
    header.extend(["variation %", "df", "F", "p"].map(str::to_owned));
    let mut rows: Vec<Vec<String>> = Vec::new();
    if with_effects {
        let mut mean = vec!["mean".to_owned()];
        mean.extend(effect_cells(Some(&fit.mean), fit.mean.center));
        if multiplicative {
            mean.push(figures(10_f64.powf(fit.mean.center), 5));
        }
        mean.resize(header.len(), String::new());
        rows.push(mean);
    }
    rows.extend(
        fit.terms.iter().map(|term| term_row(term, fit.mean.center, with_effects, multiplicative)),
    );
    if let Some(error) = &fit.error {
        let mut row = vec!["error".to_owned()];
        row.resize(header.len() - 4, String::new());
        row.extend([format!("{:.2}", 100.0 * error.share), error.degrees.to_string()]);
        row.resize(header.len(), String::new());
        rows.push(row);
    }
    document.table(grid(&header, rows.into_iter()));
    if fit.terms.iter().any(|term| term.significant == Some(true)) {
        document.text("* significant");
    }
    below_effects(document, fit);
}

/// The effects at one value of a covariate, beside those as measured.
fn at_one_value(document: &mut Section, analysis: &Analysis, covariate: &str) {
    let found = match &analysis.covariate {
        None => return,
        Some(Covariate::NotUsed(why)) => {
            return document.text(format!("`{covariate}` is not used: {why}"));
        }
        Some(Covariate::Used(found)) => found,
    };
    document.heading(format!(
            "Effects at one value of `{covariate}` (a per cent more goes with {:+.2} % of the response, p \
             {}): intervals at least {:.1} times narrower; all else is as measured",
            found.slope,
            p_value(found.p_value),
            found.narrower
        ));
    let multiplicative = analysis.model == Model::Multiplicative;
    let mut header = vec!["term", if multiplicative { "q (log10)" } else { "effect q" }, "±"];
    header.extend(["as measured", "±"]);
    let header: Vec<String> = header.into_iter().map(str::to_owned).collect();
    let scale = analysis.fit.mean.center;
    let rows = analysis.fit.terms.iter().filter_map(|term| {
        let one = found.effect(&term.name)?;
        let mut row = vec![term.name.clone()];
        row.extend(effect_cells(Some(&one.effect), scale));
        row.extend(effect_cells(term.effect.as_ref(), scale));
        Some(row)
    });
    document.table(grid(&header, rows));
    if !found.moved.is_empty() {
        let terms = found.moved.join(", ");
        document.text(format!("Not for {terms}: the levels differ in `{covariate}` itself"));
    }
}

/// Totals, deviations, and what the terms stand for.
fn below_effects(document: &mut Section, fit: &Fit) {
    let sums = &fit.sums;
    document.text(format!(
        "SSY {}, SS0 {}, SST {}, SSE {}",
        figures(sums.ssy, 7),
        figures(sums.ss0, 7),
        figures(sums.sst, 7),
        figures(sums.sse, 7)
    ));
    if let (Some(error), Some(deviation)) = (&fit.error, fit.effect_deviation) {
        document.text(format!(
            "s_e {} on {}, s_q {}",
            figures(error.deviation, 5),
            counted(error.degrees, "degree of freedom"),
            figures(deviation, 5)
        ));
    }
    if let Some(lenth) = &fit.lenth {
        document.text(format!(
            "Lenth: pseudo standard error {}, an effect beyond {} is significant by itself, \
                 beyond {} even among all of them",
            figures(lenth.pseudo_standard_error, 5),
            figures(lenth.margin_of_error, 5),
            figures(lenth.simultaneous_margin, 5)
        ));
    }
    if !fit.left_out.is_empty() {
        document.text(format!(
            "Left out: confounded, or pooled into the error: {}",
            fit.left_out.join(", ")
        ));
    }
    for term in fit.terms.iter().filter(|term| !term.aliases.is_empty()) {
        let sum = format!("{} + {}", term.name, term.aliases.join(" + ")).replace("+ -", "- ");
        document.text(format!("{} stands for {sum}", term.name));
    }
}

/// Effect and half-width of its interval. What is nil beside `scale` but for rounding is 0.
fn effect_cells(effect: Option<&Estimate>, scale: f64) -> [String; 2] {
    const ROUNDING: f64 = 1e-12;
    match effect {
        Some(effect) => {
            let nil = effect.center.abs() < ROUNDING * scale.abs();
            let half_width = effect.interval.map(|interval| interval.half_width());
            [
                if nil { "0".to_owned() } else { figures(effect.center, 6) },
                half_width.map_or_else(|| "–".to_owned(), |half_width| figures(half_width, 4)),
            ]
        }
        None => ["–".to_owned(), "–".to_owned()],
    }
}

fn term_row(term: &Term, scale: f64, with_effects: bool, multiplicative: bool) -> Vec<String> {
    let mut row = vec![term.name.clone()];
    if with_effects {
        row.extend(effect_cells(term.effect.as_ref(), scale));
    }
    if multiplicative {
        let factor =
            term.multiplier.as_ref().map_or_else(|| "–".to_owned(), |m| figures(m.center, 4));
        row.push(factor);
    }
    row.push(format!("{:.2}", 100.0 * term.share));
    row.push(term.degrees.to_string());
    row.push(term.f_ratio.map_or_else(|| "–".to_owned(), |f| figures(f, 4)));
    let told = if term.significant == Some(true) { " *" } else { "" };
    let p = term.p_value.map_or_else(|| "–".to_owned(), p_value);
    row.push(format!("{p}{told}"));
    row
}

pub(crate) fn p_value(p: f64) -> String {
    if p < 0.0001 { "< 0.0001".to_owned() } else { format!("{p:.4}") }
}

fn level_effects(document: &mut Section, fit: &Fit) {
    for term in fit.terms.iter().filter(|term| !term.level_effects.is_empty()) {
        if term.level_effects.len() > MOST_CELLS {
            continue;
        }
        document.heading(format!("Effect of {} ({})", term.label, term.name));
        let header = ["level", "effect", "±"].map(str::to_owned);
        let rows = term.level_effects.iter().map(|level| {
            let [center, half_width] = effect_cells(Some(&level.effect), fit.mean.center);
            vec![level.levels.join(", "), center, half_width]
        });
        document.table(grid(&header, rows));
    }
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
    let header = ["term", "coefficient", "±", "p"].map(str::to_owned);
    let rows = found.coefficients.iter().map(|one| {
        let [center, half] =
            effect_cells(Some(&one.estimate), found.coefficients[0].estimate.center);
        vec![one.name.clone(), center, half, p_value(one.p_value)]
    });
    document.table(grid(&header, rows));
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

/// Differences between levels, by Tukey's method.
fn contrasts(document: &mut Section, fit: &Fit) {
    if fit.contrasts.is_empty() {
        return;
    }
    document
        .heading("Levels compared (Tukey: the confidence is that of all differences of a factor)");
    let multiplicative = fit.model == Model::Multiplicative;
    let unit = if multiplicative { "times" } else { "difference" };
    let header = ["factor", "levels", unit, "interval", "p"].map(str::to_owned);
    let rows = fit.contrasts.iter().map(|one| {
        let shown = one.ratio.as_ref().unwrap_or(&one.difference);
        let told = if shown_apart(one) { " *" } else { "" };
        vec![
            one.factor.clone(),
            format!("{} → {}", one.levels.0, one.levels.1),
            figures(shown.center, 5),
            shown.interval.map_or_else(String::new, |interval| interval.to_string()),
            format!("{}{told}", p_value(one.p_value)),
        ]
    });
    document.table(grid(&header, rows));
}

fn shown_apart(one: &kendall_stats::analysis::Contrast) -> bool {
    one.difference.interval.is_some_and(|interval| !interval.contains(0.0))
}

/// For effects that were not significant: how many repetitions would make them so, if they are as
/// large as they came out.
fn needed(document: &mut Section, analysis: &Analysis) {
    let layout = &analysis.layout;
    let Some(error) = analysis.fit.error.filter(|_| layout.two_level) else { return };
    let open = analysis.fit.terms.iter().filter(|term| term.significant == Some(false));
    let largest = open
        .filter_map(|term| Some((term, term.effect.as_ref()?.center.abs())))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((term, effect)) = largest.filter(|(_, effect)| *effect > 0.0) else { return };
    let plan = kendall_stats::power::TwoLevel {
        cells: layout.cells,
        deviation: error.deviation,
        effect,
        confidence: 0.95,
    };
    let words = match plan.replications_for(kendall_stats::power::USUAL_POWER) {
        Some(count) => format!(
            "{} is not significant. If it is as large as estimated, {count} repetitions would \
             detect it in {:.0} % of such studies.",
            term.name,
            100.0 * kendall_stats::power::USUAL_POWER
        ),
        None => {
            format!("{} is not significant, nor would 1,000 repetitions detect it.", term.name)
        }
    };
    document.text(words);
}

fn cells(analysis: &Analysis) -> Table {
    let multiplicative = analysis.model == Model::Multiplicative;
    let mut header: Vec<String> =
        analysis.layout.factors.iter().map(|factor| factor.name.clone()).collect();
    // An interval on the log scale is symmetric as a factor.
    let around = if multiplicative { "×÷" } else { "±" };
    header.extend(["runs", "mean", "dev.", "model", around].map(str::to_owned));
    let rows = analysis.fit.cells.iter().map(|cell| {
        let mut row = cell.levels.clone();
        row.push(cell.replications.to_string());
        row.push(figures(cell.mean, 6));
        row.push(cell.deviation.map_or_else(|| "–".to_owned(), |d| figures(d, 4)));
        row.push(figures(cell.predicted.center, 6));
        let width = cell.predicted.interval.map(|interval| {
            if multiplicative {
                (interval.high / interval.low).sqrt()
            } else {
                interval.half_width()
            }
        });
        row.push(width.map_or_else(|| "–".to_owned(), |width| figures(width, 4)));
        row
    });
    grid(&header, rows)
}
