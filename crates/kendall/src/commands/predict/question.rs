//! What is asked: `KEY=VALUE` on the command line to a configuration of the system.

use kendall_fit::change::{Change, Names};
use kendall_fit::study::{Question, Signature, is_of_the_load, lookup, number};
use kendall_fit::twin::Workload;
use kendall_store::{Results, Run};
use kendall_study::workload::Arrivals;
use kendall_study::{Beside, Factor, Refusal, Settings, Stored, StudyFile};
use kendall_units::{exact_f64, whole_u64};

/// A design to which any number of levels is right.
const ANY_LEVELS: &str = "design={ kind = \"full\" }";

/// Keys and what they are set to.
pub(super) type Values = Vec<(String, String)>;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct WhatIf {
    pub(super) key: String,
    /// One value, or those of a curve.
    pub(super) values: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    pub(super) what_ifs: Vec<WhatIf>,
}

/// What cannot be asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum QuestionError {
    #[error(
        "`{0}` is not a what-if; write it like workload.clients=300 or workload.clients=10..300"
    )]
    Form(String),
    #[error("`{0}` is given twice; a list or a range of one key gives a curve")]
    Twice(String),
    #[error("`{first}` and `{second}` both have several values; ask for one curve at a time")]
    TwoCurves { first: String, second: String },
    #[error("--what-if {key}={value}: {what}")]
    Value { key: String, value: String, what: String },
    #[error(
        "the stored study file is not the one that was run: {0}; the results can be read, but \
         nothing can be asked about its keys"
    )]
    File(String),
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error(
        "`{key}` is a key of the study, and the other results say themselves what it was; with \
         --against, only what no study file contains can be changed: cores, cpu_speed, placement, \
         tiers.TIER.…"
    )]
    OfTheStudy { key: String },
    #[error(
        "`{key}` has several values, and --against compares the model with runs that were made on one \
         hardware: give it one value"
    )]
    SeveralAgainst { key: String },
    #[error(
        "the load of this study is a job with an end, and predictions are for loads that continue; \
         fit its throughput with `kendall fit usl`"
    )]
    Job,
    #[error(
        "`{key}` changes nothing that is predicted: a what-if is a key of `system`, `workload` or `links`, a factor of \
         the study, or hardware (cores, cpu_speed, placement, hosts.HOST.…, tiers.TIER.…)"
    )]
    ChangesNothing { key: String },
    #[error(
        "--what-if {key}={value}: no run tells what a request costs with it, since the study never varied \
         it. Run the study with it: kendall run STUDY.toml --set {key}={value} at light load and \
         near saturation, and use those results"
    )]
    NeverVaried { key: String, value: String },
}

impl Asked {
    pub(super) fn parse(
        texts: &[String],
        points: u32,
        curves: usize,
    ) -> Result<Self, QuestionError> {
        let mut what_ifs: Vec<WhatIf> = Vec::new();
        for text in texts {
            let Some((key, value)) = text.split_once('=') else {
                return Err(QuestionError::Form(text.clone()));
            };
            let (key, value) = (key.trim().to_owned(), value.trim());
            if key.is_empty() || value.is_empty() {
                return Err(QuestionError::Form(text.clone()));
            }
            if what_ifs.iter().any(|other| other.key == key) {
                return Err(QuestionError::Twice(key));
            }
            let values = values(&key, value, points)?;
            what_ifs.push(WhatIf { key, values });
        }
        let mut several = what_ifs.iter().filter(|what_if| what_if.values.len() > 1);
        if let (true, Some(first), Some(second)) = (curves == 1, several.next(), several.next()) {
            let (first, second) = (first.key.clone(), second.key.clone());
            return Err(QuestionError::TwoCurves { first, second });
        }
        Ok(Self { what_ifs })
    }

    /// The what-if that has several values.
    pub(super) fn curve(&self) -> Option<&WhatIf> {
        self.what_ifs.iter().find(|what_if| what_if.values.len() > 1)
    }

