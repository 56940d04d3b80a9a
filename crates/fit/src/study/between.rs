//! Answers about a level of a parameter between two that were run: what a request costs there follows from no model, but it
//! lies between the two.

use super::by_load::{Five, LoadRun, Model, is_same, lies_between, measure};
use super::question::Question;
use super::signature::Signature;

/// Runs at the two levels of one parameter around what is asked, everything else as asked.
pub(super) struct Between<'a> {
    key: String,
    asked: f64,
    /// Nearest below and above.
    levels: [f64; 2],
    ends: [Vec<&'a LoadRun>; 2],
}

impl<'a> Between<'a> {
    /// None for a question that differs from all runs in more than one number, or lies beyond what was run.
    pub(super) fn of(runs: &'a [LoadRun], question: &Question) -> Option<Self> {
        if !question.changes.is_empty() {
            return None;
        }
        let differing = runs.iter().filter_map(|run| Some((run, only_difference(run, question)?)));
        let all: Vec<(&LoadRun, (String, f64))> = differing.collect();
        let (_, (key, _)) = all.first()?;
        let asked = question.level(key)?;
        let at = |level: f64| -> Vec<&LoadRun> {
            let same =
                all.iter().filter(|(_, (other, value))| other == key && is_same(*value, level));
            same.map(|(run, _)| *run).collect()
        };
        let values =
            all.iter().filter(|(_, (other, _))| other == key).map(|(_, (_, value))| *value);
        let below = values.clone().filter(|value| *value < asked).max_by(f64::total_cmp)?;
        let above = values.filter(|value| *value > asked).min_by(f64::total_cmp)?;
        let ends = [at(below), at(above)];
        Some(Self { key: key.clone(), asked, levels: [below, above], ends })
    }

    /// A run at the level below.
    pub(super) fn first_below(&self) -> Option<&'a LoadRun> {
        self.ends[0].first().copied()
    }

    pub(super) fn answer(&self) -> Option<(Model, Five)> {
        let [below, above] = self.levels;
        let place = |value: f64| if below > 0.0 { value.ln() } else { value };
        let share = (place(self.asked) - place(below)) / (place(above) - place(below));
        let groups = self.ends.to_vec();
        let at = |at: usize| {
            let (usual, of) = measure(at);
            lies_between(&groups, &self.ends, share, (usual, &of))
        };
        let runs = self.ends.iter().map(Vec::len).sum();
        let model = Model::Between { key: self.key.clone(), levels: self.levels, runs };
        Some((model, [at(0)?, at(1)?, at(2)?, at(3)?, at(4)?]))
    }
}

/// The one number in which a run differs from a question: its key, and its level in the run.
fn only_difference(run: &LoadRun, question: &Question) -> Option<(String, f64)> {
    let words = |Signature(kind): &Signature| {
        run.words.iter().all(|(key, text)| {
            kind.iter().find(|(known, _)| known == key).is_none_or(|(_, asked)| asked == text)
        })
    };
    let mut others = run
        .levels
        .iter()
        .filter(|(key, level)| question.level(key).is_some_and(|asked| !is_same(asked, *level)));
    let (key, level) = others.next()?;
    let is_only = others.next().is_none()
        && run.graph == question.graph
        && run.workload == question.workload
        && words(&question.signature);
    is_only.then(|| (key.clone(), *level))
}

#[cfg(test)]
mod tests {
    use kendall_protocols::topology::Graph;

    use super::*;
    use crate::twin::Workload;

    fn run((size, throughput_per_s): (f64, f64)) -> LoadRun {
        let mean = 8.0 / throughput_per_s;
        LoadRun {
            graph: Graph::default(),
            workload: Workload::Closed { clients: 8, think_time_s: 0.0 },
            levels: vec![("system.size".to_owned(), size), ("workload.clients".to_owned(), 8.0)],
            words: vec![("system.kind".to_owned(), "plain".to_owned())],
            throughput_per_s,
            measured_s: 10.0,
            weight: 1.0,
            times_s: Some([mean, mean, 2.0 * mean, 3.0 * mean]),
        }
    }

    fn question(size: f64, kind: &str) -> Question {
        Question {
            graph: Graph::default(),
            workload: Workload::Closed { clients: 8, think_time_s: 0.0 },
            generator_threads: 1,
            batch: None,
            signature: Signature(vec![("system.kind".to_owned(), kind.to_owned())]),
            changes: Vec::new(),
            levels: vec![("system.size".to_owned(), size), ("workload.clients".to_owned(), 8.0)],
        }
    }

    /// A cost that grows with the square root of a size: exact on the line of the logarithms.
    #[test]
    fn a_level_between_two_that_were_run_lies_between_them() {
        let runs = [(1.0, 800.0), (1.0, 800.0), (4.0, 400.0), (4.0, 400.0), (64.0, 100.0)].map(run);
        let (model, [x, mean, ..]) =
            Between::of(&runs, &question(2.0, "plain")).unwrap().answer().unwrap();
        let between = Model::Between { key: "system.size".to_owned(), levels: [1.0, 4.0], runs: 4 };
        assert_eq!(model, between);
        let truth = 800.0 / 2.0_f64.sqrt();
        assert!((x.center / truth - 1.0).abs() < 1e-9, "{x:?}");
        assert!(x.low < 400.0 && x.high > 800.0, "either end is possible: {x:?}");
        assert!((mean.center - 8.0 / truth).abs() < 1e-9, "{mean:?}");
    }

    #[test]
    fn beyond_the_levels_and_in_other_words_nothing_is_told() {
        let runs = [(1.0, 800.0), (4.0, 400.0)].map(run);
        assert!(Between::of(&runs, &question(5.0, "plain")).is_none());
        assert!(Between::of(&runs, &question(0.5, "plain")).is_none());
        assert!(Between::of(&runs, &question(2.0, "other")).is_none());
        let mut at_other_load = question(2.0, "plain");
        at_other_load.workload = Workload::Closed { clients: 16, think_time_s: 0.0 };
        at_other_load.levels[1].1 = 16.0;
        assert!(Between::of(&runs, &at_other_load).is_none());
    }
}
