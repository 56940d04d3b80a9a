//! The cache as its clients see it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small sizes")]

use crate::support::{block_on, client, content, options, padded, start};
use kendall_build_cluster::cache::{Cache, CacheOptions};
use kendall_build_cluster::digest::{Digest, Function};
use kendall_build_cluster::listen::{LINE, Tokens};
use kendall_build_cluster::remote::{Remote, RemoteError};
use kendall_build_cluster::wire::asset::fetch_client::FetchClient;
use kendall_build_cluster::wire::asset::push_client::PushClient;
use kendall_build_cluster::wire::asset::{FetchBlobRequest, PushBlobRequest, Qualifier};
use kendall_build_cluster::wire::bytestream::{QueryWriteStatusRequest, WriteRequest};
use kendall_build_cluster::wire::re;
use kendall_build_cluster::wire::re::capabilities_client::CapabilitiesClient;
use kendall_tier::Clock;
use prost::Message as _;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// The cache as a scheduler sees it.
fn remote(address: std::net::SocketAddr) -> Remote {
    Remote::new(address, std::time::Duration::from_secs(10), Clock::monotonic())
}

#[test]
fn blobs_put_in_batches_are_found_and_read_with_both_functions() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    block_on(async {
        let mut client = client(cache.address()).await;
        for function in Function::ALL {
            let blobs: Vec<Vec<u8>> =
                [0, 1, 1000, 70_000, 700_000].map(|n| content(n, n as usize)).to_vec();
            let mut digests: Vec<Digest> = blobs.iter().map(|b| function.digest(b)).collect();
            let absent = function.digest(b"nobody put this");
            let before = client.missing(&digests).await;
            assert_eq!(before.len(), 4, "all but the empty one");
            assert_eq!(client.put(function, &blobs).await, [0; 5]);
            digests.push(absent);
            assert_eq!(client.missing(&digests).await, [absent.to_wire()]);
            let read = client.get(&digests).await;
            for (read, blob) in read.iter().zip(&blobs) {
                assert!(read.as_ref() == Ok(blob));
            }
            assert_eq!(read[5], Err(Code::NotFound as i32));
            let longer = Digest { size: digests[2].size + 1, ..digests[2] };
            assert_eq!(client.missing(&[longer]).await.len(), 1, "another size, another blob");
        }
    });
    cache.stop();
}

/// The digest of a command, and the action that names it.
fn action_of(function: Function, command: &[u8]) -> (Digest, Vec<u8>) {
    let digest = function.digest(command);
    let command_digest = Some(digest.to_wire());
    (digest, re::Action { command_digest, ..Default::default() }.encode_to_vec())
}

/// A scheduler asks once for an action and its command. A cache of another kind does not know how.
#[test]
fn an_action_is_read_with_its_command() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    block_on(async {
        let mut client = client(cache.address()).await;
        let remote = remote(cache.address());
        for function in Function::ALL {
            let command = content(3, 5000);
            let (named, action) = action_of(function, &command);
            let digest = function.digest(&action);
            let missing = remote.read_action("", digest).await;
            assert!(matches!(missing, Err(RemoteError::Missing(all)) if all == [digest]));
            client.put(function, std::slice::from_ref(&action)).await;
            // A result that is in the cache needs the action alone.
            let read = remote.read_action("", digest).await.unwrap();
            assert_eq!((read.len(), &read[&digest]), (1, &action));
            client.put(function, std::slice::from_ref(&command)).await;
            let read = remote.read_action("", digest).await.unwrap();
            assert_eq!((read.len(), &read[&digest], &read[&named]), (2, &action, &command));
            // What is no action comes alone, and so does one with a command that is read in pieces.
            let (_, large) = action_of(function, &vec![0; 2 << 20]);
            for alone in [b"\xff\xff no message".to_vec(), large] {
                client.put(function, std::slice::from_ref(&alone)).await;
                let read = remote.read_action("", function.digest(&alone)).await.unwrap();
                assert_eq!(read.into_values().collect::<Vec<_>>(), [alone]);
            }
        }
    });
    cache.stop();
}

