//! Routing: whether it makes sense, and the visits that follow from it.

use nalgebra::{DMatrix, DVector};

use super::{Class, Leg, Model, ModelError, Place, Workload, refused};

/// Largest system of traffic equations that is solved: (classes × stations)³ operations.
const MOST_EQUATIONS: usize = 2_000;
/// Stations up to which any may follow any when only visit ratios are known.
const MOST_MESHED: usize = 300;

impl Model {
    /// Visits per request: `visits()[station][class]`.
    ///
    /// Without routing they are what the stations say. With routing they solve the traffic
    /// equations V = e + V·P, in which e says where customers of a chain enter; a request is one
    /// that comes from outside (or from thinking) *in any class of the chain*, so with class
    /// switching the visits of all classes of a chain count per request of the chain, and the
    /// arrival rates (populations) of its classes say how requests start.
    ///
    /// # Errors
    /// [`ModelError::NeverLeaves`] when a customer can come to where there is no way out,
    /// [`ModelError::TooLarge`] beyond 2,000 equations.
    ///
    /// # Source
    /// Traffic equations: [Bolch06 §7.1].
    pub fn visits(&self) -> Result<Vec<Vec<f64>>, ModelError> {
        let (stations, classes) = (self.stations.len(), self.classes.len());
        let mut visits = vec![vec![0.0; classes]; stations];
        if self.routes.is_empty() {
            for (row, station) in visits.iter_mut().zip(&self.stations) {
                for (cell, demand) in row.iter_mut().zip(&station.demands) {
                    *cell = demand.as_ref().map_or(0.0, |demand| demand.visits);
                }
            }
            return Ok(visits);
        }
        let size = stations * classes;
        if size > MOST_EQUATIONS {
            return Err(ModelError::TooLarge {
                path: "routes".to_owned(),
                value: format!("{size} equations (stations × classes)"),
                limit: MOST_EQUATIONS.to_string(),
            });
        }
        for chain in self.chains() {
            self.chain_visits(&chain, &mut visits)?;
        }
        Ok(visits)
    }

    /// Classes that turn into one another, together: each list is one chain. Without class
    /// switching every class is a chain of its own.
    #[must_use]
    pub fn chains(&self) -> Vec<Vec<usize>> {
        let mut group: Vec<usize> = (0..self.classes.len()).collect();
        for leg in self.routes.iter().filter(|leg| leg.probability > 0.0) {
            let (a, b) = (group[leg.class], group[leg.to_class]);
            if a != b {
                for cell in &mut group {
                    if *cell == b {
                        *cell = a;
                    }
                }
            }
        }
        let mut chains: Vec<Vec<usize>> = Vec::new();
        for class in 0..group.len() {
            match chains.iter_mut().find(|chain| group[chain[0]] == group[class]) {
                Some(chain) => chain.push(class),
                None => chains.push(vec![class]),
            }
        }
        chains
    }

    /// Solves the traffic equations of one chain.
    fn chain_visits(&self, chain: &[usize], visits: &mut [Vec<f64>]) -> Result<(), ModelError> {
        let stations = self.stations.len();
        let size = stations * chain.len();
        let at = |class: usize, station: usize| {
            chain.iter().position(|c| *c == class).map(|row| row * stations + station)
        };
        let mut matrix = DMatrix::<f64>::identity(size, size);
        let mut entry = DVector::<f64>::zeros(size);
        let start = self.start_shares(chain)?;
        let flows = self.flows()?;
        let reached = self.reached(&flows);
        for leg in flows.iter().filter(|leg| chain.contains(&leg.class)) {
            let Place::Station(to) = leg.to else { continue };
            let Some(row) = at(leg.to_class, to) else { continue };
            match leg.from {
                Place::Outside => entry[row] += leg.probability * start[leg.class],
                // Where nobody comes there may be no way out.
                Place::Station(from) if reached[leg.class * stations + from] => {
                    if let Some(column) = at(leg.class, from) {
                        matrix[(row, column)] -= leg.probability;
                    }
                }
                Place::Station(_) => {}
            }
        }
        let solved = matrix.lu().solve(&entry).filter(|v| v.iter().all(|x| x.is_finite()));
        let Some(solved) = solved else { return Err(self.caught(chain)) };
        for (position, class) in chain.iter().enumerate() {
            for station in 0..stations {
                visits[station][*class] = solved[position * stations + station].max(0.0);
            }
        }
        Ok(())
    }

