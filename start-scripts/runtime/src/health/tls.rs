//! TLS for health checks: without verification, as Kolla's check has it, unless a CA is given. What is asked for is
//! whether the service answers; the check shows it nothing but, where the operator says so, a login.

use crate::error::{Failure, Result, shown};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::path::Path;
use std::sync::Arc;

pub fn client(host: &str, ca: Option<&Path>) -> Result<ClientConnection> {
    let failed = |error: rustls::Error| Failure::refused(format!("cannot use TLS: {error}"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let builder = builder.map_err(failed)?;
    let config = match ca {
        Some(ca) => builder.with_root_certificates(roots(ca)?),
        None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider))),
    };
    let name = ServerName::try_from(host.to_string());
    let name = name.map_err(|_| Failure::wrong(format!("`{host}` is no name of a server")))?;
    ClientConnection::new(Arc::new(config.with_no_client_auth()), name).map_err(failed)
}

fn roots(ca: &Path) -> Result<RootCertStore> {
    let cannot = |why: String| Failure::wrong(format!("cannot read the CA certificates {}: {why}", shown(ca)));
    let content = std::fs::read(ca).map_err(|error| cannot(crate::error::reason(&error)))?;
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&content) {
        let certificate = certificate.map_err(|error| cannot(error.to_string()))?;
        store.add(certificate).map_err(|error| cannot(error.to_string()))?;
    }
    if store.is_empty() {
        return Err(cannot("there is none in it".into()));
    }
    Ok(store)
}

#[derive(Debug)]
struct Anybody(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
