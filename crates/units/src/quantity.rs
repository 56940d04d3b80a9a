//! Newtypes for the two quantities that are confused most: a time and a rate.

use std::fmt;
use std::ops::{Add, Div, Mul, Sub};

/// A length of time in seconds.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Seconds(f64);

/// A rate in events per second.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Rate(f64);

impl Seconds {
    /// No time at all.
    pub const ZERO: Self = Self(0.0);

    /// From a number of seconds.
    #[must_use]
    pub const fn new(seconds: f64) -> Self {
        Self(seconds)
    }

    /// From a number of milliseconds.
    #[must_use]
    pub fn from_millis(milliseconds: f64) -> Self {
        Self(milliseconds / 1e3)
    }

    /// From integer nanoseconds, as they are stored; exact below 2^53 ns (104 days).
    #[must_use]
    pub fn from_nanos(nanoseconds: u64) -> Self {
        Self(crate::exact_f64(nanoseconds) / 1e9)
    }

    /// The number of seconds.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// Whole nanoseconds, rounded to nearest; negative and NaN become 0, beyond `u64` saturates.
    #[must_use]
    pub fn as_nanos(self) -> u64 {
        crate::whole_u64((self.0 * 1e9).round())
    }

    /// The standard library's duration, to the nanosecond.
    #[must_use]
    pub fn as_duration(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.as_nanos())
    }

    /// The rate whose mean interval this is; infinite for zero.
    #[must_use]
    pub fn recip(self) -> Rate {
        Rate(1.0 / self.0)
    }
}

impl Rate {
    /// From a number of events per second.
    #[must_use]
    pub const fn per_second(events: f64) -> Self {
        Self(events)
    }

    /// Events per second.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl Add for Seconds {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for Seconds {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Mul<f64> for Seconds {
    type Output = Self;
    fn mul(self, factor: f64) -> Self {
        Self(self.0 * factor)
    }
}

impl Div<f64> for Seconds {
    type Output = Self;
    fn div(self, divisor: f64) -> Self {
        Self(self.0 / divisor)
    }
}

/// λ·S: erlangs, a pure number.
impl Mul<Seconds> for Rate {
    type Output = f64;
    fn mul(self, time: Seconds) -> f64 {
        self.0 * time.0
    }
}

impl Mul<f64> for Rate {
    type Output = Self;
    fn mul(self, factor: f64) -> Self {
        Self(self.0 * factor)
    }
}

impl fmt::Display for Seconds {
    /// Three or four figures with the unit that keeps them readable: `1.465 ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.0.abs();
        let (scale, unit) = match magnitude {
            m if m == 0.0 || !m.is_finite() || m >= 1.0 => (1.0, "s"),
            m if m >= 1e-3 => (1e3, "ms"),
            m if m >= 1e-6 => (1e6, "µs"),
            _ => (1e9, "ns"),
        };
        write!(f, "{} {unit}", significant(self.0 * scale, 4))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", significant(self.0, 5))
    }
}

/// `value` with `figures` significant figures in plain decimal notation; whole parts are kept whole.
fn significant(value: f64, figures: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let mut whole_digits = 1_usize;
    let mut bound = 10.0;
    while value.abs() >= bound && whole_digits < 300 {
        whole_digits += 1;
        bound *= 10.0;
    }
    let decimals = figures.saturating_sub(whole_digits);
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_print_in_the_unit_that_reads_best() {
        let printed: Vec<String> = [0.001_465, 12.0, 4.4e-6, 0.0, 3e-9]
            .into_iter()
            .map(|s| Seconds::new(s).to_string())
            .collect();
        assert_eq!(printed, ["1.465 ms", "12.00 s", "4.400 µs", "0 s", "3.000 ns"]);
    }

    #[test]
    fn nanoseconds_round_trip_and_saturate() {
        assert_eq!(Seconds::from_nanos(1_500_000_001).as_nanos(), 1_500_000_001);
        assert_eq!(Seconds::new(-1.0).as_nanos(), 0);
        assert_eq!(Seconds::new(f64::NAN).as_nanos(), 0);
        assert_eq!(Seconds::new(f64::INFINITY).as_nanos(), u64::MAX);
    }
}
