//! A model as the file that it could have been read from.

use std::fmt::Write as _;

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
        let mut text = String::new();
        for line in comment.lines() {
            text += &format!("# {line}\n");
        }
        let [class] = self.classes.as_slice() else {
            return Err(cannot("several classes", &self.name));
        };
        if !self.routes.is_empty() {
            return Err(cannot("routes", &self.name));
        }
        line(&mut text, "name", &quoted(&self.name));
        workload(&mut text, class)?;
        if self.solver != "auto" {
            line(&mut text, "solver", &quoted(&self.solver));
        }
        if !self.quantiles.is_empty() {
            line(&mut text, "percentiles", &numbers(self.quantiles.iter().map(|q| 100.0 * q)));
        }
        if let Some(before) = self.rate_before {
            line(&mut text, "arrival_rate_before_per_s", &number(before));
        }
        for one in &self.stations {
            text += "\n[[stations]]\n";
            station(&mut text, one)?;
        }
        for pool in &self.pools {
            if pool.queue_capacity.is_some() {
                return Err(cannot("a limited queue", &pool.name));
            }
            text += "\n[[pools]]\n";
            line(&mut text, "name", &quoted(&pool.name));
            line(&mut text, "tokens", &pool.tokens.to_string());
            let names = pool.stations.iter().map(|index| quoted(&self.stations[*index].name));
            line(&mut text, "stations", &format!("[{}]", names.collect::<Vec<_>>().join(", ")));
        }
        Ok(text)
    }
}

fn workload(text: &mut String, class: &Class) -> Result<(), WriteError> {
    match &class.workload {
        Workload::Open { arrival_rate_per_s, interarrival, batch } => {
            if !interarrival.is_exponential() || *batch != Batch::Fixed(1) {
                return Err(cannot("arrivals that are not Poisson", &class.name));
            }
            line(text, "arrival_rate_per_s", &number(*arrival_rate_per_s));
        }
        Workload::Closed { population, think_time } => {
            if !think_time.is_exponential() && think_time.mean() > 0.0 {
                return Err(cannot("a think time that is not exponential", &class.name));
            }
            line(text, "population", &population.to_string());
            if think_time.mean() > 0.0 {
                line(text, "think_time_s", &number(think_time.mean()));
            }
        }
    }
    Ok(())
}

fn station(text: &mut String, station: &Station) -> Result<(), WriteError> {
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
    line(text, "name", &quoted(&station.name));
    match (station.center, station.discipline) {
        (Center::Delay, _) => line(text, "type", "\"delay\""),
        (Center::Queue, Discipline::Fcfs) => {}
        (Center::Queue, Discipline::Ps) => line(text, "discipline", "\"ps\""),
        (Center::Queue, _) => return cannot("the discipline"),
    }
    if station.center == Center::Queue && station.servers != 1 {
        line(text, "servers", &station.servers.to_string());
    }
    line(text, "service_time_s", &number(mean_s));
    if demand.visits.total_cmp(&1.0).is_ne() {
        line(text, "visits", &number(demand.visits));
    }
    if !station.rate_multipliers.is_empty() {
        line(text, "rate_multipliers", &numbers(station.rate_multipliers.iter().copied()));
    }
    Ok(())
}

fn line(text: &mut String, key: &str, value: &str) {
    text.push_str(key);
    text.push_str(" = ");
    text.push_str(value);
    text.push('\n');
}

/// As TOML writes a number: the shortest that reads as the same.
fn number(value: f64) -> String {
    format!("{value:?}")
}

fn numbers(values: impl Iterator<Item = f64>) -> String {
    format!("[{}]", values.map(number).collect::<Vec<_>>().join(", "))
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => write!(out, "\\u{:04X}", u32::from(c)).unwrap_or_default(),
            c => out.push(c),
        }
    }
    out.push('"');
    out
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
