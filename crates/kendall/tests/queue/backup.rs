//! A backup made while the queue serves, restored into a new database (docs/queue.md).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops at the first surprise")]

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kendall_testing::{Process, wait_until};
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

/// A folder that PostgreSQL's own user may enter.
fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    folder
}

/// As docs/queue.md describes it.
fn back_up(data: &Path, dump: &Path) {
    std::fs::write(dump, run(&mut at_postgres("pg_dump", data))).unwrap();
}

/// A middleware on a new database with what a backup holds.
fn restore(data: &Path, dump: &Path) -> (Process, Middleware) {
    let mut command = kendall();
    command
        .args(["serve", "queue-database", "--listen", "127.0.0.1:0", "--data"])
        .arg(data)
        .env("KENDALL_QUEUE_PASSWORD", PASSWORD)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let said = BufReader::new(child.stderr.take().unwrap());
    let database = Process(child);
    let mut lines = said.lines().map_while(Result::ok);
    let ready = lines.find(|line| line.starts_with("ready ")).unwrap();
    std::thread::spawn(move || lines.for_each(drop));
    let address = ready.split("listen=").nth(1).unwrap().split(' ').next().unwrap();
    let url = format!("postgres://kendall:{PASSWORD}@{address}/kendall");
    let words = ["--quiet", "--set", "ON_ERROR_STOP=1", "--file"];
    run(Command::new("psql").args(words).arg(dump).arg(&url));
    (database, Middleware::start(&["--database", &url]).unwrap())
}

struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_restored_backup_holds_the_queue_as_it_was_at_its_moment() {
    let folder = open_folder();
    let (data, dump) = (folder.path().join("queue"), folder.path().join("queue.sql"));
    let first = Middleware::start(&["--data", data.to_str().unwrap()]).unwrap();
    queue(first.address, &["create", "jobs"]);
    for content in ["before, taken before", "before, taken after", "before"] {
        queue(first.address, &["send", "jobs", content]);
    }
    assert_eq!(receive(first.address), "before, taken before");

    back_up(&data, &dump);
    assert_eq!(receive(first.address), "before, taken after");
    queue(first.address, &["send", "jobs", "after"]);
    first.stop();

    let (_database, second) = restore(&folder.path().join("restored"), &dump);
    let found: Vec<Value> = (0..3).map(|_| receive(second.address)).collect();
    assert_eq!(json!(found), json!(["before, taken after", "before", null]));
    queue(second.address, &["send", "jobs", "new"]);
    assert_eq!(receive(second.address), "new");
    second.stop();
}

/// One sends numbers and another takes them while the backup is made: it holds those that waited at one moment, all of them
/// and each once.
#[test]
fn a_backup_under_load_is_of_one_moment() {
    const AHEAD: u64 = 20;
    let folder = open_folder();
    let (data, dump) = (folder.path().join("queue"), folder.path().join("queue.sql"));
    let first = Middleware::start(&["--data", data.to_str().unwrap()]).unwrap();
    let address = first.address;
    queue(address, &["create", "jobs"]);
    let [sent, taken] = [AtomicU64::new(0), AtomicU64::new(0)];
    let now = || [&taken, &sent].map(|count| count.load(Ordering::SeqCst));
    let done = AtomicBool::new(false);
    let [before, after] = std::thread::scope(|scope| {
        // Also where this one fails: the others end then.
        let end = Ended(&done);
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                queue(address, &["send", "jobs", &now()[1].to_string()]);
                sent.fetch_add(1, Ordering::SeqCst);
            }
        });
        wait_until("messages", || now()[1] >= AHEAD);
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                assert_eq!(receive(address), now()[0].to_string());
                taken.fetch_add(1, Ordering::SeqCst);
            }
        });
        wait_until("takes", || now()[0] > 0);
        let before = now();
        back_up(&data, &dump);
        let after = now();
        drop(end);
        [before, after]
    });
    first.stop();

    let (_database, second) = restore(&folder.path().join("restored"), &dump);
    let number = |content: Value| content.as_str().map(|text| text.parse::<u64>().unwrap());
    let found: Vec<u64> = std::iter::from_fn(|| number(receive(second.address))).collect();
    second.stop();
    let (from, to) = (*found.first().unwrap(), found.last().unwrap() + 1);
    assert_eq!(found, (from..to).collect::<Vec<_>>());
    // A call may be under way whose answer was not counted yet.
    println!("{before:?} before, {from} to {to} in the backup, {after:?} after");
    assert!((before[0]..=after[0] + 1).contains(&from));
    assert!((before[1]..=after[1] + 1).contains(&to));
}
