//! An answer that went wrong, as JSON.

use std::io::ErrorKind;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// What the console's calls answer.
pub(crate) type Answered = Result<Json<Value>, Failure>;

#[derive(Debug)]
pub(crate) struct Failure(pub(crate) StatusCode, pub(crate) String);

impl Failure {
    pub(crate) fn refused(text: impl std::fmt::Display) -> Self {
        Self(StatusCode::BAD_REQUEST, text.to_string())
    }

    pub(crate) fn not_found(text: impl std::fmt::Display) -> Self {
        Self(StatusCode::NOT_FOUND, text.to_string())
    }

    pub(crate) fn conflict(text: impl std::fmt::Display) -> Self {
        Self(StatusCode::CONFLICT, text.to_string())
    }

    pub(crate) fn busy(text: impl std::fmt::Display) -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, text.to_string())
    }

    pub(crate) fn unauthorized() -> Self {
        let text = "the access token is missing or wrong; open the address that the console printed when it \
                    started, or put a token of its file behind the # of the address";
        Self(StatusCode::UNAUTHORIZED, text.to_owned())
    }

    pub(crate) fn forbidden() -> Self {
        let text = "this token may only read; one of a line `run TOKEN` may start, stop and save";
        Self(StatusCode::FORBIDDEN, text.to_owned())
    }
}

impl From<JsonRejection> for Failure {
    fn from(error: JsonRejection) -> Self {
        Self(error.status(), error.body_text())
    }
}

impl From<QueryRejection> for Failure {
    fn from(error: QueryRejection) -> Self {
        Self(error.status(), error.body_text())
    }
}

impl From<PathRejection> for Failure {
    fn from(error: PathRejection) -> Self {
        Self(error.status(), error.body_text())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let status = match error.kind() {
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::FileTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::InvalidInput | ErrorKind::InvalidFilename => {
                return Self::refused("no file can have this name: it is too long, or holds a NUL");
            }
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self(status, error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

/// Work that waits for a disk or a processor, off the threads that answer.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Failure(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}
