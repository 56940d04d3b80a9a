//! `kendall console` in a real browser, over folders that are not to be trusted.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use kendall_testing::wait_until;
use serde_json::{Value, json};

use crate::support::browser::{Page, Process, chromium};
use crate::support::{kendall, repository};

/// A name of a folder that must stay a name.
const HOSTILE: &str = "<img src=x onerror=\"document.title='owned'\">";

/// Six runs of a known station.
const STUDY: &str = r#"name = "shop"
title = "A known station"
[system]
kind = "synthetic"
workers = 1
service = "exponential:1ms"
[workload]
clients = 2
[measure]
duration = "2s"
warm_up = "0s"
cool_down = "0s"
repetitions = 3
[factors]
"workload.clients" = [1, 2]
"#;

struct Console {
    process: Process,
    /// With the token behind the `#`.
    address: String,
}

impl Console {
    fn start(folder: &Path, more: &[&str]) -> Self {
        let mut command = kendall();
        command.arg("console").arg(folder.join("results")).arg("--studies");
        command.arg(folder.join("studies")).args(["--listen", "127.0.0.1:0"]).args(more);
        let mut process = Process::start(&mut command);
        let address = process.after("console ");
        Self { process, address }
    }

    fn token(&self) -> &str {
        self.address.split_once('#').map_or("", |(_, token)| token)
    }

    /// Status, head and body of an answer.
    fn ask(&self, line: &str, headers: &str, body: &str) -> (u16, String, String) {
        let site = self.address.strip_prefix("http://").unwrap().split('/').next().unwrap();
        let mut stream = TcpStream::connect(site).unwrap();
        let host =
            if headers.contains("Host:") { String::new() } else { format!("Host: {site}\r\n") };
        let length = body.len();
        let ask = format!(
            "{line} HTTP/1.1\r\n{host}{headers}Content-Type: application/json\r\nContent-Length: \
             {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(ask.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_owned(), body.to_owned())
    }

    fn call(&self, line: &str, body: &Value) -> (u16, Value) {
        let headers = format!("Authorization: Bearer {}\r\n", self.token());
        let (status, _, body) = self.ask(line, &headers, &body.to_string());
        (status, serde_json::from_str(&body).unwrap_or_default())
    }

    /// The newest run of a study.
    /// Numbers of the processes that it has started.
    fn children(&self) -> String {
        let tasks =
            fs::read_dir(format!("/proc/{}/task", self.process.child.id())).unwrap().flatten();
        tasks
            .map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default())
            .collect()
    }

    fn newest(&self) -> Value {
        self.call("GET /api/runs", &Value::Null).1["runs"][0].clone()
    }
}

/// A folder of results and one of study files.
fn folders() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("results")).unwrap();
    fs::create_dir(folder.path().join("studies")).unwrap();
    fs::write(folder.path().join("studies/shop.toml"), STUDY).unwrap();
    folder
}

/// Links out of both folders, and out of two studies; and a report of 300 MiB.
fn link(folder: &Path) {
    let large = folder.join("results/large");
    fs::create_dir(&large).unwrap();
    fs::File::create(large.join("report.html")).unwrap().set_len(300 << 20).unwrap();
    for study in ["models", "tables"] {
        fs::create_dir(folder.join("results").join(study)).unwrap();
    }
    let links = [
        ("results/link", "/etc"),
        ("studies/link.toml", "../secret.toml"),
        ("results/models/models", "../.."),
        ("results/tables/tables", "../.."),
    ];
    for (link, to) in links {
        std::os::unix::fs::symlink(to, folder.join(link)).unwrap();
    }
}

