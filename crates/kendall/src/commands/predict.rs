//! `kendall predict`: what-if questions to a study's calibrated model.

mod against;
mod answers;
mod human;
mod objective;
mod question;
mod until;
mod verify;

use std::path::PathBuf;

use kendall_fit::study::{AskError, Calibration};
use kendall_fit::twin::MOST_FOREIGN_CORES;
use kendall_store::{Results, StoreError};
use kendall_study::Objective;

use self::answers::{Answers, Asker};
use self::objective::Plan;
use self::question::{Asked, StudyOfResults};
use self::until::Until;
use self::verify::{Verdict, Verification};
use crate::exit::{Exit, exit_with, refused};
use crate::output::{self, Format};

/// Predicts what a system would do, from the runs of a study
///
/// Fits one model of the system (tiers, pools, links, processors that all processes share) to the
/// stored runs, and evaluates it at the settings asked for. Each number has a 95 % prediction
/// interval for one run. A question that the runs cannot answer is refused with exit code 2, and
/// the message names the run that would make it answerable. With --verify the configuration is also
/// measured: exit code 4 if throughput or mean response time is off by more than --bound.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  kendall predict results/demo --what-if workload.clients=300\n  kendall \
                  predict results/demo --what-if workload.clients=10..300 --what-if system.workers=64\n  \
                  kendall predict results/demo --what-if cores=4 --what-if placement.servers=other\n  kendall predict \
                  results/demo --what-if workload.clients=300 --verify\n  kendall predict results/demo \
                  --objective \"p99 < 10ms\""
)]
pub(crate) struct Predict {
    /// Folder of results
    #[arg(value_name = "RESULTS")]
    results: PathBuf,
    /// A changed setting: a key of the study file, `cores`, `cpu_speed`, `placement.TIER=HOST`,
    /// `hosts.HOST.cores`, `hosts.HOST.speed`, `tiers.TIER.speed`, `.hit_ratio`, `.workers`,
    /// `.threads`, `.connections`, `.instances`; a range (10..300) or a list (10,20) gives a curve
    #[arg(long = "what-if", value_name = "KEY=VALUE")]
    what_if: Vec<String>,
    /// Points of a range; 9 unless given
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=100))]
    points: Option<u32>,
    /// Leaves out runs in which other processes used more CPU than this, in cores; unless given, such runs weigh less,
    /// by what it does to a run
    #[arg(long, value_name = "CORES")]
    most_foreign: Option<f64>,
    /// What must be met, such as `p99 < 10ms` or `mean < 2ms`: finds the highest load that meets it
    /// (within the given range), or with --carry the cheapest of all combinations of the given
    /// values
    #[arg(long, value_name = "OBJECTIVE", value_parser = Objective::parse)]
    objective: Option<Objective>,
    /// Load that the system must carry, as Poisson arrivals
    #[arg(long, value_name = "RATE", requires = "objective", value_parser = kendall_units::parse_rate)]
    carry: Option<kendall_units::Rate>,
    /// Cost of one unit of a key, such as system.workers=0.1 or cores=20; adds to `[costs]` of the
    /// study
    #[arg(long, value_name = "KEY=COST", value_parser = cost, requires = "carry")]
    cost: Vec<(String, f64)>,
    /// Measures each predicted configuration, and beside it one that was measured before, and says
    /// whether the prediction held; the runs are stored with the study
    #[arg(long, conflicts_with = "objective")]
    verify: bool,
    /// Largest error of throughput and mean response time, at the machine's speed, before
    /// verification fails (exit code 4); 10 % unless given
    #[arg(long, value_name = "SHARE", value_parser = error_bound, requires = "verify")]
    bound: Option<f64>,
    /// Adds runs until the widest interval of throughput and mean response is as narrow as this to either side: one
    /// beyond the suspected saturation, then where the models differ most; 6 at most (exit code 4 if they do not do)
    #[arg(long, value_name = "SHARE", value_parser = width, conflicts_with_all = ["objective", "verify"])]
    until: Option<f64>,
    /// Compares the model with runs of other results of the same system, which it was not fitted
    /// to: errors, intervals and noise floor; --what-if states their hardware if it differs
    #[arg(long, value_name = "DIR", conflicts_with_all = ["objective", "verify", "until", "keep", "csv"])]
    against: Option<PathBuf>,
    /// Stores the answers with the results, so that the report shows them
    #[arg(long, conflicts_with = "objective")]
    keep: bool,
    /// Writes the curve, or the one answer, as CSV
    #[arg(long, value_name = "FILE", conflicts_with = "objective")]
    csv: Option<PathBuf>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Points of a range, unless given.
