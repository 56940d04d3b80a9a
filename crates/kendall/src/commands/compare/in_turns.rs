//! `kendall compare --run`: two versions measured in turns, block by block, and judged meanwhile.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use kendall_observations::Variable;
use kendall_report::comparison::ComparisonPage;
use kendall_stats::compare::sequential::{Looks, blocks_that_tell, is_clear, largest_difference};
use kendall_stats::compare::{Comparison, Verdict};
use kendall_stats::estimate::{Interval, figures};
use kendall_study::{DesignKind, Event, Options, Refusal, StudyFile};
use kendall_units::Seconds;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

use super::flags::{Compare, Pairing};
use super::sets::ONLY;
use super::verdict::worst;
use super::words::{Answer, change, human, short_configuration, short_metric};
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

/// A first verdict after so long is soon.
const SOON: Seconds = Seconds::new(120.0);

impl Compare {
    pub(super) fn run_in_turns(&self) -> anyhow::Result<Exit> {
        let flags = &self.in_turns;
        let looks = Looks::new(flags.blocks.0, flags.blocks.1, self.confidence).map_err(refused)?;
        let sides = self.sides()?;
        let folder = sides[0].folder.parent().map(Path::to_owned).unwrap_or_default();
        let interrupted = stop_at_a_signal()?;
        let mut coin = Xoshiro256PlusPlus::seed_from_u64(sides[0].study.seed);
        let last = flags.blocks.1;
        output::note(&self.plan(&sides, &looks)?);
        for block in 1..=last {
            // Which of the two comes first is left to chance, so that neither always warms up for
            // the other; the seed fixes it, so that a stopped session can be resumed.
            let turned = coin.next_u64() & 1 == 1;
            for side in if turned { [&sides[1], &sides[0]] } else { [&sides[0], &sides[1]] } {
                measure(side, block, last, &interrupted)?;
            }
            let look = looks.confidence_at(block);
            let page = match look {
                Some(confidence) => Some(self.judged(&sides, confidence)?),
                // The first two leave nearly everything open.
                None if block < 3 => None,
                None => self.judged(&sides, self.confidence).ok(),
            };
            // Of a session that is resumed, the blocks that are there were judged.
            let has_more = |page: &ComparisonPage| {
                page.comparisons.iter().any(|one| one.runs.0.min(one.runs.1) > block)
            };
            if block < last && page.as_ref().is_some_and(has_more) {
                continue;
            }
            let mut page = match page {
                Some(page) if look.is_some() => page,
                page => {
                    let next = looks.blocks().into_iter().find(|at| *at > block).unwrap_or(last);
                    let open = page.map_or_else(String::new, |page| {
                        self.still_open(&page.comparisons, &looks)
                    });
                    let blocks = kendall_units::counted(block, "block");
                    output::note(&format!("after {blocks}: {open}judged after {next}"));
                    continue;
                }
            };
            let would_tell = self.blocks_in_all(&page.comparisons, &looks);
            page.comparisons
                .retain(|one| one.verdict != Verdict::Inconclusive || !self.is_beside(one));
            page.verdict = worst(&page.comparisons);
            let clear = is_clear(&page.comparisons);
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

    /// All blocks so far.
    fn judged(&self, sides: &[Side; 2], confidence: f64) -> anyhow::Result<ComparisonPage> {
        let judged = Self {
            before: sides[0].folder.clone(),
            after: Some(sides[1].folder.clone()),
            pairing: Pairing::Blocks,
            confidence,
            ..self.clone()
        };
        let (before, after) = judged.sets()?;
        judged.page(&before, std::slice::from_ref(&after))
    }

    /// Whether it may show a difference, but has not to be decided: of a service that mostly waits, CPU time is
    /// little, and hardly twice the same.
    fn is_beside(&self, one: &Comparison) -> bool {
        self.metrics.is_empty() && one.metric == Variable::CpuTime.name()
    }

    /// What differs most clearly so far, and how many blocks would tell.
    fn still_open(&self, comparisons: &[Comparison], looks: &Looks) -> String {
        let known = comparisons.iter().filter_map(|one| Some((one, clearness(one.interval()?))));
        let Some((one, _)) = known.max_by(|a, b| a.1.total_cmp(&b.1)) else {
            return "so far the runs differ too much to tell anything; ".to_owned();
        };
        let tell = self
            .blocks_in_all(comparisons, looks)
            .map_or_else(String::new, |all| format!("; about {all} blocks in all would tell"));
        format!("so far {}: {} %{tell}; ", what(one), change(one))
    }

    /// The number of blocks that would probably end the session: until one is surely worse, or none is open. At the first
    /// look that would tell; behind the last one, at its confidence. `None` where that is more than can be named.
    fn blocks_in_all(&self, comparisons: &[Comparison], looks: &Looks) -> Option<u64> {
        let open = |one: &&Comparison| one.verdict == Verdict::Inconclusive;
        let at = |one: &Comparison, confidence| blocks_that_tell(one, self.bound, confidence);
        let tells = |one: &Comparison, look: u64| at(one, looks.confidence_at(look)?);
        let tell = |one: &Comparison| {
            let first = looks.blocks().into_iter();
            let first =
                first.filter(|look| tells(one, *look).is_some_and(|blocks| blocks <= *look));
            first.min().or_else(|| at(one, self.confidence))
        };
        let worse = comparisons.iter().filter(|one| one.is_worse_by(self.bound));
        let decided = comparisons.iter().filter(open).filter(|one| !self.is_beside(one));
        let all = decided.map(tell).collect::<Option<Vec<u64>>>();
        worse.filter_map(tell).chain(all.and_then(|all| all.into_iter().max())).min()
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
        let first_look = under_load * kendall_units::exact_f64(first);
        let shorter = match sides[0].study.factors.first().and_then(|factor| factor.keys().next()) {
            _ if first_look <= SOON => String::new(),
            Some(key) => {
                format!("\nsooner: --set measure.duration=3s --set 'factors.{key}=[VALUE]'")
            }
            None => "\nsooner: --set measure.duration=3s".to_owned(),
        };
        let same = if sides[0].study.text == sides[1].study.text {
            "\nboth are the same study (A/A): what differs is chance, or the machine"
        } else {
            ""
        };
        Ok(format!(
            "{} a block, {} of load; first judged after {first} blocks ({}), at most {} blocks",
            kendall_units::counted(runs, "run"),
            duration(under_load),
            duration(first_look),
            self.in_turns.blocks.1
        ) + &shorter
            + same)
    }

    /// Both study files, refused before anything runs.
    fn sides(&self) -> anyhow::Result<[Side; 2]> {
        let flags = &self.in_turns;
        let after = self.after.as_ref().unwrap_or(&self.before);
        let read = |path: &Path, (flag, own): (&str, &[String])| -> anyhow::Result<StudyFile> {
            let mut sets: Vec<String> = flags.set.iter().chain(own).cloned().collect();
            sets.push(format!("measure.repetitions={}", flags.blocks.1));
            let study = StudyFile::read(path, flags.toy, &sets).map_err(|error| match error {
                Refusal::Set { set, problem } if own.contains(&set) => {
                    refused(format!("{flag} {set}: {problem}"))
                }
                other => refused(other),
            })?;
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
        let (first, second) = (
            read(&self.before, ("--set-before", &flags.set_before))?,
            read(after, ("--set-after", &flags.set_after))?,
        );
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

/// Its response variable and configuration.
fn what(one: &Comparison) -> String {
    let metric = short_metric(&one.metric, one.quantity);
    match one.configuration.as_str() {
        ONLY => metric,
        several => format!("{metric}, {}", short_configuration(several)),
    }
}

/// The verdict in a sentence; `would_tell` is how many blocks in all would probably tell.
fn answer(page: &ComparisonPage, (block, last): (u64, u64), would_tell: Option<u64>) -> String {
    let percent = |share: f64| format!("{} %", figures(100.0 * share, 2));
    let (comparisons, verdict) = (&page.comparisons, page.verdict);
    // What may differ most, and that it is the worst of several.
    let most = largest_difference(comparisons).map(|(most, one)| {
        let of = format!("{}, of {}", percent(most), what(one));
        (most, if comparisons.len() > 1 { of } else { percent(most) })
    });
    match verdict {
        Verdict::Regression | Verdict::Improvement => {
            // The one that is surely furthest from no change.
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

/// By how many halves of its interval a ratio lies from one.
fn clearness(interval: Interval) -> f64 {
    (interval.low * interval.high).ln().abs() / (interval.high / interval.low).ln()
}

/// How far a ratio lies from one at least.
fn far(one: &Comparison) -> f64 {
    let interval = one.ratio.as_ref().and_then(|ratio| ratio.interval);
    interval.map_or(0.0, |ends| ends.low.ln().abs().min(ends.high.ln().abs()))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use kendall_report::comparison::ComparedSet;
    use kendall_stats::compare::{self, Better, Options, Samples};

    use super::*;

    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        compare: Compare,
    }

    fn flags() -> Compare {
        Flags::parse_from(["compare", "--run", "a.toml"]).compare
    }

    fn looks() -> Looks {
        Looks::new(5, 40, 0.95).unwrap()
    }

    fn one(variable: Variable, before: &[f64], after: &[f64]) -> Samples {
        let runs = |values: &[f64]| values.iter().map(|value| (None, *value)).collect();
        Samples {
            configuration: "clients=4".to_owned(),
            metric: variable.name(),
            quantity: variable.quantity(),
            better: if variable == Variable::Throughput { Better::Higher } else { Better::Lower },
            before: runs(before),
            after: runs(after),
        }
    }

    fn compared(samples: &[Samples]) -> Vec<Comparison> {
        let options = Options { confidence: 0.95, bound: 0.05, paired: false };
        compare::compare(samples, &options, &mut Xoshiro256PlusPlus::seed_from_u64(1)).unwrap()
    }

    fn told(before: &[f64], after: &[f64]) -> String {
        let comparisons = compared(&[one(Variable::Throughput, before, after)]);
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
            verdict: worst(&comparisons),
            bound: 0.05,
            confidence: 0.95,
            comparisons,
            differences: Vec::new(),
            caveats: Vec::new(),
        };
        let would_tell = flags().blocks_in_all(&page.comparisons, &looks());
        answer(&page, (5, 40), would_tell)
    }

    /// Throughput on a busy machine, and the CPU time of a request, which is 10 % more: one of them ends the session.
    #[test]
    fn what_is_surely_worse_ends_a_session_however_long_the_rest_would_take() {
        let (busy, as_busy) = ([100.0, 60.0, 140.0, 90.0], [80.0, 140.0, 70.0, 105.0]);
        let (ms, more) = ([1.0, 0.98, 1.03, 1.01], [1.1, 1.06, 1.14, 1.12]);
        let throughput = || one(Variable::Throughput, &busy, &as_busy);
        let cpu = |after: &[f64]| one(Variable::CpuTime, &ms, after);
        let flags = flags();
        let all = |samples: &[Samples]| flags.blocks_in_all(&compared(samples), &looks());
        let alone = all(&[throughput()]).unwrap_or(1_000);
        assert!(all(&[throughput(), cpu(&more)]).is_none_or(|blocks| blocks < alone / 10));
        // CPU time that differs by chance keeps no session going.
        let still = flags.still_open(&compared(&[throughput(), cpu(&more)]), &looks());
        assert!(still.starts_with("so far cpu_time_per_request (ms), clients=4: +9."), "{still}");
        let noise = compared(&[one(Variable::Throughput, &ms, &ms), cpu(&[0.8, 1.3, 0.7, 1.0])]);
        assert!(flags.is_beside(&noise[1]) && noise[1].verdict == Verdict::Inconclusive);
        assert!(!flags.is_beside(&noise[0]));
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
