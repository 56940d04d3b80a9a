//! Comma-separated tables: read from users with a header, quoted cells and errors with their line,
//! and written as they are read.

use std::path::{Path, PathBuf};

use crate::exit::refused;

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

impl Csv {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let refuse = |error: std::io::Error| {
            refused(anyhow::Error::new(error).context(format!("{shown} cannot be read")))
        };
        Self::parse(path, &kendall_tier::read_text(path, LARGEST_BYTES).map_err(refuse)?)
    }

    fn parse(path: &Path, text: &str) -> anyhow::Result<Self> {
        let shown = path.display();
        let at = |line: usize, what: &str| refused(format!("{shown}, line {line}: {what}"));
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut records = records(text, b',', None)
            .map_err(|(line, what)| at(line, what))?
            .into_iter()
            .filter(|(_, cells)| cells.iter().any(|cell| !cell.is_empty()));
        let (_, header) = records.next().ok_or_else(|| {
            let form = "the first line names the columns, such as `workers,value`";
            refused(format!("{shown} has no header: {form}"))
        })?;
        for (index, name) in header.iter().enumerate() {
            if header[..index].contains(name) {
                let what = format!("{shown}: column `{name}` is named twice in the header");
                return Err(refused(what));
            }
        }
        let rows: Vec<(usize, Vec<String>)> = records.collect();
        if let Some((line, cells)) = rows.iter().find(|(_, cells)| cells.len() != header.len()) {
            let have = kendall_units::counted(cells.len(), "cell");
            return Err(at(*line, &format!("{have}, the header has {}", header.len())));
        }
        Ok(Self { path: path.to_owned(), header, rows })
    }

    /// Position of a column, or an error that lists them.
    pub(crate) fn column(&self, name: &str) -> anyhow::Result<usize> {
        let columns = || self.header.join(", ");
        self.find(name).ok_or_else(|| {
            refused(format!("{} has no column `{name}`; it has {}", self.path.display(), columns()))
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
    ) -> anyhow::Result<Option<f64>> {
        let text = cells[column].as_str();
        if text.is_empty() || text.eq_ignore_ascii_case("na") {
            return Ok(None);
        }
        let number = text.parse::<f64>().ok().filter(|value| value.is_finite());
        number.map(Some).ok_or_else(|| {
            let (path, column) = (self.path.display(), &self.header[column]);
            refused(format!("{path}, line {line}, column `{column}`: `{text}` is not a number"))
        })
    }

    /// The refusal of a row that lacks what it needs.
    pub(crate) fn empty(&self, (line, _): &(usize, Vec<String>), column: usize) -> anyhow::Error {
        refused(format!(
            "{}, line {line}: column `{}` is empty; each run that has a response needs a covariate: \
             leave out --covariate, or the response of this run",
            self.path.display(),
            self.header[column]
        ))
    }

    /// The refusal of a covariate that is something else already.
    pub(crate) fn taken(&self, column: usize) -> anyhow::Error {
        refused(format!(
            "{}: column `{}` is the response, a factor or the repetition, and no covariate beside",
            self.path.display(),
            self.header[column]
        ))
    }
}

/// What is wrong with a quote, and in which line.
type WrongQuote = (usize, &'static str);

const OPEN: &str = "a quote is opened and not closed";
const SPACED: &str = "there is a space before the quote that opens a cell";

/// Records with the line that each starts on; lines that begin with `comment` are remarks.
pub(crate) fn records(
    text: &str,
    delimiter: u8,
    comment: Option<u8>,
) -> Result<Vec<(usize, Vec<String>)>, WrongQuote> {
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
            Quotes::Open => return Err((line, OPEN)),
            // A quote by itself is a cell as it stands.
            Quotes::Spaced if cells.iter().all(|cell| cell == "\"" || !cell.starts_with('"')) => {}
            Quotes::Spaced => return Err((line, SPACED)),
        }
        records.push((line, cells));
    }
    Ok(records)
}

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

    fn parse(text: &str) -> anyhow::Result<Csv> {
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
        assert_eq!(open, Err((2, OPEN)));
        assert_eq!(records("a\n1, \"x", b',', None), Err((2, SPACED)));
    }

    #[test]
    fn errors_name_the_file_the_line_and_the_column() {
        let text = |error: anyhow::Error| error.to_string();
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
