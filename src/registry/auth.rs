//! What a registry wants to see before it answers: a password, or a token from the service that it names.

use std::collections::BTreeSet;

use reqwest::StatusCode;
use reqwest::Url;
use reqwest::header::{self, HeaderMap, HeaderValue};
use serde::Deserialize;

use crate::error::Error;
use crate::net::Problem;
use crate::registry::Login;
use crate::registry::answer::message;
use crate::registry::challenge::{self, Challenge};
use crate::registry::client::{Client, Purpose};
use crate::registry::credentials::{Lookup, RefreshToken};

impl Client<'_> {
    /// Prepares the authorization that an answer asks for.
    pub(super) async fn authorize(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let challenges: Vec<Challenge> = headers
            .get_all(header::WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(challenge::parse)
            .collect();
        let by = |scheme: &str| challenges.iter().find(|c| c.scheme == scheme);
        let value = if let Some(bearer) = by("bearer") {
            format!("Bearer {}", self.token(bearer).await?)
        } else if by("basic").is_some() {
            let Lookup::Login(login) = &self.lookup else {
                return Err(self.unauthorized(None).into());
            };
            basic(login)
        } else {
            return Err(self.unauthorized(Some("it says neither Basic nor Bearer".to_owned())).into());
        };
        let mut value = HeaderValue::from_str(&value)
            .map_err(|_| Error::unusable(format!("the token that {} gave cannot be sent", self.host())))?;
        value.set_sensitive(true);
        *self.authorization.borrow_mut() = Some(value);
        Ok(())
    }

    /// Asks the service that the registry names for a token.
    async fn token(&self, challenge: &Challenge) -> Result<String, Problem> {
        #[derive(Deserialize)]
        struct Answer {
            token: Option<String>,
            access_token: Option<String>,
        }
        let strange = |why: &str| {
            Problem::Lasting(
                Error::unusable(format!("the registry {} asks for a login in a way that cannot be used", self.host()))
                    .cause(why),
            )
        };
        let realm = challenge.params.get("realm").ok_or_else(|| strange("it names no token service"))?;
        let mut url = Url::parse(realm).map_err(|_| strange("the address of its token service is none"))?;
        let login = match &self.lookup {
            Lookup::Login(login) => Some(login),
            _ => None,
        };
        let refresh = match &self.lookup {
            Lookup::Token(token) => Some(token),
            _ => None,
        };
        let safe = url.scheme() == "https" || self.host.base.scheme() == "http";
        if !safe && (login.is_some() || refresh.is_some()) || !matches!(url.scheme(), "http" | "https") {
            return Err(strange("its token service would be sent the password in the clear"));
        }
        {
            let mut query = url.query_pairs_mut();
            if let Some(service) = challenge.params.get("service") {
                query.append_pair("service", service);
            }
            for scope in self.scopes(challenge) {
                query.append_pair("scope", &scope);
            }
        }
        let mut request = match refresh {
            None => self.host.http.get(url),
            Some(RefreshToken(token)) => {
                // OAuth 2: the same as a form, and nothing of it in the address.
                let mut form = url.clone();
                url.set_query(None);
                form.query_pairs_mut()
                    .append_pair("grant_type", "refresh_token")
                    .append_pair("client_id", "kollage")
                    .append_pair("refresh_token", token);
                let form = form.query().unwrap_or_default().to_owned();
                // Sent on, it would be sent again: nowhere but to the service itself.
                let request = self.host.upload.post(url).timeout(self.options.idle_timeout);
                request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(form)
            }
        };
        if let Some(login) = login {
            request = request.header(header::AUTHORIZATION, basic(login));
        }
        let response = request.send().await.map_err(|e| self.transport(&e))?;
        match response.status() {
            status if status.is_success() => {
                let body = self.body(response).await?;
                let answer: Answer = serde_json::from_slice(&body)
                    .map_err(|_| strange("its token service does not answer with JSON"))?;
                answer.token.or(answer.access_token).ok_or_else(|| strange("its token service gives no token"))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST => {
                Err(self.unauthorized(message(response).await).into())
            }
            _ => Err(match self.refused(response, "a token").await {
                Problem::Passing { why, after } => Problem::Passing { why: format!("its token service: {why}"), after },
                other => other,
            }),
        }
    }

    /// What a token is asked for: what the registry says, and all that is going to be done, so that one token will do.
    fn scopes(&self, challenge: &Challenge) -> BTreeSet<String> {
        let said = challenge.params.get("scope").map(String::as_str).unwrap_or_default();
        let mut scopes: BTreeSet<String> = said.split_ascii_whitespace().map(str::to_owned).collect();
        let own = |actions: &str| format!("repository:{}:{actions}", self.reference.repository());
        match self.purpose {
            Purpose::Pull if scopes.is_empty() => scopes.extend([own("pull")]),
            Purpose::Pull => {}
            Purpose::Push => {
                scopes.remove(&own("pull"));
                scopes.remove(&own("push,pull"));
                scopes.extend([own("pull,push")]);
                scopes.extend(self.scopes.borrow().iter().cloned());
            }
        }
        scopes
    }

    pub(super) fn unauthorized(&self, said: Option<String>) -> Error {
        let name = match self.purpose {
            Purpose::Pull => self.reference.familiar(),
            Purpose::Push => format!("a push to {}", self.reference.repository()),
        };
        let (exists, absent) = match self.purpose {
            Purpose::Pull => ("whether the image exists", "; or the image does not exist"),
            Purpose::Push => ("whether that user may push there", ""),
        };
        let login = format!("`podman login {}`", self.host());
        let (error, hint) = match &self.lookup {
            Lookup::Login(login) => (
                Error::unusable(format!("the registry {} refuses {name} to user `{}`", self.host(), login.username)),
                format!("check the login and {exists}"),
            ),
            Lookup::Token(_) => (
                Error::unusable(format!("the registry {} refuses {name} to its identity token", self.host())),
                format!("log in again, and check {exists}"),
            ),
            Lookup::Unusable(why) => {
                (Error::unusable(format!("the registry {} wants a login for {name}", self.host())), why.clone())
            }
            Lookup::Nothing => (
                Error::unusable(format!("the registry {} wants a login for {name}", self.host())),
                match self.options.credentials.paths().next() {
                    Some(path) => {
                        format!("{} has none for it: {login} adds one{absent}", path.display())
                    }
                    None if self.purpose == Purpose::Push => format!("log in with {login}"),
                    None => format!("log in with {login}, or check {exists}"),
                },
            ),
        };
        match said {
            Some(said) => error.cause(said),
            None => error,
        }
        .hint(hint)
    }
}

fn basic(login: &Login) -> String {
    use base64::Engine as _;
    let pair = format!("{}:{}", login.username, login.password);
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
}
