//! The control group of a service that runs: by its systemd unit, or by its container.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::exit::{Exit, exit_with};

/// Where `cgroups` of a study file begin.
const ROOT: &str = "/sys/fs/cgroup";
/// Folders looked at: a machine with more has something else there.
const MOST_FOLDERS: usize = 100_000;
/// What runs containers; the first that knows one of this name says its id.
const ENGINES: [&str; 3] = ["docker", "podman", "nerdctl"];
/// Digits of an id from which it is taken for one.
const ID_DIGITS: usize = 12;

pub(super) enum RunsAs<'a> {
    Unit(&'a str),
    Container(&'a str),
}

impl RunsAs<'_> {
    /// Its folder below [`ROOT`], as a study file names it.
    pub(super) fn group(&self) -> anyhow::Result<String> {
        let (what, name) = match self {
            Self::Unit(name) => ("unit", *name),
            Self::Container(name) => ("container", *name),
        };
        let id = match self {
            Self::Unit(_) => name.to_owned(),
            Self::Container(_) => container_id(name)?,
        };
        let is_it = |folder: &str| match self {
            Self::Unit(unit) => is_unit(folder, unit),
            Self::Container(_) => is_container(folder, &id),
        };
        match &groups(Path::new(ROOT), is_it)[..] {
            [only] => Ok(only.clone()),
            [] => Err(exit_with(
                Exit::NotReady,
                format!(
                    "no control group (version 2) below {ROOT} is of the {what} `{name}`; is it running here, and does \
                     this process see all groups? Else write `cgroups` or `pids` into the study file by hand"
                ),
            )),
            several => Err(exit_with(
                Exit::Refused,
                format!(
                    "several control groups are of the {what} `{name}`: {}; write the right one into the study file \
                     by hand, as `cgroups`",
                    several.join(", ")
                ),
            )),
        }
    }
}

fn is_unit(folder: &str, unit: &str) -> bool {
    // systemd writes what a path may not have as \x2d.
    let folder = folder.replace("\\x2d", "-");
    folder == unit || folder.strip_suffix(".service").is_some_and(|name| name == unit)
}

/// conmon, which watches containers of podman and CRI-O, has a group of the same id.
fn is_container(folder: &str, id: &str) -> bool {
    folder.contains(id) && !folder.contains("conmon")
}

/// The id of a container, which its control group is called by.
fn container_id(name: &str) -> anyhow::Result<String> {
    if name.len() >= ID_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(name.to_owned());
    }
    let asked = |engine: &&str| {
        let output = Command::new(engine)
            .args(["inspect", "--type", "container", "--format", "{{.Id}}", "--", name])
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        let id = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let is_id = id.len() >= ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then_some(id)
    };
    ENGINES.iter().find_map(asked).ok_or_else(|| {
        let engines = ENGINES.join(", ");
        let what = format!(
            "none of {engines} knows a container `{name}`; give its id of {ID_DIGITS} digits or more instead, or start it"
        );
        exit_with(Exit::NotReady, what)
    })
}

/// Folders of groups that have accounts and that `is_it` takes by their name; none within another.
fn groups(root: &Path, is_it: impl Fn(&str) -> bool) -> Vec<String> {
    let (mut found, mut open, mut looked) = (Vec::new(), vec![root.to_owned()], 0);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            looked += 1;
            if looked > MOST_FOLDERS || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let path: PathBuf = entry.path();
            let stat = std::fs::read_to_string(path.join("cpu.stat")).unwrap_or_default();
            if is_it(&entry.file_name().to_string_lossy()) && stat.contains("user_usec") {
                let below = path.strip_prefix(root).unwrap_or(&path);
                found.push(below.display().to_string());
            } else {
                open.push(path);
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_as_systemd_and_engines_call_them() {
        let root = tempfile::tempdir().unwrap();
        for group in [
            "system.slice/web\\x2dshop.service",
            "system.slice/docker-0123456789abcdef.scope",
            "machine.slice/libpod-fedcba9876543210.scope",
            "machine.slice/libpod-conmon-fedcba9876543210.scope",
            "user.slice",
        ] {
            let folder = root.path().join(group);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("cpu.stat"), "usage_usec 1\nuser_usec 1\n").unwrap();
        }
        // Version 1 has no such accounts.
        std::fs::create_dir_all(root.path().join("cpu/web-shop.service")).unwrap();
        let unit = |name: &'static str| groups(root.path(), move |folder| is_unit(folder, name));
        assert_eq!(unit("web-shop"), ["system.slice/web\\x2dshop.service"]);
        assert_eq!(unit("web-shop.service"), unit("web-shop"));
        assert_eq!(unit("shop"), Vec::<String>::new());
        let container =
            |id: &'static str| groups(root.path(), move |folder| is_container(folder, id));
        assert_eq!(container("0123456789ab"), ["system.slice/docker-0123456789abcdef.scope"]);
        assert_eq!(container("fedcba987654"), ["machine.slice/libpod-fedcba9876543210.scope"]);
    }
}
