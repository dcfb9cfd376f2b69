//! What is served on the two ports.

use std::sync::Arc;

use axum::Router;
use chassis::admin::{self as chassis_admin, Readiness};
use chassis::serve::{MESSAGE_MAX, grpc_router};
use chassis::service_auth::ServiceAuth;
use idem_proto::DESCRIPTORS;
use idem_proto::idem::v1::admin_service_server::AdminServiceServer;
use idem_proto::idem::v1::idempotency_service_server::IdempotencyServiceServer;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;
use tonic_reflection::server::Builder;

use crate::admin_rpc::AdminRpc;
use crate::console::{self, Access, Api};
use crate::engine::Engine;
use crate::health::Reporting;
use crate::rpc::Rpc;
use crate::status::ERROR_DOMAIN;

/// The gRPC port: both services, health and perhaps reflection, behind authentication and deadlines.
pub(crate) fn grpc(engine: &Arc<Engine>, auth: &ServiceAuth, health: &Reporting, has_reflection: bool) -> Router {
    let idempotency = IdempotencyServiceServer::new(Rpc::new(engine.clone())).max_decoding_message_size(MESSAGE_MAX);
    let admin = AdminServiceServer::new(AdminRpc::new(engine.clone())).max_decoding_message_size(MESSAGE_MAX);
    let routes = Routes::new(idempotency).add_service(admin);
    let routes = routes.add_service(HealthServer::new(health.clone()));
    let routes = if has_reflection { reflect(routes) } else { routes };
    grpc_router(routes, auth, ERROR_DOMAIN)
}

/// The admin port: health, metrics and the console.
pub(crate) fn admin(engine: &Arc<Engine>, access: Access, readiness: &Readiness) -> Router {
    chassis_admin::router(readiness.clone()).merge(console::router(Api::new(engine.clone(), access)))
}

/// Both versions of reflection, which tools still mix, for what this port serves.
fn reflect(routes: Routes) -> Routes {
    let builder = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .with_service_name("idem.v1.IdempotencyService")
            .with_service_name("idem.v1.AdminService")
            .with_service_name("grpc.health.v1.Health")
    };
    const BUILT_IN: &str = "the descriptors are built into the program";
    routes.add_service(builder().build_v1().expect(BUILT_IN)).add_service(builder().build_v1alpha().expect(BUILT_IN))
}
