//! For `fuzz/`: what Bazel prints, and its profile.

use super::{Built, Processes, profile, windows};
use crate::clock::SECOND_NS;

/// Panics when a task is in no second of the build, in two, or ended after it.
pub(crate) fn printed(bytes: &[u8]) {
    let said = String::from_utf8_lossy(bytes).into_owned();
    let Processes { hits, remote, local } = Processes::read(&said);
    assert!(said.contains(" process") || hits.max(remote).max(local) == 0);
    let built = Built { started_ns: SECOND_NS, ended_ns: 3 * SECOND_NS + 7, said };
    let Ok(tasks) = profile::tasks(bytes, (built.started_ns, built.ended_ns)) else { return };
    let within = built.started_ns..=built.ended_ns;
    assert!(tasks.iter().all(|task| within.contains(&task.ended_ns)));
    let windows = windows(&built, &tasks);
    let counted = windows.iter().flat_map(|window| window.operations.values());
    let counted: u64 = counted.map(|operation| operation.completed).sum();
    assert_eq!(u64::try_from(tasks.len()), Ok(counted), "each task is in one second");
}
