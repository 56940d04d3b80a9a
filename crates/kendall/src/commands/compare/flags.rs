//! Flags of `kendall compare`.

use std::path::PathBuf;

use kendall_observations::Variable;

use super::sets;
use crate::output::Format;

/// Compares two versions: their results, or measured in turns; fails on a regression beyond a bound
///
/// With --run, BEFORE and AFTER are study files, measured in turns until the verdict is clear; one alone is
/// compared with itself, which shows what can be told apart here.
/// Otherwise they are result sets: a folder of results, or a CSV table with the columns
/// `configuration`, `block` (optional) and `value`. Runs are compared block by block if the two sets
/// were measured side by side. Writes the page `comparison.html` beside the second folder's report,
/// or into `--out`. Exit code 4 means at least one regression beyond the bound, exit code 0 none.
/// Where the runs cannot tell, the result is inconclusive, which fails only with `--strict` (code 4
/// too).
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Examples:\n  kendall compare results/main results/branch --bound 5%\n  kendall compare results/demo --levels system.workers=8,32\n  kendall compare --run before.toml after.toml --blocks 5..30\n  kendall compare --run shop.toml --set-after system.parameters.version=new"
)]
pub(crate) struct Compare {
    /// First result set, the baseline; with --run its study file
    #[arg(value_name = "BEFORE")]
    pub(super) before: PathBuf,
    /// Second result set, which is judged; with --run its study file
    #[arg(value_name = "AFTER", required_unless_present_any = ["levels", "run"])]
    pub(super) after: Option<PathBuf>,
    /// Compares two levels of one factor within one study; its blocks make them pairs
    #[arg(long, value_name = "FACTOR=LEVEL,LEVEL", value_parser = two_levels, conflicts_with = "after")]
    pub(super) levels: Option<TwoLevels>,
    /// Relative change that matters
    #[arg(long, default_value = "5%", value_parser = kendall_units::parse_share)]
    pub(super) bound: f64,
    /// Response variable: throughput, response_time_mean, response_time_p99 or another percentile,
    /// cpu_time_per_request; may be repeated [default: the first three; with --run also CPU time,
    /// where it differs]
    #[arg(long = "metric", value_name = "METRIC", value_parser = sets::parse_variable)]
    pub(super) metrics: Vec<Variable>,
    /// Whether runs of the same block were measured side by side
    #[arg(long, value_enum, default_value_t)]
    pub(super) pairing: Pairing,
    /// Confidence of the intervals and of the verdict
    #[arg(long, default_value = "0.95", value_parser = kendall_units::parse_share)]
    pub(super) confidence: f64,
    /// CSV tables: a higher value is better
    #[arg(long)]
    pub(super) higher_is_better: bool,
    /// Fails also if the runs cannot tell
    #[arg(long)]
    pub(super) strict: bool,
    /// Folder of the page [default: AFTER; for tables no page is written]
    #[arg(long, value_name = "DIR", conflicts_with = "no_report")]
    pub(super) out: Option<PathBuf>,
    /// Writes no page
    #[arg(long)]
    pub(super) no_report: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
    #[command(flatten)]
    pub(super) in_turns: InTurns,
    #[command(flatten)]
    pub(super) many: Many,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(super) enum Pairing {
    /// Pairs where the blocks lie side by side in time (folders), or have names (tables)
    #[default]
    Auto,
    /// Pairs by block
    Blocks,
    /// No pairs
    None,
}

/// Two levels of a factor.
#[derive(Debug, Clone)]
pub(super) struct TwoLevels {
    pub(super) factor: String,
    pub(super) before: String,
    pub(super) after: String,
}

fn two_levels(text: &str) -> Result<TwoLevels, String> {
    let parts = text.split_once('=').and_then(|(factor, levels)| {
        let (before, after) = levels.split_once(',')?;
        Some([factor, before, after].map(|part| part.trim().to_owned()))
    });
    match parts {
        Some([factor, before, after]) if !factor.is_empty() && before != after => {
            Ok(TwoLevels { factor, before, after })
        }
        _ => Err(format!("`{text}` is not two levels; write it like `system.workers=8,32`")),
    }
}

/// Flags of `--run`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct InTurns {
    /// BEFORE and AFTER are study files: measures both in turns, block by block, and stops when the
    /// verdict is clear
    #[arg(long, conflicts_with_all = ["levels", "pairing", "higher_is_better"])]
    pub(super) run: bool,

    /// With --run: blocks before the first judgement, and at most; each block contains every
    /// configuration of both files once
    #[arg(long, value_name = "LEAST..MOST", default_value = "5..40", value_parser = blocks)]
    pub(super) blocks: (u64, u64),

    /// With --run: replaces a key of both files; repeated
    #[arg(long, value_name = "KEY=VALUE", requires = "run")]
    pub(super) set: Vec<String>,

    /// With --run: replaces a key of BEFORE; repeated
    #[arg(long, value_name = "KEY=VALUE", requires = "run")]
    pub(super) set_before: Vec<String>,

    /// With --run: replaces a key of AFTER, which is BEFORE's file unless given; repeated
    #[arg(long, value_name = "KEY=VALUE", requires = "run")]
    pub(super) set_after: Vec<String>,

    /// With --run: takes the small sizes of the files' tables `toy`
    #[arg(long, requires = "run")]
    pub(super) toy: bool,
}

fn blocks(text: &str) -> Result<(u64, u64), String> {
    let parts = text
        .split_once("..")
        .and_then(|(least, most)| Some((least.trim().parse().ok()?, most.trim().parse().ok()?)));
    parts.filter(|(least, most)| *least >= 3 && least <= most && *most <= 1_000).ok_or_else(|| {
        format!("`{text}` is not a range of blocks; write it like `5..40`, from 3 on")
    })
}

/// More than two sets.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Many {
    /// Further result sets, each compared with BEFORE
    #[arg(value_name = "MORE", conflicts_with_all = ["levels", "run"])]
    pub(super) more: Vec<PathBuf>,

    /// Takes the sets in order, such as the commits of a branch, and says where a metric changed;
    /// exit code 4 if one became worse by more than the bound
    #[arg(long, conflicts_with_all = ["levels", "run", "pairing"])]
    pub(super) trend: bool,
}
