//! `kendall load bazel`.

use std::path::PathBuf;

use kendall_loadgen::bazel::{self, Behind, BuildError, BuildPlan, TaskKind};
use kendall_units::{Seconds, parse_seconds};

use super::common::{LoadFormat, print_job};
use crate::exit::{Exit, exit_with, refused, stop_at_a_signal};

/// Runs one build on a build cluster, with Bazel
///
/// Generates a workspace: runs of one test, or generated files. The result is that of a job: its
/// makespan, tasks per second, and the time of each task. Bazel's server is started and the
/// workspace analyzed before the clock starts.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    kendall load bazel 127.0.0.1:8981 --kind tests --tasks 200 --jobs 16\n  \
    kendall load bazel 127.0.0.1:8981 --kind files --tasks 100 --layers 5 --task-time 100ms\n  \
    kendall load bazel 127.0.0.1:9092 --behind cache --reuse --warm --kind files --tasks 50")]
pub(crate) struct LoadBazel {
    /// The scheduler, or the cache with `--behind cache`
    #[arg(value_name = "HOST:PORT")]
    target: String,

    /// What is there
    #[arg(long, value_enum, default_value_t)]
    behind: BehindFlag,

    /// What the tasks are
    #[arg(long, value_enum, default_value_t)]
    kind: KindFlag,

    #[arg(long)]
    tasks: u32,

    #[arg(long)]
    layers: u32,

    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    task_time: Seconds,

    #[arg(long)]
    task_work: u64,

    /// Most tasks at a time
    #[arg(long, short = 'j', default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=5_000))]
    jobs: u32,

    #[arg(long)]
    reuse: bool,

    #[arg(long, requires = "reuse")]
    warm: bool,

    /// The program
    #[arg(long, default_value = "bazel", value_name = "PATH")]
    bazel: PathBuf,

    /// A further argument of the build; may be repeated
    #[arg(long = "option", value_name = "ARGUMENT", allow_hyphen_values = true)]
    options: Vec<String>,

    /// Longest time that the build may take
    #[arg(long, default_value = "3600s", value_name = "TIME", value_parser = parse_seconds)]
    longest: Seconds,

    /// Folder for the workspace, which is removed afterwards; by default a temporary one
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,

    /// Seed; tasks of builds with different seeds differ
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,

    /// How the result is printed
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: LoadFormat,
}

/// What lies behind the address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum BehindFlag {
    /// A cluster that executes.
    #[default]
    Execution,
    /// A cache; tasks run on this machine.
    Cache,
}

/// What the tasks are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum KindFlag {
    /// Runs of one test.
    #[default]
    Tests,
    /// Generated files.
    Files,
}

impl LoadBazel {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        if self.layers > self.tasks {
            return Err(refused(format!(
                "--layers {} is more than --tasks {}",
                self.layers, self.tasks
            )));
        }
        let plan = BuildPlan {
            target: self.target,
            behind: match self.behind {
                BehindFlag::Execution => Behind::Execution,
                BehindFlag::Cache => Behind::Cache,
            },
            kind: match self.kind {
                KindFlag::Tests => TaskKind::Tests,
                KindFlag::Files => TaskKind::Files,
            },
            tasks: self.tasks,
            layers: self.layers,
            sleep_s: self.task_time.get(),
            work: self.task_work,
            jobs: self.jobs,
            reuse: self.reuse,
            warm: self.warm,
            bazel: self.bazel,
            options: self.options,
            seed: self.seed,
            longest: self.longest.as_duration(),
        };
        let stop = stop_at_a_signal()?;
        let around = self.folder.unwrap_or_else(std::env::temp_dir);
        let result = bazel::run(&plan, &around, &stop).map_err(|error| match error {
            BuildError::Start { .. } => exit_with(Exit::NotReady, error),
            other => other.into(),
        })?;
        print_job(&result, self.format)
    }
}
