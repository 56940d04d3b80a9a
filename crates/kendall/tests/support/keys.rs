//! The tables of keys in the documents, held against what commands print.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

/// The keys of a table, and whether only some answers have them.
type Listed = BTreeMap<String, bool>;

/// Tables of a page between marks, and those that were held against an answer.
#[derive(Debug)]
pub(crate) struct Documented {
    page: &'static str,
    tables: BTreeMap<String, Listed>,
    seen: BTreeSet<String>,
}

impl Documented {
    pub(crate) fn read(page: &'static str) -> Self {
        let text = std::fs::read_to_string(super::repository().join(page)).unwrap();
        let parts = text.split("<!-- keys of answers: ").skip(1);
        let tables = parts.map(|part| {
            let (name, rest) = part.split_once(" -->").unwrap();
            let (table, _) = rest.split_once("<!-- end of keys -->").unwrap();
            (name.to_owned(), listed(table))
        });
        Self { page, tables: tables.collect(), seen: BTreeSet::new() }
    }

    /// Each key of these answers is in the table, and each of the table in an answer. What only some answers have need not be
    /// in these, and must be a name in the program.
    pub(crate) fn check(&mut self, table: &str, answers: &[Value]) {
        let page = self.page;
        let mut keys = BTreeSet::new();
        for answer in answers {
            self.keys_of(answer, "", &mut keys);
        }
        let listed = &self.tables[table];
        for key in &keys {
            let is_listed = listed.keys().any(|row| leads(key, row) || all_below(row, key));
            assert!(is_listed, "{page} lacks `{key}` of {table}");
        }
        for (row, is_seldom) in listed {
            let has = |key: &String| leads(row, key) || all_below(row, key);
            // An empty list or `null` hides what may be below it.
            let hides =
                |key: &String| leads(key, row) && !keys.iter().any(|other| below(other, key));
            let name = row.rsplit(['.', '[', ']']).find(|part| !["", "*"].contains(part));
            let known = keys.iter().any(|key| has(key) || hides(key))
                || *is_seldom && is_in_the_program(name.unwrap_or_default());
            assert!(known, "{page}: no answer of {table} has `{row}`: {keys:#?}");
        }
        self.seen.insert(table.to_owned());
    }

    /// Every table of a command was held against an answer; a value may be within another.
    pub(crate) fn is_complete(&self) {
        let of_commands = |name: &&String| !name.starts_with("value ");
        let names: BTreeSet<&String> = self.tables.keys().filter(of_commands).collect();
        let seen: BTreeSet<&String> = self.seen.iter().filter(of_commands).collect();
        assert_eq!(seen, names, "{}", self.page);
    }

    /// The keys of an answer, entries of lists as `[]`; those of a value that has a table of its own are left out.
    pub(crate) fn keys_of(&mut self, value: &Value, path: &str, keys: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                let names: BTreeSet<&str> = fields.keys().map(String::as_str).collect();
                if let Some(own) = self.value(&names).filter(|_| !path.is_empty()) {
                    self.seen.insert(own);
                    keys.insert(path.trim_end_matches("[]").to_owned());
                    return;
                }
                for (name, field) in fields {
                    let name = name.replace(['.', '[', ']'], "_");
                    let dot = if path.is_empty() { "" } else { "." };
                    self.keys_of(field, &format!("{path}{dot}{name}"), keys);
                }
            }
            Value::Array(items) if !items.is_empty() => {
                for item in items {
                    self.keys_of(item, &format!("{path}[]"), keys);
                }
            }
            _ => {
                keys.insert(path.trim_end_matches("[]").to_owned());
            }
        }
    }

    /// The table of a value with these keys; one with `*` may have further ones.
    fn value(&self, names: &BTreeSet<&str>) -> Option<String> {
        let mut values = self.tables.iter().filter(|(name, _)| name.starts_with("value "));
        let found = values.find(|(_, listed)| {
            let first = |row: &String| row.split(['.', '[']).next().unwrap_or_default().to_owned();
            let mut own: BTreeSet<String> = listed.keys().map(first).collect();
            if own.remove("*") {
                own.iter().all(|name| names.contains(name.as_str()))
            } else {
                own.len() == names.len() && own.iter().all(|name| names.contains(name.as_str()))
            }
        });
        found.map(|(name, _)| name.clone())
    }
}

/// What stands in backticks.
pub(crate) fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The keys of the first column; `.name` has the stem of the key before it.
fn listed(table: &str) -> Listed {
    let mut listed = Listed::new();
    for row in table.lines().skip(3) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let is_seldom = cells.last().is_some_and(|meaning| meaning.starts_with("only "));
        let mut stem = "";
        for key in quoted(cells[0]) {
            let key = match key.strip_prefix('.') {
                Some(rest) => format!("{stem}.{rest}"),
                None => {
                    stem = key.rsplit_once('.').map_or(key, |(stem, _)| stem);
                    key.to_owned()
                }
            };
            listed.insert(key.trim_end_matches("[]").to_owned(), is_seldom);
        }
    }
    listed
}

/// Whether a key is another or leads to it. Names in capitals stand for any.
fn leads(first: &str, to: &str) -> bool {
    let is_any = |part: &str| part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase());
    let bare = |part: &str| part.trim_end_matches("[]").to_owned();
    let (first, to): (Vec<&str>, Vec<&str>) = (first.split('.').collect(), to.split('.').collect());
    let is_same = |place: usize| {
        let (a, b) = (first[place], to[place]);
        let is_last = place + 1 == first.len();
        a == b || is_last && bare(a) == bare(b) || is_any(&bare(a)) || is_any(&bare(b))
    };
    first.len() <= to.len() && (0..first.len()).all(is_same)
}

/// Whether a key is another with something behind it.
fn below(key: &str, other: &str) -> bool {
    key.strip_prefix(other).is_some_and(|rest| rest.starts_with(['.', '[']))
}

/// Whether a row such as `a.*` has all keys below `a`.
fn all_below(row: &str, key: &str) -> bool {
    row.strip_suffix(".*").is_some_and(|stem| leads(stem, key))
}

/// Whether a name is one of a field or in quotes somewhere in the program.
fn is_in_the_program(name: &str) -> bool {
    fn look(folder: &Path, names: &[String]) -> bool {
        std::fs::read_dir(folder).unwrap().any(|entry| {
            let path = entry.unwrap().path();
            if path.is_dir() {
                return !path.ends_with("tests") && look(&path, names);
            }
            let is_source = path.extension().is_some_and(|ending| ending == "rs");
            let text = is_source.then(|| std::fs::read_to_string(&path).unwrap());
            text.is_some_and(|text| names.iter().any(|name| text.contains(name)))
        })
    }
    let names = [format!(" {name}: "), format!("\"{name}\"")];
    look(&super::repository().join("crates"), &names)
}