#[test]
fn nobody_comes_in_without_a_token_and_out_of_the_folder() {
    let folder = folders();
    fs::write(folder.path().join("secret.toml"), "secret").unwrap();
    link(folder.path());
    let pipe = folder.path().join("studies/pipe.toml");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let console = Console::start(folder.path(), &[]);
    let right = format!("Authorization: Bearer {}\r\n", console.token());
    let json = json!({ "id": "../results" }).to_string();
    let other = |name: &str| json!({ "name": name, "text": "x", "version": "" }).to_string();
    for (line, headers, body, status) in [
        ("GET /", "", "", 200),
        ("GET /", "Host: LocalHost\r\n", "", 200),
        ("GET /", "Host: evil.example\r\n", "", 421),
        ("GET /api/studies", "", "", 401),
        ("GET /api/studies", "Authorization: Bearer x\r\n", "", 401),
        ("GET /api/studies", &right, "", 200),
        ("GET /api/nothing", &right, "", 404),
        ("PUT /api/report", &right, &json, 400),
        ("PUT /api/report", &right, "{\"id\":\"link\"}", 400),
        ("PUT /api/report", &right, "{\"id\":\"gone\"}", 404),
        ("POST /api/report", &right, "{\"id\":\"large\"}", 400),
        ("PUT /api/report", &right, "{", 400),
        ("PUT /api/report", &right, "{\"id\":\"tables\"}", 400),
        ("GET /api/file?study=models&name=secret.toml", &right, "", 400),
        ("GET /api/file?name=../secret.toml", &right, "", 400),
        ("GET /api/file?name=link.toml", &right, "", 400),
        ("GET /api/file?name=secret.toml&study=..", &right, "", 400),
        ("GET /api/file?name=..%2Fx.toml&study=.", &right, "", 400),
        ("PUT /api/file", &right, &other("../new.toml"), 400),
        ("PUT /api/file", &right, &other("new.sh"), 400),
        ("PUT /api/file", &right, &other("pipe.toml"), 400),
        ("PUT /api/file", &right, &other("shop.toml"), 409),
        ("PUT /api/runs", &right, "{\"file\":\"shop.toml\",\"out\":\"../x\"}", 400),
        ("DELETE /api/runs/7", &right, "", 404),
        ("POST /api/compare", &right, "{\"ids\":[\".\"],\"bound\":\"5%\"}", 400),
        ("POST /api/solve", &right, "{\"model\":[1]}", 400),
        ("PUT /api/file", &right, &other("a\0.toml"), 400),
        ("PUT /api/file", &right, &other(&format!("{}.toml", "a".repeat(300))), 400),
        ("POST /api/solve", &right, &"x".repeat(3 << 20), 413),
        ("GET /pages/wrong/study/shop", "", "", 401),
    ] {
        let (found, head, body) = console.ask(line, headers, body);
        assert_eq!(found, status, "{line} {headers}: {head} {body:.300}");
        assert!(head.contains("script-src 'self';") || status == 421, "{head}");
        assert!(found == 200 || body.contains("\"error\""), "{line}: {body}");
    }
    fs::write(folder.path().join("tokens"), "read look\nrun do").unwrap();
    let tokens = folder.path().join("tokens");
    let console = Console::start(folder.path(), &["--tokens", tokens.to_str().unwrap()]);
    let body = json!({ "name": "new.toml", "text": "x", "version": "" }).to_string();
    fs::create_dir(folder.path().join("results/told")).unwrap();
    fs::write(folder.path().join("results/told/report.html"), "x").unwrap();
    let told = json!({ "id": "told" }).to_string();
    for (token, saves, reads) in [("look", 403, 200), ("do", 200, 200), ("other", 401, 401)] {
        let headers = format!("Authorization: Bearer {token}\r\n");
        assert_eq!(console.ask("PUT /api/file", &headers, &body).0, saves, "{token}");
        assert_eq!(console.ask("POST /api/report", &headers, &told).0, reads, "{token}");
    }
    let open = kendall()
        .arg("console")
        .arg(folder.path())
        .args(["--listen", "0.0.0.0:0"])
        .output()
        .unwrap();
    assert_eq!(open.status.code(), Some(2));
    let said = String::from_utf8(open.stderr).unwrap();
    assert!(said.contains("--tokens FILE") && said.contains("SSH tunnel"), "{said}");
}

