//! `kendall queue` as scripts use it: JSON in and out, exit codes, odd contents, servers that die.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use crate::support::kendall;
use kendall_message_queue::wire::message_queue_client::MessageQueueClient;
use kendall_protocols::queue::CreateQueueRequest;
use serde_json::{Value, json};

/// A middleware over a private PostgreSQL, stopped at the end.
struct Service {
    child: Child,
    said: BufReader<ChildStderr>,
    address: String,
    metrics: String,
    folder: tempfile::TempDir,
}

impl Service {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let (child, said, [address, metrics]) = Self::run(&folder, "127.0.0.1:0");
        Self { child, said, address, metrics, folder }
    }

    fn run(
        folder: &tempfile::TempDir,
        listen: &str,
    ) -> (Child, BufReader<ChildStderr>, [String; 2]) {
        let mut child = kendall()
            .args(["serve", "queue", "--listen", listen, "--metrics", "127.0.0.1:0", "--data"])
            .arg(folder.path().join("queue"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("ready ") {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "it ended before it was ready");
            assert!(!line.contains('\u{1b}'), "colors in a log that no terminal shows: {line}");
        }
        let after =
            |mark: &str| line.split(mark).nth(1).unwrap().split(' ').next().unwrap().to_owned();
        let addresses = ["listen=", "metrics="].map(after);
        (child, said, addresses)
    }

    fn queue(&self) -> Command {
        let mut command = kendall();
        command.args(["queue", "--server", &self.address]);
        command
    }

    /// Runs a command with something on standard input.
    fn with_input(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut child = self
            .queue()
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let done = self.queue().args(["--format", "json"]).args(arguments).output().unwrap();
        assert!(done.status.success(), "{arguments:?}: {}", text(&done.stderr));
        serde_json::from_slice(&done.stdout).unwrap()
    }

    fn receive(&self, queue: &str) -> Value {
        self.json(&["--as", "worker", "receive", queue])["message"]["content"].clone()
    }

    /// Receives that were asked for.
    fn receives(&self) -> u64 {
        let mut page = TcpStream::connect(&self.metrics).unwrap();
        page.write_all(b"GET /snapshot HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        page.read_to_string(&mut answer).unwrap();
        let snapshot: Value =
            serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        snapshot["requests"]["receive"]["arrivals"].as_u64().unwrap_or(0)
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // A graceful stop, so that the private PostgreSQL stops too.
        self.signal("-TERM");
        self.said.read_to_end(&mut Vec::new()).map(drop).unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Exit code, standard output, standard error.
fn outcome(done: &Output) -> (i32, String, String) {
    (done.status.code().unwrap(), text(&done.stdout), text(&done.stderr))
}

#[test]
fn scripts_use_the_queue_by_its_command() {
    let mut service = Service::start();
    assert_eq!(service.json(&["create", "jobs"]), json!({ "queue_id": 1 }));
    assert_eq!(service.json(&["create", "jobs", "--if-missing"]), json!({ "queue_id": 1 }));
    contents_come_back_as_they_were(&service);
    lines_are_sent_up_to_the_first_bad_one(&service);
    leases_are_held_by_their_ids(&service);
    refusals_say_what_is_wrong_and_quote_harmlessly(&service);
    own_messages_are_explained(&service);
    a_queue_is_changed_and_its_messages_stay(&service);
    dead_letters_are_shown_and_driven_back(&service);
    what_was_taken_is_in_the_archive(&service);
    all_queues_are_listed(&service);
    watching_ends_when_nobody_reads(&service);
    a_server_that_stands_still_is_not_waited_for(&service);
    a_server_that_dies_is_asked_again(&mut service);
}

fn contents_come_back_as_they_were(service: &Service) {
    let longest = "é".repeat(2000);
    for content in ["", "one\ntwo \"quoted\" \\ \t", "\u{1f4a3}\u{202e}\u{7f}", &longest, "-x\n"] {
        let sent = service.with_input(&["send", "jobs"], content.as_bytes());
        assert!(sent.status.success(), "{}", text(&sent.stderr));
        assert_eq!(service.receive("jobs"), content);
    }
    service.json(&["send", "jobs", "--", "-x"]);
    let once = service.json(&["--as", "worker", "receive", "jobs", "--once"]);
    assert_eq!(once["message"]["content"], "-x");
    for (input, said) in [
        ("é".repeat(2001).as_bytes(), "longer than 2000 characters"),
        (b"a\0b", "NUL"),
        (b"\xff\xfe", "not UTF-8"),
    ] {
        let (code, _, error) = outcome(&service.with_input(&["send", "jobs"], input));
        assert!(code == 2 && error.contains(said), "{code}: {error}");
    }
    assert_eq!(service.receive("jobs"), Value::Null, "what was refused is not there");
}

fn lines_are_sent_up_to_the_first_bad_one(service: &Service) {
    let good = b"{\"content\":\"a\"}\n\n{\"content\":\"b\",\"to\":\"worker\",\"priority\":3}\n";
    let (code, printed, _) =
        outcome(&service.with_input(&["send", "jobs", "--lines", "--format", "json"], good));
    assert_eq!((code, printed.as_str()), (0, "{\n  \"sent\": 2\n}\n"));
    let bad =
        b"{\"content\":\"c\"}\n{\"content\":\"d\"}\n{\"contents\":\"e\"}\n{\"content\":\"f\"}\n";
    let (code, _, error) = outcome(&service.with_input(&["send", "jobs", "--lines"], bad));
    assert_eq!(code, 2);
    assert!(error.contains("line 3") && error.contains("(sent: 2 messages)"), "{error}");
    let refused = b"{\"content\":\"g\"}\n{\"content\":\"h\",\"priority\":5000}\n";
    let (code, _, error) = outcome(&service.with_input(&["send", "jobs", "--lines"], refused));
    assert_eq!(code, 2);
    assert!(error.contains("line 2: priority") && error.contains("(sent: 1 message)"), "{error}");
    let found: Vec<Value> = (0..6).map(|_| service.receive("jobs")).collect();
    assert_eq!(json!(found), json!(["a", "b", "c", "d", "g", null]));
}

fn leases_are_held_by_their_ids(service: &Service) {
    service.json(&["send", "jobs", "work"]);
    let held = service.json(&["--as", "worker", "lease", "jobs", "--for", "1min"]);
    let message = held["message"]["message_id"].to_string();
    let lease = held["lease_id"].to_string();
    assert_eq!(service.receive("jobs"), Value::Null);
    service.json(&["--as", "worker", "extend", &message, &lease, "--for", "2min"]);
    service.json(&["--as", "worker", "return", &message, &lease]);
    let again = service.json(&["--as", "worker", "lease", "jobs"]);
    let lease = again["lease_id"].to_string();
    service.json(&["--as", "worker", "ack", &message, &lease]);
    let twice = service.queue().args(["--as", "worker", "ack", &message, &lease]).output().unwrap();
    assert!(outcome(&twice).2.contains("not held"));
    assert_eq!(twice.status.code(), Some(2));
}

fn refusals_say_what_is_wrong_and_quote_harmlessly(service: &Service) {
    service.json(&["create", "\u{1b}[31mred\nalert"]);
    for (arguments, said) in [
        (&["send", "nothing", "x"][..], "there is no queue `nothing`; there are: "),
        (&["create", "jobs"], "exists"),
        (&["create", ""], "1 to 200 characters"),
        (&["purge", "jobs"], "--yes"),
        (&["send", "jobs", "x", "--priority", "-1"], "-1 is not in 0..=1000"),
        (&["read", "jobs", "--wait", "1s"], "--wait"),
        (&["receive", "jobs", "--wait", "-1s"], "-1s"),
        (&["send", "jobs", "x", "--to", "command-line"], "itself"),
        (&["ack", "999", "1"], "not held"),
        (&["watch", "nothing", "--times", "1"], "there is no queue"),
    ] {
        let (code, printed, error) = outcome(&service.queue().args(arguments).output().unwrap());
        assert_eq!((code, printed.as_str()), (2, ""), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?}: {error}");
        assert!(!error.contains('\u{1b}'), "{error:?}");
    }
    let nobody = kendall().args(["queue", "--server", "127.0.0.1:1", "list"]).output().unwrap();
    let (code, _, error) = outcome(&nobody);
    assert!(code == 3 && error.contains("refused"), "{code}: {error}");
    service.json(&["delete", "\u{1b}[31mred\nalert"]);
}

fn own_messages_are_explained(service: &Service) {
    service.json(&["send", "jobs", "mine"]);
    let (code, printed, note) =
        outcome(&service.queue().args(["receive", "jobs"]).output().unwrap());
    assert_eq!((code, printed.as_str()), (0, "no message\n"));
    assert!(note.contains("--as NAME"), "{note}");
    assert_eq!(service.json(&["purge", "jobs", "--yes"]), json!({ "dropped": 1 }));
}

fn a_queue_is_changed_and_its_messages_stay(service: &Service) {
    service.json(&["create", "old"]);
    service.json(&["send", "old", "before"]);
    service.json(&["change", "old", "--rename", "new", "--pause"]);
    assert_eq!(service.receive("new"), Value::Null, "a paused queue gives nothing out");
    service.json(&["send", "new", "while paused"]);
    let gone = service.queue().args(["send", "old", "x"]).output().unwrap();
    assert_eq!(outcome(&gone).0, 2);
    service.json(&["change", "new", "--resume"]);
    assert_eq!(service.receive("new"), "before");
    assert_eq!(service.receive("new"), "while paused");
    let both = service.queue().args(["change", "new", "--pause", "--resume"]).output().unwrap();
    assert_eq!(outcome(&both).0, 2);
    service.json(&["delete", "new"]);
}

fn dead_letters_are_shown_and_driven_back(service: &Service) {
    service.json(&["create", "dead"]);
    service.json(&["create", "mail", "--max-deliveries", "1", "--dead-letters", "dead"]);
    let dies = |content: &str, reason: &str| {
        service.json(&["--as", "maker", "send", "mail", content]);
        let held = service.json(&["--as", "worker", "lease", "mail"]);
        let (message, lease) =
            (held["message"]["message_id"].to_string(), held["lease_id"].to_string());
        service.json(&["--as", "worker", "return", &message, &lease, "--reason", reason]);
    };
    dies("one", "cannot read it");
    dies("two", "");
    let shown = service.json(&["dead-letters", "dead"]);
    let letters = shown["dead_letters"].as_array().unwrap();
    assert_eq!(letters.len(), 2, "{shown}");
    assert_eq!((&letters[0]["content"], &letters[1]["content"]), (&json!("one"), &json!("two")));
    assert!(letters[0].to_string().contains("cannot read it"), "{shown}");
    let of_maker = service.json(&["dead-letters", "dead", "--from", "maker"]);
    assert_eq!(of_maker["dead_letters"].as_array().unwrap().len(), 2);
    let of_another = service.json(&["dead-letters", "dead", "--from", "worker"]);
    assert_eq!(of_another["dead_letters"], json!([]));
    let said = service.queue().args(["dead-letters", "dead"]).output().unwrap();
    assert!(outcome(&said).1.contains("it was returned: cannot"), "{}", text(&said.stdout));
    // One by its id, elsewhere; then the rest, to where they died.
    service.json(&["create", "repaired"]);
    let id = letters[0]["message_id"].to_string();
    let moved = service.json(&["redrive", "dead", &id, "--to", "repaired"]);
    assert_eq!(moved, json!({ "moved": 1 }));
    assert_eq!(service.receive("repaired"), "one");
    assert_eq!(service.json(&["redrive", "dead"]), json!({ "moved": 1 }));
    assert_eq!(service.receive("mail"), "two");
    assert_eq!(service.json(&["dead-letters", "dead"])["dead_letters"], json!([]));
    for queue in ["mail", "dead", "repaired"] {
        service.json(&["delete", queue]);
    }
}

fn what_was_taken_is_in_the_archive(service: &Service) {
    service.json(&["create", "kept", "--archive", "1h"]);
    for content in ["received", "acknowledged", "waits"] {
        service.json(&["--as", "maker", "send", "kept", content]);
    }
    assert_eq!(service.receive("kept"), "received");
    let held = service.json(&["--as", "worker", "lease", "kept"]);
    let (message, lease) =
        (held["message"]["message_id"].to_string(), held["lease_id"].to_string());
    service.json(&["--as", "worker", "ack", &message, &lease]);
    let shown = service.json(&["archived", "kept"]);
    let archived = shown["archived"].as_array().unwrap();
    let ends: Vec<_> =
        archived.iter().map(|one| (&one["message"]["content"], &one["how"])).collect();
    let expected = ["received", "acknowledged"].map(|word| json!(word));
    assert_eq!(ends, [(&expected[0], &expected[0]), (&expected[1], &expected[1])], "{shown}");
    service.json(&["delete", "kept", "--with-messages"]);
}

/// More than a page of the listing has.
fn all_queues_are_listed(service: &Service) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut queue =
            MessageQueueClient::connect(format!("http://{}", service.address)).await.unwrap();
        for number in 0..1100 {
            let request =
                CreateQueueRequest { name: format!("many-{number}"), ..Default::default() };
            queue.create_queue(request).await.unwrap();
        }
    });
    let listed = service.json(&["list", "--all"]);
    assert_eq!(listed["queues"].as_array().unwrap().len(), 1101);
    let done = service.queue().args(["watch", "--times", "1"]).output().unwrap();
    let shown = text(&done.stdout);
    assert!(shown.contains("and 1001 more queues"), "{shown}");
}

