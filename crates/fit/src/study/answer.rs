//! A twin of the runs that do one kind of work, and questions to it.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use kendall_protocols::topology::{Graph, Part, PoolKind, Role, TierId, TierNode};
use kendall_stats::histogram::Histogram;
use kendall_stats::load_curve::{CurveRun, Evidence};
use kendall_units::{counted, exact_f64};
use serde::Serialize;

use super::between::Between;
use super::by_load::{
    Along, BENT, Five, LoadRun, Model, Place, WAITS, is_beyond, is_same, present, tail_by_wait,
};
use super::ladder::{self, Judged, Ladder, LeftOut, Rung};
use super::question::Question;
use super::runs::{Calibration, PartUse, RunFacts, graph_level, lookup, number, small};
use super::signature::Signature;
use crate::bottleneck::DISTURBED;
use crate::change::Change;
use crate::hidden::{BatchStation, Family, HiddenStation, batch_station, family, hidden_station};
use crate::model::CONFIDENCE;
use crate::twin::structure::{
    Blueprint, Bytes, Hidden, Misses, OUTSIDE, StructureError, TierFacts, USUAL_SPREAD, parts,
    smallest, structure,
};
use crate::twin::{
    BUSY, Bottleneck, CalibrationError, Host, Interval, MeasuredRun, Prediction, ProcessUse,
    Refusal, Spread, System, Twin, Why, Workload, calibrate,
};
use crate::waits::grown;

/// Time that a worker is held without a processor, from which it is a wait of its own and no error of
/// the accounts: a share of the service time, and in s.
const LEAST_WAIT: (f64, f64) = (0.2, 100e-6);
/// The same for a system that reports nothing of itself, by the response time at the lightest load.
const LEAST_UNEXPLAINED: (f64, f64) = (0.5, 1e-3);

/// How far the capacity that a curve shows may lie above what was measured, and the error of its station at a load.
const MOST_UNREACHED: f64 = 1.25;
const MOST_OFF: f64 = 0.25;

/// Fewest requests of one client alone that tell anything.
const LEAST_REQUESTS: f64 = 100.0;

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error(
        "no run was measured with {asked}, and what a request costs there follows from no other: \
         measured are {measured}. Run it once at light load and once near saturation"
    )]
    OtherWork { asked: String, measured: String },
    #[error(
        "{why}, in every run with {asked}: see that the tier before it knows all of its instances, and run it again"
    )]
    Idle { why: String, asked: String },
    #[error(
        "the instances of {part} ran on several hosts ({hosts}), and the model has one host for all of \
         a part: what-if questions are answered from runs in which each tier is on one host"
    )]
    SpreadOverHosts { part: String, hosts: String },
    #[error("{part} ran on {host}, and the runs do not show that host's cores")]
    UnknownHost { part: String, host: String },
    #[error("the runs make no model: {0}")]
    Calibration(#[from] CalibrationError),
    #[error(transparent)]
    Structure(#[from] StructureError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(
        "the runs do not show how many {of} {tier} has: write `{of} = …` into its table of the study file, and run it"
    )]
    UnknownPool { tier: String, of: String },
    #[error(
        "`{name}` is not a host of these runs and nothing is placed there; the hosts are {known}"
    )]
    NoHost { name: String, known: String },
}

/// A twin, and what its structure rests on.
#[derive(Debug, Clone)]
pub struct StudyModel {
    pub twin: Twin,
    /// The kind of work.
    pub signature: Signature,
    /// Indices of the runs that it was calibrated on, those that were left out among them.
    pub runs: Vec<usize>,
    /// Indices of what one client alone did before some of these runs, on which it was calibrated too.
    pub one_client: Vec<usize>,
    /// What the structure takes for granted.
    pub assumptions: Vec<String>,
    common: Common,
    /// Its runs, in the order of time.
    loads: Vec<LoadRun>,
    sources: Arc<Sources>,
    /// What the models say of configurations that they are not fitted to, found when it is first needed.
    left_out: Arc<OnceLock<Vec<LeftOut>>>,
    /// The same of all kinds of work.
    of_all_kinds: Vec<LoadRun>,
    /// Nothing but the operating system tells of it what a request waits for: neither it itself nor workers, for which what
    /// is not explained is taken.
    tells_nothing: bool,
    /// That other programs disturbed runs, which weigh less.
    pub disturbed: Option<String>,
}

/// What a model was made of, to make it again without a configuration.
#[derive(Debug)]
struct Sources {
    runs: Vec<RunFacts>,
    one_client: Vec<RunFacts>,
    most_foreign: f64,
}

/// An answer, with what it rests on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    #[serde(flatten)]
    pub prediction: Prediction,
    pub assumed: Vec<String>,
    /// Which model gave them, or most of them.
    #[serde(flatten)]
    pub model: Model,
    /// All models that have an answer, the simplest first; none where the configuration, or what lies around it, was run.
    pub ladder: Vec<Judged>,
}

/// What all configurations of one kind of work share.
#[derive(Debug, Clone, PartialEq)]
struct Common {
    facts: BTreeMap<String, TierFacts>,
    /// Hits of tiers with a cache of their own, as the share that misses.
    misses: BTreeMap<String, f64>,
    link_threads: u32,
    lanes: u32,
    bytes: Option<Bytes>,
    /// Hosts as measured, with their cores; the first has what is placed nowhere.
    hosts: Vec<(String, u32)>,
    /// Index of the host of each part, by its name.
    places: BTreeMap<String, usize>,
    form: Form,
    /// Facts with an inferred station at either end of what the runs leave of it.
    ends: Vec<BTreeMap<String, TierFacts>>,
}

/// What all runs together show of something that no counter does: models of some of them keep it.
#[derive(Debug, Clone, PartialEq)]
struct Form {
    family: Family,
    /// Pools of a tier, which the study file declares, that it is.
    declared: Option<(TierId, Vec<PoolKind>)>,
    /// The tier in which requests wait for it, by the states of threads and connections.
    waits_in: Option<String>,
}

/// Facts of the tiers, and why they may be so.
type Way = (BTreeMap<String, TierFacts>, String);

