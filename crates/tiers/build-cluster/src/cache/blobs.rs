//! Blobs in batches: which are missing, many at once in, many at once out.

use bytes::{BufMut as _, Bytes, BytesMut};
use hyper::Response;
use tonic::{Code, Status};

use super::context::{Answered, Call};
use super::grpc;
use super::instances::Partition;
use super::proto::{self, Fields, Value};
use super::read::{BATCH_BYTES, LONE_BYTES, fetch};
use super::results;
use super::store::{Content, Key, Kind};
use super::zstd::{check_length, expand};
use crate::digest::{Digest, Function};
use crate::wire::re;

/// What an answer may be larger than its blobs.
const ANSWER_BYTES: usize = 4 << 20;
const ZSTD: u64 = 1;

/// The instance and the digest function of a request.
fn addressed(message: &[u8], function_field: u32) -> Result<(&str, Function), Status> {
    let (mut instance, mut function) = ("", Function::Sha256);
    for field in Fields(message) {
        match field? {
            (1, Value::Bytes(bytes)) => instance = proto::text(bytes)?,
            (number, Value::Number(value)) if number == function_field => {
                function = proto::function(value)?;
            }
            _ => {}
        }
    }
    Ok((instance, function))
}

pub(crate) fn find_missing(call: &Call, message: &Bytes) -> Answered {
    let (instance, function) = addressed(message, 3)?;
    let partition = call.partition(instance)?;
    let moment = partition.store.moment();
    let mut answer = grpc::message(256);
    let (mut hits, mut misses) = (0, 0);
    for field in Fields(message) {
        let (2, Value::Bytes(bytes)) = field? else { continue };
        let digest = proto::digest(function, bytes)?;
        if partition.has(&digest, moment) {
            hits += 1;
        } else {
            misses += 1;
            proto::put_bytes(&mut answer, 2, bytes);
        }
    }
    call.shared().metrics.asked(hits, misses);
    Ok(grpc::unary(answer))
}

/// A blob of a batch that is to be stored.
struct Sent<'a> {
    digest: Digest,
    wire: &'a [u8],
    data: &'a [u8],
    encoded: bool,
}

impl<'a> Sent<'a> {
    fn parse(function: Function, bytes: &'a [u8]) -> Result<Self, Status> {
        let (mut wire, mut data, mut compressor) = (None, &[][..], 0);
        for field in Fields(bytes) {
            match field? {
                (1, Value::Bytes(bytes)) => wire = Some(bytes),
                (2, Value::Bytes(bytes)) => data = bytes,
                (3, Value::Number(number)) => compressor = number,
                _ => {}
            }
        }
        let wire = wire.ok_or(crate::digest::DigestError::Absent)?;
        let digest = proto::digest(function, wire)?;
        if compressor > ZSTD {
            return Err(Status::invalid_argument("of the compressors only ZSTD is spoken here"));
        }
        Ok(Self { digest, wire, data, encoded: compressor == ZSTD })
    }

    /// Whether the data is what the digest says.
    fn check(&self, message: &Bytes) -> Result<(), Status> {
        let expanded;
        let content = if self.encoded {
            if self.digest.size > 2 * BATCH_BYTES {
                return Err(Status::invalid_argument("too large for a batch: use ByteStream"));
            }
            check_length(self.data.len() as u64, self.digest.size)?;
            expanded = expand(&proto::shared(message, self.data), self.digest.size)?;
            &expanded
        } else {
            self.data
        };
        if content.len() as u64 != self.digest.size {
            return Err(Status::invalid_argument(format!(
                "{} bytes came where {} were announced",
                content.len(),
                self.digest.size
            )));
        }
        if self.digest.function.hash(content) != self.digest.hash {
            return Err(Status::invalid_argument(format!(
                "the content is not that of {}",
                self.digest
            )));
        }
        Ok(())
    }
}