    /// In which class a request of the chain starts: by arrival rate when the chain is open;
    /// when it is closed, by how often a customer comes out of thinking in that class.
    pub(crate) fn start_shares(&self, chain: &[usize]) -> Result<Vec<f64>, ModelError> {
        let mut shares = vec![0.0; self.classes.len()];
        let total: f64 = chain.iter().map(|c| self.classes[*c].arrival_rate_per_s()).sum();
        if total > 0.0 {
            for class in chain {
                shares[*class] = self.classes[*class].arrival_rate_per_s() / total;
            }
            return Ok(shares);
        }
        self.closed_start_shares(chain, &mut shares)?;
        Ok(shares)
    }

    /// Stationary shares of the classes in which a closed chain starts its rounds, from "start in class a, come home in
    /// class b", which one linear solve gives per class.
    fn closed_start_shares(&self, chain: &[usize], shares: &mut [f64]) -> Result<(), ModelError> {
        let starts: Vec<usize> = chain
            .iter()
            .copied()
            .filter(|c| self.routes.iter().any(|leg| leg.class == *c && leg.from == Place::Outside))
            .collect();
        let Some(first) = starts.first() else { return Ok(()) };
        if starts.len() == 1 {
            shares[*first] = 1.0;
            return Ok(());
        }
        // Rows: start class; columns: class on coming home.
        let count = starts.len();
        let mut home = DMatrix::<f64>::zeros(count, count);
        for (row, class) in starts.iter().enumerate() {
            let shares = self.homecomings(chain, *class, &starts)?;
            for (column, share) in shares.into_iter().enumerate() {
                home[(row, column)] = share;
            }
        }
        let Some(stay) = self.stays(&starts, &home)? else { return Ok(()) };
        // π = π·H with Σπ = 1: replace one equation by the sum.
        let own = home.select_rows(&stay).select_columns(&stay);
        let mut system = own.transpose() - DMatrix::<f64>::identity(stay.len(), stay.len());
        let mut right = DVector::<f64>::zeros(stay.len());
        system.row_mut(stay.len() - 1).fill(1.0);
        right[stay.len() - 1] = 1.0;
        let solved = system.lu().solve(&right).ok_or_else(|| self.caught(chain))?;
        for (index, share) in stay.iter().zip(solved.iter()) {
            shares[starts[*index]] = share.max(0.0);
        }
        Ok(())
    }

    /// Those of `starts` as which the customers go on for ever, given how they come home.
    ///
    /// # Errors
    /// [`ModelError::Refused`] where there are several sets of them: which a customer comes to is chance.
    fn stays(
        &self,
        starts: &[usize],
        home: &DMatrix<f64>,
    ) -> Result<Option<Vec<usize>>, ModelError> {
        let all = 0..starts.len();
        let reached: Vec<Vec<bool>> = all.clone().map(|from| reach(home, from)).collect();
        let populated = |index: &usize| self.classes[starts[*index]].population() > 0;
        let mut begun: Vec<usize> = all.clone().filter(populated).collect();
        if begun.is_empty() {
            begun = all.clone().collect();
        }
        let comes_back = |one: usize| all.clone().all(|to| !reached[one][to] || reached[to][one]);
        let mut stay = all
            .clone()
            .filter(|one| comes_back(*one) && begun.iter().any(|from| reached[*from][*one]));
        let Some(first) = stay.next() else { return Ok(None) };
        if let Some(other) = stay.find(|one| !reached[first][*one]) {
            let [one, other] = [first, other].map(|index| &self.classes[starts[index]].name);
            return Err(refused(
                "routes",
                format!("a closed chain whose customers end as `{one}` or as `{other}` for good"),
                "classes that turn into one another again, or separate ones",
            ));
        }
        Ok(Some(all.filter(|to| reached[first][*to]).collect()))
    }

