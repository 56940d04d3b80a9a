//! All tables of a study: what was stored, and what the report makes of it.

use std::path::Path;

use kendall_report::document::{Section, Table};
use kendall_report::{Report, ReportError};
use kendall_store::{Column, Results, StoreError};

/// Version of what is exported: names, kinds and units of columns. Tables and columns may come without a new one.
pub(crate) const VERSION: u32 = 1;

/// Rows of a table that are in memory at once.
const ROWS_AT_ONCE: usize = 1 << 16;

/// The tables of a folder of results.
#[derive(Debug)]
pub struct Tables {
    results: Results,
    report: Report,
}

impl Tables {
    /// Reads and analyzes the results of a folder.
    pub fn open(folder: &Path) -> Result<Self, ReportError> {
        let report = kendall_report::analyze(folder)?;
        Ok(Self { results: Results::open(folder)?, report })
    }

    pub fn study(&self) -> &str {
        &self.report.name
    }

    /// Names of the tables: `report/NAME` as of the report's, `stored/NAME` as of `results.db`.
    pub fn names(&self) -> Result<Vec<String>, StoreError> {
        let of_report = self.of_report().map(|table| format!("report/{}", table.id));
        let stored = self.results.tables()?.into_iter().map(|name| format!("stored/{name}"));
        Ok(of_report.chain(stored).collect())
    }

    /// Reads one of [`Tables::names`] in pieces of a bounded number of rows, at least one, which may have no rows.
    ///
    /// # Errors
    /// When the results cannot be read, and what `each` refuses.
    pub fn read<E: From<StoreError>>(
        &self,
        name: &str,
        mut each: impl FnMut(Vec<Column>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.of_report().find(|table| name.strip_prefix("report/") == Some(&table.id)) {
            Some(table) => each(table.to_columns()),
            None => {
                let stored = name.strip_prefix("stored/").unwrap_or(name);
                self.results.read_table(stored, ROWS_AT_ONCE, each)
            }
        }
    }

    fn of_report(&self) -> impl Iterator<Item = &Table> {
        self.report.sections.iter().flat_map(Section::tables)
    }
}

/// The unit that the name of a column ends in.
pub fn unit(column: &str) -> Option<&'static str> {
    let name = column.strip_suffix("_low").or_else(|| column.strip_suffix("_high"));
    let name = name.unwrap_or(column);
    const UNITS: [(&str, &str); 7] = [
        ("bytes_per_s", "bytes/s"),
        ("_per_s", "1/s"),
        ("_unix_ns", "ns since 1970-01-01 UTC"),
        ("_ns", "ns"),
        ("_s", "s"),
        ("_bytes", "bytes"),
        ("_erlang", "erlang"),
    ];
    let ends = UNITS.iter().find(|(end, _)| name.ends_with(end)).map(|(_, unit)| *unit);
    ends.or_else(|| name.starts_with("bytes_").then_some("bytes"))
}

#[cfg(test)]
mod tests {
    use super::unit;

    #[test]
    fn names_of_columns_end_in_their_unit() {
        assert_eq!(unit("response_time_p99_s_low"), Some("s"));
        assert_eq!(unit("throughput_per_s"), Some("1/s"));
        assert_eq!(unit("bandwidth_bytes_per_s"), Some("bytes/s"));
        assert_eq!(unit("started_unix_ns"), Some("ns since 1970-01-01 UTC"));
        assert_eq!(unit("bytes_in"), Some("bytes"));
        assert_eq!(unit("queue_length"), None);
    }
}
