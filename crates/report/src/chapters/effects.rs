//! Effects of the factors and their share of the variation: 2^k r designs, and analysis of variance
//! for more levels.

mod sign_table;

use kendall_stats::analysis::{
    Analysis, AnalysisError, AtOneValue, Covariate, Fit, InteractionPlot, Model, Observation,
    Options, SumsKind, Table as Experiment, Term, Verdict, analyze_with,
};
use kendall_stats::power::{TwoLevel, USUAL_POWER};

use crate::document::{Block, Cell, Level, Section, Table, Unit};
use crate::number;
use crate::plot::{Axis, Mark, Plot, Point, Series};
use crate::prepared::Prepared;
use kendall_observations::{Configuration, Observations, Repetition, short};

use super::capitalized;

/// A response variable: key in file names, name for people, and how it is printed.
pub(crate) struct Response {
    pub(crate) key: String,
    pub(crate) name: String,
    pub(crate) unit: Unit,
    /// Its unit for people; empty where it is not known.
    pub(crate) label: String,
    /// How shares of its variation are printed.
    pub(crate) share: Unit,
    /// What was measured beside it in every run, and may explain it.
    pub(crate) covariate: String,
}

/// Value of a response variable in a run, in SI.
pub(crate) type Value = fn(&Repetition) -> f64;

/// What a study's effects are analyzed for.
pub(crate) fn responses() -> [(Response, Value); 2] {
    let response = |key: &str, name: &str, unit, label: &str| Response {
        key: key.to_owned(),
        name: name.to_owned(),
        unit,
        label: label.to_owned(),
        share: Unit::Percent,
        covariate: "the machine's speed by the probe of each run".to_owned(),
    };
    [
        (response("throughput", "throughput", Unit::PerSecond, "1/s"), |r| {
            r.point.client.throughput_per_s
        }),
        (response("response-time", "mean response time", Unit::Milliseconds, "ms"), |r| {
            r.point.client.response_time_s
        }),
    ]
}

/// What an effect and a share of the variation are.
pub(crate) const INTRODUCTION: &str = "What the factors do to the response, and how much of the variation between runs each of them \
     explains. An effect is half the difference between the two levels (for more levels: an effect \
     a level, in the analysis of variance); an interaction is what one factor changes about the \
     effect of another; the rest is the error between repetitions.";

const MOST_INTERACTIONS: usize = 6;

/// Bars at most; what explains less is in the table.
const MOST_BARS: usize = 14;

/// Effects on what the answer of a design is about: how long requests take, where an open loop offers every configuration
/// what it can answer; else the throughput.
pub(crate) fn of_answer(data: &Observations) -> (Response, Result<Analysis, AnalysisError>) {
    let [throughput, response_time] = responses();
    let (response, value) = if answers_all(data) { response_time } else { throughput };
    (response, analyzed(data, value))
}

/// Whether all that is offered is answered, so that throughput shows what was asked, and nothing of the system.
pub(crate) fn answers_all(data: &Observations) -> bool {
    let answers =
        |c: &Configuration| c.point.offered_per_s().is_some() && c.queue_growth().is_none();
    data.configurations.iter().all(answers)
}

/// Effects as differences of a response, whatever model the data recommend.
pub(crate) fn additive(data: &Observations, value: Value) -> Result<Analysis, AnalysisError> {
    let options = Options { model: Some(Model::Additive), ..options(data) };
    analyze_with(&experiment(data, value), &options, &[], None)
}

fn analyzed(data: &Observations, value: Value) -> Result<Analysis, AnalysisError> {
    let speeds = speeds(data);
    analyze_with(&experiment(data, value), &options(data), &[], speeds.as_deref())
}

/// What a unit of the speed probe took in every run, in the order of [`experiment`]; `None` where not
/// all runs have it.
fn speeds(data: &Observations) -> Option<Vec<f64>> {
    let repetitions = data.configurations.iter().flat_map(|one| &one.repetitions);
    repetitions.map(|repetition| repetition.run.speed_unit_ns).collect()
}

