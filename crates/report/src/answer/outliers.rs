//! Runs that stand out from all others of a curve, and what was different in them.

use kendall_fit::bottleneck::cores_of_others;
use kendall_fit::measured::OperatingPoint;
use kendall_fit::saturation::Saturation;
use kendall_observations::{Configuration, Curve, Observations, Repetition};
use kendall_stats::sample::median;

use crate::number;

/// Cores, and threads that wait for one, that are a difference.
const CORES: f64 = 0.2;

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

/// Of the system, per request.
fn processor_time(point: &OperatingPoint) -> f64 {
    let system = point.processes.iter().filter(|process| process.part.role.is_of_the_system());
    system.map(|process| process.cpu_cores).sum::<f64>() / point.client.throughput_per_s
}

#[cfg(test)]
mod tests {
    use kendall_fit::measured::{ProcessView, View};

    use super::*;

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
