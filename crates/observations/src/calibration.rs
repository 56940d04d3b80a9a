//! Stored runs as those that a study's model is fitted to.

use std::collections::{BTreeMap, BTreeSet};

use kendall_fit::bottleneck::weight;
use kendall_fit::measured::{OperatingPoint, ProcessView, ThreadView, TierView};
use kendall_fit::study::{
    Calibration, FactorLevel, PartUse, RunFacts, StudyRun, TierSeen, small, structural,
};
use kendall_fit::twin::Workload;
use kendall_fit::twin::structure::Bytes;
use kendall_protocols::snapshot::{WORKER_THREAD, counted, stage};
use kendall_protocols::topology::{Part, Role};
use kendall_stats::histogram::Histogram;
use kendall_store::{Measured, ProcessUse, Purpose, Results, Run, StoreError, keys_of};
use kendall_units::{Seconds, exact_f64};

/// Share of a part's processor time from which threads of one name do work of the system.
const WORKING_SHARE: f64 = 0.1;

/// Least cores of an instance that works, and share of what the busiest of its tier uses below which one does nothing.
const WORKS_CORES: f64 = 0.01;
const IDLE_SHARE: f64 = 0.01;

/// Reads the usable runs of a folder: those of the design, and those that verified predictions.
pub fn calibration(results: &Results) -> Result<Calibration, StoreError> {
    let mut all = results.latest_runs()?;
    all.extend(results.verifications()?);
    all.sort_by_key(|run| run.started_unix_ns);
    let runs = told(results, &all)?;
    let mut one_client = told(results, &results.one_client_runs()?)?;
    one_client.retain(|facts| runs.iter().any(|of| facts.run.one_client_of == Some(of.run.id)));
    Ok(Calibration {
        structural: structural(&runs),
        runs,
        one_client,
        most_foreign_cores: f64::INFINITY,
        seed: results.study()?.seed,
    })
}

/// What usable runs tell in which anything was answered.
fn told(results: &Results, runs: &[Run]) -> Result<Vec<RunFacts>, StoreError> {
    let mut facts = Vec::new();
    for run in runs.iter().filter(|run| run.is_usable()) {
        let measured = results.measured(run.id)?;
        if measured.throughput_per_s > 0.0 {
            facts.push(run_facts(&measured));
        }
    }
    Ok(facts)
}

