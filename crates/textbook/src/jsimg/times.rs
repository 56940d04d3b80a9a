//! Times of JMT's simulator, by the parameters of their distributions.

use roxmltree::Node;
use toml::Value;

use super::{parameter, value, whole};
use crate::jmva::{JmvaError, number, wrong};
use crate::vocabulary::elements;

/// A distribution of model files, and its keys.
type Shape = (&'static str, Vec<(&'static str, Value)>);

/// The parameters of a distribution at a place of the file.
pub(super) struct Parameters<'a> {
    pub(super) place: &'a str,
    pub(super) all: Option<Node<'a, 'a>>,
}

impl Parameters<'_> {
    /// The distribution that JMT calls by this name; none that model files do not have.
    pub(super) fn shape(&self, name: &str) -> Result<Option<Shape>, JmvaError> {
        Ok(Some(match name {
            "Exponential" => ("exponential", vec![("rate_per_s", self.positive("lambda")?.into())]),
            "DeterministicDistr" => ("deterministic", vec![("mean_s", self.of("t")?.into())]),
            "Erlang" => {
                let stages = whole(self.place, value(self.need("r")?).unwrap_or("null"))?;
                let mean = number(self.place, &stages.to_string())? / self.positive("alpha")?;
                ("erlang", vec![("stages", stages.into()), ("mean_s", mean.into())])
            }
            "GammaDistr" => {
                let (shape, scale) = (self.positive("alpha")?, self.positive("beta")?);
                ("gamma", vec![("shape", shape.into()), ("mean_s", (shape * scale).into())])
            }
            "Lognormal" => {
                let (mu, square) = (self.of("mu")?, self.of("sigma")?.powi(2));
                let mean = (mu + square / 2.0).exp();
                ("lognormal", vec![("mean_s", mean.into()), ("scv", square.exp_m1().into())])
            }
            "Weibull" => {
                let (scale, shape) = (self.of("alpha")?, self.of("r")?);
                ("weibull", vec![("scale_s", scale.into()), ("shape", shape.into())])
            }
            "Uniform" => {
                let (low, high) = (self.of("min")?, self.of("max")?);
                ("uniform", vec![("low_s", low.into()), ("high_s", high.into())])
            }
            "Normal" => {
                let (mean, sd) = (self.of("mean")?, self.of("standardDeviation")?);
                ("normal", vec![("mean_s", mean.into()), ("sd_s", sd.into())])
            }
            other => return self.phases(other),
        }))
    }

    /// Those that are made of phases.
    fn phases(&self, name: &str) -> Result<Option<Shape>, JmvaError> {
        Ok(Some(match name {
            "HyperExp" => {
                let p = self.of("p")?;
                let means = vec![1.0 / self.positive("lambda1")?, 1.0 / self.positive("lambda2")?];
                let values =
                    vec![("probabilities", vec![p, 1.0 - p].into()), ("means_s", means.into())];
                ("hyperexponential", values)
            }
            "CoxianDistr" => {
                let rates = vec![self.of("lambda0")?, self.of("lambda1")?];
                let on = vec![1.0 - self.of("phi0")?];
                let values =
                    vec![("rates_per_s", rates.into()), ("continue_probabilities", on.into())];
                ("coxian", values)
            }
            "PhaseTypeDistr" => {
                let initial: Vec<f64> = self.rows("alpha")?.into_iter().flatten().collect();
                let generator = self.rows("T")?;
                ("phase-type", vec![("initial", initial.into()), ("generator", generator.into())])
            }
            "MAPDistr" => {
                ("map", vec![("d0", self.rows("D0")?.into()), ("d1", self.rows("D1")?.into())])
            }
            "MMPP2Distr" => {
                let (to, back) = (self.of("sigma0")?, self.of("sigma1")?);
                let generator = vec![vec![-to, to], vec![back, -back]];
                let rates = vec![self.of("lambda0")?, self.of("lambda1")?];
                let values =
                    vec![("arrival_rates_per_s", rates.into()), ("generator", generator.into())];
                ("mmpp", values)
            }
            _ => return Ok(None),
        }))
    }

    fn need(&self, name: &str) -> Result<Node<'_, '_>, JmvaError> {
        let one = self.all.and_then(|all| parameter(all, name));
        one.ok_or_else(|| wrong(self.place, format!("has no parameter `{name}`")))
    }

    fn of(&self, name: &str) -> Result<f64, JmvaError> {
        self.number(self.need(name)?)
    }

    fn number(&self, of: Node<'_, '_>) -> Result<f64, JmvaError> {
        number(self.place, value(of).unwrap_or("null")).map_err(|error| error.within(of))
    }

    fn positive(&self, name: &str) -> Result<f64, JmvaError> {
        let found = self.of(name)?;
        if found > 0.0 {
            return Ok(found);
        }
        let what = format!("`{name}` is {found}, and must be above 0");
        Err(wrong(self.place, what).within(self.need(name)?))
    }

    /// The rows of a matrix: each a parameter `vector` with its entries.
    fn rows(&self, name: &str) -> Result<Vec<Vec<f64>>, JmvaError> {
        elements(self.need(name)?)
            .map(|vector| elements(vector).map(|entry| self.number(entry)).collect())
            .collect()
    }
}
