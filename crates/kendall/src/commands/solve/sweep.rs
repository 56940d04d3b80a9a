//! The table of a sweep: for people, as CSV, as JSON, and drawn.

use std::path::Path;

use anyhow::bail;
use kendall_queueing::Model;
use kendall_report::plot::{Axis, Mark, Plot, Point, Series, svg};
use serde_json::{Map, Value, json};

use super::{Solved, human};
use crate::csv;

/// One point by one solver.
pub(super) struct Row {
    pub(super) at: Vec<(String, f64)>,
    pub(super) solver: String,
    pub(super) answer: Result<Solved, String>,
}

/// What a column holds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    /// Values of a key of the model, whose name ends with their unit.
    Key,
    /// Of the class, which is named where there are several.
    Throughput(Option<String>),
    Response(Option<String>),
    Number(Option<String>),
    Utilization(String),
    /// Percent of a quantile of the response time.
    Quantile(String),
}

/// One cell a row; a cell that does not exist is empty.
struct Column {
    name: String,
    what: What,
    values: Vec<Option<f64>>,
}

/// Columns with their names.
pub(super) struct Table<'a> {
    rows: &'a [Row],
    several: bool,
    columns: Vec<Column>,
}

impl<'a> Table<'a> {
    pub(super) fn new(model: &Model, rows: &'a [Row], several: bool) -> Self {
        let mut columns = Vec::new();
        for (index, (key, _)) in rows[0].at.iter().enumerate() {
            let values = rows.iter().map(|row| Some(row.at[index].1)).collect();
            columns.push(Column { name: key.clone(), what: What::Key, values });
        }
        let cells = |of: &dyn Fn(&Solved) -> Option<f64>| -> Vec<Option<f64>> {
            rows.iter().map(|row| row.answer.as_ref().ok().and_then(of)).collect()
        };
        let single = model.classes.len() == 1;
        for (index, class) in model.classes.iter().enumerate() {
            let class = (!single).then(|| class.name.clone());
            let prefix = class.as_ref().map_or_else(String::new, |name| format!("{name}."));
            let figures = |which: usize| {
                move |answer: &Solved| {
                    let (x, r, n) = human::main_figures(answer, index);
                    Some([x, r, n][which])
                }
            };
            let of_class = [
                ("throughput_per_s", What::Throughput(class.clone())),
                ("system_response_time_mean_s", What::Response(class.clone())),
                ("number_mean", What::Number(class)),
            ];
            for (which, (name, what)) in of_class.into_iter().enumerate() {
                let (name, values) = (format!("{prefix}{name}"), cells(&figures(which)));
                columns.push(Column { name, what, values });
            }
        }
        for (index, station) in model.stations.iter().enumerate() {
            let used = |answer: &Solved| match answer {
                Solved::Formula(s) => Some(s.stations[index].utilization.iter().sum()),
                Solved::Simulated(s) => s.stations[index].utilization.map(|m| m.center),
            };
            let name = format!("{}.utilization", station.name);
            let what = What::Utilization(station.name.clone());
            columns.push(Column { name, what, values: cells(&used) });
        }
        for (position, quantile) in model.quantiles.iter().enumerate() {
            let of = |answer: &Solved| match answer {
                Solved::Formula(s) => s.response_quantiles.get(position).map(|(_, t)| *t),
                Solved::Simulated(s) => {
                    s.classes[0].response_time_quantiles_s.get(position).map(|(_, m)| m.center)
                }
            };
            let percent = human::number(quantile * 100.0);
            let percent = percent.trim_end_matches('0').trim_end_matches('.');
            let values = cells(&of);
            if values.iter().any(Option::is_some) {
                let (name, what) =
                    (format!("response_time_p{percent}_s"), What::Quantile(percent.to_owned()));
                columns.push(Column { name, what, values });
            }
        }
        Self { rows, several, columns }
    }

