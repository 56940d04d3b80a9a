//! Who comes in: few connections at a time, and browsers that mean this console.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Failure;
use crate::connection::Guarded;

/// Connections at a time; a browser keeps about six. Further ones wait in the kernel's queue.
const CONNECTIONS: usize = 100;

/// A listener that lets few in at a time, so that whoever opens connections without end takes no
/// descriptors from the queue's clients.
#[derive(Debug)]
pub(super) struct Listener {
    listener: TcpListener,
    permits: Arc<Semaphore>,
}

/// A connection; dropped, it makes room for another.
pub(super) type Guest = Guarded<Option<OwnedSemaphorePermit>>;

impl Listener {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, permits: Arc::new(Semaphore::new(CONNECTIONS)) }
    }
}

impl axum::serve::Listener for Listener {
    type Io = Guest;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Guest, SocketAddr) {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        let (stream, address) = axum::serve::Listener::accept(&mut self.listener).await;
        (Guarded::new(stream, permit), address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Refuses requests for names that a console on loopback does not have: a page elsewhere may have
/// made its own name point here (DNS rebinding).
pub(super) async fn known_host(
    State(listen): State<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let host = request.headers().get(header::HOST).and_then(|value| value.to_str().ok());
    if listen.ip().is_loopback() && !host.is_some_and(names_loopback) {
        let text = format!("this console answers to http://{listen}/ and http://localhost");
        return Failure(StatusCode::MISDIRECTED_REQUEST, text).into_response();
    }
    next.run(request).await
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
