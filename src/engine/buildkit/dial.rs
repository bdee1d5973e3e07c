//! Connections to a builder. A dockerd has its BuildKit behind an HTTP request that asks for another protocol; buildkitd
//! speaks that protocol at once. Which of them answers is found out, so that nobody has to say it.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use super::address::Address;
use crate::error::{Context as _, Error, Result};

/// For a builder that doesn't take a connection, or takes it and says nothing.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub trait Io: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Io for T {}

pub type Dialed = Pin<Box<dyn Future<Output = io::Result<Box<dyn Io>>> + Send>>;

/// Makes one more connection.
pub type Dial = Arc<dyn Fn() -> Dialed + Send + Sync>;

/// Certificates as Docker keeps them, in one directory: `ca.pem`, and `cert.pem` with `key.pem` where the builder wants
/// to know who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificates(pub Option<PathBuf>);

pub fn dial(address: &Address, certificates: &Certificates) -> Result<Dial> {
    match address {
        Address::Unix(path) => {
            let path = path.clone();
            Ok(Arc::new(move || {
                let path = path.clone();
                Box::pin(async move { Ok(Box::new(within(UnixStream::connect(path)).await?) as Box<dyn Io>) })
            }))
        }
        Address::Tcp { host, port, tls: false } => {
            let target = (host.clone(), *port);
            Ok(Arc::new(move || {
                let target = target.clone();
                Box::pin(async move { Ok(Box::new(tcp(target).await?) as Box<dyn Io>) })
            }))
        }
        Address::Tcp { host, port, tls: true } => {
            let connector = tokio_rustls::TlsConnector::from(Arc::new(config(certificates)?));
            let name = ServerName::try_from(host.clone())
                .bad_input(|| format!("`{host}` is not the name of a host that a certificate could be for"))?;
            let target = (host.clone(), *port);
            Ok(Arc::new(move || {
                let (target, name, connector) = (target.clone(), name.clone(), connector.clone());
                Box::pin(async move {
                    let stream = tcp(target).await?;
                    Ok(Box::new(within(connector.connect(name, stream)).await?) as Box<dyn Io>)
                })
            }))
        }
    }
}

async fn within<T>(what: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer for {} seconds", PATIENCE.as_secs()));
    tokio::time::timeout(PATIENCE, what).await.map_err(late)?
}

async fn tcp(target: (String, u16)) -> io::Result<TcpStream> {
    let stream = within(TcpStream::connect(target)).await?;
    stream.set_nodelay(true)?;
    // A machine that is gone says nothing: without this its nodes would wait for it for ever.
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, Duration::from_secs(15))?;
    sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(5))?;
    sockopt::set_tcp_keepcnt(&stream, 3)?;
    Ok(stream)
}

fn config(certificates: &Certificates) -> Result<ClientConfig> {
    let Some(dir) = &certificates.0 else {
        return Err(Error::bad_input("a builder at `tls://` needs certificates")
            .hint("name their directory (ca.pem, cert.pem, key.pem) with `certificates` in [engine.buildkit] or DOCKER_CERT_PATH"));
    };
    let unreadable = |path: &Path| format!("cannot use the certificates in {}", path.display());
    let read = |name: &str| -> Result<Vec<CertificateDer<'static>>> {
        let path = dir.join(name);
        CertificateDer::pem_file_iter(&path).and_then(Iterator::collect).bad_input(|| unreadable(&path))
    };
    let mut roots = RootCertStore::empty();
    for certificate in read("ca.pem")? {
        roots.add(certificate).bad_input(|| unreadable(&dir.join("ca.pem")))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unusable(|| "TLS cannot be used".into())?
        .with_root_certificates(roots);
    let key = dir.join("key.pem");
    let mut config = match key.exists() {
        true => {
            let key = PrivateKeyDer::from_pem_file(&key).bad_input(|| unreadable(&key))?;
            builder.with_client_auth_cert(read("cert.pem")?, key).bad_input(|| unreadable(dir))?
        }
        false => builder.with_no_client_auth(),
    };
    // Nothing is offered: dockerd is asked in HTTP/1.1 first, and would take h2 for all of it.
    config.alpn_protocols.clear();
    Ok(config)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its BuildKit is asked for; and it has an API of its own beside.
    Docker,
    BuildKit,
}

/// What answers there.
pub async fn kind(dial: &Dial) -> io::Result<Kind> {
    let mut io = dial().await?;
    io.write_all(b"GET /_ping HTTP/1.1\r\nHost: builder\r\nConnection: close\r\n\r\n").await?;
    let mut start = [0; 12];
    let mut got = 0;
    within(async {
        while got < start.len() {
            match io.read(&mut start[got..]).await? {
                0 => break,
                n => got += n,
            }
        }
        Ok(())
    })
    .await?;
    match &start[..got] {
        b"HTTP/1.1 200" => Ok(Kind::Docker),
        start if start.starts_with(b"HTTP/1.") => {
            let status = String::from_utf8_lossy(start.get(9..).unwrap_or_default()).into_owned();
            Err(io::Error::other(format!("it answers HTTP with status {status}, and is no dockerd without TLS")))
        }
        // gRPC's server sends its settings before it is disappointed by what it reads.
        [0, 0, ..] => Ok(Kind::BuildKit),
        [] => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closes the connection")),
        _ => Err(io::Error::other("it speaks neither HTTP nor gRPC")),
    }
}

/// A connection on which gRPC can begin.
pub async fn grpc(dial: &Dial, kind: Kind) -> io::Result<Box<dyn Io>> {
    let mut io = dial().await?;
    if kind == Kind::Docker {
        io.write_all(b"POST /grpc HTTP/1.1\r\nHost: builder\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n").await?;
        let head = within(head(&mut io)).await?;
        if !head.starts_with("HTTP/1.1 101") {
            let line = head.lines().next().unwrap_or_default();
            return Err(io::Error::other(format!("this dockerd has no BuildKit that can be asked ({line})")));
        }
    }
    Ok(io)
}

/// Byte by byte: what follows the head belongs to another protocol.
async fn head(io: &mut Box<dyn Io>) -> io::Result<String> {
    const LONGEST: usize = 8 << 10;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == LONGEST {
            return Err(io::Error::other("its answer has no end"));
        }
        head.push(io.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}
