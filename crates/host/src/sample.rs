//! What processes and hosts use, from the operating system's accounting.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kendall_store::{HostSample, ProcessSample, ThreadSample};
use kendall_units::{exact_f64, whole_u64};
use procfs::process::{Process, Task};
use procfs::{
    CpuPressure, Current as _, CurrentSI as _, FromRead as _, KernelStats,
    WithCurrentSystemInfo as _,
};
use serde::{Deserialize, Serialize};

use crate::clock::monotonic_ns;
use crate::http;
use crate::waits::Waits;

/// Where control groups lie.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Processes below one that is observed: a fork bomb is not followed further.
const MOST_PROCESSES: usize = 4_096;

/// How long a Prometheus page may take.
const PAGE_DEADLINE: Duration = Duration::from_secs(2);

/// Where the resources of an instance are read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accounting {
    None,
    /// The process with this id and its children, on this machine.
    Process(u32),
    /// A generator of load, in the same way but for what it waits for, which nothing asks.
    Generator(u32),
    /// The process with this id without those below it, which are counted by themselves: the study.
    Alone(u32),
    /// A control group's folder below `/sys/fs/cgroup`.
    ControlGroup(String),
    /// A Prometheus page with `process_cpu_seconds_total`.
    Prometheus(String),
    /// Of these processes only what they wait for: other counters cost more than that.
    Waits(Box<Accounting>),
}

impl Accounting {
    /// The processes of the instance here, without those below them.
    pub fn roots(&self) -> Vec<u32> {
        match self {
            Self::Process(pid) | Self::Generator(pid) | Self::Alone(pid) => vec![*pid],
            Self::ControlGroup(folder) => processes_in(&group(Path::new(CONTROL_GROUPS), folder)),
            Self::Waits(of) => of.roots(),
            Self::None | Self::Prometheus(_) => Vec::new(),
        }
    }
}

/// Those of a control group and of the groups below it.
fn processes_in(folder: &Path) -> Vec<u32> {
    let mut folders = vec![folder.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop().filter(|_| found.len() < MOST_PROCESSES) {
        let listed = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        found.extend(listed.lines().filter_map(|line| line.parse::<u32>().ok()));
        let below = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let is_folder = |one: &std::fs::DirEntry| one.file_type().is_ok_and(|kind| kind.is_dir());
        folders.extend(below.filter(is_folder).map(|one| one.path()));
    }
    found
}

/// Counters of an instance at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    pub process: ProcessSample,
    /// By name; empty where the source knows no threads.
    pub threads: Vec<ThreadSample>,
}

impl From<ProcessSample> for Sampled {
    fn from(process: ProcessSample) -> Self {
        Self { process, threads: Vec::new() }
    }
}

/// Counters of an instance, or `None` where there are none to be had.
pub fn accounting(source: &Accounting) -> Option<Sampled> {
    match source {
        Accounting::None => None,
        Accounting::Process(pid) => process(*pid),
        Accounting::Generator(pid) => tree(*pid, Total::default()),
        Accounting::Alone(pid) => process_alone(*pid),
        Accounting::ControlGroup(folder) => control_group(Path::new(CONTROL_GROUPS), folder),
        Accounting::Prometheus(page) => prometheus(page).map(Sampled::from),
        Accounting::Waits(of) => {
            let total =
                Total { only_waits: true, waits: Some(Waits::default()), ..Total::default() };
            match **of {
                Accounting::Process(pid) => tree(pid, total),
                _ => Some(total.with_all(&of.roots()).sample()),
            }
        }
    }
}

/// Counters of a process with all its threads and the processes below it.
pub fn process(pid: u32) -> Option<Sampled> {
    tree(pid, Total { waits: Some(Waits::default()), ..Total::default() })
}

fn tree(pid: u32, mut total: Total) -> Option<Sampled> {
    let mut waiting = vec![pid];
    let mut seen = 0;
    while let Some(pid) = waiting.pop().filter(|_| seen < MOST_PROCESSES) {
        seen += 1;
        let found = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok());
        match found.and_then(|process| total.add(&process)) {
            Some(children) => waiting.extend(children),
            // The process itself is gone; of those below it, some always are.
            None if seen == 1 => return None,
            None => {}
        }
    }
    Some(total.sample())
}

/// Counters of a process with all its threads, without the processes below it, whether they live
/// or have ended: what a generator used becomes its parent's reaped time when it ends.
pub fn process_alone(pid: u32) -> Option<Sampled> {
    let mut total = Total { alone: true, ..Total::default() };
    total.add(&Process::new(i32::try_from(pid).ok()?).ok()?)?;
    Some(total.sample())
}

