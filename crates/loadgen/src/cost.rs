//! What a generator thread costs, from the kernel's accounting.

use crate::clock::thread_cpu_ns;
use kendall_protocols::load_result::GeneratorThread;

/// Accounts of the calling thread at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Account {
    cpu_ns: u64,
    user_ticks: u64,
    system_ticks: u64,
    run_queue_wait_ns: u64,
    at_ns: u64,
}

impl Account {
    /// The calling thread's accounts now. Where the kernel does not keep one, it stays 0.
    pub(crate) fn of_this_thread(now: u64) -> Self {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
        // Fields are counted from behind the name, which may hold spaces (proc(5)).
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11);
        let mut ticks = || fields.next().and_then(|field| field.parse().ok()).unwrap_or(0);
        let (user_ticks, system_ticks) = (ticks(), ticks());
        let scheduler = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let wait = scheduler.split_whitespace().nth(1).and_then(|field| field.parse().ok());
        Self {
            cpu_ns: thread_cpu_ns(),
            user_ticks,
            system_ticks,
            run_queue_wait_ns: wait.unwrap_or(0),
            at_ns: now,
        }
    }

    /// What the thread cost from `earlier` to this. The kernel splits user and system by ticks of
    /// 10 ms; the split is applied to the exact sum.
    /// What was spun is not work.
    pub(crate) fn since(self, earlier: Self, spun_ns: u64) -> GeneratorThread {
        let cpu_ns = self.cpu_ns.saturating_sub(earlier.cpu_ns);
        let spun_ns = spun_ns.min(cpu_ns);
        let cpu_ns = cpu_ns - spun_ns;
        let user = self.user_ticks.saturating_sub(earlier.user_ticks);
        let system = self.system_ticks.saturating_sub(earlier.system_ticks);
        let share = kendall_units::ratio(user, user + system).unwrap_or(0.0);
        let cpu_user_ns = kendall_units::whole_u64(kendall_units::exact_f64(cpu_ns) * share);
        GeneratorThread {
            cpu_user_ns,
            cpu_system_ns: cpu_ns - cpu_user_ns.min(cpu_ns),
            wall_ns: self.at_ns.saturating_sub(earlier.at_ns),
            spun_ns,
            run_queue_wait_ns: self.run_queue_wait_ns.saturating_sub(earlier.run_queue_wait_ns),
        }
    }
}
