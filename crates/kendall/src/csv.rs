//! Comma-separated tables: read from users with a header, quoted cells and errors with their line,
//! and written as they are read.

use std::path::{Path, PathBuf};

/// Largest file that is read: a table of an experiment is far smaller.
const LARGEST_BYTES: u64 = 256 << 20;

/// A table with a header.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Csv {
    path: PathBuf,
    pub(crate) header: Vec<String>,
    /// Line in the file, from 1, and as many cells as the header has.
    pub(crate) rows: Vec<(usize, Vec<String>)>,
}

/// A table that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CsvError {
    #[error("{path} cannot be read")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path} is larger than {LARGEST_BYTES} bytes, which no table of an experiment is")]
    TooLarge { path: PathBuf },
    #[error("{path} has no header: the first line names the columns, such as `workers,value`")]
    NoHeader { path: PathBuf },
    #[error("{path}: column `{name}` is named twice in the header")]
    Twice { path: PathBuf, name: String },
    #[error("{path}, line {line}: {}, the header has {want}", kendall_units::counted(*have, "cell"))]
    Ragged { path: PathBuf, line: usize, have: usize, want: usize },
    #[error("{path}, line {line}: a quote is opened and not closed")]
    Quote { path: PathBuf, line: usize },
    #[error("{path}, line {line}: there is a space before the quote that opens a cell")]
    Space { path: PathBuf, line: usize },
    #[error("{path} has no column `{name}`; it has {columns}")]
    NoColumn { path: PathBuf, name: String, columns: String },
    #[error("{path}, line {line}, column `{column}`: `{text}` is not a number")]
    NoNumber { path: PathBuf, line: usize, column: String, text: String },
    #[error(
        "{path}, line {line}: column `{column}` is empty; each run that has a response needs a covariate: leave out \
         --covariate, or the response of this run"
    )]
    Empty { path: PathBuf, line: usize, column: String },
    #[error(
        "{path}: column `{name}` is the response, a factor or the repetition, and no covariate beside"
    )]
    Taken { path: PathBuf, name: String },
}

impl Csv {
    pub(crate) fn read(path: &Path) -> Result<Self, CsvError> {
        let refuse = |source| CsvError::Read { path: path.to_owned(), source };
        if std::fs::metadata(path).map_err(refuse)?.len() > LARGEST_BYTES {
            return Err(CsvError::TooLarge { path: path.to_owned() });
        }
        let text = std::fs::read_to_string(path).map_err(refuse)?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, CsvError> {
        let path = path.to_owned();
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let refuse = |wrong| match wrong {
            Wrong::Open { line } => CsvError::Quote { path: path.clone(), line },
            Wrong::Space { line } => CsvError::Space { path: path.clone(), line },
        };
        let mut records = records(text, b',', None)
            .map_err(refuse)?
            .into_iter()
            .filter(|(_, cells)| cells.iter().any(|cell| !cell.is_empty()));
        let Some((_, header)) = records.next() else {
            return Err(CsvError::NoHeader { path });
        };
        for (index, name) in header.iter().enumerate() {
            if header[..index].contains(name) {
                return Err(CsvError::Twice { path, name: name.clone() });
            }
        }
        let rows: Vec<(usize, Vec<String>)> = records.collect();
        if let Some((line, cells)) = rows.iter().find(|(_, cells)| cells.len() != header.len()) {
            let (line, have, want) = (*line, cells.len(), header.len());
            return Err(CsvError::Ragged { path, line, have, want });
        }
        Ok(Self { path, header, rows })
    }

    /// Position of a column, or an error that lists them.
    pub(crate) fn column(&self, name: &str) -> Result<usize, CsvError> {
        self.find(name).ok_or_else(|| CsvError::NoColumn {
            path: self.path.clone(),
            name: name.to_owned(),
            columns: self.header.join(", "),
        })
    }

    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.header.iter().position(|column| column == name)
    }

