//! `protocol = "bazel"`: a build from its start to its end.

use crate::section::{Key, Problem, Quantities as _, Section, TIME};
use crate::workload::{Driver, Jobs, Protocol};

pub(super) const PROTOCOL: Protocol =
    Protocol { name: "bazel", keys: &[KEYS], read, jobs: Jobs::Always };

const KEYS: &[Key] = &[
    Key::choice("tasks_are", &["tests", "files"], "runs of one test, or generated files")
        .or("'tests'"),
    Key::count("tasks", 1, 100_000, "tasks of a build").or("100"),
    Key::count(
        "layers",
        1,
        1_000,
        "files: in so many layers of the same size; a task needs two of the layer before",
    )
    .or("1"),
    Key::quantity("task_time", &TIME, "how long each task sleeps").or("'0ms'"),
    Key::count("task_work", 0, 1 << 40, "how far each task counts in a shell: CPU time").or("0"),
    Key::choice(
        "behind",
        &["execution", "cache"],
        "whether tasks run in the cluster, or here with their results in the cache",
    )
    .or("'execution'"),
    Key::flag("reuse", "uses results of earlier builds, and keeps those of this one").or("false"),
    Key::flag("warm", "builds the same workspace once before, and removes its local outputs")
        .or("false"),
    Key::texts("options", "further arguments of Bazel's command"),
];

fn read(section: &mut Section<'_>) -> Result<Driver, Problem> {
    let tasks = section.count("tasks")?;
    let layers = section.count("layers")?;
    if layers > tasks {
        return Err(section.problem("layers", format!("{layers} are more than {tasks} tasks")));
    }
    let time = section.seconds("task_time")?;
    let (reuse, warm) = (section.flag("reuse")?, section.flag("warm")?);
    if warm && !reuse {
        return Err(section.problem("warm", "builds before for nothing without `reuse = true`"));
    }
    let mut options =
        section.options(&["tasks", "layers", "task_work", "behind", "reuse", "warm"])?;
    let mut option = |name: &str, value: String| options.extend([format!("--{name}"), value]);
    option("kind", section.text("tasks_are")?);
    option("task-time", format!("{}ns", time.as_nanos()));
    for argument in section.words("options")? {
        option("option", argument);
    }
    Ok(Driver { options, in_folder: true, ..Driver::default() })
}
