//! Samples as exporters write them: OpenMetrics text, Prometheus text, and what `promtool tsdb dump` prints.
//!
//! `promql` computes queries from them, so that an analysis needs no server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::source::SourceError;

/// Label under which a metric's name is kept.
pub(crate) const NAME: &str = "__name__";

/// One series: moments in milliseconds of Unix time, ascending.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Stored {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) times_ms: Vec<u64>,
    pub(crate) values: Vec<f64>,
}

/// Samples of many series.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples {
    pub(crate) series: Vec<Stored>,
    index: BTreeMap<BTreeMap<String, String>, usize>,
    /// Some moment came before one that was there.
    unsorted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}: `{text}`")]
pub struct SampleError {
    /// Which, from 1.
    pub line: usize,
    pub reason: &'static str,
    pub text: String,
}

impl Samples {
    /// Reads text in which every sample says when it was taken.
    ///
    /// OpenMetrics (it ends with `# EOF`) counts seconds, Prometheus text and `promtool tsdb dump`
    /// milliseconds.
    pub fn add(&mut self, text: &str) -> Result<(), SampleError> {
        let seconds = text.lines().rev().find(|line| !line.trim().is_empty()) == Some("# EOF");
        let scale = if seconds { 1_000.0 } else { 1.0 };
        self.read(text, &BTreeMap::new(), |stamp| {
            stamp.map(|stamp| stamp * scale).ok_or(
                "there is no timestamp; `promtool tsdb dump` writes them, and pages that were kept \
                 one by one go into a folder, see docs/observe.md",
            )
        })?;
        self.sort();
        Ok(())
    }

    /// Reads a page as an exporter serves it, taken at a moment, with the labels that a scrape adds.
    pub fn add_page(
        &mut self,
        text: &str,
        at_s: f64,
        labels: &BTreeMap<String, String>,
    ) -> Result<(), SampleError> {
        self.read(text, labels, |_| Ok(at_s * 1_000.0))
    }

    /// Reads a file, or a folder: its files, and in each of its folders pages of one job, named after
    /// the Unix time at which they were taken (`DIR/JOB/1764000000.txt`).
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let mut samples = Self::default();
        if !path.is_dir() {
            samples.add_file(path)?;
            return Ok(samples);
        }
        for inside in listed(path)? {
            if !inside.is_dir() {
                samples.add_file(&inside)?;
                continue;
            }
            let job = inside.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let labels = [("job".to_owned(), job)].into();
            for page in listed(&inside)? {
                let stem = page.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let at_s: f64 = stem.parse().map_err(|_| SourceError::Unreadable {
                    query: page.display().to_string(),
                    reason: "its name is not a Unix time such as `1764000000.txt`".to_owned(),
                })?;
                let text = read(&page)?;
                samples.add_page(&text, at_s, &labels).map_err(unreadable(&page))?;
            }
        }
        samples.sort();
        Ok(samples)
    }

    fn add_file(&mut self, path: &Path) -> Result<(), SourceError> {
        self.add(&read(path)?).map_err(unreadable(path))
    }

    /// One sample; one before 1970 is none.
    pub fn push(&mut self, labels: BTreeMap<String, String>, at_s: f64, value: f64) {
        if let Some(at_ms) = milliseconds(at_s * 1_000.0) {
            self.insert(labels, at_ms, value);
        }
    }

    /// First and last moment in seconds.
    pub fn span_s(&self) -> Option<(f64, f64)> {
        // They are in no order where reading stopped at a line that is refused.
        let all = || self.series.iter().flat_map(|one| &one.times_ms);
        let (first, last) = (all().min()?, all().max()?);
        let seconds = |ms: u64| kendall_units::exact_f64(ms) / 1_000.0;
        Some((seconds(*first), seconds(*last)))
    }

    fn read(
        &mut self,
        text: &str,
        more: &BTreeMap<String, String>,
        moment: impl Fn(Option<f64>) -> Result<f64, &'static str>,
    ) -> Result<(), SampleError> {
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let begin = || line.chars().take(80).collect();
            let fail = |reason| SampleError { line: number + 1, reason, text: begin() };
            let (mut labels, value, stamp) = parse_line(line).map_err(fail)?;
            labels.extend(more.iter().map(|(key, value)| (key.clone(), value.clone())));
            let at_ms = milliseconds(moment(stamp).map_err(fail)?)
                .ok_or_else(|| fail("the timestamp is not a Unix time"))?;
            self.insert(labels, at_ms, value);
        }
        Ok(())
    }

    fn insert(&mut self, labels: BTreeMap<String, String>, at_ms: u64, value: f64) {
        let at = match self.index.get(&labels) {
            Some(at) => *at,
            None => {
                self.series.push(Stored { labels: labels.clone(), ..Stored::default() });
                self.index.insert(labels, self.series.len() - 1);
                self.series.len() - 1
            }
        };
        let series = &mut self.series[at];
        self.unsorted |= series.times_ms.last().is_some_and(|last| *last >= at_ms);
        series.times_ms.push(at_ms);
        series.values.push(value);
    }

    /// Puts moments in order; of two samples at one moment the later read stays.
    pub(crate) fn sort(&mut self) {
        if !std::mem::take(&mut self.unsorted) {
            return;
        }
        for series in &mut self.series {
            if series.times_ms.windows(2).all(|pair| pair[0] < pair[1]) {
                continue;
            }
            let pairs: BTreeMap<u64, f64> =
                series.times_ms.iter().copied().zip(series.values.iter().copied()).collect();
            (series.times_ms, series.values) = pairs.into_iter().unzip();
        }
    }
}