    pub(super) fn human(&self) -> String {
        let mut header: Vec<String> = self.columns.iter().map(Column::heading).collect();
        if self.several {
            header.insert(0, "solver".to_owned());
        }
        let mut table = human::table(&header.iter().map(String::as_str).collect::<Vec<_>>());
        let mut notes = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            let mut cells: Vec<String> = self
                .columns
                .iter()
                .map(|column| match column.values[index] {
                    None => "–".to_owned(),
                    Some(value) if column.is_time() => human::time(value),
                    Some(value) => human::number(value),
                })
                .collect();
            if self.several {
                cells.insert(0, row.solver.clone());
            }
            table.add_row(cells);
            if let Err(message) = &row.answer {
                let at: Vec<String> = row.at.iter().map(|(k, v)| format!("{k} = {v}")).collect();
                notes.push(format!("{}: {message}", at.join(", ")));
            }
        }
        let mut text = format!("{table}\n");
        if let Some(Ok(answer)) = self.rows.iter().map(|row| &row.answer).find(|a| a.is_ok()) {
            let (solver, accuracy) = human::solver_of(answer);
            text.push_str(&format!("solver  {solver} ({accuracy})\n"));
        }
        let hidden = notes.len().saturating_sub(3);
        for note in notes.iter().take(3) {
            text.push_str(&format!("note: no solution at {note}\n"));
        }
        if hidden > 0 {
            let others = kendall_units::counted(hidden, "other point");
            text.push_str(&format!("note: and at {others}\n"));
        }
        text
    }

    pub(super) fn csv(&self) -> String {
        let names = self.columns.iter().map(|column| column.name.clone());
        let more = ["solver", "accuracy", "error"].map(str::to_owned);
        let rows = self.rows.iter().enumerate().map(|(index, row)| {
            let mut cells: Vec<String> = self
                .columns
                .iter()
                .map(|column| column.values[index].map_or(String::new(), |value| value.to_string()))
                .collect();
            match &row.answer {
                Ok(answer) => {
                    let (solver, accuracy) = human::solver_of(answer);
                    cells.extend([solver.to_owned(), accuracy.to_owned(), String::new()]);
                }
                Err(message) => cells.extend([row.solver.clone(), String::new(), message.clone()]),
            }
            cells
        });
        csv::written(std::iter::once(names.chain(more).collect()).chain(rows))
    }

    pub(super) fn json(&self) -> Value {
        let points: Vec<Value> = self
            .rows
            .iter()
            .enumerate()
            .map(|(index, row)| {
                let mut point: Map<String, Value> = self
                    .columns
                    .iter()
                    .map(|column| (column.name.clone(), json!(column.values[index])))
                    .collect();
                match &row.answer {
                    Ok(answer) => {
                        let (solver, accuracy) = human::solver_of(answer);
                        point.insert("solver".to_owned(), json!(solver));
                        point.insert("accuracy".to_owned(), json!(accuracy));
                    }
                    Err(message) => {
                        point.insert("solver".to_owned(), json!(row.solver));
                        point.insert("error".to_owned(), json!(message));
                    }
                }
                Value::Object(point)
            })
            .collect();
        let swept: Vec<&str> = self.rows[0].at.iter().map(|(key, _)| key.as_str()).collect();
        json!({ "sweep": swept, "points": points })
    }

    /// Throughput and response time over the first swept key, as SVG or as a page.
    pub(super) fn drawn(&self, path: &Path) -> anyhow::Result<String> {
        let ending = path.extension().and_then(|ending| ending.to_str());
        let drawings: Vec<String> = [
            (What::throughput_of as fn(&What) -> Option<&str>, "throughput in 1/s", "throughput"),
            (What::response_of, "mean response time in s", "response time"),
        ]
        .into_iter()
        .map(|(class_of, label, title)| svg::standalone(&self.plot(class_of, label, title)))
        .collect();
        match ending {
            Some("svg") => Ok(stacked(&drawings)),
            Some("html") => Ok(format!(
                "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Model</title>\
                 <body>{}</body></html>\n",
                drawings.join("\n")
            )),
            _ => bail!("{}: a plot is written as .svg or .html", path.display()),
        }
    }

    /// The columns that are of a class by `class_of`, a line each.
    fn plot(&self, class_of: fn(&What) -> Option<&str>, label: &str, title: &str) -> Plot {
        let key = &self.rows[0].at[0].0;
        let mut series: Vec<Series> = Vec::new();
        for column in &self.columns {
            let Some(class) = class_of(&column.what) else { continue };
            for (row, value) in self.rows.iter().zip(&column.values) {
                let Some(value) = value else { continue };
                let mut parts: Vec<String> = Vec::new();
                if !class.is_empty() {
                    parts.push(class.to_owned());
                }
                parts.extend(row.at.iter().skip(1).map(|(key, value)| format!("{key} {value}")));
                if self.several {
                    parts.push(row.solver.clone());
                }
                let legend = if parts.is_empty() { title.to_owned() } else { parts.join(", ") };
                let point = Point::new(row.at[0].1, *value);
                match series.iter_mut().find(|series| series.name == legend) {
                    Some(series) => series.points.push(point),
                    None => series.push(Series {
                        name: legend,
                        mark: Mark::Line,
                        color: series.len() % svg::COLORS,
                        points: vec![point],
                    }),
                }
            }
        }
        Plot {
            id: title.replace(' ', "-"),
            title: format!("{title} against {key}"),
            description: format!("What the model says of {title} as {key} grows."),
            x: Axis::from_zero(key.clone()),
            y: Axis::from_zero(label),
            series,
        }
    }
}

