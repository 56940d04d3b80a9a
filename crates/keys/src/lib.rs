//! The keys of study and model files, declared once: a [`Key`] has its name, the form of its value,
//! its default and a line of help. A [`Section`] reads one table of a file by them: it checks each
//! value, fills in defaults, remembers the effective values, and refuses what is not declared, with
//! "did you mean". The same declarations give the tables of the documents (a test writes them) and a JSON
//! schema for editors ([`schema`]), so none of the three can say something else.
//!
//! What is left out: what a value means. Quantities bring their own parser ([`Quantity`]).

mod closest;
mod key;
mod lines;
mod list;
mod options;
mod section;
mod value;

pub use closest::{closest, did_you_mean};
pub use key::{Form, Key, Keys, Need, Quantity};
pub use lines::{Lines, bracketed, join, line_of};
pub use list::schema;
pub use section::{Problem, Section};
pub use value::{from_json, json_document, text_of};
