//! The files of docs/observe-metrics.md.

#![allow(clippy::unwrap_used, reason = "a failure to set up a test is a failure of the test")]

use kendall_observe::{Grid, PRESETS, Samples, Source as _, System};

fn page(name: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/");
    std::fs::read_to_string(format!("{root}{name}")).unwrap()
}

/// Each is a whole one, and its queries are such as are computed without a server.
#[test]
fn the_documented_files_are_system_files() {
    let text = page("observe-metrics.md");
    let files: Vec<&str> =
        text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(files.len(), 5);
    let grid = Grid::new(0, 60, 15).unwrap();
    for file in files {
        let system = System::parse(file).unwrap_or_else(|error| panic!("{error}: {file}"));
        system.queried().unwrap();
        for query in system.tiers.iter().flat_map(|tier| tier.queries.values()) {
            let found = Samples::default().range(query, &grid);
            assert!(found.is_ok(), "{query}: {:?}", found.err());
        }
    }
}

#[test]
fn every_preset_is_documented() {
    let text = page("observe.md");
    let (_, table) = text.split_once("## Presets").unwrap();
    for preset in PRESETS.iter() {
        assert!(table.contains(&format!("`{}`", preset.name)), "{}", preset.name);
    }
}
