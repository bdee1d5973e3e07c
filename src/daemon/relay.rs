//! A socket of our own for an engine that is behind TLS or ssh, so that whoever talks to engines knows only sockets.

use std::fs::File;
use std::io::{self, BufReader};
use std::net::ToSocketAddrs as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use super::find::{Address, Certificates};
use crate::error::{Context as _, Error, Result};

/// Listens until it is dropped.
#[derive(Debug)]
pub struct Relay {
    dir: PathBuf,
    ended: Arc<AtomicBool>,
    /// ssh, once for each connection.
    children: Arc<Mutex<Vec<Child>>>,
}

impl Relay {
    /// None for what is a socket or plain TCP anyway. `tmp` is where its directory goes.
    pub fn start(address: &Address, tmp: &Path) -> Result<Option<Relay>> {
        match address {
            Address::Unix(_) | Address::Tcp(_) => return Ok(None),
            Address::Tls { address, certificates } => {
                let config = tls_config(certificates)?;
                let (host, _) = address.rsplit_once(':').unwrap_or((address, ""));
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = ServerName::try_from(host)
                    .bad_input(|| format!("`{address}` is no name that a certificate can have"))?;
                let address = address.clone();
                Relay::listen(tmp, move |stream, _| tls(stream, &address, &name, &config))
            }
            Address::Ssh { destination, port, command } => {
                let mut words = vec!["-o".to_owned(), "ConnectTimeout=30".to_owned(), "-T".to_owned()];
                words.extend(port.iter().flat_map(|port| ["-p".to_owned(), port.clone()]));
                words.extend(["--".to_owned(), destination.clone()]);
                words.extend(command.iter().cloned());
                Relay::listen(tmp, move |stream, children| ssh(stream, &words, children))
            }
        }
        .map(Some)
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("sock")
    }

    fn listen(
        tmp: &Path,
        serve: impl Fn(UnixStream, &Mutex<Vec<Child>>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Result<Relay> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // Paths of sockets are short; and nobody else may connect.
        let dir = tmp.join(format!("kollage-{}-{number}", std::process::id()));
        let cannot = || format!("cannot make a socket in `{}`", tmp.display());
        std::fs::DirBuilder::new().mode(0o700).create(&dir).unusable(cannot)?;
        let relay = Relay { dir, ended: Arc::default(), children: Arc::default() };
        let listener = UnixListener::bind(relay.socket()).unusable(cannot)?;
        let (ended, children, serve) = (relay.ended.clone(), relay.children.clone(), Arc::new(serve));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (serve, children) = (serve.clone(), children.clone());
                // Whoever connected sees the connection end, and says what it wanted.
                std::thread::spawn(move || serve(stream, &children));
            }
        });
        Ok(relay)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Wakes up whoever waits for connections.
        let _ = UnixStream::connect(self.socket());
        for child in self.children.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn ssh(stream: UnixStream, words: &[String], children: &Mutex<Vec<Child>>) -> io::Result<()> {
    let output = OwnedFd::from(stream.try_clone()?);
    let mut command = Command::new("ssh");
    command.args(words).stdin(OwnedFd::from(stream)).stdout(output).stderr(Stdio::inherit());
    let child = command.spawn()?;
    let mut children = children.lock().unwrap_or_else(PoisonError::into_inner);
    children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    children.push(child);
    Ok(())
}

fn tls(stream: UnixStream, address: &str, name: &ServerName<'static>, config: &Arc<ClientConfig>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let address = address.to_socket_addrs()?.next().ok_or_else(|| io::Error::other("the name has no address"))?;
    runtime.block_on(async {
        stream.set_nonblocking(true)?;
        let mut near = tokio::net::UnixStream::from_std(stream)?;
        let far = tokio::net::TcpStream::connect(address).await?;
        let mut far = tokio_rustls::TlsConnector::from(config.clone()).connect(name.clone(), far).await?;
        tokio::io::copy_bidirectional(&mut near, &mut far).await.map(drop)
    })
}

fn tls_config(certificates: &Certificates) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in pem(&certificates.ca)? {
        let unfit = || format!("a certificate in {} cannot be used", certificates.ca.display());
        roots.add(certificate).unusable(unfit)?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unusable(|| "TLS cannot be used".into())?
        .with_root_certificates(roots);
    let config = match &certificates.client {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let cannot = || format!("cannot read the key {}", key.display());
            let private = PrivateKeyDer::from_pem_file(key).unusable(cannot)?;
            builder
                .with_client_auth_cert(pem(cert)?, private)
                .unusable(|| format!("{} and {} do not go together", cert.display(), key.display()))?
        }
    };
    Ok(Arc::new(config))
}

fn pem(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let cannot = || format!("cannot read the certificate {}", file.display());
    let reader = BufReader::new(File::open(file).unusable(cannot)?);
    let found = CertificateDer::pem_reader_iter(reader).collect::<std::result::Result<Vec<_>, _>>();
    match found.unusable(cannot)? {
        none if none.is_empty() => Err(Error::unusable(format!("there is no certificate in {}", file.display()))),
        found => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_leaves_nothing_behind() {
        let tmp = tempfile::tempdir().unwrap();
        let address = Address::Ssh { destination: "h".into(), port: None, command: vec!["docker".into()] };
        assert!(Relay::start(&Address::Tcp("h:1".into()), tmp.path()).unwrap().is_none());
        let relay = Relay::start(&address, tmp.path()).unwrap().unwrap();
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&relay.dir).unwrap());
        assert_eq!(mode & 0o777, 0o700);
        drop(relay);
        assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 0);
    }

    #[test]
    fn certificates_that_are_none_are_named() {
        let tmp = tempfile::tempdir().unwrap();
        let ca = tmp.path().join("ca.pem");
        std::fs::write(&ca, "nothing\n").unwrap();
        let certificates = Certificates { ca: ca.clone(), client: None };
        let error = Relay::start(&Address::Tls { address: "h:1".into(), certificates }, tmp.path()).unwrap_err();
        assert!(error.to_string().contains(&ca.display().to_string()), "{error}");
    }
}
