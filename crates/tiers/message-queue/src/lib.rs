//! The persistent message queue over PostgreSQL.
