//! Which runs a study asks for, in which order, and which of them come next.
//!
//! The next run is a function of the study file and of the runs that have ended, so a study that
//! was killed resumes exactly where it stopped.

use std::collections::BTreeMap;

use kendall_stats::design::fraction::Fraction;
use kendall_stats::design::{Design, DesignError, Factor as DesignFactor, block_order};
use kendall_stats::stopping::{Decision, Evidence, StoppingRule, unlike};
use kendall_store::{FactorLevel, SearchLine, Status};

use crate::calibration::Grid;
use crate::file::{DesignKind, Refusal, StudyFile};
use crate::search::{self, Next};
use crate::section::Problem;
use crate::settings::{Repetitions, Settings};

/// Levels of all factors, by index; `None` for the value that the study file has by itself.
pub type Levels = Vec<Option<usize>>;

/// The combinations of a study, and how often each is run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Every combination that may be run, by its index.
    pub configurations: Vec<Levels>,
    /// What a fraction cannot tell apart, in words.
    pub confounding: Vec<String>,
    repetitions: Repetitions,
    confidence: f64,
    retries: u32,
    seed: u64,
    search: Option<Search>,
    calibration: Option<Grid>,
    /// Whether a configuration whose repetitions are unlike gets one more.
    repeats_unlike: bool,
}

/// Relative half-width at which a search has confirmed its maximum, where the study file states a
/// number of repetitions and no precision.
const SEARCH_PRECISION: f64 = 0.05;

/// How an adaptive design walks through the combinations.
#[derive(Debug, Clone)]
struct Search {
    /// Dotted key of the searched factor.
    factor: String,
    /// Indices of configurations that differ in the searched factor only, by ascending level.
    lines: Vec<Vec<usize>>,
    /// Levels of the other factors, line by line.
    levels: Vec<Vec<FactorLevel>>,
    /// The level of the searched factor of each, as a number.
    values: Vec<f64>,
    max_runs: usize,
}

/// A run that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    pub configuration: usize,
    /// Repetition, from 0.
    pub repetition: u32,
    /// Attempt, from 0.
    pub attempt: u32,
}

/// A run that has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ended {
    pub configuration: usize,
    /// Repetition, from 0.
    pub repetition: u32,
    /// Attempt, from 0.
    pub attempt: u32,
    pub status: Status,
    /// What it measured, if it did.
    pub throughput_per_s: Option<f64>,
}

/// What the runs that may be used have measured, gathered once for all that is decided by it.
#[derive(Debug)]
struct Measured {
    rule: StoppingRule,
    /// Repetitions and throughputs of each configuration, in the order of the repetitions: runs that
    /// were made again come late, but what counts is the order of the blocks.
    by_configuration: BTreeMap<usize, Vec<(u32, f64)>>,
    evidence: Evidence,
}

impl Measured {
    fn of(rule: StoppingRule, ended: &[Ended]) -> Self {
        let mut by_configuration: BTreeMap<usize, Vec<(u32, f64)>> = BTreeMap::new();
        for run in ended.iter().filter(|run| run.status == Status::Done) {
            let Some(throughput) = run.throughput_per_s else { continue };
            let of_it = by_configuration.entry(run.configuration).or_default();
            of_it.push((run.repetition, throughput));
        }
        let all: Vec<Vec<f64>> = by_configuration
            .values()
            .map(|runs| runs.iter().map(|(_, throughput)| *throughput).collect())
            .collect();
        let evidence = Evidence::of(&rule, all.iter().map(Vec::as_slice));
        for runs in by_configuration.values_mut() {
            runs.sort_unstable_by_key(|(repetition, _)| *repetition);
        }
        Self { rule, by_configuration, evidence }
    }

    /// What the repetitions of a configuration before this one decide.
    fn decision(&self, configuration: usize, before: u32) -> Option<Decision> {
        let own = self.by_configuration.get(&configuration).map_or(&[][..], Vec::as_slice);
        let earlier = own.iter().filter(|(at, _)| *at < before);
        let values: Vec<f64> = earlier.map(|(_, value)| *value).collect();
        self.rule.decide_among(&values, self.evidence).ok()
    }
}

