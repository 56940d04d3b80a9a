//! Stored results of a study: schema, migrations, typed rows. The only crate that knows SQL for results.