/// Unix time in whole milliseconds; until the year 5138.
fn milliseconds(value: f64) -> Option<u64> {
    (0.0..1e14).contains(&value).then(|| kendall_units::whole_u64(value.round()))
}

fn read(path: &Path) -> Result<String, SourceError> {
    kendall_tier::read_text(path, kendall_tier::LARGEST_FILE)
        .map_err(|source| SourceError::File { path: path.display().to_string(), source })
}

/// What is in a folder, by name.
fn listed(path: &Path) -> Result<Vec<PathBuf>, SourceError> {
    let failed = |source| SourceError::File { path: path.display().to_string(), source };
    let mut all = std::fs::read_dir(path)
        .and_then(|entries| {
            entries.map(|entry| entry.map(|e| e.path())).collect::<Result<Vec<_>, _>>()
        })
        .map_err(failed)?;
    all.sort();
    Ok(all)
}

fn unreadable(path: &Path) -> impl FnOnce(SampleError) -> SourceError + use<> {
    let query = path.display().to_string();
    move |error| SourceError::Unreadable { query, reason: error.to_string() }
}

type Line = (BTreeMap<String, String>, f64, Option<f64>);

/// `name{label="value",…} value [timestamp] [# exemplar]`.
fn parse_line(line: &str) -> Result<Line, &'static str> {
    let mut labels = BTreeMap::new();
    let end = line.find(|c: char| c == '{' || c.is_whitespace()).ok_or("there is no value")?;
    if end > 0 {
        labels.insert(NAME.to_owned(), line[..end].to_owned());
    }
    let mut rest = &line[end..];
    if let Some(inside) = rest.strip_prefix('{') {
        rest = parse_labels(inside, &mut labels)?;
    }
    if !labels.contains_key(NAME) {
        return Err("there is no name");
    }
    let mut words = rest.split_whitespace();
    let value =
        number(words.next().ok_or("there is no value")?).ok_or("the value is not a number")?;
    let stamp = match words.next() {
        None => None,
        Some(word) if word.starts_with('#') => None,
        Some(word) => {
            Some(number(word).filter(|n| n.is_finite()).ok_or("the timestamp is not a number")?)
        }
    };
    Ok((labels, value, stamp))
}

fn number(word: &str) -> Option<f64> {
    match word {
        "+Inf" | "Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        "NaN" | "Nan" => Some(f64::NAN),
        word => word.parse().ok(),
    }
}

