//! `kendall design new`: the runs of a design in their order.

use kendall_report::document::Section;
use kendall_stats::design::fraction::Fraction;
use kendall_stats::design::{Design, DesignError, Factor, PlannedRun};
use kendall_units::counted;

use crate::csv;
use crate::exit::{Exit, refused};
use crate::output;
use crate::text::grid;

/// Makes a design: which configurations to run, and in which order
///
/// Every repetition runs every configuration once, in its own random order, which the seed
/// determines, so that a drift of the machine is not mistaken for an effect. Fill the column
/// `value` and give the table to `kendall design analyze`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  kendall design new --kind fractional \\\n    --factor a=1,2 --factor b=1,2 --factor c=1,2 --factor d=1,2 \\\n    --resolution 4 --format csv > plan.csv"
)]
pub(super) struct New {
    /// How the configurations are chosen
    #[arg(long, value_enum)]
    kind: Kind,
    /// A factor and its levels; repeated
    #[arg(long = "factor", value_name = "NAME=LEVEL,LEVEL", required = true, value_parser = factor)]
    factors: Vec<Factor>,
    /// Repetitions of every configuration
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    replications: u64,
    /// Seed of the order of the runs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Fraction: least resolution (3: main effects are not confounded with one another; 4: nor with
    /// two-factor interactions)
    #[arg(long, value_parser = clap::value_parser!(u32).range(3..=20), conflicts_with = "generators")]
    resolution: Option<u32>,
    /// Fraction: a generator such as D=ABC; repeated
    #[arg(long = "generator", value_name = "D=ABC")]
    generators: Vec<String>,
    /// Two-level designs: runs of the center point in every repetition
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000))]
    center_points: u64,
    /// Two-level designs: adds the mirror image of every run, so that main effects are not
    /// confounded with two-factor interactions
    #[arg(long)]
    fold_over: bool,
    /// How to print the design
    #[arg(long, value_enum, default_value_t)]
    format: PlanFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// One factor at a time from the first levels
    OneAtATime,
    /// Every combination of levels
    Full,
    /// Every combination of two levels each
    #[value(name = "2kr")]
    TwoLevel,
    /// A fraction of the combinations of two levels each
    Fractional,
    /// Up to 23 two-level factors in 8 to 24 runs: main effects only
    PlackettBurman,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum PlanFormat {
    /// Tables for people
    #[default]
    Human,
    /// The runs, to be filled in
    Csv,
    /// One JSON document
    Json,
}

/// A design with the order of its runs.
#[derive(Debug, serde::Serialize)]
struct Plan<'a> {
    design: &'a Design,
    seed: u64,
    replications: u64,
    runs: &'a [PlannedRun],
}

fn factor(text: &str) -> Result<Factor, String> {
    let refuse = || format!("`{text}` is not a factor; write it like `workers=8,32`");
    let (name, levels) = text.split_once('=').ok_or_else(refuse)?;
    let levels: Vec<&str> = levels.split(',').map(str::trim).collect();
    if name.trim().is_empty() || levels.iter().any(|level| level.is_empty()) {
        return Err(refuse());
    }
    Ok(Factor::new(name.trim(), levels))
}

