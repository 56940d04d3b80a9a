//! Replications: started, warmed up, lengthened until the intervals are narrow enough.

use super::analysis::{self, Batch, Verdict};
use super::engine::{Engine, Halt};
use super::plan::Plan;
use super::single_station::Line;
use super::tally::{SystemCell, Times, Totals};
use super::{Doubt, Progress, Settings, SimulationError};

/// Events of each replication in the first search for the end of the warm-up.
const FIRST_EVENTS: u64 = 20_000;
/// Batches of a series in which the end of the warm-up is searched.
const WARM_UP_BATCHES: usize = 200;
/// Batches of a replication whose dependence is judged, at least.
const BATCHES: usize = 20;
/// Fewest replications from which an interval is made of their means.
pub(super) const FEWEST_REPLICATIONS: u32 = 5;
/// Batches that replace replications where fewer were asked for.
const BATCH_MEANS: u32 = 32;
/// Events for each customer that may end, after which it ends in any case.
const EVENTS_PER_CUSTOMER: u64 = 200;
/// Most events without a completion or an abandonment.
const EVENTS_FOR_NOTHING: u64 = 5_000_000;
/// Share of the customers that the warm-up may take.
const WARM_UP_SHARE: f64 = 0.25;

/// What the replications counted after the warm-up, and how it ended.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) totals: Vec<Totals>,
    pub(super) warm_up_s: f64,
    pub(super) precise: bool,
    /// The replications are long enough for intervals.
    pub(super) long_enough: bool,
    pub(super) doubts: Vec<Doubt>,
    pub(super) batch_means: bool,
    pub(super) events: u64,
}

impl Sample {
    fn end(&mut self, verdict: &Verdict, totals: &[&Totals], settings: &Settings) {
        self.long_enough = verdict.long_enough();
        self.precise = verdict.precise && self.long_enough;
        self.doubts.extend(verdict.doubts(settings));
        self.events = totals.iter().map(|totals| totals.events).sum();
    }
}

/// What runs a replication: a line where the plan is one, else the engine.
enum Runner<'p> {
    Network(Engine<'p>),
    Line(Line<'p>),
}

impl<'p> Runner<'p> {
    fn new(plan: &'p Plan, settings: &Settings, replication: u32) -> Self {
        let most = settings.most_present;
        Line::new(plan, settings.seed, replication, most).map_or_else(
            || Self::Network(Engine::new(plan, settings.seed, replication, most)),
            Self::Line,
        )
    }

    fn now(&self) -> f64 {
        match self {
            Self::Network(engine) => engine.now,
            Self::Line(line) => line.now,
        }
    }

    fn run(&mut self, until: f64) -> Result<(), Halt> {
        // Times beyond the largest number count as that one, and an empty list of events as later.
        let until = until.min(f64::MAX);
        match self {
            Self::Network(engine) => engine.run(until),
            Self::Line(line) => line.run(until),
        }
    }

    fn run_events(&mut self, count: u64) -> Result<(), Halt> {
        match self {
            Self::Network(engine) => engine.run_events(count),
            Self::Line(line) => line.run_events(count),
        }
    }

    fn take(&mut self) -> Totals {
        match self {
            Self::Network(engine) => engine.take(),
            Self::Line(line) => line.take(),
        }
    }

    /// Customers that completed or gave up since the last call of [`take`](Self::take).
    fn ended(&self) -> u64 {
        match self {
            Self::Network(engine) => engine.systems.iter().map(SystemCell::ended).sum(),
            Self::Line(line) => line.ended(),
        }
    }

    /// ∫ number dt of each station since the last call of [`take`](Self::take).
    fn areas(&self) -> Vec<f64> {
        match self {
            Self::Network(engine) => engine.stations.iter().map(|s| s.tally.area).collect(),
            Self::Line(line) => vec![line.tally.area],
        }
    }

    /// Sum and number of the response times of each class since then.
    fn responses(&self) -> Vec<(f64, f64)> {
        let sums = |times: &Times| (times.sum, kendall_units::exact_f64(times.count));
        match self {
            Self::Network(engine) => engine.systems.iter().map(|s| sums(&s.response)).collect(),
            Self::Line(line) => vec![sums(&line.response)],
        }
    }
}

/// One replication and what is kept of it.
struct Replication<'p> {
    runner: Runner<'p>,
    totals: Totals,
    /// Batch by batch, since the warm-up.
    batches: Vec<Batch>,
    failed: Option<Halt>,
}

