//! Which programs used the processors of this machine between two moments.

use std::collections::BTreeMap;

use kendall_units::{Seconds, exact_f64};
use procfs::process::{Process, Stat};

use crate::clock::monotonic_ns;

/// Processes beyond which a machine is not looked at.
const MOST_PROCESSES: usize = 10_000;

/// Longer than any chain of parents, should two be each other's.
const LONGEST_CHAIN: usize = 64;

/// The processor time of every process of this machine, at one moment.
#[derive(Debug, Clone, Default)]
pub struct Programs {
    at_ns: u64,
    by_pid: BTreeMap<i32, Program>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Program {
    command: String,
    parent: i32,
    /// When it was started: an id is given again.
    started: u64,
    /// Of itself, and of those below it that have ended.
    ticks: u64,
}

impl From<Stat> for Program {
    fn from(stat: Stat) -> Self {
        let ended = |ticks| u64::try_from(ticks).unwrap_or(0);
        Self {
            ticks: stat.utime + stat.stime + ended(stat.cutime) + ended(stat.cstime),
            command: stat.comm,
            parent: stat.ppid,
            started: stat.starttime,
        }
    }
}

impl Programs {
    pub fn now() -> Self {
        let all = procfs::process::all_processes().into_iter().flatten();
        let read = |process: Process| Some((process.pid(), Program::from(process.stat().ok()?)));
        let found = all.take(MOST_PROCESSES).filter_map(Result::ok).filter_map(read);
        Self { at_ns: monotonic_ns(), by_pid: found.collect() }
    }

    /// Cores that each command used since then, largest first, without the processes `own` and those below
    /// them. What ended in between counts for the process that had started it.
    pub fn others_since(&self, before: &Self, own: &[u32]) -> Vec<(String, f64)> {
        let second = exact_f64(procfs::ticks_per_second().max(1));
        let length = Seconds::from_nanos(self.at_ns.saturating_sub(before.at_ns)).get();
        if length <= 0.0 {
            return Vec::new();
        }
        let mut known = BTreeMap::<i32, u64>::new();
        for (pid, program) in &before.by_pid {
            *known.entry(self.heir(before, *pid)).or_default() += program.ticks;
        }
        let mut cores = BTreeMap::<&str, f64>::new();
        for (pid, program) in self.by_pid.iter().filter(|(pid, _)| !self.is_below(**pid, own)) {
            let grown = program.ticks.saturating_sub(known.get(pid).copied().unwrap_or(0));
            *cores.entry(&program.command).or_default() += exact_f64(grown) / second / length;
        }
        let mut all: Vec<(String, f64)> =
            cores.into_iter().map(|(command, cores)| (command.to_owned(), cores)).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all
    }

    /// The process that counts for one of before: itself, or the first above it that still runs.
    fn heir(&self, before: &Self, pid: i32) -> i32 {
        let mut at = pid;
        for _ in 0..LONGEST_CHAIN {
            match before.by_pid.get(&at) {
                Some(then)
                    if self.by_pid.get(&at).is_none_or(|now| now.started != then.started) =>
                {
                    at = then.parent;
                }
                _ => break,
            }
        }
        at
    }

    /// These processes and those below them.
    pub(crate) fn below(&self, own: &[u32]) -> Vec<i32> {
        self.by_pid.keys().copied().filter(|at| self.is_below(*at, own)).collect()
    }

    pub(crate) fn command(&self, pid: u32) -> Option<String> {
        Some(self.by_pid.get(&i32::try_from(pid).ok()?)?.command.clone())
    }

    /// Whether a process is one of these, or was started by one.
    pub(crate) fn is_below(&self, pid: i32, own: &[u32]) -> bool {
        let mut at = pid;
        for _ in 0..LONGEST_CHAIN {
            if u32::try_from(at).is_ok_and(|at| own.contains(&at)) {
                return true;
            }
            match self.by_pid.get(&at) {
                Some(program) => at = program.parent,
                None => return false,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs(at_s: u64, all: &[(i32, i32, &str, u64)]) -> Programs {
        let program = |&(pid, parent, command, seconds): &(i32, i32, &str, u64)| {
            let ticks = seconds * procfs::ticks_per_second();
            (pid, Program { command: command.to_owned(), parent, started: 1, ticks })
        };
        Programs { at_ns: at_s * 1_000_000_000, by_pid: all.iter().map(program).collect() }
    }

    /// Two compilers run, a third has ended and counts for what had started it; the study and its tier
    /// are left out.
    #[test]
    fn other_programs_are_counted_by_command() {
        let before = programs(
            0,
            &[
                (1, 0, "init", 5),
                (10, 1, "cargo", 1),
                (11, 10, "rustc", 100),
                (12, 10, "rustc", 2),
                (20, 1, "kendall", 3),
                (21, 20, "web", 1),
            ],
        );
        let after = programs(
            10,
            &[
                (1, 0, "init", 5),
                (10, 1, "cargo", 103),
                (12, 10, "rustc", 7),
                (13, 10, "rustc", 4),
                (20, 1, "kendall", 9),
                (21, 20, "web", 6),
            ],
        );
        let found = after.others_since(&before, &[20]);
        assert_eq!(found[0], ("rustc".to_owned(), 0.9));
        assert_eq!(found[1], ("cargo".to_owned(), 0.2));
        assert_eq!(found[2], ("init".to_owned(), 0.0));
        assert_eq!(found.len(), 3);
        assert!(before.others_since(&after, &[]).is_empty(), "no time has passed");
    }

    /// A build of 100 s that ended with the `make` that had started it stood as "`bash` 10.76 cores" on two.
    #[test]
    fn what_ended_with_its_parent_counts_for_the_one_above() {
        let before =
            programs(0, &[(10, 1, "bash", 1), (11, 10, "make", 1), (12, 11, "rustc", 100)]);
        let after = programs(10, &[(10, 1, "bash", 105)]);
        assert_eq!(after.others_since(&before, &[]), [("bash".to_owned(), 0.3)]);
    }

    #[test]
    fn this_machine_has_programs() {
        let now = Programs::now();
        assert!(now.is_below(i32::try_from(std::process::id()).unwrap(), &[std::process::id()]));
    }
}
