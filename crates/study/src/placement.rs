//! `[hosts]` and `[place]`: which hosts there are, and what runs where.

use std::collections::BTreeMap;

use kendall_host::hosts::{At, Engine, HERE, HostSpec, Hosts, LOCALHOST, Pods};
use kendall_keys::Form;
use serde_json::{Value as Json, json};
use toml::Value;

use crate::section::{BYTES, Key, Problem, Quantities as _, Section, TIME};
use crate::topology::{CLIENTS, Source, Topology};

/// Keys of `[hosts]` that name no host.
pub(crate) const HOSTS: &[Key] = &[
    Key::choice("engine", &["ssh", "command", "kubernetes"], "what carries the pipe to each host")
        .or("'ssh'"),
    Key::texts(
        "prefix",
        "engine `command`: command put before `sh -c SCRIPT`, such as `[\"srun\", \"-w\", \"{host}\"]`; \
         if it ends with `-c`, only the script follows, as one word",
    ),
    Key::text("program", "the `kendall` that is copied to the hosts; by default this one")
        .optional(),
    Key::text("context", "engine `kubernetes`: that of `kubectl`; its current one unless given")
        .optional(),
    Key::text("namespace", "engine `kubernetes`: where the pods are made").or("'default'"),
    Key::text("image", "engine `kubernetes`: any with `sh`, small tools such as `cat`, and `gzip`")
        .or("'debian:12-slim'"),
    Key::flag("apart", "engine `kubernetes`: whether each pod has a node of its own").or("true"),
    Key::quantity(
        "deadline",
        &TIME,
        "engine `kubernetes`: time after which a pod ends in any case",
    )
    .or("'24h'"),
];

/// Keys of `[hosts]` that only pods have.
const OF_PODS: [&str; 5] = ["context", "namespace", "image", "apart", "deadline"];

pub(crate) const HOST: &[Key] = &[
    Key::text("ssh", "what `ssh` takes; the host's name unless given").optional(),
    Key::text("address", "the host's IPv4 address on the network that is measured").optional(),
    Key::new(
        "node",
        Form::Named(&Form::Text),
        "engine `kubernetes`: labels of the node that the pod is to run on",
    )
    .optional(),
    Key::number("cpu", "engine `kubernetes`: cores that the pod has, no more and no fewer"),
    Key::quantity("memory", &BYTES, "engine `kubernetes`: memory that the pod has").optional(),
];

/// `[hosts]` and `[place]` of one configuration.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Placement {
    /// All hosts that the file names.
    pub hosts: Hosts,
    /// Of each tier that is placed, and of the clients: where its instances run, in turn.
    pub places: BTreeMap<String, Vec<At>>,
}

impl Placement {
    /// Where an instance of a tier runs; [`CLIENTS`] are the generators.
    pub fn at(&self, tier: &str, instance: u32) -> At {
        let places = self.places.get(tier).filter(|places| !places.is_empty());
        let turn = usize::try_from(instance).unwrap_or(0);
        places.map_or(At::Here, |places| places[turn % places.len()])
    }

    /// The hosts on which so many instances run, each once.
    pub fn of(&self, tier: &str, instances: u32) -> Vec<At> {
        let mut all = Vec::new();
        for instance in 0..instances {
            let at = self.at(tier, instance);
            if !all.contains(&at) {
                all.push(at);
            }
        }
        all
    }

    /// This without a host of generators, whose part the other hosts of generators take; `None` where it
    /// runs a tier, too, or is the only one.
    pub fn without(&self, host: &str) -> Option<Self> {
        let number = self.hosts.list.iter().position(|spec| spec.name == host)?;
        let gone = At::Host(number);
        let mut rest = self.clone();
        let generators = rest.places.get_mut(CLIENTS)?;
        let before = generators.len();
        generators.retain(|at| *at != gone);
        let fits = !generators.is_empty() && generators.len() < before;
        (fits && !rest.used().contains(&number)).then_some(rest)
    }

    /// All hosts that something is placed on, this machine left out.
    pub fn used(&self) -> Vec<usize> {
        let mut used: Vec<usize> = self
            .places
            .values()
            .flatten()
            .filter_map(|at| if let At::Host(host) = at { Some(*host) } else { None })
            .collect();
        used.sort_unstable();
        used.dedup();
        used
    }

