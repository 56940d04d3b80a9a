//! How often a machine whose speed drifts makes Kendall say "significant" where nothing changed:
//! effects of a design, comparisons, a trend over commits, a search for the maximum.
//!
//! The throughput of a run is in proportion to the machine's speed while it lasts, and scatters by 1 %
//! besides. Nothing that is varied does anything. `make bench-coverage` prints the table.

#![expect(clippy::unwrap_used, reason = "a test: what cannot be computed fails it")]

use kendall_stats::adaptive::{Search, Settings, Shape, Step};
use kendall_stats::analysis::{
    self, Covariate, Model, Observation, Options as Analyzed, Table, analyze_with,
};
use kendall_stats::compare::trend::change_points;
use kendall_stats::compare::{Better, Options, Quantity, Samples, compare};
use kendall_stats::design::block_order;
use kendall_stats::distribution::normal_quantile;
use kendall_stats::stopping::StoppingRule;
use kendall_units::exact_f64;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

/// How the speed goes from run to run: standard deviation of its logarithm, correlation of neighboring
/// runs, and the chance of each run to be the last before the machine loses a fifth or gets it back.
#[derive(Debug, Clone, Copy)]
struct Drift {
    name: &'static str,
    spread: f64,
    memory: f64,
    jumps: f64,
}

const DRIFTS: [Drift; 6] = [
    Drift { name: "none", spread: 0.0, memory: 0.0, jumps: 0.0 },
    Drift { name: "10 %, new in every run", spread: 0.1, memory: 0.0, jumps: 0.0 },
    Drift { name: "10 %, forgotten after 2 runs", spread: 0.1, memory: 0.5, jumps: 0.0 },
    Drift { name: "10 %, forgotten after 10 runs", spread: 0.1, memory: 0.9, jumps: 0.0 },
    Drift { name: "10 %, forgotten after 50 runs", spread: 0.1, memory: 0.98, jumps: 0.0 },
    Drift { name: "a fifth slower now and then", spread: 0.0, memory: 0.0, jumps: 0.05 },
];

/// Scatter of a run beside the machine, and of the probe.
const OWN: f64 = 0.01;
const OF_PROBE: f64 = 0.005;

struct Machine {
    drift: Drift,
    rng: Xoshiro256PlusPlus,
    level: f64,
    slow: bool,
}

impl Machine {
    fn new(drift: Drift, seed: u64) -> Self {
        let mut machine =
            Self { drift, rng: Xoshiro256PlusPlus::seed_from_u64(seed), level: 0.0, slow: false };
        machine.level = drift.spread * machine.normal();
        machine.slow = drift.jumps > 0.0 && machine.rng.random::<bool>();
        machine
    }

    fn normal(&mut self) -> f64 {
        normal_quantile(self.rng.random::<f64>().clamp(1e-15, 1.0 - 1e-15))
    }

    /// Throughput of the next run over its true mean, and what the probe says.
    fn run(&mut self) -> (f64, f64) {
        let Drift { spread, memory, jumps, .. } = self.drift;
        let fresh = spread * (1.0 - memory * memory).sqrt() * self.normal();
        self.level = memory * self.level + fresh;
        if self.rng.random::<f64>() < jumps {
            self.slow = !self.slow;
        }
        let log = self.level + if self.slow { 0.8_f64.ln() } else { 0.0 };
        let throughput = (log + OWN * self.normal()).exp();
        (throughput, (-log + OF_PROBE * self.normal()).exp())
    }
}

/// A 2³ with three repetitions in randomized blocks, analyzed with blocks: the share of its seven effects
/// that are called significant; of the studies whose effects are also given at one speed, and of those
/// effects the share whose interval does not hold 0.
fn effects(drift: Drift, studies: u64) -> (f64, f64, f64) {
    let (mut told, mut shown, mut given, mut wrong) = (0.0, 0.0, 0.0, 0.0);
    for seed in 0..studies {
        let mut machine = Machine::new(drift, seed);
        let (mut observations, mut speeds) = (Vec::new(), Vec::new());
        for block in 0..3 {
            for cell in block_order((0..8_u32).collect(), block, seed) {
                let (value, speed) = machine.run();
                speeds.push(speed);
                observations.push(Observation {
                    levels: (0..3).map(|factor| (cell >> factor & 1).to_string()).collect(),
                    block: Some(block.to_string()),
                    order: None,
                    value,
                });
            }
        }
        let factors = ["a", "b", "c"].map(str::to_owned).to_vec();
        let options =
            Analyzed { model: Some(Model::Multiplicative), blocks: true, ..Analyzed::default() };
        let table = Table { factors, observations };
        let found = analyze_with(&table, &options, &[], Some(&speeds)).unwrap();
        let effects = found.fit.terms.iter().filter(|term| !term.factors.is_empty());
        told += exact_f64(effects.filter(|term| term.significant == Some(true)).count()) / 7.0;
        if let Some(Covariate::Used(at_one)) = &found.covariate {
            shown += 1.0;
            given += exact_f64(at_one.effects.len());
            let outside =
                |one: &&analysis::EffectAtOneValue| !one.effect.interval.unwrap().contains(0.0);
            wrong += exact_f64(at_one.effects.iter().filter(outside).count());
        }
    }
    let studies = exact_f64(studies);
    (told / studies, shown / studies, if given > 0.0 { wrong / given } else { f64::NAN })
}

