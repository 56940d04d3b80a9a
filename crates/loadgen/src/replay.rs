//! Requests of an access log, at the log's own times.
//!
//! Lines are those of the common or combined log format of Apache and nginx:
//! `host ident user [10/Oct/2000:13:55:36 -0700] "GET /path HTTP/1.1" 200 2326`.

use std::collections::BTreeMap;
use std::path::Path;

use chrono::DateTime;
use kendall_protocols::load_result::{Remark, RemarkKind};
use kendall_units::{counted, exact_f64, whole_u64};

const SECOND_NS: f64 = 1e9;

const MOST_DAYS: f64 = 366.0;

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

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("{path}: cannot be read")]
    File { path: String, source: std::io::Error },
    #[error(
        "{path}: none of {lines} lines is a GET of the common or combined log format, such as \
         `10.0.0.1 - - [10/Oct/2026:13:55:36 +0000] \"GET /index.html HTTP/1.1\" 200 2326`"
    )]
    NoRequest { path: String, lines: usize },
    #[error(
        "{path}: at this speed it would last {days:.0} days, and {MOST_DAYS} are the most; raise the speed, or \
         cut the log"
    )]
    TooLong { path: String, days: f64 },
}

impl Replay {
    /// Reads a log. Times are divided by `speed`; the requests of one second are spread evenly over it, since logs
    /// do not tell more.
    pub fn read(path: &Path, speed: f64) -> Result<Self, ReplayError> {
        let name = path.display().to_string();
        let text = kendall_tier::read_file(path, kendall_tier::LARGEST_FILE)
            .map_err(|source| ReplayError::File { path: name.clone(), source })?;
        let text = String::from_utf8_lossy(&text);
        let seconds = of_each_second(&text);
        let ends = seconds.first_key_value().zip(seconds.last_key_value());
        let Some(((first, _), (last, _))) = ends else {
            return Err(ReplayError::NoRequest { path: name, lines: text.lines().count() });
        };
        let days = exact_f64(last.abs_diff(*first)) / speed / 86_400.0;
        if days > MOST_DAYS {
            return Err(ReplayError::TooLong { path: name, days });
        }
        Ok(Self::of(&text, &seconds, *first, speed))
    }

    /// What the result says of lines that were left out.
    pub fn remark(&self) -> Option<Remark> {
        let text = format!(
            "{} of the log left out, beside {}: no GET, or not to be sent",
            counted(self.left_out, "line"),
            counted(self.paths.len(), "request"),
        );
        (self.left_out > 0).then_some(Remark { kind: RemarkKind::Other, text })
    }

    fn of(text: &str, seconds: &BTreeMap<i64, Vec<&str>>, first: i64, speed: f64) -> Self {
        let (mut moments_ns, mut paths) = (Vec::new(), Vec::new());
        for (second, of_second) in seconds {
            let since = exact_f64(second.abs_diff(first));
            for (place, path) in (0_u32..).zip(of_second) {
                let within = f64::from(place) / exact_f64(of_second.len());
                moments_ns.push(whole_u64((since + within) * SECOND_NS / speed));
                paths.push((*path).to_owned());
            }
        }
        let lines = text.lines().filter(|line| !line.trim().is_empty()).count();
        let left_out = lines - paths.len();
        Self { moments_ns, paths, left_out }
    }
}

/// The paths of GETs. Servers write a line when the answer has ended: requests of earlier seconds may follow.
fn of_each_second(text: &str) -> BTreeMap<i64, Vec<&str>> {
    let mut seconds: BTreeMap<i64, Vec<&str>> = BTreeMap::new();
    for (second, path) in text.lines().filter_map(request) {
        seconds.entry(second).or_default().push(path);
    }
    seconds
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

    fn read(text: &str, speed: f64) -> Result<Replay, ReplayError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Replay::read(file.path(), speed)
    }

    #[test]
    fn requests_are_due_when_the_log_has_them_or_faster() {
        let replay = read(LOG, 2.0).unwrap();
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
        let nothing = read(&(text.clone() + &times.concat()), 1.0);
        assert!(matches!(nothing, Err(ReplayError::NoRequest { lines: 10, .. })), "{nothing:?}");
        let replay = read(&(text + LOG), 1.0).unwrap();
        assert_eq!((replay.paths.len(), replay.left_out), (3, wrong.len() + 1));
    }

    #[test]
    fn what_would_last_longer_than_a_year_is_refused() {
        for (text, speed) in [(LOG, 1e-300), (&LOG.replace("2026:13:55:36", "0001:13:55:36"), 1.0)]
        {
            assert!(matches!(read(text, speed), Err(ReplayError::TooLong { .. })), "{speed}");
        }
    }
}