/// The stop of the console is that of the study: what ended is stored, and the same command resumes it.
#[test]
fn a_stopped_console_leaves_a_study_that_can_be_resumed() {
    let folder = folders();
    let mut console = Console::start(folder.path(), &[]);
    let what = json!({ "file": "shop.toml", "out": "shop" });
    assert_eq!(console.call("PUT /api/runs", &what).0, 200);
    let (status, answer) = console.call("PUT /api/runs", &what);
    assert_eq!(status, 409, "{answer}");
    wait_until("a run that ended", || console.newest()["runs_ended"].as_u64() > Some(0));
    Command::new("kill").arg(console.process.child.id().to_string()).status().unwrap();
    assert!(console.process.child.wait().unwrap().success());
    let out = folder.path().join("results/shop");
    let runs = || kendall_store::Results::open(&out).unwrap().runs().unwrap().len();
    let before = runs();
    assert!((1..6).contains(&before), "{before}");

    let console = Console::start(folder.path(), &[]);
    assert_eq!(console.call("PUT /api/runs", &json!({ "out": "shop" })).0, 200);
    wait_until("the end", || console.newest()["state"] == "ended");
    assert_eq!(runs(), 6, "{}", console.newest());
    // A machine that does much else has some of the runs rejected.
    let code = console.newest()["code"].as_u64();
    assert!(matches!(code, Some(0 | 5)), "{}", console.newest());
}

/// What the run had measured is stored, and the next console resumes it.
#[test]
fn a_killed_console_leaves_no_study_that_runs_on() {
    let folder = folders();
    let mut console = Console::start(folder.path(), &[]);
    let what = json!({ "file": "shop.toml", "out": "shop" });
    assert_eq!(console.call("PUT /api/runs", &what).0, 200);
    wait_until("a run that ended", || console.newest()["runs_ended"].as_u64() > Some(0));
    let run = console.children().trim().to_owned();
    assert!(Path::new("/proc").join(&run).exists(), "{run}");
    console.process.child.kill().unwrap();
    // One that nobody waits for has no words left.
    let words = || fs::read(format!("/proc/{run}/cmdline")).unwrap_or_default();
    wait_until("the end of the study", || words().is_empty());
    let out = folder.path().join("results/shop");
    let runs = kendall_store::Results::open(&out).unwrap().runs().unwrap().len();
    assert!((1..6).contains(&runs), "{runs}");
    let console = Console::start(folder.path(), &[]);
    assert_eq!(console.call("PUT /api/runs", &json!({ "out": "shop" })).0, 200);
    wait_until("the end", || console.newest()["state"] == "ended");
    assert_eq!(console.newest()["runs"], 6, "{}", console.newest());
}

/// What stands still, as a stopped process does, is killed by the second stop.
#[test]
fn a_second_stop_kills_a_run_that_does_not_stop() {
    let folder = folders();
    let pipe = folder.path().join("results/pipe");
    fs::create_dir(&pipe).unwrap();
    assert!(Command::new("mkfifo").arg(pipe.join("results.db")).status().unwrap().success());
    let console = Console::start(folder.path(), &[]);
    let (_, list) = console.call("GET /api/studies", &Value::Null);
    let problem = list["studies"][0]["problem"].as_str().unwrap();
    assert!(problem.contains("is a link, a pipe or a folder"), "{list}");

    let what = json!({ "file": "shop.toml", "out": "shop" });
    assert_eq!(console.call("PUT /api/runs", &what).0, 200);
    wait_until("the first run", || console.newest()["runs"].as_u64().is_some());
    let run = console.children();
    assert!(Command::new("kill").args(["-STOP", run.trim()]).status().unwrap().success());
    for _ in 0..2 {
        let (status, answer) = console.call("DELETE /api/runs/1", &Value::Null);
        assert_eq!((status, &answer["state"]), (200, &json!("stopping")));
    }
    wait_until("the end", || console.newest()["state"] == "stopped");
    assert!(console.newest()["lines"].to_string().contains("was killed"), "{}", console.newest());
}

