//! gRPC reflection: which services answer on the scheduler's port. The descriptions of those that are Kendall's own and
//! of health are there; those of the Remote Execution API are named alone, since its crate brings no descriptors.

use tonic::server::NamedService as _;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;
use tonic_reflection::server::{Builder, Error};

use crate::cache::SERVICES;
use crate::wire::{longrunning, re};
use crate::work::workers_server;

const V1: &str = "grpc.reflection.v1.ServerReflection";
const V1_ALPHA: &str = "grpc.reflection.v1alpha.ServerReflection";

/// Adds both versions of it; older tools know the first alone. `passes` tells whether the cache's services answer too.
pub(super) fn add(routes: Routes, passes: bool) -> Result<Routes, Error> {
    let own = [
        re::execution_server::SERVICE_NAME,
        re::capabilities_server::SERVICE_NAME,
        longrunning::operations_server::SERVICE_NAME,
        workers_server::SERVICE_NAME,
        HealthServer::<HealthService>::NAME,
        V1,
        V1_ALPHA,
    ];
    let passed = SERVICES.iter().filter(|_| passes);
    let names: Vec<&str> = own.iter().chain(passed).copied().collect();
    let builder = || {
        let described = Builder::configure()
            .register_encoded_file_descriptor_set(crate::work::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
        names.iter().fold(described, |described, name| described.with_service_name(*name))
    };
    Ok(routes.add_service(builder().build_v1()?).add_service(builder().build_v1alpha()?))
}