impl Plan {
    pub fn of(study: &StudyFile) -> Result<Self, Refusal> {
        let measure = &study.base.measure;
        let mut plan = Self {
            configurations: vec![vec![None; study.factors.len()]],
            confounding: Vec::new(),
            repetitions: measure.repetitions,
            confidence: measure.confidence,
            retries: measure.retries,
            seed: study.seed,
            search: None,
            calibration: None,
            repeats_unlike: matches!(study.design.kind, DesignKind::Full | DesignKind::OneAtATime),
        };
        if study.factors.is_empty() {
            return Ok(plan);
        }
        let refused = |error: DesignError| {
            study.refuse(Problem { key: "design".to_owned(), what: error.to_string() })
        };
        let design = design(study).map_err(refused)?;
        plan.configurations = design
            .configurations
            .iter()
            .filter_map(|configuration| configuration.levels.as_ref())
            .map(|levels| levels.iter().copied().map(Some).collect())
            .collect();
        if let Some(fraction) = &design.fraction {
            plan.confounding = confounding(fraction);
        }
        if let DesignKind::Adaptive(adaptive) = &study.design.kind {
            let searched = study.factors.iter().position(|factor| factor.key == adaptive.factor);
            plan.search =
                searched.map(|searched| Search::new(study, &plan, searched, adaptive.max_runs));
        }
        if let DesignKind::Calibration { factor } = &study.design.kind {
            let load = study.factors.iter().position(|known| known.key == *factor);
            let counts: Vec<usize> = study.factors.iter().map(|f| f.levels.len()).collect();
            plan.calibration = load.map(|load| {
                let value = |level| study.factors[load].level(level).number.unwrap_or(0.0);
                Grid::new(&plan.configurations, &counts, load, value)
            });
        }
        Ok(plan)
    }

    /// The settings of every combination, each read from the file anew.
    pub(crate) fn settings(&self, study: &StudyFile) -> Result<Vec<Settings>, Refusal> {
        self.configurations.iter().map(|levels| study.settings(levels)).collect()
    }

    /// Whether what was measured decides which configurations are run.
    pub fn chooses(&self) -> bool {
        self.search.is_some() || self.calibration.is_some()
    }

    /// How many runs there will be, where that is known beforehand.
    pub fn total(&self) -> Option<usize> {
        match (self.repetitions, self.chooses()) {
            (Repetitions::Fixed(count), false) => {
                Some(self.configurations.len() * usize::try_from(count).ok()?)
            }
            _ => None,
        }
    }

    /// The most runs that there may be, retries left out.
    pub fn most(&self) -> usize {
        let repetitions = match self.repetitions {
            Repetitions::Fixed(count) => count,
            Repetitions::Until { max, .. } => max,
        };
        let repetitions = usize::try_from(repetitions).unwrap_or(usize::MAX);
        match (&self.search, &self.calibration) {
            (Some(search), _) => search.lines.len().saturating_mul(search.max_runs),
            (None, Some(grid)) => grid.most().saturating_mul(repetitions),
            (None, None) => self.configurations.len().saturating_mul(repetitions),
        }
    }

    /// Whether the throughputs that were measured decide about further runs.
    pub fn looks_at_results(&self) -> bool {
        self.total().is_none() || self.repeats_unlike
    }

    /// What comes next; `None` when the study is done.
    #[must_use]
    pub fn next(&self, ended: &[Ended]) -> Option<Planned> {
        match (&self.search, &self.calibration) {
            (Some(search), _) => self.next_of_search(search, ended),
            (None, Some(grid)) => self.next_of_calibration(grid, ended),
            (None, None) => {
                let all: Vec<usize> = (0..self.configurations.len()).collect();
                self.next_in(&all, ended).or_else(|| self.another_of_unlike(ended))
            }
        }
    }