/// A scheduler asks once for all that decides about an action.
#[test]
fn an_action_is_looked_up_with_its_result_or_else_its_command() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    block_on(async {
        let mut client = client(cache.address()).await;
        let remote = remote(cache.address());
        for function in Function::ALL {
            let command = content(3, 5000);
            let (named, action) = action_of(function, &command);
            let digest = function.digest(&action);
            let missing = remote.look_up("", digest).await;
            assert!(matches!(missing, Err(RemoteError::Missing(all)) if all == [digest]));
            client.put(function, &[action.clone(), command.clone()]).await;
            let known = remote.look_up("", digest).await.unwrap().unwrap();
            assert_eq!(known.result, None);
            assert_eq!((known.blobs.len(), &known.blobs[&named]), (2, &command));
            // A result is served while what it names is there, its logs within it; the command is not needed then.
            let log = content(4, 300);
            let stdout_digest = Some(function.digest(&log).to_wire());
            let result = re::ActionResult { stdout_digest, ..Default::default() };
            client.keep("", &digest, result.clone()).await.unwrap();
            let known = remote.look_up("", digest).await.unwrap().unwrap();
            assert_eq!((known.result, known.blobs.len()), (None, 2), "its log is not there");
            client.put(function, std::slice::from_ref(&log)).await;
            let known = remote.look_up("", digest).await.unwrap().unwrap();
            assert_eq!(known.result, Some(re::ActionResult { stdout_raw: log, ..result }));
            assert_eq!((known.blobs.len(), &known.blobs[&digest]), (1, &action));
            // A result of nothing is one, too.
            client.keep("", &digest, re::ActionResult::default()).await.unwrap();
            let known = remote.look_up("", digest).await.unwrap().unwrap();
            assert_eq!(known.result, Some(re::ActionResult::default()));
        }
    });
    cache.stop();
}

#[test]
fn byte_streams_carry_any_part_of_a_blob_both_ways() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    block_on(async {
        let mut client = client(cache.address()).await;
        for (function, length) in
            [(Function::Sha256, 0), (Function::Sha256, 5), (Function::Blake3, 3_000_000)]
        {
            let blob = content(9, length);
            let digest = function.digest(&blob);
            let name = digest.resource();
            let upload = format!("uploads/{length}/{name}");
            let step = 100_000;
            assert_eq!(client.write(&upload, &blob, step).await.unwrap() as usize, length);
            assert!(client.read(&name, 0, 0).await.unwrap() == blob);
            assert!(client.missing(&[digest]).await.is_empty());
        }
        let blob = content(9, 3_000_000);
        let name = Function::Blake3.digest(&blob).resource();
        for (offset, limit) in [
            (0, 1),
            (1, 0),
            (65_535, 2),
            (65_536, 65_536),
            (2_999_999, 5),
            (3_000_000, 0),
            (7, 1_000_000),
        ] {
            let read = client.read(&name, offset, limit).await.unwrap();
            let from = &blob[offset as usize..];
            let expected = if limit == 0 { from } else { &from[..from.len().min(limit as usize)] };
            assert!(read == expected, "{offset} {limit}: {} bytes", read.len());
        }
        let code = |read: Result<Vec<u8>, tonic::Status>| read.unwrap_err().code();
        assert_eq!(code(client.read(&name, 3_000_001, 0).await), Code::OutOfRange);
        assert_eq!(code(client.read(&name, -1, 0).await), Code::OutOfRange);
        assert_eq!(code(client.read(&name, 0, -1).await), Code::InvalidArgument);
        let absent = Function::Sha256.digest(b"absent").resource();
        assert_eq!(code(client.read(&absent, 0, 0).await), Code::NotFound);
    });
    cache.stop();
}

#[test]
fn compressed_content_comes_back_in_either_form_whole_and_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    block_on(async {
        let mut client = client(cache.address()).await;
        for (seed, length) in [(1, 4000), (2, 5_000_000)] {
            for stored_packed in [true, false] {
                let blob = content(seed + u32::from(stored_packed) * 10, length);
                let digest = Function::Sha256.digest(&blob);
                let plain = digest.resource();
                let packed = plain.replace("blobs/", "compressed-blobs/zstd/");
                let sent = zstd::encode_all(&*blob, 3).unwrap();
                if stored_packed {
                    let upload = format!("uploads/1/{packed}");
                    let committed = client.write(&upload, &sent, 50_000).await.unwrap();
                    assert_eq!(committed as usize, sent.len());
                } else {
                    client.write(&format!("uploads/1/{plain}"), &blob, 50_000).await.unwrap();
                }
                assert!(client.read(&plain, 0, 0).await.unwrap() == blob);
                assert!(client.read(&plain, 1000, 2000).await.unwrap() == blob[1000..3000]);
                let read = client.read(&packed, 0, 0).await.unwrap();
                assert!(read.len() < length);
                assert!(zstd::decode_all(&*read).unwrap() == blob);
                let part = client.read(&packed, 3000, 0).await.unwrap();
                assert!(zstd::decode_all(&*part).unwrap() == blob[3000..]);
            }
        }
        // The same in batches.
        let blob = content(77, 3000);
        let digest = Function::Sha256.digest(&blob);
        let request = re::BatchUpdateBlobsRequest {
            requests: vec![re::batch_update_blobs_request::Request {
                digest: Some(digest.to_wire()),
                data: zstd::encode_all(&*blob, 3).unwrap(),
                compressor: 1,
            }],
            ..Default::default()
        };
        let answer = client.cas.batch_update_blobs(request).await.unwrap().into_inner();
        assert_eq!(answer.responses[0].status.as_ref().unwrap().code, 0);
        assert!(client.get(&[digest]).await[0].as_ref() == Ok(&blob));
        let request = re::BatchReadBlobsRequest {
            digests: vec![digest.to_wire()],
            acceptable_compressors: vec![0, 1],
            ..Default::default()
        };
        let answer = client.cas.batch_read_blobs(request).await.unwrap().into_inner();
        assert_eq!(answer.responses[0].compressor, 1);
        assert!(zstd::decode_all(&*answer.responses[0].data).unwrap() == blob);
    });
    cache.stop();
}

