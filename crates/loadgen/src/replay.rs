//! Requests of an access log, at the log's own times.
//!
//! Lines are those of the common or combined log format of Apache and nginx:
//! `host ident user [10/Oct/2000:13:55:36 -0700] "GET /path HTTP/1.1" 200 2326`.

use std::collections::BTreeMap;
use std::path::Path;

use chrono::DateTime;
use kendall_units::{exact_f64, whole_u64};

const SECOND_NS: f64 = 1e9;

/// What an access log asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// When each request is due, in nanoseconds from the first second of the log.
    pub moments_ns: Vec<u64>,
    /// Path and query of each.
    pub paths: Vec<String>,
    /// Lines that were left out: no GET, or no request that could be sent.
    pub left_out: usize,
}

/// A log that cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("{path}: cannot be read")]
    File {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "{path}: none of {lines} lines is a GET of the common or combined log format, such as \
         `10.0.0.1 - - [10/Oct/2026:13:55:36 +0000] \"GET /index.html HTTP/1.1\" 200 2326`"
    )]
    NoRequest {
        path: String,
        /// How many lines it has.
        lines: usize,
    },
}

impl Replay {
    /// Reads a log. Times are divided by `speed`; the requests of one second are spread evenly over it, since logs
    /// do not tell more.
    ///
    /// # Errors
    /// [`ReplayError`] where it cannot be read, or holds no request that could be sent.
    pub fn read(path: &Path, speed: f64) -> Result<Self, ReplayError> {
        let name = path.display().to_string();
        let text = std::fs::read(path)
            .map_err(|source| ReplayError::File { path: name.clone(), source })?;
        let text = String::from_utf8_lossy(&text);
        Self::parse(&text, speed)
            .ok_or_else(|| ReplayError::NoRequest { path: name, lines: text.lines().count() })
    }

    fn parse(text: &str, speed: f64) -> Option<Self> {
        // Servers write a line when the answer has ended: requests of earlier seconds may follow.
        let mut seconds: BTreeMap<i64, Vec<&str>> = BTreeMap::new();
        let mut left_out = 0;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match request(line) {
                Some((second, path)) => seconds.entry(second).or_default().push(path),
                None => left_out += 1,
            }
        }
        let (first, _) = seconds.first_key_value()?;
        let first = *first;
        let (mut moments_ns, mut paths) = (Vec::new(), Vec::new());
        for (second, of_second) in seconds {
            let since = exact_f64(second.abs_diff(first));
            for (place, path) in (0_u32..).zip(&of_second) {
                let within = f64::from(place) / exact_f64(of_second.len());
                moments_ns.push(whole_u64((since + within) * SECOND_NS / speed));
                paths.push((*path).to_owned());
            }
        }
        Some(Self { moments_ns, paths, left_out })
    }
}

/// The second and the path of a GET.
fn request(line: &str) -> Option<(i64, &str)> {
    let (_, rest) = line.split_once('[')?;
    let (time, rest) = rest.split_once(']')?;
    let (_, rest) = rest.split_once('"')?;
    let mut words = rest.strip_prefix("GET ")?.split(['"', ' ']);
    let path = words.next().filter(|path| path.starts_with('/'))?;
    let fits =
        path.bytes().all(|byte| byte.is_ascii_graphic()) && words.next()?.starts_with("HTTP/");
    let time = DateTime::parse_from_str(time, "%d/%b/%Y:%H:%M:%S %z").ok()?;
    fits.then(|| (time.timestamp(), path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = r#"10.0.0.1 - - [10/Oct/2026:13:55:36 +0000] "GET /a?x=1 HTTP/1.1" 200 23
10.0.0.2 - frank [10/Oct/2026:13:55:38 +0000] "GET /b HTTP/1.1" 304 0 "http://x/" "agent [x]"
10.0.0.1 - - [10/Oct/2026:14:55:36 +0100] "GET /c HTTP/2.0" 200 5
10.0.0.1 - - [10/Oct/2026:13:55:37 +0000] "POST /order HTTP/1.1" 201 5
"#;

    #[test]
    fn requests_are_due_when_the_log_has_them_or_faster() {
        let replay = Replay::parse(LOG, 2.0).unwrap();
        assert_eq!(replay.paths, ["/a?x=1", "/c", "/b"]);
        assert_eq!(replay.moments_ns, [0, 250_000_000, 1_000_000_000]);
        assert_eq!(replay.left_out, 1);
    }

    #[test]
    fn what_could_not_be_sent_is_left_out() {
        let line = |request: &str| {
            format!("10.0.0.1 - - [10/Oct/2026:13:55:36 +0000] \"{request}\" 400 0\n")
        };
        let wrong = [
            "GET /a b HTTP/1.1",
            "GET http://other/ HTTP/1.1",
            "GET /\u{e9} HTTP/1.1",
            "GET /",
            "GET",
            "-",
            "\\x16\\x03\\x01",
        ];
        let text: String = wrong.iter().map(|request| line(request)).collect();
        let times = ["[10/Foo/2026:13:55:36 +0000]", "[]", "10/Oct/2026"];
        let times = times.map(|time| format!("10.0.0.1 - - {time} \"GET / HTTP/1.1\" 200 1\n"));
        assert_eq!(Replay::parse(&(text.clone() + &times.concat()), 1.0), None);
        let replay = Replay::parse(&(text + LOG), 1.0).unwrap();
        assert_eq!((replay.paths.len(), replay.left_out), (3, wrong.len() + 1));
    }
}