    /// The first repetition of each wanted configuration in its order, since what it shows decides
    /// which are wanted; then the other repetitions, block by block.
    fn next_of_calibration(&self, grid: &Grid, ended: &[Ended]) -> Option<Planned> {
        let wanted = grid.wanted(|configuration| {
            let of = |run: &&Ended| run.configuration == configuration && run.repetition == 0;
            let done = ended.iter().filter(of).find(|run| run.status == Status::Done)?;
            done.throughput_per_s
        });
        for configuration in &wanted {
            if let Some(attempt) = self.next_attempt(*configuration, 0, ended) {
                return Some(Planned { configuration: *configuration, repetition: 0, attempt });
            }
        }
        self.next_in(&wanted, ended)
    }

    /// The runs of a fixed design in their order, for people.
    pub fn list(&self) -> Vec<Planned> {
        let mut ended = Vec::new();
        let mut list = Vec::new();
        while let Some(planned) = self.total().and_then(|_| self.next(&ended)) {
            list.push(planned);
            ended.push(Ended {
                configuration: planned.configuration,
                repetition: planned.repetition,
                attempt: planned.attempt,
                status: Status::Done,
                throughput_per_s: None,
            });
        }
        list
    }

    /// The next run among some configurations: block by block, each in its random order.
    fn next_in(&self, configurations: &[usize], ended: &[Ended]) -> Option<Planned> {
        let blocks = match self.repetitions {
            Repetitions::Fixed(count) => count,
            Repetitions::Until { max, .. } => max,
        };
        let measured = self.measured(ended);
        for repetition in 0..blocks {
            let wanted = configurations
                .iter()
                .copied()
                .filter(|configuration| self.wants(*configuration, repetition, measured.as_ref()))
                .collect();
            for configuration in block_order(wanted, u64::from(repetition) + 1, self.seed) {
                if let Some(attempt) = self.next_attempt(configuration, repetition, ended) {
                    return Some(Planned { configuration, repetition, attempt });
                }
            }
        }
        None
    }

    /// After all runs of a curve: one more repetition of each configuration in which one run differs from the others.
    fn another_of_unlike(&self, ended: &[Ended]) -> Option<Planned> {
        let Repetitions::Fixed(repetition) = self.repetitions else { return None };
        if !self.repeats_unlike {
            return None;
        }
        let mut measured = vec![Vec::new(); self.configurations.len()];
        for run in ended.iter().filter(|run| run.repetition < repetition) {
            if let (Status::Done, Some(throughput)) = (run.status, run.throughput_per_s) {
                measured[run.configuration].push(throughput);
            }
        }
        unlike(&measured).into_iter().find_map(|configuration| {
            let attempt = self.next_attempt(configuration, repetition, ended)?;
            Some(Planned { configuration, repetition, attempt })
        })
    }

    /// Whether a repetition is wanted, by what earlier ones have shown.
    fn wants(&self, configuration: usize, repetition: u32, measured: Option<&Measured>) -> bool {
        let (Repetitions::Until { min, .. }, Some(measured)) = (self.repetitions, measured) else {
            return true;
        };
        let decision = || measured.decision(configuration, repetition);
        repetition < min || matches!(decision(), Some(Decision::Continue { .. }))
    }

    /// Configurations whose interval is wider than what was asked for, since they reached `max`
    /// first; 0 where a number of repetitions was stated.
    pub fn short_of_precision(&self, ended: &[Ended]) -> usize {
        let fixed_design = self.search.is_none() && self.calibration.is_none();
        let Some(measured) = self.measured(ended).filter(|_| fixed_design) else { return 0 };
        let capped = |configuration: &usize| {
            let decision = measured.decision(*configuration, u32::MAX);
            matches!(decision, Some(Decision::CapReached { .. }))
        };
        (0..self.configurations.len()).filter(capped).count()
    }

    /// What decides about repetitions; `None` where their number is stated.
    fn measured(&self, ended: &[Ended]) -> Option<Measured> {
        let Repetitions::Until { min, max, precision } = self.repetitions else { return None };
        let rule = StoppingRule {
            min: u64::from(min),
            max: u64::from(max),
            relative_half_width: precision,
            confidence: self.confidence,
        };
        Some(Measured::of(rule, ended))
    }

