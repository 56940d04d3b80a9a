//! How the load grows from day to day, and when a tier saturates at that.

use kendall_stats::distribution::t_two_sided;
use kendall_stats::estimate::{Estimate, Interval};
use kendall_stats::sample::mean;
use kendall_units::exact_f64;
use rand::SeedableRng as _;
use rand_distr::{ChiSquared, Distribution as _, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::grid::Grid;
use crate::system::System;
use kendall_fit::model::{CONFIDENCE, NORMAL};

/// Whole days that a growth needs: two coefficients, and an error that two of them do not decide.
const FEWEST_DAYS: usize = 5;

/// From so many days on each weekday is compared with itself.
const TWO_WEEKS: usize = 14;

/// Parts of a day among which the busiest is searched: hours, where a day is one of 24 hours.
const HOURS: u64 = 24;

/// Share of the steps of an hour that must be there.
const PRESENT: f64 = 0.75;

/// Draws of capacity and growth together.
const DRAWS: usize = 4_000;

/// Growth of the busiest hour of a day.
#[derive(Debug, Clone, PartialEq)]
pub struct Growth {
    /// By how much the load of the busiest hour grows in a day, 1/s.
    pub per_day_per_s: Estimate,
    /// The load of the busiest hour by now, on its trend, 1/s: of the busiest weekday where each weekday has its own line.
    pub peak_per_s: f64,
    /// Whole days that it rests on.
    pub days: usize,
    /// Each weekday is compared with itself.
    pub weekdays: bool,
    trend: Trend,
}

/// When a tier saturates.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Saturation {
    /// Days from the end of the last whole day; `None` where the growth is not significant.
    pub days: Option<f64>,
    /// Not before, with the probability of all intervals here.
    pub earliest_days: f64,
    /// Not after; `None` where within the uncertainty it never does.
    pub latest_days: Option<f64>,
}

/// A line through days, one intercept a group.
#[derive(Debug, Clone, PartialEq)]
struct Trend {
    slope: f64,
    /// Variance of the residuals.
    variance: f64,
    degrees: f64,
    /// Σ(x − x̄ of its group)².
    spread: f64,
    groups: Vec<Group>,
    last_day: f64,
}

#[derive(Debug, Clone, PartialEq)]
struct Group {
    day: f64,
    peak: f64,
    count: f64,
}

/// Growth of a load on a grid.
///
/// A day's busiest hour is what saturates a tier, not its mean. Least squares through the busiest
/// hours of whole days; from two weeks on with one intercept a weekday, so that a Sunday at an end of the time
/// is not a decline.
///
/// # Errors
/// In words, when there are too few whole days.
pub fn growth(system: &System, grid: &Grid, rates_per_s: &[f64]) -> Result<Growth, String> {
    let peaks = peaks(system, grid, rates_per_s);
    if peaks.len() < FEWEST_DAYS {
        return Err(format!(
            "the time has {}, growth needs {FEWEST_DAYS}: go further back",
            kendall_units::counted(peaks.len(), "whole day")
        ));
    }
    let weekdays = peaks.len() >= TWO_WEEKS;
    let trend = Trend::through(&peaks, if weekdays { 7 } else { 1 });
    let error = (trend.variance / trend.spread).sqrt();
    let half = t_two_sided(CONFIDENCE, trend.degrees) * error;
    let per_day =
        Estimate::with_interval(trend.slope, Interval::around(trend.slope, half, CONFIDENCE));
    let highest = trend.groups.iter().map(|group| trend.now(group, trend.slope));
    let peak_per_s = highest.fold(0.0, f64::max);
    Ok(Growth { per_day_per_s: per_day, peak_per_s, days: peaks.len(), weekdays, trend })
}

/// Number of each whole day and the load of its busiest hour.
fn peaks(system: &System, grid: &Grid, rates_per_s: &[f64]) -> Vec<(u64, f64)> {
    let hour_s = (system.day_s / HOURS).max(grid.step_s);
    let hours = system.day_s / hour_s;
    let mut days: std::collections::BTreeMap<u64, Vec<Vec<f64>>> =
        std::collections::BTreeMap::new();
    for (index, rate) in (0_u64..).zip(rates_per_s) {
        // Rates are over the time before their moment.
        let Some(since) = (grid.from_s + index * grid.step_s).checked_sub(system.midnight_s + 1)
        else {
            continue;
        };
        let hour = usize::try_from(since % system.day_s / hour_s).unwrap_or(0);
        let day = days.entry(since / system.day_s).or_insert_with(|| vec![Vec::new(); 25]);
        if rate.is_finite() && hour < day.len() {
            day[hour].push(*rate);
        }
    }
    let enough = PRESENT * exact_f64(hour_s) / exact_f64(grid.step_s);
    // A day that is not over, or was under way at the beginning, may have its busiest hour outside.
    let whole = |day: &u64| {
        let begin_s = system.midnight_s + day * system.day_s;
        grid.from_s <= begin_s + grid.step_s && begin_s + system.day_s < grid.to_s() + grid.step_s
    };
    days.into_iter()
        .filter(|(day, _)| whole(day))
        .filter_map(|(day, parts)| {
            let whole: Vec<f64> = parts
                .iter()
                .filter(|part| !part.is_empty() && exact_f64(part.len() as u64) >= enough)
                .map(|part| mean(part))
                .collect();
            let seen = exact_f64(whole.len() as u64) >= PRESENT * exact_f64(hours);
            seen.then(|| (day, whole.into_iter().fold(0.0, f64::max)))
        })
        .collect()
}

