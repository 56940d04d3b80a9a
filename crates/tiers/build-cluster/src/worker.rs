//! The worker (`kendall serve worker`): takes actions from the scheduler, runs each in a slot of its
//! own, and puts their results into the cache.

mod action;
mod bounds;
mod connection;
mod disk;
#[cfg(feature = "fuzzing")]
#[path = "../../../../fuzz/inside/worker.rs"]
pub mod fuzzing;
mod loopback;
mod meter;
mod outputs;
mod paths;
mod remove;
mod report;
mod root;
mod runner;
pub mod sandbox;
mod slot;
pub mod slot_process;
mod slot_protocol;
mod start;
mod store;
mod tree;
mod usage;

use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kendall_tier::serve::threads;
use kendall_tier::{Clock, Instruments, Routes};
use tokio::runtime::Runtime;

use action::Kitchen;
pub use bounds::ActionBounds;
use connection::{FAREWELL, Identity, RealTime, Registration, Table, Wait as _};
pub use outputs::OutputLimits;
use report::Report;
use runner::Runner;
use slot::Slot;
pub use slot::{SlotFailure, SlotProgram};
use store::{Store, StoreCounts};
use tree::Folders;
pub use tree::TreeLimits;

use crate::instruments::Families;
use crate::peer::Peer;
use crate::remote::Remote;

#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Name for people, unique in the cluster.
    pub name: String,
    /// Random text of this process.
    pub uid: String,
    pub scheduler: Peer,
    pub cache: Peer,
    /// Actions at the same time.
    pub slots: usize,
    /// Properties that actions may ask for.
    pub offers: Vec<(String, String)>,
    /// Folder for inputs and slots.
    pub folder: PathBuf,
    /// Bytes of inputs kept between actions.
    pub store_bytes: u64,
    pub folders_known: NonZeroUsize,
    pub slot: SlotProgram,
    /// Whether actions run as another user than the worker.
    pub other_user: bool,
    /// Whether slots have a root of their own.
    pub own_root: bool,
    pub inputs: TreeLimits,
    pub outputs: OutputLimits,
    pub log_bytes: u64,
    /// How long the cache may be away.
    pub patience: Duration,
    pub threads: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("cannot use the folder {folder}; choose another with --data")]
    Folder { folder: PathBuf, source: io::Error },
    #[error(transparent)]
    Taken(#[from] crate::folder::FolderError),
    #[error("cannot make a slot for actions")]
    Slot(#[from] SlotFailure),
    #[error("cannot start threads")]
    Threads(#[source] io::Error),
}

#[derive(Debug)]
pub struct Worker {
    runtime: Runtime,
    instruments: Instruments,
    table: Arc<Table>,
    talking: tokio::task::JoinSet<()>,
    families: Families,
    notes: String,
    /// Two workers in one folder would run their actions in the same slots.
    _lock: std::fs::File,
}

impl Worker {
    /// Starts it: its slots first, so that one that cannot work is never given work.
    pub fn start(options: WorkerOptions, clock: Clock) -> Result<Self, WorkerError> {
        let runtime = threads("worker", options.threads).map_err(WorkerError::Threads)?;
        let failed = |source| WorkerError::Folder { folder: options.folder.clone(), source };
        let lock = crate::folder::take(&options.folder, &["files", "slots"])?;
        let folder = options.folder.canonicalize().map_err(failed)?;
        let link = options.other_user;
        let store = Store::new(folder.join("files"), options.store_bytes, link).map_err(failed)?;
        let mut slots: Vec<Slot> = (0..options.slots)
            .map(|number| {
                let folder = folder.join("slots").join(number.to_string());
                Slot::new(folder, options.slot.clone(), clock.clone())
            })
            .collect();
        let mut notes = String::new();
        runtime.block_on(async {
            for slot in &mut slots {
                notes = slot.start().await?;
            }
            Ok::<_, SlotFailure>(())
        })?;
        let instruments = Instruments::new(report::layout(), clock.clone());
        instruments.set_workers(u32::try_from(options.slots).unwrap_or(u32::MAX));
        let table = Arc::new(Table::new(slots.len()));
        let remote = {
            let _inside = runtime.enter();
            Remote::new(options.cache, options.patience, clock.clone())
        };
        let kitchen = Kitchen {
            name: options.name.clone(),
            remote,
            store: store.clone(),
            folders: Folders::new(options.folders_known, options.inputs),
            outputs: options.outputs,
            log_bytes: options.log_bytes,
            seen_at: options.own_root.then(|| sandbox::BUILD.to_owned()),
            clock,
        };
        let runner = Runner::new(slots, kitchen, Report::new(&instruments));
        let (name, uid, offers) = (options.name, options.uid, options.offers);
        let identity = Identity { name, uid, offers };
        let table_of = Arc::clone(&table);
        let scheduler = options.scheduler;
        let address = scheduler.address;
        let time = RealTime;
        let registration = Registration { identity, address, table: table_of, runner, time };
        let mut talking = tokio::task::JoinSet::new();
        talking.spawn_on(registration.keep(move || scheduler.calls()), runtime.handle());
        let families = Families::new();
        count_store(&families, &store);
        Ok(Self { runtime, instruments, table, talking, families, notes, _lock: lock })
    }

    pub fn instruments(&self) -> &Instruments {
        &self.instruments
    }

    /// What its page shows: what it counts of its store of inputs, with labels.
    pub fn routes(&self) -> Routes {
        let families = self.families.clone();
        Routes::new().with_metrics(move || families.text())
    }

    /// What slots could not set up.
    pub fn notes(&self) -> &str {
        &self.notes
    }

    /// Takes no more work, ends what runs, hands over the results, and ends.
    pub fn stop(mut self) {
        self.table.drain();
        let table = &self.table;
        let farewell = async {
            while table.runs() {
                RealTime.wait(Duration::from_millis(100)).await;
            }
            RealTime.wait(FAREWELL).await;
        };
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.talking.join_next() => {}
                () = farewell => tracing::warn!("the scheduler did not take the last results"),
            }
        });
        self.runtime.shutdown_timeout(Duration::from_secs(1));
    }
}

