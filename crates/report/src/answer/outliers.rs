//! Runs that stand out from all others of a curve, and what was different in them.

use kendall_fit::bottleneck::{DISTURBED, cores_of_others};
use kendall_fit::measured::OperatingPoint;
use kendall_fit::saturation::Saturation;
use kendall_observations::{Configuration, Curve, Observations, Repetition};
use kendall_stats::sample::median;

use crate::number;

/// Cores, and threads that wait for one, that are a difference.
const CORES: f64 = 0.2;

/// Times a second that threads lose their core, and their ratio, from which they are one.
const PREEMPTIONS: f64 = 50.0;
const TIMES_AS_MANY: f64 = 2.0;

/// Ratio of processor times a request that is one.
const COST: f64 = 1.25;

/// The runs that stand out from all others, what differed in them, and that they count less.
pub(super) fn in_words(data: &Observations, curve: &Curve, found: &Saturation) -> Option<String> {
    let places = &found.curve.as_ref()?.outliers;
    let mut runs: Vec<(&Configuration, &Repetition)> = data
        .along(curve)
        .flat_map(|c| c.repetitions.iter().map(move |repetition| (c, repetition)))
        .collect();
    runs.sort_by_key(|(_, repetition)| repetition.run.started_unix_ns);
    let named: Vec<String> = places
        .iter()
        .filter_map(|place| runs.get(*place))
        .map(|(configuration, repetition)| {
            let rest: Vec<&OperatingPoint> = configuration
                .repetitions
                .iter()
                .filter(|other| other.run.id != repetition.run.id)
                .map(|other| &other.point)
                .collect();
            format!(
                "repetition {} of {} ({}{})",
                repetition.run.repetition + 1,
                data.name_of(configuration),
                number::rate(repetition.point.client.throughput_per_s),
                differences(&repetition.point, &rest)
            )
        })
        .collect();
    (!named.is_empty())
        .then(|| format!(" Stands out from all other runs and counts less: {}.", named.join("; ")))
}

/// Where the service works in one way in some runs and in another in the rest: loads whose runs fall into two groups
/// that lie further apart than the runs of each, and are the same at all these loads.
pub(super) fn two_modes(data: &Observations, curve: &Curve) -> Option<String> {
    let of_load = |c: &Configuration| -> Vec<f64> {
        let sound = c.repetitions.iter().filter(|repetition| repetition.weight >= DISTURBED);
        sound.map(|repetition| repetition.point.client.throughput_per_s).collect()
    };
    let loads: Vec<Vec<f64>> = data.along(curve).map(of_load).collect();
    let [slow, fast] = modes(&loads)?;
    let range = |runs: &[f64]| match runs {
        [first, .., last] => format!("{} to {}", number::rate(*first), number::rate(*last)),
        _ => String::new(),
    };
    Some(format!(
        " It works in two modes: of the runs at loads where both are seen, {} carry {} and {} carry {}.",
        slow.len(),
        range(&slow),
        fast.len(),
        range(&fast)
    ))
}

/// Throughputs of the slow runs and of the fast ones, rising, of the loads that have both.
fn modes(loads: &[Vec<f64>]) -> Option<[Vec<f64>; 2]> {
    /// Ratio from which they are two.
    const APART: f64 = 1.2;
    /// Power of the ratio between them by which runs of one may differ.
    const ALIKE: f64 = 1.0 / 3.0;
    let differ = |runs: &&Vec<f64>| {
        let (low, high) =
            runs.iter().fold((f64::INFINITY, 0.0_f64), |(l, h), x| (l.min(*x), h.max(*x)));
        high > APART * low
    };
    let both: Vec<&Vec<f64>> = loads.iter().filter(differ).collect();
    let mut runs: Vec<f64> = both.iter().copied().flatten().copied().collect();
    runs.sort_by(f64::total_cmp);
    let apart = |at: &usize| runs[*at] / runs[*at - 1];
    let at = (2..runs.len().saturating_sub(1)).max_by(|a, b| apart(a).total_cmp(&apart(b)))?;
    let (ratio, fast) = (apart(&at), runs.split_off(at));
    let alike = |mode: &[f64]| mode[mode.len() - 1] <= mode[0] * ratio.powf(ALIKE);
    let seen = |load: &&Vec<f64>| {
        let slow = load.iter().filter(|x| **x < fast[0]).count();
        slow > 0 && slow < load.len()
    };
    let told = ratio >= APART && alike(&runs) && alike(&fast) && both.len() > 1;
    (told && both.iter().all(seen)).then_some([runs, fast])
}

/// What was recorded otherwise than in the other repetitions of its configuration.
fn differences(point: &OperatingPoint, rest: &[&OperatingPoint]) -> String {
    if rest.is_empty() {
        return String::new();
    }
    let both = |of: fn(&OperatingPoint) -> f64| {
        (of(point), median(rest.iter().map(|other| of(other)).collect()))
    };
    let mut found = Vec::new();
    let (here, there) = both(cores_of_others);
    if (here - there).abs() > CORES {
        found.push(format!("other programs used {here:.1} cores, {there:.1} otherwise"));
    }
    let (here, there) = both(waiting_for_a_core);
    if (here - there).abs() > CORES {
        found.push(format!("{here:.1} threads waited for a core, {there:.1} otherwise"));
    }
    let (here, there) = both(preemptions);
    if (here - there).abs() > PREEMPTIONS && here.max(there) > TIMES_AS_MANY * here.min(there) {
        found.push(format!(
            "its threads lost their core {here:.0} times a second, {there:.0} otherwise"
        ));
    }
    let (here, there) = both(processor_time);
    if here > there * COST || there > here * COST {
        found.push(format!(
            "a request took {} of processor time, {} otherwise",
            number::time(here),
            number::time(there)
        ));
    }
    match found.is_empty() {
        true => "; nothing recorded of its processors differs".to_owned(),
        false => format!("; {}", found.join(", ")),
    }
}

