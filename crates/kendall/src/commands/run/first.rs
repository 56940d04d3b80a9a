//! The first pass of a study: a first answer before the study itself, and the best one so far.

use std::path::{Path, PathBuf};

use kendall_store::{Results, Run};
use kendall_study::{FIRST_PASS, Plan, StudyFile};

use super::summary::{Told, card};
use crate::exit::refused;

/// The first pass and its folder, where the study has one and has not begun.
pub(super) fn due(
    study: &StudyFile,
    folder: &Path,
) -> anyhow::Result<Option<(StudyFile, PathBuf)>> {
    if Results::exists(folder) && Results::open(folder)?.runs()?.iter().any(Run::is_usable) {
        return Ok(None);
    }
    of(study, folder)
}

/// The first pass and its folder: a folder of its own for each state of the study file.
fn of(study: &StudyFile, folder: &Path) -> anyhow::Result<Option<(StudyFile, PathBuf)>> {
    let Some(pass) = study.first_pass().map_err(refused)? else { return Ok(None) };
    let mut number = 1;
    loop {
        let name =
            if number == 1 { FIRST_PASS.to_owned() } else { format!("{FIRST_PASS}-{number}") };
        let place = folder.join(name);
        let is_its = !Results::exists(&place)
            || Results::open(&place)?.study()?.fingerprint == pass.fingerprint();
        if is_its {
            return Ok(Some((pass, place)));
        }
        number += 1;
    }
}

/// The first answer, for people.
pub(super) fn in_words(told: &Told) -> String {
    let page = told.report.as_ref();
    let page = page.map_or_else(String::new, |page| format!(" ({})", page.display()));
    format!(
        "\nfirst answer, from short runs{page}; the study makes it surer:\n{}",
        card(&told.answer)
    )
}

/// What the first pass tells, where the study was stopped before its own runs tell more: they answer, and
/// every configuration has one, or, of a design that chooses them, as many were made.
pub(super) fn better(
    study: &StudyFile,
    folder: &Path,
    (results, told): (&Results, &Told),
) -> anyhow::Result<Option<Told>> {
    let wanted = Plan::of(study).map_err(refused)?;
    let runs = results.latest_runs()?;
    let has_run = |configuration: usize| {
        let number = u32::try_from(configuration).ok();
        runs.iter().any(|run| run.is_usable() && Some(run.configuration) == number)
    };
    let Some((_, place)) = of(study, folder)?.filter(|(_, place)| Results::exists(place)) else {
        return Ok(None);
    };
    let of_first = Results::open(&place)?;
    let usable = |runs: &[Run]| runs.iter().filter(|run| run.is_usable()).count();
    let has_enough = if wanted.chooses() {
        usable(&runs) >= usable(&of_first.latest_runs()?)
    } else {
        (0..wanted.configurations.len()).all(has_run)
    };
    if told.answer.told && has_enough {
        return Ok(None);
    }
    let first = Told::of(&of_first)?;
    let page = place.join("report.html");
    let report = page.is_file().then_some(page);
    Ok((first.has_runs && (first.answer.told || !told.has_runs)).then_some(Told {
        of_first_pass: true,
        report,
        ..first
    }))
}
