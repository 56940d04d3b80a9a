//! Memory that stays with the process.

/// Has the allocator keep up to 16 MiB a thread of what is freed, and take blocks of up to 4 MiB from it.
///
/// Uploads take and free a message of a megabyte after the other. By itself the allocator gives each of
/// them back to the system and takes it anew, page by page: 900 page faults in a write of 10 MiB, and a
/// tenth of its time.
#[cfg(target_env = "gnu")]
#[expect(
    unsafe_code,
    reason = "the C library has no safe way to set bounds; it may be called at any time"
)]
pub(super) fn keep() {
    const KEPT: libc::c_int = 16 << 20;
    const LARGE: libc::c_int = 4 << 20;
    // SAFETY: two calls with numbers; `mallopt` takes its locks itself and refuses what it cannot keep to.
    let kept = unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT) == 1
            && libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) == 1
    };
    if !kept {
        tracing::debug!("the allocator does not take its bounds");
    }
}

/// Other allocators have bounds of their own.
#[cfg(not(target_env = "gnu"))]
pub(super) fn keep() {}
