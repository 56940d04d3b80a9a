//! Models beside the measurement.

mod drawing;
mod laws;
mod stations;

use std::collections::BTreeSet;

use kendall_fit::curve::{LeftOut, inferred, of_one_point};
use kendall_fit::model::Calibrated;
use kendall_fit::saturation::Saturation;
use kendall_fit::score::{Comparison, Device, Errors, Variable};

use crate::ModelFile;
use crate::document::{Block, Level, Section, Table, Unit};
use crate::number;
use crate::plot::{Axis, Mark, Plot, Point, Series};
use crate::prepared::Prepared;
use kendall_observations::{Configuration, Curve, Observations};

use super::time_axis;

/// Curves with plots at most; the tables hold all.
const MOST_PLOTTED: usize = 3;

/// Models of every curve, and those that are left out.
fn compared<'a>(data: &'a Prepared<'_>) -> (Vec<Of<'a>>, Vec<(&'a Curve, &'a [LeftOut])>) {
    let of = data.models().filter(|(_, beside)| !beside.comparisons.is_empty());
    let left_out = data.models().map(|(curve, beside)| (curve, beside.left_out.as_slice()));
    (of.map(|(curve, beside)| (curve, beside.comparisons.as_slice())).collect(), left_out.collect())
}

/// Every model of every curve as a file, and the pool that it shows.
pub(crate) fn files(data: &Prepared<'_>) -> Vec<ModelFile> {
    let title = if data.study.title.is_empty() { &data.study.name } else { &data.study.title };
    let mut files: Vec<ModelFile> = Vec::new();
    let curves = data.models().zip(data.saturations()).map(|((curve, beside), (_, found))| {
        let shown = found.and_then(|found| inferred_pool(data, curve, found));
        (curve, beside.comparisons.as_slice(), shown)
    });
    let curves =
        curves.filter(|(_, comparisons, shown)| !comparisons.is_empty() || shown.is_some());
    for (number, (curve, comparisons, shown)) in (1..).zip(curves) {
        let mut add = |model: &str, on: &str, assumes: &str, calibrated: &Calibrated| {
            let file = format!("{number}-{}.toml", slug(model));
            let told = files.iter().any(|known| known.file == file);
            let of = format!("{model}: {} (from {title})\nCalibrated on {on}.", curve.name);
            if let Some(text) = calibrated.to_file(&of, assumes).ok().filter(|_| !told) {
                let (curve, model) = (curve.name.clone(), model.to_owned());
                files.push(ModelFile { file, curve, model, text });
            }
        };
        if let Some(pool) = &shown {
            add(&pool.model.name, "all runs of the curve", "exponential times", pool);
        }
        for one in comparisons {
            if let Some(calibrated) = &one.calibrated {
                add(&one.model, &one.calibrated_on, &one.assumes, calibrated);
            }
        }
    }
    files
}

/// The pool that a curve shows and no counter, at the load of its highest throughput.
fn inferred_pool(data: &Prepared<'_>, curve: &Curve, found: &Saturation) -> Option<Calibrated> {
    let station = found.station.as_ref()?;
    let light = &data.along(curve).next()?.point;
    let at = data.along(curve).max_by(|a, b| a.throughput().total_cmp(&b.throughput()))?;
    inferred(station, light, &at.point).ok()
}

/// Letters and digits, others as one `-`.
fn slug(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric();
    let parts = text.split(|c| !plain(c)).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("-").to_lowercase()
}

/// The files, by their names, and those of the best-known curve in full.
fn as_files(section: &mut Section, data: &Prepared<'_>) {
    let files = files(data);
    let Some(first) = files.first() else { return };
    section.heading("As files that `kendall solve` takes");
    section.text(format!(
        "{} lie in models/, each at the load of its curve's highest throughput, with the origin of \
         every number as comments. Change a number, or the population, and solve again: kendall \
         solve models/{}",
        super::capitalized(&number::count(files.len(), "model")),
        first.file
    ));
    for file in files.iter().filter(|file| file.curve == first.curve) {
        section.blocks.push(Block::Verbatim(file.text.clone()));
    }
}

