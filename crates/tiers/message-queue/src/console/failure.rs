//! An answer of the console that went wrong.

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tonic::{Code, Status};

/// An answer that went wrong, as JSON.
pub(super) struct Failure(pub(super) StatusCode, pub(super) String);

impl Failure {
    pub(super) fn empty() -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR, "the database answered nothing".into())
    }
}

impl From<PathRejection> for Failure {
    fn from(error: PathRejection) -> Self {
        Self(error.status(), error.body_text())
    }
}

impl From<JsonRejection> for Failure {
    fn from(error: JsonRejection) -> Self {
        Self(error.status(), error.body_text())
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let code = match status.code() {
            Code::InvalidArgument => StatusCode::BAD_REQUEST,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::FailedPrecondition | Code::AlreadyExists => StatusCode::CONFLICT,
            Code::ResourceExhausted | Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(code, status.message().to_owned())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}
