//! Where the engine is: what the user says, DOCKER_HOST, a context of Docker's, CONTAINER_HOST, or the sockets where
//! Docker and Podman usually listen.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::image::digest::Digest;
use crate::suggest;

/// What the environment says about it.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// DOCKER_HOST
    pub docker_host: Option<String>,
    /// DOCKER_CONTEXT
    pub docker_context: Option<String>,
    /// DOCKER_TLS_VERIFY, set to anything but nothing.
    pub tls_verify: bool,
    /// DOCKER_CERT_PATH
    pub cert_path: Option<PathBuf>,
    /// CONTAINER_HOST, which is Podman's.
    pub container_host: Option<String>,
    /// The directory of Docker's config.json.
    pub config: Option<PathBuf>,
    pub runtime_dir: Option<PathBuf>,
}

/// An engine, and who says that it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub address: Address,
    /// For errors: `DOCKER_HOST`, `the Docker context `x``.
    pub said_by: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Unix(PathBuf),
    /// Host and port.
    Tcp(String),
    Tls {
        address: String,
        certificates: Certificates,
    },
    Ssh {
        /// As ssh takes it: `[USER@]HOST`.
        destination: String,
        port: Option<String>,
        /// The program there that speaks for the engine, with its arguments.
        command: Vec<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificates {
    pub ca: PathBuf,
    /// The client's own, where the engine asks for one.
    pub client: Option<(PathBuf, PathBuf)>,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix://{}", path.display()),
            Address::Tcp(address) | Address::Tls { address, .. } => write!(f, "tcp://{address}"),
            Address::Ssh { destination, port, .. } => match port {
                Some(port) => write!(f, "ssh://{destination}:{port}"),
                None => write!(f, "ssh://{destination}"),
            },
        }
    }
}

const SCHEMES: [&str; 3] = ["unix", "tcp", "ssh"];
/// Docker's, with and without TLS.
const PORTS: (u16, u16) = (2375, 2376);

/// `said` is the command line's own; it wins over the environment, as in Docker.
pub fn find(said: Option<&str>, hints: &Hints) -> Result<Endpoint> {
    let at = |address: &str, by: &str, program: &str| {
        let address = parse(address, by, hints.tls(by)?, program)?;
        Ok(Endpoint { address, said_by: by.to_owned() })
    };
    if let Some(address) = said {
        return at(address, "`--host`", "docker");
    }
    if let Some(address) = &hints.docker_host {
        return at(address, "DOCKER_HOST", "docker");
    }
    let file = hints.config.as_ref().map(|dir| dir.join("config.json"));
    let (context, by) = match (&hints.docker_context, &file) {
        (Some(name), _) => (Some(name.clone()), "DOCKER_CONTEXT".to_owned()),
        (None, Some(file)) => (current_context(file)?, format!("{}", file.display())),
        (None, None) => (None, String::new()),
    };
    if let Some(name) = context.filter(|name| name != "default") {
        return context_endpoint(&name, &by, hints);
    }
    if let Some(address) = &hints.container_host {
        return at(address, "CONTAINER_HOST", "podman");
    }
    let own = hints.runtime_dir.as_ref().map(|dir| dir.join("podman/podman.sock"));
    let usual = ["/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock"].map(PathBuf::from);
    let said_by = "it is where such an engine usually listens".to_owned();
    match usual.into_iter().chain(own).find(|path| path.exists()) {
        Some(path) => Ok(Endpoint { address: Address::Unix(path), said_by }),
        None => Err(Error::unusable("neither Docker nor Podman listens where it usually does")
            .hint("start one of them (`podman system service -t 0`), or say where it is: DOCKER_HOST=unix:///PATH")),
    }
}

impl Hints {
    /// What DOCKER_TLS_VERIFY and DOCKER_CERT_PATH ask for.
    fn tls(&self, by: &str) -> Result<Option<Certificates>> {
        if !self.tls_verify || by == "CONTAINER_HOST" {
            return Ok(None);
        }
        let Some(dir) = self.cert_path.as_ref().or(self.config.as_ref()) else {
            return Err(Error::bad_input("DOCKER_TLS_VERIFY is set, and there is no directory with certificates")
                .hint("DOCKER_CERT_PATH says where ca.pem, cert.pem and key.pem are"));
        };
        certificates(dir).map(Some)
    }
}

fn certificates(dir: &Path) -> Result<Certificates> {
    let ca = dir.join("ca.pem");
    if !ca.exists() {
        return Err(Error::unusable(format!("there is no ca.pem in `{}`", dir.display()))
            .hint("DOCKER_CERT_PATH says where ca.pem, cert.pem and key.pem are"));
    }
    let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    let client = (cert.exists() && key.exists()).then_some((cert, key));
    Ok(Certificates { ca, client })
}

