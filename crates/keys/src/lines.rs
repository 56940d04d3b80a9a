//! Where each key of a file stands.

use std::collections::BTreeMap;

use toml::de::{DeArray, DeTable, DeValue};

/// Line of every key, by its path, with dots between the parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lines {
    by_path: BTreeMap<String, usize>,
}

impl Lines {
    /// Lines of a TOML text that parses; empty for one that does not.
    pub fn of(text: &str) -> Self {
        let mut lines = Self::default();
        if let Ok(table) = DeTable::parse(text) {
            let newlines: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
            lines.table(&newlines, "", table.get_ref());
        }
        lines
    }

    /// Lines of a JSON text that parses.
    pub fn of_json(text: &str) -> Self {
        let mut lines = Self::default();
        let mut scan = Scan { bytes: text.as_bytes(), at: 0, line: 1 };
        scan.value("", &mut lines.by_path);
        lines
    }

    /// The line of a key, or of the nearest table around it; `None` when nothing of it is written.
    /// A path may count entries of lists as `stations.0.name` or as `stations[0].name`.
    pub fn find(&self, path: &str) -> Option<usize> {
        let dotted = path.replace('[', ".").replace(']', "");
        let mut path = dotted.as_str();
        loop {
            if let Some(line) = self.by_path.get(path) {
                return Some(*line);
            }
            path = &path[..path.rfind('.')?];
        }
    }

    /// As [`find`](Self::find), or 1.
    pub fn line(&self, path: &str) -> usize {
        self.find(path).unwrap_or(1)
    }

    fn table(&mut self, newlines: &[usize], prefix: &str, table: &DeTable<'_>) {
        for (key, value) in table.iter() {
            let path = join(prefix, key.get_ref());
            self.by_path.insert(path.clone(), line(newlines, key.span().start));
            self.value(newlines, &path, value.get_ref());
        }
    }

    fn value(&mut self, newlines: &[usize], path: &str, value: &DeValue<'_>) {
        match value {
            DeValue::Table(table) => self.table(newlines, path, table),
            DeValue::Array(array) => self.array(newlines, path, array),
            _ => {}
        }
    }

    fn array(&mut self, newlines: &[usize], path: &str, array: &DeArray<'_>) {
        for (index, item) in array.iter().enumerate() {
            let path = join(path, &index.to_string());
            self.by_path.insert(path.clone(), line(newlines, item.span().start));
            self.value(newlines, &path, item.get_ref());
        }
    }
}

/// Lines that are known by other means.
impl FromIterator<(String, usize)> for Lines {
    fn from_iter<I: IntoIterator<Item = (String, usize)>>(lines: I) -> Self {
        Self { by_path: lines.into_iter().collect() }
    }
}

/// Line of a byte position, from 1, by the positions of all newlines.
fn line(newlines: &[usize], at: usize) -> usize {
    1 + newlines.partition_point(|newline| *newline < at)
}

/// Line of a byte position, from 1.
pub fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
}

/// A path with one more part.
pub fn join(prefix: &str, key: &str) -> String {
    if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") }
}

/// `stations.0.name` as people write it: `stations[0].name`.
pub fn bracketed(path: &str) -> String {
    let mut text = String::new();
    for part in path.split('.') {
        if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
            text.push_str(&format!("[{part}]"));
        } else {
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(part);
        }
    }
    text
}

/// Walks over a JSON text that is known to parse; on any other it stops early.
struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    line: usize,
}

impl Scan<'_> {
    fn peek(&mut self) -> u8 {
        while let Some(byte) = self.bytes.get(self.at).filter(|byte| byte.is_ascii_whitespace()) {
            self.line += usize::from(*byte == b'\n');
            self.at += 1;
        }
        self.bytes.get(self.at).copied().unwrap_or(b'}')
    }

    fn value(&mut self, path: &str, found: &mut BTreeMap<String, usize>) {
        match self.peek() {
            b'{' => self.items(b'}', |scan, _| {
                let line = scan.line;
                let key = scan.text();
                scan.peek(); // the colon
                scan.at += 1;
                let path = join(path, &key);
                found.insert(path.clone(), line);
                scan.value(&path, found);
            }),
            b'[' => self.items(b']', |scan, index| {
                let path = join(path, &index.to_string());
                found.insert(path.clone(), scan.line);
                scan.value(&path, found);
            }),
            b'"' => drop(self.text()),
            _ => {
                let ends = |byte: &u8| b",]} \t\r\n".contains(byte);
                while self.bytes.get(self.at).is_some_and(|byte| !ends(byte)) {
                    self.at += 1;
                }
            }
        }
    }

    fn items(&mut self, end: u8, mut item: impl FnMut(&mut Self, usize)) {
        self.at += 1;
        let mut index = 0;
        while self.peek() != end && self.at < self.bytes.len() {
            let before = self.at;
            item(self, index);
            index += 1;
            if self.at == before {
                // No JSON: nothing here is a value.
                break;
            }
            if self.peek() == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
    }

    /// A text without its quotes; escapes other than `\"` stay as they are, which keys do not have.
    fn text(&mut self) -> String {
        self.at += 1;
        let start = self.at;
        while let Some(byte) = self.bytes.get(self.at).filter(|byte| **byte != b'"') {
            self.at += if *byte == b'\\' { 2 } else { 1 };
        }
        let end = self.at.min(self.bytes.len());
        self.at += 1;
        String::from_utf8_lossy(&self.bytes[start..end]).into_owned()
    }
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
        assert_eq!(lines.find("missing"), None);
    }

    #[test]
    fn keys_of_a_json_file_have_lines_too() {
        let text = "{ \"a\": 1,\n \"b\\\"\": [ {\n \"c\": \"x, } \\\" y\",\n \"d\": -1.5e3 } ],\n\
                    \"e\": {} , \"f\": true\n}";
        let lines = Lines::of_json(text);
        assert_eq!(lines.line("a"), 1);
        assert_eq!(lines.line("b\\\"[0].c"), 3);
        assert_eq!(lines.line("b\\\".0.d"), 4);
        assert_eq!((lines.find("e"), lines.find("f")), (Some(5), Some(5)));
        // A text that is not JSON ends the walk, and does not hang.
        for text in ["", "{", "[1,", "{\"a\"", "{\"a\":", "\"", "{]", "[}"] {
            assert_eq!(Lines::of_json(text).find("no such key"), None);
        }
    }
}
