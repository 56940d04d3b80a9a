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

/// Columns with their names, one cell a row; a cell that does not exist is empty.
pub(super) struct Table<'a> {
    rows: &'a [Row],
    several: bool,
    columns: Vec<(String, Vec<Option<f64>>)>,
}

impl<'a> Table<'a> {
    pub(super) fn new(model: &Model, rows: &'a [Row], several: bool) -> Self {
        let mut columns = Vec::new();
        for (index, (key, _)) in rows[0].at.iter().enumerate() {
            columns.push((key.clone(), rows.iter().map(|row| Some(row.at[index].1)).collect()));
        }
        let cells = |of: &dyn Fn(&Solved) -> Option<f64>| -> Vec<Option<f64>> {
            rows.iter().map(|row| row.answer.as_ref().ok().and_then(of)).collect()
        };
        let single = model.classes.len() == 1;
        for (index, class) in model.classes.iter().enumerate() {
            let prefix = if single { String::new() } else { format!("{}.", class.name) };
            let figures = |which: usize| {
                move |answer: &Solved| {
                    let (x, r, n) = human::main_figures(answer, index);
                    Some([x, r, n][which])
                }
            };
            for (which, name) in ["throughput_per_s", "system_response_time_mean_s", "number_mean"]
                .iter()
                .enumerate()
            {
                columns.push((format!("{prefix}{name}"), cells(&figures(which))));
            }
        }
        for (index, station) in model.stations.iter().enumerate() {
            let used = |answer: &Solved| match answer {
                Solved::Formula(s) => Some(s.stations[index].utilization.iter().sum()),
                Solved::Simulated(s) => s.stations[index].utilization.map(|m| m.center),
            };
            columns.push((format!("{}.utilization", station.name), cells(&used)));
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
                columns.push((format!("response_time_p{percent}_s"), values));
            }
        }
        Self { rows, several, columns }
    }

    pub(super) fn human(&self) -> String {
        let mut header: Vec<String> = self.columns.iter().map(|(name, _)| short(name)).collect();
        if self.several {
            header.insert(0, "solver".to_owned());
        }
        let mut table = human::table(&header.iter().map(String::as_str).collect::<Vec<_>>());
        let mut notes = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            let mut cells: Vec<String> = self
                .columns
                .iter()
                .map(|(name, values)| match values[index] {
                    None => "–".to_owned(),
                    Some(value) if name.ends_with("_s") && !name.ends_with("_per_s") => {
                        human::time(value)
                    }
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
        let names = self.columns.iter().map(|(name, _)| name.clone());
        let more = ["solver", "accuracy", "error"].map(str::to_owned);
        let rows = self.rows.iter().enumerate().map(|(index, row)| {
            let mut cells: Vec<String> = self
                .columns
                .iter()
                .map(|(_, values)| values[index].map_or(String::new(), |value| value.to_string()))
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
                    .map(|(name, values)| (name.clone(), json!(values[index])))
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
            ("throughput_per_s", "throughput in 1/s", "throughput"),
            ("system_response_time_mean_s", "mean response time in s", "response time"),
        ]
        .into_iter()
        .map(|(column, label, title)| svg::standalone(&self.plot(column, label, title)))
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

    fn plot(&self, column: &str, label: &str, title: &str) -> Plot {
        let key = &self.rows[0].at[0].0;
        let mut series: Vec<Series> = Vec::new();
        for (name, values) in &self.columns {
            if !name.ends_with(column) {
                continue;
            }
            let class = name.strip_suffix(column).unwrap_or_default().trim_end_matches('.');
            for (row, value) in self.rows.iter().zip(values) {
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

/// The heading of a column for people: units stand in the cells.
fn short(name: &str) -> String {
    name.replace("system_response_time_mean_s", "response")
        .replace("throughput_per_s", "X in 1/s")
        .replace("number_mean", "in system")
        .replace(".utilization", " ρ")
        .replace("response_time_p", "p")
        .trim_end_matches("_s")
        .to_owned()
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
