//! `kendall compare --run`: two versions measured in turns, block by block, and judged meanwhile.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use kendall_report::comparison::ComparisonPage;
use kendall_stats::compare::sequential::{Looks, blocks_that_tell, is_clear, largest_difference};
use kendall_stats::compare::{Comparison, Verdict};
use kendall_stats::estimate::figures;
use kendall_study::{DesignKind, Event, Options, StudyFile};
use kendall_units::Seconds;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

use super::flags::{Compare, Pairing};
use super::words::{Answer, human, short_configuration, short_metric};
use crate::commands::run::{duration, exit_of, what_came};
use crate::exit::{Exit, exit_with, refused, stop_at_a_signal};
use crate::output::{self, Format};
use crate::paint::Paint;

/// What is printed as JSON.
#[derive(Debug, serde::Serialize)]
struct Told {
    /// The verdict in one sentence.
    answer: String,
    /// Blocks that were measured.
    blocks: u64,
    /// Whether the verdict was clear before the last block.
    stopped_early: bool,
    /// Largest relative difference that the intervals leave possible.
    no_difference_larger_than: Option<f64>,
    /// Where nothing is significant: the number of blocks that would probably decide.
    blocks_that_would_tell: Option<u64>,
    #[serde(flatten)]
    comparison: Answer,
}

/// One of the two.
struct Side {
    name: &'static str,
    study: StudyFile,
    folder: PathBuf,
}

impl Compare {
    pub(super) fn run_in_turns(&self) -> anyhow::Result<Exit> {
        let flags = &self.in_turns;
        let looks = Looks::new(flags.blocks.0, flags.blocks.1, self.confidence).map_err(refused)?;
        let sides = self.sides()?;
        let folder = sides[0].folder.parent().map(Path::to_owned).unwrap_or_default();
        let interrupted = stop_at_a_signal()?;
        let mut coin = Xoshiro256PlusPlus::seed_from_u64(sides[0].study.seed);
        let last = flags.blocks.1;
        let mut missing = String::new();
        output::note(&self.plan(&sides, &looks)?);
        for block in 1..=last {
            // Which of the two comes first is left to chance, so that neither always warms up for
            // the other; the seed fixes it, so that a stopped session can be resumed.
            let turned = coin.next_u64() & 1 == 1;
            for side in if turned { [&sides[1], &sides[0]] } else { [&sides[0], &sides[1]] } {
                measure(side, block, last, &interrupted)?;
            }
            let Some(confidence) = looks.confidence_at(block) else {
                if let Some(next) = looks.blocks().into_iter().find(|at| *at > block) {
                    output::note(&format!("after {block} blocks: judged after {next}{missing}"));
                }
                continue;
            };
            let judged = Self {
                before: sides[0].folder.clone(),
                after: Some(sides[1].folder.clone()),
                pairing: Pairing::Blocks,
                confidence,
                ..self.clone()
            };
            let (before, after) = judged.sets()?;
            let page = judged.page(&before, std::slice::from_ref(&after))?;
            let clear = is_clear(&page.comparisons);
            let would_tell = blocks_in_all(&page.comparisons, self.bound, self.confidence);
            missing = would_tell
                .map_or_else(String::new, |all| format!("; about {all} in all would tell"));
            let told = Told {
                answer: answer(&page, (block, last), would_tell),
                blocks: block,
                stopped_early: clear && block < last,
                no_difference_larger_than: largest_difference(&page.comparisons).map(|most| most.0),
                blocks_that_would_tell: would_tell,
                comparison: Answer { page, report: None },
            };
            if clear || block == last {
                return self.tell_in_turns(told, &folder);
            }
            output::note(&format!("after {block} blocks: {}", told.answer));
        }
        Ok(Exit::Done)
    }

    /// How long a block takes, and after which it is judged.
    fn plan(&self, sides: &[Side; 2], looks: &Looks) -> anyhow::Result<String> {
        let (mut runs, mut under_load) = (0, Seconds::ZERO);
        for Side { study, .. } in sides {
            let plan = kendall_study::Plan::of(study).map_err(refused)?;
            runs += plan.configurations.len();
            let each = study.base.measure.under_load();
            under_load = under_load + each * kendall_units::exact_f64(plan.configurations.len());
        }
        let first = looks.blocks().first().copied().unwrap_or(self.in_turns.blocks.1);
        Ok(format!(
            "{} a block, {} of load; first judged after {first} blocks ({}), at most {} blocks",
            kendall_units::counted(runs, "run"),
            duration(under_load),
            duration(under_load * kendall_units::exact_f64(first)),
            self.in_turns.blocks.1
        ))
    }

