//! A real browser, driven by its debugging protocol, and processes that say where they listen.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// A process that is killed at the end, and what it says.
pub(crate) struct Process {
    pub(crate) child: Child,
    said: std::io::Lines<BufReader<ChildStderr>>,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, said }
    }

    /// What follows `mark` in the next line that has it, up to a space.
    pub(crate) fn after(&mut self, mark: &str) -> String {
        let line = self.said.by_ref().map(Result::unwrap).find(|line| line.contains(mark));
        let line = line.unwrap_or_else(|| panic!("it never said `{mark}`"));
        let rest = &line[line.find(mark).unwrap() + mark.len()..];
        rest.split(' ').next().unwrap().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

/// A page of a browser, by its debugging protocol: JSON over a WebSocket (RFC 6455).
pub(crate) struct Page {
    stream: BufReader<TcpStream>,
    calls: u64,
}

impl Page {
    /// Waits for the browser's first page.
    pub(crate) fn of(address: &str) -> Self {
        let mut found = None;
        kendall_testing::wait_until("the browser's page", || {
            let mut stream = TcpStream::connect(address).unwrap();
            let ask =
                format!("GET /json/list HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
            stream.write_all(ask.as_bytes()).unwrap();
            let pages = list(BufReader::new(stream));
            let page = pages.iter().find(|page| page["type"] == "page");
            found = page.and_then(|page| page["webSocketDebuggerUrl"].as_str().map(str::to_owned));
            found.is_some()
        });
        let url = found.unwrap();
        let path = url.strip_prefix("ws://").unwrap().split_once('/').unwrap().1;
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let ask = format!(
            "GET /{path} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        );
        stream.write_all(ask.as_bytes()).unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).unwrap();
        }
        Self { stream, calls: 0 }
    }

    pub(crate) fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.calls += 1;
        let id = self.calls;
        let text = json!({ "id": id, "method": method, "params": parameters }).to_string();
        let mut frame = vec![0x81, 0x80 | 127]; // a whole text, masked, its length in eight bytes
        frame.extend_from_slice(&u64::try_from(text.len()).unwrap().to_be_bytes());
        frame.extend_from_slice(&[0; 4]); // the mask that changes nothing
        frame.extend_from_slice(text.as_bytes());
        self.stream.get_mut().write_all(&frame).unwrap();
        loop {
            let answer: Value = serde_json::from_slice(&self.frame()).unwrap_or_default();
            if answer["id"] == id {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    fn frame(&mut self) -> Vec<u8> {
        let mut take = |count: usize| {
            let mut bytes = vec![0; count];
            self.stream.read_exact(&mut bytes).unwrap();
            bytes
        };
        let head = take(2);
        let length = match head[1] & 127 {
            126 => u64::from(u16::from_be_bytes(take(2).try_into().unwrap())),
            127 => u64::from_be_bytes(take(8).try_into().unwrap()),
            short => u64::from(short),
        };
        take(usize::try_from(length).unwrap())
    }

    /// What a script gives; it may use `until(f)`, which waits for a truth, and `click(id)`.
    pub(crate) fn run(&mut self, script: &str) -> Value {
        const TOOLS: &str = "const $ = id => document.getElementById(id), \
            click = id => $(id).click(), \
            rows = () => [...document.querySelectorAll('tbody tr')], \
            until = async f => { for (let i = 0; i < 1000; i++) { const found = f(); \
                if (found) return found; await new Promise(r => setTimeout(r, 20)); } \
                throw new Error('never: ' + f + ' ' + document.body.innerText); };";
        let expression = format!("(async () => {{ {TOOLS} {script} }})()");
        let parameters =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", &parameters);
        assert!(answer.get("exceptionDetails").is_none(), "{script}: {answer:#}");
        answer["result"]["value"].clone()
    }

    /// Clicks by the mouse on the element that a script gives.
    pub(crate) fn click(&mut self, element: &str) {
        let at = self.run(&format!(
            "const found = {element}; \
             found.scrollIntoView({{ block: 'center', inline: 'center' }}); const box = found.getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2]"
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let event =
                json!({ "type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", &event);
        }
    }

    pub(crate) fn go(&mut self, url: &str) {
        // Another document, even where only the fragment differs.
        self.call("Page.navigate", &json!({ "url": "about:blank" }));
        self.call("Page.navigate", &json!({ "url": url }));
        let site = json!(url.split('#').next());
        self.run(&format!(
            "await until(() => location.href.startsWith({site}) && document.readyState === 'complete')"
        ));
    }
}

/// The body of an answer that says how long it is; the browser keeps the connection open.
fn list(mut answer: BufReader<TcpStream>) -> Vec<Value> {
    answer.get_ref().set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut length = 0;
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        answer.read_line(&mut line).unwrap();
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    answer.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap_or_default()
}

fn browser() -> PathBuf {
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|candidate| candidate.is_file());
    found.expect("this test needs Chromium: `make packages-test` installs it")
}

/// A browser of its own, and its debugging address.
pub(crate) fn chromium(profile: &std::path::Path) -> (Process, String) {
    let mut process = Process::start(
        Command::new(browser())
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update"])
            .args(["--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-port=0"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
            .arg("about:blank"),
    );
    let address = process.after("ws://").split('/').next().unwrap().to_owned();
    (process, address)
}