/// A model that takes minutes is ended after ten seconds, or when its client has gone.
#[test]
fn a_solution_on_the_bench_is_bounded_in_time() {
    let folder = folders();
    let console = Console::start(folder.path(), &[]);
    let station = |index: u32| json!({ "name": format!("s{index}"), "service_time_s": 0.001 });
    let names = |from: u32| (from..6).map(|index| format!("s{index}")).collect::<Vec<_>>();
    let pool = |index: u32| json!({ "name": format!("p{index}"), "tokens": 200, "stations": names(index) });
    let model = json!({ "model": {
        "population": 1_000, "stations": (0..6).map(station).collect::<Vec<_>>(),
        "pools": (1..6).map(pool).collect::<Vec<_>>(),
    } });
    let (status, answer) = console.call("POST /api/solve", &model);
    assert_eq!(status, 503, "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("ended after 10 s"), "{answer}");
    // One that is given up ends its process.
    let site = console.address.strip_prefix("http://").unwrap().split('/').next().unwrap();
    let mut stream = TcpStream::connect(site).unwrap();
    let (body, token) = (model.to_string(), console.token());
    let ask = format!(
        "POST /api/solve HTTP/1.1\r\nHost: {site}\r\nAuthorization: Bearer {token}\r\nContent-Type: \
         application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(ask.as_bytes()).unwrap();
    wait_until("the process", || !console.children().is_empty());
    drop(stream);
    wait_until("its end", || console.children().is_empty());
}

/// Results in which a table is a view that has no end.
fn endless(folder: &Path) {
    fs::create_dir(folder).unwrap();
    let view = "PRAGMA user_version = 4; CREATE VIEW study AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 \
                FROM n) SELECT count(*) AS name, 1 AS title, 1 AS file_name, 1 AS file, 1 AS fingerprint, 1 AS seed, \
                1 AS design, 1 AS confidence, 1 AS planned_runs, 1 AS created_unix_ns FROM n";
    let script = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])";
    let mut made = Command::new("python3");
    made.args(["-c", script]).arg(folder.join("results.db")).arg(view);
    assert!(made.status().unwrap().success());
}

#[test]
fn the_console_in_a_browser() {
    let (folder, profile) = (folders(), tempfile::tempdir().unwrap());
    let results = folder.path().join("results");
    fs::create_dir(results.join(HOSTILE)).unwrap();
    fs::write(results.join(HOSTILE).join("results.db"), "no database").unwrap();
    endless(&results.join("endless"));
    std::os::unix::fs::symlink(&results, results.join("round")).unwrap();
    let console = Console::start(folder.path(), &["--commits", "https://git.example/{}"]);
    let (_chromium, debugging) = chromium(profile.path());
    let mut page = Page::of(&debugging);
    page.go(&console.address);
    let name = page.run("await until(() => rows().some(r => r.cells.length > 4)); return rows()[0].cells[1].textContent + rows()[0].cells[4].textContent + document.title");
    assert!(name.as_str().unwrap().starts_with(HOSTILE), "{name}");
    assert!(name.as_str().unwrap().contains("damaged"), "{name}");
    assert!(name.as_str().unwrap().ends_with("Kendall console"), "{name}");
    let endless = page.run("return rows()[1].textContent");
    assert!(endless.as_str().unwrap().contains("too much work"), "{endless}");

    types_and_runs(&mut page, &console);
    two_tabs_lose_nothing(&mut page, folder.path());
    finds_and_reports(&mut page);
    compares(&mut page, &results);
    // Fifty milliseconds at most on a quiet machine; this one may be busy with other tests.
    let times = bends_a_model(&mut page);
    println!("ten stations, from a slider to its picture, and in the solver, in ms: {times}");
    says_nothing_of_another_model(&mut page);
    is_named_and_fits(&mut page);
    survives_the_folder(&mut page, &results);
    let said = page.run("return document.title + performance.getEntriesByType('resource').filter(e => !e.name.startsWith(location.origin) && !e.name.startsWith('data:')).length");
    assert_eq!(said, "Kendall console0", "nothing was asked of others");
}

