//! What was seen in a run, as rows.

use std::collections::{BTreeMap, BTreeSet};

use kendall_protocols::load_result::{JOB_LOOP, LoadResult, Operation};
use kendall_protocols::snapshot::{CountedTime, EncodedHistogram, LevelSnapshot, TierSnapshot};
use kendall_stats::estimate::Caveat;
use kendall_stats::histogram::{DecodeError, Histogram};
use kendall_store::{
    Extent, Generator, Level, MeasuredWindow, OperationCounts, OperationPeriod, Tier, TierBackend,
    TierPeriod, TierRequests,
};
use kendall_units::exact_f64;

use crate::measured_window::{decode, inside, times};
use crate::observed::{ObservedGenerator, ObservedMember};

/// Numbers that do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordError {
    #[error(transparent)]
    Histogram(#[from] DecodeError),
    #[error("two snapshots of {tier} contradict each other: {what} went back")]
    Backwards { tier: String, what: String },
}

/// One generator's rows. `window` is absent where the run has no measured part.
pub(crate) fn generator(
    number: u32,
    observed: &ObservedGenerator,
    window: Option<&MeasuredWindow>,
) -> Result<Generator, RecordError> {
    let result = &observed.result;
    let mut operations = Vec::new();
    for window in &result.windows {
        for (name, operation) in &window.operations {
            let counts = counts(operation)?;
            operations.push(row(Extent::Second, (window.from_ns, window.to_ns), name, counts));
        }
    }
    if let Some(window) = window {
        operations.extend(measured(result, window)?);
    }
    for (name, operation) in &result.drained {
        let ends = (result.ended_ns, result.ended_ns);
        operations.push(row(Extent::Drained, ends, name, counts(operation)?));
    }
    for (name, operation) in &result.operations {
        let ends = (result.started_ns, result.ended_ns);
        operations.push(row(Extent::Whole, ends, name, whole(operation)?));
    }
    Ok(Generator {
        generator: number,
        host: observed.host.clone(),
        command: observed.command.clone(),
        protocol: result.protocol.clone(),
        targets: result.targets.clone(),
        r#loop: result.r#loop.clone(),
        clients: result.clients,
        started_ns: result.started_ns,
        ended_ns: result.ended_ns,
        think_time_mean_ns: result.think_time_mean_ns,
        arrival_rate_per_s: result.arrival_rate_per_s,
        lateness: decode(&result.lateness)?,
        gaps: decode(&result.gaps)?,
        calls: result.calls.clone(),
        seed: result.seed,
        connection_wait: decode(&result.connection_wait)?,
        gap_check: result.gap_check.clone(),
        unsent: result.unsent,
        reconnects: result.reconnects,
        statuses: result.statuses.clone(),
        stalls: result.stalls,
        drawn: result.drawn.clone(),
        threads: result.threads.clone(),
        operations,
    })
}

fn measured(
    result: &LoadResult,
    window: &MeasuredWindow,
) -> Result<Vec<OperationPeriod>, RecordError> {
    if result.r#loop == JOB_LOOP {
        // The whole of it counts, over the time of the whole job.
        let ends = (window.from_ns, window.to_ns);
        let all = result.operations.iter();
        return all.map(|(name, of)| Ok(row(Extent::Measured, ends, name, whole(of)?))).collect();
    }
    let mut sums: BTreeMap<(Extent, String), OperationCounts> = BTreeMap::new();
    let mut ends = (u64::MAX, 0);
    for inside in inside(result, (window.from_ns, window.to_ns)) {
        ends = (ends.0.min(inside.from_ns), ends.1.max(inside.to_ns));
        let operations = inside.operations.iter();
        let operations = operations.map(|(name, of)| (Extent::Measured, name.clone(), of));
        let steps = inside.steps.iter().enumerate().map(|(place, step)| {
            // Rows are ordered by name, and so are the requests of a sequence.
            let first = inside.steps.iter().position(|one| one.of == step.of).unwrap_or(place);
            let name = format!("{}: {:02} {}", step.of, place - first + 1, step.name);
            (Extent::Steps, name, &step.operation)
        });
        for (extent, name, operation) in operations.chain(steps) {
            sums.entry((extent, name)).or_default().add(&counts(operation)?);
        }
    }
    let rows = sums.into_iter();
    Ok(rows.map(|((extent, name), sum)| row(extent, ends, &name, sum)).collect())
}

fn row(extent: Extent, ends: (u64, u64), name: &str, counts: OperationCounts) -> OperationPeriod {
    OperationPeriod { extent, from_ns: ends.0, to_ns: ends.1, operation: name.to_owned(), counts }
}

