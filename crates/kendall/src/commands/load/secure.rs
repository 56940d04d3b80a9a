//! TLS of loads that choose it by a flag.

use std::path::PathBuf;

use kendall_loadgen::tls::Tls;

#[derive(Debug, clap::Args)]
pub(super) struct Secure {
    /// Encrypts the connections, and checks the server's certificate
    #[arg(long)]
    tls: bool,

    /// With `--tls`: accepts any certificate
    #[arg(long, requires = "tls")]
    insecure: bool,

    /// With `--tls`: file (PEM) of the authority of the server's certificate [default: the system's]
    #[arg(long, value_name = "FILE", requires = "tls")]
    authority: Option<PathBuf>,

    /// With `--tls`: the name in the server's certificate [default: the host of the first target]
    #[arg(long, value_name = "NAME", requires = "tls")]
    server_name: Option<String>,

    /// With `--tls`: file (PEM) of the certificate that the server is shown
    #[arg(long, value_name = "FILE", requires_all = ["tls", "client_key"])]
    client_certificate: Option<PathBuf>,

    /// File (PEM) of its private key
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    client_key: Option<PathBuf>,
}

impl Secure {
    /// The name in the certificate, and who is trusted; `None` without TLS.
    pub(super) fn of(&self, targets: &[String]) -> Option<(String, Tls)> {
        let host = targets[0].rsplit_once(':').map_or("", |(host, _)| host);
        let name = self.server_name.as_deref().unwrap_or(host.trim_matches(['[', ']']));
        let tls = Tls {
            insecure: self.insecure,
            authority: self.authority.clone(),
            identity: self.client_certificate.clone().zip(self.client_key.clone()),
        };
        self.tls.then(|| (name.to_owned(), tls))
    }
}
