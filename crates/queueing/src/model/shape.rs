//! Distributions as files write them: `{ distribution = "erlang", mean_s = 0.01, stages = 4 }`.

use kendall_keys::{Section, bracketed};
use toml::Value;

use super::keys::of_shape;
use super::{ModelError, refused};
use crate::{Distribution, DistributionError};

/// A distribution as files write it.
///
/// `mean_s` is what the file says beside it (a `service_time_s`, a rate), for distributions that
/// give a shape only; a mean in the table must agree with it. A bare number is the mean of an
/// exponential.
///
/// # Errors
/// [`ModelError`] when it is not a distribution, a parameter is missing, unknown or makes no sense.
pub fn read_distribution(
    path: &str,
    value: &Value,
    mean_s: Option<f64>,
) -> Result<Distribution, ModelError> {
    if let Value::Float(_) | Value::Integer(_) = value {
        let mean = finite(path, value)?;
        return exponential(path, mean);
    }
    let Some(table) = value.as_table() else {
        let expected = "a table such as { distribution = \"erlang\", mean_s = 0.01, stages = 4 }";
        return Err(refused(path, value, expected));
    };
    let named = table.get("distribution").and_then(Value::as_str).unwrap_or_default();
    let section = Section::new(path, table, of_shape(named));
    read_table(Shape { section, outer: mean_s, follows: false })
}

/// The same, for a distribution whose mean is `mean`, also where it states another.
pub(super) fn read_shape(path: &str, value: &Value, mean: f64) -> Result<Distribution, ModelError> {
    let Some(table) = value.as_table() else { return read_distribution(path, value, Some(mean)) };
    let named = table.get("distribution").and_then(Value::as_str).unwrap_or_default();
    let section = Section::new(path, table, of_shape(named));
    let built = read_table(Shape { section, outer: Some(mean), follows: true })?;
    if (built.mean() - mean).abs() <= 1e-9 * mean {
        return Ok(built);
    }
    built.with_mean(mean).map_err(|error| refused(path, mean, error.to_string()))
}

fn read_table(mut fields: Shape<'_>) -> Result<Distribution, ModelError> {
    let name = fields.section.text("distribution")?;
    fields.section.known()?;
    fields.read(&name)
}

pub(super) fn exponential(path: &str, mean: f64) -> Result<Distribution, ModelError> {
    Distribution::exponential(mean).map_err(|_| refused(path, mean, "a finite time, 0 or above"))
}

struct Shape<'a> {
    section: Section<'a>,
    /// The mean that the file states beside the table.
    outer: Option<f64>,
    /// Whether that one counts where both are stated; else they must agree.
    follows: bool,
}

