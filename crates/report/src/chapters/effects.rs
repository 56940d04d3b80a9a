//! Effects of the factors and their share of the variation: 2^k r designs, and analysis of variance
//! for more levels.

mod signs;

use kendall_stats::analysis::{
    Analysis, AnalysisError, AtOneValue, Covariate, Fit, InteractionPlot, Model, Observation,
    Options, SumsKind, Table as Experiment, Term, Verdict, analyze_with,
};

use crate::document::{Block, Cell, Level, Section, Table, Unit};
use crate::number;
use crate::plot::{Axis, Mark, Plot, Point, Series};
use crate::prepared::Prepared;
use kendall_observations::{Observations, Repetition, short};

/// A response variable: key in file names, name for people, and how it is printed.
pub(crate) struct Response {
    pub(crate) key: String,
    pub(crate) name: String,
    pub(crate) unit: Unit,
    /// Its unit for people; empty where it is not known.
    pub(crate) label: String,
}

/// Value of a response variable in a run, in SI.
type Value = fn(&Repetition) -> f64;

/// What a study's effects are analyzed for.
fn responses() -> [(Response, Value); 2] {
    let response = |key: &str, name: &str, unit, label: &str| Response {
        key: key.to_owned(),
        name: name.to_owned(),
        unit,
        label: label.to_owned(),
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

/// Interaction plots at most.
const MOST_INTERACTIONS: usize = 6;

/// Bars at most; what explains less is in the table.
const MOST_BARS: usize = 14;

pub(crate) fn of_throughput(data: &Observations) -> Result<Analysis, AnalysisError> {
    let [(_, value), _] = responses();
    analyzed(data, value)
}

/// Effects as differences of a response, by its key, whatever model the data recommend.
pub(crate) fn additive(data: &Observations, key: &str) -> Result<Analysis, AnalysisError> {
    let [throughput, time] = responses();
    let (_, value) = if time.0.key == key { time } else { throughput };
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

/// Shares of the variation of the throughput.
pub(crate) fn shares_of_throughput(data: &Observations) -> Option<Plot> {
    let [(response, _), _] = responses();
    Some(shares(&response, &of_throughput(data).ok()?.fit))
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
        section.text(speed_in_words(covariate));
    }
    if let Some(signs) = signs::table(response, analysis) {
        section.table(signs.folded());
    }
    section.table(signs::sums(response, analysis).folded());
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
        let of = capital(&check.assumption.to_string());
        section.note(level, format!("{of}: {}", check.words));
    }
    for caveat in &analysis.layout.caveats {
        section.note(Level::Doubt, format!("{}.", capital(&caveat.to_string())));
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

/// What the speed probe of the runs does for the effects.
fn speed_in_words(covariate: &Covariate) -> String {
    let found = match covariate {
        Covariate::NotUsed(why) => {
            return format!("The machine's speed, by the probe of each run, is not used: {why}.");
        }
        Covariate::Used(found) => found,
    };
    let moved = if found.moved.is_empty() {
        String::new()
    } else {
        format!(
            " There is none for {}, whose levels differ in the probe itself: that may be what they do.",
            found.moved.join(", ")
        )
    };
    format!(
        "The effects at one speed of the machine, by the probe of each run, stand beside those as \
         measured: a probe that takes 1 % longer goes with {} of the response, and the intervals are at \
         least {:.1} times narrower. All other numbers, shares and tests are as measured.{moved}",
        number::signed_percent(found.slope / 100.0),
        found.narrower
    )
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
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
        series: vec![Series {
            name: "share of the variation".to_owned(),
            mark: Mark::Bars,
            color: 0,
            points: points.collect(),
        }],
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
        table = table.column("at_one_speed", with_unit("At one speed", label), unit);
    }
    table = table
        .column("share", "Variation (%)", Unit::Percent)
        .column("degrees", "df", Unit::Count)
        .column("f_ratio", "F", Unit::Plain(3))
        .column("p_value", "p", Unit::Plain(2))
        .column("significant", "Told from error", Unit::Text)
        .column("aliases", "Confounded with", Unit::Text);
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
            term.aliases.join(", ").into(),
        ]);
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
    let mut table = Table::new(
        format!("level-effects-{}", response.key),
        format!("Effect of every level on the {}, against the mean", response.name),
    )
    .column("term", "Term", Unit::Text)
    .column("levels", "Levels", Unit::Text)
    .column("effect", with_unit("Effect", label), unit)
    .folded();
    for term in &analysis.fit.terms {
        for level in &term.level_effects {
            table.push(vec![
                term.label.as_str().into(),
                level.levels.join(", ").into(),
                Cell::Estimate(level.effect.clone()),
            ]);
        }
    }
    table
}

fn interactions(response: &Response, fit: &Fit) -> Vec<Plot> {
    let plot = |(place, found): (usize, &InteractionPlot)| {
        let scale = response.unit.scale();
        let series = found.line_levels.iter().zip(&found.means).enumerate().map(
            |(color, (level, means))| Series {
                name: format!("{} {level}", found.lines),
                mark: Mark::Line,
                color,
                points: means
                    .iter()
                    .enumerate()
                    .filter_map(|(at, mean)| {
                        Some(Point::new(kendall_units::exact_f64(at), (*mean)? * scale))
                    })
                    .collect(),
            },
        );
        Plot {
            id: format!("plot-interaction-{}-{place}", response.key),
            title: format!("Interaction of {} and {}", found.along, found.lines),
            description: format!(
                "{}, over all other factors; parallel lines mean that the two do not interact.",
                capital(&mean_of(&response.name))
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
        series: vec![Series {
            name: "one run".to_owned(),
            mark: Mark::Points,
            color: 0,
            points: points.collect(),
        }],
    }
}

fn quantiles(response: &Response, fit: &Fit) -> Plot {
    let (unit, label) = effect_unit(response, fit.model);
    let scale = unit.scale();
    // The two ends of one band: the second needs no line in the legend.
    let band = |name: &str, end: fn(&kendall_stats::analysis::QuantilePoint) -> f64| Series {
        name: name.to_owned(),
        mark: Mark::Dashed,
        color: 7,
        points: fit.quantiles.iter().map(|p| Point::new(p.normal, end(p) * scale)).collect(),
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
            Series {
                name: "one run".to_owned(),
                mark: Mark::Points,
                color: 0,
                points: fit
                    .quantiles
                    .iter()
                    .map(|p| Point::new(p.normal, p.residual * scale))
                    .collect(),
            },
        ],
    }
}

fn cells(response: &Response, analysis: &Analysis) -> Table {
    let mut table = Table::new(
        format!("cells-{}", response.key),
        format!("Every combination of levels: {} measured, and by the model", response.name),
    );
    for factor in &analysis.layout.factors {
        table = table.column(factor.name.clone(), factor.name.clone(), Unit::Text);
    }
    table = table
        .column("replications", "Runs", Unit::Count)
        .column("mean", with_unit("Mean", &response.label), response.unit)
        .column("deviation", with_unit("Std. dev.", &response.label), response.unit)
        .column("predicted", with_unit("By the model", &response.label), response.unit)
        .folded();
    for cell in &analysis.fit.cells {
        let mut row: Vec<Cell> = cell.levels.iter().map(|level| level.as_str().into()).collect();
        row.extend([
            kendall_units::exact_f64(cell.replications).into(),
            cell.mean.into(),
            Cell::number_or(cell.deviation, "one run"),
            Cell::Estimate(cell.predicted.clone()),
        ]);
        table.push(row);
    }
    table
}
