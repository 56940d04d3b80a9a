//! Who may look, and who may run.

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use kendall_tier::serve::{ListenOptions, TokenLine, random_token};

use crate::Shared;
use crate::failure::Failure;

/// What a token gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// To look, compare and solve.
    Read,
    /// Also to start and stop studies, and to save files. A study runs commands.
    Run,
}

pub type Tokens = kendall_tier::serve::Tokens<Grant>;

/// How its file of tokens is written.
pub const LINE: TokenLine<Grant> = TokenLine {
    form: "`read TOKEN` or `run TOKEN`",
    read: |line| {
        let (grant, token) = line.split_once(char::is_whitespace).ok_or("a word is missing")?;
        let grant = match grant {
            "read" => Grant::Read,
            "run" => Grant::Run,
            _ => return Err("it begins with neither `read` nor `run`"),
        };
        match token.trim() {
            "*" => Err("this would admit all: name a token"),
            token => Ok((token, grant)),
        }
    },
};

/// A console that others could reach unguarded.
#[derive(Debug, thiserror::Error)]
#[error(
    "others can reach {address}, and there is no {missing}; add --tokens FILE, --tls-certificate FILE and --tls-key FILE, \
     or listen on 127.0.0.1 and use an SSH tunnel"
)]
pub struct OpenError {
    address: std::net::SocketAddr,
    missing: &'static str,
}

/// The console's own token, where it needs one, and all that are known.
///
/// # Errors
/// [`OpenError`] for an address that others reach, without tokens or TLS.
pub fn allowed(
    listen: &ListenOptions,
    tokens: Option<Tokens>,
) -> Result<(Option<String>, Tokens), OpenError> {
    let address = listen.address;
    let missing = [("file of tokens", tokens.is_none()), ("TLS", listen.tls.is_none())];
    let missing = missing.into_iter().find(|(_, missing)| *missing);
    if let Some((missing, _)) = missing.filter(|_| !address.ip().is_loopback()) {
        return Err(OpenError { address, missing });
    }
    if let Some(tokens) = tokens {
        return Ok((None, tokens));
    }
    let own = random_token();
    let tokens = Tokens::one(&own, Grant::Run);
    Ok((Some(own), tokens))
}

/// A header that no other site can have a browser send: with it, a request is meant.
pub(crate) async fn authorized(
    State(shared): State<Shared>,
    request: Request,
    next: Next,
) -> Response {
    let changes = !matches!(*request.method(), Method::GET | Method::POST);
    match shared.tokens.of(request.headers()) {
        None => Failure::unauthorized().into_response(),
        Some(Grant::Read) if changes => Failure::forbidden().into_response(),
        Some(_) => next.run(request).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_others_reach_needs_tokens_and_tls() {
        let listen = |address: &str| ListenOptions::new(address.parse().unwrap());
        let tokens = || Some(Tokens::parse("read abc\nrun def", &LINE).unwrap());
        assert!(allowed(&listen("127.0.0.1:0"), None).unwrap().0.unwrap().len() >= 32);
        assert!(allowed(&listen("[::1]:0"), tokens()).unwrap().0.is_none());
        for (address, tokens, missing) in
            [("0.0.0.0:0", None, "tokens"), ("192.0.2.1:80", tokens(), "TLS")]
        {
            let error = allowed(&listen(address), tokens).unwrap_err().to_string();
            assert!(error.contains(missing), "{error}");
        }
        for line in ["abc", "run *", "write abc"] {
            assert!(Tokens::parse(line, &LINE).is_err(), "{line}");
        }
    }
}
