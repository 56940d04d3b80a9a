//! No circles between the modules of a crate: what two files need of each other belongs into a third, below both.
//! `circles.txt` lists those that are left. The list may only become shorter: `UPDATE=1 cargo test -p kendall --test
//! commands modules` rewrites it where it does.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::sources::{self, Import, Part};

type Name = Vec<String>;

struct Module {
    imports: Vec<Import>,
    /// All but its imports.
    words: Vec<String>,
}

/// The modules of one crate by their paths; the root is the empty one.
struct Modules(BTreeMap<Name, Module>);

impl Modules {
    fn read(source: &Path) -> Self {
        let modules = sources::files(source).into_iter().map(|file| {
            let path = file.strip_prefix(source).unwrap().with_extension("");
            let mut name: Name =
                path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
            if name == ["lib"] || name == ["main"] {
                name.clear();
            }
            let text = std::fs::read_to_string(&file).unwrap();
            let (imports, words) = sources::imports(&sources::words(&text, Part::WithoutTests));
            (name, Module { imports, words })
        });
        Self(modules.collect())
    }

    /// From the root of the crate on; `None` for what is of another crate.
    fn absolute(&self, from: &Name, path: &[String]) -> Option<Name> {
        let (first, rest) = path.split_first()?;
        let above = |levels: usize| from[..from.len().saturating_sub(levels)].to_vec();
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([from, rest].concat()),
            "super" => {
                let more = rest.iter().take_while(|word| *word == "super").count();
                Some([above(1 + more), rest[more..].to_vec()].concat())
            }
            _ => {
                let child = [from.as_slice(), &path[..1]].concat();
                self.0.contains_key(&child).then(|| [from.as_slice(), path].concat())
            }
        }
    }

    /// The module that has what a path from the root names, behind whatever hands it on; `None` for a module itself
    /// and for what another crate has.
    fn owner(&self, path: &Name, patience: u32) -> Option<Name> {
        let depth = (0..=path.len()).rev().find(|depth| self.0.contains_key(&path[..*depth]))?;
        let (module, rest) = path.split_at(depth);
        let item = rest.first()?;
        let handed_on = self.0[module].imports.iter().find(|import| import.name == *item);
        match handed_on {
            Some(import) if patience > 0 => {
                let path = self.absolute(&module.to_vec(), &import.path)?;
                self.owner(&[path, rest[1..].to_vec()].concat(), patience - 1)
            }
            _ => Some(module.to_vec()),
        }
    }

    /// Modules that a module uses. One that only hands a name on does not use it.
    fn used_by(&self, name: &Name) -> BTreeSet<Name> {
        let module = &self.0[name];
        let words: BTreeSet<&String> = module.words.iter().collect();
        let imported = module
            .imports
            .iter()
            .filter(|import| !import.public || words.contains(&import.name))
            .filter_map(|import| self.absolute(name, &import.path));
        let written = sources::paths(&module.words).into_iter().filter_map(|path| {
            let import = module.imports.iter().find(|import| import.name == path[0]);
            let path = import.map_or(path.clone(), |one| [&one.path, &path[1..]].concat());
            self.absolute(name, &path)
        });
        imported
            .chain(written)
            .filter_map(|path| self.owner(&path, 8))
            .filter(|owner| owner != name)
            .collect()
    }

    /// Sets of modules each of which needs all others of its set.
    fn circles(&self) -> BTreeSet<Vec<String>> {
        let uses: BTreeMap<&Name, BTreeSet<Name>> =
            self.0.keys().map(|name| (name, self.used_by(name))).collect();
        let reached = |from: &Name| {
            let mut seen = BTreeSet::new();
            let mut open: Vec<&Name> = uses[from].iter().collect();
            while let Some(next) = open.pop() {
                if seen.insert(next.clone()) {
                    open.extend(&uses[next]);
                }
            }
            seen
        };
        let reached: BTreeMap<&Name, BTreeSet<Name>> =
            self.0.keys().map(|name| (name, reached(name))).collect();
        let circle = |name: &&&Name| -> Vec<String> {
            let both =
                |other: &&Name| reached[**name].contains(*other) && reached[other].contains(**name);
            self.0.keys().filter(both).map(|name| shown(name)).collect()
        };
        reached.keys().map(|name| circle(&name)).filter(|circle| !circle.is_empty()).collect()
    }
}

fn shown(name: &[String]) -> String {
    if name.is_empty() { "crate".to_owned() } else { name.join("::") }
}

fn circles() -> BTreeSet<(String, Vec<String>)> {
    let crates = sources::crates(&super::layers::metadata());
    crates
        .into_iter()
        .flat_map(|(name, folder)| {
            let circles = Modules::read(&folder.join("src")).circles();
            circles.into_iter().map(move |circle| (name.clone(), circle))
        })
        .collect()
}

fn line((name, circle): &(String, Vec<String>)) -> String {
    format!("{name}: {}\n", circle.join(" "))
}

fn listed(text: &str) -> BTreeSet<(String, Vec<String>)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, modules) = line.split_once(": ").unwrap();
            (name.to_owned(), modules.split(' ').map(str::to_owned).collect())
        })
        .collect()
}

#[test]
fn modules_of_a_crate_form_no_new_circle() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands/circles.txt");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let (found, known) = (circles(), listed(&text));
    let is_known = |(name, circle): &&(String, Vec<String>)| {
        known.iter().any(|(of, all)| of == name && circle.iter().all(|one| all.contains(one)))
    };
    let new: Vec<_> = found.iter().filter(|one| !is_known(one)).map(line).collect();
    assert!(
        new.is_empty(),
        "modules that need each other; move what they share into one below them:\n{}",
        new.concat()
    );
    if found != known {
        if std::env::var_os("UPDATE").is_some() {
            let note = "# Circles between modules that are left; read by crates/kendall/tests/commands/modules.rs.\n";
            let lines: String = found.iter().map(line).collect();
            std::fs::write(file, format!("{note}{lines}")).unwrap();
        } else {
            let gone: Vec<_> = known.difference(&found).collect();
            panic!(
                "smaller than listed, well done: {gone:?}. Run UPDATE=1 cargo test -p kendall --test commands modules"
            );
        }
    }
}

/// The check itself, on a crate of three modules.
#[test]
fn a_circle_is_found_behind_what_hands_names_on() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let circles = || Modules::read(folder.path()).circles();
    write("lib.rs", "mod a; mod b; mod c; pub use b::{B, other as o};");
    write(
        "a.rs",
        "// use crate::c::C;\nuse crate::c;\nfn f(x: &'static str) { c::g(\"crate::b::B\") }",
    );
    write("b.rs", "pub struct B; pub fn other() {}\n#[cfg(test)]\nmod tests { use crate::a::f; }");
    write("c.rs", "use crate::{B, o}; pub fn g() {}");
    assert_eq!(circles(), BTreeSet::new());
    write("b.rs", "pub struct B; pub fn other() { crate::a::f('\\'') }");
    assert_eq!(circles(), [["a", "b", "c"].map(str::to_owned).to_vec()].into());
}
