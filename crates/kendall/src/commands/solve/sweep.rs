//! The table of a sweep, and its drawing.

use kendall_queueing::Model;
use kendall_queueing::solver::{Solver, solve};
use kendall_report::document::{Block, Section, Table, Unit};
use kendall_report::plot::{Axis, Mark, Plot, Point, Series, svg};
use kendall_units::counted;
use serde_json::{Value, json};

use crate::drawing::Drawn;
use crate::text;

use super::human::{TIME, main_figures, solver_of};
use super::{Solved, picture};

/// Points from which a sweep is drawn for people.
const LEAST_DRAWN: usize = 5;
/// Points without a solution that are named for people.
const MOST_NAMED: usize = 3;

/// One point by one solver.
pub(super) struct Row {
    pub(super) at: Vec<(String, f64)>,
    pub(super) solver: String,
    pub(super) answer: Result<Solved, String>,
}

impl Row {
    fn solved(&self) -> Option<&Solved> {
        self.answer.as_ref().ok()
    }
}

/// All points of a sweep, by one solver or by several.
pub(super) struct Sweep<'a> {
    pub(super) model: &'a Model,
    pub(super) rows: &'a [Row],
    pub(super) several: bool,
}

impl Sweep<'_> {
    /// A row a point and solver; why a point has no solution is for files.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::of("sweep", "Points of the sweep", self.rows);
        for (index, (key, _)) in self.rows[0].at.iter().enumerate() {
            let (label, unit) = heading(key);
            table = table.column(key, label, unit, move |row| row.at[index].1);
        }
        for (index, class) in self.model.classes.iter().enumerate() {
            let single = self.model.classes.len() == 1;
            let prefix = if single { String::new() } else { format!("{}.", class.name) };
            for (which, key, label, unit) in [
                (0, "throughput_per_s", "X in 1/s", Unit::Number),
                (1, "system_response_time_mean_s", "response", TIME),
                (2, "number_mean", "in system", Unit::Number),
            ] {
                let (key, label) = (format!("{prefix}{key}"), format!("{prefix}{label}"));
                table =
                    table.column(key, label, unit, |row| main_figures(row.solved()?, index)[which]);
            }
        }
        for (index, station) in self.model.stations.iter().enumerate() {
            let (key, label) =
                (format!("{}.utilization", station.name), format!("{} ρ", station.name));
            table = table.column(key, label, Unit::Number, |row| match row.solved()? {
                Solved::Formula(s) => Some(s.stations[index].utilization.iter().sum::<f64>()),
                Solved::Simulated(s) => Some(s.stations[index].utilization?.center),
            });
        }
        for (place, quantile) in self.model.quantiles.iter().enumerate() {
            let value = |row: &&Row| match row.solved()? {
                Solved::Formula(s) => Some(s.response_quantiles.get(place)?.1),
                Solved::Simulated(s) => {
                    Some(s.classes[0].response_time_quantiles_s.get(place)?.1.center)
                }
            };
            if self.rows.iter().any(|row| value(&row).is_some()) {
                let percent = Unit::Level.print(quantile * 100.0);
                let key = format!("response_time_p{percent}_s");
                table = table.column(key, format!("p{percent}"), TIME, value);
            }
        }
        table
            .column("solver", if self.several { "solver" } else { "" }, Unit::Text, |row| {
                row.solved().map_or(row.solver.as_str(), |answer| solver_of(answer).0)
            })
            .column("accuracy", "", Unit::Text, |row| Some(solver_of(row.solved()?).1))
            .column("error", "", Unit::Text, |row| row.answer.as_ref().err().cloned())
            .table()
    }

    pub(super) fn document(&self) -> Section {
        let mut document = Section::new("sweep", "");
        document.table(self.table());
        if self.rows.len() >= LEAST_DRAWN {
            print_small(&self.plots(), &mut document);
        }
        if let Some(answer) = self.rows.iter().find_map(Row::solved) {
            let (solver, accuracy) = solver_of(answer);
            document.text(format!("solver  {solver} ({accuracy})"));
        }
        let without: Vec<&Row> = self.rows.iter().filter(|row| row.answer.is_err()).collect();
        for row in without.iter().take(MOST_NAMED) {
            let at: Vec<String> = row.at.iter().map(|(k, v)| format!("{k} = {v}")).collect();
            let why = row.answer.as_ref().err().map_or("", String::as_str);
            document.text(format!("note: no solution at {}: {why}", at.join(", ")));
        }
        if without.len() > MOST_NAMED {
            let others = counted(without.len() - MOST_NAMED, "other point");
            document.text(format!("note: and at {others}"));
        }
        document
    }

    pub(super) fn json(&self) -> Value {
        let swept: Vec<&str> = self.rows[0].at.iter().map(|(key, _)| key.as_str()).collect();
        json!({ "sweep": swept, "points": self.table().objects() })
    }

    /// Throughput and response time over the first swept key.
    pub(super) fn plots(&self) -> [Plot; 2] {
        [(0, "throughput in 1/s", "throughput"), (1, "mean response time in s", "response time")]
            .map(|(which, label, title)| self.plot(which, label, title))
    }

    /// One of the main figures, a line for each class, solver and level of further swept keys.
    fn plot(&self, which: usize, label: &str, title: &str) -> Plot {
        let key = &self.rows[0].at[0].0;
        let mut series: Vec<Series> = Vec::new();
        for (index, class) in self.model.classes.iter().enumerate() {
            for row in self.rows {
                let value = row.solved().and_then(|answer| main_figures(answer, index)[which]);
                let Some(value) = value else { continue };
                let mut parts: Vec<String> = Vec::new();
                parts.extend((self.model.classes.len() > 1).then(|| class.name.clone()));
                parts.extend(row.at.iter().skip(1).map(|(key, value)| format!("{key} {value}")));
                parts.extend(self.several.then(|| row.solver.clone()));
                let legend = if parts.is_empty() { title.to_owned() } else { parts.join(", ") };
                let point = Point::new(row.at[0].1, value);
                match series.iter_mut().find(|series| series.name == legend) {
                    Some(series) => series.points.push(point),
                    None => series.push(Series::new(
                        legend,
                        Mark::Line,
                        series.len() % svg::COLORS,
                        [point],
                    )),
                }
            }
        }
        if self.model.classes.len() == 1 && self.rows[0].at.len() == 1 && !self.several {
            self.add_bounds(which, &mut series);
        }
        Plot {
            id: title.replace(' ', "-"),
            title: format!("{title} against {key}"),
            description: format!("{title} by the model as {key} grows."),
            x: Axis::from_zero(key.clone()),
            y: Axis::from_zero(label),
            series,
        }
    }
}

