//! The study file: read, checked as a whole, and turned into the settings of each configuration.

use std::path::Path;

use serde_json::{Value as Json, json};
use toml::{Table, Value};

use crate::factor::{self, Factor};
use crate::lines::{Lines, line_of};
use crate::section::{Problem, Section};
use crate::settings::Settings;

/// A study file that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A key that cannot be used.
    #[error("{file}:{line}: {problem}")]
    Key {
        /// The study file.
        file: String,
        /// Line of the key, from 1.
        line: usize,
        /// The key and what is wrong with it.
        problem: Problem,
    },
    /// No TOML.
    #[error("{file}:{line}: {what}")]
    Toml {
        /// The study file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What the parser says.
        what: String,
    },
    /// The file cannot be read.
    #[error("{file}: {what}; give the path of a study file, such as studies/demo.toml")]
    Unreadable {
        /// The path.
        file: String,
        /// What the operating system says.
        what: String,
    },
}

/// A study file that was accepted.
#[derive(Debug, Clone)]
pub struct StudyFile {
    /// Its name, for messages.
    pub name: String,
    /// Its text, byte by byte.
    pub text: String,
    /// Short name of the study.
    pub study: String,
    /// One line that says what it asks.
    pub title: String,
    /// Seed of all chance.
    pub seed: u64,
    /// What is varied.
    pub factors: Vec<Factor>,
    /// How the factors are combined.
    pub design: DesignSpec,
    /// Settings before any factor is applied.
    pub base: Settings,
    file: Table,
    lines: Lines,
}

/// `[design]`.
#[derive(Debug, Clone, PartialEq)]
pub struct DesignSpec {
    /// How the factors are combined.
    pub kind: DesignKind,
    /// Effective values.
    pub effective: Json,
}

/// How factors are combined.
#[derive(Debug, Clone, PartialEq)]
pub enum DesignKind {
    /// Every combination.
    Full,
    /// Each factor by itself, the others at their base value.
    OneAtATime,
    /// Every combination of two levels a factor.
    TwoLevel,
    /// A fraction of it, by generators such as `D=ABC`.
    Fractional {
        /// One a factor beyond the base factors; none where the resolution says it.
        generators: Vec<String>,
        /// Resolution of the smallest fraction that will do.
        resolution: u32,
    },
    /// Finds the saturation point over one numeric factor in few runs.
    Adaptive(Adaptive),
}

/// `kind = "adaptive"`.
#[derive(Debug, Clone, PartialEq)]
pub struct Adaptive {
    /// The factor that is searched, such as `workload.clients`.
    pub factor: String,
    /// Most runs for each combination of the other factors.
    pub max_runs: u32,
}

impl DesignKind {
    /// As the study file says it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::OneAtATime => "one-at-a-time",
            Self::TwoLevel => "2kr",
            Self::Fractional { .. } => "fractional",
            Self::Adaptive(_) => "adaptive",
        }
    }
}

