//! A model made from a curve: a [`Model`] that every solver takes, and where each number in it is
//! from. It can be written to a file, changed and solved again.

use kendall_queueing::model::{Class, Model, ModelError};
use kendall_queueing::solver::{Solution, Solver, solve};
use kendall_units::whole_u64;

use crate::measured::OperatingPoint;
use crate::model::{Calibrated, Parameter};
use crate::score::Device;

/// Makes the same model at any load.
pub(super) trait Builder {
    /// The model with these customers.
    fn model(&self, name: &str, class: Class) -> Result<Model, ModelError>;

    /// Its devices as a solution has them, in the order in which they are shown.
    fn devices(&self, solution: &Solution) -> Vec<Device>;

    /// Where its numbers are from.
    fn parameters(&self) -> Vec<Parameter>;
}

/// A model at one load.
pub(super) struct Solved {
    pub(super) throughput_per_s: f64,
    pub(super) response_time_s: f64,
    pub(super) devices: Vec<Device>,
}

/// The customers of a closed loop at one of its points.
pub(super) fn customers(point: &OperatingPoint) -> Class {
    let population = whole_u64(point.population.unwrap_or(0.0).round());
    Class::closed("customers", population, point.think_time_s)
}

/// Solves a model; an error says why it has no answer.
pub(super) fn solved(builder: &dyn Builder, name: &str, class: Class) -> Result<Solved, String> {
    let model = builder.model(name, class).map_err(|error| error.to_string())?;
    let solution = solve(&model, Solver::Auto).map_err(|error| error.to_string())?;
    Ok(Solved {
        throughput_per_s: solution.classes[0].throughput,
        response_time_s: solution.classes[0].system_response,
        devices: builder.devices(&solution),
    })
}

/// The model as it is handed on, at one load.
pub(super) fn calibrated(builder: &dyn Builder, name: &str, class: Class) -> Option<Calibrated> {
    let model = builder.model(name, class).ok()?;
    Some(Calibrated { model, parameters: builder.parameters() })
}

pub(super) fn parameter(of: &str, what: &str, value: f64, loads: &[f64], rule: &str) -> Parameter {
    Parameter {
        of: of.to_owned(),
        what: what.to_owned(),
        value,
        loads: loads.to_vec(),
        rule: rule.to_owned(),
    }
}
