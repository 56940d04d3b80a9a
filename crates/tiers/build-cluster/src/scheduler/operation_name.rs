//! Names of operations. A name carries the request that it was made for, so that a scheduler which started
//! anew can go on with an operation of the one before it: nothing is kept on disk for that.

use std::fmt;

use super::board::OperationId;
use crate::digest::{Digest, Function, parse_hash};

/// What separates the instance, which may have anything in it, from the rest.
const KIND: &str = "operations/";

/// An Execute request, as far as it decides what runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) instance: String,
    pub(super) action: Digest,
    pub(super) priority: i32,
    pub(super) skip_cache_lookup: bool,
}

/// `INSTANCE/operations/SESSION-NUMBER/FUNCTION/HASH/SIZE/PRIORITY/LOOKUP`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OperationName {
    /// The scheduler that gave it.
    pub(super) session: u64,
    pub(super) id: OperationId,
    pub(super) asked: Asked,
}

impl fmt::Display for OperationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Asked { instance, action, priority, skip_cache_lookup } = &self.asked;
        let slash = if instance.is_empty() { "" } else { "/" };
        let lookup = if *skip_cache_lookup { "skip" } else { "lookup" };
        let (session, number, function) = (self.session, self.id.0, action.function.name());
        write!(
            f,
            "{instance}{slash}{KIND}{session:016x}-{number:x}/{function}/{action}/{priority}/{lookup}"
        )
    }
}

impl OperationName {
    /// `None` for what no scheduler gave.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (instance, rest) = name.rsplit_once(KIND)?;
        let mut parts = rest.split('/');
        let (session, number) = parts.next()?.split_once('-')?;
        let function = Function::named(parts.next()?)?;
        let hash = parse_hash(parts.next()?.as_bytes()).ok()?;
        let size = parts.next()?.parse().ok()?;
        let priority = parts.next()?.parse().ok()?;
        let skip_cache_lookup = match (parts.next()?, parts.next()) {
            ("skip", None) => true,
            ("lookup", None) => false,
            _ => return None,
        };
        let instance = match instance {
            "" => "",
            instance => instance.strip_suffix('/')?,
        };
        Some(Self {
            session: u64::from_str_radix(session, 16).ok()?,
            id: OperationId(u64::from_str_radix(number, 16).ok()?),
            asked: Asked {
                instance: instance.to_owned(),
                action: Digest { function, hash, size },
                priority,
                skip_cache_lookup,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_was_asked_for() {
        for instance in ["", "main", "a/b", "operations/x", "a/operations/1-2/b"] {
            for (priority, skip_cache_lookup) in [(0, false), (-5, true), (i32::MAX, true)] {
                for function in Function::ALL {
                    let action = function.digest(b"action");
                    let instance = instance.to_owned();
                    let asked = Asked { instance, action, priority, skip_cache_lookup };
                    let name =
                        OperationName { session: 0xffff_0000_1234_5678, id: OperationId(7), asked };
                    assert_eq!(OperationName::parse(&name.to_string()), Some(name));
                }
            }
        }
    }

    #[test]
    fn what_no_scheduler_gave_is_no_name() {
        let asked = Asked {
            instance: "main".to_owned(),
            action: Function::Sha256.digest(b"action"),
            priority: 0,
            skip_cache_lookup: false,
        };
        let whole = OperationName { session: 1, id: OperationId(2), asked }.to_string();
        for end in 0..whole.len() {
            assert_eq!(OperationName::parse(&whole[..end]), None, "{}", &whole[..end]);
        }
        let changed = [("-2", "2"), ("sha256", "md5"), ("/6/", "/-6/"), ("/0/", "/none/")];
        for (from, to) in changed {
            assert_eq!(OperationName::parse(&whole.replace(from, to)), None, "{from} {to}");
        }
        for other in ["operations/cached", "operations/1-2", &format!("{whole}/more"), "x"] {
            assert_eq!(OperationName::parse(other), None, "{other}");
        }
    }
}
