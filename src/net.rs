//! What everything that talks to the network has in common: patience, time limits, what to make of failures.
//!
//! Proxies and additional CA certificates are those that the environment names (HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE,
//! …): the HTTP library looks there by itself. The one place where anything asynchronous is started: a runtime of one
//! thread that lives as long as a call.

use std::error::Error as StdError;
use std::hash::BuildHasher as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reqwest::StatusCode;
use reqwest::header::{self, HeaderMap};

use crate::error::{Context as _, Error, Result};
use crate::event::{Cancel, Event, Sink};

/// How often and how patiently something that failed is tried again.
#[derive(Clone, Debug)]
pub struct Retry {
    /// All of them, the first one included.
    pub attempts: u32,
    /// Doubled with each wait.
    pub first_wait: Duration,
    /// A server that asks for a longer one is given up.
    pub longest_wait: Duration,
    /// By how many percent a wait that nobody asked for is longer or shorter at random, so that machines that failed
    /// together don't come back together.
    pub jitter: u32,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { attempts: 5, first_wait: Duration::from_secs(1), longest_wait: Duration::from_secs(120), jitter: 25 }
    }
}

impl Retry {
    /// Before the try after this many.
    pub(crate) fn backoff(&self, tries: u32) -> Duration {
        let wait = doubled(self.first_wait, tries).min(self.longest_wait);
        if self.jitter == 0 {
            return wait;
        }
        // Each `RandomState` has keys of its own.
        let random = std::hash::RandomState::new().hash_one(tries) % u64::from(2 * self.jitter + 1);
        let percent = 100 + u32::try_from(random).unwrap_or(0);
        wait.mul_f64(f64::from(percent.saturating_sub(self.jitter)) / 100.0).min(self.longest_wait)
    }
}

/// Twice as long after each try, from `first` after the first one.
pub(crate) fn doubled(first: Duration, tries: u32) -> Duration {
    first.saturating_mul(1 << tries.saturating_sub(1).min(16))
}

/// Who asks: named in events, and able to stop.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    pub node: &'a Arc<str>,
    pub sink: &'a dyn Sink,
    pub cancel: &'a Cancel,
}

impl Caller<'_> {
    pub(crate) fn background(&self, title: String) {
        self.sink.event(Event::Background { node: self.node.clone(), title });
    }

    pub(crate) fn warning(&self, message: String) {
        self.sink.event(Event::Warning { node: Some(self.node.clone()), message });
    }
}

/// Why a try did not work.
pub(crate) enum Problem {
    /// It may work later; `after` is when the server said so.
    Passing {
        why: String,
        after: Option<Duration>,
    },
    /// Nobody answers, which may pass too.
    Silence {
        why: String,
    },
    Lasting(Error),
}

impl Problem {
    pub(crate) fn passing(why: impl Into<String>) -> Problem {
        Problem::Passing { why: why.into(), after: None }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Problem::Lasting(error)
    }
}

/// Counts the tries of one thing.
#[derive(Default)]
pub(crate) struct Tries(pub(crate) u32);

impl Tries {
    /// For when something was achieved.
    pub(crate) fn reset(&mut self) {
        self.0 = 0;
    }

    /// How long to wait before `problem` is tried again, or why it isn't. `who` is a server: `the registry h`; `what`
    /// is what could not be done, where the caller doesn't say it: `fetch the layer x`.
    pub(crate) fn next(
        &mut self,
        retry: &Retry,
        problem: Problem,
        who: &str,
        what: &str,
    ) -> Result<(Duration, String)> {
        let (why, after, reached) = match problem {
            Problem::Lasting(error) => return Err(error),
            Problem::Passing { why, after } => (why, after, true),
            Problem::Silence { why } => (why, None, false),
        };
        self.0 += 1;
        let gave_up = |error: Error| match what {
            "" => error.cause(&why),
            what => error.cause(format!("cannot {what}")).cause(&why),
        };
        if self.0 >= retry.attempts {
            let how = if reached { "does not answer as it should" } else { "cannot be reached" };
            let tried = if self.0 > 1 { format!("it was tried {} times; ", self.0) } else { String::new() };
            return Err(gave_up(Error::unusable(format!("{who} {how}")))
                .hint(format!("{tried}check the name, the network and the proxy, or try again later")));
        }
        let wait = after.unwrap_or_else(|| retry.backoff(self.0));
        if wait > retry.longest_wait {
            return Err(gave_up(Error::unusable(format!("{who} wants no requests for now")))
                .hint(format!("it asks to wait for {} s", wait.as_secs())));
        }
        Ok((wait, why))
    }
}

/// Waits when it makes sense to try again, and tells so; else gives the reason why not.
pub(crate) async fn wait(
    retry: &Retry,
    tries: &mut Tries,
    problem: Problem,
    host: &str,
    what: &str,
    caller: &Caller<'_>,
) -> Result<()> {
    let (wait, why) = tries.next(retry, problem, host, "")?;
    caller.warning(trying_again(host, &why, &format!("fetching {what}"), wait, tries, retry));
    tokio::time::sleep(wait).await;
    Ok(())
}

pub(crate) fn trying_again(host: &str, why: &str, doing: &str, wait: Duration, tries: &Tries, retry: &Retry) -> String {
    format!("{host}: {why} ({doing}); trying again in {}, {} of {} tries", seconds(wait), tries.0 + 1, retry.attempts)
}

