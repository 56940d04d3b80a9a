//! The part of PromQL that the presets need, computed from samples: selectors, `rate`, `increase`,
//! sums and other aggregates, arithmetic between series.
//!
//! Rates follow Prometheus: resets of counters are added up, and what the first and the last sample
//! leave open at the ends of the window is extrapolated. Windows leave out the moment at which they begin, as they
//! do from Prometheus 3 on. What is not computed here is refused by its name.

mod parse;
mod rate;

use std::collections::BTreeMap;

use crate::grid::Grid;
use crate::samples::{NAME, Samples, Stored};
use crate::source::{Series, Source, SourceError};
use parse::{Aggregate, Expression, Matcher, Operator, Overtime};

/// How long a sample is the value of its series.
const LOOKBACK_MS: u64 = 300_000;

/// A query that is not computed here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueryError {
    /// It is not a query, or one of another kind.
    #[error("{reason} at `{at}`; docs/observe.md lists what can be computed without a server")]
    Parse { reason: String, at: String },
    #[error("several series have the labels {labels} on one side of `{operator}`; sum over them")]
    Ambiguous { operator: char, labels: String },
}

/// A value of an expression: a number, or series on the grid.
enum Value {
    Number(f64),
    Series(Vec<Series>),
}

impl Source for Samples {
    fn range(&mut self, query: &str, grid: &Grid) -> Result<Vec<Series>, SourceError> {
        self.sort();
        evaluate(query, self, grid).map_err(|error| SourceError::Refused {
            query: query.to_owned(),
            reason: error.to_string(),
        })
    }

    fn metric_names(&mut self) -> Result<Vec<String>, SourceError> {
        let mut names: Vec<String> =
            self.series.iter().filter_map(|one| one.labels.get(NAME).cloned()).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }
}

/// What a query has on a grid.
pub(crate) fn evaluate(
    query: &str,
    samples: &Samples,
    grid: &Grid,
) -> Result<Vec<Series>, QueryError> {
    let expression = parse::parse(query)?;
    let series = match value(&expression, samples, grid)? {
        Value::Number(number) => vec![constant(number, grid)],
        Value::Series(series) => series,
    };
    Ok(series.into_iter().filter(|one| one.values.iter().any(|value| !value.is_nan())).collect())
}

/// How many metrics a query names; `None` of one that is not computed here.
pub(crate) fn metrics(query: &str) -> Option<usize> {
    fn of(expression: &Expression) -> usize {
        match expression {
            Expression::Number(_) | Expression::Vector(_) => 0,
            Expression::Selector(_) | Expression::Over(..) => 1,
            Expression::Aggregate(_, _, inner) | Expression::Ceil(inner) => of(inner),
            Expression::Binary(_, left, right) => of(left) + of(right),
        }
    }
    parse::parse(query).ok().map(|expression| of(&expression))
}

fn constant(number: f64, grid: &Grid) -> Series {
    Series { labels: BTreeMap::new(), values: vec![number; grid.len()] }
}

fn value(expression: &Expression, samples: &Samples, grid: &Grid) -> Result<Value, QueryError> {
    Ok(match expression {
        Expression::Number(number) => Value::Number(*number),
        Expression::Vector(number) => Value::Series(vec![constant(*number, grid)]),
        Expression::Selector(matchers) => Value::Series(
            chosen(samples, matchers)
                .map(|stored| on_grid(stored, grid, true, |at, from| latest(stored, at, from)))
                .collect(),
        ),
        Expression::Over(what, matchers, window_ms) => Value::Series(
            chosen(samples, matchers)
                .map(|stored| {
                    on_grid(stored, grid, false, |at, _| {
                        let increase = rate::increase(stored, at, *window_ms);
                        let seconds = kendall_units::exact_f64(*window_ms) / 1_000.0;
                        match what {
                            Overtime::Rate => increase / seconds,
                            Overtime::Increase => increase,
                        }
                    })
                })
                .collect(),
        ),
        Expression::Aggregate(how, by, inner) => match value(inner, samples, grid)? {
            Value::Number(number) => Value::Number(number),
            Value::Series(series) => Value::Series(aggregate(*how, by, series, grid)),
        },
        Expression::Ceil(inner) => match value(inner, samples, grid)? {
            Value::Number(number) => Value::Number(number.ceil()),
            Value::Series(series) => each(series, f64::ceil),
        },
        Expression::Binary(operator, left, right) => {
            let (left, right) = (value(left, samples, grid)?, value(right, samples, grid)?);
            binary(*operator, left, right)?
        }
    })
}

fn chosen<'a>(samples: &'a Samples, matchers: &'a [Matcher]) -> impl Iterator<Item = &'a Stored> {
    samples.series.iter().filter(|stored| {
        matchers.iter().all(|matcher| {
            matcher.takes(stored.labels.get(&matcher.label).map_or("", String::as_str))
        })
    })
}

