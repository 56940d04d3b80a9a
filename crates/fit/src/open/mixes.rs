//! The network with several classes, where operations differ: what one request of each class costs at
//! each tier, so that another mix is another load.
//!
//! Classes are those of the entry. All classes wait alike at a tier (first come, first served), and
//! each has its own service there.

use kendall_stats::sample;
use kendall_units::exact_f64;

use super::monitored::{Monitored, Monitoring, Window};
use super::network::{FEWEST_SCORED, Network};
use super::residence::Residence;
use super::variability::Variability;
use crate::demands::{self, Demand, LoadPoint};
use crate::model::{CONFIDENCE, Number};
use crate::score::Errors;

/// Classes with a smaller share of a tier's requests have no demand of their own.
pub const NOTABLE: f64 = 0.01;

/// Mixes that differ this little do not tell demands of classes apart.
///
/// # Source
/// Belsley, Kuh and Welsch 1980: from 30 on, collinearity does harm.
const HIGH_CONDITION: f64 = 30.0;

/// Classes whose sum differs from the throughput of the entry by more than this are not those of its
/// requests.
const SAME_REQUESTS: f64 = 0.05;

/// Windows for each coefficient, below which a fit follows chance.
const WINDOWS_A_CLASS: usize = 4;

/// What classes that are too rare for a demand of their own are called together.
const OTHERS: &str = "others";

/// A class of requests in the network.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct NetworkClass {
    /// Its labels' values.
    pub name: String,
    /// Load of now, 1/s: the system's, divided as in the last tenth of the windows that are used.
    pub rate_now_per_s: f64,
    /// Time for which one of its requests keeps a server of each tier busy, s.
    pub demands_s: Vec<Number>,
    /// Mean response time over the windows that were fitted, s, where it is known.
    pub response_time_s: Option<f64>,
}

/// Demands of classes, with how much better a network that knows them is.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ClassNetwork {
    /// The most frequent first.
    pub classes: Vec<NetworkClass>,
    /// How long requests stay, beside M/M/m at the mix of each window, by tier.
    pub residences: Vec<Residence>,
    pub fitted_windows: usize,
    /// How it does in the other windows, each at its own mix.
    pub score: Option<Errors>,
    /// How the network of one class does in the same windows.
    pub score_of_one_class: Option<Errors>,
}

impl ClassNetwork {
    /// Fits the classes of the entry; `None` where it has fewer than two.
    pub fn fit(
        monitored: &Monitored,
        monitoring: &dyn Monitoring,
        network: &Network,
    ) -> Option<Result<Self, String>> {
        let columns = columns(monitored, monitoring)?;
        Some(Self::fit_columns(monitored, monitoring, network, &columns))
    }

