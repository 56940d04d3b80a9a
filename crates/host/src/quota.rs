//! Cores that a process may use at most: by a control group of its own, or, where those are forbidden
//! and the cores are whole ones, by processors that no other limited process has.
//!
//! Both versions of control groups are spoken: the CPU controller mounted by itself (version 1), and
//! the one tree (version 2) where the study's own group may give the controller on.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Where control groups are mounted.
const ROOT: &str = "/sys/fs/cgroup";

/// Length of the period in which a share of time is granted. The default of 100 ms would let a
/// process with half a core run for 50 ms and then stand still for as long, which shows in response
/// times; a tenth of that is ten times the least that the kernel takes.
const PERIOD_US: f64 = 10_000.0;

/// The least time in a period that the kernel takes.
const LEAST_US: f64 = 1_000.0;

/// End of the name of the group that a study goes to itself (version 2).
const ASIDE: &str = "-aside";

/// Tries to remove a group whose last process is just ending.
const REMOVAL_TRIES: u32 = 50;

/// Cores that cannot be limited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    #[error(
        "cores cannot be limited: {what}; run the study as root or below a control group that is \
         delegated with the controller `cpu`, ask for whole cores (which are then given as processors of \
         their own), or leave the limits out"
    )]
    NotAllowed { what: String },
    #[error(
        "the tiers may use {wanted} cores together, and this machine has {cores}: choose a smaller \
         share for a core (`system.core`)"
    )]
    MoreThanThereIs { wanted: String, cores: usize },
    #[error("{cores} of a core is less than the kernel can grant ({least})")]
    TooLittle { cores: String, least: String },
}

/// How the cores of a process are limited; undone when dropped.
#[derive(Debug)]
pub enum Limit {
    /// By time: the process may be on any core.
    Group(Quota),
    /// By place: others may be there as well, which a group would let it avoid.
    Processors(Pinned),
}

impl Limit {
    /// Limits a process to so many cores, in the way that is permitted here.
    pub fn new(cores: f64, processors: &Processors) -> Result<Self, QuotaError> {
        Self::in_place_of(Quota::new(cores), cores, processors)
    }

    fn in_place_of(
        group: Result<Quota, QuotaError>,
        cores: f64,
        processors: &Processors,
    ) -> Result<Self, QuotaError> {
        match group {
            Err(QuotaError::NotAllowed { what }) => {
                let count = whole(&[cores], &what)?;
                let pinned = processors.take(count, &allowed());
                pinned.map(Self::Processors).ok_or_else(|| QuotaError::NotAllowed {
                    what: format!("{what}; and no {count} processors are left for it alone"),
                })
            }
            other => other.map(Self::Group),
        }
    }

    pub fn group(&self) -> Option<&Path> {
        match self {
            Self::Group(quota) => Some(quota.folder()),
            Self::Processors(_) => None,
        }
    }

    pub fn processors(&self) -> &[usize] {
        match self {
            Self::Group(_) => &[],
            Self::Processors(pinned) => &pinned.own,
        }
    }
}

/// The processors that limited processes have, each by itself.
#[derive(Debug, Clone, Default)]
pub struct Processors {
    taken: Arc<Mutex<BTreeSet<usize>>>,
}

impl Processors {
    /// The first of the allowed ones that are free; none where there are too few.
    fn take(&self, count: usize, allowed: &[usize]) -> Option<Pinned> {
        let mut taken = self.taken.lock();
        let free = allowed.iter().copied().filter(|one| !taken.contains(one));
        let own: Vec<usize> = free.take(count).collect();
        if own.len() < count {
            return None;
        }
        taken.extend(&own);
        Some(Pinned { own, all: self.clone() })
    }
}

/// Processors that belong to one process; given back when dropped.
#[derive(Debug)]
pub struct Pinned {
    own: Vec<usize>,
    all: Processors,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut taken = self.all.taken.lock();
        for one in &self.own {
            taken.remove(one);
        }
    }
}

/// Keeps this process on these processors, and what it starts.
pub fn stay_on(processors: &[usize]) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    for one in processors {
        set.set(*one);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Processors that this process may be on.
fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|one| set.is_set(*one)).collect()
}