    /// A host's name as rows and reports say it.
    pub fn name(&self, at: At) -> &str {
        match at {
            At::Here => LOCALHOST,
            At::Host(host) => self.hosts.list.get(host).map_or("", |host| host.name.as_str()),
        }
    }

    /// Reads `[hosts]` and `[place]`; with them the effective values, where there are any.
    pub(crate) fn read(
        root: &mut Section<'_>,
        (topology, sometimes): (&Topology, &[&str]),
        generators: u32,
    ) -> Result<(Self, Option<(Json, Json)>), Problem> {
        let written = root.has("hosts") || root.has("place");
        let (hosts, hosts_effective) = hosts(root.section("hosts")?.declared(HOSTS))?;
        let (places, place_effective) =
            places(root.section("place")?, (topology, sometimes), &hosts)?;
        let placement = Self { hosts, places };
        placement.check(topology, generators)?;
        Ok((placement, written.then_some((hosts_effective, place_effective))))
    }

    /// Refuses what could not be reached: loopback is not seen from elsewhere.
    fn check(&self, topology: &Topology, generators: u32) -> Result<(), Problem> {
        let places = |tier: &str| self.of(tier, topology.started(tier, generators));
        for (from, to) in topology.edges() {
            for at in places(&to) {
                let elsewhere = places(&from).into_iter().find(|asker| *asker != at);
                let Some(asker) = elsewhere else { continue };
                if asker == At::Here && at != At::Here && self.needs_address(at, true) {
                    let host = self.name(at);
                    let what = format!(
                        "runs here and talks to `{to}` in the pod {host}, which is not reached from \
                         outside of its cluster; place it on a host, too, or state an address of \
                         {host} that is"
                    );
                    return Err(Problem { key: format!("place.{from}"), what });
                }
                let asker = self.name(asker);
                let (key, form) = match at {
                    At::Here if self.hosts.here.is_none() => {
                        (HERE.to_owned(), "here = { address = \"10.0.0.1\" }".to_owned())
                    }
                    At::Host(_) if self.needs_address(at, false) => {
                        let name = self.name(at);
                        (name.to_owned(), format!("{name} = {{ address = \"10.0.0.2\" }}"))
                    }
                    _ => continue,
                };
                let what = format!(
                    "has no address, and `{from}` on {asker} talks to `{to}` there; write {form}"
                );
                return Err(Problem { key: format!("hosts.{key}"), what });
            }
        }
        Ok(())
    }

    /// Whether nothing but the file can say its address, to those inside of its cluster or outside.
    fn needs_address(&self, at: At, outside: bool) -> bool {
        let At::Host(host) = at else { return false };
        let known = match self.hosts.engine {
            Engine::Ssh => true,
            Engine::Command { .. } => outside,
            Engine::Kubernetes(_) => !outside,
        };
        !known && self.hosts.list.get(host).is_some_and(|host| host.address.is_none())
    }
}

fn hosts(mut section: Section<'_>) -> Result<(Hosts, Json), Problem> {
    let engine = section.text("engine")?;
    let prefix = section.words("prefix")?;
    let program = section.opt_text("program")?;
    let engine = match (engine.as_str(), prefix.is_empty()) {
        ("ssh", true) => Engine::Ssh,
        ("ssh", false) => {
            let what = "is for `engine = \"command\"`; options of ssh belong into ~/.ssh/config";
            return Err(section.problem("prefix", what));
        }
        ("kubernetes", true) => Engine::Kubernetes(pods(&mut section)?),
        ("kubernetes", false) => {
            return Err(section.problem("prefix", "is for `engine = \"command\"`"));
        }
        (_, true) => {
            let what =
                "is missing; write what carries the pipe, such as [\"srun\", \"-w\", \"{host}\"]";
            return Err(section.problem("prefix", what));
        }
        (_, false) => Engine::Command { prefix },
    };
    let is_pods = matches!(engine, Engine::Kubernetes(_));
    if let Some(key) = OF_PODS.into_iter().find(|key| !is_pods && section.has(key)) {
        return Err(section.problem(key, "is for `engine = \"kubernetes\"`"));
    }
    let mut hosts = Hosts { engine, program, ..Hosts::default() };
    let own = |name: &str| HOSTS.iter().any(|key| key.name == name);
    for (name, value) in section.entries().into_iter().filter(|(name, _)| !own(name)) {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || !name.chars().all(plain) || name == LOCALHOST {
            let what = "is not a name for a host; use letters (of ASCII), digits, `-`, `_` and `.`";
            return Err(section.problem(name, what));
        }
        let (spec, effective) = host(&section, name, value, is_pods)?;
        section.effective(name, effective);
        if name == HERE {
            hosts.here = spec.address;
        } else {
            hosts.list.push(spec);
        }
    }
    Ok((hosts, section.named()))
}

