//! What the machine and the tier did over a period that a client begins and ends: CPU use per
//! core, network bytes, cache hit rate.

use std::collections::BTreeMap;

use kendall_protocols::snapshot::TierSnapshot;
use kendall_tier::Instruments;
use kendall_units::ratio;
use parking_lot::Mutex;
use serde::Serialize;

/// What was found over a period.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recorded {
    /// Begin, `CLOCK_MONOTONIC`.
    pub from_ns: u64,
    /// End, `CLOCK_MONOTONIC`.
    pub to_ns: u64,
    /// Requests answered with a result.
    pub completions: u64,
    /// Busy share of each core of the machine, from 0 to 1, by all programs; empty where the
    /// system does not tell.
    pub core_utilization: Vec<f64>,
    /// CPU time of this process.
    pub cpu_user_ns: u64,
    /// CPU time of this process in the kernel.
    pub cpu_system_ns: u64,
    /// Bytes read from clients.
    pub bytes_in: u64,
    /// Bytes written to clients.
    pub bytes_out: u64,
    /// Bytes that each network interface of the machine received and sent.
    pub interfaces: BTreeMap<String, InterfaceBytes>,
    /// Requests that the cache answered.
    pub cache_hits: u64,
    /// Requests that it could not answer.
    pub cache_misses: u64,
    /// Hits of hits and misses; null when there was neither.
    pub cache_hit_rate: Option<f64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct InterfaceBytes {
    pub received: u64,
    pub sent: u64,
}

/// A period that may be open.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    begin: Mutex<Option<Moment>>,
}

#[derive(Debug, Clone)]
struct Moment {
    tier: TierSnapshot,
    cores: Vec<CoreTicks>,
    interfaces: BTreeMap<String, InterfaceBytes>,
}

/// Clock ticks of one core since the machine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CoreTicks {
    busy: u64,
    all: u64,
}

impl Recording {
    /// Begins a period; a period that was open is forgotten.
    pub(crate) fn start(&self, instruments: &Instruments) {
        *self.begin.lock() = Some(Moment::now(instruments));
    }

    /// What the open period holds so far; `None` when there is none.
    pub(crate) fn so_far(&self, instruments: &Instruments) -> Option<Recorded> {
        let begin = self.begin.lock().clone()?;
        Some(Moment::now(instruments).since(&begin))
    }

    pub(crate) fn stop(&self, instruments: &Instruments) -> Option<Recorded> {
        let begin = self.begin.lock().take()?;
        Some(Moment::now(instruments).since(&begin))
    }

    pub(crate) fn is_open(&self) -> bool {
        self.begin.lock().is_some()
    }
}

impl Moment {
    fn now(instruments: &Instruments) -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            tier: instruments.snapshot(),
            cores: core_ticks(&read("/proc/stat")),
            interfaces: interface_bytes(&read("/proc/net/dev")),
        }
    }

    fn since(self, begin: &Self) -> Recorded {
        let outcome = |name: &str| {
            let count = |moment: &Self| moment.tier.outcomes.get(name).copied().unwrap_or(0);
            count(&self).saturating_sub(count(begin))
        };
        let completions =
            |moment: &Self| moment.tier.requests.values().map(|r| r.completions).sum::<u64>();
        let (hits, misses) = (outcome("hits"), outcome("misses"));
        Recorded {
            from_ns: begin.tier.at_ns,
            to_ns: self.tier.at_ns,
            completions: completions(&self).saturating_sub(completions(begin)),
            core_utilization: self
                .cores
                .iter()
                .zip(&begin.cores)
                .map(|(end, begin)| {
                    let all = end.all.saturating_sub(begin.all);
                    ratio(end.busy.saturating_sub(begin.busy), all).unwrap_or(0.0)
                })
                .collect(),
            cpu_user_ns: self.tier.cpu_user_ns.saturating_sub(begin.tier.cpu_user_ns),
            cpu_system_ns: self.tier.cpu_system_ns.saturating_sub(begin.tier.cpu_system_ns),
            bytes_in: self.tier.bytes_in.saturating_sub(begin.tier.bytes_in),
            bytes_out: self.tier.bytes_out.saturating_sub(begin.tier.bytes_out),
            interfaces: self
                .interfaces
                .iter()
                .map(|(name, end)| {
                    let begin = begin.interfaces.get(name).copied().unwrap_or_default();
                    let received = end.received.saturating_sub(begin.received);
                    let sent = end.sent.saturating_sub(begin.sent);
                    (name.clone(), InterfaceBytes { received, sent })
                })
                .collect(),
            cache_hits: hits,
            cache_misses: misses,
            cache_hit_rate: ratio(hits, hits + misses),
        }
    }
}

/// The lines `cpuN user nice system idle iowait irq softirq steal …` of `/proc/stat` (proc(5)).
/// The guest times behind them are part of user and nice already.
fn core_ticks(stat: &str) -> Vec<CoreTicks> {
    const IDLE: [usize; 2] = [3, 4];
    let core = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let number = fields.next()?.strip_prefix("cpu")?;
        number.parse::<u32>().ok()?;
        let ticks: Vec<u64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
        let all = ticks.iter().sum();
        let idle: u64 = IDLE.iter().filter_map(|place| ticks.get(*place)).sum();
        Some(CoreTicks { busy: all - idle, all })
    };
    stat.lines().filter_map(core).collect()
}

/// The lines `name: received-bytes … (8 fields) sent-bytes …` of `/proc/net/dev`.
fn interface_bytes(dev: &str) -> BTreeMap<String, InterfaceBytes> {
    const SENT: usize = 8;
    let interface = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let counts: Vec<u64> =
            counts.split_ascii_whitespace().map_while(|count| count.parse().ok()).collect();
        let (received, sent) = (*counts.first()?, *counts.get(SENT)?);
        Some((name.trim().to_owned(), InterfaceBytes { received, sent }))
    };
    dev.lines().filter_map(interface).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_and_interfaces_are_read_from_what_the_kernel_prints() {
        let stat = "cpu  30 0 10 150 10 0 0 0 0 0\ncpu0 10 1 5 70 4 2 1 3 99 0\n\
                    cpu1 20 0 5 80 6 0 0 0 0 0\nintr 1 2\n";
        assert_eq!(
            core_ticks(stat),
            [CoreTicks { busy: 22, all: 96 }, CoreTicks { busy: 25, all: 111 }]
        );
        let dev = "Inter-|   Receive\n face |bytes    packets\n    \
                   lo: 100 1 0 0 0 0 0 0 200 2 0 0 0 0 0 0\n";
        assert_eq!(interface_bytes(dev)["lo"], InterfaceBytes { received: 100, sent: 200 });
        assert!(core_ticks("cpu").is_empty() && interface_bytes(": x").is_empty());
    }
}
