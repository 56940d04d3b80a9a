//! What tests with real servers share: addresses that no other test has, processes that end with the test, a
//! reads of a page, and waits for what must happen. For tests alone: all of it panics where it fails.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "helpers of tests fail by panicking, and wait with a deadline of their own"
)]

pub mod namespace;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Longest wait for what must happen, on a machine however busy.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// An address that no other test has: a loopback host of this process and this call alone. A port of
/// 127.0.0.1 that was free a moment ago may be any other test's by the time a child binds it.
///
/// # Panics
/// After some 250 calls of one process.
pub fn free_address() -> SocketAddr {
    static CALLS: AtomicU8 = AtomicU8::new(2);
    let [.., high, low] = std::process::id().to_be_bytes();
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    assert!(call < 250, "one host a call");
    let host = Ipv4Addr::new(127, high, low, call);
    TcpListener::bind((host, 0)).unwrap().local_addr().unwrap()
}

/// Checks until it is so. What counts is the time that it slept, not the time that went by, so that a
/// machine that stands still for a while fails nothing: a check must not block.
///
/// # Panics
/// When it is not so after two minutes of sleep.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let step = Duration::from_millis(5);
    for _ in 0..24_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(step);
    }
    panic!("waited too long for {what}");
}

/// Runs `openssl` with these arguments, parted by spaces, in a folder.
///
/// # Panics
/// Where it is not installed or refuses, with what it said.
pub fn openssl(folder: &Path, arguments: &str) {
    let done = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output();
    let done = done.expect("openssl: install it with `make packages-test`");
    assert!(done.status.success(), "{arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A certificate for `localhost` and 127.0.0.1 that is its own root (`NAME.pem`), and its key (`NAME.key`).
///
/// # Panics
/// As [`openssl`].
pub fn certificate(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    openssl(
        folder,
        &format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj \
             /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -addext \
             basicConstraints=critical,CA:FALSE -keyout {name}.key -out {name}.pem"
        ),
    );
    (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")))
}

/// The same with a certificate that was valid in the year 2020 alone.
///
/// # Panics
/// As [`openssl`].
pub fn expired_certificate(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    let settings = format!(
        "[ca]\ndefault_ca = old\n[old]\ndatabase = {name}.index\nserial = {name}.serial\nnew_certs_dir = .\n\
         default_md = sha256\npolicy = names\nx509_extensions = more\n[names]\ncommonName = supplied\n\
         [more]\nsubjectAltName = DNS:localhost,IP:127.0.0.1\n"
    );
    for (end, text) in [("cnf", settings.as_str()), ("index", ""), ("serial", "01\n")] {
        std::fs::write(folder.join(format!("{name}.{end}")), text).unwrap();
    }
    openssl(
        folder,
        &format!(
            "req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost \
             -keyout {name}.key -out {name}.csr"
        ),
    );
    openssl(
        folder,
        &format!(
            "ca -config {name}.cnf -selfsign -keyfile {name}.key -in {name}.csr -batch -notext \
             -startdate 20200101000000Z -enddate 20210101000000Z -out {name}.pem"
        ),
    );
    (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")))
}

/// A process that ends when it is dropped.
#[derive(Debug)]
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        self.0.wait().map(drop).unwrap_or_default();
    }
}

impl Process {
    /// Starts a tier, and reads the line in which it says that it is ready; what it says after that is
    /// dropped. It must not use standard error otherwise.
    ///
    /// # Panics
    /// When it does not start.
    pub fn ready(command: &mut Command) -> (Self, Ready) {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        (Self(child), Ready(line))
    }

    /// A memcached of version 1.6 with one thread, which answers.
    ///
    /// # Panics
    /// When it is missing, or does not answer.
    #[must_use]
    pub fn memcached(address: SocketAddr, more: &[&str]) -> Self {
        let child = Command::new("memcached")
            .args(["-l", &address.ip().to_string(), "-p", &address.port().to_string()])
            .args(["-U", "0", "-t", "1", "-c", "20000", "-u", "root"])
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("memcached is missing: run `make packages-test`");
        let process = Self(child);
        wait_until("memcached to answer", || TcpStream::connect(address).is_ok());
        process
    }

    /// An nginx with these lines in its block `http`, which listens at all these addresses. Its files are in the folder.
    ///
    /// # Panics
    /// When it is missing, or does not listen.
    #[must_use]
    pub fn nginx(folder: &Path, addresses: &[SocketAddr], http: &str) -> Self {
        let text = format!(
            "daemon off; master_process off; pid {0}/pid; error_log /dev/null;\n\
             events {{ worker_connections 256; }}\n\
             http {{ access_log off; client_body_temp_path {0}/a; proxy_temp_path {0}/b; \
             fastcgi_temp_path {0}/c; uwsgi_temp_path {0}/d; scgi_temp_path {0}/e;\n{http} }}\n",
            folder.display()
        );
        let config = folder.join("nginx.conf");
        std::fs::write(&config, text).unwrap();
        let installed = Path::new("/usr/sbin/nginx");
        let program = if installed.exists() { installed } else { Path::new("nginx") };
        let mut command = Command::new(program);
        command.arg("-p").arg(folder).arg("-c").arg(&config).stderr(Stdio::null());
        let process = Self(command.spawn().expect("nginx is missing: run `make packages-test`"));
        wait_until("nginx to listen", || addresses.iter().all(|to| TcpStream::connect(to).is_ok()));
        process
    }

    /// A Redis without files, which answers.
    ///
    /// # Panics
    /// When it is missing, or does not answer.
    #[must_use]
    pub fn redis(address: SocketAddr, folder: &Path, more: &[&str]) -> Self {
        let child = Command::new("redis-server")
            .args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string()])
            .args(["--save", "", "--appendonly", "no", "--protected-mode", "no", "--dir"])
            .arg(folder)
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is missing: run `make packages-test`");
        let process = Self(child);
        wait_until("redis to answer", || TcpStream::connect(address).is_ok());
        process
    }

    /// A Prometheus with this configuration, which is ready, and where it is.
    ///
    /// # Panics
    /// When it is missing, or does not become ready.
    pub fn prometheus(folder: &Path, config: &str, more: &[&str]) -> (Self, SocketAddr) {
        let address = free_address();
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=error")
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus is missing: run `make packages-test`");
        let process = Self(child);
        wait_until("prometheus is ready", || {
            page(address, "/-/ready").is_some_and(|page| page.status == 200)
        });
        (process, address)
    }
}

