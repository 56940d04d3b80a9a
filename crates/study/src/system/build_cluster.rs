//! `kind = "build-cluster"`: Kendall's build cache by itself, or before it a scheduler with workers.

use kendall_host::launch::Ready;
use kendall_keys::Form;
use kendall_protocols::topology::{Pool, PoolKind};
use kendall_units::exact_f64;
use serde_json::json;

use crate::section::{BYTES, Key, Problem, Quantities as _, SHARE, Section};
use crate::system::SystemKind;
use crate::topology::{Started, TierSpec, Topology};

pub(super) const KIND: SystemKind = SystemKind {
    sometimes: &[FRONT, SCHEDULER, WORKERS],
    ..SystemKind::new("build-cluster", "reapi", &[KEYS], read)
};

const CORE: &[Form] = &[Form::Quantity(&SHARE), Form::Choice(&["unlimited"])];

const KEYS: &[Key] = &[
    Key::count("workers", 0, 64, "workers; without any, the clients talk to the cache").or("0"),
    Key::count("concurrency", 1, 4096, "actions at the same time on each worker").or("4"),
    Key::new(
        "worker_cores",
        Form::Either(&[Form::Choice(&["all"]), Form::Number]),
        "cores of each worker, by a control group",
    )
    .or("'all'"),
    Key::text("size", "`2x1`: two workers of one core each; stands for both keys").optional(),
    Key::new(
        "core",
        Form::Either(CORE),
        "what `cores` count: a share of a core of this machine, so that four of `50%` fit on two; \
         `unlimited` limits nothing",
    )
    .or("'100%'"),
    Key::count("caches", 1, 64, "cache servers; with several, a front is started before them")
        .or("1"),
    Key::count("cache_threads", 1, 256, "network threads of each cache").or("2"),
    Key::new(
        "cache_cores",
        Form::Either(&[Form::Choice(&["all"]), Form::Number]),
        "cores of each cache, by a control group",
    )
    .or("'all'"),
    Key::quantity("cache_quota", &BYTES, "most bytes of each cache on disk").or("'1GiB'"),
    Key::choice("storage", &["disk", "memory"], "where it keeps them: `memory` is `/dev/shm`")
        .or("'disk'"),
    Key::texts("cache_options", "further arguments of `kendall serve cache`"),
    Key::texts("front_options", "further arguments of `kendall serve cache-front`"),
    Key::texts("scheduler_options", "further arguments of `kendall serve scheduler`"),
    Key::texts("worker_options", "further arguments of `kendall serve worker`"),
];

const CACHE: &str = "cache";
const FRONT: &str = "front";
const SCHEDULER: &str = "scheduler";
const WORKERS: &str = "workers";

fn read(section: &mut Section<'_>) -> Result<Topology, Problem> {
    let core = core(section)?;
    let caches = section.small("caches")?;
    let front_options = section.words("front_options")?;
    let mut tiers = vec![cache(section, caches, core)?];
    let store = if caches > 1 { FRONT } else { CACHE };
    if caches > 1 {
        tiers.push(front(front_options));
    }
    let workers = workers(section, store, core)?;
    let scheduler_options = section.words("scheduler_options")?;
    let Some(workers) = workers else {
        return Ok(Topology { tiers, entry: store.into(), filled: Vec::new() });
    };
    let line = format!("scheduler --listen {{host}}:0 --cache {{{store}}}");
    let mut arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
    arguments.extend(scheduler_options);
    let scheduler = TierSpec {
        backends: vec![store.into()],
        ..TierSpec::started(SCHEDULER, "build-scheduler", Started::kendall(1, arguments))
    };
    tiers.extend([scheduler, workers]);
    Ok(Topology { tiers, entry: SCHEDULER.into(), filled: Vec::new() })
}

/// The share of a real core that a core is; none where cores limit nothing.
fn core(section: &mut Section<'_>) -> Result<Option<f64>, Problem> {
    if matches!(section.raw("core"), Some(toml::Value::String(text)) if text == "unlimited") {
        section.effective("core", json!("unlimited"));
        return Ok(None);
    }
    let core = section.share("core")?;
    if core <= 0.0 {
        return Err(section.problem("core", "must be above zero; write it like `50%`"));
    }
    Ok(Some(core))
}