/// Sum of cores that are all whole ones; `what` forbids others.
fn whole(cores: &[f64], what: &str) -> Result<usize, QuotaError> {
    let mut sum = 0;
    for cores in cores {
        let count = (1..=CpuSet::MAX_CPU)
            .find(|count| (kendall_units::exact_f64(*count) - cores).abs() < 1e-9);
        sum += count.ok_or_else(|| QuotaError::NotAllowed {
            what: format!(
                "{what}; and {cores} of a core cannot be given as a processor of its own"
            ),
        })?;
    }
    Ok(sum)
}

/// A control group; removed when dropped.
#[derive(Debug)]
pub struct Quota {
    folder: PathBuf,
}

impl Quota {
    /// Makes a group whose processes may use so many cores together.
    pub fn new(cores: f64) -> Result<Self, QuotaError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let quota_us = cores * PERIOD_US;
        if quota_us < LEAST_US {
            let least = (LEAST_US / PERIOD_US).to_string();
            return Err(QuotaError::TooLittle { cores: cores.to_string(), least });
        }
        let (quota, period) = (format!("{quota_us:.0}"), format!("{PERIOD_US:.0}"));
        let (parent, version) = parent()?;
        remove_left(&parent);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("kendall-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|error| not_allowed(&folder, &error))?;
        let group = Self { folder };
        let files = match version {
            Version::One => vec![("cpu.cfs_period_us", period), ("cpu.cfs_quota_us", quota)],
            Version::Two => vec![("cpu.max", format!("{quota} {period}"))],
        };
        for (file, text) in files {
            let path = group.folder.join(file);
            std::fs::write(&path, text).map_err(|error| not_allowed(&path, &error))?;
        }
        Ok(group)
    }

    /// The group's folder: a process that writes its number to `cgroup.procs` there is limited, and
    /// so is what it starts.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        for _ in 0..REMOVAL_TRIES {
            match std::fs::remove_dir(&self.folder) {
                Ok(()) => return,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
            }
        }
        tracing::warn!(group = %self.folder.display(), "a control group is left");
    }
}

/// Whether these limits, one an instance, can be kept on this machine.
pub fn check(cores: &[f64]) -> Result<(), QuotaError> {
    let Some(first) = cores.first() else { return Ok(()) };
    let wanted: f64 = cores.iter().sum();
    let there = std::thread::available_parallelism().map_or(1, usize::from);
    // Shares such as a third do not add up to the last digit.
    if wanted > kendall_units::exact_f64(there) * 1.000_001 {
        return Err(QuotaError::MoreThanThereIs { wanted: wanted.to_string(), cores: there });
    }
    match Quota::new(*first) {
        Err(QuotaError::NotAllowed { what }) => by_processors(cores, &what, allowed().len()),
        other => other.map(drop),
    }
}

/// Whether limits can be kept by processors of their own, one set an instance.
fn by_processors(cores: &[f64], what: &str, there: usize) -> Result<(), QuotaError> {
    let wanted = whole(cores, what)?;
    if wanted > there {
        let what =
            format!("{what}; and they are {wanted} processors of the {there} that it may use");
        return Err(QuotaError::NotAllowed { what });
    }
    Ok(())
}

enum Version {
    One,
    Two,
}

/// The folder below which this process may make groups.
fn parent() -> Result<(PathBuf, Version), QuotaError> {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if let Some((mount, path)) = version_one(&own) {
        let mount = Path::new(ROOT).join(mount);
        let folder = mount.join(path.trim_start_matches('/'));
        // In a container the path may be that of the machine outside: then the mount is its own.
        return Ok((if folder.is_dir() { folder } else { mount }, Version::One));
    }
    let path = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let root = rustix::process::geteuid().is_root();
    Ok((version_two(Path::new(ROOT), path, root)?, Version::Two))
}

/// The folder of version 2 below which this process may make groups with the controller `cpu`.
fn version_two(mount: &Path, own: &str, root: bool) -> Result<PathBuf, QuotaError> {
    // Only the root of the whole tree has no type; there processes and groups may lie side by side.
    if root && !mount.join("cgroup.type").exists() && gives(mount, "cgroup.controllers") {
        enable(mount)?;
        return Ok(mount.to_owned());
    }
    let mut folder = mount.join(own);
    if folder.file_name().is_some_and(|name| name.to_string_lossy().ends_with(ASIDE)) {
        // This process has stepped aside before.
        folder.pop();
    }
    if !gives(&folder, "cgroup.controllers") {
        let what = format!("{} has no controller `cpu`", folder.display());
        return Err(QuotaError::NotAllowed { what });
    }
    if !gives(&folder, "cgroup.subtree_control") {
        step_aside(&folder)?;
        enable(&folder)?;
    }
    Ok(folder)
}

