//! Whether a run may be used, and what should be known before it is.

use kendall_loadgen::result::LoadResult;
use kendall_stats::estimate::Caveat;
use kendall_stats::law::interactive_response_time;
use kendall_store::{Generator, HostSample, MeasuredWindow, Process};
use kendall_units::{Seconds, exact_f64, ratio};

use crate::record::{Totals, totals};
use crate::settings::Settings;
use crate::workload::Arrivals;

/// Deviation from the interactive response-time law at which a run is doubted, and rejected.
/// Windows count whole requests, so the law holds to a share of about N/(completed): derived, and
/// added to these.
const LAW_DOUBTED: f64 = 0.05;
const LAW_REJECTED: f64 = 0.25;

/// Stolen time, and waiting for a core, from which others are said to have disturbed a run.
const STEAL_SHARE: f64 = 0.02;
const WAIT_SHARE: f64 = 0.10;

/// Share of failed requests above which a run measures something else.
const FAILED_SHARE: f64 = 0.5;

/// Why a run must not be used, and doubts that do not forbid it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Judgement {
    pub(crate) rejections: Vec<String>,
    pub(crate) caveats: Vec<String>,
}

impl Judgement {
    fn doubt(&mut self, caveat: &Caveat) {
        self.caveats.push(caveat.to_string());
    }

    /// What the generators say of themselves.
    pub(crate) fn generators(&mut self, results: &[&LoadResult]) {
        for (number, result) in results.iter().enumerate() {
            let named = |text: &String| {
                if results.len() == 1 {
                    text.clone()
                } else {
                    format!("generator {number}: {text}")
                }
            };
            self.rejections.extend(result.rejections.iter().map(named));
            self.caveats.extend(result.caveats.iter().map(named));
        }
    }

    /// What the numbers of the measured window say.
    pub(crate) fn numbers(&mut self, settings: &Settings, generators: &[Generator]) {
        let totals = totals(generators);
        if totals.completed == 0 {
            self.rejections.push("no request was completed in the measured window".to_owned());
            return;
        }
        let requests = totals.completed + totals.failed;
        let failed = ratio(totals.failed, requests).unwrap_or(0.0);
        let errors = Caveat::Errors { errors: totals.failed, requests };
        if failed > FAILED_SHARE {
            self.rejections.push(errors.to_string());
        } else if totals.failed > 0 {
            self.doubt(&errors);
        }
        if totals.misses > 0 && settings.workload.driver.prefill.is_some() {
            self.doubt(&Caveat::Misses { misses: totals.misses, reads: totals.reads });
        }
        self.law(settings, generators, &totals);
    }

    fn law(&mut self, settings: &Settings, generators: &[Generator], totals: &Totals) {
        if !matches!(settings.workload.arrivals, Arrivals::Closed { .. }) {
            return;
        }
        let clients = exact_f64(generators.iter().map(|row| row.clients).sum::<u64>());
        let think: f64 = generators
            .iter()
            .map(|row| exact_f64(row.clients) * Seconds::from_nanos(row.think_time_mean_ns).get())
            .sum::<f64>()
            / clients.max(1.0);
        let response = totals.response_time_sum_s / exact_f64(totals.completed).max(1.0);
        // Requests under way at the edges belong half to the window; failed ones to neither side.
        let edges = (clients + exact_f64(totals.failed)) / exact_f64(totals.completed);
        let check = |limit: f64| {
            let x = totals.throughput_per_s;
            interactive_response_time(x, clients, response, think, limit + edges)
        };
        if check(LAW_REJECTED).is_violated() {
            self.rejections.extend(check(LAW_REJECTED).caveat().map(|caveat| caveat.to_string()));
        } else {
            self.caveats.extend(check(LAW_DOUBTED).caveat().map(|caveat| caveat.to_string()));
        }
    }

    /// What the machine says: time given to others, and waiting for a core.
    pub(crate) fn machine(
        &mut self,
        hosts: &[HostSample],
        processes: &[Process],
        window: &MeasuredWindow,
    ) {
        let at = |moment: u64| hosts.iter().min_by_key(|sample| sample.at_ns.abs_diff(moment));
        let (Some(from), Some(to)) = (at(window.from_ns), at(window.to_ns)) else { return };
        let all = |s: &HostSample| s.cpu_user_ns + s.cpu_system_ns + s.cpu_idle_ns + s.cpu_steal_ns;
        let steal_share = ratio(
            to.cpu_steal_ns.saturating_sub(from.cpu_steal_ns),
            all(to).saturating_sub(all(from)),
        );
        let steal_share = steal_share.unwrap_or(0.0);
        let run_queue_wait_share = wait_share(processes, window, from.cores);
        if steal_share > STEAL_SHARE || run_queue_wait_share > WAIT_SHARE {
            self.doubt(&Caveat::NoisyNeighbor { steal_share, run_queue_wait_share });
        }
    }
}

/// Time that all processes were ready without a core, over the time that the cores have.
fn wait_share(processes: &[Process], window: &MeasuredWindow, cores: u32) -> f64 {
    let wait = |process: &Process| {
        let at = |moment: u64| process.samples.iter().min_by_key(|s| s.at_ns.abs_diff(moment));
        let (from, to) = (at(window.from_ns)?, at(window.to_ns)?);
        Some(to.run_queue_wait_ns.saturating_sub(from.run_queue_wait_ns))
    };
    let total: u64 = processes.iter().filter_map(wait).sum();
    let length = window.to_ns.saturating_sub(window.from_ns);
    ratio(total, length.saturating_mul(u64::from(cores))).unwrap_or(0.0)
}
