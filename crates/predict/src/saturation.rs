//! Where a load curve stops growing.

use serde::{Deserialize, Serialize};

/// One point of a load curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LoadPoint {
    /// N of a closed loop, λ of an open one.
    pub load: f64,
    /// X.
    pub throughput_per_s: f64,
    /// R at the clients.
    pub response_time_s: f64,
}

/// What a curve does at its upper end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Throughput still grew by more than [`PLATEAU`] at the highest load: no saturation in range.
    StillGrowing,
    /// Throughput stays within [`PLATEAU`] of its maximum.
    Saturated,
    /// Past its maximum, throughput falls by more than [`PLATEAU`].
    Overloaded,
}

/// Share of the maximum that counts as having reached it.
///
/// Runs that last a minute repeat to within 2 to 3 % on a quiet machine, so 5 % is a difference
/// that repetitions can tell from noise, and what is left to gain beyond it is rarely worth the
/// response time it costs.
pub const PLATEAU: f64 = 0.05;

/// Where one curve saturates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Saturation {
    /// What the curve does at its upper end.
    pub shape: Shape,
    /// Lowest load that reaches the maximum less [`PLATEAU`]; beyond it more load buys queueing.
    pub knee: LoadPoint,
    /// The highest load below it that was measured and does not reach it: the true knee lies
    /// between the two. `None` where the lowest load reaches it.
    pub below_knee: Option<f64>,
    /// The point of highest throughput.
    pub maximum: LoadPoint,
    /// Throughput of the highest load over that of the load below it, less one.
    pub last_gain: f64,
    /// What was full at the highest load, where something was.
    pub full: Option<Full>,
    /// N* = Xmax·(Rmin + Z), where the asymptotes of light and heavy load cross [LZGS84 §5.2];
    /// `None` for an open loop.
    pub asymptotes_cross_at: Option<f64>,
}

/// A resource that leaves at most [`PLATEAU`] to gain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Full {
    /// What it is called.
    pub resource: String,
    /// U, at least 1 − [`PLATEAU`].
    pub utilization: f64,
}

impl Full {
    /// Share of throughput that is left to gain: 1/U − 1.
    #[must_use]
    pub fn left_to_gain(&self) -> f64 {
        1.0 / self.utilization.min(1.0) - 1.0
    }
}

/// Finds the saturation point of a curve; `None` for fewer than two points.
///
/// `think_time_s` is Z of a closed loop, `None` for an open one. A curve saturates where its last
/// step gained no more than [`PLATEAU`], and also where it gained more but something was `full` at
/// its highest load: then the step led into saturation, and the utilization law leaves no more to
/// gain. With few levels of load a step can do that.
#[must_use]
pub fn saturation(
    curve: &[LoadPoint],
    think_time_s: Option<f64>,
    full: Option<Full>,
) -> Option<Saturation> {
    let mut curve = curve.to_vec();
    curve.sort_by(|a, b| a.load.total_cmp(&b.load));
    let (first, last) = (*curve.first()?, *curve.last()?);
    if curve.len() < 2 {
        return None;
    }
    let maximum = *curve.iter().max_by(|a, b| a.throughput_per_s.total_cmp(&b.throughput_per_s))?;
    let enough = maximum.throughput_per_s * (1.0 - PLATEAU);
    let knee = *curve.iter().find(|point| point.throughput_per_s >= enough)?;
    let below_knee = curve.iter().map(|point| point.load).rfind(|load| *load < knee.load);
    let shape = if last.throughput_per_s < enough {
        Shape::Overloaded
    } else if full.is_none() && still_growing(&curve) {
        Shape::StillGrowing
    } else {
        Shape::Saturated
    };
    let asymptotes_cross_at =
        think_time_s.map(|think| maximum.throughput_per_s * (first.response_time_s + think));
    let last_gain = match curve.as_slice() {
        [.., before, last] => last.throughput_per_s / before.throughput_per_s - 1.0,
        _ => f64::NAN,
    };
    Some(Saturation { shape, knee, below_knee, maximum, last_gain, full, asymptotes_cross_at })
}

/// Whether the last step up still paid: more than [`PLATEAU`] of throughput for it, with at
/// least a tenth of the return that a proportional system would give.
fn still_growing(curve: &[LoadPoint]) -> bool {
    const RETURN: f64 = 0.1;
    let [.., before, last] = curve else { return false };
    if before.throughput_per_s <= 0.0 || before.load <= 0.0 {
        return true;
    }
    let gain = last.throughput_per_s / before.throughput_per_s - 1.0;
    let step = last.load / before.load - 1.0;
    gain > PLATEAU || (gain > RETURN * step && gain > PLATEAU / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The asymptotes themselves: X = min(N/R₀, Xmax), R = max(R₀, N/Xmax).
    fn asymptotic(loads: &[f64], maximum: f64, response: f64) -> Vec<LoadPoint> {
        loads
            .iter()
            .map(|&load| LoadPoint {
                load,
                throughput_per_s: (load / response).min(maximum),
                response_time_s: (load / maximum).max(response),
            })
            .collect()
    }

    #[test]
    fn the_knee_of_the_asymptotes_is_where_they_cross() {
        let curve = asymptotic(&[1.0, 10.0, 20.0, 30.0, 40.0], 1_000.0, 0.02);
        let found = saturation(&curve, Some(0.0), None).unwrap();
        assert_eq!(found.shape, Shape::Saturated);
        assert!((found.knee.load - 20.0).abs() < 1e-9);
        assert_eq!((found.below_knee, found.asymptotes_cross_at), (Some(10.0), Some(20.0)));
    }

    #[test]
    fn a_curve_that_still_grows_is_not_called_saturated() {
        let curve = asymptotic(&[1.0, 2.0, 4.0, 8.0], 1e9, 0.01);
        assert_eq!(saturation(&curve, Some(0.0), None).unwrap().shape, Shape::StillGrowing);
    }

    #[test]
    fn a_curve_that_falls_is_overloaded_whatever_the_order_of_its_points() {
        let mut curve = asymptotic(&[1.0, 10.0, 20.0, 30.0], 1_000.0, 0.01);
        curve[3].throughput_per_s = 700.0;
        curve.reverse();
        let found = saturation(&curve, Some(0.0), None).unwrap();
        assert_eq!(found.shape, Shape::Overloaded);
        assert!((found.maximum.throughput_per_s - 1_000.0).abs() < 1e-9);
    }

    /// The demo's curve of eight workers: three levels of load, of which the last step leads into
    /// saturation. All workers are held, so nothing is left to gain.
    #[test]
    fn a_step_into_saturation_is_told_by_what_is_full() {
        let curve = asymptotic(&[4.0, 13.0, 64.0], 5_762.0, 0.0026);
        assert_eq!(saturation(&curve, Some(0.0), None).unwrap().shape, Shape::StillGrowing);
        let full = Full { resource: "workers".to_owned(), utilization: 0.998 };
        assert!((full.left_to_gain() - 0.002).abs() < 1e-5);
        let found = saturation(&curve, Some(0.0), Some(full)).unwrap();
        assert_eq!((found.shape, found.below_knee), (Shape::Saturated, Some(13.0)));
        assert!((found.last_gain - 0.1523).abs() < 1e-3);
    }

    #[test]
    fn one_point_is_no_curve() {
        assert!(saturation(&asymptotic(&[1.0], 1.0, 1.0), None, None).is_none());
    }
}
