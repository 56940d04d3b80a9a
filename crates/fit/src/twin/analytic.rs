//! The twin solved without chance: pools as flow-equivalent servers inside one another, the cores
//! that their parts share by what the others leave. For sweeps; no batches, no percentiles.

use kendall_queueing::network::{
    Kind, Load, Network, NetworkError, Resource, convolution, pool_rates,
};
use kendall_units::exact_f64;

use super::system::{Step, System, Workload};

/// Rounds of the fixed point over what the parts leave of the cores to one another.
const ROUNDS: u32 = 40;
/// Relative change of the throughput that ends them.
const SETTLED: f64 = 1e-6;
/// Share of a core that is always left to a part, so that the fixed point has a way back.
const LEAST_LEFT: f64 = 0.02;
/// A commit that serves all who wait takes half of one under way and its own.
const COMMIT_WAIT: f64 = 1.5;

/// What the analysis finds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Solved {
    /// X, 1/s.
    pub throughput_per_s: f64,
    /// R, in s.
    pub response_mean_s: f64,
}

/// One point of a sweep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurvePoint {
    /// The swept value.
    pub value: f64,
    /// What is predicted there.
    pub solved: Solved,
}

/// Solves a closed system whose processes take `cpu_s(X)` of processor time for a request at the
/// throughput X, in the order of its processes.
///
/// # Errors
/// [`NetworkError`] where the structure is not covered (open loads, batches) or the population is
/// too large.
///
/// # Source
/// Flow-equivalent servers with limited population [LZGS84 §9.3].
pub fn analytic(system: &System, cpu_s: &dyn Fn(f64) -> Vec<f64>) -> Result<Solved, NetworkError> {
    let Workload::Closed { clients, think_time_s } = system.workload else {
        return Err(unsupported("open loads"));
    };
    if system.largest_batch() > 1 {
        return Err(unsupported("batches"));
    }
    let population = u64::from(clients);
    let n = exact_f64(population);
    let mut x = 0.0;
    let mut solved = Solved { throughput_per_s: 0.0, response_mean_s: 0.0 };
    for _ in 0..ROUNDS {
        let cpu = cpu_s(x);
        let parts = Parts { system, cpu: &cpu, x };
        let resources = parts.resources(&system.steps, population)?;
        let network = Network {
            classes: vec![Load::Closed { population, think_time: think_time_s }],
            resources,
        };
        let found = convolution(&network)?.throughput[0];
        let next = found.min(parts.most());
        let change = (next - x).abs() / next;
        x = if x > 0.0 { f64::midpoint(x, next) } else { next };
        solved = Solved { throughput_per_s: x, response_mean_s: n / x - think_time_s };
        if change < SETTLED {
            break;
        }
    }
    Ok(solved)
}

fn unsupported(what: &'static str) -> NetworkError {
    NetworkError::Unsupported { solver: "the analytic twin", what, instead: "the simulated one" }
}

struct Parts<'a> {
    system: &'a System,
    cpu: &'a [f64],
    x: f64,
}

impl Parts<'_> {
    /// Throughput at which a host has no core left.
    fn most(&self) -> f64 {
        let busy = |host: usize| {
            let used = self.system.processes.iter().zip(self.cpu).filter(|(p, _)| p.host == host);
            used.map(|(_, cpu)| cpu).sum::<f64>() / self.system.hosts[host].speed
        };
        let cores = |host: usize| f64::from(self.system.hosts[host].cores);
        (0..self.system.hosts.len())
            .filter(|host| busy(*host) > 0.0)
            .map(|host| cores(host) / busy(host))
            .fold(f64::INFINITY, f64::min)
    }

    /// The steps of one level: its delays, its work by host on what the other levels leave of the
    /// cores, and each pool as one server.
    fn resources(&self, steps: &[Step], most: u64) -> Result<Vec<Resource>, NetworkError> {
        let hosts = self.system.hosts.len();
        let mut work = vec![0.0; hosts];
        let mut delay = 0.0;
        let mut resources = Vec::new();
        for step in steps {
            match step {
                Step::Work(visit) => {
                    let host = self.system.processes[visit.process].host;
                    work[host] +=
                        visit.share * self.cpu[visit.process] / self.system.hosts[host].speed;
                }
                Step::Delay(time) | Step::Wait { time_s: time, .. } => delay += time,
                Step::Commit(commit) => {
                    let commit = &self.system.commits[*commit];
                    delay += COMMIT_WAIT * commit.time_s / commit.speed;
                }
                Step::Sometimes { .. } => {
                    return Err(unsupported("steps that are done sometimes"));
                }
                Step::Hold { pool, inside } => {
                    let tokens = u64::from(self.system.pools[*pool].tokens);
                    let parts = self.resources(inside, most.min(tokens))?;
                    resources.push(pool_rates(&parts, tokens, most)?.resource());
                }
            }
        }
        if delay > 0.0 {
            resources.push(Resource::delay(&[delay]));
        }
        for (host, demand) in work.into_iter().enumerate().filter(|(_, demand)| *demand > 0.0) {
            let all: f64 = self
                .system
                .processes
                .iter()
                .zip(self.cpu)
                .filter(|(process, _)| process.host == host)
                .map(|(_, cpu)| cpu / self.system.hosts[host].speed)
                .sum();
            let cores = self.system.hosts[host].cores;
            let elsewhere = self.x * (all - demand).max(0.0) / f64::from(cores);
            let left = (1.0 - elsewhere).max(LEAST_LEFT);
            resources.push(Resource {
                kind: if cores == 1 { Kind::Queue } else { Kind::Servers(u64::from(cores)) },
                demands: vec![demand / left],
            });
        }
        Ok(resources)
    }
}

/// The value at which the two asymptotes of a throughput curve meet: it grows in proportion up to
/// there, and hardly beyond. `None` while it still grows in proportion at the end.
///
/// # Source
/// N* = (D + Z)/Dmax, [LZGS84 §5.2], read from the curve.
pub fn knee(points: &[CurvePoint]) -> Option<f64> {
    let first = points.first().filter(|first| first.value > 0.0)?;
    let slope = first.solved.throughput_per_s / first.value;
    let most = points.iter().map(|p| p.solved.throughput_per_s).fold(0.0, f64::max);
    let last = points.last()?;
    // At the end of a curve that saturates, far less than in proportion.
    let bends = last.solved.throughput_per_s < 0.8 * slope * last.value;
    bends.then(|| most / slope)
}
