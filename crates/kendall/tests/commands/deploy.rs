//! The files below `deploy/` name options that the program has.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::{Path, PathBuf};

use crate::support::{kendall, repository};

fn files_below(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, ending, found);
        } else if path.extension().is_some_and(|has| has == ending) {
            found.push(path);
        }
    }
}

/// Arguments of each container that runs the program: a list of lines, or one within brackets.
fn commands_of(text: &str) -> Vec<Vec<String>> {
    let word = |word: &str| {
        let word = word.trim().trim_matches('"');
        // Names of services are known where it is deployed.
        let named = word.split_once('=').and_then(|(option, value)| {
            let (host, port) = value.split_once(':')?;
            let is_name = host.starts_with(|first: char| first.is_ascii_lowercase());
            is_name.then(|| format!("{option}=127.0.0.1:{port}"))
        });
        named.unwrap_or_else(|| word.to_owned())
    };
    let mut commands: Vec<Vec<String>> = Vec::new();
    let mut is_open = false;
    for line in text.lines().map(str::trim) {
        if let Some(list) = line.strip_prefix("args: [").and_then(|rest| rest.strip_suffix(']')) {
            commands.push(list.split(',').map(word).collect());
        } else if line == "args:" || line == "command:" {
            commands.push(Vec::new());
            is_open = true;
        } else if let Some(item) = line.strip_prefix("- ").filter(|_| is_open) {
            commands.last_mut().unwrap().push(word(item));
        } else if !line.starts_with('#') {
            is_open = false;
        }
    }
    commands.retain(|words| words.first().is_some_and(|first| !first.starts_with('-')));
    commands
}

#[test]
fn deployed_commands_have_options_of_the_program() {
    let mut files = Vec::new();
    files_below(&repository().join("deploy"), "yaml", &mut files);
    let mut tried = 0;
    for file in files {
        for command in commands_of(&std::fs::read_to_string(&file).unwrap()) {
            // An option that is not there, or a value out of bounds, is refused before the help is printed.
            let output = kendall().args(&command).arg("--help").output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {command:?}: {stderr}", file.display());
            tried += 1;
        }
    }
    // Cache, scheduler and worker twice; queue and proxy twice; study and console.
    assert_eq!(tried, 12);
}

#[test]
fn the_deployed_study_is_planned() {
    let study = repository().join("deploy/kubernetes/study/study.toml");
    let output = kendall().arg("run").arg(study).arg("--dry-run").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
