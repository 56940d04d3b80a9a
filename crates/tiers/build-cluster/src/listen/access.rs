//! Who may do what: tokens, each for reading, for writing, or for a worker.

use hyper::Request;
use kendall_tier::serve::{self, TokenLine};
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
    pub fn of(extensions: &hyper::http::Extensions) -> Self {
        extensions.get().copied().unwrap_or(Self::Work)
    }

    /// Refuses a change by those who may only read.
    pub fn may_write(self) -> Result<(), Box<Status>> {
        match self {
            Self::Write | Self::Work => Ok(()),
            Self::Read => Err(Box::new(Status::permission_denied(
                "this token, or a client without one, may only read",
            ))),
        }
    }

    /// Refuses a worker that has no token of one: what it answers is believed.
    pub fn may_work(self) -> Result<(), Box<Status>> {
        match self {
            Self::Work => Ok(()),
            Self::Read | Self::Write => Err(Box::new(Status::permission_denied(
                "a worker needs a token whose line begins with `work`",
            ))),
        }
    }
}

/// Tokens, and what each allows.
pub type Tokens = serve::Tokens<Access>;

pub const LINE: TokenLine<Access> = TokenLine {
    form: "`read TOKEN`, `write TOKEN` or `work TOKEN`, with * for those without a token",
    read: |line| {
        let mut words = line.split_whitespace();
        let access = match words.next() {
            Some("read") => Access::Read,
            Some("write") => Access::Write,
            Some("work") => Access::Work,
            _ => return Err("it begins with neither `read`, `write` nor `work`"),
        };
        match (words.next(), words.next()) {
            (Some(token), None) => Ok((token, access)),
            _ => Err("it does not name one token"),
        }
    },
};

/// Notes with the request what it may do: all where no tokens are given.
///
/// # Errors
/// UNAUTHENTICATED for a request without a known token where one is needed.
pub(super) fn admit<B>(tokens: Option<&Tokens>, request: &mut Request<B>) -> Result<(), Status> {
    let Some(tokens) = tokens else { return Ok(()) };
    let access = tokens.of(request.headers()).copied().ok_or_else(|| {
        Status::unauthenticated("a token is needed: send `authorization: Bearer TOKEN`")
    })?;
    request.extensions_mut().insert(access);
    Ok(())
}

#[cfg(test)]
mod tests {
    use hyper::header::AUTHORIZATION;

    use super::*;

    fn parse(text: &str) -> Result<Tokens, Option<(usize, &'static str)>> {
        Tokens::parse(text, &LINE)
    }

    fn access(tokens: Option<&Tokens>, header: Option<&str>) -> Option<Access> {
        let mut request = Request::new(());
        if let Some(header) = header {
            request.headers_mut().insert(AUTHORIZATION, header.parse().unwrap());
        }
        admit(tokens, &mut request).ok().map(|()| Access::of(request.extensions()))
    }

    #[test]
    fn a_token_gives_what_its_line_says() {
        let tokens = parse("# who\nread people\nwrite ci\n").unwrap();
        assert_eq!(access(Some(&tokens), Some("Bearer people")), Some(Access::Read));
        assert_eq!(access(Some(&tokens), Some("bearer ci")), Some(Access::Write));
        for wrong in [None, Some("Bearer "), Some("Bearer ci2"), Some("Basic ci"), Some("x")] {
            assert_eq!(access(Some(&tokens), wrong), None, "{wrong:?}");
        }
        let open = parse("read *\nwrite ci").unwrap();
        assert_eq!(access(Some(&open), None), Some(Access::Read));
        assert_eq!(access(Some(&open), Some("Bearer wrong")), None, "a wrong token is not none");
        assert_eq!(access(None, None), Some(Access::Work));
        let worker = parse("work w\nwrite ci").unwrap();
        assert!(access(Some(&worker), Some("Bearer w")).unwrap().may_work().is_ok());
        assert!(access(Some(&worker), Some("Bearer w")).unwrap().may_write().is_ok());
        assert!(access(Some(&worker), Some("Bearer ci")).unwrap().may_work().is_err());
    }

    #[test]
    fn a_file_that_is_not_understood_is_refused() {
        let line = |text| parse(text).unwrap_err().map(|(line, _)| line);
        assert_eq!(line("admin x"), Some(1));
        assert_eq!(line("\nread a b"), Some(2));
        assert_eq!(line("read a\nwrite a"), Some(2));
        assert_eq!(line("# none\n"), None);
        assert_eq!(format!("{:?}", parse("read secret").unwrap()), "Tokens(1)");
    }
}
