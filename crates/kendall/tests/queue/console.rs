//! The management console of the message queue in a real browser, clicked by a script.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::browser::{Page, Process, chromium};
use crate::support::kendall;

/// What a message must not do to the browser that shows it.
const HOSTILE: &str = "<img src=x onerror=\"document.title='owned'\">\
    <script>document.title='owned'</script> & \u{202e}\u{1f4a3}";

#[test]
fn the_console_in_a_browser() {
    let (folder, profile) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let mut queue = Process::start(
        kendall()
            .args(["serve", "queue", "--listen", "127.0.0.1:0", "--console", "127.0.0.1:0"])
            .arg("--data")
            .arg(folder.path().join("queue")),
    );
    let server = queue.after("listen=");
    let address = queue.after("console ");
    let (site, token) = address.split_once('#').unwrap();
    let command = |arguments: &[&str]| {
        let done = kendall().args(["queue", "--server", &server]).args(arguments).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    command(&["create", "jobs"]);
    command(&["create", "<b>bold</b>"]);
    command(&["--as", "maker", "send", "jobs", HOSTILE]);

    let (_chromium, debugging) = chromium(profile.path());
    let mut page = Page::of(&debugging);

    refuses(site, token);
    without_the_token(&mut page, site);
    page.go(&address);
    assert_eq!(
        page.run("return location.href").as_str(),
        Some(site),
        "the token leaves the address"
    );
    hostile_text(&mut page);
    sends_pages_and_deletes(&mut page);
    purges_after_a_question(&mut page, command);
    makes_and_pauses_a_queue(&mut page);
    searches_a_long_way(&mut page, &server);
    fits_a_phone(&mut page);
    assert!(token.len() >= 32, "a token that cannot be guessed");
    // A graceful stop, so that the private PostgreSQL stops too.
    Command::new("kill").arg(queue.child.id().to_string()).status().unwrap();
    queue.child.wait().unwrap();
}

fn without_the_token(page: &mut Page, site: &str) {
    page.go(&format!("{site}#wrong"));
    let said = page.run("return await until(() => $('problem').textContent)");
    assert!(said.as_str().unwrap().contains("access token"), "{said}");
    assert_eq!(page.run("return rows().length"), 0);
}

/// Names and contents are shown as they are, and nothing in them is run.
fn hostile_text(page: &mut Page) {
    let names = page.run(
        "await until(() => rows().length === 2); return rows().map(r => r.cells[1].textContent)",
    );
    assert_eq!(names, json!(["jobs", "<b>bold</b>"]));
    let seen = page.run(
        "rows()[0].querySelector('button').click(); \
         await until(() => rows().length === 1 && document.querySelector('td.content')); \
         const shown = document.querySelector('td.content').textContent; \
         rows()[0].querySelector('button').click(); \
         await until(() => $('detail').open); \
         const whole = $('detail-content').textContent; click('detail-close'); \
         return { shown, whole, title: document.title, \
             made: document.querySelectorAll('table img, table script, dialog img').length }",
    );
    assert_eq!(seen["shown"], HOSTILE);
    assert_eq!(seen["whole"], HOSTILE);
    assert_eq!(seen["title"], "Kendall message queue");
    assert_eq!(seen["made"], 0);
}

/// A hundred and twenty messages by the form's own way: three pages; a search; one deleted after a
/// question, which can be answered with no.
fn sends_pages_and_deletes(page: &mut Page) {
    let sent = page.run(
        "$('live').checked = false; click('new'); const form = $('compose-form'); \
         form.queue.value = 'jobs'; form.content.value = 'by the form'; \
         for (const click of [1, 2]) form.querySelector('[type=submit]').click(); \
         await until(() => !$('compose').open && rows().length === 2); \
         const token = sessionStorage.getItem('token'); \
         for (let i = 0; i < 118; i++) { const answer = await fetch('/api/messages', { \
             method: 'POST', headers: { authorization: 'Bearer ' + token, \
                 'content-type': 'application/json' }, \
             body: JSON.stringify({ queue: '1', from: 'maker', content: 'number ' + i }) }); \
             if (!answer.ok) throw new Error(await answer.text()); } \
         click('tab-messages'); const pages = []; \
         for (;;) { await until(() => rows().length > 0); pages.push(rows().length); \
             if ($('next').disabled) break; \
             const first = rows()[0].cells[0].textContent; click('next'); \
             await until(() => rows().length > 0 && rows()[0].cells[0].textContent !== first); } \
         return pages",
    );
    assert_eq!(sent, json!([50, 50, 20]));
    let deleted = page.run(
        "$('search').value = 'number 117'; $('search').dispatchEvent(new Event('input')); \
         await until(() => rows().length === 1); \
         rows()[0].querySelector('button').click(); await until(() => $('detail').open); \
         click('detail-delete'); const asked = $('sure-text').textContent; click('sure-no'); \
         if ($('sure').open || !$('detail').open) throw new Error('no means no'); \
         click('detail-delete'); click('sure-yes'); \
         await until(() => !$('detail').open && rows().length === 0); return asked",
    );
    assert!(deleted.as_str().unwrap().contains("cannot be undone"), "{deleted}");
    let refused = page.run(
        "click('new'); const form = $('compose-form'); form.queue.value = 'jobs'; \
         form.content.value = 'x'.repeat(2001); form.querySelector('[type=submit]').click(); \
         const said = await until(() => $('compose-problem').textContent); click('compose-no'); \
         return said",
    );
    assert!(refused.as_str().unwrap().contains("2000 characters"), "{refused}");
}

fn purges_after_a_question(page: &mut Page, command: impl Fn(&[&str])) {
    let left = page.run(
        "$('search').value = ''; $('live').checked = true; click('tab-queues'); \
         await until(() => rows().length === 2); return rows().length",
    );
    assert_eq!(left, 2);
    // By the mouse, which leaves the focus on the button: the table must go on being live.
    let act = |row: usize, text: &str| {
        format!(
            "[...rows()[{row}].querySelectorAll('button')].find(b => b.textContent === '{text}')"
        )
    };
    page.click("rows()[0].querySelector('summary')");
    page.click(&act(0, "Purge…"));
    page.click("await until(() => $('sure').open && $('sure-yes'))");
    page.run("await until(() => rows()[0].cells[2].textContent === '0')");
    command(&["--as", "maker", "send", "jobs", "seen live"]);
    page.run("await until(() => rows()[0].cells[2].textContent === '1')");
    page.click("rows()[1].querySelector('summary')");
    page.click(&act(1, "Delete…"));
    page.click("await until(() => $('sure').open && $('sure-yes'))");
    let left =
        page.run("await until(() => rows().length === 1); return rows()[0].cells[1].textContent");
    assert_eq!(left, "jobs");
}

/// A queue by the form, its charts, and a pause that is ended again.
fn makes_and_pauses_a_queue(page: &mut Page) {
    let made = page.run(
        "click('new-queue'); const form = $('queue-form'); form.elements.name.value = 'made here'; \
         form.deliveries.value = 3; form.letters.value = 'jobs'; \
         form.querySelector('[type=submit]').click(); \
         await until(() => !$('make').open && rows().length === 2); \
         const row = () => rows()[1]; \
         await until(() => row().querySelectorAll('svg.chart polyline').length >= 1); \
         const labels = [...row().querySelectorAll('svg.chart')].map(c => c.getAttribute('aria-label')); \
         const pick = text => { row().querySelector('summary').click(); \
             [...row().querySelectorAll('button')].find(b => b.textContent === text).click(); }; \
         pick('Pause…'); click('sure-yes'); \
         await until(() => row().cells[1].textContent.endsWith('(paused)')); \
         pick('Resume'); await until(() => row().cells[1].textContent === 'made here'); \
         const letters = row().cells[7].textContent; \
         pick('Delete…'); click('sure-yes'); await until(() => rows().length === 1); \
         click('new-queue'); form.elements.name.value = 'jobs'; \
         form.querySelector('[type=submit]').click(); \
         const said = await until(() => $('queue-problem').textContent); click('queue-no'); \
         return { labels, letters, said }",
    );
    assert_eq!(made["labels"][0], "waiting: 0");
    assert!(made["labels"][1].as_str().unwrap().contains("/s sent"), "{made}");
    assert!(made["letters"].as_str().unwrap().starts_with("after 3"), "{made}");
    assert!(made["said"].as_str().unwrap().contains("exists"), "{made}");
}

/// More messages than one look goes through, and the one that is wanted behind them all.
fn searches_a_long_way(page: &mut Page, server: &str) {
    let mut child = kendall()
        .args(["queue", "--server", server, "--as", "maker", "send", "jobs", "--lines"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = "{\"content\":\"hay\"}\n".repeat(20_500);
    lines.push_str("{\"content\":\"50%_needle\"}\n");
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let found = page.run(
        "click('tab-messages'); await until(() => rows().length === 50); \
         const search = text => { $('search').value = text; \
             $('search').dispatchEvent(new Event('input')); }; \
         search('0%_n'); await until(() => rows().length === 1); \
         const found = rows()[0].querySelector('td.content').textContent; \
         search('%'); await until(() => rows().length === 1); \
         search(''); click('newest'); await until(() => rows().length === 50 && \
             rows()[0].querySelector('td.content').textContent === '50%_needle'); \
         click('next'); await until(() => rows().length === 50 && \
             rows()[0].querySelector('td.content').textContent === 'hay'); click('newest'); \
         search('nothing has this'); await until(() => rows().length === 0 && !$('where').textContent); \
         $('queue').value = 'nowhere'; $('queue').dispatchEvent(new Event('input')); \
         const said = await until(() => $('problem').textContent); \
         return { found, said }",
    );
    assert_eq!(found["found"], "50%_needle");
    assert!(found["said"].as_str().unwrap().contains("no queue `nowhere`"), "{found}");
}

/// Without the token, under a name that is not this machine's, or with too much to look for.
fn refuses(site: &str, token: &str) {
    let address = site.trim_start_matches("http://").trim_end_matches('/');
    let right = format!("Bearer {token}");
    let long = format!("/api/clients?search={}", "x".repeat(201));
    for (path, host, authorization, status) in [
        ("/", address, "", 200),
        ("/", "evil.example", "", 421),
        ("/api/overview", address, right.as_str(), 200),
        ("/api/overview", "localhost", &right, 200),
        ("/api/overview", "evil.example", &right, 421),
        ("/api/overview", address, "", 401),
        ("/api/nothing", address, "", 401),
        ("/api/nothing", address, &right, 404),
        ("/api/messages/x", address, &right, 400),
        ("/api/messages?after=x", address, &right, 400),
        ("/api/messages?search=%00", address, &right, 400),
        ("/api/messages?queue=%00", address, &right, 404),
        (&long, address, &right, 400),
    ] {
        let mut stream = TcpStream::connect(address).unwrap();
        let ask = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {authorization}\r\n\
             Connection: close\r\n\r\n"
        );
        stream.write_all(ask.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path} {host}: {answer}");
        assert!(answer.contains("script-src 'self';") || status == 421, "{answer}");
        if status != 200 {
            let body = answer.split("\r\n\r\n").nth(1).unwrap();
            let told: Value = serde_json::from_str(body).unwrap();
            assert!(told["error"].is_string(), "{told}");
        }
    }
}

fn fits_a_phone(page: &mut Page) {
    let phone = json!({ "width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": true });
    page.call("Emulation.setDeviceMetricsOverride", &phone);
    let fits = page.run(
        "const root = document.documentElement; \
         await until(() => root.clientWidth === 400); \
         for (const name of ['queues', 'clients', 'messages']) { \
             $('queue').value = ''; $('search').value = ''; click('tab-' + name); \
             await until(() => rows().length > 0); \
             const box = document.querySelector('.scroll'); \
             if (root.scrollWidth > root.clientWidth || box.scrollWidth > box.clientWidth) return name; } \
         const sent = rows()[0].cells[5].textContent; \
         return /^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ$/.test(sent) ? 'fits' : sent",
    );
    assert_eq!(fits, "fits", "wider than the screen, or no ISO time");
}