impl Calibration {
    /// Kinds of work that were measured, in the order of their first run.
    pub fn signatures(&self) -> Vec<Signature> {
        let mut kinds: Vec<Signature> = Vec::new();
        for facts in &self.runs {
            let kind = Signature::of(facts, &self.structural);
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds
    }

    /// The kind of work whose twin answers a question: its own, or that of the nearest level below where a parameter lies
    /// between two that were run.
    pub fn kind_for(&self, question: &Question) -> Signature {
        let own = &question.signature;
        if self.signatures().contains(own) {
            return own.clone();
        }
        let loads = self.loads();
        let below =
            Between::of(&loads, question).and_then(|between| between.first_below().cloned());
        let run = |below: LoadRun| self.runs.iter().find(|facts| LoadRun::of(facts) == below);
        let kind = below.and_then(run).map(|facts| Signature::of(facts, &self.structural));
        kind.unwrap_or_else(|| own.clone())
    }

    /// All runs that are not left out.
    fn loads(&self) -> Vec<LoadRun> {
        LoadRun::undisturbed(self.runs.iter(), self.most_foreign_cores)
    }

    /// A twin of the runs that do this kind of work. `keys` are the dotted keys whose distance from
    /// what was measured is reported, and `cached` the tiers whose hit ratio the question changes.
    ///
    /// # Errors
    /// [`AskError::OtherWork`] without such runs, [`AskError::Calibration`] where they make no twin.
    pub fn twin(
        &self,
        signature: &Signature,
        keys: &[String],
        cached: &[String],
    ) -> Result<StudyModel, AskError> {
        let of_kind = |facts: &&RunFacts| Signature::of(facts, &self.structural) == *signature;
        let idle = self.runs.iter().filter(of_kind).find_map(RunFacts::idle);
        let works = |facts: &RunFacts| of_kind(&facts) && facts.idle.is_none();
        let places = self.runs.iter().enumerate().filter(|(_, facts)| works(facts));
        let runs: Vec<usize> = places.map(|(place, _)| place).collect();
        let facts: Vec<&RunFacts> = runs.iter().map(|place| &self.runs[*place]).collect();
        let Some(first) = facts.first() else {
            let kinds: Vec<String> = self.signatures().iter().map(ToString::to_string).collect();
            let asked = signature.to_string();
            return Err(match idle {
                Some(why) => AskError::Idle { why, asked },
                None => AskError::OtherWork { asked, measured: kinds.join("; ") },
            });
        };
        let most_foreign = self.most_foreign_cores;
        let (mut common, assumptions) = Common::of(&facts, most_foreign, None);
        common.hosts.clone_from(&first.hosts);
        common.places = placed(first)?;
        for tier in cached {
            let calibrated = common.misses.get(tier).copied().unwrap_or(1.0);
            let misses = Misses { share: calibrated, calibrated };
            common.facts.entry(tier.clone()).or_default().misses = Some(misses);
        }
        let all = self.keys(keys);
        let one_client = self.one_client(&facts, most_foreign);
        let alone = one_client.iter().map(|place| &self.one_client[*place]);
        // Last: the twin names runs that it leaves out by their place.
        let measured: Result<Vec<MeasuredRun>, StructureError> =
            facts.iter().copied().chain(alone).map(|facts| common.measured(facts, &all)).collect();
        let twin = calibrate(&measured?, most_foreign, self.seed)?;
        let used: Vec<&RunFacts> =
            facts.iter().copied().filter(|facts| facts.disturbed(most_foreign).is_none()).collect();
        let disturbed = disturbed(&used);
        let loads = used.iter().map(|facts| LoadRun::of(facts)).collect();
        let sources = Sources {
            runs: used.into_iter().cloned().collect(),
            one_client: one_client.iter().map(|place| self.one_client[*place].clone()).collect(),
            most_foreign,
        };
        let has_workers =
            |node: &TierNode| node.pools.iter().any(|pool| pool.of == PoolKind::Workers);
        let tells_nothing = first.tiers.is_empty() && !first.graph.tiers.iter().any(has_workers);
        let signature = signature.clone();
        let mut model = StudyModel {
            twin,
            signature,
            runs,
            one_client,
            assumptions,
            common,
            loads,
            sources: sources.into(),
            left_out: Arc::default(),
            of_all_kinds: self.loads(),
            tells_nothing,
            disturbed,
        };
        // The first, which a question may change.
        model.assumptions.insert(0, model.shared(&[]));
        Ok(model)
    }

    /// One client alone before the runs of the configuration at the lightest load, where that has more than one:
    /// a configuration of its own, in which no request waits for another. Those before all other runs would weigh as
    /// much as these themselves.
    fn one_client(&self, runs: &[&RunFacts], most_foreign: f64) -> Vec<usize> {
        let light = lightest(runs, most_foreign);
        if light.workload == (Workload::Closed { clients: 1, think_time_s: 0.0 }) {
            return Vec::new();
        }
        let of_light = |of| {
            let same = |facts: &&&RunFacts| facts.run.configuration == light.run.configuration;
            runs.iter().filter(same).any(|facts| of == Some(facts.run.id))
        };
        let told = |facts: &RunFacts| {
            facts.throughput_per_s * facts.measured_s >= LEAST_REQUESTS
                && facts.disturbed(most_foreign).is_none()
                // One without the probe would leave the twin without it.
                && (facts.probe_s.is_some() || light.probe_s.is_none())
        };
        let places = self.one_client.iter().enumerate();
        let used = places.filter(|(_, facts)| of_light(facts.run.one_client_of) && told(facts));
        used.map(|(place, _)| place).collect()
    }

    /// Numeric factors, and the keys asked about.
    fn keys(&self, asked: &[String]) -> Vec<String> {
        let mut keys: Vec<String> = Vec::new();
        let factors = self.runs.iter().flat_map(|facts| &facts.run.levels);
        let numeric = factors.filter(|level| level.number.is_some()).map(|level| &level.factor);
        for key in numeric.chain(asked) {
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
        keys
    }
}

impl Common {
    /// What the runs tell of the tiers. Times of a tier itself are read where the load is lightest:
    /// there they are its own, and not the wait for others.
    fn of(runs: &[&RunFacts], most_foreign: f64, form: Option<&Form>) -> (Self, Vec<String>) {
        let light = lightest(runs, most_foreign);
        let mut assumed = Vec::new();
        let mut facts = BTreeMap::new();
        let mut misses = BTreeMap::new();
        for node in &light.graph.tiers {
            let told = tier_facts(node, runs, light, &mut assumed);
            let leaf = light.graph.behind(&node.tier).next().is_none();
            let seen = light.tiers.get(node.tier.as_str()).filter(|_| leaf);
            if let Some(share) = seen.and_then(|seen| seen.miss_share) {
                misses.insert(node.tier.to_string(), share);
            }
            facts.insert(node.tier.to_string(), told);
        }
        let curve = LightCurve::of(light, runs, most_foreign);
        let form = form.cloned().unwrap_or_else(|| Form::of(light, curve.as_ref()));
        let mut ends = Vec::new();
        if light.tiers.is_empty() {
            let known = facts.clone();
            unexplained(light, (curve.as_ref(), &form), (&mut facts, &mut assumed));
            let servers = curve.as_ref().filter(|_| form.family == Family::Servers);
            for end in servers.map_or_else(Vec::new, LightCurve::ends) {
                let mut at_end = known.clone();
                unexplained(light, (Some(&end), &form), (&mut at_end, &mut Vec::new()));
                ends.push(at_end);
            }
        }
        let links =
            runs.iter().flat_map(|facts| &facts.uses).filter(|(part, _)| part.role == Role::Link);
        let link_threads = links.map(|(_, used)| used.other_threads).max().unwrap_or(1);
        let lanes = small(exact_f64(light.operations)).max(1);
        let (hosts, places) = (Vec::new(), BTreeMap::new());
        let bytes = light.bytes;
        (Self { facts, misses, link_threads, lanes, bytes, hosts, places, form, ends }, assumed)
    }

    fn measured_hosts(&self) -> Vec<Host> {
        let host =
            |(name, cores): &(String, u32)| Host { name: name.clone(), cores: *cores, speed: 1.0 };
        self.hosts.iter().map(host).collect()
    }

    fn measured(&self, facts: &RunFacts, keys: &[String]) -> Result<MeasuredRun, StructureError> {
        let batch = lookup(&facts.run.settings, "system.batch").and_then(number).map(small);
        let system = self.system(
            &facts.graph,
            (facts.workload, facts.generator_threads),
            batch,
            (self.measured_hosts(), self.places.clone()),
            &self.facts,
        )?;
        let of_part = |part| {
            let used = facts.uses.get(part).copied().unwrap_or_default();
            ProcessUse { cpu_s: used.cpu_s, switches: used.switches }
        };
        let level = |key: &String| {
            let number = match key.as_str() {
                "cores" => facts.only_host().map(|(_, cores)| f64::from(*cores)),
                "cpu_speed" => Some(1.0),
                _ => facts
                    .run
                    .factor(key)
                    .and_then(|level| level.number)
                    .or_else(|| lookup(&facts.run.settings, key).and_then(number))
                    .or_else(|| graph_level(&facts.graph, key)),
            };
            Some((key.clone(), number?))
        };
        Ok(MeasuredRun {
            processes: parts(&facts.graph).iter().map(of_part).collect(),
            system,
            levels: keys.iter().filter_map(level).collect(),
            throughput_per_s: facts.throughput_per_s,
            response_mean_s: facts.response_mean_s,
            percentiles_s: facts.percentiles_s,
            batch: facts.tiers.values().map(|seen| seen.batch).fold(1.0, f64::max),
            probe_s: facts.probe_s,
            foreign_cores: facts.foreign_cores,
            stolen_cores: facts.stolen_cores,
            measured_s: facts.measured_s,
            weight: facts.weight,
        })
    }

    fn system(
        &self,
        graph: &Graph,
        (workload, generator_threads): (Workload, u32),
        batch: Option<u32>,
        (hosts, placement): (Vec<Host>, BTreeMap<String, usize>),
        facts: &BTreeMap<String, TierFacts>,
    ) -> Result<System, StructureError> {
        let batching = graph.tiers.iter().filter(|node| batches(node));
        let batches: BTreeMap<String, u32> = batching
            .filter_map(|node| Some((node.tier.to_string(), batch.filter(|batch| *batch > 1)?)))
            .collect();
        let lane = |(tier, _): (&String, &u32)| {
            let node = graph.tiers.iter().find(|node| node.tier == tier.as_str());
            (tier.clone(), self.lanes.saturating_mul(node.map_or(1, |node| node.instances)))
        };
        let lanes = batches.iter().map(lane).collect();
        let first = graph.edges.first().and_then(|edge| edge.link.as_ref());
        let bytes = first.zip(self.bytes).map(|(link, bytes)| (link.name.clone(), bytes));
        structure(&Blueprint {
            graph: graph.clone(),
            hosts,
            placement,
            workload,
            generator_threads,
            link_threads: self.link_threads,
            facts: facts.clone(),
            batches,
            lanes,
            bytes: bytes.into_iter().collect(),
        })
    }
}

/// What others did to runs, where it was more than next to nothing: in words.
fn disturbed(runs: &[&RunFacts]) -> Option<String> {
    let disturbed = || runs.iter().filter(|facts| facts.weight < DISTURBED);
    let most = |of: fn(&RunFacts) -> f64| disturbed().map(|facts| of(facts)).fold(0.0, f64::max);
    (disturbed().count() > 0).then(|| {
        format!(
            "{} of {} were made while others used up to {:.2} of a core and up to {:.2} was stolen: by what that does to a \
             run, they weigh {:.0} % of an undisturbed one or less",
            disturbed().count(),
            counted(runs.len(), "run"),
            most(|facts| facts.foreign_cores),
            most(|facts| facts.stolen_cores),
            100.0 * disturbed().map(|facts| facts.weight).fold(0.0, f64::max)
        )
    })
}

/// The run that keeps the host least busy, of those in which requests hardly wait and that are disturbed little more than
/// the quietest of them.
fn lightest<'a>(runs: &[&'a RunFacts], most_foreign: f64) -> &'a RunFacts {
    let all = || runs.iter().filter(|facts| facts.disturbed(most_foreign).is_none());
    let fastest = all().map(|facts| facts.response_mean_s).fold(f64::INFINITY, f64::min);
    let fast = || all().filter(|facts| facts.response_mean_s < WAITS * fastest);
    let most = fast().map(|facts| facts.weight).fold(0.0, f64::max);
    let by_load = |a: &&&RunFacts, b: &&&RunFacts| a.busy().total_cmp(&b.busy());
    fast().filter(|facts| facts.weight >= DISTURBED * most).min_by(by_load).unwrap_or(&runs[0])
}

