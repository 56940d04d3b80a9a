//! May this test be used? Rejections and caveats, each a sentence with its figures.

use kendall_stats::histogram::Histogram;
use kendall_units::{Seconds, counted, ratio};

use super::Limits;
use crate::driver::ErrorKind;
use kendall_protocols::load_result::{GeneratorThread, LoadResult, Remark, RemarkKind};

/// What the verdict rests on beside the result itself.
#[derive(Debug)]
pub(super) struct Evidence {
    pub(super) late: u64,
    /// How long each thread stood still, at least.
    pub(super) stood_still_ns: u64,
    pub(super) lateness: Histogram,
    pub(super) connection_wait: Histogram,
}

/// Share of the time without a core above which response times get a caveat.
const NOTABLE_SHARE: f64 = 0.1;

/// Share of a thread's time, at work or waiting for a core, above which it had none to spare.
const SCARCE_SHARE: f64 = 0.9;

/// Share of arrivals that waited for a connection above which a caveat says so.
const NOTABLE_WAITS: f64 = 0.01;

/// Share of the time in which nothing completed above which a caveat says so: it is then in the
/// 99th percentile of what arrives.
const NOTABLE_STALLS: f64 = 0.01;

/// Writes rejections and caveats into the result.
pub(super) fn judge(result: &mut LoadResult, limits: &Limits, evidence: &Evidence) {
    answers(result);
    schedule(result, limits, evidence);
    cores(result, limits);
    overload(result, limits);
    biases(result, evidence);
    stalls(result, evidence);
    unanswered(result);
}

fn remark(kind: RemarkKind, text: String) -> Remark {
    Remark { kind, text }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn sent(result: &LoadResult) -> u64 {
    result.operations.values().map(|operation| operation.sent).sum()
}

/// Was there anything to measure?
fn answers(result: &mut LoadResult) {
    let completed: u64 = result.operations.values().map(|operation| operation.completed).sum();
    if completed > 0 {
        return;
    }
    let errors = result.operations.values().flat_map(|operation| &operation.errors);
    let text = match (errors.max_by_key(|(_, count)| **count), result.unanswered) {
        (Some((kind, _)), _) => {
            let known = ErrorKind::named(kind).and_then(ErrorKind::way_out);
            let way_out = known.unwrap_or("check the target and the request");
            format!("no request succeeded (most failed with {kind}): {way_out}")
        }
        (None, Some(waiting)) => format!(
            "no request was answered: {} waited to the end of the load, the longest for {}: check \
             the target, or load it for longer",
            counted(waiting.count, "request"),
            Seconds::from_nanos(waiting.longest_ns)
        ),
        (None, None) => "no request was due before the end of the load: load for longer, or at a \
                         higher rate"
            .to_owned(),
    };
    result.rejections.push(remark(RemarkKind::NothingSucceeded, text));
}

/// Did requests wait to the end, beside others that were answered?
fn unanswered(result: &mut LoadResult) {
    let Some(waiting) = result.unanswered.filter(|waiting| waiting.slowest_answered_ns > 0) else {
        return;
    };
    result.caveats.push(remark(
        RemarkKind::Unanswered,
        format!(
            "{} waited for an answer to the end of the load, the longest for {}, while the slowest \
             answer took {}: no percentile has them; with a time limit below that they are failed \
             requests",
            counted(waiting.count, "request"),
            Seconds::from_nanos(waiting.longest_ns),
            Seconds::from_nanos(waiting.slowest_answered_ns)
        ),
    ));
}

/// Open loop: was the schedule kept?
fn schedule(result: &mut LoadResult, limits: &Limits, evidence: &Evidence) {
    if result.r#loop != "open" {
        return;
    }
    let sent = sent(result);
    if let Some(share) = ratio(evidence.late, sent).filter(|share| *share > limits.late_share) {
        let still = stood_still(result, evidence);
        let why = if still > share / 2.0 {
            format!(
                "it stood still itself for {} of the time, as a suspended one does",
                percent(still)
            )
        } else {
            "use more threads, a lower rate or a less busy machine".to_owned()
        };
        result.rejections.push(remark(
            RemarkKind::GeneratorLate,
            format!(
                "the generator sent {} of the requests more than {} late (limit {}): {why}",
                percent(share),
                Seconds::from_nanos(limits.lateness_ns),
                percent(limits.late_share)
            ),
        ));
    }
    let waits = evidence.connection_wait.count();
    if let Some(share) = ratio(waits, sent).filter(|share| *share > NOTABLE_WAITS) {
        let wait = |quantile| {
            Seconds::from_nanos(evidence.connection_wait.quantile(quantile).unwrap_or(0))
        };
        result.caveats.push(remark(
            RemarkKind::WaitedForConnection,
            format!(
                "{} of the arrivals waited for one of the {} connections (median {}, 99 % {}); the \
             wait is part of their response time",
                percent(share),
                result.clients,
                wait(0.5),
                wait(0.99)
            ),
        ));
    }
}

