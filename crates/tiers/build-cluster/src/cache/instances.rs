//! Instance names: one store for all of them, or a store for each.

use std::collections::BTreeMap;

use tonic::Status;

use super::store::{Entry, Key, Kind, Store};
use crate::digest::{Digest, Function, HASH_BYTES};

/// The stores, by instance.
#[derive(Debug)]
pub(crate) enum Instances {
    /// Every name is served. Content is shared, since it proves itself; results are apart.
    Shared(Store),
    /// Only these names, each with a store and a quota of its own.
    Named(BTreeMap<String, Store>),
}

/// What one instance sees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Partition<'a> {
    pub(crate) store: &'a Store,
    /// What keeps its results apart from those of other instances in the same store.
    salt: [u8; HASH_BYTES],
}

impl Instances {
    pub(crate) fn partition(&self, instance: &str) -> Result<Partition<'_>, Status> {
        match self {
            Self::Shared(store) => {
                let salt = if instance.is_empty() {
                    [0; HASH_BYTES]
                } else {
                    blake3::hash(instance.as_bytes()).into()
                };
                Ok(Partition { store, salt })
            }
            Self::Named(stores) => match stores.get(instance) {
                Some(store) => Ok(Partition { store, salt: [0; HASH_BYTES] }),
                None => Err(Status::not_found(format!("there is no instance {instance:?}"))),
            },
        }
    }

    pub(crate) fn stores(&self) -> Vec<(&str, &Store)> {
        match self {
            Self::Shared(store) => vec![("", store)],
            Self::Named(stores) => stores.iter().map(|(name, s)| (name.as_str(), s)).collect(),
        }
    }
}

impl Partition<'_> {
    /// The entry of a blob, used now; a blob of another size is not the one that is asked for.
    pub(crate) fn entry(&self, digest: &Digest, moment: u64) -> Option<Entry> {
        let entry = self.store.get(&Key::blob(digest), moment)?;
        (entry.size == digest.size).then_some(entry)
    }

    /// Whether a blob is there, used now; the empty one always is.
    pub(crate) fn has(&self, digest: &Digest, moment: u64) -> bool {
        digest.is_empty() || self.entry(digest, moment).is_some()
    }

    /// The name under which the result of an action is kept.
    pub(crate) fn result(&self, action: &Digest) -> Key {
        Key { kind: Kind::Result, function: action.function, hash: self.salted(action.hash) }
    }

    /// The name under which an asset is kept.
    pub(crate) fn asset(&self, hash: [u8; HASH_BYTES]) -> Key {
        Key { kind: Kind::Asset, function: Function::Blake3, hash: self.salted(hash) }
    }

    fn salted(&self, mut hash: [u8; HASH_BYTES]) -> [u8; HASH_BYTES] {
        for (byte, salt) in hash.iter_mut().zip(self.salt) {
            *byte ^= salt;
        }
        hash
    }
}