/// Index of the host of each part.
fn placed(facts: &RunFacts) -> Result<BTreeMap<String, usize>, AskError> {
    let mut places = BTreeMap::new();
    for (part, on) in &facts.places {
        let (Some(host), true) = (on.first(), on.len() == 1) else {
            let hosts: Vec<&str> = on.iter().map(String::as_str).collect();
            return Err(AskError::SpreadOverHosts { part: part.clone(), hosts: hosts.join(", ") });
        };
        let place = facts.hosts.iter().position(|(known, _)| known == host);
        let unknown = || AskError::UnknownHost { part: part.clone(), host: host.clone() };
        places.insert(part.clone(), place.ok_or_else(unknown)?);
    }
    Ok(places)
}

/// A tier whose workers serve several requests at once.
fn batches(node: &TierNode) -> bool {
    node.kind == "message-queue"
}

/// Threads that work for a tier, those of the pool of workers left out where the study declares it. Workers that
/// it does not declare, as of a command of the user's, are threads as others are.
fn threads(uses: &[&PartUse], has_workers: bool) -> u32 {
    let of =
        |used: &&PartUse| used.other_threads + if has_workers { 0 } else { used.worker_threads };
    uses.iter().map(of).max().unwrap_or(1)
}

fn tier_facts(
    node: &TierNode,
    runs: &[&RunFacts],
    light: &RunFacts,
    assumed: &mut Vec<String>,
) -> TierFacts {
    let name = node.tier.as_str();
    let part = Part::tier(&node.tier);
    let uses: Vec<_> = runs.iter().filter_map(|facts| facts.uses.get(&part)).collect();
    let shares: Vec<f64> = uses.iter().filter_map(|used| used.worker_share).collect();
    let worker_threads = !shares.is_empty();
    let inside = if worker_threads {
        shares.iter().sum::<f64>() / exact_f64(shares.len())
    } else {
        1.0 - OUTSIDE
    };
    let has_workers = node.pools.iter().any(|pool| pool.of == PoolKind::Workers);
    let leaf = light.graph.behind(&node.tier).next().is_none();
    let mut facts = TierFacts {
        inside,
        worker_threads,
        other_threads: threads(&uses, has_workers),
        commits: node.kind == "postgresql",
        ..TierFacts::default()
    };
    if let Some(flush_s) = flush(runs).filter(|_| facts.commits) {
        facts.flush_s = flush_s;
        assumed.push(format!(
            "a commit of {name} waits for a flush of its log, {:.3} ms as it was measured; one flush serves \
             all who wait when it begins",
            1e3 * flush_s
        ));
    }
    let Some(seen) = light.tiers.get(name) else {
        if has_workers {
            // All that it does is done by the workers that the study names.
            facts = TierFacts { inside: 1.0, worker_threads: true, other_threads: 1, ..facts };
        }
        return facts;
    };
    if leaf {
        // All repetitions of the configuration at the lightest load: more of them, a finer shape.
        let mut all = Histogram::new();
        for facts in runs.iter().filter(|facts| facts.run.configuration == light.run.configuration)
        {
            facts.tiers.get(name).iter().for_each(|seen| all.add(&seen.service_time));
        }
        facts.spread = spread(&all).unwrap_or(USUAL_SPREAD);
    }
    let used = light.uses.get(&part).copied().unwrap_or_default();
    let known = seen.backend_s + seen.connection_wait_s + inside * used.cpu_s;
    let wait = seen.service_s - known - waited_for_a_core(&used, &light.graph, node);
    if has_workers
        && seen.batch < 1.5
        && wait > LEAST_WAIT.1
        && wait > LEAST_WAIT.0 * seen.service_s
    {
        facts.wait_s = wait;
        assumed.push(format!(
            "a worker of {name} is held for {:.3} ms of a request in which it neither computes nor \
             waits for another tier; that stays, whatever is asked",
            1e3 * wait
        ));
    } else if !has_workers {
        assumed.push(format!("{name} declares no pool: its threads are taken for all that it has"));
    }
    facts
}

/// Time for a core while a worker of a tier is held by a request: that of the workers' own threads, but for the wake-up
/// before each visit begins. What other threads of the tier wait is no part of it. A worker wakes once at the beginning,
/// once after what it waits for itself, and once for each tier behind it.
fn waited_for_a_core(used: &PartUse, graph: &Graph, node: &TierNode) -> f64 {
    let inside = 1.0 + exact_f64(graph.behind(&node.tier).count());
    match used.worker_run_queue_wait_s {
        Some(waited_s) => waited_s * inside / (inside + 1.0),
        None => used.run_queue_wait_s,
    }
}

/// Mean time of a flush over all runs.
fn flush(runs: &[&RunFacts]) -> Option<f64> {
    let told: Vec<(u64, f64)> = runs.iter().filter_map(|facts| facts.flushes).collect();
    let count: u64 = told.iter().map(|(count, _)| count).sum();
    (count > 0).then(|| told.iter().map(|(_, time)| time).sum::<f64>() / exact_f64(count))
}

