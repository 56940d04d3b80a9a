//! From the queries of a system file to one series a tier and quantity, on one grid.

use std::collections::BTreeMap;

use kendall_units::exact_f64;

use crate::fetch_error::FetchError;
use crate::grid::Grid;
use crate::quantity::Quantity;
use crate::source::{Series, Source, SourceError};
use crate::system::{System, Tier};
use crate::twice::{Remarks, Twice};

/// Share of the moments at which a bin of a histogram must be there.
const PRESENT: f64 = 0.75;

/// What was asked for, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    pub grid: Grid,
    /// One a tier, in the order of the system.
    pub tiers: Vec<TierSeries>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct TierSeries {
    /// One value a step, NaN where there is none.
    pub series: BTreeMap<Quantity, Vec<f64>>,
    /// Cumulative bins of response times by their upper bound in seconds, smallest first.
    pub buckets: Vec<(f64, Vec<f64>)>,
    /// Quantities with one series a class, stage or server, by the values of their labels.
    pub split: BTreeMap<Quantity, BTreeMap<String, Vec<f64>>>,
    /// Quantities whose query found nothing.
    pub empty: Vec<Quantity>,
    /// What its queries left out, since it was there twice.
    pub left_out: Option<String>,
    /// What its queries may have twice.
    pub maybe_twice: Option<String>,
}

impl TierSeries {
    /// Series of a quantity that has one a class, stage or server; none where nothing is known.
    pub fn parts(&self, quantity: Quantity) -> impl Iterator<Item = (&str, &[f64])> {
        let found = self.split.get(&quantity).into_iter().flatten();
        found.map(|(name, values)| (name.as_str(), values.as_slice()))
    }
}

/// Asks all queries of a system.
///
/// # Errors
/// [`FetchError`] when a query fails, is not about one series, or when a tier's throughput and busy
/// servers are both not there.
pub fn fetch(system: &System, source: &mut dyn Source, grid: Grid) -> Result<Observed, FetchError> {
    let mut tiers = Vec::with_capacity(system.tiers.len());
    let twice = Twice::of(system, source, &grid)?;
    for tier in &system.tiers {
        let mut tier = tier.clone();
        let Remarks { left_out, untold } = twice.leave_out(&mut tier, source)?;
        let mut found = TierSeries { left_out, maybe_twice: untold, ..TierSeries::default() };
        for (quantity, query) in &tier.queries {
            let series = match whole(source, query, &grid) {
                // Servers are then taken as alike, or their number is that of the file.
                Err(SourceError::NotRecorded { .. }) if tier.is_derived(*quantity) => continue,
                found => found?,
            };
            if series.is_empty() {
                found.empty.push(*quantity);
                continue;
            }
            if *quantity == Quantity::Buckets {
                found.buckets = buckets(series);
                continue;
            }
            if quantity.is_split() {
                let mut parts = parts(series);
                if *quantity == Quantity::Classes {
                    fill(&mut parts);
                }
                found.split.insert(*quantity, parts);
                continue;
            }
            match series.as_slice() {
                [] => {}
                [one] if one.values.iter().all(|value| value.is_nan()) => {
                    found.empty.push(*quantity);
                }
                [_] => {
                    let values = series.into_iter().next().map(|one| one.values);
                    found.series.insert(*quantity, values.unwrap_or_default());
                }
                [first, second, ..] => {
                    return Err(FetchError::Several {
                        tier: tier.name.clone(),
                        quantity: quantity.name(),
                        count: series.len(),
                        first: format!("{:?}", first.labels),
                        second: format!("{:?}", second.labels),
                    });
                }
            }
        }
        if let Some(error) = nothing(&tier, tiers.len() == system.entry, &found, source) {
            return Err(error);
        }
        tiers.push(found);
    }
    Ok(Observed { grid, tiers })
}

/// A query that finds nothing although an answer is needed, or although it was written for a metric that there is
/// not.
fn nothing(
    tier: &Tier,
    is_entry: bool,
    found: &TierSeries,
    source: &mut dyn Source,
) -> Option<FetchError> {
    if found.empty.is_empty() {
        return None;
    }
    let any = |of: [Quantity; 2]| {
        let missing = of.into_iter().find(|quantity| found.empty.contains(quantity));
        missing.filter(|_| !of.iter().any(|quantity| found.series.contains_key(quantity)))
    };
    let loads = [Quantity::Throughput, Quantity::Arrivals];
    let needed = any([Quantity::Throughput, Quantity::Busy])
        .or_else(|| if is_entry { any(loads) } else { None });
    let known = source.metric_names().unwrap_or_default();
    // Counters of what has not happened yet may not be there yet.
    let later = [Quantity::Errors, Quantity::Hits, Quantity::Misses];
    let slip = || {
        let mut own = found.empty.iter().filter(|quantity| {
            !tier.of_preset.contains(quantity)
                && !later.contains(quantity)
                && unknown(&tier.queries[quantity], &known).is_some()
        });
        own.next().copied()
    };
    let quantity = needed.or_else(slip)?;
    let query = tier.queries[&quantity].clone();
    let hint = hint(&query, &known);
    Some(FetchError::Nothing { tier: tier.name.clone(), quantity: quantity.name(), query, hint })
}

