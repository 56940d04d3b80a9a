//! The simulator from the command line: its settings, and its progress on standard error.

use std::io::IsTerminal as _;

use anyhow::anyhow;
use indicatif::{ProgressBar, ProgressStyle};
use kendall_queueing::Model;
use kendall_queueing::simulation::{Progress, Settings, Simulated, simulate};

use crate::exit::refused;
use crate::output;

/// What a simulation should do; what is not given here comes from the model.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Simulation")]
pub(crate) struct SimulationFlags {
    /// Seed: the same seed gives the same answer
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Independent replications; below 5, one run is cut into batches instead
    #[arg(long, value_name = "N")]
    replications: Option<u32>,
    /// Stops when mean response time and throughput have this relative half-width, such as 1%
    #[arg(long, value_name = "SHARE")]
    until: Option<String>,
    /// Stops after this many customers that completed or were lost in any case
    #[arg(long, value_name = "N")]
    most_customers: Option<u64>,
    /// Threads; by default all cores. The answer does not depend on it
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
}

impl SimulationFlags {
    /// Simulates a model, with progress on standard error.
    pub(crate) fn simulate(&self, model: &Model) -> anyhow::Result<Simulated> {
        let settings = self.settings(model)?;
        let shown = Shown::new();
        let answer = simulate(model, &settings, &mut |progress| shown.show(progress));
        shown.bar.finish_and_clear();
        answer.map_err(refused)
    }

    fn settings(&self, model: &Model) -> anyhow::Result<Settings> {
        let mut settings = Settings::of(model);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        settings.threads = self.threads.unwrap_or_else(|| u32::try_from(cores).unwrap_or(1));
        settings.seed = self.seed.unwrap_or(settings.seed);
        settings.replications = self.replications.unwrap_or(settings.replications);
        settings.most_customers = self.most_customers.unwrap_or(settings.most_customers);
        if let Some(until) = &self.until {
            settings.relative_half_width = kendall_units::parse_share(until)
                .map_err(|error| refused(anyhow!("--until: {error}")))?;
        }
        Ok(settings)
    }
}

/// A bar on a terminal, a line a round elsewhere.
struct Shown {
    bar: ProgressBar,
    terminal: bool,
}

impl Shown {
    fn new() -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::new(0) } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("simulation {wide_bar} {percent}% {msg}") {
            bar.set_style(style);
        }
        Self { bar, terminal }
    }

    fn show(&self, progress: &Progress) {
        let text = format!(
            "{:.2} M customers, ±{:.2} % of ±{:.2} %",
            kendall_units::exact_f64(progress.ended_customers) / 1e6,
            100.0 * progress.relative_half_width,
            100.0 * progress.wanted
        );
        if self.terminal {
            // Intervals narrow with the square root of what was run.
            let share = (progress.wanted / progress.relative_half_width).powi(2).min(1.0);
            self.bar.set_length(1_000);
            self.bar.set_position(kendall_units::whole_u64(1_000.0 * share));
            self.bar.set_message(text);
        } else {
            output::progress(&format!("simulation: {text}"));
        }
    }
}
