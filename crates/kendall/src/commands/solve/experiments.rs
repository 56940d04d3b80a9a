//! Cases that are no queueing models: factorial designs, and fits of demands to load points.

use anyhow::{anyhow, bail};
use kendall_predict::demands::{self, LoadPoint};
use kendall_queueing::case::{Answer, Output};
use kendall_stats::analysis::{self, Analysis, Model, Observation, Options, Table, Term};
use kendall_stats::design::fraction::Fraction;
use serde_json::Value;

/// For messages.
pub(super) const KINDS: &str =
    "2^k r factorial, 2^(k-p) fractional, one-factor, two-factor, demand-regression";

/// The answer, if the case is one of these.
pub(super) fn solve(model: &Value, wanted: &[String]) -> anyhow::Result<Option<Answer>> {
    let written = model.get("kind").and_then(Value::as_str).unwrap_or_default();
    let kind = written.to_lowercase();
    let is = |words: &[&str]| words.iter().any(|word| kind.contains(word));
    let mut answer = if is(&["2^(k-p)", "fractional", "2^k-p"]) {
        fractional(model, wanted)?
    } else if is(&["2^k", "2k", "factorial", "anova", "one-factor", "two-factor", "full-design"]) {
        factorial(model, wanted, None)?
    } else if kind.contains("demand") && is(&["regression", "estimation", "fit"]) {
        regression(model)?
    } else {
        return Ok(None);
    };
    answer.kind = written.to_owned();
    Ok(Some(answer))
}

fn number(model: &Value, keys: &[&str]) -> Option<f64> {
    keys.iter().find_map(|key| model.get(key)).and_then(Value::as_f64)
}

fn list(value: &Value) -> Option<Vec<f64>> {
    value.as_array()?.iter().map(Value::as_f64).collect()
}

fn put(answer: &mut Answer, name: &str, output: Output, unit: &str) {
    answer.outputs.insert(name.to_owned(), (output, unit.to_owned()));
}

/// The responses of each run: a list of replications, or one number.
fn responses(model: &Value) -> anyhow::Result<Vec<Vec<f64>>> {
    let keys = ["responses", "response", "observations", "y", "data"];
    let found = keys.iter().find_map(|key| model.get(key)).and_then(Value::as_array);
    let rows =
        found.ok_or_else(|| anyhow!("responses are missing; expected a list of the runs"))?;
    rows.iter()
        .map(|row| match row {
            Value::Number(number) => Ok(number.as_f64().into_iter().collect()),
            other => list(other).ok_or_else(|| anyhow!("responses: {other} is no list of numbers")),
        })
        .collect()
}

/// Signs such as `(-,+)`, or `[-1, 1]`; else the order of the books, the first factor fastest.
fn run_order(model: &Value, runs: usize, factors: usize) -> anyhow::Result<Vec<Vec<i8>>> {
    let keys = ["run_order", "signs", "runs", "design_matrix"];
    let rows: Vec<Vec<i8>> = match keys.iter().find_map(|key| model.get(key)) {
        Some(Value::String(text)) => text
            .split(')')
            .map(|run| {
                let sign =
                    |c| if c == '-' || c == '−' { Some(-1) } else { (c == '+').then_some(1) };
                run.chars().filter_map(sign).collect::<Vec<i8>>()
            })
            .filter(|run| !run.is_empty())
            .collect(),
        Some(Value::Array(list)) => list
            .iter()
            .map(|row| {
                let sign = |v: &Value| v.as_f64().map_or(1, |v| if v < 0.0 { -1 } else { 1 });
                row.as_array().map(|row| row.iter().map(sign).collect()).unwrap_or_default()
            })
            .collect(),
        _ => (0..runs)
            .map(|run| (0..factors).map(|f| if run >> f & 1 == 1 { 1 } else { -1 }).collect())
            .collect(),
    };
    if rows.len() != runs || rows.iter().any(|row| row.len() != factors) {
        bail!(
            "run_order has {} runs of {} factors; expected {runs} runs, as many as responses, with \
             a sign for each of {factors} factors, such as \"(-,-), (+,-)\"",
            rows.len(),
            rows.first().map_or(0, Vec::len)
        );
    }
    Ok(rows)
}

