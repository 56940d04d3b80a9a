//! Results of actions: kept by one server, and served only while everything that they name is there,
//! on whichever server.

use std::collections::HashSet;

use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status};

use super::Front;
use super::servers::{Operation, forwarded, may_write};
use crate::cache::outputs;
use crate::digest::{Digest, Function};
use crate::wire::re;
use crate::wire::re::action_cache_server::ActionCache;

/// Directories of one result that are checked, at most.
const DIRECTORIES: usize = 100_000;

#[tonic::async_trait]
impl ActionCache for Front {
    async fn get_action_result(
        &self,
        request: Request<re::GetActionResultRequest>,
    ) -> Result<Response<re::ActionResult>, Status> {
        let _timed = self.results.begin(Operation::GetResult);
        let (metadata, _, message) = request.into_parts();
        let function = Function::from_wire(message.digest_function)?;
        let action = Digest::required(function, message.action_digest.as_ref())?;
        let instance = message.instance_name.clone();
        let server = self.results.owner(&action.hash)?;
        let mut client = self.results.shard(server).results.clone();
        let call = client.get_action_result(forwarded(&metadata, message));
        let known = async {
            let result = self.results.call(server, 1, call).await?;
            let complete = self.is_complete(&metadata, &instance, function, &result).await?;
            Ok::<_, Status>(complete.then_some(result))
        };
        match known.await {
            Ok(Some(result)) => Ok(Response::new(result)),
            // Without a server, too: a build executes the action again, and goes on.
            Err(status) if status.code() != Code::Unavailable => Err(status),
            Ok(None) | Err(_) => Err(Status::not_found(format!("there is no result of {action}"))),
        }
    }

    async fn update_action_result(
        &self,
        request: Request<re::UpdateActionResultRequest>,
    ) -> Result<Response<re::ActionResult>, Status> {
        may_write(&request)?;
        let _timed = self.results.begin(Operation::PutResult);
        let (metadata, _, message) = request.into_parts();
        let function = Function::from_wire(message.digest_function)?;
        let action = Digest::required(function, message.action_digest.as_ref())?;
        let server = self.results.owner(&action.hash)?;
        let mut client = self.results.shard(server).results.clone();
        let call = client.update_action_result(forwarded(&metadata, message));
        let result = self.results.call(server, 1, call).await?;
        Ok(Response::new(result))
    }
}

impl Front {
    async fn is_complete(
        &self,
        metadata: &MetadataMap,
        instance: &str,
        function: Function,
        result: &re::ActionResult,
    ) -> Result<bool, Status> {
        if outputs::check_decoded(function, result).is_err() {
            return Ok(false);
        }
        let mut named: HashSet<Digest> = HashSet::new();
        let mut add = |digest: Option<&re::Digest>| -> Result<(), Status> {
            if let Some(digest) = digest {
                named.insert(Digest::from_wire(function, digest)?);
            }
            Ok(())
        };
        for file in &result.output_files {
            add(file.digest.as_ref())?;
        }
        add(result.stdout_digest.as_ref())?;
        add(result.stderr_digest.as_ref())?;
        // Each once: a result of few bytes may name a large one many times.
        let (mut trees, mut roots) = (HashSet::new(), HashSet::new());
        for directory in &result.output_directories {
            if let Some(tree) = &directory.tree_digest {
                trees.insert(Digest::from_wire(function, tree)?);
            }
            if let Some(root) = &directory.root_directory_digest {
                roots.insert(Digest::from_wire(function, root)?);
            }
        }
        for tree in &trees {
            let found = self.message::<outputs::Tree>(metadata, instance, tree).await?;
            let Some(all) = found.and_then(|tree| tree.directories(function)) else {
                return Ok(false);
            };
            for file in all.iter().flat_map(|one| &one.files) {
                named.insert(Digest::required(function, file.digest.as_ref())?);
            }
        }
        if !self.below(metadata, instance, roots, &mut named).await? {
            return Ok(false);
        }
        let named: Vec<Digest> = named.into_iter().filter(|digest| !digest.is_empty()).collect();
        Ok(self.missing(metadata, instance, &named).await?.is_empty())
    }

    /// Adds the files of directories and of all below them; false where a directory is missing.
    async fn below(
        &self,
        metadata: &MetadataMap,
        instance: &str,
        roots: HashSet<Digest>,
        named: &mut HashSet<Digest>,
    ) -> Result<bool, Status> {
        let mut left: Vec<Digest> = roots.iter().copied().collect();
        let mut seen = roots;
        while let Some(digest) = left.pop() {
            if seen.len() > DIRECTORIES {
                return Err(Status::resource_exhausted("the result has too many directories"));
            }
            let found = self.message::<re::Directory>(metadata, instance, &digest).await?;
            let sound =
                |directory: &re::Directory| outputs::is_directory(digest.function, directory);
            let Some(directory) = found.filter(sound) else { return Ok(false) };
            for file in &directory.files {
                named.insert(Digest::required(digest.function, file.digest.as_ref())?);
            }
            for child in &directory.directories {
                let child = Digest::required(digest.function, child.digest.as_ref())?;
                if seen.insert(child) {
                    left.push(child);
                }
            }
        }
        Ok(true)
    }
}
