//! `ByteStream.Read`: a blob, or a part of it, piece by piece.

use bytes::{Bytes, BytesMut};
use hyper::Response;
use prost::Message as _;
use tonic::{Code, Status};
use zstd::stream::raw::{Encoder, InBuffer, Operation as _, OutBuffer};

use super::context::{Call, finish, not_found};
use super::grpc::{self, Answer, Messages, More};
use super::instances::Partition;
use super::proto;
use super::resource::Resource;
use super::store::{Entry, Key, Kind, Reader};
use super::zstd::{Expander, LEVEL, expand};
use crate::digest::Digest;
use crate::listen::{PART_BYTES, Room};
use crate::wire::bytestream;

/// Bytes of one message.
const STEP: usize = PART_BYTES;

/// Bytes of blobs in one batch: what is announced, and what an answer holds.
pub(crate) const BATCH_BYTES: u64 = 4 << 20;
/// A single blob may be larger: a message such as a tree, which is only of use whole.
pub(crate) const LONE_BYTES: u64 = 4 * BATCH_BYTES;

pub(crate) async fn read(mut call: Call, mut messages: Messages, room: &Room) -> Response<Answer> {
    let awaited = room.wait();
    let message = messages.only().await;
    drop(awaited);
    let message = match message {
        Ok(message) => message,
        Err(status) => return finish(&mut call, Err(status)),
    };
    room.take(PART_BYTES).await;
    match begin(&call, message) {
        Ok(mut content) => {
            // What fits into one message needs no stream.
            match content.next() {
                Ok(first) => {
                    let parts =
                        first.filter(|data| !data.is_empty()).map(framed).unwrap_or_default();
                    if !content.ended() {
                        let rest = Rest { content, call, half: None };
                        return grpc::stream(parts, Some(Box::new(rest)));
                    }
                    call.bytes(0, parts.iter().map(|part| part.len() as u64).sum());
                    finish(&mut call, Ok(grpc::stream(parts, None)))
                }
                Err(status) => finish(&mut call, Err(status)),
            }
        }
        Err(status) => finish(&mut call, Err(status)),
    }
}

fn begin(call: &Call, message: Bytes) -> Result<Contents, Status> {
    let request = bytestream::ReadRequest::decode(message).map_err(|_| proto::Malformed)?;
    let resource = Resource::parse(&request.resource_name, false)?;
    let offset = u64::try_from(request.read_offset)
        .map_err(|_| Status::out_of_range("the offset is negative"))?;
    let limit = u64::try_from(request.read_limit)
        .map_err(|_| Status::invalid_argument("the limit is negative"))?;
    let partition = call.partition(resource.instance)?;
    if offset > resource.digest.size {
        return Err(Status::out_of_range(format!(
            "the offset {offset} is past the end of {} bytes",
            resource.digest.size
        )));
    }
    let contents = open(&partition, &resource.digest, offset, limit, resource.zstd)?;
    call.found(Kind::Blob, u64::from(contents.is_some()), u64::from(contents.is_none()));
    let contents = contents.ok_or_else(|| not_found(&resource.digest))?;
    call.shared().metrics.sized(Kind::Blob, false, resource.digest.size);
    Ok(contents)
}

/// A message that carries `data`.
fn framed(data: Bytes) -> Vec<Bytes> {
    let length = 1 + proto::varint_bytes(data.len() as u64) + data.len();
    let mut head = BytesMut::with_capacity(16);
    grpc::put_prefix(&mut head, length);
    proto::put_head(&mut head, 10, data.len());
    vec![head.freeze(), data]
}

/// What follows the first message.
struct Rest {
    content: Contents,
    call: Call,
    /// The data whose head was just given.
    half: Option<Bytes>,
}

impl More for Rest {
    fn next(&mut self) -> Result<Option<Bytes>, Status> {
        if let Some(data) = self.half.take() {
            self.call.bytes(0, data.len() as u64);
            return Ok(Some(data));
        }
        let Some(data) = self.content.next()? else { return Ok(None) };
        if data.is_empty() {
            return Ok(Some(data));
        }
        let mut parts = framed(data);
        self.half = parts.pop();
        Ok(parts.pop())
    }

    fn ended(&mut self, code: Code) {
        self.call.end(code);
    }
}

/// The content of a blob, as HTTP sends it.
pub(crate) struct PlainRest {
    pub(crate) content: Contents,
    pub(crate) call: Call,
}

