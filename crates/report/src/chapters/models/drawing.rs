//! A model of measured runs as a drawing: visits and service times of its centers in the order of a
//! request's way; clients and their think time where the network is closed.

use kendall_fit::score::{Comparison, Device};

use crate::document::Drawing;
use crate::number;
use crate::plot::network::{Center, Network, Way};

/// The drawing of a model that has devices.
pub(super) fn of(comparison: &Comparison) -> Option<Drawing> {
    if comparison.devices.is_empty() {
        return None;
    }
    let class = comparison.calibrated.as_ref().and_then(|of| of.model.classes.first());
    let closed = class.filter(|class| !class.is_open());
    let source = match (class, closed) {
        (_, Some(class)) => {
            let think = class.think_time_s();
            let think =
                if think > 0.0 { format!("think {}", number::time(think)) } else { String::new() };
            vec!["clients".to_owned(), format!("N = {}", class.population()), think]
        }
        (Some(class), None) => {
            vec!["arrivals".to_owned(), format!("λ = {}", number::rate(class.arrival_rate_per_s()))]
        }
        (None, None) => vec!["arrivals".to_owned(), "λ as measured".to_owned()],
    };
    let network = Network {
        description: in_words(comparison),
        source,
        closed: closed.is_some(),
        centers: comparison.devices.iter().map(center).collect(),
        ways: Way::in_order(comparison.devices.len()),
    };
    Some(network.draw().0)
}

fn in_words(comparison: &Comparison) -> String {
    let centers: Vec<&str> = comparison.devices.iter().map(|d| d.name.as_str()).collect();
    format!(
        "{}: {}. Under each center its kind, visits a request, service time, and the utilization \
         that the model gives at the highest load that it has an answer for.",
        comparison.model,
        centers.join(", then ")
    )
}

/// What kind of queue a center is, in Kendall's notation.
pub(super) fn kind(device: &Device) -> String {
    match device.servers {
        None => "delay (M/M/∞)".to_owned(),
        Some(servers) => format!("M/M/{}", number::plain(servers)),
    }
}

fn center(device: &Device) -> Center {
    let mut lines = vec![
        device.name.clone(),
        kind(device),
        format!(
            "V = {}, S = {}",
            number::significant(device.visits, 3),
            number::time(device.service_time_s)
        ),
    ];
    lines.extend(device.utilization.map(|busy| format!("U = {}", number::percent(busy))));
    Center { lines, servers: device.servers, utilization: device.utilization }
}

#[cfg(test)]
mod tests {
    use kendall_fit::score::Variable;

    use super::*;

    fn comparison(devices: Vec<Device>) -> Comparison {
        Comparison {
            model: "network <b>".to_owned(),
            family: "network".to_owned(),
            assumes: String::new(),
            calibrated_on: String::new(),
            variable: Variable::Throughput,
            points: Vec::new(),
            devices,
            bottleneck: None,
            caveats: Vec::new(),
            calibrated: None,
            solutions: Vec::new(),
        }
    }

    fn device(servers: Option<f64>) -> Device {
        Device {
            name: "workers of \"proxies\"".to_owned(),
            stands_for: None,
            servers,
            visits: 1.0,
            service_time_s: 0.002,
            utilization: servers.map(|_| 0.5),
            number_at_center: None,
            measured_utilization: None,
        }
    }

    #[test]
    fn each_center_is_drawn_and_texts_are_escaped() {
        let devices = vec![device(None), device(Some(1.0)), device(Some(2.0)), device(Some(64.0))];
        let drawing = of(&comparison(devices)).expect("has devices");
        assert_eq!(drawing.svg.matches("M/M/").count(), 4);
        assert!(!drawing.svg.contains("<b>") && drawing.svg.contains("&quot;proxies"));
        assert!(!drawing.svg.contains("NaN"));
        assert!(of(&comparison(Vec::new())).is_none());
    }
}
