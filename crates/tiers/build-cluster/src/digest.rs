//! Digests: how a blob is named, and how content is checked against its name.

use std::fmt;

use kendall_units::hex;
use sha2::Digest as _;

use crate::wire::re;

/// Bytes of a hash. Both functions make as many.
pub const HASH_BYTES: usize = 32;
/// Characters of a hash on the wire.
const HEX: usize = 2 * HASH_BYTES;

/// A function that names content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Function {
    /// SHA-256: what every client speaks.
    #[default]
    Sha256,
    Blake3,
}

/// The name of a blob: what its content hashes to, and how long it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest {
    pub function: Function,
    pub hash: [u8; HASH_BYTES],
    /// The length in bytes.
    pub size: u64,
}

/// What is wrong with a digest that a client sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    #[error("a digest is missing")]
    Absent,
    #[error("the hash {0:?} is not 64 lower-case hexadecimal characters")]
    Hash(String),
    #[error("the size {0} is not a length")]
    Size(String),
    #[error("the digest function {0} is not spoken here; SHA256 and BLAKE3 are")]
    Function(String),
}

impl Function {
    /// The functions that are spoken.
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Blake3];

    /// The function of a request's field. Clients before 2.3 leave it out: what has 64 characters
    /// is SHA-256 then.
    pub fn from_wire(number: i32) -> Result<Self, DigestError> {
        match re::digest_function::Value::try_from(number) {
            Ok(re::digest_function::Value::Unknown | re::digest_function::Value::Sha256) => {
                Ok(Self::Sha256)
            }
            Ok(re::digest_function::Value::Blake3) => Ok(Self::Blake3),
            Ok(other) => Err(DigestError::Function(other.as_str_name().to_owned())),
            Err(_) => Err(DigestError::Function(number.to_string())),
        }
    }

    /// The number of the function on the wire.
    pub fn to_wire(self) -> i32 {
        match self {
            Self::Sha256 => re::digest_function::Value::Sha256 as i32,
            Self::Blake3 => re::digest_function::Value::Blake3 as i32,
        }
    }

    /// The name in resource names, such as `blobs/blake3/…`. SHA-256 is left out there.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Blake3 => "blake3",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|function| function.name().eq_ignore_ascii_case(name))
    }

    pub fn hash(self, content: &[u8]) -> [u8; HASH_BYTES] {
        match self {
            Self::Sha256 => sha2::Sha256::digest(content).into(),
            Self::Blake3 => blake3::hash(content).into(),
        }
    }

    pub fn digest(self, content: &[u8]) -> Digest {
        Digest { function: self, hash: self.hash(content), size: content.len() as u64 }
    }

    /// A hash in the making.
    pub fn hasher(self) -> Hasher {
        match self {
            Self::Sha256 => Hasher(State::Sha256(sha2::Sha256::new())),
            Self::Blake3 => Hasher(State::Blake3(Box::default())),
        }
    }
}

impl Digest {
    /// The digest of a message's field.
    pub fn from_wire(function: Function, wire: &re::Digest) -> Result<Self, DigestError> {
        let hash = parse_hash(wire.hash.as_bytes())?;
        let size = u64::try_from(wire.size_bytes)
            .map_err(|_| DigestError::Size(wire.size_bytes.to_string()))?;
        Ok(Self { function, hash, size })
    }

    /// The digest of a message's field that must be there.
    pub fn required(function: Function, wire: Option<&re::Digest>) -> Result<Self, DigestError> {
        Self::from_wire(function, wire.ok_or(DigestError::Absent)?)
    }

    /// As a message's field.
    pub fn to_wire(&self) -> re::Digest {
        // A size came from the wire's signed number, or from a length in memory.
        let size_bytes = i64::try_from(self.size).unwrap_or(i64::MAX);
        re::Digest { hash: self.hash_text(), size_bytes }
    }

    /// The hash in hexadecimal.
    pub fn hash_text(&self) -> String {
        hex(&self.hash)
    }

    /// The subject of a `MISSING` violation and the end of a resource name:
    /// `blobs/HASH/SIZE`, `blobs/blake3/HASH/SIZE`.
    pub fn resource(&self) -> String {
        match self.function {
            Function::Sha256 => format!("blobs/{}/{}", self.hash_text(), self.size),
            other => format!("blobs/{}/{}/{}", other.name(), self.hash_text(), self.size),
        }
    }

