//! Which failures of a step are worth another try: those where the network or a mirror was in the way, as far as that
//! can be told from the last lines of its output. In doubt a failure is the step's own.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

use super::output::without_escapes;
use crate::net::doubled;

/// Lines at the end of the output that count: what a step got over long before it failed is not why it failed.
const TAIL: usize = 60;
/// A line longer than this is no message.
const LONGEST: usize = 2000;

/// What one kind of failure looks like: a line with all of `words` in it, whatever their case.
struct Sign {
    words: &'static [&'static str],
    reason: &'static str,
}

const fn sign(words: &'static [&'static str], reason: &'static str) -> Sign {
    Sign { words, reason }
}

const NAMES: &str = "a name could not be resolved";
const CONNECTION: &str = "a connection failed";
const TIMEOUT: &str = "a connection timed out";
const CUT: &str = "a connection was cut off";
const MIRROR: &str = "a mirror was not consistent";
const SERVER: &str = "a server was not available";

/// In the words of the programs that say so.
const SIGNS: [Sign; 44] = [
    // apt
    sign(&["temporary failure resolving"], NAMES),
    sign(&["could not connect to", "connection timed out"], TIMEOUT),
    sign(&["could not connect to", "connection refused"], CONNECTION),
    sign(&["unable to connect to", ":"], CONNECTION),
    sign(&["connection failed ["], CONNECTION),
    sign(&["error reading from server"], CUT),
    sign(&["undetermined error", "ip:"], CUT),
    sign(&["hash sum mismatch"], MIRROR),
    sign(&["file has unexpected size", "mirror sync in progress"], MIRROR),
    // pip, uv, and urllib3 below them
    sign(&["newconnectionerror"], CONNECTION),
    sign(&["connecttimeouterror"], TIMEOUT),
    sign(&["readtimeouterror"], TIMEOUT),
    sign(&["incompleteread"], CUT),
    sign(&["remotedisconnected"], CUT),
    sign(&["protocolerror", "connection"], CUT),
    sign(&["read timed out"], TIMEOUT),
    // npm, yarn, node
    sign(&["econnreset"], CUT),
    sign(&["econnrefused"], CONNECTION),
    sign(&["etimedout"], TIMEOUT),
    sign(&["eai_again"], NAMES),
    sign(&["err_socket_timeout"], TIMEOUT),
    // curl, wget, git
    sign(&["could not resolve host"], NAMES),
    sign(&["unable to resolve host address"], NAMES),
    sign(&["curl: (7)"], CONNECTION),
    sign(&["curl: (18)"], CUT),
    sign(&["curl: (28)"], TIMEOUT),
    sign(&["curl: (35)", "connection"], CONNECTION),
    sign(&["curl: (52)"], CUT),
    sign(&["curl: (56)"], CUT),
    sign(&["failed: connection timed out"], TIMEOUT),
    sign(&["failed: connection refused"], CONNECTION),
    sign(&["the remote end hung up unexpectedly"], CUT),
    sign(&["rpc failed", "early eof"], CUT),
    sign(&["gnutls recv error"], CUT),
    // Go, Rust, and the C library, which most others quote
    sign(&["i/o timeout"], TIMEOUT),
    sign(&["tls handshake timeout"], TIMEOUT),
    sign(&["temporary failure in name resolution"], NAMES),
    sign(&["connection reset by peer"], CUT),
    sign(&["network is unreachable"], CONNECTION),
    // HTTP
    sign(&["429", "too many requests"], SERVER),
    sign(&["500", "internal server error"], SERVER),
    sign(&["502", "bad gateway"], SERVER),
    sign(&["503", "service unavailable"], SERVER),
    sign(&["504", "gateway time"], SERVER),
];

/// What the server is sure of: another try would get the same answer.
const FINAL: [&[&str]; 6] = [
    &["404", "not found"],
    &["410", "gone"],
    &["401", "unauthorized"],
    &["403", "forbidden"],
    &["error: 404"],
    &["certificate", "verif"],
];

/// The last lines of a step's output.
#[derive(Debug, Default)]
pub struct Tail(VecDeque<String>);

impl Tail {
    pub fn push(&mut self, line: &str) {
        if self.0.len() == TAIL {
            self.0.pop_front();
        }
        let line: String = without_escapes(line).chars().take(LONGEST).collect();
        self.0.push_back(line.to_ascii_lowercase());
    }

    /// Why the step is worth another try; None when it isn't.
    pub fn reason(&self) -> Option<&'static str> {
        let has = |line: &str, words: &[&str]| words.iter().all(|word| line.contains(word));
        if self.0.iter().any(|line| FINAL.iter().any(|words| has(line, words))) {
            return None;
        }
        self.0.iter().rev().find_map(|line| SIGNS.iter().find(|sign| has(line, sign.words)).map(|sign| sign.reason))
    }

    /// Whether somebody's certificate wasn't believed.
    pub fn is_about_certificates(&self) -> bool {
        self.0.iter().any(|line| line.contains("certificate"))
    }

    /// What to do about a package that wasn't found: the most usual mistake, and its message is far up in the output.
    pub fn hint(&self) -> Option<String> {
        self.0.iter().find_map(|line| {
            let package = line
                .strip_prefix("e: unable to locate package ")
                .or_else(|| line.strip_prefix("e: package '")?.strip_suffix("' has no installation candidate"));
            if let Some(package) = package {
                let package = package.trim();
                return Some(format!("apt knows no package `{package}`: is it spelled right, and in this release?"));
            }
            let wanted = line.split_once("no matching distribution found for ")?.1.trim();
            Some(format!("pip found no `{wanted}` for this Python: are name and version right?"))
        })
    }
}

