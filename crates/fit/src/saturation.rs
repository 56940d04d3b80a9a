//! Where a load curve stops growing.

use kendall_stats::estimate::{Estimate, Interval};
use kendall_stats::load_curve::{CurveRun, Evidence, LoadCurve, load_curve};
use serde::{Deserialize, Serialize};

use crate::bottleneck::full_resource;
use crate::hidden::{HiddenStation, hidden_station};
use crate::laws::tolerance;
use crate::measured::OperatingPoint;

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

/// One load of a curve as it was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredLoad {
    /// N of a closed loop, λ of an open one, or what else is varied as the load.
    pub load: f64,
    /// All runs together.
    pub point: OperatingPoint,
    pub runs: Vec<LoadRun>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadRun {
    /// When it was made, in any unit: runs are ordered by it.
    pub started: u64,
    /// X.
    pub throughput_per_s: f64,
    /// Beside that of an undisturbed run.
    pub weight: f64,
}

/// What a curve does at its upper end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Throughput still grew at the highest load: no saturation in range.
    StillGrowing,
    /// More load gains no more than [`PLATEAU`].
    Saturated,
    /// Past its maximum, throughput falls by more than [`PLATEAU`].
    Overloaded,
    /// The runs do not tell: [`Saturation::unknown`] says why, and what would.
    CannotTell,
}

impl Shape {
    /// Whether the curve is known to have reached what the system can do.
    pub const fn is_reached(self) -> bool {
        matches!(self, Self::Saturated | Self::Overloaded)
    }
}

/// Why the shape of a curve is not known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "unknown", rename_all = "kebab-case")]
pub enum Unknown {
    /// The runs are too few to say how they scatter.
    OneRun { from: f64, to: f64 },
    /// The interval of a change holds growth and saturation, or fall and none.
    Interval {
        from: f64,
        to: f64,
        /// Relative change of the throughput.
        change: f64,
        /// Its interval, from all runs of the curve.
        interval: Interval,
        /// Repetitions of each load with which it would be narrow enough, if they scatter alike.
        repetitions: u64,
    },
    /// The tier served less than the clients counted: what they say is not what it can do.
    Unbalanced { load: f64, tier: String, tier_per_s: f64, clients_per_s: f64 },
}

/// Repetitions beyond which none are asked for.
const MOST_REPETITIONS: u64 = 100;

impl Unknown {
    /// Why, and what would tell, with the unit that loads are in (such as `clients`).
    pub fn in_words(&self, unit: &str) -> String {
        InWords { unknown: self, unit }.to_string()
    }
}

impl std::fmt::Display for Unknown {
    /// Why, and what would tell.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&InWords { unknown: self, unit: "" }, f)
    }
}

struct InWords<'a> {
    unknown: &'a Unknown,
    unit: &'a str,
}