pub(crate) fn batch_update(call: &Call, message: &Bytes) -> Answered {
    call.may_write()?;
    let (instance, function) = addressed(message, 5)?;
    let partition = call.partition(instance)?;
    let mut wires: Vec<&[u8]> = Vec::new();
    let mut kept: Vec<Result<(), Status>> = Vec::new();
    let mut contents = Vec::new();
    let mut stored_at = Vec::new();
    let mut total = 0;
    for field in Fields(message) {
        let (2, Value::Bytes(bytes)) = field? else { continue };
        let sent = Sent::parse(function, bytes)?;
        total += sent.digest.size.max(sent.data.len() as u64);
        if total > 2 * BATCH_BYTES {
            return Err(Status::invalid_argument(format!(
                "a batch holds {BATCH_BYTES} bytes at most; send large blobs by ByteStream"
            )));
        }
        let checked = sent.check(message);
        if checked.is_ok() && !sent.digest.is_empty() {
            call.shared().metrics.sized(Kind::Blob, true, sent.digest.size);
            contents.push(Content {
                key: Key::blob(&sent.digest),
                size: sent.digest.size,
                encoded: sent.encoded,
                bytes: vec![proto::shared(message, sent.data)],
            });
            stored_at.push(kept.len());
        }
        wires.push(sent.wire);
        kept.push(checked);
    }
    if let Err(error) = partition.store.put_all(call.lane(), &contents) {
        let status = Status::from(error);
        for index in stored_at {
            kept[index] = Err(status.clone());
        }
    }
    let mut answer = grpc::message(wires.len() * 80);
    for (wire, stored) in wires.into_iter().zip(&kept) {
        put_status(&mut answer, wire, 2, stored.as_ref().err());
    }
    Ok(grpc::unary(answer))
}

/// Appends `{digest, status}`, the status as this field; one of OK is the empty message.
fn put_status(out: &mut BytesMut, wire: &[u8], field: u32, status: Option<&Status>) {
    let status = status.map(status_bytes).unwrap_or_default();
    let length = field_bytes(wire.len()) + field_bytes(status.len());
    proto::put_head(out, 1, length);
    proto::put_bytes(out, 1, wire);
    proto::put_bytes(out, field, &status);
}

fn status_bytes(status: &Status) -> BytesMut {
    let mut bytes = BytesMut::new();
    proto::put_number(&mut bytes, 1, u64::from((status.code() as i32).unsigned_abs()));
    proto::put_bytes(&mut bytes, 2, status.message().as_bytes());
    bytes
}

/// Bytes of a field of `length` bytes whose number is below 16.
fn field_bytes(length: usize) -> usize {
    1 + proto::varint_bytes(length as u64) + length
}

/// The answer to a batch that is read, as it grows.
struct Reading<'a> {
    call: &'a Call,
    partition: Partition<'a>,
    moment: u64,
    zstd: bool,
    answer: BytesMut,
    hits: u64,
    misses: u64,
}

impl<'a> Reading<'a> {
    /// An answer without a blob, and what is asked for: digests, and as they were written.
    fn begin(call: &'a Call, message: &'a Bytes) -> Result<(Self, Asked<'a>), Status> {
        let (instance, function) = addressed(message, 4)?;
        let partition = call.partition(instance)?;
        let zstd = accepts_zstd(message)?;
        let moment = partition.store.moment();
        let mut asked = Asked::new();
        let mut total = 0_u64;
        for field in Fields(message) {
            let (2, Value::Bytes(bytes)) = field? else { continue };
            let digest = proto::digest(function, bytes)?;
            total = total.saturating_add(digest.size);
            asked.push((digest, bytes));
        }
        if total > BATCH_BYTES && (asked.len() > 1 || total > LONE_BYTES) {
            return Err(Status::invalid_argument(format!(
                "{total} bytes are asked for, and a batch holds {BATCH_BYTES}; read large blobs by \
                 ByteStream"
            )));
        }
        let room = usize::try_from(total).unwrap_or(ANSWER_BYTES);
        let answer = grpc::message(room + asked.len() * 96);
        Ok((Self { call, partition, moment, zstd, answer, hits: 0, misses: 0 }, asked))
    }

    /// Answers for a blob; its bytes and whether they are zstd, if it is there.
    fn add(&mut self, digest: &Digest, wire: &[u8]) -> Option<(Bytes, bool)> {
        let found = if digest.is_empty() {
            Ok(Some((Bytes::new(), false)))
        } else {
            fetch(&self.partition, digest, self.moment, self.zstd)
        };
        match found {
            Ok(Some((data, encoded))) => {
                self.hits += 1;
                self.call.shared().metrics.sized(Kind::Blob, false, digest.size);
                put_blob(&mut self.answer, wire, &data, encoded);
                Some((data, encoded))
            }
            Ok(None) => {
                self.misses += 1;
                let status = Status::new(Code::NotFound, "the blob is not here");
                put_status(&mut self.answer, wire, 3, Some(&status));
                None
            }
            Err(status) => {
                put_status(&mut self.answer, wire, 3, Some(&status));
                None
            }
        }
    }

