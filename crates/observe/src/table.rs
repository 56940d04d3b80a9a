//! Figures from anywhere as one CSV table: a row a moment, a column a tier and quantity.

use std::path::Path;

use crate::grid::Grid;
use crate::quantity::Quantity;
use crate::source::{Series, Source, SourceError};
use crate::system::{System, SystemError};

/// Name of the column of moments.
const TIME: &str = "time_s";

#[derive(Debug, Clone, PartialEq)]
pub struct CsvTable {
    /// Unix times in seconds, ascending.
    times_s: Vec<f64>,
    /// Name and one value a row, NaN where the cell is empty.
    columns: Vec<(String, Vec<f64>)>,
}

impl CsvTable {
    /// Reads a file.
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let text = kendall_tier::read_text(path, kendall_tier::LARGEST_FILE)
            .map_err(|source| SourceError::File { path: path.display().to_string(), source })?;
        Self::parse(&text)
            .map_err(|reason| SourceError::Unreadable { query: path.display().to_string(), reason })
    }

    /// Reads `time_s,web.throughput,web.busy,db.buckets.0.5,…`.
    ///
    /// # Errors
    /// In words, with line and column.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut reader =
            csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
        let header = reader.headers().map_err(|error| error.to_string())?.clone();
        if let Some(other) =
            header.get(0).and_then(|cell| cell.find([';', '\t']).map(|at| &cell[at..=at]))
        {
            return Err(format!("its values are separated by {other:?}: separate them by commas"));
        }
        if header.get(0) != Some(TIME) {
            return Err(format!("its first column must be `{TIME}`, in seconds of Unix time"));
        }
        let names = header.iter().skip(1).map(str::to_owned);
        let mut columns: Vec<(String, Vec<f64>)> = names.map(|name| (name, Vec::new())).collect();
        let mut times_s: Vec<f64> = Vec::new();
        for (row, record) in reader.records().enumerate() {
            let record = record.map_err(|error| error.to_string())?;
            let number = |column: usize, name: &str| match record.get(column).unwrap_or_default() {
                "" => Ok(f64::NAN),
                text => text
                    .parse::<f64>()
                    .map_err(|_| format!("line {}, `{name}`: `{text}` is not a number", row + 2)),
            };
            let time = number(0, TIME)?;
            if !time.is_finite() || times_s.last().is_some_and(|last| *last >= time) {
                return Err(format!("line {}: `{TIME}` must grow from row to row", row + 2));
            }
            times_s.push(time);
            for (index, (name, values)) in columns.iter_mut().enumerate() {
                let value = number(index + 1, name)?;
                if value < 0.0 || value.is_infinite() {
                    return Err(format!(
                        "line {}, `{name}`: `{value:e}` is refused; expected a number from 0, or nothing for a gap",
                        row + 2
                    ));
                }
                values.push(value);
            }
        }
        if times_s.len() < 2 {
            return Err("it has fewer than two rows".to_owned());
        }
        Ok(Self { times_s, columns })
    }

    /// Distance of its rows: the median, in whole seconds.
    pub fn step_s(&self) -> u64 {
        let mut apart: Vec<f64> = self.times_s.windows(2).map(|pair| pair[1] - pair[0]).collect();
        apart.sort_by(f64::total_cmp);
        kendall_units::whole_u64(kendall_stats::sample::sorted_quantile(&apart, 0.5).round()).max(1)
    }

    /// The time that it holds, by the steps of a system.
    pub fn grid(&self, system: &System) -> Result<Grid, crate::grid::GridError> {
        let at =
            |time: Option<&f64>| kendall_units::whole_u64(time.copied().unwrap_or(0.0).round());
        Grid::new(at(self.times_s.first()), at(self.times_s.last()), system.step_s)
    }

    /// The system with this table's columns in place of its queries.
    ///
    /// # Errors
    /// [`SystemError::Refused`] for a column of no tier or quantity, or a tier without figures.
    pub fn system(&self, system: &System) -> Result<System, SystemError> {
        let mut own = system.clone();
        // A row says what was since the row before it; no scrapes lie between.
        (own.window_s, own.scrape_s) = (own.step_s, 0);
        for tier in &mut own.tiers {
            tier.queries.clear();
        }
        for (name, _) in &self.columns {
            let refused = |expected: String| SystemError::Refused {
                key: format!("column `{name}`"),
                value: "it".to_owned(),
                expected,
            };
            let mut parts = name.splitn(3, '.');
            let (tier, quantity) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
            let known: Vec<&str> = system.tiers.iter().map(|tier| tier.name.as_str()).collect();
            let found = own.tiers.iter_mut().find(|other| other.name == tier);
            let found = found.ok_or_else(|| {
                refused(format!("TIER.QUANTITY with one of the tiers {}", known.join(", ")))
            })?;
            let quantities: Vec<&str> = Quantity::ALL.iter().map(|(_, name)| *name).collect();
            let quantity = Quantity::ALL.iter().find(|(_, name)| *name == quantity);
            let (quantity, _) = quantity.ok_or_else(|| {
                refused(format!("TIER.QUANTITY with one of {}", quantities.join(", ")))
            })?;
            let several = quantity.is_split() || *quantity == Quantity::Buckets;
            if several != parts.next().is_some() {
                let form = "TIER.buckets.BOUND, TIER.classes.NAME and the like, TIER.QUANTITY else";
                return Err(refused(form.to_owned()));
            }
            found.queries.insert(*quantity, format!("{tier}.{}", quantity.name()));
        }
        Ok(own)
    }

    /// Values of a column on a grid: the row nearest to each moment, within half a step; of several their mean.
    fn on_grid(&self, values: &[f64], grid: &Grid) -> Vec<f64> {
        let mut found = vec![(0.0, 0_u64); grid.len()];
        let from = kendall_units::exact_f64(grid.from_s);
        let step = kendall_units::exact_f64(grid.step_s);
        for (time, value) in self.times_s.iter().zip(values).filter(|(_, value)| !value.is_nan()) {
            let place = ((time - from) / step).round();
            if place >= 0.0 {
                let index = usize::try_from(kendall_units::whole_u64(place)).unwrap_or(usize::MAX);
                if let Some((sum, count)) = found.get_mut(index) {
                    *sum += value;
                    *count += 1;
                }
            }
        }
        let mean = |(sum, count)| sum / kendall_units::exact_f64(count);
        // Of none: 0/0, a gap.
        found.into_iter().map(mean).collect()
    }
}

