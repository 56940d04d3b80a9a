//! `kendall fit usl`: the Universal Scalability Law.

use std::path::PathBuf;

use kendall_queueing::scalability::{self, Noise, Options, Prediction, UslError, UslFit};
use kendall_report::document::{Section, Table, Unit};
use kendall_report::plot::{Axis, Mark, Plot, Point, Series};
use kendall_stats::estimate::figures;
use serde::Serialize;

use super::table::Measurements;
use crate::drawing;
use crate::exit::{Exit, refused};
use crate::output::{self, Format};

/// Points of the fitted curve in a plot.
const CURVE_POINTS: u32 = 120;

/// Fits the Universal Scalability Law to loads and throughputs
///
/// X(N) = γN / (1 + α(N − 1) + βN(N − 1)). The file has a header; the columns of load and
/// throughput are found by their names (`concurrency`, `load`, `clients`, `users`, `threads`, `n`;
/// `throughput`, `rate`, `x`), or are the first two. No measurement at N = 1 is needed. Of a folder of
/// results, load is the factor of such a name, else the first, and the measurements are the means of its
/// configurations; where other factors vary, --at names the curve.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  kendall fit usl scaling.csv --predict 16,32,64 --plot scaling.svg"
)]
pub(crate) struct FitUsl {
    /// CSV file with one measurement a row, or a folder of results of `kendall run`
    #[arg(value_name = "DATA.csv|RESULTS")]
    file: PathBuf,
    /// Column of the load N (its name, or its number from 1)
    #[arg(long, value_name = "COLUMN")]
    load: Option<String>,
    /// Takes only rows with this text in a column, such as system.workers=8; may be repeated
    #[arg(long, value_name = "COLUMN=TEXT")]
    at: Vec<String>,
    /// Column of the throughput X
    #[arg(long, value_name = "COLUMN")]
    throughput: Option<String>,
    /// Throughput at N = 1, if known; otherwise it is fitted
    #[arg(long, value_name = "RATE")]
    gamma: Option<f64>,
    /// Fits Amdahl's law instead: β = 0
    #[arg(long)]
    amdahl: bool,
    /// Lets contention and coherency be below 0
    #[arg(long)]
    unbounded: bool,
    /// Loads to predict the throughput at
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    predict: Vec<f64>,
    /// Confidence of intervals and bands
    #[arg(long, default_value = "0.95", value_parser = kendall_units::parse_share)]
    confidence: f64,
    /// How errors grow with the throughput
    #[arg(long, value_enum, default_value_t)]
    noise: NoiseOption,
    /// Writes a plot; file ending .svg or .html
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum NoiseOption {
    /// The likelier one; constant unless the other is clearly so
    #[default]
    Auto,
    /// The same at all loads
    Constant,
    /// A share of the throughput
    Proportional,
}

#[derive(Serialize)]
struct Answer<'a> {
    measurements: usize,
    #[serde(flatten)]
    fit: &'a UslFit,
    efficiencies: Vec<Efficiency>,
    predictions: &'a [Prediction],
}

/// What a measurement reached of linear growth: X / (γN).
#[derive(Serialize)]
struct Efficiency {
    load: f64,
    throughput: f64,
    efficiency: f64,
}

fn efficiencies(measured: &[(f64, f64)], fit: &UslFit) -> Vec<Efficiency> {
    let of = |&(load, throughput): &(f64, f64)| Efficiency {
        load,
        throughput,
        efficiency: throughput / (fit.gamma.value * load),
    };
    measured.iter().map(of).collect()
}

