//! Starts, watches and ends processes on one host: in the study's own process on this machine, at the far
//! end of a pipe on another.
//!
//! Whatever becomes of a study elsewhere, nothing is left: the agent ends all when its input ends, when the
//! study is silent for the lease, and when the study asks for it. Where it cannot (killed, or stopped),
//! its children have asked the kernel to end with it, and its reaper, which it tells once a second
//! that it lives, ends them and removes the folder.

#[cfg(feature = "fuzzing")]
#[path = "../../../fuzz/inside/agent.rs"]
pub(crate) mod fuzzing;

use std::collections::BTreeMap;
use std::io::{BufRead, Read as _, Seek as _, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use base64::Engine as _;
use parking_lot::Mutex;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde::Serialize;
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use crate::clock::{Until, monotonic_ns, thread_cpu_ns};
use crate::disk::free_bytes;
use crate::http;
use crate::instance::{Instance, ProcessError, free_port, wait_ready};
use crate::keeper::Keeper;
use crate::launch::{AwaitReady, Launch};
use crate::lease::{BEAT, Beats, Due, LOOK, in_seconds};
use crate::program::{self, is_there};
use crate::protocol::{
    End, Hello, LONGEST_LINE, Line, Looked, Measured, Outcome, PIECE, ReadyAnswer, Request,
    StartedProcess, Unready, What,
};
use crate::sample::{self, Accounting};

/// Requests that may wait for the main thread.
const BACKLOG: usize = 1_024;

/// When no further page of a tier is asked for: the answer must come within the lease, however slow they are.
const PAGES: Duration = Duration::from_secs(2);

/// Messages to the main thread.
enum Told {
    Request(Request),
    /// The input has ended.
    End,
}

/// A process, and whether it shall end while it is waited for.
struct Kept {
    instance: Mutex<Instance>,
    unwanted: AtomicBool,
}

/// All that the threads of an agent share.
pub(crate) struct Agent {
    say: Box<dyn Fn(Line) + Send + Sync>,
    keeper: Mutex<Keeper>,
    processes: Mutex<BTreeMap<u32, Arc<Kept>>>,
    /// The number of the process that was started last.
    last: AtomicU32,
    /// Below it lies all that it is asked for; without one, wherever the study says.
    folder: Option<PathBuf>,
}

/// Serves one study, over an input and an output. Call it on the main thread: processes end with the
/// thread that started them.
pub fn serve<R, W>(program: &Path, lease: Duration, input: R, output: W) -> std::io::Result<()>
where
    R: BufRead + Send + 'static,
    W: Write + Send + 'static,
{
    let folder = folder()?;
    let keeper = Keeper::with_lease(program, lease + BEAT, &folder)?;
    let output = Mutex::new(output);
    let agent = Agent::new(keeper, Some(folder.clone()), move |line| {
        let Ok(mut text) = serde_json::to_vec(&line) else { return };
        text.push(b'\n');
        let mut output = output.lock();
        // The study is gone: the input ends as well, and with it the agent.
        output.write_all(&text).and_then(|()| output.flush()).unwrap_or_default();
    });
    (agent.say)(Line::Hello(hello(program, &folder)));
    let (tell, told) = sync_channel(BACKLOG);
    let reading = Arc::clone(&agent);
    let heard = Arc::new(AtomicU64::new(monotonic_ns()));
    let hearing = Arc::clone(&heard);
    std::thread::spawn(move || read(&reading, input, &tell, &hearing));
    let mut beats = Beats::from(monotonic_ns(), lease);
    let why = loop {
        match told.recv_timeout(LOOK) {
            Ok(Told::Request(request)) => {
                let bye = request.what == What::Bye;
                agent.act(request);
                if bye {
                    break None;
                }
            }
            Ok(Told::End) | Err(RecvTimeoutError::Disconnected) => {
                break Some("the study is gone".to_owned());
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        match beats.due(heard.load(Ordering::Relaxed), monotonic_ns()) {
            Due::Nothing => {}
            Due::Beat => agent.keeper.lock().beat(),
            Due::GiveUp => {
                let silent = in_seconds(lease);
                break Some(format!("nothing was received from the study for {silent}"));
            }
        }
    };
    agent.clear();
    if let Some(why) = why {
        (agent.say)(Line::End { why });
    }
    std::fs::remove_dir_all(&folder).unwrap_or_default();
    Ok(())
}

/// A path below the agent's folder, and nowhere else.
fn within(folder: &Path, file: &str) -> Result<PathBuf, String> {
    let plain = Path::new(file).components().all(|part| matches!(part, Component::Normal(_)));
    if plain && !file.is_empty() {
        Ok(folder.join(file))
    } else {
        Err(format!("`{file}` is not below the agent's folder"))
    }
}

/// A folder of its own that no other user can read.
fn folder() -> std::io::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt as _;
    let base = std::env::temp_dir();
    let name = format!("kendall-{}-{}", std::process::id(), monotonic_ns());
    let folder = std::path::absolute(base.join(name))?;
    std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
    Ok(folder)
}

pub(crate) fn hello(program: &Path, folder: &Path) -> Hello {
    let around = crate::machine::machine();
    let text = |key: &str| around.get(key).and_then(Json::as_str).map(str::to_owned);
    Hello {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine: text("machine").unwrap_or_default(),
        boot_id: text("boot_id").unwrap_or_default(),
        kernel: text("kernel").unwrap_or_default(),
        architecture: std::env::consts::ARCH.to_owned(),
        cores: std::thread::available_parallelism()
            .map_or(1, |cores| u64::try_from(cores.get()).unwrap_or(1)),
        memory_bytes: around.get("memory_bytes").and_then(Json::as_u64),
        cpu_model: text("cpu_model"),
        clock_source: text("clock_source"),
        // A file system that does not say how much is not full for that.
        free_bytes: free_bytes(folder).unwrap_or(u64::MAX),
        program: program.display().to_string(),
        folder: folder.display().to_string(),
        pid: std::process::id(),
    }
}

/// Reads requests until the input ends. Pings for the clock are answered here, before anything else is done.
fn read(agent: &Agent, mut input: impl BufRead, tell: &SyncSender<Told>, heard: &AtomicU64) {
    let mut line = Vec::new();
    loop {
        line.clear();
        let got = (&mut input).take(LONGEST_LINE).read_until(b'\n', &mut line);
        let at = monotonic_ns();
        if !matches!(got, Ok(length) if length > 0) {
            break;
        }
        heard.store(at, Ordering::Relaxed);
        let told = match serde_json::from_slice(&line) {
            Ok(Request { id, what: What::Clock }) => {
                (agent.say)(Line::Answer { id, outcome: Outcome::ClockNs(monotonic_ns()) });
                continue;
            }
            Ok(request) => Told::Request(request),
            Err(error) => {
                tracing::warn!(%error, "a request that cannot be read");
                continue;
            }
        };
        if tell.send(told).is_err() {
            return;
        }
    }
    tell.send(Told::End).unwrap_or_default();
}

impl Agent {
    pub(crate) fn new(
        keeper: Keeper,
        folder: Option<PathBuf>,
        say: impl Fn(Line) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            say: Box::new(say),
            keeper: Mutex::new(keeper),
            processes: Mutex::new(BTreeMap::new()),
            last: AtomicU32::new(0),
            folder,
        })
    }

    fn answer<T: Serialize>(&self, id: u64, answer: Result<T, String>) {
        let value = answer.and_then(|ok| serde_json::to_value(ok).map_err(|e| e.to_string()));
        let outcome = value.map_or_else(Outcome::Error, Outcome::Ok);
        (self.say)(Line::Answer { id, outcome });
    }

    /// Does what is asked; what takes time, on a thread of its own. Processes end with the thread that
    /// asked for their start.
    pub(crate) fn act(self: &Arc<Self>, Request { id, what }: Request) {
        match what {
            What::Start(start) => self.answer(id, self.start(start)),
            What::Bye => {
                self.clear();
                self.answer(id, Ok(true));
            }
            What::Signal { process, signal } => {
                if let Some(kept) = self.kept(process) {
                    kept.unwanted.store(true, Ordering::Relaxed);
                    kept.instance.lock().ask_to_stop(signal);
                }
                self.answer(id, Ok(true));
            }
            aside => {
                let agent = Arc::clone(self);
                std::thread::spawn(move || agent.act_aside(id, aside));
            }
        }
    }

    fn act_aside(&self, id: u64, what: What) {
        match what {
            What::Missing { programs } => {
                let missing: Vec<String> =
                    programs.into_iter().filter(|program| !is_there(program)).collect();
                self.answer(id, Ok(missing));
            }
            What::Check { arguments } => {
                let program = self.keeper.lock().program().to_owned();
                self.answer(id, Ok(program::check(&program, &arguments).err()));
            }
            What::FreePort { address } => {
                let port = free_port(&address);
                self.answer(id, port.map_err(|error| format!("no port on {address}: {error}")));
            }
            What::Ready(ready) => self.answer(id, self.ready(&ready)),
            What::Finish { process, deadline_ms } => {
                self.answer(id, Ok(self.finish(process, deadline_ms)));
            }
            What::Look { snapshots, accounts } => {
                self.answer(id, Ok(look(&snapshots, &accounts, self.folder.as_deref())));
            }
            What::Tail { process } => {
                let kept = self.kept(process).ok_or("no such process".to_owned());
                self.answer(id, kept.map(|kept| kept.instance.lock().tail()));
            }
            What::Measure { file } => self.answer(id, self.within(&file).and_then(measure)),
            What::Read { file, offset } => {
                self.answer(id, self.within(&file).and_then(|path| piece(&path, offset)));
            }
            What::Remove { folder } => {
                let removed =
                    self.within(&folder).map(|path| std::fs::remove_dir_all(path).is_ok());
                self.answer(id, removed);
            }
            What::RoundTrips { address, count } => {
                self.answer(id, crate::probe::round_trips(&address, count))
            }
            What::ServeProbe { address } => {
                let port = crate::probe::serve(&address);
                self.answer(id, port.map_err(|error| format!("no port on {address}: {error}")));
            }
            What::Probe { address } => self.answer(id, Ok(crate::probe::to(&address))),
            What::Clock | What::Start(_) | What::Signal { .. } | What::Bye => {}
        }
    }

    fn kept(&self, process: u32) -> Option<Arc<Kept>> {
        self.processes.lock().get(&process).map(Arc::clone)
    }

    fn within(&self, file: &str) -> Result<PathBuf, String> {
        self.folder.as_ref().map_or_else(|| Ok(file.into()), |folder| within(folder, file))
    }

    fn start(self: &Arc<Self>, launch: Launch) -> Result<StartedProcess, String> {
        let number = 1 + self.last.fetch_add(1, Ordering::Relaxed);
        let launch = Launch { folder: self.within(&launch.folder.to_string_lossy())?, ..launch };
        let instance = Instance::spawn(&mut self.keeper.lock(), &launch)
            .map_err(|error| kendall_units::chain(&error))?;
        let (pid, processors) = (instance.pid(), instance.processors().to_vec());
        let kept =
            Arc::new(Kept { instance: Mutex::new(instance), unwanted: AtomicBool::new(false) });
        self.processes.lock().insert(number, Arc::clone(&kept));
        let agent = Arc::clone(self);
        std::thread::spawn(move || agent.tell_the_end(number, pid, &kept));
        Ok(StartedProcess { process: number, pid, processors })
    }

    /// Waits for the end of a process without taking it from whom it belongs to.
    fn tell_the_end(&self, process: u32, pid: u32, kept: &Kept) {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        // An error says that it was waited for already: it has ended as well.
        pid.map(|pid| waitid(WaitId::Pid(pid), options).is_ok()).unwrap_or_default();
        let end = kept.instance.lock().end();
        if let Some(end) = end {
            (self.say)(Line::Ended { process, end });
        }
    }

    fn ready(&self, wanted: &AwaitReady) -> Result<ReadyAnswer, String> {
        let kept = self.kept(wanted.process).ok_or("no such process")?;
        let unwanted = || kept.unwanted.load(Ordering::Relaxed);
        let answer = wait_ready(&mut kept.instance.lock(), wanted, &unwanted);
        Ok(answer.map_err(|error| {
            let what = kendall_units::chain(&error);
            if matches!(error, ProcessError::Ended { .. }) {
                Unready::Ended(what)
            } else {
                Unready::Other(what)
            }
        }))
    }

    /// Whether it had to be killed.
    fn finish(&self, process: u32, deadline_ms: u64) -> bool {
        let Some(kept) = self.processes.lock().remove(&process) else { return false };
        kept.unwanted.store(true, Ordering::Relaxed);
        let mut instance = kept.instance.lock();
        let killed = instance.end_by(Duration::from_millis(deadline_ms));
        self.keeper.lock().ended(instance.pid());
        killed
    }

    /// Ends everything at once.
    fn clear(&self) {
        let all: Vec<u32> = self.processes.lock().keys().copied().collect();
        for process in all {
            self.finish(process, 0);
        }
    }
}

