//! `--fail-if`: what a load is to fail for.

use kendall_observations::{Condition, Holds, Metric};
use kendall_protocols::load_result::LoadResult;
use kendall_stats::estimate::Estimate;
use kendall_stats::within_run::WithinRun;
use serde_json::{Value, json};

use super::summary::Summary;
use crate::paint::Paint;

/// One condition and how it stands.
#[derive(Debug)]
pub(super) struct Check<'a> {
    condition: &'a Condition,
    value: Option<Estimate>,
}

/// All conditions, by what a load measured; `run` has the intervals of one that has any.
pub(super) fn all<'a>(
    conditions: &'a [Condition],
    result: &LoadResult,
    run: Option<&WithinRun>,
) -> anyhow::Result<Vec<Check<'a>>> {
    let whole = Summary::of(result)?;
    let mut checks = Vec::new();
    for condition in conditions {
        let of_run = run.and_then(|run| match condition.metric {
            Metric::Errors => None,
            Metric::Throughput => Some(&run.throughput_per_s),
            Metric::Mean => run.response_time_mean_s.as_ref(),
            Metric::Quantile(quantile) => {
                let mut all = run.response_time_quantiles_s.iter();
                all.find(|one| one.quantile.total_cmp(&quantile).is_eq()).map(|one| &one.value_s)
            }
        });
        let value = match of_run {
            Some(estimate) => Some(estimate.clone()),
            None => whole.value(condition.metric).map(Estimate::exact),
        };
        checks.push(Check { condition, value });
    }
    Ok(checks)
}

impl Check<'_> {
    pub(super) fn holds(&self) -> Holds {
        self.condition.holds(self.value.as_ref())
    }

    pub(super) fn told(&self, paint: Paint) -> String {
        paint.condition(&self.condition.told(self.value.as_ref()), self.holds())
    }

    pub(super) fn json(&self) -> Value {
        let interval = self.value.as_ref().and_then(|value| value.interval);
        json!({
            "fail_if": self.condition.text,
            "value": self.value.as_ref().map(|value| value.center),
            "low": interval.map(|interval| interval.low),
            "high": interval.map(|interval| interval.high),
            "verdict": self.holds().name(),
        })
    }
}
