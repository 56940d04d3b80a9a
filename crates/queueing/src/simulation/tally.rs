//! What is counted while the simulation runs: integrals over time, sums over customers, histograms.

/// Cells a factor of two is divided into: values in a cell differ by less than 0.8 %.
const CELLS_PER_OCTAVE_BITS: u32 = 7;
const SHIFT: u32 = 52 - CELLS_PER_OCTAVE_BITS;

/// A histogram of times that grows to what it is given; relative width of a cell 2^-7.
#[derive(Debug, Clone, Default)]
pub(super) struct TimeHistogram {
    /// Times that are 0 exactly: customers who did not wait.
    zeros: u64,
    /// Cell number of `counts[0]`.
    base: u64,
    counts: Vec<u64>,
}

impl TimeHistogram {
    #[inline]
    pub(super) fn record(&mut self, time: f64) {
        // A zero adds nothing to the first cell: cheaper than an unpredictable branch.
        let positive = time > 0.0;
        self.zeros += u64::from(!positive);
        let cell = if positive { time.to_bits() >> SHIFT } else { self.base };
        let at = usize::try_from(cell.wrapping_sub(self.base)).unwrap_or(usize::MAX);
        if let Some(count) = self.counts.get_mut(at) {
            *count += u64::from(positive);
        } else if positive {
            self.grow(cell);
        }
    }

    #[cold]
    fn grow(&mut self, cell: u64) {
        let octave = 1_u64 << CELLS_PER_OCTAVE_BITS;
        let low = cell & !(octave - 1);
        if self.counts.is_empty() {
            self.base = low;
        }
        if low < self.base {
            let more = usize::try_from(self.base - low).expect("at most 2^18 cells exist");
            self.counts.splice(0..0, std::iter::repeat_n(0, more));
            self.base = low;
        }
        let length = usize::try_from(low - self.base + octave).expect("at most 2^18 cells exist");
        if length > self.counts.len() {
            self.counts.resize(length, 0);
        }
        self.counts[usize::try_from(cell - self.base).expect("below the length")] += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.zeros += other.zeros;
        if other.counts.is_empty() {
            return;
        }
        if self.counts.is_empty() {
            self.base = other.base;
            self.counts.clone_from(&other.counts);
            return;
        }
        let base = self.base.min(other.base);
        let end = |h: &Self| h.base + length_of(&h.counts);
        let length = usize::try_from(end(self).max(end(other)) - base).expect("at most 2^18 cells");
        let mut counts = vec![0; length];
        for part in [&*self, other] {
            let offset = usize::try_from(part.base - base).expect("at most 2^18 cells");
            for (sum, count) in counts[offset..].iter_mut().zip(&part.counts) {
                *sum += count;
            }
        }
        self.base = base;
        self.counts = counts;
    }

    pub(super) fn count(&self) -> u64 {
        self.zeros + self.counts.iter().sum::<u64>()
    }

    /// Cells that hold something: the first, and the one after the last.
    pub(super) fn cells(&self) -> Option<(u64, u64)> {
        let first = self.counts.iter().position(|n| *n > 0)?;
        let last = self.counts.iter().rposition(|n| *n > 0)?;
        let number = |at: usize| self.base + u64::try_from(at).expect("at most 2^18 cells");
        Some((number(first), number(last) + 1))
    }

    /// How many times are at most the lower edge of each cell, ready to be asked.
    pub(super) fn cumulative(&self) -> Cumulative {
        let mut below = vec![self.zeros];
        below.extend(self.counts.iter().scan(self.zeros, |sum, n| {
            *sum += n;
            Some(*sum)
        }));
        Cumulative { base: self.base, below }
    }

    /// The time that a share `p` of the recorded ones does not exceed, interpolated within its
    /// cell; `None` when nothing was recorded.
    pub(super) fn quantile(&self, p: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = p * kendall_units::exact_f64(count);
        let mut below = kendall_units::exact_f64(self.zeros);
        if rank <= below && self.zeros > 0 {
            return Some(0.0);
        }
        let mut last = 0.0;
        for (cell, &n) in (self.base..).zip(&self.counts) {
            if n > 0 {
                let here = kendall_units::exact_f64(n);
                let (low, high) = (lower_edge(cell), lower_edge(cell + 1));
                if below + here >= rank {
                    return Some(low + (high - low) * ((rank - below) / here).clamp(0.0, 1.0));
                }
                below += here;
                last = high;
            }
        }
        Some(last)
    }
}

/// A histogram as a distribution function.
#[derive(Debug)]
pub(super) struct Cumulative {
    base: u64,
    below: Vec<u64>,
}

