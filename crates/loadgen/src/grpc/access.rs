//! How middlewares are reached: with a token, and over TLS, or as they are.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use hyper::header::HeaderValue;

use crate::tls::{self, Reached, Secure, Tls, TlsError};

/// What a middleware wants to see, and what of it is checked. The default is neither token nor TLS.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// `Bearer …`; never printed.
    token: Option<HeaderValue>,
    tls: Option<Secure>,
}

/// Not a way to reach a middleware.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("a token consists of letters, digits and signs")]
    Token,
    #[error(
        "{} has neither one token alone nor a line `TOKEN admin`",
        path.display()
    )]
    NoToken { path: PathBuf, source: Option<std::io::Error> },
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl Access {
    /// With this token, and over TLS with a middleware whose certificate has this name.
    pub fn new(token: Option<&str>, tls: Option<(&str, &Tls)>) -> Result<Self, AccessError> {
        let token = match token {
            None => None,
            Some(token) => {
                let value = HeaderValue::from_str(&format!("Bearer {token}"));
                let mut value = value.map_err(|_| AccessError::Token)?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let tls = tls.map(|(name, tls)| tls.of(name, &[b"h2"])).transpose()?;
        Ok(Self { token, tls })
    }

    /// The token that a file has: it stands there alone, or, in a middleware's file of tokens, is the first
    /// administrator's.
    pub fn token_of(path: &Path) -> Result<String, AccessError> {
        let refuse = |source| AccessError::NoToken { path: path.to_owned(), source };
        let text = kendall_tier::read_text(path, kendall_tier::LARGEST_FILE)
            .map_err(|error| refuse(Some(error)))?;
        let lines = text.lines().map(str::split_whitespace).map(Iterator::collect);
        let lines: Vec<Vec<&str>> = lines.collect();
        let alone = match lines.iter().flatten().collect::<Vec<_>>().as_slice() {
            [token] => Some((**token).to_owned()),
            _ => None,
        };
        let admin = || {
            let found = lines.iter().find(|words| matches!(words.as_slice(), [_, "admin"]));
            found.map(|words| words[0].to_owned())
        };
        alone.or_else(admin).ok_or_else(|| refuse(None))
    }

    pub(crate) fn token(&self) -> Option<&HeaderValue> {
        self.token.as_ref()
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.is_encrypted() { "https" } else { "http" }
    }

    pub(crate) async fn connect(&self, target: SocketAddr) -> Result<Reached, std::io::Error> {
        tls::reach(target, self.tls.as_ref()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_shown_and_nonsense_is_refused() {
        let access = Access::new(Some("secret"), None).unwrap();
        assert_eq!(access.token().unwrap().as_bytes(), b"Bearer secret");
        assert!(!format!("{access:?}").contains("secret"));
        assert!(matches!(Access::new(Some("a\nb"), None), Err(AccessError::Token)));
        let from = |name: &str, file: &str| {
            let tls = Tls { authority: Some(file.into()), ..Tls::default() };
            Access::new(None, Some((name, &tls)))
        };
        let usual = Access::new(None, Some(("..", &Tls::default())));
        assert!(matches!(usual, Err(AccessError::Tls(TlsError::Name(_)))));
        let none = from("host", "/nowhere.pem");
        assert!(matches!(none, Err(AccessError::Tls(TlsError::File { .. }))));
        let other = from("host", "Cargo.toml");
        assert!(matches!(other, Err(AccessError::Tls(TlsError::Pem { .. }))));
    }

    #[test]
    fn a_token_stands_alone_or_is_the_first_administrators() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let token = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            Access::token_of(file.path()).ok()
        };
        assert_eq!(token("alone\n").as_deref(), Some("alone"));
        assert_eq!(token("# whose\na client x\nb admin\nc admin\n").as_deref(), Some("b"));
        assert_eq!(token("a client x\n"), None);
        assert_eq!(token(""), None);
        assert!(matches!(
            Access::token_of(Path::new("/nowhere")),
            Err(AccessError::NoToken { source: Some(_), .. })
        ));
    }
}
