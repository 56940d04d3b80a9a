//! `kendall design power`: how many runs a study needs, before it is made.

use kendall_report::document::Section;
use kendall_stats::power::{TwoLevel, TwoSystems, USUAL_POWER, replications_for_width, runs};
use serde::Serialize;

use crate::exit::{Exit, refused};
use crate::output::{self, Format};
use crate::text::grid;

/// Says how many repetitions are needed to detect an effect of a given size
///
/// `--deviation` is the standard deviation between runs of the same configuration, as a share of
/// their mean; five pilot runs give it. `--effect` is the relative change from the low to the high
/// level (or from one system to the other) that the experiment should detect.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  kendall design power --deviation 3% --effect 5% --cells 8\n  kendall design power --deviation 3% --effect 5% --repetitions 5"
)]
pub(super) struct Power {
    /// Standard deviation between runs of one configuration, over their mean
    #[arg(long, value_name = "SHARE", value_parser = kendall_units::parse_share)]
    deviation: f64,
    /// Relative change to detect
    #[arg(long, value_name = "SHARE", value_parser = kendall_units::parse_share)]
    effect: f64,
    /// Configurations of a two-level design; without it, two systems are compared
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..=100_000))]
    cells: Option<u64>,
    /// Prints the power of this many repetitions, instead of how many are needed
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..=1_000))]
    repetitions: Option<u64>,
    /// Runs of two systems are pairs, block by block
    #[arg(long)]
    paired: bool,
    /// Share of such studies that should detect the change
    #[arg(long, default_value_t = USUAL_POWER, value_parser = kendall_units::parse_share)]
    power: f64,
    /// Confidence of the test
    #[arg(long, default_value = "0.95", value_parser = kendall_units::parse_share)]
    confidence: f64,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What the power of a comparison assumes.
const UNDISTURBED: &str = "By the test of `kendall compare`, for runs of which none is disturbed. Where one in \
                           ten is a third slower, 10 + 10 runs have 62 % in place of 85 %, 10 pairs 37 % in \
                           place of 82 %";

#[derive(Debug, Serialize)]
struct Answer {
    /// Repetitions of every configuration (runs a side of two systems) that are needed.
    repetitions: Option<u64>,
    runs: Option<u64>,
    /// Power with other numbers of repetitions.
    table: Vec<(u64, f64)>,
    /// Relative change that the repetitions that were asked for tell with this power.
    smallest_effect: Option<f64>,
    /// Repetitions after which a configuration's own interval is as narrow as the effect.
    repetitions_for_interval: Option<u64>,
}

impl Power {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let inside = |value: f64| value > 0.0 && value < 1.0;
        if !(self.deviation > 0.0 && self.effect > 0.0) {
            let message = anyhow::anyhow!("deviation and effect must be above 0, such as 3%");
            return Err(refused(message));
        }
        if !(inside(self.power) && inside(self.confidence)) {
            let message = anyhow::anyhow!("power and confidence must lie between 0 and 1");
            return Err(refused(message));
        }
        if let Some(cells) = self.cells.filter(|cells| cells % 2 == 1) {
            let message = anyhow::anyhow!(
                "a two-level design has an even number of configurations, half of them at each \
                 level of a factor; not {cells}"
            );
            return Err(refused(message));
        }
        let answer = self.answer();
        output::print(self.format, &answer, || self.human(&answer))?;
        Ok(Exit::Done)
    }

    /// Half the change is the effect q of a two-level design.
    fn two_level(&self, cells: u64) -> TwoLevel {
        TwoLevel {
            cells,
            deviation: self.deviation,
            effect: self.effect / 2.0,
            confidence: self.confidence,
        }
    }

    fn systems(&self) -> TwoSystems {
        TwoSystems {
            deviation: self.deviation,
            change: self.effect,
            confidence: self.confidence,
            paired: self.paired,
        }
    }

    fn power_of(&self, repetitions: u64) -> f64 {
        match self.cells {
            Some(cells) => self.two_level(cells).power(repetitions),
            None => self.systems().power(repetitions),
        }
    }

    fn answer(&self) -> Answer {
        let needed = match self.cells {
            Some(cells) => self.two_level(cells).replications_for(self.power),
            None => self.systems().runs_for(self.power),
        };
        let repetitions = self.repetitions.or(needed);
        let mut counts = vec![2, 3, 5, 7, 10, 15, 20, 30, 50];
        counts.extend(repetitions);
        counts.sort_unstable();
        counts.dedup();
        let smallest = |repetitions: u64| match self.cells {
            Some(cells) => 2.0 * self.two_level(cells).smallest_effect(repetitions, self.power),
            None => self.systems().smallest_change(repetitions, self.power),
        };
        Answer {
            repetitions: needed,
            runs: needed.map(|count| runs(self.cells.unwrap_or(2), count)),
            table: counts.into_iter().map(|count| (count, self.power_of(count))).collect(),
            smallest_effect: self.repetitions.map(smallest),
            repetitions_for_interval: replications_for_width(
                self.deviation,
                self.effect,
                self.confidence,
            ),
        }
    }

    fn human(&self, answer: &Answer) -> Section {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let what = match self.cells {
            Some(cells) => format!("a main effect in a two-level design of {cells} configurations"),
            None if self.paired => "a change between two systems, runs in pairs".to_owned(),
            None => "a change between two systems".to_owned(),
        };
        let mut document = Section::new("power", "");
        document.text(format!(
            "To detect {what} of {} (low to high), with a standard deviation of {} between \
                 runs:",
            percent(self.effect),
            percent(self.deviation)
        ));
        match (answer.repetitions, answer.runs) {
            (Some(repetitions), Some(runs)) => document.text(format!(
                "{repetitions} repetitions ({runs} runs) detect it in {} of such studies, at \
                     {} confidence",
                percent(self.power_of(repetitions)),
                percent(self.confidence)
            )),
            _ => document.text("1,000 repetitions are not enough; make runs longer or steadier"),
        }
        if let (Some(asked), Some(smallest)) = (self.repetitions, answer.smallest_effect) {
            let of_asked = percent(self.power_of(asked));
            document.text(format!(
                "{asked} repetitions detect it in {of_asked}; in {} they detect {} or more",
                percent(self.power),
                percent(smallest)
            ));
        }
        if let Some(count) = answer.repetitions_for_interval {
            let words = format!(
                "{count} repetitions give each configuration an interval of ±{}",
                percent(self.effect)
            );
            document.text(words);
        }
        if self.cells.is_none() {
            document.text(UNDISTURBED);
        }
        let header = ["repetitions", "power"].map(str::to_owned);
        let rows = answer.table.iter().map(|(n, power)| vec![n.to_string(), percent(*power)]);
        document.table(grid(&header, rows));
        document
    }
}
