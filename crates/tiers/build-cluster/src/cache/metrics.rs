//! What the cache counts, under the names that the field's dashboards use.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;

use kendall_tier::{Clock, Layout, Outcome};
use kendall_units::exact_f64;
use parking_lot::Mutex;
use tonic::Code;

use super::store::{Kind, Store};
use crate::instruments::{Counter, Durations, Families};

macro_rules! operations {
    ($($variant:ident = $name:literal, $storage:literal, $operation:literal;)+) => {
        /// Operations that are counted apart.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Operation {
            $($variant,)+
        }

        impl Operation {
            const ALL: &[Self] = &[$(Self::$variant,)+];
            /// Request types of the tier.
            const NAMES: &[&str] = &[$($name,)+];

            /// Labels: the storage, and the operation on it.
            fn labels(self) -> (&'static str, &'static str) {
                match self { $(Self::$variant => ($storage, $operation),)+ }
            }
        }
    };
}

operations! {
    GetBlob = "get-blob", "cas", "Get";
    PutBlob = "put-blob", "cas", "Put";
    BatchRead = "batch-read", "cas", "BatchGet";
    BatchUpdate = "batch-update", "cas", "BatchPut";
    FindMissing = "find-missing", "cas", "FindMissing";
    GetTree = "get-tree", "cas", "GetTree";
    GetResult = "get-result", "ac", "Get";
    PutResult = "put-result", "ac", "Put";
    Fetch = "fetch-asset", "asset", "Get";
    Push = "push-asset", "asset", "Put";
    HttpGet = "http-get", "http", "Get";
    HttpPut = "http-put", "http", "Put";
    Other = "other", "none", "Other";
}

/// Outcomes of the tier, by their place in the layout.
pub(crate) const MISS: Outcome = Outcome(0);
pub(crate) const REFUSED: Outcome = Outcome(1);
pub(crate) const FORBIDDEN: Outcome = Outcome(2);
pub(crate) const EXHAUSTED: Outcome = Outcome(3);
pub(crate) const CANCELLED: Outcome = Outcome(4);
pub(crate) const FAILED: Outcome = Outcome(5);
const OUTCOMES: &[&str] =
    &["not_found", "refused", "forbidden", "exhausted", "cancelled", "failed"];

/// How many moments of the past are remembered, to tell the age of what is evicted.
const REMEMBERED: usize = 4096;
/// Minutes of the past whose hits are remembered.
pub(crate) const MINUTES: usize = 120;
const MINUTE_NS: u64 = 60_000_000_000;

/// What the tier reports.
pub(crate) fn layout() -> Layout {
    Layout {
        tier: "build-cache",
        request_types: Operation::NAMES,
        outcomes: OUTCOMES,
        ..Layout::default()
    }
}

#[derive(Debug)]
pub(crate) struct Metrics {
    families: Families,
    /// By operation, for the two codes that are common.
    ok: Vec<Durations>,
    missing: Vec<Durations>,
    others: Mutex<HashMap<(Operation, i32), Durations>>,
    /// Hits and misses, by kind.
    lookups: [[Counter; 2]; 3],
    asked: [Counter; 2],
    /// Sizes, by kind: read and written.
    sizes: [[Durations; 2]; 3],
    history: Mutex<History>,
}

/// What is remembered of the past.
#[derive(Debug, Default)]
struct History {
    /// By store: moments of use, and when they were.
    moments: HashMap<String, VecDeque<(u64, u64)>>,
    /// By minute: hits and misses of results and of blobs up to its end.
    minutes: VecDeque<[u64; 4]>,
    next_minute_ns: u64,
}

const DURATION: &str = "kendall_cache_operation_duration_seconds";
const DURATION_HELP: &str = "Time of operations, by storage, operation and gRPC code.";

fn storage(kind: Kind) -> &'static str {
    match kind {
        Kind::Blob => "cas",
        Kind::Result => "ac",
        Kind::Asset => "asset",
    }
}

impl Metrics {
    pub(crate) fn new(families: &Families) -> Self {
        let by_operation = |code: &str| -> Vec<Durations> {
            Operation::ALL.iter().map(|op| durations(families, *op, code)).collect()
        };
        let looked = |kind: Kind| {
            ["hit", "miss"].map(|outcome| {
                let labels = [("storage", storage(kind)), ("outcome", outcome)];
                let help = "Blobs, results and assets that were asked for by their name.";
                families.counter("kendall_cache_lookups_total", help, &labels)
            })
        };
        let sized = |kind: Kind| {
            ["Get", "Put"].map(|operation| {
                let labels = [("storage", storage(kind)), ("operation", operation)];
                let help = "Sizes of what was read and written.";
                families.sizes("kendall_cache_blob_size_bytes", help, &labels)
            })
        };
        let asked = ["present", "missing"].map(|outcome| {
            let help = "Digests that FindMissingBlobs was asked for.";
            let labels = [("outcome", outcome)];
            families.counter("kendall_cache_find_missing_digests_total", help, &labels)
        });
        Self {
            families: families.clone(),
            ok: by_operation("OK"),
            missing: by_operation("NotFound"),
            others: Mutex::default(),
            lookups: Kind::ALL.map(looked),
            asked,
            sizes: Kind::ALL.map(sized),
            history: Mutex::default(),
        }
    }

