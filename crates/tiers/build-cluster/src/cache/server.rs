//! The running cache: stores, network threads, housekeeping.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kendall_tier::serve::Bounds;
use kendall_tier::{Clock, Exposition, Instruments, PageResponse, Routes};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{oneshot, watch};

use super::context::{Context, Shared};
use super::grpc::Budget;
use super::instances::Instances;
use super::metrics::{self, Metrics};
use super::page;
use super::service::Service;
use super::store::{Store, StoreError, StoreOptions};
use super::uploads::Uploads;
use crate::instruments::Families;
use crate::listen::{Guarded, ListenOptions, StartError, UploadBounds};

/// Bytes of unfinished requests that are held at most.
const HELD_BYTES: usize = 512 << 20;
const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct CacheOptions {
    pub listen: ListenOptions,
    /// Folder of what is kept.
    pub data: PathBuf,
    /// Most bytes on disk, without instances of their own.
    pub quota: u64,
    /// Instances with a store and a quota each; empty for one store that serves every name.
    pub instances: BTreeMap<String, u64>,
    pub threads: usize,
    /// Refuses all clients' changes of results of actions.
    pub read_only_results: bool,
    /// Keeps, over HTTP, what is no result of an action where those are.
    pub any_results: bool,
    /// Whether a front checks that the blobs of a result exist, instead of this cache.
    pub behind_front: bool,
}

#[derive(Debug)]
pub struct Cache {
    address: SocketAddr,
    instruments: Instruments,
    families: Families,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    network: JoinHandle<io::Result<()>>,
    threads: Vec<(oneshot::Sender<()>, JoinHandle<()>)>,
    housekeeping: Vec<JoinHandle<()>>,
    stopped: Arc<AtomicBool>,
}

impl Cache {
    /// Opens the stores and serves.
    pub fn start(options: &CacheOptions, clock: Clock) -> Result<Self, StartError> {
        super::memory::keep();
        let mut listen = options.listen.clone();
        if options.behind_front {
            listen.edge.answers = listen.edge.answers.behind_front();
        }
        let (listener, tokens) = listen.bind()?;
        let address = listener.address();
        let instances = open(options).map_err(|error| StartError::Kept(error.into()))?;
        let families = Families::new();
        for (name, store) in instances.stores() {
            metrics::describe(&families, name, store);
        }
        let instruments = Instruments::new(metrics::layout(), clock.clone());
        let (mut held, mut bounds) = (Bounds::of(HELD_BYTES), UploadBounds::default());
        if options.behind_front {
            (held, bounds) = (held.behind_front(), UploadBounds::behind_front());
        }
        let budget = Budget::new(held);
        let uploads = Uploads::new(&budget, bounds);
        uploads.open.describe(&families);
        let shared = Arc::new(Shared {
            instances,
            uploads,
            budget,
            metrics: Metrics::new(&families),
            clock,
            read_only_results: options.read_only_results,
            any_results: options.any_results,
            behind_front: options.behind_front,
        });
        let (stop, stopping) = watch::channel(false);
        let mut threads = Vec::new();
        let mut services = Vec::new();
        for lane in 0..options.threads.max(1) {
            let (handle, end, thread) = network_thread(lane)?;
            let service = Service(Context::new(&shared, lane, instruments.recorder()));
            services.push((handle, Guarded { service, tokens: tokens.clone() }));
            threads.push((end, thread));
        }
        let runtime = current_thread()?;
        let serving = listener.serve(services, Some(&instruments), stopping);
        let network = spawn("accept".into(), move || runtime.block_on(serving))?;
        let stopped = Arc::new(AtomicBool::new(false));
        let housekeeping = keep_house(&shared, &stopped)?;
        Ok(Self {
            address,
            instruments,
            families,
            shared,
            stop,
            network,
            threads,
            housekeeping,
            stopped,
        })
    }