/// Asks for the load of a system alone, for its growth over a long time.
pub fn fetch_load(
    system: &System,
    source: &mut dyn Source,
    grid: Grid,
) -> Result<Observed, FetchError> {
    let mut load = system.clone();
    for (index, tier) in load.tiers.iter_mut().enumerate() {
        let wanted = [Quantity::Throughput, Quantity::Arrivals];
        tier.queries.retain(|quantity, _| index == system.entry && wanted.contains(quantity));
    }
    fetch(&load, source, grid)
}

/// The series of a query over all chunks of the grid.
fn whole(source: &mut dyn Source, query: &str, grid: &Grid) -> Result<Vec<Series>, SourceError> {
    let mut all: Vec<Series> = Vec::new();
    let mut done = 0;
    for chunk in grid.chunks() {
        for part in source.range(query, &chunk)? {
            let at = all.iter().position(|series| series.labels == part.labels);
            let at = at.unwrap_or_else(|| {
                let values = vec![f64::NAN; grid.len()];
                all.push(Series { labels: part.labels.clone(), values });
                all.len() - 1
            });
            all[at].values[done..done + part.values.len()].copy_from_slice(&part.values);
        }
        done += chunk.len();
    }
    Ok(all)
}

/// Bins by their bounds. Two names of one bound (`1`, and `1.0` since Prometheus 3) are one bin.
///
/// Where an exporter changed its bins, those bounds stay that are there for most of the time, and moments
/// without all of them count as gaps: a sum over moments of which some lack a bin would move its requests up.
fn buckets(series: Vec<Series>) -> Vec<(f64, Vec<f64>)> {
    let mut bins: Vec<(f64, Vec<f64>)> = Vec::new();
    for series in series {
        let bound = match series.labels.get("le").map(String::as_str) {
            Some("+Inf") => f64::INFINITY,
            Some(text) => match text.parse() {
                Ok(bound) => bound,
                Err(_) => continue,
            },
            None => continue,
        };
        match bins.iter_mut().find(|(other, _)| other.total_cmp(&bound).is_eq()) {
            Some((_, values)) => values.iter_mut().zip(&series.values).for_each(add),
            None => bins.push((bound, series.values)),
        }
    }
    bins.sort_by(|a, b| a.0.total_cmp(&b.0));
    let steps = bins.iter().map(|(_, values)| values.len()).min().unwrap_or(0);
    let there = |at: usize| bins.iter().any(|(_, values)| values[at].is_finite());
    let moments: Vec<usize> = (0..steps).filter(|at| there(*at)).collect();
    let enough = PRESENT * exact_f64(moments.len() as u64);
    bins.retain(|(_, values)| {
        let held = moments.iter().filter(|at| values[**at].is_finite()).count();
        held > 0 && exact_f64(held as u64) >= enough
    });
    for at in moments {
        if bins.iter().any(|(_, values)| !values[at].is_finite()) {
            bins.iter_mut().for_each(|(_, values)| values[at] = f64::NAN);
        }
    }
    bins
}

/// What is there of two.
fn add((sum, more): (&mut f64, &f64)) {
    *sum = match (sum.is_finite(), more.is_finite()) {
        (true, true) => *sum + more,
        (false, true) => *more,
        _ => *sum,
    };
}

/// Series by the values of their labels, those left out that never had a value but 0.
fn parts(series: Vec<Series>) -> BTreeMap<String, Vec<f64>> {
    series
        .into_iter()
        .filter(|one| one.values.iter().any(|value| value.is_finite() && *value > 0.0))
        .map(|one| {
            let values = one.labels.iter().filter(|(key, _)| *key != "__name__");
            let name: Vec<&str> = values.map(|(_, value)| value.as_str()).collect();
            (name.join(" "), one.values)
        })
        .collect()
}

