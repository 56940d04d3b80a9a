//! Factorisation of integers into primes. Pure.
//!
//! Small primes by division, then Pollard's rho with Brent's cycle search (Brent 1980), which takes
//! about the square root of the second largest prime; what is prime is decided by Miller and
//! Rabin's test with bases that leave no doubt below 2^64 (Sinclair 2011).

use crate::matrix::Interrupted;

/// Bases with which the test of Miller and Rabin is exact for every 64-bit number (J. Sinclair,
/// "Deterministic variants of the Miller-Rabin primality test", 2011).
const BASES: [u64; 7] = [2, 325, 9_375, 28_178, 450_775, 9_780_504, 1_795_265_022];

/// Primes up to this are found by division.
const DIVIDED_UP_TO: u64 = 1000;

/// Steps between two greatest common divisors, and between two questions whether to go on.
const BATCH: u64 = 128;

/// The primes whose product is `number`, in order, each as often as it divides; none for 1.
/// `go_on` is asked now and then.
///
/// # Panics
/// For 0, which is not a product of primes.
///
/// # Example
/// ```
/// assert_eq!(kendall_compute::prime_factors(360, || true), Ok(vec![2, 2, 2, 3, 3, 5]));
/// ```
pub fn prime_factors(
    mut number: u64,
    mut go_on: impl FnMut() -> bool,
) -> Result<Vec<u64>, Interrupted> {
    assert!(number > 0, "0 is no product of primes");
    let mut primes = Vec::new();
    for divisor in 2..=DIVIDED_UP_TO {
        while number.is_multiple_of(divisor) {
            primes.push(divisor);
            number /= divisor;
        }
    }
    let mut open = vec![number];
    while let Some(part) = open.pop() {
        if part == 1 {
            continue;
        }
        if is_prime(part) {
            primes.push(part);
            continue;
        }
        let divisor = divisor_of(part, &mut go_on)?;
        open.extend([divisor, part / divisor]);
    }
    primes.sort_unstable();
    Ok(primes)
}

/// Whether `number` is prime: exact for every 64-bit number.
pub fn is_prime(number: u64) -> bool {
    if number < 2 || number.is_multiple_of(2) {
        return number == 2;
    }
    let twos = (number - 1).trailing_zeros();
    let odd = (number - 1) >> twos;
    BASES.iter().map(|base| base % number).filter(|base| *base != 0).all(|base| {
        let mut power = power_mod(base, odd, number);
        let mut squarings = 0;
        while power != 1 && power != number - 1 && squarings < twos {
            power = times_mod(power, power, number);
            squarings += 1;
        }
        power == number - 1 || (power == 1 && squarings == 0)
    })
}

/// A proper divisor of a composite number without small divisors.
fn divisor_of(number: u64, go_on: &mut impl FnMut() -> bool) -> Result<u64, Interrupted> {
    // A polynomial x² + c fails for one number in few; then the next c succeeds.
    for constant in 1.. {
        if let Some(divisor) = rho(number, constant, go_on)? {
            return Ok(divisor);
        }
    }
    unreachable!("a composite number has a divisor that some polynomial finds")
}

/// (Brent 1980): one walk x → x² + c; `None` when it found only the number itself.
fn rho(
    number: u64,
    constant: u64,
    go_on: &mut impl FnMut() -> bool,
) -> Result<Option<u64>, Interrupted> {
    let step = |x| add_mod(times_mod(x, x, number), constant % number, number);
    let (mut hare, mut tortoise, mut product) = (2 % number, 0, 1);
    let (mut saved, mut found, mut length) = (hare, 1, 1_u64);
    while found == 1 {
        tortoise = hare;
        for _ in 0..length {
            hare = step(hare);
        }
        let mut walked = 0;
        while walked < length && found == 1 {
            if !go_on() {
                return Err(Interrupted);
            }
            saved = hare;
            for _ in 0..BATCH.min(length - walked) {
                hare = step(hare);
                product = times_mod(product, hare.abs_diff(tortoise), number);
            }
            found = gcd(product, number);
            walked += BATCH;
        }
        length *= 2;
    }
    if found == number {
        // The batch went past the divisor: again, one step at a time.
        found = 1;
        while found == 1 {
            saved = step(saved);
            found = gcd(saved.abs_diff(tortoise), number);
        }
    }
    Ok((found != number).then_some(found))
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn add_mod(a: u64, b: u64, modulus: u64) -> u64 {
    narrow((u128::from(a) + u128::from(b)) % u128::from(modulus))
}

fn times_mod(a: u64, b: u64, modulus: u64) -> u64 {
    narrow(u128::from(a) * u128::from(b) % u128::from(modulus))
}

fn power_mod(mut base: u64, mut exponent: u64, modulus: u64) -> u64 {
    let mut power = 1;
    while exponent > 0 {
        if exponent % 2 == 1 {
            power = times_mod(power, base, modulus);
        }
        base = times_mod(base, base, modulus);
        exponent /= 2;
    }
    power
}

fn narrow(residue: u128) -> u64 {
    u64::try_from(residue).expect("a residue is below its 64-bit modulus")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn divided(mut number: u64) -> Vec<u64> {
        let mut primes = Vec::new();
        let mut divisor = 2;
        while divisor * divisor <= number {
            while number.is_multiple_of(divisor) {
                primes.push(divisor);
                number /= divisor;
            }
            divisor += 1;
        }
        if number > 1 {
            primes.push(number);
        }
        primes
    }

    #[test]
    fn the_first_numbers_equal_those_of_plain_division() {
        for number in 1..20_000 {
            let expected = divided(number);
            assert_eq!(prime_factors(number, || true).unwrap(), expected);
            assert_eq!(is_prime(number), expected == [number], "{number}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn the_factors_are_prime_and_give_the_number(number in 1..=u64::MAX) {
            let primes = prime_factors(number, || true).unwrap();
            prop_assert_eq!(primes.iter().product::<u64>(), number);
            prop_assert!(primes.iter().all(|prime| is_prime(*prime)));
            prop_assert!(primes.is_sorted());
        }

        #[test]
        fn numbers_below_2_pow_40_equal_those_of_plain_division(number in 1..1_u64 << 34) {
            prop_assert_eq!(prime_factors(number, || true).unwrap(), divided(number));
        }
    }

    /// Squares, semiprimes and pseudoprimes on which weaker tests fail: 3,215,031,751 passes the
    /// test for the bases 2, 3, 5 and 7 (Jaeschke 1993); 2^64 − 59 is the largest 64-bit prime.
    #[test]
    fn hard_numbers_are_factored() {
        let factors = |number| prime_factors(number, || true).unwrap();
        assert_eq!(factors(3_215_031_751), [151, 751, 28_351]);
        assert_eq!(factors(u64::MAX), [3, 5, 17, 257, 641, 65_537, 6_700_417]);
        assert_eq!(factors(u64::MAX - 58), [u64::MAX - 58]);
        assert_eq!(factors(4_294_967_291 * 4_294_967_291), [4_294_967_291, 4_294_967_291]);
        assert_eq!(factors(4_294_967_291 * 4_294_967_279), [4_294_967_279, 4_294_967_291]);
        assert_eq!(factors(1_000_003 * 1_000_003), [1_000_003, 1_000_003]);
    }

    #[test]
    fn a_factorisation_ends_when_it_is_told_to() {
        assert_eq!(prime_factors(4_294_967_291 * 4_294_967_279, || false), Err(Interrupted));
    }
}
