//! Whether the programs that a study starts are installed.

use std::path::Path;

use crate::file::StudyFile;
use crate::study::StudyError;
use crate::topology::Source;

/// Refuses a study whose programs are not there, before anything is started.
///
/// # Errors
/// [`StudyError::NotInstalled`] and [`StudyError::NoProgram`].
pub fn check_programs(study: &StudyFile) -> Result<(), StudyError> {
    for (program, package) in study.base.kind.programs {
        if !is_there(program) {
            let (program, package) = ((*program).to_owned(), (*package).to_owned());
            return Err(StudyError::NotInstalled { program, package });
        }
    }
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

/// A path is looked at as it is, a name in the folders of `PATH`.
fn is_there(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
