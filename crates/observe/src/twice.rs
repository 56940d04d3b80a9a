//! Applications that are scraped twice: by two replicas of a Prometheus behind one address, under two jobs, or by two
//! addresses of one host. A sum over both has each request twice.
//!
//! Two targets may be one where their counters stand alike at every moment: what the one had counted some scrapes before
//! is no more than what the other has counted now, which is no more than what the one has some scrapes later. They are one
//! where they tell the same start of their process to a part of a second, or where they differ in labels alone that say who
//! scrapes them. Twins behind a load balancer may stand alike too: where nothing tells, both are kept, with a remark.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use kendall_units::exact_f64;

use crate::fetch_error::FetchError;
use crate::grid::Grid;
use crate::quantity::{CPU_TIME, Quantity};
use crate::source::{Series, Source, SourceError};
use crate::system::{System, Tier};

/// Moments at which counters are compared, at most.
const MOMENTS: u64 = 32;

/// Moments at which both of two targets must be there: of one that began lately, there are few.
const FEWEST: u64 = 3;

/// Scrapes from a moment to those before and after it: two scrapes of one counter are less than one apart, and one may fail.
const APART: u64 = 2;

/// Share of the moments that may be otherwise, since a scrape of several targets failed.
const OTHERWISE: f64 = 0.25;

/// Targets of a tier that are compared, at most.
const MOST: usize = 4_000;

/// Counters of a tier that may stand alike by chance where this share of its targets does, at most.
const FEW: usize = 4;

/// Differences that are named one by one.
const NAMED: usize = 3;

/// What is counted within the scrapes that are compared is so small a share of all that no chance makes two stand alike.
const FINE: f64 = 0.01;

/// When a process began, in seconds of Unix time.
const START: &str = "process_start_time_seconds";

/// Labels by which replicas of a Prometheus, of Thanos or of an operator name themselves.
const REPLICAS: [&str; 6] =
    ["replica", "prometheus_replica", "__replica__", "prometheus", "receive_replica", "monitor"];

/// Labels that say by which configuration a target is scraped.
const SCRAPED_BY: [&str; 3] = [JOB, "service", "endpoint"];

const JOB: &str = "job";

/// Labels of what a federation passes on.
const PASSED_ON: [&str; 2] = ["exported_job", EXPORTED_INSTANCE];

const EXPORTED_INSTANCE: &str = "exported_instance";

const INSTANCE: &str = "instance";

/// What is said of a tier that is scraped twice.
#[derive(Debug, Default)]
pub(crate) struct Remarks {
    /// What its queries leave out.
    pub(crate) left_out: Option<String>,
    /// What may be there twice.
    pub(crate) untold: Option<String>,
}

type Labels = BTreeMap<String, String>;

/// How many targets have a value of a label, whether the others have one too, how often they were there, and the value.
type Rank<'a> = (usize, bool, Reverse<usize>, &'a str);

/// Targets, and pairs of them.
type Alike = (Vec<Target>, Vec<(usize, usize)>);

/// A counter of one target.
#[derive(Debug, Clone, PartialEq)]
struct Target {
    labels: Labels,
    /// At moments, and some scrapes before and after each.
    at: [Vec<f64>; 3],
}

impl Target {
    fn value(&self, label: &str) -> &str {
        self.labels.get(label).map_or("", String::as_str)
    }

    /// Its address, as the server has it that scrapes it.
    fn place(&self) -> &str {
        match self.value(EXPORTED_INSTANCE) {
            "" => self.value(INSTANCE),
            passed_on => passed_on,
        }
    }

    fn there(&self) -> usize {
        self.at[1].iter().filter(|value| value.is_finite()).count()
    }

    /// Labels in which two differ.
    fn apart<'a>(&'a self, other: &'a Self) -> BTreeSet<&'a str> {
        let keys = self.labels.keys().chain(other.labels.keys()).map(String::as_str);
        keys.filter(|key| self.value(key) != other.value(key)).collect()
    }

    /// Whether it counted something, and stands as the other does wherever both are there.
    fn stands_as(&self, other: &Self) -> bool {
        self.compared(other) == Some(true)
    }

