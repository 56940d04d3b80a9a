//! What stands in files.

use std::path::{Path, PathBuf};

use kendall_observe::{CsvTable, Grid, Samples, Source as _, System};
use kendall_queueing::Model;
use kendall_store::{DATABASE_FILE, Results};
use kendall_study::StudyFile;
use kendall_units::{parse_bytes, parse_rate, parse_seconds, parse_share};

use crate::as_text;

/// Quantities with their units.
pub(crate) fn quantities(bytes: &[u8]) {
    as_text(bytes, |text| {
        let usual = |number: f64| assert!(number.is_finite() && number >= 0.0, "{text}: {number}");
        parse_seconds(text).map(|time| usual(time.get())).unwrap_or_default();
        parse_rate(text).map(|rate| usual(rate.get())).unwrap_or_default();
        parse_share(text).map(usual).unwrap_or_default();
        parse_bytes(text).map(drop).unwrap_or_default();
    });
}

/// A study file, up to the settings of its runs.
pub(crate) fn study(bytes: &[u8]) {
    as_text(bytes, |text| {
        for toy in [false, true] {
            match StudyFile::parse("study.toml", text.to_owned(), toy, &[]) {
                Ok(file) => {
                    assert!(!file.fingerprint().is_empty());
                    let levels: Vec<Option<usize>> = file.factors.iter().map(|_| None).collect();
                    file.settings(&levels).map(drop).unwrap_or_default();
                }
                Err(refusal) => assert!(!refusal.to_string().is_empty()),
            }
        }
    });
}

