//! What a network is fitted to.

use kendall_stats::estimate::Estimate;

/// Two sides of a law agree within this: what scrapes, and windows that do not begin with a request, bring in.
pub const TOLERANCE: f64 = 0.05;

/// Loads that change by less than this factor do not show how requests wait, nor what keeps servers busy without load.
pub const ENOUGH_SPREAD: f64 = 1.3;

/// What monitoring says of a system: its tiers, and means over windows of steady load.
#[derive(Debug, Clone)]
pub struct Monitored {
    pub name: String,
    /// Index of the tier that clients call.
    pub entry: usize,
    pub tiers: Vec<MonitoredTier>,
    /// In order of time.
    pub windows: Vec<Window>,
    /// How long each is, s.
    pub window_s: f64,
    /// By what factor the load changed, beyond chance: the mean of the highest third of the windows over that of the lowest.
    pub load_spread: f64,
}

/// A tier as its owner describes it, with what all windows say of it.
#[derive(Debug, Clone)]
pub struct MonitoredTier {
    pub name: String,
    /// m.
    pub servers: u64,
    /// Requests here for one at the entry.
    pub visits: f64,
    /// Requests that do not come from the entry, 1/s.
    pub own_per_s: f64,
    /// Servers that are busy with those; 0 where servers are held for the tiers below.
    pub own_busy: f64,
    /// Indices of the tiers that it calls.
    pub calls: Vec<usize>,
    /// A server is held while the tiers below work.
    pub held: bool,
    /// Each server has a queue of its own.
    pub queue_each: bool,
    /// Share of the requests of each such server, the largest first; `None` where nothing tells them apart.
    pub shares: Option<Vec<f64>>,
    /// Highest utilization of a window.
    pub utilization_seen: f64,
    /// Why it cannot be analyzed: its figures cannot be of this system.
    pub impossible: Option<String>,
    /// Why no window says how busy it is, where none does.
    pub missing: String,
    /// How many are busy is known, and not how many there are.
    pub lacks_servers: bool,
    /// Its response time was left out, since it is that of its servers without the wait for them.
    pub inside: bool,
    /// Its busy servers are response time × throughput, and whether the windows show that this time has no wait for them.
    pub stays: Option<bool>,
    /// Nothing says how long a request holds one of its servers: its busy servers, if known, are processors.
    pub uncounted: bool,
}

/// Means over one window.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// Its number, those that are not used counted too.
    pub number: usize,
    /// In the order of the tiers.
    pub tiers: Vec<TierMeans>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TierMeans {
    /// λ, 1/s.
    pub arrival_rate_per_s: Option<f64>,
    /// X, 1/s.
    pub throughput_per_s: Option<f64>,
    /// R, s: mean over requests.
    pub response_time_s: Option<f64>,
    /// U·m.
    pub busy: Option<f64>,
    /// Q.
    pub number: Option<f64>,
    /// Hits of hits and misses.
    pub hit_ratio: Option<f64>,
    /// S of a visit, s, where a stage of that name says it.
    pub service_time_s: Option<f64>,
    /// Between which the bins allow the mean response time to be, s.
    pub mean_of_bins_s: Option<(f64, f64)>,
}

/// What monitoring says beyond the means of windows. Windows are named by their numbers.
pub trait Monitoring {
    /// c_a² of a tier until the end of a window.
    ///
    /// # Errors
    /// In words, where it is not known.
    fn gaps(&self, tier: usize, until: usize) -> Result<Estimate, String>;

    /// Whether there is a histogram of response times.
    fn has_bins(&self, tier: usize) -> bool;

    /// Between which the mean square of the response times of these windows lies, where their mean is
    /// `mean_s`.
    fn mean_square(&self, tier: usize, windows: &[usize], mean_s: f64) -> Option<(f64, f64)>;

    /// Classes of the entry, with the throughput of each in these windows.
    fn classes(&self, windows: &[usize]) -> Vec<(String, Vec<f64>)>;

    /// Mean response time of a class over these windows, each weighted by its requests.
    fn class_response_s(&self, class: &str, windows: &[usize]) -> Option<f64>;
}

/// How many stations represent the servers of a tier, and how many servers each has.
pub(super) fn stations(servers: u64, queue_each: bool) -> (u64, u64) {
    if queue_each { (servers.max(1), 1) } else { (1, servers) }
}

impl MonitoredTier {
    /// What it lacks whose servers nothing tells.
    pub(super) fn untold(&self) -> String {
        let name = &self.name;
        if self.uncounted {
            return format!(
                "nothing says how long a request holds a server of `{name}`: it needs `busy`"
            );
        }
        if self.lacks_servers {
            return format!("nothing says how many servers `{name}` has: it needs `servers`");
        }
        format!("nothing says how busy `{name}` is: it needs `busy` and `servers`")
    }
}

