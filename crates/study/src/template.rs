//! Placeholders in commands: `{port}`, `{system.workers}`, `{each:servers}`.

use std::collections::BTreeMap;

use kendall_host::launch::{AddressFrom, Ready};

use crate::section::Problem;
use crate::settings::Settings;
use crate::topology::{Source, Started, TierSpec};

/// What the study chooses for each instance; a test holds it to what is filled in at the start.
const CHOSEN: [&str; 9] =
    ["address", "folder", "host", "instance", "kendall", "metrics", "port", "secret", "seed"];

/// Texts of a tier that may have placeholders, each with the key that they are written at.
fn texts(tier: &TierSpec) -> Vec<(&'static str, &String)> {
    let Source::Started(Started { command, environment, ready, scratch, .. }) = &tier.source else {
        return Vec::new();
    };
    let mut texts: Vec<(&'static str, &String)> =
        command.iter().map(|word| ("command", word)).collect();
    texts.extend(environment.iter().map(|(_, value)| ("environment", value)));
    texts.extend(scratch.iter().map(|folder| ("scratch", folder)));
    if let Ready::Command(words) = ready {
        texts.extend(words.iter().map(|word| ("ready", word)));
    }
    texts
}

/// What the study fills into the command of a load.
const OF_A_LOAD: [&str; 8] =
    ["clients", "folder", "generator", "kendall", "rate_per_s", "seconds", "seed", "target"];

/// Whether some command has a placeholder for this key, as it is written or as it is started.
pub(crate) fn uses(settings: &Settings, key: &str) -> bool {
    let placeholder = format!("{{{key}}}");
    let mut started = settings.topology.tiers.iter().flat_map(texts).map(|(_, text)| text);
    // In what is started, parameters are filled in already: that is done when the file is read. The value of a
    // parameter is not a command.
    let system = settings.effective["system"].as_object().into_iter().flatten();
    let written = system.filter(|(name, _)| *name != "parameters").map(|(_, value)| value);
    let mut written = written.chain([&settings.effective["workload"]]).map(ToString::to_string);
    started.any(|text| text.contains(&placeholder))
        || written.any(|text| text.contains(&placeholder))
}

/// Refuses the first placeholder without a value, before anything is started.
pub(crate) fn check(settings: &Settings) -> Result<(), Problem> {
    let mut known = Values::default();
    known.set_settings(&settings.effective);
    for name in CHOSEN {
        known.set(name, String::new());
    }
    for (index, tier) in settings.topology.tiers.iter().enumerate() {
        let mut known = known.clone();
        if !matches!(&tier.source, Source::Started(s) if s.address == AddressFrom::Chosen) {
            // It says itself where it listens.
            for name in ["address", "metrics", "port"] {
                known.single.remove(name);
            }
        }
        for backend in tier.connects_to() {
            known.set_list(backend, vec![String::new()]);
        }
        for (key, text) in texts(tier) {
            let Err(placeholder) = known.fill_all(std::slice::from_ref(text)) else { continue };
            // For the error: parameters were filled in when the file was read.
            for (name, _) in parameters(settings) {
                known.set(name, String::new());
            }
            let names: Vec<&str> = known.single.keys().map(String::as_str).collect();
            let plain = placeholder.trim_start_matches("each:");
            let close = kendall_keys::closest(plain, names)
                .filter(|name| *name != plain)
                .map_or_else(String::new, |name| format!("; did you mean `{{{name}}}`?"));
            return Err(Problem {
                key: format!("system.tiers.{index}.{key}"),
                what: format!(
                    "`{{{placeholder}}}` is no placeholder{close} (known here: {})",
                    known.names()
                ),
            });
        }
    }
    check_load(settings)
}

/// The user's own values, by their names.
fn parameters(settings: &Settings) -> impl Iterator<Item = (&str, &serde_json::Value)> {
    let table = settings.effective["system"]["parameters"].as_object();
    table.into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

/// Refuses a value that no command takes in any of the settings: a name that was mistyped, in the file or in
/// `--set`, would otherwise change nothing, and two versions would be found equal that are one.
pub(crate) fn check_parameters(base: &Settings, all: &[Settings]) -> Result<(), Problem> {
    for (name, _) in parameters(base) {
        let dotted = format!("system.parameters.{name}");
        let mut any = std::iter::once(base).chain(all);
        if any.any(|settings| uses(settings, name) || uses(settings, &dotted)) {
            continue;
        }
        let others = parameters(base).map(|(other, _)| other).filter(|other| *other != name);
        let close = kendall_keys::did_you_mean(name, others);
        let what = format!("no command uses it: write {{{name}}} in one, or leave it out{close}");
        return Err(Problem { key: dotted, what });
    }
    Ok(())
}

/// Refuses a placeholder of a load's command without a value.
fn check_load(settings: &Settings) -> Result<(), Problem> {
    let Some(program) = &settings.workload.driver.program else { return Ok(()) };
    let known = Values::of_a_load(&settings.effective);
    let environment = program.environment.iter().map(|(_, value)| ("environment", value));
    let command = program.command.iter().map(|word| ("command", word));
    for (key, text) in command.chain(environment) {
        if let Err(placeholder) = known.fill_all(std::slice::from_ref(text)) {
            return Err(Problem {
                key: format!("workload.{key}"),
                what: format!(
                    "`{{{placeholder}}}` is no placeholder (known here: {})",
                    known.names()
                ),
            });
        }
    }
    Ok(())
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Values {
    single: BTreeMap<String, String>,
    lists: BTreeMap<String, Vec<String>>,
}

/// The words of a command with its placeholders filled, as a study fills them.
pub fn fill(words: &[String], values: &[(&str, String)]) -> Result<Vec<String>, String> {
    let mut known = Values::default();
    values.iter().for_each(|(name, value)| known.set(name, value.clone()));
    known.fill_all(words)
}

impl Values {
    /// What the command of a load may have, its own values still empty.
    pub(crate) fn of_a_load(settings: &serde_json::Value) -> Self {
        let mut values = Self::default();
        values.set_settings(settings);
        for name in OF_A_LOAD {
            values.set(name, String::new());
        }
        values.set_list("targets", vec![String::new()]);
        values
    }

    /// Names with their texts, filled.
    pub(crate) fn fill_pairs(
        &self,
        pairs: &[(String, String)],
    ) -> Result<Vec<(String, String)>, String> {
        pairs.iter().map(|(key, text)| Ok((key.clone(), self.fill(text)?))).collect()
    }

    pub(crate) fn set(&mut self, name: &str, value: String) {
        self.single.insert(name.to_owned(), value);
    }

    pub(crate) fn set_list(&mut self, name: &str, values: Vec<String>) {
        self.set(name, values.join(","));
        self.lists.insert(name.to_owned(), values);
    }

    /// Every effective value by its dotted key.
    pub(crate) fn set_settings(&mut self, settings: &serde_json::Value) {
        self.set_below("", settings);
    }

    fn set_below(&mut self, path: &str, value: &serde_json::Value) {
        match value {
            serde_json::Value::Object(fields) => {
                for (key, value) in fields {
                    self.set_below(&kendall_keys::join(path, key), value);
                }
            }
            serde_json::Value::String(text) => self.set(path, text.clone()),
            serde_json::Value::Number(number) => self.set(path, number.to_string()),
            serde_json::Value::Bool(flag) => self.set(path, flag.to_string()),
            _ => {}
        }
    }

    /// The names that may be written, for an error; settings by one example only.
    pub(crate) fn names(&self) -> String {
        let mut names: Vec<String> = self
            .single
            .keys()
            .filter(|name| !name.contains('.'))
            .map(|name| format!("{{{name}}}"))
            .collect();
        names.extend(self.lists.keys().map(|name| format!("{{each:{name}}}")));
        names.push("any dotted key, such as {workload.clients}".to_owned());
        names.join(", ")
    }

    /// All words; one with `{each:NAME}` is repeated for each value of the list.
    pub(crate) fn fill_all(&self, words: &[String]) -> Result<Vec<String>, String> {
        let mut filled = Vec::new();
        for word in words {
            match each(word) {
                None => filled.push(self.fill(word)?),
                Some(name) => {
                    let placeholder = format!("{{each:{name}}}");
                    let list = self.lists.get(name).ok_or_else(|| format!("each:{name}"))?;
                    for value in list {
                        filled.push(self.fill(&word.replace(&placeholder, value))?);
                    }
                }
            }
        }
        Ok(filled)
    }

    /// One text; `{{` and `}}` stand for braces.
    pub(crate) fn fill(&self, text: &str) -> Result<String, String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            filled.push_str(&rest[..at]);
            let tail = &rest[at..];
            if let Some(after) = tail.strip_prefix("{{") {
                filled.push('{');
                rest = after;
            } else if let Some(after) = tail.strip_prefix("}}") {
                filled.push('}');
                rest = after;
            } else if let Some((name, after)) =
                tail.strip_prefix('{').and_then(|tail| tail.split_once('}'))
            {
                filled.push_str(self.single.get(name).ok_or_else(|| name.to_owned())?);
                rest = after;
            } else {
                return Err(tail.trim_start_matches('{').to_owned());
            }
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

fn each(word: &str) -> Option<&str> {
    let (_, rest) = word.split_once("{each:")?;
    rest.split_once('}').map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        let mut values = Values::default();
        values.set("port", "80".to_owned());
        values.set_list("servers", vec!["a:1".to_owned(), "b:2".to_owned()]);
        values.set_settings(&serde_json::json!({ "system": { "workers": 8 } }));
        values
    }

    #[test]
    fn words_are_filled_and_repeated() {
        let words =
            ["-p{port}", "--server={each:servers}", "{servers}", "{system.workers}", "{{x}}"];
        let filled = values().fill_all(&words.map(str::to_owned)).unwrap();
        assert_eq!(filled, ["-p80", "--server=a:1", "--server=b:2", "a:1,b:2", "8", "{x}"]);
    }

    #[test]
    fn what_stands_for_nothing_is_named() {
        assert_eq!(values().fill("{prt}"), Err("prt".to_owned()));
        assert_eq!(values().fill("{port"), Err("port".to_owned()));
        assert_eq!(values().fill_all(&["{each:x}".to_owned()]), Err("each:x".to_owned()));
        assert!(values().names().contains("{each:servers}"));
    }

    /// A study of two commands, of which the second takes a parameter.
    fn of_commands(parameters: &str, second: &str) -> Result<(), String> {
        let text = format!(
            "name = 'x'\n[system]\nkind = 'processes'\n[system.parameters]\n{parameters}\n\
             [[system.tiers]]\nname = 'web'\ncommand = ['old', '{{port}}']\n[workload]\n\
             path = '/'\n[factors]\n'system.tiers.web.command' = \
             [['old', '{{port}}'], ['new', '{{port}}', '{second}']]\n"
        );
        let read = crate::file::StudyFile::parse("x.toml", text, false, &[]);
        read.map(drop).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn a_parameter_is_used_where_only_the_command_of_a_level_takes_it() {
        assert_eq!(of_commands("threads = 4", "{threads}"), Ok(()));
        assert_eq!(of_commands("threads = 4", "{system.parameters.threads}"), Ok(()));
        let said = of_commands("threads = 4", "4").unwrap_err();
        assert!(said.contains("parameters.threads") && said.contains("no command"), "{said}");
    }

    #[test]
    fn the_placeholders_of_a_levels_command_are_checked_before_anything_is_started() {
        let said = of_commands("threads = 4", "{thraeds}").unwrap_err();
        assert!(said.contains("factors.system.tiers.web.command"), "{said}");
        assert!(said.contains("did you mean `{threads}`"), "{said}");
    }

    /// The value of a parameter is not a command.
    #[test]
    fn a_parameter_that_only_another_one_names_is_not_used() {
        for parameters in ["a = '{b}'\nb = 1", "b = '{c}'\nc = 1"] {
            let second = if parameters.starts_with('a') { "{a}" } else { "{b}" };
            let said = of_commands(parameters, second).unwrap_err();
            assert!(said.contains("no command uses it"), "{said}");
        }
        let said = of_commands("a = 1\nb = '{a}'", "{b}").unwrap_err();
        assert!(said.contains("is no placeholder"), "{said}");
    }
}
