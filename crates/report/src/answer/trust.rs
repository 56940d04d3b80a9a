//! Whether the numbers can be trusted, as a light with its reason.

use kendall_fit::bottleneck::{Bottleneck, disturbing_share, others_in_words};
use kendall_observations::{Configuration, Observations};
use kendall_stats::estimate::{Caveat, Estimate, OtherProgram};
use serde::Serialize;

use crate::number;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrustLevel {
    Good,
    Doubt,
    Bad,
}

impl TrustLevel {
    /// In a word or two, for those who see no color.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Good => "Can be trusted",
            Self::Doubt => "With care",
            Self::Bad => "Do not use",
        }
    }
}

/// Whether to trust an answer, and why.
#[derive(Debug, Clone, Serialize)]
pub struct Trust {
    pub level: TrustLevel,
    pub why: String,
    /// What to do about it; empty where there is nothing to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

/// Share of the busy cores' time that others took, from which numbers are not to be used.
const OTHERS_SPOIL: f64 = 0.5;

/// Half-width of the throughput's interval, as a share, from which it is said.
const WIDE: f64 = 0.1;

impl Trust {
    pub(super) fn nothing(data: &Observations) -> Self {
        let runs = number::count(data.runs.len(), "run");
        Self {
            level: TrustLevel::Bad,
            why: format!("of {runs}, none succeeded"),
            remedy: String::new(),
        }
    }

    /// Of an answer about a configuration; the estimate is the answer's own, where it has one.
    pub(super) fn of(
        data: &Observations,
        about: &Configuration,
        limit: &Bottleneck,
        estimate: Option<&Estimate>,
    ) -> Self {
        let of_runs = about.throughput_estimate();
        let estimate = estimate.or(of_runs.as_ref());
        let bad = |why: String, remedy: &str| Self {
            level: TrustLevel::Bad,
            why,
            remedy: remedy.to_owned(),
        };
        // What others did counts where it delayed what was measured, and repetitions show it.
        let agree = estimate.and_then(Estimate::relative_half_width).is_some_and(|w| w <= WIDE);
        let spoilt = disturbing_share(&about.point).filter(|share| *share > OTHERS_SPOIL);
        // Nor is a machine known that had no core left for the study.
        if let Some(share) = spoilt.filter(|_| !agree || limit.cannot_tell.is_some()) {
            return bad(
                others_took(about, share),
                "The same study on a machine that runs nothing else.",
            );
        }
        if limit.generator_suspected {
            return bad(
                "the load generator was at its limit".to_owned(),
                "The same study with more threads or machines for the load generator.",
            );
        }
        let (unusable, all) = (data.unusable().count(), data.runs.len());
        if 2 * unusable > all {
            return bad(
                format!("{unusable} of {} were rejected or failed", number::count(all, "run")),
                "Repeat `kendall run` with --retry-failed once the cause of the rejected runs is gone.",
            );
        }
        let doubts = doubts(data, about, unusable, estimate);
        match doubts.first() {
            None => Self {
                level: TrustLevel::Good,
                why: match others_in_words(&about.point) {
                    None => format!("no caveat in {}", number::count(all, "run")),
                    Some(others) => {
                        format!("no caveat in {}; {others}", number::count(all, "run"))
                    }
                },
                remedy: String::new(),
            },
            Some(first) => {
                let more = match doubts.len() - 1 {
                    0 => String::new(),
                    more => {
                        format!("; and {} (see threats to validity)", number::count(more, "caveat"))
                    }
                };
                Self {
                    level: TrustLevel::Doubt,
                    why: format!("{first}{more}"),
                    remedy: String::new(),
                }
            }
        }
    }
}

/// The share that other programs took, and the largest of them where they were counted.
fn others_took(about: &Configuration, share: f64) -> String {
    let named = about.doubts().iter().find_map(|caveat| match caveat {
        Caveat::InRuns { what, .. } => match &**what {
            Caveat::NoisyNeighbor { programs, .. } => Some(programs.clone()),
            _ => None,
        },
        _ => None,
    });
    let share = number::percent(share);
    let most = OtherProgram::all_in_words(", most of it ", &named.unwrap_or_default());
    format!("other programs took {share} of the processor time in use{most}")
}

fn doubts(
    data: &Observations,
    about: &Configuration,
    unusable: usize,
    estimate: Option<&Estimate>,
) -> Vec<String> {
    let mut doubts = Vec::new();
    if let Some(share) = disturbing_share(&about.point) {
        doubts.push(others_took(about, share));
    }
    if unusable > 0 {
        let all = number::count(data.runs.len(), "run");
        doubts.push(format!("{unusable} of {all} were rejected or failed and are left out"));
    }
    if data.repetitions() < 2 {
        doubts.push(
            "every configuration was run once, so how far another run would differ is not known"
                .to_owned(),
        );
    }
    doubts.extend(about.alone().into_iter().flat_map(|run| &run.caveats).map(ToString::to_string));
    match estimate {
        Some(estimate) if estimate.relative_half_width().is_some_and(|w| w > WIDE) => {
            let width = estimate.relative_half_width().unwrap_or(f64::NAN);
            doubts.push(format!(
                "runs of one configuration differ: the interval of the throughput is ±{}",
                number::percent(width)
            ));
        }
        Some(estimate) => {
            let wide = |caveat: &&Caveat| matches!(caveat, Caveat::IntervalTooWide { .. });
            doubts.extend(estimate.caveats.iter().find(wide).map(ToString::to_string));
        }
        None => {}
    }
    // That generator and tiers share a machine holds for every study on one.
    let told = |caveat: &Caveat| match caveat {
        Caveat::InRuns { what, .. } => !matches!(**what, Caveat::SharedMachine { .. }),
        _ => true,
    };
    let statuses = about.failed_statuses();
    let in_words = |caveat: &Caveat| match caveat {
        Caveat::InRuns { what, .. }
            if matches!(**what, Caveat::Errors { .. }) && !statuses.is_empty() =>
        {
            format!("{caveat}; by status, over the whole load: {}", number::statuses(&statuses))
        }
        _ => caveat.to_string(),
    };
    doubts.extend(about.doubts().iter().filter(|caveat| told(caveat)).map(in_words));
    doubts
}
