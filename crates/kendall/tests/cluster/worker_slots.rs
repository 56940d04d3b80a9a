//! What a worker's slots keep from actions, what they show them, and what they say of those that cannot run.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::process::Command;
use std::time::Duration;

use crate::execution_support::{
    Client, Cluster, Job, Process, again_as_a_user_without_rights, program, text,
};
use kendall_build_cluster::wire::re;
use tonic::Code;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// The words with which a job is refused.
async fn refusal(client: &Client, job: &Job) -> String {
    let response = client.try_run(job).await.unwrap();
    let status = response.status.clone().unwrap_or_default();
    assert_eq!(Code::from_i32(status.code), Code::InvalidArgument, "{response:?}");
    status.message
}

#[test]
fn an_action_has_three_descriptors_whatever_its_worker_was_given() {
    let mut cluster = Cluster::start(1, 0, &[]);
    let secret = cluster.folder.path().join("secret");
    std::fs::write(&secret, "not for actions").unwrap();
    let data = cluster.folder.path().join("worker");
    // As a shell or a service manager may start it, and with the worker's own sockets beside.
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg("exec 7<>\"$0\" 9<>/dev/zero; exec \"$@\"").arg(&secret).arg(program());
    let addresses = [&cluster.scheduler.listen, &cluster.cache.listen];
    let arguments = ["worker", "--scheduler", addresses[0], "--cache", addresses[1], "--data"];
    let arguments = [&arguments[..], &[data.to_str().unwrap()]].concat();
    cluster.workers.push(Process::try_start_by(shell, &arguments).unwrap());
    runtime().block_on(async {
        let client = cluster.client().await;
        // The shell has the folder open itself while it lists it.
        let script = "for f in /proc/$$/fd/*; do [ -e $f ] && echo ${f##*/}; done; \
                      cat <&7 2>/dev/null; for f in /proc/[0-9]*/fd; do ls $f >/dev/null 2>&1 && echo $f; done; :";
        let result = client.run(&Job::shell(script)).await;
        let seen = text(&result.stdout_raw).to_owned();
        let own = seen.strip_prefix("0\n1\n2\n").unwrap_or_else(|| panic!("{seen}"));
        // Its own processes are the only ones whose descriptors it may look at: never the slot's.
        assert!(!own.contains("not for actions") && !own.contains("/proc/1/"), "{seen}");
    });
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "not for actions");
}

#[test]
fn absolute_links_go_in_and_come_out_and_the_scheduler_says_so() {
    let cluster = Cluster::start(1, 1, &[]);
    runtime().block_on(async {
        let client = cluster.client().await;
        let address = format!("http://{}", cluster.scheduler.listen);
        let mut capabilities =
            re::capabilities_client::CapabilitiesClient::connect(address).await.unwrap();
        let request = re::GetCapabilitiesRequest::default();
        let known = capabilities.get_capabilities(request).await.unwrap().into_inner();
        let strategy = known.cache_capabilities.unwrap().symlink_absolute_path_strategy;
        assert_eq!(strategy, re::symlink_absolute_path_strategy::Value::Allowed as i32);
        // What a Python virtual environment has, made by one action and used by the next.
        let script = "mkdir -p venv/bin; ln -s /bin/sh venv/bin/python; ln -s /usr/lib venv/lib; \
                      ln -s $PWD/venv/bin venv/own; ln -s $PWD venv/root; ln -s /build2/x venv/beside; \
                      ln -s /etc/passwd out";
        let mut job = Job::shell(script).outputs(&["venv", "out"]);
        let both = re::command::OutputDirectoryFormat::TreeAndDirectory;
        job.command.output_directory_format = both as i32;
        let made = client.run(&job).await;
        assert_eq!(made.output_symlinks[0].target, "/etc/passwd", "{made:?}");
        let tree = made.output_directories[0].root_directory_digest.clone().unwrap();
        let digest = kendall_build_cluster::digest::Function::Sha256;
        let digest = kendall_build_cluster::digest::Digest::from_wire(digest, &tree).unwrap();
        let folder = client.remote.read("", &[digest]).await.unwrap().remove(&digest).unwrap();
        let folder: re::Directory = prost::Message::decode(folder.as_slice()).unwrap();
        let links: Vec<_> = folder.symlinks.iter().map(|l| (&*l.name, &*l.target)).collect();
        let expected =
            [("beside", "/build2/x"), ("lib", "/usr/lib"), ("own", "../venv/bin"), ("root", "../.")];
        assert_eq!(links, expected);
        let mut job = Job::shell("venv/bin/python -c 'echo runs'; readlink venv/lib; ls venv/lib >&2");
        job.root = Some(re::Directory {
            directories: vec![re::DirectoryNode { name: "venv".into(), digest: Some(tree) }],
            ..re::Directory::default()
        });
        let ran = client.run(&job).await;
        assert_eq!(text(&ran.stdout_raw), "runs\n/usr/lib\n", "{}", text(&ran.stderr_raw));
    });
}

