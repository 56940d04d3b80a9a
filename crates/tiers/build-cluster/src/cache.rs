//! The cache: content, results of actions, and assets.

mod store;
