//! Designs for a curved response: central composite, Box–Behnken, and Latin hypercubes.
//!
//! Factors are numbers with a low and a high level; the runs lie between and beyond them.

use kendall_units::exact_f64;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Configuration, Design, DesignError, Factor, Kind, check, check_two_levels};

/// Latin hypercubes that are tried for the one whose closest runs lie farthest apart.
const HYPERCUBES: u32 = 60;

impl Design {
    /// Corners, axial runs and center points: what a quadratic surface needs. The axial runs lie
    /// `axial` half-ranges off the center: 1 on the faces, `None` at (number of corners)^¼, where the
    /// prediction is as sure in all directions (then beyond the levels that were given).
    ///
    /// # Errors
    /// [`DesignError`] for fewer than 2 or more than 8 factors, and for levels that are not numbers.
    ///
    /// # Source
    /// Box, Wilson 1951 [Montgomery 2017 §11.4].
    pub fn central_composite(
        factors: Vec<Factor>,
        axial: Option<f64>,
        centers: usize,
    ) -> Result<Self, DesignError> {
        let ranges = ranges(&factors, 2..=8)?;
        let corners = 1_usize << factors.len();
        let axial = axial.unwrap_or_else(|| exact_f64(corners).sqrt().sqrt());
        let mut points: Vec<Vec<f64>> = (0..corners)
            .map(|run| {
                let sign = |f: usize| if run >> f & 1 == 1 { 1.0 } else { -1.0 };
                (0..factors.len()).map(sign).collect()
            })
            .collect();
        for factor in 0..factors.len() {
            for side in [-axial, axial] {
                let mut point = vec![0.0; factors.len()];
                point[factor] = side;
                points.push(point);
            }
        }
        points.extend((0..centers).map(|_| vec![0.0; factors.len()]));
        Ok(at_points(Kind::CentralComposite, factors, &ranges, &points))
    }

    /// Midpoints of the edges and center points: a quadratic surface in three to five factors
    /// without a run at a corner, where all are at their extreme.
    ///
    /// # Errors
    /// [`DesignError`] for fewer than 3 or more than 5 factors, and for levels that are not numbers.
    ///
    /// # Source
    /// Box, Behnken 1960 [Montgomery 2017 §11.4].
    pub fn box_behnken(factors: Vec<Factor>, centers: usize) -> Result<Self, DesignError> {
        let ranges = ranges(&factors, 3..=5)?;
        let mut points = Vec::new();
        for a in 0..factors.len() {
            for b in a + 1..factors.len() {
                for (x, y) in [(-1.0, -1.0), (1.0, -1.0), (-1.0, 1.0), (1.0, 1.0)] {
                    let mut point = vec![0.0; factors.len()];
                    (point[a], point[b]) = (x, y);
                    points.push(point);
                }
            }
        }
        points.extend((0..centers).map(|_| vec![0.0; factors.len()]));
        Ok(at_points(Kind::BoxBehnken, factors, &ranges, &points))
    }

    /// `runs` runs spread over the ranges so that each factor has one in each of as many equal
    /// slices; of several such plans, the one whose closest runs lie farthest apart.
    ///
    /// # Errors
    /// [`DesignError`] for fewer than 2 runs, and for levels that are not numbers.
    ///
    /// # Source
    /// McKay, Beckman, Conover 1979; maximin: Johnson, Moore, Ylvisaker 1990.
    pub fn latin_hypercube(
        factors: Vec<Factor>,
        runs: usize,
        seed: u64,
    ) -> Result<Self, DesignError> {
        let ranges = ranges(&factors, 1..=50)?;
        if !(2..=100_000).contains(&runs) {
            return Err(DesignError::Runs { runs });
        }
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let tries = if runs > 200 { 1 } else { HYPERCUBES };
        let mut best: Option<(f64, Vec<Vec<f64>>)> = None;
        for _ in 0..tries {
            let mut points = vec![vec![0.0; factors.len()]; runs];
            for factor in 0..factors.len() {
                let mut slices: Vec<usize> = (0..runs).collect();
                slices.shuffle(&mut rng);
                for (point, slice) in points.iter_mut().zip(slices) {
                    let within = exact_f64(slice) + rng.random::<f64>();
                    point[factor] = 2.0 * within / exact_f64(runs) - 1.0;
                }
            }
            let apart = if tries > 1 { closest(&points) } else { 0.0 };
            if best.as_ref().is_none_or(|(least, _)| apart > *least) {
                best = Some((apart, points));
            }
        }
        let points = best.map(|(_, points)| points).unwrap_or_default();
        Ok(at_points(Kind::LatinHypercube, factors, &ranges, &points))
    }
}

