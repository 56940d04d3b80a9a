//! What the service said when it refused: the first of each operation, for who reads the result.

use std::collections::BTreeMap;

use kendall_protocols::load_result::{LoadResult, Remark, RemarkKind};
use parking_lot::Mutex;

/// Characters of a refusal that are kept.
const LONGEST: usize = 200;

/// The first refusal of each operation, by its name in the result.
#[derive(Debug, Default)]
pub(crate) struct Said {
    first: Mutex<BTreeMap<String, String>>,
}

impl Said {
    /// Keeps what the service said, if it is the first of this operation.
    pub(crate) fn note(&self, operation: &str, text: &str) {
        let mut first = self.first.lock();
        if !first.contains_key(operation) {
            let text = text.chars().take(LONGEST).collect();
            first.insert(operation.to_owned(), text);
        }
    }

    /// What was said at first, of any operation.
    pub(crate) fn first(&self) -> Option<String> {
        let first = self.first.lock();
        first.values().next().cloned()
    }

    /// Rejects a load of which an operation was always refused, since the others found another
    /// queue than they would have: without sends there is nothing to receive. Otherwise adds a caveat.
    pub(crate) fn tell(&self, result: &mut LoadResult) {
        let first = self.first.lock();
        for (name, text) in first.iter() {
            let Some(operation) = result.operations.get(name) else { continue };
            let failed: u64 = operation.errors.values().sum();
            if operation.completed == 0 {
                let text = format!(
                    "no {name} succeeded, of {failed} that ended; the service said: {text}"
                );
                result.rejections.push(Remark { kind: RemarkKind::NothingSucceeded, text });
            } else {
                let text = format!("the first {name} that was refused: {text}");
                result.caveats.push(Remark { kind: RemarkKind::Refused, text });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kendall_protocols::load_result::Operation;

    #[test]
    fn an_operation_that_was_always_refused_rejects_the_load() {
        let said = Said::default();
        said.note("send", "too long (gRPC status 3)");
        said.note("send", "something else");
        said.note("receive", "try later (gRPC status 3)");
        let mut result = LoadResult::default();
        let errors = [("client_error".to_owned(), 7)];
        for (name, completed) in [("send", 0), ("receive", 5), ("read", 0)] {
            let errors = errors.clone().into();
            let operation = Operation { completed, errors, ..Operation::default() };
            result.operations.insert(name.to_owned(), operation);
        }
        said.tell(&mut result);
        let rejected =
            "no send succeeded, of 7 that ended; the service said: too long (gRPC status 3)";
        assert_eq!((result.rejections.len(), result.rejections[0].text.as_str()), (1, rejected));
        assert_eq!(result.rejections[0].kind, RemarkKind::NothingSucceeded);
        let doubted = "the first receive that was refused: try later (gRPC status 3)";
        assert_eq!((result.caveats.len(), result.caveats[0].text.as_str()), (1, doubted));
    }
}
