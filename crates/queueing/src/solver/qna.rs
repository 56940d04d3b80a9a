//! How arrivals vary at each station of an open network, after the queueing network analyzer.

use kendall_units::exact_f64;
use nalgebra::{DMatrix, DVector};

use crate::model::{Model, Place, Station, Workload, legs_from_visits};

/// A stream into a station: where from, its rate, its squared coefficient of variation where that is
/// known beforehand, and else the share of what leaves its station.
struct Stream {
    from: Option<usize>,
    rate: f64,
    scv: f64,
    share: f64,
}

/// What of a station the streams behind it depend on.
pub(super) struct Server {
    /// Busy share of one server.
    pub(super) utilization: f64,
    /// c² of the services of all who come; `None` where customers leave as they would from a queue
    /// with exponential service, or no customer waits.
    pub(super) scv: Option<f64>,
}

/// c² of the gaps between arrivals at each station; 1 where they are Poisson. `rates` are visits per
/// second by station and class.
///
/// # Source
/// Whitt 1983 (queueing network analyzer): gaps and services independent, superposition by the hybrid
/// of the asymptotic and the stationary-interval method, splitting at random.
pub(super) fn arrival_scvs(model: &Model, rates: &[Vec<f64>], servers: &[Server]) -> Vec<f64> {
    let streams = streams(model, rates);
    let size = streams.len();
    let (mut matrix, mut right) = (DMatrix::identity(size, size), DVector::from_element(size, 1.0));
    for (to, list) in streams.iter().enumerate() {
        let all: f64 = list.iter().map(|stream| stream.rate).sum();
        if all <= 0.0 {
            continue;
        }
        let spread: f64 = list.iter().map(|stream| (stream.rate / all).powi(2)).sum();
        let idle = (1.0 - servers[to].utilization).max(0.0);
        let weight = 1.0 / (1.0 + 4.0 * idle * idle * (1.0 / spread - 1.0));
        for stream in list {
            let part = weight * stream.rate / all;
            let Some(from) = stream.from else {
                right[to] += part * (stream.scv - 1.0);
                continue;
            };
            let station = &model.stations[from];
            let (busy, q) = (servers[from].utilization.min(1.0), stream.share);
            let m = exact_f64(station.servers);
            let (busy, x) = match (station.is_delay(), servers[from].scv) {
                (true, _) => (0.0, 1.0),
                (false, None) => (busy, 1.0),
                (false, Some(scv)) => (busy, 1.0 + (scv.max(0.2) - 1.0) / m.sqrt()),
            };
            right[to] += part * (q * busy * busy * x - q);
            matrix[(to, from)] -= part * q * (1.0 - busy * busy);
        }
    }
    let solved = matrix.lu().solve(&right);
    let fits = solved.filter(|scvs: &DVector<f64>| scvs.iter().all(|scv| scv.is_finite()));
    fits.map_or_else(|| vec![1.0; size], |scvs| scvs.iter().map(|scv| scv.max(0.0)).collect())
}

/// Streams into each station.
fn streams(model: &Model, rates: &[Vec<f64>]) -> Vec<Vec<Stream>> {
    let mut streams: Vec<Vec<Stream>> = model.stations.iter().map(|_| Vec::new()).collect();
    let all: Vec<f64> = rates.iter().map(|row| row.iter().sum()).collect();
    let mut add = |class: usize, from: Place, to: Place, probability: f64| {
        let Place::Station(to) = to else { return };
        match from {
            Place::Outside => {
                let Workload::Open { arrival_rate_per_s, interarrival, .. } =
                    &model.classes[class].workload
                else {
                    return;
                };
                let scv = probability * interarrival.scv() + 1.0 - probability;
                let rate = arrival_rate_per_s * probability;
                streams[to].push(Stream { from: None, rate, scv, share: 1.0 });
            }
            Place::Station(from) => {
                let rate = rates[from][class] * probability;
                match streams[to].iter_mut().find(|stream| stream.from == Some(from)) {
                    Some(stream) => stream.rate += rate,
                    None => {
                        streams[to].push(Stream { from: Some(from), rate, scv: 1.0, share: 0.0 })
                    }
                }
            }
        }
    };
    for leg in &model.routes {
        add(leg.class, leg.from, leg.to, leg.probability);
    }
    if model.routes.is_empty() {
        for class in 0..model.classes.len() {
            let visits = |(index, station): (usize, &Station)| {
                let visits = station.demand_at(class)?.visits;
                (visits > 0.0).then_some((index, visits))
            };
            let visits: Vec<(usize, f64)> =
                model.stations.iter().enumerate().filter_map(visits).collect();
            for (from, to, probability) in legs_from_visits(&visits) {
                add(class, from, to, probability);
            }
        }
    }
    for list in &mut streams {
        for stream in list {
            if let Some(from) = stream.from
                && all[from] > 0.0
            {
                stream.share = (stream.rate / all[from]).min(1.0);
            }
        }
    }
    streams
}
