//! The study files that `kendall init` writes.

use kendall_units::Seconds;

use super::command::Looked;
use super::probe::{Attached, Calls, Found, HEALTH, Protocol};

/// What a study is called, and how its services are tried.
pub(super) struct Asked<'a> {
    /// As it was typed, behind `kendall init`.
    pub(super) arguments: String,
    pub(super) study: &'a str,
    pub(super) path: &'a str,
    pub(super) ready_deadline: Seconds,
}

/// What the answer of a load curve is about.
const PLAIN_QUESTION: &str = "How much load does it carry, and what limits it?";

/// A study that starts commands; clients talk to the last.
pub(super) fn processes(
    asked: &Asked<'_>,
    (tiers, calls): (&[Looked], &Calls),
    found: &Found,
) -> String {
    let workers = tiers.last().and_then(|looked| looked.workers);
    let (parameters, factor, toy) = match workers {
        Some(workers) => (
            format!(
                "[system.parameters]\nworkers = {workers}                              # the command takes it as {{workers}}\n\n"
            ),
            format!("\"system.parameters.workers\" = {:?}\n", levels(workers)),
            format!("\"factors.system.parameters.workers\" = [{workers}]\n"),
        ),
        None => Default::default(),
    };
    let question = match workers {
        Some(_) => "How many workers does it need, and where does it saturate?",
        None => PLAIN_QUESTION,
    };
    let varied = if workers.is_some() { "workers and clients" } else { "clients" };
    let last = tiers.len().saturating_sub(1);
    let speaks = |number| (number == last).then_some(found.protocol);
    let tables =
        tiers.iter().enumerate().map(|(number, one)| tier(asked, (one, calls), speaks(number)));
    let entry = tiers.last().filter(|_| tiers.len() > 1).map_or_else(String::new, |last| {
        format!("entry = {:<32} # clients talk to it\n", quoted(&last.name))
    });
    format!(
        "# Made by `kendall init {arguments}`. Every key: docs/study-files.md.\n\
         # Commands run in the folder that `kendall run` is started in.\n\n\
         name = {name}\n\
         title = {title}\n\
         question = {question}\n\
         # objective = \"p99 < 100ms\"                # if given, it is what the answer is about\n\n\
         [system]\nkind = \"processes\"                       # started by commands, anew for every run\n{entry}\n\
         {parameters}{tables}\n{workload}\n{measure}\
         [factors]                                # what is varied: every combination is measured\n\
         {factor}\"workload.clients\" = [1, 4, 16, 64]\n\n\
         [toy]                                    # kendall run --toy\n\
         \"measure.duration\" = \"1s\"\n\"measure.repetitions\" = 1\n\"measure.retries\" = 0\n\"measure.warm_up\" = \"0s\"\n\
         \"measure.cool_down\" = \"0s\"\n{toy}\"factors.workload.clients\" = [2]\n",
        arguments = asked.arguments.replace(['\n', '\r'], " "),
        name = quoted(asked.study),
        title = quoted(&format!("{}: throughput and response time by {varied}", asked.study)),
        question = quoted(question),
        tables = tables.collect::<Vec<_>>().join("\n"),
        workload = workload(found, asked.path),
        measure = MEASURE,
    )
}

/// One tier; `speaks` is what the one speaks that clients talk to.
fn tier(asked: &Asked<'_>, (looked, calls): (&Looked, &Calls), speaks: Option<Protocol>) -> String {
    let list =
        |words: &[String]| words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(", ");
    let ready = match speaks {
        Some(Protocol::Http | Protocol::Https) => format!("{{ http = {} }}", quoted(asked.path)),
        _ => "\"tcp\"".to_owned(),
    };
    let fill = if speaks.is_some_and(Protocol::is_filled) { "fill = true\n" } else { "" };
    let is_seen = |other: &String| calls.contains(&(looked.name.clone(), other.clone()));
    let (seen, unseen): (Vec<String>, Vec<String>) =
        looked.unnamed.iter().cloned().partition(is_seen);
    let called = [&looked.backends[..], &seen].concat();
    let declared = |of: &[String]| format!("backends = [{}]\n", list(of));
    let mut backends = if called.is_empty() { String::new() } else { declared(&called) };
    // A command may only name what is declared.
    for other in looked.backends.iter().filter(|other| !is_seen(other)) {
        backends += &format!(
            "# Does it call {other}, which its command names? No connection was seen when it was tried.\n"
        );
    }
    if !unseen.is_empty() {
        backends += &format!(
            "# Does it call {}? No connection was seen when it was tried. If so, write it:\n# {}",
            unseen.join(", "),
            declared(&[&called[..], &unseen].concat())
        );
    }
    format!(
        "[[system.tiers]]\nname = {name}\n\
         # {{address}} is a free HOST:PORT that the study chooses, {{port}} its port.\n\
         command = [{words}]\n{backends}ready = {ready}\nready_deadline = {deadline}\n{fill}\
         stop = \"SIGTERM\"\n",
        name = quoted(&looked.name),
        words = list(&looked.words),
        deadline = quoted(&format!("{}s", asked.ready_deadline.get())),
    )
}

