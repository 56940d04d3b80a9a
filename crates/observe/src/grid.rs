//! The moments at which series are asked for.

/// Steps of one query at most; Prometheus refuses more than 11,000.
const MOST_STEPS_A_QUERY: u64 = 10_000;

/// End of the time that is meant by seconds: the year 5138. Milliseconds of these years are behind it.
const END_S: u64 = 100_000_000_000;

/// Steps in all: 90 days at a step of 15 s are 518,400.
const MOST_STEPS: u64 = 1_000_000;

/// Evenly spaced moments, in whole seconds of Unix time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Grid {
    pub from_s: u64,
    /// Distance of moments.
    pub step_s: u64,
    pub count: u64,
}

/// The minute of a moment in Unix time, in UTC.
pub fn minute(unix_s: u64) -> String {
    kendall_report::utc_minutes(unix_s.saturating_mul(1_000_000_000))
}

/// A range of time that makes no grid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GridError {
    #[error(
        "from {from_s} to {to_s} (Unix time) is not a time range: the end must be one step after the beginning, or more"
    )]
    Empty { from_s: u64, to_s: u64 },
    #[error("{to_s} is no Unix time in seconds: is it in milliseconds or nanoseconds?")]
    NotSeconds { to_s: u64 },
    #[error("{steps} steps of {step_s} s are more than {MOST_STEPS}: take a longer --step")]
    TooMany { steps: u64, step_s: u64 },
}

impl Grid {
    /// All multiples of `step_s` from `from_s` to `to_s`, so that two analyses of the same time agree.
    ///
    /// # Example
    /// ```
    /// let grid = kendall_observe::Grid::new(1_003, 1_030, 5).unwrap();
    /// assert_eq!((grid.from_s, grid.count), (1_005, 6));
    /// ```
    pub fn new(from_s: u64, to_s: u64, step_s: u64) -> Result<Self, GridError> {
        if from_s.max(to_s) > END_S {
            return Err(GridError::NotSeconds { to_s: from_s.max(to_s) });
        }
        let step_s = step_s.clamp(1, END_S);
        let first = from_s.div_ceil(step_s) * step_s;
        if to_s <= first {
            return Err(GridError::Empty { from_s, to_s });
        }
        let count = (to_s - first) / step_s + 1;
        if count > MOST_STEPS {
            return Err(GridError::TooMany { steps: count, step_s });
        }
        Ok(Self { from_s: first, step_s, count })
    }

    /// The minute of a moment that is so long after the first one, in UTC.
    pub(crate) fn minute(&self, offset_s: f64) -> String {
        minute(self.from_s + kendall_units::whole_u64(offset_s))
    }

    pub fn to_s(&self) -> u64 {
        // One that was read from a file may be anything.
        let whole = self.count.saturating_sub(1).saturating_mul(self.step_s);
        self.from_s.saturating_add(whole)
    }

    /// Grids of as many steps as one query may have, that make up this one.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = Self> + use<> {
        let whole = *self;
        (0..whole.count.div_ceil(MOST_STEPS_A_QUERY)).map(move |index| {
            let done = index * MOST_STEPS_A_QUERY;
            Self {
                from_s: whole.from_s + done * whole.step_s,
                step_s: whole.step_s,
                count: (whole.count - done).min(MOST_STEPS_A_QUERY),
            }
        })
    }

    /// The step at a moment, if it is one.
    pub(crate) fn index_of(&self, moment_s: f64) -> Option<usize> {
        let offset = moment_s - kendall_units::exact_f64(self.from_s);
        let steps = offset / kendall_units::exact_f64(self.step_s);
        let near = (steps.round() - steps).abs() < 1e-3 && steps > -0.5;
        let index = near.then(|| kendall_units::whole_u64(steps.round()))?;
        (index < self.count).then(|| usize::try_from(index).ok())?
    }

    /// Number of moments, as an index counts.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }

    /// Seconds since the first moment.
    pub(crate) fn offset_s(&self, index: usize) -> f64 {
        kendall_units::exact_f64(index as u64 * self.step_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_make_up_the_whole() {
        let grid = Grid::new(0, 25_000 * 15, 15).unwrap();
        let chunks: Vec<Grid> = grid.chunks().collect();
        assert_eq!(chunks.iter().map(|c| c.count).sum::<u64>(), grid.count);
        assert!(chunks.windows(2).all(|pair| pair[1].from_s == pair[0].to_s() + 15));
        assert_eq!(grid.index_of(45.0), Some(3));
        assert_eq!(grid.index_of(46.0), None);
    }

    #[test]
    fn milliseconds_and_what_no_clock_shows_are_refused() {
        let from_ms = 1_764_000_000_000;
        let refused = Grid::new(from_ms, from_ms + 3_600_000, 15).unwrap_err();
        assert!(refused.to_string().contains("in milliseconds"), "{refused}");
        assert!(matches!(Grid::new(u64::MAX, u64::MAX, 15), Err(GridError::NotSeconds { .. })));
        assert!(matches!(Grid::new(0, 1, u64::MAX), Ok(Grid { count: 1, .. })));
        let read = Grid { from_s: u64::MAX, step_s: u64::MAX, count: 0 };
        assert_eq!(read.to_s(), u64::MAX);
    }

    #[test]
    fn ends_the_wrong_way_round_are_refused() {
        assert!(matches!(Grid::new(100, 50, 5), Err(GridError::Empty { .. })));
        assert!(matches!(Grid::new(0, END_S, 1), Err(GridError::TooMany { .. })));
    }
}
