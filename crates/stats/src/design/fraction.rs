//! Regular fractions of two-level designs: generators → defining relation → resolution → aliases.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Letters of factors, as the field writes them: I is the identity and no factor.
const LETTERS: &[u8] = b"ABCDEFGHJKLMNOPQRSTUVWXYZ";

/// Most factors of a fraction: beyond it the search for generators is no longer quick.
const MOST_FACTORS: usize = 20;

/// Sets of generators that the search tries. All of them up to 9 factors; beyond that the best
/// of the first so many, which still has the resolution that is promised.
const SEARCH_LIMIT: u32 = 60_000;

/// Letter of a factor by its position; `?` beyond the 25th.
#[must_use]
pub fn letter(factor: usize) -> char {
    LETTERS.get(factor).map_or('?', |letter| char::from(*letter))
}

/// A product of factors with its sign: a bit for each factor; none is the identity I.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Word {
    /// Bit i for factor i.
    pub factors: u32,
    /// Whether the product is negated.
    pub negative: bool,
}

impl Word {
    /// A product of these factors.
    #[must_use]
    pub fn new(factors: u32) -> Self {
        Self { factors, negative: false }
    }

    /// How many factors it has.
    #[must_use]
    pub fn length(self) -> u32 {
        self.factors.count_ones()
    }

    /// Every factor squared is the identity.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        Self { factors: self.factors ^ other.factors, negative: self.negative ^ other.negative }
    }

    fn parse(text: &str) -> Option<Self> {
        let (negative, letters) = match text.trim().strip_prefix('-') {
            Some(rest) => (true, rest.trim()),
            None => (false, text.trim()),
        };
        if letters == "I" {
            return Some(Self { factors: 0, negative });
        }
        let mut factors = 0_u32;
        for letter in letters.bytes() {
            let index = LETTERS.iter().position(|known| *known == letter.to_ascii_uppercase())?;
            factors ^= 1 << index;
        }
        (!letters.is_empty()).then_some(Self { factors, negative })
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.negative {
            f.write_str("-")?;
        }
        if self.factors == 0 {
            return f.write_str("I");
        }
        let letters: String =
            (0..LETTERS.len()).filter(|i| self.factors >> i & 1 == 1).map(letter).collect();
        f.write_str(&letters)
    }
}

impl From<Word> for String {
    fn from(word: Word) -> Self {
        word.to_string()
    }
}

impl TryFrom<String> for Word {
    type Error = FractionError;
    fn try_from(text: String) -> Result<Self, FractionError> {
        Self::parse(&text).ok_or(FractionError::Generator { text })
    }
}

/// A fraction that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the error texts say it")]
pub enum FractionError {
    #[error("`{text}` is not a generator; write it like `D=ABC`")]
    Generator { text: String },
    #[error(
        "generator `{text}`: the left side must be one of the last factors, each once, and the \
         right side only of the {basic} basic ones ({letters})"
    )]
    Misplaced { text: String, basic: usize, letters: String },
    #[error("{factors} factors: a fraction takes 3 to {MOST_FACTORS}")]
    Factors { factors: usize },
    #[error("no fraction of {factors} factors has resolution {resolution}; run the full design")]
    Resolution { factors: usize, resolution: u32 },
    #[error("the generators speak of {expected} factors, the design has {factors}")]
    OtherFactors { factors: usize, expected: usize },
}

/// A regular 2^(k−p) fraction: p factors are set by products of the k−p basic ones, and whatever
/// differs by a word of the defining relation is confounded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fraction {
    /// k.
    pub factors: usize,
    /// Word of each factor that is not basic: `D = ABC` is `ABCD`, in the order of the factors.
    pub generators: Vec<Word>,
    /// All words that equal the identity, the identity left out; shortest first.
    pub defining_relation: Vec<Word>,
    /// Length of the shortest of them.
    pub resolution: u32,
}

