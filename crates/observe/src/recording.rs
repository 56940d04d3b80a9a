//! Answers kept in a folder, so that an analysis can be made again without the server.
//!
//! One JSON file a query and chunk of time, as the server's API writes it, and `index.json` with
//! which query is where. Files of the same form that come from elsewhere can be put there by hand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::grid::Grid;
use crate::prometheus;
use crate::source::{Series, Source, SourceError, value_without_credentials, without_credentials};
use crate::system::System;

/// Name of the list of answers.
const INDEX: &str = "index.json";

/// Name of the system file beside it.
const SYSTEM: &str = "system.toml";

/// One kept answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    query: String,
    #[serde(flatten)]
    grid: Grid,
    file: String,
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> SourceError + use<> {
    let path = path.display().to_string();
    move |source| SourceError::File { path, source }
}

/// Answers that were kept.
#[derive(Debug)]
pub struct Recording {
    folder: PathBuf,
    entries: Vec<Entry>,
}

impl Recording {
    pub fn open(folder: &Path) -> Result<Self, SourceError> {
        let path = folder.join(INDEX);
        let text = match kendall_tier::read_text(&path, kendall_tier::LARGEST_FILE) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(SourceError::NoRecording { folder: folder.display().to_string() });
            }
            read => read.map_err(failed(&path))?,
        };
        let entries = serde_json::from_str(&text).map_err(|error| SourceError::Unreadable {
            query: path.display().to_string(),
            reason: error.to_string(),
        })?;
        Ok(Self { folder: folder.to_owned(), entries })
    }

    /// The time that it holds: that of its first answer with the shortest step, with all chunks after it.
    pub fn grid(&self) -> Option<Grid> {
        let first = self.entries.iter().min_by_key(|entry| entry.grid.step_s)?;
        let chunks = self.entries.iter().filter(|entry| entry.query == first.query);
        let from_s = chunks.clone().map(|entry| entry.grid.from_s).min()?;
        let to_s = chunks.map(|entry| entry.grid.to_s()).max()?;
        Grid::new(from_s, to_s, first.grid.step_s).ok()
    }
}

impl Source for Recording {
    fn range(&mut self, query: &str, grid: &Grid) -> Result<Vec<Series>, SourceError> {
        let missing = || SourceError::NotRecorded {
            folder: self.folder.display().to_string(),
            query: query.to_owned(),
        };
        let kept = without_credentials(query);
        let is_it =
            |entry: &&Entry| (entry.query == query || entry.query == kept) && entry.grid == *grid;
        let entry = self.entries.iter().find(is_it).ok_or_else(missing)?;
        // A name from a file that others may have written: it stays in its folder.
        let name = Path::new(&entry.file).file_name().ok_or_else(missing)?;
        let path = self.folder.join(name);
        let text =
            kendall_tier::read_text(&path, kendall_tier::LARGEST_FILE).map_err(failed(&path))?;
        prometheus::parse_matrix(&text, query, grid)
    }
}

/// Passes queries on to another source and keeps what it answers.
pub struct Recorder<'a> {
    inner: &'a mut dyn Source,
    folder: PathBuf,
    entries: Vec<Entry>,
}

impl std::fmt::Debug for Recorder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl<'a> Recorder<'a> {
    /// Keeps answers in `folder`, which is made.
    pub fn new(inner: &'a mut dyn Source, folder: &Path) -> Result<Self, SourceError> {
        std::fs::create_dir_all(folder).map_err(failed(folder))?;
        let path = folder.join(INDEX);
        if path.exists() {
            let there = std::io::Error::new(
                std::io::ErrorKind::AlreadyExists,
                "there is a recording already; choose another folder",
            );
            return Err(failed(&path)(there));
        }
        Ok(Self { inner, folder: folder.to_owned(), entries: Vec::new() })
    }

    /// Writes the list of answers, without which nothing counts, and the system file beside it, so that the folder can be
    /// analyzed elsewhere.
    pub fn finish(self, text: &str, system: &System) -> Result<(), SourceError> {
        let path = self.folder.join(SYSTEM);
        std::fs::write(&path, portable(text, system)).map_err(failed(&path))?;
        let path = self.folder.join(INDEX);
        let text = serde_json::to_string_pretty(&self.entries).unwrap_or_default();
        std::fs::write(&path, text).map_err(failed(&path))
    }
}

impl Source for Recorder<'_> {
    fn range(&mut self, query: &str, grid: &Grid) -> Result<Vec<Series>, SourceError> {
        let series = self.inner.range(query, grid)?;
        let file = format!("answer-{:04}.json", self.entries.len() + 1);
        let path = self.folder.join(&file);
        std::fs::write(&path, written(&series, grid)).map_err(failed(&path))?;
        self.entries.push(Entry { query: without_credentials(query), grid: *grid, file });
        Ok(series)
    }

    fn metric_names(&mut self) -> Result<Vec<String>, SourceError> {
        self.inner.metric_names()
    }
}

