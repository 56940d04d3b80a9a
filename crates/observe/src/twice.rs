//! Applications that are scraped twice: by two replicas of a Prometheus behind one address, or under two jobs. A sum over
//! both has each request twice.
//!
//! Whether that can be is seen in `up`, whose labels are those that the monitoring gives its targets: two targets with one
//! `instance` that differ in one other label. Where there is no `up`, in the labels that set replicas of a monitoring apart:
//! two series that differ in nothing else. Whether it is so, in the counters of each tier: both grew alike, at every moment.
//! A tier's queries then leave the second one out.

use std::collections::{BTreeMap, BTreeSet};

use kendall_units::exact_f64;

use crate::grid::Grid;
use crate::quantity::Quantity;
use crate::source::{Series, Source, SourceError};
use crate::system::{System, Tier};

/// Moments at which counters are compared, at most.
const MOMENTS: u64 = 8;

/// Two scrapes of one counter come at different moments, and so do the ends of what they saw: by so much, as a share, may
/// increases differ over one moment, and over all of them. What came at once near the end of a moment is in one increase
/// of the one and in the next of the other: so many of the moments, as a share, may differ by more.
const OF_ONE: f64 = 0.1;
const OF_ALL: f64 = 0.01;
const APART: f64 = 0.25;

/// Labels by which replicas of a Prometheus, of Thanos or of an operator name themselves.
const REPLICAS: [&str; 6] =
    ["replica", "prometheus_replica", "__replica__", "prometheus", "receive_replica", "monitor"];

/// An application that is scraped twice, asked for by queries that take no label matcher.
#[derive(Debug, thiserror::Error)]
#[error(
    "tiers.{tier}: one application is scraped twice, with {label}=\"{kept}\" and {label}=\"{second}\": add \
     {label}!=\"{second}\" to each metric of its queries"
)]
pub struct ScrapedTwice {
    tier: String,
    label: String,
    kept: String,
    second: String,
}

pub(crate) struct Twice {
    grid: Grid,
    /// Labels in which targets with one address differ; `None` where nothing tells the targets.
    labels: Option<BTreeSet<String>>,
}

impl Twice {
    /// Asks for the targets. Nothing tells them where the source has no `up`: tables, pages, older recordings.
    pub(crate) fn of(
        system: &System,
        source: &mut dyn Source,
        grid: &Grid,
    ) -> Result<Self, SourceError> {
        let length_s = grid.to_s() - grid.from_s;
        let moments = (length_s / (2 * system.window_s)).clamp(1, MOMENTS);
        let step_s = (length_s / moments).max(1);
        let grid = Grid { from_s: grid.from_s + step_s, step_s, count: moments };
        let targets = match source.range("up", &grid) {
            Err(
                error @ (SourceError::Unreachable { .. }
                | SourceError::Silent { .. }
                | SourceError::Status { .. }),
            ) => return Err(error),
            found => found.unwrap_or_default(),
        };
        let mut labels = BTreeSet::new();
        for (place, one) in targets.iter().enumerate() {
            for other in &targets[..place] {
                let keys: BTreeSet<&String> =
                    one.labels.keys().chain(other.labels.keys()).collect();
                let mut differs =
                    keys.into_iter().filter(|key| one.labels.get(*key) != other.labels.get(*key));
                if let (Some(label), None) = (differs.next(), differs.next()) {
                    labels.insert(label.clone());
                }
            }
        }
        labels.remove("instance");
        let labels = (!targets.is_empty()).then_some(labels);
        Ok(Self { grid, labels })
    }