impl FitUsl {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        // A folder of results: its configurations are the measurements.
        let mut table = if self.file.is_dir() {
            Measurements::read(&self.file.join("tables/configurations.csv"))?
        } else {
            Measurements::read(&self.file)?
        };
        for at in &self.at {
            let form = || table.refuse(&format!("`--at {at}`: write it as COLUMN=TEXT"));
            let (column, text) = at.split_once('=').ok_or_else(form)?;
            table.keep(table.column(column)?, text)?;
        }
        let measured = self.measured(&table)?;
        let options = Options {
            gamma: self.gamma,
            amdahl: self.amdahl,
            unbounded: self.unbounded,
            confidence: self.confidence,
            noise: match self.noise {
                NoiseOption::Auto => Noise::Auto,
                NoiseOption::Constant => Noise::Constant,
                NoiseOption::Proportional => Noise::Proportional,
            },
        };
        let fit = scalability::fit(&measured, &options).map_err(|error| match &error {
            UslError::Measurement { index, .. } => table.refuse_row(*index, &error.to_string()),
            _ => table.refuse(&error.to_string()),
        })?;
        let predictions = self
            .predict
            .iter()
            .map(|load| fit.predict(*load))
            .collect::<Result<Vec<_>, _>>()
            .map_err(refused)?;
        if let Some(path) = &self.plot {
            let plot = plot(&measured, &fit, &predictions);
            drawing::write(path, &plot.title, &[(&plot).into()])?;
        }
        output::print(
            self.format,
            &Answer {
                measurements: measured.len(),
                fit: &fit,
                efficiencies: efficiencies(&measured, &fit),
                predictions: &predictions,
            },
            || document(&fit, &predictions, &measured),
        )?;
        Ok(Exit::Done)
    }

    /// Columns of the factors that vary in a folder of results: those before the number of repetitions.
    fn factors(&self, table: &Measurements) -> Vec<usize> {
        let end = table.columns.iter().position(|name| name == "repetitions");
        let end = end.filter(|_| self.file.is_dir()).unwrap_or(0);
        (0..end).filter(|column| table.texts(*column).len() > 1).collect()
    }

    fn measured(&self, table: &Measurements) -> anyhow::Result<Vec<(f64, f64)>> {
        let loads = ["load", "concurrency", "clients", "users", "threads", "workers", "n"];
        let rates = ["throughput", "rate", "x", "tps", "capacity"];
        let find = |asked: &Option<String>, names: &[&str], position: usize| match asked {
            Some(name) => table.column(name),
            None => match table.named_like(names).first() {
                Some(column) => Ok(*column),
                None => table.column(&(position + 1).to_string()),
            },
        };
        let factors = self.factors(table);
        let is_load =
            |factor: &&usize, name: &str| table.columns[**factor].ends_with(&format!(".{name}"));
        let of_name = loads.iter().find_map(|name| factors.iter().find(|one| is_load(one, name)));
        let load = match of_name.or(factors.first()).filter(|_| self.load.is_none()) {
            Some(factor) => *factor,
            None => find(&self.load, &loads, 0)?,
        };
        if let Some(other) = factors.iter().find(|factor| **factor != load) {
            let (name, levels) = (&table.columns[*other], table.texts(*other));
            return Err(table.refuse(&format!(
                "{name} varies beside the load {} ({}), and the law is of one curve; choose it with \
                 --at {name}={}",
                table.columns[load],
                levels.join(", "),
                levels[0]
            )));
        }
        let throughput = find(&self.throughput, &rates, 1)?;
        if load == throughput {
            let message = "load and throughput are the same column; name them with --load and \
                           --throughput";
            return Err(table.refuse(message));
        }
        Ok(table.numbers(load)?.into_iter().zip(table.numbers(throughput)?).collect())
    }
}

fn document(fit: &UslFit, predictions: &[Prediction], measured: &[(f64, f64)]) -> Section {
    let title = format!("Universal Scalability Law, {} measurements", measured.len());
    let mut document = Section::new("usl", title);
    document.table(coefficients(fit));
    document.text(format!(
        "residual standard error {} on {}, R² {:.4}",
        figures(fit.residual_standard_error, 4),
        kendall_units::counted(fit.degrees_of_freedom, "degree of freedom"),
        fit.r_squared
    ));
    if let Some(share) = fit.relative_standard_error {
        document.text(format!(
            "errors are taken as shares of the throughput ({} %); --noise constant takes them as \
             equal",
            figures(100.0 * share, 3)
        ));
    }
    let or_none = |value: Option<f64>| {
        value.map_or_else(|| "none (α is 0)".to_owned(), |value| figures(value, 5))
    };
    document.text(peak(fit));
    document.text(format!("limit   X {} (γ/α, Amdahl)", or_none(fit.limit)));
    document.text(format!(
        "optimal N {} (1/α, where linear growth meets the limit)",
        or_none(fit.optimal_load)
    ));
    if fit.alpha.at_bound || fit.beta.at_bound {
        document.text(
            "* least squares would make it negative; it is set to 0, and the errors of the others \
             assume that it is 0",
        );
    }
    document.table(
        Table::of("efficiencies", "Efficiency", efficiencies(measured, fit))
            .column("load", "N", Unit::Number, |one| one.load)
            .column("throughput", "throughput", Unit::Number, |one| figures(one.throughput, 7))
            .column("efficiency", "efficiency", Unit::Number, |one| {
                format!("{:.1} %", 100.0 * one.efficiency)
            })
            .table(),
    );
    let band = format!("{:.0} % band of the mean", 100.0 * fit.confidence);
    let predicted = Table::of("predictions", "Predictions", predictions)
        .column("load", "N", Unit::Number, |one| one.load)
        .column("throughput", "throughput", Unit::Number, |one| figures(one.throughput, 7))
        .column("efficiency", "efficiency", Unit::Number, |one| {
            format!("{:.1} %", 100.0 * one.efficiency)
        })
        .column("band", band, Unit::Text, |one| {
            let beyond = if one.extrapolated { "  extrapolated" } else { "" };
            format!("[{}, {}]{beyond}", figures(one.low, 5), figures(one.high, 5))
        });
    document.table(predicted.table());
    document
}