    /// Whether two stand alike; `None` where this one counted nothing, or both are there too seldom.
    fn compared(&self, other: &Self) -> Option<bool> {
        let (mut both, mut otherwise, mut counted) = (0_u64, 0_u64, false);
        for moment in 0..self.at[1].len() {
            let of = |target: &Self| [0, 1, 2].map(|place| target.at[place][moment]);
            let (one, two) = (of(self), of(other));
            let is_counter = |at: [f64; 3]| at[0] <= at[1] && at[1] <= at[2];
            if !is_counter(one) || !is_counter(two) {
                continue;
            }
            both += 1;
            counted |= one[0] < one[2];
            // A sum depends on the order of its terms, by so little.
            let within = |at: f64, of: [f64; 3]| {
                let least = f64::EPSILON * 64.0 * of[2].abs();
                of[0] - least <= at && at <= of[2] + least
            };
            otherwise += u64::from(!within(one[1], two) || !within(two[1], one));
        }
        let younger = self.there().min(other.there()) as u64;
        let seen = both >= FEWEST.min(self.at[1].len().div_ceil(2) as u64) && 2 * both >= younger;
        (counted && seen).then(|| exact_f64(otherwise) <= OTHERWISE * exact_f64(both))
    }

    /// Whether others that count something else hardly stand alike.
    fn is_fine(&self) -> bool {
        let of = |moment: usize| [0, 1, 2].map(|place| self.at[place][moment]);
        let last = (0..self.at[1].len()).rev().map(of).find(|at| at.iter().all(|v| v.is_finite()));
        last.is_some_and(|at| at[2] - at[0] <= FINE * at[1])
    }
}

/// Whether two processes began together.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Starts {
    /// Nothing tells it to a part of a second, and several programs begin within one.
    Untold,
    Apart,
    Precisely,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    One,
    Two,
    Unknown,
}

/// How what one part of a tier counts stands beside what another does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Beside {
    /// It is the same.
    Same,
    /// It stands alike, and nothing tells whether it is the same.
    Alike,
    Other,
}

pub(crate) struct Twice {
    /// Some scrapes before moments, the moments, and some scrapes after them.
    moments: [Grid; 3],
    /// Labels by which targets differ; `None` where nothing tells the targets.
    labels: Option<BTreeSet<String>>,
    starts: BTreeMap<Labels, Vec<f64>>,
}

impl Twice {
    /// Asks for the targets. Nothing tells them in tables, and in older recordings.
    pub(crate) fn of(
        system: &System,
        source: &mut dyn Source,
        grid: &Grid,
    ) -> Result<Self, SourceError> {
        let length_s = grid.to_s() - grid.from_s;
        let moments = (length_s / (2 * system.window_s)).clamp(1, MOMENTS);
        let step_s = (length_s / moments).max(1);
        let (middle_s, apart_s) = (grid.from_s + step_s / 2, APART * system.scrape_s);
        let moments = [middle_s.saturating_sub(apart_s), middle_s, middle_s + apart_s]
            .map(|from_s| Grid { from_s, step_s, count: moments });
        let mut of = |query: &str| answered(source.range(query, &moments[1]));
        let unnamed = |mut labels: Labels| {
            labels.remove("__name__");
            labels
        };
        let targets = of("up")?.into_iter().map(|one| unnamed(one.labels)).collect::<Vec<_>>();
        let starts: BTreeMap<Labels, Vec<f64>> =
            of(START)?.into_iter().map(|one| (unnamed(one.labels), one.values)).collect();
        let told = targets.iter().chain(starts.keys()).flat_map(BTreeMap::keys).cloned();
        let told: BTreeSet<String> = told.collect();
        let usual = REPLICAS.iter().chain(&SCRAPED_BY).chain([&INSTANCE]);
        let labels = (!told.is_empty())
            .then(|| told.into_iter().chain(usual.map(|label| (*label).to_owned())).collect());
        Ok(Self { moments, labels, starts })
    }

