//! The scheduler and its workers as real processes: what actions get, what they cannot do, and what
//! remains of their results when a part of the cluster dies.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::time::Duration;

use crate::execution_support::{
    self, Client, Cluster, Job, Process, again_as_a_user_without_rights, answer, last, scheduler,
    scheduler_at, stage, text,
};
use crate::support::{processes_with, wait_until};
use kendall_build_cluster::digest::Function;
use kendall_build_cluster::status::violations;
use kendall_build_cluster::wire::{longrunning as lro, protobuf, re};
use prost::Message as _;
use tonic::Code;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn at(stamp: Option<&protobuf::Timestamp>) -> i128 {
    let stamp = stamp.expect("every stage has its time");
    i128::from(stamp.seconds) * 1_000_000_000 + i128::from(stamp.nanos)
}

/// Status code of a response.
fn code(response: &re::ExecuteResponse) -> Code {
    Code::from_i32(response.status.as_ref().map_or(0, |status| status.code))
}

#[test]
fn an_action_gets_its_inputs_and_gives_its_outputs_and_times() {
    let cluster = Cluster::start(2, 1, &[]);
    runtime().block_on(async {
        let client = cluster.client().await;
        let script = "cat in; echo err >&2; mkdir -p d/e; echo one > d/e/f; ln -s e/f d/l; \
                      cp in out/x; chmod +x out/x; ln -s x out/link; test ! -t 0; cat";
        let job = Job::shell(script)
            .file("in", "content\n")
            .outputs(&["out/x", "d", "out/link", "never"]);
        let result = client.run(&job).await;
        assert_eq!((text(&result.stdout_raw), text(&result.stderr_raw)), ("content\n", "err\n"));
        assert_eq!(result.exit_code, 0);
        assert_eq!(result.output_files.len(), 1);
        let file = &result.output_files[0];
        assert!(file.path == "out/x" && file.is_executable);
        assert_eq!(client.get(file.digest.as_ref().unwrap()).await, "content\n");
        let links = &result.output_symlinks;
        assert!(links.len() == 1 && links[0].path == "out/link" && links[0].target == "x");
        let tree = result.output_directories[0].tree_digest.as_ref().unwrap();
        let digest = kendall_build_cluster::digest::Digest::from_wire(Function::Sha256, tree);
        let digest = digest.unwrap();
        let tree = client.remote.read("", &[digest]).await.unwrap().remove(&digest).unwrap();
        let tree = re::Tree::decode(tree.as_slice()).unwrap();
        assert_eq!(tree.children.len(), 1);
        assert_eq!(tree.root.unwrap().symlinks[0].target, "e/f");
        let metadata = result.execution_metadata.as_ref().unwrap();
        let times = [
            at(metadata.queued_timestamp.as_ref()),
            at(metadata.worker_start_timestamp.as_ref()),
            at(metadata.input_fetch_start_timestamp.as_ref()),
            at(metadata.input_fetch_completed_timestamp.as_ref()),
            at(metadata.execution_start_timestamp.as_ref()),
            at(metadata.execution_completed_timestamp.as_ref()),
            at(metadata.output_upload_start_timestamp.as_ref()),
            at(metadata.output_upload_completed_timestamp.as_ref()),
            at(metadata.worker_completed_timestamp.as_ref()),
        ];
        assert!(times.is_sorted(), "{times:?}");
        assert!(metadata.worker == "worker-0" && metadata.virtual_execution_duration.is_some());
        // What the action used: some memory, at least.
        let usage = kendall_build_cluster::work::ResourceUsage::decode(
            metadata.auxiliary_metadata[0].value.as_slice(),
        );
        assert!(usage.unwrap().memory_bytes > 100_000);
        // Again: from the cache, unless the client does not want that.
        let again = client.try_run(&job).await.unwrap();
        assert!(again.cached_result);
        let fresh = client.try_run(&Job { skip_cache: true, ..job }).await.unwrap();
        assert!(!fresh.cached_result);
    });
    let metrics = cluster.scheduler.page("/metrics");
    for line in [
        "kendall_build_tasks_queued_total{again=\"false\"} 2\n",
        "kendall_build_tasks_executing_total 2\n",
        "kendall_build_tasks_completed_total{result=\"success\"} 2\n",
        "kendall_build_operations_total{from=\"cache\"} 1\n",
        "kendall_build_stage_duration_seconds_count{stage=\"running\"} 2\n",
        "kendall_build_slots 2\n",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
    for path in ["/", "/status"] {
        assert!(cluster.scheduler.page(path).contains("worker-0"), "{path}");
        assert!(cluster.cache.page(path).contains("<h1>Kendall cache</h1>"), "{path}");
    }
}

#[test]
fn old_clients_name_outputs_in_the_old_fields_and_find_links_there() {
    let cluster = Cluster::start(1, 1, &[]);
    runtime().block_on(async {
        let client = cluster.client().await;
        let mut job =
            Job::shell("echo a > ../out/f; ln -s f ../out/l; ls ../made; touch ../made/x");
        job.root = Some(re::Directory {
            directories: vec![re::DirectoryNode {
                name: "sub".into(),
                digest: Some(client.message(&re::Directory::default()).await),
            }],
            ..re::Directory::default()
        });
        job.command.working_directory = "sub".into();
        #[expect(deprecated, reason = "what clients of version 2.0 send")]
        {
            job.command.output_files = vec!["../out/f".into(), "../out/l".into()];
            job.command.output_directories = vec!["../made".into()];
        }
        let result = client.run(&job).await;
        assert_eq!(result.exit_code, 0, "{}", text(&result.stderr_raw));
        assert_eq!(result.output_files[0].path, "../out/f");
        #[expect(deprecated, reason = "what clients of version 2.0 read")]
        let links = &result.output_file_symlinks;
        assert!(links.len() == 1 && links[0].target == "f");
        assert_eq!(result.output_directories[0].path, "../made");
    });
}

/// Times and modes that a client gave its inputs, and those of outputs that it asked for.
#[test]
fn times_and_modes_of_files_go_in_and_come_out() {
    let cluster = Cluster::start(1, 1, &[]);
    runtime().block_on(async {
        let client = cluster.client().await;
        let time = |seconds| Some(protobuf::Timestamp { seconds, nanos: 0 });
        let mode = |value| Some(protobuf::UInt32Value { value });
        let file = re::FileNode {
            name: "in".to_owned(),
            digest: Some(client.put(b"content".to_vec()).await),
            node_properties: Some(re::NodeProperties {
                mtime: time(1_234_567_890),
                unix_mode: mode(0o444),
                ..re::NodeProperties::default()
            }),
            ..re::FileNode::default()
        };
        let script = "stat -c '%a %Y' in; touch -d @987654321 out; chmod 640 out";
        let mut job = Job::shell(script).outputs(&["out"]);
        job.root = Some(re::Directory { files: vec![file], ..re::Directory::default() });
        job.command.output_node_properties = vec!["mtime".to_owned(), "unix_mode".to_owned()];
        let result = client.run(&job).await;
        assert_eq!(text(&result.stdout_raw), "444 1234567890\n", "{}", text(&result.stderr_raw));
        let properties = result.output_files[0].node_properties.clone().unwrap();
        assert_eq!((properties.mtime, properties.unix_mode), (time(987_654_321), mode(0o640)));
    });
}

#[test]
fn failed_actions_and_those_that_must_not_be_cached_run_again() {
    let cluster = Cluster::start(1, 1, &[]);
    runtime().block_on(async {
        let client = cluster.client().await;
        for job in [
            Job::shell("exit 3"),
            Job::shell("kill -ABRT $$"),
            Job { do_not_cache: true, ..Job::shell("exit 0") },
        ] {
            for _ in 0..2 {
                let response = client.try_run(&job).await.unwrap();
                assert!(!response.cached_result, "{job:?}");
            }
        }
        assert_eq!(client.run(&Job::shell("exit 3")).await.exit_code, 3);
        assert_eq!(client.run(&Job::shell("kill -ABRT $$")).await.exit_code, 134);
        // Even when a client put a result there.
        let job = Job { do_not_cache: true, ..Job::shell("echo fresh") };
        let action = client.prepare(&job).await;
        let digest = kendall_build_cluster::digest::Digest::from_wire(Function::Sha256, &action);
        let planted = re::ActionResult { stdout_raw: b"old".to_vec(), ..Default::default() };
        client.remote.store_result("", digest.unwrap(), planted).await.unwrap();
        assert_eq!(text(&client.run(&job).await.stdout_raw), "fresh\n");
    });
}

#[test]
fn what_is_missing_is_named_so_that_the_client_can_send_it() {
    let cluster = Cluster::start(1, 1, &[]);
    runtime().block_on(async {
        let client = cluster.client().await;
        let job = Job { withheld: true, ..Job::shell("cat a b") };
        let job = job.file("a", "first withheld").file("b", "second withheld");
        let response = client.try_run(&job).await.unwrap();
        assert_eq!(code(&response), Code::FailedPrecondition, "{response:?}");
        let status = response.status.unwrap();
        let status = tonic::Status::with_details(
            Code::FailedPrecondition,
            status.message.clone(),
            status.encode_to_vec().into(),
        );
        let mut subjects: Vec<String> =
            violations(&status).into_iter().map(|one| one.subject).collect();
        subjects.sort_unstable();
        let mut expected = ["first withheld", "second withheld"]
            .map(|content| Function::Sha256.digest(content.as_bytes()).resource());
        expected.sort_unstable();
        assert_eq!(subjects, expected);
        // An action that is not there, or is none.
        let unknown = Function::Sha256.digest(b"no such action").to_wire();
        let mut request = re::ExecuteRequest { action_digest: Some(unknown), ..Default::default() };
        let status = client.execution.clone().execute(request.clone()).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(violations(&status).len(), 1);
        request.action_digest = Some(re::Digest { hash: "x".into(), size_bytes: -1 });
        let status = client.execution.clone().execute(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    });
}

#[test]
fn an_action_sees_its_inputs_alone_and_cannot_change_those_of_others() {
    let cluster = Cluster::start(1, 1, &[]);
    runtime().block_on(async {
        let client = cluster.client().await;
        let vandal = Job::shell(
            "chmod u+w in; echo changed > in; echo more >> in; rm -f in; echo mine > in; cat in",
        )
        .file("in", "original");
        assert_eq!(text(&client.run(&vandal).await.stdout_raw), "mine\n");
        let reader =
            Job::shell("cat in; touch left /tmp/left /dev/shm/left").file("in", "original");
        assert_eq!(text(&client.run(&reader).await.stdout_raw), "original");
        // What an earlier action left is gone; other processes and files cannot be seen.
        let look = Job::shell(
            "ls -A . /tmp /dev/shm | tr '\\n' ' '; id -u; pwd; ls /proc | grep -c '^[0-9]'; \
             ls -d /root /home /work /var/lib 2>/dev/null; cat /sys/class/net/*/address; \
             echo x 2>/dev/null > /usr/x || echo read-only; ls /build/.. | tr '\\n' ' '",
        );
        let seen = client.run(&look).await;
        let seen = text(&seen.stdout_raw).to_owned();
        assert!(seen.starts_with(".: /dev/shm: /tmp: ") || seen.contains("/tmp:"), "{seen}");
        assert!(!seen.contains("left") && seen.contains("\n/build\n"), "{seen}");
        assert!(seen.contains("read-only") && !seen.contains("/root"), "{seen}");
        assert!(!seen.starts_with("0\n") && !seen.contains("/var/lib"), "{seen}");
    });
}

#[test]
fn all_processes_of_an_action_end_with_it() {
    let cluster = Cluster::start(1, 1, &[]);
    runtime().block_on(async {
        let client = cluster.client().await;
        let mark = format!("31{:05}", std::process::id() % 100_000);
        let leave = format!("(setsid sleep {mark}.5 &) ; (sleep {mark}.6 &) ; exit 0");
        client.run(&Job::shell(&leave)).await;
        assert_eq!(processes_with(&format!("{mark}.")), Vec::<u32>::new());
        // Beyond its time limit, with what it said so far.
        let slow = format!("echo begun; (setsid sleep {mark}.7 &) ; sleep {mark}.8");
        let slow = Job { timeout: Some(Duration::from_millis(700)), ..Job::shell(&slow) };
        let response = client.try_run(&slow).await.unwrap();
        assert_eq!(code(&response), Code::DeadlineExceeded, "{response:?}");
        assert_eq!(text(&response.result.unwrap().stdout_raw), "begun\n");
        assert_eq!(processes_with(&format!("{mark}.")), Vec::<u32>::new());
        // Cancelled.
        let cancelled = Job::shell(&format!("(setsid sleep {mark}.9 &) ; sleep {mark}.10"));
        let mut stream = client.start(&cancelled).await.unwrap();
        let first = stream.message().await.unwrap().unwrap();
        wait_until("the action runs", || processes_with(&format!("{mark}.")).len() > 1);
        let name = first.name.clone();
        let request = lro::CancelOperationRequest { name: name.clone() };
        client.operations.clone().cancel_operation(request).await.unwrap();
        let ended = last(&mut stream).await.unwrap();
        assert_eq!(code(&ended), Code::Cancelled);
        wait_until("it ended", || processes_with(&format!("{mark}.")).is_empty());
        // Its slot is free again.
        assert_eq!(client.run(&Job::shell("exit 0")).await.exit_code, 0);
        let mut operations = client.operations.clone();
        let listed = operations.list_operations(lro::ListOperationsRequest::default()).await;
        let listed = listed.unwrap().into_inner().operations;
        assert!(listed.iter().any(|one| one.name == name && one.done), "{listed:?}");
    });
}

#[test]
fn hostile_actions_are_refused_in_bounds_and_nothing_else_suffers() {
    let bounds = ["--log-bytes", "64KiB", "--output-bytes", "1MiB", "--entries", "100"];
    let cluster = Cluster::start(2, 1, &bounds);
    runtime().block_on(async {
        let client = cluster.client().await;
        let refused = async |job: Job, words: &str| {
            let response = client.try_run(&job).await.unwrap();
            assert_eq!(code(&response), Code::InvalidArgument, "{job:?} {response:?}");
            assert!(response.message.contains(words), "{words} in {}", response.message);
        };
        refused(Job::shell("true").outputs(&["../../x"]), "leaves the input root").await;
        refused(Job::shell("true").outputs(&["/etc/passwd"]), "absolute").await;
        let link = Job::shell("mkdir d; ln -s ../../etc d/l").outputs(&["d"]);
        refused(link, "only absolute links").await;
        refused(Job::shell("mkfifo p").outputs(&["p"]), "neither a file").await;
        refused(Job::shell("yes | head -c 200000; sleep 5"), "more than 65536 bytes").await;
        let large = Job::shell("head -c 900000 /dev/zero > a; cp a b; true").outputs(&["a", "b"]);
        refused(large, "more bytes").await;
        let many = Job::shell("mkdir d; cd d; seq 200 | xargs touch").outputs(&["d"]);
        refused(many, "more outputs").await;
        let unknown = Job {
            command: re::Command { arguments: vec!["no-such".into()], ..Default::default() },
            ..Job::default()
        };
        refused(unknown, "not a program").await;
        refused(Job { command: re::Command::default(), ..Job::default() }, "no arguments").await;
        let mut outside = Job::shell("true");
        outside.root = Some(re::Directory {
            symlinks: vec![re::SymlinkNode {
                name: "l".into(),
                target: "../../etc".into(),
                node_properties: None,
            }],
            ..re::Directory::default()
        });
        refused(outside, "leaves the input root").await;
        // A parent that is a link leads inside the root, not to the machine's file.
        let parent = Job::shell("ln -s /etc d").outputs(&["d/passwd"]);
        let result = client.try_run(&parent).await.unwrap().result.unwrap();
        assert!(result.output_files.is_empty(), "{result:?}");
        // A file cannot be larger than all outputs.
        let huge = client.run(&Job::shell("head -c 90000000 /dev/zero > a; ls -l a")).await;
        assert!(!text(&huge.stdout_raw).contains("90000000"), "{huge:?}");
        assert_eq!(client.run(&Job::shell("echo well")).await.stdout_raw, b"well\n");
    });
}

/// Peak memory of a process, in bytes.
fn peak(process: &crate::execution_support::Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    1024 * line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
}

/// The worker may do more than the action: what the action names as its output, and leads elsewhere by a
/// link, must not be moved, read or given to another action.
#[test]
fn an_action_cannot_have_the_worker_follow_its_links_out_of_the_root() {
    let cluster = Cluster::start(1, 1, &[]);
    let theirs = cluster.folder.path().join("theirs");
    std::fs::create_dir(&theirs).unwrap();
    let secret = theirs.join("secret");
    std::fs::write(&secret, "not for actions").unwrap();
    runtime().block_on(async {
        let client = cluster.client().await;
        let there = theirs.display();
        let script =
            format!("rmdir a; mkdir -p .{there}; printf decoy > .{there}/secret; ln -s {there} a");
        let result = client.run(&Job::shell(&script).outputs(&["a/secret"])).await;
        assert_eq!((result.exit_code, result.output_files.len()), (0, 1), "{result:?}");
        let digest = result.output_files[0].digest.as_ref().unwrap();
        assert_eq!(client.get(digest).await, "decoy");
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "not for actions");
        let next = client.run(&Job::shell("cat in").file("in", "decoy")).await;
        assert_eq!(text(&next.stdout_raw), "decoy");
    });
}

/// Two workers in one folder would run their actions in the same slots, and what lies in a user's folder
/// under the names of a worker's parts would be deleted at its start.
#[test]
fn workers_do_not_share_a_folder_and_take_nobody_elses() {
    let cluster = Cluster::start(1, 1, &[]);
    let refused = |name: &str| {
        let data = cluster.folder.path().join(name);
        let (scheduler, cache) = (&cluster.scheduler.listen, &cluster.cache.listen);
        let arguments = ["worker", "--scheduler", scheduler, "--cache", cache, "--data"];
        let started = Process::try_start(&[&arguments[..], &[data.to_str().unwrap()]].concat());
        started.err().expect("it does not start")
    };
    let said = refused("worker-0");
    assert!(said.contains("worker-0 is in use by another process"), "{said}");
    let letter = cluster.folder.path().join("theirs/files/letter");
    std::fs::create_dir_all(letter.parent().unwrap()).unwrap();
    std::fs::write(&letter, "dear").unwrap();
    let said = refused("theirs");
    assert!(said.contains("theirs/files was not made by this tier"), "{said}");
    assert_eq!(std::fs::read_to_string(&letter).unwrap(), "dear");
}

/// A cache refuses a result that is too long for it (eight thousand outputs have more than 512 KiB of digests
/// and paths), and one with read-only results refuses all of them.
#[test]
fn an_action_whose_result_the_cache_does_not_keep_is_answered_all_the_same() {
    let mut cluster = Cluster::start(1, 1, &[]);
    let paths: Vec<String> = (0..8000).map(|number| format!("out/{number:04}")).collect();
    let job = Job::shell("cd out; seq -w 0 7999 | xargs touch");
    let job = job.outputs(&paths.iter().map(String::as_str).collect::<Vec<_>>());
    runtime().block_on(async {
        let client = cluster.client().await;
        let response = client.try_run(&job).await.unwrap();
        assert_eq!(code(&response), Code::Ok, "{response:?}");
        assert!(response.message.contains("the cache does not keep the result"), "{response:?}");
        assert_eq!(response.result.unwrap().output_files.len(), 8000);
        assert!(!client.try_run(&job).await.unwrap().cached_result);
    });
    let data = cluster.folder.path().join("fixed");
    let cache = ["cache", "--listen", "127.0.0.1:0", "--quota", "1GiB", "--read-only-results"];
    cluster.cache = Process::start(&[&cache[..], &["--data", data.to_str().unwrap()]].concat());
    cluster.scheduler = scheduler("127.0.0.1:0", &cluster.cache.listen);
    cluster.workers.clear();
    cluster.add_worker(1, &[]);
    runtime().block_on(async {
        let client = cluster.client().await;
        let response = client.try_run(&Job::shell("echo well")).await.unwrap();
        assert!(response.message.contains("results of actions cannot be changed"), "{response:?}");
        assert_eq!(response.result.unwrap().stdout_raw, b"well\n");
    });
}

/// A gigabyte on standard output, on standard error and in a file: an action beside them is served, and no process holds it
/// in memory.
#[test]
fn a_gigabyte_of_output_is_refused_and_held_by_nobody() {
    let cluster = Cluster::start(4, 1, &["--log-bytes", "16MiB", "--output-bytes", "64MiB"]);
    runtime().block_on(async {
        let client = cluster.client().await;
        let gigabyte = "head -c 1073741824 /dev/zero";
        let shell = |text: String| Job::shell(&text);
        let jobs = [
            shell(format!("{gigabyte}; true")),
            shell(format!("{gigabyte} >&2; true")),
            shell(format!("{gigabyte} > a; true")).outputs(&["a"]),
        ];
        let mut asking = tokio::task::JoinSet::new();
        for job in jobs {
            let client = client.clone();
            asking.spawn(async move { client.try_run(&job).await.unwrap() });
        }
        assert_eq!(client.run(&Job::shell("echo well")).await.stdout_raw, b"well\n");
        for response in asking.join_all().await {
            // Also where the action does not mind that its file is cut off.
            assert_eq!(code(&response), Code::InvalidArgument, "{}", response.message);
        }
    });
    for process in [&cluster.cache, &cluster.scheduler, &cluster.workers[0]] {
        assert!(peak(process) < 512 << 20, "{} bytes", peak(process));
    }
}

/// As of every listener of the cluster: without TCP_NODELAY each answer would take 40 ms.
#[test]
fn a_serial_loop_through_a_scheduler_waits_for_no_acknowledgement() {
    let cluster = Cluster::start(1, 1, &[]);
    runtime().block_on(async {
        let client = cluster.client().await;
        let (mut operations, clock) = (client.operations.clone(), kendall_tier::Clock::monotonic());
        let mut times = Vec::new();
        for _ in 0..51 {
            let request = lro::GetOperationRequest { name: "none".to_owned() };
            let before = clock.now_ns();
            operations.get_operation(request).await.unwrap_err();
            times.push(clock.now_ns() - before);
        }
        times.sort_unstable();
        assert!(times[25] < 20_000_000, "{times:?}");
    });
}

/// Inputs are copies there, and the slots' namespaces are those of a user.
#[test]
fn the_worker_does_all_this_as_a_user_without_rights_too() {
    again_as_a_user_without_rights(
        module_path!(),
        &[
            "an_action_gets_its_inputs_and_gives_its_outputs_and_times",
            "old_clients_name_outputs_in_the_old_fields_and_find_links_there",
            "times_and_modes_of_files_go_in_and_come_out",
            "an_action_sees_its_inputs_alone_and_cannot_change_those_of_others",
            "all_processes_of_an_action_end_with_it",
            "hostile_actions_are_refused_in_bounds_and_nothing_else_suffers",
            "an_action_cannot_have_the_worker_follow_its_links_out_of_the_root",
            "a_gigabyte_of_output_is_refused_and_held_by_nobody",
            "an_action_whose_worker_is_killed_runs_on_another",
            "a_worker_that_is_asked_to_stop_ends_what_it_runs_first",
        ],
    );
}

#[test]
fn an_action_without_a_worker_for_it_is_refused_with_words() {
    let cluster = Cluster::start(1, 1, &["--property", "OSFamily=linux"]);
    runtime().block_on(async {
        let client = cluster.client().await;
        let fits = Job::shell("echo fits").property("OSFamily", "linux");
        assert_eq!(client.run(&fits).await.exit_code, 0);
        let none = Job::shell("echo no").property("OSFamily", "plan9");
        let response = client.try_run(&none).await;
        let words = match response {
            Ok(response) => response.message,
            Err(status) => status.message().to_owned(),
        };
        assert!(
            words.contains("{OSFamily=plan9}") && words.contains("{OSFamily=linux}"),
            "{words}"
        );
    });
}

#[test]
fn an_action_whose_worker_is_killed_runs_on_another() {
    let mut cluster = Cluster::start(1, 1, &[]);
    let runtime = runtime();
    let mark = format!("32{:05}.5", std::process::id() % 100_000);
    let client = runtime.block_on(cluster.client());
    let script = format!("if [ -e never ]; then :; fi; sleep 0.4; : {mark}; sleep 0.8; echo done");
    let mut stream = runtime.block_on(client.start(&Job::shell(&script))).unwrap();
    wait_until("the action runs", || !processes_with(&mark).is_empty());
    cluster.workers[0].kill();
    wait_until("its processes ended with the worker", || processes_with(&mark).is_empty());
    cluster.add_worker(1, &[]);
    let answer = runtime.block_on(last(&mut stream)).unwrap();
    assert_eq!(text(&answer.result.unwrap().stdout_raw), "done\n");
    let metrics = cluster.scheduler.page("/metrics");
    assert!(metrics.contains("kendall_build_tasks_queued_total{again=\"true\"} 1\n"), "{metrics}");
}

#[test]
fn a_scheduler_that_is_killed_loses_nothing_and_runs_nothing_twice() {
    let mut cluster = Cluster::start(1, 1, &[]);
    let runtime = runtime();
    let client = runtime.block_on(cluster.client());
    let job = Job::shell("sleep 1.5; echo done");
    let mut stream = runtime.block_on(client.start(&job)).unwrap();
    let first = runtime.block_on(stream.message()).unwrap().unwrap();
    wait_until("it runs", || cluster.scheduler.page("/status.json").contains("\"executing\":1"));
    let address = cluster.scheduler.listen.clone();
    cluster.scheduler.kill();
    cluster.scheduler = scheduler(&address, &cluster.cache.listen);
    let broken = runtime.block_on(last(&mut stream));
    assert!(broken.is_err(), "{broken:?}");
    // What a client does: it waits for the operation, whose name tells the new scheduler what it was.
    let client = runtime.block_on(Client::new(&address, &cluster.cache.listen));
    let wait = |name: String| {
        let wait = re::WaitExecutionRequest { name };
        runtime.block_on(client.execution.clone().wait_execution(wait))
    };
    let mut stream = wait(first.name.clone()).unwrap().into_inner();
    let answer = runtime.block_on(last(&mut stream)).unwrap();
    assert_eq!(text(&answer.result.unwrap().stdout_raw), "done\n");
    // What no scheduler gave is unknown: the client executes it.
    assert_eq!(wait("operations/1-2".to_owned()).unwrap_err().code(), Code::NotFound);
    let snapshot = cluster.workers[0].page("/snapshot");
    let snapshot: serde_json::Value = serde_json::from_str(&snapshot).unwrap();
    assert_eq!(snapshot["requests"]["action"]["arrivals"], 1, "it ran once");
}

/// Where a supervisor keeps the scheduler's socket, who comes while there is none waits for the next one.
#[test]
fn clients_wait_in_a_socket_that_is_kept_while_there_is_no_scheduler() {
    let kept = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut cluster = Cluster::start_with(1, 1, &[], |cache| scheduler_at(&kept, cache));
    let address = kept.local_addr().unwrap().to_string();
    assert_eq!(cluster.scheduler.listen, address);
    cluster.scheduler.kill();
    let runtime = runtime();
    let client = runtime.block_on(Client::new(&address, &cluster.cache.listen));
    let running = runtime.spawn(async move { client.run(&Job::shell("echo done")).await });
    // Its connection is made before there is who accepts it.
    let waits = || {
        rustix::event::poll(
            &mut [rustix::event::PollFd::new(&kept, rustix::event::PollFlags::IN)],
            None,
        )
    };
    assert_eq!(waits(), Ok(1));
    cluster.scheduler = scheduler_at(&kept, &cluster.cache.listen);
    let result = runtime.block_on(running).unwrap();
    assert_eq!(text(&result.stdout_raw), "done\n");
}

/// Stopped for longer than the scheduler bears silence, with its connection whole, a worker is one again as
/// soon as it goes on; both sides say so.
#[test]
fn a_worker_that_stood_still_is_a_worker_again() {
    use rustix::process::Signal;
    let cluster = Cluster::start(2, 1, &[]);
    let runtime = runtime();
    let client = runtime.block_on(cluster.client());
    let status = |words: &str| cluster.scheduler.page("/status.json").contains(words);
    let worker = &cluster.workers[0];
    wait_until("the worker is there", || status("\"slots\":2"));
    worker.signal(Signal::STOP);
    wait_until("it counts as dead", || status("\"workers\":0"));
    worker.signal(Signal::CONT);
    wait_until("it is a worker again", || status("\"slots\":2"));
    let result = runtime.block_on(client.run(&Job::shell("echo done")));
    assert_eq!(text(&result.stdout_raw), "done\n");
    let said = cluster.scheduler.said();
    assert!(said.contains("a worker is silent and counts as dead"), "{said}");
    wait_until("the worker says so", || worker.said().contains("registering anew"));
    let said = worker.said();
    assert!(said.contains("nothing was heard of this worker"), "{said}");
}

/// A scheduler that stood still itself does not take that for its workers' silence: what they run goes on.
#[test]
fn workers_of_a_scheduler_that_stood_still_keep_their_actions() {
    use rustix::process::Signal;
    let cluster = Cluster::start(1, 1, &[]);
    let runtime = runtime();
    let client = runtime.block_on(cluster.client());
    let mut stream = runtime.block_on(client.start(&Job::shell("sleep 7; echo done"))).unwrap();
    wait_until("it runs", || cluster.scheduler.page("/status.json").contains("\"executing\":1"));
    cluster.scheduler.signal(Signal::STOP);
    // Longer than a worker may be silent: the time itself is the fault.
    std::thread::sleep(Duration::from_secs(6));
    cluster.scheduler.signal(Signal::CONT);
    let answer = runtime.block_on(last(&mut stream)).unwrap();
    assert_eq!(text(&answer.result.unwrap().stdout_raw), "done\n");
    let said = cluster.scheduler.said();
    assert!(said.contains("stood still") && !said.contains("counts as dead"), "{said}");
}

/// Clients are to ask again where no worker is there: workers come back by themselves.
#[test]
fn without_any_worker_an_action_is_unavailable() {
    let folder = tempfile::tempdir().unwrap();
    let cache = execution_support::cache(folder.path(), "127.0.0.1:0");
    let scheduler = ["scheduler", "--listen", "127.0.0.1:0", "--cache", &cache.listen];
    let scheduler = Process::start(&[&scheduler[..], &["--no-worker", "100ms"]].concat());
    runtime().block_on(async {
        let client = Client::new(&scheduler.listen, &cache.listen).await;
        let job = Job::shell("echo done");
        let unavailable = |tried: Result<re::ExecuteResponse, tonic::Status>| match tried {
            Ok(response) => code(&response) == Code::Unavailable,
            Err(status) => status.code() == Code::Unavailable,
        };
        // At first it waits for workers; later it is refused at once.
        for _ in 0..2 {
            let tried = client.try_run(&job).await;
            assert!(unavailable(tried.clone()), "{tried:?}");
        }
    });
}

#[test]
fn a_client_that_comes_back_finds_its_operation() {
    let cluster = Cluster::start(1, 1, &[]);
    runtime().block_on(async {
        let client = cluster.client().await;
        let mut stream = client.start(&Job::shell("sleep 0.7; echo done")).await.unwrap();
        let first = stream.message().await.unwrap().unwrap();
        drop(stream);
        for _ in 0..2 {
            let wait = re::WaitExecutionRequest { name: first.name.clone() };
            let stream = client.execution.clone().wait_execution(wait).await.unwrap();
            let answer = last(&mut stream.into_inner()).await.unwrap();
            assert_eq!(text(&answer.result.unwrap().stdout_raw), "done\n");
        }
        let get = lro::GetOperationRequest { name: first.name.clone() };
        let operation = client.operations.clone().get_operation(get).await.unwrap().into_inner();
        assert!(operation.done && answer(&operation).is_some());
        assert_eq!(stage(&operation), re::execution_stage::Value::Completed as i32);
    });
}

#[test]
fn equal_actions_run_once_however_many_ask() {
    let cluster = Cluster::start(4, 1, &[]);
    runtime().block_on(async {
        let client = cluster.client().await;
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let client = client.clone();
            asking.spawn(async move {
                client
                    .run(&Job {
                        skip_cache: true,
                        ..Job::shell("sleep 1; head -c 8 /dev/urandom | od")
                    })
                    .await
            });
        }
        let results = asking.join_all().await;
        assert!(results.iter().all(|result| result.stdout_raw == results[0].stdout_raw));
    });
    let metrics = cluster.scheduler.page("/metrics");
    assert!(metrics.contains("kendall_build_tasks_executing_total 1\n"), "{metrics}");
}