/// A mistake is shown at its line, a key completed; then it runs, is stopped, resumed, and done.
fn types_and_runs(page: &mut Page, console: &Console) {
    page.click("$('tab-run')");
    let said = page.run(
        "await until(() => $('file').options.length > 1); $('file').value = 'shop.toml'; \
         $('file').dispatchEvent(new Event('change')); await until(() => $('plan').textContent.includes('6 runs')); \
         const set = text => { $('text').value = text; $('text').dispatchEvent(new Event('input')); }; \
         const was = $('text').value; set(was.replace('workers = 1', 'workers = 0')); \
         await until(() => $('plan').textContent.startsWith('line 5: ')); click('to-line'); \
         const line = $('text').value.slice($('text').selectionStart, $('text').selectionEnd); \
         set(was); $('text').focus(); const at = was.indexOf('repetitions') + 3; \
         $('text').setRangeText('', at, at + 'etitions = 3'.length, 'end'); typing(); \
         const keys = [...$('keys').children].map(k => k.textContent); \
         $('text').dispatchEvent(new KeyboardEvent('keydown', { code: 'Space', ctrlKey: true, cancelable: true })); \
         const done = $('text').value.includes('repetitions = \\n'); \
         set('[workload]\\nloop = \"o'); typing(); const words = [...$('keys').children].map(k => k.textContent); set(was); \
         await until(() => $('plan').textContent.includes('6 runs')); return { line, keys, done, words }",
    );
    assert_eq!(said["line"], "workers = 0", "{said}");
    assert!(said["keys"].as_array().unwrap().contains(&json!("repetitions")), "{said}");
    assert_eq!(said["done"], true, "{said}");
    assert_eq!(said["words"], json!(["open"]), "{said}");
    page.click("$('start')");
    wait_until("a run that ended", || console.newest()["runs_ended"].as_u64() > Some(0));
    page.run("await until(() => document.querySelector('.live svg path.line')); await until(() => document.querySelector('.stop'))");
    page.click("document.querySelector('.stop')");
    wait_until("the stop", || console.newest()["state"] == "stopped");
    assert_eq!(
        page.run("return document.querySelector('.live ul').textContent.includes('cores busy')"),
        true
    );
    assert_eq!(console.newest()["code"], 1, "{}", console.newest());
    page.run("await until(() => !document.querySelector('.resume').classList.contains('hidden'))");
    page.click("document.querySelector('.resume')");
    wait_until("the end", || {
        console.newest()["number"] == 2 && console.newest()["state"] == "ended"
    });
    assert_eq!(console.newest()["code"], 0, "{}", console.newest());
    let state = page.run("return await until(() => { const s = document.querySelector('.state').textContent; return s === 'done' && s })");
    assert_eq!(state, "done");
}

/// What another tab or an editor wrote is not overwritten, and what was typed stays.
fn two_tabs_lose_nothing(page: &mut Page, folder: &Path) {
    fs::write(folder.join("studies/shop.toml"), format!("{STUDY}# by another tab\n")).unwrap();
    let said = page.run(
        "$('text').value += '# by this tab\\n'; $('text').dispatchEvent(new Event('input')); click('save'); \
         const said = await until(() => $('problem').textContent); \
         const kept = $('text').value.endsWith('# by this tab\\n'); \
         $('name').value = 'mine.toml'; click('save'); await until(() => $('file').value === 'mine.toml'); \
         return { said, kept, saved: !dirty() }",
    );
    assert!(said["said"].as_str().unwrap().contains("has changed since it was read"), "{said}");
    assert_eq!((&said["kept"], &said["saved"]), (&json!(true), &json!(true)), "{said}");
    let read = |name: &str| fs::read_to_string(folder.join("studies").join(name)).unwrap();
    assert!(read("shop.toml").ends_with("# by another tab\n"));
    assert!(read("mine.toml").ends_with("# by this tab\n"));
}

