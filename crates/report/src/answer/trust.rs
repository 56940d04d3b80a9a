//! Whether the numbers can be trusted, as a light with its reason.

use kendall_fit::bottleneck::{Bottleneck, disturbing_share, is_delayed, others_in_words};
use kendall_observations::{Configuration, Observations};
use kendall_stats::estimate::{Caveat, Estimate, OtherProgram};
use kendall_store::Run;
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

    /// Of an answer about a configuration; the estimate is the answer's own, where it has one, and whether its runs are of
    /// two modes.
    pub(super) fn of(
        data: &Observations,
        about: &Configuration,
        limit: &Bottleneck,
        (estimate, has_modes): (Option<&Estimate>, bool),
    ) -> Self {
        let of_runs = about.throughput_estimate();
        let estimate = estimate.or(of_runs.as_ref());
        let bad = |why: String, remedy: &str| Self {
            level: TrustLevel::Bad,
            why,
            remedy: remedy.to_owned(),
        };
        // What others did counts where it delayed what was measured, and repetitions show it; those of two modes differ
        // by themselves.
        let is_narrow =
            |estimate: &Estimate| estimate.relative_half_width().is_some_and(|w| w <= WIDE);
        let agree = has_modes || estimate.is_some_and(is_narrow);
        let spoilt = disturbing_share(&about.point).filter(|share| *share > OTHERS_SPOIL);
        // Nor is a machine known that had no core left for the study.
        if let Some(share) = spoilt.filter(|_| !agree || limit.cannot_tell.is_some()) {
            return bad(
                with_largest(about, of_time(share)),
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
        // What waits for no processor is slower beside others by what they delayed.
        let counts = limit.limiting.is_some() || limit.cannot_tell.is_some();
        let others = disturbing_share(&about.point).filter(|_| counts || is_delayed(&about.point));
        let mut doubts: Vec<String> = others
            .map(|share| {
                let did = others_in_words(&about.point).unwrap_or_else(|| of_time(share));
                with_largest(about, did)
            })
            .into_iter()
            .collect();
        doubts.extend(self::doubts(data, about, unusable, estimate));
        match doubts.first() {
            None => Self {
                level: TrustLevel::Good,
                why: match others_in_words(&about.point) {
                    None => without_caveat(data, about),
                    Some(others) => {
                        format!("{}; {}", without_caveat(data, about), with_largest(about, others))
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

fn of_time(share: f64) -> String {
    format!("other programs took {} of the processor time in use", number::percent(share))
}

/// What other programs did, and the largest of them where they were counted.
fn with_largest(about: &Configuration, did: String) -> String {
    let named = about.doubts().iter().find_map(|caveat| match caveat {
        Caveat::InRuns { what, .. } => match &**what {
            Caveat::NoisyNeighbor { programs, .. } | Caveat::OthersBeside { programs } => {
                Some(programs.clone())
            }
            _ => None,
        },
        _ => None,
    });
    did + &OtherProgram::all_in_words(", most of it ", &named.unwrap_or_default())
}

/// The answer is about one configuration, and rests on all runs.
fn without_caveat(data: &Observations, about: &Configuration) -> String {
    let has = |run: &&Run| run.caveats.iter().any(|caveat| touches(data, caveat));
    let all = number::count(data.runs.len(), "run");
    match data.runs.iter().filter(has).count() {
        0 => format!("no caveat about it in {all}"),
        some => format!(
            "no caveat about it in its {}, but in {some} of all {all}",
            number::count(about.repetitions.len(), "run")
        ),
    }
}

/// Whether a caveat is about what is answered. That generator and tiers share a machine holds for every
/// study on one; few requests make a percentile unsure, of which few answers are; and an end that was left
/// out changes little where it was hardly another.
fn touches(data: &Observations, caveat: &Caveat) -> bool {
    const HARDLY: f64 = 0.05;
    match caveat {
        Caveat::LateWindowsCut { throughput_change, response_time_change, .. } => {
            throughput_change.abs().max(response_time_change.abs()) > HARDLY
        }
        Caveat::InRuns { what, .. } => touches(data, what),
        Caveat::SharedMachine { .. } => false,
        remark if remark.is_remark() => false,
        Caveat::TooFewSamples { .. } => {
            super::objective(data).is_some_and(|objective| objective.quantile.is_some())
        }
        _ => true,
    }
}

fn doubts(
    data: &Observations,
    about: &Configuration,
    unusable: usize,
    estimate: Option<&Estimate>,
) -> Vec<String> {
    let mut doubts = Vec::new();
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
    let statuses = about.failed_statuses();
    let in_words = |caveat: &Caveat| match caveat {
        Caveat::InRuns { what, .. }
            if matches!(**what, Caveat::Errors { .. }) && !statuses.is_empty() =>
        {
            format!("{caveat}; by status, over the whole load: {}", number::statuses(&statuses))
        }
        _ => caveat.to_string(),
    };
    doubts.extend(about.doubts().iter().filter(|caveat| touches(data, caveat)).map(in_words));
    doubts
}