#[test]
fn an_upload_that_broke_off_is_resumed_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    block_on(async {
        let mut client = client(cache.address()).await;
        let blob = content(5, 2_000_000);
        let name = format!("uploads/x/{}", Function::Sha256.digest(&blob).resource());
        let message = |from: usize, to: usize, finish_write| WriteRequest {
            resource_name: name.clone(),
            write_offset: i64::try_from(from).unwrap(),
            finish_write,
            data: blob[from..to].to_vec(),
        };
        let query = || QueryWriteStatusRequest { resource_name: name.clone() };
        let status = client.bytes.query_write_status(query()).await.unwrap().into_inner();
        assert_eq!((status.committed_size, status.complete), (0, false));
        let first =
            tokio_stream::iter([message(0, 300_000, false), message(300_000, 900_000, false)]);
        let committed = client.bytes.write(first).await.unwrap().into_inner().committed_size;
        assert_eq!(committed, 900_000);
        let status = client.bytes.query_write_status(query()).await.unwrap().into_inner();
        assert_eq!((status.committed_size, status.complete), (900_000, false));
        let wrong = tokio_stream::iter([message(800_000, 2_000_000, true)]);
        let refused = client.bytes.write(wrong).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        let rest = tokio_stream::iter([message(900_000, 2_000_000, true)]);
        let committed = client.bytes.write(rest).await.unwrap().into_inner().committed_size;
        assert_eq!(committed, 2_000_000);
        let status = client.bytes.query_write_status(query()).await.unwrap().into_inner();
        assert_eq!((status.committed_size, status.complete), (2_000_000, true));
        let read = client.read(&Function::Sha256.digest(&blob).resource(), 0, 0).await.unwrap();
        assert!(read == blob);
        // Who uploads it again is told at once that it is there.
        assert_eq!(client.write(&name, &blob, 100_000).await.unwrap(), 2_000_000);
    });
    cache.stop();
}

#[test]
fn content_that_is_not_what_was_announced_is_refused_and_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    block_on(async {
        let mut client = client(cache.address()).await;
        let blob = content(1, 1_000_000);
        let digest = Function::Sha256.digest(&blob);
        let other = content(2, 1_000_000);
        let name = format!("uploads/1/{}", digest.resource());
        let write = [&other[..], &blob[..999_999], &[&blob[..], b"x"].concat()];
        for wrong in write {
            let refused = client.write(&name, wrong, 64_000).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);
        }
        let one = |data: Vec<u8>, digest: re::Digest, compressor| {
            re::batch_update_blobs_request::Request { digest: Some(digest), data, compressor }
        };
        let good = content(3, 100);
        let request = re::BatchUpdateBlobsRequest {
            requests: vec![
                one(other.clone(), digest.to_wire(), 0),
                one(blob[..100].to_vec(), digest.to_wire(), 0),
                one(zstd::encode_all(&*vec![0; 5_000_000], 19).unwrap(), digest.to_wire(), 1),
                one(b"no zstd".to_vec(), digest.to_wire(), 1),
                // A byte, and a hundred thousand that are no content.
                one(padded(b"x", 100_000), Function::Sha256.digest(b"x").to_wire(), 1),
                one(good.clone(), Function::Sha256.digest(&good).to_wire(), 0),
            ],
            ..Default::default()
        };
        let answer = client.cas.batch_update_blobs(request).await.unwrap().into_inner();
        let codes: Vec<i32> =
            answer.responses.iter().map(|one| one.status.as_ref().map_or(0, |s| s.code)).collect();
        assert_eq!(codes, [3, 3, 3, 3, 3, 0], "one by one");
        assert_eq!(client.missing(&[digest]).await.len(), 1);
        let bad = re::Digest { hash: "ABC".to_owned(), size_bytes: 3 };
        let request = re::FindMissingBlobsRequest { blob_digests: vec![bad], ..Default::default() };
        let refused = client.cas.find_missing_blobs(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
    });
    cache.stop();
}

/// A blob that is read whole may be larger than a batch, such as a tree; of two it is a batch.
#[test]
fn a_large_blob_is_read_alone() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    block_on(async {
        let mut client = client(cache.address()).await;
        let blob = content(1, 5 << 20);
        let digest = Function::Sha256.digest(&blob);
        client.write(&format!("uploads/1/{}", digest.resource()), &blob, 1 << 20).await.unwrap();
        assert!(client.get(&[digest]).await[0].as_ref() == Ok(&blob));
        let request =
            re::BatchReadBlobsRequest { digests: vec![digest.to_wire(); 2], ..Default::default() };
        let refused = client.cas.batch_read_blobs(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
    });
    cache.stop();
}

