//! The near end: one agent on one host, in this process or at the other end of a pipe.

#[cfg(feature = "fuzzing")]
#[path = "../../../fuzz/inside/connection.rs"]
pub(crate) mod fuzzing;

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::agent::{Agent, hello};
use crate::bootstrap::{Bootstrap, Program};
use crate::clock::{Until, monotonic_ns};
use crate::clocks::{ClockFit, PINGS, Ping};
use crate::error::HostError;
use crate::hosts::LOCALHOST;
use crate::keeper::Keeper;
use crate::lease::{Beats, Due, LEASE, LOOK, in_seconds};
use crate::protocol::{End, Hello, LONGEST_LINE, Line, Outcome, Request, What};

/// How long a host may take until its first word; until it takes more of the program, and until its agent
/// says hello.
const CONNECT_DEADLINE: Duration = Duration::from_secs(30);
const HELLO_DEADLINE: Duration = Duration::from_secs(300);

/// Bytes of the program that are written at once.
const CARRIED_PIECE: usize = 64 << 10;

/// Bytes of what the engine said on its standard error that an error quotes.
const TAIL_BYTES: usize = 600;

/// Words before the hello that are kept, and bytes of each: a login shell may print anything.
const MOST_WORDS: usize = 1_000;
const WORD_BYTES: usize = 4_096;

/// Memory of a thread that moves lines.
const STACK_BYTES: usize = 256 << 10;

/// How long an answer may take that needs no waiting on the far side.
pub const PROMPT: Duration = LEASE.saturating_add(Duration::from_secs(5));

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

/// What the reader of a pipe knows.
#[derive(Debug, Default)]
struct State {
    /// Words before the hello.
    words: VecDeque<String>,
    hello: Option<Hello>,
    /// Bytes of the program that were written, and how that ended.
    carried: usize,
    sent: Option<std::io::Result<()>>,
    /// `None` while an answer is awaited.
    answers: BTreeMap<u64, Option<Outcome>>,
    /// When each clock was asked for, and who waits for the ping.
    asked_ns: BTreeMap<u64, u64>,
    pings: Vec<Ping>,
    ended: BTreeMap<u32, End>,
    heard_ns: u64,
    longest_silence_ns: u64,
    /// Last words of the agent.
    why: Option<String>,
    lost: Option<String>,
    /// What the engine's program said on its standard error.
    complaints: Vec<u8>,
    complained: bool,
    closing: bool,
}

/// The state, and what wakes those who wait for a change of it.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    /// Waits until `found` finds something; `None` after the deadline.
    fn until<T>(
        &self,
        deadline: Duration,
        interrupted: &dyn Fn() -> bool,
        mut found: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        let end = Until::after(deadline);
        let mut state = self.state.lock();
        loop {
            if let Some(found) = found(&mut state) {
                return Some(found);
            }
            let left = end.left();
            if left.is_zero() || interrupted() {
                return None;
            }
            // Short, so that an interruption is noticed.
            let wait = left.min(Duration::from_millis(100));
            self.changed.wait_for(&mut state, wait);
        }
    }
}

/// The two ends of a pipe to an agent, and the program that carries it.
#[expect(missing_debug_implementations, reason = "boxed pipes have none")]
pub struct Pipe {
    pub input: Box<dyn Write + Send>,
    pub output: Box<dyn BufRead + Send>,
    pub carrier: Option<Child>,
}

/// Where requests go.
enum Input {
    Pipe(Box<dyn Write + Send>),
    InProcess(Arc<Agent>),
    Closed,
}

/// The way to an agent; it is of use once that has [said hello](Connection::arrive).
pub struct Connection {
    name: String,
    shared: Arc<Shared>,
    input: Arc<Mutex<Input>>,
    next: std::sync::atomic::AtomicU64,
    carrier: Arc<Mutex<Option<Child>>>,
    hello: Hello,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("name", &self.name).finish_non_exhaustive()
    }
}

fn thread(what: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(what).map(drop)
}

/// Starts the engine's program in a process group of its own: Ctrl-C on the terminal must not reach it.
pub fn start(command: &[String]) -> std::io::Result<Pipe> {
    use std::os::unix::process::CommandExt as _;
    let (program, arguments) = command.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let missing = || std::io::Error::other("a pipe is missing");
    let input = child.stdin.take().ok_or_else(missing)?;
    let output = child.stdout.take().ok_or_else(missing)?;
    let output = Box::new(BufReader::with_capacity(64 << 10, output));
    Ok(Pipe { input: Box::new(input), output, carrier: Some(child) })
}

