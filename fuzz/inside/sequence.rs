//! For `fuzz/`: requests of sequences, and replies to them.

use hyper::HeaderMap;
use hyper::header::{HeaderValue, SET_COOKIE};

use super::cookies::Jar;
use super::extract::{Answer, Extraction};
use super::{SequencePlan, address, fill};

/// Fills what is sent.
pub(crate) fn plan(plan: &SequencePlan) {
    for sequence in &plan.sequences {
        let values = vec![b"a b\xff".to_vec(); sequence.names];
        for step in &sequence.steps {
            assert!(address(&step.path, &values).is_ascii());
            step.headers.iter().for_each(|(_, value)| drop(fill(value, &values)));
            step.body.iter().for_each(|body| drop(fill(body, &values)));
        }
    }
}

/// Takes a value from a reply.
pub(crate) fn reply(from: &[u8], cookie: &[u8], body: &[u8]) {
    let (mut headers, mut jar) = (HeaderMap::new(), Jar::default());
    if let Ok(cookie) = HeaderValue::from_bytes(cookie) {
        jar.take(&cookie);
        headers.insert(SET_COOKIE, cookie);
        jar.header("/a/b?c");
    }
    let answer = Answer { headers: &headers, jar: &jar, body };
    let from = Extraction::parse(&String::from_utf8_lossy(from));
    if let Err(what) = from.and_then(|from| from.take(&answer)) {
        assert!(!what.is_empty());
    }
}
