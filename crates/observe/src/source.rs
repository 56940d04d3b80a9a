//! Where answers to queries come from.

use std::sync::LazyLock;

use regex::Regex;

use crate::grid::Grid;

/// Where answers to queries come from.
pub trait Source {
    /// The series that `query` has on `grid`.
    fn range(&mut self, query: &str, grid: &Grid) -> Result<Vec<Series>, SourceError>;

    /// Names of all metrics, where the source knows them.
    fn metric_names(&mut self) -> Result<Vec<String>, SourceError> {
        Ok(Vec::new())
    }
}

/// A text whose addresses have neither users and passwords nor parameters, in which tokens are, and in which nothing has a value
/// that is named as a secret.
pub(crate) fn without_credentials(text: &str) -> String {
    static USER: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r#"://[^/\s"'`\\]*@"#).expect("a test uses it"));
    static PARAMETERS: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r#"(://[^\s"'`\\?]*)\?[^\s"'`\\]*"#).expect("a test uses it"));
    static NAMED: LazyLock<Regex> = LazyLock::new(|| {
        let names = "token|secret|password|passwd|pwd|api[_-]?key|access[_-]?key|signature|jsessionid|phpsessid|session[_-]?id";
        // A matcher of PromQL has quotes or another operator there.
        Regex::new(&format!(r#"((?i-u:{names}))=[A-Za-z0-9%+/_.-][^\s"'`\\;,&)}}\]]*"#))
            .expect("a test uses it")
    });
    static HEADER: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\b(Bearer|Basic) [A-Za-z0-9._~+/=-]+").expect("a test uses it")
    });
    let text = USER.replace_all(text, "://");
    let text = PARAMETERS.replace_all(&text, "$1");
    let text = NAMED.replace_all(&text, "$1=removed");
    HEADER.replace_all(&text, "$1 removed").into_owned()
}

/// The same of a label, whose name may say that it is a secret.
pub(crate) fn value_without_credentials(name: &str, value: &str) -> String {
    if without_credentials(&format!("{name}={value}")) == format!("{name}=removed") {
        return "removed".to_owned();
    }
    label_without_credentials(value)
}

/// The same of the value of a label, which may be an address alone.
pub(crate) fn label_without_credentials(value: &str) -> String {
    static USER: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^[^\s/@:]+:[^\s/@]+@").expect("a test uses it"));
    without_credentials(&USER.replace(value, ""))
}

/// One series on a grid: one value a step, NaN where the source has none.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Labels, in the order of their names.
    pub labels: std::collections::BTreeMap<String, String>,
    /// One a step of the grid.
    pub values: Vec<f64>,
}

/// Why a source gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("{url} cannot be reached; {remedy}")]
    Unreachable { url: String, remedy: &'static str, source: Box<ureq::Error> },
    #[error(
        "{url} is connected, but there was no answer in {seconds} s: it is overloaded or no Prometheus; ask for less time \
         (--from), or give a longer --step"
    )]
    Silent { url: String, seconds: u64 },
    /// What answers is not a Prometheus, or does not answer us.
    #[error("{url} answered with status {status} (`{begin}`): {remedy}")]
    Status { url: String, status: u16, begin: String, remedy: String },
    #[error("the query `{query}` was refused: {reason}")]
    Refused { query: String, reason: String },
    #[error("the answer to `{query}` cannot be read: {reason}")]
    Unreadable { query: String, reason: String },
    #[error(
        "{folder} has no recording (no index.json); `--record {folder}` makes one from a server"
    )]
    NoRecording { folder: String },
    #[error(
        "the recording {folder} has no answer to `{query}` for this time: record it again from the \
         server, or choose a time that it contains"
    )]
    NotRecorded { folder: String, query: String },
    /// A file of a recording cannot be read or written.
    #[error("{path}")]
    File { path: String, source: std::io::Error },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lose_what_may_be_secret_and_nothing_else_changes() {
        for (text, expected) in [
            ("http://me:pw@p:9090/x?token=abc", "http://p:9090/x"),
            (
                r#"rate(a{uri="redis://:pw@b:1",c=~"a@b?"}[1m])"#,
                r#"rate(a{uri="redis://b:1",c=~"a@b?"}[1m])"#,
            ),
            (r#"x{i=~"https?://a/.*",j="k@l"}"#, r#"x{i=~"https?://a/.*",j="k@l"}"#),
        ] {
            assert_eq!(without_credentials(text), expected);
        }
        for (label, expected) in [
            ("/login?token=abc&x=1", "/login?token=removed&x=1"),
            ("h:1?apikey=abc", "h:1?apikey=removed"),
            ("https://h/p;Access_Token=abc", "https://h/p;Access_Token=removed"),
            ("host=db user=u password=abc", "host=db user=u password=removed"),
            ("al:PW@h:99", "h:99"),
            ("Bearer abc.def-1=", "Bearer removed"),
            ("/tokens/:id", "/tokens/:id"),
            ("10.0.0.1:80", "10.0.0.1:80"),
        ] {
            assert_eq!(label_without_credentials(label), expected);
        }
        for (name, value, expected) in [
            ("api_key", "abc-1", "removed"),
            ("path", "/a;jsessionid=5F3", "/a;jsessionid=removed"),
            ("code", "200", "200"),
        ] {
            assert_eq!(value_without_credentials(name, value), expected);
        }
        let matchers = r#"rate(x{token="a",secret=~"b",password!="c"}[1m])"#;
        assert_eq!(without_credentials(matchers), matchers);
    }
}