/// Shares of the variation of what the answer is about.
pub(crate) fn shares_of_answer(data: &Observations) -> Option<Plot> {
    let (response, analysis) = of_answer(data);
    Some(shares(&response, &analysis.ok()?.fit))
}

/// An early chapter of a study that has no load curves: the effects are what it asks for.
pub(crate) fn of_an_experiment(data: &Prepared<'_>) -> Option<Section> {
    if data.load.is_none() { chapter(data) } else { None }
}

/// A late chapter of a study of load curves.
pub(crate) fn beside_load_curves(data: &Prepared<'_>) -> Option<Section> {
    if data.load.is_some() { chapter(data) } else { None }
}

fn chapter(data: &Prepared<'_>) -> Option<Section> {
    // An adaptive search measures where it pays, not where effects could be separated.
    if data.factors.is_empty() || !data.searches.is_empty() {
        return None;
    }
    let mut section = Section::new("effects", "Effects of the factors, and variation");
    section.text(INTRODUCTION);
    let mut any = false;
    for (response, value) in &responses() {
        section.heading(format!("Effects on the {}", response.name));
        match analyzed(data, *value) {
            Ok(analysis) => {
                any = true;
                explain(&mut section, response, &analysis);
            }
            Err(error) => section.note(Level::Doubt, format!("Not analyzed: {error}.")),
        }
    }
    (any || data.load.is_none()).then_some(section)
}

/// Every repetition is a block in which all configurations were run once, in an order of its own:
/// what differs between repetitions is the machine's drift, and no part of the error.
fn options(data: &Observations) -> Options {
    Options { model: model(&data.study.file), confidence: data.study.confidence, blocks: true }
}

/// `model` of `[design]` in the study file; `None` takes what the data recommend.
fn model(file: &str) -> Option<Model> {
    let file: toml::Table = file.parse().ok()?;
    match file.get("design")?.get("model")?.as_str()? {
        "additive" => Some(Model::Additive),
        "multiplicative" => Some(Model::Multiplicative),
        _ => None,
    }
}

fn experiment(data: &Observations, value: Value) -> Experiment {
    let observations = data.configurations.iter().flat_map(|configuration| {
        let levels: Vec<String> = data
            .factors
            .iter()
            .map(|factor| {
                configuration.level(&factor.key).map_or_else(String::new, |l| l.text.clone())
            })
            .collect();
        configuration.repetitions.iter().map(move |repetition| Observation {
            levels: levels.clone(),
            block: Some(repetition.run.repetition.to_string()),
            order: Some(f64::from(repetition.run.position)),
            value: value(repetition),
        })
    });
    Experiment {
        factors: data.factors.iter().map(|factor| short(&factor.key)).collect(),
        observations: observations.collect(),
    }
}

/// Words, tables and plots of one analysis.
pub(crate) fn explain(section: &mut Section, response: &Response, analysis: &Analysis) {
    section.text(in_words(response, analysis));
    if let Some(fraction) = &analysis.layout.fraction {
        const MOST_WORDS: usize = 16;
        let words: Vec<String> =
            fraction.defining_relation.iter().take(MOST_WORDS).map(ToString::to_string).collect();
        section.note(
            Level::Doubt,
            format!(
                "The design is a fraction of resolution {}, I = {}: each effect is confounded with \
                 others: the table names the sum that it stands for.",
                fraction.resolution,
                words.join(" = ")
            ),
        );
    }
    let why = analysis.recommendation.reasons.join("; ");
    section.text(if analysis.model == analysis.recommendation.model {
        format!("The {} model is used: {why}.", analysis.model)
    } else {
        format!("The {} model is used, as requested. The data say: {why}.", analysis.model)
    });
    if analysis.model != analysis.recommendation.model {
        section.note(
            Level::Doubt,
            format!("The data recommend the {} model.", analysis.recommendation.model),
        );
    }
    section.plot(shares(response, &analysis.fit));
    section.table(table(response, analysis));
    if let Some(covariate) = &analysis.covariate {
        section.text(covariate_in_words(&response.covariate, covariate));
    }
    if let Some(signs) = sign_table::table(response, analysis) {
        section.table(signs.folded());
    }
    section.table(sign_table::sums(response, analysis).folded());
    let mut plots = interactions(response, &analysis.fit).into_iter();
    while let Some(first) = plots.next() {
        match plots.next() {
            Some(second) => section.blocks.push(Block::PlotPair(Box::new((first, second)))),
            None => section.plot(first),
        }
    }
    section.table(levels(response, analysis));
    section.text("The intervals and tests rest on these assumptions:");
    for check in &analysis.fit.checks {
        let level = match check.verdict {
            Verdict::Holds => Level::Good,
            Verdict::Doubtful | Verdict::CannotTell | Verdict::NotTestable => Level::Doubt,
        };
        let of = capitalized(&check.assumption.to_string());
        section.note(level, format!("{of}: {}", check.words));
    }
    for caveat in &analysis.layout.caveats {
        section.note(Level::Doubt, format!("{}.", capitalized(&caveat.to_string())));
    }
    if analysis.fit.residuals.iter().any(|residual| residual.residual != 0.0) {
        let pair = (residuals(response, analysis), quantiles(response, &analysis.fit));
        section.blocks.push(Block::PlotPair(Box::new(pair)));
    }
    section.table(cells(response, analysis));
}

