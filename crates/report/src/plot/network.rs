//! A queueing network as the field draws it: a queue and servers for each center, filled as far as they
//! are busy, in columns by their distance from where requests come from.

use kendall_units::exact_f64;

use crate::document::Drawing;

use super::svg::{escaped, shortened};

/// Width of a center with its arrow, and of a center alone.
const STEP: f64 = 176.0;
const CENTER: f64 = 108.0;
const MARGIN: f64 = 30.0;
/// Width of what stands for the clients, and way to the first center.
const SOURCE: f64 = 76.0;
const LEAD: f64 = 50.0;
/// From the top of a row to the middle of its centers, and on to its first text.
const LEVEL: f64 = 62.0;
const TEXTS: f64 = 46.0;
const LINE: f64 = 16.0;
/// Servers that are drawn one by one; of more, two with dots between them.
const MOST_SERVERS: f64 = 3.0;
/// Characters that fit under a center.
const UNDER: usize = 26;

#[derive(Debug, Clone)]
pub struct Network {
    /// What it shows, in words.
    pub description: String,
    /// Where requests come from: its name, and more below it.
    pub source: Vec<String>,
    /// Whether requests return to where they came from.
    pub closed: bool,
    pub centers: Vec<Center>,
    pub ways: Vec<Way>,
}

/// A center, and what stands below it.
#[derive(Debug, Clone)]
pub struct Center {
    /// The first line is its name.
    pub lines: Vec<String>,
    /// `None` for a delay, which has no queue.
    pub servers: Option<f64>,
    /// Busy share of a server.
    pub utilization: Option<f64>,
}

/// From one center to the next; `None` is outside.
#[derive(Debug, Clone)]
pub struct Way {
    pub from: Option<usize>,
    pub to: Option<usize>,
    pub label: String,
}

impl Way {
    /// One way after the other through so many centers.
    pub fn in_order(count: usize) -> Vec<Self> {
        let ends: Vec<Option<usize>> =
            std::iter::once(None).chain((0..count).map(Some)).chain([None]).collect();
        let way =
            |pair: &[Option<usize>]| Self { from: pair[0], to: pair[1], label: String::new() };
        ends.windows(2).map(way).collect()
    }
}

/// A network with the place of each of its centers.
struct Placed<'a> {
    network: &'a Network,
    /// Left end of a center and level of its middle.
    places: Vec<(f64, f64)>,
    /// Column of each center, from 1.
    columns: Vec<u32>,
    width: f64,
    height: f64,
    level: f64,
}

impl Network {
    /// The drawing, and its width and height.
    pub fn draw(&self) -> (Drawing, (f64, f64)) {
        let placed = Placed::new(self);
        let (width, height) = (placed.width, placed.height);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" role=\"img\" \
             aria-label=\"{}\" xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" \
             font-size=\"12\" fill=\"none\" stroke=\"currentColor\">",
            escaped(&self.description)
        );
        if self.closed {
            put!(
                &mut svg,
                "<rect x=\"{MARGIN}\" y=\"{:.0}\" width=\"{SOURCE}\" height=\"40\" rx=\"20\"/>",
                placed.level - 20.0
            );
        }
        let middle = MARGIN + SOURCE / 2.0;
        labels(&mut svg, (middle, placed.level), &self.source);
        for (index, (center, place)) in self.centers.iter().zip(&placed.places).enumerate() {
            let ends = self.ways.iter().all(|way| way.from != Some(index));
            draw_center(&mut svg, *place, center, ends);
        }
        for (index, way) in self.ways.iter().enumerate() {
            placed.draw_way(&mut svg, way, index);
        }
        svg.push_str("</svg>");
        (Drawing { svg, description: self.description.clone() }, (width, height))
    }

    /// The number of steps from outside to each center, from 1; centers without visits come last.
    fn columns(&self) -> Vec<u32> {
        let mut columns = vec![0; self.centers.len()];
        let mut front: Vec<Option<usize>> = vec![None];
        let mut column = 0;
        while !front.is_empty() {
            column += 1;
            let mut next = Vec::new();
            for way in self.ways.iter().filter(|way| front.contains(&way.from)) {
                if let Some(to) = way.to.filter(|to| columns.get(*to) == Some(&0)) {
                    columns[to] = column;
                    next.push(Some(to));
                }
            }
            front = next;
        }
        columns.iter().map(|at| if *at == 0 { column.max(1) } else { *at }).collect()
    }
}

