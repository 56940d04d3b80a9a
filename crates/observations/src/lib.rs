//! The one place where stored rows become observations: configurations with their repetitions, the
//! load curves that they form, operating points over the whole graph of tiers, and estimates with
//! their intervals.
//!
//! Each number is made here once, and is the same in the terminal, the report, its CSV and JSON,
//! in `compare` and in `predict`:
//!
//! - **throughput**: the mean over runs of requests completed a second;
//! - **mean and percentiles of a time**: of the merged histogram of all runs, so of all requests;
//! - **interval**: over runs, on the logarithm ([`kendall_stats::sample::positive_interval`]), or
//!   refused with a caveat where the runs differ too much to carry one.
//!
//! Start at [`Observations::read`]. What it leaves out: judging (which curve saturates, what
//! limits, whether a model holds), which is `predict`'s, and showing, which is the report's.

mod alone;
mod calibration;
mod compared;
mod condition;
mod configuration;
mod curve;
mod distribution;
mod objective;
mod point;
mod published;
mod repetition;
mod trace;

use kendall_store::{Results, Run, SearchLine, Status, StoreError, Study};

pub use calibration::{calibration, run_facts, study_run};
pub use compared::Variable;
pub use condition::{Condition, Holds, Metric};
pub use configuration::{Configuration, Pooled};
pub use curve::{Curve, Factor, LoadFactor, name_of_levels, short};
pub use distribution::{Distribution, PERCENTILES, STEP_NS};
pub use objective::Objective;
pub use point::of as operating_point;
pub use published::{
    Published, PublishedCurve, PublishedEffect, PublishedKnee, Quantity as PublishedQuantity,
};
pub use repetition::{BackendLoad, Counted, Counts, Instance, OperationOfRun, Repetition};
pub use trace::{ClientPeriod, Overview, Trace, TracePeriod, TracedPool, TracedTier};

#[derive(Debug)]
pub struct Observations {
    pub study: Study,
    /// Every attempt, in the order of execution.
    pub runs: Vec<Run>,
    /// Usable runs by configuration, in the order of the design.
    pub configurations: Vec<Configuration>,
    /// Factors with more than one level, in the order of the study file.
    pub factors: Vec<Factor>,
    /// The factor that is the load, if one is varied.
    pub load: Option<LoadFactor>,
    /// Configurations that differ in their load only.
    pub curves: Vec<Curve>,
    /// How far an adaptive design came; empty for other designs.
    pub searches: Vec<SearchLine>,
    /// The runs of the configuration of highest throughput, period by period, where they were
    /// asked for ([`with_traces`](Self::with_traces)).
    pub traces: Vec<Trace>,
}

impl Observations {
    pub fn read(results: &Results) -> Result<Self, StoreError> {
        Self::read_with(results, &[])
    }

    /// As [`read`](Self::read), with further quantiles of the response time than [`PERCENTILES`].
    pub fn read_with(results: &Results, quantiles: &[f64]) -> Result<Self, StoreError> {
        let study = results.study()?;
        let mut runs = results.runs()?;
        runs.sort_by_key(|run| (run.started_unix_ns, run.position, run.attempt));
        let latest = results.latest_runs()?;
        let factors = curve::varied(&latest);
        let mut all: Vec<f64> = PERCENTILES.to_vec();
        all.extend(quantiles.iter().filter(|q| !PERCENTILES.contains(q)));
        let mut configurations = Vec::new();
        for runs in curve::by_configuration(&latest) {
            let read = Configuration::read(results, &runs, study.confidence, &all)?;
            configurations.push(read);
        }
        let load = curve::load_factor(&factors);
        let curves = load
            .as_ref()
            .map_or_else(Vec::new, |load| curve::curves(&configurations, &factors, &load.key));
        let searches = results.searches()?;
        Ok(Self {
            study,
            runs,
            configurations,
            factors,
            load,
            curves,
            searches,
            traces: Vec::new(),
        })
    }

    /// With the traces of the fastest configuration, which take reading its seconds again.
    pub fn with_traces(mut self, results: &Results) -> Result<Self, StoreError> {
        let runs = self.fastest().into_iter().flat_map(|c| &c.repetitions);
        let traces = runs
            .map(|repetition| trace::of(results, &results.measured(repetition.run.id)?))
            .collect::<Result<_, _>>()?;
        self.traces = traces;
        Ok(self)
    }

    /// Whether every load is a job with an end.
    pub fn is_job(&self) -> bool {
        !self.configurations.is_empty() && self.configurations.iter().all(Configuration::is_job)
    }

    /// Attempts that may not be used.
    pub fn unusable(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.status != Status::Done)
    }

    /// Whether any run reports from inside a tier.
    pub fn has_tier(&self) -> bool {
        self.configurations.iter().any(|c| c.point.first_tier().is_some())
    }

    /// Most repetitions of any configuration.
    pub fn repetitions(&self) -> usize {
        self.configurations.iter().map(|c| c.repetitions.len()).max().unwrap_or(0)
    }

    /// The configuration of highest throughput.
    pub fn fastest(&self) -> Option<&Configuration> {
        self.configurations.iter().max_by(|a, b| a.throughput().total_cmp(&b.throughput()))
    }

    /// Configurations of a curve, by rising load.
    pub fn along<'a>(&'a self, curve: &'a Curve) -> impl Iterator<Item = &'a Configuration> + 'a {
        curve.configurations.iter().map(|&index| &self.configurations[index])
    }

    /// The load of a configuration: its level on the abscissa of the curves, or N or λ.
    pub fn load_of(&self, configuration: &Configuration) -> f64 {
        self.load
            .as_ref()
            .and_then(|load| configuration.level(&load.key)?.number)
            .unwrap_or_else(|| configuration.point.load())
    }

    /// Levels of one configuration, for people.
    pub fn name_of(&self, configuration: &Configuration) -> String {
        let levels: Vec<String> = self
            .factors
            .iter()
            .filter_map(|factor| configuration.level(&factor.key))
            .map(|level| format!("{} {}", short(&level.factor), level.text))
            .collect();
        if levels.is_empty() { "the only configuration".to_owned() } else { levels.join(", ") }
    }
}
