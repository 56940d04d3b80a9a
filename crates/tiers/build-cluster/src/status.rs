//! Error statuses in the form that the Remote Execution API defines.

use prost::Message as _;
use tonic::{Code, Status};

use crate::digest::{Digest, DigestError};
use crate::wire::{protobuf, rpc};

/// Missing blobs that one status names: its text travels in a header, which clients bound to 8 KiB.
const NAMED: usize = 32;

/// What must hold before the request can be served (`google.rpc.PreconditionFailure`).
#[derive(Clone, PartialEq, prost::Message)]
pub struct PreconditionFailure {
    /// What does not hold.
    #[prost(message, repeated, tag = "1")]
    pub violations: Vec<Violation>,
}

/// One thing that does not hold.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Violation {
    /// `MISSING` or `INVALID`.
    #[prost(string, tag = "1")]
    pub kind: String,
    /// What it is about, such as `blobs/HASH/SIZE`.
    #[prost(string, tag = "2")]
    pub subject: String,
    #[prost(string, tag = "3")]
    pub description: String,
}

const FAILURE_URL: &str = "type.googleapis.com/google.rpc.PreconditionFailure";

/// Blobs that a request needs are not there: the client uploads them and asks again.
pub fn missing(digests: &[Digest]) -> Status {
    let violations: Vec<Violation> = digests
        .iter()
        .take(NAMED)
        .map(|digest| Violation {
            kind: "MISSING".to_owned(),
            subject: digest.resource(),
            description: String::new(),
        })
        .collect();
    let text = match digests {
        [one] => format!("{} is missing", one.resource()),
        all => format!("{} blobs are missing", all.len()),
    };
    precondition(&text, violations)
}

/// Something that a request needs does not hold.
pub fn precondition(text: &str, violations: Vec<Violation>) -> Status {
    let failure = PreconditionFailure { violations }.encode_to_vec();
    let details = vec![protobuf::Any { type_url: FAILURE_URL.to_owned(), value: failure }];
    let code = Code::FailedPrecondition;
    let status = rpc::Status { code: code as i32, message: text.to_owned(), details };
    Status::with_details(code, text, status.encode_to_vec().into())
}

pub fn violations(status: &Status) -> Vec<Violation> {
    let Ok(details) = rpc::Status::decode(status.details()) else { return Vec::new() };
    details
        .details
        .iter()
        .filter(|any| any.type_url == FAILURE_URL)
        .filter_map(|any| PreconditionFailure::decode(any.value.as_slice()).ok())
        .flat_map(|failure| failure.violations)
        .collect()
}

/// A status as a message's field, for what is answered item by item.
pub fn to_wire(status: &Status) -> rpc::Status {
    match rpc::Status::decode(status.details()) {
        Ok(whole) if !status.details().is_empty() => whole,
        _ => rpc::Status {
            code: status.code() as i32,
            message: status.message().to_owned(),
            details: Vec::new(),
        },
    }
}

impl From<DigestError> for Status {
    fn from(error: DigestError) -> Self {
        Self::invalid_argument(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Function;

    #[test]
    fn a_missing_blob_is_named_so_that_the_client_uploads_it() {
        let digest = Function::Sha256.digest(b"input");
        let status = missing(&[digest]);
        assert_eq!(status.code(), Code::FailedPrecondition);
        let found = violations(&status);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].kind.as_str(), &found[0].subject), ("MISSING", &digest.resource()));
        let field = to_wire(&status);
        assert_eq!((field.code, field.details.len()), (Code::FailedPrecondition as i32, 1));
    }

    #[test]
    fn thousands_of_missing_blobs_still_fit_into_the_headers() {
        let digests: Vec<Digest> =
            (0..5000_u32).map(|i| Function::Sha256.digest(&i.to_le_bytes())).collect();
        let status = missing(&digests);
        assert!(status.message().contains("5000"));
        // Base64 makes four bytes of three.
        assert!(status.details().len() * 4 / 3 < 8 << 10, "{}", status.details().len());
    }
}