    /// Probability of coming home as each of `starts`, having started as `class`.
    fn homecomings(
        &self,
        chain: &[usize],
        class: usize,
        starts: &[usize],
    ) -> Result<Vec<f64>, ModelError> {
        let stations = self.stations.len();
        let size = stations * chain.len();
        let at = |c: usize, s: usize| {
            chain.iter().position(|x| *x == c).map_or(0, |row| row * stations + s)
        };
        let mut matrix = DMatrix::<f64>::identity(size, size);
        let mut entry = DVector::<f64>::zeros(size);
        let mut home = vec![0.0; starts.len()];
        let flows = self.flows()?;
        for leg in flows.iter().filter(|leg| chain.contains(&leg.class)) {
            match (leg.from, leg.to) {
                (Place::Outside, Place::Station(to)) if leg.class == class => {
                    entry[at(leg.to_class, to)] += leg.probability;
                }
                (Place::Station(from), Place::Station(to)) => {
                    matrix[(at(leg.to_class, to), at(leg.class, from))] -= leg.probability;
                }
                _ => {}
            }
        }
        let Some(visits) = matrix.lu().solve(&entry) else { return Ok(home) };
        for leg in self.routes.iter().filter(|leg| leg.to == Place::Outside) {
            let (Place::Station(from), Some(column)) =
                (leg.from, starts.iter().position(|c| *c == leg.to_class))
            else {
                continue;
            };
            if chain.contains(&leg.class) {
                home[column] += visits[at(leg.class, from)] * leg.probability;
            }
        }
        Ok(home)
    }

    fn caught(&self, chain: &[usize]) -> ModelError {
        ModelError::NeverLeaves {
            class: self.classes[chain[0]].name.clone(),
            station: self.stations[0].name.clone(),
        }
    }

    /// Closed classes whose routes never lead out go round for ever, as textbooks write it: a round
    /// then begins whenever a customer comes to the first station that their routes name, and the
    /// throughput is that of this station.
    pub(super) fn close_rounds(&mut self) -> Result<(), ModelError> {
        for chain in self.chains() {
            let own = |leg: &Leg| chain.contains(&leg.class) && leg.probability > 0.0;
            let outside = |leg: &Leg| leg.from == Place::Outside || leg.to == Place::Outside;
            let endless = chain.iter().all(|class| !self.classes[*class].is_open())
                && !self.routes.iter().any(|leg| own(leg) && outside(leg));
            let Some(first) = self.routes.iter().find(|leg| own(leg)).filter(|_| endless) else {
                continue;
            };
            let reference = first.from;
            if let Some(class) = chain.iter().find(|c| self.classes[**c].think_time_s() > 0.0) {
                return Err(refused(
                    "routes",
                    format!("class `{}`, which thinks and never leaves", self.classes[*class].name),
                    "a route to `out`, where customers think, and one from `in`; or the think time                      as a station of type `delay`",
                ));
            }
            let mut entered: Vec<usize> = Vec::new();
            for leg in &mut self.routes {
                if own(leg) && leg.to == reference {
                    leg.to = Place::Outside;
                    if !entered.contains(&leg.to_class) {
                        entered.push(leg.to_class);
                    }
                }
            }
            self.routes.extend(entered.into_iter().map(|class| Leg {
                class,
                from: Place::Outside,
                to_class: class,
                to: reference,
                probability: 1.0,
            }));
        }
        Ok(())
    }

