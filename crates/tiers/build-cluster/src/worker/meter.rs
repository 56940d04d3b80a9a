//! How much memory and how many processes a running action has: looked at in `/proc`, which counts the action
//! as a whole where the kernel's own limits count each process, or all of a user.

use std::collections::HashMap;
use std::fs;
use std::io;

use super::bounds::{ActionBounds, Beyond};

/// The fastest growth that is reckoned with, in bytes a nanosecond: several cores that fill pages.
const GROWTH: u64 = 8;
/// The least nanoseconds from one new process to the next, on several cores.
const START_NS: u64 = 50_000;

/// What an action had at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Had {
    /// Bytes of memory: that of each process alone, and the largest that is shared.
    pub memory: u64,
    /// Processes and threads.
    pub processes: u64,
}

impl Had {
    pub(super) fn beyond(self, bounds: &ActionBounds) -> Option<Beyond> {
        if self.processes > bounds.processes {
            return Some(Beyond::Processes);
        }
        (self.memory > bounds.memory).then_some(Beyond::Memory)
    }

    /// Nanoseconds in which it cannot go beyond a bound by much.
    pub(super) fn safe_ns(self, bounds: &ActionBounds) -> u64 {
        let starts = bounds.processes.saturating_sub(self.processes);
        let memory = bounds.memory.saturating_sub(self.memory) / GROWTH;
        memory.min(starts.saturating_mul(START_NS))
    }
}

/// What the processes below process `root` have together. Where there are more than `enough` of any kind, they are
/// counted so far and not asked: an action that makes ever more of them is to be seen at once.
pub(super) fn below(root: u32, enough: u64) -> io::Result<Had> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        pids.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
        if pids.len() as u64 > enough {
            return Ok(Had { memory: 0, processes: enough });
        }
    }
    let mut children: HashMap<u32, Vec<Process>> = HashMap::new();
    for pid in pids {
        // One that has just ended is nothing.
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
        let Some((parent, process)) = Process::read(pid, &status) else { continue };
        children.entry(parent).or_default().push(process);
    }
    let (mut had, mut shared, mut left) = (Had::default(), 0, vec![root]);
    while let Some(parent) = left.pop() {
        for process in children.remove(&parent).unwrap_or_default() {
            had.processes += process.threads;
            had.memory += process.own;
            shared = shared.max(process.shared);
            left.push(process.pid);
        }
    }
    had.memory += shared;
    Ok(had)
}

#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    threads: u64,
    /// Bytes that no other process has, swapped out or not.
    own: u64,
    /// Bytes that others may have too, and that are in no file.
    shared: u64,
}

impl Process {
    /// The parent and what the process has, of the text of its `status`.
    fn read(pid: u32, status: &str) -> Option<(u32, Self)> {
        let mut parent = None;
        let mut process = Self { pid, threads: 1, own: 0, shared: 0 };
        for line in status.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let number = || value.split_whitespace().next()?.parse::<u64>().ok();
            match name {
                "PPid" => parent = number().and_then(|number| u32::try_from(number).ok()),
                "Threads" => process.threads = number()?,
                "RssAnon" | "VmSwap" => process.own += number()? << 10,
                "RssShmem" => process.shared = number()? << 10,
                _ => {}
            }
        }
        Some((parent?, process))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_from_its_status_whatever_its_name() {
        let status = "Name:\tPPid: 7\nState:\tS (sleeping)\nPPid:\t42\nRssAnon:\t    100 kB\n\
                      RssFile:\t  9999 kB\nRssShmem:\t       8 kB\nVmSwap:\t       1 kB\nThreads:\t3\n";
        let expected = Process { pid: 5, threads: 3, own: 101 << 10, shared: 8 << 10 };
        assert_eq!(Process::read(5, status), Some((42, expected)));
        assert_eq!(Process::read(5, "Name:\tx\n"), None);
    }

    #[test]
    fn a_tree_of_processes_is_counted_with_all_that_it_has() {
        // A shell runs the last command of a list in its own process; the subshell's last one is built in.
        let script = "sleep 60 & (sleep 60 & sleep 60; true) & echo; wait";
        let mut command = std::process::Command::new("/bin/sh");
        command.args(["-c", script]).stdout(std::process::Stdio::piped());
        let mut shell = command.spawn().unwrap();
        let enough = u64::MAX;
        kendall_testing::wait_until("all of them run", || {
            below(shell.id(), enough).unwrap().processes == 4
        });
        assert!(below(shell.id(), enough).unwrap().memory > 4 * 4096);
        assert_eq!(below(shell.id(), 3).unwrap(), Had { memory: 0, processes: 3 });
        for pid in fs::read_to_string(format!("/proc/{0}/task/{0}/children", shell.id()))
            .unwrap()
            .split_whitespace()
        {
            let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        shell.wait().unwrap();
    }

    #[test]
    fn what_is_beyond_a_bound_is_told() {
        let bounds = ActionBounds { memory: 1000, disk: 0, processes: 3 };
        let had = |memory, processes| Had { memory, processes }.beyond(&bounds);
        assert_eq!(
            [had(1000, 3), had(1001, 3), had(0, 4)],
            [None, Some(Beyond::Memory), Some(Beyond::Processes)]
        );
        assert_eq!(Had { memory: 200, processes: 1 }.safe_ns(&bounds), 100);
        let wide = ActionBounds { memory: 1 << 40, ..bounds };
        assert_eq!(Had { memory: 200, processes: 1 }.safe_ns(&wide), 2 * START_NS);
    }
}