/// With the certificates of this machine. `loopback`: without a proxy, which could not reach this machine's own address.
pub(crate) fn client(connect: Duration, idle: Duration, loopback: bool, insecure: bool) -> Result<reqwest::Client> {
    build(builder(connect, loopback, insecure).read_timeout(idle))
}

pub(crate) fn builder(connect: Duration, loopback: bool, insecure: bool) -> reqwest::ClientBuilder {
    // Fails when the process has a provider already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder()
        .user_agent(concat!("kollage/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(connect)
        .tls_danger_accept_invalid_certs(insecure)
        .referer(false);
    if loopback { builder.no_proxy() } else { builder }
}

pub(crate) fn build(builder: reqwest::ClientBuilder) -> Result<reqwest::Client> {
    builder.build().map_err(|e| Error::unusable("the certificates of this machine cannot be used").cause(innermost(&e)))
}

/// Runs a future on this thread until it is done or the run is cancelled.
pub(crate) fn block_on<T>(cancel: &Cancel, work: impl Future<Output = Result<T>>) -> Result<T> {
    block_on_unless(|| cancel.is_cancelled(), work)
}

/// The same with another reason to stop.
pub(crate) fn block_on_unless<T>(stop: impl Fn() -> bool, work: impl Future<Output = Result<T>>) -> Result<T> {
    if stop() {
        return Err(Error::interrupted());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unusable(|| "cannot start the network runtime".to_owned())?;
    // Tokio has no safe way to wait for a descriptor that it does not own.
    let interrupted = async {
        while !stop() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let done = runtime.block_on(async {
        tokio::select! {
            done = work => done,
            () = interrupted => Err(Error::interrupted()),
        }
    });
    // A lookup of a name may hang in a thread of its own; nobody waits for it.
    runtime.shutdown_background();
    done
}

/// No answer at all. `who` is a server: `the registry h`.
pub(crate) fn transport(
    error: &reqwest::Error,
    who: &str,
    connect: Duration,
    idle: Duration,
    plain_http: &str,
) -> Problem {
    if let Some(tls) = find_tls(error) {
        let failed = Error::unusable(format!("{who} cannot be reached safely")).cause(tls);
        return Problem::Lasting(match tls {
            rustls::Error::InvalidCertificate(_) => {
                failed.hint("if it is signed by your own authority, add that to the machine's CA bundle")
            }
            rustls::Error::InvalidMessage(_) => failed.hint(plain_http),
            _ => failed,
        });
    }
    if error.is_redirect() {
        return Problem::Lasting(Error::unusable(format!("{who} sends on and on")).cause("too many redirects"));
    }
    let why = if error.is_timeout() {
        format!("nothing arrived for {}", seconds(if error.is_connect() { connect } else { idle }))
    } else if error.is_body() || error.is_decode() {
        format!("the connection broke ({})", innermost(error))
    } else {
        innermost(error)
    };
    Problem::Silence { why }
}

/// In seconds, or as a date (RFC 9110, 10.2.3).
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let left = http_date(value)?.duration_since(jiff::Timestamp::try_from(now).ok()?);
    Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
pub(crate) fn http_date(text: &str) -> Option<jiff::Timestamp> {
    jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true).parse_timestamp(text.trim()).ok()
}

pub(crate) fn status_name(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

pub(crate) fn seconds(duration: Duration) -> String {
    if duration.subsec_millis() == 0 { format!("{} s", duration.as_secs()) } else { format!("{duration:.1?}") }
}

/// The end of the chain of causes: `Connection refused`. Layers above it repeat the address, which may have secrets.
pub(crate) fn innermost(error: &reqwest::Error) -> String {
    let mut source: &dyn StdError = error;
    while let Some(next) = source.source() {
        source = next;
    }
    if std::ptr::addr_eq(source, error) {
        // Without a cause its own words have the address in them.
        return if error.is_redirect() { "too many redirections".into() } else { "the request failed".into() };
    }
    source.to_string()
}

fn find_tls(error: &reqwest::Error) -> Option<&rustls::Error> {
    let mut source: Option<&(dyn StdError + 'static)> = error.source();
    while let Some(current) = source {
        if let Some(tls) = current.downcast_ref::<rustls::Error>() {
            return Some(tls);
        }
        // The error within an I/O error is not among its sources, only that one's sources are.
        let inner = current.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        source = match inner {
            Some(inner) => Some(inner),
            None => current.source(),
        };
    }
    None
}

/// `localhost` and the machine's own addresses, with or without a port.
pub(crate) fn is_loopback(host: &str) -> bool {
    if let Some(v6) = host.strip_prefix('[') {
        return v6.split(']').next().and_then(|a| a.parse::<Ipv6Addr>().ok()).is_some_and(|a| a.is_loopback());
    }
    let name = host.split(':').next().unwrap_or(host);
    name == "localhost" || name.parse::<Ipv4Addr>().is_ok_and(|a| a.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_in_both_forms() {
        let after = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, value.parse().unwrap());
            retry_after(&headers, SystemTime::now())
        };
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert!(after("Fri, 06 Nov 2999 08:49:37 GMT").unwrap() > Duration::from_secs(1_000_000));
        assert_eq!(after("soon"), None);
    }

    #[test]
    fn only_the_machine_itself_is_loopback() {
        for host in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.9.9.9", "[::1]:5000"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["127.0.0.1.example.org", "localhost.example.org:1", "10.0.0.1", "[::2]", "example.org"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