fn counts(operation: &Operation) -> Result<OperationCounts, RecordError> {
    Ok(OperationCounts {
        sent: operation.sent,
        completed: operation.completed,
        hits: operation.hits,
        misses: operation.misses,
        errors: operation.errors.clone(),
        bytes_out: operation.bytes_out,
        bytes_in: operation.bytes_in,
        response_time: times(operation)?,
    })
}

/// The counts of a whole load, in which nothing is answered that was not sent: not every program
/// counts what it sends.
fn whole(operation: &Operation) -> Result<OperationCounts, RecordError> {
    let counts = counts(operation)?;
    let failed: u64 = counts.errors.values().sum();
    Ok(OperationCounts { sent: counts.sent.max(counts.completed + failed), ..counts })
}

/// One member's rows; their caveats are added to `caveats`.
pub(crate) fn tier(
    member: &ObservedMember,
    window: Option<&MeasuredWindow>,
    caveats: &mut Vec<Caveat>,
) -> Tier {
    let mut periods = Vec::new();
    let mut doubt = |what: String| {
        let (tier, instance) = (member.part.name.clone(), member.number);
        let caveat = Caveat::TierContradicts { tier, instance, what };
        if !caveats.contains(&caveat) {
            caveats.push(caveat);
        }
    };
    if let Some(error) = &member.unreadable {
        doubt(error.clone());
    }
    if let Some(window) = window.filter(|_| member.metrics.is_some()) {
        let ends = member.snapshots.first().zip(member.snapshots.last());
        let seen_ns = ends.map_or(0, |(first, last)| {
            last.at_ns.min(window.to_ns).saturating_sub(first.at_ns.max(window.from_ns))
        });
        if seen_ns < window.to_ns - window.from_ns {
            doubt(format!(
                "its metrics page answered in {:.1} of the {:.1} s that were measured, so its figures are \
                 incomplete; a quieter machine would tell",
                kendall_units::Seconds::from_nanos(seen_ns).get(),
                window.length_s()
            ));
        }
    }
    let mut add = |pair: Option<(&TierSnapshot, &TierSnapshot)>, extent| {
        let Some((from, to)) = pair.filter(|(from, to)| from.at_ns < to.at_ns) else { return };
        match period(from, to, extent) {
            Ok(period) => periods.push(with_snapshots(period, &member.snapshots)),
            Err(error) => doubt(error.to_string()),
        }
    };
    for pair in member.snapshots.windows(2) {
        add(Some((&pair[0], &pair[1])), Extent::Second);
    }
    if let Some(window) = window {
        let near = |at: u64| member.snapshots.iter().min_by_key(|s| s.at_ns.abs_diff(at));
        add(near(window.from_ns).zip(near(window.to_ns)), Extent::Measured);
    }
    add(member.snapshots.first().zip(member.snapshots.last()), Extent::Whole);
    Tier {
        tier: member.part.name.clone(),
        role: member.part.role,
        instance: member.number,
        kind: member.kind.clone(),
        host: member.host.clone(),
        address: member.address.clone(),
        pid: member.pid,
        command: member.command.clone(),
        periods,
    }
}

/// Adds what takes all snapshots of the period: the highest of the recent maxima, and what was counted.
fn with_snapshots(mut period: TierPeriod, snapshots: &[TierSnapshot]) -> TierPeriod {
    if period.extent != Extent::Second {
        let ends = period.from_ns..=period.to_ns;
        let within: Vec<_> = snapshots.iter().filter(|s| ends.contains(&s.at_ns)).collect();
        period.counted = counted(&within);
    }
    let inside =
        || snapshots.iter().filter(|s| period.from_ns < s.at_ns && s.at_ns <= period.to_ns);
    let maximum = |level: fn(&TierSnapshot) -> &LevelSnapshot| {
        inside().map(|snapshot| level(snapshot).recent_maximum).max().unwrap_or(0)
    };
    let (queue, busy, connections) = (
        maximum(|snapshot| &snapshot.queue_length),
        maximum(|snapshot| &snapshot.workers_busy),
        maximum(|snapshot| &snapshot.connections),
    );
    period.queue_length.maximum = queue;
    period.workers_busy.maximum = busy;
    period.connections.maximum = connections;
    period
}

