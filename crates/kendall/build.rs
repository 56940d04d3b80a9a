//! Has the linker leave the tables for unwinding out of a released program (docs/decisions/0101-a-panic-ends-the-program.md).

use std::env;
use std::path::Path;

/// Set to anything, it keeps the tables: for debuggers, and for linkers that know no linker scripts.
const KEEP: &str = "KENDALL_KEEP_UNWINDING";
const SCRIPT: &str = "no-unwinding.ld";
/// A static program contains the unwinder, which aborts without tables where a backtrace is asked for. Its entry becomes a
/// function of no effect, so that a backtrace is empty.
const NO_BACKTRACE: &str =
    "-Wl,--wrap=_Unwind_Backtrace,--defsym=__wrap__Unwind_Backtrace=sched_yield";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SCRIPT}");
    println!("cargo::rerun-if-env-changed={KEEP}");
    if leaves_them_out() {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(SCRIPT);
        println!("cargo::rustc-link-arg-bins=-T{}", script.display());
        let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
        if features.split(',').any(|feature| feature == "crt-static") {
            println!("cargo::rustc-link-arg-bins={NO_BACKTRACE}");
        }
    }
}

fn leaves_them_out() -> bool {
    let is = |name: &str, wanted: &str| env::var(name).is_ok_and(|value| value == wanted);
    let tried = is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && is("CARGO_CFG_TARGET_ARCH", "x86_64");
    // In a build for profilers too, a stack is followed by the tables.
    tried && is("PROFILE", "release") && is("DEBUG", "false") && env::var_os(KEEP).is_none()
}