impl StudyFile {
    /// Reads and checks a study file; with `toy`, its `[toy]` table replaces what it names.
    ///
    /// # Errors
    /// [`Refusal`] with file, line, key, value and accepted form.
    pub fn read(path: &Path, toy: bool) -> Result<Self, Refusal> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Refusal::Unreadable { file: name.clone(), what: error.to_string() })?;
        Self::parse(&name, text, toy)
    }

    /// As [`read`](Self::read), from a text.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(name: &str, text: String, toy: bool) -> Result<Self, Refusal> {
        let file: Table = text.parse().map_err(|error: toml::de::Error| Refusal::Toml {
            file: name.to_owned(),
            line: error.span().map_or(1, |span| line_of(&text, span.start)),
            what: format!("not TOML: {}", error.message().trim().replace('\n', "; ")),
        })?;
        let lines = Lines::of(&text);
        let refuse = |problem: Problem| Refusal::Key {
            file: name.to_owned(),
            line: lines.line(&problem.key),
            problem,
        };
        let file = toy_applied(file, toy).map_err(refuse)?;
        let parts = Parts::read(&file).map_err(refuse)?;
        let study = Self {
            name: name.to_owned(),
            study: parts.name,
            title: parts.title,
            seed: parts.seed,
            factors: parts.factors,
            design: parts.design,
            base: parts.base,
            text,
            file,
            lines: lines.clone(),
        };
        study.check_levels()?;
        Ok(study)
    }

    /// The settings with these levels applied: one index a factor, `None` for its base value.
    ///
    /// # Errors
    /// [`Refusal`] for a combination that the system cannot have.
    pub fn settings(&self, levels: &[Option<usize>]) -> Result<Settings, Refusal> {
        let mut file = self.file.clone();
        for (factor, level) in self.factors.iter().zip(levels) {
            if let Some(level) = level {
                factor.apply(*level, &mut file).map_err(|problem| self.refuse(problem))?;
            }
        }
        Settings::read(&file).map_err(|problem| {
            // A value that comes from a level stands in [factors], not under its own key.
            let applied = self.factors.iter().zip(levels).find(|(factor, level)| {
                level.is_some()
                    && (problem.key == factor.key
                        || problem.key.starts_with(&format!("{}.", factor.key)))
            });
            match applied {
                Some((factor, _)) => {
                    let key = format!("factors.{}", factor.key);
                    self.refuse(Problem { key, what: problem.what })
                }
                None => self.refuse(problem),
            }
        })
    }

    /// The settings with any dotted keys set, levels applied first.
    ///
    /// # Errors
    /// [`Refusal`] for a value that the system cannot have.
    pub fn settings_with(
        &self,
        levels: &[Option<usize>],
        values: &[(String, Value)],
    ) -> Result<Settings, Refusal> {
        let mut file = self.file.clone();
        for (factor, level) in self.factors.iter().zip(levels) {
            if let Some(level) = level {
                factor.apply(*level, &mut file).map_err(|problem| self.refuse(problem))?;
            }
        }
        for (key, value) in values {
            factor::set(&mut file, key, value.clone())
                .map_err(|what| self.refuse(Problem { key: format!("factors.{key}"), what }))?;
        }
        Settings::read(&file).map_err(|problem| self.refuse(problem))
    }

    /// A refusal of one key of this file.
    #[must_use]
    pub fn refuse(&self, problem: Problem) -> Refusal {
        Refusal::Key { file: self.name.clone(), line: self.lines.line(&problem.key), problem }
    }

    /// All effective values: of the study, of its base configuration, and of its factors.
    #[must_use]
    pub fn effective(&self) -> Json {
        let mut all = self.base.effective.clone();
        all["name"] = json!(self.study);
        all["title"] = json!(self.title);
        all["seed"] = json!(self.seed);
        all["design"] = self.design.effective.clone();
        let factors: Vec<Json> = self
            .factors
            .iter()
            .map(|factor| json!({ "key": factor.key, "levels": factor.levels }))
            .collect();
        all["factors"] = json!(factors);
        all
    }

    /// Digest of the effective values: two files with the same one ask for the same study.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        // FNV-1a: stable over versions of compiler and library, and not a matter of security.
        let hash =
            self.effective().to_string().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        format!("{hash:016x}")
    }

    /// Every level by itself must be a value that its key can have, and must change something.
    fn check_levels(&self) -> Result<(), Refusal> {
        for (index, factor) in self.factors.iter().enumerate() {
            for level in 0..factor.levels.len() {
                let mut levels = vec![None; self.factors.len()];
                levels[index] = Some(level);
                self.settings(&levels)?;
            }
        }
        Ok(())
    }
}

/// What is read from a file's table.
struct Parts {
    name: String,
    title: String,
    seed: u64,
    factors: Vec<Factor>,
    design: DesignSpec,
    base: Settings,
}

impl Parts {
    fn read(file: &Table) -> Result<Self, Problem> {
        let mut root = Section::new("", file);
        let name = root.text("name", None)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || !name.chars().all(plain) || name.starts_with('.') {
            let form = "letters, digits, `-`, `_` and `.`: it names a folder";
            return Err(root.problem("name", format!("`{name}` is not made of {form}")));
        }
        let title = root.text("title", Some(&name))?;
        let seed = root.count("seed", Some(1), 0..=(1 << 53))?;
        let factors = Factor::read_all(root.section("factors")?)?;
        let design = design(root.section("design")?, &factors)?;
        // A factor may be the only place where a key is written: the first level stands in.
        let mut first = file.clone();
        for factor in &factors {
            if get(file, &factor.key).is_none() {
                factor.apply(0, &mut first)?;
            }
        }
        let base = Settings::read(&first).map_err(|problem| of_levels(problem, file, &factors))?;
        for key in ["system", "links", "workload", "measure", "toy"] {
            root.raw(key);
        }
        root.finish()?;
        if let Some(factor) = factors.iter().find(|f| !is_varied(&f.key)) {
            let key = format!("factors.{}", factor.key);
            let what = "cannot be varied; name a key of system, links, workload or measure, such as \"system.workers\"";
            return Err(Problem { key, what: what.into() });
        }
        Ok(Self { name, title, seed, factors, design, base })
    }
}

