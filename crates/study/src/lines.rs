//! Where each key of a study file stands.

use std::collections::BTreeMap;

use toml::de::{DeArray, DeTable, DeValue};

/// Line of every key, by its path, with dots between the parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lines {
    by_path: BTreeMap<String, usize>,
}

impl Lines {
    /// Lines of a text that parses; empty for one that does not.
    pub(crate) fn of(text: &str) -> Self {
        let mut lines = Self::default();
        if let Ok(table) = DeTable::parse(text) {
            lines.table(text, "", table.get_ref());
        }
        lines
    }

    /// The line of a key, or of the nearest table around it; 1 when nothing of it is written.
    pub(crate) fn line(&self, path: &str) -> usize {
        let mut path = path;
        loop {
            if let Some(line) = self.by_path.get(path) {
                return *line;
            }
            match path.rfind('.') {
                Some(dot) => path = &path[..dot],
                None => return 1,
            }
        }
    }

    fn table(&mut self, text: &str, prefix: &str, table: &DeTable<'_>) {
        for (key, value) in table.iter() {
            let path = join(prefix, key.get_ref());
            self.by_path.insert(path.clone(), line_of(text, key.span().start));
            self.value(text, &path, value.get_ref());
        }
    }

    fn value(&mut self, text: &str, path: &str, value: &DeValue<'_>) {
        match value {
            DeValue::Table(table) => self.table(text, path, table),
            DeValue::Array(array) => self.array(text, path, array),
            _ => {}
        }
    }

    fn array(&mut self, text: &str, path: &str, array: &DeArray<'_>) {
        for (index, item) in array.iter().enumerate() {
            let path = join(path, &index.to_string());
            self.by_path.insert(path.clone(), line_of(text, item.span().start));
            self.value(text, &path, item.get_ref());
        }
    }
}

/// Line of a byte position, from 1.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
}

/// A path with one more part.
pub(crate) fn join(prefix: &str, key: &str) -> String {
    if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_at_its_line_and_a_missing_one_at_its_table() {
        let text = "name = 'x'\n\n[a]\nb = 1\n[[a.c]]\nd = 2\n";
        let lines = Lines::of(text);
        assert_eq!(lines.line("name"), 1);
        assert_eq!(lines.line("a.b"), 4);
        assert_eq!(lines.line("a.c.0.d"), 6);
        assert_eq!(lines.line("a.missing"), 3);
        assert_eq!(lines.line("missing"), 1);
    }
}
