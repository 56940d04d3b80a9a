//! Times made of exponential phases, and events whose times depend on one another through a phase
//! that goes on: phase-type distributions and Markovian arrival processes.

use kendall_units::exact_f64;
use nalgebra::{DMatrix, DVector};

use super::{Distribution, DistributionError, checked};

/// Most phases.
pub const MOST_PHASES: usize = 100;

/// What happens in a phase: moves without an event, and moves with one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Process {
    /// D0: rates between phases, and on the diagonal less the rate of leaving.
    pub(crate) hidden: DMatrix<f64>,
    /// D1: rates of events, by the phase before and after.
    pub(crate) marked: DMatrix<f64>,
}

impl Process {
    /// Phase just after an event, in the long run.
    pub(crate) fn after_event(&self) -> Option<DVector<f64>> {
        let embedded = (-&self.hidden).try_inverse()? * &self.marked;
        stationary(&(embedded - DMatrix::identity(self.hidden.nrows(), self.hidden.nrows())))
    }

    /// Correlation of a time with the one `lag` events later.
    pub(crate) fn correlation(&self, lag: u32) -> Option<f64> {
        let inverse = (-&self.hidden).try_inverse()?;
        let embedded = &inverse * &self.marked;
        let start = self.after_event()?;
        let ones = DVector::from_element(start.len(), 1.0);
        let times = &inverse * &ones;
        let mean = start.dot(&times);
        let second = 2.0 * start.dot(&(&inverse * &times));
        let mut later = times;
        for _ in 0..lag {
            later = &embedded * later;
        }
        let product = start.dot(&(&inverse * later));
        Some((product - mean * mean) / (second - mean * mean))
    }
}

/// π with πQ = 0 and Σπ = 1.
pub(crate) fn stationary(generator: &DMatrix<f64>) -> Option<DVector<f64>> {
    let size = generator.nrows();
    let mut matrix = generator.transpose();
    matrix.row_mut(size - 1).fill(1.0);
    let mut right = DVector::zeros(size);
    right[size - 1] = 1.0;
    let solved = matrix.lu().solve(&right)?;
    let fits = solved.iter().all(|p| p.is_finite() && *p > -1e-9);
    fits.then(|| solved.map(|p| p.max(0.0)))
}

impl Distribution {
    /// The time until the last phase is left: begins in phase i with probability `initial[i]`;
    /// `generator[i][j]` is the rate from phase i to j, `generator[i][i]` less the rate of leaving i.
    ///
    /// # Errors
    /// [`DistributionError`] when sizes differ, probabilities do not add to 1, a rate is negative, or
    /// a phase is never left for good.
    pub fn phase_type(
        initial: Vec<f64>,
        generator: Vec<Vec<f64>>,
    ) -> Result<Self, DistributionError> {
        let name = "phase-type";
        let count = exact_f64(initial.len());
        let fits = (1..=MOST_PHASES).contains(&initial.len());
        checked(name, "number of phases", count, fits, "1 to 100")?;
        for p in &initial {
            checked(name, "initial", *p, (0.0..=1.0).contains(p), "from 0 to 1")?;
        }
        let sum: f64 = initial.iter().sum();
        checked(name, "sum of initial", sum, (sum - 1.0).abs() <= 1e-9, "1")?;
        square(name, "generator", &generator, initial.len())?;
        for (index, row) in generator.iter().enumerate() {
            leaves(name, "generator", row, index)?;
            let sum: f64 = row.iter().sum();
            let fits = sum <= 1e-9 * row[index].abs();
            checked(name, "sum of a row of generator", sum, fits, "0 or below")?;
        }
        let built = Self::PhaseType { initial, generator };
        built.has_a_mean(name)
    }

