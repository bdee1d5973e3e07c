//! What to make of an answer that is not what was asked for, or of none.

use std::error::Error as StdError;
use std::time::Duration;

use reqwest::header::{self, HeaderMap};
use reqwest::{Response, StatusCode};
use serde::Deserialize;

use crate::error::Error;
use crate::registry::client::{Client, Problem};

impl Client<'_> {
    /// No answer at all.
    pub(super) fn transport(&self, error: reqwest::Error) -> Problem {
        if let Some(tls) = find_tls(&error) {
            let failed = Error::unusable(format!("the registry {} cannot be reached safely", self.host())).cause(tls);
            return Problem::Lasting(match tls {
                rustls::Error::InvalidCertificate(_) => {
                    failed.hint("if it is signed by your own authority, add that to the machine's CA bundle")
                }
                rustls::Error::InvalidMessage(_) => {
                    failed.hint("if it speaks plain HTTP, name it as an insecure registry")
                }
                _ => failed,
            });
        }
        let why = if error.is_timeout() {
            let limit = if error.is_connect() { self.options.connect_timeout } else { self.options.idle_timeout };
            format!("nothing arrived for {}", seconds(limit))
        } else if error.is_body() || error.is_decode() {
            format!("the connection broke ({})", innermost(&error))
        } else {
            innermost(&error)
        };
        Problem::Silence { why }
    }

    /// An answer that is not what was asked for.
    pub(super) async fn refused(&self, response: Response, what: &str) -> Problem {
        let status = response.status();
        let after = retry_after(response.headers());
        let said = message(response).await;
        let told = |error: Error| match &said {
            Some(said) => error.cause(said),
            None => error,
        };
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.unauthorized(said).into(),
            StatusCode::NOT_FOUND => {
                told(Error::unusable(format!("the registry {} does not have {what}", self.host())))
                    .hint("check the name and the tag")
                    .into()
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
                Problem::Passing { why: name(status), after }
            }
            status if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED => {
                Problem::Passing { why: name(status), after }
            }
            status => {
                told(Error::unusable(format!("the registry {} refuses {what}: {}", self.host(), name(status)))).into()
            }
        }
    }
}

/// What a registry says in its own words, shortened.
pub(super) async fn message(mut response: Response) -> Option<String> {
    const MOST: usize = 16 << 10;
    #[derive(Deserialize)]
    struct Answer {
        #[serde(default)]
        errors: Vec<Item>,
        #[serde(default)]
        details: Option<String>,
    }
    #[derive(Deserialize)]
    struct Item {
        #[serde(default)]
        message: String,
    }
    let mut bytes = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MOST {
            return None;
        }
    }
    let answer: Answer = serde_json::from_slice(&bytes).ok()?;
    let said = answer.errors.into_iter().map(|e| e.message).chain(answer.details).find(|m| !m.is_empty())?;
    Some(said.chars().filter(|c| !c.is_control()).take(200).collect())
}

/// In seconds, or as a date (RFC 9110, 10.2.3).
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let dates = jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true);
    let then = dates.parse_timestamp(value).ok()?;
    let left = then.duration_since(jiff::Timestamp::now());
    Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
}

fn name(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

pub(super) fn seconds(duration: Duration) -> String {
    if duration.subsec_millis() == 0 { format!("{} s", duration.as_secs()) } else { format!("{duration:.1?}") }
}

/// The end of the chain of causes: `Connection refused`. Layers above it repeat the address, which may have secrets.
pub(super) fn innermost(error: &reqwest::Error) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_in_both_forms() {
        let after = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, value.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert!(after("Fri, 06 Nov 2999 08:49:37 GMT").unwrap() > Duration::from_secs(1_000_000));
        assert_eq!(after("soon"), None);
    }
}
