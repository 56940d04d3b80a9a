//! How far a study is: a bar on a terminal, plain lines elsewhere, or JSON for other programs.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};
use kendall_store::{Run, Status};
use kendall_study::{Event, Live, LiveHost, StudyFile};
use kendall_units::{Rate, Seconds, counted, exact_f64};
use serde_json::{Value, json};

use super::dry_run::duration;
use crate::live::LivePage;
use crate::output::{self, Format};
use crate::paint::Paint;

pub(super) struct Progress<'a> {
    format: Format,
    page: Option<&'a LivePage>,
    bar: Option<ProgressBar>,
    title: String,
    runs: usize,
    exact: bool,
    ended: usize,
    /// Lengths of the runs of this session, in seconds.
    spent_s: f64,
    ended_now: usize,
    levels: String,
}

/// What came of a run, behind its levels: what was measured, and what is the matter with it.
pub(crate) fn what_came(
    run: &Run,
    throughput_per_s: Option<f64>,
    response_time_mean_s: Option<f64>,
) -> String {
    let mut line = String::new();
    if let Some(throughput) = throughput_per_s {
        write!(line, "  {}", Rate::per_second(throughput)).unwrap_or_default();
    }
    if let Some(time) = response_time_mean_s {
        write!(line, ", mean response {}", Seconds::new(time)).unwrap_or_default();
    }
    let paint = Paint::of_notes();
    let remark = match (run.status, run.caveats.len()) {
        (Status::Done, 0) => return line,
        (Status::Done, some) => paint.doubt(&counted(some, "caveat")),
        (Status::Rejected, _) => paint.bad(&format!("REJECTED: {}", run.reasons.join("; "))),
        (Status::Failed, _) => paint.bad(&format!("FAILED: {}", run.reasons.join("; "))),
    };
    write!(line, "  {remark}").unwrap_or_default();
    line
}

impl<'a> Progress<'a> {
    pub(super) fn new(study: &StudyFile, format: Format, page: Option<&'a LivePage>) -> Self {
        Self {
            format,
            page,
            bar: None,
            title: study.title.clone(),
            runs: 0,
            exact: true,
            ended: 0,
            spent_s: 0.0,
            ended_now: 0,
            levels: String::new(),
        }
    }