/// The effects at one speed of the machine, if there are such.
pub(crate) fn at_one_speed(analysis: &Analysis) -> Option<&AtOneValue> {
    match analysis.covariate.as_ref()? {
        Covariate::Used(found) => Some(found),
        Covariate::NotUsed(_) => None,
    }
}

/// What a covariate does for the effects.
fn covariate_in_words(name: &str, covariate: &Covariate) -> String {
    let found = match covariate {
        Covariate::NotUsed(why) => return format!("{} is not used: {why}.", capitalized(name)),
        Covariate::Used(found) => found,
    };
    let moved = if found.moved.is_empty() {
        String::new()
    } else {
        let terms = found.moved.join(", ");
        format!(" There is none for {terms}, whose levels differ in it: that may be what they do.")
    };
    format!(
        "Effects at one value of {name} stand beside those as measured: 1 % more of it goes with {} of \
         the response, and the intervals are at least {:.1} times narrower. All other numbers, shares \
         and tests are as measured.{moved}",
        number::signed_percent(found.slope / 100.0),
        found.narrower
    )
}

fn by_share(fit: &Fit) -> Vec<&Term> {
    let mut terms: Vec<&Term> = fit.terms.iter().collect();
    terms.sort_by(|a, b| b.share.total_cmp(&a.share));
    terms
}

fn in_words(response: &Response, analysis: &Analysis) -> String {
    let fit = &analysis.fit;
    let most: Vec<String> = by_share(fit)
        .iter()
        .take(3)
        .map(|term| {
            let told = if term.significant == Some(false) { ", not significant" } else { "" };
            format!("{} {}{told}", term.label, number::percent(term.share))
        })
        .collect();
    let error = fit.error.as_ref().map_or_else(
        || "There are as many terms as runs, so the error cannot be estimated.".to_owned(),
        |error| {
            let rest = number::percent(error.share);
            if analysis.layout.blocks.is_empty() {
                format!("Repetitions differ by {rest} of it.")
            } else {
                format!(
                    "Runs are compared within their repetition (a block); within it they differ by \
                     {rest} of the variation."
                )
            }
        },
    );
    let sums = match analysis.layout.sums {
        SumsKind::Balanced => "",
        SumsKind::TypeThree => {
            " The design is unbalanced: each share is given all other terms, and they do not add up."
        }
    };
    format!(
        "Of the variation of the {}, the largest shares are: {}. {error}{sums}",
        response.name,
        most.join("; ")
    )
}