/// Had the generator threads the cores that they needed?
fn cores(result: &mut LoadResult, limits: &Limits) {
    for (number, thread) in result.threads.iter().enumerate() {
        let cpu = thread.cpu_user_ns + thread.cpu_system_ns;
        if let Some(share) = ratio(cpu, thread.wall_ns).filter(|share| *share > limits.cpu_share) {
            result.rejections.push(remark(RemarkKind::GeneratorSaturated, format!(
                "generator thread {number} was busy for {} of its time (limit {}): the generator \
                 was the bottleneck, not the server; use more threads",
                percent(share),
                percent(limits.cpu_share)
            )));
        }
        if let Some(share) =
            ratio(thread.run_queue_wait_ns, thread.wall_ns).filter(|share| *share > NOTABLE_SHARE)
        {
            result.caveats.push(remark(RemarkKind::GeneratorWaitedForCore, format!(
                "generator thread {number} waited for a core for {} of its time: response times \
                 include it",
                percent(share)
            )));
        }
    }
}

/// Open loop: arrivals that were never sent, since all connections were taken to the end. Where the
/// generator kept its schedule and had time left, the system caused it, and it is a result; else
/// the cause is not known.
fn overload(result: &mut LoadResult, limits: &Limits) {
    let planned = sent(result) + result.unsent;
    let Some(share) = ratio(result.unsent, planned).filter(|share| *share > limits.unsent_share)
    else {
        return;
    };
    let text = format!(
        "{} of {planned} arrivals ({}) found no free connection before the end",
        result.unsent,
        percent(share)
    );
    let is_behind = |remark: &Remark| {
        matches!(remark.kind, RemarkKind::GeneratorLate | RemarkKind::GeneratorSaturated)
    };
    if result.rejections.iter().any(is_behind) {
        result.rejections.push(remark(RemarkKind::Unsent, format!(
            "{text} (limit {}): the generator was behind as well, so it is unknown which of them \
             was too slow; use a lower rate, more connections or more threads",
            percent(limits.unsent_share)
        )));
    } else {
        let whose = whose_limit(result);
        result.caveats.push(remark(RemarkKind::SystemOverloaded, format!(
            "{text}: {whose}; throughput is what was carried, response times are those of answered \
             requests only"
        )));
    }
}

/// Whose limit an overload found that the generator's schedule does not explain. A thread that waits
/// for a core, or has hardly any time left, sends and reads more slowly than it could, and then the
/// machine may be what was overloaded.
fn whose_limit(result: &LoadResult) -> String {
    let most = |pick: fn(&GeneratorThread) -> u64| {
        let shares = result.threads.iter().filter_map(|one| ratio(pick(one), one.wall_ns));
        shares.fold(0.0, f64::max)
    };
    let work = most(|thread| thread.cpu_user_ns + thread.cpu_system_ns);
    let wait = most(|thread| thread.run_queue_wait_ns);
    if work + wait > SCARCE_SHARE || wait > NOTABLE_SHARE {
        format!(
            "the generator kept its schedule, but its threads were at work for up to {} of the time \
             and waited for a core for up to {}, so that it is unknown whether the system was \
             overloaded or this machine",
            percent(work),
            percent(wait)
        )
    } else {
        format!(
            "the system was overloaded while the generator kept its schedule and was at work for {} \
             of the time at most",
            percent(work)
        )
    }
}

/// What share of the response time is the generator's own lateness?
fn biases(result: &mut LoadResult, evidence: &Evidence) {
    let mut response_time = Histogram::new();
    for operation in result.operations.values() {
        if let Ok(histogram) = Histogram::decode(&operation.response_time.0) {
            response_time.add(&histogram);
        }
    }
    if let (Some(lateness), Some(mean)) = (evidence.lateness.mean(), response_time.mean())
        && lateness > NOTABLE_SHARE * mean
    {
        result.caveats.push(remark(RemarkKind::LatenessInResponse, format!(
            "requests were sent {} late on average, which is {} of the mean response time of {}",
            Seconds::new(lateness / 1e9),
            percent(lateness / mean),
            Seconds::new(mean / 1e9)
        )));
    }
    let errors: u64 =
        result.operations.values().flat_map(|operation| operation.errors.values()).sum();
    if errors > 0 {
        let completed: u64 = result.operations.values().map(|operation| operation.completed).sum();
        result.caveats.push(remark(
            RemarkKind::Failed,
            format!(
                "{} failed ({} of those that ended); times of failed requests are not counted",
                counted(errors, "request"),
                percent(ratio(errors, errors + completed).unwrap_or(0.0))
            ),
        ));
    }
}

