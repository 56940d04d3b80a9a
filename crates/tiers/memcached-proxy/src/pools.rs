//! The pools of a network thread: which of them a request is for, and those of earlier
//! configurations until the last request is done that was dispatched under them.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use kendall_protocols::memcached::{Command, Request, keys};

use crate::admission::Size;
use crate::plan::{Plan, Planned};
use crate::request::has_key;
use crate::servers::Servers;
use crate::tools::Tools;

/// Pools that may be held at once, those of earlier configurations included.
pub(crate) const MOST_POOLS: usize = 1 << 10;

/// Where items come from that a cold pool does not have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Warm {
    pub(crate) pool: usize,
    /// Seconds that an item stays at most.
    pub(crate) longest: Option<u64>,
}

/// Who gets copies of requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copies {
    pub(crate) pool: usize,
    /// Of how many keys.
    pub(crate) millionths: u32,
}

#[derive(Debug)]
struct Slot {
    /// Of what it was planned as; none where the slot is free.
    id: Option<u64>,
    servers: Servers,
    is_shadow: bool,
    warm: Option<Warm>,
    shadow: Option<Copies>,
    /// The last plan that it was part of, once there is a later one.
    retired: Option<u64>,
}

impl Slot {
    fn free() -> Self {
        let (warm, shadow, retired) = (None, None, None);
        Self { id: None, servers: Servers::none(), is_shadow: false, warm, shadow, retired }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    One(usize),
    /// Its keys are in several.
    Several,
    /// It has no key, and is for every server.
    All,
}

#[derive(Debug)]
pub(crate) struct Pools {
    slots: Vec<Slot>,
    plan: Arc<Plan>,
    /// By number in the plan: its slot.
    places: Vec<usize>,
    main: usize,
    has_routes: bool,
    /// Pools that keys lead to are more than one.
    has_several: bool,
    /// Some pool is warmed up, or has a shadow.
    has_company: bool,
    warms: bool,
    /// Requests under way, by the plan under which they were dispatched, from the oldest of which some
    /// are left.
    under_way: VecDeque<usize>,
    oldest: u64,
}

impl Index<usize> for Pools {
    type Output = Servers;

    #[inline]
    fn index(&self, pool: usize) -> &Servers {
        &self.slots[pool].servers
    }
}

impl IndexMut<usize> for Pools {
    #[inline]
    fn index_mut(&mut self, pool: usize) -> &mut Servers {
        &mut self.slots[pool].servers
    }
}

impl Pools {
    /// Those of the first plan, and begins to connect.
    pub(crate) fn new(plan: &Arc<Plan>, number: usize, tools: &mut Tools) -> Self {
        let mut pools = Self {
            slots: Vec::new(),
            plan: Arc::clone(plan),
            places: Vec::new(),
            main: 0,
            has_routes: false,
            has_several: false,
            has_company: false,
            warms: false,
            under_way: VecDeque::from([0]),
            oldest: plan.number,
        };
        pools.enter(plan, number, tools);
        pools
    }

    /// Goes by another plan from now on. `false` where there is no space for it yet.
    pub(crate) fn adopt(&mut self, plan: &Arc<Plan>, number: usize, tools: &mut Tools) -> bool {
        self.let_go();
        let used = self.slots.iter().filter(|slot| slot.id.is_some()).count();
        if used + plan.pools.len() > MOST_POOLS {
            return false;
        }
        for slot in self.slots.iter_mut().filter(|slot| slot.id.is_some()) {
            let stays = plan.pools.iter().any(|planned| slot.id == Some(planned.id));
            slot.retired = match slot.retired {
                // One that is planned again before it was let go is as it was.
                _ if stays => None,
                None => Some(self.plan.number),
                retired => retired,
            };
        }
        // Plans may have been passed over: nothing was dispatched under them.
        for _ in self.plan.number..plan.number {
            self.under_way.push_back(0);
        }
        self.plan = Arc::clone(plan);
        self.enter(plan, number, tools);
        self.let_go();
        true
    }

    fn enter(&mut self, plan: &Arc<Plan>, number: usize, tools: &mut Tools) {
        tools.recorder.knows_backends(plan.counters);
        self.places = self.place(&plan.pools);
        for (planned, place) in plan.pools.iter().zip(&self.places) {
            if self.slots[*place].id == Some(planned.id) {
                continue;
            }
            let servers = Servers::new(planned, &plan.shares[number], *place, tools);
            let (id, is_shadow) = (Some(planned.id), planned.is_shadow);
            self.slots[*place] =
                Slot { id, servers, is_shadow, warm: None, shadow: None, retired: None };
        }
        for (planned, place) in plan.pools.iter().zip(&self.places) {
            let slot = &mut self.slots[*place];
            slot.warm =
                planned.warm.map(|(pool, longest)| Warm { pool: self.places[pool], longest });
            slot.shadow = planned
                .shadow
                .map(|(pool, millionths)| Copies { pool: self.places[pool], millionths });
        }
        self.main = self.places[0];
        self.has_routes = !plan.routes.is_empty();
        self.has_several = plan.pools.iter().filter(|pool| !pool.is_shadow).count() > 1;
        self.warms = plan.pools.iter().any(|pool| pool.warm.is_some());
        self.has_company = self.warms || plan.pools.iter().any(|pool| pool.shadow.is_some());
    }