fn shares(response: &Response, fit: &Fit) -> Plot {
    let mut bars: Vec<(String, f64)> = by_share(fit)
        .iter()
        .take(MOST_BARS)
        .map(|term| (term.label.clone(), 100.0 * term.share))
        .collect();
    bars.extend(fit.error.as_ref().map(|error| ("error".to_owned(), 100.0 * error.share)));
    let points = bars
        .iter()
        .enumerate()
        .map(|(place, (_, share))| Point::new(kendall_units::exact_f64(place), *share));
    Plot {
        id: format!("plot-shares-{}", response.key),
        title: format!("Share of the variation of the {}", response.name),
        description: "Largest first; the last bar is what repetitions differ by.".to_owned(),
        series: vec![Series::new("share of the variation", Mark::Bars, 0, points)],
        x: Axis::categories("term", bars.into_iter().map(|(name, _)| name).collect()),
        y: Axis::from_zero("share (%)"),
    }
}

fn table(response: &Response, analysis: &Analysis) -> Table {
    let multiplicative = analysis.model == Model::Multiplicative;
    let (unit, label) = effect_unit(response, analysis.model);
    let mut table = Table::new(
        format!("effects-{}", response.key),
        format!("Effects on the {}, and allocation of variation", response.name),
    )
    .column("term", "Term", Unit::Text)
    .column("factors", "Factors", Unit::Text)
    .column("effect", with_unit("Effect", label), unit);
    if multiplicative {
        table = table.column("multiplier", "Times", Unit::Plain(3));
    }
    let at_one_speed = at_one_speed(analysis);
    if at_one_speed.is_some() {
        table = table.column("at_one_speed", with_unit("At one value", label), unit);
    }
    table = table
        .column("share", "Variation (%)", response.share)
        .column("degrees", "df", Unit::Count)
        .column("f_ratio", "F", Unit::Plain(3))
        .column("p_value", "p", Unit::Plain(2))
        .column("significant", "Told from error", Unit::Text);
    let confounded = analysis.fit.terms.iter().any(|term| !term.aliases.is_empty());
    if confounded {
        table = table.column("aliases", "Confounded with", Unit::Text);
    }
    let mut mean = vec!["q0".into(), "mean".into(), Cell::Estimate(analysis.fit.mean.clone())];
    if multiplicative {
        mean.push(Cell::Estimate(analysis.fit.mean.map(|mean| 10_f64.powf(mean))));
    }
    mean.resize(table.columns.len(), Cell::Empty(String::new()));
    table.push(mean);
    for term in &analysis.fit.terms {
        let mut row = vec![
            term.name.as_str().into(),
            term.label.as_str().into(),
            Cell::estimate_or(term.effect.as_ref(), "more than two levels: see the levels"),
        ];
        if multiplicative {
            row.push(Cell::estimate_or(term.multiplier.as_ref(), "more than two levels"));
        }
        if let Some(found) = at_one_speed {
            let effect = found.effect(&term.name).map(|one| &one.effect);
            row.push(Cell::estimate_or(effect, "not known"));
        }
        let told = term.significant.map_or("", |yes| if yes { "yes" } else { "no" });
        row.extend([
            term.share.into(),
            kendall_units::exact_f64(term.degrees).into(),
            Cell::number_or(term.f_ratio, "no error term"),
            Cell::number_or(term.p_value, "no error term"),
            told.into(),
        ]);
        if confounded {
            row.push(term.aliases.join(", ").into());
        }
        table.push(row);
    }
    error_row(&mut table, &analysis.fit);
    table
}

fn error_row(table: &mut Table, fit: &Fit) {
    let Some(error) = &fit.error else { return };
    let mut row = vec!["e".into(), "error".into()];
    let before = table.columns.iter().take_while(|column| column.key != "share").count();
    row.resize(before, Cell::Empty(String::new()));
    row.extend([error.share.into(), kendall_units::exact_f64(error.degrees).into()]);
    row.resize(table.columns.len(), Cell::Empty(String::new()));
    table.push(row);
}