    pub(super) fn check_routes(&self) -> Result<(), ModelError> {
        if self.routes.is_empty() {
            return Ok(());
        }
        for (index, leg) in self.routes.iter().enumerate() {
            self.check_leg(&format!("routes[{index}]"), leg)?;
        }
        for leg in self.ways_in() {
            self.check_leg("stations.branches", &leg)?;
        }
        self.check_sums()?;
        self.flows()?;
        for (index, class) in self.classes.iter().enumerate() {
            let used = || self.routes.iter().filter(|leg| leg.probability > 0.0);
            // Customers who leave in a closed class think and come in again as it.
            let returns = || used().any(|leg| leg.to == Place::Outside && leg.to_class == index);
            let wanted = match class.workload {
                Workload::Open { arrival_rate_per_s, .. } => arrival_rate_per_s > 0.0,
                Workload::Closed { population, .. } => population > 0 || returns(),
            };
            let enters = used().any(|leg| leg.class == index && leg.from == Place::Outside);
            if wanted && !enters {
                return Err(no_entry(class));
            }
        }
        self.check_ways_out()?;
        for chain in self.chains() {
            let enters = self
                .routes
                .iter()
                .any(|leg| chain.contains(&leg.class) && leg.from == Place::Outside);
            if !enters {
                return Err(no_entry(&self.classes[chain[0]]));
            }
            let open = chain.iter().filter(|c| self.classes[**c].is_open()).count();
            if open != 0 && open != chain.len() {
                return Err(refused(
                    "routes",
                    format!("class `{}`", self.classes[chain[0]].name),
                    "classes that turn into one another to be all open or all closed",
                ));
            }
        }
        Ok(())
    }

    fn check_leg(&self, path: &str, leg: &Leg) -> Result<(), ModelError> {
        let classes = self.classes.len();
        let known = |place: Place| match place {
            Place::Outside => true,
            Place::Station(index) => index < self.stations.len(),
        };
        if leg.class >= classes || leg.to_class >= classes || !known(leg.from) || !known(leg.to) {
            return Err(refused(path, "an index", "classes and stations of the model"));
        }
        if !(0.0..=1.0).contains(&leg.probability) {
            return Err(refused(path, leg.probability, "a probability from 0 to 1"));
        }
        if let Place::Station(to) = leg.to
            && leg.probability > 0.0
            && self.stations[to].demand_at(leg.to_class).is_none()
        {
            return Err(ModelError::Missing {
                path: format!("stations[{to}].service_time_s"),
                expected: format!(
                    "a time for class `{}`, which is routed to `{}`",
                    self.classes[leg.to_class].name, self.stations[to].name
                ),
            });
        }
        Ok(())
    }

    fn check_sums(&self) -> Result<(), ModelError> {
        let mut sums = std::collections::BTreeMap::<(Place, usize), f64>::new();
        for leg in &self.routes {
            *sums.entry((leg.from, leg.class)).or_default() += leg.probability;
        }
        for ((from, class), sum) in sums {
            if (sum - 1.0).abs() > 1e-9 {
                let place = match from {
                    Place::Outside => "in",
                    Place::Station(index) => &self.stations[index].name,
                };
                return Err(refused(
                    format!("routes from `{place}` of class `{}`", self.classes[class].name),
                    sum,
                    "probabilities that add to 1; name what leaves the network as `out`",
                ));
            }
        }
        Ok(())
    }

    /// The stations that customers of each class reach from outside: `[class × stations + station]`.
    fn reached(&self, legs: &[Leg]) -> Vec<bool> {
        self.spread(legs, |leg| ((leg.from, leg.class), (leg.to, leg.to_class)))
    }

    /// What is reached from outside over steps from one place to another.
    fn spread(
        &self,
        legs: &[Leg],
        step: impl Fn(&Leg) -> ((Place, usize), (Place, usize)),
    ) -> Vec<bool> {
        let stations = self.stations.len();
        let index = |(place, class): (Place, usize)| match place {
            Place::Outside => None,
            Place::Station(station) => Some(class * stations + station),
        };
        let mut reached = vec![false; stations * self.classes.len()];
        let mut changed = true;
        while changed {
            changed = false;
            for leg in legs.iter().filter(|leg| leg.probability > 0.0) {
                let (from, to) = step(leg);
                if let Some(to) = index(to)
                    && index(from).is_none_or(|from| reached[from])
                    && !reached[to]
                {
                    reached[to] = true;
                    changed = true;
                }
            }
        }
        reached
    }