fn pods(section: &mut Section<'_>) -> Result<Pods, Problem> {
    let pods = Pods {
        context: section.opt_text("context")?,
        namespace: section.text("namespace")?,
        image: section.text("image")?,
        apart: section.flag("apart")?,
        deadline_s: section.seconds("deadline")?.as_nanos() / 1_000_000_000,
    };
    let option = [Some(&pods.namespace), pods.context.as_ref(), Some(&pods.image)];
    if option.into_iter().flatten().any(|text| text.is_empty() || text.starts_with('-')) {
        let what = "and `context` and `image` are names, and none is empty or begins with `-`";
        return Err(section.problem("namespace", what));
    }
    if pods.deadline_s == 0 {
        return Err(section.problem("deadline", "is shorter than a second"));
    }
    Ok(pods)
}

/// A host, and its effective value.
fn host(
    section: &Section<'_>,
    name: &str,
    value: &Value,
    is_pod: bool,
) -> Result<(HostSpec, Json), Problem> {
    let mut spec =
        HostSpec { name: name.to_owned(), target: name.to_owned(), ..HostSpec::default() };
    let table = match value {
        Value::String(target) if name != HERE && !is_pod && !target.starts_with('-') => {
            spec.target.clone_from(target);
            return Ok((spec, json!(target)));
        }
        Value::Table(table) => table,
        other => {
            let form = if is_pod {
                "{} or { node = { pool = \"web\" }, cpu = 2, memory = \"2GiB\" }"
            } else {
                "\"user@machine\" or { ssh = \"user@machine\", address = \"10.0.0.2\" }"
            };
            return Err(section.problem(name, format!("`{other}` is not a host; write {form}")));
        }
    };
    let mut keys = Section::new(&section.path_of(name), table, &[HOST]);
    let of_another = if is_pod { &["ssh"][..] } else { &["node", "cpu", "memory"] };
    if let Some(key) = of_another.iter().find(|key| keys.has(key)) {
        return Err(keys.problem(key, "is for another `engine`"));
    }
    if let Some(target) = keys.opt_text("ssh")? {
        if target.starts_with('-') {
            return Err(keys.problem("ssh", "is an option of ssh, and no host"));
        }
        spec.target = target;
    }
    spec.address = keys.opt_text("address")?;
    if let Some(text) = &spec.address
        && text.parse::<std::net::Ipv4Addr>().is_err()
    {
        let what = format!("`{text}` is not an IPv4 address; write it like `10.0.0.2`");
        return Err(keys.problem("address", what));
    }
    if is_pod {
        pod(&mut keys, &mut spec)?;
    }
    Ok((spec, keys.finish()?))
}

/// What only a pod has.
fn pod(keys: &mut Section<'_>, spec: &mut HostSpec) -> Result<(), Problem> {
    if let Some(value) = keys.raw("node") {
        let labels = value.as_table().map(|table| {
            table.iter().map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        });
        let labels = labels.and_then(Iterator::collect::<Option<BTreeMap<String, String>>>);
        let form = "is not a table of labels; write { pool = \"web\" }";
        spec.node = labels.ok_or_else(|| keys.problem("node", form))?;
        keys.effective("node", json!(spec.node));
    }
    spec.cpu = keys.number("cpu")?;
    if spec.cpu.is_some_and(|cpu| cpu <= 0.0) {
        return Err(keys.problem("cpu", "must be above zero"));
    }
    if keys.has("memory") {
        spec.memory_bytes = Some(keys.bytes("memory")?);
    }
    Ok(())
}

