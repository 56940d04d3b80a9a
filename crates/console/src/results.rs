//! The folder of results: which studies it holds, and what each says.
//!
//! Nothing in it is trusted: symbolic links are not followed, what cannot be read is listed with the reason, and a
//! folder may vanish between two looks.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use kendall_store::{DATABASE_FILE, Results as Stored, Run, Status};
use kendall_study::FIRST_PASS;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Shared;
use crate::failure::{Answered, Failure, aside};

/// Folders below the root in which results are looked for, and how many entries are looked at.
const DEPTH: usize = 4;
const MOST_ENTRIES: usize = 20_000;
/// Bytes of a report that is read.
const MOST_BYTES: u64 = 64 << 20;

/// Files whose change makes a new look necessary.
const WATCHED: [&str; 3] = [DATABASE_FILE, "results.db-wal", "report.json"];
type Stamp = [Option<(u64, SystemTime)>; 3];

#[derive(Debug)]
pub(crate) struct Results {
    root: PathBuf,
    seen: Mutex<HashMap<PathBuf, (Stamp, Value)>>,
}

/// `?id=`: the folder of a study below the root.
#[derive(Debug, Deserialize)]
pub(crate) struct OfStudy {
    id: String,
}

pub(crate) async fn list(State(shared): State<Shared>) -> Answered {
    let commits = shared.commits.clone();
    let mut all = aside(move || shared.results.list()).await?;
    all["commits"] = json!(commits);
    Ok(Json(all))
}

/// The plot of a study's answer: what was measured, beside which a model is drawn.
pub(crate) async fn measured(
    State(shared): State<Shared>,
    of: Result<Query<OfStudy>, QueryRejection>,
) -> Answered {
    let Query(OfStudy { id }) = of?;
    aside(move || {
        let folder = shared.results.folder(&id)?;
        Ok(Json(told(&folder).map_or(Value::Null, |mut told| told["answer"]["plot"].take())))
    })
    .await
}

impl Results {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, seen: Mutex::default() }
    }

    /// Where the results of a study are, or will be; a path below the root, whose parts are no links.
    pub(crate) fn place(&self, id: &str) -> Result<PathBuf, Failure> {
        let mut path = self.root.clone();
        for part in Path::new(id).components() {
            match part {
                Component::Normal(name) => path.push(name),
                Component::CurDir => {}
                _ => {
                    return Err(Failure::refused(format!("`{id}` is no folder below the results")));
                }
            }
            if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_dir()) {
                return Err(Failure::refused(format!("`{id}` is a link or a file, not a folder")));
            }
        }
        // The program that is started follows links: what they mean would be read, or written over.
        let mut entries = fs::read_dir(&path).into_iter().flatten().flatten();
        let is_link = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_symlink());
        if let Some(link) = entries.find(is_link) {
            let name = Path::new(id).join(link.file_name());
            let what = format!("`{}` is a link, and none is followed", name.display());
            return Err(Failure::refused(what));
        }
        Ok(path)
    }

    /// The folder of a study that is there.
    pub(crate) fn folder(&self, id: &str) -> Result<PathBuf, Failure> {
        let path = self.place(id)?;
        let gone = || Failure::not_found(format!("there is no folder `{id}` any more"));
        if path.is_dir() { Ok(path) } else { Err(gone()) }
    }

    fn list(&self) -> Result<Value, Failure> {
        let mut left = MOST_ENTRIES;
        let (mut studies, mut waiting) = (Vec::new(), vec![(self.root.clone(), 0)]);
        let mut seen = HashMap::new();
        while let Some((folder, depth)) = waiting.pop() {
            let is_study = folder.join(DATABASE_FILE).symlink_metadata().is_ok();
            if is_study || is_file(&folder.join("report.json")) {
                studies.push(self.look(&folder, &mut seen));
            }
            // One that vanished has nothing to show. The root must be there.
            let entries = match fs::read_dir(&folder) {
                Err(error) if depth == 0 => {
                    let what = format!("the folder {} cannot be read: {error}", folder.display());
                    return Err(Failure::busy(what));
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    let name = folder.strip_prefix(&self.root).unwrap_or(&folder).display();
                    let problem = format!("it cannot be read: {error}");
                    studies.push(json!({ "name": name.to_string(), "problem": problem }));
                    continue;
                }
                entries => entries.into_iter().flatten().flatten(),
            };
            for entry in entries.take(left) {
                left = left.saturating_sub(1);
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let name = entry.file_name();
                let of_study = ["logs", "tables", "models"].iter().any(|own| name == *own)
                    || is_study && name.to_string_lossy().starts_with(FIRST_PASS);
                if is_folder && depth < DEPTH && !of_study {
                    waiting.push((entry.path(), depth + 1));
                }
            }
        }
        *self.seen.lock() = seen;
        let folder = self.root.display().to_string();
        Ok(json!({ "folder": folder, "studies": studies, "all": left > 0 }))
    }

    /// What a folder says, read again only where a file of it changed.
    fn look(&self, folder: &Path, seen: &mut HashMap<PathBuf, (Stamp, Value)>) -> Value {
        let stamp = WATCHED.map(|name| {
            let found = fs::symlink_metadata(folder.join(name)).ok()?;
            Some((found.len(), found.modified().ok()?))
        });
        let before = self.seen.lock().remove(folder);
        let value = match before {
            Some((known, value)) if known == stamp => value,
            _ => described(&self.root, folder),
        };
        seen.insert(folder.to_owned(), (stamp, value.clone()));
        value
    }
}