    /// Leaves what is there a second time out of a tier's queries; says what, where anything is.
    pub(crate) fn leave_out(
        &self,
        tier: &mut Tier,
        source: &mut dyn Source,
    ) -> Result<Remarks, FetchError> {
        let (targets, pairs) = match self.alike(tier, source) {
            Err(SourceError::NotRecorded { .. }) => {
                let untold = format!(
                    "cannot tell whether `{}` is scraped twice: the recording lacks its counters, record it again",
                    tier.name
                );
                return Ok(Remarks { left_out: None, untold: Some(untold) });
            }
            found => found?,
        };
        let verdict =
            |(a, b): &(usize, usize)| self.verdict(&targets[*a], &targets[*b], tier.aside);
        let of = |wanted: Verdict| -> Vec<(usize, usize)> {
            pairs.iter().copied().filter(|pair| verdict(pair) == wanted).collect()
        };
        let (same, unknown) = (of(Verdict::One), of(Verdict::Unknown));
        let (seconds, rest) = seconds(&targets, &same);
        for (label, kept, second) in &seconds {
            for query in tier.queries.values_mut() {
                *query = without(query, label, second).ok_or_else(|| FetchError::Twice {
                    tier: tier.name.clone(),
                    label: label.clone(),
                    kept: kept.clone(),
                    second: second.clone(),
                })?;
            }
        }
        let mut remarks = Remarks::default();
        let mut named: Vec<String> = seconds
            .iter()
            .map(|(label, kept, second)| {
                format!("its counters with {label}=\"{second}\" grow as those with {label}=\"{kept}\" do")
            })
            .collect();
        if named.len() > NAMED {
            let more = format!("and so do {} more", named.len() - NAMED);
            named.truncate(NAMED);
            named.push(more);
        }
        if !named.is_empty() {
            let name = &tier.name;
            remarks.left_out = Some(format!(
                "`{name}` is scraped twice: {}; the former are left out",
                named.join(", ")
            ));
        }
        let still = |(a, b): &&(usize, usize)| rest.contains(a) && rest.contains(b);
        let unknown: Vec<&(usize, usize)> = unknown.iter().chain(&same).filter(still).collect();
        if let Some((a, b)) = unknown.first().filter(|_| FEW * unknown.len() >= rest.len()) {
            let (a, b) = (&targets[*a], &targets[*b]);
            let differs = a.apart(b);
            let label =
                if differs.contains(INSTANCE) { Some(INSTANCE) } else { differs.first().copied() };
            let label = label.unwrap_or(INSTANCE);
            let matcher =
                |sign: &str, target: &Target| format!("{label}{sign}{:?}", target.value(label));
            remarks.untold = Some(format!(
                "cannot tell whether `{}` is scraped twice: its counters with {} always stand where those with {} do; if \
                 both are one process, add `{}` to its selector",
                tier.name,
                matcher("=", b),
                matcher("=", a),
                matcher("!=", b)
            ));
        }
        Ok(remarks)
    }

