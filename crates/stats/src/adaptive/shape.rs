//! Which shape throughput has against load: fitted, with how sure that is.
//!
//! Three families, on the logarithm of the throughput X(n), so that the scatter of runs is a share:
//!
//! - saturating: γn/(1 + (n/a)^s)^(1/s), from Amdahl's law (s = 1) by networks with thinking
//!   clients to a hard limit (s → ∞);
//! - retrograde: γn/((1 + (n/a)^s)^(1/s) + (n/b)²), whose s = 1 is the Universal Scalability Law;
//! - cliff: saturating up to an edge between two loads that were run, a power of the load beyond.
//!
//! Each is fitted by least squares. How sure the shape is comes from Akaike's corrected criterion,
//! as the weights of the families; how sure a number is from the profile of the likelihood: all
//! parameters whose sum of squares lies below a bound, in all families that are not ruled out.
//! The search over parameters is a fixed sequence of trials, so the same runs give the same answer.
//!
//! # Source
//! Akaike weights: Burnham, Anderson 2002 §2.9; profile likelihood: Bates, Watts 1988 §6.1.

use kendall_units::exact_f64;
use serde::{Deserialize, Serialize};

use super::{Shape, undisturbed};
use crate::distribution::t_two_sided;
use crate::estimate::{Estimate, Interval};
use crate::sample::{mean, sum_of_squares};

/// A family with less of the weight is ruled out.
const RULED_OUT: f64 = 0.05;

/// A fitted fall to less than this share of the maximum is one.
const FALLEN: f64 = 0.95;

/// Share of the throughput that a cliff takes away at least.
const CLIFF: f64 = 0.8;

/// A system whose throughput rises with at least this power of the load still grows: 5 % for twice
/// the load.
const GROWS: f64 = 0.07;

/// Factor on t² in the bound of the profile, since real curves are none of the families exactly: by
/// simulation (`tests/adaptive.rs`) the maxima and knees of closed networks held in 89 to 94 % without
/// it, those of the families themselves in 94 to 99 %.
const MISFIT: f64 = 1.5;

/// Trials around the best parameters of a family, and for each end of each interval.
const TRIALS: usize = 600;
const TRIALS_OF_AN_END: usize = 300;
/// The first steps of those, by parameter.
const STEPS_OF_AN_END: Parameters = [0.3, 0.15, 0.3];

/// Fitted shape of a curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShapeFit {
    /// The likeliest shape, and the others that are not ruled out, with their weights.
    pub likely: Vec<(Shape, f64)>,
    /// Highest throughput between the lowest and the highest load that was run.
    pub maximum_throughput: Estimate,
    /// Load at which that is: of a cliff its edge, where the curve saturates the highest load.
    pub load_of_maximum: Estimate,
    /// Load that first reaches 95 % of it.
    pub knee: Estimate,
    /// Scatter of a run as a share of its throughput.
    pub spread: f64,
}

/// Fits the shapes to runs, each a load and its throughput; `None` below five different loads,
/// without degrees of freedom, and for what is not a positive number.
#[must_use]
pub fn fit(runs: &[(f64, f64)], confidence: f64) -> Option<ShapeFit> {
    let data = Data::of(runs)?;
    let mut families: Vec<Fitted> =
        data.families().into_iter().filter_map(|family| Fitted::of(&data, family)).collect();
    families.sort_by(|a, b| a.criterion.total_cmp(&b.criterion));
    let best = families.first()?.criterion;
    let weight = |fitted: &Fitted| (-(fitted.criterion - best) / 2.0).exp();
    let all: f64 = families.iter().map(weight).sum();
    let mut likely: Vec<(Shape, f64)> = Vec::new();
    let mut kept: Vec<&Fitted> = Vec::new();
    for fitted in &families {
        let share = weight(fitted) / all;
        let shape = data.shape_of(fitted, confidence);
        match likely.iter_mut().find(|(known, _)| *known == shape) {
            Some((_, known)) => *known += share,
            None => likely.push((shape, share)),
        }
        if share >= RULED_OUT {
            kept.push(fitted);
        }
    }
    likely.sort_by(|a, b| b.1.total_cmp(&a.1));
    likely.retain(|(_, share)| *share >= RULED_OUT);
    let estimate = |of: fn(&Data, &Curve) -> f64| data.estimate(&kept, confidence, of);
    Some(ShapeFit {
        likely,
        maximum_throughput: estimate(|data, curve| data.top(curve).1),
        load_of_maximum: estimate(|data, curve| data.top(curve).0),
        knee: estimate(Data::knee),
        spread: families[0].deviation,
    })
}