impl More for PlainRest {
    fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let data = self.content.next()?;
        self.call.bytes(0, data.as_ref().map_or(0, |data| data.len() as u64));
        Ok(data)
    }

    fn ended(&mut self, code: Code) {
        self.call.end(code);
    }
}

/// Opens a blob from `offset` on, `limit` bytes of it or, with 0, all; `None` when it is not there.
pub(crate) fn open(
    partition: &Partition<'_>,
    digest: &Digest,
    offset: u64,
    limit: u64,
    zstd: bool,
) -> Result<Option<Contents>, Status> {
    let left = digest.size.saturating_sub(offset);
    let left = if limit == 0 { left } else { left.min(limit) };
    let all = left == digest.size;
    let raw = if digest.is_empty() {
        Raw::Whole(Some(Bytes::new()))
    } else {
        let moment = partition.store.moment();
        let Some(entry) = partition.entry(digest, moment) else { return Ok(None) };
        let Some(raw) = Raw::open(partition, digest, entry)? else { return Ok(None) };
        if entry.encoded && !(zstd && all) {
            let expander = Expander::new(digest.size)?;
            let input = Bytes::new();
            let plain = Plain::Expanded { raw, expander, input, done: true, skip: offset };
            return Contents::new(plain, left, zstd).map(Some);
        }
        if entry.encoded {
            return Ok(Some(Contents {
                plain: Plain::AsStored(raw),
                left: u64::MAX,
                packed: None,
            }));
        }
        raw
    };
    Contents::new(Plain::Stored { raw, offset }, left, zstd).map(Some)
}

/// A whole small blob; `None` when it is not there.
pub(crate) fn whole(
    partition: &Partition<'_>,
    digest: &Digest,
    moment: u64,
) -> Result<Option<Bytes>, Status> {
    if digest.is_empty() {
        return Ok(Some(Bytes::new()));
    }
    Ok(fetch(partition, digest, moment, false)?.map(|(bytes, _)| bytes))
}

/// A small blob's bytes, and whether they are zstd, which `zstd` allows.
pub(crate) fn fetch(
    partition: &Partition<'_>,
    digest: &Digest,
    moment: u64,
    zstd: bool,
) -> Result<Option<(Bytes, bool)>, Status> {
    let Some(entry) = partition.entry(digest, moment) else { return Ok(None) };
    let Some(stored) = partition.store.read(&Key::blob(digest), entry)? else { return Ok(None) };
    if !entry.encoded {
        return Ok(Some((stored, false)));
    }
    // Never longer than what was asked for, by which an answer is bounded.
    if zstd && stored.len() as u64 <= digest.size {
        return Ok(Some((stored, true)));
    }
    Ok(Some((Bytes::from(expand(&stored, digest.size)?), false)))
}

/// A blob that is read as a message of the library, such as a directory; `None` when it is missing.
pub(crate) fn parsed<M: prost::Message + Default>(
    partition: &Partition<'_>,
    digest: &Digest,
    moment: u64,
) -> Result<Option<M>, Status> {
    if digest.size > LONE_BYTES {
        return Err(Status::invalid_argument(format!("{digest} is too large for a directory")));
    }
    let Some(bytes) = whole(partition, digest, moment)? else { return Ok(None) };
    match M::decode(bytes) {
        Ok(message) => Ok(Some(message)),
        Err(_) => Err(Status::failed_precondition(format!("{digest} is not a directory"))),
    }
}

/// Bytes as stored.
enum Raw {
    Whole(Option<Bytes>),
    Pieces { reader: Reader, at: u64 },
}

impl Raw {
    fn open(
        partition: &Partition<'_>,
        digest: &Digest,
        entry: Entry,
    ) -> Result<Option<Self>, Status> {
        let key = Key::blob(digest);
        let store = partition.store;
        if store.is_small(entry.stored) {
            return Ok(store.read(&key, entry)?.map(|bytes| Self::Whole(Some(bytes))));
        }
        Ok(store.open_reader(&key, entry)?.map(|reader| Self::Pieces { reader, at: 0 }))
    }

    /// The next bytes, `most` at most, after skipping `skip`.
    fn next(&mut self, skip: u64, most: usize) -> Result<Option<Bytes>, Status> {
        match self {
            Self::Whole(bytes) => {
                let Some(mut whole) = bytes.take() else { return Ok(None) };
                let skip = usize::try_from(skip).unwrap_or(usize::MAX).min(whole.len());
                let whole = whole.split_off(skip);
                Ok((!whole.is_empty()).then_some(whole))
            }
            Self::Pieces { reader, at } => {
                *at += skip;
                let bytes = reader.read(*at, most)?;
                *at += bytes.len() as u64;
                Ok((!bytes.is_empty()).then_some(bytes))
            }
        }
    }
}

