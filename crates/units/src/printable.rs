//! Words of others on a terminal.

/// The beginning of what another program said, at most so many characters, with blanks for control characters.
///
/// # Example
/// ```
/// use kendall_units::printable;
/// assert_eq!(printable("no\u{1b}[2J\nanswer", 100), "no [2J answer");
/// assert_eq!(printable("no answer", 4), "no a");
/// ```
#[must_use]
pub fn printable(text: &str, most: usize) -> String {
    text.chars().take(most).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