impl New {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let design = self.design().map_err(refused)?;
        let runs = design.plan(self.replications, self.seed);
        match self.format {
            PlanFormat::Human => output::document(&self.human(&design, &runs)),
            PlanFormat::Csv => output::result(&table(&design, &runs)),
            PlanFormat::Json => output::json(&Plan {
                design: &design,
                seed: self.seed,
                replications: self.replications,
                runs: &runs,
            })?,
        }
        Ok(Exit::Done)
    }

    fn design(&self) -> Result<Design, DesignError> {
        let factors = self.factors.clone();
        let count = factors.len();
        let design = match self.kind {
            Kind::OneAtATime => Design::one_at_a_time(factors)?,
            Kind::Full => Design::full(factors)?,
            Kind::TwoLevel => Design::two_level(factors)?,
            Kind::Fractional => {
                let texts: Vec<&str> = self.generators.iter().map(String::as_str).collect();
                let fraction = match (texts.as_slice(), self.resolution) {
                    ([], resolution) => Fraction::smallest(count, resolution.unwrap_or(4))?,
                    (texts, _) => Fraction::from_generators(count, texts)?,
                };
                Design::fractional(factors, fraction)?
            }
            Kind::PlackettBurman => Design::plackett_burman(factors)?,
        };
        let design = if self.fold_over { design.folded_over()? } else { design };
        match self.center_points {
            0 => Ok(design),
            count => design.with_center_points(count),
        }
    }

    fn human(&self, design: &Design, runs: &[PlannedRun]) -> Section {
        let mut document = Section::new(
            "design",
            format!(
                "{} × {} = {}, in the order of seed {}",
                counted(design.configurations.len(), "configuration"),
                counted(self.replications, "repetition"),
                counted(runs.len(), "run"),
                self.seed
            ),
        );
        if let Some(fraction) = &design.fraction {
            confounding(&mut document, design, fraction);
        }
        let mut header = vec!["order".to_owned(), "block".to_owned()];
        header.extend(design.factors.iter().map(|factor| factor.name.clone()));
        let rows = runs.iter().map(|run| {
            let mut row = vec![run.order.to_string(), run.block.to_string()];
            row.extend(design.configurations[run.configuration].settings.iter().cloned());
            row
        });
        document.table(grid(&header, rows));
        document
    }
}

fn confounding(document: &mut Section, design: &Design, fraction: &Fraction) {
    let names: Vec<String> = design
        .factors
        .iter()
        .enumerate()
        .map(|(index, factor)| {
            format!("{} = {}", kendall_stats::design::fraction::letter(index), factor.name)
        })
        .collect();
    let words = |words: Vec<String>, separator: &str| words.join(separator);
    let mut relation: Vec<String> =
        fraction.defining_relation.iter().map(ToString::to_string).collect();
    let more = relation.len().saturating_sub(16);
    relation.truncate(16);
    let more = if more > 0 { format!(" = … ({more} more)") } else { String::new() };
    document.text(format!(
        "{}\ngenerators {}\ndefining relation I = {}{more}\nresolution {}: {}",
        names.join(", "),
        words(fraction.generator_texts(), ", "),
        words(relation, " = "),
        roman(fraction.resolution),
        promise(fraction.resolution),
    ));
    let longest = if fraction.factors <= 6 { 4 } else { 2 };
    let rows = fraction.alias_table(longest).into_iter().map(|(effect, aliases)| {
        let sum: Vec<String> = aliases.iter().map(ToString::to_string).collect();
        let sum = if sum.is_empty() {
            format!("{effect} (nothing up to {longest} factors)")
        } else {
            format!("{effect} + {}", sum.join(" + ")).replace("+ -", "- ")
        };
        vec![effect.to_string(), sum]
    });
    document.table(grid(&["effect".to_owned(), "stands for".to_owned()], rows));
    document.text("this design cannot separate the terms of a sum");
}

fn roman(resolution: u32) -> String {
    const NUMERALS: [&str; 8] = ["III", "IV", "V", "VI", "VII", "VIII", "IX", "X"];
    usize::try_from(resolution)
        .ok()
        .and_then(|index| NUMERALS.get(index.checked_sub(3)?))
        .map_or_else(|| resolution.to_string(), |numeral| (*numeral).to_owned())
}

fn promise(resolution: u32) -> &'static str {
    match resolution {
        0..=3 => "main effects are confounded with interactions of two factors",
        4 => {
            "main effects are not confounded with two-factor interactions, which are confounded \
              with each other"
        }
        _ => "main effects and two-factor interactions are not confounded with each other",
    }
}

/// The runs as a table to be filled in.
fn table(design: &Design, runs: &[PlannedRun]) -> String {
    let names = design.factors.iter().map(|factor| factor.name.clone());
    let head = ["order", "replicate"].map(str::to_owned).into_iter().chain(names);
    let rows = runs.iter().map(|run| {
        let settings = &design.configurations[run.configuration].settings;
        let place = [run.order.to_string(), run.block.to_string()];
        place.into_iter().chain(settings.iter().cloned()).chain([String::new()]).collect()
    });
    csv::written(std::iter::once(head.chain(["value".to_owned()]).collect()).chain(rows))
}
