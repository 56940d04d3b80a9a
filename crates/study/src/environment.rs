//! On what a study ran: machine, kernel, versions, revision.

use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value as Json, json};

use crate::system::SystemKind;

/// Programs beside those of the system whose versions matter.
const PROGRAMS: &[(&str, &str)] =
    &[("memcached", "--version"), ("nginx", "-v"), ("postgres", "--version")];

/// One JSON object; what cannot be found out is left out.
pub(crate) fn describe(kind: &SystemKind, seed: u64, folder: &Path) -> Json {
    let mut all = Map::new();
    let mut put = |key: &str, value: Option<Json>| {
        if let Some(value) = value {
            all.insert(key.to_owned(), value);
        }
    };
    put("kendall_version", Some(json!(env!("CARGO_PKG_VERSION"))));
    put("revision", revision(folder).map(Json::from));
    put("seed", Some(json!(seed)));
    let used = |name: &str| kind.programs.iter().any(|(program, _)| *program == name);
    let versions: Map<String, Json> = PROGRAMS
        .iter()
        .filter(|(program, _)| used(program))
        .filter_map(|(program, flag)| Some(((*program).to_owned(), version(program, flag)?.into())))
        .collect();
    put("versions", Some(Json::Object(versions)));
    all.extend(kendall_host::machine::machine());
    Json::Object(all)
}

/// First line that a program says of its version, on either output.
fn version(program: &str, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let line = String::from_utf8_lossy(&text).lines().next()?.trim().to_owned();
    (!line.is_empty()).then_some(line)
}

/// Revision of the working tree that the study file lies in, marked when it was changed.
fn revision(folder: &Path) -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let revision = git(&["rev-parse", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { revision } else { format!("{revision} (changed)") })
}
