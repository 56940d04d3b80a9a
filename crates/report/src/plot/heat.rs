//! Heat maps: cells over two axes, shaded by how much is in each.

use super::svg::{Frame, put};
use super::{Mark, Plot, Series};

/// Distance of two neighboring cells along the abscissa: the least of the plot.
pub(super) fn cell_width(plot: &Plot) -> f64 {
    let cells = plot.series.iter().filter(|series| matches!(series.mark, Mark::Cells(_)));
    let mut places: Vec<f64> =
        cells.flat_map(|series| &series.points).map(|p| p.x).filter(|x| x.is_finite()).collect();
    places.sort_by(f64::total_cmp);
    let gaps = places.windows(2).map(|pair| pair[1] - pair[0]).filter(|gap| *gap > 0.0);
    let least = gaps.fold(f64::INFINITY, f64::min);
    if least.is_finite() { least } else { 1.0 }
}

/// Filled rectangles; each from end to end of its interval.
pub(super) fn cells(frame: &Frame, series: &Series, width: f64) -> String {
    let mut path = String::new();
    for point in &series.points {
        let Some((low, high)) = point.interval else { continue };
        let ends = (frame.across(point.x - width / 2.0), frame.across(point.x + width / 2.0));
        let (Some(bottom), Some(top)) = (frame.down(low), frame.down(high)) else { continue };
        if let (Some(left), Some(right)) = ends {
            put(&mut path, format_args!("M{left:.1} {bottom:.1}V{top:.1}H{right:.1}V{bottom:.1}Z"));
        }
    }
    path
}

/// The shade of a count, 1 to 5: even steps of its logarithm up to the largest count, since most cells
/// of a density hold little.
pub(crate) fn shade(count: u64, largest: u64) -> u8 {
    const SHADES: u8 = 5;
    if largest <= 1 || count >= largest {
        return SHADES;
    }
    let share =
        kendall_units::exact_f64(count.max(1)).ln() / kendall_units::exact_f64(largest).ln();
    (1..SHADES).find(|shade| share * f64::from(SHADES) < f64::from(*shade)).unwrap_or(SHADES)
}

/// The least and the largest count of a shade.
pub(crate) fn counts(shade_of: u8, largest: u64) -> Option<(u64, u64)> {
    let mut counts =
        (1..=largest.min(1_000_000)).filter(|count| shade(*count, largest) == shade_of);
    let first = counts.next()?;
    let last = if shade_of == 5 { largest } else { counts.next_back().unwrap_or(first) };
    Some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_grow_with_the_count_and_cover_all_of_them() {
        for largest in [1, 2, 7, 100, 5_000] {
            let shades: Vec<u8> = (1..=largest).map(|count| shade(count, largest)).collect();
            assert!(shades.is_sorted(), "{shades:?}");
            assert_eq!(shades.last(), Some(&5));
            let covered: u64 =
                (1..=5).filter_map(|shade| counts(shade, largest)).map(|(a, b)| b - a + 1).sum();
            assert_eq!(covered, largest);
        }
    }
}
