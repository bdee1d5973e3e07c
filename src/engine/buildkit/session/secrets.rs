//! `RUN --mount=type=secret`. A value is read when it is asked for.

use std::collections::BTreeMap;

use bollard_buildkit_proto::moby::buildkit::secrets::v1::secrets_server;
use bollard_buildkit_proto::moby::buildkit::secrets::v1::{GetSecretRequest, GetSecretResponse};
use tonic::{Request, Response, Status};

use crate::engine::SecretSource;

pub struct Secrets(pub BTreeMap<String, SecretSource>);

#[tonic::async_trait]
impl secrets_server::Secrets for Secrets {
    async fn get_secret(&self, request: Request<GetSecretRequest>) -> Result<Response<GetSecretResponse>, Status> {
        let id = request.into_inner().id;
        let data = match self.0.get(&id) {
            Some(SecretSource::Value(value)) => value.clone(),
            Some(SecretSource::File(path)) => std::fs::read(path).map_err(|e| {
                Status::failed_precondition(format!("cannot read the secret `{id}` from {}: {e}", path.display()))
            })?,
            None => return Err(Status::not_found(format!("there is no secret `{id}`"))),
        };
        Ok(Response::new(GetSecretResponse { data }))
    }
}
