//! What a request costs a process: (w + w_b/b + s·v)·h.
//!
//! w is work of its own, w_b work once a batch of b, s the price of falling asleep and waking up
//! again, v how often that happens for a request, h how slow the machine is just now. Wake-ups are
//! shared when there is much to do, so that the cost of a request falls with load; machines drift by
//! 10 to 40 % within minutes, which h holds.

use kendall_units::exact_f64;
use nalgebra::{DMatrix, DVector};

use crate::demands::non_negative;

/// Prior of the price of a switch, in s, for runs that do not determine it. A round number near
/// what all six processes of the proxy study had in common (16.5 to 17.3 µs).
const TYPICAL_SWITCH_S: f64 = 17e-6;
/// Weight of that draw for each measurement.
const RIDGE: f64 = 0.01;
/// How much more closely a process is drawn to the machine's common price than that to the typical.
const COMMON: f64 = 3.0;

/// The demand of one process, at h = 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Demand {
    /// w, in s a request.
    pub work_s: f64,
    /// w_b, in s a batch.
    pub batch_s: f64,
    /// s, in s a switch.
    pub switch_s: f64,
}

impl Demand {
    /// CPU time of a request.
    pub fn cpu_s(&self, batch: f64, switches: f64, slowness: f64) -> f64 {
        (self.work_s + self.batch_s / batch.max(1.0) + self.switch_s * switches) * slowness
    }

    /// All of it times `factor`.
    pub fn scaled(&self, factor: f64) -> Self {
        Self {
            work_s: self.work_s * factor,
            batch_s: self.batch_s * factor,
            switch_s: self.switch_s * factor,
        }
    }
}

/// What one process used for a request in one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observed {
    pub process: usize,
    /// CPU time of a request, in s.
    pub cpu_s: f64,
    /// Voluntary switches of a request.
    pub switches: f64,
    pub batch: f64,
    /// h in that run.
    pub slowness: f64,
    /// Weight, such as the root of the busy share.
    pub weight: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DemandFit {
    pub demands: Vec<Demand>,
    /// Standard deviation of log(measured/fitted), by process.
    pub residual: Vec<f64>,
    /// Whether the runs tell w from w_b.
    pub tells_batches: bool,
}

/// Non-negative least squares on relative errors, all processes together, drawn to a common price of
/// a switch. Where batches of at least four were not measured, w_b stays 0: the runs do not tell it
/// from w.
pub fn fit(processes: usize, observed: &[Observed]) -> DemandFit {
    let usable: Vec<&Observed> = observed
        .iter()
        .filter(|o| o.cpu_s > 0.0 && o.cpu_s.is_finite() && o.slowness > 0.0)
        .collect();
    let tells_batches = usable.iter().any(|o| o.batch >= LEAST_BATCH)
        && usable.iter().any(|o| o.batch < LEAST_BATCH / 2.0);
    // Columns: w, w_b and s of each process (s in units of the typical price), then the common s.
    let columns = 3 * processes + 1;
    let rows = usable.len() + processes + 1;
    let mut matrix = DMatrix::<f64>::zeros(rows, columns);
    let mut right = DVector::<f64>::zeros(rows);
    for (row, o) in usable.iter().enumerate() {
        let scale = o.weight * o.slowness / o.cpu_s;
        let first = 3 * o.process;
        matrix[(row, first)] = scale * MICRO;
        if tells_batches {
            matrix[(row, first + 1)] = scale * MICRO / o.batch.max(1.0);
        }
        matrix[(row, first + 2)] = scale * TYPICAL_SWITCH_S * o.switches;
        right[row] = o.weight;
    }
    let ridge = (RIDGE * exact_f64(usable.len())).sqrt();
    for process in 0..processes {
        let row = usable.len() + process;
        matrix[(row, 3 * process + 2)] = COMMON * ridge;
        matrix[(row, columns - 1)] = -COMMON * ridge;
    }
    matrix[(rows - 1, columns - 1)] = ridge;
    right[rows - 1] = ridge;
    let (x, _) = non_negative(&matrix, &right);
    let demands: Vec<Demand> = (0..processes)
        .map(|process| Demand {
            work_s: x[3 * process] * MICRO,
            batch_s: x[3 * process + 1] * MICRO,
            switch_s: x[3 * process + 2] * TYPICAL_SWITCH_S,
        })
        .collect();
    let residual = (0..processes).map(|process| residual(process, &demands, &usable)).collect();
    DemandFit { demands, residual, tells_batches }
}

