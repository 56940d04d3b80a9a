//! Sequences of HTTP requests: what one user does, request by request, with values that later requests take from
//! earlier replies.
//!
//! A request of the load is a run of a sequence. Its response time is that of all its replies, think times between
//! them left out; the replies are counted by themselves as well. All of it is sent by the client of the module
//! `web`, with TLS and HTTP/2 or without.

mod client;
mod cookies;
mod extract;
mod file;
#[cfg(feature = "fuzzing")]
#[path = "../../../fuzz/inside/sequence.rs"]
pub(crate) mod fuzzing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hyper::Method;
use kendall_protocols::load_result::LoadResult;
use kendall_tier::distribution::Distribution;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

pub use file::{FILE, MOST_STEPS, REQUEST, SEQUENCE, SequenceError};

use crate::http::{Part, Url, Values};
use crate::load::{LoadError, LoadPlan, LoadProgress, Operations, Start, run_threads};
use crate::random::Random;
use crate::recorder::Recorder;
use crate::refusals::Said;
use crate::tasks::{self, Timer};
use crate::web::{Connector, WebPlan, connect_all};
use crate::weighted::Weighted;
use client::SequenceClient;
use extract::Extraction;

/// What a URL cannot hold. Values may be whole paths and queries, so that their signs stay.
const NOT_IN_URLS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

#[derive(Debug)]
pub struct SequencePlan {
    sequences: Vec<Sequence>,
    data: Data,
    varied: Vec<(String, Values)>,
    redirects: u64,
    cookies: bool,
}

#[derive(Debug)]
struct Sequence {
    name: String,
    weight: f64,
    steps: Vec<Step>,
    /// How many names have a value in it: those of the data, those that vary, those that are extracted.
    names: usize,
}

#[derive(Debug)]
struct Step {
    name: String,
    method: Method,
    path: Vec<Part>,
    headers: Vec<(String, Vec<Part>)>,
    body: Option<Vec<Part>>,
    /// Statuses that are right; where there is none, those from 200 to 299.
    statuses: Vec<u16>,
    extract: Vec<(usize, Extraction)>,
    /// Before the next.
    think_time: Option<Distribution>,
}

/// Lines that runs take in turn, over all threads.
#[derive(Debug, Default)]
struct Data {
    names: Vec<String>,
    rows: Vec<Vec<String>>,
    taken: AtomicU64,
}

impl Data {
    fn next(&self) -> &[String] {
        let turn = self.taken.fetch_add(1, Ordering::Relaxed);
        let rows = (self.rows.len() as u64).max(1);
        usize::try_from(turn % rows)
            .ok()
            .and_then(|at| self.rows.get(at))
            .map_or(&[], Vec::as_slice)
    }
}

/// What the clients of a load share.
struct Shared {
    plan: SequencePlan,
    connector: Connector,
    /// The place of each sequence's first step among all, behind the sequences.
    first: Vec<usize>,
    /// Where redirects may go.
    origin: Url,
    web: WebPlan,
    mix: Weighted,
    said: Said,
}

/// Runs a load test of sequences; `web` has the host, how it is reached, and further headers.
pub fn run(
    plan: &LoadPlan,
    web: &WebPlan,
    sequences: SequencePlan,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<LoadResult, LoadError> {
    let all = || sequences.sequences.iter();
    let operations = Operations {
        names: all().map(|sequence| sequence.name.clone()).collect(),
        steps: all()
            .flat_map(|sequence| {
                sequence.steps.iter().map(|step| (sequence.name.clone(), step.name.clone()))
            })
            .collect(),
    };
    let mut next = operations.names.len();
    let first = all().map(|sequence| {
        next += sequence.steps.len();
        next - sequence.steps.len()
    });
    let connector = Connector::new(web);
    let origin = Url::parse(&connector.origin)
        .map_err(|error| LoadError::Thread(std::io::Error::other(error)))?;
    let shared = Arc::new(Shared {
        connector,
        first: first.collect(),
        origin,
        web: web.clone(),
        mix: Weighted::new(all().map(|sequence| sequence.weight)),
        said: Said::default(),
        plan: sequences,
    });
    let body = |start: Start<'_>, recorder: Recorder| {
        let random = start.place.random();
        let clients = async {
            let connections = connect_all(&start.place, &shared.connector, web).await;
            connections.and_then(|connections| {
                let client = |connection| {
                    let timer = Timer::new().map_err(LoadError::Thread)?;
                    Ok(SequenceClient::new(&shared, &random, connection, timer))
                };
                connections.into_iter().map(client).collect()
            })
        };
        tasks::run_thread(&start, clients, recorder)
    };
    let mut result = run_threads("http", plan, operations, &body, stop, progress)?;
    // Response times leave think times out, so a client's cycle has those within a run too.
    if result.r#loop == "closed" {
        let within = kendall_units::Seconds::new(shared.plan.think_time_s());
        result.think_time_mean_ns = result.think_time_mean_ns.saturating_add(within.as_nanos());
    }
    shared.said.tell(&mut result);
    Ok(result)
}

impl Shared {
    /// The values that a run begins with: a line of the data, and what varies. Those to be extracted are empty.
    fn give(&self, sequence: usize, values: &mut Vec<Vec<u8>>, random: &mut Random) {
        values.clear();
        values.extend(self.plan.data.next().iter().map(|field| field.clone().into_bytes()));
        for (_, varied) in &self.plan.varied {
            let mut value = Vec::new();
            varied.write(random, &mut value);
            values.push(value);
        }
        values.resize(self.plan.sequences[sequence].names, Vec::new());
    }
}

impl SequencePlan {
    /// Mean think time within a run.
    fn think_time_s(&self) -> f64 {
        let weights: f64 = self.sequences.iter().map(|sequence| sequence.weight).sum();
        let of = |sequence: &Sequence| -> f64 {
            // Behind the last request there is none.
            let pauses =
                sequence.steps.iter().rev().skip(1).filter_map(|step| step.think_time.as_ref());
            sequence.weight * pauses.filter_map(Distribution::mean).sum::<f64>()
        };
        self.sequences.iter().map(of).sum::<f64>() / weights
    }
}

/// A text with its values.
fn fill(parts: &[Part], values: &[Vec<u8>]) -> Vec<u8> {
    let mut text = Vec::new();
    for part in parts {
        text.extend_from_slice(match part {
            Part::Literal(bytes) => bytes,
            Part::Placeholder(place) => &values[*place],
        });
    }
    text
}

/// A path with its values; what a URL cannot hold is encoded.
fn address(parts: &[Part], values: &[Vec<u8>]) -> String {
    percent_encode(&fill(parts, values), NOT_IN_URLS).to_string()
}
