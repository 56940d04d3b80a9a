//! Starts the program of an action.
//!
//! As the C library's `posix_spawn` does it: the new process borrows this one's memory until it runs the program, so that
//! no table of pages is copied. That one asks for each of 64 signals what is done with it, and makes a stack anew
//! for every start, which is a quarter of what a start costs the slot; here signals lose their handlers once, when
//! the starter is made, and the stack stays. The descriptor by which the end of the process is awaited comes with it.

use std::ffi::{CString, NulError, c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::process::Pid;

use super::usage;

/// Space for a few system calls, in words of 16 bytes, by which stacks are aligned: 64 KiB.
const STACK: usize = 4096;

#[derive(Debug)]
pub(super) struct Program {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    directory: CString,
}

impl Program {
    /// The program at `path` in `directory`, with all its arguments, the first of which is its name, and its whole
    /// environment.
    pub(super) fn new<'a>(
        path: &Path,
        directory: &Path,
        arguments: &[String],
        environment: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, NulError> {
        let words = arguments.iter().map(|word| CString::new(word.as_str()));
        let variables = environment.into_iter();
        let variables = variables.map(|(name, value)| CString::new(format!("{name}={value}")));
        Ok(Self {
            path: CString::new(path.as_os_str().as_bytes())?,
            arguments: words.collect::<Result<_, _>>()?,
            environment: variables.collect::<Result<_, _>>()?,
            directory: CString::new(directory.as_os_str().as_bytes())?,
        })
    }
}

/// What every start needs. As long as there is one, no signal may be given a handler in this process.
#[derive(Debug)]
pub(super) struct Starter {
    stack: Box<[MaybeUninit<u128>]>,
    nothing: File,
    /// Signals that this process ignores, as its parent did.
    ignored: Vec<c_int>,
}

/// What the new process is to know, and what it says when it fails.
struct Errand {
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    directory: *const c_char,
    descriptors: [c_int; 3],
    ignored: *const c_int,
    ignored_count: usize,
    error: c_int,
}

impl Starter {
    /// Space, and what actions read from. Takes the handlers of this process's signals away: the standard library
    /// has some, which write what overflowed before the process ends.
    pub(super) fn new() -> io::Result<Self> {
        let ignored = drop_handlers();
        let stack = vec![MaybeUninit::uninit(); STACK].into_boxed_slice();
        Ok(Self { stack, nothing: File::open("/dev/null")?, ignored })
    }

    /// Starts a program that reads nothing and writes to these files; returns it and the descriptor that is readable
    /// once it has ended. It is to be waited for.
    pub(super) fn start(
        &mut self,
        program: &Program,
        stdout: &File,
        stderr: &File,
    ) -> io::Result<(Pid, OwnedFd)> {
        let descriptors = [&self.nothing, stdout, stderr].map(|file| file.as_raw_fd());
        // Where they are to go, nothing of them may lie yet.
        if descriptors.iter().any(|descriptor| *descriptor < 3) {
            return Err(io::Error::other("the slot's files lie where the action's are to be"));
        }
        let (arguments, environment) =
            (pointers(&program.arguments), pointers(&program.environment));
        let mut errand = Errand {
            path: program.path.as_ptr(),
            arguments: arguments.as_ptr(),
            environment: environment.as_ptr(),
            directory: program.directory.as_ptr(),
            descriptors,
            ignored: self.ignored.as_ptr(),
            ignored_count: self.ignored.len(),
            error: 0,
        };
        let (pid, descriptor) = spawn(&mut self.stack, &mut errand)?;
        if errand.error == 0 {
            return Ok((pid, descriptor));
        }
        usage::wait(pid)?;
        Err(io::Error::from_raw_os_error(errand.error))
    }
}

/// Pointers to texts, and the one that ends them.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Has signals that have a handler do by themselves what they do in a process that gave them none. The new process
/// must unblock signals before it runs its program, which would inherit the mask, and a handler that ran then would
/// work in the memory of this process. Returns those that are ignored.
#[expect(unsafe_code, reason = "no safe wrapper asks what is done with a signal")]
fn drop_handlers() -> Vec<c_int> {
    let mut ignored = Vec::new();
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: an action of all zeros is the default one, and both point to values that live through the calls.
        // Those few signals that no process may ask about refuse.
        unsafe {
            let usual: libc::sigaction = std::mem::zeroed();
            let mut now = usual;
            let asked = libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0;
            match now.sa_sigaction {
                libc::SIG_IGN if asked => ignored.push(signal),
                libc::SIG_DFL => {}
                _ if asked => {
                    libc::sigaction(signal, &raw const usual, std::ptr::null_mut());
                }
                _ => {}
            }
        }
    }
    ignored
}