    pub(crate) fn ended(&self, operation: Operation, code: Code, nanoseconds: u64) {
        match code {
            Code::Ok => self.ok[operation as usize].record(nanoseconds),
            Code::NotFound => self.missing[operation as usize].record(nanoseconds),
            other => {
                let mut others = self.others.lock();
                let durations = others
                    .entry((operation, other as i32))
                    .or_insert_with(|| durations(&self.families, operation, &format!("{other:?}")));
                durations.record(nanoseconds);
            }
        }
    }

    /// Counts lookups by name.
    pub(crate) fn looked_up(&self, kind: Kind, hits: u64, misses: u64) {
        let [hit, miss] = &self.lookups[kind as usize];
        hit.add(hits);
        miss.add(misses);
    }

    /// Counts digests of a FindMissingBlobs.
    pub(crate) fn asked(&self, present: u64, missing: u64) {
        self.asked[0].add(present);
        self.asked[1].add(missing);
    }

    /// Counts the size of what was read, or written.
    pub(crate) fn sized(&self, kind: Kind, written: bool, bytes: u64) {
        self.sizes[kind as usize][usize::from(written)].record(bytes);
    }

    /// Remembers this moment: to be called once a second.
    pub(crate) fn remember(&self, stores: &[(&str, &Store)], now_ns: u64) {
        let mut history = self.history.lock();
        for (name, store) in stores {
            let moments = history.moments.entry((*name).to_owned()).or_default();
            moments.push_back((store.moment(), now_ns));
            if moments.len() > REMEMBERED {
                // Every second one of the older half: the further away, the coarser.
                let mut index = 0;
                moments.retain(|_| {
                    index += 1;
                    index > REMEMBERED / 2 || index % 2 == 0
                });
            }
        }
        if now_ns >= history.next_minute_ns {
            history.next_minute_ns = now_ns + MINUTE_NS;
            let minute = self.hits();
            history.minutes.push_back(minute);
            if history.minutes.len() > MINUTES + 1 {
                history.minutes.pop_front();
            }
        }
    }

    /// Hits and misses of results and of blobs so far.
    pub(crate) fn hits(&self) -> [u64; 4] {
        let [blobs, results, _] = &self.lookups;
        [results[0].get(), results[1].get(), blobs[0].get(), blobs[1].get()]
    }

    /// Hits and misses of results and of blobs, minute by minute.
    pub(crate) fn minutes(&self) -> Vec<[u64; 4]> {
        let history = self.history.lock();
        let minutes: Vec<[u64; 4]> = history.minutes.iter().copied().chain([self.hits()]).collect();
        minutes.windows(2).map(|pair| std::array::from_fn(|i| pair[1][i] - pair[0][i])).collect()
    }

    /// How long ago that was used which was evicted last, in seconds; `None` before the first.
    pub(crate) fn eviction_age(&self, name: &str, store: &Store, clock: &Clock) -> Option<f64> {
        if store.counts().evicted.get() == 0 {
            return None;
        }
        let used = store.counts().evicted_moment.load(Ordering::Relaxed);
        let history = self.history.lock();
        let moments = history.moments.get(name)?;
        let at = moments.partition_point(|(moment, _)| *moment < used);
        let (_, then_ns) = moments.get(at).or_else(|| moments.back())?;
        Some(exact_f64(clock.now_ns().saturating_sub(*then_ns)) / 1e9)
    }
}

fn durations(families: &Families, operation: Operation, code: &str) -> Durations {
    let (storage, name) = operation.labels();
    let labels = [("storage", storage), ("operation", name), ("grpc_code", code)];
    families.durations(DURATION, DURATION_HELP, &labels)
}

/// Adds what a store tells of itself.
pub(crate) fn describe(families: &Families, name: &str, store: &Store) {
    let labels = [("instance", name)];
    let bytes = |index: usize| {
        let store = store.clone();
        move || exact_f64(store.bytes()[index])
    };
    families.level("kendall_cache_disk_bytes", "Bytes on disk.", &labels, bytes(0));
    families.level("kendall_cache_live_bytes", "Bytes of what is kept.", &labels, bytes(1));
    families.level("kendall_cache_quota_bytes", "Most bytes on disk.", &labels, bytes(2));
    for kind in Kind::ALL {
        let counted = store.clone();
        let labels = [("instance", name), ("storage", storage(kind))];
        families.level("kendall_cache_entries", "How many are kept.", &labels, move || {
            exact_f64(counted.entries().0.get(&kind).copied().unwrap_or(0))
        });
    }
    let memory = store.clone();
    families.level("kendall_cache_index_bytes", "Memory of the index.", &labels, move || {
        exact_f64(memory.entries().1)
    });
    let counts = store.counts().clone();
    let evictions = "What was evicted.";
    let read = counts.evicted;
    families.count("kendall_cache_evictions_total", evictions, &labels, move || read.get());
    let read = counts.evicted_bytes;
    let evicted = "Bytes of what was evicted.";
    families.count("kendall_cache_evicted_bytes_total", evicted, &labels, move || read.get());
    let read = counts.compacted_bytes;
    let moved = "Bytes that were moved so that segments could go.";
    families.count("kendall_cache_moved_bytes_total", moved, &labels, move || read.get());
    let read = counts.disk_full;
    let full = "How often a write found the disk full, and space was freed.";
    families.count("kendall_cache_disk_full_total", full, &labels, move || read.get());
    let read = counts.damaged;
    let damaged = "Records that were found damaged, and dropped.";
    families.count("kendall_cache_damaged_total", damaged, &labels, move || read.get());
}
