//! Factorial designs as books state them: responses of the runs in a stated order.

use kendall_keys::{Form, Key, Section};
use kendall_stats::analysis::{Analysis, Model, Observation, Options, Table, Term, analyze};
use kendall_stats::design::fraction::{Fraction, letter};
use toml::Value;

use crate::fields::{CONFIDENCE, rows};
use crate::{Answer, Case, Output, TextbookError};

const RESPONSES: Key = Key::new(
    "responses",
    Form::Special("a list by run of numbers, or of lists of replications"),
    "measured in each run",
);
const RUN_ORDER: Key = Key::new(
    "run_order",
    Form::Special("signs such as \"(-,-), (+,-), (-,+), (+,+)\", or lists of -1 and 1"),
    "signs of the runs; unless given the first factor changes fastest",
);
const FACTORS: Key = Key::texts("factors", "names; their number is k");
const K: Key = Key::new("k", Form::Count { from: 1, to: 30 }, "how many factors").optional();
const REPLICATIONS: Key =
    Key::new("replications", Form::Count { from: 1, to: 1_000_000 }, "checked against responses")
        .optional();
const MODEL: Key =
    Key::choice("model", &["additive", "multiplicative"], "of the effects").or("'additive'");

pub(crate) const FACTORIAL: &[Key] = &[
    FACTORS,
    K,
    REPLICATIONS,
    RUN_ORDER,
    Key { need: kendall_keys::Need::Required, ..RESPONSES },
    MODEL,
    CONFIDENCE,
];

pub(crate) const FRACTION: &[Key] = &[
    FACTORS,
    K,
    Key::new("p", Form::Count { from: 1, to: 29 }, "how many factors are set by others").optional(),
    Key::texts("generators", "such as [\"D=ABC\"]"),
    Key::new(
        "resolution",
        Form::Count { from: 3, to: 8 },
        "of the smallest fraction; 3 unless given",
    )
    .optional(),
    REPLICATIONS,
    RUN_ORDER,
    RESPONSES.optional(),
    MODEL,
    CONFIDENCE,
];

/// Signs of the runs: +1 or −1 for each factor.
type Signs = Vec<Vec<i8>>;

/// How many factors there are: by their names, or by k.
fn factors(section: &mut Section<'_>) -> Result<Option<usize>, TextbookError> {
    let named = section.words("factors")?.len();
    let k = section.opt_count("k")?.and_then(|k| usize::try_from(k).ok());
    match (named, k) {
        (0, k) => Ok(k),
        (named, Some(k)) if named != k => {
            Err(section.problem("k", format!("is {k}, and {named} factors are named")).into())
        }
        (named, _) => Ok(Some(named)),
    }
}

/// The responses of each run: a list of replications, or one number.
fn responses(section: &mut Section<'_>) -> Result<Vec<Vec<f64>>, TextbookError> {
    let rows = rows(section, "responses")?
        .ok_or_else(|| TextbookError::missing("responses", "a list of the runs"))?;
    if let Some(replications) = section.opt_count("replications")? {
        let wrong = rows.iter().find(|row| u64::try_from(row.len()) != Ok(replications));
        if let Some(row) = wrong {
            let what = format!("is {replications}, and a run has {} responses", row.len());
            return Err(section.problem("replications", what).into());
        }
    }
    Ok(rows)
}

/// The order in which the responses stand, as the case says it.
fn run_order(
    section: &Section<'_>,
    runs: usize,
    factors: usize,
) -> Result<Option<Signs>, TextbookError> {
    let Some(value) = section.raw("run_order") else { return Ok(None) };
    let refused = |what: String| TextbookError::from(section.problem("run_order", what));
    let form = "write signs such as \"(-,-), (+,-)\", or lists of -1 and 1";
    let sign = |number: &Value| match crate::fields::number(number) {
        Some(1.0) => Some(1),
        Some(-1.0) => Some(-1),
        _ => None,
    };
    let signs: Option<Signs> = match value {
        Value::String(text) => Some(of_text(text)),
        Value::Array(list) => list
            .iter()
            .map(|row| row.as_array()?.iter().map(sign).collect::<Option<Vec<i8>>>())
            .collect(),
        _ => None,
    };
    let signs = signs.ok_or_else(|| refused(format!("`{value}` has other values; {form}")))?;
    if signs.len() != runs || signs.iter().any(|row| row.len() != factors) {
        let width = signs.first().map_or(0, Vec::len);
        return Err(refused(format!(
            "has {} runs of {width} factors, and responses have {runs} runs of {factors}; {form}",
            signs.len()
        )));
    }
    Ok(Some(signs))
}

