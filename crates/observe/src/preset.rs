//! Queries that well-known exporters answer, of the file `presets.toml`: a system file then needs a name and a
//! selector only.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::quantity::Quantity;

/// Queries of one kind of exporter.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Name in a system file.
    pub name: String,
    pub what: String,
    /// A metric by which a server that has it is recognized.
    pub sign: String,
    pub stands: Stands,
    /// Its page is that of another process beside it, whose processors and CPU time are not its own.
    #[serde(default)]
    pub aside: bool,
    /// Its servers are held while the tiers below work, and `busy` counts that.
    #[serde(default)]
    pub held: bool,
    /// Times of its requests.
    histogram: Option<Histogram>,
    /// One query a quantity, in place of one that the histogram gives.
    #[serde(default)]
    own: BTreeMap<Quantity, String>,
}

/// Place of an exporter's program between clients and data: each calls those after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stands {
    /// Passes requests on.
    Proxy,
    Service,
    Pool,
    Store,
    /// Runs others, and knows no requests.
    Machine,
}

/// A histogram of response times, by which most services count their requests.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Histogram {
    family: String,
    /// Matchers of the requests that count; empty for all.
    #[serde(default)]
    only: String,
    /// Matchers of those that failed; empty where it does not say.
    #[serde(default)]
    errors: String,
    /// Labels of the classes; empty where it has none.
    #[serde(default)]
    classes: String,
    /// In milliseconds. The bounds of its bins cannot be converted by a query, so they are not asked for.
    #[serde(default)]
    milliseconds: bool,
}

impl Histogram {
    fn queries(&self) -> Vec<(Quantity, String)> {
        let rate = |of: &str, more: &str| {
            let matchers = [more, self.only.as_str()].into_iter().filter(|text| !text.is_empty());
            let labels = match matchers.collect::<Vec<_>>().join(",") {
                none if none.is_empty() => "{{selector}}".to_owned(),
                own => format!("{{{own}{{and}}{{selector}}}}"),
            };
            format!("(rate({}_{of}{labels}[{{window}}]))", self.family)
        };
        let (count, sum) = (rate("count", ""), rate("sum", ""));
        let unit = if self.milliseconds { " / 1000" } else { "" };
        let mut all = vec![
            (Quantity::Throughput, format!("sum{count}")),
            (Quantity::ResponseTime, format!("sum{sum} / sum{count}{unit}")),
        ];
        if !self.milliseconds {
            all.push((Quantity::Buckets, format!("sum by (le) {}", rate("bucket", ""))));
        }
        if !self.errors.is_empty() {
            all.push((
                Quantity::Errors,
                format!("sum{} or vector(0)", rate("count", &self.errors)),
            ));
        }
        if !self.classes.is_empty() {
            let by = format!("sum by ({}) ", self.classes);
            all.push((Quantity::Classes, format!("{by}{count}")));
            all.push((Quantity::ClassTimes, format!("{by}{sum} / {by}{count}{unit}")));
        }
        all
    }
}

impl Preset {
    /// One query a quantity, with placeholders.
    pub fn queries(&self) -> BTreeMap<Quantity, String> {
        let timed = self.histogram.iter().flat_map(Histogram::queries);
        let own = self.own.iter().map(|(quantity, query)| (*quantity, query.clone()));
        timed.chain(own).collect()
    }

    /// The throughput of each server, by scrape target; `None` where the throughput is no plain
    /// sum of a counter.
    pub(crate) fn each(&self) -> Option<String> {
        let all = self.queries().remove(&Quantity::Throughput)?;
        let rest = all.strip_prefix("sum(").filter(|rest| !rest.contains("sum"))?;
        Some(format!("sum by (instance) ({rest}"))
    }
}

/// All of them; of two that are recognized by one page, the first is the more special one.
pub static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    let mut file: BTreeMap<String, Vec<Preset>> =
        toml::from_str(include_str!("presets.toml")).expect("a test reads the file");
    file.remove("preset").unwrap_or_default()
});

/// The query of a preset with its placeholders filled in.
pub(crate) fn filled(template: &str, selector: &str, window: &str) -> String {
    let selector = selector.trim().trim_end_matches(',');
    let and = if selector.is_empty() { "" } else { "," };
    // `{{selector}}` is the label matchers alone in their braces.
    let own = format!("{{{selector}}}");
    template
        .replace("{{selector}}", &own)
        .replace("{and}", and)
        .replace("{selector}", selector)
        .replace("{window}", window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_stands_alone_or_after_others() {
        let rate = "sum(rate(x{{selector}}[{window}]))";
        assert_eq!(filled(rate, "job=\"a\"", "10s"), "sum(rate(x{job=\"a\"}[10s]))");
        assert_eq!(filled(rate, "", "10s"), "sum(rate(x{}[10s]))");
        let more = "count(x{mode=\"idle\"{and}{selector}})";
        assert_eq!(filled(more, "job=\"a\"", "10s"), "count(x{mode=\"idle\",job=\"a\"})");
        assert_eq!(filled(more, "", "10s"), "count(x{mode=\"idle\"})");
    }

    #[test]
    fn servers_are_told_apart_by_where_they_were_scraped() {
        let each = |name: &str| PRESETS.iter().find(|one| one.name == name).unwrap().each();
        let expected =
            "sum by (instance) (rate(kendall_request_completions_total{{selector}}[{window}]))";
        assert_eq!(each("kendall").as_deref(), Some(expected));
        assert!(each("memcached").is_some_and(|query| query.contains("by (instance)")));
        // Two counters are summed there, and there is no throughput here.
        assert_eq!((each("postgresql"), each("host")), (None, None));
    }

    #[test]
    fn every_query_of_every_preset_has_its_braces_in_pairs() {
        for preset in PRESETS.iter() {
            for query in preset.queries().values() {
                let text = filled(query, "job=\"a\"", "1m");
                assert_eq!(text.matches('{').count(), text.matches('}').count(), "{text}");
                assert!(!text.contains("selector") && !text.contains("{and}"), "{text}");
            }
        }
    }
}
