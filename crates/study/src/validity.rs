//! Whether a run may be used, and what should be known before it is.

use std::collections::BTreeSet;

use kendall_host::machines::HostClock;
use kendall_protocols::load_result::{LoadResult, Remark, RemarkKind};
use kendall_protocols::topology::Role;
use kendall_stats::correlated::quantile_of_windows;
use kendall_stats::estimate::{Caveat, OtherProgram};
use kendall_stats::histogram::Histogram;
use kendall_stats::law;
use kendall_stats::sample::enough_for;
use kendall_store::{
    Extent, Generator, HostSample, HostUse, MeasuredWindow, Period, Process, ProcessUse, Run,
};
use kendall_units::{Rate, Seconds, exact_f64, ratio};

use crate::record::{Totals, totals};
use crate::settings::Settings;
use crate::workload::Arrivals;

/// Deviation from the interactive response-time law, beyond what a sound measurement may show, at
/// which a run is rejected instead of getting a caveat.
const LAW_REJECTED: f64 = 0.20;

/// Stolen time, and waiting for a core, from which other programs count as a disturbance of a run.
const STEAL_SHARE: f64 = 0.02;
const WAIT_SHARE: f64 = 0.10;
/// Share of the cores' time in use, from which a machine is called full.
const FULL_SHARE: f64 = 0.9;

/// Share of the machine's time that programs outside the study may use before they count
/// as a disturbance: the kernel's own threads and interrupts stay below it.
const OTHERS_SHARE: f64 = 0.05;

/// Cores of other programs that are named where they did not disturb.
const NAMED_CORES: f64 = 0.2;

/// Disagreement of wall clock and monotonic clock over a run, from which one of them is taken to
/// have stepped. Both are read one after the other, and a busy machine may come between.
const CLOCK_STEP_S: f64 = 0.02;

/// How badly a host's clock may be known: a tenth of a percent of a window of a second gives a run a
/// caveat, a percent of it makes it worthless.
const BOUND_DOUBTED_S: f64 = 0.001;
const BOUND_REJECTED_S: f64 = 0.010;

/// Silence of a host from which the network is taken to have failed: there is a message
/// each second.
pub(crate) const SILENCE_S: f64 = 2.5;

/// The percentile whose sample size is watched.
const WATCHED: f64 = 0.99;

/// Windows from which the dependence between requests can be judged.
const ENOUGH_WINDOWS: usize = 10;

/// Share of failed requests above which a run measures something else.
const FAILED_SHARE: f64 = 0.5;

/// Why a run must not be used, and caveats, which do not forbid it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Judgement {
    pub(crate) rejections: Vec<String>,
    pub(crate) caveats: Vec<Caveat>,
}

impl Judgement {
    fn doubt(&mut self, caveat: Caveat) {
        self.caveats.push(caveat);
    }

    /// What the generators say of themselves.
    pub(crate) fn generators(&mut self, results: &[&LoadResult]) {
        for (number, result) in (0..).zip(results) {
            let generator = (results.len() > 1).then_some(number);
            let remarked = |remark: &Remark| Caveat::Remarked {
                generator,
                kind: kind_of(remark.kind),
                text: remark.text.clone(),
            };
            self.rejections.extend(result.rejections.iter().map(|why| remarked(why).to_string()));
            self.caveats.extend(result.caveats.iter().map(remarked));
        }
    }

    /// What the numbers of the measured window say.
    pub(crate) fn numbers(&mut self, settings: &Settings, generators: &[Generator]) {
        let totals = totals(generators);
        if totals.completed == 0 {
            let failed = match most_failed(generators) {
                Some(most) => {
                    let limit = limit_of_rate(generators, &totals);
                    format!("; {} failed, {most}{limit}", totals.failed)
                }
                None => String::new(),
            };
            let none = "no request was completed in the measured window";
            self.rejections.push(format!("{none}{failed}"));
            return;
        }
        let requests = totals.completed + totals.failed;
        let failed = ratio(totals.failed, requests).unwrap_or(0.0);
        let errors = Caveat::Errors { errors: totals.failed, requests };
        if failed > FAILED_SHARE {
            let most = most_failed(generators).unwrap_or_default();
            let limit = limit_of_rate(generators, &totals);
            self.rejections.push(format!("{errors}, {most}{limit}"));
        } else if totals.failed > 0 {
            self.doubt(errors);
        }
        if totals.misses > 0 && settings.workload.driver.prefill.is_some() {
            self.doubt(Caveat::Misses { misses: totals.misses, reads: totals.reads });
        }
        if totals.timed == 0 && !settings.workload.is_job() {
            let what = "the load reports no response times; see `docs/load.md`, \"Any program\"";
            self.rejections.push(what.to_owned());
            return;
        }
        self.law(settings, generators, &totals);
    }

