//! From the queries of a system file to one series a tier and quantity, on one grid.

use std::collections::BTreeMap;

use kendall_units::exact_f64;

use crate::fetch_error::FetchError;
use crate::grid::Grid;
use crate::quantity::Quantity;
use crate::source::{Series, Source, SourceError};
use crate::system::{System, Tier};
use crate::twice::{Remarks, Twice};

/// Share of the moments at which a bin of a histogram must be there, and at which a series must be a figure that can be.
const PRESENT: f64 = 0.75;

/// A difference of two figures that are alike is as much below 0, since numbers have so many digits.
const ROUNDING: f64 = 1e-9;

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
    /// Quantities whose query gives no figures, and what it gives.
    pub missing: BTreeMap<Quantity, String>,
    /// Since when it has figures, where that is later than what was asked for, and moments at which they cannot be.
    pub remarks: Vec<String>,
    /// What its queries left out, since it was there twice.
    pub left_out: Option<String>,
    /// What its queries may have twice.
    pub maybe_twice: Option<String>,
}

impl Observed {
    /// Leaves out what is before the entry's load, where that begins a window or more after what was asked for.
    fn begin_with_the_load(&mut self, system: &System) {
        let entry = &mut self.tiers[system.entry];
        let begin = |quantity| begins(entry.series.get(&quantity)?);
        let Some(begin) = begin(Quantity::Throughput).or_else(|| begin(Quantity::Arrivals)) else {
            return;
        };
        if begin < system.block_steps {
            return;
        }
        self.grid.from_s += begin as u64 * self.grid.step_s;
        self.grid.count -= begin as u64;
        let since = self.grid.minute(0.0);
        let name = &system.tiers[system.entry].name;
        entry
            .remarks
            .push(format!("`{name}` has figures since {since}: the time before is left out"));
        for tier in &mut self.tiers {
            let bins = tier.buckets.iter_mut().map(|(_, values)| values);
            let parts = tier.split.values_mut().flat_map(BTreeMap::values_mut);
            for values in tier.series.values_mut().chain(bins).chain(parts) {
                values.drain(..begin.min(values.len()));
            }
        }
    }
}

/// Where a series has its first figure.
pub(crate) fn begins(values: &[f64]) -> Option<usize> {
    values.iter().position(|value| value.is_finite())
}

impl TierSeries {
    /// Series of a quantity that has one a class, stage or server; none where nothing is known.
    pub fn parts(&self, quantity: Quantity) -> impl Iterator<Item = (&str, &[f64])> {
        let found = self.split.get(&quantity).into_iter().flatten();
        found.map(|(name, values)| (name.as_str(), values.as_slice()))
    }

    /// What a query gave.
    fn put(
        &mut self,
        tier: &Tier,
        quantity: Quantity,
        mut series: Vec<Series>,
        grid: &Grid,
    ) -> Result<(), FetchError> {
        match impossible(&mut series, grid) {
            Some(Impossible { what, mostly: true }) => {
                self.missing.insert(quantity, what);
                return Ok(());
            }
            Some(Impossible { what, mostly: false }) => {
                let asked = asked(tier, quantity);
                self.remarks.push(format!("{asked} {what}: these moments are left out"));
            }
            None => {}
        }
        if quantity == Quantity::Buckets {
            self.buckets = buckets(series);
        } else if quantity.is_split() {
            let mut parts = parts(series);
            if quantity == Quantity::Classes {
                fill(&mut parts);
            }
            self.split.insert(quantity, parts);
        } else if let [first, second, ..] = series.as_slice() {
            return Err(FetchError::Several {
                tier: tier.name.clone(),
                quantity: quantity.name(),
                count: series.len(),
                first: format!("{:?}", first.labels),
                second: format!("{:?}", second.labels),
            });
        } else if let Some(one) = series.into_iter().next() {
            self.series.insert(quantity, one.values);
        }
        Ok(())
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
            found.put(&tier, *quantity, series, &grid)?;
        }
        if let Some(error) = nothing(&tier, tiers.len() == system.entry, &found, source) {
            return Err(error);
        }
        tiers.push(found);
    }
    let mut observed = Observed { grid, tiers };
    observed.begin_with_the_load(system);
    Ok(observed)
}

/// A query of a tier, as it is named in sentences.
pub(crate) fn asked(tier: &Tier, quantity: Quantity) -> String {
    let (what, tier_name) = (quantity.name(), &tier.name);
    match tier.queries.get(&quantity) {
        Some(query) => format!("the query for `{what}` of `{tier_name}`, `{query}`,"),
        None => format!("`{what}` of `{tier_name}`"),
    }
}

/// Figures that are none, or that cannot be.
struct Impossible {
    what: String,
    /// They are too many: nothing is left of the query.
    mostly: bool,
}

