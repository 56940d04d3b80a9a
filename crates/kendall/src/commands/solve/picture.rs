//! A solved model as a picture: the network with demands and utilizations, and small plots for a terminal.

use kendall_queueing::Model;
use kendall_queueing::model::{Discipline, Place, Station, WhenFull};
use kendall_report::document::Unit;
use kendall_report::plot::network::{Center, Network, Way};
use kendall_report::plot::{Mark, Plot};
use kendall_units::{exact_f64, whole_u64};

use super::Solved;
use super::human::TIME;

/// Stations and ways of a picture that can still be read.
const MOST_CENTERS: usize = 60;
const MOST_WAYS: usize = 300;
/// Classes that a center tells apart.
const MOST_CLASSES: usize = 4;

/// The network; `None` where there is too much of it.
pub(super) fn network(model: &Model, answer: &Solved) -> Option<Network> {
    let visits = model.visits().ok()?;
    let ways = ways(model, &visits);
    if model.stations.len() > MOST_CENTERS || ways.len() > MOST_WAYS {
        return None;
    }
    let centers = model.stations.iter().enumerate();
    Some(Network {
        description: format!(
            "{}: below each station its kind, demand a request (visits times service time), \
             utilization and mean number; each server is filled as far as it is busy.",
            if model.name.is_empty() { "The model" } else { &model.name }
        ),
        source: source(model),
        closed: model.classes.iter().any(|class| !class.is_open()),
        centers: centers.map(|(at, station)| center(model, at, station, &visits, answer)).collect(),
        ways,
    })
}

fn source(model: &Model) -> Vec<String> {
    let [class] = &model.classes[..] else {
        let mut lines = vec!["customers".to_owned()];
        lines.extend(model.classes.iter().take(MOST_CLASSES).map(|class| {
            if class.is_open() {
                format!("{}: λ = {}", class.name, Unit::Rate.print(class.arrival_rate_per_s()))
            } else {
                format!("{}: N = {}", class.name, class.population())
            }
        }));
        return lines;
    };
    if class.is_open() {
        let rate = Unit::Rate.print(class.arrival_rate_per_s());
        return vec!["arrivals".to_owned(), format!("λ = {rate}")];
    }
    let think = Some(class.think_time_s()).filter(|think| *think > 0.0);
    let mut lines = vec!["clients".to_owned(), format!("N = {}", class.population())];
    lines.extend(think.map(|think| format!("Z = {}", TIME.print(think))));
    lines
}

/// From station to station as the routes say, of all classes; without routes in the order of the file.
fn ways(model: &Model, visits: &[Vec<f64>]) -> Vec<Way> {
    let end = |place: Place| match place {
        Place::Outside => None,
        Place::Station(index) => Some(index),
    };
    let mut ways: Vec<Way> = Vec::new();
    for leg in model.routes.iter().filter(|leg| leg.probability > 0.0) {
        let (from, to) = (end(leg.from), end(leg.to));
        let single = model.classes.len() == 1 && leg.probability < 1.0;
        let label = if single { Unit::Level.print(leg.probability) } else { String::new() };
        if !ways.iter().any(|way| (way.from, way.to) == (from, to)) {
            ways.push(Way { from, to, label });
        }
    }
    for (fork, station) in model.stations.iter().enumerate() {
        for part in &station.parts {
            ways.push(Way { from: Some(fork), to: Some(*part), label: String::new() });
        }
    }
    if model.routes.is_empty() {
        let visited = (0..model.stations.len()).filter(|at| visits[*at].iter().any(|v| *v > 0.0));
        let visited: Vec<usize> = visited.collect();
        let at = |end: Option<usize>| end.map(|place| visited[place]);
        let way = |way: Way| Way { from: at(way.from), to: at(way.to), ..way };
        ways.extend(Way::in_order(visited.len()).into_iter().map(way));
    }
    ways
}