impl What {
    /// The class whose throughput it is, empty where there is one only.
    fn throughput_of(&self) -> Option<&str> {
        match self {
            Self::Throughput(class) => Some(class.as_deref().unwrap_or_default()),
            _ => None,
        }
    }

    /// The class whose response time it is, empty where there is one only.
    fn response_of(&self) -> Option<&str> {
        match self {
            Self::Response(class) => Some(class.as_deref().unwrap_or_default()),
            _ => None,
        }
    }
}

impl Column {
    /// Whether the values are seconds.
    fn is_time(&self) -> bool {
        match self.what {
            What::Key => self.name.ends_with("_s") && !self.name.ends_with("_per_s"),
            What::Response(_) | What::Quantile(_) => true,
            What::Throughput(_) | What::Number(_) | What::Utilization(_) => false,
        }
    }

    /// For people: units of times stand in the cells.
    fn heading(&self) -> String {
        let of_class = |class: &Option<String>, what: &str| match class {
            Some(class) => format!("{class}.{what}"),
            None => what.to_owned(),
        };
        match &self.what {
            What::Key if self.is_time() => {
                self.name.strip_suffix("_s").unwrap_or(&self.name).to_owned()
            }
            What::Key => self.name.clone(),
            What::Throughput(class) => of_class(class, "X in 1/s"),
            What::Response(class) => of_class(class, "response"),
            What::Number(class) => of_class(class, "in system"),
            What::Utilization(station) => format!("{station} ρ"),
            What::Quantile(percent) => format!("p{percent}"),
        }
    }
}

/// Two drawings in one file, one below the other.
fn stacked(drawings: &[String]) -> String {
    const HEIGHT: usize = 500;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\" height=\"{0}\" \
         viewBox=\"0 0 800 {0}\">",
        HEIGHT * drawings.len()
    );
    for (index, drawing) in drawings.iter().enumerate() {
        text.push_str(&format!(
            "<svg x=\"0\" y=\"{}\" width=\"800\" height=\"{HEIGHT}\">{drawing}</svg>",
            index * HEIGHT
        ));
    }
    text.push_str("</svg>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, what: What) -> (String, bool) {
        let column = Column { name: name.to_owned(), what, values: Vec::new() };
        (column.heading(), column.is_time())
    }

    #[test]
    fn a_column_is_shown_by_what_it_holds_and_not_by_its_name() {
        let key = |name| told(name, What::Key);
        assert_eq!(key("classes.a.think_time_s"), ("classes.a.think_time".to_owned(), true));
        let rate = "classes.a.arrival_rate_per_s";
        assert_eq!(key(rate), (rate.to_owned(), false));
        let class = || Some("number_mean_s".to_owned());
        let of_class = |what| told("number_mean_s.any", what).0;
        assert_eq!(of_class(What::Throughput(class())), "number_mean_s.X in 1/s");
        assert_eq!(of_class(What::Response(class())), "number_mean_s.response");
        let station = What::Utilization("disk.utilization_s".to_owned());
        let name = "disk.utilization_s.utilization";
        assert_eq!(told(name, station), ("disk.utilization_s ρ".to_owned(), false));
        let quantile = What::Quantile("99".to_owned());
        assert_eq!(told("response_time_p99_s", quantile), ("p99".to_owned(), true));
    }
}
