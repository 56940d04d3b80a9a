//! Numbers as memcached reads them: C's `strtol` on a token, which skips white space, takes a
//! sign, and stops at white space within the token.

/// The number of a token as a 32-bit signed integer, of which memcached keeps the low bits.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "as the servers of version 1.6.18 do")]
pub fn signed(token: &[u8]) -> Option<i32> {
    let (negative, magnitude) = digits(token)?;
    let limit = if negative { 1_u64 << 63 } else { (1 << 63) - 1 };
    if magnitude > limit {
        return None;
    }
    let number = magnitude.cast_signed();
    Some(if negative { number.wrapping_neg() as i32 } else { number as i32 })
}

/// Whether memcached accepts a token as an unsigned integer. A minus sign passes where C's
/// arithmetic turns the number into a small positive one.
#[must_use]
pub fn unsigned(token: &[u8]) -> Option<u64> {
    let (negative, magnitude) = digits(token)?;
    let number = if negative { magnitude.wrapping_neg() } else { magnitude };
    (number.cast_signed() >= 0 || !token.contains(&b'-')).then_some(number)
}

/// A number that is nothing but digits and fits 64 bits: what servers write.
#[must_use]
pub fn whole(token: &[u8]) -> Option<u64> {
    if token.is_empty() || token.len() > 20 {
        return None;
    }
    token.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Sign and magnitude; `None` without a digit, when something else follows the digits, or beyond
/// 64 bits.
fn digits(token: &[u8]) -> Option<(bool, u64)> {
    let blank = token.iter().take_while(|byte| is_space(**byte)).count();
    let rest = &token[blank..];
    let (negative, rest) = match rest.first() {
        Some(b'-') => (true, &rest[1..]),
        Some(b'+') => (false, &rest[1..]),
        _ => (false, rest),
    };
    let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if count == 0 || rest.get(count).is_some_and(|byte| !is_space(*byte)) {
        return None;
    }
    let magnitude = rest[..count].iter().try_fold(0_u64, |number, byte| {
        number.checked_mul(10)?.checked_add(u64::from(byte - b'0'))
    })?;
    Some((negative, magnitude))
}

/// C's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        assert_eq!(signed(b"12"), Some(12));
        assert_eq!(signed(b"-1"), Some(-1));
        assert_eq!(signed(b"+7"), Some(7));
        assert_eq!(signed(b"\t8\tx"), Some(8));
        assert_eq!(signed(b"8x"), None);
        assert_eq!(signed(b""), None);
        assert_eq!(signed(b"-"), None);
        assert_eq!(signed(b"4294967299"), Some(3));
        assert_eq!(signed(b"99999999999999999999"), None);
        assert_eq!(unsigned(b"-1"), None);
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned(b"18446744073709551616"), None);
        assert_eq!(whole(b"007"), Some(7));
        assert_eq!(whole(b"+7"), None);
    }
}
