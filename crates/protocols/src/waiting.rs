//! What the threads and connections of a process wait for, where no counter tells.

use serde::{Deserialize, Serialize};

/// Threads by what they wait for, and connections by where they wait: at one moment, or the means of several.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Waiting {
    /// Threads that wait for a disk: in a flush, or where no signal ends the wait.
    pub disk: f64,
    /// Threads that wait for one another: for a lock, a semaphore, or work.
    pub lock: f64,
    /// Threads that sleep for a time that they chose.
    pub sleep: f64,
    /// Connections that are not accepted yet.
    pub accept_queue: f64,
    /// Connections with bytes that are not read yet.
    pub unread: f64,
    /// Requests that were received and neither answered nor passed on, as far as connections show them.
    #[serde(default)]
    pub inside: f64,
    /// Processes whose connections do not show them.
    #[serde(default = "one")]
    pub untold: f64,
    /// Of these, those that talk over a Unix socket, of which no times are known.
    #[serde(default)]
    pub unix: f64,
    /// Those that have connections to another process that several requests share, or one that all may.
    #[serde(default)]
    pub shared: f64,
    /// Those on a host with more connections than are read.
    #[serde(default)]
    pub too_many: f64,
}

const fn one() -> f64 {
    1.0
}

/// Share of the time in which connections may not show what is inside.
const MOST_UNTOLD: f64 = 0.5;

impl Waiting {
    /// Adds the waits of others.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.both(other, |a, b| a + b)
    }

    /// The mean of each; `None` of nothing.
    pub fn mean(samples: impl IntoIterator<Item = Self>) -> Option<Self> {
        let (count, all) = samples
            .into_iter()
            .fold((0.0, Self::default()), |(count, all), one| (count + 1.0, all.plus(one)));
        (count > 0.0).then(|| all.both(all, |sum, _| sum / count))
    }

    /// The means over moments of one process; what is inside, over those at which that is told.
    pub fn over_time(moments: impl Iterator<Item = Self> + Clone) -> Option<Self> {
        let told = Self::mean(moments.clone().filter(|one| one.untold < MOST_UNTOLD));
        let inside = told.map_or(0.0, |told| told.inside);
        Self::mean(moments).map(|all| Self { inside, ..all })
    }

    /// Threads and connections that wait, all together.
    #[must_use]
    pub fn all(&self) -> f64 {
        self.disk + self.lock + self.sleep + self.accept_queue + self.unread
    }

    /// Requests that are there, where connections show them.
    #[must_use]
    pub fn requests(&self) -> Option<f64> {
        (self.untold < MOST_UNTOLD).then_some(self.accept_queue + self.inside)
    }

    /// Whether its threads may wait for others over connections that requests share.
    #[must_use]
    pub fn may_wait_for_others(&self) -> bool {
        self.shared >= MOST_UNTOLD
    }

    /// Why connections do not show the requests that are there, where that is known.
    #[must_use]
    pub fn why_untold(&self) -> Option<&'static str> {
        let reasons = [
            (self.unix, "talks over a Unix socket, of which no times are known"),
            (self.shared, "has connections to another that several requests at once may share"),
            (self.too_many, "is on a machine with more connections than are read"),
        ];
        let most = reasons.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
        most.filter(|reason| self.requests().is_none() && reason.0 >= MOST_UNTOLD)
            .map(|most| most.1)
    }

    fn both(self, other: Self, of: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            disk: of(self.disk, other.disk),
            lock: of(self.lock, other.lock),
            sleep: of(self.sleep, other.sleep),
            accept_queue: of(self.accept_queue, other.accept_queue),
            unread: of(self.unread, other.unread),
            inside: of(self.inside, other.inside),
            untold: of(self.untold, other.untold),
            unix: of(self.unix, other.unix),
            shared: of(self.shared, other.shared),
            too_many: of(self.too_many, other.too_many),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_that_do_not_tell_what_is_inside_are_left_out_of_it() {
        let told = |inside| Waiting { inside, lock: 2.0, ..Waiting::default() };
        let untold = Waiting { untold: 1.0, lock: 5.0, ..Waiting::default() };
        let mean = |moments: &[Waiting]| Waiting::over_time(moments.iter().copied()).unwrap();
        let most = mean(&[untold, told(28.0), told(30.0)]);
        assert_eq!((most.requests(), most.lock), (Some(29.0), 3.0));
        assert_eq!(mean(&[untold, untold, told(28.0)]).requests(), None);
        let shared = Waiting { shared: 1.0, ..untold };
        assert!(mean(&[shared, shared, told(28.0)]).why_untold().unwrap().contains("share"));
        assert_eq!(most.why_untold().or(untold.why_untold()), None);
        assert_eq!(Waiting::over_time(std::iter::empty()), None);
        // Of an older version's results nothing is known.
        let old: Waiting =
            serde_json::from_str(r#"{"disk":0,"lock":1,"sleep":0,"accept_queue":2,"unread":0}"#)
                .unwrap();
        assert_eq!(old.requests(), None);
    }
}
