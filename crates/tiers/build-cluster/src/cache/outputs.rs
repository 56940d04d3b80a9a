//! Which results may be stored and served: each output has a path below the working directory and a digest.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use prost::Message as _;
use tonic::Status;

use super::proto::{self, Fields, Malformed, Value};
use crate::digest::{Digest, Function};
use crate::wire::re;

/// Why a result is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    #[error(
        "the result is no ActionResult of the Remote Execution API, and nothing else is kept there"
    )]
    Malformed,
    #[error(
        "the output path {0:?} is refused: paths are relative to the working directory, names joined by single `/`, without `.` and `..`"
    )]
    Path(String),
    #[error("the output {path:?} has no usable digest: {why}")]
    Digest { path: String, why: String },
    #[error("the content of the output {0:?} is not what its digest names")]
    Content(String),
    #[error("the output {0:?} is a link whose target is empty, or has a NUL character")]
    Link(String),
    #[error("two outputs have the path {0:?}")]
    Twice(String),
    #[error("the result of an action that failed is not kept")]
    Failed,
}

impl From<Malformed> for Unfit {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl From<Unfit> for Status {
    fn from(unfit: Unfit) -> Self {
        Self::invalid_argument(unfit.to_string())
    }
}

/// Checks an `ActionResult` as it came.
pub(crate) fn check(function: Function, result: &[u8]) -> Result<(), Unfit> {
    let mut failed = false;
    let mut outputs = Vec::new();
    let (mut out, mut err) = (Content::default(), Content::default());
    for field in Fields(result) {
        match field? {
            (2, Value::Bytes(file)) => {
                outputs.push((output(function, file, &[2], Some(5))?, OLDER | NEWER));
            }
            // A tree, or a directory and those below it.
            (3, Value::Bytes(directory)) => {
                outputs.push((output(function, directory, &[3, 5], None)?, OLDER | NEWER));
            }
            (4, Value::Number(code)) => failed = code != 0,
            (5, Value::Bytes(text)) => out.bytes = text,
            (6, Value::Bytes(log)) => out.digest = Some(digest(function, OUT, log)?),
            (7, Value::Bytes(text)) => err.bytes = text,
            (8, Value::Bytes(log)) => err.digest = Some(digest(function, ERR, log)?),
            (number @ 10..=12, Value::Bytes(link)) => {
                let form = if number == 12 { NEWER } else { OLDER };
                outputs.push((symlink(link)?, form));
            }
            (9, Value::Bytes(metadata)) => {
                for field in Fields(metadata) {
                    field?;
                }
            }
            // Another type than this field has: no library reads the message.
            (2..=12, _) => return Err(Unfit::Malformed),
            _ => {}
        }
    }
    out.check(OUT)?;
    err.check(ERR)?;
    if let Some(path) = twice(&outputs) {
        return Err(Unfit::Twice(path.to_owned()));
    }
    if failed { Err(Unfit::Failed) } else { Ok(()) }
}

/// What the logs of an action are called in a refusal.
const OUT: &str = "standard output";
const ERR: &str = "standard error";

/// What came with an output, for its readers to take as it is.
#[derive(Default)]
struct Content<'a> {
    /// None where there are no bytes: they are in the store.
    bytes: &'a [u8],
    digest: Option<Digest>,
}

impl Content<'_> {
    fn check(&self, path: &str) -> Result<(), Unfit> {
        let named = self.digest.is_none_or(|digest| digest.names(self.bytes));
        if named || self.bytes.is_empty() { Ok(()) } else { Err(Unfit::Content(path.to_owned())) }
    }
}

/// Forms of a result: that of version 2.0, and that since 2.1. A link may be written in both.
const OLDER: u8 = 1;
const NEWER: u8 = 2;

/// The path that two outputs of one form have.
fn twice<'a>(outputs: &[(&'a str, u8)]) -> Option<&'a str> {
    if outputs.len() < 2 {
        return None;
    }
    let mut known: HashMap<&str, u8> = HashMap::with_capacity(outputs.len());
    let repeated = outputs.iter().find(|(path, forms)| {
        let before = known.entry(path).or_default();
        std::mem::replace(before, *before | forms) & forms != 0
    });
    repeated.map(|(path, _)| *path)
}

/// Checks an output whose digest is in one of these fields, and which is a directory unless its content may be in
/// another; returns its path.
fn output<'a>(
    function: Function,
    output: &'a [u8],
    digests: &[u32],
    content: Option<u32>,
) -> Result<&'a str, Unfit> {
    let (name, mut found) = (text(output, 1)?, Content::default());
    path(name, content.is_none())?;
    for field in Fields(output) {
        match field? {
            (number, Value::Bytes(bytes)) if digests.contains(&number) => {
                found.digest = Some(digest(function, name, bytes)?);
            }
            (number, Value::Bytes(bytes)) if Some(number) == content => found.bytes = bytes,
            _ => {}
        }
    }
    if found.digest.is_some() {
        return found.check(name).map(|()| name);
    }
    Err(Unfit::Digest { path: name.to_owned(), why: "it is missing".to_owned() })
}

