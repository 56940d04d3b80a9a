//! Which columns hold the fields of each row: declared once, for writing and for reading.

use std::collections::BTreeMap;

use kendall_protocols::load_result::{Drawn, GapCheck, GeneratorThread, Stalls};
use kendall_protocols::snapshot::CountedTime;
use kendall_protocols::topology::{
    Edge, EdgeLink, End, Part, Pool, PoolKind, Role, TierId, TierNode,
};
use kendall_protocols::waiting::Waiting;
use kendall_stats::estimate::Caveat;
use kendall_stats::histogram::Histogram;
use rusqlite::types::{FromSql, Value, ValueRef};
use rusqlite::{Connection, Params, Row, ToSql, params_from_iter};

use crate::StoreError;
use crate::rows::{
    Extent, FactorLevel, Generator, HostSample, Level, MeasuredWindow, OperationCounts,
    OperationPeriod, Process, ProcessSample, Purpose, Run, RunId, SearchFound, SearchLine,
    SpeedSample, Status, StoredPrediction, Study, SummaryRow, ThreadSample, Tier, TierBackend,
    TierPeriod,
};

/// A value of one column, or of several.
pub(crate) trait Stored: Sized {
    /// The columns that hold it as the field `name` of a row.
    fn columns(name: &'static str) -> Vec<&'static str> {
        vec![name]
    }

    fn write(&self, name: &'static str, cells: &mut Vec<Value>) -> Result<(), StoreError>;

    fn read(cells: &mut Cells<'_>) -> Result<Self, StoreError>;
}

/// The columns of a row that were not read yet.
pub(crate) struct Cells<'a> {
    row: &'a Row<'a>,
    next: usize,
}

impl<'a> Cells<'a> {
    fn take<T: FromSql>(&mut self) -> Result<T, StoreError> {
        self.next += 1;
        Ok(self.row.get(self.next - 1)?)
    }

    fn raw(&mut self) -> Result<ValueRef<'a>, StoreError> {
        self.next += 1;
        Ok(self.row.get_ref(self.next - 1)?)
    }

    /// Of the column that was read last.
    fn corrupt(&self, what: impl std::fmt::Display) -> StoreError {
        let column = self.row.as_ref().column_name(self.next - 1).unwrap_or("?");
        StoreError::Corrupt { what: format!("column {column}: {what}") }
    }
}

/// Inserts a row; `keys` are columns besides those of its fields.
pub(crate) fn insert<R: Stored>(
    connection: &Connection,
    table: &'static str,
    keys: &[(&'static str, &dyn ToSql)],
    row: &R,
) -> Result<(), StoreError> {
    let mut columns: Vec<&str> = keys.iter().map(|(name, _)| *name).collect();
    columns.extend(R::columns(table));
    let marks = vec!["?"; columns.len()].join(", ");
    let query = format!("INSERT INTO {table} ({}) VALUES ({marks})", columns.join(", "));
    let mut cells = Vec::new();
    row.write(table, &mut cells)?;
    let cells = cells.iter().map(|cell| cell as &dyn ToSql);
    let all = keys.iter().map(|(_, value)| *value).chain(cells);
    connection.prepare_cached(&query)?.execute(params_from_iter(all))?;
    Ok(())
}

/// Reads rows; `from` is what follows FROM.
pub(crate) fn select<R: Stored>(
    connection: &Connection,
    from: &str,
    values: impl Params,
) -> Result<Vec<R>, StoreError> {
    let query = format!("SELECT {} FROM {from}", R::columns("").join(", "));
    let mut statement = connection.prepare_cached(&query)?;
    let mut found = statement.query(values)?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        rows.push(R::read(&mut Cells { row, next: 0 })?);
    }
    Ok(rows)
}

/// A count as SQLite's signed 64 bits.
pub(crate) fn int(what: &'static str, value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| StoreError::TooLarge { what, value, limit: i64::MAX })
}

impl Stored for u64 {
    fn write(&self, name: &'static str, cells: &mut Vec<Value>) -> Result<(), StoreError> {
        cells.push(int(name, *self)?.into());
        Ok(())
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self, StoreError> {
        let stored: Option<i64> = cells.take()?;
        let stored = stored.ok_or_else(|| cells.corrupt("empty"))?;
        Self::try_from(stored).map_err(|_| cells.corrupt("negative"))
    }
}

impl Stored for Histogram {
    fn write(&self, _: &'static str, cells: &mut Vec<Value>) -> Result<(), StoreError> {
        cells.push(self.to_bytes().into());
        Ok(())
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self, StoreError> {
        let bytes = cells.raw()?.as_blob().map_err(|error| cells.corrupt(error))?;
        Self::from_bytes(bytes).map_err(|error| cells.corrupt(error))
    }
}

/// NULL in its first column where it is `None`, and then in all.
impl<T: Stored> Stored for Option<T> {
    fn columns(name: &'static str) -> Vec<&'static str> {
        T::columns(name)
    }

    fn write(&self, name: &'static str, cells: &mut Vec<Value>) -> Result<(), StoreError> {
        match self {
            Some(value) => value.write(name, cells),
            None => {
                cells.extend(T::columns(name).iter().map(|_| Value::Null));
                Ok(())
            }
        }
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self, StoreError> {
        if cells.row.get_ref(cells.next)? == ValueRef::Null {
            cells.next += T::columns("").len();
            return Ok(None);
        }
        T::read(cells).map(Some)
    }
}

/// Two parts of one row.
impl<A: Stored, B: Stored> Stored for (A, B) {
    fn columns(name: &'static str) -> Vec<&'static str> {
        let mut columns = A::columns(name);
        columns.extend(B::columns(name));
        columns
    }

    fn write(&self, name: &'static str, cells: &mut Vec<Value>) -> Result<(), StoreError> {
        self.0.write(name, cells)?;
        self.1.write(name, cells)
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self, StoreError> {
        Ok((A::read(cells)?, B::read(cells)?))
    }
}

/// Types that are another one in the file.
macro_rules! stored_as {
    ($($type:ty: $as:ty, |$value:ident| $to:expr, |$stored:ident| $from:expr;)+) => {$(
        impl Stored for $type {
            fn write(&self, _: &'static str, cells: &mut Vec<Value>) -> Result<(), StoreError> {
                let $value = self;
                cells.push(Value::from($to));
                Ok(())
            }

            fn read(cells: &mut Cells<'_>) -> Result<Self, StoreError> {
                let $stored: $as = cells.take()?;
                Ok($from)
            }
        }
    )+};
}

stored_as! {
    u32: u32, |value| *value, |stored| stored;
    f64: f64, |value| *value, |stored| stored;
    String: String, |value| value.clone(), |stored| stored;
    RunId: i64, |value| value.0, |stored| RunId(stored);
    TierId: String, |value| value.as_str().to_owned(), |stored| TierId::stored(stored);
}

/// Types that are one of several words.
macro_rules! stored_as_word {
    ($($type:ty: $all:expr;)+) => {$(
        impl Stored for $type {
            fn write(&self, _: &'static str, cells: &mut Vec<Value>) -> Result<(), StoreError> {
                cells.push(self.as_str().to_owned().into());
                Ok(())
            }

            fn read(cells: &mut Cells<'_>) -> Result<Self, StoreError> {
                let word: String = cells.take()?;
                let known = $all.iter().copied().find(|known| known.as_str() == word);
                known.ok_or_else(|| cells.corrupt(format_args!("`{word}`")))
            }
        }
    )+};
}

stored_as_word! {
    Extent: Extent::ALL;
    Role: Role::ALL;
    Status: [Status::Done, Status::Failed, Status::Rejected];
    Purpose: [Purpose::Design, Purpose::Verification];
}

macro_rules! stored_as_json {
    ($($type:ty),+ $(,)?) => {$(
        impl Stored for $type {
            fn write(&self, _: &'static str, cells: &mut Vec<Value>) -> Result<(), StoreError> {
                let text = serde_json::to_string(self)
                    .map_err(|error| StoreError::Corrupt { what: error.to_string() })?;
                cells.push(text.into());
                Ok(())
            }

            fn read(cells: &mut Cells<'_>) -> Result<Self, StoreError> {
                let text = cells.raw()?.as_str().map_err(|error| cells.corrupt(error))?;
                serde_json::from_str(text).map_err(|error| cells.corrupt(error))
            }
        }
    )+};
}

stored_as_json!(
    serde_json::Value,
    GapCheck,
    SearchFound,
    Stalls,
    Waiting,
    Vec<Caveat>,
    Vec<CountedTime>,
    Vec<FactorLevel>,
    Vec<String>,
    Vec<(String, String)>,
    BTreeMap<String, Drawn>,
    BTreeMap<String, u64>,
    BTreeMap<u16, u64>,
);

/// The fields of a type that are columns, by their names unless another is given; then those that are none.
macro_rules! row {
    ($row:ident: $($field:ident $(= $column:literal)?),+ $(; $($beside:ident),+)?) => {
        impl Stored for $row {
            fn columns(_: &'static str) -> Vec<&'static str> {
                let columns = [$(
                    columns_of(|row: &Self| &row.$field, name!($field $(= $column)?)),
                )+];
                columns.concat()
            }

            fn write(&self, _: &'static str, cells: &mut Vec<Value>) -> Result<(), StoreError> {
                $(self.$field.write(name!($field $(= $column)?), cells)?;)+
                Ok(())
            }

            fn read(cells: &mut Cells<'_>) -> Result<Self, StoreError> {
                Ok(Self {
                    $($field: Stored::read(cells)?,)+
                    $($($beside: Default::default(),)+)?
                })
            }
        }
    };
}

/// Requests of one type in a period of a tier.
#[derive(Debug)]
pub(crate) struct RequestRow {
    pub(crate) request: String,
    pub(crate) arrivals: u64,
    pub(crate) completions: u64,
}

/// Their time in one stage.
#[derive(Debug)]
pub(crate) struct StageRow {
    pub(crate) request: String,
    pub(crate) stage: String,
    pub(crate) histogram: Histogram,
}

/// What a stored run has besides its own columns.
#[derive(Debug)]
pub(crate) struct RunKey {
    pub(crate) id: RunId,
    pub(crate) environment: serde_json::Value,
}

macro_rules! name {
    ($field:ident = $column:literal) => {
        $column
    };
    ($field:ident) => {
        stringify!($field).trim_start_matches("r#")
    };
}

fn columns_of<R, T: Stored>(_: fn(&R) -> &T, name: &'static str) -> Vec<&'static str> {
    T::columns(name)
}

row!(Study: name, title, file_name, file, fingerprint, seed, design, confidence, planned_runs,
    created_unix_ns);
row!(SearchLine: line, factor, levels, runs, grid, sweep_runs, found, without);
row!(SummaryRow: configuration, variable, value, low, high, why);
row!(StoredPrediction: made_unix_ns, asked, answer, run, repeated, verdict);
row!(MeasuredWindow: from_ns = "measured_from_ns", to_ns = "measured_to_ns", rule = "cut_rule");
row!(Run: configuration, repetition, position, attempt, status, reasons, caveats, settings,
    started_unix_ns, ended_unix_ns, started_ns, ended_ns, measured, purpose, speed_unit_ns,
    one_client_of; id, factors, environment);
row!(RunKey: id = "runs.id", environment = "description");
row!(FactorLevel: factor, level, text, number);
row!(TierNode: tier, kind, instances; pools);
row!(Pool: of, servers);
row!(Edge: from = "from_tier", to = "to_tier", link);
row!(EdgeLink: name = "link", delay_ns, bandwidth_bytes_per_s, bandwidth_back_bytes_per_s);
row!(Generator: generator, host, command, protocol, targets, r#loop, clients, started_ns, ended_ns,
    think_time_mean_ns, arrival_rate_per_s, lateness, gaps, calls, seed, unsent, reconnects,
    connection_wait, gap_check, statuses, stalls, drawn; threads, operations);
row!(GeneratorThread: cpu_user_ns, cpu_system_ns, wall_ns, run_queue_wait_ns, spun_ns);
row!(OperationPeriod: extent, from_ns, to_ns, operation, counts);
row!(OperationCounts: sent, completed, hits, misses, errors, bytes_out, bytes_in, response_time);
row!(Tier: tier, instance, kind, host, address, pid, command, role; periods);
row!(TierPeriod: extent, from_ns, to_ns, workers, queue_length, workers_busy, connections, bytes_in,
    bytes_out, cpu_user_ns, cpu_system_ns, outcomes, limits_hit, held_time, spun_ns, counted;
    requests, backends);
row!(RequestRow: request, arrivals, completions);
row!(StageRow: request, stage, histogram);
row!(TierBackend: address, requests, keys, errors, backend_time);
row!(Process: part, instance, host, pid; samples, threads);
row!(Part: role, name);
row!(ProcessSample: at_ns, cpu_user_ns, cpu_system_ns, run_queue_wait_ns, cpu_pressure_ns,
    voluntary_switches, involuntary_switches, resident_bytes, threads, waiting);
row!(ThreadSample: name = "thread", at_ns, threads, cpu_ns, run_queue_wait_ns);
row!(HostSample: host, at_ns, cores, cpu_user_ns, cpu_system_ns, cpu_idle_ns, cpu_steal_ns,
    context_switches, network_in_bytes, network_out_bytes);
row!(SpeedSample: host, core, at_ns, unit_ns);

impl Stored for Level {
    fn columns(name: &'static str) -> Vec<&'static str> {
        match name {
            "queue_length" => vec!["queue_length_mean", "queue_length_maximum"],
            "workers_busy" => vec!["workers_busy_mean", "workers_busy_maximum"],
            _ => vec!["connections_mean", "connections_maximum"],
        }
    }

    fn write(&self, name: &'static str, cells: &mut Vec<Value>) -> Result<(), StoreError> {
        self.mean.write(name, cells)?;
        self.maximum.write(name, cells)
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self, StoreError> {
        Ok(Self { mean: Stored::read(cells)?, maximum: Stored::read(cells)? })
    }
}

impl Stored for End {
    fn write(&self, name: &'static str, cells: &mut Vec<Value>) -> Result<(), StoreError> {
        let tier = match self {
            Self::Clients => None,
            Self::Tier(tier) => Some(tier.clone()),
        };
        tier.write(name, cells)
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self, StoreError> {
        Ok(Option::read(cells)?.map_or(Self::Clients, Self::Tier))
    }
}

impl Stored for PoolKind {
    fn columns(_: &'static str) -> Vec<&'static str> {
        vec!["pool", "to_tier"]
    }

    fn write(&self, name: &'static str, cells: &mut Vec<Value>) -> Result<(), StoreError> {
        let to = match self {
            Self::Connections(to) => Some(to.clone()),
            Self::Workers | Self::Threads => None,
        };
        (self.as_str().to_owned(), to).write(name, cells)
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self, StoreError> {
        let (pool, to): (String, Option<TierId>) = Stored::read(cells)?;
        let known = [Self::Workers, Self::Threads].into_iter().chain(to.map(Self::Connections));
        let found = known.into_iter().find(|kind| kind.as_str() == pool);
        found.ok_or_else(|| StoreError::Corrupt { what: format!("column pool: `{pool}`") })
    }
}
