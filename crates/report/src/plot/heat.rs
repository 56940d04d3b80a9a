//! Heat maps: cells over two axes, shaded by how much is in each.

use super::{Mark, Plot, Point, Series};

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

/// Filled rectangles, each from end to end of its interval; `place` gives where a point lies in the drawing.
pub(super) fn cells(
    place: impl Fn(f64, f64) -> Option<(f64, f64)>,
    series: &Series,
    width: f64,
) -> String {
    let mut path = String::new();
    for point in &series.points {
        let Some((low, high)) = point.interval else { continue };
        let corners = (place(point.x - width / 2.0, low), place(point.x + width / 2.0, high));
        if let (Some((left, bottom)), Some((right, top))) = corners {
            put!(path, "M{left:.1} {bottom:.1}V{top:.1}H{right:.1}V{bottom:.1}Z");
        }
    }
    path
}

/// One cell: its place along the abscissa, its two ends along the ordinate, and how many it holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    pub at: f64,
    pub ends: (f64, f64),
    pub count: u64,
}

/// The series of a heat map: one a shade, named by how many of `unit` it stands for; empty cells are
/// left out.
pub fn density(cells: &[Cell], unit: &str) -> Vec<Series> {
    let largest = cells.iter().map(|cell| cell.count).max().unwrap_or(0);
    let of_shade = |wanted: u8| {
        let (least, most) = counts(wanted, largest)?;
        let held = cells.iter().filter(|cell| cell.count > 0);
        let points = held.filter(|cell| shade(cell.count, largest) == wanted).map(|cell| Point {
            x: cell.at,
            y: middle(cell.ends),
            interval: Some(cell.ends),
        });
        let points: Vec<Point> = points.collect();
        let name = if least == most { least.to_string() } else { format!("{least} to {most}") };
        let name = format!("{name} {unit}");
        (!points.is_empty()).then_some(Series { name, mark: Mark::Cells(wanted), color: 0, points })
    };
    (1..=5).filter_map(of_shade).collect()
}

/// The geometric middle, as bins are even steps of the logarithm; the arithmetic one from zero on.
fn middle((low, high): (f64, f64)) -> f64 {
    if low > 0.0 { (low * high).sqrt() } else { low.midpoint(high) }
}

/// The shade of a count, 1 to 5: even steps of its logarithm up to the largest count, since most cells
/// of a density hold little.
fn shade(count: u64, largest: u64) -> u8 {
    const SHADES: u8 = 5;
    if largest <= 1 || count >= largest {
        return SHADES;
    }
    let share =
        kendall_units::exact_f64(count.max(1)).ln() / kendall_units::exact_f64(largest).ln();
    (1..SHADES).find(|shade| share * f64::from(SHADES) < f64::from(*shade)).unwrap_or(SHADES)
}

/// The least and the largest count of a shade.
fn counts(shade_of: u8, largest: u64) -> Option<(u64, u64)> {
    let first = first_of(shade_of, largest)?;
    let next = if shade_of == 5 { None } else { first_of(shade_of + 1, largest) };
    let last = next.map_or(largest, |next| next - 1);
    (shade(first, largest) == shade_of).then_some((first, last))
}

/// The least count of this shade or a darker one.
fn first_of(shade_of: u8, largest: u64) -> Option<u64> {
    let (mut below, mut at) = (0, largest);
    while at > below + 1 {
        let middle = below.midpoint(at);
        let dark = shade(middle, largest) >= shade_of;
        (below, at) = if dark { (below, middle) } else { (middle, at) };
    }
    (largest > 0).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_grow_with_the_count_and_cover_all_of_them() {
        assert_eq!(counts(5, 50_000_000).map(|(_, most)| most), Some(50_000_000));
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
