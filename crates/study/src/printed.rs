//! For `fuzz/`: what other programs print, without a program around it. No interface for programs.

use crate::{hosts, instance, remarks};

/// What `kubectl` prints: a list of pods, or words for people.
///
/// # Panics
/// When words for people are left out altogether, or a pod that never runs is waited for without end.
pub fn kubectl(bytes: &[u8]) {
    hosts::fuzz_kubectl(&String::from_utf8_lossy(bytes));
}

/// What tiers and servers print: that they are ready, where, and their last words.
///
/// # Panics
/// When something is read out of it that is not there.
pub fn lines(bytes: &[u8]) {
    instance::fuzz(bytes);
    remarks::fuzz(&String::from_utf8_lossy(bytes));
}