fn output(path: &str, blob: &[u8]) -> re::OutputFile {
    let digest = Some(Function::Sha256.digest(blob).to_wire());
    re::OutputFile { path: path.to_owned(), digest, ..Default::default() }
}

#[test]
fn a_result_is_served_only_while_all_that_it_names_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    block_on(async {
        let mut client = client(cache.address()).await;
        let [file, out, deep] = [content(1, 5000), content(2, 10), content(3, 700)];
        let directory = re::Directory {
            files: vec![re::FileNode {
                name: "deep".to_owned(),
                digest: Some(Function::Sha256.digest(&deep).to_wire()),
                ..Default::default()
            }],
            ..Default::default()
        };
        let tree = re::Tree { root: Some(directory), children: vec![] }.encode_to_vec();
        let result = re::ActionResult {
            output_files: vec![output("a/b.o", &file)],
            output_directories: vec![re::OutputDirectory {
                path: "d".to_owned(),
                tree_digest: Some(Function::Sha256.digest(&tree).to_wire()),
                ..Default::default()
            }],
            stdout_digest: Some(Function::Sha256.digest(&out).to_wire()),
            ..Default::default()
        };
        let action = Function::Sha256.digest(b"an action");
        assert_eq!(client.result("", &action).await, Err(Code::NotFound));
        client.keep("", &action, result.clone()).await.unwrap();
        // One after the other: while one is missing, it is a miss.
        for blob in [&file, &tree, &out, &deep] {
            assert_eq!(client.result("", &action).await, Err(Code::NotFound));
            client.put(Function::Sha256, std::slice::from_ref(blob)).await;
        }
        assert_eq!(client.result("", &action).await, Ok(result.clone()));
        assert_eq!(client.result("other", &action).await, Err(Code::NotFound), "another instance");
        let failed = re::ActionResult { exit_code: 1, ..result.clone() };
        let refused = client.keep("", &action, failed).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        let request = re::GetActionResultRequest {
            action_digest: Some(action.to_wire()),
            inline_stdout: true,
            inline_output_files: vec!["a/b.o".to_owned()],
            ..Default::default()
        };
        let inlined = client.results.get_action_result(request).await.unwrap().into_inner();
        assert!(inlined.stdout_raw == out && inlined.output_files[0].contents == file);
    });
    cache.stop();
}

/// The newer form of an output that is a directory: it and all below it are blobs of their own.
#[test]
fn a_directory_of_a_result_is_there_with_all_below_it() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    block_on(async {
        let mut client = client(cache.address()).await;
        let deep = content(3, 700);
        let file = re::FileNode {
            name: "deep".to_owned(),
            digest: Some(Function::Sha256.digest(&deep).to_wire()),
            ..Default::default()
        };
        let child = re::Directory { files: vec![file], ..Default::default() }.encode_to_vec();
        let node = |name: &str| re::DirectoryNode {
            name: name.to_owned(),
            digest: Some(Function::Sha256.digest(&child).to_wire()),
        };
        let directories = vec![node("a"), node("b")];
        let root = re::Directory { directories, ..Default::default() }.encode_to_vec();
        let directory = |path: &str| re::OutputDirectory {
            path: path.to_owned(),
            root_directory_digest: Some(Function::Sha256.digest(&root).to_wire()),
            ..Default::default()
        };
        let output_directories = vec![directory("d"), directory("e")];
        let result = re::ActionResult { output_directories, ..Default::default() };
        let action = Function::Sha256.digest(b"an action");
        client.keep("", &action, result.clone()).await.unwrap();
        for blob in [&root, &child, &deep] {
            assert_eq!(client.result("", &action).await, Err(Code::NotFound));
            client.put(Function::Sha256, std::slice::from_ref(blob)).await;
        }
        assert_eq!(client.result("", &action).await, Ok(result));
    });
    cache.stop();
}

/// Each look at this tree takes milliseconds: five thousand of them, half a minute of the thread that serves
/// others as well.
#[test]
fn a_tree_that_a_result_names_many_times_is_looked_through_once() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    block_on(async {
        let mut client = client(cache.address()).await;
        let files = (0..5_000)
            .map(|number| re::FileNode {
                name: format!("f{number}"),
                digest: Some(Function::Sha256.digest(b"").to_wire()),
                ..Default::default()
            })
            .collect();
        let directory = re::Directory { files, ..Default::default() };
        let tree = re::Tree { root: Some(directory), children: vec![] }.encode_to_vec();
        client.put(Function::Sha256, std::slice::from_ref(&tree)).await;
        let clock = Clock::monotonic();
        let mut quickest = Vec::new();
        for names in [1, 5_000_usize] {
            let directory = |number: usize| re::OutputDirectory {
                path: format!("d{number}"),
                tree_digest: Some(Function::Sha256.digest(&tree).to_wire()),
                ..Default::default()
            };
            let output_directories = (0..names).map(directory).collect();
            let result = re::ActionResult { output_directories, ..Default::default() };
            let action = Function::Sha256.digest(&names.to_le_bytes());
            client.keep("", &action, result).await.unwrap();
            let mut least = u64::MAX;
            for _ in 0..3 {
                let before = clock.now_ns();
                client.result("", &action).await.unwrap();
                least = least.min(clock.now_ns() - before);
            }
            quickest.push(least);
        }
        // Reading five thousand names takes less than reading five thousand files: twice as long, then, and
        // thousands of times if the tree is looked through for each.
        assert!(quickest[1] < 100 * quickest[0], "{quickest:?} ns");
    });
    cache.stop();
}

