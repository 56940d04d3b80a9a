//! TLS on both sides: memcached itself behind, `openssl` as a client before.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use kendall_memcached_proxy::{ClientTls, Options, ServerTls};
use kendall_testing::certificate;
use kendall_tier::serve::Tls;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::common::{self, Client, MODES, Memcached, Running, options, with};

/// A folder with a certificate of `localhost` and 127.0.0.1, and its key.
struct Files {
    folder: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn make(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("kendall-tls-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (certificate, key) = certificate(&folder, "certificate");
        Self { folder, certificate, key }
    }

    fn for_clients(&self) -> ClientTls {
        let (certificate, key) = (self.certificate.clone(), self.key.clone());
        ClientTls::new(&Tls { certificate, key, client_certificate: None }).unwrap()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).unwrap_or_default();
    }
}

fn call(address: SocketAddr, authority: &Path) -> StreamOwned<ClientConnection, TcpStream> {
    let trust = ServerTls::from_files(authority, Some("localhost")).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::clone(&trust.config), name).unwrap();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(common::DEADLINE)).unwrap();
    StreamOwned::new(connection, stream)
}

fn exchange(
    stream: &mut StreamOwned<ClientConnection, TcpStream>,
    request: &[u8],
    end: &[u8],
) -> Vec<u8> {
    stream.write_all(request).unwrap();
    stream.flush().unwrap();
    let mut answer = Vec::new();
    let mut piece = [0; 16384];
    while !answer.ends_with(end) {
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "closed");
        answer.extend_from_slice(&piece[..count]);
    }
    answer
}

#[test]
fn clients_and_servers_are_spoken_to_with_tls() {
    let files = Files::make("both");
    let (certificate, key) = (files.certificate.clone(), files.key.clone());
    let chain = format!("ssl_chain_cert={}", certificate.display());
    let private = format!("ssl_key={}", key.display());
    let server = Memcached::start_with(&["-Z", "-o", &chain, "-o", &private]);
    for mode in MODES {
        let options = with(options(&[&server], mode), |pool| {
            pool.tls = Some(ServerTls::from_files(&certificate, Some("localhost")).unwrap());
            pool.timeout = common::DEADLINE;
        });
        let proxy = Running::start(Options { client_tls: Some(files.for_clients()), ..options });
        let mut clients: Vec<_> = (0..8).map(|_| call(proxy.address, &certificate)).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            let set = format!("set k{number} 0 0 1\r\nv\r\n");
            assert_eq!(exchange(client, set.as_bytes(), b"\r\n"), b"STORED\r\n");
        }
        for size in [1, 20_000, 700_000] {
            let value = "x".repeat(size);
            let set = format!("set large 0 0 {size}\r\n{value}\r\n");
            assert_eq!(exchange(&mut clients[0], set.as_bytes(), b"\r\n"), b"STORED\r\n");
            for client in &mut clients {
                let answer = exchange(client, b"get large\r\n", b"END\r\n");
                let expected = format!("VALUE large 0 {size}\r\n{value}\r\nEND\r\n");
                assert!(answer == expected.as_bytes(), "{mode:?}, {size} bytes");
            }
        }
        // Pipelined, in more bytes than one record has, and closed before the answers.
        let mut hasty = call(proxy.address, &certificate);
        let sets: String =
            (0..2000).map(|n| format!("set hasty{n} 0 0 1 noreply\r\nv\r\n")).collect();
        hasty.write_all(sets.as_bytes()).unwrap();
        hasty.conn.send_close_notify();
        hasty.flush().unwrap();
        drop(hasty);
        common::wait_for("the last write of one that closed", || {
            let answer = exchange(&mut clients[1], b"get hasty1999\r\n", b"END\r\n");
            answer.starts_with(b"VALUE")
        });
        drop(clients);
        common::wait_for("the clients to be forgotten", || {
            proxy.instruments.snapshot().connections.current == 0
        });
    }
}