#[derive(Default)]
struct Total {
    /// Leaves out what processes below it used that have ended.
    alone: bool,
    /// Reads nothing but what threads and connections wait for.
    only_waits: bool,
    user_ticks: u64,
    system_ticks: u64,
    reaped_ticks: u64,
    on_cpu_ns: u64,
    sample: ProcessSample,
    threads: BTreeMap<String, ThreadSample>,
    waits: Option<Waits>,
}

impl Total {
    /// Adds one process, and returns those below it.
    fn add(&mut self, process: &Process) -> Option<Vec<u32>> {
        if !self.only_waits {
            self.add_times(process)?;
        }
        let mut children = Vec::new();
        for task in process.tasks().ok()?.filter_map(Result::ok) {
            self.sample.threads += 1;
            if let Some(waits) = &mut self.waits {
                waits.add_thread(&task);
            }
            if !self.only_waits {
                self.add_thread(&task);
            }
            children.extend(task.children().unwrap_or_default());
        }
        if let Some(waits) = &mut self.waits {
            waits.add_sockets(process);
        }
        Some(children)
    }

    /// With these processes, and without those below them.
    fn with_all(mut self, all: &[u32]) -> Self {
        for pid in all {
            let process = i32::try_from(*pid).ok().and_then(|pid| Process::new(pid).ok());
            if let Some(process) = process {
                self.add(&process);
            }
        }
        self.waits = self.waits.filter(|_| self.sample.threads > 0);
        self
    }

    fn add_times(&mut self, process: &Process) -> Option<()> {
        let stat = process.stat().ok()?;
        let reaped = |ticks| if self.alone { 0 } else { u64::try_from(ticks).unwrap_or(0) };
        let (reaped_user, reaped_system) = (reaped(stat.cutime), reaped(stat.cstime));
        self.user_ticks += stat.utime + reaped_user;
        self.system_ticks += stat.stime + reaped_system;
        self.reaped_ticks += reaped_user + reaped_system;
        self.sample.resident_bytes += stat.rss_bytes().get();
        Some(())
    }

    fn add_thread(&mut self, task: &Task) {
        let schedstat = task.schedstat().ok();
        if let Some(schedstat) = &schedstat {
            self.on_cpu_ns += schedstat.sum_exec_runtime;
        }
        // A kernel that does not count it says that no thread ever ran.
        if let Some(counted) = schedstat.as_ref().filter(|counted| counted.pcount > 0) {
            *self.sample.run_queue_wait_ns.get_or_insert(0) += counted.run_delay;
        }
        if let Ok(status) = task.status() {
            if let Some(schedstat) = &schedstat {
                let name = common_name(&status.name);
                let group = self.threads.entry(name.to_owned()).or_default();
                group.threads += 1;
                group.cpu_ns += schedstat.sum_exec_runtime;
                group.run_queue_wait_ns += schedstat.run_delay;
            }
            self.sample.voluntary_switches += status.voluntary_ctxt_switches.unwrap_or(0);
            self.sample.involuntary_switches += status.nonvoluntary_ctxt_switches.unwrap_or(0);
        }
    }

    /// The scheduler counts nanoseconds, but only of threads that live; the ticks of 10 ms count
    /// all, and know user from system. The finer figure is divided as the coarser one is.
    fn sample(mut self) -> Sampled {
        let tick_ns = 1_000_000_000 / procfs::ticks_per_second().max(1);
        let ticks = self.user_ticks + self.system_ticks;
        let total = (self.on_cpu_ns + self.reaped_ticks * tick_ns).max(ticks * tick_ns);
        let user_share = kendall_units::ratio(self.user_ticks, ticks).unwrap_or(0.0);
        self.sample.cpu_user_ns = whole_u64(exact_f64(total) * user_share);
        self.sample.cpu_system_ns = total - self.sample.cpu_user_ns.min(total);
        let at_ns = monotonic_ns();
        self.sample.at_ns = at_ns;
        if self.sample.run_queue_wait_ns.is_none() && !self.only_waits {
            self.sample.cpu_pressure_ns = pressure_ns(Path::new(CpuPressure::PATH));
        }
        self.sample.waiting = self.waits.take().and_then(Waits::found);
        let threads = self.threads.into_iter();
        Sampled {
            process: self.sample,
            threads: threads.map(|(name, group)| ThreadSample { name, at_ns, ..group }).collect(),
        }
    }
}

/// `worker-7` is `worker`: threads that differ in a number do the same work.
fn common_name(name: &str) -> &str {
    let common = name.trim_end_matches(|c: char| c.is_ascii_digit() || "-_:/#".contains(c));
    if common.is_empty() { name } else { common }
}

fn group(root: &Path, folder: &str) -> PathBuf {
    root.join(folder.trim_start_matches('/'))
}