    fn law(&mut self, settings: &Settings, generators: &[Generator], totals: &Totals) {
        if !matches!(settings.workload.arrivals, Arrivals::Closed { .. }) {
            return;
        }
        let clients = exact_f64(generators.iter().map(|row| row.clients).sum::<u64>());
        let think: f64 = generators
            .iter()
            .map(|row| exact_f64(row.clients) * Seconds::from_nanos(row.think_time_mean_ns).get())
            .sum::<f64>()
            / clients.max(1.0);
        let response = totals.response_time_sum_s / exact_f64(totals.completed).max(1.0);
        let completed = exact_f64(totals.completed);
        let (x, cycle_s) = (totals.throughput_per_s, response + think);
        let length_s = if x > 0.0 { completed / x } else { 0.0 };
        // Failed requests are on neither side of the law.
        let tolerance = law::tolerance(cycle_s, length_s, exact_f64(totals.failed) / completed);
        let check =
            |more: f64| law::interactive_response_time(x, clients, cycle_s, tolerance + more);
        match check(LAW_REJECTED).caveat() {
            Some(caveat) => self.rejections.push(caveat.to_string()),
            None => self.caveats.extend(check(0.0).caveat()),
        }
    }

    /// Whether the run is long enough for the 99th percentile. Where there are ten windows, by the
    /// number of independent values that its requests are worth; else by their mere number.
    pub(crate) fn percentile(&mut self, generators: &[Generator], window: &MeasuredWindow) {
        let seconds = window.periods(generators, 1);
        let count = seconds.values().map(|s| s.counts.response_time.count()).sum::<u64>();
        let whole = seconds.into_values().filter(Period::is_whole_second);
        let seconds: Vec<Histogram> = whole.map(|second| second.counts.response_time).collect();
        if let Err(caveat) = enough_for(WATCHED, count) {
            self.doubt(caveat);
        } else if seconds.len() >= ENOUGH_WINDOWS {
            let estimate = quantile_of_windows(&seconds, WATCHED, 0.95);
            let caveats = estimate.map(|estimate| estimate.caveats).unwrap_or_default();
            for caveat in caveats {
                self.doubt(caveat);
            }
        }
    }

    /// Whether wall clock and monotonic clock agree on the length of the run: the wall clock is
    /// stepped from outside, the monotonic one never is.
    pub(crate) fn clocks(&mut self, run: &Run) {
        let wall = Seconds::from_nanos(run.ended_unix_ns.saturating_sub(run.started_unix_ns));
        let monotonic = Seconds::from_nanos(run.ended_ns.saturating_sub(run.started_ns));
        let backwards = run.ended_unix_ns < run.started_unix_ns;
        let offset_s = if backwards {
            monotonic.get() + Seconds::from_nanos(run.started_unix_ns - run.ended_unix_ns).get()
        } else {
            (wall.get() - monotonic.get()).abs()
        };
        if offset_s > CLOCK_STEP_S {
            self.doubt(Caveat::ClockUnstable { offset_s });
        }
    }

    /// How well the hosts' clocks are known, and whether each was heard all the time.
    pub(crate) fn hosts(&mut self, clocks: &[HostClock]) {
        for HostClock { host, fit, silence, .. } in clocks {
            let (host, bound_s) = (host.clone(), fit.bound_ns / 1e9);
            let doubt = Caveat::ClockUncertain { host: host.clone(), bound_s };
            if bound_s > BOUND_REJECTED_S {
                self.rejections.push(doubt.to_string());
            } else if bound_s > BOUND_DOUBTED_S {
                self.doubt(doubt);
            }
            let silent_s = silence.as_secs_f64();
            if silent_s > SILENCE_S {
                self.doubt(Caveat::HostSilent { host, silent_s });
            }
        }
    }

