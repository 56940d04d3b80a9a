//! What tests of simulated systems share.

/// Numbers with mean 0 and variance 1, the same on every machine.
pub(crate) fn normal(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        let mut sum = -6.0;
        for _ in 0..12 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            sum += f64::from(u32::try_from(state >> 32).unwrap()) / 2.0_f64.powi(32);
        }
        sum
    }
}
