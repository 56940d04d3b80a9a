//! For `fuzz/`: what clients of the cache send, without a server around it.

use prost::Message as _;

use super::proto::{self, Fields};
use super::resource::Resource;
use super::{blobs, outputs};
use crate::digest::{Digest, Function};
use crate::wire::re;

/// A message of the protocol.
///
/// # Panics
/// When a digest is read otherwise than the library of the protocol reads it.
pub fn message(bytes: &[u8]) {
    assert!(Fields(bytes).count() <= bytes.len());
    for function in Function::ALL {
        let library = re::Digest::decode(bytes).map(|wire| Digest::from_wire(function, &wire));
        if let (Ok(ours), Ok(Ok(theirs))) = (proto::digest(function, bytes), library) {
            assert_eq!(ours, theirs);
        }
        // Refused or not: it ends.
        outputs::check(function, bytes).unwrap_or_default();
        blobs::command_of(function, bytes);
    }
}

/// A resource name of ByteStream.
///
/// # Panics
/// When what was read from it is not what it says.
pub fn resource(name: &str) {
    for upload in [false, true] {
        let Ok(resource) = Resource::parse(name, upload) else { continue };
        assert!(name.starts_with(resource.instance));
        assert!(name.contains(&resource.digest.hash_text()));
        assert_eq!(resource.upload.is_some(), upload);
    }
}