/// Low and high level of each factor.
fn ranges(
    factors: &[Factor],
    allowed: std::ops::RangeInclusive<usize>,
) -> Result<Vec<(f64, f64)>, DesignError> {
    check(factors)?;
    check_two_levels(factors)?;
    if !allowed.contains(&factors.len()) {
        let (least, most) = (*allowed.start(), *allowed.end());
        return Err(DesignError::FactorCount { factors: factors.len(), least, most });
    }
    factors
        .iter()
        .map(|factor| {
            let number = |level: &String| {
                level.parse::<f64>().ok().filter(|value| value.is_finite()).ok_or_else(|| {
                    DesignError::NoCenter { factor: factor.name.clone(), level: level.clone() }
                })
            };
            let (a, b) = (number(&factor.levels[0])?, number(&factor.levels[1])?);
            Ok((a.min(b), a.max(b)))
        })
        .collect()
}

/// Runs at coded points, −1 the low and +1 the high level.
fn at_points(
    kind: Kind,
    mut factors: Vec<Factor>,
    ranges: &[(f64, f64)],
    points: &[Vec<f64>],
) -> Design {
    let text = |factor: usize, coded: f64| {
        let (low, high) = ranges[factor];
        let value = f64::midpoint(low, high) + coded * (high - low) / 2.0;
        // Nine figures, so that rounding makes no level of its own.
        let rounded: f64 = format!("{value:.8e}").parse().unwrap_or(value);
        rounded.to_string()
    };
    let settings: Vec<Vec<String>> = points
        .iter()
        .map(|point| point.iter().enumerate().map(|(f, x)| text(f, *x)).collect())
        .collect();
    for (index, factor) in factors.iter_mut().enumerate() {
        let mut levels: Vec<f64> =
            settings.iter().filter_map(|run| run[index].parse().ok()).collect();
        levels.sort_by(f64::total_cmp);
        levels.dedup_by(|a, b| (*a - *b).abs() == 0.0);
        factor.levels = levels.iter().map(f64::to_string).collect();
    }
    let configurations = settings
        .into_iter()
        .map(|settings| {
            let place =
                |(f, text): (usize, &String)| factors[f].levels.iter().position(|l| l == text);
            let levels = settings.iter().enumerate().map(place).collect::<Option<Vec<usize>>>();
            Configuration { levels: Some(levels.unwrap_or_default()), settings }
        })
        .collect();
    Design { kind, factors, configurations, fraction: None, center_points: 0, blocks_within: None }
}

/// Squared distance of the two runs that lie closest.
fn closest(points: &[Vec<f64>]) -> f64 {
    let mut least = f64::INFINITY;
    for (index, a) in points.iter().enumerate() {
        for b in &points[index + 1..] {
            let squares = a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum::<f64>();
            least = least.min(squares);
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(count: usize) -> Vec<Factor> {
        (0..count).map(|i| Factor::new(&format!("f{i}"), [10, 20])).collect()
    }

    #[test]
    fn surfaces_have_the_runs_of_the_tables() {
        let composite = Design::central_composite(factors(2), None, 5).unwrap();
        assert_eq!(composite.configurations.len(), 4 + 4 + 5);
        // √2 half-ranges of 5 around 15.
        assert_eq!(composite.factors[0].levels, ["7.92893219", "10", "15", "20", "22.0710678"]);
        let faces = Design::central_composite(factors(3), Some(1.0), 1).unwrap();
        assert_eq!(faces.configurations.len(), 15);
        assert_eq!(faces.factors[0].levels, ["10", "15", "20"]);
        for (count, runs) in [(3, 12 + 3), (4, 24 + 3), (5, 40 + 3)] {
            let design = Design::box_behnken(factors(count), 3).unwrap();
            assert_eq!(design.configurations.len(), runs);
        }
        assert!(Design::box_behnken(factors(2), 1).is_err());
        let words = vec![Factor::new("disk", ["ssd", "hdd"]), Factor::new("n", ["1", "2"])];
        assert!(matches!(
            Design::central_composite(words, None, 1),
            Err(DesignError::NoCenter { .. })
        ));
    }

    /// Every slice of every factor holds one run.
    #[test]
    fn a_latin_hypercube_fills_every_slice_once() {
        let design = Design::latin_hypercube(factors(3), 20, 7).unwrap();
        for factor in 0..3 {
            let mut slices: Vec<u64> = design
                .configurations
                .iter()
                .map(|one| {
                    let value: f64 = one.settings[factor].parse().unwrap();
                    kendall_units::whole_u64(((value - 10.0) / 0.5).floor())
                })
                .collect();
            slices.sort_unstable();
            assert_eq!(slices, (0..20).collect::<Vec<u64>>());
        }
        assert_eq!(design, Design::latin_hypercube(factors(3), 20, 7).unwrap());
        assert!(Design::latin_hypercube(factors(3), 1, 7).is_err());
    }
}