    /// Exponential stages one after the other: stage i has the rate `rates_per_s[i]`, and is followed
    /// by the next with probability `continue_probabilities[i]`.
    ///
    /// # Errors
    /// [`DistributionError`] when there is not one probability less than rates, or one makes no sense.
    ///
    /// # Source
    /// Cox 1955.
    pub fn coxian(
        rates_per_s: &[f64],
        continue_probabilities: &[f64],
    ) -> Result<Self, DistributionError> {
        let (name, stages) = ("coxian", rates_per_s.len());
        let fits = (1..=MOST_PHASES).contains(&stages);
        checked(name, "number of rates_per_s", exact_f64(stages), fits, "1 to 100")?;
        let count = exact_f64(continue_probabilities.len());
        let fits = continue_probabilities.len() + 1 == stages;
        let expected = "one less than rates_per_s";
        checked(name, "number of continue_probabilities", count, fits, expected)?;
        for p in continue_probabilities {
            let fits = (0.0..=1.0).contains(p);
            checked(name, "continue_probabilities", *p, fits, "from 0 to 1")?;
        }
        let mut generator = vec![vec![0.0; stages]; stages];
        for (index, rate) in rates_per_s.iter().enumerate() {
            generator[index][index] = -rate;
            if let Some(p) = continue_probabilities.get(index) {
                generator[index][index + 1] = rate * p;
            }
        }
        let mut initial = vec![0.0; stages];
        initial[0] = 1.0;
        Self::phase_type(initial, generator)
    }

    /// Phases with this mean and squared coefficient of variation: two exponential branches with
    /// balanced means, or two numbers of equal stages.
    ///
    /// # Errors
    /// [`DistributionError`] when `scv` is below 0.01 (100 stages) or not finite.
    ///
    /// # Source
    /// \[Tijms03\] appendix B: mixture of Erlang k − 1 and k, 1/k ≤ c² ≤ 1/(k − 1).
    pub fn phases_of_moments(mean_s: f64, scv: f64) -> Result<Self, DistributionError> {
        let name = "phase-type";
        checked(name, "mean_s", mean_s, mean_s > 0.0, super::POSITIVE)?;
        checked(name, "scv", scv, scv >= 1.0 / exact_f64(MOST_PHASES), "0.01 or above")?;
        if scv >= 1.0 {
            let p = f64::midpoint(1.0, ((scv - 1.0) / (scv + 1.0)).sqrt());
            let (first, second) = (2.0 * p / mean_s, 2.0 * (1.0 - p) / mean_s);
            return Self::phase_type(vec![p, 1.0 - p], vec![vec![-first, 0.0], vec![0.0, -second]]);
        }
        let stages = kendall_units::whole_u64((1.0 / scv).ceil()).clamp(2, 100);
        let k = exact_f64(stages);
        let p = ((k * scv - (k * (1.0 + scv) - k * k * scv).max(0.0).sqrt()) / (1.0 + scv))
            .clamp(0.0, 1.0);
        let rate = (k - p) / mean_s;
        let count = usize::try_from(stages).unwrap_or(MOST_PHASES);
        let mut initial = vec![0.0; count];
        // One stage less with probability p.
        (initial[0], initial[1]) = (1.0 - p, p);
        let row = |i: usize| {
            let mut row = vec![0.0; count];
            row[i] = -rate;
            if i + 1 < count {
                row[i + 1] = rate;
            }
            row
        };
        Self::phase_type(initial, (0..count).map(row).collect())
    }

    /// Times between the events of a Markovian arrival process, which depend on one another.
    /// `hidden[i][j]` is the rate from phase i to j without an event (on the diagonal less the rate
    /// of all that ends phase i), `marked[i][j]` that with an event.
    ///
    /// # Errors
    /// [`DistributionError`] when sizes differ, a rate is negative, rows of both together do not add
    /// to 0, or a phase is reached from which there is no event any more.
    ///
    /// # Source
    /// Neuts 1979; Lucantoni 1991.
    pub fn map(hidden: Vec<Vec<f64>>, marked: Vec<Vec<f64>>) -> Result<Self, DistributionError> {
        let (name, phases) = ("map", hidden.len());
        let fits = (1..=MOST_PHASES).contains(&phases);
        checked(name, "number of phases", exact_f64(phases), fits, "1 to 100")?;
        square(name, "d0", &hidden, phases)?;
        square(name, "d1", &marked, phases)?;
        for (index, row) in hidden.iter().enumerate() {
            leaves(name, "d0", row, index)?;
            for rate in &marked[index] {
                checked(name, "d1", *rate, *rate >= 0.0, super::NOT_NEGATIVE)?;
            }
            let sum = row.iter().sum::<f64>() + marked[index].iter().sum::<f64>();
            let fits = sum.abs() <= 1e-9 * row[index].abs();
            checked(name, "sum of a row of d0 and d1", sum, fits, "0")?;
        }
        Self::Map { hidden, marked }.has_a_mean(name)
    }