/// Whether a group's file names the controller.
fn gives(folder: &Path, file: &str) -> bool {
    let text = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
    text.split_whitespace().any(|word| word == "cpu")
}

fn not_allowed(path: &Path, error: &std::io::Error) -> QuotaError {
    QuotaError::NotAllowed { what: format!("{}: {error}", path.display()) }
}

/// Has the groups below one have the controller.
fn enable(folder: &Path) -> Result<(), QuotaError> {
    if gives(folder, "cgroup.subtree_control") {
        return Ok(());
    }
    let file = folder.join("cgroup.subtree_control");
    std::fs::write(&file, "+cpu").map_err(|error| {
        if error.kind() != std::io::ErrorKind::ResourceBusy {
            return not_allowed(&file, &error);
        }
        QuotaError::NotAllowed {
            what: format!(
                "other processes are in the control group {}: start the study in one of its own, \
                 such as by `systemd-run --user --scope -p Delegate=yes kendall run …`",
                folder.display()
            ),
        }
    })
}

/// Goes, with all that this process started, to a group below its own: one that has processes gives no
/// controllers on.
fn step_aside(own: &Path) -> Result<(), QuotaError> {
    let aside = own.join(format!("kendall-{}{ASIDE}", std::process::id()));
    match std::fs::create_dir(&aside) {
        Ok(()) => {}
        // This process stepped aside before; other processes are still in the group.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(not_allowed(&aside, &error)),
    }
    let inside = std::fs::read_to_string(own.join("cgroup.procs")).unwrap_or_default();
    let procs = aside.join("cgroup.procs");
    for pid in inside.lines().filter_map(|line| line.parse().ok()).filter(|pid| is_ours(*pid)) {
        match std::fs::write(&procs, pid.to_string()) {
            Ok(()) => {}
            // It ended meanwhile.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
            Err(error) => return Err(not_allowed(&procs, &error)),
        }
    }
    Ok(())
}

/// Whether a process is this one, or was started by it.
fn is_ours(mut pid: u32) -> bool {
    while pid > 1 {
        if pid == std::process::id() {
            return true;
        }
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name may have anything in it; what follows its last parenthesis is numbers.
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
        pid = parent.and_then(|parent| parent.parse().ok()).unwrap_or(0);
    }
    false
}

/// Mount and path of the controller `cpu` of version 1, in the text of `/proc/self/cgroup`.
fn version_one(own: &str) -> Option<(&str, &str)> {
    own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        controllers.split(',').any(|one| one == "cpu").then_some((controllers, path))
    })
}

