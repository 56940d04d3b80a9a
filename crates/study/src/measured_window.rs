//! Which part of a run counts: the same moments for clients, tiers and resources.

use kendall_protocols::load_result::{JOB_LOOP, LoadResult, Operation, Window};
use kendall_protocols::snapshot::EncodedHistogram;
use kendall_stats::estimate::Caveat;
use kendall_stats::histogram::{DecodeError, Histogram};
use kendall_stats::sample::mean;
use kendall_stats::steady::{
    RESPONSE_TIME_SIGNIFICANCE, THROUGHPUT_SIGNIFICANCE, Truncation, drift, transient,
};
use kendall_store::MeasuredWindow;
use kendall_units::{Seconds, counted, exact_f64};

use crate::settings::{Cut, Measure, WHOLE_SHARE};

/// The part that counts, and its caveats.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cutting {
    pub(crate) window: MeasuredWindow,
    pub(crate) caveats: Vec<Caveat>,
}

/// Cuts warm-up and cool-down. An error says in words why nothing is left.
pub(crate) fn cut(results: &[&LoadResult], measure: &Measure) -> Result<Cutting, String> {
    if results.iter().all(|result| result.r#loop == JOB_LOOP) {
        return whole(results);
    }
    let series = Series::of(results)?;
    let mut caveats = Vec::new();
    let (mut from, mut to) = (0, series.throughput.len());
    let mut rule = Vec::new();
    if measure.warm_up == Cut::Auto || measure.cool_down == Cut::Auto {
        let found: Vec<Truncation> = series.transients();
        for truncation in &found {
            for caveat in &truncation.caveats {
                // A warm-up that the study states is not searched for.
                let stated =
                    measure.warm_up != Cut::Auto && matches!(caveat, Caveat::WarmUpNotFound { .. });
                if !stated && !caveats.contains(caveat) {
                    caveats.push(caveat.clone());
                }
            }
        }
        if measure.warm_up == Cut::Auto {
            from = found.iter().map(|cut| cut.from).max().unwrap_or(0);
            rule.push(format!("warm-up: {} by MSER-5", counted(from, "window")));
        }
        if measure.cool_down == Cut::Auto {
            to = found.iter().map(|cut| cut.to).min().unwrap_or(to);
            let cut = series.throughput.len().saturating_sub(to);
            rule.push(format!("cool-down: {} by MSER-5", counted(cut, "window")));
            caveats.extend(series.late_change(from, to));
        }
    }
    let mut limits = series.limits(from, to).ok_or_else(|| {
        format!(
            "no steady part: by MSER-5 the warm-up lasts {from} windows, and the cool-down begins \
             after {to} of {}; let the run last longer, or keep other programs off the machine",
            series.throughput.len()
        )
    })?;
    if let Cut::Fixed(time) = measure.warm_up {
        let earliest = results.iter().map(|result| result.started_ns).max().unwrap_or(0);
        limits.0 = limits.0.max(earliest + time.as_nanos());
        rule.push(format!("warm-up: {time} as stated"));
    }
    if let Cut::Fixed(time) = measure.cool_down {
        // The end that was planned: the last answers may come later.
        let latest = results.iter().map(|r| r.started_ns + measure.duration.as_nanos()).min();
        limits.1 = limits.1.min(latest.unwrap_or(0).saturating_sub(time.as_nanos()));
        rule.push(format!("cool-down: {time} as stated"));
    }
    let has_one = |limits| results.iter().all(|result| inside(result, limits).next().is_some());
    if !has_one(limits) {
        // Generators start a few milliseconds apart. In a run of few windows that leaves none that
        // all of them cover; each then counts its own from its own start, and the run says so.
        let own = own_limits(results, measure);
        if results.len() < 2 || !has_one(own) {
            return Err(format!(
                "no whole window is left between warm-up and cool-down ({}); let the run last longer",
                rule.join("; ")
            ));
        }
        let apart_s = Seconds::from_nanos(limits.0.saturating_sub(own.0)).get();
        caveats.push(Caveat::GeneratorsApart { apart_s });
        limits = own;
    }
    let inside = results.iter().flat_map(|result| inside(result, limits));
    let ends: Vec<(u64, u64)> = inside.map(|window| (window.from_ns, window.to_ns)).collect();
    let from_ns = ends.iter().map(|ends| ends.0).min().unwrap_or(limits.0);
    let to_ns = ends.iter().map(|ends| ends.1).max().unwrap_or(limits.1);
    let kept = series.between(from_ns, to_ns);
    let drifts = [&kept.0, &kept.1].map(|series| drift(series).and_then(|drift| drift.caveat()));
    for (of, caveat) in ["throughput", "mean response time"].into_iter().zip(drifts) {
        let what = caveat.map(Box::new);
        caveats.extend(what.map(|what| Caveat::OfSeries { what, of: of.to_owned() }));
    }
    Ok(Cutting { window: MeasuredWindow { from_ns, to_ns, rule: rule.join("; ") }, caveats })
}