fn waiting_for_a_core(point: &OperatingPoint) -> f64 {
    point.processes.iter().filter_map(|process| process.run_queue_wait).sum()
}

fn preemptions(point: &OperatingPoint) -> f64 {
    point.processes.iter().map(|process| process.preemptions_per_s).sum()
}

/// Where a request took much more of the processor in one run than in another of the same load: least and most.
pub(super) fn moved_cost(data: &Observations, curve: &Curve) -> Option<String> {
    let of = |c: &Configuration| {
        let sound = c.repetitions.iter().filter(|repetition| repetition.weight >= DISTURBED);
        moved(sound.map(|one| (processor_time(&one.point), one.point.client.throughput_per_s)))
    };
    let all = data.along(curve).filter_map(|c| Some((c, of(c)?)));
    let (at, (low, high)) = all.max_by(|a, b| (a.1.1 / a.1.0).total_cmp(&(b.1.1 / b.1.0)))?;
    Some(format!(
        " What a request takes of the processor moved from {} to {} between runs of one load ({}).",
        number::time(low),
        number::time(high),
        data.name_of(at)
    ))
}

/// Least and most of the processor times a request, each with its rate, where they differ.
fn moved(costs: impl Iterator<Item = (f64, f64)>) -> Option<(f64, f64)> {
    /// More than the speed of a virtual machine drifts by.
    const MOVED: f64 = 1.5;
    /// Cores below which a wake-up more or less is a difference.
    const LEAST_CORES: f64 = 0.05;
    let notable = costs.filter(|(cost, rate)| cost * rate >= LEAST_CORES);
    let (low, high) =
        notable.fold((f64::INFINITY, 0.0_f64), |(l, h), (cost, _)| (l.min(cost), h.max(cost)));
    (high > MOVED * low).then_some((low, high))
}

/// Of the system, per request.
fn processor_time(point: &OperatingPoint) -> f64 {
    let system = point.processes.iter().filter(|process| process.part.role.is_of_the_system());
    system.map(|process| process.cpu_cores).sum::<f64>() / point.client.throughput_per_s
}

#[cfg(test)]
mod tests {
    use kendall_fit::measured::{ProcessView, View};

    use super::*;

    /// A lock that is held for 2 or for 5 ms, as chance decides at each start.
    #[test]
    fn runs_of_two_modes_are_told_from_runs_that_scatter() {
        let two = [
            vec![404.3, 177.3, 383.3],
            vec![182.3, 182.3, 182.8],
            vec![180.7, 414.1, 183.6],
            vec![415.1, 186.7, 177.7],
        ];
        let [slow, fast] = modes(&two).unwrap();
        assert_eq!((slow.len(), fast.len()), (5, 4));
        assert!((slow[0] - 177.3).abs() < 1e-9 && (fast[3] - 415.1).abs() < 1e-9);
        let scatter =
            [vec![250.0, 310.0, 208.0], vec![320.0, 360.0, 291.0], vec![283.0, 351.0, 247.0]];
        assert_eq!(modes(&scatter), None);
        let one_run = [vec![572.0, 612.0, 37.0, 385.0], vec![609.0, 606.0, 609.0]];
        assert_eq!(modes(&one_run), None);
        let levels = [vec![100.0, 101.0], vec![200.0, 201.0], vec![400.0, 401.0]];
        assert_eq!(modes(&levels), None);
        assert_eq!(modes(&[vec![1.0], Vec::new()]), None);
    }

    #[test]
    fn a_cost_has_moved_where_a_drift_of_the_machine_does_not_explain_it() {
        let moved = |costs: &[f64]| super::moved(costs.iter().map(|cost| (*cost, 200.0)));
        assert_eq!(moved(&[3.8e-3, 6.0e-3, 4.1e-3]), Some((3.8e-3, 6.0e-3)));
        assert_eq!(moved(&[4.0e-3, 5.5e-3]), None);
        assert_eq!(moved(&[20e-6, 60e-6]), None, "hardly anything is computed");
        assert_eq!(moved(&[f64::NAN, 4.0e-3]), None);
        assert_eq!(moved(&[]), None);
    }

    #[test]
    fn what_was_recorded_otherwise_is_named() {
        let point = |busy: f64, rate: f64| OperatingPoint {
            client: View { throughput_per_s: rate, response_time_s: 0.01 },
            processes: vec![ProcessView {
                cpu_cores: 0.4,
                run_queue_wait: Some(0.0),
                ..ProcessView::default()
            }],
            host_busy_cores: Some(busy),
            host_cores: 2.0,
            ..OperatingPoint::default()
        };
        let usual = [point(0.5, 100.0), point(0.5, 100.0)];
        let rest: Vec<&OperatingPoint> = usual.iter().collect();
        let beside = differences(&point(1.7, 98.0), &rest);
        assert_eq!(beside, "; other programs used 1.3 cores, 0.1 otherwise");
        let dear = differences(&point(0.5, 50.0), &rest);
        assert_eq!(dear, "; a request took 8.00 ms of processor time, 4.00 ms otherwise");
        let slower = differences(&point(0.5, 90.0), &rest);
        assert_eq!(slower, "; nothing recorded of its processors differs");
        assert_eq!(differences(&point(1.7, 98.0), &[]), "");
    }
}
