//! The compute service: matrix powers and factorisation over HTTP.
