//! The start: what a folder holds, also after the process before this one was killed.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::index::{Key, Kind, Place};
use super::record::{self, HEAD, Head};
use super::segment::{self, Segment};
use super::{Inner, StoreError};

/// Makes the folder and takes it for this process.
pub(super) fn lock(folder: &Path) -> Result<File, StoreError> {
    const PARTS: [&str; 2] = ["segments", "files"];
    let lock = crate::folder::take(folder, &PARTS)?;
    for part in PARTS {
        let path = folder.join(part);
        let failed = |source| StoreError::Folder { path: path.clone(), source };
        std::fs::create_dir_all(&path).map_err(failed)?;
    }
    Ok(lock)
}

/// Has the index know all that is there.
pub(super) fn load(inner: &Inner) -> Result<(), StoreError> {
    let failed = |source| StoreError::Folder { path: inner.folder.clone(), source };
    let mut known = Known::default();
    segments(inner, &mut known).map_err(failed)?;
    files(inner, &mut known).map_err(failed)?;
    inner.sequence.store(known.sequence + 1, Ordering::Relaxed);
    Ok(())
}

/// What only the start needs to know: which of two results is the later one.
#[derive(Default)]
struct Known {
    sequence: u64,
    results: HashMap<Key, u64>,
}

impl Known {
    fn enter(&mut self, inner: &Inner, head: &Head, place: Place) {
        self.sequence = self.sequence.max(head.sequence);
        if head.key.kind != Kind::Blob {
            let latest = self.results.entry(head.key).or_insert(head.sequence);
            if head.sequence < *latest {
                // It takes space, but is not asked for.
                if let Place::File { number } = place {
                    super::discard(&inner.file_path(number));
                    inner.used.fetch_sub(head.record_bytes(), Ordering::Relaxed);
                }
                return;
            }
            *latest = head.sequence;
        }
        if let Place::Segment { segment, .. } = place
            && let Some(segment) = inner.segment(segment)
        {
            segment.live.fetch_add(head.record_bytes(), Ordering::Relaxed);
        }
        inner.enter(head, place, inner.index.moment());
    }
}

fn segments(inner: &Inner, known: &mut Known) -> io::Result<()> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(inner.folder.join("segments"))? {
        let path = entry?.path();
        if path.extension().is_none() {
            numbers.extend(number(&path).and_then(|number| u32::try_from(number).ok()));
        }
    }
    numbers.sort_unstable();
    for number in numbers {
        let path = inner.segment_path(number);
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        *inner.next_segment.lock() = number + 1;
        let heads_path = segment::heads_path(&inner.folder, number);
        let sealed = std::fs::metadata(&heads_path).map_or(0, |metadata| metadata.len());
        let length = file.metadata()?.len();
        let probe = Segment::found(number, file.try_clone()?, length, sealed);
        let (heads, length, sealed) = match (sealed > 0).then(|| probe.sealed_heads(&inner.folder))
        {
            Some(Some(heads)) if ends_within(&heads, length) => (heads, length, sealed),
            _ => {
                let (heads, end) = segment::scan(&file)?;
                // What follows was being written when the process died, and was never acknowledged.
                file.set_len(end)?;
                let sealed = segment::write_heads(&heads_path, &segment::encode_heads(&heads));
                (heads, end, sealed)
            }
        };
        if heads.is_empty() {
            Segment::found(number, file, 0, 0).delete(&inner.folder);
            continue;
        }
        inner.used.fetch_add(length + sealed, Ordering::Relaxed);
        let segment = Arc::new(Segment::found(number, file, length, sealed));
        inner.segments.write().insert(number, segment);
        for (head, offset) in heads {
            known.enter(inner, &head, Place::Segment { segment: number, offset });
        }
    }
    Ok(())
}

/// Whether the file is as long as its heads say: a power failure may have taken its end.
fn ends_within(heads: &[(Head, u32)], length: u64) -> bool {
    heads.iter().all(|(head, offset)| u64::from(*offset) + head.record_bytes() <= length)
}

fn files(inner: &Inner, known: &mut Known) -> io::Result<()> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(inner.folder.join("files"))? {
        let path = entry?.path();
        match number(&path) {
            Some(number) if path.extension().is_none() => numbers.push(number),
            // It was being written when the process died.
            _ if path.extension() == Some(OsStr::new("part")) => super::discard(&path),
            _ => {}
        }
    }
    numbers.sort_unstable();
    inner.next_file.store(numbers.last().map_or(1, |last| last + 1), Ordering::Relaxed);
    for number in numbers {
        let path = inner.file_path(number);
        let file = File::open(&path)?;
        let length = file.metadata()?.len();
        let head = Head::parse(&record::read_at(&file, 0, HEAD)?);
        match head.filter(|head| head.record_bytes() == length) {
            Some(head) => {
                inner.used.fetch_add(length, Ordering::Relaxed);
                known.enter(inner, &head, Place::File { number });
            }
            None => super::discard(&path),
        }
    }
    Ok(())
}

fn number(path: &Path) -> Option<u64> {
    u64::from_str_radix(path.file_stem()?.to_str()?, 16).ok()
}
