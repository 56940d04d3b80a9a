//! Hosts that are pods: one Job each, made and reached by the user's own `kubectl`.
//!
//! A pod's first process waits for the agent that `kubectl exec` starts beside it, and ends with it:
//! whatever becomes of the agent, of Kendall or of the connection, the container ends, and the kernel
//! ends all that runs in it. The Job goes away by itself a moment later.

#[cfg(feature = "fuzzing")]
#[path = "../../../fuzz/inside/kubernetes.rs"]
pub(crate) mod fuzzing;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::bootstrap::Bootstrap;
use crate::clock::monotonic_ns;
use crate::error::HostError;
use crate::hosts::{HostSpec, Pods};

/// How long a pod may fit nowhere, or not be made at all, before the host is given up. With the calls of
/// `kubectl` around it that is to be said within ten seconds; they took 2.3 s on a busy machine.
const PATIENCE: Duration = Duration::from_millis(6_500);
/// How long a pod may take until it runs: its image may have to be fetched.
const READY_DEADLINE: Duration = Duration::from_secs(180);
/// Pause between two queries for the pods.
const LOOK: Duration = Duration::from_millis(300);
/// Seconds until a Job that has ended is removed.
const KEPT_S: u64 = 10;
/// Words before the reason when a container will never start.
const HOPELESS: [&str; 7] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];

/// The first process of a pod: waits two minutes for the agent, and ends with it.
const FIRST: &str = r#"trap "exit 0" TERM INT; n=0
while [ ! -s "$TMPDIR/kendall.pid" ]; do n=$((n+1)); [ $n -le 120 ] || exit 1; sleep 1 & wait $!; done
p=$(cat "$TMPDIR/kendall.pid")
while kill -0 "$p" 2>/dev/null; do sleep 1 & wait $!; done"#;

/// Where a pod keeps the program and its files.
const WORK: &str = "/kendall";

#[derive(Debug)]
pub(crate) struct Kubernetes {
    pods: Pods,
    /// Marks all that belongs to this study.
    run: String,
    /// How many times each host was made, by its number in the study file.
    made: BTreeMap<usize, u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pod {
    name: String,
    pub address: String,
}

/// How far a pod has come.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Runs(Pod),
    /// It may still come; why it is not there yet.
    Comes(String),
    /// No node takes it.
    FitsNowhere(String),
    /// It will not come.
    Never(String),
}

impl Kubernetes {
    pub(crate) fn new(pods: Pods) -> Self {
        let run = format!("{:x}-{:x}", std::process::id(), monotonic_ns() & 0xffff_ffff);
        Self { pods, run, made: BTreeMap::new() }
    }

    fn kubectl(&self) -> Vec<String> {
        let mut words = vec!["kubectl".to_owned()];
        if let Some(context) = &self.pods.context {
            words.push(format!("--context={context}"));
        }
        words.push(format!("--namespace={}", self.pods.namespace));
        words
    }

