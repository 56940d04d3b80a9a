//! What the tiers of the build cluster add to the edge that all tiers share: tokens, and refusals in the words of the
//! protocol of the request.

mod access;
mod open_uploads;
pub(crate) mod plain;

pub use access::{Access, LINE, Tokens};
pub(crate) use kendall_tier::serve::{Client, Incoming, PART_BYTES, Room, Serving};
pub use kendall_tier::serve::{ListenError, Tls, TlsError};
pub(crate) use open_uploads::{OpenUploads, UploadBounds, UploadPlace};

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Body;
use hyper::{Request, Response};
use kendall_tier::serve::{self, Listener};
use tonic::Status;
use tonic::codegen::Service as _;
use tonic::service::Routes;

#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// Address, TLS, and bounds of connections.
    pub edge: serve::ListenOptions,
    /// Who may do what; anyone everything without it.
    pub tokens: Option<Arc<Tokens>>,
}

impl ListenOptions {
    /// The defaults, without TLS and open to all.
    pub fn new(address: SocketAddr) -> Self {
        Self { edge: serve::ListenOptions::new(address), tokens: None }
    }

    /// Binds the address; the tokens are for [`Guarded`].
    pub(crate) fn bind(self) -> Result<(Listener, Option<Arc<Tokens>>), ListenError> {
        Ok((Listener::bind(self.edge)?, self.tokens))
    }
}

/// What answers requests.
pub(crate) trait Serve: Clone + Send + Sync + Unpin + 'static {
    /// Bodies of its answers.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static;

    /// Whether it answers plain HTTP, too; requests that are not gRPC are refused otherwise.
    const PLAIN: bool = false;

    fn serve(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Answers a gRPC request that may not be served.
    fn refuse(&self, status: Status) -> Response<Self::Body>;
}

/// A tier that clients come to cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("cannot start threads")]
    Threads(#[source] std::io::Error),
    #[error("cannot describe the services")]
    Reflection(#[source] tonic_reflection::server::Error),
    /// What it keeps cannot be used.
    #[error(transparent)]
    Kept(Box<dyn std::error::Error + Send + Sync>),
}

/// gRPC services, as `tonic` routes them.
#[derive(Debug, Clone)]
pub(crate) struct Grpc(pub(crate) Routes);

impl Serve for Grpc {
    type Body = tonic::body::Body;

    async fn serve(&self, request: Request<Incoming>) -> Response<Self::Body> {
        let mut routes = self.0.clone();
        match routes.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    fn refuse(&self, status: Status) -> Response<Self::Body> {
        status.into_http()
    }
}

/// A service that answers those who may come in.
#[derive(Debug, Clone)]
pub(crate) struct Guarded<S> {
    pub(crate) service: S,
    pub(crate) tokens: Option<Arc<Tokens>>,
}

impl<S: Serve> serve::ConnectionHooks for Guarded<S> {}

impl<S: Serve> serve::Serve for Guarded<S> {
    type Body = Either<S::Body, Full<Bytes>>;

    async fn serve(&self, mut request: Request<Incoming>) -> Response<Self::Body> {
        let refused = access::admit(self.tokens.as_deref(), &mut request).err().or_else(|| {
            let answered = S::PLAIN || plain::is_grpc(request.headers());
            (!answered).then(|| Status::not_found("only gRPC requests are answered here"))
        });
        match refused {
            None => self.service.serve(request).await.map(Either::Left),
            Some(status) => self.refuse(request, status).await,
        }
    }

    fn refuse_at_stop(&self, is_grpc: bool) -> Response<Self::Body> {
        let status = Status::unavailable("the service is being stopped");
        if is_grpc {
            self.service.refuse(status).map(Either::Left)
        } else {
            plain::refuse(&status).map(Either::Right)
        }
    }

    async fn refuse_host(&self, request: Request<Incoming>) -> Response<Self::Body> {
        let text = "`Host` names one host, with a port or without";
        self.refuse(request, Status::invalid_argument(text)).await
    }
}

impl<S: Serve> Guarded<S> {
    /// Refuses a request in the words of its protocol.
    async fn refuse(
        &self,
        request: Request<Incoming>,
        status: Status,
    ) -> Response<Either<S::Body, Full<Bytes>>> {
        if plain::is_grpc(request.headers()) {
            return self.service.refuse(status).map(Either::Left);
        }
        let (head, mut body) = request.into_parts();
        plain::drain(&head.headers, &mut body).await;
        plain::refuse(&status).map(Either::Right)
    }
}