impl Monitored {
    /// Whether the load changed enough to show what grows with it.
    pub fn varies(&self) -> bool {
        self.load_spread >= ENOUGH_SPREAD
    }

    /// X of the entry in a window.
    pub(super) fn rate(&self, window: &Window) -> Option<f64> {
        window.tiers[self.entry].throughput_per_s
    }

    /// All tiers that a tier calls, directly or through others, itself included.
    pub(super) fn below(&self, index: usize) -> Vec<usize> {
        let mut all = vec![index];
        let mut next = 0;
        while let Some(tier) = all.get(next).copied() {
            next += 1;
            for called in &self.tiers[tier].calls {
                if !all.contains(called) {
                    all.push(*called);
                }
            }
        }
        all
    }

    /// A tier below this one, and one that calls it without passing here; `None` where there is none.
    pub(super) fn another_way(&self, index: usize) -> Option<(usize, usize)> {
        let inside = self.below(index);
        inside.iter().filter(|other| **other != index).find_map(|other| {
            let outside = (0..self.tiers.len()).filter(|caller| !inside.contains(caller));
            let mut callers = outside.filter(|caller| self.tiers[*caller].calls.contains(other));
            callers.next().map(|caller| (*other, caller))
        })
    }

    /// Response times of the requests that come from the entry, where others keep servers of the same tier for another time and
    /// wait as long for one.
    #[must_use]
    pub fn without_times_of_others(mut self) -> Self {
        for index in 0..self.tiers.len() {
            let MonitoredTier { own_per_s, own_busy, .. } = self.tiers[index];
            if own_per_s <= 0.0 || own_busy <= 0.0 {
                continue;
            }
            let service_s = |window: &Window| {
                Some(self.busy(window, index, false)? / self.requests_per_s(window, index)?)
            };
            let services: Vec<f64> = self.windows.iter().filter_map(service_s).collect();
            if services.is_empty() {
                continue;
            }
            let longer_s = own_busy / own_per_s - kendall_stats::sample::mean(&services);
            for means in self.windows.iter_mut().map(|window| &mut window.tiers[index]) {
                let of_all = means.response_time_s.zip(means.throughput_per_s);
                let of_entry = of_all.map(|(all, rate)| all - own_per_s / rate * longer_s);
                means.response_time_s = of_entry.filter(|time| *time > 0.0);
            }
        }
        self
    }

    /// X of a tier in a window, of the requests that come from the entry.
    pub(super) fn requests_per_s(&self, window: &Window, index: usize) -> Option<f64> {
        Some(window.tiers[index].throughput_per_s? - self.tiers[index].own_per_s)
    }

    /// Servers of a tier that are busy with the entry's requests in one window, less those that are held while the tiers
    /// below work.
    pub(super) fn busy(&self, window: &Window, index: usize, held: bool) -> Option<f64> {
        let mut busy = window.tiers[index].busy? - self.tiers[index].own_busy;
        if held {
            busy -= self.requests_below(window, index)?;
        }
        Some(busy)
    }

    /// Tiers that a tier calls whose response time no window says.
    pub(super) fn known_by_busy(&self, windows: &[Window], index: usize) -> Vec<usize> {
        let untimed = |called: &&usize| {
            windows.iter().all(|window| window.tiers[**called].response_time_s.is_none())
        };
        self.tiers[index].calls.iter().filter(untimed).copied().collect()
    }

    /// Requests at a tier, those below it included. Where a last tier's response time is not known (most exporters of
    /// stores give none), those in service: all but the ones that wait for it. Where nothing is known but how many pass,
    /// those below it.
    pub(super) fn requests_at(&self, window: &Window, index: usize) -> Option<f64> {
        let means = &window.tiers[index];
        let requests = self.requests_per_s(window, index);
        let stayed = requests.zip(means.response_time_s).map(|(x, r)| x * r);
        if stayed.is_none() && self.is_only_counted(index) {
            return self.requests_below(window, index);
        }
        let is_last = self.tiers[index].calls.is_empty();
        stayed.or_else(|| self.busy(window, index, false).filter(|_| is_last))
    }

    /// Requests at the tiers that a tier calls.
    pub(super) fn requests_below(&self, window: &Window, index: usize) -> Option<f64> {
        let called = self.tiers[index].calls.iter();
        called.map(|called| self.requests_at(window, *called)).sum()
    }

    /// Whether no window says how busy its servers are.
    pub(super) fn is_unknown(&self, index: usize) -> bool {
        self.windows.iter().all(|window| window.tiers[index].busy.is_none())
    }

    /// Whether no window says more of it than its throughput.
    fn is_only_counted(&self, index: usize) -> bool {
        let timed = |window: &Window| window.tiers[index].response_time_s.is_some();
        self.is_unknown(index) && !self.windows.iter().any(timed)
    }
}
