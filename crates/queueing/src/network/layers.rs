//! Flow-equivalent aggregation, and software resources (workers, connections) as layers.

use kendall_units::exact_f64;

use super::{
    Kind, Load, MOST_STEPS, Network, NetworkError, NetworkSolution, Resource, convolution,
    normalization_constants,
};

/// Probability below which a number inside a pool is not worth a solution of its own.
const LEAST_WEIGHT: f64 = 1e-13;

/// A part of a network seen from outside: how fast it works with n customers in it.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowEquivalent {
    /// X(1), X(2), … of the part by itself, in 1/s.
    pub rates: Vec<f64>,
}

/// The flow-equivalent server of a part of a network of one class: its throughput when its way out
/// is connected to its way in, for 1 to `most` customers. Exact for product-form networks.
///
/// # Errors
/// As [`convolution()`].
///
/// # Source
/// Chandy, Herzog, Woo 1975; [LZGS84 §8.3].
pub fn flow_equivalent(part: &[Resource], most: u64) -> Result<FlowEquivalent, NetworkError> {
    let network = Network {
        classes: vec![Load::Closed { population: most.max(1), think_time: 0.0 }],
        resources: part.to_vec(),
    };
    let g = normalization_constants(&network)?;
    Ok(FlowEquivalent { rates: g.windows(2).map(|pair| (pair[0] - pair[1]).exp()).collect() })
}

impl FlowEquivalent {
    /// As a resource of an outer network, for requests that go through the part once.
    #[must_use]
    pub fn resource(&self) -> Resource {
        let first = self.rates[0];
        Resource {
            kind: Kind::LoadDependent(self.rates.iter().map(|rate| rate / first).collect()),
            demands: vec![1.0 / first],
        }
    }
}

/// A pool of `tokens` that are held while the `held` resources are visited, seen from outside: at
/// most as many customers are inside, the others wait.
///
/// # Errors
/// As [`convolution()`].
///
/// # Source
/// Simultaneous resource possession by a flow-equivalent server with limited population,
/// [LZGS84 §9.3]: what the method of layers (Rolia and Sevcik 1995 \[RS95\]) iterates for.
pub fn pool_rates(
    held: &[Resource],
    tokens: u64,
    population: u64,
) -> Result<FlowEquivalent, NetworkError> {
    flow_equivalent(held, tokens.min(population).max(1))
}

/// A network whose parts may be pools of pools.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Layer {
    /// A resource, by its index in the answer.
    Resource(usize, Resource),
    /// Tokens held while the inner layers are visited, by its index among the pools.
    Pool(usize, u64, Vec<Layer>),
}

/// What is inside, waiting, and how busy the tokens are.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct LayerNumbers {
    /// Mean number at each resource.
    pub(crate) resources: Vec<f64>,
    /// Utilization of each resource.
    pub(crate) utilization: Vec<f64>,
    /// Mean number that waits for a token of each pool.
    pub(crate) waiting: Vec<f64>,
    /// Mean number of tokens in use.
    pub(crate) in_use: Vec<f64>,
}

impl Layer {
    /// As a resource for the layer above, with up to `most` customers.
    pub(crate) fn seen_from_above(&self, most: u64) -> Result<Resource, NetworkError> {
        match self {
            Self::Resource(_, resource) => Ok(resource.clone()),
            Self::Pool(_, tokens, inner) => {
                let inside = most.min(*tokens).max(1);
                let parts = inner
                    .iter()
                    .map(|layer| layer.seen_from_above(inside))
                    .collect::<Result<Vec<_>, _>>()?;
                Ok(pool_rates(&parts, *tokens, most)?.resource())
            }
        }
    }

    /// Adds to `found` what is inside when the probabilities of n customers here are `states`.
    fn spread(&self, states: &[f64], found: &mut LayerNumbers) -> Result<(), NetworkError> {
        match self {
            Self::Resource(index, _) => {
                let mean: f64 = states.iter().zip(0_u64..).map(|(p, n)| p * exact_f64(n)).sum();
                found.resources[*index] += mean;
                found.utilization[*index] += states[1..].iter().rev().sum::<f64>();
                Ok(())
            }
            Self::Pool(index, tokens, inner) => {
                let limit = usize::try_from(*tokens).unwrap_or(usize::MAX);
                let mut inside = vec![0.0; states.len().min(limit.saturating_add(1))];
                for (n, p) in states.iter().enumerate() {
                    inside[n.min(limit)] += p;
                    found.waiting[*index] += p * exact_f64(n.saturating_sub(limit));
                    found.in_use[*index] += p * exact_f64(n.min(limit));
                }
                spread_inside(inner, &inside, found)
            }
        }
    }
}

/// Distributes the customers of a closed part: for each number inside, by its own solution.
fn spread_inside(
    layers: &[Layer],
    inside: &[f64],
    found: &mut LayerNumbers,
) -> Result<(), NetworkError> {
    let most = u64::try_from(inside.len() - 1).unwrap_or(u64::MAX);
    // Every number inside is a network of its own: n² for each layer that depends on it.
    let sums = |p: &(usize, &f64)| exact_f64(p.0).powi(2);
    let counted = inside.iter().enumerate().filter(|(_, p)| **p >= LEAST_WEIGHT);
    let steps = 1.5 * exact_f64(layers.len()) * counted.map(|p| sums(&p)).sum::<f64>();
    if steps > MOST_STEPS {
        return Err(NetworkError::TooLarge { solver: "layers", steps, limit: MOST_STEPS });
    }
    let resources =
        layers.iter().map(|layer| layer.seen_from_above(most)).collect::<Result<Vec<_>, _>>()?;
    for (n, p) in inside.iter().enumerate().skip(1) {
        if *p < LEAST_WEIGHT {
            continue;
        }
        let population = u64::try_from(n).unwrap_or(u64::MAX);
        let network = Network {
            classes: vec![Load::Closed { population, think_time: 0.0 }],
            resources: resources.clone(),
        };
        let solution = convolution(&network)?;
        spread_solution(layers, &solution, *p, found)?;
    }
    Ok(())
}

/// Adds a solved network of layers to `found`, weighted.
pub(crate) fn spread_solution(
    layers: &[Layer],
    solution: &NetworkSolution,
    weight: f64,
    found: &mut LayerNumbers,
) -> Result<(), NetworkError> {
    for (index, layer) in layers.iter().enumerate() {
        match (layer, &solution.marginals[index]) {
            (Layer::Resource(at, _), _) => {
                found.resources[*at] += weight * solution.total_number(index);
                found.utilization[*at] += weight * solution.total_utilization(index);
            }
            (Layer::Pool(..), Some(states)) => {
                let weighted: Vec<f64> = states.iter().map(|p| p * weight).collect();
                layer.spread(&weighted, found)?;
            }
            (Layer::Pool(..), None) => {
                return Err(NetworkError::Unsupported {
                    solver: "layers",
                    what: "a pool whose population is not known",
                    instead: "a simulation",
                });
            }
        }
    }
    Ok(())
}