    /// Poisson arrivals whose rate changes with a phase: `generator` says how phases follow one
    /// another (its diagonal is filled in), `arrival_rates_per_s` the rate in each.
    ///
    /// # Errors
    /// [`DistributionError`] as for [`Self::map`].
    pub fn mmpp(
        arrival_rates_per_s: &[f64],
        generator: &[Vec<f64>],
    ) -> Result<Self, DistributionError> {
        let phases = arrival_rates_per_s.len();
        square("mmpp", "generator", generator, phases)?;
        let mut hidden = vec![vec![0.0; phases]; phases];
        let mut marked = hidden.clone();
        for (index, rate) in arrival_rates_per_s.iter().enumerate() {
            marked[index][index] = *rate;
            let mut leaving = *rate;
            for (to, switch) in generator[index].iter().enumerate().filter(|(to, _)| *to != index) {
                hidden[index][to] = *switch;
                leaving += switch;
            }
            hidden[index][index] = -leaving;
        }
        Self::map(hidden, marked)
    }

    /// These values in this order, again and again: what depends on its past goes on to do so.
    ///
    /// # Errors
    /// [`DistributionError`] as for [`Self::empirical`].
    pub fn trace(values_s: Vec<f64>) -> Result<Self, DistributionError> {
        match Self::empirical(values_s)? {
            Self::Empirical { values_s } => Ok(Self::Trace { values_s }),
            other => Ok(other),
        }
    }

    /// Whether successive times are independent.
    #[must_use]
    pub fn is_independent(&self) -> bool {
        !matches!(self, Self::Map { .. } | Self::Trace { .. })
    }

    /// First phase and rates between phases, for times made of few phases.
    pub(crate) fn phases(&self) -> Option<(DVector<f64>, DMatrix<f64>)> {
        let chain = |stages: u32, mean: f64| {
            let size = usize::try_from(stages).ok().filter(|n| (1..=MOST_PHASES).contains(n))?;
            let rate = f64::from(stages) / mean;
            let mut initial = DVector::zeros(size);
            initial[0] = 1.0;
            let rates = DMatrix::from_fn(size, size, |i, j| match j {
                _ if i == j => -rate,
                _ if i + 1 == j => rate,
                _ => 0.0,
            });
            Some((initial, rates))
        };
        let found = match self {
            Self::Exponential { mean_s } => chain(1, *mean_s)?,
            Self::Erlang { stages, mean_s } => chain(*stages, *mean_s)?,
            Self::Hyperexponential { probabilities, means_s } => {
                if means_s.len() > MOST_PHASES {
                    return None;
                }
                let rates = DVector::from_iterator(means_s.len(), means_s.iter().map(|m| -1.0 / m));
                (DVector::from_column_slice(probabilities), DMatrix::from_diagonal(&rates))
            }
            Self::PhaseType { initial, generator } => {
                (DVector::from_column_slice(initial), dense(generator))
            }
            _ => return None,
        };
        found.1.iter().all(|rate| rate.is_finite()).then_some(found)
    }

    /// The process whose events come with such times between them.
    pub(crate) fn process(&self) -> Option<Process> {
        if let Self::Map { hidden, marked } = self {
            return Some(Process { hidden: dense(hidden), marked: dense(marked) });
        }
        let (initial, hidden) = self.phases()?;
        let marked = exits(&hidden) * initial.transpose();
        Some(Process { hidden, marked })
    }

    /// E\[T^order\] of phases: order!·α·(−D0)^−order·1.
    pub(super) fn moment_of_phases(&self, order: u32) -> Option<f64> {
        let process = self.process()?;
        let start = match self {
            Self::PhaseType { initial, .. } => DVector::from_column_slice(initial),
            _ => process.after_event()?,
        };
        let solver = (-process.hidden).lu();
        let mut times = DVector::from_element(start.len(), 1.0);
        for k in 1..=order {
            times = solver.solve(&times)? * f64::from(k);
        }
        Some(start.dot(&times))
    }

    /// Refuses phases that are never left for good.
    fn has_a_mean(self, name: &'static str) -> Result<Self, DistributionError> {
        let mean = self.moment(1).unwrap_or(f64::INFINITY);
        let expected = "finite and above 0: every phase must lead to the end (or to an event)";
        checked(name, "mean", mean, (1e-200..1e200).contains(&mean), expected)?;
        Ok(self)
    }
}

/// Rates at which the phases end the time.
pub(crate) fn exits(rates: &DMatrix<f64>) -> DVector<f64> {
    DVector::from_iterator(rates.nrows(), rates.row_iter().map(|row| (-row.sum()).max(0.0)))
}

