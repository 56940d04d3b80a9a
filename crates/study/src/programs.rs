//! Whether the programs that a study starts are installed.

use std::path::Path;

use crate::file::StudyFile;
use crate::hosts::At;
use crate::plan::Plan;
use crate::quota;
use crate::study::StudyError;
use crate::topology::{Source, TierSpec};

/// Refuses a study whose programs are not there, before anything is started.
///
/// # Errors
/// [`StudyError::NotInstalled`], [`StudyError::NoProgram`] and [`StudyError::Quota`].
pub fn check_programs(study: &StudyFile) -> Result<(), StudyError> {
    for (program, package) in study.base.kind.programs {
        if needed_here(study, program) && !is_there(program) {
            let (program, package) = ((*program).to_owned(), (*package).to_owned());
            return Err(StudyError::NotInstalled { program, package });
        }
    }
    check_quotas(study)?;
    for tier in &study.base.topology.tiers {
        let Source::Started(started) = &tier.source else { continue };
        let Some(program) = started.command.first() else { continue };
        let here = runs_here(study, tier);
        if here && !program.contains('{') && !is_there(program) {
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
            let here =
                |number: &u32| settings.placement.at(tier.name.as_str(), *number) == At::Here;
            cores.extend((0..started.instances).filter(here).filter_map(|_| started.cores));
        }
        quota::check(&cores)?;
    }
    Ok(())
}

/// Whether some instance of a tier runs on this machine.
fn runs_here(study: &StudyFile, tier: &TierSpec) -> bool {
    let instances = match &tier.source {
        Source::Started(started) => started.instances,
        Source::Attached(_) => 1,
    };
    study.base.placement.of(tier.name.as_str(), instances).contains(&At::Here)
}

/// Whether a program of the system is needed on this machine: not where every tier that is this
/// program is placed on another host.
fn needed_here(study: &StudyFile, program: &str) -> bool {
    let is_it = |tier: &&TierSpec| match &tier.source {
        Source::Started(started) => started.command.first().is_some_and(|word| word == program),
        Source::Attached(_) => false,
    };
    let mut tiers = study.base.topology.tiers.iter().filter(is_it).peekable();
    tiers.peek().is_none() || tiers.any(|tier| runs_here(study, tier))
}

/// A path is looked at as it is, a name in the folders of `PATH`.
pub(crate) fn is_there(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
