//! ByteStream: a stream is one blob's, and goes to one server as it comes.

use std::sync::Arc;

use tokio_stream::StreamExt as _;
use tonic::{Request, Response, Status, Streaming};

use super::Front;
use super::servers::{Operation, Servers, forwarded, is_unreachable, may_write};
use super::storage::Answers;
use crate::cache::resource::Resource;
use crate::listen::{Client, PART_BYTES, Room};
use crate::wire::bytestream::byte_stream_server::ByteStream;
use crate::wire::bytestream::{
    QueryWriteStatusRequest, QueryWriteStatusResponse, ReadRequest, ReadResponse, WriteRequest,
    WriteResponse,
};

#[tonic::async_trait]
impl ByteStream for Front {
    type ReadStream = Answers<ReadResponse>;

    async fn read(
        &self,
        request: Request<ReadRequest>,
    ) -> Result<Response<Self::ReadStream>, Status> {
        let timed = self.storage.begin(Operation::Read);
        Room::of(request.extensions()).take(2 * PART_BYTES).await;
        let (metadata, _, message) = request.into_parts();
        let digest = Resource::parse(&message.resource_name, false)?.digest;
        let server = self.storage.owner(&digest.hash)?;
        let mut client = self.storage.shard(server).streams.clone();
        let call = client.read(forwarded(&metadata, message));
        let pieces = self.storage.call(server, 1, call).await?;
        let (storage, mut timed) = (Arc::clone(&self.storage), Some(timed));
        let pieces = pieces.map(move |piece| noted(&storage, server, piece));
        // The request is answered when its last piece has been handed on, or the client is gone.
        let end = tokio_stream::once(()).filter_map(move |()| {
            drop(timed.take());
            None
        });
        Ok(Response::new(Box::pin(pieces.chain(end))))
    }

    async fn write(
        &self,
        request: Request<Streaming<WriteRequest>>,
    ) -> Result<Response<WriteResponse>, Status> {
        may_write(&request)?;
        let _timed = self.storage.begin(Operation::Write);
        let client = Client::of(request.extensions());
        let (metadata, _, mut pieces) = request.into_parts();
        let first = pieces.message().await?;
        let first = first.ok_or_else(|| Status::invalid_argument("there is no request"))?;
        let digest = Resource::parse(&first.resource_name, true)?.digest;
        let server = self.storage.owner(&digest.hash)?;
        // A client that breaks off ends the stream without its last piece, and the server says so.
        let place = Arc::new(self.uploads.begin(&client, self.storage.now_ns())?);
        let all = tokio_stream::once(first).chain(pieces.map_while(Result::ok));
        let (storage, moving, mut bytes) = (Arc::clone(&self.storage), Arc::clone(&place), 0);
        let all = all.map(move |piece| {
            bytes += piece.data.len() as u64;
            // The server ends what does not move on, with the reason.
            moving.moved(bytes, storage.now_ns());
            piece
        });
        let mut streams = self.storage.shard(server).streams.clone();
        let call = streams.write(forwarded(&metadata, all));
        let answer = tokio::select! {
            answer = self.storage.stream(server, 1, call) => answer?,
            status = place.taken() => return Err(status),
        };
        Ok(Response::new(answer))
    }

    async fn query_write_status(
        &self,
        request: Request<QueryWriteStatusRequest>,
    ) -> Result<Response<QueryWriteStatusResponse>, Status> {
        let (metadata, _, message) = request.into_parts();
        let digest = Resource::parse(&message.resource_name, true)?.digest;
        let server = self.storage.owner(&digest.hash)?;
        let mut client = self.storage.shard(server).streams.clone();
        let call = client.query_write_status(forwarded(&metadata, message));
        self.storage.call(server, 1, call).await.map(Response::new)
    }
}

/// A piece of a stream, or why it ends; a server that broke off is down.
fn noted(
    storage: &Servers,
    server: usize,
    piece: Result<ReadResponse, Status>,
) -> Result<ReadResponse, Status> {
    piece.map_err(|status| {
        if !is_unreachable(&status) {
            return status;
        }
        storage.fell(server, &status);
        storage.unreachable(server, status.message())
    })
}
