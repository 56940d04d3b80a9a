//! The open network of queues behind a system: fitted on the first part of the time, scored on the
//! rest.

use kendall_queueing::model::{Class, Model, Pool, Station};
use kendall_queueing::solver::{Solution, Solver, StationResult, solve};
use kendall_stats::sample;
use kendall_units::{counted, exact_f64};

use super::hidden::{Beside, Hidden};
use super::monitored::{Monitored, MonitoredTier, Monitoring, TOLERANCE, Window, stations};
use super::residence::{Others, Residence};
use super::variability::Variability;
use crate::model::{CONFIDENCE, NORMAL, Number, mean_of};
use crate::score::Errors;

/// Share of the windows that the fit may see.
const CALIBRATION: f64 = 0.6;

/// Windows that a score needs.
pub(super) const FEWEST_SCORED: usize = 2;

/// Waiting above so many times that of M/M/m is not that of bursts: (c_a² + c_s²)/2 of measured systems stays below.
pub const LONGEST_WAITING: f64 = 50.0;

/// Most held servers whose requests go round in a closed network.
const MOST_HELD: u64 = 300;

/// Most servers with a queue of their own.
const MOST_STATIONS: u64 = 1_000;

/// The windows with the highest loads, as a share of all, and how many at least; by how much more their response times exceed
/// what the network says than those of the lower half do, as a share, where something else fills.
const HIGHEST: usize = 10;
const FEWEST_HIGHEST: usize = 5;
const OUTGROWN: f64 = 0.1;

/// The structure with a station that no tier shows.
const HIDDEN: &str = "a station that no tier shows";

/// One tier as a center.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Center {
    /// Name of the tier.
    pub name: String,
    /// m.
    pub servers: u64,
    /// V.
    pub visits: f64,
    /// Servers that are busy with requests that do not come from the entry.
    pub own_busy: f64,
    /// How many of those come, 1/s; 0 where nothing says it.
    pub own_per_s: f64,
    /// S of one visit, what is below left out, s.
    pub service_time_s: Number,
    /// How long requests stay, beside service and waiting as M/M/m has them.
    pub residence: Residence,
    /// How uneven gaps and service times are; `None` for a tier that calls others or whose servers are held.
    pub variability: Option<Variability>,
    /// No query gives how busy it is: a delay without a bound, of what a visit stays where that is known.
    pub unknown: bool,
    /// A server is held while the tiers below work.
    pub held: bool,
    /// Each server has a queue of its own, and its share of the requests.
    pub queue_each: bool,
    /// That share, the largest first; `None` where nothing tells servers apart, and they are taken as alike.
    pub shares: Option<Vec<f64>>,
    /// Itself and all tiers below it.
    pub below: Vec<usize>,
    /// It is the only way to those below, so that its servers are held for every visit there.
    #[serde(skip)]
    pub(crate) only_way: bool,
    /// Tiers that it calls whose time is known by how busy they are alone. With them, its service time is known to its
    /// standard error: what these take less of it, it takes more.
    #[serde(skip)]
    parts: Vec<usize>,
}

impl Center {
    /// How many stations represent it, and how many servers each has.
    fn stations(&self) -> (u64, u64) {
        stations(self.servers, self.queue_each)
    }

    /// Share of the servers' time that is left for the requests of the entry.
    fn share_left(&self) -> f64 {
        1.0 - self.own_busy / exact_f64(self.servers)
    }

    /// How much longer requests wait at a load of the system since others keep servers for another time.
    fn longer_for_others(&self, arrival_rate_per_s: f64) -> f64 {
        let others = Others { rate_per_s: self.own_per_s, busy: self.own_busy };
        let rate_per_s = arrival_rate_per_s * self.visits;
        let alone = self.stations().0 == 1 && !self.is_pool();
        let longer = others.longer(rate_per_s, self.servers, self.service_time_s.value);
        longer.filter(|_| alone).unwrap_or(1.0)
    }

    /// Load of the system at which its servers are full.
    pub(crate) fn capacity_per_s(&self) -> f64 {
        (exact_f64(self.servers) - self.own_busy) / (self.visits * self.service_time_s.value)
    }

    /// Its servers are held for all requests at the tiers below.
    fn is_pool(&self) -> bool {
        self.held && self.only_way
    }

