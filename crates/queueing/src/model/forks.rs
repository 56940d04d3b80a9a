//! Forks whose branches are other stations: from where a branch begins, its part of the work follows the
//! routes of its class until they lead back to the fork, which is where the branches are joined.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::{Leg, Model, ModelError, Place, refused};

/// Most forks around a station.
const MOST_NESTED: usize = 20;

/// A class at a station.
type At = (usize, usize);
/// By class and station, the forks in whose branches the class is there, outermost first.
pub(crate) type Inside = BTreeMap<At, Vec<usize>>;

impl Model {
    /// Where classes are inside of forks.
    ///
    /// # Errors
    /// [`ModelError::Refused`] where a class is at a station inside of a fork and outside of it, or routes
    /// lead out of a fork other than back to it.
    pub(crate) fn inside(&self) -> Result<Inside, ModelError> {
        let mut next: BTreeMap<At, Vec<At>> = BTreeMap::new();
        for leg in self.routes.iter().filter(|leg| leg.probability > 0.0) {
            if let (Place::Station(from), Place::Station(to)) = (leg.from, leg.to) {
                next.entry((leg.class, from)).or_default().push((leg.to_class, to));
            }
        }
        let mut begins: BTreeMap<usize, Vec<At>> = BTreeMap::new();
        for leg in self.ways_in() {
            if let (Place::Station(fork), Place::Station(part)) = (leg.from, leg.to) {
                begins.entry(fork).or_default().push((leg.class, part));
            }
        }
        let mut innermost = BTreeMap::new();
        for (fork, left) in begins {
            self.branches((fork, left), &next, &mut innermost)?;
        }
        let mut inside = Inside::new();
        for &(class, station) in innermost.keys() {
            let mut forks = Vec::new();
            let mut at = (class, station);
            while let Some(&fork) = innermost.get(&at) {
                if forks.contains(&fork) || forks.len() == MOST_NESTED {
                    let name = &self.stations[fork].name;
                    let expected = "branches that do not contain it, inside of at most 20 forks";
                    return Err(refused("stations.branches", format!("`{name}`"), expected));
                }
                forks.insert(0, fork);
                // A fork inside another is so for each class that is there.
                let classes = 0..self.classes.len();
                let known = |class: &usize| innermost.contains_key(&(*class, fork));
                at = (classes.into_iter().find(known).unwrap_or(class), fork);
            }
            inside.insert((class, station), forks);
        }
        self.check_inside(&inside)?;
        Ok(inside)
    }

    /// Marks what can be reached from where the branches of a fork begin without its join.
    fn branches(
        &self,
        (fork, mut left): (usize, Vec<At>),
        next: &BTreeMap<At, Vec<At>>,
        innermost: &mut BTreeMap<At, usize>,
    ) -> Result<(), ModelError> {
        while let Some((class, station)) = left.pop() {
            match innermost.insert((class, station), fork) {
                Some(same) if same == fork => continue,
                None => {}
                Some(other) => {
                    let [one, two] = [other, fork].map(|f| self.stations[f].name.as_str());
                    return Err(self.mixed(class, station, &format!("`{one}`, `{two}`")));
                }
            }
            let behind = next.get(&(class, station)).into_iter().flatten();
            left.extend(behind.filter(|(_, to)| *to != fork));
        }
        Ok(())
    }

    fn check_inside(&self, inside: &Inside) -> Result<(), ModelError> {
        let forks = |place: Place, class: usize| match place {
            Place::Outside => &[][..],
            Place::Station(at) => inside.get(&(class, at)).map_or(&[][..], Vec::as_slice),
        };
        for leg in self.routes.iter().filter(|leg| leg.probability > 0.0) {
            let (before, after) = (forks(leg.from, leg.class), forks(leg.to, leg.to_class));
            if before == after && (leg.to != Place::Outside || before.is_empty())
                || is_join(before, leg)
            {
                continue;
            }
            let station = match (before.is_empty(), leg.from, leg.to) {
                (false, Place::Station(at), _) | (true, _, Place::Station(at)) => at,
                _ => continue,
            };
            let fork = before.last().or(after.last()).copied().unwrap_or_default();
            return Err(self.mixed(leg.class, station, &format!("`{}`", self.stations[fork].name)));
        }
        Ok(())
    }

    fn mixed(&self, class: usize, station: usize, forks: &str) -> ModelError {
        let (class, station) = (&self.classes[class].name, &self.stations[station].name);
        refused(
            format!("routes of class `{class}` at `{station}`"),
            format!("a way into or out of the branches of {forks}"),
            "branches that begin at the fork and lead back to it, by stations that the class comes to \
             nowhere else (or as another class)",
        )
    }

    /// The routes as customers and the parts of their work flow: into all branches, and not back out of them.
    ///
    /// # Errors
    /// As [`inside`](Self::inside).
    pub(crate) fn flows(&self) -> Result<Cow<'_, [Leg]>, ModelError> {
        if self.stations.iter().all(|station| station.parts.is_empty()) {
            return Ok(Cow::Borrowed(&self.routes));
        }
        let inside = self.inside()?;
        let joins = |leg: &&Leg| match leg.from {
            Place::Station(at) => inside.get(&(leg.class, at)).is_some_and(|f| is_join(f, leg)),
            Place::Outside => false,
        };
        let mut flows: Vec<Leg> = self.routes.iter().filter(|leg| !joins(leg)).cloned().collect();
        flows.extend(self.ways_in());
        Ok(Cow::Owned(flows))
    }

    /// From forks to where their branches begin.
    pub(super) fn ways_in(&self) -> Vec<Leg> {
        let from = |leg: &Leg| match leg.from {
            Place::Station(fork) if leg.probability > 0.0 => Some((leg.class, fork)),
            _ => None,
        };
        let comes: BTreeSet<At> = self.routes.iter().filter_map(from).collect();
        let ways = comes.into_iter().flat_map(|(class, fork)| {
            self.stations[fork].parts.iter().map(move |part| Leg {
                class,
                from: Place::Station(fork),
                to_class: class,
                to: Place::Station(*part),
                probability: 1.0,
            })
        });
        ways.collect()
    }
}

/// Whether a step out of a place inside of these forks ends a branch of the innermost.
fn is_join(forks: &[usize], leg: &Leg) -> bool {
    forks.last().is_some_and(|fork| leg.to == Place::Station(*fork))
}
