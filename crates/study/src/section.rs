//! Reads the tables of a study file: `kendall_keys::Section` with the quantities of studies.

use kendall_keys::Quantity;
pub(crate) use kendall_keys::{Key, Keys, Problem, Section};
use kendall_units::{Rate, Seconds};

/// A time such as `"40ms"`.
pub(crate) static TIME: Quantity = Quantity {
    name: "a time",
    example: "`40ms`, `1.5s` or `2min`",
    check: |text| kendall_units::parse_seconds(text).map(drop).map_err(|error| error.to_string()),
};

/// A rate such as `"250/s"`.
pub(crate) static RATE: Quantity = Quantity {
    name: "a rate",
    example: "`250/s` or `4.1/ms`",
    check: |text| kendall_units::parse_rate(text).map(drop).map_err(|error| error.to_string()),
};

/// Bytes such as `"64KiB"`.
pub(crate) static BYTES: Quantity = Quantity {
    name: "a number of bytes",
    example: "`200B`, `64KiB` or `1MiB`",
    check: |text| kendall_units::parse_bytes(text).map(drop).map_err(|error| error.to_string()),
};

/// A share such as `"2%"` or `0.02`.
pub(crate) static SHARE: Quantity = Quantity {
    name: "a share",
    example: "`2%` or `0.02`",
    check: |text| kendall_units::parse_share(text).map(drop).map_err(|error| error.to_string()),
};

/// Reads quantities with their units.
pub(crate) trait Quantities {
    /// A time such as `"40ms"`.
    fn seconds(&mut self, key: &str) -> Result<Seconds, Problem>;
    /// A rate such as `"250/s"`.
    fn rate(&mut self, key: &str) -> Result<Rate, Problem>;
    /// Bytes such as `"64KiB"`.
    fn bytes(&mut self, key: &str) -> Result<u64, Problem>;
    /// A share such as `"2%"` or `0.02`.
    fn share(&mut self, key: &str) -> Result<f64, Problem>;
}

impl Quantities for Section<'_> {
    fn seconds(&mut self, key: &str) -> Result<Seconds, Problem> {
        self.quantity(key, kendall_units::parse_seconds).map(|(_, value)| value)
    }

    fn rate(&mut self, key: &str) -> Result<Rate, Problem> {
        self.quantity(key, kendall_units::parse_rate).map(|(_, value)| value)
    }

    fn bytes(&mut self, key: &str) -> Result<u64, Problem> {
        self.quantity(key, kendall_units::parse_bytes).map(|(_, value)| value)
    }

    fn share(&mut self, key: &str) -> Result<f64, Problem> {
        self.quantity(key, kendall_units::parse_share).map(|(_, value)| value)
    }
}
