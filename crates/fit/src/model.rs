//! What every fitted model has: numbers with their errors, and where each is from.

use kendall_queueing::model::{Model, WriteError};
use kendall_stats::sample;
use kendall_units::exact_f64;

/// Confidence of all intervals.
pub const CONFIDENCE: f64 = 0.95;

/// Standard errors on either side of a normal mean that hold it so often.
pub const NORMAL: f64 = 1.96;

/// A number and its standard error.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Number {
    pub value: f64,
    pub standard_error: f64,
}

impl Number {
    /// A number without an error.
    pub fn exact(value: f64) -> Self {
        Self { value, standard_error: 0.0 }
    }

    /// So many standard errors off; kept above 0 by taking them on the logarithm.
    pub fn off_by(self, errors: f64) -> f64 {
        if self.value <= 0.0 {
            return self.value;
        }
        self.value * (self.standard_error / self.value * errors).exp()
    }
}

/// The mean of values with the standard error that their spread gives.
pub fn mean_of(values: &[f64]) -> Number {
    let variance = sample::variance(values).unwrap_or(0.0);
    let standard_error = (variance / exact_f64(values.len())).sqrt();
    Number { value: sample::mean(values), standard_error }
}

/// A model that was made from measurements: any solver takes it, and it can be changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibrated {
    pub model: Model,
    /// Where its numbers are from.
    pub parameters: Vec<Parameter>,
}

/// A number of a model, and where it is from.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Station or pool.
    pub of: String,
    /// Which number, with its unit.
    pub what: String,
    /// In SI units.
    pub value: f64,
    /// Loads of the points that it was taken from; empty for what the study states.
    pub loads: Vec<f64>,
    pub rule: String,
}

impl Calibrated {
    /// The model as a file that `kendall solve` takes, with the origin of each number as comments.
    ///
    /// # Errors
    /// What a model file cannot hold.
    pub fn to_file(&self, of: &str, assumes: &str) -> Result<String, WriteError> {
        let mut comment = format!("{of}\nAssumes: {assumes}.\n");
        for Parameter { of, what, value, loads, rule } in &self.parameters {
            let loads: Vec<String> = loads.iter().map(ToString::to_string).collect();
            let from = match loads.as_slice() {
                [] => String::new(),
                loads => format!(", at load {}", loads.join(", ")),
            };
            comment += &format!("{of}: {what} = {value:e}: {rule}{from}\n");
        }
        self.model.to_toml(&comment)
    }
}