#[test]
fn a_tree_is_told_in_pages_each_directory_once() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    block_on(async {
        let mut client = client(cache.address()).await;
        // Each directory holds the next one twice: without care a walk of 2^40 steps.
        let mut below: Option<re::Digest> = None;
        let mut root = Function::Sha256.digest(b"");
        for level in 0..40 {
            let child =
                |name: &str| re::DirectoryNode { name: name.to_owned(), digest: below.clone() };
            let directories = match below {
                Some(_) => vec![child("a"), child("b")],
                None => vec![],
            };
            let files = vec![re::FileNode {
                name: format!("level-{level}"),
                digest: Some(Function::Sha256.digest(b"x").to_wire()),
                ..Default::default()
            }];
            let bytes = re::Directory { files, directories, ..Default::default() }.encode_to_vec();
            root = Function::Sha256.digest(&bytes);
            below = Some(root.to_wire());
            client.put(Function::Sha256, &[bytes]).await;
        }
        let mut request = re::GetTreeRequest {
            root_digest: Some(root.to_wire()),
            page_size: 7,
            ..Default::default()
        };
        let mut names = Vec::new();
        loop {
            let mut stream = client.cas.get_tree(request.clone()).await.unwrap().into_inner();
            let (mut count, mut token) = (0, String::new());
            while let Some(part) = stream.message().await.unwrap() {
                count += part.directories.len();
                names.extend(part.directories.iter().map(|d| d.files[0].name.clone()));
                token = part.next_page_token;
            }
            assert!(count <= 7);
            if token.is_empty() {
                break;
            }
            request.page_token = token;
        }
        let expected: Vec<String> = (0..40).rev().map(|level| format!("level-{level}")).collect();
        assert_eq!(names, expected);
        let absent = re::GetTreeRequest {
            root_digest: Some(Function::Sha256.digest(b"absent").to_wire()),
            ..Default::default()
        };
        assert_eq!(client.cas.get_tree(absent).await.unwrap_err().code(), Code::NotFound);
    });
    cache.stop();
}

#[test]
fn assets_pushed_under_a_uri_are_fetched_by_it_with_the_same_qualifiers() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    block_on(async {
        let mut client = client(cache.address()).await;
        let mut push = PushClient::new(client.channel.clone());
        let mut fetch = FetchClient::new(client.channel.clone());
        let blob = content(1, 100);
        let digest = Function::Sha256.digest(&blob);
        let qualifier = |value: &str| Qualifier { name: "q".to_owned(), value: value.to_owned() };
        let request = PushBlobRequest {
            uris: vec!["urn:a".to_owned(), "urn:b".to_owned()],
            qualifiers: vec![qualifier("1")],
            blob_digest: Some(digest.to_wire()),
            ..Default::default()
        };
        let refused = push.push_blob(request.clone()).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "its blob must be there first");
        client.put(Function::Sha256, &[blob]).await;
        push.push_blob(request).await.unwrap();
        let ask = |uri: &str, value: &str| FetchBlobRequest {
            uris: vec!["urn:none".to_owned(), uri.to_owned()],
            qualifiers: vec![qualifier(value)],
            ..Default::default()
        };
        let fetched = fetch.fetch_blob(ask("urn:b", "1")).await.unwrap().into_inner();
        assert_eq!((fetched.uri.as_str(), fetched.blob_digest), ("urn:b", Some(digest.to_wire())));
        for (uri, value) in [("urn:c", "1"), ("urn:b", "2")] {
            let missed = fetch.fetch_blob(ask(uri, value)).await.unwrap_err();
            assert_eq!(missed.code(), Code::NotFound);
        }
    });
    cache.stop();
}

#[test]
fn capabilities_say_what_an_old_bazel_and_a_new_one_look_for() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    block_on(async {
        let client = client(cache.address()).await;
        let mut capabilities = CapabilitiesClient::new(client.channel);
        let request = re::GetCapabilitiesRequest::default();
        let said = capabilities.get_capabilities(request).await.unwrap().into_inner();
        let version =
            |v: Option<kendall_build_cluster::wire::semver::SemVer>| v.map(|v| (v.major, v.minor));
        assert_eq!(version(said.low_api_version), Some((2, 0)));
        assert_eq!(version(said.high_api_version), Some((2, 12)));
        let cache = said.cache_capabilities.unwrap();
        assert_eq!(cache.digest_functions, [1, 9]);
        assert!(cache.action_cache_update_capabilities.unwrap().update_enabled);
        assert!(said.execution_capabilities.is_none());
    });
    cache.stop();
}

