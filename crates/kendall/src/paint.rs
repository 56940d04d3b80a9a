//! Colors with a meaning, for terminals: red for what must not be used, yellow for caveats, green for
//! what is well. Text says the same without them.

use std::ffi::OsStr;
use std::io::IsTerminal as _;

use kendall_observations::Holds;

/// Whether a stream gets colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    pub(crate) fn of_results() -> Self {
        Self::of(std::io::stdout().is_terminal())
    }

    pub(crate) fn of_notes() -> Self {
        Self::of(std::io::stderr().is_terminal())
    }

    fn of(terminal: bool) -> Self {
        let variable = |name| std::env::var_os(name);
        Self { on: wanted(terminal, variable("NO_COLOR").as_deref(), variable("TERM").as_deref()) }
    }

    /// What must not be used.
    pub(crate) fn bad(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// What makes a number less sure.
    pub(crate) fn doubt(self, text: &str) -> String {
        self.paint("33", text)
    }

    pub(crate) fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// What the rest belongs to.
    pub(crate) fn head(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// A condition of `--fail-if` or `fail_if`, in the color of how it stands.
    pub(crate) fn condition(self, told: &str, holds: Holds) -> String {
        let text = format!("fail if {told}");
        match holds {
            Holds::Yes | Holds::NoValue => self.bad(&text),
            Holds::CannotTell => self.doubt(&text),
            Holds::No => self.good(&text),
        }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.on { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// <https://no-color.org>: any value but an empty one turns colors off.
fn wanted(terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    terminal && no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_terminals_that_want_them_get_colors() {
        let word = |text: &'static str| Some(OsStr::new(text));
        assert!(wanted(true, None, word("xterm")) && wanted(true, word(""), None));
        assert!(!wanted(false, None, word("xterm")));
        assert!(!wanted(true, word("1"), word("xterm")) && !wanted(true, None, word("dumb")));
        assert_eq!(Paint { on: false }.bad("text"), "text");
        assert_eq!(Paint { on: true }.bad("text"), "\u{1b}[31mtext\u{1b}[0m");
    }
}