/// A class without a figure at a moment at which others have one had no request then: its counter begins with its
/// first, and ends with the process that counted.
fn fill(classes: &mut BTreeMap<String, Vec<f64>>) {
    let steps = classes.values().map(Vec::len).min().unwrap_or(0);
    for at in 0..steps {
        if classes.values().any(|values| values[at].is_finite()) {
            let absent = classes.values_mut().map(|values| &mut values[at]);
            absent.filter(|value| !value.is_finite()).for_each(|value| *value = 0.0);
        }
    }
}

/// What may be wrong with a query that finds nothing: a metric that is not there, and one like it.
fn hint(query: &str, known: &[String]) -> String {
    if known.is_empty() {
        return String::new();
    }
    let Some(word) = unknown(query, known) else {
        return ": its metrics exist, so check the selector, the time, and that `scrape` is not shorter than the \
                server's scrape interval"
            .to_owned();
    };
    let near = known.iter().min_by_key(|name| strsim::damerau_levenshtein(&word, name));
    near.map_or_else(String::new, |near| {
        format!(": there is no metric `{word}`; did you mean `{near}`?")
    })
}

/// The first metric of a query that is none of those that there are; `None` where these are unknown.
fn unknown(query: &str, known: &[String]) -> Option<String> {
    let missing = |word: &String| !known.is_empty() && !known.contains(word);
    metrics(query).into_iter().find(missing)
}

