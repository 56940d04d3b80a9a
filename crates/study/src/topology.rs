//! What a system is made of: tiers, the commands that start them, and who talks to whom.

use std::time::Duration;

use kendall_host::launch::{AddressFrom, Ready, StopSignal};
use kendall_host::sample::Accounting;
use kendall_protocols::topology::{Edge, EdgeLink, End, Graph, Pool, TierId, TierNode};

use crate::section::{Problem, Section};

/// Name that links use for the load generators.
pub const CLIENTS: &str = "clients";

/// A system, ready to be started.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// Tiers; the study starts each after those that it talks to.
    pub tiers: Vec<TierSpec>,
    /// The tier that the clients talk to.
    pub entry: String,
    /// Tiers whose every instance is filled before a run, where the workload fills at all.
    pub filled: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TierSpec {
    /// Name in the topology, such as `proxies`.
    pub name: TierId,
    /// What it is, such as `memcached-proxy`.
    pub kind: String,
    /// Tiers that it talks to.
    pub backends: Vec<String>,
    /// Tiers that it connects to so that they send it requests: it is started after them, and comes
    /// behind them in the graph.
    pub joins: Vec<String>,
    /// Workers, connections and threads of each instance, where the study sets them.
    pub pools: Vec<Pool>,
    /// How its instances come about.
    pub source: Source,
}

/// How the instances of a tier come about.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// The study starts them.
    Started(Started),
    Attached(Vec<Attached>),
}

/// Instances that the study starts.
#[derive(Debug, Clone, PartialEq)]
pub struct Started {
    pub instances: u32,
    /// Program and arguments, with placeholders.
    pub command: Vec<String>,
    /// Environment variables, with placeholders.
    pub environment: Vec<(String, String)>,
    /// How the study learns where an instance listens.
    pub address: AddressFrom,
    /// When an instance may be used.
    pub ready: Ready,
    /// How long it may take until then.
    pub ready_deadline: Duration,
    /// How it is asked to stop.
    pub stop: StopSignal,
    /// How long it may take to stop, before it is killed.
    pub stop_deadline: Duration,
    /// Cores that an instance may use at most; as many as there are without it.
    pub cores: Option<f64>,
    /// A folder of an instance that is removed after a run, with placeholders.
    pub scratch: Option<String>,
    /// Arguments of Kendall's own program that end with 0 where everything is there that an instance
    /// needs beside its program, and else say what is not; none where nothing is.
    pub check: Option<&'static [&'static str]>,
}

/// An instance that runs already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// `HOST:PORT`.
    pub address: String,
    /// Where its resources are read.
    pub accounting: Accounting,
    /// `HOST:PORT` whose `GET /snapshot` is that of a Kendall tier.
    pub metrics: Option<String>,
}

impl Topology {
    pub fn tier(&self, name: &str) -> Option<&TierSpec> {
        self.tiers.iter().find(|tier| tier.name == *name)
    }

    /// How many instances of a tier there are; of [`CLIENTS`] they are the generators.
    pub fn instances(&self, name: &str, generators: u32) -> u32 {
        let clients = if name == CLIENTS { generators } else { 0 };
        self.tier(name).map_or(clients, TierSpec::instances)
    }

    /// Of those, how many the study starts: only these have a place.
    pub fn started(&self, name: &str, generators: u32) -> u32 {
        let runs_already =
            self.tier(name).is_some_and(|tier| matches!(tier.source, Source::Attached(_)));
        if runs_already { 0 } else { self.instances(name, generators) }
    }

    /// Names of all pairs that may carry a link, as the study file writes them.
    pub fn edges(&self) -> Vec<(String, String)> {
        let clients = (CLIENTS.to_owned(), self.entry.clone());
        let inner = self.tiers.iter().flat_map(|tier| {
            let from = tier.name.as_str();
            tier.connects_to().map(move |to| (from.to_owned(), to.clone()))
        });
        std::iter::once(clients).chain(inner).collect()
    }

