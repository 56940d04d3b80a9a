//! What several chapters and the answer card need of a study, computed once.

use std::cell::OnceCell;
use std::ops::Deref;

use kendall_fit::curve::{Beside, beside};
use kendall_fit::saturation::{LoadRun, MeasuredLoad, Saturation, saturation};
use kendall_observations::{Configuration, Curve, Observations};

/// What a study observed, with what is fitted to its load curves, each fit made when it is first asked for.
pub(crate) struct Prepared<'a> {
    data: &'a Observations,
    saturations: OnceCell<Vec<Option<Saturation>>>,
    models: OnceCell<Vec<Beside>>,
}

impl<'a> Prepared<'a> {
    pub(crate) fn new(data: &'a Observations) -> Self {
        Self { data, saturations: OnceCell::new(), models: OnceCell::new() }
    }

    /// Each curve with its saturation, where it has one.
    pub(crate) fn saturations(&self) -> impl Iterator<Item = (&Curve, Option<&Saturation>)> {
        let fit = || self.data.curves.iter().map(|curve| fitted(self.data, curve)).collect();
        let fitted = self.saturations.get_or_init(fit);
        self.data.curves.iter().zip(fitted.iter().map(Option::as_ref))
    }

    pub(crate) fn models(&self) -> impl Iterator<Item = (&Curve, &Beside)> {
        let compare = |(curve, found): (&Curve, Option<&Saturation>)| {
            let points: Vec<_> = self.data.along(curve).map(|c| c.point.clone()).collect();
            beside(&points, found)
        };
        let models = self.models.get_or_init(|| self.saturations().map(compare).collect());
        self.data.curves.iter().zip(models)
    }
}

impl Deref for Prepared<'_> {
    type Target = Observations;

    fn deref(&self) -> &Observations {
        self.data
    }
}

fn fitted(data: &Observations, curve: &Curve) -> Option<Saturation> {
    let measured = |c: &Configuration| MeasuredLoad {
        load: data.load_of(c),
        point: c.point.clone(),
        runs: c
            .repetitions
            .iter()
            .map(|repetition| LoadRun {
                started: repetition.run.started_unix_ns,
                throughput_per_s: repetition.point.client.throughput_per_s,
                weight: repetition.weight,
            })
            .collect(),
    };
    let points: Vec<MeasuredLoad> = data.along(curve).map(measured).collect();
    saturation(&points, data.study.confidence)
}