    /// Its stations in a model. Those of a pool are delays: requests queue for its servers, which the model has as a pool.
    fn as_stations(&self) -> Vec<Station> {
        // Requests of its own make its servers slower.
        let service = self.service_time_s.value / self.share_left();
        let (parts, servers) = self.stations();
        assert!(parts <= MOST_STATIONS, "centers are refused where they are made or changed");
        let one = |(part, share): (u64, f64)| {
            let name = if parts > 1 { format!("{} {part}", self.name) } else { self.name.clone() };
            let station = if self.is_pool() || self.unknown {
                Station::delay(&name)
            } else {
                Station::queue(&name, servers)
            };
            station.with_service_time(0, service).with_visits(0, self.visits * share)
        };
        (1..=parts).zip(self.shares()).map(one).collect()
    }

    /// Share of the requests that each of its stations has.
    fn shares(&self) -> Vec<f64> {
        let (parts, _) = self.stations();
        let alike = || vec![1.0 / exact_f64(parts); usize::try_from(parts).unwrap_or(usize::MAX)];
        match &self.shares {
            Some(shares) if parts > 1 && shares.len() as u64 == parts => shares.clone(),
            _ => alike(),
        }
    }

    /// Gives it another number of servers, whose shares are as uneven as those that were seen.
    pub(crate) fn set_servers(&mut self, count: u64) {
        if let Some(seen) = self.shares.as_mut().filter(|_| count != self.servers) {
            *seen = as_uneven(seen, count.min(MOST_STATIONS));
        }
        self.servers = count;
    }

    /// Has requests wait as they do for another number of servers than was seen, at a load of the system.
    pub(super) fn rescale_waits(&mut self, tier: &MonitoredTier, rate_per_s: f64) {
        if self.servers == tier.servers || self.queue_each {
            return;
        }
        let busy = rate_per_s * self.visits * self.service_time_s.value + self.own_busy;
        let utilizations = (tier.utilization_seen, busy / exact_f64(self.servers));
        self.residence = self.residence.with_servers((tier.servers, self.servers), utilizations);
    }

    /// Refuses servers that are full of requests of their own, and more stations than are modelled: fewer than there are would each get
    /// too many requests.
    pub(crate) fn can_be_modelled(&self) -> Result<(), String> {
        if self.share_left() <= 0.0 {
            return Err(format!(
                "`{}`: {:.3} servers are busy with requests of its own, so {} are too few",
                self.name, self.own_busy, self.servers
            ));
        }
        match self.stations() {
            (1..=MOST_STATIONS, _) => Ok(()),
            (many, _) => Err(format!(
                "`{}`: {many} servers with a queue each, at most {MOST_STATIONS} are modelled",
                self.name
            )),
        }
    }
}

/// Shares of another number of servers that are as uneven as these, the largest first: spread between the
/// same ends, over the mean.
fn as_uneven(shares: &[f64], count: u64) -> Vec<f64> {
    let last = exact_f64(shares.len().saturating_sub(1) as u64);
    let most = exact_f64(count.saturating_sub(1).max(1));
    let at = |number: u64| -> f64 {
        // Between the two nearest of those that were seen.
        let place = exact_f64(number) / most * last;
        let low = usize::try_from(kendall_units::whole_u64(place.floor())).unwrap_or(0);
        let (a, b) = (shares[low.min(shares.len() - 1)], shares[(low + 1).min(shares.len() - 1)]);
        a + (b - a) * (place - place.floor())
    };
    let all: Vec<f64> = (0..count).map(at).collect();
    let sum: f64 = all.iter().sum();
    all.iter().map(|one| one / sum).collect()
}

/// A structure of the network, and how it does.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Structure {
    pub name: &'static str,
    /// How it does in the windows that were not fitted, or why it cannot be made.
    pub score: Result<Errors, String>,
}