/// A study of a service that runs already.
pub(super) fn attached(
    (target, study): (&str, &str),
    at: &Attached,
    found: &Found,
    path: &str,
) -> String {
    let measured = match (&at.group, at.pid) {
        (Some(group), _) => {
            format!("cgroups = [{}]     # CPU time and memory are read from there\n", quoted(group))
        }
        (None, Some(pid)) => format!(
            "pids = [{pid}]                             # CPU time is read from it and from those below; change it after a restart\n"
        ),
        (None, None) => {
            "# pids = [1234]                          # its process: CPU time is read from there\n"
                .to_owned()
        }
    };
    let fill = if found.protocol.is_filled() { "fill = true\n" } else { "" };
    format!(
        "# Made by `kendall init --attach {target}`. Every key: docs/study-files.md.\n\n\
         name = {name}\n\
         title = {title}\n\
         question = \"{PLAIN_QUESTION}\"\n\
         # objective = \"p99 < 100ms\"                # if given, it is what the answer is about\n\n\
         [system]\nkind = \"attached\"                        # runs already: the study loads and observes it\n\n\
         [[system.tiers]]\nname = \"service\"\naddresses = [{address}]\n{measured}{fill}\n{workload}\n{measure}\
         [factors]                                # what is varied: every combination is measured\n\
         \"workload.clients\" = [1, 4, 16, 64]\n\n\
         [toy]                                    # kendall run --toy\n\
         \"measure.duration\" = \"1s\"\n\"measure.repetitions\" = 1\n\"measure.retries\" = 0\n\"measure.warm_up\" = \"0s\"\n\
         \"measure.cool_down\" = \"0s\"\n\"factors.workload.clients\" = [2]\n",
        name = quoted(study),
        target = target.replace(['\n', '\r'], " "),
        title = quoted(&format!("{target}: throughput and response time by clients")),
        address = quoted(&at.address),
        workload = workload(found, path),
        measure = MEASURE,
    )
}

const MEASURE: &str = "[measure]\n\
    duration = \"12s\"                         # of each run; warm-up is found and cut\n\
    repetitions = 3                          # or { min = 3, max = 20, until = \"2%\" }\n\
    retries = 1                              # of each run that failed or was rejected\n\n";

fn workload(found: &Found, path: &str) -> String {
    let time = found.takes();
    let closed = "loop = \"closed\"                          # clients wait for their answers; \"open\" with a rate does not\n\
                  clients = 1                              # varied below\n";
    match found.protocol {
        Protocol::Memcached | Protocol::Redis => format!(
            "[workload]\nprotocol = \"{}\"\n{closed}mix = {{ set = 1, get = 10 }}\nvalue_size = \"1KiB\"\nkeys = 10_000\n",
            if found.protocol == Protocol::Redis { "redis" } else { "memcached" }
        ),
        Protocol::Postgres => {
            let user = std::env::var("PGUSER").unwrap_or_else(|_| "postgres".to_owned());
            let database = std::env::var("PGDATABASE").unwrap_or_else(|_| user.clone());
            format!(
                "[workload]\nprotocol = \"postgres\"\n{closed}user = {}                      # its password: \
                 PGPASSWORD, in the environment of `kendall run`\ndatabase = {}\nsql = \"SELECT 1\"                       \
                 # what a client asks; or scripts = [\"FILE\"], also those of pgbench\n",
                quoted(&user),
                quoted(&database)
            )
        }
        Protocol::Grpc => {
            let call = if path == "/" { HEALTH } else { path };
            format!(
                "[workload]\nprotocol = \"grpc\"\n{closed}call = {}\ndata = \"{{}}\"                              # \
                 the message of each call, as JSON\n",
                quoted(call.trim_start_matches('/'))
            )
        }
        protocol => {
            let scheme = if protocol == Protocol::Https {
                "scheme = \"https\"\n# options = [\"--insecure\"]               # takes any certificate\n"
            } else {
                ""
            };
            format!(
                "[workload]\nprotocol = \"http\"\n{scheme}{closed}path = {}                               # a request took about {time} when it was tried\n",
                quoted(path)
            )
        }
    }
}