fn coefficients(fit: &UslFit) -> Table {
    let rows =
        [("α (contention)", &fit.alpha), ("β (coherency)", &fit.beta), ("γ (of one)", &fit.gamma)];
    let shown = |value: Option<f64>, digits| value.map(|value| figures(value, digits));
    let heading = format!("{:.0} % interval", 100.0 * fit.confidence);
    Table::of("coefficients", "Coefficients", rows)
        .column("coefficient", "coefficient", Unit::Text, |(name, _)| *name)
        .column("value", "value", Unit::Number, |(_, one)| figures(one.value, 7))
        .column("error", "std. error", Unit::Number, |(_, one)| shown(one.standard_error, 5))
        .column("t", "t", Unit::Number, |(_, one)| shown(one.t, 4))
        .column("p", "p", Unit::Number, |(_, one)| match one.p_value {
            Some(p) if p < 2e-16 => Some("< 2e-16".to_owned()),
            p => shown(p, 3),
        })
        .column("interval", heading, Unit::Text, |(_, one)| {
            let interval = one.interval;
            let interval = interval.map_or_else(String::new, |(low, high)| {
                format!("[{}, {}]", figures(low, 5), figures(high, 5))
            });
            format!("{interval}{}", if one.at_bound { " *" } else { "" })
        })
        .table()
}

fn peak(fit: &UslFit) -> String {
    match (fit.peak_throughput, fit.peak_load) {
        (Some(throughput), Some(load)) => {
            format!("peak    X {} at N {}", figures(throughput, 5), figures(load, 5))
        }
        _ if fit.beta.value > 0.0 || fit.alpha.value >= 1.0 => {
            "peak    none: throughput does not rise beyond N 1, so more never helps".to_owned()
        }
        _ => "peak    X keeps growing (β is 0)".to_owned(),
    }
}

fn plot(measured: &[(f64, f64)], fit: &UslFit, predictions: &[Prediction]) -> Plot {
    let last = measured.iter().map(|(n, _)| *n).chain(predictions.iter().map(|p| p.load));
    let last = last.fold(1.0, f64::max);
    let steps = (1..=CURVE_POINTS).map(|i| last * f64::from(i) / f64::from(CURVE_POINTS));
    let at: Vec<Prediction> = steps.filter_map(|n| fit.predict(n).ok()).collect();
    let line = |of: &dyn Fn(&Prediction) -> f64| -> Vec<Point> {
        at.iter().map(|p| Point::new(p.load, of(p).max(0.0))).collect()
    };
    let series = |name: &str, mark, color, points| Series::new(name, mark, color, points);
    let peak = fit.peak_load.map_or_else(
        || "It does not peak.".to_owned(),
        |n| format!("It peaks at N = {}.", figures(n, 4)),
    );
    Plot {
        id: "usl".to_owned(),
        title: "Throughput against load, with the Universal Scalability Law".to_owned(),
        description: format!("Measured points, the fitted law and its band. {peak}"),
        x: Axis::from_zero("load N"),
        y: Axis::from_zero("throughput X"),
        series: vec![
            series("band", Mark::Dashed, 1, line(&|p| p.low)),
            series("band", Mark::Dashed, 1, line(&|p| p.high)),
            series("law", Mark::Dashed, 0, line(&|p| p.throughput)),
            series(
                "measured",
                Mark::Points,
                0,
                measured.iter().map(|(n, x)| Point::new(*n, *x)).collect(),
            ),
        ],
    }
}