/// Names of a query that are metrics: words with an underscore that are no function, no label and no text.
pub(crate) fn metrics(query: &str) -> Vec<String> {
    let (mut found, mut word, mut quote, mut labels) = (Vec::new(), String::new(), None, false);
    for character in query.chars().chain([' ']) {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'' | '`') => quote = Some(character),
            (None, c) if c.is_ascii_alphanumeric() || c == '_' || c == ':' => word.push(c),
            (None, _) => {
                // A list of labels is written in braces, or after these words in parentheses.
                let of_labels = matches!(
                    word.as_str(),
                    "by" | "without" | "on" | "ignoring" | "group_left" | "group_right"
                );
                if !labels && character != '(' && word.contains('_') {
                    found.push(word.clone());
                }
                labels = match character {
                    '{' => true,
                    '(' if of_labels => true,
                    '}' | ')' => false,
                    _ => labels,
                };
                if !(of_labels && character == ' ') {
                    word.clear();
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Answers(Vec<Series>);

    impl Source for Answers {
        fn range(&mut self, query: &str, grid: &Grid) -> Result<Vec<Series>, SourceError> {
            Ok(if query.contains("nothing") {
                Vec::new()
            } else {
                self.0
                    .iter()
                    .map(|s| Series { labels: s.labels.clone(), values: vec![1.0; grid.len()] })
                    .collect()
            })
        }

        fn metric_names(&mut self) -> Result<Vec<String>, SourceError> {
            Ok(vec!["requests_total".to_owned(), "up".to_owned()])
        }
    }

    fn system(query: &str) -> System {
        System::parse(&format!(
            "name = 'x'\nentry = 'a'\n[tiers.a]\nqueries.throughput = '{query}'"
        ))
        .unwrap()
    }

    fn series(label: &str) -> Series {
        Series { labels: [("job".to_owned(), label.to_owned())].into(), values: Vec::new() }
    }

    #[test]
    fn two_series_where_one_is_meant_are_refused() {
        let grid = Grid::new(0, 100, 5).unwrap();
        let mut source = Answers(vec![series("a"), series("b")]);
        let error = fetch(&system("rate(x[1m])"), &mut source, grid).unwrap_err();
        assert!(error.to_string().contains("2 series instead of one"), "{error}");
    }

    #[test]
    fn a_metric_that_is_not_there_is_named_with_one_like_it() {
        let grid = Grid::new(0, 100, 5).unwrap();
        let query = "sum(rate(request_total{job=\"nothing\"}[1m]))";
        let error = fetch(&system(query), &mut Answers(Vec::new()), grid).unwrap_err();
        assert!(error.to_string().contains("did you mean `requests_total`?"), "{error}");
    }

    /// Without a selector too, and at any query of the system file, although others of the tier find something.
    #[test]
    fn a_slip_in_one_of_several_queries_is_named() {
        let grid = Grid::new(0, 100, 5).unwrap();
        let text = "name = 'x'\nentry = 'a'\n[tiers.a]\nqueries.throughput = 'up'\n\
            queries.busy = 'sum(rate(nothing_total[1m]))'\nqueries.errors = 'rate(nothing_yet[1m])'";
        let mut source = Answers(vec![series("a")]);
        let error = fetch(&System::parse(text).unwrap(), &mut source, grid).unwrap_err();
        let said = "tiers.a.queries.busy: `sum(rate(nothing_total[1m]))` finds nothing in this time: \
            there is no metric `nothing_total`; did you mean";
        assert!(error.to_string().contains(said), "{error}");
        let text = text.replace("nothing_total[1m]", "requests_total{job=\"nothing\"}[1m]");
        assert!(fetch(&System::parse(&text).unwrap(), &mut source, grid).is_ok());
        // What comes in must be known.
        let text = text.replace("'up'", "'rate(requests_total{job=\"nothing\"}[1m])'");
        let text = text.replace("queries.busy = 'sum", "queries.busy = 'up'#");
        let error = fetch(&System::parse(&text).unwrap(), &mut source, grid).unwrap_err();
        assert!(
            error.to_string().contains("throughput")
                && error.to_string().contains("its metrics exist"),
            "{error}"
        );
    }

    #[test]
    fn names_of_a_query_are_told_from_its_labels_and_functions() {
        let query = "sum by (le, status_code) (rate(my_total{path_id=~\"a_b(\"}[1m])) / on (pod_name) \
                     max_over_time(up_time[5m]) - other:rate_5m";
        assert_eq!(metrics(query), ["my_total", "up_time", "other:rate_5m"]);
        let known = ["my_totals".to_owned()];
        let said = hint("sum(rate(my_total[1m]))", &known);
        assert!(
            said.contains("there is no metric `my_total`; did you mean `my_totals`?"),
            "{said}"
        );
        assert!(hint("rate(my_totals[1m])", &known).contains("its metrics exist"));
    }

    fn of(label: &str, values: &[f64]) -> Series {
        Series { labels: [("le".to_owned(), label.to_owned())].into(), values: values.to_vec() }
    }

    /// 9 of 10 requests took less than 0.1 s, all less than 1 s; the server was replaced by one of the next version
    /// in the middle.
    #[test]
    fn one_bound_under_two_names_is_one_bin() {
        const GAP: f64 = f64::NAN;
        let found = buckets(vec![
            of("0.1", &[9.0, 9.0, 9.0, 9.0]),
            of("1", &[10.0, 10.0, GAP, 4.0]),
            of("1.0", &[GAP, GAP, 10.0, 6.0]),
            of("+Inf", &[10.0, 10.0, 10.0, 10.0]),
        ]);
        let expected = [(0.1, 9.0), (1.0, 10.0), (f64::INFINITY, 10.0)];
        assert_eq!(found, expected.map(|(bound, rate)| (bound, vec![rate; 4])));
    }

    #[test]
    fn bins_that_changed_leave_those_that_stayed() {
        const GAP: f64 = f64::NAN;
        let half = buckets(vec![
            of("0.1", &[9.0, 9.0, GAP, GAP]),
            of("0.2", &[GAP, GAP, 9.5, 9.5]),
            of("5", &[10.0, 10.0, 10.0, 10.0]),
            of("+Inf", &[10.0, 10.0, 10.0, 10.0]),
        ]);
        assert_eq!(half.iter().map(|bin| bin.0).collect::<Vec<_>>(), [5.0, f64::INFINITY]);
        // For most of the time the old ones: what they do not give is a gap.
        let most = buckets(vec![
            of("0.1", &[9.0, 9.0, 9.0, GAP]),
            of("0.2", &[GAP, GAP, GAP, 9.5]),
            of("+Inf", &[10.0, 10.0, 10.0, 10.0]),
        ]);
        assert_eq!(most.iter().map(|bin| bin.0).collect::<Vec<_>>(), [0.1, f64::INFINITY]);
        assert!(most[1].1[3].is_nan() && most[1].1[2].is_finite(), "{most:?}");
        assert!(buckets(vec![of("1", &[GAP, GAP])]).is_empty());
    }

    /// A counter begins with the first request of its class; before that there was none.
    #[test]
    fn a_class_that_is_absent_while_others_are_there_had_no_request() {
        const GAP: f64 = f64::NAN;
        let mut classes: BTreeMap<String, Vec<f64>> =
            [("200".to_owned(), vec![5.0, 5.0, GAP]), ("500".to_owned(), vec![GAP, 1.0, GAP])]
                .into();
        fill(&mut classes);
        assert_eq!(classes["500"][..2], [0.0, 1.0]);
        assert!(classes.values().all(|values| values[2].is_nan()));
    }

    #[test]
    fn a_long_time_is_put_together_from_its_chunks() {
        let grid = Grid::new(0, 25_000, 1).unwrap();
        let observed = fetch(&system("up"), &mut Answers(vec![series("a")]), grid).unwrap();
        let values = &observed.tiers[0].series[&Quantity::Throughput];
        assert_eq!((values.len(), values.iter().filter(|v| v.is_nan()).count()), (25_001, 0));
    }
}