/// What a tier did between two snapshots.
pub(crate) fn period(
    from: &TierSnapshot,
    to: &TierSnapshot,
    extent: Extent,
) -> Result<TierPeriod, RecordError> {
    let difference = Difference { tier: &to.tier };
    let length = to.at_ns.saturating_sub(from.at_ns);
    let level = |name: &str, a: &LevelSnapshot, b: &LevelSnapshot| {
        let integral = difference.count(name, a.integral_ns, b.integral_ns)?;
        let mean = kendall_units::ratio(integral, length).unwrap_or(0.0);
        Ok::<_, RecordError>(Level { mean, maximum: b.recent_maximum })
    };
    Ok(TierPeriod {
        extent,
        from_ns: from.at_ns,
        to_ns: to.at_ns,
        workers: to.workers,
        queue_length: level("queue_length", &from.queue_length, &to.queue_length)?,
        workers_busy: level("workers_busy", &from.workers_busy, &to.workers_busy)?,
        held_time: difference.histogram("held_time", Some(&from.held_time), &to.held_time)?,
        connections: level("connections", &from.connections, &to.connections)?,
        bytes_in: difference.count("bytes_in", from.bytes_in, to.bytes_in)?,
        bytes_out: difference.count("bytes_out", from.bytes_out, to.bytes_out)?,
        cpu_user_ns: difference.count("cpu_user_ns", from.cpu_user_ns, to.cpu_user_ns)?,
        cpu_system_ns: difference.count("cpu_system_ns", from.cpu_system_ns, to.cpu_system_ns)?,
        spun_ns: from
            .spun_ns
            .zip(to.spun_ns)
            .map(|(from, to)| difference.count("spun_ns", from, to))
            .transpose()?,
        outcomes: difference.counts(&from.outcomes, &to.outcomes)?,
        limits_hit: difference.counts(&from.limits_hit, &to.limits_hit)?,
        requests: difference.requests(from, to)?,
        backends: difference.backends(from, to)?,
        counted: Vec::new(),
    })
}

/// What was counted from the first to the last snapshot that has its kind, since PostgreSQL may not have answered before.
/// What went back is left out: a database may drop a statement.
fn counted(snapshots: &[&TierSnapshot]) -> Vec<CountedTime> {
    let tells =
        |kind: &str, snapshot: &&&TierSnapshot| snapshot.counted.iter().any(|one| one.kind == kind);
    let all = || snapshots.iter().flat_map(|snapshot| &snapshot.counted);
    let kinds: BTreeSet<&str> = all().map(|one| one.kind.as_str()).collect();
    kinds
        .into_iter()
        .flat_map(|kind| {
            let mut told = snapshots.iter().filter(|snapshot| tells(kind, snapshot));
            let first = told.next();
            let ends = first.zip(told.next_back());
            ends.map_or_else(Vec::new, |(from, to)| counted_of(kind, from, to))
        })
        .collect()
}

fn counted_of(kind: &str, from: &TierSnapshot, to: &TierSnapshot) -> Vec<CountedTime> {
    let since = |after: &CountedTime| {
        let same = |one: &&CountedTime| one.kind == after.kind && one.name == after.name;
        let none = CountedTime::default();
        let before = from.counted.iter().find(same).unwrap_or(&none);
        Some(CountedTime {
            count: after.count.checked_sub(before.count)?,
            items: after.items.checked_sub(before.items)?,
            time_ns: after.time_ns.checked_sub(before.time_ns)?,
            ..after.clone()
        })
    };
    let kept = to.counted.iter().filter(|after| after.kind == kind).filter_map(since);
    kept.filter(|one| one.count > 0).collect()
}

struct Difference<'a> {
    tier: &'a str,
}

impl Difference<'_> {
    fn backwards(&self, what: &str) -> RecordError {
        RecordError::Backwards { tier: self.tier.to_owned(), what: what.to_owned() }
    }

    fn count(&self, what: &str, from: u64, to: u64) -> Result<u64, RecordError> {
        to.checked_sub(from).ok_or_else(|| self.backwards(what))
    }

    fn counts(
        &self,
        from: &BTreeMap<String, u64>,
        to: &BTreeMap<String, u64>,
    ) -> Result<BTreeMap<String, u64>, RecordError> {
        to.iter()
            .map(|(name, count)| {
                let before = from.get(name).copied().unwrap_or(0);
                Ok((name.clone(), self.count(name, before, *count)?))
            })
            .collect()
    }

    fn histogram(
        &self,
        what: &str,
        from: Option<&EncodedHistogram>,
        to: &EncodedHistogram,
    ) -> Result<Histogram, RecordError> {
        let after = decode(to)?;
        match from {
            None => Ok(after),
            Some(from) => after.since(&decode(from)?).ok_or_else(|| self.backwards(what)),
        }
    }

    fn requests(
        &self,
        from: &TierSnapshot,
        to: &TierSnapshot,
    ) -> Result<BTreeMap<String, TierRequests>, RecordError> {
        let mut requests = BTreeMap::new();
        for (name, after) in &to.requests {
            let before = from.requests.get(name);
            let mut stages = BTreeMap::new();
            for (stage, histogram) in &after.stages {
                let earlier = before.and_then(|before| before.stages.get(stage));
                stages.insert(stage.clone(), self.histogram(stage, earlier, histogram)?);
            }
            let earlier = before.map_or((0, 0), |before| (before.arrivals, before.completions));
            let row = TierRequests {
                arrivals: self.count("arrivals", earlier.0, after.arrivals)?,
                completions: self.count("completions", earlier.1, after.completions)?,
                stages,
            };
            if row.arrivals > 0 || row.completions > 0 {
                requests.insert(name.clone(), row);
            }
        }
        Ok(requests)
    }

    fn backends(
        &self,
        from: &TierSnapshot,
        to: &TierSnapshot,
    ) -> Result<Vec<TierBackend>, RecordError> {
        let mut backends = Vec::new();
        for (number, after) in to.backends.iter().enumerate() {
            let before = from.backends.get(number).filter(|b| b.address == after.address);
            let earlier = before.map_or((0, 0, 0), |b| (b.requests, b.keys, b.errors));
            backends.push(TierBackend {
                address: after.address.clone(),
                requests: self.count("requests", earlier.0, after.requests)?,
                keys: self.count("keys", earlier.1, after.keys)?,
                errors: self.count("errors", earlier.2, after.errors)?,
                backend_time: self.histogram(
                    "backend_time",
                    before.map(|before| &before.backend_time),
                    &after.backend_time,
                )?,
            });
        }
        Ok(backends)
    }
}

