//! For `fuzz/`: recordings and descriptions of requests.

use std::path::Path;

use kendall_loadgen::sequence::SequencePlan;
use serde_json::Value;

use super::{Read, har, openapi, text, usable};

/// A document as a recording and as a description, and what is written of it.
///
/// # Panics
/// When it is refused without a word, or what is written is no sequence.
pub fn requests(bytes: &[u8]) {
    let Ok(document) = serde_json::from_slice::<Value>(bytes) else { return };
    for read in [har::read as Read, openapi::read] {
        check(read, &document);
    }
}

fn check(read: Read, document: &Value) {
    match read(document).and_then(usable) {
        Err(what) => assert!(!what.is_empty()),
        Ok(found) => {
            let text = text(&found, "a\nb");
            let plan = SequencePlan::parse(&text, Path::new("a"), Vec::new());
            assert!(plan.is_ok(), "{text}: {plan:?}");
        }
    }
}