fn on_grid(stored: &Stored, grid: &Grid, named: bool, value: impl Fn(u64, u64) -> f64) -> Series {
    let mut labels = stored.labels.clone();
    if !named {
        labels.remove(NAME);
    }
    let moments = (0..grid.count).map(|index| (grid.from_s + index * grid.step_s) * 1_000);
    let values = moments.map(|at| value(at, at.saturating_sub(LOOKBACK_MS))).collect();
    Series { labels, values }
}

/// The last sample at a moment, if it is after another.
fn latest(stored: &Stored, at_ms: u64, after_ms: u64) -> f64 {
    let end = stored.times_ms.partition_point(|time| *time <= at_ms);
    match end.checked_sub(1) {
        Some(last) if stored.times_ms[last] > after_ms => stored.values[last],
        _ => f64::NAN,
    }
}

fn aggregate(how: Aggregate, by: &[String], series: Vec<Series>, grid: &Grid) -> Vec<Series> {
    let mut groups: BTreeMap<BTreeMap<String, String>, Vec<Series>> = BTreeMap::new();
    for one in series {
        let kept = by.iter().filter_map(|label| one.labels.get_key_value(label));
        let labels = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
        groups.entry(labels).or_default().push(one);
    }
    groups
        .into_iter()
        .map(|(labels, members)| {
            let values = (0..grid.len())
                .map(|index| {
                    let there: Vec<f64> = members
                        .iter()
                        .map(|member| member.values[index])
                        .filter(|value| !value.is_nan())
                        .collect();
                    how.of(&there)
                })
                .collect();
            Series { labels, values }
        })
        .collect()
}

fn binary(operator: Operator, left: Value, right: Value) -> Result<Value, QueryError> {
    if operator == Operator::Or {
        let (Value::Series(mut all), Value::Series(more)) = (left, right) else {
            let at = "or".to_owned();
            return Err(QueryError::Parse { reason: "`or` takes series".to_owned(), at });
        };
        for one in more {
            match all.iter_mut().find(|other| unnamed(other) == unnamed(&one)) {
                Some(other) => {
                    for (value, instead) in other.values.iter_mut().zip(one.values) {
                        if value.is_nan() {
                            *value = instead;
                        }
                    }
                }
                None => all.push(one),
            }
        }
        return Ok(Value::Series(all));
    }
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => Ok(Value::Number(operator.of(a, b))),
        (Value::Series(series), Value::Number(b)) => Ok(each(series, |a| operator.of(a, b))),
        (Value::Number(a), Value::Series(series)) => Ok(each(series, |b| operator.of(a, b))),
        (Value::Series(left), Value::Series(right)) => matched(operator, &left, &right),
    }
}

/// Series without the name of their metric, each value changed.
fn each(mut series: Vec<Series>, change: impl Fn(f64) -> f64) -> Value {
    for one in &mut series {
        one.labels.remove(NAME);
        one.values.iter_mut().for_each(|value| *value = change(*value));
    }
    Value::Series(series)
}

