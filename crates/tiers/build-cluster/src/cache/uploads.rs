//! Uploads under way, and those that broke off and may be resumed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tonic::Status;

use super::grpc::{Budget, Held};
use super::service::blob;
use super::store::{Content, Key, Spill, Store};
use super::zstd::{Expander, check_length};
use crate::digest::{Digest, Hasher};

/// Uploads that may be open at the same time.
const OPEN: usize = 2048;
/// Uploads that broke off and are kept, and how long.
const KEPT: usize = 256;
const KEPT_NS: u64 = 600_000_000_000;

/// A content on its way in: hashed as it comes, and kept only if it is what was announced.
#[derive(Debug)]
pub(crate) struct Upload {
    digest: Digest,
    zstd: bool,
    hasher: Hasher,
    /// Content that was hashed.
    size: u64,
    /// Bytes that came.
    committed: u64,
    expander: Option<Expander>,
    sink: Sink,
    _place: Place,
}

#[derive(Debug)]
enum Sink {
    Memory { parts: Vec<Bytes>, held: Held },
    File(Box<Spill>),
}

/// One of the uploads that may be open.
#[derive(Debug)]
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All uploads.
#[derive(Debug)]
pub(crate) struct Uploads {
    budget: Arc<Budget>,
    open: Arc<AtomicUsize>,
    broken: Mutex<HashMap<String, (u64, Upload)>>,
}

impl Uploads {
    pub(crate) fn new(budget: &Arc<Budget>) -> Self {
        Self { budget: Arc::clone(budget), open: Arc::default(), broken: Mutex::default() }
    }

    /// Begins one.
    pub(crate) fn begin(
        &self,
        store: &Store,
        digest: Digest,
        zstd: bool,
    ) -> Result<Upload, Status> {
        if digest.size > store.largest() {
            return Err(Status::resource_exhausted(format!(
                "{} bytes are more than the quota holds",
                digest.size
            )));
        }
        let place = Place(Arc::clone(&self.open));
        if self.open.fetch_add(1, Ordering::Relaxed) >= OPEN {
            return Err(Status::resource_exhausted(format!("{OPEN} uploads are open; try again")));
        }
        let sink = if zstd || store.is_small(digest.size) {
            Sink::Memory { parts: Vec::new(), held: Held::new(&self.budget) }
        } else {
            Sink::File(Box::new(Spill::new(store, Some(digest.size))?))
        };
        let expander = if zstd { Some(Expander::new(digest.size)?) } else { None };
        let hasher = digest.function.hasher();
        Ok(Upload { digest, zstd, hasher, size: 0, committed: 0, expander, sink, _place: place })
    }

    /// How far one came that broke off.
    pub(crate) fn committed(&self, name: &str, now_ns: u64) -> Option<u64> {
        self.tidy(now_ns).get(name).map(|(_, upload)| upload.committed)
    }

    /// Takes up one that broke off.
    pub(crate) fn resume(&self, name: &str, now_ns: u64) -> Option<Upload> {
        self.tidy(now_ns).remove(name).map(|(_, upload)| upload)
    }

    /// Keeps one that broke off, if there is room for it.
    pub(crate) fn keep(&self, name: String, upload: Upload, now_ns: u64) {
        if upload.committed == 0 {
            return;
        }
        let mut broken = self.tidy(now_ns);
        while !upload.fits(&broken) {
            let oldest = broken.iter().min_by_key(|(_, (since, _))| *since);
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else { return };
            broken.remove(&oldest);
        }
        broken.insert(name, (now_ns, upload));
    }

    fn tidy(&self, now_ns: u64) -> std::sync::MutexGuard<'_, HashMap<String, (u64, Upload)>> {
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        broken.retain(|_, (since, _)| now_ns.saturating_sub(*since) < KEPT_NS);
        broken
    }

    /// Uploads that are open or kept.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

impl Upload {
    /// Bytes that came.
    pub(crate) fn committed(&self) -> u64 {
        self.committed
    }

    /// Bytes of its file, if it has one.
    fn on_disk(&self) -> u64 {
        if matches!(self.sink, Sink::File(_)) { self.committed } else { 0 }
    }

    /// Whether it may be kept beside these, which broke off as well.
    fn fits(&self, broken: &HashMap<String, (u64, Self)>) -> bool {
        let most = match &self.sink {
            Sink::File(spill) => spill.most_broken(),
            Sink::Memory { .. } => u64::MAX,
        };
        let files: u64 = broken.values().map(|(_, one)| one.on_disk()).sum();
        broken.len() < KEPT && files + self.on_disk() <= most
    }

    /// Takes in more.
    pub(crate) fn write(&mut self, store: &Store, parts: Vec<Bytes>) -> Result<(), Status> {
        for part in &parts {
            match &mut self.expander {
                None => {
                    self.size += part.len() as u64;
                    if self.size > self.digest.size {
                        return Err(Status::invalid_argument(format!(
                            "more than the {} bytes came that were announced",
                            self.digest.size
                        )));
                    }
                    self.hasher.update(part);
                }
                Some(expander) => {
                    let came = self.committed + part.len() as u64;
                    check_length(came, self.digest.size)?;
                    let (hasher, size) = (&mut self.hasher, &mut self.size);
                    expander.expand(part, |piece| {
                        *size += piece.len() as u64;
                        hasher.update(piece);
                    })?;
                }
            }
            self.committed += part.len() as u64;
        }
        self.sink(store, parts)
    }

    fn sink(&mut self, store: &Store, new: Vec<Bytes>) -> Result<(), Status> {
        match &mut self.sink {
            Sink::File(spill) => spill.write(&new)?,
            Sink::Memory { parts, held } => {
                held.add(new.iter().map(Bytes::len).sum())?;
                parts.extend(new);
                // Only what is compressed does not say how long it will be.
                if !store.is_small(self.committed) {
                    let mut spill = Box::new(Spill::new(store, None)?);
                    spill.write(parts)?;
                    self.sink = Sink::File(spill);
                }
            }
        }
        Ok(())
    }

    /// Keeps it, if it is what was announced.
    pub(crate) fn finish(self, store: &Store, lane: usize) -> Result<(), Status> {
        let key = blob(&self.digest);
        self.finish_as(store, lane, key)
    }

    fn finish_as(self, store: &Store, lane: usize, key: Key) -> Result<(), Status> {
        let Self { digest, hasher, size, expander, sink, zstd, .. } = self;
        if let Some(expander) = &expander {
            expander.ended()?;
        }
        if size != digest.size {
            return Err(Status::invalid_argument(format!(
                "{size} bytes came where {} were announced",
                digest.size
            )));
        }
        if hasher.finish() != digest.hash {
            return Err(Status::invalid_argument(format!("the content is not that of {digest}")));
        }
        if digest.is_empty() {
            return Ok(());
        }
        match sink {
            Sink::Memory { parts, .. } => {
                store.put(lane, &Content { key, size, encoded: zstd, bytes: parts })?;
            }
            Sink::File(spill) => spill.keep(key, size, zstd)?,
        }
        Ok(())
    }
}