type Places = BTreeMap<String, Vec<At>>;

fn places(
    mut section: Section<'_>,
    (topology, sometimes): (&Topology, &[&str]),
    hosts: &Hosts,
) -> Result<(Places, Json), Problem> {
    let mut places = BTreeMap::new();
    for (name, value) in section.entries() {
        let tier = topology.tier(name);
        let absent = tier.is_none() && sometimes.contains(&name);
        if tier.is_none() && name != CLIENTS && !absent {
            let known: Vec<&str> = topology.tiers.iter().map(|tier| tier.name.as_str()).collect();
            let what = format!("is not a tier; known here: {}, {CLIENTS}", known.join(", "));
            return Err(section.problem(name, what));
        }
        if tier.is_some_and(|tier| matches!(tier.source, Source::Attached(_))) {
            return Err(section.problem(
                name,
                "is already running: only tiers that the study starts \
                                              can be placed",
            ));
        }
        let words = match value {
            Value::String(host) => vec![host.clone()],
            Value::Array(items) if !items.is_empty() => items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| section.problem(name, "is not a list of hosts"))?,
            other => {
                let what = format!("`{other}` is not a list of hosts; write [\"here\"]");
                return Err(section.problem(name, what));
            }
        };
        let at = |word: &String| {
            let host = hosts.list.iter().position(|host| host.name == *word).map(At::Host);
            host.or((word == HERE).then_some(At::Here)).ok_or_else(|| {
                let known: Vec<&str> = hosts.list.iter().map(|host| host.name.as_str()).collect();
                let close = kendall_keys::did_you_mean(word, known.iter().copied());
                let known = known.join(", ");
                section.problem(
                    name,
                    format!("`{word}` is not a host of [hosts]{close} (known: {known}, {HERE})"),
                )
            })
        };
        let ats = words.iter().map(at).collect::<Result<Vec<At>, _>>()?;
        if !absent {
            places.insert(name.to_owned(), ats);
        }
        section.effective(name, json!(words));
    }
    Ok((places, section.named()))
}

#[cfg(test)]
mod tests {
    use crate::file::StudyFile;

    fn study(hosts: &str) -> Result<StudyFile, String> {
        let text = format!(
            "name = 'x'\n[system]\nkind = 'memcached-proxy'\nservers = 3\nproxies = 2\n[workload]\n\
             clients = 8\ngenerators = 2\nmix = {{ get = 1 }}\n{hosts}"
        );
        StudyFile::parse("x.toml", text, false, &[]).map_err(|refusal| refusal.to_string())
    }

    const THREE: &str = "[hosts]\nweb = 'web1'\ndb = { ssh = 'bob@db1', address = '10.0.1.2' }\n\
                         load = { ssh = 'load1' }\n";

    #[test]
    fn instances_take_their_hosts_in_turn() {
        let placed = format!(
            "{THREE}[place]\nservers = ['db', 'web']\nproxies = 'web'\nclients = ['load']\n"
        );
        let placement = study(&placed).unwrap().settings(&[]).unwrap().placement;
        let names = (0..3).map(|i| placement.name(placement.at("servers", i))).collect::<Vec<_>>();
        assert_eq!(names, ["db", "web", "db"]);
        assert_eq!(placement.name(placement.at("clients", 1)), "load");
        assert_eq!(placement.used(), [0, 1, 2]);
        assert_eq!(placement.hosts.list[1].target, "bob@db1");
    }

    #[test]
    fn a_tier_that_only_some_configurations_have_can_be_placed() {
        let text = "name = 'x'\n[system]\nkind = 'build-cluster'\n[workload]\n[hosts]\n\
                    a = { address = '10.0.1.1' }\nb = { address = '10.0.1.2' }\n[place]\ncache = 'a'\n\
                    front = 'b'\nclients = 'a'\n[factors]\n'system.caches' = [1, 3]\n";
        let study = StudyFile::parse("x.toml", text.into(), false, &[]).unwrap();
        let of = |level| study.settings(&[Some(level)]).unwrap().placement;
        assert_eq!(of(0).used(), [0]);
        assert_eq!((of(1).used(), of(1).at("front", 0)), (vec![0, 1], super::At::Host(1)));
    }

