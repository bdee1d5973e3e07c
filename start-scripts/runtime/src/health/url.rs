//! As much of a URL as a health check has, and the addresses of its host without a name server: NSS is out of reach for a
//! static program, and a check that waits for a name server checks that.

use crate::error::{Failure, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Debug, Clone, PartialEq)]
pub struct Url {
    pub tls: bool,
    /// Without brackets.
    pub host: String,
    pub port: u16,
    /// From the first slash, a query included.
    pub path: String,
    /// `user:password`.
    pub login: Option<String>,
}

impl Url {
    pub fn read(text: &str) -> Result<Url> {
        let wrong = || Failure::wrong(format!("`{text}` is no http or https URL"));
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(wrong()),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (login, place) = match authority.rsplit_once('@') {
            Some((login, place)) => (Some(login.to_string()), place),
            None => (None, authority),
        };
        let (host, port) = match place.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
                (host, port.strip_prefix(':').unwrap_or(port))
            }
            None => place.split_once(':').unwrap_or((place, "")),
        };
        let port = match port {
            "" if tls => 443,
            "" => 80,
            port => port.parse().map_err(|_| wrong())?,
        };
        if host.is_empty() || path.contains(|unsafe_: char| unsafe_.is_control() || unsafe_ == ' ') {
            return Err(wrong());
        }
        let path = if path.starts_with('/') { path.to_string() } else { format!("/{path}") };
        Ok(Url { tls, host: host.into(), port, path, login })
    }

    /// What `Location` means for a request to this.
    pub fn join(&self, location: &str) -> Result<Url> {
        if location.contains("://") {
            return Url::read(location);
        }
        let path = if location.starts_with('/') {
            location.to_string()
        } else {
            let directory = self.path.split('?').next().unwrap_or("/").rsplit_once('/').map_or("", |(above, _)| above);
            format!("{directory}/{location}")
        };
        Ok(Url { path, ..self.clone() })
    }

    /// As `Host` has it.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let default = if self.tls { 443 } else { 80 };
        if self.port == default { host } else { format!("{host}:{}", self.port) }
    }

    pub fn addresses(&self) -> Result<Vec<IpAddr>> {
        if let Ok(address) = self.host.parse() {
            return Ok(vec![address]);
        }
        let mut found = in_hosts(&std::fs::read_to_string("/etc/hosts").unwrap_or_default(), &self.host);
        if found.is_empty() && self.host.eq_ignore_ascii_case("localhost") {
            found = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        }
        if found.is_empty() {
            return Err(Failure::wrong(format!(
                "`{}` is not in /etc/hosts, and a health check asks no name server; use an address",
                self.host
            )));
        }
        Ok(found)
    }
}

fn in_hosts(hosts: &str, name: &str) -> Vec<IpAddr> {
    let lines = hosts.lines().map(|line| line.split('#').next().unwrap_or_default());
    let found = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|word| word.eq_ignore_ascii_case(name)).then_some(address)
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let url =
            |tls, host: &str, port, path: &str| Url { tls, host: host.into(), port, path: path.into(), login: None };
        for (text, wanted) in [
            ("http://10.0.0.1:5000/v3?x=1#top", url(false, "10.0.0.1", 5000, "/v3?x=1")),
            ("https://[fd00::1]:8443", url(true, "fd00::1", 8443, "/")),
            ("https://[::1]?q", url(true, "::1", 443, "/?q")),
            ("localhost:80/a", url(false, "localhost", 80, "/a")),
            ("HTTP://name", url(false, "name", 80, "/")),
        ] {
            assert_eq!(Url::read(text).unwrap(), wanted, "{text}");
        }
        assert_eq!(Url::read("http://u:p@h").unwrap().login.as_deref(), Some("u:p"));
        for text in ["ftp://x", "http://", "http://x:y/", "http://[::1", "http://x/a b", "http://x/a\r\nX: y"] {
            assert!(Url::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn redirections_are_relative_to_where_they_come_from() {
        let url = Url::read("https://h:1/a/b?q").unwrap();
        assert_eq!(url.join("/c").unwrap().path, "/c");
        assert_eq!(url.join("c").unwrap().path, "/a/c");
        assert_eq!(url.join("http://o/").unwrap().host, "o");
    }

    #[test]
    fn hosts_are_read() {
        let hosts = "127.0.0.1 localhost\n::1 localhost ip6 # not this: other\n10.1.1.1\tApi other\n";
        let found: Vec<String> = in_hosts(hosts, "localhost").iter().map(ToString::to_string).collect();
        assert_eq!(found, ["127.0.0.1", "::1"]);
        assert_eq!(in_hosts(hosts, "other").len(), 1);
        assert_eq!(in_hosts(hosts, "api").len(), 1);
    }
}
