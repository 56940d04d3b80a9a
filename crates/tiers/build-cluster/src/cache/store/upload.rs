//! A large content on its way to a file of its own.

use std::fs::{File, OpenOptions};
use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use rustix::fs::FallocateFlags;

use super::index::{Key, Place};
use super::record::{self, Checksums, HEAD, Head};
use super::{PutError, Store};

/// Most bytes that the file system is asked to find space for ahead of what came, and fewest for which it is asked.
const AHEAD: u64 = 8 << 20;
const ASKED: u64 = 256 << 10;

/// A file that grows until it is kept, and is removed if it is not.
#[derive(Debug)]
pub(crate) struct Spill {
    store: Store,
    file: File,
    path: PathBuf,
    number: u64,
    sums: Checksums,
    stored: u64,
    /// Bytes of the content as it was announced.
    announced: Option<u64>,
    /// Bytes of content for which there is space, and whether the file system finds it ahead.
    room: u64,
    ahead: bool,
    /// Bytes counted as used.
    reserved: u64,
    kept: bool,
}

impl Spill {
    /// Begins a file; refuses at once what is known to be too large.
    pub(crate) fn new(store: &Store, size: Option<u64>) -> Result<Self, PutError> {
        let largest = store.largest();
        if let Some(size) = size.filter(|size| *size > largest) {
            return Err(PutError::TooLarge { size });
        }
        let number = store.0.next_file.fetch_add(1, Ordering::Relaxed);
        let path = store.0.file_path(number).with_extension("part");
        let file = store.0.written(0, || {
            OpenOptions::new().read(true).write(true).create_new(true).open(&path)
        })?;
        let mut spill = Self {
            store: store.clone(),
            file,
            path,
            number,
            sums: Checksums::new(),
            stored: 0,
            announced: size,
            room: 0,
            ahead: true,
            reserved: 0,
            kept: false,
        };
        spill.reserve(HEAD as u64)?;
        Ok(spill)
    }

    pub(crate) fn write(&mut self, parts: &[Bytes]) -> Result<(), PutError> {
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if self.stored + bytes > self.store.largest() {
            return Err(PutError::TooLarge { size: self.stored + bytes });
        }
        self.make_room(bytes)?;
        self.store.0.written(bytes, || {
            let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|p| IoSlice::new(p)).collect();
            record::write_all_at(&self.file, &mut slices, HEAD as u64 + self.stored)
        })?;
        for part in parts {
            self.sums.update(part);
        }
        self.stored += bytes;
        Ok(())
    }

    pub(crate) fn keep(mut self, key: Key, size: u64, encoded: bool) -> Result<(), PutError> {
        let sums = std::mem::replace(&mut self.sums, Checksums::new());
        let (checksum, table) = sums.finish();
        debug_assert!(self.room == self.stored, "what is kept is as long as it was announced");
        self.reserve(table.len() as u64)?;
        let (inner, end) = (&self.store.0, HEAD as u64 + self.stored);
        if !table.is_empty() {
            inner.written(table.len() as u64, || {
                record::write_all_at(&self.file, &mut [IoSlice::new(&table)], end)
            })?;
        }
        let sequence = inner.sequence.fetch_add(1, Ordering::Relaxed);
        let head = Head { key, encoded, size, stored: self.stored, sequence, checksum };
        let bytes = head.to_bytes();
        inner.written(HEAD as u64, || {
            record::write_all_at(&self.file, &mut [IoSlice::new(&bytes)], 0)
        })?;
        inner.written(0, || std::fs::rename(&self.path, inner.file_path(self.number)))?;
        self.kept = true;
        let moment = self.store.moment();
        self.store.0.enter(&head, Place::File { number: self.number }, moment);
        Ok(())
    }

    /// Has space for the next bytes. The file system finds it in steps that are as long as what came already: one
    /// long piece costs it less than page by page, and who announces much and sends little takes little.
    fn make_room(&mut self, bytes: u64) -> Result<(), PutError> {
        let needed = (self.stored + bytes).saturating_sub(self.room);
        if needed == 0 {
            return Ok(());
        }
        let rest = self.announced.map_or(0, |size| size.saturating_sub(self.room));
        let step = needed.max(self.stored.min(AHEAD).min(rest));
        // Near the quota, there may be space for what came and for no more.
        let taken = match self.reserve(step) {
            Ok(()) => step,
            Err(_) if step > needed => {
                self.reserve(needed)?;
                needed
            }
            Err(error) => return Err(error),
        };
        if self.ahead && taken >= ASKED && self.announced.is_some() {
            let flags = FallocateFlags::KEEP_SIZE;
            let asked = self.store.0.written(taken, || {
                let from = HEAD as u64 + self.room;
                Ok(rustix::fs::fallocate(&self.file, flags, from, taken)?)
            });
            // Not every file system can; the write that follows says whether there is space.
            self.ahead = asked.is_ok();
        }
        self.room += taken;
        Ok(())
    }

    /// Has bytes counted. What is never finished must not push out what is kept: all files that are not kept yet take
    /// half of the space at most, but one of them may be as large as a content may, where the others are small.
    fn reserve(&mut self, bytes: u64) -> Result<(), PutError> {
        let store = &self.store.0;
        let all = store.unfinished.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let others = all.saturating_sub(self.reserved + bytes);
        let reserved = if others > store.limit() / 4 && all > store.limit() / 2 {
            Err(PutError::Unfinished)
        } else {
            self.store.reserve(bytes)
        };
        match reserved {
            Ok(()) => self.reserved += bytes,
            Err(_) => {
                store.unfinished.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
        reserved
    }

    /// Bytes of files that were broken off and may be kept until they are resumed.
    pub(crate) fn most_broken(&self) -> u64 {
        self.store.largest() / 4
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        self.store.0.unfinished.fetch_sub(self.reserved, Ordering::Relaxed);
        if !self.kept {
            super::discard(&self.path);
            self.store.0.used.fetch_sub(self.reserved, Ordering::Relaxed);
        }
    }
}