/// The confidence that outputs ask for: `effect_halfwidth_ci90`.
fn confidence(model: &Value, wanted: &[String]) -> f64 {
    let named = wanted.iter().find_map(|name| {
        let digits = name.rsplit_once("ci")?.1;
        digits.parse::<f64>().ok().filter(|percent| *percent > 1.0 && *percent < 100.0)
    });
    number(model, &["confidence"]).or(named.map(|percent| percent / 100.0)).unwrap_or(0.95)
}

fn factorial(
    model: &Value,
    wanted: &[String],
    order: Option<Vec<Vec<i8>>>,
) -> anyhow::Result<Answer> {
    let rows = responses(model)?;
    let named = model.get("factors").and_then(Value::as_array).map(Vec::len);
    let runs = rows.len();
    let by_power = usize::try_from(runs.max(1).ilog2()).unwrap_or(1).max(1);
    let factors = named
        .or(number(model, &["k"])
            .map(|k| usize::try_from(kendall_units::whole_u64(k)).unwrap_or(1)));
    let factors = factors.unwrap_or(by_power);
    let levels: Vec<Vec<String>> = match (order, factors) {
        (Some(signs), _) => texts(&signs),
        // One factor: each row is a level.
        (None, 1) => (0..runs).map(|level| vec![format!("{level:04}")]).collect(),
        (None, _) => texts(&run_order(model, runs, factors)?),
    };
    let mut observations = Vec::new();
    for (levels, values) in levels.iter().zip(&rows) {
        observations.extend(values.iter().map(|value| Observation {
            levels: levels.clone(),
            block: None,
            order: None,
            value: *value,
        }));
    }
    let letters = (0..factors).map(|f| kendall_stats::design::fraction::letter(f).to_string());
    let table = Table { factors: letters.collect(), observations };
    let multiplicative = ["multiplicative", "log"].iter().any(|word| {
        model.get("model").and_then(Value::as_str).is_some_and(|text| text.contains(word))
    });
    let options = Options {
        model: Some(if multiplicative { Model::Multiplicative } else { Model::Additive }),
        confidence: confidence(model, wanted),
        blocks: false,
    };
    Ok(described(&analysis::analyze(&table, &options)?, wanted, options.confidence))
}

fn texts(signs: &[Vec<i8>]) -> Vec<Vec<String>> {
    signs.iter().map(|run| run.iter().map(ToString::to_string).collect()).collect()
}

