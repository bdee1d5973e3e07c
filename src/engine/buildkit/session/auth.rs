//! Logins for registries: only for those that the build has to do with.

use std::collections::BTreeSet;
use std::sync::Arc;

use bollard_buildkit_proto::moby::filesync::v1::auth_server;
use bollard_buildkit_proto::moby::filesync::v1::{
    CredentialsRequest, CredentialsResponse, FetchTokenRequest, FetchTokenResponse, GetTokenAuthorityRequest,
    GetTokenAuthorityResponse, VerifyTokenAuthorityRequest, VerifyTokenAuthorityResponse,
};
use tonic::{Request, Response, Status};

use crate::registry::credentials::Lookup;
use crate::registry::{Credentials, Reference};

pub struct Auth {
    credentials: Arc<Credentials>,
    images: Vec<Reference>,
}

impl Auth {
    pub fn new(credentials: Arc<Credentials>, images: BTreeSet<String>) -> Auth {
        Auth { credentials, images: images.iter().filter_map(|image| image.parse().ok()).collect() }
    }

    /// Nothing is an answer too: the registry may want none.
    fn login(&self, host: &str) -> Result<CredentialsResponse, Status> {
        let image = self.images.iter().find(|image| image.host() == host || image.registry() == host);
        match image.map(|image| self.credentials.lookup(image)) {
            Some(Lookup::Login(login)) => Ok(CredentialsResponse { username: login.username, secret: login.password }),
            // As Docker hands one on: in place of a password, for nobody.
            Some(Lookup::Token(token)) => Ok(CredentialsResponse { username: String::new(), secret: token.0 }),
            Some(Lookup::Unusable(why)) => Err(Status::failed_precondition(why)),
            Some(Lookup::Nothing) | None => Ok(CredentialsResponse::default()),
        }
    }
}

/// The builder fetches tokens itself, with the login, when we say that we don't.
fn not_here<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("tokens are fetched by the builder"))
}

#[tonic::async_trait]
impl auth_server::Auth for Auth {
    async fn credentials(&self, request: Request<CredentialsRequest>) -> Result<Response<CredentialsResponse>, Status> {
        self.login(&request.into_inner().host).map(Response::new)
    }

    async fn fetch_token(&self, _: Request<FetchTokenRequest>) -> Result<Response<FetchTokenResponse>, Status> {
        not_here()
    }

    async fn get_token_authority(
        &self,
        _: Request<GetTokenAuthorityRequest>,
    ) -> Result<Response<GetTokenAuthorityResponse>, Status> {
        not_here()
    }

    async fn verify_token_authority(
        &self,
        _: Request<VerifyTokenAuthorityRequest>,
    ) -> Result<Response<VerifyTokenAuthorityResponse>, Status> {
        not_here()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_given_for_the_hosts_of_the_build_only() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("auth.json");
        // me:s3cret
        let auths = r#"{"auths": {"one.example": {"auth": "bWU6czNjcmV0"}, "two.example": {"auth": "bWU6czNjcmV0"}}}"#;
        std::fs::write(&file, auths).unwrap();
        let credentials = Arc::new(Credentials::load(&[file]).unwrap());
        let auth = Auth::new(credentials, BTreeSet::from(["one.example/work/image:tag".to_owned()]));
        assert_eq!(auth.login("one.example").unwrap().username, "me");
        for other in ["two.example", "example", "one.example.evil.example", ""] {
            assert_eq!(auth.login(other).unwrap(), CredentialsResponse::default(), "{other}");
        }
    }
}
