//! A calibrated model as a file to take along.

use serde::Serialize;

use super::answer::StudyModel;
use crate::twin::{Step, System, Workload};

/// A model in words of its own, with all that a reader needs to build it again.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelFile {
    pub version: u32,
    /// Levels of what the structure does not show.
    pub kind_of_work: Vec<(String, String)>,
    /// Host, cores.
    pub hosts: Vec<(String, u32)>,
    /// Processes with their demands.
    pub processes: Vec<ModelProcess>,
    /// Pools and their tokens.
    pub pools: Vec<(String, u32)>,
    /// Clients and mean think time in s, or a rate.
    pub load: String,
    /// What a request does, in order.
    pub steps: Vec<String>,
    /// Time that an idle core takes to wake, in s.
    pub wake_s: f64,
    /// Share of wake-ups that stay on the core that woke them although another is idle.
    pub stay: f64,
    /// Time of a commit, in s; none where there is none.
    pub commit_s: Option<f64>,
    /// Spread of CPU time per request between runs, as a share.
    pub drift: f64,
    /// Half-width of a 95 % interval of all demands together, as a share.
    pub half_width: f64,
    pub assumed: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelProcess {
    pub name: String,
    pub threads: u32,
    /// Work of a request, in s of processor time.
    pub work_s: f64,
    /// Work of a batch.
    pub batch_s: f64,
    /// Price of falling asleep and waking up.
    pub switch_s: f64,
}

/// The model at the first configuration that it was calibrated on.
pub fn model_file(fitted: &StudyModel) -> ModelFile {
    let twin = &fitted.twin;
    let system = &twin.configurations()[0].system;
    let processes =
        system.processes.iter().zip(twin.demands()).map(|(process, demand)| ModelProcess {
            name: process.name.clone(),
            threads: process.threads,
            work_s: demand.work_s,
            batch_s: demand.batch_s,
            switch_s: demand.switch_s,
        });
    let mut steps = Vec::new();
    words(system, &system.steps, "", &mut steps);
    ModelFile {
        version: 1,
        kind_of_work: fitted.signature.0.clone(),
        hosts: system.hosts.iter().map(|host| (host.name.clone(), host.cores)).collect(),
        processes: processes.collect(),
        pools: system.pools.iter().map(|pool| (pool.name.clone(), pool.tokens)).collect(),
        load: match system.workload {
            Workload::Closed { clients, think_time_s } => {
                format!("{clients} clients, think time {think_time_s} s")
            }
            Workload::Open { rate_per_s } => format!("{rate_per_s} arrivals/s"),
        },
        steps,
        wake_s: twin.wake_s(),
        stay: twin.stay(),
        commit_s: (!system.commits.is_empty()).then(|| twin.commit_s()),
        drift: twin.drift,
        half_width: twin.demands_half_width(),
        assumed: fitted.assumptions.clone(),
    }
}

fn words(system: &System, steps: &[Step], indent: &str, into: &mut Vec<String>) {
    let deeper = format!("{indent}  ");
    for step in steps {
        match step {
            Step::Work(work) => {
                let name = &system.processes[work.process].name;
                into.push(format!("{indent}work: {:.3} of that of {name}", work.share));
            }
            Step::Delay(time) => into.push(format!("{indent}delay: {time} s")),
            Step::Wait { time_s, each_s, .. } => {
                let more = if *each_s > 0.0 {
                    format!(" and {each_s} s for each of a batch")
                } else {
                    String::new()
                };
                into.push(format!(
                    "{indent}wait: {time_s} s{more}, as service times were measured"
                ));
            }
            Step::Sometimes { share, inside } => {
                into.push(format!("{indent}for {share:.3} of the requests"));
                words(system, inside, &deeper, into);
            }
            Step::Hold { pool, inside } => {
                into.push(format!("{indent}hold one of: {}", system.pools[*pool].name));
                words(system, inside, &deeper, into);
            }
            Step::Commit(commit) => {
                into.push(format!("{indent}wait for: {}", system.commits[*commit].name));
            }
        }
    }
}