/// Standard deviations of a run and of an effect; without an error term, the margins of Lenth's method; what was
/// left out.
pub(crate) fn deviations(response: &Response, fit: &Fit) -> Vec<String> {
    let (unit, _) = effect_unit(response, fit.model);
    let mut said = Vec::new();
    if let Some((error, deviation)) = fit.error.as_ref().zip(fit.effect_deviation) {
        let (run, degrees) =
            (unit.print(error.deviation), number::count(error.degrees, "degree of freedom"));
        said.push(format!("s_e {run} on {degrees}, s_q {}", unit.print(deviation)));
    }
    if let Some(lenth) = &fit.lenth {
        let [error, margin, simultaneous] =
            [lenth.pseudo_standard_error, lenth.margin_of_error, lenth.simultaneous_margin]
                .map(|value| unit.print(value));
        said.push(format!(
            "Lenth: pseudo standard error {error}, an effect beyond {margin} is significant by itself, beyond \
             {simultaneous} even among all of them"
        ));
    }
    if !fit.left_out.is_empty() {
        let terms = fit.left_out.join(", ");
        said.push(format!("Left out: confounded, or pooled into the error: {terms}"));
    }
    said
}

/// Differences between levels, by Tukey's method.
pub(crate) fn contrasts(response: &Response, fit: &Fit) -> Table {
    let times = fit.model == Model::Multiplicative;
    let (key, label) = if times { ("ratio", "Times") } else { ("difference", "Difference") };
    let unit = if times { Unit::Plain(5) } else { response.unit };
    let title = "Levels compared (Tukey: the confidence is that of all differences of a factor)";
    Table::of(format!("contrasts-{}", response.key), title, &fit.contrasts)
        .column("factor", "Factor", Unit::Text, |one| one.factor.clone())
        .column("levels", "Levels", Unit::Text, |one| {
            format!("{} → {}", one.levels.0, one.levels.1)
        })
        .column(key, label, unit, |one| one.ratio.as_ref().unwrap_or(&one.difference).clone())
        .column("p_value", "p", Unit::Plain(2), |one| one.p_value)
        .column("significant", "Told from error", Unit::Text, |one| {
            let told = one.difference.interval.is_some_and(|interval| !interval.contains(0.0));
            if told { "yes" } else { "no" }
        })
        .table()
}

/// How many repetitions would tell the largest effect that was not significant, if it is as large as it came out.
pub(crate) fn needed(analysis: &Analysis, confidence: f64) -> Option<String> {
    let layout = &analysis.layout;
    let error = analysis.fit.error.filter(|_| layout.two_level)?;
    let open = analysis.fit.terms.iter().filter(|term| term.significant == Some(false));
    let (term, effect) = open
        .filter_map(|term| Some((term, term.effect.as_ref()?.center.abs())))
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .filter(|(_, effect)| *effect > 0.0)?;
    let deviation = error.deviation;
    let plan = TwoLevel { cells: layout.cells, deviation, effect, confidence };
    Some(match plan.replications_for(USUAL_POWER) {
        Some(count) => format!(
            "{} is not significant. If it is as large as estimated, {count} repetitions would detect it in {} \
             of such studies.",
            term.name,
            number::percent(USUAL_POWER)
        ),
        None => {
            format!("{} is not significant, nor would 1,000 repetitions detect it.", term.name)
        }
    })
}

fn effect_unit(response: &Response, model: Model) -> (Unit, &str) {
    match model {
        Model::Additive => (response.unit, &response.label),
        Model::Multiplicative => (Unit::Plain(4), "log₁₀"),
    }
}

/// `Effect (ms)`; `Effect` where the unit is not known.
fn with_unit(what: &str, unit: &str) -> String {
    if unit.is_empty() { what.to_owned() } else { format!("{what} ({unit})") }
}

/// Effects of single levels, where a factor has more than two.
fn levels(response: &Response, analysis: &Analysis) -> Table {
    let (unit, label) = effect_unit(response, analysis.model);
    let title = format!("Effect of every level on the {}, against the mean", response.name);
    let terms = analysis.fit.terms.iter();
    let rows = terms.flat_map(|term| term.level_effects.iter().map(move |level| (term, level)));
    Table::of(format!("level-effects-{}", response.key), title, rows)
        .column("term", "Term", Unit::Text, |(term, _)| term.label.as_str())
        .column("levels", "Levels", Unit::Text, |(_, level)| level.levels.join(", "))
        .column("effect", with_unit("Effect", label), unit, |(_, level)| level.effect.clone())
        .table()
        .folded()
}

