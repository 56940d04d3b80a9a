//! A TCP relay that adds delay, jitter, bandwidth limits and faults.