/// Share of the time in which the generator itself stood still.
fn stood_still(result: &LoadResult, evidence: &Evidence) -> f64 {
    let length_ns = result.ended_ns.saturating_sub(result.started_ns);
    ratio(evidence.stood_still_ns, length_ns).unwrap_or(0.0)
}

/// Closed loop: did the server stand still for long enough that its percentiles hide it?
fn stalls(result: &mut LoadResult, evidence: &Evidence) {
    let Some(stalls) = result.stalls.filter(|stalls| stalls.share > NOTABLE_STALLS) else { return };
    let completed: u64 = result.operations.values().map(|operation| operation.completed).sum();
    let length_ns = result.ended_ns.saturating_sub(result.started_ns);
    let seconds = Seconds::from_nanos(length_ns).get();
    let stood_still = stood_still(result, evidence);
    let rate = 0.9 * kendall_units::exact_f64(completed) / seconds;
    let waited = result
        .threads
        .iter()
        .filter_map(|thread| ratio(thread.run_queue_wait_ns, thread.wall_ns))
        .fold(0.0, f64::max);
    let cause = if waited > stalls.share / 2.0 {
        format!("the generator waited for a core for {} of it, which may be why; ", percent(waited))
    } else if stood_still > stalls.share / 2.0 {
        format!(
            "the generator itself stood still for {} of the time, as a suspended one does, which is why; ",
            percent(stood_still)
        )
    } else {
        String::new()
    };
    let instead = if rate.is_finite() && rate >= 1.0 {
        let connections = (10 * result.clients).min(10_000);
        format!("an open loop of {rate:.0}/s with {connections} connections shows it")
    } else {
        "an open loop shows it".to_owned()
    };
    result.caveats.push(remark(
        RemarkKind::Stalled,
        format!(
            "nothing completed for {} of the time, in {} of up to {}: a closed loop sends \
         nothing meanwhile, so its percentiles hide this; of requests arriving at random moments, \
         1 % would have waited {} or more; {cause}{instead}",
            percent(stalls.share),
            counted(stalls.count, "stall"),
            Seconds::from_nanos(stalls.longest_ns),
            Seconds::from_nanos(stalls.arrival_wait_p99_ns)
        ),
    ));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kendall_protocols::snapshot::EncodedHistogram;

    use super::*;
    use kendall_protocols::load_result::{Operation, Stalls, Unanswered};

    const SECOND: u64 = 1_000_000_000;

    /// A test of one thread and 1,000 requests of 1 ms, which `change` spoils.
    fn judged(kind: &str, late: u64, change: impl FnOnce(&mut GeneratorThread)) -> LoadResult {
        let mut times = Histogram::new();
        times.record_n(1_000_000, 1_000);
        let operation = Operation {
            sent: 1_000,
            completed: 1_000,
            response_time: EncodedHistogram(times.encode()),
            ..Operation::default()
        };
        let mut thread = GeneratorThread {
            cpu_user_ns: 4 * SECOND,
            cpu_system_ns: 2 * SECOND,
            wall_ns: 10 * SECOND,
            run_queue_wait_ns: SECOND / 10,
            spun_ns: 0,
        };
        change(&mut thread);
        let mut result: LoadResult = serde_json::from_value(serde_json::json!({
            "version": 1, "protocol": "http", "targets": [], "loop": kind, "clients": 8,
            "started_ns": 0, "ended_ns": 10 * SECOND, "think_time_mean_ns": 0,
            "arrival_rate_per_s": null, "windows": [], "operations": {}, "lateness": "",
            "gaps": "", "threads": [], "rejections": [], "caveats": [],
        }))
        .unwrap();
        result.threads = vec![thread];
        result.operations = BTreeMap::from([("GET".to_owned(), operation)]);
        judge(&mut result, &Limits::default(), &evidence(late, 0));
        result
    }

    fn evidence(late: u64, stood_still_ns: u64) -> Evidence {
        let (lateness, connection_wait) = (Histogram::new(), Histogram::new());
        Evidence { late, stood_still_ns, lateness, connection_wait }
    }

    #[test]
    fn a_generator_that_stood_still_says_so_beside_what_it_takes_for_a_stall() {
        let found = Stalls { count: 1, share: 0.25, longest_ns: 3 * SECOND, ..Stalls::default() };
        let said = |stood_still_ns| {
            let mut result = judged("closed", 0, |_| ());
            result.stalls = Some(found);
            stalls(&mut result, &evidence(0, stood_still_ns));
            result.caveats.remove(0).text
        };
        assert!(!said(SECOND).contains("itself"), "{}", said(SECOND));
        let text = said(2 * SECOND);
        assert!(text.contains("the generator itself stood still for 20.0 % of the time"), "{text}");
        let mut late = judged("open", 0, |_| ());
        schedule(&mut late, &Limits::default(), &evidence(300, 2 * SECOND));
        let text = late.rejections.remove(0).text;
        assert!(
            text.ends_with("it stood still itself for 20.0 % of the time, as a suspended one does"),
            "{text}"
        );
    }

    #[test]
    fn a_generator_with_room_is_believed() {
        let result = judged("open", 0, |_| ());
        assert!(result.rejections.is_empty() && result.caveats.is_empty(), "{result:?}");
    }

    /// Saturated: its busiest thread did nothing but send, so the server's limit was not found.
    #[test]
    fn a_saturated_generator_rejects_the_run() {
        let result = judged("closed", 0, |thread| thread.cpu_user_ns = 7_800_000_000);
        assert!(result.rejections[0].text.contains("busy for 98.0 % of its time"), "{result:?}");
    }

    #[test]
    fn a_schedule_that_was_not_kept_rejects_an_open_loop_only() {
        let result = judged("open", 500, |_| ());
        assert!(
            result.rejections[0].text.contains("sent 50.0 % of the requests more than"),
            "{result:?}"
        );
        assert!(judged("closed", 500, |_| ()).rejections.is_empty());
    }

    #[test]
    fn overload_of_the_system_is_a_result_and_overload_of_the_generator_is_none() {
        let mut result = judged("open", 0, |_| ());
        result.unsent = 500;
        overload(&mut result, &Limits::default());
        assert!(result.rejections.is_empty(), "{result:?}");
        assert!(result.caveats[0].text.contains("the system was overloaded"), "{result:?}");
        let mut result = judged("open", 500, |_| ());
        result.unsent = 500;
        overload(&mut result, &Limits::default());
        assert!(result.rejections[1].text.contains("500 of 1500 arrivals (33.3 %)"), "{result:?}");
    }

    /// A server without any answer is not the generator's fault.
    #[test]
    fn an_overload_without_an_answer_is_not_the_generators() {
        let mut result = judged("open", 0, |_| ());
        result.rejections.push(remark(RemarkKind::NothingSucceeded, String::new()));
        result.unsent = 500;
        overload(&mut result, &Limits::default());
        assert_eq!(result.rejections.len(), 1, "{result:?}");
        assert!(result.caveats[0].text.contains("the system was overloaded"), "{result:?}");
    }

    #[test]
    fn an_overload_of_a_machine_without_a_core_to_spare_has_no_owner() {
        let busy = |thread: &mut GeneratorThread| thread.cpu_user_ns = 7_200_000_000;
        let waiting = |thread: &mut GeneratorThread| thread.run_queue_wait_ns = 2 * SECOND;
        for mut result in [judged("open", 0, busy), judged("open", 0, waiting)] {
            result.caveats.clear();
            result.unsent = 500;
            overload(&mut result, &Limits::default());
            assert!(result.caveats[0].text.contains("it is unknown whether"), "{result:?}");
        }
    }

    #[test]
    fn a_load_without_an_answer_is_rejected_whatever_the_reason() {
        let empty = |unanswered| {
            let mut result = LoadResult { unanswered, ..LoadResult::default() };
            answers(&mut result);
            super::unanswered(&mut result);
            assert!(result.caveats.is_empty(), "{result:?}");
            result.rejections.remove(0).text
        };
        assert!(empty(None).contains("no request was due"));
        let waiting = Unanswered { count: 8, longest_ns: 3 * SECOND, slowest_answered_ns: 0 };
        let text = empty(Some(waiting));
        assert!(text.contains("8 requests waited") && text.contains("3.000 s"), "{text}");
    }

    #[test]
    fn waiting_for_a_core_is_a_doubt() {
        let result = judged("closed", 0, |thread| thread.run_queue_wait_ns = 2 * SECOND);
        assert!(result.rejections.is_empty(), "{result:?}");
        assert!(result.caveats[0].text.contains("waited for a core for 20.0 %"), "{result:?}");
    }
}
