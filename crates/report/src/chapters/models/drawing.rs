//! A model as the field draws it: a queue and servers for each center, in the order of a request's way,
//! with visits and service times; clients and their think time where the network is closed.

use kendall_fit::score::{Comparison, Device};
use kendall_units::exact_f64;

use crate::document::Drawing;
use crate::number;
use crate::plot::svg::escaped;

/// Width of a center with its arrow, and height of the drawing.
const STEP: f64 = 176.0;
const HEIGHT: f64 = 172.0;
const MARGIN: f64 = 16.0;
/// Way to the first center, and width of each.
const LEAD: f64 = 34.0;
const CENTER: f64 = 108.0;
const LEVEL: f64 = 62.0;
/// Servers that are drawn one by one; of more, two with dots between them.
const MOST_SERVERS: f64 = 3.0;

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
    let columns = exact_f64(comparison.devices.len()) + 1.0;
    let width = 2.0 * MARGIN + STEP * columns + if closed.is_some() { 0.0 } else { 40.0 };
    let mut svg = format!(
        "<svg viewBox=\"0 0 {width:.0} {HEIGHT:.0}\" width=\"{width:.0}\" role=\"img\" \
         aria-label=\"{}\" xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" \
         font-size=\"12\" fill=\"none\" stroke=\"currentColor\">",
        escaped(&in_words(comparison))
    );
    let from = MARGIN + 60.0;
    if closed.is_some() {
        svg += &format!(
            "<rect x=\"{MARGIN}\" y=\"{:.0}\" width=\"76\" height=\"40\" rx=\"20\"/>",
            LEVEL - 20.0
        );
    }
    svg += &labels(if closed.is_some() { MARGIN + 38.0 } else { MARGIN + 34.0 }, &source);
    let mut at = if closed.is_some() { from + 16.0 } else { from };
    let mut end = at;
    for device in &comparison.devices {
        svg += &arrow(end, at + LEAD);
        svg += &center(at + LEAD, device);
        end = at + LEAD + CENTER;
        at += STEP;
    }
    if closed.is_some() {
        // Back to the clients, above the centers.
        svg += &format!(
            "<path d=\"M{end:.0} {LEVEL}h18V14H{:.0}V{:.0}\"/><path d=\"M{:.0} {:.0}l4 -8h-8z\" \
             fill=\"currentColor\"/>",
            MARGIN + 38.0,
            LEVEL - 20.0,
            MARGIN + 38.0,
            LEVEL - 20.0
        );
    } else {
        svg += &arrow(end, end + 40.0);
    }
    svg.push_str("</svg>");
    Some(Drawing { svg, description: in_words(comparison) })
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

/// A delay is a circle; a center with servers is a queue that ends in them.
fn center(x: f64, device: &Device) -> String {
    let mut svg = String::new();
    let middle = x + 54.0;
    match device.servers {
        None => {
            svg += &format!(
                "<circle cx=\"{middle:.0}\" cy=\"{LEVEL}\" r=\"24\"/><path d=\"M{:.0} {LEVEL}h{:.0}M{:.0} {LEVEL}h{:.0}\"/>",
                x,
                30.0,
                middle + 24.0,
                30.0
            )
        }
        Some(servers) => {
            svg += &format!("<path d=\"M{x:.0} {:.0}h58v32h-58\"/>", LEVEL - 16.0);
            for slot in 1..=4_u32 {
                let at = x + 58.0 - 11.0 * f64::from(slot);
                svg += &format!("<path d=\"M{at:.0} {:.0}v32\"/>", LEVEL - 16.0);
            }
            svg += &drawn_servers(x + 80.0, servers);
            let out = x + 82.0 + if servers <= 1.0 { 20.0 } else { 12.0 };
            svg += &format!("<path d=\"M{out:.0} {LEVEL}H{:.0}\"/>", x + CENTER);
        }
    }
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
    svg + &labels(middle, &lines)
}

fn drawn_servers(x: f64, servers: f64) -> String {
    let (rows, radius): (&[f64], f64) = match servers {
        one if one <= 1.0 => (&[0.0], 20.0),
        two if two <= 2.0 => (&[-13.0, 13.0], 11.0),
        three if three <= MOST_SERVERS => (&[-20.0, 0.0, 20.0], 9.0),
        _ => (&[-20.0, 20.0], 10.0),
    };
    let mut svg = String::new();
    for row in rows {
        svg += &format!("<circle cx=\"{x:.0}\" cy=\"{:.0}\" r=\"{radius:.0}\"/>", LEVEL + row);
    }
    if servers > MOST_SERVERS {
        svg += &format!("<path d=\"M{x:.0} {:.0}v18\" stroke-dasharray=\"2 4\"/>", LEVEL - 9.0);
    }
    svg
}

fn arrow(from: f64, to: f64) -> String {
    format!(
        "<path d=\"M{from:.0} {LEVEL}H{to:.0}\"/><path d=\"M{to:.0} {LEVEL}l-8 -4v8z\" \
         fill=\"currentColor\"/>"
    )
}

fn labels(x: f64, lines: &[String]) -> String {
    let mut svg = String::new();
    for (row, text) in lines.iter().enumerate() {
        let bold = if row == 0 { " font-weight=\"bold\"" } else { "" };
        svg += &format!(
            "<text x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"middle\" stroke=\"none\" \
             fill=\"currentColor\"{bold}>{}</text>",
            LEVEL + 46.0 + 16.0 * exact_f64(row),
            escaped(&shortened(text))
        );
    }
    svg
}

/// What fits under a center.
fn shortened(text: &str) -> String {
    const MOST: usize = 26;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST - 1).chain(['…']).collect()
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
