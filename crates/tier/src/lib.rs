//! What all tiers share: bounded request queue, worker pool, stage clock, instruments, metrics page, graceful stop.
