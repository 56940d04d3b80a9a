//! Up to which load an objective for the response time was met, in the windows that were seen.

use kendall_fit::model::{NORMAL, mean_of};
use kendall_fit::open::timed_inside;
use kendall_observations::Objective;
use kendall_stats::sample;
use kendall_units::{Rate, exact_f64};

use crate::analysis::{Analysis, rate};
use crate::bins::counts;
use crate::fetch::Observed;
use crate::quantity::Quantity;
use crate::system::System;

/// Groups of windows of neighboring loads, at most, and windows that each has at least: few requests are slow, and one
/// window has few of them.
const GROUPS: usize = 12;
const FEWEST: usize = 2;

/// A load in single steps, over that of the highest group, beyond which it is another load.
const FAR_ABOVE: f64 = 1.3;

/// Standard deviations of a number of requests that one of many steps may have.
const BY_CHANCE: f64 = 4.0;

/// Whether a group of windows meets an objective.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Meets {
    Yes,
    No,
    CannotTell,
}

/// The load up to which the entry met an objective, and from which it missed it, in a sentence.
pub fn objective(
    system: &System,
    observed: &Observed,
    analysis: &Analysis,
    objective: &Objective,
) -> String {
    let said = objective.text.trim();
    let entry = &observed.tiers[system.entry];
    if objective.quantile.is_some() && entry.buckets.is_empty() {
        let name = &system.tiers[system.entry].name;
        return format!("`{said}`: cannot tell: no query gives the `buckets` of `{name}`.");
    }
    if analysis.monitored.tiers[system.entry].inside {
        return format!(
            "`{said}`: cannot tell: {}.",
            timed_inside(&system.tiers[system.entry].name)
        );
    }
    let windows = analysis.windows.all.iter().enumerate();
    let used = windows.filter(|(_, window)| window.left_out.is_none());
    let mut loads: Vec<(f64, usize)> =
        used.filter_map(|(number, window)| Some((rate(system, window)?, number))).collect();
    loads.sort_by(|a, b| a.0.total_cmp(&b.0));
    let together = loads.len().div_ceil(GROUPS).max(FEWEST);
    let groups: Vec<(f64, Meets)> = loads
        .chunks(together)
        .map(|group| {
            let numbers: Vec<usize> = group.iter().map(|(_, number)| *number).collect();
            let load = sample::mean(&group.iter().map(|(load, _)| *load).collect::<Vec<f64>>());
            (load, meets((system, observed, analysis), objective, &numbers))
        })
        .collect();
    // A group that does not tell is passed over where groups on either side of it do.
    let is = |wanted: Meets| move |group: &(f64, Meets)| group.1 == wanted;
    let first_missed = groups.iter().position(is(Meets::No)).unwrap_or(groups.len());
    let met = groups[..first_missed].iter().rfind(|group| is(Meets::Yes)(group));
    let after_met = groups.iter().rposition(is(Meets::Yes)).map_or(0, |last| last + 1);
    let missed = groups[after_met..].iter().find(|group| is(Meets::No)(group));
    let at = |group: &(f64, Meets)| Rate::per_second(group.0);
    match (met, missed) {
        (Some(met), None) if groups.last() == Some(met) => {
            let highest = highest_step(system, observed, analysis);
            match Some(highest).filter(|highest| *highest > met.0 * FAR_ABOVE) {
                None => {
                    format!("`{said}` is met at all loads that were observed, up to {}.", at(met))
                }
                Some(highest) => format!(
                    "`{said}` is met at steady loads, up to {}; loads up to {} were seen, in windows in which the load changed: shorter \
                     ones (`block`) may tell.",
                    at(met),
                    Rate::per_second(highest)
                ),
            }
        }
        (Some(met), Some(missed)) => format!(
            "`{said}` is met up to {} and missed from {} on: the load at which it is missed first lies between.",
            at(met),
            at(missed)
        ),
        (Some(met), None) => {
            format!("`{said}` is met up to {}; above, the windows do not tell.", at(met))
        }
        (None, Some(missed)) if groups.first() == Some(missed) => {
            format!("`{said}` is missed at all loads that were observed, from {} on.", at(missed))
        }
        (None, Some(missed)) => {
            format!("`{said}` is missed from {} on; below, the windows do not tell.", at(missed))
        }
        (None, None) => format!(
            "`{said}`: cannot tell: too few requests were seen, or no bin ends at {}.",
            objective.below
        ),
    }
}

/// The highest load of a single step, less what chance may have added to it, in the windows of the analysis, used or not.
fn highest_step(system: &System, observed: &Observed, analysis: &Analysis) -> f64 {
    let from = analysis.windows.since_step();
    let rates = observed.tiers[system.entry].series.get(&Quantity::Throughput);
    let rates = rates.and_then(|rates| rates.get(from..)).unwrap_or_default();
    let surely = |rate: &f64| rate - BY_CHANCE * (rate / exact_f64(system.step_s)).sqrt();
    rates.iter().filter(|rate| rate.is_finite()).map(surely).fold(0.0, f64::max)
}

fn meets(
    (system, observed, analysis): (&System, &Observed, &Analysis),
    objective: &Objective,
    windows: &[usize],
) -> Meets {
    let limit = objective.below.get();
    let Some(quantile) = objective.quantile else {
        let mean =
            |number: &usize| analysis.windows.all[*number].tiers[system.entry].response_time_s;
        let means: Vec<f64> = windows.iter().filter_map(mean).collect();
        let found = mean_of(&means);
        return verdict(found.value, NORMAL * found.standard_error, found.value, limit);
    };
    // How many requests, and which shares of them were surely and possibly slow.
    let shares = |windows: &[usize]| {
        let steps = windows.iter().map(|number| analysis.windows.steps_of(*number));
        let bins = counts(&observed.tiers[system.entry], steps);
        let sum = |is: &dyn Fn(f64, f64) -> bool| -> f64 {
            bins.iter().filter(|(low, high, _)| is(*low, *high)).map(|bin| bin.2).sum()
        };
        // Bins hold rates, each over one step.
        let seconds = exact_f64(system.step_s);
        let all = sum(&|_, _| true) * seconds;
        let share = |part: f64| part * seconds / all;
        (all >= 1.0)
            .then(|| (all, share(sum(&|low, _| low >= limit)), share(sum(&|_, high| high > limit))))
    };
    let Some((all, surely, possibly)) = shares(windows) else { return Meets::CannotTell };
    let slow = 1.0 - quantile;
    // A proportion of as many requests, if it were as large as the objective allows; more where slow requests come
    // together, as in a queue, so that windows differ by more.
    let chance = (slow * quantile / all).sqrt();
    let each: Vec<(f64, f64, f64)> =
        windows.iter().filter_map(|number| shares(std::slice::from_ref(number))).collect();
    let error = |of: fn(&(f64, f64, f64)) -> f64| {
        mean_of(&each.iter().map(of).collect::<Vec<f64>>()).standard_error
    };
    let chance = NORMAL * chance.max(error(|window| window.1)).max(error(|window| window.2));
    verdict(possibly, chance, surely, slow)
}

/// Of a number between `least` and `most`, give or take its chance.
fn verdict(most: f64, chance: f64, least: f64, limit: f64) -> Meets {
    if most + chance < limit {
        Meets::Yes
    } else if least - chance >= limit {
        Meets::No
    } else {
        Meets::CannotTell
    }
}