/// Checks a symbolic link; returns its path.
fn symlink(link: &[u8]) -> Result<&str, Unfit> {
    let (name, target) = (text(link, 1)?, text(link, 2)?);
    path(name, false)?;
    if target.is_empty() || target.contains('\0') {
        return Err(Unfit::Link(name.to_owned()));
    }
    Ok(name)
}

/// The text in a field of an output, such as its path; an empty one is not written.
fn text(output: &[u8], number: u32) -> Result<&str, Malformed> {
    let mut text = "";
    for field in Fields(output) {
        if let (found, Value::Bytes(bytes)) = field?
            && found == number
        {
            text = proto::text(bytes)?;
        }
    }
    Ok(text)
}

fn digest(function: Function, path: &str, bytes: &[u8]) -> Result<Digest, Unfit> {
    proto::digest(function, bytes)
        .map_err(|status| Unfit::Digest { path: path.to_owned(), why: status.message().to_owned() })
}

fn path(path: &str, is_directory: bool) -> Result<(), Unfit> {
    // The working directory itself may be an output that is a directory.
    let is_itself = is_directory && path.is_empty();
    let is_plain = !path.split('/').any(|part| matches!(part, "" | "." | ".."));
    if (is_itself || is_plain) && !path.contains('\0') {
        return Ok(());
    }
    Err(Unfit::Path(path.to_owned()))
}

/// As [`check`], of a decoded result.
pub(crate) fn check_decoded(function: Function, result: &re::ActionResult) -> Result<(), Unfit> {
    check(function, &prost::Message::encode_to_vec(result))
}

/// Whether the entries of a directory have names and digests.
pub(crate) fn is_directory(function: Function, directory: &re::Directory) -> bool {
    let name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains(['/', '\0']);
    let digest = |wire| Digest::required(function, wire).is_ok();
    directory.files.iter().all(|file| name(&file.name) && digest(file.digest.as_ref()))
        && directory.directories.iter().all(|one| name(&one.name) && digest(one.digest.as_ref()))
        && directory.symlinks.iter().all(|link| name(&link.name))
}

/// A `Tree` whose directories are left as they came: their digests are of those bytes.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Tree {
    /// One at most. Libraries would merge several.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    roots: Vec<Bytes>,
    /// All directories below the root, each once.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    children: Vec<Bytes>,
}

