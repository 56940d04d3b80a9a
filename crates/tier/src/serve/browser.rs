//! Consoles: what answers browsers, with the headers that keep a page from doing what it does not do. Refuses
//! names that a console on loopback does not have: a page elsewhere may have made its own name point here (DNS
//! rebinding).

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use hyper::body::Body;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::service::Service;
use hyper::{Request, Response, StatusCode, Uri};

use super::{ConnectionHooks, Incoming, Serve};

/// Scripts, styles and answers of the console itself alone, and nothing in it that is not text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src \
                      'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'";

/// A console for those who mean it.
#[derive(Debug, Clone)]
pub struct ForBrowsers<S> {
    service: S,
    listen: SocketAddr,
}

impl<S> ForBrowsers<S> {
    /// What answers requests that come to this address. Of the headers it sets, it keeps its own.
    pub fn new(service: S, listen: SocketAddr) -> Self {
        Self { service, listen }
    }
}

impl<S: Clone + Send + Sync + Unpin + 'static> ConnectionHooks for ForBrowsers<S> {}

impl<S, B> Serve for ForBrowsers<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + Sync + Unpin + 'static,
    S::Future: Send,
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    B: From<String> + Send + Unpin + 'static,
{
    type Body = B;

    async fn serve(&self, request: Request<Incoming>) -> Response<B> {
        if let Some(text) = misdirected(self.listen, &request) {
            return refusal(StatusCode::MISDIRECTED_REQUEST, &text);
        }
        let mut response = match self.service.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        for (name, value) in [
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (CACHE_CONTROL, "no-store"),
        ] {
            let headers = response.headers_mut();
            headers.entry(name).or_insert(HeaderValue::from_static(value));
        }
        response
    }

    fn refuse_at_stop(&self, _: bool) -> Response<B> {
        refusal(StatusCode::SERVICE_UNAVAILABLE, "the service is being stopped")
    }

    async fn refuse_host(&self, _: Request<Incoming>) -> Response<B> {
        refusal(StatusCode::BAD_REQUEST, "`Host` names one host, with a port or without")
    }
}

fn refusal<B: From<String>>(status: StatusCode, text: &str) -> Response<B> {
    let mut response = Response::new(serde_json::json!({ "error": text }).to_string().into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// What a page on loopback answers to a request for a name that it does not have.
pub(crate) fn misdirected<B>(listen: SocketAddr, request: &Request<B>) -> Option<String> {
    let host = request.headers().get(HOST).and_then(|value| value.to_str().ok());
    let host = host.or_else(|| request.uri().authority().map(|authority| authority.as_str()));
    let elsewhere = listen.ip().is_loopback() && !host.is_some_and(names_loopback);
    elsewhere.then(|| format!("this page answers to http://{listen}/ and http://localhost"))
}

/// Whether a Host header means this machine, on whatever port: it may come through a tunnel.
fn names_loopback(host: &str) -> bool {
    let Ok(authority) = host.parse::<Uri>() else { return false };
    let name = authority.host().unwrap_or_default();
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_known() {
        for host in ["127.0.0.1:7071", "localhost", "LocalHost:8000", "[::1]:7071", "127.9.9.9"] {
            assert!(names_loopback(host), "{host}");
        }
        for host in
            ["", "evil.example:7071", "localhost.evil.example", "10.0.0.1", "127.0.0.1.nip.io", "@"]
        {
            assert!(!names_loopback(host), "{host}");
        }
    }
}
