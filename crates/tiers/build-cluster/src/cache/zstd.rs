//! Compressed content, in bounds: a few bytes may claim to be many.

use bytes::{Buf as _, Bytes};
use tonic::Status;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation as _, OutBuffer};

/// Largest window that a decoder gets, as a power of two: what levels up to 19 use. A larger one
/// would let a client that sends next to nothing take 128 MiB.
const WINDOW_LOG: u32 = 23;
/// Level at which content that is stored as it is gets compressed for those who ask for it.
pub(crate) const LEVEL: i32 = 1;
/// What comes out of a decoder at once.
const STEP: usize = 128 << 10;

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

/// The beginning of a frame, as RFC 8878 has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frame {
    /// Without content.
    Skippable,
    /// What it says of its content, and the memory that expanding it takes.
    Content { bytes: Option<u64>, window: u64 },
    /// More of it is needed, or it is malformed, which the decoder tells.
    Unknown,
}

const FRAME_HEADER: usize = 18;

impl Frame {
    fn parse(bytes: &[u8]) -> Self {
        let number = |at: usize, length: usize| -> Option<u64> {
            let mut number = [0; 8];
            number[..length].copy_from_slice(bytes.get(at..at + length)?);
            Some(u64::from_le_bytes(number))
        };
        match number(0, 4) {
            Some(magic) if magic >> 4 == 0x0184_d2a5 => return Self::Skippable,
            Some(0xfd2f_b528) => {}
            _ => return Self::Unknown,
        }
        let Some(descriptor) = number(4, 1) else { return Self::Unknown };
        let single_segment = descriptor & 0x20 != 0;
        let dictionary = [0, 1, 2, 4][usize::from(bytes[4] & 3)];
        let at = 5 + usize::from(!single_segment) + dictionary;
        let size = match descriptor >> 6 {
            0 if single_segment => number(at, 1),
            0 => Some(u64::MAX),
            1 => number(at, 2).map(|size| size + 256),
            2 => number(at, 4),
            _ => number(at, 8),
        };
        let Some(size) = size else { return Self::Unknown };
        let content = (size != u64::MAX || descriptor >> 6 == 3).then_some(size);
        if single_segment {
            return Self::Content { bytes: content, window: size };
        }
        let Some(window) = number(5, 1) else { return Self::Unknown };
        let base = 1_u64 << (10 + (window >> 3));
        Self::Content { bytes: content, window: base + base / 8 * (window & 7) }
    }
}

