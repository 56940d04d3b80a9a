//! `kendall load`: one load test, closed or open.

mod bars;
mod bazel;
mod checks;
mod common;
mod grpc;
mod http;
mod human;
mod intervals;
mod keys;
mod live;
mod memcached;
mod postgres;
mod queue;
mod reapi;
mod redis;
mod secure;
mod stages;
mod summary;

use crate::exit::Exit;

/// Runs one load test, closed or open
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Example:\n  kendall load memcached 127.0.0.1:11211 --clients 64 --duration 10s --prefill"
)]
pub(crate) struct Load {
    #[command(subcommand)]
    protocol: Protocol,
}

commands! {
    Protocol {
        Bazel(Box<bazel::LoadBazel>),
        Grpc(Box<grpc::LoadGrpc>),
        Http(Box<http::LoadHttp>),
        Memcached(Box<memcached::LoadMemcached>),
        Postgres(Box<postgres::LoadPostgres>),
        Queue(Box<queue::LoadQueue>),
        Reapi(Box<reapi::LoadReapi>),
        Redis(Box<redis::LoadRedis>),
    }
}

impl Load {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        self.protocol.run()
    }
}