    /// Names the programs of this machine that disturbed it, where one machine is all, or used much beside it.
    pub(crate) fn name_others(&mut self, largest: Vec<OtherProgram>) {
        let noisy = self.caveats.iter_mut().find_map(|caveat| match caveat {
            Caveat::NoisyNeighbor { programs, .. } => Some(programs),
            _ => None,
        });
        match noisy {
            Some(programs) => *programs = largest,
            None if largest.iter().map(|one| one.cores).sum::<f64>() >= NAMED_CORES => {
                self.doubt(Caveat::OthersBeside { programs: largest });
            }
            None => {}
        }
    }

    /// What each machine of the system says: time given to others, and waiting for a core. The machine that the
    /// study was started on is none where nothing but the study ran there.
    pub(crate) fn machine(
        &mut self,
        hosts: &[HostSample],
        processes: &[Process],
        window: &MeasuredWindow,
    ) {
        let of_system = processes.iter().filter(|process| process.part.role != Role::Study);
        let used: BTreeSet<&str> = of_system.map(|process| process.host.as_str()).collect();
        let names = hosts.iter().map(|sample| sample.host.as_str());
        let names: BTreeSet<&str> = names.filter(|name| used.contains(name)).collect();
        for name in &names {
            let of: Vec<&HostSample> = hosts.iter().filter(|s| s.host == *name).collect();
            let own: Vec<&Process> = processes.iter().filter(|p| p.host == *name).collect();
            let Some(doubt) = one_machine(&of, &own, window) else { continue };
            self.doubt(if names.len() > 1 {
                Caveat::OfSeries { what: Box::new(doubt), of: format!("host {name}") }
            } else {
                doubt
            });
        }
    }
}

/// What disturbed one machine, or whether it was full.
fn one_machine(
    hosts: &[&HostSample],
    processes: &[&Process],
    window: &MeasuredWindow,
) -> Option<Caveat> {
    let host = HostUse::of(hosts, window)?;
    let own = || processes.iter().filter_map(|process| ProcessUse::of(process, window));
    let cores = f64::from(host.cores.max(1));
    let (busy_share, steal_share) = (host.utilization(), host.stolen());
    let others = busy_share - own().map(|one| one.cores_busy()).sum::<f64>() / cores;
    let run_queue_wait_share = own().filter_map(|one| one.run_queue_wait()).sum::<f64>() / cores;
    let crowded = run_queue_wait_share > WAIT_SHARE;
    // Threads that become ready at one moment wait for one another on an idle machine, too.
    let full = crowded && busy_share > FULL_SHARE;
    if steal_share > STEAL_SHARE || (crowded && others > OTHERS_SHARE) {
        let programs = Vec::new();
        Some(Caveat::NoisyNeighbor { steal_share, run_queue_wait_share, programs })
    } else {
        full.then_some(Caveat::MachineFull { run_queue_wait_share })
    }
}

/// Of the measured window: `most with status_5xx`.
fn most_failed(generators: &[Generator]) -> Option<String> {
    let rows = generators.iter().flat_map(|generator| &generator.operations);
    let measured = rows.filter(|row| row.extent == Extent::Measured);
    let kinds = measured.flat_map(|row| &row.counts.errors);
    kinds.max_by_key(|(_, count)| **count).map(|(kind, _)| format!("most with {kind}"))
}

/// In the reason of a run that was rejected for it.
pub const LIMITS_ITS_RATE: &str = "429, too many requests";

/// What a service lets through that refuses the rest for its rate.
fn limit_of_rate(generators: &[Generator], totals: &Totals) -> String {
    const TOO_MANY_REQUESTS: u16 = 429;
    let refused = generators.iter().filter_map(|one| one.statuses.get(&TOO_MANY_REQUESTS));
    if refused.sum::<u64>() < totals.failed.div_ceil(2) {
        return String::new();
    }
    let (through, below) = match totals.completed {
        0 => ("nothing".to_owned(), "rates below its limit"),
        _ => (Rate::per_second(totals.throughput_per_s).to_string(), "rates below that"),
    };
    format!(
        " ({LIMITS_ITS_RATE}): the service limits its own rate, and let {through} through; {below} (`loop = \"open\"`) \
         measure it"
    )
}

