//! What all tiers share: the clock, instruments that cost no lock, a bounded request queue with
//! its worker pool, the metrics page, and the graceful stop.
//!
//! What it leaves out: protocols, and printing. `kendall serve` prints the line that announces a
//! tier, and its summary.
//!
//! # Example
//! A tier of two workers that answer numbers with their squares, and what it says of itself.
//! ```
//! use std::sync::mpsc::sync_channel;
//! use kendall_tier::{
//!     Clock, Instruments, Layout, Moments, RequestQueue, RequestType, WorkerPool,
//! };
//!
//! const SQUARE: RequestType = RequestType(0);
//!
//! let clock = Clock::monotonic();
//! let instruments = Instruments::new(
//!     Layout { tier: "squares", request_types: &["square"], ..Layout::default() },
//!     clock.clone(),
//! );
//! let queue = RequestQueue::new(100, &instruments);
//! let (reply, replies) = sync_channel(10);
//! let pool = WorkerPool::start("worker", queue.clone(), 2, {
//!     let instruments = instruments.clone();
//!     let clock = clock.clone();
//!     move |_index| {
//!         let mut recorder = instruments.recorder();
//!         let (reply, clock) = (reply.clone(), clock.clone());
//!         Box::new(move |(number, arrived_ns): (u64, u64), dequeued_ns| {
//!             reply.send(number * number).expect("the example waits for it");
//!             let replied_ns = clock.now_ns();
//!             let moments = Moments { arrived_ns, dequeued_ns, backend: None, replied_ns };
//!             recorder.completed(SQUARE, &moments);
//!         })
//!     }
//! })?;
//!
//! let mut network = instruments.recorder(); // one a thread
//! network.arrived(SQUARE);
//! queue.push((12, clock.now_ns())).expect("there is room");
//! assert_eq!(replies.recv(), Ok(144));
//! pool.drain(); // takes what waits, then ends the workers
//! assert_eq!(instruments.snapshot().requests["square"].completions, 1);
//! # Ok::<(), std::io::Error>(())
//! ```

mod any_certificate;
mod clock;
pub mod distribution;
mod endpoint;
mod exposition;
mod files;
mod histogram;
mod host;
mod instruments;
mod level;
mod metrics;
mod page;
mod pool;
mod process;
mod queue;
mod readiness;
mod second_log;
pub mod serve;
mod stop;
mod timer;

pub use any_certificate::AnyCertificate;
pub use clock::{Clock, ManualClock};
pub use endpoint::{Endpoint, Read, Write};
pub use exposition::{Exposition, Labels, Metric};
pub use files::{LARGEST_FILE, read_file, read_text};
pub use host::is_host;
pub use instruments::{
    Exchange, Instruments, Layout, Limit, Moments, Outcome, Recorder, RequestType, Stage,
};
pub use level::LevelWriter;
pub use page::{Announcement, Page, PageError, PageRequest, PageResponse, Routes};
pub use pool::WorkerPool;
pub use process::{
    OWN_DESCRIPTORS, bound_connections, may_open, raise_descriptor_limit, share_of_descriptors,
};
pub use queue::{Full, RequestQueue};
pub use readiness::{
    ACCEPT_PAUSE_NS, Accepted, BACKLOG, ConnectionTable, Deadlines, Key, Token, accept, listener,
    resolved,
};
pub use second_log::SecondLog;
pub use stop::{Hangups, Stop, Waker};
pub use timer::{Waits, precise_waits, time_left};
