//! Tables and views as they are, column by column, for programs that read all of them.

use rusqlite::types::{FromSql as _, FromSqlResult, ValueRef};

use crate::{Results, StoreError};

/// Values of a column, all of one kind; `None` where there is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    Integer(Vec<Option<i64>>),
    Real(Vec<Option<f64>>),
    Text(Vec<Option<String>>),
    Bytes(Vec<Option<Vec<u8>>>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Ends in the unit, where there is one.
    pub name: String,
    pub values: Values,
}

/// Columns of views that SQLite knows no type of and that hold no whole numbers, beside those whose names end in a unit.
const REAL: [&str; 2] = ["queue_length", "workers_busy"];

impl Results {
    /// Names of all tables and views, in the order of the schema.
    pub fn tables(&self) -> Result<Vec<String>, StoreError> {
        let query = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite%'
                     ORDER BY rowid";
        let mut statement = self.connection.prepare_cached(query)?;
        let names = statement.query_map([], |row| row.get(0))?;
        Ok(names.collect::<Result<_, _>>()?)
    }

    /// Reads a table or view in pieces of at most `most` rows, each with all columns; at least one piece, which may be empty.
    pub fn read_table<E: From<StoreError>>(
        &self,
        table: &str,
        most: usize,
        mut each: impl FnMut(Vec<Column>) -> Result<(), E>,
    ) -> Result<(), E> {
        let empty = self.columns(table)?;
        let query = format!("SELECT * FROM {}", quoted(table));
        let mut statement = self.connection.prepare(&query).map_err(StoreError::from)?;
        let mut rows = statement.query([]).map_err(StoreError::from)?;
        let (mut piece, mut have) = (empty.clone(), 0);
        while let Some(row) = rows.next().map_err(StoreError::from)? {
            if have == most {
                each(std::mem::replace(&mut piece, empty.clone()))?;
                have = 0;
            }
            for (at, column) in piece.iter_mut().enumerate() {
                let value = row.get_ref(at).map_err(StoreError::from)?;
                column.push(value).map_err(|what| StoreError::Corrupt {
                    what: format!("{table}.{}: {what}", column.name),
                })?;
            }
            have += 1;
        }
        each(piece)
    }

    /// The columns of a table, without values.
    fn columns(&self, table: &str) -> Result<Vec<Column>, StoreError> {
        let query = "SELECT name, type FROM pragma_table_info(?1) ORDER BY cid";
        let mut statement = self.connection.prepare_cached(query)?;
        let columns = statement.query_map([table], |row| {
            let (name, declared) = (row.get::<_, String>(0)?, row.get::<_, String>(1)?);
            let values = values_of(&name, &declared);
            Ok(Column { name, values })
        })?;
        Ok(columns.collect::<Result<_, _>>()?)
    }
}

/// By the declared type; calculated columns of views have none that says enough.
fn values_of(name: &str, declared: &str) -> Values {
    let real = ["_s", "_low", "_high", "_rate"].iter().any(|end| name.ends_with(end));
    match declared {
        "INTEGER" => Values::Integer(Vec::new()),
        "REAL" => Values::Real(Vec::new()),
        "TEXT" => Values::Text(Vec::new()),
        "BLOB" if name != "levels" && !real => Values::Bytes(Vec::new()),
        _ if name == "levels" => Values::Text(Vec::new()),
        _ if real || REAL.contains(&name) => Values::Real(Vec::new()),
        _ => Values::Integer(Vec::new()),
    }
}

impl Column {
    fn push(&mut self, value: ValueRef<'_>) -> FromSqlResult<()> {
        match &mut self.values {
            Values::Integer(values) => values.push(Option::column_result(value)?),
            Values::Real(values) => values.push(Option::column_result(value)?),
            Values::Text(values) => values.push(Option::column_result(value)?),
            Values::Bytes(values) => values.push(Option::column_result(value)?),
        }
        Ok(())
    }
}

impl Values {
    pub fn len(&self) -> usize {
        match self {
            Self::Integer(values) => values.len(),
            Self::Real(values) => values.len(),
            Self::Text(values) => values.len(),
            Self::Bytes(values) => values.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds those of further rows.
    ///
    /// # Panics
    /// When they are of another kind.
    pub fn append(&mut self, more: Self) {
        match (self, more) {
            (Self::Integer(values), Self::Integer(more)) => values.extend(more),
            (Self::Real(values), Self::Real(more)) => values.extend(more),
            (Self::Text(values), Self::Text(more)) => values.extend(more),
            (Self::Bytes(values), Self::Bytes(more)) => values.extend(more),
            _ => panic!("all pieces of a column are of one kind"),
        }
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
