//! The network as the engine runs it: indices instead of names, samplers instead of descriptions,
//! every choice made beforehand that can be.

use super::streams::Sampler;
use crate::model::WhenFull;

/// Where a customer goes who leaves the network.
pub(super) const EXIT: u32 = u32::MAX;
/// No limit.
pub(super) const UNLIMITED: u32 = u32::MAX;

#[derive(Debug, Clone, Default)]
pub(super) struct Plan {
    pub(super) stations: Vec<StationPlan>,
    pub(super) classes: Vec<ClassPlan>,
    /// Hops of all routes, one after the other.
    pub(super) hops: Vec<Hop>,
    /// Route of class `c` after station `s`, at `s · classes + c`.
    pub(super) routes: Vec<Route>,
    /// Counters of [`Rule::InTurn`].
    pub(super) turns: u32,
    /// A list for each hop: of [`Rule::ByNumber`] factors with 0, 1, 2, … customers, empty: always 1; of
    /// [`Rule::Shortest`] its weight.
    pub(super) factors: Vec<Vec<f64>>,
    /// Whether some station blocks before service: customers know where they go before they are served.
    pub(super) aims: bool,
}

/// One way to go on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hop {
    /// Probability of this hop and those before it.
    pub(super) cumulative: f64,
    /// Station, or [`EXIT`].
    pub(super) to: u32,
    pub(super) class: u16,
    /// What the customer came for is done with this hop: it leaves, or its cycle ends.
    pub(super) completes: bool,
    /// To a pool: the hop on which the token is taken along. Out of it: where its holder goes on.
    pub(super) then: u32,
}

/// No further hop.
pub(super) const NO_HOP: u32 = u32::MAX;

/// A stretch of [`Plan::hops`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Route {
    pub(super) start: u32,
    pub(super) length: u32,
    pub(super) rule: Rule,
}

/// Which hop of a route is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Rule {
    /// Drawn by the probabilities.
    #[default]
    Random,
    /// To the station with the fewest customers among so many; with weights, whose first list has this index.
    Shortest(u32, Option<u32>),
    /// Each in its turn, counted by this counter.
    InTurn(u32),
    /// Drawn by the probabilities times factors, whose first list has this index.
    ByNumber(u32),
}

#[derive(Debug, Clone)]
pub(super) struct StationPlan {
    pub(super) servers: u32,
    pub(super) service: Service,
    pub(super) order: Order,
    pub(super) preemption: Preemption,
    /// Level of each class, 0 first.
    pub(super) levels: Vec<u32>,
    /// Shared stations: the weight of each class; empty: all alike.
    pub(super) weights: Vec<f64>,
    /// How long after it came a customer of each class is due; only of [`Order::Deadline`].
    pub(super) deadlines: Vec<f64>,
    /// Most customers, those in service included.
    pub(super) capacity: u32,
    /// What becomes of a customer from another station when it is full.
    pub(super) when_full: WhenFull,
    /// Shared stations: work done per second with n customers at `speeds[n − 1]`; the last entry
    /// holds beyond. Empty: as many servers as are busy.
    pub(super) speeds: Vec<f64>,
    pub(super) work: Vec<Work>,
    pub(super) patience: Vec<Option<Sampler>>,
    /// Probability that an arrival joins who finds n customers; the last entry holds beyond.
    /// Empty: always.
    pub(super) joining: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    /// A server for each customer.
    Delay,
    /// Each customer in service has a server of its own.
    Dedicated,
    /// Those in service progress alike, at a speed that depends on how many are present. At most
    /// `slots` are in service.
    Shared { slots: u32 },
}

/// Order of service within one priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    FirstCome,
    LastCome,
    /// By what is left of their services.
    Shortest,
    /// By when they are due.
    Deadline,
    /// Each level has its own server, or share of it, for one customer at a time.
    OneOfEach,
    Random,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Preemption {
    None,
    /// A customer of a higher level interrupts one of a lower.
    ByLevel,
    /// Every arrival interrupts.
    ByArrival,
    /// A customer earlier in the order interrupts the last one in service.
    ByRank,
}

