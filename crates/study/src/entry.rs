//! Whether the tier that clients talk to speaks the load's protocol: asked once before each load of a user's own
//! service, so that a load on another tier ends at once, with what answered there.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use crate::workload::{TargetForm, Workload};

/// How long the answer is waited for; a slower service is believed.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of an answer that are shown.
const SHOWN: usize = 40;

/// How HTTP/2 begins, with a frame of no settings; the frame that answers it has few bytes.
const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const GREETED: &[&str] = &["\0\0"];

/// PostgreSQL's question whether a connection may be encrypted, and the answers: yes, no, or an error.
const MAY_ENCRYPT: &[u8] = &[0, 0, 0, 8, 4, 210, 22, 47];
const MAY_IT: &[&str] = &["S", "N", "E"];

/// An answer in another protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "tier `{tier}` at {address} does not speak {protocol}, which the load does: it answered `{answer}`; name the \
     tier that clients talk to as `entry` in `[system]`, or the protocol as `protocol` in `[workload]`"
)]
pub struct OtherProtocol {
    pub tier: String,
    pub address: String,
    pub protocol: &'static str,
    /// How its answer begins.
    pub answer: String,
}

/// Sends a request to the first instance of the tier. Without a reply there is no refusal: the load will report it, as
/// it does where it encrypts.
pub(crate) fn check(workload: &Workload, tier: &str, address: &str) -> Result<(), OtherProtocol> {
    let has = |option: &str| workload.driver.options.iter().any(|one| one == option);
    let (request, answers): (Vec<u8>, &[&str]) = match (workload.protocol, &workload.driver.target)
    {
        _ if has("--tls") => return Ok(()),
        ("http", TargetForm::Url { scheme: "http", .. }) if has("--http2") => {
            (GREETING.to_vec(), GREETED)
        }
        ("http", TargetForm::Url { scheme: "http", path }) => {
            let head =
                format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
            (head.into_bytes(), &["HTTP/"])
        }
        ("grpc", _) => (GREETING.to_vec(), GREETED),
        ("memcached", _) => {
            let answers = &["VERSION", "ERROR", "CLIENT_ERROR", "SERVER_ERROR"];
            (b"version\r\n".to_vec(), answers)
        }
        ("postgres", _) => (MAY_ENCRYPT.to_vec(), MAY_IT),
        ("redis", _) => (b"PING\r\n".to_vec(), &["+", "-"]),
        _ => return Ok(()),
    };
    let Ok(answer) = first_bytes(address, &request) else { return Ok(()) };
    let begins = |known: &&str| {
        answer.as_bytes().starts_with(&known.as_bytes()[..known.len().min(answer.len())])
    };
    if answer.is_empty() || answers.iter().any(begins) {
        return Ok(());
    }
    Err(OtherProtocol {
        tier: tier.to_owned(),
        address: address.to_owned(),
        protocol: workload.protocol,
        answer: kendall_units::printable(&answer, SHOWN).trim().to_owned(),
    })
}

fn first_bytes(address: &str, request: &[u8]) -> std::io::Result<String> {
    let resolved = address.to_socket_addrs()?.next().ok_or(std::io::ErrorKind::NotFound)?;
    let mut stream = TcpStream::connect_timeout(&resolved, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(request)?;
    let mut bytes = [0; 256];
    let count = stream.read(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::file::StudyFile;

    /// Of a protocol, and after a space the options of its load.
    fn workload(protocol: &str) -> Workload {
        let (protocol, options) = protocol.split_once(' ').unwrap_or((protocol, ""));
        let keys = match protocol {
            "grpc" => "call = 'a.B/C'\n",
            "memcached" => "mix = { get = 1 }\n",
            "postgres" => "sql = 'SELECT 1'\n",
            _ => "",
        };
        let text = format!(
            "name = 'x'\n[system]\nkind = 'processes'\n[[system.tiers]]\nname = 'a'\ncommand = ['true']\n\
             [workload]\nprotocol = '{protocol}'\noptions = '{options}'\n{keys}"
        );
        StudyFile::parse("x.toml", text, false, &[]).unwrap().settings(&[]).unwrap().workload
    }

    /// The check of a service that answers this to every request.
    fn asked(protocol: &str, answer: &'static str) -> Result<(), OtherProtocol> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let service = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 512];
            let _count = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let outcome = check(&workload(protocol), "db", &address);
        service.join().unwrap();
        outcome
    }

    #[test]
    fn another_protocol_is_told_with_what_was_answered() {
        let error = asked("http", "-ERR wrong number of arguments\r\n").unwrap_err();
        assert_eq!(error.answer, "-ERR wrong number of arguments");
        assert!(error.to_string().starts_with("tier `db` at 127.0.0.1:"), "{error}");
        for other in ["memcached", "grpc", "postgres", "http --http2"] {
            let error = asked(other, "HTTP/1.1 400 Bad Request\r\n\r\n").unwrap_err();
            assert_eq!(error.answer, "HTTP/1.1 400 Bad Request", "{other}");
        }
        assert!(asked("redis", "ERROR\r\n").is_err());
        assert_eq!(asked("redis", "-NOAUTH Authentication required.\r\n"), Ok(()));
        assert_eq!(asked("http", "HTTP/1.1 500 Oh\r\n\r\n"), Ok(()));
        assert_eq!(asked("memcached", "VERSION 1.6\r\n"), Ok(()));
        assert_eq!(asked("postgres", "N"), Ok(()));
        for greeted in ["grpc", "http --http2"] {
            assert_eq!(asked(greeted, "\0\0\x06\x04\0\0\0\0\0"), Ok(()), "{greeted}");
        }
        // Closed without a word: the load will say more, and of what is encrypted all.
        assert_eq!(asked("http", ""), Ok(()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert_eq!(check(&workload("redis --tls"), "db", &address), Ok(()));
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "it was asked in the clear");
    }
}
