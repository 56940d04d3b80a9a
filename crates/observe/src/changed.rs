//! Windows of the system as it was before it changed: a deployment, another hit ratio or another machine make a request keep
//! a tier busy for another time. What was observed then is of another system, and a fit over both describes none.

use kendall_fit::trend::line;
use kendall_stats::distribution::t_two_sided;
use kendall_stats::estimate::{Estimate, Interval};
use kendall_stats::sample;
use kendall_units::{Seconds, exact_f64};

use crate::fetch::Observed;
use crate::quantity::Quantity;
use crate::system::System;
use crate::windows::{Window, Windows, present};

/// Windows that each of two parts of the time needs.
const FEWEST: usize = 4;

/// Moments at which the system may have changed that are tried.
const TRIED: usize = 48;

/// A change of a request's time that is small beside this is none: as much as what else is told apart here.
const NOTABLE: f64 = 0.1;

/// A change at one moment from which on what was before is left out; half of it is told.
const STEP: f64 = 0.05;

/// Confidence of a change: it is the clearest of [`TRIED`] in each of some tiers, at each look of a watch.
const CONFIDENCE: f64 = 1.0 - 1e-5;

/// Confidence of one of the last minutes, which is told and leaves nothing out.
const RECENT: f64 = 1.0 - 1e-3;

/// Loads up to so many times as high, or as low, as those before tell whether a request costs more than it did.
const LITTLE_BEYOND: f64 = 1.3;

/// A tier that is so busy beside the busiest one may be full first after a change.
const DECIDES: f64 = 0.5;

/// Share of the requests that may be of another class than before. Beyond that it is the mix that changed.
const OTHER_MIX: f64 = 0.05;

/// One window of a tier: the load of the system, and for how long a request of it keeps a server busy.
#[derive(Debug, Clone, Copy)]
struct Point {
    window: usize,
    rate_per_s: f64,
    demand_s: f64,
}

/// A change of what a request costs.
#[derive(Debug, Clone, Copy)]
struct Change {
    /// The first window since.
    window: usize,
    /// As a logarithm.
    log: f64,
    /// In standard errors, over as many as chance makes.
    clear: f64,
}

impl Windows {
    /// Leaves out what was before the last clear change, as long as `fewest` windows are left.
    pub(crate) fn since_changes(
        &mut self,
        system: &System,
        observed: &Observed,
        servers: &[Option<u64>],
        fewest: usize,
    ) {
        let tiers = self.that_decide(servers);
        let drift = |tier: &usize| {
            let found = Drift::of(&self.points(system, *tier))?;
            let middle = usize::midpoint(found.first, found.last);
            (self.moved(system, observed, middle) <= OTHER_MIX).then_some((*tier, found))
        };
        let size = |drift: &(usize, Drift)| drift.1.whole().abs();
        let drifts = tiers.iter().filter_map(drift);
        if let Some(drift) = drifts.max_by(|a, b| size(a).total_cmp(&size(b))) {
            self.since_drift(system, observed, drift, fewest);
            return;
        }
        // Each leaves fewer windows.
        while let Some((tier, change)) = self.change(system, observed, &tiers, STEP) {
            let name = &system.tiers[tier].name;
            let keeps = format!("a request keeps `{name}` busy for");
            let what =
                format!("{keeps} {}", self.before_and_since(system, observed, (tier, change)));
            let left = self.used().filter(|window| window.from_s >= self.all[change.window].from_s);
            if left.count() < fewest {
                self.drift = Some((tier, change.log));
                self.doubts
                    .push(format!("{what}: too few windows are left to analyze the time since"));
                return;
            }
            for window in &mut self.all[..change.window] {
                let why = || format!("a request kept `{name}` busy for another time");
                window.left_out.get_or_insert_with(why);
            }
            self.since = change.window;
            self.remarks.retain(|remark| !remark.starts_with(&keeps));
            self.remarks.push(format!("{what}: that time is left out"));
        }
        if let Some((tier, change)) = self.change(system, observed, &tiers, STEP / 2.0) {
            let what = self.before_and_since(system, observed, (tier, change));
            let name = &system.tiers[tier].name;
            self.drift = Some((tier, change.log));
            self.doubts
                .push(format!("a request keeps `{name}` busy for {what}: it may still change"));
        }
        for tier in tiers {
            let Some((log, what)) = self.recent(system, observed, tier) else { continue };
            self.drift = Some((tier, log));
            self.doubts.push(what);
        }
    }