/// A link of Kendall's: a relay that cuts its connections or stands still when it is told to.
#[derive(Debug)]
pub struct Link {
    _process: Process,
    pub listen: SocketAddr,
    control: SocketAddr,
}

impl Link {
    /// Starts one to an address.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(mut kendall: Command, to: SocketAddr) -> Self {
        let to = to.to_string();
        kendall.args(["serve", "link", "--listen", "127.0.0.1:0", "--to", &to, "--delay", "0.1ms"]);
        kendall.args(["--metrics", "127.0.0.1:0"]).stdout(Stdio::null());
        let (process, ready) = Process::ready(&mut kendall);
        Self {
            _process: process,
            listen: ready.address("listen"),
            control: ready.address("metrics"),
        }
    }

    /// Has it cut its connections (`cut`), or stand still (`stop`), or work again (`none`).
    ///
    /// # Panics
    /// When it does not take the order.
    pub fn fault(&self, fault: &str) {
        let body = format!("{{\"fault\": \"{fault}\"}}");
        let request = format!(
            "PUT /control HTTP/1.1\r\nhost: link\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let mut stream = TcpStream::connect(self.control).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

/// The line in which a tier says that it is ready.
#[derive(Debug)]
pub struct Ready(pub String);

impl Ready {
    /// An address that it names: `listen` or `metrics`.
    ///
    /// # Panics
    /// When it does not.
    pub fn address(&self, name: &str) -> SocketAddr {
        let word = self
            .0
            .split_whitespace()
            .find_map(|word| word.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')));
        word.unwrap_or_else(|| panic!("no {name} in {:?}", self.0)).parse().unwrap()
    }
}

/// What a page answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// What follows the head.
    pub body: String,
}

/// Requests a page by HTTP/1.0, which has no chunked bodies. `None` without a complete response.
pub fn page(address: SocketAddr, path: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(DEADLINE)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, body: body.to_owned() })
}

/// SIGKILL to a process and its children, such as a PostgreSQL with all its sessions.
///
/// # Panics
/// Where a process id is none.
pub fn kill_with_children(pid: u32) {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    for pid in std::iter::once(pid.to_string()).chain(children.split_whitespace().map(String::from))
    {
        let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        // An error means that it has ended.
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap_or_default();
    }
}