fn front(options: Vec<String>) -> TierSpec {
    let line = format!("cache-front --listen {{host}}:0 --server={{each:{CACHE}}}");
    let mut arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
    arguments.extend(options);
    TierSpec {
        backends: vec![CACHE.into()],
        ..TierSpec::started(FRONT, "build-cache-front", Started::kendall(1, arguments))
    }
}

fn cache(section: &mut Section<'_>, caches: u32, core: Option<f64>) -> Result<TierSpec, Problem> {
    let threads = section.small("cache_threads")?;
    let quota = section.bytes("cache_quota")?;
    let in_memory = section.choice("storage", &[("disk", false), ("memory", true)])?;
    // The seed is that of the run: a run that is repeated after a kill finds its own folder again.
    let data = if in_memory { "/dev/shm/kendall-{seed}-{instance}" } else { "{folder}/data" };
    let line = format!("cache --listen {{host}}:0 --threads {threads} --quota {quota}B --data");
    let mut arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
    arguments.push(data.into());
    let cores = cores(section, "cache_cores")?;
    arguments.extend(section.words("cache_options")?);
    if caches > 1 {
        arguments.push("--behind-front".into());
    }
    let mut started = Started::kendall(caches, arguments);
    started.scratch = Some(data.into());
    started.cores = cores.zip(core).map(|(cores, core)| cores * core);
    Ok(TierSpec {
        pools: vec![Pool { of: PoolKind::Threads, servers: threads }],
        ..TierSpec::started(CACHE, "build-cache", started)
    })
}

/// The workers; none where there are none.
fn workers(
    section: &mut Section<'_>,
    store: &str,
    core: Option<f64>,
) -> Result<Option<TierSpec>, Problem> {
    let (instances, cores) = match size(section)? {
        Some((instances, cores)) => (instances, Some(exact_f64(cores))),
        None => (section.small("workers")?, cores(section, "worker_cores")?),
    };
    let concurrency = section.small("concurrency")?;
    let options = section.words("worker_options")?;
    if instances == 0 {
        return Ok(None);
    }
    let line = format!(
        "worker --name worker-{{instance}} --scheduler {{{SCHEDULER}}} --cache {{{store}}} \
         --slots {concurrency} --data {{folder}}/data"
    );
    let mut arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
    arguments.extend(options);
    let mut started = Started::kendall(instances, arguments);
    started.ready = Ready::Announced;
    started.scratch = Some("{folder}/data".into());
    started.cores = cores.zip(core).map(|(cores, core)| cores * core);
    Ok(Some(TierSpec {
        backends: vec![store.into()],
        joins: vec![SCHEDULER.into()],
        pools: vec![Pool { of: PoolKind::Workers, servers: concurrency }],
        ..TierSpec::started(WORKERS, "build-worker", started)
    }))
}

/// `2x1` as workers and cores of each.
fn size(section: &mut Section<'_>) -> Result<Option<(u32, u32)>, Problem> {
    let Some(text) = section.opt_text("size")? else { return Ok(None) };
    for key in ["workers", "worker_cores"] {
        if section.has(key) {
            return Err(section.problem(key, "is already given by `size`; leave one of them out"));
        }
    }
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| *number > 0);
    let parts = text.split_once('x');
    let found = parts.and_then(|(workers, cores)| Some((number(workers)?, number(cores)?)));
    let Some((workers, cores)) = found else {
        let what = format!("`{text}` is not workers times cores; write it like `2x1`");
        return Err(section.problem("size", what));
    };
    section.effective("workers", json!(workers));
    section.effective("worker_cores", json!(cores));
    Ok(Some((workers, cores)))
}