impl Source for CsvTable {
    fn range(&mut self, query: &str, grid: &Grid) -> Result<Vec<Series>, SourceError> {
        let inside = format!("{query}.");
        let found = self.columns.iter().filter_map(|(name, values)| {
            let rest = name.strip_prefix(&inside);
            if rest.is_none() && name != query {
                return None;
            }
            let label = if query.ends_with(".buckets") { "le" } else { "class" };
            let labels = rest.map(|rest| (label.to_owned(), rest.to_owned())).into_iter().collect();
            Some(Series { labels, values: self.on_grid(values, grid) })
        });
        Ok(found.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch;

    const TABLE: &str = "time_s, web.throughput, web.busy, web.buckets.0.1, web.buckets.+Inf, web.classes.GET\n\
        1000,10,1,8,10,9\n1005,12,1.5,9,12,11\n1010,,,,,\n1020.4,14,2,10,14,13\n";

    fn system() -> System {
        System::parse(
            "name = 'x'\nentry = 'web'\nstep = '5s'\n[tiers.web]\nservers = 4\npreset = 'http'",
        )
        .unwrap()
    }

    #[test]
    fn columns_take_the_place_of_queries() {
        let mut table = CsvTable::parse(TABLE).unwrap();
        let system = table.system(&system()).unwrap();
        let grid = table.grid(&system).unwrap();
        let observed = fetch(&system, &mut table, grid).unwrap();
        let tier = &observed.tiers[0];
        let rates = &tier.series[&Quantity::Throughput];
        assert_eq!(
            (rates[0].to_bits(), rates[1].to_bits()),
            (10.0_f64.to_bits(), 12.0_f64.to_bits())
        );
        assert!(rates[2].is_nan() && rates[3].is_nan() && rates[4] > 13.0, "{rates:?}");
        assert_eq!(tier.buckets.len(), 2);
        assert!(tier.buckets[1].0.is_infinite());
        assert_eq!(
            tier.parts(Quantity::Classes).map(|(name, _)| name).collect::<Vec<_>>(),
            ["GET"]
        );
    }

    /// Rows are not scrapes: each says what was since the one before it.
    #[test]
    fn counts_of_a_poisson_process_in_rows_are_as_poisson() {
        use rand::SeedableRng as _;
        use rand_distr::Distribution as _;
        let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(1);
        let count = rand_distr::Poisson::new(450.0).unwrap();
        let mut text = "time_s,web.throughput,web.busy\n".to_owned();
        for row in 0..900 {
            let rate = count.sample(&mut random) / 15.0;
            text.push_str(&format!("{},{rate},{}\n", 15_000 + 15 * row, rate * 0.02));
        }
        let mut table = CsvTable::parse(&text).unwrap();
        assert_eq!(table.step_s(), 15);
        let text = "name = 'x'\nentry = 'web'\n[tiers.web]\nservers = 4\npreset = 'http'";
        let system = table.system(&System::parse(text).unwrap()).unwrap();
        let grid = table.grid(&system).unwrap();
        let observed = fetch(&system, &mut table, grid).unwrap();
        let found = crate::arrivals(&system, &observed, 0).unwrap().dispersion;
        // 300 triples: a standard error of √(2/300) around 1.
        assert!((found[0].index.center - 1.0).abs() < 3.5 * 0.082, "{:?}", found[0]);
        assert!((found[0].over_s - 15.0).abs() < 1e-9);
    }

    #[test]
    fn rows_that_lie_closer_than_seconds_count_as_their_mean() {
        let text = "time_s,web.busy\n1000.0,1\n1000.4,3\n1001,4\n1001.4,\n1002.2,6\n1002.6,5\n";
        let table = CsvTable::parse(text).unwrap();
        assert_eq!(table.step_s(), 1);
        let found = table.on_grid(&table.columns[0].1, &Grid::new(1_000, 1_004, 1).unwrap());
        assert_eq!(found[..4], [2.0, 4.0, 6.0, 5.0]);
        assert!(found[4].is_nan());
    }

    #[test]
    fn what_is_no_table_is_refused_with_its_place() {
        for (from, to, reason) in [
            ("time_s", "time", "must be `time_s`"),
            ("time_s,", "time_s;", "separated by \";\""),
            ("1005", "990", "line 3"),
            ("1.5", "one", "line 3, `web.busy`: `one`"),
            // No rate, time, share or number is below 0.
            ("1.5", "-1.5", "line 3, `web.busy`: `-1.5e0` is refused"),
            ("1.5", "1e999", "line 3, `web.busy`: `inf` is refused"),
        ] {
            let error = CsvTable::parse(&TABLE.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        for (from, to, reason) in [
            ("web.busy", "db.busy", "one of the tiers web"),
            ("web.busy", "web.bussy", "one of servers"),
            ("web.busy", "web.busy.5", "TIER.buckets.BOUND"),
            ("web.buckets.0.1", "web.buckets", "TIER.buckets.BOUND"),
        ] {
            let table = CsvTable::parse(&TABLE.replacen(from, to, 1)).unwrap();
            let error = table.system(&system()).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