impl std::fmt::Display for InWords<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let percent = |share: f64| format!("{:+.1} %", 100.0 * share).replacen('-', "−", 1);
        // A share of a measured capacity is no short number.
        let short = |load: &f64| {
            format!("{load:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        let load = |load: &f64| format!("{} {}", short(load), self.unit).trim_end().to_owned();
        match self.unknown {
            Unknown::OneRun { from, to } => write!(
                f,
                "the change from {} to {} rests on too few runs to say how they scatter; two or \
                 more repetitions of each load would tell",
                short(from),
                load(to)
            ),
            Unknown::Interval { from, to, change, interval, repetitions } => {
                if interval.map(|change| 1.0 + change).says_nothing() {
                    let (from, to) = (short(from), load(to));
                    write!(f, "the runs differ too much to say what happens from {from} to {to}")?;
                } else {
                    write!(
                        f,
                        "from {} to {} throughput changes by {} ({:.0} % interval {} to {})",
                        short(from),
                        load(to),
                        percent(*change),
                        100.0 * interval.confidence,
                        percent(interval.low),
                        percent(interval.high)
                    )?;
                }
                if *repetitions > MOST_REPETITIONS {
                    f.write_str("; a quieter machine, longer runs or a higher load would tell")
                } else {
                    write!(
                        f,
                        "; some {repetitions} repetitions of each load, a quieter machine or a \
                         higher load would tell"
                    )
                }
            }
            Unknown::Unbalanced { load: at, tier, tier_per_s, clients_per_s } => write!(
                f,
                "at {}, {tier} served {tier_per_s:.1}/s where the clients counted \
                 {clients_per_s:.1}/s, so neither is what the system can do; longer runs, in which \
                 what arrives also leaves, would tell",
                load(at)
            ),
        }
    }
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
    /// The highest load below it that is known to lie below the knee of the fitted curve. `None` where
    /// no load is.
    pub below_knee: Option<f64>,
    /// The point of highest throughput.
    pub maximum: LoadPoint,
    /// Throughput of the highest load over that of the load below it, less one, of the fitted curve;
    /// of the means, without an interval, where the runs are too few for one.
    pub last_gain: Estimate,
    /// What all runs say together: capacity, knee and growth with their intervals; `None` where they
    /// are too few to say how they scatter.
    pub curve: Option<LoadCurve>,
    /// Why the shape is not known; `None` where it is.
    pub unknown: Option<Unknown>,
    /// The station that limits a closed loop which reached its limit, seen in the curve alone.
    pub station: Option<HiddenStation>,
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
    pub fn left_to_gain(&self) -> f64 {
        1.0 / self.utilization.min(1.0) - 1.0
    }
}

impl Saturation {
    /// Whether knee and maximum mean anything: not where a tier served less than the clients counted.
    pub fn is_balanced(&self) -> bool {
        !matches!(self.unknown, Some(Unknown::Unbalanced { .. }))
    }
}

/// Finds the saturation point of a curve; `None` for fewer than two points.
///
/// A curve saturates where its last step gains no more than [`PLATEAU`], and also where it gains
/// more but something was full at its highest load: then the step led into saturation, and the
/// utilization law leaves no more to gain. With few levels of load a step can do that. Of a step
/// of more than a doubling the last doubling counts: the rest may lie below the knee. An open loop
/// is known to go on growing while it answers what is offered.
///
/// Growth and fall are those of one curve through all runs ([`load_curve`]). Nothing is concluded that the
/// runs do not show: both must be significant by their interval, and where neither growth nor
/// saturation is, the shape is [`Shape::CannotTell`].
pub fn saturation(loads: &[MeasuredLoad], confidence: f64) -> Option<Saturation> {
    let mut loads: Vec<&MeasuredLoad> = loads.iter().collect();
    loads.sort_by(|a, b| a.load.total_cmp(&b.load));
    let [.., before, last] = loads.as_slice() else { return None };
    let (first, before, last) = (loads[0], *before, *last);
    let runs = in_order(&loads);
    let curve = load_curve(&runs, confidence);
    let maximum = *loads.iter().max_by(|a, b| throughput(a).total_cmp(&throughput(b)))?;
    let enough = throughput(maximum) * (1.0 - PLATEAU);
    let knee = *loads.iter().find(|point| throughput(point) >= enough)?;
    let full = full_resource(&last.point, 1.0 - PLATEAU)
        .map(|resource| Full { resource: resource.name, utilization: resource.utilization });
    let change = |of: fn(&LoadCurve) -> &Estimate, from: &MeasuredLoad| match &curve {
        Some(curve) => of(curve).clone(),
        None => Estimate::exact(throughput(last) / throughput(from) - 1.0),
    };
    let last_gain = change(|curve| &curve.last_gain, before);
    let fall = change(|curve| &curve.fall, maximum);
    let known_below = curve.as_ref().and_then(|curve| curve.knee.interval).map(|knee| knee.low);
    let below_knee = loads
        .iter()
        .map(|point| point.load)
        .rfind(|load| *load < knee.load && known_below.is_some_and(|low| *load < low));
    let (from, growth) = match curve.as_ref().filter(|_| last.load > 2.0 * before.load) {
        Some(curve) => (last.load / 2.0, &curve.last_doubling),
        None => (before.load, &last_gain),
    };
    let repetitions = before.runs.len().min(last.runs.len());
    let ends = Ends { from, last, maximum, growth, fall: &fall, repetitions };
    let judged = match loads.iter().find_map(|point| unbalanced(point)) {
        Some(unbalanced) => Err(unbalanced),
        None => shape(&ends, full.is_some()),
    };
    let closed = first.point.population.is_some();
    let shape = *judged.as_ref().unwrap_or(&Shape::CannotTell);
    let is_station = closed && shape == Shape::Saturated && loads.iter().all(|at| is_clients(at));
    let station = Evidence::of(&runs)
        .filter(|_| is_station)
        .and_then(|evidence| hidden_station(&evidence, confidence));
    Some(Saturation {
        shape,
        unknown: judged.err(),
        knee: seen(knee),
        below_knee,
        maximum: seen(maximum),
        last_gain,
        curve,
        station,
        full,
        asymptotes_cross_at: closed.then(|| {
            let light = first.point.client.response_time_s + first.point.think_time_s;
            throughput(maximum) * light
        }),
    })
}

