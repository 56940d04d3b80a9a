//! `--demands-only`: what each station is asked for, whether or not it can do it.

use kendall_queueing::Model;
use kendall_queueing::model::{ModelError, Station};
use kendall_report::document::{Level, Table, Unit};
use kendall_units::exact_f64;
use serde::Serialize;

use super::human::{TIME, titled};
use crate::exit::{Exit, refused};
use crate::output::{self, Format};

/// A station under the arrivals of all open classes.
#[derive(Debug, Serialize)]
struct Asked {
    station: String,
    /// Arrivals at the station: λ times visits.
    arrival_rate_per_s: f64,
    /// Of a request of each class.
    demand_s: Vec<f64>,
    servers: Option<u64>,
    /// Of what it does with any number of customers: with rates of its own, the last of them. `None` where no
    /// customer waits.
    utilization: Option<f64>,
    overloaded: bool,
}

pub(super) fn print(model: &Model, format: Format) -> anyhow::Result<Exit> {
    let asked = asked(model).map_err(refused)?;
    output::print(format, &asked, || {
        let mut document = titled("demands", model);
        let mut table = Table::of("stations", "Stations", &asked)
            .column("station", "station", Unit::Text, |one| one.station.as_str())
            .column("arrival_rate_per_s", "arrivals", Unit::Rate, |one| one.arrival_rate_per_s);
        for (place, class) in model.classes.iter().enumerate() {
            let label = format!("demand of {}", class.name);
            table = table
                .column(format!("demand_{place}_s"), label, TIME, move |one| one.demand_s[place]);
        }
        let table = table
            .column("servers", "servers", Unit::Count, |one| {
                (one.servers.map(exact_f64), "unlimited")
            })
            .column("utilization", "utilization", Unit::Number, |one| {
                (one.utilization, "no queue")
            });
        document.table(table.table());
        for one in asked.iter().filter(|one| one.overloaded) {
            let what =
                format!("`{}` is overloaded: more is asked of it than it can do", one.station);
            document.note(Level::Doubt, what);
        }
        document
    })?;
    Ok(Exit::Done)
}

fn asked(model: &Model) -> Result<Vec<Asked>, ModelError> {
    let visits = model.visits()?;
    let of = |(place, station): (usize, &Station)| {
        let visits = &visits[place];
        let service_s = |class| station.demand_at(class).map_or(0.0, |one| one.service.mean());
        let classes = || model.classes.iter().enumerate();
        let demand_s: Vec<f64> = classes().map(|(c, _)| visits[c] * service_s(c)).collect();
        let arrival_rate_per_s =
            classes().map(|(c, one)| one.arrival_rate_per_s() * visits[c]).sum();
        let offered: f64 = classes().map(|(c, one)| one.arrival_rate_per_s() * demand_s[c]).sum();
        let waits = !station.is_delay();
        let utilization = waits.then(|| offered / station.rate_multiplier(u64::MAX));
        Asked {
            station: station.name.clone(),
            arrival_rate_per_s,
            demand_s,
            servers: waits.then_some(station.servers),
            utilization,
            overloaded: utilization.is_some_and(|share| share >= 1.0),
        }
    };
    Ok(model.stations.iter().enumerate().map(of).collect())
}
