//! Bazel against the cache: cold, warm, over both protocols, and with the cache killed under it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use crate::bazel_support::{GENERATED, Workspace, built};
use crate::cluster_support;

/// A cache as a process of its own.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(folder: &std::path::Path, listen: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kendall"))
            .args(["serve", "cache", "--listen", listen, "--quota", "256MiB", "--data"])
            .arg(folder)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let ready = loop {
            let line = lines.next().expect("it gets ready").unwrap();
            if line.starts_with("ready ") {
                break line;
            }
        };
        let word = ready.split(' ').find_map(|word| word.strip_prefix("listen=")).unwrap();
        Self { address: word.to_owned(), child }
    }

    fn kill(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap_or_default();
        self.child.wait().unwrap();
    }
}

#[test]
fn bazel_builds_cold_and_then_takes_everything_from_the_cache() {
    crate::bazel_support::required();
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), "127.0.0.1:0");
    let workspace = Workspace::new(1);
    let grpc = format!("--remote_cache=grpc://{}", server.address);
    let cold = workspace.test(&[&grpc]);
    assert_eq!((cold.hits, cold.remote), (0, 0), "{cold:?}");
    assert!(cold.local > crate::bazel_support::GENERATED, "{cold:?}");
    workspace.clean();
    let warm = workspace.test(&[&grpc]);
    assert_eq!((warm.hits, warm.local), (cold.local, 0), "{warm:?}");
    // After a kill everything that was acknowledged is there.
    let address = server.address.clone();
    server.kill();
    let server = Server::start(data.path(), &address);
    workspace.clean();
    let warm = workspace.test(&[&grpc]);
    assert_eq!((warm.hits, warm.local), (cold.local, 0), "after a kill: {warm:?}");
    // The same results over HTTP.
    workspace.clean();
    let http = workspace.test(&[&format!("--remote_cache=http://{}", server.address)]);
    assert_eq!((http.hits, http.local), (cold.local, 0), "over HTTP: {http:?}");
    // Without a cache the build goes on.
    server.kill();
    workspace.clean();
    let alone = workspace.test(&[&grpc, "--remote_retries=0", "--remote_local_fallback"]);
    assert_eq!(alone.hits, 0, "{alone:?}");
}

/// Over HTTP, Bazel takes whatever is answered 200 for a hit.
#[test]
fn bazel_over_http_takes_and_stores_what_its_token_allows() {
    crate::bazel_support::required();
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "read people\nwrite ci\n").unwrap();
    let flags = ["--quota", "256MiB", "--tokens", tokens.to_str().unwrap()];
    let server = cluster_support::Server::cache(&folder.path().join("data"), &flags);
    let cache = format!("--remote_cache=http://{}", server.address);
    let workspace = Workspace::new(2);
    let test = |token: Option<&str>| {
        workspace.clean();
        let header = token.map(|token| format!("--remote_header=Authorization=Bearer {token}"));
        let arguments: Vec<&str> =
            [cache.as_str()].into_iter().chain(header.as_deref()).chain(["//..."]).collect();
        let output = workspace.bazel("test", &arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{token:?}: {said}");
        (built(&said), said)
    };
    let (none, said) = test(None);
    assert!(none.hits == 0 && none.local > GENERATED, "{none:?}");
    assert!(said.contains("WARNING: Reading from Remote Cache:\n401 Unauthorized"), "{said}");
    let (people, said) = test(Some("people"));
    assert_eq!(people, none, "nothing is stored without the right to");
    // Of several writes that are refused, Bazel says only how many.
    assert!(said.contains("WARNING: Writing to Remote Cache:\n"), "{said}");
    assert!(!said.contains("Reading from Remote Cache:\n"), "{said}");
    let (ci, said) = test(Some("ci"));
    assert_eq!(ci, none, "nor with a token to read");
    assert!(!said.contains("Remote Cache:\n"), "{said}");
    let (people, said) = test(Some("people"));
    assert_eq!((people.hits, people.local), (none.local, 0), "{people:?}");
    assert!(!said.contains("Remote Cache:\n"), "{said}");
    let (again, _) = test(None);
    assert_eq!(again, none, "no hit without a token");
}
