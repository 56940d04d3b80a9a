//! Fields of a case: found under the names that are in use for them.

use std::collections::BTreeMap;

use super::kendall::Letter;
use crate::Distribution;
use crate::model::value::Value;
use crate::model::{ModelError, read_distribution, refused};

/// Suffixes of rates and times, and how many seconds their unit has.
const UNITS: [(&str, &str, f64); 5] = [
    ("_per_s", "_s", 1.0),
    ("_per_ms", "_ms", 1e-3),
    ("_per_us", "_us", 1e-6),
    ("_per_min", "_min", 60.0),
    ("_per_h", "_h", 3_600.0),
];

/// A table of the case.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a> {
    table: &'a BTreeMap<String, Value>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(value: &'a Value) -> Result<Self, ModelError> {
        match value.table() {
            Some(table) => Ok(Self { table }),
            None => Err(refused("model", value, "a table of fields")),
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.table.contains_key(name)
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.table.get(name)
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.get(name).and_then(Value::text).map(str::to_owned)
    }

    pub(super) fn number(&self, names: &[&str]) -> Option<f64> {
        names.iter().find_map(|name| self.get(name)).and_then(Value::number)
    }

    pub(super) fn need(&self, names: &[&str]) -> Result<f64, ModelError> {
        self.number(names).ok_or_else(|| absent(names[0]))
    }

    pub(super) fn count(&self, names: &[&str]) -> Result<Option<u64>, ModelError> {
        match self.number(names) {
            None => Ok(None),
            Some(value) if value >= 0.0 && value.fract() == 0.0 && value <= 1e15 => {
                Ok(Some(kendall_units::whole_u64(value)))
            }
            Some(value) => Err(refused(names[0], value, "a whole number, 0 or above")),
        }
    }

    pub(super) fn list(&self, names: &[&str]) -> Option<Vec<f64>> {
        names.iter().find_map(|name| self.get(name)).and_then(Value::numbers)
    }

    /// The tables of a list of tables.
    pub(super) fn tables(&self, name: &str) -> Result<Vec<Self>, ModelError> {
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(value) => match value.list() {
                Some(list) => list.iter().map(Fields::new).collect(),
                None => Err(refused(name, value, "a list of tables")),
            },
        }
    }

    /// A rate in 1/s, whatever its unit is.
    pub(super) fn rate(&self, stems: &[&str]) -> Option<f64> {
        stems.iter().find_map(|stem| {
            UNITS.iter().find_map(|(suffix, _, seconds)| {
                self.number(&[&format!("{stem}{suffix}")]).map(|rate| rate / seconds)
            })
        })
    }

    /// A time in s, whatever its unit is.
    pub(super) fn time(&self, stems: &[&str]) -> Option<f64> {
        stems.iter().find_map(|stem| {
            UNITS.iter().find_map(|(_, suffix, seconds)| {
                self.number(&[&format!("{stem}{suffix}")]).map(|time| time * seconds)
            })
        })
    }

    /// The value of a key with any time suffix, and how many seconds its unit has.
    pub(super) fn time_value(&self, stem: &str) -> Option<(&'a Value, f64)> {
        UNITS
            .iter()
            .find_map(|(_, suffix, s)| self.get(&format!("{stem}{suffix}")).map(|v| (v, *s)))
    }

    /// The value of a key with any rate suffix, and how many seconds its unit has.
    pub(super) fn rate_value(&self, stem: &str) -> Option<(&'a Value, f64)> {
        UNITS
            .iter()
            .find_map(|(suffix, _, s)| self.get(&format!("{stem}{suffix}")).map(|v| (v, *s)))
    }

    /// The unit that the case speaks: that of its rates.
    pub(super) fn unit(&self) -> (&'static str, f64) {
        for (suffix, _, seconds) in UNITS {
            if self.table.keys().any(|key| key.ends_with(suffix)) {
                return (&suffix["_per_".len()..], seconds);
            }
        }
        ("s", 1.0)
    }

    pub(super) fn arrival_rate(&self) -> Option<f64> {
        self.rate(&["arrival_rate", "lambda", "batch_arrival_rate"]).or_else(|| {
            self.time(&["interarrival_time", "mean_interarrival_time", "mean_interarrival"])
                .map(f64::recip)
        })
    }

    pub(super) fn need_arrival_rate(&self) -> Result<f64, ModelError> {
        self.arrival_rate().ok_or_else(|| absent("arrival_rate_per_s"))
    }

    pub(super) fn service_rate(&self) -> Option<f64> {
        self.rate(&["service_rate", "mu"]).or_else(|| {
            self.time(&["service_time", "mean_service_time", "mean_service"]).map(f64::recip)
        })
    }

    pub(super) fn need_service_rate(&self) -> Result<f64, ModelError> {
        match self.service_rate() {
            Some(rate) => Ok(rate),
            None => Ok(self.service(Letter::Markov)?.mean().recip()),
        }
    }

    pub(super) fn servers(&self) -> Result<u64, ModelError> {
        Ok(self.given_servers()?.unwrap_or(1))
    }

    pub(super) fn given_servers(&self) -> Result<Option<u64>, ModelError> {
        self.count(&["servers", "m", "c", "num_servers", "number_of_servers", "n_servers"])
    }

    /// The service time: a `service` table, or a mean with the shape that other fields give, or
    /// that the letter of the notation stands for.
    pub(super) fn service(&self, letter: Letter) -> Result<Distribution, ModelError> {
        let mean = self.service_rate().map(f64::recip);
        let names = ["service", "service_distribution", "service_time"];
        self.distribution(&names, mean, "service", letter)
    }

    /// The time between arrivals likewise.
    pub(super) fn interarrival(&self, letter: Letter) -> Result<Distribution, ModelError> {
        let mean = self.arrival_rate().map(f64::recip);
        let names = [
            "interarrival",
            "arrival",
            "arrivals",
            "interarrival_distribution",
            "interarrival_time",
            "arrival_process",
        ];
        self.distribution(&names, mean, "interarrival", letter)
    }

    fn distribution(
        &self,
        names: &[&str],
        mean: Option<f64>,
        stem: &str,
        letter: Letter,
    ) -> Result<Distribution, ModelError> {
        let value = names.iter().find_map(|name| self.get(name));
        match value {
            Some(value @ Value::Table(_)) => return read_distribution(names[0], value, mean),
            Some(Value::Text(name)) => {
                return read_distribution(names[0], &self.shape(name), mean);
            }
            _ => {}
        }
        let Some(mean) = mean.or_else(|| self.time(&[&format!("mean_{stem}"), stem])) else {
            return Err(absent(&format!("{stem}_time_s")));
        };
        let scv = self.scv(stem, mean);
        let third = self
            .number(&[&format!("{stem}_third_moment_s3"), &format!("{stem}_time_third_moment_s3")]);
        let built = match (letter, scv) {
            (Letter::Erlang(stages), _) => {
                let names = ["stages", "phases", "erlang_stages", "k", "shape"];
                let given = self.count(&names)?.and_then(|count| u32::try_from(count).ok());
                let stages = stages.or(given).ok_or_else(|| absent("stages"))?;
                Distribution::erlang(stages, mean)
            }
            (Letter::Deterministic, None) => Distribution::deterministic(mean),
            (Letter::Hyperexponential, _) if self.has("probabilities") => {
                return read_distribution(names[0], &self.shape("hyperexponential"), Some(mean));
            }
            (Letter::Hyperexponential, Some(scv)) => {
                Distribution::hyperexponential_balanced(mean, scv)
            }
            (Letter::Markov, None) => Distribution::exponential(mean),
            // A rate of service without a shape is that of an exponential.
            (Letter::General, None) if stem == "service" && self.has("service_rate_per_s") => {
                Distribution::exponential(mean)
            }
            (_, None) => return Err(absent(&format!("{stem}_scv"))),
            (_, Some(scv)) => Distribution::general(mean, scv, third),
        };
        built.map_err(|error| refused(stem, mean, error.to_string()))
    }

    /// A distribution that is only named, with its parameters beside the name.
    fn shape(&self, name: &str) -> Value {
        let mut table = BTreeMap::new();
        table.insert("distribution".to_owned(), Value::Text(name.to_owned()));
        for key in ["stages", "phases", "scv", "cv", "k", "shape", "probabilities", "means_s"] {
            if let Some(value) = self.get(key) {
                table.insert(key.to_owned(), value.clone());
            }
        }
        Value::Table(table)
    }

    /// c², however it is written.
    fn scv(&self, stem: &str, mean: f64) -> Option<f64> {
        let letter = if stem == "service" { "s" } else { "a" };
        let squared = [
            format!("{stem}_scv"),
            format!("{stem}_time_scv"),
            format!("scv_{stem}"),
            format!("{stem}_cv2"),
            format!("{stem}_squared_cv"),
            format!("c{letter}2"),
            format!("scv_{letter}"),
            format!("c2_{letter}"),
            if stem == "service" { "scv".to_owned() } else { "arrival_scv".to_owned() },
            if stem == "service" { "cv2".to_owned() } else { "arrival_cv2".to_owned() },
        ];
        let plain = [
            format!("{stem}_cv"),
            format!("{stem}_time_cv"),
            format!("cv_{stem}"),
            format!("c{letter}"),
            format!("c_{letter}"),
            if stem == "service" { "cv".to_owned() } else { "arrival_cv".to_owned() },
        ];
        let first = |names: &[String]| names.iter().find_map(|name| self.number(&[name]));
        // Variances and moments carry the square of a unit of time.
        let square = |names: &[String]| {
            UNITS.iter().find_map(|(_, suffix, seconds)| {
                let found = names.iter().find_map(|n| self.number(&[&format!("{n}{suffix}2")]));
                found.map(|value| value * seconds * seconds)
            })
        };
        let names = |word: &str| {
            [format!("{stem}_{word}"), format!("{stem}_time_{word}"), format!("{word}_{stem}")]
        };
        let deviation = self.time(&[
            &format!("{stem}_sd"),
            &format!("{stem}_std"),
            &format!("{stem}_time_std"),
            &format!("{stem}_standard_deviation"),
            &format!("{stem}_time_sd"),
        ]);
        first(&squared)
            .or_else(|| first(&plain).map(|cv| cv * cv))
            .or_else(|| square(&names("variance")).map(|v| v / (mean * mean)))
            .or_else(|| square(&names("var")).map(|v| v / (mean * mean)))
            .or_else(|| deviation.map(|sd| (sd / mean).powi(2)))
            .or_else(|| square(&names("second_moment")).map(|s| s / (mean * mean) - 1.0))
    }
}

pub(super) fn absent(path: &str) -> ModelError {
    ModelError::Missing { path: path.to_owned(), expected: "a number".to_owned() }
}
