//! Seeds that follow from others, and secrets that follow from nothing.

use kendall_host::instance::ProcessError;
use kendall_units::hex;

/// Two numbers mixed into one: SplitMix64's finaliser.
pub(crate) fn mixed(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    // 53 bits, so that every number that is printed or stored is exact anywhere.
    (x ^ (x >> 31)) >> 11
}

/// Letters and digits that cannot be guessed: passwords must not follow from a seed.
pub(crate) fn secret() -> Result<String, ProcessError> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes))
        .map_err(|source| ProcessError::Spawn {
            name: "a secret for the tiers".to_owned(),
            source,
        })?;
    Ok(hex(&bytes))
}