    pub(super) fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Opened { runs, exact, ended, failed } => {
                self.opened(*runs, *exact, *ended, *failed);
            }
            Event::Started { run, .. } => {
                self.levels = levels(run);
                if self.exact && run.attempt == 0 && self.ended >= self.runs {
                    self.one_more();
                }
                self.json(|| json!({ "event": "started", "levels": self.levels }));
                if let Some(page) = self.page {
                    page.begins(&format!(
                        "run {} of {}: {}",
                        self.ended + 1,
                        self.runs,
                        self.levels
                    ));
                }
                let text = format!("{}  starting", self.levels);
                if let Some(bar) = &self.bar {
                    bar.set_message(text);
                }
            }
            Event::Capacity { per_s, clients } => {
                let how = clients.map_or_else(
                    || "as an earlier session measured it".to_owned(),
                    |clients| format!("measured in closed loops of up to {clients} clients"),
                );
                self.json(|| json!({ "event": "capacity", "per_s": per_s, "clients": clients }));
                self.note(|| format!("capacity: {}, {how}", Rate::per_second(*per_s)));
            }
            Event::Baseline => {
                self.json(|| json!({ "event": "baseline" }));
                self.note(|| {
                    "measuring the database by itself (pgbench), for a few seconds".to_owned()
                });
            }
            Event::Live(live) => {
                let second = || {
                    let mut second = serde_json::to_value(live).unwrap_or_default();
                    second["event"] = "live".into();
                    second
                };
                self.json(second);
                if let Some(page) = self.page {
                    page.second(second());
                }
                if let Some(bar) = &self.bar {
                    bar.set_message(format!("{}  {}", self.levels, self::live(live)));
                }
            }
            Event::Ended { run, throughput_per_s, response_time_mean_s } => {
                self.ended(run, *throughput_per_s, *response_time_mean_s);
            }
        }
    }

    fn opened(&mut self, runs: usize, exact: bool, ended: usize, failed: usize) {
        (self.runs, self.exact, self.ended) = (runs, exact, ended);
        self.json(|| {
            json!({
                "event": "opened", "runs": runs, "exact": exact, "ended": ended, "failed": failed,
            })
        });
        let most = if exact { "" } else { "at most " };
        let count = format!("{most}{}", counted(runs, "run"));
        let earlier = match (ended, failed) {
            (0, _) => String::new(),
            (_, 0) => format!(", {ended} already done"),
            _ => format!(
                ", {ended} already done, {failed} of them failed: --retry-failed tries these again"
            ),
        };
        self.note(|| format!("{}: {count}{earlier}", self.title));
        if std::io::stderr().is_terminal() && self.format == Format::Human {
            let bar = ProgressBar::new(u64::try_from(runs).unwrap_or(u64::MAX));
            let template = "{bar:24} {pos}/{len}  {prefix}\n{msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_position(u64::try_from(ended).unwrap_or(0));
            self.bar = Some(bar);
        }
    }

    /// A run beyond those that were planned.
    fn one_more(&mut self) {
        self.runs = self.ended + 1;
        let note = || format!("one more run of {}: its repetitions differ", self.levels);
        match &self.bar {
            Some(bar) => {
                bar.set_length(u64::try_from(self.runs).unwrap_or(u64::MAX));
                bar.suspend(|| output::note(&note()));
            }
            None => self.note(note),
        }
    }

    fn ended(&mut self, run: &Run, throughput: Option<f64>, response_time: Option<f64>) {
        self.ended += usize::from(run.attempt == 0);
        self.ended_now += 1;
        let length = run.ended_ns.saturating_sub(run.started_ns);
        self.spent_s += Seconds::from_nanos(length).get();
        let came = what_came(run, throughput, response_time);
        let again = if run.attempt == 0 { "" } else { " again" };
        let line = format!("run {}/{}{again}  {}{came}", self.ended, self.runs, levels(run));
        if let Some(page) = self.page {
            page.line(&line);
        }
        match &self.bar {
            Some(bar) => {
                bar.suspend(|| output::note(&line));
                bar.set_position(u64::try_from(self.ended).unwrap_or(0));
                bar.set_prefix(self.left());
            }
            None if self.format == Format::Json => {
                self.json(|| {
                    json!({
                        "event": "ended", "line": line, "levels": levels(run), "status": run.status,
                        "throughput_per_s": throughput, "response_time_mean_s": response_time,
                    })
                });
            }
            None => output::note(&line),
        }
    }

    /// A line for people.
    fn note(&self, text: impl FnOnce() -> String) {
        if self.format == Format::Human {
            output::note(&text());
        }
    }

    /// A line for other programs, where one is asked for.
    fn json(&self, event: impl FnOnce() -> Value) {
        if self.format == Format::Json {
            output::note(&event().to_string());
        }
    }

    /// Time left, from the mean length of the runs of this session.
    fn left(&self) -> String {
        let left = self.runs.saturating_sub(self.ended);
        let mean = self.spent_s / exact_f64(self.ended_now).max(1.0);
        let text = duration(Seconds::new(mean * exact_f64(left)));
        if self.exact { format!("{text} left") } else { format!("at most {text} left") }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// `workers=8 clients=66`.
fn levels(run: &Run) -> String {
    let parts: Vec<String> = run
        .factors
        .iter()
        .map(|level| format!("{}={}", kendall_observations::short(&level.factor), level.text))
        .collect();
    format!("{} (repetition {})", parts.join(" "), run.repetition + 1)
}

fn live(live: &Live) -> String {
    let mut text = format!("{:.0} s", live.elapsed_s);
    if let Some(throughput) = live.throughput_per_s {
        write!(text, ", {}", Rate::per_second(throughput)).unwrap_or_default();
    }
    if let Some(time) = live.response_time_mean_s {
        write!(text, ", mean response {} at the tier", Seconds::new(time)).unwrap_or_default();
    }
    if live.hosts.len() > 1 {
        for LiveHost { name, busy_cores, cores, silent_s } in &live.hosts {
            match (busy_cores, silent_s) {
                (_, Some(silent_s)) => write!(text, "\n  {name}: silent for {silent_s:.0} s"),
                (Some(busy), None) => write!(text, "\n  {name}: {busy:.2} of {cores} cores busy"),
                (None, None) => Ok(()),
            }
            .unwrap_or_default();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_host_is_named_with_for_how_long() {
        let host = |name: &str, busy_cores, silent_s| LiveHost {
            name: name.to_owned(),
            busy_cores,
            cores: 4,
            silent_s,
        };
        let second = Live {
            elapsed_s: 12.0,
            throughput_per_s: None,
            response_time_mean_s: None,
            response_time_p99_s: None,
            hosts: vec![host("web", Some(1.5), None), host("db", None, Some(4.2))],
        };
        let said = live(&second);
        assert_eq!(said, "12 s\n  web: 1.50 of 4 cores busy\n  db: silent for 4 s");
    }
}
