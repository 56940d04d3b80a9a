//! The little of URLs that a load needs: scheme, host, port, path with query.

use hyper::Uri;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    pub tls: bool,
    /// Host name or address, without brackets.
    pub host: String,
    /// Port, the scheme's own unless given.
    pub port: u16,
    /// Host and port as the `Host` header has them.
    pub authority: String,
    /// Path and query, from the first `/`.
    pub path: String,
}

/// A text that is not a URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a URL; write it like `http://127.0.0.1:8080/path?key=value`")]
pub struct UrlError {
    pub text: String,
}

impl Url {
    /// Reads a URL; without a scheme it is one of http. A fragment is left out, as it is never sent.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        Self::split(text).ok_or_else(|| UrlError { text: text.to_owned() })
    }

    fn split(text: &str) -> Option<Self> {
        let text = text.split('#').next()?;
        let is_scheme = |scheme: &str| {
            scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
        };
        let has_scheme = text.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme));
        let text = if has_scheme { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = text.parse().ok()?;
        let (tls, own_port) = match uri.scheme_str()? {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => return None,
        };
        let authority = uri.authority()?.as_str();
        let host = uri.host().filter(|host| !host.is_empty() && !authority.contains('@'))?;
        let port = match authority.strip_prefix(host)? {
            "" | ":" => own_port,
            given => given.strip_prefix(':')?.parse().ok().filter(|port| *port > 0)?,
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Some(Self {
            tls,
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port,
            authority: authority.to_owned(),
            path,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let parts = |text: &str| {
            let url = Url::parse(text).unwrap();
            (url.tls, url.host, url.port, url.path)
        };
        let owned =
            |tls, host: &str, port, path: &str| (tls, host.to_owned(), port, path.to_owned());
        assert_eq!(parts("http://localhost"), owned(false, "localhost", 80, "/"));
        assert_eq!(parts("https://a.b:8443?x={n}#f"), owned(true, "a.b", 8443, "/?x={n}"));
        assert_eq!(parts("HTTP://[::1]:81/p"), owned(false, "::1", 81, "/p"));
        assert_eq!(parts("127.0.0.1:9000"), owned(false, "127.0.0.1", 9000, "/"));
        assert_eq!(
            parts("localhost/a?to=http://b"),
            owned(false, "localhost", 80, "/a?to=http://b")
        );
        for text in [
            "",
            "/path",
            "ftp://a/",
            "http://",
            "http://a:0/",
            "http://a:99999/",
            "http://u@a/",
            "http://a/b c",
            "http://[::1",
            "http://[::1]x/",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }
}
