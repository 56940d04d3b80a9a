//! How the program gets to a host: over the pipe, once, kept there by its digest.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use kendall_units::hex;
use sha2::{Digest as _, Sha256};

/// What the host runs first. Without quotes of its own kind, so that any login shell hands it on to
/// `sh` unread. After `program want` it reads a length and so many bytes, and nothing else is sent
/// until the agent has said hello: `head` may read ahead.
const SCRIPT: &str = r#"
fail() { echo "failed: $*"; exit 1; }
echo "kendall-host $(uname -s) $(uname -m) $(getconf GNU_LIBC_VERSION 2>/dev/null)"
base=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}
folder=$base/kendall/HASH; file=$folder/kendall
digest() { sha256sum < "$1" | cut -c1-64; }
if [ -x "$file" ] && [ "$(digest "$file")" = HASH ]; then echo "program have"; else
umask 077
mkdir -p "$folder" 2>/dev/null || fail "$folder cannot be made: $(mkdir -p "$folder" 2>&1)"
part=$folder/part.$(uname -n).$$
trap "rm -f \"$part\"" EXIT
( : > "$part" ) 2>/dev/null || fail "$folder cannot be written to: a disk that is full or read-only?"
find "$base/kendall" -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf {} + 2>/dev/null
echo "program want"
read -r length || exit 1
head -c "$length" | gzip -dc 2>/dev/null > "$part" || fail "the program cannot be written to $folder: $(df -Pk "$folder" | awk "NR==2 {print \$4}") KiB are free"
[ "$(digest "$part")" = HASH ] || fail "the program was damaged on its way to $folder, or the disk there is full"
chmod 700 "$part" && mv -f "$part" "$file" || fail "$file cannot be put in place"
trap - EXIT
fi
why=$("$file" --version 2>&1 >/dev/null) || fail "$file cannot be run there: $why"
exec "$file" agent --lease LEASE
"#;

/// Name of the static build beside the program, and of the file that says of which program it is the twin.
const TWIN: &str = "kendall-static";
const TWIN_OF: &str = "kendall-static.of";

/// What runs wherever the architecture is the same.
const STATIC: &str =
    "a static build runs there: `make static` makes one, which is carried from then on";

/// The program that is carried.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    bytes: Vec<u8>,
    digest: String,
    packed: OnceLock<Arc<Vec<u8>>>,
}

impl Program {
    pub fn read(path: &Path) -> std::io::Result<Self> {
        let bytes = std::fs::read(path)?;
        let digest = hex(&Sha256::digest(&bytes));
        Ok(Self { path: path.to_owned(), bytes, digest, packed: OnceLock::new() })
    }

    /// Compressed, quickly; made when the first host wants it.
    pub fn packed(&self) -> std::io::Result<Arc<Vec<u8>>> {
        if let Some(packed) = self.packed.get() {
            return Ok(Arc::clone(packed));
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&self.bytes)?;
        let packed = encoder.finish()?;
        Ok(Arc::clone(self.packed.get_or_init(|| Arc::new(packed))))
    }

    /// The static build beside a program, if there is one and it was built with it.
    pub fn twin(own: &Path) -> std::io::Result<Option<PathBuf>> {
        let twin = own.with_file_name(TWIN);
        let Ok(of) = std::fs::read_to_string(own.with_file_name(TWIN_OF)) else { return Ok(None) };
        if !twin.is_file() {
            return Ok(None);
        }
        if of.trim() != hex(&Sha256::digest(std::fs::read(own)?)) {
            let twin = twin.display();
            tracing::warn!(%twin, "the static build belongs to another program and is not carried");
            return Ok(None);
        }
        Ok(Some(twin))
    }

