//! From the queries of a system file to one series a tier and quantity, on one grid.

use std::collections::BTreeMap;

use crate::system::{Quantity, System, Tier};
use crate::{Grid, Series, Source, SourceError};

/// What was asked for, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The moments.
    pub grid: Grid,
    /// One a tier, in the order of the system.
    pub tiers: Vec<TierSeries>,
}

/// The series of one tier.
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
}

impl TierSeries {
    /// Series of a quantity that has one a class, stage or server; none where nothing is known.
    pub fn parts(&self, quantity: Quantity) -> impl Iterator<Item = (&str, &[f64])> {
        let found = self.split.get(&quantity).into_iter().flatten();
        found.map(|(name, values)| (name.as_str(), values.as_slice()))
    }
}

/// Monitoring that does not say what was asked.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No answer.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Several series where one was meant.
    #[error(
        "tiers.{tier}.queries.{quantity}: {count} series instead of one, the first two with labels \
         {first} and {second}; sum over them, as in `sum(…)`, or narrow the selector"
    )]
    Several {
        /// Which tier.
        tier: String,
        /// What was asked.
        quantity: &'static str,
        /// How many came.
        count: usize,
        /// Labels of the first.
        first: String,
        /// Labels of the second.
        second: String,
    },
    /// Nothing where something is needed.
    #[error("tiers.{tier}.queries.{quantity}: `{query}` finds nothing in this time{hint}")]
    Nothing {
        /// Which tier.
        tier: String,
        /// What was asked.
        quantity: &'static str,
        /// The query.
        query: String,
        /// What may be wrong.
        hint: String,
    },
}

/// Asks all queries of a system.
///
/// # Errors
/// [`FetchError`] when a query fails, is not about one series, or when a tier's throughput and busy
/// servers are both not there.
pub fn fetch(system: &System, source: &mut dyn Source, grid: Grid) -> Result<Observed, FetchError> {
    let mut tiers = Vec::with_capacity(system.tiers.len());
    for tier in &system.tiers {
        let mut found = TierSeries::default();
        for (quantity, query) in &tier.queries {
            let series = match whole(source, query, &grid) {
                // Recordings of before that query was made: servers are then taken as alike.
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
                found.split.insert(*quantity, parts(series));
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
        if let Some(error) = nothing(tier, tiers.len() == system.entry, &found, source) {
            return Err(error);
        }
        tiers.push(found);
    }
    Ok(Observed { grid, tiers })
}

/// A query that finds nothing although an answer is needed, or although somebody wrote it for a metric that there is
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
///
/// # Errors
/// As of [`fetch()`].
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

fn buckets(series: Vec<Series>) -> Vec<(f64, Vec<f64>)> {
    let mut bins: Vec<(f64, Vec<f64>)> = series
        .into_iter()
        .filter_map(|series| {
            let bound = match series.labels.get("le")?.as_str() {
                "+Inf" => f64::INFINITY,
                text => text.parse().ok()?,
            };
            Some((bound, series.values))
        })
        .collect();
    bins.sort_by(|a, b| a.0.total_cmp(&b.0));
    bins
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

/// What may be wrong with a query that finds nothing: a metric that is not there, and one like it.
fn hint(query: &str, known: &[String]) -> String {
    if known.is_empty() {
        return String::new();
    }
    let Some(word) = unknown(query, known) else {
        return ": its metrics exist, so check the selector and the time".to_owned();
    };
    let near = known.iter().min_by_key(|name| strsim::damerau_levenshtein(word, name));
    near.map_or_else(String::new, |near| {
        format!(": there is no metric `{word}`; did you mean `{near}`?")
    })
}

/// The first metric of a query that is none of those that there are; `None` where nobody knows them. A metric is what
/// a selector or a time stands behind.
fn unknown<'a>(query: &'a str, known: &[String]) -> Option<&'a str> {
    let is_metric =
        |word: &str| ["{", "["].iter().any(|next| query.contains(&format!("{word}{next}")));
    let mut words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    words.find(|word| {
        !known.is_empty()
            && !word.is_empty()
            && is_metric(word)
            && !known.iter().any(|name| name == word)
    })
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

    /// Without a selector too, and at any query that somebody wrote, although others of the tier find something.
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
    fn a_long_time_is_put_together_from_its_chunks() {
        let grid = Grid::new(0, 25_000, 1).unwrap();
        let observed = fetch(&system("up"), &mut Answers(vec![series("a")]), grid).unwrap();
        let values = &observed.tiers[0].series[&Quantity::Throughput];
        assert_eq!((values.len(), values.iter().filter(|v| v.is_nan()).count()), (25_001, 0));
    }
}
