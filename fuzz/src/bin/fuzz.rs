//! One target under an engine that follows coverage: `KENDALL_FUZZ_TARGET=NAME fuzz [FOLDER…]`.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

static RUN: OnceLock<fn(&[u8])> = OnceLock::new();

fuzz_target!(
    init: {
        let name = std::env::var("KENDALL_FUZZ_TARGET").unwrap_or_default();
        let Some(target) = kendall_fuzz::find(&name) else {
            let names: Vec<&str> = kendall_fuzz::TARGETS.iter().map(|one| one.name).collect();
            panic!("KENDALL_FUZZ_TARGET is `{name}`; it is one of {}", names.join(", "));
        };
        RUN.get_or_init(|| target.run);
    },
    |bytes: &[u8]| {
        if let Some(run) = RUN.get() {
            run(bytes);
        }
    }
);
