//! How requests arrive: index of dispersion of counts, hour of the day, distribution of rates.

use kendall_stats::distribution::chi_squared_p_value;
use kendall_stats::estimate::{Estimate, Interval};
use kendall_stats::sample::mean;
use kendall_units::exact_f64;

use crate::fetch::Observed;
use crate::quantity::Quantity;
use crate::system::System;
use kendall_fit::model::CONFIDENCE;

/// Triples of counts that an index needs: its interval is a factor of three wide then.
const FEWEST_TRIPLES: usize = 10;

/// Requests in a triple from which its statistic is near a chi-squared one.
const FEWEST_REQUESTS: f64 = 20.0;

/// Counts over more than this share of a day hold its own curve, not chance.
const LONGEST: f64 = 0.01;

/// Parts of a day.
const HOURS: u64 = 24;

/// Bins of the distribution of rates.
const BINS: usize = 24;

/// How requests of one tier arrive.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrivals {
    /// Mean rate, 1/s.
    pub mean_per_s: f64,
    /// Index of dispersion by time scale, shortest first.
    pub dispersion: Vec<Dispersion>,
    /// Why there is none.
    pub refused: Option<String>,
    /// Hours of the day that were seen.
    pub hours: Vec<Hour>,
    /// Begin of each bin of rates and the share of time in it, 1/s; all of one width.
    pub distribution: Vec<(f64, f64)>,
}

/// Variance over mean of counts: 1 of a Poisson process.
#[derive(Debug, Clone, PartialEq)]
pub struct Dispersion {
    /// Seconds that one count covers.
    pub over_s: f64,
    pub index: Estimate,
    /// Independent triples of counts that it rests on.
    pub triples: usize,
}

/// One hour of the day.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hour {
    /// From 0 to 23.
    pub hour: u64,
    /// Mean rate over all days, 1/s.
    pub mean_per_s: f64,
    /// Lowest mean of one day.
    pub low_per_s: f64,
    /// Highest mean of one day.
    pub high_per_s: f64,
    /// Days that were seen.
    pub days: usize,
}

impl Dispersion {
    /// What it says, as far as counts say it.
    pub fn verdict(&self) -> &'static str {
        match self.index.interval {
            Some(interval) if interval.low > 1.0 => "burstier than Poisson",
            Some(interval) if interval.high < 1.0 => "more even than Poisson",
            _ => "as Poisson",
        }
    }
}

