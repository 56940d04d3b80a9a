//! The family of curves that throughput is fitted with.

use kendall_units::exact_f64;

use super::REACHED;
use super::evidence::{Evidence, Shape};

/// How a curve bends from the line of light load to its plateau, at a.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bend {
    /// min(n, a).
    Corner,
    /// n / (1 + (n/a)^s)^(1/s), of which this is 1/s: what is left of the way to the plateau is a
    /// power of the load, as in Amdahl's law.
    Power(f64),
    /// n − τ·ln(1 + e^((n−a)/τ)) from 0, of which this is τ/a: what is left is an exponential of the
    /// load, as in closed networks of queues.
    Exponential(f64),
}

/// How the throughput depends on the load, up to its scale: the line of light load up to a plateau,
/// with a bend, x of the plateau; and, where it falls, x/(1 + x·(n/b)^q), which with a power of 1
/// and q = 1 is the Universal Scalability Law.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Form {
    knee: f64,
    bend: Bend,
    /// ln b and q.
    fall: Option<(f64, f64)>,
    /// Its share of the prior.
    prior: f64,
}

impl Form {
    /// ln(1 + e^p) without overflow.
    fn softplus(p: f64) -> f64 {
        p.max(0.0) + (-p.abs()).exp().ln_1p()
    }

    fn at(&self, log_load: f64) -> f64 {
        let over = log_load - self.knee;
        let limited = match self.bend {
            Bend::Corner => over.min(0.0),
            Bend::Power(softness) => over - softness * Self::softplus(over / softness),
            Bend::Exponential(width) => {
                let load = over.exp();
                let bent = |load: f64| width * Self::softplus((load - 1.0) / width);
                (load - bent(load) + bent(0.0)).ln()
            }
        };
        let falls = |(at, power)| Self::softplus(power * (log_load - at) + limited);
        limited - self.fall.map_or(0.0, falls)
    }

    /// What a user sees of it at the loads that were run: what lies between them was not measured.
    pub(super) fn seen(&self, levels: &[f64]) -> Seen {
        let (low, high) = (levels[0], levels[levels.len() - 1]);
        let (low_log, high_log) = (low.ln(), high.ln());
        let peak = if self.fall.is_some() { self.peak(low_log, high_log) } else { high_log };
        let top = levels.iter().map(|load| self.at(load.ln())).fold(f64::NEG_INFINITY, f64::max);
        let wanted = top + REACHED.ln();
        let (mut below, mut above) = (low_log, peak);
        if self.at(below) >= wanted {
            above = below;
        }
        for _ in 0..24 {
            let middle = f64::midpoint(below, above);
            if self.at(middle) < wanted { below = middle } else { above = middle }
        }
        Seen {
            top,
            knee: above.exp(),
            crossing: low * (top - self.at(low_log)).exp(),
            fall: self.at(high_log) - top,
        }
    }

    /// ln of the load of its maximum, by golden sections: it rises and then falls.
    fn peak(&self, low: f64, high: f64) -> f64 {
        const GOLDEN: f64 = 0.618_033_988_749_894_8;
        let (mut low, mut high) = (low, high);
        for _ in 0..24 {
            let width = GOLDEN * (high - low);
            let (left, right) = (high - width, low + width);
            if self.at(left) < self.at(right) { low = left } else { high = right }
        }
        f64::midpoint(low, high)
    }
}

impl Shape for Form {
    fn height(&self, load: f64) -> f64 {
        self.at(load.ln())
    }

    fn prior(&self) -> f64 {
        self.prior
    }
}

/// A form at the loads that were run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    /// Its highest height.
    pub(super) top: f64,
    /// Load that first reaches [`REACHED`] of it.
    pub(super) knee: f64,
    /// Load at which the line of light load reaches it.
    pub(super) crossing: f64,
    /// Height at the highest load, less that.
    pub(super) fall: f64,
}

/// From a corner to what bends more slowly than Amdahl's law.
const BENDS: [Bend; 11] = [
    Bend::Corner,
    Bend::Power(0.15),
    Bend::Power(0.35),
    Bend::Power(0.65),
    Bend::Power(1.0),
    Bend::Power(1.4),
    Bend::Exponential(0.1),
    Bend::Exponential(0.2),
    Bend::Exponential(0.35),
    Bend::Exponential(0.6),
    Bend::Exponential(1.0),
];
/// Values of q: from the Universal Scalability Law to a breakdown.
const POWERS: [f64; 3] = [1.0, 2.5, 7.0];
/// Share of the prior of curves that do not fall.
const STEADY: f64 = 0.6;
/// Cells of ln a where nothing falls, and of ln a and ln b where it does.
const STEPS: u32 = 24;
const STEPS_OF_FALL: [u32; 2] = [14, 8];

/// Forms of one bend and fall, over ranges of the other parameters.
#[derive(Debug, Clone, Copy)]
struct Cells {
    bend: Bend,
    power: Option<f64>,
    /// Ranges of ln a, and of ln b less the slope times it: what runs leave is a narrow ridge, which cells along the axes miss.
    ranges: [(f64, f64); 2],
    slope: f64,
    /// What a and b may be at all, as logarithms.
    bounds: [(f64, f64); 2],
    /// Prior of a unit of the range, or of the ranges.
    density: f64,
}

impl Cells {
    fn steps(&self) -> [u32; 2] {
        if self.power.is_some() { STEPS_OF_FALL } else { [STEPS, 1] }
    }