    /// The number of the attempt that is due, if one is.
    fn next_attempt(&self, configuration: usize, repetition: u32, ended: &[Ended]) -> Option<u32> {
        let mut attempts = 0;
        for run in ended {
            if run.configuration == configuration && run.repetition == repetition {
                if run.status == Status::Done {
                    return None;
                }
                attempts += 1;
            }
        }
        (attempts <= self.retries).then_some(attempts)
    }

    /// The next run of the line that has had the fewest: lines are searched side by side, so that
    /// drift does not pose as their difference. A line whose next run has failed too often ends.
    fn next_of_search(&self, search: &Search, ended: &[Ended]) -> Option<Planned> {
        let mut wanted: Vec<(usize, Planned)> = Vec::new();
        for line in &search.lines {
            let Next::Run { index, repetition } = self.step(search, line, ended) else { continue };
            let configuration = line[index];
            let Some(attempt) = self.next_attempt(configuration, repetition, ended) else {
                continue;
            };
            let runs = ended.iter().filter(|run| line.contains(&run.configuration)).count();
            wanted.push((runs, Planned { configuration, repetition, attempt }));
        }
        let fewest = wanted.iter().map(|(runs, _)| *runs).min()?;
        let block = kendall_units::whole_u64(kendall_units::exact_f64(fewest));
        let round: Vec<Planned> =
            wanted.into_iter().filter(|(runs, _)| *runs == fewest).map(|(_, run)| run).collect();
        block_order(round, block + 1, self.seed).into_iter().next()
    }

    /// State of the search along a line.
    fn step(&self, search: &Search, line: &[usize], ended: &[Ended]) -> Next {
        let (min, max, precision) = match self.repetitions {
            Repetitions::Fixed(count) => (count, count, SEARCH_PRECISION),
            Repetitions::Until { min, max, precision } => (min, max, precision),
        };
        let rule = StoppingRule {
            // One confirming run has no interval.
            min: u64::from(min.max(2)),
            max: u64::from(max.max(2)),
            relative_half_width: precision,
            confidence: self.confidence,
        };
        search::next(&search.grid(line), rule, search.max_runs, |index, repetition| {
            let run = ended.iter().find(|run| {
                run.configuration == line[index]
                    && run.repetition == repetition
                    && run.status == Status::Done
            })?;
            run.throughput_per_s
        })
    }

    /// How far an adaptive design has come, line by line; empty for other designs.
    pub fn searches(&self, ended: &[Ended]) -> Vec<SearchLine> {
        let Some(search) = &self.search else { return Vec::new() };
        let count = |number: usize| kendall_units::whole_u64(kendall_units::exact_f64(number));
        let confirming = u64::from(match self.repetitions {
            Repetitions::Fixed(count) => count,
            Repetitions::Until { min, .. } => min,
        });
        let lines = (0..).zip(search.lines.iter().zip(&search.levels));
        lines
            .map(|(number, (line, levels))| {
                let usable =
                    |run: &&Ended| run.status == Status::Done && line.contains(&run.configuration);
                let (found, without) = match self.step(search, line, ended) {
                    Next::Done(done) => {
                        let (outcome, runs) = *done;
                        let grid = search.grid(line);
                        let found = search::found(&outcome, &runs, self.confidence, &grid);
                        (Some(found), String::new())
                    }
                    Next::Ended(why) => (None, why),
                    Next::Run { index, repetition } => {
                        (None, self.why_unfinished(line[index], repetition, ended))
                    }
                };
                SearchLine {
                    line: number,
                    factor: search.factor.clone(),
                    levels: levels.clone(),
                    runs: count(ended.iter().filter(usable).count()),
                    grid: count(line.len()),
                    sweep_runs: count(line.len()).saturating_mul(confirming.max(2)),
                    found,
                    without,
                }
            })
            .collect()
    }

    fn why_unfinished(&self, configuration: usize, repetition: u32, ended: &[Ended]) -> String {
        match self.next_attempt(configuration, repetition, ended) {
            Some(_) => "the search has not ended yet".to_owned(),
            None => "a run that the search needs failed or was rejected, with no retries left; \
                     `--retry-failed` retries it"
                .to_owned(),
        }
    }

