//! Words of others on a terminal.

/// The beginning of what another program said, at most so many characters, with blanks for what [`is_printable`] refuses.
///
/// # Example
/// ```
/// use kendall_units::printable;
/// assert_eq!(printable("no\u{1b}[2J\nanswer", 100), "no [2J answer");
/// assert_eq!(printable("no answer", 4), "no a");
/// ```
#[must_use]
pub fn printable(text: &str, most: usize) -> String {
    text.chars().take(most).map(|c| if is_shown(c) { c } else { ' ' }).collect()
}

/// Most characters of a value that an error repeats.
const MOST_ECHO: usize = 60;

/// A value as an error repeats it: without hundreds of digits, and no longer than a line.
///
/// # Example
/// ```
/// use kendall_units::echo;
/// assert_eq!(echo(0.25), "0.25");
/// assert_eq!(echo(1e300), "1e300");
/// assert_eq!(echo(format_args!("{:.4}", 2e99)), "2e99");
/// assert_eq!(echo("a".repeat(100)), format!("{}…", "a".repeat(60)));
/// ```
#[must_use]
pub fn echo(value: impl std::fmt::Display) -> String {
    let text = value.to_string();
    if text.chars().nth(MOST_ECHO).is_none() {
        return text;
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => format!("{number:e}"),
        _ => format!("{}…", printable(&text, MOST_ECHO)),
    }
}

/// Whether a text, such as a name, has neither control characters nor code points that are no characters of Unicode,
/// which XML refuses.
///
/// # Example
/// ```
/// use kendall_units::is_printable;
/// assert!(is_printable("Größe 1"));
/// assert!(!is_printable("a\tb") && !is_printable("a\u{fffe}"));
/// ```
#[must_use]
pub fn is_printable(text: &str) -> bool {
    text.chars().all(is_shown)
}

fn is_shown(c: char) -> bool {
    let is_none =
        matches!(u32::from(c) & 0xffff, 0xfffe | 0xffff) || ('\u{fdd0}'..='\u{fdef}').contains(&c);
    !c.is_control() && !is_none
}