impl<'a> Placed<'a> {
    fn new(network: &'a Network) -> Self {
        let columns = network.columns();
        let last = columns.iter().copied().max().unwrap_or(1);
        let in_column = |column: u32| columns.iter().filter(|at| **at == column).count();
        let rows = exact_f64((1..=last).map(in_column).max().unwrap_or(1).max(1));
        let lines = network.centers.iter().map(|center| center.lines.len()).max().unwrap_or(0);
        let lines = exact_f64(lines.max(network.source.len()));
        let row = LEVEL + TEXTS + LINE * lines;
        let mut filled = vec![0_u32; last as usize + 1];
        let places = columns
            .iter()
            .map(|&column| {
                let above = (rows - exact_f64(in_column(column))) / 2.0;
                let y = LEVEL + row * (above + f64::from(filled[column as usize]));
                filled[column as usize] += 1;
                (MARGIN + SOURCE + LEAD + STEP * f64::from(column - 1), y)
            })
            .collect();
        let width = 2.0 * MARGIN + SOURCE + STEP * f64::from(last) + LEAD;
        let level = LEVEL + row * (rows - 1.0) / 2.0;
        Self { network, places, columns, width, height: row * rows, level }
    }

    fn draw_way(&self, svg: &mut String, way: &Way, index: usize) {
        let (path, text, head) = self.path(way, exact_f64(index % 4));
        put!(svg, "<path d=\"{path}\"/><path d=\"{head}\" fill=\"currentColor\"/>");
        if !way.label.is_empty() {
            put!(
                svg,
                "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\" stroke=\"none\" \
                     fill=\"currentColor\" font-size=\"10\">{}</text>",
                text.0,
                text.1,
                escaped(&way.label)
            );
        }
    }

    /// Line of a way, place of its label, and its arrow head. Ways back have lanes of their own.
    fn path(&self, way: &Way, lane: f64) -> (String, (f64, f64), String) {
        let (x, y) = way.from.map_or((MARGIN + SOURCE, self.level), |from| {
            (self.places[from].0 + CENTER, self.places[from].1)
        });
        let Some(to) = way.to else {
            if self.network.closed {
                // Back to the clients, above the centers.
                let (client, top) = (MARGIN + SOURCE / 2.0, self.level - 20.0);
                let path = format!("M{x:.0} {y:.0}h18V14H{client:.0}V{top:.0}");
                return (path, (x + 40.0, 10.0), format!("M{client:.0} {top:.0}l4 -8h-8z"));
            }
            let end = (x + 40.0, y - if self.leads_on(way) { 30.0 } else { 0.0 });
            let path = format!("M{x:.0} {y:.0}L{:.0} {:.0}", end.0, end.1);
            return (path, (end.0, end.1 - 6.0), arrow_head(end));
        };
        let end = self.places[to];
        let column = |end: Option<usize>| end.map_or(0, |at| self.columns[at]);
        let across = (x + end.0) / 2.0;
        if column(way.to) <= column(way.from) {
            let (above, aside) = (y - 30.0 - 6.0 * lane, 8.0 + 4.0 * lane);
            let path = format!(
                "M{x:.0} {y:.0}h{aside:.0}V{above:.0}H{:.0}V{:.0}H{:.0}",
                end.0 - aside,
                end.1,
                end.0
            );
            return (path, (across, above - 3.0), arrow_head(end));
        }
        // Over the centers of the columns between.
        let over = if column(way.to) > column(way.from) + 1 { 70.0 } else { 0.0 };
        let path = format!(
            "M{x:.0} {y:.0}C{across:.0} {:.0} {across:.0} {:.0} {:.0} {:.0}",
            y - over,
            end.1 - over,
            end.0,
            end.1
        );
        (path, (across, (y + end.1) / 2.0 - 0.75 * over - 4.0), arrow_head(end))
    }

    /// Whether others lead on from where a way leads out.
    fn leads_on(&self, way: &Way) -> bool {
        self.network.ways.iter().any(|other| other.from == way.from && other.to.is_some())
    }
}

fn arrow_head((x, y): (f64, f64)) -> String {
    format!("M{x:.0} {y:.0}l-8 -4v8z")
}

