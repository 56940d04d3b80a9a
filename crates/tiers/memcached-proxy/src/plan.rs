//! What network threads go by: the pools of one configuration with their numbers, and how one
//! configuration follows another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kendall_tier::{Instruments, Waker, bound_connections, share_of_descriptors};
use parking_lot::Mutex;

use crate::options::{
    FILES_SPARE, MILLION, Mode, Options, POOL_CONNECTIONS, POOL_SERVERS, POOLS, PREFIX_BYTES, Pool,
    ROUTES,
};
use crate::routes::Routes;
use crate::unique::Incarnations;

/// Longest wait for the network threads to go by a new configuration.
const ADOPTED_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Options that cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("there is no pool: name one server at least")]
    NoPool,
    #[error("{what}: {count} are too many, {most} at most")]
    TooMany { what: String, count: usize, most: usize },
    #[error("pool `{pool}` has no server")]
    NoServer { pool: String },
    #[error("two pools are called `{pool}`")]
    TwoPools { pool: String },
    #[error("two routes have the prefix `{prefix}`")]
    TwoRoutes { prefix: String },
    #[error("`{prefix}` is not a prefix of keys: write 1 to {PREFIX_BYTES} bytes without blanks")]
    Prefix { prefix: String },
    #[error("{who} names the pool `{pool}`, which does not exist (there are: {known})")]
    UnknownPool { who: String, pool: String, known: String },
    #[error("pool `{pool}` cannot be its own {what}")]
    Itself { pool: String, what: &'static str },
    #[error("nothing leads to the pool `{pool}`: name it in a route, a warm-up or a shadow")]
    Unused { pool: String },
    #[error(
        "{connections} connections to servers and {FILES_SPARE} descriptors more are too many: this process may have {files} \
         open files; raise its limit (`ulimit -n`), or take fewer workers, connections, threads or servers"
    )]
    Files { connections: usize, files: usize },
    #[error("the shadow of pool `{pool}` gets no key: write a share above 0")]
    NoShare { pool: String },
}

/// Why a configuration is refused while the proxy runs. The proxy keeps the one that it has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReloadError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("{what} cannot change while the proxy runs; start it anew for that")]
    Fixed { what: &'static str },
    #[error("a network thread did not take the configuration within 5 s")]
    Stuck,
}

#[derive(Debug, Clone)]
pub(crate) struct Planned {
    /// The same in two plans where its connections stay.
    pub(crate) id: u64,
    pub(crate) pool: Arc<Pool>,
    /// It gets copies of others' requests, over connections of their own.
    pub(crate) is_shadow: bool,
    pub(crate) incarnations: Incarnations,
    /// By server, failover servers behind the others: the number under which it is counted.
    pub(crate) counters: Arc<[usize]>,
    /// The pool of this plan that items come from, and for how many seconds at most.
    pub(crate) warm: Option<(usize, Option<u64>)>,
    /// The pool of this plan that gets copies, and of how many keys in millionths.
    pub(crate) shadow: Option<(usize, u32)>,
}

/// What one configuration comes to.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) number: u64,
    pub(crate) pools: Vec<Planned>,
    pub(crate) routes: Routes,
    /// The options of each network thread.
    pub(crate) shares: Vec<Arc<Options>>,
    /// Names that are counted by.
    pub(crate) counters: usize,
    /// Threads that go by it.
    adopted: AtomicU32,
}

impl Plan {
    /// A thread goes by it from now on.
    pub(crate) fn is_adopted(&self) {
        self.adopted.fetch_add(1, Ordering::Release);
    }
}

/// Where a network thread finds a new plan.
#[derive(Debug, Clone)]
pub(crate) struct Inbox {
    plan: Arc<Mutex<Option<Arc<Plan>>>>,
    waker: Waker,
}

impl Inbox {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { plan: Arc::default(), waker }
    }

    pub(crate) fn put(&self, plan: Arc<Plan>) {
        *self.plan.lock() = Some(plan);
        self.waker.wake();
    }

    pub(crate) fn take(&self) -> Option<Arc<Plan>> {
        self.plan.lock().take()
    }
}

