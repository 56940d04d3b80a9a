//! Uploads under way, and those that broke off and may be resumed.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tonic::Status;

use super::grpc::{Budget, Held};
use super::store::{Content, Key, Spill, Store};
use super::zstd::{Expander, check_length};
use crate::digest::{Digest, Hasher};
use crate::listen::{Client, OpenUploads, UploadBounds};

/// Bytes of content of which an upload takes in so many before others have their turn: on the network thread first,
/// and then beside it where it is compressed.
const TURN: u64 = 256 << 10;
const TURN_BESIDE: u64 = 4 << 20;
/// How long uploads that broke off are kept.
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
    /// Memory that expanding takes.
    window: Held,
    window_bytes: u64,
}

#[derive(Debug)]
enum Sink {
    Memory { parts: Vec<Bytes>, held: Held },
    File(Box<Spill>),
}

#[derive(Debug)]
pub(crate) struct Uploads {
    budget: Arc<Budget>,
    pub(crate) open: OpenUploads,
    broken: Mutex<HashMap<String, (u64, Upload)>>,
    most_broken: usize,
}

impl Uploads {
    pub(crate) fn new(budget: &Arc<Budget>, bounds: UploadBounds) -> Self {
        let (open, most_broken) = (OpenUploads::new(bounds), bounds.broken());
        Self { budget: Arc::clone(budget), open, broken: Mutex::default(), most_broken }
    }

    pub(crate) fn begin(
        &self,
        client: &Client,
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
        let sink = if zstd || store.is_small(digest.size) {
            Sink::Memory { parts: Vec::new(), held: Held::new(&self.budget, client) }
        } else {
            Sink::File(Box::new(Spill::new(store, Some(digest.size))?))
        };
        let expander = if zstd { Some(Expander::new(digest.size)?) } else { None };
        let hasher = digest.function.hasher();
        let window = Held::new(&self.budget, client);
        Ok(Upload {
            digest,
            zstd,
            hasher,
            size: 0,
            committed: 0,
            expander,
            sink,
            window,
            window_bytes: 0,
        })
    }

    /// How far one came that broke off.
    pub(crate) fn committed(&self, name: &str, now_ns: u64) -> Option<u64> {
        self.tidy(now_ns).get(name).map(|(_, upload)| upload.committed)
    }

    /// Takes up one that broke off.
    pub(crate) fn resume(&self, name: &str, now_ns: u64) -> Option<Upload> {
        self.tidy(now_ns).remove(name).map(|(_, upload)| upload)
    }

    /// Keeps one that broke off, if there is space for it.
    pub(crate) fn keep(&self, name: String, upload: Upload, now_ns: u64) {
        if upload.committed == 0 {
            return;
        }
        let mut broken = self.tidy(now_ns);
        while broken.len() >= self.most_broken || !upload.fits(&broken) {
            let oldest = broken.iter().min_by_key(|(_, (since, _))| *since);
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else { return };
            broken.remove(&oldest);
        }
        broken.insert(name, (now_ns, upload));
    }

    fn tidy(&self, now_ns: u64) -> parking_lot::MutexGuard<'_, HashMap<String, (u64, Upload)>> {
        let mut broken = self.broken.lock();
        broken.retain(|_, (since, _)| now_ns.saturating_sub(*since) < KEPT_NS);
        broken
    }
}

impl Upload {
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
        files + self.on_disk() <= most
    }

    /// Takes in more, in bounded turns: a few compressed bytes may expand to gigabytes. Beside the network thread those
    /// of all uploads wait for one another, and no other request waits for them.
    pub(crate) async fn write(mut self, store: &Store, parts: Vec<Bytes>) -> Result<Self, Status> {
        let came = self.committed + parts.iter().map(|part| part.len() as u64).sum::<u64>();
        if self.zstd {
            check_length(came, self.digest.size)?;
        }
        let mut left: VecDeque<Bytes> = parts.iter().cloned().collect();
        let mut done = self.turn(&mut left, TURN)?;
        while !done {
            if self.expander.is_none() {
                tokio::task::yield_now().await;
                done = self.turn(&mut left, TURN)?;
                continue;
            }
            let turn = tokio::task::spawn_blocking(move || {
                let done = self.turn(&mut left, TURN_BESIDE);
                (self, left, done)
            });
            let turned = turn.await.map_err(|error| Status::internal(error.to_string()))?;
            (self, left) = (turned.0, turned.1);
            done = turned.2?;
        }
        self.committed = came;
        self.sink(store, parts)?;
        Ok(self)
    }

    /// Hashes about `most` bytes of content from the beginning of `parts`; says whether that was all.
    fn turn(&mut self, parts: &mut VecDeque<Bytes>, most: u64) -> Result<bool, Status> {
        let until = self.size.saturating_add(most);
        while let Some(part) = parts.front_mut() {
            if self.size >= until {
                return Ok(false);
            }
            let done = match &mut self.expander {
                None => {
                    self.size += part.len() as u64;
                    self.hasher.update(part);
                    true
                }
                Some(expander) => {
                    let (hasher, size) = (&mut self.hasher, &mut self.size);
                    let most = usize::try_from(until - *size).unwrap_or(usize::MAX);
                    let done = expander.expand(part, most, |piece| {
                        *size += piece.len() as u64;
                        hasher.update(piece);
                    })?;
                    // The memory of the decoder is bounded like that of unfinished requests.
                    let more = expander.window().saturating_sub(self.window_bytes);
                    self.window_bytes += more;
                    self.window.add(usize::try_from(more).unwrap_or(usize::MAX))?;
                    done
                }
            };
            if self.size > self.digest.size {
                return Err(Status::invalid_argument(format!(
                    "more than the {} bytes came that were announced",
                    self.digest.size
                )));
            }
            if done {
                parts.pop_front();
            }
        }
        Ok(true)
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
        let key = Key::blob(&self.digest);
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