#[test]
fn tokens_say_who_may_read_and_who_may_write_and_instances_are_apart() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    options.listen.tokens = Some(Tokens::parse("read people\nwrite ci", &LINE).unwrap().into());
    options.instances = [("a".to_owned(), 64 << 20), ("b".to_owned(), 64 << 20)].into();
    let cache = kendall_build_cluster::cache::Cache::start(&options, Clock::monotonic()).unwrap();
    block_on(async {
        let mut client = client(cache.address()).await;
        let blob = content(1, 100);
        let digest = Function::Sha256.digest(&blob);
        let asked = |token: &str, instance: &str| {
            let mut request = tonic::Request::new(re::FindMissingBlobsRequest {
                instance_name: instance.to_owned(),
                blob_digests: vec![digest.to_wire()],
                ..Default::default()
            });
            if !token.is_empty() {
                let value = format!("Bearer {token}").parse().unwrap();
                request.metadata_mut().insert("authorization", value);
            }
            request
        };
        let code = |answer: Result<_, tonic::Status>| answer.map(|_| ()).unwrap_err().code();
        for token in ["", "wrong"] {
            let answer = client.cas.find_missing_blobs(asked(token, "a")).await;
            assert_eq!(code(answer), Code::Unauthenticated);
        }
        client.cas.find_missing_blobs(asked("people", "a")).await.unwrap();
        let answer = client.cas.find_missing_blobs(asked("people", "c")).await;
        assert_eq!(code(answer), Code::NotFound, "there is no instance c");
        let put = |token: &str| {
            let mut request = tonic::Request::new(re::BatchUpdateBlobsRequest {
                instance_name: "a".to_owned(),
                requests: vec![re::batch_update_blobs_request::Request {
                    digest: Some(digest.to_wire()),
                    data: blob.clone(),
                    compressor: 0,
                }],
                ..Default::default()
            });
            let value = format!("Bearer {token}").parse().unwrap();
            request.metadata_mut().insert("authorization", value);
            request
        };
        let answer = client.cas.batch_update_blobs(put("people")).await;
        assert_eq!(answer.unwrap_err().code(), Code::PermissionDenied);
        client.cas.batch_update_blobs(put("ci")).await.unwrap();
        let left = |answer: tonic::Response<re::FindMissingBlobsResponse>| {
            answer.into_inner().missing_blob_digests.len()
        };
        assert_eq!(left(client.cas.find_missing_blobs(asked("people", "a")).await.unwrap()), 0);
        assert_eq!(left(client.cas.find_missing_blobs(asked("people", "b")).await.unwrap()), 1);
    });
    cache.stop();
}

/// Code and body of an answer over HTTP.
fn over_http(
    address: std::net::SocketAddr,
    method: &str,
    path: &str,
    body: &[u8],
) -> (u16, Vec<u8>) {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}");
    let mut answer = answer_bytes(address, &head, body);
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    let code = std::str::from_utf8(&answer[9..12]).unwrap().parse().unwrap();
    (code, answer.split_off(end))
}

#[test]
fn the_http_cache_serves_the_same_blobs_and_results() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    let http =
        |method: &str, path: &str, body: &[u8]| over_http(cache.address(), method, path, body);
    let blob = content(4, 900_000);
    let digest = Function::Sha256.digest(&blob);
    let path = format!("/cas/{}", digest.hash_text());
    assert_eq!(http("GET", &path, b"").0, 404);
    assert_eq!(http("PUT", &path, &content(5, 900_000)).0, 400, "other content");
    assert_eq!(http("PUT", &path, &blob).0, 200);
    assert!(http("GET", &path, b"") == (200, blob.clone()));
    assert_eq!(http("HEAD", &path, b""), (200, vec![]));
    let action = Function::Sha256.digest(b"action");
    let result = re::ActionResult {
        output_files: vec![output("x", &blob)],
        stdout_digest: Some(Function::Sha256.digest(b"absent").to_wire()),
        ..Default::default()
    };
    let ac = format!("/ac/{}", action.hash_text());
    assert_eq!(http("PUT", &ac, &result.encode_to_vec()).0, 200);
    assert_eq!(http("GET", &ac, b"").0, 404, "its output is not there");
    let result = re::ActionResult { stdout_digest: None, ..result };
    // Whatever comes this way, what failed is not served to a build.
    let broken = re::ActionResult { exit_code: 1, ..result.clone() };
    let failed = Function::Sha256.digest(b"an action that failed");
    assert_eq!(http("PUT", &format!("/ac/{}", failed.hash_text()), &broken.encode_to_vec()).0, 200);
    assert_eq!(http("PUT", &ac, &result.encode_to_vec()).0, 200);
    assert!(http("GET", &ac, b"") == (200, result.encode_to_vec()));
    block_on(async {
        let mut client = client(cache.address()).await;
        assert_eq!(client.result("", &action).await, Ok(result));
        assert_eq!(client.result("", &failed).await, Err(Code::NotFound));
        assert!(client.read(&digest.resource(), 0, 0).await.unwrap() == blob);
    });
    // What is no result of an action is not kept there.
    let other = format!("/ac/{}", Function::Sha256.digest(b"ccache").hash_text());
    for text in [&b"hello\n"[..], b"\xff\xff no message"] {
        let (code, said) = http("PUT", &other, text);
        let said = String::from_utf8(said).unwrap();
        assert!(code == 400 && said.contains("no ActionResult"), "{code} {said}");
        assert_eq!(http("GET", &other, b"").0, 404);
    }
    for (method, path, code) in
        [("GET", "/cas/abc", 400), ("GET", "/nothing", 404), ("DELETE", &path, 405)]
    {
        assert_eq!(http(method, path, b"").0, code, "{method} {path}");
    }
    cache.stop();
}