/// A system that reports nothing of itself: what no account explains of the response time at the
/// lightest load is a time that needs no processor.
fn unexplained(
    light: &RunFacts,
    (curve, form): (Option<&LightCurve<'_>>, &Form),
    (facts, assumed): (&mut BTreeMap<String, TierFacts>, &mut Vec<String>),
) {
    let cpu: f64 = light.uses.values().map(|used| used.cpu_s + used.run_queue_wait_s).sum();
    let links = light.graph.edges.iter().filter_map(|edge| edge.link.as_ref());
    let delays: f64 = links.map(|link| 2.0 * exact_f64(link.delay_ns) / 1e9).sum();
    let left = light.response_mean_s - cpu - delays;
    let Some(entry) = light.entry() else { return };
    let spread = spread_at(light);
    facts.values_mut().for_each(|facts| facts.spread = spread);
    let with_workers = light
        .graph
        .tiers
        .iter()
        .rev()
        .find(|node| node.pools.iter().any(|pool| pool.of == PoolKind::Workers));
    if let (Some(node), true) = (with_workers, left > LEAST_UNEXPLAINED.1) {
        facts.entry(node.tier.to_string()).or_default().wait_s = left;
        assumed.push(format!(
            "{:.3} ms of the response time at the lightest load is neither processor time nor a link: taken as a time \
             that a worker of {} is held for",
            1e3 * left,
            node.tier
        ));
        return;
    }
    let station = || curve.and_then(LightCurve::station);
    let inferred = match (form.family, &form.declared) {
        _ if left <= LEAST_UNEXPLAINED.1 => None,
        (Family::Batches, _) => curve
            .and_then(LightCurve::batches)
            .map(|found| infer_batches(light, &found, light.response_mean_s - left, facts)),
        (Family::Servers, Some((tier, pools))) => {
            let node = light.graph.tier(tier);
            let tokens = f64::from(node.and_then(|node| smallest(node, pools)).unwrap_or(1));
            let found = curve.and_then(LightCurve::bending);
            let hold_s = found.map_or(left, |found| tokens / found.capacity_per_s.center);
            Some(infer_declared(light, (tier, pools), (hold_s, left), facts))
        }
        (Family::Servers, None) => {
            station().map(|held| infer(light, (held, form.waits_in.as_deref()), left, facts))
        }
    };
    if let Some(inferred) = inferred {
        assumed.push(inferred);
        return;
    }
    if left > LEAST_UNEXPLAINED.1 && left > LEAST_UNEXPLAINED.0 * light.response_mean_s {
        facts.entry(entry.to_owned()).or_default().wait_s = left;
        assumed.push(format!(
            "{:.3} ms of the response time at the lightest load is neither processor time nor a \
             link: taken as a time of {entry} that needs no processor and no worker",
            1e3 * left
        ));
    }
}

/// Squared coefficient of variation up to which the response times of one client alone are taken for those of its work.
const MOST_SPREAD: f64 = 4.0;

/// That of the response times at the lightest load: of one client, which waits for no other, or where it is less than usual.
fn spread_at(light: &RunFacts) -> Spread {
    // Standard deviations between the median and the 90th percentile.
    const TO_NINTH: f64 = 1.2816;
    let Spread::Lognormal { scv: usual } = USUAL_SPREAD else { return USUAL_SPREAD };
    let sigma = light.percentiles_s.map(|[p50, p90, _]| (p90 / p50).ln() / TO_NINTH);
    let measured = sigma.map(|sigma| sigma.powi(2).exp_m1()).filter(|scv| scv.is_finite());
    let is_alone = LoadRun::of(light).present().is_some_and(|present| present <= 1.0);
    let most = if is_alone { MOST_SPREAD } else { usual };
    Spread::Lognormal { scv: measured.map_or(usual, |scv| scv.min(most)) }
}

/// Runs that differ from the lightest in the load alone.
struct LightCurve<'a> {
    evidence: Evidence,
    /// The lightest run, and the one with most clients.
    light: &'a RunFacts,
    heavy: &'a RunFacts,
    /// Throughput that was measured, and what the lightest load would be at the heaviest in proportion.
    most_per_s: f64,
    in_proportion_per_s: f64,
    busiest: f64,
    bending: OnceCell<Option<HiddenStation>>,
}

impl<'a> LightCurve<'a> {
    fn of(light: &'a RunFacts, runs: &[&'a RunFacts], most_foreign: f64) -> Option<Self> {
        let of_light = LoadRun::of(light);
        let undisturbed = || runs.iter().filter(|facts| facts.disturbed(most_foreign).is_none());
        let along =
            undisturbed().filter(|facts| LoadRun::of(facts).differs_in_load_from(&of_light));
        let (mut curve, mut busiest, mut heavy) = (Vec::new(), 0.0_f64, light);
        for facts in along {
            let Workload::Closed { clients, .. } = facts.workload else { return None };
            let throughput_per_s = facts.throughput_per_s;
            let (load, weight) = (f64::from(clients), facts.weight);
            curve.push(CurveRun { load, throughput_per_s, weight });
            busiest = busiest.max(facts.busy());
            heavy = if load > heavy.workload.load() { facts } else { heavy };
        }
        let most = |of: &dyn Fn(&CurveRun) -> f64| curve.iter().map(of).fold(0.0, f64::max);
        Some(Self {
            evidence: Evidence::of(&curve)?,
            light,
            heavy,
            bending: OnceCell::new(),
            most_per_s: most(&|run| run.throughput_per_s),
            in_proportion_per_s: most(&|run| run.load)
                * most(&|run| run.throughput_per_s / run.load),
            busiest,
        })
    }

    /// What the curve bends for although the cores are not full: so many requests at a time, for so long each.
    fn bending(&self) -> Option<&HiddenStation> {
        let bends = self.most_per_s < BENT * self.in_proportion_per_s && self.busiest < BUSY;
        let find = || {
            let found = hidden_station(&self.evidence, CONFIDENCE).filter(|_| bends)?;
            (found.worst_error < MOST_OFF).then_some(found)
        };
        self.bending.get_or_init(find).as_ref()
    }

    /// The same where the curve has come to its limit.
    fn station(&self) -> Option<&HiddenStation> {
        let found = self.bending()?;
        let is_reached = found.capacity_per_s.interval?.high < MOST_UNREACHED * self.most_per_s;
        is_reached.then_some(found)
    }

    /// The same with the station at either end of what the runs leave of it.
    fn ends(&self) -> Vec<Self> {
        let both = self.bending().and_then(|found| Some((found, found.capacity_per_s.interval?)));
        let Some((found, within)) = both else { return Vec::new() };
        let at = |capacity_per_s: f64, size: Option<&(u32, f64)>| {
            let mut end =
                HiddenStation { sizes: size.copied().into_iter().collect(), ..found.clone() };
            end.capacity_per_s.center = capacity_per_s;
            end.hold_s.center = f64::from(end.size()) / capacity_per_s;
            Self { bending: OnceCell::from(Some(end)), evidence: self.evidence.clone(), ..*self }
        };
        vec![at(within.low, found.sizes.first()), at(within.high, found.sizes.last())]
    }

    /// Where the clients that came on top wait.
    fn waits_in(&self, station: &HiddenStation) -> Option<String> {
        let [light, heavy] = [self.light, self.heavy].map(|run| LoadRun::of(run).present());
        let waiting_requests = heavy? - light?.max(f64::from(station.size()));
        let both = self.heavy.uses.iter().filter_map(|(part, used)| {
            Some((part, [self.light.uses.get(part)?.waiting?, used.waiting?]))
        });
        let per_s = [self.light, self.heavy].map(|run| run.throughput_per_s);
        grown(waiting_requests, per_s, both).map(|(part, _)| part.name.clone())
    }

    /// The same for what waits together.
    fn batches(&self) -> Option<BatchStation> {
        let found = batch_station(&self.evidence, CONFIDENCE)?;
        (self.busiest < BUSY && found.worst_error < MOST_OFF).then_some(found)
    }
}

impl Form {
    fn of(light: &RunFacts, curve: Option<&LightCurve<'_>>) -> Self {
        let family = curve.map_or(Family::Servers, |curve| family(&curve.evidence));
        let is_known = family == Family::Batches || !light.tiers.is_empty();
        let found = curve.filter(|_| !is_known).and_then(|curve| Some((curve, curve.bending()?)));
        let waits_in = found.and_then(|(curve, station)| curve.waits_in(station));
        Self { family, declared: found.and_then(|(_, station)| declared(light, station)), waits_in }
    }
}

