//! For `fuzz/`: what servers answer, without a connection around it, what Bazel prints, and files of requests.

use std::path::Path;

use prost_reflect::prost::Message as _;
use prost_reflect::prost_types::FileDescriptorSet;
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor};
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

use crate::calls::descriptor::{described, find};
use crate::calls::write_message;
use crate::driver::{ErrorKind, Progress, Reply};
use crate::grpc::PREFIX_BYTES;
use crate::memcached::Command;
use crate::sequence::{self, SequencePlan};
use crate::{http, memcached, postgres, redis};

/// Pieces that a reply comes in: as it was, byte by byte, and in between.
const PIECES: [usize; 3] = [usize::MAX, 1, 7];

/// An HTTP reply; the first byte says whether it is one to HEAD.
///
/// # Panics
/// When what is found in it depends on the pieces in which it came.
pub fn http_reply(bytes: &[u8]) {
    let Some((kind, input)) = bytes.split_first() else { return };
    same(input, || {
        let mut reader = http::reply::ReplyReader::new(kind % 2 == 1, true);
        move |input: &[u8]| reader.read(input)
    });
}

/// A memcached reply; the first two bytes say to which command, of how many keys.
///
/// # Panics
/// When what is found in it depends on the pieces in which it came.
pub fn memcached_reply(bytes: &[u8]) {
    let [kind, keys, input @ ..] = bytes else { return };
    let command = Command::ALL[usize::from(*kind) % Command::ALL.len()];
    let keys = if command == Command::MultiGet { usize::from(keys % 8) + 1 } else { 1 };
    same(input, || {
        let mut reader = memcached::reply::ReplyReader::new(command, keys);
        move |input: &[u8]| reader.read(input, None)
    });
}

/// Redis replies; the first byte says to how many commands.
///
/// # Panics
/// When what is found in them depends on the pieces in which they came.
pub fn redis_reply(bytes: &[u8]) {
    let Some((commands, input)) = bytes.split_first() else { return };
    same(input, || redis::fuzzing::reader(*commands));
}

/// What Bazel prints, or its profile.
///
/// # Panics
/// When the seconds of the build do not have each of its tasks once.
pub fn bazel(bytes: &[u8]) {
    crate::bazel::fuzzing::printed(bytes);
}

/// A file of sequences, which names no other file.
///
/// # Panics
/// When it is refused without a word.
pub fn sequence(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(table) = text.parse::<toml::Table>() else { return };
    let names_a_file = |value: &toml::Value| value.to_string().contains("file:");
    if table.contains_key("data") || table.get("vary").is_some_and(names_a_file) {
        return;
    }
    match SequencePlan::parse(text, Path::new("sequence.toml"), Vec::new()) {
        Ok(plan) => sequence::fuzzing::plan(&plan),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A script of transactions.
///
/// # Panics
/// When it is refused without a word, or does not come to its end.
pub fn postgres_script(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        postgres::fuzzing::script(text);
    }
}

/// A reply to a request of a sequence: a line with what is taken from it, one with a cookie, and the body.
///
/// # Panics
/// When nothing is taken without a word.
pub fn sequence_reply(bytes: &[u8]) {
    let mut lines = bytes.splitn(3, |byte| *byte == b'\n');
    if let (Some(from), Some(cookie), Some(body)) = (lines.next(), lines.next(), lines.next()) {
        sequence::fuzzing::reply(from, cookie, body);
    }
}

/// What the messages of [`grpc_message`] look like: each kind of field.
const PROTO: &str = r#"
    syntax = "proto3"; package a;
    import "google/protobuf/any.proto"; import "google/protobuf/duration.proto";
    import "google/protobuf/field_mask.proto"; import "google/protobuf/struct.proto";
    import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
    enum Kind { NONE = 0; SOME = 7; }
    message M {
        string text = 1; bytes raw = 2; repeated M more = 3; map<string, M> by_name = 4; map<int64, Kind> kinds = 5;
        oneof one { int64 a = 6; double b = 7; Kind kind = 8; } fixed32 c = 9; sint64 d = 10; float e = 11;
        optional bool f = 12; google.protobuf.Any any = 13; google.protobuf.Duration time = 14;
        google.protobuf.FieldMask mask = 15; google.protobuf.Struct more_text = 16;
        google.protobuf.Timestamp at = 17; google.protobuf.UInt64Value g = 18; repeated double h = 19;
    }
    service S { rpc Call(M) returns (M); }
"#;

/// One file that is there, as it came.
struct Only(String);

impl FileResolver for Only {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        let missing = || protox::Error::file_not_found(name);
        if name == "a.proto" { File::from_source(name, &self.0) } else { Err(missing()) }
    }
}