    /// Leaves out what was before a steady growth of a request's time was as small as what is no change, where enough is left.
    fn since_drift(
        &mut self,
        system: &System,
        observed: &Observed,
        (tier, drift): (usize, Drift),
        fewest: usize,
    ) {
        let at =
            |window: f64| Seconds::new((drift.middle + drift.slope * (window - drift.at)).exp());
        let when = |window: usize| observed.grid.minute(self.all[window].from_s);
        let what = format!(
            "the time for which a request keeps `{}` busy changes all the time, from {} at {} to {} at {}",
            system.tiers[tier].name,
            at(exact_f64(drift.first)),
            when(drift.first),
            at(exact_f64(drift.last)),
            when(drift.last)
        );
        let is_lately = |window: usize| {
            (drift.slope * (exact_f64(drift.last) - exact_f64(window))).abs() <= NOTABLE.ln_1p()
        };
        let used = |window: &usize| self.all[*window].left_out.is_none();
        let kept: Vec<usize> = (drift.first..self.all.len())
            .filter(|window| is_lately(*window))
            .filter(used)
            .collect();
        let Some(since) = kept.first().copied().filter(|_| kept.len() >= fewest) else {
            self.drift = Some((tier, drift.whole() / 2.0));
            self.doubts
                .push(format!("{what}: too few windows are left to analyze the latest time alone"));
            return;
        };
        let left = drift.slope * (exact_f64(drift.last) - exact_f64(since)) / 2.0;
        self.drift = Some((tier, left));
        self.doubts.push(format!("{what}: what is answered is of the time since {}", when(since)));
        for window in &mut self.all[..since] {
            window
                .left_out
                .get_or_insert_with(|| "a request kept a tier busy for another time".to_owned());
        }
        self.since = since;
    }

    /// A capacity that changes all the time is one between that of its windows and that of now.
    pub(crate) fn drifting(&self, tier: usize, capacity_per_s: Estimate) -> Estimate {
        let left =
            self.drift.filter(|(drifting, _)| *drifting == tier).map_or(0.0, |(_, left)| left);
        let interval = capacity_per_s.interval.map(|all| Interval {
            low: all.low * (-left).exp().min(1.0),
            high: all.high * (-left).exp().max(1.0),
            ..all
        });
        Estimate { interval, ..capacity_per_s }
    }

    /// That requests keep a tier busy for another time in the very last windows, which are too few to tell a change.
    fn recent(&self, system: &System, observed: &Observed, tier: usize) -> Option<(f64, String)> {
        let points = self.points(system, tier);
        let of = |last: usize| {
            let (before, since) = points.split_at(points.len().checked_sub(last)?);
            Some((last, beyond(before, since)?))
        };
        let all = (1..=FEWEST + 1).filter_map(of);
        let (last, (log, clear)) = all.max_by(|a, b| a.1.1.total_cmp(&b.1.1))?;
        if clear <= 1.0 || log.abs() <= NOTABLE.ln_1p() {
            return None;
        }
        let since = &points[points.len() - last..];
        let now = sample::mean(&since.iter().map(|one| one.demand_s).collect::<Vec<f64>>());
        let what = format!(
            "since {} a request keeps `{}` busy for {}, and for {} before: too recent to tell whether it stays so",
            observed.grid.minute(self.all[since.first()?.window].from_s),
            system.tiers[tier].name,
            Seconds::new(now),
            Seconds::new(now * (-log).exp())
        );
        // It is known to this, and rates reach back to before.
        Some((log * (1.0 + clear.recip()), what))
    }

    /// For how long requests keep a tier busy, since when, and for how long before.
    fn before_and_since(
        &self,
        system: &System,
        observed: &Observed,
        (tier, change): (usize, Change),
    ) -> String {
        let points = self.points(system, tier);
        let mean = |is_before: bool| {
            let of = points.iter().filter(|one| (one.window < change.window) == is_before);
            Seconds::new(sample::mean(&of.map(|one| one.demand_s).collect::<Vec<f64>>()))
        };
        let since = observed.grid.minute(self.all[change.window].from_s);
        format!("{} since {since}, and for {} before", mean(false), mean(true))
    }

    /// Tiers that are busy enough to be full first: what changes in others decides little.
    fn that_decide(&self, servers: &[Option<u64>]) -> Vec<usize> {
        let used = |(tier, servers): (usize, &Option<u64>)| {
            let busy = self.used().filter_map(|window| window.tiers[tier].busy);
            servers.map_or(0.0, |servers| busy.fold(0.0, f64::max) / exact_f64(servers))
        };
        let used: Vec<f64> = servers.iter().enumerate().map(used).collect();
        let most = used.iter().copied().fold(0.0, f64::max);
        (0..used.len()).filter(|tier| used[*tier] >= DECIDES * most).collect()
    }

