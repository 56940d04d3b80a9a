//! `kendall observe --watch`: repeats the analysis, and says how much headroom is left.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use kendall_observe::watch::Look;
use kendall_observe::{
    Grid, Growth, Source, System, analyze, fetch, fetch_load, growth_of, minute, seen_to_the_end,
};
use kendall_tier::{Clock, Exposition, Instruments, Layout, Page, PageResponse, Routes, Stop};
use parking_lot::Mutex;

use crate::exit::{Exit, exit_with, refused};
use crate::output::{self, Format};

/// Part of a day after which growth is analyzed again.
const HOURS: u64 = 24;

/// Failed analyses after which the figures of the last good one are no longer shown as those of now.
const MOST_FAILED: u64 = 3;

/// How long a look may take to its end after it was told to stop: the server may have no answer for a minute.
const GRACE: Duration = Duration::from_millis(500);

/// How a system is watched.
pub(super) struct Watch {
    pub(super) text: String,
    /// Time between two analyses.
    pub(super) every: Duration,
    /// The time that one analysis covers.
    pub(super) seen_s: u64,
    /// The time that growth is found from.
    pub(super) growth_s: u64,
    /// Ends after so many analyses.
    pub(super) looks: Option<u64>,
    /// Where metrics are served.
    pub(super) metrics: Option<SocketAddr>,
    pub(super) format: Format,
}

/// What the metrics page shows.
#[derive(Default)]
struct Shown {
    exposition: String,
    last_s: u64,
    good: u64,
    failed: u64,
    /// Since the last that was good.
    failed_in_a_row: u64,
}

impl Shown {
    fn succeeded(&mut self, exposition: String, now_s: u64) {
        self.exposition = exposition;
        self.last_s = now_s;
        self.good += 1;
        self.failed_in_a_row = 0;
    }

    /// An alert must not rest on what was true an hour ago; one failure alone does not end its series.
    fn failed(&mut self) {
        self.failed += 1;
        self.failed_in_a_row += 1;
        if self.failed_in_a_row >= MOST_FAILED {
            self.exposition.clear();
        }
    }

    fn text(&self) -> String {
        let mut page = Exposition::default();
        let mut looks = page.metric("kendall_observe_looks_total", "counter", "Analyses made.");
        looks.sample(&[("outcome", "good")], self.good);
        looks.sample(&[("outcome", "failed")], self.failed);
        let help = "Unix time of the last successful analysis.";
        page.metric("kendall_observe_last_success_timestamp_seconds", "gauge", help)
            .sample(&[], self.last_s);
        self.exposition.clone() + &page.into_text()
    }
}

/// Failures of looks in a row: what is the same again is one line.
#[derive(Default)]
struct Failures {
    /// The last one, whatever its figures.
    words: String,
    looks: u64,
}

impl Failures {
    /// One line where the failure is the one before; `None` for another, whose words are to be printed.
    fn again(&mut self, message: &str, now_s: u64) -> Option<String> {
        let words = message.replace(|c: char| c.is_ascii_digit(), "");
        let same = self.looks > 0 && words == self.words;
        self.words = words;
        self.looks += 1;
        let looks = self.looks;
        same.then(|| {
            format!("{}: failed for the same reason, {looks} looks in a row", minute(now_s))
        })
    }

    /// One line where a look succeeded after some that did not.
    fn end(&mut self, now_s: u64) -> Option<String> {
        let looks = std::mem::take(self).looks;
        let counted = kendall_units::counted(looks, "failed look");
        (looks > 0).then(|| format!("{}: answered again, after {counted}", minute(now_s)))
    }
}

/// Asks for the stop when it is dropped.
struct Ended(Stop);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.request();
    }
}

