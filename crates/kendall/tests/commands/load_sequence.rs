//! `kendall load http --sequence` against a shop that remembers who did what, and against servers that are hostile.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Output;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kendall_loadgen::http::HttpPlan;
use kendall_loadgen::sequence::{self, SequencePlan};
use kendall_loadgen::web::WebPlan;
use serde_json::{Value, json};

use crate::hostile::{End, Hostile, kinds as kinds_of, plan};
use crate::support::{kendall, printed};

/// Answers one request: its method and path, its head in lower case, its body.
fn answer(line: &str, head: &str, body: &str) -> (u16, String, String) {
    let has = |header: &str| head.lines().any(|line| line == header);
    let of = |user: &str| {
        has(&format!("cookie: session=s-{user}")) && has(&format!("authorization: bearer t-{user}"))
    };
    let plain = |status: u16, body: &str| (status, String::new(), body.to_owned());
    let user = body.trim_start_matches(r#"{"user":""#).trim_end_matches(r#""}"#);
    match line {
        "POST /login" => {
            let cookie = format!("Set-Cookie: session=s-{user}; Path=/; HttpOnly\r\n");
            (200, cookie, json!({ "user": { "token": format!("t-{user}") } }).to_string())
        }
        "GET /cart" => (302, "Location: items/7?x=1\r\n".to_owned(), "see there".to_owned()),
        "GET /items/7?x=1" if of("ada") || of("bob") => {
            plain(200, "<input name=\"form\" value=\"42\">")
        }
        "POST /buy?form=42&note=a%20b" if of("ada") || of("bob") => {
            (201, "Location: /orders/9\r\n".to_owned(), String::new())
        }
        "GET /orders/9" => plain(200, "done"),
        "GET /round" => (302, "Location: /round\r\n".to_owned(), String::new()),
        "GET /away" => (302, "Location: http://other.example/\r\n".to_owned(), String::new()),
        "GET /long" => plain(200, &"x".repeat(9 << 20)),
        _ => plain(403, "no"),
    }
}

/// A server that answers so, and the request lines that came.
struct Shop {
    url: String,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Shop {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&lines);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || serve(&stream, &kept));
            }
        });
        Self { url, lines }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

fn serve(stream: &TcpStream, lines: &Mutex<Vec<String>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let line = head.lines().next()?.trim_end_matches(" HTTP/1.1").to_owned();
        lines.lock().unwrap().push(line.clone());
        let head = head.to_lowercase().replace("\r\n", "\n");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        reader.read_exact(&mut body).ok()?;
        let (status, headers, text) = answer(&line, &head, &String::from_utf8_lossy(&body));
        let length = text.len();
        let text =
            format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\n\r\n{text}");
        (&*stream).write_all(text.as_bytes()).ok()?;
    }
}

const SHOP: &str = r#"
headers = { Accept = "application/json" }
data = "users.csv"
vary = { note = "file:notes.txt" }

[[sequence]]
name = "buy"

[[sequence.request]]
name = "log in"
path = "/login"
body = '{"user":"{{user}}"}'
extract = { token = "json:/user/token" }
think_time = "20ms"

[[sequence.request]]
name = "cart"
path = "/cart"
headers = { Authorization = "Bearer {{token}}" }
extract = { form = 'regex:value="(\d+)"' }

[[sequence.request]]
name = "order"
method = "POST"
path = "/buy?form={{form}}&note={{note}}"
headers = { Authorization = "Bearer {{token}}" }
status = 201
extract = { order = "header:Location" }

[[sequence.request]]
name = "look"
path = "{{order}}"
"#;

/// A folder with a file of sequences and what it names.
fn folder(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("users.csv", "user,age\nada,1\nbob,2\n");
    write("notes.txt", "a b\n");
    let notes = folder.path().join("notes.txt");
    write("shop.toml", &text.replace("file:notes.txt", &format!("file:{}", notes.display())));
    folder
}