/// As ccache's layout `bazel` needs it.
#[test]
fn a_cache_of_any_results_keeps_what_is_none_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let options = CacheOptions { any_results: true, ..options(folder.path()) };
    let cache = Cache::start(&options, Clock::monotonic()).unwrap();
    let path = format!("/ac/{}", Function::Sha256.digest(b"object").hash_text());
    assert_eq!(over_http(cache.address(), "PUT", &path, b"no message").0, 200);
    assert_eq!(over_http(cache.address(), "GET", &path, b""), (200, b"no message".to_vec()));
    block_on(async {
        let mut client = client(cache.address()).await;
        let action = Function::Sha256.digest(b"object");
        assert_eq!(client.result("", &action).await, Err(Code::NotFound));
    });
    cache.stop();
}

/// Without TCP_NODELAY each answer waits 40 ms for an acknowledgement.
#[test]
fn a_serial_loop_of_find_missing_blobs_stays_below_two_milliseconds_at_the_median() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    block_on(async {
        let mut client = client(cache.address()).await;
        let digest = Function::Sha256.digest(b"x");
        let clock = Clock::monotonic();
        let mut times = Vec::new();
        for _ in 0..201 {
            let before = clock.now_ns();
            client.missing(&[digest]).await;
            times.push(clock.now_ns() - before);
        }
        times.sort_unstable();
        assert!(times[100] < 2_000_000, "{} ns", times[100]);
    });
    cache.stop();
}

#[test]
fn what_was_kept_is_there_after_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let blobs: Vec<Vec<u8>> = (0..50).map(|n| content(n, 20_000 * n as usize + 1)).collect();
    let digests: Vec<Digest> = blobs.iter().map(|b| Function::Sha256.digest(b)).collect();
    for round in 0..2 {
        let cache = start(folder.path());
        block_on(async {
            let mut client = client(cache.address()).await;
            for (blob, digest) in blobs.iter().zip(&digests) {
                if round == 0 {
                    let name = format!("uploads/1/{}", digest.resource());
                    client.write(&name, blob, 1 << 20).await.unwrap();
                }
                assert!(client.read(&digest.resource(), 0, 0).await.unwrap() == *blob);
            }
        });
        cache.stop();
    }
}

/// The head and body of an answer of HTTP.
fn http(address: std::net::SocketAddr, request: &str, body: &[u8]) -> String {
    let length = body.len();
    let head = format!("{request}\r\nHost: x\r\nContent-Length: {length}");
    answer(address, &head, body)
}

/// The answer to this head and body, on a connection of its own.
fn answer(address: std::net::SocketAddr, head: &str, body: &[u8]) -> String {
    String::from_utf8_lossy(&answer_bytes(address, head, body)).into_owned()
}

fn answer_bytes(address: std::net::SocketAddr, head: &str, body: &[u8]) -> Vec<u8> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "{head}\r\nConnection: close\r\n\r\n").unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

/// A proxy before it may take another of two hosts than the cache does.
#[test]
fn a_host_that_is_none_or_is_there_twice_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    let code = |hosts: &str| {
        let said = answer(cache.address(), &format!("GET /status HTTP/1.1{hosts}"), b"");
        said[9..12].parse::<u16>().unwrap()
    };
    for good in ["\r\nHost: a", "\r\nHost: [::1]:80", "\r\nHost:"] {
        assert_eq!(code(good), 200, "{good}");
    }
    for bad in
        ["", "\r\nHost: a b/", "\r\nHost: a/b", "\r\nHost: a\r\nHost: b", "\r\nHost: a\r\nHost: a"]
    {
        assert_eq!(code(bad), 400, "{bad}");
    }
    cache.stop();
}

