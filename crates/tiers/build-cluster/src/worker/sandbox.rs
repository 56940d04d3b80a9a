//! The place where a slot's actions run: namespaces of its own, a root that shows the system's
//! programs read-only and nothing else of the machine, and a user without rights.
//!
//! Made once a slot, before its first action: an action then costs no mount and no namespace.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets};
use serde::{Deserialize, Serialize};

use super::bounds::ActionBounds;
use super::usage;

/// What an action sees of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Folder of the slot: `build`, `tmp`, `shm`, `root` and the two logs are in it.
    pub folder: PathBuf,
    /// Namespaces, or none of them.
    pub namespaces: bool,
    /// User that actions run as, when the worker is root.
    pub user: u32,
    pub group: u32,
    /// Whether actions share the machine's network.
    pub network: bool,
    /// Further folders that actions see, read-only.
    pub visible: Vec<PathBuf>,
    /// Largest file that an action may write.
    pub file_bytes: u64,
    pub bounds: ActionBounds,
    /// Most processes of the user of actions, of whatever slot: where the kernel does not count those of a slot.
    pub processes: u64,
}

/// Folders of the system that actions see, read-only.
pub(super) const SYSTEM: &[&str] =
    &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix"];
/// Devices that actions see.
const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];
/// Where the input root is, for an action in a root of its own.
pub const BUILD: &str = "/build";

#[derive(Debug, thiserror::Error)]
#[error("cannot {step}")]
pub struct SandboxError {
    step: String,
    source: io::Error,
}

fn step<T, E: Into<io::Error>>(
    result: Result<T, E>,
    words: impl FnOnce() -> String,
) -> Result<T, SandboxError> {
    result.map_err(|source| SandboxError { step: words(), source: source.into() })
}

impl Sandbox {
    /// Leaves the machine's namespaces: the next child is the first process of the new ones. The
    /// caller must have one thread.
    pub fn leave(&self) -> Result<(), SandboxError> {
        let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
        step(usage::leave_namespaces(!self.network, !user.is_root()), || {
            "make namespaces; the system must permit them, also those of users if the worker is not root \
             (see --isolation)"
                .to_owned()
        })?;
        if !user.is_root() {
            map_users(user.as_raw(), group.as_raw())?;
            keep_rights()?;
        }
        Ok(())
    }

    /// Makes the root and enters it. What could be left out is returned as notes.
    pub fn enter(&self) -> Result<String, SandboxError> {
        let mut notes = String::new();
        let root = self.folder.join("root");
        let change = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        step(rustix::mount::mount_change("/", change), || "make the mounts private".to_owned())?;
        let none = MountFlags::NOSUID | MountFlags::NODEV;
        step(rustix::mount::mount("tmpfs", &root, "tmpfs", none, c"mode=0755,size=1m"), || {
            format!("mount {}", root.display())
        })?;
        let system = SYSTEM.iter().map(Path::new);
        for folder in system.chain(self.visible.iter().map(PathBuf::as_path)) {
            show(&root, folder)?;
        }
        for (from, to) in
            [("build", "build"), ("tmp", "tmp"), ("tmp", "var/tmp"), ("shm", "dev/shm")]
        {
            let target = make(&root, to)?;
            let flags = MountFlags::NOSUID | MountFlags::NODEV;
            bind(&self.folder.join(from), &target, flags)?;
        }
        for device in DEVICES {
            let (from, to) = (Path::new("/dev").join(device), root.join("dev").join(device));
            if from.exists() {
                step(fs::write(&to, ""), || format!("make {}", to.display()))?;
                step(rustix::mount::mount_bind(&from, &to), || format!("show {}", from.display()))?;
            }
        }
        for (name, target) in [("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0")]
            .into_iter()
            .chain([("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2")])
        {
            step(symlink(target, root.join("dev").join(name)), || format!("make /dev/{name}"))?;
        }
        let proc = make(&root, "proc")?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        if let Err(error) = rustix::mount::mount("proc", &proc, "proc", flags, None) {
            notes.push_str(&format!("actions see no /proc ({error}); "));
        }
        self.turn(&root)?;
        if !self.network
            && let Err(error) = super::loopback::raise()
        {
            notes.push_str(&format!("actions have no loopback ({error}); "));
        }
        if let Err(error) = rustix::system::sethostname(b"kendall-worker") {
            notes.push_str(&format!("actions see the machine's name ({error}); "));
        }
        Ok(notes)
    }

    /// Makes the new root the root.
    fn turn(&self, root: &Path) -> Result<(), SandboxError> {
        step(rustix::process::chdir(root), || format!("enter {}", root.display()))?;
        step(rustix::process::pivot_root(".", "."), || "change the root".to_owned())?;
        step(rustix::mount::unmount(".", UnmountFlags::DETACH), || "leave the root".to_owned())?;
        step(rustix::process::chdir("/"), || "enter the root".to_owned())?;
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        step(rustix::mount::mount_remount("/", flags | MountFlags::BIND, c""), || {
            "make the root read-only".to_owned()
        })
    }