/// Starts a process with the memory of this one, which goes on when that one runs its program or has failed.
#[expect(unsafe_code, reason = "no safe wrapper starts a process with the memory of this one")]
fn spawn(stack: &mut [MaybeUninit<u128>], errand: &mut Errand) -> io::Result<(Pid, OwnedFd)> {
    const FLAGS: c_int = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    let mut descriptor: c_int = -1;
    // SAFETY: the sets are valid when they are all zeros, and are written before they are read. The stack is aligned,
    // is used by one process at a time, and stays, with what the errand points to, until the call returns: that is
    // when the new process has memory of its own or has ended. No handler can run in it meanwhile: its signals are
    // blocked until just before its program runs, and a `Starter`, whose stack this is, has left none to run.
    // The descriptor is a new one, which is closed here only.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
        let top = stack.as_mut_ptr_range().end.cast::<c_void>();
        let told = std::ptr::from_mut(errand).cast::<c_void>();
        let pid = libc::clone(run, top, FLAGS, told, &raw mut descriptor);
        let failed = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        match Pid::from_raw(pid) {
            Some(pid) if pid.as_raw_nonzero().get() > 0 => {
                Ok((pid, OwnedFd::from_raw_fd(descriptor)))
            }
            _ => Err(failed),
        }
    }
}