fn kind_of(kind: RemarkKind) -> String {
    let value = serde_json::to_value(kind).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// Each threat is provoked by numbers that hold it, and by nothing else.
#[cfg(test)]
mod tests {
    use kendall_protocols::topology::Part;
    use kendall_store::{Extent, OperationCounts, OperationPeriod, ProcessSample};

    use super::*;
    use crate::file::StudyFile;
    use kendall_host::clocks::{ClockFit, Ping};
    use kendall_host::protocol::Hello;

    const SECOND: u64 = 1_000_000_000;
    const WINDOW: (u64, u64) = (0, 20 * SECOND);

    fn settings() -> Settings {
        let text = "name = 'x'\n[system]\nkind = 'memcached'\n[workload]\nclients = 10\n\
                    mix = { get = 1 }\n";
        StudyFile::parse("x.toml", text.to_owned(), false, &[]).unwrap().settings(&[]).unwrap()
    }

    fn window() -> MeasuredWindow {
        MeasuredWindow { from_ns: WINDOW.0, to_ns: WINDOW.1, rule: String::new() }
    }

    /// Ten clients that each take 10 ms: X = N/R = 1000/s. Response times vary a little, without
    /// one second resembling the next.
    fn clean() -> Generator {
        let times = |count: u64, salt: u64| {
            let mut times = Histogram::new();
            for i in 0..count {
                times.record(9_500_000 + 1_000_000 * ((i * 7919 + salt * 104_729) % 101) / 100);
            }
            times
        };
        let row = |extent, from_ns: u64, to_ns: u64, completed, salt| OperationPeriod {
            extent,
            from_ns,
            to_ns,
            operation: "get".to_owned(),
            counts: OperationCounts {
                sent: completed,
                completed,
                hits: completed,
                response_time: times(completed, salt),
                ..OperationCounts::default()
            },
        };
        let mut operations = vec![row(Extent::Measured, WINDOW.0, WINDOW.1, 20_000, 0)];
        operations.extend(
            (0..20_u64).map(|s| row(Extent::Second, s * SECOND, (s + 1) * SECOND, 1_000, s * s)),
        );
        Generator { clients: 10, operations, ..Generator::default() }
    }

    fn judged(change: impl FnOnce(&mut Generator)) -> Judgement {
        let mut generator = clean();
        change(&mut generator);
        let mut judgement = Judgement::default();
        judgement.numbers(&settings(), std::slice::from_ref(&generator));
        judgement.percentile(std::slice::from_ref(&generator), &window());
        judgement
    }

    fn counts(generator: &mut Generator) -> &mut OperationCounts {
        &mut generator.operations[0].counts
    }

    fn says(judgement: &Judgement, what: &str) {
        assert!(judgement.rejections.is_empty(), "{judgement:?}");
        assert_eq!(judgement.caveats.len(), 1, "{judgement:?}");
        assert!(judgement.caveats[0].to_string().contains(what), "{judgement:?}");
    }

    fn rejects(judgement: &Judgement, what: &str) {
        assert!(judgement.rejections.iter().any(|text| text.contains(what)), "{judgement:?}");
    }

    #[test]
    fn a_clean_run_carries_nothing() {
        assert_eq!(judged(|_| ()), Judgement::default());
    }

    #[test]
    fn errors_are_said_and_too_many_of_them_reject() {
        let failing =
            |count: u64| judged(|g| counts(g).errors = [("timeout".to_owned(), count)].into());
        says(&failing(7), "7 of 20007 requests failed");
        rejects(&failing(30_000), "30000 of 50000 requests failed");
        let limited = judged(|g| {
            counts(g).errors = [("status_4xx".to_owned(), 30_000)].into();
            g.statuses = [(200, 20_000), (429, 30_000)].into();
        });
        rejects(
            &limited,
            "too many requests): the service limits its own rate, and let 1000.0/s through",
        );
        let nothing = judged(|g| counts(g).completed = 0);
        rejects(&nothing, "no request was completed");
        let refused = judged(|g| {
            counts(g).completed = 0;
            counts(g).errors = [("status_4xx".to_owned(), 30_000)].into();
            g.statuses = [(429, 30_000)].into();
        });
        rejects(
            &refused,
            "too many requests): the service limits its own rate, and let nothing through",
        );
    }

    #[test]
    fn misses_are_said_where_everything_was_stored_before() {
        let judgement = judged(|g| (counts(g).hits, counts(g).misses) = (19_900, 100));
        says(&judgement, "100 of 20000 reads missed");
    }

    /// Twelve clients instead of ten at the same X and R: 17 % too few requests; forty: far more.
    #[test]
    fn a_law_that_is_violated_is_said_and_a_gross_violation_rejects() {
        says(&judged(|g| g.clients = 12), "the interactive response-time law violated");
        rejects(&judged(|g| g.clients = 40), "the interactive response-time law violated");
    }

    #[test]
    fn too_few_samples_for_the_percentile_are_said() {
        let few = judged(|g| {
            for row in g.operations.iter_mut().skip(1) {
                row.counts.response_time = Histogram::new();
                row.counts.response_time.record_n(10_000_000, 20);
            }
        });
        says(&few, "too few samples for p99: 400 effectively independent ones, it needs 500");
        // As many requests as before, but all slow ones in one stretch: worth few values.
        let clustered = judged(|g| {
            for (second, row) in g.operations.iter_mut().skip(1).enumerate() {
                let slow = if (8..12).contains(&second) { 200 } else { 1 };
                row.counts.response_time.record_n(90_000_000, slow);
            }
        });
        says(&clustered, "too few samples for p99");
    }

    #[test]
    fn stolen_time_and_waiting_for_a_core_are_said() {
        let host = |at: u64, steal: u64| HostSample {
            at_ns: at * SECOND,
            cores: 2,
            cpu_user_ns: at * SECOND,
            cpu_idle_ns: at * SECOND - steal,
            cpu_steal_ns: steal,
            ..HostSample::default()
        };
        let process = |waited: u64, own: u64| Process {
            samples: [(0, 0, 0), (20, waited, own)]
                .map(|(at, run_queue_wait_ns, cpu_user_ns)| ProcessSample {
                    at_ns: at * SECOND,
                    cpu_user_ns,
                    run_queue_wait_ns: Some(run_queue_wait_ns),
                    ..ProcessSample::default()
                })
                .into(),
            ..Process::default()
        };
        let judge = |steal: u64, waited: u64, own: u64| {
            let mut judgement = Judgement::default();
            judgement.machine(&[host(0, 0), host(20, steal)], &[process(waited, own)], &window());
            judgement
        };
        assert_eq!(judge(SECOND / 10, SECOND, 0), Judgement::default());
        let mut named = judge(0, 8 * SECOND, 0);
        named.name_others(vec![OtherProgram { command: "rustc".to_owned(), cores: 1.25 }]);
        says(&named, "waiting for a core; of other programs used most `rustc` 1.25 cores");
        let beside = |cores: f64| {
            let mut beside = Judgement::default();
            beside.name_others(vec![OtherProgram { command: "python3".to_owned(), cores }]);
            beside
        };
        says(&beside(0.5), "other programs ran beside it: `python3` 0.50 cores");
        assert_eq!(beside(0.1), Judgement::default());
        says(&judge(2 * SECOND, SECOND, 0), "5.0 % of the time stolen");
        says(&judge(0, 8 * SECOND, 0), "20.0 % spent waiting for a core");
        // Half of the cores' time was idle, and no other program used the rest: it was not full.
        assert_eq!(judge(0, 8 * SECOND, 19 * SECOND), Judgement::default());
        let busy =
            |at: u64| HostSample { cpu_user_ns: 2 * at * SECOND, cpu_idle_ns: 0, ..host(at, 0) };
        let mut full = Judgement::default();
        full.machine(&[busy(0), busy(20)], &[process(8 * SECOND, 39 * SECOND)], &window());
        says(&full, "the machine was full");
        // Sampled over 16 of the 20 s, it used as much of them.
        let mut late = process(6 * SECOND, 31 * SECOND);
        late.samples[0].at_ns = 2 * SECOND;
        late.samples[1].at_ns = 18 * SECOND;
        let mut full = Judgement::default();
        full.machine(&[busy(0), busy(20)], &[late], &window());
        says(&full, "the machine was full");
        // The study was started elsewhere: what its host takes away there is nothing of the run.
        let desk = |sample: HostSample| HostSample { host: "desk".to_owned(), ..sample };
        let itself =
            Process { part: Part::study(), host: "desk".to_owned(), ..process(8 * SECOND, SECOND) };
        let mut elsewhere = Judgement::default();
        elsewhere.machine(
            &[desk(host(0, 0)), desk(host(20, 2 * SECOND)), host(0, 0), host(20, 0)],
            &[itself, process(0, SECOND)],
            &window(),
        );
        assert_eq!(elsewhere, Judgement::default());
    }

    #[test]
    fn a_clock_that_steps_is_said() {
        let study = settings();
        let judge = |wall: (u64, u64)| {
            let mut judgement = Judgement::default();
            judgement.clocks(&Run {
                id: kendall_store::RunId::default(),
                configuration: 0,
                repetition: 0,
                position: 0,
                attempt: 0,
                status: kendall_store::Status::Done,
                reasons: vec![],
                caveats: vec![],
                factors: vec![],
                settings: study.effective.clone(),
                environment: serde_json::Value::Null,
                started_unix_ns: wall.0,
                ended_unix_ns: wall.1,
                started_ns: 5 * SECOND,
                ended_ns: 15 * SECOND,
                measured: None,
                purpose: kendall_store::Purpose::Design,
                speed_unit_ns: None,
                one_client_of: None,
            });
            judgement
        };
        assert_eq!(judge((100 * SECOND, 110 * SECOND + 1_000_000)), Judgement::default());
        says(
            &judge((100 * SECOND, 110 * SECOND + SECOND / 2)),
            "clock unstable: off by 500.000 ms",
        );
        says(&judge((100 * SECOND, 99 * SECOND)), "clock unstable: off by 11000.000 ms");
    }

    /// Half a round trip is what a single ping can be wrong by.
    #[test]
    fn a_clock_that_is_badly_known_is_said_and_then_rejects() {
        let judge = |round_trip_ns: u64, silent_ms: u64| {
            let ping = Ping { sent_ns: 0, there_ns: SECOND, received_ns: round_trip_ns };
            let mut judgement = Judgement::default();
            judgement.hosts(&[HostClock {
                host: "web".to_owned(),
                hello: Hello::default(),
                fit: ClockFit::of(&[ping]).unwrap(),
                silence: std::time::Duration::from_millis(silent_ms),
            }]);
            judgement
        };
        assert_eq!(judge(1_900_000, 1_100), Judgement::default());
        let badly = judge(2_200_000, 0);
        assert!(badly.rejections.is_empty(), "{badly:?}");
        assert!(
            matches!(&badly.caveats[..], [Caveat::ClockUncertain { host, .. }] if host == "web"),
            "{badly:?}"
        );
        assert_eq!(judge(19_000_000, 0).rejections, [] as [String; 0]);
        let worthless = judge(22_000_000, 0);
        assert!(worthless.rejections[0].contains("web"), "{worthless:?}");
        let silent = judge(1_000, 3_000);
        assert!(
            silent.rejections.is_empty()
                && matches!(&silent.caveats[..], [Caveat::HostSilent { host, .. }] if host == "web"),
            "{silent:?}"
        );
    }

    /// What a generator says of itself is kept word by word: saturated or late generators reject.
    #[test]
    fn what_generators_say_is_carried() {
        let mut result: LoadResult = serde_json::from_value(serde_json::json!({
            "version": 1, "protocol": "memcached", "targets": [], "loop": "closed", "clients": 1,
            "started_ns": 0, "ended_ns": 1, "think_time_mean_ns": 0, "arrival_rate_per_s": null,
            "windows": [], "operations": {}, "lateness": "", "gaps": "", "threads": [],
            "rejections": ["generator saturated: its busiest thread used 97 % of a core"],
            "caveats": ["generator late: …"],
        }))
        .unwrap();
        let mut judgement = Judgement::default();
        judgement.generators(&[&result]);
        rejects(&judgement, "generator saturated");
        assert!(judgement.caveats[0].to_string().starts_with("generator late"));
        result.rejections.clear();
        let mut both = Judgement::default();
        both.generators(&[&result, &result]);
        assert_eq!(both.caveats[1].to_string(), "generator 1: generator late: …");
    }
}
