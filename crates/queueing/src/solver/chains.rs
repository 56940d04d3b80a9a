//! A model as a product-form network: classes that turn into one another become one chain.

use super::qna::{Server, arrival_scvs};
use super::{Caveat, ClassResult, Solution, SolveError, StationResult};
use crate::Distribution;
use crate::model::{Class, Discipline, Model, ModelError, Station, Workload};
use crate::network::{
    self, Accuracy, InLine, Kind, Load, MeasuredError, Network, NetworkSolution, Resource,
    asymptotic_bounds, bottleneck, fork_join_general, multi_class_bounds, range,
};
use crate::station::{GgmFormula, ggm};

/// A model, its chains, and the network of the chains.
pub(super) struct Chained {
    pub(super) network: Network,
    chains: Vec<Vec<usize>>,
    /// V: `[station][class]`, per request of the chain.
    pub(super) visits: Vec<Vec<f64>>,
    /// Share of the requests of its chain that start as this class.
    starts: Vec<f64>,
}

impl Chained {
    pub(super) fn new(model: &Model) -> Result<Self, SolveError> {
        let visits = model.visits()?;
        let chains = model.chains();
        let mut starts = vec![1.0; model.classes.len()];
        let mut classes = Vec::new();
        for chain in &chains {
            if chain.len() > 1 {
                let shares = model.start_shares(chain)?;
                for class in chain {
                    starts[*class] = shares[*class];
                }
            }
            classes.push(load(model, chain, &starts));
        }
        let resources = model
            .stations
            .iter()
            .zip(&visits)
            .map(|(station, row)| Resource {
                kind: kind(station),
                demands: chains
                    .iter()
                    .map(|chain| chain.iter().map(|c| row[*c] * service(station, *c)).sum())
                    .collect(),
            })
            .collect();
        for (index, chain) in chains.iter().enumerate() {
            let idle = match classes[index] {
                Load::Open { arrival_rate } => arrival_rate == 0.0,
                Load::Closed { population, .. } => population == 0,
            };
            let visited = visits.iter().any(|row| chain.iter().any(|c| row[*c] > 0.0));
            if !visited && !idle {
                let class = model.classes[chain[0]].name.clone();
                return Err(ModelError::VisitsNothing { class }.into());
            }
        }
        Ok(Self { network: Network { classes, resources }, chains, visits, starts })
    }

    /// What keeps the product form from being exact.
    pub(super) fn caveats(&self, model: &Model) -> Vec<Caveat> {
        let mut caveats = Vec::new();
        for (index, station) in model.stations.iter().enumerate() {
            if !is_product_form(station, &self.visits[index]) {
                caveats.push(Caveat::NotProductForm { station: station.name.clone() });
            }
        }
        for class in &model.classes {
            if let Workload::Open { interarrival, arrival_rate_per_s, .. } = &class.workload
                && *arrival_rate_per_s > 0.0
                && !interarrival.is_exponential()
            {
                let class = class.name.clone();
                caveats.push(Caveat::ArrivalsTakenAsPoisson { class });
            }
        }
        caveats
    }

    /// Variability of arrivals at each station of an open network.
    fn arrival_scvs(
        &self,
        model: &Model,
        solved: &NetworkSolution,
    ) -> Result<Vec<f64>, SolveError> {
        let mut rates = vec![vec![0.0; model.classes.len()]; model.stations.len()];
        for (position, chain) in self.chains.iter().enumerate() {
            for class in chain {
                for (row, visits) in rates.iter_mut().zip(&self.visits) {
                    row[*class] = solved.throughput[position] * visits[*class];
                }
            }
        }
        let mut servers = Vec::new();
        for (index, station) in model.stations.iter().enumerate() {
            let utilization = solved.utilization[index].iter().sum();
            let mixture = if in_line(station) { self.mixture(model, index, solved)? } else { None };
            servers.push(Server { utilization, scv: mixture.map(|(_, service)| service.scv()) });
        }
        Ok(arrival_scvs(model, &rates, &servers))
    }