    /// One point: a value for each key.
    pub(super) fn points(&self) -> Vec<Vec<(String, String)>> {
        let many = self.curve().map_or(1, |curve| curve.values.len());
        let value = |what_if: &WhatIf, at: usize| {
            let at = if what_if.values.len() > 1 { at } else { 0 };
            (what_if.key.clone(), what_if.values[at].clone())
        };
        (0..many).map(|at| self.what_ifs.iter().map(|w| value(w, at)).collect()).collect()
    }

    /// Every combination of the values of all keys.
    pub(super) fn product(&self) -> Vec<Values> {
        let mut all: Vec<Values> = vec![Vec::new()];
        for what_if in &self.what_ifs {
            let with = |values: &Values| -> Vec<Values> {
                let more = |value: &String| {
                    let mut values = values.clone();
                    values.push((what_if.key.clone(), value.clone()));
                    values
                };
                what_if.values.iter().map(more).collect()
            };
            all = all.iter().flat_map(with).collect();
        }
        all
    }

    pub(super) fn keys(&self) -> Vec<String> {
        self.what_ifs.iter().map(|what_if| what_if.key.clone()).collect()
    }
}

/// The values of `10..300`, `10,20,40` or one.
fn values(key: &str, text: &str, points: u32) -> Result<Vec<String>, QuestionError> {
    let refused = |what: &str| QuestionError::Value {
        key: key.to_owned(),
        value: text.to_owned(),
        what: what.to_owned(),
    };
    if let Some((from, to)) = text.split_once("..") {
        let unit: String = to.chars().skip_while(|c| c.is_ascii_digit() || *c == '.').collect();
        let plain = |text: &str| text.trim_end_matches(unit.as_str()).parse::<f64>().ok();
        let form = "a range is two numbers, such as 10..300, 0.5..8 or 100/s..900/s";
        let (Some(low), Some(high)) = (plain(from.trim()), plain(to.trim())) else {
            return Err(refused(form));
        };
        if !(low > 0.0 && high > low) {
            return Err(refused("a range begins above 0 and ends above its beginning"));
        }
        let whole = low.fract().abs() < 1e-12 && high.fract().abs() < 1e-12;
        let mut found: Vec<String> = Vec::new();
        for step in 0..points {
            let share = f64::from(step) / f64::from(points - 1);
            let value = low * (high / low).powf(share);
            let value = if whole { value.round() } else { value };
            let shown = format!("{}{unit}", kendall_stats::estimate::figures(value, 4));
            let shown = if whole { format!("{value:.0}{unit}") } else { shown };
            if found.last() != Some(&shown) {
                found.push(shown);
            }
        }
        return Ok(found);
    }
    // A list, unless the comma belongs to a table or a list of the study file.
    let list = text.contains(',') && !text.contains(['{', '[', '"']);
    Ok(if list {
        text.split(',').map(|v| v.trim().to_owned()).collect()
    } else {
        vec![text.into()]
    })
}

#[derive(Debug, Clone)]
pub(super) struct StudyOfResults {
    pub(super) file: StudyFile,
    text: String,
    toy: bool,
    sets: Vec<String>,
}

impl StudyOfResults {
    pub(super) fn read(results: &Results) -> Result<Self, QuestionError> {
        let stored = results.study().map_err(|error| QuestionError::File(error.to_string()))?;
        let Stored { file, text, toy, sets } =
            StudyFile::stored(&stored).map_err(QuestionError::File)?;
        Ok(Self { file, text, toy, sets })
    }

    /// The study file with these values in the place of its own.
    fn with(&self, values: &[(String, String)]) -> Result<StudyFile, QuestionError> {
        // One configuration is asked about, so a design that wants several levels of a factor has nothing to say.
        let (text, mut sets) = self.of_loop(values);
        sets.push(ANY_LEVELS.to_owned());
        for (key, value) in values.iter().filter(|(key, _)| self.tuple_with(key).is_none()) {
            let is_factor = self.file.factors.iter().any(|factor| factor.key == *key);
            sets.push(if is_factor {
                format!("factors.{key}=[{}]", toml_value(value))
            } else {
                format!("{key}={value}")
            });
        }
        StudyFile::parse(&self.file.name, text, self.toy, &sets)
            .map_err(|refusal| self.in_the_words_asked(refusal, values))
    }