/// The runs of one load.
#[derive(Debug, Clone, Copy)]
struct Group {
    load: f64,
    log: f64,
    mean: f64,
    count: f64,
}

#[derive(Debug)]
struct Data {
    groups: Vec<Group>,
    /// Sum of squares around the means of the loads.
    within: f64,
    runs: f64,
}

/// What is fitted: with a cliff behind the group of this number, or without.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Family {
    Saturating,
    Retrograde,
    Cliff(usize),
}

/// ln a, 1/s, and ln b or, of a cliff, the logarithm of its edge.
type Parameters = [f64; 3];

/// A curve: its parameters, scale and what lies behind its edge.
#[derive(Debug, Clone, Copy)]
struct Curve {
    parameters: Parameters,
    falls: bool,
    scale: f64,
    /// Edge, and level and slope of the logarithm behind it.
    behind: Option<(f64, f64, f64)>,
}

impl Curve {
    fn at(&self, load: f64) -> f64 {
        match self.behind {
            Some((edge, level, slope)) if load > edge * (1.0 + 1e-9) => {
                (level + slope * load.ln()).exp()
            }
            _ => (self.scale + height(&self.parameters, self.falls, load.ln())).exp(),
        }
    }
}

/// ln X/γ without a cliff.
fn height([a, inverse, b]: &Parameters, falls: bool, log: f64) -> f64 {
    let x = log - a;
    let limited = if *inverse < 1e-3 {
        x.max(0.0)
    } else {
        let power = x / inverse;
        // ln(1 + e^p) without overflow.
        inverse * (power.max(0.0) + (-power.abs()).exp().ln_1p())
    };
    if falls { log - (limited.exp() + (2.0 * (log - b)).exp()).ln() } else { log - limited }
}

/// A family at its best.
#[derive(Debug)]
struct Fitted {
    family: Family,
    parameters: Parameters,
    squares: f64,
    criterion: f64,
    deviation: f64,
    degrees: f64,
}

impl Fitted {
    fn of(data: &Data, family: Family) -> Option<Self> {
        let coefficients = data.coefficients(family);
        let degrees = data.runs - coefficients;
        // Akaike's correction needs one more, for the scatter.
        if degrees < 2.0 {
            return None;
        }
        let (mut best, mut squares) = data.start(family);
        let mut steps = [0.5, 0.2, 0.5];
        let mut chance = Trials::new();
        for trial in 0..TRIALS {
            if trial % 100 == 99 {
                steps = steps.map(|step| 0.5 * step);
            }
            let tried = data.within_bounds(family, chance.near(&best, &steps));
            let found = data.squares(family, &tried);
            if found < squares {
                (best, squares) = (tried, found);
            }
        }
        let squares = squares.max(1e-12 * data.runs);
        let parameters = coefficients + 1.0;
        let correction = 2.0 * parameters * (parameters + 1.0) / (data.runs - parameters - 1.0);
        Some(Self {
            family,
            parameters: best,
            squares,
            criterion: data.runs * (squares / data.runs).ln() + 2.0 * parameters + correction,
            deviation: (squares / degrees).sqrt(),
            degrees,
        })
    }
}

