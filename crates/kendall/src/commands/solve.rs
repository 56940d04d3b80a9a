//! `kendall solve`: a queueing model, by flags or from a file.

mod cases;
mod demands;
mod flags;
mod human;
mod input;
mod json;
mod layered;
mod picture;
mod simulation;
mod sweep;

use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use anyhow::anyhow;
use kendall_queueing::Model;
use kendall_queueing::lqn::Layered;
use kendall_queueing::simulation::Simulated;
use kendall_queueing::solver::{Solution, Solver, solve};
use kendall_report::plot::Plot;
use serde_json::Value;

use crate::drawing::{self, Drawn};
use crate::exit::{Exit, refused};
use crate::output::{self, Format};
use input::File;

const LAYERED: &str = "a layered model";
/// Most points of a sweep.
const MOST_POINTS: usize = 100_000;

/// Solves a queueing model given by flags or by a file
///
/// MODEL is a kind (mm1, mm1k, mmm, mmmk, mmmm, mmmn, mminf, md1, mdm, mg1, mg1ps, mg1sjf, mg1srpt,
/// gm1, gg1, ggm, mxm1, mmm+m, erlang-a, erlang-b, erlang-c) with its flags, or a model file (.toml or
/// .json), whose keys docs/models.md describes, or one of JMT (.jmva, .jsimg, .jsim) or
/// LQNS (.lqnx, .lqn), or a Petri net (.pnml). A number in a file may be a sweep: { from = 1, to = 600, step = 10 }.
/// A file with `kind = "M/M/5"` is a textbook model in its short form; one with a list of `cases` is
/// solved case by case and compared with the outputs that it expects (exit code 4 when not met).
/// The answer says which solver gave it, and whether it is exact, a bound, an approximation or an
/// estimate.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  kendall solve mmm --arrival-rate 7538.59/s --service-rate 66/s \
                  --servers 128 --percentiles 50,99\n  kendall solve studies/models/three-tier.toml \
                  --compare mva,schweitzer,linearizer\n  kendall solve studies/models/three-tier.toml \
                  --sweep population=1:600:10 --csv x.csv --plot x.svg"
)]
pub(crate) struct Solve {
    /// A kind of station, or a model file
    #[arg(value_name = "MODEL")]
    model: String,
    #[command(flatten)]
    flags: flags::Flags,
    /// Percentiles of response and waiting time
    #[arg(long, value_delimiter = ',', value_name = "P,P")]
    percentiles: Vec<f64>,
    /// Solver: auto, mva, convolution, schweitzer, seidmann, seidmann-mva, bard, linearizer,
    /// allen-cunneen, kraemer-langenbach-belz, whitt, marchal, kingman, simulation
    #[arg(long, value_name = "NAME")]
    solver: Option<String>,
    /// Several solvers side by side; differences are to the first
    #[arg(long, value_delimiter = ',', value_name = "NAME,NAME")]
    compare: Vec<String>,
    /// Sweeps a key of the model, such as population=1:600:10 or stations.cpu.servers=1:8:1
    #[arg(long, value_name = "KEY=FROM:TO:STEP")]
    sweep: Vec<String>,
    /// Writes the table of a sweep as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draws the network with demands and utilizations, and throughput and response time of a sweep, or
    /// of one class against its population or arrival rate, with bounds where there are any; file ending
    /// .svg or .html
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Writes the model as a model file (file ending .toml), for JMT's analytical solver (.jmva), or a
    /// layered one for LQNS (.lqnx)
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Prints demands, and utilizations at the arrival rates, which may be above 1, and solves nothing
    #[arg(long, conflicts_with_all = ["solver", "compare", "sweep", "percentiles", "csv", "plot", "write"])]
    demands_only: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Solves as the console's bench shows it: with the curve, and within the time of a slider
    #[arg(long, hide = true)]
    bench: bool,
    #[command(flatten)]
    simulation: simulation::SimulationFlags,
}

/// What one solver says of one model.
pub(crate) enum Solved {
    Formula(Box<Solution>),
    Simulated(Box<Simulated>),
}

