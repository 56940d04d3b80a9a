//! What the cache answers: one method a module, found here by its path.

use hyper::{Request, Response};
use tonic::Status;

use super::context::{Answered, Call, Context, finish};
use super::grpc::{self, Answer, Messages};
use super::metrics::Operation;
use super::{assets, blobs, capabilities, http, read, results, tree, write};
use crate::listen::plain::is_grpc;
use crate::listen::{Incoming, Room, Serve};

/// The cache's answers on one network thread.
#[derive(Debug, Clone)]
pub(crate) struct Service(pub(crate) Context);

impl Serve for Service {
    type Body = Answer;

    const PLAIN: bool = true;

    async fn serve(&self, request: Request<Incoming>) -> Response<Answer> {
        if !is_grpc(request.headers()) {
            return http::serve(&self.0, request).await;
        }
        let path = request.uri().path();
        let Some((operation, method)) = method(path) else {
            return grpc::refused(&Status::unimplemented(format!("there is no method {path}")));
        };
        let mut call = self.0.begin(operation, request.extensions());
        let room = Room::of(request.extensions());
        let messages = Messages::new(request.into_body(), &self.0.shared.budget, &call.client);
        match method {
            Served::Read => read::read(call, messages, &room).await,
            Served::Unary(answer) => {
                let mut messages = messages;
                let awaited = room.wait();
                let message = messages.only().await;
                drop(awaited);
                let answered = match message {
                    Ok(message) => {
                        room.take(0).await;
                        call.bytes(messages.read, 0);
                        answer(&call, &message)
                    }
                    Err(status) => Err(status),
                };
                finish(&mut call, answered)
            }
            Served::Write => {
                let answered = write::write(&call, messages).await;
                finish(&mut call, answered)
            }
        }
    }

    fn refuse(&self, status: Status) -> Response<Answer> {
        grpc::refused(&status)
    }
}

type Unary = fn(&Call, &bytes::Bytes) -> Answered;

enum Served {
    Unary(Unary),
    Read,
    Write,
}

fn method(path: &str) -> Option<(Operation, Served)> {
    const RE: &str = "/build.bazel.remote.execution.v2.";
    const ASSET: &str = "/build.bazel.remote.asset.v1.";
    if let Some(name) = path.strip_prefix(RE) {
        let (operation, unary): (Operation, Unary) = match name {
            "ContentAddressableStorage/FindMissingBlobs" => {
                (Operation::FindMissing, blobs::find_missing)
            }
            "ContentAddressableStorage/BatchUpdateBlobs" => {
                (Operation::BatchUpdate, blobs::batch_update)
            }
            "ContentAddressableStorage/BatchReadBlobs" => (Operation::BatchRead, blobs::batch_read),
            "ContentAddressableStorage/GetTree" => (Operation::GetTree, tree::get_tree),
            "ActionCache/GetActionResult" => (Operation::GetResult, results::get),
            "ActionCache/UpdateActionResult" => (Operation::PutResult, results::update),
            "Capabilities/GetCapabilities" => (Operation::Other, capabilities::get),
            _ => return None,
        };
        return Some((operation, Served::Unary(unary)));
    }
    if let Some(name) = path.strip_prefix(ASSET) {
        let (operation, unary): (Operation, Unary) = match name {
            "Fetch/FetchBlob" => (Operation::Fetch, |call, ask| assets::fetch(call, ask, "blob")),
            "Fetch/FetchDirectory" => {
                (Operation::Fetch, |call, ask| assets::fetch(call, ask, "directory"))
            }
            "Push/PushBlob" => (Operation::Push, |call, ask| assets::push(call, ask, "blob")),
            "Push/PushDirectory" => {
                (Operation::Push, |call, ask| assets::push(call, ask, "directory"))
            }
            _ => return None,
        };
        return Some((operation, Served::Unary(unary)));
    }
    Some(match path {
        crate::remote::ACTIONS => (Operation::BatchRead, Served::Unary(blobs::read_actions)),
        crate::remote::LOOK_UP => (Operation::GetResult, Served::Unary(blobs::look_up)),
        "/google.bytestream.ByteStream/Read" => (Operation::GetBlob, Served::Read),
        "/google.bytestream.ByteStream/Write" => (Operation::PutBlob, Served::Write),
        "/google.bytestream.ByteStream/QueryWriteStatus" => {
            (Operation::Other, Served::Unary(write::query))
        }
        "/grpc.health.v1.Health/Check" => (Operation::Other, Served::Unary(capabilities::health)),
        _ => return None,
    })
}
