//! For `fuzz/`: heads of requests.

use super::{Found, parse};

/// The head of a request.
///
/// # Panics
/// When it takes more bytes than there are, or a part of a request for the whole.
pub fn head(bytes: &[u8]) {
    let Some((found, used, _)) = parse(bytes) else { return };
    assert!(used > 0 && used <= bytes.len());
    if !matches!(found, Found::Refused(..)) {
        for cut in [1, used / 2, used - 1] {
            let part = parse(&bytes[..cut]);
            assert!(part.is_none(), "{found:?}, and {part:?} of {cut} bytes");
        }
    }
}
