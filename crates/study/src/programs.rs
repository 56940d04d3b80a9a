//! Whether the programs that a study starts are installed.

use std::path::Path;

use kendall_host::hosts::At;
use kendall_host::program::{check, is_there};
use kendall_host::quota;

use crate::error::StudyError;
use crate::file::StudyFile;
use crate::host_check::Needs;
use crate::plan::Plan;
use crate::settings::Settings;
use crate::topology::Source;

/// Refuses a study that starts a program here, in any of its configurations, that is not there; before
/// anything is started. `program` is the `kendall` binary.
pub fn check_programs(study: &StudyFile, program: &Path) -> Result<(), StudyError> {
    // Mistakes in the plan are reported where the study is run.
    let Ok(plan) = Plan::of(study) else { return Ok(()) };
    let all = plan.settings(study)?;
    let needs = Needs::of(&all);
    for (program, package) in study.base.kind.programs {
        // Not where every tier that is this program is placed on another host.
        let here = !needs.is_a_tier(program) || needs.here().any(|(_, needed)| needed == program);
        if here && !is_there(program) {
            let (program, package) = ((*program).to_owned(), (*package).to_owned());
            return Err(StudyError::NotInstalled { program, package });
        }
    }
    check_quotas(&all)?;
    if let Some((tier, program)) = needs.here().find(|(_, program)| !is_there(program)) {
        let (tier, program) = (tier.clone(), program.clone());
        return Err(StudyError::NoProgram { tier, program });
    }
    for (tier, arguments) in needs.checks(At::Here) {
        let lacking = |what: String| StudyError::Lacking { tier: tier.to_owned(), what };
        check(program, &arguments).map_err(lacking)?;
    }
    Ok(())
}

/// Whether the cores of every configuration can be limited as it asks.
fn check_quotas(all: &[Settings]) -> Result<(), StudyError> {
    for settings in all {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The place may be a factor: what only some configurations start here is needed here as well.
    #[test]
    fn a_program_is_needed_here_when_any_configuration_starts_it_here() {
        let check = |places: &str| {
            let text = format!(
                "name = 'x'\n[system]\nkind = 'processes'\n[[system.tiers]]\nname = 'web'\n\
                 command = ['no-such-program', '{{port}}']\n[workload]\npath = '/'\n[hosts]\n\
                 far = {{ address = '10.0.1.2' }}\nhere = {{ address = '10.0.1.1' }}\n[place]\n\
                 web = 'far'\nclients = 'far'\n[factors]\n'place.web' = {places}\n"
            );
            let study = StudyFile::parse("x.toml", text, false, &[]).unwrap();
            check_programs(&study, Path::new("kendall"))
        };
        assert!(check("[['far']]").is_ok());
        let refused = check("[['far'], ['here']]").unwrap_err().to_string();
        assert!(refused.contains("tier `web`") && refused.contains("no-such-program"), "{refused}");
    }
}