/// Requests of one generator in its measured windows: completed, failed, keys missed, keys read,
/// and the sum of response times in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Totals {
    pub(crate) throughput_per_s: f64,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) misses: u64,
    pub(crate) reads: u64,
    pub(crate) response_time_sum_s: f64,
    /// Requests whose response time is known.
    pub(crate) timed: u64,
}

pub(crate) fn totals(generators: &[Generator]) -> Totals {
    let mut totals = Totals::default();
    let measured = generators.iter().flat_map(|generator| &generator.operations);
    for row in measured.filter(|row| row.extent == Extent::Measured) {
        let counts = &row.counts;
        let length = kendall_units::Seconds::from_nanos(row.to_ns.saturating_sub(row.from_ns));
        totals.throughput_per_s += exact_f64(counts.completed) / length.get().max(1e-9);
        totals.completed += counts.completed;
        totals.failed += counts.errors.values().sum::<u64>();
        totals.misses += counts.misses;
        totals.reads += counts.hits + counts.misses;
        let mean = counts.response_time.mean().unwrap_or(0.0) / 1e9;
        totals.response_time_sum_s += mean * exact_f64(counts.response_time.count());
        totals.timed += counts.response_time.count();
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(at_ns: u64, counted: &[(&str, &str, u64, u64)]) -> TierSnapshot {
        let one = |(kind, name, count, time_ns): &(&str, &str, u64, u64)| CountedTime {
            kind: (*kind).to_owned(),
            name: (*name).to_owned(),
            count: *count,
            items: 0,
            time_ns: *time_ns,
        };
        let counted = counted.iter().map(one).collect();
        TierSnapshot { at_ns, counted, ..TierSnapshot::default() }
    }

    /// The first snapshot came before PostgreSQL's first answer: what was counted since that answer is kept.
    #[test]
    fn what_was_counted_begins_with_the_first_answer_in_the_period() {
        let snapshots = [
            snapshot(0, &[("batch", "sends", 1, 10)]),
            snapshot(
                10,
                &[("batch", "sends", 2, 20), ("look", "", 1, 8), ("statement", "a", 7, 70)],
            ),
            snapshot(
                20,
                &[("batch", "sends", 3, 30), ("look", "", 2, 17), ("statement", "a", 9, 90)],
            ),
        ];
        let whole = period(&snapshots[0], &snapshots[2], Extent::Whole).unwrap();
        let whole = with_snapshots(whole, &snapshots);
        let counted = whole.counted.iter().map(|one| (one.kind.as_str(), one.count, one.time_ns));
        assert_eq!(
            counted.collect::<Vec<_>>(),
            [("batch", 2, 20), ("look", 1, 9), ("statement", 2, 20)]
        );
        let second = period(&snapshots[1], &snapshots[2], Extent::Second).unwrap();
        assert_eq!(with_snapshots(second, &snapshots).counted, []);
    }

    #[test]
    fn a_tier_that_was_silent_in_the_window_is_doubted() {
        let second = 1_000_000_000;
        let window =
            MeasuredWindow { from_ns: 10 * second, to_ns: 20 * second, rule: String::new() };
        let doubts = |moments: &[u64]| {
            let mut member = ObservedMember::with_metrics_on("h1");
            member.snapshots = moments.iter().map(|at| snapshot(at * second, &[])).collect();
            let mut caveats = Vec::new();
            tier(&member, Some(&window), &mut caveats);
            caveats.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(doubts(&[9, 15, 21]), "");
        assert!(doubts(&[9, 15]).contains("answered in 5.0 of the 10.0 s"));
        assert!(doubts(&[13, 21]).contains("answered in 7.0 of the 10.0 s"));
        assert!(doubts(&[]).contains("answered in 0.0 of the 10.0 s"));
    }
}
