//! Designs that screen many factors in few runs, and what clears them up: Plackett–Burman and mirror images.

use super::fraction::Fraction;
use super::{Design, DesignError, Factor, Kind, check, check_two_levels};

/// First rows of the cyclic designs, by their number of runs.
///
/// Source: Plackett, Burman 1946 [Montgomery 2017 §8.6].
const FIRST_ROWS: [(usize, &str); 5] = [
    (8, "+++-+--"),
    (12, "++-+++---+-"),
    (16, "++++-+-++--+---"),
    (20, "++--++++-+-+----++-"),
    (24, "+++++-+-++--++--+-+----"),
];

impl Design {
    /// Up to 23 two-level factors in 8 to 24 runs, all main effects orthogonal; each is confounded
    /// with parts of many interactions, so it finds what matters where interactions are small.
    ///
    /// # Errors
    /// [`DesignError`] for a factor that has not two levels, and for more than 23.
    ///
    /// # Example
    /// ```
    /// use kendall_stats::design::{Design, Factor};
    /// let factors = (0..11).map(|i| Factor::new(&format!("f{i}"), [0, 1])).collect();
    /// assert_eq!(Design::plackett_burman(factors)?.configurations.len(), 12);
    /// # Ok::<(), kendall_stats::design::DesignError>(())
    /// ```
    pub fn plackett_burman(factors: Vec<Factor>) -> Result<Self, DesignError> {
        check(&factors)?;
        check_two_levels(&factors)?;
        let Some((runs, row)) = FIRST_ROWS.iter().find(|(runs, _)| factors.len() < *runs) else {
            return Err(DesignError::TooManyFactors { factors: factors.len(), limit: 23 });
        };
        let signs: Vec<usize> = row.bytes().map(|sign| usize::from(sign == b'+')).collect();
        let width = runs - 1;
        let shifted =
            |run: usize| (0..factors.len()).map(|f| signs[(f + width - run) % width]).collect();
        let mut chosen: Vec<Vec<usize>> = (0..width).map(shifted).collect();
        chosen.push(vec![0; factors.len()]);
        Ok(Self::of(Kind::PlackettBurman, factors, chosen))
    }

    /// Adds the mirror image of every run: main effects then are clear of all interactions of two
    /// factors.
    ///
    /// # Errors
    /// [`DesignError::NotTwoLevels`], and [`DesignError::NoMirror`] where every mirror image is in
    /// the design already.
    ///
    /// # Source
    /// Box, Hunter 1961 [Montgomery 2017 §8.5].
    pub fn folded_over(mut self) -> Result<Self, DesignError> {
        check_two_levels(&self.factors)?;
        let known: Vec<Vec<usize>> =
            self.configurations.iter().filter_map(|one| one.levels.clone()).collect();
        let mirrored: Vec<Vec<usize>> = known
            .iter()
            .map(|levels| levels.iter().map(|level| 1 - level).collect())
            .filter(|mirror: &Vec<usize>| !known.contains(mirror))
            .collect();
        if mirrored.is_empty() {
            return Err(DesignError::NoMirror);
        }
        let all: Vec<Vec<usize>> = known.into_iter().chain(mirrored).collect();
        let fraction = Fraction::recognize(self.factors.len(), &all);
        let kind = self.kind;
        let factors = std::mem::take(&mut self.factors);
        Ok(Self { fraction, ..Self::of(kind, factors, all) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(count: usize) -> Vec<Factor> {
        (0..count).map(|i| Factor::new(&format!("f{i}"), [0, 1])).collect()
    }

    fn signs(design: &Design) -> Vec<Vec<i32>> {
        let levels = design.configurations.iter().filter_map(|one| one.levels.as_ref());
        levels.map(|l| l.iter().map(|l| if *l == 1 { 1 } else { -1 }).collect()).collect()
    }

    /// Columns are balanced and orthogonal for every number of factors.
    #[test]
    fn plackett_burman_designs_are_orthogonal() {
        for count in 1..=23 {
            let rows = signs(&Design::plackett_burman(factors(count)).unwrap());
            for a in 0..count {
                assert_eq!(rows.iter().map(|row| row[a]).sum::<i32>(), 0, "{count}: {a}");
                for b in 0..a {
                    assert_eq!(rows.iter().map(|row| row[a] * row[b]).sum::<i32>(), 0, "{count}");
                }
            }
        }
        assert!(Design::plackett_burman(factors(24)).is_err());
    }

    /// After folding over, main effects are orthogonal to all interactions of two factors; the
    /// fraction 2^(7−4) of resolution III becomes 2^(7−3) of resolution IV.
    #[test]
    fn mirror_images_clear_main_effects() {
        let design = Design::plackett_burman(factors(11)).unwrap().folded_over().unwrap();
        let rows = signs(&design);
        assert_eq!(rows.len(), 24);
        for (a, b, c) in [(0, 1, 2), (3, 7, 10), (5, 5, 1), (4, 8, 9)] {
            assert_eq!(rows.iter().map(|row| row[a] * row[b] * row[c]).sum::<i32>(), 0);
        }
        let screening = Fraction::smallest(7, 3).unwrap();
        let design = Design::fractional(factors(7), screening).unwrap().folded_over().unwrap();
        let fraction = design.fraction.unwrap();
        assert_eq!((fraction.runs(), fraction.resolution), (16, 4));
        assert_eq!(
            Design::two_level(factors(3)).unwrap().folded_over(),
            Err(DesignError::NoMirror)
        );
    }
}