/// The service of a class at a station.
#[derive(Debug, Clone)]
pub(super) enum Work {
    /// The class never comes here.
    Never,
    /// Time of a server.
    Time(Sampler),
    /// Parallel work: a child is sent along each of these hops, `needed` of them must come back.
    Fork { children: Vec<Hop>, needed: u32 },
    /// Visits elsewhere while a server (a worker, a connection) is held: a child is sent along the
    /// hop that the customer came with.
    Hold,
}

#[derive(Debug, Clone)]
pub(super) struct ClassPlan {
    /// Class of the model whose results these customers belong to.
    pub(super) reported: usize,
    /// Its customers stay in the network, also those that hold a token: one that is not let in
    /// goes on as if it had been served.
    pub(super) closed: bool,
    pub(super) kind: Kind,
    /// First hop of an arrival or of an initial customer.
    pub(super) entry: Route,
    /// Station where the class thinks: time there is not part of its response time.
    pub(super) think: Option<u32>,
}

/// Where customers come from; a child is sent out by one at a station: see [`Work::Fork`] and [`Work::Hold`].
#[derive(Debug, Clone)]
pub(super) enum Kind {
    Open { gap: Sampler, batch: Batch },
    Closed { population: u32 },
    Child,
}

/// Size of a batch of arrivals.
#[derive(Debug, Clone)]
pub(super) enum Batch {
    /// Always as many.
    Fixed(u32),
    /// 1, 2, … with success probability 1/mean.
    Geometric { mean: f64 },
    /// Size and cumulative probability.
    Table(Vec<(u32, f64)>),
}

impl Plan {
    /// Adds a route; probabilities may sum to less than 1 only by rounding.
    pub(super) fn add_route(&mut self, hops: &[Hop]) -> Route {
        let start = u32::try_from(self.hops.len()).expect("fewer than 2^32 hops");
        let length = u32::try_from(hops.len()).expect("fewer than 2^32 hops");
        self.hops.extend_from_slice(hops);
        Route { start, length, rule: Rule::Random }
    }

    /// Where a hop leads, out of pools or into one: the station where the customer will be next.
    pub(super) fn target(&self, hop: Hop) -> u32 {
        let mut target = hop;
        while target.to == EXIT && target.then != NO_HOP {
            target = self.hops[target.then as usize];
        }
        target.to
    }

    #[inline]
    pub(super) fn hops_of(&self, route: Route) -> &[Hop] {
        let start = route.start as usize;
        &self.hops[start..start + route.length as usize]
    }

    #[inline]
    pub(super) fn cell(&self, station: u32, class: u16) -> usize {
        station as usize * self.classes.len() + usize::from(class)
    }
}

impl StationPlan {
    /// A first-come first-served station without a limit.
    pub(super) fn fcfs(servers: u32, work: Vec<Work>) -> Self {
        let classes = work.len();
        Self {
            servers,
            service: Service::Dedicated,
            order: Order::FirstCome,
            preemption: Preemption::None,
            levels: vec![0; classes],
            weights: Vec::new(),
            deadlines: Vec::new(),
            capacity: UNLIMITED,
            when_full: WhenFull::Lost,
            speeds: Vec::new(),
            work,
            patience: vec![None; classes],
            joining: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn weight(&self, class: u16) -> f64 {
        self.weights.get(usize::from(class)).copied().unwrap_or(1.0)
    }

    #[inline]
    pub(super) fn deadline(&self, class: u16) -> f64 {
        self.deadlines.get(usize::from(class)).copied().unwrap_or(0.0)
    }

    /// Work done per second with `present` customers in a shared station.
    pub(super) fn speed(&self, present: u32) -> f64 {
        if present == 0 {
            0.0
        } else if self.speeds.is_empty() {
            f64::from(present.min(self.servers))
        } else {
            self.speeds[(present as usize - 1).min(self.speeds.len() - 1)]
        }
    }
}