impl Data {
    fn of(runs: &[(f64, f64)]) -> Option<Self> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        if !runs.iter().all(|(load, throughput)| positive(*load) && positive(*throughput)) {
            return None;
        }
        let mut sorted = runs.to_vec();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut groups, mut within, mut count) = (Vec::new(), 0.0, 0.0);
        for same in sorted.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq()) {
            let values: Vec<f64> = same.iter().map(|(_, throughput)| *throughput).collect();
            let load = same[0].0;
            let (kept, _) = undisturbed(&values);
            let logs: Vec<f64> = kept.iter().map(|value| value.ln()).collect();
            within += sum_of_squares(&logs);
            count += exact_f64(logs.len());
            let (log, mean) = (load.ln(), mean(&logs));
            groups.push(Group { load, log, mean, count: exact_f64(logs.len()) });
        }
        (groups.len() >= 5).then_some(Self { groups, within, runs: count })
    }

    fn low(&self) -> f64 {
        self.groups[0].load
    }

    fn high(&self) -> f64 {
        self.groups[self.groups.len() - 1].load
    }

    /// A cliff is looked for where the throughput falls between neighbors; at least three loads
    /// lie before it.
    fn families(&self) -> Vec<Family> {
        let falls = |at: &usize| {
            self.groups[*at + 1].mean < self.groups[*at].mean + (0.5 + CLIFF / 2.0).ln()
        };
        let edges = (2..self.groups.len() - 1).filter(falls).map(Family::Cliff);
        [Family::Saturating, Family::Retrograde].into_iter().chain(edges).collect()
    }

    /// Coefficients that are estimated; the place of an edge is one, too.
    fn coefficients(&self, family: Family) -> f64 {
        match family {
            Family::Saturating => 3.0,
            Family::Retrograde => 4.0,
            Family::Cliff(edge) if edge + 2 == self.groups.len() => 5.0,
            Family::Cliff(_) => 6.0,
        }
    }

    fn within_bounds(&self, family: Family, [a, inverse, b]: Parameters) -> Parameters {
        let (low, high) = (self.low().ln(), self.high().ln());
        let last = match family {
            Family::Cliff(edge) => self.gap(edge),
            _ => (low - 1.0, high + 5.0),
        };
        [a.clamp(low - 1.0, high + 2.0), inverse.clamp(0.0, 1.5), b.clamp(last.0, last.1)]
    }

    /// Logarithms of the loads between which an edge lies.
    fn gap(&self, edge: usize) -> (f64, f64) {
        let (from, to) = (self.groups[edge].log, self.groups[edge + 1].log);
        (from, to - 1e-6 * (to - from))
    }

    /// The best of a grid.
    fn start(&self, family: Family) -> (Parameters, f64) {
        let (low, high) = (self.low().ln(), self.high().ln());
        let span = high - low;
        let share = |step: usize, steps: usize| exact_f64(step) / exact_f64(steps);
        let falls: Vec<f64> = match family {
            Family::Retrograde => (0..9).map(|step| low + (span + 2.0) * share(step, 8)).collect(),
            Family::Cliff(edge) => vec![self.gap(edge).0],
            Family::Saturating => vec![high + 5.0],
        };
        let mut best = ([high, 1.0, high + 5.0], f64::INFINITY);
        for a in (0..13).map(|step| low + (span + 1.0) * share(step, 12)) {
            for inverse in [0.0, 0.15, 0.4, 0.7, 1.0] {
                for b in &falls {
                    let parameters = [a, inverse, *b];
                    let squares = self.squares(family, &parameters);
                    if squares < best.1 {
                        best = (parameters, squares);
                    }
                }
            }
        }
        best
    }

    /// Residuals are those of the loads' means; what scatters around these cannot be fitted.
    fn squares(&self, family: Family, parameters: &Parameters) -> f64 {
        let curve = self.curve(family, parameters);
        let around: f64 = self
            .groups
            .iter()
            .map(|group| group.count * (group.mean - curve.at(group.load).ln()).powi(2))
            .sum();
        self.within + around
    }

    /// The curve with these parameters whose scale, and whatever lies behind an edge, fits best.
    fn curve(&self, family: Family, parameters: &Parameters) -> Curve {
        let falls = family == Family::Retrograde;
        let before = match family {
            Family::Cliff(edge) => &self.groups[..=edge],
            _ => &self.groups[..],
        };
        let counts: f64 = before.iter().map(|group| group.count).sum();
        let scale = before
            .iter()
            .map(|group| group.count * (group.mean - height(parameters, falls, group.log)))
            .sum::<f64>()
            / counts;
        let behind = match family {
            Family::Cliff(edge) => {
                let (level, slope) = line(&self.groups[edge + 1..]);
                Some((parameters[2].exp(), level, slope))
            }
            _ => None,
        };
        Curve { parameters: *parameters, falls, scale, behind }
    }

    /// Load and throughput of the maximum between the lowest and the highest load.
    fn top(&self, curve: &Curve) -> (f64, f64) {
        let high = self.high();
        let end = curve.behind.map_or(high, |(edge, _, _)| edge);
        let top = if curve.falls { peak(curve, self.low(), end) } else { end };
        let best = (top, curve.at(top));
        let last = (high, curve.at(high));
        if last.1 > best.1 { last } else { best }
    }

    /// Load that first reaches 95 % of the maximum.
    fn knee(&self, curve: &Curve) -> f64 {
        let (load, top) = self.top(curve);
        let (mut low, mut high) = (self.low().ln(), load.ln());
        if curve.at(low.exp()) >= FALLEN * top {
            return low.exp();
        }
        for _ in 0..20 {
            let middle = f64::midpoint(low, high);
            if curve.at(middle.exp()) < FALLEN * top { low = middle } else { high = middle }
        }
        high.exp()
    }

    /// Power of the load with which the throughput rises at its highest load.
    fn rise(&self, curve: &Curve) -> f64 {
        let high = self.high();
        (curve.at(high) / curve.at(0.9 * high)).ln() / -(0.9_f64.ln())
    }

    /// Whether a fifth and more is lost between two loads that are less than half of the lower apart.
    fn breaks_down(&self, curve: &Curve, edge: usize) -> bool {
        let (here, next) = (self.groups[edge].load, self.groups[edge + 1].load);
        next < 1.5 * here && curve.at(next) < CLIFF * curve.at(here)
    }

    /// What a fitted family is called.
    fn shape_of(&self, fitted: &Fitted, confidence: f64) -> Shape {
        let curve = self.curve(fitted.family, &fitted.parameters);
        let top = self.top(&curve).1;
        match fitted.family {
            Family::Cliff(edge) if self.breaks_down(&curve, edge) => Shape::Cliff,
            _ if curve.at(self.high()) < FALLEN * top => Shape::Retrograde,
            Family::Retrograde | Family::Cliff(_) => Shape::Saturating,
            Family::Saturating => {
                let (low, _) = self.ends(fitted, confidence, Self::rise);
                if low > GROWS { Shape::Growing } else { Shape::Saturating }
            }
        }
    }

    /// The number of the likeliest family, from the lowest to the highest that any family which
    /// is not ruled out allows.
    fn estimate(
        &self,
        kept: &[&Fitted],
        confidence: f64,
        of: fn(&Self, &Curve) -> f64,
    ) -> Estimate {
        let curve = |fitted: &Fitted| self.curve(fitted.family, &fitted.parameters);
        let center = kept.first().map_or(f64::NAN, |fitted| of(self, &curve(fitted)));
        let (low, high) = kept
            .iter()
            .map(|fitted| self.ends(fitted, confidence, of))
            .fold((center, center), |(low, high), ends| (low.min(ends.0), high.max(ends.1)));
        Estimate::with_interval(center, Interval { low, high, confidence })
    }

    /// Lowest and highest value of a number among the curves whose sum of squares lies below
    /// S(1 + 1.5t²/ν). A scale that is off by δ adds δ² for each run.
    fn ends(&self, fitted: &Fitted, confidence: f64, of: fn(&Self, &Curve) -> f64) -> (f64, f64) {
        let t = t_two_sided(confidence, fitted.degrees);
        let bound = fitted.squares * (1.0 + MISFIT * t * t / fitted.degrees);
        let before: f64 = match fitted.family {
            Family::Cliff(edge) => self.groups[..=edge].iter().map(|group| group.count).sum(),
            _ => self.runs,
        };
        let value = |parameters: &Parameters, sign: f64| {
            let slack = bound - self.squares(fitted.family, parameters);
            if slack < 0.0 {
                return None;
            }
            let mut curve = self.curve(fitted.family, parameters);
            let off = sign * (slack / before).sqrt();
            curve.scale += off;
            // What is not a throughput does not move with the scale; what lies behind an edge has its own.
            Some(of(self, &curve))
        };
        let end = |sign: f64| {
            let mut chance = Trials::new();
            let mut best = fitted.parameters;
            let mut reached = value(&best, sign).unwrap_or(f64::NAN);
            let mut steps = STEPS_OF_AN_END;
            for trial in 0..TRIALS_OF_AN_END {
                if trial % 60 == 59 {
                    steps = steps.map(|step| 0.5 * step);
                }
                let tried = self.within_bounds(fitted.family, chance.near(&best, &steps));
                if let Some(found) =
                    value(&tried, sign).filter(|found| sign * (found - reached) > 0.0)
                {
                    (best, reached) = (tried, found);
                }
            }
            reached
        };
        (end(-1.0), end(1.0))
    }
}