fn parse(text: &str, by: &str, tls: Option<Certificates>, program: &str) -> Result<Address> {
    let shown = without_password(text);
    let wrong = |why: String| {
        Error::bad_input(format!("`{shown}` is no address of an engine"))
            .cause(format!("{by} says so: {why}"))
            .hint("write unix:///PATH, tcp://HOST:PORT or ssh://[USER@]HOST")
    };
    let (scheme, rest) = match text.split_once("://") {
        Some(parts) => parts,
        None if text.starts_with('/') => ("unix", text),
        None => return Err(wrong("it has no scheme".into())),
    };
    match scheme {
        "unix" if rest.starts_with('/') => Ok(Address::Unix(rest.into())),
        "unix" => Err(wrong("the path of a socket is absolute".into())),
        "tcp" | "http" | "https" => {
            let address = rest.trim_end_matches('/');
            if address.is_empty() || address.contains(['/', '@']) {
                return Err(wrong("it is not a host and a port".into()));
            }
            if scheme == "https" && tls.is_none() {
                return Err(wrong("TLS needs certificates: DOCKER_TLS_VERIFY and DOCKER_CERT_PATH".into()));
            }
            let port = if tls.is_some() { PORTS.1 } else { PORTS.0 };
            let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            let address = if has_port { address.to_owned() } else { format!("{address}:{port}") };
            Ok(match tls {
                Some(certificates) => Address::Tls { address, certificates },
                None => Address::Tcp(address),
            })
        }
        "ssh" => ssh(rest, program).ok_or_else(|| wrong("it is not [USER@]HOST[:PORT][/PATH]".into())),
        other => {
            let why = format!("there is no scheme `{other}`");
            Err(match suggest::hint(other, SCHEMES) {
                Some(hint) => wrong(why).hint(hint),
                None => wrong(why),
            })
        }
    }
}

/// ssh asks for a password itself, so that one in the address has no use, and does harm on a screen.
fn without_password(text: &str) -> String {
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
        _ => text.to_owned(),
    }
}

fn ssh(rest: &str, program: &str) -> Option<Address> {
    let (host, path) = match rest.split_once('/') {
        Some((host, path)) if !path.is_empty() => (host, Some(format!("/{path}"))),
        Some((host, _)) => (host, None),
        None => (rest, None),
    };
    let (user, name) = match host.rsplit_once('@') {
        Some((user, name)) if user.contains(':') || user.is_empty() || name.is_empty() => return None,
        Some((user, name)) => (Some(user), name),
        None => (None, host),
    };
    let (name, port) = match name.rsplit_once(':') {
        Some((name, port)) => (name, Some(port.parse::<u16>().ok()?.to_string())),
        None => (name, None),
    };
    // An argument that begins with a dash would be an option of ssh.
    if name.is_empty() || name.starts_with('-') || user.is_some_and(|user| user.starts_with('-')) {
        return None;
    }
    let mut command = vec![program.to_owned()];
    if let Some(path) = path {
        let flag = if program == "podman" { "--url" } else { "--host" };
        // The shell at the other end takes the words apart again.
        let plain = path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b));
        plain.then(|| command.extend([flag.to_owned(), format!("unix://{path}")]))?;
    }
    command.extend(["system".to_owned(), "dial-stdio".to_owned()]);
    let destination = user.map_or_else(|| name.to_owned(), |user| format!("{user}@{name}"));
    Some(Address::Ssh { destination, port, command })
}

fn current_context(file: &Path) -> Result<Option<String>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Config {
        current_context: Option<String>,
    }
    let text = match std::fs::read(file) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::unusable(format!("cannot read {}", file.display())).cause(e)),
    };
    let config: Config = serde_json::from_slice(&text)
        .map_err(|e| Error::unusable(format!("{} is not Docker's configuration", file.display())).cause(e))?;
    Ok(config.current_context.filter(|name| !name.is_empty()))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Meta {
    name: String,
    #[serde(default)]
    endpoints: Endpoints,
}

