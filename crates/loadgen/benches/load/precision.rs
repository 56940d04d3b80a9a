//! How precise the schedule and the reported times are, against what a server saw.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::Stdio;
use std::time::Duration;

use kendall_loadgen::arrivals::ArrivalPlan;
use kendall_loadgen::load::PacePlan;
use kendall_protocols::load_result::LoadResult;
use kendall_stats::histogram::Histogram;
use kendall_units::{exact_f64, whole_u64};
use rustix::event::epoll;
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

use crate::{median, on_processor, ours_http, plan};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Wants a machine with two idle processors: the server takes one, the load the other.
pub(crate) fn run() {
    println!("\nmoments 200 µs apart, 5 s, without any request: what this machine allows");
    for (name, awake) in [("asleep", false), ("awake", true)] {
        let variations: Vec<String> =
            (0..3).map(|_| format!("{:.3}", gaps(&bare_loop(awake)).0)).collect();
        println!("  {name:<9} variation of the gaps {}", variations.join(", "));
    }
    println!("\nschedule at the server, 5,000/s over 16 connections, 5 s, 3 runs each");
    for (name, poisson) in [("constant", false), ("poisson", true)] {
        let mut rows: [Vec<f64>; 3] = Default::default();
        for seed in 1..=3 {
            let arrivals = if poisson {
                ArrivalPlan::Poisson { rate: 5_000.0 }
            } else {
                ArrivalPlan::Constant { rate: 5_000.0 }
            };
            let (result, seen) = against_server(0, arrivals, seed, 0);
            let (variation, distance) = gaps(&seen);
            rows[0].push(variation);
            rows[1].push(distance);
            rows[2].push(result.gap_check.map_or(f64::NAN, |check| {
                100.0 * (check.sent_rate_per_s / check.planned_rate_per_s - 1.0)
            }));
        }
        println!(
            "  {name:<9} variation of the gaps {:.3} (least {:.3}), distance to the exponential {:.3}, rate {:+.4} %",
            median(rows[0].clone()),
            rows[0].iter().copied().fold(f64::INFINITY, f64::min),
            median(rows[1].clone()),
            median(rows[2].clone())
        );
    }
    println!(
        "  bars: constant at most 0.4; poisson 0.97 to 1.06 and at most 0.06; rate within 0.1 %"
    );
    known_delay();
    stall();
}

/// A loop that only looks at the clock, asleep or awake until each moment: the gaps that it sees
/// vary by what the machine takes away.
fn bare_loop(awake: bool) -> Vec<(u64, u64)> {
    const GAP_NS: u64 = 200_000;
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)).unwrap();
    let start = now_ns() + GAP_NS;
    (0..25_000)
        .map(|index| {
            let due = start + index * GAP_NS;
            while now_ns() < due {
                if !awake {
                    std::thread::sleep(Duration::from_nanos(due.saturating_sub(now_ns())));
                }
            }
            (now_ns(), 0)
        })
        .collect()
}

/// Loads the delay server, which is stopped for 100 ms in each of the first `stops` seconds; what the load said, and
/// when requests came and were answered.
fn against_server(
    delay_ns: u64,
    arrivals: ArrivalPlan,
    seed: u64,
    stops: u64,
) -> (LoadResult, Vec<(u64, u64)>) {
    let program = std::env::current_exe().unwrap();
    let mut child = on_processor(0, program.to_str().unwrap())
        .args(["delay-server", &delay_ns.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let mut plan = plan(line.trim(), 1_000 * stops.max(5));
    plan.clients = 16;
    plan.seed = seed;
    plan.pace = PacePlan::Open { arrivals };
    let process = Pid::from_child(&child);
    let stopper = std::thread::spawn(move || {
        for _ in 0..stops {
            std::thread::sleep(Duration::from_millis(900));
            kill_process(process, Signal::STOP).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            kill_process(process, Signal::CONT).unwrap();
        }
    });
    let result = ours_http(line.trim(), &plan);
    stopper.join().unwrap();
    drop(child.stdin.take());
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    child.wait().unwrap();
    let seen = text.lines().map(|line| {
        let (from, to) = line.split_once(' ').unwrap();
        (from.parse().unwrap(), to.parse().unwrap())
    });
    (result, seen.collect())
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

/// Answers each request `delay_ns` after it came; writes the moments down when its input ends.
///
/// Never sleeps: what is measured is when requests come, not how long a core takes to wake up.
pub(crate) fn serve(delay_ns: u64) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap());
    listener.set_nonblocking(true).unwrap();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let watch = |source: &dyn AsFd, mark: u64| {
        epoll::add(&epoll, source.as_fd(), epoll::EventData::new_u64(mark), epoll::EventFlags::IN)
            .unwrap();
    };
    watch(&std::io::stdin(), u64::MAX);
    watch(&listener, u64::MAX - 1);
    let mut streams: Vec<TcpStream> = Vec::new();
    // All delays are alike, so requests are answered in the order in which they came.
    let mut waiting: VecDeque<(usize, u64)> = VecDeque::new();
    let mut seen: Vec<(u64, u64)> = Vec::with_capacity(100_000);
    let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
    loop {
        while let Some((index, arrived)) = waiting.front().copied()
            && now_ns() >= arrived + delay_ns
        {
            waiting.pop_front();
            seen.push((arrived, now_ns()));
            // The load has closed the connection when this fails: its end is near.
            streams[index].write_all(OK).unwrap_or_default();
        }
        let wait = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        events.clear();
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&wait)).unwrap();
        for event in &events {
            match event.data.u64() {
                u64::MAX => return print_moments(&seen),
                mark if mark == u64::MAX - 1 => {
                    let (stream, _) = listener.accept().unwrap();
                    stream.set_nodelay(true).unwrap();
                    watch(&stream, streams.len() as u64);
                    streams.push(stream);
                }
                mark => {
                    let index = usize::try_from(mark).unwrap();
                    let mut input = [0; 4_096];
                    if streams[index].read(&mut input).is_ok_and(|read| read > 0) {
                        waiting.push_back((index, now_ns()));
                    } else {
                        epoll::delete(&epoll, &streams[index]).unwrap_or_default();
                    }
                }
            }
        }
    }
}

