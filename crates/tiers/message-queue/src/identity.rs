//! Who a client is: a token says it, and what its holder may do.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use kendall_tier::serve::{self, TokenLine};
use tonic::codegen::http::HeaderMap;
use tonic::{Code, Status};

use crate::refusal::refused;

/// Characters of a token: what 128 random bits need, in hexadecimal or base64.
const TOKEN_CHARACTERS: usize = 22;

/// Tokens, and whose each is.
pub(crate) type Tokens = serve::Tokens<Arc<Identity>>;

pub(crate) const LINE: TokenLine<Arc<Identity>> = TokenLine {
    form: "`TOKEN client NAME` or `TOKEN admin`, and a token has 22 characters or more (openssl rand -hex 16)",
    read: |line| {
        let (token, rest) = line
            .split_once(char::is_whitespace)
            .ok_or("it has a token, and neither `client NAME` nor `admin`")?;
        if token.len() < TOKEN_CHARACTERS || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("the token is too short, or no plain text");
        }
        let name = match rest.trim().split_once(char::is_whitespace) {
            Some(("client", name)) => Some(name.trim().to_owned()),
            None if rest.trim() == "admin" => None,
            _ => return Err("it names neither a client nor an admin"),
        };
        Ok((token, Arc::new(Identity { name, id: AtomicI64::new(0) })))
    },
};

#[derive(Debug)]
pub(crate) struct Identity {
    /// The one client that its holder may be; `None`: anyone, who may also change queues.
    pub(crate) name: Option<String>,
    /// That client's id; 0 while it is not known.
    pub(crate) id: AtomicI64,
}

/// Who sends these headers.
pub(crate) fn identify(tokens: &Tokens, headers: &HeaderMap) -> Result<Arc<Identity>, Status> {
    tokens.of(headers).map(Arc::clone).ok_or_else(|| {
        let text = "the token is missing or unknown; send it as `authorization: Bearer TOKEN`";
        refused(Code::Unauthenticated, "NO_TOKEN", text)
    })
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

#[cfg(test)]
mod tests {
    use tonic::codegen::http::header;

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
        let tokens = Tokens::parse(&text, &LINE).unwrap();
        let who = |value: &str| identify(&tokens, &headers(value));
        assert_eq!(who(&format!("Bearer {GOOD}")).unwrap().name.as_deref(), Some("a worker"));
        assert!(who(&format!("Bearer {GOOD}x")).unwrap().is_admin());
        for wrong in [String::new(), GOOD.to_owned(), format!("Bearer {GOOD}y"), "Bearer ".into()] {
            assert_eq!(who(&wrong).unwrap_err().code(), Code::Unauthenticated, "{wrong}");
        }
        assert_eq!(identify(&tokens, &HeaderMap::new()).unwrap_err().code(), Code::Unauthenticated);
    }

    #[test]
    fn lines_that_are_none_are_refused() {
        let line = |text: &str| Tokens::parse(text, &LINE).unwrap_err().map(|(line, _)| line);
        assert_eq!(line("# nothing\n"), None);
        for wrong in ["short admin", GOOD, &format!("{GOOD} client"), &format!("{GOOD} root x")] {
            assert_eq!(line(wrong), Some(1), "{wrong}");
        }
        let twice = format!("{GOOD} admin\n{GOOD} client x");
        assert_eq!(line(&twice), Some(2));
    }
}