const POINTS: u32 = 9;
/// Largest error at which a verified prediction holds.
const BOUND: f64 = 0.1;
/// Keys of the load.
const LOADS: [&str; 2] = ["workload.clients", "workload.rate"];

/// Results that are not there, or cannot be read.
fn unreadable(error: StoreError) -> anyhow::Error {
    exit_with(Exit::of_results(&error), error)
}

impl Predict {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let curves = if self.carry.is_some() { usize::MAX } else { 1 };
        let points = self.points.unwrap_or(POINTS);
        let asked = Asked::parse(&self.what_if, points, curves).map_err(refused)?;
        self.changes_something(&asked)?;
        let results = Results::open(&self.results).map_err(unreadable)?;
        let study = StudyOfResults::read(&results).map_err(refused)?;
        let calibration = self.calibration(&results)?;
        if let Some(folder) = &self.against {
            let mut others = self.calibration(&Results::open(folder).map_err(unreadable)?)?;
            others.most_foreign_cores = self.disturbing();
            let scores = against::score(&calibration, &others, &asked).map_err(refused)?;
            if scores.points.is_empty() {
                let why = scores.refused.first().cloned().unwrap_or_default();
                let none =
                    format!("none of the runs in {} has a prediction: {why}", folder.display());
                return Err(refused(none));
            }
            output::print(self.format, &scores, || against::document(&scores))?;
            return Ok(Exit::Done);
        }
        if let Some(share) = self.until {
            drop(results);
            return self.narrowed(&Until {
                folder: &self.results,
                study: &study,
                asked: &asked,
                share,
            });
        }
        let asker = Asker::new(&study, &calibration, &asked).map_err(|error| refusal(&error))?;
        if let Some(objective) = &self.objective {
            let plan = self.planned(&study, &asker, &asked, objective);
            return self.print_plan(&plan.map_err(|error| refusal(&error))?);
        }
        let answers = asker.answers().map_err(|error| refusal(&error))?;
        if self.verify {
            self.written(&answers)?;
            drop(results);
            return self.verified(&study, &asker, &asked);
        }
        self.told(&answers)?;
        Ok(Exit::Done)
    }

    /// Where it is to be stored.
    fn written(&self, answers: &Answers) -> anyhow::Result<()> {
        if let Some(path) = &self.csv {
            output::file(path, &answers.csv())?;
        }
        if self.keep {
            answers.store(&self.results)?;
        }
        Ok(())
    }

    fn told(&self, answers: &Answers) -> anyhow::Result<()> {
        self.written(answers)?;
        output::print(self.format, answers, || human::document(answers))
    }

    /// An interval that is not as narrow as asked is a check that failed.
    fn narrowed(&self, until: &Until<'_>) -> anyhow::Result<Exit> {
        let calibration = || self.calibration(&Results::open(&self.results).map_err(unreadable)?);
        let (answers, is_narrow) = until.answers(calibration).map_err(|error| refusal(&error))?;
        self.told(&answers)?;
        Ok(if is_narrow { Exit::Done } else { Exit::CheckFailed })
    }

    fn calibration(&self, results: &Results) -> anyhow::Result<Calibration> {
        let mut calibration = kendall_observations::calibration(results).map_err(unreadable)?;
        if let Some(most) = self.most_foreign {
            calibration.most_foreign_cores = most;
        }
        Ok(calibration)
    }

    /// Foreign CPU beyond which a run says nothing of a prediction, in cores.
    fn disturbing(&self) -> f64 {
        self.most_foreign.unwrap_or(MOST_FOREIGN_CORES)
    }

    /// Refuses options that would change nothing.
    fn changes_something(&self, asked: &Asked) -> anyhow::Result<()> {
        if self.points.is_some() && !self.what_if.iter().any(|text| text.contains("..")) {
            let none = "--points are those of a range, and none is asked; write it like --what-if workload.clients=10..300";
            return Err(refused(none));
        }
        for (key, _) in &self.cost {
            if asked.what_ifs.iter().all(|what_if| what_if.key != *key) {
                let unknown = format!(
                    "--cost {key}: no value of `{key}` is asked, so its cost changes nothing; add --what-if {key}=…"
                );
                return Err(refused(unknown));
            }
        }
        let of_load = |key: &str| LOADS.contains(&key);
        let load = asked.what_ifs.iter().find(|what_if| of_load(&what_if.key));
        if let (Some(load), true) = (load, self.carry.is_some()) {
            let twice = format!("`{}`: the load is the rate of --carry; leave it out", load.key);
            return Err(refused(twice));
        }
        let searched = asked.curve().filter(|_| self.objective.is_some() && self.carry.is_none());
        if let Some(other) = searched.filter(|what_if| !of_load(&what_if.key)) {
            let not_load = format!(
                "`{}` has several values, and the highest load is what --objective finds: give it one value, or the load \
                 that each must carry with --carry",
                other.key
            );
            return Err(refused(not_load));
        }
        Ok(())
    }

    fn planned(
        &self,
        study: &StudyOfResults,
        asker: &Asker<'_>,
        asked: &Asked,
        objective: &Objective,
    ) -> anyhow::Result<Plan> {
        let Some(carried) = self.carry else {
            return objective::most_load(asker, asked, objective);
        };
        let mut costs = self.cost.clone();
        costs.extend(study.file.costs.iter().cloned());
        objective::settings(asker, asked, objective, carried.get(), &costs)
    }

    /// What meets nothing is a check that failed.
    fn print_plan(&self, plan: &Plan) -> anyhow::Result<Exit> {
        output::print(self.format, plan, || objective::document(plan))?;
        let met = match plan {
            Plan::MostLoad { expected, .. } => expected.is_some(),
            Plan::Settings { settings, .. } => settings.iter().any(|setting| setting.meets),
        };
        Ok(if met { Exit::Done } else { Exit::CheckFailed })
    }

    fn verified(
        &self,
        study: &StudyOfResults,
        asker: &Asker<'_>,
        asked: &Asked,
    ) -> anyhow::Result<Exit> {
        let verification = Verification {
            folder: &self.results,
            study,
            asker,
            bound: self.bound.unwrap_or(BOUND),
            most_foreign: self.disturbing(),
        };
        let mut verdicts = Vec::new();
        for values in asked.points() {
            verdicts.push(verification.run(&values).map_err(|error| refusal(&error))?);
        }
        match self.format {
            Format::Human => {
                for verdict in &verdicts {
                    output::document(&verify::document(verdict));
                }
            }
            Format::Json => output::json(&verdicts)?,
        }
        let all = || verdicts.iter().map(Verdict::exit);
        let worst = [Exit::CheckFailed, Exit::RunRejected]
            .into_iter()
            .find(|exit| all().any(|one| one == *exit));
        Ok(worst.unwrap_or(Exit::Done))
    }
}

