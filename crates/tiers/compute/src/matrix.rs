//! Powers of square matrices by repeated multiplication. Pure.
//!
//! Entries are whole numbers modulo [`MODULUS`], so that a result is exact, can be checked, and
//! costs the same whatever the numbers are.

/// Largest prime below 10⁹ + 8. Products of two entries stay below 2^60, so that eight of them
/// and a rest add up in 64 bits; as a JSON number it is exact in every language.
pub const MODULUS: u32 = 1_000_000_007;

/// Products that are added before the sum is reduced.
const UNREDUCED: usize = 8;

/// A square matrix of numbers below [`MODULUS`], row by row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Matrix {
    size: usize,
    entries: Vec<u32>,
}

/// A computation that was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the computation was stopped")]
pub struct Interrupted;

impl Matrix {
    /// The matrix of that many rows and columns with the given entries, row by row, reduced.
    /// `None` when their number is not `size`².
    pub fn new(size: usize, entries: &[i64]) -> Option<Self> {
        (size.checked_mul(size)? == entries.len())
            .then(|| Self { size, entries: entries.iter().copied().map(reduce).collect() })
    }

    /// The matrix that belongs to `seed`: splitmix64 (Steele, Lea and Flood 2014), one output an
    /// entry, so that other languages can make it too.
    pub fn seeded(size: usize, seed: u64) -> Self {
        let mut state = seed;
        let entries = (0..size.saturating_mul(size))
            .map(|_| {
                state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                let mut z = state;
                z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
                residue(z ^ (z >> 31))
            })
            .collect();
        Self { size, entries }
    }

    pub fn identity(size: usize) -> Self {
        let entries = (0..size * size).map(|place| u32::from(place % (size + 1) == 0)).collect();
        Self { size, entries }
    }

    /// Rows, which are as many as columns.
    pub const fn size(&self) -> usize {
        self.size
    }

    pub fn rows(&self) -> impl Iterator<Item = &[u32]> {
        // A matrix of size 0 has no entries, and `chunks` needs a length.
        self.entries.chunks(self.size.max(1))
    }

    /// This matrix to the power `exponent`, by that many multiplications of N³ steps each: the
    /// exponent is the difficulty. `go_on` is asked before each of them.
    pub fn power(
        &self,
        exponent: u64,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<Self, Interrupted> {
        let mut power = Self::identity(self.size);
        for _ in 0..exponent {
            if !go_on() {
                return Err(Interrupted);
            }
            power = power.times(self);
        }
        Ok(power)
    }

    /// The product with a matrix of the same size.
    ///
    /// # Panics
    /// When the sizes differ.
    pub fn times(&self, other: &Self) -> Self {
        assert_eq!(self.size, other.size, "only matrices of one size are multiplied");
        let mut entries = Vec::with_capacity(self.entries.len());
        let mut sums = vec![0_u64; self.size];
        for row in self.rows() {
            sums.fill(0);
            // Row by row of `other`, so that memory is read in order.
            for (steps, (factor, line)) in row.iter().zip(other.rows()).enumerate() {
                if steps % UNREDUCED == 0 {
                    sums.iter_mut().for_each(|sum| *sum %= u64::from(MODULUS));
                }
                for (sum, entry) in sums.iter_mut().zip(line) {
                    *sum += u64::from(*factor) * u64::from(*entry);
                }
            }
            entries.extend(sums.iter().map(|sum| residue(*sum)));
        }
        Self { size: self.size, entries }
    }

    /// FNV-1a, 64 bits, of the entries as little-endian 32-bit numbers, row by row.
    pub fn checksum(&self) -> u64 {
        let bytes = self.entries.iter().flat_map(|entry| entry.to_le_bytes());
        bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
        })
    }

    pub fn bytes(&self) -> usize {
        self.entries.len().saturating_mul(size_of::<u32>())
    }
}

fn residue(number: u64) -> u32 {
    u32::try_from(number % u64::from(MODULUS)).expect("a residue is below the modulus")
}

fn reduce(number: i64) -> u32 {
    u32::try_from(number.rem_euclid(i64::from(MODULUS))).expect("a residue is below the modulus")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Row times column with 128 bits, as the definition says.
    fn naive(a: &[i64], b: &[i64], size: usize) -> Vec<i64> {
        let modulus = i128::from(MODULUS);
        let entry = |place: usize| {
            let (row, column) = (place / size, place % size);
            let products =
                (0..size).map(|k| i128::from(a[row * size + k]) * i128::from(b[k * size + column]));
            i64::try_from(products.sum::<i128>().rem_euclid(modulus)).unwrap()
        };
        (0..size * size).map(entry).collect()
    }

    proptest! {
        #[test]
        fn powers_equal_those_of_the_definition(
            size in 1..20_usize,
            exponent in 0..9_u64,
            numbers in prop::collection::vec(any::<i64>(), 400),
        ) {
            let entries = &numbers[..size * size];
            let matrix = Matrix::new(size, entries).unwrap();
            let mut expected: Vec<i64> =
                (0..size * size).map(|place| i64::from(place % (size + 1) == 0)).collect();
            for _ in 0..exponent {
                expected = naive(&expected, entries, size);
            }
            let power = matrix.power(exponent, || true).unwrap();
            prop_assert_eq!(&power, &Matrix::new(size, &expected).unwrap());
            prop_assert_eq!(power.checksum(), Matrix::new(size, &expected).unwrap().checksum());
        }

        #[test]
        fn exponents_add_up(size in 0..40_usize, seed in any::<u64>(), a in 0..5_u64, b in 0..5_u64) {
            let matrix = Matrix::seeded(size, seed);
            let power = |exponent| matrix.power(exponent, || true).unwrap();
            prop_assert_eq!(power(a).times(&power(b)), power(a + b));
        }
    }

    /// The largest entries, so that the unreduced sums are as large as they become.
    #[test]
    fn sums_do_not_overflow() {
        let size = 100;
        let matrix = Matrix::new(size, &vec![-1; size * size]).unwrap();
        // (−1)·(−1) summed 100 times.
        assert_eq!(matrix.times(&matrix), Matrix::new(size, &vec![100; size * size]).unwrap());
    }

    /// The powers of [[1, 1], [1, 0]] hold the Fibonacci numbers; F(90) is 2,880,067,194,370,816,120.
    #[test]
    fn the_power_of_the_fibonacci_matrix_is_known() {
        let matrix = Matrix::new(2, &[1, 1, 1, 0]).unwrap();
        let power = matrix.power(90, || true).unwrap();
        assert_eq!(u64::from(power.entries[1]), 2_880_067_194_370_816_120 % u64::from(MODULUS));
    }

    #[test]
    fn a_computation_ends_when_it_is_told_to() {
        let mut left = 3;
        let go_on = || {
            left -= 1;
            left >= 0
        };
        assert_eq!(Matrix::identity(2).power(u64::MAX, go_on), Err(Interrupted));
    }

    #[test]
    fn what_is_not_square_is_no_matrix() {
        assert_eq!(Matrix::new(2, &[1, 2, 3]), None);
        assert_eq!(Matrix::new(usize::MAX, &[]), None);
    }

    /// FNV-1a of four zero bytes, as the published reference code gives it.
    #[test]
    fn the_checksum_is_fnv_1a() {
        let zero = Matrix::new(1, &[0]).unwrap();
        assert_eq!(zero.checksum(), 0x4D25_767F_9DCE_13F5);
    }
}