/// Unit of w in the equations: columns of like size keep them well conditioned.
const MICRO: f64 = 1e-6;
/// Mean batch from which a run tells w_b from w.
pub const LEAST_BATCH: f64 = 4.0;

fn residual(process: usize, demands: &[Demand], observed: &[&Observed]) -> f64 {
    let logs: Vec<f64> = observed
        .iter()
        .filter(|o| o.process == process)
        .map(|o| (o.cpu_s / demands[process].cpu_s(o.batch, o.switches, o.slowness)).ln())
        .filter(|log| log.is_finite())
        .collect();
    if logs.is_empty() {
        return 0.0;
    }
    (logs.iter().map(|log| log * log).sum::<f64>() / exact_f64(logs.len())).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(process: usize, demand: &Demand, switches: f64, batch: f64, slowness: f64) -> Observed {
        let cpu_s = demand.cpu_s(batch, switches, slowness);
        Observed { process, cpu_s, switches, batch, slowness, weight: 1.0 }
    }

    #[test]
    fn exact_observations_give_the_demands_back_within_the_draw() {
        let truth = [
            Demand { work_s: 30e-6, batch_s: 0.0, switch_s: 17e-6 },
            Demand { work_s: 120e-6, batch_s: 0.0, switch_s: 19e-6 },
        ];
        let mut observed = Vec::new();
        for (switches, slowness) in [(2.0, 1.0), (1.0, 1.2), (0.4, 0.9), (0.1, 1.1)] {
            for (process, demand) in truth.iter().enumerate() {
                observed.push(seen(process, demand, switches, 1.0, slowness));
            }
        }
        let fit = fit(2, &observed);
        for (have, want) in fit.demands.iter().zip(&truth) {
            assert!((have.work_s / want.work_s - 1.0).abs() < 0.03, "{have:?} for {want:?}");
            assert!((have.switch_s / want.switch_s - 1.0).abs() < 0.2, "{have:?} for {want:?}");
        }
        assert!(!fit.tells_batches && fit.residual.iter().all(|r| *r < 0.05));
    }

    /// A price far from the common one is drawn to it, at the cost of the work; what both make
    /// together at the loads that were seen stays.
    #[test]
    fn the_draw_moves_the_parts_and_keeps_the_whole() {
        let truth = [
            Demand { work_s: 30e-6, batch_s: 0.0, switch_s: 17e-6 },
            Demand { work_s: 120e-6, batch_s: 0.0, switch_s: 30e-6 },
        ];
        let switches = [2.0, 1.0, 0.4, 0.1];
        let observed: Vec<Observed> = switches
            .iter()
            .flat_map(|v| (0..2).map(|k| seen(k, &truth[k], *v, 1.0, 1.0)))
            .collect();
        let fit = fit(2, &observed);
        assert!(fit.demands[1].switch_s < 30e-6 && fit.demands[1].work_s > 120e-6);
        for v in switches {
            for (have, want) in fit.demands.iter().zip(&truth) {
                let (have, want) = (have.cpu_s(1.0, v, 1.0), want.cpu_s(1.0, v, 1.0));
                assert!((have / want - 1.0).abs() < 0.1, "{have} for {want} at {v} switches");
            }
        }
    }

    #[test]
    fn batches_are_told_apart_only_where_large_ones_were_measured() {
        let truth = Demand { work_s: 50e-6, batch_s: 300e-6, switch_s: 17e-6 };
        let of = |batches: &[f64]| -> Vec<Observed> {
            batches.iter().map(|b| seen(0, &truth, 2.0 / b, *b, 1.0)).collect()
        };
        let small = fit(1, &of(&[1.0, 1.2, 1.5]));
        assert!(!small.tells_batches && small.demands[0].batch_s < 1e-300);
        let large = fit(1, &of(&[1.0, 2.0, 5.0, 12.0]));
        assert!(large.tells_batches);
        assert!((large.demands[0].batch_s / 300e-6 - 1.0).abs() < 0.1, "{:?}", large.demands[0]);
        assert!((large.demands[0].work_s / 50e-6 - 1.0).abs() < 0.1, "{:?}", large.demands[0]);
    }
}
