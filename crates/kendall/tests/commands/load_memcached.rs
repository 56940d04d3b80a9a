//! `kendall load memcached --tls`, and what TLS that fails during a load is called, of each protocol.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::Output;

use kendall_testing::{Process, certificate, free_address};

use crate::hostile::relay;
use crate::support::{kendall, printed};

fn load(protocol: &str, target: &str, arguments: &[&str]) -> Output {
    let mut command = kendall();
    command.args(["load", protocol, target, "--quiet", "--format", "json"]).args(arguments);
    command.output().unwrap()
}

/// A memcached behind TLS.
fn memcached(folder: &Path) -> (Process, SocketAddr) {
    let (server, key) = certificate(folder, "server");
    let options = format!("ssl_chain_cert={},ssl_key={}", server.display(), key.display());
    let address = free_address();
    (Process::memcached(address, &["-Z", "-o", &options]), address)
}

#[test]
fn servers_behind_tls_are_filled_and_loaded_and_others_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = memcached(folder.path());
    let plain = free_address();
    let _plain = Process::memcached(plain, &[]);
    let (target, plain) = (address.to_string(), plain.to_string());
    let authority = folder.path().join("server.pem").display().to_string();
    let tls = ["--tls", "--server-name", "localhost", "--authority", &authority];
    let large = ["--value-size", "100KiB", "--keys", "20", "--prefill", "--verify", "-c", "3"];
    let gets = ["--mix", "get=1", "--multiget", "3", "-n", "40"];
    let output = load("memcached", &target, &[&tls[..], &large, &gets].concat());
    let json = printed(&output);
    assert_eq!((output.status.code(), &json["completed"]), (Some(0), &40.into()), "{json:#}");
    assert_eq!(json["operations"]["multi-get"]["hits"], 120, "{json:#}");
    let other = certificate(folder.path(), "other").0.display().to_string();
    for (target, arguments, part) in [
        (&target, &["--tls", "--server-name", "localhost"][..], "does not trust"),
        (&target, &["--tls", "--server-name", "other.example", "--authority", &authority], "trust"),
        (&target, &["--tls", "--server-name", "localhost", "--authority", &other], "trust"),
        (&plain, &tls[..], ""),
    ] {
        for more in [&["-n", "1"][..], &["--prefill-only"]] {
            let all = [arguments, more, &["--timeout", "1s"]].concat();
            let output = load("memcached", target, &all);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(3), "{all:?}: {said}");
            assert!(said.contains(part), "{all:?}: {said}");
        }
    }
}

/// nginx for HTTP and gRPC behind TLS; each call is answered at once.
fn nginx(folder: &Path) -> (Process, SocketAddr) {
    let address = free_address();
    certificate(folder, "nginx");
    let http = format!(
        "server {{ listen {address} ssl http2; keepalive_requests 1000000; ssl_certificate {0}/nginx.pem; \
         ssl_certificate_key {0}/nginx.key; location / {{ return 200 ok; }} }}",
        folder.display()
    );
    let server = Process::nginx(folder, &[address], &http);
    (server, address)
}

/// The first connections are cut after a while, and those that follow cannot be encrypted: in each protocol both
/// have the same names.
#[test]
fn what_breaks_an_encrypted_connection_has_one_name_in_all_protocols() {
    let folder = tempfile::tempdir().unwrap();
    let (_memcached, memcached) = memcached(folder.path());
    let (_nginx, nginx) = nginx(folder.path());
    let (server, key) = certificate(folder.path(), "redis");
    let (server, key) = (server.display().to_string(), key.display().to_string());
    let (plain, redis) = (free_address(), free_address());
    let redis = SocketAddr::new(plain.ip(), redis.port());
    let port = redis.port().to_string();
    let tls = ["--tls-port", &port, "--tls-cert-file", &server, "--tls-key-file", &key];
    let tls = [&tls[..], &["--tls-ca-cert-file", &server, "--tls-auth-clients", "no"]].concat();
    let _redis = Process::redis(plain, folder.path(), &tls);
    // How many connections come before those of the load.
    let cases: [(&str, SocketAddr, usize, &[&str]); 4] = [
        ("memcached", memcached, 0, &["--tls"]),
        ("redis", redis, 1, &["--tls"]),
        ("http", nginx, 0, &[]),
        ("http", nginx, 0, &["--http2"]),
    ];
    for (protocol, to, before, more) in cases {
        let front = relay(to, (before + 1, 6_000), b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let target =
            if protocol == "http" { format!("https://{front}/") } else { front.to_string() };
        let arguments = [more, &["--insecure", "-c", "1", "-z", "1s"]].concat();
        let output = load(protocol, &target, &arguments);
        let json = printed(&output);
        let mut kinds: Vec<String> = Vec::new();
        for operation in json["operations"].as_object().unwrap().values() {
            kinds.extend(operation["errors"].as_object().unwrap().keys().cloned());
        }
        kinds.sort();
        kinds.dedup();
        let cut = ["connection_closed", "connection_reset"];
        let known = |kind: &String| kind == "tls_failed" || cut.contains(&kind.as_str());
        let both = kinds.contains(&"tls_failed".to_owned()) && kinds.iter().all(known);
        assert!(both, "{protocol} {more:?}: {kinds:?}");
        assert!(json["completed"].as_u64().unwrap() > 0, "{json:#}");
    }
}
