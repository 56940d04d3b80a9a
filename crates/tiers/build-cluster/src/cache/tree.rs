//! `GetTree`: a directory and all below it, each once, in pages.

use std::collections::HashSet;
use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use prost::Message as _;
use tonic::Status;

use super::context::{Answered, Call, not_found};
use super::grpc;
use super::instances::Partition;
use super::proto;
use super::read::parsed;
use crate::digest::{Digest, Function};
use crate::wire::re;

/// Directories of one answer, unless the client asks for fewer.
const PAGE: usize = 1000;
/// Directories of one tree.
const MOST: usize = 1_000_000;
const MESSAGE_BYTES: usize = 1 << 20;
const ANSWER_BYTES: usize = 16 << 20;

/// `GetTree`. A directory that is missing below the root is left out, as the protocol has it.
pub(crate) fn get_tree(call: &Call, message: &Bytes) -> Answered {
    let request = re::GetTreeRequest::decode(message.clone()).map_err(|_| proto::Malformed)?;
    let function = Function::from_wire(request.digest_function)?;
    let root = Digest::required(function, request.root_digest.as_ref())?;
    let partition = call.partition(&request.instance_name)?;
    let skip: usize = match request.page_token.as_str() {
        "" => 0,
        token => token
            .parse()
            .map_err(|_| Status::invalid_argument("the page token is none of this server"))?,
    };
    let page = match usize::try_from(request.page_size) {
        Ok(0) => PAGE,
        Ok(size) => size.min(PAGE),
        Err(_) => return Err(Status::invalid_argument("the page size is negative")),
    };
    let mut walk = Walk { partition, moment: partition.store.moment(), seen: HashSet::new() };
    let mut left = VecDeque::from([root]);
    walk.seen.insert(root);
    let mut messages = Vec::new();
    let mut answer = re::GetTreeResponse::default();
    let (mut met, mut bytes, mut total) = (0, 0, 0);
    while let Some(digest) = left.pop_front() {
        let Some(directory) = walk.directory(&digest, &mut left)? else {
            if digest == root {
                return Err(not_found(&root));
            }
            continue;
        };
        met += 1;
        if met <= skip {
            continue;
        }
        bytes += directory.encoded_len();
        total += directory.encoded_len();
        answer.directories.push(directory);
        let enough = met - skip >= page || total >= ANSWER_BYTES;
        if enough && !left.is_empty() {
            answer.next_page_token = met.to_string();
            break;
        }
        if bytes >= MESSAGE_BYTES {
            messages.push(framed(&std::mem::take(&mut answer)));
            bytes = 0;
        }
    }
    messages.push(framed(&answer));
    call.bytes(0, total as u64);
    Ok(grpc::stream(messages, None))
}

fn framed(answer: &re::GetTreeResponse) -> Bytes {
    let length = answer.encoded_len();
    let mut out = BytesMut::with_capacity(grpc::PREFIX + length);
    grpc::put_prefix(&mut out, length);
    answer.encode(&mut out).expect("a growing buffer takes all");
    out.freeze()
}

struct Walk<'a> {
    partition: Partition<'a>,
    moment: u64,
    /// So that a tree in which each directory holds the next one twice ends before the world does.
    seen: HashSet<Digest>,
}

impl Walk<'_> {
    fn directory(
        &mut self,
        digest: &Digest,
        left: &mut VecDeque<Digest>,
    ) -> Result<Option<re::Directory>, Status> {
        let found = parsed::<re::Directory>(&self.partition, digest, self.moment)?;
        let Some(directory) = found else { return Ok(None) };
        for child in &directory.directories {
            let child = Digest::required(digest.function, child.digest.as_ref())?;
            if self.seen.insert(child) {
                left.push_back(child);
            }
        }
        if self.seen.len() > MOST {
            return Err(Status::resource_exhausted("the tree has too many directories"));
        }
        Ok(Some(directory))
    }
}