/// Whether the load is a number of clients.
fn is_clients(at: &MeasuredLoad) -> bool {
    at.point.population.is_some_and(|clients| clients.total_cmp(&at.load).is_eq())
}

/// All runs in the order of time.
fn in_order(loads: &[&MeasuredLoad]) -> Vec<CurveRun> {
    let mut runs: Vec<(u64, CurveRun)> = loads
        .iter()
        .flat_map(|at| at.runs.iter().map(|run| (at.load, run)))
        .map(|(load, run)| {
            let LoadRun { started, throughput_per_s, weight } = *run;
            (started, CurveRun { load, throughput_per_s, weight })
        })
        .collect();
    runs.sort_by_key(|(started, _)| *started);
    runs.into_iter().map(|(_, run)| run).collect()
}

fn throughput(at: &MeasuredLoad) -> f64 {
    at.point.client.throughput_per_s
}

fn seen(at: &MeasuredLoad) -> LoadPoint {
    LoadPoint {
        load: at.load,
        throughput_per_s: throughput(at),
        response_time_s: at.point.client.response_time_s,
    }
}

/// The tier that every request visits served less than the clients counted.
fn unbalanced(at: &MeasuredLoad) -> Option<Unknown> {
    let tier = at.point.first_tier().filter(|tier| tier.view.throughput_per_s > 0.0)?;
    let (tier_per_s, clients_per_s) = (tier.view.throughput_per_s, throughput(at));
    (tier_per_s < clients_per_s * (1.0 - tolerance(&at.point))).then(|| Unknown::Unbalanced {
        load: at.load,
        tier: tier.name.clone(),
        tier_per_s,
        clients_per_s,
    })
}

/// What a shape is judged by.
struct Ends<'a> {
    /// The load from which growth is judged.
    from: f64,
    last: &'a MeasuredLoad,
    maximum: &'a MeasuredLoad,
    growth: &'a Estimate,
    fall: &'a Estimate,
    /// Of the last two loads.
    repetitions: usize,
}

