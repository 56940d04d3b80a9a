//! Compressed content, in bounds: a few bytes may claim to be many.

use tonic::Status;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation as _, OutBuffer};

use super::blobs::BATCH_BYTES;

/// Largest window that a decoder gets, as a power of two: what levels up to 19 use. A larger one
/// would let a client that sends next to nothing take 128 MiB.
const WINDOW_LOG: u32 = 23;
/// Level at which content that is stored as it is gets compressed for those who ask for it.
pub(crate) const LEVEL: i32 = 1;
/// What comes out of a decoder at once.
const STEP: usize = 128 << 10;

/// Whether a blob of `size` bytes may be expanded at once.
pub(crate) fn compressed_fits(size: u64) -> bool {
    size <= 2 * BATCH_BYTES
}

/// Refuses zstd that is longer than any that `size` bytes of content need: it has frames without content, of which there
/// could be any number. Heads of blocks and frames take 3 to 18 bytes for up to 128 KiB each.
pub(crate) fn check_length(came: u64, size: u64) -> Result<(), Status> {
    if came <= size.saturating_add(size / 8).saturating_add(1024) {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "{came} bytes of zstd are more than {size} bytes of content need"
    )))
}

fn malformed(error: &std::io::Error) -> Status {
    Status::invalid_argument(format!("the content is not zstd: {error}"))
}

/// A decoder that gives no more than was announced.
pub(crate) struct Expander {
    decoder: Decoder<'static>,
    buffer: Vec<u8>,
    left: u64,
    /// Whether the last frame has come to its end.
    whole: bool,
}

impl std::fmt::Debug for Expander {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Expander({} left)", self.left)
    }
}

impl Expander {
    /// A decoder of a content of `size` bytes.
    pub(crate) fn new(size: u64) -> Result<Self, Status> {
        let mut decoder = Decoder::new().map_err(|error| malformed(&error))?;
        decoder
            .set_parameter(DParameter::WindowLogMax(WINDOW_LOG))
            .map_err(|error| malformed(&error))?;
        let step = usize::try_from(size).unwrap_or(STEP).clamp(64, STEP);
        Ok(Self { decoder, buffer: vec![0; step], left: size, whole: true })
    }

    /// Expands `bytes`, and gives what comes out, piece by piece.
    pub(crate) fn expand(
        &mut self,
        bytes: &[u8],
        mut out: impl FnMut(&[u8]),
    ) -> Result<(), Status> {
        let mut input = InBuffer::around(bytes);
        loop {
            let mut output = OutBuffer::around(&mut self.buffer[..]);
            let before = input.pos();
            let hint =
                self.decoder.run(&mut input, &mut output).map_err(|error| malformed(&error))?;
            let (made, full) = (output.pos(), output.pos() == output.capacity());
            let moved = input.pos() > before || made > 0;
            if moved {
                self.whole = hint == 0;
            }
            self.left = self.left.checked_sub(made as u64).ok_or_else(|| {
                Status::invalid_argument("the content expands to more than was announced")
            })?;
            out(&self.buffer[..made]);
            if (input.pos() == bytes.len() && !full) || !moved {
                return Ok(());
            }
        }
    }

    /// Whether all that was announced came out, and the content ended where it should.
    pub(crate) fn ended(&self) -> Result<(), Status> {
        if self.left == 0 && self.whole {
            return Ok(());
        }
        Err(Status::invalid_argument(format!(
            "the compressed content ends early: {} bytes less than announced",
            self.left
        )))
    }
}

/// A content that is held whole.
pub(crate) fn expand(bytes: &[u8], size: u64) -> Result<Vec<u8>, Status> {
    let mut expander = Expander::new(size)?;
    let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    expander.expand(bytes, |piece| content.extend_from_slice(piece))?;
    expander.ended()?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bomb_is_stopped_when_it_passes_what_was_announced() {
        let bomb = zstd::encode_all(&*vec![0; 64 << 20], 19).unwrap();
        assert!(bomb.len() < 10_000);
        let mut expander = Expander::new(1000).unwrap();
        let mut most = 0;
        let refused = expander.expand(&bomb, |piece| most += piece.len()).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        assert!(most <= 1000, "{most}");
    }

    #[test]
    fn content_in_any_parts_is_expanded_and_what_is_cut_is_refused() {
        let content: Vec<u8> = (0..300_000_u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        let packed = zstd::encode_all(&*content, 3).unwrap();
        for step in [1, 1000, packed.len()] {
            let mut expander = Expander::new(content.len() as u64).unwrap();
            let mut out = Vec::new();
            for part in packed.chunks(step) {
                expander.expand(part, |piece| out.extend_from_slice(piece)).unwrap();
            }
            expander.ended().unwrap();
            assert!(out == content);
        }
        assert!(expand(&packed[..packed.len() - 1], content.len() as u64).is_err());
        assert!(expand(&packed, content.len() as u64 + 1).is_err());
        assert!(expand(b"not zstd", 8).is_err());
        assert_eq!(expand(&[], 0).unwrap(), b"");
    }
}