/// A job is measured from its start to its end: of several at the same time, from the first start to
/// the last end.
fn whole(results: &[&LoadResult]) -> Result<Cutting, String> {
    let from_ns = results.iter().map(|result| result.started_ns).min().unwrap_or(0);
    let to_ns = results.iter().map(|result| result.ended_ns).max().unwrap_or(0);
    if from_ns >= to_ns {
        return Err("the job reports that it ended before it began".to_owned());
    }
    let rule = "the whole job".to_owned();
    Ok(Cutting { window: MeasuredWindow { from_ns, to_ns, rule }, caveats: Vec::new() })
}

/// The cut by the earliest start and the latest end of any generator.
fn own_limits(results: &[&LoadResult], measure: &Measure) -> (u64, u64) {
    let time = |cut: Cut| match cut {
        Cut::Auto => 0,
        Cut::Fixed(time) => time.as_nanos(),
    };
    let first = results.iter().map(|result| result.started_ns).min().unwrap_or(0);
    let last = results.iter().map(|result| result.started_ns).max().unwrap_or(0);
    let to = (last + measure.duration.as_nanos()).saturating_sub(time(measure.cool_down));
    (first + time(measure.warm_up), to)
}

/// The windows of one generator that lie wholly between two moments.
pub(crate) fn inside(result: &LoadResult, limits: (u64, u64)) -> impl Iterator<Item = &Window> {
    // A window's edge and a stated cut may fall on the same moment, give or take rounding.
    let slack = Seconds::from_millis(1.0).as_nanos();
    whole_windows(result).filter(move |window| {
        window.from_ns + slack >= limits.0 && window.to_ns <= limits.1 + slack
    })
}

fn whole_windows(result: &LoadResult) -> impl Iterator<Item = &Window> {
    let longest = result.windows.iter().map(length).max().unwrap_or(0);
    let least = kendall_units::whole_u64(exact_f64(longest) * WHOLE_SHARE);
    result.windows.iter().filter(move |window| length(window) >= least)
}

fn length(window: &Window) -> u64 {
    window.to_ns.saturating_sub(window.from_ns)
}

/// The whole windows of all generators, added up by their number.
struct Series {
    throughput: Vec<f64>,
    response_time: Vec<f64>,
    from_ns: Vec<u64>,
    to_ns: Vec<u64>,
}

impl Series {
    fn of(results: &[&LoadResult]) -> Result<Self, String> {
        let windows: Vec<Vec<&Window>> =
            results.iter().map(|result| whole_windows(result).collect()).collect();
        let count = windows.iter().map(Vec::len).min().unwrap_or(0);
        if count == 0 {
            return Err("the load has no whole window of a second; let the run last longer".into());
        }
        let mut series = Self {
            throughput: Vec::new(),
            response_time: Vec::new(),
            from_ns: Vec::new(),
            to_ns: Vec::new(),
        };
        for number in 0..count {
            let mut throughput = 0.0;
            let mut all = Histogram::new();
            for window in windows.iter().map(|windows| windows[number]) {
                let seconds = Seconds::from_nanos(length(window)).get();
                for operation in window.operations.values() {
                    throughput += exact_f64(operation.completed) / seconds.max(1e-9);
                    all.add(&times(operation).unwrap_or_default());
                }
            }
            series.throughput.push(throughput);
            series.response_time.push(all.mean().unwrap_or(0.0));
            let edges = windows.iter().map(|windows| windows[number]);
            series.from_ns.push(edges.clone().map(|window| window.from_ns).min().unwrap_or(0));
            series.to_ns.push(edges.map(|window| window.to_ns).max().unwrap_or(0));
        }
        Ok(series)
    }