impl Fraction {
    /// From generators such as `D=ABC`, for the last p of `factors` factors.
    ///
    /// # Errors
    /// [`FractionError`] that says which generator and what is expected.
    ///
    /// # Example
    /// ```
    /// use kendall_stats::design::fraction::Fraction;
    /// let half = Fraction::from_generators(4, &["D=ABC"])?;
    /// assert_eq!((half.runs(), half.resolution), (8, 4));
    /// assert_eq!(half.aliases_of(0b0001, 3)[0].to_string(), "BCD");
    /// # Ok::<(), kendall_stats::design::fraction::FractionError>(())
    /// ```
    pub fn from_generators(factors: usize, texts: &[&str]) -> Result<Self, FractionError> {
        if !(3..=MOST_FACTORS).contains(&factors) || texts.len() >= factors {
            return Err(FractionError::Factors { factors });
        }
        let basic = factors - texts.len();
        let mut words: Vec<Option<Word>> = vec![None; texts.len()];
        for text in texts {
            let refuse = || FractionError::Generator { text: (*text).to_owned() };
            let misplaced = || FractionError::Misplaced {
                text: (*text).to_owned(),
                basic,
                letters: (0..basic).map(letter).collect(),
            };
            let (left, right) = text.split_once('=').ok_or_else(refuse)?;
            let left = Word::parse(left).filter(|w| !w.negative).ok_or_else(refuse)?;
            let right = Word::parse(right).ok_or_else(refuse)?;
            let defined = usize::try_from(left.factors.trailing_zeros()).unwrap_or(factors);
            let place = (left.length() == 1 && right.factors != 0)
                .then_some(defined)
                .filter(|index| (basic..factors).contains(index))
                .filter(|_| right.factors >> basic == 0)
                .ok_or_else(misplaced)?
                - basic;
            if words[place].replace(left.times(right)).is_some() {
                return Err(misplaced());
            }
        }
        Ok(Self::of(factors, words.into_iter().flatten().collect()))
    }

    /// The smallest fraction of at least this resolution, with the fewest short words
    /// (minimum aberration) among the sets of generators that are tried.
    ///
    /// # Errors
    /// [`FractionError::Resolution`] when only the full design has it.
    ///
    /// # Source
    /// [Jain91 §19.2] for the algebra; Fries, Hunter 1980 for minimum aberration.
    ///
    /// # Example
    /// ```
    /// use kendall_stats::design::fraction::Fraction;
    /// let screening = Fraction::smallest(7, 3)?;
    /// assert_eq!((screening.runs(), screening.resolution), (8, 3));
    /// # Ok::<(), kendall_stats::design::fraction::FractionError>(())
    /// ```
    pub fn smallest(factors: usize, resolution: u32) -> Result<Self, FractionError> {
        if !(3..=MOST_FACTORS).contains(&factors) {
            return Err(FractionError::Factors { factors });
        }
        let none = FractionError::Resolution { factors, resolution };
        (2..factors).find_map(|basic| Self::best(factors, basic, resolution.max(3))).ok_or(none)
    }

    /// The best 2^(k−p) for a given p.
    ///
    /// # Errors
    /// [`FractionError::Resolution`] when even resolution III is out of reach.
    pub fn with_dropped(factors: usize, dropped: usize) -> Result<Self, FractionError> {
        if !(3..=MOST_FACTORS).contains(&factors) || dropped == 0 || dropped + 2 > factors {
            return Err(FractionError::Factors { factors });
        }
        let basic = factors - dropped;
        let highest = u32::try_from(basic).unwrap_or(u32::MAX) + 1;
        (3..=highest)
            .rev()
            .find_map(|resolution| Self::best(factors, basic, resolution))
            .ok_or(FractionError::Resolution { factors, resolution: 3 })
    }

    fn best(factors: usize, basic: usize, resolution: u32) -> Option<Self> {
        // The longest words first: they make the fewest short products.
        let mut candidates: Vec<u32> =
            (1_u32..1 << basic).filter(|word| word.count_ones() + 1 >= resolution).collect();
        candidates.sort_by_key(|word| (std::cmp::Reverse(word.count_ones()), *word));
        let mut search =
            Search { factors, basic, resolution, candidates, budget: SEARCH_LIMIT, best: None };
        search.extend(0, &mut Vec::new(), &[0]);
        search.best.map(|(_, generators)| {
            Self::of(factors, generators.into_iter().map(Word::new).collect())
        })
    }

    fn of(factors: usize, generators: Vec<Word>) -> Self {
        let mut group = vec![Word::new(0)];
        for generator in &generators {
            let products: Vec<Word> = group.iter().map(|word| word.times(*generator)).collect();
            group.extend(products);
        }
        let mut defining_relation: Vec<Word> = group.split_off(1);
        defining_relation.sort_by_key(|word| (word.length(), word.factors.reverse_bits()));
        defining_relation.sort_by_key(|word| word.length());
        let resolution = defining_relation.first().map_or(u32::MAX, |word| word.length());
        Self { factors, generators, defining_relation, resolution }
    }