fn load(url: &str, folder: &Path, arguments: &[&str]) -> Output {
    kendall()
        .args(["load", "http", url, "--quiet", "--sequence"])
        .env("COLUMNS", "120")
        .arg(folder.join("shop.toml"))
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn a_sequence_takes_values_from_replies_data_and_cookies() {
    let shop = Shop::start();
    let folder = folder(&SHOP.replace("\"{{order}}\"", "\"/orders/9\""));
    let output = load(&shop.url, folder.path(), &["-c", "2", "-n", "20", "--format", "json"]);
    let json = printed(&output);
    assert_eq!(output.status.code(), Some(0), "{json:#}");
    assert_eq!(json["operations"]["buy"]["completed"], 20, "{json:#}");
    assert_eq!(json["completed"], 20, "steps are in no sum: {json:#}");
    let steps = json["steps"].as_array().unwrap();
    let names: Vec<&str> = steps.iter().map(|step| step["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["log in", "cart", "order", "look"]);
    for step in steps {
        assert_eq!(
            (&step["of"], &step["completed"], &step["sent"]),
            (&json!("buy"), &json!(20), &json!(20))
        );
    }
    assert_eq!(json["statuses"], json!({ "200": 60, "201": 20 }));
    let window: u64 = json["windows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|window| {
            assert_eq!(window["operations"].as_object().unwrap().len(), 1);
            window["operations"]["buy"]["completed"].as_u64().unwrap()
        })
        .sum();
    assert_eq!(window, 20);
    let lines = shop.lines();
    let count = |line: &str| lines.iter().filter(|one| *one == line).count();
    assert_eq!((count("POST /login"), count("GET /items/7?x=1"), lines.len()), (20, 20, 100));
    // Time between requests is in no response time: each client has its 20 ms ten times beside them.
    let (mean, duration) = (&json["response_time_mean_s"], &json["duration_s"]);
    let (mean, duration) = (mean.as_f64().unwrap(), duration.as_f64().unwrap());
    assert!(10.0 * (mean + 0.02) < duration * 1.01, "{mean} {duration}");

    let output = load(&shop.url, folder.path(), &["-c", "1", "-n", "3"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let at = |name: &str| text.find(name).unwrap_or_else(|| panic!("{name}: {text}"));
    assert!(at("buy: log in") < at("buy: cart") && at("buy: order") < at("buy: look"), "{text}");
}

#[test]
fn open_loops_rates_and_weights_run_sequences_too() {
    let shop = Shop::start();
    let folder = folder(
        "[[sequence]]\nname = 'a'\nweight = 3\n[[sequence.request]]\npath = '/orders/9'\n\
         [[sequence.request]]\npath = '/orders/9'\n\
         [[sequence]]\nname = 'b'\n[[sequence.request]]\npath = '/orders/9?{{n}}'\nstatus = [403]\n",
    );
    let more =
        ["--vary", "n=sequential:1..1000", "--rate", "400/s", "-n", "400", "--format", "json"];
    let json = printed(&load(&shop.url, folder.path(), &more));
    let completed = |name: &str| json["operations"][name]["completed"].as_u64().unwrap();
    // Of 400 with the share 3/4: 300, with a standard deviation of 8.7; the seed is fixed.
    assert!(
        completed("a").abs_diff(300) < 35 && completed("a") + completed("b") == 400,
        "{json:#}"
    );
    assert_eq!(json["loop"], "open");
    assert_eq!(json["gap_check"]["requests"], 400, "{json:#}");
    let names: Vec<&Value> =
        json["steps"].as_array().unwrap().iter().map(|step| &step["name"]).collect();
    assert_eq!(names, ["GET /orders/9", "GET /orders/9 (2)", "GET /orders/9?{{n}}"]);
    let drawn: BTreeSet<String> =
        shop.lines().into_iter().filter(|line| line.contains('?')).collect();
    assert_eq!(drawn.len() as u64, completed("b"));
}

#[test]
fn a_step_that_fails_ends_its_run_and_says_why() {
    let shop = Shop::start();
    let after = "\n[[sequence.request]]\npath = '/never?{{v}}'\n";
    for (request, kind, why) in [
        ("path = '/none'\nextract = { v = 'header:A' }", "status_4xx", "status 403"),
        (
            "path = '/orders/9'\nstatus = 201\nextract = { v = 'header:A' }",
            "unexpected_status",
            "status 200",
        ),
        (
            "path = '/orders/9'\nextract = { v = 'json:/a' }",
            "not_extracted",
            "the body is not JSON",
        ),
        (
            "path = '/orders/9'\nextract = { v = 'header:Etag' }",
            "not_extracted",
            "no header `Etag`",
        ),
        ("path = '/long'\nextract = { v = 'regex:y' }", "not_extracted", "is not searched"),
        ("path = '/round'\nextract = { v = 'header:A' }", "redirected", "more than 10 times"),
        ("path = '/away'\nextract = { v = 'header:A' }", "redirected", "http://other.example/"),
    ] {
        let folder = folder(&format!("[[sequence]]\n[[sequence.request]]\n{request}{after}"));
        let output = load(&shop.url, folder.path(), &["-c", "1", "-n", "2", "--format", "json"]);
        assert_eq!(output.status.code(), Some(5), "{request}");
        let json = printed(&output);
        assert_eq!(json["operations"]["sequence 1"]["errors"], json!({ kind: 2 }), "{json:#}");
        assert_eq!(json["steps"][0]["errors"], json!({ kind: 2 }), "{json:#}");
        assert_eq!(json["steps"][1]["sent"], 0, "{json:#}");
        let said = json["rejections"][0]["text"].as_str().unwrap_or_default();
        assert!(json["rejections"].to_string().contains(why), "{said}");
    }
    assert!(!shop.lines().iter().any(|line| line.contains("/never")));
}

#[test]
fn a_file_that_cannot_be_used_is_refused_with_its_line() {
    let request = "[[sequence]]\n[[sequence.request]]\n";
    for (text, part) in [
        ("x = ", "shop.toml:1: "),
        ("", "between 1 and 1000"),
        ("[[sequence]]\n", "shop.toml:1: sequence.0.request: is missing"),
        (
            &format!("{request}pth = '/'"),
            "shop.toml:3: sequence.0.request.0.pth: no such key; did you mean `path`?",
        ),
        (&format!("{request}path = 'x'"), "`x` is not a path"),
        (&format!("{request}path = '/{{{{user}}}}'"), "`{{user}}` has no value here"),
        (&format!("{request}status = 99"), "`99` is not a status"),
        (&format!("{request}method = 'A B'"), "is not a method"),
        (&format!("{request}headers = {{ Host = 1 }}"), "is not a text"),
        (&format!("{request}headers = {{ Content-Length = '1' }}"), "give the body alone"),
        (&format!("{request}headers = {{ A = \"1\\n2\" }}"), "is not a header"),
        (&format!("{request}extract = {{ a = 'xpath:/b' }}"), "`regex:PATTERN`"),
        (&format!("{request}extract = {{ a = 'regex:(' }}"), "unclosed group"),
        (&format!("{request}think_time = '1s'"), "of the last request"),
        (&format!("{request}think_time = 'soon'\n[[sequence.request]]"), "soon"),
        (&format!("vary = {{ a = '1' }}\n{request}"), "`{{a}}` is in no request"),
        (&format!("data = 'none.csv'\n{request}"), "cannot read"),
        (&format!("data = 'notes.txt'\n{request}"), "no line behind the names"),
        (&format!("vary = {{ age = '1' }}\ndata = 'users.csv'\n{request}"), "`age` is given twice"),
        (&format!("redirects = 1000\n{request}"), "from 0 to 100"),
        (&"[[sequence]]\n[[sequence.request]]\n".repeat(1_001), "1001 requests"),
        (
            &format!("{request}[[sequence]]\nname = 'sequence 1'\n[[sequence.request]]\n"),
            "two are called",
        ),
        (
            &format!(
                "{request}[sequence.request.extract]\n[[sequence]]\nweight = 0\n[[sequence.request]]\n"
            ),
            "not above 0",
        ),
    ] {
        let output = load("http://127.0.0.1:1/", folder(text).path(), &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}: {said}");
        assert!(said.contains(part), "{text}: {said}");
    }
    let output = load("http://127.0.0.1:1/path", folder(request).path(), &[]);
    assert_eq!(output.status.code(), Some(2));
    let output = load("http://127.0.0.1:1/", Path::new("/nonexistent"), &[]);
    assert_eq!(output.status.code(), Some(2));
}

/// The kinds of errors of a sequence of two requests.
fn kinds(server: &Hostile, timeout_ms: u64) -> Vec<String> {
    let text = "[[sequence]]\n[[sequence.request]]\nextract = { v = 'json:/a' }\n\
                [[sequence.request]]\npath = '/{{v}}'\n";
    let sequences = SequencePlan::parse(text, Path::new("file"), Vec::new()).unwrap();
    let content = HttpPlan {
        method: "GET".to_owned(),
        path: "/".to_owned(),
        authority: server.address.to_string(),
        headers: Vec::new(),
        body: Vec::new(),
        placeholders: Vec::new(),
        keep_alive: true,
    };
    let web = WebPlan { content, tls: None, http2: false, connections: None };
    let plan = plan(server.address, 1, 1, Duration::from_millis(timeout_ms));
    let stop = AtomicBool::new(false);
    kinds_of(&sequence::run(&plan, &web, sequences, &stop, &mut |_| ()).unwrap())
}

#[test]
fn hostile_servers_are_counted_and_nothing_hangs() {
    let first = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 7\r\n\r\n{\"a\":1}";
    let second = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let all: [&[u8]; 2] = [first, second];
    let whole = first.len() + second.len();
    assert!(kinds(&Hostile::start(&all, whole, &End::Silence), 10_000).is_empty());
    for bytes in 0..whole {
        for end in [End::Close, End::Reset] {
            let kinds = kinds(&Hostile::start(&all, bytes, &end), 10_000);
            let known = ["connection_closed", "connection_reset", "connect_failed"];
            let fits = |kind: &String| known.contains(&kind.as_str());
            // Between two requests it is a goodbye: the second goes over a new connection, which answers it.
            let expected = if bytes == first.len() { 0..=1 } else { 1..=1 };
            let right = expected.contains(&kinds.len()) && kinds.iter().all(fits);
            assert!(right, "{bytes} {end:?}: {kinds:?}");
        }
    }
    for bytes in [0, 20, first.len() - 1, first.len() + 1] {
        assert_eq!(kinds(&Hostile::start(&all, bytes, &End::Silence), 100), ["timed_out"]);
    }
    let endless = |head: &[u8], more: &[u8], timeout_ms| {
        let end = End::Forever(more.to_vec());
        kinds(&Hostile::start(&[head], head.len(), &end), timeout_ms)
    };
    let body = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(endless(body, b"5\r\nabcde\r\n", 300), ["timed_out"]);
    assert_eq!(endless(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n", 10_000), ["garbage"]);
    assert_eq!(endless(b"\0\0\0\0", b"\0", 10_000), ["garbage"]);
    // A value that would begin a header of its own.
    let value = b"HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n{\"a\":\"1\\r\\nB: 2 \"}";
    assert_eq!(kinds(&Hostile::start(&[value, second], 10_000, &End::Silence), 10_000), [""; 0]);
}

fn init(arguments: &[&str], folder: &Path) -> Output {
    kendall().arg("init").args(arguments).current_dir(folder).output().unwrap()
}

/// What is written runs as it is.
#[test]
fn a_recording_and_a_description_become_sequences_that_run() {
    let shop = Shop::start();
    let origin = shop.url.trim_end_matches('/');
    let folder = folder("");
    let entry = |second: &str, method: &str, path: &str, status: u16, body: &str| {
        json!({
            "startedDateTime": format!("2026-10-10T13:55:{second}.000Z"), "time": 250.5,
            "request": {
                "method": method, "url": format!("{origin}{path}"),
                "headers": [
                    { "name": "Accept", "value": "*/*" }, { "name": "Cookie", "value": "old=1" },
                    { "name": ":authority", "value": "x" }, { "name": "Content-Length", "value": "9" },
                    { "name": "Accept-Encoding", "value": "br" }, { "name": "Bad", "value": "a\nb" },
                ],
                "postData": { "mimeType": "application/json", "text": body },
            },
            "response": { "status": status },
        })
    };
    let other = json!({ "request": { "url": "https://tracker.example/", "method": "GET" } });
    let har = json!({ "log": { "entries": [
        entry("30", "POST", "/login", 200, r#"{"user":"ada"}"#),
        other,
        entry("32", "GET", "/cart", 302, ""),
        entry("32", "GET", "/orders/9", 200, ""),
        entry("33", "GET", "/cart", 0, ""),
    ] } });
    std::fs::write(folder.path().join("shop.har"), har.to_string()).unwrap();
    let output = init(&["--har", "shop.har", "-o", "recorded.toml"], folder.path());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("1 request left out: not to http://127.0.0.1"), "{said}");
    let text = std::fs::read_to_string(folder.path().join("recorded.toml")).unwrap();
    assert!(text.contains("\nheaders = { \"Accept\" = \"*/*\" }\n"), "{text}");
    assert!(
        text.contains("think_time = \"1750ms\"") && !text.to_lowercase().contains("cookie"),
        "{text}"
    );
    assert_eq!(text.matches("think_time").count(), 1, "{text}");
    std::fs::write(folder.path().join("shop.toml"), text.replace("1750ms", "1ms")).unwrap();
    let json =
        printed(&load(&shop.url, folder.path(), &["-c", "1", "-n", "2", "--format", "json"]));
    assert_eq!(json["operations"]["sequence 1"]["completed"], 2, "{json:#}");
    assert_eq!(json["statuses"], json!({ "200": 4, "302": 2 }));
    assert_eq!(
        init(&["--har", "shop.har", "-o", "recorded.toml"], folder.path()).status.code(),
        Some(2)
    );

    let api = json!({
        "openapi": "3.1.0", "servers": [{ "url": origin }],
        "paths": {
            "/orders/{id}": { "get": { "parameters": [{ "$ref": "#/components/parameters/id" }] } },
            "/login": { "post": { "requestBody": { "content": { "application/json": {
                "schema": { "$ref": "#/components/schemas/user" } } } } }, "delete": {} },
        },
        "components": {
            "parameters": { "id": { "name": "id", "in": "path", "schema": { "type": "integer", "minimum": 9 } } },
            "schemas": { "user": { "type": "object", "properties": {
                "user": { "type": "string", "example": "bob" }, "friend": { "$ref": "#/components/schemas/user" } } } },
        },
    });
    std::fs::write(folder.path().join("api.json"), api.to_string()).unwrap();
    let output = init(&["--openapi", "api.json", "-o", "shop.toml", "--force"], folder.path());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("1 operation left out"), "{said}");
    let json =
        printed(&load(&shop.url, folder.path(), &["-c", "1", "-n", "20", "--format", "json"]));
    let names: Vec<&String> = json["operations"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["GET /orders/{id}", "POST /login"]);
    assert_eq!((&json["completed"], &json["failed"]), (&json!(20), &json!(0)), "{json:#}");

    for (option, text, part) in [
        ("--har", "", "is not JSON"),
        ("--har", "openapi: 3.0.0\npaths: {}\n", "yq -o json"),
        ("--har", "{}", "log.entries"),
        ("--har", r#"{"log":{"entries":[{}]}}"#, "log.entries[0]: it has no request.url"),
        ("--har", r#"{"log":{"entries":[]}}"#, "no request over HTTP"),
        ("--openapi", "{}", "neither `openapi` nor `swagger`"),
        ("--openapi", r#"{"openapi":"4"}"#, "OpenAPI 4 is not known"),
        ("--openapi", r#"{"openapi":"3","paths":{}}"#, "no GET and no POST"),
        (
            "--openapi",
            r#"{"openapi":"3","paths":{"/":{"post":{"requestBody":{"content":{"application/json":{"example":"{{x}}"}}}}}}}"#,
            "1 request left out: its body has double braces",
        ),
    ] {
        std::fs::write(folder.path().join("bad"), text).unwrap();
        let output = init(&[option, "bad", "-o", "out.toml"], folder.path());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}: {said}");
        assert!(said.contains(part), "{text}: {said}");
        assert!(!folder.path().join("out.toml").exists());
    }
}

/// A link is there although it leads nowhere, and nothing is written through it.
#[test]
fn a_recording_is_not_written_through_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let request = json!({ "method": "GET", "url": "http://127.0.0.1:1/" });
    let entry = json!({ "request": request, "response": { "status": 200 } });
    let har = json!({ "log": { "entries": [entry] } }).to_string();
    std::fs::write(folder.path().join("shop.har"), har).unwrap();
    std::os::unix::fs::symlink("elsewhere.toml", folder.path().join("link.toml")).unwrap();
    let output = init(&["--har", "shop.har", "-o", "link.toml"], folder.path());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("link.toml exists"), "{output:?}");
    assert!(!folder.path().join("elsewhere.toml").exists());
}

/// Each request of a sequence has a row in the report, and is in no sum.
#[test]
fn a_study_keeps_what_each_request_of_a_sequence_took() {
    let shop = Shop::start();
    // With a think time within the run, which the law of response times must know.
    let folder = folder(&SHOP.replace("\"{{order}}\"", "\"/orders/9\""));
    let address = shop.url.trim_start_matches("http://").trim_end_matches('/');
    let text = format!(
        "name = 'shop'\n[system]\nkind = 'attached'\n[[system.tiers]]\nname = 'shop'\naddresses = ['{address}']\n\
         [workload]\nprotocol = 'http'\nsequence = 'shop.toml'\nclients = 2\nloop = 'closed'\n\
         think_time = '20ms'\n[measure]\nduration = '3s'\nwarm_up = '0s'\ncool_down = '0s'\nrepetitions = 1\n"
    );
    std::fs::write(folder.path().join("study.toml"), text).unwrap();
    let run = kendall().args(["run", "study.toml"]).current_dir(&folder).output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(0), "{said}");
    let table = |name: &str| -> Vec<Vec<String>> {
        let file = folder.path().join("results/shop/tables").join(name);
        let text = std::fs::read_to_string(&file).unwrap();
        text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
    };
    let steps = table("steps.csv");
    let names: Vec<&str> = steps.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names, ["buy: 01 log in", "buy: 02 cart", "buy: 03 order", "buy: 04 look"]);
    // Counted by the second in which each was answered, so that a run under way at an end is in some of them.
    let counts: Vec<f64> = steps.iter().map(|row| row[1].parse().unwrap()).collect();
    assert!(counts[0] > 10.0 && counts.iter().all(|count| (count - counts[0]).abs() <= 2.0));
    assert!(steps.iter().all(|row| row[4] == "0"), "{steps:?}");
}
