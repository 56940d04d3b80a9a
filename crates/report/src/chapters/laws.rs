//! The operational laws as a check of the measurement.

use kendall_fit::laws::{Law, LawCheck, checks};

use crate::document::{Level, Section, Table, Unit};
use crate::number;
use crate::plot::{Axis, Plot};
use crate::prepared::Prepared;
use kendall_observations::{Configuration, Observations, Repetition};
use kendall_stats::estimate::Estimate;

use super::load::{line, with_levels};
use super::{capitalized, plotted};

pub(crate) fn chapter(data: &Prepared<'_>) -> Option<Section> {
    // Run by run: a law holds for each, and not for the product of means of runs that differ.
    let all: Vec<Checked<'_>> = data
        .configurations
        .iter()
        .flat_map(|configuration| configuration.repetitions.iter().map(move |r| (configuration, r)))
        .flat_map(|(configuration, repetition)| {
            checks(&repetition.point).into_iter().map(move |check| Checked {
                configuration,
                repetition: repetition.run.repetition,
                check,
            })
        })
        .collect();
    if all.is_empty() {
        return None;
    }
    let mut section = Section::new("laws", "Do the numbers agree with each other?");
    section.text(
        "Operational laws hold for any system over any period in which what arrives also leaves, \
         whatever the distributions. So a difference is an error of the measurement, or time that \
         nobody measured. The tolerance of each check follows from the length of the window: \
         requests in progress at its ends are counted on one side only.",
    );
    for law in [
        Law::InteractiveResponseTime,
        Law::Utilization,
        Law::Little,
        Law::ForcedFlow,
        Law::ClientsAndTier,
    ] {
        verdict(&mut section, law, &all);
    }
    section.plot(interactive(data));
    section.table(table(data, &all));
    Some(section)
}

/// One law in one run.
struct Checked<'a> {
    configuration: &'a Configuration,
    repetition: u32,
    check: LawCheck,
}

fn verdict(section: &mut Section, law: Law, all: &[Checked<'_>]) {
    let checks: Vec<&LawCheck> =
        all.iter().map(|checked| &checked.check).filter(|check| check.law == law).collect();
    let worst = checks.iter().max_by(|a, b| size(a).total_cmp(&size(b)));
    let Some(worst) = worst else { return };
    let failed = checks.iter().filter(|check| !check.holds()).count();
    let name = capitalized(law.name());
    if failed == 0 {
        section.note(
            Level::Good,
            format!(
                "{name}, {}: within tolerance in all {}; the largest difference is {}.",
                law.equation(),
                number::count(checks.len(), "run"),
                number::signed_percent(worst.relative_difference.unwrap_or(0.0))
            ),
        );
    } else {
        let why =
            worst.explanation.as_ref().map_or_else(String::new, |why| format!(" There, {why}."));
        section.note(
            Level::Doubt,
            format!(
                "{name}, {}: beyond its tolerance in {failed} of {}; the largest difference is \
                 {}.{why}",
                law.equation(),
                number::count(checks.len(), "run"),
                number::signed_percent(worst.relative_difference.unwrap_or(0.0))
            ),
        );
    }
}

fn size(check: &LawCheck) -> f64 {
    check.relative_difference.map_or(0.0, f64::abs)
}

fn interactive(data: &Observations) -> Plot {
    let difference = |repetition: &Repetition| {
        let checks = checks(&repetition.point);
        checks.into_iter().find(|c| c.law == Law::InteractiveResponseTime)?.relative_difference
    };
    let series = plotted(data).into_iter().map(|(color, curve)| {
        line(data, curve, (&curve.name, color), |c| {
            Some((Estimate::exact(c.difference(difference)?.center), 100.0))
        })
    });
    Plot {
        id: "plot-interactive-law".to_owned(),
        title: "Interactive response time law".to_owned(),
        description: "Measured throughput against N/(R + Z), in percent; 0 is agreement."
            .to_owned(),
        x: Axis::from_zero(data.load.as_ref().map_or("load", |load| load.label.as_str())),
        y: Axis::from_zero("difference (%)"),
        series: series.collect(),
    }
}

fn table(data: &Observations, all: &[Checked<'_>]) -> Table {
    with_levels("laws", "Every check", data, all, |checked| checked.configuration)
        .column("repetition", "Repetition", Unit::Count, |one| f64::from(one.repetition + 1))
        .column("law", "Law", Unit::Text, |one| {
            format!("{}: {}", one.check.law.name(), one.check.law.equation())
        })
        .column("measured", "Measured", Unit::Plain(4), |one| one.check.measured)
        .column("by_law", "By the law", Unit::Plain(4), |one| one.check.by_law)
        .column("relative_difference", "Difference (%)", Unit::SignedPercent, |one| {
            (one.check.relative_difference, "the law gives 0")
        })
        .column("tolerance", "Tolerance (%)", Unit::Percent, |one| one.check.tolerance)
        .column("explanation", "What the difference is", Unit::Text, |one| {
            one.check.explanation.clone().unwrap_or_default()
        })
        .table()
        .folded()
}
