//! `ByteStream.Write`, and how far one came.

use bytes::Bytes;
use prost::Message as _;
use tonic::Status;

use super::context::{Answered, Call};
use super::grpc::{self, Messages};
use super::proto;
use super::resource::Resource;
use super::store::{Kind, Store};
use super::uploads::Upload;
use crate::listen::UploadPlace;
use crate::wire::bytestream::{QueryWriteStatusRequest, QueryWriteStatusResponse, WriteResponse};

/// What a message says besides its data.
#[derive(Debug, Default, PartialEq, Eq)]
struct Head {
    name: Option<String>,
    offset: i64,
    finish: bool,
}

/// An upload under way; when the connection breaks, what came so far is kept.
struct Guard<'a> {
    call: &'a Call,
    name: String,
    upload: Option<Upload>,
    place: UploadPlace,
}

impl Guard<'_> {
    /// Takes in a message; an upload that is refused cannot become right any more.
    async fn write(&mut self, store: &Store, head: &Head, data: Vec<Bytes>) -> Result<(), Status> {
        let Some(upload) = &self.upload else {
            return Err(Status::internal("the upload is gone"));
        };
        let committed = signed(upload.committed());
        if head.offset != committed {
            return Err(Status::invalid_argument(format!(
                "the offset {} does not follow the {committed} bytes that came",
                head.offset
            )));
        }
        if let Some(upload) = self.upload.take() {
            let upload = self.upload.insert(upload.write(store, data).await?);
            self.place.came(upload.committed(), self.call.shared().clock.now_ns())?;
        }
        Ok(())
    }

    /// The next message, unless another upload takes the place of this one.
    async fn next(&self, messages: &mut Messages) -> Result<Option<Vec<Bytes>>, Status> {
        tokio::select! {
            next = messages.next() => next,
            status = self.place.taken() => Err(status),
        }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Some(upload) = self.upload.take() {
            let shared = self.call.shared();
            shared.uploads.keep(std::mem::take(&mut self.name), upload, shared.clock.now_ns());
        }
    }
}

pub(crate) async fn write(call: &Call, mut messages: Messages) -> Answered {
    call.may_write()?;
    let Some(parts) = messages.next().await? else {
        return Err(Status::invalid_argument("the upload has no message"));
    };
    let (mut head, mut data) = split(parts)?;
    let name = head.name.take().unwrap_or_default();
    let resource = Resource::parse(&name, true)?;
    let partition = call.partition(resource.instance)?;
    let (store, digest, zstd) = (partition.store, resource.digest, resource.zstd);
    let moment = store.moment();
    if partition.entry(&digest, moment).is_some() {
        call.bytes(messages.read, 0);
        // The client may stop here: it is there already.
        let committed = if zstd { -1 } else { signed(digest.size) };
        return Ok(grpc::encoded(&WriteResponse { committed_size: committed }));
    }
    let mut guard = begin(call, &name, &resource, head.offset)?;
    loop {
        guard.write(store, &head, data).await?;
        if head.finish {
            break;
        }
        let Some(parts) = guard.next(&mut messages).await? else {
            // Not finished: it may be resumed.
            let committed_size = signed(guard.upload.as_ref().map_or(0, Upload::committed));
            return Ok(grpc::encoded(&WriteResponse { committed_size }));
        };
        (head, data) = split(parts)?;
        if head.name.as_ref().is_some_and(|other| *other != name) {
            return Err(Status::invalid_argument("one upload writes one resource"));
        }
    }
    let Some(upload) = guard.upload.take() else {
        return Err(Status::internal("the upload is gone"));
    };
    let committed_size = signed(upload.committed());
    upload.finish(store, call.lane())?;
    call.bytes(messages.read, 0);
    call.shared().metrics.sized(Kind::Blob, true, digest.size);
    Ok(grpc::encoded(&WriteResponse { committed_size }))
}

fn begin<'a>(
    call: &'a Call,
    name: &str,
    resource: &Resource<'_>,
    offset: i64,
) -> Result<Guard<'a>, Status> {
    let shared = call.shared();
    let now_ns = shared.clock.now_ns();
    let place = shared.uploads.open.begin(&call.client, now_ns)?;
    let kept = if offset == 0 { None } else { shared.uploads.resume(name, now_ns) };
    let upload = match kept {
        Some(upload) => upload,
        None => {
            let store = shared.instances.partition(resource.instance)?.store;
            shared.uploads.begin(&call.client, store, resource.digest, resource.zstd)?
        }
    };
    Ok(Guard { call, name: name.to_owned(), upload: Some(upload), place })
}