/// Counters of a control group (version 2), by its folder below `root`: the processes there tell what threads do, as far as
/// they are seen, and the group what all together used.
fn control_group(root: &Path, folder: &str) -> Option<Sampled> {
    let folder = group(root, folder);
    let stat = std::fs::read_to_string(folder.join("cpu.stat")).ok()?;
    let nanoseconds = |name: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().parse::<u64>().ok()? * 1_000)
    };
    let (cpu_user_ns, cpu_system_ns) = (nanoseconds("user_usec ")?, nanoseconds("system_usec ")?);
    let total = Total { waits: Some(Waits::default()), ..Total::default() };
    let found = total.with_all(&processes_in(&folder)).sample();
    let memory = std::fs::read_to_string(folder.join("memory.current"));
    let uncounted = found.process.run_queue_wait_ns.is_none();
    let process = ProcessSample {
        cpu_user_ns,
        cpu_system_ns,
        cpu_pressure_ns: pressure_ns(&folder.join("cpu.pressure")).filter(|_| uncounted),
        resident_bytes: memory.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0),
        ..found.process
    };
    Some(Sampled { process, ..found })
}

/// How long one thread at least had no core, where the kernel tells.
fn pressure_ns(file: &Path) -> Option<u64> {
    let pressure = CpuPressure::from_file(file).ok()?;
    Some(pressure.some.total * 1_000)
}

/// Counters of a process from its own Prometheus page, by the standard names.
fn prometheus(page: &str) -> Option<ProcessSample> {
    let rest = page.strip_prefix("http://").unwrap_or(page);
    let (address, path) = rest.split_once('/').unwrap_or((rest, "metrics"));
    let (status, body) = http::get(address, &format!("/{path}"), PAGE_DEADLINE).ok()?;
    standard_counters(&String::from_utf8(body).ok().filter(|_| status == 200)?)
}

/// What every client library of Prometheus says of its process.
fn standard_counters(text: &str) -> Option<ProcessSample> {
    let value = |name: &str| -> Option<f64> {
        let found = text.lines().filter_map(|line| line.strip_prefix(name)).find_map(|rest| {
            // Labels, if there are any, end before the value.
            let rest = rest.rsplit_once('}').map_or(rest, |(_, rest)| rest);
            rest.strip_prefix(' ')?.split_whitespace().next()?.parse().ok()
        });
        found.filter(|value: &f64| value.is_finite())
    };
    Some(ProcessSample {
        at_ns: monotonic_ns(),
        // The page does not tell user from system.
        cpu_user_ns: whole_u64(value("process_cpu_seconds_total")? * 1e9),
        resident_bytes: whole_u64(value("process_resident_memory_bytes").unwrap_or(0.0)),
        ..ProcessSample::default()
    })
}

