//! How uneven gaps between requests and their service times are, as the monitoring says it: what M/G/m and
//! G/G/m know beyond M/M/m.
//!
//! Gaps: the index of dispersion of counts, which for independent gaps is c_a² over times that are long
//! beside a gap. Service times: the spread that the bins of the response time allow in windows in which
//! requests hardly waited, so that a response is a service.

use kendall_stats::estimate::Estimate;

use super::monitored::{Monitored, Monitoring, Window};
use super::residence::{NOTABLE_WAITING, stay};
use crate::model::{NORMAL, Number};

/// Windows without waiting that the spread of service times needs.
const FEWEST: usize = 2;

/// Standard error of a number that lies anywhere between two bounds, over their distance.
const OF_EVEN: f64 = 0.288_675_134_594_812_9;

/// Measured variabilities of one tier.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Variability {
    /// c_a²; the reason where it is not known.
    pub gaps: Result<Estimate, String>,
    /// Between which c_s² lies; the reason where it is not known.
    pub service: Result<(f64, f64), String>,
}

impl Variability {
    /// Of a tier that calls no other, in the windows that a network is fitted to.
    pub(crate) fn measure(
        monitored: &Monitored,
        monitoring: &dyn Monitoring,
        (seen, index): (&[Window], usize),
        service_s: f64,
    ) -> Self {
        let gaps = match seen.last() {
            Some(last) => monitoring.gaps(index, last.number),
            None => Err("no window is used".to_owned()),
        };
        Self { gaps, service: spread(monitored, monitoring, (seen, index), service_s) }
    }

    /// What it lacks, in words.
    pub(crate) fn lacks(&self) -> &str {
        let service = self.service.as_ref().err();
        service.or(self.gaps.as_ref().err()).map_or("nothing", String::as_str)
    }

    /// (1 + c_s²)/2 of M/G/m; `None` without c_s².
    pub fn poisson_factor(&self) -> Option<Number> {
        let (least, most) = *self.service.as_ref().ok()?;
        Some(Number {
            value: (1.0 + f64::midpoint(least, most)) / 2.0,
            standard_error: (most - least) * OF_EVEN / 2.0,
        })
    }

    /// (c_a² + c_s²)/2 of G/G/m; `None` where one of the two is not known.
    pub fn factor(&self) -> Option<Number> {
        let poisson = self.poisson_factor()?;
        let gaps = self.gaps.as_ref().ok()?;
        let interval = gaps.interval?;
        let error = (interval.high - interval.low) / (2.0 * NORMAL) / 2.0;
        Some(Number {
            value: poisson.value + (gaps.center - 1.0) / 2.0,
            standard_error: poisson.standard_error.hypot(error),
        })
    }
}

/// Between which c_s² lies.
fn spread(
    monitored: &Monitored,
    monitoring: &dyn Monitoring,
    (seen, index): (&[Window], usize),
    service_s: f64,
) -> Result<(f64, f64), String> {
    if !monitoring.has_bins(index) {
        return Err("no query gives `buckets`".to_owned());
    }
    let hardly_waits = |window: &Window| {
        let found = stay(monitored, window, index, service_s)?;
        let means = &window.tiers[index];
        let short = found.modelled_s <= NOTABLE_WAITING * service_s;
        short.then_some((window.number, means.throughput_per_s?, means.response_time_s?))
    };
    let quiet: Vec<(usize, f64, f64)> = seen.iter().filter_map(hardly_waits).collect();
    if quiet.len() < FEWEST {
        return Err(format!(
            "in {} of its windows requests hardly waited (less than {:.0} % of a service); {FEWEST} are \
             needed to see service times alone",
            quiet.len(),
            NOTABLE_WAITING * 100.0
        ));
    }
    let weights: f64 = quiet.iter().map(|(_, rate, _)| rate).sum();
    let mean_s = quiet.iter().map(|(_, rate, time)| rate * time).sum::<f64>() / weights;
    let windows: Vec<usize> = quiet.iter().map(|(number, ..)| *number).collect();
    let (least, most) = monitoring.mean_square(index, &windows, mean_s).ok_or_else(|| {
        "its bins do not bound the spread: some requests took longer than the last bound, or the mean \
         response time is not of the same requests"
            .to_owned()
    })?;
    let of = |square: f64| (square / (mean_s * mean_s) - 1.0).max(0.0);
    Ok((of(least), of(most)))
}
