//! Study and model files: listed, read, planned, saved.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use kendall_study::{Plan, Refusal, StudyFile};
use kendall_units::exact_f64;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Shared;
use crate::failure::{Answered, Failure, aside};
use crate::results::{is_file, read_text};

const DEPTH: usize = 3;
const MOST_FILES: usize = 1_000;
const MOST_BYTES: u64 = 1 << 20;
/// Runs whose levels are listed.
const MOST_LISTED: usize = 100;

/// The folder of study and model files.
#[derive(Debug)]
pub(crate) struct Files {
    folder: PathBuf,
    /// Held while one is replaced, so that of two tabs the second one is refused.
    saving: Mutex<()>,
}

impl Files {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, saving: Mutex::default() }
    }

    /// The path of a file; its name is a path below the folder, and no part of it a link.
    pub(crate) fn path(&self, name: &str) -> Result<PathBuf, Failure> {
        let refused = |what: &str| Err(Failure::refused(format!("`{name}` {what}")));
        if !ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            return refused("ends with none of .toml, .json, .jmva, .jsimg and .jsim");
        }
        let mut path = self.folder.clone();
        for part in Path::new(name).components() {
            let Component::Normal(part) = part else {
                return refused("is no path below the folder of study files");
            };
            path.push(part);
            if fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) {
                return refused("is a symbolic link; name the file that it means");
            }
        }
        Ok(path)
    }

    fn list(&self) -> Vec<String> {
        let (mut names, mut waiting) = (Vec::new(), vec![(self.folder.clone(), 0)]);
        while let Some((folder, depth)) = waiting.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten().take(MOST_FILES) {
                let Ok(kind) = entry.file_type() else { continue };
                let path = entry.path();
                if kind.is_dir() && depth < DEPTH {
                    waiting.push((path, depth + 1));
                } else if let Some(name) =
                    path.strip_prefix(&self.folder).ok().and_then(Path::to_str)
                    && kind.is_file()
                    && ENDINGS.iter().any(|ending| name.ends_with(ending))
                    && names.len() < MOST_FILES
                {
                    names.push(name.to_owned());
                }
            }
        }
        names.sort_unstable();
        names
    }
}

const ENDINGS: [&str; 5] = [".toml", ".json", ".jmva", ".jsimg", ".jsim"];

/// What a file held when it was read: a save that states another one is refused.
fn version(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

pub(crate) async fn list(State(shared): State<Shared>) -> Answered {
    aside(move || {
        let folder = shared.files.folder.display().to_string();
        Ok(Json(json!({ "folder": folder, "files": shared.files.list() })))
    })
    .await
}

/// `?name=` of the folder of study files, or with `&study=` a fitted model of a study.
#[derive(Debug, Deserialize)]
pub(crate) struct Which {
    name: String,
    study: Option<String>,
}

pub(crate) async fn read(
    State(shared): State<Shared>,
    which: Result<Query<Which>, QueryRejection>,
) -> Answered {
    let Query(Which { name, study }) = which?;
    aside(move || {
        let path = match study {
            None => shared.files.path(&name)?,
            Some(id) => {
                let plain = Path::new(&name).file_name().is_some_and(|file| file == name.as_str());
                if !plain {
                    return Err(Failure::refused(format!("`{name}` is no name of a model")));
                }
                shared.results.folder(&id)?.join("models").join(name)
            }
        };
        let text = read_text(&path, MOST_BYTES)?;
        Ok(Json(json!({ "version": version(&text), "text": text })))
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(crate) struct Saved {
    name: String,
    text: String,
    /// Of the text that this one replaces; empty for a new file.
    version: String,
}

/// Writes a file as a whole, unless it is no longer what the page has read.
pub(crate) async fn save(
    State(shared): State<Shared>,
    saved: Result<Json<Saved>, JsonRejection>,
) -> Answered {
    let Json(Saved { name, text, version: known }) = saved?;
    aside(move || {
        let path = shared.files.path(&name)?;
        if path.symlink_metadata().is_ok() && !is_file(&path) {
            return Err(Failure::refused(format!("`{name}` is no regular file")));
        }
        let _saving = shared.files.saving.lock();
        let there = match read_text(&path, MOST_BYTES) {
            Ok(there) => version(&there),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error.into()),
        };
        if there != known {
            let what =
                if known.is_empty() { "is there already" } else { "has changed since it was read" };
            let what = format!("`{name}` {what}: save under another name, or open it again");
            return Err(Failure::conflict(what));
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
            let mut young = tempfile::NamedTempFile::new_in(folder)?;
            young.write_all(text.as_bytes())?;
            young.as_file().sync_all()?;
            young.persist(&path).map_err(|error| error.error)?;
        }
        Ok(Json(json!({ "version": version(&text) })))
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(crate) struct Typed {
    text: String,
    #[serde(default)]
    toy: bool,
}

/// What a study file that is being typed would run, or the line that is wrong.
pub(crate) async fn plan(typed: Result<Json<Typed>, JsonRejection>) -> Answered {
    let Json(Typed { text, toy }) = typed?;
    aside(move || {
        let planned = StudyFile::parse("study.toml", text, toy, &[]).and_then(|study| {
            let plan = Plan::of(&study)?;
            Ok((study, plan))
        });
        Ok(Json(match planned {
            Ok((study, plan)) => told(&study, &plan),
            Err(refusal) => refused(&refusal),
        }))
    })
    .await
}

fn told(study: &StudyFile, plan: &Plan) -> Value {
    let seconds = study.base.measure.under_load().get() * exact_f64(plan.most());
    let level = |(factor, level): (&kendall_study::Factor, &Option<usize>)| {
        let text = level.map_or_else(|| "–".to_owned(), |level| factor.level(level).text);
        format!("{}={text}", factor.key)
    };
    let runs = plan.list().into_iter().take(MOST_LISTED).map(|run| {
        let levels = study.factors.iter().zip(&plan.configurations[run.configuration]).map(level);
        levels.collect::<Vec<_>>().join(" ")
    });
    json!({
        "name": study.study,
        "title": study.title,
        "runs": plan.most(),
        "exact": plan.total().is_some(),
        "seconds": seconds,
        // The duration of a job is its limit.
        "at_most": study.base.workload.is_job(),
        "order": runs.collect::<Vec<_>>(),
        "confounding": plan.confounding,
    })
}

fn refused(refusal: &Refusal) -> Value {
    let (line, what) = match refusal {
        Refusal::Key { line, problem, .. } => (*line, problem.to_string()),
        Refusal::Toml { line, what, .. } => (*line, what.clone()),
        other => (1, other.to_string()),
    };
    json!({ "line": line, "what": what })
}

/// The keys of study files, for completion.
pub(crate) async fn schema() -> Answered {
    aside(|| Ok(Json(kendall_study::keys::schema()))).await
}

/// The file of a study that is there, to run it.
pub(crate) fn runnable(path: PathBuf) -> Result<PathBuf, Failure> {
    if is_file(&path) {
        return Ok(path);
    }
    Err(Failure::not_found(format!("there is no study file {}", path.display())))
}