#[derive(Default, Deserialize)]
struct Endpoints {
    docker: Option<DockerEndpoint>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerEndpoint {
    #[serde(default)]
    host: String,
}

/// Contexts are kept below the digest of their name.
fn context_endpoint(name: &str, by: &str, hints: &Hints) -> Result<Endpoint> {
    let missing = |error: Error| match suggest::hint(name, contexts(hints).iter().map(String::as_str)) {
        Some(hint) => error.hint(hint),
        None => error.hint("`docker context ls` lists those that there are"),
    };
    let unknown = || Error::unusable(format!("there is no Docker context `{name}`")).cause(format!("{by} names it"));
    let Some(config) = &hints.config else { return Err(missing(unknown())) };
    let digest = Digest::of(name.as_bytes());
    let file = config.join("contexts/meta").join(digest.hex()).join("meta.json");
    let text = std::fs::read(&file).map_err(|_| missing(unknown()))?;
    let meta: Meta = serde_json::from_slice(&text)
        .map_err(|e| Error::unusable(format!("the Docker context `{name}` cannot be read")).cause(e))?;
    let host = meta.endpoints.docker.map(|endpoint| endpoint.host).unwrap_or_default();
    let said_by = format!("the Docker context `{name}`");
    if host.is_empty() {
        return Err(Error::unusable(format!("{said_by} says no address")).cause(format!("in {}", file.display())));
    }
    let tls = config.join("contexts/tls").join(digest.hex()).join("docker");
    let tls = if tls.join("ca.pem").exists() { Some(certificates(&tls)?) } else { None };
    Ok(Endpoint { address: parse(&host, &said_by, tls, "docker")?, said_by })
}

/// Names of all contexts.
fn contexts(hints: &Hints) -> Vec<String> {
    let dir = hints.config.as_ref().map(|dir| dir.join("contexts/meta"));
    let entries = dir.and_then(|dir| std::fs::read_dir(dir).ok()).into_iter().flatten().flatten();
    let metas = entries.filter_map(|entry| std::fs::read(entry.path().join("meta.json")).ok());
    metas.filter_map(|text| Some(serde_json::from_slice::<Meta>(&text).ok()?.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(said: Option<&str>, hints: &Hints) -> String {
        match find(said, hints) {
            Ok(endpoint) => format!("{} by {}", endpoint.address, endpoint.said_by),
            Err(e) => format!("{e} [{}]", e.hint_text().unwrap_or_default()),
        }
    }

    fn ssh_command(address: &str, program: &str) -> Option<String> {
        match ssh(address, program)? {
            Address::Ssh { command, .. } => Some(command.join(" ")),
            _ => None,
        }
    }

    #[test]
    fn the_nearest_to_the_user_says_where() {
        let dir = tempfile::tempdir().unwrap();
        let meta = |name: &str, host: &str| {
            let at = dir.path().join("contexts/meta").join(Digest::of(name.as_bytes()).hex());
            std::fs::create_dir_all(&at).unwrap();
            let text = format!(r#"{{"Name":"{name}","Metadata":{{}},"Endpoints":{{"docker":{{"Host":"{host}"}}}}}}"#);
            std::fs::write(at.join("meta.json"), text).unwrap();
        };
        meta("far", "ssh://me@far:2222");
        meta("near", "unix:///run/near.sock");
        std::fs::write(dir.path().join("config.json"), r#"{"auths":{},"currentContext":"near"}"#).unwrap();
        let mut hints = Hints { config: Some(dir.path().into()), ..Hints::default() };
        assert_eq!(found(None, &hints), "unix:///run/near.sock by the Docker context `near`");
        hints.docker_context = Some("far".into());
        assert_eq!(found(None, &hints), "ssh://me@far:2222 by the Docker context `far`");
        hints.docker_context = Some("nera".into());
        assert!(found(None, &hints).contains("no Docker context `nera`") && found(None, &hints).contains("`near`"));
        hints.docker_host = Some("tcp://h".into());
        assert_eq!(found(None, &hints), "tcp://h:2375 by DOCKER_HOST");
        assert_eq!(found(Some("/a/b.sock"), &hints), "unix:///a/b.sock by `--host`");
        let podman = Hints { container_host: Some("unix:///p.sock".into()), ..Hints::default() };
        assert_eq!(found(None, &podman), "unix:///p.sock by CONTAINER_HOST");
    }

    #[test]
    fn tls_has_its_certificates() {
        let dir = tempfile::tempdir().unwrap();
        let hints = Hints {
            docker_host: Some("tcp://h".into()),
            tls_verify: true,
            cert_path: Some(dir.path().into()),
            ..Hints::default()
        };
        assert!(found(None, &hints).contains("no ca.pem"));
        std::fs::write(dir.path().join("ca.pem"), "").unwrap();
        let certificates = Certificates { ca: dir.path().join("ca.pem"), client: None };
        let address = Address::Tls { address: "h:2376".into(), certificates };
        assert_eq!(find(None, &hints).unwrap().address, address);
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for (text, why) in [
            ("docker:2375", "no scheme"),
            ("unix://docker.sock", "absolute"),
            ("tcp://", "not a host"),
            ("https://h", "certificates"),
            ("ssh://-oProxyCommand=x", "[USER@]HOST"),
            ("ssh://me:s3cret@host", "[USER@]HOST"),
            ("shs://host", "no scheme `shs`"),
        ] {
            let error = find(Some(text), &Hints::default()).unwrap_err();
            let all = format!("{error} {:?} {:?}", error.causes(), error.hint_text());
            assert!(all.contains(why) && !all.contains("s3cret"), "{all}");
        }
        assert_eq!(ssh_command("h", "docker").unwrap(), "docker system dial-stdio");
        let podman = ssh_command("h/run/podman/podman.sock", "podman").unwrap();
        assert_eq!(podman, "podman --url unix:///run/podman/podman.sock system dial-stdio");
        assert_eq!(ssh_command("h/run/$(x)", "docker"), None);
    }
}
