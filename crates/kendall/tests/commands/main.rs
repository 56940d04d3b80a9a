//! Commands that run no study, and what holds for the whole repository: layers, documented keys.

mod documented_keys;
mod fit;
mod layers;
mod load_http;
mod modules;
mod observe;
mod serve_proxy;
mod solve;
mod sources;
#[path = "../support/mod.rs"]
mod support;
mod unused_dependencies;
mod wrong_input;