enum Plain {
    /// Stored as it is.
    Stored { raw: Raw, offset: u64 },
    /// Stored as zstd, and wanted as it is.
    Expanded { raw: Raw, expander: Expander, input: Bytes, done: bool, skip: u64 },
    /// Stored as zstd, and wanted so.
    AsStored(Raw),
}

impl Plain {
    /// The next bytes; none where it needs another turn.
    fn next(&mut self) -> Result<Option<Bytes>, Status> {
        match self {
            Self::AsStored(raw) => raw.next(0, STEP),
            Self::Stored { raw, offset } => raw.next(std::mem::take(offset), STEP),
            Self::Expanded { raw, expander, input, done, skip } => {
                if *done {
                    let Some(bytes) = raw.next(0, STEP / 4)? else { return Ok(None) };
                    *input = bytes;
                }
                let mut out = Vec::new();
                *done = expander.expand(input, STEP, |piece| {
                    let skipped = usize::try_from(*skip).unwrap_or(usize::MAX).min(piece.len());
                    *skip -= skipped as u64;
                    out.extend_from_slice(&piece[skipped..]);
                })?;
                Ok(Some(out.into()))
            }
        }
    }
}

/// What is sent: plain content, cut at its end, and compressed if that was asked for.
pub(crate) struct Contents {
    plain: Plain,
    left: u64,
    packed: Option<Packer>,
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Contents({} left)", self.left)
    }
}

struct Packer {
    encoder: Encoder<'static>,
    ended: bool,
}

impl Contents {
    fn new(plain: Plain, left: u64, zstd: bool) -> Result<Self, Status> {
        let encoder = || Encoder::new(LEVEL).map_err(|error| Status::internal(error.to_string()));
        let packed = match zstd {
            true => Some(Packer { encoder: encoder()?, ended: false }),
            false => None,
        };
        Ok(Self { plain, left, packed })
    }

    /// Whether nothing follows.
    fn ended(&self) -> bool {
        match (&self.packed, &self.plain) {
            (Some(packer), _) => packer.ended,
            (None, Plain::AsStored(Raw::Whole(rest))) => rest.is_none(),
            (None, Plain::AsStored(_)) => false,
            (None, _) => self.left == 0,
        }
    }

    /// The next bytes; `None` at the end, and none where it needs another turn.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Status> {
        if self.packed.is_none() {
            return self.cut();
        }
        loop {
            let data = self.cut()?;
            if data.as_ref().is_some_and(Bytes::is_empty) {
                return Ok(data);
            }
            let last = data.is_none();
            let Some(packer) = &mut self.packed else { return Ok(data) };
            if packer.ended {
                return Ok(None);
            }
            let out = packer.pack(data.as_deref())?;
            packer.ended = last;
            if !out.is_empty() {
                return Ok(Some(out.into()));
            }
        }
    }

    fn cut(&mut self) -> Result<Option<Bytes>, Status> {
        if self.left == 0 {
            return Ok(None);
        }
        let Some(mut data) = self.plain.next()? else {
            if self.left == u64::MAX {
                self.left = 0;
                return Ok(None);
            }
            return Err(Status::data_loss("the stored content ends early"));
        };
        if self.left != u64::MAX {
            data.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
            self.left -= data.len() as u64;
        }
        Ok(Some(data))
    }
}

impl Packer {
    fn pack(&mut self, data: Option<&[u8]>) -> Result<Vec<u8>, Status> {
        let failed = |error: std::io::Error| Status::internal(error.to_string());
        let mut out = Vec::with_capacity(STEP / 2);
        let mut buffer = vec![0; STEP / 2];
        let mut input = InBuffer::around(data.unwrap_or_default());
        loop {
            let mut output = OutBuffer::around(&mut buffer[..]);
            let left = match data {
                Some(bytes) => {
                    self.encoder.run(&mut input, &mut output).map_err(failed)?;
                    bytes.len() - input.pos()
                }
                None => self.encoder.finish(&mut output, true).map_err(failed)?,
            };
            out.extend_from_slice(output.as_slice());
            if left == 0 {
                return Ok(out);
            }
        }
    }
}