    fn step(&self, axis: usize) -> f64 {
        let (low, high) = self.ranges[axis];
        (high - low) / f64::from(self.steps()[axis])
    }

    /// Middles of the cells.
    fn forms(&self) -> impl Iterator<Item = Form> {
        let [knees, falls] = self.steps();
        let middle = move |axis: usize, place: u32| {
            self.ranges[axis].0 + self.step(axis) * (f64::from(place) + 0.5)
        };
        let volume = self.step(0) * if self.power.is_some() { self.step(1) } else { 1.0 };
        let (least, most) = self.bounds[1];
        let forms = (0..knees).flat_map(move |knee| {
            (0..falls).map(move |fall| Form {
                knee: middle(0, knee),
                bend: self.bend,
                fall: self
                    .power
                    .map(|power| (middle(1, fall) + self.slope * middle(0, knee), power)),
                prior: self.density * volume,
            })
        });
        forms.filter(move |form| form.fall.is_none_or(|(at, _)| (least..=most).contains(&at)))
    }

    /// The part of the ranges in which `forms` are not far less likely than the best of them.
    fn around(&self, forms: &[Form], weights: &[f64]) -> Self {
        const FAR: f64 = 9.0;
        let best = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let near = forms.iter().zip(weights).filter(|(_, weight)| **weight > best - FAR);
        let near: Vec<(f64, f64)> =
            near.map(|(form, _)| (form.knee, form.fall.map_or(0.0, |(at, _)| at))).collect();
        if near.is_empty() {
            return *self;
        }
        let range = |of: &dyn Fn(&(f64, f64)) -> f64, margin: f64| {
            let low = near.iter().map(of).fold(f64::INFINITY, f64::min);
            let high = near.iter().map(of).fold(f64::NEG_INFINITY, f64::max);
            (low - margin, high + margin)
        };
        let (low, high) = range(&|near| near.0, self.step(0));
        let (least, most) = self.bounds[0];
        let knees = (low.max(least), high.min(most));
        if self.power.is_none() {
            return Self { ranges: [knees, self.ranges[1]], ..*self };
        }
        let slope = slope_of(&near, self.step(0));
        // As far as a cell of the slope before reaches across the new one.
        let margin = self.step(1) + 0.5 * (slope - self.slope).abs() * self.step(0);
        let falls = range(&|near| near.1 - slope * near.0, margin);
        Self { ranges: [knees, falls], slope, ..*self }
    }

    /// How much the ranges hold.
    fn size(&self) -> f64 {
        self.ranges.iter().map(|(low, high)| high - low).product()
    }
}

/// Of the line through some points, each of which stands for a cell so wide.
fn slope_of(points: &[(f64, f64)], width: f64) -> f64 {
    let count = exact_f64(points.len());
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let both: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let squares: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    both / (squares + count * width * width / 12.0)
}

/// A grid of forms.
#[derive(Debug, Clone)]
pub(super) struct Grid {
    cells: Vec<Cells>,
}

impl Grid {
    /// Over all that a curve of these loads may be.
    pub(super) fn whole(levels: &[f64]) -> Self {
        Self::falling(levels, &POWERS)
    }

    /// The same with a load that was not run. Beyond all others a breakdown that nothing shows is not believed: what
    /// falls there falls as in the Universal Scalability Law.
    pub(super) fn reaching(levels: &[f64], load: f64) -> Self {
        let mut within: Vec<f64> = levels.iter().copied().chain([load]).collect();
        within.sort_by(f64::total_cmp);
        let beyond = levels.last().is_some_and(|high| load > *high);
        Self::falling(&within, if beyond { &POWERS[..1] } else { &POWERS })
    }

    /// Over curves that do not fall, and those that fall with these powers.
    fn falling(levels: &[f64], powers: &[f64]) -> Self {
        let (low, high) = (levels[0].ln(), levels[levels.len() - 1].ln());
        let ranges = [(low - 0.7, high + 2.0), (f64::midpoint(low, high), high + 2.0)];
        let width = |axis: usize| ranges[axis].1 - ranges[axis].0;
        let bends = exact_f64(BENDS.len()) * width(0);
        let mut cells = Vec::new();
        for bend in BENDS {
            let steady = Cells {
                bend,
                power: None,
                ranges,
                slope: 0.0,
                bounds: ranges,
                density: STEADY / bends,
            };
            cells.push(steady);
            let density = (1.0 - STEADY) / (bends * width(1) * exact_f64(powers.len()));
            let fall = |power: &f64| Cells { power: Some(*power), density, ..steady };
            cells.extend(powers.iter().map(fall));
        }
        Self { cells }
    }

    /// Over what the runs leave of it, for each bend and fall by itself: as often as its cells become much smaller.
    pub(super) fn around(self, evidence: &Evidence) -> Self {
        const MOST_TIMES: usize = 5;
        const SMALLER: f64 = 0.5;
        let near = |mut cells: Cells| {
            for _ in 0..MOST_TIMES {
                let forms: Vec<Form> = cells.forms().collect();
                let around = cells.around(&forms, &evidence.log_weights(&forms));
                let is_smaller = around.size() < SMALLER * cells.size();
                cells = around;
                if !is_smaller {
                    break;
                }
            }
            cells
        };
        Self { cells: self.cells.into_iter().map(near).collect() }
    }

    pub(super) fn forms(&self) -> Vec<Form> {
        self.cells.iter().flat_map(Cells::forms).collect()
    }
}
