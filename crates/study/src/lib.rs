//! Runs a study: study file to design to runs on a place to stored rows.