fn print_moments(seen: &[(u64, u64)]) {
    let lines: Vec<String> = seen.iter().map(|(from, to)| format!("{from} {to}\n")).collect();
    std::io::stdout().write_all(lines.concat().as_bytes()).unwrap();
}

/// Variation of the gaps, and their distance to the exponential distribution.
fn gaps(seen: &[(u64, u64)]) -> (f64, f64) {
    let mut moments: Vec<u64> = seen.iter().map(|(arrived, _)| *arrived).collect();
    moments.sort_unstable();
    let mut gaps: Vec<f64> = moments.windows(2).map(|pair| exact_f64(pair[1] - pair[0])).collect();
    gaps.sort_by(f64::total_cmp);
    let count = exact_f64(gaps.len());
    let mean = gaps.iter().sum::<f64>() / count;
    let squares: f64 = gaps.iter().map(|gap| (gap - mean).powi(2)).sum();
    let distance = gaps
        .iter()
        .enumerate()
        .map(|(index, gap)| (-(-gap / mean).exp_m1() - exact_f64(index) / count).abs())
        .fold(0.0, f64::max);
    ((squares / count).sqrt() / mean, distance)
}

fn response_times(result: &LoadResult) -> Histogram {
    let mut all = Histogram::new();
    for operation in result.operations.values() {
        all.add(&Histogram::decode(&operation.response_time.0).unwrap());
    }
    all
}

fn known_delay() {
    println!("\nknown delay of 1 ms, 2,000/s over 16 connections: reported less served, 3 runs");
    let mut errors: [Vec<f64>; 2] = Default::default();
    for seed in 1..=3 {
        let arrivals = ArrivalPlan::Constant { rate: 2_000.0 };
        let (result, seen) = against_server(1_000_000, arrivals, seed, 0);
        let mut served = Histogram::new();
        for (arrived, answered) in seen {
            served.record(answered - arrived);
        }
        let reported = response_times(&result);
        for (errors, quantile) in errors.iter_mut().zip([0.5, 0.99]) {
            let at = |histogram: &Histogram| exact_f64(histogram.quantile(quantile).unwrap());
            errors.push((at(&reported) - at(&served)) / 1e3);
        }
    }
    let [middle, high] = errors.map(median);
    println!("  median {middle:+.0} µs, 99 % {high:+.0} µs; bars: at most 100 and 200 µs");
}

/// The truth is from each request's due moment, which the plan gives, to the answer's, which the server writes down.
fn stall() {
    const RATE: f64 = 5_000.0;
    let (result, seen) = against_server(0, ArrivalPlan::Constant { rate: RATE }, 1, 11);
    let mut answered: Vec<u64> = seen.iter().map(|(_, answered)| *answered).collect();
    answered.sort_unstable();
    let mut truth: Vec<f64> = answered
        .iter()
        .enumerate()
        .map(|(index, answered)| {
            let due = exact_f64(index) * 1e3 / RATE;
            exact_f64(*answered) / 1e6 - exact_f64(result.started_ns) / 1e6 - due
        })
        .collect();
    truth.sort_by(f64::total_cmp);
    let reported = response_times(&result);
    println!(
        "\nstopped for 100 ms in every second, 5,000/s over 16 connections: reported, true, ms"
    );
    let at = |quantile| exact_f64(reported.quantile(quantile).unwrap()) / 1e6;
    let rows = [
        (
            "mean",
            reported.mean().unwrap() / 1e6,
            truth.iter().sum::<f64>() / exact_f64(truth.len()),
        ),
        ("95 %", at(0.95), truth_at(&truth, 0.95)),
        ("99 %", at(0.99), truth_at(&truth, 0.99)),
        ("99.9 %", at(0.999), truth_at(&truth, 0.999)),
    ];
    for (name, reported, truth) in rows {
        let error = 100.0 * (reported / truth - 1.0);
        println!("  {name:<7} {reported:>7.2} {truth:>7.2}  {error:+.1} %");
    }
    println!("  bar: within 2 %");
    for caveat in result.caveats {
        println!("  caveat: {caveat}");
    }
}

fn truth_at(sorted: &[f64], quantile: f64) -> f64 {
    let rank = whole_u64(quantile * exact_f64(sorted.len()));
    sorted[usize::try_from(rank).unwrap().min(sorted.len() - 1)]
}