    /// A refusal of what was asked, by the option that asked it.
    fn in_the_words_asked(&self, refusal: Refusal, values: &[(String, String)]) -> QuestionError {
        let Refusal::Set { set, problem } = &refusal else { return refusal.into() };
        let set_key = set.split_once('=').map_or("", |(key, _)| key);
        let of_set = |(key, _): &&(String, String)| {
            set_key == key || set_key.strip_prefix("factors.") == Some(key)
        };
        let Some((key, value)) = values.iter().find(of_set) else { return refusal.into() };
        let (key, value) = (key.clone(), value.clone());
        let meant = ["workload", "system"].map(|table| format!("{table}.{key}"));
        let effective = &self.file.base.effective;
        let what = match meant.iter().find(|meant| lookup(effective, meant).is_some()) {
            Some(meant) if problem.key == key => {
                format!("no such key; did you mean {meant}={value}?")
            }
            _ => problem.to_string().replace("factors.", ""),
        };
        QuestionError::Value { key, value, what }
    }

    /// The study file and what was set in it, without what is of another loop than the one that is asked.
    fn of_loop(&self, values: &[(String, String)]) -> (String, Vec<String>) {
        let asked = values.iter().find(|(key, _)| key == "workload.loop");
        let other = match asked.map(|(_, value)| value.as_str()) {
            Some("open") => &["think_time"][..],
            Some("closed") => &["arrivals", "rate", "spin"][..],
            _ => return (self.text.clone(), self.sets.clone()),
        };
        let is_other = |key: &str| {
            // One that is asked too is refused by name.
            let is_asked = values.iter().any(|(known, _)| known == key);
            !is_asked && key.strip_prefix("workload.").is_some_and(|key| other.contains(&key))
        };
        let of_key =
            |set: &&String| set.split_once('=').is_none_or(|(key, _)| !is_other(key.trim()));
        let sets = self.sets.iter().filter(of_key).cloned().collect();
        let Ok(mut table) = self.text.parse::<toml::Table>() else {
            return (self.text.clone(), sets);
        };
        if let Some(load) = table.get_mut("workload").and_then(toml::Value::as_table_mut) {
            load.retain(|key, _| !is_other(&format!("workload.{key}")));
        }
        (toml::to_string(&table).unwrap_or_else(|_| self.text.clone()), sets)
    }

    /// The configuration that these values of study keys lead to; factors that are not asked about
    /// keep the value of the study file, or their first level where it has none.
    pub(super) fn settings(&self, values: &[(String, String)]) -> Result<Settings, QuestionError> {
        let study = self.with(values)?;
        let mut levels: Vec<Option<usize>> = Vec::new();
        for (place, factor) in study.factors.iter().enumerate() {
            let asked = values.iter().find(|(key, _)| *key == factor.key);
            if let Some((key, value)) = asked.filter(|_| factor.is_tuple()) {
                levels.push(Some(level_named(factor, key, value)?));
                continue;
            }
            let mut first = vec![None; study.factors.len()];
            first[place] = Some(0);
            let is_base = || {
                let of_first = study.settings(&first).ok()?;
                let at = |settings: &Settings| -> Vec<_> {
                    factor.keys().map(|key| lookup(&settings.effective, key).cloned()).collect()
                };
                Some(at(&of_first) == at(&study.base))
            };
            levels.push((asked.is_some() || is_base() == Some(true)).then_some(0));
        }
        // Keys of a tuple can be asked about one by one: the others stay as the tuple has them.
        let is_part = |key: &str| self.tuple_with(key).is_some_and(|tuple| tuple.key != key);
        let parts: Values = values.iter().filter(|(key, _)| is_part(key)).cloned().collect();
        Ok(study.settings_with(&levels, &parts)?)
    }

