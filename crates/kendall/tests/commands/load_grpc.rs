//! `kendall load grpc` against a real service, behind TLS too, and against servers that are hostile.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kendall_loadgen::calls::{self, Access, CallPlan};
use kendall_loadgen::load::LoadPlan;
use kendall_protocols::load_result::LoadResult;
use kendall_testing::{Process, certificate, free_address};
use serde_json::json;

use crate::hostile::{Then, frame, goodbye, http2, kinds as kinds_of, plan};
use crate::support::{kendall, printed};

const CHECK: &str = "grpc.health.v1.Health/Check";

/// The part of the health service that is called, as its file has it.
const PROTO: &str = r#"syntax = "proto3";
package grpc.health.v1;
import "message.proto";
service Health { rpc Check(Asked) returns (Answer); rpc Feed(Asked) returns (stream Answer); }
message Answer { int32 status = 1; }
"#;

const MESSAGE: &str = r#"syntax = "proto3";
package grpc.health.v1;
message Asked { string service = 1; }
"#;

/// A scheduler of builds: it describes itself, and answers about its health without any other tier.
fn service() -> (Process, SocketAddr) {
    let arguments = ["serve", "scheduler", "--listen", "127.0.0.1:0", "--cache", "127.0.0.1:1"];
    let (service, ready) = Process::ready(kendall().args(arguments).stdout(Stdio::null()));
    (service, ready.address("listen"))
}

fn load(target: SocketAddr, arguments: &[&str]) -> Output {
    kendall()
        .args(["load", "grpc", &target.to_string(), "--quiet", "--format", "json"])
        .args(arguments)
        .output()
        .unwrap()
}

/// A folder with the files of the service.
fn protos() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("health.proto"), PROTO).unwrap();
    std::fs::write(folder.path().join("message.proto"), MESSAGE).unwrap();
    let file = folder.path().join("health.proto").display().to_string();
    (folder, file)
}