    /// How the targets of each part of a tier, told by their labels, stand beside those of each other part, where that is
    /// known.
    pub(crate) fn beside(
        mut self,
        tier: &Tier,
        source: &mut dyn Source,
        part: impl Fn(&Labels) -> Option<usize>,
    ) -> Result<BTreeMap<(usize, usize), Beside>, SourceError> {
        let labels = self.labels.iter_mut();
        labels.for_each(|labels| labels.extend(PASSED_ON.map(str::to_owned)));
        let (targets, pairs) = self.alike(tier, source)?;
        let pairs: BTreeSet<(usize, usize)> = pairs.into_iter().collect();
        let several = counters(tier).len() > 1;
        let of_two = |a: usize, b: usize| {
            let (one, two) = (&targets[a], &targets[b]);
            if !pairs.contains(&(a.min(b), a.max(b))) {
                return one.compared(two).map(|_| Beside::Other);
            }
            if one.place() == two.place() && !is_local(one.place()) {
                return Some(Beside::Same);
            }
            Some(match self.verdict(one, two, tier.aside) {
                Verdict::Two => Beside::Other,
                Verdict::Unknown if !(several && one.is_fine()) => Beside::Alike,
                Verdict::One | Verdict::Unknown => Beside::Same,
            })
        };
        let mut parts: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, target) in targets.iter().enumerate() {
            if let Some(part) = part(&target.labels) {
                parts.entry(part).or_default().push(at);
            }
        }
        let mut found = BTreeMap::new();
        for ((one, all), (two, others)) in
            parts.iter().flat_map(|one| parts.iter().map(move |two| (one, two)))
        {
            let best = |at: &usize| others.iter().filter_map(|other| of_two(*at, *other)).min();
            let best: Option<Vec<Beside>> = all.iter().map(best).collect();
            let best = best.filter(|_| one != two).unwrap_or_default();
            let (least, most) = (best.iter().min().copied(), best.iter().max().copied());
            // Of some of the other part's, it is neither.
            if let Some(most) = most.filter(|most| *most != Beside::Other || least == Some(*most)) {
                found.insert((*one, *two), most);
            }
        }
        Ok(found)
    }

    /// Targets of a tier, and pairs of them whose counters all stand alike.
    fn alike(&self, tier: &Tier, source: &mut dyn Source) -> Result<Alike, SourceError> {
        let counters = counters(tier);
        let Some((first, others)) = counters.split_first() else { return Ok(Alike::default()) };
        let targets = self.targets(first, source)?;
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        for (place, one) in targets.iter().enumerate() {
            let before = targets[..place].iter().enumerate();
            let alike = before.filter(|(_, other)| other.stands_as(one));
            pairs.extend(alike.map(|(other, _)| (other, place)));
        }
        for other in others.iter().copied().chain([CPU_TIME]) {
            if pairs.is_empty() {
                break;
            }
            let found = self.targets(other, source)?;
            let found: BTreeMap<&Labels, &Target> =
                found.iter().map(|target| (&target.labels, target)).collect();
            let of = |place: usize| found.get(&targets[place].labels);
            pairs.retain(|(a, b)| {
                of(*a).zip(of(*b)).is_none_or(|(a, b)| a.stands_as(b) || a.at == b.at)
            });
        }
        Ok((targets, pairs))
    }

    /// A counter of each target, where there are several; of each series, where nothing tells the targets.
    fn targets(&self, counter: &str, source: &mut dyn Source) -> Result<Vec<Target>, SourceError> {
        let query = match &self.labels {
            Some(labels) => {
                let labels: Vec<String> = labels.iter().map(|label| label_name(label)).collect();
                format!("sum by ({}) ({counter})", labels.join(", "))
            }
            None => counter.to_owned(),
        };
        let mut of = |place: usize| match source.range(&query, &self.moments[place]) {
            Err(error @ SourceError::NotRecorded { .. }) if self.labels.is_some() => Err(error),
            found => answered(found),
        };
        let now = of(1)?;
        if !(2..=MOST).contains(&now.len()) {
            return Ok(Vec::new());
        }
        let by_labels = |found: Vec<Series>| -> BTreeMap<Labels, Vec<f64>> {
            found.into_iter().map(|one| (one.labels, one.values)).collect()
        };
        let (before, after) = (by_labels(of(0)?), by_labels(of(2)?));
        let one = |now: Series| {
            let at =
                [before.get(&now.labels)?.clone(), now.values, after.get(&now.labels)?.clone()];
            Some(Target { labels: now.labels, at })
        };
        Ok(now.into_iter().filter_map(one).collect())
    }

    /// Whether two targets that stand alike are one process.
    fn verdict(&self, a: &Target, b: &Target, aside: bool) -> Verdict {
        let differs = a.apart(b);
        let within = |known: &[&[&str]]| {
            differs.iter().all(|label| known.iter().any(|known| known.contains(label)))
        };
        let is_replica = |label: &&str| REPLICAS.contains(label);
        let by_monitoring = within(&[&REPLICAS, &SCRAPED_BY])
            && differs.iter().any(|label| *label == JOB || is_replica(label));
        // Of series that are no targets, labels of any name tell what they count.
        if self.labels.is_none() && differs.len() > 1 && !by_monitoring {
            return Verdict::Two;
        }
        match self.starts_of(a, b) {
            // Of an exporter it is not that of the process which it tells of.
            Starts::Apart if !aside => return Verdict::Two,
            Starts::Precisely => {
                let one_host = within(&[&REPLICAS, &SCRAPED_BY, &[INSTANCE]])
                    && port(a.value(INSTANCE)) == port(b.value(INSTANCE));
                if one_host || !differs.contains(INSTANCE) {
                    return Verdict::One;
                }
            }
            _ => {}
        }
        let instance = a.value(INSTANCE);
        // Each of several hosts may have a monitoring of its own, which scrapes that host.
        if by_monitoring && !(is_local(instance) && differs.iter().any(is_replica)) {
            Verdict::One
        } else {
            Verdict::Unknown
        }
    }

    /// What the targets tell of the starts of their processes.
    fn starts_of(&self, a: &Target, b: &Target) -> Starts {
        let (Some(one), Some(two)) = (self.starts.get(&a.labels), self.starts.get(&b.labels))
        else {
            return Starts::Untold;
        };
        let both = || one.iter().zip(two).filter(|(a, b)| a.is_finite() && b.is_finite());
        if both().any(|(a, b)| a.to_bits() != b.to_bits()) {
            Starts::Apart
        } else if both().any(|(a, _)| a.fract() != 0.0) {
            Starts::Precisely
        } else {
            Starts::Untold
        }
    }
}

