//! Judges result sets, and writes and prints what came of it.

use std::path::{Path, PathBuf};

use kendall_observations::Variable;
use kendall_report::comparison::{ComparisonPage, Difference, DifferenceKind};
use kendall_stats::compare::{self, Better, Comparison, Options, Samples, Verdict};
use kendall_stats::estimate::Caveat;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng as _;

use super::flags::{Compare, Pairing, TwoLevels};
use super::sets::{self, Only, ResultSet};
use super::words::{Answer, human, short_configuration};
use crate::exit::{Exit, exit_with, refused};
use crate::output;

impl Compare {
    /// Writes the page, where it is to be written, and prints it.
    pub(super) fn tell(
        &self,
        page: ComparisonPage,
        folder: Option<PathBuf>,
    ) -> anyhow::Result<Exit> {
        let written = folder.map(|folder| page.write(&folder)).transpose();
        let report =
            written.map_err(|error| exit_with(Exit::NotReady, error))?.map(|page| page.html);
        let exit = self.exit_for(&page.comparisons);
        let answer = Answer { page, report };
        output::print(self.format, &answer, || human(&answer))?;
        Ok(exit)
    }

    /// A regression fails; what the runs do not tell fails where that is asked.
    pub(super) fn exit_for(&self, comparisons: &[Comparison]) -> Exit {
        match worst(comparisons) {
            Verdict::Regression => Exit::CheckFailed,
            Verdict::Inconclusive if self.strict => Exit::CheckFailed,
            Verdict::Inconclusive | Verdict::Improvement | Verdict::Equivalent => Exit::Done,
        }
    }

    /// Each of the others against the first; p-values are adjusted for all of them together.
    pub(super) fn page(
        &self,
        first: &ResultSet,
        others: &[ResultSet],
    ) -> anyhow::Result<ComparisonPage> {
        let (mut samples, mut caveats, mut differences) = (Vec::new(), Vec::new(), Vec::new());
        // Of several, each comparison says whose it is.
        let named = |other: &ResultSet, what: String| match others {
            [_] => what,
            _ => format!("{}: {what}", other.described().name),
        };
        for other in others {
            let (matched, doubts) = sets::matched(first, other);
            samples.extend(matched.into_iter().map(|one| (other, one)));
            caveats.extend(doubts);
            differences.extend(sets::differences(first, other).into_iter().map(|one| {
                let what = named(other, one.what);
                Difference { what, ..one }
            }));
        }
        if samples.is_empty() {
            return Err(nothing_to_compare(first, others));
        }
        let doubts = self.not_paired(first, others);
        let paired = doubts.is_empty() && self.pairing != Pairing::None;
        caveats.extend(doubts);
        let conditions = differences.iter().filter(|one| one.kind == DifferenceKind::Condition);
        caveats.extend(conditions.map(|one| Caveat::ConditionsDiffer {
            what: one.what.clone(),
            first: one.before.clone(),
            second: one.after.clone(),
        }));
        let options = Options { confidence: self.confidence, bound: self.bound, paired };
        // Chance only draws relabelings where they are too many to count: any fixed seed will do.
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let (of, samples): (Vec<&ResultSet>, Vec<Samples>) = samples.into_iter().unzip();
        let mut comparisons = compare::compare(&samples, &options, &mut rng).map_err(refused)?;
        for (other, one) in of.into_iter().zip(&mut comparisons) {
            sets::at_one_speed(first, other, one);
            sets::shown(first, other, one);
            if others.len() > 1 {
                one.configuration = named(other, short_configuration(&one.configuration));
            }
        }
        Ok(ComparisonPage {
            before: first.described(),
            after: sets::together(others),
            verdict: worst(&comparisons),
            bound: self.bound,
            confidence: self.confidence,
            comparisons,
            differences,
            caveats: distinct(caveats),
        })
    }

    /// Why runs of one block are not pairs, once for each of the others whose are none; nothing where all
    /// are, or where it is not to be asked.
    fn not_paired(&self, first: &ResultSet, others: &[ResultSet]) -> Vec<Caveat> {
        // The blocks of one study hold every configuration.
        if self.pairing != Pairing::Auto || self.levels.is_some() {
            return Vec::new();
        }
        let reasons = others.iter().filter_map(|other| sets::side_by_side(first, other).err());
        reasons.map(|reason| Caveat::NotPaired { reason }).collect()
    }

    pub(super) fn folder_of_page(&self) -> Option<PathBuf> {
        let judged = self.after.as_ref().unwrap_or(&self.before);
        let beside = || judged.is_dir().then(|| judged.clone());
        if self.no_report { None } else { self.out.clone().or_else(beside) }
    }

    /// What is compared with, and what is judged.
    pub(super) fn sets(&self) -> anyhow::Result<(ResultSet, ResultSet)> {
        match (&self.levels, &self.after) {
            (Some(TwoLevels { factor, before, after }), _) => {
                let level = |level| {
                    sets::folder(&self.before, &self.metrics(), Some(Only { factor, level }))
                };
                Ok((level(before)?, level(after)?))
            }
            (None, Some(after)) if is_same(&self.before, after) => {
                let path = after.display();
                let twice = format!(
                    "{path} is given twice, and never differs from itself: name two result sets, or two \
                     levels of one by --levels"
                );
                Err(refused(anyhow::anyhow!(twice)))
            }
            (None, Some(after)) => Ok((self.read(&self.before)?, self.read(after)?)),
            (None, None) => {
                let missing = anyhow::anyhow!("a second result set is needed, or --levels");
                Err(refused(missing))
            }
        }
    }

    pub(super) fn metrics(&self) -> Vec<Variable> {
        if !self.metrics.is_empty() {
            return self.metrics.clone();
        }
        // What is measured in turns may be measured on a busy machine.
        sets::usual_variables()
            .into_iter()
            .chain(self.in_turns.run.then_some(Variable::CpuTime))
            .collect()
    }

    pub(super) fn read(&self, path: &Path) -> anyhow::Result<ResultSet> {
        if path.is_dir() {
            return sets::folder(path, &self.metrics(), None);
        }
        let better = if self.higher_is_better { Better::Higher } else { Better::Lower };
        sets::table(path, better)
    }
}

/// Whether two paths are one file or folder.
fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// Why there is nothing to compare.
fn nothing_to_compare(first: &ResultSet, others: &[ResultSet]) -> anyhow::Error {
    let refusals = others.iter().flat_map(|other| sets::refusals(first, other)).next();
    let why = refusals.map_or_else(
        || {
            let sets = std::iter::once(first).chain(others);
            let factors: Vec<String> = sets.map(ResultSet::factors_in_words).collect();
            let none = "the result sets have no configuration in common";
            format!("{none}; {}", factors.join("; "))
        },
        |refused| refused.to_string(),
    );
    refused(anyhow::anyhow!("nothing to compare: {why}"))
}

/// Each caveat once, in the order of the first.
fn distinct(caveats: Vec<Caveat>) -> Vec<Caveat> {
    let mut once: Vec<Caveat> = Vec::with_capacity(caveats.len());
    for caveat in caveats {
        if !once.contains(&caveat) {
            once.push(caveat);
        }
    }
    once
}

/// Regression before inconclusive before improvement before equivalent.
pub(super) fn worst(comparisons: &[Comparison]) -> Verdict {
    let has = |verdict| comparisons.iter().any(|one| one.verdict == verdict);
    [Verdict::Regression, Verdict::Inconclusive, Verdict::Improvement]
        .into_iter()
        .find(|verdict| has(*verdict))
        .unwrap_or(Verdict::Equivalent)
}