impl Trend {
    fn through(peaks: &[(u64, f64)], groups: u64) -> Self {
        let first = peaks.first().map_or(0, |(day, _)| *day);
        let points: Vec<(u64, f64, f64)> =
            peaks.iter().map(|(day, peak)| (day % groups, exact_f64(day - first), *peak)).collect();
        let (mut spread, mut product) = (0.0, 0.0);
        let mut found = Vec::new();
        for group in 0..groups {
            let own = || points.iter().filter(|point| point.0 == group);
            let count = exact_f64(own().count() as u64);
            if count == 0.0 {
                continue;
            }
            let day = own().map(|point| point.1).sum::<f64>() / count;
            let peak = own().map(|point| point.2).sum::<f64>() / count;
            spread += own().map(|point| (point.1 - day).powi(2)).sum::<f64>();
            product += own().map(|point| (point.1 - day) * (point.2 - peak)).sum::<f64>();
            found.push((group, Group { day, peak, count }));
        }
        let slope = product / spread;
        let residual: f64 = found
            .iter()
            .flat_map(|(group, at)| {
                let own = points.iter().filter(|point| point.0 == *group);
                own.map(|point| (point.2 - at.peak - slope * (point.1 - at.day)).powi(2))
            })
            .sum();
        let degrees = exact_f64((points.len() - found.len() - 1) as u64);
        Self {
            slope,
            variance: residual / degrees,
            degrees,
            spread,
            groups: found.into_iter().map(|(_, group)| group).collect(),
            last_day: points.last().map_or(0.0, |point| point.1),
        }
    }

    fn now(&self, group: &Group, slope: f64) -> f64 {
        group.peak + slope * (self.last_day - group.day)
    }
}