/// Half, the same and double the workers.
fn levels(workers: u32) -> Vec<u32> {
    let mut levels = vec![(workers / 2).max(1), workers, workers.saturating_mul(2).min(1_024)];
    levels.dedup();
    levels
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A text as the name of a study: what a study's name may not have becomes `-`.
pub(super) fn as_name(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = text.chars().map(|c| if plain(c) { c } else { '-' }).collect();
    name.trim_matches(['.', '-']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kendall_study::StudyFile;

    #[test]
    fn what_is_written_is_accepted_whatever_the_command_holds() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<String>>();
        use Protocol::{Grpc, Http, Https, Memcached, Postgres, Redis};
        for protocol in [Http, Https, Grpc, Memcached, Redis, Postgres] {
            let found = Found { protocol, time: Some(Seconds::new(0.002)) };
            for command in ["./shop -w 1 -b :80", "./shop 'a\"b\\c' {x} ''' -b {address}"] {
                let command = words(command);
                let looked = Looked::at(&command).unwrap();
                let asked = Asked {
                    arguments: format!("-- {}", command.join(" ")),
                    study: "shop-2",
                    path: "/a?b=\"c\"",
                    ready_deadline: Seconds::new(20.0),
                };
                let tiers = std::slice::from_ref(&looked);
                let text = processes(&asked, (tiers, &Calls::new()), &found);
                for toy in [false, true] {
                    StudyFile::parse("init.toml", text.clone(), toy, &[]).unwrap();
                }
            }
            for (pid, group) in [(None, None), (Some(1), None), (Some(1), Some("a\\x2d\"b"))] {
                let (address, group) = ("127.0.0.1:80".to_owned(), group.map(str::to_owned));
                let at = Attached { address, pid, group };
                let text = attached(("http://127.0.0.1/", "127.0.0.1-80"), &at, &found, "/");
                StudyFile::parse("init.toml", text, true, &[]).unwrap();
            }
        }
        let tiers = ["db=./db {port}", "web=./web {address} --db {db}"].map(str::to_owned);
        let (arguments, path) = (String::new(), "/");
        let asked = Asked { arguments, study: "web", path, ready_deadline: Seconds::new(20.0) };
        let found = Found { protocol: Protocol::Http, time: None };
        let tiers = Looked::tiers(&tiers).unwrap();
        let seen = Calls::from([("web".to_owned(), "db".to_owned())]);
        let none = Calls::new();
        for (calls, asked_for) in [(&seen, false), (&none, true)] {
            let text = processes(&asked, (&tiers, calls), &found);
            let study = StudyFile::parse("init.toml", text.clone(), false, &[]).unwrap();
            assert_eq!(study.base.topology.entry, "web");
            let declared = text.lines().filter(|line| *line == "backends = [\"db\"]").count();
            assert_eq!(declared, 1, "{text}");
            assert_eq!(text.contains("# Does it call db, which"), asked_for, "{text}");
        }
        // Without its name in the command, only a connection shows it.
        let tiers = ["db=./db {port}", "web=./web {address}"].map(str::to_owned);
        let tiers = Looked::tiers(&tiers).unwrap();
        for (calls, declared) in [(&seen, true), (&none, false)] {
            let text = processes(&asked, (&tiers, calls), &found);
            StudyFile::parse("init.toml", text.clone(), false, &[]).unwrap();
            assert_eq!(text.contains("\nbackends = [\"db\"]\n"), declared, "{text}");
            assert_eq!(text.contains("\n# backends = [\"db\"]\n"), !declared, "{text}");
        }
        assert_eq!((levels(1), levels(4)), (vec![1, 2], vec![2, 4, 8]));
    }
}