#[test]
fn calls_are_described_by_the_service_or_by_files() {
    let (_service, address) = service();
    let (_folder, file) = protos();
    let (alone, apart) = protos();
    std::fs::remove_file(alone.path().join("message.proto")).unwrap();
    let imports = tempfile::tempdir().unwrap();
    std::fs::write(imports.path().join("message.proto"), MESSAGE).unwrap();
    let imports = imports.path().display().to_string();
    for more in [
        &[][..],
        &["--proto", &file],
        &["--proto", &apart, "--proto-path", &imports],
        &["--connections", "2", "--threads", "2"],
    ] {
        let call = ["--call", CHECK, "-c", "4", "-n", "100", "--fail-if", "errors > 0%"];
        let output = load(address, &[&call[..], more].concat());
        let json = printed(&output);
        assert_eq!(output.status.code(), Some(0), "{json:#}");
        assert_eq!(json["operations"]["Check"]["completed"], 100, "{json:#}");
        // An answer of SERVING is two bytes behind a prefix of five.
        assert_eq!(json["operations"]["Check"]["bytes_in"], 700, "{json:#}");
    }
    let vary = ["--data", r#"{"service":"{name}"}"#, "--vary", "name=sequential:1..9"];
    let output = load(address, &[&["--call", CHECK, "-n", "20", "-c", "2"], &vary[..]].concat());
    let json = printed(&output);
    assert_eq!(output.status.code(), Some(5), "{json:#}");
    assert_eq!(json["operations"]["Check"]["errors"], json!({ "client_error": 20 }));
    assert!(json["rejections"].to_string().contains("gRPC status 5"), "{json:#}");
    let open = ["--call", CHECK, "--rate", "200/s", "-n", "100", "--metadata", "x-user=7"];
    let json = printed(&load(address, &open));
    assert_eq!((&json["completed"], &json["loop"]), (&json!(100), &json!("open")), "{json:#}");
}

#[test]
fn streams_of_messages_are_one_call() {
    let (_service, address) = service();
    let list = r#"{"list_services":""}"#;
    let reflection = "grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    let data = ["--data", list, "--data", list, "--data", list];
    let call = ["--call", reflection, "-c", "2", "-n"];
    let bytes = |messages: usize| {
        let json = printed(&load(address, &[&call[..], &["10"], &data[..2 * messages]].concat()));
        assert_eq!(json["completed"], 10, "{json:#}");
        json["operations"]["ServerReflectionInfo"]["bytes_in"].as_u64().unwrap()
    };
    assert_eq!(bytes(3), 3 * bytes(1));
    let in_turn = [&call[..], &["5", "--in-turn"], &data].concat();
    let json = printed(&load(address, &in_turn));
    assert_eq!(json["completed"], 5, "{json:#}");
    assert_eq!(json["operations"]["ServerReflectionInfo"]["bytes_in"], bytes(3) / 2, "{json:#}");
    // A stream that does not end is no answer.
    let watch =
        ["--call", "grpc.health.v1.Health/Watch", "-n", "2", "-c", "1", "--timeout", "100ms"];
    let json = printed(&load(address, &watch));
    assert_eq!(json["operations"]["Watch"]["errors"], json!({ "timed_out": 2 }), "{json:#}");
}

#[test]
fn what_cannot_be_called_is_refused_with_what_there_is() {
    let (_service, address) = service();
    let (folder, file) = protos();
    let wrong = folder.path().join("wrong.proto").display().to_string();
    std::fs::write(&wrong, "syntax = \"proto3\";\nmessage A { int x = 1; }\n").unwrap();
    for (arguments, part) in [
        (&["--call", "Check"][..], "write it like `package.Service/Method`"),
        (&["--call", "grpc.health.v1.Healt/Check"], "Workers, grpc.health.v1.Health, "),
        (&["--call", "grpc.health.v1.Health/Chek"], "it has Check, "),
        (&["--call", CHECK, "--data", "{"], "is no grpc.health.v1.HealthCheckRequest"),
        (&["--call", CHECK, "--data", r#"{"servise":"x"}"#], "unrecognized field name 'servise'"),
        (
            &["--call", CHECK, "--data", r#"{"service":7}"#],
            "is no grpc.health.v1.HealthCheckRequest",
        ),
        (&["--call", CHECK, "--data", "{}", "--data", "{}"], "takes one message, and there are 2"),
        (&["--call", CHECK, "--vary", "x=1"], "`{x}` is not in"),
        (&["--call", CHECK, "--in-turn"], "no streams both ways"),
        (&["--call", CHECK, "--metadata", "x"], "write it as NAME=VALUE"),
        (&["--call", CHECK, "--metadata", "grpc-timeout=1S"], "is not metadata"),
        (&["--call", CHECK, "--proto", "/nonexistent.proto"], "nonexistent.proto"),
        (&["--call", CHECK, "--proto", &wrong], "wrong.proto:2"),
        (&["--call", "grpc.health.v1.Health/Watch", "--proto", &file], "it has Check"),
        (&["--call", CHECK, "--tls", "--authority", &file], "wanted an authority's certificate"),
    ] {
        let output = load(address, arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(part), "{arguments:?}: {said}");
    }
    // Files that import each other: deep, and many.
    for number in 0..2_000 {
        let next = format!("import \"deep{}.proto\";", number + 1);
        let next = if number == 1_999 { "" } else { &next };
        let text = format!("syntax = \"proto3\";\n{next}\nmessage M{number} {{}}\n");
        std::fs::write(folder.path().join(format!("deep{number}.proto")), text).unwrap();
    }
    let import = |number: usize| format!("import \"deep{number}.proto\";\n");
    let last = (1_901..1_999).rev().map(import).collect::<String>();
    let service = "message N {}\nservice S { rpc C(N) returns (N); }\n";
    for (imports, part) in [
        (import(0), "is imported more than 100 files deep"),
        (last, "there is no service `grpc.health.v1.Health` (there are S)"),
    ] {
        let file = folder.path().join("first.proto").display().to_string();
        std::fs::write(&file, format!("syntax = \"proto3\";\n{imports}{service}")).unwrap();
        let output = load(address, &["--call", CHECK, "--proto", &file]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(part), "{said}");
    }
    // A service that is not there, one that speaks something else, and one without TLS.
    let (_http, ready) = Process::ready(
        kendall().args(["serve", "synthetic", "--listen", "127.0.0.1:0"]).stdout(Stdio::null()),
    );
    let arguments = ["--call", CHECK, "--timeout", "1s"];
    assert_eq!(load(free_address(), &arguments).status.code(), Some(3));
    assert_eq!(load(ready.address("listen"), &arguments).status.code(), Some(3));
    let tls = ["--call", CHECK, "--tls", "--insecure"];
    assert_eq!(load(address, &tls).status.code(), Some(3));
}

/// nginx in front, which wants a certificate of its clients.
fn nginx(folder: &Path, to: SocketAddr) -> (Process, SocketAddr) {
    let address = free_address();
    certificate(folder, "server");
    certificate(folder, "client");
    let http = format!(
        "server {{ listen {address} ssl http2; ssl_certificate {0}/server.pem; \
         ssl_certificate_key {0}/server.key; ssl_client_certificate {0}/client.pem; ssl_verify_client on; \
         location / {{ grpc_pass grpc://{to}; }} }}",
        folder.display()
    );
    let server = Process::nginx(folder, &[address], &http);
    (server, address)
}

#[test]
fn a_service_behind_tls_sees_the_certificate_of_the_client() {
    let (_service, service) = service();
    let folder = tempfile::tempdir().unwrap();
    let (_nginx, address) = nginx(folder.path(), service);
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (authority, own, key) = (file("server.pem"), file("client.pem"), file("client.key"));
    let call = ["--call", CHECK, "-c", "2", "-n", "20", "--tls", "--server-name", "localhost"];
    let trusted = ["--authority", &authority];
    let shown = ["--client-certificate", &own, "--client-key", &key];
    let output = load(address, &[&call[..], &trusted, &shown].concat());
    assert_eq!(printed(&output)["completed"], 20, "{output:?}");
    let hidden = load(address, &[&call[..], &trusted].concat());
    assert_eq!(hidden.status.code(), Some(3), "{hidden:?}");
    let other = [&call[..], &["--authority", &own], &shown].concat();
    let output = load(address, &other);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("does not trust"), "{said}");
}

/// A whole answer to a call: status 200, a message, the status of gRPC.
fn whole(stream: u32, message: &[u8]) -> Vec<u8> {
    let trailers = [&[0, 11][..], b"grpc-status", &[1], b"0"].concat();
    let [head, data] = [frame(1, 4, stream, &[0x88]), frame(0, 0, stream, message)];
    [head, data, frame(1, 5, stream, &trailers)].concat()
}

/// Speaks HTTP/2 until a call is there, and then says what it is told.
fn hostile(answer: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static, then: Then) -> SocketAddr {
    http2(move |_, call| Some((answer(call), then)))
}

/// The kinds of errors of one call.
fn kinds(
    answer: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static,
    then: Then,
    timeout_ms: u64,
) -> Vec<String> {
    kinds_in(CHECK, answer, then, timeout_ms)
}

fn kinds_in(
    method: &str,
    answer: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static,
    then: Then,
    timeout_ms: u64,
) -> Vec<String> {
    let plan = plan(hostile(answer, then), 1, 1, Duration::from_millis(timeout_ms));
    kinds_of(&run(&plan, method, None))
}

fn run(plan: &LoadPlan, method: &str, connections: Option<usize>) -> LoadResult {
    let (_folder, file) = protos();
    let calls = CallPlan {
        method: method.to_owned(),
        protos: vec![file.into()],
        imports: Vec::new(),
        messages: vec!["{}".to_owned()],
        placeholders: Vec::new(),
        in_turn: false,
        metadata: Vec::new(),
        access: Access::default(),
        connections,
    };
    calls::run(plan, &calls, &AtomicBool::new(false), &mut |_| ()).unwrap()
}

/// Four clients share a connection to a service that leaves: what it did not take is asked of the next connection.
#[test]
fn calls_that_a_leaving_service_did_not_take_are_sent_anew() {
    const MESSAGE: &[u8] = b"\0\0\0\0\x02\x08\x01";
    // Goodbyes behind the first call and before it, with a reason and without, the connection closed or left open.
    for (last, reason, then) in
        [(1, 0, Then::Silence), (1, 11, Then::Silence), (0, 0, Then::Silence), (0, 2, Then::Close)]
    {
        let service = http2(move |connection, call| match (connection, call) {
            (0, ..=5) => None,
            (0, 7) => {
                let first = if last == 1 { whole(1, MESSAGE) } else { Vec::new() };
                Some(([first, goodbye(last, reason)].concat(), then))
            }
            _ => Some((whole(call, MESSAGE), Then::Silence)),
        });
        let result = run(&plan(service, 12, 4, Duration::from_secs(10)), CHECK, Some(1));
        let check = &result.operations["Check"];
        assert_eq!((check.completed, check.errors.len()), (12, 0), "{last} {reason}: {check:?}");
        assert_eq!(result.sent_anew, if last == 1 { 3 } else { 4 }, "{last} {reason}");
    }
    // Refused by one connection, and taken by the next.
    let refused = |call| frame(3, 0, call, &[0, 0, 0, 7]);
    let service = http2(move |connection, call| {
        let answer = if connection == 0 { refused(call) } else { whole(call, MESSAGE) };
        Some((answer, Then::Silence))
    });
    let result = run(&plan(service, 5, 1, Duration::from_secs(10)), CHECK, None);
    assert_eq!((result.operations["Check"].completed, result.sent_anew), (5, 1));
    // Of every connection: given up. What was taken is never asked twice.
    let always = |answer: fn(u32) -> Vec<u8>, then| {
        let service = http2(move |_, call| Some((answer(call), then)));
        let result = run(&plan(service, 2, 1, Duration::from_secs(10)), CHECK, None);
        (kinds_of(&result), result.sent_anew)
    };
    assert_eq!(always(|_| goodbye(0, 0), Then::Close), (vec!["not_taken".to_owned()], 4));
    assert_eq!(
        always(|call| frame(3, 0, call, &[0, 0, 0, 7]), Then::Silence),
        (vec!["not_taken".to_owned()], 4)
    );
    let (kinds, sent_anew) = always(|call| goodbye(call, 0), Then::Close);
    let cut = ["connection_closed", "connection_reset"];
    assert!(kinds.iter().all(|kind| cut.contains(&kind.as_str())), "{kinds:?}");
    assert!(!kinds.is_empty() && sent_anew == 0);
    assert_eq!(
        always(|call| frame(3, 0, call, &[0, 0, 0, 2]), Then::Close),
        (vec!["stream_reset".to_owned()], 0)
    );
}

#[test]
fn hostile_services_are_counted_and_nothing_hangs() {
    const MESSAGE: &[u8] = b"\0\0\0\0\x02\x08\x01";
    assert!(kinds(|call| whole(call, MESSAGE), Then::Silence, 10_000).is_empty());
    let length = whole(1, MESSAGE).len();
    for bytes in 0..length {
        for then in [Then::Close, Then::Reset] {
            let kinds = kinds(move |call| whole(call, MESSAGE)[..bytes].to_vec(), then, 10_000);
            let known = ["connection_closed", "connection_reset"];
            let fits = |kind: &String| known.contains(&kind.as_str());
            assert!(kinds.len() == 1 && kinds.iter().all(fits), "{bytes} {then:?}: {kinds:?}");
        }
    }
    for bytes in [0, 12, length - 1] {
        let cut = move |call| whole(call, MESSAGE)[..bytes].to_vec();
        assert_eq!(kinds(cut, Then::Silence, 100), ["timed_out"]);
    }
    // Lengths that are wrong, no message or two for one, and a compression that was not asked for.
    for message in [
        &b"\0\0\0\0\x03\x08\x01"[..],
        b"\0\0\0\0\x01\x08\x01",
        b"\0\xff\xff\xff\xff\x08",
        b"\0\0\0",
        b"",
        b"\0\0\0\0\0\0\0\0\0\0",
        b"\x01\0\0\0\x02\x08\x01",
    ] {
        let kinds = kinds(move |call| whole(call, message), Then::Silence, 10_000);
        assert_eq!(kinds, ["garbage"], "{message:?}");
    }
    // Messages without end, which take no notice of how many the client will have.
    let endless = kinds(|call| frame(1, 4, call, &[0x88]), Then::Forever, 300);
    assert!(endless == ["timed_out"] || endless == ["garbage"], "{endless:?}");
    // A stream that is reset, an answer without a request, a frame that is too long, bytes that are no frames.
    let reset = kinds(|call| frame(3, 0, call, &[0, 0, 0, 2]), Then::Silence, 10_000);
    assert_eq!(reset, ["stream_reset"]);
    for answer in [frame(1, 4, 99, &[0x88]), vec![0xff; 64], b"HTTP/1.1 400 Bad\r\n\r\n".to_vec()] {
        let kinds = kinds(move |_| answer.clone(), Then::Silence, 10_000);
        assert_eq!(kinds, ["garbage"]);
    }
    // Status 500, and an answer without a status.
    assert_eq!(kinds(|call| frame(1, 5, call, &[0x8e]), Then::Silence, 10_000), ["garbage"]);
    assert_eq!(kinds(|call| frame(1, 5, call, &[0x88]), Then::Silence, 10_000), ["garbage"]);
}

/// A stream without messages has its status in the headers; a unary call needs a message.
#[test]
fn headers_with_a_status_are_a_whole_answer() {
    let only = |call| {
        let headers = [&[0x88, 0, 11][..], b"grpc-status", &[1], b"0"].concat();
        frame(1, 5, call, &headers)
    };
    let feed = CHECK.replace("Check", "Feed");
    assert!(kinds_in(&feed, only, Then::Silence, 10_000).is_empty());
    assert_eq!(kinds(only, Then::Silence, 10_000), ["garbage"]);
}

/// A service that describes itself by nonsense, or without end.
#[test]
fn hostile_descriptions_are_refused() {
    let refused = |answer: Vec<u8>, then| {
        let address = hostile(move |call| whole(call, &answer), then);
        let output = load(address, &["--call", CHECK, "--timeout", "500ms"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        said
    };
    let message = |bytes: &[u8]| {
        [&[0][..], &u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
    };
    // An answer with one description; of a file that imports itself, with a name and without.
    let described = |file: &[u8]| {
        let inner = [&[0x0a, u8::try_from(file.len()).unwrap()][..], file].concat();
        message(&[&[0x22, u8::try_from(inner.len()).unwrap()][..], &inner].concat())
    };
    assert!(refused(message(b""), Then::Silence).contains("an empty answer"));
    assert!(refused(message(b"\xff\xff"), Then::Silence).contains("describe"));
    refused(described(b"\xff\xff"), Then::Silence);
    refused(described(b"\x0a\x01a\x1a\x01a"), Then::Silence);
    refused(described(b"\x0a\x01a\x1a\x01b"), Then::Silence);
    // Of a message whose field has the type of none.
    refused(described(b"\x0a\x01a\x22\x0b\x0a\x01M\x12\x06\x0a\x01x\x32\x01y"), Then::Silence);
}

#[test]
fn a_study_measures_calls() {
    let (_service, address) = service();
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "name = 'calls'\n[system]\nkind = 'attached'\n[[system.tiers]]\nname = 'reflection'\n\
         addresses = ['{address}']\n[workload]\nprotocol = 'grpc'\n\
         call = 'grpc.reflection.v1.ServerReflection/ServerReflectionInfo'\n\
         data = '{{\"list_services\": \"{{any}}\"}}'\nvary = {{ any = 'uniform:1..9' }}\n\
         metadata = {{ x-user = 7 }}\nclients = 2\n[measure]\nduration = '500ms'\nwarm_up = '0s'\n\
         cool_down = '0s'\nrepetitions = 1\n"
    );
    std::fs::write(folder.path().join("calls.toml"), text).unwrap();
    let run = kendall().args(["run", "calls.toml", "--toy"]).current_dir(&folder).output();
    let output = run.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
}

/// A service that runs is recognized, and the study that is written measures it.
#[test]
fn a_service_becomes_a_study() {
    let (_service, address) = service();
    let folder = tempfile::tempdir().unwrap();
    let init = |more: &[&str]| {
        let url = format!("http://{address}/");
        let arguments = ["init", "--attach", &url, "-o", "calls.toml", "--force"];
        let output = kendall().args(arguments).args(more).current_dir(&folder).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = init(&[]);
    // A machine that is busy with other tests may break the short run's laws, and then nothing is written.
    let busy = code == Some(3) && said.contains("a short run of the study failed");
    assert!(code == Some(0) || busy, "{said}");
    assert!(said.contains("it speaks gRPC\n") && said.contains("grpc.health.v1.Health"), "{said}");
    if !busy {
        let text = std::fs::read_to_string(folder.path().join("calls.toml")).unwrap();
        assert!(text.contains("protocol = \"grpc\"\n"), "{text}");
        assert!(text.contains("call = \"grpc.health.v1.Health/Check\"\n"), "{text}");
    }
    let (code, said) = init(&["--path", "/grpc.health.v1.Health/Chek"]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("it has Check"), "{said}");
}
