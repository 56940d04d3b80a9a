//! Pages that the program writes, shown inside the console: reports, comparisons, trends.
//!
//! Pages are not trusted. Each is shown in a sandboxed frame with an origin of its own, and may load nothing.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::Path;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Path as InPath, State};
use axum::http::header;
use axum::response::IntoResponse;
use kendall_tier::serve::random_token;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Shared;
use crate::failure::{Answered, Failure, aside};
use crate::results::read_text;

/// Comparisons that are kept; older ones are made again.
const KEPT: usize = 16;
const MOST_BYTES: u64 = 256 << 20;
/// Sets in one comparison.
const MOST_SETS: usize = 200;
/// A page's own scripts and styles alone, and no way out.
const POLICY: &str = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src \
                      'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

/// Pages by address. A frame cannot send a token; what is in its address gives no more than to read pages.
#[derive(Debug)]
pub(crate) struct Pages {
    key: String,
    made: Mutex<(u64, VecDeque<(u64, String)>)>,
}

impl Default for Pages {
    fn default() -> Self {
        Self { key: random_token(), made: Mutex::default() }
    }
}

impl Pages {
    fn of_study(&self, id: &str) -> String {
        // Browsers drop a part that is a dot.
        let id = if id == "." { "" } else { id };
        format!("/pages/{}/study/{id}", self.key)
    }

    fn keep(&self, page: String) -> String {
        let mut made = self.made.lock();
        made.0 += 1;
        let number = made.0;
        made.1.push_back((number, page));
        while made.1.len() > KEPT {
            made.1.pop_front();
        }
        format!("/pages/{}/made/{number}", self.key)
    }

    fn kept(&self, number: &str) -> Option<String> {
        let made = self.made.lock();
        made.1.iter().find(|(known, _)| known.to_string() == number).map(|(_, page)| page.clone())
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(crate) struct Wanted {
    id: String,
}

/// Where the report of a study is shown.
pub(crate) async fn report(
    State(shared): State<Shared>,
    wanted: Result<Json<Wanted>, JsonRejection>,
) -> Answered {
    let Json(Wanted { id }) = wanted?;
    aside(move || {
        let page = shared.results.folder(&id)?.join("report.html");
        match page.symlink_metadata() {
            Ok(found) if found.is_file() && found.len() <= MOST_BYTES => {
                Ok(Json(json!({ "page": shared.pages.of_study(&id) })))
            }
            Ok(found) if found.is_file() => Err(Failure::refused(format!(
                "the report of `{id}` has {} MiB, and the console shows {}: open {} by itself",
                found.len() >> 20,
                MOST_BYTES >> 20,
                page.display()
            ))),
            _ => Err(Failure::not_found(format!("`{id}` has no report yet: analyze it"))),
        }
    })
    .await
}

/// Analyzes the results, and answers as [`report`].
pub(crate) async fn make_report(
    State(shared): State<Shared>,
    wanted: Result<Json<Wanted>, JsonRejection>,
) -> Answered {
    let Json(Wanted { id }) = wanted?;
    aside(move || {
        let folder = shared.results.folder(&id)?;
        let arguments =
            ["report".into(), folder.into_os_string(), "--format".into(), "json".into()];
        shared.program.answer(&arguments)?;
        Ok(Json(json!({ "page": shared.pages.of_study(&id) })))
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(crate) struct Sets {
    ids: Vec<String>,
    /// As `--bound` takes it.
    bound: String,
}

/// The page of `kendall compare`, the first set being the baseline.
pub(crate) async fn compare(
    State(shared): State<Shared>,
    sets: Result<Json<Sets>, JsonRejection>,
) -> Answered {
    let Json(sets) = sets?;
    aside(move || {
        let folder = tempfile::tempdir()?;
        let out = [OsString::from("--out"), folder.path().into()];
        let judged = judged(&shared, &sets, 2, out)?;
        let page = read_text(&folder.path().join("comparison.html"), MOST_BYTES)?;
        let page = shared.pages.keep(page);
        Ok(Json(json!({ "page": page, "verdict": judged["verdict"] })))
    })
    .await
}

/// Where a series of results changed, by `kendall compare --trend`.
pub(crate) async fn trend(
    State(shared): State<Shared>,
    sets: Result<Json<Sets>, JsonRejection>,
) -> Answered {
    let Json(sets) = sets?;
    aside(move || Ok(Json(judged(&shared, &sets, 6, ["--trend".into()])?))).await
}

fn judged(
    shared: &Shared,
    sets: &Sets,
    least: usize,
    more: impl IntoIterator<Item = OsString>,
) -> Result<Value, Failure> {
    if !(least..=MOST_SETS).contains(&sets.ids.len()) {
        let chosen = sets.ids.len();
        let what = format!("{chosen} studies are chosen; choose {least} to {MOST_SETS}");
        return Err(Failure::refused(what));
    }
    let mut arguments: Vec<OsString> = vec!["compare".into()];
    for id in &sets.ids {
        arguments.push(shared.results.folder(id)?.into());
    }
    arguments.extend([format!("--bound={}", sets.bound).into(), "--format=json".into()]);
    arguments.extend(more);
    let answer = shared.program.answer(&arguments)?;
    serde_json::from_str(&answer).map_err(|error| Failure::busy(format!("no answer: {error}")))
}

/// A page, without rights.
pub(crate) async fn show(
    State(shared): State<Shared>,
    path: Result<InPath<(String, String)>, PathRejection>,
) -> Result<impl IntoResponse, Failure> {
    let InPath((key, page)) = path?;
    if key != shared.pages.key {
        return Err(Failure::unauthorized());
    }
    let html = aside(move || match page.split_once('/') {
        Some(("made", number)) => shared.pages.kept(number).ok_or_else(|| {
            Failure::not_found(format!("only the last {KEPT} comparisons are kept: compare again"))
        }),
        Some(("study", id)) => {
            let folder = shared.results.folder(id)?;
            Ok(read_text(&folder.join(Path::new("report.html")), MOST_BYTES)?)
        }
        _ => Err(Failure::not_found("nothing is there")),
    })
    .await?;
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
    ];
    Ok((headers, html))
}