fn look(snapshots: &[String], accounts: &[Accounting], folder: Option<&Path>) -> Looked {
    let before_ns = thread_cpu_ns();
    let waits = accounts.iter().any(|one| matches!(one, Accounting::Waits(_)));
    let until = Until::after(PAGES);
    let page = |address: &String| {
        let body = if until.is_over() { None } else { http::snapshot(address) };
        String::from_utf8(body?).ok()
    };
    Looked {
        accounts: accounts.iter().map(sample::accounting).collect(),
        host: if waits { None } else { sample::host("") },
        free_bytes: folder.and_then(free_bytes),
        // The pages last: a slow one must not delay these samples.
        snapshots: snapshots.iter().map(page).collect(),
        cost_ns: thread_cpu_ns().saturating_sub(before_ns),
    }
}

fn measure(path: PathBuf) -> Result<Measured, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut file = std::fs::File::open(path).map_err(failed)?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    let mut length = 0;
    loop {
        let got = file.read(&mut buffer).map_err(failed)?;
        if got == 0 {
            break;
        }
        length += u64::try_from(got).unwrap_or(0);
        digest.update(&buffer[..got]);
    }
    Ok(Measured { length, sha256: kendall_units::hex(&digest.finalize()) })
}

/// A piece of a file, in base 64.
fn piece(path: &Path, offset: u64) -> Result<String, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut file = std::fs::File::open(path).map_err(failed)?;
    file.seek(SeekFrom::Start(offset)).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(PIECE).read_to_end(&mut bytes).map_err(failed)?;
    Ok(base64::engine::general_purpose::STANDARD.encode(bytes))
}

/// How the end of a process is reported.
impl Instance {
    fn end(&mut self) -> Option<End> {
        let status = self.ended()?;
        Some(End {
            status: status.to_string(),
            success: status.success(),
            tail: self.tail(),
            life_ns: self.life_ns(),
        })
    }
}
