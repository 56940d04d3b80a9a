//! The cache of the model: it is always there, and has every action. It answers the methods that the
//! scheduler calls.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::http::{HeaderMap, HeaderValue};
use hyper::{Request, Response};
use prost::Message as _;
use tonic::Status;
use tonic::body::Body;

use super::actors::{Log, blob, number_of};
use crate::digest::{Digest, Function};
use crate::peer::Calls;
use crate::remote::{ACTIONS, LOOK_UP, RESULT_FIELD};
use crate::wire::re;

pub(super) fn calls(log: &Arc<Log>) -> Calls {
    let log = Arc::clone(log);
    Calls::model(move |request| {
        let log = Arc::clone(&log);
        async move { answer(&log, request).await.unwrap_or_else(Status::into_http) }
    })
}

async fn answer(log: &Log, request: Request<Body>) -> Result<Response<Body>, Status> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    // One message, after its head of five bytes.
    let message = body.slice(5..);
    let read = |digests: Vec<re::Digest>| {
        let one = |wire: re::Digest| {
            let data = blob(&digest(Some(&wire))?).ok_or_else(|| Status::not_found("no blob"))?;
            Ok(re::batch_read_blobs_response::Response {
                digest: Some(wire),
                data,
                ..Default::default()
            })
        };
        let responses = digests.into_iter().map(one).collect::<Result<_, Status>>()?;
        Ok::<_, Status>(re::BatchReadBlobsResponse { responses })
    };
    match path.as_str() {
        ACTIONS | "/build.bazel.remote.execution.v2.ContentAddressableStorage/BatchReadBlobs" => {
            let asked = re::BatchReadBlobsRequest::decode(message).unwrap();
            Ok(framed(read(asked.digests)?.encode_to_vec()))
        }
        LOOK_UP => {
            let asked = re::BatchReadBlobsRequest::decode(message).unwrap();
            let stored = stored(log, asked.digests.first())?;
            let mut answer = read(asked.digests)?.encode_to_vec();
            if let Some(result) = stored {
                prost::encoding::message::encode(RESULT_FIELD, &result, &mut answer);
            }
            Ok(framed(answer))
        }
        "/build.bazel.remote.execution.v2.ActionCache/GetActionResult" => {
            let asked = re::GetActionResultRequest::decode(message).unwrap();
            let stored = stored(log, asked.action_digest.as_ref())?;
            let result = stored.ok_or_else(|| Status::not_found("no result"))?;
            Ok(framed(result.encode_to_vec()))
        }
        other => Err(Status::unimplemented(other)),
    }
}

fn digest(wire: Option<&re::Digest>) -> Result<Digest, Status> {
    Ok(Digest::required(Function::Sha256, wire)?)
}

fn stored(log: &Log, action: Option<&re::Digest>) -> Result<Option<re::ActionResult>, Status> {
    Ok(number_of(&digest(action)?).and_then(|number| log.stored(number)))
}

fn framed(message: Vec<u8>) -> Response<Body> {
    let mut bytes = vec![0];
    bytes.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    bytes.extend(message);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let frames = [Frame::data(Bytes::from(bytes)), Frame::trailers(trailers)];
    let body = StreamBody::new(tokio_stream::iter(frames.map(Ok::<_, Status>)));
    let mut response = Response::new(Body::new(body));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, grpc);
    response
}