    /// The fraction that these configurations are, if they are one: `levels` are 0 or 1.
    #[must_use]
    pub fn recognize(factors: usize, configurations: &[Vec<usize>]) -> Option<Self> {
        if !(3..=MOST_FACTORS).contains(&factors) || !configurations.len().is_power_of_two() {
            return None;
        }
        let bits = |levels: &Vec<usize>| {
            levels.iter().enumerate().fold(0_u32, |all, (i, l)| all | u32::from(*l == 1) << i)
        };
        let points: Vec<u32> = configurations.iter().map(bits).collect();
        // The sign of a word at a point: minus for every factor of it at its low level.
        let negative = |word: u32, point: u32| (word & !point).count_ones() % 2 == 1;
        let constant = |word: u32| {
            let first = negative(word, *points.first()?);
            points
                .iter()
                .all(|point| negative(word, *point) == first)
                .then_some(Word { factors: word, negative: first })
        };
        let mut relation: Vec<Word> = (1_u32..1 << factors).filter_map(constant).collect();
        let size = (1_usize << factors) / configurations.len();
        if relation.len() + 1 != size || size < 2 {
            return None;
        }
        relation.sort_by_key(|word| (word.length(), word.factors.reverse_bits()));
        relation.sort_by_key(|word| word.length());
        let resolution = relation.first()?.length();
        // Any independent words generate it; those that define one late factor read best.
        let mut generators: Vec<Word> = Vec::new();
        let mut span = vec![0_u32];
        for word in &relation {
            if !span.contains(&word.factors) {
                let products: Vec<u32> = span.iter().map(|w| w ^ word.factors).collect();
                span.extend(products);
                generators.push(*word);
            }
        }
        Some(Self { factors, generators, defining_relation: relation, resolution })
    }

    /// 2^(k−p).
    #[must_use]
    pub fn runs(&self) -> usize {
        1 << (self.factors - self.generators.len())
    }

    /// The aliases of `effect` (a bit for each factor): what it is confounded with, up to products of `longest`
    /// factors; shortest first.
    #[must_use]
    pub fn aliases_of(&self, effect: u32, longest: u32) -> Vec<Word> {
        let mut aliases: Vec<Word> = self
            .defining_relation
            .iter()
            .map(|word| word.times(Word::new(effect)))
            .filter(|word| word.length() <= longest)
            .collect();
        aliases.sort_by_key(|word| (word.length(), word.to_string()));
        aliases
    }

    /// Main effects and two-factor interactions, each with what it is confounded with.
    #[must_use]
    pub fn alias_table(&self, longest: u32) -> Vec<(Word, Vec<Word>)> {
        let mut effects: Vec<u32> =
            (1_u32..1 << self.factors).filter(|effect| effect.count_ones() <= 2).collect();
        effects.sort_by_key(|effect| (effect.count_ones(), effect.reverse_bits()));
        effects.sort_by_key(|effect| (effect.count_ones(), Word::new(*effect).to_string()));
        effects
            .into_iter()
            .map(|effect| (Word::new(effect), self.aliases_of(effect, longest)))
            .collect()
    }

    /// Generators as they are written: `D=ABC`.
    #[must_use]
    pub fn generator_texts(&self) -> Vec<String> {
        self.generators
            .iter()
            .map(|word| {
                // The last factor of a word is the one that it sets.
                let last = 31 - word.factors.leading_zeros();
                let rest = Word { factors: word.factors ^ 1 << last, negative: word.negative };
                format!("{}={rest}", Word::new(1 << last))
            })
            .collect()
    }

    pub(crate) fn check_factors(&self, factors: usize) -> Result<(), FractionError> {
        if self.factors == factors {
            Ok(())
        } else {
            Err(FractionError::OtherFactors { factors, expected: self.factors })
        }
    }

    /// Levels (0 or 1) of every factor in every run; the last basic factor varies fastest.
    #[must_use]
    pub fn configurations(&self) -> Vec<Vec<usize>> {
        let basic = self.factors - self.generators.len();
        (0..self.runs())
            .map(|run| {
                let mut levels: Vec<usize> =
                    (0..basic).map(|factor| run >> (basic - 1 - factor) & 1).collect();
                for generator in &self.generators {
                    let lows = (0..basic)
                        .filter(|factor| {
                            generator.factors >> factor & 1 == 1 && levels[*factor] == 0
                        })
                        .count();
                    levels.push(usize::from((lows % 2 == 0) != generator.negative));
                }
                levels
            })
            .collect()
    }
}

/// Depth-first search for generators of minimum aberration.
struct Search {
    factors: usize,
    basic: usize,
    resolution: u32,
    candidates: Vec<u32>,
    budget: u32,
    /// Number of words of each length, and the generators; the smallest so far.
    best: Option<(Vec<u32>, Vec<u32>)>,
}

