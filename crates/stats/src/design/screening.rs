//! Designs that screen many factors in few runs, and what clears them up: Plackett–Burman, mirror
//! images, and blocks within a repetition.

use super::fraction::{Fraction, Word};
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

    /// Splits every repetition into 2^b blocks (days, machines) by b interactions, such as `ABC`,
    /// which are then confounded with the blocks, and so are their products.
    ///
    /// # Errors
    /// [`DesignError::Block`] for an interaction of factors that there are not, one that the design
    /// has the same sign of in all runs, or the same blocks twice.
    ///
    /// # Source
    /// [Montgomery 2017 ch. 7].
    pub fn with_blocks(mut self, words: &[Word]) -> Result<Self, DesignError> {
        check_two_levels(&self.factors)?;
        let mut blocks = vec![0_usize; self.configurations.len()];
        for (place, word) in words.iter().enumerate() {
            let refuse = |why| DesignError::Block { word: word.to_string(), why };
            if word.factors >> self.factors.len() != 0 || word.length() < 2 {
                return Err(refuse("it must be an interaction of two or more of the factors"));
            }
            let mut signs = [0_usize; 2];
            for (block, one) in blocks.iter_mut().zip(&self.configurations) {
                let Some(levels) = &one.levels else { continue };
                let lows = levels
                    .iter()
                    .enumerate()
                    .filter(|(f, l)| word.factors >> f & 1 == 1 && **l == 0);
                let odd = lows.count() % 2;
                signs[odd] += 1;
                *block |= odd << place;
            }
            if signs[0] != signs[1] {
                return Err(refuse("it does not halve the runs of this design"));
            }
        }
        let mut sizes = vec![0_usize; 1 << words.len()];
        blocks.iter().for_each(|block| sizes[*block] += 1);
        if sizes.iter().any(|size| *size != sizes[0]) {
            let word = words.last().map_or_else(String::new, ToString::to_string);
            return Err(DesignError::Block { word, why: "with the others it makes uneven blocks" });
        }
        self.blocks_within = Some(blocks);
        Ok(self)
    }
}

/// Interactions that are confounded with blocks by these words: the words and all their products.
#[must_use]
pub fn lost_to_blocks(words: &[Word]) -> Vec<Word> {
    let mut lost: Vec<Word> = Vec::new();
    for word in words {
        let products: Vec<Word> = lost.iter().map(|other| other.times(*word)).collect();
        lost.push(*word);
        lost.extend(products);
    }
    lost.sort_by_key(|word| (word.length(), word.to_string()));
    lost
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

    /// 2³ in two blocks by ABC: every block has half of the runs, and each main effect is balanced
    /// in each; the plan runs one block after the other.
    #[test]
    fn blocks_are_confounded_with_what_they_are_made_by() {
        let word = |text: &str| Word::try_from(text.to_owned()).unwrap();
        let design = Design::two_level(factors(3)).unwrap().with_blocks(&[word("ABC")]).unwrap();
        let plan = design.plan(2, 1);
        assert_eq!(plan.iter().map(|run| run.block).max(), Some(4));
        for block in plan.chunks(4) {
            assert!(block.iter().all(|run| run.block == block[0].block));
            let of = |run: &super::super::PlannedRun| {
                design.configurations[run.configuration].levels.clone().unwrap()
            };
            for factor in 0..3 {
                assert_eq!(block.iter().filter(|run| of(run)[factor] == 1).count(), 2);
            }
            let parity = |run| of(run).iter().sum::<usize>() % 2;
            assert!(block.iter().all(|run| parity(run) == parity(&block[0])));
        }
        let lost: Vec<String> =
            lost_to_blocks(&[word("ABC"), word("CD")]).iter().map(ToString::to_string).collect();
        assert_eq!(lost, ["CD", "ABC", "ABD"]);
        let bad = Design::two_level(factors(3)).unwrap().with_blocks(&[word("AD")]);
        assert!(matches!(bad, Err(DesignError::Block { .. })));
    }
}