/// Pools of one tier that have a size which the curve leaves to the station; of the tier that computes most.
fn declared(light: &RunFacts, station: &HiddenStation) -> Option<(TierId, Vec<PoolKind>)> {
    let (least, most) = (station.sizes.first()?.0, station.sizes.last()?.0);
    let of_node = |node: &TierNode| {
        let is_it = |servers: u32| (least..=most).contains(&servers.saturating_mul(node.instances));
        let pools = node.pools.iter().filter(|pool| is_it(pool.servers));
        (node.tier.clone(), pools.map(|pool| pool.of.clone()).collect::<Vec<_>>())
    };
    let tiers = light.graph.tiers.iter().map(of_node).filter(|(_, pools)| !pools.is_empty());
    tiers.max_by(|a, b| cpu_of(light, &a.0).total_cmp(&cpu_of(light, &b.0)))
}

fn cpu_of(light: &RunFacts, tier: &TierId) -> f64 {
    light.uses.get(&Part::tier(tier)).map_or(0.0, |used| used.cpu_s)
}

/// The tier that computes most.
fn busiest_tier(light: &RunFacts) -> String {
    let tiers = light.uses.iter().filter(|(part, _)| part.role == Role::Tier);
    let most = tiers.max_by(|a, b| a.1.cpu_s.total_cmp(&b.1.cpu_s));
    most.map_or_else(String::new, |(part, _)| part.name.clone())
}

/// Puts the station into the tier in which requests wait, or that computes most; what it does not explain stays outside
/// of it.
fn infer(
    light: &RunFacts,
    (held, waits_in): (&HiddenStation, Option<&str>),
    left: f64,
    facts: &mut BTreeMap<String, TierFacts>,
) -> String {
    let tier = waits_in.map_or_else(|| busiest_tier(light), str::to_owned);
    let cpu_s = cpu_of(light, &TierId::stored(&tier));
    let hold_s = held.hold_s.center;
    let with_work = hold_s > left;
    let time_s = if with_work { (hold_s - cpu_s).max(0.0) } else { hold_s };
    let facts = facts.entry(tier.clone()).or_default();
    // Of all instances that were run, which share it or do not.
    let instances = light.graph.tiers.iter().find(|node| node.tier == tier.as_str());
    let shared = instances.is_some_and(|node| node.instances > 1);
    let servers = held.size();
    facts.hidden = Some(Hidden { servers, shared, ..Hidden::single(time_s, with_work) });
    facts.wait_s = if with_work { 0.0 } else { left - hold_s };
    format!(
        "inferred from the curve of throughput: {tier} serves {}{} at a time in something that no counter \
         shows, a lock or a pool, for {:.3} ms each",
        counted(held.size() as usize, "request"),
        range_of(&held.sizes),
        1e3 * hold_s
    )
}

/// Takes a declared pool for what the curve shows: how many there are is what the graph says, whatever is asked.
fn infer_declared(
    light: &RunFacts,
    (tier, pools): (&TierId, &[PoolKind]),
    (hold_s, left): (f64, f64),
    facts: &mut BTreeMap<String, TierFacts>,
) -> String {
    let behind = pools.iter().find_map(|pool| match pool {
        PoolKind::Connections(to) => Some(to),
        PoolKind::Workers | PoolKind::Threads => None,
    });
    let time_s = (hold_s - cpu_of(light, behind.unwrap_or(tier))).max(0.0);
    let facts = facts.entry(tier.to_string()).or_default();
    facts.hidden = Some(Hidden { is: pools.to_vec(), ..Hidden::single(time_s, behind.is_none()) });
    facts.wait_s = (left - time_s).max(0.0);
    let names: Vec<&str> = pools.iter().map(PoolKind::as_str).collect();
    format!(
        "inferred from the curve of throughput: a request holds one of the {} of {tier}, of which there are as many \
         as the curve serves at a time, for {:.3} ms; more of them serve more",
        names.join(" and "),
        1e3 * hold_s
    )
}

/// The same for what waits together; `known_s` of a request at the lightest load is processors and links.
fn infer_batches(
    light: &RunFacts,
    found: &BatchStation,
    known_s: f64,
    facts: &mut BTreeMap<String, TierFacts>,
) -> String {
    let tier = busiest_tier(light);
    let thinks = match light.workload {
        Workload::Closed { think_time_s, .. } => think_time_s,
        Workload::Open { .. } => 0.0,
    };
    let facts = facts.entry(tier.clone()).or_default();
    let (batch, each_s) = (found.median(), found.each_s);
    facts.hidden = Some(Hidden { batch, each_s, ..Hidden::single(found.fixed_s, false) });
    facts.wait_s = (found.outside_s - thinks - known_s).max(0.0);
    format!(
        "inferred from the curve of throughput: {tier} serves what waits together, {}{} at most, in {:.3} ms and \
         {:.3} ms for each",
        found.median(),
        range_of(&found.most),
        1e3 * found.fixed_s,
        1e3 * found.each_s
    )
}

/// What the runs leave, where that is not one number.
fn range_of(sizes: &[(u32, f64)]) -> String {
    match sizes {
        [(least, _), .., (greatest, _)] => format!(" ({least} to {greatest})"),
        _ => String::new(),
    }
}

impl StudyModel {
    /// Answers a question. `slowness` is the machine's, where it is known: see [`Twin::slowness`].
    ///
    /// What was run is answered by its measurement; all else by the mean of the models of the ladder, each weighed by
    /// its errors at configurations that it was not fitted to.
    ///
    /// # Errors
    /// [`AskError`] for what the runs do not determine.
    pub fn answer(&self, question: &Question, slowness: Option<f64>) -> Result<Answer, AskError> {
        let question = &self.changed(question);
        self.knows_pools(question)?;
        let system = self.system(question)?;
        if question.signature != self.signature {
            return self.between(question, &system);
        }
        let most = self.twin.most_of_processors(&system);
        let along = self.along(question).map(|along| along.bounded(most));
        if let Some((model, five)) = along.as_ref().and_then(Along::measured) {
            self.twin.check(&system, &question.levels)?;
            return Ok(self.told(question, &system, along.as_ref(), (model, five)));
        }
        self.by_ladder(question, &system, (along.as_ref(), slowness))
    }

    /// Without changes to what the runs had: a question about the load stays one about the load.
    fn changed(&self, question: &Question) -> Question {
        let hosts = &self.common.hosts;
        let is_host = |host: &String| hosts.iter().any(|(name, _)| name == host);
        let changes = |change: &Change| match change {
            Change::Cores { host, count } => !hosts.contains(&(host.clone(), *count)),
            Change::HostSpeed { host, times } => !is_host(host) || !is_same(*times, 1.0),
            Change::Speed { times, .. } => !is_same(*times, 1.0),
            _ => true,
        };
        let mut question = question.clone();
        question.changes.retain(changes);
        question
    }