pub(super) fn run(
    plan: &Plan,
    settings: &Settings,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Sample, SimulationError> {
    let batch_means = settings.replications < FEWEST_REPLICATIONS;
    let count = if batch_means { 1 } else { settings.replications };
    let budget = WARM_UP_SHARE * kendall_units::exact_f64(settings.most_customers);
    let length = pilot(plan, settings, budget / f64::from(count))?;
    let mut replications: Vec<Replication<'_>> = (0..count)
        .map(|index| Replication {
            runner: Runner::new(plan, settings, index),
            totals: Totals::default(),
            batches: Vec::new(),
            failed: None,
        })
        .collect();
    let mut doubts = Vec::new();
    let (warm_up_s, spent) = warm_up(&mut replications, length, budget, settings, &mut doubts)?;
    let mut sample = Sample {
        totals: Vec::new(),
        warm_up_s,
        precise: false,
        long_enough: false,
        doubts,
        batch_means,
        events: 0,
    };
    // What is left of the cap.
    let room = (kendall_units::exact_f64(settings.most_customers) - spent).max(0.0);
    if batch_means {
        let most_s = if spent > 0.0 { warm_up_s * room / spent } else { f64::INFINITY };
        by_batches(&mut replications[0], plan, settings, (room, most_s), &mut sample, progress)?;
    } else {
        by_replications(&mut replications, plan, settings, room, &mut sample, progress)?;
    }
    Ok(sample)
}

/// Simulated time of the first events, or of so many customers if that is shorter: what the search
/// for the end of the warm-up begins with.
fn pilot(plan: &Plan, settings: &Settings, most: f64) -> Result<f64, SimulationError> {
    use super::plan::Kind::{Child, Closed};
    if plan.classes.iter().all(|class| matches!(class.kind, Closed { population: 0 } | Child)) {
        // Without customers any length of the run does.
        return Ok(1.0);
    }
    let first = FIRST_EVENTS.max(5 * population(plan));
    let mut pilot = Runner::new(plan, settings, 0);
    let mut events = 0;
    while events < first && kendall_units::exact_f64(pilot.ended()) < most {
        // In steps of an eighth of what was run, so that it is not much more than that.
        let step = (events / 8).max(8).min(first - events);
        pilot.run_events(step).map_err(|halt| failure(halt, settings))?;
        events += step;
    }
    let length = pilot.now();
    if length > 0.0 && length.is_finite() {
        Ok(length)
    } else {
        Err(SimulationError::NothingHappens)
    }
}

fn population(plan: &Plan) -> u64 {
    plan.classes
        .iter()
        .map(|class| match class.kind {
            super::plan::Kind::Closed { population } => u64::from(population),
            _ => 0,
        })
        .sum()
}

/// Runs until the number of customers at the busiest stations is stationary in the second half
/// of what was run, and forgets all of it. Returns its simulated time, and how many customers of
/// all replications completed or gave up in it.
fn warm_up(
    replications: &mut [Replication<'_>],
    length: f64,
    budget: f64,
    settings: &Settings,
    doubts: &mut Vec<Doubt>,
) -> Result<(f64, f64), SimulationError> {
    let mut batch = length / kendall_units::exact_f64(WARM_UP_BATCHES);
    let mut time = 0.0;
    let mut done;
    loop {
        let missing = WARM_UP_BATCHES - replications[0].batches.len();
        advance(replications, settings, missing, batch)?;
        time += batch * kendall_units::exact_f64(missing);
        let series: Vec<&[Batch]> = replications.iter().map(|r| r.batches.as_slice()).collect();
        let settled = analysis::settled(&series);
        done = replications.iter().map(|r| ended(&r.totals)).sum::<f64>();
        // The next search runs as long again.
        if settled || 2.0 * done > budget || spent(&[&replications[0].totals], settings) {
            if !settled {
                doubts.push(Doubt::WarmUpNotFound { simulated_s: time });
            }
            break;
        }
        for replication in replications.iter_mut() {
            analysis::merge_pairs(&mut replication.batches);
        }
        batch *= 2.0;
    }
    for replication in replications.iter_mut() {
        replication.totals = Totals::default();
        replication.batches.clear();
    }
    Ok((time, done))
}

/// Customers that completed or gave up.
fn ended(totals: &Totals) -> f64 {
    kendall_units::exact_f64(totals.systems.iter().map(SystemCell::ended).sum::<u64>())
}

/// Whether events were spent without customers to show for them.
fn spent(totals: &[&Totals], settings: &Settings) -> bool {
    let events: u64 = totals.iter().map(|totals| totals.events).sum();
    let done = totals.iter().any(|totals| ended(totals) > 0.0);
    events >= settings.most_customers.saturating_mul(EVENTS_PER_CUSTOMER)
        || (!done && events >= EVENTS_FOR_NOTHING)
}

fn by_replications(
    replications: &mut [Replication<'_>],
    plan: &Plan,
    settings: &Settings,
    room: f64,
    sample: &mut Sample,
    progress: &mut dyn FnMut(&Progress),
) -> Result<(), SimulationError> {
    // The first round is as long as the warm-up, in as many batches as dependence is judged on.
    let mut batch = 2.0 * sample.warm_up_s / kendall_units::exact_f64(2 * BATCHES);
    let mut wanted = 2 * BATCHES;
    loop {
        let more = wanted - replications[0].batches.len();
        advance(replications, settings, more, batch)?;
        let totals: Vec<&Totals> = replications.iter().map(|r| &r.totals).collect();
        let done: f64 = totals.iter().map(|totals| ended(totals)).sum();
        let series: Vec<&[Batch]> = replications.iter().map(|r| r.batches.as_slice()).collect();
        let verdict = analysis::judge(plan, &totals, &series, settings);
        report(progress, settings, room, done, &verdict);
        let now = replications[0].batches.len();
        let batches = kendall_units::exact_f64(now);
        let affordable = (batches * room / done.max(1.0)).floor();
        if verdict.enough() || affordable <= batches || spent(&totals, settings) {
            sample.end(&verdict, &totals, settings);
            break;
        }
        let longer = ((batches * verdict.growth()).ceil() + 1.0).min(affordable);
        wanted = usize::try_from(kendall_units::whole_u64(longer)).unwrap_or(now);
        while wanted > 8 * BATCHES {
            replications.iter_mut().for_each(|r| analysis::merge_pairs(&mut r.batches));
            batch *= 2.0;
            wanted = wanted.div_ceil(2);
        }
        wanted = wanted.max(replications[0].batches.len() + 1);
    }
    sample.totals = replications.iter_mut().map(|r| std::mem::take(&mut r.totals)).collect();
    Ok(())
}

/// One long replication, cut into batches that double in length as often as is needed.
fn by_batches(
    replication: &mut Replication<'_>,
    plan: &Plan,
    settings: &Settings,
    (room, most_s): (f64, f64),
    sample: &mut Sample,
    progress: &mut dyn FnMut(&Progress),
) -> Result<(), SimulationError> {
    let half = BATCH_MEANS as usize / 2;
    let mut length = (4.0 * sample.warm_up_s).min(most_s) / kendall_units::exact_f64(2 * half);
    let mut batches: Vec<Totals> = Vec::new();
    loop {
        while batches.len() < 2 * half {
            let one = std::slice::from_mut(replication);
            one[0].totals = Totals::default();
            advance(one, settings, 1, length)?;
            batches.push(std::mem::take(&mut replication.totals));
        }
        let totals: Vec<&Totals> = batches.iter().collect();
        let done: f64 = totals.iter().map(|totals| ended(totals)).sum();
        let from = replication.batches.len() - 2 * half;
        let verdict = analysis::judge(plan, &totals, &[&replication.batches[from..]], settings);
        report(progress, settings, room, done, &verdict);
        if verdict.enough() || 2.0 * done > room || spent(&totals, settings) {
            sample.end(&verdict, &totals, settings);
            break;
        }
        let mut merged = Vec::with_capacity(2 * half);
        let mut pairs = batches.into_iter();
        while let (Some(mut first), Some(second)) = (pairs.next(), pairs.next()) {
            first.add(second);
            merged.push(first);
        }
        batches = merged;
        analysis::merge_pairs(&mut replication.batches);
        length *= 2.0;
    }
    sample.totals = batches;
    Ok(())
}

fn report(
    progress: &mut dyn FnMut(&Progress),
    settings: &Settings,
    room: f64,
    ended: f64,
    verdict: &Verdict,
) {
    let warm_up = kendall_units::exact_f64(settings.most_customers) - room;
    progress(&Progress {
        ended_customers: kendall_units::whole_u64(ended + warm_up),
        relative_half_width: verdict.widest.max(verdict.pooled),
        wanted: settings.relative_half_width,
    });
}

/// Runs every replication for `count` batches of `batch` seconds, on the threads that were given.
/// Which thread runs which does not matter to the outcome.
fn advance(
    replications: &mut [Replication<'_>],
    settings: &Settings,
    count: usize,
    batch: f64,
) -> Result<(), SimulationError> {
    let threads = usize::try_from(settings.threads).unwrap_or(1).clamp(1, replications.len());
    if threads == 1 {
        replications.iter_mut().for_each(|replication| replication.advance(count, batch));
    } else {
        let mut shares: Vec<Vec<&mut Replication<'_>>> = (0..threads).map(|_| vec![]).collect();
        for (index, replication) in replications.iter_mut().enumerate() {
            shares[index % threads].push(replication);
        }
        std::thread::scope(|scope| {
            for share in shares {
                scope.spawn(move || {
                    share.into_iter().for_each(|replication| replication.advance(count, batch));
                });
            }
        });
    }
    match replications.iter().find_map(|replication| replication.failed) {
        Some(halt) => Err(failure(halt, settings)),
        None => Ok(()),
    }
}

impl Replication<'_> {
    fn advance(&mut self, count: usize, batch: f64) {
        // The tallies go on over the batches, which are their differences: taking them anew for
        // each would cost a tenth of the time.
        let mut before = (self.runner.areas(), self.runner.responses());
        for _ in 0..count {
            if let Err(halt) = self.runner.run(self.runner.now() + batch) {
                self.failed = Some(halt);
                return;
            }
            let after = (self.runner.areas(), self.runner.responses());
            let numbers = after.0.iter().zip(&before.0).map(|(now, then)| (now - then) / batch);
            let responses =
                after.1.iter().zip(&before.1).map(|(now, then)| (now.0 - then.0, now.1 - then.1));
            self.batches.push(Batch { numbers: numbers.collect(), responses: responses.collect() });
            before = after;
        }
        self.totals.add(self.runner.take());
    }
}

fn failure(halt: Halt, settings: &Settings) -> SimulationError {
    match halt {
        Halt::TooManyCustomers { time } => {
            SimulationError::Overflow { time_s: time, customers: settings.most_present }
        }
        Halt::Deadlock { time } => SimulationError::Deadlock { time_s: time },
        Halt::ClockStands { time } => SimulationError::ClockStands { time_s: time },
        Halt::TooManyEvents { time } => SimulationError::TooManyEvents { time_s: time },
    }
}
