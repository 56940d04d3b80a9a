//! Forks whose branches are other stations: from where a branch begins, its part of the work follows the
//! routes of its class until they lead back to the fork, which is where the branches are joined.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{Leg, Model, ModelError, Place, refused};

/// By class and station, the forks in whose branches the class is there, outermost first.
pub(crate) type Inside = BTreeMap<(usize, usize), Vec<usize>>;

impl Model {
    /// Where classes are inside of forks.
    ///
    /// # Errors
    /// [`ModelError::Refused`] where a class is at a station inside of a fork and outside of it, or routes
    /// lead out of a fork other than back to it.
    pub(crate) fn inside(&self) -> Result<Inside, ModelError> {
        let mut innermost = BTreeMap::new();
        for (fork, station) in self.stations.iter().enumerate() {
            if !station.parts.is_empty() {
                self.branches(fork, &mut innermost)?;
            }
        }
        let mut inside = Inside::new();
        for &(class, station) in innermost.keys() {
            let mut forks = Vec::new();
            let mut at = (class, station);
            while let Some(&fork) = innermost.get(&at) {
                if forks.contains(&fork) {
                    let name = &self.stations[fork].name;
                    let expected = "branches that do not contain it";
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
        fork: usize,
        innermost: &mut BTreeMap<(usize, usize), usize>,
    ) -> Result<(), ModelError> {
        let from_fork = |leg: &&Leg| leg.from == Place::Station(fork) && leg.probability > 0.0;
        let mut left: Vec<(usize, usize)> = Vec::new();
        for leg in self.routes.iter().filter(from_fork) {
            left.extend(self.stations[fork].parts.iter().map(|part| (leg.class, *part)));
        }
        while let Some((class, station)) = left.pop() {
            match innermost.insert((class, station), fork) {
                Some(same) if same == fork => continue,
                None => {}
                Some(other) => {
                    let forks = [other, fork].map(|f| self.stations[f].name.as_str());
                    return Err(self.mixed(
                        class,
                        station,
                        &format!("`{}`, `{}`", forks[0], forks[1]),
                    ));
                }
            }
            let here = Place::Station(station);
            for leg in self.routes.iter().filter(|leg| leg.class == class && leg.from == here) {
                match leg.to {
                    Place::Station(to) if to != fork && leg.probability > 0.0 => {
                        left.push((leg.to_class, to));
                    }
                    _ => {}
                }
            }
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
        let mut ways: Vec<Leg> = Vec::new();
        for (fork, station) in self.stations.iter().enumerate() {
            let from = Place::Station(fork);
            for class in 0..self.classes.len() {
                let leaves =
                    |leg: &Leg| leg.class == class && leg.from == from && leg.probability > 0.0;
                if !self.routes.iter().any(leaves) {
                    continue;
                }
                ways.extend(station.parts.iter().map(|part| Leg {
                    class,
                    from,
                    to_class: class,
                    to: Place::Station(*part),
                    probability: 1.0,
                }));
            }
        }
        ways
    }
}

/// Whether a step out of a place inside of these forks ends a branch of the innermost.
fn is_join(forks: &[usize], leg: &Leg) -> bool {
    forks.last().is_some_and(|fork| leg.to == Place::Station(*fork))
}