fn of_text(text: &str) -> Signs {
    let sign = |c| if c == '-' || c == '−' { Some(-1) } else { (c == '+').then_some(1) };
    text.split(')')
        .map(|run| run.chars().filter_map(sign).collect::<Vec<i8>>())
        .filter(|run| !run.is_empty())
        .collect()
}

/// The order of the books: the first factor changes fastest.
fn standard_order(runs: usize, factors: usize) -> Signs {
    let sign = |run: usize, factor: usize| if run >> factor & 1 == 1 { 1 } else { -1 };
    (0..runs).map(|run| (0..factors).map(|factor| sign(run, factor)).collect()).collect()
}

fn stated(signs: &Signs) -> String {
    let run = |row: &Vec<i8>| {
        let signs: Vec<&str> = row.iter().map(|sign| if *sign < 0 { "-" } else { "+" }).collect();
        format!("({})", signs.join(","))
    };
    signs.iter().map(run).collect::<Vec<_>>().join(", ")
}

pub(crate) fn factorial(mut case: Case<'_>) -> Result<Answer, TextbookError> {
    let section = &mut case.section;
    let rows = responses(section)?;
    let runs = rows.len();
    let named = factors(section)?;
    let wanted = match case.kind {
        "one-factor" => Some(1),
        "two-factor" => Some(2),
        _ => None,
    };
    if let (Some(named), Some(wanted)) = (named, wanted)
        && named != wanted
    {
        let what = format!("`{}` has {wanted}, and {named} are given", case.kind);
        return Err(TextbookError::key("factors", what));
    }
    if wanted == Some(1) {
        if section.has("run_order") {
            return Err(section.problem("run_order", "is for factors of two levels").into());
        }
        // Each row is a level.
        let levels: Vec<Vec<String>> = (0..runs).map(|level| vec![format!("{level:04}")]).collect();
        return analyzed(&mut case, &rows, &levels, 1);
    }
    let count = named
        .or(wanted)
        .unwrap_or_else(|| usize::try_from(runs.max(1).ilog2()).unwrap_or(1).max(1));
    let stated_order = run_order(&case.section, runs, count)?;
    let signs = match &stated_order {
        Some(signs) => signs.clone(),
        None if runs == 1 << count => standard_order(runs, count),
        None => {
            let what =
                format!("has {runs} runs; {count} factors of two levels have {}", 1 << count);
            return Err(case.section.problem("responses", what).into());
        }
    };
    let mut answer = analyzed(&mut case, &rows, &texts(&signs), count)?;
    answer.word("run_order", &stated(&signs));
    Ok(answer)
}

/// A fraction: its size, resolution and confounding; effects, when there are responses.
pub(crate) fn fractional(mut case: Case<'_>) -> Result<Answer, TextbookError> {
    let section = &mut case.section;
    let Some(factors) = factors(section)? else {
        return Err(TextbookError::missing("k", "how many factors there are"));
    };
    let generators = section.words("generators")?;
    let p = section.opt_count("p")?.and_then(|p| usize::try_from(p).ok());
    let resolution = section.opt_count("resolution")?.and_then(|r| u32::try_from(r).ok());
    let fraction = if !generators.is_empty() {
        if let Some(key) = ["p", "resolution"].into_iter().find(|key| section.has(key)) {
            return Err(section
                .problem(key, "is given beside generators, which determine it")
                .into());
        }
        let plain: Vec<String> = generators.iter().map(|text| text.replace(' ', "")).collect();
        Fraction::from_generators(factors, &plain.iter().map(String::as_str).collect::<Vec<_>>())?
    } else if let Some(p) = p {
        if resolution.is_some() {
            return Err(section
                .problem("resolution", "is given beside p, which determines it")
                .into());
        }
        Fraction::with_dropped(factors, p)?
    } else {
        Fraction::smallest(factors, resolution.unwrap_or(3))?
    };
    let mut answer = if section.has("responses") {
        effects_of_fraction(&mut case, &fraction, factors)?
    } else {
        Answer::new("regular fraction [Jain91 ch. 19]", "exact")
    };
    let count = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    answer.number("runs", count(fraction.runs()), "runs");
    answer.number("resolution", f64::from(fraction.resolution), "1");
    let words = fraction.defining_relation.iter().map(ToString::to_string).collect::<Vec<_>>();
    answer.word("defining_relation", &format!("I = {}", words.join(" = ")));
    answer.word("generators", &fraction.generator_texts().join(", "));
    for (word, aliases) in fraction.alias_table(u32::MAX) {
        let aliases: Vec<String> = aliases.iter().map(ToString::to_string).collect();
        answer.word(&format!("aliases_{word}"), &aliases.join(", "));
    }
    Ok(answer)
}

