//! Errors in one line.

use std::error::Error;

/// An error with what caused it; a cause that says nothing new is left out.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(next) = below {
        let more = next.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        below = next.source();
    }
    text
}

/// What an error came from: those around it only say that there is one.
#[must_use]
pub fn innermost(error: &dyn Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
