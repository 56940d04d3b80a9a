//! The study file: read, checked as a whole, and turned into the settings of each configuration.

use std::path::Path;

use kendall_keys::{Lines, line_of};
use kendall_observations::{Condition, Objective, Published};
use kendall_units::Seconds;
use serde_json::{Value as Json, json};
use toml::{Table, Value};

use crate::factor::{self, Factor};
use crate::section::{Problem, Section};
use crate::settings::{STUDY, Settings};
use crate::{capacity, template};

/// A study file that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{file}:{line}: {problem}")]
    Key { file: String, line: usize, problem: Problem },
    #[error("--set {set}: {problem}")]
    Set { set: String, problem: Problem },
    #[error("{file}:{line}: {what}")]
    Toml { file: String, line: usize, what: String },
    #[error("{file}: {what}; give the path of a study file, such as studies/demo.toml")]
    Unreadable { file: String, what: String },
}

/// A study file that was accepted.
#[derive(Debug, Clone)]
pub struct StudyFile {
    pub name: String,
    /// Its text, byte by byte; below it what `--set` replaced, as comments.
    pub text: String,
    /// Short name of the study.
    pub study: String,
    /// One line that says what it asks.
    pub title: String,
    /// What the study is to answer, in words.
    pub question: Option<String>,
    pub objective: Option<Objective>,
    /// What the study is to fail for. Not among the effective values: it changes no run.
    pub fail_if: Vec<Condition>,
    pub seed: u64,
    pub factors: Vec<Factor>,
    /// How the factors are combined.
    pub design: DesignSpec,
    /// What one of something costs, by its key.
    pub costs: Vec<(String, f64)>,
    /// Settings before any factor is applied.
    pub base: Settings,
    /// Ends it before a run that, as long as the longest so far, would not end within this time.
    pub(crate) within: Option<Seconds>,
    file: Table,
    places: Places,
}

/// A study as its results have it.
#[derive(Debug, Clone)]
pub struct Stored {
    pub file: StudyFile,
    /// Its text, without the notes of what was set.
    pub text: String,
    /// Whether it was run with its small sizes.
    pub toy: bool,
    pub sets: Vec<String>,
}

/// How a stored study file notes what `--set` replaced.
const SET_NOTE: &str = "# --set ";

/// Where keys are given: in a line of the file, or on the command line.
#[derive(Debug, Clone)]
struct Places {
    file: String,
    lines: Lines,
    sets: Vec<String>,
}