/// Ten runs a side: share of sessions in which a difference is significant.
fn differences(drift: Drift, in_turns: bool, sessions: u64) -> f64 {
    let told = (0..sessions).filter(|seed| {
        let mut machine = Machine::new(drift, *seed + 100_000);
        let mut sides = [Vec::new(), Vec::new()];
        if in_turns {
            for block in 0..10 {
                for side in block_order(vec![0, 1], block, *seed) {
                    sides[side].push((Some(block.to_string()), machine.run().0));
                }
            }
        } else {
            for side in &mut sides {
                side.extend((0..10).map(|block| (Some(block.to_string()), machine.run().0)));
            }
        }
        let [before, after] = sides;
        let samples = Samples {
            configuration: String::new(),
            metric: String::new(),
            quantity: Quantity::Number,
            better: Better::Higher,
            before,
            after,
        };
        let options = Options { confidence: 0.95, bound: 0.001, paired: in_turns };
        let found = compare(&[samples], &options, &mut machine.rng).unwrap();
        found[0].p_value.unwrap() < 0.05
    });
    exact_f64(told.count()) / exact_f64(sessions)
}

/// Twelve commits, three runs each: share of the series in which a change is found. `apart`: as many
/// runs of something else lie between two commits; without, one session measures all.
fn changes(drift: Drift, apart: usize, series: u64) -> f64 {
    let told = (0..series).filter(|seed| {
        let mut machine = Machine::new(drift, *seed + 200_000);
        let sets: Vec<Vec<f64>> = (0..12)
            .map(|_| {
                (0..apart).for_each(|_| {
                    machine.run();
                });
                (0..3).map(|_| machine.run().0).collect()
            })
            .collect();
        !change_points(&sets, 0.95, &mut machine.rng).unwrap().is_empty()
    });
    exact_f64(told.count()) / exact_f64(series)
}

/// A hard limit at 40 of 200 clients: share of the searches that say that the throughput falls beyond
/// its maximum, and of those whose interval of the maximum does not hold the truth.
fn searches(drift: Drift, seeds: u64) -> (f64, f64) {
    let (mut falls, mut outside) = (0.0, 0.0);
    for seed in 0..seeds {
        let mut machine = Machine::new(drift, seed + 300_000);
        let rule = StoppingRule { min: 3, max: 10, relative_half_width: 0.03, confidence: 0.95 };
        let mut search = Search::new(Settings { low: 1, high: 200, rule }).unwrap();
        let outcome = loop {
            match search.next() {
                Step::Run { load, .. } => {
                    let truth = 100.0 * exact_f64(load.min(40));
                    search.record(load, truth * machine.run().0).unwrap();
                }
                Step::Done { outcome } => break outcome,
            }
        };
        let down = matches!(outcome.shape, Shape::Retrograde | Shape::Cliff);
        // The truth is that of a machine at its mean speed; one that jumps is never at it.
        let interval = outcome.maximum_throughput.interval.unwrap();
        falls += f64::from(u8::from(down)) / exact_f64(seeds);
        outside += f64::from(u8::from(!interval.contains(4_000.0))) / exact_f64(seeds);
    }
    (falls, outside)
}

/// What randomized blocks and pairs promise holds however the machine drifts: 5 %, and three standard
/// errors of 300 studies (7 effects that share an error) and sessions (3.8 %).
#[test]
fn blocks_and_pairs_keep_their_error_on_a_machine_that_drifts() {
    for drift in DRIFTS {
        let (told, shown, wrong) = effects(drift, 300);
        assert!(told < 0.088, "{}: {told}", drift.name);
        // Where nothing drifts, one study in a hundred shows effects at one speed, by chance.
        assert!(shown < 0.04 || wrong < 0.088, "{}: {wrong} of {shown}", drift.name);
        let pairs = differences(drift, true, 300);
        assert!(pairs < 0.088, "{}: {pairs}", drift.name);
    }
}

#[test]
#[ignore = "a minute; `make bench-coverage` runs it and prints the table"]
fn the_table_of_wrong_verdicts_on_a_drifting_machine() {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    println!(
        "| the machine's speed | effects | at one speed: shown, wrong | in turns | one after the other | \
         trend: far apart, one session | search: falls, maximum missed |"
    );
    for drift in DRIFTS {
        let (told, shown, wrong) = effects(drift, 2_000);
        let turns = differences(drift, true, 2_000);
        let sets = differences(drift, false, 2_000);
        let (apart, one) = (changes(drift, 200, 1_000), changes(drift, 0, 1_000));
        let (falls, outside) = searches(drift, 1_000);
        let outside = if drift.jumps > 0.0 { "–".to_owned() } else { percent(outside) };
        println!(
            "| {} | {} | {}, {} | {} | {} | {}, {} | {}, {} |",
            drift.name,
            percent(told),
            percent(shown),
            percent(wrong),
            percent(turns),
            percent(sets),
            percent(apart),
            percent(one),
            percent(falls),
            outside
        );
    }
}