/// Reads up to the closing brace; what follows it is returned.
fn parse_labels<'a>(
    text: &'a str,
    labels: &mut BTreeMap<String, String>,
) -> Result<&'a str, &'static str> {
    let mut rest = text.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Ok(after);
        }
        let (name, after) = rest.split_once('=').ok_or("a label has no value")?;
        let quoted = after.trim_start().strip_prefix('"').ok_or("a label's value is not quoted")?;
        let mut value = String::new();
        let mut characters = quoted.char_indices();
        let end = loop {
            match characters.next().ok_or("a label's value does not end")? {
                (at, '"') => break at + 1,
                (_, '\\') => {
                    value.push(match characters.next().ok_or("a label's value does not end")?.1 {
                        'n' => '\n',
                        other => other,
                    })
                }
                (_, other) => value.push(other),
            }
        };
        labels.insert(name.trim().trim_matches('"').to_owned(), value);
        rest = quoted[end..].trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Grid;
    use crate::source::Source as _;

    /// Samples that go back in time, before a line that is refused.
    #[test]
    fn the_span_is_from_the_earliest_to_the_latest_whatever_their_order() {
        let mut samples = Samples::default();
        let refused = samples.add("x 1 5000\nx 2 3000\n{_0\n");
        assert!(refused.is_err());
        assert_eq!(samples.span_s(), Some((3.0, 5.0)));
    }

    #[test]
    fn the_three_forms_give_the_same_samples() {
        let open = "# TYPE x counter\nx_total{a=\"b\"} 1 100.5 # {trace=\"7\"} 0.3\nx_total{a=\"b\"} 2 101.5\n# EOF\n";
        let plain = "x_total{a=\"b\",} 1 100500\nx_total{a=\"b\"} 2 101500\n";
        let dump =
            "{__name__=\"x_total\", a=\"b\"} 2 101500\n{__name__=\"x_total\", a=\"b\"} 1 100500\n";
        let read = |text: &str| {
            let mut samples = Samples::default();
            samples.add(text).unwrap();
            samples
        };
        let first = read(open);
        assert_eq!(first, read(plain));
        assert_eq!(first, read(dump));
        assert_eq!(first.series[0].times_ms, [100_500, 101_500]);
        assert_eq!(first.span_s(), Some((100.5, 101.5)));
    }

    #[test]
    fn labels_keep_what_is_escaped() {
        let mut samples = Samples::default();
        let job = [("job".to_owned(), "a".to_owned())].into();
        samples.add_page("x{p=\"a\\\\b\\\"c\\nd, e=}\"} +Inf", 1.0, &job).unwrap();
        assert_eq!(samples.series[0].labels["p"], "a\\b\"c\nd, e=}");
        assert_eq!(samples.series[0].labels["job"], "a");
        assert!(samples.series[0].values[0].is_infinite());
    }

    #[test]
    fn pages_of_a_folder_are_samples_of_their_jobs() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("web")).unwrap();
        for (name, value) in [("110.txt", 2), ("100.txt", 1), ("120.5.txt", 3)] {
            std::fs::write(folder.path().join("web").join(name), format!("x {value}\n")).unwrap();
        }
        std::fs::write(folder.path().join("all.om"), "y 1 7\n# EOF\n").unwrap();
        let mut samples = Samples::open(folder.path()).unwrap();
        assert_eq!(samples.span_s(), Some((7.0, 120.5)));
        let grid = Grid::new(121, 130, 1).unwrap();
        let rate = samples.range("rate(x{job=\"web\"}[30s])", &grid).unwrap();
        assert!((rate[0].values[0] - 2.0 / 20.5).abs() < 0.01, "{rate:?}");
        std::fs::write(folder.path().join("web/yesterday.txt"), "x 1\n").unwrap();
        let error = Samples::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("not a Unix time"), "{error}");
    }

    #[test]
    fn what_is_no_sample_is_refused_with_its_line() {
        for (text, reason) in [
            ("x 1 5\nx", "no value"),
            ("x one 5", "not a number"),
            ("x{a=\"b} 1 5", "does not end"),
            ("x{a=b} 1 5", "not quoted"),
            ("x 1", "no timestamp"),
            ("{a=\"b\"} 1 5", "no name"),
        ] {
            let error = Samples::default().add(text).unwrap_err();
            assert!(error.to_string().contains(reason), "{text}: {error}");
        }
        assert_eq!(Samples::default().add("x 1 5\nx").unwrap_err().line, 2);
    }
}
