//! A network of stations as a model.

use kendall_queueing::Model;
use kendall_queueing::model::Workload;

use crate::unit::Unit;

/// A network as a model, and how it was written.
pub(crate) struct Lowered {
    pub(crate) model: Model,
    /// Whether classes are listed, so that outputs are lists by class.
    pub(crate) listed: bool,
    pub(crate) unit: Unit,
}

/// N of the only class, when it is closed.
pub(crate) fn only_population(model: &Model) -> Option<u64> {
    match &model.classes[..] {
        [class] => match class.workload {
            Workload::Closed { population, .. } => Some(population),
            Workload::Open { .. } => None,
        },
        _ => None,
    }
}