pub(crate) fn chapter(data: &Prepared<'_>) -> Option<Section> {
    let (compared, left_out) = compared(data);
    let left_out = reasons(&left_out);
    let mut section = Section::new("models", "Models beside the measurement");
    if compared.is_empty() && left_out.is_empty() {
        let without = without_a_curve(data);
        let rows: Vec<Of<'_>> = without.iter().map(|(curve, of)| (curve, of.as_slice())).collect();
        let table = stations::table(data, &rows);
        section.text(
            "No load is varied, so no point is held out: each row has the service time of its own \
             configuration, and what M/M/m predicts from it is the queue, if arrivals are Poisson and \
             service is exponential.",
        );
        let has_rows = !table.rows.is_empty();
        section.table(table);
        return has_rows.then_some(section);
    }
    section.text(
        "Each model takes its parameters from one or two points of a curve and is compared with \
         the others; points that calibrated it count in no mean error, and the last table shows \
         every one. Best first; where a model errs, what it assumes says why.",
    );
    section.list(ranking(&compared));
    if !left_out.is_empty() {
        section.heading("Left out, since they do not apply");
        section.list(left_out);
    }
    section.table(errors(&compared));
    let shown = best_known(data, &compared);
    if shown.len() < compared.len() {
        section.text(format!(
            "Plots show {} of {} curves, those of highest throughput and of different mixes first; the tables hold \
             all.",
            shown.len(),
            compared.len()
        ));
    }
    for (curve, comparisons) in shown {
        for variable in [
            Variable::Throughput,
            Variable::ClientResponseTime,
            Variable::TierResponseTime,
            Variable::BackendResponseTime,
        ] {
            section.plot(plot(curve, comparisons, variable, data));
        }
        for plot in laws::plots(data, curve, comparisons) {
            section.plot(plot);
        }
    }
    drawings(&mut section, data, &compared);
    described(&mut section, &compared);
    section.table(stations::table(data, &compared));
    section.table(devices(&compared));
    section.table(points(&compared));
    as_files(&mut section, data);
    Some(section)
}

type Of<'a> = (&'a Curve, &'a [Comparison]);

/// Stations of each configuration by itself, in a study without a load curve.
fn without_a_curve(data: &Prepared<'_>) -> Vec<(Curve, Vec<Comparison>)> {
    if !data.curves.is_empty() || data.is_job() {
        return Vec::new();
    }
    let alone = |(index, configuration): (usize, &Configuration)| {
        let curve = Curve { name: data.name_of(configuration), configurations: vec![index] };
        (curve, of_one_point(&configuration.point))
    };
    data.configurations.iter().enumerate().map(alone).collect()
}

/// Why models are left out, once a model and reason with the curves.
fn reasons(left_out: &[(&Curve, &[LeftOut])]) -> Vec<String> {
    let mut reasons: Vec<(&LeftOut, Vec<&str>)> = Vec::new();
    for (curve, list) in left_out {
        for one in *list {
            match reasons.iter_mut().find(|(known, _)| *known == one) {
                Some((_, curves)) => curves.push(&curve.name),
                None => reasons.push((one, vec![&curve.name])),
            }
        }
    }
    let words = |(one, curves): (&LeftOut, Vec<&str>)| {
        format!("{} ({}): {}.", super::capitalized(&one.model), curves.join("; "), one.why)
    };
    reasons.into_iter().map(words).collect()
}

/// Each model of the curve of highest throughput as a drawing.
fn drawings(section: &mut Section, data: &Observations, compared: &[Of<'_>]) {
    let best = best_known(data, compared);
    let Some((curve, comparisons)) = best.first() else { return };
    let mut told: Vec<&str> = Vec::new();
    let mut drawn = Vec::new();
    for comparison in *comparisons {
        if told.contains(&comparison.model.as_str()) {
            continue;
        }
        told.push(&comparison.model);
        drawn.extend(drawing::of(comparison).map(Block::Drawing));
    }
    if !drawn.is_empty() {
        section.heading(format!("Drawings of the models: {}", curve.name));
        section.blocks.extend(drawn);
    }
}

/// Curves to plot, the fastest first: of each mix of operations its fastest, and then the others, as far as
/// there is room.
fn best_known<'a>(
    data: &Observations,
    compared: &'a [Of<'a>],
) -> Vec<(&'a Curve, &'a [Comparison])> {
    let most = |curve: &Curve| data.along(curve).map(|c| c.throughput()).fold(0.0, f64::max);
    let faster = |a: &(&Curve, _), b: &(&Curve, _)| most(b.0).total_cmp(&most(a.0));
    let mut all: Vec<_> = compared.to_vec();
    all.sort_by(faster);
    let mut seen = BTreeSet::new();
    let (first, more): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(curve, _)| seen.insert(super::mix(data, curve)));
    let mut shown: Vec<_> = first.into_iter().chain(more).take(MOST_PLOTTED).collect();
    shown.sort_by(faster);
    shown
}