    /// The address for clients, with its real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn instruments(&self) -> &Instruments {
        &self.instruments
    }

    /// What its page shows: labelled metrics, and the status for people at `/`.
    pub fn routes(&self) -> Routes {
        let (families, shared) = (self.families.clone(), Arc::clone(&self.shared));
        let (ages, again) = (Arc::clone(&self.shared), Arc::clone(&self.shared));
        Routes::new()
            .with_metrics(move || families.text() + &eviction_ages(&ages))
            .with("GET", "/", move |_| PageResponse::html(page::page(&shared)))
            .with("GET", "/status", move |_| PageResponse::html(page::page(&again)))
    }

    /// Stops: no new connection, what was accepted is answered, and the index is written down.
    pub fn stop(self) {
        self.stop.send_replace(true);
        match self.network.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the network side failed"),
            Err(panic) => std::panic::resume_unwind(panic),
        }
        self.stopped.store(true, Ordering::SeqCst);
        for (end, thread) in self.threads {
            // An error means that it has ended already.
            end.send(()).unwrap_or_default();
            join(thread);
        }
        self.housekeeping.into_iter().for_each(join);
        for (_, store) in self.shared.instances.stores() {
            store.close();
        }
    }
}

fn join(thread: JoinHandle<()>) {
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn open(options: &CacheOptions) -> Result<Instances, StoreError> {
    let lanes = options.threads.max(1);
    if options.instances.is_empty() {
        let store = StoreOptions { folder: options.data.clone(), quota: options.quota, lanes };
        return Ok(Instances::Shared(Store::open(&store)?));
    }
    let mut stores = BTreeMap::new();
    for (name, quota) in &options.instances {
        // Names may hold what folders may not.
        let folder = options.data.join(kendall_units::hex(name.as_bytes()) + "-instance");
        let store = Store::open(&StoreOptions { folder, quota: *quota, lanes })?;
        stores.insert(name.clone(), store);
    }
    Ok(Instances::Named(stores))
}

fn current_thread() -> Result<Runtime, StartError> {
    // What must not hold up a network thread runs on one other.
    let mut builder = Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(1).build().map_err(StartError::Threads)
}

fn spawn<T: Send + 'static>(
    name: String,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, StartError> {
    std::thread::Builder::new().name(name).spawn(body).map_err(StartError::Threads)
}

/// A thread with a runtime of its own: what a connection needs never leaves its core.
fn network_thread(
    lane: usize,
) -> Result<(Handle, oneshot::Sender<()>, JoinHandle<()>), StartError> {
    let runtime = current_thread()?;
    let handle = runtime.handle().clone();
    let (end, ended) = oneshot::channel();
    let thread = spawn(format!("network-{lane}"), move || {
        // The sender is kept until the stop; dropped, it means the same.
        runtime.block_on(async move { drop(ended.await) });
    })?;
    Ok((handle, end, thread))
}

/// A thread a store that frees space ahead of need, and one that remembers each second.
fn keep_house(
    shared: &Arc<Shared>,
    stopped: &Arc<AtomicBool>,
) -> Result<Vec<JoinHandle<()>>, StartError> {
    let mut threads = Vec::new();
    for (_, store) in shared.instances.stores() {
        let (store, stopped) = (store.clone(), Arc::clone(stopped));
        threads.push(spawn("housekeeper".into(), move || {
            store.keep_house(&|| stopped.load(Ordering::SeqCst));
        })?);
    }
    let (shared, stopped) = (Arc::clone(shared), Arc::clone(stopped));
    threads.push(spawn("history".into(), move || {
        while !stopped.load(Ordering::SeqCst) {
            shared.metrics.remember(&shared.instances.stores(), shared.clock.now_ns());
            std::thread::sleep(SECOND);
        }
    })?);
    Ok(threads)
}

/// Ages at eviction, as Prometheus text: absent before the first eviction.
fn eviction_ages(shared: &Shared) -> String {
    let mut page = Exposition::default();
    let help = "How long ago that was used which was evicted last.";
    let mut ages = page.metric("kendall_cache_eviction_age_seconds", "gauge", help);
    for (name, store) in shared.instances.stores() {
        if let Some(age) = shared.metrics.eviction_age(name, store, &shared.clock) {
            ages.sample(&[("instance", name)], age);
        }
    }
    page.into_text()
}
