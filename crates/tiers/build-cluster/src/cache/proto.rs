//! The few messages of the hot path, read and written without a copy of what they carry.
//!
//! The library's types own their bytes: a request of fifty blobs would be copied twice. Here a
//! field is a slice of what came from the network.

use bytes::{BufMut as _, Bytes, BytesMut};
use tonic::Status;

use crate::digest::{Digest, Function, parse_hash};

/// A field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of a kind that no message here has.
    Other,
}

/// Groups within each other that are skipped, as many as libraries of the protocol skip.
const GROUPS: usize = 100;

/// The fields of a message, one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

impl From<Malformed> for Status {
    fn from(_: Malformed) -> Self {
        Self::invalid_argument("the request is not a message of the protocol")
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or(Malformed))
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u32, Value<'a>)> {
        // A tag has 32 bits; some libraries take longer ones and drop the rest.
        let tag = u32::try_from(self.varint()? & u64::from(u32::MAX)).ok()?;
        let number = (tag >> 3 > 0).then_some(tag >> 3)?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.take(8).map(|_| Value::Other)?,
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.take(length)?)
            }
            3 => self.group(number).map(|()| Value::Other)?,
            5 => self.take(4).map(|_| Value::Other)?,
            _ => return None,
        };
        Some((number, value))
    }

    /// Skips a group to its end. No message here has one, and libraries skip what they do not know.
    fn group(&mut self, number: u32) -> Option<()> {
        let mut open = vec![number];
        while let Some(innermost) = open.last() {
            let tag = u32::try_from(self.varint()? & u64::from(u32::MAX)).ok()?;
            match tag & 7 {
                0 => {
                    self.varint()?;
                }
                1 => {
                    self.take(8)?;
                }
                2 => {
                    let length = usize::try_from(self.varint()?).ok()?;
                    self.take(length)?;
                }
                3 if open.len() < GROUPS => open.push(tag >> 3),
                4 if tag >> 3 == *innermost => {
                    open.pop();
                }
                5 => {
                    self.take(4)?;
                }
                _ => return None,
            }
        }
        Some(())
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for (index, byte) in self.0.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.0 = &self.0[index + 1..];
                return Some(value);
            }
        }
        None
    }
}

/// A text of the wire.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed)
}

/// The number of a digest function.
pub(crate) fn function(number: u64) -> Result<Function, Status> {
    Ok(Function::from_wire(i32::try_from(number).unwrap_or(i32::MAX))?)
}

pub(crate) fn digest(function: Function, bytes: &[u8]) -> Result<Digest, Status> {
    // As every client writes it: the hash first, then the size.
    if let [0x0a, 64, rest @ ..] = bytes
        && let Some((hash, [0x10, size @ ..])) = rest.split_at_checked(64)
        && let [Ok((1, Value::Number(size)))] = [Fields(size).size()]
    {
        return Ok(Digest { function, hash: parse_hash(hash)?, size: length(size)? });
    }
    let (mut hash, mut size): (&[u8], u64) = (&[], 0);
    for field in Fields(bytes) {
        match field? {
            (1, Value::Bytes(bytes)) => hash = bytes,
            (2, Value::Number(number)) => size = number,
            _ => {}
        }
    }
    Ok(Digest { function, hash: parse_hash(hash)?, size: length(size)? })
}

impl<'a> Fields<'a> {
    /// A number that is all there is.
    fn size(mut self) -> Result<(u32, Value<'a>), Malformed> {
        let number = self.varint().ok_or(Malformed)?;
        if self.0.is_empty() { Ok((1, Value::Number(number))) } else { Err(Malformed) }
    }
}

/// A size on the wire is a signed number.
fn length(size: u64) -> Result<u64, Status> {
    if size > i64::MAX.cast_unsigned() {
        return Err(crate::digest::DigestError::Size(size.cast_signed().to_string()).into());
    }
    Ok(size)
}

/// Appends a number as protobuf writes it.
pub(crate) fn put_varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.put_u8(value.to_le_bytes()[0]);
}

/// Appends the beginning of a field of `length` bytes.
pub(crate) fn put_head(out: &mut BytesMut, number: u32, length: usize) {
    put_varint(out, u64::from(number << 3 | 2));
    put_varint(out, length as u64);
}

pub(crate) fn put_bytes(out: &mut BytesMut, number: u32, bytes: &[u8]) {
    put_head(out, number, bytes.len());
    out.put_slice(bytes);
}

/// Appends a field that is a number, unless it is 0.
pub(crate) fn put_number(out: &mut BytesMut, number: u32, value: u64) {
    if value != 0 {
        put_varint(out, u64::from(number << 3));
        put_varint(out, value);
    }
}

/// Bytes that a number takes.
pub(crate) fn varint_bytes(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// A part of `whole` as a slice that shares its memory.
pub(crate) fn shared(whole: &Bytes, part: &[u8]) -> Bytes {
    if part.is_empty() { Bytes::new() } else { whole.slice_ref(part) }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::wire::re;

    #[test]
    fn digests_are_read_as_the_library_reads_them() {
        let function = Function::Sha256;
        for size in [0, 1, 127, 128, 5_000_000_000] {
            let digest_of = Digest { size, ..function.digest(b"x") };
            let bytes = digest_of.to_wire().encode_to_vec();
            assert_eq!(digest(function, &bytes).unwrap(), digest_of);
            let mut turned = bytes[66..].to_vec();
            turned.extend(&bytes[..66]);
            assert_eq!(digest(function, &turned).unwrap(), digest_of);
        }
        let negative = re::Digest { size_bytes: -1, ..function.digest(b"x").to_wire() };
        let refused = digest(function, &negative.encode_to_vec()).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    }

    #[test]
    fn no_bytes_make_it_fail_otherwise_than_by_refusing() {
        let whole = Function::Blake3.digest(b"y").to_wire().encode_to_vec();
        for cut in 0..whole.len() {
            let read = digest(Function::Blake3, &whole[..cut]);
            assert!(read.is_err() || cut == 66, "{cut}");
            let mut noise = whole.clone();
            noise[cut] = 0xff;
            assert!(Fields(&noise).count() < 100);
        }
        assert_eq!(Fields(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]).next(), Some(Err(Malformed)));
        assert_eq!(Fields(&[0xff; 11]).next(), Some(Err(Malformed)));
    }

    #[test]
    fn numbers_take_as_many_bytes_as_is_said() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut out = BytesMut::new();
            put_varint(&mut out, value);
            assert_eq!(out.len(), varint_bytes(value));
        }
    }
}