impl Cumulative {
    pub(super) fn count(&self) -> f64 {
        kendall_units::exact_f64(self.below[self.below.len() - 1])
    }

    /// How many times are longer than `time`, interpolated within its cell.
    pub(super) fn above(&self, time: f64) -> f64 {
        let cell = cell_of(time);
        let last = self.below.len() - 1;
        let at = usize::try_from(cell.saturating_sub(self.base)).unwrap_or(last).min(last);
        let below = |at: usize| kendall_units::exact_f64(self.below[at.min(last)]);
        let (low, high) = (lower_edge(cell), lower_edge(cell + 1));
        let within = if cell < self.base { 0.0 } else { (time - low) / (high - low) };
        self.count() - below(at) - (below(at + 1) - below(at)) * within.clamp(0.0, 1.0)
    }
}

/// Number of the cell of a time.
pub(super) fn cell_of(time: f64) -> u64 {
    time.max(0.0).to_bits() >> SHIFT
}

/// The time at which a cell begins.
pub(super) fn lower_edge(cell: u64) -> f64 {
    f64::from_bits(cell << SHIFT)
}

fn length_of(counts: &[u64]) -> u64 {
    u64::try_from(counts.len()).expect("a length fits 64 bits")
}

/// Times of customers: their number, sums and histogram.
#[derive(Debug, Clone, Default)]
pub(super) struct Times {
    pub(super) count: u64,
    pub(super) sum: f64,
    pub(super) sum_of_squares: f64,
    pub(super) histogram: TimeHistogram,
}

impl Times {
    #[inline]
    pub(super) fn record(&mut self, time: f64) {
        self.count += 1;
        self.sum += time;
        self.sum_of_squares += time * time;
        self.histogram.record(time);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.sum_of_squares += other.sum_of_squares;
        self.histogram.add(&other.histogram);
    }
}

/// A number of customers that changes with time, and its integral.
#[derive(Debug, Clone, Default)]
pub(super) struct Level {
    pub(super) value: u32,
    last: f64,
    pub(super) area: f64,
}

impl Level {
    /// What a level held over a time that is past: its integral.
    pub(super) fn held(area: f64) -> Self {
        Self { area, ..Self::default() }
    }

    #[inline]
    pub(super) fn up(&mut self, now: f64) {
        self.advance(now);
        self.value += 1;
    }

    #[inline]
    pub(super) fn down(&mut self, now: f64) {
        self.advance(now);
        self.value -= 1;
    }

    #[inline]
    pub(super) fn advance(&mut self, now: f64) {
        self.area += f64::from(self.value) * (now - self.last);
        self.last = now;
    }

    fn restart(&mut self, now: f64) {
        self.last = now;
        self.area = 0.0;
    }
}

/// One class at one station.
#[derive(Debug, Clone, Default)]
pub(super) struct Cell {
    pub(super) present: Level,
    /// In service at a server of their own.
    pub(super) serving: Level,
    pub(super) arrivals: u64,
    pub(super) completions: u64,
    /// Turned away because the station was full.
    pub(super) lost: u64,
    /// Did not join.
    pub(super) balked: u64,
    /// Left while waiting.
    pub(super) reneged: u64,
    /// Service time given to those who completed.
    pub(super) work: f64,
    pub(super) response: Times,
    pub(super) waiting: Times,
}

impl Cell {
    /// The counts; customers present stay.
    pub(super) fn take(&mut self, now: f64) -> Self {
        let (mut present, mut serving) = (self.present.clone(), self.serving.clone());
        present.restart(now);
        serving.restart(now);
        std::mem::replace(self, Self { present, serving, ..Self::default() })
    }

    fn add(&mut self, other: &Self) {
        self.present.area += other.present.area;
        self.serving.area += other.serving.area;
        self.arrivals += other.arrivals;
        self.completions += other.completions;
        self.lost += other.lost;
        self.balked += other.balked;
        self.reneged += other.reneged;
        self.work += other.work;
        self.response.add(&other.response);
        self.waiting.add(&other.waiting);
    }

    pub(super) fn advance(&mut self, now: f64) {
        self.present.advance(now);
        self.serving.advance(now);
    }
}

/// Longest queue whose probability is kept by itself.
const MOST_STATES: usize = 4096;

/// One station, all classes together.
#[derive(Debug, Clone, Default)]
pub(super) struct StationTally {
    last: f64,
    /// Time with n customers, n up to `MOST_STATES`.
    pub(super) time_with: Vec<f64>,
    pub(super) area: f64,
    pub(super) area_of_squares: f64,
    /// Busy servers.
    pub(super) busy: f64,
    /// Departures held up because the next station was full: their time.
    pub(super) blocked: Level,
}