fn center(
    model: &Model,
    at: usize,
    station: &Station,
    visits: &[Vec<f64>],
    answer: &Solved,
) -> Center {
    let (busy, number): (Option<f64>, Option<f64>) = match answer {
        Solved::Formula(s) => {
            let of = &s.stations[at];
            (Some(of.utilization.iter().sum()), Some(of.number.iter().sum()))
        }
        Solved::Simulated(s) => {
            let of = &s.stations[at];
            (of.utilization.map(|m| m.center), of.number_mean.map(|m| m.center))
        }
    };
    let busy = busy.filter(|_| !station.is_delay());
    let mut lines = vec![station.name.clone(), kind(station)];
    lines.extend(station.capacity.map(|room| match station.when_full {
        WhenFull::Lost => format!("room for {room}"),
        _ => format!("room for {room}, blocks"),
    }));
    let demand = |class: usize| {
        let demand = station.demand_at(class)?.service.mean() * visits[at][class];
        (demand > 0.0).then(|| TIME.print(demand))
    };
    if let [_] = &model.classes[..] {
        lines.extend(demand(0).map(|demand| format!("D = {demand}")));
    } else {
        let classes = model.classes.iter().enumerate();
        lines.extend(classes.take(MOST_CLASSES).filter_map(|(index, class)| {
            Some(format!("D of {} = {}", class.name, demand(index)?))
        }));
    }
    let used = busy.map(|busy| format!("U = {} %", Unit::Percent.print(busy)));
    let held = number.map(|number| format!("Q = {}", Unit::Number.print(number)));
    lines.push(used.into_iter().chain(held).collect::<Vec<_>>().join(", "));
    let servers = (!station.is_delay()).then(|| exact_f64(station.servers));
    Center { lines, servers, utilization: busy }
}

fn kind(station: &Station) -> String {
    if let Some(fork) = station.fork.filter(|_| !station.parts.is_empty()) {
        return format!("fork, {} of {}", fork.needed, fork.branches);
    }
    if station.is_delay() {
        return "delay".to_owned();
    }
    let order = match station.discipline {
        Discipline::Fcfs | Discipline::Is => "FCFS",
        Discipline::Lcfs => "LCFS",
        Discipline::LcfsPr => "LCFS-PR",
        Discipline::Ps => "PS",
        Discipline::Siro => "SIRO",
        Discipline::Sjf => "SJF",
        Discipline::Srpt => "SRPT",
        Discipline::Dps => "DPS",
        Discipline::Gps => "GPS",
        Discipline::Edf => "EDF",
        Discipline::EdfPreemptive => "EDF, pre-emptive",
        Discipline::PriorityNonPreemptive => "priority",
        Discipline::PriorityPreemptive => "priority, pre-emptive",
    };
    let fork = station
        .fork
        .map_or(String::new(), |fork| format!("{} of {} × ", fork.needed, fork.branches));
    let servers =
        if station.servers == 1 { String::new() } else { format!("{} servers, ", station.servers) };
    format!("{fork}{servers}{order}")
}