/// What the new process does until it runs its program: a few system calls, and nothing that takes memory or a lock.
#[expect(
    unsafe_code,
    reason = "between the start of a process and its program there are only these calls"
)]
extern "C" fn run(told: *mut c_void) -> c_int {
    // SAFETY: `told` is the argument of `spawn`, whose process is suspended meanwhile. Everything in it points to texts and lists
    // that end with a zero and outlive this. The action of all zeros is the default one.
    unsafe {
        let errand = &mut *told.cast::<Errand>();
        let placed = (0..).zip(errand.descriptors).all(|(to, from)| libc::dup2(from, to) == to);
        // Whatever this process, or the one that started the worker, has open besides: the table of descriptors is
        // the new process's own.
        let closed = placed && libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) == 0;
        if closed && libc::chdir(errand.directory) == 0 {
            let usual: libc::sigaction = std::mem::zeroed();
            // An action that is ignored is inherited; the others come to the program as usual.
            for place in 0..errand.ignored_count {
                let signal = *errand.ignored.add(place);
                libc::sigaction(signal, &raw const usual, std::ptr::null_mut());
            }
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            libc::execve(errand.path, errand.arguments, errand.environment);
        }
        errand.error = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
        libc::_exit(127)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::io::Seek as _;

    use super::*;

    /// What a shell script in a folder says on its two outputs, and its exit code.
    fn run(starter: &mut Starter, script: &str, folder: &Path) -> (String, String, i32) {
        let mut files = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
        let arguments = ["name", "-c", script].map(str::to_owned);
        let program =
            Program::new(Path::new("/bin/sh"), folder, &arguments, [("A", "b c"), ("D", "")]);
        let [stdout, stderr] = &files;
        let (pid, ended) = starter.start(&program.unwrap(), stdout, stderr).unwrap();
        let mut poll = [rustix::event::PollFd::new(&ended, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut poll, None).unwrap();
        let status = usage::wait(pid).unwrap().status;
        let [out, errors] = files.each_mut().map(|file| {
            let mut text = String::new();
            file.rewind().unwrap();
            file.read_to_string(&mut text).unwrap();
            text
        });
        (out, errors, status.code().unwrap())
    }

    #[test]
    fn a_program_has_the_words_the_environment_the_folder_and_the_files_that_it_was_given() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let mut starter = Starter::new().unwrap();
        for _ in 0..3 {
            let script = "echo $0 \"$A\" \"$D\"; pwd; cat; echo bad >&2; exit 3";
            let (out, errors, code) = run(&mut starter, script, &path);
            assert_eq!(out, format!("name b c \n{}\n", path.display()));
            assert_eq!((errors.as_str(), code), ("bad\n", 3));
        }
        let (out, _, _) = run(&mut starter, "/usr/bin/env -u PWD -u OLDPWD -u SHLVL -u _", &path);
        assert_eq!(out, "A=b c\nD=\n");
    }

    /// Not even what this process itself was given without the mark that closes it: a file, a pair of sockets.
    #[test]
    fn a_program_holds_no_file_of_the_slot() {
        use rustix::fs::{Mode, OFlags};
        use rustix::net::{AddressFamily, SocketFlags, SocketType};
        let mut starter = Starter::new().unwrap();
        let _kept = std::array::from_fn::<File, 20, _>(|_| tempfile::tempfile().unwrap());
        let _file = rustix::fs::open("/dev/zero", OFlags::RDWR, Mode::empty()).unwrap();
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let pair = rustix::net::socketpair(family, kind, SocketFlags::empty(), None);
        let far = rustix::io::fcntl_dupfd_cloexec(&pair.unwrap().0, 900).unwrap();
        rustix::io::fcntl_setfd(&far, rustix::io::FdFlags::empty()).unwrap();
        // While the shell lists them it has the folder open itself.
        let script = "for f in /proc/$$/fd/*; do [ -e $f ] && echo ${f##*/}; done; exit 0";
        assert_eq!(run(&mut starter, script, Path::new("/")).0, "0\n1\n2\n");
    }

    /// No signal is blocked, and none is ignored, whatever this process ignores.
    #[test]
    fn every_signal_reaches_a_program() {
        let of = |status: &str, name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        let mut starter = Starter::new().unwrap();
        let (there, _, _) = run(&mut starter, "cat /proc/self/status", Path::new("/"));
        let here = std::fs::read_to_string("/proc/self/status").unwrap();
        let pipe = 1 << (libc::SIGPIPE - 1);
        assert_ne!(of(&here, "SigIgn:") & pipe, 0);
        // The C library keeps two signals for its threads: it blocks and changes neither for a caller.
        let of_threads = 0b11 << 31;
        assert_eq!(of(&there, "SigIgn:") & !of_threads, 0);
        assert_eq!(of(&there, "SigBlk:") & !of_threads, 0);
        // Nothing of this process can run between the unblocking of a signal and the program.
        assert_eq!(of(&here, "SigCgt:") & !of_threads, 0);
    }

    #[test]
    fn what_cannot_be_started_says_why_and_leaves_no_process() {
        let mut starter = Starter::new().unwrap();
        let file = tempfile::tempfile().unwrap();
        let mut start = |path: &str, folder: &str| {
            let words = [path.to_owned()];
            let program = Program::new(Path::new(path), Path::new(folder), &words, []).unwrap();
            starter.start(&program, &file, &file).unwrap_err().kind()
        };
        assert_eq!(start("/nothing/here", "/"), io::ErrorKind::NotFound);
        assert_eq!(start("/bin/sh", "/nothing/here"), io::ErrorKind::NotFound);
        assert_eq!(start("/etc/passwd", "/"), io::ErrorKind::PermissionDenied);
        assert!(Program::new(Path::new("/"), Path::new("/"), &["a\0b".to_owned()], []).is_err());
    }
}
