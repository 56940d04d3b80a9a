//! No circles of modules within a crate: read from the sources, since the compiler allows them.
//!
//! A module refers to another by a `use` or a path that begins with `crate`, `super` or `self`. That a module declares its
//! children is no reference. Tests are left out.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::support::repository;

type Module = Vec<String>;

fn modules(source: &Path, below: &Module, found: &mut BTreeMap<Module, String>) {
    for entry in std::fs::read_dir(source).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if name == "tests" {
            continue;
        }
        let mut module = below.clone();
        if path.is_dir() {
            module.push(name);
            modules(&path, &module, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            if !(below.is_empty() && matches!(name.as_str(), "lib" | "main")) {
                module.push(name);
            }
            found.insert(module, code(&std::fs::read_to_string(path).unwrap()));
        }
    }
}

/// Without comments and tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    text.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The paths of a tree of imports, such as `crate::{a, b::{c, d}}`.
fn paths(tree: &str) -> Vec<Module> {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        let names = path.split("::").map(|name| name.trim().to_owned());
        return vec![names.filter(|name| !name.is_empty()).collect()];
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let mut depth = 0;
    let parts = inner.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    let head = paths(head).remove(0);
    let parts = parts.filter(|part| !part.trim().is_empty()).flat_map(paths);
    parts.map(|part| head.iter().cloned().chain(part).collect()).collect()
}

/// Every path in the code that begins within the crate.
fn references(code: &str) -> Vec<Module> {
    let mut found = Vec::new();
    let word = |c: char| c.is_alphanumeric() || c == '_';
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            if code[..at].ends_with(|c| word(c) || c == ':') {
                continue;
            }
            let line = code[..at].rsplit(['\n', ';']).next().unwrap_or_default();
            let text = &code[at..];
            let end = if line.contains("use ") {
                text.find(';')
            } else {
                text.find(|c| !word(c) && c != ':')
            };
            found.extend(paths(text[..end.unwrap_or(text.len())].trim_end_matches(':')));
        }
    }
    found
}

/// The module that a path lies in, seen from `module`.
fn target(module: &Module, path: &Module, all: &BTreeMap<Module, String>) -> Module {
    let ups = path.iter().take_while(|name| *name == "super").count();
    let base = match path.first().map(String::as_str) {
        Some("super") => module[..module.len().saturating_sub(ups)].to_vec(),
        Some("self") => module.clone(),
        _ => Vec::new(),
    };
    let mut whole = base;
    whole.extend(path[ups.max(1)..].iter().cloned());
    while !all.contains_key(&whole) && !whole.is_empty() {
        whole.pop();
    }
    whole
}

/// All that can be reached from a module, itself only by a circle.
fn reached(from: &Module, graph: &BTreeMap<&Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<Module> = graph[from].iter().cloned().collect();
    while let Some(module) = next.pop() {
        if seen.insert(module.clone()) {
            next.extend(graph.get(&module).into_iter().flatten().cloned());
        }
    }
    seen
}

/// The modules of every circle of a crate, by their names.
fn circles(source: &Path) -> Vec<Vec<String>> {
    let mut all = BTreeMap::new();
    modules(source, &Vec::new(), &mut all);
    let graph: BTreeMap<&Module, BTreeSet<Module>> = all
        .iter()
        .map(|(module, code)| {
            let targets = references(code).into_iter().map(|path| target(module, &path, &all));
            (module, targets.filter(|target| target != module).collect())
        })
        .collect();
    let reach: BTreeMap<&Module, BTreeSet<Module>> =
        all.keys().map(|module| (module, reached(module, &graph))).collect();
    let mut found: BTreeSet<Vec<String>> = BTreeSet::new();
    for module in all.keys().filter(|module| reach[module].contains(*module)) {
        let circle = reach[module].iter().filter(|other| reach[*other].contains(module));
        found.insert(circle.map(|module| module.join("::")).collect());
    }
    found.into_iter().collect()
}

#[test]
fn modules_of_a_crate_do_not_use_each_other_in_circles() {
    let crates = repository().join("crates");
    let folders = [crates.clone(), crates.join("tiers")];
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for folder in folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
        let folder = folder.unwrap().path();
        if folder.join("Cargo.toml").exists() {
            let name = folder.strip_prefix(&crates).unwrap().display().to_string();
            for circle in circles(&folder.join("src")) {
                found.entry(name.clone()).or_default().push(circle.join(" "));
            }
        }
    }
    assert_eq!(found, BTreeMap::new(), "circles, by crate");
}

#[test]
fn a_circle_is_found_through_imports_and_paths() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::One;\n");
    write("a.rs", "use crate::{b::{Two, Three as Third}, c};\npub struct One;\n");
    write(
        "b.rs",
        "// crate::a::One in a comment\npub struct Two;\n#[cfg(test)]\nmod tests { use crate::a; }\n",
    );
    write("c.rs", "use super::b::Two;\n");
    assert!(circles(folder.path()).is_empty());
    write("b.rs", "fn f() -> crate::a::One { todo!() }\n");
    assert_eq!(circles(folder.path()), [["a", "b", "c"]]);
}