impl Shape<'_> {
    fn find(&mut self, key: &str) -> Result<Option<f64>, ModelError> {
        Ok(self.section.number(key)?)
    }

    fn need(&mut self, key: &str) -> Result<f64, ModelError> {
        self.find(key)?.ok_or_else(|| ModelError::Missing {
            path: super::bracketed(&self.section.path_of(key)),
            expected: "a number".to_owned(),
        })
    }

    fn both(&self, key: &str, other: &str) -> ModelError {
        refused(
            super::bracketed(&self.section.path_of(key)),
            format!("beside {other}"),
            format!("one of the two: `{key}` or {other}"),
        )
    }

    /// The mean; refused where two are stated that differ.
    fn mean(&mut self) -> Result<f64, ModelError> {
        let own = self.find("mean_s")?;
        let rate = self.find("rate_per_s")?;
        if own.is_some() && rate.is_some() {
            return Err(self.both("rate_per_s", "`mean_s`"));
        }
        let own = own.or(rate.map(f64::recip));
        match (own, self.outer) {
            (Some(own), Some(outer))
                if !self.follows && (own - outer).abs() > 1e-9 * outer.abs() =>
            {
                Err(self.both("mean_s", &format!("a time or rate of {outer} s")))
            }
            (Some(mean), _) | (None, Some(mean)) => Ok(mean),
            (None, None) => self.need("mean_s"),
        }
    }

    /// A shape that has a mean by itself, checked against one that is stated beside it.
    fn own_mean(&self, built: Distribution) -> Result<Distribution, ModelError> {
        match self.outer {
            Some(outer) if !self.follows && (built.mean() - outer).abs() > 1e-9 * outer.abs() => {
                let path = super::bracketed(self.section.path());
                let expected = format!("the mean of {outer} s of the time or rate beside it");
                Err(refused(path, format!("its mean {} s", built.mean()), expected))
            }
            _ => Ok(built),
        }
    }

    fn read(&mut self, name: &str) -> Result<Distribution, ModelError> {
        let path = super::bracketed(self.section.path());
        let failed = |error: DistributionError| refused(&path, error.value, error.to_string());
        Ok(match name {
            "exponential" => Distribution::exponential(self.mean()?).map_err(failed)?,
            "deterministic" => Distribution::deterministic(self.mean()?).map_err(failed)?,
            "erlang" => {
                let stages = self.section.opt_count("stages")?;
                let stages = stages.and_then(|stages| u32::try_from(stages).ok());
                let stages = stages.ok_or_else(|| ModelError::Missing {
                    path: super::bracketed(&self.section.path_of("stages")),
                    expected: "a whole number from 1".to_owned(),
                })?;
                Distribution::erlang(stages, self.mean()?).map_err(failed)?
            }
            "hyperexponential" => self.hyperexponential()?,
            "lognormal" => {
                Distribution::lognormal(self.mean()?, self.need("scv")?).map_err(failed)?
            }
            "gamma" => {
                let scv = match (self.find("shape")?, self.find("scv")?) {
                    (Some(_), Some(_)) => return Err(self.both("shape", "`scv`")),
                    (Some(shape), None) => 1.0 / shape,
                    (None, Some(scv)) => scv,
                    (None, None) => self.need("scv")?,
                };
                Distribution::gamma(self.mean()?, scv).map_err(failed)?
            }
            "uniform" => {
                let (low, high) = (self.need("low_s")?, self.need("high_s")?);
                self.own_mean(Distribution::uniform(low, high).map_err(failed)?)?
            }
            "weibull" => self.weibull()?,
            "normal" => {
                Distribution::truncated_normal(self.mean()?, self.need("sd_s")?).map_err(failed)?
            }
            "pareto" => {
                let (shape, low) = (self.need("shape")?, self.need("low_s")?);
                let high = self.need("high_s")?;
                self.own_mean(Distribution::bounded_pareto(shape, low, high).map_err(failed)?)?
            }
            "empirical" => {
                let values = self.section.numbers("values_s")?.unwrap_or_default();
                self.own_mean(Distribution::empirical(values).map_err(failed)?)?
            }
            "trace" => {
                let values = self.section.numbers("values_s")?.unwrap_or_default();
                self.own_mean(Distribution::trace(values).map_err(failed)?)?
            }
            "phase-type" => self.phase_type()?,
            "coxian" => {
                let rates = self.section.numbers("rates_per_s")?.unwrap_or_default();
                let on = self.section.numbers("continue_probabilities")?.unwrap_or_default();
                self.own_mean(Distribution::coxian(&rates, &on).map_err(failed)?)?
            }
            "map" => {
                let (hidden, marked) = (self.rows("d0")?, self.rows("d1")?);
                self.own_mean(Distribution::map(hidden, marked).map_err(failed)?)?
            }
            "mmpp" => {
                let rates = self.section.numbers("arrival_rates_per_s")?.unwrap_or_default();
                let generator = self.rows("generator")?;
                self.own_mean(Distribution::mmpp(&rates, &generator).map_err(failed)?)?
            }
            _ => self.general()?,
        })
    }

    /// By its phases, or by mean and spread.
    fn phase_type(&mut self) -> Result<Distribution, ModelError> {
        let path = super::bracketed(self.section.path());
        let failed = |error: DistributionError| refused(&path, error.value, error.to_string());
        if !self.section.has("initial") && !self.section.has("generator") {
            let scv = self.need("scv")?;
            return Distribution::phases_of_moments(self.mean()?, scv).map_err(failed);
        }
        if let Some(key) = ["scv", "mean_s", "rate_per_s"].iter().find(|k| self.section.has(k)) {
            return Err(self.both(key, "`generator`"));
        }
        let initial = self.section.numbers("initial")?.unwrap_or_default();
        let generator = self.rows("generator")?;
        self.own_mean(Distribution::phase_type(initial, generator).map_err(failed)?)
    }

    /// A matrix, as a list of its rows.
    fn rows(&self, key: &str) -> Result<Vec<Vec<f64>>, ModelError> {
        let path = self.section.path_of(key);
        let form = "a list of lists of numbers, such as [[-3, 1], [0, -2]]";
        let Some(value) = self.section.raw(key) else {
            let path = super::bracketed(&path);
            return Err(ModelError::Missing { path, expected: form.to_owned() });
        };
        let rows = value.as_array().ok_or_else(|| refused(bracketed(&path), value, form))?;
        let numbers = |row: &Value| -> Result<Vec<f64>, ModelError> {
            let row = row.as_array().ok_or_else(|| refused(bracketed(&path), row, form))?;
            row.iter().map(|number| finite(&path, number)).collect()
        };
        rows.iter().map(numbers).collect()
    }

    /// Two moments, perhaps three.
    fn general(&mut self) -> Result<Distribution, ModelError> {
        let path = super::bracketed(self.section.path());
        let third = self.find("third_moment_s3")?;
        let mean = self.mean()?;
        let scv = match (self.find("variance_s2")?, self.find("scv")?) {
            (Some(_), Some(_)) => return Err(self.both("variance_s2", "`scv`")),
            (Some(variance), None) => variance / (mean * mean),
            (None, Some(scv)) => scv,
            (None, None) => self.need("scv")?,
        };
        Distribution::general(mean, scv, third)
            .map_err(|error| refused(path, error.value, error.to_string()))
    }

    /// By its scale, or by its mean.
    fn weibull(&mut self) -> Result<Distribution, ModelError> {
        let path = super::bracketed(self.section.path());
        let failed = |error: DistributionError| refused(&path, error.value, error.to_string());
        let shape = self.need("shape")?;
        match self.find("scale_s")? {
            Some(_) if self.section.has("mean_s") || self.section.has("rate_per_s") => {
                Err(self.both("scale_s", "the mean"))
            }
            Some(scale) => self.own_mean(Distribution::weibull(shape, scale).map_err(failed)?),
            None => {
                let mean = self.mean()?;
                Distribution::weibull(shape, 1.0)
                    .and_then(|unit| unit.with_mean(mean))
                    .map_err(failed)
            }
        }
    }

    /// By its branches, or by mean and spread with balanced means.
    fn hyperexponential(&mut self) -> Result<Distribution, ModelError> {
        let path = super::bracketed(self.section.path());
        let failed = |error: DistributionError| refused(&path, error.value, error.to_string());
        let probabilities = self.section.numbers("probabilities")?;
        let means = self.section.numbers("means_s")?;
        let spread = ["scv", "mean_s", "rate_per_s"].iter().find(|key| self.section.has(key));
        match (probabilities, means, spread) {
            (Some(probabilities), Some(means), None) => {
                let built = Distribution::hyperexponential(probabilities, means).map_err(failed)?;
                self.own_mean(built)
            }
            (None, None, _) => {
                let scv = self.need("scv")?;
                Distribution::hyperexponential_balanced(self.mean()?, scv).map_err(failed)
            }
            _ => Err(refused(
                &path,
                "a mixture of keys",
                "probabilities with means_s, or mean_s with scv",
            )),
        }
    }
}

/// A finite number.
pub(super) fn finite(path: &str, value: &Value) -> Result<f64, ModelError> {
    let number = match value {
        Value::Integer(number) => {
            i32::try_from(*number).map(f64::from).ok().or_else(|| number.to_string().parse().ok())
        }
        Value::Float(number) => Some(*number),
        _ => None,
    };
    number
        .filter(|number| number.is_finite())
        .ok_or_else(|| refused(bracketed(path), value, "a finite number"))
}
