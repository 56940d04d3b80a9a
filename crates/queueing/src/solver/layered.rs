//! Models with pools: tokens (workers, connections) held while stations are visited.

use super::chains::{is_product_form, kind, service};
use super::{Caveat, ClassResult, PoolResult, Solution, SolveError, StationResult};
use crate::model::Model;
use crate::network::layers::{Layer, LayerNumbers, spread_solution};
use crate::network::{
    Accuracy, Kind, Load, MeasuredError, Network, NetworkError, NetworkSolution, Resource,
    bottleneck, convolution, open,
};

pub(super) fn solve(model: &Model) -> Result<Solution, SolveError> {
    super::refuse_features(model)?;
    let needs =
        |feature| SolveError::NeedsSimulation { feature, station: model.pools[0].name.clone() };
    if model.classes.len() > 1 {
        return Err(needs("a pool used by several classes"));
    }
    if model.pools.iter().any(|pool| pool.queue_capacity.is_some()) {
        return Err(needs("a pool with a limited queue"));
    }
    if model.stations.iter().any(|station| station.fork.is_some()) {
        return Err(needs("fork-join beside a pool"));
    }
    let visits = model.visits()?;
    let leaves: Vec<Resource> = model
        .stations
        .iter()
        .enumerate()
        .map(|(index, station)| Resource {
            kind: kind(station),
            demands: vec![visits[index][0] * service(station, 0)],
        })
        .collect();
    let layers = nest(model, &leaves)?;
    let names: Vec<String> = model.stations.iter().map(|s| s.name.clone()).collect();
    let failed = |source: NetworkError| SolveError::Network { names: names.clone(), source };
    let class = &model.classes[0];
    let most = if class.is_open() {
        model.pools.iter().map(|pool| pool.tokens).max().unwrap_or(1)
    } else {
        class.population()
    };
    let resources = layers
        .iter()
        .map(|layer| layer.seen_from_above(most))
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    let load = if class.is_open() {
        Load::Open { arrival_rate: class.arrival_rate_per_s() }
    } else {
        Load::Closed { population: class.population(), think_time: class.think_time_s() }
    };
    let outer = Network { classes: vec![load], resources };
    let solved =
        if class.is_open() { open(&outer) } else { convolution(&outer) }.map_err(failed)?;
    let mut found = LayerNumbers {
        resources: vec![0.0; leaves.len()],
        utilization: vec![0.0; leaves.len()],
        waiting: vec![0.0; model.pools.len()],
        in_use: vec![0.0; model.pools.len()],
    };
    spread_solution(&layers, &solved, 1.0, &mut found).map_err(failed)?;
    Ok(answer(model, &visits, &leaves, (&outer, &solved), &found))
}

/// Pools by containment: the smallest around each station first.
fn nest(model: &Model, leaves: &[Resource]) -> Result<Vec<Layer>, SolveError> {
    let mut order: Vec<usize> = (0..model.pools.len()).collect();
    order.sort_by_key(|pool| model.pools[*pool].stations.len());
    let mut top: Vec<(Vec<usize>, Layer)> = leaves
        .iter()
        .enumerate()
        .map(|(index, leaf)| (vec![index], Layer::Resource(index, leaf.clone())))
        .collect();
    for pool in order {
        let held = &model.pools[pool].stations;
        let (inside, outside): (Vec<_>, Vec<_>) =
            top.into_iter().partition(|(stations, _)| stations.iter().all(|s| held.contains(s)));
        if outside.iter().any(|(stations, _)| stations.iter().any(|s| held.contains(s))) {
            return Err(SolveError::NeedsSimulation {
                feature: "pools that overlap without one containing the other",
                station: model.pools[pool].name.clone(),
            });
        }
        let stations = inside.iter().flat_map(|(stations, _)| stations.clone()).collect();
        let layers = inside.into_iter().map(|(_, layer)| layer).collect();
        top = outside;
        top.push((stations, Layer::Pool(pool, model.pools[pool].tokens, layers)));
    }
    Ok(top.into_iter().map(|(_, layer)| layer).collect())
}

fn answer(
    model: &Model,
    visits: &[Vec<f64>],
    leaves: &[Resource],
    (outer, solved): (&Network, &NetworkSolution),
    found: &LayerNumbers,
) -> Solution {
    let x = solved.throughput[0];
    let per = |number: f64, rate: f64| if rate > 0.0 { number / rate } else { 0.0 };
    let stations = model
        .stations
        .iter()
        .enumerate()
        .map(|(index, station)| {
            let number = found.resources[index];
            let rate = x * visits[index][0];
            let response = per(number, rate);
            let leaf = &leaves[index];
            let utilization = match leaf.kind {
                Kind::LoadDependent(_) => found.utilization[index],
                _ => x * leaf.demands[0] / leaf.capacity(),
            };
            StationResult {
                name: station.name.clone(),
                throughput: vec![rate],
                utilization: vec![utilization],
                number: vec![number],
                response_time: vec![response],
                waiting_time: vec![(response - service(station, 0)).max(0.0)],
                residence_time: vec![per(number, x)],
                states: None,
                number_variance: None,
                blocked: None,
            }
        })
        .collect();
    let pools = model
        .pools
        .iter()
        .enumerate()
        .map(|(index, pool)| PoolResult {
            name: pool.name.clone(),
            number_waiting: found.waiting[index],
            waiting_time: per(found.waiting[index], x),
            in_use: found.in_use[index],
            utilization: found.in_use[index] / kendall_units::exact_f64(pool.tokens),
        })
        .collect();
    let whole =
        Network { classes: vec![Load::Open { arrival_rate: 0.0 }], resources: leaves.to_vec() };
    let solver = format!("layers: flow-equivalent pools, {}", solved.solver);
    let offered = x * outer.resources[0].demands[0] / outer.resources[0].capacity();
    Solution {
        classes: vec![ClassResult {
            name: model.classes[0].name.clone(),
            throughput: x,
            system_response: solved.system_response[0],
            number: x * solved.system_response[0],
            bottleneck: bottleneck(&whole, 0).ok(),
            throughput_bounds: None,
            ..ClassResult::default()
        }],
        stations,
        pools,
        caveats: model
            .pools
            .iter()
            .map(|pool| Caveat::FlowEquivalent { pool: pool.name.clone() })
            .chain(measured(model, visits, offered).map(Caveat::MeasuredError))
            .collect(),
        ..Solution::of(model, solver, Accuracy::Approximation)
    }
}

/// Of one pool around two stations, closed with at most one other: what was compared with Markov
/// chains, of up to five tokens and four servers a station, open up to 85 % `offered` of what the pool can do
/// (`tests/all/measured.rs`).
fn measured(model: &Model, visits: &[Vec<f64>], offered: f64) -> Option<MeasuredError> {
    let [pool] = model.pools.as_slice() else { return None };
    let like = pool.stations.len() == 2
        && model.stations.len() <= 3
        && model.stations.iter().zip(visits).all(|(station, row)| {
            is_product_form(station, row) && !matches!(kind(station), Kind::LoadDependent(_))
        });
    let open = model.classes[0].is_open();
    match (like, open, model.stations.len()) {
        (true, true, 2) if offered <= 0.85 => Some(OPEN_POOL),
        (true, false, _) => Some(CLOSED_POOL),
        _ => None,
    }
}

const CLOSED_POOL: MeasuredError = MeasuredError::new(3.5, 10.0);
/// One token around two equal stations at 85 %: M/E₂/1 that is taken for M/M/1.
const OPEN_POOL: MeasuredError = MeasuredError::new(0.0, 27.0);
