//! The words of a Rust file without comments and literals, enough to see which modules and crates it names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a file is read for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    All,
    /// Without items under `#[cfg(test)]`.
    WithoutTests,
}

/// All Rust files below a folder.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Identifiers, `::` and single other signs, in order.
pub(crate) fn words(text: &str, part: Part) -> Vec<String> {
    let words = scan(text);
    if part == Part::All { words } else { without_tests(&words) }
}

fn scan(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let mut words = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        at += match rest[0] {
            b'/' if rest.starts_with(b"//") => until(rest, b"\n"),
            b'/' if rest.starts_with(b"/*") => until(rest, b"*/"),
            b'"' => quoted(rest),
            b'r' | b'b' if raw(rest).is_some() => raw(rest).unwrap_or(1),
            b'\'' => quote_or_lifetime(rest),
            b':' if rest.starts_with(b"::") => push(&mut words, "::"),
            byte if byte.is_ascii_alphanumeric() || byte == b'_' => {
                let name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                let length = rest.iter().position(|byte| !name(byte)).unwrap_or(rest.len());
                push(&mut words, &String::from_utf8_lossy(&rest[..length]))
            }
            byte if byte.is_ascii_graphic() => push(&mut words, &char::from(byte).to_string()),
            _ => 1,
        };
    }
    words
}

fn push(words: &mut Vec<String>, word: &str) -> usize {
    words.push(word.to_owned());
    word.len()
}

/// Length of what goes up to this end.
fn until(bytes: &[u8], end: &[u8]) -> usize {
    bytes
        .windows(end.len())
        .position(|window| window == end)
        .map_or(bytes.len(), |at| at + end.len())
}

/// Length of a string literal with its quotes.
fn quoted(bytes: &[u8]) -> usize {
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// Length of a raw or byte string that begins here.
fn raw(bytes: &[u8]) -> Option<usize> {
    let start = bytes.iter().position(|byte| !b"rb".contains(byte)).filter(|start| *start <= 2)?;
    let hashes = bytes[start..].iter().position(|byte| *byte != b'#')?;
    if bytes.get(start + hashes) != Some(&b'"') {
        return None;
    }
    if bytes[..start].contains(&b'r') {
        let end = [b"\"", "#".repeat(hashes).as_bytes()].concat();
        Some(start + hashes + 1 + until(&bytes[start + hashes + 1..], &end))
    } else {
        (hashes == 0).then(|| start + quoted(&bytes[start..]))
    }
}

/// Length of a character, or of the mark of a lifetime.
fn quote_or_lifetime(bytes: &[u8]) -> usize {
    if bytes.get(1) == Some(&b'\\') {
        return 3 + until(&bytes[3.min(bytes.len())..], b"'");
    }
    let text = String::from_utf8_lossy(&bytes[1..bytes.len().min(6)]).into_owned();
    let first = text.chars().next().map_or(1, char::len_utf8);
    if bytes.get(1 + first) == Some(&b'\'') { first + 2 } else { 1 }
}

/// Leaves out each item under `#[cfg(test)]`, to its `;` or the end of its block.
fn without_tests(words: &[String]) -> Vec<String> {
    let mark = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut at = 0;
    while at < words.len() {
        if words[at..].iter().map(String::as_str).take(mark.len()).eq(mark) {
            at = end_of_item(words, at + mark.len());
        } else {
            kept.push(words[at].clone());
            at += 1;
        }
    }
    kept
}

fn end_of_item(words: &[String], from: usize) -> usize {
    let mut depth = 0_i32;
    for (at, word) in words.iter().enumerate().skip(from) {
        match word.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth -= 1;
                if depth == 0 && word == "}" {
                    return at + 1;
                }
            }
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
    }
    words.len()
}

/// One name that a `use` brings.
pub(crate) struct Import {
    pub(crate) path: Vec<String>,
    pub(crate) name: String,
    /// It is handed on with `pub use`.
    pub(crate) public: bool,
}

/// The imports of a file, and its words without them.
pub(crate) fn imports(words: &[String]) -> (Vec<Import>, Vec<String>) {
    let (mut found, mut others) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < words.len() {
        if words[at] != "use" {
            others.push(words[at].clone());
            at += 1;
            continue;
        }
        let end =
            words[at..].iter().position(|word| word == ";").map_or(words.len(), |end| at + end);
        let public = at > 0 && (words[at - 1] == "pub" || words[at - 1] == ")");
        tree(&words[at + 1..end], &mut Vec::new(), public, &mut found);
        at = end + 1;
    }
    (found, others)
}

/// Reads one tree of a `use`, whose branches stand between braces.
fn tree(words: &[String], above: &mut Vec<String>, public: bool, found: &mut Vec<Import>) {
    let depth = above.len();
    let mut name = None;
    let mut at = 0;
    while at < words.len() {
        match words[at].as_str() {
            "::" => {}
            "{" => {
                for branch in branches(&words[at + 1..words.len() - 1]) {
                    tree(branch, above, public, found);
                }
                above.truncate(depth);
                return;
            }
            "as" => {
                name = words.get(at + 1).cloned();
                at += 1;
            }
            "self" if !above.is_empty() => {}
            word => above.push(word.to_owned()),
        }
        at += 1;
    }
    let path = above.clone();
    let name = name.or_else(|| path.last().cloned()).unwrap_or_default();
    found.push(Import { path, name, public });
    above.truncate(depth);
}

fn branches(words: &[String]) -> Vec<&[String]> {
    let mut depth = 0_i32;
    words
        .split(|word| {
            match word.as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            depth == 0 && word == ","
        })
        .filter(|branch| !branch.is_empty())
        .collect()
}

/// Every path of two names or more among these words.
pub(crate) fn paths(words: &[String]) -> Vec<Vec<String>> {
    let is_name = |word: &String| word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let mut found = Vec::new();
    let mut path: Vec<String> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if is_name(word) && (path.is_empty() || words[at - 1] == "::") {
            path.push(word.clone());
        } else if word != "::" {
            found.push(std::mem::take(&mut path));
            if is_name(word) {
                path.push(word.clone());
            }
        }
    }
    found.push(path);
    found.retain(|path| path.len() > 1);
    found
}

/// Folders of the crates by the names of their packages.
pub(crate) fn crates(metadata: &serde_json::Value) -> BTreeMap<String, PathBuf> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .filter_map(|package| {
            let manifest = Path::new(package["manifest_path"].as_str()?);
            Some((package["name"].as_str()?.to_owned(), manifest.parent()?.to_owned()))
        })
        .collect()
}