impl Search {
    fn extend(&mut self, from: usize, chosen: &mut Vec<u32>, group: &[u32]) {
        let dropped = self.factors - self.basic;
        if chosen.len() == dropped {
            let mut pattern = vec![0_u32; self.factors + 1];
            for word in &group[1..] {
                pattern[usize::try_from(word.count_ones()).unwrap_or(0)] += 1;
            }
            if self.best.as_ref().is_none_or(|(least, _)| pattern < *least) {
                self.best = Some((pattern, chosen.clone()));
            }
            return;
        }
        for index in from..self.candidates.len() {
            if self.budget == 0 && self.best.is_some() {
                return;
            }
            self.budget = self.budget.saturating_sub(1);
            let word = self.candidates[index] | 1 << (self.basic + chosen.len());
            let products: Vec<u32> = group.iter().map(|other| other ^ word).collect();
            if products.iter().any(|product| product.count_ones() < self.resolution) {
                continue;
            }
            let larger: Vec<u32> = group.iter().copied().chain(products).collect();
            chosen.push(word);
            self.extend(index + 1, chosen, &larger);
            chosen.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of the smallest fraction of each resolution, as in the tables of Box, Hunter, Hunter
    /// 2005 (table 6.22) and Montgomery 2017 (table 8.14).
    #[test]
    fn the_smallest_fractions_have_the_sizes_of_the_tables() {
        for (factors, resolution, runs) in [
            (3, 3, 4),
            (4, 4, 8),
            (5, 3, 8),
            (5, 5, 16),
            (6, 3, 8),
            (6, 4, 16),
            (6, 6, 32),
            (7, 3, 8),
            (7, 4, 16),
            (7, 7, 64),
            (8, 4, 16),
            (8, 5, 64),
            (9, 3, 16),
            (9, 4, 32),
            (11, 3, 16),
            (15, 3, 16),
            (16, 4, 32),
        ] {
            let fraction = Fraction::smallest(factors, resolution).unwrap();
            assert_eq!(fraction.runs(), runs, "{factors} factors, resolution {resolution}");
            assert!(fraction.resolution >= resolution);
        }
    }

    /// Minimum aberration of 2^(7−2): resolution IV with one word of length 4, as tabled.
    #[test]
    fn generators_have_minimum_aberration() {
        let fraction = Fraction::with_dropped(7, 2).unwrap();
        assert_eq!(fraction.resolution, 4);
        assert_eq!(fraction.defining_relation.iter().filter(|w| w.length() == 4).count(), 1);
        let fraction = Fraction::with_dropped(6, 2).unwrap();
        let lengths: Vec<u32> = fraction.defining_relation.iter().map(|w| w.length()).collect();
        assert_eq!(lengths, [4, 4, 4]);
    }

    /// [Jain91 §19.2]: 2^(4−1) with D = ABC, I = ABCD, and with D = AB, I = ABD.
    #[test]
    fn confounding_is_that_of_the_book() {
        let better = Fraction::from_generators(4, &["D=ABC"]).unwrap();
        let table: Vec<String> = better
            .alias_table(4)
            .iter()
            .map(|(effect, aliases)| {
                let sums: Vec<String> = aliases.iter().map(ToString::to_string).collect();
                format!("{effect}={}", sums.join("="))
            })
            .collect();
        assert_eq!(table[..5], ["A=BCD", "B=ACD", "C=ABD", "D=ABC", "AB=CD"]);
        let worse = Fraction::from_generators(4, &["D=AB"]).unwrap();
        assert_eq!((better.resolution, worse.resolution), (4, 3));
        assert_eq!(worse.aliases_of(0b0001, 4)[0].to_string(), "BD");
    }

    #[test]
    fn configurations_obey_the_defining_relation_and_are_recognized() {
        for fraction in [
            Fraction::smallest(7, 3).unwrap(),
            Fraction::smallest(6, 4).unwrap(),
            Fraction::from_generators(5, &["D=-AB", "E=AC"]).unwrap(),
        ] {
            let configurations = fraction.configurations();
            let seen = Fraction::recognize(fraction.factors, &configurations).unwrap();
            assert_eq!(seen.resolution, fraction.resolution);
            let sorted = |words: &[Word]| {
                let mut words = words.to_vec();
                words.sort();
                words
            };
            assert_eq!(sorted(&seen.defining_relation), sorted(&fraction.defining_relation));
        }
        let full: Vec<Vec<usize>> = (0..8).map(|i| vec![i >> 2 & 1, i >> 1 & 1, i & 1]).collect();
        assert!(Fraction::recognize(3, &full).is_none());
    }

    #[test]
    fn wrong_generators_are_refused_with_what_is_right() {
        for texts in [["D=ABE"], ["A=BC"], ["D=XYZ!"], ["D"], ["D=I"]] {
            assert!(Fraction::from_generators(4, &texts).is_err(), "{texts:?}");
        }
        assert!(Fraction::smallest(4, 5).is_err());
        assert!(Fraction::from_generators(2, &[]).is_err());
    }
}