/// Responses stand in the order of the basic factors, the first fastest, unless the case says
/// another; one that is not an order of this fraction is refused.
fn effects_of_fraction(
    case: &mut Case<'_>,
    fraction: &Fraction,
    factors: usize,
) -> Result<Answer, TextbookError> {
    let rows = responses(&mut case.section)?;
    let basic = factors - fraction.generators.len();
    let sign = |level: &usize| if *level == 0 { -1 } else { 1 };
    let mut own: Signs =
        fraction.configurations().iter().map(|run| run.iter().map(sign).collect()).collect();
    own.sort_by_key(|run: &Vec<i8>| run[..basic].iter().rev().copied().collect::<Vec<i8>>());
    let signs = match run_order(&case.section, rows.len(), factors)? {
        None => own,
        Some(stated) => {
            if let Some(other) = stated.iter().find(|run| !own.contains(run)) {
                let what = format!(
                    "{} is not a run of the fraction {}",
                    self::stated(&vec![other.clone()]),
                    fraction.generator_texts().join(", ")
                );
                return Err(case.section.problem("run_order", what).into());
            }
            stated
        }
    };
    if rows.len() != signs.len() {
        let what = format!("has {} runs; the fraction has {}", rows.len(), signs.len());
        return Err(case.section.problem("responses", what).into());
    }
    let mut answer = analyzed(case, &rows, &texts(&signs), factors)?;
    answer.word("run_order", &stated(&signs));
    Ok(answer)
}

fn texts(signs: &Signs) -> Vec<Vec<String>> {
    signs.iter().map(|run| run.iter().map(ToString::to_string).collect()).collect()
}

fn analyzed(
    case: &mut Case<'_>,
    rows: &[Vec<f64>],
    levels: &[Vec<String>],
    factors: usize,
) -> Result<Answer, TextbookError> {
    let mut observations = Vec::new();
    for (levels, values) in levels.iter().zip(rows) {
        observations.extend(values.iter().map(|value| Observation {
            levels: levels.clone(),
            block: None,
            order: None,
            value: *value,
        }));
    }
    let table =
        Table { factors: (0..factors).map(|f| letter(f).to_string()).collect(), observations };
    let multiplicative = case.section.text("model")? == "multiplicative";
    let options = Options {
        model: Some(if multiplicative { Model::Multiplicative } else { Model::Additive }),
        confidence: confidence(case)?,
        blocks: false,
    };
    Ok(described(&analyze(&table, &options)?, case.wanted, options.confidence))
}

/// The confidence that the case says, or that outputs ask for: `effect_halfwidth_ci90`.
fn confidence(case: &mut Case<'_>) -> Result<f64, TextbookError> {
    let named = case.wanted.iter().find_map(|name| {
        let digits = name.rsplit_once("ci")?.1;
        digits.parse::<f64>().ok().filter(|percent| *percent > 1.0 && *percent < 100.0)
    });
    let written = case.section.number("confidence")?;
    Ok(written.or(named.map(|percent| percent / 100.0)).unwrap_or(0.95))
}

