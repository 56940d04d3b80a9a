//! What a key is called, what it may hold, and what it stands for.

/// A key that a table of a file may have.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    pub name: &'static str,
    pub form: Form,
    /// Whether it must be written.
    pub need: Need,
    /// What it means, in a line, for the documents and for editors.
    pub help: &'static str,
}

/// Declarations of the keys of a table, in groups that tables share.
pub type Keys = &'static [&'static [Key]];

/// Whether a key must be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Required,
    /// It need not, and nothing stands in for it.
    Optional,
    /// It need not, and this stands in for it, as TOML writes it (texts with their quotes).
    Default(&'static str),
}

/// What a key may hold.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    Text,
    Choice(&'static [&'static str]),
    /// A whole number within bounds.
    Count {
        from: u64,
        to: u64,
    },
    Number,
    Numbers,
    /// `true` or `false`.
    Flag,
    /// A text that holds a quantity with its unit.
    Quantity(&'static Quantity),
    /// A list of texts; one text alone is split at spaces.
    Texts,
    Table(Keys),
    Tables(Keys),
    /// A table whose keys are the user's own names, all with such a value.
    Named(&'static Form),
    Either(&'static [Form]),
    /// What no other form says: read by the caller. The text tells people the accepted form.
    Special(&'static str),
}

/// A quantity that is written as a text with its unit.
#[derive(Debug)]
pub struct Quantity {
    /// With its article, such as `a time`.
    pub name: &'static str,
    /// Accepted forms, such as `` `40ms` or `1.5s` ``.
    pub example: &'static str,
    /// Refuses what is none; the message says what was written and what to write.
    pub check: fn(&str) -> Result<(), String>,
}

impl Key {
    /// A key that must be written.
    pub const fn new(name: &'static str, form: Form, help: &'static str) -> Self {
        Self { name, form, need: Need::Required, help }
    }

    /// Need not be written, and nothing stands in for it.
    #[must_use]
    pub const fn optional(self) -> Self {
        Self { need: Need::Optional, ..self }
    }

    /// Need not be written; `default` stands in for it, as TOML writes it.
    #[must_use]
    pub const fn or(self, default: &'static str) -> Self {
        Self { need: Need::Default(default), ..self }
    }

    pub const fn text(name: &'static str, help: &'static str) -> Self {
        Self::new(name, Form::Text, help)
    }

    pub const fn choice(
        name: &'static str,
        words: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self::new(name, Form::Choice(words), help)
    }

    /// A whole number within bounds.
    pub const fn count(name: &'static str, from: u64, to: u64, help: &'static str) -> Self {
        Self::new(name, Form::Count { from, to }, help)
    }

    /// `true` or `false`.
    pub const fn flag(name: &'static str, help: &'static str) -> Self {
        Self::new(name, Form::Flag, help)
    }

    /// A quantity with its unit.
    pub const fn quantity(
        name: &'static str,
        quantity: &'static Quantity,
        help: &'static str,
    ) -> Self {
        Self::new(name, Form::Quantity(quantity), help)
    }

    /// A list of texts; empty unless it is written.
    pub const fn texts(name: &'static str, help: &'static str) -> Self {
        Self::new(name, Form::Texts, help).optional()
    }

    /// Any finite number that need not be written.
    pub const fn number(name: &'static str, help: &'static str) -> Self {
        Self::new(name, Form::Number, help).optional()
    }

    /// The default as a value; `None` when there is none.
    pub fn default(&self) -> Option<toml::Value> {
        let Need::Default(text) = self.need else { return None };
        let table: toml::Table = format!("x = {text}")
            .parse()
            .expect("a declared default is a TOML value: tests read all");
        table.get("x").cloned()
    }
}

impl Form {
    /// For people: what to write.
    pub fn describe(&self) -> String {
        match self {
            Self::Text => "a text in quotes".to_owned(),
            Self::Choice(words) => {
                words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" or ")
            }
            Self::Count { from, to: u64::MAX } => format!("a whole number from {from}"),
            Self::Count { from, to } => format!("a whole number from {from} to {to}"),
            Self::Number => "a number".to_owned(),
            Self::Numbers => "a list of numbers".to_owned(),
            Self::Flag => "`true` or `false`".to_owned(),
            Self::Quantity(quantity) => format!("{} such as {}", quantity.name, quantity.example),
            Self::Texts => "a list of texts".to_owned(),
            Self::Table(_) | Self::Named(_) => "a table".to_owned(),
            Self::Tables(_) => "a list of tables".to_owned(),
            Self::Either(forms) => {
                forms.iter().map(Self::describe).collect::<Vec<_>>().join(", or ")
            }
            Self::Special(text) => (*text).to_owned(),
        }
    }
}