fn compiled(text: &str) -> Result<DescriptorPool, protox::Error> {
    let mut files = ChainFileResolver::new();
    files.add(Only(text.to_owned()));
    files.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(files);
    compiler.include_imports(true).open_file("a.proto")?;
    Ok(compiler.descriptor_pool())
}

/// A `.proto` file.
///
/// # Panics
/// When a message of its first method is none.
pub fn grpc_proto(bytes: &[u8]) {
    if let Ok(pool) = compiled(&String::from_utf8_lossy(bytes))
        && let Some(method) = method(&pool)
    {
        message(&method, b"{}");
    }
}

/// Files as a service describes itself by them.
///
/// # Panics
/// When a message of their first method is none.
pub fn grpc_description(bytes: &[u8]) {
    let Ok(set) = FileDescriptorSet::decode(bytes) else { return };
    if let Ok(pool) = described(set.file)
        && let Some(method) = method(&pool)
    {
        message(&method, b"{}");
    }
}

/// A message as JSON.
///
/// # Panics
/// When what is made of it is no message of its type.
pub fn grpc_message(bytes: &[u8]) {
    thread_local! {
        static POOL: DescriptorPool = compiled(PROTO).expect("a file without mistakes");
    }
    let method = POOL.with(method).expect("it has a method");
    message(&method, bytes);
}

/// The first method of a description, found by its name.
fn method(pool: &DescriptorPool) -> Option<MethodDescriptor> {
    let method = pool.services().find_map(|service| service.methods().next())?;
    let call = format!("{}/{}", method.parent_service().full_name(), method.name());
    find(pool, &call).ok()
}

/// What is made of JSON is a message of the type.
fn message(method: &MethodDescriptor, json: &[u8]) {
    let mut body = Vec::new();
    if write_message(&method.input(), json, &mut body).is_ok() {
        let made = DynamicMessage::decode(method.input(), &body[PREFIX_BYTES..]);
        assert!(made.is_ok(), "{}: {made:?}", String::from_utf8_lossy(json));
    }
}

fn same<R: FnMut(&[u8]) -> Progress>(input: &[u8], reader: impl Fn() -> R) {
    let found = PIECES.map(|piece| in_pieces(input, piece, reader()));
    assert!(found.iter().all(|one| *one == found[0]), "in pieces of {PIECES:?}: {found:?}");
}

/// Bytes of the reply, and what it says, as the engine would read it.
fn in_pieces(
    input: &[u8],
    piece: usize,
    mut read: impl FnMut(&[u8]) -> Progress,
) -> Option<(usize, Reply)> {
    let (mut begin, mut end) = (0, 0);
    while end < input.len() {
        end = end.saturating_add(piece).min(input.len());
        let Progress { consumed, reply } = read(&input[begin..end]);
        assert!(consumed <= end - begin, "{consumed} bytes of {}", end - begin);
        begin += consumed;
        if let Some(reply) = reply {
            // What is not a reply ends the connection, so it does not matter how much of it was read.
            let garbage = reply.error == Some(ErrorKind::Garbage);
            return Some((if garbage { 0 } else { begin }, reply));
        }
    }
    None
}
