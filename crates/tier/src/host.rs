//! The header `Host` of a request.

/// Whether these are the values of `Host` that a request may have: one at most, a host and perhaps a port, and one in
/// HTTP/1.1, which asks for it (RFC 9112, 3.2; RFC 3986, 3.2.2). It may be empty where the target has no authority.
pub fn is_host<'a>(
    http_11: bool,
    target_has_authority: bool,
    mut values: impl Iterator<Item = &'a [u8]>,
) -> bool {
    let good = |value: &'a [u8]| is_authority(value) && !(target_has_authority && value.is_empty());
    values.next().map_or(!http_11, good) && values.next().is_none()
}

fn is_authority(value: &[u8]) -> bool {
    let (host_is_good, port) = if let Some(rest) = value.strip_prefix(b"[") {
        let end = rest.iter().position(|byte| *byte == b']').unwrap_or(rest.len());
        let (address, port) = rest.split_at(end);
        let of_address = |byte: &u8| byte.is_ascii_hexdigit() || b":.".contains(byte);
        (!address.is_empty() && address.iter().all(of_address), port.strip_prefix(b"]"))
    } else {
        let end = value.iter().position(|byte| *byte == b':').unwrap_or(value.len());
        let (name, port) = value.split_at(end);
        let of_name =
            |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(byte);
        (name.iter().all(of_name), Some(port))
    };
    let port_is_good = |port: &[u8]| {
        port.strip_prefix(b":").map_or(port.is_empty(), |port| port.iter().all(u8::is_ascii_digit))
    };
    host_is_good && port.is_some_and(port_is_good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_with_perhaps_a_port_is_taken_and_nothing_else() {
        for good in ["", "a", "a.b-c:80", "10.0.0.1:", "[::1]", "[::ffff:10.0.0.1]:8080", "x%20y"] {
            assert!(is_host(true, false, [good.as_bytes()].into_iter()), "{good}");
        }
        for bad in
            ["a b/", "a/", "a b", "a:b", "a:80:80", "[::1", "[]", "[::1]x", "u@a", "a?b", "\u{e9}"]
        {
            assert!(!is_host(true, false, [bad.as_bytes()].into_iter()), "{bad}");
        }
        assert!(is_host(false, false, std::iter::empty()));
        assert!(!is_host(true, false, std::iter::empty()));
        assert!(!is_host(true, false, [b"a".as_slice(), b"a"].into_iter()), "named twice");
        assert!(!is_host(true, true, [b"".as_slice()].into_iter()), "the target names one");
        assert!(is_host(true, true, [b"a".as_slice()].into_iter()));
    }
}