fn dense(rows: &[Vec<f64>]) -> DMatrix<f64> {
    DMatrix::from_fn(rows.len(), rows.len(), |i, j| rows[i][j])
}

fn square(
    name: &'static str,
    what: &'static str,
    rows: &[Vec<f64>],
    size: usize,
) -> Result<(), DistributionError> {
    let odd = rows.iter().map(Vec::len).chain([rows.len()]).find(|length| *length != size);
    match odd {
        None => Ok(()),
        Some(length) => {
            checked(name, what, exact_f64(length), false, "a row and a column for each phase")
                .map(|_| ())
        }
    }
}

/// Checks the rates out of a phase.
fn leaves(
    name: &'static str,
    what: &'static str,
    row: &[f64],
    index: usize,
) -> Result<(), DistributionError> {
    for (to, rate) in row.iter().enumerate() {
        if to == index {
            checked(name, what, *rate, *rate < 0.0, "below 0 on the diagonal")?;
        } else {
            checked(name, what, *rate, *rate >= 0.0, "0 or above off the diagonal")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn near(have: f64, want: f64, relative: f64) {
        assert!((have - want).abs() <= relative * want.abs().max(1e-300), "{have} for {want}");
    }

    #[test]
    fn phases_have_the_moments_that_they_were_made_for() {
        for scv in [0.011, 0.07, 0.2, 0.34, 0.5, 0.77, 1.0, 1.5, 20.0] {
            let d = Distribution::phases_of_moments(0.3, scv).unwrap();
            near(d.mean(), 0.3, 1e-12);
            near(d.scv(), scv, 1e-10);
        }
        assert!(Distribution::phases_of_moments(0.3, 0.001).is_err());
        let erlang = Distribution::coxian(&[4.0, 4.0, 4.0], &[1.0, 1.0]).unwrap();
        let same = Distribution::erlang(3, 0.75).unwrap();
        for order in 1..=3 {
            near(erlang.moment(order).unwrap(), same.moment(order).unwrap(), 1e-12);
        }
    }

    /// Two switched rates: λ = Σ πᵢ·λᵢ [Fischer, Meier-Hellstern 1993].
    #[test]
    fn a_switched_poisson_process_has_the_mean_of_its_rates_and_a_memory() {
        let rates = [10.0, 1.0];
        let switch = [vec![0.0, 0.2], vec![0.1, 0.0]];
        let d = Distribution::mmpp(&rates, &switch).unwrap();
        near(1.0 / d.mean(), (10.0 * 0.1 + 1.0 * 0.2) / 0.3, 1e-12);
        assert!(!d.is_independent() && d.scv() > 1.0);
        let process = d.process().unwrap();
        let (one, two) = (process.correlation(1).unwrap(), process.correlation(2).unwrap());
        assert!(one > two && two > 0.0 && one < 0.5, "{one} {two}");
        // The decay is that of the second eigenvalue, the same from lag to lag.
        near(process.correlation(3).unwrap() / two, two / one, 1e-9);
        let renewal = Distribution::phases_of_moments(1.0, 3.0).unwrap().process().unwrap();
        assert!(renewal.correlation(1).unwrap().abs() < 1e-12);
    }

    #[test]
    fn impossible_phases_are_refused() {
        let rows = |text: &[&[f64]]| text.iter().map(|row| row.to_vec()).collect::<Vec<_>>();
        for made in [
            Distribution::phase_type(vec![1.0], rows(&[&[0.0]])),
            Distribution::phase_type(vec![0.5, 0.6], rows(&[&[-1.0, 0.0], &[0.0, -1.0]])),
            Distribution::phase_type(vec![1.0, 0.0], rows(&[&[-1.0, 1.0], &[1.0, -1.0]])),
            Distribution::phase_type(vec![1.0], rows(&[&[-1.0, 1.0]])),
            Distribution::phase_type(vec![], vec![]),
            Distribution::phase_type(vec![f64::NAN], rows(&[&[-1.0]])),
            Distribution::map(rows(&[&[-1.0]]), rows(&[&[2.0]])),
            Distribution::map(rows(&[&[-1.0, 1.0], &[1.0, -1.0]]), vec![vec![0.0; 2]; 2]),
            Distribution::mmpp(&[1.0], &[]),
            Distribution::coxian(&[], &[]),
            Distribution::trace(vec![]),
        ] {
            let error = made.unwrap_err().to_string();
            assert!(error.contains("it must be"), "{error}");
        }
    }
}
