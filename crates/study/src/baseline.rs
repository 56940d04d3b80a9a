//! What the database of a system does by itself, before the first run: pgbench's usual transaction, by one
//! client and by several. It owes nothing to the tiers and loads of the study, and says how fast this
//! PostgreSQL on this disk is at all.

use std::path::Path;
use std::time::Duration;

use kendall_host::clock::Until;
use kendall_host::hosts::At;
use kendall_host::instance::ProcessError;
use kendall_host::launch::Launch;
use kendall_host::machines::Machines;
use serde_json::{Value as Json, json};

use crate::place::Starter;
use crate::seed::secret;
use crate::settings::Settings;

/// Where the environment of a run has what was measured.
pub(crate) const BASELINE: &str = "pgbench";
/// Clients of the second run, and branches of the tables: with fewer branches than clients they would
/// wait for each other's rows.
const CLIENTS: u32 = 4;
/// Seconds of each of the two runs, in a study whose runs are long.
const SECONDS: f64 = 3.0;
/// The role and the database of `kendall serve queue-database`.
const ROLE: &str = "kendall";
/// Longest wait for filling, which takes about a second.
const FILLING: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);

/// What is needed to start the database.
pub(crate) struct Baseline<'a> {
    pub(crate) machines: &'a Machines,
    pub(crate) settings: &'a Settings,
    /// Folder for what the processes say.
    pub(crate) folder: &'a Path,
    pub(crate) interrupted: &'a dyn Fn() -> bool,
}

impl Baseline<'_> {
    /// `{"seconds": …, "scale": …, "runs": [{"clients": 1, …}, …]}`, or `{"missing": "why"}`; `None` where the
    /// system has no such database, or the user stopped it.
    pub(crate) fn measure(self) -> Option<Json> {
        let tier = self.settings.kind.database?;
        if self.settings.placement.at(tier, 0) != At::Here {
            return Some(missing("the database is on another host"));
        }
        match self.of(tier) {
            Ok(measured) => Some(measured),
            Err(ProcessError::Interrupted) => None,
            Err(error) => Some(missing(&error.to_string())),
        }
    }

    fn of(self, tier: &str) -> Result<Json, ProcessError> {
        let mut settings = self.settings.clone();
        settings.topology.tiers.retain(|one| one.name == *tier);
        settings.topology.entry = tier.to_owned();
        settings.links.clear();
        let secret = secret()?;
        let running = Starter {
            machines: self.machines,
            settings: &settings,
            folder: self.folder,
            seed: 0,
            secret: &secret,
            interrupted: self.interrupted,
        }
        .start()?;
        let database = running.members.first().expect("the only tier was started");
        let address = database.address.clone();
        // The pgbench of the server that was started: several versions may be installed.
        let program = database.programs.as_ref().map(|folder| Path::new(folder).join("pgbench"));
        let seconds = (self.settings.measure.duration.get() / 10.0).clamp(1.0, SECONDS).round();
        let measured = match program.filter(|program| program.is_file()) {
            Some(program) => Bench {
                machines: self.machines,
                program: &program,
                address: &address,
                secret: &secret,
                folder: self.folder,
                interrupted: self.interrupted,
            }
            .all(seconds),
            None => Ok(missing(
                "pgbench is not installed beside the server (Debian: in the server's package; with others \
                 postgresql-contrib)",
            )),
        };
        // Gone meanwhile, it would be the reason.
        let alive = running.check_alive();
        running.stop();
        alive.and(measured)
    }
}

struct Bench<'a> {
    machines: &'a Machines,
    program: &'a Path,
    address: &'a str,
    secret: &'a str,
    folder: &'a Path,
    interrupted: &'a dyn Fn() -> bool,
}