    /// Runs `kubectl` to its end, with this on its standard input. Ctrl-C on the terminal must not
    /// reach it: it would fail, and the pods would stay.
    fn call(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        use std::os::unix::process::CommandExt as _;
        let words = self.kubectl();
        let shown = format!("kubectl {}", arguments.join(" "));
        let failed = |error: std::io::Error| format!("`{shown}`: {error}");
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .arg("--request-timeout=10s")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        if let Some(mut pipe) = child.stdin.take() {
            // One that refuses before it has read everything says why.
            pipe.write_all(input.as_bytes()).unwrap_or_default();
        }
        let output = child.wait_with_output().map_err(failed)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("`{shown}`: {} ({})", for_people(&said), output.status))
    }

    /// Makes a pod for each of these hosts, which have their numbers in the study file, and waits until
    /// they run; in the order of the hosts.
    pub(crate) fn bring(
        &mut self,
        hosts: &[(usize, &HostSpec)],
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<Pod>, HostError> {
        let Some((_, first)) = hosts.first() else { return Ok(Vec::new()) };
        let failed = |what| HostError::Unusable { host: first.name.clone(), what };
        let names: Vec<String> =
            hosts.iter().map(|(number, host)| self.next_name(*number, host)).collect();
        let jobs = hosts
            .iter()
            .zip(&names)
            .map(|((_, host), name)| job(&self.pods, &self.run, host, name));
        let jobs: Vec<Json> = jobs.collect();
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": jobs }).to_string();
        self.call(&["create", "-f", "-"], &list).map_err(failed)?;
        let start_ns = monotonic_ns();
        let selector = format!("--selector=kendall/run={}", self.run);
        loop {
            let asked = self.call(&["get", "pods", &selector, "--output=json"], "");
            let pods: Json = serde_json::from_str(&asked.map_err(failed)?).unwrap_or_default();
            let waited = Duration::from_nanos(monotonic_ns() - start_ns);
            let mut running = Vec::new();
            for ((_, host), name) in hosts.iter().zip(&names) {
                let state = state(&pods, name);
                if let State::Runs(pod) = state {
                    running.push(pod);
                } else if let Some(what) = given_up(state, waited, name) {
                    return Err(HostError::Unusable { host: host.name.clone(), what });
                }
            }
            if running.len() == hosts.len() {
                return Ok(running);
            }
            if interrupted() {
                return Err(HostError::Interrupted);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The name of a host's next Job; what is left of the one before is removed.
    fn next_name(&mut self, number: usize, host: &HostSpec) -> String {
        let before = self.made.get(&number).copied().unwrap_or(0);
        let name = |count| job_name(&self.run, (number, host), count);
        let (last, next) = (name(before), name(before + 1));
        if before > 0 {
            self.delete(&format!("kendall/job={last}"));
        }
        self.made.insert(number, before + 1);
        next
    }

    /// What brings the agent up in a pod.
    pub(crate) fn exec(&self, pod: &Pod, bootstrap: &Bootstrap) -> Vec<String> {
        let mut words = self.kubectl();
        words.extend(["exec", "-i", &pod.name, "-c", "host", "--"].map(str::to_owned));
        // The agent takes the shell's place and its number.
        words.extend(bootstrap.words_after("echo $$ > \"$TMPDIR/kendall.pid\"; "));
        words
    }

    fn delete(&self, selector: &str) {
        let selector = format!("--selector={selector}");
        let arguments = ["delete", "jobs", &selector, "--wait=false", "--cascade=background"];
        if let Err(error) = self.call(&arguments, "") {
            tracing::warn!(error, "what is left of a host is removed by its Job's own time limits");
        }
    }
}

/// What `kubectl` says to people: all but the lines of its own log, if there are others.
fn for_people(said: &str) -> String {
    let is_log = |line: &str| {
        let bytes = line.as_bytes();
        let level = bytes.first().is_some_and(|first| b"EIW".contains(first));
        level && bytes.get(1..5).is_some_and(|day| day.iter().all(u8::is_ascii_digit))
    };
    let lines: Vec<&str> = said.lines().filter(|line| !is_log(line)).collect();
    let lines = lines.join("\n");
    if lines.trim().is_empty() { said.trim().to_owned() } else { lines.trim().to_owned() }
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        if !self.made.is_empty() {
            self.delete(&format!("kendall/run={}", self.run));
        }
    }
}

/// Why a pod that does not run after so long is not waited for any longer.
fn given_up(state: State, waited: Duration, job: &str) -> Option<String> {
    match state {
        State::Never(why) => Some(why),
        State::FitsNowhere(why) if waited > PATIENCE => {
            Some(format!("no node takes its pod: {why}"))
        }
        State::Comes(why) if why.is_empty() && waited > PATIENCE => {
            Some(format!("no pod is made for it; `kubectl describe job {job}` may say why"))
        }
        State::Comes(why) if waited > READY_DEADLINE => {
            Some(format!("its pod does not run after {} s: {why}", READY_DEADLINE.as_secs()))
        }
        State::Runs(_) | State::FitsNowhere(_) | State::Comes(_) => None,
    }
}

/// A name as Kubernetes takes it: of lower-case letters, and at most 63 of them. The host's number tells
/// two apart whose names are one then.
fn job_name(run: &str, (number, host): (usize, &HostSpec), count: u32) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let host: String = host.name.chars().map(plain).take(24).collect();
    format!("kendall-{run}-{number}-{count}-{}", host.trim_matches('-'))
}

fn job(pods: &Pods, run: &str, host: &HostSpec, name: &str) -> Json {
    let labels = json!({
        "app.kubernetes.io/managed-by": "kendall",
        "kendall/run": run,
        "kendall/host": host.name,
        "kendall/job": name,
    });
    let variable = |name: &str| json!({ "name": name, "value": WORK });
    let mut container = json!({
        "name": "host",
        "image": pods.image,
        "command": ["sh", "-c", FIRST],
        "env": [variable("TMPDIR"), variable("HOME")],
        "volumeMounts": [{ "name": "work", "mountPath": WORK }],
    });
    let mut resources = serde_json::Map::new();
    if let Some(cpu) = host.cpu {
        resources.insert("cpu".into(), json!(cpu.to_string()));
    }
    if let Some(memory) = host.memory_bytes {
        resources.insert("memory".into(), json!(memory.to_string()));
    }
    if !resources.is_empty() {
        container["resources"] = json!({ "requests": resources, "limits": resources });
    }
    let mut spec = json!({
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 2,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "containers": [container],
        "volumes": [{ "name": "work", "emptyDir": {} }],
    });
    if !host.node.is_empty() {
        spec["nodeSelector"] = json!(host.node);
    }
    if pods.apart {
        spec["affinity"] = json!({ "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{
                "labelSelector": { "matchLabels": { "kendall/run": run } },
                "topologyKey": "kubernetes.io/hostname",
            }],
        }});
    }
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": name, "labels": labels },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": pods.deadline_s,
            "ttlSecondsAfterFinished": KEPT_S,
            "template": { "metadata": { "labels": labels }, "spec": spec },
        },
    })
}

