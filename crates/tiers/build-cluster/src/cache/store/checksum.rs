//! The checksum of what lies on disk: CRC-64/NVME, of bytes that may come in parts.
//!
//! Of the crate that computes it, only the function for this one algorithm is called: its own state for parts can be
//! of any of fifty algorithms, so that the tables of all of them (0.6 MB) would be in the program. Parts are joined here.

/// The polynomial, the coefficient of x⁶³ in the lowest bit.
const POLYNOMIAL: u64 = 0x9a6c_9329_ac4b_c9b5;

/// x⁸ to the power of 2ᵏ, modulo the polynomial: what 2ᵏ bytes of zeros multiply with.
const ZEROS: [u64; 64] = {
    let mut powers = [1 << (63 - 8); 64];
    let mut k = 1;
    while k < powers.len() {
        powers[k] = product(powers[k - 1], powers[k - 1]);
        k += 1;
    }
    powers
};

#[inline(never)]
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::crc64_nvme(bytes)
}

/// The checksum of what came so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Running(u64);

impl Running {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        // The usual case is a piece in one part: before it, as before any byte, the checksum is 0.
        let before = if self.0 == 0 { 0 } else { after_zeros(self.0, bytes.len() as u64) };
        self.0 = before ^ checksum(bytes);
    }

    pub(crate) fn sum(self) -> u64 {
        self.0
    }
}

/// What the checksum of some bytes contributes to that of the same bytes with `count` more behind them.
fn after_zeros(sum: u64, count: u64) -> u64 {
    let bits = ZEROS.iter().enumerate().filter(|(k, _)| (count >> k) & 1 == 1);
    bits.fold(sum, |sum, (_, power)| product(*power, sum))
}

/// The product of two polynomials modulo [`POLYNOMIAL`], highest coefficients in the lowest bits.
const fn product(a: u64, mut b: u64) -> u64 {
    let (mut left, mut sum) = (a, 0);
    while left != 0 {
        if left >> 63 == 1 {
            sum ^= b;
        }
        left <<= 1;
        // b · x
        b = (b >> 1) ^ ((b & 1) * POLYNOMIAL);
    }
    sum
}

#[cfg(test)]
mod tests {
    use crc_fast::{CrcAlgorithm, Digest};

    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_published_check_value() {
        // "Check" of CRC-64/NVME in the catalogue of parametrised CRC algorithms.
        assert_eq!(checksum(b"123456789"), 0xae8b_1486_0a79_9888);
    }

    #[test]
    fn parts_of_any_size_give_the_checksum_of_the_whole() {
        let content: Vec<u8> = (0..70_000_u64).map(|i| ((i * i) >> 3).to_le_bytes()[0]).collect();
        for sizes in [&[70_000][..], &[1, 69_999], &[7, 8, 9, 0, 4096], &[16_384], &[65_535, 1]] {
            let (mut running, mut digest) =
                (Running::default(), Digest::new(CrcAlgorithm::Crc64Nvme));
            let (mut rest, mut sizes) = (content.as_slice(), sizes.iter().cycle());
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                running.update(now);
                digest.update(now);
                assert_eq!(running.sum(), digest.finalize());
                rest = later;
            }
            assert_eq!(running.sum(), checksum(&content));
        }
        assert_eq!(Running::default().sum(), checksum(b""));
    }
}