    fn along(&self, question: &Question) -> Option<Along<'_>> {
        Along::of(&self.loads, question).map(|along| along.with(self.common.form.family))
    }

    /// The twin's answer; its intervals hold those by other `ways` in which what was inferred may be.
    fn by_twin(
        &self,
        question: &Question,
        system: &System,
        (ways, slowness): (&[Way], Option<f64>),
    ) -> Result<Prediction, AskError> {
        let mut prediction = self.twin.predict(system, &question.levels, slowness)?;
        prediction.caveats.extend(self.disturbed.iter().cloned());
        for (facts, why) in ways {
            let other = self.system_of(question, facts)?;
            prediction.or(&self.twin.predict(&other, &question.levels, slowness)?);
            if !prediction.caveats.contains(why) {
                prediction.caveats.push(why.clone());
            }
        }
        Ok(prediction)
    }

    /// Throughput and mean response time of the twin, with what they are off by where an inferred station is at the ends of
    /// what the runs leave of it.
    fn with_station(
        &self,
        told: &Prediction,
        question: &Question,
        (system, slowness): (&System, Option<f64>),
    ) -> [Interval; 2] {
        let mut reach = [0.0_f64; 2];
        let center = self.twin.center(system, slowness).filter(|_| !self.common.ends.is_empty());
        for end in &self.common.ends {
            let mut facts = self.common.facts.clone();
            for (tier, end) in end {
                let known = facts.entry(tier.clone()).or_default();
                (known.hidden, known.wait_s) = (end.hidden.clone(), end.wait_s);
            }
            let moved = self.system_of(question, &facts).ok();
            let moved = moved.and_then(|system| self.twin.center(&system, slowness));
            for (moved, center) in moved.iter().zip(&center) {
                reach = [0, 1].map(|at| reach[at].max((moved[at] - center[at]).abs()));
            }
        }
        let mut own = [told.throughput_per_s, told.response_mean_s];
        own.iter_mut().zip(reach).for_each(|(own, reach)| own.widen(reach));
        own
    }

    fn by_ladder(
        &self,
        question: &Question,
        system: &System,
        (along, slowness): (Option<&Along<'_>>, Option<f64>),
    ) -> Result<Answer, AskError> {
        let curve = along.and_then(Along::curve);
        let ways = self.other_ways(question);
        let by_twin = match self.by_twin(question, system, (&ways, slowness)) {
            // What was served at rates around it can be served.
            Err(AskError::Refused(Refusal::Overloaded { .. })) if curve.is_some() => None,
            told => Some(told?),
        };
        let at = |slowness| self.twin.center(system, slowness);
        let speed = slowness.and_then(|slow| at(Some(slow)).zip(at(None)));
        let own = by_twin.as_ref().map(|told| match along {
            Some(_) => [told.throughput_per_s, told.response_mean_s],
            None => self.with_station(told, question, (system, slowness)),
        });
        let tail = |told: &Prediction| told.response_p99_s.center / told.response_mean_s.center;
        let asked = ladder::Asked {
            along,
            has_station: !self.common.ends.is_empty(),
            among: own.and_then(|[x, _]| self.among(question, x.center)),
            is_beyond: self.is_beyond(question),
            speed: speed.map_or([0.0; 2], |(known, not)| [0, 1].map(|of| known[of] - not[of])),
            twin: (&self.twin, system),
            by_twin: own,
            by_curve: curve.map(|[x, mean, ..]| [x, mean]),
            by_station: along.and_then(|along| along.with_response(along.hidden_station()?)),
            tail_by_twin: by_twin.as_ref().map(tail),
            tail_by_wait: &|mean_s| {
                let is_as_fast = |change: &Change| matches!(change, Change::Cores { .. });
                let as_fast = question.changes.iter().all(is_as_fast);
                let all: Vec<usize> = (0..self.loads.len()).filter(|_| as_fast).collect();
                self.tail_by_wait(&all, Some((&self.twin, &self.common, system)), mean_s)
            },
            tells_nothing: self.tells_nothing,
            is_blind: along.is_some() && self.is_blind(),
            is_full: self.is_full(),
        };
        let ladder = Ladder::of(&asked, self.left_out());
        let is_structure = ladder.leads().is_of_the_structure();
        let told = by_twin.map(|prediction| Answer {
            prediction,
            assumed: Vec::new(),
            model: Model::Twin,
            ladder: Vec::new(),
        });
        let runs = along.map_or(0, Along::runs);
        let curve =
            curve.map(|five| self.told(question, system, along, (Model::Curve { runs }, five)));
        let mut all: Vec<Answer> = told.into_iter().chain(curve).collect();
        let of_structure = |answer: &Answer| (answer.model == Model::Twin) == is_structure;
        let place = all.iter().position(of_structure).unwrap_or(0);
        let mut answer = all.swap_remove(place);
        let either = (!ways.is_empty()).then(|| answer.prediction.clone());
        let is_closed = matches!(question.workload, Workload::Closed { .. });
        if let Some(mut mean) = ladder.mean() {
            let at_highest = along.filter(|_| !is_structure).and_then(Along::at_highest);
            if let Some(at_highest) = at_highest {
                reaches_down(question, &mut mean, at_highest.low);
            }
            let is_above = asked.among == Some(Place::Above);
            answer.prediction.caveats.extend(self.plateau(question, is_above, &mut mean));
            answer.prediction.moved(mean, ladder.tail(), is_closed);
        }
        either.iter().for_each(|either| answer.prediction.or(either));
        answer.model = match ladder.leads() {
            Rung::Curve => Model::Curve { runs },
            other => other.model(),
        };
        if ladder.uses_the_structure() {
            answer.assumed = self.assumed(question);
        }
        answer.ladder = ladder.shown();
        Ok(answer)
    }

    /// Nothing but the operating system tells what a request waits for, and neither a full processor nor the curve does; or
    /// nothing could be left out to judge what they tell.
    fn is_blind(&self) -> bool {
        let is_inferred = self.common.facts.values().any(|facts| facts.hidden.is_some());
        self.tells_nothing && (self.left_out().is_empty() || !is_inferred && !self.is_full())
    }

    fn is_full(&self) -> bool {
        self.sources.runs.iter().any(|facts| facts.busy() > BUSY)
    }

    /// Each configuration, and each level of a factor, left out in turn: what the models of the others say of it.
    pub fn left_out(&self) -> &[LeftOut] {
        self.left_out.get_or_init(|| {
            let groups = ladder::groups(&self.loads);
            groups.iter().flat_map(|group| self.without(group)).collect()
        })
    }

    /// Runs by their place in [`Sources`], those of a configuration together.
    fn without(&self, group: &[Vec<usize>]) -> Vec<LeftOut> {
        let is_other = |place: &usize| group.iter().all(|runs| !runs.contains(place));
        let others: Vec<usize> = (0..self.loads.len()).filter(is_other).collect();
        let loads: Vec<&LoadRun> = others.iter().map(|place| &self.loads[*place]).collect();
        let model = self.of_others(&others);
        let left_out = |runs: &Vec<usize>| {
            let facts = &self.sources.runs[*runs.first()?];
            let model = model.as_ref().and_then(|(twin, common)| {
                Some((twin, common, common.measured(facts, &[]).ok()?.system))
            });
            let runs: Vec<&LoadRun> = runs.iter().map(|place| &self.loads[*place]).collect();
            let twin = model.as_ref().map(|(twin, _, system)| (*twin, system));
            let by = model.as_ref().map(|(twin, common, system)| (*twin, *common, system));
            let tail = |mean_s| self.tail_by_wait(&others, by, mean_s);
            LeftOut::of(&runs, &loads, twin, (self.common.form.family, &tail))
        };
        group.iter().filter_map(left_out).collect()
    }

    /// See [`tail_by_wait`]: of these runs, and by a model of them what is asked.
    fn tail_by_wait(
        &self,
        runs: &[usize],
        model: Option<(&Twin, &Common, &System)>,
        mean_s: f64,
    ) -> Option<f64> {
        let modelled = |run: Option<&LoadRun>| {
            let (twin, common, asked) = model?;
            let facts = run.map(|run| self.loads.iter().position(|known| known.repeats(run)));
            let logs = match facts {
                Some(place) => {
                    let facts = &self.sources.runs[place?];
                    twin.center(&common.measured(facts, &[]).ok()?.system, None)?
                }
                None => twin.center(asked, None)?,
            };
            Some([logs[1].exp(), logs[4].exp()])
        };
        tail_by_wait(runs.iter().map(|place| &self.loads[*place]), mean_s, &modelled)
    }

    /// The model of some of its runs.
    fn of_others(&self, others: &[usize]) -> Option<(Twin, Common)> {
        let runs: Vec<&RunFacts> = others.iter().map(|place| &self.sources.runs[*place]).collect();
        if runs.is_empty() {
            return None;
        }
        let (mut common, _) = Common::of(&runs, self.sources.most_foreign, Some(&self.common.form));
        common.hosts.clone_from(&self.common.hosts);
        common.places.clone_from(&self.common.places);
        for (tier, facts) in &self.common.facts {
            common.facts.entry(tier.clone()).or_default().misses = facts.misses;
        }
        let alone = self.sources.one_client.iter();
        let all = runs.iter().copied().chain(alone).map(|facts| common.measured(facts, &[]));
        let twin = self.twin.of_others(&all.collect::<Result<Vec<_>, _>>().ok()?)?;
        Some((twin, common))
    }

    /// A parameter between two levels that were run.
    fn between(&self, question: &Question, system: &System) -> Result<Answer, AskError> {
        let found = Between::of(&self.of_all_kinds, question).and_then(|between| between.answer());
        let Some((model, five)) = found else {
            let (asked, measured) = (question.signature.to_string(), self.signature.to_string());
            return Err(AskError::OtherWork { asked, measured });
        };
        Ok(self.told(question, system, None, (model, five)))
    }

    /// Where what is asked lies among the runs, whatever else it changes: by how many requests are in the system at once.
    fn among(&self, question: &Question, throughput_per_s: f64) -> Option<Place> {
        let asked = present(question.workload, throughput_per_s)?;
        Some(Place::of(asked, self.loads.iter().filter_map(LoadRun::present)))
    }

    /// Fewer processors of a host are full at a lower load, and no more than that.
    fn is_beyond(&self, question: &Question) -> bool {
        let is_fewer = |change: &Change| match change {
            Change::Cores { host, count } => {
                self.common.hosts.iter().any(|(name, cores)| name == host && count <= cores)
            }
            _ => false,
        };
        let at = (&question.graph, question.levels.as_slice());
        !question.changes.iter().all(is_fewer) || is_beyond(at, self.loads.iter())
    }

    /// A service of which nothing tells what it waits for may carry no more than it did with as many requests in it as are
    /// asked for: beyond the loads that were run, and where more than the load, or the speed of all tiers, is changed.
    fn plateau(
        &self,
        question: &Question,
        is_above: bool,
        told: &mut [Interval; 2],
    ) -> Option<String> {
        let asked = present(question.workload, told[0].center)?;
        let of_run = |run: &'_ LoadRun| Some((run.present()?, run.throughput_per_s));
        let below = self.loads.iter().filter_map(of_run).filter(|(present, _)| *present <= asked);
        let (present, carried) = below.max_by(|a, b| a.0.total_cmp(&b.0))?;
        let inferred = || self.common.facts.values().filter_map(|facts| facts.hidden.as_ref());
        // How many are served together may be limited right beyond what was.
        let batches = self.common.form.family == Family::Batches;
        let is_faster = |node: &TierNode| {
            let is_it = |change: &Change| matches!(change, Change::Speed { tier, .. } if node.tier == tier.as_str());
            question.changes.iter().any(is_it)
        };
        let is_other = self.loads.iter().all(|run| run.graph != question.graph)
            || !question.changes.is_empty() && !question.graph.tiers.iter().all(is_faster);
        let others = self.sources.runs.iter().find_map(|run| run.others.as_ref());
        // What is inferred may be in them, where no change reaches.
        let elsewhere = others.filter(|_| !question.changes.is_empty() || is_other);
        let is_known = elsewhere.is_none() && inferred().any(|hidden| hidden.batch == 1);
        let is_open = is_above || elsewhere.is_some() || is_other && inferred().next().is_none();
        if !self.tells_nothing || is_known || !is_open {
            return None;
        }
        let why = match elsewhere {
            Some(who) => format!("whether a request waits in {who}, which is no tier"),
            None if batches => "how large a batch may be".to_owned(),
            None => "what a request waits for".to_owned(),
        };
        reaches_down(question, told, carried).then(|| {
            format!(
                "nothing tells {why}, so it may carry no more than the {carried:.0}/s that were measured with \
                 {present:.0} at once; a run of what is asked tells"
            )
        })
    }

    /// Other ways in which what was inferred may be, of which no run tells: their facts, and why.
    fn other_ways(&self, question: &Question) -> Vec<Way> {
        let mut ways: Vec<Way> = Vec::new();
        let mut add = |change: &dyn Fn(&str, &mut TierFacts), why: String| {
            let mut facts = self.common.facts.clone();
            facts.iter_mut().for_each(|(tier, facts)| change(tier, facts));
            if facts != self.common.facts && ways.iter().all(|(known, _)| *known != facts) {
                ways.push((facts, why));
            }
        };
        let several = question.graph.tiers.iter().filter(|node| node.instances > 1);
        for node in several {
            let share = |tier: &str, facts: &mut TierFacts| {
                let own = facts.hidden.as_mut().filter(|hidden| hidden.is.is_empty());
                own.filter(|_| node.tier == *tier).into_iter().for_each(|own| own.shared = true);
            };
            let why = format!(
                "nothing tells whether the instances of {} share what was inferred: the intervals hold both, and \
                 the prediction is for one of its own each; a run with two instances tells",
                node.tier
            );
            add(&share, why);
        }
        if self.sources.runs.iter().any(|facts| !facts.tiers.is_empty()) {
            return ways;
        }
        // Times of a tier are divided by its speed: as if all that is waited for were in one, for each of them. Who waits for
        // a station waits in its tier or in one before it.
        let is_leaf = |tier: &String| question.graph.behind(&TierId::stored(tier)).next().is_none();
        let is_placed = self.common.form.waits_in.as_ref().is_some_and(is_leaf);
        let why = "nothing tells in which tier a request waits for what is no processor: the intervals hold any of them; \
                   a run of each tier by itself tells";
        for node in question.graph.tiers.iter().filter(|_| !is_placed) {
            let Some(before) = self.instances_of_all_runs(&node.tier) else { continue };
            // Were it of this tier, there would be as many times more of it as instances.
            let of_this = |tier: &str, facts: &mut TierFacts| {
                let elsewhere = facts.hidden.as_mut().filter(|own| own.is.is_empty());
                elsewhere.filter(|_| node.tier != *tier).into_iter().for_each(|own| {
                    let all = own.servers.saturating_mul(node.instances);
                    own.servers = (all / before.max(1)).max(1);
                });
            };
            add(&of_this, why.to_owned());
        }
        for node in &question.graph.tiers {
            let wait_here = |tier: &str, facts: &mut TierFacts| {
                let by = speed(question, tier) / speed(question, node.tier.as_str());
                facts.wait_s *= by;
                let held = facts.hidden.as_mut().filter(|_| !is_placed);
                held.into_iter().for_each(|held| held.take(by));
            };
            add(&wait_here, why.to_owned());
        }
        let light: Vec<&RunFacts> = self.sources.runs.iter().collect();
        let light = lightest(&light, self.sources.most_foreign);
        for change in &question.changes {
            let Change::HostSpeed { times, .. } = change else { continue };
            let computes = |tier: &str, facts: &mut TierFacts| {
                let outside = facts.hidden.as_mut().filter(|hidden| !hidden.with_work);
                let cpu_s = cpu_of(light, &TierId::stored(tier));
                outside.into_iter().for_each(|held| {
                    let share = (cpu_s / held.time_s).min(1.0);
                    held.take(1.0 - share + share / times);
                });
            };
            let why = "nothing tells whether what was inferred is held while its tier computes: the intervals hold both; a \
                       run with processors of another speed tells";
            add(&computes, why.to_owned());
        }
        ways
    }

    /// How many instances of a tier there were, where no run had another number.
    fn instances_of_all_runs(&self, tier: &TierId) -> Option<u32> {
        let nodes = self.loads.iter().flat_map(|run| &run.graph.tiers);
        let mut counts = nodes.filter(|node| node.tier == *tier).map(|node| node.instances);
        let first = counts.next()?;
        counts.all(|count| count == first).then_some(first)
    }

    /// A pool of a service of which none is known would be one more station beside the one that limits, and change nothing.
    fn knows_pools(&self, question: &Question) -> Result<(), AskError> {
        let of_graph = |graph: &Graph| graph.tiers.iter().all(|node| node.pools.is_empty());
        let knows_none = self.loads.iter().all(|run| of_graph(&run.graph));
        let mut pools = question.graph.tiers.iter().flat_map(|node| {
            node.pools.iter().map(move |pool| (node.tier.to_string(), pool.of.as_str().to_owned()))
        });
        match pools.next().filter(|_| self.tells_nothing && knows_none) {
            Some((tier, of)) => Err(AskError::UnknownPool { tier, of }),
            None => Ok(()),
        }
    }

    /// An answer that no structure gave.
    fn told(
        &self,
        question: &Question,
        system: &System,
        along: Option<&Along<'_>>,
        (model, [x, mean, p50, p90, p99]): (Model, Five),
    ) -> Answer {
        let bends = along.is_some_and(|along| along.bends(x.center));
        let without_host = if bends { Bottleneck::Unseen } else { Bottleneck::Nothing };
        let busy = self.twin.busy(system, &x);
        let full = busy.iter().find(|host| host.share.center > BUSY);
        let bottleneck =
            full.map_or(without_host, |host| Bottleneck::Host { name: host.name.clone() });
        let mut distances = self.twin.distances(&question.levels);
        if let Model::Between { key, levels: [below, above], .. } = &model {
            for distance in distances.iter_mut().filter(|distance| distance.level == *key) {
                distance.measured = (*below, *above);
            }
        }
        let mut caveats: Vec<String> = self.disturbed.iter().cloned().collect();
        if let (Model::Curve { .. }, Some(far)) =
            (&model, distances.iter().find(|distance| distance.extrapolates()))
        {
            caveats.push(format!(
                "{} = {} was not run ({} to {} were): whether throughput still grows there is what the interval \
                 leaves open; a run there tells",
                far.level, far.asked, far.measured.0, far.measured.1
            ));
        }
        let prediction = Prediction {
            throughput_per_s: x,
            response_mean_s: mean,
            response_p50_s: p50,
            response_p90_s: p90,
            response_p99_s: p99,
            hosts: busy,
            pools: Vec::new(),
            bottleneck,
            distances,
            analytic_throughput_per_s: None,
            caveats,
        };
        Answer { prediction, assumed: Vec::new(), model, ladder: Vec::new() }
    }

    /// The structure of a question.
    ///
    /// # Errors
    /// [`AskError::NoHost`], [`AskError::Structure`].
    pub fn system(&self, question: &Question) -> Result<System, AskError> {
        self.system_of(question, &self.common.facts)
    }

    /// The same by other facts.
    fn system_of(
        &self,
        question: &Question,
        facts: &BTreeMap<String, TierFacts>,
    ) -> Result<System, AskError> {
        let (hosts, placement) = self.hosts(&question.changes)?;
        let mut facts = facts.clone();
        for change in &question.changes {
            match change {
                Change::Speed { tier, times } => {
                    facts.entry(tier.clone()).or_default().speed = *times
                }
                Change::HitRatio { tier, share } => {
                    let of = facts.entry(tier.clone()).or_default();
                    let calibrated = of.misses.map_or(1.0, |misses| misses.calibrated);
                    of.misses = Some(Misses { share: 1.0 - share, calibrated });
                }
                _ => {}
            }
        }
        let load = (question.workload, question.generator_threads);
        let batch = question.batch;
        Ok(self.common.system(&question.graph, load, batch, (hosts, placement), &facts)?)
    }

    fn hosts(&self, changes: &[Change]) -> Result<(Vec<Host>, BTreeMap<String, usize>), AskError> {
        let mut hosts = self.common.measured_hosts();
        let mut placement = self.common.places.clone();
        // A host that was never there has as many cores as the first that was.
        let cores = hosts.first().map_or(1, |host| host.cores);
        for change in changes {
            let Change::Placement { part, host: name } = change else { continue };
            let known = hosts.iter().position(|host| host.name == *name);
            let place = known.unwrap_or_else(|| {
                hosts.push(Host { name: name.clone(), cores, speed: 1.0 });
                hosts.len() - 1
            });
            placement.insert(part.clone(), place);
        }
        for change in changes {
            let (Change::Cores { host: name, .. } | Change::HostSpeed { host: name, .. }) = change
            else {
                continue;
            };
            let Some(host) = hosts.iter_mut().find(|host| host.name == *name) else {
                let known: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
                return Err(AskError::NoHost { name: name.clone(), known: known.join(", ") });
            };
            match change {
                Change::HostSpeed { times, .. } => host.speed = *times,
                Change::Cores { count, .. } => host.cores = *count,
                _ => {}
            }
        }
        Ok((hosts, placement))
    }

    /// Time that a worker of a tier is held without a processor or another tier, in s.
    pub fn own_wait_s(&self, tier: &str) -> Option<f64> {
        self.common.facts.get(tier).map(|facts| facts.wait_s)
    }

    /// The station in a tier that no counter shows, where the curve shows it.
    pub fn inferred(&self, tier: &str) -> Option<&Hidden> {
        self.common.facts.get(tier)?.hidden.as_ref()
    }

    /// Which parts share which processors.
    fn shared(&self, changes: &[Change]) -> String {
        let Ok((hosts, places)) = self.hosts(changes) else { return String::new() };
        if let [host] = hosts.as_slice() {
            let Host { name, cores, .. } = host;
            return format!(
                "all processes share the {cores} cores of {name}, the load generator too"
            );
        }
        let on = |(at, host): (usize, &Host)| {
            let parts = places.iter().filter(|(_, place)| **place == at);
            let parts: Vec<&str> = parts.map(|(part, _)| part.as_str()).collect();
            format!("{} the {} cores of {}", parts.join(" and "), host.cores, host.name)
        };
        let hosts: Vec<String> = hosts.iter().enumerate().map(on).collect();
        format!(
            "processes share the processors of their host and of no other: {}",
            hosts.join("; ")
        )
    }

    fn assumed(&self, question: &Question) -> Vec<String> {
        let mut assumed = self.assumptions.clone();
        if let Some(first) = assumed.first_mut() {
            *first = self.shared(&question.changes);
        }
        if question.graph.tiers.iter().any(|tier| tier.instances > 1) {
            assumed.push(
                "instances of a tier share its requests evenly, and a request costs the same however \
                 many there are"
                    .to_owned(),
            );
        }
        let moved = |change: &Change| matches!(change, Change::Placement { .. });
        if question.changes.iter().any(moved) {
            assumed.push(
                "between hosts there is no delay but that of the links, and each has the cores of \
                 the measured one unless asked otherwise"
                    .to_owned(),
            );
        }
        for (tier, ratio) in question.hit_ratios() {
            assumed.push(format!(
                "of the requests to {tier} {:.1} % are answered without its workers and without what \
                 is behind it",
                100.0 * ratio
            ));
        }
        assumed
    }
}

