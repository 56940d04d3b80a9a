//! The status page: queues, builds, workers and what runs, for people and as JSON.

use std::fmt::Write as _;
use std::sync::Arc;

use kendall_units::counted;
use serde::Serialize;

use super::shared_board::SharedBoard;
use crate::html::escaped;

/// Rows of each table.
const ROWS: usize = 200;

#[derive(Debug, Serialize)]
pub(super) struct Status {
    waiting: usize,
    executing: usize,
    workers: usize,
    slots: usize,
    operations: usize,
    queues: Vec<Queue>,
    builds: Vec<Build>,
    worker_list: Vec<Worker>,
}

#[derive(Debug, Serialize)]
struct Queue {
    platform: String,
    waiting: usize,
    workers: usize,
}

#[derive(Debug, Serialize)]
struct Build {
    name: String,
    waiting: u64,
    executing: u64,
    slot_seconds: f64,
}

#[derive(Debug, Serialize)]
struct Worker {
    name: String,
    offers: String,
    slots: usize,
    state: &'static str,
    actions: Vec<Action>,
}

#[derive(Debug, Serialize)]
struct Action {
    action: String,
    stage: &'static str,
    seconds: f64,
}

/// What the page shows.
pub(super) fn status(shared_board: &Arc<SharedBoard>) -> Status {
    shared_board.look(|board, now_ns| {
        let totals = board.totals();
        let seconds = |nanoseconds: u128| {
            let nanoseconds = u64::try_from(nanoseconds).unwrap_or(u64::MAX);
            std::time::Duration::from_nanos(nanoseconds).as_secs_f64()
        };
        let queues = board.queues().into_iter().map(|line| Queue {
            platform: line.platform,
            waiting: line.waiting,
            workers: line.workers,
        });
        let builds = board.invocations(now_ns).into_iter().map(|line| Build {
            name: line.name.to_string(),
            waiting: line.waiting,
            executing: line.executing,
            slot_seconds: seconds(line.slot_time_ns),
        });
        let workers = board.workers(now_ns).into_iter().map(|line| Worker {
            name: line.name.to_string(),
            offers: line.offer,
            slots: line.slots,
            state: match (line.connected, line.draining) {
                (false, _) => "lost",
                (true, true) => "draining",
                (true, false) => "ready",
            },
            actions: line
                .actions
                .into_iter()
                .map(|(_, key, stage, age_ns)| Action {
                    action: key.rsplit('|').next().unwrap_or_default().to_owned(),
                    stage,
                    seconds: seconds(u128::from(age_ns)),
                })
                .collect(),
        });
        Status {
            waiting: totals.waiting,
            executing: totals.executing,
            workers: totals.workers,
            slots: totals.slots,
            operations: totals.operations,
            queues: queues.take(ROWS).collect(),
            builds: builds.take(ROWS).collect(),
            worker_list: workers.take(ROWS).collect(),
        }
    })
}

/// As a page that reads itself again every two seconds.
pub(super) fn html(status: &Status) -> String {
    let mut body = format!(
        "<p>{} waiting, {} executing, {} of {} slots busy on {}</p>",
        status.waiting,
        status.executing,
        status.executing,
        status.slots,
        counted(status.workers, "worker")
    );
    let queues = status
        .queues
        .iter()
        .map(|q| vec![properties(&q.platform), q.waiting.to_string(), q.workers.to_string()]);
    table(&mut body, "Queues", &["platform", "waiting", "workers"], queues);
    let builds = status.builds.iter().map(|b| {
        let slot_seconds = format!("{:.1}", b.slot_seconds);
        let name = if b.name.is_empty() { "(not named)".to_owned() } else { b.name.clone() };
        vec![name, b.waiting.to_string(), b.executing.to_string(), slot_seconds]
    });
    table(&mut body, "Builds", &["invocation", "waiting", "executing", "slot seconds"], builds);
    let workers = status.worker_list.iter().map(|w| {
        let busy = format!("{} of {}", w.actions.len(), w.slots);
        vec![w.name.clone(), w.state.to_owned(), busy, properties(&w.offers)]
    });
    table(&mut body, "Workers", &["name", "state", "busy", "offers"], workers);
    let actions = status.worker_list.iter().flat_map(|worker| {
        worker.actions.iter().map(|action| {
            let seconds = format!("{:.1}", action.seconds);
            vec![action.action.clone(), worker.name.clone(), action.stage.to_owned(), seconds]
        })
    });
    table(&mut body, "Running", &["action", "worker", "stage", "seconds"], actions.take(ROWS));
    format!(
        "<!doctype html><html lang=en><head><meta charset=utf-8>\
         <meta http-equiv=refresh content=2><meta name=viewport content=\"width=device-width\"><title>Kendall build scheduler</title><style>\
         body{{font:14px system-ui;margin:2em;max-width:80em}}table{{border-collapse:collapse}}\
         th,td{{text-align:left;padding:.2em 1em .2em 0;border-bottom:1px solid #ddd}}\
         td{{font-variant-numeric:tabular-nums;overflow-wrap:anywhere}}\
         th,td:not(:first-child){{overflow-wrap:normal}}</style></head><body>\
         <h1>Build scheduler</h1>{body}</body></html>"
    )
}

/// Platform properties for people: an empty set is none.
fn properties(set: &str) -> String {
    if set == "{}" { "no properties".to_owned() } else { set.to_owned() }
}

fn table(body: &mut String, title: &str, head: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let mut rows = rows.peekable();
    let mut add = |text: std::fmt::Arguments<'_>| {
        body.write_fmt(text).expect("a text takes all that is written to it");
    };
    add(format_args!("<h2>{title}</h2>"));
    if rows.peek().is_none() {
        add(format_args!("<p>none</p>"));
        return;
    }
    add(format_args!("<table><tr>"));
    for name in head {
        add(format_args!("<th>{name}</th>"));
    }
    add(format_args!("</tr>"));
    for row in rows {
        add(format_args!("<tr>"));
        for cell in row {
            add(format_args!("<td>{}</td>", escaped(&cell)));
        }
        add(format_args!("</tr>"));
    }
    add(format_args!("</table>"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_name_is_shown_as_text_and_never_as_markup() {
        let status = Status {
            waiting: 0,
            executing: 1,
            workers: 1,
            slots: 2,
            operations: 1,
            queues: vec![],
            builds: vec![Build {
                name: "<script>alert(1)</script>".to_owned(),
                waiting: 0,
                executing: 1,
                slot_seconds: 1.25,
            }],
            worker_list: vec![],
        };
        let page = html(&status);
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script>"), "{page}");
        assert!(page.contains("1 of 2 slots busy on 1 worker<"), "{page}");
    }

    #[test]
    fn a_build_without_a_name_and_an_empty_set_are_said_in_words() {
        let build = Build { name: String::new(), waiting: 1, executing: 0, slot_seconds: 0.0 };
        let queue = Queue { platform: "{}".to_owned(), waiting: 1, workers: 0 };
        let (queues, builds) = (vec![queue], vec![build]);
        let (waiting, executing, workers, slots) = (1, 0, 0, 0);
        let worker_list = vec![];
        let status = Status {
            waiting,
            executing,
            workers,
            slots,
            operations: 1,
            queues,
            builds,
            worker_list,
        };
        let page = html(&status);
        for words in ["<td>(not named)</td>", "<td>no properties</td>", "name=viewport"] {
            assert!(page.contains(words), "{words} in {page}");
        }
    }
}