/// How long to wait before the next try: twice as long each time, and not all steps of a run at once.
pub fn wait(first: Duration, tries: u32) -> Duration {
    const LONGEST: Duration = Duration::from_secs(60);
    let full = doubled(first, tries).min(LONGEST);
    // A hasher of the standard library starts from a random number.
    let random = std::hash::RandomState::new().build_hasher().finish();
    full / 2 + full.mul_f64((random >> 11) as f64 / (1u64 << 53) as f64) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(output: &str) -> Option<&'static str> {
        let mut tail = Tail::default();
        output.lines().for_each(|line| tail.push(line));
        tail.reason()
    }

    #[test]
    fn the_network_and_mirrors_are_told_by_what_programs_say() {
        for (output, expected) in [
            (
                "W: Failed to fetch http://deb.example/dists/x/InRelease  Temporary failure resolving 'deb.example'",
                NAMES,
            ),
            ("E: Failed to fetch http://a/b.deb  Could not connect to a:80 (10.0.0.1), connection timed out", TIMEOUT),
            ("E: Failed to fetch http://a/b.deb  Connection failed [IP: 10.0.0.1 80]", CONNECTION),
            ("E: Failed to fetch http://a/b.deb  Error reading from server. Remote end closed connection", CUT),
            ("E: Failed to fetch http://a/b.deb  Hash Sum mismatch\n   Hashes of expected file:", MIRROR),
            ("   File has unexpected size (1 != 2). Mirror sync in progress? [IP: 1.2.3.4 80]", MIRROR),
            ("E: Failed to fetch http://a/b.deb  502  Bad Gateway [IP: 1.2.3.4 80]", SERVER),
            ("E: Failed to fetch http://a/b.deb  503  Service Unavailable", SERVER),
            (
                "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<…>: Failed')'\n\
                 ERROR: Could not find a version that satisfies the requirement x (from versions: none)\n\
                 ERROR: No matching distribution found for x",
                CONNECTION,
            ),
            (
                "pip._vendor.urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='f'): Read timed out.",
                TIMEOUT,
            ),
            ("npm ERR! code ECONNRESET\nnpm ERR! network aborted", CUT),
            ("npm error code ETIMEDOUT", TIMEOUT),
            ("npm ERR! request to https://r/x failed, reason: getaddrinfo EAI_AGAIN r", NAMES),
            ("curl: (6) Could not resolve host: example.org", NAMES),
            ("curl: (28) Operation timed out after 300000 milliseconds with 0 bytes received", TIMEOUT),
            ("curl: (56) Recv failure: Connection reset by peer", CUT),
            ("curl: (22) The requested URL returned error: 503 Service Unavailable", SERVER),
            ("wget: unable to resolve host address 'example.org'", NAMES),
            ("Connecting to a|10.0.0.1|:80... failed: Connection timed out.", TIMEOUT),
            ("fatal: the remote end hung up unexpectedly", CUT),
            ("dial tcp 10.0.0.1:443: i/o timeout", TIMEOUT),
            ("\u{1b}[31mERROR\u{1b}[0m: HTTP error 429 Too Many Requests", SERVER),
        ] {
            assert_eq!(reason(output), Some(expected), "{output}");
        }
    }

    #[test]
    fn packages_that_were_not_found_are_named() {
        let hint = |output: &str| {
            let mut tail = Tail::default();
            output.lines().for_each(|line| tail.push(line));
            tail.hint().unwrap_or_default()
        };
        assert!(hint("Reading…\nE: Unable to locate package nginx-lite\nmore").contains("`nginx-lite`"));
        assert!(hint("E: Package 'libc7' has no installation candidate").contains("`libc7`"));
        assert!(hint("ERROR: No matching distribution found for keystonee==99 (from x)").contains("`keystonee==99"));
        assert_eq!(hint("E: Sub-process returned an error code"), "");
    }

    #[test]
    fn what_fails_by_itself_fails_again() {
        for output in [
            "",
            "E: Unable to locate package haproxyy",
            "E: Failed to fetch http://a/b.deb  404  Not Found [IP: 1.2.3.4 80]",
            "ERROR: No matching distribution found for keystonee==99",
            "npm ERR! code E404\nnpm ERR! 404 Not Found - GET https://r/x",
            "curl: (22) The requested URL returned error: 404",
            "curl: (60) SSL certificate problem: unable to get local issuer certificate\ncertificate verify failed",
            "fatal: Authentication failed for 'https://example.org/x'",
            "error[E0308]: mismatched types",
            "make: *** [Makefile:3: all] Error 2",
            "test_timeout.py::test_read FAILED",
            // A mirror that was away, and a name that is wrong: the second is why it failed.
            "Err:1 http://a x Temporary failure resolving 'a'\nE: Failed to fetch http://b/c.deb  404  Not Found",
        ] {
            assert_eq!(reason(output), None, "{output}");
        }
    }

    #[test]
    fn what_a_step_got_over_does_not_count() {
        let early = format!("curl: (28) Operation timed out\n{}error: it does not compile", "compiling\n".repeat(TAIL));
        assert_eq!(reason(&early), None);
        assert_eq!(reason(&"x".repeat(100_000)), None);
    }

    #[test]
    fn waits_grow_and_differ_and_end() {
        let second = Duration::from_secs(1);
        for (tries, least, most) in [(1, 500, 1000), (2, 1000, 2000), (3, 2000, 4000), (40, 30_000, 60_000)] {
            let waited = wait(second, tries);
            assert!(waited >= Duration::from_millis(least) && waited <= Duration::from_millis(most), "{waited:?}");
        }
        let several: std::collections::BTreeSet<_> = (0..8).map(|_| wait(second, 1)).collect();
        assert!(several.len() > 1);
    }
}
