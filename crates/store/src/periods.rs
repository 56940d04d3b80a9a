//! The second rows of a run, put together by the period of the measured window that they lie in.

use std::collections::BTreeMap;

use kendall_units::{Seconds, exact_f64};

use crate::rows::{Extent, Generator, MeasuredWindow, OperationCounts};

const SECOND_NS: u64 = 1_000_000_000;

/// Share of a second from which it is one: a load ends with the rest of one.
const WHOLE: f64 = 0.9;

/// What clients did in one period, over all generators and operations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Period {
    /// What happened to the requests.
    pub counts: OperationCounts,
    generators: BTreeMap<u32, Looked>,
}

/// What one generator counted in a period.
#[derive(Debug, Clone, Default, PartialEq)]
struct Looked {
    completed: u64,
    /// Lengths of its rows by when they began: rows of several operations share one.
    lengths_ns: BTreeMap<u64, u64>,
}

impl Looked {
    fn length_s(&self) -> f64 {
        Seconds::from_nanos(self.lengths_ns.values().sum()).get()
    }
}

impl Period {
    /// How long it was looked at: the mean over the generators.
    pub fn length_s(&self) -> f64 {
        let all: f64 = self.generators.values().map(Looked::length_s).sum();
        all / exact_f64(self.generators.len().max(1))
    }

    /// Completed a second: of each generator over its own rows.
    pub fn throughput_per_s(&self) -> f64 {
        let looked = self.generators.values().filter(|looked| looked.length_s() > 0.0);
        looked.map(|looked| exact_f64(looked.completed) / looked.length_s()).sum()
    }

    /// Whether every generator that was seen in it was looked at for a second, or nearly one.
    pub fn is_whole_second(&self) -> bool {
        self.generators.values().all(|looked| looked.length_s() >= WHOLE)
    }
}

impl MeasuredWindow {
    /// Number of the period of this width in which the middle of a row lies; `None` outside the window.
    pub fn place(&self, from_ns: u64, to_ns: u64, width_s: u64) -> Option<u64> {
        let middle = from_ns / 2 + to_ns / 2;
        let inside = (self.from_ns..self.to_ns).contains(&middle);
        inside.then(|| (middle - self.from_ns) / (width_s.max(1) * SECOND_NS))
    }

    /// What clients did in each period of this width, from the second rows of all generators.
    pub fn periods(&self, generators: &[Generator], width_s: u64) -> BTreeMap<u64, Period> {
        let mut periods: BTreeMap<u64, Period> = BTreeMap::new();
        for generator in generators {
            for row in generator.operations.iter().filter(|row| row.extent == Extent::Second) {
                let Some(place) = self.place(row.from_ns, row.to_ns, width_s) else { continue };
                let period = periods.entry(place).or_default();
                period.counts.add(&row.counts);
                let looked = period.generators.entry(generator.generator).or_default();
                looked.completed += row.counts.completed;
                looked.lengths_ns.insert(row.from_ns, row.to_ns.saturating_sub(row.from_ns));
            }
        }
        periods
    }

    /// Those of its seconds that are whole, by their number.
    pub fn seconds(&self, generators: &[Generator]) -> BTreeMap<u64, Period> {
        let mut seconds = self.periods(generators, 1);
        seconds.retain(|_, second| second.is_whole_second());
        seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::OperationPeriod;

    /// Rows of these operations, each from and to a moment in tenths of a second.
    fn generator(number: u32, rows: &[(u64, u64, &str, u64)]) -> Generator {
        let row = |(from, to, name, completed): &(u64, u64, &str, u64)| OperationPeriod {
            extent: Extent::Second,
            from_ns: from * SECOND_NS / 10,
            to_ns: to * SECOND_NS / 10,
            operation: (*name).to_owned(),
            counts: OperationCounts { completed: *completed, ..OperationCounts::default() },
        };
        let operations = rows.iter().map(row).collect();
        Generator { generator: number, operations, ..Generator::default() }
    }

    fn window() -> MeasuredWindow {
        MeasuredWindow { from_ns: SECOND_NS, to_ns: 4 * SECOND_NS, rule: String::new() }
    }

    #[test]
    fn rates_are_of_the_rows_own_lengths_over_generators_and_operations() {
        let generators = [
            generator(0, &[(0, 10, "get", 9), (10, 20, "get", 40), (10, 20, "set", 10)]),
            // Windows of a program of the user's: half a second each.
            generator(1, &[(10, 15, "get", 5), (15, 20, "get", 7), (40, 50, "get", 9)]),
        ];
        let periods = window().periods(&generators, 1);
        assert_eq!(periods.keys().copied().collect::<Vec<_>>(), [0]);
        let first = &periods[&0];
        assert!((first.length_s() - 1.0).abs() < 1e-12 && first.is_whole_second());
        assert!((first.throughput_per_s() - 62.0).abs() < 1e-9, "{}", first.throughput_per_s());
        assert_eq!(first.counts.completed, 62);
    }

    #[test]
    fn the_rest_of_a_second_is_none_and_a_wider_one_keeps_its_length() {
        let generators = [
            generator(0, &[(10, 20, "get", 10), (20, 30, "get", 10), (30, 33, "get", 3)]),
            generator(1, &[(10, 20, "get", 10), (20, 24, "get", 4)]),
        ];
        // In the second second one of them had ended: what the other did is not all of it.
        let seconds = window().seconds(&generators);
        assert_eq!(seconds.keys().copied().collect::<Vec<_>>(), [0]);
        let wide = window().periods(&generators, 10);
        assert!((wide[&0].length_s() - (2.3 + 1.4) / 2.0).abs() < 1e-12);
        assert!((wide[&0].throughput_per_s() - 20.0).abs() < 1e-9);
        let two = [generator(0, &[(10, 30, "get", 30)])];
        let seconds = window().seconds(&two);
        assert!((seconds[&1].throughput_per_s() - 15.0).abs() < 1e-9);
    }
}