    /// The machine that it is for, by its ELF header; as `uname -m` says it.
    fn machine(&self) -> Option<&'static str> {
        let header = self.bytes.get(..20).filter(|bytes| bytes.starts_with(b"\x7fELF"))?;
        match u16::from_le_bytes([header[18], header[19]]) {
            3 => Some("i686"),
            40 => Some("armv7l"),
            62 => Some("x86_64"),
            183 => Some("aarch64"),
            243 => Some("riscv64"),
            _ => None,
        }
    }
}

/// The newest version of the GNU C library that a program asks for, by its ELF sections; none for a
/// static one.
fn library(bytes: &[u8]) -> Option<(u32, u32)> {
    const VERSIONS_NEEDED: u64 = 0x6fff_fffe;
    let number = |at: usize, length: usize| -> Option<u64> {
        let field = bytes.get(at..at.checked_add(length)?)?;
        Some(field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let at = |at: usize, length: usize| usize::try_from(number(at, length)?).ok();
    // 64 bits, little-endian: others are for machines that this one cannot be.
    bytes.starts_with(b"\x7fELF\x02\x01").then_some(())?;
    let (sections, size, count) = (at(40, 8)?, at(58, 2)?, at(60, 2)?);
    let section = |index: usize| sections.checked_add(size.checked_mul(index)?);
    let needed = (0..count).find_map(|index| {
        let start = section(index)?;
        (number(start + 4, 4)? == VERSIONS_NEEDED).then_some(start)
    })?;
    let names = at(section(at(needed + 40, 4)?)? + 24, 8)?;
    let mut newest = None;
    let mut file = at(needed + 24, 8)?;
    for _ in 0..at(needed + 44, 4)? {
        let mut version = file + at(file + 8, 4)?;
        for _ in 0..at(file + 2, 2)? {
            let name = bytes.get(names + at(version + 8, 4)?..)?.split(|byte| *byte == 0).next();
            newest = newest.max(name.and_then(glibc));
            version += at(version + 12, 4)?;
        }
        file += at(file + 12, 4)?;
    }
    newest
}

/// The version that a name such as `GLIBC_2.34` says.
fn glibc(name: &[u8]) -> Option<(u32, u32)> {
    dotted(std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?)
}

fn dotted(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// The script for one program.
#[derive(Debug)]
pub struct Bootstrap {
    script: String,
    machine: Option<&'static str>,
    library: Option<(u32, u32)>,
    path: PathBuf,
}

impl Bootstrap {
    pub fn of(program: &Program, lease: Duration) -> Self {
        // On one line: a C shell takes no other in quotes.
        let script = SCRIPT.trim().replace('\n', "; ").replace("else; ", "else ");
        let lease = lease.as_secs_f64().to_string();
        let script = script.replace("HASH", &program.digest).replace("LEASE", &lease);
        let (machine, library) = (program.machine(), library(&program.bytes));
        Self { script, machine, library, path: program.path.clone() }
    }

    /// Refuses a host that cannot run the program, by its description of itself.
    pub fn check(&self, said: &str) -> Result<(), String> {
        let words: Vec<&str> = said.split_whitespace().collect();
        let [_, system, machine, library @ ..] = words.as_slice() else {
            return Err(format!("it described itself as `{said}`"));
        };
        if *system != "Linux" {
            return Err(format!("it runs {system}; only Linux can be measured"));
        }
        let path = self.path.display();
        if let Some(mine) = self.machine.filter(|mine| mine != machine) {
            return Err(format!(
                "it is a {machine}, and {path} is for {mine}; state one that is built for it: `program` \
                 in [hosts]"
            ));
        }
        // What another library than GNU's says of itself is not a version: then it is tried there.
        let there = match library {
            ["glibc", version] => dotted(version),
            _ => None,
        };
        match (there, self.library) {
            (Some(there), Some(needed)) if there < needed => Err(format!(
                "its C library is {}.{}, and {path} needs {}.{}; {STATIC}",
                there.0, there.1, needed.0, needed.1
            )),
            _ => Ok(()),
        }
    }

    /// What can be done where the program does not start there, if anything is known.
    pub fn remedy(&self, said: &str) -> String {
        match self.library {
            Some(_) if said.contains("cannot be run there") => format!("{said}; {STATIC}"),
            _ => said.to_owned(),
        }
    }

    /// As one word for a shell.
    pub fn for_shell(&self) -> String {
        format!("exec sh -c '{}'", self.script)
    }

    pub fn words_after(&self, before: &str) -> Vec<String> {
        vec!["sh".to_owned(), "-c".to_owned(), format!("{before}{}", self.script)]
    }

    /// As words for a program that runs words.
    pub fn words(&self) -> Vec<String> {
        ["sh", "-c", &self.script].map(str::to_owned).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::LEASE;

    #[test]
    fn the_script_survives_any_shell_that_hands_it_on() {
        assert!(!SCRIPT.contains('\''));
        // A C shell expands `!` even in quotes.
        assert!(!SCRIPT.contains('!'));
    }

    #[test]
    fn another_architecture_is_refused_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kendall");
        let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0".to_vec();
        header.extend(183_u16.to_le_bytes());
        std::fs::write(&path, &header).unwrap();
        let bootstrap = Bootstrap::of(&Program::read(&path).unwrap(), LEASE);
        let said = bootstrap.check("kendall-host Linux x86_64").unwrap_err();
        assert!(said.contains("x86_64") && said.contains("aarch64"), "{said}");
        assert_eq!(bootstrap.check("kendall-host Linux aarch64"), Ok(()));
        assert_eq!(bootstrap.check("kendall-host Linux aarch64 glibc 2.17"), Ok(()));
        assert!(bootstrap.check("kendall-host Darwin arm64").unwrap_err().contains("Linux"));
    }

    #[test]
    fn an_older_c_library_is_refused_in_words() {
        // This test's own program: linked to the library of this machine, or static.
        let own = std::env::current_exe().unwrap();
        let program = Program::read(&own).unwrap();
        let bootstrap = Bootstrap::of(&program, LEASE);
        let said = |library: &str| {
            bootstrap.check(&format!("kendall-host Linux {} {library}", std::env::consts::ARCH))
        };
        if cfg!(all(target_env = "gnu", not(target_feature = "crt-static"))) {
            let (major, minor) = library(&program.bytes).unwrap();
            assert!(major == 2 && (2..200).contains(&minor), "{major}.{minor}");
            let older = said("glibc 2.2").unwrap_err();
            assert!(older.contains("2.2, and") && older.contains("make static"), "{older}");
            assert_eq!(said(&format!("glibc {major}.{minor}")), Ok(()));
            assert!(bootstrap.remedy("x cannot be run there: y").contains("make static"));
        }
        assert_eq!((said("glibc 2.999"), said(""), said("musl")), (Ok(()), Ok(()), Ok(())));
        // Whatever is cut off or changed, it is read within its bounds.
        for length in (0..program.bytes.len()).step_by(program.bytes.len() / 50) {
            assert_eq!(library(&program.bytes[..length]).filter(|(major, _)| *major != 2), None);
        }
        assert_eq!(library(b"\x7fELF\x02\x01"), None);
    }

    #[test]
    fn a_static_build_is_carried_when_it_belongs_to_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("kendall");
        std::fs::write(&own, "one").unwrap();
        assert_eq!(Program::twin(&own).unwrap(), None);
        let twin = folder.path().join("kendall-static");
        std::fs::write(&twin, "its twin").unwrap();
        assert_eq!(Program::twin(&own).unwrap(), None);
        let of = hex(&Sha256::digest("one"));
        std::fs::write(folder.path().join("kendall-static.of"), of + "\n").unwrap();
        assert_eq!(Program::twin(&own).unwrap(), Some(twin));
        std::fs::write(&own, "another").unwrap();
        assert_eq!(Program::twin(&own).unwrap(), None);
    }
}
