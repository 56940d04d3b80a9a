//! For `fuzz/`: requests to an agent.

use std::io::{BufRead as _, Read as _};
use std::path::{Component, Path};

use super::within;
use crate::protocol::{LONGEST_LINE, Request, What};

/// Reads lines as an agent does, and does nothing of what they ask.
pub(crate) fn understand(bytes: &[u8]) {
    let mut input = bytes;
    let mut line = Vec::new();
    loop {
        line.clear();
        let got = (&mut input).take(LONGEST_LINE).read_until(b'\n', &mut line);
        if !matches!(got, Ok(length) if length > 0) {
            return;
        }
        let Ok(request) = serde_json::from_slice::<Request>(&line) else { continue };
        // Said again it is the same; a share of a core may differ in its last digit.
        let said =
            serde_json::to_vec(&request).map(|said| serde_json::from_slice::<Request>(&said));
        let shared = matches!(&request.what, What::Start(start) if start.cores.is_some());
        assert!(shared || matches!(&said, Ok(Ok(again)) if *again == request), "{request:?}");
        let folder = Path::new("/agent");
        let (What::Measure { file } | What::Read { file, .. } | What::Remove { folder: file }) =
            &request.what
        else {
            continue;
        };
        if let Ok(path) = within(folder, file) {
            let below = path.strip_prefix(folder).is_ok_and(|below| below != Path::new(""));
            assert!(below && !path.components().any(|part| part == Component::ParentDir), "{file}");
        }
    }
}
