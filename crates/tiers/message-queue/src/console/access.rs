//! Refuses names that a console on loopback does not have: a page elsewhere may have made its own name point here (DNS
//! rebinding).

use std::net::{IpAddr, SocketAddr};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use kendall_tier::serve::Serve;
use tonic::codegen::Service as _;

use super::failure::Failure;

/// The console for those who mean it.
#[derive(Debug, Clone)]
pub(super) struct Access {
    pub(super) routes: Router,
    pub(super) listen: SocketAddr,
}

impl Serve for Access {
    type Body = Body;

    async fn serve(&self, request: Request<Incoming>) -> Response {
        let host = request.headers().get(header::HOST).and_then(|value| value.to_str().ok());
        let host = host.or_else(|| request.uri().authority().map(|authority| authority.as_str()));
        if self.listen.ip().is_loopback() && !host.is_some_and(names_loopback) {
            let listen = self.listen;
            let text = format!("this console answers to http://{listen}/ and http://localhost");
            return Failure(StatusCode::MISDIRECTED_REQUEST, text).into_response();
        }
        let mut routes = self.routes.clone();
        match routes.call(request.map(Body::new)).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    async fn refuse_host(&self, _: Request<Incoming>) -> Response {
        let text = "`Host` names one host, with a port or without";
        Failure(StatusCode::BAD_REQUEST, text.to_owned()).into_response()
    }
}

/// Whether a Host header means this machine, on whatever port: it may come through a tunnel.
fn names_loopback(host: &str) -> bool {
    let Ok(authority) = host.parse::<Uri>() else { return false };
    let name = authority.host().unwrap_or_default();
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_known() {
        for host in ["127.0.0.1:7071", "localhost", "localhost:8000", "[::1]:7071", "127.9.9.9"] {
            assert!(names_loopback(host), "{host}");
        }
        for host in
            ["", "evil.example:7071", "localhost.evil.example", "10.0.0.1", "127.0.0.1.nip.io", "@"]
        {
            assert!(!names_loopback(host), "{host}");
        }
    }
}