/// By a level of a factor; its report is shown inside, without rights.
fn finds_and_reports(page: &mut Page) {
    page.click("$('tab-studies')");
    let found = page.run(
        "await until(() => document.querySelector('[data-key=openshop]')); const search = text => { $('search').value = text; \
         $('search').dispatchEvent(new Event('input')); return [...document.querySelectorAll('#list tbody tr')].length; }; \
         const found = ['workload.clients=2', 'workload.clients=3', 'synthetic', ''].map(search); \
         const row = document.querySelector('[data-key=openshop]').closest('tr'); \
         return { found, cells: [...row.cells].map(c => c.textContent) }",
    );
    assert_eq!(found["found"], json!([1, 0, 1, 3]), "{found}");
    assert_eq!(found["cells"][3], "synthetic");
    assert!(found["cells"][6].as_str().unwrap().starts_with("6 of 6"), "{found}");
    assert_ne!(found["cells"][5], "", "{found}");
    page.click("document.querySelector('[data-key=openshop]')");
    let html = page.run(
        "await until(() => $('frame').src.includes('/pages/')); const answer = await fetch($('frame').src); \
         return { html: await answer.text(), policy: answer.headers.get('content-security-policy'), \
             inside: $('frame').contentDocument === null }",
    );
    assert!(html["html"].as_str().unwrap().contains("A known station"), "{html:.500}");
    assert!(html["policy"].as_str().unwrap().starts_with("sandbox allow-scripts;"), "{html:.500}");
    assert_eq!(html["inside"], true, "the report has an origin of its own");
}

/// Six copies: a comparison of two, a trend of all.
fn compares(page: &mut Page, results: &Path) {
    for copy in 2..=6 {
        let to = results.join(format!("shop {copy} & more"));
        fs::create_dir(&to).unwrap();
        fs::copy(results.join("shop/results.db"), to.join("results.db")).unwrap();
    }
    let said = page.run(
        "await until(() => document.querySelectorAll('#list input').length === 6); \
         const boxes = [...document.querySelectorAll('#list input')], labels = new Set(boxes.map(b => b.ariaLabel)).size; boxes.slice(0, 2).forEach(b => b.click()); \
         click('compare'); await until(() => $('shown-title').textContent.startsWith('Verdict')); \
         const html = await (await fetch($('frame').src)).text(); boxes.slice(2).forEach(b => b.click()); \
         click('trend'); await until(() => $('changes').querySelectorAll('svg').length > 2); \
         return { labels, verdict: $('shown-title').textContent, html: html.includes('compared with'), \
             dots: $('changes').querySelector('svg').querySelectorAll('circle').length, problem: $('problem').textContent }",
    );
    assert_eq!(said["html"], true, "{said}");
    assert_eq!(said["dots"], 6, "{said}");
    assert_eq!(said["labels"], 6, "{said}");
    assert_eq!(said["problem"], "", "{said}");
}

/// The bottleneck moves as a slider does; a network of ten stations is solved while one drags.
fn bends_a_model(page: &mut Page) -> Value {
    page.click("$('tab-bench')");
    let said = page.run(
        "await until(() => document.querySelector('#network .limit')); \
         const limit = () => document.querySelector('#network .limit')?.getAttribute('aria-label'); \
         const before = limit(); const slider = $('stations').children[0].querySelectorAll('input[type=range]')[1]; \
         slider.value = 1; slider.dispatchEvent(new Event('input')); await until(() => limit() !== before && limit()); \
         const after = limit(); for (let i = 0; i < 8; i++) { click('add-station'); await new Promise(r => setTimeout(r, 0)); } \
         await until(() => document.querySelectorAll('#network g').length === 10); \
         const times = []; const users = $('classes').querySelector('input[type=range]'); users.max = 400; \
         for (let n = 100; n < 400; n += 10) { users.value = n; const from = performance.now(); \
             users.dispatchEvent(new Event('input')); await until(() => !inFlight); times.push(performance.now() - from); } \
         times.sort((a, b) => a - b); \
         const lines = document.querySelectorAll('#charts path.line').length, ms = $('solved').dataset.ms; \
         click('add-route'); await until(() => document.querySelectorAll('.routes').length === 11); \
         click('add-pool'); await until(() => document.querySelector('#network .pool')); \
         await until(() => !inFlight); const problem = $('model-problem').textContent; \
         $('model-name').value = 'models/bench.toml'; click('model-save'); \
         await until(() => $('solved').textContent.startsWith('saved')); \
         $('model-file').value = 'models/bench.toml'; $('model-file').dispatchEvent(new Event('change')); \
         await until(() => document.querySelectorAll('#network g').length === 10 && $('solved').textContent.includes('busiest')); \
         return { before, after, median: times[15], problem, lines, ms, \
             saved: [...$('model-file').options].map(o => o.value) }",
    );
    assert!(said["before"].as_str().unwrap().starts_with("database"), "{said}");
    assert!(said["after"].as_str().unwrap().starts_with("app"), "{said}");
    assert_eq!(said["problem"], "", "{said}");
    assert!(said["lines"].as_u64().unwrap() >= 5, "{said}");
    assert!(said["saved"].as_array().unwrap().contains(&json!("models/bench.toml")), "{said}");
    json!([said["median"], said["ms"]])
}