/// How far the pod of a Job is, by what `kubectl get pods --output=json` says.
fn state(pods: &Json, job: &str) -> State {
    let of_job = |pod: &&Json| pod["metadata"]["labels"]["kendall/job"] == job;
    let pod = pods["items"].as_array().and_then(|pods| pods.iter().find(of_job));
    let Some(pod) = pod else { return State::Comes(String::new()) };
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let both = |what: &Json| {
        let (reason, message) = (text(&what["reason"]), text(&what["message"]));
        if message.is_empty() { reason } else { format!("{reason}: {message}") }
    };
    let status = &pod["status"];
    let container = &status["containerStatuses"][0]["state"];
    let phase = text(&status["phase"]);
    if phase == "Failed" || phase == "Succeeded" {
        let ended = [both(status), both(&container["terminated"])];
        let why = ended.into_iter().find(|why| !why.is_empty()).unwrap_or_default();
        return State::Never(format!("its pod has ended at once ({phase}) {why}").trim().into());
    }
    let waiting = &container["waiting"];
    if HOPELESS.contains(&text(&waiting["reason"]).as_str()) {
        return State::Never(format!("its pod cannot start: {}", both(waiting)));
    }
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let unscheduled = conditions
        .iter()
        .find(|one| one["type"] == "PodScheduled" && one["reason"] == "Unschedulable");
    if let Some(condition) = unscheduled {
        return State::FitsNowhere(text(&condition["message"]));
    }
    let mut address = text(&status["podIP"]);
    if phase == "Running" && address.contains(':') {
        // It stands before `:PORT` in texts, where one of IPv6 would need brackets.
        let all = status["podIPs"].as_array().map(Vec::as_slice).unwrap_or_default();
        // `::ffff:10.0.0.7` is one of IPv6 as well.
        let is_four = |ip: &String| ip.contains('.') && !ip.contains(':');
        let Some(four) = all.iter().map(|one| text(&one["ip"])).find(is_four) else {
            return State::Never(format!("its pod has only the IPv6 address {address}"));
        };
        address = four;
    }
    if phase == "Running" && !container["running"].is_null() && !address.is_empty() {
        return State::Runs(Pod { name: text(&pod["metadata"]["name"]), address });
    }
    State::Comes(Some(both(waiting)).filter(|why| !why.is_empty()).unwrap_or(phase))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> HostSpec {
        HostSpec {
            name: "Web_1".into(),
            node: BTreeMap::from([("pool".to_owned(), "web".to_owned())]),
            cpu: Some(1.5),
            memory_bytes: Some(1 << 31),
            ..HostSpec::default()
        }
    }

    fn pods() -> Pods {
        Pods {
            context: None,
            namespace: "perf".into(),
            image: "debian:12-slim".into(),
            apart: true,
            deadline_s: 600,
        }
    }

    #[test]
    fn a_job_asks_for_what_it_may_use_and_ends_whatever_happens() {
        let name = job_name("1a-2b", (0, &host()), 1);
        assert_eq!(name, "kendall-1a-2b-0-1-web-1");
        // Two hosts had one Job where their names differ in dots only, or late.
        let of = |number, name: &str| {
            job_name("1", (number, &HostSpec { name: name.to_owned(), ..host() }), 1)
        };
        assert_ne!(of(0, "a.b"), of(1, "a-b"));
        let long = "x".repeat(100);
        let name_of_long =
            job_name("3fffff-ffffffff", (999, &HostSpec { name: long, ..host() }), 999);
        assert!(name_of_long.len() <= 63, "{name_of_long}");
        let job = job(&pods(), "1a-2b", &host(), &name);
        let spec = &job["spec"];
        assert_eq!(
            (&spec["backoffLimit"], &spec["activeDeadlineSeconds"]),
            (&json!(0), &json!(600))
        );
        assert!(spec["ttlSecondsAfterFinished"].as_u64().unwrap() <= 60);
        let pod = &spec["template"]["spec"];
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(pod["restartPolicy"], "Never");
        assert_eq!(pod["nodeSelector"], json!({ "pool": "web" }));
        let resources = &pod["containers"][0]["resources"];
        assert_eq!(resources["requests"], json!({ "cpu": "1.5", "memory": "2147483648" }));
        assert_eq!(resources["requests"], resources["limits"]);
        let apart = &pod["affinity"]["podAntiAffinity"];
        let term = &apart["requiredDuringSchedulingIgnoredDuringExecution"][0];
        assert_eq!(term["labelSelector"]["matchLabels"]["kendall/run"], "1a-2b");
        assert_eq!(spec["template"]["metadata"]["labels"]["kendall/job"], name.as_str());
        let together = Pods { apart: false, ..pods() };
        let job = super::job(&together, "1", &HostSpec::default(), "x");
        let pod = &job["spec"]["template"]["spec"];
        assert!(pod.get("affinity").is_none() && pod.get("nodeSelector").is_none());
        assert!(pod["containers"][0].get("resources").is_none());
    }

    fn answer(status: &Json) -> Json {
        let labels = json!({ "kendall/job": "j" });
        json!({ "items": [{ "metadata": { "name": "j-x1", "labels": labels }, "status": status }] })
    }

    #[test]
    fn what_kubectl_logs_is_left_out_where_it_says_something() {
        let log = "E1122 22:52:32.410077   18309 memcache.go:265] \"Unhandled Error\" err=\"x\"\n";
        let said = format!("{log}{log}The connection to the server localhost:8080 was refused\n");
        assert_eq!(for_people(&said), "The connection to the server localhost:8080 was refused");
        assert_eq!(for_people(log), log.trim());
        assert_eq!(for_people("Error from server\n"), "Error from server");
    }

    #[test]
    fn a_pod_is_waited_for_as_long_as_it_may_still_come() {
        let (soon, late) = (Duration::from_secs(1), PATIENCE + Duration::from_secs(1));
        let full = || State::FitsNowhere("2 Insufficient cpu".into());
        assert_eq!(given_up(full(), soon, "j"), None);
        assert!(given_up(full(), late, "j").unwrap().contains("2 Insufficient cpu"));
        assert!(
            given_up(State::Comes(String::new()), late, "j").unwrap().contains("describe job j")
        );
        // An image may take its time.
        assert_eq!(given_up(State::Comes("ContainerCreating".into()), late, "j"), None);
        let hours = Duration::from_secs(7_200);
        assert!(given_up(State::Comes("ContainerCreating".into()), hours, "j").is_some());
        assert!(given_up(State::Never("it ended".into()), soon, "j").is_some());
    }

    #[test]
    fn what_a_pod_says_is_told_apart() {
        let comes = |why: &str| State::Comes(why.into());
        assert_eq!(state(&json!({ "items": [] }), "j"), comes(""));
        assert_eq!(state(&answer(&json!({ "phase": "Pending" })), "j"), comes("Pending"));
        let creating = json!({ "phase": "Pending", "containerStatuses":
            [{ "state": { "waiting": { "reason": "ContainerCreating" } } }] });
        assert_eq!(state(&answer(&creating), "j"), comes("ContainerCreating"));
        let message = "0/2 nodes are available: 2 Insufficient cpu.";
        let full = json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled",
            "status": "False", "reason": "Unschedulable", "message": message }] });
        assert_eq!(state(&answer(&full), "j"), State::FitsNowhere(message.into()));
        let image = json!({ "phase": "Pending", "containerStatuses": [{ "state": { "waiting":
            { "reason": "ErrImagePull", "message": "not found" } } }] });
        let never = "its pod cannot start: ErrImagePull: not found";
        assert_eq!(state(&answer(&image), "j"), State::Never(never.into()));
        let ended = json!({ "phase": "Failed", "reason": "DeadlineExceeded" });
        let State::Never(why) = state(&answer(&ended), "j") else { panic!("it ended") };
        assert!(why.contains("DeadlineExceeded"), "{why}");
        let runs = json!({ "phase": "Running", "podIP": "10.1.0.7",
            "containerStatuses": [{ "state": { "running": { "startedAt": "now" } } }] });
        let pod = Pod { name: "j-x1".into(), address: "10.1.0.7".into() };
        assert_eq!(state(&answer(&runs), "j"), State::Runs(pod));
        let six = json!({ "phase": "Running", "podIP": "fd00::7" });
        let State::Never(why) = state(&answer(&six), "j") else { panic!("it is of no use") };
        assert!(why.contains("only the IPv6 address fd00::7"), "{why}");
        let mut both = runs.clone();
        both["podIP"] = json!("fd00::7");
        both["podIPs"] = json!([{ "ip": "fd00::7" }, { "ip": "10.1.0.7" }]);
        assert_eq!(state(&answer(&both), "j"), state(&answer(&runs), "j"));
        // Of another Job.
        assert_eq!(state(&answer(&runs), "k"), comes(""));
    }
}