/// What a query gives that is no figure: nothing, NaN, or less than 0, which no quantity is. Such moments become gaps.
fn impossible(series: &mut [Series], grid: &Grid) -> Option<Impossible> {
    if series.is_empty() {
        return Some(Impossible { what: "finds nothing in this time".to_owned(), mostly: true });
    }
    let at = |index: usize| grid.minute(grid.offset_s(index));
    let all = |is: fn(f64) -> bool| {
        let each = series.iter().flat_map(|one| one.values.iter().enumerate());
        each.filter(move |(_, value)| is(**value))
    };
    let figures = all(f64::is_finite).count();
    if figures == 0 {
        let value = if all(f64::is_infinite).next().is_some() { "infinite" } else { "NaN" };
        let (from, to) = (at(0), at(grid.len().saturating_sub(1)));
        let what =
            format!("gives {value} at all moments from {from} to {to}, as a division by 0 does");
        return Some(Impossible { what, mostly: true });
    }
    let is_below = |value: f64| value < -ROUNDING;
    let below = all(is_below).count();
    let (first, value) = all(is_below).min_by_key(|(index, _)| *index)?;
    let value = format!("{value:.4}");
    let value = value.trim_end_matches('0').trim_end_matches('.');
    let what =
        format!("gives {value} at {}, and is below 0 at {below} of {figures} moments", at(first));
    let mostly = exact_f64(below as u64) > (1.0 - PRESENT) * exact_f64(figures as u64);
    let values = series.iter_mut().flat_map(|one| &mut one.values);
    values.filter(|value| is_below(**value)).for_each(|value| *value = f64::NAN);
    Some(Impossible { what, mostly })
}

/// A query that finds nothing although an answer is needed, or although it was written for a metric that there is
/// not.
fn nothing(
    tier: &Tier,
    is_entry: bool,
    found: &TierSeries,
    source: &mut dyn Source,
) -> Option<FetchError> {
    if found.missing.is_empty() {
        return None;
    }
    let any = |of: [Quantity; 2]| {
        let missing = of.into_iter().find(|quantity| found.missing.contains_key(quantity));
        missing.filter(|_| !of.iter().any(|quantity| found.series.contains_key(quantity)))
    };
    let loads = [Quantity::Throughput, Quantity::Arrivals];
    let needed = any([Quantity::Throughput, Quantity::Busy])
        .or_else(|| if is_entry { any(loads) } else { None });
    let known = source.metric_names().unwrap_or_default();
    // Counters of what has not happened yet may not be there yet.
    let later = [Quantity::Errors, Quantity::Hits, Quantity::Misses];
    let slip = || {
        let mut own = found.missing.keys().filter(|quantity| {
            !tier.of_preset.contains(quantity)
                && !later.contains(quantity)
                && unknown(&tier.queries[quantity], &known).is_some()
        });
        own.next().copied()
    };
    let quantity = needed.or_else(slip)?;
    let query = tier.queries[&quantity].clone();
    let mut what = found.missing[&quantity].clone();
    if !what.starts_with("gives") {
        what.push_str(&hint(&query, &known));
    }
    Some(FetchError::Nothing { tier: tier.name.clone(), quantity: quantity.name(), query, what })
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

    /// Queries by their first letter: NaN, below 0 twice or at all times, and a number.
    struct Wrong;

    impl Source for Wrong {
        fn range(&mut self, query: &str, grid: &Grid) -> Result<Vec<Series>, SourceError> {
            let value = |at: usize| match query.as_bytes().first() {
                Some(b'n') => f64::NAN,
                Some(b't') if at == 30 || at == 40 => -3.0,
                Some(b'b') => -3.0,
                _ => 1.0,
            };
            let is_there = !matches!(query, "up" | "process_start_time_seconds");
            let values = (0..grid.len()).map(value).collect();
            let one = Series { labels: BTreeMap::new(), values };
            Ok(is_there.then_some(one).into_iter().collect())
        }
    }

    /// The query, what it gives and when: nobody looks for a query that is missing.
    #[test]
    fn figures_that_cannot_be_are_named_with_their_query_and_moment() {
        let grid = Grid::new(1_700_000_000, 1_700_003_600, 15).unwrap();
        let of = |busy: &str| {
            let text = format!(
                "name = 'x'\nentry = 'a'\n[tiers.a]\nqueries.throughput = 'x'\nqueries.busy = '{busy}'"
            );
            let found = fetch(&System::parse(&text).unwrap(), &mut Wrong, grid).unwrap();
            let missing = found.tiers[0].missing.get(&Quantity::Busy).cloned();
            (missing.unwrap_or_default(), found.tiers[0].remarks.join(" "))
        };
        let (what, _) = of("nan");
        assert!(what.contains("gives NaN at all moments from 2023-11-14 22:13 UTC to"), "{what}");
        let (what, _) = of("below");
        let said = "gives -3 at 2023-11-14 22:13 UTC, and is below 0 at 240 of 240 moments";
        assert_eq!(what, said);
        let (what, remark) = of("twice");
        let said = "the query for `busy` of `a`, `twice`, gives -3 at 2023-11-14 22:21 UTC, and is below 0 at 2 of 240";
        assert!(what.is_empty() && remark.contains(said), "{what} {remark}");
        assert_eq!(of("x"), (String::new(), String::new()));
        // Nothing is known of the load, by whose query.
        let text = "name = 'x'\nentry = 'a'\n[tiers.a]\nqueries.throughput = 'below'";
        let error = fetch(&System::parse(text).unwrap(), &mut Wrong, grid).unwrap_err().to_string();
        assert!(error.contains("tiers.a.queries.throughput: `below` gives -3 at"), "{error}");
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