pub fn host(name: &str) -> Option<HostSample> {
    let kernel = KernelStats::current().ok()?;
    let tick_ns = 1_000_000_000 / procfs::ticks_per_second().max(1);
    let cpu = &kernel.total;
    let system = cpu.system + cpu.irq.unwrap_or(0) + cpu.softirq.unwrap_or(0);
    let devices = procfs::net::dev_status().unwrap_or_default();
    Some(HostSample {
        host: name.to_owned(),
        at_ns: monotonic_ns(),
        cores: u32::try_from(kernel.cpu_time.len()).unwrap_or(u32::MAX),
        cpu_user_ns: (cpu.user + cpu.nice) * tick_ns,
        cpu_system_ns: system * tick_ns,
        cpu_idle_ns: (cpu.idle + cpu.iowait.unwrap_or(0)) * tick_ns,
        cpu_steal_ns: cpu.steal.unwrap_or(0) * tick_ns,
        context_switches: kernel.ctxt,
        network_in_bytes: devices.values().map(|device| device.recv_bytes).sum(),
        network_out_bytes: devices.values().map(|device| device.sent_bytes).sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_and_this_host_have_counters() {
        let sampled = process(std::process::id()).unwrap();
        let sample = sampled.process;
        assert!(sample.threads >= 1 && sample.resident_bytes > 0);
        let told = sample.run_queue_wait_ns.or(sample.cpu_pressure_ns);
        assert!(told.is_some() || !Path::new(CpuPressure::PATH).exists(), "{sample:?}");
        let alone = Accounting::Waits(Box::new(Accounting::Process(std::process::id())));
        let waits = accounting(&alone).unwrap();
        assert!(waits.process.threads >= 1 && waits.threads.is_empty());
        assert_eq!(waits.process.run_queue_wait_ns, None);
        let named: u64 = sampled.threads.iter().map(|group| group.threads).sum();
        assert_eq!(named, sample.threads);
        assert_eq!((common_name("worker-12"), common_name("42")), ("worker", "42"));
        let host = host("here").unwrap();
        assert!(host.cores >= 1 && host.cpu_idle_ns + host.cpu_user_ns > 0);
        assert_eq!(process(u32::MAX), None);
    }

    #[test]
    fn a_control_group_says_what_its_processes_used() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("services/cache");
        std::fs::create_dir_all(&group).unwrap();
        assert_eq!(control_group(root.path(), "/services/cache"), None, "no accounts there yet");
        let stat = "usage_usec 3500\nuser_usec 2000\nsystem_usec 1500\nnr_periods 0\n";
        std::fs::write(group.join("cpu.stat"), stat).unwrap();
        std::fs::write(group.join("memory.current"), "8192\n").unwrap();
        let sampled = || control_group(root.path(), "/services/cache").unwrap();
        let sample = sampled().process;
        assert_eq!((sample.cpu_user_ns, sample.cpu_system_ns), (2_000_000, 1_500_000));
        assert_eq!(sample.resident_bytes, 8_192);
        assert_eq!((sample.run_queue_wait_ns, sample.cpu_pressure_ns), (None, None), "not known");
        let pressure = "some avg10=1.00 avg60=0.50 avg300=0.10 total=700\n\
                        full avg10=0.00 avg60=0.00 avg300=0.00 total=3\n";
        std::fs::write(group.join("cpu.pressure"), pressure).unwrap();
        assert_eq!(sampled().process.cpu_pressure_ns, Some(700_000));
        // Of processes that are seen, the threads tell.
        std::fs::write(group.join("cgroup.procs"), std::process::id().to_string()).unwrap();
        let Sampled { process: sample, threads } = sampled();
        assert!(sample.threads >= 1 && !threads.is_empty());
        assert_eq!((sample.cpu_user_ns, sample.cpu_system_ns), (2_000_000, 1_500_000));
        let both = (sample.run_queue_wait_ns.is_some(), sample.cpu_pressure_ns.is_some());
        assert!(both.0 != both.1, "{sample:?}");
        std::fs::write(root.path().join("services/cgroup.procs"), "7\n8\n").unwrap();
        std::fs::write(group.join("cgroup.procs"), "9\n").unwrap();
        assert_eq!(processes_in(&root.path().join("services")), [7, 8, 9]);
        assert_eq!(processes_in(&root.path().join("none")), [] as [u32; 0]);
        assert_eq!((sample.cpu_user_ns, sample.cpu_system_ns), (2_000_000, 1_500_000));
        assert_eq!(sample.resident_bytes, 8_192);
    }

    /// A study's own CPU time must not jump by all that a generator used when it ends.
    #[test]
    fn what_an_ended_child_used_is_not_its_parents_own() {
        use std::io::{BufRead as _, BufReader};
        use std::process::{Command, Stdio};
        // The part in parentheses is a process of its own, which the shell waits for.
        let work = "(i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done); echo ended; read line";
        let mut shell = Command::new("sh")
            .args(["-c", work])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let cpu_ns = |sampled: Option<Sampled>| {
            let process = sampled.unwrap().process;
            process.cpu_user_ns + process.cpu_system_ns
        };
        let (alone, with) = (cpu_ns(process_alone(shell.id())), cpu_ns(process(shell.id())));
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert_eq!(said, "ended\n");
        assert!(alone < with / 2, "{alone} ns alone, {with} ns with what has ended");
    }

    #[test]
    fn a_page_of_prometheus_says_what_its_process_used() {
        let page = "# HELP process_cpu_seconds_total CPU\n# TYPE process_cpu_seconds_total counter\n\
                    process_cpu_seconds_total{host=\"a b\"} 1.5e+00 1700000000000\n\
                    process_resident_memory_bytes 4.096e+03\nother_total 7\n";
        let sample = standard_counters(page).unwrap();
        assert_eq!((sample.cpu_user_ns, sample.resident_bytes), (1_500_000_000, 4_096));
        assert_eq!(standard_counters("process_cpu_seconds_total NaN\n"), None);
        assert_eq!(standard_counters("up 1\n"), None);
    }

    /// Over the wire, as a study reads it: the page of a process that serves one.
    #[test]
    fn a_page_is_fetched_where_it_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            use std::io::{BufRead as _, BufReader, Write as _};
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(&stream).lines().map(Result::unwrap);
            let asked = lines.next().unwrap();
            // To the end of the head: a socket closed over unread bytes takes its answer back.
            assert!(lines.any(|line| line.is_empty()));
            drop(lines);
            let body = "process_cpu_seconds_total 2\n";
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all((head + body).as_bytes()).unwrap();
            asked
        });
        let source = Accounting::Prometheus(format!("http://{address}/of/this"));
        assert_eq!(accounting(&source).unwrap().process.cpu_user_ns, 2_000_000_000);
        assert_eq!(server.join().unwrap(), "GET /of/this HTTP/1.0");
    }
}
