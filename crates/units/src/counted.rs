//! Counts in words.

use std::fmt::Display;

/// A count with its noun, in the singular for one: `1 run`, `3 runs`, `2 batches`, `1 study`,
/// `2 studies`, `4 degrees of freedom`. For nouns whose plural is regular.
///
/// # Example
/// ```
/// use kendall_units::counted;
/// assert_eq!(counted(1, "further caveat"), "1 further caveat");
/// assert_eq!(counted(0, "degree of freedom"), "0 degrees of freedom");
/// ```
#[must_use]
pub fn counted<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    if number == N::from(1) {
        return format!("{number} {noun}");
    }
    match noun.split_once(" of ") {
        Some((what, whose)) => format!("{number} {} of {whose}", plural(what)),
        None => format!("{number} {}", plural(noun)),
    }
}

fn plural(noun: &str) -> String {
    let hisses = ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end));
    match noun.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ if hisses => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "1 workers" and "and 1 further caveats" were printed.
    #[test]
    fn one_is_in_the_singular() {
        assert_eq!(counted(1_u64, "worker"), "1 worker");
        assert_eq!(counted(1_usize, "degree of freedom"), "1 degree of freedom");
        assert_eq!(counted(1.0, "server"), "1 server");
    }

    #[test]
    fn other_counts_are_in_the_plural() {
        assert_eq!(counted(0_u64, "run"), "0 runs");
        assert_eq!(counted(2_u32, "independent batch"), "2 independent batches");
        assert_eq!(counted(3_usize, "study"), "3 studies");
        assert_eq!(counted(2_u64, "miss"), "2 misses");
        assert_eq!(counted(4_u64, "degree of freedom"), "4 degrees of freedom");
    }
}
