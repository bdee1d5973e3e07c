//! What a registry wants to see before it answers: a password, or a token from the service that it names.

use reqwest::StatusCode;
use reqwest::Url;
use reqwest::header::{self, HeaderMap, HeaderValue};
use serde::Deserialize;

use crate::error::Error;
use crate::net::Problem;
use crate::registry::Login;
use crate::registry::answer::message;
use crate::registry::challenge::{self, Challenge};
use crate::registry::client::Client;
use crate::registry::credentials::Lookup;

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
        let safe = url.scheme() == "https" || self.base.scheme() == "http";
        if !safe && login.is_some() || !matches!(url.scheme(), "http" | "https") {
            return Err(strange("its token service would be sent the password in the clear"));
        }
        {
            let mut query = url.query_pairs_mut();
            if let Some(service) = challenge.params.get("service") {
                query.append_pair("service", service);
            }
            let own = format!("repository:{}:pull", self.reference.repository());
            query.append_pair("scope", challenge.params.get("scope").unwrap_or(&own));
        }
        let mut request = self.http.get(url);
        if let Some(login) = login {
            request = request.header(header::AUTHORIZATION, basic(login));
        }
        let response = request.send().await.map_err(|e| self.transport(e))?;
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

    pub(super) fn unauthorized(&self, said: Option<String>) -> Error {
        let name = self.reference.familiar();
        let login = format!("`podman login {}`", self.host());
        let (error, hint) = match &self.lookup {
            Lookup::Login(login) => (
                Error::unusable(format!("the registry {} refuses {name} to user `{}`", self.host(), login.username)),
                "check the login and whether the image exists".to_owned(),
            ),
            Lookup::Unusable(why) => {
                (Error::unusable(format!("the registry {} wants a login for {name}", self.host())), why.clone())
            }
            Lookup::Nothing => (
                Error::unusable(format!("the registry {} wants a login for {name}", self.host())),
                match self.options.credentials.paths().next() {
                    Some(path) => {
                        format!("{} has none for it: {login} adds one; or the image does not exist", path.display())
                    }
                    None => format!("log in with {login}, or check whether the image exists"),
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
