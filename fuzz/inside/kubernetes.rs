//! For `fuzz/`: what `kubectl` prints.

use std::time::Duration;

use serde_json::Value as Json;

use super::{PATIENCE, READY_DEADLINE, State, for_people, given_up, state};

/// What `kubectl` prints.
pub(crate) fn printed(text: &str) {
    let said = for_people(text);
    assert_eq!(said.is_empty(), text.trim().is_empty(), "{text:?}");
    let pods: Json = serde_json::from_str(text).unwrap_or_default();
    let found = state(&pods, "a-0");
    if let State::Runs(pod) = &found {
        assert!(!pod.address.is_empty() && !pod.address.contains(':'), "{pod:?}");
    } else {
        let forever = given_up(found, READY_DEADLINE + PATIENCE + Duration::from_secs(1), "a-0");
        assert!(forever.is_some(), "{text}");
    }
}