/// A refusal of gRPC has the status 200, which a client of plain HTTP takes for a hit.
#[test]
fn every_refusal_over_http_has_a_code_of_http() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    options.listen.tokens = Some(Tokens::parse("read people\nwrite ci", &LINE).unwrap().into());
    let cache = kendall_build_cluster::cache::Cache::start(&options, Clock::monotonic()).unwrap();
    let blob = content(1, 3_000_000);
    let hash = Function::Sha256.digest(&blob).hash_text();
    let token = |token: &str| format!("\r\nauthorization: Bearer {token}");
    let code = |method: &str, path: &str, token: &str| {
        let answer = http(cache.address(), &format!("{method} {path} HTTP/1.1{token}"), &blob);
        answer[9..12].parse::<u16>().unwrap()
    };
    let cas = format!("/cas/{hash}");
    let result = format!("/ac/{hash}");
    for method in ["GET", "HEAD", "PUT", "POST", "DELETE"] {
        for path in [&cas, &result] {
            assert_eq!(code(method, path, ""), 401, "{method} {path}");
            assert_eq!(code(method, path, &token("other")), 401, "{method} {path}");
        }
    }
    assert_eq!(code("PUT", &cas, &token("people")), 403);
    assert_eq!(code("PUT", &result, &token("people")), 403);
    assert_eq!(code("GET", &cas, &token("people")), 404);
    assert_eq!(code("POST", &cas, &token("ci")), 405);
    assert_eq!(code("PUT", &cas, &token("ci")), 200);
    // With a body, which is not read, it may be reset before it was heard.
    let found = http(cache.address(), &format!("GET {cas} HTTP/1.1{}", token("people")), b"");
    assert_eq!(&found[9..12], "200");
    let refused = http(cache.address(), &format!("GET {cas} HTTP/1.1"), b"").to_lowercase();
    assert!(refused.contains("www-authenticate: bearer"), "{refused}");
    assert!(refused.contains("a token is needed"), "{refused}");
    cache.stop();
}

#[test]
fn a_result_whose_outputs_lead_elsewhere_is_neither_stored_nor_served() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    let blob = content(1, 100);
    let mut bad: Vec<re::ActionResult> = ["/etc/passwd", "", "../x", "a/../../x"]
        .map(|path| re::ActionResult {
            output_files: vec![output(path, &blob)],
            ..Default::default()
        })
        .to_vec();
    let mut without = output("a", &blob);
    without.digest = None;
    bad.push(re::ActionResult { output_files: vec![without], ..Default::default() });
    block_on(async {
        let mut client = client(cache.address()).await;
        client.put(Function::Sha256, std::slice::from_ref(&blob)).await;
        for (number, result) in bad.iter().enumerate() {
            let action = Function::Sha256.digest(&number.to_le_bytes());
            let refused = client.keep("", &action, result.clone()).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);
            let path = format!("/ac/{}", action.hash_text());
            let bytes = result.encode_to_vec();
            let answer = http(cache.address(), &format!("PUT {path} HTTP/1.1"), &bytes);
            assert_eq!(&answer[9..12], "400", "{answer}");
            assert_eq!(client.result("", &action).await, Err(Code::NotFound));
        }
        // A tree with such an entry makes its result a miss.
        let file = re::FileNode {
            name: "../x".to_owned(),
            digest: Some(Function::Sha256.digest(&blob).to_wire()),
            ..Default::default()
        };
        let root = re::Directory { files: vec![file], ..Default::default() };
        let tree = re::Tree { root: Some(root), children: vec![] }.encode_to_vec();
        client.put(Function::Sha256, std::slice::from_ref(&tree)).await;
        let directory = re::OutputDirectory {
            path: "d".to_owned(),
            tree_digest: Some(Function::Sha256.digest(&tree).to_wire()),
            ..Default::default()
        };
        let result = re::ActionResult { output_directories: vec![directory], ..Default::default() };
        let action = Function::Sha256.digest(b"with a tree");
        client.keep("", &action, result).await.unwrap();
        assert_eq!(client.result("", &action).await, Err(Code::NotFound));
    });
    cache.stop();
}

#[test]
fn health_is_that_of_the_services_that_a_cache_has() {
    let folder = tempfile::tempdir().unwrap();
    let cache = start(folder.path());
    block_on(async {
        let endpoint = tonic::transport::Endpoint::new(format!("http://{}", cache.address()));
        let channel = endpoint.unwrap().connect().await.unwrap();
        let mut health = HealthClient::new(channel);
        let re = "build.bazel.remote.execution.v2";
        for served in ["", &format!("{re}.ActionCache"), &format!("{re}.Capabilities")] {
            let request = HealthCheckRequest { service: served.to_owned() };
            assert_eq!(health.check(request).await.unwrap().into_inner().status, 1, "{served}");
        }
        for other in ["nothing", &format!("{re}.Execution")] {
            let request = HealthCheckRequest { service: other.to_owned() };
            assert_eq!(health.check(request).await.unwrap_err().code(), Code::NotFound, "{other}");
        }
    });
    cache.stop();
}
