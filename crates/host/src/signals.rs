//! Signals as a program expects them.

/// Takes back what the parent of this process set for it: an ignored SIGCHLD, with which no child's end can be
/// waited for, and blocked signals, with which no signal stops it. Call it before the first thread is started.
#[expect(unsafe_code, reason = "no safe wrapper sets a signal's default action")]
pub fn as_usual() {
    // SAFETY: an action and a set of all zeros are the default one and the empty set; both live through the calls.
    unsafe {
        let usual: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGCHLD, &raw const usual, std::ptr::null_mut());
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}