    /// Leaves what is there a second time out of a tier's queries; says what, where anything is.
    pub(crate) fn leave_out(
        &self,
        tier: &mut Tier,
        source: &mut dyn Source,
    ) -> Result<Option<String>, ScrapedTwice> {
        let loads = [Quantity::Throughput, Quantity::Arrivals, Quantity::Busy];
        let query = loads.iter().find_map(|quantity| tier.queries.get(quantity));
        let Some(counter) = query.and_then(|query| counter(query)) else { return Ok(None) };
        let Some((label, kept, second)) = self.second_of(counter, source) else { return Ok(None) };
        for query in tier.queries.values_mut() {
            *query = without(query, &label, &second).ok_or_else(|| ScrapedTwice {
                tier: tier.name.clone(),
                label: label.clone(),
                kept: kept.clone(),
                second: second.clone(),
            })?;
        }
        Ok(Some(format!(
            "`{}` is scraped twice: its counters with {label}=\"{second}\" grow as those with {label}=\"{kept}\" do; the \
             former are left out",
            tier.name
        )))
    }

    /// The label by which a counter is there twice, its value that is kept, and the other.
    fn second_of(
        &self,
        counter: &str,
        source: &mut dyn Source,
    ) -> Option<(String, String, String)> {
        let Grid { step_s, .. } = self.grid;
        let increase = format!("increase({counter}[{step_s}s])");
        let told = |label: &str, found: &[Series]| {
            alike(label, found).map(|(kept, second)| (label.to_owned(), kept, second))
        };
        let Some(labels) = &self.labels else {
            let found = source.range(&increase, &self.grid).ok()?;
            return REPLICAS.iter().find_map(|label| told(label, &by_replica(label, &found)));
        };
        labels.iter().find_map(|label| {
            let asked = format!("sum by ({label}) ({increase})");
            told(label, &source.range(&asked, &self.grid).ok()?)
        })
    }
}

/// Sums by a label over the series that are there for more than one of its values and differ in nothing else.
fn by_replica(label: &str, found: &[Series]) -> Vec<Series> {
    let mut copies: BTreeMap<BTreeMap<String, String>, Vec<&Series>> = BTreeMap::new();
    for series in found {
        let mut rest = series.labels.clone();
        rest.remove(label);
        copies.entry(rest).or_default().push(series);
    }
    let mut sums: BTreeMap<Option<&String>, Vec<f64>> = BTreeMap::new();
    for series in copies.values().filter(|copies| copies.len() > 1).flatten() {
        let zeros = || vec![0.0; series.values.len()];
        let sum = sums.entry(series.labels.get(label)).or_insert_with(zeros);
        let there = sum.iter_mut().zip(&series.values).filter(|(_, value)| value.is_finite());
        there.for_each(|(sum, value)| *sum += value);
    }
    let one = |(value, values): (Option<&String>, Vec<f64>)| Series {
        labels: value.map(|value| (label.to_owned(), value.clone())).into_iter().collect(),
        values,
    };
    sums.into_iter().map(one).collect()
}

/// Two values of a label whose counters grew alike: the one that was there more often, and the other.
fn alike(label: &str, found: &[Series]) -> Option<(String, String)> {
    let there = |series: &Series| series.values.iter().filter(|value| **value > 0.0).count();
    let same = |one: &Series, other: &Series| {
        let both = one.values.iter().zip(&other.values).filter(|(a, b)| **a > 0.0 && **b > 0.0);
        let (mut sums, mut pairs, mut apart) = ((0.0, 0.0), 0_u64, 0_u64);
        for (a, b) in both {
            apart += u64::from((a - b).abs() > OF_ONE * a.max(*b));
            (sums, pairs) = ((sums.0 + a, sums.1 + b), pairs + 1);
        }
        pairs > 0
            && exact_f64(apart) <= APART * exact_f64(pairs)
            && exact_f64(pairs) * 2.0 >= exact_f64(one.values.len() as u64)
            && (sums.0 - sums.1).abs() <= OF_ALL * sums.0.max(sums.1)
    };
    // A series without the label is selected as one where it is empty.
    let value = |series: &Series| series.labels.get(label).cloned().unwrap_or_default();
    found.iter().enumerate().find_map(|(place, one)| {
        let other = found[..place].iter().find(|other| same(one, other))?;
        let (kept, second) = if there(one) > there(other) { (one, other) } else { (other, one) };
        Some((value(kept), value(second)))
    })
}

