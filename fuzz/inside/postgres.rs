//! For `fuzz/`: scripts of transactions.

use super::expression::Value;
use super::{Script, given};
use crate::random::{Purpose, stream};

/// A script, with a value in place of each that a query would give.
pub(crate) fn script(text: &str) {
    let given = given(&[("a".to_owned(), String::new())], &[]);
    let script = match Script::parse(("fuzz", 1.0), text, &given) {
        Ok(script) => script,
        Err(error) => {
            assert!(!error.what.is_empty());
            return;
        }
    };
    let mut random = stream(1, Purpose::Requests, 0);
    let (mut values, mut actions) = (vec![Value::Whole(3); given.len()], Vec::new());
    let mut at = 0;
    while !script.is_over(at) {
        let Ok(next) = script.draw(at, &mut values, &mut random, &mut actions) else { return };
        assert!(next > at, "step {at} leads back to {next}");
        at = next;
        values
            .iter_mut()
            .filter(|one| **one == Value::Unset)
            .for_each(|one| *one = Value::Whole(7));
    }
}
