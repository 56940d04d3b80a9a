//! Files that a user names: read whole, up to a bound, and only where they have an end.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

/// Largest file that is read, in bytes: far above any measured or written one.
pub const LARGEST_FILE: u64 = 1 << 30;

/// Reads a file of at most so many bytes.
///
/// A pipe with a name in the file system, a device or a socket is refused: opening it may wait for ever, reading it never
/// end. Standard input and what a shell passes as a descriptor (`/dev/stdin`, `<(…)`) are read like files.
///
/// # Errors
/// As [`fs::read`]; and where the file is too long, or is no regular file.
pub fn read_file(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let passed = ["/dev/stdin", "/dev/fd", "/proc/self/fd"];
    let kind = fs::metadata(path)?.file_type();
    if !kind.is_file() && !kind.is_dir() && !passed.iter().any(|one| path.starts_with(one)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let what = format!("it has more than {most} bytes, the limit");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// The same, of text.
///
/// # Errors
/// As [`read_file`], and where it is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    // The words of the standard library, which the program replaces by plainer ones.
    let what = "stream did not contain valid UTF-8";
    String::from_utf8(read_file(path, most)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, what))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn what_has_no_end_is_refused_and_what_a_shell_passes_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        for endless in [pipe.as_path(), Path::new("/dev/zero")] {
            let said = read_text(endless, 10).unwrap_err().to_string();
            assert_eq!(said, "it is not a regular file", "{}", endless.display());
        }
        let file = folder.path().join("file");
        fs::write(&file, "0123456789").unwrap();
        assert_eq!(read_text(&file, 10).unwrap(), "0123456789");
        let said = read_text(&file, 9).unwrap_err().to_string();
        assert!(said.contains("more than 9 bytes"), "{said}");
        assert!(read_text(folder.path(), 9).unwrap_err().to_string().contains("directory"));
        fs::write(&file, b"\xff").unwrap();
        assert!(read_text(&file, 10).unwrap_err().to_string().contains("UTF-8"));
        let (reads, mut writes) = io::pipe().unwrap();
        io::Write::write_all(&mut writes, b"passed").unwrap();
        drop(writes);
        let passed = format!("/dev/fd/{}", reads.as_raw_fd());
        assert_eq!(read_text(Path::new(&passed), 10).unwrap(), "passed");
        let zero = File::open("/dev/zero").unwrap();
        let endless = format!("/dev/fd/{}", zero.as_raw_fd());
        assert!(read_file(Path::new(&endless), 10).unwrap_err().to_string().contains("more than"));
    }
}
