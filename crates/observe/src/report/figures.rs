//! What other programs read of an analysis: each tier, and the load at which the first saturates.

use kendall_stats::estimate::Estimate;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{fills_first, told};
use crate::analysis::Analysis;
use crate::system::System;
use crate::watch::{Look, TierLook};

#[derive(Debug, Serialize)]
struct Figures {
    /// Load now, 1/s.
    rate_now_per_s: f64,
    /// Load at which the first saturates, 1/s; none where that is not told.
    capacity_per_s: Option<Estimate>,
    /// The tier that is the first; none where that is not told, or where it is in no tier.
    limit: Option<String>,
    tiers: Vec<TierLook>,
}

pub(super) fn figures(system: &System, analysis: &Analysis) -> Map<String, Value> {
    let hidden = analysis.network.as_ref().ok().and_then(|network| network.hidden.as_ref());
    let hidden = hidden.filter(|_| fills_first(analysis).is_some());
    let first = analysis.bottleneck.as_ref().ok().filter(|_| hidden.is_none() && told(analysis));
    let of_tier = first.and_then(|index| analysis.tiers[*index].headroom.as_ref());
    let figures = Figures {
        rate_now_per_s: analysis.rate_now_per_s,
        capacity_per_s: hidden
            .map(|found| found.capacity())
            .or_else(|| of_tier.map(|found| found.capacity_per_s.clone())),
        limit: first.map(|index| system.tiers[*index].name.clone()),
        tiers: Look::of(system, analysis, analysis.seen.to_s()).tiers,
    };
    match json!(figures) {
        Value::Object(figures) => figures,
        other => unreachable!("a structure is an object, not {other}"),
    }
}