    /// The clearest change of any of these tiers that is this large.
    fn change(
        &self,
        system: &System,
        observed: &Observed,
        tiers: &[usize],
        by: f64,
    ) -> Option<(usize, Change)> {
        let of = |tier: usize| {
            let found = changed(&self.points(system, tier), by)?;
            let same_mix = self.moved(system, observed, found.window) <= OTHER_MIX;
            same_mix.then_some((tier, found))
        };
        let all = tiers.iter().copied().filter_map(of);
        all.max_by(|a, b| a.1.clear.total_cmp(&b.1.clear))
    }

    /// What is known of a tier in the windows that are used.
    fn points(&self, system: &System, tier: usize) -> Vec<Point> {
        let all = self.all.iter().enumerate().filter(|(_, window)| window.left_out.is_none());
        let of = |(number, window): (usize, &Window)| {
            let rate_per_s = window.tiers[system.entry].throughput_per_s?;
            let busy = window.tiers[tier].busy.filter(|busy| *busy > 0.0)?;
            Some(Point { window: number, rate_per_s, demand_s: busy / rate_per_s })
        };
        all.filter_map(of).collect()
    }

    /// Share of the entry's requests that are of another class since a window.
    fn moved(&self, system: &System, observed: &Observed, since: usize) -> f64 {
        let rates = |values: &[f64], windows: std::ops::Range<usize>| -> f64 {
            let used = windows.filter(|window| self.all[*window].left_out.is_none());
            used.filter_map(|window| present(values.get(self.steps_of(window))?)).sum()
        };
        let (mut then, mut now) = (Vec::new(), Vec::new());
        for (_, values) in observed.tiers[system.entry].parts(Quantity::Classes) {
            then.push(rates(values, 0..since));
            now.push(rates(values, since..self.all.len()));
        }
        let (all_then, all_now): (f64, f64) = (then.iter().sum(), now.iter().sum());
        let moved =
            then.iter().zip(&now).map(|(then, now)| (then / all_then - now / all_now).abs());
        moved.filter(|moved| moved.is_finite()).sum::<f64>() / 2.0
    }
}

/// A request's time that changes all the time: ln D = middle + slope·(window − at), at one load.
#[derive(Debug, Clone, Copy)]
struct Drift {
    first: usize,
    last: usize,
    at: f64,
    middle: f64,
    slope: f64,
}

impl Drift {
    /// Where a line over the time is clear, large, and explains more than the best of all steps.
    fn of(points: &[Point]) -> Option<Self> {
        let (first, last) = (points.first()?.window, points.last()?.window);
        let times: Vec<f64> = points.iter().map(|one| exact_f64(one.window)).collect();
        let logs: Vec<f64> = points.iter().map(|one| one.demand_s.ln()).collect();
        let rates: Vec<f64> = points.iter().map(|one| one.rate_per_s.ln()).collect();
        // At the same load, since a request may cost more or less where there are many.
        let rest = without(&logs, &rates);
        let explained = |by: &[f64]| {
            let by = without(by, &rates);
            let (square, product) = (dot(&by, &by), dot(&by, &rest));
            (product / square, product * product / square, square)
        };
        let degrees = exact_f64(points.len().checked_sub(FEWEST)?);
        let (slope, line, square) = explained(&times);
        let error = ((dot(&rest, &rest) - line).max(0.0) / degrees / square).sqrt();
        let each = (points.len() / TRIED).max(1);
        let steps = (1..points.len()).step_by(each).map(|from| {
            let step: Vec<f64> =
                (0..points.len()).map(|at| f64::from(u8::from(at >= from))).collect();
            explained(&step).1
        });
        let found =
            Self { first, last, at: sample::mean(&times), middle: sample::mean(&logs), slope };
        let clear = slope.abs() > t_two_sided(CONFIDENCE, degrees.max(1.0)) * error;
        let most = steps.filter(|step| step.is_finite()).fold(0.0, f64::max);
        (clear && line > most && found.whole().abs() > NOTABLE.ln_1p()).then_some(found)
    }