/// What waits for a slot, and then takes its time, is told in each of its stages.
#[test]
fn a_client_hears_of_each_stage_of_an_action_that_takes_its_time() {
    use re::execution_stage::Value::{Completed, Executing, Queued};
    let cluster = Cluster::start(1, 1, &[]);
    runtime().block_on(async {
        let client = cluster.client().await;
        let job = |text: &str| Job { skip_cache: true, ..Job::shell(text) };
        let mut first = client.start(&job("sleep 1; echo 1")).await.unwrap();
        let mut second = client.start(&job("sleep 1; echo 2")).await.unwrap();
        last(&mut first).await.unwrap();
        let mut stages = Vec::new();
        while let Some(operation) = second.message().await.unwrap() {
            stages.push(stage(&operation));
        }
        assert_eq!(stages, [Queued, Executing, Completed].map(|stage| stage as i32));
    });
}

/// Requests between the tiers are most of what a small action costs above its process.
#[test]
fn an_action_costs_two_requests_of_the_cache() {
    let cluster = Cluster::start(1, 1, &[]);
    let asked = || {
        let name = "kendall_cache_operation_duration_seconds_count{";
        let page = cluster.cache.page("/metrics");
        let counts = page.lines().filter_map(|line| line.strip_prefix(name));
        counts.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum::<u64>()
    };
    runtime().block_on(async {
        let client = cluster.client().await;
        let job = Job { skip_cache: true, ..Job::shell("true") };
        // The worker asked before whether the cache serves it.
        client.run(&job).await;
        let action = client.prepare(&job).await;
        let before = asked();
        for _ in 0..3 {
            let request = re::ExecuteRequest {
                action_digest: Some(action.clone()),
                skip_cache_lookup: true,
                ..re::ExecuteRequest::default()
            };
            let mut stream = client.execution.clone().execute(request).await.unwrap().into_inner();
            assert_eq!(last(&mut stream).await.unwrap().result.unwrap().exit_code, 0);
        }
        // The action with its command is read, and its result is stored.
        assert_eq!(asked() - before, 3 * 2);
    });
}