impl Places {
    fn refuse(&self, problem: Problem) -> Refusal {
        let is_key = |set: &&String| set.split_once('=').is_some_and(|(key, _)| key == problem.key);
        // A table that is not known, of which the file has no line.
        let is_in_table = |set: &&String| {
            let below = set.strip_prefix(problem.key.as_str());
            below.is_some_and(|rest| rest.starts_with('.'))
                && self.lines.find(&problem.key).is_none()
        };
        let mut last = self.sets.iter().rev();
        match last.clone().find(is_key).or_else(|| last.find(is_in_table)) {
            Some(set) => Refusal::Set { set: set.clone(), problem },
            None => Refusal::Key {
                file: self.file.clone(),
                line: self.lines.line(&problem.key),
                problem,
            },
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DesignSpec {
    /// How the factors are combined.
    pub kind: DesignKind,
    /// Of the effects, where the file states one: `additive` or `multiplicative`.
    pub model: Option<String>,
    pub effective: Json,
}

#[derive(Debug, Clone, PartialEq)]
pub enum DesignKind {
    /// Every combination of all levels.
    Full,
    /// Each factor by itself, the others at their base value.
    OneAtATime,
    /// Every combination of two levels a factor.
    TwoLevel,
    /// A fraction of it, by generators such as `D=ABC`, one a factor beyond the base factors; without them the
    /// smallest of this resolution.
    Fractional { generators: Vec<String>, resolution: u32 },
    /// Finds the saturation point over one numeric factor in few runs.
    Adaptive(Adaptive),
    /// The fewest runs from which a model can be fitted; the factor is the load, such as `workload.clients`.
    Calibration { factor: String },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Adaptive {
    /// The factor that is searched, such as `workload.clients`.
    pub factor: String,
    /// Most runs for each combination of the other factors.
    pub max_runs: u32,
}

impl DesignKind {
    /// As the study file says it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::OneAtATime => "one-at-a-time",
            Self::TwoLevel => "2kr",
            Self::Fractional { .. } => "fractional",
            Self::Adaptive(_) => "adaptive",
            Self::Calibration { .. } => "calibration",
        }
    }
}

impl StudyFile {
    /// Reads and checks a study file; with `toy`, its `[toy]` table replaces what it names. Each of
    /// `sets` is a dotted key and its value, such as `measure.duration=5s`.
    pub fn read(path: &Path, toy: bool, sets: &[String]) -> Result<Self, Refusal> {
        let name = path.display().to_string();
        let text = kendall_tier::read_text(path, kendall_tier::LARGEST_FILE)
            .map_err(|error| Refusal::Unreadable { file: name.clone(), what: error.to_string() })?;
        Self::parse(&name, text, toy, sets)
    }

    /// As [`read`](Self::read), from a text.
    pub fn parse(
        name: &str,
        mut text: String,
        toy: bool,
        sets: &[String],
    ) -> Result<Self, Refusal> {
        let file: Table = text.parse().map_err(|error: toml::de::Error| Refusal::Toml {
            file: name.to_owned(),
            line: error.span().map_or(1, |span| line_of(&text, span.start)),
            what: format!("not TOML: {}", error.message().trim().replace('\n', "; ")),
        })?;
        let places = Places { file: name.to_owned(), lines: Lines::of(&text), sets: sets.to_vec() };
        let mut file = toy_applied(file, toy).map_err(|problem| places.refuse(problem))?;
        for set in sets {
            set_applied(&mut file, set)
                .map_err(|problem| Refusal::Set { set: set.clone(), problem })?;
            // What is stored can be read as it was run.
            let newline = if text.ends_with('\n') { "" } else { "\n" };
            text.push_str(&format!("{newline}{SET_NOTE}{set}\n"));
        }
        let parts = Parts::read(&file).map_err(|problem| places.refuse(problem))?;
        let study = Self {
            name: name.to_owned(),
            study: parts.name,
            title: parts.title,
            question: parts.question,
            objective: parts.objective,
            fail_if: parts.fail_if,
            seed: parts.seed,
            factors: parts.factors,
            design: parts.design,
            costs: parts.costs,
            base: parts.base,
            within: None,
            text,
            file,
            places,
        };
        study.check_levels()?;
        Ok(study)
    }

    /// As it was run.
    ///
    /// # Errors
    /// Why it cannot be read, or that its text is not the one that was run.
    pub fn stored(study: &kendall_store::Study) -> Result<Stored, String> {
        // Notes of what was set stand at the end.
        let noted: Vec<&str> =
            study.file.lines().rev().map_while(|line| line.strip_prefix(SET_NOTE)).collect();
        let sets: Vec<String> = noted.into_iter().rev().map(str::to_owned).collect();
        let kept = study.file.lines().count() - sets.len();
        let text: String = study.file.lines().take(kept).map(|line| format!("{line}\n")).collect();
        let mut why = "its fingerprint is another".to_owned();
        for toy in [false, true] {
            match Self::parse(&study.file_name, text.clone(), toy, &sets) {
                Ok(file) if file.fingerprint() == study.fingerprint => {
                    return Ok(Stored { file, text, toy, sets });
                }
                Ok(_) => {}
                Err(error) => why = error.to_string(),
            }
        }
        Err(why)
    }

    /// The settings with these levels applied: one index a factor, `None` for its base value.
    pub fn settings(&self, levels: &[Option<usize>]) -> Result<Settings, Refusal> {
        self.settings_with(levels, &[])
    }

    /// The same with these values in the place of what the levels gave.
    pub fn settings_with(
        &self,
        levels: &[Option<usize>],
        values: &[(String, String)],
    ) -> Result<Settings, Refusal> {
        let mut file = self.file.clone();
        for (factor, level) in self.factors.iter().zip(levels) {
            if let Some(level) = level {
                factor.apply(*level, &mut file).map_err(|problem| self.refuse(problem))?;
            }
        }
        for (key, value) in values {
            factor::set(&mut file, key, as_toml(value))
                .map_err(|what| self.refuse(Problem { key: key.clone(), what }))?;
        }
        let mut settings =
            Settings::read(&file).map_err(|problem| self.refuse(self.of_level(problem, levels)))?;
        self.stated(&mut settings.effective);
        Ok(settings)
    }

    /// A problem with a key that a level has set belongs to the factor.
    fn of_level(&self, problem: Problem, levels: &[Option<usize>]) -> Problem {
        let applied = self.factors.iter().zip(levels).filter(|(_, level)| level.is_some());
        match applied.map(|(f, _)| f).find(|f| f.keys().any(|key| key == problem.key)) {
            Some(factor) => factor.blamed(problem),
            None => problem,
        }
    }

    /// What the study states about its analysis, where it does: kept with every run.
    fn stated(&self, effective: &mut Json) {
        for (key, value) in [
            ("question", self.question.as_ref()),
            ("objective", self.objective.as_ref().map(|objective| &objective.text)),
        ] {
            if let Some(value) = value {
                effective[key] = json!(value);
            }
        }
        if let Some(model) = &self.design.model {
            effective["design"] = json!({ "model": model });
        }
    }

    /// Whether a rate is a share of a capacity that the file does not state.
    pub fn wants_capacity(&self) -> bool {
        let stated = get(&self.file, "workload.capacity").is_some();
        let base = get(&self.file, "workload.rate").is_some_and(capacity::is_share);
        let levels = || self.factors.iter().flat_map(Factor::values);
        !stated && (base || levels().any(capacity::is_share))
    }

    /// The same study with shares of this capacity, in requests per second.
    pub fn with_capacity(&self, capacity_per_s: f64) -> Result<Self, Refusal> {
        let mut study = self.clone();
        for factor in &mut study.factors {
            factor.capacity_per_s = Some(capacity_per_s);
        }
        let text = Value::String(capacity::text(capacity_per_s));
        study.with_values(&[("workload.capacity", text)])
    }

    /// The same study with other values of some keys.
    pub(crate) fn with_values(&self, values: &[(&str, Value)]) -> Result<Self, Refusal> {
        let mut study = self.clone();
        for (key, value) in values {
            factor::set(&mut study.file, key, value.clone())
                .map_err(|what| self.refuse(Problem { key: (*key).to_owned(), what }))?;
        }
        let base = study.base_table()?;
        study.base = Settings::read(&base).map_err(|problem| self.refuse(problem))?;
        Ok(study)
    }

    /// The base configuration as a table: where only a factor gives a key, its first level.
    fn base_table(&self) -> Result<Table, Refusal> {
        let mut base = self.file.clone();
        for factor in &self.factors {
            let wanted = |key: &str| get(&self.file, key).is_none();
            factor.apply_where(0, &mut base, wanted).map_err(|problem| self.refuse(problem))?;
        }
        Ok(base)
    }

    /// The base configuration in a closed loop of so many clients, by which the capacity is found.
    pub(crate) fn closed_loop(&self, clients: u64) -> Result<Settings, Refusal> {
        let duration_s = self.base.measure.duration.get();
        let file = capacity::closed(&self.base_table()?, clients, duration_s);
        Settings::read(&file).map_err(|problem| self.refuse(problem))
    }

    /// A refusal of one key of this file.
    pub fn refuse(&self, problem: Problem) -> Refusal {
        self.places.refuse(problem)
    }

    /// All effective values: of the study, of its base configuration, and of its factors.
    pub fn effective(&self) -> Json {
        let mut all = self.base.effective.clone();
        all["name"] = json!(self.study);
        all["title"] = json!(self.title);
        all["seed"] = json!(self.seed);
        self.stated(&mut all);
        all["design"] = self.design.effective.clone();
        let factors: Vec<Json> = self
            .factors
            .iter()
            .map(|factor| {
                let mut shown = json!({ "key": factor.key, "levels": factor.levels });
                for (key, names) in [("tied", &factor.tied), ("names", &factor.names)] {
                    if !names.is_empty() {
                        shown[key] = json!(names);
                    }
                }
                shown
            })
            .collect();
        all["factors"] = json!(factors);
        all
    }

    /// Digest of the effective values: two files with the same one ask for the same study.
    pub fn fingerprint(&self) -> String {
        // FNV-1a: stable over versions of compiler and library, and not a matter of security.
        let hash =
            self.effective().to_string().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        format!("{hash:016x}")
    }

    /// Every level by itself must be a value that its key can have, and must change something; and
    /// every placeholder of a command must have a value.
    fn check_levels(&self) -> Result<(), Refusal> {
        template::check(&self.base).map_err(|problem| self.refuse(problem))?;
        let all = self.check_commands_of_levels()?;
        template::check_parameters(&self.base, &all).map_err(|problem| self.refuse(problem))?;
        for (index, factor) in self.factors.iter().enumerate() {
            let mut settings = Vec::new();
            for level in 0..factor.levels.len() {
                let mut levels = vec![None; self.factors.len()];
                levels[index] = Some(level);
                settings.push(self.settings(&levels)?);
            }
            if let [first, rest @ ..] = &settings[..]
                && !rest.is_empty()
                && rest.iter().all(|other| first.runs_as(other))
                && !factor.keys().any(|key| template::uses(first, key))
            {
                let what = "changes nothing: no command of the system and no load uses it";
                return Err(self.refuse(Problem { key: factor.place(), what: what.into() }));
            }
        }
        Ok(())
    }

    /// Checks the placeholders of each level by itself, since a level may be a command; the other factors have
    /// the values of the base. Returns all settings that were checked.
    fn check_commands_of_levels(&self) -> Result<Vec<Settings>, Refusal> {
        let is_missing = |factor: &Factor| factor.keys().any(|key| get(&self.file, key).is_none());
        let base: Vec<Option<usize>> =
            self.factors.iter().map(|factor| is_missing(factor).then_some(0)).collect();
        let mut all = Vec::new();
        for (index, factor) in self.factors.iter().enumerate() {
            for level in 0..factor.levels.len() {
                let levels = [&base[..index], &[Some(level)], &base[index + 1..]].concat();
                // Whether this combination is possible is checked where the design contains it.
                let Ok(settings) = self.settings(&levels) else { continue };
                template::check(&settings).map_err(|problem| {
                    let what = format!(
                        "with the level `{}`: {}: {}",
                        factor.level(level).text,
                        problem.key,
                        problem.what
                    );
                    self.refuse(Problem { key: factor.place(), what })
                })?;
                all.push(settings);
            }
        }
        Ok(all)
    }
}

/// What is read from a file's table.
struct Parts {
    name: String,
    title: String,
    question: Option<String>,
    objective: Option<Objective>,
    fail_if: Vec<Condition>,
    seed: u64,
    factors: Vec<Factor>,
    design: DesignSpec,
    costs: Vec<(String, f64)>,
    base: Settings,
}

impl Parts {
    fn read(file: &Table) -> Result<Self, Problem> {
        let mut root = Section::new("", file, &[STUDY]);
        if file.contains_key("stations") && !file.contains_key("system") {
            let what = "belongs to a model, not to a study: `kendall solve` takes this file";
            return Err(root.problem("stations", what.to_owned()));
        }
        let name = root.text("name")?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || !name.chars().all(plain) || name.starts_with('.') {
            let form = "ASCII letters, digits, `-`, `_` and `.`: it names a folder";
            return Err(root.problem("name", format!("`{name}` is not made of {form}")));
        }
        let title = root.opt_text("title")?.unwrap_or_else(|| name.clone());
        let question = root.opt_text("question")?;
        let objective = root
            .opt_text("objective")?
            .map(|text| Objective::parse(&text).map_err(|what| root.problem("objective", what)))
            .transpose()?;
        let fail_if: Result<Vec<_>, _> =
            root.words("fail_if")?.iter().map(|text| Condition::parse(text)).collect();
        let fail_if = fail_if.map_err(|what| root.problem("fail_if", what))?;
        let published = root.raw("published").map(|table| Published::read(table.clone()));
        published.transpose().map_err(|what| root.problem("published", what))?;
        let seed = root.count("seed")?;
        let factors = Factor::read_all(root.section("factors")?)?;
        let design = design(root.section("design")?, &factors)?;
        let costs = costs(root.section("costs")?)?;
        // A factor may be the only place where a key is written: its first level is used.
        let mut first = file.clone();
        for factor in &factors {
            factor.apply_where(0, &mut first, |key| get(file, key).is_none())?;
        }
        let base = Settings::read(&first).map_err(|problem| of_levels(problem, file, &factors))?;
        root.finish()?;
        let keys = || factors.iter().flat_map(|factor| factor.keys().map(move |key| (factor, key)));
        if let Some((factor, other)) = keys().find(|(_, key)| !is_varied(key)) {
            let what = "cannot be varied; name a key of system, links, workload, measure or place, such as \"system.workers\"";
            return Err(factor.blamed(Problem { key: other.to_owned(), what: what.into() }));
        }
        Ok(Self { name, title, question, objective, fail_if, seed, factors, design, costs, base })
    }
}

/// A problem with a key that only a factor writes belongs to the factor.
fn of_levels(problem: Problem, file: &Table, factors: &[Factor]) -> Problem {
    let only_varied = |key: &&str| *key == problem.key && get(file, key).is_none();
    match factors.iter().find(|factor| factor.keys().any(|key| only_varied(&key))) {
        Some(factor) => factor.blamed(problem),
        None => problem,
    }
}

fn is_varied(key: &str) -> bool {
    let kept = ["measure.repetitions", "measure.retries", "measure.confidence"];
    ["system.", "links.", "workload.", "measure.", "place."]
        .iter()
        .any(|part| key.starts_with(part))
        && !kept.iter().any(|part| key.starts_with(part))
}

fn get<'a>(file: &'a Table, key: &str) -> Option<&'a Value> {
    let parts = factor::parts_of(key);
    let (first, rest) = parts.split_first()?;
    rest.iter().try_fold(file.get(*first)?, |value, part| match value {
        Value::Table(table) => table.get(*part),
        Value::Array(items) => items.get(factor::entry(items, part)?),
        _ => None,
    })
}

