//! What to make of an answer that is not what was asked for, or of none.

use std::time::SystemTime;

use reqwest::{Response, StatusCode};
use serde::Deserialize;

use crate::error::Error;
use crate::net::{self, Problem};
use crate::registry::Options;
use crate::registry::client::Client;

impl Client<'_> {
    /// No answer at all.
    pub(super) fn transport(&self, error: &reqwest::Error) -> Problem {
        let Options { connect_timeout, idle_timeout, .. } = self.options;
        let who = format!("the registry {}", self.host());
        net::transport(
            error,
            &who,
            *connect_timeout,
            *idle_timeout,
            "if it speaks plain HTTP, name it as an insecure registry",
        )
    }

    /// An answer that is not what was asked for.
    pub(super) async fn refused(&self, response: Response, what: &str) -> Problem {
        let status = response.status();
        let after = net::retry_after(response.headers(), SystemTime::now());
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
                Problem::Passing { why: net::status_name(status), after }
            }
            status if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED => {
                Problem::Passing { why: net::status_name(status), after }
            }
            status => told(Error::unusable(format!(
                "the registry {} refuses {what}: {}",
                self.host(),
                net::status_name(status)
            )))
            .into(),
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