#[test]
fn a_worker_that_is_asked_to_stop_ends_what_it_runs_first() {
    let mut cluster = Cluster::start(1, 1, &[]);
    let runtime = runtime();
    let client = runtime.block_on(cluster.client());
    let mut stream = runtime.block_on(client.start(&Job::shell("sleep 1; echo done"))).unwrap();
    // A lease that is on its way to a worker that stops goes back instead.
    wait_until("the worker has it", || {
        let snapshot = cluster.workers[0].page("/snapshot");
        let snapshot: serde_json::Value = serde_json::from_str(&snapshot).unwrap();
        snapshot["requests"]["action"]["arrivals"] == 1
    });
    assert_eq!(cluster.workers[0].stop(), Some(0));
    let answer = runtime.block_on(last(&mut stream)).unwrap();
    assert_eq!(text(&answer.result.unwrap().stdout_raw), "done\n");
    assert!(cluster.scheduler.page("/status.json").contains("\"workers\":0"));
}

/// The result stays unacknowledged: the worker waits ten seconds for a scheduler, and ends.
#[test]
fn a_worker_without_a_scheduler_stops_after_what_it_runs() {
    let mut cluster = Cluster::start(1, 1, &[]);
    let runtime = runtime();
    let client = runtime.block_on(cluster.client());
    let _stream = runtime.block_on(client.start(&Job::shell("sleep 2"))).unwrap();
    wait_until("the worker has it", || {
        let snapshot = cluster.workers[0].page("/snapshot");
        let snapshot: serde_json::Value = serde_json::from_str(&snapshot).unwrap();
        snapshot["requests"]["action"]["arrivals"] == 1
    });
    cluster.scheduler.kill();
    assert_eq!(cluster.workers[0].stop(), Some(0));
    wait_until("it was said", || {
        cluster.workers[0].said().contains("did not take the last results")
    });
}