    /// Allows one more attempt at everything that has failed or was rejected.
    #[must_use]
    pub fn allowing(mut self, more: u32) -> Self {
        self.retries = self.retries.saturating_add(more);
        self
    }
}

impl Search {
    /// The numbers of a line's levels.
    fn grid(&self, line: &[usize]) -> Vec<f64> {
        line.iter().map(|configuration| self.values[*configuration]).collect()
    }

    fn new(study: &StudyFile, plan: &Plan, searched: usize, max_runs: u32) -> Self {
        let value = |configuration: usize| -> f64 {
            let level = plan.configurations[configuration][searched].unwrap_or(0);
            study.factors[searched].level(level).number.unwrap_or(0.0)
        };
        let rest = |configuration: usize| {
            let mut levels = plan.configurations[configuration].clone();
            levels[searched] = None;
            levels
        };
        let mut lines: Vec<Vec<usize>> = Vec::new();
        for configuration in 0..plan.configurations.len() {
            match lines.iter_mut().find(|line| rest(line[0]) == rest(configuration)) {
                Some(line) => line.push(configuration),
                None => lines.push(vec![configuration]),
            }
        }
        for line in &mut lines {
            line.sort_by(|a, b| value(*a).total_cmp(&value(*b)));
        }
        let others = |line: &Vec<usize>| {
            let levels = plan.configurations[line[0]].iter().zip(&study.factors).enumerate();
            let others = levels.filter(|(place, _)| *place != searched);
            others.filter_map(|(_, (level, factor))| Some(factor.level((*level)?))).collect()
        };
        Self {
            factor: study.factors[searched].key.clone(),
            levels: lines.iter().map(others).collect(),
            values: (0..plan.configurations.len()).map(value).collect(),
            max_runs: usize::try_from(max_runs).unwrap_or(usize::MAX),
            lines,
        }
    }
}

fn design(study: &StudyFile) -> Result<Design, DesignError> {
    let factors: Vec<DesignFactor> = study
        .factors
        .iter()
        .map(|factor| {
            let texts = (0..factor.levels.len()).map(|level| factor.level(level).text);
            DesignFactor::new(&factor.key, texts)
        })
        .collect();
    match &study.design.kind {
        DesignKind::Full | DesignKind::Adaptive(_) | DesignKind::Calibration { .. } => {
            Design::full(factors)
        }
        DesignKind::OneAtATime => Design::one_at_a_time(factors),
        DesignKind::TwoLevel => Design::two_level(factors),
        DesignKind::Fractional { generators, resolution } => {
            let fraction = if generators.is_empty() {
                Fraction::smallest(factors.len(), *resolution)?
            } else {
                let texts: Vec<&str> = generators.iter().map(String::as_str).collect();
                Fraction::from_generators(factors.len(), &texts)?
            };
            Design::fractional(factors, fraction)
        }
    }
}

