//! `kind = "synthetic"`: a station whose service times are known, to check Kendall itself.

use crate::section::{Problem, Section};
use crate::system::{SystemKind, compute};
use crate::topology::{Started, Topology};

pub(super) const KIND: SystemKind =
    SystemKind { name: "synthetic", protocol: "http", read, programs: &[] };

fn read(section: &mut Section<'_>) -> Result<Topology, Problem> {
    let workers = section.small("workers", Some(1), 1..=1024)?;
    let service = section.text("service", Some("exponential:5ms"))?;
    let seed = section.count("seed", Some(1), 0..=u64::MAX)?;
    let arguments = [
        "synthetic",
        "--listen",
        "127.0.0.1:0",
        "--workers",
        &workers.to_string(),
        "--service",
        &service,
        "--seed",
        &seed.to_string(),
    ];
    let mut arguments: Vec<String> = arguments.map(str::to_owned).into();
    arguments.extend(section.words("options", &[])?);
    Ok(compute::one_tier("synthetic", Started::kendall(1, arguments)))
}
