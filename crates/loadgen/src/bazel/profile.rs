//! When the tasks of a build ended and how long they took, by Bazel's profile (`--profile`): events
//! as Chrome's trace viewer reads them, in microseconds since the command began.

use serde::Deserialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) ended_ns: u64,
    /// From the moment that one of Bazel's jobs took it up.
    pub(super) took_ns: u64,
}

#[derive(Deserialize)]
struct Trace {
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    name: String,
    #[serde(default)]
    cat: String,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
}

/// How actions of tasks are called; labels of tasks begin with `task`, and no others do.
const NAMES: [&str; 2] = ["Executing genrule //:task", "Testing //:task"];

/// The tasks of a build that began and ended at these moments. The profile has a clock of its own,
/// whose last event is taken for the end of the command.
pub(super) fn tasks(
    text: &[u8],
    (started_ns, ended_ns): (u64, u64),
) -> serde_json::Result<Vec<Task>> {
    let trace: Trace = serde_json::from_slice(text)?;
    let end_us = trace.events.iter().map(|event| event.ts + event.dur).fold(0.0, f64::max);
    let nanoseconds = |us: f64| kendall_units::whole_u64((us * 1e3).max(0.0).round());
    let tasks = trace.events.iter().filter(|event| {
        event.cat == "action processing" && NAMES.iter().any(|name| event.name.starts_with(name))
    });
    Ok(tasks
        .map(|event| {
            let before_end_ns = nanoseconds(end_us - event.ts - event.dur);
            let ended_ns = ended_ns.saturating_sub(before_end_ns).max(started_ns);
            Task { ended_ns, took_ns: nanoseconds(event.dur) }
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_told_from_what_else_bazel_did() {
        let text = br#"{"otherData": {}, "traceEvents": [
            {"name": "thread_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": "Critical Path"}},
            {"cat": "action processing", "name": "Symlinking //:task", "ts": 1, "dur": 2},
            {"cat": "action resource lock", "name": "Testing //:task (run 1 of 2)", "ts": 1, "dur": 2},
            {"cat": "action processing", "name": "Testing //:task (run 1 of 2)", "ts": 100, "dur": 50},
            {"cat": "action processing", "name": "Executing genrule //:task_7", "ts": 200, "dur": 30},
            {"cat": "build phase marker", "name": "Complete build", "ts": 240}]}"#;
        let tasks = tasks(text, (1_000, 1_000_000)).unwrap();
        let expected = [(910_000, 50_000), (990_000, 30_000)];
        assert_eq!(tasks, expected.map(|(ended_ns, took_ns)| Task { ended_ns, took_ns }));
    }
}
