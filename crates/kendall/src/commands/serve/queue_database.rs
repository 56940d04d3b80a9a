//! `kendall serve queue-database`: a private PostgreSQL for several middlewares, also on other hosts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use kendall_message_queue::{PrivateOptions, PrivatePostgres, TcpAccess};
use kendall_tier::Stop;

use crate::exit::{Exit, exit_with, refused};
use crate::output;

/// Runs a private PostgreSQL that several middlewares of the message queue share
///
/// It listens on one address with the password in $KENDALL_QUEUE_PASSWORD (letters and digits; where
/// other hosts can reach it, at least 16), for the role and the database `kendall`. Studies use it; for
/// one middleware, `kendall serve queue` starts one by itself.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  \
    KENDALL_QUEUE_PASSWORD=secret kendall serve queue-database --listen 127.0.0.1:5433 --data queue-data\n  \
    kendall serve queue --listen 127.0.0.1:7070 --database postgres://kendall:secret@127.0.0.1:5433/kendall")]
pub(crate) struct QueueDatabaseFlags {
    /// Address; port 0 takes a free one, with 127.0.0.1 on a loopback host of its own
    #[arg(long, value_name = "HOST:PORT", value_parser = super::address, required_unless_present = "check")]
    listen: Option<SocketAddr>,

    /// Folder of the data
    #[arg(long, value_name = "DIR", default_value = "kendall-queue")]
    data: PathBuf,

    /// Password of the role
    #[arg(
        long,
        value_name = "WORD",
        env = "KENDALL_QUEUE_PASSWORD",
        hide_env_values = true,
        required_unless_present = "check"
    )]
    password: Option<String>,

    /// A setting of PostgreSQL; repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,

    /// Removes the data at the stop
    #[arg(long)]
    temporary: bool,

    /// Says which programs of PostgreSQL it would run, or why none, and starts nothing
    #[arg(long)]
    check: bool,
}

/// Shorter passwords could be guessed over the network: 16 letters and digits are 95 bits.
const GUESSED: usize = 16;

impl QueueDatabaseFlags {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        if self.check {
            let programs =
                PrivatePostgres::find().map_err(|error| exit_with(Exit::NotReady, error))?;
            output::result(&programs.display().to_string());
            return Ok(Exit::Done);
        }
        let (Some(listen), Some(password)) = (self.listen, &self.password) else {
            return Err(refused("--listen and a password are needed"));
        };
        if listen.ip().is_unspecified() {
            let text =
                "--listen: the private PostgreSQL listens on one address, not on all; state it";
            return Err(refused(text));
        }
        let word = |c: char| c.is_ascii_alphanumeric();
        if password.is_empty() || !password.chars().all(word) {
            let text = "the password must be of letters and digits, at least one";
            return Err(refused(text));
        }
        if !listen.ip().is_loopback() && password.len() < GUESSED {
            let text = format!(
                "{} can be reached from other hosts, which could guess the password: it must have at \
                 least {GUESSED} letters and digits there",
                listen.ip()
            );
            return Err(refused(text));
        }
        let stop = Stop::on_signals()?;
        let address =
            own_address(listen).with_context(|| format!("no free port on {}", listen.ip()))?;
        let (data, _removed) = self.folder()?;
        let options = PrivateOptions {
            tcp: Some(TcpAccess { address, password: password.clone() }),
            settings: self.settings.clone(),
            same_group: true,
        };
        let postgres = PrivatePostgres::start_with(&data, &options)
            .map_err(|error| exit_with(Exit::NotReady, error))?;
        output::note(&format!(
            "ready tier=postgresql listen={address} programs={} pid={}",
            postgres.programs().display(),
            postgres.pid()
        ));
        stop.wait();
        let hurried = postgres.hurried_checkpoints();
        if hurried > 0 {
            // A study stores it as a caveat of the run.
            output::result(&format!(
                "remark checkpoints: PostgreSQL warned {} that checkpoints come too often; a larger \
                 max_wal_size makes them rarer",
                kendall_units::counted(hurried, "time")
            ));
        }
        if self.temporary {
            postgres.abandon();
            // The data of a temporary one are not needed again.
            std::fs::remove_dir_all(&data).unwrap_or_default();
        } else {
            postgres.stop();
        }
        Ok(Exit::Done)
    }

    /// The data's folder. A temporary one goes where PostgreSQL's user may go.
    fn folder(&self) -> anyhow::Result<(PathBuf, Option<tempfile::TempDir>)> {
        let allowed = |folder: &Path| PrivatePostgres::may_enter(folder);
        match allowed(&self.data) {
            Err(error) if self.temporary => {
                let folder = tempfile::Builder::new().prefix("kendall-queue-").tempdir()?;
                let open = std::os::unix::fs::PermissionsExt::from_mode(0o711);
                std::fs::set_permissions(folder.path(), open)?;
                let data = folder.path().join("data");
                tracing::info!(%error, data = %data.display(), "using a temporary folder");
                Ok((data, Some(folder)))
            }
            _ => Ok((self.data.clone(), None)),
        }
    }
}

/// Port 0 becomes a free one. PostgreSQL cannot say which port it was given, so it takes a loopback
/// host of this process alone, where a port that is free stays free.
fn own_address(wanted: SocketAddr) -> std::io::Result<SocketAddr> {
    if wanted.port() != 0 {
        return Ok(wanted);
    }
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    // Process ids end at 2^22; hosts that end in 0 or 255 are avoided.
    let own = Ipv4Addr::new(127, 64 + high, middle, low.clamp(1, 254));
    let host =
        if wanted.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST) { own.into() } else { wanted.ip() };
    TcpListener::bind((host, 0)).and_then(|listener| listener.local_addr())
}