/// The row of a folder.
fn described(root: &Path, folder: &Path) -> Value {
    let name = folder.strip_prefix(root).unwrap_or(folder);
    let Some(id) = name.to_str() else {
        return json!({ "name": name.display().to_string(), "problem": "its name is not UTF-8: rename it" });
    };
    let id = if id.is_empty() { "." } else { id };
    let mut row = match folder.join(DATABASE_FILE).symlink_metadata() {
        Ok(found) if !found.is_file() => {
            json!({ "problem": format!("its {DATABASE_FILE} is a link, a pipe or a folder, and is not opened") })
        }
        Ok(_) => study(folder)
            .unwrap_or_else(|problem| json!({ "problem": kendall_units::chain(&problem) })),
        // What `kendall observe` wrote.
        Err(_) => json!({ "system": "observed" }),
    };
    row["id"] = json!(id);
    row["report"] = json!(is_file(&folder.join("report.html")));
    row["models"] = json!(models(folder));
    if let Some(told) = told(folder) {
        for key in ["name", "title"] {
            if row[key].is_null() {
                row[key] = told[key].clone();
            }
        }
        for key in ["question", "answer", "told", "trust", "limits"] {
            row[key] = told["answer"][key].clone();
        }
    }
    if row["name"].is_null() {
        row["name"] = json!(id);
    }
    row
}

/// What the database says of a study.
fn study(folder: &Path) -> Result<Value, kendall_store::StoreError> {
    let stored = Stored::open_for_a_look(folder)?;
    let (study, runs) = (stored.study()?, stored.latest_runs()?);
    let of = |status| runs.iter().filter(|run| run.status == status).count();
    let first: Option<&Run> = runs.first();
    let setting = |key: &str| first.and_then(|run| run.setting(key).cloned());
    let mut factors: Vec<(&str, Vec<&str>)> = Vec::new();
    for level in runs.iter().flat_map(|run| &run.factors) {
        match factors.iter_mut().find(|(factor, _)| *factor == level.factor) {
            None => factors.push((&level.factor, vec![&level.text])),
            Some((_, levels)) if !levels.contains(&level.text.as_str()) => levels.push(&level.text),
            Some(_) => {}
        }
    }
    Ok(json!({
        "name": study.name,
        "title": study.title,
        "created_unix_ms": study.created_unix_ns / 1_000_000,
        "design": study.design,
        "planned": study.planned_runs,
        "done": of(Status::Done),
        "rejected": of(Status::Rejected),
        "failed": of(Status::Failed),
        "system": setting("system.kind"),
        "protocol": setting("workload.protocol"),
        "factors": factors,
        "revision": first.map(|run| run.environment["revision"].clone()),
    }))
}

/// `report.json`, where there is one that can be read.
fn told(folder: &Path) -> Option<Value> {
    let text = read_text(&folder.join("report.json"), MOST_BYTES).ok()?;
    /// Of a page of many megabytes, the first lines.
    #[derive(Deserialize)]
    struct Told {
        name: Value,
        title: Value,
        answer: Value,
    }
    let told: Told = serde_json::from_str(&text).ok()?;
    Some(json!({ "name": told.name, "title": told.title, "answer": told.answer }))
}

fn models(folder: &Path) -> Vec<String> {
    let models = folder.join("models");
    let own = fs::symlink_metadata(&models).is_ok_and(|found| found.is_dir());
    let entries = own.then(|| fs::read_dir(models)).into_iter().flatten().flatten().flatten();
    let is_model = |name: &String| name.ends_with(".toml");
    let mut names: Vec<String> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(is_model)
        .take(200)
        .collect();
    names.sort_unstable();
    names
}

/// Whether it is a file by itself, not a link to one.
pub(crate) fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

/// A file that is one, up to a limit.
pub(crate) fn read_text(path: &Path, most: u64) -> io::Result<String> {
    if !is_file(path) {
        let what = format!("there is no file {}", path.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, what));
    }
    let mut text = String::new();
    fs::File::open(path)?.take(most + 1).read_to_string(&mut text)?;
    if u64::try_from(text.len()).is_ok_and(|length| length > most) {
        let what = format!("{} has more than {most} bytes", path.display());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(text)
}
