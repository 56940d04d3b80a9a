//! Tokens that clients send as `authorization: Bearer TOKEN`, and what each gives its holder.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};

/// How a tier's file of tokens is written: a line each; empty ones and those that begin with `#` are skipped.
#[derive(Debug)]
pub struct TokenLine<G> {
    pub form: &'static str,
    /// The token of a line, `*` for those who send none, and what it gives.
    pub read: fn(&str) -> Result<(&str, G), &'static str>,
}

/// A file of tokens cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    #[error("the tokens in {path} cannot be read")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path}, line {line}: {what}; a line is {form}")]
    Line { path: PathBuf, line: usize, what: &'static str, form: &'static str },
    #[error("{path} holds no token; a line is {form}")]
    Empty { path: PathBuf, form: &'static str },
}

/// Tokens, kept as hashes, so that the time of a lookup reveals nothing of them.
pub struct Tokens<G> {
    known: HashMap<[u8; 32], G>,
    without: Option<G>,
}

impl<G> Tokens<G> {
    /// One token alone.
    pub fn one(token: &str, grant: G) -> Self {
        Self { known: HashMap::from([(hash(token.as_bytes()), grant)]), without: None }
    }

    pub fn read(path: &Path, line: &TokenLine<G>) -> Result<Self, TokensError> {
        let (path, form) = (path.to_owned(), line.form);
        let text = match crate::read_text(&path, crate::LARGEST_FILE) {
            Ok(text) => text,
            Err(source) => return Err(TokensError::Read { path, source }),
        };
        Self::parse(&text, line).map_err(|wrong| match wrong {
            Some((line, what)) => TokensError::Line { path, line, what, form },
            None => TokensError::Empty { path, form },
        })
    }

    /// Reads a text.
    ///
    /// # Errors
    /// The number of a line and what is wrong with it; nothing where there is no token.
    pub fn parse(text: &str, line: &TokenLine<G>) -> Result<Self, Option<(usize, &'static str)>> {
        let mut tokens = Self { known: HashMap::new(), without: None };
        for (number, text) in (1..).zip(text.lines().map(str::trim)) {
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let (token, grant) = (line.read)(text).map_err(|what| Some((number, what)))?;
            let before = match token {
                "*" => tokens.without.replace(grant),
                _ => tokens.known.insert(hash(token.as_bytes()), grant),
            };
            if before.is_some() {
                return Err(Some((number, "the token is there twice")));
            }
        }
        let empty = tokens.known.is_empty() && tokens.without.is_none();
        if empty { Err(None) } else { Ok(tokens) }
    }

    /// What the sender of these headers has; a wrong token is not none.
    pub fn of(&self, headers: &HeaderMap) -> Option<&G> {
        match headers.get(AUTHORIZATION) {
            None => self.without.as_ref(),
            Some(value) => bearer(value).and_then(|token| self.known.get(&hash(token))),
        }
    }
}

impl<G> fmt::Debug for Tokens<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.known.len())
    }
}

fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token.trim_ascii())
}

fn hash(token: &[u8]) -> [u8; 32] {
    blake3::hash(token).into()
}

/// A new token of 244 random bits, in hexadecimal.
pub fn random_token() -> String {
    format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple())
}
