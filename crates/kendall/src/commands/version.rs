//! `kendall --version --verbose`: what a report of a defect needs to say.

use crate::export;

/// Keys that differ between machines of one kind.
const OF_ONE_MACHINE: [&str; 2] = ["machine", "boot_id"];

/// Build, formats and machine, a line each.
pub(super) fn details() -> String {
    let mut lines = vec![format!("kendall {}", env!("CARGO_PKG_VERSION"))];
    let mut line = |name: &str, text: String| lines.push(format!("{name:<16} {text}"));
    // Set by scripts/dist.
    line("revision", option_env!("KENDALL_REVISION").unwrap_or("not stated").to_owned());
    let links = if cfg!(target_feature = "crt-static") { "static" } else { "dynamic" };
    let checks = if cfg!(debug_assertions) { "debug" } else { "optimized" };
    let panics = if cfg!(panic = "abort") { "abort" } else { "unwind" };
    let target = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    line("build", format!("{target}, {links}, {checks}, panic {panics}"));
    line(
        "formats",
        format!(
            "results {}, report {}, export {}, load {}, snapshot {}",
            kendall_store::SCHEMA_VERSION,
            kendall_report::REPORT_VERSION,
            export::VERSION,
            kendall_protocols::load_result::RESULT_VERSION,
            kendall_protocols::snapshot::SNAPSHOT_VERSION,
        ),
    );
    for (name, value) in kendall_host::machine::machine() {
        if !OF_ONE_MACHINE.contains(&name.as_str()) {
            line(&name, value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::details;

    #[test]
    fn what_a_report_of_a_defect_needs_is_there_and_not_whose_machine_it_is() {
        let text = details();
        for name in ["kendall ", "revision ", "build ", "formats ", "kernel ", "cores "] {
            assert!(text.lines().any(|line| line.starts_with(name)), "no {name}: {text}");
        }
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert!(!text.lines().any(|line| line.ends_with(&format!(" {}", host.trim()))), "{text}");
    }
}
