//! `kendall serve link`: a TCP relay that lets one machine stand for several.

use std::net::SocketAddr;

use kendall_link::{Control, Fault, Jitter, Limits, Link, LinkError, LinkOptions, Route, Shape};
use kendall_tier::{PageResponse, Routes, Stop};
use kendall_units::{QuantityError, Seconds};

use super::{PageFlags, Running, at_least_one, change};
use crate::exit::{Exit, exit_with};

/// Relays TCP with delay, jitter, a bandwidth limit and faults
///
/// While it runs, GET /control on the metrics address returns its state, and PUT /control changes
/// it: {"delay": "1ms", "jitter": "normal:0.1ms", "bandwidth": "10MB/s", "bandwidth_back": "1MB/s",
/// "fault": "stop", "route": 0}, each of which may be left out.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  \
    kendall serve link --listen 127.0.0.1:11211 --to 127.0.0.1:11212 --delay 0.5ms \
    --metrics 127.0.0.1:9100\n  \
    curl -X PUT -d '{\"fault\": \"stop\"}' http://127.0.0.1:9100/control")]
pub(crate) struct LinkFlags {
    /// Address for clients; port 0 takes a free one, which the line `ready …` names
    #[arg(long, value_name = "HOST:PORT", requires = "to")]
    listen: Option<String>,

    /// Target of connections to --listen
    #[arg(long, value_name = "HOST:PORT", requires = "listen")]
    to: Option<String>,

    /// A further pair of addresses; may be repeated
    #[arg(long = "route", value_name = "LISTEN=TO", value_parser = route)]
    routes: Vec<Route>,

    /// Delay of every byte, in each direction
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = kendall_units::parse_seconds)]
    delay: Seconds,

    /// Random part of the delay: constant, uniform:TIME (± TIME), normal:TIME (standard
    /// deviation), exponential:TIME (mean, on top)
    #[arg(long, value_name = "DISTRIBUTION", default_value = "constant", value_parser = kendall_link::parse_jitter)]
    jitter: Jitter,

    /// Most bytes per second in each direction of a route, such as 10MB/s or 100Mbit/s
    #[arg(long, value_name = "RATE", default_value = "unlimited", value_parser = bandwidth)]
    bandwidth: Bandwidth,

    /// The same of the way back, from --to, where it is another one
    #[arg(long, value_name = "RATE", value_parser = bandwidth)]
    bandwidth_back: Option<Bandwidth>,

    /// Seed of the jitter
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Most connections at a time; further ones are reset
    #[arg(long = "client-connections", alias = "connections", value_name = "N", default_value_t = 10_000, value_parser = at_least_one::<usize>())]
    connections: usize,

    /// Most bytes held in one direction of one connection
    #[arg(long, value_name = "BYTES", default_value = "1MiB", value_parser = kendall_units::parse_bytes)]
    buffer: u64,

    #[command(flatten)]
    page: PageFlags,
}

/// A bandwidth; `None` is unlimited. (As an argument, a bare `Option` would mean a flag that may
/// be left out.)
#[derive(Debug, Clone, Copy)]
struct Bandwidth(Option<u64>);

impl LinkFlags {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let link =
            Link::bind(&self.options()?).map_err(|error| exit_with(exit_of(&error), error))?;
        let stop = Stop::on_signals()?;
        let control = link.control();
        let listen: Vec<SocketAddr> = control.state().routes.iter().map(|r| r.listen).collect();
        Running::start(&self.page, &link.instruments(), routes(&control), &stop, listen)?
            .serve(move |stop| link.run(stop))
    }

    fn options(&self) -> anyhow::Result<LinkOptions> {
        let pair = self.listen.as_ref().zip(self.to.as_ref());
        let first = pair.map(|(listen, to)| Route { listen: listen.clone(), to: to.clone() });
        Ok(LinkOptions {
            routes: first.into_iter().chain(self.routes.iter().cloned()).collect(),
            shape: Shape {
                delay: self.delay,
                jitter: self.jitter,
                bandwidth: [self.bandwidth.0, self.bandwidth_back.unwrap_or(self.bandwidth).0],
                fault: Fault::None,
            },
            seed: self.seed,
            limits: Limits {
                connections: self.connections,
                buffer: usize::try_from(self.buffer)?.max(1),
                ..Limits::default()
            },
        })
    }
}

/// A link that cannot be told apart from a mistyped one is refused; a taken port is not ready.
fn exit_of(error: &LinkError) -> Exit {
    match error {
        LinkError::NoRoutes | LinkError::Address { .. } => Exit::Refused,
        LinkError::Listen(_) | LinkError::EventLoop(_) => Exit::NotReady,
    }
}

/// The control address: the state, and its changes.
fn routes(control: &Control) -> Routes {
    let (state, changes) = (control.clone(), control.clone());
    let form = r#"{"delay": "1ms", "jitter": "normal:0.1ms", "bandwidth": "10MB/s", "bandwidth_back": "1MB/s", "fault": "stop", "route": 0}"#;
    Routes::new().with("GET", "/control", move |_| PageResponse::json(&state.state())).with(
        "PUT",
        "/control",
        move |request| change(request, form, |wanted| changes.change(wanted)),
    )
}

fn route(text: &str) -> Result<Route, String> {
    let refused = "write it as LISTEN=TO, such as 127.0.0.1:0=127.0.0.1:11211";
    let (listen, to) = text.split_once('=').ok_or(refused)?;
    Ok(Route { listen: listen.trim().to_owned(), to: to.trim().to_owned() })
}

fn bandwidth(text: &str) -> Result<Bandwidth, QuantityError> {
    kendall_units::parse_bandwidth(text).map(Bandwidth)
}
