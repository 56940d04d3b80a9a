//! What the authors of a study published, as `[published]` of its file has it.

use std::collections::BTreeMap;

use kendall_store::FactorLevel;
use kendall_units::{parse_rate, parse_seconds};
use serde::Deserialize;

/// Figures that others published of the same experiment.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Where they stand.
    pub source: String,
    /// What the authors concluded.
    pub conclusion: Option<String>,
    /// Mean of what the effects are of.
    pub mean: Option<Quantity>,
    /// Effects of factors with two levels.
    #[serde(default)]
    pub effects: Vec<PublishedEffect>,
    /// Where curves saturate.
    #[serde(default)]
    pub knees: Vec<PublishedKnee>,
    /// Values at levels of a factor.
    #[serde(default)]
    pub curves: Vec<PublishedCurve>,
}

/// Half the change from the low to the high level, or an interaction.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedEffect {
    /// Keys of its factors.
    pub of: Vec<String>,
    pub effect: Quantity,
    /// Share of the variation in percent.
    pub share: Option<f64>,
}

/// The load from which a curve is on its plateau.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedKnee {
    /// Levels of the other factors.
    #[serde(default)]
    pub at: Levels,
    pub load: f64,
}

/// Values along a factor.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedCurve {
    /// Key of the factor.
    pub along: String,
    /// Levels of the other factors.
    #[serde(default)]
    pub at: Levels,
    /// By level, lowest first.
    pub values: toml::Table,
}

/// Levels of factors, by their keys.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(transparent)]
pub struct Levels(BTreeMap<String, toml::Value>);

impl Levels {
    /// Whether a configuration is at all of them.
    pub fn are_of(&self, levels: &[FactorLevel]) -> bool {
        self.0.iter().all(|(key, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            levels.iter().any(|level| level.factor == *key && level.text == text)
        })
    }
}

/// What a published number is of, and its value in SI.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub enum Quantity {
    /// Throughput in 1/s.
    Throughput(f64),
    /// Response time of requests, or makespan of a job, in s.
    Time(f64),
    /// Mean number of requests that wait for a worker of the first tier.
    Waiting(f64),
}

impl TryFrom<String> for Quantity {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (sign, size) = match text.strip_prefix('-') {
            Some(rest) => (-1.0, rest),
            None => (1.0, text.as_str()),
        };
        if let Some(count) = text.strip_suffix(" waiting").and_then(|count| count.parse().ok()) {
            return Ok(Self::Waiting(count));
        }
        let rate = parse_rate(size).map(|rate| Self::Throughput(sign * rate.get()));
        rate.or_else(|_| parse_seconds(size).map(|time| Self::Time(sign * time.get())))
            .map_err(|_| format!("`{text}` is no rate (`-580/s`), no time (`5.27ms`) and no queue (`170 waiting`)"))
    }
}

impl Published {
    /// Reads the table, and each number in it.
    pub fn read(table: toml::Value) -> Result<Self, String> {
        let published: Self = table
            .try_into()
            .map_err(|error: toml::de::Error| error.message().trim().replace('\n', "; "))?;
        for curve in &published.curves {
            curve.points()?;
        }
        if published.effects.iter().any(|one| matches!(one.effect, Quantity::Waiting(_))) {
            return Err(
                "an effect is of a rate or a time; a queue is a value of a curve".to_owned()
            );
        }
        Ok(published)
    }

    /// Of a study file, where it has such a table that can be read.
    pub fn of_file(text: &str) -> Option<Self> {
        let mut file: toml::Table = text.parse().ok()?;
        Self::read(file.remove("published")?).ok()
    }
}

impl PublishedCurve {
    /// Levels with their values.
    pub fn points(&self) -> Result<Vec<(&str, Quantity)>, String> {
        let read = |value: &toml::Value| {
            value.clone().try_into().map_err(|error: toml::de::Error| error.message().to_owned())
        };
        self.values.iter().map(|(level, value)| Ok((level.as_str(), read(value)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    fn read(text: &str) -> Result<Published, String> {
        Published::read(text.parse::<toml::Table>().unwrap().into())
    }

    #[test]
    fn figures_have_units_and_a_sign() {
        let published = read(
            "source = 's'\nmean = '5.27ms'\n[[effects]]\nof = ['system.workers']\neffect = '-1.04ms'\nshare = 5\n\
             [[curves]]\nalong = 'system.workers'\nat = { 'workload.clients' = 8 }\n\
             values = { 1 = '8.09/s', 2 = '15.05/s' }",
        )
        .unwrap();
        assert_eq!(published.effects[0].effect, Quantity::Time(-1.04 * 1e-3));
        assert_eq!(published.mean, Some(Quantity::Time(5.27 * 1e-3)));
        let points = published.curves[0].points().unwrap();
        assert_eq!(points[1], ("2", Quantity::Throughput(15.05)));
        let level = |text: &str| FactorLevel {
            factor: "workload.clients".to_owned(),
            level: 0,
            text: text.to_owned(),
            number: None,
        };
        assert!(published.curves[0].at.are_of(&[level("8")]));
        assert!(!published.curves[0].at.are_of(&[level("9")]));
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_its_value() {
        for (text, said) in [
            ("source = 's'\neffects = [{ of = ['a'], effect = '5 apples' }]", "5 apples"),
            ("source = 's'\ncurves = [{ along = 'a', values = { 1 = 'many' } }]", "many"),
            ("source = 's'\nknees = [{ load = 'x' }]", "x"),
            ("source = 's'\neffects = [{ of = ['a'], effect = '5 waiting' }]", "of a curve"),
            ("source = 's'\nshare = 3", "share"),
            ("conclusion = 'c'", "source"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