/// A plot in letters: `*` for what was asked, `.` for bounds, a letter for each further line.
pub(super) fn small(plot: &Plot, columns: usize) -> String {
    const ROWS: usize = 10;
    const LETTERS: [char; 6] = ['*', 'o', '+', 'x', '#', '@'];
    let points = || plot.series.iter().flat_map(|series| &series.points);
    let finite = || points().filter(|point| point.x.is_finite() && point.y.is_finite());
    let most = |value: fn(f64, f64) -> f64| finite().fold(0.0, |most, p| value(p.x, p.y).max(most));
    let (right, top): (f64, f64) = (most(|x, _| x), most(|_, y| y));
    if finite().count() < 2 || right <= 0.0 || top <= 0.0 {
        return String::new();
    }
    let [high, low] = [top, 0.0].map(|value| Unit::Number.print(value));
    let margin = high.chars().count().max(low.chars().count());
    let width = columns.saturating_sub(margin + 3).clamp(10, 64);
    let mut grid = vec![vec![' '; width]; ROWS];
    let place = |share: f64, cells: usize| {
        usize::try_from(whole_u64((share.clamp(0.0, 1.0) * exact_f64(cells - 1)).round()))
            .unwrap_or(0)
    };
    // What was asked is drawn last, over the bounds.
    for (index, series) in plot.series.iter().enumerate().rev() {
        let letter = match series.mark {
            Mark::Dashed => '.',
            _ => LETTERS[index % LETTERS.len()],
        };
        for point in series.points.iter().filter(|p| p.x.is_finite() && p.y.is_finite()) {
            let row = ROWS - 1 - place(point.y / top, ROWS);
            grid[row][place(point.x / right, width)] = letter;
        }
    }
    let mut text = format!("{} ({})\n", plot.title, plot.y.label);
    for (row, cells) in grid.iter().enumerate() {
        let label = if row == 0 {
            high.as_str()
        } else if row == ROWS - 1 {
            &low
        } else {
            ""
        };
        let cells: String = cells.iter().collect();
        text.push_str(&format!("{label:>margin$} │{}\n", cells.trim_end()));
    }
    let right = Unit::Number.print(right);
    text.push_str(&format!("{:margin$} └{}\n", "", "─".repeat(width)));
    text.push_str(&format!("{:margin$}  0{right:>1$}", "", width - 1));
    let names: Vec<String> = plot
        .series
        .iter()
        .enumerate()
        .filter(|(_, series)| series.mark != Mark::Dashed)
        .map(|(index, series)| format!("{} {}", LETTERS[index % LETTERS.len()], series.name))
        .collect();
    let bounds = plot.series.iter().any(|series| series.mark == Mark::Dashed);
    if names.len() > 1 || bounds {
        let bounds = if bounds { ", . bounds" } else { "" };
        text.push_str(&format!("\n{:margin$}  {}{bounds}", "", names.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use kendall_queueing::solver::{Solver, solve};
    use kendall_report::plot::{Axis, Point, Series};

    use super::*;

    fn drawn(text: &str) -> Network {
        let model = Model::read(&text.parse().unwrap()).unwrap();
        let answer = Solved::Formula(Box::new(solve(&model, Solver::Auto).unwrap()));
        network(&model, &answer).unwrap()
    }

    #[test]
    fn a_network_shows_demands_utilizations_and_routes() {
        let network = drawn(
            "arrival_rate_per_s = 2\nstations = [{ name = 'cpu', service_time_s = 0.1 }, { name = \
             'disk', servers = 2, service_time_s = 0.2 }]\nroutes = [{ from = 'in', to = { cpu = 1 } }, \
             { from = 'cpu', to = { disk = 0.5, out = 0.5 } }, { from = 'disk', to = { cpu = 1 } }]",
        );
        assert_eq!(network.source, ["arrivals", "λ = 2.0000/s"]);
        assert_eq!(network.centers[0].lines[1], "FCFS");
        assert!(network.centers[0].lines.iter().any(|line| line.starts_with("D = 200")));
        assert!((network.centers[0].utilization.unwrap() - 0.4).abs() < 1e-12);
        assert_eq!(network.ways.len(), 4);
        assert_eq!(network.ways[1].label, "0.5");
    }

    #[test]
    fn without_routes_stations_stand_in_the_order_of_the_file() {
        let network = drawn(
            "population = 3\nthink_time_s = 1\nstations = [{ name = 'a', service_time_s = 0.1 }, { name \
             = 'd', type = 'delay', service_time_s = 1 }, { name = 'b', service_time_s = 0.1 }]",
        );
        assert!(network.closed && network.centers[1].servers.is_none());
        let ends: Vec<_> = network.ways.iter().map(|way| (way.from, way.to)).collect();
        assert_eq!(ends[0], (None, Some(0)));
        assert_eq!(ends[3], (Some(2), None));
    }

    #[test]
    fn a_small_plot_has_its_ends_and_marks() {
        let series = |mark, y: f64| Series {
            name: "s".to_owned(),
            mark,
            color: 0,
            points: vec![Point::new(1.0, y), Point::new(20.0, 2.0 * y), Point::new(5.0, f64::NAN)],
        };
        let plot = Plot {
            id: String::new(),
            title: "throughput".to_owned(),
            description: String::new(),
            x: Axis::from_zero("population"),
            y: Axis::from_zero("1/s"),
            series: vec![series(Mark::Line, 1.0), series(Mark::Dashed, 4.0)],
        };
        let text = small(&plot, 40);
        assert_eq!((text.matches('*').count(), text.matches("bounds").count()), (3, 1), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        assert!(
            text.starts_with("throughput (1/s)\n 8 │") || text.starts_with("throughput (1/s)\n8 │")
        );
        let empty = Plot { series: Vec::new(), ..plot };
        assert_eq!(small(&empty, 40), "");
    }
}