    /// Both study files, refused before anything runs.
    fn sides(&self) -> anyhow::Result<[Side; 2]> {
        let flags = &self.in_turns;
        let after = self.after.as_ref().unwrap_or(&self.before);
        let read = |path: &Path, own: &[String]| -> anyhow::Result<StudyFile> {
            let mut sets: Vec<String> = flags.set.iter().chain(own).cloned().collect();
            sets.push(format!("measure.repetitions={}", flags.blocks.1));
            let study = StudyFile::read(path, flags.toy, &sets).map_err(refused)?;
            if matches!(study.design.kind, DesignKind::Adaptive(_)) {
                let what = format!(
                    "{}: an adaptive design chooses its loads from its results, so the runs of two \
                     of them cannot be paired; state the levels (design.kind = \"full\")",
                    path.display()
                );
                return Err(refused(what));
            }
            kendall_study::check_programs(&study, &std::env::current_exe()?)
                .map_err(|error| exit_with(exit_of(&error), error))?;
            Ok(study)
        };
        let (first, second) =
            (read(&self.before, &flags.set_before)?, read(after, &flags.set_after)?);
        let folder = self
            .out
            .clone()
            .unwrap_or_else(|| Path::new("results").join(format!("{}-in-turns", first.study)));
        Ok([
            Side { name: "before", study: first, folder: folder.join("before") },
            Side { name: "after", study: second, folder: folder.join("after") },
        ])
    }

    fn tell_in_turns(&self, mut told: Told, folder: &Path) -> anyhow::Result<Exit> {
        if !self.no_report {
            let written = told
                .comparison
                .page
                .write(folder)
                .map_err(|error| exit_with(Exit::NotReady, error))?;
            told.comparison.report = Some(written.html);
        }
        let verdict = told.comparison.page.verdict;
        match self.format {
            Format::Json => output::json(&told)?,
            Format::Human => {
                let paint = Paint::of_results();
                let line = match verdict {
                    Verdict::Regression => paint.bad(&told.answer),
                    Verdict::Inconclusive => paint.doubt(&told.answer),
                    Verdict::Improvement | Verdict::Equivalent => paint.good(&told.answer),
                };
                output::result(&format!("{line}\n"));
                output::document(&human(&told.comparison));
            }
        }
        Ok(self.exit_for(&told.comparison.page.comparisons))
    }
}

/// One block of one side: every configuration once.
fn measure(side: &Side, block: u64, last: u64, interrupted: &AtomicBool) -> anyhow::Result<()> {
    let options = Options {
        folder: side.folder.clone(),
        program: std::env::current_exe()?,
        retry_failed: false,
        until_repetition: u32::try_from(block).ok(),
    };
    let mut tell = |event: Event<'_>| {
        let Event::Ended { run, throughput_per_s, response_time_mean_s } = event else { return };
        let levels: Vec<String> =
            run.factors.iter().map(|level| format!("{}={}", level.factor, level.text)).collect();
        let levels = short_configuration(&levels.join(", "));
        let came = what_came(run, throughput_per_s, response_time_mean_s);
        output::note(format!("block {block}/{last}  {:<6}  {levels}{came}", side.name).trim_end());
    };
    let summary = kendall_study::run(&side.study, &options, interrupted, &mut tell)
        .map_err(|error| exit_with(exit_of(&error), error))?;
    if summary.interrupted {
        let go_on = "interrupted; the same command resumes it";
        return Err(exit_with(Exit::Failure, go_on));
    }
    Ok(())
}

/// The number of blocks that would probably decide what is not significant, at the confidence of the last look; `None`
/// where one of the comparisons would take more than can be named.
fn blocks_in_all(comparisons: &[Comparison], bound: f64, confidence: f64) -> Option<u64> {
    comparisons
        .iter()
        .filter(|one| one.verdict == Verdict::Inconclusive)
        .map(|one| blocks_that_tell(one, bound, confidence))
        .collect::<Option<Vec<u64>>>()?
        .into_iter()
        .max()
}