fn described(analysis: &Analysis, wanted: &[String], confidence: f64) -> Answer {
    let fit = &analysis.fit;
    let mut answer = Answer::new("analysis of variance [Jain91 ch. 17–23]", "estimate");
    let center = |term: &Term| term.effect.as_ref().map_or(f64::NAN, |effect| effect.center);
    let mut effects = vec![("I".to_owned(), fit.mean.center)];
    effects.extend(fit.terms.iter().map(|term| (term.name.clone(), center(term))));
    let squares = |term: &Term| term.sum_of_squares;
    for (name, value) in &effects {
        let q = if name == "I" { "q0".to_owned() } else { format!("q{name}") };
        if value.is_finite() {
            answer.number(&q, *value, "");
        }
    }
    let mut lists = vec![
        ("effects", effects.iter().map(|(_, value)| *value).collect::<Vec<f64>>(), ""),
        ("sum_of_squares", fit.terms.iter().map(squares).collect(), ""),
        ("f_ratios", fit.terms.iter().filter_map(|term| term.f_ratio).collect(), "1"),
        ("p_values", fit.terms.iter().filter_map(|term| term.p_value).collect(), "1"),
    ];
    let mut shares: Vec<f64> = fit.terms.iter().map(|term| 100.0 * term.share).collect();
    shares.extend(fit.error.as_ref().map(|error| 100.0 * error.share));
    lists.push(("percent_variation", shares, "%"));
    for (name, list, unit) in lists {
        if list.iter().all(|value| value.is_finite()) {
            answer.list(name, list, unit);
        }
    }
    for term in &fit.terms {
        let name = &term.name;
        answer.number(&format!("ss{name}"), term.sum_of_squares, "");
        answer.number(&format!("percent_{name}"), 100.0 * term.share, "%");
        if !term.level_effects.is_empty() {
            let list = term.level_effects.iter().map(|level| level.effect.center).collect();
            answer.list(&format!("effects_{name}"), list, "");
        }
        answer.maybe(&format!("f_{name}"), term.f_ratio, "1");
    }
    errors(&mut answer, analysis, confidence);
    asked(&mut answer, wanted, &effects, analysis);
    answer
}

fn errors(answer: &mut Answer, analysis: &Analysis, confidence: f64) {
    let fit = &analysis.fit;
    for (name, value) in
        [("ssy", fit.sums.ssy), ("ss0", fit.sums.ss0), ("sst", fit.sums.sst), ("sse", fit.sums.sse)]
    {
        answer.number(name, value, "");
    }
    answer.number("mean", fit.mean.center, "");
    if let Some(error) = &fit.error {
        answer.number("mse", error.mean_square, "");
        answer.number("error_sd", error.deviation, "");
        answer.number("percent_error", 100.0 * error.share, "%");
        let degrees = kendall_units::exact_f64(error.degrees);
        answer.number("error_degrees_of_freedom", degrees, "1");
    }
    answer.maybe("effect_sd", fit.effect_deviation, "");
    let intervals = fit.terms.iter().filter_map(|term| term.effect.as_ref()?.interval);
    let own = fit.mean.interval.into_iter().chain(intervals).collect::<Vec<_>>();
    if let Some(one) = own.get(1).or(own.first()) {
        let percent = (confidence * 1e4).round() / 100.0;
        answer.number(&format!("effect_halfwidth_ci{percent}"), one.half_width(), "");
        let rows = own.iter().map(|interval| vec![interval.low, interval.high]).collect();
        answer.put(&format!("effects_ci{percent}"), Output::Table(rows), "");
    }
}

/// Lists whose names say their order: `effects_I_A_B_AB`, `percent_variation_A_B_AB_error`.
fn asked(answer: &mut Answer, wanted: &[String], effects: &[(String, f64)], analysis: &Analysis) {
    let fit = &analysis.fit;
    let term = |name: &str| fit.terms.iter().find(|term| term.name == name);
    let effect = |name: &str| effects.iter().find(|(n, _)| n == name).map(|(_, value)| *value);
    for name in wanted {
        let starts = ["effects_", "sum_of_squares_", "percent_variation_"];
        let Some(start) = starts.iter().find(|start| name.starts_with(**start)) else { continue };
        let of = |at: &str| match *start {
            "effects_" => effect(at),
            "sum_of_squares_" if at == "error" => Some(fit.sums.sse),
            "sum_of_squares_" => term(at).map(|term| term.sum_of_squares),
            _ if at == "error" => fit.error.as_ref().map(|error| 100.0 * error.share),
            _ => term(at).map(|term| 100.0 * term.share),
        };
        let list: Option<Vec<f64>> = name[start.len()..].split('_').map(of).collect();
        if let Some(list) = list
            && !answer.outputs.contains_key(name)
        {
            let unit = if start.starts_with("percent") { "%" } else { "" };
            answer.list(name, list, unit);
        }
    }
}
