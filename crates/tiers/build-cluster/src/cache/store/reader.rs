//! Reading: every byte is checked against its checksum before it is handed out.

use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;

use super::checksum::checksum;
use super::index::{Entry, Key, Place};
use super::record::{self, HEAD, Head, PIECE};
use super::segment::Segment;
use super::{ReadError, Store};

/// How often the search for a record starts again when the record was moved meanwhile.
const TRIES: usize = 3;

/// The head and the content of a record that proves itself.
pub(super) fn verify(record: &[u8]) -> Option<(Head, std::ops::Range<usize>)> {
    let head = Head::parse(record)?;
    let stored = usize::try_from(head.stored).ok()?;
    let content = record.get(HEAD..HEAD + stored)?;
    let sound = if record::pieces(head.stored) <= 1 {
        checksum(content) == head.checksum
    } else {
        let table = record.get(HEAD + stored..)?;
        table.len() as u64 == record::table_bytes(head.stored)
            && checksum(table) == head.checksum
            && record::holds(content, 0, table)
    };
    sound.then_some((head, HEAD..HEAD + stored))
}

#[derive(Debug)]
enum Source {
    Segment(Arc<Segment>),
    File(File),
}

impl Source {
    fn file(&self) -> &File {
        match self {
            Self::Segment(segment) => &segment.file,
            Self::File(file) => file,
        }
    }
}

/// A content that is read piece by piece. It stays readable when it is evicted meanwhile.
#[derive(Debug)]
pub(crate) struct Reader {
    store: Store,
    entry: Entry,
    source: Source,
    start: u64,
    head: Head,
    table: Vec<u8>,
}

impl Reader {
    /// Stored bytes from `offset` on: `most` of them, fewer at the end of a piece or of the
    /// content, none past its end. What is damaged is dropped, so that it is stored again.
    pub(crate) fn read(&self, offset: u64, most: usize) -> Result<Bytes, ReadError> {
        let stored = self.head.stored;
        if offset >= stored {
            return Ok(Bytes::new());
        }
        let piece = PIECE as u64;
        let first = offset / piece;
        let end = (offset + most.max(1) as u64).div_ceil(piece).saturating_mul(piece).min(stored);
        let length = usize::try_from(end - first * piece).unwrap_or(usize::MAX);
        let at = self.start + HEAD as u64 + first * piece;
        let content = record::read_at(self.source.file(), at, length)?;
        let number = usize::try_from(first).unwrap_or(usize::MAX);
        let sound = content.len() == length
            && if self.table.is_empty() {
                checksum(&content) == self.head.checksum
            } else {
                record::holds(&content, number, &self.table)
            };
        if !sound {
            self.store.drop_damaged(&self.head.key, &self.entry);
            return Err(ReadError::Damaged);
        }
        let skip = usize::try_from(offset - first * piece).unwrap_or(0);
        let content = Bytes::from(content);
        let end = content.len().min(skip.saturating_add(most));
        Ok(content.slice(skip..end))
    }
}

impl Store {
    /// The whole stored content of `key`; `None` when it is not there, or not any more, or not
    /// whole.
    pub(crate) fn read(&self, key: &Key, found: Entry) -> Result<Option<Bytes>, ReadError> {
        let mut entry = found;
        for _ in 0..TRIES {
            let Some((source, start)) = self.source(&entry)? else {
                match self.again(key, &entry) {
                    Some(other) => entry = other,
                    None => return Ok(None),
                }
                continue;
            };
            let whole = record::record_bytes(entry.stored);
            let Ok(whole) = usize::try_from(whole) else { return Ok(None) };
            let record = record::read_at(source.file(), start, whole)?;
            match verify(&record) {
                Some((head, content)) if head.key == *key => {
                    return Ok(Some(Bytes::from(record).slice(content)));
                }
                _ => match self.again(key, &entry) {
                    Some(other) => entry = other,
                    None => {
                        self.drop_damaged(key, &entry);
                        return Ok(None);
                    }
                },
            }
        }
        Ok(None)
    }

    /// A reader of what is stored under `key`; `None` as [`read`](Self::read) says.
    pub(crate) fn open_reader(&self, key: &Key, found: Entry) -> Result<Option<Reader>, ReadError> {
        let mut entry = found;
        for _ in 0..TRIES {
            if let Some((source, start)) = self.source(&entry)?
                && let Some(reader) = self.head_of(source, start, key, entry)?
            {
                return Ok(Some(reader));
            }
            match self.again(key, &entry) {
                Some(other) => entry = other,
                None => {
                    self.drop_damaged(key, &entry);
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    fn head_of(
        &self,
        source: Source,
        start: u64,
        key: &Key,
        entry: Entry,
    ) -> Result<Option<Reader>, ReadError> {
        let head = record::read_at(source.file(), start, HEAD)?;
        let Some(head) = Head::parse(&head).filter(|head| head.key == *key) else {
            return Ok(None);
        };
        let length = usize::try_from(record::table_bytes(head.stored)).unwrap_or(usize::MAX);
        let table = if length == 0 {
            Vec::new()
        } else {
            record::read_at(source.file(), start + HEAD as u64 + head.stored, length)?
        };
        let sound = length == 0 || (table.len() == length && checksum(&table) == head.checksum);
        let store = self.clone();
        Ok(sound.then_some(Reader { store, entry, source, start, head, table }))
    }

    /// The file in which an entry lies, and where it begins there; `None` when it is gone.
    fn source(&self, entry: &Entry) -> Result<Option<(Source, u64)>, ReadError> {
        match entry.place {
            Place::Segment { segment, offset } => {
                let segment = self.0.segment(segment);
                Ok(segment.map(|segment| (Source::Segment(segment), u64::from(offset))))
            }
            Place::File { number } => match File::open(self.0.file_path(number)) {
                Ok(file) => Ok(Some((Source::File(file), 0))),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Another place of what was not found where it should be.
    fn again(&self, key: &Key, entry: &Entry) -> Option<Entry> {
        self.0.index.peek(key).filter(|other| other.place != entry.place)
    }
}