/// Makes plans, each knowing the one before.
#[derive(Debug)]
pub(crate) struct Planner {
    options: Options,
    plan: Arc<Plan>,
    instruments: Instruments,
    /// The latest number of a server's incarnation.
    incarnation: Arc<AtomicU64>,
    next_id: u64,
}

impl Planner {
    pub(crate) fn new(options: Options, instruments: Instruments) -> Result<Self, PlanError> {
        let empty = Plan {
            number: 0,
            pools: Vec::new(),
            routes: Routes::default(),
            shares: Vec::new(),
            counters: 0,
            adopted: AtomicU32::new(0),
        };
        let mut planner = Self {
            options: options.clone(),
            plan: Arc::new(empty),
            instruments,
            incarnation: Arc::default(),
            next_id: 1,
        };
        planner.plan = Arc::new(planner.next(&options)?);
        Ok(planner)
    }

    pub(crate) fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan)
    }

    /// The plan of other options, which becomes the latest.
    pub(crate) fn follow(&mut self, options: Options) -> Result<Arc<Plan>, ReloadError> {
        let (old, new) = (&self.options, &options);
        let fixed = [
            ("the address that is listened on", old.listen != new.listen),
            ("the socket that is listened on", old.listen_unix != new.listen_unix),
            ("whether clients speak TLS", old.client_tls.is_some() != new.client_tls.is_some()),
            ("the number of network threads", old.threads != new.threads),
            ("the mode, its workers or its connections", old.mode != new.mode),
        ];
        if let Some((what, _)) = fixed.into_iter().find(|(_, differs)| *differs) {
            return Err(ReloadError::Fixed { what });
        }
        self.plan = Arc::new(self.next(&options)?);
        self.options = options;
        Ok(self.plan())
    }

    fn next(&mut self, options: &Options) -> Result<Plan, PlanError> {
        check(options)?;
        // Pools that keys lead to come before those that get copies: one pool may be both.
        let mut wanted: Vec<(&Pool, bool)> = Vec::new();
        let by_name: BTreeMap<&str, &Pool> =
            options.pools.iter().map(|pool| (pool.name.as_str(), pool)).collect();
        let asked = asked(options);
        wanted.extend(
            options
                .pools
                .iter()
                .filter(|pool| asked.contains(&pool.name.as_str()))
                .map(|pool| (pool, false)),
        );
        let shadows = wanted.iter().filter_map(|(pool, _)| pool.shadow.as_ref());
        let mut shadows: Vec<&str> = shadows.map(|shadow| shadow.pool.as_str()).collect();
        shadows.sort_unstable();
        shadows.dedup();
        wanted.extend(shadows.iter().filter_map(|name| Some((*by_name.get(name)?, true))));
        let place = |name: &str, is_shadow: bool| {
            wanted.iter().position(|(pool, copies)| pool.name == name && *copies == is_shadow)
        };
        let links: Vec<_> = wanted
            .iter()
            .map(|(pool, is_shadow)| {
                if *is_shadow {
                    return (None, None);
                }
                let warm = pool.warm_up.as_ref().and_then(|warm| {
                    let seconds = warm.longest.map(|time| time.as_secs().max(1));
                    Some((place(&warm.from, false)?, seconds))
                });
                let shadow = pool.shadow.as_ref();
                (warm, shadow.and_then(|s| Some((place(&s.pool, true)?, s.millionths))))
            })
            .collect();
        let routes = options
            .routes
            .iter()
            .filter_map(|route| Some((route.prefix.clone(), place(&route.pool, false)?)));
        let routes = Routes::new(routes);
        let mut pools = Vec::with_capacity(wanted.len());
        for ((pool, is_shadow), (warm, shadow)) in wanted.into_iter().zip(links) {
            let planned = self.planned(pool, is_shadow);
            pools.push(Planned { warm, shadow, ..planned });
        }
        let counters = pools.iter().flat_map(|pool| pool.counters.iter()).max();
        let options = Options { connections: clients(options, &pools)?, ..options.clone() };
        Ok(Plan {
            number: self.plan.number + 1,
            routes,
            shares: shares(&options).into_iter().map(Arc::new).collect(),
            counters: counters.map_or(0, |most| most + 1),
            adopted: AtomicU32::new(0),
            pools,
        })
    }

    /// A pool as the plan before had it, or with connections of its own.
    fn planned(&mut self, pool: &Pool, is_shadow: bool) -> Planned {
        let known = self.plan.pools.iter().find(|known| {
            known.is_shadow == is_shadow
                && known.pool.name == pool.name
                && known.pool.has_same_servers(pool)
        });
        if let Some(known) = known {
            return known.clone();
        }
        let servers = pool.servers.iter().chain(&pool.failover);
        let counters = servers.map(|server| self.instruments.backend(&server.address.to_string()));
        let counters: Arc<[usize]> = counters.collect();
        // Uniques of the first pool of all are those of its servers; every other's differ from all
        // that were shown before.
        let first = if self.next_id == 1 {
            0
        } else {
            self.incarnation.fetch_add(1, Ordering::Relaxed) + 1
        };
        let incarnations = Incarnations::new(counters.len(), first, Arc::clone(&self.incarnation));
        self.next_id += 1;
        let pool = Arc::new(pool.clone());
        let id = self.next_id;
        Planned { id, pool, is_shadow, incarnations, counters, warm: None, shadow: None }
    }
}

