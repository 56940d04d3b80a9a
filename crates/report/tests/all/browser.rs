//! The report in a real browser: it must render, answer to keys and clicks, say nothing on the
//! console and request nothing from other hosts.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::made::{IDLE, QUEUE, TWO_LEVEL, WRITES};

/// Names of the browser in the packages of common systems.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

fn browser() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .flat_map(|folder| BROWSERS.map(|name| folder.join(name)))
        .find(|candidate| candidate.is_file());
    found.expect("this test needs Chromium: `make packages-test` installs it")
}

/// What a page became, and what the console said.
struct Seen {
    dom: String,
    console: Vec<String>,
}

fn open(page: &Path, arguments: &[&str]) -> Seen {
    let profile = tempfile::tempdir().unwrap();
    let child = Command::new(browser())
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update"])
        .args(["--disable-sync", "--disable-dev-shm-usage", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        // The browser's own services look for their servers; they shall find none.
        .arg("--host-resolver-rules=MAP * ~NOTFOUND")
        // A frame tells its size to the page around it.
        .arg("--allow-file-access-from-files")
        .args(arguments)
        .arg("--dump-dom")
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = finish(child);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    Seen {
        dom: String::from_utf8(output.stdout).unwrap(),
        console: log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect(),
    }
}

/// Waits for the browser with a deadline: one that hangs must not hang the tests.
fn finish(child: std::process::Child) -> std::process::Output {
    const DEADLINE: Duration = Duration::from_secs(120);
    let pid = child.id();
    let (done, waiting) = std::sync::mpsc::sync_channel(1);
    let worker = std::thread::spawn(move || {
        let output = child.wait_with_output();
        done.send(()).unwrap_or_default();
        output
    });
    if waiting.recv_timeout(DEADLINE).is_err() {
        Command::new("kill").arg(pid.to_string()).status().unwrap();
    }
    worker.join().unwrap().unwrap()
}

/// Presses keys on the first plot, hides a series, zooms, and writes down what it sees.
const VISITOR: &str = r##"<script>
const figure = document.querySelector("#plot-answer"), seen = document.documentElement.dataset;
const canvas = figure.querySelector(".canvas"), press = (key) =>
  canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
press("ArrowRight"); press("ArrowRight");
seen.tip = figure.querySelector(".tip").textContent;
press("+");
seen.zoomed = String(Boolean(figure.querySelector(".zoom").getAttribute("transform")));
press("0");
seen.whole = String(!figure.querySelector(".zoom").getAttribute("transform"));
const button = figure.querySelector(".legend button");
button.click();
seen.hidden = String(figure.querySelector(".chart .series").classList.contains("off"));
seen.pressed = button.getAttribute("aria-pressed");
button.click();
for (const other of [...figure.querySelectorAll(".legend button")].slice(1)) other.click();
seen.rescaled = String(Boolean(figure.querySelector(".zoom").getAttribute("transform")));
const link = document.querySelector("nav a[href='#models']"), models = document.querySelector("#models > details");
seen.folded = String(!models.open);
link.click();
seen.unfolded = String(models.open);
seen.requests = String(performance.getEntriesByType("resource").filter((entry) => !entry.name.startsWith("data:")).length);
</script>"##;

/// Opens a report's page with this behind it.
fn open_with(html: &str, script: &str, arguments: &[&str]) -> Seen {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    std::fs::write(&page, format!("{html}{script}")).unwrap();
    open(&page, arguments)
}

#[test]
fn the_page_renders_and_answers_without_a_word_on_the_console_or_the_network() {
    let html = WRITES.html();
    let plots = html.matches("<figure class=\"plot\"").count();
    assert!(plots > 10, "{plots} plots");
    let seen = open_with(&html, VISITOR, &["--window-size=1200,900"]);
    assert_eq!(seen.console, Vec::<String>::new());
    let root =
        seen.dom.split_once('>').map(|(_, rest)| rest.split_once("<head").unwrap().0).unwrap();
    let says = |text: &str| assert!(root.contains(text), "{text} is not in {root}");
    says(&format!("data-plots=\"{plots}\""));
    says("data-requests=\"0\"");
    says("data-zoomed=\"true\"");
    says("data-whole=\"true\"");
    says("data-hidden=\"true\"");
    says("data-pressed=\"false\"");
    // The 8 workers lie below the others: without them they fill the drawing.
    says("data-rescaled=\"true\"");
    says("data-folded=\"true\"");
    says("data-unfolded=\"true\"");
    says("data-tip=\"8 workersclients: 30throughput (1/s): 7550");
}

/// Writes down how large the page is, what of it ends where, and, all chapters opened, what of tables and plots is amiss. Once
/// it is loaded: before, no part of it is what the address names.
const MEASURE: &str = r##"<script>addEventListener("load", () => {
const page = document.documentElement, measured = window.parent.document.documentElement.dataset;
const end = (name) => Math.ceil(document.querySelector(name)?.getBoundingClientRect().bottom ?? 0);
measured.fits = String(page.scrollWidth <= page.clientWidth);
measured.width = String(window.innerWidth);
measured.height = String(page.scrollHeight);
measured.first = String(Math.max(end("#answer dl"), end("#answer figure.plot .canvas")));
measured.hidden = String([...document.querySelectorAll("#answer .scroll")].filter((box) => box.scrollWidth > box.clientWidth + 1).length);
const rows = [...document.querySelectorAll("tbody tr")].filter((row) => !row.closest("details:not([open])"));
measured.row = String(Math.max(0, ...rows.map((row) => Math.ceil(row.getBoundingClientRect().height))));
for (const fold of document.querySelectorAll("details.chapter, details.folded, details.more")) fold.open = true;
dispatchEvent(new Event("resize"));
const tables = [...document.querySelectorAll(".scroll > table")].filter((table) => table.offsetParent && !table.closest("details:not([open])"));
const named = (found) => String(found.length) + found.map((one) => `; ${one.caption?.textContent ?? one.id}`).join("");
measured.tables = String(tables.length);
measured.behind = named(tables.filter((table) => table.offsetWidth > table.parentElement.clientWidth + 1));
measured.clipped = named(tables.filter((table) => table.getBoundingClientRect().right > page.clientWidth + 1));
measured.quoted = named(tables.filter((table) => table.textContent.includes("`")));
const plots = [...document.querySelectorAll("figure.plot")];
const drawn = plots.map((plot) => plot.querySelector(".figure-title").textContent + plot.querySelector(".data").textContent);
measured.twice = named(plots.filter((plot, place) => drawn.indexOf(drawn[place]) < place));
});</script>"##;