    /// The tuple that has this key, or that this is.
    fn tuple_with(&self, key: &str) -> Option<&Factor> {
        let has = |factor: &&Factor| factor.key == key || factor.keys().any(|own| own == key);
        self.file.factors.iter().filter(|factor| factor.is_tuple()).find(has)
    }
}

/// The level of a tuple by its name.
fn level_named(factor: &Factor, key: &str, value: &str) -> Result<usize, QuestionError> {
    let names: Vec<String> = (0..factor.levels.len()).map(|at| factor.level(at).text).collect();
    names.iter().position(|name| name == value).ok_or_else(|| QuestionError::Value {
        key: key.to_owned(),
        value: value.to_owned(),
        what: format!(
            "the study has {}; ask for other values by its keys, such as {}=…",
            names.join(", "),
            factor.keys().next().unwrap_or(key)
        ),
    })
}

impl StudyOfResults {
    /// What a study must run to measure the configuration that these values lead to.
    pub(super) fn beside(&self, values: &[(String, String)]) -> Result<Beside, QuestionError> {
        let settings = self.settings(values)?;
        let level =
            |factor: &Factor| factor.level_in(|key| lookup(&settings.effective, key), number);
        let factors = self.file.factors.iter().map(level).collect();
        Ok(Beside { settings, factors })
    }

    /// The same for a run that was measured before.
    pub(super) fn again(&self, run: &Run) -> Result<Beside, QuestionError> {
        let of_run = |factor: &Factor| -> Option<usize> {
            let level = run.factor(&factor.key)?;
            (0..factor.levels.len()).find(|at| factor.level(*at).text == level.text)
        };
        let levels: Vec<Option<usize>> = self.file.factors.iter().map(of_run).collect();
        Ok(Beside { settings: self.file.settings(&levels)?, factors: run.factors.clone() })
    }
}

/// As TOML reads it, else as a text.
fn toml_value(text: &str) -> String {
    let reads = format!("x = {text}").parse::<toml::Table>().is_ok();
    if reads { text.to_owned() } else { format!("{text:?}") }
}

/// What of a question is hardware, and what a key of the study file.
pub(super) fn split(values: &[(String, String)]) -> (Values, Values) {
    values.iter().cloned().partition(|(key, _)| !is_own(key))
}

/// Keys that are not keys of a study file.
pub(super) fn is_own(key: &str) -> bool {
    ["cores", "cpu_speed", "hit_ratio"].contains(&key)
        || ["hosts.", "tiers.", "placement."].iter().any(|start| key.starts_with(start))
}

