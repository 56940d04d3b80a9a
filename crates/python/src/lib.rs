//! The part of the Python package `kendall` that is no Python: calls of the program's commands, and tables of results.
//! The package is in `python/kendall`, described in docs/python.md.

use pyo3::prelude::*;

/// Calculates without the interpreter's lock, so that other threads of Python go on.
#[pymodule(gil_used = false)]
mod _native {
    use std::path::PathBuf;
    use std::sync::{Mutex, PoisonError};

    use kendall_store::{Column, StoreError, Values};
    use pyo3::exceptions::{PyKeyError, PyRuntimeError};
    use pyo3::prelude::*;

    /// Kind of the columns of a table: name, unit, values.
    type Columns = Vec<(String, Option<&'static str>, Py<PyAny>)>;

    /// What a command prints, and with which exit code the program would end; instead of it the error, and True.
    #[pyfunction]
    fn calculate(py: Python<'_>, arguments: Vec<String>) -> (String, u8, bool) {
        match py.detach(|| kendall::calculate(&arguments)) {
            Ok((printed, holds)) => (printed, if holds { 0 } else { 4 }, false),
            Err(refusal) => (refusal.message, refusal.exit_code, true),
        }
    }

    /// The tables of a folder of results.
    #[pyclass(frozen)]
    struct Tables(Mutex<kendall::Tables>);

    #[pymethods]
    impl Tables {
        #[new]
        fn new(py: Python<'_>, folder: PathBuf) -> PyResult<Self> {
            let tables = py.detach(|| kendall::Tables::open(&folder));
            tables.map(|tables| Self(Mutex::new(tables))).map_err(refused)
        }

        fn names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
            py.detach(|| self.locked().names()).map_err(refused)
        }

        /// All rows of a table.
        fn read(&self, py: Python<'_>, name: &str) -> PyResult<Columns> {
            let all = py.detach(|| {
                let tables = self.locked();
                if !tables.names()?.iter().any(|known| known == name) {
                    return Ok(None);
                }
                let mut all: Vec<Column> = Vec::new();
                tables.read(name, |piece| -> Result<(), StoreError> {
                    if all.is_empty() {
                        all = piece;
                    } else {
                        all.iter_mut()
                            .zip(piece)
                            .for_each(|(all, more)| all.values.append(more.values));
                    }
                    Ok(())
                })?;
                Ok(Some(all))
            });
            let all = all.map_err(|error: StoreError| refused(error))?;
            let all = all.ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
            let column = |column: Column| {
                let unit = kendall::unit(&column.name);
                Ok((column.name, unit, values(py, column.values)?))
            };
            all.into_iter().map(column).collect()
        }
    }

    impl Tables {
        /// Reading leaves nothing half done, so a panic in another thread is no reason to refuse.
        fn locked(&self) -> std::sync::MutexGuard<'_, kendall::Tables> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    fn values(py: Python<'_>, values: Values) -> PyResult<Py<PyAny>> {
        let list = match values {
            Values::Integer(values) => values.into_pyobject(py)?,
            Values::Real(values) => values.into_pyobject(py)?,
            Values::Text(values) => values.into_pyobject(py)?,
            Values::Bytes(values) => values.into_pyobject(py)?,
        };
        Ok(list.into_any().unbind())
    }

    fn refused(error: impl std::error::Error + 'static) -> PyErr {
        PyRuntimeError::new_err(kendall_units::chain(&error))
    }
}