fn described(analysis: &Analysis, wanted: &[String], confidence: f64) -> Answer {
    let fit = &analysis.fit;
    let mut answer = Answer {
        solver: "analysis of variance [Jain91 ch. 17–23]".to_owned(),
        accuracy: "estimate".to_owned(),
        ..Answer::default()
    };
    let center = |term: &Term| term.effect.as_ref().map_or(f64::NAN, |effect| effect.center);
    let mut effects = vec![("I".to_owned(), fit.mean.center)];
    effects.extend(fit.terms.iter().map(|term| (term.name.clone(), center(term))));
    let squares = |term: &Term| term.sum_of_squares;
    for (name, value) in &effects {
        let q = if name == "I" { "q0".to_owned() } else { format!("q{name}") };
        if value.is_finite() {
            put(&mut answer, &q, Output::Number(*value), "");
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
            put(&mut answer, name, Output::List(list), unit);
        }
    }
    for term in &fit.terms {
        let name = &term.name;
        put(&mut answer, &format!("ss{name}"), Output::Number(term.sum_of_squares), "");
        put(&mut answer, &format!("percent_{name}"), Output::Number(100.0 * term.share), "%");
        if !term.level_effects.is_empty() {
            let list = term.level_effects.iter().map(|level| level.effect.center).collect();
            put(&mut answer, &format!("effects_{name}"), Output::List(list), "");
        }
        if let Some(f) = term.f_ratio {
            put(&mut answer, &format!("f_{name}"), Output::Number(f), "1");
        }
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
        put(answer, name, Output::Number(value), "");
    }
    put(answer, "mean", Output::Number(fit.mean.center), "");
    put(answer, "grand_mean", Output::Number(fit.mean.center), "");
    if let Some(error) = &fit.error {
        put(answer, "mse", Output::Number(error.mean_square), "");
        for name in ["error_sd", "s_e", "error_standard_deviation"] {
            put(answer, name, Output::Number(error.deviation), "");
        }
        put(answer, "percent_error", Output::Number(100.0 * error.share), "%");
        let degrees = kendall_units::exact_f64(error.degrees);
        put(answer, "error_degrees_of_freedom", Output::Number(degrees), "1");
    }
    if let Some(deviation) = fit.effect_deviation {
        for name in ["effect_sd", "s_q", "effect_standard_deviation"] {
            put(answer, name, Output::Number(deviation), "");
        }
    }
    let intervals = fit.terms.iter().filter_map(|term| term.effect.as_ref()?.interval);
    let own = fit.mean.interval.into_iter().chain(intervals).collect::<Vec<_>>();
    if let Some(one) = own.get(1).or(own.first()) {
        let percent = (confidence * 1e4).round() / 100.0;
        let half = one.half_width();
        put(answer, &format!("effect_halfwidth_ci{percent}"), Output::Number(half), "");
        let rows = own.iter().map(|interval| vec![interval.low, interval.high]).collect();
        put(answer, &format!("effects_ci{percent}"), Output::Table(rows), "");
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
        let error = |at: &str| at == "error" || at == "E";
        let of = |at: &str| match *start {
            "effects_" => effect(at),
            "sum_of_squares_" if error(at) => Some(fit.sums.sse),
            "sum_of_squares_" => term(at).map(|term| term.sum_of_squares),
            _ if error(at) => fit.error.as_ref().map(|error| 100.0 * error.share),
            _ => term(at).map(|term| 100.0 * term.share),
        };
        let list: Option<Vec<f64>> = name[start.len()..].split('_').map(of).collect();
        if let Some(list) = list
            && !answer.outputs.contains_key(name)
        {
            let unit = if start.starts_with("percent") { "%" } else { "" };
            put(answer, name, Output::List(list), unit);
        }
    }
}