/// A question from a configuration, and what is asked of its hardware.
pub(super) fn question(
    study: &StudyOfResults,
    structural: &[String],
    values: &[(String, String)],
    host: Option<&str>,
) -> Result<Question, QuestionError> {
    let (keys, own) = split(values);
    for (key, value) in &keys {
        let is_factor = study.file.factors.iter().any(|factor| factor.key == *key);
        let is_asked =
            ["system.", "workload.", "links."].iter().any(|start| key.starts_with(start));
        if !is_factor && !is_asked && study.tuple_with(key).is_none() {
            let tier = key.split('.').next().unwrap_or_default();
            if study.settings(&[])?.graph().tiers.iter().any(|one| one.tier.as_str() == tier) {
                let what =
                    format!("`{tier}` is a tier; of it write tiers.{tier}.workers, .speed, …");
                return Err(QuestionError::Value { key: key.clone(), value: value.clone(), what });
            }
            // An unknown key is refused with the closest known one.
            study.settings(&keys)?;
            return Err(QuestionError::ChangesNothing { key: key.clone() });
        }
    }
    let settings = study.settings(&keys)?;
    never_varied(study, &settings, &keys)?;
    let workload = &settings.workload;
    let clients = u32::try_from(workload.clients).unwrap_or(u32::MAX);
    let load = match &workload.arrivals {
        Arrivals::Closed { mean, .. } => Workload::Closed {
            clients,
            think_time_s: mean.map_or(0.0, kendall_units::Seconds::get),
        },
        Arrivals::Open { rate_per_s, .. } => Workload::Open { rate_per_s: *rate_per_s },
        Arrivals::Job => return Err(QuestionError::Job),
    };
    let kinds = study.file.factors.iter().filter(|factor| !structural.contains(&factor.key));
    let text =
        |factor: &Factor| factor.level_in(|key| lookup(&settings.effective, key), number).text;
    let signature = Signature(kinds.map(|f| (f.key.clone(), text(f))).collect());
    let numeric = study.file.factors.iter().map(|factor| factor.key.clone());
    let all = numeric.chain(values.iter().map(|(key, _)| key.clone()));
    let mut levels: Vec<(String, f64)> = Vec::new();
    for key in all {
        let of_key = || {
            let own = values.iter().find(|(known, _)| *known == key && is_own(known));
            own.and_then(|(_, value)| value.parse().ok())
                .or_else(|| lookup(&settings.effective, &key).and_then(number))
        };
        if let Some(value) = of_key().filter(|_| !levels.iter().any(|(known, _)| *known == key)) {
            levels.push((key, value));
        }
    }
    let mut question = Question {
        graph: settings.graph(),
        workload: load,
        generator_threads: workload.generators.saturating_mul(workload.threads),
        batch: lookup(&settings.effective, "system.batch")
            .and_then(number)
            .and_then(|batch| u32::try_from(whole_u64(batch)).ok()),
        signature,
        changes: Vec::new(),
        levels,
    };
    change(&mut question, &own, host)?;
    Ok(question)
}

/// Refuses a key that is not a factor and changes neither graph nor load: what it does to the cost of a
/// request was never measured.
fn never_varied(
    study: &StudyOfResults,
    asked: &Settings,
    keys: &[(String, String)],
) -> Result<(), QuestionError> {
    for (key, value) in keys {
        let is_factor = study.file.factors.iter().any(|factor| factor.key == *key)
            || study.tuple_with(key).is_some();
        if is_factor || is_of_the_load(key) {
            continue;
        }
        let others: Vec<(String, String)> =
            keys.iter().filter(|(other, _)| other != key).cloned().collect();
        let without = study.settings(&others)?;
        let same = lookup(&without.effective, key) == lookup(&asked.effective, key);
        if !same && without.graph() == asked.graph() {
            return Err(QuestionError::NeverVaried { key: key.clone(), value: value.clone() });
        }
    }
    Ok(())
}

/// Changes a question by keys that are not of a study file. `host` is the only one, where there is one.
pub(super) fn change(
    question: &mut Question,
    values: &[(String, String)],
    host: Option<&str>,
) -> Result<(), QuestionError> {
    let tiers: Vec<String> = question.graph.tiers.iter().map(|n| n.tier.to_string()).collect();
    let names = Names { tiers: tiers.iter().map(String::as_str).collect(), host };
    for (key, value) in values {
        let asked = Change::parse(key, value, &names).and_then(|change| question.change(change));
        asked.map_err(|what| QuestionError::Value {
            key: key.clone(),
            value: value.clone(),
            what,
        })?;
    }
    Ok(())
}

