//! Conversions between counts and floating point that say what they refuse.

/// Largest integer up to which every integer has its own `f64`: 2^53.
const LARGEST_EXACT: u64 = 1 << 53;

/// A count as `f64`, exactly.
///
/// # Panics
/// Above 2^53, where neighboring counts would become the same number. No count that Kendall
/// keeps comes near it (at 10 million requests a second, 28 years), so reaching it is a defect.
///
/// # Example
/// ```
/// assert_eq!(kendall_units::exact_f64(3_u32), 3.0);
/// ```
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "checked: at most 53 bits")]
pub fn exact_f64(count: impl TryInto<u64>) -> f64 {
    let Ok(count) = count.try_into() else {
        panic!("a count is not negative and fits 64 bits");
    };
    assert!(count <= LARGEST_EXACT, "count {count} exceeds 2^53 and has no exact f64");
    count as f64
}

/// `numerator / denominator` of two counts, or `None` for a denominator of 0: the caller decides
/// what no observations mean.
///
/// # Example
/// ```
/// assert_eq!(kendall_units::ratio(1, 4), Some(0.25));
/// assert_eq!(kendall_units::ratio(0, 0), None);
/// ```
#[must_use]
pub fn ratio(numerator: u64, denominator: u64) -> Option<f64> {
    (denominator != 0).then(|| exact_f64(numerator) / exact_f64(denominator))
}

/// The whole part of `value`; negative and NaN become 0, beyond `u64` saturates.
///
/// # Example
/// ```
/// assert_eq!(kendall_units::whole_u64(2.9), 2);
/// assert_eq!(kendall_units::whole_u64(-1.0), 0);
/// ```
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates and maps NaN to 0, which is what this function promises"
)]
pub fn whole_u64(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "exceeds 2^53")]
    fn a_count_that_would_lose_its_last_bit_is_refused() {
        assert!(exact_f64((1_u64 << 53) + 1) > 0.0);
    }
}
