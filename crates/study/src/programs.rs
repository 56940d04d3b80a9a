//! Whether the programs that a study starts are installed.

use std::path::Path;

use crate::file::StudyFile;
use crate::plan::Plan;
use crate::quota;
use crate::study::StudyError;
use crate::topology::Source;

/// Refuses a study whose programs are not there, before anything is started.
///
/// # Errors
/// [`StudyError::NotInstalled`], [`StudyError::NoProgram`] and [`StudyError::Quota`].
pub fn check_programs(study: &StudyFile) -> Result<(), StudyError> {
    for (program, package) in study.base.kind.programs {
        if !is_there(program) {
            let (program, package) = ((*program).to_owned(), (*package).to_owned());
            return Err(StudyError::NotInstalled { program, package });
        }
    }
    check_quotas(study)?;
    for tier in &study.base.topology.tiers {
        let Source::Started(started) = &tier.source else { continue };
        let Some(program) = started.command.first() else { continue };
        if !program.contains('{') && !is_there(program) {
            let (tier, program) = (tier.name.to_string(), program.clone());
            return Err(StudyError::NoProgram { tier, program });
        }
    }
    Ok(())
}

/// Whether the cores of every configuration can be limited as it asks.
fn check_quotas(study: &StudyFile) -> Result<(), StudyError> {
    let Ok(plan) = Plan::of(study) else { return Ok(()) };
    for levels in &plan.configurations {
        let settings = study.settings(levels)?;
        let mut cores = Vec::new();
        for tier in &settings.topology.tiers {
            let Source::Started(started) = &tier.source else { continue };
            cores.extend((0..started.instances).filter_map(|_| started.cores));
        }
        quota::check(&cores)?;
    }
    Ok(())
}

/// A path is looked at as it is, a name in the folders of `PATH`.
fn is_there(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
