//! A builder takes a session that doesn't answer for one that has ended.

use bollard_buildkit_proto::health::health_check_response::ServingStatus;
use bollard_buildkit_proto::health::health_server;
use bollard_buildkit_proto::health::{HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse};
use tonic::{Request, Response, Status};

pub struct Health;

const SERVING: HealthCheckResponse = HealthCheckResponse { status: ServingStatus::Serving as i32 };

#[tonic::async_trait]
impl health_server::Health for Health {
    type WatchStream = tokio_stream::Once<Result<HealthCheckResponse, Status>>;

    async fn check(&self, _: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        Ok(Response::new(SERVING))
    }

    async fn list(&self, _: Request<HealthListRequest>) -> Result<Response<HealthListResponse>, Status> {
        Ok(Response::new(HealthListResponse { statuses: [(String::new(), SERVING)].into() }))
    }

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Ok(Response::new(tokio_stream::once(Ok(SERVING))))
    }
}