    /// By how much from the first window to the last, as a logarithm.
    fn whole(&self) -> f64 {
        self.slope * (exact_f64(self.last) - exact_f64(self.first))
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// What is left of values beside a line through others, by least squares.
fn without(values: &[f64], others: &[f64]) -> Vec<f64> {
    let center = |values: &[f64]| {
        let mean = sample::mean(values);
        values.iter().map(|value| value - mean).collect::<Vec<f64>>()
    };
    let (values, others) = (center(values), center(others));
    let slope = dot(&values, &others) / dot(&others, &others).max(f64::MIN_POSITIVE);
    values.iter().zip(&others).map(|(value, other)| value - slope * other).collect()
}

/// By how much requests since are longer than a line through those before says, as a logarithm, and how clearly; `None` at loads
/// far from those before.
fn beyond(before: &[Point], since: &[Point]) -> Option<(f64, f64)> {
    let both = |points: &[Point]| {
        points.iter().map(|one| (one.rate_per_s.ln(), one.demand_s.ln())).collect::<Vec<_>>()
    };
    let (before, since) = (both(before), both(since));
    let rates = || before.iter().map(|one| one.0);
    let most = rates().fold(f64::NEG_INFINITY, f64::max) + LITTLE_BEYOND.ln();
    let least = rates().fold(f64::INFINITY, f64::min) - LITTLE_BEYOND.ln();
    let degrees = exact_f64(before.len().checked_sub(2 + FEWEST)?) + exact_f64(FEWEST);
    let line = line(&before, RECENT)?;
    if !since.iter().all(|one| (least..=most).contains(&one.0)) {
        return None;
    }
    let off =
        |points: &[(f64, f64)]| points.iter().map(|(x, y)| y - line.at(*x)).collect::<Vec<_>>();
    let log = sample::mean(&off(&since));
    let spread = (sample::sum_of_squares(&off(&before)) / degrees).sqrt();
    let (few, many) = (exact_f64(since.len()), exact_f64(before.len()));
    let mean =
        |points: &[(f64, f64)]| sample::mean(&points.iter().map(|one| one.0).collect::<Vec<f64>>());
    // The line is known the less the farther from the loads before.
    let squares =
        sample::sum_of_squares(&rates().map(|rate| rate - mean(&before)).collect::<Vec<f64>>());
    let far = (mean(&since) - mean(&before)).powi(2) / squares.max(f64::MIN_POSITIVE);
    let chance = t_two_sided(RECENT, degrees) * spread * (1.0 / few + 2.0 / many + far).sqrt();
    Some((log, log.abs() / chance.max(f64::MIN_POSITIVE)))
}

/// The clearest change between two parts of the time, if there is a clear one that is this large.
fn changed(points: &[Point], by: f64) -> Option<Change> {
    let last = points.len().checked_sub(FEWEST)?;
    let step = (last.saturating_sub(FEWEST) / TRIED).max(1);
    let all = (FEWEST..=last).step_by(step).filter_map(|first| {
        // It may lie within a window, and rates reach back into the one before.
        let (before, since) = (&points[..first - 1], points.get(first + 1..)?);
        let (mean, clear) = apart(before, since)?;
        let is_one = clear > 1.0 && mean.abs() > by.ln_1p();
        is_one.then_some(Change { window: since.first()?.window, log: mean, clear })
    });
    all.max_by(|a, b| a.clear.total_cmp(&b.clear))
}

/// By how much requests since are longer than those before at the same load, as a logarithm, and how clearly. At the same load, since
/// a request may cost more or less where there are many.
fn apart(before: &[Point], since: &[Point]) -> Option<(f64, f64)> {
    let mut sorted = before.to_vec();
    sorted.sort_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
    let beside = |one: &Point| {
        let place = sorted.partition_point(|other| other.rate_per_s < one.rate_per_s);
        let (low, high) = (sorted.get(place.checked_sub(1)?)?, sorted.get(place)?);
        let between = (one.rate_per_s - low.rate_per_s) / (high.rate_per_s - low.rate_per_s);
        let then = low.demand_s + between * (high.demand_s - low.demand_s);
        Some((one.demand_s / then).ln()).filter(|log| log.is_finite())
    };
    let logs: Vec<f64> = since.iter().filter_map(beside).collect();
    if logs.len() < FEWEST {
        return None;
    }
    let mean = sample::mean(&logs);
    let spread = sample::variance(&logs)?.sqrt();
    // Both parts scatter, and the shorter one says least of them.
    let fewer = exact_f64(logs.len().min(before.len()) as u64);
    let chance = t_two_sided(CONFIDENCE, fewer - 1.0) * spread / fewer.sqrt();
    Some((mean, mean.abs() / chance.max(f64::MIN_POSITIVE)))
}
