//! Response variables by which configurations of several studies are compared.

use kendall_protocols::topology::Role;
use kendall_stats::compare::Quantity;
use kendall_stats::estimate::{Caveat, Estimate, percent};
use kendall_stats::sample::{enough_for, needed_for};

use crate::{Configuration, Repetition};

/// A response variable of a run, and of a configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Variable {
    Throughput,
    ResponseTimeMean,
    /// A quantile of the response time, from 0 to 1.
    ResponseTimePercentile(f64),
    /// CPU time of all tiers for a request, which other programs on the machine hardly change.
    CpuTime,
}

impl Variable {
    /// Its name with the unit: requests per second, or seconds.
    pub fn name(self) -> String {
        match self {
            Self::Throughput => "throughput_per_s".to_owned(),
            Self::ResponseTimeMean => "response_time_mean_s".to_owned(),
            Self::ResponseTimePercentile(quantile) => {
                format!("response_time_p{}_s", percent(quantile))
            }
            Self::CpuTime => "cpu_time_per_request_s".to_owned(),
        }
    }

    pub fn quantity(self) -> Quantity {
        match self {
            Self::Throughput => Quantity::Rate,
            Self::ResponseTimeMean | Self::ResponseTimePercentile(_) | Self::CpuTime => {
                Quantity::Time
            }
        }
    }

    /// The estimate over all runs: the number that is shown everywhere.
    pub fn estimate(self, configuration: &Configuration) -> Result<Estimate, Caveat> {
        let none = || Caveat::Note { text: format!("no run has a {}", self.name()) };
        match self {
            Self::Throughput => configuration.throughput_estimate().ok_or_else(none),
            Self::ResponseTimeMean => configuration.response_estimate().ok_or_else(none),
            Self::ResponseTimePercentile(quantile) => configuration.percentile_estimate(quantile),
            Self::CpuTime => configuration.estimate(cpu_time_s).ok_or_else(none),
        }
    }

    /// The value of one run, as an observation among others.
    ///
    /// # Errors
    /// Why there is none. Of a percentile: [`Caveat::TooFewSamples`]. Runs must not be left out for
    /// it one by one: slow runs answer fewer requests, so that would select by the outcome.
    pub fn of_run(self, repetition: &Repetition) -> Result<f64, Caveat> {
        let client = &repetition.point.client;
        match self {
            Self::Throughput => Ok(client.throughput_per_s),
            Self::ResponseTimeMean if repetition.answered > 0 => Ok(client.response_time_s),
            Self::ResponseTimeMean => {
                Err(Caveat::Note { text: format!("run {} answered nothing", repetition.run.id.0) })
            }
            Self::ResponseTimePercentile(quantile) => {
                enough_for(quantile, repetition.answered)?;
                repetition.quantile_s(quantile).ok_or_else(|| Caveat::TooFewSamples {
                    quantile,
                    effective: 0.0,
                    need: needed_for(quantile),
                })
            }
            Self::CpuTime => cpu_time_s(repetition).ok_or_else(|| Caveat::Note {
                text: format!("run {} has no CPU time of tiers", repetition.run.id.0),
            }),
        }
    }
}

/// `None` where no tier's processes are seen, or nothing was answered.
fn cpu_time_s(repetition: &Repetition) -> Option<f64> {
    let point = &repetition.point;
    let tiers = point.processes.iter().filter(|process| process.part.role == Role::Tier);
    let cores: f64 = tiers.map(|tier| tier.cpu_cores - tier.spun_cores).sum();
    let time_s = cores / point.client.throughput_per_s;
    (time_s.is_finite() && time_s > 0.0).then_some(time_s)
}
