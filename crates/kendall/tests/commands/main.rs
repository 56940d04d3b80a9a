//! Commands that run no study, and what holds for the whole repository: layers, documented keys.

mod circles;
mod deploy;
mod documented_keys;
mod fit;
mod hostile;
mod layers;
mod load_grpc;
mod load_hostile;
mod load_http;
mod load_memcached;
mod load_postgres;
mod load_redis;
mod load_sequence;
mod observe;
mod serve;
mod serve_proxy;
mod solve;
#[path = "../support/mod.rs"]
mod support;
mod wrong_input;
