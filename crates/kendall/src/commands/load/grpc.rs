//! `kendall load grpc`.

use std::path::PathBuf;

use kendall_loadgen::calls::{self, Access, CallError, CallPlan};
use kendall_loadgen::http::Values;

use super::super::serve::pair;
use super::common::{Common, load_error, resolve, varied};
use super::secure::SecureFlags;
use crate::exit::{Exit, exit_with, refused, stop_at_a_signal};

/// Loads a gRPC service with calls of one method
///
/// The method is described by the service itself (reflection), or by `.proto` files. A request is one call: its
/// response time ends with the status behind the last message of the answer.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  kendall load grpc 127.0.0.1:50051 --call helloworld.Greeter/SayHello --data \
                  '{\"name\": \"{user}\"}' --vary user=file:users.txt\n  \
                  kendall load grpc 127.0.0.1:50051 --call shop.Shop/Watch --proto shop.proto --rate 100/s\n  \
                  kendall load grpc shop.example:443 --tls --call grpc.health.v1.Health/Check"
)]
pub(crate) struct LoadGrpc {
    /// Servers; the clients are spread over them in turn
    #[arg(required = true, value_name = "HOST:PORT")]
    targets: Vec<String>,

    #[arg(long, value_name = "SERVICE/METHOD")]
    call: String,

    /// The message of each call as JSON, with placeholders such as `{user}`; repeated, for methods that take a stream
    /// of them [default: {}]
    #[arg(long, short = 'd', value_name = "JSON", conflicts_with = "data_file")]
    data: Vec<String>,

    /// File with the message of each call
    #[arg(long, value_name = "PATH")]
    data_file: Option<PathBuf>,

    /// Sends each message when one of the answer has come to the one before, for methods with streams both ways [default:
    /// all messages together]
    #[arg(long)]
    in_turn: bool,

    /// Value of `{NAME}`, drawn anew for each call: a whole number (`exponential:20`, `uniform:1..40`,
    /// `zipf:1000,0.99`, `sequential:1..1000`) or a line of a file (`file:PATH`); may be repeated
    #[arg(long, value_name = "NAME=VALUES", value_parser = varied)]
    vary: Vec<(String, Values)>,

    /// A file that describes the method; may be repeated [default: the service is asked]
    #[arg(long, value_name = "FILE")]
    proto: Vec<PathBuf>,

    /// Folder of what those import, beside the folders of the files; may be repeated
    #[arg(long, value_name = "FOLDER", requires = "proto")]
    proto_path: Vec<PathBuf>,

    /// Metadata of each call; may be repeated
    #[arg(long, short = 'H', value_name = "NAME=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,

    /// Connections that the clients share [default: one per client]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: Option<u32>,

    #[command(flatten)]
    secure: SecureFlags,

    #[command(flatten)]
    common: Common,
}

impl LoadGrpc {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let content = self.content()?;
        let connections = self.connections.unwrap_or(self.common.clients()).into();
        let targets = resolve(&self.targets, "127.0.0.1:50051")?;
        let plan = self.common.plan(targets, connections)?;
        let stop = stop_at_a_signal()?;
        let result = calls::run(&plan, &content, &stop, &mut self.common.progress()?);
        self.common.print(&result.map_err(call_error)?)
    }

    fn content(&self) -> anyhow::Result<CallPlan> {
        let messages = match &self.data_file {
            None if self.data.is_empty() => vec!["{}".to_owned()],
            None => self.data.clone(),
            Some(path) => vec![
                kendall_tier::read_text(path, kendall_tier::LARGEST_FILE)
                    .map_err(|error| refused(format!("--data-file {}: {error}", path.display())))?,
            ],
        };
        let tls = self.secure.names(&self.targets)?;
        Ok(CallPlan {
            method: self.call.clone(),
            protos: self.proto.clone(),
            imports: self.proto_path.clone(),
            messages,
            placeholders: self.vary.clone(),
            in_turn: self.in_turn,
            metadata: self.metadata.clone(),
            access: Access::new(None, tls.as_ref().map(|(name, tls)| (name.as_str(), tls)))
                .map_err(refused)?,
            connections: self.connections.map(|connections| connections as usize),
        })
    }
}

fn call_error(error: CallError) -> anyhow::Error {
    match error {
        CallError::Load(error) => load_error(error),
        CallError::Descriptor(error) if !error.is_of_usage() => exit_with(Exit::NotReady, error),
        other => refused(other),
    }
}