    /// Tiers and who talks to whom, by their distance from the clients. `link` says what lies between
    /// two of them, by the names of [`edges`](Self::edges).
    pub fn graph(&self, link: impl Fn(&str, &str) -> Option<EdgeLink>) -> Graph {
        let tiers = self.tiers.iter().map(|tier| TierNode {
            tier: tier.name.clone(),
            kind: tier.kind.clone(),
            instances: tier.instances(),
            pools: tier.pools.clone(),
        });
        let tier = |name: &str| self.tier(name).map(|tier| tier.name.clone());
        let clients = tier(&self.entry).map(|to| Edge {
            from: End::Clients,
            link: link(CLIENTS, to.as_str()),
            to,
        });
        let inner = self.tiers.iter().flat_map(|from| {
            from.backends.iter().filter_map(|to| tier(to)).map(|to| Edge {
                from: End::Tier(from.name.clone()),
                link: link(from.name.as_str(), to.as_str()),
                to,
            })
        });
        // Who joins a tier is connected by its own doing, and asked by the tier.
        let joined = self.tiers.iter().flat_map(|to| {
            to.joins.iter().filter_map(|from| tier(from)).map(|from| Edge {
                link: link(to.name.as_str(), from.as_str()),
                from: End::Tier(from),
                to: to.name.clone(),
            })
        });
        let edges = clients.into_iter().chain(inner).chain(joined).collect();
        Graph { edges, tiers: tiers.collect() }.ordered()
    }

    /// The tiers in the order of starting: each after those that it talks to. `None` where they
    /// talk in a circle or to a tier that does not exist; then also the culprit's name.
    pub fn start_order(&self) -> Result<Vec<&TierSpec>, String> {
        let mut order: Vec<&TierSpec> = Vec::new();
        while order.len() < self.tiers.len() {
            let started = |name: &str| order.iter().any(|tier| tier.name == *name);
            let next = self.tiers.iter().find(|tier| {
                !started(tier.name.as_str()) && tier.connects_to().all(|to| started(to))
            });
            match next {
                Some(tier) => order.push(tier),
                None => {
                    let stuck = self.tiers.iter().find(|tier| !started(tier.name.as_str()));
                    return Err(stuck.map_or_else(String::new, |tier| tier.name.to_string()));
                }
            }
        }
        Ok(order)
    }
}

/// The key `name` of a tier in a study file, checked against those that it follows.
///
/// # Errors
/// A [`Problem`] at that key: no name for a tier, or taken by another.
pub(crate) fn tier_name(section: &mut Section<'_>, before: &[TierSpec]) -> Result<TierId, Problem> {
    let text = section.text("name")?;
    let name = TierId::new(text).map_err(|error| section.problem("name", error.to_string()))?;
    if before.iter().any(|tier| tier.name == name) {
        let what = format!("`{name}` is another tier's name; give each its own");
        return Err(section.problem("name", what));
    }
    Ok(name)
}

/// The key `entry` of a system of tiers: what it states, or the one tier that no other names as its backend.
///
/// # Errors
/// A [`Problem`] at that key: it names none of the tiers, or several could be meant.
pub(crate) fn entry(section: &mut Section<'_>, tiers: &[TierSpec]) -> Result<String, Problem> {
    let Some(first) = tiers.first() else {
        return Err(section.problem("tiers", "is missing; write `[[system.tiers]]`"));
    };
    let is_called =
        |name: &TierId| tiers.iter().any(|tier| tier.connects_to().any(|to| *name == *to.as_str()));
    let uncalled: Vec<&str> = tiers
        .iter()
        .map(|tier| &tier.name)
        .filter(|name| !is_called(name))
        .map(TierId::as_str)
        .collect();
    let entry = match (section.opt_text("entry")?, &uncalled[..]) {
        (Some(entry), _) => entry,
        (None, [one]) => (*one).to_owned(),
        // A circle, which is refused as one.
        (None, []) => first.name.to_string(),
        (None, several) => {
            let what = format!(
                "is missing: no tier names {} as its backend; name the one that clients talk to, or write \
                 `backends = […]` where one of them talks to another",
                several.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
            );
            return Err(section.problem("entry", what));
        }
    };
    section.effective("entry", serde_json::json!(entry));
    if !tiers.iter().any(|tier| tier.name == *entry.as_str()) {
        return Err(section.problem("entry", format!("`{entry}` is none of the tiers")));
    }
    Ok(entry)
}

