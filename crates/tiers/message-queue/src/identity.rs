//! Who a client is: a token says it, and what its holder may do.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use md5::{Digest as _, Md5};
use tonic::codegen::http::{HeaderMap, header};
use tonic::{Code, Status};

use crate::refusal::refused;

/// Characters of a token: what 128 random bits need, in hexadecimal or base64.
const TOKEN_CHARACTERS: usize = 22;

/// A file of tokens that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It cannot be read.
    #[error("the tokens in {path} cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A line is none.
    #[error(
        "{path}, line {line}: {what}; a line is `TOKEN client NAME` or `TOKEN admin`, and a token has \
         {TOKEN_CHARACTERS} characters or more (openssl rand -hex 16)"
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// Its line.
        line: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// It names nobody, so that nobody could come in.
    #[error("{path} holds no token; a line is `TOKEN client NAME` or `TOKEN admin`")]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Tokens and who holds them. Tokens are kept as digests, so that the time of a lookup reveals nothing of them.
#[derive(Debug)]
pub(crate) struct Tokens(HashMap<[u8; 16], Arc<Identity>>);

/// Who asks.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The one client that its holder may be; `None`: anyone, who may also change queues.
    pub(crate) name: Option<String>,
    /// That client's id; 0 while it is not known.
    pub(crate) id: AtomicI64,
}

impl Tokens {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self, TokenError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| TokenError::Read { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|wrong| match wrong {
            Some((line, what)) => TokenError::Line { path: path.to_owned(), line, what },
            None => TokenError::Empty { path: path.to_owned() },
        })
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Option<(usize, &'static str)>> {
        let mut tokens = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what| Some((number, what));
            let (token, rest) = line
                .split_once(char::is_whitespace)
                .ok_or(wrong("it does not say whose token it is"))?;
            if token.len() < TOKEN_CHARACTERS || !token.bytes().all(|byte| byte.is_ascii_graphic())
            {
                return Err(wrong("the token is too short, or no plain text"));
            }
            let name = match rest.trim().split_once(char::is_whitespace) {
                Some(("client", name)) => Some(name.trim().to_owned()),
                None if rest.trim() == "admin" => None,
                _ => return Err(wrong("it names neither a client nor an admin")),
            };
            let identity = Identity { name, id: AtomicI64::new(0) };
            if tokens.insert(digest(token), Arc::new(identity)).is_some() {
                return Err(wrong("the token is there twice"));
            }
        }
        if tokens.is_empty() { Err(None) } else { Ok(Self(tokens)) }
    }

    /// Who sends these headers.
    pub(crate) fn identify(&self, headers: &HeaderMap) -> Result<Arc<Identity>, Status> {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        self.0.get(&digest(token.trim())).map(Arc::clone).ok_or_else(|| {
            let text = "the token is missing or unknown; send it as `authorization: Bearer TOKEN`";
            refused(Code::Unauthenticated, "NO_TOKEN", text)
        })
    }
}

impl Identity {
    /// Whether the holder may be any client, and change queues.
    pub(crate) fn is_admin(&self) -> bool {
        self.name.is_none()
    }

    /// Whether this is known to be the holder's client.
    pub(crate) fn is(&self, client: i64) -> bool {
        client > 0 && self.id.load(Ordering::Relaxed) == client
    }
}

/// How another client's holder is refused.
pub(crate) fn not_allowed(what: &str) -> Status {
    let text = format!("this token does not allow it: {what}");
    refused(Code::PermissionDenied, "NOT_ALLOWED", text)
}

fn digest(token: &str) -> [u8; 16] {
    Md5::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "0123456789abcdef0123456789abcdef";

    fn headers(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        headers
    }

    #[test]
    fn tokens_say_who_asks() {
        let text = format!("# ours\n\n{GOOD} client a worker \n{GOOD}x  admin\n");
        let tokens = Tokens::parse(&text).unwrap();
        let who = |value: &str| tokens.identify(&headers(value));
        assert_eq!(who(&format!("Bearer {GOOD}")).unwrap().name.as_deref(), Some("a worker"));
        assert!(who(&format!("Bearer {GOOD}x")).unwrap().is_admin());
        for wrong in [String::new(), GOOD.to_owned(), format!("Bearer {GOOD}y"), "Bearer ".into()] {
            assert_eq!(who(&wrong).unwrap_err().code(), Code::Unauthenticated, "{wrong}");
        }
        assert_eq!(tokens.identify(&HeaderMap::new()).unwrap_err().code(), Code::Unauthenticated);
    }

    #[test]
    fn lines_that_are_none_are_refused() {
        assert_eq!(Tokens::parse("# nothing\n").unwrap_err(), None);
        for wrong in ["short admin", GOOD, &format!("{GOOD} client"), &format!("{GOOD} root x")] {
            assert_eq!(Tokens::parse(wrong).unwrap_err().unwrap().0, 1, "{wrong}");
        }
        let twice = format!("{GOOD} admin\n{GOOD} client x");
        assert_eq!(Tokens::parse(&twice).unwrap_err().unwrap().0, 2);
    }
}
