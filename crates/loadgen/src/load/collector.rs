//! Puts the windows of all threads together.

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;

use kendall_protocols::snapshot::EncodedHistogram;
use kendall_stats::histogram::Histogram;

use super::{LoadProgress, Operations};
use crate::clock::SECOND_NS;
use crate::driver::ErrorKind;
use crate::recorder::{DRAINED, OperationRecord, WindowRecord};
use kendall_protocols::load_result::{Operation, Step, Window};

/// Collects windows; each is encoded as soon as every thread has delivered it, so that a long
/// load does not fill the memory with histograms.
pub(super) struct Collector {
    of: Operations,
    threads: usize,
    started_ns: u64,
    returns: Vec<SyncSender<Box<WindowRecord>>>,
    /// Windows that some threads have delivered: by index, how many, and their sum.
    partial: BTreeMap<usize, (usize, Vec<OperationRecord>)>,
    totals: Vec<OperationRecord>,
    /// What was answered after the end.
    drained: Vec<OperationRecord>,
    windows: Vec<Window>,
}

/// What was counted, put together.
pub(super) struct Collected {
    /// The last of them ends with the load.
    pub(super) windows: Vec<Window>,
    /// What was answered after the end; empty where nothing was.
    pub(super) drained: BTreeMap<String, Operation>,
    pub(super) operations: BTreeMap<String, Operation>,
    pub(super) steps: Vec<Step>,
}

impl Collector {
    pub(super) fn new(
        of: Operations,
        threads: usize,
        started_ns: u64,
        returns: Vec<SyncSender<Box<WindowRecord>>>,
    ) -> Self {
        let (totals, drained) = (empty(of.count()), empty(of.count()));
        let (partial, windows) = (BTreeMap::new(), Vec::new());
        Self { of, threads, started_ns, returns, partial, totals, drained, windows }
    }

    /// Takes a window of one thread; the progress when it was the last to deliver it.
    pub(super) fn take(&mut self, mut window: Box<WindowRecord>) -> Option<LoadProgress> {
        let count = self.of.count();
        let entry = self.partial.entry(window.index).or_insert_with(|| (0, empty(count)));
        entry.0 += 1;
        let delivered = entry.0;
        add(&mut entry.1, &window.operations);
        let index = window.index;
        window.clear();
        // A thread that has ended takes nothing back.
        self.returns[window.thread].try_send(window).unwrap_or_default();
        if delivered < self.threads || index == DRAINED {
            return None;
        }
        let (_, records) = self.partial.remove(&index)?;
        Some(self.close(index, &records))
    }

    pub(super) fn finish(mut self, ended_ns: u64) -> Collected {
        for (index, (_, records)) in std::mem::take(&mut self.partial) {
            if index == DRAINED {
                add(&mut self.drained, &records);
                add(&mut self.totals, &records);
            } else {
                self.close(index, &records);
            }
        }
        if let Some(last) = self.windows.last_mut() {
            last.to_ns = ended_ns.clamp(last.from_ns, last.to_ns);
        }
        let any = self.drained.iter().any(OperationRecord::has_any);
        Collected {
            drained: if any { self.operations(&self.drained) } else { BTreeMap::new() },
            operations: self.operations(&self.totals),
            steps: self.steps(&self.totals),
            windows: self.windows,
        }
    }

    fn close(&mut self, index: usize, records: &[OperationRecord]) -> LoadProgress {
        add(&mut self.totals, records);
        let from_ns = self.started_ns + index as u64 * SECOND_NS;
        let (operations, steps) = (self.operations(records), self.steps(records));
        self.windows.push(Window { from_ns, to_ns: from_ns + SECOND_NS, operations, steps });
        let records = &records[..self.of.names.len()];
        let totals = &self.totals[..records.len()];
        let mut response_time = Histogram::new();
        for record in records {
            response_time.add(&record.response_time);
        }
        LoadProgress {
            elapsed_s: index as u64 + 1,
            completed: records.iter().map(|record| record.completed).sum(),
            errors: records.iter().flat_map(|record| &record.errors).sum(),
            response_time_mean_ns: response_time.mean(),
            response_time_p99_ns: response_time.quantile(0.99),
            response_time: Histogram::merged(totals.iter().map(|total| &total.response_time)),
        }
    }

    fn operations(&self, records: &[OperationRecord]) -> BTreeMap<String, Operation> {
        self.of.names.iter().cloned().zip(records.iter().map(operation)).collect()
    }

    fn steps(&self, records: &[OperationRecord]) -> Vec<Step> {
        let records = records[self.of.names.len()..].iter().map(operation);
        let step = |((of, name), operation): (&(String, String), _)| Step {
            of: of.clone(),
            name: name.clone(),
            operation,
        };
        self.of.steps.iter().zip(records).map(step).collect()
    }
}

fn add(sums: &mut [OperationRecord], more: &[OperationRecord]) {
    for (sum, more) in sums.iter_mut().zip(more) {
        sum.add(more);
    }
}

fn empty(operations: usize) -> Vec<OperationRecord> {
    (0..operations).map(|_| OperationRecord::empty()).collect()
}

fn operation(record: &OperationRecord) -> Operation {
    let errors = ErrorKind::ALL
        .iter()
        .zip(record.errors)
        .filter(|(_, count)| *count > 0)
        .map(|(kind, count)| (kind.name().to_owned(), count))
        .collect();
    Operation {
        sent: record.sent,
        completed: record.completed,
        hits: record.hits,
        misses: record.misses,
        errors,
        bytes_out: record.bytes_out,
        bytes_in: record.bytes_in,
        response_time: EncodedHistogram(record.response_time.encode()),
        response_times_ns: Vec::new(),
    }
}
