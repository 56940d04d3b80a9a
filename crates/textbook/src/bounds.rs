//! Bounds, the bottleneck and normalization constants of a network.

use kendall_queueing::network::{
    Bounds, Load, Network, arrival_bounds, asymptotic_bounds, balanced_bounds, bottleneck,
    convolution, flow_equivalent, geometric_bounds, multi_class_bounds, normalization_constants,
    proportional_bounds,
};
use kendall_queueing::solver::{Solution, product_form};

use crate::lowered::{Lowered, only_population};
use crate::{Answer, TextbookError};

/// Most combinations of populations for which the constant of several classes is taken.
const MOST_CELLS: u64 = 20_000;
/// Largest population whose normalization constants are listed.
const MOST_CONSTANTS: u64 = 2_000;

type Of = fn(&Network) -> Result<Bounds, kendall_queueing::network::NetworkError>;

/// Kinds of bounds: what answers put in front of their names, and the kind of a case that asks.
const FAMILIES: [(&str, &str, Of); 4] = [
    ("aba", "asymptotic-bounds", asymptotic_bounds),
    ("bjb", "balanced-job-bounds", balanced_bounds),
    ("gb", "geometric-bounds", geometric_bounds),
    ("pb", "proportional-bounds", proportional_bounds),
];

/// The answer of a case that asks for bounds only.
pub(crate) fn only(kind: &str, lowered: &Lowered) -> Result<Answer, TextbookError> {
    let network = product_form(&lowered.model)?;
    let mut answer = Answer::new(kind, "bound");
    if lowered.model.classes.len() > 1 {
        let bounds = match kind {
            "asymptotic-bounds" => multi_class_bounds(&network)?,
            "balanced-job-bounds" => arrival_bounds(&network)?,
            _ => {
                let what = format!(
                    "`{kind}` is for one class; for several there are `asymptotic-bounds` and \
                     `balanced-job-bounds`"
                );
                return Err(TextbookError::key("kind", what));
            }
        };
        several(&mut answer, lowered, &bounds, "");
        return Ok(answer);
    }
    let open = ["asymptotic-bounds", "balanced-job-bounds"];
    if network.has_open() && !open.contains(&kind) {
        let what = format!(
            "`{kind}` is for a closed class; for an open one there are `{}` and `{}`",
            open[0], open[1]
        );
        return Err(TextbookError::key("kind", what));
    }
    let family = FAMILIES.iter().find(|(_, name, _)| *name == kind);
    let (_, _, of) = family.unwrap_or(&FAMILIES[0]);
    let bounds = of(&network)?;
    put(&mut answer, lowered, &bounds, "");
    neck(&mut answer, lowered, &network);
    Ok(answer)
}

/// Adds bounds, bottleneck and constants to a solved network.
pub(crate) fn add(answer: &mut Answer, lowered: &Lowered, solution: &Solution) {
    let Ok(network) = product_form(&lowered.model) else { return };
    if lowered.model.classes.len() > 1 {
        if let Ok(all) = multi_class_bounds(&network) {
            several(answer, lowered, &all, "aba_");
        }
        if let Ok(all) = arrival_bounds(&network) {
            several(answer, lowered, &all, "bjb_");
        }
        let cells = network.populations().iter().fold(1_u64, |all, n| all.saturating_mul(n + 1));
        if cells <= MOST_CELLS
            && let Ok(solved) = convolution(&network)
        {
            answer.maybe("ln_G", solved.ln_g, "1");
        }
        return;
    }
    for (name, _, of) in FAMILIES {
        if let Ok(bounds) = of(&network) {
            put(answer, lowered, &bounds, &format!("{name}_"));
        }
    }
    neck(answer, lowered, &network);
    constants(answer, lowered, &network, solution);
}

fn put(answer: &mut Answer, lowered: &Lowered, bounds: &Bounds, prefix: &str) {
    let unit = lowered.unit;
    let (low, high) = bounds.throughput;
    answer.number(&format!("{prefix}throughput_lower"), unit.rate(low), &unit.per());
    answer.number(&format!("{prefix}throughput_upper"), unit.rate(high), &unit.per());
    let (low, high) = bounds.system_response;
    answer.number(&format!("{prefix}response_lower"), unit.time(low), unit.name);
    if high.is_finite() {
        answer.number(&format!("{prefix}response_upper"), unit.time(high), unit.name);
    }
}

fn several(answer: &mut Answer, lowered: &Lowered, all: &[Bounds], prefix: &str) {
    let unit = lowered.unit;
    let list = |f: fn(&Bounds) -> f64| all.iter().map(|b| unit.rate(f(b))).collect::<Vec<f64>>();
    let per = unit.per();
    answer.list(&format!("{prefix}throughput_lower_by_class"), list(|b| b.throughput.0), &per);
    answer.list(&format!("{prefix}throughput_upper_by_class"), list(|b| b.throughput.1), &per);
    let times = |f: fn(&Bounds) -> f64| all.iter().map(|b| unit.time(f(b))).collect::<Vec<f64>>();
    let (low, high) = (times(|b| b.system_response.0), times(|b| b.system_response.1));
    answer.list(&format!("{prefix}response_lower_by_class"), low, unit.name);
    if high.iter().all(|time| time.is_finite()) {
        answer.list(&format!("{prefix}response_upper_by_class"), high, unit.name);
    }
}

fn neck(answer: &mut Answer, lowered: &Lowered, network: &Network) {
    let Ok(neck) = bottleneck(network, 0) else { return };
    let unit = lowered.unit;
    answer.number("bottleneck", kendall_units::exact_f64(neck.resource), "index");
    answer.number("max_demand", unit.time(neck.demand), unit.name);
    answer.number("total_demand", unit.time(neck.total_demand), unit.name);
    answer.number("max_throughput", unit.rate(neck.most_throughput), &unit.per());
    answer.maybe("n_star", neck.saturation_population, "jobs");
    if let [Load::Open { .. }] = network.classes[..] {
        answer.number("max_arrival_rate", unit.rate(neck.most_throughput), &unit.per());
    }
}

/// G, marginal probabilities, and the flow-equivalent rates of the queues.
fn constants(answer: &mut Answer, lowered: &Lowered, network: &Network, solution: &Solution) {
    let population = only_population(&lowered.model).unwrap_or(0);
    if population == 0 || population > MOST_CONSTANTS {
        return;
    }
    if let Ok(g) = normalization_constants(network) {
        let list: Vec<f64> = g.iter().skip(1).map(|log| log.exp()).collect();
        if list.iter().all(|value| value.is_finite()) {
            if list.len() <= 20 {
                let name: Vec<String> = (1..=list.len()).map(|n| n.to_string()).collect();
                answer.list(&format!("G_{}", name.join("_")), list.clone(), "s^n");
            }
            answer.list("G", list, "s^n");
        }
        answer.list("ln_G", g, "1");
        if let Ok(part) = flow_equivalent(&network.resources, population) {
            answer.list("flow_equivalent_rates", part.rates, "1/s");
        }
    }
    let marginals = match convolution(network) {
        Ok(full) => full.marginals,
        Err(_) => solution.stations.iter().map(|station| station.states.clone()).collect(),
    };
    let known: Vec<Vec<f64>> = marginals.into_iter().map(Option::unwrap_or_default).collect();
    if known.iter().any(|list| !list.is_empty()) {
        answer.table("p_n", known, "1");
    }
}