fn unnamed(series: &Series) -> BTreeMap<&str, &str> {
    let own = series.labels.iter().filter(|(key, _)| *key != NAME);
    own.map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// One series of each side for the same labels.
fn matched(operator: Operator, left: &[Series], right: &[Series]) -> Result<Value, QueryError> {
    let ambiguous = |labels: &BTreeMap<&str, &str>| QueryError::Ambiguous {
        operator: operator.sign(),
        labels: format!("{labels:?}"),
    };
    let mut sides: BTreeMap<BTreeMap<&str, &str>, &Series> = BTreeMap::new();
    for one in right {
        let labels = unnamed(one);
        if sides.insert(labels.clone(), one).is_some() {
            return Err(ambiguous(&labels));
        }
    }
    let mut found: BTreeMap<BTreeMap<&str, &str>, Series> = BTreeMap::new();
    for one in left {
        let labels = unnamed(one);
        let Some(other) = sides.get(&labels) else { continue };
        let values = one.values.iter().zip(&other.values).map(|(a, b)| operator.of(*a, *b));
        let own = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let series = Series { labels: own.collect(), values: values.collect() };
        if found.insert(labels.clone(), series).is_some() {
            return Err(ambiguous(&labels));
        }
    }
    Ok(Value::Series(found.into_values().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Samples {
        let mut text = String::new();
        for at in (0..=120).step_by(10) {
            for (cpu, factor) in [("0", 1), ("1", 3)] {
                text.push_str(&format!(
                    "busy{{cpu=\"{cpu}\",mode=\"user\"}} {} {at}.5\n",
                    at * factor
                ));
                text.push_str(&format!("busy{{cpu=\"{cpu}\",mode=\"idle\"}} {} {at}.5\n", at * 2));
            }
            text.push_str(&format!("level{{job=\"a\"}} {at} {at}.5\n"));
        }
        text.push_str("# EOF\n");
        let mut samples = Samples::default();
        samples.add(&text).unwrap();
        samples
    }

    fn last(query: &str) -> Vec<f64> {
        let grid = Grid::new(60, 120, 60).unwrap();
        let series = evaluate(query, &samples(), &grid).unwrap();
        series.iter().map(|one| *one.values.last().unwrap()).collect()
    }

    fn near(query: &str, expected: &[f64]) {
        let found = last(query);
        let same = found.len() == expected.len()
            && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(same, "{query}: {found:?} for {expected:?}");
    }

    #[test]
    fn a_chain_of_thousands_and_a_window_of_ages_are_refused() {
        let grid = Grid::new(60, 120, 60).unwrap();
        let refusal = |query: &str| evaluate(query, &samples(), &grid).unwrap_err().to_string();
        let chain = |terms: usize| vec!["1"; terms].join("+");
        assert!(evaluate(&chain(201), &samples(), &grid).is_ok());
        assert!(refusal(&chain(202)).contains("more than 200 operators"));
        assert!(refusal(&chain(20_000)).contains("more than 200 operators"));
        assert!(refusal("rate(level[30000000w])").contains("not a duration"));
        assert!(last("rate(level[5000w])").iter().all(|rate| *rate > 0.0));
    }

    #[test]
    fn sums_rates_and_quotients_are_computed() {
        near("sum(rate(busy{mode=\"user\"}[40s]))", &[4.0]);
        near("sum by (cpu) (rate(busy{mode!~\"idle|iowait\"}[40s]))", &[1.0, 3.0]);
        near("sum(rate(busy[40s])) by (mode)", &[4.0, 4.0]);
        near("count(busy{mode='idle'})", &[2.0]);
        near(
            "sum(rate(busy{cpu=\"1\",mode=\"user\"}[40s])) / sum(rate(busy{mode=\"user\"}[40s]))",
            &[0.75],
        );
        near("1 + 2 * 3 - 4 / 2", &[5.0]);
        near("(1 + 2) * sum(level)", &[330.0]);
        near("avg(busy{mode=\"user\"})", &[220.0]);
        near("max(busy) - min(busy)", &[220.0]);
        near("increase(level[20s])", &[20.0]);
        near("sum(nothing) or vector(7)", &[7.0]);
        near("sum(nothing) + sum(level)", &[]);
        near("busy{mode=\"user\"} / busy{mode=\"user\"}", &[1.0, 1.0]);
    }

    /// A counter that was reset continues from where it was; the result does not carry its name.
    #[test]
    fn a_reset_adds_up() {
        let mut samples = Samples::default();
        for (at, value) in [(0.5, 100.0), (10.5, 110.0), (20.5, 5.0), (30.5, 15.0)] {
            samples.push([(NAME.to_owned(), "x".to_owned())].into(), at, value);
        }
        let grid = Grid::new(31, 62, 31).unwrap();
        let series = evaluate("rate(x[31s])", &samples, &grid).unwrap();
        // 10 + 5 + 10 in 30 s, stretched over the 31 s of the window.
        assert!((series[0].values[0] - 25.0 / 30.0).abs() < 1e-9, "{series:?}");
        assert!(series[0].labels.is_empty() && series[0].values[1].is_nan());
    }

    /// A dump has NaN where a scrape found no sample; it is left out, as the server does.
    #[test]
    fn a_marker_of_a_missing_scrape_is_no_sample() {
        let text = "x 100 10500\nx NaN 20500\nx 120 30500\n";
        let grid = Grid::new(31, 62, 31).unwrap();
        let mut samples = Samples::default();
        samples.add(text).unwrap();
        let series = evaluate("sum(rate(x[31s]))", &samples, &grid).unwrap();
        // 20 in 20 s, stretched over 31 s of which 10.5 before the first are near (below 1.1 distances of 20 s).
        assert!((series[0].values[0] - 1.0).abs() < 1e-9, "{series:?}");
        let mut samples = Samples::default();
        samples.add("x 100 10500\nx NaN 20500\n").unwrap();
        assert!(evaluate("rate(x[31s])", &samples, &grid).unwrap().is_empty());
    }

    #[test]
    fn what_is_not_computed_is_refused_by_its_name() {
        for (query, reason) in [
            ("histogram_quantile(0.9, x)", "`histogram_quantile`"),
            ("sum without (a) (x)", "`without`"),
            ("rate(x)", "a window"),
            ("sum(x", "`)`"),
            ("x offset 5m", "`offset`"),
            ("x[5m]", "a window"),
            ("x{a=\"b}", "does not end"),
            ("x{a=~\"(\"}", "expression"),
            ("rate(x[5])", "duration"),
            ("", "nothing"),
        ] {
            let grid = Grid::new(60, 120, 60).unwrap();
            let error = evaluate(query, &samples(), &grid).unwrap_err().to_string();
            assert!(error.contains(reason), "{query}: {error}");
        }
        let grid = Grid::new(60, 120, 60).unwrap();
        let error = evaluate("sum(level) + on() busy", &samples(), &grid);
        assert!(error.is_err());
        // Two series of the right side for the same labels once the names are gone.
        let two = evaluate("level / {job=\"a\"}", &samples(), &grid);
        assert!(two.is_ok(), "{two:?}");
    }
}
