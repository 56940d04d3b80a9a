//! Every target on its corpus, on what was found once, and on inputs made of both by a fixed seed.
//! `KENDALL_FUZZ_SEED` and `KENDALL_FUZZ_TIMES` ask for others and for more.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use kendall_fuzz::{Mutator, TARGETS, Target};

/// Longest input that is made up.
const LONGEST: usize = 16 << 10;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

fn inputs_of(target: &Target) -> Vec<Vec<u8>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<PathBuf> = Vec::new();
    for folder in ["corpus", "found"] {
        let Ok(entries) = std::fs::read_dir(here.join(folder).join(target.name)) else { continue };
        files.extend(entries.map(|entry| entry.unwrap().path()));
    }
    // In one order on every machine.
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// Runs one input; says where it panics. The input is kept: mended, it goes into `found/`.
fn run(target: &Target, input: &[u8]) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|_| {
        let kept = std::env::temp_dir().join(format!("kendall-fuzz-{}", target.name));
        std::fs::write(&kept, input).unwrap();
        let begin = input[..input.len().min(300)].escape_ascii();
        format!("{}: an input panics, kept in {}: {begin}", target.name, kept.display())
    })
}

fn check_one(target: &'static Target, seed: u64, times: u64) -> Result<(), String> {
    let corpus = inputs_of(target);
    assert!(!corpus.is_empty(), "fuzz/corpus/{} has nothing to begin with", target.name);
    corpus.iter().try_for_each(|input| run(target, input))?;
    let mut mutator = Mutator::new(seed, LONGEST);
    (0..u64::from(target.inputs) * times).try_for_each(|_| run(target, &mutator.input(&corpus)))
}

/// Goes through all of them, whatever becomes of one.
fn check(targets: impl Iterator<Item = &'static Target>) {
    let (seed, times) = (number("KENDALL_FUZZ_SEED", 7), number("KENDALL_FUZZ_TIMES", 1));
    let wrong: Vec<String> =
        targets.filter_map(|target| check_one(target, seed, times).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_comes_over_connections_stops_no_reader() {
    check(TARGETS.iter().filter(|target| target.inputs >= 10_000));
}

#[test]
fn what_stands_in_files_stops_no_reader() {
    check(TARGETS.iter().filter(|target| target.inputs < 10_000));
}
