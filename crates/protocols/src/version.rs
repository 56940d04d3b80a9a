//! Versions of messages, checked where a message is read: a field whose meaning has changed must
//! not pass for the one that this program knows.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// A message that says its version.
pub trait Versioned {
    /// What it is, for people.
    const WHAT: &'static str;
    /// The version that this program writes. It reads this one and every one before it.
    const NEWEST: u32;
}

/// Reads a version, and refuses one that this program does not know.
pub(crate) fn known<'de, D, M>(deserializer: D) -> Result<u32, D::Error>
where
    D: Deserializer<'de>,
    M: Versioned,
{
    let found = u32::deserialize(deserializer)?;
    if (1..=M::NEWEST).contains(&found) {
        return Ok(found);
    }
    Err(D::Error::custom(format!(
        "the {} has version {found}, and this program reads versions 1 to {}: use programs of one \
         release on both sides",
        M::WHAT,
        M::NEWEST
    )))
}
