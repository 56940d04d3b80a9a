//! The cookies of one run of a sequence, all of one host (RFC 6265).

use chrono::DateTime;
use hyper::header::HeaderValue;

/// Cookies that are kept; further ones take the place of the oldest.
const MOST_COOKIES: usize = 64;

const MOST_BYTES: usize = 4 << 10;

#[derive(Debug, Default)]
pub(super) struct Jar {
    cookies: Vec<Cookie>,
}

#[derive(Debug)]
struct Cookie {
    name: Vec<u8>,
    value: Vec<u8>,
    path: Vec<u8>,
}

impl Jar {
    pub(super) fn clear(&mut self) {
        self.cookies.clear();
    }

    /// Takes a header `Set-Cookie`. `Domain` and `Secure` have no meaning where all requests go to one host.
    pub(super) fn take(&mut self, header: &HeaderValue) {
        let mut parts = header.as_bytes().split(|byte| *byte == b';');
        let first = parts.next().unwrap_or_default();
        let Some((name, value)) = pair(first) else { return };
        if name.is_empty() || first.len() > MOST_BYTES {
            return;
        }
        let (mut path, mut gone) = (&b"/"[..], false);
        for (key, value) in parts.filter_map(pair) {
            match key.to_ascii_lowercase().as_slice() {
                b"path" if value.starts_with(b"/") && value.len() <= MOST_BYTES => path = value,
                b"max-age" => gone = value.starts_with(b"-") || value == b"0",
                b"expires" => gone |= is_the_epoch(value),
                _ => {}
            }
        }
        self.cookies.retain(|cookie| cookie.name != name || cookie.path != path);
        if gone {
            return;
        }
        if self.cookies.len() == MOST_COOKIES {
            self.cookies.remove(0);
        }
        let [name, value, path] = [name, value, path].map(<[u8]>::to_vec);
        self.cookies.push(Cookie { name, value, path });
    }

    pub(super) fn value(&self, name: &str) -> Option<&[u8]> {
        let cookie = self.cookies.iter().rfind(|cookie| cookie.name == name.as_bytes());
        cookie.map(|cookie| cookie.value.as_slice())
    }

    /// The header `Cookie` of a request of this path and query, if there is any.
    pub(super) fn header(&self, path: &str) -> Option<HeaderValue> {
        let path = path.split('?').next().unwrap_or_default().as_bytes();
        let mut text = Vec::new();
        for cookie in self.cookies.iter().filter(|cookie| reaches(&cookie.path, path)) {
            if !text.is_empty() {
                text.extend_from_slice(b"; ");
            }
            text.extend_from_slice(&cookie.name);
            text.push(b'=');
            text.extend_from_slice(&cookie.value);
        }
        HeaderValue::from_bytes(&text).ok().filter(|_| !text.is_empty())
    }
}

fn pair(part: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = part.iter().position(|byte| *byte == b'=')?;
    Some((part[..at].trim_ascii(), part[at + 1..].trim_ascii()))
}

/// Whether a cookie's path covers that of a request (RFC 6265 §5.1.4).
fn reaches(of_cookie: &[u8], of_request: &[u8]) -> bool {
    of_request
        .strip_prefix(of_cookie)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/") || of_cookie.ends_with(b"/"))
}

/// How servers take a cookie back: it has ended with the first day of 1970.
fn is_the_epoch(value: &[u8]) -> bool {
    let time = String::from_utf8_lossy(value).replace('-', " ");
    DateTime::parse_from_rfc2822(&time).is_ok_and(|time| time.timestamp() <= 86_400)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jar(headers: &[&str]) -> Jar {
        let mut jar = Jar::default();
        for header in headers {
            jar.take(&HeaderValue::from_str(header).unwrap());
        }
        jar
    }

    fn sent(headers: &[&str], path: &str) -> String {
        let header = jar(headers).header(path);
        header.map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn cookies_are_sent_where_their_path_reaches_and_taken_back() {
        let two = ["a=1; HttpOnly", "b=x=y; Path=/shop; Secure"];
        assert_eq!(sent(&two, "/"), "a=1");
        assert_eq!(sent(&two, "/shop?x=1"), "a=1; b=x=y");
        assert_eq!(sent(&two, "/shop/cart"), "a=1; b=x=y");
        assert_eq!(sent(&two, "/shopping"), "a=1");
        assert_eq!(sent(&["a=1", "a=2"], "/"), "a=2");
        for gone in ["a=; Max-Age=0", "a=; expires=Thu, 01 Jan 1970 00:00:00 GMT"] {
            assert_eq!(sent(&["a=1", gone], "/"), "", "{gone}");
        }
        for nothing in ["", "a", "=1", ";;", &format!("a={}", "x".repeat(MOST_BYTES))] {
            assert_eq!(sent(&[nothing], "/"), "", "{nothing}");
        }
        let many: Vec<String> = (0..1_000).map(|number| format!("c{number}=1")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(jar(&many).cookies.len(), MOST_COOKIES);
    }
}