impl Sweep<'_> {
    /// The asymptotic bounds of the only class, where it is closed.
    fn add_bounds(&self, which: usize, series: &mut Vec<Series>) {
        let think = self.model.classes[0].think_time_s();
        for (name, upper) in [("lower bound", false), ("upper bound", true)] {
            let point = |row: &Row| {
                let Solved::Formula(solution) = row.solved()? else { return None };
                let class = &solution.classes[0];
                let (low, high) = class.throughput_bounds?;
                // The upper bound of the response is the lower one of the throughput.
                let rate = if upper == (which == 0) { high } else { low };
                let round = class.throughput * (class.system_response + think);
                let value = if which == 0 { rate } else { (round / rate - think).max(0.0) };
                value.is_finite().then(|| Point::new(row.at[0].1, value))
            };
            let points: Vec<Point> = self.rows.iter().filter_map(point).collect();
            if !points.is_empty() {
                let color = series.len() % svg::COLORS;
                series.push(Series::new(name, Mark::Dashed, color, points));
            }
        }
    }
}

/// The network as it was solved, and plots.
pub(super) fn drawings(model: &Model, answer: Option<&Solved>, plots: &[Plot]) -> Vec<Drawn> {
    let network = answer.and_then(|answer| picture::network(model, answer));
    network.iter().map(Drawn::from).chain(plots.iter().map(Drawn::from)).collect()
}

/// Plots in letters below an answer.
pub(super) fn print_small(plots: &[Plot], document: &mut Section) {
    for plot in plots {
        let drawn = picture::small(plot, text::line_columns());
        if !drawn.is_empty() {
            document.blocks.push(Block::Verbatim(drawn));
        }
    }
}

/// The sweep of a model of one class that says none: of its population to twice that, or of its arrival
/// rate to twice that or near saturation.
pub(super) fn of_its_own(model: &Model) -> Option<String> {
    let [class] = &model.classes[..] else { return None };
    if !class.is_open() {
        let most = 2 * class.population().clamp(1, 100_000);
        return Some(format!("population=1:{most}:{}", most.div_ceil(100)));
    }
    let rate = class.arrival_rate_per_s();
    let solved = solve(model, Solver::Auto).ok()?;
    let bottleneck = solved.classes[0].bottleneck.as_ref().map(|found| found.most_throughput);
    let alone = solved.station.as_ref().map(|station| match station.loss_probability {
        lost if lost > 0.0 => f64::INFINITY,
        _ => station.arrival_rate / station.utilization,
    });
    let most = bottleneck.or(alone).unwrap_or(f64::INFINITY);
    // Three digits say it as well.
    let short = |value: f64| format!("{value:.2e}").parse().unwrap_or(value);
    let step = short((0.97 * most).min(2.0 * rate).max(rate) / 50.0);
    (step > 0.0).then(|| format!("arrival_rate_per_s={step}:{}:{step}", short(50.0 * step)))
}

/// How a key of a model is shown, whose name ends with its unit: units of times stand in the cells.
fn heading(key: &str) -> (&str, Unit) {
    match key.strip_suffix("_s").filter(|_| !key.ends_with("_per_s")) {
        Some(name) => (name, TIME),
        None => (key, Unit::Number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_of_one_class_is_swept_by_what_loads_it() {
        let of = |text: &str| of_its_own(&toml::from_str(text).unwrap());
        let queue = "stations = [{ name = 'a', service_time_s = 0.1 }]";
        assert_eq!(of(&format!("population = 200\n{queue}")).unwrap(), "population=1:400:4");
        let open = of(&format!("arrival_rate_per_s = 9\n{queue}")).unwrap();
        assert!(open.starts_with("arrival_rate_per_s=0.194:9.7"), "{open}");
        let two = "classes = [{ name = 'a', population = 1 }, { name = 'b', population = 1 }]";
        assert_eq!(of(&format!("{two}\n{queue}")), None);
    }

    #[test]
    fn a_key_is_shown_by_the_unit_that_ends_its_name() {
        assert_eq!(heading("classes.a.think_time_s"), ("classes.a.think_time", TIME));
        let rate = "classes.a.arrival_rate_per_s";
        assert_eq!(heading(rate), (rate, Unit::Number));
        assert_eq!(heading("population"), ("population", Unit::Number));
    }
}