pub(crate) fn query(call: &Call, message: &Bytes) -> Answered {
    let request = QueryWriteStatusRequest::decode(message.clone()).map_err(|_| proto::Malformed)?;
    let resource = Resource::parse(&request.resource_name, true)?;
    let partition = call.partition(resource.instance)?;
    let moment = partition.store.moment();
    let digest = resource.digest;
    if partition.has(&digest, moment) {
        let answer =
            QueryWriteStatusResponse { committed_size: signed(digest.size), complete: true };
        return Ok(grpc::encoded(&answer));
    }
    let now_ns = call.shared().clock.now_ns();
    let committed = call.shared().uploads.committed(&request.resource_name, now_ns);
    let committed_size = signed(committed.unwrap_or(0));
    Ok(grpc::encoded(&QueryWriteStatusResponse { committed_size, complete: false }))
}

fn signed(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// Reads a message that came in parts, and leaves its data in them.
fn split(mut parts: Vec<Bytes>) -> Result<(Head, Vec<Bytes>), Status> {
    let mut head = Head::default();
    let mut data = Vec::new();
    loop {
        parts.retain(|part| !part.is_empty());
        if parts.is_empty() {
            return Ok((head, data));
        }
        let tag = varint(&mut parts)?;
        match (tag >> 3, tag & 7) {
            (10, 2) => {
                let length = varint(&mut parts)?;
                data = take(&mut parts, length)?;
            }
            (1, 2) => {
                let length = varint(&mut parts)?;
                let name = grpc::join(take(&mut parts, length)?);
                head.name = Some(proto::text(&name)?.to_owned()).filter(|name| !name.is_empty());
            }
            (2, 0) => head.offset = varint(&mut parts)?.cast_signed(),
            (3, 0) => head.finish = varint(&mut parts)? != 0,
            (_, 0) => {
                varint(&mut parts)?;
            }
            (_, 1) => drop(take(&mut parts, 8)?),
            (_, 5) => drop(take(&mut parts, 4)?),
            (_, 2) => {
                let length = varint(&mut parts)?;
                take(&mut parts, length)?;
            }
            _ => return Err(proto::Malformed.into()),
        }
    }
}

fn varint(parts: &mut [Bytes]) -> Result<u64, Status> {
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let Some(part) = parts.iter_mut().find(|part| !part.is_empty()) else { break };
        let byte = part.split_to(1)[0];
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(proto::Malformed.into())
}

fn take(parts: &mut [Bytes], length: u64) -> Result<Vec<Bytes>, Status> {
    let mut missing = usize::try_from(length).map_err(|_| proto::Malformed)?;
    let mut taken = Vec::with_capacity(parts.len());
    for part in parts.iter_mut() {
        if missing == 0 {
            break;
        }
        let now = part.split_to(missing.min(part.len()));
        missing -= now.len();
        if !now.is_empty() {
            taken.push(now);
        }
    }
    if missing > 0 { Err(proto::Malformed.into()) } else { Ok(taken) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::bytestream::WriteRequest;

    #[test]
    fn a_message_is_read_however_it_was_cut() {
        let request = WriteRequest {
            resource_name: "uploads/1/blobs/x/5".to_owned(),
            write_offset: 300,
            finish_write: true,
            data: (0..255).collect(),
        };
        let bytes = Bytes::from(request.encode_to_vec());
        for step in 1..=bytes.len() {
            let parts: Vec<Bytes> = bytes.chunks(step).map(|part| bytes.slice_ref(part)).collect();
            let (head, data) = split(parts).unwrap();
            assert_eq!(head.name.as_deref(), Some("uploads/1/blobs/x/5"));
            assert_eq!((head.offset, head.finish), (300, true));
            assert_eq!(grpc::join(data), request.data);
        }
        for cut in 1..bytes.len() {
            let short = split(vec![bytes.slice(..cut)]);
            assert!(short.is_err() || cut < 30, "{cut}");
        }
        assert!(split(vec![Bytes::from_static(&[0xff; 12])]).is_err());
    }
}