/// How a family of models errs over all curves, for one quantity.
pub(crate) struct Ranked<'a> {
    pub(crate) family: &'a str,
    pub(crate) variable: Variable,
    /// Over all curves, where it was not calibrated; infinite where it has no answer there.
    pub(crate) mean: f64,
    /// The largest at any point of any curve.
    pub(crate) worst: f64,
    unanswered: usize,
}

impl<'a> Ranked<'a> {
    fn of(compared: &[Of<'a>], family: &'a str, variable: Variable) -> Self {
        let here = || {
            let all = compared.iter().flat_map(|(_, list)| list.iter());
            all.filter(move |one| one.family == family && one.variable == variable)
        };
        let means: Vec<f64> = here().filter_map(|one| Some(one.errors()?.mean)).collect();
        let worst = here().filter_map(|one| Some(one.errors_anywhere()?.worst)).fold(0.0, f64::max);
        let count = kendall_units::exact_f64(means.len());
        let mean = if means.is_empty() { f64::INFINITY } else { means.iter().sum::<f64>() / count };
        Self { family, variable, mean, worst, unanswered: here().map(Comparison::unanswered).sum() }
    }

    /// `mean error of 7.3 % for the throughput, at most 12 % at any point`.
    pub(crate) fn errors_in_words(&self) -> String {
        // Beyond it, digits say nothing.
        const MOST: f64 = 2.0;
        if self.mean > MOST {
            return format!(
                "mean error of more than {} for the {}",
                number::percent(MOST),
                self.variable.name()
            );
        }
        format!(
            "mean error of {} for the {}, at most {} at any point",
            number::percent(self.mean),
            self.variable.name(),
            number::percent(self.worst)
        )
    }
}

/// Every family of models and what it is compared by, best first.
fn ranked<'a>(compared: &[Of<'a>]) -> Vec<Ranked<'a>> {
    let mut ranked: Vec<Ranked<'_>> = Vec::new();
    for one in compared.iter().flat_map(|(_, list)| list.iter()) {
        let known = |of: &Ranked<'_>| of.family == one.family && of.variable == one.variable;
        if !ranked.iter().any(known) {
            ranked.push(Ranked::of(compared, &one.family, one.variable));
        }
    }
    ranked.sort_by(|a, b| a.mean.total_cmp(&b.mean));
    ranked
}

/// The best model that applies to a curve, and how it errs over all.
pub(crate) fn best<'a>(
    data: &'a Prepared<'_>,
    curve: &Curve,
) -> Option<(&'a Comparison, Ranked<'a>)> {
    let (compared, _) = compared(data);
    let (_, here) = compared.iter().find(|(one, _)| one.name == curve.name)?;
    ranked(&compared).into_iter().find_map(|of| {
        let is = |one: &&Comparison| {
            one.family == of.family && one.variable == of.variable && one.errors().is_some()
        };
        Some((here.iter().find(is)?, of))
    })
}

