//! The listener under TLS: what is agreed on, and who is let in.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::{block_on, options};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kendall_build_cluster::cache::Cache;
use kendall_build_cluster::listen::{ListenError, StartError, Tls};
use kendall_build_cluster::wire::re;
use kendall_build_cluster::wire::re::capabilities_client::CapabilitiesClient;
use kendall_testing::certificate;
use kendall_tier::Clock;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// The gRPC status of a look at the capabilities, over TLS.
async fn ask(
    address: SocketAddr,
    trusted: &Path,
    own: Option<&(PathBuf, PathBuf)>,
) -> Result<String, Box<dyn std::error::Error>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(trusted).unwrap()).unwrap();
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_file(certificate).unwrap()],
                PrivateKeyDer::from_pem_file(key).unwrap(),
            )
            .unwrap(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = tokio::net::TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let (mut sender, driver) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    let tasks = tokio::task::LocalSet::new();
    tasks.spawn_local(driver);
    let path = "/build.bazel.remote.execution.v2.Capabilities/GetCapabilities";
    let request = Request::post(format!("https://localhost{path}"))
        .header("content-type", "application/grpc")
        .body(Full::new(Bytes::from_static(&[0; 5])))
        .unwrap();
    tasks
        .run_until(async {
            let response = sender.send_request(request).await?;
            let body = response.into_body().collect().await?;
            let trailers = body.trailers().cloned().unwrap_or_default();
            Ok(trailers
                .get("grpc-status")
                .map(|s| s.to_str().unwrap().to_owned())
                .unwrap_or_default())
        })
        .await
}

#[test]
fn a_cache_with_a_certificate_serves_those_who_trust_it_and_whom_it_trusts() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate_file, key) = certificate(folder.path(), "server");
    let own = certificate(folder.path(), "client");
    let other = certificate(folder.path(), "other");
    for client_certificate in [None, Some(own.0.clone())] {
        let mut options = options(&folder.path().join("data"));
        options.listen.edge.tls = Some(Tls {
            certificate: certificate_file.clone(),
            key: key.clone(),
            client_certificate: client_certificate.clone(),
        });
        let cache = Cache::start(&options, Clock::monotonic()).unwrap();
        let address = cache.address();
        block_on(async {
            let known = ask(address, &certificate_file, Some(&own)).await;
            assert_eq!(known.unwrap(), "0");
            let stranger = ask(address, &certificate_file, None).await;
            assert_eq!(stranger.is_ok(), client_certificate.is_none());
            let wrong = ask(address, &certificate_file, Some(&other)).await;
            assert_eq!(wrong.is_ok(), client_certificate.is_none());
            assert!(ask(address, &other.0, Some(&own)).await.is_err(), "another server's");
            // Without TLS there is no answer.
            let plain = tonic::transport::Endpoint::new(format!("http://{address}")).unwrap();
            let mut capabilities = match plain.connect().await {
                Ok(channel) => CapabilitiesClient::new(channel),
                Err(_) => return,
            };
            assert!(
                capabilities.get_capabilities(re::GetCapabilitiesRequest::default()).await.is_err()
            );
        });
        cache.stop();
    }
    let mut wrong = options(&folder.path().join("data"));
    wrong.listen.edge.tls =
        Some(Tls { certificate: key, key: certificate_file, client_certificate: None });
    let refused = Cache::start(&wrong, Clock::monotonic()).unwrap_err();
    assert!(matches!(refused, StartError::Listen(ListenError::Tls(_))), "{refused}");
}