impl Watch {
    /// Repeats the analysis until it is stopped, which ends it whatever it waits for.
    pub(super) fn run(
        self,
        mut source: impl Source + Send + 'static,
        now_s: fn() -> anyhow::Result<u64>,
    ) -> anyhow::Result<Exit> {
        let stop = Stop::on_signals()?;
        let (done, result) = mpsc::sync_channel(1);
        let own = stop.clone();
        std::thread::Builder::new().name("looks".into()).spawn(move || {
            let ended = Ended(own);
            // Nobody is left to hear it where it ends late.
            done.send(self.repeat(&mut source, now_s, &ended.0)).unwrap_or_default();
        })?;
        stop.wait();
        match result.recv_timeout(GRACE) {
            Ok(result) => result,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                output::note(
                    "stopped while the server had not answered: the last look is not whole",
                );
                Ok(Exit::Done)
            }
            Err(error @ mpsc::RecvTimeoutError::Disconnected) => Err(error.into()),
        }
    }

    /// An analysis that fails is reported and tried again; where all of a given number fail, so does this.
    fn repeat(
        &self,
        source: &mut dyn Source,
        now_s: fn() -> anyhow::Result<u64>,
        stop: &Stop,
    ) -> anyhow::Result<Exit> {
        let system = System::parse(&self.text).map_err(refused)?;
        let shown = Arc::new(Mutex::new(Shown::default()));
        let _page = self.metrics.map(|address| serve(address, &shown)).transpose()?;
        let mut growth: Option<(u64, Result<Growth, String>)> = None;
        let mut looks = 0;
        let mut last: Option<Look> = None;
        let mut failures = Failures::default();
        loop {
            let now = now_s()?;
            let mut unanswered = None;
            if growth.as_ref().is_none_or(|(at, _)| now >= at + system.day_s / HOURS) {
                match self.growth(&system, source, now) {
                    Ok(found) => growth = Some((now, found)),
                    // Asked again at the next look.
                    Err(why) => (growth, unanswered) = (None, Some(Err(why))),
                }
            }
            let told = unanswered.or_else(|| growth.as_ref().map(|(_, growth)| growth.clone()));
            match self.look(&system, source, now, told) {
                Ok(look) => {
                    failures.end(now).into_iter().for_each(|line| output::note(&line));
                    self.print(&look, last.as_ref())?;
                    let mut shown = shown.lock();
                    shown.succeeded(look.exposition(), now);
                    last = Some(look);
                }
                Err(error) if last.is_none() && self.looks == Some(looks + 1) => return Err(error),
                Err(error) => {
                    match failures.again(&output::message(&error), now) {
                        Some(line) => output::note(&line),
                        None => output::error(&error),
                    }
                    // It failed for what growth may have failed for too.
                    growth = None;
                    shown.lock().failed();
                }
            }
            looks += 1;
            if self.looks.is_some_and(|most| looks >= most) || stop.wait_for(self.every) {
                return Ok(Exit::Done);
            }
        }
    }

    fn look(
        &self,
        system: &System,
        source: &mut dyn Source,
        now_s: u64,
        growth: Option<Result<Growth, String>>,
    ) -> anyhow::Result<Look> {
        let from_s = now_s.saturating_sub(self.seen_s);
        let grid = Grid::new(from_s, now_s, system.step_s).map_err(refused)?;
        let observed = fetch(system, source, grid).map_err(super::not_ready)?;
        let mut analysis = analyze(system, &observed).map_err(refused)?;
        seen_to_the_end(system, &observed).map_err(refused)?;
        if let Some(growth) = growth {
            analysis.growth = growth;
        }
        Ok(Look::of(system, &analysis, now_s))
    }

    /// By hours, over weeks; an error where that is not answered.
    fn growth(
        &self,
        system: &System,
        source: &mut dyn Source,
        now_s: u64,
    ) -> Result<Result<Growth, String>, String> {
        let hour_s = (system.day_s / HOURS).max(system.step_s);
        let hourly = System::parse_at(&self.text, Some(hour_s)).map_err(|e| e.to_string())?;
        let from_s = now_s.saturating_sub(self.growth_s);
        let grid = Grid::new(from_s, now_s, hour_s).map_err(|error| error.to_string())?;
        let observed = fetch_load(&hourly, source, grid).map_err(|error| error.to_string())?;
        Ok(growth_of(&hourly, &observed))
    }

    fn print(&self, look: &Look, last: Option<&Look>) -> anyhow::Result<()> {
        match self.format {
            Format::Json => output::result(&serde_json::to_string(look)?),
            Format::Human => {
                if std::io::stdout().is_terminal() {
                    // Home, and away with what was there.
                    output::result("\x1b[H\x1b[2J");
                    output::result(&look.page());
                } else if last.is_some_and(|last| last.is_as(look)) {
                    output::result(&look.line());
                } else {
                    output::result(&look.page());
                }
            }
        }
        Ok(())
    }
}

fn serve(address: SocketAddr, shown: &Arc<Mutex<Shown>>) -> anyhow::Result<Page> {
    let clock = Clock::monotonic();
    let layout = Layout { tier: "observe", ..Layout::default() };
    let text = Arc::clone(shown);
    // In place of the metrics of a tier, which this is not.
    let routes =
        Routes::new().with("GET", "/metrics", move |_| PageResponse::text(200, text.lock().text()));
    let page = Page::start("--metrics HOST:PORT", address, Instruments::new(layout, clock), routes)
        .map_err(|error| exit_with(Exit::NotReady, error))?;
    output::note(&format!("ready metrics={}", page.address()));
    Ok(page)
}

/// Whole seconds of a time that an option gives.
pub(super) fn whole_seconds(option: &str, text: &str) -> anyhow::Result<u64> {
    let seconds = kendall_units::parse_seconds(text)
        .map_err(|error| refused(format!("{option} {text}: {error}")))?
        .get();
    if (1.0..1e9).contains(&seconds) {
        Ok(kendall_units::whole_u64(seconds))
    } else {
        Err(refused(format!("{option} {text}: expected a second to 30 years")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_failure_is_said_once_and_its_end() {
        let mut failures = Failures::default();
        assert_eq!(failures.end(0), None);
        assert_eq!(failures.again("no answer in 30 s", 0), None);
        let again = failures.again("no answer in 31 s", 60).unwrap();
        assert_eq!(again, "1970-01-01 00:01 UTC: failed for the same reason, 2 looks in a row");
        assert_eq!(failures.again("3 of 60 windows can be used", 120), None);
        let ended = failures.end(180).unwrap();
        assert_eq!(ended, "1970-01-01 00:03 UTC: answered again, after 3 failed looks");
        assert_eq!(failures.end(240), None);
    }

    /// A headroom of an hour ago is none of now; a single failure is no news.
    #[test]
    fn figures_of_long_ago_are_not_exposed() {
        let mut shown = Shown::default();
        shown.succeeded("kendall_headroom_ratio 2\n".to_owned(), 5);
        for _ in 1..MOST_FAILED {
            shown.failed();
            assert!(shown.text().contains("kendall_headroom_ratio"));
        }
        shown.failed();
        let text = shown.text();
        assert!(!text.contains("kendall_headroom_ratio"), "{text}");
        assert!(text.contains("{outcome=\"failed\"} 3"), "{text}");
        shown.succeeded("kendall_headroom_ratio 3\n".to_owned(), 9);
        shown.failed();
        assert!(shown.text().contains("kendall_headroom_ratio 3"));
    }
}