    fn end(self) -> Response<grpc::Answer> {
        self.call.found(Kind::Blob, self.hits, self.misses);
        self.call.bytes(0, self.answer.len() as u64);
        grpc::unary(self.answer)
    }
}

type Asked<'a> = Vec<(Digest, &'a [u8])>;

pub(crate) fn batch_read(call: &Call, message: &Bytes) -> Answered {
    let (mut reading, asked) = Reading::begin(call, message)?;
    for (digest, wire) in asked {
        reading.add(&digest, wire);
    }
    Ok(reading.end())
}

/// As `BatchReadBlobs`, of actions: each is followed by its command, so that a scheduler asks once for both.
pub(crate) fn read_actions(call: &Call, message: &Bytes) -> Answered {
    let (mut reading, asked) = Reading::begin(call, message)?;
    reading.zstd = false;
    for (digest, wire) in asked {
        let Some((action, _)) = reading.add(&digest, wire) else { continue };
        if let Some((command, wire)) = command_of(digest.function, &action) {
            reading.add(&command, wire);
        }
    }
    Ok(reading.end())
}

/// What is known of one action: its result if there is one that may be served, and the action itself; without a result
/// its command too, since it is to be run then. Asked as `BatchReadBlobs`, and answered so, with the result in
/// a field of its own.
pub(crate) fn look_up(call: &Call, message: &Bytes) -> Answered {
    let (mut reading, asked) = Reading::begin(call, message)?;
    reading.zstd = false;
    let [(digest, wire)] = asked[..] else {
        return Err(Status::invalid_argument("one action is looked up at a time"));
    };
    let result = results::with_logs(call, &reading.partition, &digest)?;
    let action = reading.add(&digest, wire);
    match (result, action) {
        (Some(result), _) => {
            proto::put_bytes(&mut reading.answer, crate::remote::RESULT_FIELD, &result);
        }
        (None, Some((action, _))) => {
            if let Some((command, wire)) = command_of(digest.function, &action) {
                reading.add(&command, wire);
            }
        }
        (None, None) => {}
    }
    Ok(reading.end())
}

/// The digest of an action's command, unless it is no digest or a command that is not read in one piece.
pub(crate) fn command_of(function: Function, action: &[u8]) -> Option<(Digest, &[u8])> {
    let mut wire = None;
    for field in Fields(action) {
        if let (1, Value::Bytes(bytes)) = field.ok()? {
            wire = Some(bytes);
        }
    }
    let wire = wire?;
    let command = proto::digest(function, wire).ok()?;
    (command.size <= crate::remote::SMALL_BYTES).then_some((command, wire))
}

/// Whether the client takes zstd.
fn accepts_zstd(message: &Bytes) -> Result<bool, Status> {
    let mut zstd = false;
    for field in Fields(message) {
        match field? {
            (3, Value::Number(number)) => zstd |= number == ZSTD,
            // Packed, as the newer syntax has it.
            (3, Value::Bytes(bytes)) => zstd |= bytes.contains(&1),
            _ => {}
        }
    }
    Ok(zstd)
}

fn put_blob(out: &mut BytesMut, wire: &[u8], data: &[u8], encoded: bool) {
    let compressor = if encoded { 2 } else { 0 };
    // A status of OK is the empty message, which is there.
    let length = field_bytes(wire.len()) + field_bytes(data.len()) + compressor + 2;
    proto::put_head(out, 1, length);
    proto::put_bytes(out, 1, wire);
    proto::put_bytes(out, 2, data);
    out.put_slice(&[0x1a, 0]);
    proto::put_number(out, 4, u64::from(encoded));
}

/// What is announced of batches.
pub(crate) const COMPRESSORS: [re::compressor::Value; 2] =
    [re::compressor::Value::Identity, re::compressor::Value::Zstd];
