//! A model as the file that it could have been read from.

use toml::{Table, Value};

use super::{Batch, Center, Class, Discipline, Model, Station, Workload};
use crate::Distribution;

/// A model that cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} of `{of}` cannot be written to a model file yet")]
pub struct WriteError {
    what: &'static str,
    /// Of which station or class.
    of: String,
}

fn cannot(what: &'static str, of: &str) -> WriteError {
    WriteError { what, of: of.to_owned() }
}

impl Model {
    /// The model as TOML, which read again is the same model: of one class with exponential times,
    /// queues and delays with visits, rates that depend on the number there, and pools. `comment`
    /// stands before it, line by line.
    ///
    /// # Errors
    /// [`WriteError`] for what it does not write: several classes, routes, other distributions,
    /// finite buffers, impatience, forks.
    pub fn to_toml(&self, comment: &str) -> Result<String, WriteError> {
        let [class] = self.classes.as_slice() else {
            return Err(cannot("several classes", &self.name));
        };
        if !self.routes.is_empty() {
            return Err(cannot("routes", &self.name));
        }
        let mut file = Table::new();
        put(&mut file, "name", self.name.as_str());
        workload(&mut file, class)?;
        if self.solver != "auto" {
            put(&mut file, "solver", self.solver.as_str());
        }
        if !self.quantiles.is_empty() {
            put(&mut file, "percentiles", list(self.quantiles.iter().map(|q| 100.0 * q)));
        }
        if let Some(before) = self.rate_before {
            put(&mut file, "arrival_rate_before_per_s", before);
        }
        let stations: Vec<Table> = self.stations.iter().map(station).collect::<Result<_, _>>()?;
        put(&mut file, "stations", list(stations));
        let mut pools = Vec::new();
        for pool in &self.pools {
            if pool.queue_capacity.is_some() {
                return Err(cannot("a limited queue", &pool.name));
            }
            let names = pool.stations.iter().map(|index| self.stations[*index].name.as_str());
            let mut table = Table::new();
            put(&mut table, "name", pool.name.as_str());
            put(&mut table, "tokens", whole(pool.tokens));
            put(&mut table, "stations", list(names));
            pools.push(table);
        }
        if !pools.is_empty() {
            put(&mut file, "pools", list(pools));
        }
        let comment: String = comment.lines().map(|line| format!("# {line}\n")).collect();
        Ok(format!("{comment}{file}"))
    }
}

fn workload(file: &mut Table, class: &Class) -> Result<(), WriteError> {
    match &class.workload {
        Workload::Open { arrival_rate_per_s, interarrival, batch } => {
            if !interarrival.is_exponential() || *batch != Batch::Fixed(1) {
                return Err(cannot("arrivals that are not Poisson", &class.name));
            }
            put(file, "arrival_rate_per_s", *arrival_rate_per_s);
        }
        Workload::Closed { population, think_time } => {
            if !think_time.is_exponential() && think_time.mean() > 0.0 {
                return Err(cannot("a think time that is not exponential", &class.name));
            }
            put(file, "population", whole(*population));
            if think_time.mean() > 0.0 {
                put(file, "think_time_s", think_time.mean());
            }
        }
    }
    Ok(())
}

fn station(station: &Station) -> Result<Table, WriteError> {
    let cannot = |what| Err(cannot(what, &station.name));
    if station.capacity.is_some() {
        return cannot("a finite buffer");
    }
    if station.patience.is_some() || station.balking != super::Balking::Never {
        return cannot("impatience");
    }
    if station.fork.is_some() {
        return cannot("a fork");
    }
    let [Some(demand)] = station.demands.as_slice() else { return cannot("the service") };
    let Distribution::Exponential { mean_s } = demand.service else {
        return cannot("a service time that is not exponential");
    };
    let mut table = Table::new();
    put(&mut table, "name", station.name.as_str());
    match (station.center, station.discipline) {
        (Center::Delay, _) => put(&mut table, "type", "delay"),
        (Center::Queue, Discipline::Fcfs) => {}
        (Center::Queue, Discipline::Ps) => put(&mut table, "discipline", "ps"),
        (Center::Queue, _) => return cannot("the discipline"),
    }
    if station.center == Center::Queue && station.servers != 1 {
        put(&mut table, "servers", whole(station.servers));
    }
    put(&mut table, "service_time_s", mean_s);
    if demand.visits.total_cmp(&1.0).is_ne() {
        put(&mut table, "visits", demand.visits);
    }
    if !station.rate_multipliers.is_empty() {
        put(&mut table, "rate_multipliers", list(station.rate_multipliers.iter().copied()));
    }
    Ok(table)
}

pub(crate) fn put(table: &mut Table, key: &str, value: impl Into<Value>) {
    table.insert(key.to_owned(), value.into());
}

pub(crate) fn list<V: Into<Value>>(values: impl IntoIterator<Item = V>) -> Value {
    Value::Array(values.into_iter().map(Into::into).collect())
}

pub(crate) fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Pool;

    #[test]
    fn what_is_written_reads_as_the_same_model() {
        let stations = vec![
            Station::delay("network").with_service_time(0, 0.000_123_456_789_012_3),
            Station::queue("proxies \"1\"", 3).with_service_time(0, 1e-7).with_visits(0, 1.0 / 3.0),
            Station {
                rate_multipliers: vec![1.0, 1.7, 2.1],
                ..Station::queue("database", 1).with_service_time(0, 0.004)
            },
        ];
        let pool = Pool {
            name: "workers".to_owned(),
            tokens: 8,
            stations: vec![1, 2],
            classes: vec![0],
            queue_capacity: None,
        };
        for class in [Class::closed("customers", 66, 0.0), Class::open("customers", 12.5)] {
            let model = Model::new("a study", vec![class], stations.clone()).unwrap();
            let model = model.with_pools(vec![pool.clone()]).unwrap();
            let text = model.to_toml("From a study.\nSecond line.").unwrap();
            let read: Model = toml::from_str(&text).unwrap();
            assert_eq!(read, model, "{text}");
            assert!(text.starts_with("# From a study.\n# Second line.\n"));
        }
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        let full =
            Station { capacity: Some(3), ..Station::queue("q", 1).with_service_time(0, 1.0) };
        let model = Model::new("m", vec![Class::open("c", 0.5)], vec![full]).unwrap();
        let error = model.to_toml("").unwrap_err();
        assert_eq!(
            error.to_string(),
            "a finite buffer of `q` cannot be written to a model file yet"
        );
    }
}
