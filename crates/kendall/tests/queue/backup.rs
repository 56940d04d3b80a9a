//! A backup made while the queue serves, restored into a new database (docs/queue.md).
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use kendall_testing::Process;
use serde_json::{Value, json};

use crate::queue_support::{Middleware, at_postgres};
use crate::support::kendall;

const PASSWORD: &str = "secret0123456789";

fn queue(address: SocketAddr, words: &[&str]) -> Value {
    let mut command = kendall();
    command.args(["queue", "--server", &address.to_string(), "--format", "json"]).args(words);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

fn receive(address: SocketAddr) -> Value {
    queue(address, &["--as", "worker", "receive", "jobs"])["message"]["content"].clone()
}

fn run(command: &mut Command) -> Vec<u8> {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

#[test]
fn a_restored_backup_holds_the_queue_as_it_was_at_its_moment() {
    let folder = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let data = folder.path().join("queue");
    let first = Middleware::start(&["--data", data.to_str().unwrap()]).unwrap();
    queue(first.address, &["create", "jobs"]);
    for content in ["before, taken before", "before, taken after", "before"] {
        queue(first.address, &["send", "jobs", content]);
    }
    assert_eq!(receive(first.address), "before, taken before");

    let dump = folder.path().join("queue.sql");
    let text = run(&mut at_postgres("pg_dump", &data));
    std::fs::write(&dump, text).unwrap();
    assert_eq!(receive(first.address), "before, taken after");
    queue(first.address, &["send", "jobs", "after"]);
    first.stop();

    let mut command = kendall();
    command
        .args(["serve", "queue-database", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder.path().join("restored"))
        .env("KENDALL_QUEUE_PASSWORD", PASSWORD)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let said = BufReader::new(child.stderr.take().unwrap());
    let _database = Process(child);
    let mut lines = said.lines().map_while(Result::ok);
    let ready = lines.find(|line| line.starts_with("ready ")).unwrap();
    let address = ready.split("listen=").nth(1).unwrap().split(' ').next().unwrap();
    let url = format!("postgres://kendall:{PASSWORD}@{address}/kendall");
    run(Command::new("psql")
        .args(["--quiet", "--set", "ON_ERROR_STOP=1", "--file"])
        .arg(&dump)
        .arg(&url));

    let second = Middleware::start(&["--database", &url]).unwrap();
    let found: Vec<Value> = (0..3).map(|_| receive(second.address)).collect();
    assert_eq!(json!(found), json!(["before, taken after", "before", null]));
    queue(second.address, &["send", "jobs", "new"]);
    assert_eq!(receive(second.address), "new");
    second.stop();
}