fn watching_ends_when_nobody_reads(service: &Service) {
    let mut child = service
        .queue()
        .args(["watch", "jobs", "--format", "json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(first["queues"][0]["name"], "jobs");
    drop(lines);
    assert!(child.wait().unwrap().success());
}

fn a_server_that_stands_still_is_not_waited_for(service: &Service) {
    service.signal("-STOP");
    let asked = service.queue().args(["stats", "jobs", "--timeout", "300ms"]).output();
    service.signal("-CONT");
    let (code, _, error) = outcome(&asked.unwrap());
    assert!(code == 3 && error.contains("--timeout"), "{code}: {error}");
}

/// Killed while a client waits for a message: the client asks the next middleware of that address,
/// and is given the message.
fn a_server_that_dies_is_asked_again(service: &mut Service) {
    let asked = service.receives();
    let waiting = service
        .queue()
        .args(["--as", "worker", "receive", "jobs", "--wait", "50s", "--timeout", "50s"])
        .args(["--format", "json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    crate::support::wait_until("the client asks", || service.receives() > asked);
    service.signal("-KILL");
    service.child.wait().unwrap();
    (service.child, service.said, _) = Service::run(&service.folder, &service.address);
    service.json(&["send", "jobs", "after the crash"]);
    let done = waiting.wait_with_output().unwrap();
    let found: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(found["message"]["content"], "after the crash");
}