/// Where a model has no solution, no figure of the one before stays.
fn says_nothing_of_another_model(page: &mut Page) {
    let left = page.run(
        "const kind = $('classes').querySelector('select'); kind.selectedIndex = 1; kind.dispatchEvent(new Event('change')); \
         const rate = $('classes').querySelector('input[type=number]'); rate.value = 1e6; \
         rate.dispatchEvent(new Event('change')); await until(() => !inFlight && $('model-problem').textContent); \
         return $('charts').textContent + $('figures').tBodies[0].textContent + $('solved').textContent",
    );
    assert_eq!(left, "no solution");
}

/// As the browser's accessibility tree has it: whatever takes the focus has a name. axe-core finds nothing against it. And
/// 390 pixels are enough.
fn is_named_and_fits(page: &mut Page) {
    let axe = repository().join("target/python-packages/axe_core_python/axe.min.js");
    let axe = fs::read_to_string(axe).expect("`scripts/packages test` installs axe-core");
    page.call("Runtime.evaluate", &json!({ "expression": axe }));
    let phone = json!({ "width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": true });
    page.call("Emulation.setDeviceMetricsOverride", &phone);
    page.call("Accessibility.enable", &json!({}));
    for tab in ["studies", "run", "bench"] {
        let wide = page.run(&format!(
            "click('tab-{tab}'); await until(() => document.documentElement.clientWidth === 390); const root = document.documentElement; \
             return root.scrollWidth <= root.clientWidth ? '' : [...document.querySelectorAll('body *')].filter(e => \
                 e.getBoundingClientRect().right > 391).map(e => e.tagName + '#' + e.id + '.' + e.className).join(' ')"
        ));
        assert_eq!(wide, "", "{tab} is wider than the screen");
        let found = page.run(
            "const found = await axe.run(document, { resultTypes: ['violations'], iframes: false }); \
             return found.violations.map(v => v.id + ': ' + v.nodes.map(n => n.html).join(' '))",
        );
        assert_eq!(found, json!([]), "{tab}");
        let tree = page.call("Accessibility.getFullAXTree", &json!({}));
        for node in tree["nodes"].as_array().unwrap() {
            let focusable = node["properties"].as_array().is_some_and(|list| {
                list.iter().any(|p| p["name"] == "focusable" && p["value"]["value"] == true)
            });
            let is_page = node["role"]["value"] == "RootWebArea";
            let named = node["name"]["value"].as_str().is_some_and(|name| !name.is_empty());
            assert!(!focusable || is_page || named || node["ignored"] == true, "{tab}: {node}");
        }
    }
    // By keyboard alone: from the tabs into the page.
    let focus = page.run(
        "$('tab-studies').focus(); $('tab-studies').dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' })); \
         return document.activeElement.id + ' ' + tab",
    );
    assert_eq!(focus, "tab-run run");
}

/// A folder that vanishes is said, and the console goes on when it is back.
fn survives_the_folder(page: &mut Page, results: &Path) {
    let away = results.with_file_name("away");
    fs::rename(results, &away).unwrap();
    page.click("$('tab-studies')");
    let said = page.run("look(); return await until(() => $('problem').textContent)");
    assert!(said.as_str().unwrap().contains("No such file"), "{said}");
    fs::rename(&away, results).unwrap();
    page.run("look(); await until(() => !$('problem').textContent && rows().length > 5)");
}
