//! Memory that goes back to the system.

/// Gives free memory back to the system. The allocator keeps the parts between buffers that are
/// still used; after hundreds of large ones that is a hundred megabytes.
#[cfg(target_env = "gnu")]
#[expect(
    unsafe_code,
    reason = "the C library has no safe way to ask; it may be called at any time"
)]
pub(crate) fn give_back() {
    // SAFETY: `malloc_trim` takes its locks itself and only returns pages that nothing uses.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Other allocators give it back by themselves.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn give_back() {}