/// Removes groups of studies that were killed.
fn remove_left(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((pid, _)) = name.strip_prefix("kendall-").and_then(|rest| rest.split_once('-'))
        else {
            continue;
        };
        if !Path::new("/proc").join(pid).exists() {
            std::fs::remove_dir(entry.path()).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_is_found_by_its_name() {
        let text = "9:name=systemd:/\n3:cpuset:/a\n1:cpu,cpuacct:/box\n0::/\n";
        assert_eq!(version_one(text), Some(("cpu,cpuacct", "/box")));
        assert_eq!(version_one("3:cpuset:/\n2:cpuacct:/\n0::/user.slice\n"), None);
    }

    /// A folder that looks like a control group of version 2, as far as files go.
    fn group(folder: &Path, files: &[(&str, &str)]) {
        std::fs::create_dir_all(folder).unwrap();
        for (name, text) in files {
            std::fs::write(folder.join(name), text).unwrap();
        }
    }

    #[test]
    fn in_a_tree_of_version_two_a_study_steps_aside_and_gives_the_controller_on() {
        let mount = tempfile::tempdir().unwrap();
        let own = mount.path().join("user.slice/run.scope");
        let pid = std::process::id();
        group(
            &own,
            &[
                ("cgroup.controllers", "cpu memory"),
                ("cgroup.subtree_control", ""),
                ("cgroup.type", "domain"),
                // Process 1 has no parent, and stays where it is.
                ("cgroup.procs", &format!("1\n{pid}\n")),
            ],
        );
        let folder = version_two(mount.path(), "user.slice/run.scope", false).unwrap();
        assert_eq!(folder, own);
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
        assert_eq!(read(own.join("cgroup.subtree_control")), "+cpu");
        let aside = format!("user.slice/run.scope/kendall-{pid}-aside");
        assert_eq!(read(mount.path().join(&aside).join("cgroup.procs")), pid.to_string());
        // The next group is made beside, not below, the one that it went to.
        group(&own, &[("cgroup.subtree_control", "cpu")]);
        assert_eq!(version_two(mount.path(), &aside, false).unwrap(), own);
    }

    /// Other processes are still in the group at the next try: the error must say the same each time.
    #[test]
    fn stepping_aside_again_is_no_failure() {
        let own = tempfile::tempdir().unwrap();
        group(own.path(), &[("cgroup.procs", "1\n")]);
        let aside = own.path().join(format!("kendall-{}-aside", std::process::id()));
        for _ in 0..2 {
            assert_eq!(step_aside(own.path()), Ok(()));
            assert!(aside.is_dir());
        }
    }

    #[test]
    fn at_the_root_of_a_tree_of_version_two_nobody_steps_aside() {
        let mount = tempfile::tempdir().unwrap();
        group(mount.path(), &[("cgroup.controllers", "cpu"), ("cgroup.subtree_control", "cpu")]);
        let folder = version_two(mount.path(), "user.slice/session.scope", true).unwrap();
        assert_eq!(folder, mount.path());
        let error = version_two(mount.path(), "user.slice/session.scope", false).unwrap_err();
        assert!(error.to_string().contains("session.scope has no controller"), "{error}");
    }

    fn forbidden() -> QuotaError {
        QuotaError::NotAllowed { what: "/sys/fs/cgroup/x: Permission denied".to_owned() }
    }

    #[test]
    fn where_groups_are_forbidden_whole_cores_are_processors_of_their_own() {
        let processors = Processors::default();
        let one = processors.take(2, &[0, 2, 3, 5]).unwrap();
        let other = processors.take(1, &[0, 2, 3, 5]).unwrap();
        assert_eq!((&one.own[..], &other.own[..]), (&[0, 2][..], &[3][..]));
        assert!(processors.take(2, &[0, 2, 3, 5]).is_none());
        drop(one);
        // A refused take reserves nothing, and a dropped one returns its processors.
        assert_eq!(processors.take(3, &[0, 2, 3, 5]).unwrap().own, [0, 2, 5]);
    }

    #[test]
    fn what_processors_cannot_say_honestly_stays_refused() {
        let processors = Processors::default();
        let limit = |cores| Limit::in_place_of(Err(forbidden()), cores, &processors);
        let said = limit(0.5).unwrap_err().to_string();
        assert!(said.contains("Permission denied") && said.contains("0.5 of a core"), "{said}");
        assert!(limit(1.5).is_err());
        let whole = limit(1.0).unwrap();
        assert_eq!((whole.processors().len(), whole.group()), (1, None));
        assert!(allowed().contains(&whole.processors()[0]));
        assert_eq!(by_processors(&[1.0, 2.0], "x", 3), Ok(()));
        let said = by_processors(&[1.0, 2.0], "x", 2).unwrap_err().to_string();
        assert!(said.contains("3 processors of the 2"), "{said}");
        // One that is no whole number forbids all of them: limits of two kinds cannot be compared.
        assert!(by_processors(&[1.0, 0.25], "x", 4).is_err());
        // Other reasons stay what they are.
        let little = QuotaError::TooLittle { cores: "0.01".to_owned(), least: "0.1".to_owned() };
        let kept = Limit::in_place_of(Err(little.clone()), 0.01, &processors).unwrap_err();
        assert_eq!(kept, little);
    }

    #[test]
    fn more_cores_than_there_are_mean_nothing_and_are_refused() {
        let there = std::thread::available_parallelism().map_or(1, usize::from);
        let error = check(&vec![1.0; there + 1]).unwrap_err().to_string();
        assert!(error.contains(&format!("this machine has {there}")), "{error}");
        assert!(check(&[0.01]).unwrap_err().to_string().contains("less than the kernel"));
        assert_eq!(check(&[]), Ok(()));
    }
}