/// Nothing where a query has no answer; an error where none has.
fn answered(found: Result<Vec<Series>, SourceError>) -> Result<Vec<Series>, SourceError> {
    match found {
        Err(
            error @ (SourceError::Unreachable { .. }
            | SourceError::Silent { .. }
            | SourceError::Status { .. }),
        ) => Err(error),
        found => Ok(found.unwrap_or_default()),
    }
}

/// Whether each host has an address of that name.
pub(crate) fn is_local(instance: &str) -> bool {
    ["localhost", "127.", "[::1]"].iter().any(|own| instance.starts_with(own))
}

fn port(instance: &str) -> Option<&str> {
    instance.rsplit_once(':').map(|(_, port)| port)
}

/// A label as a query names it: from Prometheus 3 on, any text may be one.
fn label_name(label: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if label.chars().all(plain) { label.to_owned() } else { format!("{label:?}") }
}

/// Values of labels whose targets are all there a second time, each as label, value of the other, and value; and the
/// targets that are left without them.
fn seconds(
    targets: &[Target],
    same: &[(usize, usize)],
) -> (Vec<(String, String, String)>, BTreeSet<usize>) {
    let mut rest: BTreeSet<usize> = (0..targets.len()).collect();
    let mut found = Vec::new();
    let mut others: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (a, b) in same {
        others.entry(*a).or_default().push(*b);
        others.entry(*b).or_default().push(*a);
    }
    loop {
        // The most targets at once; of as many, by a label that both have, those that were there less often, and the later name.
        let mut best: Option<(Rank<'_>, &str, &str, Vec<usize>)> = None;
        let mut tried: BTreeSet<(&str, &str)> = BTreeSet::new();
        for (a, b) in same.iter().filter(|(a, b)| rest.contains(a) && rest.contains(b)) {
            let sides = [(*a, *b), (*b, *a)];
            let labels = targets[*a].apart(&targets[*b]).into_iter();
            for (label, (second, kept)) in labels.flat_map(|label| sides.map(|side| (label, side)))
            {
                let value = targets[second].value(label);
                if !tried.insert((label, value)) {
                    continue;
                }
                let members: Vec<usize> =
                    rest.iter().copied().filter(|at| targets[*at].value(label) == value).collect();
                let is_there = |at: &usize| {
                    let mut others = others.get(at).into_iter().flatten();
                    others
                        .any(|other| rest.contains(other) && targets[*other].value(label) != value)
                };
                if !members.iter().all(is_there) {
                    continue;
                }
                let there: usize = members.iter().map(|at| targets[*at].there()).sum();
                let named = !value.is_empty() && !targets[kept].value(label).is_empty();
                let rank = (members.len(), named, Reverse(there), value);
                if best.as_ref().is_none_or(|(other, ..)| *other < rank) {
                    best = Some((rank, label, targets[kept].value(label), members));
                }
            }
        }
        let Some(((.., value), label, kept, members)) = best else { return (found, rest) };
        found.push((label.to_owned(), kept.to_owned(), value.to_owned()));
        members.iter().for_each(|at| {
            rest.remove(at);
        });
    }
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

/// Counters by which targets of a tier are compared.
fn counters(tier: &Tier) -> Vec<&str> {
    let counted =
        [Quantity::Throughput, Quantity::Arrivals, Quantity::Busy, Quantity::ResponseTime];
    let queries = counted.iter().filter_map(|quantity| tier.queries.get(quantity));
    let mut counters: Vec<&str> = queries.filter_map(|query| counter(query)).collect();
    counters.dedup();
    counters
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
        let matcher = format!("{}!={value:?}", label_name(label));
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
