//! The HTTP cache, as Bazel speaks it: `GET`, `HEAD` and `PUT` of `/cas/HASH` and
//! `/ac/HASH`, with the instance before it.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::header::{CONTENT_LENGTH, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response};
use tonic::{Code, Status};

use super::context::{Call, Context, not_found};
use super::grpc::{self, Answer, Held, SILENCE};
use super::metrics::Operation;
use super::outputs::{self, Unfit};
use super::read::{self, PlainRest};
use super::results;
use super::store::{Content, Key, Kind};
use crate::digest::{Digest, Function, parse_hash};
use crate::listen::{Incoming, PART_BYTES, Room, plain};

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

/// Answers a request that is not gRPC.
pub(crate) async fn serve(context: &Context, request: Request<Incoming>) -> Response<Answer> {
    let (head, mut body) = request.into_parts();
    let path = head.uri.path();
    let reads = matches!(head.method, Method::GET | Method::HEAD);
    if reads && matches!(path, "/" | "/status") {
        return Response::new(Answer::plain(Bytes::from_static(b"kendall cache\n")));
    }
    let operation = match head.method {
        Method::GET | Method::HEAD => Operation::HttpGet,
        Method::PUT => Operation::HttpPut,
        _ => Operation::Other,
    };
    let mut call = context.begin(operation, &head.extensions);
    if reads {
        Room::of(&head.extensions).take(PART_BYTES).await;
    }
    let refused = match head.method {
        Method::GET | Method::HEAD => match get(call, path, head.method == Method::HEAD) {
            Ok(response) => return response,
            Err((returned, status)) => {
                call = returned;
                status
            }
        },
        Method::PUT => match put(&call, path, &head.headers, &mut body).await {
            Ok(()) => {
                call.end(Code::Ok);
                return Response::new(Answer::plain(Bytes::new()));
            }
            Err(status) => status,
        },
        _ => Status::unimplemented("there are GET, HEAD and PUT"),
    };
    call.end(refused.code());
    plain::drain(&head.headers, &mut body).await;
    plain::refusal(&refused, Answer::plain)
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
        let result = match results::stored(&partition, &digest)? {
            None => None,
            Some(result) => match outputs::check(digest.function, &result) {
                Ok(()) | Err(Unfit::Failed) => {
                    results::complete(call, &partition, digest.function, result)?
                }
                Err(Unfit::Malformed) if call.shared().any_results => Some(result),
                Err(_) => None,
            },
        };
        call.found(Kind::Result, u64::from(result.is_some()), u64::from(result.is_none()));
        let result = result.ok_or_else(|| Status::not_found("there is no such result"))?;
        return Ok(Found { size: result.len() as u64, content: Body::Whole(result) });
    }
    if digest.hash == Function::Sha256.hash(b"") {
        return Ok(Found { size: 0, content: Body::Whole(Bytes::new()) });
    }
    let entry = partition.store.get(&Key::blob(&digest), partition.store.moment());
    call.found(Kind::Blob, u64::from(entry.is_some()), u64::from(entry.is_none()));
    digest.size = entry.ok_or_else(|| not_found(&digest))?.size;
    let content = read::open(&partition, &digest, 0, 0, false)?;
    let content = content.ok_or_else(|| not_found(&digest))?;
    Ok(Found { size: digest.size, content: Body::Pieces(Box::new(content)) })
}

async fn put(
    call: &Call,
    path: &str,
    headers: &HeaderMap,
    body: &mut Incoming,
) -> Result<(), Status> {
    call.may_write()?;
    let named = parse(path)?;
    let partition = call.partition(named.instance)?;
    let mut held = Held::new(&call.shared().budget, &call.client);
    let digest = Digest { function: Function::Sha256, hash: named.hash, size: 0 };
    if named.kind == Kind::Result {
        if call.shared().read_only_results {
            return Err(Status::permission_denied("results of actions cannot be changed here"));
        }
        let bytes = grpc::collect(body, RESULT_BYTES, &mut held).await?;
        call.bytes(bytes.len() as u64, 0);
        if !partition.store.is_small(bytes.len() as u64) {
            return Err(Status::resource_exhausted("a result of so many bytes is not kept"));
        }
        match outputs::check(digest.function, &bytes) {
            Ok(()) | Err(Unfit::Failed) => {}
            Err(Unfit::Malformed) if call.shared().any_results => {}
            Err(unfit) => return Err(unfit.into()),
        }
        let content = Content::plain(partition.result(&digest), bytes);
        return Ok(partition.store.put(call.lane(), &content)?);
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let size = length
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Status::invalid_argument("an upload needs a Content-Length"))?;
    let digest = Digest { size, ..digest };
    let shared = call.shared();
    let place = shared.uploads.open.begin(&call.client, shared.clock.now_ns())?;
    let mut upload = shared.uploads.begin(&call.client, partition.store, digest, false)?;
    loop {
        let frame = tokio::select! {
            frame = tokio::time::timeout(SILENCE, body.frame()) => frame,
            status = place.taken() => return Err(status),
        };
        let frame = frame.map_err(|_| Status::deadline_exceeded(grpc::too_slow()))?;
        match frame {
            None => break,
            Some(Err(error)) => return Err(Status::cancelled(error.to_string())),
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else { continue };
                call.bytes(data.len() as u64, 0);
                upload = upload.write(partition.store, vec![data]).await?;
                place.came(upload.committed(), shared.clock.now_ns())?;
            }
        }
    }
    call.shared().metrics.sized(Kind::Blob, true, size);
    upload.finish(partition.store, call.lane())
}