    /// In open networks, FCFS stations without product form, or with other than Poisson arrivals,
    /// become G/G/m stations of their own.
    pub(super) fn correct_open(
        &self,
        model: &Model,
        solved: &mut NetworkSolution,
        caveats: &mut Vec<Caveat>,
    ) -> Result<(), SolveError> {
        if self.network.has_closed() {
            return Ok(());
        }
        let scvs = self.arrival_scvs(model, solved)?;
        if model.stations.iter().all(|station| station.is_delay() || in_line(station)) {
            caveats.retain(|c| !matches!(c, Caveat::ArrivalsTakenAsPoisson { .. }));
        }
        for (index, station) in model.stations.iter().enumerate() {
            let row = &self.visits[index];
            let poisson = (scvs[index] - 1.0).abs() < 1e-9;
            let poisson = poisson || !in_line(station);
            if !station.rate_multipliers.is_empty() || is_product_form(station, row) && poisson {
                continue;
            }
            let Some((rate, service_time)) = self.mixture(model, index, solved)? else { continue };
            let wait = match station.fork {
                // What it takes longer than the service of one branch.
                Some(fork) => {
                    let names = vec![station.name.clone()];
                    let failed = |source| SolveError::Network { names, source };
                    let found = fork_join_general(rate, &service_time, fork.branches, fork.needed)
                        .map_err(failed)?;
                    let alone = model.stations.len() == 1;
                    solved.measured_error = found.measured_error.filter(|_| alone);
                    found.response_time - service_time.mean()
                }
                None => {
                    let failed =
                        |source| SolveError::Station { station: station.name.clone(), source };
                    let gap = if poisson {
                        Distribution::exponential(1.0 / rate)
                    } else {
                        Distribution::general(1.0 / rate, scvs[index], None)
                    };
                    let gap = gap.map_err(|error| failed(error.into()))?;
                    ggm(&gap, &service_time, station.servers, GgmFormula::Best)
                        .map_err(failed)?
                        .waiting_time
                        .mean
                }
            };
            for (position, chain) in self.chains.iter().enumerate() {
                let residence: f64 =
                    chain.iter().map(|c| row[*c] * (service(station, *c) + wait)).sum();
                solved.residence[index][position] = residence;
                solved.number[index][position] = residence * solved.throughput[position];
            }
            let station = station.name.clone();
            caveats.push(Caveat::Decomposed { station, arrivals_scv: scvs[index] });
        }
        for position in 0..self.chains.len() {
            solved.system_response[position] =
                solved.residence.iter().map(|row| row[position]).sum();
        }
        Ok(())
    }

    /// Arrival rate of all classes at a station, and the mixture of their service times: the
    /// distribution itself where one class comes, else its first two moments.
    fn mixture(
        &self,
        model: &Model,
        index: usize,
        solved: &NetworkSolution,
    ) -> Result<Option<(f64, Distribution)>, SolveError> {
        let station = &model.stations[index];
        let (mut rate, mut first, mut second) = (0.0, 0.0, 0.0);
        let mut only = None;
        let mut coming = 0;
        for (position, chain) in self.chains.iter().enumerate() {
            for class in chain {
                let Some(demand) = station.demand_at(*class) else { continue };
                let x = solved.throughput[position] * self.visits[index][*class];
                let mean = demand.service.mean();
                rate += x;
                first += x * mean;
                second += x * mean * mean * (1.0 + demand.service.scv());
                if x > 0.0 {
                    coming += 1;
                    only = Some(&demand.service);
                }
            }
        }
        if rate <= 0.0 || first <= 0.0 {
            return Ok(None);
        }
        if let Some(service) = only.filter(|_| coming == 1) {
            return Ok(Some((rate, service.clone())));
        }
        let mean = first / rate;
        let failed = |error: crate::DistributionError| SolveError::Station {
            station: station.name.clone(),
            source: error.into(),
        };
        let scv = (second / rate / (mean * mean) - 1.0).max(0.0);
        Ok(Some((rate, Distribution::general(mean, scv, None).map_err(failed)?)))
    }