    fn fit_columns(
        monitored: &Monitored,
        monitoring: &dyn Monitoring,
        network: &Network,
        columns: &[(String, Vec<f64>)],
    ) -> Result<Self, String> {
        let (used, tiers) = (&monitored.windows, &monitored.tiers);
        same_requests(monitored, columns)?;
        let seen = network.fitted_windows.min(used.len());
        if seen < WINDOWS_A_CLASS * columns.len() {
            return Err(format!(
                "{seen} windows for {} classes, {} are needed: analyze a longer time",
                columns.len(),
                WINDOWS_A_CLASS * columns.len()
            ));
        }
        let mut demands = Vec::with_capacity(tiers.len());
        for index in 0..tiers.len() {
            demands.push(demands_at(monitored, network, (&used[..seen], columns), index)?);
        }
        let residence = |index: usize| {
            let service = |(place, window): (usize, &Window)| {
                let pairs = columns.iter().zip(&demands[index]);
                let busy: f64 = pairs.map(|((_, rates), demand)| rates[place] * demand.value).sum();
                // Demand per visit needs the tier's own throughput.
                let here = monitored.requests_per_s(window, index).filter(|rate| *rate > 0.0)?;
                Some(busy / here)
            };
            let services: Vec<Option<f64>> = used[..seen].iter().enumerate().map(service).collect();
            let center = &network.centers[index];
            let factor = center.variability.as_ref().and_then(Variability::factor);
            Residence::fit(monitored, &used[..seen], index, center.held, &services)
                .or_measured(factor)
        };
        let residences = (0..tiers.len()).map(residence).collect();
        let numbers: Vec<usize> = used[..seen].iter().map(|window| window.number).collect();
        let recent = used.len() - used.len().div_ceil(10);
        let class = |(number, (name, rates)): (usize, &(String, Vec<f64>))| NetworkClass {
            name: name.clone(),
            rate_now_per_s: sample::mean(&rates[recent..]),
            demands_s: demands.iter().map(|of_tier: &Vec<Number>| of_tier[number]).collect(),
            response_time_s: monitoring.class_response_s(name, &numbers),
        };
        let mut found = Self {
            classes: columns.iter().enumerate().map(class).collect(),
            residences,
            fitted_windows: seen,
            score: None,
            score_of_one_class: None,
        };
        let kept = || used.iter().enumerate().skip(seen);
        let scored = |predicted: &dyn Fn(usize, &Window) -> Option<f64>| {
            let pair = |(place, window): (usize, &Window)| {
                Some((predicted(place, window)?, window.tiers[monitored.entry].response_time_s?))
            };
            Errors::of(kept().filter_map(pair), FEWEST_SCORED)
        };
        let of_window =
            |place: usize| -> Vec<f64> { columns.iter().map(|(_, rates)| rates[place]).collect() };
        found.score = scored(&|place, _| {
            let rates = of_window(place);
            let all: f64 = rates.iter().sum();
            Some(found.network_at(network, &rates).at(all).ok()?.response_time_s)
        });
        found.score_of_one_class =
            scored(&|_, window| Some(network.at(monitored.rate(window)?).ok()?.response_time_s));
        Ok(found)
    }

    /// The same with so many times the load of now, of which windows that are used need not know: a load that changes is
    /// in none of them.
    #[must_use]
    pub fn scaled(mut self, times: f64) -> Self {
        for class in &mut self.classes {
            class.rate_now_per_s *= times;
        }
        self
    }

    /// The network at a mix: what a visit to each tier takes on average.
    pub fn network_at(&self, network: &Network, rates_per_s: &[f64]) -> Network {
        let all: f64 = rates_per_s.iter().sum();
        let mut at = network.clone();
        for (index, center) in at.centers.iter_mut().enumerate() {
            let (mut mean, mut square) = (0.0, 0.0);
            for (class, rate) in self.classes.iter().zip(rates_per_s) {
                let demand = class.demands_s[index];
                mean += rate / all * demand.value;
                square += (rate / all * demand.standard_error).powi(2);
            }
            let visits = center.visits;
            center.service_time_s =
                Number { value: mean / visits, standard_error: square.sqrt() / visits };
            center.residence = self.residences[index];
        }
        at
    }

    /// Mean response time of each class at a mix, s: all wait alike, each takes its own service.
    ///
    /// # Errors
    /// In words, when there is no steady state.
    pub fn responses_s(&self, network: &Network, rates_per_s: &[f64]) -> Result<Vec<f64>, String> {
        let all: f64 = rates_per_s.iter().sum();
        let mean_s = self.network_at(network, rates_per_s).at(all)?.response_time_s;
        let own = |class: &NetworkClass| -> f64 {
            let pairs = class.demands_s.iter().zip(&self.residences);
            pairs.map(|(demand, residence)| residence.held_up.value * demand.value).sum()
        };
        let usual: f64 =
            self.classes.iter().zip(rates_per_s).map(|(class, rate)| rate / all * own(class)).sum();
        Ok(self.classes.iter().map(|class| (mean_s + own(class) - usual).max(0.0)).collect())
    }

    /// Load of now by class, 1/s.
    pub fn rates_now_per_s(&self) -> Vec<f64> {
        self.classes.iter().map(|class| class.rate_now_per_s).collect()
    }
}