fn count_store(families: &Families, store: &Store) {
    let count = |name, help, labels: &[(&str, &str)], read: fn(StoreCounts) -> u64| {
        let store = store.clone();
        families.count(name, help, labels, move || read(store.counts()));
    };
    let (files, help) = ("kendall_build_inputs_total", "Inputs by whether they were on this disk.");
    count(files, help, &[("found", "true")], |counts| counts.hits);
    count(files, help, &[("found", "false")], |counts| counts.misses);
    let fetched = "kendall_build_inputs_fetched_bytes_total";
    count(fetched, "Bytes of inputs that came from the cache.", &[], |c| c.fetched_bytes);
    let store = store.clone();
    families.level("kendall_build_inputs_bytes", "Bytes of inputs on this disk.", &[], move || {
        kendall_units::exact_f64(store.counts().bytes)
    });
}

/// Workers for the model of scheduler and workers: their conversation, without actions.
#[cfg(test)]
pub(crate) mod model {
    use std::sync::Arc;

    pub(crate) use super::connection::{Answer, Execute, Wait};
    use super::connection::{Identity, Registration, Table};
    use crate::peer::Calls;

    /// A worker that registers over the connections that `connect` makes.
    pub(crate) async fn worker_over<E: Execute, W: Wait>(
        name: String,
        slots: usize,
        runner: E,
        time: W,
        connect: impl Fn() -> Calls + Send,
    ) {
        let identity = Identity { uid: name.clone(), name, offers: Vec::new() };
        let address = ([127, 0, 0, 1], 1).into();
        let table = Arc::new(Table::new(slots));
        Registration { identity, address, table, runner, time }.keep(connect).await;
    }
}
