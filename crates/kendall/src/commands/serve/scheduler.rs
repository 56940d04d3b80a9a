//! `kendall serve scheduler`: the scheduler of the build cluster.

use std::net::SocketAddr;

use kendall_build_cluster::peer::Peer;
use kendall_build_cluster::scheduler::board::Limits;
use kendall_build_cluster::scheduler::{ActionLimits, Scheduler, SchedulerOptions};
use kendall_tier::{Clock, Stop};
use kendall_units::Seconds;

use super::cache::{AccessFlags, PeerFlags, start_error};
use super::{Running, TierFlags, at_least_one};
use crate::exit::Exit;

/// Runs the scheduler of a build cluster
///
/// Bazel and other clients of the Remote Execution API send it their actions; it assigns them to
/// workers (`kendall serve worker`). It forwards requests to the cache, so clients need one address
/// only: --remote_executor=grpc://HOST:PORT. GET /status on the metrics address is a page with
/// queues, builds and workers.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  \
    kendall serve cache --listen 127.0.0.1:8980\n  \
    kendall serve scheduler --listen 127.0.0.1:8981 --cache 127.0.0.1:8980 --metrics 127.0.0.1:9101\n  \
    kendall serve worker --scheduler 127.0.0.1:8981 --cache 127.0.0.1:8980 --slots 4\n  \
    bazel test --remote_executor=grpc://127.0.0.1:8981 //...")]
#[command(override_usage = "kendall serve scheduler [OPTIONS] --listen <HOST:PORT> \\\n    \
    --cache <HOST:PORT>")]
pub(crate) struct SchedulerFlags {
    #[command(flatten)]
    tier: TierFlags,

    /// The cache, or the front over several
    #[arg(long, value_name = "HOST:PORT", value_parser = super::address)]
    cache: SocketAddr,

    /// Does not forward requests to the cache: clients need its address themselves
    #[arg(long)]
    no_front: bool,

    /// Most actions that wait; further ones are refused with RESOURCE_EXHAUSTED
    #[arg(long, value_name = "N", default_value_t = Limits::USUAL.queue_length, value_parser = at_least_one::<usize>())]
    queue_capacity: usize,

    /// Most known operations, including finished ones
    #[arg(long, value_name = "N", default_value_t = Limits::USUAL.operations, value_parser = at_least_one::<usize>())]
    operations: usize,

    /// How often an action is started before it fails because its workers died
    #[arg(long, value_name = "N", default_value_t = Limits::USUAL.attempts, value_parser = clap::value_parser!(u32).range(1..=100))]
    attempts: u32,

    /// A worker that is silent for this long counts as dead
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = super::some_time)]
    worker_silence: Seconds,

    /// How long a worker has to reconnect after its connection broke
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = kendall_units::parse_seconds)]
    worker_return: Seconds,

    /// How long actions wait while no worker offers their platform
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = kendall_units::parse_seconds)]
    no_worker: Seconds,

    /// An operation is cancelled when its client has been gone for this long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = kendall_units::parse_seconds)]
    client_return: Seconds,

    /// How long results are kept for clients that reconnect
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = kendall_units::parse_seconds)]
    keep_results: Seconds,

    /// Time limit of actions that state none
    #[arg(long, value_name = "TIME", default_value = "3600s", value_parser = super::some_time)]
    action_time: Seconds,

    /// Longest time limit that an action may state
    #[arg(long, value_name = "TIME", default_value = "21600s", value_parser = kendall_units::parse_seconds)]
    longest_action_time: Seconds,

    /// How long fetching the inputs of an action and uploading its outputs may take together
    #[arg(long, value_name = "TIME", default_value = "900s", value_parser = kendall_units::parse_seconds)]
    transfer_time: Seconds,

    /// A platform property that does not restrict where an action runs; may be repeated
    #[arg(long = "ignore-property", value_name = "NAME")]
    ignored_properties: Vec<String>,

    /// How long the cache may be unreachable before requests fail
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = kendall_units::parse_seconds)]
    cache_patience: Seconds,

    /// Most client and worker connections; a further one replaces the longest idle, or waits
    #[arg(long = "client-connections", alias = "connections", value_name = "N", default_value_t = 2048, value_parser = at_least_one::<usize>())]
    connections: usize,

    #[command(flatten)]
    access: AccessFlags,

    #[command(flatten)]
    peers: PeerFlags,

    /// Threads; more than one pays where clients send and fetch their blobs through the scheduler
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
}

impl SchedulerFlags {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let stop = Stop::on_signals()?;
        let scheduler =
            Scheduler::start(self.options()?, Clock::monotonic()).map_err(start_error)?;
        let (page, listen) = (&self.tier.page, vec![scheduler.address()]);
        Running::start(page, scheduler.instruments(), scheduler.routes(), &stop, listen)?
            .until_stopped(|| scheduler.stop())
    }

    fn options(&self) -> anyhow::Result<SchedulerOptions> {
        let listen = self.access.listen(self.tier.listen, self.connections)?;
        let silence = self.worker_silence.as_duration();
        // Several beats may be lost before a worker is taken for dead.
        let beat_ms = u32::try_from((silence / 5).as_millis()).unwrap_or(u32::MAX).max(10);
        Ok(SchedulerOptions {
            listen,
            cache: Peer { address: self.cache, trust: self.peers.trust()? },
            front: !self.no_front,
            limits: Limits {
                queue_length: self.queue_capacity,
                operations: self.operations,
                attempts: self.attempts,
                silence_ns: self.worker_silence.as_nanos(),
                reconnect_ns: self.worker_return.as_nanos(),
                no_worker_ns: self.no_worker.as_nanos(),
                unwatched_ns: self.client_return.as_nanos(),
                kept_ns: self.keep_results.as_nanos(),
            },
            actions: ActionLimits {
                default_time: self.action_time.as_duration(),
                longest_time: self.longest_action_time.as_duration(),
                transfer_time: self.transfer_time.as_duration(),
                ignored_properties: self.ignored_properties.clone(),
            },
            beat_ms,
            patience: self.cache_patience.as_duration(),
            threads: usize::from(self.threads),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        flags: SchedulerFlags,
    }

    #[test]
    fn without_flags_the_bounds_are_the_usual_ones() {
        let line = ["scheduler", "--listen", "127.0.0.1:0", "--cache", "127.0.0.1:1"];
        let options = Line::parse_from(line).flags.options().unwrap();
        assert_eq!(options.limits, Limits::USUAL);
    }
}