#[test]
fn a_command_that_cannot_start_is_told_what_is_missing() {
    let cluster = Cluster::start(1, 1, &[]);
    runtime().block_on(async {
        let client = cluster.client().await;
        let said = async |job: &Job| refusal(&client, job).await;
        let mut nowhere = Job::shell("true");
        nowhere.command.working_directory = "no/such".into();
        let words = said(&nowhere).await;
        assert!(
            words.starts_with("the working directory \"no/such\" is not a directory"),
            "{words}"
        );
        nowhere.command.arguments[0] = "./tool".into();
        assert_eq!(said(&nowhere).await, words);
        // It is made where an output is to be.
        assert_eq!(client.run(&nowhere_with_output()).await.exit_code, 0);
        let mut script = Job::shell("true");
        script.root = Some(executable(&client, "tool", "#!/no/interpreter\n").await);
        script.command.arguments = vec!["./tool".into()];
        let words = said(&script).await;
        assert!(words.contains("\"./tool\" cannot be started: what its first line"), "{words}");
    });
}

fn nowhere_with_output() -> Job {
    let mut job = Job::shell("touch x").outputs(&["x"]);
    job.command.working_directory = "no/such".into();
    job
}

async fn executable(client: &Client, name: &str, content: &str) -> re::Directory {
    let file = re::FileNode {
        name: name.to_owned(),
        digest: Some(client.put(content.as_bytes().to_vec()).await),
        is_executable: true,
        ..re::FileNode::default()
    };
    re::Directory { files: vec![file], ..re::Directory::default() }
}

/// A request of the cache for each of its levels would take longer than the build that it stands in.
#[test]
fn a_tree_of_five_thousand_levels_is_refused_before_it_is_made() {
    let cluster = Cluster::start(1, 1, &[]);
    let reads = || {
        let page = cluster.cache.page("/metrics");
        let counts = page
            .lines()
            .filter(|l| l.starts_with("kendall_cache_operation_duration_seconds_count{"));
        counts.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum::<u64>()
    };
    runtime().block_on(async {
        let client = cluster.client().await;
        let mut root = re::Directory::default();
        for _ in 0..5000 {
            let digest = Some(client.message(&root).await);
            let below = re::DirectoryNode { name: "d".to_owned(), digest };
            root = re::Directory { directories: vec![below], ..re::Directory::default() };
        }
        let job = Job { root: Some(root), ..Job::shell("true") };
        client.prepare(&job).await;
        let before = reads();
        let words = refusal(&client, &job).await;
        assert!(words.contains("deeper directories than the 200"), "{words}");
        // Storing the job again, and the levels that are allowed.
        assert!(reads() - before < 300, "{} requests", reads() - before);
        // So long a path as an output, or to work in.
        let deep = "d/".repeat(1990);
        let words = refusal(&client, &Job::shell("true").outputs(&[&format!("{deep}x")])).await;
        assert!(words.contains("more than 200 directories"), "{words}");
        assert_eq!(client.run(&Job::shell("exit 0")).await.exit_code, 0);
    });
}

/// Runs a job beyond a bound beside one that goes on, and holds what is said of the first.
async fn is_ended(client: &Client, script: &str, exit_code: i32, words: &str) {
    let beside = Job { skip_cache: true, ..Job::shell("sleep 1; sh -c 'echo well'") };
    let job = Job { timeout: Some(Duration::from_secs(60)), ..Job::shell(script) };
    let (ended, beside) = tokio::join!(client.try_run(&job), client.run(&beside));
    assert_eq!(text(&beside.stdout_raw), "well\n", "{}", text(&beside.stderr_raw));
    let ended = ended.unwrap();
    assert!(ended.message.contains(words), "{words} in {ended:?}");
    let result = ended.result.unwrap();
    assert_eq!(result.exit_code, exit_code, "{result:?}");
    // Where the action itself said much, it is a blob.
    let said = match &result.stderr_digest {
        Some(digest) => client.get(digest).await,
        None => text(&result.stderr_raw).to_owned(),
    };
    let line = said.lines().last().unwrap();
    assert_eq!(line, format!("kendall: {}", ended.message));
    assert!(!ended.cached_result);
}