    /// The number in one cell of a row of this table; `None` where nothing was measured.
    pub(crate) fn number(
        &self,
        (line, cells): &(usize, Vec<String>),
        column: usize,
    ) -> Result<Option<f64>, CsvError> {
        let text = cells[column].as_str();
        if text.is_empty() || text.eq_ignore_ascii_case("na") {
            return Ok(None);
        }
        let number = text.parse::<f64>().ok().filter(|value| value.is_finite());
        number.map(Some).ok_or_else(|| CsvError::NoNumber {
            path: self.path.clone(),
            line: *line,
            column: self.header[column].clone(),
            text: text.to_owned(),
        })
    }

    /// The refusal of a row that lacks what it needs.
    pub(crate) fn empty(&self, (line, _): &(usize, Vec<String>), column: usize) -> CsvError {
        let (path, column) = (self.path.clone(), self.header[column].clone());
        CsvError::Empty { path, line: *line, column }
    }

    /// The refusal of a covariate that is something else already.
    pub(crate) fn taken(&self, column: usize) -> CsvError {
        CsvError::Taken { path: self.path.clone(), name: self.header[column].clone() }
    }
}

/// A quote that a table cannot have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// It is not closed.
    Open { line: usize },
    /// It does not open its cell.
    Space { line: usize },
}

/// Records with the line that each starts on; lines that begin with `comment` are remarks.
pub(crate) fn records(
    text: &str,
    delimiter: u8,
    comment: Option<u8>,
) -> Result<Vec<(usize, Vec<String>)>, Wrong> {
    let mut reader = ::csv::ReaderBuilder::new()
        .delimiter(delimiter)
        .comment(comment)
        .has_headers(false)
        .flexible(true)
        .trim(::csv::Trim::All)
        .from_reader(text.as_bytes());
    let mut records: Vec<(usize, Vec<String>)> = Vec::new();
    let (mut counted, mut line) = (0, 1);
    // Of text in memory only what is not UTF-8 fails, and this is.
    for record in reader.records().filter_map(Result::ok) {
        let from = record.position().map_or(0, ::csv::Position::byte);
        let from = begin(text, usize::try_from(from).unwrap_or(text.len()), comment);
        line += text.get(counted..from).map_or(0, |passed| passed.matches('\n').count());
        counted = from;
        let cells: Vec<String> = record.iter().map(str::to_owned).collect();
        match quotes(text.get(from..).unwrap_or_default(), delimiter) {
            Quotes::Closed => {}
            Quotes::Open => return Err(Wrong::Open { line }),
            // A quote by itself is a cell as it stands.
            Quotes::Spaced if cells.iter().all(|cell| cell == "\"" || !cell.starts_with('"')) => {}
            Quotes::Spaced => return Err(Wrong::Space { line }),
        }
        records.push((line, cells));
    }
    Ok(records)
}

/// Quotes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quotes {
    /// Those that open a cell are closed.
    Closed,
    Open,
    /// One follows a space at the begin of its cell.
    Spaced,
}

/// Reads the quotes of the record that a text begins with. A quote opens a cell at its begin only; within a cell
/// it stands for itself, as in `5" disk`.
fn quotes(text: &str, delimiter: u8) -> Quotes {
    #[derive(Clone, Copy, PartialEq)]
    enum At {
        Begin,
        Indented,
        Plain,
        Quoted,
        /// Behind a quote within quotes: their end, or the first half of a quote that is meant.
        Second,
    }
    let (mut at, mut spaced) = (At::Begin, false);
    for byte in text.bytes() {
        at = match (at, byte) {
            (At::Begin | At::Second, b'"') => At::Quoted,
            (At::Quoted, b'"') => At::Second,
            (At::Quoted, _) => At::Quoted,
            (_, b'\n' | b'\r') => break,
            (_, byte) if byte == delimiter => At::Begin,
            (At::Begin | At::Indented, b' ' | b'\t') => At::Indented,
            (At::Indented, b'"') => {
                spaced = true;
                At::Plain
            }
            _ => At::Plain,
        };
    }
    match (at, spaced) {
        (At::Quoted, _) => Quotes::Open,
        (_, true) => Quotes::Spaced,
        (_, false) => Quotes::Closed,
    }
}

