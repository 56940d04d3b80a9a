//! `kind = "synthetic"`: a station whose service times are known, to check Kendall itself.

use crate::section::{Key, Problem, Section};
use crate::system::{SystemKind, compute};
use crate::topology::{Started, Topology};

pub(super) const KIND: SystemKind = SystemKind::new("synthetic", "http", &[KEYS], read);

const KEYS: &[Key] = &[
    Key::count("workers", 1, 1024, "servers of the station, m").or("1"),
    Key::text(
        "service",
        "distribution of service times: `5ms`, `exponential:5ms`, `uniform:4ms..6ms`, `normal:5ms,1ms`, \
         `erlang:4,5ms`, `hyperexponential:5ms,4`",
    )
    .or("'exponential:5ms'"),
    Key::count("seed", 0, u64::MAX, "seed of the service times, which differ in every run").or("1"),
    Key::texts("options", "further arguments of `kendall serve synthetic`"),
];

fn read(section: &mut Section<'_>) -> Result<Topology, Problem> {
    let workers = section.small("workers")?;
    // `--run`: runs with the same service times would not be independent, and agree too well.
    let arguments = ["synthetic", "--listen", "{host}:0", "--run", "{seed}"];
    let mut arguments: Vec<String> = arguments.map(str::to_owned).into();
    arguments.extend(section.options(&["workers", "service", "seed"])?);
    arguments.extend(section.words("options")?);
    Ok(compute::one_tier("synthetic", workers, Started::kendall(1, arguments)))
}
