//! How the program gets to a host: over the pipe, once, kept there by its digest.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

/// What the host runs first. Without quotes of its own kind, so that any login shell hands it on to
/// `sh` unread. After `program want` it reads a length and so many bytes, and nothing else is sent
/// until the agent has said hello: `head` may read ahead.
const SCRIPT: &str = r#"
fail() { echo "failed: $*"; exit 1; }
echo "kendall-host $(uname -s) $(uname -m)"
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
exec "$file" agent --lease LEASE
fail "$file cannot be run there"
"#;

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The program that is carried.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    bytes: Vec<u8>,
    digest: String,
    packed: OnceLock<Vec<u8>>,
}

impl Program {
    /// Reads it.
    pub(crate) fn read(path: &Path) -> std::io::Result<Self> {
        let bytes = std::fs::read(path)?;
        let digest = hex(&Sha256::digest(&bytes));
        Ok(Self { path: path.to_owned(), bytes, digest, packed: OnceLock::new() })
    }

    /// Compressed, quickly; made when the first host wants it.
    pub(crate) fn packed(&self) -> std::io::Result<&[u8]> {
        if let Some(packed) = self.packed.get() {
            return Ok(packed);
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&self.bytes)?;
        let packed = encoder.finish()?;
        Ok(self.packed.get_or_init(|| packed))
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

/// The script for one program.
#[derive(Debug)]
pub(crate) struct Bootstrap {
    script: String,
    machine: Option<&'static str>,
    path: PathBuf,
}

impl Bootstrap {
    pub(crate) fn of(program: &Program, lease_s: u64) -> Self {
        // On one line: a C shell takes no other in quotes.
        let script = SCRIPT.trim().replace('\n', "; ").replace("else; ", "else ");
        let script = script.replace("HASH", &program.digest).replace("LEASE", &lease_s.to_string());
        Self { script, machine: program.machine(), path: program.path.clone() }
    }

    /// Refuses a host that cannot run the program, by what it said of itself.
    pub(crate) fn check(&self, said: &str) -> Result<(), String> {
        let words: Vec<&str> = said.split_whitespace().collect();
        let [_, system, machine] = words.as_slice() else {
            return Err(format!("it said `{said}` of itself"));
        };
        if *system != "Linux" {
            return Err(format!("it runs {system}; only Linux can be measured"));
        }
        match self.machine {
            Some(mine) if mine != *machine => Err(format!(
                "it is a {machine}, and {} is for {mine}; state one that is built for it: `program` \
                 in [hosts]",
                self.path.display()
            )),
            _ => Ok(()),
        }
    }

    /// As one word for a shell.
    pub(crate) fn for_shell(&self) -> String {
        format!("exec sh -c '{}'", self.script)
    }

    /// As words, with this before it.
    pub(crate) fn words_after(&self, before: &str) -> Vec<String> {
        vec!["sh".to_owned(), "-c".to_owned(), format!("{before}{}", self.script)]
    }

    /// As words for a program that runs words.
    pub(crate) fn words(&self) -> Vec<String> {
        ["sh", "-c", &self.script].map(str::to_owned).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let bootstrap = Bootstrap::of(&Program::read(&path).unwrap(), 10);
        let said = bootstrap.check("kendall-host Linux x86_64").unwrap_err();
        assert!(said.contains("x86_64") && said.contains("aarch64"), "{said}");
        assert_eq!(bootstrap.check("kendall-host Linux aarch64"), Ok(()));
        assert!(bootstrap.check("kendall-host Darwin arm64").unwrap_err().contains("Linux"));
    }
}
