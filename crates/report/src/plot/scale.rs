//! From values to places along an axis, and the values worth a tick.

use crate::number;

use super::Scale;

/// An axis that knows its range.
#[derive(Debug, Clone)]
pub(super) struct Fitted {
    pub(super) low: f64,
    pub(super) high: f64,
    kind: Scale,
}

impl Fitted {
    /// Fits `kind` to values; values that it cannot show are ignored.
    pub(super) fn new(kind: &Scale, values: impl Iterator<Item = f64>) -> Self {
        let log = kind.is_log();
        let usable = values.filter(|value| value.is_finite() && (!log || *value > 0.0));
        let (low, high) = usable
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        let (low, high) = if low > high { (if log { 1.0 } else { 0.0 }, 1.0) } else { (low, high) };
        let (low, high) = match kind {
            Scale::Categories(names) => (-0.5, kendall_units::exact_f64(names.len().max(1)) - 0.5),
            kind if kind.is_log() && low >= high => (low / 2.0, high * 2.0),
            kind if kind.is_log() => (low / 1.08, high * 1.08),
            Scale::Log | Scale::Levels { .. } | Scale::FromZero => {
                widened(low.min(0.0), high.max(0.0), low < 0.0, high > 0.0)
            }
            Scale::AroundData => widened(low, high, true, true),
        };
        Self { low, high, kind: kind.clone() }
    }

    pub(super) fn is_log(&self) -> bool {
        self.kind.is_log()
    }

    /// From 0 at the low end to 1 at the high end; `None` for what the axis cannot show.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let (low, high, value) = if self.is_log() {
            if value <= 0.0 {
                return None;
            }
            (self.low.ln(), self.high.ln(), value.ln())
        } else {
            (self.low, self.high, value)
        };
        value.is_finite().then(|| (value - low) / (high - low))
    }

    /// Values with their labels, at most about `most`.
    pub(super) fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        match &self.kind {
            Scale::Categories(names) => {
                let places = (0..names.len()).map(kendall_units::exact_f64);
                places.zip(names.iter().cloned()).collect()
            }
            Scale::Levels { ticks, .. } => {
                ticks.iter().map(|&level| (level, number::plain(level))).collect()
            }
            Scale::Log => self.log_ticks(),
            Scale::FromZero | Scale::AroundData => self.even_ticks(most),
        }
    }

    fn even_ticks(&self, most: usize) -> Vec<(f64, String)> {
        let step = nice_step((self.high - self.low) / kendall_units::exact_f64(most.max(2)));
        let first = (self.low / step).ceil();
        let decimals = usize::try_from(-number::order(step)).unwrap_or(0);
        (0..50_u32)
            .map(|index| (first + f64::from(index)) * step)
            .take_while(|value| *value <= self.high + step * 1e-9)
            .map(|value| {
                let value = if value.abs() < step * 1e-9 { 0.0 } else { value };
                (value, label(value, decimals))
            })
            .collect()
    }

    fn log_ticks(&self) -> Vec<(f64, String)> {
        let decades = self.high.log10() - self.low.log10();
        let parts: &[f64] = if decades > 4.0 {
            &[1.0]
        } else if decades > 2.0 {
            &[1.0, 3.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let mut ticks = Vec::new();
        for order in number::order(self.low)..=number::order(self.high) {
            for part in parts {
                let value = part * 10_f64.powi(order);
                if value >= self.low && value <= self.high {
                    ticks.push((value, label(value, usize::try_from(-order).unwrap_or(0))));
                }
            }
        }
        if ticks.len() < 2 { self.even_ticks(4) } else { ticks }
    }
}

fn label(value: f64, decimals: usize) -> String {
    if decimals > 6 || value.abs() >= 1e12 {
        return format!("{value:e}");
    }
    number::fixed(value, decimals)
}

/// Room around the data, where there is data on that side.
fn widened(low: f64, high: f64, below: bool, above: bool) -> (f64, f64) {
    let span = high - low;
    // A constant gets room in proportion to its size; a lone zero gets one unit.
    let room = if span > 0.0 { span * 0.06 } else { high.abs().max(1.0) * 0.1 };
    (if below { low - room } else { low }, if above || span <= 0.0 { high + room } else { high })
}

/// The smallest of 1, 2, 5 times a power of ten that is not below `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10_f64.powi(number::order(least));
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= least).unwrap_or(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let axis = Fitted::new(&Scale::FromZero, [3.0, 187.0].into_iter());
        let labels: Vec<String> = axis.ticks(6).into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["0", "50", "100", "150"]);
    }

    #[test]
    fn a_constant_and_nothing_at_all_still_have_an_axis() {
        for values in [vec![5.0, 5.0], vec![], vec![f64::NAN], vec![0.0]] {
            for scale in [Scale::FromZero, Scale::AroundData, Scale::Log] {
                let axis = Fitted::new(&scale, values.iter().copied());
                assert!(axis.low < axis.high, "{scale:?} {values:?}");
                assert!(!axis.ticks(5).is_empty(), "{scale:?} {values:?}");
            }
        }
    }

    #[test]
    fn a_log_axis_leaves_out_zero() {
        let axis = Fitted::new(&Scale::Log, [0.0, 1.0, 1000.0].into_iter());
        assert_eq!(axis.place(0.0), None);
        assert!(axis.low > 0.9);
    }
}