/// A proxy's file. Names of hosts are not resolved, and no file that it names is read: both would be the
/// machine's.
pub(crate) fn proxy(bytes: &[u8]) {
    fn stays_here(value: &toml::Value) -> bool {
        let plain = |c: char| c.is_ascii_digit() || ".:[]".contains(c);
        match value {
            // A socket is not a name either, nor is an IPv6 address.
            toml::Value::String(text) => {
                let hex = |c: char| plain(c) || c.is_ascii_hexdigit();
                let is_ipv6 = text.starts_with('[') && text.chars().all(hex);
                !text.contains(':')
                    || text.starts_with("unix:")
                    || is_ipv6
                    || text.chars().all(plain)
            }
            toml::Value::Array(items) => items.iter().all(stays_here),
            toml::Value::Table(table) => table.iter().all(|(key, value)| {
                let names_a_file = ["authority", "certificate", "key"].contains(&key.as_str());
                !names_a_file && stays_here(value)
            }),
            _ => true,
        }
    }
    as_text(bytes, |text| {
        let table = text.parse::<toml::Table>().map(toml::Value::Table);
        if table.is_ok_and(|table| !stays_here(&table)) {
            return;
        }
        match kendall_memcached_proxy::Config::parse(text, Path::new("proxy.toml")) {
            Ok(config) => assert!(!config.options.pools.is_empty()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}

/// Samples as exporters write them: as a file, and as a page that was kept; with queries of what they are.
pub(crate) fn samples(bytes: &[u8]) {
    as_text(bytes, |text| {
        let (mut file, mut page) = (Samples::default(), Samples::default());
        let job = [("job".to_owned(), "web".to_owned())].into();
        let (read, kept) = (file.add(text), page.add_page(text, 1.764e9, &job));
        for (samples, outcome) in [(&mut file, read), (&mut page, kept)] {
            if let Err(error) = outcome {
                assert!(!error.to_string().is_empty());
                continue;
            }
            let Ok(names) = samples.metric_names() else { continue };
            if let Some((first, last)) = samples.span_s() {
                assert!(first <= last);
            }
            for name in names.iter().take(3) {
                for query in [name.clone(), format!("sum by (job) (rate({name}[2m]))")] {
                    ask(samples, &query);
                }
            }
        }
    });
}

/// A query in the language of Prometheus, of samples that are there.
pub(crate) fn query(bytes: &[u8]) {
    let mut samples = Samples::default();
    for (name, cpu) in [("busy", "0"), ("busy", "1"), ("level", "0")] {
        for at in 0..12_u32 {
            let labels = [("__name__", name), ("cpu", cpu)];
            let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
            samples.push(labels, 1.764e9 + f64::from(10 * at), f64::from(at % 7));
        }
    }
    as_text(bytes, |text| ask(&mut samples, text));
}

fn ask(samples: &mut Samples, query: &str) {
    let grid = Grid::new(1_764_000_000, 1_764_000_060, 30).expect("a minute of three steps");
    match samples.range(query, &grid) {
        Ok(series) => assert!(series.iter().all(|one| one.values.len() == 3)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A file that describes a system by its monitoring, or a table of what was monitored.
pub(crate) fn observed(bytes: &[u8]) {
    as_text(bytes, |text| {
        if let Err(error) = System::parse(text) {
            assert!(!error.to_string().is_empty());
        }
        let Ok(table) = CsvTable::parse(text) else { return };
        let system = "name = \"web\"\nstep = \"15s\"\nentry = \"web\"\n[tiers.web]\nservers = 1\npreset = \"http\"\n\
                      selector = 'job=\"web\"'\n";
        let system = System::parse(system).expect("as the documents have it");
        table.grid(&system).map(drop).unwrap_or_default();
        table.system(&system).map(drop).unwrap_or_default();
    });
}

/// A model file. It is not solved: how long that takes is the solvers' matter.
pub(crate) fn model(bytes: &[u8]) {
    as_text(bytes, |text| {
        let Ok(table) = text.parse::<toml::Table>() else { return };
        match Model::read(&table) {
            // Read once more it is the same model.
            Ok(model) => assert_eq!(Model::read(&table).as_ref(), Ok(&model)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}

/// A short form of a textbook model, solved. What would take long is not: numbers of five digits and
/// more are left to the tests of the solvers.
pub(crate) fn short_form(bytes: &[u8]) {
    as_text(bytes, |text| {
        let digits = text.split(|c: char| !c.is_ascii_digit()).map(str::len).max();
        if digits.unwrap_or(0) > 4 || text.contains(['e', 'E']) && text.contains("e+") {
            return;
        }
        let Ok(table) = text.parse::<toml::Table>() else { return };
        match kendall_textbook::solve(&table, &[]) {
            Ok(answer) => {
                for (name, (output, _)) in &answer.outputs {
                    let numbers = output.numbers();
                    assert!(numbers.iter().all(|number| !number.is_nan()), "{name}: {numbers:?}");
                }
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}

/// A folder of this process, in memory where the system has such a place.
fn folder() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "");
    place.join(format!("kendall-fuzz-{}-{thread}", std::process::id()))
}

/// A file of results that was damaged: each four bytes are a place and what stands there instead.
pub(crate) fn results(changes: &[u8]) {
    let mut file = include_bytes!("../results.db").to_vec();
    for change in changes.chunks_exact(4) {
        let place = u32::from_be_bytes([0, change[0], change[1], change[2]]) as usize;
        let length = file.len();
        file[place % length] = change[3];
    }
    let folder = folder();
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    std::fs::write(folder.join(DATABASE_FILE), &file).expect("a file can be written");
    if let Ok(results) = Results::open(&folder) {
        read(&results);
    }
    std::fs::remove_dir_all(&folder).unwrap_or_default();
}

/// All that a report reads. Refused or not: it ends.
fn read(results: &Results) {
    results.study().map(drop).unwrap_or_default();
    results.searches().map(drop).unwrap_or_default();
    let Ok(runs) = results.latest_runs() else { return };
    for run in runs {
        results.graph(run.id).map(drop).unwrap_or_default();
        results.speeds(run.id).map(drop).unwrap_or_default();
        results.generators(run.id, None).map(drop).unwrap_or_default();
        results.tiers(run.id, None).map(drop).unwrap_or_default();
        results.processes(run.id).map(drop).unwrap_or_default();
        results.hosts(run.id).map(drop).unwrap_or_default();
        results.record(run.id).map(drop).unwrap_or_default();
    }
}