    /// What differs from the rest of the run at its ends. Response times by their logarithms, which
    /// a few long ones do not rule, and by a stricter test: fluctuations of a queue are not a warm-up.
    fn transients(&self) -> Vec<Truncation> {
        let logs: Vec<f64> = self.response_time.iter().map(|time| time.max(1.0).ln()).collect();
        [
            transient(&self.throughput, THROUGHPUT_SIGNIFICANCE),
            transient(&logs, RESPONSE_TIME_SIGNIFICANCE),
        ]
        .into_iter()
        .filter_map(Result::ok)
        .collect()
    }

    /// What was cut at the end, in words: something happened to the run there.
    fn late_change(&self, from: usize, to: usize) -> Option<Caveat> {
        let cut = self.throughput.len().checked_sub(to).filter(|cut| *cut > 0 && from < to)?;
        let change = |series: &[f64]| mean(&series[to..]) / mean(&series[from..to]) - 1.0;
        Some(Caveat::LateWindowsCut {
            windows: kendall_units::whole_u64(exact_f64(cut)),
            throughput_change: change(&self.throughput),
            response_time_change: change(&self.response_time),
        })
    }

    fn limits(&self, from: usize, to: usize) -> Option<(u64, u64)> {
        Some((*self.from_ns.get(from)?, *self.to_ns.get(to.checked_sub(1)?)?))
            .filter(|limits| limits.0 < limits.1)
    }

    /// Throughputs and mean response times of the windows within these limits.
    fn between(&self, from_ns: u64, to_ns: u64) -> (Vec<f64>, Vec<f64>) {
        let inside = |at: &usize| self.from_ns[*at] >= from_ns && self.to_ns[*at] <= to_ns;
        let of = |series: &[f64]| (0..series.len()).filter(inside).map(|at| series[at]).collect();
        (of(&self.throughput), of(&self.response_time))
    }
}

/// Response times, however they were written.
pub(crate) fn times(operation: &Operation) -> Result<Histogram, DecodeError> {
    let mut times = decode(&operation.response_time)?;
    for time in &operation.response_times_ns {
        times.record(*time);
    }
    Ok(times)
}