    /// Of a network without product form like those that were measured, all in line. Open: up to five stations of 4
    /// servers that are at most 86 % busy; several classes with exponential gaps and services, or one with c² up
    /// to 4. Closed: one class of up to 20 customers with c² up to 4 at up to four stations of one server.
    pub(super) fn line_error(
        &self,
        model: &Model,
        solved: &NetworkSolution,
    ) -> Option<MeasuredError> {
        let few = |(at, station): (usize, &Station)| {
            let means = station.demands.iter().flatten().map(|demand| demand.service.mean());
            let (low, high) = range(means);
            in_line(station)
                && station.servers <= 4
                && solved.total_utilization(at) <= 0.86
                && high <= 10.0 * low
        };
        let gaps = model.classes.iter().filter_map(|class| match &class.workload {
            Workload::Open { interarrival, .. } => Some(interarrival),
            Workload::Closed { .. } => None,
        });
        let services = model.stations.iter().flat_map(|station| station.demands.iter().flatten());
        let mut times = gaps.chain(services.map(|demand| &demand.service));
        let exponential = times.clone().all(Distribution::is_exponential);
        let one = model.classes.len() == 1 && times.all(|time| time.scv() <= 4.0 + 1e-9);
        let stations = || model.stations.iter().enumerate();
        if self.network.has_closed() {
            let single = |station: &Station| in_line(station) && station.servers == 1;
            let like = one && model.stations.len() <= 4 && model.stations.iter().all(single);
            let few = self.network.populations().into_iter().all(|n| n <= 20);
            return (like && few).then_some(MeasuredError::new(13.0, 24.0));
        }
        match model.stations.len() <= 5 && stations().all(few) {
            true if exponential => Some(MeasuredError::new(0.0, 9.5)),
            true if one => Some(MeasuredError::new(0.0, 39.0)),
            _ => None,
        }
    }

    /// Of closed classes in line what they ask, by station; none where no station has classes with other services.
    pub(super) fn lines(&self, model: &Model) -> Option<Vec<Option<InLine>>> {
        let line = |(index, station): (usize, &Station)| {
            let row = &self.visits[index];
            if !in_line(station) || is_product_form(station, row) {
                return None;
            }
            let of = |chain: &Vec<usize>| {
                let (mut visits, mut first, mut second) = (0.0, 0.0, 0.0);
                for class in chain {
                    let Some(demand) = station.demand_at(*class) else { continue };
                    let mean = demand.service.mean();
                    visits += row[*class];
                    first += row[*class] * mean;
                    second += row[*class] * mean * mean * (1.0 + demand.service.scv());
                }
                let mean = if visits > 0.0 { first / visits } else { 0.0 };
                let square = mean * mean;
                let scv = if square > 0.0 { second / visits / square - 1.0 } else { 0.0 };
                (visits, (mean, scv.max(0.0)))
            };
            let (visits, services) = self.chains.iter().map(of).unzip();
            Some(InLine { visits, services })
        };
        let lines: Vec<_> = model.stations.iter().enumerate().map(line).collect();
        let differ = |line: &InLine| {
            let (low, high) = line.range();
            high > low * (1.0 + 1e-9)
        };
        let closed = !self.network.has_open();
        (closed && lines.iter().flatten().any(differ)).then_some(lines)
    }

    /// Back from chains to classes.
    pub(super) fn solution(
        &self,
        model: &Model,
        solved: &NetworkSolution,
        caveats: Vec<Caveat>,
    ) -> Solution {
        let mut chain_of = vec![0; model.classes.len()];
        for (position, chain) in self.chains.iter().enumerate() {
            for class in chain {
                chain_of[*class] = position;
            }
        }
        let classes = model
            .classes
            .iter()
            .enumerate()
            .map(|(index, class)| self.class_result(index, class, chain_of[index], solved))
            .collect();
        let stations = model
            .stations
            .iter()
            .enumerate()
            .map(|(index, station)| self.station_result(index, station, &chain_of, solved))
            .collect();
        Solution {
            classes,
            stations,
            ln_g: solved.ln_g,
            iterations: solved.iterations,
            caveats,
            ..Solution::of(model, solved.solver.to_owned(), solved.accuracy)
        }
    }

    fn class_result(
        &self,
        index: usize,
        class: &Class,
        chain: usize,
        solved: &NetworkSolution,
    ) -> ClassResult {
        let throughput = solved.throughput[chain] * self.starts[index];
        let system_response = solved.system_response[chain];
        let bounds = if self.network.has_open() {
            None
        } else if self.chains.len() == 1 {
            asymptotic_bounds(&self.network).ok().map(|b| b.throughput)
        } else {
            multi_class_bounds(&self.network).ok().map(|all| all[chain].throughput)
        };
        ClassResult {
            name: class.name.clone(),
            throughput,
            system_response,
            number: throughput * system_response,
            bottleneck: bottleneck(&self.network, chain).ok(),
            throughput_bounds: bounds,
            ..ClassResult::default()
        }
    }

