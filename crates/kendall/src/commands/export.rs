//! `kendall export`: all tables of a study as files for other programs.

mod parquet;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use kendall_report::ReportError;
use kendall_report::columns::{csv_head, csv_rows};
use kendall_store::{Column, StoreError, Values};
use serde_json::{Map, Value, json};

use crate::exit::{Exit, exit_with, refused};
use crate::export::{Tables, VERSION, unit};
use crate::output;

/// Writes all tables of stored results as files for other programs
///
/// `report/` gets the tables of the report, `stored/` those of results.db and its views, a file each, and `schema.json`
/// says which columns they have, of which kind and in which unit (docs/results.md).
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  kendall export results/demo --format parquet\n  kendall export results/demo --format csv --table report/configurations --out tables"
)]
pub(crate) struct Export {
    /// Folder of results, as made by `kendall run`
    #[arg(value_name = "DIR")]
    results: PathBuf,
    /// Format of the files
    #[arg(long, value_enum)]
    format: Format,
    /// Folder of the files [default: DIR/export]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Only this table, such as stored/runs; repeated
    #[arg(long = "table", value_name = "NAME")]
    tables: Vec<String>,
}

/// Describes the tables.
const SCHEMA: &str = "schema.json";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Columns with types, compressed with Snappy
    Parquet,
    /// Names in the first row; bytes in hexadecimal
    Csv,
    /// A list with an object a row, each in a line; bytes in hexadecimal
    Json,
}

impl Format {
    fn ending(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Csv => "csv",
            Self::Json => "json",
        }
    }
}

impl Export {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let tables = Tables::open(&self.results).map_err(|error| match &error {
            ReportError::Store(store) => exit_with(Exit::of_results(store), error),
            _ => anyhow::Error::new(error),
        })?;
        let names = self.names(tables.names().map_err(unreadable)?)?;
        let out = self.out.clone().unwrap_or_else(|| self.results.join("export"));
        let mut described = Vec::new();
        for name in &names {
            described.push(self.write(&tables, name, &out)?);
        }
        let schema = json!({
            "version": VERSION,
            "program": concat!("Kendall ", env!("CARGO_PKG_VERSION")),
            "study": tables.study(),
            "tables": described,
        });
        put(&out, SCHEMA, |file| Ok(serde_json::to_writer_pretty(file, &schema)?))?;
        let files = kendall_units::counted(names.len(), "table");
        let (folder, path) = (out.display(), out.join(SCHEMA));
        output::result(&format!("{files} in {folder}, described in {}", path.display()));
        Ok(Exit::Done)
    }

    fn names(&self, all: Vec<String>) -> anyhow::Result<Vec<String>> {
        if let Some(unknown) = self.tables.iter().find(|name| !all.contains(name)) {
            let known = all.join(", ");
            return Err(refused(format!("--table {unknown}: no such table; there are {known}")));
        }
        Ok(if self.tables.is_empty() { all } else { self.tables.clone() })
    }

    /// Writes one table; returns its part of the schema.
    fn write(&self, tables: &Tables, name: &str, out: &Path) -> anyhow::Result<Value> {
        let file = format!("{name}.{}", self.format.ending());
        let (mut rows, mut columns) = (0, Vec::new());
        put(out, &file, |file| {
            let mut sink = None;
            tables.read(name, |piece| -> Result<(), Failure> {
                let sink = match &mut sink {
                    Some(sink) => sink,
                    none => {
                        columns = piece.iter().map(described).collect();
                        none.insert(Sink::new(self.format, file.try_clone()?, name, &piece)?)
                    }
                };
                rows += piece.first().map_or(0, |column| column.values.len());
                Ok(sink.write(&piece)?)
            })?;
            sink.map_or(Ok(()), Sink::end)
        })?;
        Ok(json!({ "table": name, "file": file, "rows": rows, "columns": columns }))
    }
}

/// Why a table was not written.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("{0:#}")]
    Writer(#[from] anyhow::Error),
}

fn unreadable(error: StoreError) -> anyhow::Error {
    exit_with(Exit::of_results(&error), error)
}

/// Writes a file into a folder of the export, which is made where it is missing.
fn put(
    out: &Path,
    file: &str,
    write: impl FnOnce(&mut File) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let path = out.join(file);
    let folder = path.parent().unwrap_or(out);
    let is_link = folder != out && folder.is_symlink();
    if is_link {
        let what = "is a symbolic link: remove it, or choose another folder with --out";
        return Err(exit_with(Exit::Refused, format!("{} {what}", folder.display())));
    }
    std::fs::create_dir_all(folder)
        .map_err(anyhow::Error::from)
        .and_then(|()| output::put(&path, true, write))
        .with_context(|| format!("{} cannot be written", path.display()))
        .map_err(|error| exit_with(Exit::NotReady, error))
}

fn described(column: &Column) -> Value {
    let kind = match column.values {
        Values::Integer(_) => "integer",
        Values::Real(_) => "real",
        Values::Text(_) => "text",
        Values::Bytes(_) => "bytes",
    };
    json!({ "name": column.name, "type": kind, "unit": unit(&column.name) })
}

/// A file that is being written.
enum Sink {
    Parquet(parquet::Parquet),
    Csv(csv::Writer<BufWriter<File>>),
    Json { file: BufWriter<File>, rows: usize },
}

impl Sink {
    fn new(format: Format, file: File, table: &str, columns: &[Column]) -> anyhow::Result<Self> {
        Ok(match format {
            Format::Parquet => Self::Parquet(parquet::Parquet::new(file, table, columns)?),
            Format::Csv => {
                let mut writer = csv::Writer::from_writer(BufWriter::new(file));
                csv_head(columns, &mut writer)?;
                Self::Csv(writer)
            }
            Format::Json => Self::Json { file: BufWriter::new(file), rows: 0 },
        })
    }

    fn write(&mut self, columns: &[Column]) -> anyhow::Result<()> {
        match self {
            Self::Parquet(parquet) => parquet.write(columns)?,
            Self::Csv(writer) => csv_rows(columns, writer)?,
            Self::Json { file, rows } => {
                for row in 0..columns.first().map_or(0, |column| column.values.len()) {
                    file.write_all(if *rows == 0 { b"[\n" } else { b",\n" })?;
                    let cells = columns.iter().map(|c| (c.name.clone(), json_cell(&c.values, row)));
                    serde_json::to_writer(
                        &mut *file,
                        &Value::Object(cells.collect::<Map<_, _>>()),
                    )?;
                    *rows += 1;
                }
            }
        }
        Ok(())
    }

    fn end(self) -> anyhow::Result<()> {
        match self {
            Self::Parquet(parquet) => parquet.end()?,
            Self::Csv(mut writer) => writer.flush()?,
            Self::Json { mut file, rows } => {
                file.write_all(if rows == 0 { b"[]\n" } else { b"\n]\n" })?;
                file.flush()?;
            }
        }
        Ok(())
    }
}

fn json_cell(values: &Values, row: usize) -> Value {
    match values {
        Values::Integer(values) => json!(values[row]),
        Values::Real(values) => json!(values[row]),
        Values::Text(values) => json!(values[row]),
        Values::Bytes(values) => json!(values[row].as_deref().map(kendall_units::hex)),
    }
}