/// A fraction: its size, resolution and confounding; effects, when there are responses.
fn fractional(model: &Value, wanted: &[String]) -> anyhow::Result<Answer> {
    let whole = |value: f64| usize::try_from(kendall_units::whole_u64(value)).unwrap_or(usize::MAX);
    let named = model.get("factors").and_then(Value::as_array).map(Vec::len);
    let factors = named
        .or(number(model, &["k", "factors"]).map(whole))
        .ok_or_else(|| anyhow!("k is missing; expected the number of factors"))?;
    let keys = ["generators", "generator"];
    let generators: Vec<String> = match keys.iter().find_map(|key| model.get(key)) {
        Some(Value::Array(list)) => {
            list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        Some(Value::String(text)) => text.split([',', ';']).map(|t| t.trim().to_owned()).collect(),
        _ => Vec::new(),
    };
    let fraction = if !generators.is_empty() {
        let plain: Vec<String> = generators.iter().map(|text| text.replace(' ', "")).collect();
        Fraction::from_generators(factors, &plain.iter().map(String::as_str).collect::<Vec<_>>())?
    } else if let Some(p) = number(model, &["p"]) {
        Fraction::with_dropped(factors, whole(p))?
    } else {
        let resolution = number(model, &["resolution"]).unwrap_or(3.0);
        Fraction::smallest(factors, u32::try_from(whole(resolution)).unwrap_or(u32::MAX))?
    };
    let mut answer = if model.get("responses").is_some() {
        let signs = fraction
            .configurations()
            .iter()
            .map(|run| run.iter().map(|level| if *level == 0 { -1 } else { 1 }).collect())
            .collect::<Vec<Vec<i8>>>();
        let order = if model.get("run_order").is_some() {
            run_order(model, responses(model)?.len(), factors)?
        } else {
            signs
        };
        factorial(model, wanted, Some(order))?
    } else {
        Answer {
            solver: "regular fraction [Jain91 ch. 19]".to_owned(),
            accuracy: "exact".to_owned(),
            ..Answer::default()
        }
    };
    let count = |n: usize| Output::Number(f64::from(u32::try_from(n).unwrap_or(u32::MAX)));
    put(&mut answer, "runs", count(fraction.runs()), "runs");
    put(&mut answer, "resolution", Output::Number(f64::from(fraction.resolution)), "1");
    let words = fraction.defining_relation.iter().map(ToString::to_string).collect::<Vec<_>>();
    put(&mut answer, "defining_relation", Output::Word(format!("I = {}", words.join(" = "))), "");
    put(&mut answer, "generators", Output::Word(fraction.generator_texts().join(", ")), "");
    for (word, aliases) in fraction.alias_table(u32::MAX) {
        let aliases: Vec<String> = aliases.iter().map(ToString::to_string).collect();
        put(&mut answer, &format!("aliases_{word}"), Output::Word(aliases.join(", ")), "");
    }
    Ok(answer)
}

/// U·m = Σ D·X (+ D₀): `utilization` by load point, `throughput_per_s` by load point (and class).
fn regression(model: &Value) -> anyhow::Result<Answer> {
    let find = |keys: &[&str]| keys.iter().find_map(|key| model.get(key)).cloned();
    let busy = find(&["utilization", "utilizations"]).as_ref().and_then(list);
    let busy = busy.ok_or_else(|| anyhow!("utilization is missing; expected one a load point"))?;
    let rates = find(&["throughput_per_s", "throughputs_per_s", "throughputs"]);
    let rates = rates.as_ref().and_then(Value::as_array);
    let rates = rates.ok_or_else(|| anyhow!("throughput_per_s is missing; expected a list"))?;
    if rates.len() != busy.len() {
        bail!("{} throughputs for {} utilizations; expected as many", rates.len(), busy.len());
    }
    let mut points = Vec::new();
    for (utilization, rate) in busy.iter().zip(rates) {
        let throughputs_per_s = match rate {
            Value::Number(one) => one.as_f64().into_iter().collect(),
            other => list(other).ok_or_else(|| anyhow!("throughput_per_s: {other} is no list"))?,
        };
        points.push(LoadPoint { utilization: *utilization, throughputs_per_s });
    }
    let background =
        ["background", "intercept"].iter().any(|key| model.get(key) == Some(&Value::Bool(true)));
    let options = demands::Options {
        servers: number(model, &["servers", "m"]).unwrap_or(1.0),
        background,
        confidence: number(model, &["confidence"]).unwrap_or(0.95),
    };
    let fit = demands::regress(&points, &options)?;
    let mut answer = Answer {
        solver: "utilization regression, no negative demand".to_owned(),
        accuracy: "estimate".to_owned(),
        ..Answer::default()
    };
    let found: Vec<f64> = fit.demands.iter().map(|demand| demand.estimate.center).collect();
    let errors: Option<Vec<f64>> = fit.demands.iter().map(|d| d.standard_error).collect();
    for name in ["service_demand", "demands"] {
        put(&mut answer, name, Output::List(found.clone()), "s");
    }
    if let Some(errors) = errors {
        put(&mut answer, "service_demand_se", Output::List(errors), "s");
    }
    if let Some(background) = &fit.background {
        for name in ["background", "intercept"] {
            put(&mut answer, name, Output::Number(background.estimate.center), "servers");
        }
    }
    if let Some(r) = fit.r_squared {
        put(&mut answer, "r_squared", Output::Number(r), "1");
    }
    put(&mut answer, "condition_number", Output::Number(fit.condition_number), "1");
    Ok(answer)
}
