//! Refusals of plain HTTP: a status code and a line of text. gRPC answers 200 and puts its own status into a header,
//! which a client of plain HTTP takes for success.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{ALLOW, CONTENT_TYPE, EXPECT, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
pub(crate) use kendall_tier::serve::is_grpc;
use tonic::{Code, Status};

use super::Incoming;

/// Bytes of a refused body that are read, and for how long: a connection that is closed with bytes unread is reset,
/// and its client may lose the answer.
const DRAINED: usize = 16 << 20;
const DRAINING: Duration = Duration::from_secs(5);

/// The refusal of a request that is not gRPC.
pub(crate) fn refusal<B>(status: &Status, body: impl FnOnce(Bytes) -> B) -> Response<B> {
    let code = match status.code() {
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::ResourceExhausted => StatusCode::INSUFFICIENT_STORAGE,
        Code::Unimplemented => StatusCode::METHOD_NOT_ALLOWED,
        Code::DeadlineExceeded => StatusCode::REQUEST_TIMEOUT,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut response = Response::new(body(Bytes::from(format!("{}\n", status.message()))));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    match code {
        // Required with these codes.
        StatusCode::UNAUTHORIZED => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD, PUT"));
        }
        _ => {}
    }
    response
}

/// As [`refusal`], for bodies that a tier's own answers cannot be.
pub(super) fn refuse(status: &Status) -> Response<Full<Bytes>> {
    refusal(status, Full::new)
}

/// Reads a body that is refused, within bounds. A client that waits for `100 Continue` has not sent it yet.
pub(crate) async fn drain(headers: &HeaderMap, body: &mut Incoming) {
    if headers.contains_key(EXPECT) {
        return;
    }
    let drained = async {
        let mut read = 0;
        while let Some(Ok(frame)) = body.frame().await {
            read += frame.data_ref().map_or(0, Bytes::len);
            if read > DRAINED {
                return;
            }
        }
    };
    // Too slow a client may lose the answer.
    tokio::time::timeout(DRAINING, drained).await.unwrap_or_default();
}