fn interactions(response: &Response, fit: &Fit) -> Vec<Plot> {
    let plot = |(place, found): (usize, &InteractionPlot)| {
        let scale = response.unit.scale();
        let series = found.line_levels.iter().zip(&found.means).enumerate().map(
            |(color, (level, means))| {
                Series::new(
                    format!("{} {level}", found.lines),
                    Mark::Line,
                    color,
                    means.iter().enumerate().filter_map(|(at, mean)| {
                        Some(Point::new(kendall_units::exact_f64(at), (*mean)? * scale))
                    }),
                )
            },
        );
        Plot {
            id: format!("plot-interaction-{}-{place}", response.key),
            title: format!("Interaction of {} and {}", found.along, found.lines),
            description: format!(
                "{}, over all other factors; parallel lines mean that the two do not interact.",
                capitalized(&mean_of(&response.name))
            ),
            x: Axis::categories(found.along.clone(), found.along_levels.clone()),
            y: Axis::from_zero(with_unit(&response.name, &response.label)),
            series: series.collect(),
        }
    };
    fit.interactions.iter().take(MOST_INTERACTIONS).enumerate().map(plot).collect()
}

/// `mean throughput`; what is a mean already is not called one twice.
fn mean_of(name: &str) -> String {
    if name.starts_with("mean ") { name.to_owned() } else { format!("mean {name}") }
}

fn residuals(response: &Response, analysis: &Analysis) -> Plot {
    let (unit, label) = effect_unit(response, analysis.model);
    let points = analysis
        .fit
        .residuals
        .iter()
        .map(|r| Point::new(r.predicted * unit.scale(), r.residual * unit.scale()));
    Plot {
        id: format!("plot-residuals-{}", response.key),
        title: "Residuals against predicted".to_owned(),
        description: "A trend speaks against the model, a funnel against equal variance."
            .to_owned(),
        x: Axis::around_data(with_unit("predicted", label)),
        y: Axis::around_data(with_unit("residual", label)),
        series: vec![Series::new("one run", Mark::Points, 0, points)],
    }
}

fn quantiles(response: &Response, fit: &Fit) -> Plot {
    let (unit, label) = effect_unit(response, fit.model);
    let scale = unit.scale();
    // The two ends of one band: the second needs no line in the legend.
    let band = |name: &str, end: fn(&kendall_stats::analysis::QuantilePoint) -> f64| {
        Series::new(
            name,
            Mark::Dashed,
            7,
            fit.quantiles.iter().map(|p| Point::new(p.normal, end(p) * scale)),
        )
    };
    Plot {
        id: format!("plot-quantiles-{}", response.key),
        title: "Residuals against normal quantiles".to_owned(),
        description: "Normal residuals lie on a straight line, within the dashed band.".to_owned(),
        x: Axis::around_data("normal quantile"),
        y: Axis::around_data(with_unit("residual", label)),
        series: vec![
            band("95 % of normal ones", |point| point.band_low),
            band("", |point| point.band_high),
            Series::new(
                "one run",
                Mark::Points,
                0,
                fit.quantiles.iter().map(|p| Point::new(p.normal, p.residual * scale)),
            ),
        ],
    }
}

fn cells(response: &Response, analysis: &Analysis) -> Table {
    let Response { name, unit, label, .. } = response;
    let title = format!("Every combination of levels: {name} measured, and by the model");
    let rows = Table::of(format!("cells-{}", response.key), title, &analysis.fit.cells);
    let factors = analysis.layout.factors.iter().enumerate();
    let rows = factors.fold(rows, |rows, (at, factor)| {
        let name = factor.name.as_str();
        rows.column(name, name, Unit::Text, |cell| cell.levels[at].as_str())
    });
    rows.column("replications", "Runs", Unit::Count, |cell| {
        kendall_units::exact_f64(cell.replications)
    })
    .column("mean", with_unit("Mean", label), *unit, |cell| cell.mean)
    .column("deviation", with_unit("Std. dev.", label), *unit, |cell| (cell.deviation, "one run"))
    .column("predicted", with_unit("By the model", label), *unit, |cell| cell.predicted.clone())
    .table()
    .folded()
}
