//! `--live`: what is measured just now, as a page for a browser and as metrics for Prometheus.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use kendall_console::LIVE_PAGE;
use kendall_tier::{Clock, Exposition, Instruments, Layout, Page, PageResponse, Routes};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

use crate::exit::{Exit, exit_with};
use crate::output::{self, Format};

/// Seconds and lines that the page shows.
const SECONDS: usize = 600;
const LINES: usize = 200;

/// Metrics, by the field of a second that they show.
const METRICS: [(&str, &str, &str); 4] = [
    ("throughput_per_s", "kendall_live_throughput_per_second", "Answered requests, last second."),
    ("response_time_mean_s", "kendall_live_response_time_mean_seconds", "Mean, last second."),
    ("response_time_p99_s", "kendall_live_response_time_p99_seconds", "99 %, last second."),
    ("errors", "kendall_live_errors_per_second", "Failed requests, last second."),
];

/// Counters of the whole load, likewise.
const TOTALS: [(&str, &str, &str); 2] = [
    ("throughput_per_s", "kendall_live_requests_total", "Answered requests."),
    ("errors", "kendall_live_errors_total", "Failed requests."),
];

#[derive(Debug, clap::Args)]
pub(crate) struct LiveFlag {
    /// Shows throughput, response times and errors of each second in a browser, and at /metrics for Prometheus
    #[arg(long, value_name = "HOST:PORT", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:7081")]
    live: Option<SocketAddr>,
}

/// The page while it is served. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct LivePage {
    shown: Arc<Mutex<Shown>>,
    _page: Page,
}

#[derive(Debug, Default, Serialize)]
struct Shown {
    title: String,
    now: String,
    seconds: VecDeque<Value>,
    lines: VecDeque<String>,
    /// Of all seconds, by [`TOTALS`].
    #[serde(skip)]
    totals: [f64; TOTALS.len()],
}

impl LiveFlag {
    /// Serves the page where it is asked for, and notes where that is, as the progress is noted.
    pub(crate) fn page(&self, title: &str, progress: Format) -> anyhow::Result<Option<LivePage>> {
        self.live.map(|address| LivePage::start(address, title, progress)).transpose()
    }
}

impl LivePage {
    fn start(address: SocketAddr, title: &str, progress: Format) -> anyhow::Result<Self> {
        let shown = Shown { title: title.to_owned(), ..Shown::default() };
        let shown = Arc::new(Mutex::new(shown));
        let (live, metrics) = (Arc::clone(&shown), Arc::clone(&shown));
        let routes = Routes::new()
            .for_browsers()
            .with("GET", "/", |_| PageResponse::html(LIVE_PAGE))
            .with("GET", "/live", move |_| PageResponse::json(&*live.lock()))
            .with("GET", "/metrics", move |_| PageResponse::text(200, metrics.lock().metrics()));
        let layout = Layout { tier: "live", ..Layout::default() };
        let instruments = Instruments::new(layout, Clock::monotonic());
        let page = Page::start("--live=HOST:PORT", address, instruments, routes)
            .map_err(|error| exit_with(Exit::NotReady, error))?;
        let url = format!("http://{}/", page.address());
        output::note(&match progress {
            Format::Human => format!("live: {url}"),
            Format::Json => json!({ "event": "page", "url": url }).to_string(),
        });
        Ok(Self { shown, _page: page })
    }

    /// Another run: seconds begin anew.
    pub(crate) fn begins(&self, what: &str) {
        let mut shown = self.shown.lock();
        what.clone_into(&mut shown.now);
        shown.seconds.clear();
    }

    pub(crate) fn second(&self, second: Value) {
        let mut shown = self.shown.lock();
        for (total, (field, ..)) in shown.totals.iter_mut().zip(TOTALS) {
            *total += second[field].as_f64().unwrap_or(0.0);
        }
        keep(&mut shown.seconds, second, SECONDS);
    }

    /// What came of a run.
    pub(crate) fn line(&self, line: &str) {
        keep(&mut self.shown.lock().lines, line.to_owned(), LINES);
    }
}

fn keep<T>(all: &mut VecDeque<T>, one: T, most: usize) {
    if all.len() == most {
        all.pop_front();
    }
    all.push_back(one);
}

impl Shown {
    fn metrics(&self) -> String {
        let mut page = Exposition::default();
        for (field, name, help) in METRICS {
            if let Some(value) = self.seconds.back().and_then(|second| second[field].as_f64()) {
                page.metric(name, "gauge", help).sample(&[], value);
            }
        }
        for ((_, name, help), total) in TOTALS.into_iter().zip(self.totals) {
            page.metric(name, "counter", help).sample(&[], total);
        }
        page.into_text()
    }
}
