//! Hosts that processes may run on, and how they are reached.

use std::collections::BTreeMap;

/// The machine that the study runs on, in `[hosts]` and `[place]`.
pub const HERE: &str = "here";

/// Its name in the rows.
pub const LOCALHOST: &str = "localhost";

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Engine {
    /// By the user's own `ssh`.
    #[default]
    Ssh,
    /// By any command that carries a pipe, put before the words that are run there.
    Command { prefix: Vec<String> },
    /// Each is a pod, by the user's own `kubectl`.
    Kubernetes(Pods),
}

/// What all pods of a study have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pods {
    /// Of `kubectl`, where it is not the current one.
    pub context: Option<String>,
    pub namespace: String,
    pub image: String,
    /// Whether each has a node of its own.
    pub apart: bool,
    /// When each ends in any case, in seconds.
    pub deadline_s: u64,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostSpec {
    pub name: String,
    pub target: String,
    /// Its address on the measured network, where the file states it.
    pub address: Option<String>,
    /// Labels of the node that a pod is to run on.
    pub node: BTreeMap<String, String>,
    pub cpu: Option<f64>,
    /// Memory that a pod has.
    pub memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Hosts {
    pub engine: Engine,
    /// Those that the file names.
    pub list: Vec<HostSpec>,
    /// The address of this machine on the measured network, where it is stated.
    pub here: Option<String>,
    /// The program that is carried, where it is not this one.
    pub program: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum At {
    Here,
    /// On the host of this number in [`Hosts::list`].
    Host(usize),
}