impl Connection {
    /// Begins to read what comes over a pipe. From here on the program that carries it is ended with the
    /// connection.
    pub fn start(name: &str, mut pipe: Pipe) -> Result<Self, HostError> {
        let shared = Arc::new(Shared::default());
        shared.state.lock().heard_ns = monotonic_ns();
        let error = pipe.carrier.as_mut().and_then(|child| child.stderr.take());
        shared.state.lock().complained = error.is_none();
        let connection = Self {
            name: name.to_owned(),
            shared,
            input: Arc::new(Mutex::new(Input::Pipe(pipe.input))),
            next: std::sync::atomic::AtomicU64::new(1),
            carrier: Arc::new(Mutex::new(pipe.carrier)),
            hello: Hello::default(),
        };
        if let Some(error) = error {
            let shared = Arc::clone(&connection.shared);
            connection.thread(move || complaints(error, &shared))?;
        }
        let (shared, carrier) = (Arc::clone(&connection.shared), Arc::clone(&connection.carrier));
        let output = pipe.output;
        connection.thread(move || read(output, &shared, &carrier))?;
        connection.beat()?;
        Ok(connection)
    }

    /// The agent of this machine, in this process.
    pub fn in_process(keeper: Keeper) -> Self {
        let shared = Arc::new(Shared::default());
        let hello = hello(keeper.program(), Path::new(""));
        shared.state.lock().hello = Some(hello.clone());
        let hearing = Arc::clone(&shared);
        let agent = Agent::new(keeper, None, move |line| {
            hearing.state.lock().take_in(line, monotonic_ns());
            hearing.changed.notify_all();
        });
        Self {
            name: LOCALHOST.to_owned(),
            shared,
            input: Arc::new(Mutex::new(Input::InProcess(agent))),
            next: std::sync::atomic::AtomicU64::new(1),
            carrier: Arc::default(),
            hello,
        }
    }

    fn unusable(&self, what: String) -> HostError {
        HostError::Unusable { host: self.name.clone(), what }
    }

    fn thread(&self, what: impl FnOnce() + Send + 'static) -> Result<(), HostError> {
        thread(what).map_err(|error| self.unusable(error.to_string()))
    }

    /// Brings the agent up. `bootstrap` is `None` where it runs there already.
    pub fn arrive(
        &mut self,
        bootstrap: Option<(&Bootstrap, &Program)>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), HostError> {
        let brought = bootstrap
            .map_or(Ok(()), |(bootstrap, program)| self.bring(bootstrap, program, interrupted));
        let hello = brought.and_then(|()| {
            let hello = self.await_first(HELLO_DEADLINE, interrupted, |state| state.hello.clone());
            hello.map_err(|said| match bootstrap {
                Some((bootstrap, _)) => bootstrap.remedy(&said),
                None => said,
            })
        });
        self.hello = hello.map_err(|what| {
            // What fails once the user wants the end, fails because of it.
            if interrupted() { HostError::Interrupted } else { self.unusable(what) }
        })?;
        Ok(())
    }

    /// What comes before the hello, or why it does not.
    fn await_first<T>(
        &self,
        deadline: Duration,
        interrupted: &dyn Fn() -> bool,
        mut found: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, String> {
        let got = self.shared.until(deadline, interrupted, |state| match found(state) {
            Some(found) => Some(Ok(found)),
            None => {
                let failed = state.words.iter().find_map(|word| word.strip_prefix("failed: "));
                failed.map(str::to_owned).or_else(|| state.lost.clone()).map(Err)
            }
        });
        got.unwrap_or_else(|| Err(format!("no answer in {} s", deadline.as_secs())))
    }

    /// Sends the program where it is not there yet.
    fn bring(
        &self,
        bootstrap: &Bootstrap,
        program: &Program,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let word = |wanted: &'static str| {
            move |state: &mut State| {
                let at = state.words.iter().position(|word| word.starts_with(wanted))?;
                state.words.remove(at)
            }
        };
        let system = self.await_first(CONNECT_DEADLINE, interrupted, word("kendall-host "))?;
        bootstrap.check(&system)?;
        let answer = self.await_first(CONNECT_DEADLINE, interrupted, word("program "))?;
        if answer.ends_with("want") { self.carry(program, interrupted) } else { Ok(()) }
    }