impl Growth {
    /// When the busiest hour reaches a capacity.
    ///
    /// Capacity, trend and slope are drawn from their errors; the slope's and the trend's hang
    /// together, as in the fit. A straight line is all that so few days carry: growth that
    /// accelerates gets there earlier.
    pub fn reaches(&self, capacity_per_s: &Estimate, seed: u64) -> Saturation {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let trend = &self.trend;
        let error = capacity_per_s.interval.map_or(0.0, |one| (one.high - one.low) / 2.0 / NORMAL);
        let chi = ChiSquared::new(trend.degrees).ok();
        let mut days: Vec<f64> = (0..DRAWS)
            .map(|_| {
                let mut normal = || -> f64 { StandardNormal.sample(&mut random) };
                let (z, y) = (normal(), normal());
                let shifts: Vec<f64> = trend.groups.iter().map(|_| normal()).collect();
                let scale = chi.as_ref().map_or(1.0, |chi| trend.degrees / chi.sample(&mut random));
                let sigma = (trend.variance * scale).sqrt();
                let slope = trend.slope + z * sigma / trend.spread.sqrt();
                let peak = trend
                    .groups
                    .iter()
                    .zip(shifts)
                    .map(|(group, shift)| {
                        trend.now(group, slope) + shift * sigma / group.count.sqrt()
                    })
                    .fold(0.0, f64::max);
                let left = capacity_per_s.center + y * error - peak;
                if left <= 0.0 {
                    0.0
                } else if slope > 0.0 {
                    left / slope
                } else {
                    f64::INFINITY
                }
            })
            .collect();
        days.sort_by(f64::total_cmp);
        let tail = (1.0 - CONFIDENCE) / 2.0;
        let at = |quantile: f64| {
            let place = kendall_units::whole_u64(quantile * exact_f64(DRAWS as u64 - 1));
            days[usize::try_from(place).unwrap_or(0)]
        };
        let told = self.per_day_per_s.interval.is_some_and(|interval| interval.low > 0.0);
        let left = capacity_per_s.center - self.peak_per_s;
        Saturation {
            days: (told || left <= 0.0).then(|| left.max(0.0) / trend.slope.max(f64::MIN_POSITIVE)),
            earliest_days: at(tail),
            latest_days: Some(at(1.0 - tail)).filter(|days| days.is_finite()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: u64 = 86_400;

    fn system() -> System {
        System::parse("name = 'x'\nentry = 'a'\n[tiers.a]\nservers = 1\nqueries.throughput = 'x'")
            .unwrap()
    }

    /// Hourly rates of `days` days: a bell a day, weekends at a third, its height growing by
    /// `growth` a day, with `noise` of a standard error of the height.
    fn rates(days: u64, growth: f64, noise: f64, seed: u64) -> (Grid, Vec<f64>) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let grid = Grid::new(3_600, days * DAY_S, 3_600).unwrap();
        let mut height = 0.0;
        let rates = (1..=days * 24)
            .map(|hour| {
                let (day, of_day) = ((hour - 1) / 24, exact_f64((hour - 1) % 24));
                if of_day == 0.0 {
                    let z: f64 = StandardNormal.sample(&mut random);
                    height = 100.0 + growth * exact_f64(day) + noise * z;
                }
                let weekend = if day % 7 >= 5 { 1.0 / 3.0 } else { 1.0 };
                height * weekend * (0.2 + 0.8 * (-((of_day - 14.0) / 3.0).powi(2)).exp())
            })
            .collect();
        (grid, rates)
    }

    /// Growth of 2/s a day from 100/s reaches 210/s 28 days after the 27th day's 154/s.
    #[test]
    fn weekdays_are_compared_with_themselves() {
        let (grid, rates) = rates(28, 2.0, 0.0, 1);
        let growth = growth(&system(), &grid, &rates).unwrap();
        assert!(growth.weekdays && growth.days == 28);
        // Weekends grow by a third of it: 5/7·2 + 2/7·2/3.
        let expected = 2.0 * (5.0 + 2.0 / 3.0) / 7.0;
        assert!((growth.per_day_per_s.center - expected).abs() < 1e-9, "{growth:?}");
        let saturation = growth.reaches(&Estimate::exact(210.0), 3);
        let days = saturation.days.unwrap();
        assert!(saturation.earliest_days <= days && days <= saturation.latest_days.unwrap());
        assert!((days - 56.0 / expected).abs() < 3.0, "{saturation:?}");
    }

    /// Five working days are not a week: their trend is a line, and called one.
    #[test]
    fn intervals_of_the_date_hold_the_truth_as_often_as_they_say() {
        let mut held = 0;
        let seeds = 200;
        for seed in 0..seeds {
            let (grid, all) = rates(5, 4.0, 2.0, seed);
            let growth = growth(&system(), &grid, &all).unwrap();
            // 116/s on the last day, 4/s a day: 150/s after 8.5 days.
            let saturation = growth.reaches(&Estimate::exact(150.0), seed);
            let above = saturation.earliest_days <= 8.5;
            let below = saturation.latest_days.is_none_or(|latest| latest >= 8.5);
            held += u32::from(above && below);
        }
        // 95 % of 200 give or take three standard errors of 3.1.
        assert!((181..=199).contains(&held), "{held}");
    }

    #[test]
    fn growth_that_is_not_told_from_none_gives_no_date() {
        let (grid, rates) = rates(5, 0.0, 3.0, 4);
        let growth = growth(&system(), &grid, &rates).unwrap();
        let saturation = growth.reaches(&Estimate::exact(150.0), 4);
        assert_eq!((saturation.days, saturation.latest_days), (None, None), "{growth:?}");
        assert!(saturation.earliest_days > 1.0, "{saturation:?}");
    }

    /// Seen from 5:00 of the first day until 19:00 of the last: their busiest hours at 21:00 are not in it.
    #[test]
    fn a_day_that_is_not_over_is_no_whole_day() {
        let rates: Vec<f64> = (6..=9 * 24 - 5)
            .map(|hour: u64| {
                let of_day = exact_f64((hour - 1) % 24);
                100.0 + exact_f64(hour / 24) + 80.0 * (-((of_day - 21.0) / 2.0).powi(2)).exp()
            })
            .collect();
        let grid = Grid::new(6 * 3_600, (9 * 24 - 5) * 3_600, 3_600).unwrap();
        let growth = growth(&system(), &grid, &rates).unwrap();
        assert_eq!(growth.days, 7);
        assert!((growth.per_day_per_s.center - 1.0).abs() < 1e-9, "{growth:?}");
    }

    #[test]
    fn days_with_holes_are_no_whole_days() {
        let (grid, mut rates) = rates(6, 1.0, 0.0, 5);
        rates[30..40].fill(f64::NAN);
        rates[60..70].fill(f64::NAN);
        let error = growth(&system(), &grid, &rates).unwrap_err();
        assert!(error.starts_with("the time has 4 whole days"), "{error}");
    }
}
