//! Who comes in: few connections at a time, and browsers that mean this console.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Failure;

/// Connections at a time; a browser keeps about six. Further ones wait in the kernel's queue.
const CONNECTIONS: usize = 100;
/// Longest time for the head of a request, and between two requests.
const HEAD: Duration = Duration::from_secs(10);
/// Longest time that a connection stays, whatever it is used for; a browser opens another.
const LONGEST: Duration = Duration::from_secs(600);
/// Wait before the next connection is accepted, where none could be.
const ACCEPT_AGAIN: Duration = Duration::from_millis(200);

/// Serves for ever, few at a time: whoever opens connections without end takes no descriptors from the
/// queue's clients, and silent connections are closed.
pub(super) async fn serve(listener: TcpListener, routes: Router) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let mut tasks = JoinSet::new();
    loop {
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        while tasks.try_join_next().is_some() {}
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the console cannot accept a connection");
                drop(tokio::time::timeout(ACCEPT_AGAIN, std::future::pending::<()>()).await);
                continue;
            }
        };
        let service = TowerToHyperService::new(routes.clone());
        tasks.spawn(async move {
            let _permit = permit;
            let serving = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .serve_connection(TokioIo::new(stream), service);
            if let Ok(Err(error)) = tokio::time::timeout(LONGEST, serving).await {
                tracing::debug!(%error, "a connection of the console ended");
            }
        });
    }
}

/// The listener, and its address.
pub(super) fn listener(listener: std::net::TcpListener) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::from_std(listener)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Refuses a `Host` that is none, and names that a console on loopback does not have: a page elsewhere may have
/// made its own name point here (DNS rebinding).
pub(super) async fn known_host(
    State(listen): State<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let hosts = request.headers().get_all(header::HOST);
    let http_11 = request.version() == Version::HTTP_11;
    if !kendall_tier::is_host(http_11, hosts.iter().map(HeaderValue::as_bytes)) {
        let text = "`Host` names one host, with a port or without";
        return Failure(StatusCode::BAD_REQUEST, text.to_owned()).into_response();
    }
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