impl Bench<'_> {
    fn all(&mut self, seconds: f64) -> Result<Json, ProcessError> {
        let scale = CLIENTS.to_string();
        self.run("fill", &["--initialize", "--quiet", "--scale", &scale], FILLING)?;
        let mut runs = Vec::new();
        for clients in [1, CLIENTS] {
            let (number, time) = (clients.to_string(), seconds.to_string());
            let arguments =
                ["--no-vacuum", "--client", &number, "--jobs", &number, "--time", &time];
            let longest = Duration::from_secs_f64(seconds) + FILLING;
            let text = self.run(&format!("clients-{clients}"), &arguments, longest)?;
            let Some(mut told) = read(&text) else {
                return Ok(missing("what pgbench printed cannot be read"));
            };
            told["clients"] = clients.into();
            runs.push(told);
        }
        Ok(json!({ "seconds": seconds, "scale": CLIENTS, "runs": runs }))
    }

    /// Runs pgbench to its end, and gives what it printed.
    fn run(
        &mut self,
        name: &str,
        arguments: &[&str],
        longest: Duration,
    ) -> Result<String, ProcessError> {
        let (host, port) = self.address.rsplit_once(':').expect("its ready line has HOST:PORT");
        let mut command = vec![self.program.display().to_string()];
        command.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        for argument in ["--host", host, "--port", port, "--username", ROLE, ROLE] {
            command.push(argument.to_owned());
        }
        let launch = Launch {
            name: format!("pgbench {name}"),
            command,
            environment: vec![("PGPASSWORD".to_owned(), self.secret.to_owned())],
            // With a dot, which no tier's name has.
            folder: self.folder.join(format!("pgbench.{name}")),
            ..Launch::default()
        };
        let process = self.machines.spawn(At::Here, &launch)?;
        let until = Until::after(longest);
        let end = loop {
            if let Some(end) = process.ended() {
                break end;
            }
            if (self.interrupted)() {
                return Err(ProcessError::Interrupted);
            }
            if until.is_over() {
                return Err(ProcessError::Told {
                    what: format!("{} takes too long", launch.name),
                    ended: false,
                });
            }
            std::thread::sleep(LOOK);
        };
        process.finish(Duration::ZERO);
        if !end.success {
            let (name, status, tail) = (launch.name, end.status, end.tail);
            return Err(ProcessError::Ended { name, status, tail });
        }
        Ok(std::fs::read_to_string(launch.folder.join("output")).unwrap_or_default())
    }
}

fn missing(why: &str) -> Json {
    json!({ "missing": why })
}

/// The newest measurement in these environments, if the machine is the same and was not restarted since. What was
/// missing then may be installed now.
pub(crate) fn known(environments: &[Json], now: &Json) -> Option<Json> {
    let same = |then: &&Json| ["machine", "boot_id"].iter().all(|key| then[key] == now[key]);
    let mut told = environments.iter().filter(same).filter_map(|then| then.get(BASELINE));
    told.find(|told| told.get("missing").is_none()).cloned()
}

/// `{"transactions_per_s": …, "latency_mean_s": …, "transactions": …}` of what pgbench prints.
fn read(text: &str) -> Option<Json> {
    let number = |start: &str| -> Option<f64> {
        let rest = text.lines().find_map(|line| line.strip_prefix(start))?;
        rest.split(|c: char| c.is_whitespace() || c == '/')
            .find(|word| !word.is_empty())?
            .parse()
            .ok()
    };
    Some(json!({
        "transactions_per_s": number("tps = ")?,
        "latency_mean_s": number("latency average = ")? / 1e3,
        "transactions": number("number of transactions actually processed: ")?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_prints_is_read() {
        let text = "pgbench (15.14)\ntransaction type: <builtin: TPC-B (sort of)>\nscaling factor: 4\n\
                    number of transactions actually processed: 2433\nnumber of failed transactions: 0 (0.000%)\n\
                    latency average = 1.232 ms\ninitial connection time = 4.1 ms\n\
                    tps = 811.602340 (without initial connection time)\n";
        let told = read(text).unwrap();
        assert_eq!(told["transactions_per_s"], 811.602_34);
        assert!((told["latency_mean_s"].as_f64().unwrap() - 0.001_232).abs() < 1e-12);
        assert_eq!(told["transactions"], 2433.0);
        let with_all = "number of transactions actually processed: 10/10\nlatency average = 2 ms\ntps = 5 (x)\n";
        assert_eq!(read(with_all).unwrap()["transactions"], 10.0);
        assert_eq!(read("pgbench: error: connection refused"), None);
    }

    #[test]
    fn only_what_was_measured_on_this_machine_since_its_start_is_taken_over() {
        let on =
            |boot: &str, told: Json| json!({ "machine": "a", "boot_id": boot, BASELINE: told });
        let now = json!({ "machine": "a", "boot_id": "2" });
        let measured = |tps: u32| json!({ "clients_1": { "transactions_per_s": tps } });
        let before = [
            on("2", missing("pgbench is not installed")),
            on("2", measured(7)),
            on("2", measured(6)),
            on("1", measured(5)),
        ];
        assert_eq!(known(&before, &now), Some(measured(7)));
        assert_eq!(known(&before[..1], &now), None);
        assert_eq!(known(&before[3..], &now), None, "the machine was started anew");
    }
}