/// Names of the pools that keys lead to, or items are taken from.
fn asked(options: &Options) -> Vec<&str> {
    let mut asked: Vec<&str> =
        options.pools.first().map(|pool| pool.name.as_str()).into_iter().collect();
    asked.extend(options.routes.iter().map(|route| route.pool.as_str()));
    let warm = options.pools.iter().filter(|pool| asked.contains(&pool.name.as_str()));
    let warm: Vec<&str> =
        warm.filter_map(|pool| Some(pool.warm_up.as_ref()?.from.as_str())).collect();
    asked.extend(warm);
    asked
}

/// Whether options can be carried out.
fn check(options: &Options) -> Result<(), PlanError> {
    if options.pools.is_empty() {
        return Err(PlanError::NoPool);
    }
    let few = |what: &str, count: usize, most: usize| {
        let error = PlanError::TooMany { what: what.to_owned(), count, most };
        if count > most { Err(error) } else { Ok(()) }
    };
    few("pools", options.pools.len(), POOLS)?;
    few("routes", options.routes.len(), ROUTES)?;
    let (lanes, _) = options.lanes();
    let mut names: Vec<&str> = Vec::new();
    for pool in &options.pools {
        let servers = pool.servers.len() + pool.failover.len();
        if pool.servers.is_empty() {
            return Err(PlanError::NoServer { pool: pool.name.clone() });
        }
        few(&format!("servers of pool `{}`", pool.name), servers, POOL_SERVERS)?;
        few(&format!("connections of pool `{}`", pool.name), lanes * servers, POOL_CONNECTIONS)?;
        if names.contains(&pool.name.as_str()) {
            return Err(PlanError::TwoPools { pool: pool.name.clone() });
        }
        names.push(&pool.name);
    }
    check_links(options, &names)
}

