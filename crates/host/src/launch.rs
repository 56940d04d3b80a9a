//! What a process is to be, when it may be used, and how it is asked to stop.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// For messages: `proxies 0`.
    pub name: String,
    /// Program and arguments, placeholders filled.
    pub command: Vec<String>,
    /// Environment variables, placeholders filled.
    pub environment: Vec<(String, String)>,
    /// Folder for what it says and leaves; to an agent, below the agent's own.
    pub folder: PathBuf,
    /// Cores that it may use at most.
    pub cores: Option<f64>,
    /// A folder that is removed before the start and after the end.
    pub scratch: Option<PathBuf>,
}

/// How the study learns where an instance listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressFrom {
    /// From the line `ready … listen=HOST:PORT metrics=HOST:PORT` on its standard error.
    ReadyLine,
    /// From the file that memcached writes where `MEMCACHED_PORT_FILENAME` says.
    PortFile,
    /// The study chooses a free port, and the command takes it by `{port}` or `{address}`.
    Chosen,
}

/// When an instance may be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ready {
    /// It accepts a connection.
    Tcp,
    /// `GET` of this path answers 2xx or 3xx.
    Http(String),
    /// This command ends with 0.
    Command(Vec<String>),
    /// It has printed its ready line: for a tier that accepts no connections.
    Announced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopSignal {
    Terminate,
    Interrupt,
    /// SIGQUIT: what nginx takes as a graceful stop.
    Quit,
    /// SIGKILL: for what has nothing to finish, such as a cache.
    Kill,
}

/// What a process is to be waited for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AwaitReady {
    pub process: u32,
    pub address: AddressFrom,
    pub ready: Ready,
    /// The address that was chosen for it, if one was.
    pub chosen: String,
    /// The host's own address, for what says only a port.
    pub host: String,
    pub deadline_ms: u64,
}

/// Addresses that an instance announced.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Announced {
    pub listen: Vec<String>,
    pub metrics: Option<String>,
    /// The folder of its programs, where it says so.
    pub programs: Option<String>,
}
