//! For `fuzz/`: what programs print.

use super::{TAIL_BYTES, announced, last_lines, listening};

/// What a program writes when it is ready, and when it ends.
pub(crate) fn printed(bytes: &[u8]) {
    // Bytes that are no text are three each.
    assert!(last_lines(bytes).len() <= 3 * TAIL_BYTES);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(found) = announced(text) {
        assert!(text.contains("ready ") && text.contains('\n'));
        assert!(found.listen.iter().all(|address| text.contains(address.as_str())));
    }
    if let Some(found) = listening(text, "127.0.0.1") {
        assert!(found.listen[0].starts_with("127.0.0.1:"));
    }
}
