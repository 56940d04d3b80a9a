//! What shows that a reply belongs to a request: the key, or the opaque of a meta command.

use kendall_protocols::memcached::{Command, LINE_BYTES, Request, tokens};

/// Tokens of a meta command beyond which a server may refuse one more.
const MOST_TOKENS: usize = 16;
/// Longest opaque of the proxy's own, with the blank and the letter before it.
const OPAQUE_BYTES: usize = 24;

/// What a reply must show besides its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    None,
    /// A key or an opaque with this hash.
    Of(u64),
    /// An opaque of the proxy's own, which the client does not see.
    Own(u64),
}

impl Mark {
    /// The mark of a request's reply, of which `next` is the next opaque of the proxy's own.
    pub(crate) fn of(request: &Request, bytes: &[u8], next: u64) -> Self {
        match request.command {
            Command::Get | Command::Gets | Command::Gat | Command::Gats | Command::MetaDebug
                if request.keys == 1 =>
            {
                let has_flags = request.command == Command::MetaDebug
                    && tokens(request.line.of(bytes)).count() != 2;
                if has_flags { Self::None } else { Self::Of(hash(request.key.of(bytes))) }
            }
            Command::MetaGet | Command::MetaSet | Command::MetaDelete | Command::MetaArithmetic => {
                let line = request.line.of(bytes);
                let flags = if request.command == Command::MetaSet { 3 } else { 2 };
                let mut count = flags;
                for token in tokens(line).skip(flags) {
                    if token[0] == b'O' {
                        return Self::Of(hash(&token[1..]));
                    }
                    count += 1;
                }
                let fits = count < MOST_TOKENS && line.len() + OPAQUE_BYTES < LINE_BYTES;
                if fits { Self::Own(next) } else { Self::None }
            }
            _ => Self::None,
        }
    }

    /// Whether it is that of a meta command's line, where it has one.
    pub(crate) fn is_of(self, opaque: Option<&[u8]>) -> bool {
        match (self, opaque) {
            (Self::None, None) => true,
            (Self::Of(wanted), Some(opaque)) => hash(opaque) == wanted,
            (Self::Own(wanted), Some(opaque)) => opaque == wanted.to_string().as_bytes(),
            _ => false,
        }
    }
}

/// The hash of a meta command's key where its replies repeat the key (`k`); not of one in base64, which has several forms.
pub(crate) fn repeated_key(request: &Request, bytes: &[u8]) -> Option<u64> {
    let is_meta = matches!(
        request.command,
        Command::MetaGet | Command::MetaSet | Command::MetaDelete | Command::MetaArithmetic
    );
    let has = |flag| tokens(request.line.of(bytes)).skip(2).any(|token| token[0] == flag);
    (is_meta && has(b'k') && !has(b'b')).then(|| hash(request.key.of(bytes)))
}

/// A hash that is the same for the same bytes, eight at a time.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mix =
        |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    let (words, rest) = bytes.as_chunks::<8>();
    let whole =
        words.iter().fold(bytes.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let last = rest.iter().fold(0, |word, byte| (word << 8) | u64::from(*byte));
    mix(whole, last)
}