/// Where a record begins: the reader's position lies before remarks, empty lines, and half of the end
/// of a line.
fn begin(text: &str, mut at: usize, comment: Option<u8>) -> usize {
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let end = rest.find('\n').map_or(rest.len(), |end| end + 1);
        let remark = comment.is_some_and(|mark| rest.as_bytes().starts_with(&[mark]));
        if !(remark || rest[..end].trim().is_empty()) {
            break;
        }
        at += end;
    }
    at
}

/// Rows as they are written: cells in quotes where they must be.
pub(crate) fn written<Cell: AsRef<str>>(rows: impl IntoIterator<Item = Vec<Cell>>) -> String {
    let mut writer = ::csv::WriterBuilder::new().flexible(true).from_writer(Vec::new());
    for row in rows {
        let written = writer.write_record(row.iter().map(|cell| cell.as_ref().as_bytes()));
        written.expect("memory takes rows of any length");
    }
    let bytes = writer.into_inner().expect("memory takes all that is written");
    String::from_utf8(bytes).expect("made of texts")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Csv, CsvError> {
        Csv::parse(Path::new("t.csv"), text)
    }

    #[test]
    fn quotes_line_ends_and_blank_lines_are_read() {
        let csv = parse("\u{feff}a, b\r\n1,\"x, \"\"y\"\"\nz\"\r\n\r\n2,w").unwrap();
        assert_eq!(csv.header, ["a", "b"]);
        assert_eq!(csv.rows[0], (2, vec!["1".to_owned(), "x, \"y\"\nz".to_owned()]));
        assert_eq!(csv.rows[1].0, 5);
        assert_eq!(written([vec!["x, \"y\"", "z"]]), "\"x, \"\"y\"\"\",z\n");
    }

    /// Inches: a quote within a cell, or in a remark, opens nothing.
    #[test]
    fn quotes_that_open_no_cell_stand_for_themselves() {
        let csv =
            parse("disk,value\n5\" disk,3\n\"3\"\" disk\",4\nx \"y\",5\n\"\"\"z\"\"\",6").unwrap();
        let names: Vec<&str> = csv.rows.iter().map(|(_, cells)| cells[0].as_str()).collect();
        assert_eq!(names, ["5\" disk", "3\" disk", "x \"y\"", "\"z\""]);
        let rows = records("# a 5\" disk\na,b\n1,2\n# the \"other,\"one\n", b',', Some(b'#'));
        assert_eq!(rows.unwrap().len(), 2);
        // One that opens a cell and ends no more, behind one that stands for itself.
        let open = records("5\" disk,1\n\"x,2\n3", b',', None);
        assert_eq!(open, Err(Wrong::Open { line: 2 }));
        assert_eq!(records("a\n1, \"x", b',', None), Err(Wrong::Space { line: 2 }));
    }

    #[test]
    fn errors_name_the_file_the_line_and_the_column() {
        let text = |error: CsvError| error.to_string();
        assert_eq!(text(parse("a,b\n1").unwrap_err()), "t.csv, line 2: 1 cell, the header has 2");
        assert!(text(parse("").unwrap_err()).contains("no header"));
        assert!(text(parse("a,a\n").unwrap_err()).contains("twice"));
        assert!(text(parse("a\n\"x").unwrap_err()).contains("line 2: a quote"));
        assert!(text(parse("a,b\n1, \"x\"").unwrap_err()).contains("line 2: there is a space"));
        let csv = parse("a,b\n1,x").unwrap();
        assert_eq!(
            text(csv.number(&csv.rows[0], 1).unwrap_err()),
            "t.csv, line 2, column `b`: `x` is not a number"
        );
        assert!(text(csv.column("c").unwrap_err()).contains("it has a, b"));
    }
}