/// A decoder that gives no more than was announced.
pub(crate) struct Expander {
    decoder: Decoder<'static>,
    buffer: Vec<u8>,
    left: u64,
    /// Whether the last frame has come to its end.
    whole: bool,
    /// What came of the header of the frame that has begun, until it is understood.
    header: Option<Vec<u8>>,
    window: u64,
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
        let buffer = vec![0; step];
        Ok(Self { decoder, buffer, left: size, whole: true, header: None, window: 0 })
    }

    /// Most bytes of memory that the decoder took for a frame so far.
    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// Expands the beginning of `bytes`, about `most` bytes of content at once, and gives what comes out, piece by
    /// piece; says whether all of `bytes` was expanded.
    pub(crate) fn expand(
        &mut self,
        bytes: &mut Bytes,
        most: usize,
        mut out: impl FnMut(&[u8]),
    ) -> Result<bool, Status> {
        let mut total = 0;
        loop {
            self.look(bytes)?;
            let mut input = InBuffer::around(bytes);
            let mut output = OutBuffer::around(&mut self.buffer[..]);
            let hint =
                self.decoder.run(&mut input, &mut output).map_err(|error| malformed(&error))?;
            let taken = input.pos();
            let (made, full) = (output.pos(), output.pos() == output.capacity());
            let moved = taken > 0 || made > 0;
            if moved {
                self.whole = hint == 0;
            }
            bytes.advance(taken);
            self.left = self.left.checked_sub(made as u64).ok_or_else(too_much)?;
            out(&self.buffer[..made]);
            if (bytes.is_empty() && !full) || !moved {
                return Ok(true);
            }
            total += made;
            if total >= most {
                return Ok(false);
            }
        }
    }

    /// Reads the header of a frame before the decoder does: one that says that it holds more than was announced is
    /// refused before a byte of it is expanded.
    fn look(&mut self, bytes: &Bytes) -> Result<(), Status> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.whole {
            self.header = Some(Vec::new());
        }
        let Some(header) = &mut self.header else { return Ok(()) };
        let more = bytes.len().min(FRAME_HEADER - header.len());
        header.extend_from_slice(&bytes[..more]);
        match Frame::parse(header) {
            Frame::Content { bytes: Some(content), .. } if content > self.left => Err(too_much()),
            Frame::Content { bytes: content, window } => {
                let window = window.min(content.unwrap_or(u64::MAX)).min(1 << WINDOW_LOG);
                self.window = self.window.max(window);
                self.header = None;
                Ok(())
            }
            Frame::Unknown if header.len() < FRAME_HEADER => Ok(()),
            Frame::Skippable | Frame::Unknown => {
                self.header = None;
                Ok(())
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

fn too_much() -> Status {
    Status::invalid_argument("the content expands to more than was announced")
}

/// A content that is held whole.
pub(crate) fn expand(bytes: &Bytes, size: u64) -> Result<Vec<u8>, Status> {
    let mut expander = Expander::new(size)?;
    let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    expander.expand(&mut bytes.clone(), usize::MAX, |piece| content.extend_from_slice(piece))?;
    expander.ended()?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bomb_is_stopped_before_or_when_it_passes_what_was_announced() {
        let zeros = vec![0; 64 << 20];
        let says = zstd::bulk::compress(&zeros, 19).unwrap();
        let silent = zstd::encode_all(&*zeros, 19).unwrap();
        for (bomb, bound) in [(says, 0), (silent, 1000)] {
            assert!(bomb.len() < 10_000);
            for step in [1, 7, bomb.len()] {
                let mut expander = Expander::new(1000).unwrap();
                let mut most = 0;
                let refused = bomb.chunks(step).find_map(|part| {
                    let mut part = Bytes::copy_from_slice(part);
                    expander.expand(&mut part, usize::MAX, |piece| most += piece.len()).err()
                });
                assert_eq!(refused.unwrap().code(), tonic::Code::InvalidArgument);
                assert!(most <= bound, "{most}");
            }
        }
    }

    #[test]
    fn a_turn_gives_no_more_than_it_may_and_the_next_one_goes_on() {
        let zeros = vec![0; 16 << 20];
        let mut packed = Bytes::from(zstd::encode_all(&*zeros, 3).unwrap());
        let mut expander = Expander::new(16 << 20).unwrap();
        let (mut all, mut turns) = (0, 0);
        loop {
            let mut made = 0;
            let done =
                expander.expand(&mut packed, 256 << 10, |piece| made += piece.len()).unwrap();
            assert!(made <= (256 << 10) + STEP, "{made}");
            all += made;
            turns += 1;
            if done {
                break;
            }
        }
        expander.ended().unwrap();
        assert!(all == 16 << 20 && turns >= 64, "{all} bytes in {turns} turns");
        assert!((1..=1 << WINDOW_LOG).contains(&expander.window()));
    }

    #[test]
    fn the_header_of_a_frame_is_read_as_the_library_reads_it() {
        for length in [0, 1, 255, 256, 257, 65_791, 65_792, 1_000_000, 9 << 20] {
            let content = vec![7; length];
            let packed = zstd::bulk::compress(&content, 1).unwrap();
            let known = zstd::zstd_safe::get_frame_content_size(&packed).unwrap();
            let Frame::Content { bytes, window } = Frame::parse(&packed) else {
                panic!("{length} bytes: not understood")
            };
            assert_eq!(bytes, known);
            assert!(window >= (length as u64).min(1 << 10), "{window} for {length}");
            let silent = zstd::encode_all(&*content, 1).unwrap();
            let Frame::Content { bytes, .. } = Frame::parse(&silent) else {
                panic!("{length} bytes: not understood")
            };
            assert_eq!(bytes, zstd::zstd_safe::get_frame_content_size(&silent).unwrap());
        }
        assert_eq!(Frame::parse(&[0x50, 0x2a, 0x4d, 0x18]), Frame::Skippable);
        assert_eq!(Frame::parse(b"no zstd at all, as it seems"), Frame::Unknown);
    }

    #[test]
    fn content_in_any_parts_is_expanded_and_what_is_cut_is_refused() {
        let content: Vec<u8> = (0..300_000_u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        let packed = Bytes::from(zstd::encode_all(&*content, 3).unwrap());
        for step in [1, 1000, packed.len()] {
            let mut expander = Expander::new(content.len() as u64).unwrap();
            let mut out = Vec::new();
            for part in packed.chunks(step) {
                let mut part = packed.slice_ref(part);
                while !expander.expand(&mut part, 1, |piece| out.extend_from_slice(piece)).unwrap()
                {
                }
            }
            expander.ended().unwrap();
            assert!(out == content);
        }
        assert!(expand(&packed.slice(..packed.len() - 1), content.len() as u64).is_err());
        assert!(expand(&packed, content.len() as u64 + 1).is_err());
        assert!(expand(&Bytes::from_static(b"not zstd"), 8).is_err());
        assert_eq!(expand(&Bytes::new(), 0).unwrap(), b"");
    }
}
