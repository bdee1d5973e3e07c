//! `--add-host`, `--ulimit` and `--shm-size`, as docker build takes them.

use std::net::{IpAddr, Ipv4Addr};

use crate::cli::args;
use crate::dockerfile::step::Network;
use crate::engine::surroundings::{Resource, Surroundings, Ulimit};
use crate::error::{Error, Result};
use crate::{quantity, suggest};

/// Stands for the machine that the build runs on.
const HOST_GATEWAY: &str = "host-gateway";

/// `network` is what the settings say.
pub fn surroundings(flags: &args::Surroundings, network: Network) -> Result<Surroundings> {
    let network = flags.network.map_or(network, args::Network::typed);
    let mut out = Surroundings { network, ..Surroundings::default() };
    for text in &flags.hosts {
        out.hosts.push(host(text)?);
    }
    for text in &flags.ulimits {
        let limit = ulimit(text)?;
        // As in Docker the last one counts.
        out.ulimits.retain(|known| known.resource != limit.resource);
        out.ulimits.push(limit);
    }
    out.ulimits.sort_by_key(|limit| limit.resource);
    if let Some(text) = &flags.shm_size {
        let size = quantity::bytes(text).ok_or_else(|| {
            Error::bad_input(format!("`--shm-size {text}` is not a size")).hint("write it as `128m` or `1g`")
        })?;
        // Nought is Docker's way of asking for the default.
        out.shm_size = Some(size).filter(|size| *size > 0);
    }
    Ok(out)
}

/// `NAME:ADDRESS` or `NAME=ADDRESS`; an IPv6 address may stand in brackets.
fn host(text: &str) -> Result<(String, IpAddr)> {
    let wrong = |what: String| {
        Error::bad_input(format!("`--add-host {text}`: {what}"))
            .hint(format!("write it as `NAME=ADDRESS`; `{HOST_GATEWAY}` is the address of this machine"))
    };
    let split = text.split_once('=').or_else(|| text.split_once(':'));
    let (name, written) = split.ok_or_else(|| wrong("there is no address".into()))?;
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '#') {
        return Err(wrong(format!("`{name}` is not a name of a host")));
    }
    if written == HOST_GATEWAY {
        // Steps have the network of this machine.
        return Ok((name.to_ascii_lowercase(), Ipv4Addr::LOCALHOST.into()));
    }
    let bare = written.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(written);
    let address = bare.parse().map_err(|_| {
        let error = wrong(format!("`{written}` is not an address"));
        match suggest::nearest(written, [HOST_GATEWAY]) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error,
        }
    })?;
    Ok((name.to_ascii_lowercase(), address))
}

fn ulimit(text: &str) -> Result<Ulimit> {
    let wrong = |what: String| Error::bad_input(format!("`--ulimit {text}`: {what}"));
    let form = "write it as `NAME=SOFT[:HARD]`; -1 is no limit";
    let (name, bounds) = text.split_once('=').ok_or_else(|| wrong("there is no value".into()).hint(form))?;
    let resource = Resource::ALL.into_iter().find(|known| known.as_str() == name).ok_or_else(|| {
        let error = wrong(format!("there is no limit `{name}`"));
        match suggest::hint(name, Resource::ALL.map(Resource::as_str)) {
            Some(hint) => error.hint(hint),
            None => error,
        }
    })?;
    let bound = |text: &str| match text.parse::<i64>() {
        Ok(-1) => Ok(None),
        Ok(number @ 0..) => Ok(u64::try_from(number).ok()),
        _ => Err(wrong(format!("`{text}` is not a number")).hint(form)),
    };
    let (soft, hard) = match bounds.split_once(':') {
        Some((soft, hard)) => (bound(soft)?, bound(hard)?),
        None => (bound(bounds)?, bound(bounds)?),
    };
    // No limit is more than any.
    if soft.unwrap_or(u64::MAX) > hard.unwrap_or(u64::MAX) {
        return Err(wrong("the soft limit is above the hard one".into()).hint(form));
    }
    Ok(Ulimit { resource, soft, hard })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|t| (*t).to_owned()).collect()
    }

    fn read(hosts: &[&str], ulimits: &[&str], shm_size: Option<&str>) -> Result<Surroundings> {
        let (hosts, ulimits) = (strings(hosts), strings(ulimits));
        let flags = args::Surroundings { hosts, ulimits, shm_size: shm_size.map(str::to_owned), network: None };
        surroundings(&flags, Network::Default)
    }

    fn refused(hosts: &[&str], ulimits: &[&str], shm_size: Option<&str>) -> (String, String) {
        let error = read(hosts, ulimits, shm_size).unwrap_err();
        (error.to_string(), error.hint_text().unwrap_or_default().to_owned())
    }

    #[test]
    fn hosts_as_docker_takes_them() {
        let given =
            ["b:1.2.3.4", "A.example=::1", "c:[2001:db8::1]", "d:2001:db8::2", "gate=host-gateway", "b=5.6.7.8"];
        let found = read(&given, &[], None).unwrap();
        assert_eq!(
            found.host_lines(),
            "1.2.3.4\tb\n::1\ta.example\n2001:db8::1\tc\n2001:db8::2\td\n127.0.0.1\tgate\n5.6.7.8\tb\n"
        );
        for bad in ["foo", "foo:", "foo:1.2", ":1.2.3.4", "a b:1.2.3.4", "a\n:1.2.3.4", "foo=[::1", ""] {
            let (message, hint) = refused(&[bad], &[], None);
            assert!(message.contains(bad) && hint.contains("NAME=ADDRESS"), "{message} {hint}");
        }
        assert_eq!(refused(&["foo=host-gatway"], &[], None).1, "did you mean `host-gateway`?");
    }

    #[test]
    fn limits_as_docker_takes_them() {
        let given = ["nofile=100:200", "core=-1", "nofile=5", "cpu=3:-1"];
        let found = read(&[], &given, None).unwrap();
        let facts: Vec<_> = found.ulimits.iter().map(|l| (l.resource.as_str(), l.soft, l.hard)).collect();
        assert_eq!(facts, [("core", None, None), ("cpu", Some(3), None), ("nofile", Some(5), Some(5))]);
        for (bad, why, hint) in [
            ("nofile", "no value", "NAME=SOFT[:HARD]"),
            ("nofile=x", "`x` is not a number", "NAME=SOFT[:HARD]"),
            ("nofile=1:2:3", "`2:3` is not a number", "NAME=SOFT[:HARD]"),
            ("nofile=-2", "`-2` is not a number", "NAME=SOFT[:HARD]"),
            ("nofile=10:5", "soft limit is above", "NAME=SOFT[:HARD]"),
            ("nofile=-1:5", "soft limit is above", "NAME=SOFT[:HARD]"),
            ("nofil=3", "no limit `nofil`", "did you mean `nofile`?"),
            ("as=3", "no limit `as`", "`nofile`"),
            ("core=unlimited", "`unlimited` is not a number", "-1 is no limit"),
        ] {
            let (message, said) = refused(&[], &[bad], None);
            assert!(message.contains(why) && said.contains(hint), "{bad}: {message} {said}");
        }
    }

    #[test]
    fn sizes_of_shared_memory() {
        for (text, size) in [("32m", Some(32 << 20)), ("0", None), ("1.5k", Some(1536)), ("64MiB", Some(64 << 20))] {
            assert_eq!(read(&[], &[], Some(text)).unwrap().shm_size, size, "{text}");
        }
        for bad in ["", "x", "-1", "1x"] {
            assert!(refused(&[], &[], Some(bad)).0.contains("is not a size"), "{bad}");
        }
    }
}
