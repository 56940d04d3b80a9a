//! System calls that have no safe wrapper: each in a function of its own that has no way to be wrong.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use rustix::process::Pid;
use rustix::thread::UnshareFlags as Flags;

/// How a process ended and what it and those that it waited for used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Used {
    pub(super) status: ExitStatus,
    pub(super) user_us: u64,
    pub(super) system_us: u64,
    pub(super) memory_bytes: u64,
    pub(super) major_faults: u64,
}

pub(super) fn wait(pid: Pid) -> io::Result<Used> {
    let (status, usage) = wait4(pid)?;
    let micros = |time: libc::timeval| {
        time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_usec.cast_unsigned()
    };
    Ok(Used {
        status: ExitStatus::from_raw(status),
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        // The kernel counts in KiB.
        memory_bytes: usage.ru_maxrss.cast_unsigned() << 10,
        major_faults: usage.ru_majflt.cast_unsigned(),
    })
}

/// The one call that tells a child's memory: the usage of *all* children that a process ever waited
/// for, which safe wrappers give, keeps the largest of them for ever.
#[expect(unsafe_code, reason = "no safe wrapper gives the usage of one child")]
fn wait4(pid: Pid) -> io::Result<(i32, libc::rusage)> {
    loop {
        let mut status = 0;
        // SAFETY: both pointers are to values of the right type that live through the call, and a
        // usage of all zeros is a valid one.
        let (usage, result) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            let pid = pid.as_raw_nonzero().get();
            let result = libc::wait4(pid, &raw mut status, 0, &raw mut usage);
            (usage, result)
        };
        if result >= 0 {
            return Ok((status, usage));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Leaves the machine's namespaces of mounts, processes, messages and names, that of the network with `network`,
/// and that of users with `users`, for which the caller must have one thread.
#[expect(unsafe_code, reason = "the wrapper is unsafe because of a flag that is not used here")]
pub(super) fn leave_namespaces(network: bool, users: bool) -> io::Result<()> {
    let always = Flags::NEWNS | Flags::NEWPID | Flags::NEWIPC | Flags::NEWUTS;
    let more = |wanted: bool, flag| if wanted { flag } else { Flags::empty() };
    let flags = always | more(network, Flags::NEWNET) | more(users, Flags::NEWUSER);
    // SAFETY: the one flag that can take something from other threads, their table of descriptors, is `FILES`.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Leaves the namespace of users. The caller must have one thread.
#[expect(unsafe_code, reason = "the wrapper is unsafe because of a flag that is not used here")]
pub(super) fn leave_users() -> io::Result<()> {
    // SAFETY: as above.
    Ok(unsafe { rustix::thread::unshare_unsafe(Flags::NEWUSER) }?)
}

/// Kills every process that this one may kill, but for itself and the first of its namespace. Only
/// the first process of a namespace of its own may call it: it checks that.
#[expect(unsafe_code, reason = "no safe wrapper signals more than one process or group")]
pub(super) fn kill_all() -> io::Result<()> {
    if rustix::process::getpid() != Pid::INIT {
        return Err(io::Error::other("only the first process of a namespace kills all others"));
    }
    // SAFETY: a call with two numbers, which touches no memory of this process.
    let result = unsafe { libc::kill(-1, libc::SIGKILL) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
}