fn shape(ends: &Ends<'_>, full: bool) -> Result<Shape, Unknown> {
    let Ends { from, last, maximum, growth, fall, repetitions } = *ends;
    if fall.center < -PLATEAU {
        return match fall.interval {
            Some(interval) if interval.high < 0.0 => Ok(Shape::Overloaded),
            // Whether it falls or not, what is full leaves nothing to gain.
            _ if full => Ok(Shape::Saturated),
            interval => {
                let runs = maximum.runs.len().min(last.runs.len());
                Err(unknown([maximum.load, last.load], runs, fall.center, interval))
            }
        };
    }
    if full {
        return Ok(Shape::Saturated);
    }
    if let Some(offered) = last.point.offered_per_s() {
        let answered = throughput(last) >= offered * (1.0 - PLATEAU);
        return Ok(if answered { Shape::StillGrowing } else { Shape::Saturated });
    }
    let step = if from > 0.0 { last.load / from - 1.0 } else { 0.0 };
    let grows = still_growing(step, growth.center);
    if let Some(interval) = growth.interval {
        if grows && interval.low > 0.0 {
            return Ok(Shape::StillGrowing);
        }
        if !grows && interval.high <= little(step) {
            return Ok(Shape::Saturated);
        }
    }
    Err(unknown([from, last.load], repetitions, growth.center, growth.interval))
}

/// Growth by a step that a saturated system does not exceed: [`PLATEAU`], or half of what a system
/// that grows in proportion would gain.
fn little(step: f64) -> f64 {
    PLATEAU.max(0.5 * step)
}

fn unknown([from, to]: [f64; 2], runs: usize, change: f64, interval: Option<Interval>) -> Unknown {
    let Some(interval) = interval else {
        return Unknown::OneRun { from, to };
    };
    // Half-widths shrink with the root of the runs.
    let wider = ((1.0 + interval.high) / (1.0 + interval.low).max(f64::MIN_POSITIVE)).ln() / 2.0;
    let wanted = (1.0 + change.abs().max(PLATEAU)).ln() / 2.0;
    let repetitions = (kendall_units::exact_f64(runs) * (wider / wanted).powi(2)).ceil().min(1e6);
    let repetitions = kendall_units::whole_u64(repetitions).max(2);
    Unknown::Interval { from, to, change, interval, repetitions }
}

