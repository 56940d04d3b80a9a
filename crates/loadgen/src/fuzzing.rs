//! For `fuzz/`: what servers answer, without a connection around it, and what Bazel prints. No interface for programs.

use crate::driver::{ErrorKind, Progress, Reply};
use crate::{http, memcached, redis};

/// Pieces that a reply comes in: as it was, byte by byte, and in between.
const PIECES: [usize; 3] = [usize::MAX, 1, 7];

/// An HTTP reply; the first byte says whether it is one to HEAD.
///
/// # Panics
/// When what is found in it depends on the pieces in which it came.
pub fn http_reply(bytes: &[u8]) {
    let Some((kind, input)) = bytes.split_first() else { return };
    same(input, || http::fuzz_reader(kind % 2 == 1));
}

/// A memcached reply; the first two bytes say to which command, of how many keys.
///
/// # Panics
/// When what is found in it depends on the pieces in which it came.
pub fn memcached_reply(bytes: &[u8]) {
    let [kind, keys, input @ ..] = bytes else { return };
    same(input, || memcached::fuzz_reader(*kind, *keys));
}

/// Redis replies; the first byte says to how many commands.
///
/// # Panics
/// When what is found in them depends on the pieces in which they came.
pub fn redis_reply(bytes: &[u8]) {
    let Some((commands, input)) = bytes.split_first() else { return };
    same(input, || redis::fuzz_reader(*commands));
}

/// What Bazel prints, or its profile.
///
/// # Panics
/// When the seconds of the build do not have each of its tasks once.
pub fn bazel(bytes: &[u8]) {
    crate::bazel::fuzz(bytes);
}

fn same<R: FnMut(&[u8]) -> Progress>(input: &[u8], reader: impl Fn() -> R) {
    let found = PIECES.map(|piece| in_pieces(input, piece, reader()));
    assert!(found.iter().all(|one| *one == found[0]), "in pieces of {PIECES:?}: {found:?}");
}

/// Bytes of the reply, and what it says, as the engine would read it.
fn in_pieces(
    input: &[u8],
    piece: usize,
    mut read: impl FnMut(&[u8]) -> Progress,
) -> Option<(usize, Reply)> {
    let (mut begin, mut end) = (0, 0);
    while end < input.len() {
        end = end.saturating_add(piece).min(input.len());
        let Progress { consumed, reply } = read(&input[begin..end]);
        assert!(consumed <= end - begin, "{consumed} bytes of {}", end - begin);
        begin += consumed;
        if let Some(reply) = reply {
            // What is not a reply ends the connection, so it does not matter how much of it was read.
            let garbage = reply.error == Some(ErrorKind::Garbage);
            return Some((if garbage { 0 } else { begin }, reply));
        }
    }
    None
}