#[test]
fn an_action_that_fills_the_memory_is_ended_and_its_neighbour_is_not() {
    let cluster = Cluster::start(2, 1, &["--action-memory", "256MiB"]);
    runtime().block_on(async {
        let client = cluster.client().await;
        // One process, and several of which none is beyond the bound.
        let words = "more than 268435456 bytes of memory, the worker's --action-memory";
        is_ended(&client, "cat /dev/zero | tail -c 100G", 201, words).await;
        // The words have a line of their own, also behind half a line.
        is_ended(&client, "printf half >&2; cat /dev/zero | tail -c 100G", 201, words).await;
        let hold = "{ head -c 60M /dev/zero; sleep 50; } | tail -c 60M > /dev/null &";
        is_ended(&client, &format!("{} wait", hold.repeat(8)), 201, words).await;
        let within = client.run(&Job::shell("head -c 1G /dev/zero | tail -c 100M | wc -c")).await;
        assert_eq!(text(&within.stdout_raw), "104857600\n");
    });
}

#[test]
fn an_action_that_fills_the_disk_is_ended_and_its_neighbour_is_not() {
    let cluster = Cluster::start(2, 1, &["--action-disk", "64MiB", "--output-bytes", "8GiB"]);
    runtime().block_on(async {
        let client = cluster.client().await;
        let words = "more than 67108864 bytes on the worker's disk, the worker's --action-disk";
        // In time, so that the test takes no more than it must.
        let slowly = "while :; do head -c 4M /dev/zero >> FILE; sleep 0.01; done";
        for file in ["out", "/tmp/out", "/dev/shm/out"] {
            is_ended(&client, &slowly.replace("FILE", file), 202, words).await;
        }
        let many = "mkdir d; i=0; while :; do i=$((i+1)); : > d/$i; done";
        is_ended(&client, many, 202, words).await;
        // What it wrote is gone, and what stays below the bound is left alone.
        let within = "head -c 40M /dev/zero > out; sleep 0.5";
        assert_eq!(client.run(&Job::shell(within)).await.exit_code, 0);
    });
}

#[test]
fn an_action_that_makes_ever_more_processes_is_ended_and_its_neighbour_is_not() {
    let cluster = Cluster::start(2, 1, &["--action-processes", "100"]);
    runtime().block_on(async {
        let client = cluster.client().await;
        let words = "more than 100 processes and threads, the worker's --action-processes";
        is_ended(&client, "b() { b | b & b; }; b", 203, words).await;
        is_ended(&client, "while :; do sleep 100 & done", 203, words).await;
        let within = "for i in $(seq 60); do sleep 0.5 & done; wait; echo all";
        assert_eq!(text(&client.run(&Job::shell(within)).await.stdout_raw), "all\n");
        // What has ended is none: not even where its parent did not ask for it.
        let orphans = "for i in $(seq 300); do (true &); done; sleep 1; echo all";
        assert_eq!(text(&client.run(&Job::shell(orphans)).await.stdout_raw), "all\n");
        let failed = orphans.replace("echo all", "exit 3");
        assert_eq!(client.run(&Job::shell(&failed)).await.exit_code, 3);
    });
}

/// As the kernel counts them: those of a slot, and of no other.
#[test]
fn the_kernel_bounds_the_processes_of_each_slot() {
    let cluster = Cluster::start(2, 1, &["--action-processes", "100"]);
    runtime().block_on(async {
        let client = cluster.client().await;
        let bound = client.run(&Job::shell("grep 'Max processes' /proc/self/limits")).await;
        let words: Vec<&str> = text(&bound.stdout_raw).split_whitespace().collect();
        assert_eq!(words[2..4], ["456", "456"], "{words:?}");
        // Together they are beyond the limit that each has.
        let fifty = "for i in $(seq 50); do sleep 2 & done; wait; echo all";
        let job = |slot| Job::shell(&format!(": {slot}; prlimit --nproc=60 sh -c '{fifty}'"));
        let (jobs, one) = ([job(0), job(1)], job(2));
        let (first, second) = tokio::join!(client.run(&jobs[0]), client.run(&jobs[1]));
        assert_eq!([text(&first.stdout_raw), text(&second.stdout_raw)], ["all\n"; 2]);
        let beyond = one.command.arguments[2].replace("50", "70");
        assert_ne!(client.run(&Job::shell(&beyond)).await.exit_code, 0);
    });
}

#[test]
fn all_this_holds_for_a_user_without_rights_too() {
    again_as_a_user_without_rights(
        module_path!(),
        &[
            "an_action_has_three_descriptors_whatever_its_worker_was_given",
            "absolute_links_go_in_and_come_out_and_the_scheduler_says_so",
            "a_command_that_cannot_start_is_told_what_is_missing",
            "a_tree_of_five_thousand_levels_is_refused_before_it_is_made",
            "the_kernel_bounds_the_processes_of_each_slot",
        ],
    );
}