/// A network of one structure with its score, or why it cannot be made.
type Made = (&'static str, Result<(Network, Errors), String>);

/// A network, and what it rests on.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Network {
    /// Name of the system.
    pub name: String,
    /// One a tier, entry first.
    pub centers: Vec<Center>,
    /// Response time at the entry that is in no tier, s.
    pub elsewhere_s: Number,
    /// What fills that no tier shows, where the windows show it.
    pub hidden: Option<Hidden>,
    /// By how much response times at the highest loads exceed what it says, as a share, where they clearly outgrow it: something
    /// fills that is not in it.
    pub outgrown: Option<f64>,
    /// Response times of the windows that were not fitted are clearly shorter than it says where the load is low, so that its work is
    /// no bound of theirs.
    pub undercut: bool,
    pub fitted_windows: usize,
    /// How it does elsewhere; `None` where there are no such windows or no response time.
    pub score: Option<Errors>,
    /// How M/M/m, M/G/m and G/G/m by the measured variabilities do in the same windows.
    pub structures: Vec<Structure>,
    /// The one of them that answers, and the median error of the fitted waiting that it is clearly better than.
    pub better: Option<(&'static str, f64)>,
}

impl Network {
    /// Fits centers to the first windows and scores them on the others.
    pub fn fit(monitored: &Monitored, monitoring: &dyn Monitoring) -> Result<Self, String> {
        let used = &monitored.windows;
        let most = used.len().saturating_sub(FEWEST_SCORED).max(2);
        let cut = kendall_units::whole_u64(exact_f64(used.len() as u64) * CALIBRATION);
        let cut = usize::try_from(cut).unwrap_or(most).clamp(2, most);
        let (seen, kept) = used.split_at(cut.min(used.len()));
        if (0..monitored.tiers.len()).all(|index| monitored.is_unknown(index)) {
            return Err(lacks(monitored, seen, monitored.entry));
        }
        let mut centers = Vec::with_capacity(monitored.tiers.len());
        for index in 0..monitored.tiers.len() {
            centers.push(center(monitored, monitoring, seen, index)?);
        }
        let carried = used.iter().filter_map(|window| monitored.rate(window)).fold(0.0, f64::max);
        for center in centers.iter().filter(|center| !center.unknown) {
            // A capacity is told of all windows, not of these alone.
            if center.capacity_per_s() * (1.0 + TOLERANCE) < carried {
                return Err(format!(
                    "`{}`: by the first {}, a request keeps it busy for too long for {carried:.4}/s, which was served: its \
                     `busy` does not follow the load",
                    center.name,
                    counted(seen.len(), "window")
                ));
            }
        }
        let elsewhere_s = Number::exact(0.0);
        let mut network = Self {
            name: monitored.name.clone(),
            centers,
            elsewhere_s,
            hidden: None,
            outgrown: None,
            undercut: false,
            fitted_windows: seen.len(),
            score: None,
            structures: Vec::new(),
            better: None,
        };
        network.without_waits_below(monitored, seen);
        network.fit_elsewhere(monitored, seen);
        network.score = network.scored(monitored, kept);
        let structures = network.structures(monitored, seen, kept);
        network.structures = (structures.iter())
            .map(|(name, made)| {
                let score = made.as_ref().map(|(_, score)| *score).map_err(Clone::clone);
                Structure { name, score }
            })
            .collect();
        let mut found = network.clone().or_better(structures);
        found.outgrown = found.outgrown_by(monitored);
        let mut found = network.beside_hidden(monitored, seen, kept, &found).unwrap_or(found);
        found.undercut = found.is_undercut(monitored, kept);
        Ok(found)
    }

    /// Share of the response time at a load that is neither work nor waiting of a tier, where nothing was found that fills: nothing says
    /// how it grows with the load.
    pub fn unexplained(&self, rate_per_s: f64) -> Option<f64> {
        let known = self.centers.iter().filter(|center| !center.unknown);
        let delays = known.map(|center| {
            let beside = (center.residence.held_up.value - 1.0).max(0.0);
            center.visits * beside * center.service_time_s.value
        });
        let elsewhere_s = self.elsewhere_s.value + delays.sum::<f64>();
        let all_s = self.at(rate_per_s).ok()?.response_time_s;
        self.hidden.is_none().then_some(elsewhere_s / all_s)
    }

    /// Whether response times of these windows are clearly shorter than its own, in the half with the lower loads.
    fn is_undercut(&self, monitored: &Monitored, kept: &[Window]) -> bool {
        let of = |window: &Window| {
            let rate = monitored.rate(window)?;
            let measured = window.tiers[monitored.entry].response_time_s?;
            Some((rate, (measured / self.at(rate).ok()?.response_time_s).ln()))
        };
        let mut all: Vec<(f64, f64)> = kept.iter().filter_map(of).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all.truncate(all.len().div_ceil(2));
        if all.len() < FEWEST_SCORED {
            return false;
        }
        let mean = mean_of(&all.into_iter().map(|(_, log)| log).collect::<Vec<f64>>());
        mean.value + NORMAL * mean.standard_error < 0.0
    }

    /// The same beside a station that no tier shows, where it explains how response times outgrow what was found, or errs by less than
    /// half as much as that.
    fn beside_hidden(
        mut self,
        monitored: &Monitored,
        seen: &[Window],
        kept: &[Window],
        found: &Self,
    ) -> Option<Self> {
        let own = found.score?.median;
        if !monitored.varies() || found.outgrown.is_none() && own <= TOLERANCE {
            return None;
        }
        self.elsewhere_s = Number::exact(0.0);
        // What was fitted to a tier that clients call has the waiting for it.
        let entry = &mut self.centers[monitored.entry];
        if monitored.tiers[monitored.entry].calls.is_empty() {
            entry.residence = Residence::station(Number::exact(1.0));
        }
        let beside = |window: &Window| {
            let rate_per_s = monitored.rate(window).filter(|rate| *rate > 0.0)?;
            let measured_s = window.tiers[monitored.entry].response_time_s?;
            let missing_s = measured_s - self.at(rate_per_s).ok()?.response_time_s;
            Some(Beside { rate_per_s, measured_s, missing_s })
        };
        let windows: Vec<Beside> = seen.iter().filter_map(beside).collect();
        let rates = monitored.windows.iter().filter_map(|window| monitored.rate(window));
        let carried_per_s = rates.fold(0.0, f64::max);
        let hidden = Hidden::find(windows, monitored.window_s, carried_per_s)?;
        self.elsewhere_s = Number::exact(hidden.elsewhere_s);
        self.hidden = Some(hidden);
        self.score = self.scored(monitored, kept);
        self.outgrown = self.outgrown_by(monitored);
        let score = self.score?;
        let enough = if found.outgrown.is_some() { own.max(TOLERANCE) } else { own / 2.0 };
        // Loads at which something else was slow may be left, where less than half of it is.
        let left = self.outgrown.map_or(0.0, |left| 2.0 * left);
        self.structures.push(Structure { name: HIDDEN, score: Ok(score) });
        (left <= found.outgrown.unwrap_or(0.0) && score.median < enough).then_some(self)
    }

    /// By how much response times at the highest loads exceed its own, where they clearly outgrow these.
    fn outgrown_by(&self, monitored: &Monitored) -> Option<f64> {
        let mut beside: Vec<(f64, f64)> = (monitored.windows.iter())
            .filter_map(|window| {
                let rate = monitored.rate(window)?;
                let measured = window.tiers[monitored.entry].response_time_s?;
                let said = self.at(rate).ok()?.response_time_s;
                Some((rate, measured / said - 1.0))
            })
            .collect();
        beside.sort_by(|a, b| a.0.total_cmp(&b.0));
        let beside: Vec<f64> = beside.into_iter().map(|(_, more)| more).collect();
        let most = beside.len() / HIGHEST;
        if most < FEWEST_HIGHEST || !monitored.varies() {
            return None;
        }
        let (rest, highest) = beside.split_at(beside.len() - most);
        let low = sample::mean_interval(&rest[..beside.len() / 2], CONFIDENCE).ok()?;
        let high = sample::mean_interval(highest, CONFIDENCE).ok()?;
        let apart = high.interval?.low > low.interval?.high;
        (apart && high.center - low.center.max(0.0) > OUTGROWN).then_some(high.center)
    }

    /// The structure with the smallest error, where the fitted waiting errs by more than scrapes bring in and by more than
    /// twice as much: between errors that are nearer to each other, few windows do not decide. Waiting that nothing explains
    /// is not answered by leaving it out.
    fn or_better(self, structures: Vec<Made>) -> Self {
        let Some(own) = self.score.map(|score| score.median).filter(|own| *own > TOLERANCE) else {
            return self;
        };
        let explained = |center: &Center| center.residence.waiting_factor.value <= LONGEST_WAITING;
        if !self.centers.iter().all(explained) {
            return self;
        }
        let all = structures.into_iter().filter_map(|(name, made)| Some((name, made.ok()?)));
        let best = all.min_by(|(_, (_, a)), (_, (_, b))| a.median.total_cmp(&b.median));
        match best.filter(|(_, (_, score))| 2.0 * score.median < own) {
            Some((name, (network, score))) => Self {
                score: Some(score),
                structures: self.structures,
                better: Some((name, own)),
                ..network
            },
            None => self,
        }
    }

    /// M/M/m, M/G/m and G/G/m: service and gaps as measured, and no waiting fitted.
    fn structures(&self, monitored: &Monitored, seen: &[Window], kept: &[Window]) -> Vec<Made> {
        type Factor = fn(&Variability) -> Option<Number>;
        let kinds: [(&'static str, Factor); 3] = [
            ("M/M/m", |_| Some(Number::exact(1.0))),
            ("M/G/m", Variability::poisson_factor),
            ("G/G/m", Variability::factor),
        ];
        let score = |factor: Factor| {
            let mut network = self.clone();
            for center in &mut network.centers {
                let of_leaf = center.variability.as_ref().map(|found| {
                    factor(found)
                        .ok_or_else(|| format!("not known at `{}`: {}", center.name, found.lacks()))
                });
                let factor = of_leaf.transpose()?.unwrap_or(Number::exact(1.0));
                center.residence = Residence::station(factor);
            }
            network.elsewhere_s = Number::exact(0.0);
            network.fit_elsewhere(monitored, seen);
            let score = network.scored(monitored, kept).ok_or_else(|| {
                "no window was left to score it on, or it has no steady state there".to_owned()
            })?;
            Ok((network, score))
        };
        kinds.map(|(name, factor)| (name, score(factor))).into()
    }

    /// Servers are held also while their requests wait below. Where a tier there tells no response time, that wait is in what
    /// was left for the holder: takes it out, as the network has it.
    fn without_waits_below(&mut self, monitored: &Monitored, seen: &[Window]) {
        const ROUNDS: usize = 3;
        let is_pool = |index: &usize| {
            let center = &self.centers[*index];
            center.is_pool() && !center.parts.is_empty()
        };
        let pools: Vec<usize> = (0..self.centers.len()).filter(is_pool).collect();
        for index in pools.repeat(ROUNDS) {
            let center = &self.centers[index];
            let more = |window: &Window| {
                let (rate, busy) = (monitored.rate(window)?, window.tiers[index].busy?);
                let held = self.at(rate).ok()?.utilizations[index] * exact_f64(center.servers);
                Some((held - busy) / (rate * center.visits))
            };
            let more: Vec<f64> = seen.iter().filter_map(more).collect();
            if more.len() >= 2 {
                let service = center.service_time_s.value - mean_of(&more).value;
                if service > 0.0 {
                    self.centers[index].service_time_s.value = service;
                }
            }
        }
    }

    /// Response time that no tier explains: a network between client and entry, or what is not in
    /// the system file.
    fn fit_elsewhere(&mut self, monitored: &Monitored, seen: &[Window]) {
        let missing: Vec<f64> = seen
            .iter()
            .filter_map(|window| {
                let measured = window.tiers[monitored.entry].response_time_s?;
                Some(measured - self.at(monitored.rate(window)?).ok()?.response_time_s)
            })
            .collect();
        if missing.len() < 2 {
            return;
        }
        let found = mean_of(&missing);
        // What does not differ significantly from 0 counts as 0.
        if found.value > 2.0 * found.standard_error {
            self.elsewhere_s = found;
        }
    }

    /// What a request takes that waits nowhere, s.
    pub(crate) fn quickest_s(&self) -> Number {
        let mut all = self.elsewhere_s;
        let is_part = |index: &usize| self.centers.iter().any(|other| other.parts.contains(index));
        for (index, center) in self.centers.iter().enumerate() {
            let (service, held_up) = (center.service_time_s, center.residence.held_up);
            let error = (service.standard_error * held_up.value)
                .hypot(service.value * held_up.standard_error);
            all.value += center.visits * service.value * held_up.value;
            if !is_part(&index) {
                all.standard_error = all.standard_error.hypot(center.visits * error);
            }
        }
        all
    }

    /// After services were drawn: those that are known with their parts make up for these.
    pub(super) fn keep_sums(&mut self, mean: &Self) {
        let more = |(drawn, mean): (&Center, &Center)| {
            mean.visits * (drawn.service_time_s.value - mean.service_time_s.value)
        };
        let more: Vec<f64> = self.centers.iter().zip(&mean.centers).map(more).collect();
        for center in self.centers.iter_mut().filter(|center| !center.parts.is_empty()) {
            let of_parts: f64 = center.parts.iter().map(|part| more[*part]).sum();
            let service = &mut center.service_time_s.value;
            *service = (*service - of_parts / center.visits).max(f64::MIN_POSITIVE);
        }
    }

    fn scored(&self, monitored: &Monitored, kept: &[Window]) -> Option<Errors> {
        let pair = |window: &Window| {
            let measured = window.tiers[monitored.entry].response_time_s?;
            Some((self.at(monitored.rate(window)?).ok()?.response_time_s, measured))
        };
        Errors::of(kept.iter().filter_map(pair), FEWEST_SCORED)
    }

    /// The model at a load, as every solver takes it.
    ///
    /// # Errors
    /// In words, when the numbers make no model.
    pub fn model(&self, arrival_rate_per_s: f64) -> Result<Model, String> {
        let class = Class::open("requests", arrival_rate_per_s);
        let mut stations = Vec::with_capacity(self.centers.len() + 1);
        let mut pools = Vec::new();
        for center in &self.centers {
            stations.extend(center.as_stations());
            if center.is_pool() {
                pools.push(Pool {
                    name: format!("{} (held)", center.name),
                    tokens: center.servers,
                    stations: center.below.iter().flat_map(|below| self.places(*below)).collect(),
                    classes: vec![0],
                    queue_capacity: None,
                });
            }
        }
        if self.elsewhere_s.value > 0.0 {
            let station = Station::delay("elsewhere");
            stations.push(station.with_service_time(0, self.elsewhere_s.value).with_visits(0, 1.0));
        }
        let model = Model::new(&self.name, vec![class], stations).map_err(|e| e.to_string())?;
        model.with_pools(pools).map_err(|error| error.to_string())
    }

    /// Throughput with all servers of a tier held: as many requests as it has servers go round through it and those below.
    /// `None` where its servers are not held for those, or too many for a closed network.
    pub(super) fn full_of_held(&self, index: usize) -> Option<f64> {
        let center = &self.centers[index];
        let below = center.below.iter().map(|below| &self.centers[*below]);
        let held = below.clone().filter(|center| center.is_pool()).count();
        let known = below.clone().filter(|center| !center.unknown).count();
        if !center.is_pool() || held > 1 || known < 2 || center.servers > MOST_HELD {
            return None;
        }
        let class = Class::closed("requests", center.servers, 0.0);
        let stations = below.flat_map(Center::as_stations).collect();
        let model = Model::new(&self.name, vec![class], stations).ok()?;
        Some(solve(&model, Solver::Auto).ok()?.classes.first()?.throughput)
    }

    /// The stations of a center in the model.
    fn places(&self, index: usize) -> std::ops::Range<usize> {
        let count = |center: &Center| usize::try_from(center.stations().0).unwrap_or(usize::MAX);
        let from: usize = self.centers[..index].iter().map(count).sum();
        from..from + count(&self.centers[index])
    }

    /// What it says at a load.
    ///
    /// # Errors
    /// In words, when there is no steady state.
    pub fn at(&self, arrival_rate_per_s: f64) -> Result<NetworkPoint, String> {
        let model = self.model(arrival_rate_per_s)?;
        let solution = solve(&model, Solver::Auto).map_err(|error| error.to_string())?;
        let mut point = self.point(&solution, arrival_rate_per_s);
        if let Some(hidden) = &self.hidden {
            point.response_time_s += hidden
                .waiting_s(arrival_rate_per_s)
                .ok_or_else(|| format!("{HIDDEN} carries {:.4}/s", hidden.capacity_per_s))?;
        }
        Ok(point)
    }

    fn point(&self, solution: &Solution, arrival_rate_per_s: f64) -> NetworkPoint {
        let mut response_time_s = solution.classes[0].system_response;
        let mut utilizations = Vec::with_capacity(self.centers.len());
        for (index, center) in self.centers.iter().enumerate() {
            let stations = solution.stations.get(self.places(index)).unwrap_or_default();
            let mean = |of: fn(&StationResult) -> &Vec<f64>, weights: &[f64]| -> f64 {
                let pairs = stations.iter().zip(weights);
                pairs.map(|(one, weight)| weight * of(one).first().copied().unwrap_or(0.0)).sum()
            };
            let even = mean(|station| &station.waiting_time, &center.shares());
            let waiting = even * center.longer_for_others(arrival_rate_per_s);
            let service = center.service_time_s.value;
            let left = center.share_left();
            let slower_s = service / left - service;
            let beyond_s = center.residence.beyond_s(service, waiting) + waiting - even;
            response_time_s += center.visits * (beyond_s - slower_s);
            let name = format!("{} (held)", center.name);
            let pool = solution.pools.iter().find(|pool| pool.name == name);
            let alike = vec![1.0 / exact_f64(stations.len().max(1) as u64); stations.len()];
            let own = mean(|station| &station.utilization, &alike);
            utilizations.push(pool.map_or(left * own + 1.0 - left, |pool| pool.utilization));
        }
        NetworkPoint { response_time_s, utilizations }
    }
}

/// What a network says at one load.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkPoint {
    /// R at the entry, s.
    pub response_time_s: f64,
    /// U of each tier's servers.
    pub utilizations: Vec<f64>,
}

fn center(
    monitored: &Monitored,
    monitoring: &dyn Monitoring,
    seen: &[Window],
    index: usize,
) -> Result<Center, String> {
    let tier = &monitored.tiers[index];
    let name = &tier.name;
    if let Some(why) = &tier.impossible {
        return Err(format!("`{name}`: {why}"));
    }
    if monitored.is_unknown(index) {
        return Ok(unknown(monitored, seen, index));
    }
    let held = tier.held && !tier.calls.is_empty();
    let services: Vec<f64> =
        seen.iter().filter_map(|window| own_service(monitored, window, index, held)).collect();
    if services.len() < 2 {
        return Err(lacks(monitored, seen, index));
    }
    // Load beyond the first part shifts demands; the mean over windows has their spread.
    let mut service_time_s = mean_of(&services);
    let parts = if held { monitored.known_by_busy(seen, index) } else { Vec::new() };
    if !parts.is_empty() {
        let whole = seen.iter().filter_map(|window| own_service(monitored, window, index, false));
        service_time_s.standard_error = mean_of(&whole.collect::<Vec<f64>>()).standard_error;
    }
    let service = service_time_s.value;
    if service <= 0.0 {
        return Err(format!(
            "`{name}` is busy for less time than those below it take: its servers are not held for \
             all of it (leave out `held`), or the tiers' figures are not of the same requests"
        ));
    }
    let services = vec![Some(service); seen.len()];
    let alone = !held && tier.calls.is_empty();
    let variability =
        alone.then(|| Variability::measure(monitored, monitoring, (seen, index), service));
    let factor = variability.as_ref().and_then(Variability::factor);
    let fitted = Residence::fit(monitored, seen, index, held, &services);
    // Workers above that are held let only some through: the queue is no open one.
    let is_limited = (0..monitored.tiers.len()).any(|above| {
        above != index && monitored.tiers[above].held && monitored.below(above).contains(&index)
    });
    let residence = if is_limited { fitted.unlimited() } else { fitted }.or_measured(factor);
    let center = Center {
        queue_each: tier.queue_each,
        name: name.clone(),
        servers: tier.servers,
        visits: tier.visits,
        own_busy: tier.own_busy,
        own_per_s: tier.own_per_s,
        service_time_s,
        residence,
        variability,
        unknown: false,
        held,
        shares: tier.shares.clone(),
        below: monitored.below(index),
        only_way: monitored.another_way(index).is_none(),
        parts,
    };
    center.can_be_modelled()?;
    Ok(center)
}

/// A tier of which no query gives how busy it is. What a request stays at the entry beside the others, `elsewhere` has.
fn unknown(monitored: &Monitored, seen: &[Window], index: usize) -> Center {
    let tier = &monitored.tiers[index];
    let own = |window: &Window| {
        let means = &window.tiers[index];
        let rate = monitored.requests_per_s(window, index).filter(|rate| *rate > 0.0)?;
        Some(means.response_time_s? - monitored.requests_below(window, index)? / rate)
    };
    let stays: Vec<f64> = seen.iter().filter_map(own).collect();
    let timed = index != monitored.entry && stays.len() >= 2;
    let stay = if timed { mean_of(&stays) } else { Number::exact(0.0) };
    Center {
        name: tier.name.clone(),
        servers: tier.servers,
        visits: tier.visits,
        own_busy: 0.0,
        own_per_s: 0.0,
        service_time_s: Number { value: stay.value.max(0.0), ..stay },
        residence: Residence::station(Number::exact(1.0)),
        variability: None,
        unknown: true,
        held: false,
        queue_each: false,
        shares: None,
        below: monitored.below(index),
        only_way: false,
        parts: Vec::new(),
    }
}

/// Which query a tier without a service time lacks: its own for `busy`, or one of a tier for which its servers are held.
fn lacks(monitored: &Monitored, seen: &[Window], index: usize) -> String {
    let tier = &monitored.tiers[index];
    let known = |of: &dyn Fn(&Window) -> Option<f64>| seen.iter().filter_map(of).count() >= 2;
    if tier.lacks_servers {
        return tier.untold();
    }
    if !known(&|window| window.tiers[index].busy) {
        return format!("`{}`: {}; add one for `busy`", tier.name, tier.missing);
    }
    let unknown = |called: &&usize| !known(&|window| monitored.requests_at(window, **called));
    let below = tier.calls.iter().filter(unknown).flat_map(|called| {
        let response = known(&|window| window.tiers[*called].response_time_s);
        let throughput = known(&|window| window.tiers[*called].throughput_per_s);
        [(*called, "response_time", response), (*called, "throughput", throughput)]
    });
    let missing = below
        .filter(|(.., is_known)| !is_known)
        .map(|(called, quantity, _)| format!("`{quantity}` of `{}`", monitored.tiers[called].name));
    let missing: Vec<String> = missing.collect();
    format!(
        "`{}`: its servers are held while those below work; for how long, no query gives: {}",
        tier.name,
        if missing.is_empty() {
            "no two windows have all figures".to_owned()
        } else {
            missing.join(", ")
        }
    )
}

/// S of one visit in one window: busy servers over throughput, less what those below take.
fn own_service(monitored: &Monitored, window: &Window, index: usize, held: bool) -> Option<f64> {
    let visits = monitored.tiers[index].visits;
    let here = monitored.requests_per_s(window, index);
    let here = here.or_else(|| Some(monitored.rate(window)? * visits))?;
    let busy = monitored.busy(window, index, held)?;
    (here > 0.0).then(|| busy / here)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 15 % against 6.5 % is clear; 10 % is not, and neither is anything where the fitted waiting errs by 5 %.
    #[test]
    fn of_the_structures_that_were_scored_the_clearly_better_one_answers() {
        let of = |median: f64| {
            let mut score = Errors::of([(1.0, 1.0)].into_iter(), 1).unwrap();
            score.median = median;
            let network = Network {
                name: String::new(),
                centers: Vec::new(),
                elsewhere_s: Number::exact(median),
                hidden: None,
                outgrown: None,
                undercut: false,
                fitted_windows: 9,
                score: Some(score),
                structures: Vec::new(),
                better: None,
            };
            (network, score)
        };
        let answers = |fitted: f64, other: f64| {
            let made = vec![("M/M/m", Err("not known".to_owned())), ("M/G/m", Ok(of(other)))];
            let found = of(fitted).0.or_better(made);
            (found.better, found.elsewhere_s.value)
        };
        assert_eq!(answers(0.15, 0.065), (Some(("M/G/m", 0.15)), 0.065));
        assert_eq!(answers(0.15, 0.1), (None, 0.15));
        assert_eq!(answers(0.05, 0.01), (None, 0.05));
    }

    /// By hand: two servers of 60 and 40 %, the busiest a fifth above the mean.
    #[test]
    fn more_servers_are_as_uneven_as_those_that_were_seen() {
        let three = as_uneven(&[0.6, 0.4], 3);
        let expected = [0.4, 1.0 / 3.0, 0.8 / 3.0];
        assert!(three.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{three:?}");
        assert_eq!(as_uneven(&[0.6, 0.4], 1), [1.0]);
        let four = as_uneven(&[0.6, 0.4], 4);
        assert!((four[0] - 0.3).abs() < 1e-12 && (four[3] - 0.2).abs() < 1e-12, "{four:?}");
        assert!((as_uneven(&[0.5, 0.3, 0.2], 2)[0] - 5.0 / 7.0).abs() < 1e-12);
    }
}
