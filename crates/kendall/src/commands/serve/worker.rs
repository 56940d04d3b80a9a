//! `kendall serve worker`: a worker of the build cluster, and the process of one of its slots.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::Command;

use kendall_build_cluster::peer::Peer;
use kendall_build_cluster::worker::sandbox::Sandbox;
use kendall_build_cluster::worker::{
    ActionBounds, OutputLimits, SlotProgram, TreeLimits, Worker, WorkerError, WorkerOptions,
    slot_process,
};
use kendall_tier::{Clock, Stop};
use kendall_units::{Seconds, parse_bytes, parse_seconds};

use super::cache::PeerFlags;
use super::{PageFlags, Running};
use crate::exit::{Exit, exit_with};
use crate::output;

/// Directories of inputs that are remembered.
const FOLDERS: NonZeroUsize = NonZeroUsize::new(100_000).unwrap();

/// Runs a worker of a build cluster
///
/// It takes actions from the scheduler and runs one per slot, each in its own root directory with
/// its inputs and, read-only, the system's programs (/usr, /bin, /lib, /etc, /opt). If the worker
/// is root, actions run as --run-as, so that they can change neither the worker nor each other's
/// inputs; otherwise the worker needs user namespaces.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  \
    kendall serve worker --scheduler 127.0.0.1:8981 --cache 127.0.0.1:8980 --slots 4 \
    --property OSFamily=linux --metrics 127.0.0.1:9102")]
#[command(override_usage = "kendall serve worker [OPTIONS] --scheduler <HOST:PORT> \\\n    \
    --cache <HOST:PORT>")]
pub(crate) struct WorkerFlags {
    /// The scheduler
    #[arg(long, value_name = "HOST:PORT", value_parser = super::address)]
    scheduler: SocketAddr,

    /// The cache, or the front over several
    #[arg(long, value_name = "HOST:PORT", value_parser = super::address)]
    cache: SocketAddr,

    #[command(flatten)]
    peers: PeerFlags,

    /// Actions that run at the same time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    slots: u16,

    /// Name of the worker; by default host name and process id
    #[arg(long)]
    name: Option<String>,

    /// A platform property that this worker offers; may be repeated
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = super::pair)]
    properties: Vec<(String, String)>,

    /// Folder for inputs and slots
    #[arg(long, value_name = "DIR", default_value = "kendall-worker")]
    data: PathBuf,

    /// Bytes of inputs that are kept between actions
    #[arg(long, value_name = "BYTES", default_value = "4GiB", value_parser = parse_bytes)]
    store_bytes: u64,

    /// Whether actions run in namespaces with their own root directory; use `none` if the system
    /// does not permit that; actions then see the machine's files
    #[arg(long, value_enum, default_value_t)]
    isolation: Isolation,

    /// Whether actions share the machine's network
    #[arg(long, value_enum, default_value_t)]
    network: Network,

    /// User and group that actions run as, when the worker is root
    #[arg(long, value_name = "UID:GID", default_value = "65534:65534", value_parser = user)]
    run_as: (u32, u32),

    /// A further folder that actions can read; may be repeated
    #[arg(long = "visible", value_name = "DIR")]
    visible: Vec<PathBuf>,

    /// Most bytes of an action's inputs
    #[arg(long, value_name = "BYTES", default_value = "16GiB", value_parser = parse_bytes)]
    input_bytes: u64,

    /// Most files, directories and links of an action's inputs, and of its outputs
    #[arg(long, value_name = "N", default_value_t = 500_000)]
    entries: u64,

    /// Most bytes of an action's outputs
    #[arg(long, value_name = "BYTES", default_value = "4GiB", value_parser = parse_bytes)]
    output_bytes: u64,

    /// Most bytes on an action's standard output, and on its standard error
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = parse_bytes)]
    log_bytes: u64,

    /// Most memory of one action, all its processes together; by default three quarters of the
    /// machine's
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    action_memory: Option<u64>,

    /// Most bytes that one action has on the disk of --data: what it wrote, and its inputs where
    /// they are copies
    #[arg(long, value_name = "BYTES", default_value = "16GiB", value_parser = parse_bytes)]
    action_disk: u64,

    /// Most processes and threads of one action
    #[arg(long, value_name = "N", default_value_t = 2048,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    action_processes: u64,

    /// How long the cache may be unreachable before actions are returned
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_seconds)]
    cache_patience: Seconds,

    #[command(flatten)]
    page: PageFlags,

    /// Threads, besides the processes of the slots; by default one for every 8 slots, and no more
    /// than there are cores
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
}

/// Slots that one thread serves. A second thread costs an action more in waking each other, and in
/// messages that go out in two pieces, than it takes off the first.
const SLOTS_A_THREAD: usize = 8;

fn threads_for(slots: u16, cores: usize) -> usize {
    usize::from(slots).div_ceil(SLOTS_A_THREAD).clamp(1, cores.max(1))
}

/// Processes that the user of actions may have beside those of the slots, and of one slot too many.
const SPARE_PROCESSES: u64 = 4096;

/// Most memory of an action where nothing was said: one alone does not take all of the machine's.
fn most_memory() -> u64 {
    let machine = rustix::system::sysinfo();
    let bytes = machine.totalram.saturating_mul(u64::from(machine.mem_unit));
    bytes / 4 * 3
}

/// Where actions run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Isolation {
    /// In namespaces and a root of their own.
    #[default]
    Namespaces,
    /// In the machine's root.
    None,
}