    #[test]
    fn what_cannot_be_is_refused_at_its_key() {
        let refused = |text: &str| study(&format!("{THREE}{text}")).unwrap_err();
        let said = refused("[place]\nservers = ['webb']\n");
        assert!(said.contains("place.servers") && said.contains("did you mean `web`"), "{said}");
        assert!(refused("[place]\nserver = ['db']\n").contains("is not a tier"));
        let said = refused("[place]\nproxies = ['web']\n");
        assert!(said.contains("hosts.here") && said.contains("write here = {"), "{said}");
        let said = study("[hosts]\nweb = 3\n").unwrap_err();
        assert!(said.contains("hosts.web"), "{said}");
        assert!(study("[hosts]\nweb = '-oProxyCommand=x'\n").is_err());
        // It would be put before `:PORT` as it is.
        let said = study("[hosts]\nweb = { address = 'fd00::2' }\n").unwrap_err();
        assert!(
            said.contains("hosts.web.address") && said.contains("not an IPv4 address"),
            "{said}"
        );
        assert!(study("[hosts]\nengine = 'command'\n").unwrap_err().contains("hosts.prefix"));
        let said = study(
            "[hosts]\nengine = 'command'\nprefix = ['sh', '-c']\na = {}\n[place]\nservers = 'a'\n",
        );
        assert!(said.unwrap_err().contains("a = { address"));
    }

    #[test]
    fn pods_are_said_with_what_they_have() {
        let pods = "[hosts]\nengine = 'kubernetes'\nnamespace = 'perf'\n\
                    web = { node = { pool = 'web' }, cpu = 2, memory = '2GiB' }\nload = {}\n";
        let all = "[place]\nservers = 'web'\nproxies = 'web'\nclients = 'load'\n";
        let placement = study(&format!("{pods}{all}")).unwrap().settings(&[]).unwrap().placement;
        let super::Engine::Kubernetes(found) = &placement.hosts.engine else { panic!("pods") };
        assert_eq!((found.namespace.as_str(), found.deadline_s), ("perf", 86_400));
        assert!(found.apart && found.image == "debian:12-slim");
        let web = &placement.hosts.list[0];
        assert_eq!((web.cpu, web.memory_bytes), (Some(2.0), Some(2 << 30)));
        assert_eq!(web.node["pool"], "web");
        // What runs here does not reach into a cluster.
        let said = study(&format!("{pods}[place]\nservers = 'web'\n")).unwrap_err();
        assert!(said.contains("place.proxies") && said.contains("not reached"), "{said}");
        for (text, what) in [
            ("[hosts]\nnamespace = 'x'\n", "hosts.namespace"),
            ("[hosts]\nweb = { cpu = 2 }\n", "hosts.web.cpu"),
            ("[hosts]\nengine = 'kubernetes'\nweb = 'x'\n", "hosts.web"),
            ("[hosts]\nengine = 'kubernetes'\nweb = { ssh = 'x' }\n", "hosts.web.ssh"),
            ("[hosts]\nengine = 'kubernetes'\nweb = { cpu = 0 }\n", "above zero"),
            ("[hosts]\nengine = 'kubernetes'\nweb = { node = 3 }\n", "hosts.web.node"),
            ("[hosts]\nengine = 'kubernetes'\nnamespace = '--all'\n", "hosts.namespace"),
        ] {
            let said = study(text).unwrap_err();
            assert!(said.contains(what), "{text}: {said}");
        }
    }

    #[test]
    fn a_place_can_be_a_factor_and_a_study_without_hosts_is_what_it_was() {
        let factor = format!(
            "{THREE}here = {{ address = '10.0.1.9' }}\n[place]\nservers = 'db'\nclients = 'load'\n\
             [factors]\n'place.proxies' = [['web'], ['db']]\n"
        );
        let study_with = study(&factor).unwrap();
        let name = |level| {
            let settings = study_with.settings(&[Some(level)]).unwrap();
            settings.placement.name(settings.placement.at("proxies", 0)).to_owned()
        };
        assert_eq!((name(0), name(1)), ("web".to_owned(), "db".to_owned()));
        let plain = study("").unwrap().effective();
        assert!(plain.get("hosts").is_none() && plain.get("place").is_none());
    }
}