pub(crate) fn decode(encoded: &EncodedHistogram) -> Result<Histogram, DecodeError> {
    Histogram::decode(&encoded.0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kendall_protocols::load_result::Operation;
    use kendall_protocols::snapshot::EncodedHistogram;

    use super::*;
    use crate::settings::Repetitions;

    const SECOND: u64 = 1_000_000_000;

    fn load(started_ns: u64, completions: &[u64]) -> LoadResult {
        let windows = (0_u64..)
            .zip(completions)
            .map(|(number, completed)| {
                let mut times = Histogram::new();
                times.record_n(1_000_000_000 / completed.max(&1), *completed);
                let operation = Operation {
                    completed: *completed,
                    response_time: EncodedHistogram(times.encode()),
                    ..Operation::default()
                };
                Window {
                    from_ns: started_ns + number * SECOND,
                    to_ns: started_ns + (number + 1) * SECOND,
                    operations: BTreeMap::from([("get".to_owned(), operation)]),
                    steps: Vec::new(),
                }
            })
            .collect::<Vec<_>>();
        // By way of its message, so that fields with a default need no mention.
        serde_json::from_value(serde_json::json!({
            "version": 1,
            "protocol": "memcached",
            "targets": [],
            "loop": "closed",
            "clients": 1,
            "started_ns": started_ns,
            "ended_ns": windows.last().map_or(started_ns, |window| window.to_ns),
            "think_time_mean_ns": 0,
            "arrival_rate_per_s": null,
            "windows": windows,
            "operations": {},
            "lateness": "",
            "gaps": "",
            "threads": [],
            "rejections": [],
            "caveats": [],
        }))
        .unwrap()
    }

    fn measure(warm_up: Cut, cool_down: Cut, seconds: f64) -> Measure {
        Measure {
            duration: Seconds::new(seconds),
            warm_up,
            cool_down,
            repetitions: Repetitions::Fixed(1),
            retries: 0,
            confidence: 0.95,
            speed_probe: true,
            one_client: Seconds::ZERO,
        }
    }

    #[test]
    fn a_stated_cut_keeps_windows_that_lie_wholly_inside() {
        let load = load(100, &[10; 6]);
        let times = [Cut::Fixed(Seconds::new(1.5)), Cut::Fixed(Seconds::new(1.0))];
        let found = cut(&[&load], &measure(times[0], times[1], 6.0)).unwrap();
        assert_eq!(
            (found.window.from_ns, found.window.to_ns),
            (100 + 2 * SECOND, 100 + 5 * SECOND)
        );
    }

    #[test]
    fn warm_up_is_found_in_the_data() {
        let mut completions = vec![100, 300, 500];
        completions.extend((0..40).map(|number| 1_000 + number % 3));
        let load = load(0, &completions);
        let found = cut(&[&load], &measure(Cut::Auto, Cut::Auto, 43.0)).unwrap();
        assert_eq!(found.window.from_ns, 3 * SECOND);
        assert!(found.window.rule.contains("3 windows by MSER-5"), "{}", found.window.rule);
    }

    /// Fluctuations of a queue are not a warm-up: nothing is cut from a run that only fluctuates.
    #[test]
    fn a_run_that_fluctuates_is_kept_whole() {
        let completions: Vec<u64> = (0..60_u64)
            .map(|second| 1_000 + (second * 7_919 + second * second * 31) % 97)
            .collect();
        let load = load(0, &completions);
        let found = cut(&[&load], &measure(Cut::Auto, Cut::Auto, 60.0)).unwrap();
        assert_eq!((found.window.from_ns, found.window.to_ns), (0, 60 * SECOND));
        assert!(found.caveats.is_empty(), "{:?}", found.caveats);
    }

    /// A cut at the end is a caveat with its size.
    #[test]
    fn a_late_disturbance_is_cut_and_said() {
        let mut completions: Vec<u64> = (0..55_u64).map(|second| 1_000 + second % 5).collect();
        completions.extend([500; 5]);
        let load = load(0, &completions);
        let found = cut(&[&load], &measure(Cut::Auto, Cut::Auto, 60.0)).unwrap();
        assert_eq!(found.window.to_ns, 55 * SECOND);
        let said =
            found.caveats.iter().any(|one| one.to_string().contains("throughput by -50.1 %"));
        assert!(said, "{:?}", found.caveats);
    }

    /// A load that loses a third of its throughput in the second half is not stationary.
    #[test]
    fn a_drift_within_the_run_is_said() {
        let zero = Cut::Fixed(Seconds::ZERO);
        let falling = |step: u64| -> Vec<u64> {
            (0..40).map(|second| 1_000 + second * 7 % 5 - second / 20 * step).collect()
        };
        let found = |step| cut(&[&load(0, &falling(step))], &measure(zero, zero, 40.0)).unwrap();
        assert!(found(330).caveats.iter().any(|one| one.to_string().contains("not stationary")));
        assert!(found(0).caveats.is_empty(), "{:?}", found(0).caveats);
    }

    #[test]
    fn only_windows_that_all_generators_cover_count_where_there_are_some() {
        let zero = Cut::Fixed(Seconds::ZERO);
        let loads = [load(0, &[10; 5]), load(SECOND / 5, &[10; 5])];
        let found = cut(&[&loads[0], &loads[1]], &measure(zero, zero, 5.0)).unwrap();
        assert_eq!((found.window.from_ns, found.window.to_ns), (SECOND / 5, 5 * SECOND));
        assert!(found.caveats.is_empty());
        // One window each, and none in common: counted, with a caveat.
        let short = [load(0, &[10]), load(SECOND / 5, &[10])];
        let found = cut(&[&short[0], &short[1]], &measure(zero, zero, 1.0)).unwrap();
        assert!(found.caveats[0].to_string().contains("200.0 ms apart"), "{:?}", found.caveats);
    }

    /// A job has no warm-up: it is what it took.
    #[test]
    fn a_job_is_measured_from_its_first_start_to_its_last_end() {
        let job = |started_ns, ended_ns| LoadResult {
            r#loop: JOB_LOOP.to_owned(),
            started_ns,
            ended_ns,
            ..LoadResult::default()
        };
        let jobs = [job(5, 900), job(10, 1_200)];
        let found = cut(&[&jobs[0], &jobs[1]], &measure(Cut::Auto, Cut::Auto, 1.0)).unwrap();
        assert_eq!((found.window.from_ns, found.window.to_ns), (5, 1_200));
        assert_eq!((found.window.rule.as_str(), found.caveats.len()), ("the whole job", 0));
        assert!(cut(&[&job(7, 7)], &measure(Cut::Auto, Cut::Auto, 1.0)).is_err());
    }

    #[test]
    fn a_run_without_a_whole_window_says_what_to_do() {
        let one = Cut::Fixed(Seconds::new(1.0));
        let error = cut(&[&load(0, &[10])], &measure(one, one, 3.0)).unwrap_err();
        assert!(error.contains("let the run last longer"), "{error}");
    }
}
