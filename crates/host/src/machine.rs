//! What is known about the machine that this program runs on.

use procfs::Current as _;
use serde_json::{Map, Value as Json, json};

/// What the machine is that this program runs on.
pub fn machine() -> Map<String, Json> {
    let mut all = Map::new();
    let mut put = |key: &str, value: Option<Json>| {
        if let Some(value) = value {
            all.insert(key.to_owned(), value);
        }
    };
    put("machine", read("/proc/sys/kernel/hostname").map(Json::from));
    put("boot_id", read("/proc/sys/kernel/random/boot_id").map(Json::from));
    put("kernel", read("/proc/sys/kernel/osrelease").map(Json::from));
    put("system", os_name().map(Json::from));
    put("architecture", Some(json!(std::env::consts::ARCH)));
    if let Ok(cpu) = procfs::CpuInfo::current() {
        put("cores", Some(json!(cpu.num_cores())));
        put("cpu_model", cpu.model_name(0).map(Json::from));
    }
    put("memory_bytes", procfs::Meminfo::current().ok().map(|memory| json!(memory.mem_total)));
    put("clock_source", read(CLOCK_SOURCE).map(Json::from));
    put("cpu_governor", read(GOVERNOR).map(Json::from));
    all
}

const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
const GOVERNOR: &str = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn os_name() -> Option<String> {
    let release = std::fs::read_to_string("/etc/os-release").ok()?;
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}