/// Where a query can take one more label matcher: behind each `{` that is in no text, and at the `[` of a metric that has
/// none.
fn places(query: &str) -> Vec<usize> {
    let (mut quote, mut escaped, mut before) = (None, false, ' ');
    let mut found = Vec::new();
    for (at, sign) in query.char_indices() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if sign == '\\' => escaped = true,
            Some(end) if sign == end => quote = None,
            Some(_) => {}
            None => match sign {
                '"' | '\'' | '`' => quote = Some(sign),
                '{' => found.push(at + 1),
                '[' if !matches!(before, '}' | ')') => found.push(at),
                _ => {}
            },
        }
        if !sign.is_whitespace() {
            before = sign;
        }
    }
    found
}

/// The first counter of a query, with its label matchers.
fn counter(query: &str) -> Option<&str> {
    let at = *places(query).first()?;
    let end = query[at..].find('[')? + at;
    let name = query[..at].trim_end_matches('{').trim_end();
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    let from = name.rfind(|c| !inside(c)).map_or(0, |place| place + 1);
    Some(query[from..end].trim())
}

/// A query whose metrics all leave out a value of a label; `None` where one of them takes no label matcher.
fn without(query: &str, label: &str, value: &str) -> Option<String> {
    let mut text = query.to_owned();
    let found = places(query);
    for at in found.iter().rev() {
        let matcher = format!("{label}!={value:?}");
        let rest = &query[*at..];
        let whole = if rest.starts_with('[') {
            format!("{{{matcher}}}")
        } else if rest.trim_start().starts_with('}') {
            matcher
        } else {
            format!("{matcher},")
        };
        text.insert_str(*at, &whole);
    }
    // What cannot be read here is believed to have its metrics at these places.
    let metrics = crate::promql::metrics(query).unwrap_or(found.len());
    (metrics == found.len()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What came at once is in the increase of another moment there; another application grew otherwise.
    #[test]
    fn counters_that_grew_alike_may_differ_at_single_moments() {
        let of = |replica: &str, values: &[f64]| Series {
            labels: [("replica".to_owned(), replica.to_owned())].into(),
            values: values.to_vec(),
        };
        let one = of("a", &[100.0, 110.0, 90.0, 1000.0, 100.0, 95.0, 105.0, 100.0]);
        let late = of("b", &[100.0, 110.0, 90.0, 800.0, 300.0, 95.0, 105.0, 100.0]);
        let other = of("c", &[120.0, 90.0, 110.0, 800.0, 300.0, 75.0, 105.0, 100.0]);
        let found = alike("replica", &[one.clone(), late]);
        assert_eq!(found, Some(("a".to_owned(), "b".to_owned())));
        assert_eq!(alike("replica", &[one, other]), None);
    }

    #[test]
    fn every_metric_of_a_query_leaves_the_second_out() {
        let told = |query: &str| without(query, "replica", "b");
        assert_eq!(
            told("sum(rate(x{}[1m])) / sum(rate(y{a=~\"{2}|[z]\"}[1m]))").as_deref(),
            Some(
                "sum(rate(x{replica!=\"b\"}[1m])) / sum(rate(y{replica!=\"b\",a=~\"{2}|[z]\"}[1m]))"
            )
        );
        assert_eq!(told("rate(x[1m])").as_deref(), Some("rate(x{replica!=\"b\"}[1m])"));
        assert_eq!(told("sum(workers) + sum(rate(x[1m]))"), None);
        assert_eq!(counter("sum by (a) (rate(x{b=\"c\"}[1m])) / d"), Some("x{b=\"c\"}"));
        assert_eq!(counter("sum(rate(x [1m]))"), Some("x"));
    }
}