/// Arrivals of a tier; `None` where nothing says its load.
pub fn arrivals(system: &System, observed: &Observed, tier: usize) -> Option<Arrivals> {
    let series = &observed.tiers[tier].series;
    let rates = series.get(&Quantity::Arrivals).or_else(|| series.get(&Quantity::Throughput))?;
    let there: Vec<f64> = rates.iter().copied().filter(|rate| rate.is_finite()).collect();
    if there.is_empty() {
        return None;
    }
    let (dispersion, refused) = match dispersion(system, rates) {
        Ok(found) => (found, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    Some(Arrivals {
        mean_per_s: mean(&there),
        dispersion,
        refused,
        hours: hours(system, observed, rates),
        distribution: distribution(&there),
    })
}

/// Second differences of neighboring counts: a load that drifts evenly cancels.
///
/// (a − 2b + c)²/(a + 4b + c) of a Poisson process is chi-squared with one degree of freedom, and I
/// times that where the variance is I times the mean. A rate over a window of n scrapes is what
/// lies between its first and its last sample, stretched: it counts n − 1 intervals.
pub(crate) fn dispersion(system: &System, rates: &[f64]) -> Result<Vec<Dispersion>, String> {
    let apart = usize::try_from(system.window_s.div_ceil(system.step_s)).unwrap_or(1);
    let covered_s = exact_f64(system.window_s - system.scrape_s);
    if covered_s <= 0.0 {
        return Err("rates are over one scrape: nothing is known between its samples".to_owned());
    }
    let counts: Vec<f64> = rates.iter().step_by(apart).map(|rate| rate * covered_s).collect();
    let longest_s = LONGEST * exact_f64(system.day_s);
    let mut found = Vec::new();
    let mut together = 1_usize;
    loop {
        let over_s = covered_s * exact_f64(together as u64);
        if together > 1 && over_s > longest_s {
            break;
        }
        let sums: Vec<f64> =
            counts.chunks_exact(together).map(|chunk| chunk.iter().sum()).collect();
        let squares: Vec<f64> = sums
            .chunks_exact(3)
            .filter(|three| three.iter().sum::<f64>() >= FEWEST_REQUESTS)
            .map(|three| {
                let bend = three[0] - 2.0 * three[1] + three[2];
                bend * bend / (three[0] + 4.0 * three[1] + three[2])
            })
            .collect();
        if squares.len() < FEWEST_TRIPLES {
            break;
        }
        let degrees = exact_f64(squares.len() as u64);
        let index = mean(&squares);
        let tail = (1.0 - CONFIDENCE) / 2.0;
        let interval = Interval {
            low: index * degrees / chi_squared(1.0 - tail, degrees),
            high: index * degrees / chi_squared(tail, degrees),
            confidence: CONFIDENCE,
        };
        let index = Estimate::with_interval(index, interval);
        found.push(Dispersion { over_s, index, triples: squares.len() });
        together *= 2;
    }
    if found.is_empty() {
        return Err(format!(
            "fewer than {FEWEST_TRIPLES} times three counts in a row with {FEWEST_REQUESTS:.0} \
             requests: analyze a longer time"
        ));
    }
    Ok(found)
}

/// The value below which a chi-squared variable lies with a probability, by bisection.
fn chi_squared(probability: f64, degrees: f64) -> f64 {
    let (mut low, mut high) = (0.0, degrees + 20.0 * degrees.sqrt() + 40.0);
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if 1.0 - chi_squared_p_value(middle, degrees) < probability {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

fn hours(system: &System, observed: &Observed, rates: &[f64]) -> Vec<Hour> {
    let hour_s = (system.day_s / HOURS).max(1);
    let mut parts: std::collections::BTreeMap<(u64, u64), Vec<f64>> =
        std::collections::BTreeMap::new();
    for (index, rate) in (0_u64..).zip(rates) {
        let at_s = observed.grid.from_s + index * observed.grid.step_s;
        // A rate is of the time before its moment.
        let Some(since) = at_s.checked_sub(system.midnight_s + 1) else { continue };
        let hour = (since % system.day_s / hour_s).min(HOURS - 1);
        if rate.is_finite() {
            parts.entry((hour, since / system.day_s)).or_default().push(*rate);
        }
    }
    // Half an hour at an end of the time is not that hour.
    let enough = 0.75 * exact_f64(hour_s) / exact_f64(observed.grid.step_s);
    (0..HOURS)
        .filter_map(|hour| {
            let days: Vec<f64> = parts
                .range((hour, 0)..(hour + 1, 0))
                .filter(|(_, values)| exact_f64(values.len() as u64) >= enough)
                .map(|(_, values)| mean(values))
                .collect();
            (!days.is_empty()).then(|| Hour {
                hour,
                mean_per_s: mean(&days),
                low_per_s: days.iter().copied().fold(f64::INFINITY, f64::min),
                high_per_s: days.iter().copied().fold(0.0, f64::max),
                days: days.len(),
            })
        })
        .collect()
}

fn distribution(rates: &[f64]) -> Vec<(f64, f64)> {
    let highest = rates.iter().copied().fold(0.0, f64::max);
    if highest <= 0.0 {
        return Vec::new();
    }
    let bins = exact_f64(BINS as u64);
    let width = highest / bins;
    let mut counts = [0_u64; BINS];
    for rate in rates {
        let bin = usize::try_from(kendall_units::whole_u64(rate / width)).unwrap_or(0);
        counts[bin.min(BINS - 1)] += 1;
    }
    let all = exact_f64(rates.len() as u64);
    (0_u64..)
        .zip(counts)
        .map(|(bin, count)| (exact_f64(bin) * width, exact_f64(count) / all))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::TierSeries;
    use crate::{Grid, Source as _, samples::Samples};
    use rand::{RngExt as _, SeedableRng as _};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Requests in batches of `batch` by a Poisson process, scraped each 5 s for 4 hours of a day
    /// whose load doubles meanwhile; what a server makes of them by its rates.
    fn found(batch: u32, seed: u64) -> Arrivals {
        let system = System::parse(
            "name = 'x'\nentry = 'a'\nstep = '5s'\nscrape = '5s'\n[tiers.a]\nservers = 1\n\
             queries.throughput = 'rate(x[{window}])'",
        )
        .unwrap();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut samples = Samples::default();
        let (mut count, mut next_s) = (0_u32, 0.0_f64);
        for scrape in 0..2_880_u32 {
            let at_s = f64::from(scrape) * 5.0 + 0.5;
            while next_s < at_s {
                count += batch;
                let rate = 20.0 * (1.0 + next_s / 14_400.0) / f64::from(batch);
                let uniform: f64 = random.random();
                next_s -= (1.0 - uniform).ln() / rate;
            }
            samples.push([("__name__".into(), "x".into())].into(), at_s, f64::from(count));
        }
        let grid = Grid::new(20, 14_395, 5).unwrap();
        let query = &system.tiers[0].queries[&Quantity::Throughput];
        let values = samples.range(query, &grid).unwrap().remove(0).values;
        let series = [(Quantity::Throughput, values)].into();
        let tier = TierSeries { series, ..TierSeries::default() };
        arrivals(&system, &Observed { grid, tiers: vec![tier] }, 0).unwrap()
    }

    /// Batches of b make counts whose variance is b times their mean.
    #[test]
    fn the_index_of_dispersion_is_that_of_the_stream() {
        for (batch, seed) in [(1, 1), (1, 2), (4, 3)] {
            let arrivals = found(batch, seed);
            let first = &arrivals.dispersion[0];
            let (index, triples) = (first.index.center, exact_f64(first.triples as u64));
            // Standard error of a mean of chi-squared variables: √(2/K).
            let allowed = 3.5 * (2.0 / triples).sqrt() * f64::from(batch);
            assert!((index - f64::from(batch)).abs() < allowed, "{batch}: {first:?}");
            let expected = if batch == 1 { "as Poisson" } else { "burstier than Poisson" };
            assert_eq!(first.verdict(), expected, "{first:?}");
            assert!((first.over_s - 15.0).abs() < 1e-9);
        }
    }

    #[test]
    fn intervals_of_the_index_hold_the_truth_as_often_as_they_say() {
        let held = (0..60).filter(|seed| {
            let first = &found(1, 100 + seed).dispersion[0];
            first.index.interval.unwrap().contains(1.0)
        });
        // 95 % of 60 give or take three standard errors of 1.7.
        assert!(held.count() >= 52);
    }

    #[test]
    fn hours_of_the_day_and_shares_of_time_add_up() {
        let arrivals = found(1, 7);
        assert_eq!(arrivals.hours.iter().map(|hour| hour.hour).collect::<Vec<_>>(), [0, 1, 2, 3]);
        let rising = arrivals.hours.windows(2).all(|pair| pair[0].mean_per_s < pair[1].mean_per_s);
        assert!(rising, "{:?}", arrivals.hours);
        let all: f64 = arrivals.distribution.iter().map(|(_, share)| share).sum();
        assert!((all - 1.0).abs() < 1e-9);
        assert!((arrivals.mean_per_s - 30.0).abs() < 1.0, "{}", arrivals.mean_per_s);
    }

    #[test]
    fn the_chi_squared_quantile_is_the_tables() {
        // Published to three digits.
        assert!((chi_squared(0.95, 10.0) - 18.307).abs() < 1e-3);
        assert!((chi_squared(0.025, 30.0) - 16.791).abs() < 1e-3);
    }
}