/// What network actions have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Network {
    /// One of their own, with loopback alone.
    #[default]
    Own,
    /// The machine's.
    Host,
}

fn user(text: &str) -> Result<(u32, u32), String> {
    let form = "write it as UID:GID, such as 65534:65534";
    let (user, group) = text.split_once(':').ok_or(form)?;
    let number = |text: &str| text.parse().map_err(|_| form.to_owned());
    match (number(user)?, number(group)?) {
        (0, _) | (_, 0) => Err("actions do not run as root".to_owned()),
        numbers => Ok(numbers),
    }
}

impl WorkerFlags {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let stop = Stop::on_signals()?;
        let worker = Worker::start(self.options()?, Clock::monotonic())
            .map_err(|error| exit_with(exit_of(&error), error))?;
        if !worker.notes().is_empty() {
            output::note(worker.notes().trim_end_matches("; "));
        }
        // It has no clients: the scheduler does not come to it.
        Running::start(&self.page, worker.instruments(), worker.routes(), &stop, Vec::new())?
            .until_stopped(|| worker.stop())
    }

    fn options(&self) -> anyhow::Result<WorkerOptions> {
        let root = rustix::process::getuid().is_root();
        let process = std::process::id();
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = self.name.clone().unwrap_or_else(|| format!("{}-{process}", machine.trim()));
        let start = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let size = |value: u16| usize::from(value);
        let trust = self.peers.trust()?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = self.threads.map_or_else(|| threads_for(self.slots, cores), size);
        Ok(WorkerOptions {
            uid: format!("{name}-{process}-{}-{}", start.tv_sec, start.tv_nsec),
            name,
            scheduler: Peer { address: self.scheduler, trust: trust.clone() },
            cache: Peer { address: self.cache, trust },
            slots: size(self.slots),
            offers: self.properties.clone(),
            folder: self.data.clone(),
            store_bytes: self.store_bytes,
            folders_known: FOLDERS,
            slot: SlotProgram {
                program: std::env::current_exe()?,
                arguments: self.slot_arguments()?,
                owner: root.then_some(self.run_as),
                own_root: self.isolation == Isolation::Namespaces,
                disk_bytes: self.action_disk,
            },
            other_user: root,
            own_root: self.isolation == Isolation::Namespaces,
            inputs: TreeLimits { entries: self.entries, bytes: self.input_bytes, depth: 200 },
            outputs: OutputLimits { bytes: self.output_bytes, entries: self.entries },
            log_bytes: self.log_bytes,
            patience: self.cache_patience.as_duration(),
            threads,
        })
    }

    /// The command of a slot's process, but for its folder.
    fn slot_arguments(&self) -> anyhow::Result<Vec<String>> {
        // The kernel counts those of a user, and all slots have the same. So an action that makes too many
        // must be seen before it has taken those of the others.
        let all = (u64::from(self.slots) + 1).saturating_mul(self.action_processes);
        let sandbox = Sandbox {
            folder: PathBuf::new(),
            namespaces: self.isolation == Isolation::Namespaces,
            user: self.run_as.0,
            group: self.run_as.1,
            network: self.network == Network::Host,
            visible: self.visible.clone(),
            // A file may be as large as all outputs; logs are cut by their own bound.
            // One more than is allowed: what is cut off there shows, and is not taken for all there was.
            file_bytes: self.output_bytes.max(self.log_bytes).saturating_add(1),
            bounds: ActionBounds {
                memory: self.action_memory.unwrap_or_else(most_memory),
                disk: self.action_disk,
                processes: self.action_processes,
            },
            processes: all.saturating_add(SPARE_PROCESSES),
        };
        let command = ["serve", "worker-slot", "--sandbox"].map(str::to_owned);
        Ok(command.into_iter().chain([serde_json::to_string(&sandbox)?]).collect())
    }
}

fn exit_of(error: &WorkerError) -> Exit {
    match error {
        WorkerError::Folder { .. } | WorkerError::Taken(_) | WorkerError::Slot(_) => Exit::NotReady,
        WorkerError::Threads(_) => Exit::Failure,
    }
}

/// Runs the actions of one slot: started by `kendall serve worker`
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct WorkerSlotFlags {
    #[arg(long)]
    folder: PathBuf,
    /// What actions see and may use, as JSON
    #[arg(long)]
    sandbox: String,
    /// The first process of new namespaces
    #[arg(long)]
    inner: bool,
}

impl WorkerSlotFlags {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let sandbox = Sandbox { folder: self.folder, ..serde_json::from_str(&self.sandbox)? };
        let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
        if sandbox.namespaces && !self.inner {
            let mut again = Command::new("/proc/self/exe");
            again.args(std::env::args_os().skip(1)).arg("--inner");
            return match slot_process::outer(&sandbox, socket, again) {
                Ok(status) if status.success() => Ok(Exit::Done),
                Ok(_) => Ok(Exit::Failure),
                Err(error) => Err(exit_with(Exit::NotReady, error)),
            };
        }
        slot_process::inner(&sandbox, socket, Clock::monotonic())?;
        Ok(Exit::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_has_a_thread_for_every_eight_slots_and_never_more_than_cores() {
        let threads = |slots, cores| threads_for(slots, cores);
        assert_eq!([threads(1, 4), threads(8, 4), threads(9, 4), threads(1024, 4)], [1, 1, 2, 4]);
        assert_eq!([threads(64, 1), threads(64, 0)], [1, 1]);
    }
}