/// A number of cores; none for `all`.
fn cores(section: &mut Section<'_>, key: &str) -> Result<Option<f64>, Problem> {
    if matches!(section.raw(key), None | Some(toml::Value::String(_))) {
        if section.text(key)? == "all" {
            return Ok(None);
        }
        return Err(section.problem(key, "is not a number of cores; write 2, 0.5 or \"all\""));
    }
    let cores = section.number(key)?.filter(|cores| *cores > 0.0);
    cores.map(Some).ok_or_else(|| section.problem(key, "must be above zero, or \"all\""))
}

#[cfg(test)]
mod tests {
    use kendall_protocols::topology::Graph;

    use crate::file::StudyFile;
    use crate::settings::Settings;
    use crate::topology::Source;

    fn settings(system: &str) -> Result<Settings, String> {
        let text = format!("name = 'x'\n[system]\nkind = 'build-cluster'\n{system}\n[workload]\n");
        let study = StudyFile::parse("x.toml", text, false, &[]).map_err(|e| e.to_string())?;
        study.settings(&[]).map_err(|error| error.to_string())
    }

    fn names(graph: &Graph) -> Vec<&str> {
        graph.tiers.iter().map(|node| node.tier.as_str()).collect()
    }

    #[test]
    fn a_cache_alone_is_what_the_clients_talk_to() {
        let settings = settings("").unwrap();
        assert_eq!(names(&settings.graph()), ["cache"]);
        assert_eq!(settings.workload.protocol, "reapi");
    }

    #[test]
    fn several_caches_have_a_front_that_everybody_talks_to() {
        let settings = settings("caches = 3\nworkers = 1").unwrap();
        assert_eq!(names(&settings.graph()), ["scheduler", "front", "workers", "cache"]);
        assert_eq!(settings.topology.tier("workers").unwrap().backends, ["front"]);
        let cache = settings.topology.tier("cache").unwrap();
        let Source::Started(started) = &cache.source else { panic!("{cache:?}") };
        assert!(started.instances == 3 && started.command.contains(&"--behind-front".to_owned()));
    }

    #[test]
    fn cores_that_are_unlimited_limit_nothing() {
        let settings = settings("size = '1x4'\ncore = 'unlimited'\ncache_cores = 1").unwrap();
        for tier in &settings.topology.tiers {
            let Source::Started(started) = &tier.source else { panic!("{tier:?}") };
            assert_eq!(started.cores, None, "{tier:?}");
        }
    }

    /// Workers connect to the scheduler, and requests go the other way.
    #[test]
    fn requests_go_from_the_scheduler_to_the_workers_that_joined_it() {
        let settings = settings("workers = 2\nconcurrency = 3").unwrap();
        let graph = settings.graph();
        assert_eq!(graph.entry().unwrap().as_str(), "scheduler");
        assert_eq!(names(&graph), ["scheduler", "cache", "workers"]);
        let workers = &graph.tiers[2];
        assert_eq!((workers.instances, workers.pools[0].servers), (2, 3));
        let way: Vec<&str> = graph.way_to(&workers.tier).iter().map(|e| e.to.as_str()).collect();
        assert_eq!(way, ["scheduler", "workers"]);
        let order: Vec<&str> =
            settings.topology.start_order().unwrap().iter().map(|t| t.name.as_str()).collect();
        assert_eq!(order, ["cache", "scheduler", "workers"]);
    }

    #[test]
    fn a_size_says_workers_and_the_share_of_the_machine_that_each_has() {
        let settings = settings("size = '2x1'\ncore = '50%'").unwrap();
        let workers = settings.topology.tier("workers").unwrap();
        let Source::Started(started) = &workers.source else { panic!("{workers:?}") };
        assert_eq!((started.instances, started.cores), (2, Some(0.5)));
        assert_eq!(settings.effective["system"]["worker_cores"], 1);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (system, what) in [
            ("concurrency = 0", "1 to 4096"),
            ("size = '2x0'", "like `2x1`"),
            ("size = '1x1'\nworkers = 2", "is already given by `size`"),
            ("cache_cores = 'two'", "not a number of cores"),
            ("cache_cores = 0", "above zero"),
            ("core = '0%'", "above zero"),
        ] {
            let error = settings(system).unwrap_err();
            assert!(error.contains(what), "{system}: {error}");
        }
    }
}