impl Solve {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        if let Some((file, model)) = input::layered(&self.model).map_err(refused)? {
            return self.layered(&file, &model);
        }
        let file = self.document()?;
        let mut document = file.value.clone();
        if document.get("tasks").is_some() {
            let read = input::table(&document).and_then(|table| Layered::read(&table));
            let model =
                read.map_err(|problem| refused(file.refuse(Some(&problem.key), &problem)))?;
            return self.layered(&file, &model);
        }
        if self.bench {
            let answer =
                kendall_console::bench_answer(&model(&file, &document)?).map_err(refused)?;
            output::json(&answer)?;
            return Ok(Exit::Done);
        }
        if let Some(list) = document.get("cases").and_then(Value::as_array) {
            self.no_sweep("a file of cases")?;
            cases::check_file(&document).map_err(|error| refused(error.at(&file)))?;
            return self.cases(list);
        }
        if cases::is_case(&document) {
            self.no_sweep("a short form")?;
            return self.case(&file);
        }
        for text in &self.sweep {
            input::set_sweep(&mut document, text).map_err(refused)?;
        }
        if !self.percentiles.is_empty() {
            input::set(&mut document, "percentiles", Value::from(self.percentiles.clone()));
        }
        let points = input::expand(&document, MOST_POINTS).map_err(refused)?;
        let names = self.solvers(&document)?;
        if points.len() > 1 || !points[0].at.is_empty() {
            let one = [("--demands-only", self.demands_only), ("--write", self.write.is_some())];
            if let Some((flag, _)) = one.iter().find(|(_, given)| *given) {
                return Err(refused(anyhow!("{flag} is for one model, and this is a sweep")));
            }
            return self.swept(&file, &points, &names);
        }
        if self.csv.is_some() {
            return Err(refused(anyhow!(
                "--csv is for sweeps: add --sweep population=1:600:10, or write a number of the file as \
                 {{ from = 1, to = 600, step = 10 }}"
            )));
        }
        let model = model(&file, &points[0].model)?;
        if self.demands_only {
            return demands::print(&model, self.format);
        }
        if let Some(path) = &self.write {
            write(path, &model)?;
        }
        self.answer(&file, document, &model, &names)
    }

    fn answer(
        &self,
        file: &File,
        document: Value,
        model: &Model,
        names: &[String],
    ) -> anyhow::Result<Exit> {
        let mut answers = Vec::new();
        for name in names {
            answers.push((name.clone(), self.solved(model, name)?));
        }
        let plots = match &self.plot {
            Some(path) => self.draw(path, file, document, (model, &answers))?,
            None => Vec::new(),
        };
        output::print(self.format, &json::answers(model, &answers), || {
            let mut printed = match &answers[..] {
                [(_, only)] => human::answer(model, only),
                several => human::comparison(model, several),
            };
            sweep::print_small(&plots, &mut printed);
            printed
        })?;
        Ok(Exit::Done)
    }

    fn layered(&self, file: &File, model: &Layered) -> anyhow::Result<Exit> {
        self.no_sweep(LAYERED)?;
        let percentiles = (!self.percentiles.is_empty()).then_some("--percentiles");
        if let Some(flag) = self.flags.first_given().or(percentiles) {
            return Err(refused(anyhow!("{flag} is not for {LAYERED}")));
        }
        let solution = kendall_queueing::lqn::solve(model)
            .map_err(|error| refused(file.refuse(error.path().as_deref(), &error)))?;
        if let Some(path) = &self.write {
            let text = if is_toml(path) {
                model.to_toml()
            } else {
                ending(path, "lqnx")?;
                kendall_textbook::lqn::write(model)
            };
            output::file(path, &text)?;
        }
        if let Some(path) = &self.plot {
            let Some(network) = layered::network(model, &solution) else {
                return Err(refused(anyhow!("--plot: the model has too many tasks to be drawn")));
            };
            drawing::write(path, "Model", &[Drawn::from(&network)])?;
        }
        output::print(self.format, &layered::json(model, &solution), || {
            layered::human(model, &solution)
        })?;
        Ok(Exit::Done)
    }

    /// Draws a solved model, and one class also against what loads it; returns the plots of that.
    fn draw(
        &self,
        path: &Path,
        file: &File,
        mut document: Value,
        (model, answers): (&Model, &[(String, Solved)]),
    ) -> anyhow::Result<Vec<Plot>> {
        let formula = |(_, answer): &&(String, Solved)| matches!(answer, Solved::Formula(_));
        let names: Vec<String> =
            answers.iter().filter(formula).map(|(name, _)| name.clone()).collect();
        let mut plots = Vec::new();
        // A simulation of each point would take its time: only a sweep that is asked for has them.
        if let Some(text) = sweep::of_its_own(model).filter(|_| !names.is_empty()) {
            input::set_sweep(&mut document, &text).map_err(refused)?;
            let points = input::expand(&document, MOST_POINTS).map_err(refused)?;
            let rows = self.rows(file, &points, &names)?;
            plots = sweep::Sweep { model, rows: &rows, several: names.len() > 1 }.plots().to_vec();
        }
        let first = answers.first().map(|(_, answer)| answer);
        drawing::write(path, "Model", &sweep::drawings(model, first, &plots))?;
        Ok(plots)
    }

    /// The model as written: from the file, or from the flags.
    fn document(&self) -> anyhow::Result<File> {
        if input::is_file(&self.model) {
            if let Some(flag) = self.flags.first_given() {
                return Err(refused(anyhow!(
                    "{flag} is for kinds such as mmm; in a file, change the key, or sweep it"
                )));
            }
            return File::read(&self.model).map_err(refused);
        }
        let quantiles = !self.percentiles.is_empty();
        let value = self.flags.model(&self.model, quantiles).map_err(refused)?;
        Ok(File::of_flags(&self.model, value))
    }

    /// What is for full models only.
    fn no_sweep(&self, what: &str) -> anyhow::Result<()> {
        let flags = [
            ("--sweep", !self.sweep.is_empty()),
            ("--csv", self.csv.is_some()),
            ("--plot", self.plot.is_some() && what != LAYERED),
            ("--write", self.write.is_some() && what != LAYERED),
            ("--solver", self.solver.is_some()),
            ("--compare", !self.compare.is_empty()),
            ("--demands-only", self.demands_only),
        ];
        match flags.iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((flag, _)) => Err(refused(anyhow!(
                "{flag} is for model files without `kind`, and this is {what} (docs/models.md)"
            ))),
        }
    }

    fn solvers(&self, document: &Value) -> anyhow::Result<Vec<String>> {
        let written = document.get("solver").and_then(Value::as_str);
        let names = match (&self.solver, self.compare.is_empty()) {
            (_, false) => self.compare.clone(),
            (Some(name), true) => vec![name.clone()],
            (None, true) => vec![written.unwrap_or("auto").to_owned()],
        };
        for name in &names {
            Solver::from_str(name).map_err(refused)?;
        }
        Ok(names)
    }

    fn swept(
        &self,
        file: &File,
        points: &[input::Point],
        names: &[String],
    ) -> anyhow::Result<Exit> {
        let rows = self.rows(file, points, names)?;
        let last = rows.iter().rposition(|row| row.answer.is_ok()).unwrap_or(0);
        let model = model(file, &points[last / names.len()].model)?;
        let sweep = sweep::Sweep { model: &model, rows: &rows, several: names.len() > 1 };
        if let Some(path) = &self.csv {
            output::file(path, &sweep.table().to_csv())?;
        }
        if let Some(path) = &self.plot {
            let answer = rows[last].answer.as_ref().ok();
            drawing::write(path, "Model", &sweep::drawings(&model, answer, &sweep.plots()))?;
        }
        output::print(self.format, &sweep.json(), || sweep.document())?;
        if rows.iter().all(|row| row.answer.is_err())
            && let Some(Err(message)) = rows.first().map(|row| &row.answer)
        {
            return Err(refused(anyhow!("no point has a solution; the first: {message}")));
        }
        Ok(Exit::Done)
    }

    fn rows(
        &self,
        file: &File,
        points: &[input::Point],
        names: &[String],
    ) -> anyhow::Result<Vec<sweep::Row>> {
        let mut rows = Vec::new();
        for point in points {
            let model = model(file, &point.model)?;
            for name in names {
                // A point without a solution (an unstable one) is part of the picture.
                let answer = self.solved(&model, name).map_err(|error| format!("{error:#}"));
                rows.push(sweep::Row { at: point.at.clone(), solver: name.clone(), answer });
            }
        }
        Ok(rows)
    }

    /// A model in its short form, or a worked case.
    fn case(&self, file: &File) -> anyhow::Result<Exit> {
        let solved = cases::check_case(&file.value)
            .and_then(|()| cases::answer(&file.value, &self.percentiles));
        let answer = solved.map_err(|error| refused(error.at(file)))?;
        let checks = cases::checks(&file.value, &answer);
        output::print(self.format, &json::case(&answer, &checks), || {
            human::case(&answer, &checks)
        })?;
        let met = checks.iter().all(|check| check.met);
        Ok(if met { Exit::Done } else { Exit::CheckFailed })
    }

    /// A file of worked cases.
    fn cases(&self, list: &[Value]) -> anyhow::Result<Exit> {
        let solved: Vec<cases::Solved> = list
            .iter()
            .enumerate()
            .map(|(index, case)| cases::Solved::of(index, case, &self.percentiles))
            .collect();
        output::print(self.format, &json::cases(&solved), || human::cases(&solved))?;
        let met = solved.iter().all(cases::Solved::met);
        Ok(if met { Exit::Done } else { Exit::CheckFailed })
    }

    fn solved(&self, model: &Model, name: &str) -> anyhow::Result<Solved> {
        let solver = Solver::from_str(name).map_err(refused)?;
        if solver == Solver::Simulation {
            let answer = self.simulation.simulate(model)?;
            return Ok(Solved::Simulated(Box::new(answer)));
        }
        solve(model, solver).map(|solution| Solved::Formula(Box::new(solution))).map_err(refused)
    }
}

fn write(path: &Path, model: &Model) -> anyhow::Result<()> {
    let text = if is_toml(path) {
        model.to_toml("").map_err(refused)?
    } else {
        ending(path, "jmva")?;
        kendall_textbook::jmva::write(model).map_err(refused)?
    };
    output::file(path, &text)
}

fn is_toml(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "toml")
}

fn ending(path: &Path, wanted: &str) -> anyhow::Result<()> {
    if path.extension().is_some_and(|ending| ending == wanted) {
        return Ok(());
    }
    Err(refused(anyhow!("--write {}: write a file .toml or .{wanted}", path.display())))
}

/// Reads the model of a file, with its sweeps replaced by numbers.
fn model(file: &File, document: &Value) -> anyhow::Result<Model> {
    let table = input::table(document)
        .map_err(|problem| refused(file.refuse(Some(&problem.key), &problem)))?;
    Model::read(&table).map_err(|error| refused(file.refuse(error.path(), &error)))
}
