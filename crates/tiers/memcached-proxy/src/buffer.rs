//! Bytes that wait to be written, in chunks of one size: their memory is what is unwritten, rounded up,
//! and a large value is neither copied nor moved when the buffer grows.

use std::collections::VecDeque;

use crate::options::CHUNK_BYTES;

/// A queue of bytes. Empty, it may keep the memory of its first chunk.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    /// The oldest chunk, of which `start` bytes are gone.
    first: Vec<u8>,
    start: usize,
    /// Those behind it; all are full but the last.
    more: VecDeque<Vec<u8>>,
    /// Bytes in `more`, and what their chunks hold.
    more_bytes: usize,
    more_room: usize,
}

impl Buffer {
    pub(crate) fn len(&self) -> usize {
        self.first.len() - self.start + self.more_bytes
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.first.len()
    }

    /// Bytes of memory that it holds.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.first.capacity() + self.more_room
    }

    #[inline]
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        if self.more.is_empty() && self.first.len() + bytes.len() <= self.first.capacity() {
            self.first.extend_from_slice(bytes);
        } else {
            self.append_slowly(bytes);
        }
    }

    fn append_slowly(&mut self, mut bytes: &[u8]) {
        if self.more.is_empty() {
            self.first.drain(..self.start);
            self.start = 0;
            let taken = extend_chunk(&mut self.first, bytes);
            bytes = &bytes[taken..];
        } else if let Some(last) = self.more.back_mut() {
            let before = last.capacity();
            let taken = extend_chunk(last, bytes);
            self.more_room += last.capacity() - before;
            self.more_bytes += taken;
            bytes = &bytes[taken..];
        }
        while !bytes.is_empty() {
            let mut chunk = Vec::with_capacity(CHUNK_BYTES);
            let taken = extend_chunk(&mut chunk, bytes);
            self.push(chunk);
            bytes = &bytes[taken..];
        }
    }

    /// Puts another buffer's bytes behind its own; full chunks are moved.
    pub(crate) fn append_all(&mut self, other: Self) {
        if self.is_empty() && self.more.is_empty() && self.first.capacity() < other.room() {
            *self = other;
            return;
        }
        let Self { first, start, more, .. } = other;
        self.append(&first[start..]);
        for chunk in more {
            if chunk.len() < CHUNK_BYTES {
                self.append(&chunk);
            } else {
                self.push(chunk);
            }
        }
    }

    fn push(&mut self, chunk: Vec<u8>) {
        self.more_bytes += chunk.len();
        self.more_room += chunk.capacity();
        self.more.push_back(chunk);
    }

    /// The bytes that are written next.
    pub(crate) fn front(&self) -> &[u8] {
        &self.first[self.start..]
    }

    /// So many of those were written. Memory of an empty buffer is kept up to `keep` bytes.
    pub(crate) fn consume(&mut self, bytes: usize, keep: usize) {
        self.start += bytes;
        if self.start < self.first.len() {
            return;
        }
        self.start = 0;
        match self.more.pop_front() {
            Some(next) => {
                self.more_bytes -= next.len();
                self.more_room -= next.capacity();
                self.first = next;
            }
            None => {
                self.first.clear();
                self.trim(keep);
            }
        }
    }

    /// Gives the memory of an empty buffer back if it is more than `keep` bytes.
    pub(crate) fn trim(&mut self, keep: usize) {
        if self.is_empty() && self.first.capacity() > keep {
            self.first = Vec::new();
            self.start = 0;
        }
    }
}

/// Appends as much to a chunk as it may hold; says how much. It grows in doubling steps, to a whole
/// chunk at most.
fn extend_chunk(chunk: &mut Vec<u8>, bytes: &[u8]) -> usize {
    let taken = bytes.len().min(CHUNK_BYTES.saturating_sub(chunk.len()));
    let needed = chunk.len() + taken;
    if needed > chunk.capacity() {
        let room = needed.max(2 * chunk.capacity()).min(CHUNK_BYTES);
        chunk.reserve_exact(room - chunk.len());
    }
    chunk.extend_from_slice(&bytes[..taken]);
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that differ from their neighbours.
    fn bytes(from: usize, count: usize) -> Vec<u8> {
        (from..from + count).map(|n| u8::try_from(n % 251).unwrap()).collect()
    }

    #[test]
    fn bytes_come_out_in_order_and_memory_follows_what_is_left() {
        let (mut buffer, mut other) = (Buffer::default(), Buffer::default());
        let (mut appended, mut read) = (0, Vec::new());
        let sizes = [1, 10, CHUNK_BYTES - 1, CHUNK_BYTES, 3, 5 * CHUNK_BYTES + 7, 100];
        for round in 0..20 {
            for size in sizes {
                if round % 3 == 1 {
                    other.append(&bytes(appended, size));
                    buffer.append_all(std::mem::take(&mut other));
                } else {
                    buffer.append(&bytes(appended, size));
                }
                appended += size;
                assert_eq!(buffer.len(), appended - read.len());
                let (room, len) = (buffer.room(), buffer.len());
                assert!(room <= 2 * len.max(1) + 2 * CHUNK_BYTES, "{room} for {len}");
            }
            while buffer.len() > round * 1000 {
                let count = buffer.front().len().min(50_000);
                read.extend_from_slice(&buffer.front()[..count]);
                buffer.consume(count, 0);
            }
        }
        while !buffer.is_empty() {
            let count = buffer.front().len();
            read.extend_from_slice(buffer.front());
            buffer.consume(count, 0);
        }
        assert_eq!(read, bytes(0, appended));
        assert_eq!(buffer.room(), 0);
    }
}