#[test]
fn openssl_is_a_client_as_well_and_one_without_tls_is_not() {
    let files = Files::make("openssl");
    let server = Memcached::start();
    for mode in MODES {
        let tls = files.for_clients();
        let proxy = Running::start(Options { client_tls: Some(tls), ..options(&[&server], mode) });
        let mut openssl = Command::new("openssl")
            .args(["s_client", "-quiet", "-verify_return_error", "-CAfile"])
            .arg(&files.certificate)
            .args(["-connect", &proxy.address.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = openssl.stdin.take().unwrap();
        stdin.write_all(b"set k 0 0 1\r\nv\r\nget k\r\nquit\r\n").unwrap();
        let mut answer = String::new();
        openssl.stdout.take().unwrap().read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n");
        drop(stdin);
        openssl.wait().unwrap();
        // In clear: an alert at most, and the connection is closed.
        let mut clear = Client::connect(proxy.address);
        clear.send(b"get k\r\nget k\r\n");
        let answer = clear.read_to_end();
        assert!(common::find(&answer, b"VALUE").is_none());
    }
}

/// Handshakes that never end and answers that are not read harm no other client, and are dropped.
#[test]
fn clients_that_stop_within_tls_harm_nobody() {
    let files = Files::make("stops");
    let server = Memcached::start_with(&["-m", "256"]);
    for mode in MODES {
        let tls = files.for_clients();
        let proxy = Running::start(Options { client_tls: Some(tls), ..options(&[&server], mode) });
        let mut well = call(proxy.address, &files.certificate);
        let value = "x".repeat(900_000);
        let set = format!("set large 0 0 {}\r\n{value}\r\n", value.len());
        assert_eq!(exchange(&mut well, set.as_bytes(), b"\r\n"), b"STORED\r\n");
        // A hello that says it is longer than what comes.
        let mut begun: Vec<TcpStream> = Vec::new();
        for length in 1..12 {
            let mut stream = TcpStream::connect(proxy.address).unwrap();
            stream
                .write_all(&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00"[..length])
                .unwrap();
            begun.push(stream);
        }
        let mut deaf: Vec<_> = (0..8).map(|_| call(proxy.address, &files.certificate)).collect();
        for client in &mut deaf {
            client.write_all(&b"get large\r\n".repeat(10)).unwrap();
            client.flush().unwrap();
        }
        for _ in 0..20 {
            let answer = exchange(&mut well, b"set k 0 0 1\r\nv\r\nget k\r\n", b"END\r\n");
            assert_eq!(answer, b"STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n");
        }
        // Those that read after all get every byte.
        let answer = "VALUE large 0 900000\r\n".len() + value.len() + "\r\nEND\r\n".len();
        let mut all = vec![0; 10 * answer];
        deaf[0].read_exact(&mut all).unwrap();
        assert!(all.ends_with(b"x\r\nEND\r\n"));
        drop((begun, deaf));
        common::wait_for("them to be forgotten", || {
            proxy.instruments.snapshot().connections.current == 1
        });
        // What servers still answer for them is read to its end, after they are forgotten.
        common::wait_for("their requests to end", || {
            proxy.instruments.snapshot().workers_busy.current == 0
        });
        assert_eq!(exchange(&mut well, b"get k\r\n", b"END\r\n"), b"VALUE k 0 1\r\nv\r\nEND\r\n");
    }
}

/// A client that connects and sends nothing, or not enough, has shown no certificate: it must not keep out those
/// who have. Who has agreed on TLS may be silent for as long as it likes.
#[test]
fn a_handshake_that_does_not_end_keeps_nobody_out_for_good() {
    let files = Files::make("silent");
    let server = Memcached::start();
    let tls = files.for_clients();
    let options = options(&[&server], MODES[0]);
    let proxy = Running::start(Options { client_tls: Some(tls), connections: 8, ..options });
    let mut silent_later = call(proxy.address, &files.certificate);
    assert_eq!(exchange(&mut silent_later, b"get k\r\n", b"END\r\n"), b"END\r\n");
    let mut begun: Vec<TcpStream> =
        (0..7).map(|_| TcpStream::connect(proxy.address).unwrap()).collect();
    begun[1].write_all(b"\x16\x03\x01").unwrap();
    // It waits in the system's queue until there is room.
    let mut patient = call(proxy.address, &files.certificate);
    assert_eq!(exchange(&mut patient, b"get k\r\n", b"END\r\n"), b"END\r\n");
    common::wait_for("the silent ones to be forgotten", || {
        proxy.instruments.snapshot().connections.current == 2
    });
    assert_eq!(proxy.limit("handshake"), 7);
    assert_eq!(exchange(&mut silent_later, b"get k\r\n", b"END\r\n"), b"END\r\n");
}

#[test]
fn a_server_with_another_certificate_is_not_asked() {
    let (files, others) = (Files::make("mine"), Files::make("others"));
    let chain = format!("ssl_chain_cert={}", files.certificate.display());
    let private = format!("ssl_key={}", files.key.display());
    let server = Memcached::start_with(&["-Z", "-o", &chain, "-o", &private]);
    for mode in MODES {
        let trust = ServerTls::from_files(&others.certificate, Some("localhost")).unwrap();
        let options = with(options(&[&server], mode), |pool| pool.tls = Some(trust));
        let proxy = Running::start(options);
        let mut client = Client::connect(proxy.address);
        for _ in 0..5 {
            let answer = client.line("get k\r\n");
            assert!(answer.starts_with("SERVER_ERROR"), "{answer}");
        }
    }
}
