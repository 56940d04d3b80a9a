//! The cache: content, results of actions, and assets.

mod assets;
mod blobs;
mod capabilities;
mod context;
#[cfg(feature = "fuzzing")]
#[path = "../../../../fuzz/inside/cache.rs"]
pub mod fuzzing;
mod grpc;
mod http;
mod instances;
mod memory;
mod metrics;
pub(crate) mod outputs;
mod page;
mod proto;
pub(crate) mod read;
pub(crate) mod resource;
mod results;
mod server;
mod service;
mod store;
mod tree;
mod uploads;
mod write;
mod zstd;

pub use capabilities::cache as capabilities;
pub use server::{Cache, CacheOptions};

use crate::wire::{asset, bytestream, re};

/// Services that a cache answers, besides capabilities and health.
pub(crate) const SERVICES: &[&str] = &[
    re::content_addressable_storage_server::SERVICE_NAME,
    re::action_cache_server::SERVICE_NAME,
    bytestream::byte_stream_server::SERVICE_NAME,
    asset::fetch_server::SERVICE_NAME,
    asset::push_server::SERVICE_NAME,
];
