//! What a machine takes away that no ordinary test may: a test that runs once more in a mount namespace of its
//! own, where it mounts what it likes, and disks without room. That takes root, or user namespaces.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests fail by panicking, and show what the run inside said"
)]

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Variable of the environment with the folder of what is mounted; set inside the namespace only.
pub const MOUNTED: &str = "KENDALL_TEST_MOUNTED";

/// Runs the test of this name (with its modules: `file::test`) again where the shell command `mount` was done first; gives the folder
/// `$KENDALL_TEST_MOUNTED` inside, and `None` outside, where all is done then.
///
/// # Panics
/// Where nothing may be mounted, or the test fails inside.
pub fn inside(test: &str, mount: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(MOUNTED) {
        return Some(folder.into());
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = format!("{mount} && exec \"$@\"");
    let command = |how: &[&str], program: &[&OsStr]| {
        let mut command = Command::new(how[0]);
        command.args(&how[1..]).args(["sh", "-c", &script, "sh"]).args(program);
        command.env(MOUNTED, folder.path());
        command
    };
    let ways: [&[&str]; 3] = [
        &["unshare", "--mount"],
        &["unshare", "--user", "--map-current-user", "--keep-caps", "--mount"],
        &["sudo", "--non-interactive", "--preserve-env=KENDALL_TEST_MOUNTED", "unshare", "--mount"],
    ];
    let allowed = |way: &&&[&str]| {
        let tried = command(way, &["true".as_ref()]).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    let way = ways.iter().find(allowed).expect(
        "this test mounts something in a namespace of its own, and may not: run the tests as root, or allow \
         user namespaces (sysctl kernel.unprivileged_userns_clone=1, or on Ubuntu \
         kernel.apparmor_restrict_unprivileged_userns=0), or sudo without a password",
    );
    let this = std::env::current_exe().unwrap();
    let options = ["--exact", test, "--nocapture", "--include-ignored"];
    let arguments: Vec<&OsStr> =
        [this.as_os_str()].into_iter().chain(options.map(OsStr::new)).collect();
    let output = command(way, &arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    println!("{said}");
    assert!(output.status.success(), "inside the namespace: {}", output.status);
    assert!(said.contains("1 passed"), "the test did not run inside the namespace");
    None
}

/// The same with a disk of so much at that folder.
///
/// # Panics
/// As [`inside`].
pub fn on_a_small_disk(test: &str, size: &str) -> Option<PathBuf> {
    inside(test, &format!("mount -t tmpfs -o size={size},mode=0755 small \"${MOUNTED}\""))
}

/// A file that takes the room of a disk.
#[derive(Debug)]
pub struct Ballast(PathBuf);

impl Ballast {
    /// Leaves so many bytes at most.
    ///
    /// # Panics
    /// Where the disk does not get that full.
    #[must_use]
    pub fn fill(disk: &Path, leave: u64) -> Self {
        let path = disk.join("ballast");
        let file = std::fs::File::create(&path).unwrap();
        // What else is written meanwhile may take a page before this does.
        for _ in 0..100 {
            let about = rustix::fs::statvfs(disk).unwrap();
            let free = about.f_bavail * about.f_frsize;
            if free <= leave {
                return Self(path);
            }
            let length = std::fs::metadata(&path).unwrap().len();
            let flags = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(&file, flags, length, free - leave).unwrap_or_default();
        }
        panic!("{} has more than {leave} bytes left", disk.display());
    }

    /// Gives the room back.
    ///
    /// # Panics
    /// Where it cannot be removed.
    pub fn remove(self) {
        std::fs::remove_file(self.0).unwrap();
    }
}