/// What a measured window tells.
pub fn run_facts(measured: &Measured) -> RunFacts {
    let point = crate::point::of(measured);
    let x = point.client.throughput_per_s;
    let closed = measured.generators.iter().all(|generator| generator.r#loop == "closed");
    let rate = measured.arrival_rate_per_s.unwrap_or(x);
    let workload = if closed {
        let clients = u32::try_from(measured.clients).unwrap_or(u32::MAX).max(1);
        Workload::Closed { clients, think_time_s: measured.think_time_mean_s }
    } else {
        Workload::Open { rate_per_s: rate }
    };
    let threads: usize = measured.generators.iter().map(|g| g.threads.len()).sum();
    let time = |p: f64| measured.response_time.quantile(p).map(|ns| exact_f64(ns) / 1e9);
    RunFacts {
        run: study_run(&measured.run),
        graph: measured.graph.clone(),
        workload,
        generator_threads: u32::try_from(threads).unwrap_or(u32::MAX).max(1),
        throughput_per_s: x,
        response_mean_s: Some(point.client.response_time_s)
            .filter(|r| r.is_finite())
            .unwrap_or(0.0),
        percentiles_s: time(0.5).zip(time(0.9)).zip(time(0.99)).map(|((a, b), c)| [a, b, c]),
        uses: uses(&point),
        tiers: tiers(measured, &point),
        flushes: flushes(measured),
        operations: measured.operations.len(),
        bytes: bytes(measured),
        probe_s: measured.run.speed_unit_ns.map(|unit| unit / 1e9),
        foreign_cores: foreign_cores(measured),
        stolen_cores: stolen_cores(measured),
        weight: weight(&point, stolen_cores(measured)),
        idle: idle_instance(measured),
        hosts: hosts(measured),
        places: places(measured),
        others: measured.run.caveats.iter().find_map(|one| Some(one.serves()?.0.to_owned())),
        measured_s: measured.window.length_s(),
    }
}

/// A run by what the study says of it.
pub fn study_run(run: &Run) -> StudyRun {
    let level = |level: &kendall_store::FactorLevel| FactorLevel {
        factor: level.factor.clone(),
        keys: keys_of(&level.factor).map(str::to_owned).collect(),
        text: level.text.clone(),
        number: level.number,
    };
    StudyRun {
        id: run.id.0,
        configuration: run.configuration,
        repetition: run.repetition,
        position: run.position,
        of_design: run.purpose == Purpose::Design,
        levels: run.factors.iter().map(level).collect(),
        settings: run.settings.clone(),
        one_client_of: run.one_client_of.map(|id| id.0),
    }
}

/// Bytes of a request on the clients' edge.
fn bytes(measured: &Measured) -> Option<Bytes> {
    let counts = || measured.operations.values();
    let completed: u64 = counts().map(|counts| counts.completed).sum();
    let out: u64 = counts().map(|counts| counts.bytes_out).sum();
    let back: u64 = counts().map(|counts| counts.bytes_in).sum();
    let all = exact_f64(completed);
    (completed > 0 && out + back > 0)
        .then(|| Bytes { out: exact_f64(out) / all, back: exact_f64(back) / all })
}

/// Flushes of the log that the tiers were told of. Middlewares of one database all tell of the same ones: what
/// one flush takes is the same by their sums.
fn flushes(measured: &Measured) -> Option<(u64, f64)> {
    let counted = measured.tiers.iter().flat_map(|tier| &tier.period.counted);
    let flushes: Vec<_> =
        counted.filter(|one| one.kind == counted::LOG && one.name == "flush").collect();
    let count: u64 = flushes.iter().map(|one| one.count).sum();
    let time = flushes.iter().map(|one| Seconds::from_nanos(one.time_ns).get()).sum();
    (count > 0).then_some((count, time))
}

/// Processor time that was stolen from the hosts, in cores.
pub(crate) fn stolen_cores(measured: &Measured) -> f64 {
    let hosts = measured.hosts_in_use().into_iter().filter(|host| host.length_s > 0.0);
    hosts.map(|host| host.cpu_steal_s / host.length_s).sum()
}

/// An instance that took no part although others of its tier worked: nothing was sent to it.
fn idle_instance(measured: &Measured) -> Option<(String, u32)> {
    let tiers = measured.processes.iter().filter(|process| process.part.role == Role::Tier);
    let mut used: BTreeMap<&str, BTreeMap<u32, f64>> = BTreeMap::new();
    for process in tiers {
        let of_tier = used.entry(process.part.name.as_str()).or_default();
        *of_tier.entry(process.instance).or_default() += process.cores_busy();
    }
    used.into_iter().find_map(|(tier, cores)| Some((tier.to_owned(), idle_of(&cores)?)))
}

/// Of the instances of a tier, by the cores that they used.
fn idle_of(cores: &BTreeMap<u32, f64>) -> Option<u32> {
    let most = cores.values().copied().fold(0.0, f64::max);
    let mut idle = cores.iter().filter(|(_, cores)| **cores < IDLE_SHARE * most);
    idle.next().filter(|_| most > WORKS_CORES).map(|(instance, _)| *instance)
}

/// Hosts of each part.
fn places(measured: &Measured) -> BTreeMap<String, BTreeSet<String>> {
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for tier in &measured.topology {
        places.entry(tier.tier.clone()).or_default().insert(tier.host.clone());
    }
    for generator in &measured.generators {
        places.entry(Part::generator().name).or_default().insert(generator.host.clone());
    }
    places
}

/// Hosts that something ran on, with their cores.
fn hosts(measured: &Measured) -> Vec<(String, u32)> {
    let used = measured.hosts_in_use().into_iter();
    let used: Vec<_> = used.map(|host| (host.host.clone(), host.cores)).collect();
    if used.is_empty() { vec![("localhost".to_owned(), 1)] } else { used }
}

/// Processor time that others than the study used on the hosts of the system, in cores.
fn foreign_cores(measured: &Measured) -> f64 {
    let used = measured.hosts_in_use();
    let busy: f64 = used
        .iter()
        .filter(|host| host.length_s > 0.0)
        .map(|host| (host.cpu_user_s + host.cpu_system_s) / host.length_s)
        .sum();
    let there = |host: &str| used.iter().any(|known| known.host == host);
    let own = measured.processes.iter().filter(|process| there(&process.host));
    let known: f64 = own.map(ProcessUse::cores_busy).sum();
    (busy - known).max(0.0)
}

fn uses(point: &OperatingPoint) -> BTreeMap<Part, PartUse> {
    let x = point.client.throughput_per_s;
    let per_request = |process: &ProcessView| {
        let all: f64 = process.threads.iter().map(|group| group.cpu_cores).sum();
        let worker = process.threads.iter().find(|group| group.name == WORKER_THREAD);
        let works = |group: &&ThreadView| {
            group.name != WORKER_THREAD && group.cpu_cores >= WORKING_SHARE * all
        };
        let others: f64 = process.threads.iter().filter(works).map(|group| group.threads).sum();
        let used = PartUse {
            cpu_s: (process.cpu_cores - process.spun_cores).max(0.0) / x,
            switches: process.switches_per_s / x,
            run_queue_wait_s: process.run_queue_wait.unwrap_or(0.0) / x,
            worker_run_queue_wait_s: worker.map(|group| group.run_queue_wait / x),
            worker_share: worker.filter(|_| all > 0.0).map(|group| group.cpu_cores / all),
            worker_threads: small(worker.map_or(0.0, |group| group.threads)),
            other_threads: small(others).max(1),
            host_cores: small(process.host_cores),
            waiting: process.waiting,
        };
        (process.part.clone(), used)
    };
    let of_the_load = |process: &&ProcessView| process.part.role != Role::Study;
    point.processes.iter().filter(of_the_load).map(per_request).collect()
}

fn tiers(measured: &Measured, point: &OperatingPoint) -> BTreeMap<String, TierSeen> {
    let seen = |tier: &TierView| {
        let mut service_time = Histogram::new();
        let of =
            measured.tiers.iter().filter(|one| one.role == Role::Tier && one.tier == tier.name);
        of.for_each(|one| service_time.add(&one.period.stage(stage::SERVICE_TIME)));
        let batches = tier.batches.map_or(0.0, |batches| batches.per_s);
        let seen = TierSeen {
            service_s: tier.service_time_s,
            service_time,
            backend_s: tier.backend_time_s.unwrap_or(0.0),
            connection_wait_s: tier.connection_wait_s,
            batch: if batches > 0.0 {
                (tier.view.throughput_per_s / batches).max(1.0)
            } else {
                1.0
            },
            miss_share: tier.miss_share(),
        };
        (tier.name.clone(), seen)
    };
    point.tiers.iter().map(seen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_idle_where_another_of_its_tier_works() {
        let idle = |cores: &[f64]| idle_of(&(0..).zip(cores.iter().copied()).collect());
        assert_eq!(idle(&[0.1, 0.0]), Some(1));
        assert_eq!(idle(&[0.1, 0.05]), None);
        assert_eq!(idle(&[0.1]), None);
        // No worker is busy: nothing is told.
        assert_eq!(idle(&[0.001, 0.0]), None);
    }
}