/// A system file that is analyzed with the answers beside it, with the step and the queries that they have: those of a preset
/// may be others in another version. It has neither the address of the server nor comments, nor credentials in the addresses of its
/// selectors.
fn portable(text: &str, system: &System) -> String {
    let mut table: toml::Table = text.parse().unwrap_or_default();
    table.remove("prometheus");
    for tier in system.tiers.iter().filter(|tier| !tier.of_preset.is_empty()) {
        let queries = tier.queries.iter();
        let queries: toml::Table =
            queries.map(|(what, query)| (what.name().to_owned(), query.as_str().into())).collect();
        let own = table.get_mut("tiers").and_then(|tiers| tiers.get_mut(&tier.name));
        if let Some(own) = own.and_then(toml::Value::as_table_mut) {
            own.insert("queries".to_owned(), queries.into());
        }
    }
    let seconds = |seconds: u64| toml::Value::from(format!("{seconds}s"));
    table.insert("recorded".to_owned(), ".".into());
    table.insert("step".to_owned(), seconds(system.step_s));
    table.insert("scrape".to_owned(), seconds(system.scrape_s));
    without_credentials(&table.to_string())
}

/// As the server's API writes it, gaps left out.
fn written(series: &[Series], grid: &Grid) -> String {
    let result: Vec<serde_json::Value> = series
        .iter()
        .map(|series| {
            let values: Vec<(u64, String)> = (0_u64..)
                .zip(&series.values)
                .filter(|(_, value)| !value.is_nan())
                .map(|(index, value)| {
                    let text = if value.is_infinite() {
                        if *value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
                    } else {
                        value.to_string()
                    };
                    (grid.from_s + index * grid.step_s, text)
                })
                .collect();
            let labels = series.labels.iter();
            let labels: BTreeMap<&String, String> = labels
                .map(|(name, value)| (name, value_without_credentials(name, value)))
                .collect();
            serde_json::json!({ "metric": labels, "values": values })
        })
        .collect();
    let data = serde_json::json!({ "resultType": "matrix", "result": result });
    serde_json::json!({ "status": "success", "data": data }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl Source for Fixed {
        fn range(&mut self, _: &str, grid: &Grid) -> Result<Vec<Series>, SourceError> {
            let values = (0..grid.len())
                .map(|i| if i == 1 { f64::NAN } else { kendall_units::exact_f64(i as u64) / 3.0 })
                .collect();
            let labels =
                [("le".into(), "0.5".into()), ("uri".into(), "redis://:secret@r:6379".into())];
            Ok(vec![Series { labels: labels.into(), values }])
        }
    }

    /// A version with other presets analyzes what the queries of this one were answered; this one, as if they were the preset's.
    #[test]
    fn a_recording_keeps_the_queries_of_a_preset() {
        let text = "name = 'x'\nentry = 'a'\nstep = '5s'\n[tiers.a]\nservers = 1\npreset = 'process'\n\
                    selector = 'job=\"a\"'\nqueries.throughput = 'sum(rate(x[{window}]))'\n";
        let system = System::parse(text).unwrap();
        let kept = portable(text, &system);
        let again = System::parse(&kept).unwrap();
        assert_eq!(again.tiers, system.tiers, "{kept}");
        let other = kept.replace("process_cpu_seconds_total", "process_cpu_seconds");
        let tier = &System::parse(&other).unwrap().tiers[0];
        assert!(tier.queries[&crate::Quantity::Busy].contains("process_cpu_seconds{"), "{other}");
        assert!(tier.of_preset.is_empty());
    }

    #[test]
    fn what_was_recorded_reads_back_to_the_last_digit() {
        let folder = tempfile::tempdir().unwrap();
        let grid = Grid::new(0, 100, 10).unwrap();
        let mut fixed = Fixed;
        let mut recorder = Recorder::new(&mut fixed, folder.path()).unwrap();
        let query = "up{uri!=\"redis://:secret@r:6379\"}";
        let first = recorder.range(query, &grid).unwrap();
        let text = "# of my own\nname = 'x'\nentry = 'a'\nstep = '5s'\nprometheus = 'http://me:secret@p:9090'\n\
                    [tiers.a]\nservers = 1\nqueries.throughput = 'up{uri!=\"redis://:secret@r:6379\"}'\n";
        recorder.finish(text, &System::parse_at(text, Some(10)).unwrap()).unwrap();
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let kept = std::fs::read_to_string(file.unwrap().path()).unwrap();
            assert!(!kept.contains("secret") && !kept.contains("of my own"), "{kept}");
        }
        let kept = std::fs::read_to_string(folder.path().join("system.toml")).unwrap();
        let system = System::parse(&kept).unwrap();
        let own = &system.tiers[0].queries[&crate::Quantity::Throughput];
        assert_eq!(
            (system.step_s, system.scrape_s, system.recorded.as_deref()),
            (10, 5, Some("."))
        );
        let mut recording = Recording::open(folder.path()).unwrap();
        assert_eq!(recording.grid(), Some(grid));
        let again = recording.range(query, &grid).unwrap();
        assert!(recording.range(own, &grid).is_ok());
        let bits = |series: &[Series]| -> Vec<u64> {
            series[0].values.iter().map(|v| if v.is_nan() { 0 } else { v.to_bits() }).collect()
        };
        assert_eq!(bits(&first), bits(&again));
        assert_eq!(again[0].labels["uri"], "redis://r:6379");
        assert!(matches!(recording.range("down", &grid), Err(SourceError::NotRecorded { .. })));
        assert!(Recorder::new(&mut fixed, folder.path()).is_err());
    }
}
