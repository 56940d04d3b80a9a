//! The open network of queues behind a system, fitted to its own monitoring: centers with demands and
//! how requests wait there, classes of requests, and answers to what-if.

mod answer;
mod hidden;
mod mixes;
mod monitored;
mod network;
mod residence;
mod variability;

pub use answer::{Answer, ChangeError, Fitted, MOSTLY, WIDE, never_full, timed_inside, unscored};
pub use hidden::Hidden;
pub use mixes::{ClassNetwork, NOTABLE, NetworkClass, regress_classes};
pub use monitored::{
    ENOUGH_SPREAD, Monitored, MonitoredTier, Monitoring, TOLERANCE, TierMeans, Window,
};
pub use network::{Center, LONGEST_WAITING, Network, NetworkPoint, Structure};
pub use residence::{Residence, Waiting, waiting_s};
pub use variability::Variability;
