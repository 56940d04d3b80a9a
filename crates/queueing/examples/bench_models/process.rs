//! What the kernel accounts to a benchmark.

/// CPU seconds used so far by this thread; 0 where the kernel does not say.
pub(crate) fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split_whitespace().next().and_then(|first| first.parse::<f64>().ok());
    nanoseconds.unwrap_or(0.0) / 1e9
}

/// Largest resident memory so far, in MiB.
pub(crate) fn peak_memory_mib() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    let kib = line.split_whitespace().next().and_then(|first| first.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}
