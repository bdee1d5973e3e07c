//! `--ssh default|ID[=SOCKET|KEY[,KEY]]`, as docker buildx takes it.

use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::engine::SshSource;
use crate::error::{Context as _, Error, Result};

pub type Agents = BTreeMap<String, SshSource>;

/// `own` is SSH_AUTH_SOCK.
pub fn agents(specs: &[String], own: Option<&Path>) -> Result<Agents> {
    let mut agents = Agents::new();
    for spec in specs {
        let (id, paths) = spec.split_once('=').unwrap_or((spec, ""));
        let id = if id.is_empty() { "default" } else { id };
        let source = match paths {
            "" => SshSource::Socket(own_socket(id, own)?),
            paths => from_files(id, paths.split(',').map(PathBuf::from).collect())?,
        };
        if agents.insert(id.to_owned(), source).is_some() {
            return Err(Error::bad_input(format!("`--ssh {id}` is given twice")));
        }
    }
    Ok(agents)
}

fn own_socket(id: &str, own: Option<&Path>) -> Result<PathBuf> {
    let hint = format!("start one with `eval \"$(ssh-agent)\"` and `ssh-add`, or name a key: `--ssh {id}=KEY`");
    let Some(path) = own else {
        return Err(
            Error::bad_input(format!("`--ssh {id}`: there is no ssh-agent, as SSH_AUTH_SOCK is not set")).hint(hint)
        );
    };
    match std::fs::metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => Ok(path.to_owned()),
        Ok(_) => {
            Err(Error::bad_input(format!("`--ssh {id}`: SSH_AUTH_SOCK is `{}`, which is no socket", path.display())))
        }
        Err(e) => Err(Error::bad_input(format!("`--ssh {id}`: there is no ssh-agent at `{}`", path.display()))
            .cause(e)
            .hint(hint)),
    }
}

