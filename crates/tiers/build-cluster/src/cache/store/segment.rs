//! Segments: files to which records are appended, and which go as a whole.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::checksum::checksum;
use super::index::Place;
use super::record::{self, DEAD, HEAD, Head};
use super::{Inner, Prepared};

/// What is read at once when a segment is read from its beginning.
const STEP: usize = 256 << 10;

pub(super) fn path(folder: &Path, number: u32) -> PathBuf {
    folder.join("segments").join(format!("{number:08x}"))
}

pub(super) fn heads_path(folder: &Path, number: u32) -> PathBuf {
    folder.join("segments").join(format!("{number:08x}.heads"))
}

/// A file of records.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u32,
    pub(super) file: File,
    /// Bytes of records that the index knows.
    pub(super) live: AtomicU64,
    /// Bytes of records, and of the file of heads once it is sealed.
    records: AtomicU64,
    heads: AtomicU64,
    sealed: AtomicBool,
}

impl Segment {
    /// A segment that was there at the start.
    pub(super) fn found(number: u32, file: File, records: u64, heads: u64) -> Self {
        Self {
            number,
            file,
            live: AtomicU64::new(0),
            records: AtomicU64::new(records),
            heads: AtomicU64::new(heads),
            sealed: AtomicBool::new(true),
        }
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// Bytes of all its records, alive or not.
    pub(super) fn bytes(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Makes a record one that does not count at the next start.
    pub(super) fn kill(&self, offset: u32) -> io::Result<()> {
        self.file.write_all_at(&DEAD, u64::from(offset))
    }

    /// Removes its files; returns the bytes that they took.
    pub(super) fn delete(&self, folder: &Path) -> u64 {
        super::discard(&path(folder, self.number));
        super::discard(&heads_path(folder, self.number));
        self.records.load(Ordering::Relaxed) + self.heads.load(Ordering::Relaxed)
    }

    /// The heads of all its records and where they lie: from the file of heads, or by reading it
    /// from the beginning.
    pub(super) fn heads(&self, folder: &Path) -> io::Result<Vec<(Head, u32)>> {
        match self.sealed_heads(folder) {
            Some(heads) => Ok(heads),
            None => scan(&self.file).map(|(heads, _)| heads),
        }
    }

    /// The heads of its file of heads, if that proves itself.
    pub(super) fn sealed_heads(&self, folder: &Path) -> Option<Vec<(Head, u32)>> {
        parse_heads(&std::fs::read(heads_path(folder, self.number)).ok()?)
    }
}

/// The content of a file of heads.
pub(super) fn encode_heads(heads: &[(Head, u32)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(heads.len() * (HEAD + 4) + 8);
    for (head, offset) in heads {
        bytes.extend(head.to_bytes());
        bytes.extend(offset.to_le_bytes());
    }
    let sum = checksum(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// Writes a file of heads; returns its bytes. A full disk has no space for it: they are read from the segment then.
pub(super) fn write_heads(path: &Path, heads: &[u8]) -> u64 {
    match File::create(path).and_then(|mut file| file.write_all(heads)) {
        Ok(()) => heads.len() as u64,
        Err(error) => {
            tracing::warn!(%error, ?path, "a segment must be read whole at the next start");
            super::discard(path);
            0
        }
    }
}

/// Heads as they lie in the file of heads: each with its offset, and a checksum over all.
fn parse_heads(bytes: &[u8]) -> Option<Vec<(Head, u32)>> {
    let (entries, sum) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
    if entries.len() % (HEAD + 4) != 0 || checksum(entries).to_le_bytes() != sum {
        return None;
    }
    entries
        .chunks_exact(HEAD + 4)
        .map(|entry| {
            let offset = u32::from_le_bytes(entry[HEAD..].try_into().ok()?);
            Some((Head::parse(entry)?, offset))
        })
        .collect()
}

/// The heads of a segment and the offset up to which it holds records, by reading it.
pub(super) fn scan(file: &File) -> io::Result<(Vec<(Head, u32)>, u64)> {
    let length = file.metadata()?.len();
    let mut heads = Vec::new();
    let mut window: (u64, Vec<u8>) = (0, Vec::new());
    let mut offset = 0;
    while offset + HEAD as u64 <= length {
        let start = usize::try_from(offset - window.0).unwrap_or(usize::MAX);
        if start.saturating_add(HEAD) > window.1.len() {
            window = (offset, record::read_at(file, offset, STEP)?);
        }
        let start = usize::try_from(offset - window.0).unwrap_or(usize::MAX);
        let Some(bytes) = window.1.get(start..start + HEAD) else { break };
        // A record that was replaced is recognized by its first bytes; the rest of its head is as it was.
        let mut whole: [u8; HEAD] = bytes.try_into().unwrap_or([0; HEAD]);
        let dead = whole[..4] == DEAD;
        if dead {
            whole[..4].copy_from_slice(&record::MAGIC.to_le_bytes());
        }
        let Some(head) = Head::parse(&whole) else { break };
        let end = offset + head.record_bytes();
        if end > length {
            break;
        }
        if !dead && let Ok(offset) = u32::try_from(offset) {
            heads.push((head, offset));
        }
        offset = end;
    }
    Ok((heads, offset))
}

/// What one thread appends to.
#[derive(Debug, Default)]
pub(super) struct Lane {
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    segment: Arc<Segment>,
    offset: u32,
    /// The heads of its records, for the file of heads.
    heads: Vec<u8>,
    folder: PathBuf,
}

impl Lane {
    /// Appends records with one write; returns where they lie. Their bytes are counted as used by
    /// the caller.
    pub(super) fn append(
        &mut self,
        inner: &Inner,
        records: &[Prepared<'_>],
    ) -> io::Result<Vec<Place>> {
        let bytes: u64 = records.iter().map(|record| record.head.record_bytes()).sum();
        let mut places = Vec::with_capacity(records.len());
        let open = self.room(inner, bytes)?;
        let heads: Vec<[u8; HEAD]> = records.iter().map(|record| record.head.to_bytes()).collect();
        let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(3 * records.len());
        for (record, head) in records.iter().zip(&heads) {
            slices.push(IoSlice::new(head));
            slices.extend(record.content.bytes.iter().map(|part| IoSlice::new(part)));
            slices.push(IoSlice::new(&record.table));
        }
        open.write(&mut slices)?;
        for (record, head) in records.iter().zip(&heads) {
            places.push(open.note(head, record.head.record_bytes()));
        }
        Ok(places)
    }

    /// Appends a record as it was elsewhere.
    pub(super) fn append_raw(&mut self, inner: &Inner, record: &[u8]) -> io::Result<Place> {
        let bytes = record.len() as u64;
        let open = self.room(inner, bytes)?;
        open.write(&mut [IoSlice::new(record)])?;
        Ok(open.note(&record[..HEAD], bytes))
    }

    /// A segment with space for `bytes`.
    fn room(&mut self, inner: &Inner, bytes: u64) -> io::Result<&mut Open> {
        let fits = |open: &Open| u64::from(open.offset) + bytes <= inner.segment_bytes();
        if self.open.as_ref().is_some_and(|open| open.offset > 0 && !fits(open)) {
            let heads = self.seal();
            inner.used.fetch_add(heads, Ordering::Relaxed);
        }
        if self.open.is_none() {
            self.open = Some(Open::new(inner)?);
        }
        Ok(self.open.as_mut().expect("it was just opened"))
    }

    /// Ends the open segment, and writes its heads; returns how many bytes they take.
    pub(super) fn seal(&mut self) -> u64 {
        let Some(mut open) = self.open.take() else { return 0 };
        let sum = checksum(&open.heads);
        open.heads.extend(sum.to_le_bytes());
        let bytes = write_heads(&heads_path(&open.folder, open.segment.number), &open.heads);
        open.segment.heads.store(bytes, Ordering::Relaxed);
        open.segment.sealed.store(true, Ordering::Release);
        bytes
    }

    /// Ends the open segment if it is longer than `most`, and counts what that takes.
    pub(super) fn seal_beyond(&mut self, most: u64, used: &AtomicU64) {
        if self.open.as_ref().is_some_and(|open| u64::from(open.offset) > most) {
            used.fetch_add(self.seal(), Ordering::Relaxed);
        }
    }
}

impl Open {
    fn new(inner: &Inner) -> io::Result<Self> {
        let number = {
            let mut next = inner.next_segment.lock();
            let number = *next;
            *next = next.checked_add(1).ok_or_else(|| io::Error::other("no more segments"))?;
            number
        };
        let path = inner.segment_path(number);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        let segment = Segment {
            number,
            file,
            live: AtomicU64::new(0),
            records: AtomicU64::new(0),
            heads: AtomicU64::new(0),
            sealed: AtomicBool::new(false),
        };
        let segment = Arc::new(segment);
        let mut segments = inner.segments.write();
        segments.insert(number, Arc::clone(&segment));
        Ok(Self { segment, offset: 0, heads: Vec::new(), folder: inner.folder.clone() })
    }

    /// Writes behind the last record. What a full disk let through of a write that failed is cut
    /// off: contents must never lie where a record may be searched for.
    fn write(&self, slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        let offset = u64::from(self.offset);
        record::write_all_at(&self.segment.file, slices, offset).inspect_err(|_| {
            if let Err(error) = self.segment.file.set_len(offset) {
                tracing::error!(%error, "a write that failed cannot be cut off");
            }
        })
    }

    fn note(&mut self, head: &[u8], bytes: u64) -> Place {
        let place = Place::Segment { segment: self.segment.number, offset: self.offset };
        self.heads.extend_from_slice(head);
        self.heads.extend(self.offset.to_le_bytes());
        let end = u64::from(self.offset) + bytes;
        self.offset = u32::try_from(end).expect("segments are below 4 GiB");
        self.segment.records.store(end, Ordering::Relaxed);
        // Counted before the index has it: a segment of which nothing is alive may be deleted.
        self.segment.live.fetch_add(bytes, Ordering::Relaxed);
        place
    }
}
