//! `fail_if` of a study: what it is to fail for, over all repetitions of each configuration.

use kendall_observations::{Condition, Configuration, Holds, Metric, Observations};
use kendall_stats::estimate::Estimate;
use kendall_store::{Results, StoreError};
use kendall_study::StudyFile;
use kendall_units::ratio;
use serde::Serialize;

use crate::paint::Paint;

/// One condition, of one configuration.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    configuration: String,
    fail_if: String,
    value: Option<Estimate>,
    verdict: &'static str,
    #[serde(skip)]
    holds: Holds,
    #[serde(skip)]
    told: String,
}

/// Every condition of every configuration that has usable runs.
pub(super) fn all(study: &StudyFile, results: &Results) -> Result<Vec<Check>, StoreError> {
    if study.fail_if.is_empty() {
        return Ok(Vec::new());
    }
    let quantiles = study.fail_if.iter().filter_map(|condition| condition.metric.quantile());
    let observations = Observations::read_with(results, &quantiles.collect::<Vec<_>>())?;
    let of = |configuration: &Configuration| {
        study.fail_if.iter().map(|condition| check(configuration, condition)).collect::<Vec<_>>()
    };
    Ok(observations.configurations.iter().flat_map(of).collect())
}

fn check(configuration: &Configuration, condition: &Condition) -> Check {
    let value = value(configuration, condition.metric);
    let levels = configuration.levels.iter();
    let levels = levels
        .map(|level| format!("{}={}", kendall_observations::short(&level.factor), level.text))
        .collect::<Vec<_>>()
        .join(" ");
    let holds = condition.holds(value.as_ref());
    let told = condition.told(value.as_ref());
    let told = if levels.is_empty() { told } else { format!("{levels}: {told}") };
    let verdict = holds.name();
    Check { configuration: levels, fail_if: condition.text.clone(), value, verdict, holds, told }
}

fn value(configuration: &Configuration, metric: Metric) -> Option<Estimate> {
    match metric {
        Metric::Mean => configuration.response_estimate(),
        Metric::Quantile(quantile) => configuration.percentile_estimate(quantile).ok(),
        Metric::Throughput => configuration.throughput_estimate(),
        Metric::Errors => {
            let counts = configuration.repetitions.iter().map(|one| &one.counts);
            let (failed, ended) = counts.fold((0, 0), |(failed, ended), counts| {
                (failed + counts.errors, ended + counts.errors + counts.completed)
            });
            ratio(failed, ended).map(Estimate::exact)
        }
    }
}

impl Check {
    pub(super) fn fails(&self) -> bool {
        self.holds.fails()
    }

    pub(super) fn told(&self, paint: Paint) -> String {
        paint.condition(&self.told, self.holds)
    }
}