impl TierSpec {
    /// A tier that the study starts and that talks to no other.
    pub(crate) fn started(name: &'static str, kind: &str, started: Started) -> Self {
        Self {
            name: TierId::fixed(name),
            kind: kind.to_owned(),
            backends: Vec::new(),
            joins: Vec::new(),
            pools: Vec::new(),
            source: Source::Started(started),
        }
    }

    pub fn instances(&self) -> u32 {
        match &self.source {
            Source::Started(started) => started.instances,
            Source::Attached(instances) => u32::try_from(instances.len()).unwrap_or(u32::MAX),
        }
    }

    /// The tiers that it connects to; they are started before it.
    pub fn connects_to(&self) -> impl Iterator<Item = &String> {
        self.backends.iter().chain(&self.joins)
    }
}

impl Started {
    /// A tier of Kendall itself: `kendall serve …` on a port of its own choice.
    pub fn kendall(instances: u32, arguments: Vec<String>) -> Self {
        let mut command: Vec<String> = ["{kendall}", "serve"].map(str::to_owned).into();
        command.extend(arguments);
        command.extend(["--metrics", "127.0.0.1:0"].map(str::to_owned));
        Self { address: AddressFrom::ReadyLine, ..Self::command(instances, command) }
    }

    /// Any program that listens on a port that the study chooses.
    pub fn command(instances: u32, command: Vec<String>) -> Self {
        Self {
            instances,
            command,
            environment: Vec::new(),
            address: AddressFrom::Chosen,
            ready: Ready::Tcp,
            ready_deadline: Duration::from_secs(10),
            stop: StopSignal::Terminate,
            stop_deadline: Duration::from_secs(10),
            cores: None,
            scratch: None,
            check: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::file::StudyFile;

    fn refusal(first: &str, second: &str) -> Option<String> {
        let text = format!(
            "name = 'x'\n[system]\nkind = 'processes'\n[[system.tiers]]\nname = '{first}'\n\
             command = ['true']\n[[system.tiers]]\nname = '{second}'\ncommand = ['true']\n\
             backends = ['{first}']\n[workload]\npath = '/'\n"
        );
        StudyFile::parse("x.toml", text, false, &[]).err().map(|refusal| refusal.to_string())
    }

    /// A tier called `study` had the CPU time of Kendall itself, `clients` stood for the ends of
    /// links, and `a/b` made a folder in another one.
    #[test]
    fn names_that_mean_something_else_are_refused_where_they_are_read() {
        for name in ["study", "generator", "clients", "a/b", "port"] {
            let said = refusal("web", name).unwrap();
            assert!(said.contains("system.tiers.1.name") && said.contains(name), "{said}");
        }
        assert!(refusal("web", "web").unwrap().contains("another tier's name"));
        assert_eq!(refusal("zfront", "workers"), None);
    }

    #[test]
    fn the_graph_is_what_the_file_says_and_not_the_order_of_its_tiers() {
        let text = "name = 'x'\n[system]\nkind = 'processes'\n\
                    [[system.tiers]]\nname = 'abackend'\ncommand = ['true']\n\
                    [[system.tiers]]\nname = 'zfront'\ncommand = ['true']\nbackends = ['abackend']\n\
                    [links]\n'zfront -> abackend' = { delay = '5ms' }\n\
                    [workload]\npath = '/'\n";
        let study = StudyFile::parse("x.toml", text.to_owned(), false, &[]).unwrap();
        let graph = study.settings(&[]).unwrap().graph();
        assert_eq!(graph.entry().unwrap().as_str(), "zfront");
        assert_eq!(graph.tiers[0].tier, "zfront");
        assert_eq!(graph.edges[1].link.as_ref().unwrap().delay_ns, 5_000_000);
    }
}
