//! Where a builder is: `unix:///PATH`, `tcp://HOST:PORT`, or `tls://HOST:PORT` with certificates of one's own.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::suggest;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    Unix(PathBuf),
    Tcp { host: String, port: u16, tls: bool },
}

const SCHEMES: [&str; 3] = ["unix", "tcp", "tls"];

/// Buildkitd's own for TCP; dockerd has others, which have to be named.
const PORT: u16 = 1234;

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Address> {
        let wrong = |why: &str| {
            Error::bad_input(format!("`{text}` is no address of a builder"))
                .cause(why)
                .hint("write unix:///PATH, tcp://HOST:PORT or tls://HOST:PORT")
        };
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(wrong("it has no scheme"));
        };
        if rest.contains('@') {
            // Repeated in an error it would be a password on a screen.
            return Err(Error::bad_input("the address of a builder has a user in it")
                .hint("builders know nobody by a password; `tls://` takes certificates"));
        }
        match scheme {
            "unix" if rest.starts_with('/') => Ok(Address::Unix(rest.into())),
            "unix" => Err(wrong("the path of a socket is absolute")),
            "tcp" | "tls" => {
                let rest = rest.trim_end_matches('/');
                // An address of IPv6 stands in brackets and has colons of its own.
                let (host, port) = match rest.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
                    Some((host, port)) => (host, port.parse().map_err(|_| wrong("its port is no number"))?),
                    None => (rest, PORT),
                };
                let host = host.trim_start_matches('[').trim_end_matches(']');
                match host.is_empty() || host.contains('/') {
                    true => Err(wrong("it names no host")),
                    false => Ok(Address::Tcp { host: host.to_owned(), port, tls: scheme == "tls" }),
                }
            }
            other => {
                let error = Error::bad_input(format!("`{text}` is no address of a builder"))
                    .cause(format!("there is no scheme `{other}`"));
                let hint = suggest::hint(other, SCHEMES);
                Err(error.hint(hint.unwrap_or_else(|| "write unix:///PATH, tcp://HOST:PORT or tls://HOST:PORT".into())))
            }
        }
    }
}

impl Address {
    /// Of one that is reached by TCP.
    pub fn host_and_port(&self) -> String {
        let text = self.to_string();
        text.split_once("://").map_or(String::new(), |(_, rest)| rest.to_owned())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix://{}", path.display()),
            Address::Tcp { host, port, tls } => {
                let scheme = if *tls { "tls" } else { "tcp" };
                match host.contains(':') {
                    true => write!(f, "{scheme}://[{host}]:{port}"),
                    false => write!(f, "{scheme}://{host}:{port}"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        for (text, shown) in [
            ("unix:///run/buildkit/buildkitd.sock", "unix:///run/buildkit/buildkitd.sock"),
            ("tcp://builder", "tcp://builder:1234"),
            ("tcp://builder:2375/", "tcp://builder:2375"),
            ("tls://[::1]:2376", "tls://[::1]:2376"),
            ("tcp://[::1]", "tcp://[::1]:1234"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for (text, why) in [
            ("builder:1234", "it has no scheme"),
            ("unix://run/sock", "the path of a socket is absolute"),
            ("tcp://:1", "it names no host"),
            ("tcp://a:b", "its port is no number"),
            ("tpc://a:1", "there is no scheme `tpc`"),
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert_eq!(error.causes(), [why], "{text}");
            assert!(error.hint_text().is_some());
        }
        let error = "tcp://me:s3cret@host:1".parse::<Address>().unwrap_err();
        assert!(!error.to_string().contains("s3cret"));
    }
}
