//! A model made from a curve: a [`Model`] that every solver takes, and where each number in it is
//! from. It can be written to a file, changed and solved again.

use kendall_queueing::model::{Class, Model, ModelError, Station};
use kendall_queueing::solver::{Solution, Solver, solve};
use kendall_units::whole_u64;

use crate::hidden::HiddenStation;
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

/// A station that no counter shows and a delay, with the clients of a point: what a request takes at a light load is spent
/// in one of the two.
///
/// # Errors
/// What no model can have.
pub fn inferred(
    station: &HiddenStation,
    light: &OperatingPoint,
    at: &OperatingPoint,
) -> Result<Calibrated, ModelError> {
    const POOL: &str = "inferred pool";
    const BESIDE: &str = "beside it";
    let size = station.size();
    let capacity_per_s = station.capacity_per_s.center;
    let hold_s = f64::from(size) / capacity_per_s;
    let beside_s = (light.client.response_time_s - hold_s).max(0.0);
    let mut stations = vec![Station::queue(POOL, u64::from(size)).with_service_time(0, hold_s)];
    if beside_s > 0.0 {
        stations.push(Station::delay(BESIDE).with_service_time(0, beside_s));
    }
    let sizes: Vec<String> = station.sizes.iter().map(|(size, _)| size.to_string()).collect();
    let sizes = format!("the likeliest of those that the curve leaves: {}", sizes.join(", "));
    let carried = format!("servers over {capacity_per_s:.4}/s, the most that the curve carries");
    let light = [light.load()];
    let clients = at.population.unwrap_or(0.0);
    Ok(Calibrated {
        model: Model::new("a pool that no counter shows", vec![customers(at)], stations)?,
        parameters: vec![
            parameter(POOL, "servers", f64::from(size), &[], &sizes),
            parameter(POOL, "service_time_s", hold_s, &[], &carried),
            parameter(BESIDE, "service_time_s", beside_s, &light, "R less the time in the pool"),
            parameter("customers", "population", clients, &[at.load()], "the clients"),
        ],
    })
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

#[cfg(test)]
mod tests {
    use kendall_stats::estimate::Estimate;

    use super::*;
    use crate::measured::View;

    #[test]
    fn an_inferred_pool_is_a_model_that_solves() {
        let station = HiddenStation {
            sizes: vec![(2, 0.1), (4, 0.9)],
            capacity_per_s: Estimate::exact(400.0),
            hold_s: Estimate::exact(0.01),
            worst_error: 0.01,
        };
        let point = |clients: f64, response_time_s: f64| OperatingPoint {
            population: Some(clients),
            client: View { throughput_per_s: clients / response_time_s, response_time_s },
            ..OperatingPoint::default()
        };
        let response = |at: &OperatingPoint| {
            let model = inferred(&station, &point(1.0, 0.014), at).unwrap().model;
            solve(&model, Solver::Auto).unwrap().classes[0].system_response
        };
        assert!((response(&point(1.0, 0.014)) - 0.014).abs() < 1e-12);
        // N/X, where nearly all of 400/s is carried.
        assert!((response(&point(64.0, 0.16)) - 0.16).abs() < 1e-3);
    }
}
