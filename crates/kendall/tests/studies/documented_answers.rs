//! The keys that commands print, and those of docs/json.md, are the same: on a small study, tables, and a recorded day.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;

use crate::support::keys::Documented;
use crate::support::{kendall, printed};
use kendall_testing::Process;
use serde_json::Value;

/// A station whose servers are held by a timer.
const STUDY: &str = "name = 'known'\n[system]\nkind = 'synthetic'\nservice = 'constant:10ms'\n\
    [workload]\npath = '/'\n[measure]\nduration = '500ms'\nwarm_up = '0s'\ncool_down = '0s'\n\
    repetitions = 2\n[factors]\n'workload.clients' = [1, 2, 6]\n'system.workers' = [1, 2]\n";

/// What a command prints, whatever its exit code, in a folder with its files.
fn answer(folder: &Path, arguments: &str) -> Value {
    let mut command = kendall();
    command.args(arguments.split(' ')).args(["--format", "json"]).current_dir(folder);
    printed(&command.output().unwrap())
}

fn from(file: &str) -> String {
    crate::support::repository().join(file).to_str().unwrap().to_owned()
}

#[test]
fn documents_list_the_keys_of_answers() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut documented = Documented::read("docs/json.md");
    tables(&mut documented, folder);
    loads(&mut documented, folder);
    std::fs::write(folder.join("known.toml"), STUDY).unwrap();
    let ran = answer(folder, "run known.toml --no-report --out results");
    documented.check("run", &[ran]);
    reports(&mut documented, folder);
    let compared = answer(folder, "compare results --levels system.workers=1,2 --no-report");
    documented.check("compare", &[compared]);
    predictions(&mut documented, folder);
    documented.is_complete();
}

/// Commands on tables.
fn tables(documented: &mut Documented, folder: &Path) {
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let answer = |arguments: &str| answer(folder, arguments);
    let scaling = from("crates/queueing/tests/data/build-cluster-usl.csv");
    documented.check("fit usl", &[answer(&format!("fit usl {scaling} --predict 16"))]);
    write("loads.csv", "utilization,throughput\n0.11,10\n0.2,20\n0.31,30\n0.39,40\n1.3,60\n");
    let demands = ["", " --background --robust --clip"].map(|more| {
        let clip = if more.is_empty() { " --clip" } else { more };
        answer(&format!("fit demands loads.csv{clip}"))
    });
    documented.check("fit demands", &demands);
    // Exponential times in a mixed order.
    let times: Vec<String> = (0..200_u32)
        .map(|place| (-(1.0 - (f64::from(place * 37 % 200) + 0.5) / 200.0).ln()).to_string())
        .collect();
    write("times.csv", &format!("t\n{}\n", times.join("\n")));
    documented.check("fit distribution", &[answer("fit distribution times.csv")]);
    documented.check("fit map", &[answer("fit map times.csv")]);
    let power = "design power --deviation 3% --effect 5% --repetitions 5";
    documented.check("design power", &[answer(power)]);
    write(
        "fraction.csv",
        "a,b,c,replicate,value\n0,0,1,1,10\n1,0,0,1,21\n0,1,0,1,12\n1,1,1,1,27\n0,0,1,2,11\n\
         1,0,0,2,20\n0,1,0,2,13\n1,1,1,2,26\n",
    );
    write(
        "levels.csv",
        "a,b,replicate,speed,value\nx,0,1,3,10\ny,0,1,4,22\nz,0,1,5,35\nx,1,1,4,12\ny,1,1,3,21\n\
         z,1,1,5,38\nx,0,2,5,13\ny,0,2,3,20\nz,0,2,4,33\nx,1,2,5,14\ny,1,2,4,25\nz,1,2,3,34\n",
    );
    // A speed that goes with nothing.
    write(
        "blind.csv",
        "a,b,replicate,speed,value\nx,0,1,3,10\ny,0,1,4,22\nz,0,1,5,35\nx,1,1,4,12\ny,1,1,3,21\n\
         z,1,1,5,38\nx,0,2,4,13\ny,0,2,3,20\nz,0,2,4,33\nx,1,2,3,14\ny,1,2,4,25\nz,1,2,3,34\n",
    );
    let data = |name: &str| from(&format!("crates/stats/tests/data/{name}.csv"));
    let designs = [
        format!("design analyze {}", data("memcached-2k-writes-throughput")),
        format!("design analyze {}", data("queue-2k-unreplicated-throughput")),
        "design analyze fraction.csv".to_owned(),
        "design analyze levels.csv --covariate speed".to_owned(),
        "design analyze blind.csv --covariate speed".to_owned(),
    ];
    documented.check("design analyze", &designs.map(|arguments| answer(&arguments)));
    let mut sets = Vec::new();
    for set in 0..12 {
        let level = if set < 6 { 10 } else { 20 };
        let rows = (0..3).map(|run| format!("only,{level}.{}\n", (set + run) % 3));
        sets.push(format!("set{set}.csv"));
        write(&sets[set], &format!("configuration,value\n{}", rows.collect::<String>()));
    }
    let trend = answer(&format!("compare {} --trend", sets.join(" ")));
    documented.check("compare --trend", &[trend]);
}

/// Of a study, of several, and of a system that was observed.
fn reports(documented: &mut Documented, folder: &Path) {
    const FIGURES: [&str; 4] = ["rate_now_per_s", "capacity_per_s", "limit", "tiers"];
    let observed = answer(folder, &format!("observe {}", from("examples/observed/system.toml")));
    let (mut report, mut figures) = (observed.clone(), serde_json::json!({}));
    for name in FIGURES {
        figures[name] = report.as_object_mut().unwrap().remove(name).unwrap();
    }
    documented.check("observe", &[figures]);
    let of_study = answer(folder, "report results");
    let across = answer(folder, "report results results --out across");
    documented.check("report", &[of_study, across, report]);
}

/// Kendall's own station under a closed and an open load, and under stages.
fn loads(documented: &mut Documented, folder: &Path) {
    let mut serve = kendall();
    serve.args(["serve", "synthetic", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
    serve.args(["--workers", "2", "--service", "constant:2ms"]);
    let (_process, ready) = Process::ready(serve.stdout(std::process::Stdio::null()));
    let loads = [
        "--clients 2 --duration 1s --fail-if p99>10s",
        "--clients 2 --duration 1s --rate 50/s",
        "--stages 0s:2,2s:2",
    ];
    let loads = loads.map(|flags| {
        let url = format!("http://{}/", ready.address("listen"));
        answer(folder, &format!("load http {url} {flags} --quiet"))
    });
    documented.check("load", &loads);
}

/// Between loads that were run, at one of them and beyond; whatever else the machine did.
fn predictions(documented: &mut Documented, folder: &Path) {
    let answer =
        |more: &str| answer(folder, &format!("predict results --most-foreign 1000 {more}"));
    let asked = "--what-if workload.clients=4,6,12 --what-if system.workers=2";
    documented.check("predict", &[answer(asked)]);
    let objective = "--objective=mean<1s";
    documented.check("predict --objective", &[answer(objective)]);
    let carried = answer(&format!("{objective} --carry 20/s --what-if system.workers=1,2"));
    documented.check("predict --carry", &[carried]);
    documented.check("predict --against", &[answer("--against results")]);
    documented.check("predict --verify", &[answer("--verify --what-if workload.clients=4")]);
}