    fn station_result(
        &self,
        index: usize,
        station: &Station,
        chain_of: &[usize],
        solved: &NetworkSolution,
    ) -> StationResult {
        let classes = chain_of.len();
        let mut result = StationResult {
            name: station.name.clone(),
            throughput: vec![0.0; classes],
            utilization: vec![0.0; classes],
            number: vec![0.0; classes],
            response_time: vec![0.0; classes],
            waiting_time: vec![0.0; classes],
            residence_time: vec![0.0; classes],
            states: solved.marginals[index].clone(),
            number_variance: None,
            blocked: None,
        };
        if solved.accuracy == Accuracy::Exact {
            let of_states = || result.states.as_deref().map(network::variance);
            result.number_variance = solved.number_variance[index].or_else(of_states);
        }
        for (class, chain) in chain_of.iter().enumerate() {
            let visits = self.visits[index][class];
            let time = service(station, class);
            let whole = self.network.resources[index].demands[*chain];
            if visits <= 0.0 {
                continue;
            }
            // FCFS classes of a chain wait alike; elsewhere they share as their demands do.
            let own = visits * time;
            let share = if whole > 0.0 { own / whole } else { 0.0 };
            let residence = solved.residence[index][*chain] * share;
            let x = solved.throughput[*chain];
            result.throughput[class] = x * visits;
            result.utilization[class] = solved.utilization[index][*chain] * share;
            result.number[class] = x * residence;
            result.residence_time[class] = residence;
            result.response_time[class] = residence / visits;
            result.waiting_time[class] = (residence / visits - time).max(0.0);
        }
        result
    }
}

fn load(model: &Model, chain: &[usize], starts: &[f64]) -> Load {
    if model.classes[chain[0]].is_open() {
        let arrival_rate = chain.iter().map(|c| model.classes[*c].arrival_rate_per_s()).sum();
        return Load::Open { arrival_rate };
    }
    Load::Closed {
        population: chain.iter().map(|c| model.classes[*c].population()).sum(),
        think_time: chain.iter().map(|c| starts[*c] * model.classes[*c].think_time_s()).sum(),
    }
}

pub(super) fn kind(station: &Station) -> Kind {
    if station.is_delay() {
        return Kind::Delay;
    }
    if let Some(fork) = station.fork {
        return Kind::ForkJoin { branches: fork.branches, needed: fork.needed };
    }
    if !station.rate_multipliers.is_empty() {
        return Kind::LoadDependent(station.rate_multipliers.clone());
    }
    if station.servers == 1 { Kind::Queue } else { Kind::Servers(station.servers) }
}

/// Whether customers wait in line for servers of constant speed.
fn in_line(station: &Station) -> bool {
    !station.is_delay()
        && station.fork.is_none()
        && station.rate_multipliers.is_empty()
        && !matches!(station.discipline, Discipline::Ps | Discipline::LcfsPr)
}

pub(super) fn service(station: &Station, class: usize) -> f64 {
    station.demand_at(class).map_or(0.0, |demand| demand.service.mean())
}

/// PS, LCFS-PR at one server and delays: always. Else: one exponential service for all classes that come.
pub(super) fn is_product_form(station: &Station, visits: &[f64]) -> bool {
    let last_first = station.discipline == Discipline::LcfsPr && station.servers == 1;
    if station.is_delay() || station.discipline == Discipline::Ps || last_first {
        return true;
    }
    if station.fork.is_some() {
        // Exponential branches have formulas, and an accuracy, of their own.
        let mut visited = station.demands.iter().zip(visits).filter(|(_, v)| **v > 0.0);
        return visited.all(|(demand, _)| {
            demand.as_ref().is_none_or(|d| d.service.is_exponential() || d.service.mean() <= 0.0)
        });
    }
    let mut first: Option<f64> = None;
    for (demand, visits) in station.demands.iter().zip(visits) {
        let Some(demand) = demand.as_ref().filter(|_| *visits > 0.0) else { continue };
        let mean = demand.service.mean();
        if mean > 0.0 && !demand.service.is_exponential() {
            return false;
        }
        if first.is_some_and(|first| (first - mean).abs() > 1e-9 * first) {
            return false;
        }
        first = Some(mean);
    }
    true
}
