//! The HTTP cache, as Bazel and ccache speak it: `GET`, `HEAD` and `PUT` of `/cas/HASH` and
//! `/ac/HASH`, with the instance before it.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tonic::{Code, Status};

use super::grpc::{self, Answer, Held};
use super::metrics::Operation;
use super::read::{self, PlainRest};
use super::results;
use super::service::{Call, Service, blob, not_found};
use super::store::{Content, Kind};
use crate::digest::{Digest, Function, parse_hash};

/// Bytes of a result.
const RESULT_BYTES: usize = 512 << 10;

/// What a path names.
struct Named<'a> {
    instance: &'a str,
    kind: Kind,
    hash: [u8; 32],
}

fn parse(path: &str) -> Result<Named<'_>, Status> {
    let wrong = || Status::not_found("there are /cas/HASH and /ac/HASH");
    let (rest, hash) = path.rsplit_once('/').ok_or_else(wrong)?;
    let (before, kind) = rest.rsplit_once('/').ok_or_else(wrong)?;
    let kind = match kind {
        "cas" => Kind::Blob,
        "ac" => Kind::Result,
        _ => return Err(wrong()),
    };
    let hash = parse_hash(hash.as_bytes())?;
    Ok(Named { instance: before.strip_prefix('/').unwrap_or(before), kind, hash })
}

/// Answers a request that is none of gRPC.
pub(crate) async fn serve(service: &Service, request: Request<Incoming>) -> Response<Answer> {
    let path = request.uri().path().to_owned();
    if path == "/status" || path == "/" {
        return Response::new(Answer::plain(Bytes::from_static(b"kendall cache\n")));
    }
    let operation = match *request.method() {
        Method::GET | Method::HEAD => Operation::HttpGet,
        Method::PUT => Operation::HttpPut,
        _ => Operation::Other,
    };
    let call = service.call(operation, request.extensions());
    let answered = match *request.method() {
        Method::GET | Method::HEAD => get(call, &path, *request.method() == Method::HEAD),
        Method::PUT => {
            let mut call = call;
            match put(&call, &path, request).await {
                Ok(()) => {
                    call.end(Code::Ok);
                    Ok(Response::new(Answer::plain(Bytes::new())))
                }
                Err(status) => Err((call, status)),
            }
        }
        _ => Err((call, Status::unimplemented("there are GET, HEAD and PUT"))),
    };
    match answered {
        Ok(response) => response,
        Err((mut call, status)) => {
            call.end(status.code());
            refused(&status)
        }
    }
}

fn refused(status: &Status) -> Response<Answer> {
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
    let text = format!("{}\n", status.message());
    let mut response = Response::new(Answer::plain(Bytes::from(text)));
    *response.status_mut() = code;
    response
}

type Got = Result<Response<Answer>, (Call, Status)>;

fn get(mut call: Call, path: &str, head: bool) -> Got {
    let found = match look(&call, path) {
        Ok(found) => found,
        Err(status) => return Err((call, status)),
    };
    let size = found.size;
    let mut response = if head {
        call.end(Code::Ok);
        Response::new(Answer::plain(Bytes::new()))
    } else {
        match found.content {
            Body::Whole(bytes) => {
                call.bytes(0, bytes.len() as u64);
                call.end(Code::Ok);
                Response::new(Answer::plain(bytes))
            }
            Body::Pieces(content) => {
                Response::new(Answer::made(Box::new(PlainRest { content: *content, call })))
            }
        }
    };
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(size));
    Ok(response)
}

struct Found {
    size: u64,
    content: Body,
}

enum Body {
    Whole(Bytes),
    Pieces(Box<read::Contents>),
}

fn look(call: &Call, path: &str) -> Result<Found, Status> {
    let named = parse(path)?;
    let partition = call.partition(named.instance)?;
    let mut digest = Digest { function: Function::Sha256, hash: named.hash, size: 0 };
    if named.kind == Kind::Result {
        let result = results::complete(call, &partition, &digest).or_else(|status| {
            // Others than Bazel keep here what is not a result of an action.
            if status.code() != Code::InvalidArgument {
                return Err(status);
            }
            let key = partition.result(&digest);
            match partition.store.get(&key, partition.store.moment()) {
                Some(entry) => Ok(partition.store.read(&key, entry)?),
                None => Ok(None),
            }
        })?;
        call.found(Kind::Result, u64::from(result.is_some()), u64::from(result.is_none()));
        let result = result.ok_or_else(|| Status::not_found("there is no such result"))?;
        return Ok(Found { size: result.len() as u64, content: Body::Whole(result) });
    }
    if digest.hash == Function::Sha256.hash(b"") {
        return Ok(Found { size: 0, content: Body::Whole(Bytes::new()) });
    }
    let entry = partition.store.get(&blob(&digest), partition.store.moment());
    call.found(Kind::Blob, u64::from(entry.is_some()), u64::from(entry.is_none()));
    digest.size = entry.ok_or_else(|| not_found(&digest))?.size;
    let content = read::open(&partition, &digest, 0, 0, false)?;
    let content = content.ok_or_else(|| not_found(&digest))?;
    Ok(Found { size: digest.size, content: Body::Pieces(Box::new(content)) })
}

async fn put(call: &Call, path: &str, request: Request<Incoming>) -> Result<(), Status> {
    call.may_write()?;
    let named = parse(path)?;
    let partition = call.partition(named.instance)?;
    let mut held = Held::new(&call.shared().budget);
    let digest = Digest { function: Function::Sha256, hash: named.hash, size: 0 };
    if named.kind == Kind::Result {
        if call.shared().read_only_results {
            return Err(Status::permission_denied("results of actions cannot be changed here"));
        }
        let bytes = grpc::collect(request, RESULT_BYTES, &mut held).await?;
        call.bytes(bytes.len() as u64, 0);
        if !partition.store.is_small(bytes.len() as u64) {
            return Err(Status::resource_exhausted("a result of so many bytes is not kept"));
        }
        let content = Content::plain(partition.result(&digest), bytes);
        return Ok(partition.store.put(call.lane(), &content)?);
    }
    let length = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let size = length.and_then(|text| text.parse().ok()).ok_or_else(|| {
        Status::invalid_argument("the length must be said first, by Content-Length")
    })?;
    let digest = Digest { size, ..digest };
    let mut upload = call.shared().uploads.begin(partition.store, digest, false)?;
    let mut body = request.into_body();
    loop {
        let frame = tokio::time::timeout(std::time::Duration::from_secs(60), body.frame()).await;
        let frame = frame.map_err(|_| Status::deadline_exceeded("no byte came for a minute"))?;
        match frame {
            None => break,
            Some(Err(error)) => return Err(Status::cancelled(error.to_string())),
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else { continue };
                call.bytes(data.len() as u64, 0);
                upload.write(partition.store, vec![data])?;
            }
        }
    }
    call.shared().metrics.sized(Kind::Blob, true, size);
    upload.finish(partition.store, call.lane())
}
