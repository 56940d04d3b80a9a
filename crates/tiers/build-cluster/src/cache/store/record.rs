//! How one blob lies on disk: a head that proves itself, the content, and checksums of its pieces.
//!
//! ```text
//! head (80 bytes)  magic kind function flags 0 | size | stored | sequence | hash |
//!                  checksum of the content, or of the table | checksum of the head
//! content          `stored` bytes
//! table            8 bytes for each 64 KiB of content, when there are several
//! ```

use std::io::{self, IoSlice};

use super::checksum::{Running, checksum};
use super::index::{Key, Kind};
use crate::digest::{Function, HASH_BYTES};

pub(crate) const HEAD: usize = 80;
/// Content that one checksum covers: what a read with an offset reads at least.
pub(crate) const PIECE: usize = 64 << 10;

pub(crate) const MAGIC: u32 = 0x4b42_4c31;
/// Instead of the magic number, in a record that is not to come back.
pub(crate) const DEAD: [u8; 4] = *b"dead";

/// What a head says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) key: Key,
    pub(crate) encoded: bool,
    pub(crate) size: u64,
    pub(crate) stored: u64,
    /// The later of two records of one key is the one that counts.
    pub(crate) sequence: u64,
    /// Of the content, or of the table.
    pub(crate) checksum: u64,
}

/// Pieces of a content.
pub(crate) fn pieces(stored: u64) -> u64 {
    stored.div_ceil(PIECE as u64)
}

impl Head {
    pub(crate) fn record_bytes(&self) -> u64 {
        record_bytes(self.stored)
    }

    pub(crate) fn to_bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4] = self.key.kind as u8;
        bytes[5] = self.key.function as u8;
        bytes[6] = u8::from(self.encoded);
        bytes[8..16].copy_from_slice(&self.size.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.stored.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[32..64].copy_from_slice(&self.key.hash);
        bytes[64..72].copy_from_slice(&self.checksum.to_le_bytes());
        let own = checksum(&bytes[..72]);
        bytes[72..].copy_from_slice(&own.to_le_bytes());
        bytes
    }

    /// The head at the beginning of `bytes`, if it proves itself.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEAD)?;
        let word = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        if bytes[..4] != MAGIC.to_le_bytes() || checksum(&bytes[..72]) != word(72) {
            return None;
        }
        let mut hash = [0; HASH_BYTES];
        hash.copy_from_slice(&bytes[32..64]);
        let key = Key {
            kind: *Kind::ALL.get(usize::from(bytes[4]))?,
            function: *Function::ALL.get(usize::from(bytes[5]))?,
            hash,
        };
        Some(Self {
            key,
            encoded: bytes[6] == 1,
            size: word(8),
            stored: word(16),
            sequence: word(24),
            checksum: word(64),
        })
    }
}

pub(crate) fn record_bytes(stored: u64) -> u64 {
    HEAD as u64 + stored + table_bytes(stored)
}

/// Bytes of the table of checksums.
pub(crate) fn table_bytes(stored: u64) -> u64 {
    match pieces(stored) {
        0 | 1 => 0,
        several => 8 * several,
    }
}

/// Checksums of a content that comes in parts.
pub(crate) struct Checksums {
    current: Running,
    room: usize,
    table: Vec<u8>,
}

impl std::fmt::Debug for Checksums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Checksums({})", self.table.len() / 8)
    }
}

impl Checksums {
    pub(crate) fn new() -> Self {
        Self { current: Running::default(), room: PIECE, table: Vec::new() }
    }

    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.room == 0 {
                self.table.extend(self.current.sum().to_le_bytes());
                (self.current, self.room) = (Running::default(), PIECE);
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.room));
            self.current.update(now);
            self.room -= now.len();
            bytes = later;
        }
    }

    /// The checksum for the head, and the table, which is empty for a single piece.
    pub(crate) fn finish(mut self) -> (u64, Vec<u8>) {
        let last = self.current.sum();
        if self.table.is_empty() {
            return (last, Vec::new());
        }
        self.table.extend(last.to_le_bytes());
        (checksum(&self.table), self.table)
    }
}

/// Checks the pieces of `content`, which begins at piece `first`, against the table.
pub(crate) fn holds(content: &[u8], first: usize, table: &[u8]) -> bool {
    content.chunks(PIECE).enumerate().all(|(index, piece)| {
        let at = 8 * (first + index);
        let expected = table.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        expected.map(u64::from_le_bytes) == Some(checksum(piece))
    })
}

/// Writes all of `slices` at `offset`.
pub(crate) fn write_all_at(
    file: &std::fs::File,
    mut slices: &mut [IoSlice<'_>],
    mut offset: u64,
) -> io::Result<()> {
    /// What the system takes at once.
    const SLICES: usize = 1024;
    while !slices.is_empty() {
        let count = slices.len().min(SLICES);
        let written = match rustix::io::pwritev(file, &slices[..count], offset) {
            Ok(0) if slices.iter().all(|slice| slice.is_empty()) => return Ok(()),
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => written,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        offset += written as u64;
        IoSlice::advance_slices(&mut slices, written);
    }
    Ok(())
}

/// Reads `length` bytes at `offset`, or up to the end of the file.
pub(crate) fn read_at(file: &std::fs::File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let at = offset + bytes.len() as u64;
        let before = bytes.len();
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut bytes), at) {
            Ok(_) if bytes.len() == before => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        let key = Key { kind: Kind::Result, function: Function::Blake3, hash: [9; 32] };
        Head { key, encoded: true, size: 70_000, stored: 500, sequence: 12, checksum: 34 }
    }

    #[test]
    fn a_head_comes_back_as_it_was_and_a_changed_bit_shows() {
        let bytes = head().to_bytes();
        assert_eq!(Head::parse(&bytes), Some(head()));
        assert_eq!(Head::parse(&bytes[..HEAD - 1]), None);
        for bit in 0..HEAD * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Head::parse(&damaged), None, "bit {bit}");
        }
    }

    #[test]
    fn checksums_of_a_content_in_parts_are_those_of_its_pieces() {
        let content: Vec<u8> = (0..200_000_u32).map(|i| i.to_le_bytes()[0]).collect();
        for step in [1000, 65_536, 77_777, 200_000] {
            let mut sums = Checksums::new();
            content.chunks(step).for_each(|part| sums.update(part));
            let (sum, table) = sums.finish();
            assert_eq!((table.len() as u64, sum), (table_bytes(200_000), checksum(&table)));
            assert!(holds(&content, 0, &table));
            assert!(holds(&content[PIECE..2 * PIECE], 1, &table));
            let mut damaged = content.clone();
            damaged[199_999] ^= 1;
            assert!(!holds(&damaged, 0, &table));
        }
        let mut small = Checksums::new();
        small.update(&content[..PIECE]);
        assert_eq!(small.finish(), (checksum(&content[..PIECE]), Vec::new()));
    }
}
