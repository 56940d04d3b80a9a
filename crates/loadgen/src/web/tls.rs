//! TLS as a client: the system's roots, or no check at all when that is asked for.

use std::sync::Arc;

use kendall_tier::AnyCertificate;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// The configuration of all connections of a load.
pub(crate) fn config(insecure: bool, protocols: &[&[u8]]) -> Result<ClientConfig, std::io::Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(std::io::Error::other)?;
    let mut config = if insecure {
        let verifier = Arc::new(AnyCertificate::new(provider));
        builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        builder.with_root_certificates(roots).with_no_client_auth()
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}