/// Load of the maximum of a curve that rises and then falls, by golden sections of its logarithm.
fn peak(curve: &Curve, low: f64, high: f64) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_894_8;
    let (mut low, mut high) = (low.ln(), high.ln());
    for _ in 0..24 {
        let width = GOLDEN * (high - low);
        let (left, right) = (high - width, low + width);
        if curve.at(left.exp()) < curve.at(right.exp()) { low = left } else { high = right }
    }
    f64::midpoint(low, high).exp()
}

/// Weighted least squares of the logarithm by the logarithm of the load; flat for a single load.
fn line(groups: &[Group]) -> (f64, f64) {
    let counts: f64 = groups.iter().map(|group| group.count).sum();
    let average =
        |of: fn(&Group) -> f64| groups.iter().map(|g| g.count * of(g)).sum::<f64>() / counts;
    let (x, y) = (average(|group| group.log), average(|group| group.mean));
    let squares: f64 = groups.iter().map(|g| g.count * (g.log - x).powi(2)).sum();
    let both: f64 = groups.iter().map(|g| g.count * (g.log - x) * (g.mean - y)).sum();
    let slope = if squares > 0.0 { both / squares } else { 0.0 };
    (y - slope * x, slope)
}

/// A fixed sequence of trials: the multiples of three irrational numbers, which fill the cube evenly.
#[derive(Debug)]
struct Trials {
    count: u64,
}

impl Trials {
    const fn new() -> Self {
        Self { count: 0 }
    }

    fn near(&mut self, around: &Parameters, steps: &Parameters) -> Parameters {
        /// Powers of the inverse of the plastic number of three dimensions (Roberts 2018).
        const MULTIPLES: Parameters =
            [0.819_172_513_396_164_4, 0.671_043_606_703_789_2, 0.549_700_477_901_970_3];
        self.count += 1;
        let count = exact_f64(self.count);
        std::array::from_fn(|place| {
            around[place] + steps[place] * (2.0 * (count * MULTIPLES[place]).fract() - 1.0)
        })
    }
}