    /// The slot of each pool: its own, or a free one.
    fn place(&mut self, planned: &[Planned]) -> Vec<usize> {
        let mut places: Vec<usize> = Vec::with_capacity(planned.len());
        for planned in planned {
            let own = self.slots.iter().position(|slot| slot.id == Some(planned.id));
            let free = || {
                let mut slots = self.slots.iter().enumerate();
                slots.find(|(n, slot)| slot.id.is_none() && !places.contains(n)).map(|(n, _)| n)
            };
            let place = own.or_else(free).unwrap_or_else(|| {
                self.slots.push(Slot::free());
                self.slots.len() - 1
            });
            places.push(place);
        }
        places
    }

    /// Closes the connections of pools of earlier plans once nothing is under way there.
    pub(crate) fn let_go(&mut self) {
        while self.under_way.len() > 1 && self.under_way[0] == 0 {
            self.under_way.pop_front();
            self.oldest += 1;
        }
        for slot in &mut self.slots {
            if slot.retired.is_some_and(|last| last < self.oldest) {
                *slot = Slot::free();
            }
        }
    }

    /// Whether connections of an earlier plan are still open.
    pub(crate) fn has_retired(&self) -> bool {
        self.slots.iter().any(|slot| slot.retired.is_some())
    }

    /// A request is dispatched; says under which plan.
    #[inline]
    pub(crate) fn begin(&mut self) -> u64 {
        if let Some(count) = self.under_way.back_mut() {
            *count += 1;
        }
        self.plan.number
    }

    /// One that was dispatched under that plan is done.
    #[inline]
    pub(crate) fn end(&mut self, plan: u64) {
        let place = usize::try_from(plan - self.oldest).unwrap_or(usize::MAX);
        if let Some(count) = self.under_way.get_mut(place) {
            *count -= 1;
        }
    }

    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.plan.number
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(crate) fn have_company(&self) -> bool {
        self.has_company
    }

    #[inline]
    pub(crate) fn warm_up(&self) -> bool {
        self.warms
    }

    pub(crate) fn warm(&self, pool: usize) -> Option<Warm> {
        self.slots[pool].warm
    }

    pub(crate) fn shadow(&self, pool: usize) -> Option<Copies> {
        self.slots[pool].shadow
    }

    /// The shared lane of a client, the same in every pool.
    #[inline]
    pub(crate) fn shared_lane(&self, client: usize, size: Size) -> usize {
        self[self.main].shared_lane(client, size)
    }

    /// Pools that keys lead to, or items come from.
    pub(crate) fn asked(&self) -> Vec<usize> {
        let mut asked = self.places.clone();
        asked.retain(|place| !self.slots[*place].is_shadow);
        asked
    }

    pub(crate) fn servers(&self) -> usize {
        self.asked().into_iter().map(|place| self[place].len()).sum()
    }

    #[inline]
    pub(crate) fn of_key(&self, key: &[u8]) -> usize {
        if !self.has_routes {
            return self.main;
        }
        self.plan.routes.pool(key).map_or(self.main, |pool| self.places[pool])
    }

    #[inline]
    pub(crate) fn of(&self, request: &Request, bytes: &[u8]) -> Target {
        match request.command {
            Command::FlushAll | Command::Verbosity | Command::Admin if self.has_several => {
                Target::All
            }
            _ if !self.has_routes || !has_key(request) => Target::One(self.main),
            _ => self.of_keys(request, bytes),
        }
    }

    fn of_keys(&self, request: &Request, bytes: &[u8]) -> Target {
        let first = self.of_key(request.key.of(bytes));
        let alike =
            request.keys < 2 || keys(request, bytes).skip(1).all(|key| self.of_key(key) == first);
        if alike { Target::One(first) } else { Target::Several }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.slots.iter().map(|slot| slot.servers.in_flight()).sum()
    }

    pub(crate) fn all_live(&self) -> bool {
        self.slots.iter().all(|slot| slot.servers.all_live())
    }

    #[inline]
    pub(crate) fn have_work(&self) -> bool {
        self.slots.iter().any(|slot| slot.servers.have_work())
    }

    pub(crate) fn check(&mut self, tools: &mut Tools) {
        for slot in &mut self.slots {
            slot.servers.check(tools);
        }
    }
}