    /// Writes the program, on a thread of its own: a host that takes nothing delays no other.
    fn carry(&self, program: &Program, interrupted: &dyn Fn() -> bool) -> Result<(), String> {
        let packed = program.packed().map_err(|error| error.to_string())?;
        let (shared, input) = (Arc::clone(&self.shared), Arc::clone(&self.input));
        thread(move || {
            let sent = write_out(&packed, &mut input.lock(), &shared);
            shared.state.lock().sent = Some(sent);
            shared.changed.notify_all();
        })
        .map_err(|error| error.to_string())?;
        let mut known = 0;
        let sent = loop {
            let moved = self.await_first(HELLO_DEADLINE, interrupted, |state| {
                let moves = state.carried > known;
                known = state.carried;
                state.sent.take().map(Some).or(moves.then_some(None))
            })?;
            if let Some(sent) = moved {
                break sent;
            }
        };
        // A host without room ends while it is written to; it says why.
        sent.map_err(|error| {
            let said = self.await_first(CONNECT_DEADLINE, interrupted, |_| None::<()>);
            said.err().unwrap_or_else(|| error.to_string())
        })
    }

    /// Asks for the clock once a second, which is the beat, and gives a silent host up: from its hello on,
    /// also while other hosts are still on their way.
    fn beat(&self) -> Result<(), HostError> {
        let (shared, input) = (Arc::clone(&self.shared), Arc::clone(&self.input));
        let carrier = Arc::clone(&self.carrier);
        // Numbers of their own, far from those of other requests.
        let mut number = 1 << 40;
        let mut beats = Beats::from(monotonic_ns(), LEASE);
        self.thread(move || {
            loop {
                let over =
                    |state: &mut State| (state.closing || state.lost.is_some()).then_some(());
                if shared.until(LOOK, &|| false, over).is_some() {
                    return;
                }
                let heard_ns = {
                    let state = shared.state.lock();
                    state.hello.as_ref().map(|_| state.heard_ns)
                };
                let Some(heard_ns) = heard_ns else { continue };
                match beats.due(heard_ns, monotonic_ns()) {
                    Due::Nothing => continue,
                    Due::Beat => number += 1,
                    Due::GiveUp => {
                        lose(&shared, format!("nothing was received for {}", in_seconds(LEASE)));
                        end_carrier(&carrier);
                        return;
                    }
                }
                // Where a request is being written that the host does not take, only the silence is
                // watched: its end frees who writes.
                if let Some(mut pipe) = input.try_lock() {
                    send(&shared, &mut pipe, number, What::Clock);
                }
            }
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder below the agent's own for a folder of this machine: its last two names, run and process. The
    /// agent of this machine takes the folder itself.
    pub fn far_folder(&self, folder: &Path) -> PathBuf {
        if self.name == LOCALHOST {
            return folder.to_owned();
        }
        let names: Vec<_> = folder.iter().rev().take(2).collect();
        names.into_iter().rev().collect()
    }

    /// Its name behind a word, such as ` on host h1`; nothing for this machine.
    pub fn elsewhere(&self, word: &str) -> String {
        if self.name == LOCALHOST { String::new() } else { format!(" {word} {}", self.name) }
    }

    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    fn lost_error(&self, what: String) -> HostError {
        HostError::Lost { host: self.name.clone(), what }
    }

    /// The error of a host that is gone, if it is.
    pub fn check(&self) -> Result<(), HostError> {
        match &self.shared.state.lock().lost {
            None => Ok(()),
            Some(what) => Err(self.lost_error(what.clone())),
        }
    }

    /// Sends a request, whose answer is fetched later.
    pub fn send(&self, what: What) -> Ticket {
        let id = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.shared.state.lock().answers.insert(id, None);
        send(&self.shared, &mut self.input.lock(), id, what);
        Ticket(id)
    }

    /// Sends a request whose answer is not waited for.
    pub fn tell(&self, what: What) {
        let id = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        send(&self.shared, &mut self.input.lock(), id, what);
    }

    /// The answer, if it has come.
    pub fn fetch<T: DeserializeOwned>(&self, ticket: Ticket) -> Option<Result<T, HostError>> {
        let outcome = self.take(&mut self.shared.state.lock(), ticket)?;
        Some(self.read_answer(outcome))
    }

    fn take(&self, state: &mut State, ticket: Ticket) -> Option<Result<Outcome, HostError>> {
        if matches!(state.answers.get(&ticket.0), Some(Some(_))) {
            return state.answers.remove(&ticket.0).flatten().map(Ok);
        }
        state.lost.clone().map(|what| Err(self.lost_error(what)))
    }

    fn read_answer<T: DeserializeOwned>(
        &self,
        outcome: Result<Outcome, HostError>,
    ) -> Result<T, HostError> {
        let refused = |what: String| HostError::Refused { host: self.name.clone(), what };
        let value = match outcome? {
            Outcome::Ok(value) => value,
            Outcome::ClockNs(clock) => Json::from(clock),
            Outcome::Error(what) => return Err(refused(what)),
        };
        serde_json::from_value(value).map_err(|error| refused(format!("an odd answer: {error}")))
    }

    /// The answer, when it comes.
    pub fn wait<T: DeserializeOwned>(
        &self,
        ticket: Ticket,
        deadline: Duration,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<T, HostError> {
        let got = self.shared.until(deadline, interrupted, |state| self.take(state, ticket));
        match got {
            Some(outcome) => self.read_answer(outcome),
            None => {
                self.shared.state.lock().answers.remove(&ticket.0);
                let seconds = deadline.as_secs();
                Err(if interrupted() {
                    HostError::Interrupted
                } else {
                    self.lost_error(format!("no answer in {seconds} s"))
                })
            }
        }
    }

    pub fn ask<T: DeserializeOwned>(&self, what: What) -> Result<T, HostError> {
        let ticket = self.send(what);
        self.wait(ticket, PROMPT, &|| false)
    }

    /// Asks for the clock so many times, one after the other.
    pub fn ping(&self, count: usize) -> Result<(), HostError> {
        for _ in 0..count {
            self.ask::<u64>(What::Clock)?;
        }
        Ok(())
    }

    /// Asks for the clock once more; what all pings since they were forgotten tell.
    pub fn clock_fit(&self) -> Result<ClockFit, HostError> {
        self.ping(PINGS)?;
        let untold = || self.lost_error("it sent no time".to_owned());
        ClockFit::of(&self.pings()).ok_or_else(untold)
    }

    /// Drops the pings of earlier runs, at the start of a run.
    pub fn forget_pings(&self) {
        let mut state = self.shared.state.lock();
        state.pings.clear();
        state.longest_silence_ns = 0;
    }

    /// The pings since, in the order of their answers.
    pub fn pings(&self) -> Vec<Ping> {
        self.shared.state.lock().pings.clone()
    }

    /// The longest time without a word since.
    pub fn longest_silence(&self) -> Duration {
        Duration::from_nanos(self.shared.state.lock().longest_silence_ns)
    }

    /// For how long it has said nothing until now; what is in this process is never silent.
    pub fn silence(&self) -> Duration {
        if self.name == LOCALHOST {
            return Duration::ZERO;
        }
        let heard_ns = self.shared.state.lock().heard_ns;
        Duration::from_nanos(monotonic_ns().saturating_sub(heard_ns))
    }

    pub fn ended(&self, process: u32) -> Option<End> {
        self.shared.state.lock().ended.get(&process).cloned()
    }

    /// Shuts down the agent and waits for its processes. Does nothing where no agent has connected: there would be
    /// no answer.
    pub fn close(&self) {
        let arrived = self.shared.state.lock().hello.is_some();
        if arrived && self.check().is_ok() {
            let ticket = self.send(What::Bye);
            self.shared.state.lock().closing = true;
            self.wait::<bool>(ticket, PROMPT, &|| false).map(drop).unwrap_or_default();
        }
        self.shared.state.lock().closing = true;
        // Else a host that takes nothing of the program may hold the lock.
        let input = arrived.then(|| std::mem::replace(&mut *self.input.lock(), Input::Closed));
        if matches!(input, Some(Input::Pipe(_))) {
            drop(input);
            // The agent ends by itself now, and removes its folder before that.
            let ended = |state: &mut State| state.lost.is_some().then_some(());
            self.shared.until(Duration::from_secs(3), &|| false, ended);
        }
        end_carrier(&self.carrier);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

/// Ends the engine's program with all that it started here, and takes its status.
fn end_carrier(carrier: &Mutex<Option<Child>>) {
    let child = carrier.lock().take();
    if let Some(mut child) = child {
        if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            kill_process_group(group, Signal::KILL).unwrap_or_default();
        }
        child.wait().map(drop).unwrap_or_default();
    }
}

fn lose(shared: &Shared, what: String) {
    shared.state.lock().lost.get_or_insert(what);
    shared.changed.notify_all();
}

fn send(shared: &Shared, input: &mut Input, id: u64, what: What) {
    let request = Request { id, what };
    let pipe = match input {
        Input::Pipe(pipe) => pipe,
        Input::InProcess(agent) => return agent.act(request),
        Input::Closed => return,
    };
    let Ok(mut text) = serde_json::to_vec(&request) else { return };
    text.push(b'\n');
    if request.what == What::Clock {
        shared.state.lock().asked_ns.insert(id, monotonic_ns());
    }
    // A broken pipe shows as the end of the output, with its reason.
    pipe.write_all(&text).and_then(|()| pipe.flush()).unwrap_or_default();
}

/// Writes the program with its length before it, and counts what was taken.
fn write_out(packed: &[u8], input: &mut Input, shared: &Shared) -> std::io::Result<()> {
    let Input::Pipe(pipe) = input else { return Err(std::io::ErrorKind::BrokenPipe.into()) };
    writeln!(pipe, "{}", packed.len())?;
    for piece in packed.chunks(CARRIED_PIECE) {
        pipe.write_all(piece)?;
        shared.state.lock().carried += piece.len();
        shared.changed.notify_all();
    }
    pipe.flush()
}

/// Keeps the end of what the engine's program complains about.
fn complaints(mut error: impl std::io::Read, shared: &Shared) {
    let mut buffer = [0; 4_096];
    while let Ok(got @ 1..) = error.read(&mut buffer) {
        let mut state = shared.state.lock();
        state.complaints.extend_from_slice(&buffer[..got]);
        let surplus = state.complaints.len().saturating_sub(TAIL_BYTES);
        state.complaints.drain(..surplus);
    }
    shared.state.lock().complained = true;
    shared.changed.notify_all();
}

/// Reads an agent's lines until they end.
fn read(mut output: Box<dyn BufRead + Send>, shared: &Shared, carrier: &Mutex<Option<Child>>) {
    let mut line = Vec::new();
    loop {
        line.clear();
        let got = (&mut output).take(LONGEST_LINE).read_until(b'\n', &mut line);
        let now = monotonic_ns();
        if !matches!(got, Ok(length) if length > 0) {
            break;
        }
        let mut state = shared.state.lock();
        let silent = now.saturating_sub(state.heard_ns);
        state.longest_silence_ns = state.longest_silence_ns.max(silent);
        state.heard_ns = now;
        match serde_json::from_slice(&line) {
            Ok(line) => state.take_in(line, now),
            Err(_) if state.hello.is_none() && state.words.len() < MOST_WORDS => {
                let word = &line[..line.len().min(WORD_BYTES)];
                state.words.push_back(String::from_utf8_lossy(word).trim().to_owned());
            }
            Err(error) => tracing::debug!(%error, "a line of an agent that cannot be read"),
        }
        drop(state);
        shared.changed.notify_all();
    }
    lose(shared, last_words(shared, carrier));
}

fn last_words(shared: &Shared, carrier: &Mutex<Option<Child>>) -> String {
    if let Some(why) = shared.state.lock().why.clone() {
        return format!("its agent ended: {why}");
    }
    // The program that carries the pipe says why, on its standard error and by its status.
    shared.until(Duration::from_secs(1), &|| false, |state| state.complained.then_some(()));
    let complaints = String::from_utf8_lossy(&shared.state.lock().complaints).trim().to_owned();
    let status = carrier.lock().as_mut().and_then(|child| {
        (0..100).find_map(|_| {
            let status = child.try_wait().ok().flatten();
            if status.is_none() {
                std::thread::sleep(Duration::from_millis(5));
            }
            status
        })
    });
    let status = status.map_or_else(String::new, |status| format!(" ({status})"));
    let said = if complaints.is_empty() { String::new() } else { format!(": {complaints}") };
    match shared.state.lock().hello {
        Some(_) => format!("its agent ended unexpectedly{status}{said}"),
        None => format!("the connection ended before the agent had started{status}{said}"),
    }
}

impl State {
    fn take_in(&mut self, line: Line, now: u64) {
        match line {
            Line::Hello(hello) => self.hello = Some(hello),
            Line::End { why } => self.why = Some(why),
            Line::Ended { process, end } => {
                self.ended.insert(process, end);
            }
            Line::Answer { id, outcome } => {
                if let (Outcome::ClockNs(there_ns), Some(sent_ns)) =
                    (&outcome, self.asked_ns.remove(&id))
                {
                    self.pings.push(Ping { sent_ns, there_ns: *there_ns, received_ns: now });
                }
                if let Some(answer) = self.answers.get_mut(&id) {
                    *answer = Some(outcome);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use rustix::event::{PollFd, PollFlags, poll};
    use serde_json::json;

    use super::*;
    use crate::protocol::Looked;

    /// Agents that answer pings and requests for samples, all of them in one thread, until their inputs end.
    fn simulate(mut agents: Vec<UnixStream>) {
        let hello = Line::Hello(Hello { machine: "simulated".to_owned(), ..Hello::default() });
        let text = |line: &Line| format!("{}\n", serde_json::to_string(line).unwrap());
        for agent in &mut agents {
            agent.write_all(text(&hello).as_bytes()).unwrap();
        }
        let mut rest: Vec<Vec<u8>> = vec![Vec::new(); agents.len()];
        let mut open = agents.len();
        while open > 0 {
            let mut polled: Vec<PollFd<'_>> = agents
                .iter()
                .map(|agent| PollFd::from_borrowed_fd(agent.as_fd(), PollFlags::IN))
                .collect();
            poll(&mut polled, None).unwrap();
            let ready: Vec<usize> =
                (0..polled.len()).filter(|index| !polled[*index].revents().is_empty()).collect();
            drop(polled);
            for index in ready.into_iter().rev() {
                let mut bytes = [0; 4_096];
                let got = std::io::Read::read(&mut agents[index], &mut bytes).unwrap_or(0);
                if got == 0 {
                    agents.swap_remove(index);
                    rest.swap_remove(index);
                    open -= 1;
                    continue;
                }
                rest[index].extend_from_slice(&bytes[..got]);
                while let Some(end) = rest[index].iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = rest[index].drain(..=end).collect();
                    let Request { id, what } = serde_json::from_slice(&line).unwrap();
                    let bye = what == What::Bye;
                    let outcome = match what {
                        What::Clock => Outcome::ClockNs(monotonic_ns() + 1_000_000_000_000),
                        What::Look { .. } => Outcome::Ok(json!(Looked::default())),
                        _ => Outcome::Ok(json!(true)),
                    };
                    let answer = text(&Line::Answer { id, outcome });
                    agents[index].write_all(answer.as_bytes()).unwrap_or_default();
                    if bye {
                        agents[index].shutdown(std::net::Shutdown::Write).unwrap();
                    }
                }
            }
        }
    }

    fn arrived(
        name: &str,
        pipe: Pipe,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Connection, HostError> {
        let mut connection = Connection::start(name, pipe)?;
        connection.arrive(None, interrupted)?;
        Ok(connection)
    }

    /// The two ends of a pipe that no process carries.
    fn pipe() -> (UnixStream, Pipe) {
        let (far, near) = UnixStream::pair().unwrap();
        let output = Box::new(BufReader::new(near.try_clone().unwrap()));
        (far, Pipe { input: Box::new(near), output, carrier: None })
    }

    fn resident_bytes() -> u64 {
        let status = procfs::process::Process::myself().unwrap().status().unwrap();
        status.vmrss.unwrap() * 1_024
    }

    /// What grows with the hosts: threads with small stacks, and a line each way a second.
    #[test]
    fn a_thousand_agents_are_kept_by_few_bytes_each() {
        const AGENTS: usize = 1_000;
        let before = resident_bytes();
        let mut far = Vec::new();
        let mut near = Vec::new();
        for _ in 0..AGENTS {
            let (a, b) = UnixStream::pair().unwrap();
            far.push(a);
            near.push(b);
        }
        let simulator = std::thread::spawn(move || simulate(far));
        let agents: Vec<Connection> = near
            .into_iter()
            .enumerate()
            .map(|(number, stream)| {
                let input = Box::new(stream.try_clone().unwrap());
                let output = Box::new(BufReader::new(stream));
                let pipe = Pipe { input, output, carrier: None };
                arrived(&format!("h{number}"), pipe, &|| false).unwrap()
            })
            .collect();
        for _ in 0..5 {
            let ask = |agent: &Connection| {
                agent.send(What::Look { snapshots: Vec::new(), accounts: Vec::new() })
            };
            let asked: Vec<Ticket> = agents.iter().map(ask).collect();
            for (agent, ticket) in agents.iter().zip(asked) {
                let minute = Duration::from_secs(60);
                agent.wait::<Looked>(ticket, minute, &|| false).unwrap();
            }
        }
        for agent in &agents {
            agent.ping(10).unwrap();
            assert!(agent.check().is_ok());
            let fit = ClockFit::of(&agent.pings()).unwrap();
            assert!((fit.offset_s() - 1_000.0).abs() <= fit.bound_ns / 1e9, "{fit:?}");
        }
        let each = resident_bytes().saturating_sub(before) / 1_000;
        // Two threads and their buffers; other tests that run beside this one are counted as well.
        assert!(each < 200_000, "{each} bytes for each agent");
        drop(agents);
        simulator.join().unwrap();
    }

    /// An end that the user wants is no reason against a host.
    #[test]
    fn a_host_that_is_waited_for_is_given_up_by_the_users_wish() {
        let (_far, pipe) = pipe();
        let looks = std::cell::Cell::new(0);
        let interrupted = || {
            looks.set(looks.get() + 1);
            looks.get() > 2
        };
        let refused = arrived("h1", pipe, &interrupted).unwrap_err();
        assert_eq!(refused, HostError::Interrupted);
    }

    /// The program does not fit into the pipe, and is not read: what is written waits on a thread.
    #[test]
    fn a_host_that_takes_nothing_holds_nobody_up() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kendall");
        // Nothing that can be compressed.
        let mut state = 1_u64;
        let random = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        });
        std::fs::write(&path, random.take(4 << 20).collect::<Vec<u8>>()).unwrap();
        let program = Program::read(&path).unwrap();
        let bootstrap = Bootstrap::of(&program, LEASE);
        let (mut far, pipe) = pipe();
        let stop = Arc::new(AtomicBool::new(false));
        let wish = Arc::clone(&stop);
        let host = std::thread::spawn(move || {
            writeln!(far, "kendall-host Linux x86_64\nprogram want").unwrap();
            let mut first = [0];
            std::io::Read::read_exact(&mut far, &mut first).unwrap();
            wish.store(true, Ordering::Relaxed);
            far
        });
        let mut connection = Connection::start("h1", pipe).unwrap();
        let interrupted = || stop.load(Ordering::Relaxed);
        let ended = connection.arrive(Some((&bootstrap, &program)), &interrupted).unwrap_err();
        assert_eq!(ended, HostError::Interrupted);
        drop(connection);
        host.join().unwrap();
    }

    /// The lease of an agent runs from its hello on, while other hosts may still be carried to.
    #[test]
    fn an_agent_hears_the_study_before_anything_is_asked_of_it() {
        let (mut far, pipe) = pipe();
        let hello = serde_json::to_string(&Line::Hello(Hello::default())).unwrap();
        writeln!(far, "{hello}").unwrap();
        let connection = Connection::start("h1", pipe).unwrap();
        let mut line = String::new();
        BufReader::new(far.try_clone().unwrap()).read_line(&mut line).unwrap();
        let request: Request = serde_json::from_str(&line).unwrap();
        assert_eq!(request.what, What::Clock);
        drop(far);
        drop(connection);
    }

    /// A pipe that closes before a shutdown is a failure of every call that waits.
    #[test]
    fn an_agent_that_goes_is_lost_with_its_last_words() {
        let (far, pipe) = pipe();
        let agent = std::thread::spawn(move || {
            let mut far = far;
            let say = |far: &mut UnixStream, line: &Line| {
                writeln!(far, "{}", serde_json::to_string(line).unwrap()).unwrap();
            };
            // What a login shell prints before does not come from the agent.
            writeln!(far, "Welcome to h1").unwrap();
            say(&mut far, &Line::Hello(Hello::default()));
            let mut line = String::new();
            BufReader::new(far.try_clone().unwrap()).read_line(&mut line).unwrap();
            say(&mut far, &Line::End { why: "no word from the study for 10 s".to_owned() });
        });
        let connection = arrived("h1", pipe, &|| false).unwrap();
        let lost = connection.ask::<bool>(What::Remove { folder: "x".to_owned() }).unwrap_err();
        let said = "host h1: its agent ended: no word from the study for 10 s";
        assert_eq!(lost.to_string(), said);
        assert_eq!(connection.check().unwrap_err().to_string(), said);
        agent.join().unwrap();
    }
}