fn ranking(compared: &[Of<'_>]) -> Vec<String> {
    // The name that the tables have, where all curves have the same.
    let models = |family: &str| -> BTreeSet<&str> {
        let all = compared.iter().flat_map(|(_, list)| list.iter());
        all.filter(|one| one.family == family).map(|one| one.model.as_str()).collect()
    };
    ranked(compared)
        .into_iter()
        .map(|of| {
            let models: Vec<&str> = models(of.family).into_iter().collect();
            let name = match models.as_slice() {
                [only] => only,
                _ => of.family,
            };
            let none = if of.unanswered > 0 {
                format!("; no answer at {}", number::count(of.unanswered, "point"))
            } else {
                String::new()
            };
            if of.mean.is_infinite() {
                return format!("{name}: {} at no point{none}.", of.variable.name());
            }
            format!("{name}: {}{none}.", of.errors_in_words())
        })
        .collect()
}

fn errors(compared: &[Of<'_>]) -> Table {
    let title = "Error of each model where it was not calibrated, and the largest anywhere";
    let of = |errors: Option<Errors>, pick: fn(&Errors) -> f64| {
        (errors.as_ref().map(pick), "no point with an answer")
    };
    Table::of("model-errors", title, all(compared))
        .column("curve", "Curve", Unit::Text, |(curve, _)| curve.name.as_str())
        .column("model", "Model", Unit::Text, |(_, one)| one.model.as_str())
        .column("variable", "What is compared", Unit::Text, |(_, one)| one.variable.name())
        .column("mean_absolute_error", "Mean error (%)", Unit::Percent, |(_, one)| {
            of(one.errors(), |errors| errors.mean)
        })
        .column("largest_absolute_error", "Largest (%)", Unit::Percent, |(_, one)| {
            of(one.errors(), |errors| errors.worst)
        })
        .column("largest_error_anywhere", "Anywhere (%)", Unit::Percent, |(_, one)| {
            of(one.errors_anywhere(), |errors| errors.worst)
        })
        .column("points", "Points", Unit::Count, |(_, one)| {
            kendall_units::exact_f64(one.errors().map_or(0, |errors| errors.points))
        })
        .column("unanswered", "No answer", Unit::Count, |(_, one)| {
            kendall_units::exact_f64(one.unanswered())
        })
        .column("bottleneck", "Names as bottleneck", Unit::Text, |(_, one)| {
            one.bottleneck.clone().unwrap_or_default()
        })
        .table()
        .folded_if_long()
}

fn all<'a>(compared: &'a [Of<'a>]) -> impl Iterator<Item = (&'a Curve, &'a Comparison)> {
    compared.iter().flat_map(|(curve, list)| list.iter().map(move |one| (*curve, one)))
}

fn plot(
    curve: &Curve,
    comparisons: &[Comparison],
    variable: Variable,
    data: &Observations,
) -> Plot {
    let shown: Vec<&Comparison> =
        comparisons.iter().filter(|comparison| comparison.variable == variable).collect();
    let measured = || shown.first().into_iter().flat_map(|comparison| &comparison.points);
    let (label, factor) = if variable.is_time() {
        time_axis(variable.name(), measured().map(|point| point.measured))
    } else {
        ("throughput (1/s)".to_owned(), 1.0)
    };
    // A model that runs away must not flatten what was measured.
    let top = 2.5 * measured().map(|point| point.measured).fold(0.0, f64::max);
    let mut series = vec![Series::new(
        "measured",
        Mark::Line,
        0,
        measured().map(|p| Point::new(p.load, p.measured * factor)),
    )];
    let mut cut = false;
    for (place, comparison) in shown.iter().enumerate() {
        let mut points = Vec::new();
        for point in &comparison.points {
            match point.predicted {
                Ok(value) if value <= top => points.push(Point::new(point.load, value * factor)),
                Ok(_) => {
                    cut = true;
                    points.push(Point::new(point.load, f64::NAN));
                }
                Err(_) => points.push(Point::new(point.load, f64::NAN)),
            }
        }
        if points.iter().any(|point| point.y.is_finite()) {
            series.push(Series::new(&comparison.model, Mark::Dashed, place + 1, points));
        }
    }
    if series.len() == 1 {
        series.clear();
    }
    let cut = if cut {
        " Predictions beyond 2.5 times the highest measured value are left out."
    } else {
        ""
    };
    let load = data.load.as_ref().map_or("load", |load| load.label.as_str());
    Plot {
        id: format!("plot-model-{}-{}", curve.configurations[0], label_of(variable)),
        title: format!("Models and measurement: {}, {}", curve.name, variable.name()),
        description: format!("Dashed lines are models; where one has no answer it breaks.{cut}"),
        x: Axis::from_zero(load),
        y: Axis::from_zero(label),
        series,
    }
}

fn label_of(variable: Variable) -> &'static str {
    match variable {
        Variable::ClientResponseTime => "client",
        Variable::TierResponseTime => "tier",
        Variable::Throughput => "throughput",
        Variable::BackendResponseTime => "backend",
    }
}

/// What each family of models assumes, once, with the calibration of the first curve that has it.
fn described(section: &mut Section, compared: &[Of<'_>]) {
    section.heading("What each model assumes, and what it was calibrated on");
    let mut told: Vec<&String> = Vec::new();
    let mut caveats: Vec<String> = Vec::new();
    let mut items = Vec::new();
    for (curve, comparison) in all(compared) {
        for caveat in &comparison.caveats {
            if !caveats.contains(caveat) {
                caveats.push(caveat.clone());
            }
        }
        if told.contains(&&comparison.family) {
            continue;
        }
        told.push(&comparison.family);
        items.push(format!(
            "{}: {}. For {}: {}.",
            comparison.model, comparison.assumes, curve.name, comparison.calibrated_on
        ));
    }
    section.list(items);
    for caveat in caveats {
        let mut letters = caveat.chars();
        let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
        section.note(Level::Doubt, format!("{first}{}.", letters.as_str()));
    }
}

fn devices(compared: &[Of<'_>]) -> Table {
    let mut told: BTreeSet<(&str, &str)> = BTreeSet::new();
    let once =
        all(compared).filter(|(curve, one)| told.insert((curve.name.as_str(), one.model.as_str())));
    let rows = once.flat_map(|(curve, one)| one.devices.iter().map(move |of| (curve, one, of)));
    let title = "Devices of each model at the highest load that it has an answer for";
    Table::of("model-devices", title, rows)
        .column("curve", "Curve", Unit::Text, |(curve, ..)| curve.name.as_str())
        .column("model", "Model", Unit::Text, |(_, one, _)| one.model.as_str())
        .column("device", "Device", Unit::Text, |(.., device)| device.name.as_str())
        .column("queue_type", "Queue", Unit::Text, |(.., device)| drawing::kind(device))
        .column("servers", "Servers", Unit::Level, |(.., device)| (device.servers, "a delay"))
        .column("visits", "Visits", Unit::Plain(3), |(.., device)| device.visits)
        .column("service_time_s", "Service time (ms)", Unit::Milliseconds, |(.., device)| {
            device.service_time_s
        })
        .column("throughput_per_s", "X of the device (1/s)", Unit::PerSecond, |(.., device)| {
            (device_throughput(device), "not known")
        })
        .column("utilization", "Utilization predicted (%)", Unit::Percent, |(.., device)| {
            (device.utilization, "a delay")
        })
        .column("measured_utilization", "measured (%)", Unit::Percent, |(.., device)| {
            (device.measured_utilization, "not measured")
        })
        .column("number_at_center", "Customers", Unit::Plain(3), |(.., device)| {
            (device.number_at_center, "not known")
        })
        .table()
        .folded_if_long()
}

/// Visits a second, by the utilization law; of a delay, by Little's.
fn device_throughput(device: &Device) -> Option<f64> {
    let busy = match device.servers {
        Some(servers) => device.utilization? * servers,
        None => device.number_at_center?,
    };
    (device.service_time_s > 0.0).then(|| busy / device.service_time_s)
}

fn points(compared: &[Of<'_>]) -> Table {
    let rows = all(compared)
        .flat_map(|(curve, one)| one.points.iter().map(move |point| (curve, one, point)));
    Table::of("model-points", "Every model at every point", rows)
        .column("curve", "Curve", Unit::Text, |(curve, ..)| curve.name.as_str())
        .column("model", "Model", Unit::Text, |(_, one, _)| one.model.as_str())
        .column("variable", "What is compared (s or 1/s)", Unit::Text, |(_, one, _)| {
            one.variable.name()
        })
        .column("load", "Load", Unit::Level, |(.., point)| point.load)
        .column("measured", "Measured", Unit::Plain(4), |(.., point)| point.measured)
        .column("predicted", "Predicted", Unit::Plain(4), |(.., point)| {
            (point.predicted.as_ref().ok().copied(), "no answer")
        })
        .column("relative_error", "Error (%)", Unit::SignedPercent, |(.., point)| {
            (point.error_anywhere(), "no answer")
        })
        .column("remark", "Remark", Unit::Text, |(.., point)| match &point.predicted {
            Err(why) => why.clone(),
            Ok(_) if point.calibration => "calibrated here: in no mean error".to_owned(),
            Ok(_) => String::new(),
        })
        .table()
        .folded()
}
