//! The ways between hosts, as they were probed before a run.

use kendall_observations::Observations;
use serde::{Deserialize, Deserializer};

/// One way between two hosts, as it is stored with a run.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Way {
    pub(super) from: String,
    pub(super) to: String,
    /// The tier that was connected to.
    pub(super) tier: String,
    pub(super) least_s: Option<f64>,
    pub(super) median_s: Option<f64>,
    #[serde(deserialize_with = "probed")]
    probe: Probed,
}

#[derive(Debug, Clone, Copy, Default)]
enum Probed {
    /// No word of it, as in results of an older program.
    #[default]
    Never,
    Shut,
    Through(Probe),
}

/// 64 bytes there and back, and a stream.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Probe {
    pub(super) round_trip_p50_s: f64,
    pub(super) round_trip_p99_s: f64,
    pub(super) bytes_per_s: f64,
}

/// `null` is something else than no word at all.
fn probed<'de, D: Deserializer<'de>>(value: D) -> Result<Probed, D::Error> {
    Ok(Option::deserialize(value)?.map_or(Probed::Shut, Probed::Through))
}

impl Way {
    /// What came through, or why nothing is known.
    pub(super) fn probe(&self) -> Result<Probe, &'static str> {
        match self.probe {
            Probed::Through(probe) => Ok(probe),
            Probed::Shut => Err("nothing came through"),
            Probed::Never => Err("not measured"),
        }
    }
}

/// The ways of the first usable run, or of the first one.
pub(super) fn ways(data: &Observations) -> Vec<Way> {
    let run = data.runs.iter().find(|run| run.is_usable()).or(data.runs.first());
    let ways = run.and_then(|run| run.environment.get("ways")?.as_array());
    ways.into_iter().flatten().filter_map(|way| Way::deserialize(way).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_that_nobody_probed_is_not_one_that_is_shut() {
        let way = |probe: &str| -> Way {
            let text = format!("{{ \"from\": \"a\", \"to\": \"b\", \"tier\": \"t\"{probe} }}");
            serde_json::from_str(&text).unwrap()
        };
        assert_eq!(way("").probe().unwrap_err(), "not measured");
        assert_eq!(way(", \"probe\": null").probe().unwrap_err(), "nothing came through");
        let probe = ", \"probe\": { \"round_trip_p50_s\": 1e-4, \"round_trip_p99_s\": 2e-4, \
                     \"bytes_per_s\": 1e9, \"count\": 7 }";
        assert_eq!(way(probe).probe().unwrap().round_trip_p99_s.to_string(), "0.0002");
    }
}