impl Tree {
    /// Its directories, if each is one, and each that is named is there.
    pub(crate) fn directories(&self, function: Function) -> Option<Vec<re::Directory>> {
        if self.roots.len() > 1 {
            return None;
        }
        let parts = || self.roots.iter().chain(&self.children);
        let all: Result<Vec<_>, _> = parts().map(|one| re::Directory::decode(&**one)).collect();
        let all = all.ok().filter(|all| all.iter().all(|one| is_directory(function, one)))?;
        let named = || all.iter().flat_map(|one| &one.directories);
        // Most trees have one directory, and nothing to hash.
        let there: HashSet<Digest> = match named().next() {
            None => HashSet::new(),
            Some(_) => self.children.iter().map(|one| function.digest(one)).collect(),
        };
        let found = |digest: Digest| digest.is_empty() || there.contains(&digest);
        let mut digests = named().map(|one| Digest::required(function, one.digest.as_ref()));
        digests.all(|digest| digest.is_ok_and(found)).then_some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(result: &re::ActionResult) -> Result<(), Unfit> {
        check(Function::Sha256, &result.encode_to_vec())
    }

    fn file(path: &str) -> re::ActionResult {
        let digest = Some(Function::Sha256.digest(b"x").to_wire());
        let file = re::OutputFile { path: path.to_owned(), digest, ..Default::default() };
        re::ActionResult { output_files: vec![file], ..Default::default() }
    }

    fn directory(path: &str, tree: bool) -> re::ActionResult {
        let digest = Some(Function::Sha256.digest(b"x").to_wire());
        let (tree_digest, root_directory_digest) =
            if tree { (digest, None) } else { (None, digest) };
        let path = path.to_owned();
        let one =
            re::OutputDirectory { path, tree_digest, root_directory_digest, ..Default::default() };
        re::ActionResult { output_directories: vec![one], ..Default::default() }
    }

    fn link(path: &str) -> [re::ActionResult; 3] {
        let link = || {
            let (path, target) = (path.to_owned(), "a".to_owned());
            vec![re::OutputSymlink { path, target, ..Default::default() }]
        };
        #[expect(deprecated, reason = "clients of the older form still send it")]
        let older = [
            re::ActionResult { output_file_symlinks: link(), ..Default::default() },
            re::ActionResult { output_directory_symlinks: link(), ..Default::default() },
        ];
        let [first, second] = older;
        [first, second, re::ActionResult { output_symlinks: link(), ..Default::default() }]
    }

    #[test]
    fn outputs_have_paths_within_the_working_directory() {
        for good in ["a", "a/b.o", "a..b/..c", "..."] {
            assert_eq!(judged(&file(good)), Ok(()), "{good}");
            assert_eq!(judged(&directory(good, true)), Ok(()), "{good}");
            assert!(link(good).iter().all(|result| judged(result).is_ok()), "{good}");
        }
        for bad in [
            "/",
            "/etc/passwd",
            "..",
            "../x",
            "a/../../x",
            "a/..",
            "a\0b",
            ".",
            "./a",
            "a/./b",
            "a//b",
            "a/",
            "a/.",
        ] {
            let refused = Err(Unfit::Path(bad.to_owned()));
            assert_eq!(judged(&file(bad)), refused);
            assert_eq!(judged(&directory(bad, true)), refused);
            assert_eq!(judged(&directory(bad, false)), refused);
            assert!(link(bad).iter().all(|result| judged(result) == refused), "{bad}");
        }
        assert_eq!(judged(&directory("", false)), Ok(()), "the working directory");
        let refused = Err(Unfit::Path(String::new()));
        assert_eq!(judged(&file("")), refused);
        assert!(link("").iter().all(|result| judged(result) == refused));
    }

    /// Text is refused. Bytes that parse as a message of unknown fields are not, as in any protobuf library.
    #[test]
    fn text_is_no_result() {
        for text in
            [&b"hello\n"[..], b"{}", b"8888", b"<html>", b"\xff\xff", b"J\x02ok", b" \x00 \x00H"]
        {
            assert_eq!(check(Function::Sha256, text), Err(Unfit::Malformed), "{text:?}");
        }
        assert_eq!(check(Function::Sha256, b""), Ok(()), "all its fields are as usual");
    }

    #[test]
    fn contents_in_a_result_are_those_that_its_digests_name() {
        let digest = || Some(Function::Sha256.digest(b"x").to_wire());
        let (as_out, as_err) = (
            |bytes: &[u8]| re::ActionResult {
                stdout_raw: bytes.to_vec(),
                stdout_digest: digest(),
                ..Default::default()
            },
            |bytes: &[u8]| re::ActionResult {
                stderr_raw: bytes.to_vec(),
                stderr_digest: digest(),
                ..Default::default()
            },
        );
        let as_file = |bytes: &[u8]| {
            let mut result = file("a");
            result.output_files[0].contents = bytes.to_vec();
            result
        };
        for good in [b"x".as_slice(), b""] {
            assert_eq!(judged(&as_file(good)), Ok(()));
            assert_eq!(judged(&as_out(good)), Ok(()));
            assert_eq!(judged(&as_err(good)), Ok(()));
        }
        for bad in [b"y".as_slice(), b"xx"] {
            assert_eq!(judged(&as_file(bad)), Err(Unfit::Content("a".to_owned())));
            assert_eq!(judged(&as_out(bad)), Err(Unfit::Content(OUT.to_owned())));
            assert_eq!(judged(&as_err(bad)), Err(Unfit::Content(ERR.to_owned())));
        }
        let without = re::ActionResult { stdout_raw: b"y".to_vec(), ..Default::default() };
        assert_eq!(judged(&without), Ok(()), "no digest names it");
    }

    #[test]
    fn links_have_targets_and_each_output_its_own_path() {
        for target in ["", "a\0b"] {
            let mut results = link("l");
            for result in &mut results {
                #[expect(deprecated, reason = "clients of the older form still send it")]
                let links = result
                    .output_file_symlinks
                    .iter_mut()
                    .chain(&mut result.output_directory_symlinks)
                    .chain(&mut result.output_symlinks);
                links.for_each(|link| target.clone_into(&mut link.target));
                assert_eq!(judged(result), Err(Unfit::Link("l".to_owned())), "{target:?}");
            }
        }
        let joined = |first: &re::ActionResult, second: &re::ActionResult| {
            check(Function::Sha256, &[first.encode_to_vec(), second.encode_to_vec()].concat())
        };
        let twice = |path: &str| Err(Unfit::Twice(path.to_owned()));
        let [as_file, as_directory, newer] = link("a");
        for (first, second) in [
            (&file("a"), &file("a")),
            (&file("a"), &directory("a", true)),
            (&directory("a", true), &newer),
            (&file("a"), &as_file),
            (&as_directory, &as_file),
            (&newer, &newer),
        ] {
            assert!(joined(first, second).is_err(), "{first:?} {second:?}");
        }
        assert_eq!(joined(&file("a"), &file("a")), twice("a"));
        assert_eq!(joined(&as_file, &newer), Ok(()), "one link in both forms");
        assert_eq!(joined(&file("a"), &file("a/b")), Ok(()));
    }

    /// Fields that are unknown here, in forms that libraries of the protocol skip, hide no output behind them.
    #[test]
    fn outputs_are_checked_behind_whatever_a_client_skips() {
        let bad = file("../x").encode_to_vec();
        let group = [&[0xa3, 0x06, 0xab, 0x06, 0x08, 1, 0xac, 0x06, 0xa4, 0x06], &bad[..]].concat();
        let long_tag = [&[0xa0, 0x86, 0x80, 0x80, 0x80, 0x80, 0x01, 1], &bad[..]].concat();
        for hidden in [group, long_tag] {
            assert_eq!(check(Function::Sha256, &hidden), Err(Unfit::Path("../x".to_owned())));
        }
    }

    #[test]
    fn outputs_have_digests_and_actions_succeeded() {
        let mut without = file("a");
        without.output_files[0].digest = None;
        assert!(matches!(judged(&without), Err(Unfit::Digest { path, .. }) if path == "a"));
        let mut wrong = file("a");
        wrong.output_files[0].digest = Some(re::Digest { hash: "abc".into(), size_bytes: 1 });
        assert!(matches!(judged(&wrong), Err(Unfit::Digest { .. })));
        let mut without = directory("d", true);
        without.output_directories[0].tree_digest = None;
        assert!(matches!(judged(&without), Err(Unfit::Digest { .. })));
        assert_eq!(judged(&re::ActionResult { exit_code: 1, ..file("a") }), Err(Unfit::Failed));
        assert_eq!(check(Function::Sha256, b"\xff\xff"), Err(Unfit::Malformed));
        assert_eq!(judged(&re::ActionResult::default()), Ok(()));
    }

    #[test]
    fn entries_of_directories_have_names_and_digests() {
        let digest = Some(Function::Sha256.digest(b"x").to_wire());
        let node = |name: &str, digest: Option<re::Digest>| re::Directory {
            files: vec![re::FileNode { name: name.to_owned(), digest, ..Default::default() }],
            ..Default::default()
        };
        assert!(is_directory(Function::Sha256, &node("a", digest.clone())));
        assert!(!is_directory(Function::Sha256, &node("a", None)));
        for bad in ["", ".", "..", "a/b", "/a", "a\0"] {
            assert!(!is_directory(Function::Sha256, &node(bad, digest.clone())), "{bad:?}");
        }
    }

    #[test]
    fn trees_have_every_directory_that_they_name() {
        let function = Function::Sha256;
        let holder = |name: &str, of: &[u8]| {
            let digest = Some(function.digest(of).to_wire());
            let directories = vec![re::DirectoryNode { name: name.to_owned(), digest }];
            Bytes::from(re::Directory { directories, ..Default::default() }.encode_to_vec())
        };
        let leaf = re::Directory {
            symlinks: vec![re::SymlinkNode {
                name: "l".into(),
                target: "t".into(),
                ..Default::default()
            }],
            ..Default::default()
        };
        // A field that is unknown here counts for the digest.
        let leaf = Bytes::from([leaf.encode_to_vec(), vec![0xa0, 0x06, 1]].concat());
        let middle = holder("leaf", &leaf);
        let root = holder("middle", &middle);
        let judged = |roots: &[&Bytes], children: &[&Bytes]| {
            let owned = |list: &[&Bytes]| list.iter().copied().cloned().collect();
            let tree = Tree { roots: owned(roots), children: owned(children) };
            tree.directories(function).map(|all| all.len())
        };
        assert_eq!(judged(&[&root], &[&leaf, &middle]), Some(3));
        assert_eq!(judged(&[&leaf], &[]), Some(1));
        assert_eq!(judged(&[], &[]), Some(0));
        assert_eq!(judged(&[&holder("empty", b"")], &[]), Some(1), "an empty one is known");
        assert_eq!(judged(&[&root], &[&middle]), None, "the last is missing");
        assert_eq!(judged(&[&root], &[&leaf]), None, "the middle one is missing");
        assert_eq!(judged(&[&root], &[]), None);
        assert_eq!(judged(&[&holder("..", &leaf)], &[&leaf]), None);
        assert_eq!(judged(&[&leaf], &[&holder("..", &leaf)]), None);
        assert_eq!(judged(&[&holder("..", &leaf), &leaf], &[&leaf]), None, "two roots");
        assert_eq!(judged(&[&Bytes::from_static(b"\xff")], &[]), None);
    }
}
