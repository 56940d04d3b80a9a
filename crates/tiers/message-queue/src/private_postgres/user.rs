//! The user that runs the server, and the folders that are only for it.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{
    CWD, Dir, Gid, Mode, OFlags, ResolveFlags, Uid, fchmod, fchown, fstat, mkdirat, openat, openat2,
};
use rustix::io::Errno;
use rustix::process::getuid;

use super::error::PrivatePostgresError;

/// A path in a socket address has 107 bytes, of which the file's name takes 16.
const SOCKET_FOLDER_BYTES: usize = 90;

/// What a folder that exists may hold.
#[derive(Debug, Clone, Copy)]
pub(super) enum Contents {
    /// A cluster of ours, or nothing.
    OfACluster,
    Any,
}

/// Who runs the server: this user, or, for root, the user `postgres`.
#[derive(Debug, Clone, Copy)]
pub(super) struct User {
    pub(super) switch: Option<(u32, u32)>,
}

impl User {
    pub(super) fn of_server() -> Result<Self, PrivatePostgresError> {
        if !getuid().is_root() {
            return Ok(Self { switch: None });
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let fields = users.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some("postgres")).then(|| (fields.nth(1), fields.next()))
        });
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok());
        let (uid, gid) = fields.ok_or(PrivatePostgresError::NoUser)?;
        let switch = number(uid).zip(number(gid)).ok_or(PrivatePostgresError::NoUser)?;
        Ok(Self { switch: Some(switch) })
    }

    /// Whether all folders above `path` let this user pass.
    pub(super) fn may_enter(self, path: &Path) -> Result<(), PrivatePostgresError> {
        let Some((uid, gid)) = self.switch else { return Ok(()) };
        let failed = |source| PrivatePostgresError::Folder { path: path.to_owned(), source };
        let path = std::path::absolute(path).map_err(failed)?;
        for folder in path.ancestors().skip(1).filter(|folder| folder.exists()) {
            let about = fs::metadata(folder).map_err(failed)?;
            let enters = match () {
                () if about.uid() == uid => 0o100,
                () if about.gid() == gid => 0o010,
                () => 0o001,
            };
            if about.mode() & enters == 0 {
                return Err(PrivatePostgresError::Closed { folder: folder.to_owned() });
            }
        }
        Ok(())
    }

    /// Makes a folder that only this user may enter, and gives its full path.
    ///
    /// One that exists must be ours or empty. What is changed is changed by its descriptor, and no
    /// symbolic link is followed: not to another folder than the one that was checked.
    pub(super) fn folder(
        self,
        path: &Path,
        contents: Contents,
    ) -> Result<PathBuf, PrivatePostgresError> {
        self.may_enter(path)?;
        let failed =
            |source: io::Error| PrivatePostgresError::Folder { path: path.to_owned(), source };
        let system = |error: Errno| failed(error.into());
        let whole = std::path::absolute(path).map_err(failed)?;
        let (Some(parent), Some(name)) = (whole.parent(), whole.file_name()) else {
            let why = "it is not a folder of its own";
            return Err(PrivatePostgresError::NotOurs { path: whole, why });
        };
        fs::create_dir_all(parent).map_err(failed)?;
        let parent = parent.canonicalize().map_err(failed)?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let above = openat2(CWD, &parent, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
            .map_err(system)?;
        let existed = match mkdirat(&above, name, Mode::RWXU) {
            Ok(()) => false,
            Err(Errno::EXIST) => true,
            Err(error) => return Err(system(error)),
        };
        let whole = parent.join(name);
        let folder = match openat(&above, name, flags, Mode::empty()) {
            Ok(folder) => folder,
            Err(Errno::LOOP | Errno::NOTDIR) => {
                let why = "it is a symbolic link, or no folder";
                return Err(PrivatePostgresError::NotOurs { path: whole, why });
            }
            Err(error) => return Err(system(error)),
        };
        let about = fstat(&folder).map_err(system)?;
        if existed {
            self.refuse_foreign(&whole, &folder, about.st_uid, contents)?;
        }
        if let Some((uid, gid)) = self.switch
            && about.st_uid != uid
        {
            fchown(&folder, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).map_err(system)?;
        }
        fchmod(&folder, Mode::RWXU).map_err(system)?;
        Ok(whole)
    }

    /// Refuses a folder of another user, or with other content.
    fn refuse_foreign(
        self,
        path: &Path,
        folder: &OwnedFd,
        owner: u32,
        contents: Contents,
    ) -> Result<(), PrivatePostgresError> {
        let refused = |why| Err(PrivatePostgresError::NotOurs { path: path.to_owned(), why });
        let server = self.switch.map_or(getuid().as_raw(), |(uid, _)| uid);
        if owner != server && owner != getuid().as_raw() {
            return refused("it belongs to another user");
        }
        if matches!(contents, Contents::Any) {
            return Ok(());
        }
        let failed = |error: Errno| PrivatePostgresError::Folder {
            path: path.to_owned(),
            source: error.into(),
        };
        let mut cluster = false;
        let mut foreign = false;
        let mut empty = true;
        for entry in Dir::read_from(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            match entry.file_name().to_bytes() {
                b"." | b".." => continue,
                b"data" => cluster = path.join("data/PG_VERSION").exists(),
                // What a first start leaves that was cut off.
                b"data.making" | b"socket" | b"postgres.log" => {}
                _ => foreign = true,
            }
            empty = false;
        }
        match () {
            () if empty => Ok(()),
            () if owner != server => refused("it is not empty, and belongs to another user"),
            () if cluster || !foreign => Ok(()),
            () => refused("it is not empty, and holds no PostgreSQL of a queue"),
        }
    }

    /// A folder for the sockets: in the data's folder, unless its path is too long for a socket; then a new
    /// one, of a name that cannot be predicted.
    pub(super) fn socket_folder(
        self,
        folder: &Path,
    ) -> Result<(PathBuf, Option<tempfile::TempDir>), PrivatePostgresError> {
        let beside = folder.join("socket");
        if beside.as_os_str().len() <= SOCKET_FOLDER_BYTES {
            return Ok((self.folder(&beside, Contents::Any)?, None));
        }
        let temporary = tempfile::Builder::new().prefix("kendall-queue-").tempdir();
        let temporary = temporary.map_err(|source| PrivatePostgresError::Folder {
            path: std::env::temp_dir(),
            source,
        })?;
        let sockets = self.folder(temporary.path(), Contents::Any)?;
        Ok((sockets, Some(temporary)))
    }

    pub(super) fn command(self, program: PathBuf) -> Command {
        let mut command = Command::new(program);
        if let Some((uid, gid)) = self.switch {
            command.uid(uid).gid(gid);
        }
        // Without the caller's variables for databases.
        for name in ["PGDATA", "PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGOPTIONS"] {
            command.env_remove(name);
        }
        command.env("LC_ALL", "C.UTF-8").current_dir("/").stdin(Stdio::null());
        command
    }
}

/// Flags of `open` that refuse a symbolic link.
pub(super) fn no_links() -> i32 {
    i32::try_from(OFlags::NOFOLLOW.bits()).expect("flags of open are an int")
}