/// A delay is a circle; a center with servers is a queue that ends in them, and where nothing leads on.
fn draw_center(svg: &mut String, (x, y): (f64, f64), center: &Center, ends: bool) {
    let middle = x + CENTER / 2.0;
    match center.servers {
        None => put!(
            svg,
            "<circle cx=\"{middle:.0}\" cy=\"{y:.0}\" r=\"24\"/><path d=\"M{x:.0} \
                 {y:.0}h30M{:.0} {y:.0}h30\"/>",
            middle + 24.0
        ),
        Some(servers) => {
            put!(svg, "<path d=\"M{x:.0} {:.0}h58v32h-58\"/>", y - 16.0);
            for slot in 1..=4_u32 {
                let at = x + 58.0 - 11.0 * f64::from(slot);
                put!(svg, "<path d=\"M{at:.0} {:.0}v32\"/>", y - 16.0);
            }
            draw_servers(svg, (x + 80.0, y), servers, center.utilization);
            let out = x + 82.0 + if servers <= 1.0 { 20.0 } else { 12.0 };
            if !ends {
                put!(svg, "<path d=\"M{out:.0} {y:.0}H{:.0}\"/>", x + CENTER);
            }
        }
    }
    labels(svg, (middle, y), &center.lines);
}

fn draw_servers(svg: &mut String, (x, y): (f64, f64), servers: f64, busy: Option<f64>) {
    let (rows, radius): (&[f64], f64) = match servers {
        one if one <= 1.0 => (&[0.0], 20.0),
        two if two <= 2.0 => (&[-13.0, 13.0], 11.0),
        three if three <= MOST_SERVERS => (&[-20.0, 0.0, 20.0], 9.0),
        _ => (&[-20.0, 20.0], 10.0),
    };
    let fill = busy.filter(|busy| busy.is_finite()).map_or_else(String::new, |busy| {
        format!(" fill=\"currentColor\" fill-opacity=\"{:.2}\"", 0.7 * busy.clamp(0.0, 1.0))
    });
    for row in rows {
        put!(svg, "<circle cx=\"{x:.0}\" cy=\"{:.0}\" r=\"{radius:.0}\"{fill}/>", y + row);
    }
    if servers > MOST_SERVERS {
        put!(svg, "<path d=\"M{x:.0} {:.0}v18\" stroke-dasharray=\"2 4\"/>", y - 9.0);
    }
}

fn labels(svg: &mut String, (x, y): (f64, f64), lines: &[String]) {
    for (row, text) in lines.iter().enumerate() {
        let bold = if row == 0 { " font-weight=\"bold\"" } else { "" };
        put!(
            svg,
            "<text x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"middle\" stroke=\"none\" \
                 fill=\"currentColor\"{bold}>{}</text>",
            y + TEXTS + LINE * exact_f64(row),
            escaped(&shortened(text, UNDER))
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(count: usize, ways: &[(Option<usize>, Option<usize>)]) -> Network {
        let center = |index: usize| Center {
            lines: vec![format!("center {index} <b>")],
            servers: (index > 0).then_some(1.0),
            utilization: Some(f64::NAN),
        };
        Network {
            description: "a \"network\"".to_owned(),
            source: vec!["clients".to_owned()],
            closed: true,
            centers: (0..count).map(center).collect(),
            ways: ways
                .iter()
                .map(|(from, to)| Way { from: *from, to: *to, label: "½ & more".to_owned() })
                .collect(),
        }
    }

    #[test]
    fn centers_stand_by_their_distance_whatever_the_ways() {
        let ways = [
            (None, Some(0)),
            (Some(0), Some(1)),
            (Some(0), Some(2)),
            (Some(1), Some(1)),
            (Some(2), Some(0)),
            (Some(1), None),
        ];
        let network = network(4, &ways);
        assert_eq!(network.columns(), [1, 2, 2, 3], "the last is one that nobody comes to");
        let (drawing, (width, height)) = network.draw();
        assert!(!drawing.svg.contains("<b>") && !drawing.svg.contains("NaN"), "{}", drawing.svg);
        assert!(drawing.svg.contains("½ &amp; more") && drawing.svg.contains("&quot;network"));
        let placed = Placed::new(&network);
        for (a, (x, y)) in placed.places.iter().enumerate() {
            assert!(*x > 0.0 && x + CENTER < width && *y > 0.0 && *y < height);
            let others = placed.places[..a].iter();
            assert!(others.clone().all(|(u, v)| (x - u).abs() >= STEP || (y - v).abs() >= 100.0));
        }
    }

    #[test]
    fn nothing_and_a_circle_without_a_way_in_are_drawn() {
        assert!(network(0, &[]).draw().0.svg.ends_with("</svg>"));
        let round = network(2, &[(Some(0), Some(1)), (Some(1), Some(0))]);
        assert_eq!(round.columns(), [1, 1]);
        assert_eq!(Way::in_order(2).len(), 3);
    }
}