/// How many times faster a tier is asked to be.
fn speed(question: &Question, of: &str) -> f64 {
    let mut changes = question.changes.iter();
    let asked = changes.find_map(|change| match change {
        Change::Speed { tier, times } if tier == of => Some(*times),
        _ => None,
    });
    asked.unwrap_or(1.0)
}

/// Throughput of a closed load may be as low as this; whether it was not before.
fn reaches_down(question: &Question, [x, r]: &mut [Interval; 2], throughput_per_s: f64) -> bool {
    let Workload::Closed { clients, think_time_s } = question.workload else { return false };
    let is_lower = throughput_per_s < x.low;
    if is_lower {
        let slowest = f64::from(clients) / throughput_per_s - think_time_s;
        (x.low, x.why) = (throughput_per_s, Why::Model);
        (r.high, r.why) = (r.high.max(slowest), Why::Model);
    }
    is_lower
}

/// Fewest values that tell a distribution.
const LEAST_VALUES: u64 = 30;

/// The shape of a histogram; `None` where there are too few values.
fn spread(histogram: &Histogram) -> Option<Spread> {
    if histogram.count() < LEAST_VALUES {
        return None;
    }
    let mut values = [0.0; 15];
    for (value, level) in values.iter_mut().zip(Spread::LEVELS) {
        *value = exact_f64(histogram.quantile(level)?);
    }
    Spread::measured(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a tier without others behind it, whose workers wait 0.4 ms a request for a core and all its threads 1.1 ms.
    #[test]
    fn what_other_threads_wait_is_no_part_of_the_path() {
        let node = TierNode {
            tier: TierId::fixed("timer"),
            kind: String::new(),
            instances: 1,
            pools: Vec::new(),
        };
        let graph = Graph { tiers: vec![node.clone()], edges: Vec::new() };
        let used = PartUse {
            run_queue_wait_s: 1.1e-3,
            worker_run_queue_wait_s: Some(0.4e-3),
            ..PartUse::default()
        };
        assert!((waited_for_a_core(&used, &graph, &node) - 0.2e-3).abs() < 1e-12);
        let unnamed = PartUse { worker_run_queue_wait_s: None, ..used };
        assert!((waited_for_a_core(&unnamed, &graph, &node) - 1.1e-3).abs() < 1e-12);
    }

    #[test]
    fn workers_that_no_pool_names_are_threads_of_their_tier() {
        let used = PartUse { worker_threads: 2, other_threads: 1, ..PartUse::default() };
        assert_eq!(threads(&[&used], true), 1);
        assert_eq!(threads(&[&used, &PartUse { worker_threads: 1, ..used }], false), 3);
        assert_eq!(threads(&[], false), 1);
    }
}
