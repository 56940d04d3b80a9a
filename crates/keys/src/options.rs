//! Options of a command from the keys of a table.

use serde_json::json;

use crate::key::Form;
use crate::section::{Problem, Section};
use crate::value::text_of;

impl Section<'_> {
    /// Arguments for a command whose options have the names of these keys: `blob_size` as `--blob-size`. A list, and a
    /// table of the user's own names, repeat the option; an optional key that is not written has none.
    pub fn options(&mut self, keys: &[&str]) -> Result<Vec<String>, Problem> {
        let mut options = Vec::new();
        for key in keys {
            let name = format!("--{}", key.replace('_', "-"));
            let values = match self.key(key).form {
                Form::Flag => {
                    options.extend(self.flag(key)?.then_some(name));
                    continue;
                }
                Form::Count { .. } => Vec::from_iter(self.opt_count(key)?.map(|n| n.to_string())),
                Form::Texts => self.words(key)?,
                Form::Named(_) => self.assignments(key)?,
                _ => Vec::from_iter(self.opt_text(key)?),
            };
            options.extend(values.into_iter().flat_map(|value| [name.clone(), value]));
        }
        Ok(options)
    }

    /// A table of the user's own names, as `name=value`.
    fn assignments(&mut self, key: &str) -> Result<Vec<String>, Problem> {
        let mut table = self.section(key)?;
        let mut assignments = Vec::new();
        for (name, value) in table.entries() {
            let value = text_of(value);
            table.effective(name, json!(value));
            assignments.push(format!("{name}={value}"));
        }
        self.effective(key, table.named());
        Ok(assignments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    const KEYS: &[Key] = &[
        Key::count("blob_count", 1, 64, "").or("4"),
        Key::text("path", "").optional(),
        Key::texts("file", ""),
        Key::flag("warm", "").or("false"),
        Key::new("vary", Form::Named(&Form::Text), "").optional(),
    ];

    #[test]
    fn options_have_the_names_and_values_of_the_keys() {
        let options = |text: &str| {
            let table = text.parse().unwrap();
            let mut section = Section::new("load", &table, &[KEYS]);
            section.options(&["blob_count", "path", "file", "warm", "vary"]).map(|o| o.join(" "))
        };
        assert_eq!(options(""), Ok("--blob-count 4".into()));
        let all = "blob_count = 5\npath = '/'\nfile = ['a', 'b']\nwarm = true\nvary = { n = 3 }";
        let expected = "--blob-count 5 --path / --file a --file b --warm --vary n=3";
        assert_eq!(options(all), Ok(expected.into()));
        assert!(options("blob_count = 0").is_err());
    }
}