/// A problem with a key that only a factor writes belongs to the factor.
fn of_levels(problem: Problem, file: &Table, factors: &[Factor]) -> Problem {
    let is_of = |factor: &&Factor| factor.key == problem.key && get(file, &factor.key).is_none();
    match factors.iter().find(is_of) {
        Some(factor) => Problem { key: format!("factors.{}", factor.key), ..problem },
        None => problem,
    }
}

fn is_varied(key: &str) -> bool {
    let kept = ["measure.repetitions", "measure.retries", "measure.confidence"];
    ["system.", "links.", "workload.", "measure."].iter().any(|part| key.starts_with(part))
        && !kept.iter().any(|part| key.starts_with(part))
}

fn get<'a>(file: &'a Table, key: &str) -> Option<&'a Value> {
    let (first, rest) = key.split_once('.')?;
    let table = file.get(first)?.as_table()?;
    let mut parts = match first {
        "links" => rest.rsplit_once('.').map_or(vec![rest], |(link, last)| vec![link, last]),
        _ => rest.split('.').collect(),
    };
    let last = parts.pop()?;
    parts.into_iter().try_fold(table, |table, part| table.get(part)?.as_table())?.get(last)
}

fn toy_applied(mut file: Table, toy: bool) -> Result<Table, Problem> {
    let overrides = match file.remove("toy") {
        None => Table::new(),
        Some(Value::Table(table)) => table,
        Some(_) => {
            let what = "is not a table; write `[toy]` and below it lines such as \"measure.duration\" = \"1s\"";
            return Err(Problem { key: "toy".into(), what: what.into() });
        }
    };
    if toy {
        for (key, value) in overrides {
            factor::set(&mut file, &key, value)
                .map_err(|what| Problem { key: format!("toy.{key}"), what })?;
        }
    }
    Ok(file)
}

fn design(mut section: Section<'_>, factors: &[Factor]) -> Result<DesignSpec, Problem> {
    let kinds = [("full", 0), ("one-at-a-time", 1), ("2kr", 2), ("fractional", 3), ("adaptive", 4)];
    let kind = match section.choice("kind", &kinds, Some("full"))? {
        0 => DesignKind::Full,
        1 => DesignKind::OneAtATime,
        2 => DesignKind::TwoLevel,
        3 => {
            let generators = section.words("generators", &[])?;
            let resolution = section.small("resolution", Some(4), 3..=8)?;
            DesignKind::Fractional { generators, resolution }
        }
        _ => DesignKind::Adaptive(adaptive(&mut section, factors)?),
    };
    let two_levels = matches!(kind, DesignKind::TwoLevel | DesignKind::Fractional { .. });
    if let Some(factor) = factors.iter().find(|f| two_levels && f.levels.len() != 2) {
        let what = format!("has {} levels; this design takes two a factor", factor.levels.len());
        return Err(Problem { key: format!("factors.{}", factor.key), what });
    }
    Ok(DesignSpec { kind, effective: section.finish()? })
}

fn adaptive(section: &mut Section<'_>, factors: &[Factor]) -> Result<Adaptive, Problem> {
    let factor = section.text("factor", Some("workload.clients"))?;
    let numeric = factors.iter().find(|known| known.key == factor).is_some_and(|known| {
        known.levels.len() >= 2 && (0..known.levels.len()).all(|l| known.level(l).number.is_some())
    });
    if !numeric {
        let what = format!("`{factor}` is not a factor with two or more numeric levels");
        return Err(section.problem("factor", what));
    }
    Ok(Adaptive { factor, max_runs: section.small("max_runs", Some(40), 3..=1_000)? })
}
