//! Refusals with details that programs can go by: `google.rpc.ErrorInfo` of the domain
//! `kendall.queue`, whose reason is one word.

use prost::Message as _;
use tonic::{Code, Status};

use crate::operation::Limits;

const DOMAIN: &str = "kendall.queue";
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
/// How the gRPC library begins its status for bytes that are not a message, which it calls the server's fault.
const NO_MESSAGE: &str = "failed to decode Protobuf message";

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.ErrorInfo`, without metadata.
#[derive(Clone, PartialEq, prost::Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
}

pub(crate) fn refused(code: Code, reason: &str, text: impl Into<String>) -> Status {
    let text = text.into();
    let info = ErrorInfo { reason: reason.to_owned(), domain: DOMAIN.to_owned() };
    let any = Any { type_url: ERROR_INFO.to_owned(), value: info.encode_to_vec() };
    let details = RpcStatus { code: code as i32, message: text.clone(), details: vec![any] };
    Status::with_details(code, text, details.encode_to_vec().into())
}

/// The status of a call that was accepted and could not be answered.
pub(crate) fn stopped() -> Status {
    Status::unavailable("the middleware stopped before it answered")
}

/// The refusal of a receive whose answer would come too late.
pub(crate) fn too_late() -> Status {
    Status::deadline_exceeded("the deadline is too near for an answer; no message was taken")
}

/// The status with a reason, where it had none; bytes that are not a message are the client's fault.
pub(crate) fn detailed(status: Status) -> Status {
    if !status.details().is_empty() || status.code() == Code::Ok {
        return status;
    }
    if status.code() == Code::Internal && status.message().starts_with(NO_MESSAGE) {
        return refused(Code::InvalidArgument, "MALFORMED_MESSAGE", status.message());
    }
    refused(status.code(), common_reason(status.code()), status.message())
}

/// The reason that goes with a status.
pub(crate) fn reason(status: &Status) -> String {
    let details = RpcStatus::decode(status.details()).unwrap_or_default();
    let info = details.details.first().and_then(|any| ErrorInfo::decode(&*any.value).ok());
    info.map_or_else(|| common_reason(status.code()).to_owned(), |info| info.reason)
}

/// Where nothing more is known.
fn common_reason(code: Code) -> &'static str {
    match code {
        Code::InvalidArgument | Code::OutOfRange => "INVALID_VALUE",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::FailedPrecondition => "PRECONDITION",
        Code::ResourceExhausted => "LIMIT_REACHED",
        Code::DeadlineExceeded | Code::Cancelled => "DEADLINE",
        Code::Unavailable => "UNAVAILABLE",
        Code::Aborted => "TRANSACTION_ABORTED",
        Code::Unauthenticated => "NO_TOKEN",
        Code::PermissionDenied => "NOT_ALLOWED",
        Code::Unimplemented => "UNKNOWN_METHOD",
        _ => "INTERNAL",
    }
}

/// Why an operation was refused by the database: the codes of `database/functions.sql`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) i32);

/// The code of a take that found no message: an answer, not a refusal.
pub(crate) const NOTHING_THERE: i32 = 7;

impl Refusal {
    /// The refusal in the words of the protocol.
    pub(crate) fn status(self, limits: &Limits) -> Status {
        let (code, reason, text) = match self.0 {
            1 => (Code::NotFound, "UNKNOWN_CLIENT", "unknown client; say hello first"),
            2 => (
                Code::FailedPrecondition,
                "CLIENT_SAID_GOODBYE",
                "this client has said goodbye; say hello again with its name",
            ),
            3 => (Code::NotFound, "UNKNOWN_QUEUE", "unknown queue"),
            4 => (Code::NotFound, "UNKNOWN_RECEIVER", "unknown receiver"),
            5 => (Code::FailedPrecondition, "TO_ONESELF", "a client cannot send to itself"),
            6 => return too_long(limits.content_characters),
            8 => (
                Code::FailedPrecondition,
                "LEASE_NOT_HELD",
                "this lease is not held: it ran out, or was acknowledged or returned",
            ),
            9 => (
                Code::FailedPrecondition,
                "QUEUE_HOLDS_MESSAGES",
                "the queue holds messages; purge it, or delete it with its messages",
            ),
            10 => (Code::AlreadyExists, "QUEUE_EXISTS", "a queue of this name exists"),
            11 => {
                let text = format!("there are {} queues, as many as may be", limits.queues);
                return refused(Code::ResourceExhausted, "TOO_MANY_QUEUES", text);
            }
            12 => (Code::NotFound, "UNKNOWN_SENDER", "unknown sender"),
            13 => (Code::NotFound, "UNKNOWN_DEAD_LETTER_QUEUE", "unknown dead-letter queue"),
            14 => (Code::NotFound, "UNKNOWN_MESSAGE", "this message is not there (any more)"),
            15 => (
                Code::InvalidArgument,
                "REQUEST_ID_REUSED",
                "this request_id stands for another operation, another queue or other content; a new \
                 request needs a new one",
            ),
            16 => (
                Code::InvalidArgument,
                "OWN_DEAD_LETTERS",
                "a queue cannot be its own dead-letter queue",
            ),
            17 => {
                return full(
                    "nothing was taken: what was taken by a request_id is kept for ten minutes",
                );
            }
            other => {
                let text = format!("the database answered code {other}");
                return refused(Code::Internal, "INTERNAL", text);
            }
        };
        refused(code, reason, text)
    }
}

/// Where PostgreSQL's disk is full: what that means for the request, and the way out.
pub(crate) fn full(text: &str) -> Status {
    let text = format!(
        "PostgreSQL's disk is full; {text}; receive without request_id (`kendall queue receive --once`), acknowledge, purge, or \
         free disk space"
    );
    refused(Code::ResourceExhausted, "DISK_FULL", text)
}

/// How a content over the limit is refused.
pub(crate) fn too_long(limit: usize) -> Status {
    let text = format!(
        "the content is longer than {limit} characters (or, as data, than {} bytes), the limit of this \
         queue service",
        4 * limit
    );
    refused(Code::InvalidArgument, "CONTENT_TOO_LONG", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_a_reason_that_survives_the_wire() {
        let status = Refusal(15).status(&Limits::default());
        assert_eq!(status.code(), Code::InvalidArgument);
        let headers = status.into_http::<tonic::body::Body>().headers().clone();
        let read = Status::from_header_map(&headers).unwrap();
        assert_eq!(reason(&read), "REQUEST_ID_REUSED");
        assert_eq!(reason(&Status::not_found("x")), "NOT_FOUND");
        assert_eq!(reason(&detailed(Status::not_found("x"))), "NOT_FOUND");
    }

    #[test]
    fn bytes_that_are_no_message_are_the_clients_fault() {
        let status = Status::internal("failed to decode Protobuf message: invalid string value");
        assert_eq!(detailed(status).code(), Code::InvalidArgument);
        assert_eq!(detailed(Status::internal("ours")).code(), Code::Internal);
    }
}