/// Throughput of each class in each window that is used, the most frequent first; rare ones together.
/// `None` with fewer than two classes.
fn columns(monitored: &Monitored, monitoring: &dyn Monitoring) -> Option<Vec<(String, Vec<f64>)>> {
    let numbers: Vec<usize> = monitored.windows.iter().map(|window| window.number).collect();
    let mut found = monitoring.classes(&numbers);
    let sum = |rates: &Vec<f64>| rates.iter().sum::<f64>();
    found.sort_by(|a, b| sum(&b.1).total_cmp(&sum(&a.1)));
    let all: f64 = found.iter().map(|(_, rates)| sum(rates)).sum();
    let notable = found.iter().filter(|(_, rates)| sum(rates) >= NOTABLE * all).count();
    let rare = found.split_off(notable);
    if !rare.is_empty() {
        let together = |place: usize| rare.iter().map(|(_, rates)| rates[place]).sum::<f64>();
        let rates: Vec<f64> = (0..numbers.len()).map(together).collect();
        // Too rare even together for a demand of their own: counted with the most frequent.
        let too_rare = sum(&rates) < NOTABLE * all;
        match found.first_mut().filter(|_| too_rare) {
            Some((_, first)) => first.iter_mut().zip(&rates).for_each(|(into, more)| *into += more),
            None => found.push((OTHERS.to_owned(), rates)),
        }
    }
    (found.len() > 1).then_some(found)
}

fn same_requests(monitored: &Monitored, columns: &[(String, Vec<f64>)]) -> Result<(), String> {
    let classes: f64 = columns.iter().flat_map(|(_, rates)| rates).sum();
    let entry: f64 = monitored.windows.iter().filter_map(|window| monitored.rate(window)).sum();
    let difference = classes / entry - 1.0;
    if difference.abs() > SAME_REQUESTS {
        return Err(format!(
            "the classes of the entry count {:.2} for each request of the system: they are not classes of \
             its requests",
            classes / entry
        ));
    }
    Ok(())
}

/// Busy servers of a tier, those held for others left out, against the throughputs of all classes.
fn demands_at(
    monitored: &Monitored,
    network: &Network,
    (seen, columns): (&[Window], &[(String, Vec<f64>)]),
    index: usize,
) -> Result<Vec<Number>, String> {
    let name = &monitored.tiers[index].name;
    let servers = exact_f64(monitored.tiers[index].servers);
    let center = &network.centers[index];
    if center.unknown {
        let Number { value, standard_error } = center.service_time_s;
        let of_all =
            Number { value: center.visits * value, standard_error: center.visits * standard_error };
        return Ok(vec![of_all; columns.len()]);
    }
    let points: Vec<LoadPoint> = seen
        .iter()
        .enumerate()
        .filter_map(|(place, window)| {
            let busy = monitored.busy(window, index, center.held)?;
            let throughputs_per_s = columns.iter().map(|(_, rates)| rates[place]).collect();
            Some(LoadPoint { utilization: (busy / servers).clamp(0.0, 1.0), throughputs_per_s })
        })
        .collect();
    let demands = regress_classes(&points, servers).map_err(|why| format!("`{name}`: {why}"))?;
    let fitted = |demand: Demand| Number {
        value: demand.estimate.center,
        standard_error: demand.standard_error.unwrap_or(demand.estimate.center),
    };
    Ok(demands.into_iter().map(fitted).collect())
}

/// Demands of all classes of a tier, separated by how their throughputs vary.
///
/// # Errors
/// In words, when they cannot be separated.
pub fn regress_classes(points: &[LoadPoint], servers: f64) -> Result<Vec<Demand>, String> {
    let options = demands::Options { servers, background: false, confidence: CONFIDENCE };
    let fit = demands::regress(points, &options).map_err(|error| error.to_string())?;
    if fit.condition_number >= HIGH_CONDITION {
        return Err(format!(
            "the classes rise and fall together (condition number {:.0}, {HIGH_CONDITION:.0} and \
             more do harm): their demands cannot be separated; analyze a time in which the mix \
             varies",
            fit.condition_number
        ));
    }
    Ok(fit.demands)
}
