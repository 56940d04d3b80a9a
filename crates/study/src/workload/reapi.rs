//! `protocol = "reapi"`: a build cache, under the operations of build tools.

use kendall_keys::Form;
use toml::Value;

use crate::section::{Key, Problem, Quantities as _, SHARE, Section};
use crate::workload::{Driver, Jobs, Protocol, weights};

pub(super) const PROTOCOL: Protocol =
    Protocol { name: "reapi", keys: &[KEYS], read, jobs: Jobs::Never };

const FORM: &str = "`cold`, `cold-execution`, `warm`, `get`, `put`, or a table of weights such as \
     { read = 3, write = 1 }";

const WORDS: &[&str] = &["cold", "cold-execution", "warm", "get", "put"];

/// Keys of the Remote Execution API.
const KEYS: &[Key] = &[
    Key::new(
        "mix",
        Form::Either(&[Form::Choice(WORDS), Form::Named(&Form::Number)]),
        "`cold` and `warm`: what Bazel requests for one action, `cold-execution`: for one that the \
         cluster executes; `get`, `put`, or weights of `find-missing`, `get-result`, `put-result`, \
         `batch-read`, `batch-update`, `read`, `write`, `execute`, `execute-cached`",
    )
    .or("'warm'"),
    Key::text(
        "blob_size",
        "length of blobs: `64KiB`, `exponential:20KiB`, `uniform:1KiB..64KiB`, `pareto:1KiB,1.5`",
    )
    .or("'1KiB'"),
    Key::count("batch", 1, 100_000, "digests or blobs per batch").or("50"),
    Key::count("stock", 1, 10_000_000, "blobs, results and actions that are stored first")
        .or("1000"),
    Key::quantity("hit_ratio", &SHARE, "share of reads that request a stored blob").or("'100%'"),
    Key::text(
        "key_distribution",
        "how reads choose among stored blobs: `uniform`, `zipf:0.99`, `hotspot:10%,90%` (10% of the blobs get 90% of the \
         reads), or `fixed`; the most popular are stored last",
    )
    .or("'uniform'"),
    Key::text(
        "action_time",
        "how long an action takes: `100ms`, `exponential:100ms`, `uniform:10ms..1s`; `0s` runs true",
    )
    .or("'0s'"),
    Key::texts("options", "further arguments of `kendall load reapi`"),
];

const OPERATIONS: [&str; 9] = [
    "find-missing",
    "get-result",
    "put-result",
    "batch-read",
    "batch-update",
    "read",
    "write",
    "execute",
    "execute-cached",
];

fn read(section: &mut Section<'_>) -> Result<Driver, Problem> {
    let mix = match section.raw("mix") {
        None | Some(Value::String(_)) => {
            let words: Vec<(&str, &str)> = WORDS.iter().map(|word| (*word, *word)).collect();
            section.choice("mix", &words)?.to_owned()
        }
        Some(Value::Table(table)) if !table.is_empty() => {
            weights(section, table, &OPERATIONS, FORM)?
        }
        Some(other) => return Err(section.problem("mix", format!("`{other}` is not {FORM}"))),
    };
    let hit_ratio = section.share("hit_ratio")?;
    if !(0.0..=1.0).contains(&hit_ratio) {
        return Err(section.problem("hit_ratio", "is not from 0% to 100%"));
    }
    let mut options = vec!["--mix".to_owned(), mix];
    options.extend(section.options(&[
        "blob_size",
        "batch",
        "stock",
        "key_distribution",
        "action_time",
    ])?);
    options.extend(["--hit-ratio".to_owned(), format!("{}%", hit_ratio * 100.0)]);
    options.extend(section.words("options")?);
    Ok(Driver { options, ..Driver::default() })
}
