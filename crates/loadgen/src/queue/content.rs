//! Contents that prove themselves: a number, and text that follows from it and the sender.

use std::fmt::Write as _;

use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::SplitMix64;

/// Digits of the number that stands first.
const DIGITS: usize = 16;

/// The content of `length` characters that `sender` writes for `number`. Below 16 characters there
/// is only a part of the number, which proves nothing.
pub(super) fn write(sender: u64, number: u64, length: usize) -> String {
    let mut text = String::with_capacity(length + 8);
    // Writing to a string does not fail.
    write!(text, "{number:016x}").unwrap_or_default();
    let mut letters = letters(sender, number);
    while text.len() < length {
        for byte in letters.next_u64().to_le_bytes() {
            text.push(letter(byte));
        }
    }
    text.truncate(length);
    text
}

/// Whether `sender` wrote this content.
pub(super) fn matches(sender: u64, content: &str) -> bool {
    let text = content.as_bytes();
    let (digits, rest) = text.split_at(text.len().min(DIGITS));
    if digits.len() < DIGITS {
        return digits.iter().all(u8::is_ascii_hexdigit);
    }
    let number = std::str::from_utf8(digits).ok().and_then(|t| u64::from_str_radix(t, 16).ok());
    let Some(number) = number else { return false };
    let mut letters = letters(sender, number);
    rest.chunks(8).all(|piece| {
        let expected = letters.next_u64().to_le_bytes().map(letter);
        piece.iter().zip(expected).all(|(found, expected)| char::from(*found) == expected)
    })
}

fn letters(sender: u64, number: u64) -> SplitMix64 {
    SplitMix64::from_seed((number ^ sender.rotate_left(32)).to_le_bytes())
}

/// One of 64 letters, of which none needs care anywhere.
fn letter(byte: u8) -> char {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    char::from(LETTERS[usize::from(byte & 63)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_is_known_by_its_sender_and_by_no_other() {
        for length in [0, 1, 15, 16, 17, 24, 25, 200, 2000] {
            let text = write(5, 0xDEAD_BEEF, length);
            assert_eq!(text.len(), length);
            assert!(matches(5, &text), "{length}");
            assert_eq!(matches(6, &text), length <= DIGITS, "{length}");
        }
        let mut text = write(5, 1, 200);
        text.replace_range(100..101, "~");
        assert!(!matches(5, &text));
        assert!(!matches(5, "not what a load writes"));
    }
}