/// The verdict in a sentence; `would_tell` is how many blocks in all would probably tell.
fn answer(page: &ComparisonPage, (block, last): (u64, u64), would_tell: Option<u64>) -> String {
    let percent = |share: f64| format!("{} %", figures(100.0 * share, 2));
    let (comparisons, verdict) = (&page.comparisons, page.verdict);
    let what = |one: &Comparison| {
        let metric = short_metric(&one.metric, one.quantity);
        format!("{metric}, {}", short_configuration(&one.configuration))
    };
    // What may differ most, and that it is the worst of several.
    let most = largest_difference(comparisons).map(|(most, one)| {
        let of = format!("{}, of {}", percent(most), what(one));
        (most, if comparisons.len() > 1 { of } else { percent(most) })
    });
    match verdict {
        Verdict::Regression | Verdict::Improvement => {
            // The one furthest from no change.
            let worst = comparisons
                .iter()
                .filter(|one| one.verdict == verdict)
                .max_by(|a, b| far(a).total_cmp(&far(b)));
            let what =
                worst.map_or_else(String::new, |one| format!(": {}: {}", what(one), one.words));
            format!("verdict: {verdict}{what} ({block} blocks)")
        }
        Verdict::Equivalent => format!(
            "verdict: equivalent: no difference larger than {} ({block} blocks)",
            most.map_or_else(|| percent(page.bound), |most| most.1)
        ),
        Verdict::Inconclusive => {
            let told = comparisons.iter().any(|one| {
                let interval = one.ratio.as_ref().and_then(|ratio| ratio.interval);
                interval.is_some_and(|interval| !interval.contains(1.0))
            });
            let within =
                comparisons.iter().filter(|one| one.verdict == Verdict::Equivalent).count();
            let within = match within {
                0 => String::new(),
                some => format!("; {some} of {} lie within the bound", comparisons.len()),
            };
            // What may be more than twice as much is not bounded to speak of.
            let has_intervals = most.is_some();
            let bounded = most.filter(|most| most.0 < 1.0).map(|most| most.1);
            let known = match (told, has_intervals) {
                (false, true) => {
                    let bounded = bounded
                        .map_or_else(String::new, |most| format!(", and none larger than {most}"));
                    let yet = if block < last {
                        " yet (the first looks find only large ones)"
                    } else {
                        ""
                    };
                    format!("no significant difference{yet}{bounded}{within}")
                }
                (true, true) => {
                    let bounded =
                        bounded.map_or_else(String::new, |most| format!(" of at most {most}"));
                    format!("a difference{bounded}, perhaps not beyond the bound{within}")
                }
                (_, false) => "too few usable runs for an interval".to_owned(),
            };
            let more = match (would_tell, has_intervals) {
                (Some(blocks), _) => format!("about {blocks} blocks in all would tell"),
                (None, true) => "more than 1,000 blocks would be needed on this machine; a \
                                    quieter one, or a wider --bound, would tell sooner"
                    .to_owned(),
                // Without an interval nothing says how many.
                (None, false) => "see why runs failed or were rejected, and repeat them".to_owned(),
            };
            format!(
                "verdict: cannot tell after {block} blocks at ±{}: {known}; {more}",
                percent(page.bound)
            )
        }
    }
}

/// How far a ratio lies from one.
fn far(one: &Comparison) -> f64 {
    one.ratio.as_ref().map_or(0.0, |ratio| ratio.center.ln().abs())
}

#[cfg(test)]
mod tests {
    use kendall_report::comparison::ComparedSet;
    use kendall_stats::compare::{self, Better, Options, Quantity, Samples};

    use super::*;

    fn told(before: &[f64], after: &[f64]) -> String {
        let runs = |values: &[f64]| values.iter().map(|value| (None, *value)).collect();
        let samples = Samples {
            configuration: "clients=4".to_owned(),
            metric: "throughput_per_s".to_owned(),
            quantity: Quantity::Rate,
            better: Better::Higher,
            before: runs(before),
            after: runs(after),
        };
        let options = Options { confidence: 0.95, bound: 0.05, paired: false };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let comparisons = compare::compare(&[samples], &options, &mut rng).unwrap();
        let set = ComparedSet {
            name: String::new(),
            title: String::new(),
            usable_runs: 1,
            unusable_runs: 4,
            started_unix_ns: None,
        };
        let page = ComparisonPage {
            before: set.clone(),
            after: set,
            verdict: super::super::judge::worst(&comparisons),
            bound: 0.05,
            confidence: 0.95,
            comparisons,
            differences: Vec::new(),
            caveats: Vec::new(),
        };
        let would_tell = blocks_in_all(&page.comparisons, 0.05, 0.95);
        answer(&page, (5, 40), would_tell)
    }

    /// One run a side has no variance, so that the number of blocks to run is not known.
    #[test]
    fn blocks_that_would_tell_are_named_only_where_an_interval_says_so() {
        let said = told(&[100.0], &[101.0]);
        assert!(said.contains("too few usable runs") && said.contains("repeat them"), "{said}");
        assert!(!said.contains("blocks would be needed"), "{said}");
        // Intervals as wide as these would take thousands of blocks.
        let said = told(&[1.0, 1000.0, 30.0], &[2.0, 900.0, 31.0]);
        assert!(said.contains("more than 1,000 blocks would be needed"), "{said}");
        assert!(!said.contains("larger than"), "{said}");
        let said = told(&[100.0, 96.0, 104.0, 99.0], &[101.0, 97.0, 104.0, 98.0]);
        assert!(said.contains("blocks in all would tell"), "{said}");
        assert!(said.contains("yet (the first looks find only large ones)"), "{said}");
    }
}
