//! `rate = "0.8 of capacity"`: rates as shares of what the system can do on this machine.
//!
//! The capacity is the highest throughput of the study's base configuration in a closed loop, whose
//! clients are doubled twice at a time until that adds no more than a twentieth. It is measured
//! once, before the first run; every stored run has it among its settings, so that a study that is
//! resumed uses the same one.

use kendall_keys::Quantity;
use serde_json::Value as Json;
use toml::{Table, Value};

/// Suffix of a share.
const OF_CAPACITY: &str = "of capacity";

/// The key of `[workload]` that has the capacity.
pub(crate) const CAPACITY: &str = "capacity";

/// Clients of the first closed loop.
const FIRST_CLIENTS: u64 = 4;

/// Clients of one closed loop over those of the one before.
const CLIENTS_RATIO: u64 = 4;

/// Clients of the last closed loop at most.
const MOST_CLIENTS: u64 = 1_024;

/// Throughput over that of the loop before below which more clients are of no use.
const LEAST_GAIN: f64 = 1.05;

/// Longest closed loop, in seconds.
const LONGEST_S: f64 = 10.0;

/// A rate, or a share of the capacity.
pub(crate) static SHARED_RATE: Quantity = Quantity {
    name: "a rate",
    example: "`250/s`, `4.1/ms` or `0.8 of capacity`",
    check: |text| match share(text) {
        Some(found) => found.map(drop),
        None => kendall_units::parse_rate(text).map(drop).map_err(|error| error.to_string()),
    },
};

/// The share in `0.8 of capacity` or `80% of capacity`; `None` for other texts.
pub(crate) fn share(text: &str) -> Option<Result<f64, String>> {
    let number = text.trim().strip_suffix(OF_CAPACITY)?.trim();
    let share = match number.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => number.parse::<f64>(),
    };
    // Ten times what the system can do is far beyond what an open loop can show.
    Some(share.ok().filter(|share| *share > 0.0 && *share <= 10.0).ok_or_else(|| {
        format!("`{text}` is not a share of the capacity above 0 and up to 10; write it like `0.8 of capacity`")
    }))
}

/// Whether a value is a share of the capacity.
pub(crate) fn is_share(value: &Value) -> bool {
    value.as_str().is_some_and(|text| share(text).is_some())
}

/// The capacity that a stored run went by.
pub(crate) fn of_run(settings: &Json) -> Option<f64> {
    settings["workload"][CAPACITY]
        .as_str()
        .and_then(|text| kendall_units::parse_rate(text).ok().map(kendall_units::Rate::get))
}

/// As a study file writes it.
pub(crate) fn text(capacity_per_s: f64) -> String {
    format!("{capacity_per_s}/s")
}

/// The study's table with a closed loop in place of the open one.
pub(crate) fn closed(file: &Table, clients: u64, duration_s: f64) -> Table {
    let mut file = file.clone();
    if let Some(Value::Table(workload)) = file.get_mut("workload") {
        for key in ["rate", "arrivals", "spin", CAPACITY] {
            workload.remove(key);
        }
        workload.insert("loop".into(), "closed".into());
        workload.insert("clients".into(), Value::Integer(i64::try_from(clients).unwrap_or(1)));
    }
    let measure = file.entry("measure").or_insert_with(|| Table::new().into());
    if let Value::Table(measure) = measure {
        let duration_s = duration_s.min(LONGEST_S);
        measure.insert("duration".into(), format!("{duration_s}s").into());
        // In whole seconds, as the windows are that stay: a toy of half a second has no warm-up.
        let warm_up_s = (duration_s / 5.0).floor();
        measure.insert("warm_up".into(), format!("{warm_up_s}s").into());
        measure.insert("cool_down".into(), "0s".into());
        measure.insert("one_client".into(), "0s".into());
    }
    file
}

/// Which closed loop comes next, by the throughputs of those that were measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Climb {
    measured: Vec<f64>,
    /// Fewest clients: one a generator.
    least: u64,
}

impl Climb {
    pub(crate) fn new(generators: u32) -> Self {
        Self { measured: Vec::new(), least: u64::from(generators) }
    }

    /// Clients of the next loop, or `None` when the last one added nothing to speak of.
    pub(crate) fn next(&self) -> Option<u64> {
        let steps = u32::try_from(self.measured.len()).unwrap_or(u32::MAX);
        let clients = CLIENTS_RATIO.checked_pow(steps)?.checked_mul(FIRST_CLIENTS)?.max(self.least);
        let gains = match self.measured[..] {
            [.., before, last] => last > before * LEAST_GAIN,
            _ => true,
        };
        (gains && clients <= MOST_CLIENTS.max(self.least)).then_some(clients)
    }

    pub(crate) fn record(&mut self, throughput_per_s: f64) {
        self.measured.push(throughput_per_s);
    }

    pub(crate) fn capacity_per_s(&self) -> f64 {
        self.measured.iter().copied().fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_and_what_is_none_is_refused() {
        assert_eq!(share("0.8 of capacity"), Some(Ok(0.8)));
        assert_eq!(share("110% of capacity"), Some(Ok(1.1)));
        assert_eq!(share("250/s"), None);
        for bad in ["of capacity", "-1 of capacity", "NaN of capacity", "80 of capacity"] {
            assert!(matches!(share(bad), Some(Err(_))), "{bad}");
        }
    }

    /// A station of m servers holds m/s at most, whatever the clients: the climb ends one step
    /// after it is full, and no later than at its most clients.
    #[test]
    fn the_climb_ends_when_more_clients_add_nothing() {
        for (servers, steps) in [(1.0, 2), (10.0, 3), (200.0, 5), (1e9, 5)] {
            let mut climb = Climb::new(1);
            while let Some(clients) = climb.next() {
                climb.record(kendall_units::exact_f64(clients).min(servers));
            }
            assert_eq!(climb.measured.len(), steps, "{servers}");
            assert!((climb.capacity_per_s() - servers.min(1_024.0)).abs() < 1e-9);
        }
    }

    #[test]
    fn the_closed_loop_keeps_the_rest_of_the_study() {
        let file = "[workload]\nloop = 'open'\nrate = '0.5 of capacity'\nspin = '1ms'\npath = '/x'";
        let closed = closed(&file.parse().unwrap(), 16, 60.0);
        assert_eq!(closed["workload"]["clients"].as_integer(), Some(16));
        assert_eq!(closed["workload"]["path"].as_str(), Some("/x"));
        assert!(closed["workload"].get("rate").is_none());
        assert_eq!(closed["measure"]["duration"].as_str(), Some("10s"));
        assert_eq!(closed["measure"]["warm_up"].as_str(), Some("2s"));
    }
}
