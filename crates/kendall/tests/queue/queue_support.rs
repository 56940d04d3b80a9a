//! A middleware as a process, for tests of the message queue.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part, and stops at surprises")]
#![allow(clippy::print_stdout, reason = "the log of a middleware belongs to a test that fails")]

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};

/// `kendall serve queue` on a free port; killed when dropped.
#[derive(Debug)]
pub(crate) struct Middleware {
    process: Child,
    pub(crate) address: SocketAddr,
    /// Reads what it says on standard error to its end.
    said: Option<JoinHandle<String>>,
}

impl Middleware {
    /// Starts it with these arguments; what it said and how it ended, if it is not ready.
    pub(crate) fn start(arguments: &[&str]) -> Result<Self, String> {
        Self::start_on(([127, 0, 0, 1], 0).into(), arguments)
    }

    /// As `start`, on this address.
    pub(crate) fn start_on(listen: SocketAddr, arguments: &[&str]) -> Result<Self, String> {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_kendall")), listen, arguments)
    }

    /// As `start`, where it may open so many files.
    pub(crate) fn start_with_files(files: u32, arguments: &[&str]) -> Result<Self, String> {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\"")]);
        shell.arg(env!("CARGO_BIN_EXE_kendall"));
        Self::start_by(shell, ([127, 0, 0, 1], 0).into(), arguments)
    }

    fn start_by(
        mut command: Command,
        listen: SocketAddr,
        arguments: &[&str],
    ) -> Result<Self, String> {
        let mut process = command
            .args(["serve", "queue", "--listen", &listen.to_string()])
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines =
            BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut text = String::new();
        while let Some(line) = lines.next() {
            text.push_str(&line);
            text.push('\n');
            if let Some(at) = line.find("listen=").filter(|_| line.starts_with("ready ")) {
                let address = line[at + 7..].split(' ').next().unwrap().parse().unwrap();
                let said = std::thread::spawn(move || {
                    for line in lines {
                        // Shown when the test fails.
                        println!("{address}: {line}");
                        text.push_str(&line);
                        text.push('\n');
                    }
                    text
                });
                return Ok(Self { process, address, said: Some(said) });
            }
        }
        let status = process.wait().unwrap();
        Err(format!("{text}{status}"))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Asks it to stop; gives what it said.
    pub(crate) fn stop(mut self) -> String {
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let status = self.process.wait().unwrap();
        let said = self.said.take().unwrap().join().unwrap();
        assert!(status.success(), "{status}: {said}");
        said
    }
}

impl Drop for Middleware {
    fn drop(&mut self) {
        if self.said.is_some() {
            self.process.kill().unwrap_or_default();
            self.process.wait().unwrap();
        }
    }
}

/// A program of PostgreSQL's at the private one of a folder of data.
pub(crate) fn at_postgres(program: &str, data: &Path) -> Command {
    let sockets = data.join("socket");
    let mut there = std::fs::read_dir(&sockets).unwrap();
    let port =
        there.find_map(|entry| entry.unwrap().path().extension()?.to_str()?.parse::<u16>().ok());
    let mut command = Command::new(program);
    command.args(["--host", sockets.to_str().unwrap(), "--port", &port.unwrap().to_string()]);
    command.args(["--username", "kendall", "--dbname", "kendall"]);
    command
}