/// Effects of up to two factors, and what each is confounded with.
fn confounding(fraction: &Fraction) -> Vec<String> {
    fraction
        .alias_table(2)
        .into_iter()
        .map(|(effect, aliases)| {
            let others: Vec<String> = aliases.iter().map(ToString::to_string).collect();
            if others.is_empty() {
                effect.to_string()
            } else {
                format!("{effect} = {}", others.join(" = "))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn plan(rest: &str) -> Plan {
        let text = format!(
            "name = 'x'\n[system]\nkind = 'memcached'\n[workload]\nmix = {{ get = 1 }}\n{rest}"
        );
        Plan::of(&StudyFile::parse("x.toml", text, false, &[]).unwrap()).unwrap()
    }

    fn ended(planned: Planned, status: Status, throughput: f64) -> Ended {
        Ended {
            configuration: planned.configuration,
            repetition: planned.repetition,
            attempt: planned.attempt,
            status,
            throughput_per_s: Some(throughput),
        }
    }

    #[test]
    fn blocks_hold_every_configuration_once_and_a_killed_study_goes_on() {
        let plan = plan(
            "[measure]\nrepetitions = 3\n[factors]\n'workload.clients' = [1, 2, 3]\n'system.servers' = [1, 2]",
        );
        let list = plan.list();
        assert_eq!(list.len(), 18);
        for block in list.chunks(6) {
            assert_eq!(block.iter().map(|run| run.configuration).collect::<BTreeSet<_>>().len(), 6);
            assert!(block.iter().all(|run| run.repetition == block[0].repetition));
        }
        let done: Vec<Ended> = list[..7].iter().map(|run| ended(*run, Status::Done, 1.0)).collect();
        assert_eq!(plan.next(&done), Some(list[7]));
    }

    #[test]
    fn a_failed_run_is_tried_again_as_often_as_stated() {
        let plan = plan("[measure]\nrepetitions = 1\nretries = 1");
        let first = plan.next(&[]).unwrap();
        let mut runs = vec![ended(first, Status::Failed, 0.0)];
        let second = plan.next(&runs).unwrap();
        assert_eq!(second.attempt, 1);
        runs.push(ended(second, Status::Rejected, 0.0));
        assert_eq!(plan.next(&runs), None);
        assert_eq!(plan.allowing(1).next(&runs).map(|run| run.attempt), Some(2));
    }

    #[test]
    fn repetitions_end_when_the_interval_is_narrow_enough() {
        let until = "[measure]\nrepetitions = { min = 3, max = 40, until = '5%' }\n";
        let six = "[factors]\n'workload.clients' = [1, 2, 4, 8, 16, 32]";
        let (one, six) = (plan(until), plan(&format!("{until}{six}")));
        assert_eq!((one.total(), one.most()), (None, 40));
        let count = |plan: &Plan, value: fn(u32) -> f64| {
            let mut runs = Vec::new();
            while let Some(planned) = plan.next(&runs) {
                runs.push(ended(planned, Status::Done, value(planned.repetition)));
            }
            runs.len()
        };
        let quiet = |repetition| 1_000.0 + f64::from(repetition % 2);
        // By itself 18 runs carry the width; six configurations have them after three blocks.
        assert_eq!((count(&one, quiet), count(&six, quiet)), (18, 18));
        let noisy = |repetition: u32| 1_000.0 + 500.0 * f64::from(repetition % 2);
        assert_eq!(count(&one, noisy), 40);
        let all = |value: fn(u32) -> f64| -> Vec<Ended> {
            let first = one.next(&[]).unwrap();
            let run = |repetition| {
                ended(Planned { repetition, ..first }, Status::Done, value(repetition))
            };
            (0..40).map(run).collect()
        };
        assert_eq!(
            (one.short_of_precision(&all(noisy)), one.short_of_precision(&all(quiet))),
            (1, 0)
        );
        // One run in six is slow: no configuration ends by the runs of others.
        let disturbed = |repetition| if repetition % 6 == 2 { 700.0 } else { 1_000.0 };
        assert!(count(&six, disturbed) >= 6 * 18);
    }

    #[test]
    fn a_configuration_with_a_run_that_stands_out_is_run_once_more() {
        let clients = "[factors]\n'workload.clients' = [1, 2, 4, 8, 16, 32]";
        let plan = plan(&format!("[measure]\nrepetitions = 2\n{clients}"));
        assert_eq!(plan.total(), Some(12));
        let extra = |spoiled: Planned| {
            let mut runs = Vec::new();
            while let Some(planned) = plan.next(&runs) {
                let loss = if planned == spoiled { 0.6 } else { 1.0 };
                let value = loss * (1_000.0 + f64::from(planned.repetition));
                runs.push(ended(planned, Status::Done, value));
            }
            runs.split_off(12)
        };
        let spoiled = Planned { configuration: 3, repetition: 1, attempt: 0 };
        let again = extra(spoiled);
        assert_eq!(again.len(), 1);
        assert_eq!((again[0].configuration, again[0].repetition), (3, 2));
        assert!(extra(Planned { attempt: 7, ..spoiled }).is_empty());
    }

    #[test]
    fn a_fraction_states_what_it_confounds() {
        let plan = plan(
            "[measure]\nrepetitions = 1\n[factors]\n'workload.clients' = [2, 4]\n'system.servers' = [1, 2]\n\
             'workload.threads' = [1, 2]\n[design]\nkind = 'fractional'\ngenerators = ['C=AB']",
        );
        assert_eq!(plan.configurations.len(), 4);
        assert!(plan.confounding.iter().any(|text| text.contains('=')), "{:?}", plan.confounding);
    }

    #[test]
    fn an_adaptive_study_finds_each_lines_maximum_and_goes_on_when_killed() {
        let plan = plan(
            "[measure]\nrepetitions = 3\n[factors]\n'workload.clients' = { from = 2, to = 128, step = 2 }\n\
             'system.servers' = [1, 2]\n[design]\nkind = 'adaptive'\nmax_runs = 40",
        );
        let mut runs: Vec<Ended> = Vec::new();
        while let Some(planned) = plan.next(&runs) {
            let levels = &plan.configurations[planned.configuration];
            let clients = 2.0 * (kendall_units::exact_f64(levels[0].unwrap()) + 1.0);
            let limit = if levels[1] == Some(0) { 20.0 } else { 64.0 };
            let again = plan.next(&runs.clone());
            assert_eq!(again, Some(planned));
            runs.push(ended(planned, Status::Done, 100.0 * clients.min(limit)));
        }
        assert!(runs.len() <= 48, "{} runs of a sweep of 384", runs.len());
        let lines = plan.searches(&runs);
        let points: Vec<f64> = lines
            .iter()
            .map(|line| line.found.as_ref().unwrap().saturation_point.center.round())
            .collect();
        assert_eq!(points, [20.0, 64.0]);
        let counted: u64 = lines.iter().map(|line| line.runs).sum();
        assert_eq!(counted, kendall_units::whole_u64(kendall_units::exact_f64(runs.len())));
        assert_eq!((lines[1].grid, lines[1].sweep_runs), (64, 192));
        assert_eq!(
            (lines[1].factor.as_str(), lines[1].levels[0].text.as_str()),
            ("workload.clients", "2")
        );
    }

    #[test]
    fn a_calibration_takes_few_runs_and_goes_on_when_killed() {
        let plan = plan(
            "[measure]\nrepetitions = 2\n[factors]\n'workload.clients' = [1, 2, 4, 8, 16, 32, 64]\n\
             'system.servers' = [1, 2, 3]\n[design]\nkind = 'calibration'",
        );
        let mut runs: Vec<Ended> = Vec::new();
        while let Some(planned) = plan.next(&runs) {
            let levels = &plan.configurations[planned.configuration];
            let clients = 2.0_f64.powf(kendall_units::exact_f64(levels[0].unwrap()));
            assert_eq!(plan.next(&runs.clone()), Some(planned));
            runs.push(ended(planned, Status::Done, (100.0 * clients).min(800.0)));
        }
        // Light, saturated twice, and the knee of both lines; each twice.
        assert_eq!(runs.len(), 10, "{runs:?}");
        assert!(plan.total().is_none() && plan.most() >= runs.len() && plan.looks_at_results());
        assert!(runs[5..].iter().all(|run| run.repetition == 1));
    }

    #[test]
    fn a_line_that_keeps_failing_ends() {
        let plan = plan(
            "[measure]\nrepetitions = 3\nretries = 1\n[factors]\n'workload.clients' = [2, 4, 8]\n\
             [design]\nkind = 'adaptive'",
        );
        let mut runs: Vec<Ended> = Vec::new();
        while let Some(planned) = plan.next(&runs) {
            runs.push(ended(planned, Status::Failed, 0.0));
        }
        assert_eq!(runs.len(), 2);
        let line = &plan.searches(&runs)[0];
        assert!(line.found.is_none() && line.without.contains("--retry-failed"), "{line:?}");
        assert!(plan.searches(&[])[0].without.contains("not ended"));
    }
}
