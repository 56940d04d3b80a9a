//! For `fuzz/`: answers of an agent.

use parking_lot::Mutex;
use serde_json::Value as Json;

use super::{MOST_WORDS, Shared, read};
use crate::clock::monotonic_ns;
use crate::clocks::ClockFit;
use crate::protocol::{Looked, Measured, Outcome, ReadyAnswer, StartedProcess};

/// Reads what an agent, or what stands before it, may send in answer to the requests 0 to 15, and takes
/// each answer for all that it can be.
pub(crate) fn hear(bytes: &[u8]) {
    let shared = Shared::default();
    {
        let mut state = shared.state.lock();
        let now = monotonic_ns();
        state.complained = true;
        state.heard_ns = now;
        for id in 0..16 {
            state.answers.insert(id, None);
            state.asked_ns.insert(id, now);
        }
    }
    read(Box::new(std::io::Cursor::new(bytes.to_vec())), &shared, &Mutex::new(None));
    let state = std::mem::take(&mut *shared.state.lock());
    assert!(state.lost.is_some(), "a pipe that has ended is lost");
    assert!(
        state.words.len() <= MOST_WORDS && state.answers.len() == 16 && state.pings.len() <= 16
    );
    if let Some(fit) = ClockFit::of(&state.pings) {
        assert!(fit.bound_ns >= 0.0, "{fit:?}");
        for moment in [0, monotonic_ns(), u64::MAX] {
            std::hint::black_box((fit.here(moment), fit.there(moment), fit.json()));
        }
    }
    for outcome in state.answers.into_values().flatten() {
        if let Outcome::Ok(value) = outcome {
            read_as_any(&value);
        }
    }
}

/// Takes an answer for each kind of answer that there is.
fn read_as_any(value: &Json) {
    fn one<T: serde::de::DeserializeOwned>(value: &Json) -> Option<T> {
        serde_json::from_value(value.clone()).ok()
    }
    if let Some(looked) = one::<Looked>(value) {
        for snapshot in looked.snapshots.into_iter().flatten() {
            serde_json::from_str::<kendall_protocols::snapshot::TierSnapshot>(&snapshot)
                .map(drop)
                .unwrap_or_default();
        }
    }
    if let Some(piece) = one::<String>(value) {
        let engine = base64::engine::general_purpose::STANDARD;
        base64::Engine::decode(&engine, piece).map(drop).unwrap_or_default();
    }
    one::<StartedProcess>(value);
    one::<ReadyAnswer>(value);
    one::<Measured>(value);
    one::<Vec<String>>(value);
    one::<Option<String>>(value);
    one::<Vec<u64>>(value);
    one::<u16>(value);
    one::<bool>(value);
}