/// What the measuring script says of the page on a screen of this size: a frame, since a window has a least width.
fn measured(
    html: &str,
    fragment: &str,
    (width, height): (u32, u32),
) -> impl Fn(&str) -> String + use<> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("measured.html"), format!("{html}{MEASURE}")).unwrap();
    let around = folder.path().join("around.html");
    let frame = format!(
        "<!DOCTYPE html><html><head></head><body><iframe src=\"measured.html{fragment}\" \
         style=\"border: 0; width: {width}px; height: {height}px\"></iframe></body></html>"
    );
    std::fs::write(&around, frame).unwrap();
    let seen = open(&around, &["--window-size=1400,900"]);
    assert_eq!(seen.console, Vec::<String>::new());
    move |name: &str| {
        let found = seen.dom.split_once(&format!(" data-{name}=\""));
        let (_, value) = found.unwrap_or_else(|| panic!("no {name} in {:.300}", seen.dom));
        value.split('"').next().unwrap().to_owned()
    }
}

#[test]
fn a_small_screen_scrolls_in_one_direction_only() {
    for made in [&*TWO_LEVEL, &*QUEUE, &*IDLE] {
        for fragment in ["", "#all"] {
            let of = measured(&made.html(), fragment, (390, 844));
            assert_eq!(of("fits"), "true", "{}{fragment}: wider than the screen", made.name);
        }
    }
}

/// The first page is what is read: three screens of a desk, and on a telephone the plot and the next run
/// within two. No number of it lies behind a scroll.
#[test]
fn the_first_page_is_short() {
    for made in [&*WRITES, &*TWO_LEVEL, &*QUEUE, &*IDLE] {
        let (page, name) = (made.html(), made.name);
        let pixels = |text: String| text.parse::<u32>().unwrap();
        let desk = measured(&page, "", (1280, 800));
        assert!(pixels(desk("height")) <= 3 * 800, "{name}: {} px", desk("height"));
        let telephone = measured(&page, "", (390, 844));
        assert!(pixels(telephone("first")) <= 2 * 844, "{name}: {} px", telephone("first"));
        for of in [&desk as &dyn Fn(&str) -> String, &telephone] {
            assert_eq!(of("hidden"), "0", "{name}: tables with hidden columns at {}", of("width"));
            // Six lines of a table.
            assert!(pixels(of("row")) < 140, "{name}: a row of {} px", of("row"));
        }
    }
}

/// On the second page, all of it unfolded, and on paper of 210 mm with its margins: no column lies behind a scroll or beyond
/// the edge, no name stands in back-quotes in a table, and no plot is drawn twice.
#[test]
fn no_table_of_the_second_page_is_cut_on_a_desk_or_on_paper() {
    const PAPER: (u32, u32) = (688, 973);
    for made in [&*WRITES, &*TWO_LEVEL, &*QUEUE, &*IDLE] {
        let (page, name) = (made.html(), made.name);
        let printed = page.replacen("@media print", "@media all", 1);
        assert_ne!(printed, page);
        for (page, size) in [(&page, (1280, 800)), (&printed, PAPER)] {
            let of = measured(page, "#all", size);
            assert!(of("tables").parse::<u32>().unwrap() > 5, "{name}: {} tables", of("tables"));
            for amiss in ["behind", "clipped", "quoted", "twice"] {
                assert_eq!(of(amiss), "0", "{name} at {} px: {amiss}", size.0);
            }
        }
    }
}

/// Names, headings, labels: what a screen reader needs, read from the page as it was built.
#[test]
fn every_plot_has_a_name_a_description_and_its_values_as_a_table() {
    // The name of a namespace is not an address.
    let html = QUEUE.html().replace("http://www.w3.org/2000/svg", "");
    for figure in html.split("<figure class=\"plot\"").skip(1) {
        let figure = figure.split("</figure>").next().unwrap();
        let head: String = figure.chars().take(200).collect();
        assert!(figure.contains("role=\"img\" aria-label=\""), "{head}");
        assert!(figure.contains("<caption>Values of: "), "{head}");
        assert!(figure.contains("<th scope=\"row\""), "{head}");
        assert!(figure.contains("aria-live=\"polite\""), "{head}");
    }
    assert_eq!(html.matches("<h1").count(), 1);
    assert!(html.contains("<html lang=\"en\">") && html.contains("class=\"skip\""));
    for wanted in ["src=", "http://", "https://", "@import", "url("] {
        let outside =
            html.match_indices(wanted).find(|(at, _)| !html[*at..].starts_with("src=\"data:"));
        assert!(outside.is_none(), "{wanted} would ask the network");
    }
}