    /// Every place that can be reached has a way out.
    fn check_ways_out(&self) -> Result<(), ModelError> {
        let stations = self.stations.len();
        let size = stations * self.classes.len();
        let legs: Vec<Leg> = self.routes.iter().cloned().chain(self.ways_in()).collect();
        let reached = self.reached(&legs);
        let leaves = self.spread(&legs, |leg| ((leg.to, leg.to_class), (leg.from, leg.class)));
        for place in 0..size {
            if reached[place] && !leaves[place] {
                return Err(ModelError::NeverLeaves {
                    class: self.classes[place / stations].name.clone(),
                    station: self.stations[place % stations].name.clone(),
                });
            }
        }
        Ok(())
    }
}

/// Where a round that starts as `from` may lead, over any number of rounds.
fn reach(home: &DMatrix<f64>, from: usize) -> Vec<bool> {
    let mut reached = vec![false; home.ncols()];
    let mut left = vec![from];
    while let Some(one) = left.pop() {
        if !std::mem::replace(&mut reached[one], true) {
            left.extend((0..home.ncols()).filter(|to| home[(one, *to)] > 1e-12));
        }
    }
    reached
}

fn no_entry(class: &Class) -> ModelError {
    ModelError::Missing {
        path: "routes".to_owned(),
        expected: format!("a route from `in` for class `{}`", class.name),
    }
}

/// Steps whose visit ratios are the given ones. Where no station is visited more than once on
/// average, stations are passed in their order, each with the probability of its visits (and so
/// in networks too large to mesh, with repetitions); where the first is visited once more than
/// all others together, it is the hub of a central-server network; else any may follow any.
pub(crate) fn legs_from_visits(visits: &[(usize, f64)]) -> Vec<(Place, Place, f64)> {
    let sum: f64 = visits.iter().map(|(_, v)| v).sum();
    let Some(&(first, hub)) = visits.first() else { return Vec::new() };
    let mut legs = Vec::new();
    if visits.iter().all(|(_, v)| *v <= 1.0) || visits.len() > MOST_MESHED {
        for from in 0..=visits.len() {
            let (place, again) = match from.checked_sub(1).map(|last| visits[last]) {
                None => (Place::Outside, 0.0),
                Some((station, v)) => (Place::Station(station), (1.0 - 1.0 / v).max(0.0)),
            };
            legs.push((place, place, again));
            let mut left = 1.0 - again;
            for &(to, v) in &visits[from..] {
                legs.push((place, Place::Station(to), left * v.min(1.0)));
                left *= 1.0 - v.min(1.0);
                if left <= 0.0 {
                    break;
                }
            }
            legs.push((place, Place::Outside, left));
        }
    } else if (hub - 1.0 - (sum - hub)).abs() <= 1e-9 * hub {
        legs.push((Place::Outside, Place::Station(first), 1.0));
        for &(to, v) in &visits[1..] {
            legs.push((Place::Station(first), Place::Station(to), v / hub));
            legs.push((Place::Station(to), Place::Station(first), 1.0));
        }
        legs.push((Place::Station(first), Place::Outside, 1.0 / hub));
    } else {
        // The number of visits is geometric with mean `sum` (above 1 here), each to any station.
        for &(to, v) in visits {
            legs.push((Place::Outside, Place::Station(to), v / sum));
            for &(from, _) in visits {
                let share = (1.0 - 1.0 / sum) * v / sum;
                legs.push((Place::Station(from), Place::Station(to), share));
            }
            legs.push((Place::Station(to), Place::Outside, 1.0 / sum));
        }
    }
    legs.retain(|(_, _, probability)| *probability > 0.0);
    legs
}