/// Puts the value of `KEY=VALUE` into the file: as TOML reads it, else as a text.
fn set_applied(file: &mut Table, set: &str) -> Result<(), Problem> {
    let Some((key, text)) = set.split_once('=') else {
        let what = "write KEY=VALUE, such as measure.duration=5s".to_owned();
        return Err(Problem { key: set.to_owned(), what });
    };
    let (key, text) = (key.trim(), text.trim());
    let varied = file.get("factors").and_then(Value::as_table);
    if varied.is_some_and(|factors| factors.contains_key(key)) {
        let what = format!("is varied by a factor: write 'factors.{key}=[{text}]'");
        return Err(Problem { key: key.to_owned(), what });
    }
    let of = |tuple: &&String| tuple.contains(',') && tuple.split(',').any(|own| own.trim() == key);
    if let Some(tuple) = varied.and_then(|factors| factors.keys().find(of)) {
        let what = format!("is varied together with others: write 'factors.{tuple}=[[…]]'");
        return Err(Problem { key: key.to_owned(), what });
    }
    factor::set(file, key, as_toml(text)).map_err(|what| Problem { key: key.to_owned(), what })
}

/// As TOML reads it, else as a text.
fn as_toml(text: &str) -> Value {
    let value = format!("x = {text}").parse::<Table>().ok().and_then(|mut table| table.remove("x"));
    value.unwrap_or_else(|| Value::String(text.to_owned()))
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

fn costs(section: Section<'_>) -> Result<Vec<(String, f64)>, Problem> {
    let cost = |(key, value): (&str, &Value)| {
        let number = match value {
            Value::Integer(whole) => i32::try_from(*whole).ok().map(f64::from),
            Value::Float(number) => Some(*number),
            _ => None,
        };
        let number = number.filter(|number| *number >= 0.0 && number.is_finite());
        let cost = number.ok_or_else(|| {
            section.problem(key, format!("`{value}` is not a cost; write a number such as 0.1"))
        })?;
        Ok((key.to_owned(), cost))
    };
    section.entries().into_iter().map(cost).collect()
}

fn design(mut section: Section<'_>, factors: &[Factor]) -> Result<DesignSpec, Problem> {
    let name = section.text("kind")?;
    let others: &[&str] = match name.as_str() {
        "fractional" => &["factor", "max_runs"],
        "adaptive" => &["generators", "resolution"],
        "calibration" => &["generators", "resolution", "max_runs"],
        _ => &["generators", "resolution", "factor", "max_runs"],
    };
    if let Some(key) = others.iter().find(|key| section.has(key)) {
        return Err(section.problem(key, format!("is not a key of a design of kind `{name}`")));
    }
    let kind = match name.as_str() {
        "one-at-a-time" => DesignKind::OneAtATime,
        "2kr" => DesignKind::TwoLevel,
        "fractional" => {
            let generators = section.words("generators")?;
            let resolution = section.small("resolution")?;
            DesignKind::Fractional { generators, resolution }
        }
        "adaptive" => DesignKind::Adaptive(adaptive(&mut section, factors)?),
        "calibration" => DesignKind::Calibration { factor: searched(&mut section, factors)? },
        // The words are checked where they are read.
        _ => DesignKind::Full,
    };
    let two_levels = matches!(kind, DesignKind::TwoLevel | DesignKind::Fractional { .. });
    if let Some(factor) = factors.iter().find(|f| two_levels && f.levels.len() != 2) {
        let what = format!("has {} levels; this design needs two per factor", factor.levels.len());
        return Err(Problem { key: factor.place(), what });
    }
    // Among the effective values only where it is stated: a study that was stored before there was
    // such a key is still the same study.
    let model = if section.has("model") { section.opt_text("model")? } else { None };
    let model = model.filter(|model| model != "auto");
    let mut effective = section.finish()?;
    if let (None, Some(table)) = (&model, effective.as_object_mut()) {
        table.remove("model");
    }
    Ok(DesignSpec { kind, model, effective })
}

fn adaptive(section: &mut Section<'_>, factors: &[Factor]) -> Result<Adaptive, Problem> {
    let factor = searched(section, factors)?;
    Ok(Adaptive { factor, max_runs: section.small("max_runs")? })
}

/// The numeric factor along which a design chooses by itself.
fn searched(section: &mut Section<'_>, factors: &[Factor]) -> Result<String, Problem> {
    let factor = section.text("factor")?;
    let numeric = factors.iter().find(|known| known.key == factor).is_some_and(|known| {
        known.levels.len() >= 2 && (0..known.levels.len()).all(|l| known.level(l).number.is_some())
    });
    if !numeric {
        let what = format!("`{factor}` is not a factor with two or more numeric levels");
        return Err(section.problem("factor", what));
    }
    Ok(factor)
}