    /// Whether it names the empty blob, which is always there.
    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// Whether `content` is what it names.
    pub fn names(&self, content: &[u8]) -> bool {
        content.len() as u64 == self.size && self.function.hash(content) == self.hash
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.hash_text(), self.size)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{self}", self.function.name())
    }
}

#[derive(Debug, Clone)]
pub struct Hasher(State);

#[derive(Debug, Clone)]
enum State {
    Sha256(sha2::Sha256),
    /// It is two kilobytes large.
    Blake3(Box<blake3::Hasher>),
}

impl Hasher {
    pub fn update(&mut self, content: &[u8]) {
        match &mut self.0 {
            State::Sha256(state) => sha2::Digest::update(state, content),
            State::Blake3(state) => {
                state.update(content);
            }
        }
    }

    pub fn finish(self) -> [u8; HASH_BYTES] {
        match self.0 {
            State::Sha256(state) => state.finalize().into(),
            State::Blake3(state) => state.finalize().into(),
        }
    }
}

/// The hash that `text` writes in lower-case hexadecimal.
pub fn parse_hash(text: &[u8]) -> Result<[u8; HASH_BYTES], DigestError> {
    let wrong = || {
        let shown = &text[..text.len().min(2 * HEX)];
        DigestError::Hash(String::from_utf8_lossy(shown).into_owned())
    };
    if text.len() != HEX {
        return Err(wrong());
    }
    let mut hash = [0; HASH_BYTES];
    let mut seen = 0;
    for (byte, pair) in hash.iter_mut().zip(text.chunks_exact(2)) {
        let (high, low) = (DIGIT[usize::from(pair[0])], DIGIT[usize::from(pair[1])]);
        seen |= high | low;
        *byte = high << 4 | (low & 15);
    }
    if seen & NO_DIGIT == 0 { Ok(hash) } else { Err(wrong()) }
}

const NO_DIGIT: u8 = 0x80;

/// The value of each lower-case hexadecimal digit: one access per character, no branch, since a request
/// may carry ten thousand hashes.
const DIGIT: [u8; 256] = {
    let mut table = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        table[b"0123456789abcdef"[value as usize] as usize] = value;
        value += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-4's example "abc", and BLAKE3's test vector for no input.
    #[test]
    fn hashes_are_those_of_the_published_examples() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Function::Sha256.digest(b"abc").to_string(), format!("{abc}/3"));
        let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(Function::Blake3.digest(b"").to_string(), format!("{empty}/0"));
    }

    #[test]
    fn a_hash_in_pieces_is_that_of_the_whole() {
        let content: Vec<u8> = (0..5000_u32).map(|i| i.to_le_bytes()[0]).collect();
        for function in Function::ALL {
            let mut hasher = function.hasher();
            content.chunks(333).for_each(|piece| hasher.update(piece));
            assert_eq!(hasher.finish(), function.hash(&content));
        }
    }

    #[test]
    fn what_is_no_digest_is_refused_with_what_it_is() {
        let wire = |hash: &str, size_bytes| re::Digest { hash: hash.to_owned(), size_bytes };
        let good = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let read = |hash: &str, size| Digest::from_wire(Function::Sha256, &wire(hash, size));
        assert_eq!(read(good, 3).unwrap().to_wire(), wire(good, 3));
        assert_eq!(read(good, -1), Err(DigestError::Size("-1".to_owned())));
        let shouted = good.to_uppercase();
        let wrong = ["", "abc", &good[1..], &shouted, &format!("{good}0"), &"é".repeat(32)];
        for hash in wrong {
            assert!(matches!(read(hash, 3), Err(DigestError::Hash(_))), "{hash}");
        }
        let not_a_digit = good.replace('b', "g");
        assert!(matches!(read(&not_a_digit, 3), Err(DigestError::Hash(_))));
        assert_eq!(Digest::required(Function::Sha256, None), Err(DigestError::Absent));
        assert_eq!(Function::from_wire(0), Ok(Function::Sha256));
        assert_eq!(Function::from_wire(9), Ok(Function::Blake3));
        assert!(Function::from_wire(3).is_err() && Function::from_wire(99).is_err());
    }
}