fn from_files(id: &str, paths: Vec<PathBuf>) -> Result<SshSource> {
    let wrong = |what: String| Error::bad_input(format!("`--ssh {id}`: {what}"));
    let mut sockets = 0;
    for path in &paths {
        let meta = std::fs::metadata(path).bad_input(|| format!("`--ssh {id}`: cannot use `{}`", path.display()))?;
        if meta.file_type().is_socket() {
            sockets += 1;
            continue;
        }
        let content = match meta.is_file() {
            true => std::fs::read(path).bad_input(|| format!("`--ssh {id}`: cannot read `{}`", path.display()))?,
            false => Vec::new(),
        };
        match key(&content) {
            Key::Plain => {}
            Key::Locked => {
                return Err(wrong(format!("the key `{}` has a passphrase", path.display())).hint(format!(
                    "load it into an agent with `ssh-add {}`, and lend that one: `--ssh {id}`",
                    path.display()
                )));
            }
            Key::None => {
                let error = wrong(format!("`{}` is neither a private key nor a socket", path.display()));
                return Err(match path.extension().is_some_and(|e| e == "pub") {
                    true => error.hint(format!("did you mean `{}`?", path.with_extension("").display())),
                    false => error,
                });
            }
        }
    }
    match (sockets, <[PathBuf; 1]>::try_from(paths)) {
        (0, Ok([key])) => Ok(SshSource::Keys(vec![key])),
        (0, Err(keys)) => Ok(SshSource::Keys(keys)),
        (_, Ok([socket])) => Ok(SshSource::Socket(socket)),
        (_, Err(_)) => Err(wrong("a socket stands alone, without keys or other sockets".into())),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Key {
    Plain,
    Locked,
    None,
}

/// Which kind of key a file holds, by its head.
fn key(content: &[u8]) -> Key {
    let text = String::from_utf8_lossy(content);
    let lines = || text.lines().map(str::trim);
    let Some(header) = lines().find(|l| l.starts_with("-----BEGIN ") && l.ends_with("PRIVATE KEY-----")) else {
        return Key::None;
    };
    if header.contains("ENCRYPTED") || lines().any(|l| l.starts_with("Proc-Type:") && l.contains("ENCRYPTED")) {
        return Key::Locked;
    }
    if !header.contains("OPENSSH") {
        return Key::Plain;
    }
    // OpenSSH's PROTOCOL.key: a magic word, then the name of the cipher.
    const HEAD: &[u8] = b"openssh-key-v1\0\0\0\0\x04none";
    let body: String = lines().filter(|l| !l.starts_with("-----")).collect();
    match STANDARD.decode(body.trim_end_matches('=').get(..32).unwrap_or_default()) {
        Ok(head) if head.starts_with(HEAD) => Key::Plain,
        Ok(head) if head.starts_with(&HEAD[..15]) => Key::Locked,
        _ => Key::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(specs: &[String], own: Option<&Path>) -> Result<Agents> {
        agents(specs, own)
    }

    #[test]
    fn the_forms_of_buildx_are_taken() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let _listener = std::os::unix::net::UnixListener::bind(at("agent")).unwrap();
        std::fs::write(at("pem"), "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n").unwrap();
        std::fs::write(at("key.pub"), "ssh-ed25519 AAAA x\n").unwrap();
        let spec = |text: &str| text.replace("DIR", &dir.path().display().to_string());
        let one = |text: &str| read(&[spec(text)], Some(&at("agent"))).map(|mut found| found.pop_first().unwrap());
        let socket = SshSource::Socket(at("agent"));
        for (text, id) in [("default", "default"), ("", "default"), ("id=", "id"), ("id=DIR/agent", "id")] {
            assert_eq!(one(text).unwrap(), (id.to_owned(), socket.clone()), "{text}");
        }
        let keys = SshSource::Keys(vec![at("pem"), at("pem")]);
        assert_eq!(one("=DIR/pem,DIR/pem").unwrap(), ("default".into(), keys));
        for (text, message, hint) in [
            ("id=DIR/agent,DIR/pem", "a socket stands alone", ""),
            ("id=DIR/agent,DIR/agent", "a socket stands alone", ""),
            ("id=DIR/nowhere", "cannot use `DIR/nowhere`", ""),
            ("id=DIR", "`DIR` is neither a private key nor a socket", ""),
            ("id=DIR/key.pub", "`DIR/key.pub` is neither", "did you mean `DIR/key`?"),
        ] {
            let error = one(text).unwrap_err();
            assert!(error.message().contains(&spec(message)), "{text}: {error}");
            assert_eq!(error.hint_text().unwrap_or_default(), spec(hint), "{text}");
        }
        let twice = read(&["a".into(), "a".into()], Some(&at("agent"))).unwrap_err();
        assert!(twice.message().contains("twice"));
        for own in [None, Some(at("nowhere")), Some(at("pem"))] {
            let error = read(&["default".into()], own.as_deref()).unwrap_err();
            assert!(error.message().contains("SSH_AUTH_SOCK") || error.message().contains("nowhere"), "{error}");
        }
    }

    #[test]
    fn keys_with_a_passphrase_are_told_apart() {
        let openssh = |cipher: &str| {
            let name = u8::try_from(cipher.len()).unwrap();
            let body = [b"openssh-key-v1\0\0\0\0", &[name][..], cipher.as_bytes(), b"and more of it and more"].concat();
            format!(
                "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n",
                STANDARD.encode(body)
            )
        };
        assert_eq!(key(openssh("none").as_bytes()), Key::Plain);
        assert_eq!(key(openssh("aes256-ctr").as_bytes()), Key::Locked);
        assert_eq!(key(b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA\n"), Key::Locked);
        assert_eq!(key(b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n"), Key::Locked);
        assert_eq!(key(b"-----BEGIN PRIVATE KEY-----\nAA\n"), Key::Plain);
        for none in [&b""[..], b"-----BEGIN OPENSSH PRIVATE KEY-----\n", b"ssh-rsa AAAA", b"\xff\x00"] {
            assert_eq!(key(none), Key::None);
        }
    }
}
