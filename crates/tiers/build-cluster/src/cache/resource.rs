//! Resource names of ByteStream.

use tonic::Status;

use crate::digest::{Digest, DigestError, Function, parse_hash};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resource<'a> {
    pub(crate) instance: &'a str,
    pub(crate) digest: Digest,
    /// Whether zstd is on the wire.
    pub(crate) zstd: bool,
    /// Of an upload, what tells it from others.
    pub(crate) upload: Option<&'a str>,
}

impl<'a> Resource<'a> {
    /// Reads `[INSTANCE/][uploads/ID/](blobs|compressed-blobs/zstd)/[FUNCTION/]HASH/SIZE[/…]`.
    pub(crate) fn parse(name: &'a str, upload: bool) -> Result<Self, Status> {
        let wrong = || {
            let form = if upload {
                "[INSTANCE/]uploads/ID/blobs/HASH/SIZE"
            } else {
                "[INSTANCE/]blobs/HASH/SIZE"
            };
            let shown: String = name.chars().take(200).collect();
            Status::invalid_argument(format!("{shown:?} is not a resource; write it as {form}"))
        };
        let words: Vec<&str> = name.split('/').collect();
        let keyword = if upload { "uploads" } else { "blobs" };
        let at = words
            .iter()
            .position(|word| *word == keyword || (!upload && *word == "compressed-blobs"))
            .ok_or_else(wrong)?;
        let length: usize = words[..at].iter().map(|word| word.len() + 1).sum();
        let instance = &name[..length.saturating_sub(1)];
        let mut rest = &words[at..];
        let mut id = None;
        if let (true, ["uploads", word, after @ ..]) = (upload, rest) {
            (id, rest) = (Some(*word), after);
        }
        let (zstd, rest) = match rest {
            ["blobs", rest @ ..] => (false, rest),
            ["compressed-blobs", "zstd", rest @ ..] => (true, rest),
            ["compressed-blobs", other, ..] => {
                return Err(Status::invalid_argument(format!(
                    "the compressor {other:?} is not spoken here; zstd is"
                )));
            }
            _ => return Err(wrong()),
        };
        let (function, rest) = match rest {
            [word, rest @ ..] if word.len() != 64 && rest.len() >= 2 => {
                let function = Function::named(word);
                (function.ok_or_else(|| DigestError::Function((*word).to_owned()))?, rest)
            }
            rest => (Function::Sha256, rest),
        };
        let [hash, size, trailing @ ..] = rest else { return Err(wrong()) };
        if !upload && !trailing.is_empty() {
            return Err(wrong());
        }
        let hash = parse_hash(hash.as_bytes())?;
        let size: u64 = match size.parse::<i64>() {
            Ok(size) if size >= 0 => size.cast_unsigned(),
            _ => return Err(DigestError::Size((*size).to_owned()).into()),
        };
        Ok(Self { instance, digest: Digest { function, hash, size }, zstd, upload: id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn names_are_read_with_and_without_their_optional_parts() {
        let sha = Function::Sha256.digest(b"abc");
        let blake = Digest { function: Function::Blake3, ..sha };
        let expect = |name: &str, upload: bool, instance: &str, digest: Digest, zstd: bool| {
            let read = Resource::parse(name, upload).unwrap();
            assert_eq!((read.instance, read.digest, read.zstd), (instance, digest, zstd), "{name}");
            assert_eq!(read.upload, upload.then_some("u-1"));
        };
        expect(&format!("blobs/{HASH}/3"), false, "", sha, false);
        expect(&format!("a/b/blobs/{HASH}/3"), false, "a/b", sha, false);
        expect(&format!("blobs/blake3/{HASH}/3"), false, "", blake, false);
        expect(&format!("i/compressed-blobs/zstd/{HASH}/3"), false, "i", sha, true);
        expect(&format!("uploads/u-1/blobs/{HASH}/3"), true, "", sha, false);
        expect(&format!("i/uploads/u-1/blobs/{HASH}/3/some/file.o"), true, "i", sha, false);
        expect(
            &format!("uploads/u-1/compressed-blobs/zstd/blake3/{HASH}/3"),
            true,
            "",
            blake,
            true,
        );
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for (name, upload) in [
            ("", false),
            ("blobs", false),
            ("blobs/abc/3", false),
            (&format!("blobs/{HASH}"), false),
            (&format!("blobs/{HASH}/-3"), false),
            (&format!("blobs/{HASH}/three"), false),
            (&format!("blobs/{HASH}/3/more"), false),
            (&format!("blobs/md5/{HASH}/3"), false),
            (&format!("compressed-blobs/deflate/{HASH}/3"), false),
            (&format!("blobs/{}/3", HASH.to_uppercase()), false),
            (&format!("blobs/{HASH}/99999999999999999999"), false),
            (&format!("blobs/{HASH}/3"), true),
            ("uploads", true),
            ("uploads/u-1", true),
        ] {
            let refused = Resource::parse(name, upload).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{name}");
        }
    }
}
