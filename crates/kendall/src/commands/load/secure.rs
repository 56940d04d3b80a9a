//! TLS of loads.

use std::path::PathBuf;

use kendall_loadgen::tls::{Secure, Tls};

use super::super::queue::flags::ClientCertificate;
use crate::exit::refused;

/// Whom a load trusts, and who it says it is.
#[derive(Debug, clap::Args)]
pub(super) struct Trust {
    /// TLS: accepts any certificate
    #[arg(long)]
    insecure: bool,

    /// TLS: file (PEM) of the authority of the server's certificate [default: the system's]
    #[arg(long, value_name = "FILE")]
    authority: Option<PathBuf>,

    /// TLS: the name in the server's certificate [default: the host of the first target]
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,

    #[command(flatten)]
    shown: ClientCertificate,
}

/// TLS that a flag chooses.
#[derive(Debug, clap::Args)]
pub(super) struct SecureFlags {
    /// Encrypts the connections, and checks the server's certificate
    #[arg(long)]
    tls: bool,

    #[command(flatten)]
    trust: Trust,
}

impl Trust {
    /// The name in the certificate of a host, and who is trusted.
    pub(super) fn of(&self, host: &str) -> (String, Tls) {
        let name = self.server_name.as_deref().unwrap_or(host);
        let tls = Tls {
            insecure: self.insecure,
            authority: self.authority.clone(),
            identity: self.shown.files(),
        };
        (name.to_owned(), tls)
    }

    /// Refuses what has no meaning where there is no TLS.
    pub(super) fn refuse_without(&self, tls: &str) -> anyhow::Result<()> {
        let given = [
            (self.authority.is_some(), "--authority"),
            (self.server_name.is_some(), "--server-name"),
            (self.shown.files().is_some(), "--client-certificate"),
        ];
        match given.iter().find(|(given, _)| *given) {
            Some((_, option)) => Err(refused(format!("{option} needs {tls}"))),
            None => Ok(()),
        }
    }
}

impl SecureFlags {
    /// The name in the certificate, and who is trusted; `None` without TLS.
    pub(super) fn names(&self, targets: &[String]) -> anyhow::Result<Option<(String, Tls)>> {
        if !self.tls {
            if self.trust.insecure {
                return Err(refused("--insecure needs --tls"));
            }
            return self.trust.refuse_without("--tls").map(|()| None);
        }
        let host = targets[0].rsplit_once(':').map_or("", |(host, _)| host);
        Ok(Some(self.trust.of(host.trim_matches(['[', ']']))))
    }

    /// The same, ready to connect.
    pub(super) fn of(&self, targets: &[String]) -> anyhow::Result<Option<Secure>> {
        let names = self.names(targets)?;
        names.map(|(name, tls)| tls.of(&name, &[]).map_err(refused)).transpose()
    }
}
