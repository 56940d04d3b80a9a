//! The model as a graph: tiers by their distance from the clients, what a request costs each, how busy
//! it was at the heaviest load that was measured, and the links between them.

use std::collections::BTreeMap;

use kendall_fit::study::{RunFacts, StudyModel};
use kendall_protocols::topology::{End, Part};
use kendall_units::exact_f64;

use crate::document::Drawing;
use crate::number;
use crate::plot::svg::escaped;

/// Size of a box, and of the space around it, in units of the drawing.
const BOX: (f64, f64) = (190.0, 106.0);
const GAP: (f64, f64) = (110.0, 26.0);
const MARGIN: f64 = 12.0;

struct Place {
    x: f64,
    y: f64,
    lines: Vec<String>,
    /// A station that no counter shows.
    inferred: Option<String>,
}

pub(super) fn of(fitted: &StudyModel, busiest: &RunFacts) -> Drawing {
    let places = places(fitted, busiest);
    let width = places.values().map(|p| p.x + BOX.0).fold(0.0, f64::max) + MARGIN;
    let height = places.values().map(|p| p.y + BOX.1).fold(0.0, f64::max) + MARGIN;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"The model as a graph\" \
         style=\"max-width:{width:.0}px;width:100%\" xmlns=\"http://www.w3.org/2000/svg\" \
         font-family=\"sans-serif\" font-size=\"12\">"
    );
    for edge in &busiest.graph.edges {
        let from = match &edge.from {
            End::Clients => "generator",
            End::Tier(tier) => tier.as_str(),
        };
        let (Some(from), Some(to)) = (places.get(from), places.get(edge.to.as_str())) else {
            continue;
        };
        let link = edge.link.as_ref().map(|link| {
            let part =
                Part { role: kendall_protocols::topology::Role::Link, name: link.name.clone() };
            let cpu = busiest.uses.get(&part).map_or(0.0, |used| used.cpu_s);
            let delay = number::time(exact_f64(link.delay_ns) / 1e9);
            [format!("{delay} each way"), format!("{} of CPU", number::time(cpu))]
        });
        svg.push_str(&arrow(from, to, link));
    }
    for place in places.values() {
        svg.push_str(&boxed(place));
    }
    svg.push_str("</svg>");
    let description = "Processes of the model from the clients inwards. In each: processor time of a \
                       request, how busy it was at the heaviest load measured, and its pools. On the \
                       arrows: delay and processor time of the emulated network. Dashed: a station that no counter shows, \
                       inferred from the curve of throughput."
        .to_owned();
    Drawing { svg, description }
}

fn places(fitted: &StudyModel, busiest: &RunFacts) -> BTreeMap<String, Place> {
    let mut columns: Vec<Vec<(String, Part)>> =
        vec![vec![("generator".to_owned(), Part::generator())]];
    for node in &busiest.graph.tiers {
        let depth = busiest.graph.way_to(&node.tier).len();
        if depth == 0 {
            continue;
        }
        columns.resize_with(columns.len().max(depth + 1), Vec::new);
        columns[depth].push((node.tier.to_string(), Part::tier(&node.tier)));
    }
    let pools = |name: &str| {
        let node = busiest.graph.tiers.iter().find(|node| node.tier == name)?;
        let pools = node.pools.iter().map(|p| format!("{} {}", p.servers, p.of.as_str()));
        let pools: Vec<String> = pools.collect();
        let times =
            if node.instances > 1 { format!("{} × ", node.instances) } else { String::new() };
        (!pools.is_empty() || node.instances > 1).then(|| format!("{times}{}", pools.join(", ")))
    };
    let waits = |name: &str| fitted.own_wait_s(name).filter(|wait| *wait > 0.0);
    let mut places = BTreeMap::new();
    for (column, members) in columns.iter().enumerate() {
        for (row, (name, part)) in members.iter().enumerate() {
            let mut lines = vec![name.clone()];
            lines.extend(busiest.uses.get(part).into_iter().flat_map(|used| {
                let cores = number::significant(used.cpu_s * busiest.throughput_per_s, 2);
                [
                    format!("{} of CPU a request", number::time(used.cpu_s)),
                    format!("{cores} of {} cores busy", used.host_cores),
                ]
            }));
            lines.extend(pools(name));
            lines.extend(waits(name).map(|wait| format!("waits {} by itself", number::time(wait))));
            let at = |index: usize, size: f64, gap: f64| MARGIN + exact_f64(index) * (size + gap);
            let (x, y) = (at(column, BOX.0, GAP.0), at(row, BOX.1, GAP.1));
            let inferred =
                fitted.inferred(name).filter(|hidden| hidden.is.is_empty()).map(|hidden| {
                    format!(
                        "inferred: {} at a time, {}",
                        hidden.servers,
                        number::time(hidden.time_s)
                    )
                });
            places.insert(name.clone(), Place { x, y, lines, inferred });
        }
    }
    places
}

fn boxed(place: &Place) -> String {
    let mut svg = format!(
        "<rect x=\"{:.0}\" y=\"{:.0}\" width=\"{:.0}\" height=\"{:.0}\" rx=\"6\" fill=\"none\" \
         stroke=\"currentColor\"/>",
        place.x, place.y, BOX.0, BOX.1
    );
    for (line, text) in place.lines.iter().enumerate() {
        let weight = if line == 0 { " font-weight=\"bold\"" } else { "" };
        svg.push_str(&format!(
            "<text x=\"{:.0}\" y=\"{:.0}\" fill=\"currentColor\"{weight}>{}</text>",
            place.x + 8.0,
            place.y + 17.0 + 16.0 * exact_f64(line),
            escaped(text)
        ));
    }
    if let Some(text) = &place.inferred {
        svg.push_str(&format!(
            "<rect x=\"{:.0}\" y=\"{:.0}\" width=\"{:.0}\" height=\"20\" rx=\"4\" fill=\"none\" \
             stroke=\"currentColor\" stroke-dasharray=\"4 3\"/><text x=\"{:.0}\" y=\"{:.0}\" \
             fill=\"currentColor\">{}</text>",
            place.x + 5.0,
            place.y + BOX.1 - 24.0,
            BOX.0 - 10.0,
            place.x + 10.0,
            place.y + BOX.1 - 10.0,
            escaped(text)
        ));
    }
    svg
}

fn arrow(from: &Place, to: &Place, link: Option<[String; 2]>) -> String {
    let (x1, y1) = (from.x + BOX.0, from.y + BOX.1 / 2.0);
    let (x2, y2) = (to.x, to.y + BOX.1 / 2.0);
    let mut svg = format!(
        "<line x1=\"{x1:.0}\" y1=\"{y1:.0}\" x2=\"{x2:.0}\" y2=\"{y2:.0}\" stroke=\"currentColor\"/>\
         <circle cx=\"{x2:.0}\" cy=\"{y2:.0}\" r=\"3\" fill=\"currentColor\"/>"
    );
    for (line, text) in link.into_iter().flatten().enumerate() {
        svg.push_str(&format!(
            "<text x=\"{:.0}\" y=\"{:.0}\" fill=\"currentColor\" font-size=\"10\" \
             text-anchor=\"middle\">{}</text>",
            f64::midpoint(x1, x2),
            f64::midpoint(y1, y2) - 6.0 + 18.0 * exact_f64(line),
            escaped(&text)
        ));
    }
    svg
}