    /// Gives up all rights, for good, and sets the bounds of actions. What could be left out is returned as notes.
    pub fn drop_rights(&self) -> Result<String, SandboxError> {
        let mut notes = String::new();
        let limit = |resource, most: u64| {
            // Where the worker itself may use less, that is the limit.
            let now = rustix::process::getrlimit(resource).maximum;
            let most = Some(now.map_or(most, |now| now.min(most)));
            let both = Rlimit { current: most, maximum: most };
            step(rustix::process::setrlimit(resource, both), || "set limits".to_owned())
        };
        limit(Resource::Fsize, self.file_bytes)?;
        limit(Resource::Core, 0)?;
        let mut own_users = self.namespaces && counts_by_namespace();
        if rustix::process::getuid().is_root() {
            self.become_user()?;
            if own_users && let Err(error) = self.enter_own_users()? {
                notes =
                    format!("the kernel bounds the processes of all slots together ({error}); ");
                own_users = false;
            }
        }
        limit(Resource::Nproc, if own_users { self.bounds.of_slot() } else { self.processes })?;
        let none = CapabilitySet::empty();
        set_rights(none, none)?;
        step(rustix::thread::set_no_new_privs(true), || "give up new rights".to_owned())?;
        let hidden = DumpableBehavior::NotDumpable;
        step(rustix::process::set_dumpable_behavior(hidden), || "hide from actions".to_owned())?;
        let die = Some(Signal::KILL);
        step(rustix::process::set_parent_process_death_signal(die), || {
            "end with the worker".to_owned()
        })?;
        rustix::process::umask(rustix::fs::Mode::from_bits_truncate(0o022));
        Ok(notes)
    }

    /// Becomes the user of actions, and keeps the right to make a namespace of users, which some systems give to
    /// none but root.
    fn become_user(&self) -> Result<(), SandboxError> {
        use rustix::process::{Gid, Uid};
        let (user, group) = (Uid::from_raw(self.user), Gid::from_raw(self.group));
        step(rustix::thread::set_keep_capabilities(true), || "keep rights".to_owned())?;
        step(rustix::thread::set_thread_groups(&[]), || "leave groups".to_owned())?;
        step(rustix::thread::set_thread_res_gid(group, group, group), || {
            format!("become group {}", self.group)
        })?;
        step(rustix::thread::set_thread_res_uid(user, user, user), || {
            format!("become user {}", self.user)
        })?;
        set_rights(CapabilitySet::SYS_ADMIN, CapabilitySet::SYS_ADMIN)
    }

    /// Gives this slot of a worker that is root a namespace of users of its own, in which the kernel counts its
    /// processes apart from those of other slots. The inner error: there is none to be had.
    fn enter_own_users(&self) -> Result<io::Result<()>, SandboxError> {
        // What `map` writes to is this process's own only while it may be looked at; no action runs yet.
        let open = DumpableBehavior::Dumpable;
        step(rustix::process::set_dumpable_behavior(open), || "map users".to_owned())?;
        if let Err(error) = fs::metadata("/proc/self/uid_map").and_then(|_| usage::leave_users()) {
            return Ok(Err(error));
        }
        map_users(self.user, self.group).map(Ok)
    }
}

/// Has the user and the group mean the same in the namespace of users that this process made.
fn map_users(user: u32, group: u32) -> Result<(), SandboxError> {
    let map = |name: &str, text: String| {
        let path = format!("/proc/self/{name}");
        step(fs::write(&path, text), || format!("write {path}"))
    };
    map("setgroups", "deny".to_owned())?;
    map("uid_map", format!("{user} {user} 1"))?;
    map("gid_map", format!("{group} {group} 1"))
}

/// Whether the kernel counts the processes of a user in each namespace of users by itself: since Linux 5.14.
fn counts_by_namespace() -> bool {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let mut number = || numbers.next().and_then(Result::ok).unwrap_or(0);
    (number(), number()) >= (5, 14)
}

fn set_rights(effective: CapabilitySet, permitted: CapabilitySet) -> Result<(), SandboxError> {
    let sets = CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() };
    step(rustix::thread::set_capabilities(None, sets), || "drop capabilities".to_owned())
}

/// Has the next program keep what it needs to make the place: of a user that is not root, a program that is
/// run loses the rights that the user has in the new namespaces.
fn keep_rights() -> Result<(), SandboxError> {
    let words = || "keep rights in the namespaces".to_owned();
    let mut sets = step(rustix::thread::capabilities(None), words)?;
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    sets.inheritable |= needed;
    step(rustix::thread::set_capabilities(None, sets), words)?;
    needed.iter().try_for_each(|one| {
        step(rustix::thread::configure_capability_in_ambient_set(one, true), words)
    })
}

/// Makes a folder in the new root.
fn make(root: &Path, name: &str) -> Result<PathBuf, SandboxError> {
    let path = root.join(name);
    step(fs::create_dir_all(&path), || format!("make {}", path.display()))?;
    Ok(path)
}

/// Shows a folder of the system in the new root, read-only; a link as the link that it is.
fn show(root: &Path, folder: &Path) -> Result<(), SandboxError> {
    let Ok(meta) = fs::symlink_metadata(folder) else { return Ok(()) };
    let inside = folder.strip_prefix("/").unwrap_or(folder);
    let target = root.join(inside);
    if meta.is_symlink() {
        let link = step(fs::read_link(folder), || format!("read {}", folder.display()))?;
        return step(symlink(link, &target), || format!("make {}", target.display()));
    }
    step(fs::create_dir_all(&target), || format!("make {}", target.display()))?;
    bind(folder, &target, MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV)
}

/// Shows `from` at `to`. Flags that the source has already cannot be taken away by users without
/// rights, so they are kept.
fn bind(from: &Path, to: &Path, flags: MountFlags) -> Result<(), SandboxError> {
    let words = || format!("show {} to actions", from.display());
    step(rustix::mount::mount_bind_recursive(from, to), words)?;
    let again = |more| rustix::mount::mount_remount(to, MountFlags::BIND | flags | more, c"");
    let kept = again(MountFlags::empty())
        .or_else(|_| again(MountFlags::RELATIME))
        .or_else(|_| again(MountFlags::NOATIME))
        .or_else(|_| again(MountFlags::NOEXEC | MountFlags::RELATIME));
    step(kept, words)
}