impl StationTally {
    /// Takes account of the time until `now`, with `present` customers and `busy` servers busy.
    #[inline]
    pub(super) fn advance(&mut self, now: f64, present: u32, busy: f64) {
        let dt = now - self.last;
        self.last = now;
        self.busy += busy * dt;
        let area = f64::from(present) * dt;
        self.area += area;
        self.area_of_squares += f64::from(present) * area;
        let state = (present as usize).min(MOST_STATES);
        if let Some(time) = self.time_with.get_mut(state) {
            *time += dt;
        } else {
            self.time_with.resize((2 * state).clamp(16, MOST_STATES + 1).max(state + 1), 0.0);
            self.time_with[state] += dt;
        }
    }

    /// The counts; blocked customers stay.
    pub(super) fn take(&mut self, now: f64) -> Self {
        let mut blocked = self.blocked.clone();
        blocked.restart(now);
        let time_with = vec![0.0; self.time_with.len()];
        std::mem::replace(self, Self { last: now, time_with, blocked, ..Self::default() })
    }

    fn add(&mut self, other: &Self) {
        if self.time_with.len() < other.time_with.len() {
            self.time_with.resize(other.time_with.len(), 0.0);
        }
        for (sum, time) in self.time_with.iter_mut().zip(&other.time_with) {
            *sum += time;
        }
        self.area += other.area;
        self.area_of_squares += other.area_of_squares;
        self.busy += other.busy;
        self.blocked.area += other.blocked.area;
    }
}

/// One class in the whole network.
#[derive(Debug, Clone, Default)]
pub(super) struct SystemCell {
    pub(super) present: Level,
    /// Left the network after all that they came for, or ended a cycle.
    pub(super) completions: u64,
    /// Sent out by the source.
    pub(super) offered: u64,
    /// Left it early: full, balked, reneged.
    pub(super) abandoned: u64,
    pub(super) response: Times,
}

impl SystemCell {
    /// Customers that completed or gave up.
    pub(super) fn ended(&self) -> u64 {
        self.completions + self.abandoned
    }

    /// The counts; customers present stay.
    pub(super) fn take(&mut self, now: f64) -> Self {
        let mut present = self.present.clone();
        present.restart(now);
        std::mem::replace(self, Self { present, ..Self::default() })
    }

    fn add(&mut self, other: &Self) {
        self.present.area += other.present.area;
        self.completions += other.completions;
        self.offered += other.offered;
        self.abandoned += other.abandoned;
        self.response.add(&other.response);
    }
}

/// All that was counted in a stretch of time of one replication.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    pub(super) time: f64,
    pub(super) events: u64,
    /// Of class `c` at station `s`, at `s · classes + c`.
    pub(super) cells: Vec<Cell>,
    pub(super) systems: Vec<SystemCell>,
    pub(super) stations: Vec<StationTally>,
}

impl Totals {
    /// Adds another stretch.
    pub(super) fn add(&mut self, other: Self) {
        if self.stations.is_empty() {
            *self = other;
            return;
        }
        self.time += other.time;
        self.events += other.events;
        for (sum, cell) in self.cells.iter_mut().zip(&other.cells) {
            sum.add(cell);
        }
        for (sum, system) in self.systems.iter_mut().zip(&other.systems) {
            sum.add(system);
        }
        for (sum, station) in self.stations.iter_mut().zip(&other.stations) {
            sum.add(station);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_right_to_the_width_of_a_cell() {
        let mut histogram = TimeHistogram::default();
        for i in 1..=100_000_u32 {
            histogram.record(f64::from(i) * 1e-3);
        }
        for p in [0.001, 0.25, 0.5, 0.99, 1.0] {
            let quantile = histogram.quantile(p).unwrap();
            assert!((quantile / (p * 100.0) - 1.0).abs() < 0.008, "{p} {quantile}");
        }
        assert_eq!(TimeHistogram::default().quantile(0.5), None);
    }

    #[test]
    fn zeros_count_and_sums_of_histograms_hold_both() {
        let mut a = TimeHistogram::default();
        a.record(0.0);
        a.record(1e-9);
        let mut b = TimeHistogram::default();
        b.record(1e6);
        b.record(f64::MIN_POSITIVE);
        a.add(&b);
        assert_eq!(a.count(), 4);
        assert_eq!(a.quantile(0.25), Some(0.0));
        assert!((a.quantile(1.0).unwrap() / 1e6 - 1.0).abs() < 0.008);
        let mut c = TimeHistogram::default();
        c.add(&a);
        assert_eq!(c.count(), 4);
    }
}