/// Whether pools and routes name pools that there are, and every pool is named.
fn check_links(options: &Options, names: &[&str]) -> Result<(), PlanError> {
    let exists = |who: String, pool: &str| {
        let known = names.join(", ");
        let error = PlanError::UnknownPool { who, pool: pool.to_owned(), known };
        if names.contains(&pool) { Ok(()) } else { Err(error) }
    };
    let mut prefixes = std::collections::HashSet::new();
    for route in &options.routes {
        let prefix = String::from_utf8_lossy(&route.prefix).into_owned();
        let is_key = route.prefix.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
        if route.prefix.is_empty() || route.prefix.len() > PREFIX_BYTES || !is_key {
            return Err(PlanError::Prefix { prefix });
        }
        exists(format!("the route of `{prefix}`"), &route.pool)?;
        if !prefixes.insert(&route.prefix) {
            return Err(PlanError::TwoRoutes { prefix });
        }
    }
    let mut used: Vec<&str> = asked(options);
    for pool in &options.pools {
        let itself = |what| Err(PlanError::Itself { pool: pool.name.clone(), what });
        if let Some(warm) = &pool.warm_up {
            exists(format!("the warm-up of pool `{}`", pool.name), &warm.from)?;
            if warm.from == pool.name {
                return itself("source of a warm-up");
            }
        }
        if let Some(shadow) = &pool.shadow {
            exists(format!("the shadow of pool `{}`", pool.name), &shadow.pool)?;
            if shadow.pool == pool.name {
                return itself("shadow");
            }
            if shadow.millionths == 0 || shadow.millionths > MILLION {
                return Err(PlanError::NoShare { pool: pool.name.clone() });
            }
        }
    }
    let shadowed = options.pools.iter().filter(|pool| used.contains(&pool.name.as_str()));
    let shadows: Vec<&str> =
        shadowed.filter_map(|pool| Some(pool.shadow.as_ref()?.pool.as_str())).collect();
    used.extend(shadows);
    match names.iter().find(|name| !used.contains(name)) {
        Some(unused) => Err(PlanError::Unused { pool: (*unused).to_owned() }),
        None => Ok(()),
    }
}

/// Clients that may be connected: the connections to all servers and the metrics page keep their descriptors.
fn clients(options: &Options, pools: &[Planned]) -> Result<usize, PlanError> {
    let servers = |shadows: bool| {
        let pools = pools.iter().filter(|pool| pool.is_shadow == shadows);
        pools.map(|pool| pool.counters.len()).sum::<usize>()
    };
    let (asked, shadows) = (servers(false), servers(true));
    // To each server there is one more for probes. A thread has two of its own.
    let of_thread = |share: &Options| (share.lanes().0 + 1) * asked + 2 * shadows + 2;
    let others: usize = shares(options).iter().map(of_thread).sum();
    let files = share_of_descriptors(1);
    match files.saturating_sub(others + FILES_SPARE) {
        0 => Err(PlanError::Files { connections: others, files }),
        most => Ok(bound_connections(options.listen, options.connections, most)),
    }
}

/// The options of each network thread: workers, queue and clients are divided among them, and none
/// goes without.
fn shares(options: &Options) -> Vec<Options> {
    let threads = options.threads.max(1);
    let share = |total: usize, number: u32| {
        let (total, threads, number) = (total as u64, u64::from(threads), u64::from(number));
        let share = total / threads + u64::from(number < total % threads);
        usize::try_from(share).unwrap_or(usize::MAX)
    };
    (0..threads)
        .map(|number| Options {
            mode: match options.mode {
                Mode::Workers(workers) => {
                    let workers = share(workers as usize, number).max(1);
                    Mode::Workers(u32::try_from(workers).unwrap_or(u32::MAX))
                }
                pipelined @ Mode::Pipelined { .. } => pipelined,
            },
            queue_length: share(options.queue_length, number),
            connections: share(options.connections, number).max(1),
            ..options.clone()
        })
        .collect()
}

/// Gives a running proxy other options, without a request being lost.
#[derive(Debug, Clone)]
pub struct Reloader {
    pub(crate) planner: Arc<Mutex<Planner>>,
    pub(crate) inboxes: Vec<Inbox>,
}

impl Reloader {
    /// Has every network thread go by these options, and waits until they do. What was sent to servers
    /// under the old ones is finished under these; connections to servers of pools that did not change
    /// stay.
    ///
    /// # Errors
    /// [`ReloadError`]; then the options of before hold, unless a thread stood still.
    pub fn reload(&self, options: Options) -> Result<(), ReloadError> {
        let mut planner = self.planner.lock();
        let plan = planner.follow(options)?;
        for inbox in &self.inboxes {
            inbox.put(Arc::clone(&plan));
        }
        let threads = u32::try_from(self.inboxes.len()).unwrap_or(u32::MAX);
        #[expect(clippy::disallowed_methods, reason = "of no measured path: how long to wait")]
        let begun = Instant::now();
        while plan.adopted.load(Ordering::Acquire) < threads {
            if begun.elapsed() > ADOPTED_WITHIN {
                return Err(ReloadError::Stuck);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}