/// `KEY=COST`.
fn cost(text: &str) -> Result<(String, f64), String> {
    let found = text.split_once('=').and_then(|(key, cost)| {
        let cost = cost.trim().parse::<f64>().ok()?;
        (cost >= 0.0 && cost.is_finite()).then(|| (key.trim().to_owned(), cost))
    });
    found.ok_or_else(|| format!("`{text}` is not a cost; write it like system.workers=0.1"))
}

/// An error may be more than the whole.
fn error_bound(text: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share = number.trim().parse::<f64>().ok().map(|number| number / unit);
    share
        .filter(|share| *share >= 0.0 && share.is_finite())
        .ok_or_else(|| format!("`{text}` is not a share; write it like `10%` or `0.1`"))
}

fn width(text: &str) -> Result<f64, String> {
    let share = kendall_units::parse_share(text).ok().filter(|share| *share > 0.0);
    share.ok_or_else(|| format!("`{text}` is not a share above 0% and up to 100%, such as `2%`"))
}

/// What was asked and cannot be answered ends with a code of its own; what is broken does not.
fn refusal(error: &anyhow::Error) -> anyhow::Error {
    let exit = if error.is::<AskError>() { Exit::Refused } else { Exit::of(error) };
    exit_with(exit, error.to_string())
}