/// The number that a point of a curve has on its axis.
pub(super) fn place(value: &str) -> f64 {
    let json = serde_json::Value::String(value.to_owned());
    value.parse().ok().or_else(|| number(&json)).unwrap_or(exact_f64(0_u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(texts: &[&str]) -> Result<Asked, QuestionError> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        Asked::parse(&texts, 5, 1)
    }

    #[test]
    fn ranges_and_lists_give_curves() {
        let range = asked(&["workload.clients=10..160", "system.workers=64"]).unwrap();
        assert_eq!(range.curve().unwrap().values, ["10", "20", "40", "80", "160"]);
        assert_eq!(range.points().len(), 5);
        assert_eq!(range.points()[4][1].1, "64");
        let list = asked(&["workload.rate=100/s,200/s"]).unwrap();
        assert_eq!(list.curve().unwrap().values, ["100/s", "200/s"]);
        let rates = asked(&["workload.rate=100/s..1600/s"]).unwrap();
        assert_eq!(rates.curve().unwrap().values[4], "1600/s");
        assert!((place("1600/s") - 1600.0).abs() < 1e-9 && (place("4ms") - 4e-3).abs() < 1e-12);
        let table = asked(&["workload.mix={ get = 1, set = 2 }"]).unwrap();
        assert!(table.curve().is_none());
    }

    /// Whatever the design wanted of the levels of its factors: one configuration is asked about.
    #[test]
    fn results_of_every_design_can_be_asked_about_their_factors() {
        let of = |design: &str| {
            let text = format!(
                "name = 'x'\n[system]\nkind = 'synthetic'\nservice = 'constant:1ms'\n\
                 [workload]\nloop = 'closed'\npath = '/'\n[measure]\nduration = '1s'\n\
                 [factors]\n'workload.clients' = [1, 2]\n'system.workers' = [1, 2]\n\
                 [design]\n{design}\n"
            );
            let file = StudyFile::parse("x.toml", text.clone(), false, &[]).unwrap();
            StudyOfResults { file, text, toy: false, sets: Vec::new() }
        };
        for design in [
            "kind = 'full'",
            "kind = 'one-at-a-time'",
            "kind = '2kr'",
            "kind = 'adaptive'\nfactor = 'workload.clients'",
            "kind = 'calibration'",
        ] {
            let asked = [("workload.clients".to_owned(), "300".to_owned())];
            let settings = of(design).settings(&asked);
            let settings = settings.unwrap_or_else(|error| panic!("{design}: {error}"));
            let clients = lookup(&settings.effective, "workload.clients").and_then(number);
            assert_eq!(clients, Some(300.0), "{design}");
        }
    }

    /// Clients that think have no place in an open loop, and are left out of it.
    #[test]
    fn another_loop_leaves_out_what_is_of_the_studys_own() {
        let text = "name = 'x'\n[system]\nkind = 'synthetic'\nservice = 'constant:1ms'\n\
                    [workload]\nloop = 'closed'\nthink_time = '5ms'\npath = '/'\n[measure]\nduration = '1s'\n";
        let file = StudyFile::parse("x.toml", text.to_owned(), false, &[]).unwrap();
        let study = StudyOfResults { file, text: text.to_owned(), toy: false, sets: Vec::new() };
        let ask = |values: &[(&str, &str)]| {
            let values: Values =
                values.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
            study.settings(&values).map(|settings| settings.workload.arrivals)
        };
        let open = [("workload.loop", "open"), ("workload.rate", "50/s")];
        let arrivals = ask(&open).unwrap();
        assert!(
            matches!(arrivals, Arrivals::Open { rate_per_s, .. } if (rate_per_s - 50.0).abs() < 1e-9)
        );
        let both = [open[0], open[1], ("workload.think_time", "1ms")];
        assert!(ask(&both).unwrap_err().to_string().contains("think_time"));
        // Of a tier, the words for it; the keys of the study were listed.
        let of_tier = [("synthetic.workers".to_owned(), "2".to_owned())];
        let why = question(&study, &[], &of_tier, None).unwrap_err().to_string();
        assert!(why.contains("of it write tiers.synthetic.workers"), "{why}");
    }

    #[test]
    fn what_makes_no_question_is_refused() {
        for (texts, part) in [
            (vec!["workload.clients"], "is not a what-if"),
            (vec!["a=1", "a=2"], "given twice"),
            (vec!["a=1..2", "b=1..2"], "one curve at a time"),
            (vec!["a=5..1"], "ends above"),
            (vec!["a=x..y"], "two numbers"),
        ] {
            let said = asked(&texts).unwrap_err().to_string();
            assert!(said.contains(part), "{texts:?}: {said}");
        }
    }
}
