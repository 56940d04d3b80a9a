//! Who may do what: tokens, each for reading, for writing, or for a worker.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use hyper::Request;
use hyper::header::{AUTHORIZATION, HeaderValue};
use tonic::Status;

/// What a request may do. Handlers find it among the request's extensions, and there alone: what
/// changes something asks for [`Access::Write`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// It may read.
    Read,
    /// It may read and change.
    Write,
    /// It may also execute actions and report their results: a worker.
    Work,
}

impl Access {
    /// What a request may do; all where no tokens were given.
    #[must_use]
    pub fn of(extensions: &hyper::http::Extensions) -> Self {
        extensions.get().copied().unwrap_or(Self::Work)
    }

    /// Refuses a change by those who may only read.
    ///
    /// # Errors
    /// PERMISSION_DENIED.
    pub fn may_write(self) -> Result<(), Box<Status>> {
        match self {
            Self::Write | Self::Work => Ok(()),
            Self::Read => Err(Box::new(Status::permission_denied(
                "this token, or who comes without one, may only read",
            ))),
        }
    }

    /// Refuses a worker that has no token of one: what it answers is believed.
    ///
    /// # Errors
    /// PERMISSION_DENIED.
    pub fn may_work(self) -> Result<(), Box<Status>> {
        match self {
            Self::Work => Ok(()),
            Self::Read | Self::Write => Err(Box::new(Status::permission_denied(
                "a worker needs a token whose line says `work`",
            ))),
        }
    }
}

/// The tokens that are known. None known: everybody may do everything.
#[derive(Clone, Default)]
pub struct Tokens {
    known: Option<Arc<Known>>,
}

struct Known {
    /// By the token's hash, so that the time of a lookup reveals no more of a token than its hash does.
    access: HashMap<[u8; 32], Access>,
    /// What those without a token may do.
    anonymous: Option<Access>,
}

/// A file of tokens cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokensError {
    /// A line is not understood.
    #[error(
        "line {0} of the tokens is not understood; write `read TOKEN`, `write TOKEN` or `work TOKEN`, with * for those without a token"
    )]
    Line(usize),
    /// No line at all would shut out everybody.
    #[error("there is no token in the file")]
    Empty,
}

impl Tokens {
    /// Tokens of a text with a line each, `read TOKEN`, `write TOKEN` or `work TOKEN`; `*` stands for
    /// those without a token, `#` begins a comment.
    ///
    /// # Errors
    /// [`TokensError`] for anything else.
    pub fn parse(text: &str) -> Result<Self, TokensError> {
        let mut known = Known { access: HashMap::new(), anonymous: None };
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut words = line.split_whitespace();
            let access = match words.next() {
                Some("read") => Access::Read,
                Some("write") => Access::Write,
                Some("work") => Access::Work,
                _ => return Err(TokensError::Line(index + 1)),
            };
            let (Some(token), None) = (words.next(), words.next()) else {
                return Err(TokensError::Line(index + 1));
            };
            if token == "*" {
                known.anonymous = Some(access);
            } else {
                known.access.insert(blake3::hash(token.as_bytes()).into(), access);
            }
        }
        if known.access.is_empty() && known.anonymous.is_none() {
            return Err(TokensError::Empty);
        }
        Ok(Self { known: Some(Arc::new(known)) })
    }

    /// Notes with the request what it may do.
    ///
    /// # Errors
    /// UNAUTHENTICATED for a request without a known token where one is needed.
    pub(super) fn admit<B>(&self, request: &mut Request<B>) -> Result<(), Status> {
        let Some(known) = &self.known else { return Ok(()) };
        let access = match request.headers().get(AUTHORIZATION) {
            None => known.anonymous,
            Some(value) => bearer(value)
                .and_then(|token| known.access.get(blake3::hash(token).as_bytes()).copied()),
        };
        match access {
            Some(access) => {
                request.extensions_mut().insert(access);
                Ok(())
            }
            None => Err(Status::unauthenticated(
                "a token is needed: send `authorization: Bearer TOKEN`",
            )),
        }
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.known.as_ref().map_or(0, |known| known.access.len());
        write!(f, "Tokens({count})")
    }
}

fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(tokens: &Tokens, header: Option<&str>) -> Option<Access> {
        let mut request = Request::new(());
        if let Some(header) = header {
            request.headers_mut().insert(AUTHORIZATION, header.parse().unwrap());
        }
        tokens.admit(&mut request).ok().map(|()| Access::of(request.extensions()))
    }

    #[test]
    fn a_token_gives_what_its_line_says() {
        let tokens = Tokens::parse("# who\nread people\nwrite ci\n").unwrap();
        assert_eq!(access(&tokens, Some("Bearer people")), Some(Access::Read));
        assert_eq!(access(&tokens, Some("bearer ci")), Some(Access::Write));
        for wrong in [None, Some("Bearer "), Some("Bearer ci2"), Some("Basic ci"), Some("x")] {
            assert_eq!(access(&tokens, wrong), None, "{wrong:?}");
        }
        let open = Tokens::parse("read *\nwrite ci").unwrap();
        assert_eq!(access(&open, None), Some(Access::Read));
        assert_eq!(access(&open, Some("Bearer wrong")), None, "a wrong token is not none");
        assert_eq!(access(&Tokens::default(), None), Some(Access::Work));
        let worker = Tokens::parse("work w\nwrite ci").unwrap();
        assert!(access(&worker, Some("Bearer w")).unwrap().may_work().is_ok());
        assert!(access(&worker, Some("Bearer w")).unwrap().may_write().is_ok());
        assert!(access(&worker, Some("Bearer ci")).unwrap().may_work().is_err());
    }

    #[test]
    fn a_file_that_is_not_understood_is_refused() {
        assert_eq!(Tokens::parse("admin x").unwrap_err(), TokensError::Line(1));
        assert_eq!(Tokens::parse("\nread a b").unwrap_err(), TokensError::Line(2));
        assert_eq!(Tokens::parse("# none\n").unwrap_err(), TokensError::Empty);
        assert_eq!(format!("{:?}", Tokens::parse("read secret").unwrap()), "Tokens(1)");
    }
}