/// Whether the last step up still paid: more than [`PLATEAU`] of throughput for it, with at
/// least a tenth of the return that a proportional system would give.
fn still_growing(step: f64, gain: f64) -> bool {
    const RETURN: f64 = 0.1;
    gain > PLATEAU || (gain > RETURN * step && gain > PLATEAU / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::{TierView, View};

    /// The asymptotes themselves: X = min(N/R₀, Xmax), R = max(R₀, N/Xmax), with three runs a load
    /// that differ by a share.
    fn asymptotic(loads: &[f64], maximum: f64, response: f64, spread: f64) -> Vec<MeasuredLoad> {
        let at = |(place, &load): (u64, &f64)| {
            let throughput = (load / response).min(maximum);
            MeasuredLoad {
                load,
                point: OperatingPoint {
                    duration_s: 60.0,
                    population: Some(load),
                    client: View {
                        throughput_per_s: throughput,
                        response_time_s: (load / maximum).max(response),
                    },
                    ..OperatingPoint::default()
                },
                runs: runs(place, [1.0 - spread, 1.0, 1.0 + spread].map(|f| f * throughput)),
            }
        };
        (0..).zip(loads).map(at).collect()
    }

    /// Runs in three blocks, of which none is faster than the others.
    fn runs(place: u64, throughputs_per_s: [f64; 3]) -> Vec<LoadRun> {
        let run = |(started, throughput_per_s)| LoadRun {
            started: (started + place) % 3,
            throughput_per_s,
            weight: 1.0,
        };
        (0..).zip(throughputs_per_s).map(run).collect()
    }

    fn with_throughput(mut at: MeasuredLoad, throughput: f64) -> MeasuredLoad {
        let factor = throughput / at.point.client.throughput_per_s;
        at.point.client.throughput_per_s = throughput;
        at.runs.iter_mut().for_each(|run| run.throughput_per_s *= factor);
        at
    }

    #[test]
    fn the_knee_of_the_asymptotes_is_where_they_cross() {
        let curve = asymptotic(&[1.0, 10.0, 20.0, 30.0, 40.0], 1_000.0, 0.02, 0.01);
        let found = saturation(&curve, 0.95).unwrap();
        assert_eq!((found.shape, &found.unknown), (Shape::Saturated, &None));
        assert!((found.knee.load - 20.0).abs() < 1e-9);
        assert_eq!((found.below_knee, found.asymptotes_cross_at), (Some(10.0), Some(20.0)));
    }

    #[test]
    fn a_curve_that_still_grows_is_not_called_saturated() {
        let curve = asymptotic(&[1.0, 2.0, 4.0, 8.0], 1e9, 0.01, 0.02);
        assert_eq!(saturation(&curve, 0.95).unwrap().shape, Shape::StillGrowing);
    }

    #[test]
    fn a_curve_that_falls_is_overloaded_whatever_the_order_of_its_points() {
        let mut curve = asymptotic(&[1.0, 10.0, 20.0, 30.0], 1_000.0, 0.01, 0.01);
        curve[3] = with_throughput(curve[3].clone(), 700.0);
        curve.reverse();
        let found = saturation(&curve, 0.95).unwrap();
        assert_eq!(found.shape, Shape::Overloaded);
        assert!((found.maximum.throughput_per_s - 1_000.0).abs() < 1e-9);
    }

    /// A wrong answer on a noisy machine: "overloaded, it falls beyond its maximum; −5.8 % (−80 % to
    /// +421 %)". The means alone fall; the runs show nothing.
    #[test]
    fn a_fall_that_the_runs_do_not_carry_is_not_said() {
        let mut curve = asymptotic(&[1.0, 10.0, 20.0], 1_000.0, 0.01, 0.5);
        curve[2] = with_throughput(curve[2].clone(), 942.0);
        let found = saturation(&curve, 0.95).unwrap();
        assert_eq!(found.shape, Shape::CannotTell);
        let said = found.unknown.unwrap().to_string();
        assert!(said.contains("10 to 20") && said.contains("would tell"), "{said}");
        let said = saturation(&curve, 0.95).unwrap().unknown.unwrap().in_words("clients");
        assert!(said.contains("10 to 20 clients") && !said.contains("+421 %"), "{said}");
        // The same of growth, and of no growth.
        for last in [1_200.0, 1_010.0] {
            curve[2] = with_throughput(curve[2].clone(), last);
            assert_eq!(saturation(&curve, 0.95).unwrap().shape, Shape::CannotTell, "{last}");
        }
    }

    /// On a noisy machine the load before the knee may well be beyond it: the knee is reported to lie
    /// above a load only where the runs show that this one has less throughput.
    #[test]
    fn the_knee_lies_above_a_load_that_is_known_to_be_below_it() {
        let mut curve = asymptotic(&[1.0, 8.0, 9.0, 10.0, 20.0], 1_000.0, 0.01, 0.005);
        curve[4].point.tiers = vec![pool(0.998, 1_000.0)];
        assert_eq!(saturation(&curve, 0.95).unwrap().below_knee, Some(9.0));
        for (place, at) in (0..).zip(&mut curve) {
            let x = at.point.client.throughput_per_s;
            at.runs = runs(place, [0.6 * x, x, 1.4 * x]);
        }
        // 3 runs ±40 %: a difference of 10 or 20 % is not significant, one of 90 % is.
        let found = saturation(&curve, 0.95).unwrap();
        assert_eq!((found.shape, found.below_knee), (Shape::Saturated, Some(1.0)));
        assert!((found.knee.load - 10.0).abs() < 1e-9);
        for at in &mut curve {
            at.runs.truncate(1);
        }
        assert_eq!(saturation(&curve, 0.95).unwrap().below_knee, None);
    }

    /// One run a load carries no interval, so only what is full speaks.
    #[test]
    fn one_run_a_load_tells_no_shape() {
        let mut curve = asymptotic(&[1.0, 10.0, 20.0], 1_000.0, 0.01, 0.0);
        for at in &mut curve {
            at.runs.truncate(1);
        }
        let found = saturation(&curve, 0.95).unwrap();
        assert!(matches!(found.unknown, Some(Unknown::OneRun { .. })), "{found:?}");
        curve[2].point.tiers = vec![pool(0.998, 1_000.0)];
        assert_eq!(saturation(&curve, 0.95).unwrap().shape, Shape::Saturated);
    }

    fn pool(utilization: f64, throughput_per_s: f64) -> TierView {
        TierView {
            name: "tier".to_owned(),
            workers: 8,
            workers_busy: 8.0 * utilization,
            view: View { throughput_per_s, response_time_s: 0.001 },
            ..TierView::default()
        }
    }

    /// The demo's curve of eight workers: three levels of load, of which the last step leads into
    /// saturation. All workers are held, so nothing is left to gain.
    #[test]
    fn a_step_into_saturation_is_told_by_what_is_full() {
        let mut curve = asymptotic(&[4.0, 13.0, 64.0], 5_762.0, 0.0026, 0.01);
        curve[2].point.tiers = vec![pool(0.998, 5_762.0)];
        let found = saturation(&curve, 0.95).unwrap();
        assert!((found.full.as_ref().unwrap().left_to_gain() - 0.002).abs() < 1e-5);
        assert_eq!((found.shape, found.below_knee), (Shape::Saturated, Some(13.0)));
        let gain = &found.last_gain;
        assert!(gain.interval.unwrap().contains(0.1523), "{gain:?}");
        assert!((gain.center - 0.1523).abs() < 0.02, "{gain:?}");
    }

    /// Steps of four. What grew since 16 clients was called growth at 64, where the knee lies at 22 and nothing
    /// was gained from 32 on.
    #[test]
    fn growth_before_the_knee_is_no_growth_at_the_highest_load() {
        let curve = asymptotic(&[1.0, 4.0, 16.0, 64.0], 376.0, 0.0585, 0.02);
        let found = saturation(&curve, 0.95).unwrap();
        assert!(found.last_gain.interval.unwrap().low > 0.2, "{found:?}");
        assert_eq!(found.shape, Shape::Saturated, "{found:?}");
        // Where the runs scatter, nothing is known of the highest load.
        let scattered = saturation(&asymptotic(&[1.0, 4.0, 16.0, 64.0], 376.0, 0.0585, 0.2), 0.95);
        let found = scattered.unwrap();
        assert_ne!(found.shape, Shape::StillGrowing, "{found:?}");
        let line = saturation(&asymptotic(&[1.0, 4.0, 16.0, 64.0], 1e9, 0.01, 0.02), 0.95);
        assert_eq!(line.unwrap().shape, Shape::StillGrowing);
    }

    /// An open loop of constant gaps beyond what the tier can do: clients counted the offered rate
    /// and the tier did less, so neither knee nor maximum means anything.
    #[test]
    fn a_tier_that_served_less_than_the_clients_counted_has_no_knee() {
        let mut curve = asymptotic(&[50.0, 80.0, 100.0], 1e9, 1.0, 0.01);
        for at in &mut curve {
            at.point.population = None;
            at.point.arrival_rate_per_s = Some(at.load);
            at.point.tiers = vec![pool(0.5, at.load.min(73.1))];
        }
        let found = saturation(&curve, 0.95).unwrap();
        assert!(!found.is_balanced());
        let said = found.unknown.unwrap().to_string();
        assert!(said.contains("73.1/s where the clients counted 80.0/s"), "{said}");
        // What is answered in full goes on growing, whatever an interval says.
        for at in &mut curve {
            at.point.tiers = vec![pool(0.5, at.load)];
            at.runs.truncate(1);
        }
        assert_eq!(saturation(&curve, 0.95).unwrap().shape, Shape::StillGrowing);
    }

    #[test]
    fn one_point_is_no_curve() {
        assert!(saturation(&asymptotic(&[1.0], 1.0, 1.0, 0.0), 0.95).is_none());
    }
}
